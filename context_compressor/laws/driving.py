"""A compactor at work: it is given the growing lists of one conversation, and what it answers is noted."""

from __future__ import annotations

import asyncio
import inspect
import json
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from context_compressor.laws.forms import History, strings_in
from context_compressor.laws.subject import Compact, Subject


@dataclass(frozen=True)
class Case:
    """One conversation, and after how many of its messages the compactor is asked."""

    history: History
    cuts: tuple[int, ...]


@dataclass
class Step:
    """What came of one list."""

    given: History
    view: History | None = None
    """None: it was refused, or there was no answer."""
    error: str | None = None
    """What was raised that is no refusal."""
    rests: bool = True
    """Whether the answers to the same list came to rest."""
    readable: str | None = None
    """What the view says, and all that can be read back with it; None: there is nothing to read with."""


@dataclass
class Trace:
    """What came of all lists of a case."""

    steps: list[Step] = field(default_factory=list)
    again: History | None = None
    """What another compactor made of the last view."""
    again_error: str | None = None


class Worker:
    """A thread that calls compactors, with an event loop; one that never answers is left behind."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
        self._tasks = queue.SimpleQueue()
        threading.Thread(target=self._work, name="laws", daemon=True).start()

    def call(self, seconds: float, function: Callable[..., Any], *given: Any) -> Any:
        """Return what a function, or what it returns to be awaited, answers.

        Raises:
            Unanswered: it took longer than that.
        """
        answer: Future[Any] = Future()
        self._tasks.put((answer, function, given))
        try:
            return answer.result(seconds)
        except TimeoutError:
            if answer.done():
                raise
            raise Unanswered(f"no answer within {seconds:g} s") from None

    def end(self) -> None:
        """Let the thread end, when it is done."""
        self._tasks.put(None)

    def _work(self) -> None:
        with asyncio.Runner() as runner:
            while (task := self._tasks.get()) is not None:
                answer, function, given = task
                try:
                    found = function(*given)
                    answer.set_result(runner.run(_wait(found)) if inspect.isawaitable(found) else found)
                except BaseException as error:
                    answer.set_exception(error)


class Unanswered(Exception):
    """Say that a compactor gave no answer in time."""


def is_unanswered(trace: Trace) -> bool:
    """Tell whether a compactor gave no answer in time."""
    errors = [trace.again_error, *(step.error for step in trace.steps)]
    return any(error is not None and error.startswith(Unanswered.__name__) for error in errors)


async def _wait(found: Any) -> Any:
    return await found


def drive(subject: Subject, case: Case) -> Trace:
    """Give a new compactor of this subject the lists of a case, and note what comes of them."""
    trace, worker = Trace(), Worker()
    try:
        compact = worker.call(subject.seconds, subject.make)
        for cut in case.cuts:
            step = _step(subject, worker, compact, case.history[:cut])
            trace.steps.append(step)
            if step.error is not None:
                return trace
        last = next((step.view for step in reversed(trace.steps) if step.view is not None), None)
        if last is not None and "idempotent" in subject.claims:
            other = worker.call(subject.seconds, subject.make)
            try:
                trace.again = _answer(subject, worker, other, last)
            except subject.refuses:
                pass
            except Exception as error:
                trace.again_error = told(error)
            _close(worker, subject, other)
        _close(worker, subject, compact)
    finally:
        worker.end()
    return trace


def _step(subject: Subject, worker: Worker, compact: Compact, given: History) -> Step:
    step = Step(_copy(given))
    try:
        step.view = _answer(subject, worker, compact, given)
        before = step.view
        if "terminates" in subject.claims:
            for _ in range(subject.steps):
                events = getattr(compact, "events", None)
                now = _answer(subject, worker, compact, given)
                step.rests = now == before and getattr(compact, "events", None) == events
                if step.rests:
                    break
                before = now
        read = getattr(compact, "read", None)
        if read is not None and "lossless" in subject.claims:
            texts = worker.call(subject.seconds, read, _copy(step.view))
            step.readable = "\n".join((*strings_in(step.view), *strings_in(list(texts))))
    except subject.refuses:
        step.view = None
    except Exception as error:
        step.view, step.error = None, told(error)
    return step


def _answer(subject: Subject, worker: Worker, compact: Compact, given: History) -> History:
    """Ask with a copy, so that who changes what he is given changes nothing of the case."""
    answer = worker.call(subject.seconds, compact, _copy(given))
    if not isinstance(answer, list):
        raise TypeError(f"the answer is no list of messages, but of type {type(answer).__name__}")
    return _copy(answer)


def _copy(messages: History) -> History:
    copied: History = json.loads(json.dumps(messages))
    return copied


def _close(worker: Worker, subject: Subject, compact: Compact) -> None:
    close = getattr(compact, "close", None)
    if close is not None:
        worker.call(subject.seconds, close)


def told(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
