"""What a provider does itself in a conversation: it runs tools, compacts what came before, and loads tools.

Calls and results of tools that it runs stand in what the model says. A result stands behind its call in the
same message, or in a later one: where the client's tools were called beside it, where the provider paused,
where a program that runs there calls the client's tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from context_compressor.messages.kinds import ITEM, WRAPPED, held_in, told
from context_compressor.messages.msg import Block, Msg, tool_calls
from context_compressor.messages.remark import like, remark_in, without_extra

_CALLS = {
    **dict.fromkeys(("server_tool_use", "mcp_tool_use"), "id"),  # Anthropic's
    "program": "call_id",  # the Responses API's
    "server_tool_call": "id",  # LangChain's
    "builtin-tool-call": "tool_call_id",  # Pydantic AI's
}
_RESULTS = {
    "program_output": "call_id",
    "server_tool_result": "tool_call_id",
    "builtin-tool-return": "tool_call_id",
}
"""Keys under which calls and results of each kind name the call. Anthropic's results have a kind for each
tool."""
_OTHERS = frozenset({"text", "thinking", "tool_use", "tool_result", "image"})
"""Kinds of most blocks, which are neither calls nor results of hosted tools."""


def called_in(block: Block) -> str | None:
    """Return the id of the call that a block makes of a hosted tool."""
    held = held_in(block)
    return _id_in(held, _CALLS.get(str(held.get("type"))))


def answered_in(block: Block) -> str | None:
    """Return the id of the call of a hosted tool that a block answers."""
    held = held_in(block)
    kind = str(held.get("type"))
    is_anthropic = kind.endswith("_tool_result") and kind not in _RESULTS
    return _id_in(held, "tool_use_id" if is_anthropic else _RESULTS.get(kind))


def is_hosted(block: Block) -> bool:
    """Tell whether a block is a call or a result of a hosted tool."""
    if block.get("type") in _OTHERS:
        return False
    return called_in(block) is not None or answered_in(block) is not None


def caller_of(block: Block) -> str | None:
    """Return the id of the call of a hosted tool, mostly a program, that made the call in a block."""
    caller = block.get("caller") or remark_in(block).get("extra", {}).get("caller")
    if not isinstance(caller, dict):
        return None
    held: Block = caller
    return _id_in(held, "tool_id" if "tool_id" in held else "caller_id")


def blocks_of(msg: Msg) -> list[Block]:
    """Return the blocks among which calls and results of hosted tools may stand."""
    return [] if isinstance(msg.content, str) or msg.role != "assistant" else msg.content


def called_by(msg: Msg) -> list[str]:
    """Return the ids of the calls that a message makes of hosted tools."""
    return [id for block in blocks_of(msg) if (id := called_in(block)) is not None]


def _takes_part(block: Block) -> bool:
    return is_hosted(block) or caller_of(block) is not None


def with_calls(msg: Msg, open_ids: Iterable[str]) -> Msg:
    """Return a message without what needs a call that is not there.

    A result whose call stands neither in the message nor among `open_ids` becomes a text. A call that such a
    call made no longer says who made it.
    """
    called, blocks = set(open_ids), list[Block]()
    if not any(map(_takes_part, blocks_of(msg))):
        return msg
    for block in blocks_of(msg):
        caller, answered = caller_of(block), answered_in(block)
        if answered is not None and answered not in called:
            block = {"type": "text", "text": told(block)}
        elif caller is not None and caller not in called:
            block = _without_caller(block)
        if (call := called_in(block)) is not None:
            called.add(call)
        blocks.append(block)
    if all(new is old for new, old in zip(blocks, blocks_of(msg), strict=True)):
        return msg
    other = msg.copy()
    other.content = [dict(block) for block in blocks]
    return other


def missing_result(call: Block, text: str) -> Block:
    """Return a result for a call of a hosted tool that never got one; it says so if its kind has words."""
    held = held_in(call)
    kind, name = str(held["type"]), str(held.get("name") or held.get("tool_name"))
    key, made = _CALLS[kind], dict[str, Any]()
    said = {"is_error": True, "content": [{"type": "text", "text": text}]}
    if kind == "server_tool_use":
        tool = name.removesuffix("_regex").removesuffix("_bm25").removesuffix("_tool")
        made = {"type": f"{tool}_tool_result", "tool_use_id": held[key], "content": _error_of(tool)}
    elif kind == "mcp_tool_use":
        made = {"type": "mcp_tool_result", "tool_use_id": held[key], **said}
    elif kind == "program":
        made = {"type": "program_output", "call_id": held[key], "id": f"po_{held[key]}"[:64]}
        made |= {"result": text, "status": "incomplete"}
    elif kind == "server_tool_call":
        made = {"type": "server_tool_result", "tool_call_id": held[key], "status": "error"}
        made |= {"output": text}
    else:
        made = {"type": "builtin-tool-return", "tool_name": name, "tool_call_id": held[key]}
        content = said if name.startswith("mcp_server:") else _error_of(_wire_name(held, name))
        made |= {"content": content, "provider_name": held.get("provider_name")}
    if call.get("type") in (WRAPPED, ITEM):
        made = {"type": call["type"], call["type"]: made}
    return made | like(call)


def _wire_name(held: Mapping[str, Any], name: str) -> str:
    """Return what the provider calls a tool that Pydantic AI has a wider name for and notes beside it."""
    details = held.get("provider_details")
    noted = details.values() if isinstance(details, Mapping) else ()
    return next((str(one) for one in noted if str(one).endswith(f"_{name}")), name)


def _error_of(tool: str) -> dict[str, str]:
    return {"type": f"{tool}_tool_result_error", "error_code": "unavailable"}


def _id_in(held: Mapping[str, Any], key: str | None) -> str | None:
    found = held.get(key) if key is not None else None
    return found if isinstance(found, str) and found else None


def _without_caller(block: Block) -> Block:
    bare = {key: value for key, value in block.items() if key != "caller"}
    return without_extra(bare, "caller") if "caller" in remark_in(bare).get("extra", ()) else bare


# Compaction: words, or data that only the provider can read

_COMPACTION = "compaction"


def compacted_words(block: Block) -> str | None:
    """Return the summary that a provider wrote of what came before, where it can be read (Anthropic)."""
    held = held_in(block)
    words = held.get("content") if held.get("type") == _COMPACTION else None
    return words if isinstance(words, str) and words.strip() else None


def has_compaction(msg: Msg) -> bool:
    """Tell whether a message holds what a provider compacted."""
    return any(held_in(block).get("type") == _COMPACTION for block in msg.get_content_blocks())


def is_sealed(msg: Msg) -> bool:
    """Tell whether a message holds a compaction that only its provider can read (OpenAI)."""
    blocks = msg.get_content_blocks()
    return any(_has_secret(held_in(block)) for block in blocks if compacted_words(block) is None)


def _has_secret(held: Mapping[str, object]) -> bool:
    details = held.get("provider_details")  # where Pydantic AI keeps it
    places = (held, details if isinstance(details, Mapping) else {})
    return held.get("type") == _COMPACTION and any(place.get("encrypted_content") for place in places)


# Loading: a provider may hold back the definitions of tools, and knows one only from what loads it on

_REFERENCE = "tool_reference"
"""Type of Anthropic's block that loads a tool by its name, in any result of a search."""
_DEFINING = ("tool_search_output", "additional_tools")
"""Types of items of the Responses API that load tools by their definitions."""


def tools_loaded_by(msg: Msg) -> frozenset[str]:
    """Return the names of the tools that a message loads."""
    blocks = [block for block in msg.get_content_blocks() if block.get("type") != "tool_use"]
    return frozenset(name for block in blocks for name in _loaded_in(block))


def tools_called_by(msg: Msg) -> frozenset[str]:
    """Return the names of the tools that a message calls, those that the provider runs among them."""
    held = [held_in(block) for block in msg.get_content_blocks() if called_in(block) is not None]
    return frozenset(str(call.get("name")) for call in (*tool_calls(msg), *held))


def _loaded_in(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for inner in value:
            yield from _loaded_in(inner)
    elif isinstance(value, Mapping):
        if value.get("type") == _REFERENCE:
            yield str(value.get("tool_name") or value.get("name"))
        if value.get("type") in _DEFINING or value.get("part") in _DEFINING:  # an item, or its text
            yield from _names_in(value.get("extra", value).get("tools"))
        for inner in value.values():
            if isinstance(inner, list | Mapping):
                yield from _loaded_in(inner)


def _names_in(tools: Any) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            yield str(tool.get("name"))
            yield from _names_in(tool.get("tools"))


# Skeletons: calls and results without their contents


def skeletons_of(msg: Msg) -> list[Block]:
    """Return what pairing needs of the calls and results of hosted tools in a message."""
    found = []
    for block in blocks_of(msg):
        held = held_in(block)
        if is_hosted(block):
            kept = ("type", *dict.fromkeys((*_CALLS.values(), "tool_use_id")), "name", "tool_name", "caller")
            bare = {key: held[key] for key in kept if key in held}
            kind = block["type"]
            found.append((bare if held is block else {"type": kind, kind: bare}) | like(block))
        elif (caller := caller_of(block)) is not None:
            found.append({"type": "caller", "caller": {"tool_id": caller}})
    return found
