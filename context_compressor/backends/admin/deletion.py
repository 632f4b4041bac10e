"""Deleting sessions and messages for good, and saying what that took."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from context_compressor.backends.admin.collection import (
    DAY_SECONDS,
    Namespace,
    namespace_of,
    sqlite_engines,
    sweep,
)
from context_compressor.backends.admin.opening import sessions_of
from context_compressor.backends.admin.sessions import RemovedObject, SessionDirectory, named_by
from context_compressor.core.edits import name_of
from context_compressor.errors import (
    ConflictError,
    InvalidArgumentError,
    InvalidStateError,
    OffloadError,
    SessionNotFoundError,
)
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.memory.history import History
from context_compressor.offload.folders import ABANDONED_SECONDS
from context_compressor.offload.store import OffloadStore

REWRITE_SECONDS = 30.0
_DISTRIBUTION = "agent-context-compressor"


_HASH = re.compile(r"(?<![0-9a-f])[0-9a-f]{16,}(?![0-9a-f])")


@dataclass(slots=True)
class Deletion:
    """What a deletion did."""

    user_id: str
    session_id: str
    place: str
    """The database, or Redis."""
    store: str | None
    """The namespace of the texts."""
    messages: Sequence[str] | None = None
    """Ids of the messages that were asked to go; None: the whole session."""
    objects: list[RemovedObject] = field(default_factory=list)
    """All that was removed or rewritten."""
    kept: list[tuple[str, str]] = field(default_factory=list)
    """Texts that stay in the namespace, and why."""
    problems: list[str] = field(default_factory=list)
    """What could not be done."""
    not_reached: Sequence[str] = ()
    """Where what was deleted may still lie, and which no program of ours reaches."""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def is_complete(self) -> bool:
        """Whether all was done."""
        return not self.problems

    def certificate(self) -> str:
        """Return the deletion as a text in JSON, an object a line, for people and programs.

        It has no word of what was deleted, nor a hash of it: short texts could be guessed by that. Numbers
        stand for the hashes that name places of texts, the same number for the same hash.
        """
        numbers: dict[str, str] = {}

        def shown(where: str) -> str:
            return _HASH.sub(lambda one: numbers.setdefault(one[0], f"#{len(numbers) + 1}"), where)

        told: dict[str, Any] = {
            "certificate": "deletion from context-compressor",
            "version": 1,
            "user_id": self.user_id,
            "session_id": self.session_id,
            "messages": "all" if self.messages is None else list(self.messages),
            "place": self.place,
            "store": None if self.store is None else shown(self.store),
            "deleted_at": self.at.isoformat(timespec="seconds"),
            "by": f"{_DISTRIBUTION} {_version()}",
            "complete": self.is_complete,
            "problems": [shown(problem) for problem in self.problems],
            "removed": sum(one.action == "removed" for one in self.objects),
            "rewritten": sum(one.action == "rewritten" for one in self.objects),
            "bytes": sum(one.bytes for one in self.objects if one.action == "removed"),
            "not_reached": list(self.not_reached),
        }
        lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in told.items()]
        for name, each in (
            ("kept", [{"where": shown(where), "why": why} for where, why in self.kept]),
            ("objects", [one._replace(where=shown(one.where))._asdict() for one in self.objects]),
        ):
            inner = ",\n    ".join(map(json.dumps, each))
            lines.append(f'  "{name}": [\n    {inner}\n  ]' if each else f'  "{name}": []')
        return "{\n" + ",\n".join(lines) + "\n}\n"


def _version() -> str:
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return "(from its sources)"


async def delete_session(
    base: object,
    store: OffloadStore | None = None,
    *,
    own_namespace: bool = False,
    grace_seconds: float = DAY_SECONDS,
    rewrite: bool = False,
    wait_seconds: float = REWRITE_SECONDS,
) -> Deletion:
    """Delete a session: messages, marks, summary, ledger and leases in one step, then its texts.

    End what uses the session before: a memory that goes on writes a new one. Of the store's namespace all
    goes, unless other sessions use it, too, which they should not: it is taken for shared where most texts
    that another ledger names are in it. Then what such ledgers name stays, and what nothing names and is
    young, since it may belong to an event of theirs; the certificate says so.

    Args:
        base: a `SQLAlchemyMemory` or a `RedisMemory`.
        store: where its texts are; None: it has none, or they stay.
        own_namespace: whether nothing else uses the namespace, whatever it looks like: then all of it goes,
            as it does where the namespace is the ids of user and session.
        grace_seconds: how long a text counts as young.
        rewrite: whether to rewrite SQLite's files, which takes as long as copying them: remains of what was
            deleted may lie between the rows.
        wait_seconds: how long to wait for others who use the file then.

    Raises:
        SessionNotFoundError: there is no such session: it was deleted before, say.
        InvalidArgumentError: it is no such memory, or the store has none of its texts; nothing was done.
    """
    directory, user_id, session_id = sessions_of(base)
    try:
        is_there = (await directory.history(user_id, session_id).head()).number
    except InvalidStateError:
        is_there = 1  # the rest of it is removed
    if not is_there:
        raise SessionNotFoundError(
            f"there is no session {session_id!r} of user {user_id!r} ({directory.place})"
        )
    done = Deletion(user_id, session_id, directory.place, _name(store))
    return await _delete(
        done, directory, store, grace_seconds, wait_seconds if rewrite else None, own_namespace=own_namespace
    )


async def delete_messages(
    base: object,
    store: OffloadStore | None,
    msg_ids: Sequence[str] = (),
    *,
    text: str | None = None,
    grace_seconds: float = DAY_SECONDS,
    rewrite: bool = False,
    wait_seconds: float = REWRITE_SECONDS,
) -> Deletion:
    """Delete messages of a session as `CompressedMemory.forget` does, and say what that took.

    What stood in for them, summaries included, goes with them; what else that covered returns to the view.

    Args:
        base: a `SQLAlchemyMemory` or a `RedisMemory`.
        store: where the session's texts are; None: it has none, or they stay.
        msg_ids: ids of the messages.
        text: in their place, what is to be found nowhere any more.
        grace_seconds: as in `delete_session`.
        rewrite: as in `delete_session`.
        wait_seconds: as in `delete_session`.

    Raises:
        InvalidArgumentError: there is no such session, or no message under one of the ids, or nothing that
            holds the text, or the store has none of its texts; nothing was done.
    """
    directory, user_id, session_id = sessions_of(base)
    if text is not None:
        told = await CompressedMemory(directory.history(user_id, session_id), store=store).forget(
            text=text, dry_run=True
        )
        if not (told.message_ids or told.parts or told.summary):
            raise InvalidArgumentError(f"nothing in session {session_id!r} of {user_id!r} holds the text")
        msg_ids = told.message_ids
    entries = await directory.history(user_id, session_id).read(ids=msg_ids)
    there = {entry.msg.id for entry in entries if entry.msg is not None}
    for id in msg_ids:
        if id not in there:
            raise InvalidArgumentError(f"there is no message {id!r} in session {session_id!r} of {user_id!r}")
    done = Deletion(user_id, session_id, directory.place, _name(store), list(msg_ids))
    return await _delete(done, directory, store, grace_seconds, wait_seconds if rewrite else None, text=text)


async def _delete(
    done: Deletion,
    directory: SessionDirectory,
    store: OffloadStore | None,
    grace_seconds: float,
    rewrite_seconds: float | None,
    *,
    own_namespace: bool = False,
    text: str | None = None,
) -> Deletion:
    """Delete the messages that are to go, or the whole session, and then the texts nobody names."""
    history = directory.history(done.user_id, done.session_id)
    named = await named_by(history)
    done.not_reached = [*directory.reminders, *await check_store(store, named)]
    space = None if store is None else namespace_of(store)
    others: list[set[str]] = []
    if space is not None and not (own_namespace or space.is_of(done.user_id, done.session_id)):
        others = await directory.named_refs((done.user_id, done.session_id))
    if done.messages is None:
        done.objects += await directory.remove(done.user_id, done.session_id)
    else:
        await _delete_messages(done, directory, history, store, done.messages, text)
    if space is not None:
        # What an event stored that came to nothing may tell of them as well.
        kept = await named_by(history)
        await _remove_texts(done, space, others, grace_seconds, gone=named, kept=kept)
    if rewrite_seconds is None:
        return done
    for file, engine in sqlite_engines(directory, store).items():
        from context_compressor.backends.sql.engines import rewrite_file

        try:  # earlier states of what was removed may lie between the rows
            await rewrite_file(engine, rewrite_seconds)
            done.objects.append(RemovedObject("file", str(file), file.stat().st_size, "rewritten"))
        except ConflictError as error:
            done.problems.append(f"{error}; what was deleted may lie in it until it is rewritten: try again")
    return done


async def _delete_messages(
    done: Deletion,
    directory: SessionDirectory,
    history: History,
    store: OffloadStore | None,
    msg_ids: Sequence[str],
    text: str | None,
) -> None:
    """Delete messages as a memory does, and note what the history and the store say of that."""
    head, entries, ledger = await history.head(), await history.read(ids=msg_ids), await history.ledger()
    space = None if store is None else namespace_of(store)
    held = [] if space is None else await space.stored()
    async with CompressedMemory(history, store=store) as memory:
        await memory.forget(list(msg_ids) if text is None else None, text)
    since = await history.read(after=head.number, ids=msg_ids)
    gone = {entry.key for entry in since if entry.msg is None}
    written = await history.ledger(after=head.number)
    changed = {name for entry in written for name in (*entry.withdrawn, *map(name_of, entry.edits))}
    edits = {name_of(edit): edit for entry in ledger for edit in entry.edits}
    done.objects += directory.lost(
        done.user_id,
        done.session_id,
        [entry for entry in entries if entry.key in gone],
        [edit for name, edit in edits.items() if name in changed],
        learnt=any(entry.learnt is not None for entry in written),
    )
    if space is not None:
        left = {one.ref for one in await space.stored()}
        removed = (one for one in held if one.ref not in left)
        done.objects += [RemovedObject("text", space.where(one.ref), one.bytes) for one in removed]


async def check_store(store: OffloadStore | None, named: Collection[str]) -> list[str]:
    """Return what is to be said of texts that are not reached, where no store is given.

    Raises:
        InvalidArgumentError: the store has none of the texts that the session names.
    """
    if not named:
        return []
    if store is None:
        return [f"{len(named)} texts that the session names: no store was given"]
    try:
        there = {one.ref for one in await namespace_of(store).stored()}
    except OffloadError:
        return []  # that is told where they are to be removed
    if there.isdisjoint(named):
        raise InvalidArgumentError(
            f"store: {_name(store)} has none of the {len(named)} texts that the session names; give the "
            "store and the namespace where they are, or no store where they are gone"
        )
    return []


async def _remove_texts(
    done: Deletion,
    namespace: Namespace,
    others: Sequence[set[str]],
    grace_seconds: float,
    *,
    gone: Collection[str],
    kept: Collection[str],
) -> None:
    """Remove from a namespace what neither the session nor others name, and is not young where they use it.

    Args:
        done: takes note of it.
        namespace: from which to remove.
        others: refs that other sessions name, a set for each.
        grace_seconds: how long a text is young.
        gone: refs that the session named: they are nobody else's.
        kept: refs that it names still.
    """
    try:
        named = namespace.refs_of_states()
        found = await namespace.stored()
    except OffloadError as error:
        done.problems.append(str(error))
        return
    there = {one.ref for one in found}
    named = named.union(*(refs for refs in others if len(refs & there) > len(refs) / 2)) & there
    is_shared = bool(named)
    grace_seconds = grace_seconds if is_shared else 0.0
    swept = await sweep(namespace, found, named.union(kept), grace_seconds=grace_seconds, gone=gone)
    done.objects += swept.removed
    done.problems += swept.problems
    for texts, why in (
        ([one for one in swept.named if one.ref not in kept], "another session names it"),
        (swept.young, "it is young, and may belong to another session"),
    ):
        done.kept += [(namespace.where(one.ref), why) for one in texts]
    try:
        rest = await namespace.remove_halves(ABANDONED_SECONDS if is_shared else 0.0)
        rest += await namespace.remove_index()
        done.objects += [RemovedObject("file", where, size) for where, size in rest]
    except OffloadError as error:
        done.problems.append(str(error))


def _name(store: OffloadStore | None) -> str | None:
    """Return what to call the namespace of a store."""
    if store is None:
        return None
    space = namespace_of(store)
    where = space.where("ctx://" + "0" * 16)
    return f"{space.label} ({where.replace('0' * 16, '*')})"
