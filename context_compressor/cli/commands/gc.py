"""The options of `gc`."""

from __future__ import annotations

from typing import Annotated

import typer

from context_compressor.cli.commands.options import Job, Json


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
    json: Json = False,
) -> Job:
    """Remove the stored texts of sessions that are over: the old, then the longest unused.

    What is removed is a namespace, whole, and never one that a living process has open. Without limits it
    tells what is there, and removes only what is empty. A session whose texts were removed goes on with its
    history.

    Example: context-compressor gc working_memory --max-age 30d --max-bytes 2GB --dry-run
    """

    def job() -> int:
        from context_compressor.cli.gc import run_gc

        return run_gc(
            store, max_bytes=max_bytes, max_age=max_age, keep=keep or (), dry_run=dry_run, as_json=json
        )

    return job
