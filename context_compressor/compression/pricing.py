"""When an event within the budget pays for itself. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import inf, sqrt
from operator import attrgetter

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.units import Unit
from context_compressor.compression.view import ViewItem
from context_compressor.messages.handed import is_handed
from context_compressor.messages.msg import is_instruction

SUMMARY_RATIO = 0.136
"""Tokens of summary and index per token that leaves. Lower saves more, higher loses less of what is needed
later."""
LEAST_GAIN = 0.05
"""Share of the budget that an event within it has to free, however cheap it is to send a view anew: where a
model summarises each costs a call, and each leaves a segment whose label alone is as long as a message."""


def growth_that_pays(rewritten_tokens: float, tokens_per_turn: float, config: CompressionConfig) -> float:
    """Return by how many tokens a view has to grow for an event within the budget to pay for itself."""
    growth = cheapest_growth(rewritten_tokens, tokens_per_turn, config.cached_price)
    return max(growth, LEAST_GAIN * config.budget)


def cheapest_growth(rewritten_tokens: float, tokens_per_turn: float, cached_price: float) -> float:
    """Return by how many tokens a view should grow between two events for the least cost per turn.

    A token that stands in the view costs `cached_price` on every turn; an event makes the provider read
    `rewritten_tokens` anew, at the price 1. Where a view grows by G from event to event, a turn pays
    `cached_price * G / 2` for what has grown, and `tokens_per_turn / G` of an event. The sum is least at the
    G returned, the economic order quantity of stock keeping (Harris, 1913).
    """
    if cached_price <= 0:
        return inf
    return sqrt(2 * (1 - cached_price) / cached_price * rewritten_tokens * tokens_per_turn)


def tokens_per_turn(units: Sequence[Unit]) -> float:
    """Return by how many tokens a conversation grows per assistant message, judged by what stands whole."""
    live = [unit for unit in units if not (unit.segment or unit.fixed or unit.kept)]
    turns = [item.source.role for unit in live for item in unit.items].count("assistant")
    return sum([unit.tokens for unit in live]) / max(1, turns)


def has_many_messages(items: Sequence[ViewItem], config: CompressionConfig) -> bool:
    """Tell whether a view has more messages than the user wants."""
    return config.max_view_messages is not None and len(items) > config.max_view_messages


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


def may_pay(items: Sequence[ViewItem], config: CompressionConfig) -> bool:
    """Tell cheaply whether an event within the budget may pay: whether it is worth while to plan one."""
    return has_many_messages(items, config) or missing_growth(items, config) <= 0


def missing_growth(items: Sequence[ViewItem], config: CompressionConfig) -> float:
    """Return about how many tokens a view has yet to grow by until an event within the budget may pay.

    What `Draft.pays` reckons exactly, without the units that takes, and rather too low than too high.
    Infinite before the first segment: a session that stays within its budget is left as it is.
    """
    leading = next((n for n, item in enumerate(items) if not _is_instruction(item)), len(items))
    live = [item for item in items[leading:] if item.kind != "segment"]
    if len(live) == len(items) - leading:
        return inf
    if config.keep_first_user and live and live[0] is items[leading] and live[0].source.role == "user":
        del live[0]
    tokens = [item.tokens for item in live]
    recent = _count_recent(live, config)
    old = tokens[: len(live) - recent]
    roles = [item.source.role for item in live]
    asked = (n for n in reversed(range(len(live))) if roles[n] == "user" and not is_handed(live[n].source))
    request = next(asked, None)
    if request is not None and request < len(old):
        old[request] = 0  # what was asked last stays
    leaving = sum(old)
    if not leaving:
        return inf
    per_turn = sum(tokens) / max(1, roles.count("assistant"))
    growth = growth_that_pays(sum(tokens) - leaving + SUMMARY_RATIO * leaving, per_turn, config)
    return growth / (1 - SUMMARY_RATIO) - leaving


def _is_instruction(item: ViewItem) -> bool:
    return item.source.role == "system" and item.kind == "message" and is_instruction(item.source)


def _count_recent(items: Sequence[ViewItem], config: CompressionConfig) -> int:
    """Return how many messages at the end stay, whole exchanges, whatever the marks of each."""
    messages, tokens = config.recent_limits
    count = 0
    for _, exchange in groupby(reversed(items), key=attrgetter("exchange")):
        sizes = [item.tokens for item in exchange]
        if messages <= 0 or (sum(sizes) > tokens and count):
            break
        count, messages, tokens = count + len(sizes), messages - len(sizes), tokens - sum(sizes)
    return count
