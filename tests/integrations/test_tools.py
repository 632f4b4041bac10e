"""The read-back tools in an AgentScope `Toolkit`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from agentscope.formatter import AnthropicChatFormatter, OpenAIChatFormatter
from agentscope.tool import Toolkit, ToolResponse
from jsonschema import Draft202012Validator

from context_compressor import CompressedMemory, OffloadTools, from_openai
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory, register_offload_tools
from tests.integrations.messages import IMAGE, reply, result, turns, user
from tests.support.media import png_url

NAMES = [
    "read_offloaded",
    "grep_offloaded",
    "load_offloaded",
    "search_history",
    "compress_context",
]


async def call(toolkit: Toolkit, name: str, given: Any) -> ToolResponse:
    """Call a tool as an agent does, and return the last of its answers."""
    answers = [
        chunk
        async for chunk in await toolkit.call_tool_function(
            {"type": "tool_use", "id": "c", "name": name, "input": given}
        )
    ]
    return answers[-1]


async def ask(toolkit: Toolkit, name: str, **given: Any) -> str:
    [block] = (await call(toolkit, name, given)).content
    assert block["type"] == "text"
    return block["text"]


async def compressed() -> AgentScopeCompressedMemory:
    memory = AgentScopeCompressedMemory(max_total_tokens=4_000)
    await memory.add(turns(20))
    await memory.get_memory()
    return memory


async def test_the_tools_stand_in_the_toolkit_with_their_schemas() -> None:
    toolkit = Toolkit()
    tools = register_offload_tools(toolkit, await compressed())
    assert isinstance(tools, OffloadTools)
    schemas = toolkit.get_json_schemas()
    assert schemas == tools.schemas
    assert [schema["function"]["name"] for schema in schemas] == NAMES
    for schema in schemas:
        Draft202012Validator.check_schema(schema["function"]["parameters"])


async def test_what_left_the_view_is_read_searched_and_read_again() -> None:
    toolkit, memory = Toolkit(), await compressed()
    register_offload_tools(toolkit, memory)
    found = await ask(toolkit, "grep_offloaded", pattern=r"What does part_3\.log say")
    [(ref, line)] = re.findall(r"(ctx://[0-9a-f]{16}).*\n(\d+)\|", found)
    page = await ask(toolkit, "read_offloaded", ref=ref, offset=int(line), limit=1)
    assert (await memory.read_ref(ref)).splitlines()[int(line) - 1] in page
    assert "part_3.log" in page


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("read_offloaded", {}, "read_offloaded needs the argument ref"),
        ("read_offloaded", {"ref": None}, "read_offloaded needs the argument ref"),
        ("read_offloaded", {"ref": "ctx://0000000000000000"}, "No text"),
        ("read_offloaded", {"ref": ["x"], "offset": {}}, "offset must be a whole number"),
        ("read_offloaded", {"file": "a"}, 'read_offloaded has no argument "file"'),
        ("grep_offloaded", {"pattern": "("}, "pattern"),
        ("grep_offloaded", {"pattern": 5}, "pattern must be a string"),
        ("load_offloaded", {}, "load_offloaded needs the argument ref"),
        ("load_offloaded", {"ref": "ctx://0000000000000000"}, "No text"),
        ("load_offloaded", {"self": 1, "name": 2, "arguments": 3}, 'load_offloaded has no argument "self"'),
    ],
)
async def test_bad_arguments_are_answered_in_words(name: str, given: dict[str, Any], told: str) -> None:
    toolkit = Toolkit()
    register_offload_tools(toolkit, await compressed())
    answer = (
        await ask(toolkit, name, **given) if "name" not in given else str(await call(toolkit, name, given))
    )
    assert told in answer
    assert "Error:" not in answer  # the toolkit's word for an exception


async def with_an_image() -> tuple[AgentScopeCompressedMemory, str]:
    """Return a memory that moved an image out, and its ref."""
    memory = AgentScopeCompressedMemory(max_total_tokens=4_000, keep_images=0, keep_recent_count=1)
    seen = [{"type": "text", "text": "the picture"}, IMAGE]
    await memory.add([user("Look."), reply("", ("c", "screenshot", {})), result("c", seen), *turns(12)])
    assert IMAGE["source"]["data"] not in str(await memory.get_memory())
    for ref in await memory.reachable_refs():
        if await memory.read_ref(ref) == png_url():
            return memory, ref
    pytest.fail("the image was not offloaded")


async def test_an_image_comes_back_as_a_block_that_formatters_show() -> None:
    memory, ref = await with_an_image()
    toolkit = Toolkit()
    register_offload_tools(toolkit, memory)
    response = await call(toolkit, "load_offloaded", {"ref": ref})
    text, image = response.content
    assert ref in text["text"]  # type: ignore[typeddict-item]
    assert image == IMAGE
    assert ref in await ask(toolkit, "read_offloaded", ref=ref)

    await memory.add([reply("", ("l", "load_offloaded", {"ref": ref})), result("l", response.content)])
    view = await memory.get_memory()
    shown = await OpenAIChatFormatter(promote_tool_result_images=True).format(view)
    assert [part["type"] for part in shown[-1]["content"] if part["type"] != "text"] == ["image_url"]
    assert IMAGE["source"]["data"] in str(await AnthropicChatFormatter().format(view))


async def test_a_file_which_a_response_cannot_hold_is_told_in_words() -> None:
    memory = CompressedMemory(config=(await with_an_image())[0].config)
    data = "data:application/pdf;base64," + "JVBERi0x" * 50
    part = {"type": "file", "file": {"filename": "a.pdf", "file_data": data}}
    said: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "Read."}, part]}]
    said += [{"role": "user", "content": f"And {n}? " + "word " * 100} for n in range(60)]
    await memory.add(from_openai(said))
    await memory.get_memory()
    [ref] = [ref for ref in await memory.reachable_refs() if await memory.read_ref(ref) == data]
    toolkit = Toolkit()
    register_offload_tools(toolkit, memory)
    blocks = (await call(toolkit, "load_offloaded", {"ref": ref})).content
    assert {block["type"] for block in blocks} == {"text"}
    assert "cannot be shown" in str(blocks)


async def test_a_group_is_kept_and_a_name_is_taken_once() -> None:
    toolkit, memory = Toolkit(), AgentScopeCompressedMemory()
    with pytest.raises(ValueError, match="archive"):
        register_offload_tools(toolkit, memory, group_name="archive")
    toolkit.create_tool_group("archive", "Reads what left the conversation.")
    register_offload_tools(toolkit, memory, group_name="archive")
    assert toolkit.get_json_schemas() == []
    toolkit.update_tool_groups(["archive"], active=True)
    assert len(toolkit.get_json_schemas()) == 5
    assert "nothing to search" in await ask(toolkit, "grep_offloaded", pattern="x")
    with pytest.raises(ValueError, match="already"):
        register_offload_tools(toolkit, memory)


async def test_the_tools_go_on_after_a_state_was_loaded(tmp_path: Any) -> None:
    saved = AgentScopeCompressedMemory(max_total_tokens=4_000, store_dir=str(tmp_path))
    await saved.add(turns(20))
    await saved.get_memory()
    memory, toolkit = AgentScopeCompressedMemory(max_total_tokens=4_000, store_dir=str(tmp_path)), Toolkit()
    register_offload_tools(toolkit, memory)
    memory.load_state_dict(saved.state_dict())
    assert "part_3" in await ask(toolkit, "grep_offloaded", pattern="part_3")


async def test_where_a_name_is_taken_no_tool_is_registered() -> None:
    toolkit = Toolkit()

    def search_history(query: str) -> ToolResponse:
        """Search what the user wrote."""
        return ToolResponse(content=[{"type": "text", "text": query}])

    toolkit.register_tool_function(search_history)
    with pytest.raises(ValueError, match="search_history"):
        register_offload_tools(toolkit, AgentScopeCompressedMemory())
    assert list(toolkit.tools) == ["search_history"]
    assert toolkit.tools["search_history"].original_func is search_history
