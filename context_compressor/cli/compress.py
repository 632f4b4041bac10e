"""`compress` from options to exit code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from context_compressor.cli.compress_report import print_report, report_json
from context_compressor.cli.compress_sessions import Compressor, SessionReport
from context_compressor.cli.options import (
    DONE,
    CommandError,
    SummarizerKind,
    check_path,
    make_config,
    make_summarizer,
)
from context_compressor.cli.output import (
    check_folder,
    check_output,
    check_stdout,
    is_stdout,
    make_console,
    make_progress,
    write_output,
    write_stdout,
)
from context_compressor.messages.text import counted, dump_sendable, one_line
from context_compressor.readers import Form, Format, Reading, UnreadableError, read_all

STDIN = "-"
_WRITTEN_ANEW = (Form.FOREIGN, Form.DIRECTORY)


def written_as(reading: Reading) -> str | None:
    """Return what is written for an input whose form is not written back, else None."""
    if reading.form not in _WRITTEN_ANEW:
        return None
    one = reading.form is Form.FOREIGN and len(reading.sessions) == 1
    return "OpenAI chat JSON" if one else "OpenAI chat JSON, a session per line"


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


def read_sessions(source: str, format: Format | None = None) -> Reading:
    """Read a file or a directory, or stdin for `-`; the format is found by content when None.

    Raises:
        CommandError: nothing in it can be read; names file, line and reason.
    """
    check_path(source, "FILE")
    try:
        if source == STDIN:
            if sys.stdin is None:
                raise CommandError("stdin is closed; name a file, or redirect one: compress - < FILE")
            return read_all(sys.stdin.buffer, "stdin", format)
        return read_all(Path(source), source, format)
    except UnreadableError as error:
        raise CommandError(error.why) from None


_MAX_PROBLEMS = 5
"""Problems, and failures, that are named one by one; `--json` lists all."""


def run_compress(
    file: str,
    *,
    store: str,
    namespace: str | None,
    who: SummarizerKind,
    model: str | None,
    base_url: str | None,
    output: str | None,
    as_json: bool,
    quiet: bool,
    format: Format | None,
    **fields: Any,
) -> int:
    """Compress a file of sessions, write the views, report; return the exit code. Options are as given,
    `fields` those of `CompressionConfig`, None where one is not given.

    Nothing is written before every session is done, so that an error or Ctrl-C leaves no part of an output.
    """
    config = make_config(**fields)
    summarizer = make_summarizer(who, model, base_url)
    output = None if is_stdout(output) else output
    check_folder(store, "--store")
    if output is not None:
        check_output(output)
    if output is None or as_json:
        check_stdout()
    source = read_sessions(file, format)
    console = make_console(stderr=True)
    progress = make_progress(console, is_shown=not quiet and console.file.isatty())
    compressor = Compressor(config, store, summarizer, namespace)
    with progress:
        task = progress.add_task(
            "compressing", unit="messages", total=sum(len(session.messages) for session in source.sessions)
        )
        reports = asyncio.run(compressor.compress(source, lambda done: progress.advance(task, done)))
    text = dump(source, [report.view for report in reports])
    if output is None:
        write_stdout(text)
    else:
        write_output(output, text)
    if not (as_json and output is None):  # else stderr is JSON, and has them
        _warn(source)
    if as_json:
        report = report_json(source, reports, config, output=output or "stdout", store=store)
        print(report, file=sys.stderr if output is None else sys.stdout)
    elif not quiet:
        print_report(console, source, reports, config.budget, store)
        if (written := written_as(source)) is not None:
            titles = ", ".join(format.title for format in source.formats)
            print(one_line(f"{source.name}: read as {titles}; written as {written}"), file=sys.stderr)
    else:
        _warn_of_failures(reports)
    return DONE


def _warn_of_failures(reports: Sequence[SessionReport]) -> None:
    """Name on stderr what failed, each once: who asks for a model's summaries should know of extracts."""
    events = [event for report in reports for event in report.events if event.kind == "failure"]
    for error in list(dict.fromkeys(event.error for event in events if event.error))[:_MAX_PROBLEMS]:
        print(f"failed: {one_line(error)}", file=sys.stderr)


def _warn(source: Reading) -> None:
    """Name on stderr what could not be read: data are missing, so `--quiet` does not silence it."""
    if not source.problems:
        return
    for problem in source.problems[:_MAX_PROBLEMS]:
        print(f"skipped: {one_line(str(problem))}", file=sys.stderr)
    count = len(source.problems)
    more = f"; the first {_MAX_PROBLEMS} are named" if count > _MAX_PROBLEMS else ""
    print(f"{one_line(source.name)}: {counted(count, 'unreadable item')} skipped{more}", file=sys.stderr)
