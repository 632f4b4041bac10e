"""The options of `examine`."""

from __future__ import annotations

from typing import Annotated

import typer

from context_compressor.cli.commands.options import BaseUrl, InFormat, Job, Paths


def examine(
    paths: Paths,
    model: Annotated[str, typer.Option(metavar="NAME", help="Model that asks, reads and grades.")],
    base_url: BaseUrl = None,
    budget: Annotated[
        int,
        typer.Option(metavar="N", help="Tokens that a view may cost. Default: 16000.", show_default=False),
    ] = 16_000,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Whose views to examine, too: raw, sliding or masking; may be repeated."
        ),
    ] = None,
    window: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Tokens of a session that the question writer reads; what comes later is not examined. "
            "Default: 100000.",
            show_default=False,
        ),
    ] = 100_000,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Examine the N longest sessions only.")
    ] = None,
    cache: Annotated[
        str, typer.Option(metavar="DIR", help="Folder of the model's answers: the same is never asked twice.")
    ] = "examination",
    probes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write sessions and probes there, for replay. Default: probes.jsonl in the cache.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Begin without asking.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No tables, no progress bar.")] = False,
    format: InFormat = None,
) -> Job:
    """Find out what compressing saves and loses on your own sessions, with a model.

    The model writes questions about each session (what is wanted, decided, made, failed, what holds now);
    asked again, it answers them from what the memory would have sent, and nothing else; and a third time, it
    grades the answers. The sessions are sent to that model. What it costs is told before it begins. The key
    is taken from OPENAI_API_KEY. Exit code 1 where no session could be examined.

    Example: context-compressor examine sessions/ --model gpt-5-mini --limit 5
    """

    def job() -> int:
        from context_compressor.cli.examine import run_examine

        return run_examine(
            paths,
            model=model,
            base_url=base_url,
            budget=budget,
            baselines=baseline or (),
            window=window,
            limit=limit,
            cache=cache,
            probes=probes,
            yes=yes,
            as_json=json,
            quiet=quiet,
            format=format,
        )

    return job
