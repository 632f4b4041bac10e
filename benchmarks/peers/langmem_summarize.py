"""langmem's `summarize_messages`, as in its guide: on all messages, with the running summary so far.

`max_tokens` is the budget, the run counts (it takes a counter), and all else is as by default: 256 tokens are
set aside for a summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapter import Chat, Parent, Storeless, serve
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_messages import Messages, from_langchain, to_langchain
from langmem.short_term import RunningSummary, summarize_messages


class ShortTerm(Storeless):
    def __init__(self, budget: int, parent: Parent) -> None:
        self._budget = budget
        self._parent = parent
        self._messages = Messages(parent)
        self._history: list[Any] = []
        self._summary: RunningSummary | None = None

    def send(self, new: Sequence[Chat]) -> list[Chat]:
        self._history += self._messages.load(new)
        result = summarize_messages(
            list(self._history),
            running_summary=self._summary,
            model=RunnableLambda(self._summarize),
            max_tokens=self._budget,
            token_counter=self._count,
        )
        if result.running_summary is not None:
            self._summary = result.running_summary
        return self._messages.dump(result.messages)

    def _count(self, messages: Any) -> int:
        return self._messages.count(list(messages))

    def _summarize(self, prompt: Any) -> AIMessage:
        texts = [str(message.content) for message in prompt]
        return AIMessage(self._parent.summarize(texts, []))

    def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        return from_langchain(to_langchain(messages))


if __name__ == "__main__":
    serve(ShortTerm)
