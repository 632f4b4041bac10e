"""Performing a plan: store what will leave, summarise, check. The only part of compression with I/O.

The engine changes neither view nor ledger; it gives the edits to commit, so that a cancelled or outdated
event leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import ItemKey, SegmentEdit, StubEdit
from context_compressor.compression.labels import segment_text, summary_of
from context_compressor.compression.planner import Costs, Plan, PlannedSegment, PlannedStub
from context_compressor.compression.transcript import (
    redacted_text,
    render_transcript,
    shown_message,
    tool_names,
)
from context_compressor.compression.view import SEGMENT_NAME, ViewItem
from context_compressor.errors import OffloadCollisionError, OffloadError, OffloadWriteError, SummarizerError
from context_compressor.messages.msg import Msg
from context_compressor.messages.parts import PartPath, text_parts
from context_compressor.offload.pages import page_matches, page_stub, parse_page
from context_compressor.offload.protocol import OffloadStore, ref_of
from context_compressor.offload.stubs import minimal_stub, stub_text
from context_compressor.summarizers.protocol import Summarizer, Summary, SummaryRequest
from context_compressor.summarizers.validation import summarize_checked
from context_compressor.tokens.protocol import TokenCounter

T = TypeVar("T")

logger = logging.getLogger(__name__)

READ_TOOLS = frozenset({"read_offloaded", "grep_offloaded"})
"""Tools whose results are pages of texts that are stored already."""
OFF_LOOP_CHARACTERS = 100_000
"""Texts above this are previewed in a thread; a hop costs some 0.1 ms, as long as scanning this many."""
_CONCURRENT_CALLS = 8
"""Summaries and writes of one event that run at the same time."""
_SAMPLE_REF = "ctx://1a2b3c4d5e6f7a8b"
"""Letters and digits in turn: no vocabulary joins them, so that no other ref costs more."""


@dataclass(slots=True)
class SummaryUse:
    """What summarising cost in one event."""

    calls: int = 0
    """Calls of a remote summariser."""
    input_tokens: int = 0
    output_tokens: int = 0
    remote_input_tokens: int = 0
    remote_output_tokens: int = 0


@dataclass(slots=True)
class Performed:
    """What a plan came to: edits to commit, and what went wrong on the way."""

    stubs: list[StubEdit] = field(default_factory=list)
    segments: list[SegmentEdit] = field(default_factory=list)
    pending: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    attempted: set[str] = field(default_factory=set)
    """Refs that the store was asked to take, whatever it said: a write may land although nobody waited."""
    blocked: set[tuple[ItemKey, PartPath]] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    use: SummaryUse = field(default_factory=SummaryUse)


class Engine:
    """Perform plans against a store and a summariser.

    Args:
        config: thresholds, redaction, timeouts in seconds, what failures lead to.
        store: where texts go.
        summarizer: who writes summaries.
        fallback: who writes them when that fails; it should not be able to.
        counter: measures stand-ins.
        read_ref: reads a text that the memory's ledger names, to check pages against their source.
    """

    def __init__(
        self,
        *,
        config: CompressionConfig,
        store: OffloadStore,
        summarizer: Summarizer,
        fallback: Summarizer,
        counter: TokenCounter,
        read_ref: Callable[[str], Awaitable[str]],
    ) -> None:
        self._config = config
        self._store = store
        self._summarizer = summarizer
        self._fallback = fallback
        self._counter = counter
        self._read_ref = read_ref
        self._costs: Costs | None = None

    def costs(self) -> Costs:
        """Return what the bare stand-ins cost by the counter, measured at first use."""
        if self._costs is None:
            # A count of messages as large as it may become, so that no real stand-in costs more.
            bare = Msg(SEGMENT_NAME, segment_text(_SAMPLE_REF, 9_999_999, "x"), "user", timestamp="")
            self._costs = Costs(
                stub=self._counter.count_text(minimal_stub(_SAMPLE_REF)),
                segment=self._counter.count_messages([bare]),
            )
        return self._costs

    async def perform(
        self,
        plan: Plan,
        items: Sequence[ViewItem],
        new_segment_id: Callable[[str, set[str]], str],
        done: Performed,
    ) -> None:
        """Store and summarise what the plan lets go; fill `done` with the edits to commit.

        `done.attempted` is right even when the call is cancelled: what stands there and is never committed
        can be removed from the store.

        Raises:
            RedactionError: the user's callable failed.
            OffloadError, SummarizerError: a store or summariser failed and `on_failure` is "raise".
        """
        by_key = {item.key: item for item in items}
        leaving = {unit.key for planned in plan.segments for unit in planned.units}
        leaving.update(by_key[planned.item].exchange for planned in plan.stubs)
        names = tool_names(item.source for item in items if item.exchange in leaving)
        limit = asyncio.Semaphore(_CONCURRENT_CALLS)

        async def stub(planned: PlannedStub) -> StubEdit | None:
            async with limit:
                return await self._perform_stub(planned, by_key[planned.item], names, done)

        async def segment(planned: PlannedSegment) -> SegmentEdit:
            async with limit:
                return await self._perform_segment(planned, new_stubs, names, done)

        stubs = await _gather([stub(planned) for planned in plan.stubs])
        done.stubs = [edit for edit in stubs if edit is not None]
        new_stubs: dict[ItemKey, dict[PartPath, str]] = {}
        for edit in done.stubs:
            new_stubs.setdefault(edit.item, {})[edit.path] = edit.text
        taken: set[str] = set()
        for made in await _gather([segment(planned) for planned in plan.segments]):
            segment_id = new_segment_id(made.ref, taken)
            taken.add(segment_id)
            done.segments.append(replace(made, id=segment_id))

    # Stubs

    async def _perform_stub(
        self, planned: PlannedStub, item: ViewItem, names: dict[str, str], done: Performed
    ) -> StubEdit | None:
        parts = text_parts(item.source)
        index = next(i for i, part in enumerate(parts) if part.path == planned.path)
        part, tokens = parts[index], item.source_tokens.texts[index]
        page = await self._page_stub(item, part.path, part.text, names)
        if page is not None:
            text, ref = page
        else:
            source = redacted_text(part.text, self._config.redact)
            ref = ref_of(source)
            try:
                await self._write(source, ref, done)
            except OffloadCollisionError as error:
                self._fail(done, error)
                done.blocked.add((planned.item, planned.path))
                return None
            what = "tool result" if part.kind == "tool_result" else "message"
            if len(source) > OFF_LOOP_CHARACTERS:
                text = await asyncio.to_thread(self._stub_text, source, ref, tokens, planned, what)
            else:
                text = self._stub_text(source, ref, tokens, planned, what)
        cost = self._counter.count_text(text)
        if cost >= item.shown_part_tokens()[index]:
            done.blocked.add((planned.item, planned.path))
            return None
        return StubEdit(planned.item, planned.path, ref, text, cost, page=page is not None)

    def _stub_text(self, text: str, ref: str, tokens: int, planned: PlannedStub, what: str) -> str:
        return stub_text(
            text,
            ref,
            self._counter,
            tokens=tokens,
            max_tokens=planned.max_tokens,
            what=what,
        )

    async def _page_stub(
        self, item: ViewItem, path: PartPath, text: str, names: dict[str, str]
    ) -> tuple[str, str] | None:
        """Return the stub of a page and the ref it is of; None for any text that only looks like a page."""
        if len(path) != 2 or isinstance(item.source.content, str):
            return None
        block = item.source.content[path[0]]
        if names.get(block.get("id", ""), block.get("name")) not in READ_TOOLS:
            return None
        spans = parse_page(text)
        if not spans:
            return None
        sources: dict[str, str] = {}
        for ref in dict.fromkeys(span.ref for span in spans):
            try:
                sources[ref] = await self._read_ref(ref)
            except OffloadError:
                return None
        return (page_stub(spans), spans[0].ref) if page_matches(text, sources) else None

    # Segments

    async def _perform_segment(
        self,
        planned: PlannedSegment,
        new_stubs: dict[ItemKey, dict[PartPath, str]],
        names: dict[str, str],
        done: Performed,
    ) -> SegmentEdit:
        items = [item for unit in planned.units for item in unit.items]
        messages: list[Msg] = []
        may_hold_pages = not READ_TOOLS.isdisjoint(names.values())
        for item in items:
            stubs = {path: stub.text for path, stub in item.stubs.items()} | new_stubs.get(item.key, {})
            if may_hold_pages:
                stubs |= await self._stub_pages(item, stubs, names, done)
            redact = None if item.kind == "segment" else self._config.redact
            messages.append(shown_message(item.source, stubs, names, redact))
        children = sum(item.kind == "segment" for item in items)
        transcript = render_transcript(messages, segments=children)
        ref = await self._write_own(transcript.text, done)
        media_refs = [await self._write_own(media, done) for media in transcript.media]
        replaced_tokens = sum(unit.tokens for unit in planned.units)
        summary: Summary | None = None
        if planned.summary_tokens:
            request = self._request(messages, children, planned.summary_tokens)
            summary = await self._summarize(request, replaced_tokens, transcript.text, done)
        merged = sum(len(item.covered) for item in items if item.kind == "segment")
        count = merged + len({item.key.key for item in items if item.kind != "segment"})
        return SegmentEdit(
            id="",
            items=tuple(item.key for item in items if item.kind != "segment"),
            children=tuple(item.key.key for item in items if item.kind == "segment"),
            ref=ref,
            media_refs=tuple(media_refs),
            text=segment_text(ref, count, None if summary is None else summary.text),
            summarized=summary is not None,
        )

    async def _stub_pages(
        self, item: ViewItem, stubs: dict[PartPath, str], names: dict[str, str], done: Performed
    ) -> dict[PartPath, str]:
        """Return stubs for the pages in an item that leaves: their texts are stored already."""
        found: dict[PartPath, str] = {}
        for part in text_parts(item.source):
            if part.kind == "tool_result" and part.path not in stubs:
                page = await self._page_stub(item, part.path, part.text, names)
                if page is not None:
                    text, ref = page
                    found[part.path] = text
                    tokens = self._counter.count_text(text)
                    done.stubs.append(StubEdit(item.key, part.path, ref, text, tokens, page=True))
        return found

    def _request(self, messages: Sequence[Msg], children: int, max_tokens: int) -> SummaryRequest:
        """Return the request; the oldest summary of a merge is what the new one carries forward."""
        previous = None
        if children and len(messages) > 1:
            oldest = messages[0].content
            assert isinstance(oldest, str)
            previous = summary_of(oldest)
        return SummaryRequest(
            messages=tuple(messages if previous is None else messages[1:]),
            max_tokens=max_tokens,
            previous=previous,
            instructions=self._config.summary_instructions,
        )

    async def _summarize(
        self, request: SummaryRequest, replaced_tokens: int, material: str, done: Performed
    ) -> Summary | None:
        """Return a checked summary by the first means that gives one; None when none does."""
        for summarizer in (self._summarizer, self._fallback):
            done.use.calls += summarizer.remote
            try:
                summary = await summarize_checked(
                    summarizer,
                    request,
                    self._counter,
                    replaced_tokens=replaced_tokens - self.costs().segment,
                    # A model reads the request as messages, and what it parrots is that.
                    material=material if summarizer is self._fallback else None,
                    input_tokens_estimate=replaced_tokens,
                    timeout_seconds=self._config.summarizer_timeout_seconds,
                )
            except SummarizerError as error:
                if self._config.on_failure == "raise":
                    raise
                self._fail(done, error)
                if summarizer is self._fallback:
                    break
                continue
            done.use.input_tokens += summary.input_tokens
            done.use.output_tokens += summary.output_tokens
            if summarizer.remote:
                done.use.remote_input_tokens += summary.input_tokens
                done.use.remote_output_tokens += summary.output_tokens
            return summary
        return None

    # The store

    async def _write_own(self, text: str, done: Performed) -> str:
        """Store a text of our own making; a collision leaves it pending, served from the history."""
        ref = ref_of(text)
        try:
            await self._write(text, ref, done)
        except OffloadCollisionError as error:
            self._fail(done, error)
            done.pending.add(ref)
        return ref

    async def _write(self, text: str, ref: str, done: Performed) -> None:
        """Make a text durable, or note it as pending.

        Raises:
            OffloadCollisionError: another text holds the ref.
            OffloadError: the store refused and `on_failure` is "raise".
        """
        done.attempted.add(ref)
        try:
            await write_text(self._store, text, ref, self._config.store_timeout_seconds)
        except OffloadCollisionError:
            raise
        except OffloadError as error:
            if self._config.on_failure == "raise":
                raise
            self._fail(done, error)
            done.pending.add(ref)
        else:
            done.written.add(ref)

    def _fail(self, done: Performed, error: Exception) -> None:
        logger.warning("%s: %s", type(error).__name__, error)
        text = f"{type(error).__name__}: {error}"
        if text not in done.failures:
            done.failures.append(text)


async def write_text(store: OffloadStore, text: str, ref: str, timeout_seconds: float) -> None:
    """Write one text, whose ref is given, within a time limit in seconds.

    Raises:
        OffloadError: it is not durable; whatever a store raises comes out as one.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            answer = await store.write(text)
    except OffloadError:
        raise
    except TimeoutError as error:
        raise OffloadWriteError(f"the store did not take {ref} within {timeout_seconds:g} s") from error
    except Exception as error:
        raise OffloadWriteError(f"the store failed to take {ref}: {error!r}") from error
    if answer != ref:
        raise OffloadWriteError(f"the store answered {answer!r} to a text whose ref is {ref}")


async def _gather(awaitables: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all at once; the first failure cancels the others and is raised as it is."""
    if len(awaitables) == 1:
        return [await awaitables[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(awaitable) for awaitable in awaitables]
    except BaseExceptionGroup as group_error:
        raise group_error.exceptions[0] from None
    return [task.result() for task in tasks]
