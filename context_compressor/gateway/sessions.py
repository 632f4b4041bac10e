"""Sessions of working memories: each a history, with a record of what else its client keeps there."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple
from uuid import uuid4

from context_compressor.core.config import CompressionConfig
from context_compressor.core.labels import before_segment
from context_compressor.errors import ConflictError, ContextOverflowError
from context_compressor.events import EventHook
from context_compressor.gateway.backend import Turns
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.memory.history import Add, Change, Delete, Entry, Head, History, SetSummary
from context_compressor.messages.chat import from_openai, to_openai
from context_compressor.messages.msg import Msg, is_segment, new_id, provenance_of
from context_compressor.offload.store import ref_of
from context_compressor.services.base import MemoryService
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.tokens.counter import TokenCounter, name_of_counter
from context_compressor.tokens.off_loop import measure_all_off_loop
from context_compressor.tokens.tiktoken import as_counter

Dict = dict[str, Any]

_OWNER = "context_compressor working memory"
"""Whose the sessions are in the backend; the client's user is part of a session's name there."""
_KEY = "working_memory"
"""Under which a message's metadata has what its client said of it beside the content."""
_CONTEXT = "## A summary of the conversation so far:\n"
"""How agent-memory-server begins what a client gave as the context."""
_MakeChange = Callable[[Sequence[Entry]], Awaitable[tuple[list[Change], "Record | None"]]]
"""Returns what is to be written, given what is there, and the record where it is another one."""
_WIDEST = 1_000_000_000
"""Tokens of a window in which no event is due."""


class NotCurrent(Exception):
    """The session is not as the writer knew it.

    Attributes:
        version: what it is now; None: there is none.
    """

    def __init__(self, version: str | None) -> None:
        super().__init__("the session was changed since; read it again")
        self.version = version


class Name(NamedTuple):
    """What tells a session from others."""

    session_id: str
    namespace: str | None = None
    user_id: str | None = None

    @property
    def key(self) -> str:
        """The session's id in the backend; no two names have the same."""
        return json.dumps([self.namespace, self.user_id, self.session_id])

    @classmethod
    def of_key(cls, key: str) -> Name:
        """Return the name that has this key."""
        namespace, user_id, session_id = json.loads(key)
        return cls(session_id, namespace, user_id)


@dataclass(frozen=True)
class Record:
    """What a client keeps in a session beside messages. It stands in the place of the history's summary, so
    that one write commits it with the messages.
    """

    context: str | None = None
    memories: Sequence[Dict] = ()
    data: Dict | None = None
    strategy: Dict | None = None
    ttl_seconds: int | None = None
    """After the last write; None: the session stays."""
    written: float = 0.0
    """Seconds since 1970."""
    version: str = ""
    """Another one after each write."""

    @classmethod
    def of(cls, head: Head) -> Record | None:
        """Return the record of a session; None: there is none, or its time is over."""
        if not head.summary:
            return None
        record = cls(**json.loads(head.summary))
        is_over = record.ttl_seconds is not None and time.time() >= record.written + record.ttl_seconds
        return None if is_over else record

    @property
    def shown(self) -> str:
        """What a view has of it."""
        return _CONTEXT + self.context if self.context else ""


@dataclass(frozen=True)
class Session:
    """A session as it is read.

    Attributes:
        record: what is kept beside messages.
        context: the client's, and the notes behind it where there are some.
        messages: as the client gave them, or their stand-ins in a view.
        tokens: what the messages cost, or the view.
    """

    record: Record
    context: str | None
    messages: Sequence[Dict]
    tokens: int


class _Shown:
    """A history whose summary is what a view has of the record."""

    def __init__(self, history: History) -> None:
        self._history = history

    async def head(self) -> Head:
        head = await self._history.head()
        record = Record.of(head)
        return head._replace(summary=record.shown if record else "")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._history, name)


class Sessions:
    """Keep sessions of working memories, and make views of them.

    Args:
        service: has their histories and texts. It is started when it is first needed.
        fields: of `CompressionConfig`.
        writer: makes who writes notes; None: rules do.
        turns: of a session's views, so that one event is paid for once.
        on_event: receives every event.
        counter: measures messages.
    """

    def __init__(
        self,
        service: MemoryService,
        fields: Mapping[str, Any],
        writer: Callable[[], Summarizer] | None = None,
        turns: Turns | None = None,
        on_event: EventHook | None = None,
        counter: TokenCounter | str | None = None,
    ) -> None:
        self._service, self._writer, self._on_event = service, writer, on_event
        self._fields = {**fields, "background_ratio": None}  # a request's memory does not outlive it
        self._turns, self._writers = turns or Turns(), Turns()
        self._starting = asyncio.Lock()
        self.counter = as_counter(counter)

    async def names(self, namespace: str | None, user_id: str | None) -> list[Name]:
        """Return the names of sessions, sorted; None stands for all namespaces, or users.

        One whose time is over may still be among them.
        """
        names = map(Name.of_key, await (await self._started()).list_sessions(_OWNER))
        return sorted(
            (one for one in names if namespace in (None, one.namespace) and user_id in (None, one.user_id)),
            key=lambda one: one.key,
        )

    async def is_there(self, name: Name) -> bool:
        """Tell whether there is such a session; one whose time is over goes."""
        return (await self._look(name))[1] is not None

    async def read(self, name: Name) -> Session | None:
        """Return a session with all its messages, None where there is none."""
        history, record = await self._look(name)
        if record is None:
            return None
        entries = await history.read()
        messages = [_written(entry.msg) for entry in entries if entry.msg is not None]
        tokens = sum(entry.tokens[1] for entry in entries if entry.tokens)
        return Session(record, record.context, messages, tokens)

    async def view(self, name: Name, window: int) -> Session | None:
        """Return a session as it fits a window of so many tokens; None where there is none.

        Raises:
            ContextOverflowError: what may not leave does not fit.
        """
        history, record = await self._look(name)
        if record is None:
            return None
        view, tokens = await self._view(name, history, window)
        told = [record.context, *(str(msg.content) for msg in view if is_segment(msg))]
        messages = [_written(msg) for msg in view if _is_one(msg, record)]
        return Session(record, "\n\n".join(filter(None, told)) or None, messages, tokens)

    async def prompt(self, name: Name, query: str, window: int | None = None) -> list[Dict]:
        """Return what to send to a model: the view, in its order, and the query as the user's last message.

        Args:
            name: of the session; where there is none, the query is all.
            query: what the user says now.
            window: tokens for all of it; None: what the service goes by.

        Raises:
            ContextOverflowError: it does not fit.
        """
        history, record = await self._look(name)
        if record is None:
            return [{"role": "user", "content": query}]
        reserved = self.counter.count_messages([Msg("user", query, "user")])
        view, _ = await self._view(name, history, window, reserved)
        said = [_spoken(msg) if _is_one(msg, record) else _told(msg) for msg in view]
        return [*said, {"role": "user", "content": query}]

    async def put(
        self, name: Name, record: Record, messages: Sequence[Dict], is_current: Callable[[str | None], bool]
    ) -> Record:
        """Replace what a session holds, or make it; return its record.

        The notes stand for what they speak of: where the context holds them, those messages stay. A stand-in
        stands for its original. A message without an id is the one in its place, if that says the same.

        Args:
            name: of the session.
            record: what is to be kept beside messages.
            messages: all of them, checked.
            is_current: whether a version is the one that the writer knows.

        Raises:
            NotCurrent: it is not; nothing was changed.
            InvalidMessageError: calls and results that are malformed; nothing was changed.
        """
        own = before_segment(record.context or "")

        async def change(entries: Sequence[Entry]) -> tuple[list[Change], Record | None]:
            covered: Collection[str] = ()
            if own is not None:
                covered = await self._covered(name)
            meant = _meant(entries, messages, covered)
            same = 0
            for entry, one in zip(entries, meant, strict=False):
                if entry.msg is None or _written(entry.msg) != one:
                    break
                same += 1
            gone = [entry.key for entry in entries[same:]]
            added = await self._adds(meant[same:])
            changes: list[Change] = [*([Delete(gone)] if gone else []), *added]
            return changes, record if own is None else replace(record, context=own or None)

        return await self._write(name, change, is_current)

    async def append(
        self, name: Name, messages: Sequence[Dict], is_current: Callable[[str | None], bool]
    ) -> Record:
        """Add messages to a session, or make it; one whose id is known is not added again.

        Raises:
            NotCurrent, InvalidMessageError: as `put`.
        """

        async def change(entries: Sequence[Entry]) -> tuple[list[Change], Record | None]:
            known = {entry.msg.id for entry in entries if entry.msg is not None}
            new = {one["id"]: one for one in map(_whole, messages) if one["id"] not in known}
            return [*await self._adds(list(new.values()))], None

        return await self._write(name, change, is_current)

    async def delete(self, name: Name) -> None:
        """Delete a session with all that it holds; there may be none."""
        await (await self._started()).delete_memory(_OWNER, name.key)

    async def text(self, name: Name, ref: str) -> str:
        """Return a text that left a view of the session.

        Raises:
            OffloadNotFoundError: none has this ref.
            OffloadError: the store does not give it.
        """
        async with self._memory(name, await self._history(name), _WIDEST) as memory:
            await memory.get_memory()
            return await memory.read_ref(ref)

    async def _started(self) -> MemoryService:
        async with self._starting:
            await self._service.start()
        return self._service

    async def _history(self, name: Name) -> History:
        return (await self._started()).memory(_OWNER, name.key).history

    async def _look(self, name: Name) -> tuple[History, Record | None]:
        """Return a session's history and its record; one whose time is over goes."""
        history = await self._history(name)
        head = await history.head()
        record = Record.of(head)
        if record is None and head.summary:
            await self._end(name, history, head)
        return history, record

    async def _view(
        self, name: Name, history: History, window: int | None, reserved: int = 0
    ) -> tuple[list[Msg], int]:
        async with self._turns.of(name.key), self._memory(name, history, window, reserved) as memory:
            return await memory.get_memory(), memory.stats().view_tokens

    async def _write(
        self,
        name: Name,
        change: _MakeChange,
        is_current: Callable[[str | None], bool],
    ) -> Record:
        """Write until nobody else wrote meanwhile; those of this process wait for each other."""
        async with self._writers.of(name.key):
            return await self._written_at_once(name, change, is_current)

    async def _written_at_once(
        self,
        name: Name,
        change: _MakeChange,
        is_current: Callable[[str | None], bool],
    ) -> Record:
        history = await self._history(name)
        while True:
            head = await history.head()
            there = Record.of(head)
            version = None if there is None else there.version
            if not is_current(version):
                raise NotCurrent(version)
            entries = await history.read()
            over: list[Change] = []
            if there is None and entries:  # its time is over
                over, entries = [Delete([entry.key for entry in entries])], []
            changes, record = await change(entries)
            record = replace(record or there or Record(), version=uuid4().hex, written=time.time())
            kept = SetSummary(json.dumps(asdict(record)))
            try:
                await history.write([*over, *changes, kept], at=head.number)
            except ConflictError:
                continue
            if any(isinstance(one, Delete) for one in (*over, *changes)):
                await self._clean(name, history)
            return record

    async def _adds(self, messages: Sequence[Dict]) -> list[Add]:
        read = _read(messages)
        counted = await measure_all_off_loop(self.counter, read)
        by = name_of_counter(self.counter)
        return [
            Add(msg, duplicate=True, tokens=(by, tokens.total))
            for msg, tokens in zip(read, counted, strict=True)
        ]

    async def _covered(self, name: Name) -> set[str]:
        """Return the ids of the messages that the notes stand for."""
        async with self._memory(name, await self._history(name), _WIDEST) as memory:
            view = await memory.get_memory()
        return {id for msg in view if is_segment(msg) for id in provenance_of(msg)["covered_ids"]}

    async def _clean(self, name: Name, history: History) -> None:
        """Remove texts of what was deleted."""
        async with self._memory(name, history, _WIDEST) as memory:
            await memory.get_memory()
            await memory.remove_orphans()

    async def _end(self, name: Name, history: History, head: Head) -> None:
        """Remove a session whose time is over, unless somebody began it anew."""
        try:
            await history.write([SetSummary("")], at=head.number)
        except ConflictError:
            return
        await self._service.delete_memory(_OWNER, name.key)

    @asynccontextmanager
    async def _memory(
        self, name: Name, history: History, window: int | None, reserved: int = 0
    ) -> AsyncIterator[CompressedMemory]:
        fields = dict(self._fields)
        if window is not None:
            fields = {**fields, "max_total_tokens": window, "window_tokens": None}
        config = CompressionConfig(**fields)
        if reserved >= config.budget:
            raise ContextOverflowError(
                f"the query takes {reserved} tokens, the budget is {config.budget}; give a larger window",
                budget=config.budget,
                needed=reserved,
                fixed=(),
            )
        reserved += config.reserved_tokens
        memory = CompressedMemory(
            _Shown(history),
            store=self._service.store(_OWNER, name.key),
            summarizer=None if self._writer is None else self._writer(),
            counter=self.counter,
            on_event=self._on_event,
            **{**fields, "reserved_tokens": reserved},
        )
        async with memory:
            yield memory


def _meant(entries: Sequence[Entry], messages: Sequence[Dict], covered: Collection[str]) -> list[Dict]:
    """Return the whole messages that a client means by what he read of a session, and says now."""
    known = [_written(entry.msg) for entry in entries if entry.msg is not None]
    places = {one["id"]: place for place, one in enumerate(known)}
    given = {one.get("id") for one in messages}
    staying = [one for one in known if one["id"] in covered and one["id"] not in given]
    meant: list[Dict] = []
    for one in messages:
        place = places.get(one.get("id") or "")
        while staying and (place is None or places[staying[0]["id"]] < place):
            meant.append(staying.pop(0))
        meant.append(_original(one, known, len(meant) if place is None else place))
    return [*meant, *staying]


def _original(one: Dict, known: Sequence[Dict], place: int) -> Dict:
    """Return the message that stands at a place where that is what is meant, else a new one."""
    there = known[place] if place < len(known) else {"id": None}
    if one["role"] != there.get("role") or one.get("id") not in (None, there["id"]):
        return _whole(one)
    said, original = one["content"] or "", there["content"] or ""
    is_meant = said == original or (one.get("id") is not None and ref_of(original) in said)
    given = {name: value for name, value in one.items() if value is not None}
    return {**there, **given, "content": there["content"]} if is_meant else _whole(one)


def _whole(one: Dict) -> Dict:
    """Return a message that has an id and a time."""
    said = {name: value for name, value in one.items() if value is not None}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        **said,
        "content": one["content"],
        "id": one.get("id") or new_id(),
        "created_at": said.get("created_at", now),
    }


_ROLES = {"user": "user", "system": "system", "developer": "system"}
"""Who else speaks is an assistant, as in agent-memory-server."""


def _read(messages: Sequence[Dict]) -> list[Msg]:
    """Return messages as a history has them."""
    chat: list[Dict] = []
    for one in messages:
        calls: Dict = {name: one[name] for name in ("tool_calls", "tool_call_id") if name in one}
        role = "tool" if "tool_call_id" in one else _ROLES.get(one["role"], "assistant")
        chat.append({"role": role, "content": one["content"], **calls})
    read = from_openai(chat)
    for msg, one in zip(read, messages, strict=True):
        msg.id = one["id"]
        said = {name: value for name, value in one.items() if name not in ("content", "tool_calls")}
        msg.metadata = {**(msg.metadata or {}), _KEY: said}
    return read


def _written(msg: Msg) -> Dict:
    """Return a message as its client gave it, with what stands in its place in a view."""
    [chat] = to_openai([msg])
    said = {"id": msg.id, "role": chat["role"], **(msg.metadata or {}).get(_KEY, {})}
    more = {name: chat[name] for name in ("tool_calls", "tool_call_id") if name in chat}
    return {**said, "content": chat.get("content"), **more}


def _is_one(msg: Msg, record: Record) -> bool:
    """Tell whether a message of a view stands for one of the session's, or belongs to one."""
    return not is_segment(msg) and (msg.content != record.shown or _KEY in (msg.metadata or {}))


def _spoken(msg: Msg) -> Dict:
    """Return a message as a model is to read it. A result without a call is none to a provider."""
    one = _written(msg)
    return one if "tool_call_id" in one else {**one, "role": _ROLES.get(one["role"], "assistant")}


def _told(msg: Msg) -> Dict:
    """Return what the memory says: notes, which say that they are no user's, or the client's context."""
    return {"role": "user" if is_segment(msg) else "system", "content": msg.content}
