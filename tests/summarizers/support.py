"""Counters, messages and summarisers that the tests of this directory share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from context_compressor.messages.msg import Block, Msg, tool_calls
from context_compressor.summarizers.protocol import Summary, SummaryRequest

_PIECES = re.compile(r"[A-Za-z]{1,6}|\d|[^\sA-Za-z\d]")


class PieceCounter:
    """A token is up to six letters, a digit or another character, and easy to reason with."""

    def count_text(self, text: str) -> int:
        return len(_PIECES.findall(text))

    def count_messages(self, messages: Sequence[Msg | dict[str, Any]]) -> int:
        return sum(
            self.count_text(str(m.content if isinstance(m, Msg) else m["content"])) + 4 for m in messages
        )


class Scripted:
    """Return the given results in order, the last one again and again; exceptions among them are raised."""

    def __init__(
        self, *results: object, remote: bool = True, edits: bool = False, rewrites: bool = False
    ) -> None:
        self.remote = remote
        self.writes_edits, self.rewrites_notes = edits, rewrites
        self.requests: list[SummaryRequest] = []
        self._results = list(results)

    async def summarize(self, request: SummaryRequest) -> Summary:
        self.requests.append(request)
        result = self._results.pop(0) if len(self._results) > 1 else self._results[0]
        if isinstance(result, BaseException):
            raise result
        return Summary(text=result) if isinstance(result, str) else result  # type: ignore[return-value]


class Acting:
    """Do what the callable does."""

    remote = False

    def __init__(self, act: Callable[[SummaryRequest], Any]) -> None:
        self._act = act

    async def summarize(self, request: SummaryRequest) -> Summary:
        return await self._act(request)


def user(text: str, **kw: Any) -> Msg:
    return Msg("user", text, "user", timestamp="", **kw)


def assistant(text: str) -> Msg:
    return Msg("assistant", text, "assistant", timestamp="")


def call(name: str, id: str, /, **arguments: Any) -> Msg:
    block = {"type": "tool_use", "id": id, "name": name, "input": arguments}
    return Msg("assistant", [block], "assistant", timestamp="")


def result(id: str, output: str | list[Block], name: str | None = None) -> Msg:
    block: Block = {"type": "tool_result", "id": id, "output": output}
    if name is not None:
        block["name"] = name
    return Msg("system", [block], "system", timestamp="")


def segment(summary: str) -> Msg:
    text = (
        "[Summary by the memory, not by the user, of 12 earlier messages. Full text: ctx://0123456789abcdef.]"
        f"\n{summary}"
    )
    return user(text, metadata={"compression": {"kind": "segment", "ref": "ctx://0123456789abcdef"}})


def request(*messages: Msg, max_tokens: int = 400, **kw: Any) -> SummaryRequest:
    return SummaryRequest(messages=messages, max_tokens=max_tokens, **kw)


def from_dicts(dicts: list[dict[str, Any]]) -> list[Msg]:
    """Read the recordings' plain chat dicts, as far as these tests need them."""
    messages: list[Msg] = []
    for data in dicts:
        content = data.get("content")
        text = content if isinstance(content, str) else "\n".join(p.get("text", "") for p in content or [])
        if data["role"] == "tool":
            names = {c["id"]: c["name"] for msg in messages[-20:] for c in tool_calls(msg)}
            messages.append(result(data["tool_call_id"], text, names.get(data["tool_call_id"], "tool")))
            continue
        blocks: list[Block] = [{"type": "text", "text": text}] if text else []
        for item in data.get("tool_calls") or []:
            function = item["function"]
            arguments = json.loads(function["arguments"] or "{}")
            blocks.append(
                {"type": "tool_use", "id": item["id"], "name": function["name"], "input": arguments}
            )
        role = data["role"] if data["role"] in ("user", "assistant") else "system"
        messages.append(Msg(role, blocks, role, timestamp=""))
    return messages
