"""Event loops: a lock for whichever runs, work that outlasts its caller, one loop in the background, and
whether a memory is used by which.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

from context_compressor.errors import LoopError

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LoopLock:
    """Give each object of a class an `asyncio.Lock` for whichever event loop is running: `lock = LoopLock()`.

    asyncio's own binds itself to the loop in which somebody first had to wait; a memory used from several
    `asyncio.run` calls would fail there. What `async with` takes is the loop's own lock, so that a task of a
    loop that was closed gives back that one when Python forgets it, not what another loop's task holds.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._kept_as = f"{name} by loop"

    def __get__(self, holder: Any, owner: type) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        kept: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = vars(holder).get(self._kept_as)
        if kept is None or kept[0] is not loop:
            kept = vars(holder)[self._kept_as] = loop, asyncio.Lock()
        return kept[1]


_OUTLASTING: set[asyncio.Task[None]] = set()
"""Tasks that outlast their caller. Loops hold tasks weakly, so somebody else has to hold them."""


async def to_its_end(
    work: Callable[[Callable[[], bool]], Coroutine[Any, Any, T]],
    *,
    most_seconds: float | None = None,
    waits: bool = False,
) -> T:
    """Run work that must not be broken off in its middle, such as a driver's work on a connection.

    A cancelled caller does not cancel it, and neither does `asyncio.run`, which cancels all tasks of its loop
    at the end. The work runs in a task that `asyncio.run` does not see; a task that it sees waits for that
    one.

    Args:
        work: is given what tells whether anybody still wants it, and may end early where nobody does.
        most_seconds: for how long it goes on that nobody wants, before it is cancelled after all; None: any.
        waits: whether a cancelled caller waits until it has ended.
    """
    wanted = True
    task = asyncio.create_task(work(lambda: wanted))
    asyncio._unregister_task(task)

    async def wait() -> None:
        nonlocal wanted
        while not task.done():
            try:
                await asyncio.wait({task}, timeout=None if wanted else most_seconds)
                if not wanted and not task.done():
                    task.cancel()
            except asyncio.CancelledError:
                wanted = False
        if not task.cancelled():
            task.exception()  # else asyncio prints an error that nobody asks for

    waiting = asyncio.create_task(wait())
    _OUTLASTING.add(waiting)
    waiting.add_done_callback(_OUTLASTING.discard)
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        waiting.cancel()
        while waits and not waiting.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({waiting})
        raise
    return task.result()


_OPENED: WeakKeyDictionary[Any, tuple[int, asyncio.AbstractEventLoop]] = WeakKeyDictionary()
"""The process and the loop in which an engine or a client has opened its connections."""


def left_by(opened: Any, *, takes_over: bool = True) -> Literal["parent", "loop", None]:
    """Tell whose connections an engine or a client still has, if not those of this loop, or of one that runs.

    Args:
        opened: the engine, or the client.
        takes_over: whether what it opens from now on belongs to the loop that runs here.
    """
    here = os.getpid(), asyncio.get_running_loop()
    process, loop = _OPENED.setdefault(opened, here)
    if process == here[0] and not loop.is_closed():
        return None
    if takes_over:
        _OPENED[opened] = here
    return "loop" if process == here[0] else "parent"


class _BackgroundLoop:
    """One event loop in a thread; a process that was forked begins one of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the loop, running."""
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name="context_compressor", daemon=True).start()
                self._loop, self._process = loop, os.getpid()
            return self._loop


_BACKGROUND = _BackgroundLoop()


class Face:
    """Which side a memory is used from: asyncio, or calls without it. It stays with that of its first use."""

    def __init__(self) -> None:
        self._is_sync: bool | None = None

    def take(self) -> None:
        """Note a call from a loop.

        Raises:
            LoopError: the memory is used without asyncio.
        """
        if self._is_sync is not False:
            self._take(is_sync=is_background())

    def _take(self, *, is_sync: bool) -> None:
        if self._is_sync is None:
            self._is_sync = is_sync
        elif self._is_sync and not is_sync:
            raise LoopError(
                "this memory is used by view_sync or call_sync, whose loop it belongs to; go on with these, "
                "or give asyncio a memory of its own"
            )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the background loop, and wait for it.

        Raises:
            LoopError: the memory is used from asyncio.
        """
        loop = _BACKGROUND.get()
        running = _running_loop()
        if self._is_sync is False or running is loop:
            work.close()
            raise LoopError(
                "this memory is used with asyncio, whose loop it belongs to; go on with "
                "`await memory.view(...)` and `await tools.call(...)`, or use another memory here"
            )
        self._is_sync = True
        if running is not None:
            logger.warning("view_sync and call_sync block the event loop that runs here; await view and call")
        return _run(work, loop)


def is_background() -> bool:
    """Tell whether the loop that runs here is the one in the background, for callers without asyncio."""
    return asyncio.get_running_loop() is _BACKGROUND._loop


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the background loop, and wait for it: for what is called without asyncio.

    Raises:
        LoopError: it is called from that very loop, which it would stop for ever.
    """
    loop = _BACKGROUND.get()
    if _running_loop() is loop:
        work.close()
        raise LoopError("called from the loop that would have to do the work; await the async form here")
    return _run(work, loop)


def _run(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine in another thread's loop, with the caller's context variables; an interrupt ends it."""
    context, begun, done = copy_context(), Future[asyncio.Task[T]](), Future[T]()

    def tell(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            done.cancel()
        elif (error := task.exception()) is not None:
            done.set_exception(error)
        else:
            done.set_result(task.result())

    def begin() -> None:
        task = loop.create_task(work, context=context)
        task.add_done_callback(tell)
        begun.set_result(task)

    loop.call_soon_threadsafe(begin)
    try:
        return done.result()
    except BaseException:
        loop.call_soon_threadsafe(begun.result().cancel)
        raise
