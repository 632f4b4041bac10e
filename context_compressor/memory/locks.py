"""A lock for objects that outlive an event loop."""

from __future__ import annotations

import asyncio
from types import TracebackType


class LoopLock:
    """An `asyncio.Lock` that may be used from one event loop after another.

    asyncio's own binds itself to the loop in which somebody first had to wait; a memory used from several
    `asyncio.run` calls would fail there.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    def _current(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock

    def locked(self) -> bool:
        """Tell whether somebody in the running loop holds the lock."""
        return self._current().locked()

    async def __aenter__(self) -> None:
        await self._current().acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()
