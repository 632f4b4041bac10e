"""Anthropic Messages: requests, lists of messages, or answers; one in a file, or one per line."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from context_compressor.lab.readers.documents import Numbered, load
from context_compressor.lab.readers.reader import Reader
from context_compressor.lab.readers.session import Format, UnreadableError
from context_compressor.lab.readers.transcript import (
    Part,
    Transcript,
    are_silent,
    as_object,
    dicts_in,
    is_message,
    kind_of,
    opaque_part,
    string,
    text_in,
    text_part,
    to_part,
    to_parts,
)

CALLS_OF_CHAT = "tool_calls: expected calls as blocks of the content; these are of OpenAI chat"
_MARKS = ("tool_use", "thinking", "redacted_thinking", "server_tool_use", "document", "search_result")
"""Block types by which content is told from that of chat dicts; `image` counts where it has a `source`."""
_NEEDED = {"text": ("text",), "tool_use": ("id", "name"), "tool_result": ("tool_use_id",)}
"""Keys that must hold strings in a block of a type."""
_RESULT_KEYS = ("type", "tool_use_id", "is_error", "cache_control", "id", "name")
"""Keys of a tool result that hold nothing of the result itself."""


def has_mark(content: Any) -> bool:
    """Tell whether content holds a block that only Anthropic's format has."""
    return any(map(_is_mark, dicts_in(content)))


def _is_mark(block: dict[str, Any]) -> bool:
    kind = block.get("type")
    if kind == "tool_result":
        return "tool_use_id" in block
    if kind == "reasoning":
        return isinstance(block.get("text"), str)
    return kind in _MARKS or (kind == "image" and "source" in block)


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """Return content as blocks."""
    if isinstance(content, str):
        return [text_part(content)] if content else []
    if not isinstance(content, list):
        raise UnreadableError(f"content: expected a string or a list of blocks, got {kind_of(content)}")
    blocks = [text_part(block) if isinstance(block, str) else block for block in content]
    for index, block in enumerate(blocks):
        if not isinstance(block, dict):
            raise UnreadableError(f"content[{index}]: expected a block, got {kind_of(block)}")
        for key in _NEEDED.get(str(block.get("type")), ()):
            string(block, key, f"content[{index}].")
    return blocks


def add_user(transcript: Transcript, content: Any, line: int) -> None:
    """Add a user message: its tool results as answers, what else it holds as said by the user."""
    blocks = blocks_of(content)
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for block in results:
        transcript.answer(block["tool_use_id"], result_parts(block), line)
    if not results:
        blocks = _answer_in_words(transcript, blocks, line)
        if not blocks and content:
            return
    parts = [to_part(block) for block in blocks if block.get("type") != "tool_result"]
    if not results or not are_silent(parts):
        transcript.say("user", parts, line)


def _answer_in_words(transcript: Transcript, blocks: list[Part], line: int) -> list[Part]:
    """Give each call that waits its result, where texts tell them in the calls' order; return the rest.

    Cline and Roo Code write results so: `[tool for ...] Result:`, in the same text or before the next.
    """
    rest = list(blocks)
    for call_id, name in transcript.pending:
        at = next((place for place, block in enumerate(rest) if _tells_of(block, name)), None)
        if at is None:
            break
        is_heading = rest[at]["text"].rstrip().endswith(":") and rest[at + 1 : at + 2]
        told = rest[at : at + (2 if is_heading else 1)]
        del rest[at : at + len(told)]
        transcript.answer(call_id, [to_part(block) for block in told], line)
    return rest


def _tells_of(block: Part, name: str) -> bool:
    text = text_in(block, "text").lstrip() if block.get("type") == "text" else ""
    # Cline heads the result of `use_subagents` as `[subagents]`.
    names = filter(None, {name, name.removeprefix("use_")})
    # `Tool [...] was not executed ...` is what they tell of a call that they passed over.
    return any(text.startswith((f"[{one} ", f"[{one}]", f"Tool [{one}]")) for one in names)


def add_assistant(transcript: Transcript, content: Any, line: int, key: str | None = None) -> None:
    """Add an assistant message, or a further part of the one with this key."""
    blocks = blocks_of(content)
    transcript.reply(line, key)
    for block in blocks:
        kind = str(block.get("type"))
        if kind == "thinking" and block.get("thinking"):
            transcript.think(str(block["thinking"]), line)
        elif kind == "reasoning" and (thoughts := _reasoning(block)):
            transcript.think(thoughts, line)
        elif kind in ("thinking", "redacted_thinking", "reasoning", "thoughtSignature"):
            transcript.leave_out("encrypted thoughts")
        elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            call_id = str(block.get("id") or "")
            transcript.call(call_id, str(block.get("name") or kind), _input(block), line)
        elif kind.endswith("_tool_result"):
            transcript.answer(str(block.get("tool_use_id") or ""), result_parts(block), line)
        else:
            transcript.speak([to_part(block)], line)


def _reasoning(block: dict[str, Any]) -> str:
    """Return the words of a thought as Roo Code keeps one that came from another API."""
    summary = block.get("summary")
    texts = [one for one in summary if isinstance(one, str)] if isinstance(summary, list) else []
    texts += [text_in(one, "text") for one in dicts_in(summary)]
    return text_in(block, "text") or "\n\n".join(filter(None, texts))


def _input(block: dict[str, Any]) -> Any:
    """Return what a tool was called with; text that is no JSON object, as a patch, becomes part of one."""
    given = block.get("input") or {}
    if not isinstance(given, str):
        return given
    with suppress(UnreadableError):
        if isinstance(load(given), dict):
            return given
    return {"input": given}


def result_parts(block: dict[str, Any]) -> list[Part]:
    """Return the parts of a tool result; what it says under another key is kept as JSON text."""
    content = block.get("content")
    if "content" not in block:
        content = {key: value for key, value in block.items() if key not in _RESULT_KEYS} or None
    if content is None:
        return []
    return to_parts(content) if isinstance(content, list) else [opaque_part(content)]


def _is_plain(value: Any) -> bool:
    return not is_message(value) and _held(value) is not None and not speaks_chat(value)


def _is_session(value: Any) -> bool:
    messages = _held(value)
    if messages is None or not _is_plain(value):
        return False
    has_system = isinstance(value, dict) and isinstance(value.get("system"), str | list)
    has_instruction = any(message.get("role") == "system" for message in dicts_in(messages))
    return (has_system and not has_instruction) or _are_messages(messages)


def _held(value: Any) -> list[Any] | None:
    """Return the messages that a value holds; None where it holds no list."""
    held = value.get("messages") if isinstance(value, dict) else value
    return held if isinstance(held, list) else None


def _are_messages(messages: Sequence[Any]) -> bool:
    if speaks_chat(messages):
        return False
    return any(
        is_message(m) and (has_mark(m.get("content")) or ("stop_reason" in m and "usage" in m))
        for m in messages
    )


def speaks_chat(value: Any) -> bool:
    """Tell whether a value holds messages, one of which only chat completions have."""
    roles = ("tool", "function", "developer")
    messages = dicts_in(_held(value))
    return any(message.get("role") in roles or "tool_calls" in message for message in messages)


def _add_summary(transcript: Transcript, role: str, content: Any, line: int) -> None:
    """Say a summary of earlier messages, as Roo Code marks it; what stands beside it stays of its speaker."""
    blocks = blocks_of(content)
    said = [to_part(block) for block in blocks if block.get("type") == "text"]
    rest = [block for block in blocks if block.get("type") != "text"]
    transcript.compact()
    if said:
        transcript.say("user", said, line)
    if rest:
        (add_assistant if role == "assistant" else add_user)(transcript, rest, line)


class _Anthropic(Reader):
    format = Format.ANTHROPIC
    place = "messages[{}]."

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the values that are requests with `system` beside their messages, or have their blocks."""
        messages = [value for value in sample if is_message(value) and "content" in value]
        # Sessions without blocks are of the format of those beside them that have some.
        sessions = [value for value in sample if _is_plain(value)] if any(map(_is_session, sample)) else []
        return max(len(messages) if _are_messages(messages) else 0, len(sessions))

    def is_item(self, value: Any) -> bool:
        return is_message(value)

    def unwrap(self, value: Any) -> list[Any]:
        held = _held(value)
        if held is None:
            found = kind_of(value)
            raise UnreadableError(f'expected a list of messages or {{"messages": [...]}}, got {found}')
        return held

    def begin(self, transcript: Transcript, holder: Any, line: int) -> list[Numbered]:
        """Say the system prompt that stands beside the messages."""
        if isinstance(holder, dict) and holder.get("system"):
            try:
                parts = [to_part(block) for block in blocks_of(holder["system"])]
            except UnreadableError as error:
                raise UnreadableError(f"system: {error.why}") from None
            transcript.say("system", parts, line)
        return []

    def add(self, transcript: Transcript, item: Any, line: int) -> None:
        item = as_object(item, "expected a message")
        role, content = item.get("role"), item.get("content")
        if item.get("tool_calls"):
            raise UnreadableError(CALLS_OF_CHAT)
        if role == "assistant" and item.get("type") == "reasoning":  # of its own, beside the reply
            content = [item]
        if item.get("isSummary") is True and role in ("assistant", "user"):
            _add_summary(transcript, role, content, line)
        elif role == "assistant":
            add_assistant(transcript, content, line)
        elif role == "user":
            add_user(transcript, content, line)
        elif role == "system":
            transcript.say("system", [to_part(block) for block in blocks_of(content)], line)
        else:
            raise UnreadableError(f"role: expected user, assistant or system, got {role!r}")


READER = _Anthropic()
