"""The package as it was, under another name.

python -m tests.shadow.before COMMIT    freeze the package of a commit in place of the one frozen now
"""

from __future__ import annotations

import importlib
import io
import lzma
import re
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

FROZEN = Path(__file__).with_name("before.tar.xz")
NAME = "context_compressor"
BEFORE = "context_compressor_before"
ROOMS = ("messages", "tokens", "offload", "summarizers", "compression", "search", "memory", "tools")
MODULES = ("__init__.py", "errors.py", "events.py", "moved.py")


@cache
def before() -> Any:
    """Return the package as it was; its modules are those of `context_compressor_before`."""
    folder = Path(tempfile.mkdtemp(prefix="before-"))
    with tarfile.open(FROZEN) as archive:
        archive.extractall(folder, filter="data")
    (folder / NAME).rename(folder / BEFORE)
    for file in (folder / BEFORE).rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(rf"\b{NAME}\b", BEFORE, text), encoding="utf-8")
    sys.path.append(str(folder))
    return importlib.import_module(BEFORE)


def freeze(commit: str) -> None:
    """Write the archive of the package at a commit: the rooms that a memory needs."""
    paths = [f"{NAME}/{name}" for name in (*MODULES, *ROOMS)]
    tar = subprocess.run(["git", "archive", commit, *paths], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        assert all(member.name.startswith(NAME) for member in archive)
    FROZEN.write_bytes(lzma.compress(tar, preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    freeze(sys.argv[1])
