"""Replays of sessions so short that every figure can be worked out by hand, as it is beside each."""

import json

import pytest

from context_compressor.lab.measure import (
    EDIT_TOKENS,
    PlainSystem,
    Prices,
    Recording,
    Replay,
    Spending,
    cost_of,
    replay,
    total,
)
from context_compressor.lab.measure.results import MESSAGE_TOKENS
from tests.lab.measure.support import Scripted, Words, call, probe, result, says

SESSION = [
    says("system", "You book flights."),  # 0: 4 tokens
    says("user", "Cancel booking QX7741 please."),  # 1: 5
    call("c1", "lookup", '{"id":"QX7741"}'),  # 2, turn 1: 3
    result("c1", "booking QX7741 belongs to user_ann"),  # 3: 6
    says("assistant", "Shall I cancel QX7741 for user_ann?"),  # 4, turn 2: 7
    says("user", "yes"),  # 5: 2
    call("c2", "cancel", '{"id":"QX7741"}'),  # 6, turn 3: 3
    result("c2", "refund RF-9001 issued"),  # 7: 4
    says("assistant", "Done, refund RF-9001."),  # 8, turn 4: 4
    says("user", "Thanks. And invoice INV_55 too"),  # 9: 6
    call("c3", "invoice", '{"id":"INV_55"}'),  # 10, turn 5: 3
    result("c3", "sent to ann@example.com"),  # 11: 4
    says("assistant", "Sent to ann@example.com, refund RF-9001 included."),  # 12, turn 6
]
SUMMARY = says("user", "Earlier: booking QX7741 of user_ann.")  # 6 tokens
VIEWS = [
    SESSION[:2],  # 9 tokens
    SESSION[:4],  # 18, of which the 9 of turn 1 are cached
    SESSION[:6],  # 27, of which 18
    [SESSION[0], SUMMARY, *SESSION[6:8]],  # 4 + 6 + 3 + 4 = 17, of which the 4 of the instruction
    [SESSION[0], SUMMARY, *SESSION[6:10]],  # 17 + 4 + 6 = 27, of which 17
    [SESSION[0], SUMMARY, *SESSION[10:12]],  # 4 + 6 + 3 + 4 = 17, of which instruction and summary, 10
]
SPENDING = [
    *[Spending()] * 3,
    *[Spending(input_tokens=20, output_tokens=6, notes_tokens=6)] * 2,
    Spending(paid_input_tokens=5, paid_output_tokens=2, input_tokens=25, output_tokens=8, notes_tokens=6),
]


async def run(
    script, session=SESSION, budget: int = 26, probes=(), edit_tokens: int = EDIT_TOKENS, **kw
) -> Replay:
    recording = Recording(session, Words(), "by hand", probes)
    return await replay(recording, Scripted(script, **kw), budget=budget, edit_tokens=edit_tokens)


async def test_six_turns_worked_out_by_hand() -> None:
    """Every figure of a session of six turns, whose fourth compresses and whose sixth forgets a refund."""
    stored = {"ctx://1": "the refund RF-9001 was issued", "ctx://2": "the refund RF-9001 was issued"}
    probes = [
        probe(12, "refund", "RF-9001"),  # left the view of turn 6
        probe(12, "booking", "user_ann", kind="artifact"),  # stands in the summary
        probe(8, "refund", "RF-9001"),  # stands in the result
    ]
    done = await run(VIEWS, spending=SPENDING, texts=stored, probes=probes, edit_tokens=90)

    assert [turn.index for turn in done.turns] == [2, 4, 6, 8, 10, 12]
    assert [turn.raw_tokens for turn in done.turns] == [9, 18, 27, 34, 44, 51]
    assert [turn.raw_cached_tokens for turn in done.turns] == [0, 9, 18, 27, 34, 44]
    assert [turn.view_tokens for turn in done.turns] == [9, 18, 27, 17, 27, 17]
    assert [turn.cached_tokens for turn in done.turns] == [0, 9, 18, 4, 17, 10]
    assert [turn.is_over for turn in done.turns] == [False, False, True, False, True, False]
    assert [turn.summary_input_tokens for turn in done.turns] == [0, 0, 0, 20, 0, 5]
    assert [turn.summary_output_tokens for turn in done.turns] == [0, 0, 0, 6, 0, 2]
    assert [turn.paid_input_tokens for turn in done.turns] == [0, 0, 0, 0, 0, 5]
    # In place: the request before once more, and a message with the notes that stood in it; a model wrote 2.
    assert [turn.in_place_cached_tokens for turn in done.turns] == [0, 0, 0, 27, 0, 27]
    message = MESSAGE_TOKENS
    assert [turn.in_place_input_tokens for turn in done.turns] == [0, 0, 0, message, 0, message + 6]
    assert [turn.in_place_output_tokens for turn in done.turns] == [0, 0, 0, 90, 0, 2]
    assert [turn.is_summarised for turn in done.turns] == [False] * 3 + [True] * 3
    assert [(one.is_told, one.view_tokens) for one in done.asked] == [(False, 17), (True, 17), (True, 17)]

    totals = done.totals()
    assert (totals.sessions, totals.turns, totals.over, totals.invalid) == (1, 6, 2, 0)
    assert (totals.raw_tokens, totals.view_tokens, totals.peak_tokens) == (183, 115, 27)
    # Raw: 132 of the 183 tokens are cached. Views: 58 of the 115.
    assert totals.cost.raw == pytest.approx(0.1 * 132 + 51) == pytest.approx(64.2)
    assert totals.cost.view == pytest.approx(0.1 * 58 + 57) == pytest.approx(62.8)
    assert totals.cost.spent == pytest.approx(62.8 + 5 + 4 * 2)
    assert totals.cost.as_if_model == pytest.approx(62.8 + 25 + 4 * 8)
    in_place = 62.8 + 0.1 * 54 + 2 * message + 6 + 5 * 92
    assert totals.cost.in_place == pytest.approx(in_place)
    assert totals.cost.in_place_ratio == pytest.approx(in_place / 64.2)
    assert totals.cost.spent_ratio == pytest.approx(75.8 / 64.2)
    assert totals.cost.as_if_model_ratio == pytest.approx(119.8 / 64.2)
    assert totals.cost_with_cache_writes.raw == pytest.approx(13.2 + 1.25 * 51)
    assert totals.cost_with_cache_writes.view == pytest.approx(5.8 + 1.25 * 57)
    # From the first summary on, views of 17, 27 and 17 tokens in a budget of 26.
    assert totals.fill == pytest.approx((17 + 27 + 17) / 3 / 26)
    assert (totals.told.told, totals.told.probes) == (2, 3)
    assert (totals.told.low, totals.told.high) == pytest.approx((0.2077, 0.9385), abs=1e-4)
    assert totals.told.per_1000_tokens == pytest.approx(2 / 3 / (17 / 1000))
    assert {kind: (told.told, told.probes) for kind, told in totals.told_by_kind.items()} == {
        "artifact": (1, 1),
        "value": (1, 2),
    }
    # The same text under two names is stored once; it has 29 bytes.
    assert (totals.stored_texts, totals.stored_bytes) == (1, 29)


async def test_the_system_is_given_what_is_new_and_closed_at_the_end() -> None:
    """Each turn hands over the whole history, and says how much of it is new."""
    system = Scripted(VIEWS)
    await replay(Recording(SESSION, Words()), system, budget=26)
    assert system.given == [(2, 2), (4, 2), (6, 2), (8, 2), (10, 2), (12, 2)]
    assert system.closed


async def test_a_budget_that_fits_no_conversation_tells_of_no_saving() -> None:
    """From 1,000 tokens on it is told what share of the history was not sent."""
    assert [(await run(VIEWS, budget=budget)).totals().saved for budget in (999, 1_000)] == [
        None,
        pytest.approx(1 - 115 / 183),
    ]


async def test_prices_can_be_set() -> None:
    """A provider without a cache charges every token, and cheap summaries cost little."""
    done = await run(VIEWS, spending=SPENDING)
    cost = cost_of(done.turns, Prices(cached=1, summary_input=0.5, summary_output=1))
    assert (cost.raw, cost.view, cost.as_if_model) == (183, 115, 115 + 12.5 + 8)


async def test_raw_costs_what_raw_costs_and_tells_everything() -> None:
    """The history itself is the measure: ratio 1, nothing saved, all told; without summaries no fill."""
    recording = Recording(SESSION, Words(), probes=[probe(12, "refund", "RF-9001")])
    totals = (await replay(recording, PlainSystem(), budget=1_000)).totals()
    cost = totals.cost
    assert (totals.saved, cost.spent_ratio, cost.as_if_model_ratio, cost.in_place_ratio) == (0, 1, 1, 1)
    assert (totals.told.share, totals.fill) == (1, None)


async def test_a_dropped_tool_result_is_invalid() -> None:
    """A view with a call whose result was dropped is refused; the turn says which."""
    done = await run(lambda history: [m for m in history if m is not SESSION[3]])
    assert [bool(turn.problems) for turn in done.turns] == [False, True, True, True, True, True]
    assert done.turns[1].problems == ("end: call 'c1' has no result",)
    assert done.totals().invalid == 5


async def test_recompressing_every_turn_pays_for_it() -> None:
    """A system that writes its one message anew each turn saves tokens and costs more than the history."""

    def rewrite(history):
        return [says("user", f"{len(history)} messages: " + " ".join(["word"] * 20))]

    spending = [Spending(input_tokens=50 * n, output_tokens=20 * n) for n in range(1, 7)]
    done = await run(rewrite, spending=spending)
    assert [turn.view_tokens for turn in done.turns] == [23] * 6
    assert [turn.cached_tokens for turn in done.turns] == [0] * 6
    totals = done.totals()
    assert (totals.view_tokens, totals.raw_tokens) == (138, 183)
    assert totals.cost.spent_ratio == pytest.approx(138 / 64.2)
    assert totals.cost.as_if_model == pytest.approx(138 + 6 * (50 + 4 * 20))
    # Before the first request there is none to read again: what leaves is read in full.
    assert done.turns[0].in_place_input_tokens == MESSAGE_TOKENS + 50
    assert done.turns[1].in_place_input_tokens == MESSAGE_TOKENS


async def test_a_system_that_raises_sends_nothing() -> None:
    """The turn is invalid, tells nothing and costs what the history does; the replay goes on."""

    def fails(history):
        if len(history) == 6:
            raise RuntimeError("no view today")
        return history

    done = await run(fails, probes=[probe(6, "booking"), probe(8, "booking")])
    assert done.turns[2].problems == ("raised RuntimeError: no view today",)
    assert [(one.is_told, one.view_tokens) for one in done.asked] == [(False, 0), (True, 34)]
    assert (done.turns[2].view_tokens, done.turns[2].cached_tokens) == (27, 18)
    assert done.totals().invalid == 1


async def test_results_are_data_and_the_same_every_time() -> None:
    """All but the seconds of two replays is equal, also as JSON."""

    def without_time(done: Replay) -> str:
        data = done.to_dict()
        del data["totals"]["time"]
        for turn in data["turns"]:
            del turn["seconds"], turn["summary_seconds"]
        return json.dumps(data)

    first, second = [await run(VIEWS, spending=SPENDING) for _ in range(2)]
    assert without_time(first) == without_time(second)


async def test_no_turns_come_to_nothing() -> None:
    """A session without a turn has totals all the same; so have no sessions."""
    done = await run(VIEWS, session=[says("system", "Be brief."), says("assistant", "Hello!")])
    assert done.turns == ()
    assert (done.totals().saved, done.totals().cost.spent_ratio, total([]).turns) == (None, None, 0)


async def test_after_a_system_raised_the_history_is_what_was_sent_last() -> None:
    """What is cached of the next view is what it shares with that history, not with an earlier view."""

    def fails_once(history):
        if len(history) == 6:
            raise RuntimeError("no view today")
        return history[2:4] if len(history) == 4 else history

    done = await run(fails_once, SESSION[:9])
    # The third turn sends six messages of the history, of which the view before, messages 2-3, begins none.
    assert [turn.cached_tokens for turn in done.turns] == [0, 0, 0, 27]
    assert [turn.view_tokens for turn in done.turns] == [9, 9, 27, 34]
    assert [turn.is_sent for turn in done.turns] == [True, True, False, True]


async def test_the_largest_view_is_one_that_was_there() -> None:
    """Where a system raised, the tokens are the history's; where it always did, no view is the largest."""

    def fails_at_last(history):
        if len(history) == 12:
            raise RuntimeError("no view today")
        return history[:4]

    assert (await run(fails_at_last)).totals().peak_tokens == 18
    assert (await run(lambda history: history[99])).totals().peak_tokens is None


async def test_many_problems_are_counted() -> None:
    """What is wrong in a view is wrong in those that follow: the first are told, and how many more."""
    session = [says("user", "go")]
    for number in range(25):
        session += [call("c", "look", "{}"), result("c", str(number))]
    done = await run(lambda history: history, session)

    assert [len(turn.problems) for turn in done.turns] == [0, *range(21), 21, 21, 21]
    assert done.turns[-1].problems[:2] == (
        "messages[3]: call id 'c' used before",
        "messages[5]: call id 'c' used before",
    )
    assert done.turns[-1].problems[-1] == "and 3 more"
    assert done.totals().invalid == 23


async def test_a_probe_between_turns_has_a_view_that_is_no_request() -> None:
    """It is put after so many messages, the last included; turns and costs are as without it."""
    probes = [probe(5, "Shall I cancel"), probe(13, "included."), probe(3, "belongs")]
    done = await run(lambda history: history, probes=probes)
    plain = await run(lambda history: history)
    assert [one.is_told for one in done.asked] == [True, True, False]
    assert [one.view_tokens for one in done.asked] == [25, 58, 12]
    for turn, other in zip(done.turns, plain.turns, strict=True):
        assert (turn.view_tokens, turn.cached_tokens) == (other.view_tokens, other.cached_tokens)
    assert done.totals().cost == plain.totals().cost


async def test_where_nothing_was_asked_nothing_is_told() -> None:
    """No share is made up for a session without probes."""
    totals = (await run(VIEWS)).totals()
    assert (totals.told, totals.told_by_kind) == (None, {})


async def test_whoever_looks_on_is_given_the_view_as_text() -> None:
    """Once for each place where probes are put."""
    views: list[tuple[int, str]] = []
    recording = Recording(SESSION, Words(), probes=[probe(8, "a"), probe(8, "b")])

    async def look(at: int, text: str) -> None:
        views.append((at, text))

    await replay(recording, Scripted(VIEWS), budget=26, on_probes=look)
    ((at, text),) = views
    assert at == 8
    assert text.splitlines()[:2] == ["--- [0] system", "You book flights."]
    assert '    CALL cancel {"id":"QX7741"}' in text


async def test_where_its_program_compacted_less_was_sent() -> None:
    """From its summary on, behind the instructions, a program began anew: that is what `raw` costs."""
    compacted = [*SESSION[:5], SUMMARY, *SESSION[5:]]
    recording = Recording(compacted, Words(), "compacted", (), (5,))
    done = await replay(recording, PlainSystem(), budget=26)
    assert [turn.raw_tokens for turn in done.turns] == [turn.view_tokens for turn in done.turns]
    first = next(turn for turn in done.turns if turn.is_compacted)
    assert [turn.is_compacted for turn in done.turns].count(True) == 1
    assert first.index == 7
    assert first.raw_tokens == 4 + 6 + sum(Words().count_messages([one]) for one in SESSION[5:6])
    assert first.raw_cached_tokens == 4
    assert [turn.raw_tokens for turn in done.turns[:2]] == [9, 18]
