"""OpenAI's Responses: requests, replies and streams."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from context_compressor.integrations.asked import Said
from context_compressor.integrations.clients.wire import (
    Answer,
    Beside,
    BlockReader,
    Call,
    Dict,
    Heard,
    Reader,
    Wire,
    changed,
    check_free,
    done_by_server,
    is_thought,
    less,
    not_ours,
    plain,
    summed,
)
from context_compressor.messages.forms import FormName
from context_compressor.messages.plain import get
from context_compressor.summarizers.faults import Fault

logger = logging.getLogger(__name__)

MOST_NOTED = 1_000
"""Responses of which is noted how one goes on from them where the server keeps the conversation."""
_KEPT_BY_SERVER = ("previous_response_id", "conversation")
_OF_ANSWER = (
    *("max_output_tokens", "stream", "stream_options", "text", "metadata", "store", "truncation", "include"),
    *("tool_choice", "parallel_tool_calls", "max_tool_calls", "background", "background_options"),
    *("context_management", "top_logprobs", "image"),
)
"""What a request says of its own answer alone."""
_HEADS = ("response.created", "response.queued", "response.in_progress")
_ENDS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesWire(Wire):
    """OpenAI's `/responses`."""

    form: FormName = "responses"
    list_key = "input"
    system_key = "instructions"
    call_key = "call_id"

    def __init__(self) -> None:
        self._pending: OrderedDict[str, list[Dict]] = OrderedDict()
        """Answers to calls of ours beside the caller's, by the id of the response."""
        self._last: OrderedDict[str, str] = OrderedDict()
        """For streams that went on, by the id that the caller has: that of the last response."""
        self._has_warned = False

    def said(self, request: Mapping[str, Any]) -> list[Any] | None:
        if any(request.get(name) is not None for name in _KEPT_BY_SERVER):
            return None
        given = request.get("input")
        return [{"role": "user", "content": given}] if isinstance(given, str) else super().said(request)

    def passing(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        named = [name for name in _KEPT_BY_SERVER if request.get(name) is not None]
        if not named:
            return request
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s: the server keeps this conversation, so that no view can be made of it; its requests "
                "pass through. Send the whole list for views",
                named[0],
            )
        previous, given = str(request.get("previous_response_id")), request.get("input")
        if previous in self._last:
            previous = self._last[previous]
            request = {**request, "previous_response_id": previous}
        results = self._pending.get(previous)
        return {**request, "input": [*results, *given]} if results and isinstance(given, list) else request

    def takes_tools(self, request: Mapping[str, Any]) -> bool:
        return not request.get("background")

    def apart(self, request: Mapping[str, Any]) -> Dict:
        return less(request, *_OF_ANSWER, "input", "instructions", "tools", "prompt")

    def again(self, sent: Mapping[str, Any]) -> Dict:
        form = (plain(sent.get("text")) or {}).get("format") or {}
        check_free(
            tool_choice=sent.get("tool_choice") not in (None, "auto", "none"),
            text=form.get("type", "text") != "text",
        )
        return less(sent, *_OF_ANSWER)

    def asking(self, kept: Mapping[str, Any], instructions: str, text: str, room: int | None) -> Dict:
        listed = [*kept.get("input", ()), {"role": "user", "content": text}]
        made = {**kept, "input": listed, "store": False}
        made |= {"instructions": instructions} if instructions else {}
        return made if room is None else {**made, "max_output_tokens": room}

    def written(self, reply: Any) -> Said:
        if (refusal := self.refusal(reply)) is not None:
            raise Fault("status", refusal, 200)
        usage, cut = get(reply, "usage"), get(get(reply, "incomplete_details"), "reason")
        said = [part for item in get(reply, "output") for part in get(item, "content") or ()]
        text = "".join(get(part, "text") for part in said if get(part, "type") == "output_text")
        spent = (get(usage, "input_tokens") or 0, get(usage, "output_tokens") or 0)
        cached = get(get(usage, "input_tokens_details"), "cached_tokens") or 0
        return Said(text, *spent, "length" if cut == "max_output_tokens" else cut, cached)

    def refusal(self, reply: Any) -> str | None:
        kind = get(reply, "type")
        if kind == "error":
            said = get(reply, "error") or reply
            return f"{get(said, 'code') or ''}: {get(said, 'message') or ''}"
        error = get(get(reply, "response") if kind == "response.failed" else reply, "error")
        return None if error is None else f"{get(error, 'code')}: {get(error, 'message')}"

    def heard(self, reply: Any) -> Heard:
        return _heard(reply, get(reply, "output"))

    def handed(self, replies: Sequence[Any], names: Collection[str], usage: Any) -> Any:
        *inside, reply = replies
        if usage is not None:
            reply = changed(reply, usage=summed(usage, get(reply, "usage")))
        did = [item for one in inside for item in done_by_server(get(one, "output") or [])]
        output = get(reply, "output") or []
        kept = [output[place] for place in not_ours(output, names, leads_to_next=True)]
        if did or len(kept) != len(output):
            reply = changed(reply, output=[*did, *kept])
        return _without_tools(reply, names)

    def reader(self, names: Collection[str], request: Mapping[str, Any]) -> Reader:  # noqa: ARG002
        return ResponsesReader(names, lambda first, last: _note(self._last, first, last))

    def results(self, answers: Sequence[Answer]) -> list[Dict]:
        return [
            {"type": "function_call_output", "call_id": one.call.id, "output": one.text} for one in answers
        ]

    def turn(self, request: Mapping[str, Any], heard: Heard, answers: Sequence[Answer]) -> list[Dict]:
        if request.get("store") is False:
            # What the server did not keep, it does not find again by its id.
            items = [one for one in heard.items if not is_thought(one) or one.get("encrypted_content")]
            heard = replace(heard, items=[one if is_thought(one) else less(one, "id") for one in items])
        return super().turn(request, heard, answers)

    def beside(self, after: str, heard: Heard, answers: Sequence[Answer]) -> Beside:
        beside = super().beside(after, heard, answers)
        beside.calls = [less(item, "id") for item in beside.calls]
        if heard.id:
            _note(self._pending, heard.id, beside.results)
        return beside

    def calls_in(self, piece: Sequence[Any]) -> list[str]:
        return [call.id for call in _calls([plain(item) for item in piece])]

    def put_back(self, said: list[Any], place: int, beside: Beside) -> list[Any]:
        items = [plain(item) for item in said]
        first = place
        for one in _handed_of(beside.inside, with_texts=beside.was_streamed):
            first += first < len(items) and _is_same(items[first], one)
        last, waiting = first, list(beside.ids)
        for n in range(first, len(items)):  # other calls behind these may have the same ids
            if _id_of(items[n]) in waiting:
                waiting.remove(_id_of(items[n]))
                last = n
            if not waiting:
                break
        behind = last + 1
        while behind < len(items) and str(items[behind].get("type")).endswith("_output"):
            behind += 1
        results = said[last + 1 : behind]
        made = [*beside.calls, *beside.results]
        turn = [*said[first : last + 1], *made, *results, *beside.attached]
        return [*said[:place], *beside.inside, *turn, *said[behind:]]


def _note(noted: OrderedDict[str, Any], key: str, value: Any) -> None:
    noted[key] = value
    while len(noted) > MOST_NOTED:
        noted.popitem(last=False)


def _id_of(item: Mapping[str, Any]) -> Any:
    if item.get("type") == "mcp_approval_request":
        return item.get("id")
    return item.get("call_id") if str(item.get("type")).endswith("_call") else None


def _calls(items: Sequence[Dict]) -> list[Call]:
    """Return the calls that the caller or we answer; the server's own have no call id or an output."""
    answered = {one.get("call_id") for one in items if str(one.get("type")).endswith("_output")}
    return [
        Call(str(id), str(one.get("name")), one.get("arguments"), one)
        for one in items
        if (id := _id_of(one)) is not None and id not in answered
    ]


def _handed_of(inside: Sequence[Dict], *, with_texts: bool) -> list[Dict]:
    """Return the items answered inside that the caller may have."""
    said = [one for one in inside if one.get("role") != "user" and one["type"] != "function_call_output"]
    return [one for one in said if one["type"] != "function_call"] if with_texts else done_by_server(said)


def _is_same(item: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two items say the same; one may have lost its id."""
    if item.get("id") and other.get("id"):
        return bool(item["id"] == other["id"])
    return all(item.get(key) == said for key, said in other.items() if key != "id")


def _sendable(item: Dict) -> Dict:
    """Return an item as it goes back: without what the SDK's `parse` adds to it."""
    said = {key: value for key, value in item.items() if key != "parsed_arguments"}
    if isinstance(said.get("content"), list):
        said["content"] = [{k: v for k, v in part.items() if k != "parsed"} for part in said["content"]]
    return said


def _heard(response: Any, output: Sequence[Any]) -> Heard:
    items = [_sendable(plain(item)) for item in output or ()]
    usage = get(response, "usage")
    return Heard(
        items,
        _calls(items),
        get(response, "status") in ("completed", None),
        get(usage, "input_tokens"),
        usage,
        get(response, "id"),
    )


def _without_tools(response: Any, names: Collection[str]) -> Any:
    """Return a response that does not repeat tools of ours, as the server repeats a request's."""
    tools = get(response, "tools") or []
    kept = [tool for tool in tools if get(tool, "name") not in names]
    return response if len(kept) == len(tools) else changed(response, tools=kept)


class ResponsesReader(BlockReader):
    """Takes streamed responses apart."""

    index_key = "output_index"

    def __init__(self, names: Collection[str], went_on: Callable[[str, str], None]) -> None:
        self._went_on = went_on
        self._id: str | None = None
        """Of the first response: all go on under it."""
        self._has_started: set[str] = set()
        self._sequence = 0
        self._passed: list[Any] = []
        """Items that the caller has."""
        super().__init__(names)

    def begin(self) -> None:
        super().begin()
        self._items: dict[int, Any] = {}
        self._last: Any = None
        self._tail: list[Any] = []

    def feed(self, event: Any) -> list[Any]:
        kind, index = get(event, "type"), get(event, self.index_key)
        if kind in _HEADS:
            self._id = self._id or get(get(event, "response"), "id")
            is_first = kind not in self._has_started
            self._has_started.add(kind)
            return self._going([self._with_response(event)]) if is_first else []
        self.has_begun = True
        if kind in _ENDS:
            self._last = get(event, "response")
            self._tail.append(event)
            return []
        if index is None:
            return self._going([event])
        begun = None
        if kind in ("response.output_item.added", "response.output_item.done"):
            begun = None if index in self._items else _begun(plain(get(event, "item")))
            self._items[index] = get(event, "item")
        return self._going(self.take(event, begun))

    def _going(self, events: Sequence[Any]) -> list[Any]:
        """Return events as they go to the caller: numbered, their items noted."""
        going = []
        for event in events:
            if get(event, "type") == "response.output_item.done":
                self._passed.append(get(event, "item"))
            number = get(event, "sequence_number")
            if number is not None:
                event = event if number == self._sequence else changed(event, sequence_number=self._sequence)
                self._sequence += 1
            going.append(event)
        return going

    def _with_response(self, event: Any) -> Any:
        response = _without_tools(get(event, "response"), self.names)
        return event if response is get(event, "response") else changed(event, response=response)

    def heard(self) -> Heard:
        if self._last is None:
            return Heard([], [], is_whole=False)
        return _heard(self._last, get(self._last, "output") or list(self._items.values()))

    def held(self) -> list[Any]:
        indexes = list(self._items)
        kept = not_ours(self._items.values(), self.names, leads_to_next=True)
        return self._going(self.release(set(indexes).difference(indexes[place] for place in kept)))

    def end(self) -> list[Any]:
        ended = self.held()
        for event in map(self._with_response, self._tail):
            response = get(event, "response")
            if self._id and get(response, "id") != self._id:
                self._went_on(self._id, get(response, "id"))
                response = changed(response, id=self._id)
            if self.spent is not None or len(self._passed) < len(self._items):
                response = changed(response, output=list(self._passed))
            if self.spent is not None:
                response = changed(response, usage=summed(self.spent, get(response, "usage")))
            ended += self._going([changed(event, response=response)])
        return ended


def _begun(item: Dict) -> str:
    return "thought" if is_thought(item) else "call" if _id_of(item) is not None else "other"
