"""Making stubs: what stands for a text, a long argument or an image that leaves the view."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import cast

from context_compressor.compression.edits import StubEdit
from context_compressor.compression.performed import Performed
from context_compressor.compression.plans import PlannedStub
from context_compressor.compression.redaction import Redact, stored_text
from context_compressor.compression.view import ViewItem
from context_compressor.compression.writing import Writer
from context_compressor.errors import OffloadCollisionError, OffloadError
from context_compressor.messages.media import MediaKind
from context_compressor.messages.msg import Msg
from context_compressor.messages.parts import Part, PartPath, part_at, replace_parts, text_parts
from context_compressor.offload.protocol import ref_of
from context_compressor.offload.stubs import media_stub, stub_text
from context_compressor.offload.tools.pages import page_matches, page_stub, parse_page
from context_compressor.offload.tools.schemas import is_own_tool
from context_compressor.tokens.measure import measure
from context_compressor.tokens.off_loop import run_off_loop, run_rules_off_loop
from context_compressor.tokens.protocol import TokenCounter

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
