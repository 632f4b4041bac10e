"""Read chat dicts: their text, what an assistant said in one, and what one costs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from context_compressor.errors import ContextCompressorError
from context_compressor.tokens.protocol import TokenCounter
from context_compressor.tokens.tiktoken_counter import TiktokenCounter

Chat = dict[str, Any]
"""A message as chat completions take it."""

INSTRUCTION_ROLES = frozenset({"system", "developer"})
RESULT_ROLES = frozenset({"tool", "function"})
SOURCE_ROLES = INSTRUCTION_ROLES | RESULT_ROLES | {"user"}
"""Roles of messages that an assistant's knowledge comes from."""


def content_text(message: Chat) -> str:
    """Return the text of a message's content; of a list of parts, that of its text parts, by line."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") if isinstance(part, dict) else part for part in content]
    return "\n".join(part for part in parts if isinstance(part, str))


def calls_of(message: Chat) -> list[tuple[str, str, str]]:
    """Return the calls of an assistant message: id, name of the tool, arguments as text."""
    found: list[tuple[str, str, str]] = []
    for call in message.get("tool_calls") or ():
        if isinstance(call, dict):
            function = call.get("function") or call.get("custom") or {}
            arguments = function.get("arguments", function.get("input"))
            found.append((str(call.get("id")), str(function.get("name")), _plain(arguments)))
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        found.append(("", str(legacy.get("name")), _plain(legacy.get("arguments"))))
    return found


def _plain(arguments: object) -> str:
    """Return arguments as text in which no character outside ASCII is escaped."""
    if not isinstance(arguments, str):
        return "" if arguments is None else json.dumps(arguments, ensure_ascii=False, default=str)
    if "\\u" not in arguments:
        return arguments
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except ValueError:
        return arguments


def said_text(message: Chat) -> str:
    """Return what an assistant wrote in a message: its reasoning, its text, the arguments of its calls."""
    reasoning = message.get("reasoning_content")
    texts = [reasoning if isinstance(reasoning, str) else "", content_text(message)]
    texts += [arguments for _, _, arguments in calls_of(message)]
    return "\n".join(text for text in texts if text)


class MessageReader:
    """Read messages as an agent does: a result with the name of the tool that it comes from.

    It learns from each assistant message that it reads which call has which name.
    """

    def __init__(self) -> None:
        self._tools: dict[str, str] = {}

    def tool_of(self, message: Chat) -> str | None:
        """Return the name of the tool that brought a result; None for other messages, and where unknown."""
        if message.get("role") not in RESULT_ROLES:
            return None
        name = self._tools.get(str(message.get("tool_call_id")), message.get("name"))
        return name if isinstance(name, str) else None

    def text_of(self, message: Chat) -> str:
        """Return all of a message that says something, names of tools included."""
        calls = calls_of(message)
        if not calls:
            if message.get("role") == "assistant":
                return said_text(message)
            tool = self.tool_of(message)
            return content_text(message) if tool is None else f"{tool}\n{content_text(message)}"
        self._tools.update((id, name) for id, name, _ in calls)
        said = said_text({**message, "tool_calls": None, "function_call": None})
        lines = [f"{name} {arguments}" for _, name, arguments in calls]
        return "\n".join([said, *lines] if said else lines)


class CachedCounter:
    """Count messages in tokens, the same message once; by a `TiktokenCounter` where no counter is given."""

    def __init__(self, counter: TokenCounter | None = None) -> None:
        self.counter: TokenCounter = TiktokenCounter() if counter is None else counter
        self._counts: dict[str, int] = {}
        self._kept: dict[int, tuple[Chat, int]] = {}

    def keep(self, messages: Iterable[Chat]) -> None:
        """Count messages that stay as they are, so that these very objects are known at once from now on."""
        for message in messages:
            self._kept[id(message)] = message, self.count(message)

    def count(self, message: Chat) -> int:
        """Return the tokens of a message; one that the counter cannot read counts as its JSON text."""
        kept = self._kept.get(id(message))
        if kept is not None:
            return kept[1]
        key = json.dumps(message, ensure_ascii=False, sort_keys=True, default=str)
        tokens = self._counts.get(key)
        if tokens is None:
            try:
                tokens = self.counter.count_messages([message])
            except ContextCompressorError:
                tokens = self.counter.count_text(key)
            self._counts[key] = tokens
        return tokens

    def count_all(self, messages: Sequence[Chat]) -> int:
        """Return the tokens of messages together."""
        return sum(map(self.count, messages))

    def count_call(self, tool: str, arguments: Chat, answer: str) -> int:
        """Return the tokens that a call of a tool and its answer add to a conversation."""
        function = {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)}
        call = {"id": "call_0", "type": "function", "function": function}
        return self.counter.count_messages(
            [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_0", "content": answer},
            ]
        )
