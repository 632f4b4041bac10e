"""How a memory does as one session grows: what is read for notes, what is still told, what a turn takes.

    python -m benchmarks.sessions build/sessions
    python benchmarks/growth.py [--data DIR] [--budget N] [--sizes N ...] [--orders N] [--every N]
                                [--results OUT]
    python benchmarks/growth.py --life 100000 [--results OUT]

`DIR` holds recorded sessions as for `savings.py`. Those below 100,000 tokens, in an order drawn with a fixed
seed, are joined end to end to one session, cut between messages, never between calls and their results. Every
10,000 tokens (`--every`) the user says something to be kept in mind, a rule, an appointment or a decision; at
the end of each size all of it is asked for. The session is replayed once, as a shorter one is the beginning
of a longer one; where there is too little for the largest size, its row is of all there is. Several orders
are measured: figures are means, shares are of all facts. Of each size:

- tokens, turns; events: turns whose request does not begin with the one before;
- read for notes: tokens that whoever wrote them has read, in all, and per token of the session; to n log n:
  the same to n log2 n, n the tokens of the session, where the first row has 1;
- told: of how many facts a passage of the last view holds the keys, by how many tokens before they were said;
- view: tokens of the last request; ms: what a turn takes in the mean, notes by rules included.

With `--life` a long life is measured instead: so many messages of some 120 words in a budget of 4,000
tokens, notes by a scripted model, texts in files. Told are the events, the size of the saved state as
JSON, in all and without the messages themselves, the most memory that the process took, and how long it takes
another to resume: reading the state, and the first view.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any, NamedTuple

from reporting import make_parser, markdown_table, notes_of, percent, run_apart, write_results
from savings import COUNTER, DEFAULT_DATA, read_sessions, report_none

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    FileOffloadStore,
    Summary,
    SummaryRequest,
    from_openai,
)
from context_compressor.lab.measure import (
    RESULT_ROLES,
    CachedCounter,
    Chat,
    Ours,
    Probe,
    Recording,
    Turn,
    replay,
)

SIZES = (50_000, 100_000, 200_000, 400_000, 800_000, 1_600_000)
BELOW_TOKENS = 100_000
"""Longer sessions are left out: one of them would be most of a row."""
ORDERS = 6
"""Sessions differ more than sizes do: one order of them tells little."""
FACT_TOKENS = 10_000
"""How far apart facts are planted."""
LIFE_TOKENS = 4_000
"""Budget of a long life: small, so that there are many events."""
DISTANCES = {"below 50,000": 50_000, "below 200,000": 200_000, "further": sys.maxsize}
"""Tokens between a fact and the end: what a row of the table is called, and where it ends."""
NAMES = ("Adler", "Birke", "Ceder", "Delfin", "Eiche", "Falke", "Ginster", "Heron", "Iltis", "Krähe")
COLUMNS = ("tokens", "turns", "events", "read for notes", "per token", "to n log n", "told",
           *(f"told {name}" for name in DISTANCES), "view", "ms")  # fmt: skip


class Fact(NamedTuple):
    """Something that the user says once."""

    kind: str
    text: str
    question: str
    keys: tuple[tuple[str, ...], ...]


def make_fact(number: int, rng: random.Random) -> Fact:
    """Return the fact of a number: no two are about the same thing."""
    name, code = f"{NAMES[number % len(NAMES)]}-{number}", f"{rng.randint(100, 999)}{rng.choice('KMRTX')}"
    kinds = (
        ("constraint", f"Never unload at berth {name} above {code} tonnes.", f"The limit of berth {name}?"),
        ("value", f"The pilot of {name} comes at dock {code}.", f"Where does the pilot of {name} come?"),
        ("decision", f"We chose {name} for line {code}, since it is cheapest.", f"The line of {name}?"),
    )
    kind, text, question = kinds[number % len(kinds)]
    return Fact(kind, text, question, ((name,), (code,)))


class Joined(NamedTuple):
    """Sessions end to end, and what was planted in them."""

    recording: Recording
    planted: list[tuple[int, Fact]]
    """Each fact with the index of its message."""


def draw_sessions(sessions: Sequence[list[Chat]], order: int) -> list[list[Chat]]:
    """Return sessions in an order that its number decides."""
    drawn = list(sessions)
    random.Random(order).shuffle(drawn)
    return drawn


def join_sessions(sessions: Iterable[list[Chat]], size: int, every: int, seed: int = 0) -> Joined:
    """Return sessions end to end, of at most `size` tokens, a fact planted after each `every` of them."""
    counter, rng = CachedCounter(COUNTER), random.Random(seed)
    messages: list[Chat] = []
    planted: list[tuple[int, Fact]] = []
    tokens = 0
    for message in (message for session in sessions for message in session):
        if tokens >= every * (len(planted) + 1) and message.get("role") not in RESULT_ROLES:
            fact = make_fact(len(planted), rng)
            planted.append((len(messages), fact))
            messages.append({"role": "user", "content": fact.text})
            tokens += counter.count(messages[-1])
        messages.append(message)
        tokens += counter.count(message)
        if tokens > size:
            break
    recording = Recording(messages, COUNTER, "joined")
    end = cut_at(recording, size)
    planted = [(at, fact) for at, fact in planted if at < end]
    return Joined(Recording(messages[:end], COUNTER, "joined"), planted)


def cut_at(recording: Recording, size: int) -> int:
    """Return how many messages make up at most `size` tokens, calls and their results together."""
    end = total = 0
    for index, (message, more) in enumerate(zip(recording.messages, recording.tokens, strict=True)):
        if message.get("role") not in RESULT_ROLES:
            end = index
        total += more
        if total > size:
            return end
    return len(recording.messages)


def ask_at(joined: Joined, ends: Iterable[int]) -> list[Probe]:
    """Return the probes of all facts that were said by each of some places."""
    return [
        Probe(at=end, kind=fact.kind, question=fact.question, answer=fact.text, keys=fact.keys)
        for end in sorted(set(ends))
        for at, fact in joined.planted
        if at < end
    ]


def count_events(turns: Sequence[Turn]) -> int:
    """Return how often a request did not begin with the one before, so that it was read anew."""
    return sum(turn.cached_tokens < before.view_tokens for before, turn in pairwise(turns))


class Size:
    """The figures of sessions of one size, over all orders."""

    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()
        self.sessions = 0

    def add(self, recording: Recording, end: int, turns: Sequence[Turn]) -> None:
        """Count the turns of a session's first `end` messages."""
        self.sessions += 1
        self.sums["tokens"] += sum(recording.tokens[:end])
        self.sums["turns"] += len(turns)
        self.sums["events"] += count_events(turns)
        self.sums["summary_input_tokens"] += sum(turn.summary_input_tokens for turn in turns)
        self.sums["view_tokens"] += turns[-1].view_tokens
        self.sums["seconds"] += sum(turn.seconds + turn.summary_seconds for turn in turns)

    def judge(self, distance: int, is_told: bool) -> None:
        """Count a fact that was said `distance` tokens before the end."""
        name = next(name for name, most in DISTANCES.items() if distance < most)
        for group in ("all", name):
            self.sums[f"asked {group}"] += 1
            self.sums[f"told {group}"] += is_told

    def figures(self) -> dict[str, Any]:
        tokens, read = self.sums["tokens"] / self.sessions, self.sums["summary_input_tokens"] / self.sessions
        means = ("tokens", "turns", "events", "summary_input_tokens", "view_tokens")
        groups = ("all", *DISTANCES)
        return {
            **{name: round(self.sums[name] / self.sessions) for name in means},
            "summary_input_per_token": read / tokens,
            "summary_input_per_n_log_n": read / (tokens * log2(tokens)),
            "told": {group: self._share_told(group) for group in groups},
            "facts": {group: self.sums[f"asked {group}"] for group in groups},
            "milliseconds_per_turn": 1000 * self.sums["seconds"] / self.sums["turns"],
        }

    def _share_told(self, group: str) -> float | None:
        asked = self.sums[f"asked {group}"]
        return self.sums[f"told {group}"] / asked if asked else None


def measure_order(
    sessions: Sequence[list[Chat]], order: int, sizes: Mapping[int, Size], budget: int, every: int
) -> None:
    """Add the figures of sessions joined in one order to those of each size that they reach."""
    joined = join_sessions(draw_sessions(sessions, order), max(sizes), every, order)
    recording = joined.recording
    ends = {
        size: cut_at(recording, size)
        for size in sizes
        if size <= recording.total_tokens or size == max(sizes)
    }
    recording.probes = tuple(ask_at(joined, ends.values()))
    done = asyncio.run(replay(recording, Ours(budget, recording.counter), budget=budget))
    said_at = {fact.text: at for at, fact in joined.planted}
    for size, end in ends.items():
        turns = [turn for turn in done.turns if turn.index < end]
        if turns:
            sizes[size].add(recording, end, turns)
            for one in done.asked:
                if one.probe.at == end:
                    distance = sum(recording.tokens[said_at[one.probe.answer] : end])
                    sizes[size].judge(distance, one.is_told)


def row_of(figures: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    """Return a row of the table."""
    unit = first["summary_input_per_n_log_n"]
    return [
        *(f"{figures[name]:,}" for name in ("tokens", "turns", "events", "summary_input_tokens")),
        f"{figures['summary_input_per_token']:.3f}",
        f"{figures['summary_input_per_n_log_n'] / unit:.2f}" if unit else "-",
        *(percent(figures["told"][group]) for group in ("all", *DISTANCES)),
        f"{figures['view_tokens']:,}",
        f"{figures['milliseconds_per_turn']:.2f}",
    ]


class Scripted:
    """A model that answers at once, with 60 words."""

    remote = True

    def __init__(self) -> None:
        self.calls = 0

    async def summarize(self, request: SummaryRequest) -> Summary:  # noqa: ARG002  # the protocol's
        self.calls += 1
        said = " ".join(f"step {self.calls} of {place}" for place in range(15))
        return Summary(f"## Goal\nThe work goes on.\n\n## Done\n{said}")


def long_memory(folder: str) -> CompressedMemory:
    config = CompressionConfig(max_total_tokens=LIFE_TOKENS, background_ratio=None)
    return CompressedMemory(None, config, FileOffloadStore(folder), Scripted())


async def live(messages: int, folder: str) -> dict[str, Any]:
    """Return the figures of a memory that so many messages went through; its state stays in the folder."""
    memory, rng, began = long_memory(folder), random.Random(0), time.perf_counter()
    for number in range(0, messages, 2):
        words = [" ".join(f"{rng.choice(NAMES)}{rng.randint(0, 999)}" for _ in range(40)) for _ in range(2)]
        asked = {"role": "user", "content": f"Question {number}: {words[0]}"}
        await memory.add(from_openai([asked, {"role": "assistant", "content": f"Answer: {words[1]}"}]))
        await memory.get_memory()
    seconds, state = time.perf_counter() - began, memory.state_dict()
    text = json.dumps(state)
    (Path(folder) / "state.json").write_text(text)
    own = len(text) - len(json.dumps(state["content"]))
    ledger = memory._tracker.state.ledger
    return {
        "messages": messages,
        "events": memory.stats().events,
        "parts": sum(1 for _ in ledger.segments()),
        "seconds": seconds,
        "state_bytes": len(text),
        "state_bytes_beside_messages": own,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


async def resume(folder: str) -> dict[str, Any]:
    """Return how long it takes to go on with the state in a folder, and what that takes."""
    memory, began = long_memory(folder), time.perf_counter()
    memory.load_state_dict(json.loads((Path(folder) / "state.json").read_text()))
    await memory.get_memory()
    return {
        "resume_seconds": time.perf_counter() - began,
        "resume_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def run_live(messages: int, folder: str) -> dict[str, Any]:
    return asyncio.run(live(messages, folder))


def run_resume(folder: str) -> dict[str, Any]:
    return asyncio.run(resume(folder))


def measure_life(messages: int, results: Path | None) -> int:
    """Measure a long life, the memory and the one that resumes in processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        figures = {**run_apart(run_live, messages, folder), **run_apart(run_resume, folder)}
    rows = []
    for name, value in figures.items():
        told = f"{value / 1e6:.1f} MB" if name.endswith("bytes") or "_bytes_" in name else f"{value:,.0f}"
        rows.append([name.replace("_bytes", "").replace("_", " "), told])
    table = markdown_table(("figure", "value"), rows)
    print(table)
    if results:
        write_results(results, "life", figures, "A long life", table)
    return 0


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of recorded sessions")
    parser.add_argument("--budget", type=int, default=16_000, help="tokens (default 16000)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="tokens of a session, a row each")
    parser.add_argument("--orders", type=int, default=ORDERS, help=f"how many are drawn (default {ORDERS})")
    parser.add_argument("--every", type=int, default=FACT_TOKENS, help="tokens between facts")
    parser.add_argument("--life", type=int, help="measure a long life of so many messages instead")
    parser.add_argument("--results", type=Path, help="folder to write growth.json and growth.md to")
    options = parser.parse_args()
    if options.life:
        return measure_life(options.life, options.results)
    began = time.perf_counter()
    counter = CachedCounter(COUNTER)
    sessions = [
        session.messages
        for session in read_sessions(options.data, "*", set())
        if counter.count_all(session.messages) < BELOW_TOKENS
    ]
    if not sessions:
        return report_none(options.data)
    sizes = {size: Size() for size in sorted(options.sizes)}
    for order in range(options.orders):
        measure_order(sessions, order, sizes, options.budget, options.every)
    rows = [size.figures() for size in sizes.values() if size.sessions]
    table = markdown_table(COLUMNS, [row_of(figures, rows[0]) for figures in rows])
    head = f"Budget {options.budget:,}, {options.orders} orders, a fact every {options.every:,} tokens"
    print(f"{head}\n\n{table}\n\n{time.perf_counter() - began:.0f} s")
    if options.results:
        notes = notes_of(__doc__, "tokens")
        data = {"budget": options.budget, "orders": options.orders, "every": options.every, "sizes": rows}
        write_results(options.results, "growth", data, "Growth", f"{head}\n\n{table}\n\n{notes}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
