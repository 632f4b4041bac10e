"""A model of Pydantic AI as summariser."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import Model, ModelRequestContext, infer_model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.asked import Ask, Asked, AskedModel, Last, Own, Said, taken_over
from context_compressor.integrations.clients.wire import check_free


def asked_model(model: Model | str) -> AskedModel:
    """Return a summariser that asks a model, or that which a name stands for.

    Raises:
        InvalidArgumentError: Pydantic AI knows no model of that name.
    """
    if not isinstance(model, str):
        return AskedModel(model.model_name, _asking(model))
    try:
        found = infer_model(model)
    except UserError as error:
        raise InvalidArgumentError(f"summarizer: {error}") from error
    asks = _asking(found)

    async def ask(instructions: str, text: str, room: int | None) -> Said:
        async with found:  # which closes what it opened; an agent may be at work with any other
            return await asks(instructions, text, room)

    return AskedModel(found.model_name, ask)


def own_model(request: ModelRequestContext, asked: Asked) -> Own:
    """Return the model of an agent's request.

    Args:
        request: the request.
        asked: what it asks.
    """

    def again(last: Last) -> Ask:
        asked.check_goes_on(last.asked)
        sent: ModelRequestContext = last.sent
        parameters = sent.model_request_parameters
        check_free(
            tool_choice=(sent.model_settings or {}).get("tool_choice") not in (None, "auto", "none"),
            output_type=not parameters.allow_text_output or parameters.output_object,
            last_message=isinstance(sent.messages[-1], ModelResponse),  # a turn that was paused is continued
        )
        return _asking(request.model, request.model_settings, sent)

    return Own(request.model.model_name, _asking(request.model, request.model_settings), again)


def _asking(
    model: Model, settings: Mapping[str, Any] | None = None, sent: ModelRequestContext | None = None
) -> Ask:
    """Return what asks a model.

    Args:
        model: the model.
        settings: of the agent's requests; what a summary takes over of them goes along.
        sent: a request to be sent once more, with what is asked behind it.
    """
    asked = _in_words(model)
    before = [] if sent is None else sent.messages
    parameters = None if sent is None else sent.model_request_parameters

    async def ask(instructions: str, text: str, room: int | None) -> Said:
        said: Any = taken_over(settings) | ({} if room is None else {"max_tokens": room})
        request = ModelRequest([UserPromptPart(text)], instructions=instructions or None)
        response = await model_request(
            asked, [*before, request], model_settings=said, model_request_parameters=parameters
        )
        usage, reason = response.usage, response.finish_reason
        tokens = usage.input_tokens, usage.output_tokens
        return Said(response.text or "", *tokens, reason, usage.cache_read_tokens)

    return ask


def _in_words(model: Model) -> Model:
    """Return a model whose settings are those that a summary takes over, and that is the given one else."""
    made = copy.copy(model)
    if isinstance(made, WrapperModel):
        made.wrapped = _in_words(made.wrapped)
    elif isinstance(made, FallbackModel):
        made.models = [_in_words(one) for one in made.models]
    elif (kept := taken_over(model.settings)) != (model.settings or {}):
        made._settings = ModelSettings(**kept)  # type: ignore[typeddict-item]
    else:
        return model
    return made
