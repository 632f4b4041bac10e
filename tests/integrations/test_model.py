"""Summaries by AgentScope's own models against the loopback server, streamed and not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import dashscope
import pytest
from agentscope import formatter as formatters
from agentscope.formatter import DashScopeChatFormatter, DeepSeekChatFormatter, OpenAIChatFormatter
from agentscope.message import Msg, TextBlock, ThinkingBlock, ToolUseBlock
from agentscope.model import (
    AnthropicChatModel,
    ChatModelBase,
    ChatResponse,
    DashScopeChatModel,
    OpenAIChatModel,
)
from dashscope.api_entities.aio_session import close_shared_aio_session

from context_compressor.errors import (
    InvalidArgumentError,
    SummarizerError,
    SummarizerOverflowError,
    SummarizerTimeoutError,
)
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory, AgentScopeSummarizer
from context_compressor.summarizers.bill import Bill
from context_compressor.summarizers.faults import fault_of
from context_compressor.summarizers.prompts import build_prompt
from tests.integrations.messages import turns
from tests.summarizers.providers import Pauses
from tests.summarizers.support import request, user
from tests.support.model_server import (
    ModelServer,
    Reply,
    answer,
    completion,
    context_length_exceeded,
    failing_stream,
    half_stream,
    hang,
    malformed,
    rate_limited,
    raw,
    reset,
    status,
)

KEY = "secret-value-of-the-key"
GOOD = "## Goal\n- fix parse_date in src/utils/dates.py"
ASKED = request(user("Please fix parse_date in src/utils/dates.py."), max_tokens=100)


@dataclass
class Asked:
    """A summariser, and the server that it asks."""

    summarizer: AgentScopeSummarizer
    model: ChatModelBase
    server: ModelServer

    @property
    def stream(self) -> bool:
        return self.model.stream

    @property
    def is_openai(self) -> bool:
        return isinstance(self.model, OpenAIChatModel)


@pytest.fixture(params=["openai", "dashscope"])
async def asked(request: pytest.FixtureRequest, stream: bool) -> AsyncIterator[Asked]:
    async with ModelServer() as server:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "OPENAI_BASE_URL"):
                patch.delenv(name, raising=False)
            patch.setattr(dashscope, "base_http_api_url", server.dashscope_url)
            model: ChatModelBase
            if request.param == "openai":
                settings: Any = {"base_url": server.url, "max_retries": 0}
                model = OpenAIChatModel("scripted", KEY, stream=stream, client_kwargs=settings)
            else:
                model = DashScopeChatModel("scripted", KEY, stream=stream)
            summarizer = AgentScopeSummarizer(model)
            summarizer._sleep = Pauses()
            yield Asked(summarizer, model, server)
            if isinstance(model, OpenAIChatModel):
                await model.client.close()
            await close_shared_aio_session()


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_the_answers_text_is_the_summary_and_its_usage_is_counted(asked: Asked) -> None:
    asked.server.script(completion(GOOD, usage=(321, 45)))
    summary = await asked.summarizer.summarize(ASKED)
    assert (summary.text, summary.input_tokens, summary.output_tokens) == (GOOD, 321, 45)
    [received] = asked.server.requests
    assert received.refused == []
    assert received.streams is asked.stream
    texts = [str(message["content"]).replace("\\'", "'") for message in received.messages]
    system, material = (message["content"] for message in build_prompt(ASKED).messages())
    assert [message["role"] for message in received.messages] == ["system", "user"]
    assert system.splitlines()[0] in texts[0]
    assert material.splitlines()[-1] in texts[1]


async def test_reasoning_is_not_the_summary(asked: Asked) -> None:
    asked.server.script(answer(GOOD, reasoning="The user wants..."))
    assert (await asked.summarizer.summarize(ASKED)).text == GOOD
    asked.server.script(answer(None, reasoning="The user wants..."))
    with pytest.raises(SummarizerError, match=r"scripted: the answer holds no text"):
        await asked.summarizer.summarize(ASKED)


async def test_a_call_is_no_summary(asked: Asked) -> None:
    asked.server.script(answer(None, [("read_file", {"path": "a.py"})]))
    with pytest.raises(SummarizerError, match="the answer holds no text"):
        await asked.summarizer.summarize(ASKED)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (status(401, f"Incorrect API key provided: {KEY}"), r"scripted: HTTP 401: .*\*\*\*"),
        (status(500), r"scripted: HTTP 500 \(attempt 3\)"),
        (rate_limited(), r"scripted: HTTP 429 \(attempt 3\)"),
        (reset(), r"scripted: connection failed \(attempt 3\)"),
        (malformed(), "scripted: "),
        (failing_stream(), "scripted: HTTP "),
        (half_stream(), r"scripted: connection failed \(attempt 3\)"),
        (raw("<html>busy</html>", content_type="text/html"), "scripted: "),
        (completion(""), "scripted: the answer "),
    ],
    ids=["401", "500", "429", "reset", "malformed", "failing", "half", "html", "empty"],
)
async def test_a_failure_is_told_by_name_without_the_key(asked: Asked, reply: Reply, told: str) -> None:
    asked.server.script(reply)
    with pytest.raises(SummarizerError, match=told) as caught:
        await asked.summarizer.summarize(ASKED)
    shown = f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    assert KEY not in shown


async def test_what_passes_is_tried_again_after_a_pause(asked: Asked) -> None:
    asked.server.script(status(503), reset(), completion(GOOD))
    bill = Bill()
    assert (await asked.summarizer.summarize(replace(ASKED, bill=bill))).text == GOOD
    assert bill.calls == 3
    assert asked.summarizer._sleep.seconds == [0.5, 1.0]  # type: ignore[attr-defined]


async def test_a_request_that_is_too_long_is_told_as_such(asked: Asked) -> None:
    asked.server.script(context_length_exceeded(4_096))
    with pytest.raises(SummarizerOverflowError) as caught:
        await asked.summarizer.summarize(ASKED)
    assert caught.value.limit_tokens == 4_096
    assert len(asked.server.requests) == 1


async def test_a_model_that_hangs_is_given_up(asked: Asked) -> None:
    asked.server.script(hang())
    asked.summarizer._timeout, asked.summarizer._max_retries = 0.05, 0
    with pytest.raises(SummarizerTimeoutError, match=r"no answer within 0\.05 seconds"):
        await asked.summarizer.summarize(ASKED)


async def test_a_stream_that_stops_half_way_is_given_up_and_closed(asked: Asked) -> None:
    asked.server.script(half_stream(then="hang"))
    asking = asyncio.create_task(asked.summarizer.summarize(ASKED))
    await asked.server.started.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    if asked.stream and asked.is_openai:
        await asked.server.assert_no_connections()


# In a memory


async def test_a_memory_whose_model_hangs_has_a_view_all_the_same(asked: Asked) -> None:
    asked.server.script(hang())
    memory = AgentScopeCompressedMemory(
        asked.model, working_summary_mode="compress", max_total_tokens=2_500, summarizer_timeout_seconds=0.05
    )
    await memory.add(turns(20))
    await memory.get_memory()
    assert 0 < memory.stats().view_tokens <= 2_500


async def test_what_is_more_than_the_model_reads_is_summarised_in_parts() -> None:
    async with ModelServer(lambda _: answer("## Goal\n- read logs"), window_tokens=8_000) as server:
        model = OpenAIChatModel("scripted", KEY, stream=False, client_kwargs={"base_url": server.url})
        memory = AgentScopeCompressedMemory(model, working_summary_mode="compress", max_total_tokens=6_000)
        await memory.add(turns(40, words=100))
        await memory.get_memory()
        await model.client.close()
        assert any(request.refused for request in server.requests)
        assert sum(not request.refused for request in server.requests) > 2
        assert memory.stats().noted > 0
    assert memory.stats().view_tokens <= 6_000


# Which model, which formatter


class Custom(ChatModelBase):
    """A model of a user's own."""

    def __init__(self, *answers: Any, stream: bool = False) -> None:
        super().__init__("custom", stream)
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def __call__(self, messages: list[dict[str, Any]], **kwargs: Any) -> Any:
        self.asked.append((messages, kwargs))
        if not self.stream:
            return self.answers[0]
        return self._chunks()

    async def _chunks(self) -> AsyncIterator[Any]:
        for chunk in self.answers:
            yield chunk


def text_response(text: str) -> ChatResponse:
    return ChatResponse(content=[TextBlock(type="text", text=text)])


async def test_of_cumulative_chunks_the_last_is_the_answer_and_only_text_counts() -> None:
    last = ChatResponse(
        content=[
            ThinkingBlock(type="thinking", thinking="hm"),
            TextBlock(type="text", text=GOOD),
            ToolUseBlock(type="tool_use", id="c", name="ls", input={}),
            TextBlock(type="text", text="\n- more"),
        ]
    )
    model = Custom(text_response("## Go"), last, stream=True)
    summary = await AgentScopeSummarizer(model).summarize(ASKED)
    assert (summary.text, summary.input_tokens) == (GOOD + "\n- more", 0)
    [(_, kwargs)] = model.asked
    assert kwargs == {}


@pytest.mark.parametrize(
    "odd",
    [None, "text", {"content": None}, ChatResponse(content=[{"type": "text"}])],
    ids=["none", "text", "dict", "block"],
)
async def test_an_answer_that_is_none_is_refused(odd: Any) -> None:
    with pytest.raises(SummarizerError, match="custom: the answer is no ChatResponse"):
        await AgentScopeSummarizer(Custom(odd)).summarize(ASKED)
    with pytest.raises(SummarizerError, match="custom: the answer is no ChatResponse"):
        await AgentScopeSummarizer(Custom(stream=True)).summarize(ASKED)


def test_the_formatter_is_that_of_the_models_class() -> None:
    class Mine(DashScopeChatModel):
        pass

    chosen = [
        (Mine("m", "key"), DashScopeChatFormatter),
        (OpenAIChatModel("m", "key"), OpenAIChatFormatter),
        (AnthropicChatModel("m", "key"), formatters.AnthropicChatFormatter),
        (Custom(), OpenAIChatFormatter),
    ]
    for model, expected in chosen:
        assert type(AgentScopeSummarizer(model)._formatter) is expected
    mine = DeepSeekChatFormatter()
    assert AgentScopeSummarizer(Custom(), mine)._formatter is mine


def test_a_client_that_retries_by_itself_is_not_asked_again() -> None:
    assert AgentScopeSummarizer(OpenAIChatModel("m", "key"))._max_retries == 0
    assert AgentScopeSummarizer(DashScopeChatModel("m", "key"))._max_retries == 2


@pytest.mark.parametrize("model", ["qwen-max", object(), Msg("a", "b", "user")])
def test_what_is_no_model_is_refused_with_what_to_do(model: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"model: expected an AgentScope chat model.*summarizer="):
        AgentScopeCompressedMemory(model)
    with pytest.raises(InvalidArgumentError, match="formatter: expected an AgentScope formatter, got str"):
        AgentScopeSummarizer(Custom(), "openai")  # type: ignore[arg-type]


class Refused(Exception):
    def __init__(self, **fields: Any) -> None:
        super().__init__("refused")
        self.__dict__.update(fields)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Refused(status_code=429, error="slow down"), ("status", 429, "slow down")),  # Ollama
        (
            Refused(code=503, status="UNAVAILABLE", message="overloaded"),
            ("status", 503, "overloaded"),
        ),  # Gemini
        (Refused(code="invalid", message="no"), None),
        (RuntimeError("no response at all {"), None),
        (ConnectionRefusedError("nobody there"), ("connection", 0, "nobody there")),
    ],
)
def test_exceptions_of_any_sdk_are_told_apart(error: Exception, told: tuple[str, int, str] | None) -> None:
    fault = fault_of(error)
    assert (fault and (fault.kind, fault.status, fault.text)) == told
