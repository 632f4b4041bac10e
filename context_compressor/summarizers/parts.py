"""`InParts`: summaries of requests that are larger than what their summariser reads."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from context_compressor.errors import SummarizerError, SummarizerOverflowError
from context_compressor.messages.exchanges import ExchangeBuilder
from context_compressor.messages.msg import Block, Msg, segment_metadata, tool_names
from context_compressor.summarizers.attempts import Paid, charge_call, current_attempts, paying
from context_compressor.summarizers.checking import summarize_checked
from context_compressor.summarizers.prompts import (
    build_prompt,
    render_arguments,
    render_conversation,
    render_output,
)
from context_compressor.summarizers.protocol import Summarizer, Summary, SummaryRequest, name_of
from context_compressor.summarizers.provider import answer_room
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.off_loop import gather, run_off_loop, text_characters

CONCURRENT_CALLS = 4
MAX_DEPTH = 6
"""How often a part may be split again, or summaries be joined: 2 ** 6 is more than one event's attempts."""
MIN_ROOM_TOKENS = 128
"""In smaller parts the task would take more room than the messages."""
_FILL = 0.9
"""How much of a limit is used: the model's vocabulary is not our counter's."""
_PART_SHARE = 4
"""A part's summary may have one of so many parts of what can be read, so that joining them makes headway."""
_CONTEXT_SHARE = 5
"""What goes with each part to explain it may have one of so many parts of what can be read."""
_CHAT_TOKENS = 16


@dataclass(frozen=True, slots=True)
class _Job:
    """What stays the same for all calls that one request leads to."""

    request: SummaryRequest
    slots: asyncio.Semaphore
    paid: Paid


class InParts:
    """Ask a summariser in parts for what is more than it reads.

    A request that fits costs nothing extra; with `max_input_tokens` unknown it is not even counted. One that
    does not, by `max_input_tokens` or by the provider's `SummarizerOverflowError`, is split between
    exchanges; the parts are summarised side by side, and their summaries into one, in steps where they are
    many. Instructions, note, request and what context fits go with every part; the earlier summary goes where
    the parts are joined. Every partial summary is checked like a whole one. A part that fails fails the
    whole, since what it covers would be lost. A limit that a provider names is kept in mind.
    """

    takes_attempts = True

    def __init__(self, summarizer: Summarizer, counter: TokenCounter) -> None:
        self.wrapped = summarizer
        self.remote = summarizer.remote
        self.quotes = getattr(summarizer, "quotes", False)
        self._counter = counter
        if getattr(summarizer, "counter", self) is None:
            summarizer.counter = counter  # type: ignore[attr-defined]  # so that it tells limits in our tokens
        self._named_limit: int | None = None

    async def summarize(self, request: SummaryRequest) -> Summary:
        """Return a summary of `request.messages`; its token counts are those of all calls.

        Raises:
            SummarizerError: the summariser failed; the text says at which part of how many.
        """
        limit = self._limit(request)
        if limit is None or await self._count(request) <= _FILL * limit:
            try:
                charge_call(self.wrapped)
                return await self.wrapped.summarize(request)
            except SummarizerOverflowError as error:
                limit = await self._smaller_limit(request, error)
        with paying(self) as paid:
            kept = await self._with_less_context(request, limit)
            job = _Job(kept, asyncio.Semaphore(CONCURRENT_CALLS), paid)
            text = await self._summarize_parts(job, limit)
        return Summary(text, paid.input_tokens, paid.output_tokens)

    # Limits

    def _limit(self, request: SummaryRequest) -> int | None:
        """Return how many tokens may be sent, None when that is not known."""
        known: int | None = getattr(self.wrapped, "max_input_tokens", None)
        if self._named_limit is None:
            return known
        named = _less_room(self._named_limit, request.max_tokens)
        return named if known is None else min(known, named)

    async def _smaller_limit(self, request: SummaryRequest, error: SummarizerOverflowError) -> int:
        """Return how much to send after so much was too much."""
        sent = await self._count(request)
        if error.limit_tokens is None:
            return sent // 2
        self._named_limit = min(error.limit_tokens, self._named_limit or error.limit_tokens)
        limit = _less_room(error.limit_tokens, request.max_tokens)
        # By our counter it fitted, so theirs counts more, and the limit in our tokens is below theirs.
        return limit if limit < sent else sent // 2

    async def _count(self, request: SummaryRequest) -> int:
        def count() -> int:
            prompt = build_prompt(request, self._counter)
            tokens = self._counter.count_text(prompt.system) + self._counter.count_text(prompt.user)
            return tokens + _CHAT_TOKENS

        return await run_off_loop(text_characters(request.messages), count)

    async def _count_material(self, messages: Sequence[Msg]) -> int:
        return await run_off_loop(text_characters(messages), count_material, messages, self._counter)

    async def _room(self, request: SummaryRequest, limit: int) -> int:
        """Return how many tokens of messages a prompt of at most `limit` tokens can hold.

        Raises:
            SummarizerError: too few.
        """
        frame = await self._count(replace(request, messages=()))
        room = int(_FILL * limit) - frame
        if room < MIN_ROOM_TOKENS:
            raise SummarizerError(
                f"{name_of(self.wrapped)} reads {limit} tokens, of which its task takes {frame} and leaves "
                f"{max(0, room)}; parts need at least {MIN_ROOM_TOKENS}"
            )
        return room

    # Parts

    async def _with_less_context(self, request: SummaryRequest, limit: int) -> SummaryRequest:
        """Return a request with what of the view's context may go with each part, the newest first."""
        kept = replace(request, context=(), request=None)
        frame = replace(kept, messages=(), previous=None)
        most = await self._count(frame) + await self._room(frame, limit) // _CONTEXT_SHARE
        for at in range(len(request.context), -1, -1):
            context, asked = request.context[at:], request.request
            if await self._count(replace(frame, context=context, request=asked)) > most:
                break
            kept = replace(request, context=context, request=asked)
        return kept

    async def _summarize_parts(self, job: _Job, limit: int) -> str:
        request = job.request
        messages = list(request.messages)
        previous = request.previous
        room = await self._room(replace(request, previous=None), limit)
        if previous and self._counter.count_text(previous) > room // _PART_SHARE:
            # Too large to stand beside the parts' summaries, so it becomes the first thing to sum up.
            messages.insert(0, _segment(previous))
            previous = None
        texts = await self._map(job, messages, room)
        return await self._reduce(job, texts, previous, limit)

    async def _map(self, job: _Job, messages: Sequence[Msg], room: int, depth: int = 0) -> list[str]:
        """Return a summary of each part of the messages, in order; parts that are too long give several."""
        parts = await asyncio.to_thread(split_messages, messages, room, self._counter)
        left = current_attempts().left
        if self.remote and len(parts) > left:
            raise SummarizerError(
                f"{len(parts)} parts to summarise, and {left} attempts of this event are left"
            )

        async def summarize(number: int, part: Part) -> list[str]:
            try:
                return await self._summarize_part(job, part, room, depth)
            except SummarizerError as error:
                raise SummarizerError(f"part {number} of {len(parts)}: {error}") from error

        found = await gather([summarize(number, part) for number, part in enumerate(parts, 1)])
        return [text for texts in found for text in texts]

    async def _summarize_part(self, job: _Job, part: Part, room: int, depth: int) -> list[str]:
        most = min(job.request.max_tokens, max(1, room // _PART_SHARE))
        asked = replace(job.request, messages=part, previous=None, max_tokens=most)
        try:
            return [await self._ask(job, asked)]
        except SummarizerOverflowError as error:
            limit = await self._smaller_limit(asked, error)
            if depth >= MAX_DEPTH:
                raise SummarizerError(f"still too long after {depth} splits: {error}") from error
        tokens = await self._count_material(part)
        smaller = min(await self._room(asked, limit), tokens // 2)
        if smaller < MIN_ROOM_TOKENS:
            raise SummarizerError(f"still too long with {tokens} tokens of messages")
        return await self._map(job, part, smaller, depth + 1)

    async def _reduce(self, job: _Job, texts: list[str], previous: str | None, limit: int) -> str:
        """Return one summary of many, joining neighbours until all fit into one request."""
        for depth in range(MAX_DEPTH):
            joined = replace(job.request, messages=tuple(map(_segment, texts)), previous=previous)
            try:
                if await self._count(joined) <= _FILL * limit:
                    return await self._ask(job, joined)
            except SummarizerOverflowError as error:
                limit = await self._smaller_limit(joined, error)
            except SummarizerError as error:
                raise SummarizerError(f"joining {len(texts)} partial summaries: {error}") from error
            room = await self._room(replace(joined, previous=None), limit)
            texts = await self._map(job, joined.messages, room, depth)
        raise SummarizerError(f"{len(texts)} partial summaries are still too long to be joined")

    async def _ask(self, job: _Job, request: SummaryRequest) -> str:
        tokens = await self._count_material(request.messages)
        async with job.slots:
            answer = await summarize_checked(
                self.wrapped,
                request,
                self._counter,
                # Whether the whole gains is for the caller to judge; a small part may not.
                replaced_tokens=max(tokens, request.max_tokens) + 1,
                input_tokens_estimate=tokens,
            )
        job.paid.add(answer.input_tokens, answer.output_tokens)
        return answer.text


def _less_room(limit: int, max_tokens: int) -> int:
    """Return what a limit leaves for the prompt, the answer's room being part of it as a rule."""
    return max(limit - answer_room(max_tokens), limit // 2)


def _segment(text: str) -> Msg:
    """Return a partial summary as a message that is rendered, and carried forward, like any summary."""
    return Msg("memory", text, "user", segment_metadata(), timestamp="", id="")


Part = tuple[Msg, ...]

_MIN_LINE_SHARE = 0.5
"""A piece ends with a line where that leaves it at least this much of its room."""
_SHRINK = 0.8
"""A piece that is too long keeps this share of its length at most; one that fills less of its room grows."""


def count_material(messages: Sequence[Msg], counter: TokenCounter) -> int:
    """Return what messages cost as a prompt shows them."""
    return counter.count_text(render_conversation(messages)) if messages else 0


def split_messages(messages: Sequence[Msg], room: int, counter: TokenCounter) -> list[Part]:
    """Return the messages in parts of at most `room` tokens each, of about the same size, in order.

    A piece smaller than one character's tokens cannot be made; `room` should be some hundred.
    """
    units: list[tuple[Part, int]] = []
    for exchange in _exchanges(messages):
        tokens = count_material(exchange, counter)
        if tokens <= room:
            units.append((exchange, tokens))
        else:
            units += _split_exchange(exchange, room, counter)
    return _pack(units, room)


def _exchanges(messages: Sequence[Msg]) -> Iterator[Part]:
    """Yield runs of messages that stay together; the messages are those given, not repaired ones."""
    given = {str(index): msg for index, msg in enumerate(messages)}
    builder = ExchangeBuilder()
    exchanges = [exchange for key, msg in given.items() for exchange in builder.feed(key, msg)]
    for exchange in [*exchanges, *builder.flush()]:
        # One message may be part of two exchanges; empty ones are part of none.
        if run := tuple(given.pop(key) for key in dict.fromkeys(m.key for m in exchange) if key in given):
            yield run


def _pack(units: Sequence[tuple[Part, int]], room: int) -> list[Part]:
    """Join neighbours into parts that are as few as fit, and of about the same size."""
    total = sum(tokens for _, tokens in units)
    share = total / max(1, math.ceil(total / room))
    parts: list[Part] = []
    current: list[Msg] = []
    used = done = 0
    for unit, tokens in units:
        if current and (used + tokens > room or done + tokens / 2 > share * (len(parts) + 1)):
            parts.append(tuple(current))
            current, used = [], 0
        current += unit
        used += tokens
        done += tokens
    return [*parts, tuple(current)] if current else parts


def _split_exchange(exchange: Part, room: int, counter: TokenCounter) -> Iterator[tuple[Part, int]]:
    names = tool_names(exchange)
    for msg in exchange:
        named = _with_result_names(msg, names)
        tokens = count_material([named], counter)
        if tokens <= room:
            yield (named,), tokens
            continue
        for block, key, text in _texts(named):
            yield from _split_text_of(named, block, key, text, room, counter)


def _texts(msg: Msg) -> Iterator[tuple[Block, str, str]]:
    """Yield the texts of a message, each with the block that is to hold a piece of it, and the key there."""
    quoting: Block = {"type": "text"}
    for block in msg.get_content_blocks():
        kind = block.get("type")
        if kind == "tool_result":
            yield block, "output", render_output(block["output"])
        elif kind == "tool_use":
            # A piece of arguments is no longer a call with arguments; it reads as one that is quoted.
            yield quoting, "text", f"call of {block['name']}: {render_arguments(block)}"
        elif kind == "text":
            yield block, "text", block["text"]
        elif kind != "thinking":
            yield quoting, "text", render_output([block])


def _split_text_of(
    msg: Msg, block: Block, key: str, text: str, room: int, counter: TokenCounter
) -> Iterator[tuple[Part, int]]:
    def part_of(piece: str) -> Part:
        other = msg.copy()
        other.content = [{**block, key: piece}]
        return (other,)

    for piece, tokens in split_text(text, room, lambda piece: count_material(part_of(piece), counter)):
        yield part_of(piece), tokens


def _with_result_names(msg: Msg, names: dict[str, str]) -> Msg:
    """Return a message whose results bear the names of their tools, which the calls will no longer tell."""
    if isinstance(msg.content, str) or not any(block.get("id") in names for block in msg.content):
        return msg
    other = msg.copy()
    other.content = [
        {**block, "name": names[block["id"]]}
        if block.get("type") == "tool_result" and block["id"] in names
        else block
        for block in msg.content
    ]
    return other


def split_text(text: str, room: int, count: Callable[[str], int]) -> Iterator[tuple[str, int]]:
    """Yield `text` in pieces of at most `room` tokens, and what each costs, ended by lines if it can be."""
    start = 0
    length = max(1, room)
    while start < len(text):
        piece = text[start : start + length]
        tokens = count(piece)
        if tokens > room and len(piece) > 1:
            length = max(1, int(len(piece) * min(_SHRINK, room / tokens)))
            continue
        if start + len(piece) < len(text):
            if tokens < _SHRINK * room:
                longer = text[start : start + max(length + 1, int(length * min(4.0, room / max(1, tokens))))]
                if count(longer) <= room:
                    length = len(longer)
                    continue
            end = piece.rfind("\n") + 1
            if end >= _MIN_LINE_SHARE * len(piece):
                piece = piece[:end]
                tokens = count(piece)
        yield piece, tokens
        start += len(piece)
