"""Print what replays come to: a table for each budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table

from context_compressor.cli.tables import TABLE_LOOK, print_table
from context_compressor.cli.wording import counted
from context_compressor.measure import KINDS, Told, Totals
from context_compressor.report.data import HOW_TO_ASK, OURS, ReportData, percent, short_number, told_range

_COLUMNS = ("saved", "peak", "fill", "over", "refused", "cost", "as if model")


def print_tables(console: Console, data: ReportData) -> None:
    """Print a table for each budget, one of what is told by kind, and what the columns mean."""
    for budget, rows in data.tables():
        table = _make_table(
            f"Budget {budget:,} tokens: {counted(len(data.sessions), 'session')}, {rows[0][1].turns:,} turns",
            (*_COLUMNS, "told") if data.has_probes else _COLUMNS,
        )
        for system, totals in rows:
            cells = _cells(totals)
            table.add_row(
                system, *(cells if data.has_probes else cells[:-1]), style="bold" if system == OURS else ""
            )
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


def print_told(console: Console, told: Mapping[str, tuple[Told | None, Mapping[str, Told]]]) -> None:
    """Print what each system's views tell: of all probes, by kind, with intervals of 95 %."""
    kinds = [kind for kind in KINDS if any(kind in by_kind for _, by_kind in told.values())]
    counts = {kind: max(by_kind[kind].probes for _, by_kind in told.values()) for kind in kinds}
    table = _make_table(
        f"Told, of {counted(sum(counts.values()), 'probe')}",
        ("all", "95 %", "per 1,000 tokens", *(f"{kind} ({count})" for kind, count in counts.items())),
    )
    for system, (of_all, by_kind) in told.items():
        if of_all is None:
            continue
        dense = "-" if of_all.per_1000_tokens is None else f"{100 * of_all.per_1000_tokens:.1f} %"
        shares = (f"{100 * by_kind[kind].share:.0f} %" for kind in kinds)
        table.add_row(
            system,
            percent(of_all.share),
            told_range(of_all),
            dense,
            *shares,
            style="bold" if system == OURS else "",
        )
    print_table(console, table)


def _make_table(title: str, columns: Iterable[str]) -> Table:
    table = Table(title=title, **TABLE_LOOK)
    table.add_column("system", no_wrap=True)
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
        percent(None if totals.told is None else totals.told.share, "-"),
    )


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
