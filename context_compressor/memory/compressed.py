"""`CompressedMemory`, which wraps any memory. Long, because every public method is told of in full."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import chain
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack
from weakref import proxy

from context_compressor.core.config import CompressionConfig, ConfigFields, as_config
from context_compressor.core.shown import own_words_in, shown_message
from context_compressor.errors import InvalidArgumentError, InvalidStateError
from context_compressor.events import CompressionEvent, EventHook
from context_compressor.memory.base import (
    MemoryBase,
    as_ids,
    as_mark,
    as_mark_update,
    as_marks,
    as_messages,
    as_summary,
    check_collaborators,
)
from context_compressor.memory.earlier import view_at
from context_compressor.memory.forgetting import Forgotten
from context_compressor.memory.handover import Receiver, check_receiver
from context_compressor.memory.history import History
from context_compressor.memory.in_memory import InMemoryMemory
from context_compressor.memory.listing import Listing, Said, write_view
from context_compressor.memory.loops import Face
from context_compressor.memory.places import Recall
from context_compressor.memory.reporting import CompressionStats, stats_of
from context_compressor.memory.saved import SAVED_KEY, Loaded, read_saved, read_state, to_saved, write_state
from context_compressor.memory.shell import Shell
from context_compressor.memory.state import MemoryState
from context_compressor.memory.sync import ListFollower
from context_compressor.memory.texts import Texts
from context_compressor.memory.tracking import Tracker
from context_compressor.memory.wrapped import history_of
from context_compressor.messages.exchanges import repaired
from context_compressor.messages.forms import FORMS, Form, FormName, as_form
from context_compressor.messages.media import media_named
from context_compressor.messages.msg import Block, Msg, check_json
from context_compressor.messages.plain import as_list
from context_compressor.offload.guide import SpeakerRole
from context_compressor.offload.store import InMemoryOffloadStore, OffloadStore
from context_compressor.search.hits import Hit
from context_compressor.summarizers.chain import ExtractiveSummarizer
from context_compressor.summarizers.protocol import Rules, Summarizer
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.off_loop import measure_all_off_loop
from context_compressor.tokens.tiktoken import as_counter

if TYPE_CHECKING:
    from context_compressor.integrations.agentscope.history import ForeignMemory
    from context_compressor.tools import OffloadTools

T = TypeVar("T")


class CompressedMemory(MemoryBase):
    """Wrap a memory so that what it returns fits a token budget.

    The history stays whole in `base`; `get_memory` returns a view of it that never exceeds
    `config.budget` tokens, keeps the rules of chat completions, and changes only at events. Whatever
    left the view is named in it by ref; `OffloadTools(memory)` reads it back. What a method of `MemoryBase`
    refuses, this one refuses as well.

    Args:
        base: any `MemoryBase`, a `History`, or a memory of AgentScope's; a new `InMemoryMemory` when None.
        config: all thresholds at once; the defaults when None.
        store: where texts that leave the view go; a new `InMemoryOffloadStore` when None. Its namespace must
            belong to this memory alone.
        summarizer: who writes summaries; "rules" or None: an `ExtractiveSummarizer`, no model. One that is
            remote works in the background, in a task of the running loop, until the memory is closed.
        counter: measures messages, each once, or the name of a model whose tokens a `TiktokenCounter`
            (offline) counts; the usual one when None.
        on_event: receives every `CompressionEvent`, sync or async; its errors are logged and contained.
        hand_over: a long-term memory that takes the messages which left the view, as `HandOver(memory)` makes
            it of one; no view waits for it, and what it did not take is handed over again.
        fields: any field of `CompressionConfig` by itself, in the place of `config`.

    Raises:
        InvalidArgumentError: an argument is none of that; the text names it and what it lacks.
        ValueError: thresholds that cannot be, or cannot work together.

    Attributes:
        base: the wrapped memory.
        config: the thresholds.
        store: the offload store.
        counter: the token counter.
        face: whether it is used with asyncio or without.
    """

    def __init__(
        self,
        base: MemoryBase | History | ForeignMemory | None = None,
        config: CompressionConfig | None = None,
        store: OffloadStore | None = None,
        summarizer: Summarizer | Rules | None = None,
        counter: TokenCounter | str | None = None,
        on_event: EventHook | None = None,
        hand_over: Receiver | None = None,
        **fields: Unpack[ConfigFields],
    ) -> None:
        super().__init__()
        if hand_over is not None:
            check_receiver(hand_over)
        check_collaborators(config, store, summarizer, counter, on_event)
        if isinstance(base, CompressionConfig) and config is None:
            base, config = None, base
        if isinstance(base, CompressedMemory):
            raise InvalidArgumentError(f"base: a {type(base).__name__} is compressed already; give its base")
        self.base = _as_memory(base)
        self.config = as_config(config, fields, CompressedMemory)
        self.store: OffloadStore = InMemoryOffloadStore() if store is None else store
        self.counter: TokenCounter = as_counter(counter)
        self._summarizer: Summarizer = (
            ExtractiveSummarizer(self.counter)
            if summarizer is None or isinstance(summarizer, str)
            else summarizer
        )
        self._tracker = Tracker(history_of(self.base), self.config, self.counter, self.store)
        self._texts = Texts(self.config, self.store, self._tracker)
        self._recall = Recall(self._tracker.history, self.store, self._texts.read, self.config.redact)
        self._runner = Shell(
            self._tracker,
            self._texts,
            config=self.config,
            store=self.store,
            summarizer=self._summarizer,
            counter=self.counter,
            recall=self._recall,
            on_event=on_event,
            hand_over=hand_over,
        )
        self.face = Face()
        here = proxy(self)  # no part holds the whole, which else stays until the garbage collector comes
        self._follower = ListFollower(
            self._tracker, self._runner, lambda messages: here._add(messages), lambda ids: here.delete(ids)
        )

    # Adding

    async def add(
        self, memories: Msg | list[Msg] | None, marks: str | list[str] | None = None, **kwargs: Any
    ) -> None:
        """Add messages to the history, with marks; a message whose id is known is not added again.

        Args:
            memories: the messages.
            marks: their marks.
            kwargs: `allow_duplicates=True` keeps a message although its id is known; both then answer to the
                id. Others are passed over, here and below.

        Raises:
            InvalidArgumentError: not messages, or not marks; nothing was added.
            InvalidMessageError: a message nests too deep; nothing was added.
        """
        messages, mark_names = as_messages(memories), as_marks(marks)
        self.face.take()
        duplicates = bool(kwargs.get("allow_duplicates"))
        await self._add([msg.copy() for msg in messages], mark_names, duplicates)

    async def _add(self, messages: list[Msg], marks: Sequence[str] = (), duplicates: bool = False) -> None:
        """Add messages that nobody else holds."""
        if not messages:
            return
        tracker = self._tracker
        known = tracker.state.known
        unknown = [msg for msg in messages if duplicates or not known.knows(msg.id)]
        counts = await measure_all_off_loop(self.counter, unknown)
        counted = {id(msg): tokens for msg, tokens in zip(unknown, counts, strict=True)}
        async with tracker.lock:
            await tracker.add(messages, marks, counted, duplicates=duplicates)
            told = tracker.told()
        if told:
            await self._runner.finish(told)

    async def sync(self, messages: Iterable[Any]) -> None:
        """Make the history say what a list of chat dicts says, for loops that own their list.

        What is new at the end is added. Where the last exchange differs it is exchanged, and so is what lies
        between, if what follows a difference is as it was. A list that departs earlier is followed, too, and
        what was known is kept for `branch_seconds`: a list that goes back to it pays for nothing twice.

        Raises:
            InvalidMessageError: a message is malformed; nothing was changed.
            InvalidArgumentError: no list, or one with stand-ins of this memory's view; nothing was changed.
        """
        self.face.take()
        async with self._follower.follow(Said(as_list(messages), FORMS["chat"])):
            pass

    # Reading

    async def view(
        self,
        messages: Iterable[Any] | None = None,
        *,
        form: FormName | Form = "chat",
        system: str | Sequence[Mapping[str, Any]] | None = None,
        reset: bool = False,
    ) -> list[Any]:
        """Return what to send: the view of a whole conversation, which is followed as by `sync`, in one step.

        What is sent is made of that list's messages. Those that the view shows unaltered are the very objects
        of the list. Two calls at the same time do not meet.

        Args:
            messages: the whole conversation so far; None: what was added.
            form: the shape of messages, in and out.
            system: what the request carries beside the messages; it is counted.
            reset: whether the list may be another conversation than the one that was followed.

        Raises:
            UnrelatedMessagesError: the list shares nothing with the conversation so far, but instructions.
            InvalidMessageError, InvalidArgumentError: as `sync`.
            ContextOverflowError, RedactionError, SummarizerError, OffloadError: as `get_memory`.
            LoopError: the memory is used by `view_sync`.
        """
        shape = as_form(form)
        said, text = Said([] if messages is None else as_list(messages), shape), system_text(system)
        self.face.take()
        if messages is None:
            return await self._sent(said, (), system, text)
        async with self._follower.follow(said, is_any=reset) as listing:
            return await self._sent(said, listing, system, text)

    def view_sync(
        self,
        messages: Iterable[Any] | None = None,
        *,
        form: FormName | Form = "chat",
        system: str | Sequence[Mapping[str, Any]] | None = None,
        reset: bool = False,
    ) -> list[Any]:
        """Return what `view` does, without asyncio: one event loop in the background serves the process.

        Called where an event loop is running, it blocks that, and a log line says so.

        Raises:
            LoopError: the memory is used with asyncio.
        """
        return self.face.run(self.view(messages, form=form, system=system, reset=reset))

    async def _shown(self, make: Callable[[MemoryState], T], *, summary: bool = True) -> T:
        """Bring the view up to date, and return what is made of it at that moment."""
        tracker = self._tracker
        if await tracker.is_current(summary=summary):
            return make(tracker.state)
        return await self._runner.bring_up_to_date(make, summary=summary)

    async def _sent(self, said: Said, listing: Listing, system: Any, text: str) -> list[Any]:
        """Return what is sent for a list that the history has, and of which so much is known.

        What the view shows as it came is the caller's own objects. `text`: of the system.
        """
        form = said.form
        originals = [(one.ids, piece) for one, piece in zip(listing, said.pieces, strict=False)]
        own, now = [ids for ids, piece in originals for _ in piece], self._tracker.state
        now.shown.expect_system(text, said, own, has_left=bool(now.ledger.entries))

        def write(state: MemoryState) -> list[Any]:
            view = state.view(None, with_summaries=True)
            view = self._follower.with_markers(view) if form is FORMS["chat"] else view
            known, ids = state.known.tokens.__contains__, chain.from_iterable(own for own, _ in originals)
            there = said.items
            if len(originals) < len(said) or not all(map(known, ids)):  # some was deleted by hand
                there = [item for ids, piece in originals if any(map(known, ids)) for item in piece]
            written = write_view(view, state.shown.whole, form, originals)
            shown = form.finish(written, there, system)
            state.shown.note_sent(said, shown)
            return shown

        return await self._shown(write)

    async def get_memory(
        self,
        mark: str | None = None,
        exclude_mark: str | None = None,
        prepend_summary: bool = True,
        **kwargs: Any,
    ) -> list[Msg]:
        """Return the view: messages that fit the budget and keep the rules of chat completions.

        Args:
            mark: return instead the history messages that bear it, repaired but not budgeted.
            exclude_mark: leave out exchanges and segments all of whose messages bear it.
            prepend_summary: False leaves segments and the base memory's own summary out.
            kwargs: handed to the base memory with `mark`.

        Raises:
            ContextOverflowError: what may not leave exceeds the budget.
            RedactionError: the `redact` callable failed.
            SummarizerError, OffloadError: only with `on_failure="raise"`.
        """
        borne, excluded = as_mark(mark, "mark"), as_mark(exclude_mark, "exclude_mark")
        self.face.take()
        if borne is not None:
            history = await self.base.get_memory(
                mark=borne, exclude_mark=excluded, prepend_summary=False, **kwargs
            )
            return self._follower.with_markers(repaired(history))
        if excluded is not None:
            await self._tracker.look_up(excluded)
        return await self._shown(
            lambda state: self._follower.with_markers(state.view(excluded, with_summaries=prepend_summary)),
            summary=prepend_summary,
        )

    async def get_history(self) -> list[Msg]:
        """Return every message, as added."""
        return self._follower.with_markers(await self.base.get_memory(prepend_summary=False))

    async def size(self) -> int:
        """Return how many messages the history holds."""
        return await self.base.size()

    def stats(self) -> CompressionStats:
        """Return where the memory stands; the view is that of the last `get_memory`."""
        return stats_of(self._tracker.state, self._runner.totals, self._runner.handing_over)

    async def compress_now(self, keep: str | None = None) -> CompressionEvent | None:
        """Compress by hand all that may leave, whatever the fill level; None if there was nothing to gain.

        Args:
            keep: a note on what to keep; it stands in the segment word for word, as far as there is room (500
                tokens at most; the event's `note` tells), and the summariser is asked to mind it.

        Raises:
            InvalidArgumentError: `keep` is no string.
            ContextOverflowError, RedactionError, SummarizerError, OffloadError: as `get_memory`.
        """
        if not (keep is None or isinstance(keep, str)):
            raise InvalidArgumentError(f"keep: expected a string or None, got {type(keep).__name__}")
        return await self._runner.compress_now((keep or "").strip() or None)

    async def undo(self, budget: int | None = None, note: str | None = None) -> CompressionEvent | None:
        """Withdraw the last part: what the newest event took out of the view. None if there is none.

        The view is the earlier one then, with what came since, where it fits. Else, or with a note, the part
        is made anew, as by `compress_now`, in one step: until then, and where that fails, it stays.

        Args:
            budget: tokens that the view may cost then, as far as what may leave allows; at most its own.
            note: what to keep in the part that is made anew, as `compress_now`'s; without a budget the view
                is brought to what it costs now.

        Raises:
            InvalidArgumentError: an argument of the wrong type, or a budget below 1 or above the memory's.
            ContextOverflowError: the earlier view does not fit, and neither is given; the text tells by how
                much, and nothing was changed.
            RedactionError, SummarizerError, OffloadError: as `get_memory`.
        """
        if not (note is None or isinstance(note, str)):
            raise InvalidArgumentError(f"note: expected a string or None, got {type(note).__name__}")
        most = self.config.budget
        if budget is not None and not (type(budget) is int and 1 <= budget <= most):
            raise InvalidArgumentError(f"budget: expected tokens from 1 to {most:,}, got {budget!r:.80}")
        return await self._runner.undo(budget, (note or "").strip() or None)

    async def view_at(self, n: int) -> list[Msg]:
        """Return the view as it stood after an event, made anew from history and ledger. Changes nothing.

        Messages that were deleted since are not there, and a preview that was cut shorter since is as it is
        now.

        Args:
            n: the event's `number`.

        Raises:
            InvalidArgumentError: no such event's edits hold, or its notes are not kept any more, as those of
                the newest five parts are; the text names the events that there are.
        """
        await self._runner.refresh()
        return self._follower.with_markers(await view_at(self._tracker.rebuilder, self._tracker.basis, n))

    # What the provider counts

    def record_usage(self, prompt_tokens: int) -> None:
        """Note how many tokens the provider counted for the request with the view handed out last.

        Views then cost at most `max_total_tokens` by the provider's count, too. Nothing changes where that
        is what `get_memory` does already; the view changes when it would cost more.

        Args:
            prompt_tokens: of the whole request, cached ones included; 0 says nothing.

        Raises:
            InvalidArgumentError: not an int, or negative.
        """
        self._tracker.state.budget.record_usage(prompt_tokens)

    def record_overflow(self, limit: int | None = None) -> None:
        """Note that the provider refused the view handed out last as too long: the next one is smaller.

        Args:
            limit: tokens that the provider accepts at most, where it says so.

        Raises:
            InvalidArgumentError: not an int, or below 1.
        """
        self._tracker.state.budget.record_overflow(limit)

    # Changing

    async def delete(self, msg_ids: list[str], **kwargs: Any) -> int:  # noqa: ARG002
        """Delete messages from history, view and store; return how many were there.

        A segment's id stands for all the messages that it covers.
        """
        ids = as_ids(msg_ids)
        async with self._runner.changing():
            await self._follower.note_deleting()
            return await self._tracker.delete(ids)

    async def delete_by_mark(self, mark: str | list[str], *args: Any, **kwargs: Any) -> int:  # noqa: ARG002
        """Delete the messages that bear any of the marks; return how many."""
        names = as_marks(mark, "mark", is_optional=False)
        async with self._runner.changing():
            await self._follower.note_deleting()
            return await self._tracker.delete_marked(names)

    async def forget(
        self, msg_ids: list[str] | None = None, text: str | None = None, *, dry_run: bool = False
    ) -> Forgotten:
        """Delete messages for good, by ids or by a text, and return all that was removed or rewritten.

        A text: each message in whose words it stands exactly goes, with its exchange: calls with all their
        results. Notes that quote it go, and so does the history's own summary where it does. Nothing is
        edited within a message.

        Args:
            msg_ids: ids of messages, as `delete` takes them.
            text: what is to be found nowhere any more, character by character.
            dry_run: whether to change nothing, and only tell.

        Raises:
            InvalidArgumentError: neither or both are given, or one of the wrong type; an empty text.
            OffloadError: the store could not be listed, for texts that a crash left; nothing was deleted.
        """
        if (msg_ids is None) == (text is None):
            raise InvalidArgumentError("forget: give msg_ids or text, and not both")
        if not (text is None or (isinstance(text, str) and text)):
            raise InvalidArgumentError(f"text: expected a string that is not empty, got {text!r:.80}")
        ids, index = [] if msg_ids is None else as_ids(msg_ids), self._recall.index
        if text is not None and not dry_run:
            await self.remove_orphans()
        async with self._runner.changing():
            rows = index.dropped
            if not dry_run:
                await self._follower.note_deleting()
            told = await self._tracker.forget(ids, text, dry_run=dry_run)
        if dry_run:
            return told
        left = self._tracker.state.ledger.unwanted.intersection(told.refs)
        refs = tuple(ref for ref in told.refs if ref not in left)
        return replace(told, refs=refs, refs_left=tuple(sorted(left)), index_rows=index.dropped - rows)

    async def clear(self) -> None:
        """Delete everything: history, marks, summaries, and the stored texts."""
        try:
            async with self._runner.changing():
                await self._tracker.clear()
                await self._recall.index.clear()
        finally:  # also where it failed half way
            self._follower.look_next_time()

    async def update_messages_mark(
        self, new_mark: str | None, old_mark: str | None = None, msg_ids: list[str] | None = None
    ) -> int:
        """Change marks as the base memory does; a segment's id stands for all the ids that it covers.

        A message that becomes pinned returns to the view, its segment is withdrawn.
        """
        new, old, ids = as_mark_update(new_mark, old_mark, msg_ids)
        async with self._runner.changing():
            return await self._tracker.mark(new, old, ids)

    async def update_compressed_summary(self, summary: str) -> None:
        """Set the base memory's own summary, which the view shows behind the leading instructions."""
        text = as_summary(summary)
        async with self._runner.changing():
            await self._tracker.set_summary(text)

    # State

    async def save(self, path: str | PathLike[str] | None = None) -> dict[str, Any]:
        """Return what brings this memory back, for every base; data for `json.dumps`.

        Where the history lasts by itself, its messages are not part of it.

        Args:
            path: a file to write it to as well: as a whole or not at all, and durable when this returns.

        Raises:
            InvalidMessageError: a message holds what JSON has no form for; the text names its place.
            OSError: the file could not be written; the one that was there is as it was.
        """
        await self._runner.refresh()
        state = self.state_dict() if self._is_in_process() else {SAVED_KEY: self._save()}
        if path is not None:
            await write_state(path, state)
        return state

    async def load(self, state: Mapping[str, Any] | str | PathLike[str]) -> None:
        """Load what `save` returned, or the file that it wrote.

        Raises:
            InvalidStateError: the state is malformed, or the file was written half; nothing was changed.
            OSError: the file cannot be read.
        """
        found: Any = await read_state(state) if isinstance(state, str | PathLike) else state
        if self._is_in_process() or not isinstance(found, Mapping):
            self.load_state_dict(found)
        else:
            self._start_from(read_saved(found.get(SAVED_KEY), self.config, self.counter))

    def _is_in_process(self) -> bool:
        return type(self.base).state_dict is not MemoryBase.state_dict

    async def remove_orphans(self) -> list[str]:
        """Remove stored texts that nothing names, as a crash leaves them; return their refs.

        Call it after a saved state was loaded. A memory whose ledger names nothing removes nothing.

        Raises:
            OffloadError: the store could not be listed.
        """
        return await self._runner.remove_orphans()

    def state_dict(self) -> dict[str, Any]:
        """Return the base memory's state and, under `compression`, the ledger; data for `json.dumps`.

        Raises:
            InvalidMessageError: a message holds what JSON has no form for; the text names its place.
        """
        state = self.base.state_dict()
        check_json(state, "")
        return {**state, SAVED_KEY: self._save()}

    if not TYPE_CHECKING:  # type checkers go on refusing attributes that do not exist

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self, name)

    def __reduce__(self) -> NoReturn:
        # What copy and pickle ask. A copy would share the store, and delete from it what the other one needs.
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled; save it by state_dict(), and load that "
            "into a new one by load_state_dict()"
        )

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Load what `state_dict` returned, or a base memory's own state, which starts with an empty ledger.

        Raises:
            InvalidStateError: the state is malformed; nothing was changed.
        """
        if not isinstance(state, Mapping):
            raise InvalidStateError(f"state: expected a dict, got {type(state).__name__}")
        loaded = read_saved(state.get(SAVED_KEY), self.config, self.counter)
        self.base.load_state_dict({k: v for k, v in state.items() if k != SAVED_KEY}, strict=strict)
        self._start_from(loaded)

    def _save(self, *, with_words: bool = True) -> dict[str, Any]:
        return to_saved(
            self._tracker.state,
            self.counter,
            tokens=self._tracker.known_tokens,
            prepared=self._runner.prepared_refs() | self._tracker.branches.refs(),
            followed=self._follower.followed(),
            markers=self._follower.markers,
            with_words=with_words,
        )

    def _start_from(self, loaded: Loaded) -> None:
        self._runner.start_anew()
        self._tracker.start_from(loaded.state, loaded.tokens)
        self._follower.start_from(loaded.followed, loaded.known, loaded.markers)

    # What left the view

    def tools(self, form: FormName = "chat") -> OffloadTools:
        """Return the tools by which an agent finds and reads what left its view; stand-ins then name them.

        Args:
            form: the shape of their schemas and attachments.
        """
        from context_compressor.tools import OffloadTools  # they stand above memories

        as_form(form)
        return OffloadTools(self, wire=form)

    def offer_tools(self, are_offered: bool = True) -> None:
        """Note whether the agent has the read-back tools: stand-ins that are made from now on name them."""
        self._tracker.offer_tools(are_offered)

    @property
    def budget_tokens(self) -> int:
        """Tokens that a view may cost: the budget, or less where the provider's counts ask for it."""
        return self._tracker.state.budget.due_tokens

    async def reachable_refs(self) -> list[str]:
        """Return the refs that this memory's ledger names, the one of the newest message first."""
        return self._tracker.state.refs()

    async def read_ref(self, ref: str) -> str:
        """Return a text that left the view; made from the history where the store does not have it.

        Raises:
            OffloadNotFoundError: the ref is malformed, or not one of this memory's.
            OffloadError: the store failed, and the history does not give the text either.
        """
        return await self._texts.read(ref)

    async def search_history(self, query: str, limit: int = 5, role: SpeakerRole | None = None) -> list[Hit]:
        """Return the passages of the whole history that answer a query, best first.

        What left the view is found as well as what stands in it. The index is kept beside the texts of a
        `FileOffloadStore`, else in memory, and brought in step with the history when it is asked.

        Args:
            query: a name, words, or a question; any characters, none of them an operator.
            limit: how many passages at most.
            role: who said it: "user", "assistant", "tool" or "system"; None for all.

        Raises:
            InvalidArgumentError: a query that is no string, a limit below 1, or no such role.
            RedactionError: the `redact` callable failed.
            OffloadError: this Python's SQLite has no full-text search.
        """
        await self._runner.refresh()
        return await self._recall.search(query, limit, self._tracker.state, role)

    async def ages_of_refs(self) -> dict[str, tuple[int, int]]:
        """Return by ref how many messages ago the newest and the oldest message of each stored text were."""
        state = self._tracker.state
        last = len(state.known.tokens) - 1
        found = state.places_of_refs().items()
        return {ref: (last - newest, last - oldest) for ref, (oldest, newest) in found if oldest >= 0}

    def own_words_in(self, ref: str, text: str) -> list[tuple[int, int]]:
        """Return where a stored text holds words of this memory: earlier summaries and previews.

        Args:
            ref: the text's.
            text: the text.
        """
        return own_words_in(text, ref, self._tracker.state.ledger)

    async def find_media(self, name: str) -> Block | None:
        """Return the newest block of the history that shows the image, audio, video or file of this name.

        Args:
            name: a URL, or a file's id at the provider.

        Raises:
            RedactionError: the `redact` callable failed.
        """
        await self._runner.refresh()
        for entry in reversed(await self._tracker.history.read()):
            if entry.msg is not None and media_named(entry.msg.get_content_blocks(), name) is not None:
                shown = shown_message(entry.msg, {}, {}, self.config.redact)
                if (block := media_named(shown.get_content_blocks(), name)) is not None:
                    return block
        return None

    def standing_page_tokens(self) -> int:
        """Return the tokens of the pages of stored texts that stand in the view."""
        return self._tracker.state.page_tokens()

    # Life

    async def aclose(self) -> None:
        """End what goes on in the background, and close the clients that summarisers made.

        Over a history that several processes share, a summary that a model is writing is waited for, for 30
        seconds at most: whoever opens the session next would pay for it again. Leaving `async with` by a
        cancellation gives it up.

        Each is done although another fails, or is cancelled. The memory can be used again afterwards.
        """
        await self._close(waits=True)

    async def _close(self, *, waits: bool) -> None:
        async with AsyncExitStack() as stack:
            close = getattr(self._summarizer, "aclose", None)
            if close is not None:
                stack.push_async_callback(close)
            stack.push_async_callback(self._recall.index.close)
            await self._runner.aclose(waits=waits)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close(waits=kind is None or issubclass(kind, Exception))


def system_text(system: object) -> str:
    """Return what a request carries beside its messages as one text.

    Raises:
        InvalidArgumentError: neither a string nor a list of text blocks.
    """
    if system is None or isinstance(system, str):
        return system or ""
    if isinstance(system, list | tuple):
        texts = [block.get("text") if isinstance(block, Mapping) else None for block in system]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(map(str, texts))
    raise InvalidArgumentError(f"system: expected a string or a list of text blocks, got {system!r:.200}")


def _as_memory(base: Any) -> MemoryBase:
    """Return what was given as a base memory, or wrapped as one."""
    if base is None:
        return InMemoryMemory()
    if isinstance(base, MemoryBase):
        return base
    if all(hasattr(base, verb) for verb in ("head", "read", "write", "ledger")):
        return MemoryBase(base)
    # Whoever wraps one of AgentScope's memories has its form to read; nobody else has.
    from context_compressor.integrations.agentscope.history import as_memory

    return as_memory(base)


_INSTEAD = {
    "content": "await memory.get_history() gives the messages, get_memory(mark=...) those with a mark",
    "retrieve": "await memory.search_history(query) finds messages",
    "export": "await memory.get_history() gives the messages, await memory.save(path) writes the state",
    "store_dir": "store= says where texts go, such as FileOffloadStore(path)",
    "working_summary_mode": "memory.config.mode",
}
"""What to use instead of attributes of AgentScope's and ReMe's memories."""


def no_attribute(memory: object, name: str, config: str = "config") -> AttributeError:
    """Return the error for an attribute that does not exist; it says what to use instead."""
    instead = _INSTEAD.get(name)
    if name in CompressionConfig.model_fields:
        instead = f"memory.config.{name}"
    said = f"{type(memory).__name__!r} object has no attribute {name!r}"
    if instead is None:
        return AttributeError(said, name=name, obj=memory)
    return AttributeError(f"{said}; {instead.replace('memory.config', f'memory.{config}')}")
