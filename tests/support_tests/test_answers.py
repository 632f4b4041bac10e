"""What the scripted server answers, as the real SDKs read it."""

import json

import pytest

from tests.support.model_server import ModelServer, answer, completion
from tests.support_tests.clients import CLIENTS, Client

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


async def test_ids_are_unique_and_the_same_in_every_run():
    async def ids() -> list[str]:
        async with ModelServer(lambda messages: answer(None, [("a", {}), ("a", {})])) as server:
            heard = [await CLIENTS[0].ask(server, HI) for _ in range(2)]
        return [id for each in heard for id, _, _ in each.calls]

    first = await ids()
    assert len(set(first)) == 4
    assert await ids() == first
