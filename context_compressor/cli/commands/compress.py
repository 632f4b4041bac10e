"""The options of `compress`."""

from __future__ import annotations

from typing import Annotated

import typer

from context_compressor.cli.commands.options import BaseUrl, Job, KeepRecent, Model, Store, Summarizer
from context_compressor.cli.settings import DEFAULT_STORE, Mode, SummarizerKind
from context_compressor.readers.session import Format


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
    keep_recent: KeepRecent = None,
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
        from context_compressor.cli.compress.run import run_compress

        return run_compress(
            file,
            fields={
                "max_total_tokens": budget,
                "mode": None if mode is None else mode.value,
                "max_tool_message_tokens": max_tool_message_tokens,
                "keep_recent_count": keep_recent,
                "group_token_threshold": group_tokens,
            },
            store=store,
            namespace=namespace,
            who=summarizer,
            model=model,
            base_url=base_url,
            output=output,
            as_json=json,
            quiet=quiet,
            format=format,
        )

    return job
