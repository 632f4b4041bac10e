"""Handing over what left the view: at least once, and once where the receiver can be asked."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    FileOffloadStore,
    HandOver,
    InMemoryMemory,
    InMemoryMemoryService,
    InvalidArgumentError,
    Msg,
    SQLAlchemyMemory,
)
from context_compressor.memory.handover import Departure
from context_compressor.memory.history import ListHistory
from tests.services.dying import BUDGET

ROOT = Path(__file__).parents[2]


class Taking:
    """A receiver that notes what it takes, and fails as often as it is told."""

    timeout_seconds = 30.0

    def __init__(self, failures: int = 0) -> None:
        self.taken: list[Departure] = []
        self.failures = failures
        self.gate = asyncio.Event()
        self.gate.set()

    async def receive(self, departure: Departure) -> None:
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise ConnectionError("not now")
        self.taken.append(departure)

    @property
    def ids(self) -> list[str]:
        return [msg.id for departure in self.taken for msg in departure.messages]


def parcel(number: int) -> Msg:
    return Msg("user", f"Parcel {number} went out by lorry. " * 20, "user", id=f"m{number}")


async def talk(memory: CompressedMemory, numbers: range) -> None:
    for number in numbers:
        await memory.add(parcel(number))
        await memory.get_memory()


async def settled(memory: CompressedMemory) -> None:
    async with asyncio.timeout(30):
        while memory.stats().to_hand_over:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def left(memory: CompressedMemory) -> dict[str, list[str]]:
    """Return the ids of the messages that left, by the ref under which they did."""
    ledger = memory._tracker.state.ledger
    return {one.ref: [item.key for item in one.items] for one in ledger.segments() if one.items}


async def test_what_leaves_the_view_is_handed_over_once_in_order() -> None:
    receiver = Taking()
    memory = CompressedMemory(max_total_tokens=BUDGET, hand_over=receiver)
    await talk(memory, range(40))
    await settled(memory)
    assert len(receiver.taken) > 3
    assert {d.ref: [msg.id for msg in d.messages] for d in receiver.taken} == left(memory)
    # The first one stays.
    assert receiver.ids == [f"m{number + 1}" for number in range(len(receiver.ids))]
    assert receiver.taken[0].messages[0] == (await memory.get_history())[1]
    view = {msg.id for msg in await memory.get_memory()}
    assert view.isdisjoint(receiver.ids)
    stats = memory.stats()
    assert (stats.handed_over, stats.hand_over_failures) == (len(receiver.taken), 0)
    assert all([await memory.read_ref(departure.ref) for departure in receiver.taken])


async def test_no_view_waits_for_a_receiver_that_hangs_or_fails(caplog: pytest.LogCaptureFixture) -> None:
    receiver = Taking(failures=2)
    receiver.gate.clear()
    memory = CompressedMemory(max_total_tokens=BUDGET, hand_over=receiver)
    plain = CompressedMemory(max_total_tokens=BUDGET)
    for number in range(20):
        for one in (memory, plain):
            await one.add(parcel(number))
        seen, other = await memory.get_memory(), await plain.get_memory()
        assert [msg.content for msg in seen] == [msg.content for msg in other]
    assert memory.stats().to_hand_over > 1
    with caplog.at_level(logging.WARNING):
        receiver.gate.set()
        for number in range(20, 60):
            await talk(memory, range(number, number + 1))
            await asyncio.sleep(0.001)  # whoever hands over is a task of its own
        await settled(memory)
    assert memory.stats().hand_over_failures == 2
    told = [record.getMessage() for record in caplog.records if "handed over" in record.getMessage()]
    assert len(told) == 2
    assert "not now" in told[0]
    assert receiver.ids == [id for ids in left(memory).values() for id in ids]


async def test_a_receiver_that_takes_too_long_is_given_up_until_later() -> None:
    receiver = Taking()
    receiver.timeout_seconds = 0.01
    receiver.gate.clear()
    async with CompressedMemory(max_total_tokens=BUDGET, hand_over=receiver) as memory:
        await talk(memory, range(20))
        async with asyncio.timeout(30):
            while not memory.stats().hand_over_failures:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    assert receiver.taken == []
    receiver.gate.set()
    await talk(memory, range(20, 40))
    await settled(memory)
    assert receiver.ids == [id for ids in left(memory).values() for id in ids]


async def test_what_left_before_is_handed_over_at_the_next_start(tmp_path: Path) -> None:
    store = FileOffloadStore(tmp_path)
    first = CompressedMemory(store=store, max_total_tokens=BUDGET)
    await talk(first, range(20))
    receiver = Taking()
    second = CompressedMemory(InMemoryMemory(), store=store, max_total_tokens=BUDGET, hand_over=receiver)
    await second.load(await first.save())
    view = [msg.content for msg in await second.get_memory()]
    await settled(second)
    assert view == [msg.content for msg in await first.get_memory()]
    assert receiver.ids == [id for ids in left(first).values() for id in ids] != []
    third = CompressedMemory(store=store, max_total_tokens=BUDGET, hand_over=(again := Taking()))
    await third.load(json.loads(json.dumps(await second.save())))
    await talk(third, range(20, 30))
    await settled(third)
    assert set(again.ids).isdisjoint(receiver.ids)
    assert set(again.ids) | set(receiver.ids) == {id for ids in left(third).values() for id in ids}


@pytest.mark.variants(1)
@pytest.mark.parametrize("dies", ["after", "before"])
async def test_a_crash_loses_nothing(tmp_path: Path, dies: str) -> None:
    database, file = tmp_path / "memory.db", tmp_path / "taken"

    async def run(dies: str) -> int:
        arguments = ["-m", "tests.services.dying", str(database), str(file), dies]
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT)
        return await process.wait()

    assert await run(dies) == 9
    assert await run("none") == 0
    taken = [json.loads(line) for line in file.read_text().splitlines()]
    async with SQLAlchemyMemory(f"sqlite+aiosqlite:///{database}") as base:
        memory = CompressedMemory(base, store=FileOffloadStore(tmp_path / "texts"), max_total_tokens=BUDGET)
        await memory.get_memory()
        assert len(left(memory)) > 1
        assert dict(taken) == left(memory)
        # Which is why the ref is the key: what was taken when the process died is handed over again.
        assert len(taken) == len(left(memory)) + (dies == "after")


class Leased(ListHistory):
    """A history that several share: who holds the lease, and how often it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.holder: str | None = None

    async def claim(self, name: str, holder: str, seconds: float) -> bool:
        if self.holder not in (None, holder):
            return False
        self.holder = holder if seconds else None
        return True


async def test_of_several_that_share_a_session_one_hands_over() -> None:
    history, store = Leased(), InMemoryMemoryService()
    receivers = [Taking(), Taking()]
    async with store:
        texts = store.store("ada")
        memories = [
            CompressedMemory(history, store=texts, max_total_tokens=BUDGET, hand_over=receiver)
            for receiver in receivers
        ]
        receivers[0].gate.clear()
        for number in range(16):
            await memories[number % 2].add(parcel(number))
            for memory in memories:
                await memory.get_memory()
        receivers[0].gate.set()
        await settled(memories[0])
        for number in range(16, 32):
            await memories[number % 2].add(parcel(number))
            for memory in memories:
                await memory.get_memory()
        async with asyncio.timeout(30):
            while any(memory.stats().to_hand_over for memory in memories):
                for memory in memories:
                    await memory.get_memory()
                await asyncio.sleep(0.005)
    ids = [id for receiver in receivers for id in receiver.ids]
    assert len(set(ids)) == len(ids)
    assert set(ids) == {id for ids in left(memories[0]).values() for id in ids}
    assert history.holder is None


async def test_what_is_handed_over_is_redacted() -> None:
    receiver = Taking()
    memory = CompressedMemory(
        max_total_tokens=BUDGET, hand_over=receiver, redact=lambda text: text.replace("lorry", "[...]")
    )
    await talk(memory, range(10))
    await settled(memory)
    assert receiver.taken
    assert not any("lorry" in str(d.messages) for d in receiver.taken)


async def test_a_service_takes_a_departure_once_and_finds_it() -> None:
    async with InMemoryMemoryService() as service:
        whole = HandOver(service, user_id="ada", session_id="handed")
        memory = CompressedMemory(max_total_tokens=BUDGET, hand_over=whole)
        await memory.add(parcel(100))
        await memory.add(Msg("user", "The gate code is 7731-B.", "user"))
        await talk(memory, range(20))
        await settled(memory)
        handed = await service.list_memory("ada", {"page_size": 100})
        ref, ids = next(iter(left(memory).items()))
        await whole.receive(Departure(ref, tuple(m for m in await memory.get_history() if m.id in ids)))
        assert await service.list_memory("ada", {"page_size": 100}) == handed
        query = [Msg("user", "gate code", "user")]
        assert (await service.search_memory("ada", query))[0].content == "The gate code is 7731-B."


async def test_other_services_are_given_chat_dicts_or_what_is_asked_for() -> None:
    class Service:
        given: tuple[Any, ...] = ()

        async def add_memory(self, *arguments: Any) -> None:
            self.given = arguments

    service, departure = Service(), Departure("ctx://" + "0" * 16, (Msg("user", "a", "user"),))
    await HandOver(service, user_id="ada").receive(departure)
    assert service.given == ("ada", [{"role": "user", "content": "a"}], None)
    await HandOver(service, user_id="ada", session_id="s", write=lambda some: [len(some)]).receive(departure)
    assert service.given == ("ada", [1], "s")


async def test_agentscopes_long_term_memories_record_what_left() -> None:
    from agentscope.memory import LongTermMemoryBase
    from agentscope.message import Msg as AgentScopeMsg

    from context_compressor.integrations.agentscope import AgentScopeCompressedMemory

    class Recording(LongTermMemoryBase):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.recorded: list[Any] = []
            self.options: dict[str, Any] = {}

        async def record(self, msgs: list[Any], **kwargs: Any) -> None:
            self.recorded += msgs
            self.options = kwargs

    recording = Recording()
    memory = AgentScopeCompressedMemory(max_total_tokens=BUDGET, hand_over=HandOver(recording, infer=False))
    for number in range(12):
        await memory.add(AgentScopeMsg("ada", f"Parcel {number} went out. " * 20, "user"))
        await memory.get_memory()
    await settled(memory.compressed)
    assert recording.options == {"infer": False}
    assert {type(msg) for msg in recording.recorded} == {AgentScopeMsg}
    history = await memory.compressed.get_history()
    ids = [msg.id for msg in recording.recorded]
    assert ids == [msg.id for msg in history][1 : len(ids) + 1] != []
    assert {msg.metadata["ref"] for msg in recording.recorded} == set(left(memory.compressed))


def test_what_cannot_take_anything_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgumentError, match="neither add_memory, nor record, nor add and get_all"):
        HandOver(object())
    with pytest.raises(InvalidArgumentError, match="is a class"):
        HandOver(Taking)
    with pytest.raises(InvalidArgumentError, match="user_id"):
        HandOver(InMemoryMemoryService())
    with pytest.raises(InvalidArgumentError, match="user_id"):
        HandOver(InMemoryMemoryService(), user_id=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="timeout_seconds"):
        HandOver(InMemoryMemoryService(), user_id="ada", timeout_seconds=0)
    with pytest.raises(InvalidArgumentError, match=r"hand_over.*lacks receive; HandOver\("):
        CompressedMemory(hand_over=InMemoryMemoryService())  # type: ignore[arg-type]

    class Mem0:
        def add(self) -> None: ...
        def get_all(self) -> None: ...

    with pytest.raises(InvalidArgumentError, match="AsyncMemory"):
        HandOver(Mem0(), user_id="ada")
