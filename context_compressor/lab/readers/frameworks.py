"""Messages of frameworks and benchmarks, most by tables.

The tables follow what these programs' own sources write: `events/serialization/event.py` of OpenHands and
`sdk/event` of its SDK, `types.py` of SWE-agent, `_chat_message.py` of Inspect, `messages.py` of Pydantic AI
and of AutoGen's AgentChat. That of ShareGPT follows the data sets that have its keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from context_compressor.errors import InvalidMessageError
from context_compressor.lab.readers.apis import CALLS_OF_CHAT, add_block, result_parts, speaks_chat
from context_compressor.lab.readers.documents import Document, Numbered, load
from context_compressor.lab.readers.reader import Reader
from context_compressor.lab.readers.session import Format, Session, UnreadableError
from context_compressor.lab.readers.tables import (
    TableReader,
    answers,
    begins,
    bookkeeping,
    by,
    calls,
    compacts,
    each,
    keep_path,
    keeps,
    parts_of,
    pick,
    replies,
    says,
    speaks,
    text_of,
    thinks,
)
from context_compressor.lab.readers.transcript import (
    Part,
    Transcript,
    as_object,
    content_blocks,
    dicts_in,
    first_in,
    kind_of,
    text_in,
    text_part,
    to_part,
    to_parts,
)
from context_compressor.messages.msg import Msg

# OpenHands: a trajectory of actions and observations, or the events of its SDK

_ASIDE = (
    "recall",
    "change_agent_state",
    "agent_state_changed",
    "null",
    "condensation_request",
    "task_tracking",
)


def _openhands_kind(record: dict[str, Any]) -> str | None:
    kind, action = text_in(record, "kind"), text_in(record, "action")
    if kind:
        who = pick(record, "llm_message.role") or text_in(record, "source")
        return f"{kind} of {'agent' if who == 'assistant' else who}" if kind == "MessageEvent" else kind
    if "source" not in record and "timestamp" not in record and "id" not in record:
        return None
    if action in ("message", "system", "finish"):
        return f"{action} of {text_in(record, 'source') or 'agent'}"
    if action and action not in (*_ASIDE, "condensation"):
        return "action"
    if text_in(record, "observation") and record["observation"] not in _ASIDE:
        return "observation"
    return action or text_in(record, "observation") or None


_CALL_ID = "tool_call_metadata.tool_call_id"
_say_args = says("user", "args.content")
_tell_args = (begins, thinks("reasoning_content"), speaks("args.final_thought", "args.content", "message"))
_answer_sdk = answers(
    ["tool_call_id", "action_id"],
    *("observation.content", "observation.output", "observation", "error", "rejection_reason"),
)


def _act(transcript: Transcript, record: Any, line: int) -> None:
    """Say an action of the older form: what the model called, or else its arguments without the thought."""
    arguments = record.get("args") if isinstance(record.get("args"), dict) else {}
    transcript.speak(parts_of(pick(arguments, "thought.text", "thought")), line)
    call_id = pick(record, _CALL_ID)
    asked = dicts_in(pick(record, "tool_call_metadata.model_response.choices.0.message.tool_calls"))
    call = next((one for one in asked if one.get("id") == call_id), None)
    given = {key: value for key, value in arguments.items() if key not in ("thought", "hidden")}
    found = pick(call, "function.arguments") or given
    name = pick(record, "tool_call_metadata.function_name") or record["action"]
    ids = [text_of(one) for one in (call_id, record.get("id")) if one is not None]
    call_id = ids[0] if ids else transcript.make_id()
    transcript.call(call_id, str(name), found, line)


def _say_message(transcript: Transcript, record: Any, line: int) -> None:
    """Say a message, and what skills added to it."""
    said = parts_of(pick(record, "llm_message.content")) + parts_of(record.get("extended_content"))
    if said:
        transcript.say("user", said, line)


openhands = TableReader(
    Format.OPENHANDS,
    _openhands_kind,
    {
        "message of user": (_say_args,),
        "message of environment": (_say_args,),
        "message of agent": _tell_args,
        "finish of agent": _tell_args,
        "system of agent": (says("system", "args.content"),),
        "system of environment": (says("system", "args.content"),),
        "action": (replies("tool_call_metadata.model_response.id"), _act),
        "observation": (answers([_CALL_ID, "cause"], "content", "message"),),
        "condensation": (compacts("args.summary"),),
        "SystemPromptEvent": (says("system", "system_prompt"), says("user", "dynamic_context")),
        "MessageEvent of user": (_say_message,),
        "MessageEvent of environment": (_say_message,),
        "MessageEvent of agent": (
            begins,
            thinks("llm_message.reasoning_content"),
            speaks("llm_message.content"),
        ),
        "ActionEvent": (
            replies("llm_response_id"),
            thinks("reasoning_content"),
            speaks("thought"),
            calls(
                "tool_call_id", "tool_name", "tool_call.arguments", "tool_call.function.arguments", "action"
            ),
        ),
        "ObservationEvent": (_answer_sdk,),
        "AgentErrorEvent": (_answer_sdk,),
        "UserRejectObservation": (_answer_sdk,),
        "Condensation": (compacts("summary"),),
        "CondensationSummaryEvent": (compacts("summary"),),
        **bookkeeping(*_ASIDE, "CondensationRequest", "ConversationStateUpdateEvent", "PauseEvent"),
        **bookkeeping("TokenEvent", "LLMCompletionLogEvent", "ConversationErrorEvent", "InterruptEvent"),
        **bookkeeping("HookExecutionEvent", "StreamingDeltaEvent"),
    },
    keep_path("id", "parent_id"),
    id_keys=("id", "session_id", "instance_id"),
)

# SWE-agent: `history` of a `.traj` file


def _role_of(record: dict[str, Any], is_own: bool) -> str | None:
    return text_in(record, "role") or None if is_own and "content" in record else None


swe_agent = TableReader(
    Format.SWE_AGENT,
    lambda record: _role_of(record, "message_type" in record or "agent" in record),
    {
        "system": (says("system", "content"),),
        "user": (says("user", "content"),),
        "assistant": (
            begins,
            each("thinking_blocks", by("type"), {"thinking": (thinks("thinking"),)}),
            speaks("content"),
            each(
                "tool_calls",
                by("type", "id"),
                {},
                (calls("id", "function.name", "function.arguments"),),
            ),
        ),
        "tool": (answers(["tool_call_ids.0", "tool_call_id"], "content"),),
    },
    among=lambda record: _role_of(record, True),
)

# Inspect: `messages` of a sample


def _inspect_kind(record: dict[str, Any]) -> str | None:
    called = pick(record, "tool_calls.0.function")
    is_own = isinstance(called, str) or (not isinstance(called, dict) and "source" in record)
    return _role_of(record, is_own or isinstance(record.get("function"), str))


def _answer_inspect(transcript: Transcript, record: Any, line: int) -> None:
    """Say a result and its error, which is what the model was told."""
    content, error = parts_of(record.get("content")), pick(record, "error.message")
    if error is not None and text_part(error) not in content:
        content.append(text_part(error))
    transcript.answer(text_in(record, "tool_call_id"), content, line)


inspect = TableReader(
    Format.INSPECT,
    _inspect_kind,
    {
        "system": (says("system", "content"),),
        "user": (says("user", "content"),),
        "assistant": (
            begins,
            each(
                "content",
                by("type"),
                {"reasoning": (thinks("reasoning", "summary"),), "text": (speaks("text"),)},
            ),
            each("tool_calls", by("id"), {}, (calls("id", "function", "arguments"),)),
        ),
        "tool": (_answer_inspect,),
    },
    among=lambda record: _role_of(record, True),
)

# Pydantic AI: `ModelMessagesTypeAdapter.dump_json`

_REQUEST = {
    "system-prompt": (says("system", "content"),),
    "user-prompt": (says("user", "content"),),
    "tool-return": (answers(["tool_call_id"], "content"),),
    "retry-feedback": (says("user", "content"),),
    "retry-prompt": (
        lambda transcript, part, line: (
            answers(["tool_call_id"], "content") if part.get("tool_name") else says("user", "content")
        )(transcript, part, line),
    ),
}
_RESPONSE = {
    "text": (speaks("content"),),
    "thinking": (thinks("content"),),
    "tool-call": (calls("tool_call_id", "tool_name", "args"),),
    "builtin-tool-call": (calls("tool_call_id", "tool_name", "args"),),
    **dict.fromkeys(("builtin-tool-return", "tool-return"), (answers(["tool_call_id"], "content"),)),
    "file": (lambda transcript, part, line: transcript.speak(parts_of(part.get("content")), line),),
    "compaction": (compacts("content"),),
}


def _instruct(transcript: Transcript, request: Any, line: int) -> None:
    """Add the instructions, which all requests repeat, before the first; note others as left out."""
    found = pick(request, "instructions")
    if found is not None and transcript.instructions is None:
        says("system", "instructions")(transcript, request, line)
        transcript.instructions = found
    elif found not in (None, transcript.instructions):
        transcript.leave_out("later instructions")


pydantic_ai = TableReader(
    Format.PYDANTIC_AI,
    lambda record: text_in(record, "kind") or None if isinstance(record.get("parts"), list) else None,
    {
        "request": (_instruct, each("parts", by("part_kind"), _REQUEST, (keeps("user"),))),
        "response": (begins, each("parts", by("part_kind"), _RESPONSE)),
    },
)

# AutoGen: messages of AgentChat, and of a saved model context

_RESULTS = each("content", by("call_id"), {}, (answers(["call_id"], "content"),))
_CALLS = each("content", by("type", "name"), {"text": (speaks("text"),)}, (calls("id", "name", "arguments"),))
_TELL = (replies(name="source"), thinks("thought"), speaks("content"))


def _autogen_kind(record: dict[str, Any]) -> str | None:
    kind = text_in(record, "type").partition("[")[0]
    if kind in ("TextMessage", "MultiModalMessage", "HandoffMessage", "StopMessage", "StructuredMessage"):
        return "said by user" if record.get("source") == "user" else "said"
    return kind or None


autogen = TableReader(
    Format.AUTOGEN,
    _autogen_kind,
    {
        "said by user": (says("user", "content"),),
        "said": _TELL,
        "ToolCallSummaryMessage": _TELL,
        "ThoughtEvent": (replies(name="source"), thinks("content")),
        "ToolCallRequestEvent": (_CALLS,),
        "ToolCallExecutionEvent": (_RESULTS,),
        "MemoryQueryEvent": (says("user", "content"),),
        "SystemMessage": (says("system", "content"),),
        "UserMessage": (says("user", "content"),),
        "AssistantMessage": (replies(name="source"), thinks("thought"), _CALLS),
        "FunctionExecutionResultMessage": (_RESULTS,),
        **bookkeeping("UserInputRequestedEvent", "ModelClientStreamingChunkEvent", "CodeGenerationEvent"),
        **bookkeeping("CodeExecutionEvent", "SelectSpeakerEvent", "SelectorEvent"),
    },
)

# ShareGPT: `conversations` of data sets


def _call_sharegpt(transcript: Transcript, record: Any, line: int) -> None:
    """Say the calls that a text holds as JSON: a name and arguments, or a list of such."""
    try:
        found = load(text_of(record["value"]))
    except UnreadableError:
        found = None
    asked = dicts_in(found if isinstance(found, list) else [found])
    is_told = bool(asked) and all("name" in one and "arguments" in one for one in asked)
    for one in asked if is_told else [record]:
        calls("id", "name", "arguments", "value", called="function_call")(transcript, one, line)


_FROM = {
    **dict.fromkeys(("human", "user"), (says("user", "value"),)),
    **dict.fromkeys(("gpt", "assistant", "chatgpt"), (begins, speaks("value"))),
    "system": (says("system", "value"),),
    "function_call": (_call_sharegpt,),
    **dict.fromkeys(("observation", "tool", "function_response"), (answers(["id"], "value"),)),
}
sharegpt = TableReader(
    Format.SHAREGPT, lambda record: text_in(record, "from") or None if "value" in record else None, _FROM
)

# LangChain: `messages_to_dict`, `dumpd` or `model_dump`; in lists, in a state, or one per line

_KINDS = {kind: kind for kind in ("human", "ai", "tool", "system", "function", "chat", "remove")}
_CLASSES = {f"{kind.capitalize()}Message": kind for kind in _KINDS} | {"AIMessage": "ai"}
_KINDS |= {f"{name}Chunk": kind for name, kind in _CLASSES.items()}
_ROLES = {"human": "user", "user": "user", "ai": "assistant", "assistant": "assistant", "system": "system"}
_CALL_BLOCKS = ("tool_use", "tool_call", "tool_call_chunk", "function_call", "input_json_delta")
"""Content blocks that repeat what `tool_calls` says."""
_HOLDERS = ("messages", "values", "channel_values", "kwargs")


def _first(value: Any) -> Any:
    try:
        items = _unwrap(value)
    except UnreadableError:
        return None
    return items[0] if items else None


def _fields(value: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the kind and the fields of a message; None where it is none."""
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    held: Any = None
    if kind == "constructor" and isinstance(value.get("id"), list) and value["id"]:
        name = str(value["id"][-1])
        kind, held = _CLASSES.get(name.removesuffix("Chunk")), value.get("kwargs")
    elif isinstance(kind, str):
        kind = _KINDS.get(kind)
        flat = value if "content" in value and "role" not in value else None
        held = value["data"] if isinstance(value.get("data"), dict) else flat
        if kind == "chat" and held is None and "content" in value:
            held = value
    if not isinstance(kind, str) or not isinstance(held, dict):
        return None
    return kind, held


def _unwrap(value: Any) -> list[Any]:
    """Return the list that a state, a checkpoint or an object holds."""
    for _ in range(len(_HOLDERS)):
        if isinstance(value, list):
            return value
        if not isinstance(value, dict):
            break
        value = next((value[key] for key in _HOLDERS if key in value), None)
    raise UnreadableError("expected a list of LangChain messages, or an object that holds one")


def _add_reply(transcript: Transcript, data: dict[str, Any], line: int, name: str | None) -> None:
    more = data.get("additional_kwargs")
    more = more if isinstance(more, dict) else {}
    transcript.close()
    transcript.reply(line, name=name)
    transcript.think(text_in(more, "reasoning_content"), line)
    blocks = content_blocks(data.get("content"), "blocks")
    for block in blocks:
        if block.get("type") not in _CALL_BLOCKS:
            add_block(transcript, block, line)
    for call in _calls_in(data, more, blocks):
        transcript.call(text_in(call, "id"), text_in(call, "name"), _arguments(call), line)
    transcript.close()


def _calls_in(data: dict[str, Any], more: dict[str, Any], blocks: list[Part]) -> list[dict[str, Any]]:
    """Return the calls of a reply; of one older than `tool_calls`, what it kept of what the provider sent."""
    if calls := dicts_in(data.get("tool_calls")) + dicts_in(data.get("invalid_tool_calls")):
        return calls
    held = [(call.get("id"), call.get("function")) for call in dicts_in(more.get("tool_calls"))]
    calls = [{"id": id, **(function if isinstance(function, dict) else {})} for id, function in held]
    calls += [block for block in blocks if block.get("type") in ("tool_use", "tool_call")]
    return calls + dicts_in([more.get("function_call")])


def _arguments(call: dict[str, Any]) -> Any:
    found = first_in(call, "args", "input", "arguments")
    return {} if found is None else found


class _LangChain(Reader):
    format = Format.LANGCHAIN
    id_keys = ("id", "thread_id")

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the values that are messages, or hold a list that begins with one."""
        return sum(_fields(value) is not None or _fields(_first(value)) is not None for value in sample)

    def is_item(self, value: Any) -> bool:
        return _fields(value) is not None

    def unwrap(self, value: Any) -> list[Any]:
        return _unwrap(value)

    def add(self, transcript: Transcript, item: Any, line: int) -> None:
        found = _fields(item)
        if found is None:
            is_typed = isinstance(item, dict) and "type" in item
            got = f"one of type {item['type']!r}" if is_typed else kind_of(item)
            raise UnreadableError(f"expected a LangChain message, got {got}")
        kind, data = found
        if kind == "remove":
            transcript.leave_out("removals")
            return
        name = data.get("name") if isinstance(data.get("name"), str) else None
        parts = to_parts(data.get("content")) if kind != "ai" else []
        if kind == "chat":
            role = str(data.get("role"))
            kind = {"user": "human", "assistant": "ai"}.get(_ROLES.get(role, "user"), "system")
            name = name if role in _ROLES else role
        if kind == "ai":
            _add_reply(transcript, data, line, name)
        elif kind == "tool":
            transcript.answer(text_in(data, "tool_call_id"), parts, line)
        elif kind == "function":
            transcript.say("function", parts, line, name or "function")
        else:
            transcript.say("user" if kind == "human" else "system", parts, line, name)


langchain = _LangChain()


# AgentScope: the `state_dict` of a memory, alone or inside the saved session of an application.
#
# Version 1 keeps `{"_compressed_summary", "content": [[msg, marks], ...]}`, earlier releases bare messages in
# `content`. Version 2 keeps `{"session_id", "summary", "context": [msg, ...]}`, whose replies hold calls and
# results in turn.

_MAX_DEPTH = 8
"""Levels of a state in which memories are looked for."""
_MSG_ROLES = ("user", "assistant", "system")
_Memory = tuple[str, str | list[Any], list[Any]]
"""Its name, its summary, its entries."""


def _count_own(values: Sequence[Any]) -> int:
    """Count the messages as AgentScope writes them; chat dicts may have ids and times, too."""
    keys = {"id", "metadata"}
    own = sum(_is_msg(value) and keys <= value.keys() for value in values)
    return 0 if speaks_chat(list(values)) else own


def _holds_own(value: Any) -> bool:
    if isinstance(value, list):
        return _count_own(value) > 0
    return any(
        (summary or entries) and all(_is_entry(entry) for entry in entries[:1])
        for _, summary, entries in _memories(value)
    ) or (isinstance(value, dict) and _is_state(value))


def _is_state(value: dict[str, Any]) -> bool:
    return "_compressed_summary" in value and isinstance(value.get("content"), list)


def _is_msg(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("role") not in _MSG_ROLES or "name" not in value:
        return False
    return "content" in value and ("timestamp" in value or "created_at" in value)


def _is_entry(value: Any) -> bool:
    return _is_msg(value) or (
        isinstance(value, list) and len(value) == 2 and _is_msg(value[0]) and isinstance(value[1], list)
    )


def _memories(value: Any, path: tuple[str, ...] = ()) -> Iterator[_Memory]:
    """Yield the memories in a value, by the keys that lead to them."""
    name = "/".join(key for key in path if key != "memory")
    if isinstance(value, list):
        if not path and value and _is_msg(value[0]) and "id" in value[0]:
            yield name, "", value
        return
    if not isinstance(value, dict) or len(path) > _MAX_DEPTH or _is_msg(value):
        return
    content, context = value.get("content"), value.get("context")
    if isinstance(content, list) and "role" not in value and (_is_state(value) or _has_entry(content)):
        yield name, _summary(value.get("_compressed_summary")), content
    elif isinstance(context, list) and "summary" in value and (not context or _has_entry(context)):
        yield name or text_in(value, "session_id"), _summary(value["summary"]), context
    else:
        for key, held in value.items():
            if isinstance(held, dict):
                yield from _memories(held, (*path, key))


def _has_entry(entries: list[Any]) -> bool:
    return any(_is_entry(entry) for entry in entries)


def _summary(value: Any) -> str | list[Any]:
    return value if isinstance(value, str | list) else ""


def _add(transcript: Transcript, entry: Any, line: int) -> None:
    data = entry[0] if isinstance(entry, list) and entry else entry
    data = as_object(data, "expected a message")
    if data.get("tool_calls"):
        raise UnreadableError(CALLS_OF_CHAT)
    try:
        msg = Msg.from_dict({**data, "metadata": None, "timestamp": ""})
    except InvalidMessageError as error:
        raise UnreadableError(str(error)) from None
    blocks = msg.get_content_blocks()
    if msg.role == "assistant":
        _add_whole_reply(transcript, blocks, line)
        return
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for block in results:
        transcript.answer(block["id"], result_parts(block), line)
    others = [block for block in blocks if block.get("type") != "tool_result"]
    if others or not results:
        transcript.say(msg.role, [to_part(block) for block in others], line)


def _add_whole_reply(transcript: Transcript, blocks: list[Any], line: int) -> None:
    """Add a reply; one of version 2 goes on after its results, and becomes several."""
    transcript.close()
    for block in blocks:
        kind = block.get("type")
        if kind == "thinking":
            transcript.close_said()
        if kind == "hint":
            hint = block.get("hint")
            transcript.say("user", to_parts(hint if isinstance(hint, list) else str(hint)), line)
        else:
            add_block(transcript, block, line)
    transcript.close()


class _AgentScope(Reader):
    format = Format.AGENTSCOPE

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the values that are a memory's state, or hold one, or are AgentScope's messages."""
        return _count_own(sample) or sum(map(_holds_own, sample))

    def is_item(self, value: Any) -> bool:
        return _is_entry(value)

    def unwrap(self, value: Any) -> list[_Memory]:
        memories = list(_memories(value))
        if not memories:
            found = kind_of(value)
            raise UnreadableError(f"expected the state of an AgentScope memory, got {found} without one")
        return memories

    def read(self, document: Document) -> Iterator[Session]:
        """Yield a session per memory, or one of all lines where these are messages."""
        for line, value, held in self.groups(document):
            if value is None:
                yield self._read_memory(document, "", "", list(held))
            else:
                for name, summary, entries in held:
                    numbered = [(line, entry) for entry in entries]
                    yield self._read_memory(document, name, summary, numbered, line)

    def _read_memory(
        self,
        document: Document,
        name: str,
        summary: str | list[Any],
        entries: list[Numbered],
        held_at: int | None = None,
    ) -> Session:
        marks = [entry[1] for _, entry in entries if isinstance(entry, list) and len(entry) == 2]
        is_repeated = any(isinstance(marked, list) and "compressed" in marked for marked in marks)
        transcript = Transcript()
        if summary and is_repeated:
            transcript.note("the summary is left out: the messages that it stands for are all there")
        elif summary:
            transcript.say("user", to_parts(summary), entries[0][0] if entries else 1)
        for index, (line, entry) in enumerate(entries):
            with document.reading(transcript, line, f"content[{index}]: "):
                _add(transcript, entry, line)
        return self.session(document, transcript, name, held_at)


agentscope = _AgentScope()


READERS = (openhands, swe_agent, inspect, pydantic_ai, autogen, sharegpt, agentscope, langchain)
