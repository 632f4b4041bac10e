"""What the demo shows while it runs, and what came of it."""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from context_compressor.events import CompressionEvent
from context_compressor.messages.text import counted, one_line

_PAGE = re.compile(r"\[(ctx://[0-9a-f]{16}) lines (\d+)-(\d+) of \d+.*\]")
_FOUND_TEXT = re.compile(r"\[(ctx://[0-9a-f]{16}) matches: .*\]")
_FOUND_LINE = re.compile(r"(\d+)(?::\d+-\d+)?(?: x\d+)?\| ")


@dataclass(slots=True)
class Row:
    """One turn, as displays show it."""

    turn: int
    tools: tuple[str, ...]
    history_tokens: int
    view_tokens: int
    events: tuple[CompressionEvent, ...]


@dataclass(slots=True)
class ReadBack:
    """A text that had left the view, fetched by the agent and compared with the original."""

    asked_for: str
    ref: str
    lines: list[str]
    is_identical: bool


@dataclass(slots=True)
class Outcome:
    """What the demo came to."""

    python: str
    budget_tokens: int
    requests: int = 0
    history_tokens: int = 0
    view_tokens: int = 0
    peak_view_tokens: int = 0
    history_input_tokens: int = 0
    """Tokens that all requests together would have cost without the memory."""
    view_input_tokens: int = 0
    """Tokens that all requests together did cost."""
    events: dict[str, int] = field(default_factory=dict)
    stored_texts: int = 0
    summarizer_calls: int = 0
    summarizer_input_tokens: int = 0
    summarizer_output_tokens: int = 0
    invalid_requests: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    read_back: ReadBack | None = None

    @property
    def is_good(self) -> bool:
        """Whether every check holds."""
        read_back = self.read_back is None or self.read_back.is_identical
        return not self.invalid_requests and self.peak_view_tokens <= self.budget_tokens and read_back


def first_found(answer: str) -> tuple[str, int] | None:
    """Return ref and line of the first match that an answer of `grep_offloaded` shows."""
    ref = None
    for line in answer.split("\n"):
        if header := _FOUND_TEXT.fullmatch(line):
            ref = header[1]
        elif ref is not None and (found := _FOUND_LINE.match(line)):
            return ref, int(found[1])
    return None


def page_lines(page: str) -> list[str]:
    """Return the lines of text that an answer of `read_offloaded` shows; none when it shows no page."""
    lines = page.split("\n")
    return lines[1:-1] if _PAGE.fullmatch(lines[0]) else []


def stands_in(lines: Sequence[str], history: Sequence[dict[str, Any]]) -> bool:
    """Tell whether `lines` stand, one after the other and unchanged, in one message of the history."""
    wanted = "\n".join(("", *lines, ""))
    return bool(lines) and any(wanted in f"\n{message.get('content')}\n" for message in history)


_TURNS_PER_LINE = 10
"""A line of output for so many, where there is no terminal to draw on."""
_BAR_WIDTH = 12
_MAX_ROWS = 14
"""Turns that the table shows, the latest; fewer in a low terminal."""
_VERBS = {"compact": "moved out", "compress": "summarised", "merge": "merged", "edit": "edited"}
_VERBS["failure"] = "failed"


class Display:
    """Show nothing: for programs, which read the outcome."""

    def show(self, row: Row) -> None:
        """Show one request."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the terminal as it was found."""


def make_display(console: Console, budget: int, turns: int) -> Display:
    """Return what suits the place that the demo is printed to, and print what a newcomer needs to know."""
    console.print(
        f"A scripted agent explores Python's standard library: {counted(turns, 'turn')}, real tools.\n"
        f"history: all it has said and read. view: what a model would be sent, at most\n"
        f"{budget:,} tokens; where the history outgrows that, older parts are moved out.",
        soft_wrap=True,
    )
    if console.file.isatty() and not console.is_dumb_terminal and console.encoding.startswith("utf"):
        return LiveDisplay(console, budget)
    console.print()
    return PlainDisplay(console, budget)


class PlainDisplay(Display):
    """Print a line for every tenth turn and for every event."""

    def __init__(self, console: Console, budget: int) -> None:
        self._console = console
        self._budget = budget

    def show(self, row: Row) -> None:
        """Print the request's events, and the request itself if it is the tenth."""
        lines = list(map(_event_line, row.events))
        if row.turn % _TURNS_PER_LINE == 0:
            share = 100 * row.view_tokens / self._budget
            tokens = f"history {row.history_tokens:7,} tokens, view {row.view_tokens:6,}"
            lines.append(f"{tokens} ({share:.0f} % of the budget)")
        for line in lines:
            self._console.print(f"turn {row.turn:3}  {line}", soft_wrap=True)


class LiveDisplay(Display):
    """Keep a table of the last turns on the screen."""

    def __init__(self, console: Console, budget: int) -> None:
        self._budget = budget
        self._rows: deque[Row] = deque(maxlen=max(4, min(_MAX_ROWS, console.height - 12)))
        self._live = Live(console=console, refresh_per_second=12)

    def show(self, row: Row) -> None:
        """Add the request to the table."""
        self._rows.append(row)
        self._live.update(self._render())

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the last state of the table on the screen."""
        self._live.stop()

    def _render(self) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("turn", justify="right", width=4)
        table.add_column("tools", width=14, no_wrap=True)
        table.add_column("history", justify="right", width=8)
        table.add_column("view", justify="right", width=7)
        table.add_column("of the budget", width=_BAR_WIDTH + 2)
        table.add_column("event and tokens saved", no_wrap=True, style="bold cyan")
        for row in self._rows:
            tokens = f"{row.history_tokens:,}", f"{row.view_tokens:,}"
            bar = self._bar(row.view_tokens)
            table.add_row(str(row.turn), _tools_text(row.tools), *tokens, bar, _event_cell(row.events))
        return table

    def _bar(self, tokens: int) -> Text:
        share = tokens / self._budget
        filled = round(min(share, 1) * _BAR_WIDTH)
        colour = "green" if share < 0.75 else "yellow" if share <= 1 else "red"
        return Text.assemble(("█" * filled, colour), ("░" * (_BAR_WIDTH - filled), "dim"))


def _tools_text(tools: tuple[str, ...]) -> str:
    if not tools:
        return "(answer)"
    others = len(tools) - tools.count(tools[0])
    if others:
        return f"{tools[0]} +{others}"
    return tools[0] if len(tools) == 1 else f"{tools[0]} x{len(tools)}"


def _event_cell(events: tuple[CompressionEvent, ...]) -> str:
    if not events:
        return ""
    last = events[-1]
    more = f" +{len(events) - 1}" if len(events) > 1 else ""
    return f"{_VERBS[last.kind]} {last.tokens_before - last.tokens_after:,}{more}"


def _event_line(event: CompressionEvent) -> str:
    if event.kind == "failure":
        return f"failure: {one_line(event.error or event.reason)}"
    return (
        f"{event.kind}: {event.tokens_before:,} tokens became {event.tokens_after:,}, "
        f"{counted(len(event.refs), 'text')} stored"
    )


def print_summary(console: Console, outcome: Outcome, store: str | None) -> None:
    """Print what the demo came to, the same in a terminal and a log."""
    bad = outcome.invalid_requests
    events = [f"{count} {kind} ({_VERBS[kind]})" for kind, count in sorted(outcome.events.items())]
    kept = ", each one tool call away" if outcome.stored_texts else ""
    figures = [
        ("requests", f"{outcome.requests}, invalid: {len(bad)}"),
        ("history", f"{outcome.history_tokens:,} tokens"),
        ("view at the end", _less(outcome.history_tokens, outcome.view_tokens)),
        ("largest view", f"{outcome.peak_view_tokens:,} of {outcome.budget_tokens:,} tokens"),
        ("events", ", ".join(events) or "none"),
        ("texts stored", f"{outcome.stored_texts}{kept}"),
        ("input, all turns", f"{outcome.history_input_tokens:,} tokens had each turn sent the history"),
        ("", _less(outcome.history_input_tokens, outcome.view_input_tokens) + ", with views"),
    ]
    if calls := outcome.summarizer_calls:
        read, written = outcome.summarizer_input_tokens, outcome.summarizer_output_tokens
        figures.append(("summaries", f"{calls} calls, {read:,} tokens read, {written:,} written"))
    console.print()
    for label, figure in figures:
        console.print(Text.assemble((f"{label:18}", "bold"), figure), soft_wrap=True)
    _print_read_back(console, outcome)
    for problem in (*bad[:3], *dict.fromkeys(outcome.failures[:3])):
        console.print(Text(one_line(problem), "red"), soft_wrap=True)
    hint = "Your own sessions: context-compressor compress chat.json -o small.json"
    if store is not None and outcome.stored_texts:
        hint = f"The texts are kept: context-compressor grep PATTERN --store {shlex.quote(store)}"
    console.print()
    console.print(Text(hint if hint.isprintable() else one_line(hint)), soft_wrap=True)


def _less(before: int, after: int) -> str:
    saved = 100 * (before - after) / before if before else 0.0
    return f"{after:,} tokens ({saved:.0f} % less)"


def _print_read_back(console: Console, outcome: Outcome) -> None:
    back = outcome.read_back
    console.print()
    if back is None:
        console.print("Nothing that the agent read has left its view; try more --turns.", soft_wrap=True)
        return
    asked = f"Asked for {back.asked_for}, long out of its view, the agent"
    if not back.ref:
        console.print(Text(f"{asked} did not find it: {back.lines[0]}", "red"), soft_wrap=True)
        return
    console.print(Text(f"{asked} finds and reads it again\n({back.ref}):"), soft_wrap=True)
    for line in back.lines:
        console.print(Text("  | " + line.expandtabs(4), "dim", no_wrap=True, overflow="ellipsis"))
    if back.is_identical:
        console.print(Text("Word for word what the agent had read.", "green"))
    else:
        console.print(Text("This is NOT what the agent had read.", "red"))
