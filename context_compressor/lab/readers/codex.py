"""Codex rollouts: JSONL, since September 2025 `{timestamp, type, payload}`, before that bare items.

The conversation is in the response items; events repeat it for people and are passed over, save for the one
that takes turns back. The instructions in `session_meta` are no message. Compaction leaves earlier items in
place, and so do we; its summary follows as a user message, and where nothing precedes it, what it kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from context_compressor.lab.readers.documents import Document
from context_compressor.lab.readers.openai_responses import add_item, is_item
from context_compressor.lab.readers.reader import Reader
from context_compressor.lab.readers.session import Format, Session, UnreadableError
from context_compressor.lab.readers.transcript import (
    Transcript,
    as_object,
    dicts_in,
    text_in,
    text_part,
)

_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_CONTEXT = ("<environment_context>", "<user_instructions>", "# AGENTS.md", "<turn_aborted>", "<skill>")
"""How user messages begin that Codex itself wrote; they begin no turn."""


def _is_line(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if value.get("type") in _TYPES:
        return isinstance(value.get("payload"), dict)
    return value.get("record_type") == "state" or _is_header(value)


def _is_header(value: dict[str, Any]) -> bool:
    """Tell whether a value is the first line of the older form."""
    keys = {"id", "timestamp"}
    return keys <= value.keys() and value.keys() <= keys | {"instructions", "git", "cwd", "cli_version"}


class _Codex(Reader):
    format = Format.CODEX

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the lines of a rollout, of either form: bare items where a header stands before them."""
        lines = sum(map(_is_line, sample))
        return lines + sum(map(is_item, sample)) if lines else 0

    def read(self, document: Document) -> Iterator[Session]:
        """Yield the one session of a rollout."""
        rollout = _Rollout()
        for line, value in document.values():
            with document.reading(rollout.transcript, line):
                rollout.add(line, value)
        yield self.session(document, rollout.transcript, rollout.id)


READER = _Codex()


class _Rollout:
    def __init__(self) -> None:
        self.transcript = Transcript()
        self.id: str | None = None
        self._items = 0
        self._turns: list[tuple[int, int]] = []
        """Of each turn, how many messages and how many items stand before it."""

    def add(self, line: int, value: Any) -> None:
        value = as_object(value, "expected a line of a rollout")
        kind = value.get("type")
        if kind is None:
            if _is_header(value):
                self._name(value)
            elif "record_type" in value:
                self.transcript.leave_out("state")
            else:
                raise UnreadableError("type: expected the type of a line, but it is missing")
        elif "payload" not in value:
            self._add_item(line, value)
        else:
            self._add_payload(line, kind, as_object(value["payload"], "payload: expected an object"))

    def _add_payload(self, line: int, kind: object, payload: dict[str, Any]) -> None:
        if kind == "session_meta":
            self._name(payload)
        elif kind == "response_item":
            self._add_item(line, payload)
        elif kind == "compacted":
            self._compact(line, payload)
        elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
            self._roll_back(payload.get("num_turns"))
        elif kind not in _TYPES and ("content" in payload or is_item(payload)):
            raise UnreadableError(f"type: {kind!r} is none of an item, and yet it holds one")
        else:
            self.transcript.leave_out(f"{kind}")

    def _name(self, meta: dict[str, Any]) -> None:
        # A fork repeats its parent's first line after its own.
        if self.id is None and isinstance(meta.get("id"), str):
            self.id = meta["id"]
        self.transcript.told += 1

    def _add_item(self, line: int, item: dict[str, Any]) -> None:
        before = len(self.transcript), self._items
        add_item(self.transcript, item, line)
        self._items += 1
        if item.get("role") == "user" and not _is_context(item):
            self._turns.append(before)

    def _compact(self, line: int, payload: dict[str, Any]) -> None:
        kept = payload.get("replacement_history")
        self.transcript.compact()
        if not len(self.transcript) and isinstance(kept, list) and kept:
            for item in kept:
                self._add_item(line, item)
            return
        message = text_in(payload, "message")
        if message:
            self.transcript.say("user", [text_part(message)], line)
        if kept or not message:
            self.transcript.leave_out("history that compaction repeats" if kept else "compacted")

    def _roll_back(self, turns: object) -> None:
        if isinstance(turns, int) and turns > 0 and self._turns:
            number = min(turns, len(self._turns))
            length, items = self._turns[-number]
            self.transcript.truncate(length)
            self.transcript.leave_out("items of turns that were rolled back", self._items - items)
            del self._turns[-number:]
            self._items = items
        else:
            self.transcript.leave_out("event_msg")


def _is_context(item: dict[str, Any]) -> bool:
    first = dicts_in(item.get("content"))[:1]
    return any(text_in(part, "text").lstrip().startswith(_CONTEXT) for part in first)
