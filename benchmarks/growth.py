"""How a memory does as one session grows: what is summarised, what stays known, what a turn takes.

    python -m benchmarks.sessions build/sessions
    python benchmarks/growth.py [--data DIR] [--budget N] [--sizes N ...] [--orders N] [--fresh N]
                                [--results OUT]

`DIR` holds recorded sessions as for `savings.py`. Those below 100,000 tokens, in an order drawn with a fixed
seed, are joined end to end to one session, cut between messages, never between calls and their results. It
is replayed once, as a shorter session is the beginning of a longer one; where there is too little for the
largest size, its row is of all there is. Several orders are measured: figures are means, shares are of all
evidence. Of each size:

- tokens, turns; events: turns whose request does not begin with the one before;
- summariser input: tokens that whoever summarised has read, in all, and per token of the session; to n log n:
  the same to n log2 n, n the tokens of the session, where the first row has 1;
- far known: evidence that no message of the last 12 named, and that the view makes known; up to 100 back:
  only such as one of the last 100 messages named. Sessions differ, and those that are joined share
  identifiers (names of tools, paths, tables) that no agent would need from a session before its own, so that
  rows are not of the same evidence;
- at the end, begun late: here they are. Far known of the last turns (half of `--fresh` tokens, which are
  200,000 unless told), and of the same turns by a memory that began `--fresh` tokens before the end; both of
  the evidence that this one was given too. What it knows better is what a long life costs;
- view: tokens of the last request; ms: what a turn takes in the mean, extractive summaries included.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any

from reporting import make_parser, markdown_table, notes_of, write_results
from savings import COUNTER, DEFAULT_DATA, percent, read_sessions, report_none

from context_compressor.measure.chats import RESULT_ROLES, CachedCounter, Chat
from context_compressor.measure.recording import FAR_MESSAGES, Recording
from context_compressor.measure.replay import replay
from context_compressor.measure.results import Turn
from context_compressor.measure.systems import Ours

SIZES = (50_000, 100_000, 200_000, 400_000, 800_000, 1_600_000)
BELOW_TOKENS = 100_000
"""Longer sessions are left out: one of them would be most of a row."""
ORDERS = 6
"""Sessions differ more than sizes do: one order of them tells little."""
FRESH_TOKENS = 200_000
NOT_LONG_AGO = 100
"""Messages: evidence named last longer ago may well be of a session before."""
COLUMNS = (
    "tokens", "turns", "events", "summariser input", "per token", "to n log n", "far known",
    "up to 100 back", "at the end", "begun late", "view", "ms",
)  # fmt: skip


class Unread(Ours):
    """Ours, of which nothing is read back: to search all that is stored would take most of a replay."""

    async def reachable(self, view: Sequence[Chat]) -> Mapping[str, str]:  # noqa: ARG002
        return {}


def draw_sessions(sessions: Sequence[list[Chat]], order: int) -> list[list[Chat]]:
    """Return sessions in an order that its number decides."""
    drawn = list(sessions)
    random.Random(order).shuffle(drawn)
    return drawn


def join_sessions(sessions: Iterable[list[Chat]], size: int) -> Recording:
    """Return sessions end to end, of at most `size` tokens."""
    counter = CachedCounter(COUNTER)
    joined: list[Chat] = []
    tokens: list[int] = []
    for messages in sessions:
        joined += messages
        tokens += map(counter.count, messages)
        if sum(tokens) > size:
            break
    return Recording(joined[: cut_at(joined, tokens, size)], COUNTER, "joined")


def cut_at(messages: Sequence[Chat], tokens: Sequence[int], size: int) -> int:
    """Return how many messages make up at most `size` tokens, calls and their results together."""
    end = total = 0
    for index, (message, more) in enumerate(zip(messages, tokens, strict=True)):
        if message.get("role") not in RESULT_ROLES:
            end = index
        total += more
        if total > size:
            return end
    return len(messages)


def count_events(turns: Sequence[Turn]) -> int:
    """Return how often a request did not begin with the one before, so that it was read anew."""
    return sum(turn.cached_tokens < before.view_tokens for before, turn in pairwise(turns))


def replay_ours(recording: Recording, budget: int) -> list[Turn]:
    return asyncio.run(replay(recording, Unread(budget, recording.counter), budget=budget)).turns


def names_missing(turn: Turn) -> set[str]:
    """Return the evidence that the view of a turn did not make known."""
    return {one.identifier for one in turn.missing}


class Size:
    """The figures of sessions of one size, over all orders."""

    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()
        self.sessions = 0

    def add(self, recording: Recording, replayed: Sequence[Turn], size: int, fresh: int, budget: int) -> None:
        """Count the beginning of a session that has at most `size` tokens, where a turn is in it."""
        end = cut_at(recording.messages, recording.tokens, size)
        turns = [turn for turn in replayed if turn.index < end]
        if not turns:
            return
        self.sessions += 1
        self.sums["tokens"] += sum(recording.tokens[:end])
        self.sums["turns"] += len(turns)
        self.sums["events"] += count_events(turns)
        self.sums["summary_input_tokens"] += sum(turn.summary_input_tokens for turn in turns)
        self.sums["view_tokens"] += turns[-1].view_tokens
        self.sums["seconds"] += sum(turn.seconds + turn.summary_seconds for turn in turns)
        for recorded, turn in zip(recording.turns, turns, strict=False):
            missing = names_missing(turn)
            for one in recorded.evidence:
                if one.distance > FAR_MESSAGES:
                    self._judge("far", one.identifier not in missing)
                    if one.distance <= NOT_LONG_AGO:
                        self._judge("far_not_long_ago", one.identifier not in missing)
        if size > fresh:
            self._compare(recording, turns, end, fresh, budget)

    def _judge(self, name: str, is_known: bool) -> None:
        """Count a piece of evidence."""
        self.sums[f"{name}_evidence"] += 1
        self.sums[f"{name}_known"] += is_known

    def _compare(
        self, recording: Recording, turns: Sequence[Turn], end: int, fresh: int, budget: int
    ) -> None:
        """Count what is known at the end, and what it is by a memory that began late."""
        tokens = recording.tokens[:end]
        began = cut_at(recording.messages, tokens, sum(tokens) - fresh)
        first = cut_at(recording.messages, tokens, sum(tokens) - fresh // 2)
        late = Recording(recording.messages[began:end], COUNTER, "late")
        missing = {turn.index: names_missing(turn) for turn in turns if turn.index >= first}
        for recorded, turn in zip(late.turns, replay_ours(late, budget), strict=True):
            if began + turn.index < first:
                continue
            missing_late = names_missing(turn)
            for one in recorded.evidence:
                if one.distance > FAR_MESSAGES:
                    self._judge("at_the_end", one.identifier not in missing[began + turn.index])
                    self._judge("begun_late", one.identifier not in missing_late)

    def figures(self) -> dict[str, Any]:
        tokens, read = self.sums["tokens"] / self.sessions, self.sums["summary_input_tokens"] / self.sessions
        means = ("tokens", "turns", "events", "summary_input_tokens", "view_tokens")
        shares = ("far", "far_not_long_ago", "at_the_end", "begun_late")
        return {
            **{name: round(self.sums[name] / self.sessions) for name in means},
            "summary_input_per_token": read / tokens,
            "summary_input_per_n_log_n": read / (tokens * log2(tokens)),
            **{f"{name}_known": self._share_known(name) for name in shares},
            **{f"{name}_evidence": self.sums[f"{name}_evidence"] for name in shares},
            "milliseconds_per_turn": 1000 * self.sums["seconds"] / self.sums["turns"],
        }

    def _share_known(self, name: str) -> float | None:
        evidence = self.sums[f"{name}_evidence"]
        return self.sums[f"{name}_known"] / evidence if evidence else None


def row_of(figures: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    """Return a row of the table."""
    unit = first["summary_input_per_n_log_n"]
    return [
        *(f"{figures[name]:,}" for name in ("tokens", "turns", "events", "summary_input_tokens")),
        f"{figures['summary_input_per_token']:.3f}",
        f"{figures['summary_input_per_n_log_n'] / unit:.2f}" if unit else "-",
        percent(figures["far_known"]),
        percent(figures["far_not_long_ago_known"]),
        percent(figures["at_the_end_known"]),
        percent(figures["begun_late_known"]),
        f"{figures['view_tokens']:,}",
        f"{figures['milliseconds_per_turn']:.2f}",
    ]


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of recorded sessions")
    parser.add_argument("--budget", type=int, default=16_000, help="tokens (default 16000)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="tokens of a session, a row each")
    parser.add_argument("--orders", type=int, default=ORDERS, help=f"how many are drawn (default {ORDERS})")
    parser.add_argument(
        "--fresh", type=int, default=FRESH_TOKENS, help=f"tokens of what began late (default {FRESH_TOKENS})"
    )
    parser.add_argument("--results", type=Path, help="folder to write growth.json and growth.md to")
    options = parser.parse_args()
    began = time.perf_counter()
    counter = CachedCounter(COUNTER)
    sessions = [
        messages
        for _, messages in read_sessions(options.data, "*", set())
        if counter.count_all(messages) < BELOW_TOKENS
    ]
    sizes = {size: Size() for size in sorted(options.sizes)}
    for order in range(options.orders):
        recording = join_sessions(draw_sessions(sessions, order), max(sizes))
        turns = replay_ours(recording, options.budget)
        for size, told in sizes.items():
            if size <= recording.total_tokens or size == max(sizes):
                told.add(recording, turns, size, options.fresh, options.budget)
    rows = [size.figures() for size in sizes.values() if size.sessions]
    if not rows:
        return report_none(options.data)
    table = markdown_table(COLUMNS, [row_of(figures, rows[0]) for figures in rows])
    head = f"Budget {options.budget:,}, {options.orders} orders, begun late: {options.fresh:,} tokens"
    print(f"{head}\n\n{table}\n\n{time.perf_counter() - began:.0f} s")
    if options.results:
        notes = notes_of(__doc__, "tokens")
        data = {"budget": options.budget, "orders": options.orders, "fresh": options.fresh, "sizes": rows}
        write_results(options.results, "growth", data, "Growth", f"{head}\n\n{table}\n\n{notes}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
