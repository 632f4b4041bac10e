"""A chat model of LangChain's as summariser."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from langchain.agents.middleware import ModelRequest
from langchain.chat_models import init_chat_model
from langchain_core.callbacks import BaseCallbackManager
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableBinding, RunnableConfig
from langchain_core.runnables.config import ensure_config, var_child_runnable_config
from langchain_core.tracers import LangChainTracer
from langchain_core.tracers.context import _configure_hooks

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.asked import (
    Ask,
    Asked,
    AskedModel,
    Last,
    Own,
    Said,
    is_taken_over,
    taken_over,
)
from context_compressor.integrations.clients.wire import check_free
from context_compressor.memory.loops import is_background

_LIMIT = "max_tokens"
"""What LangChain calls the most tokens of an answer, in a model's field or its alias."""
_CUT = ("length", "max_tokens", "max_output_tokens")
"""What providers call it that an answer was cut."""


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
        "run_name": "context_compressor summary",
        "callbacks": traced,
        "tags": ["nostream", "langsmith:nostream"],
        "metadata": {"lc_source": "summarization"},
    }


@contextmanager
def _unheard() -> Iterator[RunnableConfig]:
    """Give a config for a call that nothing hears: neither who watches the agent nor what counts its tokens.

    What is bound to a model takes up the run's callbacks again from the context, where what
    `get_usage_metadata_callback` gives stands as well.
    """
    counting = [var for var, *_ in _configure_hooks if not isinstance(var.get(None), LangChainTracer)]
    config = ensure_config(_apart())
    tokens: list[Any] = [(var, var.set(None)) for var in counting]
    tokens.append((var_child_runnable_config, var_child_runnable_config.set(config)))
    try:
        yield config
    finally:
        for var, token in tokens:
            var.reset(token)


def _name_in(model: Any) -> str:
    """Return what to call a model in errors and logs."""
    named = (getattr(model, name, None) for name in ("model_name", "model"))
    return next((one for one in named if isinstance(one, str) and one), type(model).__name__)


def asked_model(model: BaseChatModel | str) -> AskedModel:
    """Return a summariser that asks a model, or that which a name stands for.

    Raises:
        InvalidArgumentError: LangChain knows no model of that name, or lacks the package for it.
    """
    if isinstance(model, str):
        try:
            model = init_chat_model(model)
        except Exception as error:
            raise InvalidArgumentError(f"summarizer: no model {model!r}: {error}") from error
    return AskedModel(_name_in(model), _asking(model))


def own_model(request: ModelRequest[Any], asked: Asked) -> Own:
    """Return the model of an agent's request, which nobody hears who watches the agent.

    Args:
        request: the request.
        asked: what it asks.
    """

    def again(last: Last) -> Ask:
        asked.check_goes_on(last.asked)
        sent: ModelRequest[Any] = last.sent
        choices = sent.tool_choice, sent.model_settings.get("tool_choice")
        check_free(
            tool_choice=any(one not in (None, "auto", "none") for one in choices),
            response_format=sent.response_format or sent.model_settings.get("response_format"),
        )
        return _asking(model, request.model_settings, sent)

    model: Any = request.model
    if getattr(model, "callbacks", None) and isinstance(model, BaseChatModel):
        model = model.model_copy(update={"callbacks": None})
    return Own(_name_in(model), _asking(model, request.model_settings), again)


def _asking(
    model: Any, settings: Mapping[str, Any] | None = None, sent: ModelRequest[Any] | None = None
) -> Ask:
    """Return what asks a model.

    Args:
        model: the model.
        settings: of the agent's requests; what a summary takes over of them goes along.
        sent: a request to be sent once more, with what is asked behind it.
    """

    async def ask(instructions: str, text: str, room: int | None) -> Said:
        asked, kept = _in_words(model, room), taken_over(settings)
        prompt: list[AnyMessage] = [SystemMessage(instructions), HumanMessage(text)]
        if sent is not None:
            instructing = [] if sent.system_message is None else [sent.system_message]
            prompt = [*instructing, *sent.messages, HumanMessage(text)]
            asked = asked.bind_tools(sent.tools) if sent.tools else asked
        with _unheard() as config:
            if is_background():
                # The model's asynchronous client may belong to another loop; what is called without asyncio
                # has the other client anyhow.
                return _said(await asyncio.to_thread(asked.invoke, prompt, config, **kept))
            return _said(await asked.ainvoke(prompt, config, **kept))

    return ask


def _said(answer: AIMessage) -> Said:
    usage: Any = answer.usage_metadata or {}
    more = answer.response_metadata
    why = more.get("finish_reason") or more.get("stop_reason") or more.get("incomplete_details")
    reason = str(why.get("reason") if isinstance(why, dict) else why)
    read, written = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
    cached = (usage.get("input_token_details") or {}).get("cache_read") or 0
    return Said(str(answer.text), read, written, "length" if reason.lower() in _CUT else reason, cached)


def _in_words(model: Any, room: int | None) -> Any:
    """Return a model that answers in words and has so many tokens for it, and is the given one otherwise."""
    if isinstance(model, RunnableBinding):
        bound, kwargs = _in_words(model.bound, room), taken_over(model.kwargs)
        return model.model_copy(update={"bound": bound, "kwargs": kwargs})
    if not isinstance(model, BaseChatModel):
        return model
    said: dict[str, Any] = {}  # what it holds else
    for name, field in type(model).model_fields.items():
        held, alias = getattr(model, name), field.alias or name
        if field.exclude:  # it is for the framework, and does not go out
            continue
        if _LIMIT in (name, alias):
            said[name] = room and room + _budget(model)
        elif is_taken_over(alias, held) and is_taken_over(name, held):
            said[name] = taken_over({name: held})[name]
        elif not field.is_required():
            said[name] = field.get_default(call_default_factory=True)
    said = {name: value for name, value in said.items() if value != getattr(model, name)}
    return model.model_copy(update=said) if said else model


def _budget(model: BaseChatModel) -> int:
    """Return how many tokens of an answer a model has to think: Anthropic's answers have to have more."""
    thinking = getattr(model, "thinking", None)
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return budget if isinstance(budget, int) else 0
