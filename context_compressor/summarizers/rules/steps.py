"""Read messages as steps: what somebody said, and calls with what they came to. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from context_compressor.messages.msg import Block, Msg, is_instruction, provenance_of
from context_compressor.messages.speech import is_handed, is_result, said_in
from context_compressor.messages.text import clean, strip_reasoning

Speaker = Literal["user", "instruction", "agent"]

_READ_CHARS = 200_000
"""Of a longer text the ends are read, half of it each."""
_STAND_IN = re.compile(r"\[[^\n]{0,200}ctx://[0-9a-f]{16}[^\n]*\]\n?")
"""The label of a stub; what follows it is told as if it were the whole."""
_SPOKEN_CALL = re.compile(
    r"<(tool_call|function_call)>(.*?)(?:</\1>|\Z)|^```[^\n]*\n(.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE
)
"""A call that an agent without tools writes into its text."""
_UNNAMED = ("", "user", "human", "tool", "system")


@dataclass(slots=True)
class Said:
    """What somebody said in one message."""

    place: int
    key: str
    speaker: Speaker
    text: str
    name: str = ""
    """Which of several users it was."""
    closing: bool = False
    """Whether the agent said it without a call: it closes what it was asked about."""


@dataclass(slots=True)
class Call:
    """A call, and what it came to."""

    place: int
    key: str
    name: str
    arguments: Mapping[str, Any]
    result: str | None = None
    flagged: bool = False
    """Whether whoever answered says that it failed."""


Step = Said | Call


class Source(NamedTuple):
    """A message that left."""

    place: int
    """Where it stands among all messages."""
    key: str
    """Its history key."""
    msg: Msg


def read_steps(sources: Iterable[Source]) -> list[Step]:
    """Return the steps of messages, in order.

    A result stands with its call, at the call's place; one without a call at its own.
    """
    reader = _Reader()
    for place, key, msg in sources:
        if provenance_of(msg).get("kind") != "placeholder":
            reader.read(msg, place, key)
    return reader.steps


class _Reader:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._open: dict[str, Call] = {}

    def read(self, msg: Msg, place: int, key: str) -> None:
        speaker: Speaker = (
            "instruction" if is_instruction(msg) else "agent" if msg.role == "assistant" else "user"
        )
        blocks = msg.get_content_blocks()
        text = "\n".join(filter(None, map(_said_by, blocks)))
        text = _message_in(text) if speaker == "agent" else text
        text = _ends(clean(_STAND_IN.sub("", text, count=1) if "ctx://" in text else text)).strip()
        has_calls = any(block.get("type") == "tool_use" for block in blocks)
        if speaker == "user" and text and is_handed(msg):
            if is_result(text):
                self._take_spoken_result(text, place, key)
        elif text:
            if has_calls:  # a server that read them out of the text leaves them there, too
                text = _SPOKEN_CALL.sub(lambda found: "" if found[1] else found[0], text).strip()
            if speaker == "user":
                text = said_in(text)
            elif speaker == "agent" and text.startswith("<"):
                text = strip_reasoning(text).strip()
            if text:
                named = "" if speaker == "agent" or msg.name.casefold() in _UNNAMED else clean(msg.name[:40])
                closing = speaker == "agent" and not has_calls
                self.steps.append(Said(place, key, speaker, text, named, closing))
        for block in blocks:
            if block.get("type") == "tool_use":
                call = Call(place, key, clean(block["name"]), block["input"])
                self._open[block["id"]] = call
                self.steps.append(call)
            elif block.get("type") == "tool_result":
                answered = self._open.pop(block["id"], None)
                if answered is None:
                    answered = Call(place, key, clean(block.get("name") or "tool"), {})
                    self.steps.append(answered)
                answered.result = _result_text(block["output"])
                answered.flagged = bool(block.get("is_error"))

    def _take_spoken_result(self, text: str, place: int, key: str) -> None:
        """Take a result that stands in a user's message, and its call out of the agent's words before it."""
        last = self.steps[-1] if self.steps else None
        calls: list[Call] = []
        if isinstance(last, Said) and last.closing:
            calls = [Call(last.place, last.key, *spoken) for spoken in _spoken_calls(last.text)]
            last.closing = False
            last.text = _SPOKEN_CALL.sub("", last.text).strip()
            if not last.text:
                self.steps.pop()
        calls = calls or [Call(place, key, "", {})]
        calls[-1].result = re.sub(r"</?\w+>", "\n", text[:200]) + text[200:] if text[:1] == "<" else text
        self.steps += calls


def _spoken_calls(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for found in _SPOKEN_CALL.finditer(text):
        body = (found[2] or found[3] or "").strip()
        if isinstance(data := data_in(body), dict):
            arguments = next((value for value in data.values() if isinstance(value, dict)), data)
            yield clean(str(data.get("name") or "")), arguments
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


def _result_text(output: str | Iterable[Any]) -> str:
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
