"""What stands for a request's list, by which its conversation is found again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from context_compressor.memory.listed import INSTRUCTING, digest_of, wires_of


def beginning_of(pieces: Sequence[Sequence[Any]]) -> str:
    """Return what stands for the first message of a list that is no instruction."""
    wires = (wires_of(piece) for piece in pieces)
    return next((digest_of(one) for one in wires if _speaks(one)), "")


def _speaks(wires: Sequence[Mapping[str, Any]]) -> bool:
    return any(wire.get("role") not in INSTRUCTING for wire in wires)


def spoken_of(pieces: Sequence[Sequence[Any]]) -> list[str]:
    """Return what stands for the pieces of a list, as memories name their messages."""
    seen: dict[str, int] = {}
    spoken: list[str] = []
    for piece in pieces:
        wires = wires_of(piece)
        digest = digest_of(wires)
        seen[digest] = seen.get(digest, 0) + 1
        if _speaks(wires):
            spoken.append(f"{digest}-{seen[digest]}")
    return spoken


def count_same(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many at the beginning are the same."""
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
