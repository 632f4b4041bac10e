"""What only `OpenAISummarizer` does; the rest is in `test_providers.py`."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from context_compressor.errors import SummarizerError
from context_compressor.summarizers.openai import OpenAISummarizer
from tests.summarizers.providers import KEY, PROVIDERS
from tests.summarizers.support import request, user
from tests.support.model_server import ModelServer, completion, raw, status

GOOD = "## Goal\n- fix parse_date in src/utils/dates.py"
ASKED = request(user("Please fix parse_date in src/utils/dates.py."), max_tokens=100)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def summarizer(server: ModelServer, **kw: Any) -> OpenAISummarizer:
    return PROVIDERS[0].make(server, **kw)


async def test_the_server_may_come_from_the_environment(server: ModelServer, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    await OpenAISummarizer("scripted").summarize(ASKED)
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"


async def test_extra_fields_are_sent(server: ModelServer):
    await summarizer(server, extra_body={"enable_thinking": False}).summarize(ASKED)
    assert server.requests[0].json["enable_thinking"] is False


REFUSE_MAX_TOKENS = status(
    400,
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead.",
    param="max_tokens",
    error_code="unsupported_parameter",
)
REFUSE_TEMPERATURE = status(
    400,
    "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is supported.",
    param="temperature",
    error_code="unsupported_value",
)


class TestParameters:
    async def test_a_reasoning_model_gets_what_it_takes_and_room_to_reason(self, server: ModelServer):
        server.script(REFUSE_MAX_TOKENS, REFUSE_TEMPERATURE, completion(GOOD))
        asked = summarizer(server, reasoning_tokens=5_000, max_retries=0)
        assert (await asked.summarize(ASKED)).text == GOOD
        first, second, third = (received.json for received in server.requests)
        assert "max_tokens" not in second
        assert second["max_completion_tokens"] == first["max_tokens"] + 5_000
        assert "temperature" not in third
        assert third["max_completion_tokens"] == second["max_completion_tokens"]

    async def test_what_was_refused_is_not_sent_again(self, server: ModelServer):
        server.script(REFUSE_MAX_TOKENS, REFUSE_TEMPERATURE, completion(GOOD))
        asked = summarizer(server)
        await asked.summarize(ASKED)
        await asked.summarize(ASKED)
        assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (raw('{"error": {"message": "upstream is down"}}'), "no chat completion.*upstream is down"),
        (raw("<html>502</html>", content_type="text/html"), "no chat completion.*502"),
        (raw('{"choices": [{"index": 0}]}'), "no chat completion"),
    ],
    ids=["error", "html", "no message"],
)
async def test_what_came_instead_of_a_completion_is_told(server: ModelServer, reply, cause: str):
    server.script(reply)
    with pytest.raises(SummarizerError, match=f"scripted: .*{cause}"):
        await summarizer(server).summarize(ASKED)


class TestClients:
    async def test_a_client_of_yours_is_used_and_left_open(self, server: ModelServer):
        from openai import AsyncOpenAI

        server.script(status(500), completion(GOOD))
        async with AsyncOpenAI(
            base_url=server.url, api_key=KEY, default_headers={"X-Mine": "1"}, max_retries=9
        ) as client:
            asked = OpenAISummarizer("scripted", client=client, max_retries=0)
            with pytest.raises(SummarizerError):
                await asked.summarize(ASKED)
            assert len(server.requests) == 1  # the client's own retries are off
            assert (await asked.summarize(ASKED)).text == GOOD
            await asked.aclose()
            assert not client.is_closed()
            assert client.max_retries == 9
        assert server.requests[0].headers["X-Mine"] == "1"

    async def test_a_client_of_ours_is_closed_after_each_call(self, server: ModelServer, monkeypatch):
        made = []
        asked = summarizer(server)
        make = asked._make_client
        monkeypatch.setattr(asked, "_make_client", lambda: made.append(make()) or made[-1])
        server.script(completion(GOOD), status(404))
        await asked.summarize(ASKED)
        with pytest.raises(SummarizerError):
            await asked.summarize(ASKED)
        assert [client.is_closed() for client in made] == [True, True]
