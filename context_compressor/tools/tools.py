"""`OffloadTools`: the tools by which an agent finds and reads back what left its view."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, get_args

from context_compressor.errors import (
    ContextCompressorError,
    InvalidArgumentError,
    OffloadError,
    check_members,
)
from context_compressor.events import NoteFate
from context_compressor.memory.loops import Face
from context_compressor.messages.forms import FORMS
from context_compressor.messages.media import (
    encoded_media,
    is_data_url,
    kind_of_media,
    media_type_of,
    source_of,
    url_of,
)
from context_compressor.messages.msg import Block, Msg, copy_json
from context_compressor.messages.speech import loaded_note
from context_compressor.messages.text import sendable
from context_compressor.offload.guide import (
    COMPRESS_TOOL,
    GREP_TOOL,
    LOAD_TOOL,
    READ_TOOL,
    ROLES,
    SCHEMAS,
    SEARCH_TOOL,
)
from context_compressor.search.hits import hits_page
from context_compressor.tokens.off_loop import load_off_loop
from context_compressor.tools.arguments import Arguments, FinalAnswer, as_arguments, show_value
from context_compressor.tools.grep import (
    SEARCH_SECONDS,
    PatternError,
    TextMatches,
    compile_pattern,
    search_page,
    search_text,
)
from context_compressor.tools.reading import read_page
from context_compressor.tools.source import (
    NEWEST_NAMED,
    SOURCE_MEMBERS,
    Allowance,
    OffloadSource,
    can,
    find_ref,
    text_of,
)

if TYPE_CHECKING:
    import regex

Wire = Literal["openai", "chat", "responses", "anthropic", "dashscope"]

GREP_TOKENS = 300
"""What a search of texts answers unless `limit` asks for more: enough to see where to read on. Where the
first match with its context takes more, it may have a page."""
MAX_CONTEXT_LINES = 50
SEARCH_TOKENS = 220
"""What a search of the history answers unless `limit` asks for more: three to five passages, of which the
first is mostly the one."""
MAX_HITS = 50
_DEFAULT_HITS = 5

_NOTE_ANSWERS: dict[NoteFate, str] = {
    "kept": "The note was kept.",
    "cut": "There was no room for all of the note.",
    "dropped": "The note was not kept: there was no room for it.",
}


def _chat_schema(function: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": function}


def _responses_schema(function: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", **function, "strict": False}


def _anthropic_schema(function: dict[str, Any]) -> dict[str, Any]:
    named = {key: function[key] for key in ("name", "description")}
    return {**named, "input_schema": function["parameters"]}


_SHAPES = {"responses": _responses_schema, "anthropic": _anthropic_schema}
_ALL_NAMES = [schema["function"]["name"] for schema in SCHEMAS]


def schemas_in(wire: str) -> list[Any]:
    """Return the schemas of all tools in a wire's form; a copy each time."""
    shape = _SHAPES.get(wire, _chat_schema)
    return [shape(copy_json(schema["function"])) for schema in SCHEMAS]


class OffloadTools:
    """Give an agent `read_offloaded`, `grep_offloaded` and `load_offloaded` over what one memory offloaded.

    Over a `CompressedMemory` there are two more: `search_history`, which looks through the whole history, and
    `compress_context`, by which the agent asks for compression when a task is done.

    A tool's answer is text. What `load_offloaded` brings back, an image say, providers accept in a user's
    message only: add what `attachment` returns behind the results.

    Args:
        memory: a `CompressedMemory`, or anything with the members of `OffloadSource`.
        wire: the form of schemas and of what `load` and `attachment` give: that of chat completions ("chat",
            or "openai"), "responses", "anthropic", or of DashScope's own multimodal endpoint ("dashscope").

    Raises:
        InvalidArgumentError: `memory` lacks members of `OffloadSource`, or there is no such wire.
    """

    def __init__(self, memory: OffloadSource, wire: Wire = "openai") -> None:
        check_members("memory", memory, "a CompressedMemory", SOURCE_MEMBERS)
        if wire not in get_args(Wire):
            raise InvalidArgumentError(f"wire: expected one of {', '.join(get_args(Wire))}, got {wire!r:.99}")
        self._memory = memory
        self._wire = wire
        self._face: Face = getattr(memory, "face", None) or Face()
        offer = getattr(memory, "offer_tools", None)
        if offer is not None:
            offer()
        self._allowance = Allowance(memory)
        self._names = [READ_TOOL, GREP_TOOL, LOAD_TOOL]
        if can(memory, "search_history"):
            self._names.append(SEARCH_TOOL)
        if can(memory, "compress_now"):
            self._names.append(COMPRESS_TOOL)

    @property
    def names(self) -> frozenset[str]:
        """The names of the tools: whoever runs an agent's tools sends calls of these to `call`."""
        return frozenset(self._names)

    @property
    def schemas(self) -> list[Any]:
        """The tool schemas in the wire's form; a copy each time."""
        return [
            schema
            for schema, name in zip(schemas_in(self._wire), _ALL_NAMES, strict=True)
            if name in self._names
        ]

    async def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> str:
        """Run a tool and return its answer for the model: a page, or a sentence that says what is wrong.

        Never raises for what the model gave; an answer never costs more than a page.

        Args:
            name: the tool's name.
            arguments: a mapping, or the JSON text of one as it stands in a tool call.
        """
        self._face.take()
        return await self._call(name, arguments)

    async def _call(self, name: str, arguments: Mapping[str, Any] | str | None) -> str:
        await load_off_loop(self._memory.counter)
        try:
            if name not in self._names:
                raise FinalAnswer(f"There is no tool {show_value(name)} here; use {', '.join(self._names)}.")
            answer = await _HANDLERS[name](self, Arguments(name, as_arguments(arguments)))
        except (FinalAnswer, PatternError) as final:
            answer = str(final)
        # Half a surrogate pair, which models write as an escape, would make every later request fail.
        return self._allowance.clip(sendable(answer))

    def call_sync(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> str:
        """Return what `call` does, without asyncio, as `view_sync` does for views.

        Raises:
            LoopError: the memory is used with asyncio.
        """
        return self._face.run(self._call(name, arguments))

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
        """Return the user's message, in the wire's form, that belongs behind a call's result.

        That is the media that `load_offloaded` loads; None for any other tool, and where the call's answer
        says why nothing is shown.
        """
        if name != LOAD_TOOL:
            return None
        try:
            shown, block = await self._find_media(Arguments(name, as_arguments(arguments)))
        except FinalAnswer:
            return None
        return self._message(loaded_note(shown, LOAD_TOOL), block)

    # What each tool answers; FinalAnswer and PatternError say what is wrong.

    async def _read(self, arguments: Arguments) -> str:
        arguments.check("ref", "offset", "limit", "column")
        offset, column = arguments.integer("offset") or 1, arguments.integer("column") or 1
        limit = arguments.integer("limit")
        ref = await find_ref(self._memory, arguments.required("ref"))
        room = self._allowance.room()
        text = await text_of(self._memory, ref)
        if is_data_url(text):
            raise FinalAnswer(f"{ref} is {media_type_of(text) or 'no text'}: show it with {LOAD_TOOL}.")
        counter = self._memory.counter
        return await asyncio.to_thread(
            read_page, text, ref, counter, max_tokens=room, offset=offset, column=column, limit=limit
        )

    async def _grep(self, arguments: Arguments) -> str:
        arguments.check("pattern", "ref", "ignore_case", "context", "limit")
        given = arguments.text("pattern")
        context = min(arguments.integer("context", least=0) or 0, MAX_CONTEXT_LINES)
        limit = arguments.integer("limit")
        pattern = await asyncio.to_thread(compile_pattern, given, arguments.flag("ignore_case"))
        if (named := arguments.get("ref")) is None:
            refs = await self._memory.reachable_refs()
        else:
            refs = [await find_ref(self._memory, named)]
        room = self._allowance.room()
        unreadable: list[str] = []
        # The only text, asked for by name, cannot be read: that is the answer.
        found, was_stopped = await self._matches(refs, pattern, unreadable if named is None else None)
        if not found:
            return _nothing_found(given, refs, unreadable, was_stopped, named is None)
        ages = await self._memory.ages_of_refs() if can(self._memory, "ages_of_refs") else {}
        return await asyncio.to_thread(
            search_page,
            found,
            self._memory.counter,
            max_tokens=room if limit else min(room, GREP_TOKENS),
            first_max_tokens=room,
            limit=limit,
            context=context,
            stopped_seconds=ceil(SEARCH_SECONDS) if was_stopped else 0,
            unreadable=len(unreadable),
            ages=ages,
            of_all=named is None,
        )

    async def _matches(
        self, refs: Sequence[str], pattern: regex.Pattern[str], unreadable: list[str] | None
    ) -> tuple[list[TextMatches], bool]:
        """Search texts one after the other; return those with matches, and whether the time was over before
        all was searched. Refs of texts that cannot be read go to `unreadable`, if there is such a list.
        """
        seconds_left = SEARCH_SECONDS
        texts: list[TextMatches] = []
        for ref in refs:
            if seconds_left <= 0:
                return texts, True
            try:
                text = await text_of(self._memory, ref)
            except FinalAnswer:
                if unreadable is None:
                    raise
                unreadable.append(ref)
                continue
            if is_data_url(text):
                continue
            left_out = [] if unreadable is None else self._own_words(ref, text)
            searched = await asyncio.to_thread(search_text, text, ref, pattern, seconds_left, left_out)
            if searched.matches:
                texts.append(searched)
            if searched.timed_out:
                return texts, True
            seconds_left -= searched.seconds
        return texts, False

    def _own_words(self, ref: str, text: str) -> Sequence[tuple[int, int]]:
        """Return where a text holds words of the memory, which only repeat what other texts say."""
        return self._memory.own_words_in(ref, text) if can(self._memory, "own_words_in") else []

    async def _load(self, arguments: Arguments) -> str:
        name, block = await self._find_media(arguments)
        url = _url_in(block) or ""
        return f"{name} ({media_type_of(url) or block['type']}) follows as a message of the user."

    async def _find_media(self, arguments: Arguments) -> tuple[str, Block]:
        """Return the ref, URL or file id of media, and a block that shows them."""
        arguments.check("ref")
        given = arguments.required("ref")
        block = None
        if isinstance(given, str) and can(self._memory, "find_media"):
            block = await self._memory.find_media(name := given.strip())
        if block is None:
            name = await find_ref(self._memory, given)
            url = await text_of(self._memory, name)
            if not is_data_url(url):
                raise FinalAnswer(f"{name} is a text: read it with {READ_TOOL}.")
            block = _media_block(url)
        shown = Msg("user", [block], "user", timestamp="", id="")
        # Megabytes are read through, to be sure that they are media.
        tokens = await asyncio.to_thread(self._memory.counter.count_messages, [shown])
        if tokens > (allowed := self._allowance.standing_tokens):
            raise FinalAnswer(
                f"{name} cannot be shown: it takes {tokens} tokens, and {allowed} are allowed. Do not retry."
            )
        return name, block

    def _part(self, url: str) -> dict[str, Any]:
        part: dict[str, Any] = self._message("", _media_block(url))["content"][-1]
        return part

    def _message(self, note: str, block: Block) -> dict[str, Any]:
        url = _url_in(block)
        if self._wire == "dashscope" and url:
            kind = kind_of_media(url) if is_data_url(url) else block["type"]
            return {"role": "user", "content": [{"text": note}, {kind: url}]}
        msg = Msg("user", [{"type": "text", "text": note}, copy_json(block)], "user")
        message: dict[str, Any] = FORMS.get(self._wire, FORMS["chat"]).write([msg])[0]
        return message

    async def _search(self, arguments: Arguments) -> str:
        assert can(self._memory, "search_history")
        arguments.check("query", "limit", "role")
        query = arguments.text("query")
        limit = arguments.integer("limit")
        role = arguments.one_of("role", ROLES)
        most = min(limit or _DEFAULT_HITS, MAX_HITS)
        # A memory of the user's own may not take roles.
        said_by: dict[str, Any] = {} if role is None else {"role": role}
        try:
            hits = await self._memory.search_history(query, limit=most, **said_by)
        except ContextCompressorError as error:
            return f"Not searched: {error}"
        if not hits:
            where = "in this conversation" if role is None else f"that the role {role} said"
            return f"Nothing {where} answers {show_value(query)}; try other words."
        room = self._allowance.room() if limit else min(self._allowance.room(), SEARCH_TOKENS)
        return await asyncio.to_thread(hits_page, hits, query, self._memory.counter, room)

    async def _compress(self, arguments: Arguments) -> str:
        assert can(self._memory, "compress_now")
        arguments.check("keep")
        keep = None if arguments.get("keep") is None else arguments.text("keep")
        try:
            event = await self._memory.compress_now(keep=keep)
        except ContextCompressorError as error:
            return f"Not compressed: {error}"
        if event is None:
            answer = "Nothing to compress: what is there is the latest, or noted already."
            return f"{answer} The note was not kept." if keep else answer
        answer = f"Compressed from {event.tokens_before} to {event.tokens_after} tokens."
        return f"{answer} {_NOTE_ANSWERS[event.note]}" if event.note else answer


_HANDLERS: dict[str, Callable[[OffloadTools, Arguments], Awaitable[str]]] = {
    READ_TOOL: OffloadTools._read,
    GREP_TOOL: OffloadTools._grep,
    LOAD_TOOL: OffloadTools._load,
    SEARCH_TOOL: OffloadTools._search,
    COMPRESS_TOOL: OffloadTools._compress,
}


def _nothing_found(
    pattern: str, refs: Sequence[str], unreadable: Sequence[str], was_stopped: bool, of_all: bool
) -> str:
    if was_stopped:
        return (
            f"The search for {show_value(pattern)} was stopped after {SEARCH_SECONDS:g} s, nothing found. "
            "Simplify the pattern (nested repeats such as (a+)+ take for ever), or name a ref."
        )
    if not refs:
        return "Nothing has left this conversation yet, so there is nothing to search."
    where = refs[0] if len(refs) == 1 else f"any of {len(refs)} stored texts"
    answer = f"No line matches {show_value(pattern)} in {where}."
    if of_all:
        answer += " What stands in view was not searched."
    if unreadable:
        answer += f" {len(unreadable)} could not be read: {', '.join(unreadable[:NEWEST_NAMED])}."
    return answer


def _url_in(block: Block) -> str | None:
    """Return the URL (or data URL) by which a block shows media; None if it names a file id."""
    media = encoded_media(block)
    url = url_of(block.get("source") or {}) or (block.get("file") or {}).get("file_data")
    return url if media is None else media.url


def _media_block(url: str) -> Block:
    kind = kind_of_media(url)
    if kind == "file":
        ending = media_type_of(url).rpartition("/")[2] or "bin"
        return {"type": "file", "file": {"filename": f"offloaded.{ending}", "file_data": url}}
    return {"type": kind, "source": source_of(url)}
