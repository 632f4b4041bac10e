"""Leases in a database: what a process has claimed for some time, by the database's clock."""

from __future__ import annotations

import math
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from context_compressor.backends.records import digest
from context_compressor.backends.tables import leases
from context_compressor.backends.writing import Again


class _Now(FunctionElement[int]):
    """Milliseconds since 1970 by the database's clock, whatever its time zone."""

    inherit_cache = True
    type = sa.BigInteger()


@compiles(_Now)
def _now(*_: object, **__: object) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"


@compiles(_Now, "sqlite")
def _now_in_sqlite(*_: object, **__: object) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


@compiles(_Now, "mysql")
@compiles(_Now, "mariadb")
def _now_in_mysql(*_: object, **__: object) -> str:
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"


def claim(connection: sa.Connection, session: Any, name: str, holder: str, seconds: float) -> bool:
    """Claim something as `Leases.claim` does. Each change is one statement that looks before it changes.

    Args:
        connection: in a transaction of its own.
        session: what stands for the session in every table.
        name: what is claimed.
        holder: who claims.
        seconds: for how long.

    Raises:
        Again: somebody else was faster.
    """
    known, now, own = leases.c, _Now(), digest(holder)
    this = sa.and_(known.session == session, known.name_digest == digest(name))
    if seconds <= 0:
        return bool(connection.execute(sa.delete(leases).where(this, known.holder == own)).rowcount)
    milliseconds = math.ceil(seconds * 1000)
    until = now + milliseconds
    # No lease is granted for so long: this one was made before the clock was set back.
    is_over = sa.or_(known.until <= now, known.until > now + 2 * milliseconds)
    # Whoever only asks takes no lock.
    found = connection.execute(sa.select(known.holder, is_over).where(this)).one_or_none()
    if found is None:
        connection.execute(sa.delete(leases).where(known.session == session, known.until <= now))
        try:
            values = {"session": session, "name_digest": digest(name), "holder": own, "until": until}
            connection.execute(sa.insert(leases).values(values))
        except IntegrityError as error:
            raise Again from error
        return True
    if found[0] != own and not found[1]:
        return False
    is_free = sa.or_(known.holder == own, is_over)
    taken = sa.update(leases).where(this, is_free).values(holder=own, until=until)
    return bool(connection.execute(taken).rowcount)
