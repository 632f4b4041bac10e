"""Where output goes: stdout by any of its names, pipes, a stdout that is closed or that nobody reads."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import command, environment, run_process
from tests.lab.measure.support import says

CHAT = [says("user", "hi"), says("assistant", "ho"), says("user", "hm"), says("assistant", "ha")]


@pytest.fixture(autouse=True)
def chat(tmp_path):
    (tmp_path / "chat.json").write_text(json.dumps(CHAT))
    (tmp_path / "store").mkdir()


def test_messages_go_to_stdout_by_name(cli, tmp_path):
    here = cli("compress", "chat.json", "-o", "-", "--json")
    ran = run_process("compress", "chat.json", "-o", "/dev/stdout", "--json", cwd=tmp_path)

    assert (ran.returncode, json.loads(ran.stdout)) == (here.code, json.loads(here.out)) == (0, CHAT)
    assert json.loads(ran.stderr)["output"] == json.loads(here.err)["output"] == "stdout"
    assert {path.name for path in tmp_path.iterdir()} == {"chat.json", "store"}


def test_a_file_behind_stdout_keeps_what_it_held(tmp_path):
    with (tmp_path / "log").open("ab") as log:
        log.write(b"before\n")
        log.flush()
        arguments = command("compress", "chat.json", "-o", "/dev/stdout", "-q")
        subprocess.run(arguments, cwd=tmp_path, env=environment(), stdout=log, check=True)

    before, messages = (tmp_path / "log").read_text().splitlines()
    assert (before, json.loads(messages)) == ("before", CHAT)


def test_a_page_goes_to_stdout_by_name_and_the_table_to_stderr(cli):
    pytest.importorskip("matplotlib", reason="needs the extra `report`")

    ran = cli("replay", "chat.json", "--report", "-")

    assert ran.code == 0
    assert ran.out.startswith("<!DOCTYPE html>")
    assert ran.out.endswith("</html>")
    assert "Budget 16,000 tokens" in ran.err


def test_a_page_and_json_cannot_share_stdout(cli):
    pytest.importorskip("matplotlib", reason="needs the extra `report`")

    ran = cli("replay", "chat.json", "--report", "-", "--json")

    assert (ran.code, ran.out) == (2, "")
    assert "--report and --json cannot both go to stdout" in ran.err


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="no /dev/fd here")
def test_an_output_may_be_a_pipe_of_the_shell(tmp_path):
    reads, writes = os.pipe()
    arguments = command("compress", "chat.json", "-q", "-o", f"/dev/fd/{writes}")
    ran = subprocess.run(
        arguments, cwd=tmp_path, env=environment(), pass_fds=[writes], capture_output=True, check=False
    )
    os.close(writes)
    with open(reads, "rb") as pipe:
        received = pipe.read()

    assert (ran.returncode, ran.stderr) == (0, b"")
    assert json.loads(received) == CHAT


def test_a_pipe_may_be_named_like_a_gzipped_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.gz")
    arguments = command("compress", "chat.json", "-q", "-o", "pipe.gz")
    process = subprocess.Popen(arguments, cwd=tmp_path, env=environment())
    received = (tmp_path / "pipe.gz").read_bytes()

    assert process.wait() == 0
    assert json.loads(gzip.decompress(received)) == CHAT


@pytest.mark.parametrize(
    "arguments",
    [
        "compress chat.json -o -",
        "compress chat.json -o out.json --json",
        "read 0123456789abcdef --store store",
        "grep x --store store",
        "gc store",
        "replay chat.json",
        "replay chat.json --json -q",
        "demo --turns 1",
        "--help",
        "gc --help",
        "",
    ],
)
def test_no_stdout_is_one_line(tmp_path, cli, monkeypatch, arguments):
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it where it is closed
    ran = cli(*arguments.split())

    assert (ran.code, ran.err) == (2, "context-compressor: stdout is closed\n")
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "err"),
    [
        ("compress chat.json", 2, b"context-compressor: stdout is closed\n"),
        ("compress chat.json -q -o out.json", 0, b""),
    ],
)
def test_a_closed_stdout_is_one_line_where_something_goes_to_it(tmp_path, arguments, code, err):
    ran = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -m context_compressor {arguments} >&-', sys.executable],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
    )

    assert (ran.returncode, ran.stderr) == (code, err)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    ("stream", "err"),
    [
        ("stderr", None),
        ("stdout", b"context-compressor: stdout: cannot be written: No space left on device\n"),
    ],
)
def test_a_stream_that_takes_nothing_is_trouble(tmp_path, stream, err):
    with Path("/dev/full").open("wb") as full:
        streams = {"stderr": subprocess.PIPE, stream: full}
        ran = subprocess.run(command("compress", "chat.json"), cwd=tmp_path, env=environment(), **streams)

    assert (ran.returncode, ran.stderr) == (2, err)


@pytest.mark.parametrize(
    ("arguments", "buffering"),
    [("compress chat.json", {}), ("--help", {}), ("gc store", {"PYTHONUNBUFFERED": "1"})],
)
def test_a_reader_that_leaves_is_told_by_the_exit_code(tmp_path, arguments, buffering):
    process = subprocess.Popen(
        command(*arguments.split()),
        cwd=tmp_path,
        env=environment(**buffering),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()

    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141
