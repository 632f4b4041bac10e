"""Same behaviour, same tests: whatever holds for every summariser that asks a provider's model."""

import asyncio
import gc
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from context_compressor.errors import (
    InvalidArgumentError,
    SummarizerError,
    SummarizerOverflowError,
    SummarizerTimeoutError,
)
from context_compressor.summarizers.bill import Bill, Paid
from context_compressor.summarizers.notes import Notes
from context_compressor.summarizers.prompts import build_prompt
from context_compressor.summarizers.writers import NotesWriter
from tests.summarizers.providers import ASKED, GOOD, KEY, PROVIDERS, Provider
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


@pytest.fixture(params=PROVIDERS, ids=str)
def provider(request: pytest.FixtureRequest) -> Provider:
    return request.param


async def test_sends_the_prompt_and_returns_text_and_usage(server: ModelServer, provider: Provider):
    server.script(completion(GOOD, usage=(321, 45)))
    summary = await provider.make(server).summarize(ASKED)
    assert (summary.text, summary.input_tokens, summary.output_tokens) == (GOOD, 321, 45)
    [received] = server.requests
    assert received.path == provider.path
    assert received.headers["Authorization"] == f"Bearer {KEY}"
    assert received.json["model"] == "scripted"
    assert provider.messages(received) == build_prompt(ASKED).messages()
    parameters = provider.parameters(received)
    assert parameters["temperature"] == 0
    assert 100 < parameters["max_tokens"] < 1_000
    assert not parameters.get("stream")


async def test_the_key_may_come_from_the_environment(server: ModelServer, provider: Provider, monkeypatch):
    monkeypatch.setenv(provider.key_variable, KEY)
    await provider.kind("scripted", base_url=provider.url(server)).summarize(ASKED)
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"


def test_a_missing_key_is_refused_at_once_with_what_to_do(provider: Provider):
    expected = rf"no API key for {provider.default_model}: pass api_key=.*{provider.key_variable}"
    with pytest.raises(SummarizerError, match=expected):
        provider.kind()


NAN = float("nan")


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("model", [None, "", " ", 5]),
        ("base_url", ["", "localhost:8000", 5]),
        ("timeout", [0, -1, NAN, True, "60", None]),
        ("max_retries", [-1, 1.5, True, None]),
        ("max_input_tokens", [0, -5, True, "32k"]),
        ("temperature", [-1, NAN, "hot", True]),
        ("reasoning_tokens", [-1, 0.5, None]),
        ("backoff_seconds", [-1, NAN, None]),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(
    provider: Provider, setting: str, values: list[object]
):
    """Every event would fail by it, and the extractive summariser step in: nobody would see why."""
    for value in values:
        with pytest.raises(
            InvalidArgumentError, match=f"^{setting}: expected .*, got {re.escape(repr(value))}$"
        ):
            provider.kind(**{"api_key": KEY, setting: value})


def test_the_sdk_is_imported_only_when_it_is_needed(provider: Provider):
    code = (
        f"import sys; from {provider.kind.__module__} import {provider.kind.__name__} as kind; "
        f"kind(api_key='x'); assert {provider.sdk!r} not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_usage_may_be_missing(server: ModelServer, provider: Provider):
    server.script(completion(GOOD, usage=None))
    summary = await provider.make(server).summarize(ASKED)
    assert (summary.input_tokens, summary.output_tokens) == (0, 0)


SPENT = status(429, "You exceeded your current quota", error_code="insufficient_quota")
"""DashScope's OpenAI-compatible mode calls one of tokens per minute what OpenAI calls an empty account."""


class TestRetries:
    @pytest.mark.parametrize(
        "failure",
        [status(429), status(503), status(408), reset(), SPENT],
        ids=["429", "503", "408", "reset", "a quota that may be one of tokens per minute"],
    )
    async def test_what_may_pass_is_tried_again(self, server: ModelServer, provider: Provider, failure):
        server.script(failure, failure, completion(GOOD))
        asked = provider.make(server)
        assert (await asked.summarize(ASKED)).text == GOOD
        assert len(server.requests) == 3
        assert asked._sleep.seconds == [0.5, 1.0]

    async def test_backoff_grows_to_a_bound(self, server: ModelServer, provider: Provider):
        server.script(status(500))
        asked = provider.make(server, max_retries=6)
        with pytest.raises(SummarizerError, match=r"scripted: HTTP 500 \(attempt 7\): .*scripted failure"):
            await asked.summarize(ASKED)
        assert asked._sleep.seconds == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]

    @pytest.mark.parametrize(
        ("code", "text", "named"),
        [
            (400, "scripted failure", None),
            (400, "Input data may contain inappropriate content.", "DataInspectionFailed"),
            (401, "scripted failure", None),
            (404, "scripted failure", None),
            (413, "scripted failure", None),
            (429, "Billing hard limit", "billing_hard_limit_reached"),
        ],
    )
    async def test_what_does_not_pass_is_not_tried_again(
        self, server: ModelServer, provider: Provider, code: int, text: str, named: str | None
    ):
        server.script(status(code, text, error_code=named))
        with pytest.raises(SummarizerError, match=f"scripted: HTTP {code}: .*{text}") as caught:
            await provider.make(server).summarize(ASKED)
        assert len(server.requests) == 1
        assert str(code) in str(caught.value.__cause__)

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
        self, server: ModelServer, provider: Provider, headers, pause: float
    ):
        server.script(status(429, headers=headers), completion(GOOD))
        asked = provider.make(server)
        await asked.summarize(ASKED)
        assert asked._sleep.seconds == [pause]

    async def test_too_long_a_pause_is_not_waited_for(self, server: ModelServer, provider: Provider):
        server.script(status(429, headers={"Retry-After": "3600"}))
        asked = provider.make(server)
        with pytest.raises(SummarizerError, match="HTTP 429"):
            await asked.summarize(ASKED)
        assert asked._sleep.seconds == []

    async def test_no_answer_in_time_is_a_timeout_after_the_retries(
        self, server: ModelServer, provider: Provider
    ):
        await provider.make(server).summarize(ASKED)  # the SDK is imported outside of the timeout
        server.script(hang())
        asked = provider.make(server, timeout=0.05, max_retries=1)
        with pytest.raises(SummarizerTimeoutError, match=r"no answer within 0\.05 seconds \(attempt 2\)"):
            await asked.summarize(ASKED)
        assert asked._sleep.seconds == [0.5]
        assert len(server.requests) <= 3  # fewer where the machine is too busy to send them in time

    async def test_a_refused_connection_is_named_and_tried_as_often_as_said(
        self, server: ModelServer, provider: Provider
    ):
        asked = provider.make(server, base_url="http://127.0.0.1:1/v1", max_retries=1)
        with pytest.raises(SummarizerError, match=r"scripted: connection failed \(attempt 2\)"):
            await asked.summarize(ASKED)

    async def test_cancellation_is_not_retried_and_leaves_nothing_running(
        self, server: ModelServer, provider: Provider
    ):
        before = asyncio.all_tasks()
        server.script(hang())
        task = asyncio.create_task(provider.make(server).summarize(ASKED))
        await server.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(server.requests) == 1
        server.released.set()
        assert {t for t in asyncio.all_tasks() - before if "summarize" in repr(t)} == set()

    async def test_every_attempt_is_taken_from_the_budget(self, server: ModelServer, provider: Provider):
        server.script(status(500))
        bill = Bill(2)
        with pytest.raises(SummarizerError, match="HTTP 500"):
            await provider.make(server, max_retries=5).summarize(replace(ASKED, bill=bill))
        assert len(server.requests) == bill.calls == 2

    async def test_what_an_empty_answer_cost_is_noted(self, server: ModelServer, provider: Provider):
        server.script(completion("<think>on and on</think>"))
        bill = Bill(2)
        with pytest.raises(SummarizerError, match="holds no text"):
            await provider.make(server).summarize(replace(ASKED, bill=bill))
        assert bill.remote == Paid(100, 20)


class TestOverflow:
    @pytest.mark.parametrize(
        ("reply", "limit"),
        [(context_length_exceeded(8_192), 8_192), (status(413, "Payload Too Large"), None)],
    )
    async def test_a_prompt_that_the_model_does_not_read_is_told_apart_and_never_tried_again(
        self, server: ModelServer, provider: Provider, reply, limit
    ):
        server.script(reply)
        with pytest.raises(SummarizerOverflowError) as caught:
            await provider.make(server).summarize(ASKED)
        assert caught.value.limit_tokens == limit
        assert len(server.requests) == 1

    async def test_it_is_then_asked_in_pieces(self, server: ModelServer, provider: Provider):
        server.script(context_length_exceeded(4_000), completion(GOOD, usage=(100, 10)))
        asked = request(*(user(f"MSG{i} " + "word " * 200) for i in range(20)), max_tokens=100)
        written = await NotesWriter(provider.make(server), PieceCounter(), None).write(asked, Notes())
        sent = [provider.messages(received)[1]["content"] for received in server.requests]
        assert len(sent) > 3
        assert all(any(f"MSG{i} " in prompt for prompt in sent[1:]) for i in range(20))
        assert written.paid.input_tokens == 100 * (len(sent) - 1)
        assert all(PieceCounter().count_text(prompt) < 4_000 for prompt in sent[1:])

    async def test_a_known_limit_is_kept_from_the_first(self, server: ModelServer, provider: Provider):
        asked = request(*(user(f"MSG{i} " + "word " * 200) for i in range(20)), max_tokens=100)
        writer = NotesWriter(provider.make(server, max_input_tokens=3_000), PieceCounter(), None)
        await writer.write(asked, Notes())
        sent = [provider.messages(received) for received in server.requests]
        assert all(PieceCounter().count_text(m[0]["content"] + m[1]["content"]) < 3_000 for m in sent)


class TestParameters:
    async def test_a_refused_parameter_is_not_sent_again(self, server: ModelServer, provider: Provider):
        refusal = status(400, "Unknown parameter: 'temperature' is not supported.", param="temperature")
        server.script(refusal, completion(GOOD))
        asked = provider.make(server, max_retries=0)
        await asked.summarize(ASKED)
        await asked.summarize(ASKED)
        sent = ["temperature" in provider.parameters(received) for received in server.requests]
        assert sent == [True, False, False]

    @pytest.mark.parametrize(
        "text",
        [
            "invalid temperature: only 1 is allowed for this model",
            "`temperature` is deprecated for this model.",
            "Temperature should be in (0.0, 2.0)",
            "temperature参数非法。请检查文档。",
        ],
    )
    async def test_it_is_refused_in_many_words(self, server: ModelServer, provider: Provider, text: str):
        server.script(status(400, text), completion(GOOD))
        assert (await provider.make(server, max_retries=0).summarize(ASKED)).text == GOOD
        sent = [provider.parameters(received) for received in server.requests]
        assert ["temperature" in parameters for parameters in sent] == [True, False]
        assert all("max_tokens" in parameters for parameters in sent)

    async def test_a_refusal_that_names_nothing_that_was_sent_stands(
        self, server: ModelServer, provider: Provider
    ):
        server.script(status(400, "invalid top_p: only 1 is allowed for this model"))
        with pytest.raises(SummarizerError, match="invalid top_p"):
            await provider.make(server).summarize(ASKED)
        assert len(server.requests) == 1

    async def test_a_server_that_takes_no_limit_gets_none(self, server: ModelServer, provider: Provider):
        server.script(
            status(422, "Extra fields not permitted: max_tokens"),
            status(422, "Extra fields not permitted: max_completion_tokens"),
            completion(GOOD),
        )
        if provider.name == "dashscope":
            server.script(status(422, "Extra fields not permitted: max_tokens"), completion(GOOD))
        await provider.make(server).summarize(ASKED)
        assert not {"max_tokens", "max_completion_tokens"} & provider.parameters(server.requests[-1]).keys()

    async def test_a_server_that_writes_less_is_asked_for_less(self, server: ModelServer, provider: Provider):
        server.script(status(400, "Range of max_tokens should be [1, 300]"), completion(GOOD))
        asked = provider.make(server, max_retries=0)
        await asked.summarize(ASKED)
        await asked.summarize(ASKED)
        sent = [provider.parameters(received)["max_tokens"] for received in server.requests]
        assert sent[0] > 300
        assert sent[1:] == [300, 300]

    async def test_no_temperature_means_none(self, server: ModelServer, provider: Provider):
        await provider.make(server, temperature=None).summarize(ASKED)
        assert "temperature" not in provider.parameters(server.requests[0])


class TestAnswers:
    async def test_one_that_ended_while_reasoning_is_asked_for_again_with_more_room(
        self, server: ModelServer, provider: Provider
    ):
        thinking = completion("<think>so much to", finish_reason="length", usage=(10, 400))
        server.script(thinking, completion(f"<think>ok</think>{GOOD}", usage=(10, 500)))
        summary = await provider.make(server).summarize(ASKED)
        assert summary.text.endswith(GOOD)
        assert (summary.input_tokens, summary.output_tokens) == (20, 900)
        first, second = (provider.parameters(received)["max_tokens"] for received in server.requests)
        assert second == first + 4_096

    async def test_one_that_only_reasons_says_what_to_raise(self, server: ModelServer, provider: Provider):
        server.script(completion(None, finish_reason="length"))
        with pytest.raises(SummarizerError, match="raise reasoning_tokens"):
            await provider.make(server).summarize(ASKED)
        assert len(server.requests) == 2

    async def test_one_that_broke_off_ends_at_a_whole_line(self, server: ModelServer, provider: Provider):
        server.script(completion(GOOD + "\n- and then it bro", finish_reason="length"))
        assert (await provider.make(server).summarize(ASKED)).text == GOOD + " …"
        assert len(server.requests) == 1

    async def test_one_in_parts_is_joined_without_its_reasoning(
        self, server: ModelServer, provider: Provider
    ):
        thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "What was asked?"}]}
        parts = [thinking, *({"type": "text", "text": text} for text in (GOOD[:20], GOOD[20:]))]
        server.script(completion(parts))
        assert (await provider.make(server).summarize(ASKED)).text == GOOD

    @pytest.mark.parametrize(
        ("reply", "cause"),
        [
            (completion(None), "holds no text .*'stop'"),
            (completion(""), "holds no text"),
            (completion(None, refusal="I will not."), "refused: I will not"),
            (completion("", finish_reason="content_filter"), "content filter"),
            (raw('{"choices": []}'), "no chat completion|could not be read"),
            (raw('{"output": {"choices": [{}]}}'), "no chat completion|could not be read"),
            (raw("[]"), "no chat completion|could not be read"),
            (raw('{"choices": [{"mess'), "could not be read"),
            (raw("<html>502</html>", content_type="text/html"), "no chat completion.*502|could not be read"),
            (raw(b"\xff\xfe\x00"), "could not be read"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    async def test_what_holds_no_summary_is_an_error_that_says_why(
        self, server: ModelServer, provider: Provider, reply, cause: str
    ):
        server.script(reply)
        with pytest.raises(SummarizerError, match=f"scripted: .*(?:{cause})"):
            await provider.make(server).summarize(ASKED)
        assert len(server.requests) == 1


def chain(error: BaseException | None) -> list[BaseException]:
    """Return an exception and all that led to it."""
    if error is None:
        return []
    return [error, *chain(error.__cause__), *chain(error.__context__)]


class TestKeys:
    @pytest.mark.parametrize(
        "reply",
        [
            status(401, f"Incorrect API key provided: {KEY}"),
            status(500, f"key {KEY} overloaded"),
            raw(f'{{"error": "{KEY}", "output": {{"text": null, "a": "{KEY}"}}}}'),
            raw(f"<html>{KEY}</html>", content_type="text/html"),
            raw(f'{{"choices": [{{"{KEY}'),
        ],
        ids=["401", "500", "no completion", "html", "torn"],
    )
    async def test_a_key_that_the_server_quotes_is_hidden(
        self, server: ModelServer, provider: Provider, reply
    ):
        server.script(reply)
        with pytest.raises(SummarizerError) as caught:
            await provider.make(server, max_retries=1).summarize(ASKED)
        assert all(KEY not in f"{error} {error!r}" for error in chain(caught.value))

    async def test_a_key_that_http_cannot_carry_is_hidden(self, server: ModelServer, provider: Provider):
        with pytest.raises(SummarizerError) as caught:
            await provider.make(server, api_key=f"{KEY}\n", max_retries=0).summarize(ASKED)
        assert all(KEY not in f"{error} {error!r}" for error in chain(caught.value))

    async def test_a_key_that_stands_in_chinese_is_hidden(self, server: ModelServer, provider: Provider):
        server.script(status(401, "无效的令牌sk-other1234567890请检查"))
        with pytest.raises(SummarizerError, match=r"无效的令牌\*\*\*请检查") as caught:
            await provider.make(server).summarize(ASKED)
        assert all("sk-other" not in f"{error} {error!r}" for error in chain(caught.value))

    def test_the_object_does_not_show_its_key(self, provider: Provider):
        assert KEY not in repr(provider.kind(api_key=KEY))


class TestConnections:
    async def test_none_is_left_open(self, server: ModelServer, provider: Provider, recwarn):
        gc.collect()  # what other tests left is told of now
        recwarn.clear()
        server.script(completion(GOOD), status(404), reset(), completion(GOOD))
        asked = provider.make(server)
        await asked.summarize(ASKED)
        with pytest.raises(SummarizerError):
            await asked.summarize(ASKED)
        await asked.summarize(ASKED)
        await asked.aclose()
        await server.assert_no_connections()
        gc.collect()
        assert [str(warning.message) for warning in recwarn if "nclosed" in str(warning.message)] == []

    async def test_one_object_serves_several_event_loops_at_a_time_and_one_after_another(
        self, server: ModelServer, provider: Provider
    ):
        asked = provider.make(server)

        def in_a_loop_of_its_own() -> str:
            return asyncio.run(asked.summarize(ASKED)).text

        texts = await asyncio.gather(*(asyncio.to_thread(in_a_loop_of_its_own) for _ in range(2)))
        assert await asyncio.to_thread(in_a_loop_of_its_own) in texts
        assert (await asked.summarize(ASKED)).text in texts
