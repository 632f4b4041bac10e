"""What a service takes and gives as messages: `Msg`, chat dicts, objects with `role` and `content`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from itertools import groupby
from typing import Any

from pydantic import BaseModel

from context_compressor.errors import InvalidArgumentError, InvalidMessageError
from context_compressor.messages.chat import from_openai, to_openai
from context_compressor.messages.msg import Block, Msg, Role, check_json, copy_json
from context_compressor.messages.plain import as_list

_KEY = "service"
"""The key in a message's metadata under which stands what it was given as: `as`, and `data` of an object."""
_CHAT, _MSG = "chat", "msg"
_ROLES: dict[str, Role] = {"user": "user", "system": "system", "developer": "system"}
"""Who else speaks is not the user: an assistant."""


def read_messages(messages: object) -> list[Msg]:
    """Return what was given as messages that nobody else holds.

    Raises:
        InvalidArgumentError: no list, or something in it is no message.
        InvalidMessageError: a message is malformed; the text names place and field.
    """
    if messages is None:
        return []
    given = as_list(messages)  # type: ignore[arg-type]
    read: list[Msg] = []
    for is_chat, run in groupby(enumerate(given), key=lambda one: isinstance(one[1], Mapping)):
        numbered = list(run)
        if is_chat:
            read += _read_dicts(numbered)
        else:
            read += (_read(message, f"messages[{index}]") for index, message in numbered)
    return read


def _read_dicts(numbered: Sequence[tuple[int, Any]]) -> list[Msg]:
    """Read chat dicts together: results have the names of the tools that were called before them."""
    try:
        read = from_openai(message for _, message in numbered)
    except InvalidMessageError:
        for index, message in numbered:
            try:
                from_openai([message])
            except InvalidMessageError as error:
                said = str(error).removeprefix("messages[0]")
                raise InvalidMessageError(f"messages[{index}]{said}") from None
        raise
    for msg in read:
        msg.metadata = {**(msg.metadata or {}), _KEY: {"as": _CHAT}}
    return read


def _read(message: object, place: str) -> Msg:
    if isinstance(message, Msg):
        msg = message.copy()
        bare = {"bare": True} if msg.metadata is None else {}
        msg.metadata = {**(msg.metadata or {}), _KEY: {"as": _MSG, **bare}}
        return msg
    if not (hasattr(message, "role") and hasattr(message, "content")):
        raise InvalidArgumentError(
            f"{place}: expected a Msg, a chat dict or an object with role and content, "
            f"got {type(message).__name__}"
        )
    try:
        return _read_object(message)
    except InvalidMessageError as error:
        raise InvalidMessageError(f"{place}: {error}") from None


def _read_object(message: Any) -> Msg:
    kind = type(message)
    if isinstance(message, BaseModel):
        try:
            data = message.model_dump(mode="json")
        except ValueError as error:  # a text that is none, or a value of a class of its own
            raise InvalidMessageError(f"a {kind.__name__} that cannot be written as JSON: {error}") from error
    elif callable(getattr(message, "to_dict", None)) and hasattr(kind, "from_dict"):
        data = copy_json(message.to_dict())
    else:
        raise InvalidMessageError(
            f"a {kind.__name__} cannot be kept; expected a pydantic model, or a class with to_dict and "
            "from_dict"
        )
    check_json(data, "")
    noted = {_KEY: {"as": f"{kind.__module__}:{kind.__qualname__}", "data": data}}
    own = data.get("id") if isinstance(data.get("id"), str) and data["id"] else None
    if "name" in data:  # of AgentScope's form, which is ours
        try:
            msg = Msg.from_dict({**data, "metadata": None})
        except InvalidMessageError:
            pass
        else:
            msg.metadata = noted
            return msg
    role, content = data.get("role"), data.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(_blocks(content))
    if role == "tool":  # as a result, which nobody takes for an instruction
        texts = [block for block in blocks if block.get("type") == "text"]
        result = {"type": "tool_result", "id": str(data.get("tool_call_id") or ""), "name": "tool"}
        return Msg("tool", [{**result, "output": texts}], "system", noted, id=own)
    spoken = _ROLES.get(str(role), "assistant")
    return Msg(spoken, content if isinstance(content, str) else blocks, spoken, noted, id=own)


def _blocks(content: object) -> Iterator[Block]:
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict) and part.get("type") == "text":
            yield {"type": "text", "text": str(part.get("text") or "")}
        elif isinstance(part, dict) and isinstance(part.get("type"), str):
            yield {"type": "service_part", "part": part}
        else:
            yield {"type": "text", "text": str(part)}


def write_messages(messages: list[Msg], like: object = None) -> list[Any]:
    """Return messages as they were given.

    Args:
        messages: of a history; they become the caller's.
        like: a message as the caller speaks: where it is a chat dict, so become those that a memory added.
    """
    written: list[Any] = []
    chat: list[Msg] = []
    for msg in messages:
        noted = (msg.metadata or {}).get(_KEY)
        noted = noted if isinstance(noted, dict) else {}
        if noted.get("as") == _CHAT or (not noted and isinstance(like, Mapping)):
            chat.append(msg)  # several may have been one
            continue
        written += to_openai(chat)
        chat = []
        if noted.get("as") == _MSG:
            left = {key: value for key, value in (msg.metadata or {}).items() if key != _KEY}
            msg.metadata = left or (None if noted.get("bare") else {})
            written.append(msg)
        else:
            written.append(_write_object(msg, noted) if noted else msg)
    return [*written, *to_openai(chat)]


def _write_object(msg: Msg, noted: Mapping[str, Any]) -> Any:
    """Return the object again, or its `Msg` where its class is not loaded, or does not take what is stored.

    What is stored names a class, and anybody may have written it. Nothing is imported for that, and only
    classes of messages are used: those whose objects have a role and a content.
    """
    module, _, path = str(noted.get("as")).partition(":")
    kind: Any = sys.modules.get(module)
    for name in path.split("."):
        # Not getattr: a module may import others when it is asked for an attribute.
        kind = getattr(kind, "__dict__", {}).get(name)
    try:
        if isinstance(kind, type) and {"role", "content"} <= _members_of(kind):
            data: Any = noted.get("data")
            if issubclass(kind, BaseModel):
                return kind.model_validate(data)
            if hasattr(kind, "to_dict"):
                return kind.from_dict(data)  # type: ignore[attr-defined]
    except Exception:
        return msg
    return msg


def _members_of(kind: type) -> set[str]:
    """Return the names of attributes of objects of a class, as far as the class declares them."""
    fields = kind.model_fields if issubclass(kind, BaseModel) else signature(kind).parameters
    return {*fields, *dir(kind)}


def text_of(messages: list[Msg]) -> str:
    """Return what messages say in texts, as a query."""
    return "\n".join(filter(None, (msg.get_text_content() for msg in messages))).strip()
