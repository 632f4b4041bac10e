"""`demo`: a scripted agent's session through a compressed memory, watched and checked."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from context_compressor.cli.options import DONE, NO, CommandError, Json
from context_compressor.cli.output import check_folder, check_stdout, counted, make_console, one_line, say
from context_compressor.errors import ContextOverflowError
from context_compressor.events import CompressionEvent
from context_compressor.lab.commands.demo_agent import (
    Call,
    ChatDict,
    ScriptedSession,
    assistant_message,
    tool_message,
)
from context_compressor.lab.commands.options import (
    BaseUrl,
    KeepRecent,
    Model,
    SummarizerChoice,
    SummarizerKind,
    make_config,
    make_summarizer,
)
from context_compressor.laws.chat_rules import problems
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.messages.chat import from_openai, to_openai
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.guide import GREP_TOOL, READ_TOOL
from context_compressor.offload.pages import is_page
from context_compressor.tools.tools import OffloadTools

NAMESPACE = "demo"
_READ_BACK_LINES = 8
_FIRST_MATCH = re.compile(r"\[(ctx://[0-9a-f]{16}) matches: [^\n]*\n(\d+)")
_TURNS_PER_LINE = 10
"""A line of output for so many, where there is no terminal to draw on."""
_BAR_WIDTH = 12
_VERBS = {
    "compact": "moved out",
    "compress": "noted",
    "edit": "edited",
    "failure": "failed",
}


def demo(
    # Below 2,000 tokens a page of what the agent reads back has no room.
    budget: Annotated[int, typer.Option(min=2000, metavar="N", help="Tokens that a view may cost.")] = 16_000,
    turns: Annotated[int, typer.Option(min=1, max=400, metavar="N", help="Turns of the agent.")] = 80,
    keep_recent: KeepRecent = None,
    who: SummarizerChoice = SummarizerKind.EXTRACTIVE,
    model: Model = None,
    base_url: BaseUrl = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Keep the full texts there. Default: removed at the end."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Watch an agent's memory stay within its budget: no key, no network.

    A scripted agent explores Python's own standard library with real tools and reads back, at the end, what
    had left its view. Every request is checked. Exit code 1 where a check fails.
    """
    if store is not None:
        check_folder(store, "--store")
    check_stdout()
    config = make_config(max_total_tokens=budget, keep_recent_count=keep_recent)
    summarizer = make_summarizer(who, model, base_url)
    session = ScriptedSession(turns)
    if not (session.tools.root / "json").is_dir():
        raise CommandError(
            f"{session.tools.root}: this Python keeps no library there that an agent could read"
        )
    console = None if as_json else make_console()
    if console is not None:
        _introduce(console, budget, turns)
    folder = TemporaryDirectory(prefix="context-compressor-") if store is None else nullcontext(store)
    with folder as directory:
        events: list[CompressionEvent] = []
        texts = FileOffloadStore(directory, NAMESPACE)
        memory = CompressedMemory(config=config, store=texts, summarizer=summarizer, on_event=events.append)
        try:
            outcome = asyncio.run(_Run(memory, session, console, events).run())
        except ContextOverflowError as error:
            raise CommandError(str(error).replace("max_total_tokens", "--budget"), NO) from None
    if console is None:
        print(json.dumps({**asdict(outcome), "ok": outcome.is_good}, indent=2))
    else:
        _print_summary(console, outcome, store)
    for failure in outcome.failures:
        # The session went on, as an agent's would; but texts that were to be kept are not.
        if store is not None and failure.startswith("Offload"):
            raise CommandError(f"--store {store}: {failure}")
    return DONE if outcome.is_good else NO


@dataclass(slots=True)
class ReadBack:
    """A text that had left the view, fetched by the agent and compared with the original."""

    asked_for: str
    ref: str
    lines: list[str]
    is_identical: bool


@dataclass(slots=True)
class Outcome:
    """What the demo came to; tokens of input are those of all requests, without the memory and with it."""

    python: str
    budget_tokens: int
    requests: int = 0
    history_tokens: int = 0
    view_tokens: int = 0
    peak_view_tokens: int = 0
    history_input_tokens: int = 0
    view_input_tokens: int = 0
    events: dict[str, int] = field(default_factory=dict)
    stored_texts: int = 0
    summarizer_calls: int = 0
    summarizer_input_tokens: int = 0
    summarizer_output_tokens: int = 0
    invalid_requests: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    read_back: ReadBack | None = None

    @property
    def is_good(self) -> bool:
        """Whether every check holds."""
        read_back = self.read_back is None or self.read_back.is_identical
        return not self.invalid_requests and self.peak_view_tokens <= self.budget_tokens and read_back


class _Run:
    """Drive the scripted agent through a memory, request by request; `events` is what its hook appends to."""

    def __init__(
        self,
        memory: CompressedMemory,
        session: ScriptedSession,
        console: Console | None,
        events: Sequence[CompressionEvent],
    ) -> None:
        self._memory, self._session, self._console, self._events = memory, session, console, events
        self._tools = OffloadTools(memory)
        self._raw: list[ChatDict] = []
        self._seen_events = 0
        self.outcome = Outcome(".".join(map(str, sys.version_info[:3])), memory.budget_tokens)

    async def run(self) -> Outcome:
        """Play the session, then have the agent read back what left; return figures and checks."""
        turn = 0
        for step in self._session.steps():
            turn = step.turn
            await self._add(*step.before)
            await self._request(turn, step.tools)
            await self._add(step.reply, *step.results)
        await self._read_back(turn + 1)
        stats, outcome = self._memory.stats(), self.outcome
        outcome.stored_texts = len(await self._memory.store.refs())
        outcome.summarizer_calls = stats.summarizer_calls
        outcome.summarizer_input_tokens = stats.summarizer_input_tokens
        outcome.summarizer_output_tokens = stats.summarizer_output_tokens
        for event in self._events:
            outcome.events[event.kind] = outcome.events.get(event.kind, 0) + 1
        outcome.failures = [event.error for event in self._events if event.error is not None]
        return outcome

    async def _add(self, *messages: ChatDict) -> None:
        self._raw.extend(messages)
        await self._memory.add(from_openai(messages))

    async def _request(self, turn: int, tools: tuple[str, ...]) -> None:
        """Ask for the view as an agent does before it calls its model; check, count and show it."""
        view = await self._memory.get_memory()
        outcome = self.outcome
        outcome.requests += 1
        outcome.history_tokens = self._memory.stats().history_tokens
        # Counted anew, not as the memory says.
        outcome.view_tokens = self._memory.counter.count_messages(view)
        outcome.peak_view_tokens = max(outcome.peak_view_tokens, outcome.view_tokens)
        outcome.history_input_tokens += outcome.history_tokens
        outcome.view_input_tokens += outcome.view_tokens
        if found := problems(to_openai(view), takes_thoughts=True):
            outcome.invalid_requests.append(f"turn {turn}: {found[0]}")
        new_events, self._seen_events = self._events[self._seen_events :], len(self._events)
        if self._console is not None:
            _show(self._console, turn, tools, outcome, new_events)

    async def _read_back(self, turn: int) -> None:
        """Let the agent find and read a definition that it read long ago, and compare with the original."""
        view = to_openai(await self._memory.get_memory())
        shown = "\n".join(str(message.get("content")) for message in view)
        gone = [f for f in self._session.findings if not re.search(f.definition.pattern, shown, re.MULTILINE)]
        if not gone:
            return
        wanted = gone[0].definition
        symbol = wanted.symbol
        question = f"One more thing: quote the first lines of {symbol}, exactly as they stand."
        await self._add({"role": "user", "content": question})
        text = "I read it early on; it has left my context since. Searching what was moved out."
        answer = await self._call(turn, text, (GREP_TOOL, {"pattern": wanted.pattern}))
        found = _FIRST_MATCH.search(answer)
        if found is None:
            self.outcome.read_back = ReadBack(symbol, "", [answer], False)
            return
        ref, line = found[1], int(found[2])
        arguments = {"ref": ref, "offset": line, "limit": _READ_BACK_LINES}
        page = await self._call(turn + 1, f"There it is: {ref}, line {line}.", (READ_TOOL, arguments))
        await self._request(turn + 2, ())
        lines = page.split("\n")[1:-1] if is_page(page) else []
        self.outcome.read_back = ReadBack(symbol, ref, lines, stands_in(lines, self._raw))

    async def _call(self, turn: int, text: str, call: Call) -> str:
        """Take one turn in which the assistant calls a read-back tool."""
        name, arguments = call
        await self._request(turn, (name,))
        answer = await self._tools.call(name, arguments)
        id = f"call_{turn}_1"
        await self._add(assistant_message(text, {id: call}), tool_message(id, answer))
        return answer


def stands_in(lines: Sequence[str], history: Sequence[dict[str, Any]]) -> bool:
    """Tell whether `lines` stand, one after the other and unchanged, in one message of the history."""
    wanted = "\n".join(("", *lines, ""))
    return bool(lines) and any(wanted in f"\n{message.get('content')}\n" for message in history)


# What is shown


def _introduce(console: Console, budget: int, turns: int) -> None:
    """Print what a newcomer needs to know."""
    console.print(
        f"A scripted agent explores Python's standard library: {counted(turns, 'turn')}, real tools.\n"
        f"history: all it has said and read. view: what a model would be sent, at most\n"
        f"{budget:,} tokens; where the history outgrows that, older parts are moved out.\n",
        soft_wrap=True,
    )
    if _can_draw(console):
        console.print(f"turn  {'tools':14}   history     view  {'of the budget':14}event and tokens saved")


def _can_draw(console: Console) -> bool:
    return console.file.isatty() and not console.is_dumb_terminal and console.encoding.startswith("utf")


def _show(
    console: Console, turn: int, tools: Sequence[str], now: Outcome, events: Sequence[CompressionEvent]
) -> None:
    """Print a row for each turn; where there is no terminal, the events, and every tenth turn."""
    if _can_draw(console):
        console.print(_row(turn, tools, now, events), no_wrap=True, overflow="ellipsis")
        return
    lines = list(map(_event_line, events))
    if turn % _TURNS_PER_LINE == 0:
        share = 100 * now.view_tokens / now.budget_tokens
        tokens = f"history {now.history_tokens:7,} tokens, view {now.view_tokens:6,}"
        lines.append(f"{tokens} ({share:.0f} % of the budget)")
    for line in lines:
        say(console, f"turn {turn:3}  {line}")


def _event_line(event: CompressionEvent) -> str:
    if event.kind == "failure":
        return f"failure: {one_line(event.error or event.reason)}"
    stored = counted(len(event.refs), "text")
    return f"{event.kind}: {event.tokens_before:,} tokens became {event.tokens_after:,}, {stored} stored"


def _row(turn: int, tools: Sequence[str], now: Outcome, events: Sequence[CompressionEvent]) -> Text:
    """Return tools, tokens, a bar of the budget and the last event, in 80 columns."""
    called = tools[0] if tools else "(answer)"
    if len(tools) > 1:
        called += f" x{len(tools)}" if len(set(tools)) == 1 else f" +{len(tools) - 1}"
    event = ""
    if events:
        last, more = events[-1], f" +{len(events) - 1}" if len(events) > 1 else ""
        event = f"{_VERBS[last.kind]} {last.tokens_before - last.tokens_after:,}{more}"
    share = now.view_tokens / now.budget_tokens
    filled = round(min(share, 1) * _BAR_WIDTH)
    return Text.assemble(
        f"{turn:4}  {called:14}  {now.history_tokens:8,}  {now.view_tokens:7,}  ",
        ("█" * filled, "green" if share < 0.75 else "yellow" if share <= 1 else "red"),
        ("░" * (_BAR_WIDTH - filled), "dim"),
        (f"  {event}", "bold cyan"),
    )


def _print_summary(console: Console, outcome: Outcome, store: str | None) -> None:
    bad = outcome.invalid_requests
    events = [f"{count} {kind} ({_VERBS[kind]})" for kind, count in sorted(outcome.events.items())]
    kept = ", each one tool call away" if outcome.stored_texts else ""
    figures = [
        ("requests", f"{outcome.requests}, invalid: {len(bad)}"),
        ("history", f"{outcome.history_tokens:,} tokens"),
        ("view at the end", _less(outcome.history_tokens, outcome.view_tokens)),
        ("largest view", f"{outcome.peak_view_tokens:,} of {outcome.budget_tokens:,} tokens"),
        ("events", ", ".join(events) or "none"),
        ("texts stored", f"{outcome.stored_texts}{kept}"),
        ("input, all turns", f"{outcome.history_input_tokens:,} tokens had each turn sent the history"),
        ("", _less(outcome.history_input_tokens, outcome.view_input_tokens) + ", with views"),
    ]
    if calls := outcome.summarizer_calls:
        read, written = outcome.summarizer_input_tokens, outcome.summarizer_output_tokens
        figures.append(("notes", f"{calls} calls, {read:,} tokens read, {written:,} written"))
    console.print()
    for label, figure in figures:
        console.print(Text.assemble((f"{label:18}", "bold"), figure), soft_wrap=True)
    console.print()
    _print_read_back(console, outcome.read_back)
    for problem in (*bad[:3], *dict.fromkeys(outcome.failures[:3])):
        say(console, one_line(problem), "red")
    hint = "Your own sessions: context-compressor compress chat.json -o small.json"
    if store is not None and outcome.stored_texts:
        hint = f"The texts are kept: context-compressor grep PATTERN --store {shlex.quote(store)}"
    console.print()
    say(console, hint)


def _less(before: int, after: int) -> str:
    saved = 100 * (before - after) / before if before else 0.0
    return f"{after:,} tokens ({saved:.0f} % less)"


def _print_read_back(console: Console, back: ReadBack | None) -> None:
    if back is None:
        say(console, "Nothing that the agent read has left its view; try more --turns.")
        return
    asked = f"Asked for {back.asked_for}, long out of its view, the agent"
    if not back.ref:
        say(console, one_line(f"{asked} did not find it: {back.lines[0]}"), "red")
        return
    say(console, f"{asked} finds and reads it again")
    say(console, f"({back.ref}):")
    for line in back.lines:
        console.print(Text("  | " + line.expandtabs(4), "dim", no_wrap=True, overflow="ellipsis"))
    if back.is_identical:
        say(console, "Word for word what the agent had read.", "green")
    else:
        say(console, "This is NOT what the agent had read.", "red")
