"""The words of the notes: label, standing instructions, what the agent asked to keep, as much as fits."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from context_compressor.summarizers.cut import ELLIPSIS, cut_to_tokens
from context_compressor.summarizers.sections import is_chinese
from context_compressor.tokens.counter import TokenCounter

T = TypeVar("T", bound=Hashable)

_STANDING = {
    False: "## Said by users, may still hold (orders may be done)",
    True: "## 用户原话，可能仍然有效（要求可能已完成）",
}
_NOTES = "## Notes"
_OLD_INDEX = "## Index"
"""Heading of a list of names at the end of segments that earlier releases made."""


def segment_text(
    ref: str,
    message_count: int,
    summary: str | None,
    *,
    standing: Sequence[str] = (),
    left_out: int = 0,
    notes: Sequence[str] = (),
    guide: str = "",
) -> str:
    """Return the text of a segment: a label that names the ref, then what there is beside it.

    The label says that the memory speaks: the role is `user`, and a model must not take it for the user's.

    Args:
        ref: the stored transcript.
        message_count: how many messages it holds.
        summary: what they came to.
        standing: standing instructions, each on one line, the oldest first.
        left_out: how many more there are, which only the stored transcript has.
        notes: what the agent asked to keep, each on one line.
        guide: a sentence on how to read back what left the view.
    """
    messages = "message" if message_count == 1 else "messages"
    where = f"Full text: {ref}." + (f" {guide}." if guide else "")
    beside = standing_section(standing, left_out, ref) + notes_section(notes)
    if summary is None:
        label = f"[Earlier conversation: {message_count} {messages} left the view. {where}]"
        if guide:  # it has to fit where only the ref was reckoned with
            label = f"[{message_count} earlier {messages}: {ref}; {guide}]"
        return label + beside
    of = f"of {message_count} earlier {messages}; what stands below is newer"
    label = f"[Notes by the memory, not by the user, {of}. {where}]"
    return f"{label}\n{summary}{beside}"


_LABEL = re.compile(
    r"\[(?:Earlier conversation: \d+ messages? left the view\. Full text: "
    r"|\d+ earlier messages?: "
    r"|(?:Notes|Summary) by the memory, not by the user, of \d+ earlier messages?"
    r"(?:; what stands below is newer)?\. Full text: )ctx://[0-9a-f]{16}[.;\]]"
)


def is_segment_text(text: str) -> bool:
    """Tell whether a text begins as `segment_text` does."""
    return _LABEL.match(text) is not None


def before_segment(text: str) -> str | None:
    """Return what stands before the text of a segment, less blank lines; None: there is none."""
    found = _LABEL.search(text)
    return None if found is None else text[: found.start()].rstrip("\n")


def standing_section(lines: Sequence[str], left_out: int = 0, ref: str = "") -> str:
    """Return the part of a segment's text that holds standing instructions."""
    chinese = is_chinese(lines)
    more = f"（另有 {left_out} 条较早的，见 {ref}）" if chinese else f"({left_out} older ones: {ref})"
    return _section(_STANDING[chinese], [*lines, more] if left_out and lines else lines)


def notes_section(notes: Sequence[str]) -> str:
    """Return the part of a segment's text that holds notes."""
    return _section(_NOTES, notes)


def _section(heading: str, lines: Sequence[str]) -> str:
    return "".join((f"\n\n{heading}", *(f"\n- {line}" for line in lines))) if lines else ""


def summary_of(segment: str, standing: Sequence[str] = (), notes: Sequence[str] = ()) -> str | None:
    """Return the summary inside a segment's text; None when it only names its ref.

    Without its label, the list of names of earlier releases, and the sections that hold exactly these
    standing instructions and notes.
    """
    _, newline, rest = segment.partition("\n")
    summary = _without_section(newline + rest, _OLD_INDEX)
    if notes:
        summary = summary.removesuffix(notes_section(notes))
    if standing:
        summary = _without_section(summary, _STANDING[is_chinese(standing)])
    return summary.strip("\n") or None


def _without_section(text: str, heading: str) -> str:
    """Return a text without the list at its end under this heading, if it has one."""
    before, found, lines = text.rpartition(f"\n\n{heading}\n- ")
    return before if found and all(line.startswith("- ") for line in lines.split("\n")[1:]) else text


NOTE_TOKENS = 500
"""What is kept of one note: more is a summary, and that is the summariser's to write."""
_NOTE_CHARACTERS = 20 * NOTE_TOKENS
"""No more than this is counted: no text that says something has longer tokens on average."""
_LEAST_TOKENS = 8
"""A note of which less fits is left out: its first words alone mislead."""
SAMPLE_REF = "ctx://1a2b3c4d5e6f7a8b"
"""Letters and digits in turn: no vocabulary joins them, so that no other ref costs more."""


def bounded_note(note: str, counter: TokenCounter) -> str:
    """Return a note, which stands on one line, in at most `NOTE_TOKENS` tokens."""
    short = note[:_NOTE_CHARACTERS]
    cut = cut_to_tokens(short, NOTE_TOKENS, counter)
    return cut + ELLIPSIS if cut == short and len(short) < len(note) else cut


def newest_once(lines: Iterable[T]) -> tuple[T, ...]:
    """Return lines, or what else, the oldest first, without those that a later one repeats."""
    return tuple(reversed(dict.fromkeys(reversed(list(lines)))))


def section_tokens(section: str, counter: TokenCounter) -> int:
    """Return what a section adds to a segment."""
    return counter.count_text(section) + 1 if section else 0


def fit_standing(lines: Sequence[str], room: int, counter: TokenCounter) -> tuple[str, ...]:
    """Return the newest standing instructions that fit into `room` tokens, whole, the oldest first."""
    if section_tokens(standing_section(lines), counter) <= room:
        return tuple(lines)
    newest = standing_section(lines[-1:], len(lines), SAMPLE_REF)
    left = room - section_tokens(newest, counter) + counter.count_text(lines[-1])
    kept: tuple[str, ...] = ()
    for line in reversed(lines):
        if (tokens := counter.count_text(f"\n- {line}")) <= left:
            kept = (line, *kept)
            left -= tokens
    return kept


def fit_notes(notes: Sequence[str], room: int, counter: TokenCounter) -> tuple[str, ...]:
    """Return the notes, the newest before others, as far as they fit into `room` tokens."""
    kept: tuple[str, ...] = ()
    for text in reversed(notes):
        if section_tokens(notes_section([text, *kept]), counter) <= room:
            kept = (text, *kept)
            continue
        left = room - section_tokens(notes_section(["", *kept]), counter)
        cut = cut_to_tokens(text, left, counter) if left >= _LEAST_TOKENS else ""
        fits = cut != "" and section_tokens(notes_section([cut, *kept]), counter) <= room
        return (cut, *kept) if fits else kept
    return kept
