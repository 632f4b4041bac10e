"""What the agent named weighs in every later index, also after a restart, and not once it is deleted."""

import json
import threading
from collections.abc import Callable

import pytest

from context_compressor import (
    CompressedMemory,
    InMemoryMemory,
    InMemoryOffloadStore,
    Msg,
    from_openai,
    to_openai,
)
from context_compressor.summarizers.extracts.artifacts import names_in
from context_compressor.summarizers.identifiers.uses import Names, Uses
from tests.memory.scripted import (
    Dict,
    assistant,
    call,
    config,
    filled,
    good_view,
    new_memory,
    result,
    turns,
    user,
    wire_text,
)

USED = "ledger_0417.parquet"


def without_uses(state: Dict) -> Dict:
    """Return a saved state that leaves it to the history to tell what the agent named."""
    copied: Dict = json.loads(json.dumps(state))
    del copied["compression"]["uses"]
    return copied


def listing(id: str) -> list[Dict]:
    """Return a call that prints a hundred names, one of which the agent uses."""
    names = [f"ledger_{n:04}.parquet" for n in range(400, 500)]
    return [call(id, name="ls", arguments='{"path": "data"}'), result(id, "\n".join(names))]


def session() -> list[Dict]:
    first = [user("Find the row that was lost."), *listing("l0")]
    opened = [call("r0", arguments=json.dumps({"path": USED})), result("r0", f"{USED}: 31 rows")]
    said = [*first, *opened, assistant(f"{USED} has 31 rows.")]
    for n in range(4):
        said += [*turns(8, 4, f"part{n}"), *listing(f"l{n + 1}")]
    return [*said, *turns(3, 4, "end")]


async def test_a_name_used_once_stands_out_among_those_printed_ever_since() -> None:
    memory = new_memory(config(1_500, keep_recent_count=2))
    for message in session():
        await memory.add(from_openai([message]))
        await good_view(memory)
    segments = [m for m in await memory.get_memory() if "[Summary by the memory" in str(m.content)]
    assert USED in wire_text(segments)


@pytest.mark.parametrize("load", [json.loads, lambda saved: without_uses(json.loads(saved))])
async def test_a_memory_that_is_taken_up_weighs_names_as_before(load: Callable[[str], Dict]) -> None:
    """Each view of a memory that is loaded anew at every step is that of one that never ended."""
    base, store = InMemoryMemory(), InMemoryOffloadStore()
    whole = new_memory(config(1_500, keep_recent_count=2))
    state = None
    for msg in from_openai(session()):
        taken_up = CompressedMemory(base, config=config(1_500, keep_recent_count=2), store=store)
        if state is not None:
            taken_up.load_state_dict(state)
        await whole.add([msg])
        await taken_up.add([msg])
        assert to_openai(await taken_up.get_memory()) == to_openai(await whole.get_memory())
        state = load(json.dumps(taken_up.state_dict()))
    assert whole.stats().events > 4
    uses, others = whole._upkeep.state.uses, taken_up._upkeep.state.uses
    assert vars(await taken_up._upkeep.uses()) == vars(uses) != vars(others.__class__())


async def test_a_memory_that_never_ended_reads_no_history_for_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a tight budget leaves some segments nothing but their refs."""
    memory = new_memory(config(500, keep_recent_count=2))
    monkeypatch.setattr("context_compressor.memory.upkeep.Recovery.messages_of", None)
    for message in session():
        await memory.add(from_openai([message]))
        await good_view(memory)
    segments = list(memory._upkeep.state.ledger.segments())
    assert {segment.summarized for segment in segments} == {True, False}
    assert memory._upkeep.state.uses.segments == {segment.id for segment in segments if segment.items}


async def test_what_is_committed_before_older_messages_are_counted_is_counted_after_them() -> None:
    """Whether a name was given depends on the order; a memory that is taken up takes the ledger's."""
    memory = new_memory(config(1_500, keep_recent_count=2))
    await filled(memory, session())
    await good_view(memory)
    whole = (await memory._upkeep.uses()).to_dict()
    state = memory._upkeep.state
    state.uses = Uses()  # as after a withdrawal
    await filled(memory, turns(12, 9, "more"))
    await good_view(memory)
    assert whole["segments"]
    later = (await memory._upkeep.uses()).to_dict()
    again = new_memory(config(1_500, keep_recent_count=2), base=memory.base, store=memory.store)
    again.load_state_dict(without_uses(memory.state_dict()))
    await again.get_memory()
    assert (await again._upkeep.uses()).to_dict() == later


REPAIRED = {
    "refusal": [{"role": "assistant", "content": None, "refusal": "I will not open shadow_0001.db."}],
    "speech": [
        {
            "role": "assistant",
            "content": None,
            "audio": {"id": "a", "data": "AA", "expires_at": 1, "transcript": "I opened shadow_0001.db."},
        }
    ],
}


@pytest.mark.parametrize("said", REPAIRED.values(), ids=REPAIRED)
async def test_what_was_repaired_is_taken_up_as_the_view_showed_it(said: list[Dict]) -> None:
    memory = new_memory(config(1_500, keep_recent_count=2))
    await filled(memory, [*turns(2), *said, *turns(12, 4, "more")])
    await memory.get_memory()
    uses = memory._upkeep.state.uses
    assert "shadow_0001.db" in repr(vars(uses))
    again = new_memory(config(1_500, keep_recent_count=2), base=memory.base, store=memory.store)
    again.load_state_dict(without_uses(memory.state_dict()))
    await again.get_memory()
    assert vars(await again._upkeep.uses()) == vars(uses)


async def test_what_is_deleted_while_the_history_is_read_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = new_memory(config(1_500, keep_recent_count=2))
    added = await filled(memory, [*turns(2), assistant("I opened shadow_0001.db."), *turns(12, 4, "more")])
    await memory.get_memory()
    again = new_memory(config(1_500, keep_recent_count=2), base=memory.base, store=memory.store)
    again.load_state_dict(without_uses(memory.state_dict()))
    await again.get_memory()
    read = again._upkeep.history.peek

    async def slowly() -> list[tuple[str, Msg]]:
        monkeypatch.setattr(again._upkeep.history, "peek", read)
        history = await read()
        await again.delete([msg.id for msg in added if "shadow_0001.db" in str(msg.content)])
        return history

    monkeypatch.setattr(again._upkeep.history, "peek", slowly)
    await again._upkeep.uses()
    assert "shadow_0001.db" not in repr(vars(again._upkeep.state.uses))


async def test_a_long_history_is_not_read_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """No segment is long, all of them are."""
    memory = new_memory(config(1_500, keep_recent_count=2))
    for start in range(8):
        await filled(memory, turns(9, 40, f"part{start}"))
        await memory.get_memory()
    again = new_memory(config(1_500, keep_recent_count=2), base=memory.base, store=memory.store)
    again.load_state_dict(without_uses(memory.state_dict()))
    await again.get_memory()
    threads: set[str] = set()

    def noting(messages: list[Msg]) -> Names:
        threads.add(threading.current_thread().name)
        return names_in(messages)

    monkeypatch.setattr("context_compressor.summarizers.extracts.artifacts.names_in", noting)
    uses = await again._upkeep.uses()
    assert len(uses.segments) > 1
    assert threading.current_thread().name not in threads


async def test_what_breaks_the_rules_of_an_index_breaks_no_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = new_memory(config(1_500))
    await filled(memory, session())
    await memory.get_memory()
    again = new_memory(config(1_500), base=memory.base, store=memory.store)
    again.load_state_dict(without_uses(memory.state_dict()))
    monkeypatch.setattr("context_compressor.summarizers.extracts.artifacts.name_uses", lambda _: 1 / 0)
    await filled(again, turns(12, 9, "more"))
    await good_view(again)
    assert again._upkeep.state.uses.segments
