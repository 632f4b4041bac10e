"""What commands share: exit codes, the error that ends one, options, and what is made of them."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import ValidationError

from context_compressor.compression.config import CompressionConfig
from context_compressor.errors import InvalidArgumentError, shown_url
from context_compressor.readers import MAX_UNPACKED, Format
from context_compressor.summarizers.protocol import Summarizer

DONE: Final = 0
NO: Final = 1
"""The answer is no: nothing matched, no such text, the messages do not fit the budget, a check failed."""
TROUBLE: Final = 2
"""What was asked could not be done: a wrong option, bad input, a file or store that cannot be used."""
INTERRUPTED: Final = 130
"""Ctrl-C; 128 + SIGINT, as shells report it."""
BROKEN_PIPE: Final = 141
"""Whoever read the output has gone; 128 + SIGPIPE, what a filter that dies of it reports."""


class CommandError(Exception):
    """End a command with one line on stderr, which says what is wrong, where, and how to mend it.

    Whatever checks, reads or writes for a command raises it.
    """

    def __init__(self, message: str, code: int = TROUBLE) -> None:
        super().__init__(message)
        self.code = code


class SummarizerKind(StrEnum):
    """The summarisers that the command line offers."""

    EXTRACTIVE = "extractive"
    OPENAI = "openai"
    DASHSCOPE = "dashscope"


DEFAULT_STORE = "working_memory"
DEFAULT_MODELS = {"openai": "gpt-4o-mini", "dashscope": "qwen-plus"}
_DEFAULTS = ", ".join(f"{model} ({kind})" for kind, model in DEFAULT_MODELS.items())

Store = Annotated[str, typer.Option(metavar="DIR", help="Directory with the full texts of what left a view.")]
Namespace = Annotated[
    str | None, typer.Option(metavar="NAME", help="Look into this namespace only. Default: all of them.")
]
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
Json = Annotated[bool, typer.Option("--json", help="Report as JSON instead of tables.")]
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

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def read_size(given: str, option: str) -> int:
    """Return a size in bytes: 500MB (10^6), 2GiB (2^30), or a number alone."""
    found = _SIZE.fullmatch(given.strip())
    if found is None:
        raise CommandError(f"{option} {given}: not a size; write 500MB, 2GiB or a number of bytes")
    number, unit, binary = found.groups()
    return int(finite(float(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()], option))


def finite(number: float, option: str) -> float:
    """Refuse a number that is too large to be one."""
    if number == inf:
        raise CommandError(f"{option}: the number is too large; leave the option out for no limit")
    return number


def read_unpacked(given: str | None) -> int:
    """Return how many bytes a gzipped file may unpack to."""
    return MAX_UNPACKED if given is None else read_size(given, "--max-unpacked")


def check_path(path: str, what: str) -> None:
    """Refuse an empty path, such as a shell makes of an unset variable: it would be the current directory."""
    if not path:
        raise CommandError(f"{what} is empty; name a file or directory")


def check_store(path: str, shown: str) -> Path:
    """Return the directory of a store that must be there; `shown` is what to call it."""
    directory = Path(path)
    if not directory.is_dir():
        what = "is no directory" if directory.exists() else "does not exist"
        raise CommandError(f"{shown_url(shown)}: {what}; name the directory given to compress or the memory")
    return directory


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
