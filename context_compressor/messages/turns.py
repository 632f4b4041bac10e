"""Chat dicts with user and assistant in turn, for templates and providers that take nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from context_compressor.messages.chat import THOUGHT_KEYS
from context_compressor.messages.msg import copy_json
from context_compressor.messages.plain import MISSING, as_list, no_chat_dict, wrong

BRIDGE = "[The conversation goes on.]"
"""What the assistant says between a tool's result and a user message, and the user where the assistant would
speak first. Each takes at most 15 tokens, frame included."""


def in_turn(messages: Iterable[Any]) -> list[Any]:
    """Return a view's chat dicts with user and assistant in turn, calls and results apart.

    The templates of Mistral's and Gemma's models, and some providers, refuse two user messages in a row, and
    Mistral's API a user message right behind a tool's result. A view has both, since a summary is a user
    message that may stand beside another. Neighbours of one role are joined, what they say unchanged; behind
    a result the assistant says `BRIDGE`, as the user does where the assistant would speak first, which the
    memory has not counted (`reserved_tokens`). A dict that is not concerned is the one that came in.

    Raises:
        InvalidMessageError: one is no dict with a role; the text names its index.
        InvalidArgumentError: `messages` is not a list or another iterable of chat dicts.
    """
    result: list[dict[str, Any]] = []
    for index, message in enumerate(as_list(messages)):
        if not isinstance(message, dict):
            raise no_chat_dict(index, message)
        if "role" not in message:
            raise wrong(f"messages[{index}].role", "a string", MISSING)
        role, before = message["role"], result[-1] if result else {}
        if role == before.get("role") and _may_be_joined(before):
            result[-1] = _joined(before, message)
            continue
        if role == "user" and before.get("role") in ("tool", "function"):
            result.append({"role": "assistant", "content": BRIDGE})
        if role == "assistant" and all(one["role"] in ("system", "developer") for one in result):
            result.append({"role": "user", "content": BRIDGE})
        result.append(message)
    return result


def _may_be_joined(message: dict[str, Any]) -> bool:
    """Tell whether what follows from the same role may stand in the same message."""
    if message["role"] == "assistant":
        return not any(message.get(key) for key in ("tool_calls", "function_call", "audio", "images"))
    return bool(message["role"] == "user")


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    both = (first, second)
    held = {**first, **{key: value for key, value in second.items() if value is not None}}
    if first.get("name") != second.get("name"):
        held.pop("name", None)
    for key in THOUGHT_KEYS:
        thoughts = [message[key] for message in both if isinstance(message.get(key), str)]
        if any(thoughts):
            held[key] = "\n\n".join(filter(None, thoughts))
    contents = [message["content"] for message in both if message.get("content")]
    if all(isinstance(content, str) for content in contents):
        content: Any = "\n\n".join(contents)
    else:
        content = [copy_json(part) for content in contents for part in _parts(content)]
    return {**held, "content": content}


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
