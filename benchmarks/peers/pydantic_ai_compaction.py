"""pydantic-ai-harness's `TieredCompaction`, as its agent calls it: before each request, on its history.

Its tiers are those that its documentation recommends together, but for the one that needs to know which
tools read files: `ClearToolResults` with the last 3 pairs kept, then `SummarizingCompaction`. The target,
which triggers and stops, is 80 % of the window, as in an example there, and the window is the budget, in
the run's tokens (it takes a tokenizer, for texts: what a message costs beside is not counted). The summary
leaves half the budget as it is: the 20 messages of the example may be any number of tokens. All else is as
by default: its prompt shows 500 characters of a result, so the summariser gets as much.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from adapter import Chat, Parent, Storeless, serve, shown_in, text_of
from pydantic_ai import ImageUrl, RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RunUsage
from pydantic_ai_harness.compaction import ClearToolResults, SummarizingCompaction, TieredCompaction

RESULT_CHARACTERS = 500
MAPPER = OpenAIChatModel("run", provider=OpenAIProvider(api_key="-", base_url="http://127.0.0.1:9/v1"))


class Compaction(Storeless):
    def __init__(self, budget: int, parent: Parent) -> None:
        self._parent = parent
        self._loop = asyncio.new_event_loop()
        self._history: list[ModelMessage] = []
        self._originals: dict[int, tuple[Any, Chat]] = {}
        """By the identity of a part or response: itself, kept alive, and what it was made from."""
        model = FunctionModel(self._summarize)
        self._model = model
        self._compaction: TieredCompaction[None] = TieredCompaction(
            tiers=[
                ClearToolResults(max_tokens=1, keep_pairs=3, tokenizer=self._count),
                SummarizingCompaction(
                    model=model, max_messages=1, keep_tokens=budget // 2, tokenizer=self._count
                ),
            ],
            target_fraction=0.8,
            context_window=budget,
            tokenizer=self._count,
        )

    def send(self, new: Sequence[Chat]) -> list[Chat]:
        for message, made_from in to_pydantic(new):
            parts = message.parts if isinstance(message, ModelRequest) else [message]
            for part, chat in zip(parts, made_from, strict=True):
                self._originals[id(part)] = part, chat
            self._history.append(message)
        return self._loop.run_until_complete(self._send())

    async def _send(self) -> list[Chat]:
        context: RunContext[None] = RunContext(
            deps=None, model=self._model, usage=RunUsage(), messages=self._history
        )
        request = ModelRequestContext(
            model=self._model,
            messages=list(self._history),
            model_settings=None,
            model_request_parameters=ModelRequestParameters(),
        )
        request = await self._compaction.before_model_request(context, request)
        return await self._dump(request.messages)

    async def _dump(self, messages: Sequence[ModelMessage]) -> list[Chat]:
        chats: list[Chat] = []
        for message in messages:
            for part in message.parts if isinstance(message, ModelRequest) else [message]:
                kept, chat = self._originals.get(id(part), (None, None))
                if kept is part and chat is not None:
                    chats.append(chat)
                else:
                    alone = ModelRequest(parts=[part]) if isinstance(message, ModelRequest) else message
                    chats += await from_pydantic([alone])
        return chats

    def _count(self, text: str) -> int:
        return self._parent.count([text], str, lambda one: {"role": "user", "content": one})

    async def _summarize(self, messages: list[ModelMessage], info: Any) -> ModelResponse:
        prompt = "\n".join(str(getattr(part, "content", "")) for one in messages for part in one.parts)
        shown = shown_in(prompt, await self._dump(self._history))
        cut = [
            {**chat, "content": text_of(chat)[:RESULT_CHARACTERS]} if chat["role"] == "tool" else chat
            for chat in shown
        ]
        text = self._parent.summarize([info.instructions or "", prompt], cut)
        return ModelResponse(parts=[TextPart(text)])

    def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        loaded = [message for message, _ in to_pydantic(messages)]
        return self._loop.run_until_complete(from_pydantic(loaded))


async def from_pydantic(messages: Sequence[ModelMessage]) -> list[Chat]:
    """Return messages as chat dicts, as its model for OpenAI maps them."""
    mapped = await MAPPER._map_messages(list(messages), ModelRequestParameters())
    return [dict(one) for one in mapped]


def to_pydantic(chats: Sequence[Chat]) -> list[tuple[ModelMessage, list[Chat]]]:
    """Return messages, each with what its parts were made from; results in a row are one request."""
    made: list[tuple[ModelMessage, list[Chat]]] = []
    names: dict[str, str] = {}
    for chat in chats:
        role, text = chat["role"], text_of(chat)
        part: Any
        if role == "assistant":
            parts: list[Any] = [TextPart(text)] if text else []
            for call in chat.get("tool_calls") or ():
                function = call["function"]
                names[call["id"]] = function["name"]
                arguments = json.loads(function["arguments"] or "{}")
                parts.append(ToolCallPart(function["name"], arguments, tool_call_id=call["id"]))
            made.append((ModelResponse(parts=parts), [chat]))
            continue
        if role == "tool":
            name = names.get(chat["tool_call_id"], chat.get("name") or "tool")
            part = ToolReturnPart(name, text, tool_call_id=chat["tool_call_id"])
        elif role in ("system", "developer"):
            part = SystemPromptPart(text)
        elif isinstance(chat.get("content"), list):
            part = UserPromptPart([_content(one) for one in chat["content"]])
        else:
            part = UserPromptPart(text)
        before = made[-1] if made else None
        joins = before is not None and (
            (role == "tool" and before[1][-1]["role"] == "tool")
            or (role != "tool" and before[1][-1]["role"] in ("system", "developer"))
        )
        if joins and before is not None:
            before[0].parts = [*before[0].parts, part]
            before[1].append(chat)
        else:
            made.append((ModelRequest(parts=[part]), [chat]))
    return made


def _content(part: Chat) -> Any:
    url = part.get("image_url", {}).get("url")
    return ImageUrl(url) if url else part.get("text") or ""


if __name__ == "__main__":
    serve(Compaction)
