"""A counter that anyone can follow by hand, a session in few words, and systems that do as they are told."""

from collections.abc import Callable, Mapping, Sequence

from context_compressor.lab.measure import Chat, PlainSystem, Probe, Spending, content_text
from context_compressor.lab.measure.recording import calls_of


class Words:
    """A message costs one token, one for each word of its content, and for each call a name and its words."""

    def count_text(self, text: str) -> int:
        return len(text.split())

    def count_messages(self, messages: Sequence[Chat]) -> int:
        return sum(
            1
            + self.count_text(content_text(message))
            + sum(1 + self.count_text(arguments) for _, arguments in calls_of(message))
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


def probe(at: int, *keys: str, kind: str = "value") -> Probe:
    """Return a probe that asks for texts within one passage."""
    return Probe.model_validate(
        {
            "at": at,
            "kind": kind,
            "question": "Which?",
            "answer": " ".join(keys),
            "keys": [[key] for key in keys],
        }
    )


class Scripted(PlainSystem):
    """Send what a function makes of the history, or what a list has for the turn."""

    name = "scripted"

    def __init__(
        self,
        script: Callable[[list[Chat]], list[Chat]] | Sequence[list[Chat]],
        *,
        spending: Sequence[Spending] = (),
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self.script = script
        self.spendings = list(spending)
        self.texts = texts or {}
        self.given: list[tuple[int, int]] = []
        self.closed = False

    async def send(self, history: Sequence[Chat], new: Sequence[Chat]) -> list[Chat]:
        self.given.append((len(history), len(new)))
        if callable(self.script):
            return self.script(list(history))
        return self.script[len(self.given) - 1]

    def spending(self) -> Spending:
        done = len(self.given)
        return self.spendings[done - 1] if 0 < done <= len(self.spendings) else Spending()

    async def stored(self) -> Mapping[str, str]:
        return self.texts

    async def aclose(self) -> None:
        self.closed = True
