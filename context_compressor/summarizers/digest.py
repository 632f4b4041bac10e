"""Read messages into what an extractive summary is made of: statements, calls, earlier summaries."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_compressor.messages.msg import Block, Msg, is_instruction
from context_compressor.messages.openai_common import sendable
from context_compressor.messages.parts import argument_lines
from context_compressor.summarizers.identifiers import Source
from context_compressor.summarizers.sections import is_placeholder, parse_sections

_READ_CHARS = 60_000
"""How much of one text is read, half from each end: a result beyond it is data, and time matters more."""
_OUTCOME_CHARS = 6_000
"""The same for finding a result's outcome, which stands at an end."""
_TELLING_ARGUMENTS = (
    *("path", "file_path", "filename", "file", "command", "cmd", "query", "pattern", "url", "sql", "code"),
    *("name", "id"),
)
_PLACE_ARGUMENTS = frozenset({"path", "file_path", "filename", "file", "command", "cmd", "name"})
"""Arguments in which a path may be shortened to its name; in a URL or an expression it is no path."""
_DIRECTORIES = re.compile(r"(?<![\w:/.@~'\"|-])(?!s/)(?:~|\.{1,2}|[\w@-]+)?/(?:[\w.@-]+/)*(?=[\w.-])")
"""The directories of a path. Not of an image's name (its first part has a dot), nor in a substitution."""
_LONG_PATH = 24
"""Characters from which the line of a call names a file without its directories."""
_CHANGE_OF_DIRECTORY = re.compile(r"cd \S+ && ")
_TALLY = re.compile(
    r"^[^\n]*\b\d+ (?:passed|failed|failing|rejected|errors?)\b[^\n]*$"
    r"|^(?:Ran \d+ tests?[^\n]*|FAILED \([^\n]*)$",
    re.MULTILINE,
)
_FAILED_TALLY = re.compile(r"\b[1-9]\d* (?:failed|failing|rejected|errors?)\b|^FAILED")
_ERROR_LINE = re.compile(
    r"^[ \t>E]*(?:[\w.]*(?:Error|Exception)\b|(?:error|fatal|failed|failure|FAILED|ERROR|错误)\b"
    r"|(?:--- )?FAIL\b|not ok\b|npm ERR!)[^\n]{3,}",
    re.MULTILINE,
)
_TALLY_WORDS = ("passed", "failed", "failing", "rejected", "error", "Ran ", "FAILED")
_ERROR_WORDS = ("rror", "xception", "fatal", "fail", "FAIL", "ERR", "not ok", "错误")
"""Without one of these neither pattern matches; to look for words is ten times as fast."""
_ERROR_PHRASES = ("No such file or directory", "ommand not found", "ermission denied", "not found")
_SUCCESS = re.compile(
    r"\W*(?:(?:ok|done|no output)\W*$|success(?:ful(?:ly)?)?\b(?! rate)"
    r"|the file \S+ has been|file created|(?:edited|applied) (?!0\b))",
    re.IGNORECASE,
)
_READING = re.compile(
    r"(?:^|[\W_])(?:read|view|open|cat|head|tail|sed -n|nl|less|more)(?![a-z])", re.IGNORECASE
)
"""What a call is named, or begins with, that shows a text: errors and tallies in it are the text's."""
_READ_LINES = 3
"""A result of so few lines may still be the error that a reading call met."""
_REF = "ctx://"
"""In a line of the memory's own: a label, or the first line of what stands for a text."""
_TAG = re.compile(r"</?[\w-]+>")
_ENCODE = json.JSONEncoder(ensure_ascii=False, default=str).encode
"""As `json.dumps`, which makes such an encoder at every call."""
_JSON_MARKS = str.maketrans({"{": " ", "}": " ", "[": " ", "]": " ", '"': None})


@dataclass(frozen=True, slots=True)
class Statement:
    """What someone said."""

    text: str
    position: float
    """0 oldest, 1 newest."""


@dataclass(slots=True)
class Call:
    """A tool call with its outcome."""

    name: str
    arguments: Mapping[str, Any]
    position: float
    outcome: str = ""
    failed: bool = False
    subject: str = field(init=False)
    """Its telling arguments, on one line."""
    label: str = field(init=False)
    """The call in few words, to name beside what it brought."""

    def __post_init__(self) -> None:
        self.subject = describe_arguments(self.arguments)
        self.label = f"{self.name} {cut(self._shortened(0), 36)}".rstrip()

    @property
    def title(self) -> str:
        """The call on one line, without its outcome; the facts name a long path once, in full."""
        subject = self._shortened(_LONG_PATH)
        return f"{self.name}: {subject}" if subject else self.name

    def _shortened(self, shortest: int) -> str:
        return describe_arguments(self.arguments, shortest) if "/" in self.subject else self.subject

    @property
    def is_reading(self) -> bool:
        """Whether it shows a text, by its name or its command."""
        command = self.arguments.get("command", self.arguments.get("cmd"))
        command = _CHANGE_OF_DIRECTORY.sub("", command, count=1) if isinstance(command, str) else ""
        return _READING.search(self.name) is not None or _READING.match(command) is not None


@dataclass(frozen=True, slots=True)
class CarriedLine:
    """A line of an earlier summary."""

    section: str
    text: str
    position: float
    rank: float
    """Where in its section it stood: 0 first, towards 1 last."""


@dataclass(slots=True)
class Digest:
    """The parts of some messages, oldest first."""

    requests: list[Statement] = field(default_factory=list)
    """What users, and later instructions, said."""
    replies: list[Statement] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    carried: list[CarriedLine] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    """Every text but the earlier summaries."""


def digest_messages(messages: Sequence[Msg], previous: str | None) -> Digest:
    """Read `messages`, and the earlier summary that the new one replaces."""
    digest = Digest()
    if previous:
        _carry(digest, previous, 0.0)
    open_calls: dict[str, Call] = {}
    last = max(1, len(messages) - 1)
    for index, msg in enumerate(messages):
        provenance = (msg.metadata or {}).get("compression")
        kind = provenance.get("kind") if isinstance(provenance, dict) else None
        if kind == "segment":
            _carry(digest, msg.get_text_content() or "", index / last)
        elif kind != "placeholder":
            _read(digest, msg, index / last, open_calls)
    return digest


def cut(text: str, max_chars: int) -> str:
    """Return `text` on one line of at most `max_chars` characters, cut between words, with an ellipsis."""
    line = " ".join(text[: max_chars * 4].split())
    if len(line) <= max_chars:
        return line
    head = line[: max(0, max_chars - 2)]
    space = head.rfind(" ")
    return f"{head[:space] if space > max_chars // 2 else head} …"


def _carry(digest: Digest, text: str, position: float) -> None:
    """Take over the lines of an earlier summary; the label around a segment's text is no part of it."""
    body = "\n".join(line for line in text.splitlines() if _REF not in line and not _is_label(line))
    sections = parse_sections(body)
    # What was under way or next is known as of the newest summary only.
    digest.carried = [
        line for line in digest.carried if line.section not in {"progress", "next"} or not sections
    ]
    for section, lines in sections.items():
        digest.carried += [
            CarriedLine(section, line, position, rank / len(lines)) for rank, line in enumerate(lines)
        ]


def _is_label(line: str) -> bool:
    line = line.strip()
    return (line[:1], line[-1:]) in {("[", "]"), ("<", ">")}


def _read(digest: Digest, msg: Msg, position: float, open_calls: dict[str, Call]) -> None:
    by_user = msg.role == "user" or is_instruction(msg)
    for block in msg.get_content_blocks():
        kind = block.get("type")
        if kind == "text":
            text = _ends(block["text"], _READ_CHARS)
            if not is_placeholder(text):
                (digest.requests if by_user else digest.replies).append(Statement(text, position))
                speaker = Source("user", "user", text, position) if by_user else None
                digest.sources.append(speaker or Source("assistant", "assistant", text, position))
        elif kind == "tool_use":
            call = Call(block["name"], block["input"], position)
            digest.calls.append(call)
            open_calls[block["id"]] = call
            arguments = _ends("\n".join(argument_lines(block["input"])), _READ_CHARS)
            digest.sources.append(Source("call", call.label, arguments, position))
        elif kind == "tool_result":
            _read_result(digest, block, position, open_calls)


def _read_result(digest: Digest, block: Block, position: float, open_calls: dict[str, Call]) -> None:
    output = block["output"]
    if not isinstance(output, str):
        output = "\n".join(
            b["text"] for b in output if isinstance(b, dict) and isinstance(b.get("text"), str)
        )
    text = _ends(output, _READ_CHARS)
    call = open_calls.pop(block["id"], None)
    if call is None:
        call = Call(str(block.get("name") or "tool"), {}, position)
        digest.calls.append(call)
    call.outcome, call.failed = read_outcome(text, is_read=call.is_reading)
    if call.subject and call.subject in call.outcome:
        call.outcome = ""  # an echo of the command
    digest.sources.append(Source("result", call.label, text, position))


def _ends(text: str, max_chars: int) -> str:
    if len(text) > max_chars:
        text = f"{text[: max_chars // 2]}\n{text[-(max_chars // 2) :]}"
    # Text inside JSON inside text: its line breaks are escapes, and would glue `n` to the words that follow.
    return text.replace("\\n", "\n") if text.count("\\n") > 2 else text


def describe_arguments(arguments: Mapping[str, Any], shortest: int | None = None) -> str:
    """Return the telling arguments of a call on one line: a path, a command, a query before anything else.

    Args:
        arguments: the call's.
        shortest: characters from which a path is shortened to its name, unless two of a command would then
            look the same; None: none is.
    """
    first = [key for key in _TELLING_ARGUMENTS if key in arguments]
    parts: list[str] = []
    for key in first + [key for key in arguments if key not in first]:
        value = arguments[key]
        if value is None or value in ("", [], {}):
            continue
        text = value if isinstance(value, str) else _ENCODE(value)
        line = _CHANGE_OF_DIRECTORY.sub("", text.strip(), count=1).split("\n", 1)[0]
        if shortest is not None and key in _PLACE_ARGUMENTS:
            line = _without_directories(line, shortest)
        parts.append(cut(line, 120) if key in first else f"{key}={cut(line, 40)}")
        if len(parts) == 3:
            break
    return sendable(cut(" ".join(parts), 180))


def _without_directories(line: str, shortest: int) -> str:
    words = line[:600].split(" ")
    shortened = [_DIRECTORIES.sub("", word) if len(word) >= shortest else word for word in words]
    return " ".join(shortened) if len(set(shortened)) == len(set(words)) else line


def read_outcome(text: str, *, is_read: bool = False) -> tuple[str, bool]:
    """Return a result's outcome on one line, and whether it reports a failure.

    A test tally outranks an error line, which outranks the first line that says anything.

    Args:
        text: the result.
        is_read: whether it is a text that the call showed, in which errors are somebody else's.
    """
    ends = _ends(text, _OUTCOME_CHARS)
    if _REF in ends[:300]:  # the memory's own words about a text that left
        ends = "\n".join(line for line in ends.splitlines() if _REF not in line)
    if is_read and ends.count("\n") >= _READ_LINES:
        return _first_words(ends, text), False
    if ends.lstrip().startswith(("{", "[")):
        return cut(ends[:800].translate(_JSON_MARKS), 140), '"error"' in ends[:200].casefold()
    tallies = _TALLY.findall(ends) if any(map(ends.__contains__, _TALLY_WORDS)) else None
    if tallies:
        return cut(tallies[-1], 120), _FAILED_TALLY.search(tallies[-1]) is not None
    error = _find_error(ends)
    if error:
        return cut(error, 160), True
    return _first_words(ends, text), False


def _first_words(ends: str, text: str) -> str:
    """Return the first line that says anything, and how many there are of a long text."""
    for line in ends.splitlines():
        plain = _TAG.sub("", line).strip()
        if plain != "0" and any(map(str.isalnum, plain)):
            if _SUCCESS.match(plain):
                return "ok"
            lines = text.count("\n") + 1
            return f"{cut(plain, 60)} ({lines} lines)" if lines > 12 else cut(plain, 100)
    return ""


def _find_error(text: str) -> str | None:
    if any(map(text.__contains__, _ERROR_WORDS)):
        lines: list[str] = _ERROR_LINE.findall(text)
        if lines:
            return lines[-1]
    for phrase in _ERROR_PHRASES:
        at = text.rfind(phrase)
        if at >= 0:
            line = text[text.rfind("\n", 0, at) + 1 :].split("\n", 1)[0]
            if len(line) <= 200:
                return line
    return None
