"""Chat dicts <-> LangChain messages, by LangChain's own converters."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from adapter import Chat, Originals, Parent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, BaseMessage, convert_to_messages
from langchain_core.messages.utils import convert_to_openai_messages, get_buffer_string
from langchain_core.outputs import ChatResult


class Messages:
    """Convert both ways; messages that LangChain left as they were come back as they came."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._originals = Originals()
        self._made = 0

    def load(self, chats: Sequence[Chat]) -> list[AnyMessage]:
        """Return chat dicts as messages, each with an id."""
        messages: list[Any] = []
        for chat in chats:
            message = to_langchain([chat])[0]
            self._made += 1
            message.id = f"message-{self._made}"
            self._originals.keep(message.id, (message.content, tuple_of_calls(message)), chat)
            messages.append(message)
        return messages

    def dump(self, messages: Sequence[BaseMessage]) -> list[Chat]:
        """Return messages as chat dicts."""
        return [self.dump_one(message) for message in messages]

    def dump_one(self, message: BaseMessage) -> Chat:
        """Return a message as a chat dict."""
        original = self._originals.restore(message.id, (message.content, tuple_of_calls(message)))
        return from_langchain([message])[0] if original is None else original

    def count(self, messages: Sequence[BaseMessage]) -> int:
        """Return the tokens of messages, by the run's counter."""
        return self._parent.count(messages, _key, self.dump_one)


def _key(message: BaseMessage) -> Hashable:
    content = message.content
    return (
        message.id,
        message.type,
        content if isinstance(content, str) else str(content),
        tuple_of_calls(message),
    )


def tuple_of_calls(message: BaseMessage) -> str:
    """Return what a message calls, to compare."""
    return str([(call["name"], call["args"]) for call in getattr(message, "tool_calls", ())])


def to_langchain(chats: Sequence[Chat]) -> list[AnyMessage]:
    """Return chat dicts as messages."""
    return list(convert_to_messages(list(chats)))


def from_langchain(messages: Sequence[BaseMessage]) -> list[Chat]:
    """Return messages as chat dicts."""
    chats = convert_to_openai_messages(list(messages))
    assert isinstance(chats, list)
    return chats


class Window(BaseChatModel):
    """A chat model that is asked for its name and window only.

    Args:
        tokens: what its window holds.
    """

    def __init__(self, tokens: int) -> None:
        super().__init__(profile={"max_input_tokens": tokens})

    @property
    def _llm_type(self) -> str:
        return "window"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError("the run summarises")


def summarizer_for(parent: Parent, messages: Messages, prompt: str) -> Callable[[Any], str]:
    """Return what middleware takes as its `summarizer`: the run, which counts the middleware's own prompt."""

    def summarize(chosen: Sequence[BaseMessage]) -> str:
        asked = prompt.format(messages=get_buffer_string(chosen, format="xml")).rstrip()
        return parent.summarize([asked], messages.dump(chosen))

    return summarize
