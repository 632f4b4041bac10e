"""The other face: a memory used without asyncio, by one event loop in the background of the process."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, TypeVar

from context_compressor.errors import LoopError

logger = logging.getLogger(__name__)

T = TypeVar("T")


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
            self._take(is_sync=asyncio.get_running_loop() is _BACKGROUND._loop)

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
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
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
