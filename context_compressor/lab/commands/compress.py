"""`compress`: views of recorded sessions, written in the form they came in, and a report."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from context_compressor.cli.options import DEFAULT_STORE, DONE, CommandError, Store, check_path
from context_compressor.cli.output import (
    check_apart,
    check_folder,
    check_output,
    check_stdout,
    is_stdout,
    make_console,
    make_progress,
    make_table,
    one_line,
    print_table,
    say,
    warn,
    write_output,
)
from context_compressor.core.config import CompressionConfig
from context_compressor.lab.commands.compress_sessions import Compressor, SessionReport, StandIn
from context_compressor.lab.commands.inputs import check_words
from context_compressor.lab.commands.options import (
    BaseUrl,
    InFormat,
    KeepRecent,
    MaxUnpacked,
    Model,
    SummarizerChoice,
    SummarizerKind,
    make_config,
    make_summarizer,
    read_unpacked,
)
from context_compressor.lab.measure import index_ranges
from context_compressor.lab.measure.results import LEAST_BUDGET
from context_compressor.lab.readers import (
    MAX_UNPACKED,
    Form,
    Format,
    Reading,
    UnreadableError,
    grouped,
    read_all,
)
from context_compressor.messages.text import dump_sendable

STDIN = "-"
_MAX_ROWS = 40
"""Sessions shown in the table; `--json` has all."""
_MAX_STAND_INS = 12
_MAX_NOTES = 8
"""Lines of a table, and notes below it; `--json` has all."""


def compress(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Sessions as JSON or JSONL, gzipped or not, or a directory; - for stdin."
        ),
    ],
    max_total_tokens: Annotated[
        int | None,
        typer.Option(
            "--budget",
            "--max-total-tokens",
            metavar="N",
            help="Tokens that a whole view may cost. Default: 20000.",
        ),
    ] = None,
    mode: Annotated[
        Literal["auto", "compact", "compress"] | None,
        typer.Option(
            metavar="MODE",
            help="compact: move large texts out; compress: older messages leave for notes; "
            "auto (default): compact, then compress if that was not enough.",
        ),
    ] = None,
    max_tool_message_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help="Tokens above which an older tool result moves out. Default: 2000."),
    ] = None,
    keep_recent_count: KeepRecent = None,
    group_token_threshold: Annotated[
        int | None,
        typer.Option(
            "--group-tokens",
            metavar="N",
            help="Tokens of messages that one request for notes holds. Default: no limit.",
        ),
    ] = None,
    store: Store = DEFAULT_STORE,
    namespace: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Namespace in the store; with several sessions NAME-1, NAME-2 and so on. "
            "Default: one per session, from its id or the file's name.",
        ),
    ] = None,
    who: SummarizerChoice = SummarizerKind.EXTRACTIVE,
    model: Model = None,
    base_url: BaseUrl = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the messages there, whole or not at all; gzipped if it ends in .gz. "
            "Default, and -: stdout.",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Report as JSON: on stdout with --output, else on stderr."),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No table, no progress bar; --json still reports.")
    ] = False,
    format: InFormat = None,
    max_unpacked: MaxUnpacked = None,
) -> int:
    """Compress recorded sessions to a token budget.

    FILE holds a JSON array of chat messages, an object with "messages", or JSONL with a session or a message
    per line. The messages come back in the same form; the report goes to stderr. Full texts of what left are
    kept in the store: see **read** and **grep**. Sessions of other programs and APIs (--format
    names them) are read, too, and come back as OpenAI chat JSON, as do those of a directory. What cannot be
    read is named and skipped; a file of which that is most is refused, with exit code 2.

    Example: context-compressor compress chat.json --budget 16000 -o small.json
    """
    # Nothing is written before every session is done: an error or Ctrl-C leaves no part of an output.
    config = make_config(
        max_total_tokens=max_total_tokens,
        mode=mode,
        max_tool_message_tokens=max_tool_message_tokens,
        keep_recent_count=keep_recent_count,
        group_token_threshold=group_token_threshold,
    )
    summarizer = make_summarizer(who, model, base_url)
    output = None if is_stdout(output) else output
    check_folder(store, "--store")
    if output is not None:
        check_output(output)
    if output is None or as_json:
        check_stdout()
    source = read_sessions(file, format, read_unpacked(max_unpacked))
    read = [*(session.source for session in source.sessions), *(problem.file for problem in source.problems)]
    check_apart(output, [file, *read])
    compressor = Compressor(config, store, summarizer, namespace)
    with make_progress(quiet=quiet) as progress:
        total = sum(len(session.messages) for session in source.sessions)
        task = progress.add_task("compressing messages", total=total)
        reports = asyncio.run(compressor.compress(source, lambda done: progress.advance(task, done)))
    write_output(output or STDIN, dump(source, [report.view for report in reports]))
    if not (as_json and output is None):  # else stderr is JSON, and has them
        warn("skipped", grouped(source.problems))
    if as_json:
        report = _report_json(source, reports, config, output or "stdout", store)
        print(report, file=sys.stderr if output is None else sys.stdout)
    elif not quiet:
        _print_report(make_console(stderr=True), source, reports, config.budget, store)
    else:  # who asks for a model's notes should know of extracts all the same
        warn("note", list(dict.fromkeys(note for report in reports for note in report.failures)))
    return DONE


def read_sessions(source: str, format: Format | None = None, max_unpacked: int = MAX_UNPACKED) -> Reading:
    """Read a file or a directory, or stdin for `-`; the format is found by content when None.

    Raises:
        CommandError: nothing in it can be read; names file, line and reason.
    """
    check_path(source, "FILE")
    try:
        if source == STDIN:
            if sys.stdin is None:
                raise CommandError("stdin is closed; name a file, or redirect one: compress - < FILE")
            reading = read_all(sys.stdin.buffer, "stdin", format, max_unpacked)
        else:
            reading = read_all(Path(source), source, format, max_unpacked)
    except UnreadableError as error:
        raise CommandError(error.why) from None
    check_words(reading.sessions)
    return reading


def dump(reading: Reading, views: Sequence[list[dict[str, Any]]]) -> str:
    """Return the text of a file of the form read that holds `views`, one per session."""
    if reading.form is Form.MESSAGE_LINES:
        return "".join(f"{dump_sendable(message)}\n" for view in views for message in view)
    anew = reading.form is Form.DIRECTORY or (reading.form is Form.FOREIGN and len(views) > 1)
    framed = [
        {"id": session.id, "messages": view} if anew and session.frame is None else session.wrap(view)
        for session, view in zip(reading.sessions, views, strict=True)
    ]
    indent = 2 if reading.form is Form.ONE and reading.sessions[0].is_indented else None
    return "".join(f"{dump_sendable(value, indent=indent)}\n" for value in framed)


# What is reported


def _print_report(
    console: Console, source: Reading, reports: Sequence[SessionReport], budget: int, store: str
) -> None:
    """Print the table of tokens before and after, what left the view, and what to know besides."""
    print_table(console, _sessions_table(source, reports, budget))
    if len(reports) > _MAX_ROWS:
        console.print(f"{len(reports) - _MAX_ROWS} more are counted in the total; --json lists all")
    if len(reports) == 1 and reports[0].stand_ins:
        print_table(console, _stand_ins_table(reports[0]))
    if stored := [report for report in reports if report.refs]:
        first = stored[0]
        others = f"namespace {first.namespace}"
        if len(stored) > 1:
            others = f"a namespace per session, {first.namespace} and others"
        say(console, f"Full texts: {store}, {others}")
        option = "" if store == DEFAULT_STORE else f" --store {shlex.quote(store)}"
        say(console, f"Read one: context-compressor read {first.refs[0]}{option}")
    notes = [
        f"{_base_name(source) if report.line is None else f'line {report.line}'}: {note}"
        for report in reports
        for note in report.notes
    ]
    for note in notes[:_MAX_NOTES]:
        say(console, f"note: {note}", "yellow")
    if len(notes) > _MAX_NOTES:
        say(console, f"note: {len(notes) - _MAX_NOTES} more; --json lists all", "yellow")
    if source.form is Form.DIRECTORY or source.form is Form.FOREIGN:
        one = source.form is Form.FOREIGN and len(source.sessions) == 1
        titles = ", ".join(format.title for format in source.formats)
        written = f"OpenAI chat JSON{'' if one else ', a session per line'}"
        say(console, f"{_base_name(source)}: read as {titles}; written as {written}")


def _base_name(source: Reading) -> str:
    """Return what a table calls the input: its name without the folders above it."""
    return PurePath(source.name).name or source.name


def _sessions_table(source: Reading, reports: Sequence[SessionReport], budget: int) -> Table:
    columns = ("messages", "tokens", "view", "saved", "offloaded", "noted")
    table = make_table(f"Views within {budget:,} tokens", "session", columns, fold=True)
    for report in reports[:_MAX_ROWS]:
        place = _base_name(source) if report.line is None else f"line {report.line}"
        table.add_row(
            Text(one_line(source.sessions[report.number - 1].id or place)), *_row(_counts([report], budget))
        )
    if len(reports) > 1:
        table.add_section()
        table.add_row(f"{len(reports)} sessions", *_row(_counts(reports, budget)), style="bold")
    return table


def _row(counts: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{counts['messages']:,} > {counts['view_messages']:,}",
        f"{counts['tokens']:,}",
        f"{counts['view_tokens']:,}",
        _saved(counts),
        str(counts["offloaded"]),
        f"{counts['noted']:,}",
    )


def _saved(counts: dict[str, Any]) -> str:
    if counts["saved_percent"] is None:
        return "-"
    return f"{counts['saved_percent']:.0f} %" if counts["saved_tokens"] >= 0 else "nothing"


def _counts(reports: Sequence[SessionReport], budget: int) -> dict[str, Any]:
    """Return the sums over all sessions; at a very small budget without a saving."""
    before = sum(report.stats.history_tokens for report in reports)
    after = sum(report.stats.view_tokens for report in reports)
    is_told = budget >= LEAST_BUDGET
    return {
        "messages": sum(report.messages for report in reports),
        "view_messages": sum(len(report.view) for report in reports),
        "tokens": before,
        "view_tokens": after,
        "saved_tokens": before - after if is_told else None,
        "saved_percent": round(100 * max(0, before - after) / max(1, before), 1) if is_told else None,
        "offloaded": sum(report.stats.offloaded for report in reports),
        "noted": sum(report.stats.noted for report in reports),
    }


def _stand_ins_table(report: SessionReport) -> Table:
    table = make_table("What left the view", "what", ())
    for name in ("messages", "full text"):
        table.add_column(name, no_wrap=True)
    rows = [_stand_in_row(stand_in) for stand_in in report.stand_ins]
    named = {ref for stand_in in report.stand_ins for ref in stand_in.refs}
    rows += [("offloaded", "among what is noted", ref) for ref in report.refs if ref not in named]
    for row in rows[:_MAX_STAND_INS]:
        table.add_row(*row)
    if len(rows) > _MAX_STAND_INS:
        table.add_row("...", f"{len(rows) - _MAX_STAND_INS} more", "")
    return table


def _stand_in_row(stand_in: StandIn) -> tuple[str, str, str]:
    what = {"notes": "noted", "stub": "offloaded", "placeholder": "no result", "thoughts": "thoughts"}[
        stand_in.kind
    ]
    covered = ""
    if stand_in.covers:
        first, last = min(stand_in.covers), max(stand_in.covers)
        covered = str(first) if first == last else f"{first} to {last} ({len(stand_in.covers)} messages)"
    refs = stand_in.refs
    return what, covered, (refs[0] if refs else "") + (f" and {len(refs) - 1} more" if len(refs) > 1 else "")


_CONFIG_FIELDS = (
    "mode",
    "max_total_tokens",
    "max_tool_message_tokens",
    "keep_recent_count",
    "group_token_threshold",
)
_EVENT_FIELDS = ("kind", "reason", "tokens_before", "tokens_after", "refs", "error")
_MODEL_FIELDS = ("summarizer_calls", "summarizer_input_tokens", "summarizer_output_tokens")


def _report_json(
    source: Reading, reports: Sequence[SessionReport], config: CompressionConfig, output: str, store: str
) -> str:
    """Return the report as one JSON object."""
    asked = {name: sum(getattr(report.stats, name) for report in reports) for name in _MODEL_FIELDS}
    value = {
        "input": source.name,
        "output": output,
        "form": source.form.value,
        "store": store,
        "config": config.model_dump(mode="json", include=set(_CONFIG_FIELDS)),
        "total": {"sessions": len(reports), **_counts(reports, config.budget), **asked},
        "sessions": [_session_value(report, config.budget) for report in reports],
        "formats": list(source.formats),
        "problems": [
            {"file": problem.file, "line": problem.line, "why": problem.why} for problem in source.problems
        ],
    }
    return json.dumps(value, indent=2)


def _session_value(report: SessionReport, budget: int) -> dict[str, Any]:
    return {
        "session": report.number,
        "line": report.line,
        "namespace": report.namespace,
        **_counts([report], budget),
        "refs": report.refs,
        "stand_ins": [
            {"kind": s.kind, "refs": s.refs, "message_ranges": index_ranges(sorted(s.covers))}
            for s in report.stand_ins
        ],
        "events": [{name: getattr(event, name) for name in _EVENT_FIELDS} for event in report.events],
        "notes": report.notes,
    }
