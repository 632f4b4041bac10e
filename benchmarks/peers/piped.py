"""A system that runs in a process of its own, spoken to over its standard input and output.

Each line is a JSON object. A request has an `op`, and any answer may be `{"error": text}`:

- `start`, with the `budget` in tokens and the `folder` that is its home and where it works: `{"ready": true,
  "pid": n}`;
- `send`, with the `new` messages: `{"keep": n, "messages": [...], "stored": {name: text}, "seconds": s}`. The
  view is the first `n` messages of the view before and then these; `stored` has the texts put elsewhere
  since, and `seconds` is what the system itself took;
- `convert`, with `messages`: `{"messages": [...]}`, as they come back from the system's own form.

Before it answers, the process may ask: `count`, with `messages`, and gets `{"tokens": [...]}`; `summarize`,
with the `messages` and the `prompt`, the texts that a model would have read, and gets `{"text": summary}`.
A process is started for each session, or forked: `ForkServer` says what that asks of it.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from context_compressor.core.decide import GROWTH, LEAST_TOKENS, NOTES_SHARE
from context_compressor.lab.measure import CachedCounter, Chat, Spending, content_text
from context_compressor.messages.chat import from_openai
from context_compressor.summarizers.chain import ExtractiveSummarizer
from context_compressor.summarizers.protocol import SummaryRequest

from .processes import ForkServer, Process, SpawnedProcess

ANSWER_SECONDS = 300.0
"""After which a process that does not answer is given up."""


class PipedError(RuntimeError):
    """Report what a piped process reported, or that it is gone."""


AskModel = Callable[[str], Awaitable[str]]


class PipedSystem:
    """A system in another process; the run counts and summarises for it.

    A summary may cost what our notes may: `GROWTH` of what it replaces, at most `NOTES_SHARE` of the
    budget, and at least `LEAST_TOKENS`. What it replaces of earlier summaries it may repeat at full length,
    or a peer that summarises often would see them shrink to nothing.

    Args:
        name: what to call it in results.
        command: how to start the process, or the server that forks it.
        budget: tokens that a view should cost at most.
        counter: what they are counted by.
        ask: takes what a model is asked for a summary, and returns its answer; rules write when None.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str] | ForkServer,
        budget: int,
        counter: CachedCounter | None = None,
        ask: AskModel | None = None,
    ) -> None:
        self.name = name
        self._command = command
        self._budget = budget
        self._counter = CachedCounter() if counter is None else counter
        self._summarizer = ExtractiveSummarizer(self._counter.counter)
        self._ask_model = ask
        self._process: Process | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="peer-")
        self._view: list[Chat] = []
        self._stored: dict[str, str] = {}
        self._summaries: list[str] = []
        self._input_tokens = 0
        self._output_tokens = 0
        self._other_seconds = 0.0

    async def send(self, history: Sequence[Chat], new: Sequence[Chat]) -> list[Chat]:  # noqa: ARG002
        """Return what the process would send."""
        began, own_seconds = time.perf_counter(), 0.0
        try:
            answer = await self._ask({"op": "send", "new": list(new)})
            own_seconds = float(answer["seconds"])
        finally:
            # Neither summaries nor the pipe are the system's own time.
            self._other_seconds += time.perf_counter() - began - own_seconds
        self._view = self._view[: answer["keep"]] + answer["messages"]
        self._stored |= answer["stored"]
        return list(self._view)

    async def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        """Return messages as they come back from the system's own form."""
        answer = await self._ask({"op": "convert", "messages": list(messages)})
        return list(answer["messages"])

    def spending(self) -> Spending:
        """Return what summaries have cost so far; in `seconds`, all that was not the system's own time."""
        return Spending(
            input_tokens=self._input_tokens, output_tokens=self._output_tokens, seconds=self._other_seconds
        )

    async def stored(self) -> Mapping[str, str]:
        """Return what the system has put elsewhere."""
        return dict(self._stored)

    async def aclose(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            await process.aclose()
        self._folder.cleanup()

    async def _ask(self, request: Chat) -> Chat:
        """Return the answer to a request, and answer what the process asks before."""
        if self._process is None:
            folder = self._folder.name
            if isinstance(self._command, ForkServer):
                self._process = await self._command.start()
            else:
                self._process = await SpawnedProcess.start(self._command, folder)
            ready = await self._exchange({"op": "start", "budget": self._budget, "folder": folder})
            self._process.pid = ready.get("pid", self._process.pid)
        return await self._exchange(request)

    async def _exchange(self, request: Chat) -> Chat:
        message = request
        while True:
            answer = await self._line(message)
            operation = answer.get("op")
            if operation == "count":
                message = {"tokens": [self._counter.count(one) for one in answer["messages"]]}
            elif operation == "summarize":
                message = await self._summarize(answer["prompt"], answer["messages"])
            elif "error" in answer:
                raise PipedError(answer["error"])
            else:
                return answer

    async def _line(self, message: Chat) -> dict[str, Any]:
        process = self._process
        assert process is not None
        line = b""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                process.writer.write(json.dumps(message).encode() + b"\n")
                await process.writer.drain()
                line = await process.reader.readline()
        except ConnectionError:
            pass
        except TimeoutError:
            process.kill()
            raise PipedError(f"{self.name} did not answer within {ANSWER_SECONDS:.0f} s") from None
        if not line:
            raise PipedError(f"{self.name} ended without an answer: {await process.last_words()}")
        return dict(json.loads(line))

    async def _summarize(self, prompt: Sequence[str], messages: Sequence[Chat]) -> Chat:
        """Return a model's answer, or else what rules make of it; these carry earlier summaries forward."""
        if self._ask_model is not None:
            return self._noted(prompt, await self._ask_model("\n\n".join(prompt)))
        previous, others = [], []
        for message in messages:
            text = content_text(message)
            held = [summary for summary in self._summaries if summary in text]
            previous += held
            if not held:
                others.append(message)
        previous = list(dict.fromkeys(previous))
        wanted = int(self._counter.count_all(others) * GROWTH)
        wanted += sum(map(self._counter.counter.count_text, previous))
        request = SummaryRequest(
            messages=tuple(from_openai(_without_orphans(others))),
            max_tokens=max(LEAST_TOKENS, min(wanted, int(self._budget * NOTES_SHARE))),
            previous="\n\n".join(previous) or None,
        )
        text = (await self._summarizer.summarize(request)).text
        if text.strip():
            self._summaries.append(text)
        return self._noted(prompt, text)

    def _noted(self, prompt: Sequence[str], text: str) -> Chat:
        self._input_tokens += sum(map(self._counter.counter.count_text, prompt))
        self._output_tokens += self._counter.counter.count_text(text)
        return {"text": text}


def _without_orphans(messages: Sequence[Chat]) -> list[Chat]:
    """Return messages as a conversation, a result without an id as what a user says."""
    return [
        {"role": "user", "content": content_text(message)}
        if message.get("role") == "tool" and not message.get("tool_call_id")
        else message
        for message in messages
    ]
