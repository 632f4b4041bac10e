"""AgentScope's `Msg` <-> ours, field for field. Knows its fields, and imports nothing of it."""

from __future__ import annotations

from typing import Any

from context_compressor.errors import InvalidArgumentError, InvalidMessageError
from context_compressor.messages.msg import FIELDS, Msg, copy_json

NO_METADATA = {"context_compressor": "no metadata"}
"""Stands for metadata None where AgentScope writes a message down: it reads None back as {}."""


def from_agentscope(msg: object, place: str = "message") -> Msg:
    """Return an independent copy of AgentScope's `Msg` as one of ours, under the same id.

    A subclass comes back as a plain `Msg`; one that holds more than a `Msg` does is refused.
    One of ours comes back as a copy; errors call the message `place`.

    Raises:
        InvalidMessageError: a field is not of its kind, or there are fields that would be lost.
        InvalidArgumentError: it is no message.
    """
    if isinstance(msg, Msg):
        return msg.copy()
    missing = [name for name in FIELDS[:4] if not hasattr(msg, name)]
    if missing:
        shown = repr(msg)
        raise InvalidArgumentError(
            f"{place}: expected a Msg of AgentScope's, got {shown[:200]} ({type(msg).__name__})"
            + (f" without {missing[0]}" if len(missing) < 4 else "")
        )
    unknown = [name for name in getattr(msg, "__dict__", {}) if name not in FIELDS]
    if unknown:
        raise InvalidMessageError(
            f"{place}.{unknown[0]}: no field of a Msg ({type(msg).__name__} adds it), and no memory would "
            "keep it; put it into metadata"
        )
    data = {name: getattr(msg, name, None) for name in FIELDS}
    if isinstance(data["content"], tuple):
        data["content"] = list(data["content"])
    if data["metadata"] == NO_METADATA:
        data["metadata"] = None
    try:
        return Msg.from_dict(data)
    except InvalidMessageError as error:
        raise InvalidMessageError(f"{place}.{error}") from error


def to_agentscope(msg: Msg, kind: type[Any]) -> Any:
    """Return our message as AgentScope's `Msg`, under the same id; content and metadata are shared.

    `kind` is the class to make one of: AgentScope's `Msg` or a subclass.
    """
    # The class's own constructor makes an id, and turns metadata None into {} and a timestamp "" into now.
    made = object.__new__(kind)
    for name in FIELDS:
        setattr(made, name, getattr(msg, name))
    return made


def stored_kind(kind: type[Any]) -> type[Any]:
    """Return a subclass of AgentScope's `Msg` whose written form keeps every field.

    `Msg.to_dict`, which its memories write down, leaves out `invocation_id`, though `Msg.from_dict` reads it;
    and what was None in `metadata` comes back as {}.
    """

    class StoredMsg(kind):  # a class that is only known when it is used
        def to_dict(self) -> dict[str, Any]:
            """Return the message as JSON-like data."""
            return saved_form(self)

    return StoredMsg


def saved_form(msg: Any) -> dict[str, Any]:
    """Return AgentScope's `Msg` in the form that it reads without loss."""
    data: dict[str, Any] = {name: copy_json(getattr(msg, name, None)) for name in FIELDS}
    if data["metadata"] is None:
        data["metadata"] = dict(NO_METADATA)
    if data["invocation_id"] is None:
        del data["invocation_id"]
    return data
