"""Print tables of which nothing is cut, however narrow the terminal."""

from __future__ import annotations

from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

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
