"""Record what a scripted agent says and what its tools answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from context_compressor import TiktokenCounter
from context_compressor.lab.commands.demo_agent import (
    Call,
    ChatDict,
    ToolFailed,
    assistant_message,
    tool_message,
)

from .planting import Keys, Planting

COUNTER = TiktokenCounter()


class Recorded(NamedTuple):
    """A session that is done."""

    messages: list[ChatDict]
    probes: list[dict[str, Any]]


class Toolbox:
    """Tools: the methods that `names` lists. What goes wrong is an answer too, as for any agent."""

    names: tuple[str, ...] = ()

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool."""
        if name not in self.names:
            return f"Error: there is no tool {name!r}; there are {', '.join(self.names)}"
        try:
            answer: str = getattr(self, name)(**arguments)
        except ToolFailed as error:
            return f"Error: {error}"
        return answer


class Recorder:
    """A session on its way.

    Args:
        toolbox: what the agent works with.
        system: its instructions.
        max_tokens: the size at which the session is to come to its end.
    """

    def __init__(self, toolbox: Toolbox, system: str, max_tokens: int) -> None:
        self.messages: list[ChatDict] = []
        self.findings: list[str] = []
        """What the agent has found out, a sentence each, oldest first."""
        self._planting = Planting()
        self._toolbox = toolbox
        self._max_tokens = max_tokens
        self._tokens = 0
        self._calls = 0
        self._append({"role": "system", "content": system})

    @property
    def is_full(self) -> bool:
        """Whether it is time for the answer."""
        return self._tokens >= self._max_tokens

    def user(self, text: str) -> None:
        """Let the user say something."""
        self._append({"role": "user", "content": text})

    def say(self, text: str) -> None:
        """Let the agent answer without a call."""
        self._append({"role": "assistant", "content": text})

    def act(self, text: str, *calls: Call) -> list[str]:
        """Let the agent call tools, all at once; return their answers. No text: a message without content."""
        ids = []
        for _ in calls:
            self._calls += 1
            ids.append(f"call_{self._calls:04}")
        message = assistant_message(text, dict(zip(ids, calls, strict=True)))
        message["content"] = text or None
        for made, (_, arguments) in zip(message["tool_calls"], calls, strict=True):
            made["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
        self._append(message)
        answers = [self._toolbox.call(name, arguments) for name, arguments in calls]
        for id, answer in zip(ids, answers, strict=True):
            self._append(tool_message(id, answer))
        return answers

    def one(self, text: str, name: str, /, **arguments: Any) -> str:
        """Let the agent call one tool; return its answer."""
        return self.act(text, (name, arguments))[0]

    def plant(self, kind: str, question: str, answer: str, *keys: Keys, about: str | None = None) -> None:
        """Note what the messages so far tell, to be asked for later: see `Planting.plant`."""
        self._planting.plant(kind, question, answer, *keys, since=len(self.messages), about=about)

    def recorded(self) -> Recorded:
        """Return the session, and the probes of what it planted."""
        return Recorded(self.messages, self._planting.probes(self.messages))

    def _append(self, message: ChatDict) -> None:
        self.messages.append(message)
        self._tokens += COUNTER.count_text(message["content"] or "")
        for call in message.get("tool_calls", ()):
            self._tokens += COUNTER.count_text(call["function"]["arguments"])


def listed(sentences: Sequence[str]) -> str:
    """Return sentences as a list in Markdown."""
    return "\n".join(f"- {sentence}" for sentence in sentences)
