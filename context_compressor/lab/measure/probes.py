"""Probes: questions about a session that are put to a view of it, and the keys of their answers.

A probe is *told* by a view when one passage of it holds an alternative of every group of keys: who or what is
asked about, and the value or outcome. So no list of names can please it. Where a reader answers the questions
from views alone, nearly all that is told is answered rightly, and about half of what is not: told is a lower
bound, and costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from math import sqrt
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

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
    """Probes of a session that is kept elsewhere, all of them put at one place.

    As JSON `{"recording": file, "line": n, "cut": i, "probes": [...]}`; `cut` is where those of its probes
    are put that do not say `at`.
    """

    model_config = ConfigDict(frozen=True)

    recording: _Text
    """The name of the file that holds the session."""
    line: Annotated[int, Field(ge=0, strict=True)] = 0
    """The line that it stands in, the first being 0."""
    probes: tuple[Probe, ...]

    @model_validator(mode="before")
    @classmethod
    def _place(cls, value: Any) -> Any:
        if not (isinstance(value, dict) and "cut" in value and isinstance(value.get("probes"), list)):
            return value
        probes = [{"at": value["cut"], **one} if isinstance(one, dict) else one for one in value["probes"]]
        return {**value, "probes": probes}

    def is_of(self, file: str, line: int) -> bool:
        """Tell whether these are the probes of the session in a line (from 0) of a file."""
        return Path(file).name == Path(self.recording).name and line == self.line


_PROBES = TypeAdapter(tuple[Probe, ...])


def read_probes(
    value: Any, where: str, messages: int, sets: Iterable[tuple[str, ProbeSet]] = ()
) -> tuple[Probe, ...]:
    """Return the probes of a session: those that it has itself, under `probes`, and those of its sets.

    Args:
        value: what stands under `probes`; None where nothing does.
        where: what errors call the session.
        messages: how many it has.
        sets: the sets that are of it, each with the name of its file.

    Raises:
        ProbeError: they are malformed, or one is put behind the end.
    """
    try:
        own = () if value is None else _PROBES.validate_python(value)
    except ValidationError as error:
        raise ProbeError(f"{where}: {first_fault(error, 'probes')}") from None
    placed = [(where, own), *((file, one.probes) for file, one in sets)]
    for place, probes in placed:
        for number, probe in enumerate(probes):
            if probe.at > messages:
                raise ProbeError(
                    f"{place}: probes[{number}].at: {probe.at} is more than the session's {messages} messages"
                )
    return tuple(probe for _, probes in placed for probe in probes)


def read_probe_sets(folder: Path) -> list[tuple[str, ProbeSet]]:
    """Return the probe sets of a folder, a JSON file each, with the names of their files.

    Raises:
        ProbeError: the folder has none, or one is malformed.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append((str(path), ProbeSet.model_validate(json.loads(path.read_text(encoding="utf-8")))))
        except ValidationError as error:
            raise ProbeError(f"{path}: {first_fault(error)}") from None
        except (OSError, ValueError) as error:
            raise ProbeError(f"{path}: cannot be read as JSON: {error}") from None
    if not found:
        raise ProbeError(
            f"{folder}: holds no probes; a set is a .json file with recording, line, cut, probes"
        )
    return found


def first_fault(error: ValidationError, root: str = "") -> str:
    """Return the field of the first fault, and what is wrong with it."""
    first = error.errors()[0]
    field = root + "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in first["loc"])
    shown = repr(first["input"])
    shown = shown if len(shown) <= 80 else shown[:80] + "…"
    return f"{field.lstrip('.') or 'set'}: {first['msg']}, got {shown}"


def is_told(text: str, keys: Sequence[Sequence[str]]) -> bool:
    """Tell whether a passage of `PASSAGE_CHARACTERS` holds one of every group, whatever its case."""
    text = text.casefold()
    groups = [[word.casefold() for word in alternatives] for alternatives in keys]

    def holds_all(passage: str) -> bool:
        return all(any(word in passage for word in group) for group in groups)

    if not holds_all(text):
        return False
    # A passage that holds them all can begin where one of them does.
    starts = {start for group in groups for word in group for start in _places_of(word, text)}
    return any(holds_all(text[start : start + PASSAGE_CHARACTERS]) for start in starts)


def _places_of(word: str, text: str) -> Iterator[int]:
    start = text.find(word)
    while start >= 0:
        yield start
        start = text.find(word, start + 1)


class Interval(NamedTuple):
    """A share's interval of confidence."""

    low: float
    high: float


def wilson(part: int, whole: int) -> Interval:
    """Return the interval of 95 % for a share of `part` in `whole`, by Wilson (1927); all where none is."""
    if not whole:
        return Interval(0.0, 1.0)
    z, share = 1.96, part / whole
    centre = share + z * z / (2 * whole)
    spread = z * sqrt(share * (1 - share) / whole + (z / (2 * whole)) ** 2)
    scale = 1 + z * z / whole
    return Interval(max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale))
