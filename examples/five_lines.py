"""Keep a growing conversation within 4,000 tokens; no key, no network: python examples/five_lines.py"""

import asyncio

from context_compressor import CompressedMemory, from_openai, to_openai


async def main() -> None:
    memory = CompressedMemory(max_total_tokens=4_000)
    messages = to_openai(await memory.get_memory())
    for hour in range(100):
        said = f"Hour {hour}: " + f"gate {hour % 7} opened and closed again. " * 30
        await memory.add(from_openai([{"role": "user", "content": said}]))
        messages = to_openai(await memory.get_memory())  # what to send to the model
    stats = memory.stats()
    print(f"history {stats.history_tokens:,} tokens, view {stats.view_tokens:,} in {len(messages)} messages")


asyncio.run(main())
