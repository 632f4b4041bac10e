"""Claude Code sessions: JSONL, a record per line, linked by `uuid` and `parentUuid`.

The format is not documented by its maker; what is relied upon here is what several public readers of it agree
upon. A block of a reply has a record of its own, under the reply's message id. Sub-agents ("sidechains") are
conversations of their own: one session each. What a person went back from ("rewound") stays in the file as a
branch; it is no part of the conversation that went on, so it is left out, and the session says how much.
Compaction leaves everything in place and adds a summary as a user message, and so do we.

Records of the `stream-json` output of `claude -p` are read, too; they have no links.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from context_compressor.readers import anthropic as blocks
from context_compressor.readers.documents import Document, to_session
from context_compressor.readers.session import Format, Session
from context_compressor.readers.transcript import Transcript, as_object, text_in

FORMAT = Format.CLAUDE_CODE

_LINKS = ("uuid", "parentUuid", "sessionId", "session_id")
_BOOKKEEPING = {"summary": "leafUuid", "file-history-snapshot": "snapshot", "queue-operation": "operation"}
"""Records by which a file is known that begins with nothing else: type, and a key that they have."""


@dataclass(slots=True)
class _Record:
    """A record that is a message, or a link between messages."""

    line: int
    role: str | None
    """None for a mere link."""
    content: Any = None
    message_id: str | None = None
    uuid: str | None = None
    parent: str | None = None
    is_meta: bool = False
    is_queued: bool = False
    """Whether it was typed while the model worked."""

    @property
    def are_results(self) -> list[bool]:
        """Tell of each block of a user's message whether it is a tool result."""
        if self.role != "user" or not isinstance(self.content, list):
            return []
        return [isinstance(block, dict) and block.get("type") == "tool_result" for block in self.content]


def recognises(sample: Sequence[Any]) -> bool:
    """Tell whether some value is a record of a conversation, or of the bookkeeping around it."""
    return any(isinstance(value, dict) and _is_record(value) for value in sample)


def _is_record(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    if not isinstance(kind, str):
        return False
    if kind in ("user", "assistant"):
        return isinstance(value.get("message"), dict) and any(key in value for key in _LINKS)
    return kind in _BOOKKEEPING and _BOOKKEEPING[kind] in value


def read(document: Document) -> Iterator[Session]:
    """Yield the main conversation, then one session per sub-agent."""
    main: list[_Record] = []
    agents: dict[str, list[_Record]] = {}
    agent_of: dict[str, str] = {}  # uuid of a sub-agent's record -> its sub-agent
    seen: set[str] = set()
    session_id = ""
    for line, value in document.values():
        record = None
        with document.rejecting(line):
            record = _read_record(line, value)
        if record is None or (record.uuid is not None and record.uuid in seen):
            continue  # a session that was resumed repeats records
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
    for name, records in (("", main), *agents.items()):
        yield _read_conversation(document, records, "/".join(part for part in (session_id, name) if part))


def _agent_of(value: dict[str, Any], record: _Record, agent_of: dict[str, str], known: int) -> str | None:
    tool = value.get("parent_tool_use_id")
    if not value.get("isSidechain") and not tool:
        return None
    named = value.get("agentId") or tool
    if isinstance(named, str):
        return f"agent-{named}"
    return agent_of.get(record.parent or "") or f"agent-{known + 1}"


def _read_record(line: int, value: Any) -> _Record | None:
    value = as_object(value, "expected a record of Claude Code")
    kind = value.get("type")
    uuid, parent = text_in(value, "uuid") or None, text_in(value, "parentUuid") or None
    record = _Record(line, None, uuid=uuid, parent=parent)
    record.is_meta = bool(value.get("isMeta"))
    if kind in ("user", "assistant"):
        message = as_object(value.get("message"), "message: expected an object")
        blocks.blocks_of(message.get("content"))
        record.role, record.content = str(kind), message.get("content")
        record.message_id = text_in(message, "id") or None
    elif kind == "attachment":
        held = value.get("attachment")
        if isinstance(held, dict) and held.get("type") == "queued_command":
            # What a person typed while the model worked; no user record repeats it.
            blocks.blocks_of(held.get("prompt"))
            record.role, record.content, record.is_queued = "user", held["prompt"], True
    return record if record.role or record.uuid else None


def _read_conversation(document: Document, records: list[_Record], name: str) -> Session:
    left_out = _rewound(records)
    transcript = Transcript()
    dropped = 0
    for index, record in enumerate(records):
        if record.role is None:
            continue
        if index in left_out:
            dropped += 1
        elif record.role == "assistant":
            blocks.add_assistant(transcript, record.content, record.line, record.message_id)
        else:
            blocks.add_user(transcript, record.content, record.line)
    notes = (f"records left out because they were rewound: {dropped}",) if dropped else ()
    return to_session(document, FORMAT, transcript, name or None, notes)


def _rewound(records: Sequence[_Record]) -> set[int]:
    """Return the indexes of records on branches that the conversation did not go on from.

    Where a record has several successors, the one that the file's end descends from goes on. The others are
    rewound, save for what is no branch: a further block of the same reply, the results of parallel calls,
    whatever stands beside them, and what was typed meanwhile.
    """
    at = {record.uuid: index for index, record in enumerate(records) if record.uuid is not None}
    parents = [at.get(record.parent or "") for record in records]
    children: dict[int, list[int]] = defaultdict(list)
    last = list(range(len(records)))
    for index in range(len(records) - 1, -1, -1):
        parent = parents[index]
        if parent is not None and parent < index:
            children[parent].append(index)
            last[parent] = max(last[parent], last[index])
    rewound: set[int] = set()
    for parent, successors in children.items():
        kept = max(successors, key=lambda child: last[child])
        replies = {records[parent].message_id, records[kept].message_id} - {None}
        for child in successors:
            record = records[child]
            if child == kept or any(record.are_results) or record.is_queued or record.message_id in replies:
                continue
            branch = _descendants(child, children)
            if any(_is_spoken(records[index]) for index in branch):
                rewound.update(branch)
    return rewound


def _is_spoken(record: _Record) -> bool:
    """Tell whether a record is the model's, or a person's that holds more than tool results."""
    if record.role != "user":
        return record.role == "assistant"
    is_all_results = bool(record.are_results) and all(record.are_results)
    return not (record.is_meta or is_all_results)


def _descendants(start: int, children: dict[int, list[int]]) -> set[int]:
    found, waiting = {start}, [start]
    while waiting:
        new = [child for child in children.get(waiting.pop(), ()) if child not in found]
        found.update(new)
        waiting += new
    return found
