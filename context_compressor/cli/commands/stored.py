"""The options of `read` and `grep`."""

from __future__ import annotations

from typing import Annotated

import typer

from context_compressor.cli.commands.options import Job, Namespace, Store
from context_compressor.cli.settings import DEFAULT_STORE


def read(
    ref: Annotated[str, typer.Argument(metavar="REF", help="ctx:// and 16 hex digits, as a view names it.")],
    store: Store = DEFAULT_STORE,
    namespace: Namespace = None,
    offset: Annotated[int | None, typer.Option(min=1, metavar="N", help="First line to print.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Lines to print at most.")] = None,
) -> Job:
    """Print a text that left a view, as it was.

    Exit code 1 where no such text is stored.
    """

    def job() -> int:
        from context_compressor.cli.stored import read_stored

        return read_stored(ref, store, namespace, offset, limit)

    return job


def grep(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="A regular expression, as in Python.")],
    store: Store = DEFAULT_STORE,
    namespace: Namespace = None,
    ref: Annotated[str | None, typer.Option(metavar="REF", help="Search this text only.")] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Match either case.")] = False,
    context: Annotated[
        int, typer.Option("--context", "-C", min=0, metavar="N", help="Lines to print around each match.")
    ] = 0,
) -> Job:
    """Search the texts that left views; prints ref:line:text.

    Exit code 0 where something matched, 1 where nothing did, 2 where the search could not be done.
    """

    def job() -> int:
        from context_compressor.cli.stored import grep_stored

        return grep_stored(pattern, store, namespace, ref, ignore_case, context)

    return job
