"""How a memory does as one session grows: what is summarised, what stays known, what a turn takes.

    python -m benchmarks.sessions build/sessions
    python benchmarks/growth.py [--data DIR] [--budget N] [--sizes N ...] [--results OUT]

`DIR` holds recorded sessions as for `savings.py`. Those below 100,000 tokens, in an order drawn with a fixed
seed, are joined end to end to one session, cut between messages, never between calls and their results. It
is replayed once, as a shorter session is the beginning of a longer one; where there is too little for the
largest size, its row is of all there is. Of each size:

- tokens, turns; events: turns whose request does not begin with the one before;
- summariser input: tokens that whoever summarised has read, in all, and per token of the session; to n log n:
  the same to n log2 n, n the tokens of the session, where the first row has 1;
- far known: evidence that no message of the last 12 named, and that the view makes known; up to 100 back:
  only such as one of the last 100 messages named. Joined sessions share identifiers (names of tools, paths,
  tables) that no agent would need from a session before its own, so that over everything far known falls with
  the number of sessions; up to 100 messages back few are such. Late: the same over the last quarter of turns;
- view: tokens of the last request; ms: what a turn takes in the mean, extractive summaries included.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any

from reporting import markdown_table, write_results
from savings import COUNTER, DEFAULT_DATA, percent, read_sessions

from context_compressor.measure.chats import RESULT_ROLES, CachedCounter, Chat
from context_compressor.measure.recording import FAR_MESSAGES, RecordedTurn, Recording
from context_compressor.measure.replay import replay
from context_compressor.measure.results import Turn
from context_compressor.measure.systems import Ours

SIZES = (50_000, 100_000, 200_000, 400_000, 800_000, 1_600_000)
BELOW_TOKENS = 100_000
"""Longer sessions are left out: one of them would be most of a row."""
SEED = 3
NOT_LONG_AGO = 100
"""Messages: evidence named last longer ago may well be of a session before."""
COLUMNS = (
    "tokens", "turns", "events", "summariser input", "per token", "to n log n", "far known",
    "up to 100 back", "late far known", "late up to 100 back", "view", "ms",
)  # fmt: skip


class Unread(Ours):
    """Ours, of which nothing is read back: to search all that is stored would take most of a replay."""

    async def reachable(self, view: Sequence[Chat]) -> Mapping[str, str]:  # noqa: ARG002
        return {}


def draw_sessions(folder: Path) -> Iterator[list[Chat]]:
    """Yield the sessions to join, in an order that the seed decides."""
    sessions = list(read_sessions(folder, "*", set()))
    random.Random(SEED).shuffle(sessions)
    counter = CachedCounter(COUNTER)
    for _, messages in sessions:
        if counter.count_all(messages) < BELOW_TOKENS:
            yield messages


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


def far_known(recorded: Sequence[RecordedTurn], turns: Sequence[Turn], most: float) -> float | None:
    """Return the share known of far evidence that was named last at most so many messages back."""
    every = sum(FAR_MESSAGES < one.distance <= most for turn in recorded for one in turn.evidence)
    missed = sum(one.is_far and one.distance <= most for turn in turns for one in turn.missing)
    return 1 - missed / every if every else None


def measure(recording: Recording, replayed: Sequence[Turn], size: int) -> dict[str, Any] | None:
    """Return the figures of the beginning that has at most `size` tokens; None where no turn is in it."""
    end = cut_at(recording.messages, recording.tokens, size)
    turns = [turn for turn in replayed if turn.index < end]
    if not turns:
        return None
    recorded = recording.turns[: len(turns)]
    late = len(turns) * 3 // 4
    tokens = sum(recording.tokens[:end])
    read = sum(turn.summary_input_tokens for turn in turns)
    seconds = sum(turn.seconds + turn.summary_seconds for turn in turns)
    return {
        "tokens": tokens,
        "turns": len(turns),
        "events": count_events(turns),
        "summary_input_tokens": read,
        "summary_input_per_token": read / tokens,
        "summary_input_per_n_log_n": read / (tokens * log2(tokens)),
        "far_known": far_known(recorded, turns, float("inf")),
        "far_known_not_long_ago": far_known(recorded, turns, NOT_LONG_AGO),
        "late_far_known": far_known(recorded[late:], turns[late:], float("inf")),
        "late_far_known_not_long_ago": far_known(recorded[late:], turns[late:], NOT_LONG_AGO),
        "view_tokens": turns[-1].view_tokens,
        "milliseconds_per_turn": 1000 * seconds / len(turns),
    }


def row_of(figures: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    """Return a row of the table."""
    unit = first["summary_input_per_n_log_n"]
    return [
        *(f"{figures[name]:,}" for name in ("tokens", "turns", "events", "summary_input_tokens")),
        f"{figures['summary_input_per_token']:.3f}",
        f"{figures['summary_input_per_n_log_n'] / unit:.2f}" if unit else "-",
        percent(figures["far_known"]),
        percent(figures["far_known_not_long_ago"]),
        percent(figures["late_far_known"]),
        percent(figures["late_far_known_not_long_ago"]),
        f"{figures['view_tokens']:,}",
        f"{figures['milliseconds_per_turn']:.2f}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of recorded sessions")
    parser.add_argument("--budget", type=int, default=16_000, help="tokens (default 16000)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="tokens of a session, a row each")
    parser.add_argument("--results", type=Path, help="folder to write growth.json and growth.md to")
    options = parser.parse_args()
    began = time.perf_counter()
    largest = max(options.sizes)
    recording = join_sessions(draw_sessions(options.data), largest)
    system = Unread(options.budget, recording.counter)
    turns = asyncio.run(replay(recording, system, budget=options.budget)).turns
    sizes = [size for size in sorted(options.sizes) if size <= recording.total_tokens or size == largest]
    told = [figures for size in sizes if (figures := measure(recording, turns, size))]
    if not told:
        print(
            f"No sessions in {options.data} that would do. `python -m benchmarks.sessions` writes samples.",
            file=sys.stderr,
        )
        return 1
    table = markdown_table(COLUMNS, [row_of(figures, told[0]) for figures in told])
    print(f"Budget {options.budget:,}\n\n{table}\n\n{time.perf_counter() - began:.0f} s")
    if options.results:
        notes = "- tokens" + (__doc__ or "").partition("\n- tokens")[2]
        data = {"budget": options.budget, "sizes": told}
        write_results(options.results, "growth", data, "Growth", f"{table}\n\n{notes}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
