"""Four kills of each backend; `make crash` has hundreds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KILLS = 4


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked and killed as Linux does it")
def test_nothing_that_was_acknowledged_is_lost(server: Callable[[str], int], tmp_path: Path) -> None:
    # PostgreSQL and MariaDB take seconds to start: here they are those of the other tests, and live on.
    urls = [
        f"postgresql=postgresql+asyncpg://postgres@127.0.0.1:{server('postgres')}/postgres",
        f"mariadb=mysql+asyncmy://test@127.0.0.1:{server('mariadb')}/test",
    ]
    server("redis")  # or the test is skipped, saying why
    arguments = ["--kills", str(KILLS), "--server-kills", "1", "--longest", "100", "--url", *urls]
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "crash.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = sorted((tmp_path / "build" / "crash").glob("*.jsonl"))
    assert len(told) == 6
    steps = 0
    for file in told:
        lives = list(map(json.loads, file.read_text("utf-8").splitlines()))
        assert len(lives) == KILLS
        assert sum(life["server"] for life in lives) == file.stem.startswith("redis")
        steps += sum(life["steps"] for life in lives)
    assert steps, "no process made a step before it was killed"
