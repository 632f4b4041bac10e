"""`gc`: remove from a store what no session has open, and say what is there."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from context_compressor.cli.options import (
    DONE,
    CommandError,
    Json,
    check_path,
    check_store,
    finite,
    read_size,
)
from context_compressor.cli.output import check_stdout, counted, make_console, make_table, print_table, say
from context_compressor.errors import OffloadError
from context_compressor.offload.directory import GarbageCollection, collect_garbage
from context_compressor.offload.folders import NAMESPACE

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_MAX_ROWS = 40
"""Namespaces shown in the table; `--json` has all."""


def gc(
    store: Annotated[
        str, typer.Argument(metavar="DIR", help="Directory with the full texts of what left a view.")
    ],
    max_bytes: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Leave at most so much: 500MB, 2GiB or a number of bytes."),
    ] = None,
    max_age: Annotated[
        str | None,
        typer.Option(
            metavar="AGE", help="Remove what nobody has used for so long: 30d, 12h, 90m, 45s or 2w."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMESPACE", help="Leave this namespace alone; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: Json = False,
) -> int:
    """Remove the stored texts of sessions that are over: the old, then the longest unused.

    What is removed is a namespace, whole, and never one that a living process has open. Without limits it
    tells what is there, and removes only what is empty. A session whose texts were removed goes on with its
    history.

    Example: context-compressor gc working_memory --max-age 30d --max-bytes 2GB --dry-run
    """
    check_path(store, "DIR")
    check_stdout()
    most = None if max_bytes is None else read_size(max_bytes, "--max-bytes")
    seconds = None if max_age is None else read_age(max_age)
    for name in keep or ():
        if not NAMESPACE.fullmatch(name):
            raise CommandError(f"--keep {name}: no namespace can be called that")
    directory = check_store(store, store)
    try:
        done = collect_garbage(
            directory, max_bytes=most, max_age_seconds=seconds, keep=keep or (), dry_run=dry_run
        )
    except OffloadError as error:
        raise CommandError(str(error)) from None
    if as_json:
        told = asdict(done)
        removed = told.pop("removed")
        told = {"store": store, "dry_run": told.pop("is_dry_run"), **told, "removed": removed}
        print(json.dumps(told, indent=2))
    else:
        _print(done, store, most)
    return DONE


def read_age(given: str, option: str = "--max-age") -> float:
    """Return an age in seconds: 30d, 12h, 90m, 45s or 2w."""
    found = _AGE.fullmatch(given.strip())
    if found is None:
        raise CommandError(f"{option} {given}: not an age; write 30d, 12h, 90m, 45s or 2w")
    return finite(float(found[1]) * _SECONDS[found[2].lower()], option)


def _print(done: GarbageCollection, store: str, max_bytes: int | None) -> None:
    console = make_console()
    if done.removed:
        table = make_table("", "namespace", ("bytes", "texts", "unused for", "because of"), fold=True)
        for each in done.removed[:_MAX_ROWS]:
            reason = "nothing in it" if each.reason == "empty" else each.reason
            age = _age_text(each.unused_seconds)
            table.add_row(Text(each.name), f"{each.bytes:,}", f"{each.texts:,}", age, reason)
        print_table(console, table)
        if len(done.removed) > _MAX_ROWS:
            say(console, f"{len(done.removed) - _MAX_ROWS:,} more; --json lists all")
    removed, left = ("would be removed", "would leave") if done.is_dry_run else ("removed", "left")
    say(
        console,
        f"{store}: {counted(done.namespaces, 'namespace')}, {counted(done.bytes_before, 'byte')}; "
        f"in use {done.in_use:,}, kept {done.kept:,}",
    )
    say(
        console,
        f"{removed}: {counted(len(done.removed), 'namespace')}, {counted(done.removed_bytes, 'byte')}; "
        f"{left} {counted(done.bytes_after, 'byte')}",
    )
    if max_bytes is not None and done.bytes_after > max_bytes:
        say(console, f"that is more than {counted(max_bytes, 'byte')}: the rest is in use, or to be kept")


def _age_text(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
