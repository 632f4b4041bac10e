"""`SQLAlchemyStates`: states of adapters in a database."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from context_compressor.backends.records import as_key, digest, from_bytes, pack, to_bytes, to_state, unpack
from context_compressor.backends.sql.engines import Database
from context_compressor.backends.sql.tables import states
from context_compressor.backends.sql.write import Again
from context_compressor.errors import InvalidStateError


class SQLAlchemyStates(Database):
    """Keep what adapters know of conversations in a database: `states=SQLAlchemyStates(url)`.

    It may be the database of sessions and texts. Any number of processes may use it at once.

    Args:
        engine: a URL, whose engine is closed by `close`, or an `AsyncEngine`, which stays the caller's.

    Raises:
        InvalidArgumentError: it is neither.
    """

    async def get(self, key: str) -> dict[str, Any] | None:
        """Return what was set under a key, or None.

        Raises:
            InvalidStateError: what is there cannot be read.
        """
        wanted = sa.select(states.c.state).where(_is(key))
        found = await self._run(
            lambda connection: connection.execute(wanted).scalar_one_or_none(), is_write=False
        )
        return None if found is None else to_state(unpack, found, key)

    async def set(self, key: str, state: dict[str, Any]) -> None:
        """Keep a state, JSON-like data, under a key."""
        await self.exchange(key, lambda _: state)

    async def exchange(
        self, key: str, change: Callable[[dict[str, Any] | None], dict[str, Any] | None]
    ) -> None:
        """Change the state under a key, while no other process changes it.

        Args:
            key: under which it stands.
            change: takes the state that is there, or None, and returns the new one; None leaves it as it is.
        """
        where = _is(key)

        def write(connection: sa.Connection) -> None:
            # Other writers wait for this row; over SQLite they wait for the whole transaction.
            held = connection.execute(sa.update(states).where(where).values(number=states.c.number + 1))
            found = None
            if held.rowcount:
                data = connection.execute(sa.select(states.c.state).where(where)).scalar_one()
                with suppress(InvalidStateError):  # it is made anew
                    found = to_state(unpack, data, key)
            changed = change(found)
            if changed is None:
                return
            values = {"state": pack(changed), "set_at": int(time.time())}
            if held.rowcount:
                connection.execute(sa.update(states).where(where).values(values))
                return
            name = {"key_digest": digest(key), "key": to_bytes(key), "number": 0}
            try:
                connection.execute(sa.insert(states).values({**name, **values}))
            except IntegrityError as error:
                raise Again from error

        await self._run(write, removes=True)

    async def delete(self, key: str) -> None:
        """Remove the state under a key; there may be none."""
        removed = sa.delete(states).where(_is(key))
        await self._run(lambda connection: connection.execute(removed), removes=True)

    async def keys(self) -> list[str]:
        """Return the keys that have a state, sorted."""
        return sorted(await self.set_at())

    async def set_at(self) -> dict[str, float | None]:
        """Return when the state under each key was set last, in seconds since 1970."""
        wanted = sa.select(states.c.key, states.c.set_at)
        found = await self._run(lambda connection: connection.execute(wanted).all(), is_write=False)
        return {from_bytes(key): set_at for key, set_at in found}


def _is(key: str) -> sa.ColumnElement[bool]:
    return states.c.key_digest == digest(as_key(key))
