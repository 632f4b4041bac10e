"""`compress_messages`: the same for callers that keep no memory between calls."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Container,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Self, SupportsIndex, TypeVar, Unpack

from context_compressor.core.config import CompressionConfig, ConfigFields, as_config
from context_compressor.errors import ContextOverflowError, InvalidStateError, OffloadError
from context_compressor.events import EventHook
from context_compressor.memory.base import check_collaborators
from context_compressor.memory.compressed import CompressedMemory, system_text
from context_compressor.memory.history import Add
from context_compressor.memory.in_memory import InMemoryMemory
from context_compressor.memory.listing import Known, Listing, Said, compare
from context_compressor.memory.loops import Face
from context_compressor.memory.reporting import CompressionStats, overflow_error
from context_compressor.memory.saved import SAVED_KEY, read_saved, to_saved
from context_compressor.memory.state import MemoryState
from context_compressor.messages.forms import Form, FormName, as_form
from context_compressor.messages.markers import has_marker, set_markers
from context_compressor.messages.msg import Msg, copy_json
from context_compressor.messages.parts import plain_texts
from context_compressor.messages.plain import as_list
from context_compressor.offload.pages import is_page
from context_compressor.offload.store import (
    REF_PATTERN,
    REF_PREFIX,
    InMemoryOffloadStore,
    KeepingStore,
    OffloadStore,
    write_text,
)
from context_compressor.summarizers.protocol import Rules, Summarizer
from context_compressor.tokens.counter import TokenCounter

if TYPE_CHECKING:
    from context_compressor.tools import OffloadTools

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_VERSION = 1
TOOLS_KEY = "names_tools"
"""Where a state says that the agent has the tools."""
LEFT_KEY = "left"
"""Key in a state for the texts in the store that no list says any more: digits of their refs, and since when,
in seconds since 1970. Without the scheme they do not count as refs that the state names."""


@dataclass(frozen=True, slots=True)
class CompressionResult:
    """What `compress_messages` gives back."""

    messages: list[Any]
    """The view, in the form of the call."""
    stats: CompressionStats
    """Where this call stands; what earlier calls did is not counted again."""
    state: dict[str, Any]
    """JSON-like data; feed it to the next call, so that views stay still and nothing is summarised twice."""
    _memory: CompressedMemory = field(repr=False, compare=False)
    _form: FormName = field(default="chat", repr=False, compare=False)

    @property
    def tools(self) -> OffloadTools:
        """The tools by which an agent finds and reads what left the view, in the form of the call.

        Stand-ins name them once they were asked for: that is noted in `state`.
        """
        self.state[TOOLS_KEY] = True
        return self._memory.tools(self._form)


async def acompress_messages(
    messages: Iterable[Any],
    *,
    form: FormName | Form = "chat",
    config: CompressionConfig | None = None,
    store: OffloadStore | None = None,
    summarizer: Summarizer | Rules | None = None,
    counter: TokenCounter | str | None = None,
    on_event: EventHook | None = None,
    state: Mapping[str, Any] | None = None,
    prompt_tokens: int | None = None,
    refused: bool = False,
    system: str | Sequence[Mapping[str, Any]] | None = None,
    **fields: Unpack[ConfigFields],
) -> CompressionResult:
    """Return a view of chat dicts that fits the budget.

    Args:
        messages: the whole conversation so far, as chat dicts (OpenAI, DashScope) or SDK message objects; not
            what an earlier call returned, in which stand-ins take the place of messages.
        form: the shape of messages, in and out.
        config: thresholds.
        store: where texts that leave the view go, those that `state` carries included. What the list says no
            more is removed from it by the first call after `branch_seconds`; another state that names the
            same text reads it from its own list then. Without a store, `state` carries them.
        summarizer: who writes summaries; "rules" or None: no model.
        counter: measures messages, or the name of a model; offline tiktoken when None.
        on_event: receives every event.
        state: what an earlier call returned, for a conversation that goes on; None or empty for a new one.
        prompt_tokens: what the provider counted for the request with the earlier call's messages, as
            `CompressedMemory.record_usage` takes it.
        refused: whether the provider refused that request as too long; these messages then take clearly less.
        system: what the request carries beside the messages; it is counted.
        fields: any field of `CompressionConfig` by itself, in the place of `config`.

    Raises:
        InvalidArgumentError: an argument is of the wrong kind, or `prompt_tokens` negative.
        InvalidMessageError: a message is malformed.
        InvalidStateError: the state is malformed.
        ContextOverflowError: what may not leave exceeds the budget; messages are named by their places.
        RedactionError: the `redact` callable failed.
        SummarizerError, OffloadError: only with `on_failure="raise"`.
    """
    check_collaborators(config, store, summarizer, counter, on_event)
    call = Call(as_config(config, fields, compress_messages), store, summarizer, counter, as_form(form))
    reply = await compress(
        messages,
        call,
        on_event=on_event,
        state=state,
        prompt_tokens=prompt_tokens,
        refused=refused,
        system=system,
    )
    await let_go(reply.end, time.time())
    own = [copy_json(one) if isinstance(one, dict) else one for one in reply.messages]
    form_name: FormName = "chat" if isinstance(form, Form) else form
    kept_state = KeptState(reply.end.state)
    kept_state.end = reply.end
    return CompressionResult(own, reply.stats, kept_state, reply.memory, form_name)


class Call(NamedTuple):
    """What a memory behind a state is made with."""

    config: CompressionConfig
    store: OffloadStore | None
    summarizer: Summarizer | Rules | None
    counter: TokenCounter | str | None
    form: Form
    with_words: bool = True
    """Whether states hold the words of stand-ins; else the words are in the store, and states name them."""


async def compress(
    messages: Iterable[Any] | Said,
    call: Call,
    *,
    on_event: EventHook | None,
    state: Mapping[str, Any] | End | None,
    system: str | Sequence[Mapping[str, Any]] | None,
    prompt_tokens: int | None = None,
    refused: bool | int = False,
    names_tools: bool | None = None,
) -> Reply:
    """Return what `acompress_messages` does, unaltered messages being the list's own objects.

    `refused` may be the number of tokens that the provider takes. `names_tools`: whether stand-ins that are
    made now name the read-back tools; None: as the state says.
    """
    call = _inline(call)
    said = messages if isinstance(messages, Said) else Said(as_list(messages), call.form)
    text = system_text(system)
    end = state if isinstance(state, End) else getattr(state, "end", None)
    kept = None if end is None else end.take(call, said)
    if kept is None:
        kept = await _begin(_check_state(state.state if isinstance(state, End) else state), call, said)
    else:
        new, listing = _read(said, kept.listing)
        kept.named |= _refs_named(new)
        kept.listing += listing
        await kept.memory._add(new)
    memory = kept.memory
    if names_tools is not None:
        memory.offer_tools(names_tools)
    memory._runner.start_counting(on_event)
    if prompt_tokens is not None:
        memory.record_usage(prompt_tokens)
    if refused:
        memory.record_overflow(None if refused is True else refused)
    try:
        shown = await memory._sent(said, kept.listing, system, text)
    except ContextOverflowError:
        starts = accumulate(map(len, said.pieces), initial=0)
        pieces = zip(starts, kept.listing, strict=False)
        places = {
            id: f"messages[{start}]" for start, one in pieces for id in one.ids
        }  # ids are of our making
        raise overflow_error(memory._tracker.state, call.config, places) from None
    if not call.with_words:
        await memory._texts.copy_words()
    memory.face = Face()  # what the tools are called from is another matter
    spoken = [one.ids[0] for one in kept.listing if one.speaks]
    return Reply(shown, memory.stats(), End(kept), memory, spoken)


@dataclass(slots=True)
class _Kept:
    """The memory behind a state, for a call that is handed that very state."""

    memory: CompressedMemory
    call: Call
    """What it was made with."""
    carried: InMemoryOffloadStore
    """Texts that the state carries."""
    left: dict[str, float | None]
    """Refs of texts in the store that no list says any more, with the time; None: since this call."""
    named: set[str]
    """Refs in what was handed over."""
    listing: Listing
    """What the list said."""


class _LeavingStore(KeepingStore):
    """Note a text that a memory no longer names; it is removed after `branch_seconds`."""

    def __init__(self, wrapped: OffloadStore, left: dict[str, float | None]) -> None:
        super().__init__(wrapped)
        self._left = left

    async def delete(self, ref: str) -> None:
        """Note that the text under `ref` is to be removed."""
        self._left.setdefault(ref, None)


class _Standing(NamedTuple):
    """What a state is made of."""

    state: MemoryState
    tokens: Mapping[str, int]
    texts: Mapping[str, str]
    named: Collection[str]
    left: Mapping[str, float | None]

    @classmethod
    def of(cls, kept: _Kept) -> Self:
        """Return what the state of a memory is made of as it is now; it goes with the memory."""
        tracker = kept.memory._tracker
        return cls(tracker.state, tracker.known_tokens, kept.carried.texts(), kept.named, kept.left)

    def copied(self) -> Self:
        """Return the same, apart from the memory."""
        state = copy(self.state)
        state.ledger, state.budget = state.ledger.copy(), copy(state.budget)
        state.budget._calibration = deepcopy(state.budget._calibration)
        state.fresh, state.blocked = dict(state.fresh), set(state.blocked)
        return type(self)(state, dict(self.tokens), dict(self.texts), set(self.named), dict(self.left))

    def to_state(self, kept: _Kept) -> dict[str, Any]:
        """Return the state as JSON-like data."""
        ledger, call = self.state.ledger, kept.call
        saved = to_saved(
            self.state,
            kept.memory.counter,
            tokens=self.tokens,
            prepared=(),
            followed=(),
            markers={},
            with_words=call.with_words,
        )
        state: dict[str, Any] = {"version": _VERSION, SAVED_KEY: saved}
        named = ledger.kept_refs().union(self.named) if self.texts else ()
        texts = {ref: text for ref, text in self.texts.items() if ref in named}
        if call.store is None or texts:
            state["texts"] = InMemoryOffloadStore(texts).to_state()
        if self.state.names_tools:
            state[TOOLS_KEY] = True
        left = {
            ref: since for ref, since in self.left.items() if not ledger.is_live(ref)
        }  # or it is said again
        if left:
            state[LEFT_KEY] = {ref.removeprefix(REF_PREFIX): left[ref] for ref in sorted(left)}
        return state


class End:
    """Where a call ended: what the next one goes on from, in this process or, by its state, in another.

    Args:
        kept: the memory, with which one call goes on.
        state: the state, where no memory is at hand.
    """

    def __init__(self, kept: _Kept | None = None, state: Mapping[str, Any] | None = None) -> None:
        self.kept = kept
        self._state = state
        self._was: Callable[[], Mapping[str, Any]] = dict

    @property
    def state(self) -> Mapping[str, Any]:
        """The state as JSON-like data, made when somebody asks for it."""
        if self._state is None:
            kept = self.kept
            self._state = self._was() if kept is None else _Standing.of(kept).to_state(kept)
        return self._state

    @property
    def has_left(self) -> bool:
        """Whether something has left the view, so that there is something to read back."""
        if self.kept is not None:
            return bool(self.kept.memory._tracker.state.ledger.edits())
        return bool(((self.state.get(SAVED_KEY) or {}).get("ledger") or {}).get("entries"))

    def take(self, call: Call, said: Said) -> _Kept | None:
        """Return the memory, if a call goes on where this one ended; it is handed out once."""
        kept = self.kept
        if kept is None or kept.call != call:
            return None
        found = compare(kept.listing, said, goes_on=False)
        if found.same < len(kept.listing) or found.listing is not kept.listing:
            return None  # its messages have other request metadata, or are read in other words
        if self._state is None:
            self._was = partial(_Standing.of(kept).copied().to_state, kept)
        self.kept = None
        return kept

    def give_up(self) -> None:
        """Let the memory go: who goes on from here makes one of the state."""
        if self.kept is not None:
            self.kept, self._state = None, self.state

    def record_usage(self, prompt_tokens: int) -> bool:
        """Note what the provider counted; tell whether it is to be saved.

        It is not where somebody has gone on with the memory, and where it moves little, after the first.
        """
        if self.kept is None:
            return False
        self.kept.memory.record_usage(prompt_tokens)
        self._state = None
        return not self.kept.memory._tracker.state.budget.is_settled

    def note_left(self, left: Mapping[str, float | None]) -> dict[str, float | None]:
        """Note refs of texts that no list says any more, with the time; return all of them."""
        assert self.kept is not None
        self._state, ledger = None, self.kept.memory._tracker.state.ledger
        self.kept.left.update(left)
        for ref in [ref for ref in self.kept.left if ledger.is_live(ref)]:
            del self.kept.left[ref]  # it is said again
        return self.kept.left


class KeptState(dict[str, Any]):
    """A state, and where the call ended that it is of."""

    end: End | None = None

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return dict, (dict(self),)  # a copy is the data alone


class Reply(NamedTuple):
    """What a call gives."""

    messages: list[Any]
    """The view; unaltered messages are the list's own objects."""
    stats: CompressionStats
    end: End
    memory: CompressedMemory
    spoken: list[str]
    """An id for each piece of the list but instructions."""


@asynccontextmanager
async def memory_behind(end: End, call: Call, said: Said) -> AsyncIterator[CompressedMemory]:
    """Give the memory of a call that ended, as it is with a list, to nobody else meanwhile.

    A call that goes on from there in that time makes a memory of its own; so does this where another one has
    gone on already, or holds it: what is read is of this list, whoever else began with it.

    Args:
        end: where the call ended.
        call: what a memory is made with.
        said: the list, which may go on where that call's ended.
    """
    call = _inline(call)
    taken = end.take(call, said)
    kept = taken
    if kept is None:
        kept = await _begin(_check_state(end.state), call, said)
        await kept.memory._runner.refresh()
    kept.memory.face = Face()
    try:
        yield kept.memory
    finally:
        kept.memory.face = Face()
        if end.kept is None:
            end.kept = taken


async def let_go(end: End, now: float, held: Callable[[], Container[str]] = frozenset) -> None:
    """Remove from the store what no list has said for `branch_seconds`. The next call repeats what fails.

    Args:
        end: of a call that ended just now; it says which texts are left.
        now: seconds since 1970.
        held: returns the refs of texts that others are known to name.
    """
    left, kept = end.note_left({}), end.kept
    assert kept is not None
    store, seconds = kept.call.store, kept.call.config.branch_seconds
    # A clock that was put back must not lengthen the wait.
    left.update({ref: int(now if since is None else min(since, now)) for ref, since in left.items()})
    over = [ref for ref, since in left.items() if now - (since or 0) >= seconds and ref not in kept.named]
    if over and store is not None:
        try:
            others = held()
            over = [ref for ref in over if ref not in others]
        except OffloadError as error:
            logger.warning("nothing is removed from the store now: %s", error)
            over = []
        for ref in await remove_texts(store, over, kept.call.config.store_timeout_seconds):
            left.pop(ref, None)


async def remove_texts(store: OffloadStore, refs: Iterable[str], timeout_seconds: float) -> list[str]:
    """Remove texts from a store, each within the given seconds; return the refs of those that are gone."""
    gone: list[str] = []
    for ref in refs:
        try:
            async with asyncio.timeout(timeout_seconds):
                await store.delete(ref)
        except Exception as error:
            logger.warning("texts that no list says any more were not removed, the first for: %r", error)
            break
        gone.append(ref)
    return gone


def _inline(call: Call) -> Call:
    """The memory ends with a call, and nothing that it prepared would be used."""
    return call._replace(config=call.config.model_copy(update={"background_ratio": None}))


async def _begin(earlier: Mapping[str, Any], call: Call, said: Said) -> _Kept:
    """Return a memory that was made from a state and a list."""
    settings, store, summarizer, counter, _, _ = call
    carried = InMemoryOffloadStore.from_state(earlier.get("texts", {}))
    history, listing = await asyncio.to_thread(_read, said)  # a long conversation takes a while
    base = InMemoryMemory()
    await base.history.write([Add(msg) for msg in history])
    named = _refs_named(history)
    if store is not None:
        carried = await _hand_over(carried, store, settings.store_timeout_seconds)
    left: dict[str, float | None] = {
        f"{REF_PREFIX}{digits}": since for digits, since in earlier.get(LEFT_KEY, {}).items()
    }
    used = _LeavingStore(store, left) if store is not None else KeepingStore(carried, named)
    memory = CompressedMemory(base, settings, used, summarizer, counter)
    # Not `load_state_dict`, which would read the history once more.
    memory._start_from(read_saved(earlier.get(SAVED_KEY), settings, memory.counter))
    if earlier.get(TOOLS_KEY):
        memory.offer_tools()
    return _Kept(memory, call, carried, left, named, listing)


def _read(said: Said, listing: Listing = ()) -> tuple[list[Msg], Listing]:
    """Return messages under ids that the same content gives in every call, for the ledger, and what was said.

    Args:
        said: the list.
        listing: the beginning of it, which was read before.
    """
    seen = Counter(one.digest for one in listing)
    history: list[Msg] = []
    read: list[Known] = []
    for piece in said.read(len(listing)):
        seen[piece.digest] += 1
        for place, msg in enumerate(piece.msgs):
            id = f"{piece.digest}-{seen[piece.digest]}" + (f"+{place}" if place else "")
            msg.id, msg.timestamp = id, ""
            history.append(set_markers(msg, piece.markers) if has_marker(piece.markers) else msg)
        read.append(Known.of(piece, [msg.id for msg in piece.msgs]))
    return history, tuple(read)


def _refs_named(messages: Sequence[Msg]) -> set[str]:
    """Return the refs in what was handed over: who keeps views as the conversation still reads by them."""
    texts = (text for msg in messages for text in plain_texts(msg))
    named = ((text, REF_PATTERN.findall(text)) for text in texts)
    # A page shows lines of a text whose message the list has, or had.
    return {ref for text, refs in named if refs and not is_page(text) for ref in refs}


async def _hand_over(
    carried: InMemoryOffloadStore, store: OffloadStore, timeout_seconds: float
) -> InMemoryOffloadStore:
    """Write texts that the state carried into a store; return those that it did not take."""
    kept = {}
    for ref, text in carried.texts().items():
        try:
            await write_text(store, text, ref, timeout_seconds)
        except OffloadError as error:
            logger.warning("%s stays in the state, since the store did not take it: %s", ref, error)
            kept[ref] = text
    return InMemoryOffloadStore(kept)


def _without_asyncio(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        work = function(*args, **kwargs)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        context = contextvars.copy_context()
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(context.run, asyncio.run, work).result()

    return update_wrapper(call, function)


compress_messages = _without_asyncio(acompress_messages)
compress_messages.__name__ = compress_messages.__qualname__ = "compress_messages"
compress_messages.__doc__ = f"""{acompress_messages.__doc__}
    For synchronous callers; also where an event loop is running, which it blocks.
    """


def _check_state(state: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if state is None or state == {}:  # what `states.get(key, {})` returns
        return {}
    if not isinstance(state, Mapping):
        raise InvalidStateError(f"state: expected a dict, got {type(state).__name__}")
    if state.get("version") != _VERSION:
        raise InvalidStateError(
            f"state.version: this release reads {_VERSION}, the state has {state.get('version')!r}; "
            "without a state the view is made anew"
        )
    left = state.get(LEFT_KEY, {})
    if not isinstance(left, Mapping) or not all(
        REF_PATTERN.fullmatch(f"{REF_PREFIX}{digits}") and type(since) in (int, float)
        for digits, since in left.items()
    ):
        raise InvalidStateError(f"state.{LEFT_KEY}: expected seconds since 1970 by digits of refs")
    return state
