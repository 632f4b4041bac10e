import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from context_compressor.errors import SummarizerError, SummarizerTimeoutError
from context_compressor.summarizers.openai import OpenAISummarizer
from context_compressor.summarizers.prompts import build_prompt
from context_compressor.summarizers.validation import summarize_checked
from tests.summarizers.support import PieceCounter, request, user
from tests.support.model_server import (
    ModelServer,
    completion,
    context_length_exceeded,
    hang,
    raw,
    reset,
    status,
)

GOOD = "## Goal\n- fix parse_date in src/utils/dates.py"
ASKED = request(user("Please fix parse_date in src/utils/dates.py."), max_tokens=100)
KEY = "secret-value-of-the-key"


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def summarizer(server: ModelServer, **kw: Any) -> OpenAISummarizer:
    made = OpenAISummarizer("scripted", **{"base_url": server.url, "api_key": KEY, **kw})
    made._sleep = Pauses()
    return made


class Pauses:
    """Stands in for `asyncio.sleep`: notes the pauses and takes none."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def test_sends_the_prompt_and_returns_text_and_usage(server: ModelServer):
    server.script(completion(GOOD, usage=(321, 45)))
    summary = await summarizer(server).summarize(ASKED)
    assert (summary.text, summary.input_tokens, summary.output_tokens) == (GOOD, 321, 45)
    [received] = server.requests
    assert received.path == "/v1/chat/completions"
    assert received.headers["Authorization"] == f"Bearer {KEY}"
    assert received.json["model"] == "scripted"
    assert received.json["messages"] == build_prompt(ASKED).messages()
    assert received.json["temperature"] == 0
    assert 100 < received.json["max_tokens"] < 1_000
    assert not received.json.get("stream")


async def test_the_key_may_come_from_the_environment(server: ModelServer, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    await OpenAISummarizer("scripted").summarize(ASKED)
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"


def test_a_missing_key_is_refused_at_once_with_what_to_do():
    with pytest.raises(SummarizerError, match=r"no API key for gpt-4o-mini: pass api_key=.*OPENAI_API_KEY"):
        OpenAISummarizer()


def test_the_sdk_is_imported_only_when_it_is_needed():
    code = (
        "import sys; from context_compressor.summarizers.openai import OpenAISummarizer; "
        "OpenAISummarizer(api_key='x'); assert 'openai' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_usage_may_be_missing(server: ModelServer):
    server.script(completion(GOOD, usage=None))
    summary = await summarizer(server).summarize(ASKED)
    assert (summary.input_tokens, summary.output_tokens) == (0, 0)


async def test_extra_fields_are_sent(server: ModelServer):
    await summarizer(server, extra_body={"enable_thinking": False}, temperature=None).summarize(ASKED)
    assert server.requests[0].json["enable_thinking"] is False
    assert "temperature" not in server.requests[0].json


class TestRetries:
    @pytest.mark.parametrize("failure", [status(429), status(500), status(503), status(408), reset()])
    async def test_what_may_pass_is_tried_again(self, server: ModelServer, failure):
        server.script(failure, failure, completion(GOOD))
        asked = summarizer(server)
        assert (await asked.summarize(ASKED)).text == GOOD
        assert len(server.requests) == 3
        assert asked._sleep.seconds == [0.5, 1.0]

    async def test_backoff_grows_to_a_bound(self, server: ModelServer):
        server.script(status(500))
        asked = summarizer(server, max_retries=6)
        with pytest.raises(SummarizerError, match=r"scripted: HTTP 500 \(attempt 7\): .*scripted failure"):
            await asked.summarize(ASKED)
        assert asked._sleep.seconds == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]

    @pytest.mark.parametrize("code", [400, 401, 403, 404, 413])
    async def test_what_does_not_pass_is_not_tried_again(self, server: ModelServer, code: int):
        server.script(status(code))
        with pytest.raises(SummarizerError, match=f"scripted: HTTP {code}: .*scripted failure") as caught:
            await summarizer(server).summarize(ASKED)
        assert len(server.requests) == 1
        assert caught.value.__cause__.status_code == code

    async def test_an_exhausted_quota_is_not_tried_again(self, server: ModelServer):
        server.script(status(429, "You exceeded your current quota", error_code="insufficient_quota"))
        with pytest.raises(SummarizerError, match=r"HTTP 429: .*quota"):
            await summarizer(server).summarize(ASKED)
        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        ("headers", "pause"),
        [
            ({"Retry-After": "3"}, 3.0),
            ({"Retry-After": "0"}, 0.0),
            ({"retry-after-ms": "1500", "Retry-After": "2"}, 1.5),
            ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.5),
            ({"Retry-After": "nan"}, 0.5),
        ],
    )
    async def test_the_pause_that_the_server_asks_for_is_kept(
        self, server: ModelServer, headers, pause: float
    ):
        server.script(status(429, headers=headers), completion(GOOD))
        asked = summarizer(server)
        await asked.summarize(ASKED)
        assert asked._sleep.seconds == [pause]

    async def test_too_long_a_pause_is_not_waited_for(self, server: ModelServer):
        server.script(status(429, headers={"Retry-After": "3600"}))
        asked = summarizer(server)
        with pytest.raises(SummarizerError, match="HTTP 429"):
            await asked.summarize(ASKED)
        assert asked._sleep.seconds == []

    async def test_no_answer_in_time_is_a_timeout_after_the_retries(self, server: ModelServer):
        server.script(hang())
        asked = summarizer(server, timeout=0.05, max_retries=1)
        with pytest.raises(SummarizerTimeoutError, match=r"no answer within 0\.05 seconds \(attempt 2\)"):
            await asked.summarize(ASKED)
        assert len(server.requests) == 2

    async def test_a_refused_connection_is_named(self, server: ModelServer):
        asked = summarizer(server, base_url="http://127.0.0.1:1/v1", max_retries=0)
        with pytest.raises(SummarizerError, match="scripted: connection failed"):
            await asked.summarize(ASKED)

    async def test_cancellation_is_not_retried(self, server: ModelServer):
        server.script(hang())
        task = asyncio.create_task(summarizer(server).summarize(ASKED))
        await server.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(server.requests) == 1


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

    async def test_a_server_that_takes_no_limit_gets_none(self, server: ModelServer):
        server.script(
            status(422, "Extra fields not permitted: max_tokens"),
            status(422, "Extra fields not permitted: max_completion_tokens"),
            completion(GOOD),
        )
        await summarizer(server).summarize(ASKED)
        assert not {"max_tokens", "max_completion_tokens"} & server.requests[-1].json.keys()

    async def test_a_prompt_that_does_not_fit_is_a_failure_and_not_a_refused_parameter(
        self, server: ModelServer
    ):
        server.script(context_length_exceeded(8_192))
        with pytest.raises(SummarizerError, match="maximum context length is 8192 tokens"):
            await summarizer(server).summarize(ASKED)
        assert len(server.requests) == 1


class TestAnswers:
    async def test_one_that_ended_while_reasoning_is_asked_for_again_with_more_room(
        self, server: ModelServer
    ):
        thinking = completion("<think>so much to", finish_reason="length", usage=(10, 400))
        server.script(thinking, completion(f"<think>ok</think>{GOOD}", usage=(10, 500)))
        asked = summarizer(server)
        summary = await asked.summarize(ASKED)
        assert summary.text.endswith(GOOD)
        assert (summary.input_tokens, summary.output_tokens) == (20, 900)
        first, second = (received.json["max_tokens"] for received in server.requests)
        assert second == first + 4_096

    async def test_one_that_only_reasons_says_what_to_raise(self, server: ModelServer):
        server.script(completion(None, finish_reason="length"))
        with pytest.raises(SummarizerError, match="raise reasoning_tokens"):
            await summarizer(server).summarize(ASKED)
        assert len(server.requests) == 2

    async def test_one_that_broke_off_ends_at_a_whole_line(self, server: ModelServer):
        server.script(completion(GOOD + "\n- and then it bro", finish_reason="length"))
        assert (await summarizer(server).summarize(ASKED)).text == GOOD + " …"
        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        ("reply", "cause"),
        [
            (completion(None), "holds no text .*'stop'"),
            (completion(""), "holds no text"),
            (completion("<think>x</think>"), "holds no text"),
            (completion(GOOD, finish_reason="content_filter"), "content filter"),
            (completion(None, refusal="I will not."), "refused: I will not"),
            (raw('{"choices": []}'), "no chat completion"),
            (raw('{"choices": null}'), "no chat completion"),
            (raw('{"choices": [{"index": 0}]}'), "no chat completion"),
            (raw('{"error": {"message": "upstream is down"}}'), "no chat completion.*upstream is down"),
            (raw("[]"), "no chat completion"),
            (raw('{"choices": [{"mess'), "could not be read"),
            (raw("<html>502</html>", content_type="text/html"), "no chat completion.*502"),
            (raw(b"\xff\xfe\x00"), "could not be read"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    async def test_what_holds_no_summary_is_an_error_that_says_why(
        self, server: ModelServer, reply, cause: str
    ):
        server.script(reply)
        with pytest.raises(SummarizerError, match=f"scripted: .*{cause}"):
            await summarizer(server).summarize(ASKED)
        assert len(server.requests) == 1


class TestKeys:
    @pytest.mark.parametrize(
        "reply", [status(401, f"Incorrect API key provided: {KEY}"), raw(f'{{"error": "{KEY}"}}')]
    )
    async def test_a_key_that_the_server_quotes_is_hidden(self, server: ModelServer, reply):
        server.script(reply)
        with pytest.raises(SummarizerError) as caught:
            await summarizer(server).summarize(ASKED)
        assert KEY not in str(caught.value)
        assert "***" in str(caught.value)
        assert caught.value.__cause__ is None

    async def test_a_key_that_http_cannot_carry_is_hidden(self, server: ModelServer):
        with pytest.raises(SummarizerError) as caught:
            await summarizer(server, api_key=f"{KEY}\n", max_retries=0).summarize(ASKED)
        assert KEY not in str(caught.value)
        assert KEY not in repr(caught.value.__cause__)

    def test_the_object_does_not_show_its_key(self):
        assert KEY not in repr(OpenAISummarizer(api_key=KEY))


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

    async def test_one_object_serves_several_event_loops(self, server: ModelServer):
        asked = summarizer(server)

        def in_a_loop_of_its_own() -> str:
            return asyncio.run(asked.summarize(ASKED)).text

        texts = await asyncio.gather(*(asyncio.to_thread(in_a_loop_of_its_own) for _ in range(2)))
        assert (await asked.summarize(ASKED)).text in texts


async def test_a_summary_that_is_too_long_is_asked_for_again(server: ModelServer):
    server.script(completion(GOOD + "\n- more" * 300, usage=(10, 600)), completion(GOOD, usage=(12, 20)))
    summary = await summarize_checked(
        summarizer(server), ASKED, PieceCounter(), replaced_tokens=1_000, timeout_seconds=30
    )
    assert (summary.text, summary.input_tokens, summary.output_tokens) == (GOOD, 22, 620)
    assert "shorter" in server.requests[1].json["messages"][1]["content"]
