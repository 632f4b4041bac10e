"""The wires of the Responses API and of Anthropic, as the real SDKs see them: whole and streamed."""

from typing import Any

import anthropic
import openai
import pytest

from tests.integrations.clients_support import MESSAGES, RESPONSES, Api, work
from tests.support.model_server import CallThenAnswer, ModelServer, answer
from tests.support_tests.refused_forms import HI, call, output

pytestmark = pytest.mark.variants(2)

Dict = dict[str, Any]
LONG = [{"role": "user", "content": "word " * 90}]
NO_THOUGHTS: Dict = {"thinking": {"type": "disabled"}, "tools": []}

every_way = pytest.mark.parametrize(
    ("asynchronous", "stream"),
    [(True, False), (True, True), (False, False), (False, True)],
    ids=["async", "async streamed", "sync", "sync streamed"],
)


@every_way
@pytest.mark.parametrize("api", [RESPONSES, MESSAGES], ids=str)
async def test_a_tool_loop_of_some_turns(api: Api, asynchronous: bool, stream: bool):
    way: Dict = {"asynchronous": asynchronous, "stream": stream}
    said: list[Any] = []
    async with ModelServer(CallThenAnswer(calls=2)) as server, api.open(server, asynchronous) as client:
        for request in ("Look.", "Look again."):
            said.append({"role": "user", "content": request})
            turn = await work(api, client, said, lambda *_: "a file", turns=3, **way)
        assert server.refusals == []
        assert len(server.requests) == 6
    assert turn.text == "Done, after 4 calls."
    assert turn.reason in ("completed", "end_turn")
    assert turn.usage[0] > 100


@every_way
async def test_a_previous_response_is_continued(asynchronous: bool, stream: bool):
    def policy(messages: list[Dict]) -> Any:
        return answer("Seen.") if len(messages) > 2 else answer("So:", [("look", {})], reasoning="Hm.")

    way: Dict = {"asynchronous": asynchronous, "stream": stream}
    async with ModelServer(policy) as server, RESPONSES.open(server, asynchronous) as client:
        first = (await RESPONSES.ask(client, "Look.", **way)).raw
        assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
        assert first.output[0].summary[0].text == "Hm."
        more = [output(first.output[2].call_id, "a file")]
        second = await RESPONSES.ask(client, more, previous_response_id=first.id, **way)
        assert second.text == "Seen."
        assert [item.get("type") for item in server.requests[1].messages] == [
            *["message", "reasoning", "message", "function_call", "function_call_output"]
        ]
        with pytest.raises(openai.BadRequestError, match="not found") as caught:
            await RESPONSES.ask(client, more, previous_response_id="resp_0", **way)
        assert caught.value.code == "previous_response_not_found"


@every_way
@pytest.mark.parametrize(
    ("api", "too_long", "error", "told"),
    [
        (
            RESPONSES,
            [(LONG * 2, {}), (LONG, {"instructions": "word " * 90}), ([*LONG, call(), output()], {})],
            openai.BadRequestError,
            "exceeds the context window",
        ),
        (
            MESSAGES,
            [(LONG * 2, {}), (LONG, {"system": "word " * 90})],
            anthropic.BadRequestError,
            r"prompt is too long: 1\d\d tokens > 100",
        ),
    ],
    ids=["responses", "messages"],
)
async def test_what_does_not_fit_is_refused(
    api: Api, too_long: Any, error: Any, told: str, asynchronous: bool, stream: bool
):
    way: Dict = {"asynchronous": asynchronous, "stream": stream, "tools": []}
    way |= NO_THOUGHTS if api is MESSAGES else {}
    async with (
        ModelServer(lambda messages: "well", window_tokens=100) as server,
        api.open(server, asynchronous) as client,
    ):
        assert (await api.ask(client, LONG, **way)).text == "well"
        for said, more in too_long:
            with pytest.raises(error, match=told) as caught:
                await api.ask(client, said, **way, **more)
            assert api is MESSAGES or caught.value.code == "context_length_exceeded"


@every_way
async def test_thinking_must_stay_while_its_turn_is_open(asynchronous: bool, stream: bool):
    way: Dict = {"asynchronous": asynchronous, "stream": stream}
    async with (
        ModelServer(lambda messages: answer("So:", [("look", {"a": 1})], reasoning="Hm.")) as server,
        MESSAGES.open(server, asynchronous) as client,
    ):
        turn = await MESSAGES.ask(client, [HI], **way)
        [said] = turn.items
        assert said["content"][0]["thinking"] == "Hm."
        results = MESSAGES.results([(id, "a file") for id, _, _ in turn.calls])
        await MESSAGES.ask(client, [HI, said, *results], **way)
        lost = [HI, {**said, "content": said["content"][1:]}, *results]
        await MESSAGES.ask(client, lost, **way, **NO_THOUGHTS)
        with pytest.raises(anthropic.BadRequestError, match="Expected `thinking`"):
            await MESSAGES.ask(client, lost, **way)
