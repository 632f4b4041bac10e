"""A framework's own model as summariser: asked through the framework."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from context_compressor.errors import InvalidArgumentError
from context_compressor.summarizers.faults import Fault, fault_of
from context_compressor.summarizers.protocol import Summarizer, check_summarizer
from context_compressor.summarizers.provider import Answer, ProviderSummarizer, as_answer


class Said(NamedTuple):
    """What a model answered."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str | None = None


Ask = Callable[[str, str], Awaitable[Said]]
"""Asks a model, given what instructs it and what it is to answer."""


class AskedModel(ProviderSummarizer):
    """Ask a model of a framework for summaries. Retries are the framework's own.

    Args:
        name: what errors call the model.
        ask: asks it.
        timeout: seconds for one request, retries included.
    """

    _limit_names = ()

    def __init__(self, name: str, ask: Ask, *, timeout: float = 120.0) -> None:
        super().__init__(name, timeout=timeout, max_retries=0, temperature=None, reasoning_tokens=0)
        self._ask = ask

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Ask]:
        yield self._ask

    async def _send(self, client: Ask, messages: list[dict[str, str]], parameters: dict[str, Any]) -> Any:  # noqa: ARG002
        instructions = "\n\n".join(one["content"] for one in messages if one["role"] == "system")
        asked = "\n\n".join(one["content"] for one in messages if one["role"] != "system")
        return await client(instructions, asked)

    def _fault(self, error: Exception) -> Fault:
        return fault_of(error) or Fault("unreadable", f"{type(error).__name__}: {error}")

    def _read(self, answer: Said) -> Answer:
        return as_answer(answer.text, None, answer.finish_reason, (answer.input_tokens, answer.output_tokens))

    def _keys(self) -> list[object]:
        return []


def name_of(model: object) -> str:
    """Return a key for a framework's model: its class, name and address, as far as it has them."""
    said = (getattr(model, name, None) for name in ("model_name", "model", "base_url", "openai_api_base"))
    return " ".join([type(model).__name__, *(str(one) for one in said if one)])


def check_tools(tools: object) -> bool:
    """Return whether an adapter is to offer read-back tools.

    Raises:
        InvalidArgumentError: it is neither True nor False.
    """
    if not isinstance(tools, bool):
        raise InvalidArgumentError(f"tools: expected True or False, got {tools!r:.200}")
    return tools


def as_summarizer(
    summarizer: Any, model_class: type[Any] | tuple[type[Any], ...], asked: Callable[[Any], AskedModel]
) -> Summarizer | None:
    """Return what was given as `summarizer=`: a summariser as it is, a framework's model as one that asks it.

    Raises:
        InvalidArgumentError: neither.
    """
    if isinstance(summarizer, model_class):
        return asked(summarizer)
    if summarizer is None or callable(getattr(summarizer, "summarize", None)):
        found: Summarizer | None = summarizer
        return found
    if isinstance(summarizer, str):
        check_summarizer("summarizer", summarizer)
    raise InvalidArgumentError(
        f"summarizer: expected a summariser or a model of the framework's, got {type(summarizer).__name__}"
    )
