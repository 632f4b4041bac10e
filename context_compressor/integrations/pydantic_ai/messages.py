"""Messages of Pydantic AI as chat dicts, and a view of these as its messages again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryPromptPart,
    SpeechPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import to_jsonable_python

from context_compressor.core.labels import is_segment_text
from context_compressor.errors import ContextOverflowError, InvalidArgumentError
from context_compressor.integrations.pydantic_ai.contents import content_of, dumped, part_of, reply_part_of
from context_compressor.messages.anthropic import OPENING
from context_compressor.messages.plain import SENT_BESIDE

Dict = dict[str, Any]

_OURS = "context_compressor"
"""Key in the metadata of a tool return, which no model is sent: a stub stands there for its text."""
_FEEDBACK = "<feedback-reminder>\n{}\n</feedback-reminder>"
"""Marks what the framework says in the user's place, so that nothing of it is read as the user's wish."""
_FROM_TOOL = "[tool] Result:"
"""Marks likewise what a tool gives beside its return, which the framework says in the user's place."""
_STEERING = ("tool-search", "capability-load")
"""Kinds of the framework's own tools."""
_PLACE = re.compile(r"\bmessages\[(\d+)\]")


@dataclass(eq=False, slots=True)
class _Said:
    """A chat dict, and what it was made of."""

    wire: Dict
    native: int
    """The place of its message."""
    parts: list[Any]
    """Those of the message for which it stands."""


@dataclass(eq=False, slots=True)
class _Group:
    """Neighbours in a view that become one message."""

    native: int | None
    """The place of the message that they were; None: none was."""
    wires: list[Dict] = field(default_factory=list)
    said: list[_Said] = field(default_factory=list)


class Chats:
    """A list of messages as chat dicts.

    Parts that steer the framework (what became available, what was loaded, which instructions changed, the
    search for tools) have none: they always go out, in their place, and are counted as text beside.

    Raises:
        InvalidArgumentError: a message is part of a view.
    """

    def __init__(self, messages: Sequence[ModelMessage]) -> None:
        self.messages = list(messages)
        self.beside: list[str] = []
        """The texts of parts that have no chat dict."""
        self._said: list[_Said] = []
        self._items: dict[tuple[bool, str], Any] = {}
        """The native form of each part of a content, by whether the model says it, which has other types."""
        run: str | None = None
        for place, message in enumerate(self.messages):
            if isinstance(message, ModelResponse):
                self._read_response(place, message)
                run = message.run_id
            else:
                self._read_request(place, message, run)
        self._place_of = {id(one.wire): n for n, one in enumerate(self._said)}
        self._of_native: dict[int, list[_Said]] = {}
        for one in self._said:
            self._of_native.setdefault(one.native, []).append(one)

    @property
    def dicts(self) -> list[Dict]:
        """The chat dicts, in order."""
        return [one.wire for one in self._said]

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Let the error that names what does not fit give places in the list of messages."""
        try:
            yield
        except ContextOverflowError as error:
            fixed = [(_PLACE.sub(self._name, name), tokens) for name, tokens in error.fixed]
            text = _PLACE.sub(self._name, str(error))
            raise ContextOverflowError(
                text, budget=error.budget, needed=error.needed, fixed=fixed
            ) from error.__cause__

    def _name(self, found: re.Match[str]) -> str:
        return f"messages[{self._said[int(found[1])].native}]"

    def _read_request(self, place: int, message: ModelRequest, run: str | None) -> None:
        """Read a request, given the run whose answer stands before it."""
        # Where a run goes on it has no prompt; a new one may answer the calls of an earlier one beside it.
        is_answer = run is not None and message.run_id == run
        for part in message.parts:
            if _is_shown(part):
                raise InvalidArgumentError(
                    f"message_history: messages[{place}] stands in for what left a view: a view came in as "
                    "history. ProcessHistory puts it there: it makes what a request carries the run's own "
                    "history. Let Compression alone make views (capabilities=[Compression(...)]), or set "
                    "ProcessHistory before it, and go on with the history as it was before"
                )
            wire = self._wire_of(part)
            if wire is None:
                self.beside.append(dumped(part_of(part)))
                continue
            if isinstance(part, UserPromptPart) and is_answer and _answers_calls(message):
                held = wire["content"]
                held = [{"type": "text", "text": held}] if isinstance(held, str) else held
                wire["content"] = [{"type": "text", "text": _FROM_TOOL}, *held]
            self._said.append(_Said(wire, place, [part]))

    def _wire_of(self, part: Any) -> Dict | None:
        """Return the chat dict of a request's part; None where it has none."""
        if isinstance(part, UserPromptPart):
            return {"role": "user", "content": self._contents(part.content)}
        if isinstance(part, ToolReturnPart) and not _steers(part):
            text = part.model_response_str()
            content = self._contents([text, *part.files]) if part.files else text
            return {"role": "tool", "tool_call_id": part.tool_call_id, "content": content}
        if isinstance(part, RetryPromptPart) and part.tool_name is not None:
            return {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response()}
        if isinstance(part, RetryPromptPart | RetryFeedbackPart):
            said = part.content if isinstance(part.content, str) else dumped(part.content)
            return {"role": "user", "content": _FEEDBACK.format(said)}
        if isinstance(part, SystemPromptPart) and part.scope == "conversation":
            return {"role": "system", "content": part.content}
        if isinstance(part, SpeechPart):
            return {"role": "user", "content": part.transcript or ""}
        return None

    def _read_response(self, place: int, message: ModelResponse) -> None:
        parts = [part for part in message.parts if not _steers(part)]
        if len(parts) < len(message.parts):
            self.beside += [dumped(part_of(part)) for part in _with_thoughts(message, parts)]
        if len(parts) < len(message.parts) and all(isinstance(part, ThinkingPart) for part in parts):
            return
        contents = self._contents([part for part in parts if _is_content(part)], is_reply=True)
        wire: Dict = {"role": "assistant", "content": contents or None}
        if len(contents) == 1 and set(contents[0]) == {"type", "text"}:
            wire["content"] = contents[0]["text"]
        thoughts = [part.content for part in parts if isinstance(part, ThinkingPart) and part.content]
        if thoughts:
            wire["reasoning_content"] = "\n".join(thoughts)
        calls = [part for part in parts if isinstance(part, ToolCallPart)]
        if calls:
            wire["tool_calls"] = [
                {
                    "id": call.tool_call_id,
                    "type": "function",
                    "function": {"name": call.tool_name, "arguments": call.args_as_json_str()},
                }
                for call in calls
            ]
        if beside := [held for part in parts if (held := _beside(part))]:
            wire[SENT_BESIDE] = beside
        if parts:
            self._said.append(_Said(wire, place, parts))

    def _contents(self, items: str | Iterable[Any], *, is_reply: bool = False) -> Any:
        if isinstance(items, str):
            return items
        contents = []
        for item in items:
            content = part_of(item)
            if content is not None:
                self._items[is_reply, dumped(content)] = item
                contents.append(content)
        return contents

    # The way back

    def back(self, view: Sequence[Dict]) -> list[ModelMessage]:
        """Return a view of the dicts as messages.

        A message all of whose parts stand in it unaltered is the same object; of others those parts are that
        do.
        """
        names = {call["id"]: call["function"]["name"] for one in view for call in one.get("tool_calls") or ()}
        written: list[ModelMessage] = []
        done = 0
        for group in self._groups(view):
            if group.native is None:
                written.append(self._made(group.wires, names))
                continue
            written += self._steering(done, group.native)
            written.append(self._written(group, is_first=group.native >= done))
            done = max(done, group.native + 1)
        steering = list(self._steering(done, len(self.messages)))
        ends = steering and isinstance(steering[-1], ModelResponse)
        if ends and isinstance(self.messages[-1], ModelRequest):  # a request ends with what is asked
            written[-1:] = [*steering, *written[-1:]]
        else:
            written += steering
        # Anthropic refuses a request that begins with the model.
        if written and isinstance(written[0], ModelResponse) and isinstance(self.messages[0], ModelRequest):
            written.insert(0, ModelRequest([UserPromptPart(OPENING)]))
        return written

    def _groups(self, view: Sequence[Dict]) -> list[_Group]:
        groups: list[_Group] = []
        for wire, said in zip(view, self._matched(view), strict=True):
            native = None if said is None else said.native
            last = groups[-1] if groups else None
            is_spoken = wire["role"] == "assistant" or (last and last.wires[-1]["role"] == "assistant")
            if last is None or last.native != native or (native is None and is_spoken):
                groups.append(last := _Group(native))
            last.wires.append(wire)
            if said is not None:
                last.said.append(said)
        return groups

    def _matched(self, view: Sequence[Dict]) -> list[_Said | None]:
        """Return of which dict each of a view is the same, or says the same in fewer words.

        The order is that of the list, so what stands beside a known one is its neighbour, unless a segment
        took that one's place.
        """
        places = [self._place_of.get(id(wire)) for wire in view]
        taken = set(places)
        for step, before in ((1, -1), (-1, len(self._said))):
            near: int | None = before + step
            for n in range(len(view))[::step]:
                if (
                    places[n] is None
                    and near is not None
                    and near not in taken
                    and self._may_be(near, view[n])
                ):
                    places[n] = near
                    taken.add(near)
                place = places[n]
                near = None if place is None else place + step
        return [None if place is None else self._said[place] for place in places]

    def _may_be(self, place: int, shown: Dict) -> bool:
        """Tell whether a dict of a view may be that in a place of the list, altered."""
        if not 0 <= place < len(self._said):
            return False
        wire = self._said[place].wire
        if wire["role"] != shown["role"] or wire.get("tool_call_id") != shown.get("tool_call_id"):
            return False
        calls = [[call["id"] for call in one.get("tool_calls") or ()] for one in (wire, shown)]
        return calls[0] == calls[1] and not is_segment_text(_first_text(shown["content"]))

    def _steering(self, start: int, end: int) -> Iterator[ModelMessage]:
        """Yield what has to go out of messages that left."""
        for place in range(start, end):
            message = self.messages[place]
            wired = [part for one in self._of_native.get(place, ()) for part in one.parts]
            if not wired:
                if message.parts or isinstance(message, ModelRequest):  # an empty answer says nothing
                    yield message
            elif len(wired) < len(message.parts):
                yield _with_parts(message, _with_thoughts(message, wired))

    def _written(self, group: _Group, *, is_first: bool) -> ModelMessage:
        """Return the message of which dicts are shown; of several groups of one the first has what steers."""
        assert group.native is not None
        message = self.messages[group.native]
        all_said = self._of_native[group.native]
        is_same = all(wire is one.wire for wire, one in zip(group.wires, group.said, strict=True))
        if is_first and is_same and len(group.said) == len(all_said):
            return message
        parts: dict[int, Any] = {}
        for wire, one in zip(group.wires, group.said, strict=True):
            shown = one.parts if wire is one.wire else self._altered(one.parts, wire)
            parts.update({id(part): new for part, new in zip(one.parts, shown, strict=True)})
        wired = {id(part) for one in all_said for part in one.parts}
        kept = [
            parts.get(id(part), None if id(part) in wired or not is_first else part) for part in message.parts
        ]
        return _with_parts(message, [part for part in kept if part is not None])

    def _altered(self, parts: list[Any], wire: Dict) -> list[Any]:
        """Return parts as an altered dict says them, None for one that it no longer says."""
        if wire["role"] == "assistant":
            return list(self._altered_response(parts, wire))
        part, content = parts[0], self._native(wire["content"])
        if isinstance(part, ToolReturnPart):
            known = part.metadata if isinstance(part.metadata, dict) else {}
            # Whatever kind of tool it is of, which says how its content is read: a stub is a text.
            stub = ToolReturnPart(
                part.tool_name,
                content,
                part.tool_call_id,
                metadata={**known, _OURS: True},
                timestamp=part.timestamp,
                outcome=part.outcome,
            )
            return [stub]
        if isinstance(part, SystemPromptPart | UserPromptPart):
            return [replace(part, content=content)]
        return [
            _request_part(wire, content, part.tool_name or "" if isinstance(part, RetryPromptPart) else "")
        ]

    def _altered_response(self, parts: list[Any], wire: Dict) -> Iterator[Any]:
        calls = {call["id"]: call["function"]["arguments"] for call in wire.get("tool_calls") or ()}
        content = wire.get("content") or []
        contents = iter([{"type": "text", "text": content}] if isinstance(content, str) else content)
        for part in parts:
            if isinstance(part, ToolCallPart):
                arguments = calls.get(part.tool_call_id)
                is_same = arguments == part.args_as_json_str()
                yield part if is_same else None if arguments is None else replace(part, args=arguments)
            elif _is_content(part):
                told = next(contents, None)
                if told is None or told == part_of(part):
                    yield part if told else None
                elif isinstance(part, TextPart):
                    yield replace(part, content=told.get("text", ""), citations=None)
                else:
                    yield TextPart(told.get("text", ""))
            else:
                yield part

    def _native(self, content: Any) -> Any:
        """Return a content in native form, the caller's own objects where they are unaltered."""
        if not isinstance(content, list):
            return content or ""
        return [self._items.get((False, dumped(part))) or content_of(part) for part in content]

    def _made(self, wires: Sequence[Dict], names: dict[str, str]) -> ModelMessage:
        """Return a message of dicts that stand for none of the list."""
        [first, *_] = wires
        if first["role"] != "assistant":
            return ModelRequest(
                [
                    _request_part(
                        wire, self._native(wire["content"]), names.get(wire.get("tool_call_id", ""), "")
                    )
                    for wire in wires
                ]
            )
        content = first.get("content") or ""
        contents = [content] if isinstance(content, str) else content
        said = [self._items.get((True, dumped(one))) or reply_part_of(one) for one in contents if one]
        calls = [
            ToolCallPart(call["function"]["name"], call["function"]["arguments"], call["id"])
            for call in first.get("tool_calls") or ()
        ]
        return ModelResponse([*said, *calls])


def _with_thoughts(message: ModelMessage, others: Sequence[Any]) -> list[Any]:
    """Return the parts of a message that are not among others, and what the model thought before them: a call
    has to stay with that.
    """
    left = [part for part in message.parts if _is_thought(part) or not any(part is one for one in others)]
    while left and _is_thought(left[-1]):
        left.pop()
    return left


def _is_thought(part: Any) -> bool:
    return isinstance(part, ThinkingPart)


def _with_parts(message: ModelMessage, parts: list[Any]) -> ModelMessage:
    if isinstance(message, ModelResponse):
        return replace(message, parts=parts)
    return replace(message, parts=parts)


def _request_part(wire: Dict, content: Any, tool_name: str) -> Any:
    if wire["role"] == "tool":
        return ToolReturnPart(tool_name or "tool", content, wire["tool_call_id"], metadata={_OURS: True})
    if wire["role"] == "user":
        return UserPromptPart(content)
    return SystemPromptPart(content if isinstance(content, str) else "\n".join(map(str, content)))


def _is_shown(part: Any) -> bool:
    """Tell whether a request's part was made for a view."""
    if isinstance(part, ToolReturnPart):
        return isinstance(part.metadata, dict) and _OURS in part.metadata
    if not isinstance(part, UserPromptPart):
        return False
    return is_segment_text(part.content) if isinstance(part.content, str) else False


def _answers_calls(message: ModelRequest) -> bool:
    kinds = ToolReturnPart | RetryPromptPart
    return any(isinstance(part, kinds) and part.tool_name is not None for part in message.parts)


def _steers(part: Any) -> bool:
    """Tell whether a call or its return is one by which the framework knows what the model may use."""
    kinds = ToolCallPart | ToolReturnPart | NativeToolCallPart | NativeToolReturnPart
    return isinstance(part, kinds) and part.tool_kind in _STEERING


def _is_content(part: Any) -> bool:
    return not isinstance(part, ThinkingPart | ToolCallPart)


def _beside(part: Any) -> Dict:
    """Return what goes out with a text, a thought or a call and has no place in a chat dict."""
    if not isinstance(part, TextPart | ThinkingPart | ToolCallPart | FilePart):
        return {}
    held = {key: getattr(part, key, None) for key in ("id", "signature", "provider_details", "citations")}
    kept: Dict = to_jsonable_python({key: one for key, one in held.items() if one}, serialize_unknown=True)
    return kept


def _first_text(content: Any) -> str:
    if isinstance(content, list):
        content = content[0].get("text", "") if content else ""
    return str(content or "")
