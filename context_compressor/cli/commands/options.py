"""Options that several commands take, and what a command returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from context_compressor.cli.settings import DEFAULT_MODELS, SummarizerKind
from context_compressor.readers.session import Format

Job = Callable[[], int]
"""What a command does, once its options are read; returns the exit code."""

Store = Annotated[str, typer.Option(metavar="DIR", help="Directory with the full texts of what left a view.")]
Namespace = Annotated[
    str | None, typer.Option(metavar="NAME", help="Look into this namespace only. Default: all of them.")
]
Summarizer = Annotated[
    SummarizerKind,
    typer.Option(metavar="WHO", help="Who writes summaries: extractive (no model), openai or dashscope."),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Model that writes them. Default: "
        + ", ".join(f"{model} ({kind})" for kind, model in DEFAULT_MODELS.items())
        + ".",
    ),
]
BaseUrl = Annotated[str | None, typer.Option(metavar="URL", help="Its server, if not the provider's own.")]
KeepRecent = Annotated[
    int | None, typer.Option(metavar="N", help="Messages at the end to keep word for word. Default: 10.")
]
Json = Annotated[bool, typer.Option("--json", help="Report as JSON instead of tables.")]
Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Recorded sessions: files, gzipped or not, or directories."),
]
InFormat = Annotated[
    Format | None,
    typer.Option(
        metavar="NAME", help=f"Format of the files: {', '.join(Format)}. Default: found out by their content."
    ),
]
