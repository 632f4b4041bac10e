"""`record_usage` and `record_overflow`: what a provider counts bounds the view, and nothing else changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    CompressionEvent,
    InMemoryMemory,
    Msg,
    OffloadTools,
    compress_messages,
    from_openai,
    to_openai,
)
from context_compressor.errors import ContextOverflowError, InvalidArgumentError, InvalidStateError
from context_compressor.memory.budget import BudgetInForce, within
from tests.memory.scripted import (
    COUNTER,
    Dict,
    Gated,
    Noting,
    assistant,
    config,
    exchange,
    filled,
    good_view,
    new_memory,
    nothing_lost,
    reached,
    system,
    text,
    turns,
    user,
)

BUDGET = 2_000
NEAR = turns(4)
"""Some 1,700 tokens: within the budget."""
MORE = turns(1, tag="u")
"""Some 400 tokens."""


async def viewed(said: list[Dict], **arguments: Any) -> tuple[CompressedMemory, list[CompressionEvent]]:
    """Return a memory whose view was handed out, with its events."""
    events: list[CompressionEvent] = []
    memory = new_memory(on_event=events.append, **arguments)
    await filled(memory, said)
    await good_view(memory)
    return memory, events


def shown(memory: CompressedMemory) -> int:
    return memory.stats().view_tokens


class TestUsage:
    @pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
    async def test_a_provider_that_counts_no_more_changes_nothing(self, share: float) -> None:
        plain, reporting = new_memory(), new_memory()
        events: dict[int, list[Any]] = {}
        for memory in (plain, reporting):
            memory._runner._on_event = events.setdefault(id(memory), []).append
        for message in turns(20):
            for memory in (plain, reporting):
                await filled(memory, [message])
            views = [to_openai(await good_view(memory)) for memory in (plain, reporting)]
            assert json.dumps(views[0]) == json.dumps(views[1])
            reporting.record_usage(int(share * shown(reporting)))
        told = [
            [(e.kind, e.reason, e.tokens_before, e.tokens_after) for e in each] for each in events.values()
        ]
        assert told[0]
        assert told[0] == told[1]
        assert reporting._tracker.state.config is reporting.config

    @pytest.mark.parametrize("overhead", [7, 60])
    async def test_a_small_overhead_changes_nothing_until_the_budget_would_break(self, overhead: int) -> None:
        memory, events = await viewed([user("hi")])
        said: list[Dict] = []
        while not events:
            assert shown(memory) + overhead <= BUDGET
            memory.record_usage(shown(memory) + overhead)
            said.append(assistant(text(f"s{len(said)}", 3)))
            await filled(memory, said[-1:])
            await good_view(memory)
        assert [event.reason for event in events] == ["over budget"]
        assert events[0].tokens_before + overhead > BUDGET

    async def test_an_edit_comes_only_when_the_next_request_would_be_too_long(self) -> None:
        memory, events = await viewed(NEAR)
        before = await good_view(memory)
        memory.record_usage(BUDGET)  # exactly what may be
        assert await good_view(memory) == before
        assert events == []
        await filled(memory, MORE)
        await good_view(memory)
        assert [event.kind for event in events] == ["compress"]

    async def test_a_view_that_cost_too_much_leads_to_an_ordinary_event(self) -> None:
        memory, events = await viewed(NEAR)
        memory.record_usage(int(1.5 * shown(memory)))
        await nothing_lost(memory, NEAR)
        assert [(event.kind, event.reason) for event in events] == [("compress", "over budget")]
        assert 1.5 * shown(memory) <= BUDGET

    async def test_the_tools_go_by_what_the_provider_s_counts_leave(self) -> None:
        memory, _ = await viewed(NEAR)
        assert memory.budget_tokens == BUDGET
        memory.record_usage(int(1.25 * shown(memory)))
        assert 0.9 * BUDGET / 1.25 < memory.budget_tokens < BUDGET / 1.25
        assert OffloadTools(memory)._memory.budget_tokens == memory.budget_tokens
        assert memory.config.budget == BUDGET

    async def test_a_view_without_what_a_mark_leaves_out_is_reported_as_what_it_costs(self) -> None:
        memory, events = await viewed(turns(2))
        await memory.add(from_openai(MORE), marks="aside")
        await memory.update_compressed_summary("what an agent summarised itself")
        whole, shorter = await memory.get_memory(), await memory.get_memory(exclude_mark="aside")
        assert len(shorter) < len(whole)
        assert memory._tracker.state.budget.shown_tokens == COUNTER.count_messages(shorter)
        plain = await memory.get_memory(prepend_summary=False)
        assert memory._tracker.state.budget.shown_tokens == COUNTER.count_messages(plain) < shown(memory)
        memory.record_usage(COUNTER.count_messages(plain))
        assert memory.budget_tokens == BUDGET
        assert [event.reason for event in events] == ["summary set"]

    async def test_before_the_first_view_a_report_says_nothing(self) -> None:
        memory = new_memory()
        memory.record_usage(10_000)
        memory.record_overflow()
        assert memory.budget_tokens == BUDGET

    async def test_what_was_learnt_outlasts_clear(self) -> None:
        memory, _ = await viewed(NEAR)
        memory.record_usage(int(1.25 * shown(memory)))
        left = memory.budget_tokens
        await memory.clear()
        assert memory.budget_tokens == left

    @pytest.mark.parametrize("value", [None, True, "7", 7.0, -1, 10**400])
    async def test_what_is_no_number_of_tokens_is_refused_by_name(self, value: Any) -> None:
        memory, _ = await viewed(NEAR)
        with pytest.raises(InvalidArgumentError, match="prompt_tokens: expected tokens as an int from 0 to"):
            memory.record_usage(value)
        if value is not None:
            with pytest.raises(InvalidArgumentError, match="limit: expected tokens as an int from 1 to"):
                memory.record_overflow(value)
        with pytest.raises(InvalidArgumentError, match="limit"):
            memory.record_overflow(0)
        assert memory.budget_tokens == BUDGET


class TestOverflow:
    async def test_one_leads_to_one_smaller_view(self) -> None:
        memory, events = await viewed(NEAR)
        before = shown(memory)
        memory.record_overflow()
        view = await nothing_lost(memory, NEAR)
        assert shown(memory) <= before / 2
        assert len(events) == 1
        assert await good_view(memory) == view
        assert len(events) == 1
        assert memory.budget_tokens == int(0.8 * before)  # from now on

    async def test_a_limit_takes_the_place_of_the_budget(self) -> None:
        memory, _ = await viewed(NEAR)
        memory.record_overflow(1_200)
        await good_view(memory)
        assert shown(memory) <= 600
        memory.record_usage(shown(memory))
        assert memory.budget_tokens == 1_200

    async def test_each_leads_to_a_smaller_view_until_nothing_more_can_leave(self) -> None:
        said = [system("be brief"), *NEAR]
        memory, _ = await viewed(said)
        sizes = [shown(memory)]
        message = ""
        while not message:
            memory.record_overflow()
            try:
                await nothing_lost(memory, said)
            except ContextOverflowError as error:
                message = str(error)
            else:
                sizes.append(shown(memory))
        assert "counts leave" in message
        assert "of the budget of 2,000" in message
        assert len(sizes) > 3
        assert sizes == sorted(set(sizes), reverse=True)

    async def test_where_little_can_leave_a_little_smaller_view_is_tried(self) -> None:
        said = [system(text("rules", 115)), *turns(1, lines=5)]
        memory, events = await viewed(said)
        before = shown(memory)
        memory.record_overflow()
        await good_view(memory)
        assert 0.8 * before < shown(memory) < before
        assert events

    async def test_fixed_messages_that_cannot_fit_are_named_with_what_to_do(self) -> None:
        memory, _ = await viewed([system(text("rules", 120)), user("hi")])
        memory.record_usage(2_400)
        with pytest.raises(
            ContextOverflowError, match=r"leave 1,\d+ of the budget of 2,000.*fewer tool"
        ) as told:
            await memory.get_memory()
        assert told.value.budget < told.value.needed <= BUDGET
        assert [tokens for _, tokens in told.value.fixed if tokens > 1_000]

    async def test_an_estimate_on_the_safe_side_raises_nothing(self) -> None:
        """One report of a small view leaves little by caution alone; what is pinned then may well fit."""
        memory, _ = await viewed([user("hi")])
        memory.record_usage(600)
        left = memory.budget_tokens
        pinned = user(text("pinned", 80))
        await memory.add(from_openai([pinned]), marks="pinned")
        await good_view(memory)
        assert left < shown(memory)
        memory.record_usage(shown(memory) + 600)
        assert pinned in to_openai(await good_view(memory))


class TestState:
    async def test_a_memory_goes_on_as_it_was(self) -> None:
        base = InMemoryMemory()
        memory, _ = await viewed(NEAR, base=base)
        memory.record_usage(int(1.2 * shown(memory)))
        await good_view(memory)
        memory.record_overflow()
        again = new_memory(base=InMemoryMemory(), store=memory.store)
        again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
        assert again.budget_tokens == memory.budget_tokens
        await memory.get_memory()
        await again.get_memory()
        assert again.budget_tokens == memory.budget_tokens
        assert to_openai(await again.get_memory()) == to_openai(await memory.get_memory())
        for each in (memory, again):
            each.record_usage(int(1.1 * shown(each)))
        assert (
            again.state_dict()["compression"]["calibration"]
            == (memory.state_dict()["compression"]["calibration"])
        )

    async def test_a_little_more_is_not_taken_up_after_a_restart_either(self) -> None:
        memory, _ = await viewed(NEAR)
        memory.record_usage(int(1.2 * shown(memory)))
        await good_view(memory)
        budget = memory._tracker.state.budget
        left, theirs = memory.budget_tokens, int(1.2 * shown(memory))
        while (fitting := budget._tokens()) <= left:
            theirs -= 1
            memory.record_usage(theirs)
        assert left == memory.budget_tokens < fitting < 1.005 * left
        again = new_memory()
        again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
        assert again.budget_tokens == left
        await again.get_memory()
        assert again.budget_tokens == left

    @pytest.mark.parametrize("budget", [0, True, "1500"])
    async def test_a_budget_in_force_that_is_none_is_refused(self, budget: object) -> None:
        memory, _ = await viewed(NEAR)
        memory.record_usage(int(1.2 * shown(memory)))
        saved = memory.state_dict()
        saved["compression"]["calibration"]["budget"] = budget
        with pytest.raises(InvalidStateError, match=r"calibration\.budget: expected"):
            memory.load_state_dict(saved)

    async def test_a_state_without_it_starts_anew(self) -> None:
        memory, _ = await viewed(NEAR)
        memory.record_usage(int(1.2 * shown(memory)))
        saved = memory.state_dict()
        del saved["compression"]["calibration"]
        memory.load_state_dict(saved)
        assert memory.budget_tokens == BUDGET

    async def test_another_counter_s_numbers_say_nothing(self) -> None:
        memory, _ = await viewed(NEAR)
        memory.record_usage(int(1.2 * shown(memory)))
        saved = memory.state_dict()
        saved["compression"]["encoding"] = "another"
        memory.load_state_dict(saved)
        assert memory.budget_tokens == BUDGET

    async def test_messages_in_segments_are_counted_again_by_another_counter(self) -> None:
        class Double:
            def count_text(self, text: str) -> int:
                return 2 * COUNTER.count_text(text)

            def count_messages(self, messages: Sequence[Msg]) -> int:
                return 2 * COUNTER.count_messages(messages)

        memory, _ = await viewed([user("go"), *turns(40)])
        assert memory.stats().segments
        other, fresh = (CompressedMemory(config=config(BUDGET), counter=Double()) for _ in range(2))
        other.load_state_dict(memory.state_dict())
        await fresh.add(await memory.get_history())
        for each in (other, fresh):
            await each.get_memory()
        assert other.stats().history_tokens == fresh.stats().history_tokens > memory.stats().history_tokens

    async def test_a_larger_budget_forgets_refusals_but_not_reports(self) -> None:
        memory, _ = await viewed(NEAR)
        memory.record_usage(int(1.1 * shown(memory)))
        memory.record_overflow(1_000)
        larger = new_memory(config(4_000))
        larger.load_state_dict(memory.state_dict())
        assert 3_400 < larger.budget_tokens < 3_700

    async def test_a_lower_budget_asks_for_an_event_with_or_without_a_restart(self) -> None:
        def resumed(memory: CompressedMemory) -> CompressedMemory:
            another = new_memory(memory.config, store=memory.store)
            another.load_state_dict(json.loads(json.dumps(memory.state_dict())))
            return another

        memory = new_memory()
        changed = 0
        for said in turns(25, lines=2):
            await filled(memory, [said])
            view = await memory.get_memory()
            reporting = resumed(memory)
            assert await reporting.get_memory() == view
            reporting.record_usage(int(1.35 * shown(memory)))
            again = resumed(reporting)
            lower = await reporting.get_memory()
            assert await again.get_memory() == lower
            changed += lower != view
        assert changed

    @pytest.mark.parametrize(("said", "limit"), [(NEAR, None), ([], 1_000)], ids=["refusal", "limit"])
    async def test_a_refusal_or_a_limit_alone_outlasts_a_restart(
        self, said: list[Dict], limit: int | None
    ) -> None:
        memory = new_memory()
        await filled(memory, said)
        if said:
            await good_view(memory)
        memory.record_overflow(limit)
        resumed = new_memory()
        resumed.load_state_dict(json.loads(json.dumps(memory.state_dict())))
        assert resumed.budget_tokens == memory.budget_tokens < BUDGET

    async def test_what_was_conceded_is_conceded_after_a_restart(self) -> None:
        memory, events = await viewed([user(text("u", 10))])
        rules = [await filled(memory, [user(text(tag, 30))]) for tag in "ab"]
        await memory.update_messages_mark("pinned", msg_ids=[msg.id for [msg] in rules])
        await good_view(memory)
        memory.record_overflow()
        await good_view(memory)
        assert memory.budget_tokens == shown(memory)  # it cannot become smaller
        await memory.delete([rules[0][0].id])
        await filled(memory, [user(text("v", 25))])
        view, count = await good_view(memory), len(events)
        resumed = new_memory(store=memory.store, on_event=events.append)
        resumed.load_state_dict(json.loads(json.dumps(memory.state_dict())))
        assert await good_view(resumed) == view
        assert len(events) == count

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (7, "compression.calibration: expected a dict, got int"),
            ({"shown_tokens": "9"}, "compression.calibration.shown_tokens: expected"),
            (
                {"learnt": {"reports": 3}},
                "compression.calibration.learnt.reports: expected a valid list, got int",
            ),
            ({"learnt": {"accepted": 2}}, "compression.calibration.learnt: accepted: 2 of 0 reports"),
            ({"learnt": {"limit": -2}}, "compression.calibration.learnt.limit: expected"),
        ],
        ids=str,
    )
    async def test_a_malformed_one_is_refused_by_name(self, changes: Any, message: str) -> None:
        memory, _ = await viewed(NEAR)
        memory.record_usage(int(1.2 * shown(memory)))
        saved = memory.state_dict()
        own = saved["compression"]
        own["calibration"] = {**own["calibration"], **changes} if isinstance(changes, dict) else changes
        with pytest.raises(InvalidStateError, match=message):
            memory.load_state_dict(saved)
        assert memory.budget_tokens < BUDGET

    def test_calls_that_keep_nothing_report_with_the_next_call(self) -> None:
        def compress(said: list[Dict], state: Dict | None, **told: Any) -> Any:
            return compress_messages(said, config=config(), counter=COUNTER, state=state, **told)

        first = compress(NEAR, None)
        assert first.messages == NEAR
        assert compress(NEAR, first.state, prompt_tokens=BUDGET).messages == NEAR
        second = compress(NEAR, first.state, prompt_tokens=int(1.5 * first.stats.view_tokens))
        assert 1.5 * second.stats.view_tokens <= BUDGET
        refused = compress(NEAR, first.state, refused=True)
        assert refused.stats.view_tokens <= first.stats.view_tokens / 2
        again = compress(NEAR, json.loads(json.dumps(refused.state)), refused=True)
        assert again.stats.view_tokens < refused.stats.view_tokens


class TestOtherTasks:
    async def test_a_budget_that_is_due_while_an_event_runs_is_taken_up_by_the_next(self) -> None:
        gated = Gated()
        memory, _ = await viewed(NEAR, summarizer=gated)
        await filled(memory, MORE)
        waiting = asyncio.create_task(memory.get_memory())
        await reached(gated.asked, waiting)
        in_force = memory._tracker.state.config
        memory.record_overflow()
        assert memory._tracker.state.config is in_force
        second = asyncio.create_task(memory.get_memory())
        await asyncio.sleep(0)
        assert memory._tracker.state.config is in_force
        gated.gate.set()
        await asyncio.gather(waiting, second)
        assert shown(memory) <= 0.5 * COUNTER.count_messages(NEAR)
        await memory.aclose()

    async def test_events_are_prepared_ahead_for_the_lower_budget(self) -> None:
        noting = Noting()
        memory, events = await viewed(turns(3), summarizer=noting)  # 1,300 tokens, below 0.8 of the budget
        assert noting.requests == []
        memory.record_usage(int(1.3 * shown(memory)))
        await filled(memory, [user("go on")])
        await good_view(memory)
        assert events == []
        await asyncio.sleep(0)
        assert memory._runner._prepared is not None
        await memory.aclose()


class TestThresholds:
    def test_what_is_conceded_is_in_force_however_little_it_is(self) -> None:
        budget = BudgetInForce(config())
        budget.shown_tokens = 1_000
        budget.record_overflow()
        budget.take_up()
        assert budget.config.budget == 500
        assert budget.concede(503)
        assert budget.config.budget == budget.due_tokens == 503
        assert not budget.concede(BUDGET + 1)

    def test_a_little_more_is_not_worth_a_change(self) -> None:
        budget = BudgetInForce(config())
        configs = []
        for ours in range(500, 1_700, 20):
            budget.shown_tokens = ours
            budget.record_usage(ours + ours // 10)
            budget.take_up()
            configs.append(budget.config)
        assert len({id(config) for config in configs[5:]}) < 20
        assert 0.99 * BUDGET / 1.1 < budget.config.budget < BUDGET / 1.1

    def test_the_user_s_are_kept_as_long_as_they_fit(self) -> None:
        given = CompressionConfig(max_total_tokens=16_000, reserved_tokens=2_000)
        assert within(given, 14_000) is given
        lower = within(given, 7_000)
        assert (lower.budget, lower.max_tool_message_tokens, lower.preview_tokens) == (7_000, 2_000, 200)
        assert lower.arrival_ratio * lower.budget == pytest.approx(given.arrival_ratio * given.budget)

    @pytest.mark.parametrize("budget", [1, 2, 50, 900])
    def test_all_of_them_fit_whatever_is_left(self, budget: int) -> None:
        lower = within(CompressionConfig(max_total_tokens=16_000), budget)
        assert lower.budget == budget
        assert 1 <= lower.max_tool_message_tokens <= max(1, budget // 2)
        assert lower.preview_tokens <= lower.max_tool_message_tokens // 2
        assert 0 < lower.arrival_ratio <= 1

    async def test_a_result_that_was_not_too_large_to_arrive_still_is_not(self) -> None:
        memory, events = await viewed([user("hi")])
        memory.record_usage(shown(memory) + 600)
        await filled(
            memory, exchange("r", 30)
        )  # 450 tokens: less than a quarter of 2,000, more than of 1,400
        await good_view(memory)
        assert events == []
