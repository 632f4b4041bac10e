"""The agent's notes on what to keep: how long one may be, and which of them fit into a segment. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from context_compressor.compression.labels import notes_section
from context_compressor.summarizers.cutting import ELLIPSIS, cut_to_tokens
from context_compressor.tokens.protocol import TokenCounter

NOTE_TOKENS = 500
"""What is kept of one note: more is a summary, and that is the summariser's to write."""
_NOTE_CHARACTERS = 20 * NOTE_TOKENS
"""No more than this is counted: no text that says something has longer tokens on average."""
_LEAST_TOKENS = 8
"""A note of which less fits is left out: its first words alone mislead."""


def bounded_note(note: str, counter: TokenCounter) -> str:
    """Return a note, which stands on one line, in at most `NOTE_TOKENS` tokens."""
    short = note[:_NOTE_CHARACTERS]
    cut = cut_to_tokens(short, NOTE_TOKENS, counter)
    return cut + ELLIPSIS if cut == short and len(short) < len(note) else cut


def newest_once(notes: Iterable[str]) -> tuple[str, ...]:
    """Return notes, the oldest first, without those that a later one repeats."""
    return tuple(reversed(dict.fromkeys(reversed(list(notes)))))


def notes_tokens(notes: Sequence[str], count: Callable[[str], int]) -> int:
    """Return what notes add to a segment."""
    return count(notes_section(notes)) + 1 if notes else 0


def fit_notes(notes: Sequence[str], room: int, counter: TokenCounter) -> tuple[str, ...]:
    """Return the notes, the newest before others, as far as they fit into `room` tokens."""
    kept: tuple[str, ...] = ()
    for text in reversed(notes):
        if notes_tokens([text, *kept], counter.count_text) > room:
            left = room - notes_tokens(["", *kept], counter.count_text)
            cut = cut_to_tokens(text, left, counter) if left >= _LEAST_TOKENS else ""
            fits = cut != "" and notes_tokens([cut, *kept], counter.count_text) <= room
            return (cut, *kept) if fits else kept
        kept = (text, *kept)
    return kept
