"""Objects that services take: the shape of agentscope-runtime 1.0.5's `Message`, or that itself where it is.

It pins releases of AgentScope that cannot be installed beside the others, so most runs have the copy.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal
from uuid import uuid4

from pydantic import BaseModel, Field

if find_spec("agentscope_runtime"):
    from agentscope_runtime.engine.schemas.agent_schemas import (  # type: ignore[import-not-found]
        DataContent,
        Message,
        TextContent,
    )
else:

    class Content(BaseModel):
        sequence_number: str | None = None
        object: str = "content"
        status: str | None = None
        index: int | None = None
        delta: bool | None = False
        msg_id: str | None = None

    class TextContent(Content):  # type: ignore[no-redef]
        type: Literal["text"] = "text"
        text: str | None = None

    class DataContent(Content):  # type: ignore[no-redef]
        type: Literal["data"] = "data"
        data: dict[str, Any] | None = None

    class Message(BaseModel):  # type: ignore[no-redef]
        id: str = Field(default_factory=lambda: f"msg_{uuid4()}")
        object: str = "message"
        type: str = "message"
        status: str = "created"
        role: str | None = None
        content: list[TextContent | DataContent] | None = None
        usage: dict[str, Any] | None = None
        metadata: dict[str, Any] | None = None


class Plain:
    """Neither pydantic's nor ours: AgentScope's way."""

    def __init__(self, name: str, content: Any, role: str, id: str) -> None:
        self.name, self.content, self.role, self.id = name, content, role, id

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Plain:
        return cls(**data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and vars(self) == vars(other)


def message(text: str, role: str = "user") -> Message:
    return Message(role=role, content=[TextContent(type="text", text=text)])


__all__ = ["DataContent", "Message", "Plain", "TextContent", "message"]
