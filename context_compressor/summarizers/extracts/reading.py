"""Read messages: who said what, which call came to what, what an earlier summary told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_compressor.messages.msg import Block, Msg, is_instruction, provenance_of
from context_compressor.messages.speech import is_handed, is_result, said_in
from context_compressor.messages.text import clean, strip_reasoning

_READ_CHARS = 200_000
"""Of a longer text the ends are read, half of it each."""
_UNNAMED = ("", "user", "human", "tool", "system")
_STAND_IN = re.compile(r"\[[^\n]{0,200}ctx://[0-9a-f]{16}[^\n]*\]\n?")
"""The label of a stub or a segment; what follows it is told as if it were the whole."""
_SPOKEN_CALL = re.compile(
    r"<(tool_call|function_call)>(.*?)(?:</\1>|\Z)|^```[^\n]*\n(.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE
)
"""A call that an agent without tools writes into its text."""


@dataclass(slots=True)
class Words:
    """What somebody said."""

    place: int
    speaker: str
    """`user`, `agent`, or `system` for a later instruction."""
    text: str
    name: str = ""
    """Which of several users it was."""
    before: str = ""
    """What the agent had said right before."""
    closing: bool = False
    """Whether the agent said it without a call: it closes what it was asked about.

    A call may follow all the same, where the next request stays in the view.
    """
    is_shown: bool = False
    """Whether all of it stands beside the summary, or in messages that stay."""


@dataclass(slots=True)
class Call:
    """A call and what it came to."""

    place: int
    name: str
    arguments: Mapping[str, Any]
    result: str | None = None
    flagged: bool = False


@dataclass(slots=True)
class Told:
    """A line of an earlier summary, and the heading that it stood under."""

    heading: str
    line: str
    summary: int
    """Which of several summaries holds it, by age."""


@dataclass(slots=True)
class Material:
    """What is to be summarised, oldest first."""

    words: list[Words] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)


def read_messages(messages: Sequence[Msg], previous: str | None, context: Sequence[Msg] = ()) -> Material:
    """Read messages, and the earlier summary that the new one replaces.

    `context` stays beside the summary: what a user said there is not told again.
    """
    reader = _Reader()
    if previous:
        reader.read_summary(previous)
    for msg in messages:
        kind = provenance_of(msg).get("kind")
        if kind == "segment":
            reader.read_summary(msg.get_text_content() or "")
        elif kind not in ("placeholder", "stays"):
            reader.read(msg)
    lines = [line for msg in context for line in (msg.get_text_content() or "").splitlines()]
    shown = {line.removeprefix("- ").strip() for line in lines}
    for words in reader.material.words if shown else ():
        words.is_shown = all(line.strip() in shown for line in words.text.splitlines())
    return reader.material


class _Reader:
    def __init__(self) -> None:
        self.material = Material()
        self._open: dict[str, Call] = {}
        self._place = 0
        self._summaries = 0
        self._said = ""
        """What the agent said last."""

    def read_summary(self, text: str) -> None:
        heading = ""
        self._summaries += 1
        for line in clean(_STAND_IN.sub("", text, count=1)).splitlines():
            line = line.strip()
            if line.startswith("#"):
                heading = line.strip("# ")
            elif any(map(str.isalnum, line)):
                line = re.sub(r"^(?:[-*•]|\d{1,2}\.)\s+", "", line)
                self.material.told.append(Told(heading, line, self._summaries))

    def read(self, msg: Msg) -> None:
        speaker = "system" if is_instruction(msg) else "agent" if msg.role == "assistant" else "user"
        blocks = msg.get_content_blocks()
        text = "\n".join(filter(None, map(_said_by, blocks)))
        text = _message_in(text) if speaker == "agent" else text
        text = _ends(clean(_STAND_IN.sub("", text, count=1) if "ctx://" in text else text)).strip()
        has_calls = any(block.get("type") == "tool_use" for block in blocks)
        if speaker == "user" and text and is_handed(msg):
            if is_result(text):
                self._take_spoken_result(text)
        elif text:
            if has_calls:  # a server that read them out of the text leaves them there, too
                text = _SPOKEN_CALL.sub(lambda found: "" if found[1] else found[0], text).strip()
            self._take_words(speaker, text, msg.name, has_calls)
        for block in blocks:
            if block.get("type") == "tool_use":
                self._open[block["id"]] = self._take_call(block["name"], block["input"])
            elif block.get("type") == "tool_result":
                call = self._open.pop(block["id"], None) or self._take_call(block.get("name") or "tool", {})
                call.result = _result_text(block["output"])
                call.flagged = bool(block.get("is_error"))

    def _take_words(self, speaker: str, text: str, name: str, has_calls: bool) -> None:
        if speaker == "user":
            text = said_in(text)
        elif speaker == "agent" and text.startswith("<"):
            text = strip_reasoning(text).strip()
        if not text:
            return
        self._place += 1
        named = "" if speaker == "agent" or name.casefold() in _UNNAMED else name[:40]
        before = self._said if speaker == "user" else ""
        closing = speaker == "agent" and not has_calls
        self.material.words.append(Words(self._place, speaker, text, named, before, closing))
        if speaker == "agent":
            self._said = text

    def _take_call(self, name: str, arguments: Mapping[str, Any]) -> Call:
        self._place += 1
        call = Call(self._place, name, arguments)
        self.material.calls.append(call)
        return call

    def _take_spoken_result(self, text: str) -> None:
        """Take a result that stands in a user's message, and its call out of the agent's words before it."""
        words = self.material.words
        calls = []
        if words and words[-1].closing and words[-1].place == self._place:
            calls = list(_spoken_calls(words[-1].text))
            words[-1].closing = False
            words[-1].text = _SPOKEN_CALL.sub("", words[-1].text).strip()
            if not words[-1].text:
                words.pop()
        taken = [self._take_call(name, arguments) for name, arguments in calls or [("", {})]]
        taken[-1].result = re.sub(r"</?\w+>", "\n", text[:200]) + text[200:] if text[:1] == "<" else text


def _spoken_calls(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for found in _SPOKEN_CALL.finditer(text):
        body = (found[2] or found[3] or "").strip()
        if isinstance(data := data_in(body), dict):
            arguments = next((value for value in data.values() if isinstance(value, dict)), data)
            yield str(data.get("name") or ""), arguments
        else:
            yield "", {"": body}


def _message_in(text: str) -> str:
    """Return what is said in an object that is hardly more than one text; others as they are."""
    data = data_in(text) if text.startswith("{") else None
    values = [value for value in (data or {}).values() if isinstance(value, str)]
    said = max(values, key=len, default="").strip()
    return said if 2 * len(said) > len(text) else text


def _said_by(block: Block) -> str:
    kind, text = block.get("type"), block.get("text")
    if kind in ("tool_use", "tool_result", "thinking"):
        return ""
    return text if isinstance(text, str) else f"[{kind or 'block'}]"


def _result_text(output: str | list[Any]) -> str:
    if not isinstance(output, str):
        output = "\n".join(_said_by(block) if isinstance(block, dict) else str(block) for block in output)
    if "ctx://" in output[:300]:
        output = _STAND_IN.sub("", output, count=1)
    return clean(_ends(output))


def _ends(text: str) -> str:
    if text.count("\\n") > 2 * text.count("\n") + 1:  # text inside JSON inside text
        text = text.replace("\\n", "\n").replace('\\"', '"')
    if len(text) <= _READ_CHARS:
        return text
    return f"{text[: _READ_CHARS // 2]}\n…\n{text[-_READ_CHARS // 2 :]}"


def data_in(text: str) -> Any:
    """Return the object or list that a text is in JSON; None where it is none."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict | list) else None
