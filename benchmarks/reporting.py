"""What the programs share: their help, and results that name their Python, and neither days nor machines."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def make_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is a program's docstring as it stands."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def notes_of(doc: str | None, first: str) -> str:
    """Return what a program's docstring says of its columns, from the one called `first` on."""
    return f"- {first}" + (doc or "").partition(f"\n- {first}")[2]


def run_apart(work: Callable[..., T], *arguments: Any) -> T:
    """Return what a function returns that is called in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def python_version() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def percent(share: float | None) -> str:
    """Return a share in per cent; a dash where there is none."""
    return "-" if share is None else f"{100 * share:.1f} %"


def number(value: float | None) -> str:
    """Return a number with two digits; a dash where there is none."""
    return "-" if value is None else f"{value:.2f}"


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, its columns as wide as they need."""
    widths = [max(len(row[n]) for row in [columns, *rows]) for n in range(len(columns))]
    for row in [columns, *rows]:
        cells = [row[0].ljust(widths[0])] + [
            cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)
        ]
        print("  ".join(cells))


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose others are figures."""
    lines = [columns, ["---", *("---:" for _ in columns[1:])], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write_results(folder: Path, name: str, data: dict[str, Any], title: str, text: str) -> None:
    """Write `name.json` and `name.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    told = json.dumps({"python": python_version(), **data}, indent=1, ensure_ascii=False)
    (folder / f"{name}.json").write_text(f"{told}\n", encoding="utf-8")
    page = f"# {title}\n\nMeasured with {python_version()}.\n\n{text.strip()}\n"
    (folder / f"{name}.md").write_text(page, encoding="utf-8")
