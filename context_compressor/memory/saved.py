"""The saved form of what a compressed memory keeps beside the history, read and checked by pydantic.

With the history grow the key and the tokens of each message, some 35 bytes, and what `Ledger` tells of merged
segments. Their words are in the store.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import aiofiles
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    InstanceOf,
    StrictInt,
    TypeAdapter,
    ValidationError,
)

from context_compressor.core.config import CompressionConfig
from context_compressor.core.edits import Item, Text
from context_compressor.core.ledger import Ledger, SavedLedger
from context_compressor.errors import InvalidStateError
from context_compressor.memory.budget import BudgetInForce, SavedBudget
from context_compressor.memory.in_memory import with_split_pairs, without_split_pairs
from context_compressor.memory.listing import Followed
from context_compressor.memory.state import MemoryState
from context_compressor.messages.exchanges import Decisions
from context_compressor.messages.markers import Markers
from context_compressor.messages.remark import are_markers
from context_compressor.messages.text import has_split_pair
from context_compressor.offload.folders import replacing
from context_compressor.tokens.counter import TokenCounter

SAVED_KEY = "compression"
"""Where the saved form stands beside the base memory's own keys."""
VERSION = 2


def _checked_markers(value: Any) -> Any:
    if not are_markers(value):
        raise ValueError("expected the request metadata of a message")
    return value


@dataclass(frozen=True, slots=True)
class Saved:
    """The saved form; what has a default is missing in states of earlier releases."""

    version: Literal[2]
    ledger: SavedLedger
    tokens: dict[Text, StrictInt]
    """Tokens of every known message, by key."""
    fresh: list[Item]
    """Items that no view has shown."""
    encoding: InstanceOf[object] = None
    """Who counted."""
    decisions: Annotated[InstanceOf[Decisions], BeforeValidator(Decisions.from_dict)] | None = None
    withheld: list[Text] = field(default_factory=list)
    """Keys of messages that wait for results."""
    blocked: list[tuple[Item, tuple[StrictInt, ...]]] = field(default_factory=list)
    """Texts that could not be stubbed."""
    calibration: SavedBudget | None = None
    summary_place: Annotated[StrictInt, Field(ge=0)] | None = None
    synced: list[tuple[Text | list[Text], Text] | tuple[Text | list[Text], Text, list[tuple[Text, Text]]]] = (
        field(default_factory=list)
    )
    """Ids and digests of what came from a list: an id, or those of all messages that one item gave. Behind
    them, where something of it was deleted, digests and ids of its units."""
    markers: dict[Text, Annotated[Any, AfterValidator(_checked_markers)]] = field(default_factory=dict)


@cache  # made for the first state that is read
def _adapter() -> TypeAdapter[Saved]:
    return TypeAdapter(Saved)


class Loaded(NamedTuple):
    """What a saved form says."""

    state: MemoryState
    tokens: dict[str, int]
    """Tokens of the messages that were counted, by key; none where another counter counted them."""
    followed: list[Followed]
    """The messages that came from a list."""
    known: Collection[str]
    """Keys of the messages that the history had."""
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
    with_words: bool = True,
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
        with_words: as `Ledger.to_dict` takes it.
    """
    ledger = state.ledger.to_dict(with_words=with_words)
    unwanted = {ref for ref in prepared if not state.ledger.is_live(ref)}
    saved = {
        "version": VERSION,
        "ledger": {**ledger, "unwanted": sorted(unwanted.union(ledger["unwanted"]))},
        "decisions": None if state.ledger.decisions is None else state.ledger.decisions.to_dict(),
        "encoding": _encoding_of(counter),
        "fresh": [list(key) for key in state.fresh],
        "withheld": list(state.withheld),
        "blocked": sorted([list(key), list(path)] for key, path in state.blocked),
        "calibration": state.budget.to_dict(),
        "summary_place": state.shown.summary_place,
        "synced": [
            [ids[0] if len(ids) == 1 else list(ids), digest, *([list(map(list, units))] if units else [])]
            for ids, digest, units in followed
        ],
        "markers": dict(markers),
    }
    if has_split_pair("".join(tokens)):
        return with_split_pairs({**saved, "tokens": dict(tokens)})
    return {**with_split_pairs(saved), "tokens": dict(tokens)}  # keys are mostly of our making


def read_saved(data: object, config: CompressionConfig, counter: TokenCounter) -> Loaded:
    """Read the saved form, None being that of an empty memory.

    Raises:
        InvalidStateError: an unknown version, or a key that is missing or malformed.
    """
    if data is None:
        return Loaded(MemoryState(config, counter), {}, [], (), {})
    try:
        return _read(data, config, counter)
    except InvalidStateError as error:
        mend = f"without its key {SAVED_KEY!r} the state loads, and the view is made anew"
        raise InvalidStateError(f"{error}; {mend}") from error


def _read(data: object, config: CompressionConfig, counter: TokenCounter) -> Loaded:
    saved = _checked(data)
    state = MemoryState(config, counter)
    state.ledger = Ledger.load(saved.ledger)
    state.ledger.decisions = saved.decisions
    state.fresh = dict.fromkeys(saved.fresh, 0)
    state.withheld = saved.withheld
    state.shown.summary_place = saved.summary_place
    followed = [
        Followed((ids,) if isinstance(ids, str) else tuple(ids), digest, *map(tuple, units))
        for ids, digest, *units in saved.synced
    ]
    if saved.encoding != _encoding_of(counter):
        # By another count a stub may be smaller than its text, and a view fit.
        return Loaded(state, {}, followed, saved.tokens, saved.markers)
    state.blocked = set(saved.blocked)
    state.budget = BudgetInForce.load(saved.calibration, config)
    return Loaded(state, saved.tokens, followed, saved.tokens, saved.markers)


def _checked(data: object) -> Saved:
    """Return what a state of any form says.

    Raises:
        InvalidStateError: it is malformed; the text names the place.
    """
    if not isinstance(data, Mapping):
        raise InvalidStateError(f"{SAVED_KEY}: expected a dict, got {type(data).__name__}")
    version = data.get("version")
    if version not in (1, VERSION):
        raise InvalidStateError(f"{SAVED_KEY}.version: this release reads 1 and 2, the state has {version!r}")
    data = without_split_pairs(data, f"{SAVED_KEY}.")
    try:
        return _adapter().validate_python(_form_2(data) if version == 1 else data)
    except ValidationError as error:
        raise InvalidStateError(fault_of(error, SAVED_KEY)) from error


def fault_of(error: ValidationError, place: str = "") -> str:
    """Return what is wrong with saved data, behind its place within what stands at `place`."""
    fault = error.errors(include_url=False)[0]
    for step in fault["loc"]:
        if step not in ("stub", "segment"):  # which kind of edit it was read as
            place += f"[{step}]" if isinstance(step, int) else f".{step}"
    told = fault["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    if fault["type"] == "dataclass_type":
        told = "expected a dict"
    elif fault["type"] == "is_instance_of":
        told = f"expected {fault['ctx']['class']}"
    elif fault["type"] == "missing":
        return f"{place.removeprefix('.')}: missing"
    return f"{place.removeprefix('.')}: {told}, got {type(fault['input']).__name__}"


def _form_2(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what form 1 says as form 2 says it; its ledger and its calibration had versions of their own."""
    for name in ("ledger", "calibration"):
        part = data.get(name)
        if isinstance(part, Mapping) and part.get("version") != 1:
            version = part.get("version")
            raise InvalidStateError(
                f"{SAVED_KEY}.{name}.version: this release reads 1, the state has {version!r}"
            )
    budget = data.get("calibration")
    if isinstance(budget, Mapping) and "reports" in budget:
        budget = {**budget, "learnt": budget}
    return {**data, "version": VERSION, "calibration": budget}


def _encoding_of(counter: TokenCounter) -> object:
    return getattr(counter, "encoding_name", None)


async def write_state(path: str | PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a state to a file as a whole or not at all: beside it, durable, then in its place.

    Raises:
        OSError: the file could not be written; the one that was there is as it was.
    """
    await asyncio.to_thread(_write, Path(path), json.dumps(state))


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode("ascii"))


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
    except (ValueError, RecursionError) as error:
        raise InvalidStateError(
            f"{path}: no whole state ({error}); it may have been written half: load an earlier copy, or "
            "begin without it"
        ) from error
    if not isinstance(state, dict):
        raise InvalidStateError(f"{path}: expected a dict, got {type(state).__name__}")
    return state
