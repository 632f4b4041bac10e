"""`compress_messages`: the same for callers that keep no memory between calls."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from context_compressor.compression.config import CompressionConfig
from context_compressor.errors import InvalidStateError
from context_compressor.events import EventHook
from context_compressor.memory.compressed import STATE_KEY, CompressedMemory
from context_compressor.memory.in_memory import InMemoryMemory
from context_compressor.memory.stats import CompressionStats
from context_compressor.messages.openai import from_openai, to_openai
from context_compressor.offload.in_memory import InMemoryOffloadStore
from context_compressor.offload.protocol import OffloadStore
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.tokens.protocol import TokenCounter

_VERSION = 1


@dataclass(frozen=True, slots=True)
class CompressionResult:
    """What `compress_messages` gives back."""

    messages: list[dict[str, Any]]
    """The view as chat dicts."""
    stats: CompressionStats
    """Where this call stands; what earlier calls did is not counted again."""
    state: dict[str, Any]
    """JSON-like data; feed it to the next call, so that views stay still and nothing is summarised twice."""


async def acompress_messages(
    messages: Iterable[Any],
    *,
    config: CompressionConfig | None = None,
    store: OffloadStore | None = None,
    summarizer: Summarizer | None = None,
    counter: TokenCounter | None = None,
    on_event: EventHook | None = None,
    state: Mapping[str, Any] | None = None,
    prompt_tokens: int | None = None,
    refused: bool = False,
) -> CompressionResult:
    """Return a view of chat dicts that fits the budget.

    Args:
        messages: the whole conversation so far, as chat dicts (OpenAI, DashScope) or SDK message objects.
        config: thresholds.
        store: where texts that leave the view go; without one, `state` carries them.
        summarizer: who writes summaries; extractive when None.
        counter: measures messages; offline tiktoken when None.
        on_event: receives every event.
        state: what an earlier call returned, for a conversation that goes on.
        prompt_tokens: what the provider counted for the request with the earlier call's messages, as
            `CompressedMemory.record_usage` takes it.
        refused: whether the provider refused that request as too long; these messages then take clearly less.

    Raises:
        InvalidArgumentError: `prompt_tokens` is not an int, or negative.
        InvalidMessageError: a message is malformed.
        InvalidStateError: the state is malformed.
        ContextOverflowError: what may not leave exceeds the budget.
    """
    earlier = _check_state(state)
    own_store = store is None
    used: OffloadStore = InMemoryOffloadStore.from_state(earlier.get("texts", {})) if store is None else store
    history = from_openai(messages)
    for index, (msg, wire) in enumerate(zip(history, to_openai(history), strict=True)):
        # The same place and content give the same id in every call, which is what the ledger goes by.
        digest = hashlib.sha256(json.dumps(wire).encode()).hexdigest()[:16]
        msg.id, msg.timestamp = f"{index}-{digest}", ""
    base = InMemoryMemory()
    await base.add(history)
    # The memory ends with this call, and nothing that it prepared would be used.
    settings = (config or CompressionConfig()).model_copy(update={"background_ratio": None})
    memory = CompressedMemory(base, settings, used, summarizer, counter, on_event)
    memory.load_state_dict({**base.state_dict(), STATE_KEY: earlier.get("compression")})
    if prompt_tokens is not None:
        memory.record_usage(prompt_tokens)
    if refused:
        memory.record_overflow()
    view = await memory.get_memory()
    result_state: dict[str, Any] = {
        "version": _VERSION,
        "compression": memory.state_dict()[STATE_KEY],
    }
    if own_store and isinstance(used, InMemoryOffloadStore):
        result_state["texts"] = used.to_state()
    return CompressionResult(to_openai(view), memory.stats(), result_state)


def compress_messages(
    messages: Iterable[Any],
    *,
    config: CompressionConfig | None = None,
    store: OffloadStore | None = None,
    summarizer: Summarizer | None = None,
    counter: TokenCounter | None = None,
    on_event: EventHook | None = None,
    state: Mapping[str, Any] | None = None,
    prompt_tokens: int | None = None,
    refused: bool = False,
) -> CompressionResult:
    """Return what `acompress_messages` does, to synchronous callers; also where an event loop is running."""
    call = acompress_messages(
        messages,
        config=config,
        store=store,
        summarizer=summarizer,
        counter=counter,
        on_event=on_event,
        state=state,
        prompt_tokens=prompt_tokens,
        refused=refused,
    )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(call)
    context = contextvars.copy_context()
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(context.run, asyncio.run, call).result()


def _check_state(state: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if state is None:
        return {}
    if not isinstance(state, Mapping):
        raise InvalidStateError(f"state: expected a dict, got {type(state).__name__}")
    if state.get("version") != _VERSION:
        raise InvalidStateError(
            f"state.version: this release reads {_VERSION}, the state has {state.get('version')!r}"
        )
    return state
