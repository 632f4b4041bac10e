"""What an adapter that only looks on writes down: the sizes of what agents send, and none of its words."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from context_compressor.errors import InvalidArgumentError
from context_compressor.memory.compressed import system_text
from context_compressor.memory.listing import INSTRUCTING, Said
from context_compressor.messages.chat import to_openai
from context_compressor.messages.forms import Form
from context_compressor.messages.plain import as_list
from context_compressor.tokens.counter import TokenCounter

logger = logging.getLogger(__name__)

DEFAULT_LOG = "observed.jsonl"
"""In the working directory, where no path is given; or in the directory that is given."""
MAX_BYTES = 256 * 2**20
"""Of a log: when it has so many, nothing more is written until somebody takes it away."""
MOST_KNOWN = 200_000
"""Messages that a process knows the log has; with more it begins anew, and writes lists whole once more."""
KEY = "observed"
"""The key by which each line of a log is known."""
VERSION = 1
"""Of a log: what stands under that key."""


def as_observer(observe: object, counter: TokenCounter, form: Form) -> Observer | None:
    """Return what looks on, for the option `observe`; None where it is off.

    Raises:
        InvalidArgumentError: neither a bool nor a path.
    """
    if observe is False or observe is None:
        return None
    if observe is not True and not (isinstance(observe, str | os.PathLike) and str(observe)):
        raise InvalidArgumentError(
            f"observe: expected True, False or the path of a log, got {observe!r:.200}"
        )
    path = Path(DEFAULT_LOG if observe is True else observe)
    return Observer(path / DEFAULT_LOG if path.is_dir() else path, counter, form)


@cache
def writer() -> ThreadPoolExecutor:
    """Return the thread that writes the logs of this process, which does not end before it has."""
    return ThreadPoolExecutor(1, thread_name_prefix="observe")


class Observer:
    """Write a line for each request into a log: what its messages are, by role and tokens.

    A line holds the messages that no line before it had, and the number of the message that they follow, so
    that requests of one conversation join to a list, whichever process wrote them. Such a number is a hash of
    all that stands before and in a message, salted: each log has a salt of its own. All work is done in a
    thread, and whatever fails there is told once and harms no request.

    Args:
        path: the log.
        counter: measures messages.
        form: their shape.
    """

    def __init__(self, path: Path, counter: TokenCounter, form: Form) -> None:
        self.path = path
        self._counter, self._form = counter, form
        self._file: tuple[int, int] | None = None
        """Which file the log was when it was written last: somebody may have taken it away since."""
        self._salt = ""
        self._known: set[str] = set()
        """Numbers of messages that the log has."""
        self._begin = b""
        """What ends a line that a failure cut."""
        self._is_told = False

    def note(
        self,
        said: Callable[[], Iterable[Any]],
        system: Callable[[], Any] | None = None,
        tools: Callable[[], Any] | None = None,
    ) -> None:
        """Note a request; returns at once and raises nothing.

        Args:
            said: returns its list.
            system: returns the instructions that it carries beside the list.
            tools: returns the tools that it offers, as they are sent.
        """
        try:
            items = list(as_list(said()))
            beside = None if system is None else system(), None if tools is None else tools()
            writer().submit(self._note, items, *beside)
        except Exception as error:
            self._tell(error)

    def _note(self, items: Sequence[Any], system: Any, tools: Any) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            log = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                self._open(log)
                self._write(log, Said(items, self._form), system_text(system), tools)
            finally:
                os.close(log)
        except Exception as error:
            self._tell(error)

    def _open(self, log: int) -> None:
        """Take the salt of a log that was not this one before; the first line that stands in it counts."""
        found = os.fstat(log)
        if self._file == (found.st_dev, found.st_ino) and found.st_size:
            return
        self._known.clear()
        if not found.st_size:
            self._append(log, {KEY: VERSION, "salt": secrets.token_hex(16)})
        try:
            self._salt = str(json.loads(os.pread(log, 4_096, 0).partition(b"\n")[0])["salt"])
        except (ValueError, KeyError, TypeError):
            raise OSError("it is no log of requests; name a file that is not there yet") from None
        self._file = found.st_dev, found.st_ino

    def _write(self, log: int, said: Said, system: str, tools: Any) -> None:
        if os.fstat(log).st_size >= MAX_BYTES:
            raise OSError(f"it has {MAX_BYTES:,} bytes; take it away, and the next request begins a new one")
        instructions = self._counter.count_messages([{"role": "system", "content": system}]) if system else 0
        instructions += self._counter.count_text(json.dumps(tools, default=str)) if tools else 0
        place, number, follows = 0, self._salt, ""
        while place < len(said) and all(one.get("role") in INSTRUCTING for one in said.wires(place)):
            instructions += sum(row["tokens"] for row in self._rows(said, place))  # they may change
            place += 1
        new: list[dict[str, Any]] = []
        numbers = list[str]()
        for at in range(place, len(said)):
            number = _hash(number, said.digest(at), 16)
            if not new and number in self._known:
                follows = number
                continue
            numbers.append(number)
            rows = self._rows(said, at) or [{"role": "user", "tokens": 0}]
            new += [{**row, "id": f"{number}.{n}"} for n, row in enumerate(rows[:-1])]
            new.append({**rows[-1], "id": number})
        if not (new or follows):
            return
        line = {KEY: VERSION, "at": int(time.time()), "instructions": instructions}
        self._append(log, {**line, "follows": follows, "new": new})
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        self._known.update(numbers)

    def _append(self, log: int, line: dict[str, Any]) -> None:
        data = self._begin + json.dumps(line, separators=(",", ":")).encode() + b"\n"
        self._begin = b"\n"
        # One call, so that what several processes append does not mix.
        if os.write(log, data) < len(data):
            raise OSError("there is no room for it")
        self._begin = b""

    def _rows(self, said: Said, place: int) -> list[dict[str, Any]]:
        """Return what a piece of a list is, message by message, without its words."""
        chats = to_openai([msg for piece in said.read(place, place + 1) for msg in piece.msgs])
        return [self._row(chat) for chat in chats]

    def _row(self, chat: dict[str, Any]) -> dict[str, Any]:
        row = {"role": chat["role"], "tokens": self._counter.count_messages([chat])}
        calls: dict[str, int] = {}
        for call in chat.get("tool_calls") or ():
            told = call.get("function") or call.get("custom") or {}
            calls[self._call(call.get("id"))] = sum(
                self._counter.count_text(str(one)) for one in told.values()
            )
        if calls:
            row["calls"] = calls
        if chat["role"] == "tool":
            row["answers"] = self._call(chat.get("tool_call_id"))
        return row

    def _call(self, id: object) -> str:
        return _hash(self._salt, str(id), 8)

    def _tell(self, error: Exception) -> None:
        if not self._is_told:
            self._is_told = True
            logger.warning("%s: requests are not written down: %s", self.path, error)


def _hash(before: str, said: str, digits: int) -> str:
    return hashlib.sha256(f"{before} {said}".encode()).hexdigest()[:digits]
