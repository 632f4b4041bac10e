"""Options that commands of the lab share, and what is made of them."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from context_compressor.cli.options import CommandError, read_size
from context_compressor.core.config import CompressionConfig
from context_compressor.errors import InvalidArgumentError
from context_compressor.lab.readers import MAX_UNPACKED, Format
from context_compressor.summarizers.protocol import Summarizer


class SummarizerKind(StrEnum):
    """The summarisers that the command line offers."""

    EXTRACTIVE = "extractive"
    OPENAI = "openai"
    DASHSCOPE = "dashscope"


DEFAULT_MODELS = {"openai": "gpt-4o-mini", "dashscope": "qwen-plus"}
_DEFAULTS = ", ".join(f"{model} ({kind})" for kind, model in DEFAULT_MODELS.items())

SummarizerChoice = Annotated[
    SummarizerKind,
    typer.Option(
        "--summarizer",
        metavar="WHO",
        help="Who writes notes: extractive (no model), openai or dashscope.",
    ),
]
Model = Annotated[
    str | None, typer.Option(metavar="NAME", help=f"Model that writes them. Default: {_DEFAULTS}.")
]
BaseUrl = Annotated[str | None, typer.Option(metavar="URL", help="Its server, if not the provider's own.")]
KeepRecent = Annotated[
    int | None,
    typer.Option(
        "--keep-recent", metavar="N", help="Messages at the end to keep word for word. Default: 10."
    ),
]
Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Recorded sessions: files, gzipped or not, or directories."),
]
AllJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No tables, no progress bar.")]
InFormat = Annotated[
    Format | None,
    typer.Option(
        metavar="NAME", help=f"Format of the files: {', '.join(Format)}. Default: found out by their content."
    ),
]
MaxUnpacked = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="What a gzipped file may unpack to: 500MB, 2GiB. Default: 256MiB."),
]


def read_unpacked(given: str | None) -> int:
    """Return how many bytes a gzipped file may unpack to."""
    return MAX_UNPACKED if given is None else read_size(given, "--max-unpacked")


_OPTIONS = {
    "max_total_tokens": "--budget",
    "mode": "--mode",
    "max_tool_message_tokens": "--max-tool-message-tokens",
    "keep_recent_count": "--keep-recent",
    "group_token_threshold": "--group-tokens",
}


def make_config(**fields: Any) -> CompressionConfig:
    """Return the config that the options given make; those that are None keep their defaults.

    Raises:
        CommandError: a value is wrong, or two cannot work together; names option and field.
    """
    try:
        return CompressionConfig(**{name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        if first["loc"]:
            field = str(first["loc"][0])
            message = f"{_OPTIONS.get(field, field)} ({field}): {message}, got {first['input']!r}"
        else:
            message = re.sub(r"\w+_\w+", lambda found: _OPTIONS.get(found[0], found[0]), message)
        raise CommandError(message) from None


def make_summarizer(kind: SummarizerKind, model: str | None, base_url: str | None) -> Summarizer | None:
    """Return the summariser asked for; None stands for the library's default, the extractive one.

    Raises:
        CommandError: a model is asked for without a key, or options of a model without one; or an option
            names no model, or no server.
    """
    if kind is SummarizerKind.EXTRACTIVE:
        if model is not None or base_url is not None:
            option = "--model" if model is not None else "--base-url"
            raise CommandError(
                f"{option} needs --summarizer openai or dashscope; the extractive summariser asks no model"
            )
        return None
    key = f"{kind.upper()}_API_KEY"
    if not os.environ.get(key):
        raise CommandError(
            f"--summarizer {kind} needs a key: set {key} (any text where the server at --base-url "
            "asks for none), or use --summarizer extractive"
        )
    return ask_model(kind, DEFAULT_MODELS[kind] if model is None else model, base_url)


def ask_model(kind: SummarizerKind, model: str, base_url: str | None) -> Summarizer:
    """Return a summariser that asks a model; refuse what names no model, or no server."""
    try:
        if kind is SummarizerKind.DASHSCOPE:
            from context_compressor.summarizers.dashscope import DashScopeSummarizer

            return DashScopeSummarizer(model, base_url=base_url)
        from context_compressor.summarizers.openai import OpenAISummarizer

        return OpenAISummarizer(model, base_url=base_url)
    except InvalidArgumentError as error:
        raise CommandError(f"--{str(error).replace('base_url', 'base-url')}") from None
