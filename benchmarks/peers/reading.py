"""Peers that give their agent tools to read what left the view, and those tools.

deepagents has `read_file` and `grep` over its files, ReMe `read_working_memory` and `grep_working_memory`
over those it wrote; here both read what the peer has put elsewhere. The other peers that are measured give
their agent no such tool: LangChain's two middlewares, strands and pydantic-ai-harness. headroom has one, and
is judged by the laws alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from .piped import PipedSystem

SUFFIX = "+tools"
TOOLS = {"deepagents": ("read_file", "grep"), "reme": ("read_working_memory", "grep_working_memory")}
"""What each peer calls its tools that read a file and look for a text."""
LINES = 100
"""Lines of a page, and lines found, where nobody says how many: deepagents' default."""


class PipedReading(PipedSystem):
    """A peer in another process whose agent has its tools: `Reading` for the examination."""

    schemas: list[Any]

    def with_tools(self, read: str, find: str) -> PipedReading:
        """Return this with tools under these names."""
        self.name += SUFFIX
        self._tools: dict[str, Callable[[dict[str, Any]], str]] = {read: self._read, find: self._find}
        path = {"type": "string", "description": "the file, as the text names it"}
        number = {"type": "integer", "minimum": 0}
        page, place = {"file_path": path, "offset": number, "limit": number}, {"path": path}
        self.schemas = [
            _schema(read, "Read lines of a file.", page, ["file_path"]),
            _schema(
                find,
                "Find lines that hold a text, in all files or in one.",
                {"pattern": {"type": "string"}, **place},
                ["pattern"],
            ),
        ]
        return self

    async def call(self, name: str, arguments: str) -> str:
        """Answer a call; what is wrong with it is the answer."""
        try:
            given = json.loads(arguments or "{}")
            return self._tools[name](given)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            return f"Error: {type(error).__name__}: {error}"

    def _read(self, given: dict[str, Any]) -> str:
        start, many = int(given.get("offset") or 0), int(given.get("limit") or LINES)
        lines = self._stored[str(given["file_path"])].splitlines()[start : start + many]
        return "\n".join(f"{start + number}\t{line}" for number, line in enumerate(lines, 1))

    def _find(self, given: dict[str, Any]) -> str:
        found = list(self._lines_with(str(given["pattern"]), str(given.get("path") or "")))
        return "\n".join(found[:LINES]) or "No matches found"

    def _lines_with(self, words: str, path: str) -> Iterator[str]:
        for name, text in self._stored.items():
            if name.startswith(path):
                for number, line in enumerate(text.splitlines(), 1):
                    if words in line:
                        yield f"{name}:{number}:{line}"


def _schema(name: str, says: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": says, "parameters": parameters}}
