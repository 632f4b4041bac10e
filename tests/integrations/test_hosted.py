"""What a provider does itself, in every shape that messages have: tools that it runs, what it compacted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from pydantic_ai.messages import (
    CompactionPart,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from context_compressor import CompressedMemory, CompressionEvent
from context_compressor.events import EventHook
from context_compressor.integrations.conversations import Conversations
from context_compressor.integrations.langchain.messages import FORM, Wires, to_messages
from context_compressor.integrations.pydantic_ai.messages import Chats
from context_compressor.messages.repair import MISSING_RESULT

Dict = dict[str, Any]

LONG, TURNS = "reeds and newts, " * 120, 8
BROKEN_OFF = "broken off"
HOW = ("beside", "paused", "program", BROKEN_OFF)
"""A hosted call beside a client's; in a turn that is paused; of a program that calls the client's tools
twice; and one after which the user goes on with something else."""


def turn(how: str, k: int) -> Iterator[tuple[str, list[Dict]]]:
    """Yield who speaks and what: texts, hosted calls and results, client's calls and results."""
    hosted, answer = {"is": "hosted", "id": f"srvtoolu_{k}"}, {"is": "answer", "id": f"srvtoolu_{k}"}
    yield "user", [{"is": "text", "text": f"Look at pond {k}."}]
    if how in ("paused", BROKEN_OFF):
        yield "assistant", [{"is": "text", "text": "I look."}, hosted]
        if how == BROKEN_OFF:
            return
    for n in range({"beside": 1, "program": 2}.get(how, 0)):
        caller = {"by": hosted["id"]} if how == "program" else {}
        call = {"is": "call", "id": f"toolu_{k}_{n}", **caller}
        yield "assistant", [*([hosted] if n == 0 else []), call]
        yield "user", [{"is": "result", "id": call["id"], "text": LONG}]
    yield "assistant", [answer, {"is": "text", "text": f"Pond {k} is fine."}]


# Each shape: how a message is written, and which hosted calls and results stand in a view, in order.

Seen = list[tuple[str, str]]


def anthropic(role: str, said: list[Dict]) -> Any:
    def block(one: Dict) -> Dict:
        match one["is"]:
            case "text":
                return {"type": "text", "text": one["text"]}
            case "hosted":
                return {"type": "server_tool_use", "id": one["id"], "name": "code_execution", "input": {}}
            case "answer":
                ran = {"type": "code_execution_result", "stdout": LONG, "stderr": "", "return_code": 0}
                return {"type": "code_execution_tool_result", "tool_use_id": one["id"], "content": ran}
            case "call":
                caller = {"type": "code_execution_20260120", "tool_id": one.get("by")}
                by = {"caller": caller} if "by" in one else {}
                return {"type": "tool_use", "id": one["id"], "name": "measure", "input": {}, **by}
        return {"type": "tool_result", "tool_use_id": one["id"], "content": one["text"]}

    return {"role": role, "content": [block(one) for one in said]}


def seen_anthropic(view: list[Any]) -> Seen:
    blocks = [block for one in view if isinstance(one["content"], list) for block in one["content"]]
    return [seen for block in blocks for seen in _seen(block)]


def _seen(block: Any) -> Seen:
    if block["type"] in ("server_tool_use", "server_tool_call"):
        return [("call", block["id"])]
    if block["type"] in ("code_execution_tool_result", "server_tool_result"):
        return [("result", block.get("tool_use_id") or block["tool_call_id"])]
    caller = block.get("caller") or block.get("extras", {}).get("caller") or {}
    return [("caller", caller["tool_id"])] if "tool_id" in caller else []


def responses(role: str, said: list[Dict]) -> list[Any]:
    items: list[Any] = []
    for one in said:
        match one["is"]:
            case "text":
                items.append({"role": role, "content": one["text"]})
            case "hosted":
                program = {"id": f"pg_{one['id']}", "code": "look()", "fingerprint": "f"}
                items.append({"type": "program", "call_id": one["id"], **program})
            case "answer":
                done = {"id": f"po_{one['id']}", "result": LONG, "status": "completed"}
                items.append({"type": "program_output", "call_id": one["id"], **done})
            case "call":
                call = {"type": "function_call", "call_id": one["id"], "name": "measure", "arguments": "{}"}
                caller = {"caller": {"type": "program", "caller_id": one["by"]}} if "by" in one else {}
                items.append({**call, **caller})
            case "result":
                items.append({"type": "function_call_output", "call_id": one["id"], "output": one["text"]})
    return items


def seen_responses(view: list[Any]) -> Seen:
    kinds = {"program": "call", "program_output": "result"}
    found = [(kinds[one["type"]], one["call_id"]) for one in view if one.get("type") in kinds]
    callers = [("caller", one["caller"]["caller_id"]) for one in view if one.get("caller")]
    return [*found, *callers]


def langchain(role: str, said: list[Dict]) -> list[Any]:
    if said[0]["is"] == "result":
        return [ToolMessage(one["text"], tool_call_id=one["id"]) for one in said]
    if role == "user":
        return [HumanMessage(said[0]["text"])]
    calls = [{"name": "measure", "args": {}, "id": one["id"]} for one in said if one["is"] == "call"]
    return [AIMessage(anthropic(role, said)["content"], tool_calls=calls)]  # type: ignore[arg-type]


def langchain_v1(role: str, said: list[Dict]) -> list[Any]:
    """LangChain's own blocks in the place of Anthropic's."""

    def standard(block: Any) -> Any:
        match block["type"]:
            case "server_tool_use":
                return {"type": "server_tool_call", "id": block["id"], "name": block["name"], "args": {}}
            case "code_execution_tool_result":
                answers = {"tool_call_id": block["tool_use_id"], "status": "success"}
                return {"type": "server_tool_result", **answers, "output": block["content"]}
            case "tool_use":
                by = {"extras": {"caller": block["caller"]}} if "caller" in block else {}
                return {"type": "tool_call", "id": block["id"], "name": "measure", "args": {}, **by}
        return block

    made = langchain(role, said)
    for one in made:
        if isinstance(one, AIMessage):
            one.content = [standard(block) for block in one.content]
    return made


def pydantic_ai(role: str, said: list[Dict]) -> Any:
    def part(one: Dict) -> Any:
        match one["is"]:
            case "text":
                return TextPart(one["text"]) if role == "assistant" else UserPromptPart(one["text"])
            case "hosted":
                return NativeToolCallPart("code_execution", {}, one["id"], provider_name="anthropic")
            case "answer":
                ran = {"stdout": LONG, "return_code": 0}
                return NativeToolReturnPart("code_execution", ran, one["id"], provider_name="anthropic")
            case "call":
                return ToolCallPart("measure", {}, one["id"])
        return ToolReturnPart("measure", one["text"], one["id"])

    parts = [part(one) for one in said]
    return ModelResponse(parts) if role == "assistant" else ModelRequest(parts)


def seen_langchain(view: list[Any]) -> Seen:
    return seen_anthropic([{"content": one.content} for one in view])


def seen_pydantic_ai(view: list[Any]) -> Seen:
    kinds = {NativeToolCallPart: "call", NativeToolReturnPart: "result"}
    parts = [part for one in view for part in one.parts if type(part) in kinds]
    return [(kinds[type(part)], part.tool_call_id) for part in parts]


async def view_langchain(conversations: Conversations, said: list[Any]) -> list[Any]:
    wires = Wires().of(said)
    shown = await conversations.view(wires, key="k")
    return to_messages(shown.messages, shown.conversation.spoken, said, wires)


async def view_pydantic_ai(conversations: Conversations, said: list[Any]) -> list[Any]:
    chats = Chats(said)
    return chats.back((await conversations.view(chats.dicts, key="k")).messages)


async def views(
    shape: str, budget: int, said: list[list[Any]], on_event: EventHook | None = None
) -> list[list[Any]]:
    """Return the view of each beginning of a history."""
    begun = [[*chain(*said[: n + 1])] for n in range(len(said))]
    if shape in ("anthropic", "responses"):
        memory = CompressedMemory(max_total_tokens=budget, on_event=on_event)
        return [await memory.view(one, form=shape) for one in begun]  # type: ignore[arg-type]
    form = {"form": FORM} if "langchain" in shape else {}
    conversations = Conversations(**form, max_total_tokens=budget, on_event=on_event)  # type: ignore[arg-type]
    view = view_langchain if "langchain" in shape else view_pydantic_ai
    return [await view(conversations, one) for one in begun]


SHAPES: dict[str, tuple[Callable[[str, list[Dict]], Any], Callable[[list[Any]], Seen]]] = {
    "anthropic": (anthropic, seen_anthropic),
    "responses": (responses, seen_responses),
    "langchain": (langchain, seen_langchain),
    "langchain_v1": (langchain_v1, seen_langchain),
    "pydantic_ai": (pydantic_ai, seen_pydantic_ai),
}


@pytest.mark.parametrize("budget", [1_500, 4_000])
@pytest.mark.parametrize(
    ("shape", "how"),
    # Pydantic AI has no programs that call its own tools.
    [(shape, how) for shape in SHAPES for how in HOW if (shape, how) != ("pydantic_ai", "program")],
)
async def test_no_view_parts_a_hosted_call_from_its_result(shape: str, how: str, budget: int) -> None:
    write, seen_in = SHAPES[shape]
    said = [write(role, one) for k in range(TURNS) for role, one in turn(how, k)]
    said = [one if isinstance(one, list) else [one] for one in said]
    shown = await views(shape, budget, said)
    assert how == BROKEN_OFF or len(shown[-1]) < len([*chain(*said)])
    for view in shown:
        seen = seen_in(view)
        calls, results = ([id for kind, id in seen if kind == one] for one in ("call", "result"))
        assert len(set(results)) == len(results)
        assert all(seen.index(("call", id)) < seen.index(("result", id)) for id in results)
        assert {id for kind, id in seen if kind == "caller"} <= set(calls)
        assert how == BROKEN_OFF or not any(word in str(view) for word in ("unavailable", MISSING_RESULT))
        # One may still be to come; nothing but that may stand open.
        assert [id for id in calls if id not in results] in ([], calls[-1:])
    if how == BROKEN_OFF:
        assert set(calls) - set(results) == {f"srvtoolu_{TURNS - 1}"}


def failed(kind: str) -> dict[str, Any]:
    return {"type": f"{kind}_tool_result_error", "error_code": "unavailable"}


@pytest.mark.parametrize(
    ("name", "args", "details", "content"),
    [
        (
            "mcp_server:docs",
            {"action": "call_tool", "tool_name": "look", "tool_args": {}},
            None,
            {"is_error": True, "content": [{"type": "text", "text": MISSING_RESULT}]},
        ),
        ("web_search", {"query": "reed"}, None, failed("web_search")),
        ("code_execution", {"code": "1"}, None, failed("code_execution")),
        # Pydantic AI has one name for three tools of Anthropic's.
        ("code_execution", {"command": "ls"}, {"n": "bash_code_execution"}, failed("bash_code_execution")),
    ],
)
async def test_a_placeholder_is_what_the_model_for_anthropic_reads(
    name: str, args: dict[str, Any], details: dict[str, Any] | None, content: dict[str, Any]
) -> None:
    call = NativeToolCallPart(name, args, "srvtoolu_1", provider_name="anthropic", provider_details=details)
    said = [ModelRequest([UserPromptPart("Look.")]), ModelResponse([call])]
    said.append(ModelRequest([UserPromptPart("Never mind.")]))
    chats = Chats(said)
    view = chats.back((await Conversations(max_total_tokens=4_000).view(chats.dicts, key="k")).messages)
    [made] = [part for one in view for part in one.parts if isinstance(part, NativeToolReturnPart)]
    assert (made.tool_name, made.tool_call_id, made.content) == (call.tool_name, call.tool_call_id, content)


@pytest.mark.parametrize("write", [langchain, langchain_v1])
async def test_a_call_whose_argument_left_still_says_which_program_made_it(write: Any) -> None:
    said = [one for k in range(6) for role, parts in turn("program", k) for one in write(role, parts)]
    for message in said:
        if isinstance(message, AIMessage) and message.tool_calls:
            message.tool_calls[0]["args"] = {"text": LONG * 4}
    view = await view_langchain(Conversations(form=FORM, max_total_tokens=5_000, mode="compact"), said)
    shown = [one for one in view if isinstance(one, AIMessage) and "ctx://" in str(one.tool_calls)]
    uses = [block for one in shown for block in one.content if "ctx://" in str(block) and _seen(block)]
    assert [kind for use in uses for kind, _ in _seen(use)] == ["caller"] * len(shown)
    assert shown


# What a provider compacted

SECRET, WORDS = "gAAAAAB" + "x" * 1_000, "All 40 ponds of the north are done; use the net NW-7 only."


def compacted(shape: str, words: str | None) -> Any:
    block = {"type": "compaction", "id": "cmp_1", "encrypted_content": SECRET}
    if words is not None:
        block = {"type": "compaction", "content": words}
    match shape:
        case "responses":
            return block
        case "anthropic":
            return {"role": "assistant", "content": [block, {"type": "text", "text": "I go on."}]}
        case "langchain":
            return AIMessage([block])  # type: ignore[list-item]
    details = {"encrypted_content": SECRET} if words is None else None
    return ModelResponse([CompactionPart(words, provider_name="a provider", provider_details=details)])


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        *((shape, None) for shape in ("responses", "langchain", "pydantic_ai")),
        *((shape, WORDS) for shape in ("anthropic", "langchain", "pydantic_ai")),
    ],
)
async def test_what_a_provider_compacted_stays_or_is_told(shape: str, words: str | None) -> None:
    """What it alone can read stays; words reach the summary, and are found again."""
    write = SHAPES[shape][0]
    said = [[compacted(shape, words)]]
    for k in range(16):
        text = {"is": "text", "text": f"Pond {k}: {LONG}"}
        for role, one in (("user", {**text, "text": f"And pond {k}?"}), ("assistant", text)):
            wire = write(role, [one])
            said.append(wire if isinstance(wire, list) else [wire])
    events: list[CompressionEvent] = []
    for view in await views(shape, 6_000, said, events.append):
        assert (words or SECRET) in str(view)
    assert any("provider" in event.reason for event in events) == (words is not None)


async def test_what_a_provider_compacted_in_words_is_found_again() -> None:
    memory = CompressedMemory(max_total_tokens=4_000)
    turns = [anthropic(role, one) for k in range(12) for role, one in turn("beside", k)]
    await memory.view([compacted("anthropic", WORDS), *turns], form="anthropic")
    [hit, *_] = await memory.search_history("which net is to be used in the north")
    assert hit.text == WORDS
    assert WORDS in await memory.tools().call("grep_offloaded", {"pattern": "NW-7"})


async def test_a_compaction_leaves_where_there_is_no_room_for_it_and_an_event_says_so() -> None:
    events: list[CompressionEvent] = []
    memory = CompressedMemory(max_total_tokens=1_000, on_event=events.append)
    secret = {"type": "compaction", "encrypted_content": " ".join(f"{n:x}" for n in range(4_000))}
    view = await memory.view([secret, {"role": "user", "content": "And now?"}], form="responses")
    assert secret not in view
    assert "what the provider itself had compacted" in events[-1].reason
