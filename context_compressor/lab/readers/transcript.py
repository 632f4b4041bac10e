"""Build chat dicts out of the smaller pieces in which other formats record a conversation.

A reader says what it finds, in order: somebody speaks, the model thinks, speaks or calls, a call is answered.
Pieces of one reply become one assistant dict, and an answer goes to stand behind the call it answers, where
providers want it, even when something else was recorded in between.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from context_compressor.lab.readers.session import UnreadableError
from context_compressor.messages.chat import block_to_part

Part = dict[str, Any]
API_ERRORS = "errors of an API"
"""Note for an error that a program wrote in the place of a reply: nobody said it."""
SAYS_NOTHING = "says nothing: it has neither words nor calls"
_COMPACTED = "was compacted by its program: what was there before stays, its summary too"


@dataclass(slots=True)
class _Turn:
    role: str
    line: int
    parts: list[Part] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    call_id: str = ""
    name: str | None = None
    answers: list[_Turn] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        content = simplify(self.parts)
        if self.role == "tool":
            return {"role": "tool", "tool_call_id": self.call_id, "content": content}
        message: dict[str, Any] = {"role": self.role, "content": content}
        if self.role == "assistant":
            if not self.parts:
                message["content"] = None if self.calls or self.thoughts else ""
            if self.thoughts:
                message["reasoning_content"] = "\n\n".join(self.thoughts)
            if self.calls:
                message["tool_calls"] = self.calls
        if self.name is not None:
            message["name"] = self.name
        return message


class Transcript:
    """Chat dicts in the making, each with the line where it began."""

    def __init__(self) -> None:
        self.id = ""
        """What the session calls itself, where a record says it."""
        self.title = ""
        """The title that its program saved, where a record says it."""
        self.instructions: Any = None
        """What was said as such, where each request repeats it."""
        self.pieces = 0
        """How much was said."""
        self.told = 0
        """How many notes tell of something that is no part of the conversation."""
        self._turns: list[_Turn] = []
        self._by_key: dict[str, _Turn] = {}
        self._open: _Turn | None = None
        self._unanswered: dict[str, _Turn] = {}
        self._made = 0
        self._left_out: Counter[str] = Counter()
        self._notes: list[str] = []
        self._compacted_at: list[int] = []

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, summed by kind, and what else should be known."""
        kinds = ", ".join(f"{what} ({count:,})" for what, count in self._left_out.items())
        return (*([f"left out: {kinds}"] if kinds else []), *self._notes)

    def leave_out(self, what: str, count: int = 1) -> None:
        """Tell of something that is no part of the conversation, by its kind."""
        self._left_out[what] += count
        self.told += 1

    def miss(self, what: str) -> None:
        """Note something that should hold content and does not; it does not count as read."""
        self._left_out[f"{what} without words"] += 1

    def compact(self) -> None:
        """Tell that the program put a summary, which comes next, in the place of all before it."""
        self.note(_COMPACTED)
        if len(self._turns) not in self._compacted_at:
            self._compacted_at.append(len(self._turns))

    def note(self, text: str) -> None:
        """Tell of something else."""
        if text not in self._notes:
            self._notes.append(text)

    @property
    def pending(self) -> list[tuple[str, str]]:
        """The id and the name of each call of the latest reply that has no result yet, in order."""
        latest = next((turn for turn in reversed(self._turns) if turn.role == "assistant"), None)
        calls = [] if latest is None else latest.calls
        return [
            (call["id"], call["function"]["name"])
            for call in calls
            if self._unanswered.get(call["id"]) is latest
        ]

    def say(self, role: str, parts: Sequence[Part], line: int, name: str | None = None) -> None:
        """Add what somebody other than the model said.

        Raises:
            UnreadableError: it is nothing.
        """
        if are_silent(parts):
            raise UnreadableError(SAYS_NOTHING)
        self.close()
        self.pieces += 1
        self._turns.append(_Turn(role, line, list(parts), name=name))

    def reply(self, line: int, key: str | None = None, name: str | None = None) -> _Turn:
        """Open a reply of the model, or go on with the one that has this key; return it."""
        known = None if key is None else self._by_key.get(key)
        if known is None:
            known = _Turn("assistant", line, name=name)
            self._turns.append(known)
            if key is not None:
                self._by_key[key] = known
        self._open = known
        return known

    def close(self) -> None:
        """End the reply: the next piece begins another."""
        self._open = None

    def close_said(self) -> None:
        """End the reply if it has said or called something: what the model thinks next is of another."""
        if self._open is not None and (self._open.parts or self._open.calls):
            self.close()

    def think(self, text: str, line: int, *, is_delta: bool = False) -> None:
        """Add the model's reasoning to the open reply; what is streamed goes on with the last thought."""
        if not text:
            return
        self.pieces += 1
        thoughts = self._reply(line).thoughts
        if is_delta and thoughts:
            thoughts[-1] += text
        else:
            thoughts.append(text)

    def speak(self, parts: Sequence[Part], line: int, *, is_delta: bool = False) -> None:
        """Add what the model said to the open reply; what is streamed goes on with the last text."""
        said = [part for part in parts if part.get("text") != ""]
        if not said:
            return
        self.pieces += 1
        spoken = self._reply(line).parts
        if is_delta and spoken and spoken[-1].keys() == said[0].keys() == {"type", "text"}:
            spoken[-1] = text_part(spoken[-1]["text"] + said.pop(0)["text"])
        spoken.extend(said)

    def go_on(self) -> None:
        """Open again the reply that was closed by the result of its latest call."""
        latest = self._turns[-1] if self._turns else None
        self._open = latest if latest is not None and latest.role == "assistant" else None

    def make_id(self) -> str:
        """Return an id for a call that has none."""
        self._made += 1
        return f"call_{self._made}"

    def call(self, call_id: str, name: str, arguments: Any, line: int) -> None:
        """Add a tool call to the open reply; arguments are JSON text, or what is to be written as such."""
        text = arguments if isinstance(arguments, str) else dump(arguments)
        self.pieces += 1
        turn = self._reply(line)
        turn.calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": text}})
        self._unanswered[call_id] = turn

    def answer(self, call_id: str, parts: Sequence[Part], line: int) -> None:
        """Add the result of a call, behind the call where that is known and has none yet."""
        turn = _Turn("tool", line, list(parts), call_id=call_id)
        self.pieces += 1
        caller = self._unanswered.pop(call_id, None)
        self.close()
        if caller is None:
            self._turns.append(turn)
        else:
            caller.answers.append(turn)

    def hosted_call(self, call_id: str, name: str, arguments: Any, result: Sequence[Part], line: int) -> None:
        """Add a call that the provider carried out, with its result; an id is made where it has none."""
        self._made += 1
        known = call_id or f"{name}_{self._made}"
        self.call(known, name, arguments, line)
        self.answer(known, result, line)

    def truncate(self, length: int) -> None:
        """Take back everything after the first `length` turns; see `len`."""
        gone = {id(turn) for turn in self._turns[length:]}
        del self._turns[length:]
        self._compacted_at = [place for place in self._compacted_at if place <= length]
        self._unanswered = {key: turn for key, turn in self._unanswered.items() if id(turn) not in gone}
        self._by_key = {key: turn for key, turn in self._by_key.items() if id(turn) not in gone}
        self.close()

    def finish(self) -> tuple[list[dict[str, Any]], tuple[int, ...], tuple[int, ...]]:
        """Return the chat dicts, the line of each, and the indexes of those at which the program began anew.

        Replies in which nothing was said are left out.
        """
        heads = [
            head
            for head in self._turns
            if head.role != "assistant" or not are_silent(head.parts) or head.thoughts or head.calls
        ]
        if len(heads) < len(self._turns):
            self.leave_out("replies without words", len(self._turns) - len(heads))
        ordered = [turn for head in heads for turn in (head, *head.answers)]
        places = {id(turn): place for place, turn in enumerate(ordered)}
        after = [[places[id(t)] for t in self._turns[at:] if id(t) in places] for at in self._compacted_at]
        begun = sorted({found[0] for found in after if found and found[0]})
        return [turn.to_dict() for turn in ordered], tuple(turn.line for turn in ordered), tuple(begun)

    def _reply(self, line: int) -> _Turn:
        return self._open or self.reply(line)


_TEXTS = ("text", "text-plain", "input_text", "output_text", "summary_text", "reasoning_text")
_IMAGES = ("image_url", "input_image", "computer_screenshot")
_MEDIA = ("image", "audio", "video", "file")
_USUAL = {"image": "image/png", "audio": "audio/wav", "video": ""}
"""What data of a kind are if nobody says."""


def are_silent(parts: Sequence[Part]) -> bool:
    """Tell whether parts are all blank texts, or there are none."""
    return not any(part.keys() != {"type", "text"} or str(part["text"]).strip() for part in parts)


def text_part(text: str) -> Part:
    """Return a text part."""
    return {"type": "text", "text": text}


def opaque_part(value: Any) -> Part:
    """Return a part that shows what chat dicts have no word for, as JSON text."""
    return text_part(value if isinstance(value, str) else dump(value))


def to_part(block: dict[str, Any]) -> Part:
    """Return a block of content, of any format, as a part; one of an unknown type as its JSON text."""
    kind = str(block.get("type"))
    if kind in _TEXTS and isinstance(block.get("text"), str):
        return text_part(block["text"])
    if kind == "refusal" and isinstance(block.get("refusal"), str):
        return text_part(block["refusal"])
    if kind in _IMAGES:
        url = block.get("image_url")
        detail = {"detail": block["detail"]} if isinstance(block.get("detail"), str) else {}
        image = url if isinstance(url, dict) else {"url": url, **detail}
        if isinstance(image.get("url"), str):
            return {"type": "image_url", "image_url": image}
    if kind == "input_file":
        file = {
            key: text_in(block, key) for key in ("file_id", "filename", "file_data") if text_in(block, key)
        }
        if file.keys() & {"file_id", "file_data"}:
            return {"type": "file", "file": file}
    if kind == "input_audio" and isinstance(block.get("input_audio"), dict):
        return {"type": "input_audio", "input_audio": block["input_audio"]}
    source = block.get("source")
    if isinstance(source, dict) or (kind in _MEDIA and source is None):
        return _media_part(block, kind, source or block) or opaque_part(block)
    return opaque_part(block)


def _media_part(block: dict[str, Any], kind: str, source: dict[str, Any]) -> Part | None:
    """Return a part of the data, or the image at the URL, that a block or its source holds, if it does."""
    media_type, name = (
        text_in(source, "media_type", "mime_type", "mimeType"),
        text_in(block, "title", "name", "filename"),
    )
    data, url = first_in(source, "base64", "data"), source.get("url")
    if isinstance(data, str):
        is_text = source.get("type") == "text"
        return text_part(data) if is_text else _data_part(media_type, data, kind, name)
    if not isinstance(url, str):
        return None
    if "image" in (kind, media_type.partition("/")[0]):
        return {"type": "image_url", "image_url": {"url": url}}
    return _file_part(url, name) if url.startswith("data:") else None


def _data_part(media_type: str, data: str, kind: str, name: str) -> Part:
    """Return base64 data as a part; `kind` (image, audio, video, file) counts if there is no type."""
    family = media_type.partition("/")[0] or kind
    if family not in _USUAL:
        return _file_part(f"data:{media_type};base64,{data}", name)
    source = {"type": "base64", "media_type": media_type or _USUAL[family], "data": data}
    return block_to_part({"type": family, "source": source})


def _file_part(url: str, name: str) -> Part:
    return {"type": "file", "file": {**({"filename": name} if name else {}), "file_data": url}}


def content_blocks(content: Any, what: str) -> list[dict[str, Any]]:
    """Return content as blocks, which its format calls `what`; of what is no object a text is made.

    Raises:
        UnreadableError: the content is neither a string nor a list.
    """
    if isinstance(content, str):
        return [text_part(content)] if content else []
    if not isinstance(content, list):
        raise UnreadableError(f"content: expected a string or a list of {what}, got {kind_of(content)}")
    return [block if isinstance(block, dict) else opaque_part(block) for block in content]


def to_parts(content: Any, what: str = "blocks") -> list[Part]:
    """Return content as parts; see `content_blocks`."""
    return [to_part(block) for block in content_blocks(content, what)]


def simplify(parts: Sequence[Part]) -> str | list[Part]:
    """Return content: a string where it is one text or nothing, else the parts."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return str(parts[0]["text"])
    return list(parts)


def dump(value: Any) -> str:
    """Return a value as JSON text."""
    return json.dumps(value, ensure_ascii=False)


def string(data: dict[str, Any], key: str, path: str = "") -> str:
    """Return a string under a key."""
    value = data.get(key)
    if not isinstance(value, str):
        found = "but it is missing" if key not in data else f"got {kind_of(value)}"
        raise UnreadableError(f"{path}{key}: expected a string, {found}")
    return value


def as_object(value: Any, what: str) -> dict[str, Any]:
    """Return an object; `what` was expected, as an error says it."""
    if not isinstance(value, dict):
        raise UnreadableError(f"{what}, got {kind_of(value)}")
    return value


def first_in(data: dict[str, Any], *keys: str) -> Any:
    """Return the first value under some keys that is not null, or None."""
    return next((data[key] for key in keys if data.get(key) is not None), None)


def text_in(data: dict[str, Any], *keys: str) -> str:
    """Return the first string under some keys that is not empty, or ""."""
    return next((value for key in keys if isinstance(value := data.get(key), str) and value), "")


def title_in(holder: Any) -> str:
    """Return the title that a program saved with a session, beside it or in what it tells of it, or ""."""
    info = holder.get("info") if isinstance(holder, dict) else None
    return next((title for one in dicts_in([holder, info]) if (title := text_in(one, "title"))), "")


def dicts_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; none where it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def is_message(value: object) -> bool:
    """Tell whether a value is a message by its role, as chat dicts and Anthropic's have one."""
    return isinstance(value, dict) and "role" in value and "messages" not in value


def keys_of(value: dict[str, Any]) -> str:
    """Return the first keys of an object, as error texts tell what was found."""
    return f"keys found: {', '.join(list(value)[:5]) or 'none'}"


def kind_of(value: object) -> str:
    """Return the name of a JSON value's type, as error texts use it."""
    return "null" if value is None else type(value).__name__
