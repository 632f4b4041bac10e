"""`compress` from options to exit code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from context_compressor.cli.compressing import Compressor
from context_compressor.cli.exits import DONE
from context_compressor.cli.inputs import read_sessions
from context_compressor.cli.outputs import check_output, make_console, write_output, write_stdout
from context_compressor.cli.report import print_report, report_json
from context_compressor.cli.settings import SummarizerKind, make_config, make_summarizer


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


def run_compress(options: CompressOptions) -> int:
    """Compress a file of sessions, write the views, report; return the exit code.

    Nothing is written before every session is done, so that an error or Ctrl-C leaves no part of an output.

    Raises:
        CommandError: options or input are wrong, or something cannot be written.
    """
    config = make_config(**options.fields)
    summarizer = make_summarizer(options.summarizer, options.model, options.base_url)
    if options.output is not None:
        check_output(options.output)
    source = read_sessions(options.file)
    console = make_console(stderr=True)
    progress = Progress(
        TextColumn("compressing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("messages"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=options.quiet or not console.file.isatty(),
    )
    compressor = Compressor(config, options.store, summarizer, options.namespace)
    with progress:
        task = progress.add_task("", total=sum(len(session.messages) for session in source.sessions))
        reports = asyncio.run(compressor.compress(source, lambda done: progress.advance(task, done)))
    text = source.dump([report.view for report in reports])
    if options.output is None:
        write_stdout(text)
    else:
        write_output(options.output, text)
    if options.json:
        report = report_json(source, reports, config, output=options.output or "stdout", store=options.store)
        print(report, file=sys.stderr if options.output is None else sys.stdout)
    elif not options.quiet:
        print_report(console, source, reports, config.budget, options.store)
    return DONE
