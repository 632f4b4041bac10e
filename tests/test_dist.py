"""What is installed: the wheel, which the source distribution gives as well, works away from its sources."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytest.importorskip("hatchling", reason="the development group brings it")


def build(source: Path, into: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(into)]
    subprocess.run(command, cwd=source, capture_output=True, check=True)


def members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder)
    return folder


def test_the_source_distribution_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    [wheel] = built.glob("*.whl")
    [source] = built.glob("*.tar.gz")
    assert wheel.name.startswith("agent_context_compressor-")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    build(tmp_path / source.name.removesuffix(".tar.gz"), tmp_path / "again")
    again = tmp_path / "again" / wheel.name
    assert members(again) == members(wheel)
    assert again.read_bytes() == wheel.read_bytes()


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    names = set(members(wheel))
    package = ROOT / "context_compressor"
    files = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    told = {name for name in names if ".dist-info/" not in name}
    assert told == {path.relative_to(ROOT).as_posix() for path in files}


def test_the_wheel_works_away_from_its_sources(built: Path, tmp_path: Path) -> None:
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    (tmp_path / "elsewhere").mkdir()

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path / "elsewhere",
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = run("-c", "import context_compressor; print(context_compressor.__file__)")
    assert Path(where.strip()).is_relative_to(tmp_path / "installed")
    assert "demo" in run("-m", "context_compressor", "--help")
    assert "valid" in run("-m", "context_compressor", "demo", "--turns", "12")
