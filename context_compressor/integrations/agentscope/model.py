"""An AgentScope model as summariser and as one whose usage is noted; the offload tools for its toolkits."""

from __future__ import annotations

import copy
import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, aclosing, asynccontextmanager
from typing import Any, Protocol, TypeVar

from agentscope import formatter as formatters
from agentscope.formatter import FormatterBase
from agentscope.message import Msg
from agentscope.model import ChatModelBase
from agentscope.tool import Toolkit, ToolResponse

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.asked import taken_over
from context_compressor.messages.chat import from_openai
from context_compressor.offload.guide import MOST_TOOLS, TOOL_NAMES
from context_compressor.summarizers.faults import Fault, is_overflow, limit_in
from context_compressor.summarizers.provider import Answer, ProviderSummarizer, as_answer
from context_compressor.tools.source import OffloadSource
from context_compressor.tools.tools import OffloadTools

logger = logging.getLogger(__name__)

AModel = TypeVar("AModel", bound=ChatModelBase)

_FORMATTERS = {
    "DashScopeChatModel": "DashScopeChatFormatter",
    "AnthropicChatModel": "AnthropicChatFormatter",
    "OllamaChatModel": "OllamaChatFormatter",
    "GeminiChatModel": "GeminiChatFormatter",
    "OpenAIResponseModel": "OpenAIResponseChatFormatter",
}
"""Model class -> formatter class, both of AgentScope's; any other model speaks OpenAI's chat completions."""


class AgentScopeSummarizer(ProviderSummarizer):
    """Ask an AgentScope chat model for summaries, streaming or not.

    The request is written by AgentScope's formatter for the model, and sent with the model's own
    `generate_kwargs` but those that shape an answer to the agent's user, its length say. Of the answer only
    text counts: not reasoning, not tool calls.

    Retries happen in one place: in the model's client where that retries by itself (OpenAI's and Anthropic's
    do), else here, after 408, 409, 429, 5xx, broken connections and timeouts.

    Args:
        model: the model.
        formatter: writes the request; chosen by the model's class when None.
        timeout: seconds for one attempt, the client's own retries included.
        max_retries: attempts after the first; None: 2, or 0 where the client retries by itself.
        max_input_tokens: how much the model reads; a longer request is summarised in parts. None: not known,
            so that a request is split only after the provider has refused it.
        backoff_seconds: the pause before the first retry; each further one is twice as long, up to 8 seconds.

    Raises:
        InvalidArgumentError: `model` is no AgentScope chat model, or `formatter` no formatter.
    """

    _limit_names = ()  # models call it by different names

    def __init__(
        self,
        model: ChatModelBase,
        formatter: FormatterBase | None = None,
        *,
        timeout: float = 60.0,
        max_retries: int | None = None,
        max_input_tokens: int | None = None,
        backoff_seconds: float = 0.5,
    ) -> None:
        if not isinstance(model, ChatModelBase):
            raise InvalidArgumentError(
                f"model: expected an AgentScope chat model such as OpenAIChatModel(...), got {model!r:.200} "
                f"({type(model).__name__}); pass a summariser of another kind as summarizer="
            )
        if formatter is not None and not isinstance(formatter, FormatterBase):
            raise InvalidArgumentError(
                f"formatter: expected an AgentScope formatter, got {type(formatter).__name__}"
            )
        self.chat_model = model
        self._formatter = _formatter_for(model) if formatter is None else formatter
        if max_retries is None:
            max_retries = 0 if getattr(getattr(model, "client", None), "max_retries", 0) else 2
        super().__init__(
            str(getattr(model, "model_name", "") or type(model).__name__),
            timeout=timeout,
            max_retries=max_retries,
            max_input_tokens=max_input_tokens,
            temperature=None,
            reasoning_tokens=0,
            backoff_seconds=backoff_seconds,
        )
        if hasattr(model, "max_tokens"):  # Anthropic's answers have a limit in any case
            self._limits = ["max_tokens"]

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[ChatModelBase]:
        kwargs = getattr(self.chat_model, "generate_kwargs", None) or {}
        model = self.chat_model
        if (kept := taken_over(kwargs)) != kwargs:
            model = copy.copy(model)
            model.generate_kwargs = kept  # type: ignore[attr-defined]
        yield model

    async def _send(
        self, client: ChatModelBase, messages: list[dict[str, str]], parameters: dict[str, Any]
    ) -> Any:
        roles: list[Any] = [message["role"] for message in messages]  # strings, each one that is accepted
        said = [Msg(role, message["content"], role) for role, message in zip(roles, messages, strict=True)]
        answer = await client(await self._formatter.format(said), **parameters)
        if not isinstance(answer, AsyncIterable):
            return answer
        last = None
        async for chunk in answer:
            last = chunk  # each holds all that came before
        return last

    def _read(self, answer: Any) -> Answer:
        try:
            blocks, usage = list(answer.content), answer.usage
            texts = [block["text"] for block in blocks if block["type"] == "text"]
            counts = (usage.input_tokens, usage.output_tokens) if usage is not None else (0, 0)
        except (AttributeError, KeyError, TypeError):  # KeyError: their dataclasses are dicts as well
            raise Fault("empty", f"the answer is no ChatResponse: {answer!r:.200}") from None
        return as_answer("".join(map(str, texts)), None, None, counts)

    def _keys(self) -> list[object]:
        client = getattr(self.chat_model, "client", None)
        return [getattr(self.chat_model, "api_key", None), getattr(client, "api_key", None)]


def _formatter_for(model: ChatModelBase) -> FormatterBase:
    names = [_FORMATTERS[kind.__name__] for kind in type(model).__mro__ if kind.__name__ in _FORMATTERS]
    made: FormatterBase = getattr(formatters, names[0] if names else "OpenAIChatFormatter")()
    return made


class Counting(Protocol):
    """What hears of a provider's counts: a `CompressedMemory`."""

    def record_usage(self, prompt_tokens: int) -> None: ...
    def record_overflow(self, limit: int | None = None) -> None: ...


def counted(model: AModel, memory: Callable[[], Counting]) -> AModel:
    """Return a model that is the given one, and tells a memory what the provider counts and refuses.

    It has the class, the settings and the client of the given one, which itself tells nobody.

    Raises:
        InvalidArgumentError: `model` is no AgentScope chat model.
    """
    if not isinstance(model, ChatModelBase):
        raise InvalidArgumentError(f"model: expected an AgentScope chat model, got {type(model).__name__}")
    kind: Any = type(model)

    def note(answer: Any) -> None:
        tokens = getattr(getattr(answer, "usage", None), "input_tokens", None)
        if isinstance(tokens, int) and tokens > 0:
            memory().record_usage(tokens)

    async def read(answer: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        last = None
        async with aclosing(answer) as chunks:
            async for chunk in chunks:
                last = chunk if getattr(chunk, "usage", None) else last
                yield chunk
        note(last)

    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            answer = await kind.__call__(self, *args, **kwargs)
        except Exception as error:
            if is_overflow(error):
                memory().record_overflow(limit_in(error))
            raise
        if isinstance(answer, AsyncGenerator):
            return read(answer)
        note(answer)
        return answer

    own = type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})
    made: Any = object.__new__(own)
    made.__dict__ = model.__dict__  # what is set on one, `stream` say, is set on both
    return made  # type: ignore[no-any-return]


_RESPONSE_BLOCKS = frozenset({"text", "image", "audio", "video"})
"""What a `ToolResponse` may hold."""


_CLAIMED = "_context_compressor"
"""Attribute of a toolkit which says that it is to get the tools."""


def _names_taken(toolkit: Toolkit) -> list[str]:
    return sorted(TOOL_NAMES & set(toolkit.tools))


def claim(toolkit: Toolkit) -> None:
    """Note that a toolkit is to get a memory's tools.

    Raises:
        ValueError: it has tools of these names already, or is to get another memory's.
    """
    if taken := _names_taken(toolkit):
        raise ValueError(
            f"toolkit: there is a tool {taken[0]} in it already; give that another name, or tools=False"
        )
    if getattr(toolkit, _CLAIMED, False):
        raise ValueError("toolkit: it has a memory's tools already; give each memory a toolkit of its own")
    setattr(toolkit, _CLAIMED, True)


def has_room(toolkit: Toolkit) -> bool:
    """Tell whether a toolkit can take our tools: it has none of their names, and not too many others."""
    return len(toolkit.get_json_schemas()) + len(TOOL_NAMES) <= MOST_TOOLS and not _names_taken(toolkit)


def register_offload_tools(
    toolkit: Toolkit, memory: OffloadSource, group_name: str = "basic"
) -> OffloadTools:
    """Register the tools that `OffloadTools` has for a memory: reading, searching, compressing.

    Bad arguments are answered in words. An image, audio or video that `load_offloaded` brings back is a block
    of the tool's response. Whether the model sees it is for AgentScope's formatter to say: that for OpenAI
    shows images of tool results with `promote_tool_result_images=True`.

    Args:
        toolkit: the agent's toolkit.
        memory: an `AgentScopeCompressedMemory`, a `CompressedMemory`, or anything that `OffloadTools` takes.
        group_name: the group to register them in; a group other than "basic" has to exist.

    Returns:
        What answers the calls.

    Raises:
        ValueError: the toolkit has no such group, or has a tool of one of these names already; then none of
            them is registered.
    """
    tools = OffloadTools(memory)
    with ExitStack() as undo:
        for schema in tools.schemas:
            name = schema["function"]["name"]
            function = _tool_function(tools, name)
            toolkit.register_tool_function(function, group_name=group_name, json_schema=schema)
            undo.callback(toolkit.remove_tool_function, name)
        undo.pop_all()
    return tools


def _tool_function(tools: OffloadTools, name: str) -> Callable[..., Coroutine[Any, Any, ToolResponse]]:
    async def call(**arguments: Any) -> ToolResponse:
        attached = await tools.attachment(name, arguments)
        if attached is None:
            blocks: list[Any] = [{"type": "text", "text": await tools.call(name, arguments)}]
        else:
            blocks = [_shown(block) for block in from_openai([attached])[0].get_content_blocks()]
        return ToolResponse(content=blocks)  # plain dicts, which its typed ones are, too

    call.__name__ = name
    return call


def _shown(block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") in _RESPONSE_BLOCKS:
        return block
    return {"type": "text", "text": f"A {block.get('type')} cannot be shown in a tool's response here."}
