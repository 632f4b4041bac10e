"""A file as JSON values: one, or one per line, read line by line; what is no JSON becomes a problem."""

from __future__ import annotations

import codecs
import json
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from itertools import chain, islice
from typing import IO, Any

from context_compressor.lab.readers.session import Problem, UnreadableError
from context_compressor.lab.readers.transcript import SAYS_NOTHING, Transcript

SAMPLE_VALUES = 50
"""Values looked at to find a format out: Claude Code begins some files with pages of bookkeeping."""

_EMPTY = "is empty; expected chat messages as JSON or JSONL"
_NULLS = "null bytes, as a crash leaves them"
_BLANKS = re.compile(r"[ \t\n\r]*")
_DECODE = json.JSONDecoder().raw_decode
_DAMAGE = (OSError, EOFError, zlib.error)

Numbered = tuple[int, Any]


@dataclass(slots=True)
class Taken:
    """How many records said something since this was last read."""

    count: int = 0
    lost: int = 0
    """How many stood in lists that were refused whole."""
    lost_holders: int = 0
    """What should have held records, and did not."""


class Document:
    """One file's JSON values, each with its line.

    Args:
        name: the file, as problems name it.
        stream: its bytes; must be seekable.
        problems: takes what could not be read.

    Raises:
        UnreadableError: the file is empty, or no JSON at all.
    """

    def __init__(self, name: str, stream: IO[bytes], problems: list[Problem]) -> None:
        self.name = name
        self.problems = problems
        self.is_lines = False
        """Whether it holds a value per line; a file of one line does not."""
        self.is_indented = False
        self.is_opened = False
        """Whether its values came out of other values, such as sessions out of a list of sessions."""
        self.taken = Taken()
        self._stream = stream
        self._damage: str | None = None
        self._values = self._start()
        head = list(islice(self._values, SAMPLE_VALUES))
        self.sample = [value for _, value in head]
        """The first values, for finding out what they are."""
        self._values = chain(head, self._values)

    def values(self) -> Iterator[Numbered]:
        """Yield every value with its line; can be used once."""
        return self._values

    def part(self, values: Iterator[Numbered]) -> Document:
        """Return a document of some of the values; what is rejected of it is rejected of this one."""
        part = copy(self)
        part._values = values
        return part

    def reject(self, error: UnreadableError, line: int | None = None) -> None:
        """Note a value that cannot be read, and why; the line counts where each value has its own.

        In a single value the error may name the message that is at fault; the line is where that begins, save
        where the value wraps another one.
        """
        if not self.is_lines:
            is_told = error.message is not None and not self.is_opened
            line = _line_of_message(self._whole_text(), error.message or 0) if is_told else None
        self.problems.append(error.at(self.name, line))

    @contextmanager
    def rejecting(self, line: int, place: str = "", *, holds: bool = False) -> Iterator[None]:
        """Reject a value that cannot be read, and go on; `place` names it within what stands on the line.

        `holds`: whether it holds records and is none itself.
        """
        try:
            yield
        except UnreadableError as error:
            self.reject(UnreadableError(place + error.why) if place else error, line)
            self.taken.lost_holders += holds
            self.taken.lost += error.held

    @contextmanager
    def reading(self, transcript: Transcript, line: int, place: str = "") -> Iterator[None]:
        """Count a record that says something; reject one that says nothing and notes nothing as left out."""
        pieces, told = transcript.pieces, transcript.told
        with self.rejecting(line, place):
            yield
            if transcript.pieces == pieces and transcript.told == told:
                raise UnreadableError(SAYS_NOTHING)
            self.taken.count += transcript.pieces > pieces

    def _start(self) -> Iterator[Numbered]:
        lines = self._filled_lines()
        first, second = next(lines, None), next(lines, None)
        if first is None:
            raise UnreadableError(self._damage or _EMPTY, is_stranger=self._damage is None)
        number = first[0]
        try:
            value = _load_line(*first)
        except UnreadableError:
            try:
                value = load(self._whole_text())
            except UnreadableError as error:
                # Lines, if the second is a value by itself; else the JSON is broken.
                if second is None or not _is_container(second):
                    error.is_stranger = not first[1].lstrip().startswith((b"{", b"["))
                    raise error from None
                self._stream.seek(0)
                return self._parsed(self._filled_lines())
            self.is_indented = True
            if second is not None and self._ends_in_nulls():
                self.reject(UnreadableError(_NULLS))
            return iter([(number, value)])
        if second is None and self._damage is None:
            return iter([(number, value)])
        return self._parsed(chain([first] if second is None else [first, second], lines))

    def _parsed(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[Numbered]:
        self.is_lines = True
        number = 0
        for number, raw in lines:
            try:
                value = _load_line(number, raw)
            except UnreadableError as error:
                self.reject(error)
                continue
            yield number, value
        if self._damage is not None:
            self.reject(UnreadableError(f"{self._damage}; what follows is lost", number + 1))

    def _filled_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, until the data end or cannot be read further."""
        number = 0
        while True:
            try:
                raw = self._stream.readline()
            except _DAMAGE as error:
                self._damage = _damage_text(error)
                return
            if not raw:
                return
            number += 1
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            line = raw.strip(b"\r\n")
            filled = line.strip(b"\0")
            if filled.strip():
                yield number, raw if filled == line else filled
            if filled != line:
                yield number, b"\0"

    def _ends_in_nulls(self) -> bool:
        self._stream.seek(0)
        return any(raw.endswith(b"\0") for raw in self._stream)

    def _whole_text(self) -> str:
        self._stream.seek(0)
        try:
            data = self._stream.read().removeprefix(codecs.BOM_UTF8)
            return _decode(data.rstrip(b"\0"), 1)
        except _DAMAGE as error:
            raise UnreadableError(_damage_text(error)) from None


def load(text: str | bytes) -> Any:
    """Parse JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        why = error.msg.removesuffix(" at").removesuffix(" starting")  # the place is told in front
        raise UnreadableError(f"invalid JSON: {why}", error.lineno, error.colno) from None
    except RecursionError:
        raise UnreadableError("invalid JSON: nested too deep") from None
    except ValueError:  # more digits than Python converts; where they stand it does not say
        most = sys.get_int_max_str_digits()
        raise UnreadableError(f"holds an integer of more than {most:,} digits; make it a string") from None


def _line_of_message(text: str, index: int) -> int:
    """Return the line in which a message begins: of the list that `text` is, or of that under `messages`;
    where there is no list, `text` is the message.
    """
    place = _skip_blanks(text, 0)
    if text[place] == "{":  # of several keys the last is read
        place = dict(_members(text, place)).get("messages", place)
    if text[place] == "[":
        _, place = next(islice(_members(text, place), index, None))
    return text.count("\n", 0, place) + 1


def _members(text: str, place: int) -> Iterator[tuple[str | None, int]]:
    """Yield the key and the place of each value in the object or, without keys, the list at a place."""
    is_object = text[place] == "{"
    place = _skip_blanks(text, place + 1)
    while text[place] not in "]}":
        key = None
        if is_object:
            key, end = _DECODE(text, place)
            place = _skip_blanks(text, _skip_blanks(text, end) + 1)  # behind the colon
        yield key, place
        place = _skip_blanks(text, _DECODE(text, place)[1])
        if text[place] == ",":
            place = _skip_blanks(text, place + 1)


def _skip_blanks(text: str, place: int) -> int:
    """Return the place of the next character that is no blank."""
    found = _BLANKS.match(text, place)
    assert found is not None
    return found.end()


def _load_line(number: int, raw: bytes) -> Any:
    if raw == b"\0":
        raise UnreadableError(_NULLS, number)
    text = _decode(raw, number)
    try:
        return load(text)
    except UnreadableError as error:
        error.line = number
        raise


def _is_container(line: tuple[int, bytes]) -> bool:
    try:
        return isinstance(_load_line(*line), dict | list)
    except UnreadableError:
        return False


def _decode(data: bytes, line: int) -> str:
    """Return bytes that begin on a line as text."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        why = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise UnreadableError(why, line + data.count(b"\n", 0, error.start)) from None


def _damage_text(error: BaseException) -> str:
    reason = getattr(error, "strerror", None)
    return f"cannot be read: {reason}" if reason else f"the gzip data is damaged: {error}"
