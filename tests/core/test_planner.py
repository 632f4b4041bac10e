"""The planner: which means come first, what is left alone, what a plan promises. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor import CompressionConfig, from_openai
from context_compressor.core.decide import Plan, Situation, plan
from context_compressor.core.edits import ItemKey, SegmentEdit
from context_compressor.core.items import ViewItem
from context_compressor.core.units import Marks, Unit, classify
from tests.core.support import COSTS, items_of, leaving
from tests.memory.scripted import assistant, call, exchange, result, system, text, turns, user
from tests.support.strategies import chat_histories


def planned(said: list[dict[str, Any]], budget: int = 2_000, **values: Any) -> Plan | None:
    """Plan for chat dicts; values that are no config fields go into the situation."""
    beside = {key: values.pop(key) for key in ("marks", "fresh", "blocked", "manual") if key in values}
    config = CompressionConfig(**{"max_total_tokens": budget, "keep_recent_count": 4, **values})
    return plan(items_of(said), Situation(config, COSTS, **beside))


def stubbed(found: Plan | None) -> list[str]:
    """Return the keys of the messages that get stubs."""
    return [] if found is None else [stub.item.key for stub in found.stubs]


LARGE = [user("go"), *exchange("a", 60), *exchange("b", 70), *turns(1)]
"""Two results of some 900 and 1,050 tokens, then four recent messages."""


def test_compacting_comes_first_and_is_enough_where_it_reaches_the_target() -> None:
    found = planned(LARGE, max_tool_message_tokens=300)
    assert stubbed(found) == ["4", "2"]
    assert leaving(found) == []


def test_compress_starts_with_segments() -> None:
    found = planned(LARGE, mode="compress", max_tool_message_tokens=300)
    assert stubbed(found) == []
    assert leaving(found) == ["1", "2", "3", "4"] or leaving(found) == ["1", "2"]


@pytest.mark.parametrize("threshold", [None, 500])
def test_compact_plans_no_summary(threshold: int | None) -> None:
    found = planned(turns(12), mode="compact", group_token_threshold=threshold)
    assert len(found.segments) == 1, "groups are for summaries"
    assert found.segments[0].summary_tokens == 0
    assert found.stubs == ()


def test_auto_compresses_where_compacting_was_not_enough() -> None:
    said = [user("go"), *exchange("a", 40), *turns(8)]
    found = planned(said, max_tool_message_tokens=300)
    assert stubbed(found) == ["2"]
    assert leaving(found)[:2] == ["1", "2"]


@pytest.mark.parametrize(
    ("beside", "ratio", "is_enough"),
    [
        (3, 0.75, True),  # from 2,124 tokens to 1,475, above the target of 1,000
        (3, 0.6, False),  # saves too little
        (4, 0.95, False),  # from 2,543 to 1,894 of 2,000
    ],
)
def test_compacting_is_enough_where_it_saved_its_share_and_left_a_quarter_free(
    beside: int, ratio: float, is_enough: bool
) -> None:
    said = [user("go"), *exchange("a", 60), *turns(beside)]
    found = planned(said, max_tool_message_tokens=300, compact_ratio_threshold=ratio)
    assert stubbed(found) == ["2"]
    assert (leaving(found) == []) == is_enough


def test_the_oldest_leave_first_and_exchanges_leave_whole() -> None:
    left = leaving(planned(turns(12)))
    assert left == sorted(left, key=int)
    assert left[0] == "1"  # the first user message stays
    assert ("1" in left) == ("2" in left)


def test_recent_messages_are_left_alone_while_the_budget_allows() -> None:
    assert not {"44", "45", "46", "47"} & set(leaving(planned(turns(12))))
    assert not {"44", "45", "46", "47"} & set(leaving(planned(turns(12), manual=True)))


def test_recent_messages_may_be_counted_in_tokens() -> None:
    said = turns(12)
    units = classify(items_of(said), CompressionConfig(), Marks())
    recent = [unit.tokens for unit in units if unit.recent]

    def stay(**values: Any) -> list[int]:
        found = classify(items_of(said), CompressionConfig(**values), Marks())
        return [unit.tokens for unit in found if unit.recent]

    assert stay(keep_recent_tokens=sum(recent)) == recent
    assert stay(keep_recent_tokens=sum(recent) - 1) == recent[1:]
    assert stay(keep_recent_tokens=1) == recent[-1:]
    assert stay(keep_recent_tokens=10**6) == [unit.tokens for unit in units]
    assert stay(keep_recent_tokens=10**6, keep_recent_count=10) == recent


def test_where_compacting_a_recent_result_holds_the_budget_no_recent_message_leaves() -> None:
    said = [user("go"), *exchange("a", 60), *(assistant(text(f"t{n}", 10)) for n in range(10))]
    found = planned(said, keep_recent_count=20)
    assert stubbed(found) == ["2"]
    assert leaving(found) == []
    assert 1_500 < found.projected_tokens < 2_000  # above what an event strives for


def test_recent_results_are_compacted_before_recent_messages_leave() -> None:
    said = [user("go"), call("a", "b"), result("a", text("a", 120)), result("b", text("b", 120))]
    found = planned(said)
    assert sorted(stubbed(found)) == ["2", "3"]
    assert leaving(found) == []


def test_user_texts_are_cut_only_when_nothing_milder_is_left() -> None:
    found = planned([user(text("long", 200)), assistant("yes"), user("on")])
    assert stubbed(found) == ["0"]
    assert found.stubs[0].max_tokens > COSTS.stub + 200  # no shorter than it has to be


def test_parallel_results_share_the_room_that_there_is_and_the_request_stays() -> None:
    """The step before had emptied all of them, and the request with them, though a third was still free."""
    ids = [f"c{n}" for n in range(6)]
    said = [system(text("rules", 50)), user(text("request", 12)), call(*ids)]
    said += [result(id, text(id, 40)) for id in ids]
    found = planned(said, 2_000)
    assert set(stubbed(found)) == {"3", "4", "5", "6", "7", "8"}
    assert len({stub.max_tokens for stub in found.stubs}) == 1
    assert found.stubs[0].max_tokens > 2 * COSTS.stub
    assert found.projected_tokens <= 2_000


def test_no_text_leaves_behind_a_stub_of_about_its_size() -> None:
    """Older exchanges leave for it, which frees more and loses less."""
    said = [user("go"), *(message for n in range(9) for message in exchange(f"e{n}", 9))]
    for budget in range(500, 1_400, 100):
        found = planned(said, budget, keep_recent_count=14)
        assert found is not None
        assert stubbed(found) == []
        assert leaving(found)


def test_instructions_and_pinned_exchanges_never_leave() -> None:
    said = [system(text("rules", 30)), *turns(12)]
    found = planned(said, marks=Marks(pinned={"7"}))
    ids = {msg.id: str(n) for n, msg in enumerate(from_openai(said))}
    assert ids
    assert "0" not in leaving(found)
    items = items_of(said)
    pinned = items[7].covered[0]
    config = CompressionConfig(max_total_tokens=2_000, keep_recent_count=4)
    again = plan(items, Situation(config, COSTS, marks=Marks(pinned={pinned})))
    assert not {items[6].key.key, items[7].key.key} & set(leaving(again))


def test_volatile_messages_share_no_segment_with_others() -> None:
    items = items_of([user(text("hint", 30)), *[user(text(f"u{n}", 40)) for n in range(8)]])
    config = CompressionConfig(max_total_tokens=300, keep_recent_count=0, max_tool_message_tokens=100)
    found = plan(items, Situation(config, COSTS, marks=Marks(volatile={items[0].covered[0]})))
    for segment in found.segments:
        assert len({unit.volatile for unit in segment.units}) == 1


def test_a_large_result_is_compacted_as_it_arrives_and_only_then() -> None:
    said = [user("go"), *exchange("a", 60)]
    assert planned(said) is None
    found = planned(said, fresh={ItemKey("2")})
    assert stubbed(found) == ["2"]
    assert found.reason == "arrival"
    assert planned(said, fresh={ItemKey("2")}, blocked={(ItemKey("2"), (0, -1))}) is None
    assert planned(said, fresh={ItemKey("2")}, exclude_tools={"read_file"}) is None


def test_it_brings_no_summary_in_a_session_that_has_none() -> None:
    said = [user("go"), *turns(24), *exchange("a", 300)]
    found = planned(said, 16_000, fresh={ItemKey(str(len(said) - 1))})
    assert found.reason == "arrival"
    assert leaving(found) == []


def test_the_larger_what_arrives_the_more_its_first_stub_shows() -> None:
    def shown(lines: int, results: int = 1, **config: Any) -> list[int]:
        ids = [f"r{n}" for n in range(results)]
        said = [user("go"), call(*ids), *(result(id, text(id, lines)) for id in ids)]
        fresh = {ItemKey(str(n)) for n in range(2, 2 + results)}
        found = planned(said, 16_000, fresh=fresh, **config)
        return [stub.max_tokens - COSTS.stub for stub in found.stubs]

    assert shown(400)[0] < shown(700)[0] == 6 * 200 < shown(700, preview_tokens=400)[0]
    assert shown(700, preview_tokens=0) == [0]
    assert shown(700, results=8) == [4_000 // 8 - COSTS.stub] * 8, "they cost what one may that enters whole"
    assert shown(700, results=40) == [200] * 40


def test_of_a_result_in_parts_no_more_leave_than_make_it_fit() -> None:
    parts = [{"type": "text", "text": text(f"p{n}", lines)} for n, lines in enumerate([*[10] * 20, 2_000])]
    said = [user("go"), call("a"), {"role": "tool", "tool_call_id": "a", "content": parts}]
    found = planned(said, 16_000, fresh={ItemKey("2")})
    assert [stub.max_tokens - COSTS.stub for stub in found.stubs] == [6 * 200], "all but the largest fit"


def test_what_the_user_said_last_stays() -> None:
    said = [message for n in range(7) for message in exchange(f"e{n}", 20)]
    items = items_of([user("earlier"), *said[:6], user(text("rules", 20)), *said[6:]])
    items[0] = replace(items[0], kind="segment")
    config = CompressionConfig(max_total_tokens=sum(item.tokens for item in items) - 1)
    left = leaving(plan(items, Situation(config, COSTS)))
    assert {"8", "9"} <= set(left)
    assert "7" not in left
    hinted = items_of([user("earlier"), *said[:6], user(text("rules", 20)), *said[6:], user("a hint")])
    hinted[0] = replace(hinted[0], kind="segment")
    marks = Marks(volatile=hinted[-1].covered)
    assert {"8", "9"} <= set(left := leaving(plan(hinted, Situation(config, COSTS, marks))))
    assert "7" not in left, "a hint is no request"


@given(
    chat_histories(valid=False),
    st.sampled_from((200, 500, 2_000)),
    st.sampled_from(("auto", "compact", "compress")),
)
def test_a_plan_makes_the_view_smaller_and_names_only_what_is_there(
    said: list[dict[str, Any]], budget: int, mode: Any
) -> None:
    items = items_of(said)
    now = sum(item.tokens for item in items)
    config = CompressionConfig(max_total_tokens=budget, mode=mode, keep_recent_count=2)
    found = plan(items, Situation(config, COSTS))
    if found is None:
        return
    again = plan(items, Situation(config, COSTS))
    assert (again.stubs, again.projected_tokens) == (found.stubs, found.projected_tokens)
    assert found.projected_tokens < now
    keys = [item.key for item in items]
    left = [item.key for segment in found.segments for unit in segment.units for item in unit.items]
    assert len(left) == len(set(left))
    assert set(left) <= set(keys)
    assert all(stub.item in keys for stub in found.stubs)


# When an event comes, and what leaves


def test_the_oldest_exchanges_leave_until_the_view_stands_at_its_target() -> None:
    said = [user("go"), *turns(40)]
    tokens = sum(item.tokens for item in items_of(said))
    found = planned(said, tokens - 1, keep_recent_count=4)
    left = leaving(found)
    assert left == [str(n) for n in range(1, len(left) + 1)]
    assert 0.4 * tokens < found.projected_tokens <= 0.5 * tokens


def test_recent_exchanges_leave_for_the_target_unless_somebody_set_how_many_stay() -> None:
    said = [user("go"), *(message for n in range(7) for message in exchange(f"e{n}", 20))]
    budget = sum(item.tokens for item in items_of(said)) - 1
    recent = {str(n) for n in range(5, 15)}
    free = plan(items_of(said), Situation(CompressionConfig(max_total_tokens=budget), COSTS))
    kept = plan(
        items_of(said), Situation(CompressionConfig(max_total_tokens=budget, keep_recent_count=10), COSTS)
    )
    assert recent & set(leaving(free))
    assert not {"13", "14"} & set(leaving(free)), "the last exchange stays"
    assert leaving(kept)
    assert not recent & set(leaving(kept))


def test_notes_grow_by_a_third_of_what_leaves_and_have_at_most_a_third_of_the_budget() -> None:
    small = planned([user("go"), *turns(60)], 40_000, manual=True)
    large = planned([user("go"), *turns(60)], 4_000)
    huge = planned([user("go"), *turns(400)], 60_000)
    (one,), (other,), (third,) = small.segments, large.segments, huge.segments
    assert one.summary_tokens == min(8_000, sum(unit.tokens for unit in one.units) // 3)
    assert other.summary_tokens == 4_000 // 3
    assert third.summary_tokens == 8_000


def test_a_model_has_all_the_room_that_notes_may_have_and_is_not_reckoned_to_use_it_at_once() -> None:
    items = items_of([user("go"), *turns(40)])
    budget = sum(item.tokens for item in items) - 1
    by_model, by_rules = (
        plan(items, Situation(CompressionConfig(max_total_tokens=budget), replace(COSTS, by_model=remote)))
        for remote in (True, False)
    )
    left = sum(unit.tokens for unit in by_model.segments[0].units)
    assert by_model.segments[0].summary_tokens == left // 2 > by_rules.segments[0].summary_tokens
    assert len(leaving(by_model)) < len(leaving(by_rules))
    assert by_rules.projected_tokens <= budget // 2 < by_model.projected_tokens <= 3 * budget // 4
    config, costs = CompressionConfig(max_total_tokens=budget), replace(COSTS, by_model=True)
    asked_for = plan(items, Situation(config, costs, manual=True))
    assert asked_for.segments[0].summary_tokens == budget // 3, "as much where somebody asks"


def test_users_standing_words_have_room_of_their_own() -> None:
    rule = "Never touch the ledger of 2019; it must stay as the auditors left it."
    plain = planned([user("go"), *turns(12)], 8_000, manual=True)
    ruled = planned([user("go"), user(rule), *turns(12)], 8_000, manual=True)
    assert plain.segments[0].standing_tokens == 0
    assert ruled.segments[0].standing_tokens == 800, "as many as there may be: what they take is a guess"
    assert 30 < ruled.segments[0].summary_tokens - plain.segments[0].summary_tokens < 100


def segment_of(units: Sequence[Unit], tokens: int) -> ViewItem:
    """Return an item that stands for these units, and costs so many tokens."""
    first = units[0].items[0]
    stands_for = sum(unit.stands_for_tokens for unit in units)
    keys = tuple(item.key for unit in units for item in unit.items)
    edit = SegmentEdit("s", keys, (), "ctx://0123456789abcdef", (), "x", True, (), (), stands_for)
    return replace(first, kind="segment", segment=edit, tokens=tokens, key=first.key, exchange=first.key)


def test_what_leaves_goes_into_a_segment_where_it_is_too_little_for_one() -> None:
    said = items_of([user("go"), *turns(8)])
    old = segment_of(classify(said[1:9], CompressionConfig(), Marks()), 400)
    little = plan(
        [said[0], old, *said[-8:]], Situation(CompressionConfig(keep_recent_count=6), COSTS, manual=True)
    )
    (segment,) = little.segments
    assert [unit.segment for unit in segment.units] == [True, False]
