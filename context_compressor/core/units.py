"""What the planner decides about: the exchanges of a view, and what role each plays."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from context_compressor.core.config import CompressionConfig
from context_compressor.core.edits import ItemKey
from context_compressor.core.items import ViewItem
from context_compressor.messages.exchanges import ORPHAN_REPAIR
from context_compressor.messages.msg import is_instruction
from context_compressor.messages.speech import is_handed


@dataclass(frozen=True, slots=True)
class Marks:
    """Ids of the messages whose marks matter to the planner."""

    pinned: Collection[str] = frozenset()
    volatile: Collection[str] = frozenset()


@dataclass(slots=True, eq=False)
class Unit:
    """An exchange, a segment or a single message of the view: what stays or leaves together."""

    key: ItemKey
    items: list[ViewItem]
    position: int
    """Index among the units of the view."""
    segment: bool
    tokens: int = 0
    stands_for_tokens: int = 0
    """Tokens of the messages that it shows or stands for, as `ViewItem.stands_for_tokens`."""
    standing_tokens: float = 0.0
    """About how many tokens the standing instructions in it take, as `ViewItem.standing_tokens`."""
    fixed: bool = False
    """May not leave: an instruction before the first other message, or pinned."""
    volatile: bool = False
    """Comes and goes by its mark, unless it is pinned, too; enters a segment only with its like, and last."""
    kept: bool = False
    """The first user message, what the user asked for last, the newest later instruction, what loads tools
    that are called, or the newest compaction that its provider alone can read: leaves only when nothing else
    is left."""
    recent: bool = False
    """Among the last messages, which stay word for word as long as the budget allows."""
    callers: list[Unit] = field(default_factory=list)
    """The units that call tools which it loads. It stays while they stand, and cannot leave if one of them
    cannot."""

    @property
    def compressible(self) -> bool:
        """Whether a segment may cover it before the budget is at stake."""
        return not (self.segment or self.fixed or self.volatile or self.kept or self.recent)

    @property
    def is_request(self) -> bool:
        """Whether it is something that the user said: no hint that comes and goes, nothing handed over."""
        first = self.items[0]
        return (
            first.kind == "message"
            and first.source.role == "user"
            and first.repair != ORPHAN_REPAIR
            and not self.volatile
            and not is_handed(first.source)
        )


def classify(items: Sequence[ViewItem], config: CompressionConfig, marks: Marks) -> list[Unit]:
    """Return the units of a view, in order, with their roles."""
    units = _grouped(items)
    leading = True
    newest_instruction: Unit | None = None
    for unit in units:
        source = unit.items[0].source
        pinned = not unit.segment and _bears(unit, marks.pinned)
        unit.volatile = not pinned and _bears(unit, marks.volatile)
        instruction = source.role == "system" and not unit.segment and is_instruction(source)
        leading = leading and instruction
        unit.fixed = pinned or (leading and not unit.volatile)
        if instruction and not leading and not unit.volatile:
            newest_instruction = unit
    if newest_instruction is not None:
        newest_instruction.kept = True
    # What the user said first, unless a segment stands before it.
    first = next((unit for unit in units if unit.segment or unit.is_request), None)
    if first is not None and not first.segment and config.keep_first_user:
        first.kept = True
    _find_recent(units, config)
    request = newest_request(units)
    if request is not None and not request.recent:
        request.kept = True  # however long the agent has been at work on it
    # The newest one alone holds what came before it.
    sealed = [unit for unit in units if not unit.segment and any(item.is_sealed for item in unit.items)]
    for unit in sealed[-1:]:
        unit.kept = True
    _keep_loaders(units)
    return units


def _keep_loaders(units: Sequence[Unit]) -> None:
    loaders: dict[str, Unit] = {}
    for unit in units:
        called = {name for item in unit.items for name in item.called_tools} if loaders else ()
        for loader in {id(one): one for name in called if (one := loaders.get(name))}.values():
            loader.callers.append(unit)
        loaders.update((name, unit) for item in unit.items for name in item.loaded_tools)
    for unit in reversed(units):
        unit.kept = unit.kept or bool(unit.callers)
        unit.fixed = unit.fixed or any(caller.fixed for caller in unit.callers)


def with_callers(units: Iterable[Unit]) -> list[Unit]:
    """Return units, and the units that call tools which these load: they leave together."""
    found: dict[ItemKey, Unit] = {}
    todo = list(reversed([*units]))
    while todo:
        unit = todo.pop()
        if unit.key not in found:
            found[unit.key] = unit
            todo += unit.callers
    return list(found.values())


def _bears(unit: Unit, marked: Collection[str]) -> bool:
    """Tell whether a message of a unit is among those that bear a mark; of a segment, whether all are."""
    if not marked:
        return False
    if unit.segment:
        covered = unit.items[0].covered
        return len(covered) <= len(marked) and all(id in marked for id in covered)
    return any(id in marked for item in unit.items for id in item.covered)


def is_crowded(units: Sequence[Unit], config: CompressionConfig) -> bool:
    """Tell whether a view has more messages than the user wants, and an event should come for that.

    Where those that may not leave are too many already, one would come on every turn: then only once half as
    many may leave as a view should have.
    """
    most = config.max_view_messages
    if most is None or sum(len(unit.items) for unit in units) <= most:
        return False
    leaving = sum(len(unit.items) for unit in units if unit.compressible)
    stand_ins = any(unit.segment for unit in units) + (leaving > 0)
    return staying_messages(units) + stand_ins <= most or leaving >= max(1, most // 2)


def staying_messages(units: Sequence[Unit]) -> int:
    """Return how many messages an event leaves, segments apart, unless the budget asks for more."""
    return sum(len(unit.items) for unit in units if not (unit.segment or unit.compressible))


def _grouped(items: Sequence[ViewItem]) -> list[Unit]:
    """Return the units of a view, in order, their roles still to be found."""
    units: list[Unit] = []
    for item in items:
        if not (units and units[-1].key == item.exchange):
            units.append(Unit(item.exchange, [], len(units), item.kind == "segment"))
        unit = units[-1]
        unit.items.append(item)
        unit.tokens += item.tokens
        unit.stands_for_tokens += item.stands_for_tokens
        unit.standing_tokens += item.standing_tokens
    return units


def newest_request(units: Sequence[Unit]) -> Unit | None:
    """Return what the user asked for last."""
    return next((unit for unit in reversed(units) if unit.is_request), None)


def _find_recent(units: Sequence[Unit], config: CompressionConfig) -> None:
    messages, tokens = config.recent_limits
    is_newest = True
    for unit in reversed(units):
        if unit.segment or unit.volatile:
            continue
        if messages <= 0 or (unit.tokens > tokens and not is_newest):
            return
        unit.recent, is_newest = True, False
        messages -= len(unit.items)
        tokens -= unit.tokens
