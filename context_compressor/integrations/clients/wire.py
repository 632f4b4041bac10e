"""What a provider's API is to a client: how requests, replies and streams are read, changed and handed on.

All of it goes over plain dicts, as they are on the wire, and over the objects that SDKs make of these.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

from pydantic import BaseModel

from context_compressor.errors import SummarizerError
from context_compressor.integrations.asked import Said
from context_compressor.messages.forms import FormName
from context_compressor.messages.plain import get

Dict = dict[str, Any]

_MOST_OF_ID = 60
"""Characters that are kept of an id when another one is made of it: APIs take 64."""
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
_CALLS = ("tool_use", "function_call")


class Call(NamedTuple):
    """A call that the client's side is to answer."""

    id: str
    name: str
    arguments: Any
    """JSON text, or what it says."""
    said: Dict
    """As it stands in the reply's items."""


class Answer(NamedTuple):
    """What was answered to a call of ours."""

    call: Call
    text: str
    attached: Dict | None
    """A user's message that belongs behind the results: media."""


@dataclass(slots=True)
class Heard:
    """What a model replied."""

    items: list[Dict]
    """As it goes back in a list."""
    calls: list[Call]
    is_whole: bool = True
    """Whether it ended by itself: what was cut off has calls that nobody may run."""
    prompt_tokens: object = None
    usage: Any = None
    id: str | None = None
    """Of the reply."""
    going_on: Dict = field(default_factory=dict)
    """What the next request says beside its list, such as a code container."""


@dataclass(slots=True)
class Beside:
    """What is ours where a reply called the caller's tools: put back there in every later list."""

    after: str
    """A hash of all that was replied to: the list, what goes beside it, and the tools."""
    ids: list[str]
    """Ids of the caller's calls."""
    calls: list[Dict]
    results: list[Dict]
    attached: list[Dict] = field(default_factory=list)
    inside: list[Dict] = field(default_factory=list)
    """What was answered inside before that reply."""
    was_streamed: bool = False
    """Whether the caller has all that was said inside as part of the reply, or only what the server did."""
    left_at: float | None = None
    """When lists stopped going on from there, in seconds since 1970; None: one still does."""


class Reader(ABC):
    """Takes the streams of one reply apart: the first one, and those that go on where one called only ours.

    What goes to the caller is one stream that is right in itself; nothing in it is ours. Texts go at once,
    with the thoughts that lead to them. From the first call on all is held until its stream ends, when it is
    known whose the calls are.

    Args:
        names: of our tools; without any, all goes on at once.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        self.hides_usage = False
        """Whether events that only tell the usage are not for the caller."""
        self.has_begun = False
        """Whether the stream that is read now said something, so that it cannot be asked again."""
        self.spent: Any = None
        """The usage of the streams before this one."""
        self.begin()

    @abstractmethod
    def begin(self) -> None:
        """Forget the last stream."""

    @abstractmethod
    def feed(self, event: Any) -> list[Any]:
        """Return what goes to the caller now."""

    @abstractmethod
    def heard(self) -> Heard:
        """Return what the stream said that ended now."""

    @abstractmethod
    def held(self) -> list[Any]:
        """Return what goes to the caller of what was held of a stream that another one follows."""

    @abstractmethod
    def end(self) -> list[Any]:
        """Return what was held of the last stream, and what ends it for the caller."""

    def go_on(self, names: Collection[str]) -> list[Any]:
        """Prepare for another stream, which may call these tools; return what of the last goes before it."""
        said, usage = self.held(), self.heard().usage
        self.has_begun, self.names, self.spent = False, names, summed(self.spent, usage)
        self.begin()
        return said


class Wire(ABC):
    """One API of a provider."""

    form: FormName
    list_key = "messages"
    """Where a request has its list."""
    system_key: str | None = None
    """Where it has its instructions beside the list."""
    call_key = "id"
    """Key of the id of a call."""
    shows_media = True
    """Whether a user's message can hold images and the like."""
    no_calls: Any = "none"
    """A request's `tool_choice` that forbids calls."""
    usage_key = ""
    """Where a streamed request asks for its usage, if it has to."""

    # Requests

    def said(self, request: Mapping[str, Any]) -> list[Any] | None:
        """Return the request's list; None: it is none that a view can be made of, and passes untouched."""
        return listed(request.get(self.list_key))

    def passing(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what is sent for a request that no view is made of."""
        return request

    def system(self, request: Mapping[str, Any]) -> Any:
        """Return what the request carries beside its list."""
        return None if self.system_key is None else request.get(self.system_key)

    def takes_tools(self, request: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Tell whether tools can be added to the request."""
        return True

    def named(self, request: Mapping[str, Any]) -> set[str]:
        """Return the names of the caller's own tools."""
        tools = [plain(tool) for tool in request.get("tools") or ()]
        return {str((tool.get("function") or tool.get("custom") or tool).get("name")) for tool in tools}

    def request(
        self, request: Mapping[str, Any], messages: list[Any], schemas: Sequence[Any], is_last: bool
    ) -> Dict:
        """Return what is sent: a view, and tools beside the caller's.

        Args:
            request: the caller's.
            messages: the view.
            schemas: tools of ours.
            is_last: whether the reply is the last one, so that none of ours may be called.
        """
        sent = {**request, self.list_key: messages}
        own = list(request.get("tools") or ())
        if schemas and not (is_last and own):
            sent["tools"] = [*own, *schemas]
            if is_last:
                sent["tool_choice"] = self.no_calls
        return sent

    def with_usage(self, request: Dict) -> Dict:
        """Return a streamed request whose stream tells the usage; itself, if it does."""
        return request

    # Requests of the library's own

    @abstractmethod
    def apart(self, request: Mapping[str, Any]) -> Dict:
        """Return a request without what it says to the model, and without what is for its answer alone."""

    @abstractmethod
    def again(self, sent: Mapping[str, Any]) -> Dict:
        """Return what was sent without what is for its answer alone.

        Raises:
            SummarizerError: it forces a tool, or the form of the answer.
        """

    @abstractmethod
    def asking(self, kept: Mapping[str, Any], instructions: str, text: str, room: int | None) -> Dict:
        """Return a request that asks for something of the library's own.

        Args:
            kept: what `apart` or `again` left of another one.
            instructions: what instructs the model; empty: as it was instructed.
            text: the user's message, behind those that are there.
            room: how many tokens the answer may take.
        """

    @abstractmethod
    def written(self, reply: Any) -> Said:
        """Return what a reply to such a request says.

        Raises:
            Fault: an error.
        """

    # Replies

    def refusal(self, reply: Any) -> str | None:  # noqa: ARG002
        """Return what a reply, or an event of a stream, says of a failure that nothing raises."""
        return None

    @abstractmethod
    def heard(self, reply: Any) -> Heard:
        """Return what a reply says."""

    @abstractmethod
    def handed(self, replies: Sequence[Any], names: Collection[str], usage: Any) -> Any:
        """Return the last reply for the caller: a copy without calls of ours, with the usage of all.

        Those before it were answered inside. What the server did in them is handed on, since the last one may
        give its results or speak of it.
        """

    @abstractmethod
    def reader(self, names: Collection[str], request: Mapping[str, Any]) -> Reader:
        """Return what takes the streams of a reply apart; without names it only listens."""

    # Lists

    @abstractmethod
    def results(self, answers: Sequence[Answer]) -> list[Dict]:
        """Return what answers calls of ours, as it stands in a list or in a message of it."""

    def attached(self, answers: Sequence[Answer]) -> list[Dict]:
        """Return what belongs behind the results."""
        return [answer.attached for answer in answers if answer.attached is not None]

    def turn(self, request: Mapping[str, Any], heard: Heard, answers: Sequence[Answer]) -> list[Dict]:  # noqa: ARG002
        """Return what is put behind the list for a reply that called only ours."""
        return [*heard.items, *self.results(answers), *self.attached(answers)]

    def beside(self, after: str, heard: Heard, answers: Sequence[Answer]) -> Beside:
        """Return what is kept of a reply that called the caller's tools, and maybe ours."""
        ours = {answer.call.id for answer in answers}
        calls = [call.said for call in heard.calls if call.id in ours]
        his = [call.id for call in heard.calls if call.id not in ours]
        return Beside(after, his, calls, self.results(answers), self.attached(answers))

    @abstractmethod
    def calls_in(self, piece: Sequence[Any]) -> list[str]:
        """Return the ids of the calls in a piece of a list."""

    @abstractmethod
    def put_back(self, said: list[Any], place: int, beside: Beside) -> list[Any]:
        """Return a list with what is ours before and beside the caller's calls at a place."""


class BlockReader(Reader):
    """Reads streams whose events say which block, or item, of the reply they are of."""

    index_key: str

    def __init__(self, names: Collection[str]) -> None:
        self._first = 0
        """How many blocks of earlier streams the caller has."""
        self._places: dict[int, int] = {}
        super().__init__(names)

    def begin(self) -> None:
        """Forget the last stream."""
        self._first += len(self._places)
        self._places = {}
        """Index of a block in its stream -> where it stands for the caller."""
        self._waiting: list[Any] = []
        self._is_thought = self._has_calls = False

    def take(self, event: Any, begun: str | None = None) -> list[Any]:
        """Return what goes to the caller, given the next event of a block.

        Args:
            event: the event.
            begun: what kind of block it begins, "thought", "call" or another one; None: it begins none.
        """
        self._waiting.append(event)
        if begun is not None:
            self._is_thought = begun == "thought"
            self._has_calls |= begun == "call"
        is_held = self.names and (self._is_thought or self._has_calls)
        return [] if is_held else self.release()

    def release(self, gone: Collection[int] = ()) -> list[Any]:
        """Return the events that were held, but for those of blocks with these indexes."""
        released, self._waiting = self._waiting, []
        out = []
        for event in released:
            index = get(event, self.index_key)
            if index not in gone:
                place = self._places.setdefault(index, self._first + len(self._places))
                out.append(event if place == index else changed(event, **{self.index_key: place}))
        return out


def less(request: Mapping[str, Any], *names: str) -> Dict:
    """Return a request without these fields."""
    return {name: value for name, value in request.items() if name not in names}


def check_free(**forced: object) -> None:
    """Check that a request leaves it to the model what it answers.

    Args:
        forced: what may force it, by the name of its field: nothing, where it does not.

    Raises:
        SummarizerError: it does not.
    """
    for name, value in forced.items():
        if value:
            raise SummarizerError(f"the last request cannot be sent again: its {name} forces the answer")


def summed(one: Any, other: Any) -> Any:
    """Return two usages as one: numbers are added, what is no number is the later one's."""
    if one is None or other is None:
        return one if other is None else other
    if isinstance(other, int | float) and isinstance(one, int | float) and not isinstance(other, bool):
        return one + other
    if isinstance(other, BaseModel | Mapping) and isinstance(one, BaseModel | Mapping):
        earlier, later = dict(one), dict(other)
        both = {name: summed(earlier.get(name), later.get(name)) for name in earlier | later}
        return other.model_copy(update=both) if isinstance(other, BaseModel) else changed(other, **both)
    return other


def kept_apart(heard: Heard, key: str, names: Collection[str]) -> None:
    """Give calls of our tools ids of their own, if another call of the reply has the same id.

    Where a provider gives no ids, a proxy may put the same one at each call, such as `call_1`.

    Args:
        heard: the reply.
        key: key of the id of a call.
        names: tools of ours.
    """
    taken = {call.id for call in heard.calls if call.name not in names}
    for place, call in enumerate(heard.calls):
        if call.name not in names:
            continue
        own, number = call.id, 2
        while own in taken:
            own, number = f"{call.id[:_MOST_OF_ID]}_{number}", number + 1
        taken.add(own)
        if own != call.id:
            call.said[key] = own
            heard.calls[place] = call._replace(id=own)


def is_thought(part: Any) -> bool:
    """Tell whether a block of Anthropic's, or an item of the Responses API, is a thought."""
    return get(part, "type") in _THOUGHTS


def not_ours(said: Iterable[Any], names: Collection[str], *, leads_to_next: bool) -> list[int]:
    """Return which blocks, or items, are no calls of ours, nor thoughts that led to these alone.

    Args:
        said: the blocks.
        names: tools of ours.
        leads_to_next: whether a thought may stand only before what it led to.
    """
    kept: list[int] = []
    thoughts: list[int] = []
    is_ours = False
    for place, one in enumerate(said):
        if is_thought(one):
            thoughts = [place] if is_ours and leads_to_next else [*thoughts, place]
            is_ours = False
        elif get(one, "type") in _CALLS and get(one, "name") in names:
            is_ours = True
        else:
            kept += [*thoughts, place]
            thoughts = []
    return kept if is_ours else [*kept, *thoughts]


def done_by_server(said: Iterable[Any]) -> list[Any]:
    """Return what the server did in a reply that called only our tools, with the thoughts before it.

    `said`: blocks of Anthropic's, or items of the Responses API.
    """
    did: list[Any] = []
    thoughts: list[Any] = []
    for one in said:
        if is_thought(one):
            thoughts.append(one)
        elif get(one, "type") in _CALLS:
            thoughts = []
        elif get(one, "type") not in ("text", "message"):
            did += [*thoughts, one]
            thoughts = []
    return did


def listed(value: Any) -> list[Any] | None:
    """Return a list of messages, as an SDK takes any iterable of them; None: it is no such thing."""
    is_of_messages = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    return list(value) if is_of_messages else None


def changed(value: Any, **update: Any) -> Any:
    """Return a copy of a dict, or of an SDK's object, with other values; None: as if it had not been set."""
    unset = [name for name, given in update.items() if given is None]
    if isinstance(value, Mapping):
        return type(value)(**less({**value, **update}, *unset))
    copied = value.model_copy(update=update)
    copied.model_fields_set.difference_update(unset)
    return copied


def as_object(value: Any) -> Any:
    """Return a dict as an object with attributes, as SDKs give it."""
    if not isinstance(value, Mapping):
        return value
    return json.loads(json.dumps(value), object_hook=lambda found: SimpleNamespace(**found))


def plain(value: Any) -> Any:
    """Return an SDK's object as JSON-like data, what was set alone."""
    return value.model_dump(mode="json", exclude_unset=True) if isinstance(value, BaseModel) else value
