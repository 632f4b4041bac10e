"""`OpenAISummarizer`: summaries by a model behind an OpenAI-compatible API."""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from context_compressor.errors import SummarizerError, SummarizerTimeoutError
from context_compressor.summarizers.cutting import drop_torn_end
from context_compressor.summarizers.prompts import build_prompt
from context_compressor.summarizers.protocol import Summary, SummaryRequest
from context_compressor.summarizers.validation import strip_reasoning

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

ROOM_FACTOR = 1.5
ROOM_TOKENS = 256
"""The model may write this much more than the summary may cost: its vocabulary is not our counter's, and of a
summary that is too long we want to know how long it is."""
MAX_BACKOFF_SECONDS = 8.0
MAX_RETRY_AFTER_SECONDS = 30.0
"""A server that asks for a longer pause is not asked again: the next means down is quicker."""

_UNSUPPORTED = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not (?:permitted|allowed)"
    r"|extra (?:field|input)",
    re.IGNORECASE,
)
_PASSING_STATUS = frozenset({408, 409, 429})
_FINAL_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""They come with 429, and no pause mends them."""
_KEY = re.compile(r"\bsk-[\w*-]{6,}")
_MIN_KEY_CHARS = 6
"""Shorter keys are dummies; hiding "x" would garble every message."""


class OpenAISummarizer:
    """Ask a chat-completions model for summaries.

    One rule covers the parameters in which servers differ: `max_tokens`, which most understand, and
    `temperature` are sent until a server refuses one by name; then `max_completion_tokens` instead, or none,
    for as long as this object lives. Servers that refuse `max_tokens` do so for reasoning models, so
    `reasoning_tokens` are added to the limit from then on, and also once an answer had room for nothing but
    reasoning.

    Retries happen here and nowhere else (the SDK's are off): after 408, 409, 429, 5xx, broken connections and
    timeouts, with exponential backoff, or after the pause that `Retry-After` asks for. A client of our own
    lives for one call, so one object serves any number of event loops and leaves nothing open.

    Args:
        model: the model's name.
        base_url: of the server; the SDK's default, or `OPENAI_BASE_URL`, when None.
        api_key: `OPENAI_API_KEY` when None.
        client: an `AsyncOpenAI` of yours, used with its own settings but its retries, and never closed here.
        timeout: seconds for one attempt, from first byte sent to last byte read.
        max_retries: attempts after the first.
        temperature: None leaves it to the model.
        reasoning_tokens: room for the reasoning of models that reason.
        extra_body: more fields for the request, such as `{"enable_thinking": False}`.
        backoff_seconds: the pause before the first retry; each further one is twice as long, up to 8 seconds.

    Raises:
        SummarizerError: there is neither a client nor a key.
    """

    remote = True

    def __init__(
        self,
        model: str = "gpt-4o-mini",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: AsyncOpenAI | None = None,
        timeout: float = 60.0,
        max_retries: int = 2,
        temperature: float | None = 0.0,
        reasoning_tokens: int = 4_096,
        extra_body: Mapping[str, Any] | None = None,
        backoff_seconds: float = 0.5,
    ) -> None:
        if client is None and not (api_key or os.environ.get("OPENAI_API_KEY")):
            raise SummarizerError(
                f"no API key for {model}: pass api_key=..., or client=..., or set OPENAI_API_KEY; "
                "for a local server that asks for none, any text will do"
            )
        self.model = model
        self._base_url = base_url
        self._api_key = api_key
        self._client = client
        self._timeout = timeout
        self._max_retries = max_retries
        self._temperature = temperature
        self._reasoning_tokens = reasoning_tokens
        self._extra_body = dict(extra_body) if extra_body else None
        self._backoff_seconds = backoff_seconds
        self._limit_name: str | None = "max_tokens"
        self._reasons = False
        self._sleep = asyncio.sleep

    async def summarize(self, request: SummaryRequest) -> Summary:
        """Return the model's summary of `request.messages`, with the tokens that the server reports.

        Raises:
            SummarizerTimeoutError: no attempt was answered in time.
            SummarizerError: no attempt gave a summary; the text names the model and the cause, never the key.
        """
        messages = build_prompt(request).messages()
        room = math.ceil(ROOM_FACTOR * request.max_tokens) + ROOM_TOKENS
        read = written = 0
        async with self._connected() as client:
            while True:
                had_room = self._reasons
                completion = await self._complete(client, messages, room)
                text, finish_reason = self._read(completion)
                more_read, more_written = _usage(completion)
                read, written = read + more_read, written + more_written
                if finish_reason != "length" or had_room or strip_reasoning(text):
                    break
                self._reasons = True
        if not strip_reasoning(text):
            hint = "; it reasoned to the end: raise reasoning_tokens" if finish_reason == "length" else ""
            raise self._error(f"the answer holds no text (finish_reason {finish_reason!r}){hint}")
        if finish_reason == "length":
            text = drop_torn_end(text)
        return Summary(text=text, input_tokens=read, output_tokens=written)

    async def aclose(self) -> None:
        """Do nothing: a client of our own is closed after each call, and yours is not ours to close."""

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncOpenAI]:
        if self._client is not None:
            yield self._client.with_options(max_retries=0)
            return
        # In a thread: importing the SDK takes most of a second, a client (its TLS context) some 20 ms.
        try:
            client = await asyncio.to_thread(self._make_client)
        except Exception as error:
            cause = None if self._shows_key(error) else error
            raise self._error(f"no client: {type(error).__name__}: {error}") from cause
        try:
            yield client
        finally:
            await client.close()

    def _make_client(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        return AsyncOpenAI(
            api_key=self._api_key, base_url=self._base_url, timeout=self._timeout, max_retries=0
        )

    async def _complete(self, client: AsyncOpenAI, messages: list[dict[str, str]], room: int) -> Any:
        """Return the server's answer, after as many attempts as it takes and may take."""
        attempts = 0
        while True:
            attempts += 1
            try:
                return await self._attempt(client, messages, room)
            except Exception as error:
                failure, pause = self._judge(error, attempts)
                # The SDK's exceptions may quote the key: servers and HTTP libraries do.
                cause = None if self._shows_key(error) else error
            if pause is None or attempts > self._max_retries:
                raise failure from cause
            await self._sleep(pause)

    async def _attempt(self, client: AsyncOpenAI, messages: list[dict[str, str]], room: int) -> Any:
        from openai import BadRequestError, UnprocessableEntityError

        while True:
            parameters = self._parameters(room)
            try:
                # The SDK's own timeout starts anew with every byte read.
                async with asyncio.timeout(self._timeout):
                    return await client.chat.completions.create(
                        model=self.model,
                        messages=messages,  # type: ignore[arg-type]
                        extra_body=self._extra_body,
                        **parameters,
                    )
            except (BadRequestError, UnprocessableEntityError) as error:
                if not self._adapt(error, parameters):
                    raise

    def _parameters(self, room: int) -> dict[str, Any]:
        parameters: dict[str, Any] = {}
        if self._limit_name is not None:
            parameters[self._limit_name] = room + (self._reasoning_tokens if self._reasons else 0)
        if self._temperature is not None:
            parameters["temperature"] = self._temperature
        return parameters

    def _adapt(self, error: APIStatusError, parameters: dict[str, Any]) -> bool:
        """Drop or replace the parameter that the server refuses; tell whether there was one."""
        if not _UNSUPPORTED.search(f"{error.code} {error.message}"):
            return False
        refused = error.param if error.param in parameters else None
        for name in parameters:
            # A message may also name what to use instead; that was not sent.
            if refused is None and re.search(rf"\b{name}\b", error.message):
                refused = name
        if refused == "temperature":
            self._temperature = None
        elif refused == "max_tokens":
            self._limit_name, self._reasons = "max_completion_tokens", True
        elif refused == "max_completion_tokens":
            self._limit_name = None
        return refused is not None

    def _judge(self, error: Exception, attempts: int) -> tuple[SummarizerError, float | None]:
        """Return what to raise for an exception, and the pause after which to try again, if any."""
        from openai import APIConnectionError, APIStatusError, APITimeoutError

        pause = min(self._backoff_seconds * 2 ** (attempts - 1), MAX_BACKOFF_SECONDS)
        times = "" if attempts == 1 else f" (attempt {attempts})"
        if isinstance(error, (TimeoutError, APITimeoutError)):
            text = self._text(f"no answer within {self._timeout} seconds{times}")
            return SummarizerTimeoutError(text), pause
        if isinstance(error, APIConnectionError):
            return self._error(f"connection failed{times}: {error.__cause__ or error}"), pause
        if not isinstance(error, APIStatusError):
            return self._error(f"the answer could not be read: {type(error).__name__}: {error}"), None
        failure = self._error(f"HTTP {error.status_code}{times}: {error.message}")
        passing = error.status_code in _PASSING_STATUS or error.status_code >= 500
        if not passing or error.code in _FINAL_CODES:
            return failure, None
        asked = _retry_after(error)
        if asked is None:
            return failure, pause
        return failure, asked if asked <= MAX_RETRY_AFTER_SECONDS else None

    def _read(self, completion: Any) -> tuple[str, str | None]:
        """Return an answer's text and finish reason. The SDK does not check what servers send."""
        try:
            choice = completion.choices[0]
            message, finish_reason = choice.message, choice.finish_reason
            content, refusal = message.content, getattr(message, "refusal", None)
        except (AttributeError, IndexError, KeyError, TypeError):
            detail = getattr(completion, "error", None) or completion
            raise self._error(f"the answer is no chat completion: {detail!r}") from None
        if refusal:
            raise self._error(f"the model refused: {refusal}")
        if finish_reason == "content_filter":
            raise self._error("the answer was withheld by a content filter")
        return content if isinstance(content, str) else "", finish_reason

    def _error(self, problem: str) -> SummarizerError:
        return SummarizerError(self._text(problem))

    def _text(self, problem: str) -> str:
        for key in self._keys():
            problem = problem.replace(key, "***")
        return f"{self.model}: {_KEY.sub('***', ' '.join(problem.split()))[:400]}"

    def _shows_key(self, error: BaseException | None) -> bool:
        while error is not None:
            text = f"{error} {error!r}"
            if _KEY.search(text) or any(key in text for key in self._keys()):
                return True
            error = error.__cause__ or error.__context__
        return False

    def _keys(self) -> list[str]:
        keys = [self._api_key, os.environ.get("OPENAI_API_KEY"), getattr(self._client, "api_key", None)]
        stripped = (key.strip() for key in keys if isinstance(key, str))
        return [key for key in stripped if len(key) >= _MIN_KEY_CHARS]


def _retry_after(error: APIStatusError) -> float | None:
    """Return the seconds that a response asks to wait, or None when it does not say, or says a date."""
    headers = error.response.headers
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        return seconds if 0 <= seconds < math.inf else None
    return None


def _usage(completion: Any) -> tuple[int, int]:
    usage = getattr(completion, "usage", None)
    counts = (getattr(usage, "prompt_tokens", 0), getattr(usage, "completion_tokens", 0))
    read, written = (count if isinstance(count, int) else 0 for count in counts)
    return read, written
