"""The commands and their options; each returns what is to be done, and `main` does it.

Exit codes: 0 done · 1 the answer is no (nothing matched, no such text, a session that does not fit the
budget or could not be replayed, a check of the demo that failed) · 2 it could not be done (options, input,
files) · 130 interrupted · 141 whoever read the output has gone.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from context_compressor.cli.exits import BROKEN_PIPE, DONE, INTERRUPTED, TROUBLE, CommandError, one_line
from context_compressor.cli.gc_command import gc
from context_compressor.cli.invoking import invoke
from context_compressor.cli.settings import DEFAULT_MODELS, DEFAULT_STORE, Mode, SummarizerKind
from context_compressor.readers.session import Format

PROGRAM = "context-compressor"

Job = Callable[[], int]
"""What a command does, once its options are read; returns the exit code."""

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Store = Annotated[str, typer.Option(metavar="DIR", help="Directory with the full texts of what left a view.")]
Namespace = Annotated[
    str | None, typer.Option(metavar="NAME", help="Look into this namespace only. Default: all of them.")
]
Summarizer = Annotated[
    SummarizerKind,
    typer.Option(metavar="WHO", help="Who writes summaries: extractive (no model), openai or dashscope."),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Model that writes them. Default: "
        + ", ".join(f"{model} ({kind})" for kind, model in DEFAULT_MODELS.items())
        + ".",
    ),
]
BaseUrl = Annotated[str | None, typer.Option(metavar="URL", help="Its server, if not the provider's own.")]
Json = Annotated[bool, typer.Option("--json", help="Report as JSON instead of tables.")]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(PROGRAM)
    except PackageNotFoundError:
        return "(run from its sources, not installed)"


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Short-term memory for LLM agents: views that fit a token budget, with nothing lost.

    New here? Run **context-compressor demo**: no key, no network, a few seconds.
    """
    if version:
        print(f"{PROGRAM} {_version()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit


@app.command()
def compress(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Sessions as JSON or JSONL, gzipped or not, or a directory; - for stdin."
        ),
    ],
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget",
            "--max-total-tokens",
            metavar="N",
            help="Tokens that a whole view may cost. Default: 20000.",
        ),
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            metavar="MODE",
            help="compact: move large texts out; compress: summarise older messages; "
            "auto (default): compact, then compress if that was not enough.",
        ),
    ] = None,
    max_tool_message_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help="Tokens above which an older tool result moves out. Default: 2000."),
    ] = None,
    keep_recent: Annotated[
        int | None, typer.Option(metavar="N", help="Messages at the end to keep word for word. Default: 10.")
    ] = None,
    group_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help="Tokens one summary covers at most. Default: no limit."),
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
    summarizer: Summarizer = SummarizerKind.EXTRACTIVE,
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
    json: Annotated[
        bool,
        typer.Option("--json", help="Report as JSON: on stdout with --output, else on stderr."),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No table, no progress bar; --json still reports.")
    ] = False,
    format: Annotated[
        Format | None,
        typer.Option(
            metavar="NAME",
            help=f"Format of FILE: {', '.join(Format)}. Default: found out by its content.",
        ),
    ] = None,
) -> Job:
    """Compress recorded sessions to a token budget.

    FILE holds a JSON array of chat messages, an object with "messages", or JSONL with a session or a message
    per line. The messages come back in the same form; the report goes to stderr. Full texts of what left are
    kept in the store: see **read** and **grep**. Sessions of Claude Code, Codex, AgentScope, LangChain,
    Anthropic Messages and OpenAI Responses are read, too, and come back as OpenAI chat JSON, as do those of a
    directory. What cannot be read is named and skipped.

    Example: context-compressor compress chat.json --budget 16000 -o small.json
    """

    def job() -> int:
        from context_compressor.cli.run_compress import CompressOptions, run_compress

        return run_compress(
            CompressOptions(
                file=file,
                fields={
                    "max_total_tokens": budget,
                    "mode": None if mode is None else mode.value,
                    "max_tool_message_tokens": max_tool_message_tokens,
                    "keep_recent_count": keep_recent,
                    "group_token_threshold": group_tokens,
                },
                store=store,
                namespace=namespace,
                summarizer=summarizer,
                model=model,
                base_url=base_url,
                output=output,
                json=json,
                quiet=quiet,
                format=format,
            )
        )

    return job


@app.command()
def read(
    ref: Annotated[str, typer.Argument(metavar="REF", help="ctx:// and 16 hex digits, as a view names it.")],
    store: Store = DEFAULT_STORE,
    namespace: Namespace = None,
    offset: Annotated[int | None, typer.Option(min=1, metavar="N", help="First line to print.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Lines to print at most.")] = None,
) -> Job:
    """Print a text that left a view, as it was.

    Exit code 1 where no such text is stored.
    """

    def job() -> int:
        from context_compressor.cli.stored import read_stored

        return read_stored(ref, store, namespace, offset, limit)

    return job


@app.command()
def grep(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="A regular expression, as in Python.")],
    store: Store = DEFAULT_STORE,
    namespace: Namespace = None,
    ref: Annotated[str | None, typer.Option(metavar="REF", help="Search this text only.")] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Match either case.")] = False,
    context: Annotated[
        int, typer.Option("--context", "-C", min=0, metavar="N", help="Lines to print around each match.")
    ] = 0,
) -> Job:
    """Search the texts that left views; prints ref:line:text.

    Exit code 0 where something matched, 1 where nothing did, 2 where the search could not be done.
    """

    def job() -> int:
        from context_compressor.cli.stored import grep_stored

        return grep_stored(pattern, store, namespace, ref, ignore_case, context)

    return job


app.command()(gc)


@app.command()
def replay(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Recorded sessions: files, gzipped or not, or directories."),
    ],
    budget: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Tokens that a view may cost; may be repeated. Default: 16000."),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What else to replay: sliding or masking; may be repeated. raw, the history as it is, "
            "always is.",
        ),
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a self-contained page of HTML there; - for stdout."),
    ] = None,
    png: Annotated[str | None, typer.Option(metavar="DIR", help="Write the charts there, as PNG.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON instead of a table.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes at once. Default: one per core.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No table, no progress bar.")] = False,
    format: Annotated[
        Format | None,
        typer.Option(
            metavar="NAME",
            help=f"Format of the files: {', '.join(Format)}. Default: found out by their content.",
        ),
    ] = None,
) -> Job:
    """Tell what compressing would have saved, cost and lost in recorded sessions.

    Before each recorded assistant message the memory, and each baseline, is asked what it would send. No
    model is called. Sessions that cannot be replayed are named and skipped: exit code 1. Ctrl-C keeps what is
    done. --report and --png need the extra: pip install '/path/to/the/checkout[report]'

    Example: context-compressor replay sessions/ --baseline sliding --report out.html
    """

    def job() -> int:
        from context_compressor.cli.replay import ReplayOptions, run_replay

        return run_replay(
            ReplayOptions(
                paths=paths,
                budgets=budget or [],
                baselines=baseline or [],
                report=report,
                png=png,
                json=json,
                jobs=jobs,
                quiet=quiet,
                format=format,
            )
        )

    return job


@app.command()
def demo(
    # Below 2,000 tokens a page of what the agent reads back has no room.
    budget: Annotated[int, typer.Option(min=2000, metavar="N", help="Tokens that a view may cost.")] = 16_000,
    turns: Annotated[int, typer.Option(min=1, max=400, metavar="N", help="Turns of the agent.")] = 80,
    keep_recent: Annotated[
        int | None, typer.Option(metavar="N", help="Messages at the end to keep word for word. Default: 10.")
    ] = None,
    summarizer: Summarizer = SummarizerKind.EXTRACTIVE,
    model: Model = None,
    base_url: BaseUrl = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Keep the full texts there. Default: removed at the end."),
    ] = None,
    json: Json = False,
) -> Job:
    """Watch an agent's memory stay within its budget: no key, no network.

    A scripted agent explores Python's own standard library with real tools and reads back, at the end, what
    had left its view. Every request is checked. Exit code 1 where a check fails.
    """

    def job() -> int:
        from context_compressor.cli.demo import DemoOptions, run_demo

        return run_demo(
            DemoOptions(
                budget=budget,
                turns=turns,
                keep_recent=keep_recent,
                summarizer=summarizer,
                model=model,
                base_url=base_url,
                store=store,
                json=json,
            )
        )

    return job


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with `arguments`, those of the process when None; return the exit code."""
    try:
        code = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a broken pipe can still be reported
        return code
    except CommandError as error:
        _complain(str(error))
        return error.code
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # What is still in the buffer can go nowhere; Python would try again at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        _complain(f"{error.filename or 'output'}: {error.strerror or error}")
        return TROUBLE


def _run(arguments: Sequence[str] | None) -> int:
    outcome = invoke(app, arguments, PROGRAM)
    if callable(outcome):
        return int(outcome())
    from context_compressor.cli.outputs import check_stdout

    check_stdout()  # there the help or the version should have gone
    return int(outcome or DONE)


def _complain(message: str) -> None:
    if sys.stderr is not None:
        print(f"{PROGRAM}: {one_line(message)}", file=sys.stderr)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a poor terminal must not end a report
    sys.exit(run())
