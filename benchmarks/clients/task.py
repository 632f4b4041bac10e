"""The task of a real client: a folder of logs, and a model that goes through them with the client's tools.

The model goes by what it sees: each log names the one to read next. It calls whichever tools the client
offers. At two turns it reads back a text that left, and checks what came. What the memory asks it to note it
notes, by edits.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.model_server import answer
from tests.support.provider_tokens import count_message
from tests.support.replies import Reply
from tests.support.wires import Received

Dict = dict[str, Any]

TURNS = 60
"""Turns of the model with calls of the client's tools; its answer comes behind them."""
DONE = "All logs are read: units were lost on every host."
REQUEST = (
    "Go through the logs in this folder with your tools, beginning with logs/0.log. Each names the one to "
    "read next. Then tell me what went wrong. Never write to a log."
)
_LOGS, _STEP, _LINES = 67, 23, 140
GO_ON = "Go on."
_HALF = 30
"""At this turn a model pauses, where its client can be told to go on."""
_CODE = re.compile(r"the code of log (\d+) is [0-9a-f]{12}")
_REF = re.compile(r"ctx://[0-9a-f]{16}")
_ASKED_FOR_NOTES = ("This message is from your memory", "You write the notes of an AI agent's memory")
_NOTED = re.compile(r"^(\d+): (Logs read so far: .*)$", re.MULTILINE)
_READ_BACK = {25: "alone", 40: "beside"}
"""At which turns a text that left is read back: alone, and beside a call of the client's."""
READ_TOOL = "read_offloaded"
_SEALED = "reasoning.encrypted_content"
"""What a client asks for that takes a model's thoughts along."""
_PATCHES_AT, _PATCH_TOOL, _PATCHED = 20, "apply_patch", "found.txt"
_PATCH_CALL = {
    "type": "custom_tool_call",
    "id": "ctc_patch",
    "call_id": "call_patch",
    "name": _PATCH_TOOL,
    "input": f"*** Begin Patch\n*** Add File: {_PATCHED}\n+Units are lost.\n*** End Patch\n",
}
"""A call whose input is no JSON, where a client has such a tool: it writes a file."""
_READS = ("read", "read_file", "view_text_file", "Read")
_RUNS = ("exec_command", "shell_command", "shell", "bash", "Bash", "run_command", "execute_shell_command")
"""Tools of clients and frameworks that read files and run commands."""


def make_folder(folder: Path) -> None:
    """Write the logs."""
    (folder / "logs").mkdir(parents=True)
    for number in range(_LOGS):
        lines = [
            f"{line // 60:02}:{line % 60:02} unit {line * (number + 3) % 997} took {line * 31 % 89} ms: "
            f"{f'ERROR, lost {number * line}' if line % 67 == 66 else 'ok'}"
            for line in range(_LINES)
        ]
        code = hashlib.sha256(f"log {number}".encode()).hexdigest()[:12]
        head = [
            f"log of host-{number}; read next: logs/{(number + _STEP) % _LOGS}.log",
            f"the code of log {number} is {code}",
        ]
        (folder / "logs" / f"{number}.log").write_text("\n".join([*head, *lines, ""]), encoding="utf-8")
    # Else a client would take the repository around it for its project.
    subprocess.run(["git", "init", "--quiet", folder], check=True)


class Model:
    """A model that reads one log after the other.

    Args:
        folder: where the logs lie, for tools that want whole paths.
        pauses: whether it answers when half of the task is done, and waits to be told to go on.

    Attributes:
        turns: its replies with calls of the client's.
        notes: requests for notes.
        others: requests beside the task, such as for a title.
        raw_tokens: of what it was told and called, each counted once.
        read_back: how a text that left was read back: "alone", "beside".
        faults: what it should have seen and did not.
    """

    def __init__(self, folder: Path, *, pauses: bool = False) -> None:
        self._folder = folder
        self._pauses, self._was_told = pauses, True
        self._next = "logs/0.log"
        self._back = ""
        self._is_patched = False
        self.turns = self.notes = self.others = self.raw_tokens = 0
        self.read_back: list[str] = []
        self.faults: list[str] = []

    def __call__(self, messages: list[Dict], received: Received) -> Reply:
        head = {"messages": [messages[0], messages[-1]], "system": received.json.get("system")}
        asked = "\n".join(_texts([head, received.json.get("instructions")]))
        if any(mark in asked for mark in _ASKED_FOR_NOTES):
            self.notes += 1
            return answer(_edits("\n".join(_texts(messages))))
        tools = dict(_tools(received))
        reads = next((name for name in _READS if name in tools), None)
        runs = next((name for name in _RUNS if name in tools), None)
        usable = [name for name in (reads, runs) if name is not None]
        if not usable:
            self.others += 1
            return answer("Reading logs")
        new = _behind_the_last_reply(messages)
        back, self._back = self._back, ""
        if not self._looks(new, back):
            return answer(f"Something is wrong: {self.faults[-1]}")
        if self.turns == TURNS:
            return answer(DONE)
        if self._pauses and self.turns == _HALF:
            self._pauses = self._was_told = False
            return answer("Half of the logs are read.")
        thought = "What is next?" if _SEALED in (received.json.get("include") or ()) else None
        if self.turns == _PATCHES_AT and _PATCH_TOOL in tools and not self._is_patched:
            self._is_patched, self._back = True, "patch"
            return answer(None, reasoning=thought, hosted=[_PATCH_CALL])
        calls: list[tuple[str, Any]] = []
        refs = _REF.findall("\n".join(_texts(messages))) if READ_TOOL in tools else []
        due = next(
            (how for at, how in _READ_BACK.items() if self.turns >= at and how not in self.read_back), ""
        )
        if refs and due:
            self._back = due
            calls.append((READ_TOOL, {"ref": refs[0]}))
        if self._back != "alone":
            self.turns += 1
            name = usable[self.turns % len(usable)]
            calls.append((name, self._arguments(tools[name])))
        return answer(f"Turn {self.turns}.", calls, reasoning=thought)

    def _looks(self, new: list[Dict], back: str) -> bool:
        """Look at what came since the last reply; tell whether it holds what was called for."""
        text = "\n".join(_texts(new))
        due = int("".join(filter(str.isdigit, self._next)))
        if back == "patch":
            return self._sees((self._folder / _PATCHED).exists(), f"{_PATCH_TOOL} wrote nothing", text)
        if back:
            if not self._sees(any(int(one) != due for one in _CODE.findall(text)), READ_TOOL, text):
                return False
            self.read_back.append(back)
        if back == "alone":
            return True
        self.raw_tokens += sum(map(count_message, new))
        if not self._was_told:
            self._was_told = GO_ON in text
        elif self.turns:
            found = re.search(rf"log of host-{due}; read next: (logs/\d+\.log)", text)
            if not self._sees(found is not None, self._next, text):
                return False
            self._next = found[1] if found else ""
        return True

    def _sees(self, is_there: bool, what: str, text: str) -> bool:
        if not is_there:
            self.faults.append(f"turn {self.turns}: {what}: it saw {text[:300]!r}")
        return is_there

    def _arguments(self, schema: Dict) -> Dict:
        """Return what a tool is to be called with, by its schema, to read the next log."""
        given: Dict = {}
        required = schema.get("required") or list(schema["properties"])
        for name, said in schema["properties"].items():
            if "path" in name.lower():
                given[name] = str(self._folder / self._next)
            elif name == "limit":
                given[name] = 2 * _LINES
            elif name in ("cmd", "command"):
                line = f"cat {self._next}"
                given[name] = ["bash", "-c", line] if said.get("type") == "array" else line
            elif name in required and said.get("type") == "string":
                given[name] = "Read the next log"
        return given


def _edits(text: str) -> str:
    """Return edits of the notes: which logs are read."""
    read = dict.fromkeys(re.findall(r"log of host-(\d+);", text))
    noted = _NOTED.findall(text)
    if not noted:
        return (
            f"## Goal\n+ Go through all logs: what went wrong\n## Done\n+ Logs read so far: {', '.join(read)}"
        )
    line, before = noted[-1]
    new = [one for one in read if one not in re.findall(r"\d+", before)]
    return f"~{line} {', '.join([before, *new])}\n## Done\n+ Errors were seen in logs {', '.join(new)}"


def _tools(received: Received) -> Iterator[tuple[str, Dict]]:
    for tool in received.tools:
        function = tool.get("function") or tool
        yield str(function.get("name")), function.get("parameters") or function.get("input_schema") or {}


def _behind_the_last_reply(messages: list[Dict]) -> list[Dict]:
    behind: list[Dict] = []
    for message in reversed(messages):
        kind = str(message.get("type"))
        if message.get("role") == "assistant" or kind.endswith("_call") or kind == "reasoning":
            break
        behind.insert(0, message)
    return behind


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)
