"""An output that is an input, too: it is refused by whatever name, and nothing is lost."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.support import command, environment
from tests.lab.measure.support import says

CHAT = json.dumps([says("user", "hi"), says("assistant", "ho"), says("user", "hm"), says("assistant", "ha")])
PROBES = {
    "recording": "chat.json",
    "cut": 2,
    "probes": [{"kind": "goal", "question": "?", "answer": "hi", "keys": [["hi"]]}],
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    """A session, its links, a directory that holds another one, and probes."""
    (tmp_path / "chat.json").write_text(CHAT)
    (tmp_path / "symbolic").symlink_to("chat.json")
    os.link(tmp_path / "chat.json", tmp_path / "hard")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "other.json").write_text(CHAT)
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "examination").mkdir()
    (tmp_path / "examination" / "probes.jsonl").write_text(CHAT)
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "x.json").write_text(json.dumps(PROBES))


def texts(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("compress chat.json -o chat.json", "--output chat.json"),
        ("compress chat.json -o ./folder/../chat.json --json", "--output ./folder/../chat.json"),
        ("compress chat.json -o symbolic", "--output symbolic"),
        ("compress chat.json -o hard", "--output hard"),
        ("compress symbolic -o chat.json -q", "--output chat.json"),
        ("compress folder -o folder/other.json", "--output folder/other.json"),
        ("compress folder -o link/other.json", "--output link/other.json"),
        ("replay chat.json --report chat.json", "--report chat.json"),
        ("replay folder chat.json --report hard --json", "--report hard"),
        ("replay folder --report link/other.json -q", "--report link/other.json"),
        ("replay chat.json --probes sets --report sets/x.json", "--report sets/x.json"),
        ("examine chat.json --model m --probes symbolic --yes", "--probes symbolic"),
        ("examine examination/probes.jsonl --model m --yes", "--probes examination/probes.jsonl"),
        ("examine folder --model m --cache folder --probes folder/other.json", "--probes folder/other.json"),
    ],
)
def test_an_output_that_is_read_is_refused(cli, tmp_path, monkeypatch, arguments, named) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    if "--report" in arguments:
        pytest.importorskip("matplotlib", reason="needs the extra `report`")
    before = texts(tmp_path)

    ran = cli(*arguments.split())

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"context-compressor: {named}: is read from, too; name another file\n"
    assert texts(tmp_path) == before


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("compress - -o hard < symbolic", "--output hard"),
        ("compress chat.json >> hard", "--output stdout"),
    ],
)
def test_streams_of_a_shell_are_looked_behind(tmp_path, line, named) -> None:
    """Where stdin or stdout is a file, its name does not tell."""
    before = texts(tmp_path)

    script = f'"$0" -m context_compressor {line}'
    ran = subprocess.run(
        ["/bin/sh", "-c", script, command()[0]], cwd=tmp_path, env=environment(), capture_output=True
    )

    assert ran.returncode == 2
    assert ran.stderr.decode() == f"context-compressor: {named}: is read from, too; name another file\n"
    assert texts(tmp_path) == before


def test_another_file_beside_the_input_may_be_the_output(cli, tmp_path) -> None:
    """Even one of a directory that is read, where it holds no session."""
    (tmp_path / "folder" / "notes.txt").write_text("no session")

    assert cli("compress", "folder", "-o", "folder/notes.txt", "-q").code == 0
    assert cli("compress", "/dev/null", "-o", "/dev/null").err.startswith(
        "context-compressor: /dev/null: is empty"
    )
    assert json.loads((tmp_path / "folder" / "notes.txt").read_text())["messages"]
