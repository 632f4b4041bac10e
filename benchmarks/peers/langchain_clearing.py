"""LangChain's `ClearToolUsesEdit` in its `ContextEditingMiddleware`, as `create_agent` calls it.

It edits a copy of each request, so every request begins from the whole history. `trigger` is the budget
(100,000 by default) less the system prompt's tokens, which it does not count when it is given a counter, as
here the run's; all else is as by default: `keep` 3 results, nothing more cleared than must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapter import Chat, Parent, Storeless, serve, split_instructions
from langchain.agents.middleware import ModelRequest
from langchain.agents.middleware.context_editing import ClearToolUsesEdit, ContextEditingMiddleware
from langchain_messages import Messages, Window, from_langchain, to_langchain


class Clearing(Storeless):
    def __init__(self, budget: int, parent: Parent) -> None:
        self._parent = parent
        self._budget = budget
        self._model = Window(budget)
        self._messages = Messages(parent)
        self._system: list[Chat] = []
        self._history: list[Any] = []
        self._middleware: ContextEditingMiddleware | None = None

    def send(self, new: Sequence[Chat]) -> list[Chat]:
        if self._middleware is None:
            split = split_instructions(new)
            self._system, new = list(new[:split]), new[split:]
            room = self._budget - self._parent.count(self._system, str, lambda chat: chat)
            self._middleware = ContextEditingMiddleware(
                edits=[ClearToolUsesEdit(trigger=max(1, room))], token_counter=self._messages.count
            )
        self._history += self._messages.load(new)
        requests: list[Any] = []
        request = ModelRequest(model=self._model, messages=self._history)
        self._middleware.wrap_model_call(request, lambda edited: requests.append(edited) or edited)
        return self._system + self._messages.dump(requests[0].messages)

    def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        return from_langchain(to_langchain(messages))


if __name__ == "__main__":
    serve(Clearing)
