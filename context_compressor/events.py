"""What happened, for people and tools that watch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Literal

EventKind = Literal["compact", "compress", "edit", "failure"]
NoteFate = Literal["kept", "cut", "dropped"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressionEvent:
    """One moment in which the view changed other than by growing, or in which something failed."""

    kind: EventKind
    """`compact` (stubs only), `compress` (messages left for the notes), `edit` (a change made by the user:
    delete, marks, the base), `failure` (summariser or store; the next means down was used)."""
    reason: str
    """Why it happened, in a few words, e.g. "over budget"."""
    tokens_before: int
    """Tokens of the view before."""
    tokens_after: int
    """Tokens of the view after."""
    refs: tuple[str, ...] = ()
    """Refs of the texts that left the view."""
    message_ids: tuple[str, ...] = ()
    """Ids of the messages that left the view or were changed, and of the stand-in whose place another took;
    of an edit of everything, none."""
    summary_input_tokens: int = 0
    """Tokens read by whoever wrote notes, rules included."""
    summary_output_tokens: int = 0
    """Tokens written by whoever did, rules included."""
    seconds: float = 0.0
    """Wall-clock seconds that it took to store and note what left."""
    error: str | None = None
    """What failed, for kind `failure`."""
    note: NoteFate | None = None
    """What became of the note given to `compress_now`: all of it stands in the view now, or its beginning, or
    nothing; None where none was given."""
    key: str | None = None
    """Whose conversation it was: its key in an adapter, its session's id in a database; None: it has none."""

    number: int | None = None
    """Of an event whose edits the ledger has: its number, for `view_at`, as long as they hold."""

    def __str__(self) -> str:
        what = self.error or f"{self.tokens_before:,} tokens became {self.tokens_after:,}"
        whose = "" if self.key is None else f"{' '.join(self.key.split())[:200]}: "
        return f"{whose}{self.kind} ({self.reason}): {what}"


EventHook = Callable[[CompressionEvent], Awaitable[None] | None] | Callable[[CompressionEvent], object]
"""A callable, sync or async, that receives every event; its errors are logged and contained."""


def edit_event(reason: str, before: int, after: int, ids: Iterable[str]) -> CompressionEvent:
    """Return the event of an edit that was no compression; `before` and `after`: tokens of the view."""
    return CompressionEvent(
        kind="edit",
        reason=reason,
        tokens_before=before,
        tokens_after=after,
        message_ids=tuple(dict.fromkeys(ids)),
    )


def failure_event(reason: str, tokens: int, error: str) -> CompressionEvent:
    """Return the event of something that failed, and left the view of so many tokens as it was."""
    return CompressionEvent(
        kind="failure", reason=reason, tokens_before=tokens, tokens_after=tokens, error=error
    )
