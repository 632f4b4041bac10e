"""The program: its commands, each of which returns what is to be done, and doing that.

Exit codes: 0 done · 1 the answer is no (nothing matched, no such text, a session that does not fit the
budget or could not be replayed or examined, a check of the demo that failed) · 2 it could not be done
(options, input, files) · 130 interrupted · 141 whoever read the output has gone.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Annotated, Any, TextIO

import typer

from context_compressor.cli.gc import gc
from context_compressor.cli.laws import laws
from context_compressor.cli.mcp import mcp
from context_compressor.cli.options import BROKEN_PIPE, DONE, INTERRUPTED, TROUBLE, CommandError
from context_compressor.cli.output import check_stdout, one_line
from context_compressor.cli.serve import serve
from context_compressor.cli.session import COMMANDS as SESSION_COMMANDS
from context_compressor.cli.stored import grep, read
from context_compressor.lab.commands.compress import compress
from context_compressor.lab.commands.demo import demo
from context_compressor.lab.commands.examine import examine
from context_compressor.lab.commands.replay import replay
from context_compressor.lab.commands.views import COMMANDS as VIEW_COMMANDS
from context_compressor.lab.commands.views import diff

PROGRAM = "context-compressor"
_DISTRIBUTION = "agent-context-compressor"

_USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]
"""`UsageError`, which typer has kept in different places over its versions."""

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Short-term memory for LLM agents: views that fit a token budget, with nothing lost.

    New here? Run **context-compressor demo**: no key, no network, a few seconds.
    """
    if version:
        found = "(run from its sources, not installed)"
        with suppress(PackageNotFoundError):
            found = installed_version(_DISTRIBUTION)
        print(f"{PROGRAM} {found}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit


def _later(command: Callable[..., int]) -> Callable[..., Callable[[], int]]:
    """Return a command that typer calls, and that hands back what is to be done instead of doing it."""

    @wraps(command)
    def ready(**options: Any) -> Callable[[], int]:
        return partial(command, **options)

    return ready


for _command in (compress, read, grep, gc, replay, examine, diff, demo, laws, serve, mcp):
    app.command()(_later(_command))

_sessions = typer.Typer()
app.add_typer(_sessions, name="session")


@_sessions.callback(invoke_without_command=True)
def _start_sessions(context: typer.Context) -> None:
    """List, show, move and delete sessions of a database or of Redis, and tidy their stores."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit


for _name, _command in (SESSION_COMMANDS | VIEW_COMMANDS).items():
    _sessions.command(_name)(_later(_command))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with `arguments`, those of the process when None; return the exit code."""
    try:
        outcome = _invoke(arguments)
        if callable(outcome):
            outcome = outcome()
        else:
            check_stdout()  # there the help or the version should have gone
        if sys.stdout is not None and not sys.stdout.closed:  # as mcp 1 leaves it
            sys.stdout.flush()  # here, where a broken pipe can still be reported
        return int(outcome or DONE)
    except CommandError as error:
        _complain(str(error))
        return error.code
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _give_up(sys.stdout)
        return BROKEN_PIPE
    except MemoryError:
        _complain("there is not enough memory for that; give it fewer or smaller sessions")
        return TROUBLE
    except OSError as error:
        _complain(f"{error.filename or 'output'}: {error.strerror or error}")
        return TROUBLE


def _invoke(arguments: Sequence[str] | None) -> Any:
    """Return what a command hands back, or an exit code where typer itself has answered, as for --help.

    Raises:
        CommandError: an option or argument is wrong.
        BrokenPipeError: whoever read the answer has gone.
    """
    try:
        # Outside standalone mode typer hands back what a command returns and leaves errors to us: theirs
        # take a box of several lines, and how it treats Ctrl-C and pipes differs from version to version.
        return app(arguments, prog_name=PROGRAM, standalone_mode=False)
    except _USAGE_ERROR as error:
        path = getattr(getattr(error, "ctx", None), "command_path", PROGRAM)
        message = getattr(error, "format_message", error.__str__)().replace("Value error, ", "")
        raise CommandError(f"{message.rstrip('.')}; see {path} --help") from None
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # the one error that it does not leave to us
            raise error.__context__ from None
        raise


def _complain(message: str) -> None:
    if sys.stderr is not None:
        try:
            print(f"{PROGRAM}: {one_line(message)}", file=sys.stderr)
        except OSError:  # where stderr takes nothing the exit code still tells
            _give_up(sys.stderr)


def _give_up(stream: TextIO) -> None:
    """Drop what is still in a stream's buffer and can go nowhere; Python would try again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main() -> None:
    """Run the command line and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a poor terminal must not end a report
    if os.environ.get("COLUMNS") == "0":  # it says "not known"; rich would print lines of no characters
        del os.environ["COLUMNS"]
    code = run()
    if sys.stdout is not None and not sys.stdout.closed:
        try:
            sys.stdout.flush()
        except OSError:  # what was wrong is told by now, and Python would end with a code of its own
            _give_up(sys.stdout)
    sys.exit(code)
