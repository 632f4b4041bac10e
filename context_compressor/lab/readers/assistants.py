"""Sessions of assistants, by tables: ATIF, ChatGPT, Continue, Copilot CLI, Factory Droid, Goose, Kimi CLI.

The tables follow these programs' own sources and specifications: `message.rs` of Goose, `context.py` of Kimi
CLI, `session-events.schema.json` of Copilot's SDK, `index.d.ts` of Continue, the RFC of ATIF. The sources of
Factory Droid and ChatGPT are not public; theirs follow what several public readers of their files agree upon.
"""

from __future__ import annotations

from typing import Any

from context_compressor.lab.readers.apis import add_assistant, add_user
from context_compressor.lab.readers.session import Format
from context_compressor.lab.readers.tables import (
    TableReader,
    answers,
    begins,
    bookkeeping,
    by,
    calls,
    compacts,
    each,
    fails,
    goes_on,
    keep_path,
    names,
    parts_of,
    pick,
    says,
    speaks,
    text_of,
    thinks,
    titled,
)
from context_compressor.lab.readers.transcript import Part, Transcript, dicts_in, text_in


def _role_of(record: dict[str, Any]) -> str | None:
    return text_in(record, "role") or None if "content" in record else None


_CHAT_CALL = (calls("id", "function.name", "function.arguments"),)

# ATIF: the trajectories of Harbor and Terminal-Bench

_OBSERVED = each(
    "observation.results",
    lambda _: "result",
    {"result": (answers(["source_call_id"], "content", "subagent_trajectory_ref"),)},
)

atif = TableReader(
    Format.ATIF,
    lambda record: text_in(record, "source") or None if "step_id" in record else None,
    {
        "system": (says("system", "message"), _OBSERVED),
        "user": (says("user", "message"), _OBSERVED),
        "agent": (
            begins,
            thinks("reasoning_content"),
            speaks("message"),
            each(
                "tool_calls",
                by("tool_call_id"),
                {},
                (calls("tool_call_id", "function_name", "arguments"),),
            ),
            _OBSERVED,
        ),
    },
)

# ChatGPT: `conversations.json` of an export

_NO_MESSAGE = "nodes without a message"
_CHATGPT = ("message.content.parts", "message.content.text", "message.content.result")


def _chatgpt_kind(record: dict[str, Any]) -> str | None:
    if "message" not in record or "children" not in record:
        return None
    role, kind = pick(record, "message.author.role"), pick(record, "message.content.content_type")
    if record["message"] is None or kind == "reasoning_recap":
        return _NO_MESSAGE
    if role == "system" and pick(record, *_CHATGPT) in (None, [""]):  # the empty first message
        return _NO_MESSAGE
    is_call = role == "assistant" and pick(record, "message.recipient") not in (None, "all")
    return "call" if is_call else str(role)


def _call_chatgpt(transcript: Transcript, record: Any, line: int) -> None:
    asked = "".join(text_in(part, "text") for part in parts_of(pick(record, *_CHATGPT)))
    transcript.call(transcript.make_id(), str(pick(record, "message.recipient")), {"input": asked}, line)


chatgpt = TableReader(
    Format.CHATGPT,
    _chatgpt_kind,
    {
        "system": (says("system", *_CHATGPT),),
        "user": (
            says("user", "message.content.user_profile"),
            says("user", "message.content.user_instructions"),
            says("user", *_CHATGPT),
        ),
        "assistant": (
            goes_on,
            each(
                "message.content.thoughts", lambda _: "thought", {"thought": (thinks("content", "summary"),)}
            ),
            speaks(*_CHATGPT),
        ),
        "call": (_call_chatgpt,),
        "tool": (answers([], *_CHATGPT),),
        **bookkeeping(_NO_MESSAGE),
    },
    keep_path("id", "parent"),
)

# Continue: `~/.continue/sessions`


def _say_continue(transcript: Transcript, record: Any, line: int) -> None:
    """Add a request, with the files that stood before it in the prompt."""
    attached = [
        part for item in dicts_in(record.get("contextItems")) for part in parts_of(item.get("content"))
    ]
    said = [*attached, *parts_of(pick(record, "message.content"))]
    if said:
        transcript.say("user", said, line)


def _answer_continue(transcript: Transcript, state: Any, line: int) -> None:
    output = dicts_in(pick(state, "output"))
    if output:  # else the result is a message of its own
        parts = [part for item in output for part in parts_of(item.get("content"))]
        transcript.answer(text_in(state, "toolCallId"), parts, line)
    else:
        transcript.leave_out("states of calls")


continue_ = TableReader(
    Format.CONTINUE,
    lambda record: text_of(pick(record, "message.role")) if "contextItems" in record else None,
    {
        "system": (says("system", "message.content"),),
        "user": (_say_continue,),
        "thinking": (goes_on, thinks("message.content")),
        "assistant": (
            goes_on,
            thinks("reasoning.text"),
            speaks("message.content"),
            each("message.toolCalls", by("id"), {}, _CHAT_CALL),
            each("toolCallStates", by("toolCallId"), {}, (_answer_continue,)),
            each("toolCallState", by("toolCallId"), {}, (_answer_continue,)),  # older sessions
        ),
        "tool": (answers(["message.toolCallId"], "message.content"),),
    },
)

# Copilot CLI: `events.jsonl` in `~/.copilot/session-state`


def _copilot_kind(record: dict[str, Any]) -> str | None:
    kind, data = text_in(record, "type"), record.get("data")
    if ("." not in kind and kind not in _COPILOT) or not isinstance(data, dict):
        return None
    is_said = kind in _COPILOT or "content" in data
    return kind if is_said else "other events"


_COPILOT = {
    "session.start": (names("data.sessionId"),),
    "session.title_changed": (titled("data.title"), *bookkeeping("other events")["other events"]),
    "system.message": (says("system", "data.content"),),
    "user.message": (says("user", "data.content"),),
    "skill.invoked": (says("user", "data.content"),),
    "system.notification": (says("user", "data.content"),),
    "assistant.message": (
        begins,
        thinks("data.reasoningText"),
        speaks("data.content"),
        each("data.toolRequests", by("toolCallId"), {}, (calls("toolCallId", "name", "arguments"),)),
    ),
    "tool.execution_complete": (
        answers(["data.toolCallId"], "data.result.content", "data.result", "data.error.message"),
    ),
    "session.compaction_complete": (compacts("data.summaryContent"),),
    **bookkeeping("abort", "assistant.reasoning", "assistant.message_delta", "assistant.reasoning_delta"),
    **bookkeeping("other events"),
}
copilot = TableReader(Format.COPILOT, _copilot_kind, _COPILOT)

# Factory Droid: `~/.factory/sessions`, and `droid exec --output-format stream-json`


def _droid_role(record: dict[str, Any]) -> str | None:
    """Return the kind of a message. Sessions of other programs may have the same."""
    role, kind = pick(record, "message.role") or pick(record, "role"), text_in(record, "type")
    is_streamed = "session_id" in record and "text" in record
    if kind != "message" or not (isinstance(record.get("message"), dict) or is_streamed):
        return None
    return f"{'text' if is_streamed else 'message'} of {role}"


def _droid_kind(record: dict[str, Any]) -> str | None:
    kind = text_in(record, "type")
    marks = {"session_start": "id", "tool_call": "toolName", "completion": "finalText"}
    marks |= {
        "error": "source",
        "compaction_state": "summaryText",
        "todo_state": "todos",
        "tool_result": "toolId",
    }
    blocks = {text_in(block, "type") for block in dicts_in(pick(record, "message.content"))}
    if kind == "message" and blocks & {"tool_use", "tool_result"}:
        return _droid_role(record)
    return kind if marks.get(kind) in record else None


def _call_droid(transcript: Transcript, record: Any, line: int) -> None:
    calls("toolCallId" if "toolCallId" in record else "id", "toolName", "parameters")(
        transcript, record, line
    )


droid = TableReader(
    Format.DROID,
    _droid_kind,
    {
        "session_start": (names("id"), titled("title")),
        "message of user": (
            lambda transcript, record, line: add_user(transcript, pick(record, "message.content"), line),
        ),
        "message of assistant": (
            begins,
            lambda transcript, record, line: add_assistant(transcript, pick(record, "message.content"), line),
        ),
        "compaction_state": (compacts("summaryText"),),
        "text of user": (says("user", "text"),),
        "text of assistant": (goes_on, speaks("text")),
        "tool_call": (_call_droid,),
        "tool_result": (answers(["toolCallId", "id"], "value", "error"),),
        "system": (names("session_id"),),
        "error": (fails("message"),),
        **bookkeeping("todo_state", "completion"),
    },
    among=lambda record: "system" if record.get("type") == "system" else _droid_role(record),
    spreads=True,
)

# Goose: `sessions/*.jsonl`, and `goose session export --format json`

_GOOSE_ASIDE = ("toolConfirmationRequest", "actionRequired", "systemNotification", "conversationCompacted")
_GOOSE_CALL = (
    calls("id", "toolCall.value.name", "toolCall.value.arguments", "toolCall.error", called="invalid_call"),
)
_GOOSE_TYPES = {
    **dict.fromkeys(("toolRequest", "frontendToolRequest"), _GOOSE_CALL),
    "thinking": (thinks("thinking"),),
    "reasoning": (thinks("text"),),
    **bookkeeping("redactedThinking", *_GOOSE_ASIDE),
}


def _goose_kind(record: dict[str, Any]) -> str | None:
    if "working_dir" in record and "role" not in record:
        return "header"
    blocks = {text_in(block, "type") for block in dicts_in(record.get("content"))}
    return _role_of(record) if blocks & {"toolRequest", "toolResponse", *_GOOSE_ASIDE} else None


def _say_goose(transcript: Transcript, record: Any, line: int) -> None:
    """Add the contents of a user's message: results of calls, and words of the user."""
    said: list[Part] = []
    for block in record["content"] if isinstance(record["content"], list) else [record["content"]]:
        kind = text_in(block, "type") if isinstance(block, dict) else ""
        if kind == "toolResponse":
            found = ("toolResult.value.content", "toolResult.value", "toolResult.error", "toolResult")
            answers(["id"], *found)(transcript, block, line)
        elif kind in _GOOSE_ASIDE:
            transcript.leave_out(kind)
        else:
            said += parts_of(block)
    if said:
        transcript.say("user", said, line)


goose = TableReader(
    Format.GOOSE,
    _goose_kind,
    {
        "header": (names("id", "description"), titled("description")),
        "user": (_say_goose,),
        "assistant": (begins, each("content", by("type"), _GOOSE_TYPES)),
    },
    among=_role_of,
    spreads=True,
)

# Kimi CLI: `context.jsonl` in `~/.kimi/sessions`

kimi = TableReader(
    Format.KIMI,
    lambda record: role if (role := text_in(record, "role")).startswith("_") else None,
    {
        **dict.fromkeys(("_system_prompt", "system"), (says("system", "content"),)),
        "user": (says("user", "content"),),
        "assistant": (
            begins,
            each("content", by("type"), {"think": (thinks("think"),)}),
            each("tool_calls", by("id"), {}, _CHAT_CALL),
        ),
        "tool": (answers(["tool_call_id"], "content"),),
        **bookkeeping("_checkpoint", "_usage"),
    },
    among=_role_of,
    spreads=True,
)

READERS = (atif, chatgpt, continue_, copilot, droid, goose, kimi)
