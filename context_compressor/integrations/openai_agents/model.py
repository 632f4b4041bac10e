"""A model of the SDK's with what a filter cannot do: learn from usage, and ask once more after a refusal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from agents import Model, ModelResponse, ModelSettings, ModelTracing
from agents.items import ItemHelpers, TResponseInputItem, TResponseStreamEvent
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from openai.types.responses import ResponseOutputMessage

from context_compressor.integrations.asked import AskedModel, Said
from context_compressor.integrations.conversations import Conversations
from context_compressor.integrations.openai_agents.turns import Turn, current

Items = list[TResponseInputItem]

_BEGINNING = frozenset({"response.created", "response.in_progress", "response.queued"})
"""Events after which a stream may begin once more, as the SDK's own retries have it."""
_FAILED = frozenset({"response.failed", "error", "response.error"})


class CompressedModel(Model):
    """Wrap a model: the adapter learns what the provider counts, and a refusal as too long is answered.

    After such a refusal the request is sent once more with a smaller view. Requests that the adapter's filter
    made no view for pass as they are.

    Args:
        owner: the adapter.
        conversations: its conversations.
        model: any model of the SDK's. It stays its owner's; closing this one closes it.
        tell_of_server_history: is called when a request goes on a history that the provider keeps.
    """

    def __init__(
        self,
        owner: object,
        conversations: Conversations,
        model: Model,
        tell_of_server_history: Callable[[], None],
    ) -> None:
        self.wrapped = model
        self._owner = owner
        self._conversations = conversations
        self._tell_of_server_history = tell_of_server_history

    def __getattr__(self, name: str) -> Any:
        if name == "wrapped":  # asked for by `copy` before there is one
            raise AttributeError(name)
        return getattr(self.wrapped, name)

    async def get_response(
        self, system_instructions: str | None, input: str | Items, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        """Return the model's answer, to a smaller view if it must be."""
        turn = self._turn(input, kwargs)
        try:
            response = await self.wrapped.get_response(system_instructions, input, *args, **kwargs)
        except Exception as error:
            smaller = await self._smaller(turn, error)
            if smaller is None:
                raise
            response = await self.wrapped.get_response(system_instructions, smaller, *args, **kwargs)
        await self._note_usage(turn, response.usage)
        return response

    async def stream_response(
        self, system_instructions: str | None, input: str | Items, *args: Any, **kwargs: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Yield the model's events; where the stream has only begun, those to a smaller view may follow."""
        turn = self._turn(input, kwargs)
        smaller: Items | None = None
        has_begun = False
        try:
            async with aclosing(
                _closable(self.wrapped.stream_response(system_instructions, input, *args, **kwargs))
            ) as events:
                async for event in events:
                    if event.type in _FAILED and not has_begun:
                        smaller = await self._smaller(turn, _failure_of(event))
                        if smaller is not None:
                            break
                    has_begun = has_begun or event.type not in _BEGINNING
                    await self._note_end(turn, event)
                    yield event
        except Exception as error:
            smaller = None if has_begun else await self._smaller(turn, error)
            if smaller is None:
                raise
        if smaller is None:
            return
        async with aclosing(
            _closable(self.wrapped.stream_response(system_instructions, smaller, *args, **kwargs))
        ) as events:
            async for event in events:
                await self._note_end(turn, event)
                yield event

    def _turn(self, items: str | Items, request: dict[str, Any]) -> Turn | None:
        if request.get("previous_response_id") or request.get("conversation_id"):
            self._tell_of_server_history()
            return None
        turn = current(self._owner)
        return turn if turn is not None and turn.sent(items) else None

    async def _smaller(self, turn: Turn | None, error: BaseException | str) -> Items | None:
        """Return a smaller view after a refusal; None: it says something else, or there was no view."""
        shown = None if turn is None else await self._conversations.after_refusal(turn.shown, error)
        if turn is None or shown is None:
            return None
        turn.shown = shown
        return shown.messages

    async def _note_usage(self, turn: Turn | None, usage: Any) -> None:
        if turn is not None:
            await self._conversations.record_usage(turn.shown, getattr(usage, "input_tokens", None))

    async def _note_end(self, turn: Turn | None, event: Any) -> None:
        if event.type == "response.completed":
            await self._note_usage(turn, event.response.usage)

    # The rest is the wrapped model's

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self.wrapped._cleanup_on_run_end(owner)

    async def close(self) -> None:
        """Close the wrapped model."""
        await self.wrapped.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return the wrapped model's advice."""
        return self.wrapped.get_retry_advice(request)


async def _closable(
    events: AsyncIterator[TResponseStreamEvent],
) -> AsyncGenerator[TResponseStreamEvent, None]:
    """Yield events from what may have no `aclose`, and close it where it has."""
    try:
        async for event in events:
            yield event
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


def _failure_of(event: Any) -> str:
    """Return what an event says that ends a stream: its own fields, or its response's error."""
    said = getattr(getattr(event, "response", None), "error", None) or event
    return f"{getattr(said, 'code', None) or ''}: {getattr(said, 'message', None) or ''}"


def asked_model(model: Model) -> AskedModel:
    """Return a summariser that asks a model of the SDK's, with its default settings and without tools."""
    inner = model.wrapped if isinstance(model, CompressedModel) else model

    async def ask(instructions: str, text: str) -> Said:
        response = await inner.get_response(
            instructions,
            [{"role": "user", "content": text}],
            ModelSettings(),
            [],
            None,
            [],
            ModelTracing.DISABLED,
            previous_response_id=None,
            conversation_id=None,
            prompt=None,
        )
        texts = (
            ItemHelpers.extract_text(item) or ""
            for item in response.output
            if isinstance(item, ResponseOutputMessage)
        )
        return Said("".join(texts), response.usage.input_tokens, response.usage.output_tokens)

    return AskedModel(str(getattr(inner, "model", type(inner).__name__)), ask)
