"""Many conversations behind one adapter: a request's list is found again by its key or its own messages."""

from __future__ import annotations

import inspect
import logging
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_
from typing import Any, Protocol, Unpack

from context_compressor.core.config import ConfigFields, as_config
from context_compressor.core.edits import ItemKey
from context_compressor.errors import InvalidArgumentError, InvalidStateError, check_members
from context_compressor.events import CompressionEvent, EventHook
from context_compressor.integrations.asked import Own, OwnModel, at_hand
from context_compressor.integrations.observed import as_observer
from context_compressor.memory.base import check_collaborators
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.memory.kept import (
    Saved,
    conversations_in,
    is_newer,
    is_over,
    left_in,
    named_in,
    record_of,
)
from context_compressor.memory.listing import Said
from context_compressor.memory.reporting import CompressionStats
from context_compressor.memory.stateless import (
    Call,
    End,
    Reply,
    compress,
    let_go,
    memory_behind,
)
from context_compressor.messages.forms import Form, FormName, as_form
from context_compressor.messages.plain import as_list
from context_compressor.offload.guide import MOST_TOOLS, READ_BACK
from context_compressor.offload.store import InMemoryOffloadStore, OffloadStore
from context_compressor.summarizers.faults import is_overflow, limit_in, refuses_tools
from context_compressor.summarizers.protocol import Rules, Summarizer
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.tiktoken import as_counter
from context_compressor.tools.tools import OffloadTools, Wire

logger = logging.getLogger(__name__)

MOST = 1_000
"""Conversations whose states are kept in this process: with more, those unused for longest go."""
MOST_MEMORIES = 128
"""Of those, so many have their memory at hand; the others' is made again from state and list, which takes
some milliseconds for each hundred messages."""
MOST_TOOLS_BESIDE = MOST_TOOLS - len(READ_BACK)
"""If a request has more tools of the caller's than this, ours are left out."""

KeyOf = Callable[[Any], str | Awaitable[str | None] | None]
"""Returns the key of a request's conversation; None: it is found by its messages alone."""


class States(Protocol):
    """Where states are kept beyond this process: anything with these two methods.

    `SQLAlchemyStates` and `RedisStates` have `exchange` as well, so that nobody writes over what others set.
    """

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
    end: End
    """Where its last request ended."""
    store: OffloadStore
    stats: CompressionStats | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    """JSON-like data that an adapter keeps with it, saved with the state; what goes on from it shares it."""
    key: str | None = None
    """The key that its events carry."""
    left_at: float | None = None
    """When lists began to say something else in its place, in seconds since 1970; None: they do not."""
    sent: tuple[Any, Collection[ItemKey]] | None = field(default=None, repr=False)
    """What an adapter sent last for it, and had an answer to, and the keys of the view in it; not saved."""

    @property
    def state(self) -> Mapping[str, Any]:
        """Its state, JSON-like data."""
        return self.end.state

    @property
    def has_left(self) -> bool:
        """Whether something has left its view, so that there is something to read back."""
        return self.end.has_left

    def to_saved(self) -> Saved:
        """Return its state as it is kept beyond this process."""
        said = {"spoken": self.spoken, "state": dict(self.state), "notes": self.notes}
        return said if self.left_at is None else {**said, "left_at": self.left_at}

    def goes_on_from(self, spoken: Sequence[str]) -> bool:
        """Tell whether it begins with the whole list of another conversation."""
        return bool(spoken == self.spoken[: len(spoken)])


@dataclass(frozen=True, slots=True)
class _Found:
    """What is known of the list of a request."""

    best: Conversation
    """The conversation that it goes on with."""
    elsewhere: Sequence[Conversation] = ()
    """Conversations under its name that only other processes know."""
    is_named: bool = True
    """Whether the caller gave a key for it."""
    is_handed: bool = False
    """Whether it came with the list, which has its place then, whatever it says."""
    fault: Exception | None = None
    """Why what is kept under its name was not read."""


Fill = Callable[[list[Any], dict[str, Any]], list[Any]]
"""Returns what a view is made of, given a request's list and the notes of its conversation: an adapter puts
back what stands beside the list's own messages."""


@dataclass(slots=True)
class Shown:
    """What is to be sent for a request, and what it was made of."""

    messages: list[Any]
    """The view, in the adapter's form; unaltered messages are the list's own objects."""
    conversation: Conversation
    said: Said = field(repr=False)
    system: Any = field(default=None, repr=False)
    is_kept_elsewhere: bool = False
    """Whether the framework keeps the state itself."""
    may_offer: bool = False
    """Whether the request can offer the read-back tools, which its stand-ins then name."""
    model: str = ""
    """The model that it goes to."""
    refused: bool | int = False
    """Whether it follows a refusal as too long; or the number of tokens that the refusal named."""
    follows_refused_tools: bool = False
    own: Own | None = field(default=None, repr=False)
    """The agent's own model, as the request asks it."""
    held: Collection[ItemKey] = field(default=frozenset(), repr=False)
    """The keys of what the view shows."""
    before: Conversation | None = field(default=None, repr=False)
    """The state that it went on from, kept if it offers tools, which may be refused."""

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
        store: where texts go; None: a store in memory for each conversation. What no list has said for
            `branch_seconds` is removed; what a store no longer has is read from the list.
        summarizer: who writes summaries, such as an `OwnModel`; "rules" or None: no model.
        on_event: receives every event; each is logged as well.
        counter: measures messages, or the name of a model; offline tiktoken when None.
        states: where states are kept beyond this process; None: nowhere.
        with_tools: whether the agents have the read-back tools, which stand-ins then name.
        with_words: whether states have the words of stand-ins; else those are in the store, and states name
            them.
        observe: whether adapters only look on, and where they write what they see.
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
        summarizer: Summarizer | Rules | None = None,
        on_event: EventHook | None = None,
        counter: TokenCounter | str | None = None,
        states: States | None = None,
        with_tools: bool = True,
        with_words: bool = True,
        observe: bool | str | os.PathLike[str] = False,
        **fields: Unpack[ConfigFields],
    ) -> None:
        check_collaborators(None, store, summarizer, counter, on_event)
        if states is not None:
            check_members(
                "states", states, "an object with async get(key) and set(key, state)", ("get", "set")
            )
        self.form = as_form(form)
        self.config = as_config(None, fields, Conversations)
        self._store = store
        self._summarizer = summarizer
        self._counter = as_counter(counter)
        self.observer = as_observer(observe, self._counter, self.form)
        """What is told of each request where nothing is to be changed; None: views are made."""
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
        label: str | None = None,
        own: Own | None = None,
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
            label: what events call the conversation; None: the key.
            own: the agent's own model, which an `OwnModel` asks for this request's events; None: rules write.

        Raises:
            InvalidArgumentError: the key is no string.
            InvalidMessageError: a message is malformed.
            InvalidStateError: a state is malformed.
            ContextOverflowError, RedactionError, SummarizerError, OffloadError: as `CompressedMemory.view`.
        """
        if not isinstance(key, str | None):
            raise InvalidArgumentError(f"key: expected a string or None, got {type(key).__name__}")
        said = Said(as_list(messages), self.form)
        found = await self._earlier(said, key, state)
        found.best.key = key if label is None else label
        may_offer = self._with_tools if with_tools is None else with_tools
        may_offer = may_offer and tools_beside <= MOST_TOOLS_BESIDE and self.offers_tools_to(model)
        filled, spoken = said, None
        if fill is not None:
            items = fill(list(said.items), found.best.notes)
            if len(items) != len(said.items) or not all(map(is_, items, said.items)):
                filled, spoken = Said(items, self.form), said.names()
        if own is not None and found.best.sent is not None:
            last, held = found.best.sent
            own = own._replace(last=last, held=held)
        asked = Shown([], found.best, filled, system, state is not None, may_offer, model, own=own)
        return await self._show(asked, found, spoken)

    def offers_tools_to(self, model: str) -> bool:
        """Tell whether a model has not refused the read-back tools."""
        return model not in self._without_tools

    async def has_left(self, messages: Iterable[Any], *, key: str | None = None) -> bool:
        """Tell whether something has left the view of the conversation that a list goes on."""
        return (await self._earlier(Said(as_list(messages), self.form), key, None)).best.has_left

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
        one = shown.conversation
        with at_hand(shown.own):
            async with memory_behind(one.end, self._call(one, shown), shown.said) as memory:
                yield memory

    def _call(self, one: Conversation, shown: Shown | None = None) -> Call:
        writer = self._summarizer
        if isinstance(writer, OwnModel) and shown is not None and shown.own is None:
            writer = None  # the request's model is not known
        return Call(self.config, one.store, writer, self._counter, self.form, self._with_words)

    async def _show(self, asked: Shown, found: _Found, spoken: list[str] | None = None) -> Shown:
        """Return what to send, given the conversation that it goes on from."""
        earlier, now = asked.conversation, time.time()
        with at_hand(asked.own):
            reply = await self._compressed(asked, found.fault)
        stats, end = _added(earlier.stats, reply.stats), reply.end
        spoken = reply.spoken if spoken is None else spoken
        shown = replace(earlier, spoken=spoken, end=end, stats=stats, left_at=None)
        left = self._keep(shown, found, now)
        over = self._take_what_is_over(shown, found, now)
        for one in over:
            end.note_left(dict.fromkeys(_named(one) | left_in(one.state), one.left_at))
        others = [*self._known.values(), *(one for one in found.elsewhere if id(one) not in self._known)]
        rest = [one for one in others if not shown.goes_on_from(one.spoken) and one not in over]
        await let_go(end, now, lambda: {ref for one in rest for ref in _named(one)})
        # A state in which nothing happened says nothing that the list does not.
        has_news = bool(asked.refused or not earlier.spoken or reply.stats.events or left or over)
        if has_news and not asked.is_kept_elsewhere:
            for name in dict.fromkeys([shown.name, *(one.name for one in [*left, *over])]):
                await self._save(name, shown, left, over)
        held = frozenset(item.key for item in reply.memory._tracker.state.items)
        made = replace(asked, messages=reply.messages, conversation=shown, held=held)
        return replace(made, before=asked.before or earlier if made.offers_tools else None)

    async def _compressed(self, asked: Shown, fault: Exception | None) -> Reply:
        """Return a view. If the saved state cannot be read, make the view anew and report a failure."""
        earlier = asked.conversation
        tell = partial(self._tell, earlier.key)
        make = partial(
            compress,
            asked.said,
            self._call(earlier, asked),
            on_event=tell,
            system=asked.system,
            refused=asked.refused,
            names_tools=asked.may_offer,
        )
        try:
            if fault is not None and self.config.on_failure == "raise":
                raise fault
            reply = await make(state=earlier.end)
        except InvalidStateError as error:
            if self.config.on_failure == "raise":
                raise
            fault = error
            reply = await make(state=None)
        if fault is not None:
            tokens = reply.stats.view_tokens
            await tell(
                CompressionEvent(
                    kind="failure",
                    reason="what was kept of the conversation was not read",
                    tokens_before=tokens,
                    tokens_after=tokens,
                    error=f"{type(fault).__name__}: {fault}",
                )
            )
        return reply

    # After the request

    async def record_usage(self, shown: Shown, prompt_tokens: object, sent: Any = None) -> None:
        """Note how many tokens the provider counted for a request; what is no such number says nothing.

        Nor does a number that comes when the conversation has gone on, and with it the view that is counted.
        To be called for each request that was taken: a model that takes one without our tools, after it
        refused them, is remembered.

        Args:
            shown: the request.
            prompt_tokens: what the provider counted.
            sent: all that was sent; the next request's `Own.last`.
        """
        shown.conversation.sent = None if sent is None else (sent, shown.held)
        if shown.follows_refused_tools:
            self._without_tools[shown.model] = None
            while len(self._without_tools) > MOST:
                self._without_tools.popitem(last=False)
        counted = prompt_tokens if isinstance(prompt_tokens, int) else 0
        has_learnt = counted > 0 and shown.conversation.end.record_usage(counted)
        if has_learnt and not shown.is_kept_elsewhere:
            await self._save(shown.conversation.name, shown.conversation)

    async def after_refusal(
        self, shown: Shown, error: BaseException | str, *, has_offered: bool | None = None
    ) -> Shown | None:
        """Return what to send once more after a refusal; None: nothing that is sent would help.

        If the request was too long, that is a smaller view. If a request with our tools was refused because
        of tools, that is a view without them, which does not name them.

        Args:
            shown: what was refused.
            error: what the provider said.
            has_offered: whether the request had tools of ours; None: as `shown` says.
        """
        one = shown.conversation
        if is_overflow(error):
            asked = replace(shown, refused=limit_in(error) or True)
            return None if shown.refused else await self._show(asked, _Found(one), one.spoken)
        has_offered = shown.offers_tools if has_offered is None else has_offered
        if not has_offered or shown.follows_refused_tools or not refuses_tools(error):
            return None
        asked = replace(shown, before=None, may_offer=False, follows_refused_tools=True)
        if shown.before is None:  # it names no tools
            return asked
        asked.conversation = replace(shown.before, stats=one.stats)
        return await self._show(asked, _Found(one), one.spoken)

    async def note(self, shown: Shown, key: str, value: Any) -> None:
        """Keep JSON-like data with the conversation of a request."""
        shown.conversation.notes[key] = value
        if not shown.is_kept_elsewhere:
            same = (one for one in self._known.values() if one.notes is shown.conversation.notes)
            await self._save(shown.conversation.name, next(same, shown.conversation))

    @asynccontextmanager
    async def reading(
        self,
        messages: Iterable[Any],
        *,
        key: str | None = None,
        state: Mapping[str, Any] | None = None,
        own: Own | None = None,
    ) -> AsyncIterator[CompressedMemory]:
        """Give the memory of a list for read-back tools that run between two requests, in any process.

        Nothing is shown, and no event comes of it. The arguments and errors are those of `view`.
        """
        said = Said(as_list(messages), self.form)
        one = (await self._earlier(said, key, state)).best
        with at_hand(own):
            async with memory_behind(one.end, self._call(one), said) as memory:
                yield memory

    # Finding

    async def _earlier(self, said: Said, key: str | None, state: Mapping[str, Any] | None) -> _Found:
        """Return what is known of a list's conversation."""
        if key is not None and state is not None:
            return _Found(self._known_as(key, state), is_handed=True)
        name = said.beginning() if key is None else key
        if state is not None:
            return _Found(self._known_as(name, state), is_handed=True)
        return await self._find(name, said, is_named=key is not None)

    async def _find(self, name: str, said: Said, *, is_named: bool) -> _Found:
        """Return the conversation under a name that a list shares most with, its state included."""
        known = [one for one in list(self._known.values()) if one.name == name]
        elsewhere = list[Conversation]()
        saved, fault = await self._saved(name)
        for each in saved:
            for one in known:
                if one.spoken == each["spoken"]:  # another process may have noted that its list was left
                    one.left_at = one.left_at or each.get("left_at")
            is_known = any(
                one.state == each["state"]
                or (one.spoken != each["spoken"] and one.goes_on_from(each["spoken"]))
                for one in known
            )
            if not is_known:
                one = Conversation(name, each["spoken"], End(state=each["state"]), self._store_for())
                notes, left_at = dict(each.get("notes", {})), each.get("left_at")
                elsewhere.append(replace(one, notes=notes, left_at=left_at))
        found = [*known, *elsewhere]
        spoken = said.names() if len(found) > 1 else []
        shared = [_shared(one.spoken, spoken) for one in found]
        # Of those that share as much the last one is what another process did since.
        best = max(zip(shared, range(len(found)), found, strict=True), default=None)
        one = Conversation(name, [], End(), self._store_for()) if best is None else best[-1]
        return _Found(one, elsewhere, is_named, fault=fault)

    def _known_as(self, name: str, state: Mapping[str, Any]) -> Conversation:
        """Return the conversation that has this very state and its memory; else a new one over that state.

        An older state, or a branch, finds its texts with the newest conversation of that name.
        """
        if not isinstance(state, Mapping):
            raise InvalidStateError(f"state: expected a dict, got {type(state).__name__}")
        named = [one for one in list(self._known.values()) if one.name == name]
        same = next((one for one in named if one.state == state), None)
        store = named[-1].store if named else self._store_for()
        return same or Conversation(name, [], End(state=state), store)

    def _store_for(self) -> OffloadStore:
        return InMemoryOffloadStore() if self._store is None else self._store

    # Keeping

    def _keep(self, shown: Conversation, found: _Found, now: float) -> list[Conversation]:
        """Keep a conversation in the place of the one it goes on from; drop the oldest beyond the bound.

        Returns:
            Conversations in whose place its list says something else from now on.
        """
        left = list[Conversation]()
        for one in [*self._known.values(), *found.elsewhere]:
            if one.name == shown.name and shown.goes_on_from(one.spoken):
                self._known.pop(id(one), None)
            elif one.left_at is None and (
                (found.is_handed and one is found.best) or _departs(shown, one, is_named=found.is_named)
            ):
                one.left_at = now
                self._known[id(one)] = one
                left.append(one)
        self._known[id(shown)] = shown
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        for one in list(self._known.values())[:-MOST_MEMORIES]:
            one.sent = None
            one.end.give_up()
        return left

    def _take_what_is_over(self, shown: Conversation, found: _Found, now: float) -> list[Conversation]:
        """Let go of the conversations that no list has said for `branch_seconds`, and return them."""
        others = {id(one): one for one in [*self._known.values(), *found.elsewhere]}
        over = [
            one
            for one in others.values()
            if is_over(one.left_at, now, self.config.branch_seconds) and not shown.goes_on_from(one.spoken)
        ]
        for one in over:
            self._known.pop(id(one), None)
        return over

    async def _saved(self, name: str) -> tuple[list[Saved], Exception | None]:
        """Return what was saved under a name, and why it could not be read."""
        try:
            record = None if self._states is None else await _done(self._states.get(name))
        except Exception as error:
            logger.warning("states: the state under %r could not be read: %r", name, error)
            return [], error
        saved, fault = self._read(record, name)
        return saved or [], fault

    def _read(self, record: Any, name: str) -> tuple[list[Saved] | None, Exception | None]:
        """Return the conversations of a record, or None if it must not be overwritten, and why not."""
        try:
            return [] if record is None else conversations_in(record, name), None
        except InvalidStateError as error:
            logger.warning("%s", error)
            return None if is_newer(record) else [], error

    async def _save(
        self,
        name: str,
        now: Conversation,
        left: Sequence[Conversation] = (),
        over: Sequence[Conversation] = (),
    ) -> None:
        """Save a conversation under a name, with what became of the others under it.

        Args:
            name: where to save.
            now: the conversation; it may have another name by now, or be forgotten.
            left: conversations in whose place lists say something else.
            over: conversations to forget.
        """
        kept = [now] if now.name == name and id(now) in self._known else []
        gone = [*kept, *(one for one in over if one.name == name)]

        def merged(record: Any) -> dict[str, Any] | None:
            saved, _ = self._read(record, name)
            if saved is None:
                return None
            others = [one for one in saved if not any(each.goes_on_from(one["spoken"]) for each in gone)]
            for one in left:
                others = [one.to_saved() if each["spoken"] == one.spoken else each for each in others]
            return record_of([*others, *(one.to_saved() for one in kept)])

        states = self._states
        if states is None:
            return
        try:
            exchange = getattr(states, "exchange", None)
            if exchange is not None:
                await exchange(name, merged)
            elif (record := merged(await _done(states.get(name)))) is not None:
                await _done(states.set(name, record))
        except Exception:
            logger.warning("states: nothing was set under %r", name, exc_info=True)

    async def _tell(self, key: str | None, event: CompressionEvent) -> None:
        event = replace(event, key=key)
        logger.info("%s", event)
        told = None if self._on_event is None else self._on_event(event)
        if inspect.isawaitable(told):
            await told

    # Looking

    def stats(self, key: str | None = None) -> CompressionStats | None:
        """Return where the newest conversation under a key stands, or the newest of all; None: none is."""
        newest = reversed(list(self._known.values()))
        return next((one.stats for one in newest if key is None or one.name == key), None)

    def warm_up(self) -> None:
        """Read what counting needs, so that no request waits for it."""
        self._counter.count_text("")

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


def _named(one: Conversation) -> set[str]:
    """Return the refs that the state of a conversation names; none if it cannot be read."""
    try:
        return named_in(one.state)
    except InvalidStateError:
        return set()


def _shared(one: Sequence[str], other: Sequence[str]) -> tuple[int, int]:
    """Return how many pieces two lists share at the beginning, and in all."""
    pairs = enumerate(zip(one, other, strict=False))
    same = next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
    return same, len(set(one).intersection(other))


def _departs(shown: Conversation, one: Conversation, *, is_named: bool) -> bool:
    """Tell whether a list says something else in the place of a conversation.

    It does if it begins like that one or has at least half of it. Under another name (no key, and the first
    message was removed) more than half of the list has to stand there.
    """
    if not (one.spoken and shown.spoken):
        return False
    if one.name != shown.name:
        if is_named or one.key is not None or shown.spoken[0] not in one.spoken:
            return False
        least = len(shown.spoken) + 1
    elif one.spoken[0] == shown.spoken[0]:
        return True
    else:
        least = min(len(one.spoken), len(shown.spoken))
    return 2 * len(set(one.spoken).intersection(shown.spoken)) >= least


def _added(earlier: CompressionStats | None, now: CompressionStats) -> CompressionStats:
    """Return where a conversation stands, with what its earlier requests came to."""
    if earlier is None:
        return now
    return replace(
        now,
        events=earlier.events + now.events,
        summarizer_calls=earlier.summarizer_calls + now.summarizer_calls,
        summarizer_input_tokens=earlier.summarizer_input_tokens + now.summarizer_input_tokens,
        summarizer_output_tokens=earlier.summarizer_output_tokens + now.summarizer_output_tokens,
        summarizer_cached_tokens=earlier.summarizer_cached_tokens + now.summarizer_cached_tokens,
        summarizer_seconds=earlier.summarizer_seconds + now.summarizer_seconds,
    )
