"""What `replay` reads: sessions of files and directories, each under a name of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from context_compressor.cli.exits import CommandError, check_path
from context_compressor.readers import Format, Problem, Session, UnreadableError, read_path
from context_compressor.readers.session import summed


@dataclass(slots=True)
class Inputs:
    """The sessions of all paths, and what could not be read of them."""

    sessions: list[tuple[str, Session]] = field(default_factory=list)
    """Each with its name."""
    problems: list[Problem] = field(default_factory=list)
    unread: list[Problem] = field(default_factory=list)
    """Files that the user named and that hold nothing that can be read."""


def read_inputs(paths: Sequence[str], format: Format | None, on_session: Callable[[int], object]) -> Inputs:
    """Read every path; `on_session` gets the number of sessions so far.

    Raises:
        CommandError: a path is not there, or nothing in any of them can be read.
    """
    for path in paths:
        check_path(path, "PATH")
        if not Path(path).exists():
            hint = "; replay reads no stdin, save what comes there to a file" if path == "-" else ""
            raise CommandError(f"{path}: there is no such file or directory{hint}")
    found = Inputs()
    taken: set[str] = set()
    for path in paths:
        before = len(found.sessions)
        try:
            for session in read_path(Path(path), found.problems, format):
                if session.messages:
                    found.sessions.append((_name(session, taken), session))
                    on_session(len(found.sessions))
        except UnreadableError as error:
            found.unread.append(error.at(path))
        else:
            if len(found.sessions) == before:
                found.unread.append(_nothing_in(path, found.problems))
    if not found.sessions:
        raise CommandError(summed(found.unread))
    return found


def _nothing_in(path: str, problems: Sequence[Problem]) -> Problem:
    what = "is a directory in which no session was found" if Path(path).is_dir() else "holds no session"
    last = next((problem for problem in problems if problem.file.startswith(path)), None)
    return Problem(path, None, what if last is None else f"{what}; {last}")


def _name(session: Session, taken: set[str]) -> str:
    """Return what to call a session: what it calls itself, else where it stands; no two the same."""
    name = session.id or session.place()
    if name in taken and session.id:
        name = f"{session.id} ({session.place()})"
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name} ({number})", number + 1
    taken.add(unique)
    return unique
