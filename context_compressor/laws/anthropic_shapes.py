"""The shape of each block that Anthropic's Messages API takes, after the `anthropic` package's types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anthropic import types as sdk
from anthropic.types import beta

from context_compressor.laws.shapes import (
    Check,
    is_filled,
    is_flag,
    is_list,
    is_object,
    is_text,
    is_url,
    keys_of,
    matches,
    misshapen,
    one_of,
    or_null,
)

Dict = dict[str, Any]

# "String should match pattern '^[a-zA-Z0-9_-]+$'", and with 'srvtoolu_' before it.
_CALL_ID = matches(r"[a-zA-Z0-9_-]+")
_HOSTED_ID = matches(r"srvtoolu_[a-zA-Z0-9_]+")
_NAME = matches(r"(?s).{1,200}")

_RUN_BY_API: dict[str, Any] = {
    "web_search": sdk.WebSearchToolResultBlockParam,
    "web_fetch": sdk.WebFetchToolResultBlockParam,
    "code_execution": sdk.CodeExecutionToolResultBlockParam,
    "bash_code_execution": sdk.BashCodeExecutionToolResultBlockParam,
    "text_editor_code_execution": sdk.TextEditorCodeExecutionToolResultBlockParam,
    "tool_search": sdk.ToolSearchToolResultBlockParam,
}
BLOCKS: dict[str, tuple[frozenset[str], dict[str, Check]]] = {
    "text": (keys_of(sdk.TextBlockParam), {"text": is_text}),
    "image": (keys_of(sdk.ImageBlockParam), {"source": is_object}),
    "document": (keys_of(sdk.DocumentBlockParam), {"source": is_object}),
    "search_result": (
        keys_of(sdk.SearchResultBlockParam),
        {"content": is_list, "source": is_text, "title": is_text},
    ),
    # "thinking.signature: Field required".
    "thinking": (keys_of(sdk.ThinkingBlockParam), {"thinking": is_text, "signature": is_filled}),
    "redacted_thinking": (keys_of(sdk.RedactedThinkingBlockParam), {"data": is_filled}),
    "tool_use": (keys_of(sdk.ToolUseBlockParam), {"id": _CALL_ID, "name": _NAME, "input": is_object}),
    "tool_result": (keys_of(sdk.ToolResultBlockParam), {"tool_use_id": _CALL_ID}),
    "server_tool_use": (
        keys_of(sdk.ServerToolUseBlockParam),
        {"id": _HOSTED_ID, "name": _NAME, "input": is_object},
    ),
    "container_upload": (keys_of(sdk.ContainerUploadBlockParam), {"file_id": is_filled}),
    "tool_reference": (keys_of(sdk.ToolReferenceBlockParam), {"tool_name": is_filled}),
    "browser_state": (keys_of(sdk.BrowserStateBlockParam), {"tabs": is_list}),
    "mcp_tool_use": (
        keys_of(beta.BetaMCPToolUseBlockParam),
        {"id": _CALL_ID, "name": _NAME, "input": is_object, "server_name": is_text},
    ),
    # "Empty string content is not allowed": the type's own text.
    "compaction": (keys_of(beta.BetaCompactionBlockParam), {"content": or_null(is_filled)}),
    "mcp_tool_result": (keys_of(beta.BetaRequestMCPToolResultBlockParam), {"tool_use_id": _CALL_ID}),
    **{
        f"{name}_tool_result": (keys_of(kind), {"tool_use_id": _HOSTED_ID})
        for name, kind in _RUN_BY_API.items()
    },
}
"""The fields that a block of each kind may have, and those it must have."""
USER_KINDS = frozenset({"text", "image", "document", "search_result", "tool_result", "container_upload"})
RESULT_KINDS = frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"})
ASSISTANT_KINDS = frozenset(
    {"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use"}
    | {"container_upload", "compaction"}
    | {kind for kind in BLOCKS if kind.endswith("_tool_result")}
)

_SOURCES: dict[str, dict[str, dict[str, Check]]] = {
    "image": {
        "base64": {
            "data": is_filled,
            "media_type": one_of("image/jpeg", "image/png", "image/gif", "image/webp"),
        },
        "url": {"url": is_url},
        "file": {"file_id": is_filled},
    },
    "document": {
        "base64": {"data": is_filled, "media_type": one_of("application/pdf")},
        "text": {"data": is_text, "media_type": one_of("text/plain")},
        "content": {"content": lambda value: isinstance(value, str | list)},
        "url": {"url": is_url},
        "file": {"file_id": is_filled},
    },
}


def misshapen_block(where: str, block: Mapping[str, Any]) -> Iterator[str]:
    """Tell what is wrong with one block, apart from its place; nothing of a kind that is not known."""
    kind = block["type"]
    if kind not in BLOCKS:
        return
    allowed, required = BLOCKS[kind]
    at = f"{where}.{kind}"
    yield from misshapen(at, block, required)
    yield from (f"{at}.{key}: Extra inputs are not permitted" for key in block if key not in allowed)
    mark = block.get("cache_control")
    if mark is not None and not (
        isinstance(mark, dict) and mark.get("type") == "ephemeral" and mark.get("ttl", "5m") in ("5m", "1h")
    ):
        yield f"{at}.cache_control: {mark!r:.60}"
    match kind:
        case "text":
            if isinstance(block.get("text"), str) and not block["text"].strip():
                # "text content blocks must be non-empty": anthropics/claude-code#59812; blank ones, too:
                # "text content blocks must contain non-whitespace text": NousResearch/hermes-agent#97618.
                yield f"{where}: text content blocks must be non-empty"
        case "image" | "document":
            yield from _misshapen_source(at, kind, block.get("source"))
        case "search_result":
            yield from _inner(f"{at}.content", block.get("content"), frozenset({"text"}))
            if block.get("content") == []:
                yield f"{at}.content: empty"
        case "tool_result":
            yield from _misshapen_result(at, block)


def result_kind(block: Mapping[str, Any]) -> str:
    """Return the kind of block that answers a call which Anthropic runs itself."""
    if block.get("type") == "mcp_tool_use":
        return "mcp_tool_result"
    name = str(block.get("name"))
    return f"{name.removesuffix('_regex').removesuffix('_bm25').removesuffix('_tool')}_tool_result"


def _misshapen_result(where: str, block: Mapping[str, Any]) -> Iterator[str]:
    content = block.get("content")
    if not isinstance(content, str | list | None):
        yield f"{where}.content: neither a text nor a list: {content!r:.60}"
        return
    yield from _inner(f"{where}.content", content, RESULT_KINDS)
    if not or_null(is_flag)(block.get("is_error")):
        yield f"{where}.is_error: {block['is_error']!r:.60}"
    if block.get("is_error"):
        if not content:
            # bytedance/trae-agent#230.
            yield f"{where}: content cannot be empty if `is_error` is true"
        elif isinstance(content, list) and any(part.get("type") != "text" for part in content):
            # vellum-ai/vellum-assistant#18387.
            yield f'{where}: all content must be type "text" if `is_error` is true'


def _misshapen_source(where: str, kind: str, source: Any) -> Iterator[str]:
    form = source.get("type") if isinstance(source, dict) else None
    if form not in _SOURCES[kind]:
        yield f"{where}.source: {source!r:.60}"
        return
    yield from misshapen(f"{where}.source.{form}", source, _SOURCES[kind][form])
    if form == "content" and isinstance(source.get("content"), list):
        yield from _inner(f"{where}.source.content", source["content"], frozenset({"text", "image"}))


def _inner(where: str, content: Any, kinds: frozenset[str]) -> Iterator[str]:
    """Tell what is wrong with the blocks inside a block; kinds that are not known are refused there."""
    for number, block in enumerate(content if isinstance(content, list) else []):
        at = f"{where}.{number}"
        if not isinstance(block, dict) or block.get("type") not in kinds:
            yield f"{at}: {block!r:.60}"
        else:
            yield from misshapen_block(at, block)
