"""Probes: questions about a session that are put to a view of it, and the keys of their answers.

A probe is *told* by a view when one passage of it holds an alternative of every group of keys: who or what is
asked about, and the value or outcome. So no list of names can please it. Where a reader answers the questions
from views alone, nearly all that is told is answered rightly, and about half of what is not: told is a lower
bound, and costs nothing.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from math import inf, sqrt
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from context_compressor.errors import ContextCompressorError

PASSAGE_CHARACTERS = 600
"""How long a passage is in which all keys of an answer have to stand."""

Kind = Literal["goal", "constraint", "artifact", "decision", "failure", "value", "status", "order"]
KINDS: tuple[str, ...] = get_args(Kind)

_Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class ProbeError(ContextCompressorError, ValueError):
    """Report probes that are not what their form says; the text names file and field."""


class Probe(BaseModel):
    """A question that an agent may need the answer to, and how to tell whether a text has it."""

    model_config = ConfigDict(frozen=True)

    at: Annotated[int, Field(ge=1, strict=True)]
    """The number of messages after which the question is put: the view at that point is scored."""
    kind: Kind
    question: _Text
    answer: _Text
    keys: Annotated[tuple[Annotated[tuple[_Text, ...], Field(min_length=1)], ...], Field(min_length=1)]
    """Groups of alternatives: one of every group has to stand in one passage, whatever its case."""


class ProbeSet(BaseModel):
    """Probes of a session that is kept elsewhere, all of them put at one place."""

    model_config = ConfigDict(frozen=True)

    recording: _Text
    """The name of the file that holds the session."""
    line: Annotated[int, Field(ge=0, strict=True)] = 0
    """The line that it stands in, the first being 0."""
    probes: tuple[Probe, ...]

    def is_of(self, file: str, line: int) -> bool:
        """Tell whether these are the probes of the session in a line (from 0) of a file."""
        return Path(file).name == Path(self.recording).name and line == self.line


_PROBES = TypeAdapter(tuple[Probe, ...])


def read_probes(value: Any, where: str, messages: int) -> tuple[Probe, ...]:
    """Return the probes of a session that has them itself, under `probes`.

    Raises:
        ProbeError: they are malformed, or one is put behind the end.
    """
    if value is None:
        return ()
    try:
        probes = _PROBES.validate_python(value)
    except ValidationError as error:
        raise ProbeError(f"{where}: {_first_fault(error, 'probes')}") from None
    check_places(probes, where, messages)
    return probes


def check_places(probes: Sequence[Probe], where: str, messages: int) -> None:
    """Refuse probes that are put behind the end of a session."""
    for number, probe in enumerate(probes):
        if probe.at > messages:
            raise ProbeError(
                f"{where}: probes[{number}].at: {probe.at} is more than the session's {messages} messages"
            )


def read_probe_sets(folder: Path) -> list[tuple[str, ProbeSet]]:
    """Return the probe sets of a folder, each with the name of its file.

    A set is a JSON file `{"recording": file, "line": n, "cut": i, "probes": [...]}`; `cut` is where those of
    its probes are put that do not say `at`.

    Raises:
        ProbeError: the folder has none, or one is malformed.
    """
    found = [(str(path), _read_set(path)) for path in sorted(folder.glob("*.json"))]
    if not found:
        raise ProbeError(
            f"{folder}: holds no probes; a set is a .json file with recording, line, cut, probes"
        )
    return found


def _read_set(path: Path) -> ProbeSet:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProbeError(f"{path}: cannot be read as JSON: {error}") from None
    if isinstance(value, dict) and "cut" in value and isinstance(value.get("probes"), list):
        probes = [{"at": value["cut"], **one} if isinstance(one, dict) else one for one in value["probes"]]
        value = {**value, "probes": probes}
    try:
        return ProbeSet.model_validate(value)
    except ValidationError as error:
        raise ProbeError(f"{path}: {_first_fault(error)}") from None


def _first_fault(error: ValidationError, root: str = "") -> str:
    """Return the field of the first fault, and what is wrong with it."""
    first = error.errors()[0]
    field = root + "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in first["loc"])
    shown = repr(first["input"])
    return (
        f"{field.lstrip('.') or 'set'}: {first['msg']}, got {shown if len(shown) <= 80 else shown[:80] + '…'}"
    )


def is_told(text: str, keys: Sequence[Sequence[str]]) -> bool:
    """Tell whether a passage of `PASSAGE_CHARACTERS` holds one of every group, whatever its case."""
    text = text.casefold()
    groups = [_Places(text, alternatives) for alternatives in keys]
    starts = sorted(start for group in groups for start in group.starts)
    return any(all(group.next_end(at) <= at + PASSAGE_CHARACTERS for group in groups) for at in starts)


class _Places:
    """Where the alternatives of a group stand in a text."""

    def __init__(self, text: str, alternatives: Sequence[str]) -> None:
        found: list[tuple[int, int]] = []
        for word in {word.casefold() for word in alternatives}:
            at = text.find(word)
            while at >= 0:
                found.append((at, at + len(word)))
                at = text.find(word, at + 1)
        found.sort()
        self.starts = [start for start, _ in found]
        self._ends = [end for _, end in found]
        """Of each place, the least end of it and those that follow: alternatives differ in length."""
        for n in range(len(found) - 2, -1, -1):
            self._ends[n] = min(self._ends[n], self._ends[n + 1])

    def next_end(self, start: int) -> float:
        """Return the first end of a place that begins at `start` or behind it."""
        at = bisect_left(self.starts, start)
        return self._ends[at] if at < len(self._ends) else inf


class Interval(NamedTuple):
    """A share's interval of confidence."""

    low: float
    high: float


def wilson(part: int, whole: int) -> Interval:
    """Return the interval of 95 % for a share of `part` in `whole`, by Wilson (1927); all where none is."""
    if not whole:
        return Interval(0.0, 1.0)
    z, share = 1.96, part / whole
    centre, spread = (
        share + z * z / (2 * whole),
        z * sqrt(share * (1 - share) / whole + (z / (2 * whole)) ** 2),
    )
    return Interval(
        max(0.0, (centre - spread) / (1 + z * z / whole)), min(1.0, (centre + spread) / (1 + z * z / whole))
    )
