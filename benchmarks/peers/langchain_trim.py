"""LangChain's `trim_messages`, as its guide has it: the last messages that fit, from a human one on.

`include_system` keeps the system message, `end_on` a human or tool message, and the run counts. It begins
from the whole history each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapter import Chat, Parent, Storeless, serve
from langchain_core.messages import trim_messages
from langchain_messages import Messages, from_langchain, to_langchain


class Trimming(Storeless):
    def __init__(self, budget: int, parent: Parent) -> None:
        self._budget = budget
        self._messages = Messages(parent)
        self._history: list[Any] = []

    def send(self, new: Sequence[Chat]) -> list[Chat]:
        self._history += self._messages.load(new)
        trimmed = trim_messages(
            self._history,
            strategy="last",
            token_counter=self._messages.count,
            max_tokens=self._budget,
            start_on="human",
            end_on=("human", "tool"),
            include_system=True,
        )
        return self._messages.dump(trimmed)

    def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        return from_langchain(to_langchain(messages))


if __name__ == "__main__":
    serve(Trimming)
