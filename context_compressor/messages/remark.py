"""The remark: what a codec notes of a message or a block that content cannot say; what others ask of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from context_compressor.messages.msg import Block, Msg, copy_json
from context_compressor.messages.plain import plain

REMARK: Final = "openai"
"""The one key under which the codec keeps what content cannot say: in a message's metadata about the message
dict, in a block about that block's call or part. A JSON-like dict, absent when there is nothing to say."""

MARKERS: Final = "markers"


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


def noted_as(of: str, noted: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a codec noted, under its key, as a block or metadata hold it; empty where it is nothing."""
    return {REMARK: {"of": of, **noted}} if noted else {}


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


# What others ask of it


def form_name_of(holder: Block | None) -> str | None:
    """Return the form, other than chat dicts, whose remark a block or a message's metadata holds."""
    remark = holder.get(REMARK) if holder else None
    name = remark.get("of") if isinstance(remark, dict) else None
    return name if isinstance(name, str) else None


def remark_in(holder: Block | None) -> dict[str, Any]:
    """Return the remark in a block or in a message's metadata, of whichever form it is."""
    return remark_of(holder, form_name_of(holder))


def like(holder: Block | None, *keys: str) -> dict[str, Any]:
    """Return the remark by which what stands in for something is of its form, with more that it says."""
    noted = remark_in(holder)
    return {REMARK: {key: noted[key] for key in ("of", *keys)}} if "of" in noted else {}


def among_of(msg: Msg) -> dict[str, Any] | None:
    """Return the metadata of what is written as a message is that came in another form among chat dicts."""
    return like(msg.metadata, "among") if "among" in remark_in(msg.metadata) else None


def extra_of(holder: Block | None) -> dict[str, Any]:
    """Return what a chat dict, or a call, said under keys that have no place in content."""
    extra: dict[str, Any] = remark_of(holder).get("extra", {})
    return extra


def extras_of_call(block: Block) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the same of a `tool_use` block: of the `function` in its call, and of the call."""
    return remark_of(block).get("function", {}).get("extra", {}), extra_of(block)


def without_extra(holder: Block, *names: str) -> Block:
    """Return a block, or a message's metadata, without some of such keys."""
    remark = holder[REMARK]
    extra = {key: value for key, value in remark["extra"].items() if key not in names}
    keys = {"keys": [key for key in remark["keys"] if key not in names]} if "keys" in remark else {}
    return {**holder, REMARK: {**remark, **keys, "extra": extra}}


def metadata_with(extra: dict[str, Any]) -> dict[str, Any] | None:
    """Return the metadata of a message of which only such keys are kept."""
    return {REMARK: {"extra": extra}} if extra else None


def without_remark(block: Block) -> Block:
    """Return a block as content alone."""
    return {key: value for key, value in block.items() if key != REMARK}


def beside(block: Block, *told: str) -> dict[str, Any]:
    """Return what a block says on the wire beside its type and what stands under the keys `told`: citations,
    a thought's signature, an item's id, what a shell wrote beside its output. Empty fields are left out.
    """
    found = {key: value for key, value in block.items() if value and key != "type" and key not in told}
    if not found:
        return found  # as nearly all do
    found.pop(REMARK, None)
    remark = remark_in(block)
    found |= remark.get("extra", {})
    found |= {key: remark[key].get("extra") for key in ("function", "item") if key in remark}
    if block.get("type") == "thinking":
        found.pop("summary", None)  # the summary of a Responses item was read as its thought
    return {key: value for key, value in found.items() if value}


def beside_content(msg: Msg) -> dict[str, Any]:
    """Return what a message says on the wire under keys that have no place in content."""
    metadata = msg.metadata or {}
    return beside({REMARK: metadata[REMARK]}) if REMARK in metadata else {}


def form_of(block: Block) -> str | None:
    """Return how a block stood on the wire where its type leaves that open.

    `field` for a key beside the content, `function_call` or `custom` for such a call, `typeless` for a part
    of DashScope's form.
    """
    form: str | None = remark_of(block).get("form")
    return form


def text_block_like(block: Block, text: str) -> Block:
    """Return a text block in place of another, or beside it; DashScope's parts without a type stay such."""
    form: Block = {REMARK: {"form": "typeless"}} if form_of(block) == "typeless" else {}
    return {"type": "text", "text": text, **form}


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


def content_form(msg: Msg) -> str | None:
    """Return how the content stood where blocks leave it open: "null", "string", "list" or "absent"."""
    form: str | None = remark_of(msg.metadata).get("content")
    return form


def without_content_form(msg: Msg) -> Msg:
    """Return a copy of a message whose content stands as blocks say it."""
    other = msg.copy()
    (other.metadata or {}).get(REMARK, {}).pop("content", None)
    return other
