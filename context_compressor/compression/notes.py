"""Lines that stand beside a summary word for word: standing instructions, and the agent's notes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from context_compressor.compression.labels import notes_section, standing_section
from context_compressor.messages.standing import strength_of, weight_of
from context_compressor.summarizers.cutting import ELLIPSIS, cut_to_tokens
from context_compressor.tokens.protocol import TokenCounter

NOTE_TOKENS = 500
"""What is kept of one note: more is a summary, and that is the summariser's to write."""
_NOTE_CHARACTERS = 20 * NOTE_TOKENS
"""No more than this is counted: no text that says something has longer tokens on average."""
_LEAST_TOKENS = 8
"""A note of which less fits is left out: its first words alone mislead."""
_SAMPLE_REF = "ctx://1a2b3c4d5e6f7a8b"


def bounded_note(note: str, counter: TokenCounter) -> str:
    """Return a note, which stands on one line, in at most `NOTE_TOKENS` tokens."""
    short = note[:_NOTE_CHARACTERS]
    cut = cut_to_tokens(short, NOTE_TOKENS, counter)
    return cut + ELLIPSIS if cut == short and len(short) < len(note) else cut


def newest_once(lines: Iterable[str]) -> tuple[str, ...]:
    """Return lines, the oldest first, without those that a later one repeats."""
    return tuple(reversed(dict.fromkeys(reversed(list(lines)))))


def notes_tokens(notes: Sequence[str], count: Callable[[str], int]) -> int:
    """Return what notes add to a segment."""
    return count(notes_section(notes)) + 1 if notes else 0


def standing_tokens(lines: Sequence[str], left_out: int, count: Callable[[str], int]) -> int:
    """Return what standing instructions add to a segment."""
    return count(standing_section(lines, left_out, _SAMPLE_REF)) + 1 if lines else 0


def fit_standing(lines: Sequence[str], room: int, counter: TokenCounter) -> tuple[str, ...]:
    """Return the standing instructions that fit into `room` tokens, whole, the oldest first.

    Rules come before wishes, and these before facts; the newest first, and of facts those that name the most.
    """
    if standing_tokens(lines, 0, counter.count_text) <= room:
        return tuple(lines)
    left = room - standing_tokens(lines[-1:], len(lines), counter.count_text) + counter.count_text(lines[-1])
    kept: set[int] = set()

    def order(place: int) -> tuple[int, int, int]:
        strength = strength_of(lines[place])
        return -strength, 0 if strength else -weight_of(lines[place]), -place

    for place in sorted(range(len(lines)), key=order):
        tokens = counter.count_text(f"\n- {lines[place]}")
        if tokens <= left:
            kept.add(place)
            left -= tokens
    return tuple(line for place, line in enumerate(lines) if place in kept)


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
