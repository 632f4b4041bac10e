"""Plans for a view that has yet to grow, and whether they still hold once it has. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from context_compressor import CompressionConfig
from context_compressor.core.decide import Plan, Situation, plan, still_holds
from context_compressor.core.edits import ItemKey
from context_compressor.core.items import ViewItem
from context_compressor.core.units import Marks, classify
from tests.core.support import COSTS, items_of, leaving
from tests.memory.scripted import exchange, turns, user

BUDGET = 2_000
CONFIG = CompressionConfig(max_total_tokens=BUDGET, keep_recent_count=4)
LATER = items_of(turns(9))
NEAR = LATER[:16]
"""Some 1,700 tokens."""


def ahead(items: list[ViewItem], **values: Any) -> Plan | None:
    config = CompressionConfig(**{"max_total_tokens": BUDGET, "keep_recent_count": 4, **values})
    growth_tokens = config.budget + 1 - sum(item.tokens for item in items)
    return plan(items, Situation(config, COSTS, growth_tokens=growth_tokens))


def test_growth_asks_for_what_the_view_as_it_is_does_not() -> None:
    assert plan(NEAR, Situation(CONFIG, COSTS)) is None
    found = ahead(NEAR)
    assert found.needs_summary
    assert leaving(found)[0] == "1", "the first user message stays"
    assert found.projected_tokens < BUDGET


def test_recent_messages_are_left_to_the_event_itself() -> None:
    assert ahead(NEAR, keep_recent_count=100) is None


def test_what_would_leave_the_view_almost_full_is_not_worth_a_model() -> None:
    """Nor would a few old messages keep the budget from being exceeded again at once."""
    full = items_of([*turns(1), *exchange("large", 90)])
    assert ahead(full, max_tool_message_tokens=1_900, keep_recent_count=2) is None
    assert ahead(NEAR, keep_recent_count=2) is not None


# Whether a plan still holds


def holds(now: list[ViewItem], marks: Marks = Marks()) -> bool:  # noqa: B008  # frozen
    found = ahead(NEAR)
    assert found is not None
    return still_holds(found, classify(NEAR, CONFIG, Marks()), classify(now, CONFIG, marks))


def test_growth_does_not_matter() -> None:
    assert holds(NEAR)
    assert holds(LATER)
    assert holds([replace(item) for item in LATER]), "nor does it that the view was built anew"


@pytest.mark.parametrize("key", ["1", "6", "11"])
def test_what_is_to_leave_has_to_be_there(key: str) -> None:
    assert not holds([item for item in LATER if item.key.key != key])


def test_the_first_user_message_stays_whichever_that_is_then() -> None:
    assert not holds(LATER[1:])


def test_what_is_pinned_or_became_volatile_may_not_leave_like_that() -> None:
    old, new = LATER[4].covered, LATER[-1].covered
    assert not holds(LATER, Marks(pinned=old))
    assert not holds(LATER, Marks(volatile=old))
    assert holds(LATER, Marks(pinned=new))
    assert holds(LATER, Marks(volatile=new))


def test_what_became_recent_may_not_leave() -> None:
    assert not holds(NEAR[:-4])
    assert holds([*NEAR[:-4], *LATER[-4:]])


def test_the_newest_exchange_may_not_leave_where_others_were_deleted() -> None:
    said = [user("earlier"), *(message for n in range(5) for message in exchange(f"e{n}", 28))]
    items = items_of(said)
    items[0] = replace(items[0], kind="segment")
    config = CompressionConfig(max_total_tokens=2_500)
    found = plan(items, Situation(config, COSTS, growth_tokens=400))
    assert found is not None
    then = classify(items, config, Marks())
    assert all(unit.recent for unit in then[1:]), "or it would be for that"
    last = max(int(key) for key in leaving(found))
    assert still_holds(found, then, then)
    assert still_holds(found, then, classify(items[: last + 3], config, Marks()))
    assert not still_holds(found, then, classify(items[: last + 1], config, Marks()))


def test_what_is_to_be_compacted_has_to_be_there_too() -> None:
    config = CompressionConfig(max_total_tokens=BUDGET, keep_recent_count=4, max_tool_message_tokens=300)
    before = items_of([user("go"), *exchange("large", 60), *turns(2)])
    found = ahead(before, max_tool_message_tokens=300)
    assert [stub.item for stub in found.stubs] == [ItemKey("2")]
    then = classify(before, config, Marks())
    assert still_holds(found, then, then)
    assert not still_holds(found, then, classify(before[:1] + before[3:], config, Marks()))
