"""Systems to measure: this library, and the three things people do without one."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from context_compressor.compression.config import CompressionConfig
from context_compressor.errors import OffloadError
from context_compressor.events import CompressionEvent
from context_compressor.measure.chats import INSTRUCTION_ROLES, RESULT_ROLES, CachedCounter, Chat
from context_compressor.measure.protocol import ReadBack, Spending, System
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.messages.openai import from_openai, to_openai
from context_compressor.offload.in_memory import InMemoryOffloadStore
from context_compressor.offload.protocol import REF_PATTERN, OffloadStore
from context_compressor.offload.tools.offload_tools import OffloadTools
from context_compressor.offload.tools.schemas import GREP_TOOL, READ_TOOL, SEARCH_TOOL
from context_compressor.summarizers.extractive import ExtractiveSummarizer
from context_compressor.summarizers.protocol import Summarizer, Summary, SummaryRequest

PLACEHOLDER = "[Old tool output cleared]"
"""What stands for a masked tool result."""

MASKING_KEEPS = 10
"""Tool results that masking leaves as they are; arXiv 2508.21433 found this many to do best."""

MAX_PAGES = 50
"""Pages after which reading a text back is given up."""

_NEXT_PAGE = re.compile(r"\[more: read_offloaded\(ref, offset=(\d+)(?:, column=(\d+))?\)[^\n]*\]\Z")


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
    """A `CompressedMemory` with its read-back tools.

    Args:
        budget: tokens that a view may cost; for a config of your own, its `max_total_tokens`.
        counter: what they are counted by.
        store: where texts go; in memory when None. Must be empty.
        summarizer: who summarises; extractive when None.
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
        self._counter = CachedCounter() if counter is None else counter
        tokens = self._counter.counter
        self._summarizer = _TimedSummarizer(
            ExtractiveSummarizer(tokens) if summarizer is None else summarizer
        )
        self.memory = CompressedMemory(
            config=(config or CompressionConfig(max_total_tokens=budget)).model_copy(
                update={"background_ratio": None}  # a replay does not depend on how fast a model is
            ),
            store=InMemoryOffloadStore() if store is None else store,
            summarizer=self._summarizer,
            counter=tokens,
            on_event=self._note,
        )
        self.events: list[CompressionEvent] = []
        """Every event so far."""
        self._tools = OffloadTools(self.memory)
        self._texts: dict[str, str] = {}
        self._input_tokens = 0
        self._output_tokens = 0

    async def send(self, history: Sequence[Chat], new: Sequence[Chat]) -> list[Chat]:
        """Return the memory's view."""
        messages = from_openai(new)
        for index, message in enumerate(messages, start=len(history) - len(new)):
            message.id = f"messages[{index}]"  # errors name it; a random one would differ from run to run
        await self.memory.add(messages)
        return to_openai(await self.memory.get_memory())

    async def reachable(self, view: Sequence[Chat]) -> Mapping[str, str]:
        """Return the texts whose refs stand in the view, and those whose refs stand in them."""
        found: dict[str, str] = {}
        waiting = REF_PATTERN.findall(json.dumps(view, default=str))
        while waiting:
            ref = waiting.pop()
            if ref in found:
                continue
            text = await self._text(ref)
            if text is not None:
                found[ref] = text
                waiting += REF_PATTERN.findall(text)
        return found

    async def read_back(self, identifier: str, is_answer: Callable[[str], bool]) -> ReadBack | None:
        """Search for the identifier, ever wider; failing that, page through the text that has it."""
        pattern = re.escape(identifier)
        ways: list[tuple[str, dict[str, Any]]] = [
            (SEARCH_TOOL, {"query": identifier}),
            (GREP_TOOL, {"pattern": pattern}),
            (GREP_TOOL, {"pattern": pattern, "context": 2, "limit": 20}),
        ]
        spent = 0
        for calls, (tool, arguments) in enumerate(ways, start=1):
            answer = await self._tools.call(tool, arguments)
            spent += self._counter.count_call(tool, arguments, answer)
            if is_answer(answer):
                return ReadBack(spent, calls)
        pages = [
            read
            for ref in await self.memory.reachable_refs()
            if identifier in (await self._text(ref) or "")
            and (read := await self._page_through(ref, is_answer)) is not None
        ]
        if not pages:
            return None
        cheapest = min(pages, key=lambda read: (read.tokens, read.calls))
        return ReadBack(spent + cheapest.tokens, calls + cheapest.calls)

    async def _page_through(self, ref: str, is_answer: Callable[[str], bool]) -> ReadBack | None:
        arguments: dict[str, Any] = {"ref": ref}
        spent = 0
        for calls in range(1, MAX_PAGES + 1):
            answer = await self._tools.call(READ_TOOL, arguments)
            spent += self._counter.count_call(READ_TOOL, arguments, answer)
            if is_answer(answer):
                return ReadBack(spent, calls)
            following = _NEXT_PAGE.search(answer)
            if following is None:
                return None
            arguments = {"ref": ref, "offset": int(following[1])}
            if following[2]:
                arguments["column"] = int(following[2])
        return None

    def spending(self) -> Spending:
        """Return what summaries have cost so far."""
        stats = self.memory.stats()
        return Spending(
            paid_input_tokens=stats.summarizer_input_tokens,
            paid_output_tokens=stats.summarizer_output_tokens,
            input_tokens=self._input_tokens,
            output_tokens=self._output_tokens,
            seconds=self._summarizer.seconds,
        )

    async def stored(self) -> Mapping[str, str]:
        """Return what is in the store."""
        return {ref: await self.memory.store.read(ref) for ref in await self.memory.store.refs()}

    async def aclose(self) -> None:
        """Close the summariser's clients."""
        await self.memory.aclose()

    def _note(self, event: CompressionEvent) -> None:
        self.events.append(event)
        self._input_tokens += event.summary_input_tokens
        self._output_tokens += event.summary_output_tokens

    async def _text(self, ref: str) -> str | None:
        """Return a stored text; None where the memory has none of that ref."""
        if ref not in self._texts:  # a ref is a content address: what it names never changes
            try:
                self._texts[ref] = await self.memory.read_ref(ref)
            except OffloadError:
                return None
        return self._texts[ref]


class _TimedSummarizer:
    """Take the time of a summariser."""

    def __init__(self, summarizer: Summarizer) -> None:
        self.wrapped = summarizer
        self.remote = summarizer.remote
        self.seconds = 0.0
        for optional in ("max_input_tokens", "takes_attempts"):
            if hasattr(summarizer, optional):
                setattr(self, optional, getattr(summarizer, optional))

    async def summarize(self, request: SummaryRequest) -> Summary:
        began = time.perf_counter()
        try:
            return await self.wrapped.summarize(request)
        finally:
            self.seconds += time.perf_counter() - began

    async def aclose(self) -> None:
        close = getattr(self.wrapped, "aclose", None)
        if close is not None:
            await close()


SYSTEMS: dict[str, Callable[[int, CachedCounter], System]] = {
    "raw": lambda _budget, _counter: PlainSystem(),
    "sliding": Sliding,
    "masking": lambda _budget, _counter: Masking(),
    "ours": Ours,
}
"""How to make each system, from a budget in tokens and what counts them."""
