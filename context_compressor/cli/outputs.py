"""Write results: whole or not at all to a file, raw to stdout."""

from __future__ import annotations

import gzip
import os
import stat
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from context_compressor.cli.exits import CommandError, check_path


class _PipeConsole(Console):
    """A console that leaves it to `run` what a broken pipe means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def make_console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr that prints text as it is, unhighlighted."""
    return _PipeConsole(stderr=stderr, highlight=False)


def is_stdout(name: str | None) -> bool:
    """Tell whether an output is stdout: where none is named, or `-`, as `-` is stdin where a file is read."""
    # By its name in /dev it could not be written whole or not at all, and a file behind it would be replaced.
    return name in (None, "-", "/dev/stdout")


def check_stdout() -> None:
    """Refuse to work for nobody.

    Raises:
        CommandError: there is no stdout.
    """
    if sys.stdout is None:
        raise CommandError("stdout is closed")


def check_output(name: str, option: str = "--output") -> None:
    """Refuse an output that could not be written, before any work is done.

    Raises:
        CommandError: it is empty or a directory, its directory is not there or not to be written to, or
            stdout is closed.
    """
    check_path(name, option)
    if is_stdout(name):
        check_stdout()
        return
    path = Path(name)
    if path.is_dir():
        raise CommandError(f"{option} {name}: is a directory; name a file in it")
    if not path.parent.is_dir():
        raise CommandError(f"{option} {name}: there is no directory {path.parent}")
    changed = path if path.exists() and not path.is_file() else path.resolve().parent
    if not os.access(changed, os.W_OK):
        raise CommandError(f"{option} {name}: cannot be written: {changed} is missing or read-only")


def check_folder(name: str, option: str) -> None:
    """Refuse a directory that could hold nothing, before any work is done.

    Raises:
        CommandError: it is empty, or something else stands in its place.
    """
    check_path(name, option)
    folder = Path(name)
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{option} {name}: is not a directory")


def write_output(name: str, text: str, option: str = "--output") -> None:
    """Write `text` to a file, gzipped where the name ends in .gz; a failure leaves what was there before.

    Raises:
        BrokenPipeError: it is stdout, and whoever read it has gone.
        CommandError: it could not be written.
    """
    if is_stdout(name):
        write_stdout(text)
        return
    data = text.encode()
    if name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)  # no time: the same sessions give the same file
    try:
        path = Path(name)
        if path.exists() and not path.is_file():
            # A device or a pipe must not be replaced by a file, and a pipe in /dev/fd resolves to no path.
            path.write_bytes(data)
        else:
            _replace(path.resolve(), data)  # a link stays a link, and what it names is replaced
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
    check_stdout()
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"stdout: cannot be written: {error.strerror or error}") from None
