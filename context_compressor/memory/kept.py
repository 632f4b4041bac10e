"""The records of conversations that are kept beyond a process, and removing what no list says any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from context_compressor.core.edits import refs_in
from context_compressor.errors import InvalidStateError
from context_compressor.memory.saved import SAVED_KEY
from context_compressor.memory.stateless import LEFT_KEY
from context_compressor.offload.store import REF_PREFIX

MOST_UNDER_A_KEY = 8
"""Conversations that are kept under one key: an agent's, and those of the agents that it calls."""
_VERSION = 1

Saved = dict[str, Any]
"""A conversation: `spoken`, hashes of the pieces of its list; `state`, as `compress_messages` returns it;
`notes` of an adapter; and `left_at`, when lists began to say something else in its place."""


def conversations_in(record: object, key: str) -> list[Saved]:
    """Return the conversations that a record holds.

    Raises:
        InvalidStateError: it is no such record.
    """
    found = record.get("conversations") if isinstance(record, Mapping) else None
    if not isinstance(found, list) or record.get("version") != _VERSION:  # type: ignore[attr-defined]
        raise InvalidStateError(f"states: the state under {key!r} was not set by an adapter of this release")
    for one in found:
        spoken = one.get("spoken") if isinstance(one, Mapping) else None
        if not (
            isinstance(spoken, list)
            and all(isinstance(id, str) for id in spoken)
            and isinstance(one.get("state"), dict)
            and isinstance(one.get("notes", {}), dict)
            and isinstance(one.get("left_at"), int | float | None)
        ):
            raise InvalidStateError(f"states: the state under {key!r} is no list of conversations")
    return found


def is_record(record: object) -> bool:
    """Tell whether a record is one of conversations; others keep something else beside them."""
    return isinstance(record, Mapping) and "conversations" in record


def is_newer(record: object) -> bool:
    """Tell whether a newer release set a record."""
    version = record.get("version") if isinstance(record, Mapping) else None
    return type(version) is int and version > _VERSION


def record_of(conversations: Sequence[Saved]) -> dict[str, Any]:
    """Return the record to keep under a key."""
    return {"version": _VERSION, "conversations": list(conversations)[-MOST_UNDER_A_KEY:]}


def tidied(record: object, key: str, now: float, seconds: float) -> tuple[dict[str, Any], set[str]]:
    """Return a record without what no list has said for `seconds`, and the refs of the texts of that.

    Raises:
        InvalidStateError: it is no such record.
    """
    kept: list[Saved] = []
    gone: set[str] = set()
    for one in conversations_in(record, key):
        state = one["state"]
        if is_over(one.get("left_at"), now, seconds):
            gone |= named_in(state) | left_in(state)
            continue
        left = state.get(LEFT_KEY, {})
        over = {digits for digits, since in left.items() if is_over(since, now, seconds)}
        gone |= {f"{REF_PREFIX}{digits}" for digits in over}
        left = {digits: since for digits, since in left.items() if digits not in over}
        bare = {name: value for name, value in state.items() if name != LEFT_KEY}
        notes = {name: _without_left(noted, now, seconds) for name, noted in one.get("notes", {}).items()}
        kept.append({**one, "state": {**bare, LEFT_KEY: left} if left else bare, "notes": notes})
    return record_of(kept), gone


def _without_left(noted: Any, now: float, seconds: float) -> Any:
    """Return notes of an adapter without those that no list goes on from any more."""
    if not isinstance(noted, list):
        return noted
    return [
        one for one in noted if not (isinstance(one, Mapping) and is_over(one.get("left_at"), now, seconds))
    ]


def named_in(state: Mapping[str, Any]) -> set[str]:
    """Return the refs that a state names.

    Raises:
        InvalidStateError: it cannot be read.
    """
    saved = state.get(SAVED_KEY)
    ledger = saved.get("ledger") if isinstance(saved, Mapping) else None
    entries = ledger.get("entries") if isinstance(ledger, Mapping) else None
    return set(refs_in(entries if isinstance(entries, list) else ()))


def left_in(state: Mapping[str, Any]) -> set[str]:
    """Return the refs of the texts that a state is to remove when their time is over."""
    return {f"{REF_PREFIX}{digits}" for digits in state.get(LEFT_KEY, ())}


def is_over(left_at: float | None, now: float, seconds: float) -> bool:
    """Tell whether something has not been said for so many seconds."""
    return left_at is not None and now - min(left_at, now) >= seconds
