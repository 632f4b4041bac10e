"""The schemas of the read-back tools, in OpenAI's form: what the model is told about them."""

from __future__ import annotations

from typing import Any, Literal, get_args

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

SpeakerRole = Literal["user", "assistant", "tool", "system"]
ROLES = get_args(SpeakerRole)
"""Roles that speak in a history; results of calls are said by the tool."""

TOOL_NAMES = frozenset({READ_TOOL, GREP_TOOL, LOAD_TOOL, SEARCH_TOOL, COMPRESS_TOOL})
"""What they answer with stands in the history already, or is of no use later."""

MOST_TOOLS = 128
"""Tools that a request may offer at OpenAI. If ours would make more, they are left out."""


def is_own_tool(name: str | None) -> bool:
    """Tell whether a tool is one of these by its name, before which frameworks put prefixes of their own."""
    return name is not None and any(
        name.endswith(tool) and not name[: -len(tool)][-1:].isalnum() for tool in TOOL_NAMES
    )


def names_tools(stand_in: str) -> bool:
    """Tell whether a stand-in's own words, which are its first line, say which tools bring back what left."""
    label = stand_in.partition("\n")[0]
    return GUIDE in label or SHORT_GUIDE in label


def _tool(name: str, description: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = list(required)
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def _string(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _integer(description: str, least: int = 1) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "description": description}


_REF = _string("The ref as shown: ctx:// and 16 hex digits.")

SCHEMAS = [
    _tool(
        READ_TOOL,
        "Read a text that was moved out of this conversation, one page at a time. "
        "Use it when a line such as [Offloaded ... ctx://...] or the notes name a ref "
        "and you need the exact text.",
        {
            "ref": _REF,
            "offset": _integer("First line to show. Default 1."),
            "limit": _integer("Lines to show. Default: as many as fit one page."),
            "column": _integer("First character of that line, to go on in a long line. Default 1."),
        },
        "ref",
    ),
    _tool(
        GREP_TOOL,
        "Search the texts that were moved out of this conversation, the originals, newest match first. "
        "What stands in view, notes among it, is not searched. "
        "Answers with refs and line numbers for read_offloaded. "
        "Cheaper than reading when you know a name, id or word to look for.",
        {
            "pattern": _string("Regular expression (Python syntax); ^ and $ match at each line."),
            "ref": _string("Search only this text. Default: all texts."),
            "ignore_case": {"type": "boolean", "description": "Default false."},
            "context": _integer("Lines to show before and after each match. Default 0.", least=0),
            "limit": _integer("Matches to show, up to one page. Default: a short answer."),
        },
        "pattern",
    ),
    _tool(
        LOAD_TOOL,
        "Show again an image, audio, video or file that was moved out of this conversation. "
        "Use it when a line such as [Offloaded image ctx://...] names a ref and you need to see it.",
        {"ref": _string("The ref as shown; or the URL, or the file id, by which it was given.")},
        "ref",
    ),
    _tool(
        SEARCH_TOOL,
        "Search the whole conversation, also what left it, best match first. "
        "Ask with a name, an id, a path or a question in a few words. "
        "Answers with short passages and where each stands.",
        {
            "query": _string("What to look for, in a few telling words."),
            "role": {
                "type": "string",
                "enum": list(ROLES),
                "description": "Who said it: user for what users asked for or told. Default: all.",
            },
            "limit": _integer("Passages to show, up to one page. Default: a short answer."),
        },
        "query",
    ),
    _tool(
        COMPRESS_TOOL,
        "Compress this conversation now: all but the latest messages become notes, and can still "
        "be searched and read. Use it when a task is done and another begins.",
        {
            "keep": _string(
                "A note on what you still need, in a few lines. It stands beside the notes as "
                "far as there is room; the answer says whether it was kept."
            )
        },
    ),
]

READ_BACK = [one["function"] for one in SCHEMAS if one["function"]["name"] != COMPRESS_TOOL]
"""Functions that adapters give to agents, as name, description and parameters: all but the last."""
