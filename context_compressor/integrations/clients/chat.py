"""Chat completions: requests, replies and streams of OpenAI's API."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from context_compressor.integrations.asked import Said
from context_compressor.integrations.clients.wire import (
    Answer,
    Beside,
    Call,
    Dict,
    Heard,
    Reader,
    Wire,
    as_object,
    changed,
    check_free,
    less,
    plain,
    summed,
)
from context_compressor.messages.forms import FormName
from context_compressor.messages.plain import get
from context_compressor.summarizers.openai import read_completion

_LIMITS = ("max_completion_tokens", "max_tokens")
_OF_ANSWER = (
    *("stream", "stream_options", "incremental_output", "n", "stop", "response_format", "metadata", "store"),
    *("tool_choice", "parallel_tool_calls", "function_call", "web_search_options", "enable_search"),
    *("search_options", "plugins", "modalities", "audio", "prediction", "logprobs", "top_logprobs"),
    "logit_bias",
)
"""What a request says of its own answer alone, but for its length."""
CUT_OFF = ("length", "content_filter")


class ChatRequests(Wire):
    """What chat dicts are in a request and in a list, whoever's API takes them."""

    form: FormName = "chat"

    def takes_tools(self, request: Mapping[str, Any]) -> bool:
        return (request.get("n") or 1) == 1 and not (request.get("functions") or request.get("prediction"))

    def apart(self, request: Mapping[str, Any]) -> Dict:
        return less(request, *_OF_ANSWER, "messages", "tools", "functions")

    def again(self, sent: Mapping[str, Any]) -> Dict:
        choice = sent.get("tool_choice") or sent.get("function_call")
        form = plain(sent.get("response_format")) or {}
        check_free(
            tool_choice=choice not in (None, "auto", "none"),
            response_format=form.get("type", "text") != "text",
        )
        return less(sent, *_OF_ANSWER)

    def asking(self, kept: Mapping[str, Any], instructions: str, text: str, room: int | None) -> Dict:
        said = [("system", instructions), ("user", text)]
        messages = [{"role": role, "content": content} for role, content in said if content]
        made = {**less(kept, *_LIMITS), "messages": [*kept.get("messages", ()), *messages]}
        if room is not None:
            named = next((name for name in _LIMITS if kept.get(name) is not None), "max_tokens")
            made[named] = room + ((kept.get("thinking") or {}).get("budget_tokens") or 0)
        return made

    def results(self, answers: Sequence[Answer]) -> list[Dict]:
        return [{"role": "tool", "tool_call_id": one.call.id, "content": one.text} for one in answers]

    def calls_in(self, piece: Sequence[Any]) -> list[str]:
        calls = [call for item in piece for call in plain(item).get("tool_calls") or ()]
        return [str(plain(call).get("id")) for call in calls]

    def put_back(self, said: list[Any], place: int, beside: Beside) -> list[Any]:
        message = dict(plain(said[place]))
        message = _without_beginning(message, beside.inside, str if beside.was_streamed else ())
        message["tool_calls"] = [*message["tool_calls"], *beside.calls]
        behind = place + 1
        while behind < len(said) and plain(said[behind]).get("role") == "tool":
            behind += 1
        results = said[place + 1 : behind]
        turn = [*beside.inside, message, *beside.results, *results, *beside.attached]
        return [*said[:place], *turn, *said[behind:]]


def _without_beginning(message: Dict, inside: Sequence[Mapping[str, Any]], texts: Any) -> Dict:
    """Return a caller's message without the contents at its beginning that were answered inside.

    Args:
        message: as the caller sent it.
        inside: the messages that were answered inside, which stand before it now.
        texts: the type of text parts in the caller's form, if it has any.
    """
    for one in inside:
        for key, said in _beside_calls(one):
            now = message.get(key)
            if isinstance(said, texts) and isinstance(now, str):
                message[key] = now.removeprefix(said).removeprefix("\n\n") if now.startswith(said) else now
            elif isinstance(said, list) and isinstance(now, list):
                is_there = [_moved(one, None) for one in now[: len(said)]] == [
                    _moved(one, None) for one in said
                ]
                message[key] = now[len(said) :] if is_there else now
    return {key: said for key, said in message.items() if said != []}


def _moved(entry: Any, first: int | None) -> Any:
    """Return an entry of a streamed list with its index moved by `first`, behind those of earlier streams.
    Accumulators join pieces by that index; None removes it.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("index"), int):
        return entry
    return {**entry, "index": None if first is None else entry["index"] + first}


def _beside_calls(message: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the fields of an assistant's message other than its calls."""
    if message.get("role") != "assistant":
        return []
    return [(key, said) for key, said in message.items() if said and key not in ("role", "tool_calls")]


def heard_of(
    content: Any, extra: Mapping[str, Any], calls: list[Dict], *, is_whole: bool, tokens: object, usage: Any
) -> Heard:
    """Return what an assistant's message says; `extra` is what a provider has beside and wants back."""
    message: Dict = {"role": "assistant", "content": content, **extra}
    said = {**message, "tool_calls": calls} if calls else message
    functions = [call.get("function") or call.get("custom") or {} for call in calls]
    found = [
        Call(call["id"], function.get("name") or "", function.get("arguments"), call)
        for call, function in zip(calls, functions, strict=True)
    ]
    return Heard([said], found, is_whole, tokens, usage)


def name_of(call: Any) -> str | None:
    """Return the name of the function that is called, if it is one."""
    name: str | None = get(get(call, "function"), "name")
    return name


def ended(reason: Any) -> Any:
    """Return why a reply ended, none of whose calls is left."""
    return "stop" if reason == "tool_calls" else reason


class ChatWire(ChatRequests):
    """OpenAI's chat completions."""

    usage_key = "stream_options"

    def with_usage(self, request: Dict) -> Dict:
        options = plain(request.get(self.usage_key)) or {}
        if options.get("include_usage"):
            return request
        return {**request, self.usage_key: {**options, "include_usage": True}}

    def written(self, reply: Any) -> Said:
        return read_completion(as_object(reply))

    def refusal(self, reply: Any) -> str | None:
        error = reply.get("error") if isinstance(reply, Mapping) else None  # the SDK raises
        return None if error is None else f"{get(error, 'code')}: {get(error, 'message') or error}"

    def heard(self, reply: Any) -> Heard:
        choices, usage = get(reply, "choices"), get(reply, "usage")
        if not choices:
            return Heard([], [])
        message = get(choices[0], "message")
        calls = [_sendable(call) for call in get(message, "tool_calls") or ()]
        reason = get(choices[0], "finish_reason")
        return heard_of(
            get(message, "content"),
            _extra(message),
            calls,
            is_whole=reason not in CUT_OFF,
            tokens=get(usage, "prompt_tokens"),
            usage=usage,
        )

    def handed(self, replies: Sequence[Any], names: Collection[str], usage: Any) -> Any:
        *inside, reply = replies
        if usage is not None:
            reply = changed(reply, usage=summed(usage, get(reply, "usage")))
        choices = [_without(choice, names) for choice in get(reply, "choices") or ()]
        for one in reversed(inside):
            before = _extra(get(get(one, "choices")[0], "message"))
            choices = [_with_lists(choice, before) for choice in choices]
        return changed(reply, choices=choices)

    def reader(self, names: Collection[str], request: Mapping[str, Any]) -> Reader:
        return ChatReader(names, joins_texts="response_format" not in request)


_OF_MESSAGE = (
    *("role", "content", "tool_calls", "refusal", "annotations", "audio", "function_call", "parsed"),
)
"""Keys of an assistant's message that OpenAI knows."""


def _extra(message: Any) -> Dict:
    """Return what a provider has in a message, or in a piece of one, beside what OpenAI knows."""
    found = message if isinstance(message, Mapping) else message.model_extra or {}
    return less(found, *_OF_MESSAGE)


def _sendable(call: Any) -> Dict:
    """Return a call as it goes back: without what the SDK's `parse` adds to it."""
    said: Dict = dict(plain(call))
    function = said.get("function")
    if isinstance(function, dict):
        said["function"] = {key: function.get(key) for key in ("name", "arguments")}
    return less(said, "index")


def _without(choice: Any, names: Collection[str]) -> Any:
    """Return a choice without calls of ours."""
    message = get(choice, "message")
    calls = get(message, "tool_calls") or []
    kept = [call for call in calls if name_of(call) not in names]
    if len(kept) == len(calls):
        return choice
    choice = changed(choice, message=changed(message, tool_calls=kept or None))
    return choice if kept else changed(choice, finish_reason=ended(get(choice, "finish_reason")))


def _with_lists(choice: Any, before: Mapping[str, Any]) -> Any:
    """Return a choice with the lists of an earlier message in front: images and the like of the server."""
    message = get(choice, "message")
    own, lists = _extra(message), {key: said for key, said in before.items() if isinstance(said, list)}
    joined = {key: [*said, *(own.get(key) or ())] for key, said in lists.items()}
    return changed(choice, message=changed(message, **joined)) if joined else choice


class GrowingCalls:
    """The calls of a streamed message, put together from their pieces."""

    def __init__(self) -> None:
        self._calls: dict[int, Dict] = {}

    def add(self, pieces: Sequence[Any], *, are_whole: bool = False) -> None:
        """Take the next pieces; `are_whole`: each call as far as it is."""
        for place, piece in enumerate(pieces):
            new: Dict = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            call = new if are_whole else self._calls.get(_index(piece, place), new)
            for key, value in plain(piece).items():
                if isinstance(value, dict):
                    parts = call.setdefault(key, {})
                    for part, more in value.items():
                        if isinstance(more, str) and isinstance(parts.get(part), str):
                            parts[part] += more
                        elif more is not None:
                            parts[part] = more
                elif key != "index" and value:
                    call[key] = value
            self._calls[_index(piece, place)] = call

    def all(self) -> list[Dict]:
        """Return the calls in their order."""
        return [call for _, call in sorted(self._calls.items())]

    def places(self, names: Collection[str]) -> dict[int, int]:
        """Return where each call stands that is not of these tools, by its index in the stream."""
        kept = [index for index, call in sorted(self._calls.items()) if name_of(call) not in names]
        return {index: place for place, index in enumerate(kept)}

    def __bool__(self) -> bool:
        return bool(self._calls)


def _index(piece: Any, place: int) -> int:
    index = get(piece, "index")
    return index if isinstance(index, int) else place


def placed(pieces: Sequence[Any], places: Mapping[int, int]) -> list[Any]:
    """Return those pieces of calls that have a place, with their index there."""
    kept = [(piece, places[at]) for n, piece in enumerate(pieces) if (at := _index(piece, n)) in places]
    return [
        piece if get(piece, "index") in (None, place) else changed(piece, index=place)
        for piece, place in kept
    ]


class ChatReader(Reader):
    """Takes streamed chat completions apart."""

    def __init__(self, names: Collection[str], *, joins_texts: bool) -> None:
        self._joins_texts = joins_texts
        self._first: Any = None
        """The first chunk: all streams go on under its id."""
        self._passed_role = self._passed_text = False
        self._listed: dict[str, int] = {}
        """The number of entries in the lists of earlier streams."""
        super().__init__(names)

    def begin(self) -> None:
        self._calls = GrowingCalls()
        self._content: str | None = None
        self._extra: Dict = {}
        self._usage: Any = None
        self._reason: str | None = None
        self._held: list[Any] = []
        self._is_new = True
        """Whether no text came in this stream."""

    def feed(self, event: Any) -> list[Any]:
        self.has_begun = True
        chunk = event
        if self._first is None:
            self._first = chunk
        elif get(chunk, "id") != get(self._first, "id"):
            chunk = changed(chunk, id=get(self._first, "id"), created=get(self._first, "created"))
        is_of_first, usage = chunk is event, get(chunk, "usage")
        if usage is not None:
            self._usage = usage
            chunk = chunk if self.spent is None else changed(chunk, usage=summed(self.spent, usage))
        choices = get(chunk, "choices")
        if self.hides_usage and usage is None:
            chunk = changed(chunk, usage=None)  # a null is as if it had not been set
        elif self.hides_usage and not choices:
            return []
        if not self.names:
            return [chunk]
        if not choices:
            if not self._held and usage is None:
                return [chunk] if is_of_first else []  # a provider's remark, once
            self._held.append(chunk)
            return []
        said = [one for choice in choices if (one := self._choice(choice)) is not None]
        if not said:
            return []
        if len(said) < len(choices) or any(map(operator.is_not, said, choices)):
            chunk = changed(chunk, choices=said)
        if self._held or self._calls or self._reason is not None:
            self._held.append(chunk)
            return []
        return [chunk]

    def _choice(self, choice: Any) -> Any:
        """Note what a choice says, and return it as it goes on behind what the caller has; None: nothing."""
        delta = get(choice, "delta")
        content = get(delta, "content")
        self._note(delta)
        self._calls.add(get(delta, "tool_calls") or ())
        self._reason = get(choice, "finish_reason") or self._reason
        update: Dict = {}
        if get(delta, "role") is not None:
            if self._passed_role:
                update["role"] = None  # accumulators would join it to the first one
            self._passed_role = True
        for key, said in _extra(delta).items():
            if key in self._listed and isinstance(said, list):
                update[key] = [_moved(one, self._listed[key]) for one in said]
        if content:
            if self._joins_texts and self._is_new and self._passed_text:
                update["content"] = f"\n\n{content}"
            self._is_new, self._passed_text = False, True
        if not update:
            return choice
        return _saying(choice, changed(delta, **update))

    def _note(self, delta: Any) -> None:
        if get(delta, "content") is not None:
            self._content = (self._content or "") + get(delta, "content")
        for key, value in _extra(delta).items():
            before = self._extra.get(key)
            is_more = type(before) is type(value) and isinstance(value, str | list)
            self._extra[key] = before + value if is_more else value if value is not None else before

    def heard(self) -> Heard:
        return heard_of(
            self._content,
            {key: said for key, said in self._extra.items() if said is not None},
            self._calls.all(),
            is_whole=self._reason is not None and self._reason not in CUT_OFF,
            tokens=get(self._usage, "prompt_tokens"),
            usage=self._usage,
        )

    def held(self) -> list[Any]:
        for key, said in self._extra.items():
            if isinstance(said, list):
                self._listed[key] = self._listed.get(key, 0) + len(said)
        return self._released(is_last=False)

    def end(self) -> list[Any]:
        return self._released(is_last=True)

    def _released(self, *, is_last: bool) -> list[Any]:
        places = self._calls.places(self.names)
        released = []
        for chunk in self._held:
            choices = get(chunk, "choices") or []
            said = [one for choice in choices if (one := self._left(choice, places, is_last)) is not None]
            if said or (is_last and not choices):
                released.append(changed(chunk, choices=said))
        return released

    def _left(self, choice: Any, places: Mapping[int, int], is_last: bool) -> Any:
        """Return what a choice that was held has for the caller; None: nothing."""
        delta, reason = get(choice, "delta"), get(choice, "finish_reason")
        calls = get(delta, "tool_calls")
        if reason and (not is_last or (self._calls and not places)):
            choice = changed(choice, finish_reason=ended(reason) if is_last else None)
        if calls is None:
            return choice if is_last else _saying(choice, delta)
        return _saying(choice, changed(delta, tool_calls=placed(calls, places) or None))


def _saying(choice: Any, delta: Any) -> Any:
    """Return a choice with this delta; None: neither says anything."""
    left = plain(delta)
    if not any(left.values()) and not get(choice, "finish_reason") and "role" not in left:
        return None
    return changed(choice, delta=delta)
