"""Sessions of formats whose files hold an item per line, or values of which each holds a session's items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from context_compressor.readers.documents import Document, Numbered
from context_compressor.readers.session import Format, Session, UnreadableError
from context_compressor.readers.transcript import Transcript


def to_session(
    document: Document,
    format: Format,
    transcript: Transcript,
    id: str | None,
    notes: tuple[str, ...] = (),
    held_at: int | None = None,
) -> Session:
    """Return a session: what all lines of a file say, or the value that begins on line `held_at`."""
    messages, lines = transcript.finish()
    return Session(
        messages,
        document.name,
        format,
        id=id,
        line=held_at if document.is_lines else None,
        message_lines=lines if document.is_lines and held_at is None else (),
        notes=notes,
    )


def read_groups(
    document: Document, is_item: Callable[[Any], bool], unwrap: Callable[[Any], Any]
) -> Iterator[tuple[int, Any, Any]]:
    """Yield `(line, value, what unwrap makes of it)` of each value; or, of all lines, `(line, None, items)`.

    The first value that is an item or holds some decides which; what stands before it, a header, is rejected.
    """
    values = document.values()
    is_held = False
    for line, value in values:
        if not is_held and is_item(value):
            yield line, None, chain([(line, value)], values)
            return
        try:
            held = unwrap(value)
        except UnreadableError as error:
            document.reject(error, line)
            continue
        is_held = is_held or bool(held)
        yield line, value, held


def _begin_with_nothing(_transcript: Transcript, _holder: Any, _line: int) -> list[Numbered]:
    return []


@dataclass(frozen=True, slots=True)
class GroupReader:
    """How such a format is read. What `unwrap`, `add` and `begin` raise as `UnreadableError` is told of.

    Args:
        format: which it is.
        is_item: tells whether a value is itself an item, as in a file with an item per line.
        unwrap: returns the items that a value holds.
        add: says an item, which stands on a line of the file, to a transcript.
        place: names an item within its holder, for errors; `{}` is its index.
        id_keys: under which a holder says what it calls itself, the first that is there.
        begin: says what a holder says before its items; returns further ones that stand before those.
    """

    format: Format
    is_item: Callable[[Any], bool]
    unwrap: Callable[[Any], list[Any]]
    add: Callable[[Transcript, Any, int], None]
    place: str
    id_keys: tuple[str, ...] = ("id", "session_id")
    begin: Callable[[Transcript, Any, int], list[Numbered]] = _begin_with_nothing

    def read(self, document: Document) -> Iterator[Session]:
        """Yield a session per value that holds items, or one of all lines."""
        for line, holder, held in read_groups(document, self.is_item, self.unwrap):
            items = list(held) if holder is None else [(line, item) for item in held]
            transcript = Transcript()
            try:
                items = self.begin(transcript, holder, line) + items
            except UnreadableError as error:
                document.reject(error, line)
            for index, (number, item) in enumerate(items):
                try:
                    self.add(transcript, item, number)
                except UnreadableError as error:
                    place = "" if holder is None else self.place.format(index)
                    document.reject(UnreadableError(place + error.why), number)
            held_at = None if holder is None else line
            yield to_session(document, self.format, transcript, self._id_of(holder), held_at=held_at)

    def _id_of(self, holder: Any) -> str | None:
        found = [holder.get(key) for key in self.id_keys] if isinstance(holder, dict) else []
        return next((value for value in found if isinstance(value, str) and value), None)
