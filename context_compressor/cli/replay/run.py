"""`replay`: what views would have saved, cost and lost in recorded sessions."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import Progress

from context_compressor.cli.exits import DONE, INTERRUPTED, NO, TROUBLE, CommandError
from context_compressor.cli.outputs import (
    check_folder,
    check_output,
    check_stdout,
    is_stdout,
    make_console,
    write_output,
    write_stdout,
)
from context_compressor.cli.progress import make_progress
from context_compressor.cli.replay.inputs import Inputs, read_inputs
from context_compressor.cli.replay.parallel import Replays, Task, default_jobs, find_unfit
from context_compressor.cli.replay.table import print_tables
from context_compressor.cli.settings import make_config
from context_compressor.cli.wording import one_line, slug_of
from context_compressor.measure.systems import SYSTEMS
from context_compressor.readers import Format
from context_compressor.report.data import OURS, RAW, ReportData, SessionRun, Skipped, report_value

EXTRA = "/path/to/the/checkout[report]"
DEFAULT_BUDGET = 16_000
_MAX_NAMED = 5
"""Problems that are named one by one; report and `--json` have more."""
_SLUG_CHARACTERS = 60
"""Of a session's name in that of its picture."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of `replay`, as given."""

    paths: Sequence[str]
    budgets: Sequence[int]
    baselines: Sequence[str]
    report: str | None
    png: str | None
    json: bool
    jobs: int | None
    quiet: bool
    format: Format | None = None


def run_replay(options: ReplayOptions) -> int:
    """Replay sessions, write what was asked for; return the exit code.

    Raises:
        CommandError: options or paths are wrong, nothing can be read, or something cannot be written.
    """
    budgets, systems = _check_budgets(options.budgets), _check_baselines(options.baselines)
    _check_outputs(options)
    is_page_shown = options.report is not None and is_stdout(options.report)
    console = make_console(stderr=True)
    is_shown = not options.quiet and console.file.isatty()
    with console.status("reading") if is_shown else _Silent() as status:
        inputs = read_inputs(
            options.paths, options.format, lambda count: status.update(f"reading: {count:,} sessions")
        )
    tasks = [
        Task(name, session.source, session.messages, systems, budgets) for name, session in inputs.sessions
    ]
    replays = Replays(tasks, options.jobs or default_jobs())
    is_interrupted = False
    unwritten: CommandError | None = None
    with make_progress(console, is_shown=is_shown) as progress:
        bar = progress.add_task("replaying", total=sum(task.steps for task in tasks), unit="turns")
        try:
            replays.run(lambda turns, _sessions: progress.update(bar, completed=turns))
        except KeyboardInterrupt:
            is_interrupted = True
        else:
            progress.update(bar, completed=progress.tasks[bar].total)
        data = _gather(inputs, replays, budgets, systems)
        try:
            _write(options, data, progress)
        except CommandError as error:
            unwritten = error  # what was found is told all the same
    unfit = [one for session in data.sessions for one in find_unfit(session)]
    _warn(inputs, data, unfit)
    if not data.sessions and not is_interrupted:
        first = (*data.failed, *data.notes)[0]
        code = NO if data.failed else TROUBLE
        raise CommandError(f"no session could be replayed; {first.name}: {first.why}", code)
    if options.json:
        write_stdout(_json_text(data))
    elif data.sessions and not options.quiet:
        print_tables(make_console(stderr=is_page_shown), data)
    if is_interrupted:
        print(f"interrupted: {len(data.sessions)} of {len(tasks)} sessions are done", file=sys.stderr)
    if unwritten is not None:
        raise unwritten
    if is_interrupted:
        return INTERRUPTED
    return NO if data.failed or unfit else DONE


class _Silent:
    """A status line that nobody sees."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def update(self, status: str) -> None:
        """Do nothing."""


def _check_budgets(budgets: Sequence[int]) -> tuple[int, ...]:
    chosen = tuple(dict.fromkeys(budgets or [DEFAULT_BUDGET]))
    for budget in chosen:
        make_config(max_total_tokens=budget)  # refuses what cannot work, by the name of the option
    return chosen


def _check_baselines(baselines: Sequence[str]) -> tuple[str, ...]:
    known = [name for name in SYSTEMS if name != OURS]
    for name in baselines:
        if name not in known:
            raise CommandError(f"--baseline {name}: there is no such baseline; known: {', '.join(known)}")
    return tuple(dict.fromkeys([RAW, OURS, *baselines]))


def _check_outputs(options: ReplayOptions) -> None:
    if options.json or not options.quiet:
        check_stdout()
    if options.report is not None:
        check_output(options.report, "--report")
        if options.json and is_stdout(options.report):
            raise CommandError("--report and --json cannot both go to stdout; name a file for the report")
    if options.png is not None:
        check_folder(options.png, "--png")
    if options.report is None and options.png is None:
        return
    try:
        import context_compressor.report.page  # noqa: F401
    except ImportError as error:
        option = "--png" if options.report is None else "--report"
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
    told = [Skipped(problem.file, _place(str(problem), problem.file)) for problem in inputs.problems]
    told += [Skipped(name, note) for name, session in inputs.sessions for note in session.notes]
    return told


def _place(problem: str, file: str) -> str:
    return problem.removeprefix(file).lstrip(",: ")


def _write(options: ReplayOptions, data: ReportData, progress: Progress) -> None:
    """Write report and pictures of what is done; nothing where nothing is."""
    if not data.sessions or (options.report is None and options.png is None):
        return
    from context_compressor.report.page import detailed_sessions, render_page

    detailed = detailed_sessions(data)
    both = (options.report is not None) + (options.png is not None)
    bar = progress.add_task("drawing", total=len(detailed) * both, unit="sessions")
    if options.report is not None:
        text = render_page(data, lambda: progress.advance(bar))
        write_output(options.report, text, "--report")
    if options.png is not None:
        _write_pictures(Path(options.png), data, lambda: progress.advance(bar))


def _write_pictures(folder: Path, data: ReportData, on_session: Any) -> None:
    from context_compressor.report.charts import bars_chart
    from context_compressor.report.page import detailed_sessions, session_charts

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
    """Name on stderr what is not in the result: it is missing, so `--quiet` does not silence it."""
    for title, named in (
        ("failed", [f"{one.name}: {one.why}" for one in (*data.failed, *unfit)]),
        ("skipped", [f"{one.name}: {one.why}" for one in data.notes if not one.is_failure]),
        ("skipped", [str(problem) for problem in inputs.problems]),
    ):
        for line in named[:_MAX_NAMED]:
            print(f"{title}: {one_line(line)}", file=sys.stderr)
        if len(named) > _MAX_NAMED:
            print(f"{title}: {len(named) - _MAX_NAMED:,} more", file=sys.stderr)


def _json_text(data: ReportData) -> str:
    return json.dumps(report_value(data), indent=1) + "\n"
