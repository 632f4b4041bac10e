"""The words that stand around summaries and refs in a view."""

from __future__ import annotations

import re
from collections.abc import Sequence

INDEX_HEADING = "## Index"
NOTES_HEADING = "## Notes"
_LIKE_INDEX = re.compile(rf"^#+ *(?={INDEX_HEADING.lstrip('# ')} *$)", re.MULTILINE)
"""What a summary's own heading has in common with that of the index, which is taken off before a merge."""


def segment_text(
    ref: str,
    message_count: int,
    summary: str | None,
    facts: Sequence[str] = (),
    *,
    notes: Sequence[str] = (),
    guide: str = "",
) -> str:
    """Return the text of a segment: a label that names the ref, then what there is of summary, notes, index.

    The label says that the memory speaks: the role is `user`, and a model must not take it for the user's.

    Args:
        ref: the stored transcript.
        message_count: how many messages it holds.
        summary: what they came to.
        facts: the lines of the index.
        notes: what the agent asked to keep, each on one line.
        guide: a sentence on how to read back what left the view.
    """
    messages = "message" if message_count == 1 else "messages"
    where = f"Full text: {ref}." + (f" {guide}." if guide else "")
    if summary is None:
        label = f"[Earlier conversation: {message_count} {messages} left the view. {where}]"
        if guide:  # it has to fit where only the ref was reckoned with
            label = f"[{message_count} earlier {messages}: {ref}; {guide}]"
        return label + notes_section(notes)
    summary = _LIKE_INDEX.sub("", summary)
    return (
        f"[Summary by the memory, not by the user, of {message_count} earlier {messages}. {where}]\n{summary}"
        + notes_section(notes)
        + _section(INDEX_HEADING, facts)
    )


def notes_section(notes: Sequence[str]) -> str:
    """Return the part of a segment's text that holds notes."""
    return _section(NOTES_HEADING, notes)


def _section(heading: str, lines: Sequence[str]) -> str:
    return "".join((f"\n\n{heading}", *(f"\n- {line}" for line in lines))) if lines else ""


def summary_of(segment: str) -> str | None:
    """Return the summary inside a segment's text, without its label; None when it only names its ref."""
    _, newline, summary = segment.partition("\n")
    return summary if newline else None


def without_index(summary: str) -> str:
    """Return a summary, or a segment's text, without the index at its end, if it has one."""
    before, found, lines = summary.rpartition(_section(INDEX_HEADING, [""]))
    is_index = found and all(line.startswith("- ") for line in lines.split("\n")[1:])
    return before if is_index else summary


def without_notes(segment: str, notes: Sequence[str]) -> str:
    """Return a segment's text without the section that holds exactly these notes, if it has one."""
    section = notes_section(notes)
    before, found, after = segment.rpartition(section) if section else ("", "", "")
    return before + after if found else segment
