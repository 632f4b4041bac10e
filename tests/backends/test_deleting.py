"""Deletion for good, in every backend, and collections of texts that nothing names."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from context_compressor import (
    CompressedMemory,
    FileOffloadStore,
    FsspecOffloadStore,
    InvalidArgumentError,
    Msg,
    OffloadFullError,
    RedisOffloadStore,
    SessionNotFoundError,
    SQLAlchemyMemory,
    SQLAlchemyOffloadStore,
    from_openai,
)
from context_compressor.backends.admin.archive import export_session, import_session
from context_compressor.backends.admin.collection import collect_texts
from context_compressor.backends.admin.deletion import delete_messages, delete_session
from context_compressor.backends.admin.opening import open_store
from context_compressor.backends.admin.sessions import SessionDirectory
from context_compressor.backends.records import digest
from tests.backends.kept import BUDGET, KINDS, all_kept, files_in, sessions_in, talk, url_of, view

pytestmark = pytest.mark.variants(1)

CANARY = f"xylophone-{os.getpid()}"
"""Other processes of the run look through the same servers for theirs."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def prefix() -> str:
    return uuid4().hex


@pytest.fixture
async def directory(
    kind: str, server: Callable[[str], int], tmp_path: Path, prefix: str
) -> AsyncIterator[SessionDirectory]:
    async with sessions_in(kind, server, tmp_path, prefix) as directory:
        yield directory


@pytest.fixture
def url(kind: str, server: Callable[[str], int], tmp_path: Path) -> str:
    return url_of(kind, server, tmp_path)


@pytest.fixture
async def own(url: str, prefix: str) -> AsyncIterator[Any]:
    """Give a store in the same database or Redis."""
    store = open_store(url, prefix, key_prefix=prefix if url.startswith("redis") else "")
    yield store
    await closed(store)


def changed(before: dict[str, bytes], after: dict[str, bytes], session: str) -> set[str]:
    """Return where something of a session was that is there no more, or says something else."""
    return {where for where, data in before.items() if session in where and after.get(where) != data}


def canaries(kept: dict[str, bytes]) -> list[str]:
    return [where for where, data in kept.items() if CANARY.encode() in data]


@pytest.mark.variants(2)
async def test_nothing_is_left_of_a_session_and_all_of_it_is_in_the_certificate(
    kind: str, url: str, directory: SessionDirectory, tmp_path: Path, own: Any
) -> None:
    user, store, files = uuid4().hex, own, FileOffloadStore(tmp_path / "texts", "chat")
    for name, texts in (("in files", files), ("of its own", store)):
        async with CompressedMemory(directory.history(user, name), store=texts, **BUDGET) as memory:
            await memory.add(Msg("user", f"{CANARY}, the same in all of them. " * 60, "user", id="common"))
            await talk(memory, f" {CANARY} {name}", turns=12)
            await memory.update_compressed_summary(f"about {CANARY}")
            assert await memory.search_history(CANARY)
    other = CompressedMemory(
        directory.history(user, "other"), store=FileOffloadStore(tmp_path / "texts", "b"), **BUDGET
    )
    expected = await talk(other, turns=8)
    before = await all_kept(kind, url, tmp_path)
    assert len(canaries(before)) > 50
    for name, texts in (("in files", files), ("of its own", store)):
        there = await all_kept(kind, url, tmp_path)
        held = {one.ref for one in await texts.stored()} if texts is store else set()
        done = await delete_session(directory.history(user, name), texts, rewrite=True)
        assert done.problems == []
        told = json.loads(done.certificate())
        assert CANARY not in done.certificate()
        assert told["complete"] is True
        gone = changed(there, await all_kept(kind, url, tmp_path), digest(user, name))
        assert len(gone) == sum(digest(user, name) in one.where for one in done.objects) > 10
        assert {one.where for one in done.objects} >= {store.where(ref) for ref in held}
        assert len({one["where"] for one in told["objects"]}) == len({one.where for one in done.objects})
        assert not any(ref[6:] in done.certificate() for ref in held)  # a hash tells of a short text
        assert told["removed"] + told["rewritten"] == len(told["objects"])
    kept = await all_kept(kind, url, tmp_path)
    assert canaries(kept) == []
    assert await view(directory, user, "other", FileOffloadStore(tmp_path / "texts", "b")) == expected
    assert not (tmp_path / "texts" / "chat").exists()
    with pytest.raises(SessionNotFoundError, match="there is no session 'in files'"):
        await delete_session(directory.history(user, "in files"), files)


@pytest.mark.variants(2)
async def test_nothing_is_left_of_a_message(
    kind: str, url: str, directory: SessionDirectory, tmp_path: Path, own: Any
) -> None:
    user, store = uuid4().hex, own
    async with CompressedMemory(directory.history(user, "chat"), store=store, **BUDGET) as memory:
        await talk(memory, turns=4)
        await memory.add(Msg("user", f"{CANARY} is the word. " * 60, "user", id="the word"))
        await talk(memory, turns=12)
    before = await all_kept(kind, url, tmp_path)
    assert len(canaries(before)) >= 2
    history = directory.history(user, "chat")
    with pytest.raises(InvalidArgumentError, match="no message 'another'"):
        await delete_messages(history, store, ["the word", "another"])
    done = await delete_messages(history, store, ["the word"], rewrite=True)
    assert done.problems == []
    assert {one.action for one in done.objects} == {"removed", "rewritten"}
    after, mine = await all_kept(kind, url, tmp_path), digest(user, "chat")
    assert canaries(after) == []
    gone, told = changed(before, after, mine), {one.where for one in done.objects if mine in one.where}
    gone = {where for where in gone if "leases" not in where}  # which end by themselves
    if kind == "redis":
        assert gone <= told
    else:
        assert len(gone) == len(told)
    assert (await history.head()).size == 64
    assert await view(directory, user, "chat", store)


@pytest.mark.variants(2)
async def test_a_text_that_is_forgotten_stands_nowhere(
    kind: str, url: str, directory: SessionDirectory, tmp_path: Path, own: Any
) -> None:
    """In whatever it stood, notes that a model wrote of nothing included; it is told first."""
    user, files = uuid4().hex, FileOffloadStore(tmp_path / "texts", "chat")
    calls = [
        {"id": name, "type": "function", "function": {"name": "look", "arguments": json.dumps({"at": said})}}
        for name, said in (("one", CANARY), ("two", "elsewhere"))
    ]
    private: list[dict[str, Any]] = [
        {"role": "user", "content": f"Keep {CANARY} between us."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "one", "content": "nothing"},
        {"role": "tool", "tool_call_id": "two", "content": "nothing"},
        {"role": "assistant", "content": "Done."},
    ]
    for name, store in (("in files", files), ("of its own", own)):
        base, said = directory.history(user, name), from_openai(private)
        async with CompressedMemory(base, store=store, **BUDGET) as memory:
            await memory.add(said)
            await memory.add(Msg("system", "x", "system", {"who": {CANARY: 1}}, id="noted"), marks=CANARY)
            await talk(memory, turns=6)
            await memory.compress_now(keep=f"mind {CANARY}")
            await memory.update_compressed_summary(f"about {CANARY}")
            assert await memory.search_history(CANARY)
            view = await memory.get_memory()
            told = await memory.forget(text=CANARY, dry_run=True)
            assert await memory.get_memory() == view
            assert told.is_dry_run
            assert told.message_ids == (*(msg.id for msg in said[:4]), "noted")
            assert told.parts
            assert told.summary
        assert canaries(await all_kept(kind, url, tmp_path))
        async with CompressedMemory(base, store=store, **BUDGET) as memory:
            if name == "in files":
                await memory.search_history("order")
                done = await memory.forget(text=CANARY)
                assert done.message_ids == told.message_ids
                assert set(done.refs) == set(told.refs)
                assert not done.refs_left
                assert done.index_rows == 5
            else:
                deletion = await delete_messages(base, store, text=CANARY)
                assert list(deletion.messages or ()) == list(told.message_ids)
                assert deletion.is_complete
            assert CANARY not in json.dumps(await memory.save())
            assert CANARY not in str([msg.to_dict() for msg in await memory.get_memory()])
            assert await memory.size() == 25
        assert canaries(await all_kept(kind, url, tmp_path)) == []
    with pytest.raises(InvalidArgumentError, match="nothing in session"):
        await delete_messages(directory.history(user, "in files"), files, text=CANARY)


async def test_a_message_is_gone_from_the_store_whatever_a_copy_of_the_session_names(
    tmp_path: Path, server: Any
) -> None:
    async with sessions_in("sqlite", server, tmp_path) as directory:
        store, copied = (FileOffloadStore(tmp_path / "texts", name) for name in ("chat", "copy"))
        history = directory.history("u", "chat")
        async with CompressedMemory(history, store=store, **BUDGET) as memory:
            await talk(memory, turns=2)
            await memory.add(Msg("user", f"{CANARY} is the word. " * 60, "user", id="the word"))
            await talk(memory, turns=12)
        await export_session(history, store, tmp_path / "chat.jsonl")
        await import_session(tmp_path / "chat.jsonl", directory, copied, session_id="copy")
        done = await delete_messages(history, store, ["the word"])
        assert done.is_complete
        assert canaries(files_in(store.directory)) == []
        assert canaries(files_in(copied.directory))


@pytest.mark.parametrize("is_own", [True, False], ids=["url", "engine"])
async def test_files_of_sqlite_hold_nothing_of_what_was_deleted(tmp_path: Path, is_own: bool) -> None:
    """Neither between the rows nor in the log, whoever made the engine."""
    url = f"sqlite+aiosqlite:///{tmp_path}/memory.db"
    place = url if is_own else create_async_engine(url)
    base, store = SQLAlchemyMemory(place), SQLAlchemyOffloadStore(place, "texts")

    def said() -> list[str]:
        return [name for name, data in files_in(tmp_path).items() if CANARY.encode() in data]

    def turn(number: int, canary: str = "") -> list[dict[str, Any]]:
        question = {"role": "user", "content": f"Step {number}: {canary * 300}"}
        return [question, {"role": "assistant", "content": f"{canary} is done. " * 40}]

    async with CompressedMemory(base, store=store, branch_seconds=0, **BUDGET) as memory:
        listed = [one for n in range(8) for one in turn(n)]
        gone = [*listed, *turn(8, CANARY), *(one for n in range(9, 20) for one in turn(n))]
        await memory.view(gone)
        assert said()
        await memory.view([*listed, *(one for n in range(9, 20) for one in turn(n)), *turn(20)])
        assert said() == []
        await memory.add(from_openai([*turn(21, CANARY), *(one for n in range(22, 30) for one in turn(n))]))
        await memory.get_memory()
        assert said()
        found = [msg.id for msg in await memory.get_history() if CANARY in str(msg.content)]
        assert await memory.delete(found) == 2
        assert said() == []
        await memory.add(from_openai([*turn(30, CANARY), *(one for n in range(31, 40) for one in turn(n))]))
        await memory.get_memory()
    assert said()
    await delete_session(base, store, own_namespace=True)
    assert said() == []
    await closed(base, store)
    if not isinstance(place, str):
        await place.dispose()


@pytest.mark.parametrize("where", ["{folder}/texts", "file://{folder}/texts"])
async def test_what_a_crash_left_half_written_goes(where: str, tmp_path: Path, server: Any) -> None:
    halves = tmp_path / "texts" / "chat"
    dead = (
        "import os, sys, asyncio, pathlib, shutil\n"
        "from context_compressor.backends.admin.opening import open_store\n"
        "kill = lambda *arguments, **named: os.kill(os.getpid(), 9)\n"
        "pathlib.Path.replace = shutil.move = os.rename = os.replace = os.link = kill\n"
        "asyncio.run(open_store(sys.argv[1], 'chat').write(sys.argv[2]))\n"
    )
    at = where.format(folder=tmp_path)
    async with sessions_in("sqlite", server, tmp_path) as directory:
        for name in ("chat", "other"):
            store = open_store(at, "chat")
            async with CompressedMemory(directory.history("u", name), store=store, **BUDGET) as memory:
                await talk(memory, turns=4)
        for number in range(2):
            await asyncio.to_thread(
                subprocess.run, [sys.executable, "-c", dead, at, f"{CANARY} {number}"], check=False
            )
        young, old = [file for file in halves.iterdir() if file.name.endswith(".tmp")]
        os.utime(old, (1, 1))
        done = await collect_texts(directory, store)
        assert [(one.kind, one.where.removeprefix("file://")) for one in done.removed] == [("file", str(old))]
        await delete_session(directory.history("u", "chat"), store)
        assert young.exists()  # the other session may be writing it
        done = await delete_session(directory.history("u", "other"), store)
        assert str(young) in {one.where.removeprefix("file://") for one in done.objects}
        await closed(store)
    assert canaries(files_in(tmp_path)) == []


async def test_what_cannot_be_written_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FsspecOffloadStore(f"file://{tmp_path}/texts", "chat")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OffloadFullError, match="No space left on device; free disk space"):
        await store.write("text")
    assert [file for file in (tmp_path / "texts" / "chat").rglob("*") if file.is_file()] == []


async def test_a_text_that_another_session_names_stays(tmp_path: Path, server: Any) -> None:
    async with sessions_in("sqlite", server, tmp_path) as directory:
        store = FileOffloadStore(tmp_path / "texts", "shared")
        for name in ("one", "two"):
            async with CompressedMemory(directory.history("u", name), store=store, **BUDGET) as memory:
                said = Msg("user", "the same long text in both. " * 80, "user", id="a")
                await memory.add([said, Msg("user", f"of {name} alone " * 200, "user")])
                await talk(memory, turns=6)
        (named,) = await directory.named_refs(("u", "one"))
        young = await store.write("of an event of two's")
        done = await delete_session(directory.history("u", "one"), store)
        assert {*named, young} == set(await store.refs())
        assert len(done.kept) == len(named) + 1
        done = await delete_session(directory.history("u", "two"), store)
        assert done.kept == []
        assert await store.refs() == []


async def test_texts_under_the_ids_of_a_session_are_its_own(tmp_path: Path, server: Any) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/memory.db"
    async with sessions_in("sqlite", server, tmp_path) as directory:
        stores = {name: SQLAlchemyOffloadStore(url, ("u", name)) for name in ("one", "two")}
        said = [Msg("user", f"the same long text in both {n}. " * 80, "user", id=f"{n}") for n in range(20)]
        for name, store in stores.items():
            async with CompressedMemory(directory.history("u", name), store=store, **BUDGET) as memory:
                await memory.add([msg.copy() for msg in said])
                await memory.get_memory()
        assert await stores["one"].refs() == await stores["two"].refs() != []
        done = await delete_session(directory.history("u", "one"), stores["one"])
        assert (done.kept, await stores["one"].refs()) == ([], [])
        assert await stores["two"].refs()
        for store in stores.values():
            await closed(store)


async def test_a_store_that_has_none_of_the_texts_is_refused(tmp_path: Path, server: Any) -> None:
    async with sessions_in("sqlite", server, tmp_path, "") as directory:
        store = FileOffloadStore(tmp_path / "texts", "chat")
        async with CompressedMemory(directory.history("ada", "x"), store=store, **BUDGET) as memory:
            await talk(memory, turns=12)
        history, elsewhere = directory.history("ada", "x"), FileOffloadStore(tmp_path / "texts", "other")
        some = [(await history.read(limit=1))[0].key]
        for call in (delete_session(history, elsewhere), delete_messages(history, elsewhere, some)):
            with pytest.raises(
                InvalidArgumentError, match=r"has none of the \d+ texts that the session names"
            ):
                await call
        assert (await history.head()).size > 12
        done = await delete_session(history, None)
        assert "no store was given" in str(done.not_reached)


async def test_a_file_that_others_read_is_told_of(tmp_path: Path, server: Any) -> None:
    async with sessions_in("sqlite", server, tmp_path) as directory:
        history = directory.history("u", "chat")
        await SQLAlchemyMemory(directory.engine, user_id="u", session_id="chat").add(  # type: ignore[attr-defined]
            Msg("user", CANARY, "user")
        )
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/memory.db")
        async with engine.connect() as reader:
            await reader.exec_driver_sql("BEGIN")
            await reader.exec_driver_sql("SELECT * FROM context_compressor_messages")
            done = await delete_session(history, rewrite=True, wait_seconds=0.1)
        await engine.dispose()
        assert not done.is_complete
        assert "memory.db" in done.problems[0]
        assert json.loads(done.certificate())["complete"] is False
        assert await directory.infos() == []


STORES = ["files", "local", "memory", "sqlite", "redis"]


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> Callable[..., Any]:
    """Give a function that opens a namespace of one store."""
    if request.param == "files":
        return lambda name, **more: FileOffloadStore(tmp_path / "texts", name, **more)
    if request.param == "sqlite":
        url = f"sqlite+aiosqlite:///{tmp_path}/texts.db"
        return lambda name, **more: SQLAlchemyOffloadStore(url, name, **more)
    if request.param == "redis":
        url = f"redis://127.0.0.1:{request.getfixturevalue('server')('redis')}"
        return lambda name, **more: RedisOffloadStore(url, name, key_prefix=prefix, **more)
    where = f"file://{tmp_path}/texts" if request.param == "local" else f"memory://{prefix}"
    return lambda name, **more: FsspecOffloadStore(where, name, **more)


async def closed(*stores: Any) -> None:
    for store in stores:
        done = store.close()
        if done is not None:
            await done


async def test_what_no_ledger_names_goes_unless_it_is_young(
    opened: Callable[..., Any], tmp_path: Path, server: Any
) -> None:
    async with sessions_in("sqlite", server, tmp_path) as directory:
        chat, other = opened("chat"), opened("other")
        async with CompressedMemory(directory.history("u", "chat"), store=chat, **BUDGET) as memory:
            await talk(memory, turns=6)
        named = set(await chat.refs())
        orphans = [await chat.write("left by a crash"), await other.write("of a session that is over")]
        assert {one.label for one in await other.namespaces()} >= {"other"}
        assert len(await other.namespaces()) == 2

        done = await collect_texts(directory, other)
        assert (done.removed, done.namespaces, done.named, done.young) == ((), 2, len(named), 2)
        told = await collect_texts(directory, other, grace_seconds=0, dry_run=True)
        assert len(told.removed) == 2
        assert set(await chat.refs()) == named | {orphans[0]}

        done = await collect_texts(directory, chat, grace_seconds=0, all_namespaces=False)
        assert (len(done.removed), done.problems) == (1, ())
        assert set(await chat.refs()) == named
        assert await other.refs() == [orphans[1]]
        done = await collect_texts([directory], chat, grace_seconds=0)
        assert await other.refs() == []
        assert done.bytes_before - done.bytes_after == done.removed[0].bytes > 0
        assert set(await chat.refs()) == named
        await closed(chat, other)


async def test_with_another_database_nothing_goes(
    opened: Callable[..., Any], tmp_path: Path, server: Any
) -> None:
    store = opened("chat")
    ref = await store.write("a text")
    async with sessions_in("sqlite", server, tmp_path) as directory:
        with pytest.raises(InvalidArgumentError, match="no ledger there names any text"):
            await collect_texts(directory, store, grace_seconds=0)
    assert await store.refs() == [ref]
    await closed(store)


async def test_a_text_that_is_written_again_is_young_again(opened: Callable[..., Any]) -> None:
    store = opened("chat")
    ref = await store.write("a text")
    (before,) = await store.stored()
    assert (before.ref, before.bytes >= len("a text")) == (ref, True)
    await store.write("a text")
    (after,) = await store.stored()
    assert after.bytes == before.bytes
    assert after.age_seconds < 600
    await closed(store)


async def test_states_beside_the_texts_name_them_too(tmp_path: Path, server: Any) -> None:
    store = FileOffloadStore(tmp_path / "texts", "chat")
    ref = await store.write("a text of a conversation that has a state")
    (store.directory / f"session-{'0' * 32}.json").write_text(json.dumps({"ledger": [ref]}))
    async with sessions_in("sqlite", server, tmp_path) as directory:
        done = await collect_texts(directory, store, grace_seconds=0)
    assert (done.named, done.removed) == (1, ())


async def test_a_quota_refuses_and_removes_nothing(opened: Callable[..., Any], tmp_path: Path) -> None:
    first = opened("chat")
    if isinstance(first, FileOffloadStore):
        return  # whose quota is for all namespaces, and has tests of its own
    store = opened("chat", max_bytes=1_000)
    refs = [await first.write("x" * 400), await store.write("y" * 400)]
    with pytest.raises(OffloadFullError, match="may hold 1,000"):
        await store.write("z" * 400)
    assert await store.write("y" * 400) == refs[1]  # is there
    assert await store.refs() == sorted(refs)
    await store.delete(refs[0])
    await store.write("z" * 400)
    other, third = opened("other", max_bytes=1_000), opened("chat", max_bytes=1_500)
    await other.write("w" * 900)
    # A memory goes on, and stores what was refused when there is room.
    base = SQLAlchemyMemory(f"sqlite+aiosqlite:///{tmp_path}/memory.db")
    async with CompressedMemory(base, store=third, **BUDGET) as memory:
        await talk(memory, turns=6)
        assert memory._tracker.state.ledger.pending
        for ref in await memory.reachable_refs():
            assert await memory.read_ref(ref)
    await base.close()
    await closed(first, store, other, third)


async def test_a_quota_holds_for_those_who_write_at_once(opened: Callable[..., Any]) -> None:
    store = opened("chat", max_bytes=10_000)
    if not isinstance(store, FileOffloadStore):
        for base in (0, 30):
            written = await asyncio.gather(
                *(store.write(f"{base + number:03}" + "x" * 997) for number in range(30)),
                return_exceptions=True,
            )
            refused = [one for one in written if isinstance(one, BaseException)]
            assert {type(one) for one in refused} == {OffloadFullError}
        held = sum(one.bytes for one in await store.stored())
        assert 5_000 <= held <= 10_000
    await closed(store)


async def test_a_text_that_was_stored_smaller_counts_as_it_lies_there(opened: Callable[..., Any]) -> None:
    first = opened("chat")
    if not isinstance(first, FileOffloadStore):
        other = opened("chat", compress_above=10)
        ref = await first.write("x" * 10_000)
        assert await other.write("x" * 10_000) == ref
        assert (await first.stored())[0].bytes == len(await first._get(ref))
        await closed(other)
    await closed(first)


def test_places_of_stores_are_checked(tmp_path: Path) -> None:
    for where, named in (("nowhere://x", "url"), ("s3+x://b", "url")):
        with pytest.raises(InvalidArgumentError, match=named):
            open_store(where)
    with pytest.raises(InvalidArgumentError, match="file systems"):
        open_store("redis://localhost", options={"a": 1})
    with pytest.raises(InvalidArgumentError, match="a directory takes none"):
        open_store(str(tmp_path), encryption_key="x")
    assert files_in(tmp_path) == {}
