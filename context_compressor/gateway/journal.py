"""What a gateway's page shows of conversations: how full views are, what events did, what it cost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from context_compressor.events import CompressionEvent
from context_compressor.gateway.identity import Identity
from context_compressor.memory.reporting import CompressionStats

logger = logging.getLogger(__name__)

MOST_SESSIONS = 500
"""Conversations that are shown; the one unused for longest goes."""
MOST_EVENTS = 16
"""Events of a conversation whose views are kept."""
MOST_POINTS = 240
"""Requests of which the fill is drawn."""
CACHED = 0.1
"""What a token costs that comes out of a provider's cache, beside one that does not."""
_PREFIX = "gateway-journal/"
_LIST = "gateway-journal"
"""The key of the list: names, and when each was used last."""
_WRITE_SECONDS = 1.0
_MOST_LAST = 64
"""Conversations whose last view is at hand, to be shown beside the one after an event."""


@dataclass
class Row:
    """One conversation, as it is kept: JSON-like data."""

    name: str
    label: str
    """What the request itself calls it, else the first words of its list."""
    api: str
    model: str
    owner: str
    began: float
    """Seconds since 1970, as all times here."""
    last: float = 0.0
    requests: int = 0
    budget: int = 0
    view: int = 0
    """Tokens of the last view; `history` of the list it was made of."""
    history: int = 0
    tokens_with: int = 0
    """Of all requests, as counted here, and what a model read and wrote for notes."""
    tokens_without: int = 0
    cost_with: float = 0.0
    """The same with what comes out of a cache at a tenth: what a request shares with the one before."""
    cost_without: float = 0.0
    usage: int = 0
    """Input tokens of all requests as the provider counted them."""
    notes_tokens: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    points: list[list[int]] = field(default_factory=list)
    """View and history of each request, in tokens."""


@dataclass(frozen=True)
class _Noted:
    """What is written down of one request."""

    identity: Identity
    api: str
    model: str
    label: str
    at: float
    usage: int
    stats: CompressionStats | None
    spent: int
    """Tokens that a model read and wrote for notes since the request before."""
    events: list[CompressionEvent]
    views: dict[str, Any] | None
    """Before its events, and after."""


class Journal:
    """Write down what becomes of conversations, in states that workers share.

    Requests do not wait for it: what is noted is written a second later, whatever came of one conversation
    meanwhile in one step.

    Args:
        states: where: `get`, `exchange` and `delete`.
    """

    def __init__(self, states: Any) -> None:
        self._states = states
        self._pending: dict[str, list[CompressionEvent]] = {}
        self._last: OrderedDict[str, tuple[Sequence[Any], Sequence[Any], int]] = OrderedDict()
        """Of the conversations used last: list, view, and what notes had taken, in tokens."""
        self._noted: dict[str, list[_Noted]] = {}
        self._writing = asyncio.Lock()
        self._writer: asyncio.Task[None] | None = None

    def note_event(self, event: CompressionEvent) -> None:
        """Note an event of a conversation, by its key; `note_request` comes behind it."""
        if event.key is not None:
            self._pending.setdefault(event.key, []).append(event)
            while len(self._pending) > MOST_SESSIONS:  # whose requests failed, and never came again
                del self._pending[next(iter(self._pending))]

    def note_request(
        self,
        identity: Identity,
        api: str,
        model: str,
        said: Sequence[Any],
        sent: Sequence[Any],
        stats: CompressionStats | None,
        usage: int,
    ) -> None:
        """Note a request that was taken.

        Args:
            identity: whose it was.
            api: its path.
            model: whom it went to.
            said: the caller's list.
            sent: the view that went out.
            stats: of the conversation, then.
            usage: input tokens as the provider counted them; 0 where it did not.
        """
        name = identity.name
        events = self._pending.pop(name, [])
        last_said, last_sent, had_taken = self._last.pop(name, ((), (), 0))
        views = {"before": shown(last_said, last_sent), "after": shown(said, sent)} if events else None
        taken = had_taken if stats is None else stats.summarizer_input_tokens + stats.summarizer_output_tokens
        self._last[name] = said, sent, taken
        while len(self._last) > _MOST_LAST:
            self._last.popitem(last=False)
        first = next((one for one in sent if _role(one) == "user"), None)
        label = identity.said or words(first)[:80]
        spent = max(0, taken - had_taken)  # another worker's are not known here
        noted = _Noted(identity, api, model, label, time.time(), usage, stats, spent, events, views)
        self._noted.setdefault(name, []).append(noted)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_later(), name="write the journal")

    async def _write_later(self) -> None:
        while self._noted:
            await asyncio.sleep(_WRITE_SECONDS)
            await self.write()

    async def write(self) -> None:
        """Write down what was noted."""
        async with self._writing:
            noted, self._noted = self._noted, {}
            for name, some in noted.items():
                try:
                    await self._write(name, some)
                except Exception:
                    logger.warning("the page does not know of a request", exc_info=True)
            if noted:
                try:
                    await self._list({name: some[-1].at for name, some in noted.items()})
                except Exception:
                    logger.warning("the page does not list a conversation", exc_info=True)

    async def _write(self, name: str, some: list[_Noted]) -> None:
        gone: list[int] = []
        views: dict[int, dict[str, Any]] = {}

        def changed(found: dict[str, Any] | None) -> dict[str, Any]:
            gone.clear()
            views.clear()
            row = _row(found) or _new_row(some[0])
            for one in some:
                _count(row, one)
                for event in one.events:
                    number = row.events[-1]["number"] + 1 if row.events else 1
                    row.events.append({**asdict(event), "number": number, "at": one.at})  # not the ledger's
                    views[number] = one.views or {}
            gone.extend(event["number"] for event in row.events[:-MOST_EVENTS])
            row.events = row.events[-MOST_EVENTS:]
            return asdict(row)

        await self._states.exchange(_PREFIX + name, changed)
        for number in gone:
            await self._states.delete(f"{_PREFIX}{name}/{number}")
        for number in views.keys() - gone:
            await self._states.set(f"{_PREFIX}{name}/{number}", views[number])

    async def _list(self, used: Mapping[str, float]) -> None:
        """Put conversations in front of the list, and remove those that fall off its end."""
        off: list[str] = []

        def changed(found: dict[str, Any] | None) -> dict[str, Any]:
            listed = {**(found or {}), **used}
            names = sorted(listed, key=lambda name: -listed[name])
            off[:] = names[MOST_SESSIONS:]
            return {name: listed[name] for name in names[:MOST_SESSIONS]}

        await self._states.exchange(_LIST, changed)
        for name in off:
            row = _row(await self._states.get(_PREFIX + name))
            for event in row.events if row is not None else ():
                await self._states.delete(f"{_PREFIX}{name}/{event['number']}")
            await self._states.delete(_PREFIX + name)

    async def aclose(self) -> None:
        """Write down the rest."""
        if self._writer is not None:
            self._writer.cancel()
        await self.write()

    async def rows(self) -> list[dict[str, Any]]:
        """Return the conversations, the one used last first."""
        found = await asyncio.gather(*map(self.row, await self._names()))
        return sorted((one for one in found if one is not None), key=lambda one: -one["last"])

    async def row(self, name: str) -> dict[str, Any] | None:
        """Return one conversation, None where there is none."""
        await self.write()
        found: dict[str, Any] | None = await self._states.get(_PREFIX + name)
        return found

    async def views(self, name: str, number: int) -> dict[str, Any] | None:
        """Return the view before an event and after it, None where they are not kept."""
        return await self.row(f"{name}/{number}")

    async def _names(self) -> list[str]:
        await self.write()
        return list(await self._states.get(_LIST) or ())


def _row(found: dict[str, Any] | None) -> Row | None:
    try:
        return None if found is None else Row(**found)
    except TypeError:  # another release's
        return None


def _new_row(noted: _Noted) -> Row:
    owner = noted.identity.owner[:8]
    return Row(noted.identity.name, noted.label, noted.api, noted.model, owner, noted.at)


def _count(row: Row, noted: _Noted) -> None:
    """Add a request, and what it costs with a view and without one."""
    row.last, row.model = noted.at, noted.model
    row.requests, row.usage = row.requests + 1, row.usage + noted.usage
    stats, spent = noted.stats, noted.spent
    if stats is None:
        return
    cached = 0 if noted.events else min(row.view, stats.view_tokens)  # nothing is where it was behind notes
    row.tokens_with += stats.view_tokens + spent
    row.cost_with += stats.view_tokens - (1 - CACHED) * cached + spent
    row.tokens_without += stats.history_tokens
    row.cost_without += stats.history_tokens - (1 - CACHED) * min(row.history, stats.history_tokens)
    row.notes_tokens += spent
    row.budget = stats.budget_tokens
    row.view, row.history = stats.view_tokens, stats.history_tokens
    row.points = [*row.points, [row.view, row.history]][-MOST_POINTS:]


def shown(said: Sequence[Any], sent: Sequence[Any]) -> list[dict[str, Any]]:
    """Return of each message of a view its role, its words, and whether the memory wrote it."""
    own = {id(one) for one in said}
    return [{"role": _role(one), "text": words(one), "is_ours": id(one) not in own} for one in sent]


def _role(message: Any) -> str:
    said = message if isinstance(message, Mapping) else {}
    return str(said.get("role") or said.get("type") or "")


def words(value: Any) -> str:
    """Return what a message, or a part of one, says, in any of the three forms."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return "\n".join(filter(None, map(words, value)))
    if not isinstance(value, Mapping):
        return ""
    function = value.get("function")
    call = function if isinstance(function, Mapping) else value
    if call.get("name") and ("arguments" in call or "input" in call):
        return f"{call['name']}({_as_text(call.get('arguments', call.get('input')))})"
    told = [value.get(key) for key in ("summary", "thinking", "text", "content", "output", "tool_calls")]
    return "\n".join(filter(None, (words(one) for one in told if one)))


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return (
        ", ".join(f"{key}={one!r}" for key, one in value.items())
        if isinstance(value, Mapping)
        else str(value)
    )
