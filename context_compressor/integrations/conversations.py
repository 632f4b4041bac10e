"""Many conversations behind one adapter: a request's list is found again by its key or its own messages."""

from __future__ import annotations

import inspect
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from context_compressor.compression.config import as_config
from context_compressor.errors import InvalidArgumentError, InvalidStateError, check_members
from context_compressor.events import CompressionEvent, EventHook
from context_compressor.integrations.lists import beginning_of, count_same, spoken_of
from context_compressor.memory.base import check_collaborators
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.memory.reporting import CompressionStats
from context_compressor.memory.saved import SAVED_KEY
from context_compressor.memory.stateless import (
    Call,
    CompressionResult,
    KeptState,
    compress,
    memory_behind,
)
from context_compressor.messages.chat import as_list
from context_compressor.messages.forms import Form, FormName, as_form
from context_compressor.offload.guide import COMPRESS_TOOL, MOST_TOOLS, TOOL_NAMES
from context_compressor.offload.store import InMemoryOffloadStore, OffloadStore
from context_compressor.summarizers.faults import is_overflow, limit_in, refuses_tools
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.tiktoken import TiktokenCounter
from context_compressor.tools.tools import OffloadTools, Wire

logger = logging.getLogger(__name__)

MOST = 1_000
"""Conversations whose states are kept in this process: with more, those unused for longest go."""
MOST_MEMORIES = 64
"""Of those, so many have their memory at hand; the others' is made again from state and list, which takes
some milliseconds for each hundred messages."""
MOST_UNDER_A_NAME = 8
"""Lists under one key whose states are kept beyond this process: an agent's, and those of agents it calls."""
MOST_TOOLS_BESIDE = MOST_TOOLS - len(TOOL_NAMES - {COMPRESS_TOOL})
"""Where a request has more tools of the caller's, ours are left out."""
_VERSION = 1

KeyOf = Callable[[Any], str | Awaitable[str | None] | None]
"""Returns the key of a request's conversation; None: it is found by its messages alone."""


class States(Protocol):
    """Where states are kept beyond this process: anything with these two methods, over a database say."""

    async def get(self, key: str) -> dict[str, Any] | None:
        """Return what was set under a key, or None."""
        ...

    async def set(self, key: str, state: dict[str, Any]) -> None:
        """Keep a state, JSON-like data, under a key."""
        ...


@dataclass(slots=True, eq=False)
class Conversation:
    """A list that was shown, and what is known of it."""

    name: str
    """Under which its state is kept: the caller's key, or what its messages begin with."""
    spoken: list[str]
    """What stands for each piece of the list but instructions, which may move, in order."""
    state: dict[str, Any]
    store: OffloadStore
    stats: CompressionStats | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    """JSON-like data that an adapter keeps with it, saved with the state; what goes on from it shares it."""

    @property
    def has_left(self) -> bool:
        """Whether something has left its view, so that there is something to read back."""
        return bool(((self.state.get(SAVED_KEY) or {}).get("ledger") or {}).get("entries"))


Fill = Callable[[list[Any], dict[str, Any]], list[Any]]
"""Returns what a view is made of, given a request's list and the notes of its conversation: an adapter puts
back what stands beside the list's own messages."""


@dataclass(slots=True)
class Shown:
    """What is to be sent for a request, and what it was made of."""

    messages: list[Any]
    """The view, in the adapter's form; unaltered messages are the list's own objects."""
    conversation: Conversation
    said: list[Any] = field(repr=False)
    system: Any = field(default=None, repr=False)
    is_kept_elsewhere: bool = False
    """Whether the framework keeps the state itself."""
    may_offer: bool = False
    """Whether the request can offer the read-back tools, which its stand-ins then name."""
    model: str = ""
    """Whom it goes to."""
    refused: bool | int = False
    """Whether it follows a refusal as too long, or the number of tokens that this named."""
    follows_refused_tools: bool = False
    before: Conversation | None = field(default=None, repr=False)
    """What it goes on from, where it offers tools that may be refused."""

    @property
    def offers_tools(self) -> bool:
        """Whether the request is to offer the read-back tools: there is something to read back."""
        return self.may_offer and self.conversation.has_left

    @property
    def state(self) -> dict[str, Any]:
        """JSON-like data by which another process goes on with the same view."""
        return dict(self.conversation.state)


class Conversations:
    """Make views for requests of many conversations, each on the state that its list goes on from.

    A list is data of its own: a view is made of its messages alone, whatever state it begins with, so that no
    word of a conversation can come into another one. A state only spares what was paid for before.

    Args:
        form: the shape of messages.
        store: where texts go; nothing is removed from it, since other conversations may name the same texts.
            None: a store in memory for each conversation. What it no longer has is read from the list.
        summarizer: who writes summaries; extractive when None.
        on_event: receives every event; each is logged as well.
        counter: measures messages; offline tiktoken when None.
        states: where states are kept beyond this process; None: nowhere.
        with_tools: whether the agents have the read-back tools, which stand-ins then name.
        with_words: whether states have the words of stand-ins; else those are in the store, and states name
            them.
        fields: any field of `CompressionConfig`.

    Raises:
        InvalidArgumentError: a field that there is not, or something of the wrong kind.
        ValueError: thresholds that cannot be, or cannot work together.
    """

    def __init__(
        self,
        form: FormName | Form = "chat",
        *,
        store: OffloadStore | None = None,
        summarizer: Summarizer | None = None,
        on_event: EventHook | None = None,
        counter: TokenCounter | None = None,
        states: States | None = None,
        with_tools: bool = True,
        with_words: bool = True,
        **fields: Any,
    ) -> None:
        check_collaborators(None, store, summarizer, counter, on_event)
        if states is not None:
            check_members(
                "states", states, "an object with async get(key) and set(key, state)", ("get", "set")
            )
        self.form = as_form(form)
        self.config = as_config(None, fields)
        self._store = store
        self._summarizer = summarizer
        self._counter = TiktokenCounter() if counter is None else counter
        self._on_event = on_event
        self._states = states
        self._with_tools = with_tools
        self._with_words = with_words
        self._without_tools: OrderedDict[str, None] = OrderedDict()
        """Models that refused a request with tools of ours, and took it without."""
        self._known: OrderedDict[int, Conversation] = OrderedDict()

    async def view(
        self,
        messages: Iterable[Any],
        *,
        key: str | None = None,
        system: Any = None,
        state: Mapping[str, Any] | None = None,
        with_tools: bool | None = None,
        tools_beside: int = 0,
        model: str = "",
        fill: Fill | None = None,
    ) -> Shown:
        """Return what to send for a request's list.

        Args:
            messages: the whole conversation so far.
            key: names the conversation; None: what its messages begin with. Several lists may have one key.
            system: what the request carries beside the messages; it is counted.
            state: `Shown.state` of an earlier request, where the framework keeps it.
            with_tools: whether this request can offer the read-back tools; None: as all can.
            tools_beside: how many tools of the caller's it offers.
            model: whom it goes to: what refused our tools once is not offered them again.
            fill: puts in what the list does not have; the conversation is found by the list as it is.

        Raises:
            InvalidArgumentError: the key is no string.
            InvalidMessageError: a message is malformed.
            InvalidStateError: a state is malformed.
            ContextOverflowError, RedactionError, SummarizerError, OffloadError: as `CompressedMemory.view`.
        """
        if not isinstance(key, str | None):
            raise InvalidArgumentError(f"key: expected a string or None, got {type(key).__name__}")
        said = as_list(messages)
        earlier = await self._earlier(said, key, state)
        may_offer = self._with_tools if with_tools is None else with_tools
        may_offer = may_offer and tools_beside <= MOST_TOOLS_BESIDE and self.offers_tools_to(model)
        filled, spoken = said, None
        if fill is not None:
            filled, spoken = fill(said, earlier.notes), spoken_of(self.form.pieces(said))
        asked = Shown([], earlier, filled, system, state is not None, may_offer, model)
        return await self._show(asked, spoken)

    def offers_tools_to(self, model: str) -> bool:
        """Tell whether a model has not refused the read-back tools."""
        return model not in self._without_tools

    async def has_left(self, messages: Iterable[Any], *, key: str | None = None) -> bool:
        """Tell whether something has left the view of the conversation that a list goes on."""
        return (await self._earlier(as_list(messages), key, None)).has_left

    async def run_tool(
        self, shown: Shown, name: str, arguments: Mapping[str, Any] | str | None, wire: Wire = "chat"
    ) -> tuple[str, dict[str, Any] | None]:
        """Return the answer of a read-back tool, and the message that belongs behind it, if any.

        Args:
            shown: the request whose model asks.
            name: the tool's name.
            arguments: a mapping, or its JSON text.
            wire: the form of the message.
        """
        async with self.memory(shown) as memory:
            tools = OffloadTools(memory, wire)
            return await tools.call(name, arguments), await tools.attachment(name, arguments)

    @asynccontextmanager
    async def memory(self, shown: Shown) -> AsyncIterator[CompressedMemory]:
        """Give the memory of a conversation as it was at a request, for as long as it is read.

        Another conversation that begins with the same messages may go on from there meanwhile: it has a
        memory of its own then, so that no word of it is found here.
        """
        one, pieces = shown.conversation, self.form.pieces(shown.said)
        async with memory_behind(one.state, self._call(one), pieces) as memory:
            yield memory

    def _call(self, one: Conversation) -> Call:
        return Call(self.config, one.store, self._summarizer, self._counter, self.form, self._with_words)

    async def _show(self, asked: Shown, spoken: list[str] | None = None) -> Shown:
        """Return what is to be sent, given what that goes on from."""
        earlier = asked.conversation
        result = await compress(
            asked.said,
            self._call(earlier),
            on_event=self._tell,
            state=earlier.state,
            system=asked.system,
            refused=asked.refused,
            names_tools=asked.may_offer,
        )
        assert isinstance(result.state, KeptState)
        assert result.state.kept is not None
        spoken = result.state.kept.spoken() if spoken is None else spoken
        stats = _added(earlier.stats, result)
        shown = Conversation(earlier.name, spoken, result.state, earlier.store, stats, earlier.notes)
        self._keep(shown)
        if not asked.is_kept_elsewhere:
            await self._save(earlier.name)
        made = replace(asked, messages=result.messages, conversation=shown)
        return replace(made, before=asked.before or earlier if made.offers_tools else None)

    # After the request

    async def record_usage(self, shown: Shown, prompt_tokens: object) -> None:
        """Note how many tokens the provider counted for a request; what is no such number says nothing.

        Nor does a number that comes when the conversation has gone on, and with it the view that is counted.
        To be called for each request that was taken: a model that takes one without our tools, after it
        refused them, is remembered.
        """
        if shown.follows_refused_tools:
            self._without_tools[shown.model] = None
            while len(self._without_tools) > MOST:
                self._without_tools.popitem(last=False)
        state = shown.conversation.state
        kept = state.kept if isinstance(state, KeptState) else None
        if kept is None or not isinstance(prompt_tokens, int) or prompt_tokens <= 0:
            return
        kept.memory.record_usage(prompt_tokens)
        budget = kept.memory._tracker.state.budget
        state[SAVED_KEY] = {**state[SAVED_KEY], "calibration": budget.to_dict()}
        if not shown.is_kept_elsewhere:
            await self._save(shown.conversation.name)

    async def after_refusal(
        self, shown: Shown, error: BaseException | str, *, has_offered: bool | None = None
    ) -> Shown | None:
        """Return what to send once more after a refusal; None: it says something else, or did so before.

        That is a smaller view where the request was too long, and one without our tools, of which it says
        nothing, where a request with them was refused for tools.

        Args:
            shown: what was refused.
            error: what the provider said.
            has_offered: whether the request had tools of ours; None: as `shown` says.
        """
        one = shown.conversation
        if is_overflow(error):
            asked = replace(shown, refused=limit_in(error) or True)
            return None if shown.refused else await self._show(asked, one.spoken)
        has_offered = shown.offers_tools if has_offered is None else has_offered
        if not has_offered or shown.follows_refused_tools or not refuses_tools(error):
            return None
        asked = replace(shown, before=None, may_offer=False, follows_refused_tools=True)
        if shown.before is None:  # it names no tools
            return asked
        asked.conversation = replace(shown.before, stats=one.stats)
        return await self._show(asked, one.spoken)

    async def note(self, shown: Shown, key: str, value: Any) -> None:
        """Keep JSON-like data with the conversation of a request."""
        shown.conversation.notes[key] = value
        if not shown.is_kept_elsewhere:
            await self._save(shown.conversation.name)

    @asynccontextmanager
    async def reading(
        self,
        messages: Iterable[Any],
        *,
        key: str | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[CompressedMemory]:
        """Give the memory of a list for read-back tools that run between two requests, in any process.

        Nothing is shown, and no event comes of it. The arguments and errors are those of `view`.
        """
        said = as_list(messages)
        one = await self._earlier(said, key, state)
        async with memory_behind(one.state, self._call(one), self.form.pieces(said)) as memory:
            yield memory

    # Finding

    async def _earlier(
        self, said: Sequence[Any], key: str | None, state: Mapping[str, Any] | None
    ) -> Conversation:
        """Return what is known of a list's conversation."""
        if key is not None and state is not None:
            return self._known_as(key, state)
        pieces = self.form.pieces(said)
        name = beginning_of(pieces) if key is None else key
        return await self._find(name, pieces) if state is None else self._known_as(name, state)

    async def _find(self, name: str, pieces: Sequence[Sequence[Any]]) -> Conversation:
        """Return the conversation under a name that a list shares most with, its state included."""
        found = [one for one in list(self._known.values()) if one.name == name]
        for saved in await self._saved(name) or ():
            if all(saved["state"] != one.state for one in found):
                one = Conversation(name, saved["spoken"], saved["state"], self._store_for())
                found.append(replace(one, notes=dict(saved.get("notes", {}))))
        if len(found) > 1:
            spoken = spoken_of(pieces)
            shared = [count_same(one.spoken, spoken) for one in found]
            # Of those that share as much the last one is what another process did since.
            return max(zip(shared, range(len(found)), found, strict=True))[-1]
        return found[0] if found else Conversation(name, [], {}, self._store_for())

    def _known_as(self, name: str, state: Mapping[str, Any]) -> Conversation:
        """Return the conversation that has this very state, its memory at hand; else one with that alone.

        An older state, or a branch, finds the texts where the newest one of that name has them.
        """
        if not isinstance(state, Mapping):
            raise InvalidStateError(f"state: expected a dict, got {type(state).__name__}")
        named = [one for one in list(self._known.values()) if one.name == name]
        same = next((one for one in named if one.state == state), None)
        store = named[-1].store if named else self._store_for()
        return same or Conversation(name, [], dict(state), store)

    def _store_for(self) -> OffloadStore:
        return InMemoryOffloadStore() if self._store is None else self._store

    # Keeping

    def _keep(self, shown: Conversation) -> None:
        """Keep a conversation in the place of what it goes on from, and no more of all than is bounded."""
        for one in list(self._known.values()):
            if one.name == shown.name and one.spoken == shown.spoken[: len(one.spoken)]:
                del self._known[id(one)]
        self._known[id(shown)] = shown
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        for one in list(self._known.values())[:-MOST_MEMORIES]:
            if isinstance(one.state, KeptState):
                one.state.kept = None

    async def _saved(self, name: str) -> list[dict[str, Any]] | None:
        """Return what was saved under a name; None where it cannot be read now."""
        try:
            record = None if self._states is None else await _done(self._states.get(name))
        except Exception:
            logger.warning("states: what stands under %r was not read", name, exc_info=True)
            return None
        if record is None:
            return []
        found = record.get("conversations") if isinstance(record, Mapping) else None
        if not isinstance(found, list) or record.get("version") != _VERSION:
            raise InvalidStateError(
                f"states: what stands under {name!r} was not set by an adapter of this release"
            )
        return found

    async def _save(self, name: str) -> None:
        if self._states is None:
            return
        saved = await self._saved(name)
        if saved is None:  # written over, it would be lost
            return
        kept = [one for one in list(self._known.values()) if one.name == name]
        others = [one for one in saved if not any(_goes_on(one, now) for now in kept)]
        ours = [{"spoken": one.spoken, "state": dict(one.state), "notes": one.notes} for one in kept]
        newest = [*others, *ours][-MOST_UNDER_A_NAME:]
        try:
            await _done(self._states.set(name, {"version": _VERSION, "conversations": newest}))
        except Exception:
            logger.warning("states: nothing was set under %r", name, exc_info=True)

    async def _tell(self, event: CompressionEvent) -> None:
        logger.info("%s", event)
        told = None if self._on_event is None else self._on_event(event)
        if inspect.isawaitable(told):
            await told

    # Looking

    def stats(self, key: str | None = None) -> CompressionStats | None:
        """Return where the newest conversation under a key stands, or the newest of all; None: none is."""
        newest = reversed(list(self._known.values()))
        return next((one.stats for one in newest if key is None or one.name == key), None)

    def size(self) -> int:
        """Return how many conversations are kept in this process."""
        return len(self._known)


async def _done(answer: Any) -> Any:
    """Return what a method of `States` gave, awaited where it is one of asyncio's."""
    return await answer if inspect.isawaitable(answer) else answer


async def key_of(key: KeyOf | None, request: Any) -> str | None:
    """Return the key that a caller's function gives for a request.

    Raises:
        InvalidArgumentError: it gave neither a string nor None, or failed.
    """
    try:
        found = None if key is None else key(request)
        if inspect.isawaitable(found):
            found = await found
    except Exception as error:
        raise InvalidArgumentError(
            f"key: the function that names a conversation failed: {error!r}"
        ) from error
    if not isinstance(found, str | None):
        raise InvalidArgumentError(
            f"key: expected a function that returns a string or None, got {found!r:.200}"
        )
    return found


def _goes_on(saved: Mapping[str, Any], now: Conversation) -> bool:
    """Tell whether a conversation goes on where a saved one ends."""
    return bool(saved["spoken"] == now.spoken[: len(saved["spoken"])])


def _added(earlier: CompressionStats | None, result: CompressionResult) -> CompressionStats:
    """Return where a conversation stands, with what its earlier requests came to."""
    now = result.stats
    if earlier is None:
        return now
    return replace(
        now,
        events=earlier.events + now.events,
        summarizer_calls=earlier.summarizer_calls + now.summarizer_calls,
        summarizer_input_tokens=earlier.summarizer_input_tokens + now.summarizer_input_tokens,
        summarizer_output_tokens=earlier.summarizer_output_tokens + now.summarizer_output_tokens,
        summarizer_seconds=earlier.summarizer_seconds + now.summarizer_seconds,
    )
