"""Have typer read the command line, and undo what it makes of errors and broken pipes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from context_compressor.cli.exits import CommandError

_USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]
"""`UsageError`, which typer has kept in different places over its versions."""


def invoke(app: typer.Typer, arguments: Sequence[str] | None, program: str) -> Any:
    """Return what a command hands back, or an exit code where typer itself has answered, as for --help.

    Raises:
        CommandError: an option or argument is wrong.
        BrokenPipeError: whoever read the answer has gone.
    """
    try:
        # Outside standalone mode typer hands back what a command returns and leaves errors to us: theirs
        # take a box of several lines, and how it treats Ctrl-C and pipes differs from version to version.
        return app(arguments, prog_name=program, standalone_mode=False)
    except _USAGE_ERROR as error:
        path = getattr(getattr(error, "ctx", None), "command_path", program)
        message = getattr(error, "format_message", error.__str__)().replace("Value error, ", "")
        raise CommandError(f"{message.rstrip('.')}; see {path} --help") from None
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # the one error that it does not leave to us
            raise error.__context__ from None
        raise
