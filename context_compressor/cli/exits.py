"""How a command ends: its exit code, and the error that says what went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Final

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


def check_path(path: str, what: str) -> None:
    """Refuse an empty path, such as a shell makes of an unset variable: it would be the current directory."""
    if not path:
        raise CommandError(f"{what} is empty; name a file or directory")


def check_store(path: str, shown: str) -> Path:
    """Return the directory of a store that must be there; `shown` is what to call it."""
    directory = Path(path)
    if not directory.is_dir():
        what = "is no directory" if directory.exists() else "does not exist"
        raise CommandError(f"{shown}: {what}; name the directory given to compress or the memory")
    return directory
