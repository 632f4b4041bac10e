"""Which sessions a user has in a database, and the end of one."""

from __future__ import annotations

import sqlalchemy as sa

from context_compressor.backends.records import Standing, digest, from_bytes
from context_compressor.backends.tables import metadata, sessions, texts


def standings(connection: sa.Connection, user_id: str) -> list[Standing]:
    """Return where a user's sessions stand."""
    wanted = sa.select(sessions.c.session_id, sessions.c.number, sessions.c.size)
    found = connection.execute(wanted.where(sessions.c.user_digest == digest(user_id)))
    return [Standing(from_bytes(name), number, size) for name, number, size in found]


def remove(connection: sa.Connection, user_id: str, session_id: str) -> None:
    """Remove all of a session, and the texts of a `SQLAlchemyOffloadStore` of its own."""
    session = digest(user_id, session_id)
    # Its own row first: whoever writes to the session holds that until all is written.
    others = [table for table in metadata.sorted_tables if "session" in table.c and table is not sessions]
    for table in (sessions, *others):
        connection.execute(sa.delete(table).where(table.c.session == session))
    connection.execute(sa.delete(texts).where(texts.c.namespace == session))
