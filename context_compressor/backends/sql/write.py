"""One write to a session's tables: what it touches is read, changed in order, and written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from context_compressor.backends.batch import TOLD_WRITES, Batch, Place, Row, touched_by
from context_compressor.backends.records import (
    digest,
    from_bytes,
    from_name,
    name_digest,
    pack,
    place_of,
    place_parts,
    to_bytes,
    to_tokens,
    unpack,
)
from context_compressor.backends.sql.tables import ledger, marks, messages, sessions
from context_compressor.core.edits import EditName, edit_to_dict
from context_compressor.errors import ConflictError, InvalidMessageError
from context_compressor.memory.history import (
    NAME_CHARACTERS,
    NAMES_CHARACTERS,
    Add,
    Change,
    WriteNumber,
    conflict,
    new_name,
)
from context_compressor.messages.skeletons import skeleton_of

T = TypeVar("T")

_AT_ONCE = 500
"""Values of one IN list: databases bound the parameters of a statement, SQLite at 32,766 and once at 999."""
_LARGE_BYTES = 100_000
"""A message below this is taken by every server."""
_ESCAPED = (b"\0", b"\n", b"\r", b"\x1a", b'"', b"'", b"\\")
"""What MySQL's drivers put a backslash in front of."""


# Statements that each write may need are made once: making and hashing one takes as long as its answer.
_SESSION: sa.BindParameter[Any] = sa.bindparam("of_session")
_SOME: sa.BindParameter[Any] = sa.bindparam("some", expanding=True)
_OF_SESSION = messages.c.session == _SESSION

_READ = sa.select(
    messages.c.key,
    messages.c.id_digest,
    messages.c.place,
    messages.c.fraction,
    messages.c.marks,
    messages.c.msg.is_not(None),
)
_READ = _READ.where(_OF_SESSION).order_by(messages.c.place, messages.c.fraction)
_READ_IDS = _READ.where(messages.c.id_digest.in_(_SOME))
_READ_KEYS = _READ.where(messages.c.key_digest.in_(_SOME))
_READ_NAMES = sa.select(ledger.c.name_digest).where(
    ledger.c.session == _SESSION, ledger.c.edit.is_not(None), ledger.c.name_digest.in_(_SOME)
)

_MARK = (
    sa.update(messages)
    .where(_OF_SESSION, messages.c.key_digest == sa.bindparam("k"))
    .values(marks=sa.bindparam("m"), changed=sa.bindparam("c"))
)
_DELETE = _MARK.values(msg=None, skeleton=None, tokens=pack(None))

_MINE = sessions.c.session == _SESSION
_NAMES = sa.func.coalesce(sessions.c.writes, "")
_NAME: sa.BindParameter[str] = sa.bindparam("name_of_this", type_=sa.String)
_FROM: sa.BindParameter[str] = sa.bindparam("name_at", type_=sa.String)
_STEP = (
    sa.update(sessions)
    .where(_MINE)
    .values(
        number=sessions.c.number + 1,
        size=sessions.c.size + sa.bindparam("adds"),
        last_place=sessions.c.last_place + sa.bindparam("adds"),
        writes=sa.func.substr(_NAME + _NAMES, 1, NAMES_CHARACTERS),
    )
)
_IS_FROM = sa.or_(_FROM == "", sa.func.substr(_NAMES, 1, NAME_CHARACTERS) == _FROM)
_STEP_FROM = _STEP.where(sessions.c.number == sa.bindparam("at"), _IS_FROM)
_STAND = sessions.c.number, _NAMES, sessions.c.size, sessions.c.last_place
_IS_KNOWN = sa.exists().where(_OF_SESSION, messages.c.id_digest.in_(_SOME))
"""Whether there is a message with one of some ids."""
_LOOK = {asks: sa.select(*_STAND, _IS_KNOWN if asks else sa.true()).where(_MINE) for asks in (True, False)}
_STEP_AND_LOOK = {
    (step, asks): step.returning(*_STAND, _IS_KNOWN if asks else sa.true())
    for step in (_STEP, _STEP_FROM)
    for asks in (True, False)
}


class Again(Exception):
    """Somebody else was faster: the transaction is begun anew."""


@dataclass(slots=True, eq=False)
class Write:
    """One write.

    Args:
        connection: in a transaction.
        row: `session`, `user_id` and `session_id` of the session's row.
        at: the number that the head must have; None: any.
    """

    connection: sa.Connection
    row: dict[str, Any]
    at: int | None
    _known: set[str] = field(default_factory=set)
    """Keys of messages that there are or were, as far as they were read."""

    @property
    def session(self) -> Any:
        """What stands for the session in every table."""
        return self.row["session"]

    def make(self, changes: Sequence[Change]) -> WriteNumber:
        """Make changes, and return the number of the head then.

        Raises:
            ConflictError: the head has another number.
            Again: the session was made meanwhile.
        """
        # The first statement writes: SQLite's transactions begin with one, and others wait for the row.
        adds = sum(isinstance(change, Add) for change in changes)
        ids, keys, names = touched_by(changes)
        number, size, last_place, are_new = self._take_number(adds, ids)
        batch = Batch(last_place, self._below, self._held(names))
        batch.load(self._read(_READ_IDS, () if are_new else ids))
        batch.load(self._read(_READ_KEYS, keys))
        batch.make(changes)
        self._write_rows(batch.touched, number)
        self._write_edits(batch, number)
        values: dict[str, Any] = {} if batch.more == adds else {"size": size + batch.more}
        if batch.summary is not None:
            values["summary"] = to_bytes(batch.summary)
        if batch.learnt:
            values |= {"learnt": pack(dict(batch.learnt)), "learnt_number": number}
        if values:
            mine = sessions.c.session == self.session
            self.connection.execute(sa.update(sessions).where(mine).values(values))
        return number

    def _take_number(self, adds: int, ids: Sequence[str]) -> tuple[WriteNumber, int, int, bool]:
        """Take the next number, and places for what is added, as if each were a new message.

        Returns:
            The number; how many messages there are, and the last place that was given, before this write;
            and whether it is sure that no message has one of these ids.
        """
        # PostgreSQL waits for the row, and then looks at the other table as it was before.
        asks = len(ids) < _AT_ONCE and self.connection.dialect.name != "postgresql"
        step, given, name = _STEP, dict[str, Any](), new_name()
        if self.at is not None:
            at_name = getattr(self.at, "names", "")[:NAME_CHARACTERS]
            step, given = _STEP_FROM, {"at": int(self.at), "name_at": at_name}
        asked = {"of_session": self.session} | ({"some": ids} if asks else {})
        given = {"of_session": self.session, "adds": adds, "name_of_this": name, **given}
        if self.connection.dialect.update_returning:
            found = self.connection.execute(_STEP_AND_LOOK[step, asks], given | asked).one_or_none()
        elif self.connection.execute(step, given).rowcount:
            found = self.connection.execute(_LOOK[asks], asked).one()
        else:
            found = None
        if found is not None:
            number, names, size, last_place, is_known = found
            return WriteNumber(number, names), size - adds, last_place - adds, not is_known
        number_now = sa.select(sessions.c.number).where(sessions.c.session == self.session)
        there = self.connection.execute(number_now).scalar_one_or_none()
        if there is not None or self.at:
            if self.at is None:
                raise Again
            raise conflict(there or 0, self.at)
        fresh = {
            "number": 1,
            "size": adds,
            "last_place": adds,
            "summary": b"",
            "learnt_number": 0,
            "writes": name,
        }
        try:
            self.connection.execute(sa.insert(sessions).values(**self.row, **fresh))
        except IntegrityError as error:
            if self.at is not None:
                raise ConflictError("the history has begun meanwhile", number=1) from error
            raise Again from error
        return WriteNumber(1, name), 0, 0, True

    # Reading what changes touch

    def _read(self, wanted: sa.Select[Any], digests: Iterable[str]) -> Iterator[Row]:
        for some in in_parts(digests):
            found = self.connection.execute(wanted, {"of_session": self.session, "some": some}).all()
            for key, id_digest, place, fraction, borne, is_there in found:
                where = place_of(place, fraction)
                self._known.add(from_bytes(key))
                yield Row(from_bytes(key), id_digest, where, list(unpack(borne)), bool(is_there))

    def _below(self, place: Place) -> Place | None:
        known, (whole, fraction) = messages.c, place_parts(place)
        in_front = sa.or_(known.place < whole, sa.and_(known.place == whole, known.fraction < fraction))
        nearest = (
            sa.select(known.place, known.fraction)
            .where(known.session == self.session, in_front)
            .order_by(known.place.desc(), known.fraction.desc())
            .limit(1)
        )
        found = self.connection.execute(nearest).one_or_none()
        return None if found is None else place_of(*found)

    def _held(self, names: Iterable[EditName]) -> set[EditName]:
        asked = {name_digest(name): name for name in names}
        found = (
            one
            for some in in_parts(asked)
            for one in self.connection.execute(
                _READ_NAMES, {"of_session": self.session, "some": some}
            ).scalars()
        )
        return {asked[one] for one in found}

    # Writing

    def _write_rows(self, rows: Sequence[Row], number: int) -> None:
        digests = {id(row): digest(row.key) for row in rows}
        lost = [(digest(mark), digests[id(row)]) for row in rows for mark in row.lost]
        gained = [(digest(mark), digests[id(row)]) for row in rows for mark in row.gained]
        mine = marks.c.session == self.session
        for mark in dict.fromkeys(mark for mark, _ in lost):
            for some in in_parts(key for one, key in lost if one == mark):
                gone = sa.delete(marks).where(mine, marks.c.mark_digest == mark, marks.c.key_digest.in_(some))
                self.connection.execute(gone)
        added = [row for row in rows if row.add is not None]
        new = [self._values(row, digests[id(row)], number) for row in added]
        again = (digests[id(row)] for row in added if row.key in self._known)
        self._remove(messages, messages.c.key_digest, again)
        for statement, is_there in ((_MARK, True), (_DELETE, False)):
            values = [
                {"of_session": self.session, "k": digests[id(row)], "m": pack(row.marks), "c": number}
                for row in rows
                if row.add is None and row.is_there is is_there
            ]
            if values:
                self.connection.execute(statement, values)
        if new:
            self._check_sizes(new)
            self.connection.execute(sa.insert(messages), new)
        borne = [{"session": self.session, "mark_digest": m, "key_digest": k} for m, k in gained]
        if borne:
            self.connection.execute(sa.insert(marks), borne)
        if not all(row.is_there for row in rows):
            old = messages.c.changed < number - TOLD_WRITES
            gone = sa.delete(messages).where(
                messages.c.session == self.session, messages.c.msg.is_(None), old
            )
            self.connection.execute(gone)

    def _check_sizes(self, values: Sequence[dict[str, Any]]) -> None:
        """Refuse what MySQL and MariaDB do not take in one statement: they would close the connection.

        Raises:
            InvalidMessageError: the message and the server's limit are named.
        """
        large = [one for one in values if len(one["msg"] or b"") > _LARGE_BYTES]
        if not large or self.connection.dialect.name not in ("mysql", "mariadb"):
            return
        limit = int(self.connection.execute(sa.text("SELECT @@max_allowed_packet")).scalar_one())
        for one in large:
            size = len(one["msg"]) + sum(map(one["msg"].count, _ESCAPED)) + _LARGE_BYTES
            if size > limit:
                raise InvalidMessageError(
                    f"message {from_bytes(one['key'])[:100]!r}: takes about {size:,} bytes of a statement, "
                    f"the server takes {limit:,}; raise its max_allowed_packet"
                )

    def _values(self, row: Row, key_digest: str, number: int) -> dict[str, Any]:
        assert row.add is not None
        whole, fraction = place_parts(row.place)
        skeleton = skeleton_of(row.add.msg) if row.is_there else None
        return {
            "session": self.session,
            "key_digest": key_digest,
            "id_digest": row.id_digest,
            "place": whole,
            "fraction": fraction,
            "changed": number,
            "added": number,
            "key": to_bytes(row.key),
            "marks": pack(row.marks),
            "tokens": pack(to_tokens(row.add.tokens) if row.is_there else None),
            "skeleton": None if skeleton is None else pack(skeleton),
            "msg": pack(row.add.msg.to_dict()) if row.is_there else None,
        }

    def _remove(self, table: sa.Table, column: Any, digests: Iterable[str]) -> None:
        for some in in_parts(digests):
            gone = sa.delete(table).where(table.c.session == self.session, column.in_(some))
            self.connection.execute(gone)

    def _write_edits(self, batch: Batch, number: int) -> None:
        values = [
            {
                "session": self.session,
                "name_digest": name_digest(name),
                "number": number,
                "position": position,
                "name": pack(from_name(name)),
                "edit": None if edit is None else pack(edit_to_dict(edit)),
            }
            for position, (name, edit) in enumerate(batch.edits.items())
        ]
        self._remove(ledger, ledger.c.name_digest, [one["name_digest"] for one in values])
        if values:
            self.connection.execute(sa.insert(ledger), values)


def in_parts(values: Iterable[T]) -> Iterator[list[T]]:
    """Yield values in lists that a statement may hold."""
    rest = iter(values)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
