"""A memory and its shadow: every call goes to both, and what they answer has to be the same."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from enum import Enum
from typing import Any

from context_compressor import InMemoryOffloadStore, Msg
from tests.shadow.before import before

CALLS = frozenset(
    [
        "add",
        "delete",
        "delete_by_mark",
        "update_messages_mark",
        "update_compressed_summary",
        "clear",
        "size",
        "get_memory",
        "get_history",
        "view",
        "compress_now",
        "read_ref",
        "search_history",
        "remove_orphans",
        "record_usage",
        "record_overflow",
        "aclose",
        "refs",
    ]
)
"""What is asked of both."""


def shadow_of(value: Any) -> Any:
    """Return what stands for a value in the package as it was: a message is one of its own."""
    if isinstance(value, Msg):
        return before().Msg.from_dict(value.to_dict())
    if isinstance(value, (list, tuple)):
        return type(value)(map(shadow_of, value))
    return value


def plain(value: Any) -> Any:
    """Return what can be compared between the packages."""
    if type(value).__name__ == "Msg":
        return value.to_dict()
    if isinstance(value, BaseException):
        return type(value).__name__, str(value).replace(before().__name__, "context_compressor")
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        told = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        # What a message of a list is called is drawn anew.
        told["message_ids"] = len(told.get("message_ids", ()))
        return {name: said for name, said in told.items() if not name.endswith("seconds")}
    if isinstance(value, Mapping):
        return {key: plain(held) for key, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(held) for held in value]
    return value


async def outcome(asked: Any) -> Any:
    """Return what a call answers or raises."""
    try:
        return await asked if inspect.isawaitable(asked) else asked
    except Exception as error:
        return error


class Both:
    """Ask two objects the same.

    Args:
        mine: answers.
        shadow: has to answer the same.
    """

    def __init__(self, mine: Any, shadow: Any) -> None:
        self.mine = mine
        self.shadow = shadow

    def __getattr__(self, name: str) -> Any:
        mine = getattr(self.mine, name)
        if name == "base":
            return Both(mine, self.shadow.base)
        if name not in CALLS:
            return mine
        theirs = getattr(self.shadow, name)

        async def ask(*args: Any, **options: Any) -> Any:
            shadowed = {key: shadow_of(value) for key, value in options.items()}
            other = await outcome(theirs(*map(shadow_of, args), **shadowed))
            one = await outcome(mine(*args, **options))
            assert_same(name, one, other)
            if isinstance(one, Exception):
                raise one
            return one

        return ask

    def state_dict(self) -> dict[str, Any]:
        """Return the states of both."""
        return {"mine": self.mine.state_dict(), "shadow": self.shadow.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load each its own state, or both the shadow's: what was saved once is read for ever."""
        self.mine.load_state_dict(state["mine"])
        self.shadow.load_state_dict(state["shadow"])


def assert_same(asked: str, one: Any, other: Any) -> None:
    """Compare two answers.

    Raises:
        AssertionError: they differ; says where first.
    """
    mine, shadow = plain(one), plain(other)
    if mine == shadow:
        return
    if isinstance(mine, list) and isinstance(shadow, list):
        for place, (held, was) in enumerate(zip(mine, shadow, strict=False)):
            assert held == was, f"{asked}: the answer's item {place} was {was!r:.2000}, now {held!r:.2000}"
    raise AssertionError(f"{asked}: the answer was {shadow!r:.2000}, now {mine!r:.2000}")


def shadow_summarizer(summarizer: Any) -> Any:
    """Return a summariser of the same name, whose answers are those of the package as it was."""

    async def summarize(_: Any, request: Any) -> Any:
        return before().Summary(text=(await summarizer.summarize(request)).text)

    kind = type(summarizer).__name__
    return type(kind, (), {"remote": summarizer.remote, "summarize": summarize})()


def shadow_store(store: Any) -> Any:
    """Return a store of the package as it was that does as a store of today's: refuses when that does."""
    kept = before().InMemoryOffloadStore

    class Shadowed(kept):  # type: ignore[misc, valid-type]
        async def write(self, text: str) -> str:
            if getattr(store, "refusing", False):
                raise OSError(28, "No space left on device")
            written: str = await super().write(text)
            return written

    return Shadowed()


def assert_same_texts(store: InMemoryOffloadStore, shadow: Any) -> None:
    """Compare what two stores hold."""
    mine, was = store.texts(), shadow.texts()
    assert mine == was, {"gone": was.keys() - mine.keys(), "new": mine.keys() - was.keys()}
