"""What reading and writing share in every form, and what others may ask of a message that was a chat dict."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Iterable, Mapping
from hashlib import sha256
from inspect import isawaitable
from typing import Any, Final

from context_compressor.errors import InvalidArgumentError, InvalidMessageError
from context_compressor.messages.msg import SCALARS, Block, Msg, Role, copy_json
from context_compressor.messages.text import dump_sendable

REMARK: Final = "openai"
"""The one key under which the codec keeps what content cannot say: in a message's metadata about the message
dict, in a block about that block's call or part. A JSON-like dict, absent when there is nothing to say."""

WRAPPED = "openai_part"
"""Type of the block that holds a part which, unwrapped, would be taken for something else."""

MARKERS: Final = "markers"

MAX_DEPTH: Final = 100
"""How deep JSON data may nest. Fixed, because what recursion bears depends on the caller's stack, and the
same message must read the same way everywhere."""

_FIELD = re.compile(r"[^.\[]*(?:\[\d+\](?=\.))?")
"""The beginning of a path: a field, and the place in it where more follows."""

MISSING: Final = object()
"""Stands for a key that is not there, where None means null."""

PLAIN_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
THOUGHT_KEYS = ("reasoning_content", "reasoning")
"""Where providers write what a model thought, the usual key first; the other (vLLM, OpenRouter) is remembered
as the block's `{"form": key}`."""
ASSISTANT_KEYS = (
    *("role", "content", *THOUGHT_KEYS),
    *("refusal", "audio", "images", "function_call", "tool_calls"),
)
FIELD_BLOCKS: dict[str, tuple[type, str]] = {"refusal": (str, "a string"), "audio": (dict, "a dict")}
"""Keys of an assistant dict that are content; their blocks say so with the remark `{"form": "field"}`, as do
the image blocks of `images`, where OpenRouter and LiteLLM put what a model drew."""

_PARSED_BY_SDK = {
    "parsed": True,
    "parsed_arguments": True,
    "function": {"parsed_arguments": True},
    "tool_calls": {"__all__": {"function": {"parsed_arguments": True}}},
}
"""What `client.chat.completions.parse` adds to a message: second readings of the content and the arguments,
which the API refuses when they are sent back (openai-node #1161)."""


def wrong(path: str, expected: str, value: object, mend: str = "") -> InvalidMessageError:
    """Return the error that names a field, what was expected there and what was found."""
    if value is MISSING:
        return InvalidMessageError(f"{path}: expected {expected}, but it is missing{mend}")
    found = "None" if value is None else type(value).__name__
    return InvalidMessageError(f"{path}: expected {expected}, got {found}{mend}")


def not_a_list(value: object, of: str) -> InvalidArgumentError:
    """Return the error for what is no list of messages."""
    mend = "await it" if isawaitable(value) else "put a single message in a list"
    return InvalidArgumentError(f"messages: expected a list of {of}, got {type(value).__name__}; {mend}")


def no_chat_dict(index: int, value: object) -> InvalidMessageError:
    """Return the error for what stands where a chat dict should, with what makes one of a `Msg`."""
    mend = "; to_openai makes chat dicts of messages" if isinstance(value, Msg) else ""
    return wrong(f"messages[{index}]", "a chat dict", value, mend)


def as_list(messages: Iterable[Any]) -> list[Any]:
    """Return chat dicts as a list.

    Raises:
        InvalidArgumentError: a single message, or anything else that is no list.
    """
    is_single = isinstance(messages, str | bytes | Mapping) or hasattr(messages, "model_dump")
    if is_single or not isinstance(messages, Iterable):
        raise not_a_list(messages, "chat dicts")
    return list(messages)


def check_messages(messages: Iterable[Msg]) -> list[Msg]:
    """Return messages that are to be written as a list.

    Raises:
        InvalidArgumentError: it is no list or another iterable, or one of it is no message.
        InvalidMessageError: a role or content was changed to what it cannot be.
    """
    if isinstance(messages, str | bytes | Mapping | Msg) or not isinstance(messages, Iterable):
        raise not_a_list(messages, "Msg")
    given = list(messages)
    for index, msg in enumerate(given):
        # By attribute, not by class: AgentScope's own Msg will do.
        place, role, content = f"messages[{index}]", getattr(msg, "role", None), getattr(msg, "content", None)
        if isinstance(content, str | list) and role in PLAIN_ROLES:
            continue
        if not (hasattr(msg, "content") and hasattr(msg, "role")):
            raise InvalidArgumentError(f"{place}: expected a Msg, got {type(msg).__name__}")
        if role not in PLAIN_ROLES:
            roles = ", ".join(PLAIN_ROLES)
            raise InvalidMessageError(f"{place}.role: expected one of {roles}, got {role!r}")
        raise wrong(f"{place}.content", "a string or a list of blocks", content)
    return given


def as_dict(value: object) -> dict[str, Any] | None:
    """Return a dict, another Mapping or an SDK's (pydantic) object as a dict, not a deep copy; else None."""
    if isinstance(value, dict):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        return None
    options: dict[str, Any] = {"mode": "json", "warnings": False, "exclude": _PARSED_BY_SDK}
    data = dump(exclude_unset=True, **options)
    # A class of the user's own may give its role by default, which "unset" leaves out.
    if "role" not in data and getattr(value, "role", None) is not None:
        data = dump(exclude_none=True, **options)
    return data if isinstance(data, dict) else None


def get(value: object, key: str) -> Any:
    """Return what a dict, or an SDK's object, holds under a key; None where it has none."""
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)


def plain(value: Any, path: str, depth: int = MAX_DEPTH) -> Any:
    """Return an independent copy of `value` in dicts, lists and scalars only.

    Raises:
        InvalidMessageError: something in it is not JSON data, or nests deeper than `MAX_DEPTH`.
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    if depth == 0:
        field = found[0] if (found := _FIELD.match(path)) else ""
        raise InvalidMessageError(f"{field or 'item'}: nested more than {MAX_DEPTH} deep")
    if kind is dict:
        for key in value:
            if not isinstance(key, str):
                raise wrong(path or "item", "keys that are strings", key)
        return {
            key: item if type(item) in SCALARS else plain(item, f"{path}.{key}" if path else key, depth - 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            item if type(item) in SCALARS else plain(item, f"{path}[{number}]", depth - 1)
            for number, item in enumerate(value)
        ]
    if isinstance(value, str):  # a subclass: an enum, mostly
        return str.__str__(value)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    data = as_dict(value)
    if data is None:
        raise wrong(path or "item", "JSON data", value)
    return plain(dict(data), path, depth)


def is_plain_text(part: Mapping[str, Any]) -> bool:
    """Tell whether a part is a text that says nothing else."""
    return len(part) == 2 and part.get("type") == "text"


# The remark


def remember(
    data: Mapping[str, Any], canonical: Iterable[str], known: Iterable[str], path: str
) -> dict[str, Any]:
    """Return the remark that brings `data` back from its known fields: `keys`, `extra`, each only if needed.

    `canonical`: the keys that `assemble` gets as fields, in order, when there is no remark. `known`: the keys
    whose values live in content.
    """
    keys = list(data)
    if keys == list(canonical):
        return {}
    extra = {key: plain(value, f"{path}{key}") for key, value in data.items() if key not in known}
    remark: dict[str, Any] = {}
    if keys != [*canonical, *extra]:
        remark["keys"] = keys
    if extra:
        remark["extra"] = extra
    return remark


def assemble(fields: dict[str, Any], remark: Mapping[str, Any]) -> dict[str, Any]:
    """Return `fields` and the remark's extra keys in the remark's order; what an edit added comes last."""
    keys: list[str] = remark.get("keys", [])
    extra: dict[str, Any] = remark.get("extra", {})
    if not keys and not extra:
        return fields
    said = {**copy_json(extra), **fields}
    return {key: said[key] for key in (*keys, *fields, *extra) if key in said}


def remark_of(holder: Block | None, of: str | None = None) -> dict[str, Any]:
    """Return a codec's remark in a block or in a message's metadata; empty when there is none.

    What somebody else keeps under the same key is no remark.

    Args:
        holder: the block, or the metadata.
        of: whose remark, where it is not that of chat dicts: "anthropic", "responses".
    """
    remark = holder.get(REMARK) if holder else None
    return remark if remark and _is_remark(remark) and remark.get("of") == of else {}


def _is_remark(value: object) -> bool:
    return isinstance(value, dict) and all(_may_say(key, said) for key, said in value.items())


def _may_say(key: object, said: object) -> bool:
    if key == "keys":
        return isinstance(said, list) and all(isinstance(name, str) for name in said)
    if key == "extra":
        return isinstance(said, dict)
    if key == MARKERS:
        return are_markers(said)
    return _is_remark(said) if key in ("function", "item") else isinstance(said, str | None)


def are_markers(value: object) -> bool:
    """Tell whether a value has the form of what `split_markers` took out of a chat dict."""
    return isinstance(value, list) and all(
        isinstance(one, list)
        and len(one) == 4
        and isinstance(one[0], list)
        and all(isinstance(step, str | int) for step in one[0])
        and type(one[1]) is int
        and isinstance(one[2], str | None)
        for one in value
    )


# Ids

MOST_ID_CHARACTERS = 64
"""Characters of an id of a call; OpenAI's Responses API refuses longer ones."""
_DIGEST_CHARACTERS = 12


def made_id(id: str) -> str:
    """Return a valid id in the place of one that a form does not take: letters, digits, `_` and `-`, not too
    long. The same id always becomes the same one, and each another.
    """
    size = max(0, min(len(id), MOST_ID_CHARACTERS) - _DIGEST_CHARACTERS - 1)
    digest = sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{_NO_ID_CHARACTER.sub('_', id[:size])}_{digest}"


_NO_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")


# Arguments


def parse_arguments(raw: str) -> dict[str, Any]:
    """Return a call's arguments: the object that `raw` spells in JSON, else `{"arguments": raw}`.

    Strict: NaN, infinities (also by overflow) and objects nested deeper than `MAX_DEPTH` are not accepted, so
    that what is returned can always be written as JSON again.
    """
    try:
        value = _DECODER.decode(raw)
        if type(value) is dict and (raw.count("{") + raw.count("[") <= MAX_DEPTH or plain(value, "")):
            return value
    except (ValueError, RecursionError):  # ValueError: no JSON, or an integer too long for Python
        pass
    return {"arguments": raw}


def dump_arguments(value: dict[str, Any]) -> str:
    """Return a call's `input` as JSON text, always an object.

    Raises:
        InvalidMessageError: the input holds something that JSON has no form for.
    """
    try:
        try:
            return dump_sendable(value, allow_nan=False)
        except ValueError:  # a NaN: readable for the model, in a form that any provider can parse
            return dump_sendable({"arguments": json.dumps(value, ensure_ascii=False)})
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessageError(f"tool_use.input: expected JSON data; {error}") from error


def arguments_text(block: Block) -> str:
    """Return the text as received while it still says what `input` says, else `input` as JSON."""
    # Compared as JSON text: to `==`, 1, 1.0 and True are one value, and an edit between them would not show.
    text = dump_arguments(block["input"])
    raw = block.get("raw_input")
    if isinstance(raw, str) and (raw == text or dump_arguments(parse_arguments(raw)) == text):
        return raw
    return text


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is beyond a float")
    return number


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


# What others ask of it


def extra_of(holder: Block | None) -> dict[str, Any]:
    """Return what a chat dict, or a call, said under keys that have no place in content."""
    extra: dict[str, Any] = remark_of(holder).get("extra", {})
    return extra


def extras_of_call(block: Block) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the same of a `tool_use` block: of the `function` in its call, and of the call."""
    if REMARK not in block:
        return {}, {}
    return remark_of(block).get("function", {}).get("extra", {}), extra_of(block)


def metadata_with(extra: dict[str, Any]) -> dict[str, Any] | None:
    """Return the metadata of a message of which only such keys are kept."""
    return {REMARK: {"extra": extra}} if extra else None


def without_remark(block: Block) -> Block:
    """Return a block as content alone."""
    return {key: value for key, value in block.items() if key != REMARK}


REQUEST_METADATA = frozenset({"cache_control"})
"""Keys of messages, parts and calls that are no content: breakpoints of a prompt cache (Anthropic)."""


def without_request_metadata(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a message, part or call holds as content alone."""
    return {key: value for key, value in holder.items() if key not in REQUEST_METADATA}


def beside(block: Block, *told: str) -> dict[str, Any]:
    """Return what a block says on the wire beside its type and what stands under the keys `told`: citations,
    a thought's signature, an item's id, what a shell wrote beside its output. Empty fields are left out.
    """
    remark = remark_of(block, form_name_of(block))
    found = {key: value for key, value in block.items() if key not in ("type", REMARK, *told)}
    found |= remark.get("extra", {})
    found |= {key: remark[key].get("extra") for key in ("function", "item") if key in remark}
    if block.get("type") == "thinking":
        found.pop("summary", None)  # the summary of a Responses item was read as its thought
    return {key: value for key, value in found.items() if value}


def beside_content(msg: Msg) -> dict[str, Any]:
    """Return what a message says on the wire under keys that have no place in content."""
    metadata = msg.metadata or {}
    return beside({REMARK: metadata[REMARK]}) if REMARK in metadata else {}


SENT_BESIDE: Final = "sent_beside"
"""Key in a chat dict that an adapter makes of a framework's message, for what goes out with the message and
has no other place in the dict. It is counted, and never sent under this key."""


def unsaid(value: Any, said: Container[str]) -> Any:
    """Return what JSON-like data says in texts that are not among `said`; None: nothing.

    What is no text, what says which kind of block it is, and request metadata are left out.
    """
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if key != "type" and key not in REQUEST_METADATA}
        return {key: left for key, item in kept.items() if (left := unsaid(item, said))}
    if isinstance(value, list | tuple):
        return [left for item in value if (left := unsaid(item, said))]
    return value if isinstance(value, str) and value not in said else None


def form_of(block: Block) -> str | None:
    """Return how a block stood on the wire where its type leaves that open.

    `field` for a key beside the content, `function_call` or `custom` for such a call, `typeless` for a part
    of DashScope's form.
    """
    form: str | None = remark_of(block).get("form")
    return form


def sends_name(msg: Msg) -> bool:
    """Tell whether the dict that a message was named who speaks, or the tool."""
    remark = remark_of(msg.metadata)
    return "name" in remark.get("keys", ()) and "name" not in remark.get("extra", ())


def is_legacy_result(msg: Msg) -> bool:
    """Tell whether a result message has role `function` on the wire."""
    return bool(remark_of(msg.metadata).get("role") == "function")


def legacy_result_metadata() -> dict[str, Any]:
    """Return the metadata of a result message that has role `function` on the wire."""
    return {REMARK: {"role": "function"}}


def form_name_of(holder: Block | None) -> str | None:
    """Return the form, other than chat dicts, whose remark a block or a message's metadata holds."""
    remark = holder.get(REMARK) if holder else None
    name = remark.get("of") if isinstance(remark, dict) else None
    return name if isinstance(name, str) else None


def among_of(msg: Msg) -> dict[str, Any] | None:
    """Return the metadata of what is written as a message is that came in another form among chat dicts."""
    name = form_name_of(msg.metadata)
    remark = {} if name is None else remark_of(msg.metadata, name)
    return {REMARK: {key: remark[key] for key in ("of", "among")}} if "among" in remark else None


def content_form(msg: Msg) -> str | None:
    """Return how the content stood where blocks leave it open: "null", "string", "list" or "absent"."""
    form: str | None = remark_of(msg.metadata).get("content")
    return form


def without_content_form(msg: Msg) -> Msg:
    """Return a copy of a message whose content stands as blocks say it."""
    other = msg.copy()
    (other.metadata or {}).get(REMARK, {}).pop("content", None)
    return other


def block_extra(block: Block) -> Mapping[str, Any]:
    """Return what a block of whatever form said under keys that have no place in content."""
    remark = block.get(REMARK)
    extra = remark.get("extra") if isinstance(remark, dict) else None
    return extra if isinstance(extra, dict) else {}


def without_extra_key(block: Block, name: str) -> Block:
    """Return a block without one of the keys that have no place in content."""
    extra = {key: value for key, value in block_extra(block).items() if key != name}
    return {**block, REMARK: {**block[REMARK], "extra": extra}}


def form_remark(block: Block) -> Block:
    """Return the remark by which a block that stands in for this one is of the same form."""
    remark = block.get(REMARK)
    form = remark.get("of") if isinstance(remark, dict) else None
    return {} if form is None else {REMARK: {"of": form}}


def without_extra(msg: Msg, keys: Iterable[str]) -> Msg:
    """Return a copy of a message without some of the keys that have no place in content."""
    other = msg.copy()
    remark = (other.metadata or {})[REMARK]
    for key in keys:
        del remark["extra"][key]
        if "keys" in remark:
            remark["keys"].remove(key)
    return other


def text_block_like(block: Block, text: str) -> Block:
    """Return a text block in place of another, or beside it; DashScope's parts without a type stay such."""
    replaced: Block = {"type": "text", "text": text}
    if form_of(block) == "typeless":
        replaced[REMARK] = {"form": "typeless"}
    return replaced
