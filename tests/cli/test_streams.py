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


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_messages_go_to_stdout_by_name(tmp_path, name):
    ran = run_process("compress", "chat.json", "-o", name, "--json", cwd=tmp_path)

    assert (ran.returncode, json.loads(ran.stdout)) == (0, CHAT)
    assert json.loads(ran.stderr)["output"] == "stdout"
    assert {path.name for path in tmp_path.iterdir()} == {"chat.json", "store"}


def test_a_file_behind_stdout_keeps_what_it_held(tmp_path):
    with (tmp_path / "log").open("ab") as log:
        log.write(b"before\n")
        log.flush()
        arguments = command("compress", "chat.json", "-o", "/dev/stdout", "-q")
        subprocess.run(arguments, cwd=tmp_path, env=environment(), stdout=log, check=True)

    before, messages = (tmp_path / "log").read_text().splitlines()
    assert (before, json.loads(messages)) == ("before", CHAT)


def check_page(code, out, err):
    assert code == 0
    assert out.startswith("<!DOCTYPE html>")
    assert out.endswith("</html>")
    assert "Budget 16,000 tokens" in err


def test_a_page_goes_to_stdout_by_name_and_the_table_to_stderr(tmp_path, cli):
    pytest.importorskip("matplotlib", reason="needs the extra `report`")

    ran = run_process("replay", "chat.json", "--report", "/dev/stdout", cwd=tmp_path)
    check_page(ran.returncode, ran.stdout.decode(), ran.stderr.decode())
    here = cli("replay", "chat.json", "--report", "-")
    check_page(here.code, here.out, here.err)


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


@pytest.mark.parametrize("arguments", ["compress chat.json", "--version"])
def test_a_closed_stdout_is_one_line(tmp_path, arguments):
    ran = run_closed(tmp_path, arguments)

    assert (ran.returncode, ran.stderr) == (2, b"context-compressor: stdout is closed\n")


@pytest.mark.parametrize("arguments", ["compress chat.json -q -o out.json", "replay chat.json -q"])
def test_a_closed_stdout_that_nothing_goes_to_is_no_trouble(tmp_path, arguments):
    ran = run_closed(tmp_path, arguments)

    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "arguments", [["compress", "chat.json", "-o", "out.json"], ["compress", "none.json"]]
)
def test_a_stderr_that_takes_nothing_is_trouble(tmp_path, arguments):
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(command(*arguments), cwd=tmp_path, env=environment(), stderr=full)

    assert ran.returncode == 2


def run_closed(tmp_path, arguments):
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -m context_compressor {arguments} >&-', sys.executable],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
    )


BUFFERED, UNBUFFERED = {}, {"PYTHONUNBUFFERED": "1"}


@pytest.mark.parametrize(
    ("arguments", "buffering"),
    [
        *((arguments, BUFFERED) for arguments in (["--version"], ["--help"], ["gc", "--help"], [])),
        *((["gc", "store"], buffering) for buffering in (BUFFERED, UNBUFFERED)),
        (["--help"], UNBUFFERED),
    ],
)
def test_a_reader_that_leaves_is_told_by_the_exit_code(tmp_path, arguments, buffering):
    process = subprocess.Popen(
        command(*arguments),
        cwd=tmp_path,
        env=environment(**buffering),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()

    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141
