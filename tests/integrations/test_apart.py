"""Tests with frameworks that cannot be installed beside the others, each in an environment of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / "build" / "venvs"


@pytest.mark.parametrize("name", ["agentscope2"])
def test_they_pass(name: str) -> None:
    if not (ENVIRONMENTS / name / "installed").exists():
        absent = f"{name}: not installed (make {ENVIRONMENTS.relative_to(ROOT) / name}/installed)"
        if os.environ.get("CI"):
            pytest.fail(absent)
        pytest.skip(absent)
    # Nothing was compiled when it was installed, so whoever imports it first is to keep the code.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    for inherited in [key for key in environment if key.startswith("PYTEST_")]:
        del environment[inherited]
    python = str(ENVIRONMENTS / name / "bin" / "python")
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/apart/{name}"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2_000:]
    print(ran.stdout)
