"""What leaves the view as it is stored and read: texts redacted, stubs in place, results named."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from context_compressor.compression.transcript import arguments_text
from context_compressor.errors import RedactionError
from context_compressor.messages.escapes import dump_sendable
from context_compressor.messages.media import is_data_url
from context_compressor.messages.msg import Block, Msg
from context_compressor.messages.openai.calls import parse_arguments
from context_compressor.messages.openai.common import REMARK, remark_of
from context_compressor.messages.parts import Part, PartPath, replace_parts
from context_compressor.messages.repair import is_orphan, orphan_as_result

Redact = Callable[[str], str]
"""What a user lets every text go through before it is stored, indexed or summarised."""

_OF_ANY = frozenset({"type", REMARK})
_STRUCTURE = {
    "text": _OF_ANY | {"text"},
    "thinking": _OF_ANY | {"thinking"},
    "tool_use": _OF_ANY | {"id", "name", "input", "raw_input"},
    "tool_result": _OF_ANY | {"id", "name", "output"},
}
"""Keys of a block, by its type, that are ours; all others came from outside."""
_NAMING = frozenset({"type", "id", "name"})
"""Those whose values name things rather than say them; redacted, nothing would pair any more."""


def redacted_text(text: str, redact: Redact | None) -> str:
    """Return the text after redaction.

    Raises:
        RedactionError: the callable raised, or did not return a string.
    """
    if redact is None:
        return text
    try:
        result = redact(text)
    except Exception as error:
        # What it says may quote the text, and this is logged, and told to the model that searched.
        name = type(error).__name__
        raise RedactionError(f"redact failed on a text of {len(text)} characters: {name}") from error
    if not isinstance(result, str):
        raise RedactionError(f"redact must return a string, returned {type(result).__name__}")
    return result


def stored_text(part: Part, redact: Redact | None) -> str:
    """Return what is stored of a part that leaves: its text redacted, media as they are.

    Raises:
        RedactionError: as `redacted_text`.
    """
    return redacted_text(part.text, None if part.is_media else redact)


def shown_message(
    source: Msg, stubs: Mapping[PartPath, str], names: Mapping[str, str], redact: Redact | None = None
) -> Msg:
    """Return a message as summaries and transcripts read it: redacted, stubs in place, results named.

    A result with no open call is one here, where the view has it as a user's message.

    Args:
        source: the message before stubs.
        stubs: stand-ins for single texts, by address; these are not redacted again.
        names: tool names by call id.
        redact: applied to every other string, keys and the speaker's name among them; then metadata are left
            out but for what is read of them.
    """
    msg = source
    if redact is not None:
        msg = source.copy()
        kept = set(stubs)
        if msg.name not in ("", msg.role):
            msg.name = redacted_text(msg.name, redact)
        if isinstance(msg.content, str):
            msg.content = _redacted(msg.content, redact, kept, ())
        else:
            msg.content = [
                redacted_call(block, redact)
                if block.get("type") == "tool_use"
                else _redacted(block, redact, kept, (i,))
                for i, block in enumerate(msg.content)
            ]
        extra = remark_of(msg.metadata).get("extra")
        said = _redacted(extra, redact, set(), (), block=False)
        msg.metadata = {REMARK: {"extra": said}} if extra else None
    msg = replace_parts(msg, stubs)
    if names and not isinstance(msg.content, str):
        for block in msg.content:
            if block.get("type") == "tool_result" and block["id"] in names:
                block["name"] = names[block["id"]]
    # By the source: a stub leaves nothing of the label.
    return orphan_as_result(msg) if is_orphan(source) else msg


def redacted_call(block: Block, redact: Redact) -> Block:
    """Return a call redacted in both forms in which it is read: each string of it, then its JSON.

    What either form leaves stands in `input` and, where the call has one, in `raw_input`, so that none says
    what the other withholds.
    """
    said = {key: value for key, value in block.items() if key != "raw_input"}
    call: Block = _redacted(said, redact, set(), ())
    is_kept = call["input"] == block["input"]
    text = left = arguments_text(block if is_kept else call)
    if call["input"] not in ({"arguments": text}, {"input": text}):
        left = redacted_text(text if is_kept else dump_sendable(call["input"], default=str), redact)
    if left != text:
        call["input"] = parse_arguments(left)
    if block.get("raw_input") is not None:
        call["raw_input"] = left
    return call


def _redacted(value: Any, redact: Redact, kept: set[PartPath], path: PartPath, *, block: bool = True) -> Any:
    """Return a copy in which every text is redacted, keys too, but for the addresses in `kept`, and no
    encoded media.

    `block` tells whether dicts met here are content blocks, whose structure must stay.
    """
    if isinstance(value, str):
        return value if path in kept or not value or is_data_url(value) else redacted_text(value, redact)
    if isinstance(value, list):
        return [_redacted(item, redact, kept, (*path, i), block=block) for i, item in enumerate(value)]
    if isinstance(value, dict):
        structure = _STRUCTURE.get(str(value.get("type")), _OF_ANY) if block else frozenset()
        result: dict[Any, Any] = {}
        for key, item in value.items():
            encoded = key == "data" and (value.get("type") == "base64" or "format" in value)
            if isinstance(item, str) and (encoded or key in structure & _NAMING):
                result[key] = item
            elif block and key == "output":
                place = (*path, -1) if isinstance(item, str) else path
                result[key] = _redacted(item, redact, kept, place)
            else:
                said = key if key in structure or not key else _redacted_key(key, redact, result)
                result[said] = _redacted(item, redact, kept, path, block=False)
        return result
    return value


def _redacted_key(key: Any, redact: Redact, taken: Container[Any]) -> Any:
    """Return a key redacted, numbered where another one has become the same: no value stands for two."""
    said = redacted_text(key, redact) if isinstance(key, str) else key
    number = 2
    unique = said
    while unique in taken:
        unique, number = f"{said} {number}", number + 1
    return unique
