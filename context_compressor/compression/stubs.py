"""Stubs in place of texts, and the guide to the tools that one of them gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import cast

from context_compressor.compression.done import Performed, Writer
from context_compressor.compression.edits import ItemKey, StubEdit
from context_compressor.compression.items import ViewItem
from context_compressor.compression.plans import Plan, PlannedSegment, PlannedStub
from context_compressor.compression.shown import Redact, stored_text
from context_compressor.errors import OffloadCollisionError, OffloadError
from context_compressor.messages.media import MediaKind
from context_compressor.messages.msg import Msg
from context_compressor.messages.parts import Part, PartPath, part_at, replace_parts, text_parts
from context_compressor.offload.guide import GUIDE, SHORT_GUIDE, is_own_tool, names_tools
from context_compressor.offload.pages import page_matches, page_stub, parse_page
from context_compressor.offload.store import ref_of
from context_compressor.offload.stubs import media_stub, stub_text
from context_compressor.tokens.counter import TokenCounter, measure
from context_compressor.tokens.off_loop import run_off_loop, run_rules_off_loop

_STUB_NAMES = {"text": "message", "tool_result": "tool result", "argument": "argument"}
"""What a stub calls the text for which it stands."""


def may_hold_pages(names: Mapping[str, str]) -> bool:
    """Tell whether among called tools, by call id, are those whose results are pages of stored texts."""
    return any(map(is_own_tool, set(names.values())))


class StubMaker:
    """Make stubs.

    Args:
        writer: stores what leaves.
        counter: measures stubs.
        redact: what every text goes through.
        read_ref: reads a text that the memory's ledger names, to check pages against their source.
    """

    def __init__(
        self,
        writer: Writer,
        counter: TokenCounter,
        redact: Redact | None,
        read_ref: Callable[[str], Awaitable[str]],
    ) -> None:
        self._writer = writer
        self._counter = counter
        self._redact = redact
        self._read_ref = read_ref

    async def make(
        self, planned: PlannedStub, item: ViewItem, names: Mapping[str, str], done: Performed
    ) -> StubEdit | None:
        """Store a text and return its stub; None, and the text is noted as blocked, where none can be.

        Of a page of a stored text nothing is stored: its stub says which lines it showed.

        Args:
            planned: which text of `item`, and what its stub may cost.
            item: the message that holds it.
            names: tool names by call id.
            done: receives what was stored, blocked, or failed.

        Raises:
            RedactionError: the user's callable failed.
            OffloadError: the store failed and `on_failure` is "raise".
        """
        part = part_at(item.source, planned.path)
        assert part is not None
        page = await self._page_stub(item, part.path, part.text, names)
        if page is not None:
            text, ref = page
        else:
            source = stored_text(part, self._redact)
            ref = await run_off_loop(len(source), ref_of, source)
            try:
                await self._writer.write(source, ref, done)
            except OffloadCollisionError as error:
                done.fail(error)
                done.blocked.add((planned.item, planned.path))
                return None
            text = await run_rules_off_loop(
                len(source),
                self._stub_text,
                part,
                source,
                ref,
                item.text_tokens(part.path),
                planned.max_tokens,
            )
        cost = self._counter.count_text(text)
        if not self._gains(item, part, text, cost):
            done.blocked.add((planned.item, planned.path))
            return None
        return StubEdit(planned.item, planned.path, ref, text, cost, page=page is not None)

    async def with_guide(self, planned: PlannedStub, item: ViewItem, made: StubEdit) -> StubEdit | None:
        """Return a stub that was made, of a text, so that it tells of the tools as far as it has room.

        None for media, whose stubs name their tool, and where the stub would not gain any more.
        """
        part = part_at(item.source, planned.path)
        if part is None or part.is_media:
            return None
        source = stored_text(part, self._redact)
        tokens = item.text_tokens(part.path)
        text = await run_rules_off_loop(
            len(source), self._stub_text, part, source, made.ref, tokens, planned.max_tokens, True
        )
        cost = self._counter.count_text(text)
        return replace(made, text=text, tokens=cost) if self._gains(item, part, text, cost) else None

    def _stub_text(
        self, part: Part, text: str, ref: str, tokens: int | None, max_tokens: int, guide: bool = False
    ) -> str:
        if part.is_media:
            return media_stub(text, ref, cast(MediaKind, part.kind))
        return stub_text(
            text,
            ref,
            self._counter,
            tokens=self._counter.count_text(text) if tokens is None else tokens,
            max_tokens=max_tokens,
            what=_STUB_NAMES[part.kind],
            guide=guide,
        )

    def _gains(self, item: ViewItem, part: Part, text: str, cost: int) -> bool:
        """Tell whether a stub costs less than what it replaces."""
        whole = item.text_tokens(part.path)
        if whole is not None:
            standing = item.stubs.get(part.path)
            replaced = whole if standing is None else standing.tokens
            if cost >= replaced or self._cost_in_message(text) < replaced:
                return cost < replaced
        texts = {path: stub.text for path, stub in item.stubs.items()} | {part.path: text}
        return measure(self._counter, replace_parts(item.source, texts)).total < item.tokens

    def _cost_in_message(self, text: str) -> int:
        """Return what a stub adds to a message: a counter may find more there, as its JSON is longer."""
        empty, holding = (Msg("", content, "user", timestamp="") for content in ("", text))
        return self._counter.count_messages([holding]) - self._counter.count_messages([empty])

    async def _page_stub(
        self, item: ViewItem, path: PartPath, text: str, names: Mapping[str, str]
    ) -> tuple[str, str] | None:
        """Return the stub of a page and the ref it is of; None for any text that only looks like a page."""
        if len(path) != 2 or isinstance(item.source.content, str):
            return None
        block = item.source.content[path[0]]
        if not is_own_tool(names.get(block.get("id", ""), block.get("name"))):
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

    async def stub_pages(
        self, item: ViewItem, stubs: dict[PartPath, str], names: Mapping[str, str], done: Performed
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


_SHARES = {GUIDE: 4, SHORT_GUIDE: 3}
"""The guide takes at most this part of a segment's room."""


async def place_guide(
    plan: Plan, items: Sequence[ViewItem], stubs: StubMaker, counter: TokenCounter, done: Performed
) -> tuple[PlannedSegment | None, str]:
    """Let one stand-in of an event tell of the tools, where nothing that stays in the view does.

    That is the first segment that has room for the long form, else the roomiest of the stubs in `done`, which
    is made anew there, else the first segment with room for the short form.

    Returns:
        The segment that is to tell of them, and in which form; None and "" where none is.
    """
    leaving = {unit.key for segment in plan.segments for unit in segment.units}
    staying = {item.key: item for item in items if item.exchange not in leaving}
    if _is_told(staying.values(), done.stubs):
        return None, ""
    for form, share in _SHARES.items():
        least = share * counter.count_text(form)
        roomy = next((segment for segment in plan.segments if segment.summary_tokens >= least), None)
        if roomy is not None:
            return roomy, form
        if form is GUIDE and await _guide_by_stub(plan.stubs, staying, stubs, done):
            return None, ""
    # What only names a ref may still have room for the short form: its label can be shorter.
    return next((segment for segment in plan.segments if not segment.summary_tokens), None), SHORT_GUIDE


def _is_told(staying: Collection[ViewItem], made: Sequence[StubEdit]) -> bool:
    """Tell whether a stand-in that stays, and is not made anew, says which tools there are."""
    anew = {(edit.item, edit.path) for edit in made}
    for item in staying:
        if item.kind == "segment":
            texts = [str(item.source.content)]
        else:
            texts = [stub.text for path, stub in item.stubs.items() if (item.key, path) not in anew]
        if any(map(names_tools, texts)):
            return True
    return False


async def _guide_by_stub(
    planned: Sequence[PlannedStub], staying: dict[ItemKey, ViewItem], stubs: StubMaker, done: Performed
) -> bool:
    """Make the roomiest stub of a text anew, with the guide; tell whether it then has it, in either form."""
    made = {(edit.item, edit.path): edit for edit in done.stubs if edit.item in staying and not edit.page}
    candidates = [stub for stub in planned if (stub.item, stub.path) in made]
    for stub in sorted(candidates, key=lambda stub: -stub.max_tokens):
        edit = made[stub.item, stub.path]
        guided = await stubs.with_guide(stub, staying[stub.item], edit)
        if guided is not None:
            done.stubs[done.stubs.index(edit)] = guided
            return names_tools(guided.text)
    return False
