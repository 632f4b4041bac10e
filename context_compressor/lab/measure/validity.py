"""What a chat-completions provider refuses, written down on its own: nothing here asks how views are made.

The rules are those that providers agree on, and where they differ the stricter one:

- roles are `system`, `developer`, `user`, `assistant`, `tool` and, of old, `function`;
- each call of an assistant message has an id that no earlier call has, a name, and arguments that are a JSON
  object;
- each call is answered once, by a `tool` message right behind its assistant message, other answers between;
- a `tool` message answers such a call, and a `function` message the `function_call` right before it;
- an assistant message calls something or says something, if only reasoning (which the providers that write
  messages of reasoning alone take back), or is a beginning for the model to go on from; any other message has
  content;
- a request holds a message that is no instruction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from context_compressor.lab.measure.recording import INSTRUCTION_ROLES, Chat

_ROLES = INSTRUCTION_ROLES | {"user", "assistant", "tool", "function"}


class _Read(NamedTuple):
    """A message that was read: what was known before, what is wrong with it, and the ids of its calls."""

    answered: dict[str, bool]
    function_waits: bool
    problems: list[str]
    ids: list[str]


class RequestChecker:
    """Check requests that follow each other; what is the same in two of them is read once."""

    def __init__(self) -> None:
        self._messages: list[_Read] = []
        self._known: set[str] = set()
        self._answered: dict[str, bool] = {}
        """Whether each call of the latest assistant message is answered."""
        self._function_waits = False

    def check(self, messages: Sequence[Chat], same: int = 0) -> list[str]:
        """Return what a provider would refuse in a request; nothing for a valid one.

        `same`: how many messages at its start are those of the request before.
        """
        if same < len(self._messages):
            self._answered, self._function_waits = self._messages[same][:2]
            del self._messages[same:]
            self._known = {id for message in self._messages for id in message.ids}
        for index in range(same, len(messages)):
            self._messages.append(_Read(self._answered, self._function_waits, [], []))
            self._read(f"messages[{index}]", messages[index])
        found = [problem for message in self._messages for problem in message.problems]
        found += self._unanswered("the end")
        if all(message.get("role") in INSTRUCTION_ROLES for message in messages):
            found.append("the request holds no message that is not an instruction")
        return found

    def _read(self, place: str, message: Chat) -> None:
        role = message.get("role")
        if role not in _ROLES:
            self._note(place, f"unknown role {role!r}")
        if role == "tool":
            self._check_answer(place, message)
        elif role == "function":
            if not self._function_waits:
                self._note(place, "a function message without a function_call before it")
            self._function_waits = False
        else:
            self._messages[-1].problems.extend(self._unanswered(place))
            self._answered, self._function_waits = {}, False
            if role == "assistant":
                self._check_assistant(place, message)
        content = message.get("content")
        has_content = isinstance(content, str) or (isinstance(content, list) and bool(content))
        if role != "assistant" and not has_content:
            self._note(place, f"a message of role {role} without content")

    def _unanswered(self, place: str) -> Iterator[str]:
        """Yield the calls that no answer can reach any more."""
        for id, is_answered in self._answered.items():
            if not is_answered:
                yield f"{place}: call {id!r} has no answer before this"
        if self._function_waits:
            yield f"{place}: a function_call has no answer before this"

    def _check_answer(self, place: str, message: Chat) -> None:
        id = message.get("tool_call_id")
        if not isinstance(id, str) or id not in self._answered:
            self._note(place, f"an answer to {id!r}, which the assistant message before it does not call")
        elif self._answered[id]:
            self._note(place, f"a second answer to {id!r}")
        else:
            self._answered = {**self._answered, id: True}

    def _check_assistant(self, place: str, message: Chat) -> None:
        calls = message.get("tool_calls")
        if calls is not None and not (isinstance(calls, list) and calls):
            self._note(place, "tool_calls that are no list of calls, or an empty one")
        for call in calls if isinstance(calls, list) else ():
            self._check_call(place, call)
        legacy = message.get("function_call")
        if legacy is not None:
            self._function_waits = True
            if not (isinstance(legacy, dict) and legacy.get("name") and _is_object(legacy.get("arguments"))):
                self._note(place, "a function_call without a name, or whose arguments are no JSON object")
        said = (message.get("content"), message.get("reasoning_content"), message.get("refusal"))
        others = map(message.get, ("audio", "images", "partial", "prefix"))
        if not (calls or legacy is not None or any(others) or any(map(_says, said))):
            self._note(place, "an assistant message that says and calls nothing")

    def _check_call(self, place: str, call: Any) -> None:
        if not isinstance(call, dict):
            self._note(place, "a call that is no object")
            return
        id = call.get("id")
        if not isinstance(id, str) or not id:
            self._note(place, "a call without an id")
        else:
            if id in self._known:
                self._note(place, f"the call id {id!r} again")
            self._known.add(id)
            self._messages[-1].ids.append(id)
            self._answered[id] = False
        is_custom = call.get("type") == "custom"
        inner = call.get("custom" if is_custom else "function")
        if not isinstance(inner, dict) or not inner.get("name"):
            self._note(place, f"call {id!r} names no tool")
        elif not is_custom and not _is_object(inner.get("arguments")):
            self._note(place, f"call {id!r} has arguments that are no JSON object")

    def _note(self, place: str, problem: str) -> None:
        self._messages[-1].problems.append(f"{place}: {problem}")


def _is_object(arguments: object) -> bool:
    """Tell whether arguments are the text of a JSON object."""
    return isinstance(arguments, str) and _is_object_text(arguments)


@lru_cache(maxsize=50_000)  # a replay asks for the same ones every turn
def _is_object_text(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _says(content: object) -> bool:
    if isinstance(content, list):
        return any(
            isinstance(part, dict) and (part.get("type", "text") != "text" or _says(part.get("text")))
            for part in content
        )
    return isinstance(content, str) and bool(content.strip())
