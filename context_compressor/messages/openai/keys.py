"""The roles of chat dicts, and the keys that say what content says."""

from __future__ import annotations

from context_compressor.messages.msg import Role

PLAIN_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
THOUGHT_KEYS = ("reasoning_content", "reasoning")
"""Where providers write what a model thought, the usual key first; the other (vLLM, OpenRouter) is remembered
as the block's `{"form": key}`."""
ASSISTANT_KEYS = (
    "role",
    "content",
    *THOUGHT_KEYS,
    "refusal",
    "audio",
    "images",
    "function_call",
    "tool_calls",
)
RESULT_KEYS = {"tool": ("role", "tool_call_id", "content"), "function": ("role", "name", "content")}
FIELD_BLOCKS: dict[str, tuple[type, str]] = {"refusal": (str, "a string"), "audio": (dict, "a dict")}
"""Keys of an assistant dict that are content; their blocks say so with the remark `{"form": "field"}`, as do
the image blocks of `images`, where OpenRouter and LiteLLM put what a model drew."""
