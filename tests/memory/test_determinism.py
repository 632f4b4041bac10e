"""The same messages, config and summaries give the same view and the same refs, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """
import asyncio, hashlib, json
from context_compressor import CompressedMemory, CompressionConfig, from_openai, to_openai

def session():
    yield {"role": "user", "content": "Find out why the import loses rows."}
    for turn in range(60):
        call = {"id": f"c{turn}", "type": "function",
                "function": {"name": "read_file", "arguments": json.dumps({"path": f"src/part_{turn}.py"})}}
        yield {"role": "assistant", "content": f"Reading part {turn}.", "tool_calls": [call]}
        count = 45 if turn % 5 == 0 else 5
        lines = [f"{turn}.{n}: value_{n % 7} = load(row_{n * turn % 13})" for n in range(count)]
        yield {"role": "tool", "tool_call_id": f"c{turn}", "content": "\\n".join(lines)}

async def main():
    memory = CompressedMemory(config=CompressionConfig(max_total_tokens=3_000))
    seen = hashlib.sha256()
    for message in session():
        await memory.add(from_openai([message]))
        seen.update(json.dumps(to_openai(await memory.get_memory())).encode())
    print(memory.stats().events, seen.hexdigest(), *await memory.store.refs())

asyncio.run(main())
"""


def run(seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_views_and_refs_are_the_same_in_every_process() -> None:
    first, second = run("1"), run("2")
    assert int(first.split()[0]) > 3
    assert first == second
