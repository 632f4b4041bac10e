"""`replay --watch`: a file that a client writes, live."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from context_compressor import CompressionConfig
from context_compressor.lab.commands.watch import watch_file
from tests.cli.support import Cli
from tests.lab.measure.reports import session


def test_fill_and_events_are_told_as_a_file_grows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half a line, as a client writes it, is waited out; nothing is told while nothing changes."""
    file = tmp_path / "chat.jsonl"
    lines = [json.dumps(message) for message in session(30)]
    parts = ["\n".join(lines[:20]) + "\n", lines[20][:10], "", lines[20][10:] + "\n", "\n".join(lines[21:])]
    told: list[list[str]] = []

    def write() -> None:
        told.append(capsys.readouterr().out.splitlines())
        if not parts:
            raise KeyboardInterrupt
        with file.open("a") as growing:
            growing.write(parts.pop(0))

    file.write_text("")
    with pytest.raises(KeyboardInterrupt):
        watch_file(str(file), CompressionConfig(max_total_tokens=3_000), None, 2**20, write)
    assert told[0] == []
    assert told[1][-1].startswith("20 messages: ")
    assert told[3] == []
    assert told[4][-1].startswith("21 messages: ")
    assert told[5][-1].startswith(f"{len(lines)} messages: ")
    assert [
        line for each in told for line in each if line.startswith("event 1: ") and "tokens became" in line
    ]


def test_what_cannot_be_watched_is_refused(cli: Cli) -> None:
    assert "--watch takes one file" in cli("replay", "--watch", "none.jsonl").err
    assert "leave out what is more" in cli("replay", "--watch", "a", "b").err
