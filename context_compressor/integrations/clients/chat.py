"""Chat completions: requests, replies and streams of OpenAI's API."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
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
    less,
    listed,
    plain,
    summed,
)
from context_compressor.messages.forms import FormName
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


class ChatRequests:
    """What chat dicts are in a request and in a list, whoever's API takes them."""

    form: FormName = "chat"
    call_key = "id"
    shows_media = True

    def said(self, request: Mapping[str, Any]) -> list[Any] | None:
        return listed(request.get("messages"))

    def passing(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return request

    def system(self, request: Mapping[str, Any]) -> Any:  # noqa: ARG002
        return None

    def takes_tools(self, request: Mapping[str, Any]) -> bool:
        return (request.get("n") or 1) == 1 and not request.get("functions")

    def named(self, request: Mapping[str, Any]) -> set[str]:
        tools = [plain(tool) for tool in request.get("tools") or ()]
        return {str((tool.get("function") or tool.get("custom") or {}).get("name")) for tool in tools}

    def request(
        self, request: Mapping[str, Any], messages: list[Any], schemas: Sequence[Any], is_last: bool
    ) -> Dict:
        sent = {**request, "messages": messages}
        own = list(request.get("tools") or ())
        if schemas and not (is_last and own):
            sent["tools"] = [*own, *schemas]
            if is_last:
                sent["tool_choice"] = "none"
        return sent

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

    def turn(self, request: Mapping[str, Any], heard: Heard, answers: Sequence[Answer]) -> list[Dict]:  # noqa: ARG002
        attached = [answer.attached for answer in answers if answer.attached is not None]
        return [*heard.items, *_results(answers), *attached]

    def beside(self, after: str, heard: Heard, answers: Sequence[Answer]) -> Beside:
        ours = {answer.call.id for answer in answers}
        calls = [call for call in heard.items[0]["tool_calls"] if call["id"] in ours]
        return Beside(
            after,
            [call.id for call in heard.calls if call.id not in ours],
            calls,
            _results(answers),
            [answer.attached for answer in answers if answer.attached is not None],
        )

    def said_calls(self, heard: Heard) -> list[Dict]:
        return [call for item in heard.items for call in item.get("tool_calls") or ()]

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


def _results(answers: Sequence[Answer]) -> list[Dict]:
    return [{"role": "tool", "tool_call_id": one.call.id, "content": one.text} for one in answers]


def as_said(content: Any, extra: Mapping[str, Any], calls: list[Dict]) -> Dict:
    """Return an assistant's message as it goes back, with what a provider has beside and wants back."""
    message: Dict = {"role": "assistant", "content": content, **extra}
    return {**message, "tool_calls": calls} if calls else message


def calls_of(calls: Sequence[Mapping[str, Any]]) -> list[Call]:
    """Return the calls of a message."""
    found = []
    for call in calls:
        function = call.get("function") or call.get("custom") or {}
        found.append(Call(call["id"], function.get("name") or "", function.get("arguments")))
    return found


class ChatWire(ChatRequests):
    """OpenAI's chat completions."""

    def written(self, reply: Any) -> Said:
        answer = read_completion(reply)
        spent = (answer.input_tokens, answer.output_tokens)
        return Said(answer.text, *spent, answer.finish_reason, answer.cached_tokens)

    def refusal(self, reply: Any) -> str | None:  # noqa: ARG002
        return None  # the SDK raises

    def heard(self, reply: Any) -> Heard:
        choice = reply.choices[0] if reply.choices else None
        if choice is None:
            return Heard([], [])
        message, usage = choice.message, reply.usage
        calls = [_sendable(call) for call in message.tool_calls or ()]
        said = as_said(message.content, message.model_extra or {}, calls)
        return Heard(
            [said],
            calls_of(calls),
            choice.finish_reason not in CUT_OFF,
            getattr(usage, "prompt_tokens", None),
            usage,
        )

    def handed(self, replies: Sequence[Any], names: Collection[str], usage: Any) -> Any:
        *inside, reply = replies
        if usage is not None:
            reply = changed(reply, usage=summed(usage, reply.usage))
        choices = [_without(choice, names) for choice in reply.choices]
        for one in reversed(inside):
            choices = [_with_lists(choice, one.choices[0].message) for choice in choices]
        return changed(reply, choices=choices)

    def reader(self, names: Collection[str], request: Mapping[str, Any]) -> Reader:
        return ChatReader(names, joins_texts="response_format" not in request)


def _sendable(call: Any) -> Dict:
    """Return a call as it goes back: without what the SDK's `parse` adds to it."""
    said: Dict = plain(call)
    function = said.get("function")
    if isinstance(function, dict):
        said["function"] = {key: function.get(key) for key in ("name", "arguments")}
    return {key: value for key, value in said.items() if key != "index"}


def _name(call: Any) -> str | None:
    name: str | None = getattr(getattr(call, "function", None), "name", None)
    return name


def _without(choice: Any, names: Collection[str]) -> Any:
    """Return a choice without calls of ours."""
    calls = choice.message.tool_calls or []
    kept = [call for call in calls if _name(call) not in names]
    if len(kept) == len(calls):
        return choice
    choice = changed(choice, message=changed(choice.message, tool_calls=kept or None))
    return choice if kept else changed(choice, finish_reason=_ended(choice.finish_reason))


def _with_lists(choice: Any, before: Any) -> Any:
    """Return a choice with the lists of an earlier message in front: images and the like of the server."""
    own = choice.message.model_extra or {}
    lists = {key: said for key, said in (before.model_extra or {}).items() if isinstance(said, list)}
    joined = {key: [*said, *(own.get(key) or ())] for key, said in lists.items()}
    return changed(choice, message=changed(choice.message, **joined)) if joined else choice


def _ended(reason: Any) -> Any:
    """Return why a reply ended, none of whose calls is left."""
    return "stop" if reason == "tool_calls" else reason


@dataclass(slots=True)
class _Growing:
    """A call as it comes in pieces."""

    call: Dict
    held: list[Any] = field(default_factory=list)
    """Pieces that do not go on before it is known whose call it is."""
    is_ours: bool | None = None
    index: int = 0
    """Where it stands for the caller."""

    @property
    def name(self) -> str:
        return str(self.call["function"]["name"])

    def add(self, piece: Any) -> None:
        for key, value in plain(piece).items():
            if key == "function":
                for part, text in (value or {}).items():
                    self.call[key][part] = self.call[key].get(part, "") + (text or "")
            elif key != "index" and value is not None:
                self.call[key] = value


class ChatReader:
    """Takes streamed chat completions apart."""

    def __init__(self, names: Collection[str], *, joins_texts: bool) -> None:
        self.has_begun = False
        self._names = names
        self._joins_texts = joins_texts
        self._first: Any = None
        """The first chunk: all streams go on under its id."""
        self._next_index = 0
        self._passed_role = self._passed_text = False
        self._spent: Any = None
        self._listed: dict[str, int] = {}
        """The number of entries in the lists of earlier streams."""
        self._begin()

    def _begin(self) -> None:
        self._growing: dict[int, _Growing] = {}
        self._content: str | None = None
        self._extra: Dict = {}
        self._usage: Any = None
        self._reason: str | None = None
        self._tail: list[Any] = []
        """What ends the stream, until it is known whether another one goes on."""
        self._is_new = True
        """Whether no text came in this stream."""

    def feed(self, event: Any) -> list[Any]:
        self.has_begun = True
        chunk = event
        if self._first is None:
            self._first = chunk
        else:
            chunk = changed(chunk, id=self._first.id, created=self._first.created)
        if chunk.usage is not None:
            self._usage = chunk.usage
            chunk = changed(chunk, usage=summed(self._spent, chunk.usage))
        if not self._names:
            return [chunk]
        if not chunk.choices:
            if not self._tail and chunk.usage is None:
                return [chunk] if chunk is event else []  # a provider's remark, once
            self._tail.append(chunk)
            return []
        choices = [self._choice(choice) for choice in chunk.choices]
        said = [choice for choice in choices if choice is not None]
        if not said:
            return []
        chunk = changed(chunk, choices=said)
        if self._tail or self._reason is not None:
            self._tail.append(chunk)
            return []
        return [chunk]

    def _choice(self, choice: Any) -> Any:
        """Return what a choice has for the caller; None: nothing."""
        delta = choice.delta
        self._note(delta)
        self._reason = choice.finish_reason or self._reason
        update: Dict = {}
        if delta.tool_calls is not None:
            update["tool_calls"] = [one for piece in delta.tool_calls for one in self._sort(piece)] or None
        if delta.role is not None:
            if self._passed_role:
                update["role"] = None  # accumulators would join it to the first one
            self._passed_role = True
        for key, said in (delta.model_extra or {}).items():
            if key in self._listed and isinstance(said, list):
                update[key] = [_moved(one, self._listed[key]) for one in said]
        if delta.content:
            if self._joins_texts and self._is_new and self._passed_text:
                update["content"] = f"\n\n{delta.content}"
            self._is_new, self._passed_text = False, True
        if not update:
            return choice
        delta = changed(delta, **update)
        left = plain(delta)
        if not any(left.values()) and not choice.finish_reason and "role" not in left:
            return None
        return changed(choice, delta=delta)

    def _note(self, delta: Any) -> None:
        if delta.content is not None:
            self._content = (self._content or "") + delta.content
        for key, value in (delta.model_extra or {}).items():
            before = self._extra.get(key)
            is_more = type(before) is type(value) and isinstance(value, str | list)
            self._extra[key] = before + value if is_more else value if value is not None else before

    def _sort(self, piece: Any) -> list[Any]:
        """Return the pieces of the caller's calls that go on now."""
        empty: Dict = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        growing = self._growing.setdefault(piece.index, _Growing(empty))
        growing.add(piece)
        if growing.is_ours is None:
            growing.held.append(piece)
            growing.is_ours = self._whose(growing)
            return self._release(growing) if growing.is_ours is False else []
        return [] if growing.is_ours else [changed(piece, index=growing.index)]

    def _whose(self, growing: _Growing) -> bool | None:
        """Tell whether a call is ours; None: its name is not all there."""
        if growing.call.get("type") not in (None, "function"):
            return False
        if growing.name in self._names and growing.call["function"]["arguments"]:
            return True
        return None if any(name.startswith(growing.name) for name in self._names) else False

    def _release(self, growing: _Growing) -> list[Any]:
        growing.index, self._next_index = self._next_index, self._next_index + 1
        return [changed(piece, index=growing.index) for piece in growing.held]

    def heard(self) -> Heard:
        for growing in self._growing.values():
            if growing.is_ours is None and growing.name in self._names:
                growing.is_ours = True
        calls = [one.call for _, one in sorted(self._growing.items())]
        return Heard(
            [as_said(self._content, {k: v for k, v in self._extra.items() if v is not None}, calls)],
            calls_of(calls),
            self._reason is not None and self._reason not in CUT_OFF,
            getattr(self._usage, "prompt_tokens", None),
            self._usage,
        )

    def go_on(self, names: Collection[str]) -> None:
        self.has_begun, self._names = False, names
        self._spent = summed(self._spent, self._usage)
        for key, said in self._extra.items():
            if isinstance(said, list):
                self._listed[key] = self._listed.get(key, 0) + len(said)
        self._begin()

    def end(self) -> list[Any]:
        held = [one for one in self._growing.values() if one.is_ours is None]
        pieces = [piece for one in held for piece in self._release(one)]
        is_any_left = self._next_index > 0
        ended: list[Any] = []
        for chunk in self._tail:
            choices = []
            for choice in chunk.choices:
                update: Dict = {}
                if pieces:
                    update["delta"] = changed(
                        choice.delta, tool_calls=[*pieces, *(choice.delta.tool_calls or [])]
                    )
                    pieces = []
                if choice.finish_reason and not is_any_left and self._growing:
                    update["finish_reason"] = _ended(choice.finish_reason)
                choices.append(changed(choice, **update) if update else choice)
            ended.append(changed(chunk, choices=choices))
        return ended
