"""A summariser of your own: any object with `remote` and `async summarize(request)` will do.

    python examples/custom_summarizer.py

This one keeps the first line of what each speaker said. Its text is added to the notes, and where these are
full their oldest lines leave. One with `rewrites_notes = True` gets the notes as `request.previous`, and its
text takes their place. What it writes is checked like a model's: cut when it is too long, refused when it is
empty or copies the conversation, and then rules step in.
"""

import asyncio

from make_session import make_session

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    Summary,
    SummaryRequest,
    from_openai,
)


class FirstLines:
    """Keep the first line of what each message says, as far as there is room."""

    remote = False  # no call leaves the process

    async def summarize(self, request: SummaryRequest) -> Summary:
        lines = []
        for msg in request.messages:
            for block in msg.get_content_blocks():
                text = str(block.get("text") or block.get("input") or block.get("output") or "").strip()
                if text:
                    lines.append(f"- {block.get('name', msg.name)}: {text.splitlines()[0][:120]}")
        return Summary(text="\n".join(lines[: request.max_tokens // 20]))


async def main() -> None:
    memory = CompressedMemory(
        config=CompressionConfig(max_total_tokens=8_000, mode="compress"),
        summarizer=FirstLines(),
        on_event=lambda event: print(
            f"{event.kind}: {event.tokens_before:,} > {event.tokens_after:,} {event.error or ''}"
        ),
    )
    view = await memory.get_memory()
    for message in make_session():
        await memory.add(from_openai([message]))
        view = await memory.get_memory()
    notes = [msg for msg in view if (msg.metadata or {}).get("compression", {}).get("kind") == "notes"]
    print(notes[0].get_text_content())


asyncio.run(main())
