"""A scripted agent: explores Python's standard library as a model would, without a model.

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
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from context_compressor.cli.demo_tools import TOPICS, StdlibTools, Topic

ChatDict = dict[str, Any]
Call = tuple[str, dict[str, Any]]
"""A tool's name and its arguments."""
Plan = Generator["Move", list[str], None]
"""Yields moves, and is sent the results of each."""

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
    calls: Sequence[Call]


class Finding(NamedTuple):
    """A definition the agent has read, and what it makes of it."""

    definition: Definition
    sentence: str


@dataclass(frozen=True, slots=True)
class Step:
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


@dataclass(slots=True)
class ScriptedSession:
    """An agent's session over a library.

    Args:
        turns: requests to a model that the session takes; the last one ends it. Fewer once all is read.
        tools: what the agent works with.
    """

    turns: int = 80
    tools: StdlibTools = field(default_factory=StdlibTools)
    findings: list[Finding] = field(default_factory=list)
    """What was found so far, oldest first."""

    def steps(self) -> Iterator[Step]:
        """Play the session, running the tools as it goes."""
        plan = self._plan()
        move: Move | None = next(plan)
        for turn in range(1, self.turns + 1):
            before: list[ChatDict] = []
            if turn == 1:
                before = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": REQUEST}]
            elif turn == self.turns // 2 + 1:
                before = [{"role": "user", "content": FOLLOW_UP}]
            if turn == self.turns or move is None:
                yield Step(turn, before, {"role": "assistant", "content": self._conclusion()}, [], ())
                return
            ids = [f"call_{turn}_{number}" for number in range(1, len(move.calls) + 1)]
            answers = [self.tools.call(name, arguments) for name, arguments in move.calls]
            yield Step(
                turn,
                before,
                assistant_message(move.text, dict(zip(ids, move.calls, strict=True))),
                [tool_message(id, answer) for id, answer in zip(ids, answers, strict=True)],
                tuple(name for name, _ in move.calls),
            )
            try:
                move = plan.send(answers)
            except StopIteration:  # every module was read
                move = None

    def _plan(self) -> Plan:
        (listing,) = yield Move("First, what is there.", [("list_dir", {"path": "."})])
        remark = ""
        for topic in TOPICS:
            remark = yield from self._investigate(topic, remark)
        for name in re.findall(r"^(\w+\.py)  \d+$", listing, re.MULTILINE):
            if name not in {topic.place for topic in TOPICS}:
                yield from self._survey(name)

    def _investigate(self, topic: Topic, remark: str) -> Generator[Move, list[str], str]:
        """Look into one topic: search, read, experiment; return the remark with which the next one begins."""
        names = "|".join(topic.symbols)
        calls: list[Call] = [
            ("grep_files", {"pattern": rf"^\s*(async )?(def|class) ({names})\b", "path": topic.place})
        ]
        text = (
            f"{remark}Next question: {topic.question} The names to look for are {', '.join(topic.symbols)}."
        )
        if topic.guess:  # tried at the same time
            text += f" I expect it in {topic.guess}."
            calls.insert(0, ("read_file", {"path": topic.guess, "limit": _READ_LINES}))
        *_, found = yield Move(text, calls)
        hits = _first_hits(found, topic.symbols)
        if not hits:
            return f"{topic.symbols[0]} has another name in this version. "
        told = yield from self._read_first(hits[0])
        if others := hits[1:3]:
            calls = [
                ("read_file", {"path": place.path, "offset": max(place.line - 10, 1), "limit": _SIDE_LINES})
                for place in others
            ]
            listings = yield Move(f"The other half of the answer: {', '.join(map(str, others))}.", calls)
            told = [self._note(place, shown) for place, shown in zip(others, listings, strict=True)][-1]
        code = topic.snippet.strip()
        (printed,) = yield Move(f"{told} To be sure, an experiment.", [("run_python", {"code": code})])
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

    def _survey(self, name: str) -> Plan:
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
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id, (name, arguments) in calls.items()
        ],
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
    body: list[str] = []
    depth: int | None = None
    for row in listing.split("\n"):
        code = row.partition("\t")[2]
        indent = len(code) - len(code.lstrip())
        if depth is None:
            if re.match(rf"\s*(async )?(def|class) {symbol}\b", code):
                depth = indent
        elif code.strip() and indent <= depth and not code.lstrip().startswith(")"):
            break
        else:
            body.append(code)
    names = _CALLED.findall(_DOCSTRING.sub("", "\n".join(line.split("#")[0] for line in body)))
    return [name for name in dict.fromkeys(names) if name not in _TRIVIAL and name != symbol]
