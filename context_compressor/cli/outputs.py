"""Write results: whole or not at all to a file, raw to stdout."""

from __future__ import annotations

import gzip
import os
import stat
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from context_compressor.cli.exits import CommandError


class _PipeConsole(Console):
    """A console that leaves it to `main` what a broken pipe means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def make_console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr that prints text as it is, unhighlighted."""
    return _PipeConsole(stderr=stderr, highlight=False)


def check_output(name: str, option: str = "--output") -> None:
    """Refuse an output that could not be written, before any work is done.

    Raises:
        CommandError: it is a directory, or its directory is not there.
    """
    path = Path(name)
    if path.is_dir():
        raise CommandError(f"{option} {name}: is a directory; name a file in it")
    if not path.parent.is_dir():
        raise CommandError(f"{option} {name}: there is no directory {path.parent}")


def write_output(name: str, text: str, option: str = "--output") -> None:
    """Write `text` to a file, gzipped where the name ends in .gz; a failure leaves what was there before.

    Raises:
        CommandError: it could not be written.
    """
    data = text.encode()
    if name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)  # no time: the same sessions give the same file
    try:
        # A link stays a link, and what it names is replaced.
        path = Path(name).resolve()
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a device or a pipe must not be replaced by a file
        else:
            _replace(path, data)
    except OSError as error:
        raise CommandError(f"{option} {name}: cannot be written: {error.strerror or error}") from None


def _replace(path: Path, data: bytes) -> None:
    descriptor, temporary_name = tempfile.mkstemp(".tmp", f".{path.name[:40]}-", path.parent)
    temporary = Path(temporary_name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(_mode_for(path))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _mode_for(path: Path) -> int:
    """Return the mode of the file that is replaced, or that of a new file; `mkstemp` makes private ones."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def write_stdout(text: str) -> None:
    """Write `text` to stdout as it is: no newline translated, lone surrogates as the bytes they came from.

    Raises:
        BrokenPipeError: whoever read it has gone.
        CommandError: there is no stdout, or it takes no more.
    """
    if sys.stdout is None:
        raise CommandError("stdout is closed")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"stdout: cannot be written: {error.strerror or error}") from None
