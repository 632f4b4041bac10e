"""OpenAI Agents' `ToolOutputTrimmer`, as its runner calls it before each model call: on all items.

All is as by default: outputs of older turns above 500 characters are cut to 200, the last two turns stay. It
promises no budget. Items go in and out as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapter import Chat, Parent, Storeless, serve
from agents.extensions import ToolOutputTrimmer
from agents.run import CallModelData, ModelInputData


class Trimmer(Storeless):
    def __init__(self, budget: int, parent: Parent) -> None:  # noqa: ARG002
        self._trim = ToolOutputTrimmer()
        self._items: list[Any] = []

    def send(self, new: Sequence[Chat]) -> list[Chat]:
        self._items += new
        given = ModelInputData(input=list(self._items), instructions=None)
        return list(self._trim(CallModelData(model_data=given, agent=None, context=None)).input)

    def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        return list(messages)


if __name__ == "__main__":
    serve(Trimmer)
