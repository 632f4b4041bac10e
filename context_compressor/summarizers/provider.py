"""What the summarisers that ask a provider's model have in common: attempts, and judging failures.

A subclass says how its SDK connects, sends, fails and answers; nothing here knows an SDK.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple, TypedDict

from context_compressor.errors import (
    InvalidArgumentError,
    SummarizerError,
    SummarizerOverflowError,
    SummarizerTimeoutError,
    check_number,
)
from context_compressor.messages.text import strip_reasoning
from context_compressor.summarizers.bill import Bill, Paid
from context_compressor.summarizers.cut import drop_torn_end
from context_compressor.summarizers.faults import (
    Fault,
    causes_of,
    fault_of,
    limit_said,
    room_in,
    says_overflow,
)
from context_compressor.summarizers.prompts import build_prompt
from context_compressor.summarizers.protocol import Summary, SummaryRequest
from context_compressor.tokens.counter import TokenCounter

ROOM_FACTOR = 1.5
ROOM_TOKENS = 256
"""The model may write this much more than the summary may cost: its vocabulary is not our counter's, and of a
summary that is too long we want to know how long it is."""
MAX_BACKOFF_SECONDS = 8.0
MAX_RETRY_AFTER_SECONDS = 30.0
"""A server that asks for a longer pause is not asked again: the next means down is quicker."""

_REFUSAL = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not (?:permitted|allowed)|invalid|deprecated"
    r"|extra (?:field|input)|only .{1,20} is allowed|(?:may only|must|should) be|非法|不合法|无效|不支持",
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
_KEY = re.compile(r"\bsk-[\w*-]{6,}", re.ASCII)  # Chinese may stand beside it without a blank
_MIN_KEY_CHARS = 6
"""Shorter keys are dummies; hiding "x" would garble every message."""


def _traced() -> AbstractContextManager[Any]:
    """Return a span that sets requests for summaries apart from the agent's own requests in a trace."""
    trace: Any = sys.modules.get("opentelemetry.trace")  # a program that traces has loaded it
    if trace is None:
        return nullcontext()
    span: AbstractContextManager[Any] = trace.get_tracer("context_compressor").start_as_current_span(
        "context_compressor summary", record_exception=False
    )
    return span


class Answer(NamedTuple):
    """What a model wrote."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str | None = None
    """`length`: the answer was cut."""
    cached_tokens: int = 0
    """Of the tokens read, those that came out of the provider's prompt cache."""


class ProviderSettings(TypedDict, total=False):
    """What the summarisers of providers take alike, by name; what is left out has its default."""

    base_url: str | None
    """Of the server; the SDK's default, or what its environment variable says, when None."""
    api_key: str | None
    """The SDK's environment variable is read when None."""
    timeout: float
    """Seconds for one attempt, from first byte sent to last byte read; 60 by default."""
    max_retries: int
    """Attempts after the first; 2 by default."""
    max_input_tokens: int | None
    """How much the model reads; a longer request is summarised in parts. None: not known, so that a request
    is split only after the server has refused it."""
    temperature: float | None
    """0 by default; None leaves it to the model."""
    reasoning_tokens: int
    """Room for the reasoning of models that reason; 4,096 by default."""
    backoff_seconds: float
    """The pause before the first retry, 0.5 by default; each further one is twice as long, up to 8."""


def answer_room(max_tokens: int) -> int:
    """Return how many tokens a model is given to write a summary of at most `max_tokens`."""
    return math.ceil(ROOM_FACTOR * max_tokens) + ROOM_TOKENS


def as_answer(
    content: object, refusal: object, finish_reason: str | None, tokens: Sequence[object]
) -> Answer:
    """Return what a model wrote, from the fields of an answer that SDKs call alike.

    `tokens`: those read and written, and where it is known those that were cached.

    Raises:
        Fault: the model refused, or a filter held the answer back.
    """
    if refusal:
        raise Fault("empty", f"the model refused: {refusal}")
    if finish_reason in _WITHHELD:
        raise Fault("empty", "the answer was withheld by a content filter")
    if isinstance(content, list):  # others of its parts hold reasoning
        parts = (part for part in content if isinstance(part, Mapping) and part.get("type", "text") == "text")
        content = "".join(str(part.get("text") or "") for part in parts)
    read, written, *cached = (given if isinstance(given, int) else 0 for given in tokens)
    return Answer(content if isinstance(content, str) else "", read, written, finish_reason, *cached)


class ProviderSummarizer(ABC):
    """Ask a provider's model for summaries; the base of those that this library brings.

    Retries happen here and nowhere else (an SDK's own are off): after 408, 409, 429, 5xx, broken connections
    and timeouts, with exponential backoff, or after the pause that `Retry-After` asks for.

    Raises:
        InvalidArgumentError: an argument is of the wrong type or out of range.
    """

    remote = True
    writes_edits = True

    _limit_names: ClassVar[tuple[str, ...]] = ("max_tokens",)
    _key_variable: ClassVar[str] = ""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 2,
        max_input_tokens: int | None = None,
        temperature: float | None = 0.0,
        reasoning_tokens: int = 4_096,
        backoff_seconds: float = 0.5,
    ) -> None:
        # Later a wrong one would fail at every event, and the extractive summariser would step in each time.
        if not isinstance(model, str) or not model.strip():
            raise InvalidArgumentError(f"model: expected the name of a model, got {model!r:.200}")
        if base_url is not None and not str(base_url).lower().startswith(("http://", "https://")):
            raise InvalidArgumentError(
                f"base_url: expected an address that begins with http:// or https://, got {base_url!r:.200}"
            )
        check_number("timeout", timeout, is_above=True)
        check_number("max_retries", max_retries, is_whole=True)
        if max_input_tokens is not None:
            check_number("max_input_tokens", max_input_tokens, 1, is_whole=True)
        if temperature is not None:
            check_number("temperature", temperature)
        check_number("reasoning_tokens", reasoning_tokens, is_whole=True)
        check_number("backoff_seconds", backoff_seconds)
        self.model = model
        self.counter: TokenCounter | None = None
        """Whose tokens a request's `max_tokens` are; a memory puts its own here. Estimated when None."""
        self._base_url = base_url
        self._given_key = api_key
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
        room, most = answer_room(request.max_tokens), request.answer_tokens
        # Where not even the answer has room the provider says so, and the material is cut into pieces.
        most = None if most is None else max(room, most)
        messages = build_prompt(request, self.counter).messages()
        return await self.write(messages, room, request.bill, most)

    async def write(
        self, messages: list[dict[str, str]], room: int, bill: Bill, most_tokens: int | None = None
    ) -> Summary:
        """Return what the model answers to these messages in at most `room` tokens, what it reasons beside.

        Args:
            messages: as the API takes them.
            room: tokens of the answer.
            bill: what is sent.
            most_tokens: what the model's window leaves for both; None: not known.

        Raises: as `summarize`.
        """
        with bill.paying() as paid:
            async with self._connected() as client:
                had_room = self._reasons
                answer = await self._complete(client, messages, room, most_tokens, bill, paid)
                is_cut = answer.finish_reason == "length"
                if is_cut and not had_room and not strip_reasoning(answer.text):
                    self._reasons = True
                    answer = await self._complete(client, messages, room, most_tokens, bill, paid)
                    is_cut = answer.finish_reason == "length"
            if not strip_reasoning(answer.text):
                hint = "; it reasoned to the end: raise reasoning_tokens" if is_cut else ""
                raise self._error(f"the answer holds no text (finish_reason {answer.finish_reason!r}){hint}")
        text = drop_torn_end(answer.text) if is_cut else answer.text
        return Summary(text, paid.input_tokens, paid.output_tokens, answer.cached_tokens)

    async def aclose(self) -> None:  # noqa: B027  # most subclasses have nothing to close
        """Do nothing: what a call opens is closed after it, and a client of yours is not ours to close."""

    # What a subclass says

    @abstractmethod
    def _connected(self) -> AbstractAsyncContextManager[Any]:
        """Return what yields a client for one call of `summarize`, and closes it."""

    @abstractmethod
    async def _send(self, client: Any, messages: list[dict[str, str]], parameters: dict[str, Any]) -> Any:
        """Send one request and return the SDK's answer; what it raises is asked of `_fault`."""

    def _fault(self, error: Exception) -> Fault:
        """Return what an exception of `_send` means."""
        return fault_of(error) or Fault("unreadable", f"{type(error).__name__}: {error}")

    @abstractmethod
    def _read(self, answer: Any) -> Answer:
        """Return what the SDK's answer holds. SDKs do not check what servers send.

        Raises:
            Fault: nothing that could be a summary; the text says what instead.
        """

    def _keys(self) -> list[object]:
        """Return the keys that must not be shown."""
        return [self._given_key, self._key()]

    # Attempts

    def _key(self) -> str | None:
        return self._given_key or os.environ.get(self._key_variable)

    async def _complete(
        self,
        client: Any,
        messages: list[dict[str, str]],
        room: int,
        most_tokens: int | None,
        bill: Bill,
        paid: Paid,
    ) -> Answer:
        """Return the model's answer, after as many attempts as it takes and may take."""
        failures = 0
        while True:
            bill.take()
            parameters = self._parameters(room, most_tokens)
            try:
                # The SDKs' own timeouts start anew with every byte read.
                with _traced():
                    async with asyncio.timeout(self._timeout):
                        sent = await self._send(client, messages, parameters)
                answer = self._read(sent)
            except Exception as error:
                fault = error if isinstance(error, Fault) else self._fault(error)
                if self._adapt(fault, parameters):
                    continue
                failures += 1
                failure, pause = self._judge(fault, failures)
                bill.failure = str(failure)
                # The SDKs' exceptions may quote the key: servers and HTTP libraries do.
                cause = None if self._shows_key(error) else error
            else:
                paid.add(answer.input_tokens, answer.output_tokens)
                return answer
            if pause is None or failures > self._max_retries or not bill.left:
                raise failure from cause
            await self._sleep(pause)

    def _parameters(self, room: int, most_tokens: int | None) -> dict[str, Any]:
        parameters: dict[str, Any] = {}
        if self._limits:
            tokens = room + (self._reasoning_tokens if self._reasons else 0)
            bounds = [one for one in (most_tokens, self._max_room) if one is not None]
            parameters[self._limits[0]] = max(1, min([tokens, *bounds]))
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
        is_too_long = says_overflow(fault.status, fault.code, fault.text)
        if is_too_long or not _REFUSAL.search(f"{fault.code} {fault.text}"):
            return False
        # A message may also name what to use instead; that was not sent.
        named = [name for name in parameters if name == fault.param] or [
            name for name in parameters if re.search(rf"\b{name}\b", fault.text, re.ASCII | re.IGNORECASE)
        ]
        return bool(named) and self._drop(named[0])

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

    def _judge(self, fault: Fault, failures: int) -> tuple[SummarizerError, float | None]:
        """Return what to raise for a failed attempt, and the pause after which to try again, if any."""
        pause = min(self._backoff_seconds * 2 ** (failures - 1), MAX_BACKOFF_SECONDS)
        times = "" if failures == 1 else f" (attempt {failures})"
        if fault.kind == "timeout":
            text = self._text(f"no answer within {self._timeout} seconds{times}")
            return SummarizerTimeoutError(text), pause
        if fault.kind == "connection":
            return self._error(f"connection failed{times}: {fault.text}"), pause
        if fault.kind == "unreadable":
            return self._error(f"the answer could not be read: {fault.text}"), None
        text = fault.text if fault.kind == "empty" else f"HTTP {fault.status}{times}: {fault.text}"
        # Some servers put their errors into a 200.
        if says_overflow(fault.status or 200, fault.code, fault.text):
            return SummarizerOverflowError(self._text(text), limit_tokens=limit_said(text)), None
        is_passing = fault.status in _PASSING_STATUS or fault.status >= 500
        asked = _retry_after(fault.headers or {})
        pause = pause if asked is None else asked
        may_pass = is_passing and fault.code not in _FINAL_CODES and pause <= MAX_RETRY_AFTER_SECONDS
        return self._error(text), pause if may_pass else None

    # Errors

    def _error(self, problem: str) -> SummarizerError:
        return SummarizerError(self._text(problem))

    def _text(self, problem: str) -> str:
        text = " ".join(problem.split())
        for key in self._known_keys():
            text = text.replace(key, "***")
        return f"{self.model}: {_KEY.sub('***', text)[:400]}"

    def _shows_key(self, error: BaseException) -> bool:
        """Tell whether an exception, or one that led to it, holds a key in its text or its repr."""
        texts = (f"{one} {one!r} {getattr(one, '__notes__', '')}" for one in causes_of(error))
        return any(_KEY.search(text) or any(key in text for key in self._known_keys()) for text in texts)

    def _known_keys(self) -> list[str]:
        stripped = (key.strip() for key in self._keys() if isinstance(key, str))
        return [key for key in stripped if len(key) >= _MIN_KEY_CHARS]


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
