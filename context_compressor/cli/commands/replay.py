"""The options of `replay`."""

from __future__ import annotations

from typing import Annotated

import typer

from context_compressor.cli.commands.options import InFormat, Job, Paths


def replay(
    paths: Paths,
    budget: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Tokens that a view may cost; may be repeated. Default: 16000."),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What else to replay: sliding or masking; may be repeated. raw, the history as it is, "
            "always is.",
        ),
    ] = None,
    probes: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="More probes than sessions bring: .json files with recording, line, cut, probes.",
        ),
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a self-contained page of HTML there; - for stdout."),
    ] = None,
    png: Annotated[str | None, typer.Option(metavar="DIR", help="Write the charts there, as PNG.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON instead of a table.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes at once. Default: one per core.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No table, no progress bar.")] = False,
    format: InFormat = None,
) -> Job:
    """Tell what compressing would have saved, cost and lost in recorded sessions.

    Before each recorded assistant message the memory, and each baseline, is asked what it would send. No
    model is called. What views tell is measured by the probes of a session, questions with the keys of their
    answers: **examine** makes some. Sessions that cannot be replayed are named and skipped: exit code 1.
    Ctrl-C keeps what is done. --report and --png need the extra: pip install '/path/to/the/checkout[report]'

    Example: context-compressor replay sessions/ --baseline sliding --report out.html
    """

    def job() -> int:
        from context_compressor.cli.replay.run import run_replay

        return run_replay(
            paths,
            budgets=budget or (),
            baselines=baseline or (),
            probes=probes,
            report=report,
            png=png,
            as_json=json,
            jobs=jobs,
            quiet=quiet,
            format=format,
        )

    return job
