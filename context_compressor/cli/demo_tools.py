"""The tools and topics of the demo's agent."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Topic:
    """One question about the library."""

    question: str
    place: str
    """The file or package to search."""
    symbols: tuple[str, ...]
    """Functions or classes that answer it, the central one first."""
    snippet: str
    """An experiment; prints the same in every run."""
    guess: str = ""
    """A file the agent tries first; it may not be there."""


TOPICS = (
    Topic(
        "How does asyncio decide when a callback runs?",
        "asyncio",
        ("call_soon", "_run_once", "call_at"),
        """
import asyncio

async def main():
    loop, order = asyncio.get_running_loop(), []
    loop.call_soon(order.append, "soon 1")
    loop.call_later(0, order.append, "later")
    loop.call_soon(order.append, "soon 2")
    await asyncio.sleep(0.01)
    print(order)

asyncio.run(main())
""",
        guess="asyncio/scheduler.py",
    ),
    Topic(
        "How does json parse a document, and what does it do with a broken one?",
        "json",
        ("raw_decode", "JSONObject", "py_scanstring"),
        """
import json

for text in ('{"a": [1, 2.5, null]}', "[1,]", '{"a" 1}', '"unfinished', "NaN"):
    try:
        print(repr(json.loads(text)))
    except ValueError as error:
        print(type(error).__name__, error)
""",
        guess="json/parser.py",
    ),
    Topic(
        "How does a log record find its handlers?",
        "logging",
        ("callHandlers", "getEffectiveLevel", "getLogger"),
        """
import logging

class Collect(logging.Handler):
    def emit(self, record):
        print(self.get_name(), record.name, record.getMessage())

for name in ("", "app", "app.db"):
    handler = Collect()
    handler.set_name(f"handler of {name or 'root'}:")
    logging.getLogger(name).addHandler(handler)
logging.getLogger("app").propagate = False
logging.getLogger("app.db").warning("who hears this?")
""",
    ),
    Topic(
        "How does a ThreadPoolExecutor hand work to its threads?",
        "concurrent/futures",
        ("_adjust_thread_count", "_worker", "set_result"),
        """
from concurrent.futures import ThreadPoolExecutor

with ThreadPoolExecutor(2) as pool:
    print(list(pool.map(lambda n: n * n, range(10))))
    print(repr(pool.submit(int, "seven").exception()))
""",
        guess="concurrent/threads.py",
    ),
    Topic(
        "How does dataclass write __init__?",
        "dataclasses.py",
        ("_process_class", "_init_fn", "_get_field"),
        """
from dataclasses import dataclass, field
import inspect

@dataclass(order=True)
class Point:
    x: int
    tags: list = field(default_factory=list, compare=False)

print(inspect.signature(Point), Point(1) < Point(2, ["a"]))

@dataclass
class Wrong:
    tags: list = []
""",
    ),
)


_LEFT_OUT = {"__pycache__", "site-packages", "dist-packages", "lib-dynload", "ensurepip", "idlelib"}
_LEFT_OUT |= {"lib2to3", "pydoc_data", "test", "tests", "turtledemo"}
"""Directories that are no library code, or that some distributions leave out."""
_SNIPPET_SECONDS = 20.0
_MAX_LINES = 800
"""Of a file that one call reads."""


class ToolFailed(Exception):
    """Answer a call with this error text."""


class StdlibTools:
    """`list_dir`, `grep_files`, `read_file` and `run_python` for an agent that explores a library.

    Answers hold relative paths and no times, so that the same Python gives the same session.

    Args:
        root: the directory to explore; the running Python's standard library when None.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = (Path(sysconfig.get_path("stdlib")) if root is None else root).resolve()
        tools = (self.list_dir, self.grep_files, self.read_file, self.run_python)
        self._tools: dict[str, Callable[..., str]] = {tool.__name__: tool for tool in tools}

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool; what goes wrong is an answer too, as for any agent."""
        try:
            return self._tools[name](**arguments)
        except ToolFailed as error:
            return f"Error: {error}"

    def list_dir(self, path: str) -> str:
        """List the Python files and packages of a directory, with sizes in bytes."""
        directory = self._inside(path)
        if not directory.is_dir():
            raise ToolFailed(f"{path}: no such directory")
        lines = []
        for entry in sorted(directory.iterdir(), key=lambda entry: entry.name):
            if entry.is_dir() and entry.name not in _LEFT_OUT and (entry / "__init__.py").exists():
                lines.append(f"{entry.name}/")
            elif entry.suffix == ".py":
                lines.append(f"{entry.name}  {entry.stat().st_size}")
        return "\n".join(lines) or "(no Python files)"

    def grep_files(self, pattern: str, path: str, limit: int = 40) -> str:
        """Search Python files for a regular expression; answers `path:line: text`."""
        try:
            compiled = re.compile(pattern, re.MULTILINE)
        except re.error as error:
            raise ToolFailed(f"invalid pattern {pattern!r}: {error}") from None
        found: list[str] = []
        for file in self._python_files(self._inside(path)):
            text = _text(file)
            if not compiled.search(text):  # most files: one search instead of one per line
                continue
            name = file.relative_to(self.root).as_posix()
            for number, line in enumerate(text.split("\n"), 1):
                if compiled.search(line):
                    found.append(f"{name}:{number}: {line.strip()}")
                    if len(found) == limit:
                        return "\n".join([*found, f"(stopped at {limit} lines)"])
        return "\n".join(found) or "(nothing found)"

    def read_file(self, path: str, offset: int = 1, limit: int = _MAX_LINES) -> str:
        """Return numbered lines of a file."""
        file = self._inside(path)
        if not file.is_file():
            raise ToolFailed(f"{path}: no such file")
        lines = _text(file).split("\n")
        last = min(offset - 1 + min(limit, _MAX_LINES), len(lines))
        if offset > last:
            raise ToolFailed(f"{path}: has {len(lines)} lines")
        shown = [f"{number}\t{lines[number - 1]}" for number in range(offset, last + 1)]
        if last < len(lines):
            shown.append(f"({len(lines) - last} more lines)")
        return "\n".join(shown)

    def run_python(self, code: str) -> str:
        """Run a snippet in a Python process of its own, and return what it printed."""
        try:
            # -I: neither the user's environment nor the current directory has a say in what is imported.
            # Bytes: a snippet may hold characters that the user's locale cannot write.
            done = subprocess.run(
                [sys.executable, "-I", "-X", "utf8", "-c", code.encode()],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SNIPPET_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ToolFailed(f"stopped after {_SNIPPET_SECONDS:g} s") from None
        output = b"".join((done.stdout, done.stderr)).decode("utf-8", "replace").replace("\r\n", "\n")
        output = output.replace(f"{self.root}/", "")
        return f"{output.rstrip()}\n(exit code {done.returncode})".lstrip()

    def _inside(self, path: str) -> Path:
        resolved = (self.root / path).resolve()
        if not resolved.is_relative_to(self.root):
            raise ToolFailed(f"{path}: outside the library")
        return resolved

    def _python_files(self, path: Path) -> Iterator[Path]:
        if path.is_file():
            yield path
        elif path.is_dir():
            for entry in sorted(path.iterdir(), key=lambda entry: entry.name):
                if entry.is_dir():
                    if entry.name not in _LEFT_OUT:
                        yield from self._python_files(entry)
                elif entry.suffix == ".py" and not entry.is_symlink():  # Debian links out of the library
                    yield entry
        else:
            raise ToolFailed(f"{path.relative_to(self.root).as_posix()}: no such file or directory")


@lru_cache(maxsize=4096)
def _text(file: Path) -> str:
    """Return a file's text; kept, since an agent greps the same files again and again."""
    return file.read_text("utf-8", "replace")
