"""A chat model of LangChain's as summariser."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain.chat_models import init_chat_model
from langchain_core.callbacks import BaseCallbackManager
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tracers import LangChainTracer

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.asked import AskedModel, Said
from context_compressor.memory.loops import is_background


def _apart() -> RunnableConfig:
    """Return a config without the agent's callbacks and streams, so that nobody who watches it sees the call.

    A LangSmith trace shows the call where it was made, marked as the framework's own summaries are.
    """
    watching = ensure_config().get("callbacks")
    traced: list[Any] | BaseCallbackManager = []
    if isinstance(watching, BaseCallbackManager):
        traced = watching.copy()
        for handler in traced.handlers[:]:
            if not isinstance(handler, LangChainTracer):
                traced.remove_handler(handler)
    return {
        "callbacks": traced,
        "tags": ["nostream", "langsmith:nostream"],
        "metadata": {"lc_source": "summarization"},
    }


def named_model(summarizer: Any) -> Any:
    """Return the model that a string names, or what was given.

    Raises:
        InvalidArgumentError: LangChain knows no such model, or lacks the package for it.
    """
    if not isinstance(summarizer, str):
        return summarizer
    try:
        return init_chat_model(summarizer)
    except Exception as error:
        raise InvalidArgumentError(f"summarizer: no model {summarizer!r}: {error}") from error


def asked_model(model: BaseChatModel) -> AskedModel:
    """Return a summariser that asks a model."""

    async def ask(instructions: str, text: str, room: int | None) -> Said:  # noqa: ARG001
        prompt = [SystemMessage(instructions), HumanMessage(text)]
        if is_background():
            # The model's asynchronous client may belong to another loop; what is called without asyncio
            # has the other client anyhow.
            answer = await asyncio.to_thread(model.invoke, prompt, _apart())
        else:
            answer = await model.ainvoke(prompt, _apart())
        usage: Any = answer.usage_metadata or {}
        more = answer.response_metadata
        reason = more.get("finish_reason") or more.get("stop_reason")
        read, written = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
        cut = reason in ("length", "max_tokens")  # as OpenAI and Anthropic say it
        return Said(str(answer.text), read, written, "length" if cut else str(reason))

    return AskedModel(type(model).__name__, ask)
