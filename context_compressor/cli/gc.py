"""`gc`: remove from a store what no session has open, and say what is there."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from math import inf
from typing import Any

from rich.table import Table
from rich.text import Text

from context_compressor.cli.options import DONE, CommandError, check_path, check_store
from context_compressor.cli.output import TABLE_LOOK, check_stdout, make_console, print_table
from context_compressor.errors import OffloadError
from context_compressor.messages.text import counted, one_line
from context_compressor.offload.folders import NAMESPACE
from context_compressor.offload.retention import GarbageCollection, collect_garbage

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_MAX_ROWS = 40
"""Namespaces shown in the table; `--json` has all."""


def read_bytes(given: str) -> int:
    """Return a size in bytes: 500MB (10^6), 2GiB (2^30), or a number alone."""
    found = _SIZE.fullmatch(given.strip())
    if found is None:
        raise CommandError(f"--max-bytes {given}: not a size; write 500MB, 2GiB or a number of bytes")
    number, unit, binary = found.groups()
    return int(_finite(float(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()], "--max-bytes"))


def read_age(given: str) -> float:
    """Return an age in seconds: 30d, 12h, 90m, 45s or 2w."""
    found = _AGE.fullmatch(given.strip())
    if found is None:
        raise CommandError(f"--max-age {given}: not an age; write 30d, 12h, 90m, 45s or 2w")
    return _finite(float(found[1]) * _SECONDS[found[2].lower()], "--max-age")


def _finite(number: float, option: str) -> float:
    if number == inf:
        raise CommandError(f"{option}: the number is too large; leave the option out for no limit")
    return number


def run_gc(
    store: str,
    *,
    max_bytes: str | None,
    max_age: str | None,
    keep: Sequence[str] | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Collect, and say what was removed and what is left; return the exit code. Options are as given.

    Raises:
        CommandError: an option is wrong, or the directory cannot be tidied.
    """
    check_path(store, "DIR")
    check_stdout()
    most = None if max_bytes is None else read_bytes(max_bytes)
    max_age_seconds = None if max_age is None else read_age(max_age)
    for name in keep or ():
        if not NAMESPACE.fullmatch(name):
            raise CommandError(f"--keep {name}: no namespace can be called that")
    directory = check_store(store, store)
    try:
        done = collect_garbage(
            directory, max_bytes=most, max_age_seconds=max_age_seconds, keep=keep or (), dry_run=dry_run
        )
    except OffloadError as error:
        raise CommandError(str(error)) from None
    if as_json:
        print(json.dumps(_as_json(done, store), indent=2))
    else:
        _print(done, store, most)
    return DONE


def _as_json(done: GarbageCollection, store: str) -> dict[str, Any]:
    told = asdict(done)
    removed = told.pop("removed")
    return {"store": store, "dry_run": told.pop("is_dry_run"), **told, "removed": removed}


def _print(done: GarbageCollection, store: str, max_bytes: int | None) -> None:
    console = make_console()
    verb = "would be removed" if done.is_dry_run else "removed"
    if done.removed:
        table = Table(**TABLE_LOOK)
        table.add_column("namespace", overflow="fold")
        for name in ("bytes", "texts", "unused for", "because of"):
            table.add_column(name, justify="right", no_wrap=True)
        for each in done.removed[:_MAX_ROWS]:
            table.add_row(
                Text(each.name),
                f"{each.bytes:,}",
                f"{each.texts:,}",
                _age_text(each.unused_seconds),
                {"age": "age", "bytes": "bytes", "empty": "nothing in it"}[each.reason],
            )
        print_table(console, table)
        if len(done.removed) > _MAX_ROWS:
            console.print(f"{len(done.removed) - _MAX_ROWS:,} more; --json lists all")
    lines = [
        f"{store}: {counted(done.namespaces, 'namespace')}, {counted(done.bytes_before, 'byte')}; "
        f"in use {done.in_use:,}, kept {done.kept:,}",
        f"{verb}: {counted(len(done.removed), 'namespace')}, {counted(done.removed_bytes, 'byte')}; "
        f"{'would leave' if done.is_dry_run else 'left'} {counted(done.bytes_after, 'byte')}",
    ]
    if max_bytes is not None and done.bytes_after > max_bytes:
        lines.append(f"that is more than {counted(max_bytes, 'byte')}: the rest is in use, or to be kept")
    for line in lines:
        console.print(Text(one_line(line)), soft_wrap=True)


def _age_text(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
