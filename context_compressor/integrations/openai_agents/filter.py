"""`Compression`: views before every model call of the OpenAI Agents SDK."""

from __future__ import annotations

import logging
from typing import Any, Unpack

from agents import FunctionTool, Model, RunContextWrapper
from agents.memory import Session
from agents.models.multi_provider import MultiProvider
from agents.run_config import CallModelData, ModelInputData

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.asked import Own
from context_compressor.integrations.conversations import MOST_TOOLS_BESIDE, key_of
from context_compressor.integrations.openai_agents.model import CompressedModel, asked_model, own_model
from context_compressor.integrations.openai_agents.session import CompressedSession, whole
from context_compressor.integrations.openai_agents.turns import (
    Turn,
    current,
    enter,
    others_of,
    read_back_tools,
)
from context_compressor.integrations.options import KeyedOptions, has_tools, make_conversations
from context_compressor.integrations.request import Request
from context_compressor.memory.reporting import CompressionStats
from context_compressor.messages.plain import get

logger = logging.getLogger(__name__)

_OTHERS = ("user", "system", "developer")


class Compression:
    """Send views that fit a budget: `RunConfig(call_model_input_filter=Compression(...))`.

    What the run, its session and its result hold stays whole. One object serves any number of runs at once;
    an agent that is called as a tool has a conversation of its own.

    Args:
        options: as `KeyedOptions` says, `max_total_tokens` and so on. A `summarizer` may be a `Model` of the
            SDK's, or the name of one, which has to be given where a run's `RunConfig` names a model or a
            provider: "own" is what the agent's `model` says; None the same, or no model where it says
            nothing. `key` is given a request's `CallModelData`. Of `tools`, those that the adapter has are
            enabled once something has left the view.

    Raises:
        InvalidArgumentError: an option that there is not, or something of the wrong kind.
        ValueError: thresholds that cannot be, or cannot work together.
    """

    def __init__(self, **options: Unpack[KeyedOptions[Model | str]]) -> None:
        key = options.get("key")
        if key is not None and not callable(key):
            raise InvalidArgumentError(f"key: expected a function of CallModelData, got {key!r:.200}")
        self._key = key
        self._conversations = make_conversations(
            KeyedOptions,
            options,
            "responses",
            models=(Model, str),
            asked=asked_model,
            with_tools=False,  # asked of each request's agent
        )
        self._tools = read_back_tools(self, self._is_enabled) if has_tools(options) else []
        self._is_left_out = options.get("summarizer") is None
        self._told: set[str] = set()

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Return what to send for what the SDK would send.

        Raises:
            ContextOverflowError: what may not leave the view exceeds the budget.
            InvalidMessageError: an item is malformed.
            InvalidArgumentError: `key` gave neither a string nor None.
        """
        given = data.model_data
        if _goes_on_elsewhere(given.input):
            self._tell_of_server_history()
            return given
        if (observer := self._conversations.observer) is not None:
            observer.note(lambda: given.input, lambda: given.instructions)
            return given
        shown = await self._conversations.view(
            whole(self, given.input),
            key=await key_of(self._key, data),
            system=given.instructions,
            with_tools=self._are_known_enabled(data.agent, given.input),
            own=self._own(data.agent),
        )
        enter(Turn(self, data.agent, Request(self._conversations, shown)))
        return ModelInputData(input=list(shown.messages), instructions=given.instructions)

    @property
    def tools(self) -> list[FunctionTool]:
        """The tools by which an agent finds and reads what left its view: `Agent(tools=[..., *c.tools])`.

        They are enabled from the turn after the first event on.
        """
        return list(self._tools)

    def _are_known_enabled(self, agent: Any, items: list[Any]) -> bool:
        """Tell whether the agent's tools are enabled, by the turn before: then stand-ins may name them.

        The SDK asks for tools before it asks for a view.
        """
        turn = current(self)
        return (
            self._has_room(agent) and turn is not None and turn.is_of(agent, items) and turn.can_offer_tools
        )

    def _has_room(self, agent: Any) -> bool:
        """Tell whether an agent has our tools, and not too many others."""
        tools = getattr(agent, "tools", ())
        return len(others := others_of(tools)) < len(tools) and len(others) <= MOST_TOOLS_BESIDE

    async def _is_enabled(self, context: RunContextWrapper[Any], agent: Any) -> bool:
        """Tell whether something has left the view of a run, by its last turn or by its saved state."""
        if self._are_known_enabled(agent, context.turn_input):
            return True
        if not self._has_room(agent):
            return False
        items = whole(self, context.turn_input)
        data = CallModelData(ModelInputData(items, None), agent, context.context)
        return await self._conversations.has_left(items, key=await key_of(self._key, data))

    def model(self, model: Model | str | None = None) -> CompressedModel:
        """Return a model, wrapped: it learns from usage, and answers a refusal as too long by a smaller view.

        Args:
            model: a `Model`, or a name that the SDK's own provider knows; None: the SDK's default model.

        Raises:
            InvalidArgumentError: neither.
        """
        if not isinstance(model, Model | str | None):
            raise InvalidArgumentError(f"model: expected a Model or its name, got {type(model).__name__}")
        if isinstance(model, CompressedModel):
            model = model.wrapped
        found = model if isinstance(model, Model) else MultiProvider().get_model(model)
        return CompressedModel(self, self._conversations, found, self._tell_of_server_history)

    def session(self, session: Session, *, key: str | None = None) -> CompressedSession:
        """Return a session, wrapped: a run begins with a view of it. Not enough alone: set the filter, too.

        Args:
            session: any session of the SDK's.
            key: names the conversation, as what `key=` of this object returns; None: its first message does.

        Raises:
            InvalidArgumentError: no session, or one whose history OpenAI keeps or compacts.
        """
        return CompressedSession(self, self._conversations, session, key)

    def stats(self, key: str | None = None) -> CompressionStats | None:
        """Return where the newest conversation under a key stands, or the newest of all; None: none is."""
        return self._conversations.stats(key)

    def _own(self, agent: Any) -> Own | None:
        """Return the agent's model. Where it names none, only the run may know whom it asks."""
        if agent.model is not None or not self._is_left_out:
            return own_model(agent)
        self._tell(
            logging.INFO,
            "the agent names no model, so rules write its summaries; give Agent(model=...), or summarizer=",
        )
        return None

    def _tell_of_server_history(self) -> None:
        self._tell(
            logging.WARNING,
            "with previous_response_id or conversation_id the history is at the provider, and only new "
            "items are sent: these pass as they are, nothing is compressed",
        )

    def _tell(self, level: int, text: str) -> None:
        """Log what is said once."""
        if text not in self._told:
            self._told.add(text)
            logger.log(level, text)


def _goes_on_elsewhere(items: list[Any]) -> bool:
    """Tell whether a list has new items only, the rest being at the provider: outputs, and no call."""
    rest = [str(get(item, "type")) for item in items if get(item, "role") not in _OTHERS]
    return bool(rest) and all(kind.endswith(("_output", "_approval_response")) for kind in rest)
