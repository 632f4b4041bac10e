"""How often an agent waits for a model to summarise, where events are prepared while it goes on.

    python -m benchmarks.sessions build/sessions
    python benchmarks/background.py [--data DIR] [--call-seconds 5 --turn-seconds 2] [--results OUT]

`DIR` is that of `benchmarks/savings.py`. The long sessions in it are replayed in real time: before each
recorded assistant message the memory is asked for its view, then the agent takes a turn. Notes are
written by a server on the loopback behind the real SDK, which takes some seconds for each; with 0.25 and
turns of 0.1 the proportions are those of 5 and 2. Fails where more than 5 % of the calls waited.

- calls: of `get_memory`; waited: those that returned only after an answer had come; longest: of these waits,
  in seconds;
- requests: those that the server answered; view: tokens of a view, on average;
- in background: by default; in line: with `background_ratio=None`, every event waits for its answer.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from reporting import make_parser, markdown_table, notes_of, write_results
from savings import DEFAULT_DATA, GROUPS, Session, group_of, read_sessions, report_none

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    OpenAISummarizer,
    Summary,
    SummaryRequest,
    TiktokenCounter,
    from_openai,
)
from context_compressor.summarizers.provider import ROOM_FACTOR, ROOM_TOKENS

COUNTER = TiktokenCounter()
LONG_TOKENS = GROUPS[-2][1]
MOST_THAT_WAIT = 0.05
LINE = "- step {} of part {} went as planned; its outcome stands in the transcript\n"
LINE_TOKENS = 18
COLUMNS = ("sessions", "calls", "waited", "share", "longest", "requests", "view")
WAYS: dict[str, dict[str, Any]] = {"in background": {}, "in line": {"background_ratio": None}}


class SlowModel:
    """A chat-completions server that takes its time, and writes more than half of what it may."""

    def __init__(self, call_seconds: float) -> None:
        self.call_seconds = call_seconds
        self.requests = 0

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests += 1
        number = self.requests
        await asyncio.sleep(self.call_seconds)
        wanted = (body["max_tokens"] - ROOM_TOKENS) / ROOM_FACTOR
        lines = max(1, int(0.6 * wanted / LINE_TOKENS))
        text = "## Progress\n" + "".join(LINE.format(line, number) for line in range(lines))
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"id": "a", "object": "chat.completion", "created": 0, "model": "slow", "choices": [choice]}
        return web.json_response(answer)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve, and yield the address."""
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()


class Watched:
    """The real summariser, and how many of its answers have come."""

    remote = True

    def __init__(self, url: str) -> None:
        self._summarizer = OpenAISummarizer("slow", base_url=url, api_key="none")
        self.came = 0

    async def summarize(self, request: SummaryRequest) -> Summary:
        summary = await self._summarizer.summarize(request)
        self.came += 1
        return summary


@dataclass(slots=True)
class Tally:
    """What the replays of some sessions came to."""

    sessions: int = 0
    calls: int = 0
    waits: list[float] = field(default_factory=list)
    """Seconds of each call that waited."""
    requests: int = 0
    view_tokens: int = 0
    """Of all calls together."""

    @property
    def share(self) -> float:
        """Share of the calls that waited."""
        return len(self.waits) / max(1, self.calls)

    def add(self, other: Tally) -> None:
        self.sessions += other.sessions
        self.calls += other.calls
        self.waits += other.waits
        self.requests += other.requests
        self.view_tokens += other.view_tokens

    def row(self, name: str) -> list[str]:
        return [
            name,
            f"{self.sessions}",
            f"{self.calls:,}",
            f"{len(self.waits):,}",
            f"{self.share:.1%}",
            f"{max(self.waits, default=0):.2f}",
            f"{self.requests:,}",
            f"{self.view_tokens // max(1, self.calls):,}",
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "sessions": self.sessions,
            "calls": self.calls,
            "waited": len(self.waits),
            "longest_wait_seconds": max(self.waits, default=0),
            "requests": self.requests,
            "view_tokens": self.view_tokens // max(1, self.calls),
        }


async def replay(messages: Sequence[dict[str, Any]], summarizer: Watched, options: Any, way: str) -> Tally:
    """Replay a session in real time."""
    config = CompressionConfig(max_total_tokens=options.budget, **WAYS[way])
    tally = Tally(sessions=1)
    async with CompressedMemory(config=config, summarizer=summarizer, counter=COUNTER) as memory:
        new: list[dict[str, Any]] = []
        for message in messages:
            if message["role"] == "assistant":
                await memory.add(from_openai(new))
                new = []
                came, began = summarizer.came, time.perf_counter()
                await memory.get_memory()
                seconds = time.perf_counter() - began
                # An answer may also come while the view is counted, and nobody waits for it then.
                if summarizer.came > came and seconds > options.call_seconds / 20:
                    tally.waits.append(seconds)
                tally.calls += 1
                tally.view_tokens += memory.stats().view_tokens
                await asyncio.sleep(options.turn_seconds)
            new.append(message)
    tally.requests = summarizer.came
    return tally


async def run(sessions: list[tuple[int, Session]], options: Any) -> dict[tuple[str, str], Tally]:
    """Return a tally for each way and group of sessions."""
    slots = asyncio.Semaphore(options.at_once)
    tallies = {(way, group): Tally() for way in WAYS for group, _ in GROUPS}

    async def play(tokens: int, session: Session, way: str, url: str) -> None:
        async with slots:
            tally = await replay(session[1], Watched(url), options, way)
        tallies[way, group_of(tokens)].add(tally)

    async with SlowModel(options.call_seconds).serving() as url:
        await asyncio.gather(*(play(*session, way, url) for session in sessions for way in WAYS))
    return tallies


def parse_options() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of recorded sessions")
    parser.add_argument("--sessions", default="*", help="pattern of file/id, for example 'tau*'")
    parser.add_argument("--min-tokens", type=int, default=LONG_TOKENS, help="of a session, to take part")
    parser.add_argument("--budget", type=int, default=20_000, help="tokens (default 20000)")
    parser.add_argument("--call-seconds", type=float, default=0.25, help="of an answer (default 0.25)")
    parser.add_argument("--turn-seconds", type=float, default=0.1, help="of an agent's turn (default 0.1)")
    parser.add_argument("--at-once", type=int, default=4, help="sessions replayed side by side (default 4)")
    parser.add_argument("--results", type=Path, help="folder for background.json and background.md")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    sessions = [
        (tokens, session)
        for session in read_sessions(options.data, options.sessions, set())
        if (tokens := COUNTER.count_messages(from_openai(session[1]))) >= options.min_tokens
    ]
    if not sessions:
        return report_none(options.data)
    sessions.sort(key=lambda session: -len(session[1][1]))  # or the longest would run on alone
    tallies = asyncio.run(run(sessions, options))
    rows, told, share = [], [], 0.0
    for way in WAYS:
        whole = Tally()
        for group, _ in GROUPS:
            if tallies[way, group].sessions:
                whole.add(tallies[way, group])
                rows.append(tallies[way, group].row(f"{way}, {group}"))
                told.append({"way": way, "group": group, **tallies[way, group].to_dict()})
        rows.append(whole.row(f"{way}, all"))
        told.append({"way": way, "group": "all", **whole.to_dict()})
        if way == "in background":
            share = whole.share
    table = markdown_table(("way", *COLUMNS), rows)
    seconds = f"{options.call_seconds:g} s an answer, {options.turn_seconds:g} s a turn"
    pace = f"Budget {options.budget:,} tokens, {seconds}."
    print(f"{pace}\n\n{table}")
    if options.results:
        data = {
            "budget": options.budget,
            "call_seconds": options.call_seconds,
            "turn_seconds": options.turn_seconds,
            "replays": told,
        }
        text = f"{pace}\n\n{table}\n\n{notes_of(__doc__, 'calls')}"
        write_results(options.results, "background", data, "Background", text)
    if share > MOST_THAT_WAIT:
        print(f"{share:.1%} of the calls waited, {MOST_THAT_WAIT:.0%} may", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
