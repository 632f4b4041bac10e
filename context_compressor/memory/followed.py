"""What a list of chat dicts said, as it is remembered: while it is followed, and in a saved state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable
from typing import Any, NamedTuple, Self

from context_compressor.errors import InvalidStateError
from context_compressor.messages.openai import Markers, from_openai, split_markers, text_forms, to_openai

_LONG_CHARACTERS = 200
"""Texts longer than this are remembered by their hash: the base memory has them already."""

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
        return cls(_without_long_texts(wire), split_markers(wire)[1], id, digest_of(wire))


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


def _without_long_texts(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _LONG_CHARACTERS else _LongText(value)
    if isinstance(value, dict):
        return {key: _without_long_texts(inner) for key, inner in value.items()}
    return [_without_long_texts(inner) for inner in value] if isinstance(value, list) else value


def wire_of(item: Any) -> dict[str, Any]:
    """Return a dict or an SDK object, which may hold further ones, as a plain dict."""
    return to_openai(from_openai([item]))[0]


def digest_of(wire: dict[str, Any]) -> str:
    """Return what stands for a chat dict in every process, whatever the order of its keys, whether it has
    keys that say nothing, and what request metadata it carries.

    Databases give JSON back in an order of their own (PostgreSQL's `jsonb`). What an SDK object has not set
    is null in its `model_dump()`, and what the provider set to null is left out by `exclude_none`.
    """
    return digests_of(wire)[0]


def digests_of(wire: dict[str, Any]) -> list[str]:
    """Return `digest_of`, and behind it what earlier releases had where a text was the only part."""
    return [_digest(form) for form in text_forms(split_markers(wire)[0])]


def _digest(bare: dict[str, Any]) -> str:
    said = {key: value for key, value in bare.items() if value is not None and value != []}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def read_followed(data: object, known: Container[str]) -> list[Followed]:
    """Read the saved form of `ListFollower.followed`; `known` are the ids of messages that may come back.

    Raises:
        InvalidStateError: it is malformed.
    """
    place = "compression.synced"
    if not isinstance(data, list):
        raise InvalidStateError(f"{place}: expected a list, got {type(data).__name__}")
    for index, pair in enumerate(data):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)):
            raise InvalidStateError(f"{place}[{index}]: expected an id and a digest")
    return unless_known([Followed(id, digest) for id, digest in data], known)


def unless_known(followed: Iterable[Followed], known: Container[str]) -> list[Followed]:
    """Keep the digests of messages that had been deleted by hand: those are not to come back."""
    return [one._replace(digest=MAY_RETURN) if one.id in known else one for one in followed]
