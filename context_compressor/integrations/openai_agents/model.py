"""A model of the SDK's with what a filter cannot do: learn from usage, and ask again after a refusal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from agents import AgentsException, Model, ModelResponse, ModelSettings, ModelTracing
from agents.items import ItemHelpers, TResponseInputItem, TResponseStreamEvent
from agents.models.multi_provider import MultiProvider
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from openai import OpenAIError
from openai.types.responses import ResponseOutputMessage

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.asked import Ask, AskedModel, Own, Said, name_of, taken_over
from context_compressor.integrations.conversations import Conversations
from context_compressor.integrations.openai_agents.turns import Turn, current, others_of

Items = list[TResponseInputItem]

_BEGINNING = frozenset({"response.created", "response.in_progress", "response.queued"})
"""Events after which a stream may begin once more, as the SDK's own retries have it."""
_TOOLS = 1
"""Place of the tools among the arguments behind the items, if they are given by position."""
_FAILED = frozenset({"response.failed", "error", "response.error"})


class CompressedModel(Model):
    """Wrap a model: the adapter learns what the provider counts, and refusals are answered.

    A request that is refused as too long is sent once more with a smaller view; one that is refused because
    of our tools, without them. Requests that the adapter's filter made no view for pass as they are.

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
        """Return the model's answer, if need be to a smaller view or without our tools."""
        asked = self._asked(input, args, kwargs)
        while True:
            try:
                response = await self.wrapped.get_response(
                    system_instructions, asked.items, *asked.args, **asked.kwargs
                )
            except Exception as error:
                if not await asked.is_mended(error):
                    raise
            else:
                await asked.note_usage(response.usage)
                return response

    async def stream_response(
        self, system_instructions: str | None, input: str | Items, *args: Any, **kwargs: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Yield the model's events. If a stream fails at its beginning, those of a mended request follow."""
        asked, is_refused = self._asked(input, args, kwargs), True
        while is_refused:
            is_refused = has_begun = False
            stream = self.wrapped.stream_response(
                system_instructions, asked.items, *asked.args, **asked.kwargs
            )
            try:
                async with aclosing(_closable(stream)) as events:
                    async for event in events:
                        if event.type in _FAILED and not has_begun:
                            is_refused = await asked.is_mended(_failure_of(event))
                            if is_refused:
                                break
                        has_begun = has_begun or event.type not in _BEGINNING
                        if event.type == "response.completed":
                            await asked.note_usage(event.response.usage)
                        yield event
            except Exception as error:
                is_refused = not has_begun and await asked.is_mended(error)
                if not is_refused:
                    raise

    def _asked(self, items: str | Items, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Asked:
        turn = None
        if kwargs.get("previous_response_id") or kwargs.get("conversation_id"):
            self._tell_of_server_history()
        else:
            turn = current(self._owner)
        asked = _Asked(items, args, kwargs)
        if turn is not None and turn.sent(items):
            asked.turn = turn
            turn.request.shown.model = name_of(self.wrapped)
            if not self._conversations.offers_tools_to(turn.request.shown.model):
                asked.leave_out_tools()
        return asked

    # The rest is the wrapped model's

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self.wrapped._cleanup_on_run_end(owner)

    async def close(self) -> None:
        """Close the wrapped model."""
        await self.wrapped.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return the wrapped model's advice."""
        return self.wrapped.get_retry_advice(request)


@dataclass(slots=True)
class _Asked:
    """A request as it is sent, until the model takes it."""

    items: str | Items
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    turn: Turn | None = None
    """The turn whose view it is; None: it is no view of ours."""

    async def is_mended(self, error: BaseException | str) -> bool:
        """Tell whether a refused request is to be sent once more, smaller or without our tools."""
        if self.turn is None:
            return False
        tools, request = self._tools(), self.turn.request
        if not await request.is_mended(error, has_offered=len(others_of(tools)) < len(tools)):
            return False
        self.items = request.shown.messages
        if request.shown.follows_refused_tools:
            self.leave_out_tools()
        return True

    def leave_out_tools(self) -> None:
        """Leave our tools out, now and in the next turn."""
        if self.turn is not None:
            self.turn.is_without_tools = True
        others = others_of(self._tools())
        if len(others) == len(self._tools()):
            return
        if "tools" in self.kwargs:
            self.kwargs = {**self.kwargs, "tools": others}
        else:
            self.args = (*self.args[:_TOOLS], others, *self.args[_TOOLS + 1 :])

    def _tools(self) -> list[Any]:
        found = self.kwargs.get("tools", self.args[_TOOLS] if len(self.args) > _TOOLS else None)
        return found or []

    async def note_usage(self, usage: Any) -> None:
        """Note that the request was taken, and what the provider counted."""
        if self.turn is not None:
            await self.turn.request.taken(getattr(usage, "input_tokens", None))


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


def asked_model(model: Model | str) -> AskedModel:
    """Return a summariser that asks a model of the SDK's, or that which a name stands for.

    Raises:
        InvalidArgumentError: the SDK's own provider knows no model of that name.
    """
    found = model if isinstance(model, Model) else _named(model)
    return AskedModel(_name_in(found), _asking(found))


def own_model(agent: Any) -> Own:
    """Return an agent's model. A name is asked of the SDK's own provider; a run's own is not seen."""
    return Own(_name_in(agent.model), _asking(agent.model, agent.model_settings))


def _named(name: str | None) -> Model:
    try:
        return MultiProvider().get_model(name)
    except (AgentsException, OpenAIError) as error:
        raise InvalidArgumentError(f"summarizer: no model {name!r}: {error}") from error


def _name_in(model: Any) -> str:
    named = model if isinstance(model, str) else getattr(model, "model", None)
    return named if isinstance(named, str) and named else type(model).__name__


def _asking(model: Model | str | None, settings: ModelSettings | None = None) -> Ask:
    """Return what asks a model, with what its requests take over of some settings, and without tools."""

    async def ask(instructions: str, text: str, room: int | None) -> Said:
        found = model if isinstance(model, Model) else _named(model)
        inner = found.wrapped if isinstance(found, CompressedModel) else found
        response = await inner.get_response(
            instructions,
            [{"role": "user", "content": text}],
            ModelSettings(**taken_over(vars(settings) if settings else None), max_tokens=room),
            [],
            None,
            [],
            ModelTracing.DISABLED,
            previous_response_id=None,
            conversation_id=None,
            prompt=None,
        )
        said = [item for item in response.output if isinstance(item, ResponseOutputMessage)]
        text = "".join(ItemHelpers.extract_text(item) or "" for item in said)
        is_cut = any(item.status == "incomplete" for item in said)
        usage = response.usage
        return Said(text, usage.input_tokens, usage.output_tokens, "length" if is_cut else None)

    return ask
