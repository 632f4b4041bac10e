"""Sessions of coding agents, by tables: Codex exec, Cursor, Gemini CLI, opencode and pi.

The tables follow what these programs' own sources write: `exec_events.rs` of Codex, `output/types.ts` and
`chatRecordingTypes.ts` of Gemini CLI, `message-v2.ts` of opencode, `session-manager.ts` of pi. The source of
Cursor is not public; its table follows what several public readers of its transcripts agree upon.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from context_compressor.lab.readers.apis import add_assistant, add_item, add_user, is_item
from context_compressor.lab.readers.documents import Document, Numbered
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
    fails,
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
from context_compressor.lab.readers.transcript import Transcript, as_object, dicts_in, text_in, text_part

# Codex: `codex exec --json`

_DONE = {
    "agent_message": (begins, speaks("text")),
    "plan": (begins, speaks("text")),
    "reasoning": (begins, thinks("text")),
    "command_execution": (
        calls("id", "", "command", called="command_execution", result=("aggregated_output", "exit_code")),
    ),
    "file_change": (calls("id", "", "changes", called="file_change", result=("status",)),),
    "mcp_tool_call": (
        calls(
            "id", "tool", "arguments", result=("result.content", "result.structured_content", "error.message")
        ),
    ),
    "collab_tool_call": (calls("id", "tool", "prompt", result=("agents_states", "status")),),
    "web_search": (calls("id", "", "query", called="web_search", result=("action",)),),
    **bookkeeping("todo_list", "error"),
}


def _event(record: dict[str, Any]) -> str | None:
    kind = text_in(record, "type")
    needed = {"thread.started": "thread_id", "item.started": "item", "item.completed": "item"}
    return kind if "payload" not in record and needed.get(kind, "type") in record else None


codex_exec = TableReader(
    Format.CODEX_EXEC,
    _event,
    {
        "thread.started": (names("thread_id"),),
        "item.completed": (each("item", by("type"), _DONE),),
        **bookkeeping("turn.started", "turn.completed", "turn.failed", "item.started", "item.updated"),
        **bookkeeping("item.plan.delta", "request_user_input"),
    },
)

# Cursor: `~/.cursor/projects/*/agent-transcripts`, and `--output-format stream-json`


def _cursor_kind(record: dict[str, Any]) -> str | None:
    kind = text_in(record, "type", "role")
    if kind in ("user", "assistant"):
        is_stream = "session_id" in record and "uuid" not in record
        return (
            kind if isinstance(record.get("message"), dict) and (is_stream or "type" not in record) else None
        )
    if kind == "tool_call" and "call_id" in record:
        return f"tool_call {text_in(record, 'subtype')}"
    if kind == "thinking" and "session_id" in record:
        return f"thinking {text_in(record, 'subtype')}"
    if kind == "turn_ended":
        return kind if "status" in record else None
    if "type" not in record and kind == "system":
        return "system message" if isinstance(record.get("message"), dict) else None
    return kind if kind in ("system", "result") and "session_id" in record else None


def _say_cursor(transcript: Transcript, record: Any, line: int) -> None:
    content = record["message"].get("content")
    results = [block for block in dicts_in(content) if block.get("type") == "tool_result"]
    named = {text_in(block, "tool_use_id") for block in results}
    pending = dict(transcript.pending)
    waiting = iter([call_id for call_id in pending if call_id not in named])

    def answering(block: Any) -> Any:
        """Return a result under the id of a call: those have none in the file."""
        if block not in results or text_in(block, "tool_use_id") in pending:
            return block
        return {**block, "tool_use_id": next(waiting, block.get("tool_use_id"))}

    content = [answering(block) for block in content] if isinstance(content, list) else content
    add_user(transcript, content, line)


def _reply_cursor(transcript: Transcript, record: Any, line: int) -> None:
    content = record["message"].get("content")
    if isinstance(content, list):
        content = [
            {"id": transcript.make_id(), **block} if _is_nameless(block) else block for block in content
        ]
    add_assistant(transcript, content, line)


def _is_nameless(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_use" and "id" not in block


def _call_cursor(transcript: Transcript, record: Any, line: int) -> None:
    """Say a call, whose tool is the one key of what it holds."""
    called = as_object(record.get("tool_call"), "tool_call: expected an object")
    name, held = next(iter(called.items()), ("", {}))
    told = {
        "id": record["call_id"],
        "name": name.removesuffix("ToolCall"),
        **(held if isinstance(held, dict) else {}),
    }
    found = ("result.success.content", "result.success", "result.error", "result")
    calls("id", "name", "args", "arguments", result=found)(transcript, told, line)


def _think_cursor(transcript: Transcript, record: Any, line: int) -> None:
    transcript.close_said()
    transcript.think(text_in(record, "text"), line, is_delta=True)


def _prune_cursor(transcript: Transcript, items: list[Numbered]) -> list[Numbered]:
    """Note where no results are; tell calls that are done with the arguments with which they began, and
    texts that came in pieces, then whole, once.
    """
    records = [item for _, item in items if isinstance(item, dict)]
    kinds = {text_in(block, "type") for one in records for block in dicts_in(pick(one, "message.content"))}
    if "tool_use" in kinds and "tool_result" not in kinds:
        transcript.note("results of tools are not in the file")
    begun: dict[tuple[str, str], Any] = {}
    kept: list[Numbered] = []
    pieces: list[str] = []
    """The texts that stand last among those kept, nothing between them."""
    for line, item in items:
        text = _streamed(item)
        at = _piece_from(pieces, text)
        if at is not None:
            transcript.leave_out("pieces of texts that follow whole", len(pieces) - at)
            del kept[at - len(pieces) :], pieces[at:]
        if text:
            pieces.append(text)
        else:
            pieces = []
        kept.append((line, _with_arguments(item, begun)))
    return kept


def _streamed(record: Any) -> str:
    """Return the text of a record of a stream that has one and nothing else."""
    is_reply = isinstance(record, dict) and record.get("type") == "assistant" and "session_id" in record
    content = pick(record, "message.content") if is_reply else None
    is_text = isinstance(content, list) and len(content) == 1 and pick(content, "0.type") == "text"
    return text_in(content[0], "text") if isinstance(content, list) and is_text else ""


def _piece_from(pieces: list[str], whole: str) -> int | None:
    """Return from which piece on all of them make up a whole, if they do."""
    if not whole:
        return None
    length = 0
    for at in range(len(pieces) - 1, -1, -1):
        length += len(pieces[at])
        if length >= len(whole):
            return at if "".join(pieces[at:]) == whole else None
    return None


def _with_arguments(record: Any, begun: dict[tuple[str, str], Any]) -> Any:
    """Return a record whose call has the arguments with which it began; `begun` keeps those."""
    called = record.get("tool_call") if isinstance(record, dict) else None
    if not isinstance(called, dict):
        return record
    told = {}
    for name, held in called.items():
        key = text_in(record, "call_id"), name
        if isinstance(held, dict) and "args" in held:
            begun.setdefault(key, held["args"])
        elif isinstance(held, dict) and key in begun:
            held = {**held, "args": begun[key]}
        told[name] = held
    return {**record, "tool_call": told}


cursor = TableReader(
    Format.CURSOR,
    _cursor_kind,
    {
        "user": (_say_cursor,),
        "assistant": (begins, _reply_cursor),
        "tool_call completed": (_call_cursor,),
        "thinking delta": (_think_cursor,),
        "system message": (says("system", "message.content"),),
        "system": (names("session_id"), *bookkeeping("system")["system"]),
        **bookkeeping("tool_call started", "thinking completed", "result", "turn_ended"),
    },
    _prune_cursor,
)

# Gemini CLI: saved chats, and `--output-format stream-json`


_STREAMED = {"type", "timestamp", "role", "content", "delta"}
"""Keys of a message in a stream; others have such messages with more."""


def _gemini_kind(record: dict[str, Any]) -> str | None:
    kind = text_in(record, "type")
    if "sessionId" in record and "projectHash" in record:
        return "session"
    if "$set" in record or "$rewindTo" in record:
        return "update"
    if kind in ("user", "gemini", "info", "warning"):
        return kind if "content" in record and "id" in record and "message" not in record else None
    if kind == "message" and isinstance(record.get("content"), str) and record.keys() <= _STREAMED:
        return "message of " + text_in(record, "role")
    if kind == "error":
        return kind if "content" in record or "severity" in record else None
    needed = {"init": "session_id", "tool_use": "tool_id", "tool_result": "tool_id", "result": "status"}
    return kind if kind in needed and needed[kind] in record and "message" not in record else None


def _think_gemini(transcript: Transcript, record: Any, line: int) -> None:
    transcript.think(
        "\n".join(filter(None, (text_in(record, "subject"), text_in(record, "description")))), line
    )


def _speak_gemini(transcript: Transcript, record: Any, line: int) -> None:
    """Say the content but its calls, which `toolCalls` tells with their results."""
    content = record.get("content")
    parts = content if isinstance(content, list) else [content]
    spoken = [part for part in parts if not (isinstance(part, dict) and "functionCall" in part)]
    if len(spoken) < len(parts):
        transcript.leave_out("functionCall in content", len(parts) - len(spoken))
    transcript.speak(parts_of(spoken), line)


def _prune_gemini(transcript: Transcript, items: list[Numbered]) -> list[Numbered]:
    """Take back what was rewound or set anew; of records with one id the last stands for all."""
    kept: dict[str, Numbered] = {}
    for place, (line, item) in enumerate(items):
        rewound = text_in(item, "$rewindTo") if isinstance(item, dict) else ""
        if rewound in kept:
            for name in list(kept)[list(kept).index(rewound) :]:
                del kept[name]
                transcript.leave_out("rewound records")
        anew = pick(item, "$set.messages")
        states = [(line, item)]
        if isinstance(anew, list):
            same = {text_in(one, "id") for one in dicts_in(anew)}
            for name in [
                name for name, (_, old) in kept.items() if text_in(old, "type") and name not in same
            ]:
                del kept[name]
                transcript.leave_out("records that a later state lacks")
            states += [(line, one) for one in anew]
        for number, (_, one) in enumerate(states):
            name = text_in(one, "id") if isinstance(one, dict) else ""
            if name in kept:
                transcript.leave_out("earlier states of records")
            kept[name or f"place {place}, {number}"] = (kept[name][0] if name in kept else line), one
    return list(kept.values())


_GEMINI_CALL = calls("id", "name", "args", result=("result", "resultDisplay"))
gemini = TableReader(
    Format.GEMINI,
    _gemini_kind,
    {
        "session": (names("sessionId"), titled("summary")),
        "update": (titled("$set.summary"), *bookkeeping("update")["update"]),
        "user": (says("user", "content"),),
        "gemini": (
            begins,
            each("thoughts", lambda _: "thought", {"thought": (_think_gemini,)}),
            _speak_gemini,
            each("toolCalls", lambda _: "call", {"call": (_GEMINI_CALL,)}),
        ),
        "init": (names("session_id"),),
        "message of user": (says("user", "content"),),
        "message of assistant": (speaks("content"),),
        "tool_use": (calls("tool_id", "tool_name", "parameters"),),
        "tool_result": (answers(["tool_id"], "output", "error.message", "status"),),
        **bookkeeping("info", "warning", "error", "result"),
    },
    _prune_gemini,
)

# opencode: `opencode export`, and `opencode run --format json`


_STEPS = ("step-finish", "snapshot", "patch", "agent", "retry", "compaction")
"""Types of parts without content."""


def _file_of(part: Any) -> list[dict[str, Any]]:
    """Return an image, or the name of another file."""
    is_image = text_in(part, "mime").startswith("image")
    return parts_of(part) if is_image else [text_part(text_in(part, "filename", "url"))]


def _say_opencode(transcript: Transcript, record: Any, line: int) -> None:
    parts = []
    for part in dicts_in(record.get("parts")):
        kind = part.get("type")
        if kind == "compaction":
            transcript.compact()
        if kind in ("text", "subtask"):
            said = parts_of(pick(part, "text", "prompt"))
            parts += said
            if not said:
                transcript.miss(f"{kind} in parts")
        elif kind == "file":
            parts += _file_of(part)
        elif kind in _STEPS:
            transcript.leave_out(f"{kind}")
        else:
            parts += parts_of(part)
    if parts:
        transcript.say("user", parts, line)


def _note_summary(transcript: Transcript, record: Any, _line: int) -> None:
    if pick(record, "info.summary") is True:
        transcript.compact()


_PART = {
    "text": (speaks("text"),),
    "reasoning": (thinks("text"),),
    "tool": (calls("callID", "tool", "state.input", result=("state.output", "state.error")),),
    "file": (lambda transcript, part, line: transcript.speak(_file_of(part), line),),
    "step-start": (begins, *bookkeeping("step-start")["step-start"]),
    **bookkeeping(*_STEPS),
}


def _opencode_kind(record: dict[str, Any]) -> str | None:
    info = record.get("info")
    if isinstance(info, dict) and isinstance(record.get("parts"), list):
        return text_in(info, "role") or None
    is_event = isinstance(record.get("part"), dict) and "sessionID" in record
    return "event" if is_event else "error" if "sessionID" in record and "error" in record else None


def _prune_opencode(transcript: Transcript, items: list[Numbered]) -> list[Numbered]:
    """Leave out earlier states of a call that a stream tells of several times."""
    last = {call_id: place for place, (_, item) in enumerate(items) if (call_id := pick(item, "part.callID"))}
    kept = [
        item for place, item in enumerate(items) if last.get(pick(item[1], "part.callID"), place) == place
    ]
    if len(kept) < len(items):
        transcript.leave_out("earlier states of calls", len(items) - len(kept))
    return kept


opencode = TableReader(
    Format.OPENCODE,
    _opencode_kind,
    {
        "user": (_say_opencode,),
        "assistant": (_note_summary, fails("info.error"), begins, each("parts", by("type"), _PART)),
        "event": (names("sessionID"), each("part", by("type"), _PART)),
        **bookkeeping("error"),
    },
    _prune_opencode,
)

# pi: `~/.pi/agent/sessions`

_SAID = {
    "text": (speaks("text"),),
    "thinking": (thinks("thinking"),),
    "toolCall": (calls("id", "name", "arguments"),),
}


_CUSTOM = "state of an extension"


def _say_command(transcript: Transcript, record: Any, line: int) -> None:
    message = record["message"]
    ran = f"Ran `{text_in(message, 'command')}`\n{text_of(message.get('output') or '')}"
    transcript.say("user", [text_part(ran)], line)


def _pi_kind(record: dict[str, Any]) -> str | None:
    message = record.get("message")
    kind = text_in(record, "type")
    if kind == "message":
        return f"message of {text_in(message, 'role')}" if isinstance(message, dict) else None
    return (_CUSTOM if kind == "custom" else kind) if "timestamp" in record else None


pi = TableReader(
    Format.PI,
    _pi_kind,
    {
        "session": (names("id"),),
        "message of user": (says("user", "message.content"),),
        "message of assistant": (
            fails("message.errorMessage"),
            begins,
            each("message.content", by("type"), _SAID),
        ),
        "message of toolResult": (answers(["message.toolCallId"], "message.content"),),
        "message of bashExecution": (_say_command,),
        "message of custom": (says("user", "message.content"),),
        "message of hookMessage": (says("user", "message.content"),),
        "compaction": (compacts("summary"),),
        "branch_summary": (says("user", "summary"),),
        "custom_message": (says("user", "content"),),
        "session_info": (titled("name"), *bookkeeping("session_info")["session_info"]),
        **bookkeeping("model_change", "thinking_level_change", "label"),
        **bookkeeping("context_transform", "ephemeral", _CUSTOM),
    },
    keep_path("id", "parentId"),
)

# Codex rollouts: JSONL, since September 2025 `{timestamp, type, payload}`, before that bare items.
#
# The conversation is in the response items; events repeat it for people and are passed over, save for the one
# that takes turns back. The instructions in `session_meta` are no message. Compaction leaves earlier items in
# place, and so do we; its summary follows as a user message, and where nothing precedes it, what it kept.

_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_CONTEXT = ("<environment_context>", "<user_instructions>", "# AGENTS.md", "<turn_aborted>", "<skill>")
"""How user messages begin that Codex itself wrote; they begin no turn."""


def _is_line(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if value.get("type") in _TYPES:
        return isinstance(value.get("payload"), dict)
    return value.get("record_type") == "state" or _is_header(value)


def _is_header(value: dict[str, Any]) -> bool:
    """Tell whether a value is the first line of the older form."""
    keys = {"id", "timestamp"}
    return keys <= value.keys() and value.keys() <= keys | {"instructions", "git", "cwd", "cli_version"}


class _Codex(Reader):
    format = Format.CODEX

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the lines of a rollout, of either form: bare items where a header stands before them."""
        lines = sum(map(_is_line, sample))
        return lines + sum(map(is_item, sample)) if lines else 0

    def read(self, document: Document) -> Iterator[Session]:
        """Yield the one session of a rollout."""
        rollout = _Rollout()
        for line, value in document.values():
            with document.reading(rollout.transcript, line):
                rollout.add(line, value)
        yield self.session(document, rollout.transcript, rollout.id)


codex = _Codex()


class _Rollout:
    def __init__(self) -> None:
        self.transcript = Transcript()
        self.id: str | None = None
        self._items = 0
        self._turns: list[tuple[int, int]] = []
        """Of each turn, how many messages and how many items stand before it."""

    def add(self, line: int, value: Any) -> None:
        value = as_object(value, "expected a line of a rollout")
        kind = value.get("type")
        if kind is None:
            if _is_header(value):
                self._name(value)
            elif "record_type" in value:
                self.transcript.leave_out("state")
            else:
                raise UnreadableError("type: expected the type of a line, but it is missing")
        elif "payload" not in value:
            self._add_item(line, value)
        else:
            self._add_payload(line, kind, as_object(value["payload"], "payload: expected an object"))

    def _add_payload(self, line: int, kind: object, payload: dict[str, Any]) -> None:
        if kind == "session_meta":
            self._name(payload)
        elif kind == "response_item":
            self._add_item(line, payload)
        elif kind == "compacted":
            self._compact(line, payload)
        elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
            self._roll_back(payload.get("num_turns"))
        elif kind == "event_msg" and payload.get("type") == "thread_name_updated":
            self.transcript.title = text_in(payload, "thread_name")
            self.transcript.told += 1
        elif kind not in _TYPES and ("content" in payload or is_item(payload)):
            raise UnreadableError(f"type: {kind!r} is none of an item, and yet it holds one")
        else:
            self.transcript.leave_out(f"{kind}")

    def _name(self, meta: dict[str, Any]) -> None:
        # A fork repeats its parent's first line after its own.
        if self.id is None and isinstance(meta.get("id"), str):
            self.id = meta["id"]
        self.transcript.told += 1

    def _add_item(self, line: int, item: dict[str, Any]) -> None:
        before = len(self.transcript), self._items
        add_item(self.transcript, item, line)
        self._items += 1
        if item.get("role") == "user" and not _is_context(item):
            self._turns.append(before)

    def _compact(self, line: int, payload: dict[str, Any]) -> None:
        kept = payload.get("replacement_history")
        self.transcript.compact()
        if not len(self.transcript) and isinstance(kept, list) and kept:
            for item in kept:
                self._add_item(line, item)
            return
        message = text_in(payload, "message")
        if message:
            self.transcript.say("user", [text_part(message)], line)
        if kept or not message:
            self.transcript.leave_out("history that compaction repeats" if kept else "compacted")

    def _roll_back(self, turns: object) -> None:
        if isinstance(turns, int) and turns > 0 and self._turns:
            number = min(turns, len(self._turns))
            length, items = self._turns[-number]
            self.transcript.truncate(length)
            self.transcript.leave_out("items of turns that were rolled back", self._items - items)
            del self._turns[-number:]
            self._items = items
        else:
            self.transcript.leave_out("event_msg")


def _is_context(item: dict[str, Any]) -> bool:
    first = dicts_in(item.get("content"))[:1]
    return any(text_in(part, "text").lstrip().startswith(_CONTEXT) for part in first)


READERS = (codex_exec, cursor, gemini, opencode, pi)
