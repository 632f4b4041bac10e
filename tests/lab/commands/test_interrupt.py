import json
import signal
import socket
import subprocess
import sys

import pytest

from tests.cli.support import environment, start_process

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGINT between processes here")


def interrupt(process: subprocess.Popen) -> tuple[int, bytes, bytes]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    return process.returncode, out, err


def accept_from(process: subprocess.Popen, server: socket.socket) -> socket.socket:
    """Wait for the process to connect, for as long as it lives."""
    server.settimeout(0.1)
    while True:
        try:
            connection, _ = server.accept()
        except TimeoutError:
            assert process.poll() is None, process.stderr.read()
        else:
            connection.settimeout(None)
            return connection


def test_ctrl_c_while_reading(tmp_path):
    process = start_process("compress", "-", "-o", "out.json", cwd=tmp_path)
    # More than a pipe holds: when this returns, the process is reading.
    process.stdin.write(b" " * 1_000_000)

    code, out, err = interrupt(process)

    assert (code, out, err) == (130, b"", b"context-compressor: interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.variants(1)
@pytest.mark.parametrize("existing", ["old", None])
def test_ctrl_c_while_a_model_summarises_leaves_the_output_as_it_was(tmp_path, recorded, existing):
    (tmp_path / "chat.json").write_text(json.dumps(recorded))
    if existing is not None:
        (tmp_path / "out.json").write_text(existing)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        options = ["--budget", 6000, "--mode", "compress", "--summarizer", "openai", "--base-url", url]
        process = start_process(
            "compress",
            "chat.json",
            *options,
            "-o",
            "out.json",
            cwd=tmp_path,
            env=environment(OPENAI_API_KEY="none"),
        )
        with accept_from(process, server) as connection:
            assert connection.recv(10) == b"POST /v1/c"

            code, out, err = interrupt(process)

    assert (code, out, err) == (130, b"", b"context-compressor: interrupted\n")
    names = {"chat.json", "working_memory"} | ({"out.json"} if existing else set())
    assert {path.name for path in tmp_path.iterdir()} <= names
    if existing is not None:
        assert (tmp_path / "out.json").read_text() == existing


def test_ctrl_c_in_the_demo(tmp_path):
    process = start_process("demo", "--turns", 400, cwd=tmp_path)  # it may not end before
    while not (line := process.stdout.readline()).startswith(b"turn"):
        assert line, process.stderr.read()

    code, _, err = interrupt(process)

    assert (code, err) == (130, b"context-compressor: interrupted\n")


def test_ctrl_c_while_the_program_is_still_being_loaded():
    code = (
        "import runpy, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "runpy.run_module('context_compressor', run_name='__main__')\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment())

    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"context-compressor: interrupted\n")
