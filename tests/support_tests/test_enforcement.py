"""What the server refuses, in the provider's own form, as the real SDKs show it."""

import json
from typing import Any

import pytest

from tests.support.model_server import ModelServer, completion
from tests.support.provider_tokens import count_request
from tests.support.validity import RECORDED_PARTS
from tests.support_tests.clients import CLIENTS, DASHSCOPE_CLIENTS, OPENAI_CLIENTS, Client, RefusedError

Dict = dict[str, Any]
HI: Dict = {"role": "user", "content": "Hi."}
OVERFLOW = "maximum context length is 100 tokens|Range of input length should be \\[1, 100\\]"

every_client = pytest.mark.parametrize("client", CLIENTS, ids=str)


def call(*ids: Any, arguments: Any = "{}") -> Dict:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}} for id in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def result(id: str, content: Any = "done") -> Dict:
    return {"role": "tool", "tool_call_id": id, "content": content}


REFUSED = {
    "result without call": ([HI, result("a")], "result for 'a', which is not open"),
    "call without result": ([HI, call("a"), HI], "call 'a' has no result"),
    "call at the end": ([HI, call("a")], "call 'a' has no result"),
    "one of two results": ([HI, call("a", "b"), result("b"), HI], "call 'a' has no result"),
    "result after another message": ([HI, call("a"), HI, result("a")], "call 'a' has no result"),
    "second result": ([HI, call("a"), result("a"), result("a")], "second result for 'a'"),
    "same id in one message": ([HI, call("a", "a"), result("a")], "call id 'a' used before"),
    "same id later": ([HI, *[call("a"), result("a")] * 2], "call id 'a' used before"),
    "empty id": ([HI, call(""), result("")], "call without id"),
    "id that is no text": ([HI, call(None), HI], "call without id"),
    "empty assistant": ([HI, {"role": "assistant", "content": ""}], "empty assistant message"),
    "silent assistant": ([HI, {"role": "assistant", "content": None}], "empty assistant message"),
    "empty calls": ([HI, {"role": "assistant", "content": "x", "tool_calls": []}], "empty tool_calls"),
    "empty list of parts": ([HI, {"role": "system", "content": []}], "system message without content"),
    "result of null": ([HI, call("a"), result("a", None)], "result without content"),
    "arguments cut off": ([HI, call("a", arguments='{"a'), result("a")], "arguments that are no JSON object"),
    "arguments in a list": ([HI, call("a", arguments="[1]"), result("a")], "arguments that are no JSON obj"),
    "no arguments": ([HI, call("a", arguments=""), result("a")], "arguments that are no JSON object"),
    "only instructions": ([{"role": "system", "content": "Be kind."}], "only instructions"),
    "role": ([HI, {"role": "critic", "content": "Hm."}], "role 'critic'"),
    "content": ([HI, {"role": "user", "content": 5}], "content that is no text and no list"),
}


@every_client
@pytest.mark.parametrize(("messages", "problem"), REFUSED.values(), ids=REFUSED)
async def test_an_invalid_history_is_refused(client: Client, messages: list[Dict], problem: str):
    if client.name.startswith("multimodal") and messages[-1]["content"] == 5:
        pytest.skip("the SDK iterates over the content of user messages")
    async with ModelServer(lambda messages: "never") as server:
        with pytest.raises(RefusedError) as caught:
            await client.ask(server, messages)
        assert caught.value.status == 400
        assert problem in caught.value.message
        assert problem in server.refusals[0]
        assert server.requests[0].refused


@every_client
async def test_a_refusal_of_a_stream_is_the_same(client: Client):
    async with ModelServer(lambda messages: "never") as server:
        with pytest.raises(RefusedError, match="which is not open") as caught:
            await client.ask(server, [HI, result("a")], stream=True)
        assert caught.value.status == 400
        expected = {"openai": "invalid_value", "compatible": "invalid_parameter_error"}
        kind = "openai" if client in OPENAI_CLIENTS[:2] else client.name
        assert caught.value.code == expected.get(kind, "InvalidParameter")


async def test_a_refusal_takes_nothing_from_the_script():
    async with ModelServer() as server:
        server.script(completion("first"), completion("second"))
        with pytest.raises(RefusedError):
            await CLIENTS[0].ask(server, [HI, result("a")])
        assert (await CLIENTS[0].ask(server, [HI])).content == "first"


@every_client
async def test_without_enforcement_anything_is_answered(client: Client):
    async with ModelServer(lambda messages: "well", 10, enforce=False) as server:
        assert (await client.ask(server, [HI, result("a"), call("b")])).content == "well"
        assert server.refusals == []


@every_client
async def test_what_is_valid_passes(client: Client):
    history = [
        {"role": "system", "content": "Be kind."},
        HI,
        {**call("a", "b"), "content": None},
        result("b"),
        result("a", ""),
        {"role": "assistant", "content": "Done."},
        HI,
        call("c", arguments='{"deep": {"a": [1]}}'),
        result("c"),
    ]
    async with ModelServer(lambda messages: "well") as server:
        assert (await client.ask(server, history)).content == "well"


IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


class TestParts:
    @pytest.mark.parametrize("client", OPENAI_CLIENTS, ids=str)
    @pytest.mark.parametrize(
        ("role", "part"),
        [
            ("user", {"text": "typeless"}),
            ("user", {"type": "document_url", "document_url": "https://example.com/a.pdf"}),
            ("user", {"type": "image", "image": "https://example.com/a.png"}),
            ("user", {"type": "refusal", "refusal": "no"}),
            ("assistant", IMAGE),
            ("system", IMAGE),
            ("user", {"type": "text", "text": None}),
            ("user", {}),
        ],
        ids=lambda value: json.dumps(value) if isinstance(value, dict) else value,
    )
    async def test_one_that_openai_does_not_know_is_refused(self, client: Client, role: str, part: Dict):
        async with ModelServer(lambda messages: "never") as server:
            with pytest.raises(RefusedError, match="part") as caught:
                await client.ask(server, [HI, {"role": role, "content": [part]}])
            assert caught.value.status == 400

    @pytest.mark.parametrize("client", OPENAI_CLIENTS, ids=str)
    @pytest.mark.parametrize(
        ("role", "part"),
        [
            ("user", IMAGE),
            ("user", {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}),
            ("user", {"type": "file", "file": {"file_id": "file-1"}}),
            ("assistant", {"type": "refusal", "refusal": "no"}),
            ("system", {"type": "text", "text": "x"}),
        ],
        ids=lambda value: value["type"] if isinstance(value, dict) else value,
    )
    async def test_one_that_openai_knows_passes(self, client: Client, role: str, part: Dict):
        async with ModelServer(lambda messages: "well") as server:
            await client.ask(server, [HI, {"role": role, "content": [part]}])

    @pytest.mark.parametrize(
        "part", [{"text": "x"}, {"image": "https://x.com/a.png"}, {"video": []}], ids=str
    )
    async def test_dashscope_s_multimodal_endpoint_takes_typeless_ones(self, part: Dict):
        async with ModelServer(lambda messages: "well") as server:
            message = {"role": "user", "content": [part]}
            await DASHSCOPE_CLIENTS[-1].ask(server, [message])
            if "text" not in part:
                with pytest.raises(RefusedError, match=r"part '\{"):
                    await DASHSCOPE_CLIENTS[0].ask(server, [message])

    async def test_what_the_recordings_hold_passes_if_asked_for(self):
        parts = [
            {"type": "document_url", "document_url": "https://example.com/a.pdf"},
            {"type": "tool_reference", "tool_name": "f"},
            {"type": "document", "source": {"type": "file", "file_id": "f"}},
            {"text": "x"},
            {"image": "https://example.com/a.png"},
            IMAGE,
        ]
        history = [HI, call("a"), result("a", parts), {"role": "user", "content": parts}]
        async with ModelServer(lambda messages: "well", parts=RECORDED_PARTS) as server:
            await CLIENTS[0].ask(server, history)
            with pytest.raises(RefusedError, match="part 'hologram'"):
                await CLIENTS[0].ask(server, [{"role": "user", "content": [{"type": "hologram"}]}])


class TestWindow:
    @every_client
    async def test_what_does_not_fit_is_refused(self, client: Client):
        async with ModelServer(lambda messages: "well", window_tokens=100) as server:
            fitting = {"role": "user", "content": "word " * 90}
            await client.ask(server, [fitting])
            for stream in (False, True):
                with pytest.raises(RefusedError, match=OVERFLOW) as caught:
                    await client.ask(server, [fitting, fitting], stream=stream)
                assert caught.value.status == 400
                kind = "context_length_exceeded" if client in OPENAI_CLIENTS[:2] else "nvalid"
                assert kind in str(caught.value.code)
            assert "tokens in a window of 100" in server.refusals[0]

    async def test_everything_in_the_request_is_counted(self):
        text = "word " * 40
        for more in (
            {"tools": [{"type": "function", "function": {"name": "f", "description": text}}]},
            {"messages": [{**HI, "name": "word" * 40}]},
            {"messages": [HI, call("a", arguments=json.dumps({"a": text})), result("a")]},
            {"messages": [HI, call("word" * 40), result("word" * 40)]},
            {"messages": [HI, call("a"), result("a", text)]},
            {"messages": [HI, {"role": "assistant", "content": "x", "reasoning_content": text}]},
        ):
            assert count_request(**{"messages": [HI], **more}) > 40, more

    async def test_an_image_costs_the_same_whatever_its_size(self):
        small, large = (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x" * size}}]}]
            for size in (1, 10**6)
        )
        assert 1_000 < count_request(small) == count_request(large) < 3_000


@pytest.mark.parametrize("path", ["chat/completions", "embeddings"])
@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b"\xff"])
async def test_what_is_no_request_is_refused(path: str, body: bytes):
    import aiohttp

    async with ModelServer() as server, aiohttp.ClientSession() as session:
        async with session.post(f"{server.url}/{path}", data=body) as response:
            assert response.status == (400 if path == "chat/completions" else 404)
            assert "message" in (await response.json())["error"]
        assert server.requests[0].refused
