"""Tools over a folder of texts that is held in memory, so that nothing depends on where it lies."""

from __future__ import annotations

import re

from context_compressor.lab.commands.demo_agent import ToolFailed

from .recorder import Toolbox

MAX_LINES = 800


class Files(Toolbox):
    """List, read, search and change texts.

    Args:
        texts: what the folder holds, by path.
    """

    names: tuple[str, ...] = ("list_files", "read_file", "grep", "edit_file", "write_file")

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = dict(texts)

    def list_files(self, folder: str = "") -> str:
        """List files with their lines."""
        found = [
            f"{path}  {text.count(chr(10)) + 1} lines"
            for path, text in sorted(self.texts.items())
            if path.startswith(folder)
        ]
        if not found:
            raise ToolFailed(f"{folder}: no such folder")
        return "\n".join(found)

    def read_file(self, path: str, offset: int = 1, limit: int = MAX_LINES) -> str:
        """Return numbered lines."""
        lines = self._text(path).split("\n")
        last = min(offset - 1 + min(limit, MAX_LINES), len(lines))
        if not 1 <= offset <= last:
            raise ToolFailed(f"{path}: has {len(lines)} lines, none at {offset}")
        shown = [f"{number}\t{lines[number - 1]}" for number in range(offset, last + 1)]
        return "\n".join([*shown, f"({len(lines) - last} more lines)"] if last < len(lines) else shown)

    def grep(self, pattern: str, path: str = "", limit: int = 40, context: int = 0) -> str:
        """Search files below a path for a regular expression; answers `path:line: text`."""
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ToolFailed(f"invalid pattern {pattern!r}: {error}") from None
        found: list[str] = []
        hits = 0
        for name in sorted(name for name in self.texts if name.startswith(path)):
            lines = self.texts[name].split("\n")
            shown = 0
            for number, line in enumerate(lines, 1):
                if not compiled.search(line):
                    continue
                first, last = max(number - context, shown + 1), min(number + context, len(lines))
                found += [f"{name}:{at}: {lines[at - 1].strip()}" for at in range(first, last + 1)]
                shown = last
                hits += 1
                if hits == limit:
                    return "\n".join([*found, f"(stopped at {limit} hits)"])
        return "\n".join(found) or "(nothing found)"

    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace a text that stands once in a file."""
        text = self._text(path)
        if (times := text.count(old)) != 1:
            raise ToolFailed(f"{path}: the old text stands there {times} times, not once")
        self.texts[path] = text.replace(old, new)
        line = text[: text.index(old)].count("\n") + 1
        return f"{path}: changed at line {line}"

    def write_file(self, path: str, text: str) -> str:
        """Write a file whole."""
        was = "replaced" if path in self.texts else "created"
        self.texts[path] = text
        return f"{path}: {was}, {text.count(chr(10)) + 1} lines"

    def _text(self, path: str) -> str:
        try:
            return self.texts[path]
        except KeyError:
            raise ToolFailed(f"{path}: no such file") from None


def hits_of(answer: str) -> list[tuple[str, int, str]]:
    """Return path, line and text of each hit in an answer of `grep`."""
    return [
        (path, int(line), text) for path, line, text in re.findall(r"^([^:\n]+):(\d+): (.*)$", answer, re.M)
    ]
