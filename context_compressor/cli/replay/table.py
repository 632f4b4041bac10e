"""Print what replays come to: a table for each budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table

from context_compressor.cli.outputs import TABLE_LOOK, print_table
from context_compressor.cli.wording import counted
from context_compressor.measure import KINDS, Told, Totals
from context_compressor.report.data import HOW_TO_ASK, OURS, ReportData, percent, short_number, told_range

_COLUMNS = ("saved", "peak", "fill", "over", "refused", "cost", "as if model")


def print_tables(console: Console, data: ReportData) -> None:
    """Print a table for each budget, one of what is told by kind, and what the columns mean."""
    for budget, rows in data.tables():
        count = counted(len(data.sessions), "session")
        table = make_table(
            f"Budget {budget:,} tokens: {count}, {rows[0][1].turns:,} turns", "system", _COLUMNS
        )
        for system, totals in rows:
            table.add_row(system, *_cells(totals), style="bold" if system == OURS else "")
        print_table(console, table)
        if data.has_probes:
            print_told(console, {system: (totals.told, totals.told_by_kind) for system, totals in rows})
    console.print(
        "peak: tokens of the largest request. fill: the mean of view to budget, from a session's first "
        "summary on. over, refused: turns above the budget, or that a provider refuses. cost: to that of the "
        "history, prompt cache counted; as if model: had a model written every summary."
    )
    if not data.has_probes:
        console.print(f"What views tell is not known: no session has probes. {HOW_TO_ASK} makes some.")


def print_told(console: Console, systems: Mapping[str, tuple[Told | None, Mapping[str, Told]]]) -> None:
    """Print what the views of systems tell: of all probes, with its interval, and of each kind."""
    asked = {name: (told, by_kind) for name, (told, by_kind) in systems.items() if told is not None}
    every = [told for told, _ in asked.values() if told is not None]
    table = make_table("Told by views", "probes", ["", *asked])
    table.add_row("all", f"{max(told.probes for told in every):,}", *(percent(told.share) for told in every))
    table.add_row("95 %", "", *map(told_range, every))
    table.add_row(
        "per 1,000 tokens", "", *(percent(told.per_1000_tokens, "-") for told in every), end_section=True
    )
    for kind in KINDS:
        found = [by_kind.get(kind) for _, by_kind in asked.values()]
        if any(found):
            count = max(told.probes for told in found if told is not None)
            table.add_row(
                kind, f"{count:,}", *(percent(None if told is None else told.share, "-") for told in found)
            )
    print_table(console, table)


def make_table(title: str, first: str, columns: Iterable[str]) -> Table:
    """Return a table of a name and figures."""
    table = Table(title=title, **TABLE_LOOK)
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _cells(totals: Totals) -> tuple[str, ...]:
    return (
        percent(totals.saved, "-"),
        "-" if totals.peak_tokens is None else short_number(totals.peak_tokens),
        percent(totals.fill, "-"),
        f"{totals.over:,}",
        f"{totals.invalid:,}",
        _ratio(totals.cost.spent_ratio),
        _ratio(totals.cost.as_if_model_ratio),
    )


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
