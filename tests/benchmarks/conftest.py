"""The programs of the benchmarks, called in this process."""

import importlib
import sys
from pathlib import Path

import pytest

from tests.benchmarks.programs import Program, Ran

ROOT = Path(__file__).parents[2]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """Call a program's `main` in this process: what it needs is imported once, not each time it is run."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")

    def call(name: str, *arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capsys.readouterr()
        code = importlib.import_module(name).main()
        return Ran(code, *capsys.readouterr())

    return call
