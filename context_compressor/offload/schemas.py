"""The schemas of the read-back tools, in OpenAI's form: what the model is told about them."""

from __future__ import annotations

from typing import Any

READ_TOOL = "read_offloaded"
GREP_TOOL = "grep_offloaded"
LOAD_TOOL = "load_offloaded"
SEARCH_TOOL = "search_history"
COMPRESS_TOOL = "compress_context"

GUIDE = (
    f"What left the view is not lost: {SEARCH_TOOL}(query) finds it, {READ_TOOL}(ref) shows it, "
    f"{GREP_TOOL}(pattern) finds exact lines"
)
"""What an agent is told, once per view, by one stand-in."""
SHORT_GUIDE = f"{SEARCH_TOOL}(query) and {READ_TOOL}(ref) bring it back"
"""The same where no stand-in has room for more."""

TOOL_NAMES = frozenset({READ_TOOL, GREP_TOOL, LOAD_TOOL, SEARCH_TOOL, COMPRESS_TOOL})
"""What they answer with stands in the history already, or is of no use later."""


def is_own_tool(name: str | None) -> bool:
    """Tell whether a tool is one of these by its name, before which frameworks put prefixes of their own."""
    return name is not None and any(
        name.endswith(tool) and not name[: -len(tool)][-1:].isalnum() for tool in TOOL_NAMES
    )


def names_tools(stand_in: str) -> bool:
    """Tell whether a stand-in's own words, which are its first line, say which tools bring back what left."""
    label = stand_in.partition("\n")[0]
    return GUIDE in label or SHORT_GUIDE in label


SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": READ_TOOL,
            "description": (
                "Read a text that was moved out of this conversation, one page at a time. "
                "Use it when a note such as [Offloaded ... ctx://...] or a summary names a ref "
                "and you need the exact text."
            ),
            "parameters": {
                "type": "object",
                "properties": {
                    "ref": {"type": "string", "description": "The ref as shown: ctx:// and 16 hex digits."},
                    "offset": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "First line to show. Default 1.",
                    },
                    "limit": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Lines to show. Default: as many as fit one page.",
                    },
                    "column": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "First character of that line, to go on in a long line. Default 1.",
                    },
                },
                "required": ["ref"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": GREP_TOOL,
            "description": (
                "Search the texts that were moved out of this conversation, newest match first. "
                "Answers with refs and line numbers for read_offloaded. "
                "Cheaper than reading when you know a name, id or word to look for."
            ),
            "parameters": {
                "type": "object",
                "properties": {
                    "pattern": {
                        "type": "string",
                        "description": "Regular expression (Python syntax); ^ and $ match at each line.",
                    },
                    "ref": {"type": "string", "description": "Search only this text. Default: all texts."},
                    "ignore_case": {"type": "boolean", "description": "Default false."},
                    "context": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "Lines to show before and after each match. Default 0.",
                    },
                    "limit": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Matches to show, up to one page. Default: a short answer.",
                    },
                },
                "required": ["pattern"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": LOAD_TOOL,
            "description": (
                "Show again an image, audio, video or file that was moved out of this conversation. "
                "Use it when a note such as [Offloaded image ctx://...] names a ref and you need to see it."
            ),
            "parameters": {
                "type": "object",
                "properties": {
                    "ref": {"type": "string", "description": "The ref as shown: ctx:// and 16 hex digits."}
                },
                "required": ["ref"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": SEARCH_TOOL,
            "description": (
                "Search the whole conversation, also what left it or was summarised, best match first. "
                "Ask with a name, an id, a path or a question in a few words. "
                "Answers with short passages and where each stands."
            ),
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "What to look for, in a few telling words."},
                    "limit": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Passages to show, up to one page. Default: a short answer.",
                    },
                },
                "required": ["query"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": COMPRESS_TOOL,
            "description": (
                "Compress this conversation now: all but the latest messages become a summary, and can still "
                "be searched and read. Use it when a task is done and another begins."
            ),
            "parameters": {
                "type": "object",
                "properties": {
                    "keep": {
                        "type": "string",
                        "description": (
                            "A note on what you still need, in a few lines. It stands beside the summary as "
                            "far as there is room; the answer says whether it was kept."
                        ),
                    }
                },
            },
        },
    },
]
