"""When an event within the budget pays for itself. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.units import Unit
from context_compressor.compression.view import ViewItem

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

    Infinite before the first segment: a session that stays within its budget is left as it is.
    """
    tokens = [item.tokens for item in items if item.kind != "segment"]
    old = len(tokens) - _count_recent(tokens, config)
    if old <= 0 or len(tokens) == len(items):
        return inf
    turns = [item.source.role for item in items].count("assistant")
    recent = sum(tokens[old:])
    return growth_that_pays(recent, sum(tokens) / max(1, turns), config) - sum(tokens[:old])


def _count_recent(tokens: Sequence[int], config: CompressionConfig) -> int:
    """Return about how many messages at the end stay, by the tokens of each."""
    messages, left = config.recent_limits
    count = 0
    for each in reversed(tokens):
        if count >= messages or (each > left and count):
            break
        left -= each
        count += 1
    return count
