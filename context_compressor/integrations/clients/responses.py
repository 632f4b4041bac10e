"""OpenAI's Responses: requests, replies and streams."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from context_compressor.integrations.asked import Said
from context_compressor.integrations.clients.wire import (
    Answer,
    Beside,
    Call,
    Dict,
    Heard,
    Reader,
    changed,
    check_free,
    done_by_server,
    less,
    listed,
    plain,
    summed,
)
from context_compressor.messages.forms import FormName
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


class ResponsesWire:
    """OpenAI's `/responses`."""

    form: FormName = "responses"
    call_key = "call_id"
    shows_media = True

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
        if isinstance(given, str):
            return [{"role": "user", "content": given}]
        return listed(given)

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

    def system(self, request: Mapping[str, Any]) -> Any:
        return request.get("instructions")

    def takes_tools(self, request: Mapping[str, Any]) -> bool:
        return not request.get("background")

    def named(self, request: Mapping[str, Any]) -> set[str]:
        return {str(tool.get("name")) for tool in request.get("tools") or ()}

    def request(
        self, request: Mapping[str, Any], messages: list[Any], schemas: Sequence[Any], is_last: bool
    ) -> Dict:
        sent = {**request, "input": messages}
        own = list(request.get("tools") or ())
        if schemas and not (is_last and own):
            sent["tools"] = [*own, *schemas]
            if is_last:
                sent["tool_choice"] = "none"
        return sent

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
        usage, cut = reply.usage, reply.incomplete_details
        spent = (usage.input_tokens, usage.output_tokens) if usage else (0, 0)
        cached = usage.input_tokens_details.cached_tokens if usage and usage.input_tokens_details else 0
        reason = None if cut is None else "length" if cut.reason == "max_output_tokens" else cut.reason
        return Said(str(reply.output_text), spent[0], spent[1], reason, cached or 0)

    def refusal(self, reply: Any) -> str | None:
        if getattr(reply, "type", None) == "error":
            return f"{getattr(reply, 'code', '')}: {getattr(reply, 'message', '')}"
        response = reply.response if getattr(reply, "type", None) == "response.failed" else reply
        error = getattr(response, "error", None)
        return None if error is None else f"{error.code}: {error.message}"

    def heard(self, reply: Any) -> Heard:
        return _heard(reply, reply.output)

    def handed(self, replies: Sequence[Any], names: Collection[str], usage: Any) -> Any:
        *inside, reply = replies
        if usage is not None:
            reply = changed(reply, usage=summed(usage, reply.usage))
        did = [item for one in inside for item in done_by_server(one.output or [])]
        kept = _without(reply.output or [], names)
        if did or len(kept) != len(reply.output or []):
            reply = changed(reply, output=[*did, *kept])
        return _without_tools(reply, names)

    def turn(self, request: Mapping[str, Any], heard: Heard, answers: Sequence[Answer]) -> list[Dict]:
        items = heard.items
        if request.get("store") is False:
            # What the server did not keep, it does not find again by its id.
            items = [one for one in items if one["type"] != "reasoning" or one.get("encrypted_content")]
            items = [one if one["type"] == "reasoning" else _without_id(one) for one in items]
        return [*items, *_results(answers), *_attached(answers)]

    def beside(self, after: str, heard: Heard, answers: Sequence[Answer]) -> Beside:
        ours = {answer.call.id for answer in answers}
        calls = [_without_id(item) for item in heard.items if item.get("call_id") in ours]
        his = [call.id for call in heard.calls if call.id not in ours]
        results = _results(answers)
        if heard.id:
            _note(self._pending, heard.id, results)
        return Beside(after, his, calls, results, _attached(answers))

    def said_calls(self, heard: Heard) -> list[Dict]:
        return _waiting(heard.items)

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

    def reader(self, names: Collection[str], request: Mapping[str, Any]) -> Reader:  # noqa: ARG002
        return ResponsesReader(names, lambda first, last: _note(self._last, first, last))


def _note(noted: OrderedDict[str, Any], key: str, value: Any) -> None:
    noted[key] = value
    while len(noted) > MOST_NOTED:
        noted.popitem(last=False)


def _id_of(item: Mapping[str, Any]) -> Any:
    if item.get("type") == "mcp_approval_request":
        return item.get("id")
    return item.get("call_id") if str(item.get("type")).endswith("_call") else None


def _calls(items: Sequence[Dict]) -> list[Call]:
    return [Call(str(_id_of(one)), str(one.get("name")), one.get("arguments")) for one in _waiting(items)]


def _waiting(items: Sequence[Dict]) -> list[Dict]:
    """Return the calls that the caller or we answer; the server's own have no call id or an output."""
    answered = {one.get("call_id") for one in items if str(one.get("type")).endswith("_output")}
    return [one for one in items if _id_of(one) is not None and _id_of(one) not in answered]


def _handed_of(inside: Sequence[Dict], *, with_texts: bool) -> list[Dict]:
    """Return the items answered inside that the caller may have."""
    said = [one for one in inside if one.get("role") != "user" and one["type"] != "function_call_output"]
    return [one for one in said if one["type"] != "function_call"] if with_texts else done_by_server(said)


def _is_same(item: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two items say the same; one may have lost its id."""
    if item.get("id") and other.get("id"):
        return bool(item["id"] == other["id"])
    return all(item.get(key) == said for key, said in other.items() if key != "id")


def _results(answers: Sequence[Answer]) -> list[Dict]:
    return [{"type": "function_call_output", "call_id": one.call.id, "output": one.text} for one in answers]


def _attached(answers: Sequence[Answer]) -> list[Dict]:
    return [one.attached for one in answers if one.attached is not None]


def _without_id(item: Dict) -> Dict:
    return {key: value for key, value in item.items() if key != "id"}


def _sendable(item: Dict) -> Dict:
    """Return an item as it goes back: without what the SDK's `parse` adds to it."""
    said = {key: value for key, value in item.items() if key != "parsed_arguments"}
    if isinstance(said.get("content"), list):
        said["content"] = [{k: v for k, v in part.items() if k != "parsed"} for part in said["content"]]
    return said


def _heard(response: Any, output: Sequence[Any]) -> Heard:
    items = [_sendable(plain(item)) for item in output or ()]
    usage = response.usage
    return Heard(
        items,
        _calls(items),
        response.status in ("completed", None),
        getattr(usage, "input_tokens", None),
        usage,
        response.id,
    )


def _is_ours(item: Any, names: Collection[str]) -> bool:
    return item.type == "function_call" and item.name in names


def _without(output: Sequence[Any], names: Collection[str]) -> list[Any]:
    """Return items without calls of ours, nor reasoning that led to these alone."""
    kept: list[Any] = []
    thoughts: list[Any] = []
    is_ours = False
    for item in output:
        if item.type == "reasoning":
            thoughts = [item] if is_ours else [*thoughts, item]
            is_ours = False
        elif _is_ours(item, names):
            is_ours = True
        else:
            kept += [*thoughts, item]
            thoughts = []
    return kept if is_ours else [*kept, *thoughts]


def _without_tools(response: Any, names: Collection[str]) -> Any:
    """Return a response that does not repeat tools of ours, as the server repeats a request's."""
    tools = response.tools or []
    kept = [tool for tool in tools if getattr(tool, "name", None) not in names]
    return response if len(kept) == len(tools) else changed(response, tools=kept)


class ResponsesReader:
    """Takes streamed responses apart.

    Reasoning goes on with the item that it leads to, which the API wants behind it: before a call of ours, it
    is kept back with it.
    """

    def __init__(self, names: Collection[str], went_on: Callable[[str, str], None]) -> None:
        self.has_begun = False
        self._names = names
        self._went_on = went_on
        self._id: str | None = None
        """Of the first response: all go on under it."""
        self._has_started: set[str] = set()
        self._sequence = 0
        self._next_index = 0
        self._passed: list[Any] = []
        """Items that the caller has."""
        self._is_changed = False
        self._spent: Any = None
        self._begin()

    def _begin(self) -> None:
        self._items: list[Any] = []
        self._places: dict[int, int] = {}
        self._held: list[Any] = []
        self._thoughts: set[int] = set()
        self._is_after_ours = False
        self._last: Any = None
        self._tail: list[Any] = []

    def feed(self, event: Any) -> list[Any]:
        if event.type in _HEADS:
            self._id = self._id or event.response.id
            is_first = event.type not in self._has_started
            self._has_started.add(event.type)
            response = _without_tools(event.response, self._names)
            return [self._numbered(changed(event, response=response))] if is_first else []
        self.has_begun = True
        if event.type in _ENDS:
            self._last = event.response
            self._tail.append(event)
            return []
        index = getattr(event, "output_index", None)
        if index is None:
            return [self._numbered(event)]
        return self._item(event, index)

    def _item(self, event: Any, index: int) -> list[Any]:
        if event.type == "response.output_item.done":
            self._items.append(event.item)
        if event.type == "response.output_item.added" and index not in self._places:
            if self._names and event.item.type == "reasoning":
                self._thoughts.add(index)
                if self._is_after_ours:
                    self._held, self._is_after_ours = [], False
            elif _is_ours(event.item, self._names):
                self._is_changed = self._is_after_ours = True
            else:
                return [self._moved(one) for one in self._release(event)]
        if index in self._thoughts and index not in self._places:
            self._held.append(event)
            return []
        return [self._moved(event)] if index in self._places else []

    def _release(self, *events: Any) -> list[Any]:
        released, self._held, self._is_after_ours = [*self._held, *events], [], False
        for one in released:
            if one.output_index not in self._places:
                self._places[one.output_index] = self._next_index
                self._next_index += 1
        return released

    def _moved(self, event: Any) -> Any:
        if event.type == "response.output_item.done":
            self._passed.append(event.item)
        return self._numbered(changed(event, output_index=self._places[event.output_index]))

    def _numbered(self, event: Any) -> Any:
        if getattr(event, "sequence_number", None) is None:
            return event
        self._sequence += 1
        return changed(event, sequence_number=self._sequence - 1)

    def heard(self) -> Heard:
        if self._last is None:
            return Heard([], [], is_whole=False)
        return _heard(self._last, self._last.output or self._items)

    def go_on(self, names: Collection[str]) -> None:
        self.has_begun, self._names = False, names
        self._spent = summed(self._spent, getattr(self._last, "usage", None))
        self._is_changed = True
        self._begin()

    def end(self) -> list[Any]:
        ended = [] if self._is_after_ours else [self._moved(one) for one in self._release()]
        for event in self._tail:
            response = _without_tools(event.response, self._names)
            if self._id and response.id != self._id:
                self._went_on(self._id, response.id)
                response = changed(response, id=self._id)
            if self._is_changed:
                response = changed(response, output=list(self._passed))
            if self._spent is not None:
                response = changed(response, usage=summed(self._spent, response.usage))
            ended.append(self._numbered(changed(event, response=response)))
        return ended
