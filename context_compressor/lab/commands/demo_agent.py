"""The demo's scripted agent: explores Python's standard library as a model would, without a model.

    session = ScriptedSession(turns=80)
    for step in session.steps():
        step.before    # messages that arrive before the turn's request
        step.reply     # what the assistant answers
        step.results   # what its tools return

The plan is fixed; where it leads depends on what the tools find. The same Python gives the same session.
"""

from __future__ import annotations

import builtins
import json
import keyword
import re
import subprocess
import sys
import sysconfig
from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

ChatDict = dict[str, Any]
Call = tuple[str, dict[str, Any]]
"""A tool's name and its arguments."""


class Topic(NamedTuple):
    """One question about the library."""

    question: str
    place: str
    """The file or package to search."""
    guess: str
    """A file the agent tries first, which is not there."""
    symbols: tuple[str, ...]
    """Functions or classes that answer it, the central one first."""
    snippet: str
    """An experiment; prints the same in every run."""


TOPICS = (
    Topic(
        "How does asyncio decide when a callback runs?",
        "asyncio",
        "asyncio/scheduler.py",
        ("call_soon", "_run_once", "call_at"),
        "import asyncio\nloop = asyncio.new_event_loop()\nloop.call_later(0.01, loop.stop)\n"
        "loop.call_later(0, print, 'later')\nloop.call_soon(print, 'soon')\nloop.run_forever()",
    ),
    Topic(
        "How does json parse a document, and what does it do with a broken one?",
        "json",
        "json/parser.py",
        ("raw_decode", "JSONObject", "py_scanstring"),
        "import json\nprint(json.loads('{\"a\": [1, 2.5, null]}'))\njson.loads('[1,]')",
    ),
    Topic(
        "How does a log record find its handlers?",
        "logging",
        "logging/records.py",
        ("callHandlers", "getEffectiveLevel", "getLogger"),
        "import logging\nlogging.basicConfig(format='%(name)s: %(message)s')\n"
        "logging.getLogger('app.db').warning('who hears this?')",
    ),
    Topic(
        "How does a ThreadPoolExecutor hand work to its threads?",
        "concurrent/futures",
        "concurrent/threads.py",
        ("_adjust_thread_count", "_worker", "set_result"),
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as pool:\n"
        "    print(list(pool.map(abs, range(-9, 0))))",
    ),
    Topic(
        "How does dataclass write __init__?",
        "dataclasses.py",
        "dataclass.py",
        ("_process_class", "_init_fn", "_get_field"),
        "from dataclasses import make_dataclass\nimport inspect\n"
        "print(inspect.signature(make_dataclass('Point', ['x', ('tags', list, ())])))",
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
        self.root = (root or Path(sysconfig.get_path("stdlib"))).resolve()

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool; what goes wrong is an answer too, as for any agent."""
        try:
            answer: str = getattr(self, name)(**arguments)
        except ToolFailed as error:
            return f"Error: {error}"
        return answer

    def list_dir(self, path: str) -> str:
        """List the Python files and packages of a directory, with sizes in bytes."""
        directory = self._inside(path)
        if not directory.is_dir():
            raise ToolFailed(f"{path}: no such directory")
        lines = []
        for entry in sorted(directory.iterdir()):
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
        output = (done.stdout + done.stderr).decode("utf-8", "replace").replace("\r\n", "\n")
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
        elif not path.is_dir():
            raise ToolFailed(f"{path.relative_to(self.root).as_posix()}: no such file or directory")
        else:
            for entry in sorted(path.iterdir()):
                if entry.is_dir() and entry.name not in _LEFT_OUT:
                    yield from self._python_files(entry)
                elif entry.suffix == ".py" and entry.is_file() and not entry.is_symlink():
                    yield entry  # a link may lead out of the library, as Debian's do


@lru_cache(maxsize=4096)
def _text(file: Path) -> str:
    """Return a file's text; kept, since an agent greps the same files again and again."""
    return file.read_text("utf-8", "replace")


_READ_LINES = 250
"""Lines of one read, some 3,000 tokens: what coding agents read at a time."""
_SIDE_LINES = 150
"""Lines of each of several reads at once."""
_HIT = re.compile(r"^([\w/.-]+\.py):(\d+): (.*)$", re.MULTILINE)
_CALLED = re.compile(r"(?<!def )(?<!class )\b([a-z_]\w+)\(")
_DOCSTRING = re.compile(r'"""[\s\S]*?(?:"""|$)')
_TRIVIAL = frozenset({*dir(builtins), *keyword.kwlist, "append", "get", "items", "join", "pop", "update"})

SYSTEM = (
    "You are a careful engineer. Explore the code with list_dir, grep_files, read_file and run_python before "
    "you claim anything. Cite file and line."
)
REQUEST = "\n".join(
    (
        "Explore Python's standard library and find out how it works inside, for a guide that our new "
        "colleagues will read. Begin with these questions, then go on as you see fit:",
        *(f"- {topic.question}" for topic in TOPICS),
        "Cite file and line for everything, and check what you believe by running code.",
    )
)
FOLLOW_UP = (
    "This is going well. Go on with the modules that no question has touched, and keep citing file and line."
)


class Definition(NamedTuple):
    """Where a symbol is defined."""

    symbol: str
    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def pattern(self) -> str:
        """Matches its first line, as `read_file` shows it."""
        return rf"^{self.line}\t\s*(async )?(def|class) {self.symbol}\b"


class Move(NamedTuple):
    """What the assistant says, and the tools it calls at once."""

    text: str
    calls: Sequence[Call] = ()


class Finding(NamedTuple):
    """A definition the agent has read, and what it makes of it."""

    definition: Definition
    sentence: str


class Step(NamedTuple):
    """One turn, as chat dicts."""

    turn: int
    before: list[ChatDict]
    reply: ChatDict
    results: list[ChatDict]
    tools: tuple[str, ...]

    @property
    def messages(self) -> list[ChatDict]:
        """Everything the turn adds to the history, in order."""
        return [*self.before, self.reply, *self.results]


class ScriptedSession:
    """An agent's session over a library; `findings` has what was found so far, oldest first.

    Args:
        turns: requests to a model that the session takes; the last one ends it. Fewer once all is read.
        tools: what the agent works with; over the running Python's standard library when None.
    """

    def __init__(self, turns: int = 80, tools: StdlibTools | None = None) -> None:
        self.turns = turns
        self.tools = tools or StdlibTools()
        self.findings: list[Finding] = []

    def steps(self) -> Iterator[Step]:
        """Play the session, running the tools as it goes."""
        plan = self._plan()
        move = next(plan)
        for turn in range(1, self.turns + 1):
            before: list[ChatDict] = []
            if turn == 1:
                before = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": REQUEST}]
            elif turn == self.turns // 2 + 1:
                before = [{"role": "user", "content": FOLLOW_UP}]
            if turn == self.turns or not move.calls:
                yield Step(turn, before, {"role": "assistant", "content": self._conclusion()}, [], ())
                return
            calls = {f"call_{turn}_{number}": call for number, call in enumerate(move.calls, 1)}
            answers = [self.tools.call(*call) for call in move.calls]
            results = [tool_message(id, answer) for id, answer in zip(calls, answers, strict=True)]
            tools = tuple(name for name, _ in move.calls)
            yield Step(turn, before, assistant_message(move.text, calls), results, tools)
            move = plan.send(answers)

    def _plan(self) -> Generator[Move, list[str], None]:
        """Yield what to do next, and be sent the results; at last a move without calls."""
        (listing,) = yield Move("First, what is there.", [("list_dir", {"path": "."})])
        remark = ""
        for topic in TOPICS:
            remark = yield from self._investigate(topic, remark)
        for name in re.findall(r"^(\w+\.py)  \d+$", listing, re.MULTILINE):
            if name not in {topic.place for topic in TOPICS}:
                yield from self._survey(name)
        yield Move("")

    def _investigate(self, topic: Topic, remark: str) -> Generator[Move, list[str], str]:
        """Search, read, experiment; return the remark with which the next topic begins."""
        symbols = topic.symbols
        text = f"{remark}Next question: {topic.question} The names to look for are {', '.join(symbols)}."
        pattern = rf"^\s*(async )?(def|class) ({'|'.join(symbols)})\b"
        calls: list[Call] = [
            ("read_file", {"path": topic.guess, "limit": _READ_LINES}),
            ("grep_files", {"pattern": pattern, "path": topic.place}),
        ]
        _, found = yield Move(f"{text} I expect it in {topic.guess}.", calls)
        hits = _first_hits(found, symbols)
        if not hits:
            return f"{symbols[0]} has another name in this version. "
        told = yield from self._read_first(hits[0])
        if others := hits[1:3]:
            calls = [
                ("read_file", {"path": place.path, "offset": max(place.line - 10, 1), "limit": _SIDE_LINES})
                for place in others
            ]
            listings = yield Move(f"The other half of the answer: {', '.join(map(str, others))}.", calls)
            told = [self._note(place, shown) for place, shown in zip(others, listings, strict=True)][-1]
        experiment = [("run_python", {"code": topic.snippet})]
        (printed,) = yield Move(f"{told} To be sure, an experiment.", experiment)
        lines = printed.split("\n")[:-1] or ["nothing"]  # the last line is the exit code
        return f"The experiment ended with `{lines[-1]}`. "

    def _read_first(self, found: Definition) -> Generator[Move, list[str], str]:
        """Read where the central symbol is defined, then on, and look for its callers."""
        where: dict[str, Any] = {"path": found.path, "offset": max(found.line - 20, 1), "limit": _READ_LINES}
        (listing,) = yield Move(f"{found.symbol} is at {found}. Reading from there.", [("read_file", where)])
        told = self._note(found, listing)
        calls: list[Call] = [
            ("grep_files", {"pattern": rf"{found.symbol}\(", "path": ".", "limit": 25}),
            ("read_file", {**where, "offset": where["offset"] + _READ_LINES}),
        ]
        yield Move(f"{told} Now: who calls {found.symbol}, and what comes after it in the file?", calls)
        return told

    def _survey(self, name: str) -> Generator[Move, list[str], None]:
        """Read on in a module that no topic touched."""
        calls: list[Call] = [
            ("read_file", {"path": name, "limit": _READ_LINES}),
            ("grep_files", {"pattern": r"^(class|def) \w", "path": name, "limit": 60}),
        ]
        _, hits = yield Move(f"Next module: {name}.", calls)
        if first := re.search(r":(\d+): (?:class|def) (\w+)", hits):
            found = Definition(first[2], name, int(first[1]))
            where = {"path": name, "offset": found.line, "limit": _READ_LINES}
            text = f"Its first definition is {found.symbol}, at {found}."
            (listing,) = yield Move(text, [("read_file", where)])
            self._note(found, listing)

    def _note(self, found: Definition, listing: str) -> str:
        """Keep, and return, what the agent makes of a definition that it has read."""
        called = _calls_in(listing, found.symbol)
        sentence = f"{found.symbol} ({found}) relies on {', '.join(called[:5]) or 'nothing else'}."
        self.findings.append(Finding(found, sentence))
        return sentence

    def _conclusion(self) -> str:
        found = "\n".join(f"- {finding.sentence}" for finding in self.findings) or "- nothing yet"
        return f"What I found, with file and line:\n{found}"


def assistant_message(text: str, calls: dict[str, Call]) -> ChatDict:
    """Return an assistant's chat dict with tool calls by id."""
    functions = {id: {"name": name, "arguments": json.dumps(given)} for id, (name, given) in calls.items()}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": id, "type": "function", "function": one} for id, one in functions.items()],
    }


def tool_message(id: str, content: str) -> ChatDict:
    """Return the chat dict of a tool's result."""
    return {"role": "tool", "tool_call_id": id, "content": content}


def _first_hits(found: str, symbols: Sequence[str]) -> list[Definition]:
    """Return where each symbol is defined first, by a search's answer, in the order of `symbols`."""
    hits: dict[str, Definition] = {}
    for path, line, text in _HIT.findall(found):
        for symbol in symbols:
            if re.search(rf"\b{symbol}\b", text):
                hits.setdefault(symbol, Definition(symbol, path, int(line)))
    return [hits[symbol] for symbol in symbols if symbol in hits]


def _calls_in(listing: str, symbol: str) -> list[str]:
    """Return what a definition calls, by a numbered listing, in order of first appearance."""
    code = re.sub(r"^\d+\t", "", listing, flags=re.MULTILINE)
    # What follows the first line and is blank, further in, or the bracket that closes its arguments.
    found = re.search(
        rf"^([ ]*)(?:async )?(?:def|class) {symbol}\b.*((?:\n(?:\1[ )].*)?)*)", code, re.MULTILINE
    )
    body = re.sub("#.*", "", found[2]) if found else ""
    names = _CALLED.findall(_DOCSTRING.sub("", body))
    return [name for name in dict.fromkeys(names) if name not in _TRIVIAL and name != symbol]
