"""Kinds of blocks by form: what a form has a word for; all else is told as a text, or refused by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from context_compressor.errors import InvalidMessageError
from context_compressor.messages.media import url_of
from context_compressor.messages.msg import Block
from context_compressor.messages.plain import MISSING, as_dict, plain, wrong
from context_compressor.messages.remark import REMARK

WRAPPED = "openai_part"
"""Type of the block that holds a part which, unwrapped, would be taken for something else."""
ITEM = "responses_item"
"""Type of the block of an item of the Responses API that is carried along."""

# What is refused

_BEDROCK, _GEMINI, _VERCEL = "Bedrock's Converse API", "Gemini's API", "Vercel's AI SDK"
_GOOSE = "Goose's sessions"
_EVERYWHERE = {
    **dict.fromkeys(("toolUse", "toolResult"), _BEDROCK),
    **dict.fromkeys(("functionCall", "functionResponse", "function_response"), _GEMINI),
    **dict.fromkeys(("toolInvocation", "toolInvocations"), _VERCEL),
}
"""Keys by which a message, or a block of content, is known to be of a form that nothing here reads."""
_TYPELESS = {
    **dict.fromkeys(("cachePoint", "reasoningContent", "guardContent"), _BEDROCK),
    **dict.fromkeys(("inline_data", "inlineData", "fileData", "function_call"), _GEMINI),
    **dict.fromkeys(("executableCode", "codeExecutionResult"), _GEMINI),
}
"""The same of blocks that have no type."""
FOREIGN_TYPES = {
    **dict.fromkeys(("toolRequest", "toolResponse", "frontendToolRequest"), _GOOSE),
    **dict.fromkeys(("tool-call", "tool-result"), _VERCEL),
}
"""Types of blocks for calls and results in forms that are not read here, so they could not be paired."""
_OF_CHAT, _OF_RESPONSES, _OF_ANTHROPIC = (
    "chat dicts (form='chat')",
    "the Responses API (form='responses')",
    "Anthropic's Messages (form='anthropic')",
)
_TYPES = {
    **dict.fromkeys(("image_url", "video_url", "file"), _OF_CHAT),
    **dict.fromkeys(("input_text", "output_text", "input_image", "input_file"), _OF_RESPONSES),
    **dict.fromkeys(("tool_use", "tool_result", "image", "document", "thinking"), _OF_ANTHROPIC),
}
"""Types of blocks that are of one form alone; in chat dicts those of all are read."""


def refuse_foreign(data: Mapping[str, Any], form: str) -> None:
    """Refuse a message, or an item, that is of a form which nothing here reads, or not of that asked for.

    Args:
        data: the message or the item.
        form: the name of the form that was asked for.

    Raises:
        InvalidMessageError: it is such a one; the text begins with the key that shows it and says what to do.
    """
    _refuse_keys(data, form, "", _EVERYWHERE)
    if str(data.get("type", "")).startswith("tool-") and "toolCallId" in data:
        raise _unread("type", _VERCEL, form)
    if isinstance(data.get("parts"), list):
        raise _unread("parts", "Gemini's contents or Vercel's UI messages", form)
    for key in ("tool_calls", "function_call") if form != "chat" and "role" in data else ():
        if data.get(key):
            raise InvalidMessageError(f"{key}: is of {_OF_CHAT}, where calls stand beside content")


def refuse_foreign_part(data: Mapping[str, Any], form: str, path: str) -> None:
    """Refuse a part of content that is of another form, or that lacks the type which tells what it is.

    Args:
        data: the part.
        form: the name of the form that was asked for.
        path: where it stands.

    Raises:
        InvalidMessageError: it is such a one; the text names place and field, and what to do.
    """
    kind = data.get("type")
    if isinstance(kind, str) and kind in FOREIGN_TYPES:
        raise _unread(f"{path}.type", FOREIGN_TYPES[kind], form)
    _refuse_keys(data, form, f"{path}.", _EVERYWHERE)
    if str(kind or "").startswith("tool-") and "toolCallId" in data:
        raise _unread(f"{path}.type", _VERCEL, form)
    if kind is None:
        _refuse_keys(data, form, f"{path}.", _TYPELESS)
    if form == "chat":
        return
    if not isinstance(kind, str):
        mend = "; parts without a type are of Bedrock's or DashScope's form" if kind is None else ""
        raise wrong(f"{path}.type", "a string", MISSING if kind is None else kind, mend)
    owner = _TYPES.get(kind)
    if owner is not None and f"'{form}'" not in owner:
        raise InvalidMessageError(f"{path}.type: {kind!r} is of {owner}; make a part of form {form!r} of it")


def _refuse_keys(data: Mapping[str, Any], form: str, place: str, keys: Mapping[str, str]) -> None:
    key = next((key for key in keys if key in data), None)
    if key is not None:
        raise _unread(f"{place}{key}", keys[key], form)


def _unread(place: str, name: str, form: str) -> InvalidMessageError:
    return InvalidMessageError(
        f"{place}: is of {name}, which is not read here; make messages of form {form!r} of it, or bring a "
        "Form(read, write)"
    )


def data_of_part(part: object, path: str, form: str) -> dict[str, Any]:
    """Return an independent copy of a part of content.

    Raises:
        InvalidMessageError: it is no dict, or is of another form.
    """
    found = as_dict(part)
    if found is None:
        raise wrong(path, "a dict", part)
    refuse_foreign_part(found, form, path)
    return dict(plain(dict(found), path))


# Blocks of another form

Words = Mapping[str, Callable[[Block, str], dict[str, Any] | None]]
"""For each kind of block that a form has a word for, what writes it as a part, given the role that says it;
None where the form has no word for that one."""
_NAMES = (
    *("title", "name", "tool_name", "server_label", "filename"),
    *("url", "file_url", "file_id", "source", "query"),
)
"""Keys that say which one a block is."""
_SAID = ("text", "content", "refusal", "output", "logs", "stdout", "stderr")
"""Keys of what a block says."""
_MOST_NAMES, _MOST_CHARACTERS = 6, 200


def part_of(block: Block, role: str, words: Words, text: str = "text") -> dict[str, Any]:
    """Return a block that was not read in a form as a part of it; a text tells what the form has no word for.

    `text`: the type of a part that is a text there.
    """
    common = _in_common(block)
    write = words.get(str(common.get("type")))
    part = None if write is None else write(common, role)
    return {"type": text, "text": told(common)} if part is None else part


def _in_common(block: Block) -> Block:
    """Return a block that one form has a word of its own for as one that others have one for, too."""
    held = held_in(block)
    if held.get("type") == "computer_screenshot" and isinstance(held.get("image_url"), str):
        return {"type": "image", "source": {"type": "url", "url": held["image_url"]}}
    source = held.get("source")
    if held.get("type") == "document" and isinstance(source, Mapping) and source.get("type") == "base64":
        return {
            "type": "file",
            "file": {"filename": str(held.get("title") or "document.pdf"), "file_data": url_of(source)},
        }
    return block


def told(block: Block) -> str:
    """Return what a block that a form has no word for is, and what it says, as a text."""
    held = held_in(block)
    leaves = [(key, leaf.strip()) for key, leaf in _texts(held) if leaf.strip()]
    names = [leaf for key, leaf in leaves if key in _NAMES and _is_name(leaf)]
    said = [leaf for key, leaf in leaves if key in _SAID]
    kind = str(held.get("type") or "part")
    named = ", ".join([*dict.fromkeys(names)][:_MOST_NAMES])
    return "\n".join([f"[{kind}: {named}]" if named else f"[{kind}]", *said])


def held_in(block: Block) -> Mapping[str, Any]:
    kind = block.get("type")
    held = block.get(str(kind)) if kind in (WRAPPED, ITEM) else block
    return held if isinstance(held, Mapping) else block


def _is_name(text: str) -> bool:
    return len(text) <= _MOST_CHARACTERS and "\n" not in text and not text.startswith("data:")


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text in a block with the key that it stands under; the data of a text are its text."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        is_text = value.get("type") == "text"
        for name, inner in value.items():
            if name != REMARK:
                yield from _texts(inner, "text" if is_text and name == "data" else name)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, key)
