"""A long task for agents of any framework: real tools over files and a database, and a model to work on it.

The model is a policy of `ModelServer`. It goes by what it was asked, by its own turns, and by what it sees.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.model_server import answer
from tests.support.replies import Reply
from tests.support.wires import Received

Dict = dict[str, Any]

TURNS = 30
"""Turns of the model, the last of which is its answer."""
WINDOW, BUDGET = 32_000, 16_000
LEAST_RAW_TOKENS = 100_000
"""Tokens that the task comes to, word for word."""
_LINES, _WIDTH = 200, 9
REQUEST = "Go through all logs and orders, and tell me what went wrong. Never write to the database."

READ_FILE: Dict = {
    "name": "read_file",
    "description": "Read a log file by its number.",
    "parameters": {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
        "additionalProperties": False,
    },
}
GREP: Dict = {
    "name": "grep_files",
    "description": "Return the lines of all log files that match a regular expression.",
    "parameters": {
        "type": "object",
        "properties": {"pattern": {"type": "string"}},
        "required": ["pattern"],
        "additionalProperties": False,
    },
}
QUERY: Dict = {
    "name": "query",
    "description": "Run a SELECT on the orders, in SQLite.",
    "parameters": {
        "type": "object",
        "properties": {"sql": {"type": "string"}},
        "required": ["sql"],
        "additionalProperties": False,
    },
}
FUNCTIONS = [READ_FILE, GREP, QUERY]
"""The tools, as name, description and parameters."""


class Workplace:
    """Files and a database, made anew in a folder, and the tools that look at them.

    Args:
        folder: where they lie.
        is_there: whether they were made before, by another process say.
    """

    def __init__(self, folder: Path, *, is_there: bool = False) -> None:
        self.folder = folder
        self.database = folder / "orders.sqlite3"
        if not is_there:
            self._make()

    def _make(self) -> None:
        folder = self.folder
        for number in range(TURNS):
            lines = (
                f"{line // 60:02}:{line % 60:02} host-{number} unit {line * (number + 3) % 997} took "
                f"{line * 31 % 89} ms {'ERROR lost ' + str(number * line) if line % 67 == 66 else 'ok'}"
                for line in range(_LINES)
            )
            (folder / f"{number}.log").write_text("\n".join(lines))
        with sqlite3.connect(self.database) as connection:
            connection.execute(
                "CREATE TABLE orders (id INTEGER PRIMARY KEY, host INTEGER, item TEXT, state TEXT)"
            )
            rows = [
                (n, n % TURNS, f"item-{n * 37 % 1009}", "lost" if n % 67 == 66 else "sent")
                for n in range(9_000)
            ]
            connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
        connection.close()

    def read_file(self, number: int) -> str:
        """Read a log file by its number."""
        return (self.folder / f"{number}.log").read_text()

    def grep_files(self, pattern: str) -> str:
        """Return the lines of all log files that match a regular expression."""
        texts = ((path.name, path.read_text()) for path in sorted(self.folder.glob("*.log")))
        return "\n".join(
            f"{name}: {line}" for name, text in texts for line in text.split("\n") if re.search(pattern, line)
        )

    def query(self, sql: str) -> str:
        """Run a SELECT on the orders, in SQLite."""
        connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)
        try:
            return "\n".join(json.dumps(row) for row in connection.execute(sql))
        finally:
            connection.close()

    def run(self, name: str, arguments: Dict) -> str:
        """Run a tool by its name."""
        tools: Dict = {"read_file": self.read_file, "grep_files": self.grep_files, "query": self.query}
        return str(tools[name](**arguments))


class Worker:
    """A model that works for so many turns: one or two calls in each, and once a text that left its view.

    Args:
        turns: how many.
        reasoning: whether it thinks before it calls.
    """

    def __init__(self, turns: int = TURNS, *, reasoning: bool = False) -> None:
        self.turns = turns
        self.turn = 0
        self.read_back: str | None = None
        """The ref that it read."""
        self._thought = {"reasoning": "What is next?"} if reasoning else {}

    def __call__(self, messages: list[Dict], received: Received) -> Reply:
        self.turn += 1
        if self.turn >= self.turns:
            return answer("All logs are read: units were lost on every host.", **self._thought)
        ref = re.search(r"ctx://[0-9a-f]{16}", json.dumps(messages))
        if (
            self.turn > self.turns // 2
            and ref
            and self.read_back is None
            and "read_offloaded" in _names(received)
        ):
            self.read_back = ref[0]
            return answer("What was that?", [("read_offloaded", {"ref": ref[0]})], **self._thought)
        return answer(f"Turn {self.turn}.", self._calls(), **self._thought)

    def _calls(self) -> list[tuple[str, Dict]]:
        number = self.turn % TURNS
        if self.turn % 10 == 9:
            return [("grep_files", {"pattern": f"host-{number} .*ERROR"}), ("read_file", {"number": number})]
        if self.turn % 5 == 3:
            sql = f"SELECT * FROM orders WHERE host = {number} ORDER BY id LIMIT 150"
            return [("query", {"sql": sql}), ("read_file", {"number": number})]
        return [("read_file", {"number": number})]


class Talkers:
    """A model that talks with several at once, each of whom says who they are: `I am Ada, ...`.

    It reads so many files for each request, and then answers; what the files say should hold the name of whom
    they are for. `heard` counts the requests that came from each.
    """

    def __init__(self, calls: int = 1) -> None:
        self.calls = calls
        self.heard: Counter[str] = Counter()
        self.requests: dict[str, list[str]] = {}
        """What came from each, request by request, as JSON text."""

    def __call__(self, messages: list[Dict], received: Received) -> Reply:
        text = json.dumps(messages)
        names = re.findall(r"I am (\w+)", text)
        name = names[-1] if names else "nobody"
        self.heard[name] += 1
        self.requests.setdefault(name, []).append(text)
        if self.heard[name] % (self.calls + 1):
            return answer("", [("read_file", {"number": self.heard[name] % TURNS})])
        return answer(f"Done for {name} ({self.heard[name]}).")


def _names(received: Received) -> str:
    return json.dumps(received.tools)
