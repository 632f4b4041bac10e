"""What a segment is made with beside its material: all of segments that the engine needs at start-up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from context_compressor.compression.edits import ItemKey
from context_compressor.messages.parts import PartPath
from context_compressor.summarizers.identifiers.uses import Uses


class Surroundings(NamedTuple):
    """What a segment is made with beside what it stands for.

    It is the same for all of an event but for `known` and `standing`.
    """

    new_stubs: Mapping[ItemKey, Mapping[PartPath, str]]
    """The stubs that the event has made."""
    names: Mapping[str, str]
    """Tool names by call id."""
    known: frozenset[str]
    """Identifiers in users' messages and later segments of the view, which an index need not name."""
    standing: tuple[tuple[str, frozenset[str]], ...]
    """The lines of the segments that stay before the one to be made, each with the identifiers in it."""
    before: Uses
    """What the agent named in what left earlier."""
    bare_tokens: int
    """What a segment costs that only names its ref."""
    note: str | None
    """What the agent asked to keep; summarisers are to mind it."""
