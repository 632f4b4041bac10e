"""`compress` from options to exit code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from context_compressor.cli.compress.report import print_report, report_json
from context_compressor.cli.compress.sessions import Compressor, SessionReport
from context_compressor.cli.exits import DONE
from context_compressor.cli.inputs import dump, read_sessions, written_as
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
from context_compressor.cli.settings import SummarizerKind, make_config, make_summarizer
from context_compressor.cli.wording import counted, one_line
from context_compressor.readers import Format, Reading

_MAX_PROBLEMS = 5
"""Problems, and failures, that are named one by one; `--json` lists all."""


@dataclass(frozen=True, slots=True)
class CompressOptions:
    """The options of `compress`, as given."""

    file: str
    fields: Mapping[str, Any]
    """Fields of `CompressionConfig`; None for those not given."""
    store: str
    namespace: str | None
    summarizer: SummarizerKind
    model: str | None
    base_url: str | None
    output: str | None
    json: bool
    quiet: bool
    format: Format | None = None
    """The format of the input; found out by its content when None."""


def run_compress(options: CompressOptions) -> int:
    """Compress a file of sessions, write the views, report; return the exit code.

    Nothing is written before every session is done, so that an error or Ctrl-C leaves no part of an output.

    Raises:
        CommandError: options or input are wrong, or something cannot be written.
    """
    config = make_config(**options.fields)
    summarizer = make_summarizer(options.summarizer, options.model, options.base_url)
    output = None if is_stdout(options.output) else options.output
    check_folder(options.store, "--store")
    if output is not None:
        check_output(output)
    if output is None or options.json:
        check_stdout()
    source = read_sessions(options.file, options.format)
    console = make_console(stderr=True)
    progress = make_progress(console, is_shown=not options.quiet and console.file.isatty())
    compressor = Compressor(config, options.store, summarizer, options.namespace)
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
    if not (options.json and output is None):  # else stderr is JSON, and has them
        _warn(source)
    if options.json:
        report = report_json(source, reports, config, output=output or "stdout", store=options.store)
        print(report, file=sys.stderr if output is None else sys.stdout)
    elif not options.quiet:
        print_report(console, source, reports, config.budget, options.store)
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
