"""A small agent on the openai SDK: tools over a folder, a memory that holds the budget.

    OPENAI_API_KEY=... python examples/openai_agent.py FOLDER "What does this project do?"

Works with OpenAI-compatible servers (`OPENAI_BASE_URL`); what some want beside is in docs/providers.md. With
--stream the answers are streamed.
"""

import argparse
import asyncio
import json
import os
import sys
from typing import Any

from files_tools import SCHEMAS, FileTools
from openai import AsyncOpenAI
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    CompressionEvent,
    OffloadTools,
    OpenAISummarizer,
    from_openai,
    to_openai,
)

Message = dict[str, Any]


def tell(event: CompressionEvent) -> None:
    print(f"[{event.kind}: {event.tokens_before:,} tokens became {event.tokens_after:,}]", file=sys.stderr)


class Agent:
    """Ask the model, run the tools it calls, and go on until it calls none."""

    def __init__(self, model: str, folder: str, budget: int, *, stream: bool) -> None:
        self.model = model
        self.stream = stream
        self.client = AsyncOpenAI()
        self.files = FileTools(folder)
        self.memory = CompressedMemory(
            config=CompressionConfig(max_total_tokens=budget),
            summarizer=OpenAISummarizer(model),
            on_event=tell,
        )
        self.offloaded = OffloadTools(self.memory)

    async def run(self, task: str, max_turns: int) -> str:
        """Return the model's final answer."""
        async with self.memory, self.client:
            instruction = "You answer questions about the files in a folder. Look before you answer."
            await self.add({"role": "system", "content": instruction}, {"role": "user", "content": task})
            for _ in range(max_turns):
                answer = await self.ask()
                await self.add(answer)
                if not answer.get("tool_calls"):
                    return str(answer["content"])
                await self.add(*[await self.result_of(call) for call in answer["tool_calls"]])
                for call in answer["tool_calls"]:
                    name, arguments = call["function"]["name"], call["function"]["arguments"]
                    attached = await self.offloaded.attachment(name, arguments)
                    if attached is not None:
                        await self.add(attached)
            return f"No answer within {max_turns} turns."

    async def add(self, *messages: Message) -> None:
        await self.memory.add(from_openai(messages))

    async def ask(self) -> Message:
        """Send the view, and return the assistant's message."""
        request: dict[str, Any] = {
            "model": self.model,
            "messages": to_openai(await self.memory.get_memory()),
            "tools": SCHEMAS + self.offloaded.schemas,
        }
        if self.stream:
            request["stream_options"] = {"include_usage": True}  # leave it out where the server refuses it
            pieces = ChatCompletionStreamState()  # older SDKs' `stream()` takes strict tools only
            async for chunk in await self.client.chat.completions.create(stream=True, **request):
                pieces.handle_chunk(chunk)
            completion: ChatCompletion = pieces.get_final_completion()
        else:
            completion = await self.client.chat.completions.create(**request)
        if completion.usage is not None:  # the memory learns what the provider counts, schemas included
            self.memory.record_usage(completion.usage.prompt_tokens)
        said = completion.choices[0].message.model_dump(exclude_none=True)
        message: Message = {"role": "assistant", "content": said.get("content")}
        if "reasoning_content" in said:  # DeepSeek and Kimi want it back
            message["reasoning_content"] = said["reasoning_content"]
        if said.get("tool_calls"):
            message["tool_calls"] = [as_sent(call) for call in said["tool_calls"]]
        return message

    async def result_of(self, call: Message) -> Message:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if name in self.offloaded.names:
            answer = await self.offloaded.call(name, arguments)
        else:
            try:
                answer = self.files.call(name, json.loads(arguments))
            except ValueError as error:
                answer = f"The arguments are no JSON: {error}"
        return {"role": "tool", "tool_call_id": call["id"], "content": answer}


def as_sent(call: Message) -> Message:
    function = {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
    extra = {key: value for key, value in call.items() if key == "extra_content"}  # Gemini wants it back
    return {"id": call["id"], "type": "function", "function": function, **extra}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", help="the folder to look at")
    parser.add_argument("task", help="what to find out")
    parser.add_argument("--model", default="gpt-4o-mini")
    parser.add_argument(
        "--budget", type=int, default=16_000, help="tokens that a request's messages may cost"
    )
    parser.add_argument("--max-turns", type=int, default=60)
    parser.add_argument("--stream", action="store_true")
    options = parser.parse_args()
    if not os.environ.get("OPENAI_API_KEY"):
        parser.error("set OPENAI_API_KEY (any text where the server at OPENAI_BASE_URL asks for none)")
    agent = Agent(options.model, options.folder, options.budget, stream=options.stream)
    print(asyncio.run(agent.run(options.task, options.max_turns)))
    stats = agent.memory.stats()
    print(
        f"history {stats.history_tokens:,} tokens, view {stats.view_tokens:,}, {stats.events} events",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
