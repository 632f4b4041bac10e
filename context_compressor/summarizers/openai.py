"""`OpenAISummarizer`: summaries by a model behind an OpenAI-compatible API."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack

from context_compressor.errors import InvalidArgumentError, SummarizerError, check_members
from context_compressor.summarizers.faults import Fault
from context_compressor.summarizers.provider import (
    Answer,
    ProviderSettings,
    ProviderSummarizer,
    as_answer,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_BROKEN_OFF = frozenset({"insufficient_system_resource", "network_error"})
"""Finish reasons of answers that the server could not write to their end, DeepSeek's and GLM's."""


class OpenAISummarizer(ProviderSummarizer):
    """Ask a chat-completions model for summaries.

    One rule covers the parameters in which servers differ: `max_tokens`, which most understand, and
    `temperature` are sent until a server refuses one by name; then `max_completion_tokens` instead, or none,
    for as long as this object lives. Servers that refuse `max_tokens` do so for reasoning models, so
    `reasoning_tokens` are added to the limit from then on, and also once an answer had room for nothing but
    reasoning.

    Args:
        model: the model's name.
        client: an `AsyncOpenAI` of yours, used with its own settings but its retries, and never closed here.
        extra_body: more fields for the request, such as `{"enable_thinking": False}`.
        settings: `provider.ProviderSettings` tells of each, with its default. The environment may say
            `OPENAI_BASE_URL` and `OPENAI_API_KEY`.

    Raises:
        SummarizerError: there is neither a client nor a key.
        InvalidArgumentError: an argument is of the wrong type or out of range, or `client` an `OpenAI`, whose
            calls cannot be awaited.
    """

    _limit_names = ("max_tokens", "max_completion_tokens")
    _key_variable = "OPENAI_API_KEY"

    def __init__(
        self,
        model: str = "gpt-4o-mini",
        *,
        client: AsyncOpenAI | None = None,
        extra_body: Mapping[str, Any] | None = None,
        **settings: Unpack[ProviderSettings],
    ) -> None:
        super().__init__(model, **settings)
        if client is not None:
            check_members("client", client, "an AsyncOpenAI", ("chat", "with_options"))
            sdk = sys.modules.get("openai")  # imported by whoever made a client of it
            if sdk is not None and isinstance(client, sdk.OpenAI):
                raise InvalidArgumentError(
                    f"client: expected an AsyncOpenAI, got {type(client).__name__}; "
                    "make an asynchronous one, with the same arguments"
                )
        elif not self._key():
            raise SummarizerError(
                f"no API key for {model}: pass api_key=..., or client=..., or set OPENAI_API_KEY; "
                "for a local server that asks for none, any text will do"
            )
        self._client = client
        self._extra_body = dict(extra_body) if extra_body else None

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncOpenAI]:
        if self._client is not None:
            yield self._client.with_options(max_retries=0)
            return
        # In a thread: importing the SDK takes most of a second, a client (its TLS context) some 20 ms.
        client: AsyncOpenAI | None = None
        try:
            client = await asyncio.to_thread(self._make_client)
        except Exception as error:
            failure = self._error(f"no client: {type(error).__name__}: {error}")
            cause = None if self._shows_key(error) else error
        if client is None:
            raise failure from cause
        try:
            yield client
        finally:
            await client.close()

    def _make_client(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        return AsyncOpenAI(
            api_key=self._given_key,
            base_url=self._base_url,
            timeout=self._timeout,
            max_retries=0,
            # The one that the SDK makes itself would, when it is given up before it is used, close itself in
            # a task that nobody waits for.
            http_client=DefaultAsyncHttpxClient(),
        )

    async def _send(
        self, client: AsyncOpenAI, messages: list[dict[str, str]], parameters: dict[str, Any]
    ) -> Any:
        return await client.chat.completions.create(
            model=self.model,
            messages=messages,  # type: ignore[arg-type]
            extra_body=self._extra_body,
            **parameters,
        )

    def _read(self, answer: Any) -> Answer:
        return read_completion(answer)

    def _keys(self) -> list[object]:
        return [*super()._keys(), getattr(self._client, "api_key", None)]


def read_completion(answer: Any) -> Answer:
    """Return what a chat completion holds, as the SDK gives it.

    Raises:
        Fault: nothing that could be a summary; the text says what instead.
    """
    if fault := _fault_in(answer):
        raise fault
    try:
        choice = answer.choices[0]
        message, finish_reason = choice.message, choice.finish_reason
        content, refusal = message.content, getattr(message, "refusal", None)
    except (AttributeError, IndexError, KeyError, TypeError):
        detail = getattr(answer, "error", None) or answer
        raise Fault("empty", f"the answer is no chat completion: {detail!r}") from None
    usage = getattr(answer, "usage", None)
    cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", 0)
    counts = (getattr(usage, "prompt_tokens", 0), getattr(usage, "completion_tokens", 0), cached)
    return as_answer(content, refusal, finish_reason, counts)


def _fault_in(answer: Any) -> Fault | None:
    """Return the error that an answer holds although its HTTP status is 200, where it names another status.

    OpenRouter and gateways like it send one when the status has left before the model fails, beside the
    choices or in one. An answer that broke off in the server is an error, too.
    """
    choices = getattr(answer, "choices", None)
    first = choices[0] if isinstance(choices, list) and choices else None
    finish_reason = getattr(first, "finish_reason", None)
    if isinstance(finish_reason, str) and finish_reason in _BROKEN_OFF:
        return Fault("status", f"the answer broke off: {finish_reason}", 503)
    error = getattr(answer, "error", None) or getattr(first, "error", None)
    if not isinstance(error, Mapping):
        return None
    for name in ("code", "status", "status_code"):
        status = str(error.get(name))
        if re.fullmatch(r"[45]\d\d", status):
            kind, parameter = (
                value if isinstance(value, str) else None for value in map(error.get, ("type", "param"))
            )
            return Fault("status", str(error.get("message") or error), int(status), kind, parameter)
    return None
