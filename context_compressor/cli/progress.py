"""The progress bar of commands that take long."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def make_progress(console: Console, *, is_shown: bool) -> Progress:
    """Return a progress bar that leaves no trace; its tasks say in `unit` what they count."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not is_shown,
    )
