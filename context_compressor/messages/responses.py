"""Items of OpenAI's Responses API <-> `Msg`, both ways. Long, because each item stands beside its mirror.

What a model gives in one go, reasoning, words, calls, is a run of items, and one message here: a reasoning
item and what follows it are refused without each other. Outputs of calls and what others say are a message
each. What blocks cannot say goes into the remark (`remark`), which says `of: "responses"`. Items that are not
known are carried along in the run in which they stand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from context_compressor.errors import InvalidMessageError
from context_compressor.messages.kinds import (
    ITEM,
    WRAPPED,
    Words,
    data_of_part,
    part_of,
    refuse_foreign,
)
from context_compressor.messages.media import source_of, url_of
from context_compressor.messages.msg import Block, Msg, Role, copy_json
from context_compressor.messages.plain import (
    MOST_ID_CHARACTERS,
    arguments_text,
    as_dict,
    as_list,
    check_messages,
    get,
    made_id,
    parse_arguments,
    plain,
    with_keys,
    wrong,
)
from context_compressor.messages.remark import REMARK, assemble, noted_as, remark_of, remember

OF: Final = "responses"

_ROLES = ("user", "assistant", "system", "developer")
_CALL_KEYS = {
    "function_call": ("type", "call_id", "name", "arguments"),
    "custom_tool_call": ("type", "call_id", "name", "input"),
}
_OUTPUTS = {
    **{f"{tool}_call": f"{tool}_call_output" for tool in ("function", "custom_tool", "computer")},
    **{f"{tool}_call": f"{tool}_call_output" for tool in ("local_shell", "shell", "apply_patch")},
    "tool_search_call": "tool_search_output",
}
"""The calls that a client answers, and the kinds of what it answers them with."""
_PIXEL = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)
"""Stands for a screenshot that never came."""
_SAID = "said"
"""Marks the first block of a message item, those that follow it belong to the same."""


def from_responses(items: Iterable[Any]) -> list[Msg]:
    """Turn input items into messages: what a model gave in one go is one, each output and other message, too.

    Args:
        items: dicts, or what the SDK gives (`response.output`); the easy form of messages is read as well.

    Raises:
        InvalidMessageError: an item is malformed, or of another form; the text names index and field.
        InvalidArgumentError: `items` is not a list or another iterable of items.
    """
    tool_names: dict[str, str] = {}
    result: list[Msg] = []
    place = 0
    for run in runs(as_list(items)):
        result.append(_read_run(run, place, tool_names))
        place += len(run)
    return result


def runs(items: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the items of one message each: one of another role, an output, a compaction, or a whole reply."""
    run: list[Any] = []
    for item in items:
        # A compaction is kept, and nothing with it but reasoning, which never stands without what follows.
        follows = bool(run) and _kind_of(run[-1]) == "reasoning"
        if _is_of_model(item) and (follows or _kind_of(item) != "compaction"):
            run.append(item)
            continue
        if run:
            yield run
        yield [item]
        run = []
    if run:
        yield run


def _is_of_model(item: Any) -> bool:
    kind = _kind_of(item)
    if kind == "message":
        return bool(get(item, "role") == "assistant")
    return not _is_output(item, kind)


def _kind_of(item: Any) -> str:
    """Return an item's type; messages in the easy form have none, nor have some references."""
    named = get(item, "type")
    if named is None and get(item, "role") is None and get(item, "id") is not None:
        return "item_reference"
    return str(named or "message")


def _is_output(item: Any, kind: str) -> bool:
    return (
        kind.endswith("_output")
        and kind != "program_output"
        and isinstance(get(item, _call_key(item, kind)), str)
    )


def _call_key(item: Any, kind: str) -> str:
    """Return the key under which an output names its call."""
    usual = _usual_key(kind)
    return usual if get(item, "call_id") is None else "call_id"


def _usual_key(kind: str) -> str:
    return "id" if kind == "local_shell_call_output" else "call_id"


def _read_run(run: Sequence[Any], place: int, tool_names: dict[str, str]) -> Msg:
    blocks: list[Block] = []
    for number, item in enumerate(run, place):
        try:
            data = as_dict(item)
            if data is None:
                raise wrong("item", "a dict", item)
            refuse_foreign(data, OF)
            if not isinstance(data.get("type"), str | None):
                raise wrong("type", "a string", data["type"])
            kind = _kind_of(data)
            if kind == "message":
                msg = _read_said(data)
                if msg.role != "assistant":
                    return msg
                blocks += msg.get_content_blocks()
            elif _is_output(data, kind):
                return _read_output(plain(dict(data), ""), tool_names)
            elif kind in ("function_call_output", "custom_tool_call_output"):
                raise wrong("call_id", "a string", data.get("call_id"))
            else:
                blocks.append(_read_item(plain(dict(data), ""), kind, tool_names))
        except InvalidMessageError as error:
            raise InvalidMessageError(f"items[{number}].{error}") from None
    return Msg("assistant", blocks, "assistant")


# Messages


def _read_said(data: dict[str, Any]) -> Msg:
    role, content = data.get("role"), data.get("content")
    if role not in _ROLES:
        mend = "; a tool's result is an item of its own here, function_call_output" if role == "tool" else ""
        raise InvalidMessageError(f"role: expected one of {', '.join(_ROLES)}, got {role!r:.200}{mend}")
    kind: Role = "system" if role == "developer" else role
    noted = remember(data, ("role", "content"), ("role", "content"), "")
    if role == "developer":
        noted["role"] = role
    if isinstance(content, str):
        if role != "assistant":
            return Msg(kind, content, kind, noted_as(OF, noted) or None)
        said = noted_as(OF, {**noted, _SAID: "string"})
        return Msg(kind, [{"type": "text", "text": content} | said], kind)
    if not isinstance(content, list | tuple):
        raise wrong("content", "a string or a list of parts", content)
    blocks = [_read_part(part, f"content[{number}]") for number, part in enumerate(content)]
    if role != "assistant":
        return Msg(kind, blocks, kind, noted_as(OF, noted) or None)
    if not blocks:  # nothing that could bear the remark
        blocks = [{"type": "text", "text": "", REMARK: {"of": OF, "content": "empty"}}]
    first = dict(blocks[0].get(REMARK) or {"of": OF})
    blocks[0] = {**blocks[0], REMARK: {**first, _SAID: "parts", "item": noted}}
    return Msg(kind, blocks, kind)


_TEXTS = ("input_text", "output_text", "text")
_PRINTED = ("stdout", "stderr")
_SCREENSHOT = "computer_screenshot"
_FILE_KEYS = ("filename", "file_data", "file_id")


def _noted(data: Mapping[str, Any], keys: Sequence[str], path: str = "", **beside: Any) -> Block:
    """Return what is noted of a part or an item whose content stands under some keys."""
    return noted_as(OF, {"part": data["type"], **remember(data, keys, keys, path), **beside})


def _string(data: Mapping[str, Any], key: str, path: str = "") -> str:
    value = data.get(key)
    if not isinstance(value, str):
        raise wrong(f"{path}{key}", "a string", value)
    return value


def _read_part(part: object, path: str) -> Block:
    data, at = data_of_part(part, path, OF), f"{path}."
    kind = data.get("type")
    if kind in _TEXTS:
        return {"type": "text", "text": _string(data, "text", at)} | _noted(data, ("type", "text"), at)
    if kind == "input_image" and isinstance(data.get("image_url"), str):
        source = source_of(data["image_url"])
        return {"type": "image", "source": source} | _noted(data, ("type", "image_url"), at)
    if kind == "input_file" and isinstance(data.get("file_data"), str):
        file = {key: data[key] for key in _FILE_KEYS if key in data}
        return {"type": "file", "file": file} | _noted(data, ("type", *file), at)
    return {"type": WRAPPED, WRAPPED: data, REMARK: {"of": OF}}


def _write_part(block: Block, role: str, *, is_output: bool = False) -> dict[str, Any]:
    noted, kind = remark_of(block, OF), block.get("type")
    if noted and kind == WRAPPED:
        held = block[WRAPPED]
        if held.get("type") == _SCREENSHOT and not is_output:  # its call is gone
            image = {key: held[key] for key in ("image_url", "file_id") if held.get(key) is not None}
            return {"type": "input_image", **image, "detail": "auto"}
        return dict(copy_json(held))
    if kind == "text" and noted.get("part") in _TEXTS:
        return assemble({"type": noted["part"], "text": block["text"]}, noted)
    if noted and kind in ("image", "file") and (part := _WORDS[kind](block, "user")):
        return assemble(part, noted)  # the assistant's, too, if it was read as such
    return part_of(block, role, _WORDS, _type_of_text(role))


def _type_of_text(role: str) -> str:
    return "output_text" if role == "assistant" else "input_text"


def _write_text(block: Block, role: str) -> dict[str, Any]:
    return {"type": _type_of_text(role), "text": block["text"]}


def _write_image(block: Block, role: str) -> dict[str, Any] | None:
    url = url_of(block["source"]) if isinstance(block.get("source"), dict) else None
    return None if url is None or role == "assistant" else {"type": "input_image", "image_url": url}


def _write_file(block: Block, role: str) -> dict[str, Any] | None:
    held = block.get("file")
    file = {key: held[key] for key in _FILE_KEYS if key in held} if isinstance(held, dict) else {}
    is_known = {"file_data", "file_id"} & file.keys() and role != "assistant"
    return {"type": "input_file", **file} if is_known else None


def _write_refusal(block: Block, role: str) -> dict[str, Any] | None:
    is_said = role == "assistant" and isinstance(block.get("refusal"), str)
    return {"type": "refusal", "refusal": block["refusal"]} if is_said else None


_WORDS: Words = {
    "text": _write_text,
    "image": _write_image,
    "file": _write_file,
    "refusal": _write_refusal,
}


# Calls and their outputs


def _read_item(data: dict[str, Any], kind: str, tool_names: dict[str, str]) -> Block:
    call_id = data.get("call_id")
    if kind == "reasoning":
        summary = data.get("summary")
        parts = summary if isinstance(summary, list) else []
        texts = [part.get("text") for part in parts if isinstance(part, dict)]
        thought = "\n".join(text for text in texts if isinstance(text, str))
        return {"type": "thinking", "thinking": thought} | noted_as(OF, {"extra": data})
    if kind == "image_generation_call" and isinstance(data.get("result"), str):
        source = {"type": "base64", "media_type": "image/png", "data": data["result"]}
        return {"type": "image", "source": source} | _noted(data, ("type", "result"))
    keys = _CALL_KEYS.get(kind)
    if keys is not None:
        call_id = _string(data, "call_id")
        name, text = (_string(data, key) for key in keys[2:])
        is_text = kind == "custom_tool_call"
        said = {"input": {"input": text}} if is_text else {"input": parse_arguments(text), "raw_input": text}
        remark = _noted(data, keys)
    elif not (isinstance(call_id, str) and kind.endswith("_call")):
        return {"type": ITEM, ITEM: data}
    else:
        beside = {key: data[key] for key in ("id", "status", "caller") if key in data}
        name = kind.removesuffix("_call")
        said = {"input": {key: data[key] for key in data if key not in ("type", "call_id", *beside)}}
        remark = noted_as(OF, {"part": kind, "keys": list(data), "extra": beside})
    tool_names[call_id] = name
    return {"type": "tool_use", "id": call_id, "name": name} | said | remark


def _read_output(data: dict[str, Any], tool_names: dict[str, str]) -> Msg:
    key, output = _call_key(data, data["type"]), data.get("output")
    noted: dict[str, Any] = {} if key == _usual_key(data["type"]) else {"names": key}
    name = tool_names.get(data[key], "tool")
    shown: Any = output
    if isinstance(output, list):
        shown = [_read_output_part(part, f"output[{number}]") for number, part in enumerate(output)]
    elif isinstance(output, dict):  # a screenshot
        shown, noted["content"] = [_read_part(output, "output")], "dict"
    elif output is None:
        shown, noted["content"] = "", "null" if "output" in data else "absent"
    elif not isinstance(output, str):
        raise wrong("output", "a string or a list of parts", output)
    block = {"type": "tool_result", "id": data[key], "name": name, "output": shown}
    return Msg(name, [block | _noted(data, ("type", key, "output"), **noted)], "system")


def _read_output_part(part: object, path: str) -> Block:
    """Return a part of an output; the longer of what a shell printed is its text, with all else beside it."""
    if not (isinstance(part, dict) and all(isinstance(part.get(key), str) for key in _PRINTED)):
        return _read_part(part, path)
    key = max(_PRINTED, key=lambda key: len(part[key]))
    remark = noted_as(OF, {"part": key, **remember(part, (key,), (key,), f"{path}.")})
    return {"type": "text", "text": part[key]} | remark


# Writing


def to_responses(messages: Iterable[Msg]) -> list[Any]:
    """Turn messages into input items of the Responses API; ids of calls that it does not take are replaced.

    Raises:
        InvalidArgumentError: `messages` is not a list or another iterable of `Msg`.
    """
    return [_with_fit_id(item) for msg in check_messages(messages) for item in _write_message(msg)]


def as_accepted(written: list[Any], said: Sequence[Any], system: Any) -> list[Any]:  # noqa: ARG001
    """Return a request's items with what only a view needs: no message has an empty list of parts."""
    blank = {"type": "output_text", "text": "", "annotations": []}
    return [
        with_keys(item, content=[dict(blank)])
        if get(item, "content") == [] and get(item, "role") == "assistant"
        else _with_fit_id(item)
        for item in written
    ]


def _with_fit_id(item: Any) -> Any:
    """Return an item in which the API takes the id of a call."""
    kind = _kind_of(item)
    key = _call_key(item, kind) if kind.endswith("_output") else "call_id"
    id = get(item, key)
    if not isinstance(id, str) or 0 < len(id) <= MOST_ID_CHARACTERS:
        return item
    return with_keys(item, **{key: made_id(id)})


def _write_message(msg: Msg) -> Iterator[dict[str, Any]]:
    noted = remark_of(msg.metadata, OF)
    role: str = noted.get("role") or msg.role
    blocks = msg.get_content_blocks()
    results = [block for block in blocks if block.get("type") == "tool_result"]
    others = [block for block in blocks if block.get("type") != "tool_result"]
    if role == "assistant":
        yield from _write_run(others)
    for block in results:
        if not _is_unsaid(block):
            yield _write_output(block)
    if role == "assistant" or (results and not others):
        return
    if isinstance(msg.content, str):
        yield assemble({"role": role, "content": msg.content}, noted)
    else:
        yield assemble({"role": role, "content": [_write_part(block, role) for block in others]}, noted)


def _write_run(blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    said: list[Block] = []
    for block in blocks:
        kind, noted = block.get("type"), remark_of(block, OF)
        is_drawn = noted.get("part") == "image_generation_call" and kind == "image"
        if said and (
            _SAID in noted or is_drawn or kind in ("thinking", "redacted_thinking", "tool_use", ITEM)
        ):
            yield _write_said(said)
            said = []
        if kind in ("thinking", "redacted_thinking"):
            if noted:  # else another provider's, which none takes back
                yield dict(copy_json(noted["extra"]))
        elif kind == "tool_use":
            yield _write_call(block, noted)
        elif is_drawn:
            yield assemble({"type": noted["part"], "result": block["source"].get("data")}, noted)
        elif kind == ITEM and isinstance(block.get(ITEM), Mapping):
            yield dict(copy_json(block[ITEM]))
        else:
            said.append(block)
    if said:
        yield _write_said(said)


def _write_said(blocks: Sequence[Block]) -> dict[str, Any]:
    noted = remark_of(blocks[0], OF)
    if noted.get(_SAID) == "string" and len(blocks) == 1:
        return assemble({"role": "assistant", "content": blocks[0]["text"]}, noted)
    if _SAID not in noted and len(blocks) == 1 and blocks[0].get("type") == "text":
        return {"role": "assistant", "content": blocks[0]["text"]}
    is_empty = noted.get("content") == "empty" and not any(block.get("text") for block in blocks)
    parts = [] if is_empty else [_write_part(block, "assistant") for block in blocks]
    return assemble({"role": "assistant", "content": parts}, noted.get("item", {}))


def _write_call(block: Block, noted: Mapping[str, Any]) -> dict[str, Any]:
    kind = noted.get("part", "function_call")
    said: dict[str, Any]
    if kind == "function_call":
        said = {"name": block["name"], "arguments": arguments_text(block)}
    elif kind == "custom_tool_call":
        text = block["input"].get("input")
        text = text if isinstance(text, str) else json.dumps(block["input"], ensure_ascii=False)
        said = {"name": block["name"], "input": text}
    else:
        said = copy_json(block["input"])
    return assemble({"type": kind, "call_id": block["id"], **said}, noted)


def answer_of(call: Block) -> dict[str, Any]:
    """Return what a result of our own needs to be of the kind that a call asks for.

    Where that kind is not known none is written: what answers a call that is new is for its client to say.
    """
    kind = remark_of(call, OF).get("part")
    if kind is None:
        return {}
    remark = {"of": OF, "made": "yes"} | ({"part": _OUTPUTS[kind]} if kind in _OUTPUTS else {})
    if kind == "computer_call":  # nothing but an image may stand there
        shot = {"type": _SCREENSHOT, "image_url": _PIXEL}
        return {
            "output": [{"type": WRAPPED, WRAPPED: shot, REMARK: {"of": OF}}],
            REMARK: {**remark, "content": "dict"},
        }
    return {REMARK: remark}


def _is_unsaid(block: Block) -> bool:
    """Tell whether a result is of our own, for a call that nothing known here answers."""
    noted = remark_of(block, OF)
    return "made" in noted and "part" not in noted


def _write_output(block: Block) -> dict[str, Any]:
    noted, output = remark_of(block, OF), block["output"]
    kind = noted.get("part") or "function_call_output"
    fields: dict[str, Any] = {"type": kind, noted.get("names") or _usual_key(kind): block["id"]}
    form = noted.get("content")
    if output == "" and form in ("null", "absent"):
        fields |= {} if form == "absent" else {"output": None}
    elif noted.get("made") and isinstance(output, str):
        fields |= _made(kind, output)
    elif isinstance(output, str):
        fields["output"] = output or ([] if kind == "shell_call_output" else "")
    elif form == "dict" and len(output) == 1 and output[0].get("type") == WRAPPED:
        fields["output"] = _write_part(output[0], "user", is_output=True)
    else:
        fields["output"] = [_write_output_part(part) for part in output]
    return assemble(fields, noted)


def _write_output_part(block: Block) -> dict[str, Any]:
    noted = remark_of(block, OF)
    part = noted.get("part")
    if part in _PRINTED:
        return assemble({part: block["text"]}, noted)
    return _write_part(block, "user", is_output=True)


def _made(kind: str, text: str) -> dict[str, Any]:
    """Return what an output of our own, which stands for one that never came, says beside its call."""
    if kind == "tool_search_output":
        return {"execution": "client", "status": "completed", "tools": []}
    if kind == "shell_call_output":
        return {"output": [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}]}
    return {"output": text} | ({"status": "failed"} if kind == "apply_patch_call_output" else {})
