"""Replay sessions in parallel processes, and keep what is done when somebody stops them."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from context_compressor.errors import ContextCompressorError
from context_compressor.measure import SYSTEMS, Probe, Recording, Watched, watch
from context_compressor.measure.results import OURS, SessionRun, Skipped
from context_compressor.messages.chat import from_openai
from context_compressor.tokens.tiktoken import TiktokenCounter

_POLL_SECONDS = 0.1
_QUIET = logging.NullHandler()

Outcome = SessionRun | Skipped


@dataclass(frozen=True, slots=True)
class Task:
    """A session, and what is to be done with it."""

    name: str
    source: str
    messages: list[dict[str, Any]]
    systems: tuple[str, ...]
    budgets: tuple[int, ...]
    probes: tuple[Probe, ...] = ()

    @property
    def steps(self) -> int:
        """How many turns are to be replayed, about: what precedes the first request is none."""
        answers = [m for m in self.messages if isinstance(m, dict) and m.get("role") == "assistant"]
        return len(answers) * len(self.systems) * len(self.budgets)


class _StoppedError(Exception):
    """Report that somebody wants the replay to end."""


def replay_session(task: Task, on_turn: Callable[[], object]) -> Outcome:
    """Return what became of a session; what `on_turn` raises passes."""
    # What it repairs, a memory logs; in a table or under a progress bar nobody could tell of which session.
    logging.getLogger("context_compressor").addHandler(_QUIET)
    try:
        from_openai(task.messages)  # else every turn of ours would fail, each for the same reason
    except ContextCompressorError as error:
        return Skipped(task.name, str(error))
    try:
        recording = Recording(task.messages, _counter(), task.name, task.probes)
        if not recording.turns:
            return Skipped(task.name, "has no assistant message after an input, so no turn", is_failure=False)
        runs = tuple(
            asyncio.run(_watch(recording, system, budget, on_turn))
            for budget in task.budgets
            for system in task.systems
        )
    except _StoppedError:
        raise
    except Exception as error:  # one session must not cost the others
        return Skipped(task.name, f"{type(error).__name__}: {error}")
    session = SessionRun(
        task.name, task.source, len(task.messages), recording.total_tokens, runs, task.probes
    )
    # At no budget there is a view: all there is to tell would be told of the history.
    is_told = any(turn.is_sent for run in runs if run.replay.system == OURS for turn in run.replay.turns)
    return session if is_told else find_unfit(session)[0]


def find_unfit(session: SessionRun) -> list[Skipped]:
    """Return a failure for each budget at which our memory had no view to send in some turn."""
    unfit = []
    for replay in (run.replay for run in session.runs if run.replay.system == OURS):
        unsent = [turn for turn in replay.turns if not turn.is_sent]
        if unsent:
            count, all_turns = len(unsent), len(replay.turns)
            which = "no turn fits" if count == all_turns else f"{count:,} of {all_turns:,} turns do not fit"
            why = unsent[0].problems[0].removeprefix("raised ").replace("max_total_tokens", "--budget")
            unfit.append(Skipped(session.name, f"{which} {replay.budget:,} tokens: {why}"))
    return unfit


async def _watch(recording: Recording, system: str, budget: int, on_turn: Callable[[], object]) -> Watched:
    made = SYSTEMS[system](budget, recording.counter)
    result = await watch(recording, made, budget=budget, on_turn=lambda _: on_turn())
    await asyncio.sleep(0)  # Ctrl-C in this process is noticed at a pause
    return result


@cache  # reading the vocabulary takes 0.3 s
def _counter() -> TiktokenCounter:
    return TiktokenCounter()


@dataclass(slots=True)
class Replays:
    """Replay sessions; `outcomes` has those that are done, also after Ctrl-C."""

    tasks: Sequence[Task]
    jobs: int
    outcomes: list[Outcome] = field(default_factory=list)

    def run(self, on_turns: Callable[[int], object]) -> None:
        """Replay all; `on_turns` gets the number of turns that are done.

        Raises:
            KeyboardInterrupt: somebody stopped it.
        """
        for outcome in self._run(on_turns):
            self.outcomes.append(outcome)

    def _run(self, on_turns: Callable[[int], object]) -> Iterator[Outcome]:
        # The longest first, or the last process would run on alone.
        tasks = sorted(self.tasks, key=lambda task: -task.steps)
        if min(self.jobs, len(tasks)) > 1:
            yield from self._run_processes(tasks, on_turns)
            return
        done = 0

        def step() -> None:
            nonlocal done
            done += 1
            on_turns(done)

        for task in tasks:
            yield replay_session(task, step)
            on_turns(done)

    def _run_processes(self, tasks: Sequence[Task], on_turns: Callable[[int], object]) -> Iterator[Outcome]:
        processes = _Processes(on_turns)
        waiting, suspects = deque(tasks), deque[Task]()
        while waiting:
            yield from processes.run(waiting, min(self.jobs, len(waiting)), suspects)
        while suspects:
            # Alone, or nobody could tell whose process ended.
            task = suspects.popleft()
            culprits = deque[Task]()
            yield from processes.run(deque([task]), 1, culprits)
            if culprits:
                yield Skipped(task.name, "a process ended before it was done, perhaps for want of memory")


class _Processes:
    """Replay sessions in processes, which may be killed.

    Args:
        on_turns: gets the turns that are done, about ten times a second.
    """

    def __init__(self, on_turns: Callable[[int], object]) -> None:
        self._on_turns = on_turns
        self._earlier_turns = 0

    def run(self, waiting: deque[Task], jobs: int, suspects: deque[Task]) -> Iterator[Outcome]:
        """Yield what becomes of sessions, until all are done or a process ends before its time.

        Args:
            waiting: the sessions; those that were begun are taken out.
            jobs: processes at once.
            suspects: takes the sessions that were begun and not done when the process ended.
        """
        # A fork would copy the threads of the progress bar in whatever state they are.
        context = multiprocessing.get_context("spawn")
        # Read here without the lock, which a process that is killed may hold for ever.
        turns, stop = context.Value("Q", 0), context.RawValue("b", 0)
        pool = ProcessPoolExecutor(jobs, context, _start_worker, (turns, stop))
        running: dict[Future[Outcome], Task] = {}
        is_broken = False
        try:
            while running or (waiting and not is_broken):
                # No more at once than there are processes: what is running when one ends is suspect.
                while waiting and len(running) < jobs and not is_broken:
                    try:
                        with _interrupts_held():
                            running[pool.submit(_work, waiting[0])] = waiting[0]
                            waiting.popleft()
                    except BrokenProcessPool:
                        is_broken = True
                done, _ = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
                for future in done:
                    task = running.pop(future)
                    try:
                        yield future.result()
                    except BrokenProcessPool:
                        is_broken = True
                        suspects.append(task)
                self._on_turns(self._earlier_turns + turns.get_obj().value)
        finally:
            self._earlier_turns += turns.get_obj().value
            stop.value = 1
            pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back for a moment; a process started meanwhile is deaf to it from its first instruction."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_shared: dict[str, Any] = {}
"""In a worker: how many turns all workers have done, and whether they are to stop."""


def _start_worker(turns: Any, stop: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the first process says what is kept
    _shared.update(turns=turns, stop=stop)


def _work(task: Task) -> Outcome:
    turns, stop = _shared["turns"], _shared["stop"]

    def go_on() -> None:
        if stop.value:
            raise _StoppedError

    def step() -> None:
        go_on()
        with turns.get_lock():
            turns.value += 1

    go_on()
    return replay_session(task, step)


def default_jobs() -> int:
    """Return how many processes this machine runs at once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
