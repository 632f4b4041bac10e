"""What the wrapper costs beside counting, as ratios within one run.

    python benchmarks/overhead.py [--results DIR]
    python benchmarks/overhead.py --profile
    python benchmarks/overhead.py --memory

Five ratios, each the median of several runs:

- `add` and `get_memory` over a session of 1,000 turns, with a summariser that returns a constant, to a bare
  tiktoken loop over the same texts;
- `get_memory` without an event on a view of 1,000 messages, to `list(view)`;
- `get_memory` with 100,000 messages in history to the same with 1,000, at the same view size, with events;
- `delete` of one message for which the notes speak, of 1,500, to counting these once;
- the longest that other tasks of the event loop had to wait during such a session, to the longest
  `get_memory`.

`--profile` and `--memory` show instead where the time and the memory of such a session go: the first entries
of cProfile, and of tracemalloc at the session's end.
"""

from __future__ import annotations

import asyncio
import base64
import cProfile
import gc
import json
import pstats
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiktoken
from reporting import make_parser, markdown_table, write_results

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    Msg,
    Summary,
    SummaryRequest,
    TiktokenCounter,
    from_openai,
)
from context_compressor.messages.parts import plain_texts
from context_compressor.tokens.vocabularies import find_qwen_file

LIMITS = {"session": 6.0, "still": 20.0, "history": 2.0}
"""A session takes 5 to 5.5 times what counting it takes, on two quiet cores. A quarter of that is counting
what comes and what is written. In the rest no place stands out: each message is read, copied twice, paired,
sized and made an item, and each of the 61 events reads the view, hashes and writes."""


class Constant:
    """A summariser that costs nothing, so that what remains is the wrapper."""

    remote = False

    async def summarize(self, request: SummaryRequest) -> Summary:  # noqa: ARG002  # the protocol's
        return Summary(text="The work went on as planned; file names and results are in the transcript.")


RESULT_SIZES = (
    (4503, 5, 100),
    (3901, 100, 500),
    (771, 500, 1_000),
    (309, 1_000, 2_000),
    (231, 2_000, 5_000),
    (81, 5_000, 10_000),
    (29, 10_000, 25_000),
    (17, 25_000, 60_000),
)
"""How many of 9,842 tool results in 449 recorded agent sessions have how many tokens (from, to)."""
TOKENS_PER_LINE = 16
PAUSE_SECONDS = 0.0005
"""Between two looks at whether the event loop is free."""


class LoopWatch:
    """Measure how long the event loop is held, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LoopWatch:
        self._task = asyncio.create_task(self._watch())
        await asyncio.sleep(0.01)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()

    async def _watch(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            now = time.perf_counter()
            self.longest = max(self.longest, now - last - PAUSE_SECONDS)
            last = now


def make_session(turns: int, seed: int = 7) -> list[dict[str, Any]]:
    """Return chat dicts of an agent that reads code: a call and its result per turn.

    Results are sized as recorded ones; with some 170 tokens of its own per turn the agent says as much as
    recorded ones do, which makes 300 tokens per message.
    """
    rng = random.Random(seed)
    verbs, nouns = ("parse", "load", "merge", "check", "write"), ("file", "node", "key", "row")
    words = [f"{verb}_{noun}" for verb in verbs for noun in nouns]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful engineer."},
        {"role": "user", "content": "Find out why the nightly import loses rows, and mend it."},
    ]
    for turn in range(turns):
        path = f"src/{rng.choice(words)}_{turn % 97}.py"
        call = {
            "id": f"call_{turn}",
            "type": "function",
            "function": {"name": "read_file", "arguments": json.dumps({"path": path, "offset": turn})},
        }
        _, low, high = rng.choices(RESULT_SIZES, [count for count, _, _ in RESULT_SIZES])[0]
        lines = [
            f"    {rng.choice(words)} = {rng.choice(words)}({rng.choice(words)}, {rng.randint(1, 9999)})"
            for _ in range(max(1, rng.randint(low, high) // TOKENS_PER_LINE))
        ]
        thoughts = [
            f"{rng.choice(words)} looks odd: {rng.choice(words)} returns {rng.randint(1, 99)} there, not 0."
            for _ in range(rng.choice((1, 4, 8, 16)))
        ]
        text = f"Step {turn}: {' '.join(thoughts)} So {path} comes next."
        messages.append({"role": "assistant", "content": text, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": "\n".join(lines)})
    return messages


def texts_of(messages: list[dict[str, Any]]) -> list[str]:
    """Return every text that a counter has to see."""
    found: list[str] = []
    for message in messages:
        found.append(message.get("content") or "")
        found += [call["function"]["arguments"] for call in message.get("tool_calls", [])]
    return found


def seconds_of(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def bare_encoding() -> tiktoken.Encoding:
    """Return the default vocabulary as tiktoken's own object, with nothing of ours around it."""
    from dashscope.tokenizers.qwen_tokenizer import PAT_STR

    lines = (line.split() for line in find_qwen_file().read_bytes().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    return tiktoken.Encoding("qwen", pat_str=PAT_STR, mergeable_ranks=ranks, special_tokens={})


def grouped(session: list[dict[str, Any]]) -> list[list[Msg]]:
    """Return the messages of a session turn by turn."""
    read = from_openai(session)
    return [read[:2], *(read[i : i + 2] for i in range(2, len(read), 2))]


async def play(groups: list[list[Msg]], budget: int) -> CompressedMemory:
    """Take a session's turns; return the memory at its end."""
    memory = CompressedMemory(
        config=CompressionConfig(max_total_tokens=budget), summarizer=Constant(), counter=TiktokenCounter()
    )
    for group in groups:
        await memory.add(group)
        await memory.get_memory()
    return memory


def show_profile(turns: int, budget: int, top: int) -> None:
    """Print what a session spends its time on."""
    groups = grouped(make_session(turns))
    asyncio.run(play(groups, budget))  # the vocabulary is read once
    profile = cProfile.Profile()
    profile.enable()
    asyncio.run(play(groups, budget))
    profile.disable()
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(top)


def show_memory(turns: int, budget: int, top: int) -> None:
    """Print what holds memory at a session's end, its messages included."""
    asyncio.run(play(grouped(make_session(2)), budget))
    tracemalloc.start()
    memory = asyncio.run(play(grouped(make_session(turns)), budget))
    gc.collect()
    kept, peak = tracemalloc.get_traced_memory()
    found = tracemalloc.take_snapshot().statistics("lineno")
    tracemalloc.stop()
    print(f"{memory.stats().history_tokens:,} tokens: {kept / 1e6:.1f} MB, at its peak {peak / 1e6:.1f} MB")
    for one in found[:top]:
        frame = one.traceback[0]
        name = "/".join(Path(frame.filename).parts[-3:])
        print(f"{one.size / 1e6:8.2f} MB {one.count:8,} objects  {name}:{frame.lineno}")


def write_report(results: dict[str, dict[str, float]], folder: Path) -> None:
    """Write the figures as JSON and Markdown."""
    names = ("session", "still", "history", "deletion", "loop")
    session, still, history, deletion, loop = (results[name] for name in names)
    rows = [
        [
            f"a session of {session['tokens']:,.0f} tokens, {session['events']:.0f} events, to counting it",
            f"{session['wrapped_seconds']:.3f} s",
            f"{session['bare_seconds']:.3f} s",
            f"{session['ratio']:.2f}",
        ],
        [
            "`get_memory` between events on 1,000 messages, to copying the list",
            f"{still['get_memory_microseconds']:.2f} µs",
            f"{still['list_microseconds']:.2f} µs",
            f"{still['ratio']:.2f}",
        ],
        [
            "`get_memory` over 200 turns behind 100,000 messages, to behind 1,000",
            f"{history['large_seconds']:.3f} s",
            f"{history['small_seconds']:.3f} s",
            f"{history['ratio']:.2f}",
        ],
        [
            "`delete` of one message that left, of 1,500, to counting these",
            f"{deletion['delete_milliseconds']:.1f} ms",
            f"{deletion['counting_milliseconds']:.1f} ms",
            f"{deletion['ratio']:.2f}",
        ],
        [
            "longest wait of other tasks in such a session, to its longest event",
            f"{loop['held_milliseconds']:.1f} ms",
            f"{loop['event_milliseconds']:.1f} ms",
            f"{loop['ratio']:.2f}",
        ],
    ]
    text = markdown_table(("what, and beside what", "figure", "beside", "ratio"), rows)
    write_results(folder, "overhead", results, "Overhead", text)


def measure_session(turns: int, budget: int, repeats: int) -> dict[str, float]:
    """Return the cost of a whole session, in seconds, beside that of counting it."""
    session = make_session(turns)
    texts = texts_of(session)
    encoding = bare_encoding()
    groups = grouped(session)
    events = 0

    async def run() -> None:
        nonlocal events
        events = (await play(groups, budget)).stats().events

    # In turns: what else the machine does then weighs on both alike.
    pairs = [
        (
            seconds_of(lambda: [len(encoding.encode_ordinary(text)) for text in texts]),
            seconds_of(lambda: asyncio.run(run())),
        )
        for _ in range(repeats)
    ]
    tokens = sum(len(encoding.encode_ordinary(text)) for text in texts)
    return {
        "bare_seconds": statistics.median(bare for bare, _ in pairs),
        "wrapped_seconds": statistics.median(wrapped for _, wrapped in pairs),
        "ratio": statistics.median(wrapped / bare for bare, wrapped in pairs),
        "tokens": tokens,
        "events": events,
    }


def measure_still(messages: int, repeats: int) -> dict[str, float]:
    """Return the cost of `get_memory` without an event, in microseconds, beside that of copying a list."""
    loops = 2_000

    async def run() -> tuple[float, float]:
        memory = CompressedMemory(config=CompressionConfig(max_total_tokens=10_000_000))
        await memory.add([Msg("user", f"message {number}", "user") for number in range(messages)])
        view = await memory.get_memory()
        start = time.perf_counter()
        for _ in range(loops):
            await memory.get_memory()
        asked = time.perf_counter() - start
        start = time.perf_counter()
        for _ in range(loops):
            list(view)
        return asked, time.perf_counter() - start

    runs = [asyncio.run(run()) for _ in range(repeats)]
    asked, copied = (statistics.median(column) / loops * 1e6 for column in zip(*runs, strict=True))
    return {"get_memory_microseconds": asked, "list_microseconds": copied, "ratio": asked / copied}


def measure_deletion(messages: int, budget: int, repeats: int) -> dict[str, float]:
    """Return how long deleting a message takes that left the view, in milliseconds, beside counting all."""
    groups = grouped(make_session(messages))
    said = [msg for group in groups for msg in group][:messages]
    texts = [text for msg in said for text in plain_texts(msg)]
    encoding = bare_encoding()

    async def run() -> float:
        memory = CompressedMemory(config=CompressionConfig(max_total_tokens=budget), summarizer=Constant())
        await memory.add(said)
        await memory.get_memory()
        start = time.perf_counter()
        await memory.delete([said[messages // 2].id])
        return time.perf_counter() - start

    pairs = [
        (asyncio.run(run()), seconds_of(lambda: [len(encoding.encode_ordinary(text)) for text in texts]))
        for _ in range(repeats)
    ]
    deleted, counted = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {
        "delete_milliseconds": deleted * 1e3,
        "counting_milliseconds": counted * 1e3,
        "ratio": statistics.median(one / other for one, other in pairs),
    }


def measure_loop(turns: int, budget: int, repeats: int) -> dict[str, float]:
    """Return how long a session keeps the event loop from other tasks, beside its longest event."""

    async def run() -> tuple[float, float]:
        memory = CompressedMemory(config=CompressionConfig(max_total_tokens=budget), summarizer=Constant())
        longest = 0.0
        async with LoopWatch() as watch:
            for group in groups:
                await memory.add(group)
                begun = time.perf_counter()
                await memory.get_memory()
                longest = max(longest, time.perf_counter() - begun)
                await asyncio.sleep(0)
        return watch.longest, longest

    groups = grouped(make_session(turns))
    asyncio.run(play(groups[:50], budget))  # what is loaded once is loaded
    runs = [asyncio.run(run()) for _ in range(repeats)]
    held, longest = (statistics.median(column) for column in zip(*runs, strict=True))
    return {"held_milliseconds": held * 1e3, "event_milliseconds": longest * 1e3, "ratio": held / longest}


def measure_history(small: int, large: int, repeats: int) -> dict[str, float]:
    """Return seconds of `get_memory` over 200 further turns, events included, by length of the history."""
    session = make_session(large // 2)
    tail = make_session(200, seed=11)[2:]
    for message in tail:
        for call in message.get("tool_calls", []):
            call["id"] = "tail_" + call["id"]
        if "tool_call_id" in message:
            message["tool_call_id"] = "tail_" + message["tool_call_id"]

    async def run(length: int) -> tuple[float, int]:
        memory = CompressedMemory(config=CompressionConfig(max_total_tokens=16_000), summarizer=Constant())
        for start in range(0, length, 100):
            await memory.add(from_openai(session[start : start + 100]))
            await memory.get_memory()
        before = memory.stats().events
        spent = 0.0
        read = from_openai(tail)
        gc.collect()
        for start in range(0, len(read), 2):
            await memory.add(read[start : start + 2])
            begun = time.perf_counter()
            await memory.get_memory()
            spent += time.perf_counter() - begun
        return spent, memory.stats().events - before

    few = [asyncio.run(run(small)) for _ in range(repeats)]
    many = [asyncio.run(run(large)) for _ in range(max(1, repeats // 2))]
    low = statistics.median(seconds for seconds, _ in few)
    high = statistics.median(seconds for seconds, _ in many)
    return {
        "small_seconds": low,
        "large_seconds": high,
        "ratio": high / low,
        "small_events": few[0][1],
        "large_events": many[0][1],
    }


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--turns", type=int, default=1_000, help="turns of the session (default 1000)")
    parser.add_argument("--budget", type=int, default=16_000, help="tokens a view may cost (default 16000)")
    parser.add_argument("--repeats", type=int, default=5, help="runs per figure (default 5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    parser.add_argument("--results", type=Path, help="folder to write overhead.json and overhead.md to")
    parser.add_argument("--profile", action="store_true", help="show what takes time, instead")
    parser.add_argument("--memory", action="store_true", help="show what takes memory, instead")
    parser.add_argument("--top", type=int, default=20, help="entries to show of these (default 20)")
    options = parser.parse_args()
    if options.profile or options.memory:
        if options.profile:
            show_profile(options.turns, options.budget, options.top)
        if options.memory:
            show_memory(options.turns, options.budget, options.top)
        return 0
    results = {
        "session": measure_session(options.turns, options.budget, options.repeats),
        "still": measure_still(1_000, options.repeats),
        "history": measure_history(1_000, 100_000, options.repeats),
        "deletion": measure_deletion(1_500, options.budget, options.repeats),
        "loop": measure_loop(options.turns, options.budget, options.repeats),
    }
    if options.results:
        write_report(results, options.results)
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        for name, figures in results.items():
            limit = f" (at most {LIMITS[name]:g})" if name in LIMITS else ""
            print(f"{name}: ratio {figures['ratio']:.2f}{limit}")
            for key, value in figures.items():
                if key != "ratio":
                    print(
                        f"    {key.replace('_', ' ')}: {value:,.4g}"
                        if value < 1_000
                        else f"    {key}: {value:,.0f}"
                    )
    return 0 if all(results[name]["ratio"] <= limit for name, limit in LIMITS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
