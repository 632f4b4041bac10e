"""What reads a format: a session of each value of a file that holds records, or one of all lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from context_compressor.lab.readers.documents import Document, Numbered
from context_compressor.lab.readers.session import Format, Session
from context_compressor.lab.readers.transcript import Transcript, text_in, title_in


class Reader:
    """Read a format. What `unwrap`, `begin` and `add` raise as `UnreadableError` is told of."""

    format: Format
    place = "messages[{}]: "
    """Names a record within what holds it, for errors."""
    id_keys: tuple[str, ...] = ("id", "session_id")
    """Under which a holder says what it calls itself, the first that is there."""

    def claims(self, sample: Sequence[Any]) -> int:
        """Return how many of the first values of a file are of this format."""
        raise NotImplementedError

    def is_item(self, value: Any) -> bool:
        """Tell whether a value is itself a record, as in a file with a record per line."""
        raise NotImplementedError

    def unwrap(self, value: Any) -> Any:
        """Return the records that a value holds."""
        raise NotImplementedError

    def begin(self, _transcript: Transcript, _holder: Any, _line: int) -> list[Numbered]:
        """Say what a holder says before its records; return further ones that stand before those."""
        return []

    def prune(self, _transcript: Transcript, items: list[Numbered]) -> list[Numbered]:
        """Take out records that others replace or take back, and tell how many."""
        return items

    def add(self, transcript: Transcript, item: Any, line: int) -> None:
        """Say a record, which stands on a line of the file."""
        raise NotImplementedError

    def read(self, document: Document) -> Iterator[Session]:
        """Yield a file's sessions; what cannot be read goes to `document.reject`."""
        for line, holder, held in self.groups(document):
            items = list(held) if holder is None else [(line, item) for item in held]
            transcript = Transcript()
            with document.rejecting(line, holds=True):
                items = self.begin(transcript, holder, line) + items
            for index, (number, item) in enumerate(self.prune(transcript, items)):
                place = "" if holder is None else self.place.format(index)
                with document.reading(transcript, number, place):
                    self.add(transcript, item, number)
            name = text_in(holder, *self.id_keys) if isinstance(holder, dict) else ""
            session = self.session(
                document, transcript, name or transcript.id, None if holder is None else line
            )
            yield replace(session, title=title_in(holder) or transcript.title)

    def groups(self, document: Document) -> Iterator[tuple[int, Any, Any]]:
        """Yield `(line, value, what unwrap makes of it)` of each; or, of all lines, `(line, None, items)`.

        The first value that is a record or holds some decides which; what stands before it, a header, is
        rejected.
        """
        values = document.values()
        is_held = False
        for line, value in values:
            if not is_held and self.is_item(value):
                yield line, None, chain([(line, value)], values)
                return
            held = None
            with document.rejecting(line, holds=True):
                held = self.unwrap(value)
            if held is not None:
                is_held = is_held or bool(held)
                yield line, value, held

    def session(
        self, document: Document, transcript: Transcript, name: str | None, held_at: int | None = None
    ) -> Session:
        """Return a session: what all lines of a file say, or the value that begins on line `held_at`."""
        messages, lines, compacted_at = transcript.finish()
        return Session(
            messages,
            document.name,
            self.format,
            id=name or None,
            title=transcript.title,
            line=held_at if document.is_lines else None,
            message_lines=lines if document.is_lines and held_at is None else (),
            notes=transcript.notes,
            compacted_at=compacted_at,
        )
