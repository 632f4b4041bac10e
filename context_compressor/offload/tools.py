"""`OffloadTools`: the tools by which an agent finds and reads back what left its view."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import ceil
from typing import Any, Literal, Protocol, get_args

from context_compressor.errors import (
    InvalidArgumentError,
    OffloadCorruptError,
    OffloadError,
    OffloadNotFoundError,
)
from context_compressor.messages.escapes import sendable
from context_compressor.messages.media import is_data_url, kind_of_media, media_type_of
from context_compressor.messages.msg import Block, Msg, copy_json
from context_compressor.messages.openai_parts import block_to_part, source_of
from context_compressor.offload.arguments import Arguments, FinalAnswer, as_arguments, show_value
from context_compressor.offload.fitting import largest_fitting
from context_compressor.offload.history_tools import (
    answer_compress,
    answer_search,
    can_compress,
    can_search,
)
from context_compressor.offload.protocol import REF_PREFIX
from context_compressor.offload.reading import read_page
from context_compressor.offload.schemas import (
    COMPRESS_TOOL,
    GREP_TOOL,
    LOAD_TOOL,
    READ_TOOL,
    SCHEMAS,
    SEARCH_TOOL,
)
from context_compressor.offload.searching import (
    SEARCH_SECONDS,
    PatternError,
    TextMatches,
    compile_pattern,
    search_page,
    search_text,
)
from context_compressor.tokens.protocol import TokenCounter

MAX_PAGE_TOKENS = 2000
"""A page of this size holds some 200 lines of code; what needs more is better searched."""
PAGES_PER_BUDGET = 8
"""A page takes at most this part of the budget, below the quarter at which a result is offloaded on arrival:
what the agent reads back must not leave again at once."""
STANDING_SHARE = 4
"""All pages in the view take at most this part of the budget; the rest stays for the conversation."""
MIN_PAGE_TOKENS = 100
"""Below this, a page is mostly frame: refuse rather than shrink further."""
GREP_TOKENS = 300
"""What a search answers unless `limit` asks for more: enough to see where to read on. Where the first match
with its context takes more, it may have a page."""
MAX_CONTEXT_LINES = 50

Wire = Literal["openai", "dashscope"]

_NEWEST_NAMED = 5
_HEX_REF = re.compile(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])")


class OffloadSource(Protocol):
    """What the tools need of a memory."""

    @property
    def counter(self) -> TokenCounter:
        """What pages are counted by."""
        ...

    @property
    def budget_tokens(self) -> int:
        """What a view may cost."""
        ...

    async def reachable_refs(self) -> list[str]:
        """Return every ref that the memory's ledger reaches, newest first."""
        ...

    async def read_ref(self, ref: str) -> str:
        """Return the text under a reachable ref.

        Raises:
            OffloadNotFoundError: the text is gone.
            OffloadError: it could not be read.
        """
        ...

    def standing_page_tokens(self) -> int:
        """Return the tokens of the pages that stand in the view."""
        ...


_SOURCE_MEMBERS = ("counter", "budget_tokens", "reachable_refs", "read_ref", "standing_page_tokens")


class OffloadTools:
    """Give an agent `read_offloaded`, `grep_offloaded` and `load_offloaded` over what one memory offloaded.

    Over a `CompressedMemory` there are two more: `search_history`, which looks through the whole history, and
    `compress_context`, by which the agent asks for compression when a task is done.

    A tool's answer is text. What `load_offloaded` brings back, an image say, providers accept in a user's
    message only: add what `attachment` returns behind the results.

    Args:
        memory: a `CompressedMemory`, or anything with the members of `OffloadSource`.
        wire: the form of the content parts that `load` and `attachment` give: those of chat completions
            ("openai"), or of DashScope's own multimodal endpoint ("dashscope").

    Raises:
        InvalidArgumentError: `memory` lacks members of `OffloadSource`, or there is no such wire.
    """

    def __init__(self, memory: OffloadSource, wire: Wire = "openai") -> None:
        missing = [member for member in _SOURCE_MEMBERS if not hasattr(memory, member)]
        if missing:
            raise InvalidArgumentError(
                f"memory: a {type(memory).__name__} is no CompressedMemory; it lacks {', '.join(missing)}"
            )
        if wire not in get_args(Wire):
            raise InvalidArgumentError(f"wire: expected one of {', '.join(get_args(Wire))}, got {wire!r}")
        self._memory = memory
        self._wire = wire
        self._handlers: dict[str, Callable[[Arguments], Awaitable[str]]] = {
            READ_TOOL: self._read,
            GREP_TOOL: self._grep,
            LOAD_TOOL: self._load,
        }
        if can_search(memory):
            self._handlers[SEARCH_TOOL] = partial(answer_search, memory, self._room)
        if can_compress(memory):
            self._handlers[COMPRESS_TOOL] = partial(answer_compress, memory)

    @property
    def names(self) -> frozenset[str]:
        """The names of the tools: whoever runs an agent's tools sends calls of these to `call`."""
        return frozenset(self._handlers)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tool schemas in OpenAI's form; a copy each time."""
        offered = [schema for schema in SCHEMAS if schema["function"]["name"] in self._handlers]
        copied: list[dict[str, Any]] = copy_json(offered)
        return copied

    async def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> str:
        """Run a tool and return its answer for the model: a page, or a sentence that says what is wrong.

        Never raises for what the model gave; an answer never costs more than a page.

        Args:
            name: the tool's name.
            arguments: a mapping, or the JSON text of one as it stands in a tool call.
        """
        try:
            handler = self._handlers.get(name) if isinstance(name, str) else None
            if handler is None:
                raise FinalAnswer(
                    f"There is no tool {show_value(name)} here; use {', '.join(self._handlers)}."
                )
            answer = await handler(Arguments(name, as_arguments(arguments)))
        except FinalAnswer as final:
            answer = str(final)
        except PatternError as error:
            answer = str(error)
        # Half a surrogate pair, which models write as an escape, would make every later request fail.
        return self._clip(sendable(answer))

    async def load(self, ref: str) -> dict[str, Any]:
        """Return offloaded media as a content part: `image_url`, `input_audio` and so on.

        Raises:
            OffloadNotFoundError: the ref is malformed, or not one of this memory's.
            OffloadError: it cannot be read, or what it names is a text.
        """
        url = await self._memory.read_ref(ref)
        if not is_data_url(url):
            raise OffloadError(f"{ref} is a text, no image, audio, video or file; {READ_TOOL} shows it")
        return self._part(url)

    async def attachment(
        self, name: str, arguments: Mapping[str, Any] | str | None = None
    ) -> dict[str, Any] | None:
        """Return the user's message (a chat dict) that belongs behind a call's result.

        That is the media that `load_offloaded` loads; None for any other tool, and where the call's answer
        says why nothing is shown.

        Args:
            name: the tool's name, as for `call`.
            arguments: its arguments, as for `call`.
        """
        if name != LOAD_TOOL:
            return None
        try:
            ref, url = await self._loaded(Arguments(name, as_arguments(arguments)))
        except FinalAnswer:
            return None
        note = f"[{ref}, loaded by {LOAD_TOOL}]"
        text = {"text": note} if self._wire == "dashscope" else {"type": "text", "text": note}
        return {"role": "user", "content": [text, self._part(url)]}

    def _part(self, url: str) -> dict[str, Any]:
        if self._wire == "dashscope":
            return {kind_of_media(url): url}
        return block_to_part(_media_block(url))

    @property
    def _page_tokens(self) -> int:
        return min(MAX_PAGE_TOKENS, self._memory.budget_tokens // PAGES_PER_BUDGET)

    def _clip(self, answer: str) -> str:
        """Cut a sentence that is longer than a page may be; pages are made to fit."""
        count, limit = self._memory.counter.count_text, self._page_tokens
        if count(answer) <= limit:
            return answer
        return answer[: largest_fitting(lambda n: count(answer[:n]), len(answer), limit, limit * 3)]

    def _room(self) -> int:
        """Return what the next page may cost, in tokens.

        Raises:
            FinalAnswer: the pages in the view leave too little.
        """
        allowed = self._memory.budget_tokens // STANDING_SHARE
        standing = self._memory.standing_page_tokens()
        room = min(self._page_tokens, allowed - standing)
        if room < min(MIN_PAGE_TOKENS, self._page_tokens):
            raise FinalAnswer(
                f"Not shown: pages already in view take {standing} of the {allowed} tokens allowed to pages. "
                "Work with those pages, and write down what you need from them. They make room when the "
                "conversation is next compressed; until then do not call this again."
            )
        return room

    async def _find_ref(self, given: object) -> str:
        """Return the reachable ref that the model meant, stray characters around it forgiven."""
        refs = await self._memory.reachable_refs()
        digits: set[str] = set(_HEX_REF.findall(given.lower())) if isinstance(given, str) else set()
        if len(digits) == 1 and (ref := REF_PREFIX + digits.pop()) in refs:
            return ref
        if not refs:
            raise FinalAnswer(
                f"No text {show_value(given)}: nothing has left this conversation yet. Do not retry."
            )
        newest = ", ".join(refs[:_NEWEST_NAMED])
        raise FinalAnswer(
            f"No text {show_value(given)} is stored for this conversation, and a retry will not change that. "
            f"Stored, newest first ({len(refs)} in all): {newest}. {GREP_TOOL}(pattern) searches all of them."
        )

    async def _text(self, ref: str) -> str:
        try:
            return await self._memory.read_ref(ref)
        except OffloadNotFoundError:
            raise FinalAnswer(f"{ref} is no longer stored; do not ask for it again.") from None
        except OffloadCorruptError as error:
            raise FinalAnswer(f"{ref} is damaged in the store; go on without it.") from error
        except OffloadError as error:
            raise FinalAnswer(f"{ref} cannot be read from the store; go on without it.") from error

    async def _load(self, arguments: Arguments) -> str:
        ref, url = await self._loaded(arguments)
        return f"{ref} ({media_type_of(url) or kind_of_media(url)}) follows as a message of the user."

    async def _loaded(self, arguments: Arguments) -> tuple[str, str]:
        """Return the ref of media that can be shown, and their `data:` URL.

        Raises:
            FinalAnswer: there is nothing to show, or no room for it.
        """
        arguments.check("ref")
        ref = await self._find_ref(arguments.required("ref"))
        url = await self._text(ref)
        if not is_data_url(url):
            raise FinalAnswer(f"{ref} is a text: read it with {READ_TOOL}.")
        shown = Msg("user", [_media_block(url)], "user", timestamp="", id="")
        tokens = self._memory.counter.count_messages([shown])
        allowed = self._memory.budget_tokens // STANDING_SHARE
        if tokens > allowed:
            raise FinalAnswer(
                f"{ref} cannot be shown: it takes {tokens} tokens, and {allowed} are allowed. Do not retry."
            )
        return ref, url

    async def _read(self, arguments: Arguments) -> str:
        arguments.check("ref", "offset", "limit", "column")
        offset, column = arguments.integer("offset", 1), arguments.integer("column", 1)
        limit = arguments.integer("limit")
        ref = await self._find_ref(arguments.required("ref"))
        room = self._room()
        text = await self._text(ref)
        if is_data_url(text):
            raise FinalAnswer(f"{ref} is {media_type_of(text) or 'no text'}: show it with {LOAD_TOOL}.")
        return await asyncio.to_thread(
            read_page,
            text,
            ref,
            self._memory.counter,
            max_tokens=room,
            offset=offset or 1,
            column=column or 1,
            limit=limit,
        )

    async def _grep(self, arguments: Arguments) -> str:
        arguments.check("pattern", "ref", "ignore_case", "context", "limit")
        given = arguments.text("pattern")
        context = min(arguments.integer("context", 0, least=0) or 0, MAX_CONTEXT_LINES)
        limit = arguments.integer("limit")
        pattern = await asyncio.to_thread(compile_pattern, given, arguments.flag("ignore_case"))
        named = arguments.get("ref")
        refs = await self._memory.reachable_refs() if named is None else [await self._find_ref(named)]
        room = self._room()

        seconds_left = SEARCH_SECONDS
        found: list[TextMatches] = []
        unreadable: list[str] = []
        stopped = False
        for ref in refs:
            if stopped := stopped or seconds_left <= 0:
                break
            try:
                text = await self._text(ref)
            except FinalAnswer:
                if named is not None:
                    raise
                unreadable.append(ref)
                continue
            if is_data_url(text):
                continue
            searched = await asyncio.to_thread(search_text, text, ref, pattern, seconds_left)
            if searched.matches:
                found.append(searched)
            seconds_left -= searched.seconds
            stopped = searched.timed_out
        if not found:
            return _nothing_found(given, refs, unreadable, stopped)
        return await asyncio.to_thread(
            search_page,
            found,
            self._memory.counter,
            max_tokens=room if limit else min(room, GREP_TOKENS),
            first_max_tokens=room,
            limit=limit,
            context=context,
            stopped_seconds=ceil(SEARCH_SECONDS) if stopped else 0,
            unreadable=len(unreadable),
        )


def _media_block(url: str) -> Block:
    """Return media as a block, from their `data:` URL."""
    kind = kind_of_media(url)
    if kind == "file":
        ending = media_type_of(url).rpartition("/")[2] or "bin"
        return {"type": "file", "file": {"filename": f"offloaded.{ending}", "file_data": url}}
    return {"type": kind, "source": source_of(url)}


def _nothing_found(pattern: str, refs: list[str], unreadable: list[str], stopped: bool) -> str:
    if stopped:
        return (
            f"The search for {show_value(pattern)} was stopped after {SEARCH_SECONDS:g} s, nothing found. "
            "Simplify the pattern (nested repeats such as (a+)+ take for ever), or name a ref."
        )
    if not refs:
        return "Nothing has left this conversation yet, so there is nothing to search."
    where = refs[0] if len(refs) == 1 else f"any of {len(refs)} stored texts"
    answer = f"No line matches {show_value(pattern)} in {where}."
    if unreadable:
        answer += f" {len(unreadable)} could not be read: {', '.join(unreadable[:_NEWEST_NAMED])}."
    return answer
