"""Where commands write: outputs that are checked before the work, consoles, tables, progress."""

from __future__ import annotations

import gzip
import os
import re
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TextIO

from rich.box import SIMPLE
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from context_compressor.cli.options import CommandError, check_path
from context_compressor.errors import shown_url
from context_compressor.offload.folders import replacing

_LEAST_FOLDED = 16
"""Characters that a folded column has at least, unless what stands in it is shorter."""
_ANY_WIDTH = 10_000
"""More characters than a line has: to ask how wide a table would like to be."""
_MAX_NAMED = 5
"""Problems that are named one by one; reports and `--json` have more."""


_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_OBEYED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class _PipeConsole(Console):
    """A console that leaves it to `run` what a broken pipe means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def make_console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr that prints text as it is, unhighlighted."""
    return _PipeConsole(stderr=stderr, highlight=False)


def say(console: Console, text: str, style: str = "") -> None:
    """Print a line as it is: no markup, and not broken where someone will copy it.

    What a terminal would not show as characters is escaped; only then are blanks run together, since in a
    command two are not one.
    """
    console.print(Text(text if text.isprintable() else one_line(text), style), soft_wrap=True)


def is_stdout(name: str | None) -> bool:
    """Tell whether an output is stdout: where none is named, or `-`, as `-` is stdin where a file is read."""
    # By its name in /dev it could not be written whole or not at all, and a file behind it would be replaced.
    return name in (None, "-", "/dev/stdout")


def check_stdout() -> None:
    """Refuse to work for nobody."""
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


def check_apart(output: str | None, inputs: Iterable[str], option: str = "--output") -> None:
    """Refuse an output that is one of the files read, by whatever name or link: its sessions would be lost.

    `-` among the inputs is stdin. Devices and pipes may be both.
    """
    written = _file_behind(output, sys.stdout)
    if written is not None and any(_file_behind(name, sys.stdin) == written for name in inputs):
        name = "stdout" if is_stdout(output) else output
        raise CommandError(f"{option} {name}: is read from, too; name another file")


def _file_behind(name: str | None, stream: TextIO | None) -> tuple[int, int] | None:
    """Return device and inode of a regular file: of the one behind a stream, where the name means that."""
    try:
        if is_stdout(name):
            found = os.fstat(-1 if stream is None else stream.fileno())
        else:
            found = Path(str(name)).stat()
    except (OSError, ValueError):  # no such file; a stream of this process's own; a name that is none
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def check_folder(name: str, option: str) -> None:
    """Refuse a directory that could hold nothing, before any work is done."""
    check_path(name, option)
    folder = Path(name)
    if "://" in name:
        raise CommandError(f"{option} {shown_url(name)}: a URL, where a directory is expected")
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
        with replacing(Path(name), _mode_for(Path(name))) as file:
            file.write(data)
    except OSError as error:
        raise CommandError(f"{option} {name}: cannot be written: {error.strerror or error}") from None


def _mode_for(path: Path) -> int:
    """Return the mode of the file that is replaced, or the mode that a new file of this user gets."""
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


def make_progress(*, quiet: bool) -> Progress:
    """Return a progress bar on stderr that leaves no trace; its tasks say what they count."""
    console = make_console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.file.isatty(),
    )


def warn(title: str, lines: Sequence[str], most: int = _MAX_NAMED) -> None:
    """Name on stderr what is not in the result: it is missing, so `--quiet` does not silence it."""
    for line in lines[:most]:
        print(f"{title}: {one_line(line)}", file=sys.stderr)
    if len(lines) > most:
        print(f"{title}: {len(lines) - most:,} more", file=sys.stderr)


def make_table(title: str, first: str, columns: Iterable[str], *, fold: bool = False) -> Table:
    """Return a table of a name and figures; a name that is folded gets the width that the others leave."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE, pad_edge=False)
    table.add_column(first, no_wrap=not fold, overflow="fold" if fold else "ellipsis")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table; a narrower terminal wraps its lines, for nothing in it may be cut."""
    name = table.columns[0]
    if name.overflow == "fold":
        name.max_width = _LEAST_FOLDED
    needed = Measurement.get(console, console.options.update(max_width=_ANY_WIDTH), table).maximum
    if name.overflow == "fold":
        name.max_width = _LEAST_FOLDED + max(0, console.width - needed)
    if needed > console.width:
        table.width = needed
    console.print(table, crop=False)


# Texts from outside


def for_terminal(text: str) -> str:
    """Return `text` with what a terminal would obey escaped: texts come from outside, and some write titles,
    clipboards or over what stands above them.
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return `text` on one line, with what a terminal would not show as characters escaped."""
    joined = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)


def counted(number: int, what: str) -> str:
    """Return `1 session`, `1,200 sessions`; `what` is a noun whose plural ends in s."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def slug_of(name: str, most: int) -> str:
    """Return what a file or namespace may be called after a name from outside, at most so long."""
    return _UNSAFE.sub("-", name)[-most:].strip(".-") or "session"
