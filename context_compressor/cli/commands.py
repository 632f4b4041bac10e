"""The options of every command, and where what it does is found."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Annotated, Any

import typer

from context_compressor.cli.options import DEFAULT_MODELS, DEFAULT_STORE, Mode, SummarizerKind
from context_compressor.readers.session import Format

Job = Callable[[], int]
"""What a command does, once its options are read; returns the exit code."""

Store = Annotated[str, typer.Option(metavar="DIR", help="Directory with the full texts of what left a view.")]
Namespace = Annotated[
    str | None, typer.Option(metavar="NAME", help="Look into this namespace only. Default: all of them.")
]
Summarizer = Annotated[
    SummarizerKind,
    typer.Option(
        "--summarizer",
        metavar="WHO",
        help="Who writes summaries: extractive (no model), openai or dashscope.",
    ),
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
KeepRecent = Annotated[
    int | None,
    typer.Option(
        "--keep-recent", metavar="N", help="Messages at the end to keep word for word. Default: 10."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Report as JSON instead of tables.")]
Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Recorded sessions: files, gzipped or not, or directories."),
]
AllJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No tables, no progress bar.")]
InFormat = Annotated[
    Format | None,
    typer.Option(
        metavar="NAME", help=f"Format of the files: {', '.join(Format)}. Default: found out by their content."
    ),
]


def _done_by(module: str, function: str) -> Callable[[Callable[..., None]], Callable[..., Job]]:
    """Return what makes a command of options: what does the work is imported and given them when it runs."""

    def decorate(options: Callable[..., None]) -> Callable[..., Job]:
        @wraps(options)
        def command(**given: Any) -> Job:
            return lambda: getattr(import_module(f"context_compressor.cli.{module}"), function)(**given)

        return command

    return decorate


@_done_by("compress", "run_compress")
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
    keep_recent_count: KeepRecent = None,
    group_token_threshold: Annotated[
        int | None,
        typer.Option(
            "--group-tokens", metavar="N", help="Tokens one summary covers at most. Default: no limit."
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
    who: Summarizer = SummarizerKind.EXTRACTIVE,
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
) -> None:
    """Compress recorded sessions to a token budget.

    FILE holds a JSON array of chat messages, an object with "messages", or JSONL with a session or a message
    per line. The messages come back in the same form; the report goes to stderr. Full texts of what left are
    kept in the store: see **read** and **grep**. Sessions of Claude Code, Codex, AgentScope, LangChain,
    Anthropic Messages and OpenAI Responses are read, too, and come back as OpenAI chat JSON, as do those of a
    directory. What cannot be read is named and skipped.

    Example: context-compressor compress chat.json --budget 16000 -o small.json
    """


@_done_by("stored", "read_stored")
def read(
    ref: Annotated[str, typer.Argument(metavar="REF", help="ctx:// and 16 hex digits, as a view names it.")],
    store: Store = DEFAULT_STORE,
    namespace: Namespace = None,
    offset: Annotated[int | None, typer.Option(min=1, metavar="N", help="First line to print.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Lines to print at most.")] = None,
) -> None:
    """Print a text that left a view, as it was.

    Exit code 1 where no such text is stored.
    """


@_done_by("stored", "grep_stored")
def grep(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="A regular expression, as in Python.")],
    store: Store = DEFAULT_STORE,
    namespace: Namespace = None,
    ref: Annotated[str | None, typer.Option(metavar="REF", help="Search this text only.")] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Match either case.")] = False,
    context: Annotated[
        int, typer.Option("--context", "-C", min=0, metavar="N", help="Lines to print around each match.")
    ] = 0,
) -> None:
    """Search the texts that left views; prints ref:line:text.

    Exit code 0 where something matched, 1 where nothing did, 2 where the search could not be done.
    """


@_done_by("gc", "run_gc")
def gc(
    store: Annotated[
        str, typer.Argument(metavar="DIR", help="Directory with the full texts of what left a view.")
    ],
    max_bytes: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Leave at most so much: 500MB, 2GiB or a number of bytes."),
    ] = None,
    max_age: Annotated[
        str | None,
        typer.Option(
            metavar="AGE", help="Remove what nobody has used for so long: 30d, 12h, 90m, 45s or 2w."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMESPACE", help="Leave this namespace alone; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: Json = False,
) -> None:
    """Remove the stored texts of sessions that are over: the old, then the longest unused.

    What is removed is a namespace, whole, and never one that a living process has open. Without limits it
    tells what is there, and removes only what is empty. A session whose texts were removed goes on with its
    history.

    Example: context-compressor gc working_memory --max-age 30d --max-bytes 2GB --dry-run
    """


@_done_by("replay", "run_replay")
def replay(
    paths: Paths,
    budgets: Annotated[
        list[int] | None,
        typer.Option(
            "--budget", metavar="N", help="Tokens that a view may cost; may be repeated. Default: 16000."
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
) -> None:
    """Tell what compressing would have saved, cost and lost in recorded sessions.

    Before each recorded assistant message the memory, and each baseline, is asked what it would send. No
    model is called. What views tell is measured by the probes of a session, questions with the keys of their
    answers: **examine** makes some. Sessions that cannot be replayed are named and skipped: exit code 1.
    Ctrl-C keeps what is done. --report and --png need the extra: pip install '/path/to/the/checkout[report]'

    Example: context-compressor replay sessions/ --baseline sliding --report out.html
    """


@_done_by("examine", "run_examine")
def examine(
    paths: Paths,
    model: Annotated[str, typer.Option(metavar="NAME", help="Model that asks, reads and grades.")],
    base_url: BaseUrl = None,
    budget: Annotated[
        int,
        typer.Option(metavar="N", help="Tokens that a view may cost. Default: 16000.", show_default=False),
    ] = 16_000,
    baselines: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="NAME",
            help="Whose views to examine, too: raw, sliding or masking; may be repeated.",
        ),
    ] = None,
    window: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Tokens of a session that the question writer reads; what comes later is not examined. "
            "Default: 100000.",
            show_default=False,
        ),
    ] = 100_000,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Examine the N longest sessions only.")
    ] = None,
    cache: Annotated[
        str, typer.Option(metavar="DIR", help="Folder of the model's answers: the same is never asked twice.")
    ] = "examination",
    probes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write sessions and probes there, for replay. Default: probes.jsonl in the cache.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Begin without asking.")] = False,
    as_json: AllJson = False,
    quiet: Quiet = False,
    format: InFormat = None,
) -> None:
    """Find out what compressing saves and loses on your own sessions, with a model.

    The model writes questions about each session (what is wanted, decided, made, failed, what holds now);
    asked again, it answers them from what the memory would have sent, and nothing else; and a third time, it
    grades the answers. The sessions are sent to that model. What it costs is told before it begins. The key
    is taken from OPENAI_API_KEY. Exit code 1 where no session could be examined.

    Example: context-compressor examine sessions/ --model gpt-5-mini --limit 5
    """


@_done_by("demo", "run_demo")
def demo(
    # Below 2,000 tokens a page of what the agent reads back has no room.
    budget: Annotated[int, typer.Option(min=2000, metavar="N", help="Tokens that a view may cost.")] = 16_000,
    turns: Annotated[int, typer.Option(min=1, max=400, metavar="N", help="Turns of the agent.")] = 80,
    keep_recent: KeepRecent = None,
    who: Summarizer = SummarizerKind.EXTRACTIVE,
    model: Model = None,
    base_url: BaseUrl = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Keep the full texts there. Default: removed at the end."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Watch an agent's memory stay within its budget: no key, no network.

    A scripted agent explores Python's own standard library with real tools and reads back, at the end, what
    had left its view. Every request is checked. Exit code 1 where a check fails.
    """
