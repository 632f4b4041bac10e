"""Messages of frameworks and benchmarks, by tables.

The tables follow what these programs' own sources write: `events/serialization/event.py` of OpenHands and
`sdk/event` of its SDK, `types.py` of SWE-agent, `_chat_message.py` of Inspect, `messages.py` of Pydantic AI
and of AutoGen's AgentChat. That of ShareGPT follows the data sets that have its keys.
"""

from __future__ import annotations

from typing import Any

from context_compressor.lab.readers.documents import load
from context_compressor.lab.readers.session import Format, UnreadableError
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
from context_compressor.lab.readers.transcript import Transcript, dicts_in, text_in, text_part

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

READERS = (openhands, swe_agent, inspect, pydantic_ai, autogen, sharegpt)
