"""The search indexes of a service: one for each user, in memory, let go of when it is not used."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from weakref import WeakSet

from context_compressor.backends.records import Standing
from context_compressor.memory.history import History
from context_compressor.memory.index import HistoryIndex
from context_compressor.messages.msg import Msg

_PASSAGES = 3
"""How many passages are looked for, for each message that is asked for: several may be of one."""


class Indexes:
    """Search all sessions of a user.

    Args:
        look: returns the history of a user's session.
        most: messages in all indexes together; beyond that they are let go, the one first that was not used
            for longest.
        idle_seconds: after which an index that is not used is let go.
    """

    def __init__(self, look: Callable[[str, str], History], most: int, idle_seconds: float) -> None:
        self._look, self._most, self._idle = look, most, idle_seconds
        self._users: OrderedDict[str, HistoryIndex] = OrderedDict()
        self._all: WeakSet[HistoryIndex] = WeakSet()  # those let go of, too, that somebody still searches
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._is_closed = False

    async def search(
        self, user: str, query: str, limit: int, standings: Callable[[], Awaitable[Sequence[Standing]]]
    ) -> list[Msg]:
        """Return the messages that answer a query, best first.

        Args:
            user: whose sessions.
            query: words, names or a question.
            limit: how many at most.
            standings: tells where all sessions stand.
        """
        index = self._users.get(user)
        if index is None:
            index = self._users[user] = HistoryIndex(partial(self._look, user), is_by_time=True)
            self._all.add(index)
        self._users.move_to_end(user)
        try:
            found = await index.search(query, _PASSAGES * limit, standings)
        finally:
            self._bound(user)
        messages = {one.document.key: msg for one, msg in found if msg is not None}
        return [msg.copy() for msg in list(messages.values())[:limit]]

    async def forget(self, user: str, sessions: Collection[str] | None) -> None:
        """Drop sessions from the index of a user at once, or all that it has."""
        if sessions is None:
            self._let_go(user)
        elif (index := self._users.get(user)) is not None:
            await index.forget_histories(sessions)

    async def close(self) -> None:
        """End what is being searched, and let go of all indexes."""
        self._is_closed = True
        for user in list(self._users):
            self._let_go(user)
        for index in list(self._all):
            await index.close()

    def _bound(self, user: str) -> None:
        if self._is_closed:
            return
        if (timer := self._timers.pop(user, None)) is not None:
            timer.cancel()
        if user in self._users:
            self._timers[user] = asyncio.get_running_loop().call_later(self._idle, self._let_go, user)
        total = sum(index.size for index in self._users.values())
        for other, index in list(self._users.items()):
            if total <= self._most:
                break
            total -= index.size
            self._let_go(other)

    def _let_go(self, user: str) -> None:
        """Leave an index to whoever still searches it: one in memory is closed when nobody holds it."""
        if (timer := self._timers.pop(user, None)) is not None:
            timer.cancel()
        self._users.pop(user, None)
