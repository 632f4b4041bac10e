"""Stubs in place of texts, and the guide to the tools that one of them gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from context_compressor.core.edits import ItemKey, StubEdit
from context_compressor.core.engine import Engine, Writer
from context_compressor.core.items import ViewItem
from context_compressor.core.plans import Plan, PlannedSegment, PlannedStub
from context_compressor.core.shown import stored_text
from context_compressor.errors import OffloadCollisionError
from context_compressor.messages.media import MediaKind
from context_compressor.messages.msg import Msg
from context_compressor.messages.parts import Part, part_at, replace_parts
from context_compressor.offload.guide import GUIDE, SHORT_GUIDE, names_tools
from context_compressor.offload.store import ref_of
from context_compressor.offload.stubs import media_stub, stub_text
from context_compressor.tokens.counter import measure
from context_compressor.tokens.off_loop import run_off_loop, run_rules_off_loop

_STUB_NAMES = {"text": "message", "tool_result": "tool result", "argument": "argument"}
"""What a stub calls the text for which it stands."""
_GUIDE_SHARES = {GUIDE: 4, SHORT_GUIDE: 3}
"""The guide takes at most this part of a segment's room."""


class StubMaker:
    """Make the stubs of one event.

    Args:
        engine: what the event works with.
        writer: stores what leaves.
        names: tool names by call id.
        names_tools: whether the agent has the read-back tools: then stubs name them.

    Attributes:
        names: as given.
        made: the stubs made so far.
    """

    def __init__(
        self, engine: Engine, writer: Writer, names: Mapping[str, str], *, names_tools: bool
    ) -> None:
        self._writer = writer
        self._counter, self._redact = engine.counter, engine.config.redact
        self.names = names
        self._names_tools = names_tools
        self.made: list[StubEdit] = []

    async def make(self, planned: PlannedStub, item: ViewItem) -> StubEdit | None:
        """Store a text and return its stub; None where none can be.

        Raises:
            RedactionError: the user's callable failed.
            OffloadError: the store failed and `on_failure` is "raise".
        """
        part = part_at(item.source, planned.path)
        assert part is not None
        source = stored_text(part, self._redact)
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
            return stub_text(
                source,
                ref,
                self._counter,
                tokens=self._counter.count_text(source) if tokens is None else tokens,
                max_tokens=max_tokens,
                what=_STUB_NAMES[part.kind],
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

    async def place_guide(self, plan: Plan, items: Sequence[ViewItem]) -> tuple[PlannedSegment | None, str]:
        """Let one stand-in of an event tell of the tools, where nothing that stays in the view does.

        That is the first segment that has room for the long form, else the roomiest of the stubs made, which
        is made anew there, else the first segment with room for the short form.

        Returns:
            The segment that is to tell of them, and in which form; None and "" where none is.
        """
        leaving = plan.leaving
        staying = {item.key: item for item in items if item.exchange not in leaving}
        if not self._names_tools or self._is_told(staying.values()):
            return None, ""
        for form, share in _GUIDE_SHARES.items():
            least = share * self._counter.count_text(form)
            roomy = next((segment for segment in plan.segments if segment.summary_tokens >= least), None)
            if roomy is not None:
                return roomy, form
            if form is GUIDE and await self._guide_by_stub(plan.stubs, staying):
                return None, ""
        # What only names a ref may still have room for the short form: its label can be shorter.
        return next((segment for segment in plan.segments if not segment.summary_tokens), None), SHORT_GUIDE

    def _is_told(self, staying: Iterable[ViewItem]) -> bool:
        """Tell whether a stand-in that stays, and is not made anew, says which tools there are."""
        anew = {(edit.item, edit.path) for edit in self.made}
        for item in staying:
            if item.kind == "segment":
                texts = [str(item.source.content)]
            else:
                texts = [stub.text for path, stub in item.stubs.items() if (item.key, path) not in anew]
            if any(map(names_tools, texts)):
                return True
        return False

    async def _guide_by_stub(
        self, planned: Sequence[PlannedStub], staying: Mapping[ItemKey, ViewItem]
    ) -> bool:
        """Make the roomiest stub of a text anew, with the guide; tell whether it has it then, in either form.

        Stubs of media name their tool in any case.
        """
        made = {(edit.item, edit.path): edit for edit in self.made if edit.item in staying}
        candidates = [stub for stub in planned if (stub.item, stub.path) in made]
        for stub in sorted(candidates, key=lambda stub: -stub.max_tokens):
            item, edit = staying[stub.item], made[stub.item, stub.path]
            part = part_at(item.source, stub.path)
            if part is None or part.is_media:
                continue
            source = stored_text(part, self._redact)
            guided = await self._stub(stub.max_tokens, item, part, source, edit.ref, guide=True)
            if guided is not None:
                self.made[self.made.index(edit)] = guided
                return names_tools(guided.text)
        return False
