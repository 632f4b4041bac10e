"""Systems to measure: what one is, this library, and the three things people do without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from context_compressor.core.config import CompressionConfig
from context_compressor.events import CompressionEvent
from context_compressor.lab.measure.recording import INSTRUCTION_ROLES, RESULT_ROLES, CachedCounter, Chat
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.messages.chat import from_openai, to_openai
from context_compressor.messages.msg import Msg, is_segment
from context_compressor.offload.guide import GREP_TOOL, READ_TOOL, SEARCH_TOOL
from context_compressor.offload.store import InMemoryOffloadStore, OffloadStore
from context_compressor.summarizers.protocol import Summarizer

READ_BACK = (SEARCH_TOOL, READ_TOOL, GREP_TOOL)
"""Our tools that find and show text, and change nothing."""

PLACEHOLDER = "[Old tool output cleared]"
"""What stands for a masked tool result."""

MASKING_KEEPS = 10
"""Tool results that masking leaves as they are; arXiv 2508.21433 found this many to do best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a system's summaries have cost so far."""

    paid_input_tokens: int = 0
    """Tokens that a model read to summarise; 0 where no model did."""
    paid_output_tokens: int = 0
    """Tokens that a model wrote."""
    paid_cached_tokens: int = 0
    """Of those that a model read, the ones out of its provider's prompt cache."""
    input_tokens: int = 0
    """Tokens read by whoever summarised: what a model would have read in its place."""
    output_tokens: int = 0
    """Tokens written by whoever summarised."""
    notes_tokens: int = 0
    """Tokens that stand in the last view for what left."""
    seconds: float = 0.0
    """Seconds in events that asked a model."""


class System(Protocol):
    """Something that turns the history so far into what is sent. Made for one session.

    The messages that it is given must not be changed, nor those that it returned. A class
    that inherits from this one stores and summarises nothing, unless its own methods say so.
    """

    name: str
    """What to call it in results."""

    async def send(self, history: Sequence[Chat], new: Sequence[Chat]) -> list[Chat]:
        """Return what to send for the next assistant message.

        Args:
            history: every message so far.
            new: those at its end that no earlier call had.
        """
        ...

    def spending(self) -> Spending:
        """Return what notes have cost so far."""
        return Spending()

    async def stored(self) -> Mapping[str, str]:
        """Return every text in the store, by its key there."""
        return {}

    async def aclose(self) -> None:
        """End what the system began."""
        return  # most began nothing


@runtime_checkable
class Reading(Protocol):
    """A system whose agent has tools that find and show text, and change nothing."""

    schemas: Sequence[Any]
    """Of the tools, as chat completions take them."""

    async def call(self, name: str, arguments: str) -> str:
        """Answer a call, whose arguments are JSON."""
        ...


class PlainSystem(System):
    """A system that stores nothing and summarises nothing: it sends the history as it is."""

    name = "raw"

    async def send(self, history: Sequence[Chat], new: Sequence[Chat]) -> list[Chat]:  # noqa: ARG002
        """Return the history."""
        return list(history)


class Sliding(PlainSystem):
    """Send the instructions and the newest exchanges that fit the budget, the newest whatever it costs."""

    name = "sliding"

    def __init__(self, budget: int, counter: CachedCounter | None = None) -> None:
        self._budget = budget
        self._counter = CachedCounter() if counter is None else counter

    async def send(self, history: Sequence[Chat], new: Sequence[Chat]) -> list[Chat]:  # noqa: ARG002
        """Return the instructions and the newest exchanges."""
        instructions = [message for message in history if message.get("role") in INSTRUCTION_ROLES]
        left = self._budget - self._counter.count_all(instructions)
        kept: list[list[Chat]] = []
        for exchange in _exchanges_backwards(history):
            left -= self._counter.count_all(exchange)
            if left < 0 and kept:
                break
            kept.append(exchange)
        return instructions + [message for exchange in reversed(kept) for message in exchange]


def _exchanges_backwards(history: Sequence[Chat]) -> Iterator[list[Chat]]:
    """Yield what stays or leaves together, newest first: calls with their results, else single messages."""
    results: list[Chat] = []
    for message in reversed(history):
        role = message.get("role")
        if role in INSTRUCTION_ROLES:
            continue
        if role in RESULT_ROLES:
            results.insert(0, message)
        else:
            yield [message, *results]
            results = []
    if results:
        yield results


class Masking(PlainSystem):
    """Send everything, with a placeholder for every tool result but the newest few."""

    name = "masking"

    def __init__(self, keep: int = MASKING_KEEPS) -> None:
        self._keep = keep
        self._sent: list[Chat] = []
        self._open: list[int] = []

    async def send(self, history: Sequence[Chat], new: Sequence[Chat]) -> list[Chat]:
        """Return the history, older results masked."""
        first_new = len(history) - len(new)
        self._sent += new
        self._open += [first_new + i for i, m in enumerate(new) if m.get("role") in RESULT_ROLES]
        while len(self._open) > self._keep:
            index = self._open.pop(0)
            self._sent[index] = {**self._sent[index], "content": PLACEHOLDER}
        return list(self._sent)


class Ours:
    """A `CompressedMemory`.

    Args:
        budget: tokens that a view may cost; for a config of your own, its `max_total_tokens`.
        counter: what they are counted by.
        store: where texts go; in memory when None. Must be empty.
        summarizer: who writes notes; rules when None.
        config: thresholds; the defaults at the budget when None.
    """

    name = "ours"

    def __init__(
        self,
        budget: int,
        counter: CachedCounter | None = None,
        *,
        store: OffloadStore | None = None,
        summarizer: Summarizer | None = None,
        config: CompressionConfig | None = None,
    ) -> None:
        self.events: list[CompressionEvent] = []
        """Every event so far."""
        self.history: list[Msg] = []
        """Every message so far, as it was added."""
        self._counter = counter or CachedCounter()
        self._notes_tokens = 0
        tokens = self._counter.counter
        self.memory = CompressedMemory(
            config=(config or CompressionConfig(max_total_tokens=budget)).model_copy(
                update={"background_ratio": None}  # a replay does not depend on how fast a model is
            ),
            store=InMemoryOffloadStore() if store is None else store,
            summarizer=summarizer,
            counter=tokens,
            on_event=self.events.append,
        )

    async def send(self, history: Sequence[Chat], new: Sequence[Chat]) -> list[Chat]:
        """Return the memory's view."""
        messages = from_openai(new)
        for index, message in enumerate(messages, start=len(history) - len(new)):
            message.id = f"messages[{index}]"  # errors name it; a random one would differ from run to run
        self.history += messages
        await self.memory.add(messages)
        view = await self.memory.get_memory()
        self._notes_tokens = self._counter.count_all(to_openai([msg for msg in view if is_segment(msg)]))
        return to_openai(view)

    def spending(self) -> Spending:
        """Return what notes have cost so far."""
        stats = self.memory.stats()
        return Spending(
            paid_input_tokens=stats.summarizer_input_tokens,
            paid_output_tokens=stats.summarizer_output_tokens,
            paid_cached_tokens=stats.summarizer_cached_tokens,
            input_tokens=sum(event.summary_input_tokens for event in self.events),
            output_tokens=sum(event.summary_output_tokens for event in self.events),
            notes_tokens=self._notes_tokens,
            seconds=stats.summarizer_seconds,
        )

    async def stored(self) -> Mapping[str, str]:
        """Return what is in the store."""
        return {ref: await self.memory.store.read(ref) for ref in await self.memory.store.refs()}

    async def aclose(self) -> None:
        """Close the summariser's clients."""
        await self.memory.aclose()


class OursWithTools(Ours):
    """A `CompressedMemory` whose agent has the read-back tools; stand-ins name them."""

    name = "ours+tools"

    def __init__(self, budget: int, counter: CachedCounter | None = None) -> None:
        super().__init__(budget, counter)
        self.tools = self.memory.tools()
        self.schemas = [one for one in self.tools.schemas if one["function"]["name"] in READ_BACK]

    async def call(self, name: str, arguments: str) -> str:
        """Answer a call."""
        return await self.tools.call(name, arguments)


SYSTEMS: dict[str, Callable[[int, CachedCounter], System]] = {
    "raw": lambda _budget, _counter: PlainSystem(),
    "sliding": Sliding,
    "masking": lambda _budget, _counter: Masking(),
    "ours": Ours,
}
"""How to make each system, from a budget in tokens and what counts them."""

MEANINGS = {
    "raw": "the whole history, each time",
    "sliding": "the newest exchanges that fit the budget",
    "masking": f"a placeholder for every tool result but the newest {MASKING_KEEPS}",
    "ours": "the view of CompressedMemory",
}
"""What each of them sends."""
