"""`demo`: a scripted agent's session through a compressed memory, watched and checked."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from tempfile import TemporaryDirectory

from context_compressor.cli.demo_agent import Call, ChatDict, ScriptedSession, assistant_message, tool_message
from context_compressor.cli.demo_display import (
    Display,
    Outcome,
    ReadBack,
    Row,
    first_found,
    make_display,
    page_lines,
    print_summary,
    stands_in,
)
from context_compressor.cli.options import (
    DONE,
    NO,
    CommandError,
    SummarizerKind,
    make_config,
    make_summarizer,
)
from context_compressor.cli.output import check_folder, check_stdout, make_console
from context_compressor.errors import ContextOverflowError
from context_compressor.events import CompressionEvent
from context_compressor.measure import RequestChecker
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.messages.chat import from_openai, to_openai
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.guide import GREP_TOOL, READ_TOOL
from context_compressor.tools.tools import OffloadTools

NAMESPACE = "demo"
_READ_BACK_LINES = 8


class DemoRun:
    """Drive the scripted agent through a memory, request by request; `events` is what its hook appends to."""

    def __init__(
        self,
        memory: CompressedMemory,
        session: ScriptedSession,
        display: Display,
        events: Sequence[CompressionEvent],
    ) -> None:
        self._memory, self._session, self._display = memory, session, display
        self._tools = OffloadTools(memory)
        self._raw: list[ChatDict] = []
        self._events = events
        self._seen_events = 0
        self._checker = RequestChecker()
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
        stats = self._memory.stats()
        outcome = self.outcome
        outcome.stored_texts = len(await self._memory.store.refs())
        outcome.summarizer_calls = stats.summarizer_calls
        outcome.summarizer_input_tokens = stats.summarizer_input_tokens
        outcome.summarizer_output_tokens = stats.summarizer_output_tokens
        for event in self._events:
            outcome.events[event.kind] = outcome.events.get(event.kind, 0) + 1
            if event.error is not None:
                outcome.failures.append(event.error)
        return outcome

    async def _add(self, *messages: ChatDict) -> None:
        self._raw.extend(messages)
        await self._memory.add(from_openai(messages))

    async def _request(self, turn: int, tools: tuple[str, ...]) -> list[ChatDict]:
        """Ask for the view as an agent does before it calls its model; check and count it."""
        view = await self._memory.get_memory()
        wire = to_openai(view)
        outcome = self.outcome
        outcome.requests += 1
        outcome.history_tokens = self._memory.stats().history_tokens
        # Counted anew, not as the memory says.
        outcome.view_tokens = self._memory.counter.count_messages(view)
        outcome.peak_view_tokens = max(outcome.peak_view_tokens, outcome.view_tokens)
        outcome.history_input_tokens += outcome.history_tokens
        outcome.view_input_tokens += outcome.view_tokens
        if problems := self._checker.check(wire):
            outcome.invalid_requests.append(f"turn {turn}: {problems[0]}")
        new_events, self._seen_events = tuple(self._events[self._seen_events :]), len(self._events)
        self._display.show(Row(turn, tools, outcome.history_tokens, outcome.view_tokens, new_events))
        return wire

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
        found = first_found(answer)
        if found is None:
            self.outcome.read_back = ReadBack(symbol, "", [answer], False)
            return
        ref, line = found
        arguments = {"ref": ref, "offset": line, "limit": _READ_BACK_LINES}
        page = await self._call(turn + 1, f"There it is: {ref}, line {line}.", (READ_TOOL, arguments))
        await self._request(turn + 2, ())
        lines = page_lines(page)
        self.outcome.read_back = ReadBack(symbol, ref, lines, stands_in(lines, self._raw))

    async def _call(self, turn: int, text: str, call: Call) -> str:
        """Take one turn in which the assistant calls a read-back tool."""
        name, arguments = call
        await self._request(turn, (name,))
        answer = await self._tools.call(name, arguments)
        id = f"call_{turn}_1"
        await self._add(assistant_message(text, {id: call}), tool_message(id, answer))
        return answer


def run_demo(
    *,
    budget: int,
    turns: int,
    keep_recent: int | None,
    who: SummarizerKind,
    model: str | None,
    base_url: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Run the demo, show it, report; return the exit code. Options are as given.

    Raises:
        CommandError: an option is wrong, the budget too small, `store` keeps no texts, or there is no
            library to explore.
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
    console = make_console()
    display = Display() if as_json else make_display(console, budget, turns)
    folder = TemporaryDirectory(prefix="context-compressor-") if store is None else nullcontext(store)
    with folder as directory, display:
        events: list[CompressionEvent] = []
        texts = FileOffloadStore(directory, NAMESPACE)
        memory = CompressedMemory(config=config, store=texts, summarizer=summarizer, on_event=events.append)
        try:
            outcome = asyncio.run(DemoRun(memory, session, display, events).run())
        except ContextOverflowError as error:
            raise CommandError(str(error).replace("max_total_tokens", "--budget"), NO) from None
    if as_json:
        print(json.dumps({**asdict(outcome), "ok": outcome.is_good}, indent=2))
    else:
        print_summary(console, outcome, store)
    for failure in outcome.failures:
        # The session went on, as an agent's would; but texts that were to be kept are not.
        if store is not None and failure.startswith("Offload"):
            raise CommandError(f"--store {store}: {failure}")
    return DONE if outcome.is_good else NO
