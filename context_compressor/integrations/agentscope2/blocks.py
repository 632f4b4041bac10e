"""AgentScope 2's messages as chat dicts, and a view of these as messages again.

There, a reply is one message: the blocks of all its rounds stand in a row. So a message becomes several chat
dicts (text, thoughts and calls of a round, then each result), and what is left of them becomes one message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agentscope.message import (
    AssistantMsg,
    Base64Source,
    DataBlock,
    HintBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolCallState,
    ToolResultBlock,
    ToolResultState,
    URLSource,
    UserMsg,
)
from pydantic import AnyUrl

from context_compressor.messages.chat import part_to_block
from context_compressor.messages.media import media_type_of, url_of
from context_compressor.messages.plain import SENT_BESIDE

Dict = dict[str, Any]
Block = TextBlock | ThinkingBlock | DataBlock | HintBlock | ToolCallBlock | ToolResultBlock

_REMINDER = "<system-reminder>"


class Origin(NamedTuple):
    """Where a chat dict comes from."""

    msg: Msg
    blocks: list[Block]


class Request:
    """A request's messages as chat dicts, and the way back.

    Args:
        messages: the system prompt, the summary if there is one, and the context.
        summary: the message with the summary that AgentScope's own compression wrote earlier.

    Attributes:
        chats: the chat dicts. The summary is an instruction among them, so that it keeps its place.
    """

    def __init__(self, messages: Sequence[Msg], summary: Msg | None = None) -> None:
        self.chats: list[Dict] = []
        self._origins: dict[int, Origin] = {}
        self._calls: dict[str, Origin | None] = {}
        """The round that made a call; None: several have its id."""
        self._results: dict[str, Origin] = {}
        for msg in messages:
            for chat, blocks in _chats_of(msg, "system" if msg is summary else msg.role):
                self._note(chat, Origin(msg, blocks))

    def _note(self, chat: Dict, origin: Origin) -> None:
        self.chats.append(chat)
        self._origins[id(chat)] = origin
        for block in origin.blocks:
            if isinstance(block, ToolCallBlock):
                self._calls[block.id] = None if block.id in self._calls else origin
            elif isinstance(block, ToolResultBlock) and block.id in self._calls:  # else it answers none
                self._results[block.id] = origin

    def messages_of(self, view: Sequence[Mapping[str, Any]]) -> list[Msg]:
        """Return a view of the chat dicts as messages; one that is there whole is the very same object."""
        runs: list[Origin] = []
        for chat in view:
            msg, blocks = self._origins.get(id(chat)) or self._made(chat, runs[-1].msg if runs else None)
            if runs and runs[-1].msg is msg:
                runs[-1].blocks.extend(blocks)
            else:
                runs.append(Origin(msg, list(blocks)))
        return [_with_blocks(msg, blocks) for msg, blocks in runs]

    def _made(self, chat: Mapping[str, Any], before: Msg | None) -> Origin:
        """Return what an altered or new chat dict says, and the message that it belongs to."""
        if chat["role"] == "tool":
            return self._made_result(chat, before)
        if chat["role"] != "assistant":
            msg = UserMsg(chat.get("name") or "user", self._blocks_of(chat.get("content")))
            return Origin(msg, list(msg.content))
        calls = chat.get("tool_calls") or []
        found = next(filter(None, (self._calls.get(call["id"]) for call in calls)), None)
        msg, blocks = found or Origin(AssistantMsg(chat.get("name") or "assistant", []), [])
        known = {block.id: block for block in blocks if isinstance(block, ToolCallBlock)}
        thoughts: list[Block] = [block for block in blocks if isinstance(block, ThinkingBlock)]
        if not thoughts and chat.get("reasoning_content"):
            thoughts.append(ThinkingBlock(thinking=chat["reasoning_content"]))
        content: list[Block] = [block for block in blocks if isinstance(block, TextBlock | DataBlock)]
        if _content_of(content) != chat.get("content"):
            content = [*self._blocks_of(chat.get("content"))]
        return Origin(msg, [*thoughts, *content, *(_call_of(call, known.get(call["id"])) for call in calls)])

    def _made_result(self, chat: Mapping[str, Any], before: Msg | None) -> Origin:
        call_id, output = chat["tool_call_id"], self._blocks_of(chat.get("content"))
        caller, found = self._calls.get(call_id), self._results.get(call_id)
        if caller is not None and found is not None:
            [result] = found.blocks
            return Origin(found.msg, [result.model_copy(update={"output": output})])
        calls = [one for one in caller.blocks if isinstance(one, ToolCallBlock)] if caller else []
        name = next((call.name for call in calls if call.id == call_id), chat.get("name") or "tool")
        held = {"id": call_id, "name": name, "output": output, "state": ToolResultState.INTERRUPTED}
        made = ToolResultBlock(**held)
        if caller is not None:
            return Origin(caller.msg, [made])
        if before is not None and before.role == "assistant":
            return Origin(before, [made])
        return Origin(AssistantMsg("assistant", []), [made])

    def _blocks_of(self, content: str | Sequence[Mapping[str, Any]] | None) -> list[TextBlock | DataBlock]:
        """Return content as blocks, media as the blocks that they came from."""
        if isinstance(content, str):
            return [TextBlock(text=content)] if content else []
        made: list[TextBlock | DataBlock] = []
        for part in content or []:
            if part.get("type") == "text":
                made.append(TextBlock(text=part["text"]))
                continue
            same = (block for block in self._media() if part_of(block) == part)
            block = next(same, None) or data_block_of(part)
            made.append(block or TextBlock(text=f"[{part.get('type')}]"))
        return made

    def _media(self) -> Iterator[DataBlock]:
        for _, blocks in self._origins.values():
            for block in blocks:
                if isinstance(block, DataBlock):
                    yield block
                held = getattr(block, "output", None) or getattr(block, "hint", None)
                if isinstance(held, list):
                    yield from (one for one in held if isinstance(one, DataBlock))


def _chats_of(msg: Msg, role: str) -> Iterator[tuple[Dict, list[Block]]]:
    """Yield the chat dicts of a message, and the blocks that each stands for."""
    if role != "assistant":
        if msg.content:
            named = {"name": msg.name} if role == "user" else {}
            yield {"role": role, **named, "content": _content_of(msg.content)}, list(msg.content)
        return
    said: list[Block] = []
    for block in msg.content:
        if not isinstance(block, ToolResultBlock | HintBlock):
            said.append(block)
            continue
        if said:
            yield _round_of(msg.name, said), said
            said = []
        if isinstance(block, HintBlock):
            yield {"role": "user", "content": _hint_content(block.hint)}, [block]
        else:
            named = {"role": "tool", "tool_call_id": block.id, "name": block.name}
            yield {**named, "content": _content_of(block.output) or ""}, [block]
    if said:
        yield _round_of(msg.name, said), said


def _round_of(name: str, blocks: Sequence[Block]) -> Dict:
    """Return what the agent said in a round."""
    spoken = [block for block in blocks if isinstance(block, TextBlock | DataBlock)]
    chat: Dict = {"role": "assistant", "name": name, "content": _content_of(spoken)}
    thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]
    if any(thoughts):
        chat["reasoning_content"] = "\n".join(thoughts)
    extras = [block.model_extra for block in blocks if isinstance(block, ThinkingBlock) and block.model_extra]
    if extras:  # signatures, encrypted thoughts
        chat[SENT_BESIDE] = extras
    calls = [block for block in blocks if isinstance(block, ToolCallBlock)]
    if calls:
        chat["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.input}}
            for call in calls
        ]
    return chat


def _content_of(held: str | list[Any]) -> str | list[Dict] | None:
    """Return blocks as content: a text where they are one, else parts; None where there are none."""
    if isinstance(held, str):
        return held
    only = held[0] if len(held) == 1 else None
    return only.text if isinstance(only, TextBlock) else [part_of(block) for block in held] or None


def _hint_content(hint: str | list[Any]) -> str | list[Dict]:
    """Return a hint as a user's content that tells by its form that no user said it."""
    parts = [part_of(block) for block in ([TextBlock(text=hint)] if isinstance(hint, str) else hint)]
    for part in parts:
        if part["type"] == "text" and not part["text"].lstrip().startswith(_REMINDER):
            part["text"] = f"{_REMINDER}{part['text']}</system-reminder>"
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def part_of(block: TextBlock | DataBlock) -> Dict:
    """Return a text or media as a content part."""
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    source = block.source
    kind, _, form = source.media_type.partition("/")
    url = (
        str(source.url) if isinstance(source, URLSource) else f"data:{source.media_type};base64,{source.data}"
    )
    if kind in ("image", "video"):
        return {"type": f"{kind}_url", f"{kind}_url": {"url": url}}
    if kind == "audio":
        data = source.data if isinstance(source, Base64Source) else url
        return {"type": "input_audio", "input_audio": {"data": data, "format": form}}
    return {"type": "file", "file": {"filename": block.name or "file", "file_data": url}}


def data_block_of(part: Mapping[str, Any]) -> DataBlock | None:
    """Return a content part with media as a block, under an id that the same part gives always."""
    if part.get("type") == "file":
        url = part.get("file", {}).get("file_data")
    else:
        block = part_to_block(part, "content")
        source = block.get("source")
        url = url_of(source) if isinstance(source, dict) else None
    if not isinstance(url, str):
        return None
    kind = str(part.get("type")).removeprefix("input_").removesuffix("_url")
    media_type = media_type_of(url) or ("application/octet-stream" if kind == "file" else f"{kind}/*")
    name = hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    if url.startswith("data:"):
        held = Base64Source(data=url.partition(";base64,")[2], media_type=media_type)
        return DataBlock(id=name, source=held)
    return DataBlock(id=name, source=URLSource(url=AnyUrl(url), media_type=media_type))


def _call_of(call: Mapping[str, Any], known: ToolCallBlock | None) -> ToolCallBlock:
    arguments = call["function"]["arguments"]
    if known is None:
        held = {"id": call["id"], "name": call["function"]["name"], "input": arguments}
        return ToolCallBlock(**held, state=ToolCallState.FINISHED)
    return known if known.input == arguments else known.model_copy(update={"input": arguments})


def _with_blocks(msg: Msg, blocks: list[Block]) -> Msg:
    """Return a message with these blocks: itself where they are its own, in their order."""
    own = msg.content
    if len(own) == len(blocks) and all(one is other for one, other in zip(own, blocks, strict=True)):
        return msg
    return msg.model_copy(update={"content": blocks})
