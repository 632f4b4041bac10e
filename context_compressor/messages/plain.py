"""What comes from outside as plain JSON data: copied, checked, its arguments and ids such as forms take."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Iterable, Mapping
from hashlib import sha256
from inspect import isawaitable
from typing import Any, Final

from context_compressor.errors import InvalidArgumentError, InvalidMessageError
from context_compressor.messages.msg import ROLES as _ROLES
from context_compressor.messages.msg import SCALARS, Block, Msg
from context_compressor.messages.text import dump_sendable

MAX_DEPTH: Final = 100
"""How deep JSON data may nest. Fixed, because what recursion bears depends on the caller's stack, and the
same message must read the same way everywhere."""

_FIELD = re.compile(r"[^.\[]*(?:\[\d+\](?=\.))?")
"""The beginning of a path: a field, and the place in it where more follows."""

MISSING: Final = object()
"""Stands for a key that is not there, where None means null."""
_PARSED_BY_SDK = {
    "parsed": True,
    "parsed_arguments": True,
    "function": {"parsed_arguments": True},
    "tool_calls": {"__all__": {"function": {"parsed_arguments": True}}},
}
"""What `client.chat.completions.parse` adds to a message: second readings of the content and the arguments,
which the API refuses when they are sent back (openai-node #1161)."""


def wrong(path: str, expected: str, value: object, mend: str = "") -> InvalidMessageError:
    """Return the error that names a field, what was expected there and what was found."""
    if value is MISSING:
        return InvalidMessageError(f"{path}: expected {expected}, but it is missing{mend}")
    found = "None" if value is None else type(value).__name__
    return InvalidMessageError(f"{path}: expected {expected}, got {found}{mend}")


def not_a_list(value: object, of: str) -> InvalidArgumentError:
    """Return the error for what is no list of messages."""
    mend = "await it" if isawaitable(value) else "put a single message in a list"
    return InvalidArgumentError(f"messages: expected a list of {of}, got {type(value).__name__}; {mend}")


def no_chat_dict(index: int, value: object) -> InvalidMessageError:
    """Return the error for what stands where a chat dict should, with what makes one of a `Msg`."""
    mend = "; to_openai makes chat dicts of messages" if isinstance(value, Msg) else ""
    return wrong(f"messages[{index}]", "a chat dict", value, mend)


def as_list(messages: Iterable[Any]) -> list[Any]:
    """Return chat dicts as a list.

    Raises:
        InvalidArgumentError: a single message, or anything else that is no list.
    """
    is_single = isinstance(messages, str | bytes | Mapping) or hasattr(messages, "model_dump")
    if is_single or not isinstance(messages, Iterable):
        raise not_a_list(messages, "chat dicts")
    return list(messages)


def check_messages(messages: Iterable[Msg]) -> list[Msg]:
    """Return messages that are to be written as a list.

    Raises:
        InvalidArgumentError: it is no list or another iterable, or one of it is no message.
        InvalidMessageError: a role or content was changed to what it cannot be.
    """
    if isinstance(messages, str | bytes | Mapping | Msg) or not isinstance(messages, Iterable):
        raise not_a_list(messages, "Msg")
    given = list(messages)
    for index, msg in enumerate(given):
        # By attribute, not by class: AgentScope's own Msg will do.
        place, role, content = f"messages[{index}]", getattr(msg, "role", None), getattr(msg, "content", None)
        if isinstance(content, str | list) and role in _ROLES:
            continue
        if not (hasattr(msg, "content") and hasattr(msg, "role")):
            raise InvalidArgumentError(f"{place}: expected a Msg, got {type(msg).__name__}")
        if role not in _ROLES:
            roles = ", ".join(_ROLES)
            raise InvalidMessageError(f"{place}.role: expected one of {roles}, got {role!r:.200}")
        raise wrong(f"{place}.content", "a string or a list of blocks", content)
    return given


def as_dict(value: object) -> dict[str, Any] | None:
    """Return a dict, another Mapping or an SDK's (pydantic) object as a dict, not a deep copy; else None."""
    if isinstance(value, dict):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        return None
    options: dict[str, Any] = {"mode": "json", "warnings": False, "exclude": _PARSED_BY_SDK}
    data = dump(exclude_unset=True, **options)
    # A class of the user's own may give its role by default, which "unset" leaves out.
    if "role" not in data and getattr(value, "role", None) is not None:
        data = dump(exclude_none=True, **options)
    return data if isinstance(data, dict) else None


def get(value: object, key: str) -> Any:
    """Return what a dict, or an SDK's object, holds under a key; None where it has none."""
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)


def with_keys(value: object, **changed: Any) -> dict[str, Any]:
    """Return a copy, not a deep one, of a dict or an SDK's object in which some keys hold something else."""
    return {**(as_dict(value) or {}), **changed}


def plain(value: Any, path: str, depth: int = MAX_DEPTH) -> Any:
    """Return an independent copy of `value` in dicts, lists and scalars only.

    Raises:
        InvalidMessageError: something in it is not JSON data, or nests deeper than `MAX_DEPTH`.
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    if depth == 0:
        field = found[0] if (found := _FIELD.match(path)) else ""
        raise InvalidMessageError(f"{field or 'item'}: nested more than {MAX_DEPTH} deep")
    if kind is dict:
        for key in value:
            if not isinstance(key, str):
                raise wrong(path or "item", "keys that are strings", key)
        return {
            key: item if type(item) in SCALARS else plain(item, f"{path}.{key}" if path else key, depth - 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            item if type(item) in SCALARS else plain(item, f"{path}[{number}]", depth - 1)
            for number, item in enumerate(value)
        ]
    if isinstance(value, str):  # a subclass: an enum, mostly
        return str.__str__(value)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    data = as_dict(value)
    if data is None:
        raise wrong(path or "item", "JSON data", value)
    return plain(dict(data), path, depth)


# Request metadata

REQUEST_METADATA = frozenset({"cache_control"})
"""Keys of messages, parts and calls that are no content: breakpoints of a prompt cache (Anthropic)."""


def without_request_metadata(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a message, part or call holds as content alone."""
    return {key: value for key, value in holder.items() if key not in REQUEST_METADATA}


SENT_BESIDE: Final = "sent_beside"
"""Key in a chat dict that an adapter makes of a framework's message, for what goes out with the message and
has no other place in the dict. It is counted, and never sent under this key."""


def unsaid(value: Any, said: Container[str]) -> Any:
    """Return what JSON-like data says in texts that are not among `said`; None: nothing.

    What is no text, what says which kind of block it is, and request metadata are left out.
    """
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if key != "type" and key not in REQUEST_METADATA}
        return {key: left for key, item in kept.items() if (left := unsaid(item, said))}
    if isinstance(value, list | tuple):
        return [left for item in value if (left := unsaid(item, said))]
    return value if isinstance(value, str) and value not in said else None


# Ids

MOST_ID_CHARACTERS = 64
"""Characters of an id of a call; OpenAI's Responses API refuses longer ones."""
_DIGEST_CHARACTERS = 12


def made_id(id: str) -> str:
    """Return a valid id in the place of one that a form does not take: letters, digits, `_` and `-`, not too
    long. The same id always becomes the same one, and each another.
    """
    size = max(0, min(len(id), MOST_ID_CHARACTERS) - _DIGEST_CHARACTERS - 1)
    digest = sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{_NO_ID_CHARACTER.sub('_', id[:size])}_{digest}"


_NO_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")


# Arguments


def parse_arguments(raw: str) -> dict[str, Any]:
    """Return a call's arguments: the object that `raw` spells in JSON, else `{"arguments": raw}`.

    Strict: NaN, infinities (also by overflow) and objects nested deeper than `MAX_DEPTH` are not accepted, so
    that what is returned can always be written as JSON again.
    """
    try:
        value = _DECODER.decode(raw)
        if type(value) is dict and (raw.count("{") + raw.count("[") <= MAX_DEPTH or plain(value, "")):
            return value
    except (ValueError, RecursionError):  # ValueError: no JSON, or an integer too long for Python
        pass
    return {"arguments": raw}


def dump_arguments(value: dict[str, Any]) -> str:
    """Return a call's `input` as JSON text, always an object.

    Raises:
        InvalidMessageError: the input holds something that JSON has no form for.
    """
    try:
        try:
            return dump_sendable(value, allow_nan=False)
        except ValueError:  # a NaN: readable for the model, in a form that any provider can parse
            return dump_sendable({"arguments": json.dumps(value, ensure_ascii=False)})
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessageError(f"tool_use.input: expected JSON data; {error}") from error


def arguments_text(block: Block) -> str:
    """Return the text as received while it still says what `input` says, else `input` as JSON."""
    # Compared as JSON text: to `==`, 1, 1.0 and True are one value, and an edit between them would not show.
    text = dump_arguments(block["input"])
    raw = block.get("raw_input")
    if isinstance(raw, str) and (raw == text or dump_arguments(parse_arguments(raw)) == text):
        return raw
    return text


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is beyond a float")
    return number


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
