import asyncio

from context_compressor.lab.measure import SYSTEMS, Recording, Watched, excerpt_of, watch
from tests.lab.measure.reports import session

BUDGET = 3_000


def watched(system: str, messages) -> Watched:
    recording = Recording(messages)
    return asyncio.run(watch(recording, SYSTEMS[system](BUDGET, recording.counter), budget=BUDGET))


def test_events_come_with_their_turn_and_stand_ins_with_their_texts():
    messages = session(40)
    seen = watched("ours", messages)

    assert {one.event.kind for one in seen.events} >= {"compact", "compress"}
    assert {one.kind for one in seen.stand_ins} == {"stub", "notes"}
    turns = {one.turn for one in seen.events}
    for one in seen.stand_ins:
        assert one.turn in turns
        assert one.refs[0] in one.shown.head
        assert one.full_tokens > one.shown_tokens
        assert max(one.covers) < seen.replay.turns[one.turn - 1].index
        if one.kind == "stub":
            assert one.full.head == messages[one.covers[0]]["content"]


def test_watching_changes_nothing():
    """The replay is that of a system nobody looks at."""
    messages = session(40)
    seen = watched("ours", messages).replay
    again = watched("ours", messages).replay

    assert [turn.view_tokens for turn in seen.turns] == [turn.view_tokens for turn in again.turns]
    assert all(not turn.is_over and not turn.problems for turn in seen.turns)


def test_excerpts_keep_both_ends():
    assert excerpt_of("abcdef", 3, 3).left_out == 0
    cut = excerpt_of("abcdefg", 3, 3)
    assert (cut.head, cut.tail, cut.left_out) == ("abc", "efg", 1)
