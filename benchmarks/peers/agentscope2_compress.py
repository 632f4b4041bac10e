"""AgentScope 2's agent, as it compresses its context before each model call.

The model's window is the budget, so its defaults hold: a summary at 80 % of it, the last 10 % kept. The run
counts, standing for the model's own counter. A turn's messages, calls and results are one message of the
agent's, as the agent itself writes them. What is sent is what its formatter for OpenAI makes of the context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from adapter import Chat, Parent, Storeless, serve, split_instructions, text_of
from agentscope.agent import Agent
from agentscope.credential import OpenAICredential
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import Msg, TextBlock, ToolCallBlock, ToolResultBlock, UserMsg
from agentscope.model import OpenAIChatModel, StructuredResponse

NAME = "agent"


class Window(OpenAIChatModel):
    """A model that counts by the run, and is asked for summaries alone."""

    def __init__(self, budget: int, parent: Parent) -> None:
        super().__init__(OpenAICredential(api_key="-"), "run", stream=False, context_size=budget)
        self._parent = parent
        self._writer = OpenAIChatFormatter()

    async def written(self, messages: Sequence[Msg]) -> list[Chat]:
        return [dict(one) for one in await self._writer.format(list(messages))]

    async def count_tokens(self, messages: list[Msg], tools: Any = None) -> int:  # noqa: ARG002
        return self._parent.count(await self.written(messages), str, lambda chat: chat)

    async def generate_structured_output(
        self, messages: list[Msg], structured_model: Any, **_: Any
    ) -> StructuredResponse:
        asked = [str(message.get_text_content() or "") for message in messages]
        said = self._parent.summarize(asked, [])
        fields = structured_model["properties"]
        return StructuredResponse(content={name: said if at == 0 else "-" for at, name in enumerate(fields)})


class Compressing(Storeless):
    def __init__(self, budget: int, parent: Parent) -> None:
        self._loop = asyncio.new_event_loop()
        self._model = Window(budget, parent)
        self._agent: Agent | None = None
        self._names: dict[str, str] = {}
        self._turns = 0

    def send(self, new: Sequence[Chat]) -> list[Chat]:
        return self._loop.run_until_complete(self._send(new))

    async def _send(self, new: Sequence[Chat]) -> list[Chat]:
        if self._agent is None:
            split = split_instructions(new)
            system = "\n\n".join(map(text_of, new[:split]))
            self._agent, new = Agent(NAME, system, self._model), new[split:]
        for chat in new:
            self._add(self._agent.state, chat)
        await self._agent.compress_context()
        asked = (await self._agent._prepare_model_input())["messages"]
        return [one for one in await self._model.written(asked) if text_of(one) or one["role"] != "system"]

    def _add(self, state: Any, chat: Chat) -> None:
        if chat["role"] == "user":
            self._turns += 1
            state.reply_id = f"reply-{self._turns}"
            state.context.append(UserMsg("user", text_of(chat)))
            return
        blocks: list[Any] = []
        if chat["role"] == "tool":
            call_id = chat["tool_call_id"]
            blocks.append(
                ToolResultBlock(id=call_id, name=self._names[call_id], output=text_of(chat), state="success")
            )
        elif text_of(chat):
            blocks.append(TextBlock(text=text_of(chat)))
        for call in chat.get("tool_calls") or ():
            self._names[call["id"]] = call["function"]["name"]
            blocks.append(
                ToolCallBlock(
                    id=call["id"],
                    name=call["function"]["name"],
                    input=call["function"]["arguments"],
                    state="finished",
                )
            )
        state.append_context(NAME, blocks)

    def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        return list(messages)


if __name__ == "__main__":
    serve(Compressing)
