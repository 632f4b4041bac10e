"""Message-level repairs: what makes one message acceptable to a chat-completions provider.

History keeps the original; these functions return what a view shows instead, and the message itself where
nothing has to change.
"""

from __future__ import annotations

import json
import operator
from typing import Any

from context_compressor.messages.chat import block_to_part
from context_compressor.messages.hosted import missing_result
from context_compressor.messages.msg import Block, Msg, copy_json, tool_calls
from context_compressor.messages.remark import (
    among_of,
    content_form,
    extra_of,
    form_name_of,
    form_of,
    is_legacy_result,
    legacy_result_metadata,
    text_block_like,
    without_content_form,
    without_extra,
)
from context_compressor.messages.responses import answer_of

MISSING_RESULT = "[No result was recorded for this call.]"
"""Output of the placeholder that answers a call whose result never came."""

NO_OUTPUT = "[No output.]"
"""Output of a call that failed and printed nothing."""

UNKNOWN_TOOL = "tool"
"""The name of a result whose call is not known; readers of the forms use it."""

UNNAMED_TOOL = "unnamed_tool"
"""Stands for the name of a tool that was called without one."""

_ARGUMENTS_CHARACTERS = 160
"""Enough to tell two calls of one tool apart in nearly all cases."""


def with_content(msg: Msg, content: str | list[Block]) -> Msg:
    """Return a copy of a message with another content, whose blocks are copied, too."""
    other = msg.copy()
    other.content = content if isinstance(content, str) else [dict(block) for block in content]
    return other


def is_empty_assistant(msg: Msg) -> bool:
    """Tell whether an assistant message would reach the provider with neither content nor calls.

    Thinking alone does not count as content: it travels beside the content, which would be null. A beginning
    that the model is to go on from may be empty: its name is said then (Kimi's partial mode).
    """
    extra = extra_of(msg.metadata)
    is_beginning = extra.get("partial") or extra.get("prefix")  # Kimi and Qwen; DeepSeek and Mistral
    if msg.role != "assistant" or is_beginning:
        return False
    if isinstance(msg.content, str):
        return not msg.content.strip()
    return all(_is_blank(block) for block in msg.content)


def _is_blank(block: Block) -> bool:
    kind = block.get("type")
    if kind == "text":
        return not block["text"].strip()
    typeless = kind is None or form_of(block) == "typeless"
    if typeless and not any(value for key, value in block_to_part(block).items() if key != "type"):
        return True
    return kind in ("thinking", "redacted_thinking") or _is_field(block, "refusal")


def _is_field(block: Block, kind: str) -> bool:
    """Tell whether a block of a kind stands on the wire beside the content, not in it."""
    return block.get("type") == kind and form_of(block) == "field"


def with_refusal_as_text(msg: Msg) -> Msg:
    """Return a message that holds a refusal and no content with the refusal as its content.

    Providers write a refusal beside null content, and accept no null content back.
    """
    refusals = [block for block in msg.get_content_blocks() if _is_field(block, "refusal")]
    refusal = "\n".join(str(block.get("refusal") or "") for block in refusals)
    if not refusal.strip():
        return msg
    other = with_content(msg, refusal)
    other.metadata = None
    return other


def with_plain_content(msg: Msg) -> Msg:
    """Return a message whose content has a form that providers accept.

    An empty list of parts becomes an empty text, null beside calls; a call in a message that is not the
    assistant's, which no wire format can say, becomes text.
    """
    if isinstance(msg.content, str):
        return msg
    if not msg.content:
        return with_content(msg, "")
    if msg.role == "assistant":
        is_empty_list = content_form(msg) == "list" and all(
            block.get("type") in ("thinking", "tool_use") or form_of(block) == "field"
            for block in msg.content
        )
        return without_content_form(msg) if is_empty_list else msg
    if not any(block.get("type") == "tool_use" for block in msg.content):
        return msg
    content = [
        {"type": "text", "text": f"[Call of {block['name']}: {block.get('raw_input') or block['input']}]"}
        if block.get("type") == "tool_use"
        else block
        for block in copy_json(msg.content)
    ]
    return with_content(msg, content)


def with_audio_by_id(msg: Msg) -> Msg:
    """Return an assistant message whose audio is sent by its id, without data and transcript.

    A model's answer holds them; what is sent back names the id (openai's
    `ChatCompletionAssistantMessageParam.Audio`). The transcript stands as `text` in the block, beside what is
    sent: it is all that summaries and stored transcripts have of what was spoken.
    """
    if isinstance(msg.content, str) or not any(map(_has_audio_data, msg.content)):
        return msg
    content = []
    for block in copy_json(msg.content):
        if _has_audio_data(block):
            audio = block["audio"]
            block["audio"] = {"id": audio["id"]}
            if isinstance(audio.get("transcript"), str):
                block["text"] = audio["transcript"]
        content.append(block)
    return with_content(msg, content)


def _has_audio_data(block: Block) -> bool:
    audio = block.get("audio") if _is_field(block, "audio") else None
    return isinstance(audio, dict) and bool(audio.get("id")) and len(audio) > 1


def without_empty_calls(msg: Msg) -> Msg:
    """Return an assistant message without the calls that are none, which clients write and providers refuse:
    an empty list, null.
    """
    extra = extra_of(msg.metadata)
    empty = [key for key in ("tool_calls", "function_call") if key in extra and not extra[key]]
    if not empty:
        return msg
    other = msg.copy()
    other.metadata = without_extra(other.metadata or {}, *empty)
    return other


def with_result_content(msg: Msg, results: list[Block]) -> Msg:
    """Return a result message whose content is a text where the wire would show null or an empty list, and
    says something where it is an error (Anthropic).

    `results` are its own, as they are to be shown.
    """
    is_null = content_form(msg) == "null" and not is_legacy_result(msg)
    shown = [_with_output(block) for block in results]
    if not is_null and all(map(operator.is_, shown, results)):
        return msg
    return with_content(without_content_form(msg) if is_null else msg, shown)


def _with_output(block: Block) -> Block:
    output = block["output"]
    if block.get("is_error") and not (output.strip() if isinstance(output, str) else _says_something(output)):
        return {**block, "output": NO_OUTPUT}
    return {**block, "output": ""} if output == [] and form_name_of(block) is None else block


def _says_something(output: list[Block]) -> bool:
    return any(part.get("type") != "text" or str(part.get("text")).strip() for part in output)


def wrapped_arguments(block: Block) -> Block:
    """Return a `tool_use` block whose arguments are an object on the wire, too.

    Arguments that were no JSON object stand in `input` as `{"arguments": text}` and in `raw_input` as
    received; without the latter the wire shows the former. A blank text is a call without arguments.
    """
    raw = block.get("raw_input")
    if raw is None or block["input"] != {"arguments": raw}:
        return block
    bare = {key: value for key, value in block.items() if key != "raw_input"}
    return bare if raw.strip() else {**bare, "input": {}}


def named_call(block: Block) -> Block:
    """Return a `tool_use` block whose tool has a name: models also call tools without one, which no provider
    takes back.
    """
    return block if block["name"].strip() else {**block, "name": UNNAMED_TOOL}


def is_legacy_call(block: Block) -> bool:
    """Tell whether a `tool_use` block is a `function_call` on the wire."""
    return form_of(block) == "function_call"


def placeholder_message(call: Msg, part: str, call_id: str, name: str, *, legacy: bool) -> Msg:
    """Return the fixed answer to a call whose result never came; its id and time derive from the call's."""
    block = next((block for block in tool_calls(call) if block["id"] == call_id), {})
    result = {"type": "tool_result", "id": call_id, "name": name, "output": MISSING_RESULT} | answer_of(block)
    metadata = legacy_result_metadata() if legacy else among_of(call)
    return Msg(name, [result], "system", metadata, timestamp=call.timestamp, id=f"{call.id}{part}")


def hosted_placeholder(call: Msg, part: str, block: Block) -> Msg:
    """Return the same for a call of a tool that the provider runs; it stands in what the model says."""
    id = f"{call.id}{part}"
    return Msg(
        call.role,
        [missing_result(block, MISSING_RESULT)],
        "assistant",
        among_of(call),
        timestamp="",
        id=id,
    )


# Results with no open call


def arguments_line(call: Block) -> str:
    """Return the beginning of a call's arguments on one line, by which a reader tells it from others."""
    raw = call.get("raw_input")
    text = raw if isinstance(raw, str) else json.dumps(call["input"], ensure_ascii=False, default=str)
    line = " ".join(text[: 2 * _ARGUMENTS_CHARACTERS].split())
    return line if len(line) <= _ARGUMENTS_CHARACTERS else f"{line[:_ARGUMENTS_CHARACTERS]}..."


def orphan_message(msg: Msg, result: Block, called: tuple[str, str] | None = None) -> Msg:
    """Return the labelled user message that stands for a result with no open call.

    A text stays a text: some providers take no list of parts (DeepSeek). The label beside parts of
    DashScope's form, without a type, is one of them.

    `called`: the tool and the arguments of an earlier call under the result's id.
    """
    other = msg.copy()
    other.name = str(result.get("name") or msg.name) if called is None else called[0]
    told = "answers no open call" if called is None else f"came late, for the call with {called[1]}"
    label = f"{_orphan_label(other.name)}{told}:]"
    output: Any = result["output"]
    other.role = "user"
    if isinstance(output, str):
        other.content = f"{label}\n{output}" if output else label
    else:
        parts = [block for block in copy_json(output) if block.get("text") != ""]
        other.content = [text_block_like(parts[0] if parts else {}, label), *parts]
    other.metadata = None
    return other


def _orphan_label(name: str) -> str:
    tool = "a tool" if name == UNKNOWN_TOOL else f"tool {name}"
    return f"[Result of {tool}, which "


def is_orphan(msg: Msg) -> bool:
    """Tell whether a message is one of `orphan_message`: a user's by its role, and no word of theirs."""
    if msg.role != "user":
        return False
    blocks = msg.get_content_blocks()
    return bool(blocks) and str(blocks[0].get("text") or "").startswith(_orphan_label(msg.name))


def orphan_as_result(msg: Msg) -> Msg:
    """Return what `orphan_message` made as a result again, for those who ask what users said."""
    label = _orphan_label(msg.name)
    output: str | list[Block]
    if isinstance(msg.content, str):
        is_labelled = msg.content.startswith(label)  # a stub need not be
        output = msg.content.partition("\n")[2] if is_labelled else msg.content
    else:
        output = [block for block in msg.content if not str(block.get("text")).startswith(label)]
    result = {"type": "tool_result", "id": "", "name": msg.name, "output": output}
    return Msg(msg.name, [result], "system", timestamp=msg.timestamp, id=msg.id)
