"""What the APIs of models take and give: OpenAI chat, OpenAI Responses, Anthropic Messages.

Chat is a list of messages, an object with `messages`, or JSONL of either or of messages. Of the others
requests, answers and lists are read; one in a file, or one per line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from context_compressor.errors import InvalidMessageError
from context_compressor.lab.readers.documents import Document, Numbered, load
from context_compressor.lab.readers.reader import Reader
from context_compressor.lab.readers.session import Form, Format, Session, UnreadableError
from context_compressor.lab.readers.tables import pick
from context_compressor.lab.readers.transcript import (
    SAYS_NOTHING,
    Part,
    Transcript,
    are_silent,
    as_object,
    content_blocks,
    dicts_in,
    first_in,
    is_message,
    keys_of,
    kind_of,
    opaque_part,
    string,
    text_in,
    text_part,
    title_in,
    to_part,
    to_parts,
)
from context_compressor.messages.chat import from_openai
from context_compressor.messages.repair import is_empty_assistant

# Anthropic Messages

CALLS_OF_CHAT = "tool_calls: expected calls as blocks of the content; these are of OpenAI chat"
_MARKS = ("tool_use", "thinking", "redacted_thinking", "server_tool_use", "document", "search_result")
"""Block types by which content is told from that of chat dicts; `image` counts where it has a `source`."""
_NEEDED = {"text": ("text",), "tool_use": ("id", "name"), "tool_result": ("tool_use_id",)}
"""Keys that must hold strings in a block of a type."""
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content", "thoughtSignature")
_CALLS = ("tool_use", "tool_call", "server_tool_use", "mcp_tool_use")
_RESULT_KEYS = ("type", "tool_use_id", "is_error", "cache_control", "id", "name")
"""Keys of a tool result that hold nothing of the result itself."""


def has_mark(content: Any) -> bool:
    """Tell whether content holds a block that only Anthropic's format has."""
    return any(map(_is_mark, dicts_in(content)))


def _is_mark(block: dict[str, Any]) -> bool:
    kind = block.get("type")
    if kind == "tool_result":
        return "tool_use_id" in block
    if kind == "reasoning":
        return isinstance(block.get("text"), str)
    return kind in _MARKS or (kind == "image" and "source" in block)


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """Return content as blocks."""
    if isinstance(content, str):
        return [text_part(content)] if content else []
    if not isinstance(content, list):
        raise UnreadableError(f"content: expected a string or a list of blocks, got {kind_of(content)}")
    blocks = [text_part(block) if isinstance(block, str) else block for block in content]
    for index, block in enumerate(blocks):
        if not isinstance(block, dict):
            raise UnreadableError(f"content[{index}]: expected a block, got {kind_of(block)}")
        for key in _NEEDED.get(str(block.get("type")), ()):
            string(block, key, f"content[{index}].")
    return blocks


def add_user(transcript: Transcript, content: Any, line: int) -> None:
    """Add a user message: its tool results as answers, what else it holds as said by the user."""
    blocks = blocks_of(content)
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for block in results:
        transcript.answer(block["tool_use_id"], result_parts(block), line)
    if not results:
        blocks = _answer_in_words(transcript, blocks, line)
        if not blocks and content:
            return
    parts = [to_part(block) for block in blocks if block.get("type") != "tool_result"]
    if not results or not are_silent(parts):
        transcript.say("user", parts, line)


def _answer_in_words(transcript: Transcript, blocks: list[Part], line: int) -> list[Part]:
    """Give each call that waits its result, where texts tell them in the calls' order; return the rest.

    Cline and Roo Code write results so: `[tool for ...] Result:`, in the same text or before the next.
    """
    rest = list(blocks)
    for call_id, name in transcript.pending:
        at = next((place for place, block in enumerate(rest) if _tells_of(block, name)), None)
        if at is None:
            break
        is_heading = rest[at]["text"].rstrip().endswith(":") and rest[at + 1 : at + 2]
        told = rest[at : at + (2 if is_heading else 1)]
        del rest[at : at + len(told)]
        transcript.answer(call_id, [to_part(block) for block in told], line)
    return rest


def _tells_of(block: Part, name: str) -> bool:
    text = text_in(block, "text").lstrip() if block.get("type") == "text" else ""
    # Cline heads the result of `use_subagents` as `[subagents]`.
    names = filter(None, {name, name.removeprefix("use_")})
    # `Tool [...] was not executed ...` is what they tell of a call that they passed over.
    return any(text.startswith((f"[{one} ", f"[{one}]", f"Tool [{one}]")) for one in names)


def add_assistant(transcript: Transcript, content: Any, line: int, key: str | None = None) -> None:
    """Add an assistant message, or a further part of the one with this key."""
    blocks = blocks_of(content)
    transcript.reply(line, key)
    for block in blocks:
        add_block(transcript, block, line)


def add_block(transcript: Transcript, block: dict[str, Any], line: int) -> None:
    """Add a block of a reply, whichever format it is of: a thought, a call, a result, or words."""
    kind = str(block.get("type"))
    if kind in _THOUGHTS:
        if thought := _thought_in(block):
            transcript.think(thought, line)
        else:
            transcript.leave_out("encrypted thoughts")
    elif kind in _CALLS:
        call_id = str(block.get("id") or "")
        transcript.call(call_id, str(block.get("name") or kind), _input(block), line)
    elif kind.endswith("tool_result"):
        transcript.answer(text_in(block, "tool_use_id", "id"), result_parts(block), line)
    else:
        transcript.speak([to_part(block)], line)


def _thought_in(block: dict[str, Any]) -> str:
    """Return the words of a thought, or else its summary, as APIs and programs keep them."""
    words = [text_in(block, key) for key in ("thinking", "reasoning", "text")]
    words += [text_in(part, "text") for part in dicts_in(block.get("content"))]
    summary = block.get("summary")
    told = [one for one in summary if isinstance(one, str)] if isinstance(summary, list) else []
    told += [text_in(one, "text") for one in dicts_in(summary)]
    return "\n\n".join(filter(None, words)) or "\n\n".join(filter(None, told))


def _input(block: dict[str, Any]) -> Any:
    """Return what a tool was called with; text that is no JSON object, as a patch, becomes part of one."""
    given = block.get("raw_input") or block.get("input") or {}
    if not isinstance(given, str):
        return given
    with suppress(UnreadableError):
        if isinstance(load(given), dict):
            return given
    return {"input": given}


def result_parts(block: dict[str, Any]) -> list[Part]:
    """Return the parts of a tool result; what it says under another key is kept as JSON text."""
    content = block.get("content")
    if "content" not in block and "output" in block:
        content = block["output"]
    elif "content" not in block:
        content = {key: value for key, value in block.items() if key not in _RESULT_KEYS} or None
    if content is None:
        return []
    return to_parts(content) if isinstance(content, list) else [opaque_part(content)]


def _is_plain(value: Any) -> bool:
    return not is_message(value) and _held(value) is not None and not speaks_chat(value)


def _is_session(value: Any) -> bool:
    messages = _held(value)
    if messages is None or not _is_plain(value):
        return False
    has_system = isinstance(value, dict) and isinstance(value.get("system"), str | list)
    has_instruction = any(message.get("role") == "system" for message in dicts_in(messages))
    return (has_system and not has_instruction) or _are_messages(messages)


def _held(value: Any) -> list[Any] | None:
    """Return the messages that a value holds; None where it holds no list."""
    held = value.get("messages") if isinstance(value, dict) else value
    return held if isinstance(held, list) else None


def _are_messages(messages: Sequence[Any]) -> bool:
    if speaks_chat(messages):
        return False
    return any(
        is_message(m) and (has_mark(m.get("content")) or ("stop_reason" in m and "usage" in m))
        for m in messages
    )


def speaks_chat(value: Any) -> bool:
    """Tell whether a value holds messages, one of which only chat completions have."""
    roles = ("tool", "function", "developer")
    messages = dicts_in(_held(value))
    return any(message.get("role") in roles or "tool_calls" in message for message in messages)


def _add_summary(transcript: Transcript, role: str, content: Any, line: int) -> None:
    """Say a summary of earlier messages, as Roo Code marks it; what stands beside it stays of its speaker."""
    blocks = blocks_of(content)
    said = [to_part(block) for block in blocks if block.get("type") == "text"]
    rest = [block for block in blocks if block.get("type") != "text"]
    transcript.compact()
    if said:
        transcript.say("user", said, line)
    if rest:
        (add_assistant if role == "assistant" else add_user)(transcript, rest, line)


class _Anthropic(Reader):
    format = Format.ANTHROPIC
    place = "messages[{}]."

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the values that are requests with `system` beside their messages, or have their blocks."""
        messages = [value for value in sample if is_message(value) and "content" in value]
        # Sessions without blocks are of the format of those beside them that have some.
        sessions = [value for value in sample if _is_plain(value)] if any(map(_is_session, sample)) else []
        return max(len(messages) if _are_messages(messages) else 0, len(sessions))

    def is_item(self, value: Any) -> bool:
        return is_message(value)

    def unwrap(self, value: Any) -> list[Any]:
        held = _held(value)
        if held is None:
            found = kind_of(value)
            raise UnreadableError(f'expected a list of messages or {{"messages": [...]}}, got {found}')
        return held

    def begin(self, transcript: Transcript, holder: Any, line: int) -> list[Numbered]:
        """Say the system prompt that stands beside the messages."""
        if isinstance(holder, dict) and holder.get("system"):
            try:
                parts = [to_part(block) for block in blocks_of(holder["system"])]
            except UnreadableError as error:
                raise UnreadableError(f"system: {error.why}") from None
            transcript.say("system", parts, line)
        return []

    def add(self, transcript: Transcript, item: Any, line: int) -> None:
        item = as_object(item, "expected a message")
        role, content = item.get("role"), item.get("content")
        if item.get("tool_calls"):
            raise UnreadableError(CALLS_OF_CHAT)
        if role == "assistant" and item.get("type") == "reasoning":  # of its own, beside the reply
            content = [item]
        if item.get("isSummary") is True and role in ("assistant", "user"):
            _add_summary(transcript, role, content, line)
        elif role == "assistant":
            add_assistant(transcript, content, line)
        elif role == "user":
            add_user(transcript, content, line)
        elif role == "system":
            transcript.say("system", [to_part(block) for block in blocks_of(content)], line)
        else:
            raise UnreadableError(f"role: expected user, assistant or system, got {role!r:.200}")


anthropic = _Anthropic()


# OpenAI Responses

_ROLES = ("user", "system", "developer", "assistant")
_PART_TYPES = ("input_text", "output_text", "input_image", "input_file")
"""Types of content parts that only this API has."""

_HOSTED = {
    "web_search_call": (("action",), ("results",)),
    "file_search_call": (("queries",), ("results",)),
    "code_interpreter_call": (("code",), ("outputs",)),
    "image_generation_call": (("action", "prompt", "revised_prompt"), ()),
    "mcp_call": (("arguments",), ("output", "error")),
}
"""Calls that the provider carries out itself, in one item: where the arguments are, and where the result."""

_SILENT = frozenset(
    {
        *("item_reference", "compaction", "compaction_summary", "compaction_trigger", "context_compaction"),
        *("mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "additional_tools"),
        *("ghost_snapshot", "other"),
    }
)
"""Items that say nothing that could be read: encrypted, pointers elsewhere, bookkeeping."""

_ITEM_TYPES = (
    *_HOSTED,
    *("function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"),
    *("function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output"),
    *("apply_patch_call_output", "computer_call", "computer_call_output"),
    *("tool_search_call", "tool_search_output", "reasoning"),
    *("item_reference", "compaction", "mcp_list_tools"),
)
"""Types by which an item is known; a tuple, since what is looked for may be anything."""
_ACTIONS = ("arguments", "input", "action", "actions", "operation", "code")
"""Where a call keeps what it was called with."""
_ENVELOPE = frozenset({"type", "id", "call_id", "name", "namespace", "status", "phase", "metadata"})
"""What stands around what an item says."""


def is_item(value: Any) -> bool:
    """Tell whether a value is an item that no other format has."""
    if not isinstance(value, dict):
        return False
    if value.get("type") in _ITEM_TYPES:
        # With a role it is a message of Roo Code's, which keeps such thoughts among others.
        return value["type"] != "reasoning" or "role" not in value
    return any(part.get("type") in _PART_TYPES for part in dicts_in(value.get("content")))


def add_item(transcript: Transcript, item: Any, line: int) -> None:
    """Add an item.

    Raises:
        UnreadableError: it is none, or lacks what an item of its type must have.
    """
    item = as_object(item, "expected an item")
    kind = item.get("type") or ("message" if "role" in item else None)
    if not isinstance(kind, str):
        raise UnreadableError("type: expected the type of an item, but it is missing")
    if kind == "message":
        _add_message(transcript, item, line)
    elif kind == "agent_message" and isinstance(item.get("content"), str | list):
        _add_message(transcript, {**item, "role": "assistant"}, line)
    elif kind == "reasoning":
        _add_reasoning(transcript, item, line)
    elif kind in _HOSTED:
        _add_hosted(transcript, item, kind, line)
    elif kind.endswith("_output"):
        call_id = text_in(item, "call_id", "id")  # that of a local shell says `id`
        transcript.answer(call_id, _output_parts(transcript, item), line)
    elif kind.endswith("_call"):
        _add_call(transcript, item, kind, line)
    elif kind in _SILENT:
        transcript.leave_out(kind)
    else:
        raise UnreadableError(f"type: {kind!r} is not an item that is read here")


def _add_message(transcript: Transcript, item: dict[str, Any], line: int) -> None:
    role = item.get("role")
    if role not in _ROLES:
        raise UnreadableError(f"role: expected one of {', '.join(_ROLES)}, got {role!r:.200}")
    parts = _parts(transcript, item.get("content"))
    for key, held in item.items():
        if key not in _ENVELOPE | {"content"} and isinstance(held, dict | list) and held:
            transcript.leave_out(f"{key} of a message")
    if role != "assistant":
        transcript.say(str(role), parts, line)
        return
    transcript.close_said()
    transcript.speak(parts, line)


def _add_reasoning(transcript: Transcript, item: dict[str, Any], line: int) -> None:
    if thought := _thought_in(item):
        transcript.close_said()
        transcript.think(thought, line)
    else:
        transcript.leave_out("reasoning without words")


def _add_call(transcript: Transcript, item: dict[str, Any], kind: str, line: int) -> None:
    named = kind in ("function_call", "custom_tool_call")
    name = string(item, "name") if named else kind.removesuffix("_call")
    if named and isinstance(item.get("namespace"), str):
        name = f"{item['namespace']}__{name}"
    found = first_in(item, *_ACTIONS)
    if found is None:  # a kind yet to come, or another format's
        found = {key: value for key, value in item.items() if key not in _ENVELOPE}
    if kind == "custom_tool_call" and isinstance(found, str):
        found = {"input": found}  # free text, where arguments must be an object
    transcript.call(text_in(item, "call_id", "id"), name, found, line)


def _add_hosted(transcript: Transcript, item: dict[str, Any], kind: str, line: int) -> None:
    asked, given = _HOSTED[kind]
    held = {key: item[key] for key in asked if item.get(key) is not None}
    only = next(iter(held.values())) if len(held) == 1 else held
    arguments = only if isinstance(only, dict) or (kind == "mcp_call" and isinstance(only, str)) else held
    found = first_in(item, *given)
    result = found if found is not None else f"({item.get('status') or 'completed'})"
    name = (text_in(item, "name") if kind == "mcp_call" else "") or kind.removesuffix("_call")
    transcript.hosted_call(text_in(item, "id"), name, arguments, [opaque_part(result)], line)


def _parts(transcript: Transcript, content: Any) -> list[Part]:
    """Return content as parts; images of which nothing is there are left out."""
    blocks = content_blocks(content, "parts")
    kept = [block for block in blocks if not _is_gone(block)]
    if len(kept) < len(blocks):
        transcript.leave_out("images without data", len(blocks) - len(kept))
    return [to_part(block) for block in kept]


def _is_gone(block: dict[str, Any]) -> bool:
    is_image = block.get("type") in ("input_image", "computer_screenshot")
    return is_image and not (block.get("image_url") or block.get("file_id"))


def _output_parts(transcript: Transcript, item: dict[str, Any]) -> list[Part]:
    output = first_in(item, "output", "tools", "result")
    if isinstance(output, dict):
        # Codex once wrapped text so; a screenshot is a part by itself.
        held = output.get("content")
        return [text_part(held)] if isinstance(held, str) else _parts(transcript, [output])
    return _parts(transcript, output) if isinstance(output, list) else [opaque_part(output or "")]


def _is_request(value: Any) -> bool:
    if isinstance(value, list):
        return any(is_item(item) for item in value)
    if not isinstance(value, dict) or "messages" in value:
        return False
    if value.get("object") == "response" and isinstance(value.get("output"), list):
        return True
    if isinstance(value.get("input"), str):
        return "model" in value or "instructions" in value
    held = _items_of(value)
    if not held:
        return False
    return any(is_item(item) for item in held) or ("model" in value and isinstance(held[0], dict))


def _items_of(value: dict[str, Any]) -> list[Any]:
    items: list[Any] = []
    for key in ("input", "output", "data"):
        found = value.get(key)
        if isinstance(found, str) and key == "input":
            items.append({"role": "user", "content": found})
        elif isinstance(found, list):
            items += found
    return items


def _is_bare(value: Any) -> bool:
    if not isinstance(value, dict) or {"messages", "input", "output", "data"} & value.keys():
        # The output of a call is an item; that of an answer is a list of them.
        return is_item(value)
    return "role" in value or is_item(value)


class _Responses(Reader):
    format = Format.RESPONSES
    place = "item {}: "

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the values that are items, or hold such as a request or an answer does."""
        items = sum(map(_is_bare, sample)) if any(map(is_item, sample)) else 0
        return max(items, sum(map(_is_request, sample)))

    def is_item(self, value: Any) -> bool:
        return _is_bare(value)

    def unwrap(self, value: Any) -> list[Any]:
        if isinstance(value, list):
            return value
        if not isinstance(value, dict):
            found = kind_of(value)
            raise UnreadableError(f"expected a list of items, or an object that holds one, got {found}")
        if not {"input", "output", "data"} & value.keys():
            found = keys_of(value)
            raise UnreadableError(f"input: expected a list of items, but the key is missing ({found})")
        return _items_of(value)

    def begin(self, transcript: Transcript, holder: Any, line: int) -> list[Numbered]:
        """Say the instructions that stand beside the items; they may be items themselves."""
        found = holder.get("instructions") if isinstance(holder, dict) else None
        if isinstance(found, str) and found:
            transcript.say("system", [text_part(found)], line)
        return [(line, item) for item in found] if isinstance(found, list) else []

    def add(self, transcript: Transcript, item: Any, line: int) -> None:
        add_item(transcript, item, line)


responses = _Responses()


# OpenAI chat

_ID_KEYS = ("id", "session_id", "conversation_id", "chat_id")


def _is_own(value: Any) -> bool:
    if isinstance(value, dict):
        return "messages" in value or is_message(value)
    return isinstance(value, list) and (not value or any(map(is_message, value)))


def _with_system(
    messages: list[Any], frame: dict[str, Any] | None
) -> tuple[list[Any], dict[str, Any] | None]:
    """Return messages with the instructions from beside them in front, and the frame without these."""
    system = (frame or {}).get("system")
    texts = [system] if isinstance(system, str) else [pick(block, "text") for block in dicts_in(system)]
    if frame is None or not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        return messages, frame
    rest = {key: value for key, value in frame.items() if key != "system"}
    return [{"role": "system", "content": "\n\n".join(texts)}, *messages], rest


def _without_silent(document: Document, messages: list[Any], line: int) -> list[Any]:
    """Return the messages that say something; the others are rejected."""
    kept = []
    for index, message in enumerate(messages):
        if _is_silent(message):
            document.reject(UnreadableError(f"messages[{index}]: {_silent(message)}", message=index), line)
        else:
            kept.append(message)
    return kept


def _is_silent(message: dict[str, Any]) -> bool:
    """Tell whether a message has no words and no call, result, thought or beginning of an answer."""
    content = message.get("content")
    if isinstance(content, str) and content.strip():
        return False
    return all(
        all(block.get("type") == "text" and not block["text"].strip() for block in msg.get_content_blocks())
        and (msg.role != "assistant" or is_empty_assistant(msg))
        for msg in from_openai([message])
    )


def _silent(message: dict[str, Any]) -> str:
    return f"{SAYS_NOTHING} ({keys_of(message)})"


def _check(messages: list[Any], start: int) -> None:
    """Refuse messages that are no chat dicts; `start` is the index of the first within its session."""
    try:
        from_openai(messages)
    except InvalidMessageError as error:
        why = str(error)
        raise UnreadableError(
            why if not start else why.replace("messages[0]", f"messages[{start}]", 1),
            message=next(index for index, message in enumerate(messages) if _is_malformed(message)),
            held=len(messages),
        ) from None


def _is_malformed(message: Any) -> bool:
    try:
        from_openai([message])
    except InvalidMessageError:
        return True
    return False


def _id_of(frame: dict[str, Any] | None) -> str | None:
    found = [frame[key] for key in _ID_KEYS if key in frame] if frame else []
    return next((str(value) for value in found if isinstance(value, str | int) and value != ""), None)


class _Chat(Reader):
    format = Format.OPENAI

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the values that are messages or sessions of them; asked last, when nobody else knew them."""
        return sum(map(_is_own, sample))

    def is_item(self, value: Any) -> bool:
        return is_message(value)

    def unwrap(self, value: Any) -> tuple[list[Any], dict[str, Any] | None]:
        """Return the messages that a value holds, and the object around them, if there is one."""
        frame = value if isinstance(value, dict) else None
        messages = value if frame is None else frame.get("messages")
        if frame is not None and "messages" not in frame:
            found = keys_of(frame)
            raise UnreadableError(
                f"messages: expected a list of chat messages, but the key is missing ({found})"
            )
        if not isinstance(messages, list):
            where, other = ("messages: ", "") if frame is not None else ("", ' or {"messages": [...]}')
            raise UnreadableError(f"{where}expected a list of chat messages{other}, got {kind_of(messages)}")
        _check(messages, 0)
        return messages, frame

    def read(self, document: Document) -> Iterator[Session]:
        """Yield a session per value, or one of all values where these are messages; the very dicts."""
        for line, value, held in self.groups(document):
            if value is None:
                yield self._read_lines(document, held)
                return
            messages, frame = held
            kept = _without_silent(document, messages, line)
            document.taken.count += len(kept) if messages else 1
            kept, frame = _with_system(kept, frame)
            form = Form.FOREIGN if document.is_opened else Form.ONE
            yield Session(
                kept,
                document.name,
                self.format,
                Form.SESSION_LINES if document.is_lines else form,
                id=_id_of(frame),
                title=title_in(frame),
                frame=frame,
                line=line if document.is_lines else None,
                is_indented=document.is_indented,
            )

    def _read_lines(self, document: Document, values: Iterator[Numbered]) -> Session:
        messages: list[Any] = []
        lines: list[int] = []
        for line, value in values:
            with document.rejecting(line):
                _check([value], len(messages))
                if _is_silent(value):
                    raise UnreadableError(_silent(value))
                messages.append(value)
                lines.append(line)
                document.taken.count += 1
        return Session(messages, document.name, self.format, Form.MESSAGE_LINES, message_lines=tuple(lines))


chat = _Chat()

READERS = (responses, anthropic, chat)
