"""Run the command line: in this process where that tells the same, as a real process where it does not."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from context_compressor.cli.app import run

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


class Cli:
    """Call the command line in this process, with its output captured."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Ran:
        self._capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        return Ran(code, captured.out, captured.err)


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **more}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "context_compressor", *map(str, arguments)]


def run_process(
    *arguments: object, cwd: Path, data: bytes = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(*arguments), input=data, cwd=cwd, env=dict(env or environment()), capture_output=True
    )


def start_process(*arguments: object, cwd: Path, **options: object) -> subprocess.Popen[bytes]:
    settings: dict = {
        "cwd": cwd,
        "env": environment(),
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        # A shell that runs the tests in the background has them, and their children, ignore Ctrl-C.
        "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    }
    return subprocess.Popen(command(*arguments), **settings)


def read_terminal(descriptor: int) -> bytes:
    """Return what was written to a pseudo terminal since the last time, b"" at its end."""
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux says so when the other end is closed
        return b""
