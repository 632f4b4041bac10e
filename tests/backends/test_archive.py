"""Archives of sessions: the same in every backend, the same view byte for byte, and nothing but whole."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import random
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import jsonschema
import pytest

from context_compressor import (
    CompressedMemory,
    ConflictError,
    FileOffloadStore,
    InMemoryOffloadStore,
    InvalidArgumentError,
    Msg,
    OffloadWriteError,
    SQLAlchemyMemory,
)
from context_compressor.backends.admin.archive import (
    ArchiveError,
    export_session,
    import_session,
    read_archive,
    shown,
    take_snapshot,
)
from context_compressor.backends.admin.opening import open_sessions
from context_compressor.backends.admin.sessions import SessionDirectory
from context_compressor.core.edits import refs_in
from context_compressor.errors import InvalidStateError
from context_compressor.memory.history import Add, Delete
from tests.backends.kept import BUDGET, KINDS, sessions_in, talk, view

pytestmark = pytest.mark.variants(1)

SCHEMA = Path(__file__).parents[2] / "docs" / "session-archive.schema.json"


def data_of(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a session that has all that a history can hold: database, texts, archive."""
    folder = tmp_path_factory.mktemp("made")

    async def make() -> None:
        async with open_sessions(f"sqlite:///{folder}/memory.db") as directory:
            store, history = FileOffloadStore(folder / "texts", "chat"), directory.history("ada", "chat")
            # Keys that nobody would get today: the first message of two under one id is gone.
            for number in range(3):
                msg = Msg("user", f"{number} \ud83d\ude00 \0", "user", {"deep": ["\ud83d\ude00"]}, id="twice")
                await history.write([Add(msg, ["a", "\ud83d\ude00"], duplicate=True)])
            front = Add(Msg("user", "in front", "user", id="x"), before="twice\0" + "2")
            await history.write([Delete(["twice"]), front])
            await history.write([Add(Msg("user", "again", "user", id="twice"), duplicate=True)])
            async with CompressedMemory(history, store=store, **BUDGET) as memory:
                await talk(memory)
                await memory.update_compressed_summary("what was before \ud800")
                await memory.get_memory()
            done = await export_session(history, store, folder / "chat.jsonl")
            assert done.missing == []
            assert len(done.texts) > 5

    asyncio.run(make())
    return folder


@pytest.fixture
async def directory(made: Path, tmp_path: Path) -> AsyncIterator[SessionDirectory]:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    async with open_sessions(f"sqlite:///{tmp_path}/memory.db") as directory:
        yield directory


@pytest.fixture
def path(directory: SessionDirectory, tmp_path: Path) -> Path:
    return tmp_path / "chat.jsonl"


async def test_an_archive_goes_through_every_backend_and_is_the_same(
    server: Callable[[str], int], tmp_path: Path, directory: SessionDirectory, path: Path
) -> None:
    first = path
    expected = await view(directory, "ada", "chat", FileOffloadStore(tmp_path / "texts", "chat"))
    name = uuid4().hex
    before = first.read_bytes().splitlines()[1:]
    for kind in KINDS:
        async with sessions_in(kind, server, tmp_path) as target:
            store = FileOffloadStore(tmp_path / f"texts of {kind}", "chat")
            await import_session(first, target, store, session_id=name)
            assert await view(target, "ada", name, store) == expected
            again = tmp_path / f"{kind}.jsonl"
            await export_session(target.history("ada", name), store, again)
            assert again.read_bytes().splitlines()[1:-1] == before[:-1]
            info = next(one for one in await target.infos("ada") if one.session_id == name)
            assert info.head.size == len(await target.history("ada", name).read())
            await target.remove("ada", name)
            first = again


async def test_the_view_of_a_snapshot_changes_nothing(directory: SessionDirectory, tmp_path: Path) -> None:
    store = FileOffloadStore(tmp_path / "texts", "chat")
    before, refs = (await directory.history("ada", "chat").head()).number, await store.refs()
    expected = await view(directory, "ada", "chat", store)
    memory = await shown(await take_snapshot(directory.history("ada", "chat")), store)
    assert [msg.to_dict() for msg in await memory.get_memory()] == expected
    assert (await directory.history("ada", "chat").head()).number == before
    assert await store.refs() == refs


async def test_every_line_is_as_the_schema_says(
    directory: SessionDirectory, tmp_path: Path, path: Path
) -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    lines = [json.loads(line) for line in data_of(path).splitlines()]
    for line in lines:
        validator.validate(line)
    assert {line["type"] for line in lines} == {"session", "message", "edit", "text", "end"}
    for line in lines:
        for name in line:
            if name not in ("split_pairs", "learnt", "summary"):
                short = {key: value for key, value in line.items() if key != name}
                assert not validator.is_valid(short), (line["type"], name)


async def test_gzipped_it_is_the_same_and_has_no_time(
    directory: SessionDirectory, tmp_path: Path, path: Path
) -> None:
    store = FileOffloadStore(tmp_path / "texts", "chat")
    packed = [tmp_path / "one.jsonl.gz", tmp_path / "two.jsonl.gz"]
    for one in packed:
        await export_session(directory.history("ada", "chat"), store, one)
    assert packed[0].read_bytes() == packed[1].read_bytes()
    assert gzip.decompress(packed[0].read_bytes()) == data_of(path)
    assert read_archive(packed[0]).texts == read_archive(path).texts
    cut = packed[0].read_bytes()
    packed[0].write_bytes(cut[: len(cut) // 2])
    with pytest.raises(ArchiveError, match=r"one\.jsonl\.gz, behind line \d+: it was cut or changed"):
        read_archive(packed[0])


async def test_a_pipe_is_written_to_and_stays(
    directory: SessionDirectory, tmp_path: Path, path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = asyncio.create_task(asyncio.to_thread(pipe.read_bytes))
    await export_session(directory.history("ada", "chat"), FileOffloadStore(tmp_path / "texts", "chat"), pipe)
    assert pipe.is_fifo()
    assert await asyncio.wait_for(reading, 60) == data_of(path)


async def test_whatever_is_changed_or_cut_is_refused(
    directory: SessionDirectory, tmp_path: Path, path: Path
) -> None:
    whole = data_of(path)
    draw = random.Random(5)
    for _ in range(25):
        at = draw.randrange(len(whole))
        put(path, whole[:at])
        with pytest.raises(ArchiveError, match=r"chat\.jsonl"):
            read_archive(path)
        changed = bytearray(whole)
        changed[at] ^= 1 << draw.randrange(7)
        put(path, changed)
        with pytest.raises(ArchiveError, match=r"chat\.jsonl, (behind )?line \d+"):
            read_archive(path)


def edited(path: Path, change: Callable[[list[dict[str, Any]]], Any]) -> Path:
    """Change lines as somebody would who mends the hash, too."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    change(lines)
    written = [f"{json.dumps(line, separators=(',', ':'))}\n".encode() for line in lines]
    if lines and lines[-1]["type"] == "end":
        lines[-1]["sha256"] = hashlib.sha256(b"".join(written[:-1])).hexdigest()
        written[-1] = f"{json.dumps(lines[-1], separators=(',', ':'))}\n".encode()
    path.write_bytes(b"".join(written))
    return path


def of(lines: list[dict[str, Any]], type_: str) -> dict[str, Any]:
    return next(line for line in lines if line["type"] == type_)


FAULTS: dict[str, tuple[Callable[[list[dict[str, Any]]], Any], str]] = {
    "empty": (lambda lines: lines.clear(), "it is empty"),
    "foreign": (
        lambda lines: lines.__setitem__(0, {"type": "message", "role": "user"}),
        "line 1: this is no archive",
    ),
    "newer": (lambda lines: lines[0].update(version=2), "line 1: version: this release reads 1"),
    "user": (lambda lines: lines[0].update(user_id=5), "line 1: user_id: expected str, got int"),
    "learnt": (lambda lines: lines[0].update(learnt={"pending": ["x"]}), "line 1: learnt.pending"),
    "two sessions": (lambda lines: lines.insert(1, dict(lines[0])), "line 2: a second session"),
    "message lost": (lambda lines: lines.pop(1), "messages: .* were announced"),
    "message twice": (lambda lines: lines.insert(1, dict(lines[1])), "line 3: key: a second message"),
    "message": (lambda lines: lines[1]["msg"].update(role="king"), "line 2: role"),
    "key": (lambda lines: lines[1].update(key="another"), "line 2: key: 'another' is no key"),
    "marks": (lambda lines: lines[1].update(marks=[1]), "line 2: marks"),
    "tokens": (lambda lines: lines[1].update(tokens=["me", -1]), "line 2: tokens"),
    "edit": (
        lambda lines: of(lines, "edit")["edit"].update(ref="x"),
        r"line \d+: edit.ref: 'x' is not a ref",
    ),
    "edit twice": (
        lambda lines: (
            lines.insert(lines.index(of(lines, "edit")), dict(of(lines, "edit"))),
            lines[0].update(edits=lines[0]["edits"] + 1),
        ),
        "two have one name",
    ),
    "text lost": (lambda lines: lines.remove(of(lines, "text")), "names this text, and it is not there"),
    "text changed": (
        lambda lines: of(lines, "text").update(text="other words"),
        r"line \d+: text: it hashes to",
    ),
    "order": (lambda lines: lines.insert(1, lines.pop(-2)), r"line 3: .*'message' does not belong here"),
    "behind the end": (
        lambda lines: lines.append({"type": "text", "ref": "x", "text": ""}),
        "does not belong here",
    ),
    "unknown": (lambda lines: lines.insert(1, {"type": "whole"}), "line 2: .*'whole' does not belong here"),
    "no end": (lambda lines: lines.pop(), "the last line is missing"),
}


async def test_what_is_wrong_is_named_with_its_place(
    directory: SessionDirectory, tmp_path: Path, path: Path
) -> None:
    whole = data_of(path)
    store = InMemoryOffloadStore()
    for name, (change, expected) in FAULTS.items():
        put(path, whole)
        with pytest.raises(ArchiveError, match=expected):
            await import_session(edited(path, change), directory, store, session_id=f"from {name}")
    assert [one.session_id for one in await directory.infos()] == ["chat"]
    assert await store.refs() == []
    put(path, b"[" * 100_000 + b"\n")
    with pytest.raises(ArchiveError, match="line 1"):
        read_archive(path)


async def test_a_small_file_takes_no_large_memory(directory: SessionDirectory, path: Path) -> None:
    head = data_of(path).splitlines(keepends=True)[0]
    wide = b'{"type": "message", "key": [' + b"{}," * 200_000 + b"{}]}\n"
    for name, data, told in (
        ("blanks", b" " * 8_000_000, "line 1: .*more than 4,000,000 bytes"),
        ("wide", head + wide, "line 2: .*more than 4,000,000 bytes"),
        ("escaped", b'"' + b'\\"' * 400_000, "line 1: it was cut"),
    ):
        bomb = path.with_name(f"{name}.jsonl.gz")
        bomb.write_bytes(gzip.compress(data))
        with pytest.raises(ArchiveError, match=told):
            await import_session(bomb, directory, None, session_id=name, max_bytes=4_000_000)
    with pytest.raises(ArchiveError, match=r"line \d+: .*more than 9,000 bytes"):
        await import_session(path, directory, None, session_id="long", max_bytes=9_000)
    os.mkfifo(path.with_name("pipe"))
    with pytest.raises(ArchiveError, match="not a regular file"):
        await import_session(path.with_name("pipe"), directory, None)


async def test_a_session_that_is_there_stays_as_it_is(
    directory: SessionDirectory, tmp_path: Path, path: Path
) -> None:
    memory = SQLAlchemyMemory(directory.engine, session_id="chat", user_id="ada")  # type: ignore[attr-defined]
    before, store = (await memory.history.head()), InMemoryOffloadStore()
    with pytest.raises(ConflictError, match="there is a session 'chat' of user 'ada' already"):
        await import_session(path, memory, store)
    assert await memory.history.head() == before
    assert await store.refs() == []
    with pytest.raises(InvalidArgumentError, match="say where they go"):
        await import_session(path, directory, None, session_id="other")


@pytest.mark.parametrize("fails", ["store", "history"])
async def test_an_import_that_fails_leaves_nothing(
    directory: SessionDirectory, tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:

    class Failing(InMemoryOffloadStore):
        async def write(self, text: str) -> str:
            if fails == "store" and len(self.texts()) > 3:
                raise OffloadWriteError("full")
            return await super().write(text)

    async def restore(*_: object) -> None:
        raise OSError("gone")

    store = Failing()
    await store.write("of somebody else")
    if fails == "history":
        monkeypatch.setattr(directory, "restore", restore)
    with pytest.raises(OffloadWriteError if fails == "store" else OSError):
        await import_session(path, directory, store, session_id="other")
    assert list(store.texts().values()) == ["of somebody else"]
    assert [one.session_id for one in await directory.infos()] == ["chat"]


async def test_texts_that_the_store_lost_are_made_from_the_history_or_told_of(
    directory: SessionDirectory, tmp_path: Path, path: Path
) -> None:
    history = directory.history("ada", "chat")
    expected = await view(directory, "ada", "chat", FileOffloadStore(tmp_path / "texts", "chat"))
    done = await export_session(history, None, path)
    assert not done.missing
    assert sorted(done.texts) == sorted(done.snapshot.refs)
    store = InMemoryOffloadStore()
    again = await import_session(path, directory, store, session_id="other")
    assert again.missing == done.missing
    assert await store.refs() == sorted(done.texts)
    assert await view(directory, "ada", "other", store) == expected
    with pytest.raises(InvalidArgumentError, match="no session 'none'"):
        await export_session(directory.history("ada", "none"), None, path)


def test_what_is_no_edit_names_nothing() -> None:
    for edit in ({"ref": "x"}, {"media_refs": []}, 5, {"ref": "ctx://" + "0" * 16, "words_ref": "no"}):
        with pytest.raises(InvalidStateError):
            list(refs_in([edit]))
