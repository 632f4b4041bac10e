"""Long arguments and media leave the view like tool results: behind a stub, and back by ref."""

from __future__ import annotations

import json
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    InMemoryOffloadStore,
    OffloadTools,
    from_openai,
    to_openai,
)
from context_compressor.errors import InvalidArgumentError, OffloadError
from context_compressor.laws.chat_rules import problems
from context_compressor.offload.store import ref_of
from tests.memory.scripted import REF
from tests.support.media import png_url

BODY = "\n".join(f"def handler_{i}(request):\n    return respond({i}, request.path)" for i in range(120))
"""Some 2,000 tokens."""


def write(number: int, body: str = BODY) -> list[dict[str, Any]]:
    arguments = json.dumps({"path": f"src/module_{number}.py", "content": body})
    call = {
        "id": f"w{number}",
        "type": "function",
        "function": {"name": "write_file", "arguments": arguments},
    }
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"w{number}", "content": "ok"},
    ]


def screenshot(number: int, url: str | None = None) -> list[dict[str, Any]]:
    part = {"type": "image_url", "image_url": {"url": url or png_url(seed=number)}}
    return [
        {"role": "user", "content": [{"type": "text", "text": f"screen {number}"}, part]},
        {"role": "assistant", "content": f"I see screen {number}."},
    ]


def memory_of(budget: int, **values: Any) -> CompressedMemory:
    values = {"keep_recent_count": 2, **values}
    return CompressedMemory(config=CompressionConfig(max_total_tokens=budget, **values))


async def view_of(memory: CompressedMemory) -> list[dict[str, Any]]:
    wire = to_openai(await memory.get_memory())
    assert problems(wire) == []
    assert memory.counter.count_messages(wire) <= memory.config.budget
    return wire


def images(wire: list[dict[str, Any]]) -> list[str]:
    parts = [part for message in wire if isinstance(message["content"], list) for part in message["content"]]
    return [part["image_url"]["url"] for part in parts if part.get("type") == "image_url"]


def refs(wire: list[dict[str, Any]]) -> list[str]:
    return REF.findall(json.dumps(wire))


class TestArguments:
    async def test_the_body_of_an_old_write_is_shortened_inside_the_json(self) -> None:
        memory = memory_of(6_000, max_tool_message_tokens=1_000)
        await memory.add(from_openai([{"role": "user", "content": "build it"}, *write(1), *write(2)]))
        await view_of(memory)
        await memory.add(from_openai(write(3)))
        wire = await view_of(memory)
        function = wire[1]["tool_calls"][0]["function"]
        arguments = json.loads(function["arguments"])
        assert arguments["path"] == "src/module_1.py"
        assert arguments["content"].startswith("[Offloaded argument ctx://")
        assert len(arguments["content"]) < 1_500
        (ref,) = REF.findall(arguments["content"])
        assert await memory.read_ref(ref) == BODY
        newest = json.loads(wire[-2]["tool_calls"][0]["function"]["arguments"])
        assert newest["content"] == BODY  # recent messages stay word for word
        assert (
            json.loads(to_openai(await memory.get_history())[1]["tool_calls"][0]["function"]["arguments"])[
                "content"
            ]
            == BODY
        )

    async def test_the_tool_reads_it_back(self) -> None:
        memory = memory_of(6_000, max_tool_message_tokens=1_000)
        await memory.add(
            from_openai([{"role": "user", "content": "build it"}, *write(1), *write(2), *write(3)])
        )
        ref = refs(await view_of(memory))[0]
        page = await OffloadTools(memory).call("read_offloaded", {"ref": ref, "limit": 2})
        assert "def handler_0(request):" in page

    async def test_excluded_tools_keep_theirs_until_they_enter_a_segment(self) -> None:
        memory = memory_of(6_000, exclude_tools={"write_file"}, mode="compact")
        await memory.add(
            from_openai([{"role": "user", "content": "build it"}, *write(1), *write(2), *write(3)])
        )
        wire = await view_of(memory)
        assert "Offloaded argument" not in json.dumps(wire)

    async def test_a_huge_recent_one_gives_way_to_the_budget(self) -> None:
        memory = memory_of(2_000, keep_recent_count=10)
        await memory.add(from_openai([{"role": "user", "content": "build it"}, *write(1)]))
        wire = await view_of(memory)
        assert json.loads(wire[1]["tool_calls"][0]["function"]["arguments"])["path"] == "src/module_1.py"
        assert await memory.read_ref(refs(wire)[0]) == BODY

    async def test_a_saved_state_brings_the_same_view(self) -> None:
        memory = memory_of(6_000, max_tool_message_tokens=1_000)
        await memory.add(
            from_openai([{"role": "user", "content": "build it"}, *write(1), *write(2), *write(3)])
        )
        wire = await view_of(memory)
        other = CompressedMemory(config=memory.config, store=memory.store)
        other.load_state_dict(json.loads(json.dumps(memory.state_dict())))
        assert await view_of(other) == wire


class TestMedia:
    async def test_the_newest_stay_and_older_ones_leave_at_the_next_event(self) -> None:
        memory = memory_of(8_000, keep_images=2)
        for number in range(9):
            await memory.add(from_openai(screenshot(number)))
            wire = await view_of(memory)
        await memory.add(
            from_openai([{"role": "user", "content": BODY}, {"role": "assistant", "content": BODY}])
        )
        wire = await view_of(memory)
        assert images(wire)[-2:] == [png_url(seed=7), png_url(seed=8)]
        assert len(images(wire)) <= 2

    async def test_a_stub_names_kind_dimensions_and_size(self) -> None:
        memory = memory_of(2_000, keep_images=1, keep_recent_count=0, mode="compact")
        url = png_url(800, 600)
        await memory.add(from_openai(screenshot(0, url)))
        for number in range(1, 5):
            await memory.add(from_openai(screenshot(number)))
        stubs = [
            part["text"]
            for message in await view_of(memory)
            if isinstance(message["content"], list)
            for part in message["content"]
            if "Offloaded image" in part.get("text", "")
        ]
        size = len(url.partition(",")[2]) * 3 // 4
        assert any(
            "image/png, 800x600 pixels" in stub and f"{size - 2}" <= stub.split(" bytes")[0][-4:]
            for stub in stubs
        )

    async def test_nothing_leaves_before_the_budget_asks_for_it(self) -> None:
        memory = memory_of(60_000, keep_images=0)
        for number in range(9):
            await memory.add(from_openai(screenshot(number)))
        assert len(images(await view_of(memory))) == 9

    async def test_what_a_model_drew_stays_without_a_word_and_leaves_like_any_image(self) -> None:
        """OpenRouter and LiteLLM put it beside the content."""
        memory = memory_of(8_000, keep_images=2)
        urls = [png_url(seed=number) for number in range(9)]
        for number, url in enumerate(urls):
            drawn = {"type": "image_url", "image_url": {"url": url}, "index": 0}
            answer = {"role": "assistant", "content": "", "images": [drawn]}
            await memory.add(from_openai([{"role": "user", "content": f"draw {number}"}, answer]))
            assert (await view_of(memory))[-1] == answer
        await memory.add(
            from_openai([{"role": "user", "content": BODY}, {"role": "assistant", "content": BODY}])
        )
        left = [url for url in urls if url not in json.dumps(await view_of(memory))]
        stored = [await memory.read_ref(ref) for ref in await memory.reachable_refs()]
        assert len(left) >= 7
        assert set(left) <= set(stored)

    async def test_urls_stay_as_they_are(self) -> None:
        memory = memory_of(3_000, keep_images=0, keep_recent_count=0, mode="compact", target_ratio=0.9)
        await memory.add(from_openai(screenshot(0, "https://example.com/a.png")))
        wire = await view_of(memory)
        assert images(wire) == ["https://example.com/a.png"]

    async def test_loading_gives_the_providers_part_and_a_message_to_add(self) -> None:
        memory = memory_of(2_000, keep_images=1, keep_recent_count=0, mode="compact")
        for number in range(6):
            await memory.add(from_openai(screenshot(number)))
        wire = await view_of(memory)
        stored = [ref for ref in refs(wire) if (await memory.read_ref(ref)).startswith("data:")]
        tools = OffloadTools(memory)
        url = await memory.read_ref(stored[0])
        assert await tools.load(stored[0]) == {"type": "image_url", "image_url": {"url": url}}
        answer = await tools.call("load_offloaded", {"ref": stored[0]})
        assert "follows as a message of the user" in answer
        attached = await tools.attachment("load_offloaded", {"ref": stored[0]})
        assert attached is not None
        call = {"id": "l1", "type": "function", "function": {"name": "load_offloaded", "arguments": "{}"}}
        await memory.add(
            from_openai(
                [
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "l1", "content": answer},
                    attached,
                ]
            )
        )
        assert images(await view_of(memory))[-1] == url  # it does not leave again at once

    async def test_what_was_loaded_does_not_take_the_place_of_the_request(self) -> None:
        memory = memory_of(6_000, keep_images=0, keep_first_user=False)
        await memory.add(from_openai([*screenshot(0), *write(0)]))
        await memory.compress_now()
        request = {"role": "user", "content": "Which screen is blue?"}
        loaded = {"ref": ref_of(png_url(seed=0))}
        attached = await OffloadTools(memory).attachment("load_offloaded", loaded)
        assert attached is not None
        await memory.add(from_openai([request, *write(1), attached]))
        for number in range(2, 20):
            await memory.add(from_openai(write(number)))
            assert request in await view_of(memory)

    async def test_parts_for_dashscopes_own_endpoint_have_its_form(self) -> None:
        memory = memory_of(2_000, keep_images=1, keep_recent_count=0, mode="compact")
        for number in range(6):
            await memory.add(from_openai(screenshot(number)))
        stored = [
            ref for ref in refs(await view_of(memory)) if (await memory.read_ref(ref)).startswith("data:")
        ]
        tools = OffloadTools(memory, wire="dashscope")
        assert await tools.load(stored[0]) == {"image": await memory.read_ref(stored[0])}
        attached = await tools.attachment("load_offloaded", {"ref": stored[0]})
        assert all("type" not in part for part in attached["content"])
        assert to_openai(from_openai([attached])) == [attached]
        with pytest.raises(InvalidArgumentError, match="wire"):
            OffloadTools(memory, wire="other")  # type: ignore[arg-type]

    async def test_text_tools_and_media_send_each_other_the_right_way(self) -> None:
        memory = memory_of(2_000, keep_images=1, keep_recent_count=0, mode="compact", target_ratio=0.9)
        for number in range(6):
            await memory.add(from_openai(screenshot(number)))
        await memory.add(from_openai(write(1)))
        wire = await view_of(memory)
        texts = {ref: await memory.read_ref(ref) for ref in refs(wire)}
        media = next(ref for ref, text in texts.items() if text.startswith("data:"))
        text = next(ref for ref, text in texts.items() if not text.startswith("data:"))
        tools = OffloadTools(memory)
        assert "show it with load_offloaded" in await tools.call("read_offloaded", {"ref": media})
        assert "read it with read_offloaded" in await tools.call("load_offloaded", {"ref": text})
        assert await tools.attachment("load_offloaded", {"ref": text}) is None
        assert await tools.attachment("read_offloaded", {"ref": media}) is None
        assert "No line matches" in await tools.call(
            "grep_offloaded", {"pattern": "iVBORw0KGgo", "ref": media}
        )
        with pytest.raises(OffloadError, match="is a text"):
            await tools.load(text)

    async def test_an_image_too_large_for_the_budget_is_not_loaded(self) -> None:
        memory = memory_of(1_500, keep_images=0, keep_recent_count=0)
        await memory.add(from_openai(screenshot(0, png_url(2_000, 2_000))))
        ref = refs(await view_of(memory))[0]
        assert "cannot be shown" in await OffloadTools(memory).call("load_offloaded", {"ref": ref})

    async def test_typeless_parts_stay_typeless(self) -> None:
        memory = memory_of(1_200, keep_images=0, keep_recent_count=0, mode="compact", target_ratio=0.9)
        for number in range(4):
            image = {"image": png_url(seed=number)}
            await memory.add(
                from_openai([{"role": "user", "content": [image, {"text": f"screen {number}"}]}])
            )
        wire = await view_of(memory)
        parts = [
            part for message in wire if isinstance(message["content"], list) for part in message["content"]
        ]
        assert any("Offloaded image" in part.get("text", "") for part in parts)
        assert all("type" not in part for part in parts)

    async def test_a_deleted_image_leaves_the_store(self) -> None:
        store = InMemoryOffloadStore()
        memory = CompressedMemory(
            config=CompressionConfig(max_total_tokens=2_000, keep_images=0, keep_recent_count=0), store=store
        )
        added = from_openai([message for number in range(6) for message in screenshot(number)])
        await memory.add(added)
        await view_of(memory)
        assert await store.refs()
        await memory.delete([msg.id for msg in added])
        await memory.get_memory()
        assert await store.refs() == []
