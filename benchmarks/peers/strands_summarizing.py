"""Strands' `SummarizingConversationManager`, as its agent calls it before and after a model call.

The model's window is the budget, and `proactive_compression` is on, at its threshold of 70 %, the run's
counter standing for the model's; all else is as by default: 30 % of the messages summarised, the last 10
kept. Where what is left exceeds the window, the model would refuse it: then the manager is asked to reduce
the context, as the agent does, until it fits or the manager gives up; the request is then what it left.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from adapter import Chat, Parent, Storeless, serve, split_instructions, text_of
from strands import Agent
from strands.agent.conversation_manager import SummarizingConversationManager
from strands.event_loop.event_loop import _estimate_input_tokens
from strands.hooks import BeforeModelCallEvent
from strands.models.model import Model
from strands.models.openai import OpenAIModel
from strands.types.exceptions import ContextWindowOverflowException

MAX_REDUCTIONS = 20


class RunModel(Model):
    """A model that has the run count and summarise."""

    def __init__(self, budget: int, parent: Parent, memory: Summarizing) -> None:
        self._config = {"model_id": "run", "context_window_limit": budget}
        self._parent = parent
        self._memory = memory

    def update_config(self, **model_config: Any) -> None:
        self._config.update(model_config)

    def get_config(self) -> Any:
        return self._config

    async def count_tokens(self, messages: Any, *_: Any, **__: Any) -> int:
        return self._memory.count(messages)

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(
        self, messages: Any, *_: Any, system_prompt: str | None = None, **__: Any
    ) -> AsyncIterator[Any]:
        chats = self._memory.dump(messages)
        prompt = [system_prompt or "", *(json.dumps(chat, ensure_ascii=False) for chat in chats)]
        text = self._parent.summarize(prompt, chats[:-1])
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockDelta": {"delta": {"text": text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


class Summarizing(Storeless):
    def __init__(self, budget: int, parent: Parent) -> None:
        self._budget = budget
        self._parent = parent
        self._system: list[Chat] | None = None
        self._originals: dict[int, tuple[Any, list[Chat]]] = {}
        """By the identity of a message's first block: the blocks, kept alive, and their originals."""
        self._loop = asyncio.new_event_loop()
        self._agent = Agent(
            model=RunModel(budget, parent, self),
            conversation_manager=SummarizingConversationManager(proactive_compression=True),
            callback_handler=None,
        )

    def send(self, new: Sequence[Chat]) -> list[Chat]:
        if self._system is None:
            split = split_instructions(new)
            self._system, new = list(new[:split]), new[split:]
        for message, chats in to_strands(new):
            self._originals[id(message["content"][0])] = list(message["content"]), chats
            self._agent.messages.append(message)
        self._loop.run_until_complete(self._prepare())
        return self._system + self.dump(self._agent.messages)

    async def _prepare(self) -> None:
        tokens = await _estimate_input_tokens(self._agent)
        event = BeforeModelCallEvent(agent=self._agent, invocation_state={}, projected_input_tokens=tokens)
        await self._agent.hooks.invoke_callbacks_async(event)
        for _ in range(MAX_REDUCTIONS):
            if self.count(self._agent.messages) <= self._budget:
                return
            try:
                refused = ContextWindowOverflowException("the window is full")
                self._agent.conversation_manager.reduce_context(self._agent, e=refused)
            except ContextWindowOverflowException:
                return

    def count(self, messages: Any) -> int:
        """Return the tokens of Strands' messages and the system prompt."""
        chats = (self._system or []) + self.dump(messages)
        return self._parent.count(chats, lambda chat: json.dumps(chat, sort_keys=True), lambda chat: chat)

    def dump(self, messages: Any) -> list[Chat]:
        """Return Strands' messages as chat dicts."""
        chats: list[Chat] = []
        for message in messages:
            blocks, made_from = self._originals.get(id(message["content"][0]), (None, []))
            chats += made_from if blocks == message["content"] else from_strands([message])
        return chats

    def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        split = split_instructions(messages)
        return [*messages[:split], *from_strands([message for message, _ in to_strands(messages[split:])])]


def from_strands(messages: Sequence[Any]) -> list[Chat]:
    """Return Strands' messages as chat dicts, by its own formatter for OpenAI."""
    return list(OpenAIModel.format_request_messages(list(messages)))


def to_strands(chats: Sequence[Chat]) -> list[tuple[Any, list[Chat]]]:
    """Return Strands' messages, each with what it was made from: results that follow each other are one."""
    made: list[tuple[Any, list[Chat]]] = []
    for chat in chats:
        role = chat["role"]
        if role == "tool":
            content = [{"text": text_of(chat)}]
            result = {"toolUseId": chat["tool_call_id"], "status": "success", "content": content}
            if made and made[-1][1][-1]["role"] == "tool":
                made[-1][0]["content"].append({"toolResult": result})
                made[-1][1].append(chat)
                continue
            blocks: list[Any] = [{"toolResult": result}]
        else:
            parts = chat["content"] if isinstance(chat.get("content"), list) else [{"text": text_of(chat)}]
            blocks = [_block(part) for part in parts if part.get("text") or part.get("image_url")]
            for call in chat.get("tool_calls") or ():
                function = call["function"]
                arguments = json.loads(function["arguments"] or "{}")
                use = {"toolUseId": call["id"], "name": function["name"], "input": arguments}
                blocks.append({"toolUse": use})
        speaker = "assistant" if role == "assistant" else "user"
        made.append(({"role": speaker, "content": blocks or [{"text": ""}]}, [chat]))
    return made


def _block(part: Chat) -> Any:
    url = part.get("image_url", {}).get("url", "")
    if not url.startswith("data:image/"):
        return {"text": part.get("text") or url}
    kind, _, data = url.removeprefix("data:image/").partition(";base64,")
    return {"image": {"format": kind, "source": {"bytes": base64.b64decode(data)}}}


if __name__ == "__main__":
    serve(Summarizing)
