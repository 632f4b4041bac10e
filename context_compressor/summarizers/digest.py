"""Read messages into what an extractive summary is made of: statements, calls with outcomes, earlier summaries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_compressor.messages.msg import Block, Msg, is_instruction
from context_compressor.summarizers.identifiers import Source
from context_compressor.summarizers.sections import is_placeholder, parse_sections

_READ_CHARS = 60_000
"""How much of one text is read, half from each end: a result beyond it is data, and time matters more."""
_TELLING_ARGUMENTS = (
    *("path", "file_path", "filename", "file", "command", "cmd", "query", "pattern", "url", "sql", "code", "name", "id"),
)
_ERROR = re.compile(
    r"^[ \t>E]*((?:[\w.]*(?:Error|Exception|Warning)\b|(?:error|fatal|failed|failure|FAILED|ERROR)\b)[^\n]{3,}"
    r"|[^\n]{0,120}(?:No such file or directory|command not found|[Pp]ermission denied|not found)[^\n]{0,60})$",
    re.MULTILINE,
)
_TALLY = re.compile(r"^[^\n]*\b\d+ (?:passed|failed|errors?)\b[^\n]*$|^(?:Ran \d+ tests?[^\n]*|FAILED \([^\n]*)$", re.MULTILINE)
_FAILED_TALLY = re.compile(r"\b[1-9]\d* (?:failed|errors?)\b|^FAILED")
_WRAPPING = re.compile(r"</?[\w-]+>")
_JSON_MARKS = str.maketrans({"{": " ", "}": " ", "[": " ", "]": " ", '"': None})
_SPACES = re.compile(r"\s+")
_CD = re.compile(r"cd (\S+) && ")


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
    subject: str
    """Its telling argument, on one line."""
    position: float
    outcome: str | None = None
    failed: bool = False

    @property
    def label(self) -> str:
        """The call in few words, to name beside what it brought."""
        return f"{self.name} {cut(self.subject, 40)}".rstrip()


@dataclass(slots=True)
class Digest:
    """The parts of some messages, oldest first."""

    requests: list[Statement] = field(default_factory=list)
    """What users, and later instructions, said."""
    replies: list[Statement] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    carried: dict[str, list[str]] = field(default_factory=dict)
    """Lines of earlier summaries, by section."""


def digest(messages: Sequence[Msg], previous: str | None) -> Digest:
    """Read `messages`, and the earlier summary that the new one replaces."""
    result = Digest()
    if previous:
        _carry(result, previous)
    open_calls: dict[str, Call] = {}
    last = max(1, len(messages) - 1)
    for index, msg in enumerate(messages):
        kind = ((msg.metadata or {}).get("compression") or {}).get("kind")
        if kind == "segment":
            _carry(result, msg.get_text_content() or "")
            continue
        if kind != "placeholder":
            _read(result, msg, index / last, open_calls)
    return result


def cut(text: str, max_chars: int) -> str:
    """Return `text` on one line of at most `max_chars` characters, cut between words, with an ellipsis."""
    text = _SPACES.sub(" ", text[: max_chars * 4]).strip()
    if len(text) <= max_chars:
        return text
    head = text[:max_chars]
    space = head.rfind(" ")
    return f"{head[:space] if space > max_chars // 2 else head} …"


def _carry(result: Digest, text: str) -> None:
    """Take over the lines of an earlier summary; the label around a segment's text is not part of it."""
    text = "\n".join(line for line in text.splitlines() if "ctx://" not in line and not _is_label(line))
    for key, lines in parse_sections(text).items():
        known = result.carried.setdefault(key, [])
        known += [line for line in lines if line not in known]


def _is_label(line: str) -> bool:
    line = line.strip()
    return (line[:1], line[-1:]) in {("[", "]"), ("<", ">")}


def _read(result: Digest, msg: Msg, position: float, open_calls: dict[str, Call]) -> None:
    speaker = "user" if msg.role == "user" or is_instruction(msg) else "assistant"
    for block in msg.get_content_blocks():
        kind = block.get("type")
        if kind == "text":
            text = _bounded(block["text"])
            if is_placeholder(text):
                continue
            statements = result.requests if speaker == "user" else result.replies
            statements.append(Statement(text, position))
            result.sources.append(Source(speaker, speaker, text, position))  # type: ignore[arg-type]
        elif kind == "tool_use":
            call = _read_call(result, block, position)
            open_calls[block["id"]] = call
        elif kind == "tool_result":
            _read_result(result, block, position, open_calls)


def _read_call(result: Digest, block: Block, position: float) -> Call:
    call = Call(block["name"], describe_arguments(block["input"]), position)
    result.calls.append(call)
    text = "\n".join(_flatten(block["input"]))
    result.sources.append(Source("call", call.label, _bounded(text), position))
    return call


def _read_result(result: Digest, block: Block, position: float, open_calls: dict[str, Call]) -> None:
    output = block["output"]
    if not isinstance(output, str):
        output = "\n".join(b["text"] for b in output if isinstance(b, dict) and isinstance(b.get("text"), str))
    text = _bounded(output)
    call = open_calls.pop(block["id"], None)
    if call is None:
        call = Call(str(block.get("name") or "tool"), "", position)
        result.calls.append(call)
    call.outcome, call.failed = read_outcome(text)
    result.sources.append(Source("result", call.label, text, position))


def _bounded(text: str) -> str:
    half = _READ_CHARS // 2
    return text if len(text) <= _READ_CHARS else f"{text[:half]}\n{text[-half:]}"


def _flatten(value: Any, key: str = "") -> Iterable[str]:
    """Yield the scalars of an argument object as `key: value` lines, so that keys stand beside values."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flatten(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _flatten(item, key)
    else:
        yield f"{key}: {value}" if key else str(value)


def describe_arguments(arguments: dict[str, Any]) -> str:
    """Return the telling arguments of a call on one line: a path, a command, a query before anything else."""
    parts = []
    rest = [key for key in arguments if key not in _TELLING_ARGUMENTS]
    for key in [*(key for key in _TELLING_ARGUMENTS if key in arguments), *rest]:
        value = arguments[key]
        if value is None or value in ("", [], {}):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text = _CD.sub("", text, count=1) if text.startswith("cd ") else text
        first_line = text.strip().split("\n", 1)[0]
        parts.append(cut(first_line, 120) if key in _TELLING_ARGUMENTS else f"{key}={cut(first_line, 50)}")
        if len(parts) == 4:
            break
    return cut(" ".join(parts), 180)


def read_outcome(text: str) -> tuple[str, bool]:
    """Return a result's outcome on one line, and whether it reports a failure.

    An error line outranks a test tally, which outranks the first line that says anything.
    """
    ends = text if len(text) <= 6_000 else f"{text[:3_000]}\n{text[-3_000:]}"
    tally = _TALLY.findall(ends)
    if tally:
        return cut(tally[-1], 120), bool(_FAILED_TALLY.search(tally[-1]))
    if not text.lstrip().startswith(("{", "[")):
        errors = _ERROR.findall(ends)
        if errors:
            return cut(errors[-1], 160), True
        for line in ends.splitlines():
            plain = _WRAPPING.sub("", line).strip()
            if any(map(str.isalnum, plain)) and plain != "0":
                return cut(plain, 100), False
        return "", False
    return cut(ends[:800].translate(_JSON_MARKS), 140), '"error"' in ends[:200].casefold()
