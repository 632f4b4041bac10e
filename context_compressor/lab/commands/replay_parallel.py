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
from itertools import count
from typing import Any

from context_compressor.errors import ContextCompressorError
from context_compressor.lab.measure import (
    EDIT_TOKENS,
    OURS,
    PRICES,
    SYSTEMS,
    Prices,
    Probe,
    Recording,
    SessionRun,
    Skipped,
    Watched,
    first_request,
    watch,
)
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
    compacted_at: tuple[int, ...] = ()
    turns: tuple[int, ...] | None = None
    edit_tokens: int = EDIT_TOKENS
    title: str = ""
    prices: Prices = PRICES

    @property
    def steps(self) -> int:
        """How many turns are to be replayed, about: what precedes the first request is none."""
        answers = [m for m in self.messages if isinstance(m, dict) and m.get("role") == "assistant"]
        turns = answers if self.turns is None else self.turns
        return len(turns) * len(self.systems) * len(self.budgets)


class _StoppedError(Exception):
    """Report that somebody wants the replay to end."""


def replay_session(task: Task, on_turn: Callable[[], object]) -> Outcome:
    """Return what became of a session; what `on_turn` raises passes."""
    # What it repairs, a memory logs; in a table or under a progress bar nobody could tell of which session.
    logging.getLogger("context_compressor").addHandler(_QUIET)
    try:
        from_openai(task.messages)  # else every turn of ours would fail, each for the same reason
        recording = Recording(
            task.messages, _counter(), task.name, task.probes, task.compacted_at, task.turns
        )
        if not recording.turns:
            return Skipped(task.name, "has no assistant message after an input, so no turn", is_failure=False)
        runs = tuple(
            asyncio.run(_watch(recording, system, budget, task, on_turn))
            for budget in task.budgets
            for system in task.systems
        )
    except _StoppedError:
        raise
    except ContextCompressorError as error:
        return Skipped(task.name, str(error))
    except Exception as error:  # one session must not cost the others
        return Skipped(task.name, f"{type(error).__name__}: {error}")
    session = SessionRun(
        task.name,
        task.source,
        len(task.messages),
        recording.total_tokens,
        runs,
        task.probes,
        task.title.strip() or first_request(task.messages),
        recording.instruction_tokens > 0,
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


async def _watch(
    recording: Recording, system: str, budget: int, task: Task, on_turn: Callable[[], object]
) -> Watched:
    made = SYSTEMS[system](budget, recording.counter)
    result = await watch(
        recording,
        made,
        budget=budget,
        edit_tokens=task.edit_tokens,
        prices=task.prices,
        on_turn=lambda _: on_turn(),
    )
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
        # The longest first, or the last process would run on alone.
        tasks = sorted(self.tasks, key=lambda task: -task.steps)
        if min(self.jobs, len(tasks)) > 1:
            self._run_processes(tasks, on_turns)
            return
        turns = count(1)
        for task in tasks:
            self.outcomes.append(replay_session(task, lambda: on_turns(next(turns))))

    def _run_processes(self, tasks: Sequence[Task], on_turns: Callable[[int], object]) -> None:
        # A fork would copy the threads of the progress bar in whatever state they are.
        context = multiprocessing.get_context("spawn")
        stop = context.RawValue("b")
        # A counter for each session and attempt: no lock, which a process that is killed would keep.
        turns = context.RawArray("Q", 2 * len(tasks))
        attempts = count()

        def replayed(waiting: deque[Task], jobs: int) -> Iterator[tuple[Task, Outcome | None]]:
            """Yield each session with what became of it, or None where a process ended before it was done."""
            while waiting:
                running: dict[Future[Outcome], Task] = {}
                with ProcessPoolExecutor(jobs, context, _begin, (stop, turns)) as pool:
                    try:
                        while waiting or running:
                            while waiting and len(running) < jobs:
                                with _interrupts_held():
                                    future = pool.submit(_work, waiting[0], next(attempts))
                                running[future] = waiting.popleft()
                            for future in wait(running, _POLL_SECONDS, FIRST_COMPLETED).done:
                                yield running.pop(future), None if future.exception() else future.result()
                            on_turns(sum(turns))
                    except BrokenProcessPool:  # it takes no more sessions
                        yield from ((task, None) for task in running.values())
                    except BaseException:
                        stop.value = 1  # those at work end at their next turn
                        raise

        suspects: deque[Task] = deque()
        for task, outcome in replayed(deque(tasks), self.jobs):
            if outcome is None:
                suspects.append(task)
            else:
                self.outcomes.append(outcome)
        # Alone: its process may have ended for want of memory that another one took.
        for task, outcome in replayed(suspects, 1):
            why = "a process ended before it was done, perhaps for want of memory"
            self.outcomes.append(outcome or Skipped(task.name, why))


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


_shared: tuple[Any, Any]
"""In a process that replays: whether it is to stop, and the turns that are done of each attempt."""


def _begin(stop: Any, turns: Any) -> None:
    """Take what all processes share, before the first session."""
    global _shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the first process says what is kept
    _shared = stop, turns


def _work(task: Task, attempt: int) -> Outcome:
    """Replay a session; count turns, and look whether to go on."""
    stop, turns = _shared

    def step() -> None:
        if stop.value:
            raise _StoppedError
        turns[attempt] += 1

    return replay_session(task, step)


def default_jobs() -> int:
    """Return how many processes this machine runs at once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
