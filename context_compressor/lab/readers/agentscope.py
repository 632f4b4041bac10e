"""AgentScope: the `state_dict` of a memory, alone or inside the saved session of an application.

Version 1 keeps `{"_compressed_summary", "content": [[msg, marks], ...]}`, earlier releases bare messages in
`content`. Version 2 keeps `{"session_id", "summary", "context": [msg, ...]}`, whose replies hold calls and
results in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from context_compressor.errors import InvalidMessageError
from context_compressor.lab.readers.anthropic import CALLS_OF_CHAT, speaks_chat
from context_compressor.lab.readers.documents import Document, Numbered
from context_compressor.lab.readers.reader import Reader
from context_compressor.lab.readers.session import Format, Session, UnreadableError
from context_compressor.lab.readers.transcript import (
    Transcript,
    as_object,
    kind_of,
    text_in,
    text_part,
    to_part,
    to_parts,
)
from context_compressor.messages.msg import Msg

_MAX_DEPTH = 8
"""Levels of a state in which memories are looked for."""
_ROLES = ("user", "assistant", "system")
_Memory = tuple[str, str | list[Any], list[Any]]
"""Its name, its summary, its entries."""


def _count_own(values: Sequence[Any]) -> int:
    """Count the messages as AgentScope writes them; chat dicts may have ids and times, too."""
    keys = {"id", "metadata"}
    own = sum(_is_msg(value) and keys <= value.keys() for value in values)
    return 0 if speaks_chat(list(values)) else own


def _holds_own(value: Any) -> bool:
    if isinstance(value, list):
        return _count_own(value) > 0
    return any(
        (summary or entries) and all(_is_entry(entry) for entry in entries[:1])
        for _, summary, entries in _memories(value)
    ) or (isinstance(value, dict) and _is_state(value))


def _is_state(value: dict[str, Any]) -> bool:
    return "_compressed_summary" in value and isinstance(value.get("content"), list)


def _is_msg(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("role") not in _ROLES or "name" not in value:
        return False
    return "content" in value and ("timestamp" in value or "created_at" in value)


def _is_entry(value: Any) -> bool:
    return _is_msg(value) or (
        isinstance(value, list) and len(value) == 2 and _is_msg(value[0]) and isinstance(value[1], list)
    )


def _memories(value: Any, path: tuple[str, ...] = ()) -> Iterator[_Memory]:
    """Yield the memories in a value, by the keys that lead to them."""
    name = "/".join(key for key in path if key != "memory")
    if isinstance(value, list):
        if not path and value and _is_msg(value[0]) and "id" in value[0]:
            yield name, "", value
        return
    if not isinstance(value, dict) or len(path) > _MAX_DEPTH or _is_msg(value):
        return
    content, context = value.get("content"), value.get("context")
    if isinstance(content, list) and "role" not in value and (_is_state(value) or _has_entry(content)):
        yield name, _summary(value.get("_compressed_summary")), content
    elif isinstance(context, list) and "summary" in value and (not context or _has_entry(context)):
        yield name or text_in(value, "session_id"), _summary(value["summary"]), context
    else:
        for key, held in value.items():
            if isinstance(held, dict):
                yield from _memories(held, (*path, key))


def _has_entry(entries: list[Any]) -> bool:
    return any(_is_entry(entry) for entry in entries)


def _summary(value: Any) -> str | list[Any]:
    return value if isinstance(value, str | list) else ""


def _add(transcript: Transcript, entry: Any, line: int) -> None:
    data = entry[0] if isinstance(entry, list) and entry else entry
    data = as_object(data, "expected a message")
    if data.get("tool_calls"):
        raise UnreadableError(CALLS_OF_CHAT)
    try:
        msg = Msg.from_dict({**data, "metadata": None, "timestamp": ""})
    except InvalidMessageError as error:
        raise UnreadableError(str(error)) from None
    blocks = msg.get_content_blocks()
    if msg.role == "assistant":
        _add_reply(transcript, blocks, line)
        return
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for block in results:
        _add_result(transcript, block, line)
    others = [block for block in blocks if block.get("type") != "tool_result"]
    if others or not results:
        transcript.say(msg.role, [to_part(block) for block in others], line)


def _add_result(transcript: Transcript, block: dict[str, Any], line: int) -> None:
    output = block["output"]
    parts = [text_part(output)] if isinstance(output, str) else to_parts(output)
    transcript.answer(block["id"], parts, line)


def _add_reply(transcript: Transcript, blocks: list[Any], line: int) -> None:
    """Add a reply; one of version 2 goes on after its results, and becomes several."""
    transcript.close()
    for block in blocks:
        kind = block.get("type")
        if kind == "thinking":
            transcript.close_said()
            transcript.think(block["thinking"], line)
        elif kind in ("tool_call", "tool_use"):
            arguments = block.get("raw_input") or block.get("input") or {}
            transcript.call(str(block.get("id") or ""), str(block.get("name") or ""), arguments, line)
        elif kind == "tool_result":
            _add_result(transcript, block, line)
        elif kind == "hint":
            hint = block.get("hint")
            transcript.say("user", to_parts(hint if isinstance(hint, list) else str(hint)), line)
        else:
            transcript.speak([to_part(block)], line)
    transcript.close()


class _AgentScope(Reader):
    format = Format.AGENTSCOPE

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the values that are a memory's state, or hold one, or are AgentScope's messages."""
        return _count_own(sample) or sum(map(_holds_own, sample))

    def is_item(self, value: Any) -> bool:
        return _is_entry(value)

    def unwrap(self, value: Any) -> list[_Memory]:
        memories = list(_memories(value))
        if not memories:
            found = kind_of(value)
            raise UnreadableError(f"expected the state of an AgentScope memory, got {found} without one")
        return memories

    def read(self, document: Document) -> Iterator[Session]:
        """Yield a session per memory, or one of all lines where these are messages."""
        for line, value, held in self.groups(document):
            if value is None:
                yield self._read_memory(document, "", "", list(held))
            else:
                for name, summary, entries in held:
                    numbered = [(line, entry) for entry in entries]
                    yield self._read_memory(document, name, summary, numbered, line)

    def _read_memory(
        self,
        document: Document,
        name: str,
        summary: str | list[Any],
        entries: list[Numbered],
        held_at: int | None = None,
    ) -> Session:
        marks = [entry[1] for _, entry in entries if isinstance(entry, list) and len(entry) == 2]
        is_repeated = any(isinstance(marked, list) and "compressed" in marked for marked in marks)
        transcript = Transcript()
        if summary and is_repeated:
            transcript.note("the summary is left out: the messages that it stands for are all there")
        elif summary:
            transcript.say("user", to_parts(summary), entries[0][0] if entries else 1)
        for index, (line, entry) in enumerate(entries):
            with document.reading(transcript, line, f"content[{index}]: "):
                _add(transcript, entry, line)
        return self.session(document, transcript, name, held_at)


READER = _AgentScope()
