"""`DashScopeSummarizer`: summaries by a Qwen model behind DashScope's own API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from context_compressor.errors import SummarizerError
from context_compressor.summarizers.faults import Fault
from context_compressor.summarizers.provider import (
    Answer,
    ProviderSettings,
    ProviderSummarizer,
    as_answer,
)

if TYPE_CHECKING:
    import ssl
    from types import SimpleNamespace

    from aiohttp import ClientSession, TraceRequestExceptionParams
    from dashscope import AioGeneration

_SDK_TIMEOUT_MARGIN_SECONDS = 5.0
"""The SDK's own limit stands behind ours, which ends an attempt without a traceback in the SDK's log."""


class _Client(NamedTuple):
    generation: type[AioGeneration]
    session: ClientSession


class _BrokenError(ConnectionError):
    """Carry a connection that failed or broke."""


class DashScopeSummarizer(ProviderSummarizer):
    """Ask a text model of DashScope (Alibaba Cloud Model Studio) for summaries, by its native API.

    Reasoning is off, since summaries do not need it and DashScope wants such answers streamed; models that
    can only reason are therefore not served. `temperature`, `max_tokens` and `enable_thinking` are sent until
    the server refuses one by name, then left out for as long as this object lives.

    Args:
        model: the model's name.
        extra_parameters: more arguments of the SDK's `AioGeneration.call`, such as `{"workspace": "..."}`.
        settings: `provider.ProviderSettings` tells of each, with its default. `base_url` such as
            `https://dashscope-intl.aliyuncs.com/api/v1`; the environment may say `DASHSCOPE_API_KEY` and
            `DASHSCOPE_HTTP_BASE_URL`.

    Raises:
        SummarizerError: there is no key.
        InvalidArgumentError: an argument is of the wrong type or out of range.
    """

    _key_variable = "DASHSCOPE_API_KEY"

    def __init__(
        self,
        model: str = "qwen-plus",
        *,
        extra_parameters: Mapping[str, Any] | None = None,
        **settings: Unpack[ProviderSettings],
    ) -> None:
        super().__init__(model, **settings)
        if not self._key():
            raise SummarizerError(f"no API key for {model}: pass api_key=..., or set {self._key_variable}")
        self._extra = {"enable_thinking": False, **(extra_parameters or {})}

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[_Client]:
        # In a thread: importing the SDK takes a second, its TLS context some 20 ms.
        generation, context = await asyncio.to_thread(_load_sdk)
        async with _make_session(context) as session:
            yield _Client(generation, session)

    async def _send(self, client: _Client, messages: list[dict[str, str]], parameters: dict[str, Any]) -> Any:
        arguments: dict[str, Any] = {**parameters, **self._extra, "session": client.session}
        if self._base_url is not None:
            arguments["base_address"] = self._base_url
        return await client.generation.call(
            self.model,
            # The SDK reads the environment only when it is imported.
            api_key=self._key(),
            messages=messages,  # type: ignore[arg-type]
            result_format="message",
            request_timeout=self._timeout + _SDK_TIMEOUT_MARGIN_SECONDS,
            **arguments,
        )

    def _parameters(self, room: int, most_tokens: int | None) -> dict[str, Any]:
        parameters = super()._parameters(room, most_tokens)
        if "enable_thinking" in self._extra:
            parameters["enable_thinking"] = self._extra["enable_thinking"]
        return parameters

    def _drop(self, parameter: str) -> bool:
        return super()._drop(parameter) or self._extra.pop(parameter, None) is not None

    def _read(self, answer: Any) -> Answer:
        return read_generation(answer)


def read_generation(answer: Any) -> Answer:
    """Return what an answer of DashScope's own API holds, as the SDK gives it.

    Raises:
        Fault: nothing that could be a summary; the text says what instead.
    """
    if answer.status_code != HTTPStatus.OK:
        code, message = answer.get("code"), answer.get("message")
        text = ": ".join(str(part) for part in (code, message) if part)
        # The SDK finds neither in what another API answers, such as the OpenAI-compatible one.
        text = text or "no error in the form of DashScope's own API: check base_url"
        raise Fault("status", text, answer.status_code, code, None, answer.get("headers"))
    output = answer.get("output") or {}
    choices = output.get("choices")
    try:
        choice = choices[0] if choices else {**output, "message": {"content": output["text"] or None}}
        message, finish_reason = choice["message"], choice["finish_reason"]
        content, refusal = message["content"], message.get("refusal")
        if not choices and content is None:
            raise KeyError("text")
    except (AttributeError, IndexError, KeyError, TypeError):
        raise Fault("empty", f"the answer is no chat completion: {answer!r}") from None
    usage = answer.get("usage") or {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    counts = (usage.get("input_tokens"), usage.get("output_tokens"), cached)
    return as_answer(content, refusal, finish_reason, counts)


def _load_sdk() -> tuple[type[AioGeneration], ssl.SSLContext]:
    from dashscope import AioGeneration
    from dashscope.api_entities.aio_session import get_ssl_context

    return AioGeneration, get_ssl_context()


def _make_session(context: ssl.SSLContext) -> ClientSession:
    """Return a session like the SDK's own, which it would keep open for as long as the event loop lives."""
    from aiohttp import ClientSession, TCPConnector, TraceConfig

    trace = TraceConfig()
    trace.on_request_exception.append(_end_request)
    return ClientSession(connector=TCPConnector(ssl=context), trust_env=True, trace_configs=[trace])


async def _end_request(
    _session: ClientSession, _context: SimpleNamespace, params: TraceRequestExceptionParams
) -> None:
    """Raise a broken connection as something that the SDK does not retry by itself."""
    from aiohttp import ClientConnectionError

    error = params.exception
    if isinstance(error, ClientConnectionError) and not isinstance(error, TimeoutError):
        raise _BrokenError(str(error) or type(error).__name__) from error
