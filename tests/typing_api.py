"""Typed calls of the public API: mypy checks them, nothing runs them."""

from collections.abc import Sequence
from typing import Any, Literal, assert_type

from anthropic import AsyncAnthropic
from dashscope import AioGeneration
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    CompressionEvent,
    CompressionStats,
    DashScopeSummarizer,
    ExtractiveSummarizer,
    FallbackSummarizer,
    FileOffloadStore,
    History,
    InMemoryMemory,
    InMemoryMemoryService,
    InMemoryOffloadStore,
    MemoryBase,
    Msg,
    OffloadStore,
    OffloadTools,
    OpenAISummarizer,
    Summarizer,
    Summary,
    SummaryRequest,
    TiktokenCounter,
    TokenCounter,
    acompress_messages,
    compress_messages,
    from_openai,
    in_turn,
    to_openai,
)
from context_compressor.integrations import anthropic as clients_of_anthropic
from context_compressor.integrations import dashscope as clients_of_dashscope
from context_compressor.integrations import langchain, openai_agents, pydantic_ai
from context_compressor.integrations import openai as clients_of_openai
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory

ChatDicts = list[dict[str, Any]]


def redact(text: str) -> str:
    return text


def watch(event: CompressionEvent) -> None:
    assert_type(event.kind, Literal["compact", "compress", "edit", "failure"])
    assert_type(event.reason, str)
    assert_type(event.tokens_before, int)
    assert_type(event.tokens_after, int)
    assert_type(event.refs, tuple[str, ...])
    assert_type(event.message_ids, tuple[str, ...])
    assert_type(event.summary_input_tokens, int)
    assert_type(event.summary_output_tokens, int)
    assert_type(event.seconds, float)
    assert_type(event.error, str | None)


async def watch_async(event: CompressionEvent) -> None: ...


def make_config() -> CompressionConfig:
    CompressionConfig()
    config = CompressionConfig(
        mode="auto",
        max_total_tokens=20_000,
        reserved_tokens=0,
        max_tool_message_tokens=2_000,
        group_token_threshold=None,
        keep_recent_count=10,
        compact_ratio_threshold=0.75,
        target_ratio=0.5,
        arrival_ratio=0.25,
        preview_tokens=200,
        keep_first_user=True,
        pinned_mark="pinned",
        volatile_marks=frozenset({"hint"}),
        exclude_tools=frozenset({"read_file"}),
        redact=redact,
        summary_instructions=None,
        on_failure="fallback",
        summarizer_timeout_seconds=120.0,
        store_timeout_seconds=30.0,
    )
    assert_type(config.budget, int)
    return config


def make_memory(client: AsyncOpenAI) -> CompressedMemory:
    CompressedMemory()
    CompressedMemory(on_event=print)
    CompressedMemory(on_event=watch)
    return CompressedMemory(
        base=InMemoryMemory(),
        config=make_config(),
        store=FileOffloadStore("working_memory", namespace="chat-1"),
        summarizer=FallbackSummarizer(OpenAISummarizer("gpt-4o-mini", client=client), ExtractiveSummarizer()),
        counter=TiktokenCounter("gpt-4o"),
        on_event=watch_async,
    )


async def use_memory(memory: CompressedMemory, answer: ChatCompletionMessage) -> ChatDicts:
    async with memory as entered:
        assert_type(entered, CompressedMemory)
    await memory.add(Msg("user", "hi", "user"), marks="pinned")
    await memory.add(from_openai([{"role": "user", "content": "hi"}, answer]), marks=["a", "b"])
    await memory.add(None)
    await memory.sync([{"role": "user", "content": "hi"}, answer])
    view = await memory.get_memory()
    assert_type(view, list[Msg])
    await memory.get_memory(mark="a", exclude_mark="b", prepend_summary=False)
    assert_type(await memory.get_history(), list[Msg])
    assert_type(await memory.compress_now(), CompressionEvent | None)
    memory.record_usage(prompt_tokens=1_000)
    memory.record_overflow()
    memory.record_overflow(limit=128_000)
    assert_type(await memory.size(), int)
    assert_type(await memory.delete(["id"]), int)
    assert_type(await memory.delete_by_mark("a"), int)
    assert_type(await memory.update_messages_mark("new", old_mark="old", msg_ids=["id"]), int)
    await memory.update_compressed_summary("")
    await memory.clear()
    state = memory.state_dict()
    assert_type(state, dict[str, Any])
    memory.load_state_dict(state, strict=False)
    assert_type(memory.base, MemoryBase)
    assert_type(memory.config, CompressionConfig)
    assert_type(memory.store, OffloadStore)
    assert_type(memory.counter, TokenCounter)
    return to_openai(view)


async def use_the_sdk(
    client: AsyncOpenAI, memory: CompressedMemory, asked: list[ChatCompletionMessageParam]
) -> list[ChatCompletionMessageParam]:
    """What the SDK takes and gives needs no cast on either side."""
    await memory.add(from_openai(asked))
    view = to_openai(await memory.get_memory())
    answer = await client.chat.completions.create(model="gpt-4o", messages=view)
    await memory.add(from_openai([answer.choices[0].message]))
    await client.chat.completions.create(model="gpt-4o", messages=in_turn(view))
    await memory.add(from_openai(({"role": "user", "content": "go on"},)))
    OpenAI().chat.completions.create(model="gpt-4o", messages=to_openai(from_openai(asked)))
    dicts: ChatDicts = to_openai(await memory.get_memory())
    return to_openai(from_openai(dicts))


def read_stats(stats: CompressionStats) -> None:
    assert_type(stats.history_tokens, int)
    assert_type(stats.view_tokens, int)
    assert_type(stats.saved_tokens, int)
    assert_type(stats.events, int)
    assert_type(stats.offloaded, int)
    assert_type(stats.noted, int)
    assert_type(stats.summarizer_calls, int)
    assert_type(stats.summarizer_input_tokens, int)
    assert_type(stats.summarizer_output_tokens, int)
    assert_type(stats.summarizer_seconds, float)


async def use_tools(memory: CompressedMemory) -> None:
    tools = OffloadTools(memory)
    assert_type(tools.schemas, list[Any])
    assert_type(await tools.call("read_offloaded", {"ref": "ctx://0123456789abcdef"}), str)
    assert_type(await tools.call("grep_offloaded", '{"pattern": "x"}'), str)


async def use_views(memory: CompressedMemory, messages: ChatDicts) -> None:
    assert_type(await memory.view(messages, system="Be brief.", reset=True), list[Any])
    assert_type(await memory.view(), list[Any])
    assert_type(CompressedMemory(max_total_tokens=16_000).view_sync(messages), list[Any])
    assert_type(memory.tools(form="chat"), OffloadTools)
    assert_type(memory.tools().call_sync("search_history", {"query": "x"}), str)
    assert_type(await memory.save("state.json"), dict[str, Any])
    await memory.load("state.json")
    await memory.load(await memory.save())
    history: History = memory.base.history
    assert_type(CompressedMemory(history, max_total_tokens=16_000), CompressedMemory)
    assert_type(compress_messages(messages, max_total_tokens=16_000).tools, OffloadTools)


async def use_without_memory(messages: ChatDicts, tuples: tuple[dict[str, Any], ...]) -> None:
    first = compress_messages(messages)
    assert_type(first.messages, list[Any])
    assert_type(first.stats, CompressionStats)
    assert_type(first.state, dict[str, Any])
    await acompress_messages(
        tuples,
        config=make_config(),
        store=InMemoryOffloadStore(),
        summarizer=ExtractiveSummarizer(),
        counter=TiktokenCounter(),
        on_event=watch,
        state=first.state,
    )


async def use_store(store: OffloadStore) -> None:
    ref = await store.write("text")
    assert_type(ref, str)
    assert_type(await store.read(ref), str)
    await store.delete(ref)
    assert_type(await store.refs(), list[str])


class OwnStore:
    async def write(self, text: str) -> str:
        return text

    async def read(self, ref: str) -> str:
        return ref

    async def delete(self, ref: str) -> None: ...

    async def refs(self) -> list[str]:
        return []


class OwnSummarizer:
    remote = False

    async def summarize(self, request: SummaryRequest) -> Summary:
        assert_type(request.messages, tuple[Msg, ...])
        assert_type(request.max_tokens, int)
        assert_type(request.previous, str | None)
        assert_type(request.context, tuple[Msg, ...])
        assert_type(request.instructions, str | None)
        SummaryRequest(request.messages, request.max_tokens, None, (), None, None)
        return Summary("", 1, 1)


class OwnCounter:
    def count_text(self, text: str) -> int:
        return len(text)

    def count_messages(self, messages: Sequence[Msg | dict[str, Any]]) -> int:
        return len(messages)


def use_protocols() -> None:
    """Whatever has the members will do, ours and the user's alike."""
    stores: list[OffloadStore] = [OwnStore(), FileOffloadStore("."), InMemoryOffloadStore()]
    summarizers: list[Summarizer] = [
        OwnSummarizer(),
        ExtractiveSummarizer(TiktokenCounter()),
        OpenAISummarizer(base_url="http://localhost:8000/v1", api_key="none", max_input_tokens=32_000),
        DashScopeSummarizer("qwen-plus", api_key="none", max_input_tokens=None, extra_parameters={"seed": 1}),
    ]
    counters: list[TokenCounter] = [OwnCounter(), TiktokenCounter()]
    summarizers.append(FallbackSummarizer(summarizers[0], summarizers[1], *summarizers[2:]))
    for store, summarizer, counter in zip(stores, summarizers, counters, strict=False):
        CompressedMemory(store=store, summarizer=summarizer, counter=counter)
    CompressedMemory(summarizer="rules")
    compress_messages([], summarizer="rules")


def misspell() -> None:
    """A field that there is not is an error before anything runs."""
    CompressedMemory(max_total_token=16_000)  # type: ignore[call-arg]
    CompressedMemory(max_total_tokens="16k")  # type: ignore[arg-type]
    compress_messages([], keep_recent=3)  # type: ignore[call-arg]
    AgentScopeCompressedMemory(keep_recent_tokens=1_000, target_ratio=0.4)
    AgentScopeCompressedMemory(keep_recent_token=1_000)  # type: ignore[call-arg]
    InMemoryMemoryService(idle_second=5)  # type: ignore[call-arg]
    clients_of_openai.compressed(OpenAI(), budget=16_000)  # type: ignore[call-arg]
    langchain.Compression(budget=16_000)  # type: ignore[call-arg]
    openai_agents.Compression(sumarizer="rules")  # type: ignore[call-arg]
    pydantic_ai.Compression(max_total_tokens="all")  # type: ignore[arg-type]


def use_counter(counter: TiktokenCounter, messages: list[Msg], dicts: ChatDicts) -> None:
    assert_type(counter.encoding_name, str)
    assert_type(counter.count_text(""), int)
    assert_type(counter.count_messages(messages), int)
    assert_type(counter.count_messages(dicts), int)


def wrap_any_memory(base: MemoryBase) -> MemoryBase:
    """A compressed memory is itself a memory."""
    return CompressedMemory(base)


def use_clients() -> None:
    """A wrapped client has the type of the given one."""
    assert_type(clients_of_openai.compressed(AsyncOpenAI(), max_total_tokens=16_000), AsyncOpenAI)
    assert_type(clients_of_openai.compressed(OpenAI(), tools=False, key=lambda request: "one"), OpenAI)
    assert_type(clients_of_anthropic.compressed(AsyncAnthropic(), summarizer="own"), AsyncAnthropic)
    assert_type(clients_of_dashscope.compressed(AioGeneration), type[AioGeneration])
    assert_type(clients_of_openai.stats_of(OpenAI()), CompressionStats | None)
