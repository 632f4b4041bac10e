"""What the summarisers that ask a provider's model have in common: attempts, and judging failures.

A subclass says how its SDK connects, sends, fails and answers; nothing here knows an SDK.
"""

from __future__ import annotations

import asyncio
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from context_compressor.errors import SummarizerError, SummarizerOverflowError, SummarizerTimeoutError
from context_compressor.summarizers.attempts import attempts_left, note_failure, paying, take_attempt
from context_compressor.summarizers.cutting import drop_torn_end
from context_compressor.summarizers.keys import KeyGuard
from context_compressor.summarizers.overflow import is_overflow, limit_in, room_in
from context_compressor.summarizers.prompts import build_prompt
from context_compressor.summarizers.protocol import Summary, SummaryRequest
from context_compressor.summarizers.reasoning import strip_reasoning
from context_compressor.summarizers.settings import check_model, check_number, check_whole
from context_compressor.tokens.protocol import TokenCounter

ROOM_FACTOR = 1.5
ROOM_TOKENS = 256
"""The model may write this much more than the summary may cost: its vocabulary is not our counter's, and of a
summary that is too long we want to know how long it is."""
MAX_BACKOFF_SECONDS = 8.0
MAX_RETRY_AFTER_SECONDS = 30.0
"""A server that asks for a longer pause is not asked again: the next means down is quicker."""

_REFUSAL = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not (?:permitted|allowed)"
    r"|extra (?:field|input)|deprecated|invalid|only .{1,20} is allowed|(?:may only|must|should) be"
    r"|非法|不合法|无效|不支持",
    re.IGNORECASE,
)
"""Words enough for any refusal: the refused parameter has to be named, too."""
_PASSING_STATUS = frozenset({408, 409, 429})
_FINAL_CODES = frozenset(
    ("billing_hard_limit_reached", "CommodityNotPurchased", "PrepaidBillOverdue", "PostpaidBillOverdue")
)
"""They come with 429, and no pause mends them. `insufficient_quota` is none of them: DashScope means by it
tokens per minute."""
_WITHHELD = frozenset({"content_filter", "sensitive"})
"""Finish reasons of answers that a filter held back, OpenAI's and GLM's."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why one attempt failed, told alike for every SDK."""

    kind: Literal["timeout", "connection", "status", "unreadable"]
    text: str
    status: int = 0
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] | None = None


class Answer(NamedTuple):
    """What a model wrote."""

    text: str
    finish_reason: str | None
    input_tokens: int
    output_tokens: int


class RefusedError(Exception):
    """Carry a failure that an SDK returns instead of raising it; raised and caught within this package."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"HTTP {fault.status}: {fault.text}")
        self.fault = fault


class NoAnswerError(Exception):
    """Report an answer in which there is nothing to read; raised and caught within this package."""


def answer_room(max_tokens: int) -> int:
    """Return how many tokens a model is given to write a summary of at most `max_tokens`."""
    return math.ceil(ROOM_FACTOR * max_tokens) + ROOM_TOKENS


def _text_of(content: object) -> str:
    """Return the text of a message's content: itself, or its parts without those that hold reasoning."""
    if isinstance(content, list):
        parts = (part for part in content if isinstance(part, Mapping))
        return "".join(str(part.get("text") or "") for part in parts if part.get("type", "text") == "text")
    return content if isinstance(content, str) else ""


def as_answer(
    content: object, refusal: object, finish_reason: str | None, tokens: Sequence[object]
) -> Answer:
    """Return what a model wrote, from the fields of an answer that SDKs call alike.

    Args:
        content: of its message.
        refusal: of its message.
        finish_reason: as the server names it.
        tokens: read and written, as the server says; what is no number is not known.

    Raises:
        NoAnswerError: the model refused, or a filter held the answer back.
    """
    if refusal:
        raise NoAnswerError(f"the model refused: {refusal}")
    if finish_reason in _WITHHELD:
        raise NoAnswerError("the answer was withheld by a content filter")
    read, written = (count if isinstance(count, int) else 0 for count in tokens)
    return Answer(_text_of(content), finish_reason, read, written)


class ProviderSummarizer(ABC):
    """Ask a provider's model for summaries; the base of those that this library brings."""

    remote = True
    takes_attempts = True

    _limit_names: ClassVar[tuple[str, ...]] = ("max_tokens",)
    """By what names the wire bounds an answer, in the order of trying."""

    def __init__(
        self,
        model: str,
        *,
        timeout: float,
        max_retries: int,
        max_input_tokens: int | None,
        temperature: float | None,
        reasoning_tokens: int,
        backoff_seconds: float,
        base_url: str | None = None,
    ) -> None:
        check_model(model, base_url)
        check_number("timeout", timeout, is_above_zero=True)
        check_whole("max_retries", max_retries, 0)
        if max_input_tokens is not None:
            check_whole("max_input_tokens", max_input_tokens, 1)
        if temperature is not None:
            check_number("temperature", temperature)
        check_whole("reasoning_tokens", reasoning_tokens, 0)
        check_number("backoff_seconds", backoff_seconds)
        self.model = model
        self.counter: TokenCounter | None = None
        """Whose tokens a request's `max_tokens` are; a memory puts its own here. Estimated when None."""
        self._base_url = base_url
        self.max_input_tokens = max_input_tokens
        self._timeout = timeout
        self._max_retries = max_retries
        self._temperature = temperature
        self._reasoning_tokens = reasoning_tokens
        self._backoff_seconds = backoff_seconds
        self._limits = list(self._limit_names)
        self._max_room: int | None = None
        self._reasons = False
        self._sleep = asyncio.sleep

    async def summarize(self, request: SummaryRequest) -> Summary:
        """Return the model's summary of `request.messages`, with the tokens that the server reports.

        Raises:
            SummarizerOverflowError: the request is longer than the model reads; never tried again.
            SummarizerTimeoutError: no attempt was answered in time.
            SummarizerError: no attempt gave a summary; the text names the model and the cause, never the key.
        """
        messages = build_prompt(request, self.counter).messages()
        room = answer_room(request.max_tokens)
        with paying(self) as paid:
            async with self._connected() as client:
                while True:
                    had_room = self._reasons
                    answer = await self._complete(client, messages, room)
                    paid.add(answer.input_tokens, answer.output_tokens)
                    text, finish_reason = answer.text, answer.finish_reason
                    if finish_reason != "length" or had_room or strip_reasoning(text):
                        break
                    self._reasons = True
            if not strip_reasoning(text):
                hint = "; it reasoned to the end: raise reasoning_tokens" if finish_reason == "length" else ""
                raise self._error(f"the answer holds no text (finish_reason {finish_reason!r}){hint}")
        if finish_reason == "length":
            text = drop_torn_end(text)
        return Summary(text=text, input_tokens=paid.input_tokens, output_tokens=paid.output_tokens)

    # What a subclass says

    @abstractmethod
    def _connected(self) -> AbstractAsyncContextManager[Any]:
        """Return what yields a client for one call of `summarize`, and closes it."""

    @abstractmethod
    async def _send(self, client: Any, messages: list[dict[str, str]], parameters: dict[str, Any]) -> Any:
        """Send one request and return the SDK's answer; whatever it raises is asked of `_fault`."""

    @abstractmethod
    def _fault(self, error: Exception) -> Fault:
        """Return what an exception of `_send` means."""

    @abstractmethod
    def _read(self, answer: Any) -> Answer:
        """Return what the SDK's answer holds. SDKs do not check what servers send.

        Raises:
            NoAnswerError: nothing that could be a summary; the text says what instead.
        """

    @abstractmethod
    def _keys(self) -> list[object]:
        """Return the keys that must not be shown."""

    # Attempts

    async def _complete(self, client: Any, messages: list[dict[str, str]], room: int) -> Answer:
        """Return the model's answer, after as many attempts as it takes and may take."""
        attempts = 0
        while True:
            attempts += 1
            try:
                answer = await self._attempt(client, messages, room)
                break
            except SummarizerError:
                raise
            except Exception as error:
                failure, pause = self._judge(self._fault(error), attempts)
                note_failure(failure)
                # The SDKs' exceptions may quote the key: servers and HTTP libraries do.
                cause = None if self._guard().shows(error) else error
            if pause is None or attempts > self._max_retries or attempts_left() == 0:
                raise failure from cause
            await self._sleep(pause)
            if attempts_left() == 0:  # others took the last ones meanwhile
                raise failure from cause
        try:
            return self._read(answer)
        except NoAnswerError as error:
            problem = str(error)
        raise self._overflow(problem) if is_overflow(200, None, problem) else self._error(problem)

    async def _attempt(self, client: Any, messages: list[dict[str, str]], room: int) -> Any:
        while True:
            take_attempt()
            parameters = self._parameters(room)
            try:
                # The SDKs' own timeouts start anew with every byte read.
                async with asyncio.timeout(self._timeout):
                    return await self._send(client, messages, parameters)
            except Exception as error:
                if not self._adapt(self._fault(error), parameters):
                    raise

    def _parameters(self, room: int) -> dict[str, Any]:
        parameters: dict[str, Any] = {}
        if self._limits:
            tokens = room + (self._reasoning_tokens if self._reasons else 0)
            parameters[self._limits[0]] = tokens if self._max_room is None else min(tokens, self._max_room)
        if self._temperature is not None:
            parameters["temperature"] = self._temperature
        return parameters

    def _adapt(self, fault: Fault, parameters: Mapping[str, Any]) -> bool:
        """Drop, replace or lower the parameter that the server refuses; tell whether there was one."""
        if fault.status not in (400, 422):
            return False
        room = room_in(fault.text)
        if room is not None and self._limits and 0 < room < parameters[self._limits[0]]:
            self._max_room = room
            return True
        is_too_long = is_overflow(fault.status, fault.code, fault.text)
        if is_too_long or not _REFUSAL.search(f"{fault.code} {fault.text}"):
            return False
        refused = fault.param if fault.param in parameters else None
        for name in parameters:
            # A message may also name what to use instead; that was not sent.
            if refused is None and re.search(rf"\b{name}\b", fault.text, re.ASCII | re.IGNORECASE):
                refused = name
        return refused is not None and self._drop(refused)

    def _drop(self, parameter: str) -> bool:
        """Do without a parameter from now on; tell whether that is possible."""
        if parameter == "temperature":
            self._temperature = None
        elif self._limits and parameter == self._limits[0]:
            del self._limits[0]
            self._reasons = self._reasons or bool(self._limits)
        else:
            return False
        return True

    def _judge(self, fault: Fault, attempts: int) -> tuple[SummarizerError, float | None]:
        """Return what to raise for a failed attempt, and the pause after which to try again, if any."""
        pause = min(self._backoff_seconds * 2 ** (attempts - 1), MAX_BACKOFF_SECONDS)
        times = "" if attempts == 1 else f" (attempt {attempts})"
        if fault.kind == "timeout":
            text = self._text(f"no answer within {self._timeout} seconds{times}")
            return SummarizerTimeoutError(text), pause
        if fault.kind == "connection":
            return self._error(f"connection failed{times}: {fault.text}"), pause
        if fault.kind == "unreadable":
            return self._error(f"the answer could not be read: {fault.text}"), None
        text = f"HTTP {fault.status}{times}: {fault.text}"
        if is_overflow(fault.status, fault.code, fault.text):
            return self._overflow(text), None
        failure = self._error(text)
        is_passing = fault.status in _PASSING_STATUS or fault.status >= 500
        if not is_passing or fault.code in _FINAL_CODES:
            return failure, None
        asked = _retry_after(fault.headers or {})
        if asked is not None:
            pause = asked
        return failure, pause if pause <= MAX_RETRY_AFTER_SECONDS else None

    # Errors

    def _error(self, problem: str) -> SummarizerError:
        return SummarizerError(self._text(problem))

    def _overflow(self, problem: str) -> SummarizerOverflowError:
        return SummarizerOverflowError(self._text(problem), limit_tokens=limit_in(problem))

    def _text(self, problem: str) -> str:
        return f"{self.model}: {self._guard().hide(' '.join(problem.split()))[:400]}"

    def _guard(self) -> KeyGuard:
        return KeyGuard(self._keys())


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait, or None when it does not say, or says a date."""
    values = {name.lower(): value for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(values[name]) * unit
        except (KeyError, ValueError):
            continue
        return seconds if 0 <= seconds < math.inf else None
    return None
