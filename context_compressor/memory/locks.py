"""A lock for objects that outlive an event loop."""

from __future__ import annotations

import asyncio
from typing import Any


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
