"""The options of `demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from context_compressor.cli.commands.options import BaseUrl, Job, Json, KeepRecent, Model, Summarizer
from context_compressor.cli.settings import SummarizerKind


def demo(
    # Below 2,000 tokens a page of what the agent reads back has no room.
    budget: Annotated[int, typer.Option(min=2000, metavar="N", help="Tokens that a view may cost.")] = 16_000,
    turns: Annotated[int, typer.Option(min=1, max=400, metavar="N", help="Turns of the agent.")] = 80,
    keep_recent: KeepRecent = None,
    summarizer: Summarizer = SummarizerKind.EXTRACTIVE,
    model: Model = None,
    base_url: BaseUrl = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Keep the full texts there. Default: removed at the end."),
    ] = None,
    json: Json = False,
) -> Job:
    """Watch an agent's memory stay within its budget: no key, no network.

    A scripted agent explores Python's own standard library with real tools and reads back, at the end, what
    had left its view. Every request is checked. Exit code 1 where a check fails.
    """

    def job() -> int:
        from context_compressor.cli.demo.run import run_demo

        return run_demo(
            budget=budget,
            turns=turns,
            keep_recent=keep_recent,
            who=summarizer,
            model=model,
            base_url=base_url,
            store=store,
            as_json=json,
        )

    return job
