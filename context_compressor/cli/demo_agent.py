"""A scripted agent: explores Python's standard library as a model would, without a model.

    session = ScriptedSession(turns=80)
    for step in session.steps():
        step.before    # messages that arrive before the turn's request
        step.reply     # what the assistant answers
        step.results   # what its tools return

The plan is fixed; where it leads depends on what the tools find. The same Python gives the same session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_compressor.cli.demo_tools import StdlibTools
from context_compressor.cli.demo_topics import TOPICS, Topic

ChatDict = dict[str, Any]
Call = tuple[str, dict[str, Any]]
"""A tool's name and its arguments."""
Plan = Generator["Move", list[str], None]
"""Yields moves, and is sent the results of each."""

_READ_LINES = 210
"""Lines of one read, some 2,500 tokens: what coding agents read at a time."""
_HIT = re.compile(r"^([\w/.-]+\.py):(\d+): (.*)$", re.MULTILINE)
_CALLED = re.compile(r"(?<![\w.])(?:self\.|cls\.)?(_?[a-z]\w+)\(")
_WORDS = frozenset(
    {"if", "in", "for", "and", "not", "with", "while", "return", "print", "isinstance", "len", "super"}
)
_WAITING = frozenset(
    {"acquire", "wait", "select", "join", "get", "put", "read", "recv", "result", "sleep", "flush"}
)

SYSTEM = (
    "You are a careful engineer. Explore the code with list_dir, grep_files, read_file and run_python before you "
    "claim anything. Cite file and line."
)
REQUEST = (
    "Explore Python's standard library and find out how it works inside, for a guide that our new colleagues will "
    "read. Begin with these questions, then go on as you see fit:\n"
    + "\n".join(f"- {topic.question}" for topic in TOPICS[:6])
    + "\nCite file and line for everything, and check what you believe by running code."
)
FOLLOW_UP = (
    "This is going well. From here on, please also say of each function whether it can block, since that is what "
    "our colleagues stumble over. Then go on with the next question."
)


@dataclass(frozen=True, slots=True)
class Move:
    """What the assistant says, and the tools it calls at once."""

    text: str
    calls: Sequence[Call]


@dataclass(frozen=True, slots=True)
class Finding:
    """A definition the agent has read."""

    symbol: str
    path: str
    line: int
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
        turns: requests to a model that the session takes; the last one ends it. Fewer when there is nothing left
            to read, which takes some 400.
        tools: what the agent works with.
    """

    turns: int = 80
    tools: StdlibTools = field(default_factory=StdlibTools)
    findings: list[Finding] = field(default_factory=list)
    """What was found so far, oldest first."""
    _asks_about_blocking: bool = False

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
                self._asks_about_blocking = True
            if turn == self.turns:
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
            except StopIteration:
                move = Move(
                    "I have now looked at every module. Listing them once more.",
                    [("list_dir", {"path": "."})],
                )
                plan = self._survey("")

    # The plan

    def _plan(self) -> Plan:
        (listing,) = yield Move("First, what is there.", [("list_dir", {"path": "."})])
        remark = ""
        for topic in TOPICS:
            remark = yield from self._investigate(topic, remark)
        yield from self._survey(listing)

    def _investigate(self, topic: Topic, remark: str) -> Generator[Move, list[str], str]:
        """Look into one topic; return what the last step showed, for the next text."""
        names = "|".join(topic.symbols)
        search: Call = (
            "grep_files",
            {"pattern": rf"^\s*(async )?(def|class) ({names})\b", "path": topic.place},
        )
        opening = (
            f"{remark}Next question: {topic.question} The names to look for are {', '.join(topic.symbols)}."
        )
        if topic.guess:
            guess: Call = ("read_file", {"path": topic.guess, "limit": _READ_LINES})
            answers = yield Move(f"{opening} I expect it in {topic.guess}.", [guess, search])
            if answers[1].startswith("Error"):
                search[1]["path"] = topic.guess
                answers = yield Move(f"Not a package here, a single file: {topic.guess}.", [search])
        else:
            answers = yield Move(opening, [search])
        hits = _first_hits(answers[-1], topic.symbols)
        if not hits:
            return f"{topic.symbols[0]} has another name in this version. "
        path, line = hits[0]
        symbol = topic.symbols[0]
        where = (
            {"path": path}
            if topic.whole
            else {"path": path, "offset": max(line - 20, 1), "limit": _READ_LINES}
        )
        text = f"{symbol} is at {path}:{line}. "
        text += "The file is short, I read it whole." if topic.whole else "Reading from there."
        (listing,) = yield Move(text, [("read_file", where)])
        told = self._note(symbol, path, line, listing)
        users: Call = ("grep_files", {"pattern": rf"\b{symbol}\(", "path": ".", "limit": 25})
        calls = [users]
        if not topic.whole:
            onward = int(where["offset"]) + _READ_LINES
            calls.append(("read_file", {"path": path, "offset": onward, "limit": _READ_LINES}))
        yield Move(f"{told} Now: who calls {symbol}, and what comes after it in the file?", calls)
        if len(hits) > 1:
            reads: list[Call] = [
                ("read_file", {"path": path, "offset": max(line - 10, 1), "limit": _READ_LINES // 2})
                for path, line in hits[1:3]
            ]
            listings = yield Move(
                "The other half of the answer: "
                + ", ".join(f"{path}:{line}" for path, line in hits[1:3])
                + ".",
                reads,
            )
            for other, (path, line), listing in zip(topic.symbols[1:], hits[1:3], listings, strict=False):
                told = self._note(other, path, line, listing)
        (printed,) = yield Move(
            f"{told} To be sure, an experiment.", [("run_python", {"code": topic.snippet.strip()})]
        )
        return f"The experiment ended with `{printed.splitlines()[-2 if printed.count(chr(10)) else -1]}`. "

    def _survey(self, listing: str) -> Plan:
        """Read on through modules that no topic touched, one by one."""
        known = {topic.place for topic in TOPICS}
        names = re.findall(r"^(\w+\.py)  \d+$", listing, re.MULTILINE)
        for name in names:
            if name in known:
                continue
            answers = yield Move(
                f"Next module: {name}.",
                [
                    ("read_file", {"path": name, "limit": _READ_LINES}),
                    ("grep_files", {"pattern": r"^(class|def) \w", "path": name, "limit": 60}),
                ],
            )
            found = re.search(r": (?:class|def) (\w+)", answers[1])
            hits = _first_hits(answers[1], (found[1],)) if found else []
            if found and hits:
                path, line = hits[0]
                (listing,) = yield Move(
                    f"Its first definition is {found[1]}, at {path}:{line}.",
                    [("read_file", {"path": path, "offset": line, "limit": _READ_LINES})],
                )
                self._note(found[1], path, line, listing)

    # What the agent makes of what it reads

    def _note(self, symbol: str, path: str, line: int, listing: str) -> str:
        called = _calls_in(listing, symbol)
        sentence = f"{symbol} ({path}:{line}) relies on {', '.join(called[:5]) or 'nothing else'}."
        if self._asks_about_blocking:
            waits = [name for name in called if name in _WAITING]
            sentence += f" It can block in {', '.join(waits)}." if waits else " It does not block by itself."
        self.findings.append(Finding(symbol, path, line, sentence))
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


def _first_hits(found: str, symbols: Sequence[str]) -> list[tuple[str, int]]:
    """Return where each symbol is defined, by a search's answer, in the order of `symbols`.

    Where there are several definitions the last is taken: the first is often abstract.
    """
    places: dict[str, tuple[str, int]] = {}
    for path, line, text in _HIT.findall(found):
        for symbol in symbols:
            if re.search(rf"\b{symbol}\b", text):
                places[symbol] = (path, int(line))
    return [places[symbol] for symbol in symbols if symbol in places]


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
    names = (name for line in body for name in _CALLED.findall(line.split("#")[0]))
    return [name for name in dict.fromkeys(names) if name not in _WORDS and name != symbol]
