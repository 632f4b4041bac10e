"""What reading gives: sessions, and a problem for every line that gave none."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any


class Format(StrEnum):
    """The formats that are read: the value is what `--format` takes, the title what sentences say."""

    title: str  # type: ignore[assignment]  # a StrEnum's `str.title` says nothing here

    def __new__(cls, value: str, title: str) -> Format:
        """Make a member of its value and its title."""
        format = str.__new__(cls, value)
        format._value_, format.title = value, title
        return format

    OPENAI = "openai", "OpenAI chat"
    AGENTSCOPE = "agentscope", "AgentScope state"
    CLAUDE_CODE = "claude-code", "Claude Code session"
    CODEX = "codex", "Codex rollout"
    LANGCHAIN = "langchain", "LangChain messages"
    ANTHROPIC = "anthropic", "Anthropic Messages"
    RESPONSES = "responses", "OpenAI Responses items"
    CODEX_EXEC = "codex-exec", "Codex exec events"
    CURSOR = "cursor", "Cursor agent transcript"
    GEMINI = "gemini-cli", "Gemini CLI session"
    OPENCODE = "opencode", "opencode session"
    PI = "pi", "pi session"
    OPENHANDS = "openhands", "OpenHands events"
    SWE_AGENT = "swe-agent", "SWE-agent history"
    INSPECT = "inspect", "Inspect messages"
    PYDANTIC_AI = "pydantic-ai", "Pydantic AI messages"
    AUTOGEN = "autogen", "AutoGen messages"
    SHAREGPT = "sharegpt", "ShareGPT conversations"
    ATIF = "atif", "ATIF trajectory"
    CHATGPT = "chatgpt", "ChatGPT export"
    CONTINUE = "continue", "Continue session"
    COPILOT = "copilot-cli", "Copilot CLI events"
    DROID = "droid", "Factory Droid session"
    GOOSE = "goose", "Goose session"
    KIMI = "kimi-cli", "Kimi CLI context"
    OBSERVED = "observed", "log of an adapter that only looks on"


_NUMBERS = re.compile(r"\d+|'[^']*'")
"""What differs between problems of one kind: places, and values found there."""


class Form(Enum):
    """How a file of sessions is laid out, where that matters for writing it back."""

    ONE = "one JSON value"
    SESSION_LINES = "JSONL, a session per line"
    MESSAGE_LINES = "JSONL, a message per line"
    FOREIGN = "another format, written as OpenAI chat JSON"
    DIRECTORY = "a directory, written as JSONL, a session per line"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read, and was passed over."""

    file: str
    """As the user named it, or found in the directory that was named."""
    line: int | None
    """1-based; None where it is the whole file."""
    why: str
    column: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f", line {self.line}"
        column = "" if self.column is None else f", column {self.column}"
        return f"{self.file}{line}{column}: {self.why}"


def summed(problems: Sequence[Problem]) -> str:
    """Return the first of some problems, and how many more there are."""
    rest = len(problems) - 1
    return str(problems[0]) + (f" (and {rest:,} more that cannot be read)" if rest else "")


def grouped(problems: Sequence[Problem]) -> list[str]:
    """Return a line for each kind of problem in each file: the first, and how many are like it."""
    return grouped_texts((str(problem), f"{problem.file}: {problem.why}") for problem in problems)


def grouped_texts(texts: Iterable[tuple[str, str]]) -> list[str]:
    """Return the first of the texts of each kind, and how many are like it; each text comes with its kind.

    Kinds that differ in numbers and quoted values alone are one.
    """
    alike: dict[str, list[str]] = defaultdict(list)
    for text, kind in texts:
        alike[_NUMBERS.sub("#", kind)].append(text)
    return [
        same[0] + (f" (and {len(same) - 1:,} more like it)" if len(same) > 1 else "")
        for same in alike.values()
    ]


class UnreadableError(Exception):
    """Report that one value, line or file is not what its format says; carries only the reason.

    Readers raise it about a value and their caller, who knows the place, makes a `Problem` of it. It never
    leaves this package but from `read_all`. `message` is the index of the one at fault, where a value holds
    several, and `held` how many it holds. `is_stranger` says that a file is no transcript at all, as others
    that stand beside them.
    """

    def __init__(
        self,
        why: str,
        line: int | None = None,
        column: int | None = None,
        message: int | None = None,
        *,
        held: int = 0,
        is_stranger: bool = False,
    ) -> None:
        super().__init__(why)
        self.why, self.line, self.column, self.message = why, line, column, message
        self.held, self.is_stranger = held, is_stranger

    def at(self, file: str, line: int | None = None) -> Problem:
        """Return the problem; `line` is where the value stands, unless the error knows better."""
        return Problem(file, line if self.line is None else self.line, self.why, self.column)


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation, as chat dicts that `from_openai` accepts."""

    messages: list[Any]
    source: str
    """The file that holds it, as errors name it."""
    format: Format = Format.OPENAI
    form: Form = Form.FOREIGN
    id: str | None = None
    """What it calls itself, if anything."""
    title: str = ""
    """The title that its program saved, if any."""
    frame: dict[str, Any] | None = None
    """The object that held the messages, its other keys included; None where they stood alone."""
    line: int | None = None
    """The line of the file that holds it, 1-based; None where it is the whole file."""
    message_lines: tuple[int, ...] = ()
    """The line of each message, where each has its own; of its first part where it has several."""
    is_indented: bool = False
    """Whether the JSON value spread over several lines."""
    notes: tuple[str, ...] = ()
    """What was left out on purpose, how much of it, and what else should be known."""
    compacted_at: tuple[int, ...] = ()
    """Indexes of messages with which its program began anew, a summary in the place of all before."""
    turns: tuple[int, ...] | None = None
    """How many messages stood in each request; None: each message of the assistant was an answer to one."""

    def place(self, message: int | None = None) -> str:
        """Return where the session, or one message of it, stands, as errors name it."""
        line = self.line
        if message is not None and self.message_lines:
            line = self.message_lines[message]
        return self.source if line is None else f"{self.source}, line {line}"

    def wrap(self, messages: list[dict[str, Any]]) -> Any:
        """Return `messages` in the frame of this session."""
        return messages if self.frame is None else {**self.frame, "messages": messages}
