"""The words that stand around summaries and refs in a view."""

from __future__ import annotations

from collections.abc import Sequence

INDEX_HEADING = "## Index"
NOTES_HEADING = "## Notes"


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
    where = f"Full text: {ref}." + (f" {guide}." if guide else "")
    if summary is None:
        return f"[Earlier conversation: {message_count} messages left the view. {where}]"
    return (
        f"[Summary by the memory, not by the user, of {message_count} earlier messages. {where}]\n{summary}"
        + _section(NOTES_HEADING, notes)
        + _section(INDEX_HEADING, facts)
    )


def _section(heading: str, lines: Sequence[str]) -> str:
    return "".join((f"\n\n{heading}", *(f"\n- {line}" for line in lines))) if lines else ""


def summary_of(segment: str) -> str | None:
    """Return the summary inside a segment's text, without its label; None when it only names its ref."""
    _, newline, summary = segment.partition("\n")
    return summary if newline else None


def split_notes(segment: str) -> tuple[str, list[str]]:
    """Return a segment's text without its notes, and these."""
    before, heading, rest = segment.rpartition(f"\n\n{NOTES_HEADING}\n")
    if not heading:
        return segment, []
    notes, _, after = rest.partition("\n\n")
    return f"{before}\n\n{after}" if after else before, [line[2:] for line in notes.split("\n")]
