"""Any session of the SDK's, of which a run begins with a view."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NamedTuple

from agents import TResponseInputItem
from agents.memory import OpenAIConversationsSession, Session, SessionSettings

from context_compressor.errors import InvalidArgumentError, check_members
from context_compressor.integrations.conversations import Conversations

Items = list[TResponseInputItem]

_MEMBERS = ("session_id", "get_items", "add_items", "pop_item", "clear_session")


class CompressedSession:
    """Wrap a session: a run begins with a view of it, and what is in it stays whole.

    It is not enough alone: the SDK reads a session once per run, before the first turn. With the adapter's
    filter, which makes a view before every turn, the run's conversation is whole again behind the view.

    Args:
        owner: the adapter.
        conversations: its conversations.
        session: holds the items.
        key: names the conversation; None: what its messages begin with.

    Raises:
        InvalidArgumentError: no session, or one that keeps or compacts its history at OpenAI.
    """

    def __init__(
        self, owner: object, conversations: Conversations, session: Session, key: str | None
    ) -> None:
        check_members("session", session, "a session of the SDK's", _MEMBERS)
        if hasattr(session, "run_compaction") or isinstance(session, OpenAIConversationsSession):
            raise InvalidArgumentError(
                f"session: a {type(session).__name__} has OpenAI keep or compact its history; "
                "give the run that session and no Compression, or one such as SQLiteSession"
            )
        if not isinstance(key, str | None):
            raise InvalidArgumentError(f"key: expected a string or None, got {type(key).__name__}")
        self.wrapped = session
        self._owner = owner
        self._conversations = conversations
        self._key = key

    @property
    def session_id(self) -> str:
        """The wrapped session's id."""
        return self.wrapped.session_id

    @property
    def session_settings(self) -> SessionSettings | None:
        """The wrapped session's settings."""
        return getattr(self.wrapped, "session_settings", None)

    async def get_items(self, limit: int | None = None) -> Items:
        """Return a view of all items; with a limit, or where the adapter only looks on, the items."""
        if limit is not None or self._conversations.observer is not None:
            return await self.wrapped.get_items(limit)
        items = await self.wrapped.get_items()
        shown = await self._conversations.view(items, key=self._key)
        _LOADED.set(_Loaded(self._owner, items, shown.messages))
        return list(shown.messages)

    async def add_items(self, items: Items) -> None:
        """Add items to the wrapped session."""
        await self.wrapped.add_items(items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item out of the wrapped session."""
        return await self.wrapped.pop_item()

    async def clear_session(self) -> None:
        """Remove all items from the wrapped session."""
        await self.wrapped.clear_session()


class _Loaded(NamedTuple):
    """What a run was given of a session."""

    owner: object
    items: Items
    view: Items


_LOADED: ContextVar[_Loaded | None] = ContextVar("context_compressor_session", default=None)


def whole(owner: object, given: list[Any]) -> list[Any]:
    """Return a request's list with the session's items where it begins with the view of them.

    What the view shows as it is stays the request's own object: the SDK goes by these.
    """
    loaded = _LOADED.get()
    if loaded is None or loaded.owner is not owner or not loaded.view:
        return given
    _, items, view = loaded
    if len(view) > len(given) or any(one != other for one, other in zip(view, given, strict=False)):
        return given
    own = {id(one): other for one, other in zip(view, given, strict=False)}
    return [*(own.get(id(item), item) for item in items), *given[len(view) :]]
