"""Recorded sessions, in ../shared/data/dev beside the repository."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DIRECTORY = Path(__file__).resolve().parents[3] / "shared" / "data" / "dev"

requires_recordings = pytest.mark.skipif(
    not any(DIRECTORY.glob("*.jsonl.gz")), reason=f"no recorded sessions in {DIRECTORY}"
)


def sessions(name: str = "*") -> Iterator[dict[str, Any]]:
    """Yield the sessions of every file whose stem matches `name`, in order: each has `id` and `messages`."""
    for path in sorted(DIRECTORY.glob(f"{name}.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)
