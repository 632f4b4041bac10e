"""Print what replays come to: a table for each budget."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from context_compressor.cli.tables import TABLE_LOOK, print_table
from context_compressor.cli.wording import counted
from context_compressor.measure.results import Totals
from context_compressor.report.data import OURS, ReportData, short_number

_COLUMNS = ("saved", "peak", "over", "refused", "cost", "shown", "read back", "lost")


def print_tables(console: Console, data: ReportData) -> None:
    """Print a table for each budget, and a line that says what its columns mean."""
    for budget, rows in data.tables():
        table = Table(
            title=f"Budget {budget:,} tokens: {counted(len(data.sessions), 'session')}, "
            f"{rows[0][1].turns:,} turns",
            **TABLE_LOOK,
        )
        table.add_column("system", no_wrap=True)
        for column in _COLUMNS:
            table.add_column(column, justify="right", no_wrap=True)
        for system, totals in rows:
            table.add_row(system, *_cells(totals), style="bold" if system == OURS else "")
        print_table(console, table)
    console.print(
        "peak: tokens of the largest request. over, refused: turns above the budget, or that a provider "
        "refuses. cost: to that of the history, prompt cache counted. shown, read back, lost: evidence that "
        "the recorded assistant used and that views show, lead to, or neither."
    )


def _cells(totals: Totals) -> tuple[str, ...]:
    evidence = totals.evidence
    return (
        _percent(totals.saved),
        "-" if totals.peak_tokens is None else short_number(totals.peak_tokens),
        f"{totals.over:,}",
        f"{totals.invalid:,}",
        "-" if totals.cost.spent_ratio is None else f"{totals.cost.spent_ratio:.2f}",
        _percent(evidence.known_share),
        f"{evidence.recoverable - evidence.known:,}",
        f"{totals.lost:,}",
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
