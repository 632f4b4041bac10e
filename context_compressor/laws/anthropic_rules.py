"""What Anthropic's Messages API refuses, written down on its own: nothing here asks the library.

Which fields a block may have is read from the `anthropic` package's types ("Extra inputs are not permitted").
Each other rule names its source. Kinds that are not known here are taken as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from anthropic import types as sdk

from context_compressor.laws.anthropic_shapes import (
    ASSISTANT_KINDS,
    BLOCKS,
    USER_KINDS,
    misshapen_block,
    result_kind,
)
from context_compressor.laws.shapes import keys_of

Dict = dict[str, Any]

MOST_MARKS = 4
"""Of `cache_control`, in system and messages together."""
_THINKING = ("thinking", "redacted_thinking")
_MESSAGE_KEYS = keys_of(get_args(sdk.MessageParam)[0])


def problems(
    messages: Sequence[Any], system: Any = None, thinking: Mapping[str, str] | None = None
) -> list[str]:
    """Return what the API would refuse; none for a valid request.

    `thinking` names, for calls by id, what was thought before them, as `thinking_of` reads it: while a turn
    is open, they are refused without it ("cannot be modified": anthropics/claude-code#63284).
    """
    checker = _Checker(len(messages))
    if system is not None:
        checker.read_system(system)
    for index, message in enumerate(messages):
        checker.read(index, message)
    checker.close()
    found = checker.found
    begins = next((block.get("type") for block in blocks_of(messages[0])), None) if messages else None
    # A compaction takes the place of all that was sent: Anthropic's page on compaction on demand.
    if messages and _role(messages[0]) != "user" and begins != "compaction":
        found.append('messages: first message must use the "user" role')
    if not found and thinking:
        found += _lost_thinking(messages, thinking)
    if not found:
        found += _unreadable(messages, system)
    return found


def unloaded(messages: Sequence[Any], found: str) -> list[str]:
    """Return the calls of a tool that stand before, or without, the reference that loads it."""
    is_there, calls = False, []
    for message in messages:
        for block in blocks_of(message):
            if block.get("type") == "tool_use" and block.get("name") == found and not is_there:
                calls.append(str(block.get("id")))
            is_there = is_there or f'"tool_name": "{found}"' in json.dumps(block)
    return calls


def thinking_of(messages: Sequence[Any]) -> dict[str, str]:
    """Return, for each call by id, the signatures of the thinking that its message holds before it."""
    found: dict[str, str] = {}
    for message in messages:
        signatures: list[str] = []
        for block in blocks_of(message):
            if block.get("type") in _THINKING:
                signatures.append(str(block.get("signature", block.get("data"))))
            elif block.get("type") == "tool_use" and signatures:
                found[str(block.get("id"))] = " ".join(signatures)
    return found


def thoughts_in(messages: Sequence[Any]) -> Iterator[Dict]:
    """Yield the blocks of thinking, in order."""
    for message in messages:
        yield from (block for block in blocks_of(message) if block.get("type") in _THINKING)


def open_turn(messages: Sequence[Any]) -> int:
    """Return where the turn begins that waits for the model after tool results; the end where none does."""
    start = len(messages)
    for index in range(len(messages) - 1, -1, -1):
        if _role(messages[index]) == "system":
            continue
        kinds = [block.get("type") for block in blocks_of(messages[index])]
        wanted = "tool_result" if _role(messages[index]) == "user" else "tool_use"
        if wanted not in kinds:
            break
        start = index
    return start


def blocks_of(message: Any) -> list[Dict]:
    """Return the blocks of a message; a text is one block."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


class _Checker:
    """Read messages in order, keeping the calls that are still to be answered."""

    def __init__(self, size: int) -> None:
        self.found: list[str] = []
        self._size = size
        self._waiting: list[str] = []
        self._hosted: dict[str, str] = {}
        self._paused: list[str] = []
        self._ids: set[str] = set()
        self._marks: list[tuple[str, str]] = []
        self._previous: object = None

    def close(self) -> None:
        """Expect no more messages."""
        if self._waiting:
            self._refuse_waiting(self._size - 1)
        if len(self._marks) > MOST_MARKS:
            found = len(self._marks)
            self.found.append(f"A maximum of 4 blocks with cache_control may be provided. Found {found}.")
        short = False
        for where, ttl in self._marks:
            # Anthropic's page on prompt caching: the longer ones come first.
            if ttl == "1h" and short:
                self.found.append(f"{where}: a ttl='1h' cache_control block must not come after a ttl='5m'")
            short = short or ttl == "5m"

    def read_system(self, system: Any) -> None:
        """Check the system prompt: a text, or blocks of text."""
        if isinstance(system, str):
            return
        if not isinstance(system, list):
            self.found.append(f"system: neither a text nor a list: {system!r:.60}")
            return
        for number, block in enumerate(system):
            self._read_block(f"system.{number}", block, frozenset({"text"}))

    def read(self, index: int, message: Any) -> None:
        """Check one message in its place."""
        where = f"messages.{index}"
        role = _role(message)
        if role not in ("user", "assistant", "system"):
            self.found.append(f"{where}.role: Input should be 'user' or 'assistant': {message!r:.60}")
            return
        self.found += [
            f"{where}.{key}: Extra inputs are not permitted" for key in message if key not in _MESSAGE_KEYS
        ]
        self._read_content(where, message, role, index == self._size - 1)
        if role == "user":
            self._refuse_paused(index - 1)
            self._read_results(index, blocks_of(message))
        elif self._waiting:
            self._refuse_waiting(index - 1)
        if role == "assistant":
            self._read_calls(index, blocks_of(message))
        elif role == "system" and self._previous not in ("user", "hosted"):
            # Anthropic's page on mid-conversation system messages; anthropics/claude-code#73821.
            self.found.append(f"{where}: role 'system' must follow a 'user' message")
        if self._previous == "system" and role != "assistant":
            self.found.append(f"{where}: role 'system' must precede an 'assistant' message or end the array")
        self._previous = role
        if role == "assistant" and any(
            block.get("type") == "server_tool_use" for block in blocks_of(message)
        ):
            self._previous = "hosted"

    def _read_content(self, where: str, message: Dict, role: str, last: bool) -> None:
        content = message.get("content")
        if not isinstance(content, str | list):
            self.found.append(f"{where}.content: neither a text nor a list: {content!r:.60}")
            return
        prefill = last and role == "assistant"
        if not content and not prefill:
            # writingmate/chatlabs#35.
            self.found.append(f"{where}: all messages must have non-empty content")
        if isinstance(content, str):
            if content and not content.strip():
                self.found.append(f"{where}: text content blocks must contain non-whitespace text")
        else:
            kinds = {"user": USER_KINDS, "assistant": ASSISTANT_KINDS}.get(role, frozenset({"text"}))
            for number, block in enumerate(content):
                self._read_block(f"{where}.content.{number}", block, kinds)
        self._check_ends(where, role, blocks_of(message), prefill)

    def _check_ends(self, where: str, role: str, blocks: list[Dict], prefill: bool) -> None:
        kinds = [block.get("type") for block in blocks]
        if role != "assistant" or not kinds:
            return
        if any(kind in _THINKING for kind in kinds) and kinds[0] not in _THINKING:
            # n8n-io/n8n#22550.
            self.found.append(f"{where}.content.0.type: Expected `thinking`, but found `{kinds[0]}`.")
        if kinds[-1] in _THINKING:
            # tailcallhq/forgecode#2107.
            self.found.append(f"{where}: The final block in an assistant message cannot be `{kinds[-1]}`.")
        text = blocks[-1].get("text")
        if prefill and kinds[-1] == "text" and isinstance(text, str) and text != text.rstrip():
            self.found.append(
                f"{where}: final assistant content cannot end with trailing whitespace: {text[-20:]!r}"
            )

    def _read_block(self, where: str, block: Any, kinds: frozenset[str]) -> None:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            self.found.append(f"{where}.type: field required: {block!r:.60}")
            return
        kind = block["type"]
        if kind in BLOCKS and kind not in kinds:
            self.found.append(f"{where}: `{kind}` blocks are not permitted here")
        self.found += misshapen_block(where, block)
        self._marks += _marks(where, block)

    def _read_results(self, index: int, blocks: list[Dict]) -> None:
        answered: list[str] = []
        for number, block in enumerate(blocks):
            if block.get("type") != "tool_result":
                continue
            at = f"messages.{index}.content.{number}"
            call_id = str(block.get("tool_use_id"))
            if call_id in answered:
                self.found.append(f"{at}: each tool_use must have a single result. Found multiple: {call_id}")
            elif call_id not in self._waiting:
                # tghamm/Anthropic.SDK#184.
                self.found.append(f"{at}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}.")
            elif number != len(answered):
                # "must begin with a matching number of tool_result blocks": anthropic-sdk-typescript#653.
                self.found.append(f"{at}: `tool_result` blocks must come first in the message")
            answered.append(call_id)
        self._waiting = [call_id for call_id in self._waiting if call_id not in answered]
        if self._waiting:
            self._refuse_waiting(index - 1)

    def _refuse_waiting(self, index: int) -> None:
        # anthropics/claude-code#8210.
        self.found.append(
            f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(self._waiting)}."
        )
        self._waiting = []

    def _read_calls(self, index: int, blocks: list[Dict]) -> None:
        earlier = [*self._hosted]
        callers: set[str] = set()
        for number, block in enumerate(blocks):
            at, kind = f"messages.{index}.content.{number}", str(block.get("type"))
            caller = block.get("caller")
            if isinstance(caller, dict) and caller.get("type") != "direct":
                callers.add(str(caller.get("tool_id")))
                if caller.get("tool_id") not in self._hosted:
                    self.found.append(f"{at}.caller.tool_id: no such `server_tool_use` block")
            if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
                self._read_id(at, block)
                if kind == "tool_use":
                    self._waiting.append(str(block.get("id")))
                else:
                    self._hosted[str(block.get("id"))] = result_kind(block)
            elif kind.endswith("_tool_result"):
                self._read_hosted_result(at, kind, block)
        # "The API runs the tool when you return the client tool_result blocks in your next request", and a
        # program's calls are answered before it is: Anthropic's page on server tools. A paused turn goes on
        # in the assistant's next message.
        self._paused = [
            call_id
            for call_id in self._hosted
            if call_id not in callers and (call_id in earlier or not self._waiting)
        ]

    def _refuse_paused(self, index: int) -> None:
        for call_id in self._paused:
            # anthropics/anthropic-sdk-python#1339.
            self.found.append(
                f"messages.{index}: tool use with id `{call_id}` was found without a corresponding "
                f"`{self._hosted.pop(call_id)}` block"
            )
        self._paused = []

    def _read_id(self, where: str, block: Dict) -> None:
        call_id = str(block.get("id"))
        if call_id in self._ids:
            self.found.append(f"{where}: `tool_use` ids must be unique: {call_id}")
        self._ids.add(call_id)

    def _read_hosted_result(self, where: str, kind: str, block: Dict) -> None:
        call_id = str(block.get("tool_use_id"))
        if self._hosted.get(call_id) != kind:
            # anthropics/claude-code#64383.
            self.found.append(
                f"{where}: unexpected `tool_use_id` found in `{kind}` blocks: {call_id}. Each `{kind}` block "
                "must have a corresponding `server_tool_use` block before it."
            )
        self._hosted.pop(call_id, None)


def opens_without_thinking(messages: Sequence[Any], history: Sequence[Any]) -> Iterator[str]:
    """Yield that the turn that is open begins with no thinking, where it does in the history.

    "A final `assistant` message must start with a thinking block", and so calls that go on after a first one
    which left the view begin with its thinking.
    """
    start, first = open_turn(messages), open_turn(history)
    thinks = any(map(_begins_with_thinking, history[first : first + 1]))
    if thinks and not all(map(_begins_with_thinking, messages[start : start + 1])):
        yield f"messages.{start}.content.0.type: Expected `thinking`, but found another block."


def _begins_with_thinking(message: Any) -> bool:
    return next((block.get("type") for block in blocks_of(message)), None) in _THINKING


def _lost_thinking(messages: Sequence[Any], thinking: Mapping[str, str]) -> Iterator[str]:
    start = open_turn(messages)
    there = thinking_of(messages[start:])
    for index, message in enumerate(messages[start:], start):
        for block in blocks_of(message):
            call_id = block.get("id")
            if block.get("type") == "tool_use" and call_id in thinking:
                if call_id not in there:
                    yield f"messages.{index}.content.0.type: Expected `thinking`, but found another block."
                elif there[call_id] != thinking[call_id]:
                    yield f"messages.{index}: `thinking` blocks of `{call_id}` cannot be modified."


def _marks(where: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _marks(f"{where}.{number}", inner)
    elif isinstance(value, dict):
        for key in ("content", "source"):
            if isinstance(value.get(key), dict | list):
                yield from _marks(f"{where}.{key}", value[key])
        mark = value.get("cache_control")
        if isinstance(mark, dict):
            yield where, str(mark.get("ttl") or "5m")


def _unreadable(messages: Sequence[Any], system: Any) -> Iterator[str]:
    try:
        json.dumps([messages, system], ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        # "no low surrogate in string": the body is no valid JSON for the API, and its SDK cannot encode it.
        yield f"The request body is not valid JSON: {error.reason}"


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None
