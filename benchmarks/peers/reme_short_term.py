"""ReMe's working-memory operations, as AgentScope's `ReMeShortTermMemory` drives them in `get_memory`.

The memory's messages are formatted for the model, those with list content emptied, given to the flow
`summary_working_memory_for_as`, and what comes back becomes the memory; files are written where it says. The
formatter is DashScope's, the one of its example: OpenAI's makes a list of every text, and so empties it. As
by default: mode `auto`, ratio 0.75, 2,000 tokens for a tool message, the last 10 messages kept, a quarter of
the characters as tokens (it takes no counter). `max_total_tokens` is the budget; it does not include the last
10 messages and the instructions. The model is a class of its registry that asks the run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from adapter import Chat, Originals, Parent, serve, shown_in, text_of
from agentscope.formatter import DashScopeChatFormatter
from agentscope.message import ImageBlock, Msg, TextBlock, ToolResultBlock, ToolUseBlock, URLSource
from flowllm.core.context import C
from flowllm.core.llm import BaseLLM
from flowllm.core.schema import Message
from loguru import logger
from reme_ai import ReMeApp

STORE = "working_memory"
FORMATTER = DashScopeChatFormatter()


class ShortTermMemory:
    def __init__(self, budget: int, parent: Parent) -> None:
        self._budget = budget
        self._parent = parent
        self._loop = asyncio.new_event_loop()
        self._content: list[Msg] = []
        self._originals = Originals()
        self._files: dict[str, str] = {}
        logger.remove()
        C.register_llm("run")(
            _model_class(parent, lambda prompt: self._dump(shown_in(prompt, self._messages)))
        )
        self._messages: list[Chat] = []
        self._app = ReMeApp(
            "llm.default.backend=run", llm_api_key="-", llm_api_base="-", embedding_api_key="-",
            embedding_api_base="-",
        )  # fmt: skip
        self._loop.run_until_complete(self._app.__aenter__())
        logger.remove()

    def send(self, new: Sequence[Chat]) -> list[Chat]:
        return self._loop.run_until_complete(self._send(new))

    async def _send(self, new: Sequence[Chat]) -> list[Chat]:
        for chat in new:
            loaded = to_msgs([chat])
            self._content += loaded
            # The memory makes its messages anew each time, so an unchanged one is known by its format.
            for formatted in await FORMATTER.format(to_msgs(await FORMATTER.format(loaded))):
                self._originals.keep(_key(formatted), None, chat)
        messages = await FORMATTER.format(self._content)
        for message in messages:
            if isinstance(message.get("content"), list):
                message["content"] = ""
        self._messages = messages
        result = await self._app.async_execute(
            name="summary_working_memory_for_as",
            messages=messages,
            working_summary_mode="auto",
            compact_ratio_threshold=0.75,
            max_total_tokens=self._budget,
            max_tool_message_tokens=2000,
            group_token_threshold=None,
            keep_recent_count=10,
            store_dir=STORE,
            chat_id=uuid4().hex,
        )
        for name, text in (result.get("metadata", {}).get("write_file_dict") or {}).items():
            _write(Path(name), text)
            self._files[name] = text
        self._content = to_msgs(result.get("answer", []))
        return self._dump(await FORMATTER.format(self._content))

    def _dump(self, formatted: Sequence[Chat]) -> list[Chat]:
        return [self._originals.restore(_key(message), None) or message for message in formatted]

    def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        return list(self._loop.run_until_complete(FORMATTER.format(to_msgs(messages))))

    def stored(self) -> dict[str, str]:
        return dict(self._files)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")


def _model_class(parent: Parent, shown: Any) -> type[BaseLLM]:
    class RunModel(BaseLLM):
        async def _achat(self, messages_: list[Message], *_: Any, **__: Any) -> Message:
            prompt = "\n".join(str(message.content) for message in messages_)
            return Message(role="assistant", content=parent.summarize([prompt], shown(prompt)))

        async def achat(self, messages: list[Message], *_: Any, callback_fn: Any = None, **__: Any) -> Any:
            answer = await self._achat(messages)
            return callback_fn(answer) if callback_fn else answer

    return RunModel


def to_msgs(chats: Sequence[Chat]) -> list[Msg]:
    """Return chat dicts as AgentScope's messages, as its memory makes them; an image in a list as a block."""
    made = []
    for chat in chats:
        role, text = chat["role"], text_of(chat)
        blocks: list[Any] = []
        if role == "tool":
            output = [TextBlock(type="text", text=text)] if text else []
            blocks.append(
                ToolResultBlock(
                    type="tool_result", id=chat["tool_call_id"], name=chat.get("name") or "", output=output
                )
            )
        elif isinstance(chat.get("content"), list):
            blocks += [_block(part) for part in chat["content"]]
        elif text:
            blocks.append(TextBlock(type="text", text=text))
        for call in chat.get("tool_calls") or ():
            function = call["function"]
            arguments = json.loads(function["arguments"] or "{}")
            blocks.append(
                ToolUseBlock(type="tool_use", id=call["id"], name=function["name"], input=arguments)
            )
        speaker = "system" if role in ("tool", "developer") else role
        made.append(Msg(chat.get("name") or speaker, blocks, speaker, metadata=chat.get("metadata")))
    return made


def _block(part: Chat) -> Any:
    if part.get("type") == "image_url":
        return ImageBlock(type="image", source=URLSource(type="url", url=part["image_url"]["url"]))
    return TextBlock(type="text", text=part.get("text") or "")


def _key(formatted: Chat) -> str:
    return json.dumps(formatted, sort_keys=True, ensure_ascii=False)


if __name__ == "__main__":
    serve(ShortTermMemory)
