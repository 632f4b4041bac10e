"""The stubs of a plan in the making. Pure: no clock, no I/O, no randomness."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from context_compressor.compression.edits import ItemKey
from context_compressor.compression.items import ViewItem
from context_compressor.compression.plans import PlannedStub, Situation
from context_compressor.compression.units import Unit, classify, newest_request
from context_compressor.messages.msg import tool_names
from context_compressor.messages.parts import Part, PartPath

ARRIVAL_SHARE = 1 / 8
"""Tokens of preview per token of a result that is compacted as it arrives, beyond `preview_tokens`: the agent
asked for it a moment ago, and is about to work with what its first stub shows."""
MOST_PREVIEWS = 6
"""How many times `preview_tokens` such a stub shows at most."""
PART_SHARE = 1 / 4
"""Tokens of preview per token of a text that is compacted because it is part of such a result: many such
stubs stand beside one another."""


class Leavable(NamedTuple):
    """A part of a message that may leave the view for a stub."""

    tokens: int
    """What it costs there: where a stub stands for it already, what that costs."""
    unit: Unit
    item: ViewItem
    part: Part


class StubDraft:
    """The stubs of a plan in the making, and what the view would cost with them.

    Attributes:
        situation: what a decision rests on beside the view.
        units: what stays or leaves together, in the order of the view.
        stubs: those planned so far.
        leaving: the units that leave for a segment, by key; what their planned stubs save is kept.
        tokens_now: what the view costs before the plan, the growth reckoned with included.
    """

    # What the view would cost is kept in two sums, since each stub and unit that is planned asks for it:
    # `_staying`, of all that does not leave for a segment, and `_segments_cost`, of the segments.

    def __init__(self, items: Sequence[ViewItem], situation: Situation) -> None:
        self.situation = situation
        self.units = classify(items, situation.config, situation.marks)
        self.stubs: dict[tuple[ItemKey, PartPath], PlannedStub] = {}
        self.leaving: dict[ItemKey, Unit] = {}
        self._saved: dict[ItemKey, int] = {}
        self._beside = situation.extra_tokens + situation.growth_tokens
        self.tokens_now = self._beside + sum(unit.tokens for unit in self.units)
        self._staying = self.tokens_now
        self._segments_cost = 0

    @property
    def projected(self) -> int:
        """Tokens of the view after the plan, at most."""
        return self._staying + self._segments_cost

    def stub_arrivals(self) -> None:
        """Compact tool results that are too large to enter the view whole.

        Together they show no more than one that is just not too large.
        """
        config = self.situation.config
        limit = config.arrival_tokens
        large = [unit for unit in self.units if unit.tokens > limit and not unit.fixed]
        found = [text for unit in large for text in self._arrivals(unit)]
        for text in found:
            most = min(MOST_PREVIEWS * config.preview_tokens, int(limit) // len(found))
            shown = max(config.preview_tokens, min(int(ARRIVAL_SHARE * text.tokens), most))
            if text.tokens <= limit:
                shown = min(shown, int(PART_SHARE * text.tokens))
            self._stub(text, self.situation.costs.stub + shown)

    def _arrivals(self, unit: Unit) -> Iterator[Leavable]:
        """Yield texts of new results that are too large; of one in parts the largest, until it is not."""
        limit, stub = self.situation.config.arrival_tokens, self.situation.costs.stub
        results: dict[tuple[ItemKey, int], list[Leavable]] = {}
        for text in self._parts(unit):
            is_new = text.part.kind == "tool_result" and text.item.key in self.situation.fresh
            if is_new and not self._is_excluded(text):
                results.setdefault((text.item.key, text.part.path[0]), []).append(text)
        for texts in results.values():
            left = sum(text.tokens for text in texts)
            for text in sorted(texts, key=lambda text: -text.tokens) if left > limit else ():
                saved = text.tokens - stub - int(PART_SHARE * text.tokens)
                if text.tokens > limit or (left > limit and saved > 0):
                    yield text
                    left -= saved

    def stub_results(self, *, old: bool, above: int, goal: int | None, again: bool = False) -> None:
        """Compact results and arguments above so many tokens, the largest first, until `goal` (None: all).

        With `again` stubs that show more than others do, as the first of a large arrival.
        """
        found = [
            text
            for unit in self.units
            if unit.tokens > above and unit.recent != old and self._may_be_stubbed(unit)
            for text in self._parts(unit)
            if text.tokens > above and (text.part.path in text.item.stubs) == again
            if text.part.kind in ("tool_result", "argument") and not self._is_excluded(text)
        ]
        found.sort(key=lambda text: (-text.tokens, text.unit.position, text.part.kind == "argument"))
        for text in found:
            if goal is not None and self.projected <= goal:
                return
            self._stub(text, self.full_stub)

    def stub_texts(self, *, goal: int) -> None:
        """Cut long texts of any speaker, the largest first, each only as far as `goal` needs.

        Texts that are hardly longer than a stub stay, and what the user asked for last is cut last.
        """
        request = newest_request(self.units)
        found = [
            text
            for unit in filter(self._may_be_stubbed, self.units)
            for text in self._parts(unit)
            if text.part.kind == "text" and text.tokens > 2 * self.full_stub
            if text.part.path not in text.item.stubs
        ]
        for text in sorted(found, key=lambda text: (text.unit is request, -text.tokens)):
            if self.projected <= goal:
                return
            self._stub(text, max(self.full_stub, text.tokens - (self.projected - goal)))

    def stub_media(self, *, old: bool, keep: int, goal: int | None) -> None:
        """Offload media but for the newest `keep` of the view, the oldest first, until `goal` (None: all)."""
        found = [
            text
            for unit in self.units
            for text in self._parts(unit, texts=False)
            if text.part.is_media and not self._stub_of(text)
        ]
        for text in found[: max(len(found) - keep, 0)]:
            if goal is not None and self.projected <= goal:
                return
            if text.unit.recent != old and self._may_be_stubbed(text.unit):
                self._stub(text, self.situation.costs.media)

    def _may_be_stubbed(self, unit: Unit) -> bool:
        return not (unit.fixed or unit.segment or unit.key in self.leaving)

    def _parts(self, unit: Unit, *, texts: bool = True) -> Iterator[Leavable]:
        """Yield the parts of a unit that can leave; all, or those that are no texts."""
        for item in unit.items:
            if item.kind == "message":
                for part, tokens in (*(item.texts() if texts else ()), *item.other_parts()):
                    yield Leavable(tokens, unit, item, part)

    def _is_excluded(self, text: Leavable) -> bool:
        """Tell whether the tool whose call or result this is may not be compacted."""
        excluded = self.situation.config.exclude_tools
        if not excluded:
            return False
        block = text.item.source.content[text.part.path[0]]
        assert isinstance(block, dict)
        names = tool_names(item.source for item in text.unit.items)
        return names.get(block["id"], block.get("name")) in excluded

    @property
    def full_stub(self) -> int:
        """Tokens of a stub with all of its preview."""
        return self.situation.costs.stub + self.situation.config.preview_tokens

    def _stub_of(self, text: Leavable) -> PlannedStub | None:
        return self.stubs.get((text.item.key, text.part.path))

    def _stub(self, text: Leavable, max_tokens: int) -> None:
        """Plan a stub where it is smaller than what it replaces, with as much preview as then fits."""
        name = text.item.key, text.part.path
        max_tokens = min(max_tokens, text.tokens - 1)
        if max_tokens < self.situation.costs.stub or name in self.situation.blocked:
            return
        earlier = self.stubs.get(name)
        saved = (earlier.max_tokens if earlier else text.tokens) - max_tokens
        if saved <= 0:
            return
        self.stubs[name] = PlannedStub(*name, max_tokens)
        # What arguments cost is estimated, but no unit saves all that it costs.
        before = self._saved.get(text.unit.key, 0)
        saved = min(saved, text.unit.tokens - before - 1)
        self._saved[text.unit.key] = before + saved
        self._staying -= saved

    def _least(self, text: Leavable) -> int:
        """Return the tokens of a part's smallest stub."""
        return self.situation.costs.media if text.part.is_media else self.situation.costs.stub

    def least_tokens(self, unit: Unit) -> int:
        """Return what a unit costs when all that can be is cut down to its stub: reasoning is not."""
        return unit.tokens - sum(max(text.tokens - self._least(text), 0) for text in self._parts(unit))

    def shrink(self, units: Iterable[Unit], goal: int) -> None:
        """Cut all that is longest in these units to one size, stubs too: the largest that reaches `goal`."""
        found = [
            (text if planned is None else text._replace(tokens=planned.max_tokens), self._least(text))
            for unit in filter(self._may_be_stubbed, units)
            for text in self._parts(unit)
            for planned in [self._stub_of(text)]
            if (text.item.key, text.part.path) not in self.situation.blocked
        ]
        needed = self.projected - goal

        def is_too_large(size: int) -> bool:
            return sum(max(text.tokens - max(size, least), 0) for text, least in found) < needed

        largest = max((text.tokens for text, _ in found), default=0)
        size = bisect_left(range(largest + 1), True, key=is_too_large) - 1
        for text, least in found:
            if text.tokens > max(size, least):
                self._stub(text, max(size, least))
