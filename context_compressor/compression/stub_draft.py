"""The stubs of a plan in the making. Pure: no clock, no I/O, no randomness."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from context_compressor.compression.edits import ItemKey
from context_compressor.compression.items import ViewItem
from context_compressor.compression.plans import PlannedStub, Situation
from context_compressor.compression.units import Unit, classify, newest_request
from context_compressor.messages.msg import tool_names
from context_compressor.messages.parts import PartPath

ARRIVAL_SHARE = 1 / 8
"""Tokens of preview per token of a result that is compacted as it arrives, beyond `preview_tokens`: the agent
asked for it a moment ago, and is about to work with what its first stub shows."""
MOST_PREVIEWS = 6
"""How many times `preview_tokens` such a stub shows at most."""
PART_SHARE = 1 / 4
"""Tokens of preview per token of a text that is compacted because it is part of such a result: many such
stubs stand beside one another."""


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
        found = [
            (unit, item, path, tokens)
            for unit in self.units
            if unit.tokens > limit and not unit.fixed
            for tokens, item, path in self._arrivals(unit)
        ]
        for unit, item, path, tokens in found:
            most = min(MOST_PREVIEWS * config.preview_tokens, int(limit) // len(found))
            shown = max(config.preview_tokens, min(int(ARRIVAL_SHARE * tokens), most))
            if tokens <= limit:
                shown = min(shown, int(PART_SHARE * tokens))
            self._stub(unit, item, path, tokens, self.situation.costs.stub + shown)

    def _arrivals(self, unit: Unit) -> Iterator[tuple[int, ViewItem, PartPath]]:
        """Yield texts of new results that are too large; of one in parts the largest, until it is not."""
        limit, stub = self.situation.config.arrival_tokens, self.situation.costs.stub
        results: dict[tuple[ItemKey, int], list[tuple[int, ViewItem, PartPath]]] = {}
        for tokens, item, path in self._results(unit):
            if item.key in self.situation.fresh:
                results.setdefault((item.key, path[0]), []).append((tokens, item, path))
        for texts in results.values():
            left = sum(tokens for tokens, _, _ in texts)
            for text in sorted(texts, key=lambda entry: -entry[0]) if left > limit else ():
                saved = text[0] - stub - int(PART_SHARE * text[0])
                if text[0] > limit or (left > limit and saved > 0):
                    yield text
                    left -= saved

    def stub_results(self, *, old: bool, above: int, goal: int | None, again: bool = False) -> None:
        """Compact results and arguments above so many tokens, the largest first, until `goal` (None: all).

        With `again` stubs that show more than others do, as the first of a large arrival.
        """
        found = [
            (tokens, unit, item, path)
            for unit in self.units
            if unit.tokens > above and unit.recent != old and self._may_be_stubbed(unit)
            for tokens, item, path in (*self._results(unit), *self._arguments(unit))
            if tokens > above and (path in item.stubs) == again
        ]
        for tokens, unit, item, path in sorted(found, key=lambda entry: -entry[0]):
            if goal is not None and self.projected <= goal:
                return
            self._stub(unit, item, path, tokens, self.full_stub)

    def stub_texts(self, *, goal: int) -> None:
        """Cut long texts of any speaker, the largest first, each only as far as `goal` needs.

        Texts that are hardly longer than a stub stay, and what the user asked for last is cut last.
        """
        request = newest_request(self.units)
        found = [
            (tokens, unit, item, part.path)
            for unit in filter(self._may_be_stubbed, self.units)
            for item in unit.items
            for part, tokens in item.texts()
            if part.kind == "text" and part.path not in item.stubs and tokens > 2 * self.full_stub
        ]
        for tokens, unit, item, path in sorted(found, key=lambda entry: (entry[1] is request, -entry[0])):
            if self.projected <= goal:
                return
            spared = tokens - (self.projected - goal)
            self._stub(unit, item, path, tokens, max(self.full_stub, spared))

    def stub_media(self, *, old: bool, keep: int, goal: int | None) -> None:
        """Offload media but for the newest `keep` of the view, the oldest first, until `goal` (None: all)."""
        found = [
            (unit, item, part.path, tokens)
            for unit in self.units
            if not unit.segment
            for item in unit.items
            for part, tokens in item.other_parts()
            if part.is_media and (item.key, part.path) not in self.stubs
        ]
        for unit, item, path, tokens in found[: max(len(found) - keep, 0)]:
            if goal is not None and self.projected <= goal:
                return
            if unit.recent != old and self._may_be_stubbed(unit):
                self._stub(unit, item, path, tokens, self.situation.costs.media)

    def _may_be_stubbed(self, unit: Unit) -> bool:
        return not (unit.fixed or unit.segment or unit.key in self.leaving)

    # Below, a text that may leave is told by its tokens, its item, and its address there.

    def _results(self, unit: Unit) -> Iterable[tuple[int, ViewItem, PartPath]]:
        """Yield the tool-result texts of a unit that may be compacted, with their tokens."""
        if unit.segment:
            return
        for item in unit.items:
            if item.kind != "message":
                continue
            for part, tokens in item.texts():
                if part.kind == "tool_result" and not self._is_excluded(unit, item, part.path):
                    yield tokens, item, part.path

    def _arguments(self, unit: Unit) -> Iterable[tuple[int, ViewItem, PartPath]]:
        """Yield the long arguments of a unit's calls, with their tokens."""
        for item in unit.items:
            for part, tokens in item.other_parts():
                if not part.is_media and not self._is_excluded(unit, item, part.path):
                    yield tokens, item, part.path

    def _is_excluded(self, unit: Unit, item: ViewItem, path: PartPath) -> bool:
        """Tell whether the tool whose call or result this is may not be compacted."""
        excluded = self.situation.config.exclude_tools
        if not excluded:
            return False
        block = item.source.content[path[0]]
        assert isinstance(block, dict)
        return tool_names(item.source for item in unit.items).get(block["id"], block.get("name")) in excluded

    @property
    def full_stub(self) -> int:
        """Tokens of a stub with all of its preview."""
        return self.situation.costs.stub + self.situation.config.preview_tokens

    def _stub(self, unit: Unit, item: ViewItem, path: PartPath, tokens: int, max_tokens: int) -> None:
        """Plan a stub where it is smaller than what it replaces, with as much preview as then fits."""
        max_tokens = min(max_tokens, tokens - 1)
        if max_tokens < self.situation.costs.stub or (item.key, path) in self.situation.blocked:
            return
        earlier = self.stubs.get((item.key, path))
        saved = (earlier.max_tokens if earlier else tokens) - max_tokens
        if saved <= 0:
            return
        self.stubs[item.key, path] = PlannedStub(item.key, path, max_tokens)
        # What arguments cost is estimated, but no unit saves all that it costs.
        before = self._saved.get(unit.key, 0)
        saved = min(saved, unit.tokens - before - 1)
        self._saved[unit.key] = before + saved
        self._staying -= saved

    def least_tokens(self, unit: Unit) -> int:
        """Return what a unit costs when all that can be is cut down to its stub: reasoning is not."""
        return unit.tokens - sum(max(size - cost, 0) for _, _, size, cost in self._least_stubs(unit))

    def _least_stubs(self, unit: Unit) -> Iterator[tuple[ViewItem, PartPath, int, int]]:
        """Yield each part of a unit that may leave, with its tokens and those of its smallest stub."""
        costs = self.situation.costs
        for item in unit.items:
            if item.kind == "message":
                for part, tokens in (*item.texts(), *item.other_parts()):
                    yield item, part.path, tokens, costs.media if part.is_media else costs.stub

    def shrink(self, units: Iterable[Unit], goal: int) -> None:
        """Cut all that is longest in these units to one size, stubs too: the largest that reaches `goal`."""
        found = [
            (unit, item, path, self._planned_tokens(item, path, tokens), cost)
            for unit in filter(self._may_be_stubbed, units)
            for item, path, tokens, cost in self._least_stubs(unit)
            if (item.key, path) not in self.situation.blocked
        ]
        needed = self.projected - goal

        def is_too_large(size: int) -> bool:
            return sum(max(tokens - max(size, cost), 0) for *_, tokens, cost in found) < needed

        largest = max((tokens for *_, tokens, _ in found), default=0)
        size = bisect_left(range(largest + 1), True, key=is_too_large) - 1
        for unit, item, path, tokens, cost in found:
            if tokens > max(size, cost):
                self._stub(unit, item, path, tokens, max(size, cost))

    def _planned_tokens(self, item: ViewItem, path: PartPath, tokens: int) -> int:
        planned = self.stubs.get((item.key, path))
        return tokens if planned is None else planned.max_tokens
