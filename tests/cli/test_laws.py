"""The laws of a compactor of one's own: by the command, and by the plugin for pytest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import ROOT, Cli

MINE = """
def shorten(messages):
    return messages[-1:]
"""


def test_the_command_writes_examples_and_scripts_that_show_them(cli: Cli, tmp_path: Path):
    Path("mine.py").write_text(MINE)
    done = cli(
        "laws", "mine.py:shorten", "--examples", "5", "--folder", "found", "--script", "--without", "rules"
    )
    assert done.code == 1
    assert "valid       broken" in done.out
    assert "lossless    not claimed" in done.out
    told = json.loads(Path("found/shorten_chat_valid.json").read_text())
    assert (told["law"], told["form"], told["budget"]) == ("valid", "chat", 2_000)
    again = subprocess.run(
        [sys.executable, "found/shorten_chat_valid.py"],
        capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert again.stdout.startswith("valid: messages[0]: result for"), again.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "name one of MODULE:FUNCTION and --adapter"),
        (["mine.py"], "mine.py: write MODULE:FUNCTION, such as mine.py:shorten"),
        (["mine.py:shorten"], "mine.py:shorten: cannot be imported"),
        (["broken.py:shorten"], "broken.py:shorten: cannot be imported: NameError: name 'shoten'"),
        (["made.py:Made", "--fresh"], "made.py:Made: cannot be called for a compactor: TypeError"),
        (["--adapter", "none"], "--adapter none: there is none; it may be memory"),
        (["--adapter", "memory", "--without", "speed"], "law 'speed': there is none"),
        (["--adapter", "memory", "--script"], "--script needs --folder and MODULE:FUNCTION"),
    ],
)
def test_the_command_says_what_is_wrong(cli: Cli, given: list[str], said: str):
    Path("broken.py").write_text("shoten\n")
    Path("made.py").write_text("class Made:\n    def __init__(self, model): ...\n")
    done = cli("laws", *given)
    assert done.code == 2
    assert said in done.err


def test_the_plugin_is_quiet_until_a_test_asks(tmp_path: Path):
    (tmp_path / "test_mine.py").write_text(
        MINE + "def test_laws(check_laws):\n    check_laws(shorten, without={'rules'})\n"
        "def test_other(): pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "context_compressor.laws.plugin", "-q", "--laws-examples=5"],
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "valid: messages[0]: result for" in done.stdout
