"""Saved and loaded: by AgentScope's session, in another process, over a database, from its own memory."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentscope.formatter import OpenAIChatFormatter
from agentscope.memory import InMemoryMemory

from context_compressor import CompressedMemory, Msg, to_openai
from context_compressor.errors import InvalidStateError
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory
from tests.integrations.bases import Place, new_session
from tests.integrations.messages import fields_of, turns, user
from tests.integrations.resume import run

ROOT = Path(__file__).parents[2]


async def sent(memory: AgentScopeCompressedMemory) -> str:
    return json.dumps(await OpenAIChatFormatter().format(await memory.get_memory()))


async def test_another_process_sends_the_same_request_byte_for_byte(
    tmp_path: Path, redis_port: Callable[[], int]
) -> None:
    """Over every memory; where there is no Redis, the tests of it alone are skipped, and say so."""
    has_redis = any(map(shutil.which, ("redis-server", "valkey-server")))
    kinds = ["own", "in_memory", "sqlalchemy", *["redis"] * has_redis]
    port, session = redis_port() if has_redis else 0, new_session()
    saved = {kind: await run(kind, tmp_path, port, session, save=True) for kind in kinds}
    command = [sys.executable, "-m", "tests.integrations.resume", str(tmp_path), str(port), session, *kinds]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)  # noqa: ASYNC221
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout.splitlines()[-1])
    for kind in kinds:
        paid, again = saved[kind].pop("paid"), loaded[kind].pop("paid")
        assert loaded[kind] == json.loads(json.dumps(saved[kind]))
        assert (paid > 0, again) == (True, 0)
        assert saved[kind]["noted"] > 0
        assert len(saved[kind]["history"]) == 61


# A database


async def test_a_database_brings_the_history_without_any_state(durable: Place) -> None:
    said = turns(12)
    async with durable.open() as base:
        await AgentScopeCompressedMemory(base=base).add(said, marks="kept")
    async with durable.open() as base:
        memory = AgentScopeCompressedMemory(base=base, max_total_tokens=2_000)
        assert [fields_of(msg) for msg in await memory.get_history()] == [fields_of(msg) for msg in said]
        assert len(await memory.get_memory(mark="kept")) == len(said)
        await memory.get_memory()
        assert memory.stats().view_tokens <= 2_000


async def test_a_database_that_went_on_without_us_is_caught_up_with(durable: Place) -> None:
    async with durable.open() as base:
        memory = AgentScopeCompressedMemory(base=base, max_total_tokens=2_000)
        await memory.add(turns(12))
        before = await sent(memory)
        state = json.loads(json.dumps(memory.state_dict()))
    async with durable.open() as base:
        await AgentScopeCompressedMemory(base=base).add(user("meanwhile"))
    async with durable.open() as base:
        memory = AgentScopeCompressedMemory(base=base, max_total_tokens=2_000)
        memory.load_state_dict(state)
        after = await sent(memory)
    assert after.startswith(before[:-1])
    assert "meanwhile" in after


async def test_texts_that_this_process_held_are_made_anew_from_the_database(durable: Place) -> None:
    async with durable.open() as base:
        memory = AgentScopeCompressedMemory(base=base, max_total_tokens=2_000)
        await memory.add(turns(12))
        await memory.get_memory()
        refs = await memory.reachable_refs()
        texts = [await memory.read_ref(ref) for ref in refs]
        state = memory.state_dict()
    async with durable.open() as base:
        memory = AgentScopeCompressedMemory(base=base, max_total_tokens=2_000)
        memory.load_state_dict(state)
        assert [await memory.read_ref(ref) for ref in refs] == texts


async def test_one_session_of_a_database_has_one_directory(durable: Place, tmp_path: Path) -> None:
    async def directory(session: str, user: str) -> str:
        async with durable.open(session, user) as base:
            memory = AgentScopeCompressedMemory(base=base, store_dir=str(tmp_path))
            return str(memory.compressed.store.directory)  # type: ignore[attr-defined]

    first = await directory("a", "b")
    assert await directory("a", "b") == first
    assert len({first, await directory("a", "c"), await directory("b", "b"), await directory("b", "a")}) == 4


# AgentScope's own states


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_who_copies_a_memory_is_told_how_to_save_it(copied: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"cannot be copied .* by state_dict\(\), .* by load_state_dict\(\)"):
        copied(AgentScopeCompressedMemory())


async def test_the_state_of_agentscopes_memory_is_taken_up() -> None:
    theirs = InMemoryMemory()
    said = turns(12)
    await theirs.add(said, marks="kept")
    await theirs.update_compressed_summary("so far")
    memory = AgentScopeCompressedMemory(max_total_tokens=2_000)
    memory.load_state_dict(json.loads(json.dumps(theirs.state_dict())))
    view = await memory.get_memory()
    assert view[0].content == "so far"
    assert memory.stats().view_tokens <= 2_000
    assert len(await memory.get_memory(mark="kept")) == len(said)


@pytest.mark.parametrize("base", [None, InMemoryMemory], ids=["ours", "theirs"])
async def test_agentscopes_memory_takes_up_our_state(base: Any) -> None:
    memory = AgentScopeCompressedMemory(base=base and base(), max_total_tokens=2_000, store_dir="nowhere")
    said = turns(3)
    await memory.add(said, marks="kept")
    theirs = InMemoryMemory()
    theirs.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert [msg.to_dict() for msg in await theirs.get_memory(mark="kept")] == [msg.to_dict() for msg in said]


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (None, "state_dict: expected a dict, got NoneType"),
        ({}, "content: missing"),
        ({"content": [], "compression": 5}, "compression: expected a dict, got int"),
        (
            {"content": [], "offload_namespace": "../x"},
            r"offload_namespace: .*'\.\./x' cannot name a directory",
        ),
        ({"content": [], "offload_namespace": None}, "offload_namespace: namespace: expected a str"),
    ],
)
async def test_a_bad_state_changes_nothing(state: Any, told: str, tmp_path: Path) -> None:
    memory = AgentScopeCompressedMemory(store_dir=str(tmp_path))
    await memory.add(user("hi"))
    before = memory.state_dict()
    with pytest.raises(InvalidStateError, match=told):
        memory.load_state_dict(state)
    assert memory.state_dict() == before
    assert [msg.content for msg in await memory.get_memory()] == ["hi"]


async def test_a_state_that_names_a_namespace_loads_where_there_is_no_directory(tmp_path: Path) -> None:
    saved = AgentScopeCompressedMemory(store_dir=str(tmp_path))
    await saved.add(user("hi"))
    memory = AgentScopeCompressedMemory()
    memory.load_state_dict(saved.state_dict())
    assert [msg.content for msg in await memory.get_memory()] == ["hi"]


# AgentScope's memories under our own


async def test_agentscopes_memory_is_a_base_as_it_is(theirs: Any) -> None:
    memory = CompressedMemory(base=theirs)
    await memory.add([Msg("user", "hi", "user"), Msg("Friday", "hello", "assistant")])
    assert to_openai(await memory.get_memory()) == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
    ]
    assert [msg.content for msg in await theirs.get_memory()] == ["hi", "hello"]
