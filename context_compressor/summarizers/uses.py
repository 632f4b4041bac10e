"""What the agent has named in everything that left a view: what it needed before, it tends to need again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

from context_compressor.errors import InvalidStateError


class Names(NamedTuple):
    """The identifiers of a group of messages, by who named them."""

    used: Mapping[str, int]
    """In how many calls and replies the agent named each."""
    given: Set[str]
    """What users, instructions and results of tools named."""


NO_NAMES = Names({}, frozenset())


class Uses:
    """Count how often an agent named each identifier, over groups of messages in the order they left.

    Of what only others named, the newest group alone is kept: a log may print millions of names.

    Attributes:
        segments: ids of the segments whose messages were noted.
    """

    def __init__(self) -> None:
        self.segments: set[str] = set()
        self._times: Counter[str] = Counter()
        self._given: set[str] = set()
        self._newest: Set[str] = frozenset()

    def note(self, segment_id: str, names: Names) -> None:
        """Note the messages of a segment, once."""
        if segment_id in self.segments:
            return
        self.segments.add(segment_id)
        self._times.update(names.used)
        self._given.update(name for name in names.used if name in self._newest)
        self._given.update(name for name in names.given if name in self._times)
        self._newest = names.given

    def of(self, name: str, names: Names) -> tuple[int, bool]:
        """Return how often the agent named it, and whether anybody else did.

        Args:
            name: an identifier.
            names: of the group that is about to leave; not noted yet.
        """
        is_given = name in names.given or name in self._given or name in self._newest
        return self._times[name] + names.used.get(name, 0), is_given

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON-like data; `from_dict` reads it back."""
        return {
            "segments": sorted(self.segments),
            "times": dict(sorted(self._times.items())),
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
        uses, times = cls(), data.get("times")
        if not isinstance(times, dict) or not all(
            type(count) is int and count > 0 for count in times.values()
        ):
            raise InvalidStateError("uses.times: expected a dict of positive integers")
        uses._times.update(times)
        uses.segments, uses._given, uses._newest = (
            _read_names(data, field) for field in ("segments", "given", "newest")
        )
        return uses


def _read_names(data: Mapping[str, Any], field: str) -> set[str]:
    names = data.get(field)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidStateError(f"uses.{field}: expected a list of strings")
    return set(names)


def tally(sources: Iterable[tuple[bool, Iterable[str]]]) -> Names:
    """Return the names in texts, each given as whether the agent wrote it, and its identifiers."""
    used: Counter[str] = Counter()
    given: set[str] = set()
    for by_agent, names in sources:
        if by_agent:
            used.update(names)
        else:
            given.update(names)
    return Names(used, given)
