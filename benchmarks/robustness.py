"""What hostile or huge input costs: seconds, the longest hold of the event loop, and peak memory.

    python benchmarks/robustness.py

Each case runs in a process of its own: 120 MB of tool output in one message, a single line of JSON of 6 MB, a
pattern that backtracks for ever, and 10,000 memories opened, used and closed side by side (there the loop is
held by all of them together: each is ready at once).
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from overhead import LoopWatch
from reporting import make_parser, run_apart

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    FileOffloadStore,
    OffloadTools,
    from_openai,
    to_openai,
)

BUDGET = 16_000
Case = Callable[[str, str], Awaitable[str]]


def with_result(output: str) -> list[dict[str, Any]]:
    function = {"name": "bash", "arguments": "{}"}
    return [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "content": output},
    ]


async def offloaded(output: str, folder: str) -> tuple[CompressedMemory, str]:
    """Return a memory that holds a huge result, and the ref that stands for it."""
    memory = CompressedMemory(
        config=CompressionConfig(max_total_tokens=BUDGET), store=FileOffloadStore(folder)
    )
    await memory.add(from_openai(with_result(output)))
    view = to_openai(await memory.get_memory())
    assert memory.stats().view_tokens <= BUDGET
    (ref,) = await memory.reachable_refs()
    assert ref in view[-1]["content"]
    return memory, ref


def make_log() -> str:
    line = "2026-01-01 12:00:00 INFO worker-{} finished job {} in {} ms, queue at {}\n"
    return "".join(line.format(i % 9, i * 7, i % 997, i % 31) for i in range(1_550_000))


def make_json() -> str:
    return json.dumps([{"id": i, "name": f"item-{i}", "tags": ["a", "b"]} for i in range(100_000)])


async def huge_result(folder: str, output: str) -> str:
    memory, ref = await offloaded(output, folder)
    page = await OffloadTools(memory).call("read_offloaded", {"ref": ref, "offset": 1_000_000})
    assert "worker-" in page
    return f"{len(output) / 1e6:.0f} MB, {memory.stats().history_tokens:,} tokens, a page read back"


async def single_line(folder: str, output: str) -> str:
    memory, ref = await offloaded(output, folder)
    answer = await OffloadTools(memory).call("grep_offloaded", {"ref": ref, "pattern": "item-77777"})
    assert "item-77777" in answer
    return f"{len(output) / 1e6:.1f} MB of JSON in one line, searched"


async def endless_pattern(folder: str, output: str) -> str:
    memory, _ = await offloaded(output, folder)
    answer = await OffloadTools(memory).call("grep_offloaded", {"pattern": "(a|a)+(a|aa)+$"})
    assert "stopped" in answer
    return "stopped, and said so"


async def many_sessions(folder: str, output: str) -> str:
    async def session(number: int) -> None:
        store = FileOffloadStore(folder, namespace=f"session-{number}")
        async with CompressedMemory(config=CompressionConfig(max_total_tokens=2_000), store=store) as memory:
            await memory.add(from_openai(with_result(f"{number}: {output}")))
            await memory.get_memory()
            assert memory.stats().offloaded == 1
            await memory.clear()

    await asyncio.gather(*(session(number) for number in range(10_000)))
    return "10,000 sessions, each with a text stored and removed"


CASES: dict[str, tuple[Case, Callable[[], str]]] = {
    "huge result": (huge_result, make_log),
    "single line": (single_line, make_json),
    "endless pattern": (endless_pattern, lambda: ("a" * 60 + "!\n") * 5_000),
    "many sessions": (many_sessions, lambda: "a line of a result\n" * 600),
}


def run(name: str) -> dict[str, Any]:
    case, make_output = CASES[name]
    output = make_output()

    async def measured() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            async with LoopWatch() as watch:
                started = time.perf_counter()
                note = await case(folder, output)
                return {
                    "case": name,
                    "seconds": time.perf_counter() - started,
                    "longest_hold_seconds": watch.longest,
                    "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                    "note": note,
                }

    return asyncio.run(measured())


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--case", choices=CASES, help="only this one")
    options = parser.parse_args()
    print(f"{'case':16} {'seconds':>8} {'loop held':>10} {'peak MB':>8}")
    for name in [options.case] if options.case else CASES:
        found = run_apart(run, name)
        print(
            f"{name:16} {found['seconds']:8.2f} {found['longest_hold_seconds']:8.3f} s "
            f"{found['peak_megabytes']:8.0f}  {found['note']}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
