"""Processes that write into one session at the same time: `benchmarks/writers.py`, small."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.writers import URLS
from benchmarks.writers_check import Outcome, check_operations
from benchmarks.writers_work import id_of

ROOT = Path(__file__).parents[2]
SERVERS = {"redis": "redis", "postgres": "postgres", "mariadb": "mariadb"}


def ran(backend: str, server: Callable[[str], int], folder: Path, *options: str) -> str:
    """Run the program, and return what it printed."""
    port = server(SERVERS[backend]) if backend in SERVERS else 0
    url = URLS[backend].format(port=port, folder=folder)
    command = [sys.executable, "benchmarks/writers.py", "--backend", backend, "--url", url, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.variants(1)
@pytest.mark.parametrize("backend", ["redis", "sqlite", "postgres", "mariadb"])
def test_four_processes_write_into_one_session(
    backend: str, server: Callable[[str], int], tmp_path: Path
) -> None:
    """Once undisturbed, and once with processes that are killed or stand still."""
    options = ["--writers", "4", "--messages", "10", "--runs", "2", "--faults", "3"]
    told = ran(backend, server, tmp_path, *options)
    assert told.count(" 0 anomalies") == 2
    assert " 0 events" not in told


def notes(*told: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return notes of processes: who, what, and of which message, or of which head, size and bytes."""
    made = []
    for at, (process, kind, *more) in enumerate(told):
        names = ("id",) if kind in ("add", "added") else ("number", "size", "digest")
        made.append(
            {"at": at, "process": process, "kind": kind, "tokens": 1} | dict(zip(names, more, strict=False))
        )
    return made


A, B = id_of(0, 0), id_of(1, 0)
ADDS = [(1, "add", A), (1, "added", A), (2, "add", B), (2, "added", B)]


@pytest.mark.parametrize(
    ("told", "there", "wrong"),
    [
        ([*ADDS, (1, "look"), (1, "view", 2, 2, "x")], [A, B], 0),
        ([*ADDS[:3], (1, "look"), (1, "view", 1, 1, "x"), ADDS[3]], [A, B], 0),
        (ADDS, [A], 1),
        (ADDS, [B, A], 1),
        (ADDS, [A, B, B], 1),
        (ADDS[:2], [A, B], 1),
        ([*ADDS, (1, "look"), (1, "view", 1, 1, "x")], [A, B], 1),
        ([*ADDS[:2], (1, "look"), (1, "view", 1, 2, "x"), *ADDS[2:]], [A, B], 1),
        ([*ADDS, (1, "look"), (1, "view", 2, 2, "x"), (2, "look"), (2, "view", 2, 2, "y")], [A, B], 1),
        ([*ADDS, (1, "look"), (1, "view", 3, 2, "x"), (2, "look"), (2, "view", 2, 2, "y")], [A, B], 1),
    ],
    ids=["right", "in between", "lost", "late", "twice", "nobody's", "stale", "early", "torn", "back"],
)
def test_the_checker_finds_what_is_wrong(told: list[Any], there: list[str], wrong: int) -> None:
    outcome = Outcome()
    check_operations(notes(*told), there, outcome)
    assert bool(outcome.anomalies) == bool(wrong), outcome.anomalies
