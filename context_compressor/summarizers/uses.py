"""What the agent has named in everything that left a view: what it needed before, it tends to need again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple


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
        groups: the groups that were noted, by the names of their segments.
    """

    def __init__(self) -> None:
        self.groups: set[str] = set()
        self._times: Counter[str] = Counter()
        self._given: set[str] = set()
        self._newest: Set[str] = frozenset()

    def note(self, group: str, names: Names) -> None:
        """Note a group of messages, once."""
        if group in self.groups:
            return
        self.groups.add(group)
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
