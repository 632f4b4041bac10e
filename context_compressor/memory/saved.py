"""The saved form of what a compressed memory keeps beside the history: each key is written and read here."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Collection, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import aiofiles

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import ItemKey
from context_compressor.compression.ledger import Ledger
from context_compressor.errors import InvalidStateError
from context_compressor.memory.budget import BudgetInForce
from context_compressor.memory.state import MemoryState
from context_compressor.memory.sync import Followed, read_followed
from context_compressor.messages.chat import Markers, are_markers
from context_compressor.messages.exchanges import Decisions
from context_compressor.offload.folders import sync_directory
from context_compressor.tokens.counter import TokenCounter

SAVED_KEY = "compression"
"""Where the saved form stands beside the base memory's own keys."""
_VERSION = 1


class Loaded(NamedTuple):
    """What a saved form says."""

    state: MemoryState
    tokens: dict[str, int]
    """Tokens of the messages that were counted, by key; none where another counter counted them."""
    followed: list[Followed]
    """The messages that came from a list."""
    markers: Mapping[str, Markers]
    """The request metadata in that list, by the id of its message."""


def to_saved(
    state: MemoryState,
    counter: TokenCounter,
    *,
    tokens: Mapping[str, int],
    prepared: Collection[str],
    followed: Iterable[Followed],
    markers: Mapping[str, Markers],
) -> dict[str, Any]:
    """Return the saved form as JSON-like data.

    Args:
        state: ledger and view.
        counter: who counted.
        tokens: tokens of every known message, by key.
        prepared: refs of what was stored for an event that is not committed. Nothing else is saved of it, so
            whoever loads this removes them.
        followed: the messages that came from a list.
        markers: the request metadata in that list, by the id of its message.
    """
    ledger = state.ledger.to_dict()
    unwanted = {ref for ref in prepared if not state.ledger.is_live(ref)}
    return {
        "version": _VERSION,
        "ledger": {**ledger, "unwanted": sorted(unwanted.union(ledger["unwanted"]))},
        "decisions": None if state.ledger.decisions is None else state.ledger.decisions.to_dict(),
        "encoding": _encoding_of(counter),
        "tokens": dict(tokens),
        "fresh": [list(key) for key in state.fresh],
        "withheld": list(state.withheld),
        "blocked": sorted([list(key), list(path)] for key, path in state.blocked),
        "calibration": state.budget.to_dict(),
        "summary_place": state.shown.summary_place,
        "synced": [list(one) for one in followed],
        "markers": dict(markers),
    }


def read_saved(data: object, config: CompressionConfig, counter: TokenCounter) -> Loaded:
    """Read the saved form, None being that of an empty memory.

    Raises:
        InvalidStateError: an unknown version, or a key that is missing or malformed.
    """
    if data is None:
        return Loaded(MemoryState(config, counter), {}, [], {})
    try:
        return _read(data, config, counter)
    except InvalidStateError as error:
        mend = f"without its key {SAVED_KEY!r} the state loads, and the view is made anew"
        raise InvalidStateError(f"{error}; {mend}") from error


def _read(data: object, config: CompressionConfig, counter: TokenCounter) -> Loaded:
    if not isinstance(data, Mapping):
        raise InvalidStateError(f"compression: expected a dict, got {type(data).__name__}")
    version = data.get("version")
    if version != _VERSION:
        raise InvalidStateError(
            f"compression.version: this release reads {_VERSION}, the state has {version!r}"
        )
    tokens = data.get("tokens")
    if not isinstance(tokens, dict) or not all(type(count) is int for count in tokens.values()):
        raise InvalidStateError("compression.tokens: expected a dict of integers")
    state = MemoryState(config, counter)
    state.ledger = Ledger.from_dict(data.get("ledger"))
    decisions = data.get("decisions")  # earlier releases did not save it
    state.ledger.decisions = None if decisions is None else Decisions.from_dict(decisions)
    fresh = data.get("fresh")
    if not isinstance(fresh, list) or not all(_is_item_key(key) for key in fresh):
        raise InvalidStateError("compression.fresh: expected a list of pairs of strings")
    state.fresh = {ItemKey(*key): 0 for key in fresh}
    withheld = data.get("withheld", [])  # earlier releases did not save it
    if not isinstance(withheld, list) or not all(isinstance(key, str) for key in withheld):
        raise InvalidStateError("compression.withheld: expected a list of strings")
    state.withheld = withheld
    is_same_counter = data.get("encoding") == _encoding_of(counter)
    blocked = data.get("blocked", [])  # earlier releases did not save it
    if not isinstance(blocked, list) or not all(_is_text_key(one) for one in blocked):
        raise InvalidStateError(
            "compression.blocked: expected pairs of a pair of strings and a list of integers"
        )
    if is_same_counter:  # by another count a stub may be smaller than its text
        state.blocked = {(ItemKey(*key), tuple(path)) for key, path in blocked}
    state.budget = BudgetInForce.load(data.get("calibration"), config, same_counter=is_same_counter)
    place = data.get("summary_place")  # earlier releases did not save it
    if place is not None and (type(place) is not int or place < 0):
        raise InvalidStateError(f"compression.summary_place: expected an integer or None, got {place!r}")
    state.shown.summary_place = place
    followed = read_followed(data.get("synced", []), known=tokens)
    markers = data.get("markers", {})  # earlier releases did not save it
    if not isinstance(markers, dict) or not all(map(are_markers, markers.values())):
        raise InvalidStateError("compression.markers: expected the request metadata of each message")
    return Loaded(state, dict(tokens) if is_same_counter else {}, followed, markers)


def _encoding_of(counter: TokenCounter) -> object:
    return getattr(counter, "encoding_name", None)


def _is_item_key(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)


def _is_text_key(value: object) -> bool:
    if not isinstance(value, list) or len(value) != 2 or not _is_item_key(value[0]):
        return False
    return isinstance(value[1], list) and all(type(step) is int for step in value[1])


async def write_state(path: str | PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a state to a file as a whole or not at all: beside it, durable, then in its place.

    Raises:
        OSError: the file could not be written; the one that was there is as it was.
    """
    await asyncio.to_thread(_write, Path(path), json.dumps(state))


def _write(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


async def read_state(path: str | PathLike[str]) -> dict[str, Any]:
    """Read a state from a file.

    Raises:
        InvalidStateError: it holds no state, as a file that was written half.
        OSError: it cannot be read.
    """
    async with aiofiles.open(path, encoding="utf-8", errors="replace") as file:
        text = await file.read()
    try:
        state = json.loads(text)
    except ValueError as error:
        raise InvalidStateError(
            f"{path}: no JSON ({error}); it may have been written half: load an earlier copy, or begin "
            "without it"
        ) from error
    if not isinstance(state, dict):
        raise InvalidStateError(f"{path}: expected a dict, got {type(state).__name__}")
    return state
