"""What the agents work on: a folder of logs and a database, the same in every run, with the tools over them.

Knows the standard library and AgentScope only: agents in other environments use it, too.
"""

from __future__ import annotations

import random
import re
import sqlite3
from pathlib import Path

from agentscope.message import TextBlock
from agentscope.tool import Toolkit, ToolResponse

PROMPT = "You look after sixty depots that hand out parcels."
TASK = "Which courier carried the most? Read every depot's log before you answer."
DATABASE = "parcels.sqlite"
DEPOTS = 60
_COURIERS = ("Ilse", "Bao", "Marta", "Qiang", "Owen", "Zofia")


def log_name(depot: int) -> str:
    """Return the name of a depot's log."""
    return f"depot-{depot:02}.log"


def log_text(depot: int, lines: int | None = None) -> str:
    """Return a depot's log: some 37 tokens a line, no two lines alike; by default 90 to 130 lines."""
    chance = random.Random(depot)
    told = []
    for number in range(90 + depot % 6 * 8 if lines is None else lines):
        parcel = f"PX-{depot:02}{number:03}{chance.randrange(100):02}"
        shelf = f"{chance.choice('ABCDEF')}-{chance.randrange(1, 40)}"
        time, grams = f"{6 + number // 12:02}:{number % 12 * 5:02}", chance.randrange(50, 9000)
        told.append(
            f"{time} parcel {parcel} weighed {grams} g, "
            f"stood on shelf {shelf}, was handed to {chance.choice(_COURIERS)}"
        )
    return "\n".join(told)


def make_depots(folder: Path, lines: int | None = None, depots: int = DEPOTS) -> Path:
    """Write the logs and the database into a folder, and return it."""
    database = sqlite3.connect(folder / DATABASE)
    try:
        database.execute("create table parcels (parcel text, depot integer, grams integer, courier text)")
        for depot in range(depots):
            text = log_text(depot, lines)
            (folder / log_name(depot)).write_text(text, encoding="utf-8", newline="")
            rows = re.findall(r"parcel (\S+) weighed (\d+) g.* to (\w+)", text)
            database.executemany(
                "insert into parcels values (?, ?, ?, ?)",
                [(parcel, depot, int(grams), courier) for parcel, grams, courier in rows],
            )
        database.commit()
    finally:
        database.close()
    return folder


def make_toolkit(folder: Path) -> Toolkit:
    """Return a toolkit with `list_files`, `read_file`, `grep_files` and `query_parcels` over a folder."""

    def list_files() -> ToolResponse:
        """List the files."""
        return say("\n".join(sorted(path.name for path in folder.iterdir())))

    def read_file(name: str) -> ToolResponse:
        """Return the text of a file.

        Args:
            name (str): The name of the file.
        """
        return say((folder / Path(name).name).read_text(encoding="utf-8"))

    def grep_files(pattern: str) -> ToolResponse:
        """Return the lines of all logs that match a regular expression.

        Args:
            pattern (str): The regular expression.
        """
        found = re.compile(pattern)
        return say(
            "\n".join(
                f"{path.name}:{number}:{line}"
                for path in sorted(folder.glob("*.log"))
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
                if found.search(line)
            )
        )

    def query_parcels(sql: str) -> ToolResponse:
        """Run a query over the table parcels(parcel, depot, grams, courier).

        Args:
            sql (str): The query.
        """
        database = sqlite3.connect(folder / DATABASE)
        try:
            return say("\n".join("|".join(map(str, row)) for row in database.execute(sql)))
        finally:
            database.close()

    toolkit = Toolkit()
    for function in (list_files, read_file, grep_files, query_parcels):
        toolkit.register_tool_function(function)
    return toolkit


def say(text: str) -> ToolResponse:
    """Return a tool's answer."""
    return ToolResponse(content=[TextBlock(type="text", text=text)])


def read(depot: int) -> tuple[str, dict[str, str]]:
    """Return the call that reads a depot's log."""
    return "read_file", {"name": log_name(depot)}
