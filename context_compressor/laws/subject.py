"""Who is checked: a function from messages to messages, and what it promises."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypedDict

from context_compressor.errors import ContextOverflowError, OffloadError
from context_compressor.laws.forms import Dict, FormName, History, form_of
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.messages.anthropic import from_anthropic
from context_compressor.messages.chat import from_openai
from context_compressor.messages.responses import from_responses
from context_compressor.offload.store import REF_PATTERN, InMemoryOffloadStore
from context_compressor.tokens.tiktoken import TiktokenCounter

Compact = Callable[[History], History | Awaitable[History]]
Count = Callable[[History], int]

LAWS: Final[dict[str, str]] = {
    "valid": "the provider accepts every view of a list that it accepts",
    "budget": "no view costs more than the budget",
    "still": "a view begins with the view before it, where that and what is new fit and is accepted",
    "lossless": "each line that is not in the view can be read again, spaces and escapes apart",
    "smaller": "no view costs more than the list it was made of",
    "rules": "what a user asked to hold from now on stands in every later view, word for word",
    "voice": "what only a tool said is told in no user's or instruction's voice without saying whose it is",
    "terminates": "each list is answered in time, and given the same list again the answer comes to rest",
    "idempotent": "a view that is given as a list comes back as it is",
}
"""The laws by name, and what each says."""


class Promises(TypedDict, total=False):
    """What a `Subject` takes beside `make`."""

    name: str
    form: FormName
    plain: bool
    budget: int
    slack: float
    count: Count | None
    trigger: float
    refuses: tuple[type[Exception], ...]
    without: Collection[str]
    steps: int
    seconds: float


@dataclass(frozen=True)
class Subject:
    """A compactor, as the laws see it.

    A function that `make` returns may have attributes of its own: `read(view)` returns every text that an
    agent with this view could read back (or an awaitable of them), `events` is how often it has compacted so
    far, and `close()` ends it.

    Args:
        make: returns the function for one conversation; it is given the whole list each time.
        name: what to call it.
        form: of the messages.
        plain: whether it is given texts and calls alone; not in form anthropic.
        budget: tokens that a view may cost.
        slack: by what share a view may exceed the budget.
        count: counts the tokens of a view; ours where it is left out.
        trigger: the share of the budget from which on views may be made anew.
        refuses: errors that say, as documented, that a list cannot be made to fit.
        without: laws that are not claimed.
        steps: answers to one list until two in a row are the same.
        seconds: after which an answer is given up.
    """

    make: Callable[[], Compact]
    name: str = "compactor"
    form: FormName = "chat"
    plain: bool = False
    budget: int = 2_000
    slack: float = 0.0
    count: Count | None = None
    trigger: float = 1.0
    refuses: tuple[type[Exception], ...] = ()
    without: Collection[str] = ()
    steps: int = 3
    seconds: float = 30.0

    def __post_init__(self) -> None:
        form_of(self.form, plain=self.plain)
        if unknown := sorted(set(self.without) - LAWS.keys()):
            raise ValueError(f"law {unknown[0]!r}: there is none; the laws are {', '.join(LAWS)}")
        if self.budget < 1 or self.steps < 1 or self.seconds <= 0 or self.slack < 0:
            raise ValueError(
                f"budget ({self.budget}), steps ({self.steps}) and seconds ({self.seconds}) must be above 0, "
                f"slack ({self.slack}) not below"
            )

    @property
    def claims(self) -> list[str]:
        """The laws that are claimed."""
        return [law for law in LAWS if law not in self.without]

    def tokens(self, messages: History) -> int:
        """Return what messages cost."""
        return (self.count or counter_of(self.form))(messages)


@cache
def counter_of(form: str) -> Count:
    """Return our counter for a form; what we cannot read is counted as its JSON."""
    counter, read = TiktokenCounter(), _READ[form]

    def count(messages: History) -> int:
        try:
            return counter.count_messages(read(messages))
        except Exception:
            return sum(counter.count_text(json.dumps(one, ensure_ascii=False)) for one in messages)

    return count


_READ: Final[dict[str, Callable[[Iterable[Dict]], list[Any]]]] = {
    "chat": from_openai,
    "responses": from_responses,
    "anthropic": from_anthropic,
}


class Views:
    """The views of one memory of ours."""

    def __init__(self, form: FormName, budget: int) -> None:
        self.events = 0
        self._form: FormName = form
        self._memory = CompressedMemory(
            max_total_tokens=budget, store=InMemoryOffloadStore(), on_event=lambda _: self._count()
        )

    def _count(self) -> None:
        self.events += 1

    async def __call__(self, messages: History) -> History:
        """Return the view of a list."""
        return await self._memory.view(messages, form=self._form)

    async def read(self, view: History) -> list[str]:
        """Return every text that refs lead to, from a view on."""
        texts: dict[str, str] = {}
        waiting = REF_PATTERN.findall(json.dumps(view))
        while waiting:
            ref = waiting.pop()
            if ref not in texts:
                try:
                    texts[ref] = await self._memory.read_ref(ref)
                except OffloadError:  # a user may say what looks like a ref
                    texts[ref] = ""
                waiting += REF_PATTERN.findall(texts[ref])
        return list(texts.values())

    async def close(self) -> None:
        """Close the memory."""
        await self._memory.aclose()


def memory(form: FormName = "chat", budget: int = 2_000) -> Subject:
    """Return what checks `CompressedMemory.view` in a form, with all laws claimed."""
    return Subject(
        make=lambda: Views(form, budget),
        name="context_compressor",
        form=form,
        budget=budget,
        refuses=(ContextOverflowError,),
    )
