"""Views of many conversations, each under a name: states lie beside the texts of a store in files."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import stat
import time
import weakref
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from context_compressor.core.config import ConfigFields, as_config
from context_compressor.errors import InvalidArgumentError, InvalidStateError, OffloadError
from context_compressor.events import CompressionEvent
from context_compressor.memory.saved import write_state
from context_compressor.memory.stateless import TOOLS_KEY, Call, Reply, compress, let_go
from context_compressor.messages.forms import FORMS
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.folders import (
    PLAIN_FLAGS,
    disk_error,
    make_directory,
    refs_of_states_in,
    refuse_link,
)
from context_compressor.offload.locks import locked
from context_compressor.tokens.counter import TokenCounter

logger = logging.getLogger(__name__)

MAX_NAME_CHARACTERS = 200
_WAIT_SECONDS = 60.0
"""How long a call waits for another one of the same session in another process."""
_NEW: dict[str, Any] = {"version": 1}
_READ_FLAGS = os.O_RDONLY | PLAIN_FLAGS | getattr(os, "O_NONBLOCK", 0)
"""A named pipe in the place of a state would block the open for ever."""


class SessionView(NamedTuple):
    """What a call gives."""

    result: Reply
    unsaved: str | None
    """Why the state was not kept; then the next call makes its view anew."""


class Sessions:
    """Make views of conversations whose states are kept under names, across processes.

    A state is a file beside the store's texts: it counts to them, and goes with them. What a list says no
    more is removed when its time is over (`branch_seconds`), unless another session names it. Calls of one
    session run one after the other, in this process and between processes; on a disk without locks only in
    this one.

    Args:
        store: where texts go.
        counter: measures messages.
        wait_seconds: how long a call waits for another process at the same session.
    """

    def __init__(
        self, store: FileOffloadStore, counter: TokenCounter, *, wait_seconds: float = _WAIT_SECONDS
    ) -> None:
        self._store = store
        self._counter = counter
        self._wait_seconds = wait_seconds
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def compress(
        self, messages: Iterable[Any], session: str, **fields: Unpack[ConfigFields]
    ) -> SessionView:
        """Return a view of a conversation's whole list, and keep its state under a name.

        Stand-ins name the read-back tools. A call that is cancelled goes on to its end in its thread.

        Args:
            messages: the whole conversation so far, as chat dicts.
            session: names the conversation: 1 to 200 characters. The file's name is a hash of it.
            fields: any field of `CompressionConfig`.

        Raises:
            InvalidArgumentError: the name is no such string; or as `acompress_messages`.
            OffloadError: the state cannot be read, or another call of the session goes on for too long.
            InvalidMessageError, ContextOverflowError, ValueError: as `acompress_messages`.
        """
        path = self._store.directory / f"session-{_hash(session)}.json"
        turn = self._turns.setdefault(path.name, asyncio.Lock())
        async with turn:
            return await asyncio.to_thread(self._in_turn, messages, session, path, fields)

    def _in_turn(
        self, messages: Iterable[Any], session: str, path: Path, fields: ConfigFields
    ) -> SessionView:
        """Do what `compress` says while no other process does the same. Blocks."""
        what = f"the state of session {session!r}"
        with ExitStack() as stack:
            try:
                refuse_link(path.parent)
                self._store.open()  # or a collection could take the directory away again
                make_directory(path.parent)
                stack.enter_context(locked(path.with_suffix(".lock"), wait_seconds=self._wait_seconds))
                state = _read(path)
            except TimeoutError as error:
                raise OffloadError(
                    f"{what} has been used by another call for {self._wait_seconds:g} s; try again later"
                ) from error
            except OSError as error:
                raise disk_error(error, f"{what} cannot be read", OffloadError) from error
            return asyncio.run(self._compress(messages, state or _NEW, path, fields))

    async def _compress(
        self, messages: Iterable[Any], state: dict[str, Any], path: Path, fields: ConfigFields
    ) -> SessionView:
        call = Call(as_config(None, fields), self._store, None, self._counter, FORMS["chat"])
        make = partial(compress, list(messages), call, on_event=_tell, system=None)
        try:
            result = await make(state={**state, TOOLS_KEY: True})
        except InvalidStateError as error:
            logger.warning("%s is not used, the view is made anew: %s", path, error)
            result = await make(state={**_NEW, TOOLS_KEY: True})
        # Texts are read back without a list here, so what another session names has to stay.
        await let_go(result.end, time.time(), lambda: refs_of_states_in(path.parent, but=path.name))
        try:
            await write_state(path, result.end.state)
        except OSError as error:
            unsaved = str(disk_error(error, f"the state was not kept ({path.name})", OffloadError))
            logger.warning("%s", unsaved)
            return SessionView(result, unsaved)
        with suppress(OSError):
            self._store.open()
        return SessionView(result, None)


def _tell(event: CompressionEvent) -> None:
    logger.info("%s", event)


def _hash(session: object) -> str:
    if not isinstance(session, str) or not 0 < len(session) <= MAX_NAME_CHARACTERS:
        raise InvalidArgumentError(
            f"session: expected a name of 1 to {MAX_NAME_CHARACTERS} characters, got {session!r:.100}"
        )
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _read(path: Path) -> dict[str, Any] | None:
    """Return the state in a file; None where there is none, or no whole one.

    Raises:
        OSError: it cannot be read, or is a link, which could lead anywhere.
    """
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    try:
        state = json.loads(data)
    except (ValueError, RecursionError) as error:
        logger.warning("%s holds no whole state, the view is made anew: %s", path, error)
        return None
    return state if isinstance(state, dict) else None
