"""A counter that anyone can follow by hand, a session in few words, and systems that do as they are told."""

from collections.abc import Callable, Mapping, Sequence

from context_compressor.measure.chats import Chat, calls_of, content_text
from context_compressor.measure.protocol import ReadBack, Spending
from context_compressor.measure.systems import PlainSystem


class Words:
    """A message costs one token, one for each word of its content, and for each call a name and its words."""

    def count_text(self, text: str) -> int:
        return len(text.split())

    def count_messages(self, messages: Sequence[Chat]) -> int:
        return sum(
            1
            + self.count_text(content_text(message))
            + sum(1 + self.count_text(arguments) for _, _, arguments in calls_of(message))
            for message in messages
        )


def call(id: str, name: str, arguments: str) -> Chat:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    }


def result(id: str, text: str) -> Chat:
    return {"role": "tool", "tool_call_id": id, "content": text}


def says(role: str, text: str) -> Chat:
    return {"role": role, "content": text}


class Scripted(PlainSystem):
    """Send what a function makes of the history, or what a list has for the turn."""

    name = "scripted"

    def __init__(
        self,
        script: Callable[[list[Chat]], list[Chat]] | Sequence[list[Chat]],
        *,
        spending: Sequence[Spending] = (),
        texts: Mapping[str, str] | None = None,
        answer: ReadBack | None = None,
    ) -> None:
        self.script = script
        self.spendings = list(spending)
        self.texts = texts or {}
        self.answer = answer
        self.given: list[tuple[int, int]] = []
        self.asked: list[str] = []
        self.closed = False

    async def send(self, history: Sequence[Chat], new: Sequence[Chat]) -> list[Chat]:
        self.given.append((len(history), len(new)))
        if callable(self.script):
            return self.script(list(history))
        return self.script[len(self.given) - 1]

    async def reachable(self, view: Sequence[Chat]) -> Mapping[str, str]:
        return self.texts

    async def read_back(self, identifier: str, is_answer: Callable[[str], bool]) -> ReadBack | None:
        self.asked.append(identifier)
        return self.answer

    def spending(self) -> Spending:
        done = len(self.given)
        return self.spendings[done - 1] if 0 < done <= len(self.spendings) else Spending()

    async def stored(self) -> Mapping[str, str]:
        return self.texts

    async def aclose(self) -> None:
        self.closed = True
