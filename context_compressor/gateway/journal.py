"""What a gateway's page shows of conversations: how full views are, what events did, what it cost."""

from __future__ import annotations

import logging
import time
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


class Journal:
    """Write down what becomes of conversations, in states that workers share.

    Args:
        states: where: `get`, `set`, `delete` and `keys`.
    """

    def __init__(self, states: Any) -> None:
        self._states = states
        self._rows: dict[str, Row] = {}
        self._pending: dict[str, list[CompressionEvent]] = {}
        self._views: dict[str, list[dict[str, Any]]] = {}

    def note_event(self, event: CompressionEvent) -> None:
        """Note an event of a conversation, by its key; `note_request` comes behind it."""
        if event.key is not None:
            self._pending.setdefault(event.key, []).append(event)

    async def note_request(
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
        before, after = self._views.get(name, []), shown(said, sent)
        self._views[name] = after
        row = self._rows.get(name) or await self._read(name)
        if row is None:
            label = identity.said or next((one["text"][:80] for one in after if one["role"] == "user"), "")
            row = Row(name, label, api, model, identity.owner[:8], time.time())
        self._rows[name] = row
        row.last, row.model, row.requests, row.usage = time.time(), model, row.requests + 1, row.usage + usage
        if stats is not None:
            _count(row, stats, has_event=bool(events))
        for event in events:
            number = row.events[-1]["number"] + 1 if row.events else 1
            row.events.append({"number": number, "at": row.last, **asdict(event)})
            await self._set(f"{name}/{number}", {"before": before, "after": after})
        for gone in row.events[:-MOST_EVENTS]:
            await self._delete(f"{name}/{gone['number']}")
        row.events = row.events[-MOST_EVENTS:]
        await self._set(name, asdict(row))
        while len(self._rows) > MOST_SESSIONS:
            oldest = min(self._rows, key=lambda one: self._rows[one].last)
            self._rows.pop(oldest)
            self._views.pop(oldest, None)

    async def rows(self) -> list[dict[str, Any]]:
        """Return the conversations, the one used last first."""
        found = [await self.row(name) for name in await self._names()]
        return sorted((one for one in found if one is not None), key=lambda one: -one["last"])[:MOST_SESSIONS]

    async def row(self, name: str) -> dict[str, Any] | None:
        """Return one conversation, None where there is none."""
        found: dict[str, Any] | None = await self._states.get(_PREFIX + name)
        return found

    async def views(self, name: str, number: int) -> dict[str, Any] | None:
        """Return the view before an event and after it, None where they are not kept."""
        return await self.row(f"{name}/{number}")

    async def _names(self) -> list[str]:
        keys = [key.removeprefix(_PREFIX) for key in await self._states.keys() if key.startswith(_PREFIX)]
        return [key for key in keys if "/" not in key]

    async def _read(self, name: str) -> Row | None:
        found = await self.row(name)
        try:
            return None if found is None else Row(**found)
        except TypeError:  # another release's
            return None

    async def _set(self, name: str, value: dict[str, Any]) -> None:
        try:
            await self._states.set(_PREFIX + name, value)
        except Exception:
            logger.warning("the page does not know of a request", exc_info=True)

    async def _delete(self, name: str) -> None:
        try:
            await self._states.delete(_PREFIX + name)
        except Exception:
            logger.warning("the page keeps an event that is over", exc_info=True)


def _count(row: Row, stats: CompressionStats, *, has_event: bool) -> None:
    """Add what a request costs with a view and without one."""
    notes = stats.summarizer_input_tokens + stats.summarizer_output_tokens
    cached, spent = min(row.view, stats.view_tokens), notes - row.notes_tokens
    if has_event:
        cached = 0  # nothing behind the notes is where it was
    row.tokens_with += stats.view_tokens + spent
    row.cost_with += stats.view_tokens - (1 - CACHED) * cached + spent
    row.tokens_without += stats.history_tokens
    row.cost_without += stats.history_tokens - (1 - CACHED) * min(row.history, stats.history_tokens)
    row.notes_tokens, row.budget = notes, stats.budget_tokens
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
