"""What a list says, kept in a few bytes a message, to be compared with what it says later."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from context_compressor.memory.state import MemoryState
from context_compressor.messages.chat import (
    Markers,
    as_dict,
    from_openai,
    has_marker,
    set_markers,
    split_markers,
    text_forms,
    to_openai,
)
from context_compressor.messages.msg import Msg

_LONG_CHARACTERS = 200
"""Texts longer than this are remembered by their hash: the base memory has them already."""

INSTRUCTING = ("system", "developer")
"""Roles of messages that many conversations share."""

MAY_RETURN = ""
"""In place of the digest of a message that nobody deleted by hand: where it is gone, it is added again."""


class Followed(NamedTuple):
    """A message that came from the list, as a saved state has it."""

    id: str
    digest: str
    """Of what the list said, or `MAY_RETURN`."""


class Synced(NamedTuple):
    """What the list said in one place."""

    wire: dict[str, Any]
    """The message as a chat dict, long texts by their hash."""
    markers: Markers
    """The request metadata in it."""
    id: str
    """Id of its message."""
    digest: str
    """The same in every process."""

    @classmethod
    def of(cls, wire: dict[str, Any], id: str) -> Self:
        """Return what a chat dict says, whose message has this id."""
        bare, markers = split_markers(wire)
        return cls(without_long_texts(wire), markers, id, digest_of_form(bare))


class _LongText:
    """Equal to the text that it was made from, without holding it.

    Python keeps a string's hash with it, so that comparing costs the same however long the text is.
    """

    __slots__ = ("_hash", "_length")

    def __init__(self, text: str) -> None:
        self._hash, self._length = hash(text), len(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and len(other) == self._length and hash(other) == self._hash

    __hash__ = None  # type: ignore[assignment]  # it stands in no set


def without_long_texts(value: Any) -> Any:
    """Return JSON-like data with each long text in a few bytes that are equal to it."""
    if isinstance(value, str):
        return value if len(value) <= _LONG_CHARACTERS else _LongText(value)
    if isinstance(value, dict):
        return {key: without_long_texts(inner) for key, inner in value.items()}
    return [without_long_texts(inner) for inner in value] if isinstance(value, list) else value


def wire_of(item: Any) -> dict[str, Any]:
    """Return a dict or an SDK object, which may hold further ones, as a plain dict."""
    wire: dict[str, Any] = to_openai(from_openai([item]))[0]
    return wire


def digest_of(wire: dict[str, Any]) -> str:
    """Return what stands for a chat dict in every process, whatever the order of its keys, whether it has
    keys that say nothing, and what request metadata it carries.

    Databases give JSON back in an order of their own (PostgreSQL's `jsonb`). What an SDK object has not set
    is null in its `model_dump()`, and what the provider set to null is left out by `exclude_none`.
    """
    return digests_of(wire)[0]


def digests_of(wire: dict[str, Any]) -> list[str]:
    """Return `digest_of`, and behind it what earlier releases had where a text was the only part."""
    return [digest_of_form(form) for form in text_forms(split_markers(wire)[0])]


def digest_of_form(bare: dict[str, Any]) -> str:
    """Return the digest of a chat dict in one of its forms, without request metadata."""
    said = {key: value for key, value in bare.items() if value is not None and value != []}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def unless_known(followed: Iterable[Followed], known: Container[str]) -> list[Followed]:
    """Keep the digests of messages that had been deleted by hand: those are not to come back."""
    return [one._replace(digest=MAY_RETURN) if one.id in known else one for one in followed]


@dataclass(slots=True)
class Listed:
    """What is known of the list, in one state of the memory: cleared or loaded, it has another."""

    state: MemoryState
    synced: list[Synced] = field(default_factory=list)
    """What the list said last time."""
    loaded: list[Followed] = field(default_factory=list)
    """What was synced before a saved state was loaded, until the history was read."""
    markers: dict[str, Markers] = field(default_factory=dict)
    """The request metadata in the newest list, by the id of its message."""

    def note_markers(self) -> None:
        """Note the request metadata that the list carries now."""
        self.markers = {one.id: one.markers for one in self.synced if has_marker(one.markers)}


def read_list(said: list[Any]) -> list[tuple[Msg, dict[str, Any]]]:
    """Return what messages of a list say, each with its chat dict."""
    read = from_openai(said)
    return [(set_markers(msg, []), wire) for msg, wire in zip(read, to_openai(read), strict=True)]


def is_as_it_was(old: Synced, new: Any) -> bool:
    # Comparing dicts is far cheaper than reading them, and all but the end is mostly the same.
    return bool(old.wire == new or old.wire == as_dict(new))


def shared(synced: Sequence[Synced], said: Sequence[Any]) -> int:
    """Return how many messages at the beginning of a list are as they were; note what is said another way."""
    same = 0
    for old, new in zip(synced, said, strict=False):
        if not is_as_it_was(old, new) and old.wire != (wire := wire_of(new)):
            if old.digest != digest_of(wire):
                break
            if isinstance(synced, list):
                synced[same] = Synced.of(wire, old.id)
        same += 1
    return same


def is_one_exchange(synced: Sequence[Synced]) -> bool:
    """Tell whether these are one exchange at most: a message, or calls and nothing but their results."""
    return all(one.wire["role"] in ("tool", "function") for one in synced[1:])
