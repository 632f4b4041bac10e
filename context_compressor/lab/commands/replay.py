"""`replay`: what compressing would have saved, cost and lost in recorded sessions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from context_compressor.cli.options import DONE, INTERRUPTED, NO, TROUBLE, CommandError
from context_compressor.cli.output import (
    check_apart,
    check_folder,
    check_output,
    check_stdout,
    counted,
    is_stdout,
    make_console,
    make_progress,
    make_table,
    print_table,
    slug_of,
    warn,
    write_output,
    write_stdout,
)
from context_compressor.errors import naming_extras
from context_compressor.lab.commands.inputs import Inputs, check_baselines, read_inputs
from context_compressor.lab.commands.options import (
    AllJson,
    InFormat,
    MaxUnpacked,
    Paths,
    Quiet,
    make_config,
    read_unpacked,
)
from context_compressor.lab.commands.replay_parallel import Replays, Task, default_jobs, find_unfit
from context_compressor.lab.commands.watch import watch_file
from context_compressor.lab.measure import (
    CACHE_WRITE_PRICES,
    EDIT_TOKENS,
    HOW_TO_ASK,
    KINDS,
    OURS,
    PRICES,
    RAW,
    TRIED,
    Advice,
    Choice,
    ReportData,
    SessionRun,
    Skipped,
    Totals,
    advise,
    percent,
    ratio,
    short_number,
    told_range,
)
from context_compressor.lab.readers import Format, grouped

DEFAULT_BUDGET = 16_000
_BILLING_WRITES = frozenset((Format.CLAUDE_CODE, Format.ANTHROPIC))
"""Formats of sessions whose provider bills what is written to its cache."""
_SLUG_CHARACTERS = 60
"""Of a session's name in that of its picture."""


def replay(
    paths: Paths,
    budgets: Annotated[
        list[int] | None,
        typer.Option(
            "--budget",
            metavar="N",
            help="Tokens that a view may cost; may be repeated. Default: 16000, or several for a log.",
        ),
    ] = None,
    baselines: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="NAME",
            help="What else to replay: sliding or masking; may be repeated. raw, the history as it is, "
            "always is.",
        ),
    ] = None,
    probes: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="More probes than sessions bring: .json files with recording, line, cut, probes.",
        ),
    ] = None,
    edit_tokens: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Tokens that the agent's own model is taken to write at an event. Default: 1200.",
            show_default=False,
        ),
    ] = EDIT_TOKENS,
    cache_writes: Annotated[
        bool | None,
        typer.Option(
            "--cache-writes/--no-cache-writes",
            help="Whether the provider bills writing its cache: a new token counts 1.25 then. Default: for "
            "sessions of Claude Code and Anthropic Messages.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a self-contained page of HTML there; - for stdout."),
    ] = None,
    png: Annotated[str | None, typer.Option(metavar="DIR", help="Write the charts there, as PNG.")] = None,
    as_json: AllJson = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes at once. Default: one per core.")
    ] = None,
    quiet: Quiet = False,
    format: InFormat = None,
    max_unpacked: MaxUnpacked = None,
    watched: Annotated[
        bool,
        typer.Option(
            "--watch", help="Show fill and events live while a client writes the file, until Ctrl-C."
        ),
    ] = False,
) -> int:
    """Tell what compressing would have saved, cost and lost in recorded sessions.

    Before each recorded assistant message the memory, and each baseline, is asked what it would send. No
    model is called. What views tell is measured by the probes of a session, questions with the keys of their
    answers: **examine** makes some. Sessions that cannot be replayed are named and skipped: exit code 1.
    Ctrl-C keeps what is done. --report and --png need the extra `report`.

    A log of requests, which **serve** writes with --observe, is read as sessions are. Where several budgets
    are tried, the one to take is told, with an interval.

    Example: context-compressor replay sessions/ --baseline sliding --report out.html
    """
    for budget in budgets or ():
        make_config(max_total_tokens=budget)  # refuses what cannot work, by the name of the option
    if watched:
        [budget, *more] = budgets or [DEFAULT_BUDGET]
        if len(paths) > 1 or more or baselines or probes or report or png or as_json:
            raise CommandError("--watch shows one file within one budget; leave out what is more")
        check_stdout()
        watch_file(paths[0], make_config(max_total_tokens=budget), format, read_unpacked(max_unpacked))
    check_baselines(baselines or ())
    systems = tuple(dict.fromkeys([RAW, OURS, *(baselines or ())]))
    _check_outputs(report, png, as_json=as_json, quiet=quiet)
    with make_progress(quiet=quiet) as progress:
        bar = progress.add_task("reading sessions", total=None)
        inputs = read_inputs(
            paths,
            format,
            lambda count: progress.update(bar, completed=count),
            probes,
            read_unpacked(max_unpacked),
        )
    if report is not None:
        check_apart(report, inputs.files, "--report")
    is_log = any(one.session.format is Format.OBSERVED for one in inputs.sessions)
    chosen = tuple(dict.fromkeys(budgets or (TRIED if is_log else [DEFAULT_BUDGET])))
    tasks = [
        Task(
            one.name,
            one.session.source,
            one.session.messages,
            systems,
            chosen,
            one.probes,
            one.session.compacted_at,
            one.session.turns,
            edit_tokens,
            one.session.title,
            CACHE_WRITE_PRICES if _bills_writes(one.session.format, cache_writes) else PRICES,
        )
        for one in inputs.sessions
    ]
    replays = Replays(tasks, jobs or default_jobs())
    is_interrupted = False
    unwritten: CommandError | None = None
    with make_progress(quiet=quiet) as progress:
        bar = progress.add_task("replaying turns", total=sum(task.steps for task in tasks))
        try:
            replays.run(lambda turns: progress.update(bar, completed=turns))
        except KeyboardInterrupt:
            is_interrupted = True
        else:
            progress.update(bar, completed=progress.tasks[bar].total)
        data = _gather(inputs, replays, chosen, systems, edit_tokens)
        try:
            _write(report, png, data, progress)
        except CommandError as error:
            unwritten = error  # what was found is told all the same
    unfit = [one for session in data.sessions for one in find_unfit(session)]
    if is_log and not budgets:  # nobody asked for these budgets, and the table says what fits
        unfit = []
    warn("failed", [f"{one.name}: {one.why}" for one in (*data.failed, *unfit)])
    warn("skipped", [f"{one.name}: {one.why}" for one in data.notes if not one.is_failure])
    warn("skipped", grouped(inputs.problems))
    if not data.sessions and not is_interrupted:
        first = (*data.failed, *data.notes)[0]
        code = NO if data.failed else TROUBLE
        raise CommandError(f"no session could be replayed; {first.name}: {first.why}", code)
    if as_json:
        advice = advise(data)
        told = {**data.to_dict(), "advice": None if advice is None else asdict(advice)}
        write_stdout(json.dumps(told, indent=1) + "\n")
    elif data.sessions and not quiet:
        is_page_shown = report is not None and is_stdout(report)
        _print_tables(make_console(stderr=is_page_shown), data, has_words=not is_log)
    if is_interrupted:
        print(f"interrupted: {len(data.sessions)} of {len(tasks)} sessions are done", file=sys.stderr)
    if unwritten is not None:
        raise unwritten
    if is_interrupted:
        return INTERRUPTED
    return NO if data.failed or unfit else DONE


def _bills_writes(format: Format, said: bool | None) -> bool:
    return format in _BILLING_WRITES if said is None else said


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
        with naming_extras("report"):
            import context_compressor.lab.measure.page  # noqa: F401
    except ImportError as error:
        raise CommandError(f"{'--png' if report is None else '--report'} {error}") from None


def _gather(
    inputs: Inputs,
    replays: Replays,
    budgets: tuple[int, ...],
    systems: tuple[str, ...],
    edit_tokens: int,
) -> ReportData:
    done = [outcome for outcome in replays.outcomes if isinstance(outcome, SessionRun)]
    skipped = [outcome for outcome in replays.outcomes if isinstance(outcome, Skipped)]
    skipped.sort(key=lambda one: one.name)
    empty = [one for one in skipped if not one.is_failure]
    unread = [Skipped(problem.file, problem.why) for problem in inputs.unread]
    passed_over = [
        Skipped(one.file, str(one).removeprefix(one.file).lstrip(",: ")) for one in inputs.problems
    ]
    left_out = [Skipped(one.name, note) for one in inputs.sessions for note in one.session.notes]
    return ReportData(
        sessions=tuple(sorted(done, key=lambda session: (-session.tokens, session.name))),
        budgets=budgets,
        systems=systems,
        failed=(*unread, *(one for one in skipped if one.is_failure)),
        notes=(*empty, *passed_over, *left_out),
        asked_sessions=len(inputs.sessions) + len(unread) - len(empty),
        edit_tokens=edit_tokens,
    )


def _write(report: str | None, png: str | None, data: ReportData, progress: Progress) -> None:
    """Write report and pictures of what is done; nothing where nothing is."""
    if not data.sessions or (report is None and png is None):
        return
    from context_compressor.lab.measure.page import detailed_sessions, render_page

    detailed = detailed_sessions(data)
    both = (report is not None) + (png is not None)
    bar = progress.add_task("drawing sessions", total=len(detailed) * both)
    if report is not None:
        write_output(report, render_page(data, lambda: progress.advance(bar)), "--report")
    if png is not None:
        _write_pictures(Path(png), data, lambda: progress.advance(bar))


def _write_pictures(folder: Path, data: ReportData, on_session: Callable[[], object]) -> None:
    from context_compressor.lab.measure.charts import bars_chart
    from context_compressor.lab.measure.page import detailed_sessions, session_charts

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


_BESIDE = ("in place", "95 %", "events", "fits")
_COLUMNS = ("saved", "peak", "fill", "over", "refused", "cost", "as if model", "in place")


def _print_tables(console: Console, data: ReportData, *, has_words: bool) -> None:
    """Print a table for each budget, one of what is told by kind, and what the columns mean."""
    for budget, rows in data.tables():
        count = counted(len(data.sessions), "session")
        title = f"Budget {budget:,} tokens: {count}, {rows[0][1].turns:,} turns"
        table = make_table(title, "system", _COLUMNS)
        for system, totals in rows:
            table.add_row(
                system,
                percent(totals.saved, "-"),
                "-" if totals.peak_tokens is None else short_number(totals.peak_tokens),
                percent(totals.fill, "-"),
                f"{totals.over:,}",
                f"{totals.invalid:,}",
                ratio(totals.cost.spent_ratio, "-"),
                ratio(totals.cost.as_if_model_ratio, "-"),
                ratio(totals.cost.in_place_ratio, "-"),
                style="bold" if system == OURS else "",
            )
        print_table(console, table)
        if data.has_probes:
            _print_told(console, rows)
    advice = advise(data)
    bare = sum(not session.has_instructions for session in data.sessions)
    if advice is not None:
        _print_advice(console, advice, is_bare=bare > 0)
    billed = sum(session.runs[0].replay.prices.fresh > PRICES.fresh for session in data.sessions)
    console.print(
        "peak: tokens of the largest request. fill: the mean of view to budget, from a session's first "
        "notes on. over, refused: turns above the budget, or that a provider refuses. cost: to that of the "
        "history, prompt cache counted; as if model: had a model been asked apart for all notes; "
        f"in place: had the agent's own model written {data.edit_tokens:,} tokens behind its last request. "
        f"A cost of 1.00 is the price of {rows[0][1].cost.raw:,.0f} input tokens that are not cached."
    )
    if billed:
        where = "" if billed == len(data.sessions) else f" (in {counted(billed, 'session')})"
        console.print(
            f"A token that is written to the provider's cache counts {CACHE_WRITE_PRICES.fresh}{where}, as "
            f"Anthropic bills it; --no-cache-writes: {PRICES.fresh:.0f}."
        )
    if bare:
        console.print(
            f"No system prompt is in {counted(bare, 'session')}: what a client sends in each request beside "
            "the messages, instructions and tools, is in none of these figures."
        )
    if not has_words:
        console.print(
            "How much the views still answer is not known: a log of requests has sizes and no words."
        )
    elif not data.has_probes:
        console.print(
            "How much the views still answer is not known: no session has questions (probes). "
            f"{HOW_TO_ASK} writes some."
        )


def _print_advice(console: Console, advice: Advice, *, is_bare: bool) -> None:
    """Print budgets beside each other, and the one to take; `is_bare` says that instructions come on top."""
    count = counted(advice.sessions, "session")
    table = make_table(f"Side by side: {count}", "budget", _BESIDE)
    for one in advice.choices:
        table.add_row(
            f"{one.budget:,}",
            ratio(one.cost),
            _between(one),
            f"{one.events:,}",
            "yes" if one.fits else "no",
            style="bold" if one.budget == advice.budget else "",
        )
    print_table(console, table)
    chosen = advice.chosen
    if chosen is None and not any(one.fits for one in advice.choices):
        console.print("At none of these budgets does each turn have a view that fits: try larger ones.")
        return
    if chosen is None:
        console.print(
            "These sessions gain nothing at any of these budgets that fits: sending the history costs no "
            "more. Only a window that is too small for it speaks for one."
        )
        return
    sure = f"95 %: {_between(chosen)}" if chosen.low is not None else "of one session no interval can be told"
    take = "Take"
    if chosen.high is not None and not chosen.is_shown_to_gain:
        take = (
            "These sessions do not show that any of these budgets is cheaper than the history. Where the "
            "window asks for one, take"
        )
    more = " and what the client sends beside the messages" if is_bare else ""
    console.print(
        f"{take} max_total_tokens={chosen.budget}{more}: in place, {ratio(chosen.cost)} of what the history "
        f"costs ({sure}; {count}). Of the budgets that gain, it is the largest that these sessions do not "
        "show to be dearer than the cheapest."
    )


def _between(one: Choice) -> str:
    return "-" if one.low is None else f"{ratio(one.low)} to {ratio(one.high)}"


def _print_told(console: Console, rows: Sequence[tuple[str, Totals]]) -> None:
    """Print what the views of systems tell: of all probes, with its interval, and of each kind."""
    every = [totals.told for _, totals in rows if totals.told is not None]
    shares = {
        system: {kind: told.share for kind, told in totals.told_by_kind.items()} for system, totals in rows
    }
    table = make_table("Told by views", "probes", ["", *shares])
    table.add_row("all", f"{every[0].probes:,}", *(percent(told.share) for told in every))
    table.add_row("95 %", "", *map(told_range, every))
    densities = (percent(told.per_1000_tokens, "-") for told in every)
    table.add_row("per 1,000 tokens", "", *densities, end_section=True)
    add_kinds(table, rows[0][1], shares)
    print_table(console, table)


def add_kinds(table: Table, asked: Totals, shares: Mapping[str, Mapping[str, float]]) -> None:
    """Add a row for each kind of probe that was asked: how many there are, and a share for each column."""
    for kind in filter(asked.told_by_kind.__contains__, KINDS):
        cells = (percent(column.get(kind), "-") for column in shares.values())
        table.add_row(kind, f"{asked.told_by_kind[kind].probes:,}", *cells)
