"""LiteLLM: `litellm.callbacks = [Compression(max_total_tokens=16_000)]`, for asynchronous calls."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar, Unpack

from context_compressor.errors import InvalidArgumentError, naming_extras

with naming_extras("litellm"):
    import litellm
    from litellm.integrations.custom_logger import CustomLogger

from context_compressor.integrations.asked import Ask, AskedModel, Own, check_tools
from context_compressor.integrations.clients.chat import ChatWire
from context_compressor.integrations.clients.talk import asker
from context_compressor.integrations.conversations import Shown, key_of
from context_compressor.integrations.options import KeyedOptions, make_conversations
from context_compressor.integrations.request import Request
from context_compressor.memory.listing import digest_of, wires_of
from context_compressor.memory.reporting import CompressionStats
from context_compressor.messages.plain import get

logger = logging.getLogger(__name__)

T = TypeVar("T")

MOST_REQUESTS = 1_000
"""Requests under way, and views sent of late, that are remembered: with more, the oldest go."""
_OF_CALL = frozenset(
    (
        *("litellm_call_id", "litellm_logging_obj", "litellm_trace_id", "litellm_session_id", "logger_fn"),
        *("callbacks", "success_callback", "failure_callback", "service_callback", "fallbacks", "cache"),
        *("caching", "prompt_id", "prompt_variables", "prompt_label", "mock_response", "mock_tool_calls"),
        "_context_compaction_state",
    )
)
"""Arguments of LiteLLM's that are for one call: who watches over it, and what answers in its place."""
_REACHED, _SYNCHRONOUS = "acompletion", "completion"

_CALLS: OrderedDict[str, Request] = OrderedDict()
"""Id of a call -> whose view it was made with. For all objects: of several of a class LiteLLM tells the first
alone what an answer cost."""
_ASKING: ContextVar[bool] = ContextVar("context_compressor_litellm_asking", default=False)
"""Whether a summary is being asked for, which is no conversation."""


class Compression(CustomLogger):
    """Send views that fit a budget in `litellm.acompletion` and `Router.acompletion`, streamed or not.

    LiteLLM's hook comes before every attempt, retries and fallbacks included; each sends the same view, or a
    smaller one after a refusal as too long. The caller's list stays whole. `litellm.completion` is not
    reached.

    The agent's tools are not LiteLLM's, so views name no read-back tools, and `tools` may only be False.

    Args:
        options: as `KeyedOptions` says, `max_total_tokens` and so on. A `summarizer` may be the name of a
            model, or a dict of arguments for `litellm.acompletion`, `model` among them; "own" is the model of
            the call, in a call of its own. `key` is given a call's keyword arguments; without it a
            conversation is named by `litellm_session_id`, or by `session_id` in its `metadata`.

    Raises:
        InvalidArgumentError: an option that there is not, or something of the wrong kind.
        ValueError: thresholds that cannot be, or cannot work together.
    """

    def __init__(self, **options: Unpack[KeyedOptions[str | Mapping[str, Any]]]) -> None:
        super().__init__()
        key = options.get("key")
        if check_tools(options.get("tools", False)):
            raise InvalidArgumentError(
                "tools: LiteLLM runs no tools, so this adapter offers none; leave it out, and give your "
                "agent the tools of a CompressedMemory"
            )
        if key is not None and not callable(key):
            raise InvalidArgumentError(f"key: expected a function of keyword arguments, got {key!r:.200}")
        self._key = _session_of if key is None else key
        self._conversations = make_conversations(
            KeyedOptions, options, models=(str, Mapping), asked=_asked, with_tools=False
        )
        self._views: OrderedDict[str, Shown] = OrderedDict()
        """What stands for a view that was sent -> that view, or the smaller one that follows its refusal."""
        self._told: set[str] = set()

    def stats(self, key: str | None = None) -> CompressionStats | None:
        """Return where the newest conversation under a key stands, or the newest of all; None: none is."""
        return self._conversations.stats(key)

    # LiteLLM's hooks

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Return the call's arguments with a view in place of its messages.

        Raises:
            ContextOverflowError: what may not leave the view exceeds the budget.
            InvalidMessageError: a message is malformed.
            InvalidArgumentError: `key` gave neither a string nor None.
        """
        if getattr(call_type, "value", call_type) != _REACHED or _ASKING.get():
            return None
        messages = kwargs.get("messages")
        if not isinstance(messages, list):
            self._tell("position", "messages given by position cannot be exchanged: write messages=...")
            return None
        if (observer := self._conversations.observer) is not None:
            observer.note(lambda: messages, tools=lambda: kwargs.get("tools"))
            return None
        # What was sent comes again where LiteLLM retries by itself; a router begins with the caller's list.
        shown = self._views.get(_digest(messages))
        if shown is None:
            key = await key_of(self._key, kwargs)
            shown = await self._conversations.view(messages, key=key, own=_own(kwargs))
            if not _are_same(shown.messages, messages):
                _remember(self._views, _digest(shown.messages), shown)
        _remember(_CALLS, str(kwargs.get("litellm_call_id")), Request(self._conversations, shown))
        return {**kwargs, "messages": list(shown.messages)}

    async def async_post_call_failure_deployment_hook(
        self,
        request_data: Mapping[str, Any],
        exception: Exception,
        call_type: Any,  # noqa: ARG002
        fallback_depth: int | None = None,  # noqa: ARG002
    ) -> None:
        """Make a smaller view after a refusal as too long, for the attempt that may follow."""
        call = _CALLS.pop(str(request_data.get("litellm_call_id")), None)
        if call is None:
            return
        refused = call.shown
        # LiteLLM decides how often it tries again; each view is smaller than the one before.
        call.shown = replace(refused, refused=False)
        try:
            is_mended = await call.is_mended(exception)
        except Exception as error:  # the refusal is what the caller is to read
            logger.warning("no smaller view after a refusal: %s: %s", type(error).__name__, error)
            return
        if is_mended:
            for sent in (refused.messages, call.shown.messages):
                _remember(self._views, _digest(sent), call.shown)

    async def async_log_success_event(
        self,
        kwargs: Mapping[str, Any],
        response_obj: Any,
        start_time: Any,  # noqa: ARG002
        end_time: Any,  # noqa: ARG002
    ) -> None:
        """Note what the provider counted; LiteLLM's own estimate, where it counted nothing, says nothing."""
        call = _CALLS.pop(str(kwargs.get("litellm_call_id")), None)
        if call is not None and _is_counted(kwargs):
            await call.taken(get(get(response_obj, "usage"), "prompt_tokens"))

    def log_pre_api_call(self, model: Any, messages: Any, kwargs: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Tell once of calls that the hook above does not see."""
        if kwargs.get("call_type") == _SYNCHRONOUS:
            self._tell(
                "sync",
                "LiteLLM's hook is not reached by litellm.completion, nothing is compressed: "
                "await litellm.acompletion, or send what compress_messages returns",
            )

    def _tell(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.warning("%s", text)


def _session_of(kwargs: Mapping[str, Any]) -> str | None:
    """Return the session that a call names."""
    metadata = kwargs.get("metadata")
    named = kwargs.get("litellm_session_id") or (
        metadata.get("session_id") if isinstance(metadata, Mapping) else None
    )
    return named if isinstance(named, str) else None


def _is_counted(kwargs: Mapping[str, Any]) -> bool:
    """Tell whether an answer's usage is the provider's: a stream's is LiteLLM's unless it was asked for."""
    parameters = kwargs.get("optional_params") or {}
    options = kwargs.get("stream_options") or parameters.get("stream_options") or {}
    return not (kwargs.get("stream") or parameters.get("stream")) or bool(options.get("include_usage"))


def _digest(messages: list[Any]) -> str:
    return digest_of(wires_of(messages))


def _are_same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _remember(kept: OrderedDict[str, T], name: str, one: T) -> None:
    kept.pop(name, None)
    kept[name] = one
    while len(kept) > MOST_REQUESTS:
        kept.popitem(last=False)


def _own(kwargs: Mapping[str, Any]) -> Own:
    """Return the model of a call, asked with that call's arguments, past what was to watch over that."""
    kept = {name: value for name, value in kwargs.items() if name not in _OF_CALL and value is not None}
    return Own(str(kwargs.get("model")), _asking(ChatWire().apart(kept), {}))


def _asked(model: str | Mapping[str, Any]) -> AskedModel:
    """Return a summariser that asks a model by its name, or with more arguments for `litellm.acompletion`."""
    arguments = {"model": model} if isinstance(model, str) else dict(model)
    if not isinstance(arguments.get("model"), str):
        raise InvalidArgumentError("summarizer: a dict of arguments needs the name of a model, 'model'")
    return AskedModel(arguments["model"], _asking(arguments, arguments))


def _asking(request: Mapping[str, Any], said: Mapping[str, Any]) -> Ask:
    """Return what asks the model of a call.

    Loggers do not see its calls unless the arguments say `"no-log": False`. Hooks that run before a call find
    a mark in the metadata.

    Args:
        request: the call's arguments.
        said: arguments that were given for summaries, and go before all others.
    """

    async def send(sent: dict[str, Any]) -> Any:
        asking = _ASKING.set(True)
        try:
            marked = {**(said.get("metadata") or {}), "context_compressor": "summary"}
            asked = {"no-log": True, **sent, **said, "stream": False, "metadata": marked}
            return await litellm.acompletion(**{**asked, "messages": sent["messages"]})
        finally:
            _ASKING.reset(asking)

    return asker(ChatWire(), request, send, is_blocking=False)
