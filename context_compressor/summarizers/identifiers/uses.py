"""What the agent has named in everything that left a view: what it needed before, it tends to need again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

from context_compressor.errors import InvalidStateError


class Names(NamedTuple):
    """The identifiers of a group of messages, by who named them."""

    used: Mapping[str, int]
    """How often the agent named each, in calls and replies."""
    given: Set[str]
    """What users, instructions and results of tools named."""


NO_NAMES = Names({}, frozenset())


class Use(NamedTuple):
    """How an identifier was used so far."""

    times: int
    """How often the agent named it."""
    is_given: bool
    """Whether anybody else did."""
    age: int | None
    """How many groups left since it was named, 0 in the one that is about to leave; None where that is not
    remembered, as only earlier summaries tell of it."""


MOST_NAMES = 1 << 16
"""Names whose uses are remembered, some 15 MB; beyond, the half used least and longest ago is forgotten, as
in lossy counting (Manku and Motwani, 2002). A million tokens of an agent's work name some two thousand."""


class Uses:
    """Count how often an agent named each identifier, over groups of messages in the order they left.

    Of what only others named, the newest group alone is kept: a log may print millions of names. Of what the
    agent named, at most `MOST_NAMES` after each group.

    Attributes:
        segments: ids of the segments whose messages were noted.
    """

    def __init__(self) -> None:
        self.segments: set[str] = set()
        self._times: Counter[str] = Counter()
        self._last: dict[str, int] = {}
        """The number of the group in which the agent named each last."""
        self._given: set[str] = set()
        self._newest: Set[str] = frozenset()

    def note(self, segment_id: str, names: Names) -> None:
        """Note the messages of a segment, once."""
        if segment_id in self.segments:
            return
        self.segments.add(segment_id)
        self._times.update(names.used)
        self._last.update(dict.fromkeys(names.used, len(self.segments)))
        self._given.update(name for name in names.used if name in self._newest)
        self._given.update(name for name in names.given if name in self._times)
        self._newest = names.given
        if len(self._times) > MOST_NAMES:
            self._forget()

    def _forget(self) -> None:
        for name in sorted(self._times, key=self._times.__getitem__)[: -MOST_NAMES // 2]:
            del self._times[name], self._last[name]
            self._given.discard(name)

    def of(self, name: str, names: Names) -> Use:
        """Return how an identifier was used.

        Args:
            name: an identifier.
            names: of the group that is about to leave; not noted yet.
        """
        used, is_given = names.used.get(name, 0), name in names.given
        age = None
        if used or is_given:
            age = 0
        elif name in self._newest:
            age = 1
        elif name in self._last:
            age = len(self.segments) + 1 - self._last[name]
        is_given = is_given or name in self._given or name in self._newest
        return Use(self._times[name] + used, is_given, age)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON-like data; `from_dict` reads it back, in the order of first use."""
        return {
            "segments": sorted(self.segments),
            "times": [[name, count] for name, count in self._times.items()],
            "last": [self._last[name] for name in self._times],
            "given": sorted(self._given),
            "newest": sorted(self._newest),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Uses:
        """Read the saved form.

        Raises:
            InvalidStateError: a missing or malformed field; the text says which.
        """
        if not isinstance(data, dict):
            raise InvalidStateError(f"uses: expected a dict, got {type(data).__name__}")
        uses = cls()
        uses._times.update(_read_times(data.get("times")))
        uses.segments, uses._given, uses._newest = (
            _read_names(data, field) for field in ("segments", "given", "newest")
        )
        uses._last = _read_last(data, uses._times, len(uses.segments))
        return uses


def _read_times(times: Any) -> dict[str, int]:
    try:
        found = dict(times)
    except (TypeError, ValueError):
        found = None
    if found is None or not all(
        isinstance(name, str) and type(count) is int and count > 0 for name, count in found.items()
    ):
        raise InvalidStateError("uses.times: expected pairs of a name and a positive integer")
    return found


def _read_last(data: Mapping[str, Any], times: Mapping[str, int], newest: int) -> dict[str, int]:
    last = data.get("last", [newest] * len(times))  # earlier releases did not save it
    is_list = isinstance(last, list) and len(last) == len(times)
    if not is_list or not all(type(number) is int and 0 < number <= newest for number in last):
        raise InvalidStateError("uses.last: expected the number of a segment for each of the times")
    return dict(zip(times, last, strict=True))


def _read_names(data: Mapping[str, Any], field: str) -> set[str]:
    names = data.get(field)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidStateError(f"uses.{field}: expected a list of strings")
    return set(names)


def tally(sources: Iterable[tuple[bool, Mapping[str, int]]]) -> Names:
    """Return the names in texts, each given as whether the agent wrote it, and how often it names what."""
    used: dict[str, int] = {}
    given: set[str] = set()
    for by_agent, names in sources:
        if by_agent:
            for name, count in names.items():
                used[name] = used.get(name, 0) + count
        else:
            given.update(names)
    return Names(used, given)
