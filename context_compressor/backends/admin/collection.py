"""Removing texts that nothing names from any store, as the ledgers of whole databases tell."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from context_compressor.backends.admin.opening import sessions_of
from context_compressor.backends.admin.sessions import RemovedObject, SessionDirectory, refs_in_state
from context_compressor.core.config import CompressionConfig
from context_compressor.errors import InvalidArgumentError, InvalidStateError, OffloadError, check_number
from context_compressor.memory.kept import is_over, is_record, tidied
from context_compressor.offload.folders import ABANDONED_SECONDS
from context_compressor.offload.packed import PackedOffloadStore
from context_compressor.offload.store import KeepingStore, OffloadStore, StoredText

DAY_SECONDS = 24 * 3600.0
"""How long a text that nothing names is taken for one of an event under way: by far longer than one takes."""
WAIT_SECONDS = 5.0
"""Seconds to wait for others who use an SQLite file."""
BRANCH_SECONDS: float = CompressionConfig.model_fields["branch_seconds"].default


# What lies in a store


class OtherNamespace:
    """A store of a caller's own class, of which only the refs are known."""

    def __init__(self, store: OffloadStore) -> None:
        self.label = type(store).__name__
        self.delete = store.delete
        self._store = store

    async def stored(self) -> list[StoredText]:
        """Return what is stored; how large or how old it is nobody knows."""
        return [StoredText(ref, 0, 0.0) for ref in await self._store.refs()]

    def where(self, ref: str) -> str:
        """Return what is known of where a text lies."""
        return f"{self.label} {ref}"

    async def remove_halves(self, older_than: float) -> list[tuple[str, int]]:  # noqa: ARG002
        """Do nothing: nobody knows of any."""
        return []

    async def remove_index(self) -> list[tuple[str, int]]:
        """Do nothing: nobody knows of one."""
        return []

    def refs_of_states(self) -> set[str]:
        """Return nothing: nobody knows of any."""
        return set()

    def is_of(self, user_id: str, session_id: str) -> bool:  # noqa: ARG002
        """Return False: nobody knows."""
        return False


Namespace = PackedOffloadStore | OtherNamespace
"""What a store holds under one name."""


def namespace_of(store: OffloadStore) -> Namespace:
    """Return the namespace that a store stands for."""
    if isinstance(store, KeepingStore):
        return namespace_of(store.wrapped)
    return store if isinstance(store, PackedOffloadStore) else OtherNamespace(store)


@dataclass(slots=True)
class Sweep:
    """What was removed from a namespace, or would be, and what stayed."""

    removed: list[RemovedObject] = field(default_factory=list)
    named: list[StoredText] = field(default_factory=list)
    """Texts that something names."""
    young: list[StoredText] = field(default_factory=list)
    """Texts that nothing names, and that stay since they are young."""
    problems: list[str] = field(default_factory=list)
    """What could not be removed, and why."""


async def sweep(
    space: Namespace,
    texts: Sequence[StoredText],
    named: Collection[str],
    *,
    grace_seconds: float,
    gone: Collection[str] = (),
    dry_run: bool = False,
) -> Sweep:
    """Remove from a namespace the texts that nobody names.

    Args:
        space: the namespace.
        texts: what lies there.
        named: refs that are named.
        grace_seconds: how long a text is young: an event stores its texts before a ledger names them.
        gone: refs that are nobody's any more, young or not.
        dry_run: only tell what would be removed.
    """
    done = Sweep()
    for text in texts:
        if text.ref in named:
            done.named.append(text)
        elif text.age_seconds < grace_seconds and text.ref not in gone:
            done.young.append(text)
        else:
            try:
                if not dry_run:
                    await space.delete(text.ref)
                done.removed.append(RemovedObject("text", space.where(text.ref), text.bytes))
            except OffloadError as error:
                done.problems.append(str(error))
    return done


def sqlite_engines(*places: object) -> dict[Path, Any]:
    """Return the engines of those places that are in SQLite's files, by file."""
    engines = [engine for one in reversed(places) if (engine := getattr(one, "engine", None)) is not None]
    if not engines:
        return {}
    from context_compressor.backends.sql.engines import sqlite_file

    return {file: engine for engine in engines if (file := sqlite_file(engine)) is not None}


# Collections


@dataclass(frozen=True, slots=True)
class TextCollection:
    """What a collection of texts found and did."""

    removed: tuple[RemovedObject, ...]
    namespaces: int
    """How many were looked at."""
    named: int
    """Texts that a live ledger names."""
    young: int
    """Texts that nothing names, and that stay since they are young."""
    bytes_before: int
    bytes_after: int
    forgotten: int = 0
    """States of conversations that nobody had set for `forget_seconds`."""
    problems: tuple[str, ...] = ()
    """What could not be removed, and why."""
    is_dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-like data."""
        return {**asdict(self), "removed": [one._asdict() for one in self.removed]}


async def collect_texts(
    bases: object | Sequence[object],
    store: OffloadStore,
    *,
    grace_seconds: float = DAY_SECONDS,
    branch_seconds: float = BRANCH_SECONDS,
    forget_seconds: float | None = None,
    all_namespaces: bool = True,
    dry_run: bool = False,
) -> TextCollection:
    """Remove the texts of a store that no live ledger names, and that are not young.

    The ledgers are all those of the databases given: a session that is kept elsewhere, and whose texts are in
    the same namespaces, would lose its texts. Those of conversations whose states lie beside the texts stay.

    Args:
        bases: a `SQLAlchemyMemory`, a `RedisMemory` or a `SessionDirectory`, or several: for every database
            that has sessions with texts there. All sessions beside the given one count.
        store: where the texts are.
        grace_seconds: how long a text is young: an event stores its texts before the ledger names them.
        branch_seconds: how long adapters keep what their lists say no more. What was not said for longer
            goes from the states beside the sessions, and its texts with it, young or not.
        forget_seconds: how long a state is kept that nobody sets, as a gateway does where something happens
            in a conversation; its texts go with it. None: for ever. A list that comes back is a new one.
        all_namespaces: whether to look at all namespaces of the store, or at its own alone.
        dry_run: only tell what would be removed.

    Raises:
        InvalidArgumentError: no ledger names any text, though there are some to remove: then these are
            hardly the right databases.
        InvalidStateError: a ledger cannot be read; nothing was removed.
        OffloadError: the store could not be listed; nothing was removed.
    """
    check_number("grace_seconds", grace_seconds)
    check_number("branch_seconds", branch_seconds)
    if forget_seconds is not None:
        check_number("forget_seconds", forget_seconds)
    given = list(bases) if isinstance(bases, list | tuple) else [bases]
    directories = [one if isinstance(one, SessionDirectory) else sessions_of(one)[0] for one in given]
    space = namespace_of(store)
    spaces: Sequence[Namespace] = [space]
    if all_namespaces and isinstance(space, PackedOffloadStore):
        spaces = await space.namespaces()
    over: set[str] = set()
    forgotten: dict[int, list[str]] = {}
    problems: list[str] = []
    conversations, now = 0, time.time()
    for place, directory in enumerate(directories):
        states = directory.states()
        for key, set_at in (await states.set_at()).items():
            try:
                state = await states.get(key)
                if is_over(set_at, now, inf if forget_seconds is None else forget_seconds):
                    over |= refs_in_state(state)
                    forgotten.setdefault(place, []).append(key)
                    conversations += is_record(state)
                    if not dry_run:
                        await states.delete(key)
                elif is_record(state):
                    _, gone = tidied(state, key, now, branch_seconds)
                    over |= gone
                    if not dry_run:
                        await states.exchange(key, partial(_without_left, key, branch_seconds))
            except InvalidStateError as error:
                problems.append(str(error))
    # First the texts, then the ledgers: whatever is named in between is found.
    listed = [await space.stored() for space in spaces]
    ledgers = set[str]().union(
        *[
            refs
            for place, one in enumerate(directories)
            for refs in await one.named_refs(without=forgotten.get(place, ()) if dry_run else ())
        ]
    )
    named = [ledgers | space.refs_of_states() for space in spaces]

    async def sweep_all(*, dry_run: bool) -> list[Sweep]:
        return [
            await sweep(space, texts, own, grace_seconds=grace_seconds, gone=over, dry_run=dry_run)
            for space, texts, own in zip(spaces, listed, named, strict=True)
        ]

    swept = await sweep_all(dry_run=True)
    chosen = sum(len(one.removed) for one in swept)
    if chosen and not (ledgers or forgotten or dry_run):
        raise InvalidArgumentError(
            f"no ledger there names any text, and {chosen} would be removed: if these are the right "
            "databases, and all sessions are over, remove the store itself"
        )
    halves: list[RemovedObject] = []
    if not dry_run:
        swept = await sweep_all(dry_run=False)
        for space in spaces:
            try:
                found = await space.remove_halves(ABANDONED_SECONDS)
                halves += [RemovedObject("file", where, size) for where, size in found]
            except OffloadError as error:
                problems.append(str(error))
        for engine in sqlite_engines(*directories, store).values():
            from context_compressor.backends.sql.engines import empty_log

            if not await empty_log(engine, WAIT_SECONDS):
                problems.append("the log of SQLite's file was not emptied: others use it; try again")
    removed = [*(each for one in swept for each in one.removed), *halves]
    before = sum(text.bytes for texts in listed for text in texts) + sum(each.bytes for each in halves)
    return TextCollection(
        removed=tuple(removed),
        namespaces=len(spaces),
        named=sum(len(one.named) for one in swept),
        forgotten=conversations,
        young=sum(len(one.young) for one in swept),
        bytes_before=before,
        bytes_after=before - sum(each.bytes for each in removed),
        problems=(*problems, *(problem for one in swept for problem in one.problems)),
        is_dry_run=dry_run,
    )


def _without_left(key: str, branch_seconds: float, record: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what a state becomes; None: it stays as it is."""
    if record is None:
        return None
    changed, _ = tidied(record, key, time.time(), branch_seconds)
    return None if changed == record else changed
