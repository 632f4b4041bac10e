"""Claude Code sessions: JSONL, a record per line, linked by `uuid` and `parentUuid`.

The format is not documented by its maker; what is relied upon here is what several public readers of it agree
upon. A block of a reply has a record of its own, under the reply's message id. Sub-agents ("sidechains") are
conversations of their own: one session each. What a person went back from ("rewound") stays in the file as a
branch; it is no part of the conversation that went on, so it is left out, and the session says how much.
Compaction leaves everything in place and adds a summary as a user message, and so do we. What the program
attached to a message (files, changes, what hooks said) stands behind it as a message of the user.

Records of the `stream-json` output of `claude -p` are read, too; they have no links.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from context_compressor.lab.readers.apis import add_assistant, add_user, blocks_of
from context_compressor.lab.readers.documents import Document
from context_compressor.lab.readers.reader import Reader
from context_compressor.lab.readers.session import Format, Session, UnreadableError
from context_compressor.lab.readers.transcript import (
    API_ERRORS,
    Part,
    Transcript,
    as_object,
    dicts_in,
    first_in,
    keys_of,
    opaque_part,
    text_in,
    text_part,
    to_part,
)

_LINKS = ("uuid", "parentUuid", "sessionId", "session_id")
_BOOKKEEPING = {"summary": "leafUuid", "file-history-snapshot": "snapshot", "queue-operation": "operation"}
_TITLES = ("customTitle", "aiTitle", "summary")
"""Records by which a file is known that begins with nothing else: type, and a key that they have."""
_ATTACHED = ("prompt", "content", "snippet", "text", "planContent")
"""Keys under which an attachment keeps its text. If it has none of them, all its texts of several words
count."""
_SYNTHETIC = "<synthetic>"
"""The name of the model in a reply that the program wrote itself."""
_BOUNDARY = "compact_boundary"


@dataclass(slots=True)
class _Record:
    """A record that is a message, or a link between messages."""

    line: int
    role: str | None
    """None for what is only a link."""
    kind: str
    is_attached: bool = False
    """Whether the program attached it; a person may have typed it while the model worked."""
    content: Any = None
    message_id: str | None = None
    uuid: str | None = None
    parent: str | None = None
    is_meta: bool = False

    @property
    def is_link(self) -> bool:
        """Whether it only links others, as branches are told apart."""
        return self.role is None or self.is_attached

    @property
    def has_calls(self) -> bool:
        """Whether the model called a tool in it."""
        return self.role == "assistant" and any(
            block.get("type") == "tool_use" for block in dicts_in(self.content)
        )

    @property
    def are_results(self) -> list[bool]:
        """Tell of each block of a user's message whether it is a tool result."""
        if self.role != "user" or not isinstance(self.content, list):
            return []
        return [isinstance(block, dict) and block.get("type") == "tool_result" for block in self.content]


def _is_record(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    if not isinstance(kind, str):
        return False
    if kind in ("user", "assistant"):
        return isinstance(value.get("message"), dict) and any(key in value for key in _LINKS)
    return _BOOKKEEPING.get(kind, "sessionId") in value or (kind == "system" and "session_id" in value)


def _agent_of(value: dict[str, Any], record: _Record, agent_of: dict[str, str], known: int) -> str | None:
    tool = value.get("parent_tool_use_id")
    if not value.get("isSidechain") and not tool:
        return None
    named = value.get("agentId") or tool
    if isinstance(named, str):
        return f"agent-{named}"
    return agent_of.get(record.parent or "") or f"agent-{known + 1}"


def _read_record(line: int, value: Any) -> _Record:
    value = as_object(value, "expected a record of Claude Code")
    kind = value.get("type")
    is_linked = _is_record(value) or any(key in value for key in (*_LINKS, "messageId"))
    if not isinstance(kind, str) or not (is_linked or kind in ("user", "assistant")):
        raise UnreadableError(f"expected a record of Claude Code ({keys_of(value)})")
    uuid, parent = text_in(value, "uuid") or None, text_in(value, "parentUuid") or None
    record = _Record(line, None, kind, uuid=uuid, parent=parent)
    record.is_meta = bool(value.get("isMeta"))
    if kind in ("user", "assistant"):
        message = as_object(value.get("message"), "message: expected an object")
        if "parts" in message and "content" not in message:
            raise UnreadableError("message.parts: looks like a session of Qwen Code, which is not read")
        blocks_of(message.get("content"))
        record.message_id = text_in(message, "id") or None
        if value.get("isApiErrorMessage") is True or message.get("model") == _SYNTHETIC:
            record.kind = API_ERRORS
        else:
            record.role, record.content = kind, message.get("content")
    elif kind == "attachment":
        held = value.get("attachment")
        held = held if isinstance(held, dict) else {}
        parts = _attached_parts(held)
        record.kind = f"attachment without words, {text_in(held, 'type') or 'of no type'}"
        if parts:
            record.role, record.content, record.is_attached = "user", parts, True
    elif kind == "system" and str(value.get("subtype")).endswith(_BOUNDARY):
        record.kind = _BOUNDARY
    elif isinstance(value.get("message"), dict) or "role" in value:
        raise UnreadableError(f"type: {kind!r} is none of a message, and yet it holds one")
    return record


def _attached_parts(held: dict[str, Any]) -> list[Part]:
    """Return what an attachment says, behind the name of its file where it has one."""
    is_plain = any(key in held for key in _ATTACHED)
    parts = _parts_in(first_in(held, *_ATTACHED)) if is_plain else [*map(text_part, _words_in(held))]
    name = text_in(held, "displayPath", "filename")
    if name and parts:
        first = text_in(parts[0], "text")
        parts[: bool(first)] = [text_part(f"{name}:\n{first}")]
    return parts


def _words_in(value: Any) -> list[str]:
    """Return the texts in a value that have several words; names, paths and ids have one word."""
    if isinstance(value, str):
        return [value] if len(value.split()) > 1 else []
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in held for text in _words_in(one)]


def _parts_in(value: Any) -> list[Part]:
    if isinstance(value, str):
        return [text_part(value)] if value.strip() else []
    if isinstance(value, list):
        return [part for one in value for part in _parts_in(one)]
    if not isinstance(value, dict):
        return []
    if isinstance(value.get("base64"), str) or isinstance(value.get("source"), dict):
        media = {"media_type": text_in(value, "type"), "data": value.get("base64")}
        return [to_part({"type": "image", "source": value.get("source") or media})]
    found = _parts_in(first_in(value, "file", *_ATTACHED))
    return found or [opaque_part(value)]


def _rewound(records: Sequence[_Record]) -> set[int]:
    """Return the indexes of records on branches that the conversation did not go on from.

    Where a record has several successors, the one that the file's end descends from goes on. The others are
    rewound, save for what is no branch: a further block of the same reply, the results of parallel calls,
    what is attached, and what a person typed beside calls that waited, if the model did not answer it. What
    is a link and nothing else is skipped: its successors are those of the record before it.
    """
    parents = _parents(records)
    children: dict[int, list[int]] = defaultdict(list)
    last = list(range(len(records)))
    for index in range(len(records) - 1, -1, -1):
        parent = parents[index]
        if parent is not None:
            children[parent].append(index)
            last[parent] = max(last[parent], last[index])
    rewound: set[int] = set()
    for parent, successors in children.items():
        kept = max(successors, key=lambda child: (not records[child].is_link, last[child]))
        replies = {records[parent].message_id, records[kept].message_id} - {None}
        for child in successors:
            record = records[child]
            if child == kept or record.is_link or any(record.are_results) or record.message_id in replies:
                continue
            branch = _descendants(child, children)
            spoken = [records[index].role for index in branch if _is_spoken(records[index])]
            is_beside = records[parent].has_calls and "assistant" not in spoken
            if spoken and not is_beside:
                rewound.update(branch)
    return rewound


def _parents(records: Sequence[_Record]) -> list[int | None]:
    """Return for each record the one that it follows, links skipped; None where it follows none before it."""
    at = {record.uuid: index for index, record in enumerate(records) if record.uuid is not None}
    parents: list[int | None] = []
    for index, record in enumerate(records):
        parent = at.get(record.parent or "")
        if parent is not None and parent >= index:
            parent = None
        parents.append(parents[parent] if parent is not None and records[parent].is_link else parent)
    return parents


def _is_spoken(record: _Record) -> bool:
    """Tell whether a record is the model's, or a person's that holds more than tool results."""
    if record.role != "user":
        return record.role == "assistant"
    is_all_results = bool(record.are_results) and all(record.are_results)
    return not (record.is_meta or record.is_attached or is_all_results)


def _descendants(start: int, children: dict[int, list[int]]) -> set[int]:
    found, waiting = {start}, [start]
    while waiting:
        new = [child for child in children.get(waiting.pop(), ()) if child not in found]
        found.update(new)
        waiting += new
    return found


class _ClaudeCode(Reader):
    format = Format.CLAUDE_CODE

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the records of a conversation, and of the bookkeeping around it."""
        return sum(isinstance(value, dict) and _is_record(value) for value in sample)

    def read(self, document: Document) -> Iterator[Session]:
        """Yield the main conversation, then one session per sub-agent."""
        main: list[_Record] = []
        agents: dict[str, list[_Record]] = {}
        agent_of: dict[str, str] = {}  # uuid of a sub-agent's record -> its sub-agent
        seen: set[str] = set()
        session_id = ""
        saved: list[tuple[str, dict[str, Any]]] = []
        left_out: Counter[str] = Counter()
        for line, value in document.values():
            record = None
            with document.rejecting(line):
                record = _read_record(line, value)
            if record is None:
                continue
            if record.uuid is not None and record.uuid in seen:
                left_out["repeated records"] += 1
                continue
            if record.role is None:
                left_out[record.kind] += 1
                saved += [(key, value) for key in _TITLES if text_in(value, key)]
            if record.uuid is not None:
                seen.add(record.uuid)
            session_id = text_in(value, "sessionId", "session_id") or session_id
            agent = _agent_of(value, record, agent_of, len(agents))
            if agent is None:
                main.append(record)
            else:
                agents.setdefault(agent, []).append(record)
                if record.uuid is not None:
                    agent_of[record.uuid] = agent
        # A summary names its last record, and may stand in the file of another session.
        own = {
            key: value[key] for key, value in saved if key != "summary" or text_in(value, "leafUuid") in seen
        }
        title = text_in(own, *_TITLES)
        conversations = [*([("", main)] if main or not agents else []), *agents.items()]
        for name, records in conversations:
            session = self._read_conversation(
                document, records, "/".join(filter(None, (session_id, name))), left_out
            )
            yield session if name else replace(session, title=title)
            left_out = Counter()

    def _read_conversation(
        self, document: Document, records: list[_Record], name: str, left_out: Mapping[str, int]
    ) -> Session:
        rewound = _rewound(records)
        transcript = Transcript()
        for index, record in enumerate(records):
            if record.kind == _BOUNDARY:
                transcript.compact()
            if record.role is None:
                continue
            if index in rewound:
                transcript.leave_out("rewound records")
                continue
            with document.reading(transcript, record.line):
                if record.role == "assistant":
                    add_assistant(transcript, record.content, record.line, record.message_id)
                else:
                    add_user(transcript, record.content, record.line)
        for what, count in left_out.items():
            transcript.leave_out(what, count)
        return self.session(document, transcript, name)


READER = _ClaudeCode()
