"""Views in LiteLLM's calls: its functions and router, against a server that refuses what OpenAI refuses."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches a list as it is imported
import litellm
from litellm.integrations.custom_logger import CustomLogger

from context_compressor.integrations.litellm import Compression
from context_compressor.memory.saved import SAVED_KEY
from tests.integrations.drivers import forget, settled
from tests.support.behaviours import Kept
from tests.support.markdown import blocks
from tests.support.model_server import ModelServer, answer
from tests.support.replies import context_length_exceeded, status
from tests.support.task import BUDGET, FUNCTIONS, REQUEST, WINDOW, Worker, Workplace
from tests.support.wires import Received
from tests.test_readme import ROOT

Dict = dict[str, Any]
Ask = Callable[..., Awaitable[Any]]

SMALL = 3_000
TOOLS = [{"type": "function", "function": one} for one in FUNCTIONS]

litellm.suppress_debug_info = True

# What LiteLLM imports late warns of LiteLLM's own types.
pytestmark = pytest.mark.filterwarnings("ignore:Items? .* using the `ReadOnly` qualifier:UserWarning")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("workplace"))


@pytest.fixture(autouse=True)
async def callbacks() -> AsyncIterator[None]:
    yield
    await forget()


def use(**fields: Any) -> Compression:
    """Rules write unless the fields say otherwise: scripted models have no summary to give."""
    c = Compression(**{"summarizer": "rules", **fields})
    litellm.callbacks = [c]
    return c


def calls_at(server: ModelServer, **more: Any) -> Dict:
    return {"model": "openai/x", "api_base": server.url, "api_key": "test", "max_retries": 0, **more}


async def whole(**arguments: Any) -> Any:
    return (await litellm.acompletion(**arguments)).choices[0].message


async def streamed(**arguments: Any) -> Any:
    options = {"include_usage": True}
    chunks = [
        one async for one in await litellm.acompletion(stream=True, stream_options=options, **arguments)
    ]
    made: Any = litellm.stream_chunk_builder(chunks)
    return made.choices[0].message


def routed(server: ModelServer, **more: Any) -> Any:
    models = [
        {"model_name": name, "litellm_params": calls_at(server, model=f"openai/{name}")} for name in "ab"
    ]
    return litellm.Router(model_list=models, **more)


async def work(ask: Ask, run: Callable[[str, Dict], str], messages: list[Any], **arguments: Any) -> None:
    """Go on with a conversation until the model calls no tool."""
    while True:
        said = await ask(messages=messages, tools=TOOLS, **arguments)
        messages.append(said)
        if not said.tool_calls:
            return
        for call in said.tool_calls:
            text = run(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


async def long_talk(server: ModelServer, place: Workplace, turns: int = 12) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": REQUEST}]
    await work(whole, place.run, messages, **calls_at(server))
    return [*messages, {"role": "user", "content": "And now?"}]


async def test_every_attempt_sends_the_same_view(place: Workplace) -> None:
    """A router hands on the caller's list; retries and fallbacks without one hand on what was sent."""
    events: list[Any] = []
    use(max_total_tokens=BUDGET, on_event=events.append)
    async with ModelServer(Worker(12), window_tokens=WINDOW) as server:
        messages = await long_talk(server, place)
        number = len(server.requests)
        router = routed(server, num_retries=1, fallbacks=[{"a": ["b"]}], retry_after=0)
        server.fail(status(500), times=2)
        await router.acompletion(model="a", messages=messages)
        server.fail(status(500), times=1)
        await litellm.acompletion(**calls_at(server, messages=messages, num_retries=1))
        server.fail(status(500), times=1)
        more = {"fallbacks": [calls_at(server, model="openai/y")], "num_retries": 0}
        await litellm.acompletion(**calls_at(server, messages=messages, **more))
        bodies = server.requests[number:]
        assert [one.json["model"] for one in bodies] == ["a", "a", "b", "x", "x", "x", "y"]
        assert all(one.messages == bodies[0].messages for one in bodies)
        assert "ctx://" in json.dumps(bodies[0].messages)
    assert len({id(event) for event in events}) == len(events)


async def test_what_was_sent_is_known_when_it_comes_again(place: Workplace) -> None:
    c = use(max_total_tokens=BUDGET)
    async with ModelServer(Worker(12), window_tokens=WINDOW) as server:
        messages = await long_talk(server, place)
        call: Dict = {"messages": messages, "litellm_call_id": "1"}
        once = await c.async_pre_call_deployment_hook(call, "acompletion")
        assert once is not None
        again = await c.async_pre_call_deployment_hook(
            json.loads(json.dumps(once, default=dict)), "acompletion"
        )
        assert again["messages"] == once["messages"] != messages
        assert await c.async_pre_call_deployment_hook(call, "aembedding") is None


async def test_the_attempt_after_a_refusal_is_smaller(place: Workplace) -> None:
    use(max_total_tokens=BUDGET)
    async with ModelServer(Worker(12), window_tokens=WINDOW) as server:
        messages = await long_talk(server, place)
        router = routed(server, context_window_fallbacks=[{"a": ["b"]}], num_retries=0)
        server.fail(context_length_exceeded(10_000))
        await router.acompletion(model="a", messages=messages)
        refused, sent = (len(json.dumps(one.messages)) for one in server.requests[-2:])
        assert sent < refused * 0.8
        again = await litellm.acompletion(**calls_at(server, messages=messages))
        assert again.choices
        assert len(json.dumps(server.requests[-1].messages)) == sent


async def test_usage_is_learnt_from(place: Workplace) -> None:
    """With the tools' schemas, which are no messages; but not LiteLLM's own estimate of a stream."""

    async def learnt(server: ModelServer, **more: Any) -> bool:
        kept, told = Kept(), asyncio.Event()

        async def tell(*given: Any) -> None:
            told.set()

        use(max_total_tokens=BUDGET, states=kept)
        litellm.success_callback = [tell]
        messages = [{"role": "user", "content": "Hello. " * 99}]
        arguments = calls_at(server, messages=messages, tools=TOOLS, metadata={"session_id": "ada"}, **more)
        made = await litellm.acompletion(**arguments)
        if "stream" in more:
            async for _ in made:
                pass
        await asyncio.wait_for(told.wait(), 30)
        [one] = json.loads(kept.texts["ada"])["conversations"]
        return "learnt" in one["state"][SAVED_KEY]["calibration"]

    async with ModelServer(Worker(), window_tokens=WINDOW) as server:
        assert not await learnt(server, stream=True)
        assert await learnt(server)
        assert await learnt(server, stream=True, stream_options={"include_usage": True})


async def test_a_model_of_litellms_writes_summaries(place: Workplace) -> None:
    """Named with more arguments. No logger hears of it; what comes before a call finds a mark."""

    class Watching(CustomLogger):
        heard: list[Any]
        marks: list[Any]

        async def async_pre_call_deployment_hook(self, kwargs: Dict, call_type: Any) -> None:
            self.marks.append((kwargs.get("metadata") or {}).get("context_compressor"))

        async def async_log_success_event(self, kwargs: Any, response_obj: Any, **_: Any) -> None:
            self.heard.append((response_obj, kwargs["messages"][0]["content"]))

    class Writer(Worker):
        asked = 0

        def __call__(self, messages: list[Dict], received: Received) -> Any:
            if received.tools:
                return super().__call__(messages, received)
            assert set(received.json) <= {"model", "messages", "max_tokens", "stream"}
            assert (received.json["model"], received.streams) == ("x", False)
            assert received.json["max_tokens"] > 50
            self.asked += 1
            return answer("## Goal\n- Go through the logs; host-1 was read, and units were lost on it.")

    writer = Writer(20)
    async with ModelServer(writer, window_tokens=WINDOW) as server:
        c = use(max_total_tokens=6_000, summarizer=calls_at(server))
        watching = Watching()
        watching.heard, watching.marks = [], []
        litellm.callbacks.append(watching)
        more = {"stop": ["END"], "max_tokens": 50, "metadata": {"session_id": "ada"}}
        said: list[Any] = [{"role": "user", "content": REQUEST}]
        await work(whole, place.run, said, **calls_at(server), **more)
        await settled()
        assert server.refusals == []
        assert "units were lost on it" not in str(said)
        assert watching.marks.count("summary") == writer.asked
        assert {first for _, first in watching.heard} == {REQUEST}
        assert "units were lost on it" not in str(watching.heard)
    stats = c.stats()
    assert stats.summarizer_calls == writer.asked > 0


async def test_calls_that_are_not_reached_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    use(max_total_tokens=BUDGET)
    messages = [{"role": "user", "content": "Hello."}]
    async with ModelServer(lambda messages: "Hello.") as server:
        for _ in range(2):
            arguments = calls_at(server)
            await asyncio.to_thread(litellm.completion, messages=messages, **arguments)
            await litellm.acompletion(arguments.pop("model"), messages, **arguments)
        assert len(server.requests) == 4
    told = [one.message for one in caplog.records if one.name.startswith("context_compressor")]
    assert [text for text in told if "not reached by litellm.completion" in text] == told[:1]
    assert [text for text in told if "by position" in text] == told[1:]


async def test_a_key_is_asked_for() -> None:
    async with ModelServer(lambda messages: "Hello.") as server:
        arguments = calls_at(server, messages=[{"role": "user", "content": "Hello."}])
        for c, more in (
            (use(), {"metadata": {"session_id": "ada"}}),
            (use(), {"litellm_session_id": "ada"}),
            (use(key=lambda kwargs: kwargs["user"]), {"user": "ada"}),
        ):
            litellm.callbacks = [c]
            await litellm.acompletion(**arguments, **more)
            assert c.stats("ada") == c.stats() is not None
        use(key=lambda kwargs: 3)
        with pytest.raises(Exception, match="key: expected a function that returns a string"):
            await litellm.acompletion(**arguments)


async def test_the_pages_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "litellm.md").read_text(encoding="utf-8")
    names: Dict = {}
    async with ModelServer(lambda messages: "Hello.") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        for block in blocks("python", page):
            made = eval(compile(block, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.isawaitable(made):
                await made
        [c] = litellm.callbacks
        assert c.stats("ada") is not None
        await settled()
    assert names["messages"][-1].content == "Hello."
