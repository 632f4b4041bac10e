"""Views to plan for, and what a plan takes from them."""

from __future__ import annotations

from typing import Any

from context_compressor import from_openai
from context_compressor.core.decide import Costs, Plan
from context_compressor.core.items import ViewItem
from context_compressor.core.ledger import Ledger
from context_compressor.core.rebuild import rebuild
from context_compressor.tokens.counter import measure
from tests.memory.scripted import COUNTER

COSTS = Costs(stub=25, media=45, segment=60)


def items_of(said: list[dict[str, Any]]) -> list[ViewItem]:
    """Return the view of chat dicts, its keys their indexes."""
    history = [(str(n), msg) for n, msg in enumerate(from_openai(said))]
    return rebuild(history, Ledger(), counted={}, measure=lambda msg: measure(COUNTER, msg)).items


def leaving(found: Plan | None) -> list[str]:
    """Return the keys of the messages that enter segments."""
    if found is None:
        return []
    return [item.key.key for segment in found.segments for unit in segment.units for item in unit.items]
