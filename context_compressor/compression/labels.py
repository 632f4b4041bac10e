"""The words that stand around summaries and refs in a view."""

from __future__ import annotations

from collections.abc import Sequence

INDEX_HEADING = "## Index"


def segment_text(ref: str, message_count: int, summary: str | None, facts: Sequence[str] = ()) -> str:
    """Return the text of a segment: a label that names the ref, then summary and index if there are any.

    The label says that the memory speaks: the role is `user`, and a model must not take it for the user's.
    """
    where = f"Full text: {ref} (read_offloaded, grep_offloaded)."
    index = "".join(f"\n- {fact}" for fact in facts)
    if summary is None:
        return f"[Earlier conversation: {message_count} messages left the view. {where}]"
    return (
        f"[Summary by the memory, not by the user, of {message_count} earlier messages. {where}]\n{summary}"
    ) + (f"\n\n{INDEX_HEADING}{index}" if index else "")


def summary_of(segment: str) -> str | None:
    """Return the summary inside a segment's text, without its label; None when it only names its ref."""
    _, newline, summary = segment.partition("\n")
    return summary if newline else None
