"""What a compressed memory holds beside the history: what is known of it, ledger, view. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from context_compressor.core.config import CompressionConfig
from context_compressor.core.decide import Costs, Perform, Show, Situation, Step, decide
from context_compressor.core.edits import (
    SEGMENT_PART,
    Edit,
    ItemKey,
    SegmentEdit,
    StubEdit,
    covered_by,
    refs_of,
)
from context_compressor.core.event import Done
from context_compressor.core.items import ViewItem, advance, apply_edits
from context_compressor.core.ledger import Ledger
from context_compressor.core.rebuild import Rebuilt
from context_compressor.core.units import Marks, Unit, classify, is_crowded
from context_compressor.memory.budget import BudgetInForce
from context_compressor.memory.shown import ShownView
from context_compressor.memory.table import MessageTable
from context_compressor.messages.exchanges import Exchange, ExchangeBuilder, build_exchanges, is_simple
from context_compressor.messages.msg import Msg
from context_compressor.messages.parts import PartPath
from context_compressor.tokens.counter import MessageTokens, TokenCounter, measure

logger = logging.getLogger(__name__)


class MemoryState:
    """The view as it stands, and all that is needed to move it on.

    Attributes:
        budget: what a view may cost, and the thresholds in force.
        known: keys, tokens and marks of the history.
        ledger: the edits.
        shown: what the view shows.
        queue: messages added since the view was last moved on.
        fresh: items that no view has shown yet, with their tokens.
        withheld: keys of messages that wait for results, which no view has shown either.
        blocked: texts that could not be stubbed.
        returned: items that had left and stand in the view again since the last one was shown. No model is
            asked for notes of them before the next one.
        generation: grows with every change that is not growth: an event planned before it may be outdated.
            The number tells in most cases at once what else the units of both views are compared for.
        names_tools: whether the agent has the read-back tools: then stand-ins made from now on tell of them.
    """

    def __init__(self, config: CompressionConfig, counter: TokenCounter) -> None:
        self.budget = BudgetInForce(config)
        self._counter = counter
        self.known = MessageTable()
        self.ledger = Ledger()
        self.shown = ShownView(counter)
        self.queue: list[tuple[str, Msg, MessageTokens]] = []
        self.fresh: dict[ItemKey, int] = {}
        self.withheld: Collection[str] = ()
        self.blocked: set[tuple[ItemKey, PartPath]] = set()
        self.returned: set[ItemKey] = set()
        self.names_tools = False
        self.generation = 0
        self._builder = ExchangeBuilder()
        self._withheld_counts: dict[str, MessageTokens] = {}

    @property
    def config(self) -> CompressionConfig:
        """The thresholds in force."""
        return self.budget.config

    @property
    def items(self) -> list[ViewItem]:
        """The view, item by item."""
        return self.shown.items

    @property
    def tokens(self) -> int:
        """What the view costs, the base memory's own summary included."""
        return self.shown.tokens

    def refs(self) -> list[str]:
        """Return the refs that the ledger names, the one of the newest message first."""
        places = self.places_of_refs()
        return sorted(places, key=lambda ref: -places[ref][1])

    def places_of_refs(self) -> dict[str, tuple[int, int]]:
        """Return where the oldest and the newest message of each ref stand, as `Ledger.places_of_refs`."""
        return self.ledger.places_of_refs({key: place for place, key in enumerate(self.known.tokens)})

    def measure(self, msg: Msg) -> MessageTokens:
        """Count a message that the wrapper made or repaired."""
        return measure(self._counter, msg)

    def showing(self, rebuilt: Rebuilt, known: MessageTable) -> MemoryState:
        """Return another state that goes on from this one with a view that was made anew.

        Args:
            rebuilt: that view.
            known: what is known of the messages.
        """
        other = MemoryState(self.config, self._counter)
        other.ledger, other.budget, other.blocked = rebuilt.ledger, self.budget, set(self.blocked)
        other.known, other.generation = known, self.generation + 1
        other.names_tools = self.names_tools
        other.shown.go_on_from(self.shown)
        other.shown.set_summary(self.shown.summary)
        other.rebuild(rebuilt)
        return other

    # Growing

    def enqueue(self, msg: Msg, counted: MessageTokens, key: str | None = None) -> None:
        """Note a message that the history received, under a key if it gave one; `msg` is kept."""
        if key is None:
            key = self.known.append(msg.id, counted.total)
        else:
            self.known.put(key, counted.total)
        self.queue.append((key, msg, counted))

    def advance(self) -> None:
        """Move the view on to the end of the history, as far as it is decided."""
        if not self.queue:
            return
        counted = {key: tokens for key, _, tokens in self.queue} | self._withheld_counts
        builder = self._builder
        exchanges = [exchange for key, msg, _ in self.queue for exchange in builder.feed(key, msg)]
        self._grow(exchanges, counted)
        self.queue = []

    def is_settled(self, *, summary: bool) -> bool:
        """Tell whether all is decided that a view shows for good.

        Args:
            summary: whether the base memory's own summary is shown.
        """
        return self._builder.is_settled and (self.shown.is_placed or not summary)

    def settle(self, *, summary: bool) -> None:
        """Decide what a view shows for good, now that one is to be shown: what calls get whose results are
        not there, and where the summary stands.

        Args:
            summary: whether the base memory's own summary is shown.
        """
        if not self._builder.is_settled:
            self._grow(self._builder.settle(), self._withheld_counts)
        if summary:
            self.shown.place_summary()

    def _grow(self, exchanges: Iterable[Exchange], counted: Mapping[str, MessageTokens]) -> None:
        grown = advance(self.items, exchanges, ledger=self.ledger, counted=counted, measure=self.measure)
        self.ledger.decisions = self._builder.decisions
        self._note_withheld(counted)
        self.ledger.frontier = len(self.known)
        self._log_repairs(grown)
        self.fresh |= {item.key: item.tokens for item in grown}
        self.shown.grow(grown)

    def _note_withheld(self, counted: Mapping[str, MessageTokens]) -> None:
        """Keep the counts of messages that wait for results: they enter the view later, counted once."""
        self.withheld = withheld = self._builder.withheld
        self._withheld_counts = {key: counted[key] for key in withheld if key in counted} if withheld else {}

    @staticmethod
    def _log_repairs(items: Iterable[ViewItem]) -> None:
        for item in items:
            if item.repair is not None:
                logger.info("message %s repaired in the view: %s", item.covered[0], item.repair)

    # Changing

    def set_summary(self, summary: str) -> bool:
        """Show the base memory's own summary, or none when it is empty; tell whether it is another one."""
        is_another = self.shown.set_summary(summary)
        self.generation += is_another
        return is_another

    def shows_another(self, summary: str) -> bool:
        """Tell whether the view shows another summary than this."""
        return summary != self.shown.summary

    def unseen(self) -> set[str]:
        """Return the keys of known messages that no view has shown."""
        queued = [key for key, _, _ in self.queue]
        return {*queued, *(key.key for key in self.fresh), *self.withheld}

    def rebuild(self, rebuilt: Rebuilt) -> None:
        """Show a view that was built anew from the whole history and the ledger."""
        items, self._builder = rebuilt.items, rebuilt.builder
        self.ledger.decisions = self._builder.decisions
        self._unblock_changed(items)
        self.queue = []
        unseen = {*rebuilt.unseen, *self.withheld}
        self._note_withheld(rebuilt.counted)
        # What a stand-in is there for has been shown, if by another memory over the same history.
        self.fresh = {
            item.key: item.tokens
            for item in items
            if (item.key in self.fresh or item.key.key in unseen) and not item.stubs
        }
        self.ledger.frontier = len(rebuilt.messages)
        self.generation += 1
        self._log_repairs(items)
        self.shown.show(items)

    def _unblock_changed(self, items: Iterable[ViewItem]) -> None:
        """Let texts be stubbed again that are others now; about the rest nothing is new."""
        if self.blocked and self.items:  # a state that was loaded has shown nothing yet to compare with
            before = {item.key: item.source for item in self.items}
            same = {item.key for item in items if item.source == before.get(item.key)}
            self.blocked = {(key, path) for key, path in self.blocked if key in same}

    def pending_after(self, done: Done) -> set[str]:
        """Return the refs whose texts are not known to be durable once an event's edits are committed.

        What the store was told to take although somebody wanted it removed may be gone again.
        """
        ledger = self.ledger
        named = {ref for edit in done.edits for ref in refs_of(edit)}
        refused = {ref for ref in done.refs(durable=False) & named if not ledger.is_live(ref)}
        doubtful = done.refs(durable=True) & named & ledger.unwanted
        return ((ledger.pending | refused) - done.refs(durable=True)) | doubtful

    def commit(self, done: Done, fresh: Collection[ItemKey]) -> None:
        """Append an event's edits to the ledger and show them."""
        pending = self.pending_after(done)
        for edit in done.edits:
            self.ledger.append(edit)
        self.ledger.note_pending(pending)
        self.blocked |= done.blocked
        for key in fresh:
            self.fresh.pop(key, None)
        self.shown.show(apply_edits(self.items, done.edits, self.ledger, self.measure))

    def follow(self, edits: Sequence[Edit], pending: Iterable[str]) -> bool:
        """Show edits that others appended to the ledger; tell whether the view had all that is needed."""
        unwanted = self.ledger.unwanted
        for edit in edits:
            shown = {item.key for item in self.items}
            known = self.ledger.segment(edit.id) if isinstance(edit, SegmentEdit) else None
            if known is not None and isinstance(edit, SegmentEdit) and known.text == edit.text:
                self.ledger.replace(edit)  # it was handed over, or a later part has its candidates now
                continue
            if isinstance(edit, SegmentEdit) and not edit.text:
                if ItemKey(edit.id, SEGMENT_PART) in shown:
                    return False
                self.ledger.replace(edit)
                continue
            if not ({edit.item} if isinstance(edit, StubEdit) else covered_by(edit)) <= shown:
                return False
            self.ledger.append(edit)
            self.shown.show(apply_edits(self.items, [edit], self.ledger, self.measure))
        self.ledger.note_pending({*pending, *unwanted})  # what was to be removed may be gone
        self.fresh = {i.key: i.tokens for i in self.items if i.key in self.fresh and not i.stubs}
        return True

    def items_with(
        self,
        added: Mapping[str, tuple[Msg, MessageTokens]],
        gone: Collection[str],
        before: str | None,
    ) -> list[ViewItem] | None:
        """Return the view with messages in the place of others; None where more than these may change.

        What is neither a call nor a result changes no pairing, unless calls before it waited until it came.

        Args:
            added: messages with their tokens, by key.
            gone: keys of the messages that leave.
            before: key of the message in front of which those are added; None: they stand at the end.
        """
        ledger, keys = self.ledger, set(gone)
        if any(ledger.stands_in_for(item) or ledger.is_told(item) for item in map(ItemKey, keys)):
            return None
        if not keys.isdisjoint(self._builder.decisions.missing.values()):
            return None  # calls before them, in the view or behind a summary, wait for results again
        places = [place for place, item in enumerate(self.items) if item.key.key in keys and _is_alone(item)]
        left = [item for item in self.items if item.key.key not in keys]
        if not places or not len(places) == len(keys) == len(self.items) - len(left):
            return None
        place = places[0]
        if not added:
            return left
        exchanges = build_exchanges((key, msg) for key, (msg, _) in added.items())
        is_in_place = places[-1] - place == len(places) - 1 and self.known.key_after(keys) == before
        if not (
            is_in_place and len(exchanges) == len(added) and all(is_simple(msg) for msg, _ in added.values())
        ):
            return None
        counted = {key: tokens for key, (_, tokens) in added.items()}
        grown = advance([], exchanges, ledger=ledger, counted=counted, measure=self.measure)
        return [*left[:place], *grown, *left[place:]]

    def show_with(self, items: Sequence[ViewItem], added: Collection[str], gone: Collection[str]) -> None:
        """Show what `items_with` returned."""
        new = {item.key: item.tokens for item in items if item.key.key in added}
        self.fresh = {key: tokens for key, tokens in self.fresh.items() if key.key not in gone} | new
        self.generation += 1
        self.ledger.frontier += len(added) - len(set(gone))
        self.shown.show(items)

    def items_of(self, keys: Iterable[str]) -> list[ItemKey]:
        """Return the items, in the view or in the ledger, that come from these history messages."""
        wanted = set(keys)
        found = {ItemKey(key): None for key in keys}
        found |= {item.key: None for item in self.items if item.key.key in wanted}
        found |= {key: None for key in self.ledger.items() if key.key in wanted}
        return list(found)

    # Deciding

    @property
    def is_due(self) -> bool:
        """Whether the view has to change before it is handed out, if it can."""
        return self.tokens > self.budget.due_tokens or self._has_large_arrival() or self._is_crowded()

    def decide(
        self, costs: Costs, *, manual: bool = False, goal_tokens: int = 0, growth_tokens: int = 0
    ) -> Step:
        """Say what has to happen before the view is handed out, by the thresholds in force.

        Args:
            costs: of stand-ins.
            manual: whether somebody asks for an event.
            goal_tokens: as in `Situation`.
            growth_tokens: as in `Situation`: more than 0 where an event is planned ahead.
        """
        if not (self.is_due or manual or growth_tokens):
            return Show()
        situation = self._situation(costs, manual, goal_tokens, growth_tokens)
        step = decide(self.items, situation)
        if manual or not (self.returned and isinstance(step, Perform)):
            return step
        left = {item.key for segment in step.plan.segments for unit in segment.units for item in unit.items}
        return Perform(replace(step.plan, by_rules=not left.isdisjoint(self.returned)))

    def _situation(self, costs: Costs, manual: bool, goal_tokens: int, growth_tokens: int) -> Situation:
        return Situation(
            config=self.config,
            costs=costs,
            marks=self._marks(),
            fresh=frozenset(self.fresh),
            blocked=frozenset(self.blocked),
            extra_tokens=self.shown.summary_tokens + self.shown.system_tokens,
            cut_extra_tokens=self.shown.summary_tokens + self.shown.cut_system_tokens,
            loans=self.shown.loans(),
            growth_tokens=growth_tokens,
            manual=manual,
            goal_tokens=goal_tokens,
        )

    # Asking

    def units(self) -> list[Unit]:
        """Return what stays or leaves together, in the order of the view."""
        return classify(self.items, self.config, self._marks())

    def _marks(self) -> Marks:
        volatile = [self.known.bearing(mark) for mark in self.config.volatile_marks]
        return Marks(
            pinned=frozenset(self.known.bearing(self.config.pinned_mark)),
            volatile=frozenset().union(*volatile),
        )

    def _is_crowded(self) -> bool:
        """Tell whether the view has more messages than the user wants, and an event should come for that."""
        most = self.config.max_view_messages
        return most is not None and len(self.items) > most and is_crowded(self.units(), self.config)

    def _has_large_arrival(self) -> bool:
        """Tell whether a message came that may be too large to enter the view whole."""
        return max(self.fresh.values(), default=0) > self.config.arrival_tokens

    def fixed_tokens(self) -> list[tuple[str, int]]:
        """Return `(message id, tokens)` of each message that may not leave the view."""
        fixed = [(item.msg.id, item.tokens) for unit in self.units() if unit.fixed for item in unit.items]
        if self.shown.summary_id is not None:
            fixed.append((self.shown.summary_id, self.shown.summary_tokens))
        if self.shown.system_tokens:
            fixed.append(("system", self.shown.system_tokens))
        return fixed

    def page_tokens(self) -> int:
        """Return the tokens of the pages of stored texts that stand in the view, or are about to."""
        return self.shown.page_tokens((msg, counted.total) for _, msg, counted in self.queue)

    def expand(self, message_ids: Iterable[str]) -> list[str]:
        """Return message ids with each segment's id replaced by the ids that it covers."""
        expanded: dict[str, None] = {}
        for id in message_ids:
            segment = None if self.known.knows(id) else self.ledger.segment(id)
            if segment is None:
                expanded[id] = None
            else:
                expanded.update(dict.fromkeys(self.ledger.ids_under(segment.id)))
        return list(expanded)

    def view(self, exclude_mark: str | None, *, with_summaries: bool) -> list[Msg]:
        """Return what is handed out, and remember what it costs: that is what the provider counts.

        Args:
            exclude_mark: leave out exchanges and segments all of whose messages bear it.
            with_summaries: whether segments and the base memory's own summary are part of it.
        """
        view, self.budget.shown_tokens = self.shown.pick(
            self.known.bearing(exclude_mark), with_summaries=with_summaries
        )
        return view


def _is_alone(item: ViewItem) -> bool:
    """Tell whether an item is a message as it came, and all of its exchange."""
    is_whole = item.kind == "message" and item.repair is None and not item.stubs
    return is_whole and item.exchange == item.key and is_simple(item.source)
