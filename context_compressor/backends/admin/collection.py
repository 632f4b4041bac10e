"""Removing texts that no live ledger names, from any store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from context_compressor.backends.admin.deletion import DAY_SECONDS, engines_of
from context_compressor.backends.admin.namespaces import Namespace, namespace_of, namespaces_of
from context_compressor.backends.admin.opening import sessions_of
from context_compressor.backends.admin.sessions import RemovedObject, SessionDirectory
from context_compressor.compression.config import CompressionConfig
from context_compressor.errors import InvalidArgumentError, InvalidStateError, OffloadError, check_number
from context_compressor.memory.kept import tidied
from context_compressor.offload.folders import ABANDONED_SECONDS
from context_compressor.offload.store import OffloadStore, StoredText

WAIT_SECONDS = 5.0
"""Seconds to wait for others who use an SQLite file."""
BRANCH_SECONDS: float = CompressionConfig.model_fields["branch_seconds"].default


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
    given = list(bases) if isinstance(bases, list | tuple) else [bases]
    directories = [one if isinstance(one, SessionDirectory) else sessions_of(one)[0] for one in given]
    spaces = await namespaces_of(store) if all_namespaces else [namespace_of(store)]
    over: set[str] = set()
    problems: list[str] = []
    for directory in directories:
        states = directory.states()
        for key in await states.keys():
            try:
                _, gone = tidied(await states.get(key), key, time.time(), branch_seconds)
                over |= gone
                if not dry_run:
                    await states.exchange(key, partial(_without_left, key, branch_seconds))
            except InvalidStateError as error:
                problems.append(str(error))
    # First the texts, then the ledgers: whatever is named in between is found.
    listed = [(space, await space.stored()) for space in spaces]
    named: set[str] = set()
    for directory in directories:
        named = named.union(*await directory.named_refs())
    has_ledgers = bool(named)
    chosen: list[tuple[Namespace, StoredText]] = []
    counts = {"named": 0, "young": 0}
    for space, texts in listed:
        own = named | space.refs_of_states()
        for text in texts:
            if text.ref in own:
                counts["named"] += 1
            elif text.age_seconds < grace_seconds and text.ref not in over:
                counts["young"] += 1
            else:
                chosen.append((space, text))
    if chosen and not has_ledgers and not dry_run:
        raise InvalidArgumentError(
            f"no ledger there names any text, and {len(chosen)} would be removed: if these are the right "
            "databases, and all sessions are over, remove the store itself"
        )
    removed: list[RemovedObject] = []
    halves: list[tuple[str, int]] = []
    for space, text in chosen:
        try:
            if not dry_run:
                await space.delete(text.ref)
            removed.append(RemovedObject("text", space.where(text.ref), text.bytes))
        except OffloadError as error:
            problems.append(str(error))
    for space in spaces if not dry_run else ():
        try:
            halves += await space.remove_halves(ABANDONED_SECONDS)
        except (OffloadError, OSError) as error:
            problems.append(str(error))
    removed += [RemovedObject("file", where, size) for where, size in halves]
    for engine in engines_of(*directories, store) if not dry_run else ():
        from context_compressor.backends.sql.engines import empty_log

        if not await empty_log(engine, WAIT_SECONDS):
            problems.append("the log of SQLite's file was not emptied: others use it; try again")
    before = sum(text.bytes for _, texts in listed for text in texts) + sum(size for _, size in halves)
    after = before - sum(one.bytes for one in removed)
    return TextCollection(
        tuple(removed), len(spaces), counts["named"], counts["young"], before, after, tuple(problems), dry_run
    )


def _without_left(key: str, branch_seconds: float, record: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what a state becomes; None: it stays as it is."""
    if record is None:
        return None
    changed, _ = tidied(record, key, time.time(), branch_seconds)
    return None if changed == record else changed
