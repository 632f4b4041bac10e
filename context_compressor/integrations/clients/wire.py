"""What a provider's API is to a wrapped client: how requests, replies and streams are read and written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel

from context_compressor.errors import SummarizerError
from context_compressor.integrations.asked import Said
from context_compressor.messages.forms import FormName
from context_compressor.messages.plain import get

Dict = dict[str, Any]

_MOST_OF_ID = 60
"""Characters that are kept of an id when another one is made of it: APIs take 64."""


class Call(NamedTuple):
    """A call that the client's side is to answer."""

    id: str
    name: str
    arguments: Any
    """JSON text, or what it says."""


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


class Reader(Protocol):
    """Takes the streams of one reply apart: the first one, and those that go on where one called only ours.

    What goes to the caller is one stream that is right in itself; nothing in it is ours.
    """

    has_begun: bool
    """Whether the stream that is read now said something, so that it cannot be asked again."""

    def feed(self, event: Any) -> list[Any]:
        """Return what goes to the caller now."""
        ...

    def heard(self) -> Heard:
        """Return what the stream said that ended now."""
        ...

    def go_on(self, names: Collection[str]) -> None:
        """Prepare for another stream, which may call these tools, instead of ending the last one."""
        ...

    def end(self) -> list[Any]:
        """Return what ends the stream for the caller."""
        ...


class Wire(Protocol):
    """One API of a provider."""

    form: FormName
    call_key: str
    """Key of the id of a call."""
    shows_media: bool
    """Whether a user's message can hold images and the like."""

    def said(self, request: Mapping[str, Any]) -> list[Any] | None:
        """Return the request's list; None: it is none that a view can be made of, and passes untouched."""
        ...

    def passing(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what is sent for a request that no view is made of."""
        ...

    def system(self, request: Mapping[str, Any]) -> Any:
        """Return what the request carries beside its list."""
        ...

    def takes_tools(self, request: Mapping[str, Any]) -> bool:
        """Tell whether tools can be added to the request."""
        ...

    def named(self, request: Mapping[str, Any]) -> set[str]:
        """Return the names of the caller's own tools."""
        ...

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
        ...

    def apart(self, request: Mapping[str, Any]) -> Dict:
        """Return a request without what it says to the model, and without what is for its answer alone."""
        ...

    def again(self, sent: Mapping[str, Any]) -> Dict:
        """Return what was sent without what is for its answer alone.

        Raises:
            SummarizerError: it forces a tool, or the form of the answer.
        """
        ...

    def asking(self, kept: Mapping[str, Any], instructions: str, text: str, room: int | None) -> Dict:
        """Return a request that asks for something of the library's own.

        Args:
            kept: what `apart` or `again` left of another one.
            instructions: what instructs the model; empty: as it was instructed.
            text: the user's message, behind those that are there.
            room: how many tokens the answer may take.
        """
        ...

    def written(self, reply: Any) -> Said:
        """Return what a reply to such a request says.

        Raises:
            Fault: an error.
        """
        ...

    def refusal(self, reply: Any) -> str | None:
        """Return what a reply, or an event of a stream, says of a failure."""
        ...

    def heard(self, reply: Any) -> Heard:
        """Return what a reply says."""
        ...

    def handed(self, replies: Sequence[Any], names: Collection[str], usage: Any) -> Any:
        """Return the last reply for the caller: a copy without calls of ours, with the usage of all.

        Those before it were answered inside. What the server did in them is handed on, since the last one may
        give its results or speak of it.
        """
        ...

    def turn(self, request: Mapping[str, Any], heard: Heard, answers: Sequence[Answer]) -> list[Dict]:
        """Return what is put behind the list for a reply that called only ours."""
        ...

    def beside(self, after: str, heard: Heard, answers: Sequence[Answer]) -> Beside:
        """Return what is kept of a reply that called the caller's tools, and maybe ours."""
        ...

    def said_calls(self, heard: Heard) -> list[Dict]:
        """Return the calls of a reply as they stand in its items."""
        ...

    def calls_in(self, piece: Sequence[Any]) -> list[str]:
        """Return the ids of the calls in a piece of a list."""
        ...

    def put_back(self, said: list[Any], place: int, beside: Beside) -> list[Any]:
        """Return a list with what is ours before and beside the caller's calls at a place."""
        ...

    def reader(self, names: Collection[str], request: Mapping[str, Any]) -> Reader:
        """Return what takes the streams of a reply apart; without names it only listens."""
        ...


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
    if isinstance(other, BaseModel) and isinstance(one, BaseModel):
        earlier, later = dict(one), dict(other)
        both = {name: summed(earlier.get(name), later.get(name)) for name in earlier | later}
        return other.model_copy(update=both)
    if isinstance(other, dict) and isinstance(one, Mapping):
        return {**one, **{name: summed(one.get(name), value) for name, value in other.items()}}
    return other


def kept_apart(heard: Heard, said: Sequence[Dict], key: str, names: Collection[str]) -> None:
    """Give calls of our tools ids of their own, if another call of the reply has the same id.

    Where a provider gives no ids, a proxy may put the same one at each call, such as `call_1`.

    Args:
        heard: the reply.
        said: its calls as they stand in its items.
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
            said[place][key] = own
            heard.calls[place] = call._replace(id=own)


def done_by_server(said: Iterable[Any]) -> list[Any]:
    """Return what the server did in a reply that called only our tools, with the thoughts before it.

    `said`: blocks of Anthropic's, or items of the Responses API.
    """
    did: list[Any] = []
    thoughts: list[Any] = []
    for one in said:
        match get(one, "type"):
            case "thinking" | "redacted_thinking" | "reasoning":
                thoughts.append(one)
            case "tool_use" | "function_call":
                thoughts = []
            case "text" | "message":
                pass
            case _:
                did += [*thoughts, one]
                thoughts = []
    return did


def listed(value: Any) -> list[Any] | None:
    """Return a list of messages, as an SDK takes any iterable of them; None: it is no such thing."""
    is_of_messages = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    return list(value) if is_of_messages else None


def changed(model: Any, **update: Any) -> Any:
    """Return a copy of an SDK's object with other values; a value of None is as if it had not been set."""
    copied = model.model_copy(update=update)
    copied.model_fields_set.difference_update(name for name, value in update.items() if value is None)
    return copied


def plain(value: Any) -> Any:
    """Return an SDK's object as JSON-like data, what was set alone."""
    return value.model_dump(mode="json", exclude_unset=True) if isinstance(value, BaseModel) else value
