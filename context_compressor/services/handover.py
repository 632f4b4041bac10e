"""`HandOver`: long-term memories as takers of what left a view."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any

from context_compressor.errors import InvalidArgumentError, check_number
from context_compressor.integrations.agentscope.messages import to_agentscope
from context_compressor.memory.handover import TIMEOUT_SECONDS, Departure
from context_compressor.messages.chat import to_openai
from context_compressor.messages.msg import Msg
from context_compressor.services.base import MemoryService

_REF, _ID = "ref", "message_id"
"""Keys in the metadata of what mem0 keeps."""
_IDS = ("user_id", "agent_id", "run_id")
"""By which mem0 tells whose a memory is."""
Write = Callable[[list[Msg]], Sequence[Any]]


class HandOver:
    """Hand messages that left a view to a long-term memory: `CompressedMemory(..., hand_over=HandOver(it))`.

    What a receiver has to have, and what it is given:

    - `add_memory(user_id, messages, session_id)`, as a memory service: `Msg` where it is one of ours, else
      chat dicts;
    - `record(msgs, **options)`, as AgentScope's long-term memories: AgentScope's `Msg`, with the ref in
      `metadata["ref"]`;
    - `add` and `get_all`, as mem0's `AsyncMemory`: texts, with the ref in the metadata.

    A service of ours, and mem0, take the same departure once, however often it is handed over; the others may
    have it twice after a crash.

    Args:
        receiver: one of these.
        user_id: whose memory it is; `record` needs none.
        session_id: of the session, for `add_memory`.
        write: makes of `Msg` what the receiver takes, in place of what is said above.
        timeout_seconds: how long it may take for one departure.
        options: further arguments of `record`, or of mem0's `add`, such as `infer=False`.

    Raises:
        InvalidArgumentError: the receiver is none of these, or lacks its user.
    """

    def __init__(
        self,
        receiver: Any,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        write: Write | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        **options: Any,
    ) -> None:
        check_number("timeout_seconds", timeout_seconds, 0, is_above=True)
        self.timeout_seconds = timeout_seconds
        self._receiver, self._write, self._options = receiver, write, options
        self._user, self._session = user_id, session_id
        self._take = self._way()
        if not (user_id is None or isinstance(user_id, str)):
            raise InvalidArgumentError(f"user_id: expected a string, got {type(user_id).__name__}")
        if user_id is None and not (
            self._take == self._record or (self._take == self._add and any(name in options for name in _IDS))
        ):
            raise InvalidArgumentError(
                f"user_id: a {type(receiver).__name__} has to know whose messages it takes"
            )

    def _way(self) -> Callable[[Departure], Awaitable[None]]:
        receiver = self._receiver
        if isinstance(receiver, type):
            raise InvalidArgumentError(
                f"receiver: {receiver.__name__} is a class; give an object, {receiver.__name__}(...)"
            )
        if callable(getattr(receiver, "add_memory", None)):
            return self._add_memory
        if callable(getattr(receiver, "record", None)):
            return self._record
        if all(callable(getattr(receiver, name, None)) for name in ("add", "get_all")):
            if not iscoroutinefunction(receiver.add):
                raise InvalidArgumentError(
                    f"receiver: a {type(receiver).__name__} would hold the event loop; give mem0's "
                    "AsyncMemory"
                )
            return self._add
        raise InvalidArgumentError(
            f"receiver: a {type(receiver).__name__} has neither add_memory, nor record, nor add and get_all; "
            "an object with `async receive(departure)` can be given as hand_over by itself"
        )

    async def receive(self, departure: Departure) -> None:
        """Hand messages over, as `Receiver` says."""
        await self._take(departure)

    async def _add_memory(self, departure: Departure) -> None:
        messages = list(departure.messages)
        if self._write is not None:
            given = list(self._write(messages))
        else:
            given = messages if isinstance(self._receiver, MemoryService) else to_openai(messages)
        await self._receiver.add_memory(self._user, given, self._session)

    async def _record(self, departure: Departure) -> None:
        messages = list(departure.messages)
        for msg in messages:
            msg.metadata = {**(msg.metadata or {}), _REF: departure.ref}
        theirs = getattr(sys.modules.get("agentscope.message"), "Msg", None)
        if self._write is not None:
            given = list(self._write(messages))
        else:
            given = messages if theirs is None else [to_agentscope(msg, theirs) for msg in messages]
        await self._receiver.record(given, **self._options)

    async def _add(self, departure: Departure) -> None:
        ids = {name: self._options[name] for name in _IDS if name in self._options}
        if self._user is not None:
            ids["user_id"] = self._user
        options = {name: value for name, value in self._options.items() if name not in _IDS}
        metadata = {**options.pop("metadata", {}), _REF: departure.ref}
        texts = [(msg.id, told) for msg in departure.messages for told in self._told(msg)]
        top_k = max(1, len(texts))
        found = await self._receiver.get_all(filters={**ids, _REF: departure.ref}, top_k=top_k)
        there = found["results"]
        if options.get("infer", True):  # a model says what is kept of them together
            if not there and texts:
                messages = [told for _, told in texts]
                await self._receiver.add(messages, metadata=metadata, **ids, **options)
            return
        known = {(one.get("metadata") or {}).get(_ID) for one in there}
        for number, (msg_id, told) in enumerate(texts):
            name = f"{msg_id}:{number}"
            if name not in known:
                await self._receiver.add([told], metadata={**metadata, _ID: name}, **ids, **options)

    def _told(self, msg: Msg) -> list[Any]:
        """Return what mem0 is told of a message: roles and texts."""
        if self._write is not None:
            return list(self._write([msg]))
        return [
            {"role": one["role"], "content": text}
            for one in to_openai([msg])
            if (text := _text(one.get("content")))
        ]


def _text(content: object) -> str:
    if isinstance(content, str):
        return content.strip() and content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str) and text.strip())
