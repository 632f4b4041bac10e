"""LangChain's `SummarizationMiddleware`, as `create_agent` calls it: before each model call, on the state.

Its state is replaced by what it keeps. It sees the conversation without the system prompt, so it is
triggered at the budget less the system prompt's tokens, by the run's counter (it takes one), and keeps half
of that, as many tokens as ours aims at. It has no default trigger; its default `keep` of 20 messages may be
any number of tokens. `trim_tokens_to_summarize` is None: by default all but the last 4,000 tokens of what
leaves would be lost, not summarised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapter import Chat, Parent, Storeless, serve, split_instructions
from langchain.agents.middleware.summarization import DEFAULT_SUMMARY_PROMPT, SummarizationMiddleware
from langchain_messages import Messages, Window, from_langchain, summarizer_for, to_langchain
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime


class Summarization(Storeless):
    def __init__(self, budget: int, parent: Parent) -> None:
        self._budget = budget
        self._parent = parent
        self._messages = Messages(parent)
        self._system: list[Chat] = []
        self._state: Any = []
        self._middleware: SummarizationMiddleware | None = None

    def send(self, new: Sequence[Chat]) -> list[Chat]:
        if self._middleware is None:
            split = split_instructions(new)
            self._system, new = list(new[:split]), new[split:]
            self._middleware = self._make()
        self._state = add_messages(self._state, self._messages.load(new))
        update = self._middleware.before_model({"messages": self._state}, Runtime())
        if update is not None:
            self._state = add_messages(self._state, update["messages"])
        return self._system + self._messages.dump(self._state)

    def _make(self) -> SummarizationMiddleware:
        system_tokens = self._parent.count(self._system, str, lambda chat: chat)
        room = max(1, self._budget - system_tokens)
        return SummarizationMiddleware(
            Window(self._budget),
            trigger=("tokens", room),
            keep=("tokens", max(1, room // 2)),
            token_counter=self._messages.count,
            trim_tokens_to_summarize=None,
            summarizer=summarizer_for(self._parent, self._messages, DEFAULT_SUMMARY_PROMPT),
        )

    def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        return from_langchain(to_langchain(messages))


if __name__ == "__main__":
    serve(Summarization)
