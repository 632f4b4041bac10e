"""What commands share: exit codes, the error that ends one, options, and what is made of them."""

from __future__ import annotations

import re
import socket
from math import inf
from pathlib import Path
from typing import Annotated, Final

import typer

from context_compressor.errors import shown_url

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


DEFAULT_STORE = "working_memory"

Store = Annotated[str, typer.Option(metavar="DIR", help="Directory with the full texts of what left a view.")]
Namespace = Annotated[
    str | None, typer.Option(metavar="NAME", help="Look into this namespace only. Default: all of them.")
]
Json = Annotated[bool, typer.Option("--json", help="Report as JSON instead of tables.")]
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


def listen_at(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address; port 0 is any that is free."""
    from context_compressor.integrations.loopback import listen

    try:
        return listen(host, port)
    except OSError as error:
        raise CommandError(f"--host {host} --port {port}: {error.strerror or error}") from None


def shown_address(listening: socket.socket) -> str:
    """Return where a socket listens, as a URL has it."""
    address, number = listening.getsockname()[:2]
    return f"[{address}]:{number}" if ":" in address else f"{address}:{number}"
