import json
import os
import pty
import re
import shlex
import subprocess

import pytest

from context_compressor.lab.commands.demo_agent import ScriptedSession, StdlibTools
from context_compressor.laws.chat_rules import problems
from tests.cli.support import command, environment, read_terminal, run_process


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict:
    ran = run_process("demo", "--json", cwd=tmp_path_factory.mktemp("demo"))
    assert (ran.returncode, ran.stderr) == (0, b"")
    return json.loads(ran.stdout)


def test_the_demo_keeps_what_it_promises(whole):
    assert whole["ok"]
    assert whole["history_tokens"] >= 140_000
    assert whole["peak_view_tokens"] <= whole["budget_tokens"] == 16_000
    assert whole["requests"] == 83
    assert whole["invalid_requests"] == whole["failures"] == []
    assert whole["view_input_tokens"] < whole["history_input_tokens"] / 4
    assert whole["events"].keys() == {"compact", "compress"}


def test_the_agent_reads_back_what_left_its_view(whole):
    back = whole["read_back"]
    assert back["is_identical"]
    assert back["asked_for"] == "call_soon"
    assert "def call_soon(" in back["lines"][0]


def test_a_log_gets_short_plain_lines(cli, tmp_path):
    ran = cli("demo", "--turns", 20, "--store", "kept")

    lines = ran.out.splitlines()
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert any(line.startswith("turn  10  history") for line in lines)
    assert any("compact:" in line or "compress:" in line for line in lines)
    assert any(line.endswith("23, invalid: 0") for line in lines)
    assert all(len(line) <= 80 for line in lines)
    assert list((tmp_path / "kept" / "demo").glob("*.txt"))


def test_a_terminal_of_80_columns_gets_a_row_for_each_turn_that_fits(tmp_path):
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        command("demo", "--turns", "20"),
        cwd=tmp_path,
        env=environment(TERM="xterm", COLUMNS="80", LINES="24"),
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    shown = b""
    while chunk := read_terminal(leader):
        shown += chunk
    os.close(leader)

    assert process.wait() == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    rows = re.split(r"[\r\n]+", plain)
    assert max(map(len, rows)) <= 80
    assert any(re.match(r" *1\d +\w+ (\+1|x2)? +[\d,]+ +[\d,]+ +[█░]{12} +noted [\d,]+", row) for row in rows)
    assert "Word for word what the agent had read." in rows


def test_a_short_demo_says_that_nothing_left(cli):
    ran = cli("demo", "--turns", 2)

    assert ran.code == 0
    assert "Nothing that the agent read has left its view" in ran.out
    assert ran.err == ""


def test_the_command_it_prints_can_be_copied(cli):
    ran = cli("demo", "--turns", 16, "--store", "my  [red]store")

    printed = next(line for line in ran.out.splitlines() if line.startswith("The texts are kept: "))
    *arguments, store = shlex.split(printed.removeprefix("The texts are kept: "))
    assert arguments == ["context-compressor", "grep", "PATTERN", "--store"]
    assert store == "my  [red]store"


def test_a_store_that_keeps_nothing_is_an_error_though_the_session_went_on(cli, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "demo").touch()

    ran = cli("demo", "--turns", 16, "--store", "notes")

    assert ran.code == 2
    assert "invalid: 0" in ran.out
    assert ran.err.startswith("context-compressor: --store notes: OffloadWriteError: ctx://")


def test_a_failed_check_ends_with_1(cli, monkeypatch):
    monkeypatch.setattr("context_compressor.lab.commands.demo.problems", lambda *_, **__: ["made up"])

    ran = cli("demo", "--turns", 2)

    assert ran.code == 1
    assert "turn 1: made up" in ran.out


def test_a_model_that_fails_is_got_over_and_named(cli, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    ran = cli(
        "demo", "--turns", 16, "--summarizer", "openai", "--base-url", "http://127.0.0.1:9/v1", "--json"
    )

    report = json.loads(ran.out)
    assert ran.code == 0
    assert report["failures"]
    assert report["summarizer_calls"] > 0
    assert report["peak_view_tokens"] <= 16_000


# The scripted agent


def test_a_session_is_the_same_every_time(recorded):
    assert [m for step in ScriptedSession(14).steps() for m in step.messages] == recorded


def test_a_session_is_a_valid_history_at_every_turn():
    history: list[dict] = []
    for step in ScriptedSession(40).steps():
        assert problems([*history, *step.before]) == []
        history += step.messages
    assert problems(history) == []


# Its tools


@pytest.fixture
def tools(tmp_path):
    root = tmp_path / "lib"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "__init__.py").write_text("x = 1\ny = 2\nz = 3")
    (root / "mod.py").write_text("import pkg\n")
    (tmp_path / "secret.py").write_text("x = 'secret'\n")
    (root / "link.py").symlink_to(tmp_path / "secret.py")
    return StdlibTools(root)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("list_dir", {"path": "."}, "link.py  13\nmod.py  11\npkg/"),
        ("list_dir", {"path": "none"}, "Error: none: no such directory"),
        (
            "grep_files",
            {"pattern": "^[xy] =", "path": "."},
            "pkg/__init__.py:1: x = 1\npkg/__init__.py:2: y = 2",
        ),
        (
            "grep_files",
            {"pattern": "=", "path": "pkg", "limit": 1},
            "pkg/__init__.py:1: x = 1\n(stopped at 1 lines)",
        ),
        ("grep_files", {"pattern": "secret", "path": "."}, "(nothing found)"),
        ("grep_files", {"pattern": "x", "path": "none"}, "Error: none: no such file or directory"),
        ("read_file", {"path": "pkg/__init__.py", "offset": 2, "limit": 1}, "2\ty = 2\n(1 more lines)"),
        ("read_file", {"path": "none.py"}, "Error: none.py: no such file"),
        ("read_file", {"path": "../secret.py"}, "Error: ../secret.py: outside the library"),
        ("read_file", {"path": "link.py"}, "Error: link.py: outside the library"),
        ("read_file", {"path": "mod.py", "offset": 9}, "Error: mod.py: has 2 lines"),
        ("run_python", {"code": "print('hi')"}, "hi\n(exit code 0)"),
        ("run_python", {"code": "raise SystemExit(3)"}, "(exit code 3)"),
    ],
)
def test_tools_answer(tools, name, arguments, expected):
    assert tools.call(name, arguments) == expected
