"""`OffloadTools`: the tools by which an agent finds and reads back what left its view."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, get_args

from context_compressor.errors import InvalidArgumentError, OffloadError, check_members
from context_compressor.messages.media import is_data_url
from context_compressor.messages.msg import copy_json
from context_compressor.messages.speech import loaded_note
from context_compressor.messages.text import sendable
from context_compressor.offload.guide import (
    COMPRESS_TOOL,
    GREP_TOOL,
    LOAD_TOOL,
    READ_TOOL,
    SCHEMAS,
    SEARCH_TOOL,
)
from context_compressor.tokens.counter import load_off_loop
from context_compressor.tools.arguments import (
    Arguments,
    FinalAnswer,
    as_arguments,
    show_value,
)
from context_compressor.tools.grep import PatternError
from context_compressor.tools.reading import (
    Wire,
    answer_grep,
    answer_load,
    answer_read,
    find_media,
    media_part,
)
from context_compressor.tools.source import (
    SOURCE_MEMBERS,
    Allowance,
    OffloadSource,
    answer_compress,
    answer_search,
    can,
)


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
        check_members("memory", memory, "a CompressedMemory", SOURCE_MEMBERS)
        if wire not in get_args(Wire):
            raise InvalidArgumentError(f"wire: expected one of {', '.join(get_args(Wire))}, got {wire!r}")
        self._memory = memory
        self._wire = wire
        self._allowance = allowance = Allowance(memory)
        self._handlers: dict[str, Callable[[Arguments], Awaitable[str]]] = {
            READ_TOOL: partial(answer_read, memory, allowance),
            GREP_TOOL: partial(answer_grep, memory, allowance),
            LOAD_TOOL: partial(answer_load, memory, allowance),
        }
        if can(memory, "search_history"):
            self._handlers[SEARCH_TOOL] = partial(answer_search, memory, allowance)
        if can(memory, "compress_now"):
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
        await load_off_loop(self._memory.counter)
        try:
            handler = self._handlers.get(name) if isinstance(name, str) else None
            if handler is None:
                raise FinalAnswer(
                    f"There is no tool {show_value(name)} here; use {', '.join(self._handlers)}."
                )
            answer = await handler(Arguments(name, as_arguments(arguments)))
        except (FinalAnswer, PatternError) as final:
            answer = str(final)
        # Half a surrogate pair, which models write as an escape, would make every later request fail.
        return self._allowance.clip(sendable(answer))

    async def load(self, ref: str) -> dict[str, Any]:
        """Return offloaded media as a content part: `image_url`, `input_audio` and so on.

        Raises:
            OffloadNotFoundError: the ref is malformed, or not one of this memory's.
            OffloadError: it cannot be read, or what it names is a text.
        """
        url = await self._memory.read_ref(ref)
        if not is_data_url(url):
            raise OffloadError(f"{ref} is a text, no image, audio, video or file; {READ_TOOL} shows it")
        return media_part(url, self._wire)

    async def attachment(
        self, name: str, arguments: Mapping[str, Any] | str | None = None
    ) -> dict[str, Any] | None:
        """Return the user's message (a chat dict) that belongs behind a call's result.

        That is the media that `load_offloaded` loads; None for any other tool, and where the call's answer
        says why nothing is shown.
        """
        if name != LOAD_TOOL:
            return None
        try:
            ref, url = await find_media(
                self._memory, self._allowance, Arguments(name, as_arguments(arguments))
            )
        except FinalAnswer:
            return None
        note = loaded_note(ref, LOAD_TOOL)
        text = {"text": note} if self._wire == "dashscope" else {"type": "text", "text": note}
        return {"role": "user", "content": [text, media_part(url, self._wire)]}
