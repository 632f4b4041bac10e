"""What must be true of what the processes of `writers.py` noted, and of what is there at the end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.writers_work import (
    BUDGET,
    Job,
    Opened,
    bytes_of,
    history_of,
    id_of,
    parts_noted,
    read_notes,
)
from context_compressor.core.edits import SegmentEdit

Note = dict[str, Any]
_REF = re.compile(r"ctx://[0-9a-f]{16}")


@dataclass
class Outcome:
    """What came of a run."""

    anomalies: list[str] = field(default_factory=list)
    looks: int = 0
    shared_heads: int = 0
    """Heads of which several views were noted."""
    paid: int = 0
    committed: int = 0
    taken_over: int = 0
    kills: int = 0
    pauses: int = 0
    seconds: float = 0.0

    def check(self, is_right: bool, text: str) -> None:
        if not is_right:
            self.anomalies.append(text)


def check_operations(notes: Sequence[Note], ids: Sequence[str], outcome: Outcome) -> None:
    """Check what was acknowledged when against the order in which it is there.

    A message that was acknowledged before another one was begun stands before it; a view shows no less than
    was acknowledged before, and the views of one head are one.

    Args:
        notes: of all processes, in the order of time.
        ids: of the messages that are there, in order.
        outcome: receives what is wrong.
    """
    begun, acknowledged = dict[str, int](), dict[str, int]()
    for note in notes:
        if note["kind"] == "add":
            begun.setdefault(note["id"], note["at"])
        elif note["kind"] == "added":
            acknowledged[note["id"]] = note["at"]
    there = set(ids)
    outcome.check(len(there) == len(ids), "a message is there twice")
    outcome.check(there <= begun.keys(), "a message is there that nobody added")
    outcome.check(acknowledged.keys() <= there, "an acknowledged message is missing")
    first_end = float("inf")
    for id in reversed(ids):
        outcome.check(begun.get(id, 0) <= first_end, f"{id} stands before one that was there earlier")
        first_end = min(first_end, acknowledged.get(id, float("inf")))
    _check_views(notes, sorted(begun.values()), sorted(acknowledged.values()), outcome)


def _check_views(notes: Sequence[Note], begun: list[int], acknowledged: list[int], outcome: Outcome) -> None:
    looked, views = dict[int, int](), list[tuple[int, Note]]()
    by_head: dict[int, list[str]] = {}
    for note in notes:
        if note["kind"] == "look":
            looked[note["process"]] = note["at"]
        elif note["kind"] == "view":
            outcome.looks += 1
            outcome.check(note["tokens"] <= BUDGET, "a view is over budget")
            if note["number"] is not None:
                views.append((looked[note["process"]], note))
                by_head.setdefault(note["number"], []).append(note["digest"])
    for number, digests in by_head.items():
        outcome.check(len(set(digests)) == 1, f"of head {number} there are views that differ")
        outcome.shared_heads += len(digests) > 1
    for began, note in views:
        least = sum(at < began for at in acknowledged)
        most = sum(at < note["at"] for at in begun)
        outcome.check(note["size"] >= least, f"a view knows {note['size']} of {least} messages")
        outcome.check(note["size"] <= most, f"a view knows {note['size']} messages, there were {most}")
    newest = 0
    ends = iter(sorted((note["at"], note["number"]) for _, note in views))
    ended = next(ends, None)
    for began, note in sorted(views, key=lambda view: view[0]):
        while ended is not None and ended[0] < began:
            newest, ended = max(newest, ended[1]), next(ends, None)
        outcome.check(note["number"] >= newest, "a view is of an earlier head than one that was shown before")


async def check_end(pool: Opened, job: Job, outcome: Outcome) -> list[str]:
    """Check what is there at the end; return the ids of the messages in order."""
    memories = [pool.memory(job.session, None) for _ in range(3)]
    views = [await memory.get_memory() for memory in memories]
    outcome.check(len(set(map(bytes_of, views))) == 1, "those who open the session see different views")
    ids = [msg.id for msg in await memories[0].get_history()]
    for writer in range(job.writers):
        expected = [id_of(writer, number) for number in range(job.messages)]
        found = [id for id in ids if id.startswith(f"w{writer}-")]
        outcome.check(found == expected, f"writer {writer}: {len(found)} messages, or not in order")
    outcome.committed += sum(parts_noted(str(msg.content)) for msg in views[0])
    refs = {ref for msg in views[0] for ref in _REF.findall(str(msg.content))}
    seen, store = set[str](), pool.store(job.session)
    said = "\n".join(str(msg.content) for msg in views[0])
    while refs:
        ref = refs.pop()
        seen.add(ref)
        text = await store.read(ref)
        said += text
        refs |= set(_REF.findall(text)) - seen
    missing = [id for id in ids if id not in said]
    outcome.check(not missing, f"neither in the view nor under its refs: {missing[:3]}")
    edits = [edit for entry in await history_of(memories[0]).ledger() for edit in entry.edits]
    segments = [edit for edit in edits if isinstance(edit, SegmentEdit)]
    covered = [item for segment in segments for item in segment.items]
    outcome.check(len(covered) == len(set(covered)), "two parts cover one message")
    for memory in memories:
        await memory.aclose()
    return ids


def check_payments(notes: Iterable[Note], outcome: Outcome) -> None:
    """Check that each part was paid for once, and what was paid for besides is accounted for."""
    paid = [note["material"] for note in notes if note["kind"] == "paid"]
    told: dict[int, int] = {}
    for note in notes:
        if note["kind"] in ("view", "paid"):  # whoever is killed may have paid since the last view
            told[note["process"]] = note["taken_over"]
    outcome.paid, outcome.taken_over = len(paid), sum(told.values())
    wasted = outcome.paid - outcome.committed
    outcome.check(wasted >= 0, f"{-wasted} parts were committed that nobody paid for")
    if outcome.kills or outcome.pauses:
        known = outcome.taken_over + outcome.kills
        outcome.check(wasted <= known, f"{wasted} parts paid for twice, {known} known of")
    else:
        outcome.check(not wasted, f"{wasted} parts paid for twice without a kill or a pause")
        outcome.check(not outcome.taken_over, "an event was taken over without a kill or a pause")
        outcome.check(len(set(paid)) == len(paid), "the same material was paid for twice")


async def check(pool: Opened, job: Job, outcome: Outcome) -> None:
    """Check everything that a run left."""
    files = sorted(job.folder.glob("operations-*.jsonl"))
    notes = sorted((note for file in files for note in read_notes(file)), key=lambda note: note["at"])
    ids = await check_end(pool, job, outcome)
    check_operations(notes, ids, outcome)
    check_payments(notes, outcome)
