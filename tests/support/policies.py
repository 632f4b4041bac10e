"""Scripted models: a policy takes the messages of a request and says what to answer."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.replies import Reply, answer
from tests.support.wires import Received

Policy = Callable[..., Reply | str | Awaitable[Reply | str]]
"""Called with the messages, and with the request itself (`Received`) if it takes two arguments."""


async def ask_policy(policy: Policy, received: Received) -> Reply:
    """Return what the policy answers to a request; a text is an answer without calls."""
    takes_request = len(inspect.signature(policy).parameters) > 1
    said = policy(received.messages, received) if takes_request else policy(received.messages)
    if inspect.isawaitable(said):
        said = await said
    return answer(said) if isinstance(said, str) else said


class CallThenAnswer:
    """Call the first tool that is offered, some times after each user message, then answer; deterministic.

    The calls are counted here, since the messages that show them may have left the view.
    """

    def __init__(self, calls: int = 3) -> None:
        self._calls = calls
        self._left = 0
        self._made = 0

    def __call__(self, messages: list[dict[str, Any]], received: Received) -> Reply:
        """Return the next call or the answer."""
        if not received.tools:
            return answer("## Goal\n- the scripted summary")
        if messages and messages[-1].get("role") == "user" and not _holds_results(messages[-1]):
            self._left = self._calls
        if self._left == 0:
            return answer(f"Done, after {self._made} calls.")
        self._left -= 1
        self._made += 1
        function = received.tools[0].get("function") or received.tools[0]
        schema = function.get("parameters") or function.get("input_schema") or {}
        arguments = _example(schema, self._made)
        return answer(f"Step {self._made}.", [(str(function.get("name")), arguments)])


def _holds_results(message: dict[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(part.get("type") == "tool_result" for part in content)


def _example(schema: dict[str, Any], number: int) -> Any:
    """Return the smallest value of a JSON schema; texts are numbered."""
    if schema.get("enum"):
        return schema["enum"][0]
    if "default" in schema:
        return schema["default"]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: _example(properties.get(name, {}), number) for name in schema.get("required") or []}
    simple = {
        "string": f"example {number}",
        "integer": number,
        "number": number,
        "boolean": True,
        "array": [],
    }
    return simple.get(str(kind))
