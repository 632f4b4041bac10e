"""Anthropic Messages: requests, lists of messages, or answers; one in a file, or one per line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from context_compressor.readers import anthropic_blocks as blocks
from context_compressor.readers.documents import Document, Numbered
from context_compressor.readers.grouped import GroupReader
from context_compressor.readers.session import Format, Session, UnreadableError
from context_compressor.readers.transcript import Transcript, is_message, kind_of

FORMAT = Format.ANTHROPIC


def recognises(sample: Sequence[Any]) -> bool:
    """Tell whether some value is a request with `system` beside its messages, or has blocks of theirs."""
    first = next((value for value in sample if is_message(value) or _held(value) is not None), None)
    if is_message(first):
        return _are_messages(sample)
    return any(_is_session(value) for value in sample)


def _is_session(value: Any) -> bool:
    messages = _held(value)
    if messages is None or speaks_chat(messages):
        return False
    has_system = isinstance(value, dict) and isinstance(value.get("system"), str | list)
    return (has_system and not _has_instruction(messages)) or _are_messages(messages)


def _held(value: Any) -> list[Any] | None:
    """Return the messages that a value holds; None where it holds no list."""
    held = value.get("messages") if isinstance(value, dict) else value
    return held if isinstance(held, list) else None


def _are_messages(messages: Sequence[Any]) -> bool:
    if speaks_chat(messages):
        return False
    return any(
        is_message(m) and (blocks.has_mark(m.get("content")) or ("stop_reason" in m and "usage" in m))
        for m in messages
    )


def speaks_chat(value: Any) -> bool:
    """Tell whether a value holds messages, one of which only chat completions have."""
    roles = ("tool", "function", "developer")
    messages = _held(value) or ()
    return any(isinstance(m, dict) and (m.get("role") in roles or "tool_calls" in m) for m in messages)


def _has_instruction(messages: Sequence[Any]) -> bool:
    return any(isinstance(m, dict) and m.get("role") == "system" for m in messages)


def read(document: Document) -> Iterator[Session]:
    """Yield a session per request or list."""
    yield from GroupReader(
        FORMAT, is_item=is_message, unwrap=_unwrap, add=_add, place="messages[{}].", begin=_begin
    ).read(document)


def _begin(transcript: Transcript, holder: Any, line: int) -> list[Numbered]:
    """Say the system prompt that stands beside the messages."""
    if isinstance(holder, dict) and holder.get("system"):
        try:
            parts = [blocks.to_part(block) for block in blocks.blocks_of(holder["system"])]
        except UnreadableError as error:
            raise UnreadableError(f"system: {error.why}") from None
        transcript.say("system", parts, line)
    return []


def _unwrap(value: Any) -> list[Any]:
    held = _held(value)
    if held is None:
        raise UnreadableError(f'expected a list of messages or {{"messages": [...]}}, got {kind_of(value)}')
    return held


def _add(transcript: Transcript, item: Any, line: int) -> None:
    if not isinstance(item, dict):
        raise UnreadableError(f"expected a message, got {kind_of(item)}")
    role, content = item.get("role"), item.get("content")
    if item.get("tool_calls"):
        raise UnreadableError("tool_calls: expected calls as blocks of the content; these are of OpenAI chat")
    if role == "assistant":
        blocks.add_assistant(transcript, content, line)
    elif role == "user":
        blocks.add_user(transcript, content, line)
    elif role == "system":
        transcript.say("system", [blocks.to_part(block) for block in blocks.blocks_of(content)], line)
    else:
        raise UnreadableError(f"role: expected user, assistant or system, got {role!r}")
