"""Performing a plan: what leaves is stored, stubs and notes say what it was. The core's only part with I/O.

An event changes neither view nor ledger; it gives the edits to commit, so that a cancelled or outdated event
leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from context_compressor.core.config import CompressionConfig
from context_compressor.core.decide import Costs, Plan, PlannedSegment, PlannedStub
from context_compressor.core.edits import Edit, EditName, ItemKey, SegmentEdit, StubEdit, Told
from context_compressor.core.items import READ_TOKENS, ViewItem, segment_tokens
from context_compressor.core.labels import (
    SAMPLE_REF,
    bounded_note,
    fit_notes,
    fit_standing,
    newest_once,
    notes_section,
    section_tokens,
    segment_text,
    standing_section,
    summary_of,
)
from context_compressor.core.ledger import Ledger
from context_compressor.core.shown import (
    abridge,
    redacted_text,
    render_transcript,
    said_ref,
    shown_message,
    stored_text,
)
from context_compressor.errors import OffloadCollisionError, OffloadError, SummarizerError
from context_compressor.events import NoteFate
from context_compressor.messages.hosted import compacted_words
from context_compressor.messages.media import MediaKind
from context_compressor.messages.msg import (
    Msg,
    Role,
    is_instruction,
    is_staying,
    segment_metadata,
    staying_metadata,
    tool_names,
)
from context_compressor.messages.parts import Part, PartPath, part_at, replace_parts
from context_compressor.messages.repair import with_content
from context_compressor.messages.speech import standing_in
from context_compressor.messages.text import sendable
from context_compressor.offload.guide import GUIDE, SHORT_GUIDE, names_tools
from context_compressor.offload.store import OffloadStore, ref_of, write_text
from context_compressor.offload.stubs import media_stub, minimal_stub, stub_text
from context_compressor.summarizers.bill import Bill
from context_compressor.summarizers.chain import Chain, ChainWriter, writers_of
from context_compressor.summarizers.cut import cut, cut_middle
from context_compressor.summarizers.notes import Notes
from context_compressor.summarizers.prompts import opening_of
from context_compressor.summarizers.protocol import (
    Departure,
    InPlaceSummarizer,
    Summarizer,
    SummaryRequest,
    Window,
)
from context_compressor.summarizers.writers import InPlace, RulesWriter, Written
from context_compressor.tokens.counter import TokenCounter, measure
from context_compressor.tokens.off_loop import (
    gather,
    run_off_loop,
    run_rules_off_loop,
    text_characters,
)

logger = logging.getLogger(__name__)

MAX_CALLS_PER_EVENT = 48
"""Calls of a model that one event may make, retries and the pieces of long parts included."""
_CONCURRENT_CALLS = 8
"""Writes of one event that run at the same time."""
_MOST_NAMED = 8
"""So many messages are named one by one."""
_STAYING_CHARS = 200
"""So much of a message that stays tells which it is."""
_LEAST_PROSE_TOKENS = 32
"""With less room than a sentence or two nobody is asked."""
_STUB_NAMES = {"text": "message", "tool_result": "tool result", "argument": "argument"}
"""What a stub calls the text for which it stands."""
_GUIDE_SHARES = {GUIDE: 4, SHORT_GUIDE: 3}
"""The guide takes at most this part of a segment's room."""
_SAMPLE_MEDIA = "data:application/octet-stream;base64,"


class Engine:
    """What events work with: a store, summarisers, a counter.

    Args:
        config: thresholds, redaction, timeouts in seconds, what failures lead to.
        store: where texts go.
        summarizer: who writes notes; rules do where that fails.
        counter: measures stand-ins.
    """

    def __init__(
        self,
        *,
        config: CompressionConfig,
        store: OffloadStore,
        summarizer: Summarizer,
        counter: TokenCounter,
    ) -> None:
        self.config = config
        self.store = store
        rules = RulesWriter(counter)
        seconds, piece_tokens = config.summarizer_timeout_seconds, config.group_token_threshold
        writers = writers_of(summarizer, counter, seconds, piece_tokens)
        models = [writer for writer in writers if not isinstance(writer, RulesWriter)]
        # Rules, which do not fail, come last, wherever a chain of the user's has them.
        self.chain = Chain(models if models and config.on_failure == "raise" else [*models, rules])
        self.rules = Chain([rules])
        self.counter = counter
        self._costs: Costs | None = None

    def costs(self) -> Costs:
        """Return what the bare stand-ins cost by the counter, measured at first use.

        Those that name no tool cost less.
        """
        if self._costs is None:
            # A count of messages as large as it may become, so that no real stand-in costs more.
            self._costs = Costs(
                stub=self.counter.count_text(minimal_stub(SAMPLE_REF)),
                media=self.counter.count_text(media_stub(_SAMPLE_MEDIA, SAMPLE_REF, "image")) + 20,
                segment=segment_tokens(segment_text(SAMPLE_REF, 9_999_999, "x"), self.counter),
                by_model=self.chain.writers[0].remote,
            )
        return self._costs


@dataclass(frozen=True, slots=True)
class Done:
    """What an event came to."""

    edits: Sequence[Edit]
    """To be committed: stubs, then segments."""
    writes: Mapping[str, bool | None]
    """As `Writer.writes`."""
    failures: Sequence[str]
    """What went wrong on the way."""
    use: Bill
    blocked: AbstractSet[EditName] = frozenset()
    """Texts that could not be stubbed."""
    note: NoteFate | None = None
    """What became of the agent's note, if there was one."""
    reason: str = ""
    """Why it came."""

    def refs(self, *, durable: bool) -> set[str]:
        """Return the refs of texts that are durable, or of those that are pending."""
        return {ref for ref, is_durable in self.writes.items() if is_durable is durable}


class Writer:
    """Write the texts of one event, and note what goes wrong and what is paid.

    Attributes:
        writes: the refs that the store was asked to take, each with whether its text is durable. False: it is
            pending. None: another text holds the ref, or the store did not answer, and the write may land.
        failures: what went wrong, each once.
        use: what summarising cost.
    """

    def __init__(self, engine: Engine) -> None:
        self._config = engine.config
        self._store = engine.store
        self.writes: dict[str, bool | None] = {}
        self.failures: list[str] = []
        self.use = Bill(MAX_CALLS_PER_EVENT)

    async def write_own(self, text: str) -> str:
        """Store a text of our own making; a collision leaves it pending, served from the history."""
        ref = await run_off_loop(len(text), ref_of, text)
        try:
            await self.write(text, ref)
        except OffloadCollisionError as error:
            self._leave_pending(ref, error)
        return ref

    async def write(self, text: str, ref: str) -> None:
        """Make a text durable, or note it as pending.

        Raises:
            OffloadCollisionError: another text holds the ref.
            OffloadError: the store refused and `on_failure` is "raise".
        """
        self.writes.setdefault(ref, None)
        try:
            await write_text(self._store, text, ref, self._config.store_timeout_seconds)
        except OffloadCollisionError:
            raise
        except OffloadError as error:
            if self._config.on_failure == "raise":
                raise
            self._leave_pending(ref, error)
        else:
            self.writes[ref] = True

    def _leave_pending(self, ref: str, error: OffloadError) -> None:
        self.fail(error)
        self.writes[ref] = bool(self.writes[ref])  # one that landed is durable, whatever came of another

    def fail(self, error: Exception) -> None:
        """Note what went wrong, once."""
        logger.warning("the memory goes on without this: %s: %s", type(error).__name__, error)
        text = f"{type(error).__name__}: {error}"
        if text not in self.failures:
            self.failures.append(text)

    def settle(self) -> None:
        """Note who was passed over by those that were asked."""
        for failure in self.use.passed_over:
            self.fail(SummarizerError(failure))


class Event:
    """One event: what a plan lets go is stored and summarised.

    Args:
        engine: what it works with.
        plan: what is to leave.
        items: the view that it was made for.
        ledger: the edits so far.
        note: what the agent still needs: stands word for word in the newest segment, and goes to the
            summariser.
        names_tools: whether the agent has the read-back tools: then stand-ins tell of them.
        fresh: keys of the items that no view has shown yet.
        window: of the agent's own model.
        system: what the request carries beside the messages.
        places: where each message stands in the history, by its id.

    Attributes:
        plan: as given.
        seconds: wall-clock seconds that `perform` took.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        items: Sequence[ViewItem],
        ledger: Ledger,
        *,
        note: str | None = None,
        names_tools: bool = True,
        fresh: Collection[ItemKey] = frozenset(),
        window: Window = Window(),  # noqa: B008  # immutable
        system: str = "",
        places: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.plan = plan
        self.seconds = 0.0
        self._engine = engine
        self._config, self._counter = engine.config, engine.counter
        self._items = items
        self._ledger = ledger
        self._note, self._kept_note = note, ""
        self._names_tools = names_tools
        self._fresh, self._window = fresh, window
        self._system = _text("system", system, "system")
        self._places = places
        self._writer = Writer(engine)
        self._stubs: list[StubEdit] = []
        self._stubbed: dict[ItemKey, dict[PartPath, str]] = {}
        leaving = plan.leaving
        stubbed = {planned.item for planned in plan.stubs}
        gone = leaving.union(item.exchange for item in items if item.key in stubbed)
        self._names = tool_names(item.source for item in items if item.exchange in gone)
        stays = [item for item in items if item.kind == "message" and item.exchange not in leaving]
        head = list(takewhile(lambda item: is_instruction(item.source), stays))
        self._stays = [item for item in stays[len(head) :] if item.key not in plan.hints]
        self._staying_rules = [item for item in stays if item.standing]
        spoken = [item.source.get_text_content() or "" for item in stays if item.source.role == "user"]
        self._spoken = _text("user", "\n".join(spoken))
        self._requests: list[_Said] = []

    @property
    def attempted(self) -> Collection[str]:
        """Refs that the store was asked to take so far: what is never committed can be removed from it."""
        return self._writer.writes.keys()

    @property
    def use(self) -> Bill:
        """What models were paid for so far."""
        return self._writer.use

    async def perform(self) -> Done:
        """Store and summarise what the plan lets go; return what is to be committed.

        However it ends, `attempted`, `use` and `seconds` are right then.

        Raises:
            RedactionError: the user's callable failed.
            OffloadError, SummarizerError: a store or summariser failed and `on_failure` is "raise".
        """
        writer, began = self._writer, time.monotonic()
        try:
            segments, note = await self._perform()
        finally:
            self.seconds = time.monotonic() - began
            writer.settle()
        made = {(stub.item, stub.path) for stub in self._stubs}
        blocked = {(stub.item, stub.path) for stub in self.plan.stubs}.difference(made)
        edits: list[Edit] = [*self._stubs, *segments]
        return Done(edits, writer.writes, writer.failures, writer.use, blocked, note, str(self.plan.reason))

    async def _perform(self) -> tuple[list[SegmentEdit], NoteFate | None]:
        """Make stubs, which are kept, then segments; return these, and what became of the note."""
        plan, note = self.plan, ""
        if self._note:
            note = sendable(" ".join(redacted_text(self._note, self._config.redact).split()))
            self._kept_note = bounded_note(note, self._counter)
        by_key = {item.key: item for item in self._items}
        limit = asyncio.Semaphore(_CONCURRENT_CALLS)

        async def stub(planned: PlannedStub) -> StubEdit | None:
            async with limit:
                return await self._make_stub(planned, by_key[planned.item])

        stubs = await gather([stub(planned) for planned in plan.stubs])
        self._stubs = [edit for edit in stubs if edit is not None]
        carrier, guide = await self._place_guide()
        for made in self._stubs:
            self._stubbed.setdefault(made.item, {})[made.path] = made.text
        requests = plan.requests if plan.needs_summary else ()
        self._requests = [self._said(unit.items[0], unit.position) for unit in requests]
        noted = max(plan.segments, key=_age, default=None)

        fate: NoteFate | None = "dropped" if self._note else None
        segments: list[SegmentEdit] = []
        taken: set[str] = set()
        for planned in plan.segments:  # never two requests at once
            edit = await self._make_segment(
                planned, noted=planned is noted, guide=guide if planned is carrier else ""
            )
            segment_id = self._ledger.new_segment_id(edit.ref, taken)
            taken.add(segment_id)
            segments.append(replace(edit, id=segment_id, told=self._told_first(edit)))
            # It may also be kept for when the segment is merged, and not shown.
            shows = edit.notes and edit.text.endswith(notes_section(edit.notes))
            if self._kept_note and planned is noted and shows:
                fate = "kept" if edit.notes[-1] == note else "cut"
        return segments, fate

    def _told_first(self, segment: SegmentEdit) -> tuple[Told, ...]:
        """Return of what a segment was told and does not cover, without what parts before it were told.

        These are withdrawn with all parts after them.
        """
        known: set[Told] = set()
        todo = list(segment.children)
        while todo:
            part = self._ledger.segment(todo.pop())
            if part is not None:
                known.update(part.told)
                todo += part.children

        def covers(item: ItemKey) -> bool:
            top = self._ledger.top_segment_of(item)
            return item in segment.items or (top is not None and top.id in segment.children)

        return tuple(told for told in segment.told if told not in known and not covers(told[0]))

    # Stubs

    async def _make_stub(self, planned: PlannedStub, item: ViewItem) -> StubEdit | None:
        """Store a text and return its stub; None where none can be.

        Raises:
            RedactionError, OffloadError: as `perform`.
        """
        part = part_at(item.source, planned.path)
        assert part is not None
        source = stored_text(part, self._config.redact)
        ref = await run_off_loop(len(source), ref_of, source)
        try:
            await self._writer.write(source, ref)
        except OffloadCollisionError as error:
            self._writer.fail(error)
            return None
        return await self._stub(planned.max_tokens, item, part, source, ref)

    async def _stub(
        self, max_tokens: int, item: ViewItem, part: Part, source: str, ref: str, *, guide: bool = False
    ) -> StubEdit | None:
        """Return the stub of a text that is stored; None where it would not cost less than the text."""

        def text() -> str:
            if part.is_media:
                return media_stub(source, ref, cast(MediaKind, part.kind), names_tools=self._names_tools)
            tokens = item.text_tokens(part.path)
            may_hold = part.kind == "text" and item.standing
            return stub_text(
                source,
                ref,
                self._counter,
                tokens=self._counter.count_text(source) if tokens is None else tokens,
                max_tokens=max_tokens,
                what=_STUB_NAMES[part.kind],
                standing=standing_in(replace_parts(item.source, {part.path: source})) if may_hold else (),
                guide=guide,
                names_tools=self._names_tools,
            )

        stub = self._edit(item, part, ref, await run_rules_off_loop(len(source), text))
        return stub if self._gains(item, part, stub) else None

    def _edit(self, item: ViewItem, part: Part, ref: str, text: str) -> StubEdit:
        return StubEdit(item.key, part.path, ref, text, self._counter.count_text(text))

    def _gains(self, item: ViewItem, part: Part, stub: StubEdit) -> bool:
        """Tell whether a stub costs less than what it replaces."""
        whole = item.text_tokens(part.path)
        if whole is not None:
            standing = item.stubs.get(part.path)
            replaced = whole if standing is None else standing.tokens
            if stub.tokens >= replaced or self._cost_in_message(stub.text) < replaced:
                return stub.tokens < replaced
        texts = {path: stub.text for path, stub in item.stubs.items()} | {part.path: stub.text}
        return measure(self._counter, replace_parts(item.source, texts)).total < item.tokens

    def _cost_in_message(self, text: str) -> int:
        """Return what a stub adds to a message: a counter may find more there, as its JSON is longer."""
        empty, holding = (Msg("", content, "user", timestamp="") for content in ("", text))
        return self._counter.count_messages([holding]) - self._counter.count_messages([empty])

    # The guide

    async def _place_guide(self) -> tuple[PlannedSegment | None, str]:
        """Let one stand-in of an event tell of the tools, where nothing that stays in the view does.

        That is the first segment that has room for the long form, else the roomiest of the stubs made, which
        is made anew there, else the first segment with room for the short form.

        Returns:
            The segment that is to tell of them, and in which form; None and "" where none is.
        """
        plan, leaving = self.plan, self.plan.leaving
        staying = {item.key: item for item in self._items if item.exchange not in leaving}
        if not self._names_tools or self._is_told(staying.values()):
            return None, ""
        for form, share in _GUIDE_SHARES.items():
            least = share * self._counter.count_text(form)
            roomy = next((segment for segment in plan.segments if segment.summary_tokens >= least), None)
            if roomy is not None:
                return roomy, form
            if form is GUIDE and await self._guide_by_stub(staying):
                return None, ""
        # What only names a ref may still have room for the short form: its label can be shorter.
        return next((segment for segment in plan.segments if not segment.summary_tokens), None), SHORT_GUIDE

    def _is_told(self, staying: Iterable[ViewItem]) -> bool:
        """Tell whether a stand-in that stays, and is not made anew, says which tools there are."""
        anew = {(edit.item, edit.path) for edit in self._stubs}
        for item in staying:
            if item.kind == "segment":
                texts = [str(item.source.content)]
            else:
                texts = [stub.text for path, stub in item.stubs.items() if (item.key, path) not in anew]
            if any(map(names_tools, texts)):
                return True
        return False

    async def _guide_by_stub(self, staying: Mapping[ItemKey, ViewItem]) -> bool:
        """Make the roomiest stub of a text anew, with the guide; tell whether it has it then, in either form.

        Stubs of media name their tool in any case.
        """
        made = {(edit.item, edit.path): edit for edit in self._stubs if edit.item in staying}
        candidates = [stub for stub in self.plan.stubs if (stub.item, stub.path) in made]
        for stub in sorted(candidates, key=lambda stub: -stub.max_tokens):
            item, edit = staying[stub.item], made[stub.item, stub.path]
            part = part_at(item.source, stub.path)
            if part is None or part.is_media:
                continue
            source = stored_text(part, self._config.redact)
            guided = await self._stub(stub.max_tokens, item, part, source, edit.ref, guide=True)
            if guided is not None:
                self._stubs[self._stubs.index(edit)] = guided
                return names_tools(guided.text)
        return False

    # Segments

    async def _make_segment(self, planned: PlannedSegment, *, noted: bool, guide: str) -> SegmentEdit:
        """Store what leaves, and bring the notes up to date that stand for it. Its id is still to be given.

        Args:
            planned: what leaves, and what stood for more before.
            noted: whether the agent's note is to stand there.
            guide: what it is to say of the tools.
        """
        counter, bare_tokens = self._counter, self._engine.costs().segment
        spare_tokens = self.plan.spare_tokens // max(1, len(self.plan.segments))
        items = [item for unit in planned.units for item in unit.items]
        earlier = [item.segment for item in items if item.segment is not None]
        keys = [item.key for item in items if item.segment is None]
        stored, read, whole, standing = await self._material(planned)
        transcript = render_transcript(stored, before=[edit.ref for edit in earlier])
        ref = await self._writer.write_own(transcript.text)
        media_refs = [await self._writer.write_own(media) for media in transcript.media]
        replaced = sum(unit.tokens for unit in planned.units)
        own = self._kept_note if noted else None
        kept = newest_once([*(note for edit in earlier for note in edit.notes), *([own] if own else [])])
        before = sum(len(item.covered) for item in items if item.segment is not None)
        text_with = partial(segment_text, ref, before + len({key.key for key in keys}))
        notes = _notes_of(earlier)
        bare = SegmentEdit(
            id="",
            items=tuple(keys),
            children=tuple(edit.id for edit in earlier),
            ref=ref,
            media_refs=tuple(media_refs),
            text=text_with(None),
            summarized=False,
            notes=kept,
            standing=standing,
            stands_for_tokens=sum(item.stands_for_tokens for item in items),
            left_standing=sum(edit.left_standing for edit in earlier),
        ).with_notes(notes)
        if not planned.summary_tokens:
            text_with = partial(text_with, None, guide=guide)
            if guide and segment_tokens(text_with(), counter) > bare_tokens:
                text_with = partial(text_with, guide="")
            most = min(bare_tokens + spare_tokens, replaced - 1)
            room = min(most - segment_tokens(text_with(), counter), planned.standing_tokens)
            lines = fit_standing(standing, room, counter) if standing else ()
            left_out = bare.left_standing + len(standing) - len(lines)
            text = text_with(standing=lines, left_out=left_out)
            if segment_tokens(text, counter) > most:
                text = text_with()
            room = most - segment_tokens(text, counter)
            fitted = fit_notes(kept, room, counter) if own else ()
            # What finds no room is kept for the next event.
            return replace(bare, text=text + notes_section(fitted), notes=fitted or kept)

        lines = fit_standing(standing, planned.standing_tokens, counter)
        left_out = bare.left_standing + len(standing) - len(lines)
        left = planned.summary_tokens - section_tokens(standing_section(lines, left_out, SAMPLE_REF), counter)
        left -= counter.count_text(f" {guide}.") if guide else 0
        spare = max(0, min(spare_tokens, replaced - planned.summary_tokens - bare_tokens - 1))
        own_room = min(spare, section_tokens(notes_section([own]), counter)) if own else 0
        fitted = fit_notes(kept, max(left // 2, 0) + own_room, counter)
        left -= max(section_tokens(notes_section(fitted), counter) - own_room, 0)
        told: Sequence[Told] = ()
        if left >= _LEAST_PROSE_TOKENS and not all(map(is_staying, read)):
            beside = [_summary_message(standing_section(lines).strip())] if lines else []
            notes, told = await self._write(
                self._request(read, left, beside),
                notes,
                planned,
                whole=whole,
                read_tokens=sum(item.read_tokens for item in items),
            )
        else:
            notes = notes.fitted(lambda some: counter.count_text(some.text()) <= left)
        summary = notes.text() or None
        text_with = partial(text_with, summary, standing=lines, left_out=left_out, guide=guide)
        if own and fitted[-1:] != (own,):
            # The note was cut or left out for room: the summary may have left some, as may the view.
            most = min(bare_tokens + planned.summary_tokens + spare, replaced - 1)
            found = fit_notes(kept, most - segment_tokens(text_with(), counter), counter)
            fitted = max(fitted, found, key=lambda some: len(some[-1]) if some else 0)
        text = sendable(text_with(notes=fitted))
        # Texts are reckoned alone, and a counter may find more in a message, as its JSON is longer.
        if segment_tokens(text, counter) >= replaced:
            return bare
        return replace(
            bare,
            text=text,
            summarized=summary is not None,
            notes=fitted,
            standing=lines,
            left_standing=left_out,
            told=tuple(told),
        ).with_notes(notes)

    async def _material(
        self, planned: PlannedSegment
    ) -> tuple[list[Msg], list[Msg], set[int], tuple[str, ...]]:
        """Return what is to leave, as the transcript has it, and as writers read it; what stands in it.

        The transcript has stubs in place. Writers read texts whole, and what users
        said amid it that stays; behind these stand the places of those that the view showed whole. Last come
        the standing instructions in it, and in what stood for more before, that no message tells that stays,
        the oldest first. All of it is redacted: what was written before was when it was made.

        Raises:
            RedactionError: the user's callable failed.
        """
        redact, names = self._config.redact, self._names
        stored: list[Msg] = []
        read: list[Msg] = []
        whole: set[int] = set()
        standing: list[str] = []
        start, end = _span(planned)
        waiting = [said for said in self._requests if start < said.position < end]
        for place, item in [(unit.position, item) for unit in planned.units for item in unit.items]:
            if item.kind == "segment":
                standing += item.standing
                continue
            while waiting and waiting[0].position < place:
                read.append(_staying_message(waiting.pop(0).msg))
            texts = self._texts_in(item)
            stored.append(shown_message(item.source, texts, names, redact))
            begin = len(read)
            read += _without_compaction(
                shown_message(item.source, {}, names, redact) if texts else stored[-1]
            )
            if not item.stubs and item.key not in self._fresh:
                whole.update(range(begin, len(read)))
            if redact is None:
                standing += item.standing
            elif item.standing:  # a rule may be on what it leaves of the sentences around
                standing += await run_rules_off_loop(text_characters(read[-1:]), standing_in, read[-1])
        # Nobody has to repeat what users say in messages that stay.
        said = {line for item in self._staying_rules for line in self._lines_told(item)}
        return stored, read, whole, newest_once(line for line in standing if line not in said)

    def _lines_told(self, item: ViewItem) -> Iterable[str]:
        """Return the standing instructions that a message which stays still tells."""
        texts = self._texts_in(item)
        if not texts:
            return item.standing
        shown = " ".join((replace_parts(item.source, texts).get_text_content() or "").split())
        return (line for line in item.standing if line in shown)

    def _said(self, item: ViewItem, position: int = 0) -> _Said:
        shown = shown_message(item.source, {}, {}, self._config.redact)
        text = shown.get_text_content() or ""
        most = READ_TOKENS * len(text) // max(1, item.source_tokens.total)
        return _Said(position, item.key, _text(shown.name, cut_middle(text, most)))

    def _texts_in(self, item: ViewItem) -> dict[PartPath, str]:
        """Return what stands in an item in the place of texts."""
        return {path: stub.text for path, stub in item.stubs.items()} | self._stubbed.get(item.key, {})

    # What a model is shown

    def _apart(
        self, request: SummaryRequest, whole: Collection[int], *, is_remote: bool
    ) -> tuple[SummaryRequest, list[Told]]:
        """Return a request with what stays, and what of that is told: all but the newest exchange.

        That one may still be asked for again, and notes that tell of it would have to be made again.
        """
        said = {one.key: one.msg for one in self._requests}
        now = {one.key for one in self._requests[-1:]}  # what the agent works on, which is told by itself
        newest = self._items[-1].exchange
        told = self._told(item for item in self._stays if item.exchange != newest or item.key in now)
        shown: list[Msg] = []
        for item in self._stays:
            if item.exchange == newest:
                continue
            texts = self._texts_in(item)
            msg = said.get(item.key) or shown_message(item.source, texts, {}, self._config.redact)
            shown += abridge(_without_compaction(msg), self._counter)
        messages = abridge(request.messages, self._counter, whole) if is_remote else request.messages
        return replace(request, messages=messages, context=(*request.context, *shown)), told

    def _in_place(
        self, own: Summarizer, planned: PlannedSegment, request: SummaryRequest
    ) -> tuple[InPlace | None, list[Told]]:
        """Return what the agent's own model is asked behind its last request, and what of it stays.

        None: what leaves did not all stand there, or what did is not all for a model to note.
        """
        held = own.held if isinstance(own, InPlaceSummarizer) else ()
        leaving = [item for unit in planned.units for item in unit.items if item.kind == "message"]
        sees_more = self._config.redact is not None or not self.plan.hints.isdisjoint(held)
        if sees_more or not leaving or any(item.key not in held for item in leaving):
            return None, []
        seen = [item for item in self._items if item.kind == "message" and item.key in held]
        left = {item.key for item in leaving}
        end = next(place for place, item in enumerate(self._items) if item is leaving[-1])
        before = {item.key for item in self._items[:end]}
        stays = [item for item in self._stays if item.key in held]
        names = tool_names(item.source for item in seen)
        openings = {item.key: opening_of(item.msg, names) for item in seen}
        amid = [openings[item.key] for item in stays if item.key in before]
        behind = (_among(openings, item.key) for item in stays if item.key not in before)
        more = len(amid) - _MOST_NAMED
        departure = Departure(
            count=len(leaving),
            last=_among(openings, leaving[-1].key),
            next=next(behind, ""),
            amid=(*amid[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])),
            since=tuple(item.source.role for item in self._stays if item.key not in held),
            before_tokens=sum(item.tokens for item in self._items if item.key in held),
        )
        texts = [(item, shown_message(item.source, {}, {})) for item in seen]
        stubs = "\n".join(stub.text for item in seen for stub in item.stubs.values())
        shown = replace(
            request,
            messages=tuple(msg for item, msg in texts if item.key in left),
            context=(
                self._system,
                _text("memory", stubs, "assistant"),
                *request.context,
                *(msg for item, msg in texts if item.key not in left),
            ),
            request=None,
        )
        return InPlace(shown, departure), self._told(stays)

    def _told(self, items: Iterable[ViewItem]) -> list[Told]:
        """Return by what it is noticed that one of these is gone or says something else."""
        return [(item.key, said_ref(item.source, self._config.redact)) for item in items]

    def _request(self, read: Sequence[Msg], max_tokens: int, context: Sequence[Msg]) -> SummaryRequest:
        return SummaryRequest(
            messages=tuple(read),
            max_tokens=max_tokens,
            context=tuple(context),
            request=self._requests[-1].msg.get_text_content() if self._requests else None,
            instructions=self._config.summary_instructions or None,
            note=self._kept_note or None,
            bill=self._writer.use,
        )

    async def _write(
        self,
        request: SummaryRequest,
        notes: Notes,
        planned: PlannedSegment,
        *,
        whole: Collection[int],
        read_tokens: int,
    ) -> tuple[Notes, list[Told]]:
        """Return the notes by the first means that gives them, and what else than what leaves they may tell.

        Args:
            request: as rules read it. A model reads a part of long results that the view did not show, and
                what stays.
            notes: so far.
            planned: what leaves.
            whole: the places of the messages that the view showed whole.
            read_tokens: about how many tokens a model reads of it.
        """
        told: list[Told] = []

        async def write(writer: ChainWriter) -> Written:
            nonlocal told
            if isinstance(writer, RulesWriter):
                told = []
                # What a user says in messages that stay is told by them, and not here again.
                asked = replace(request, context=(*request.context, self._spoken))
                return await writer.write(asked, notes, read_tokens=read_tokens, places=self._places)
            size = text_characters(item.source for item in self._items)
            asked, apart = await run_rules_off_loop(
                size, self._apart, request, whole, is_remote=writer.remote
            )
            in_place, there = await run_rules_off_loop(
                size, self._in_place, writer.summarizer, planned, request
            )
            written = await writer.write(
                asked, notes, read_tokens=read_tokens, in_place=in_place, window=self._window
            )
            told = there if written.in_place else apart
            return written

        chain = self._engine.rules if self.plan.by_rules else self._engine.chain
        written = await chain.write(write, lambda _, error: self._writer.fail(error))
        by = f"{written.by} in place" if written.in_place else written.by
        self._writer.use.add(written.paid, remote=written.remote, by=by)
        return written.notes, told


def _notes_of(earlier: Sequence[SegmentEdit]) -> Notes:
    """Return the notes so far: what segments of an earlier release say are their first lines."""
    notes = Notes()
    for edit in earlier:
        if edit.is_notes:
            notes = notes.joined(edit.as_notes)
        elif said := summary_of(edit.text, edit.standing, edit.notes):
            notes = notes.added(sendable(said))
    return notes


def _among(openings: Mapping[ItemKey, str], key: ItemKey) -> str:
    """Return how a message begins, and which it is of several that begin so."""
    same = [one for one, opening in openings.items() if opening == openings[key]]
    which = f" (number {same.index(key) + 1} of the {len(same)} that begin so)" if len(same) > 1 else ""
    return openings[key] + which


class _Said(NamedTuple):
    """What a user said that stays."""

    position: int
    key: ItemKey
    msg: Msg
    """As a summariser reads it: head and tail, where it is long."""


def _span(planned: PlannedSegment) -> tuple[int, int]:
    """Return where what leaves stands first and last."""
    return min(unit.position for unit in planned.units), planned.units[-1].position


def _summary_message(summary: str) -> Msg:
    """Return the summary of an earlier segment as a message that summarisers read as such."""
    return _text("memory", summary, metadata=segment_metadata())


def _without_compaction(msg: Msg) -> list[Msg]:
    """Return a message as summarisers read it; a summary by a provider becomes a message of its own."""
    blocks = msg.get_content_blocks()
    words = [found for block in blocks if (found := compacted_words(block)) is not None]
    if not words:
        return [msg]
    rest = with_content(msg, [block for block in blocks if compacted_words(block) is None])
    return [_summary_message("\n\n".join(words)), *([rest] if rest.content else [])]


def _staying_message(msg: Msg) -> Msg:
    """Return what a user said that stays as a message that only tells the order, cut where it is long."""
    text = cut(msg.get_text_content() or "", _STAYING_CHARS)
    return _text(msg.name, text, metadata=staying_metadata())


def _text(name: str, text: str, role: Role = "user", metadata: dict[str, Any] | None = None) -> Msg:
    """Return a message that is only read."""
    return Msg(name, text, role, metadata, timestamp="", id="")


def _age(segment: PlannedSegment) -> tuple[bool, bool, int]:
    """Return what puts segments of conversation behind mere merges, and the newest of them last."""
    last = segment.units[-1]
    return not last.segment, not last.volatile, last.position
