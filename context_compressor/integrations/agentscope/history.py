"""Memories of other libraries as a base memory: AgentScope's, or anything with its methods."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from context_compressor.errors import InvalidArgumentError, InvalidStateError, check_members
from context_compressor.integrations.agentscope.messages import (
    from_agentscope,
    saved_form,
    stored_kind,
    to_agentscope,
)
from context_compressor.memory.base import (
    MemoryBase,
    as_ids,
    as_mark,
    as_mark_update,
    as_marks,
    as_messages,
    as_summary,
    summary_message,
)
from context_compressor.memory.loops import LoopLock
from context_compressor.memory.wrapped import METHODS
from context_compressor.messages.msg import Msg, copy_json

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

_IDS_AT_ONCE = 500
"""Databases bound how many values one statement may name; SQLite's oldest bound is 999."""
_MOST_SESSIONS = 10_000
"""Of which it is remembered who opened them."""
_NO_MARK = "context_compressor: no such mark"


class ForeignMemory(Protocol):
    """What a memory needs to be wrapped: the methods of AgentScope's working memory."""

    async def add(self, memories: Any, marks: Any = None, **kwargs: Any) -> None: ...
    async def delete(self, msg_ids: list[str], **kwargs: Any) -> int: ...
    async def size(self) -> int: ...
    async def clear(self) -> None: ...
    async def get_memory(
        self, mark: Any = None, exclude_mark: Any = None, prepend_summary: bool = True, **kwargs: Any
    ) -> list[Any]: ...


def as_memory(base: Any) -> MemoryBase:
    """Return a base memory as it is if it is one of ours, else an adapter to it.

    Raises:
        InvalidArgumentError: it is no memory; the text names what it lacks.
    """
    if isinstance(base, MemoryBase):
        return base
    check_members("base", base, "a memory", (*METHODS, "state_dict", "load_state_dict"))
    return AdaptedMemory(base)


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work that goes on when the caller is cancelled, who hears of that when the work is done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # Whoever has gone need not be told how it ends, and asyncio would report an error as lost.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([task])
        raise


def _alone(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Let a call of an `AdaptedMemory` run while no other does, and to its end."""

    @wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        memory: Any = args[0]

        async def locked() -> T:
            async with memory._lock:
                return await method(*args, **kwargs)

        return await to_its_end(locked())

    return call


class AdaptedMemory(MemoryBase):
    """Give another library's memory the contract of `MemoryBase`, over its public methods.

    AgentScope's stores disagree in corner cases; here each has the answer that `MemoryBase` gives, except:

    - The mark "" is refused: `AsyncSQLAlchemyMemory` takes it for no mark at all, and strips all.
    - `allow_duplicates` is handed on; a store that cannot keep two messages under one id keeps the first.
    - A database keeps the messages and their marks, and no summary, which is in `state_dict` only: save the
      state, or a new process has the mark "compressed" on messages that nothing stands for.
    - A store that does not tell users apart (`AsyncSQLAlchemyMemory`, for equal session ids) still does not.
      Where a second user opens a session in this process, a warning is logged, once.

    Calls are made one at a time, and go on to their end when the caller is cancelled: a database session
    bears no two at once, and refuses all that follow one that was broken off.

    Args:
        wrapped: the memory.

    Attributes:
        wrapped: the memory.
    """

    _lock = LoopLock()

    def __init__(self, wrapped: Any) -> None:
        super().__init__()
        self.wrapped = wrapped
        message_class = _message_class(wrapped)
        self._kind = None if message_class is None else stored_kind(message_class)
        self._is_open = False
        _note_user_of(wrapped)

    @property
    def _compressed_summary(self) -> str:  # type: ignore[override]  # there it is an attribute
        return getattr(self.wrapped, "_compressed_summary", "") or ""

    # Reading

    @_alone
    async def size(self) -> int:
        return await self._size()

    @_alone
    async def get_memory(
        self,
        mark: str | None = None,
        exclude_mark: str | None = None,
        prepend_summary: bool = True,
        **kwargs: Any,
    ) -> list[Msg]:
        names = (_filled(as_mark(mark, "mark")), _filled(as_mark(exclude_mark, "exclude_mark")))
        messages = await self._read(*names, **kwargs)
        if prepend_summary and self._compressed_summary:
            return [summary_message(self._compressed_summary), *messages]
        return messages

    def revision(self) -> int | None:
        """Return the memory's own revision, where it keeps one."""
        revision = getattr(self.wrapped, "revision", None)
        return revision() if callable(revision) else None

    # Changing

    @_alone
    async def add(
        self, memories: Msg | list[Msg] | None, marks: str | list[str] | None = None, **kwargs: Any
    ) -> None:
        messages, names = as_messages(memories), [_filled(mark) for mark in as_marks(marks)]
        if not messages:
            return
        if not kwargs.get("allow_duplicates"):
            firsts: dict[str, Msg] = {}
            for msg in messages:
                firsts.setdefault(msg.id, msg)
            messages = list(firsts.values())
        before = await self._size()
        await self.wrapped.add([self._write(msg) for msg in messages], marks=names or None, **kwargs)
        if names and await self._size() - before != len(messages):
            # Some were there before: what they come with, their marks, was passed over.
            for mark in names:
                await self._mark([msg.id for msg in messages], mark)

    @_alone
    async def delete(self, msg_ids: list[str], **kwargs: Any) -> int:
        ids = as_ids(msg_ids)
        before = await self._size()
        for some in _portions(ids):
            await self.wrapped.delete(some, **kwargs)
        return max(0, before - await self._size())

    @_alone
    async def delete_by_mark(self, mark: str | list[str], *args: Any, **kwargs: Any) -> int:
        names = [_filled(name) for name in as_marks(mark, "mark", is_optional=False)]
        before = await self._size()
        if names:
            await self.wrapped.delete_by_mark(names, *args, **kwargs)
        return max(0, before - await self._size())

    @_alone
    async def clear(self) -> None:
        await self._open()
        await self.wrapped.clear()
        await self.wrapped.update_compressed_summary("")

    @_alone
    async def update_messages_mark(
        self, new_mark: str | None, old_mark: str | None = None, msg_ids: list[str] | None = None
    ) -> int:
        new, old, ids = as_mark_update(new_mark, old_mark, msg_ids)
        new, old = _filled(new), _filled(old)
        if new == old:
            return 0
        if old is None:
            assert new is not None
            return await self._mark(ids, new)
        bearing = [msg.id for msg in await self._read(old)]
        wanted = set(bearing if ids is None else ids)
        found = [id for id in bearing if id in wanted]
        both: set[str] = set() if new is None else {msg.id for msg in await self._read(new)}
        # Where a message bears both marks, a store that renames one would have it twice.
        await self._update(None, old, [id for id in found if new is None or id in both])
        await self._update(new, old, [id for id in found if new is not None and id not in both])
        return len(found)

    @_alone
    async def update_compressed_summary(self, summary: str) -> None:
        await self.wrapped.update_compressed_summary(as_summary(summary))

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return the memory's own state."""
        state: dict[str, Any] = self.wrapped.state_dict()
        content = getattr(self.wrapped, "content", None)
        if self._kind is not None and "content" in state and isinstance(content, list):
            state = {**state, "content": [[saved_form(msg), list(marks)] for msg, marks in content]}
        copied: dict[str, Any] = copy_json(state)
        return copied

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Load a state of the memory's own.

        Raises:
            InvalidStateError: it refuses the state; it is as it was.
        """
        if not isinstance(state, Mapping):
            raise InvalidStateError(f"state: expected a dict, got {type(state).__name__}")
        summary = state.get("_compressed_summary", "")
        if not isinstance(summary, str):
            raise InvalidStateError(f"_compressed_summary: expected a string, got {type(summary).__name__}")
        before = self.state_dict()
        name = type(self.wrapped).__name__
        if strict and "content" in state and "content" not in before:
            raise InvalidStateError(
                f"content: {name} keeps its messages in a database and loads none; add them with `add`, or "
                "load with strict=False to leave them out"
            )
        try:
            self.wrapped.load_state_dict(copy_json(dict(state)), strict=strict)
        except Exception as error:
            self.wrapped.load_state_dict(before)
            raise InvalidStateError(f"state: {name} refuses it: {type(error).__name__}: {error}") from error

    # What the calls above are made of

    async def _open(self) -> None:
        """Let a database make its tables, which AgentScope's does only when it reads or adds."""
        if not self._is_open:
            await self.wrapped.get_memory(mark=_NO_MARK, prepend_summary=False)
            self._is_open = True

    async def _size(self) -> int:
        await self._open()
        size: int = await self.wrapped.size()
        return size

    async def _read(
        self, mark: str | None = None, exclude_mark: str | None = None, **kwargs: Any
    ) -> list[Msg]:
        options = {"exclude_mark": exclude_mark, "prepend_summary": False, **kwargs}
        found = await self.wrapped.get_memory(mark=mark, **options)
        if mark is not None and len(found) > 1:
            # Redis lists what bears a mark in the order of marking.
            order = {msg.id: n for n, msg in enumerate(await self.wrapped.get_memory(prepend_summary=False))}
            found = sorted(found, key=lambda msg: order.get(msg.id, len(order)))
        return [from_agentscope(msg, f"{type(self.wrapped).__name__}[{n}]") for n, msg in enumerate(found)]

    async def _mark(self, ids: Sequence[str] | None, mark: str) -> int:
        """Mark messages that do not bear the mark yet, and return how many; all messages when None."""
        if ids is None:
            ids = [msg.id for msg in await self._read(exclude_mark=mark)]
        else:
            bearing = {msg.id for msg in await self._read(mark)}
            ids = [id for id in ids if id not in bearing]
        return await self._update(mark, None, ids)

    async def _update(self, new: str | None, old: str | None, ids: Sequence[str]) -> int:
        changed = 0
        for some in _portions(ids):
            changed += await self.wrapped.update_messages_mark(new, old_mark=old, msg_ids=some)
        return changed

    def _write(self, msg: Msg) -> Any:
        copied = msg.copy()
        return copied if self._kind is None else to_agentscope(copied, self._kind)


_users: OrderedDict[tuple[object, str], set[str]] = OrderedDict()
"""Who opened a session, by database and session id."""


def _note_user_of(memory: Any) -> None:
    """Warn where a session is opened for a second user by a memory that finds messages by the session alone.

    That is so where the session is a row of its own, as in `AsyncSQLAlchemyMemory`.
    """
    session_id, user_id = (getattr(memory, name, None) for name in ("session_id", "user_id"))
    made_by = getattr(getattr(memory, "_session_factory", None), "kw", {})
    engine = made_by.get("bind") or getattr(getattr(memory, "_db_session", None), "bind", None)
    url = getattr(engine, "url", None)
    if url is None or not (isinstance(session_id, str) and isinstance(user_id, str)):
        return
    is_file = url.database not in (None, "", ":memory:")
    key = (url if is_file else id(engine), session_id)
    users = _users[key] = _users.pop(key, set())
    users.add(user_id)
    if len(users) == 2:
        logger.warning(
            "session_id %r is used by two users, %s, and %s does not tell them apart: each reads the other's "
            "messages; give each user's sessions ids of their own",
            session_id,
            " and ".join(map(repr, sorted(users))),
            type(memory).__name__,
        )
    while len(_users) > _MOST_SESSIONS:
        _users.popitem(last=False)


def _message_class(memory: object) -> type[Any] | None:
    """Return AgentScope's `Msg` if the memory is one of AgentScope's; others get messages of ours."""
    if not any(kind.__module__.split(".")[0] == "agentscope" for kind in type(memory).__mro__):
        return None
    from agentscope.message import Msg as AgentScopeMsg

    found: type[Any] = AgentScopeMsg
    return found


def _filled(mark: T) -> T:
    """Return a mark, or None.

    Raises:
        InvalidArgumentError: it is empty.
    """
    if mark == "":
        raise InvalidArgumentError("mark: '' is no mark for this memory; use a string that is not empty")
    return mark


def _portions(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _IDS_AT_ONCE):
        yield list(ids[start : start + _IDS_AT_ONCE])
