"""What the tools answer over a memory: originals, how long ago they were said, and who said them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from context_compressor import CompressedMemory, OffloadTools
from tests.memory.scripted import (
    Noting,
    assistant,
    call,
    config,
    filled,
    new_memory,
    result,
    text,
    turns,
    user,
)

Dict = dict[str, Any]
URL, FILE = "https://img.example/plan.png", "file-abc123"


def exchange(id: str, output: str) -> list[Dict]:
    return [call(id), result(id, output)]


def logs(count: int, lines: int = 40) -> list[Dict]:
    """Return reads of logs, each of a size that leaves the view when the next ones come."""
    said: list[Dict] = []
    for n in range(count):
        read = "\n".join(f"INFO host {n} request {k}" for k in range(lines))
        said += exchange(f"c{n}", f"{read}\nERROR disk {n} is full")
    return said


async def tools_over(said: list[Dict], **more: Any) -> OffloadTools:
    memory = CompressedMemory(max_total_tokens=8_000, **more)
    tools = memory.tools()
    await memory.view(said)
    return tools


async def test_roles_are_told_apart_and_what_repeats_comes_last() -> None:
    told, question = "The staging server listens on port 8443.", "Which port does the staging server have?"
    search = call("s", name="mcp__memory__search_history", arguments=json.dumps({"query": question}))
    said = [
        user(told),
        {"role": "assistant", "content": f"Noted, as you say: {told}"},
        *exchange("c0", f"config read\n{told}\nend of config"),
        *exchange("c1", f"another file\n{told}\nend of another file"),
        search,
        result("s", f'Nothing in this conversation answers "{question}"; try other words.'),
        *logs(40),
        user(question),
    ]
    tools = await tools_over(said)
    memory: Any = tools._memory
    hits = await memory.search_history(question, limit=20)
    assert hits[0].text == told
    places = {hit.text: number for number, hit in enumerate(hits)}
    assert places[question] > places[told]
    assert {hit.tool for hit in hits[-2:]} == {None, "mcp__memory__search_history"}
    telling = [hit for hit in hits if told in hit.text]
    assert telling[-1].role == "tool"
    assert hits.index(telling[-1]) > hits.index(telling[-2])
    for role in ("user", "assistant", "tool"):
        found = await memory.search_history("staging server port", limit=20, role=role)
        assert found
        assert {hit.role for hit in found} == {role}
    answer = await tools.call("search_history", {"query": "staging server", "role": "User"})
    assert told in answer
    assert "config read" not in answer
    assert "one of user, assistant, tool" in await tools.call("search_history", {"query": "x", "role": "me"})


async def test_originals_are_searched_and_neither_notes_nor_previews() -> None:
    memory = new_memory(config(4_000), summarizer=Noting())
    tools = OffloadTools(memory)
    for message in [*turns(20, tag="a"), *logs(6, 300), *turns(100, tag="b")]:
        await filled(memory, [message])
        await memory.get_memory()
    assert any(segment.children for segment in memory._tracker.state.ledger.segments())
    stored = [await memory.read_ref(ref) for ref in await memory.reachable_refs()]
    assert "went on as planned" in str([msg.content for msg in await memory.get_memory()])
    assert sum("disk 4 is full" in one for one in stored) > 1
    answer = await tools.call("grep_offloaded", {"pattern": "went on as planned"})
    assert answer.startswith("No line matches")
    assert answer.endswith("What stands in view was not searched.")
    found = await tools.call("grep_offloaded", {"pattern": ".*disk 4 is full"})
    assert re.match(r"\[ctx://\w{16} matches: 1, lines: \d+, (?:\d+ to )?\d+ messages ago\]\n", found)
    assert found.count("disk 4 is full") == 1
    assert found.endswith("[end; what stands in view was not searched]")


@pytest.mark.parametrize("form", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize("name", [URL, FILE])
async def test_media_that_were_given_by_url_or_file_id_come_back(name: str, form: Any) -> None:
    shown: dict[str, list[Dict]] = {
        "chat": [
            {"type": "image_url", "image_url": {"url": URL}},
            {"type": "file", "file": {"file_id": FILE}},
        ],
        "responses": [
            {"type": "input_image", "image_url": URL, "detail": "auto"},
            {"type": "input_file", "file_id": FILE},
        ],
        "anthropic": [
            {"type": "image", "source": {"type": "url", "url": URL}},
            {"type": "document", "source": {"type": "file", "file_id": FILE}},
        ],
    }
    kind = "input_text" if form == "responses" else "text"
    asked = {"role": "user", "content": [{"type": kind, "text": "See."}, *shown[form]]}
    plain = [one for n in range(40) for one in (user("Go on."), assistant(text(f"answer-{n}", 60)))]
    memory = CompressedMemory(max_total_tokens=16_000)
    tools = memory.tools(form)
    assert name not in json.dumps(await memory.view([user("Begin."), asked, *plain], form=form))
    attached = await tools.attachment("load_offloaded", {"ref": f" {name} "})
    assert attached["content"][-1] == shown[form][name == FILE]
    assert f"[{name}, loaded by load_offloaded]" in json.dumps(attached)
    assert "follows as a message" in await tools.call("load_offloaded", {"ref": name})
    assert "No text" in await tools.call("load_offloaded", {"ref": "https://img.example/other.png"})
