"""A tool call as a summary tells it: what it is one of, and what another call shares that tries the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from context_compressor.summarizers.cutting import cut
from context_compressor.summarizers.extracts.titles import (
    COMMAND_ARGUMENTS,
    FILE_ARGUMENTS,
    Told,
    command_line,
    describe_arguments,
    describe_plan,
    telling_arguments,
)

_NAME_CHARS = 64
"""What providers allow; a name comes from outside, and may be anything."""
_LONG_PATH = 24
"""Characters from which the line of a call names a file without its directories."""
_MOST_COMPARED = 20
"""Arguments up to which calls are compared: the work grows with the square."""
_READING = re.compile(
    r"(?:^|[\W_])(?:read|view|open|cat(?! *(?:>|<<))|head|tail|sed -n|nl|less|more)(?![a-z])", re.IGNORECASE
)
"""What a call is named, or begins with, that shows a text: errors and tallies in it are the text's.

`cat` that writes what stands below it to a file, or to a program, shows none.
"""
SHELL = re.compile(r"bash|shell|terminal|command|cmd|(?<![a-z])exec(?![a-z])", re.IGNORECASE)
"""What a tool is named that runs commands."""
_SHOWS = "show"
"""The kind of every call that shows a text."""
_PREPARATION = re.compile(r"(?:(?:cd|pushd|export|source|\.|set) [^&;\n]{1,200}(?:&&|;|\n) *)*")
"""What comes before a command so that it can run."""
_PROGRAM = re.compile(r"(?:\w+=\S* +)*([\w./-]+)(?: +([a-z][a-z-]+(?: +[a-z][a-z-]+)?)(?=\s|\Z))?")
"""Begins a command: variables, the program, and `rollout undo` say in `kubectl rollout undo`."""


Attempt = tuple[str, bool, frozenset[tuple[str, str]]]
"""What a call tries: its tool, whether it is to show a text, and some of its arguments."""


@dataclass(eq=False)
class Call:
    """A tool call with its outcome; equal to itself alone."""

    name: str
    arguments: Mapping[str, Any]
    position: float
    outcome: str = ""
    failed: bool = False
    plan: str = field(init=False)
    """The steps that it says remain, where its arguments are a plan; "" where they are none."""
    told: list[Told] = field(init=False)
    """What tells it from other calls."""
    subject: str = field(init=False)
    """Its telling arguments, on one line."""
    label: str = field(init=False)
    """The call in few words, to name beside what it brought."""

    def __post_init__(self) -> None:
        self.name = cut(self.name, _NAME_CHARS)
        self.plan = describe_plan(self.arguments)
        self.told = telling_arguments(self.arguments)
        self.subject = self.plan or describe_arguments(self.told)
        # Behind the label of a line stand a colon and a blank: none may stand within.
        self.label = f"{self.name} {cut(self._shortened(0).replace(': ', ':'), 36)}".rstrip()

    @cached_property
    def title(self) -> str:
        """The call on one line, without its outcome; the facts name a long path once, in full."""
        subject = self._shortened(_LONG_PATH)
        return f"{self.name}: {subject}" if subject else self.name

    def _shortened(self, shortest: int) -> str:
        if self.plan or "/" not in self.subject:
            return self.subject
        return describe_arguments(self.told, shortest)

    @property
    def attempts(self) -> set[Attempt]:
        """What calls of a tool share that try the same: of a shell the last command, else all arguments or
        all but one, or the file that is read, or changed.

        A retry has often an argument more or less, edits the file by other words, or does before the command
        what was missing. Time and place of a command, and what an editor is to do, are shared by any two.
        """
        pairs = frozenset((key, str(value)) for key, value in self.arguments.items())
        if not 0 < len(pairs) <= _MOST_COMPARED:
            return set()
        files = {pair for pair in pairs if pair[0] in FILE_ARGUMENTS}
        if self.command and not files:
            return {(self.name, False, frozenset({("command", self.command.rpartition("&&")[2].strip())}))}
        shared = {pairs} | {pairs - {pair} for pair in pairs} | {frozenset({file}) for file in files}
        orders = {pair for pair in pairs if pair[0] in COMMAND_ARGUMENTS}
        return {(self.name, self.is_reading, some) for some in shared if some - orders}

    @cached_property
    def command(self) -> str:
        """What it executes; "" where it is no command."""
        command = command_line(self.arguments.get("command", self.arguments.get("cmd")))
        return command if isinstance(command, str) else ""

    @cached_property
    def kind(self) -> str:
        """What it is one of (see `kind_of_call`)."""
        return kind_of_call(self.name, self.command)

    @property
    def is_reading(self) -> bool:
        """Whether it shows a text, by its name or its command."""
        return self.kind == _SHOWS


def kind_of_call(name: str, command: str) -> str:
    """Return what a call is one of: its tool with the program, and what this is to do, of a command.

    All that show a text are one.
    """
    command = _PREPARATION.sub("", command, count=1)
    if _READING.search(name) or _READING.match(command):
        return _SHOWS
    program = _PROGRAM.match(command)
    return " ".join((name, *filter(None, program.groups()))) if program else name
