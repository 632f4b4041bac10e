"""The systems that are measured."""

import json
from pathlib import Path

import pytest

from context_compressor import FileOffloadStore, Summary, SummaryRequest
from context_compressor.lab.measure import SYSTEMS, CachedCounter, Masking, Ours, Recording, Sliding, replay
from context_compressor.lab.measure.results import MESSAGE_TOKENS
from context_compressor.lab.measure.systems import PLACEHOLDER
from tests.lab.measure.support import Words, call, probe, result, says


async def sent(system, session, step: int = 1) -> list:
    view = []
    for end in range(step, len(session) + 1, step):
        view = await system.send(session[:end], session[end - step : end])
    return view


def exchange(number: int, words: int = 3) -> list:
    return [call(f"c{number}", "look", "{}"), result(f"c{number}", " ".join(["word"] * words))]


SESSION = [says("system", "be brief"), says("user", "go on then"), *exchange(1), *exchange(2), *exchange(3)]
"""3 tokens, 4 tokens, and 3 + 4 for each exchange."""


async def test_sliding_keeps_instructions_and_the_newest_whole_exchanges() -> None:
    """An exchange that does not fit is left out whole, results and all."""
    counter = CachedCounter(Words())
    assert await sent(Sliding(17, counter), SESSION) == [SESSION[0], *SESSION[4:]]
    assert await sent(Sliding(16, counter), SESSION) == [SESSION[0], *SESSION[6:]]
    assert await sent(Sliding(28, counter), SESSION) == SESSION


async def test_sliding_sends_the_newest_exchange_whatever_it_costs() -> None:
    """A request without it would ask nothing."""
    assert await sent(Sliding(5, CachedCounter(Words())), SESSION) == [SESSION[0], *SESSION[6:]]


async def test_masking_leaves_the_newest_results() -> None:
    """Older ones become placeholders, calls and all else stay; the recording is not written into."""
    view = await sent(Masking(2), SESSION, step=2)
    assert [message["content"] for message in view if message["role"] == "tool"] == [
        PLACEHOLDER,
        "word word word",
        "word word word",
    ]
    assert view[3] == {**SESSION[3], "content": PLACEHOLDER}
    assert SESSION[3]["content"] == "word word word"
    assert await sent(Masking(), SESSION) == SESSION


def long_session(turns: int = 60) -> list:
    session = [says("system", "Handle parcels."), says("user", "Deliver every parcel.")]
    for n in range(turns):
        arguments = json.dumps({"parcel": f"PX-{n:05}"})
        row = ", ".join(f"the parcel PX-{n + 1:05} weighs {n + k} grams" for k in range(30))
        session += [call(f"c{n}", "track_parcel", arguments), result(f"c{n}", row)]
    return [*session, says("assistant", "The first was PX-00001, the last PX-00060.")]


async def run(name: str, session: list, budget: int = 3_000):
    recording = Recording(session, probes=[probe(len(session) - 1, "PX-00001", "weighs 0 grams")])
    return await replay(recording, SYSTEMS[name](budget, recording.counter), budget=budget)


async def test_ours_stays_within_budget_and_valid() -> None:
    """Full texts are in its store; notes by rules cost nothing, and views are mostly full."""
    done = await run("ours", long_session())
    totals = done.totals()
    assert (totals.over, totals.invalid) == (0, 0)
    assert 0 < totals.peak_tokens <= 3_000
    assert 0.3 < totals.fill <= 1
    assert totals.stored_texts > 0
    assert totals.stored_bytes > 0
    assert totals.cost.spent == totals.cost.view < totals.cost.as_if_model
    edited = [turn for turn in done.turns if turn.in_place_output_tokens]
    assert edited[0].in_place_input_tokens == MESSAGE_TOKENS < edited[1].in_place_input_tokens
    assert totals.time.summaries_ms == 0


async def test_every_other_system_pays_on_the_same_session() -> None:
    """Raw exceeds the budget and tells all; sliding forgets the first parcel, masking too."""
    session = long_session()
    raw = (await run("raw", session)).totals()
    sliding = (await run("sliding", session)).totals()
    masking = (await run("masking", session)).totals()
    ours = (await run("ours", session)).totals()
    assert raw.over >= masking.over > sliding.over == 0
    assert [one.told.told for one in (raw, sliding, masking)] == [1, 0, 0]
    assert ours.cost.spent < min(raw.cost.raw, masking.cost.view, sliding.cost.view)


@pytest.mark.parametrize("cached", [0, 900])
async def test_ours_takes_a_store_and_a_summariser(tmp_path: Path, cached: int) -> None:
    """A model's notes are paid for, its time is kept apart, and texts go to the store that was given.

    What it read from its provider's cache costs a tenth.
    """

    class Model:
        remote = True

        async def summarize(self, request: SummaryRequest) -> Summary:
            text = "## Goal\n- Deliver every parcel.\n\n## Next steps\n- track_parcel for those that are left"
            return Summary(text=text, input_tokens=1_000, output_tokens=20, cached_tokens=cached)

    recording = Recording(long_session())
    store = FileOffloadStore(tmp_path)
    ours = Ours(3_000, recording.counter, store=store, summarizer=Model())
    done = await replay(recording, ours, budget=3_000)
    paid = sum(turn.paid_input_tokens for turn in done.turns)
    assert paid > 0
    assert paid == sum(turn.summary_input_tokens for turn in done.turns)
    cost, calls = done.totals().cost, paid // 1_000
    assert cost.as_if_model == pytest.approx(cost.view + calls * (1_000 + 4 * 20))
    assert cost.spent == pytest.approx(cost.as_if_model - 0.9 * cached * calls)
    assert done.totals().time.summaries_ms > 0
    # In place, what it wrote is known.
    assert all(turn.in_place_output_tokens == turn.paid_output_tokens for turn in done.turns)
    if cached:
        assert sum(turn.in_place_cached_tokens for turn in done.turns) == cached * calls
        assert sum(turn.in_place_input_tokens for turn in done.turns) == (1_000 - cached) * calls
    assert done.stored_texts == len(await store.refs()) > 0


async def test_errors_of_ours_name_messages_by_their_index() -> None:
    """Ids that are made up while replaying would differ from run to run, and name nothing in the input."""
    session = [says("system", "word " * 200), says("user", "hello"), says("assistant", "hi there")]
    session += [says("user", "go on"), says("assistant", "done")]
    first, second = [await run("ours", session, budget=100) for _ in range(2)]
    assert [turn.problems for turn in first.turns] == [turn.problems for turn in second.turns]
    assert "messages[0]" in first.turns[0].problems[0]
