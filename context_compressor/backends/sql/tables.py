"""The tables of `SQLAlchemyMemory`; `metadata` is for Alembic as well.

Everything from outside is bytes, and is found by its hash: databases differ in what text they take, how they
compare it and how long a key may be.
"""

from __future__ import annotations

from context_compressor.errors import naming_extras
from context_compressor.memory.history import NAMES_CHARACTERS

with naming_extras():
    from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table
    from sqlalchemy.dialects.mysql import LONGBLOB
    from sqlalchemy.types import TypeEngine

SCHEMA_VERSION = 1
_PREFIX = "context_compressor_"

metadata = MetaData()

_BYTES: TypeEngine[bytes] = LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")
_DIGEST = String(64)
_NUMBER = BigInteger().with_variant(Integer(), "sqlite")

schema = Table(
    f"{_PREFIX}schema",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
)
sessions = Table(
    f"{_PREFIX}sessions",
    metadata,
    Column("session", _DIGEST, primary_key=True),
    Column("user_digest", _DIGEST, nullable=False),
    Column("user_id", _BYTES, nullable=False),
    Column("session_id", _BYTES, nullable=False),
    Column("number", _NUMBER, nullable=False),
    Column("size", _NUMBER, nullable=False),
    Column("last_place", _NUMBER, nullable=False),
    Column("summary", _BYTES, nullable=False),
    Column("learnt", _BYTES),
    Column("learnt_number", _NUMBER, nullable=False),
    Column("writes", String(NAMES_CHARACTERS)),
)
"""A row for each session: where its history stands. `writes` has the names of the last writes. Tables of
earlier releases get that column; processes of those releases leave it empty."""
Index(f"{_PREFIX}by_user", sessions.c.user_digest)
messages = Table(
    f"{_PREFIX}messages",
    metadata,
    Column("session", _DIGEST, primary_key=True),
    Column("key_digest", _DIGEST, primary_key=True),
    Column("id_digest", _DIGEST, nullable=False),
    Column("place", _NUMBER, nullable=False),
    Column("fraction", String(1000), nullable=False),
    Column("changed", _NUMBER, nullable=False),
    Column("added", _NUMBER, nullable=False),
    Column("key", _BYTES, nullable=False),
    Column("marks", _BYTES, nullable=False),
    Column("tokens", _BYTES, nullable=False),
    Column("skeleton", _BYTES),
    Column("msg", _BYTES),
)
"""Messages; one without `msg` was deleted, and is kept so that others hear of it. `msg` is the last, so that
all else is read without it."""
Index(f"{_PREFIX}by_id", messages.c.session, messages.c.id_digest)
Index(f"{_PREFIX}by_place", messages.c.session, messages.c.place)
Index(f"{_PREFIX}by_change", messages.c.session, messages.c.changed)
marks = Table(
    f"{_PREFIX}marks",
    metadata,
    Column("session", _DIGEST, primary_key=True),
    Column("mark_digest", _DIGEST, primary_key=True),
    Column("key_digest", _DIGEST, primary_key=True),
)
"""Which messages bear a mark; the marks themselves stand with the messages, in their order."""
ledger = Table(
    f"{_PREFIX}ledger",
    metadata,
    Column("session", _DIGEST, primary_key=True),
    Column("name_digest", _DIGEST, primary_key=True),
    Column("number", _NUMBER, nullable=False),
    Column("position", _NUMBER, nullable=False),
    Column("name", _BYTES, nullable=False),
    Column("edit", _BYTES),
)
"""Edits of the view; one without `edit` was withdrawn."""
Index(f"{_PREFIX}by_number", ledger.c.session, ledger.c.number)
leases = Table(
    f"{_PREFIX}leases",
    metadata,
    Column("session", _DIGEST, primary_key=True),
    Column("name_digest", _DIGEST, primary_key=True),
    Column("holder", _DIGEST, nullable=False),
    Column("until", _NUMBER, nullable=False),
)
"""What a process has claimed for some time, in milliseconds since 1970 by the database's clock."""
states = Table(
    f"{_PREFIX}states",
    metadata,
    Column("key_digest", _DIGEST, primary_key=True),
    Column("key", _BYTES, nullable=False),
    Column("number", _NUMBER, nullable=False),
    Column("set_at", _NUMBER, nullable=False),
    Column("state", _BYTES, nullable=False),
)
"""What adapters know of conversations, each under its key."""
texts = Table(
    f"{_PREFIX}texts",
    metadata,
    Column("namespace", _DIGEST, primary_key=True),
    Column("ref", String(16), primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("parts", Integer, nullable=False),
    Column("stored_at", _NUMBER, nullable=False),
    Column("data", _BYTES, nullable=False),
)
"""Texts that left a view, in parts that every server takes. `stored_at`: seconds since the epoch."""
OF_SESSIONS = [table for table in metadata.sorted_tables if "session" in table.c]
"""The tables that hold something of a session."""
