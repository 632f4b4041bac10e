"""What backends keep of messages, edits and names: bytes or ASCII text that gives back what went in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from context_compressor.core.edits import Edit, EditName, ItemKey, SavedEdit
from context_compressor.errors import InvalidArgumentError, InvalidStateError
from context_compressor.memory.in_memory import with_split_pairs, without_split_pairs
from context_compressor.messages.msg import Msg

DEFAULT_SESSION, DEFAULT_USER = "default_session", "default_user"
"""Where none is given, as AgentScope's memories have it."""
_DIGITS = "0123456789abcdef"


class Standing(NamedTuple):
    """Where the history of one of a user's sessions stands."""

    session_id: str
    number: int
    """As in `Head`."""
    size: int


def digest(*parts: str) -> str:
    """Return 64 hex digits that stand for strings, whatever these hold, each told from the next."""
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(f"{len(data)}:".encode())
        hashed.update(data)
    return hashed.hexdigest()


def as_name(value: object, name: str, default: str) -> str:
    """Return the id of a session or a user.

    Raises:
        InvalidArgumentError: it is neither a string nor None.
    """
    if value is None:
        return default
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name}: expected a string or None, got {type(value).__name__}")
    return value


def as_key(value: object) -> str:
    """Return the key of a conversation.

    Raises:
        InvalidArgumentError: it is no string.
    """
    if not isinstance(value, str):
        raise InvalidArgumentError(f"key: expected a string, got {type(value).__name__}")
    return value


def as_namespace(value: object) -> str:
    """Return what stands for a namespace: a string, or the ids of a user and a session.

    Raises:
        InvalidArgumentError: it is neither.
    """
    if isinstance(value, tuple):
        if len(value) != 2 or not all(isinstance(part, str) for part in value):
            raise InvalidArgumentError(
                f"namespace: expected the ids of a user and a session, got {value!r:.200}"
            )
        return digest(*value)
    return digest(as_name(value, "namespace", "default"))


def to_bytes(text: str) -> bytes:
    """Return a text in UTF-8, halves of characters included, which databases take as bytes alone."""
    return text.encode("utf-8", "surrogatepass")


def from_bytes(data: bytes) -> str:
    """Return the text again."""
    return bytes(data).decode("utf-8", "surrogatepass")


def pack(data: Any) -> bytes:
    """Return JSON-like data as bytes."""
    return to_bytes(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def unpack(data: bytes) -> Any:
    """Return the data again."""
    return json.loads(from_bytes(data))


def pack_ascii(data: dict[str, Any]) -> str:
    """Return JSON-like data as ASCII text, which any client of Redis gives back, decoded or not."""
    return json.dumps(with_split_pairs(data), separators=(",", ":"))


def unpack_ascii(text: str | bytes) -> dict[str, Any]:
    """Return the data again."""
    return dict(without_split_pairs(json.loads(text), ""))


@cache
def _edits() -> TypeAdapter[Edit]:
    return TypeAdapter(SavedEdit)


def to_message(data: Any) -> Msg:
    """Return a message that `Msg.to_dict` wrote.

    Raises:
        InvalidStateError: what is stored is no message.
    """
    try:
        return Msg.from_dict(data)
    except ValueError as error:
        raise InvalidStateError(f"what the history holds is no message: {error}") from error


def to_state(read: Callable[[Any], Any], data: Any, key: str) -> Any:
    """Return the state under a key, from its data, by a function that reads these.

    Raises:
        InvalidStateError: what is stored is no state.
    """
    try:
        return read(data)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidStateError(
            f"the state under {key!r} cannot be read ({type(error).__name__}); delete it, or set another"
        ) from None


def to_edit(data: Any) -> Edit:
    """Return the edit again."""
    return _edits().validate_python(data)


def from_name(name: EditName) -> list[Any]:
    """Return the name of an edit as JSON-like data."""
    item, path = name
    return [list(item), list(path)]


def to_name(data: Any) -> EditName:
    """Return the name again."""
    item, path = data
    return ItemKey(*item), tuple(path)


def name_digest(name: EditName) -> str:
    """Return what stands for the name of an edit."""
    return digest(repr(from_name(name)))


def to_tokens(counted: tuple[str, int] | None) -> list[Any] | None:
    """Return who counted a message, and what it costs, as JSON-like data."""
    return None if counted is None else list(counted)


def from_tokens(data: Any) -> tuple[str, int] | None:
    """Return that again."""
    return None if data is None else (str(data[0]), int(data[1]))


# The order of messages: a whole number, and behind it hex digits for those that were put in between.


def place_of(whole: int, fraction: str) -> int | Fraction:
    """Return a place as a number."""
    return whole + Fraction(int(fraction, 16), 16 ** len(fraction)) if fraction else whole


def place_parts(place: int | Fraction) -> tuple[int, str]:
    """Return a place as a whole number and hex digits, which sort as the place does."""
    whole = place.numerator // place.denominator
    rest, digits = place - whole, ""
    while rest:
        rest *= 16
        digit = rest.numerator // rest.denominator
        digits, rest = digits + _DIGITS[digit], rest - digit
    return whole, digits


def between(lower: int | Fraction, upper: int | Fraction) -> int | Fraction:
    """Return a place between two."""
    return (Fraction(lower) + Fraction(upper)) / 2
