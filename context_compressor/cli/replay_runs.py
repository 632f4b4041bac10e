"""Replay sessions in parallel processes, and keep what is done when somebody stops them."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from context_compressor.errors import ContextCompressorError
from context_compressor.measure.recording import Recording
from context_compressor.measure.results import Turn
from context_compressor.measure.systems import SYSTEMS
from context_compressor.measure.watching import Watched, watch
from context_compressor.messages.openai import from_openai
from context_compressor.report.data import OURS, SessionRun, Skipped
from context_compressor.tokens.tiktoken_counter import TiktokenCounter

_POLL_SECONDS = 0.1
_QUIET = logging.NullHandler()
_RAISED = "raised "
"""How the problem begins of a turn in which a system raised."""

Outcome = SessionRun | Skipped


@dataclass(frozen=True, slots=True)
class Task:
    """A session, and what is to be done with it."""

    name: str
    source: str
    messages: list[dict[str, Any]]
    systems: tuple[str, ...]
    budgets: tuple[int, ...]

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
        recording = Recording(task.messages, _counter(), task.name)
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
    session = SessionRun(task.name, task.source, len(task.messages), recording.total_tokens, runs)
    unfit = find_unfit(session)
    # At no budget there is a view: all there is to tell would be told of the history.
    return unfit[0] if len(unfit) == len(task.budgets) else session


def find_unfit(session: SessionRun) -> list[Skipped]:
    """Return a failure for each budget at which our memory had no view to send, whatever the turn."""
    return [
        Skipped(
            session.name, f"no turn fits {run.replay.budget:,} tokens: {_why_unsent(run.replay.turns[0])}"
        )
        for run in session.runs
        if run.replay.system == OURS and not any(map(is_sent, run.replay.turns))
    ]


def is_sent(turn: Turn) -> bool:
    """Tell whether a system had anything to send; where it had not, the turn's tokens are the history's."""
    return not any(problem.startswith(_RAISED) for problem in turn.problems)


def _why_unsent(turn: Turn) -> str:
    return turn.problems[0].removeprefix(_RAISED).replace("max_total_tokens", "--budget")


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
    """Replay sessions; `outcomes` has those that are done, also after Ctrl-C.

    Args:
        tasks: the sessions.
        jobs: processes at once.
    """

    tasks: Sequence[Task]
    jobs: int
    outcomes: list[Outcome] = field(default_factory=list)

    def run(self, on_progress: Callable[[int, int], object]) -> None:
        """Replay all; `on_progress` gets the turns and the sessions that are done.

        Raises:
            KeyboardInterrupt: somebody stopped it.
        """
        for outcome in self._run(on_progress):
            self.outcomes.append(outcome)

    def _run(self, on_progress: Callable[[int, int], object]) -> Iterator[Outcome]:
        # The longest first, or the last process would run on alone.
        tasks = sorted(self.tasks, key=lambda task: -task.steps)
        if min(self.jobs, len(tasks)) > 1:
            yield from self._run_processes(tasks, on_progress)
            return
        done = 0

        def step() -> None:
            nonlocal done
            done += 1
            on_progress(done, len(self.outcomes))

        for task in tasks:
            yield replay_session(task, step)
            on_progress(done, len(self.outcomes))

    def _run_processes(
        self, tasks: Sequence[Task], on_progress: Callable[[int, int], object]
    ) -> Iterator[Outcome]:
        # A fork would copy the threads of the progress bar in whatever state they are.
        context = multiprocessing.get_context("spawn")
        turns, stop = context.Value("Q", 0), context.Value("b", 0)
        pool = ProcessPoolExecutor(min(self.jobs, len(tasks)), context, _start_worker, (turns, stop))
        try:
            waiting: dict[Future[Outcome], Task] = {pool.submit(_work, task): task for task in tasks}
            while waiting:
                done, _ = wait(waiting, _POLL_SECONDS, FIRST_COMPLETED)
                for future in done:
                    yield _outcome(future, waiting.pop(future))
                on_progress(turns.value, len(self.outcomes))
        finally:
            stop.value = 1
            pool.shutdown(cancel_futures=True)


def _outcome(future: Future[Outcome], task: Task) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:
        return Skipped(task.name, "a process ended before it was done, perhaps for want of memory")


_shared: dict[str, Any] = {}
"""In a worker: how many turns all workers have done, and whether they are to stop."""


def _start_worker(turns: Any, stop: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the first process says what is kept
    _shared.update(turns=turns, stop=stop)


def _work(task: Task) -> Outcome:
    turns, stop = _shared["turns"], _shared["stop"]

    def step() -> None:
        if stop.value:
            raise _StoppedError
        with turns.get_lock():
            turns.value += 1

    return replay_session(task, step)


def default_jobs() -> int:
    """Return how many processes this machine runs at once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
