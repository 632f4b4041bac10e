"""How it grows: many sessions at once in one process, and one session with a long history.

    python benchmarks/scale.py [--sessions N ...] [--messages N ...] [--turns N] [--results DIR]

Each case runs in a process of its own, with the default summariser and texts stored in files; each turn adds
a call and its result, and asks for the view within 16,000 tokens. Sessions take turns one by one. Of each
case:

- turns and events a second; MB of texts in the histories, and by how much the process has grown by
  the end, the histories and everything about them, per session;
- longest hold: the longest that one step keeps the event loop; round: the longest that the loop takes to come
  back to a task, so what all sessions do together that are ready at once;
- late: microseconds of a turn, by the mean of the last tenth of the turns, events included.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import tempfile
import time
from asyncio import events
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from overhead import LoopWatch, grouped, make_session
from reporting import make_parser, markdown_table, notes_of, run_apart, write_results

from context_compressor import CompressedMemory, CompressionConfig, FileOffloadStore, Msg, from_openai

BUDGET = 16_000
SESSIONS = (1, 10, 100, 1_000)
MESSAGES = (1_000, 10_000, 100_000)
COLUMNS = (
    "case", "seconds", "turns/s", "events", "events/s", "MB of text", "MB per session", "longest hold, ms",
    "round, ms", "late turn, µs",
)  # fmt: skip


class Holds:
    """Measure how long single steps keep the event loop."""

    def __init__(self) -> None:
        self.longest = 0.0

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Time every callback that a loop runs."""
        run = events.Handle._run

        def timed(handle: events.Handle) -> None:
            began = time.perf_counter()
            run(handle)
            self.longest = max(self.longest, time.perf_counter() - began)

        events.Handle._run = timed  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            events.Handle._run = run  # type: ignore[method-assign]


def used_megabytes() -> float:
    """Return what the process holds of memory; where the system does not tell, what it held at its peak."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize() / (1024 * 1024)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def read_turns(turns: int, seed: int) -> tuple[list[list[Msg]], int]:
    """Return a session's messages turn by turn, and the bytes of their texts."""
    session = make_session(turns, seed)
    size = sum(len(json.dumps(message)) for message in session)
    return grouped(session), size


class Case:
    """Sessions side by side.

    Args:
        sessions: how many.
        turns: how many each takes.
        folder: where texts go.
    """

    def __init__(self, sessions: int, turns: int, folder: str) -> None:
        self.turns = sessions * (turns + 1)
        self.memories = [self._make_memory(number, folder) for number in range(sessions)]
        read = [read_turns(turns, seed) for seed in range(sessions)]
        self.waiting = [groups for groups, _ in read]
        self.text_megabytes = sum(size for _, size in read) / 1e6
        self.taken = 0
        self.late_seconds = 0.0
        self.late_turns = 0

    def _make_memory(self, number: int, folder: str) -> CompressedMemory:
        store = FileOffloadStore(folder, namespace=f"session-{number}")
        return CompressedMemory(config=CompressionConfig(max_total_tokens=BUDGET), store=store)

    async def run(self) -> None:
        """Let all sessions take their turns."""
        await asyncio.gather(*(self._play(number) for number in range(len(self.memories))))

    async def _play(self, number: int) -> None:
        memory, groups = self.memories[number], self.waiting[number]
        groups.reverse()
        while groups:
            is_late = self.taken >= self.turns * 0.9
            began = time.perf_counter()
            await memory.add(groups.pop())
            await memory.get_memory()
            # With one session only, or it would be the time of the others, too.
            if is_late and len(self.memories) == 1:
                self.late_seconds += time.perf_counter() - began
                self.late_turns += 1
            self.taken += 1
            await asyncio.sleep(0)


def run_case(sessions: int, turns: int) -> dict[str, Any]:
    """Return the figures of a case."""
    holds = Holds()

    async def measured() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            # The vocabulary is read once per process, whatever is counted.
            first = CompressedMemory()
            await first.add(from_openai([{"role": "user", "content": "hello"}]))
            await first.get_memory()
            gc.collect()
            before = used_megabytes()
            case = Case(sessions, turns, folder)
            async with LoopWatch() as rounds:
                holds.longest = rounds.longest = 0.0  # making the case is no part of it
                began = time.perf_counter()
                await case.run()
                seconds = time.perf_counter() - began
            longest_hold_seconds = holds.longest  # what follows is no part of it
            gc.collect()
            used = used_megabytes() - before
            happened = sum(memory.stats().events for memory in case.memories)
            return {
                "sessions": sessions,
                "messages_per_session": 2 * (turns + 1),
                "seconds": seconds,
                "turns_per_second": case.turns / seconds,
                "events": happened,
                "events_per_second": happened / seconds,
                "text_megabytes": case.text_megabytes,
                "megabytes_per_session": used / sessions,
                "longest_hold_seconds": longest_hold_seconds,
                "longest_round_seconds": rounds.longest,
                "late_turn_microseconds": case.late_seconds / case.late_turns * 1e6
                if case.late_turns
                else None,
            }

    with holds.watch():
        return asyncio.run(measured())


def row_of(figures: dict[str, Any]) -> list[str]:
    late = figures["late_turn_microseconds"]
    messages = figures["messages_per_session"]
    count = figures["sessions"]
    return [
        f"{count:,} session{'s' if count > 1 else ''}, {messages:,} messages each",
        f"{figures['seconds']:.2f}",
        f"{figures['turns_per_second']:,.0f}",
        f"{figures['events']:,}",
        f"{figures['events_per_second']:,.0f}",
        f"{figures['text_megabytes']:,.1f}",
        f"{figures['megabytes_per_session']:,.2f}",
        f"{1000 * figures['longest_hold_seconds']:.0f}",
        f"{1000 * figures['longest_round_seconds']:.0f}",
        "-" if late is None else f"{late:.0f}",
    ]


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--sessions", type=int, nargs="*", default=SESSIONS, help="at once, a case each")
    parser.add_argument("--turns", type=int, default=40, help="of each of them (default 40)")
    parser.add_argument(
        "--messages", type=int, nargs="*", default=MESSAGES, help="of one session, a case each"
    )
    parser.add_argument("--results", type=Path, help="folder to write scale.json and scale.md to")
    options = parser.parse_args()
    cases = [(sessions, options.turns) for sessions in options.sessions]
    cases += [(1, messages // 2 - 1) for messages in options.messages]
    told = []
    for sessions, turns in cases:
        figures = run_apart(run_case, sessions, turns)
        told.append(figures)
        name, *cells = row_of(figures)
        print(f"{name}: {', '.join(f'{what} {cell}' for what, cell in zip(COLUMNS[1:], cells, strict=True))}")
    if options.results:
        notes = notes_of(__doc__, "turns")
        text = f"{markdown_table(COLUMNS, list(map(row_of, told)))}\n\n{notes}"
        write_results(options.results, "scale", {"budget": BUDGET, "cases": told}, "Scale", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
