"""Views of sessions on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.support import Cli
from tests.cli.test_session import CHAT, TEXTS, folder, made

__all__ = ["folder", "made"]


def shown(cli: Cli, *options: str) -> list[dict[str, Any]]:
    ran = cli("session", "view", *CHAT, *TEXTS, "--json", *options)
    assert (ran.code, ran.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(ran.out)
    return found


def events(cli: Cli) -> dict[str, str]:
    told: dict[str, str] = json.loads(cli("session", "show", *CHAT, *TEXTS, "--json").out)["events"]
    return told


def test_a_view_is_what_the_model_sees_and_saw(cli: Cli, folder: Path) -> None:
    before = (folder / "memory.db").read_bytes()
    first, *_, last = events(cli)
    assert f"{last} (" in cli("session", "show", *CHAT).out
    now, then = shown(cli), shown(cli, "--at", first)
    assert now != then
    text = cli("session", "view", *CHAT, *TEXTS).out
    assert "=== user ===" in text
    assert "=== result of look ===" in text
    changed = cli("session", "diff", *CHAT, *TEXTS, first).out.splitlines()
    assert changed[:2] == [f"--- after event {first}", "+++ now"]
    assert cli("session", "diff", *CHAT, *TEXTS, first, first).out == "no difference\n"
    missing = cli("session", "view", *CHAT, *TEXTS, "--at", "99")
    assert missing.code == 1
    assert f"there is no view of an event 99; there are: {first}" in missing.err
    (folder / "one.json").write_text(json.dumps([{"role": "user", "content": "a\nb"}]))
    (folder / "two.json").write_text(json.dumps([{"role": "user", "content": "a\nc"}]))
    assert cli("diff", "one.json", "two.json").out.splitlines()[-2:] == ["-b", "+c"]
    assert (folder / "memory.db").read_bytes() == before


def test_what_left_is_explained(cli: Cli, folder: Path) -> None:
    first, *_ = events(cli)
    told = json.loads(cli("session", "explain", *CHAT, *TEXTS, first, "--json").out)
    assert {one["event"] for one in told} == {int(first)}
    ref = told[0]["read"].partition(":")[0] + ":" + told[0]["read"].split(":")[1]
    out = cli("session", "explain", *CHAT, *TEXTS, ref.strip()).out
    assert f"why   event {first}: " in out
    assert "read  ctx://" in out
    assert "in the store" in out
    assert cli("session", "explain", *CHAT, "99").code == 1
    assert cli("session", "explain", *CHAT, "ctx://0123456789abcdef").code == 1


def test_a_part_is_undone_or_made_anew(cli: Cli, folder: Path) -> None:
    *_, last = events(cli)
    tight = cli("session", "undo", *CHAT, *TEXTS, "--budget", "1000")
    assert tight.code == 1
    assert "more than the budget of 1,000; give --to or --note" in tight.err
    anew = cli("session", "undo", *CHAT, *TEXTS, "--budget", "2000", "--note", "mind the walrus")
    assert (anew.code, anew.out) == (0, "")
    assert "tokens became" in anew.err
    assert "mind the walrus" in json.dumps(shown(cli))
    assert cli("session", "undo", *CHAT, "--note", "x").code == 2
    assert cli("session", "undo", *CHAT, "--store", "texts", "--namespace", "notes").code == 2
    undone = cli("session", "undo", *CHAT, *TEXTS)
    assert "session chat of user ada: edit (undone)" in undone.err
    assert last not in events(cli)


def test_a_text_is_listed_and_forgotten(cli: Cli, folder: Path) -> None:
    word = "the word of chat"
    listed = cli("session", "forget", *CHAT, *TEXTS, "--text", word, "--dry-run")
    assert listed.code == 0
    assert listed.out.startswith(f"message 1, user first: {word}")
    assert len(json.dumps(shown(cli))) > 100
    assert "would stay where they are" in cli("session", "forget", *CHAT, "--text", "of chat line 1").err
    done = cli("session", "forget", *CHAT, *TEXTS, "--text", word, "--certificate", "gone.json")
    assert (done.code, done.out) == (0, listed.out)
    assert json.loads((folder / "gone.json").read_text())["messages"] == ["first"]
    for file in (folder / "memory.db", *(folder / "texts" / "chat").rglob("*")):
        assert file.is_dir() or word.encode() not in file.read_bytes()
    assert cli("session", "forget", *CHAT, *TEXTS, "--text", word).code == 1
    assert cli("session", "forget", *CHAT, *TEXTS).code == 2
