"""What `replay` and `examine` read: sessions, and the probes that are put to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from context_compressor.cli.options import CommandError, check_path
from context_compressor.lab.measure import (
    OURS,
    SYSTEMS,
    Probe,
    ProbeError,
    ProbeSet,
    read_probe_sets,
    read_probes,
)
from context_compressor.lab.readers import (
    MAX_UNPACKED,
    Format,
    Problem,
    Session,
    UnreadableError,
    read_path,
    summed,
)


@dataclass(frozen=True, slots=True)
class Input:
    """A session to be replayed."""

    name: str
    session: Session
    probes: tuple[Probe, ...] = ()


@dataclass(slots=True)
class Inputs:
    """The sessions of all paths, and what could not be read of them."""

    sessions: list[Input] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unread: list[Problem] = field(default_factory=list)
    """Files that the user named and that hold nothing that can be read."""
    files: list[str] = field(default_factory=list)
    """All that was read, paths as they were given among them."""


def read_inputs(
    paths: Sequence[str],
    format: Format | None,
    on_session: Callable[[int], object],
    probes: str | None = None,
    max_unpacked: int = MAX_UNPACKED,
) -> Inputs:
    """Read every path, and the probe sets of a folder; `on_session` gets the number of sessions so far.

    Raises:
        CommandError: a path is not there, nothing in any of them can be read, or probes are malformed.
    """
    sets = [] if probes is None else _read_sets(probes)
    for path in paths:
        check_path(path, "PATH")
        if not Path(path).exists():
            hint = "; stdin is not read, save what comes there to a file" if path == "-" else ""
            raise CommandError(f"{path}: there is no such file or directory{hint}")
    found = Inputs(files=[*paths, *(file for file, _ in sets)])
    taken: set[str] = set()
    for path in paths:
        before = len(found.sessions)
        try:
            for session in read_path(Path(path), found.problems, format, max_unpacked):
                if session.messages:
                    asked = _probes_of(session, sets)
                    found.sessions.append(Input(_name(session, taken), session, asked))
                    found.files.append(session.source)
                    on_session(len(found.sessions))
        except UnreadableError as error:
            del found.sessions[before:]
            found.unread.append(error.at(path))
        else:
            if len(found.sessions) == before:
                found.unread.append(_nothing_in(path, found.problems))
    if not found.sessions:
        raise CommandError(summed(found.unread))
    left = [
        (file, one) for file, one in sets if not any(_is_of(one, item.session) for item in found.sessions)
    ]
    if sets and len(left) == len(sets):
        raise CommandError(
            f"--probes {probes}: none of {len(sets):,} probe sets is of a session that was read"
        )
    found.problems += [
        Problem(file, None, f"is of line {one.line} of {one.recording} (from 0), which was not read")
        for file, one in left
    ]
    return found


def _read_sets(folder: str) -> list[tuple[str, ProbeSet]]:
    check_path(folder, "--probes")
    try:
        return read_probe_sets(Path(folder))
    except ProbeError as error:
        raise CommandError(f"--probes {error}") from None


def _is_of(one: ProbeSet, session: Session) -> bool:
    return one.is_of(session.source, (session.line or 1) - 1)


def _probes_of(session: Session, sets: Sequence[tuple[str, ProbeSet]]) -> tuple[Probe, ...]:
    own = (session.frame or {}).get("probes")
    of_it = [(file, one) for file, one in sets if _is_of(one, session)]
    try:
        return read_probes(own, session.place(), len(session.messages), of_it)
    except ProbeError as error:
        raise CommandError(str(error)) from None


def _nothing_in(path: str, problems: Sequence[Problem]) -> Problem:
    what = "is a directory in which no session was found" if Path(path).is_dir() else "holds no session"
    last = next((problem for problem in problems if problem.file.startswith(path)), None)
    return Problem(path, None, what if last is None else f"{what}; {last}")


def _name(session: Session, taken: set[str]) -> str:
    """Return what to call a session: what it calls itself, else where it stands; no two the same."""
    place = PurePath(session.place())
    name = session.id or place.name
    if name in taken:
        name = f"{session.id} ({place})" if session.id else str(place)
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name} ({number})", number + 1
    taken.add(unique)
    return unique


def check_words(sessions: Iterable[Session]) -> None:
    """Refuse logs of requests where words are needed."""
    for session in sessions:
        if session.format is Format.OBSERVED:
            raise CommandError(f"{session.source}: a log of requests has sizes and no words; replay reads it")


def check_baselines(names: Iterable[str]) -> None:
    """Refuse baselines that there are not."""
    known = [name for name in SYSTEMS if name != OURS]
    for name in names:
        if name not in known:
            raise CommandError(f"--baseline {name}: there is no such baseline; known: {', '.join(known)}")
