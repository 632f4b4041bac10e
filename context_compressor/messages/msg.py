"""The message type, and what a message of a view stands for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import NoneType
from typing import Any, Final, Literal, Self

from context_compressor.errors import InvalidMessageError

Role = Literal["user", "assistant", "system"]
Block = dict[str, Any]
"""A content block, a plain dict. `type` is one of text, thinking, tool_use, tool_result, image, audio, video,
file, or anything else, which is carried along untouched."""

ROLES = ("user", "assistant", "system")
FIELDS = ("id", "name", "role", "content", "metadata", "timestamp", "invocation_id")


def new_id() -> str:
    """Return a fresh message id: 22 hexadecimal digits from the system's random source."""
    return os.urandom(11).hex()


SCALARS = frozenset({str, int, float, bool, type(None)})
MAX_NESTING = 150
"""How deep JSON-like data of a message may nest. What the chat-dict codec takes, 100 deep in itself, stands
some levels down in content. Deeper, what recursion bears would depend on the caller's stack: a message that
could be added could not be shown."""


def copy_json(value: Any, depth: int = MAX_NESTING) -> Any:
    """Return a deep copy of a JSON-like value; strings are shared, containers are not.

    Some five times as fast as `copy.deepcopy`, which keeps a memo that JSON-like data does not need.

    Raises:
        InvalidMessageError: it nests deeper than `depth`.
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    if depth == 0:
        raise InvalidMessageError(f"data of a message nests more than {MAX_NESTING} deep")
    depth -= 1
    if isinstance(value, dict):  # or a subclass, such as an SDK's message
        copied = dict(value)
        for key, item in value.items():
            if type(item) not in SCALARS:
                copied[key] = copy_json(item, depth)
        return copied
    if isinstance(value, list):
        return [item if type(item) in SCALARS else copy_json(item, depth) for item in value]
    return tuple(copy_json(item, depth) for item in value) if kind is tuple else value


def check_json(value: Any, path: str) -> None:
    """Check that `json.dumps` has a form for what messages hold.

    Raises:
        InvalidMessageError: it has none for something in it; the text names the place, below `path`.
    """
    kind = type(value)
    if kind in SCALARS:
        return
    if kind is dict:
        for key, item in value.items():
            check_json(item, f"{path}.{key}" if path else key)
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):
            check_json(item, f"{path}[{index}]")
    elif not isinstance(value, str | int | float):  # an enum, say, has the form of what it is of
        raise InvalidMessageError(
            f"{path}: expected JSON data, got {kind.__name__}; add the message with it as a string, say"
        )


class Msg:
    """One message: id, name, role, content (text or a list of blocks), metadata, timestamp, invocation_id.

    Args:
        name: who speaks.
        content: a string, or a list of blocks (plain dicts with a `type`).
        role: "user", "assistant" or "system". Tool results travel in messages of role "system" with
            `tool_result` blocks (AgentScope's way); ask `is_instruction` whether a message is an instruction.
        metadata: a dict of anything JSON-like; `from_openai` keeps here what blocks cannot say.
        timestamp: "YYYY-MM-DD HH:MM:SS.mmm", local time; now when None.
        invocation_id: id of the model call that produced the message, if any.
        id: generated when None.

    Raises:
        InvalidMessageError: an argument is not of its kind; the text names the field.
    """

    __slots__ = FIELDS

    def __init__(
        self,
        name: str,
        content: str | list[Block],
        role: Role,
        metadata: dict[str, Any] | None = None,
        timestamp: str | None = None,
        invocation_id: str | None = None,
        *,
        id: str | None = None,
    ) -> None:
        if role not in ROLES:
            raise InvalidMessageError(f"role: expected one of {', '.join(ROLES)}, got {role!r:.200}")
        if not isinstance(name, str):
            raise InvalidMessageError(f"name: expected a string, got {type(name).__name__}")
        if not isinstance(content, str):
            _check_blocks(content)
        if not (metadata is None or isinstance(metadata, dict)):
            raise InvalidMessageError(f"metadata: expected a dict or None, got {type(metadata).__name__}")
        for field, value in (("id", id), ("timestamp", timestamp), ("invocation_id", invocation_id)):
            if not (value is None or isinstance(value, str)):
                raise InvalidMessageError(f"{field}: expected a string, got {type(value).__name__}")
        self.id = new_id() if id is None else id
        self.name = name
        self.role: Role = role
        self.content = content
        self.metadata = metadata
        self.timestamp = (
            datetime.now().isoformat(sep=" ", timespec="milliseconds") if timestamp is None else timestamp
        )
        self.invocation_id = invocation_id

    def to_dict(self) -> dict[str, Any]:
        """Return the message as JSON-like data, with AgentScope's keys; `invocation_id` only when set."""
        data: dict[str, Any] = {
            "id": self.id,
            "name": self.name,
            "role": self.role,
            "content": copy_json(self.content),
            "metadata": copy_json(self.metadata),
            "timestamp": self.timestamp,
        }
        if self.invocation_id is not None:
            data["invocation_id"] = self.invocation_id
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build a message from `to_dict`'s form, AgentScope's included.

        Raises:
            InvalidMessageError: a key is missing or of the wrong kind; the text names it.
        """
        if not isinstance(data, Mapping):
            raise InvalidMessageError(f"message: expected a dict, got {type(data).__name__}")
        for key in ("name", "role", "content"):
            if key not in data:
                raise InvalidMessageError(f"{key}: missing; a message needs name, role and content")
        return cls(
            data["name"],
            copy_json(data["content"]),
            data["role"],
            copy_json(data.get("metadata")),
            data.get("timestamp"),
            data.get("invocation_id"),
            id=data.get("id"),
        )

    def copy(self) -> Msg:
        """Return an independent copy under the same id."""
        other = object.__new__(Msg)
        other.id = self.id
        other.name = self.name
        other.role = self.role
        other.content = self.content if type(self.content) is str else copy_json(self.content)
        other.metadata = None if self.metadata is None else copy_json(self.metadata)
        other.timestamp = self.timestamp
        other.invocation_id = self.invocation_id
        return other

    def get_content_blocks(self, block_type: str | None = None) -> list[Block]:
        """Return the content as blocks, a string as one text block; only those of `block_type` when given."""
        content = self.content
        blocks: list[Block] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return [block for block in blocks if block_type is None or block.get("type") == block_type]

    def get_text_content(self, separator: str = "\n") -> str | None:
        """Return the text blocks joined by `separator`, or None when there is none."""
        if isinstance(self.content, str):
            return self.content
        texts = [block["text"] for block in self.content if block.get("type") == "text"]
        return separator.join(texts) if texts else None

    def has_content_blocks(self, block_type: str | None = None) -> bool:
        """Tell whether the message holds a block, of `block_type` when given."""
        return bool(self.get_content_blocks(block_type))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Msg):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in FIELDS)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Msg({', '.join(f'{name}={getattr(self, name)!r}' for name in FIELDS)})"


_BLOCK_CHECKS: dict[str, tuple[tuple[str, tuple[type, ...]], ...]] = {
    "text": (("text", (str,)),),
    "thinking": (("thinking", (str,)),),
    "tool_use": (("id", (str,)), ("name", (str,)), ("input", (dict,)), ("raw_input", (str, NoneType))),
    "tool_result": (("id", (str,)), ("output", (str, list)), ("name", (str, NoneType))),
}


def _check_blocks(content: object) -> None:
    if not isinstance(content, list):
        raise InvalidMessageError(
            f"content: expected a string or a list of blocks, got {type(content).__name__}"
        )
    for index, block in enumerate(content):
        place = f"content[{index}]"
        kind = _check_block(block, place, _BLOCK_CHECKS)
        if kind == "tool_result" and isinstance(block["output"], list):
            for number, inner in enumerate(block["output"]):
                _check_block(inner, f"{place}.output[{number}]", {"text": _BLOCK_CHECKS["text"]})


def _check_block(
    block: object, place: str, checks: Mapping[str, tuple[tuple[str, tuple[type, ...]], ...]]
) -> str | None:
    """Check the keys of a block that its type has, and return the type."""
    if not isinstance(block, dict):
        raise InvalidMessageError(f"{place}: expected a dict, got {type(block).__name__}")
    kind: str | None = block.get("type")
    if not isinstance(kind, str | None):
        raise InvalidMessageError(f"{place}.type: expected a string, got {type(kind).__name__}")
    for key, kinds in checks.get(kind or "", ()):
        if not isinstance(block.get(key), kinds):
            expected = " or ".join(one.__name__ for one in kinds)
            got = type(block.get(key)).__name__
            raise InvalidMessageError(f"{place}.{key}: expected {expected} in a {kind} block, got {got}")
    return kind


def tool_calls(msg: Msg) -> list[Block]:
    """Return the `tool_use` blocks of a message, in order."""
    return [] if isinstance(msg.content, str) else [b for b in msg.content if b.get("type") == "tool_use"]


def tool_results(msg: Msg) -> list[Block]:
    """Return the `tool_result` blocks of a message, in order."""
    return [] if isinstance(msg.content, str) else [b for b in msg.content if b.get("type") == "tool_result"]


def tool_names(messages: Iterable[Msg]) -> dict[str, str]:
    """Return the tool that each call id in these messages calls; a result fed alone does not know it."""
    return {call["id"]: call["name"] for msg in messages for call in tool_calls(msg)}


def is_instruction(msg: Msg) -> bool:
    """Tell whether a message speaks to the model as an instruction: role `system` and no tool result in it.

    AgentScope's tool-result messages carry role `system` too, so the role alone does not tell.
    """
    return msg.role == "system" and not tool_results(msg)


PROVENANCE: Final = "compression"
"""The key in a message's metadata: a dict of its kind (segment, stub, placeholder), the ids that it covers,
and its ref; further refs where a stub has several."""


def provenance_of(msg: Msg) -> dict[str, Any]:
    """Return what a message says of itself; empty where it stands for nothing but itself."""
    provenance = (msg.metadata or {}).get(PROVENANCE)
    return provenance if isinstance(provenance, dict) else {}


def refs_shown(msg: Msg) -> tuple[str, ...]:
    """Return the refs of what a message stands for; none where it stands for itself or holds a place."""
    provenance = provenance_of(msg)
    return tuple(ref for ref in provenance.get("refs") or [provenance.get("ref")] if ref)


def is_segment(msg: Msg) -> bool:
    """Tell whether a message stands for earlier ones, in a view or among what is to be summarised."""
    return provenance_of(msg).get("kind") in ("notes", "segment")


def is_staying(msg: Msg) -> bool:
    """Tell whether a message among what is to be summarised only tells the order: it stays in the view."""
    return provenance_of(msg).get("kind") == "stays"


def staying_metadata() -> dict[str, Any]:
    """Return the metadata of a message that stays in the view, among those that leave."""
    return {PROVENANCE: {"kind": "stays"}}


def segment_metadata() -> dict[str, Any]:
    """Return the metadata of a message that is to be read as a summary of earlier ones."""
    return {PROVENANCE: {"kind": "segment"}}
