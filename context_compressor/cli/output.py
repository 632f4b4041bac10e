"""What commands print: tables, JSON, progress."""

from __future__ import annotations

import gzip
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from context_compressor.cli.options import CommandError, check_path
from context_compressor.measure import KINDS, Told, Totals
from context_compressor.measure.data import HOW_TO_ASK, OURS, ReportData, percent, short_number, told_range
from context_compressor.messages.text import counted, one_line

TABLE_LOOK: Final[dict[str, Any]] = {
    "title_justify": "left",
    "title_style": "bold",
    "box": SIMPLE,
    "pad_edge": False,
}
_LEAST_FOLDED = 16
"""Characters that a folded column has at least, unless what stands in it is shorter."""
_ANY_WIDTH = 10_000
"""More characters than a line has: to ask how wide a table would like to be."""
_MAX_NAMED = 5
"""Problems that are named one by one; reports and `--json` have more."""


class _PipeConsole(Console):
    """A console that leaves it to `run` what a broken pipe means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def make_console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr that prints text as it is, unhighlighted."""
    return _PipeConsole(stderr=stderr, highlight=False)


def is_stdout(name: str | None) -> bool:
    """Tell whether an output is stdout: where none is named, or `-`, as `-` is stdin where a file is read."""
    # By its name in /dev it could not be written whole or not at all, and a file behind it would be replaced.
    return name in (None, "-", "/dev/stdout")


def check_stdout() -> None:
    """Refuse to work for nobody."""
    if sys.stdout is None:
        raise CommandError("stdout is closed")


def check_output(name: str, option: str = "--output") -> None:
    """Refuse an output that could not be written, before any work is done.

    Raises:
        CommandError: it is empty or a directory, its directory is not there or not to be written to, or
            stdout is closed.
    """
    check_path(name, option)
    if is_stdout(name):
        check_stdout()
        return
    path = Path(name)
    if path.is_dir():
        raise CommandError(f"{option} {name}: is a directory; name a file in it")
    if not path.parent.is_dir():
        raise CommandError(f"{option} {name}: there is no directory {path.parent}")
    changed = path if path.exists() and not path.is_file() else path.resolve().parent
    if not os.access(changed, os.W_OK):
        raise CommandError(f"{option} {name}: cannot be written: {changed} is missing or read-only")


def check_folder(name: str, option: str) -> None:
    """Refuse a directory that could hold nothing, before any work is done."""
    check_path(name, option)
    folder = Path(name)
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{option} {name}: is not a directory")


def write_output(name: str, text: str, option: str = "--output") -> None:
    """Write `text` to a file, gzipped where the name ends in .gz; a failure leaves what was there before.

    Raises:
        BrokenPipeError: it is stdout, and whoever read it has gone.
        CommandError: it could not be written.
    """
    if is_stdout(name):
        write_stdout(text)
        return
    data = text.encode()
    if name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)  # no time: the same sessions give the same file
    try:
        path = Path(name)
        if path.exists() and not path.is_file():
            # A device or a pipe must not be replaced by a file, and a pipe in /dev/fd resolves to no path.
            path.write_bytes(data)
        else:
            _replace(path.resolve(), data)  # a link stays a link, and what it names is replaced
    except OSError as error:
        raise CommandError(f"{option} {name}: cannot be written: {error.strerror or error}") from None


def _replace(path: Path, data: bytes) -> None:
    descriptor, temporary_name = tempfile.mkstemp(".tmp", f".{path.name[:40]}-", path.parent)
    temporary = Path(temporary_name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(_mode_for(path))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _mode_for(path: Path) -> int:
    """Return the mode of the file that is replaced, or that of a new file; `mkstemp` makes private ones."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def write_stdout(text: str) -> None:
    """Write `text` to stdout as it is: no newline translated, lone surrogates as the bytes they came from.

    Raises:
        BrokenPipeError: whoever read it has gone.
        CommandError: there is no stdout, or it takes no more.
    """
    check_stdout()
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"stdout: cannot be written: {error.strerror or error}") from None


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


def warn(title: str, lines: Sequence[str]) -> None:
    """Name on stderr what is not in the result: it is missing, so `--quiet` does not silence it."""
    for line in lines[:_MAX_NAMED]:
        print(f"{title}: {one_line(line)}", file=sys.stderr)
    if len(lines) > _MAX_NAMED:
        print(f"{title}: {len(lines) - _MAX_NAMED:,} more", file=sys.stderr)


def print_table(console: Console, table: Table) -> None:
    """Print a table; where the terminal has no room for its lines, print a line for each of its cells.

    One column at most may have `overflow="fold"`: it gets the width that the others leave.
    """
    folded = [column for column in table.columns if column.overflow == "fold"]
    for column in folded:
        column.max_width = _LEAST_FOLDED
    needed = Measurement.get(console, console.options.update(max_width=_ANY_WIDTH), table).maximum
    if needed > console.width:
        _print_cells(console, table)
        return
    for column in folded:
        column.max_width = _LEAST_FOLDED + console.width - needed
    console.print(table)


def _print_cells(console: Console, table: Table) -> None:
    headers = [str(column.header) for column in table.columns]
    indent = max(map(len, headers)) + 2
    if table.title:
        console.print(Text(str(table.title), "bold"), soft_wrap=True)
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        console.print()
        for header, cell in zip(headers, cells, strict=True):
            if str(cell):
                console.print(Text(f"{header:{indent}}{cell}"), soft_wrap=True)
    console.print()


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
