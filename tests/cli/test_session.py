"""`session` on the command line."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet

from context_compressor import CompressedMemory, FileOffloadStore, Msg, SQLAlchemyOffloadStore
from context_compressor.backends.admin.opening import open_sessions
from tests.backends.kept import BUDGET, talk, view
from tests.cli.support import Cli


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with two sessions in a database, and their texts."""
    folder = tmp_path_factory.mktemp("made")

    async def make() -> None:
        async with open_sessions(f"sqlite:///{folder}/memory.db") as directory:
            for user, name in (("ada", "chat"), ("ben\x1b[1m", "notes")):
                store = FileOffloadStore(folder / "texts", name)
                async with CompressedMemory(directory.history(user, name), store=store, **BUDGET) as memory:
                    await memory.add(Msg("user", f"the word of {name}", "user", id="first"), marks="told")
                    await talk(memory, f" of {name}", turns=6)
                    await memory.update_compressed_summary("what was before")

    asyncio.run(make())
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, cli: Cli) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def ask(url: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with open_sessions(url) as directory:
            return await work(directory)

    return asyncio.run(main())


CHAT = ("sqlite:///memory.db", "--session", "chat")
TEXTS = ("--store", "texts", "--namespace", "chat")


def test_list_tells_of_all_and_of_one_user(cli: Cli, folder: Path) -> None:
    ran = cli("session", "list", "sqlite:///memory.db")
    assert (ran.code, ran.err) == (0, "")
    assert "2 sessions" in ran.out
    assert "\x1b" not in ran.out
    told = json.loads(cli("session", "list", "sqlite:///memory.db", "--user", "ada", "--json").out)
    (one,) = told["sessions"]
    assert (one["user_id"], one["session_id"], one["messages"]) == ("ada", "chat", 25)
    assert one["tokens"] > 1_000
    assert one["number"] > 25 / 4


def test_show_tells_of_history_view_and_texts_and_changes_nothing(cli: Cli, folder: Path) -> None:
    before = (folder / "memory.db").read_bytes()
    told = json.loads(cli("session", "show", *CHAT, *TEXTS, "--json").out)
    assert told["messages"] == 25
    assert told["roles"] == {"user": 7, "assistant": 12, "tool": 6}
    assert told["marks"]["told"] == 1
    assert told["summary"] == "what was before"
    assert told["texts"] == told["texts_stored"] > 3
    assert 0 < told["view_tokens"] < told["tokens"]
    shown = cli("session", "show", *CHAT).out
    assert "session   chat of user ada" in shown
    assert f"view      {told['view_messages']} messages, {told['view_tokens']:,} tokens" in shown
    assert (folder / "memory.db").read_bytes() == before


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
def test_a_session_moves_to_another_backend_and_store(
    cli: Cli, folder: Path, server: Callable[[str], int], scheme: str
) -> None:
    kind = "cluster" if "+" in scheme else "redis"
    url, prefix = f"{scheme}://127.0.0.1:{server(kind)}", uuid4().hex
    ran = cli("session", "export", *CHAT, "chat.jsonl.gz", *TEXTS)
    assert (ran.code, ran.out) == (0, "")
    assert "25 messages" in ran.err
    assert (
        json.loads(gzip.decompress((folder / "chat.jsonl.gz").read_bytes()).splitlines()[0])["user_id"]
        == "ada"
    )
    there = (url, "--key-prefix", prefix, "--user", "eve", "--session", "moved")
    store = ("--store", url, "--namespace", "moved")
    assert cli("session", "import", *there, "chat.jsonl.gz", *store).code == 0
    again = cli("session", "import", *there, "chat.jsonl.gz", *store)
    assert again.code == 2
    assert "there is a session 'moved' of user 'eve' already" in again.err
    assert cli("session", "export", *there, "back.jsonl", *store).code == 0
    key = Fernet.generate_key()
    (folder / "key").write_bytes(key + b"\n")
    sealed = ("--store", "sqlite:///back.db", "--namespace", "x", "--key-file", "key")
    back = ("sqlite:///back.db", "--session", "back")
    assert cli("session", "import", *back, "back.jsonl", *sealed).code == 0
    assert cli("session", "list", "sqlite:///back.db", "--user", "eve").code == 0
    old = FileOffloadStore("texts", "chat")
    expected = ask("sqlite:///memory.db", lambda one: view(one, "ada", "chat", old))
    new = SQLAlchemyOffloadStore("sqlite+aiosqlite:///back.db", "x", encryption_key=key)

    async def look(directory: Any) -> Any:
        found = await view(directory, "eve", "back", new)
        await new.close()
        return found

    assert ask("sqlite:///back.db", look) == expected
    tidied = cli("session", "gc", url, *store, "--key-prefix", prefix, "--grace", "0s", "--json")
    assert json.loads(tidied.out)["removed"] == [], "all of it is named"
    assert cli("session", "delete", *there, *store, "--certificate", "gone.json").code == 0
    assert json.loads(cli("session", "list", url, "--key-prefix", prefix, "--json").out)["sessions"] == []
    told = json.loads((folder / "gone.json").read_text())
    assert {one["kind"] for one in told["objects"]} == {"redis key", "text"}
    assert told["complete"] is True


def test_texts_under_the_ids_of_user_and_session_are_reached(cli: Cli, folder: Path) -> None:
    url, by_ids = "sqlite:///ids.db", ("--store", "sqlite:///ids.db", "--by-ids")
    assert cli("session", "export", *CHAT, *TEXTS, "chat.jsonl").code == 0
    assert cli("session", "import", url, "chat.jsonl", "--user", "eve", *by_ids).code == 0
    refs = asyncio.run(FileOffloadStore("texts", "chat").refs())

    async def stored() -> list[str]:
        store = SQLAlchemyOffloadStore("sqlite+aiosqlite:///ids.db", ("eve", "chat"))
        found = await store.refs()
        await store.close()
        return found

    assert sorted(asyncio.run(stored())) == sorted(refs)
    told = json.loads(cli("session", "show", url, "--session", "chat", *by_ids, "--json").out)
    assert told["texts"] == told["texts_stored"] > 3
    assert cli("session", "export", url, "--session", "chat", *by_ids, "back.jsonl").code == 0
    assert cli("session", "delete", url, "--session", "chat", *by_ids, "--certificate", "c.json").code == 0
    objects = json.loads((folder / "c.json").read_text())["objects"]
    assert sum(one["kind"] == "text" for one in objects) == len(refs)
    assert asyncio.run(stored()) == []


def test_delete_removes_a_message_or_all_and_writes_what_it_did(cli: Cli, folder: Path) -> None:
    ran = cli("session", "delete", *CHAT, *TEXTS, "--message", "first", "--certificate", "one.json")
    assert (ran.code, ran.out) == (0, "")
    assert json.loads((folder / "one.json").read_text())["messages"] == ["first"]
    assert b"the word of chat" not in (folder / "memory.db").read_bytes()
    ran = cli("session", "delete", *CHAT, *TEXTS, "--message", "first")
    assert (ran.code, "there is no message 'first'" in ran.err) == (1, True)
    ran = cli("session", "delete", *CHAT, *TEXTS, "--certificate", "all.json")
    assert ran.code == 0
    told = json.loads((folder / "all.json").read_text())
    assert (told["user_id"], told["complete"], told["messages"]) == ("ada", True, "all")
    assert (folder / "all.json").read_text().count("\n") > told["removed"]  # a line for each
    assert not (folder / "texts" / "chat").exists()
    assert (folder / "texts" / "notes").exists()
    assert cli("session", "delete", *CHAT).code == 1


def test_gc_removes_what_no_ledger_names(cli: Cli, folder: Path) -> None:
    orphan = asyncio.run(FileOffloadStore("texts", "gone").write("of a session that is over"))
    where = ("sqlite:///memory.db", "--store", "texts")
    assert "young 1" in cli("session", "gc", *where).out
    told = json.loads(cli("session", "gc", *where, "--grace", "0s", "--dry-run", "--json").out)
    assert [one["where"].rpartition("/")[2] for one in told["removed"]] == [f"{orphan[6:]}.txt"]
    ran = cli("session", "gc", *where, "--grace", "0s")
    assert "removed: 1 text, 25 bytes" in ran.out
    assert asyncio.run(FileOffloadStore("texts", "gone").refs()) == []
    assert json.loads(cli("session", "show", *CHAT, *TEXTS, "--json").out)["texts_stored"] > 3


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["list"], 2, "URL"),
        (["list", "memory.db"], 2, "sqlite:///memory.db"),
        (["list", "sqlite:///none.db"], 2, "none.db: there is no such file"),
        (["list", "sqlite:///none/none.db"], 2, "there is no directory none"),
        (["list", "sqlite:///text"], 2, "cannot be used: file is not a database"),
        (["list", "oracle://x"], 2, "expected a URL"),
        (["list", "postgresql://[::1/x"], 2, "expected a URL"),
        (["list", "redis://127.0.0.1:1"], 2, "redis://127.0.0.1:1: cannot be used"),
        (["list", "postgresql://me:secret@127.0.0.1:1/x"], 2, "me:***@127.0.0.1:1/x: cannot be used"),
        (["list", "sqlite:///memory.db", "--key-prefix", "x"], 2, "for Redis"),
        (["show", "sqlite:///memory.db"], 1, "there is no session 'default_session'"),
        (["show", *CHAT, "--user", "ben"], 1, "there is no session 'chat' of user 'ben'"),
        (["show", *CHAT, "--store", "none"], 2, "--store none: there is no such directory"),
        (["show", *CHAT, "--key-file", "key"], 2, "--key-file needs --store"),
        (["show", *CHAT, "--store", "file://x", "--store-options", "[]"], 2, "--store-options"),
        (["show", *CHAT, "--store", "memory://x", "--key-file", "text"], 2, "encryption_key"),
        (["show", *CHAT, *TEXTS[:2], "--namespace", "../x"], 2, "--store texts: namespace"),
        (["show", *CHAT, *TEXTS[:2], "--by-ids"], 2, "--store texts: namespace: ids"),
        (["show", *CHAT, "--by-ids"], 2, "--by-ids needs --store"),
        (["show", *CHAT, "--store", "redis://x", "--by-ids", "--namespace", "x"], 2, "give one of them"),
        (["export", *CHAT, "none/x"], 2, "there is no directory none"),
        (["export", *CHAT, "-"], 2, "takes a file"),
        (["import", "sqlite:///new.db", "none"], 2, "none: No such file"),
        (["import", "sqlite:///new.db", "text"], 2, "text, line 1: no line of an archive"),
        (["import", "sqlite:///new.db", "chat.json"], 2, "chat.json, line 1: this is no archive"),
        (["delete", *CHAT, "--certificate", "none/x"], 2, "there is no directory none"),
        (["delete", *CHAT, "--grace", "soon"], 2, "--grace soon: not an age"),
        (["gc", "sqlite:///memory.db"], 2, "--store"),
        (["gc", "sqlite:///memory.db", "--store", "none"], 2, "there is no such directory"),
    ],
)
def test_bad_input_is_named_and_nothing_happens(
    cli: Cli, folder: Path, arguments: list[str], code: int, named: str
) -> None:
    (folder / "text").write_text("some words, which are none of ours\n" * 30)
    (folder / "chat.json").write_text('{"type": "message", "role": "user", "content": "hi"}\n')
    before = sorted(str(one) for one in folder.rglob("*") if "-" not in one.name)
    ran = cli("session", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.count("\n") == 1
    assert named in ran.err
    assert "secret" not in ran.err
    assert sorted(str(one) for one in folder.rglob("*") if "-" not in one.name) == before


def test_alone_it_tells_of_its_commands(cli: Cli) -> None:
    ran = cli("session")
    assert ran.code == 0
    for name in ("list", "show", "export", "import", "delete", "gc"):
        assert name in ran.out
