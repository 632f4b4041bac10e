"""What the scripted server answers, as the real SDKs read it."""

import asyncio
import json

import aiohttp
import dashscope
import pytest

from tests.support.model_server import CallThenAnswer, ModelServer, Received, answer, completion, status
from tests.support_tests.clients import CLIENTS, Client, RefusedError

HI = [{"role": "user", "content": "Hi there."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
            "required": ["path"],
        },
    },
}

every_client = pytest.mark.parametrize("client", CLIENTS, ids=str)
streamed_or_not = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@every_client
@streamed_or_not
async def test_text_reasoning_calls_and_usage_arrive(client: Client, stream: bool):
    calls = [("read_file", {"path": "数据/a.txt"}), ("list_files", {})]
    policy = answer("I shall look at that file.", calls, reasoning="What could it be?")
    async with ModelServer(lambda messages: policy) as server:
        heard = await client.ask(server, HI, stream=stream, tools=[TOOL])
    assert heard.content == "I shall look at that file."
    assert heard.reasoning == "What could it be?"
    assert [(name, json.loads(arguments)) for _, name, arguments in heard.calls] == calls
    assert len({id for id, _, _ in heard.calls} - {""}) == 2
    assert heard.finish_reason == "tool_calls"
    assert heard.usage is not None
    read, written = heard.usage
    assert read > 40
    assert written > 20
    assert (heard.pieces > 10) is stream


@every_client
@streamed_or_not
async def test_a_scripted_completion_is_the_same_in_every_wire(client: Client, stream: bool):
    async with ModelServer() as server:
        server.script(completion("Yes.", usage=(321, 45), finish_reason="length"))
        heard = await client.ask(server, HI, stream=stream)
    assert (heard.content, heard.usage, heard.finish_reason, heard.calls) == ("Yes.", (321, 45), "length", [])


@every_client
async def test_a_call_and_its_result_are_taken_back(client: Client):
    def policy(messages):
        return answer(None, [("look", {})]) if messages[-1]["role"] == "user" else answer("Seen.")

    async with ModelServer(policy) as server:
        first = await client.ask(server, HI)
        [(id, name, arguments)] = first.calls
        call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        history = [
            *HI,
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": id, "content": "a file"},
        ]
        assert (await client.ask(server, history)).content == "Seen."
        assert server.refusals == []


async def test_dashscope_answers_in_the_older_form_if_asked():
    async with ModelServer(lambda messages: "Plain.") as server, aiohttp.ClientSession() as session:
        made = await dashscope.AioGeneration.call(
            "qwen-scripted", "Hi.", api_key="k", base_address=server.dashscope_url, session=session
        )
    assert (made.output.text, made.output.finish_reason, made.output.choices) == ("Plain.", "stop", None)
    assert server.requests[0].messages == [{"role": "user", "content": "Hi."}]


async def test_ids_are_unique_and_the_same_in_every_run():
    async def ids() -> list[str]:
        async with ModelServer(lambda messages: answer(None, [("a", {}), ("a", {})])) as server:
            heard = [await CLIENTS[0].ask(server, HI) for _ in range(2)]
        return [id for each in heard for id, _, _ in each.calls]

    first = await ids()
    assert len(set(first)) == 4
    assert await ids() == first


async def test_a_model_may_write_broken_arguments_and_ids_of_its_own():
    async with ModelServer(lambda messages: answer(None, [("a", '{"path": "src/ma', "mine")])) as server:
        assert (await CLIENTS[0].ask(server, HI)).calls == [("mine", "a", '{"path": "src/ma')]


class TestPolicies:
    async def test_one_may_be_asynchronous_and_see_the_request(self):
        async def policy(messages, received: Received):
            await asyncio.sleep(0)
            return f"{messages[0]['content']} {len(received.tools)}"

        async with ModelServer(policy) as server:
            assert (await CLIENTS[0].ask(server, HI, tools=[TOOL])).content == "Hi there. 1"
            assert (await CLIENTS[3].ask(server, HI, tools=[TOOL])).content == "Hi there. 1"

    async def test_what_is_scripted_comes_first_and_once(self):
        async with ModelServer(lambda messages: "by policy") as server:
            server.script(completion("scripted"))
            server.fail(status(500), times=2)
            for _ in range(2):
                with pytest.raises(RefusedError, match="500"):
                    await CLIENTS[0].ask(server, HI)
            assert (await CLIENTS[0].ask(server, HI)).content == "scripted"
            assert (await CLIENTS[0].ask(server, HI)).content == "by policy"

    async def test_what_one_raises_fails_the_test(self):
        def policy(messages):
            raise ZeroDivisionError("a slip")

        async def use():
            async with ModelServer(policy) as server:
                with pytest.raises(RefusedError, match="a slip"):
                    await CLIENTS[0].ask(server, HI)

        with pytest.raises(ZeroDivisionError, match="a slip"):
            await use()

    async def test_the_default_one_calls_the_first_tool_and_then_answers(self):
        async with ModelServer(CallThenAnswer(calls=2)) as server:
            history, answers = list(HI), []
            while True:
                heard = await CLIENTS[0].ask(server, history, tools=[TOOL])
                answers.append(heard.content)
                if not heard.calls:
                    break
                [(id, name, arguments)] = heard.calls
                assert list(json.loads(arguments)) == ["path"]
                call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                history.append({"role": "assistant", "content": heard.content, "tool_calls": [call]})
                history.append({"role": "tool", "tool_call_id": id, "content": "…"})
            assert answers == ["Step 1.", "Step 2.", "Done, after 2 calls."]
            assert (await CLIENTS[0].ask(server, HI)).content.startswith("## Goal")


async def test_every_request_is_recorded():
    async with ModelServer(lambda messages: "ok") as server:
        for client in CLIENTS:
            await client.ask(server, HI, stream=True)
        assert [received.number for received in server.requests] == list(range(1, len(CLIENTS) + 1))
        assert all(received.messages[0]["role"] == "user" for received in server.requests)
        assert all(received.streams for received in server.requests)
        assert all(received.headers["Authorization"] == "Bearer k" for received in server.requests)
        assert {received.path for received in server.requests} == {
            "/v1/chat/completions",
            "/compatible-mode/v1/chat/completions",
            "/api/v1/services/aigc/text-generation/generation",
            "/api/v1/services/aigc/multimodal-generation/generation",
        }
