"""`context-compressor replay`: what compressing saves, costs and loses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import Progress

from context_compressor.cli.options import (
    DONE,
    INTERRUPTED,
    NO,
    TROUBLE,
    CommandError,
    check_path,
    make_config,
)
from context_compressor.cli.output import (
    check_folder,
    check_output,
    check_stdout,
    is_stdout,
    make_console,
    make_progress,
    print_tables,
    warn,
    write_output,
    write_stdout,
)
from context_compressor.cli.replay_parallel import Replays, Task, default_jobs, find_unfit
from context_compressor.measure import (
    SYSTEMS,
    Probe,
    ProbeError,
    ProbeSet,
    check_places,
    read_probe_sets,
    read_probes,
)
from context_compressor.measure.data import OURS, RAW, ReportData, SessionRun, Skipped, report_value
from context_compressor.messages.text import slug_of
from context_compressor.readers import Format, Problem, Session, UnreadableError, read_path
from context_compressor.readers.session import summed


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


def read_inputs(
    paths: Sequence[str],
    format: Format | None,
    on_session: Callable[[int], object],
    probes: str | None = None,
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
    found = Inputs()
    taken: set[str] = set()
    for path in paths:
        before = len(found.sessions)
        try:
            for session in read_path(Path(path), found.problems, format):
                if session.messages:
                    asked = _probes_of(session, sets)
                    found.sessions.append(Input(_name(session, taken), session, asked))
                    on_session(len(found.sessions))
        except UnreadableError as error:
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
    """Return the probes that a session has itself, and those of its sets."""
    try:
        probes = read_probes((session.frame or {}).get("probes"), session.place(), len(session.messages))
        for file, one in sets:
            if _is_of(one, session):
                check_places(one.probes, file, len(session.messages))
                probes += one.probes
    except ProbeError as error:
        raise CommandError(str(error)) from None
    return probes


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


def check_baselines(names: Iterable[str]) -> None:
    """Refuse baselines that there are not."""
    known = [name for name in SYSTEMS if name != OURS]
    for name in names:
        if name not in known:
            raise CommandError(f"--baseline {name}: there is no such baseline; known: {', '.join(known)}")


EXTRA = "/path/to/the/checkout[report]"
DEFAULT_BUDGET = 16_000
_SLUG_CHARACTERS = 60
"""Of a session's name in that of its picture."""


def run_replay(
    paths: Sequence[str],
    *,
    budgets: Sequence[int] | None,
    baselines: Sequence[str] | None,
    probes: str | None,
    report: str | None,
    png: str | None,
    as_json: bool,
    jobs: int | None,
    quiet: bool,
    format: Format | None,
) -> int:
    """Replay sessions, write what was asked for; return the exit code. Options are as given."""
    chosen = _check_budgets(budgets)
    check_baselines(baselines or ())
    systems = tuple(dict.fromkeys([RAW, OURS, *(baselines or ())]))
    _check_outputs(report, png, as_json=as_json, quiet=quiet)
    is_page_shown = report is not None and is_stdout(report)
    console = make_console(stderr=True)
    is_shown = not quiet and console.file.isatty()
    with console.status("reading") if is_shown else nullcontext() as status:

        def tell(count: int) -> None:
            if status is not None:
                status.update(f"reading: {count:,} sessions")

        inputs = read_inputs(paths, format, tell, probes)
    tasks = [
        Task(one.name, one.session.source, one.session.messages, systems, chosen, one.probes)
        for one in inputs.sessions
    ]
    replays = Replays(tasks, jobs or default_jobs())
    is_interrupted = False
    unwritten: CommandError | None = None
    with make_progress(console, is_shown=is_shown) as progress:
        bar = progress.add_task("replaying", total=sum(task.steps for task in tasks), unit="turns")
        try:
            replays.run(lambda turns: progress.update(bar, completed=turns))
        except KeyboardInterrupt:
            is_interrupted = True
        else:
            progress.update(bar, completed=progress.tasks[bar].total)
        data = _gather(inputs, replays, chosen, systems)
        try:
            _write(report, png, data, progress)
        except CommandError as error:
            unwritten = error  # what was found is told all the same
    unfit = [one for session in data.sessions for one in find_unfit(session)]
    _warn(inputs, data, unfit)
    if not data.sessions and not is_interrupted:
        first = (*data.failed, *data.notes)[0]
        code = NO if data.failed else TROUBLE
        raise CommandError(f"no session could be replayed; {first.name}: {first.why}", code)
    if as_json:
        write_stdout(json.dumps(report_value(data), indent=1) + "\n")
    elif data.sessions and not quiet:
        print_tables(make_console(stderr=is_page_shown), data)
    if is_interrupted:
        print(f"interrupted: {len(data.sessions)} of {len(tasks)} sessions are done", file=sys.stderr)
    if unwritten is not None:
        raise unwritten
    if is_interrupted:
        return INTERRUPTED
    return NO if data.failed or unfit else DONE


def _check_budgets(budgets: Sequence[int] | None) -> tuple[int, ...]:
    chosen = tuple(dict.fromkeys(budgets or [DEFAULT_BUDGET]))
    for budget in chosen:
        make_config(max_total_tokens=budget)  # refuses what cannot work, by the name of the option
    return chosen


def _check_outputs(report: str | None, png: str | None, *, as_json: bool, quiet: bool) -> None:
    if as_json or not quiet:
        check_stdout()
    if report is not None:
        check_output(report, "--report")
        if as_json and is_stdout(report):
            raise CommandError("--report and --json cannot both go to stdout; name a file for the report")
    if png is not None:
        check_folder(png, "--png")
    if report is None and png is None:
        return
    try:
        import context_compressor.measure.page  # noqa: F401
    except ImportError as error:
        option = "--png" if report is None else "--report"
        raise CommandError(
            f"{option} needs packages that are not installed ({error.name}): pip install '{EXTRA}'"
        ) from None


def _gather(
    inputs: Inputs, replays: Replays, budgets: tuple[int, ...], systems: tuple[str, ...]
) -> ReportData:
    done = [outcome for outcome in replays.outcomes if isinstance(outcome, SessionRun)]
    skipped = sorted(
        (outcome for outcome in replays.outcomes if isinstance(outcome, Skipped)), key=lambda one: one.name
    )
    empty = [one for one in skipped if not one.is_failure]
    unread = [Skipped(problem.file, problem.why) for problem in inputs.unread]
    return ReportData(
        sessions=tuple(sorted(done, key=lambda session: (-session.tokens, session.name))),
        budgets=budgets,
        systems=systems,
        failed=(*unread, *(one for one in skipped if one.is_failure)),
        notes=(*empty, *_notes(inputs)),
        asked_sessions=len(inputs.sessions) + len(unread) - len(empty),
    )


def _notes(inputs: Inputs) -> list[Skipped]:
    told = [Skipped(one.file, str(one).removeprefix(one.file).lstrip(",: ")) for one in inputs.problems]
    told += [Skipped(one.name, note) for one in inputs.sessions for note in one.session.notes]
    return told


def _write(report: str | None, png: str | None, data: ReportData, progress: Progress) -> None:
    """Write report and pictures of what is done; nothing where nothing is."""
    if not data.sessions or (report is None and png is None):
        return
    from context_compressor.measure.page import detailed_sessions, render_page

    detailed = detailed_sessions(data)
    both = (report is not None) + (png is not None)
    bar = progress.add_task("drawing", total=len(detailed) * both, unit="sessions")
    if report is not None:
        write_output(report, render_page(data, lambda: progress.advance(bar)), "--report")
    if png is not None:
        _write_pictures(Path(png), data, lambda: progress.advance(bar))


def _write_pictures(folder: Path, data: ReportData, on_session: Any) -> None:
    from context_compressor.measure.charts import bars_chart
    from context_compressor.measure.page import detailed_sessions, session_charts

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for budget, rows in data.tables():
            chart = bars_chart(rows)
            (folder / f"{chart.name}-{budget}.png").write_bytes(chart.png())
        for number, session in enumerate(detailed_sessions(data), start=1):
            slug = slug_of(session.name, _SLUG_CHARACTERS)
            for budget in data.budgets:
                for chart in session_charts(data, session, budget):
                    path = folder / f"{number:02}-{slug}-{chart.name}-{budget}.png"
                    path.write_bytes(chart.png())
            on_session()
    except OSError as error:
        raise CommandError(f"--png {folder}: cannot be written: {error.strerror or error}") from None


def _warn(inputs: Inputs, data: ReportData, unfit: Sequence[Skipped]) -> None:
    warn("failed", [f"{one.name}: {one.why}" for one in (*data.failed, *unfit)])
    warn("skipped", [f"{one.name}: {one.why}" for one in data.notes if not one.is_failure])
    warn("skipped", list(map(str, inputs.problems)))
