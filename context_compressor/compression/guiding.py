"""The guide: once something left the view, one stand-in tells which tools bring it back."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from context_compressor.compression.edits import ItemKey, StubEdit
from context_compressor.compression.performed import Performed
from context_compressor.compression.plans import Plan, PlannedSegment, PlannedStub
from context_compressor.compression.stubbing import StubMaker
from context_compressor.compression.view import ViewItem
from context_compressor.offload.tools.schemas import GUIDE, SHORT_GUIDE, names_tools
from context_compressor.tokens.protocol import TokenCounter

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
