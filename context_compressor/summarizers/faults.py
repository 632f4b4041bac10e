"""Why a provider did not answer, read alike from what every server says and every SDK raises."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from context_compressor.errors import InvalidArgumentError

_CODES = frozenset({"context_length_exceeded", "context_window_exceeded", "exceed_context_size_error"})
_STATUS = frozenset({200, 400, 413, 422, 500})
"""Others say what else is wrong; 429 speaks of tokens per minute. Some servers put errors into a 200."""
_WHAT = (
    r"(?:(?<!output )(?<!completion )tokens?\b|\bprompt\b|\binputs?\b(?! image| validation)"
    r"|\btext (?:bytes|characters)|\bcontext\b|上下文|输入(?!图))"
)
"""What is too long: not an image, not what an answer may take, no field of a request."""
_EXCESS = (
    r"(?:exceed|too (?:long|large|many)|\bmax|limit\b|only supports|<=|less than \d+ tokens|range of"
    r"|超过|超出|过长|超长)"
)
_TEXT = re.compile(
    rf"{_WHAT}[^\n]{{0,80}}?{_EXCESS}|{_EXCESS}[^\n]{{0,40}}?{_WHAT}"
    r"|context[ _](?:length|window|size)|reduce the length|request(?: is)? too (?:long|large)",
    re.IGNORECASE,
)
_NO_LENGTH = re.compile(r"'[\w.\[\]]{1,80}'|\bmax_(?:completion_|output_|new_)?tokens\b")
"""Names of fields: what is said of one is not said of the prompt."""
_RATE = re.compile(r"\bper (?:min|hour|day)|\brate\b|\bwait\b|throttl|quota", re.IGNORECASE)
_NUMBER = r"(\d[\d,]{0,14}+)(?![\dk>]| \+)"
"""Python reads no number of thousands of digits, which a broken server may write; `128k` is not 128, `<400>`
is a status, and what is added to something is no limit."""
_LINK = (
    r"(?:[ _:]+(?:allowed|number|of|is|only|up|to|tokens?|input|prompt|model|context|length|len|window|size"
    r"|seq|sequence))*"
)
# In parentheses behind `limit` it may be the error's own number (MiniMax).
_LIMIT = re.compile(
    r"(?:context|max(?:imum)?|limit(?! \()|exceeds?|supports|than|[<>]=?|\[\s*\d+\s*,)"
    rf"{_LINK}[\s:(`]*{_NUMBER}|{_NUMBER} maximum",
    re.IGNORECASE,
)
_NO_TOKENS = re.compile(r"\bbytes\b|\bcharacters\b", re.IGNORECASE)
_ROOM = re.compile(
    r"max_(?:completion_)?tokens\b.{0,100}?(?:\[\s*\d+\s*,|equal to|at most|<=|: \d+ >) ?\W?(\d{1,12})"
    r"|at most (\d{1,12}) completion tokens",
    re.IGNORECASE | re.ASCII,  # a name may stand between Chinese characters
)
_MIN_LIMIT = 16


def says_overflow(status: int, code: str | None, text: str) -> bool:
    """Tell whether an answer with this HTTP status, error code and text says that the prompt was too long."""
    if code in _CODES or status == 413:
        return True
    if status not in _STATUS or _RATE.search(text) or _ROOM.search(text):
        return False  # what says that an answer may not be so long may name the context window, too
    return _TEXT.search(_NO_LENGTH.sub("", text)) is not None


def limit_said(text: str) -> int | None:
    """Return how many tokens the model reads, as an error text says, or None when it does not."""
    if _NO_TOKENS.search(text) and "token" not in text:
        return None
    numbers = (int((match[1] or match[2]).replace(",", "")) for match in _LIMIT.finditer(text))
    return next((tokens for tokens in numbers if tokens >= _MIN_LIMIT), None)


def room_in(text: str) -> int | None:
    """Return how many tokens an answer may be given, as an error text says, or None when it does not."""
    match = _ROOM.search(text)
    return int(match[match.lastindex or 0]) if match else None


@dataclass(eq=False, repr=False)
class Fault(Exception):
    """Why one attempt failed, told alike for every SDK; raised and caught within this package."""

    kind: Literal["timeout", "connection", "status", "unreadable", "empty"]
    """`empty`: an answer in which there is nothing to read."""
    text: str
    status: int = 0
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] | None = None

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.text}" if self.kind == "status" else self.text


def is_overflow(error: BaseException | str) -> bool:
    """Tell whether a provider refused a request as too long for the model.

    Args:
        error: what its SDK raised, whatever wraps it, or the text of the error.

    Raises:
        InvalidArgumentError: neither an exception nor a text.
    """
    fault = _checked(error)
    return fault is not None and says_overflow(fault.status or 200, fault.code, fault.text)


def refuses_tools(error: BaseException | str) -> bool:
    """Tell whether an error is about the request itself, and speaks of tools.

    Providers and SDKs have words of their own for it. The word is looked for in the text, in the name of the
    field and in the code. A class without tools raises `NotImplementedError`.
    """
    fault = _checked(error)
    if fault is None:
        return False
    is_of_request = fault.kind == "unreadable" or fault.status in _OF_REQUEST
    said = (fault.text, fault.param or "", fault.code or "")
    return is_of_request and (isinstance(error, NotImplementedError) or any(map(_TOOLS.search, said)))


def refuses_request(error: BaseException | str) -> bool:
    """Tell whether a provider refused what a request says, and not for its length."""
    fault = _checked(error)
    is_refusal = fault is not None and fault.status in _OF_REQUEST - {200}
    return is_refusal and not is_overflow(error)


_OF_REQUEST = frozenset({200, 400, 404, 405, 406, 413, 415, 422, 501})
"""Statuses that speak of the request itself, not of who asks, how often, or of trouble at the provider. 200
is an error within a stream."""
_TOOLS = re.compile(r"(?<![a-z])(?i:tool|function)s?(?![a-z])")
"""Finds the word in prose, in `tool_choice` and in `functionDeclarations`."""


def limit_in(error: BaseException | str) -> int | None:
    """Return how many tokens the model reads, as such an error says, or None when it does not.

    Raises:
        InvalidArgumentError: neither an exception nor a text.
    """
    fault = _checked(error)
    return None if fault is None else limit_said(fault.text)


def _checked(error: object) -> Fault | None:
    if isinstance(error, str):
        return Fault("status", error, 400)
    if isinstance(error, BaseException):
        return fault_of(error) or Fault("unreadable", str(error), 400)
    raise InvalidArgumentError(f"error: expected an exception or its text, got {type(error).__name__}")


def fault_of(error: BaseException) -> Fault | None:
    """Return what an exception means, or one that led to it; None where none of them says anything."""
    found = (fault for cause in causes_of(error) if (fault := _fault_in(cause)) is not None)
    return next(found, None)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that led to it, the nearest first."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    for current in waiting:
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            yield current
            waiting += [current.__cause__, current.__context__]
            waiting += current.exceptions if isinstance(current, BaseExceptionGroup) else ()


def _fault_in(error: BaseException) -> Fault | None:
    """Return what an exception of any provider's SDK means, or None where it says nothing.

    The SDKs call the HTTP status `status_code` (OpenAI, Anthropic, Ollama), `code` (Gemini) or `status`
    (aiohttp). What DashScope refuses, AgentScope raises as a `RuntimeError` that shows the response.
    """
    fields = getattr(error, "__dict__", {})
    if isinstance(error, RuntimeError) and (shown := _shown_response(str(error))):
        fields = shown
    text = str(fields.get("message") or fields.get("error") or error) or type(error).__name__
    text = _with_body(text, fields.get("body"))
    code, param = fields.get("code"), fields.get("param")
    named = [fields.get("status_code"), code, fields.get("status")]
    status = next((value for value in named if type(value) is int and 400 <= value < 600), None)
    if status is None and isinstance(fields.get("body"), dict):
        status = 200  # an error in the middle of a stream that had begun well
    if status is not None:
        code, param = (value if isinstance(value, str) else None for value in (code, param))
        return Fault("status", text, status, code, param, getattr(fields.get("response"), "headers", None))
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, TimeoutError) or any("Timeout" in kind for kind in kinds):
        return Fault("timeout", text)
    if isinstance(error, OSError) or kinds & _BROKEN:
        return Fault("connection", str(error.__cause__ or text))
    return None


def _with_body(text: str, body: object) -> str:
    """Return an error's text with its body, where the text has no word of it.

    OpenAI's SDK puts only a `message` into the text; many servers say `detail`, or `error` with a string.
    """
    said = body.get("message") or body if isinstance(body, Mapping) else body
    if not said or str(said) in text:
        return text
    return f"{text} - {said}"[:_MOST_CHARACTERS]


_MOST_CHARACTERS = 4_000
_BROKEN = {"APIConnectionError", "TransportError", "ClientConnectionError", "ClientPayloadError"}
"""Broken connections as OpenAI's and Anthropic's SDKs, httpx and aiohttp call them."""


def _shown_response(text: str) -> dict[str, Any] | None:
    """Return the response that an error text shows as JSON."""
    with suppress(ValueError):
        shown = json.loads(text[text.index("{") :])
        if isinstance(shown, dict) and "status_code" in shown:
            return shown
    return None
