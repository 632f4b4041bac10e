"""deepagents' `FilesystemMiddleware` and `SummarizationMiddleware`, as `create_deep_agent` stacks them.

The model's window is the budget, so its defaults hold: summaries at 85 % of it, the last 10 % kept, long
arguments of older calls cut, and the whole request under 95 %; where that cannot be, it raises. The run
counts (it takes a counter). Tool results above a tenth of the budget, and user messages above a quarter, go
to files: its 20,000 and 50,000 tokens at a window of 200,000. Its own prompt and tools are not counted
against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adapter import Chat, Parent, serve, split_instructions, text_of
from deepagents.backends import FilesystemBackend
from deepagents.middleware.filesystem import FilesystemMiddleware
from deepagents.middleware.summarization import (
    DEEPAGENTS_DEFAULT_SUMMARY_PROMPT,
    create_summarization_middleware,
)
from langchain.agents.middleware.types import ModelRequest, ModelResponse, ToolCallRequest
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, ToolMessage
from langchain_messages import Messages, Window, from_langchain, summarizer_for, to_langchain
from langgraph.graph.message import add_messages


class DeepAgent:
    def __init__(self, budget: int, parent: Parent) -> None:
        self._messages = Messages(parent)
        self._model = Window(budget)
        backend = FilesystemBackend(root_dir=Path.cwd(), virtual_mode=True)
        self._files = FilesystemMiddleware(
            backend=backend,
            tool_token_limit_before_evict=budget // 10,
            human_message_token_limit_before_evict=budget // 4,
        )
        self._summarization = create_summarization_middleware(
            self._model,
            backend,
            token_counter=self._messages.count,
            summarizer=summarizer_for(parent, self._messages, DEEPAGENTS_DEFAULT_SUMMARY_PROMPT),
        )
        self._system: list[Chat] | None = None
        self._prompt: Any = None
        self._state: Any = {"messages": []}
        self._stored: dict[Path, tuple[tuple[int, int], str]] = {}
        """By file: when it was written and its size, for times are coarse; and its text."""

    def send(self, new: Sequence[Chat]) -> list[Chat]:
        if self._system is None:
            split = split_instructions(new)
            self._system, new = list(new[:split]), new[split:]
            if self._system:
                text = "\n\n".join(map(text_of, self._system))
                self._prompt = self._messages.load([{"role": "system", "content": text}])[0]
        for message in self._messages.load(new):
            self._add([self._receive(message) if isinstance(message, ToolMessage) else message])
        requests: list[Any] = []

        def model(request: Any) -> Any:
            requests.append(request)
            return ModelResponse(result=[AIMessage("")])

        def summarized(request: Any) -> Any:
            return self._note(self._summarization.wrap_model_call(request, model))

        request = ModelRequest(
            model=self._model,
            messages=list(self._state["messages"]),
            system_message=self._prompt,
            state=self._state,
        )
        self._note(self._files.wrap_model_call(request, summarized))
        return self._system + self._messages.dump(requests[-1].messages)

    def _receive(self, message: ToolMessage) -> Any:
        """Return a result as the middleware around tools hands it on."""
        call = {"name": message.name or "tool", "args": {}, "id": message.tool_call_id, "type": "tool_call"}
        request = ToolCallRequest(tool_call=call, tool=None, state={"messages": []}, runtime=_runtime())
        return self._files.wrap_tool_call(request, lambda _: message)

    def _note(self, response: Any) -> Any:
        """Apply what a middleware changes in the state, and return the model's response."""
        update = getattr(getattr(response, "command", None), "update", None) or {}
        self._add(update.get("messages", []))
        self._state |= {key: value for key, value in update.items() if key != "messages"}
        return getattr(response, "model_response", response)

    def _add(self, messages: Sequence[Any]) -> None:
        self._state["messages"] = add_messages(self._state["messages"], list(messages))

    def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        return from_langchain(to_langchain(messages))

    def stored(self) -> dict[str, str]:
        root = Path.cwd()
        for path in filter(Path.is_file, root.rglob("*")):
            status = path.stat()
            version = status.st_mtime_ns, status.st_size
            if path not in self._stored or self._stored[path][0] != version:
                self._stored[path] = version, path.read_text(encoding="utf-8", errors="replace")
        return {f"/{path.relative_to(root)}": text for path, (_, text) in self._stored.items()}


def _runtime() -> Any:
    return ToolRuntime(
        state={}, context=None, config={}, stream_writer=lambda _: None, tool_call_id="call", store=None
    )


if __name__ == "__main__":
    serve(DeepAgent)
