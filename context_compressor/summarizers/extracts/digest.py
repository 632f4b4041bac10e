"""Read messages into what an extractive summary is made of: statements, calls, earlier summaries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_compressor.messages.escapes import with_letters
from context_compressor.messages.file_names import with_line_feeds
from context_compressor.messages.frames import unframe, without_clock
from context_compressor.messages.handed import (
    is_notice,
    read_result,
    without_prompt,
    without_surroundings,
)
from context_compressor.messages.msg import Block, Msg, is_instruction
from context_compressor.messages.parts import argument_lines
from context_compressor.messages.provenance import provenance_of
from context_compressor.summarizers.cleaning import clean
from context_compressor.summarizers.cutting import cut, cut_middle
from context_compressor.summarizers.extracts.calls import Call
from context_compressor.summarizers.extracts.outcomes import REF, read_outcome, shown_of
from context_compressor.summarizers.extracts.spoken import SpokenCall, read_calls
from context_compressor.summarizers.identifiers.ranking import Source
from context_compressor.summarizers.reasoning import strip_reasoning
from context_compressor.summarizers.sections import is_placeholder, parse_sections

_READ_CHARS = 60_000
"""How much of one text is read, half from each end: a result beyond it is data, and time matters more."""
_OVERWRITTEN = re.compile(r"(?:^|(?<=\n))[^\n]*\r(?![\r\n]|\Z)")
"""What a terminal no longer shows, since the cursor went back to the start of the line: bars of progress."""
_METER = re.compile(
    r"^[ \t]*% Total[^\n]{0,40}Xferd[^\n]{0,80}\n[^\n]{0,80}Dload[^\n]{0,80}\n"
    r"(?:\s*(?:[\d.]+[kMGT]?[ \t]+){7,8}(?:[\d:.-]{7,9}[ \t]+){3}[\d.]+[kMGT]?)*\s*",
    re.MULTILINE,
)
"""What curl prints of a transfer that goes into a file or a pipe."""
_TRANSFER = re.compile(
    r"^(?:remote: )?(?:(?:Enumerating|Counting|Compressing|Writing|Receiving|Unpacking) objects"
    r"|Resolving deltas): [^\n]*\n|^Delta compression using [^\n]*\n"
    r"|^(?:remote: )?Total \d+ \(delta [^\n]*\n",
    re.MULTILINE,
)
"""What git tells of what it sends and gets."""
_NOTICE = re.compile(r"^\[notice\] [^\n]*\n?", re.MULTILINE)
"""What pip says of a newer pip."""
_OBJECT = re.compile(r" (?:object )?at 0x[0-9A-Fa-f]{6,16}(?=>)")
"""Where in a process's memory an object was that Python printed."""
_HANDLE = re.compile(r" \[ref=\w{1,16}\]")
"""By what an agent acts on a node of the page that a browser shows; the next page has others."""
_MEDIA = re.compile(rf"\[Offloaded \w+ {REF}\w+: [^\n]*\]")
"""The memory's own words in place of an image: its size and type are no facts of the conversation."""
_RANK_STEP = 1e-6
"""Small beside the distance of two messages' positions."""
_BEFORE = -1e-3
"""Where the earlier summary stands: before the first message, and hardly less telling for that."""
_NO_NAMES = ("", "user", "human")
"""What users are named whose name says nothing."""
_NAME_CHARS = 40
_UNNAMED = "tool"
"""What a result without a call is named after."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What someone said."""

    text: str
    position: float
    """0 oldest, 1 newest."""
    speaker: str
    """`user`, `assistant`, or `system` for a later instruction."""
    with_call: bool = False
    """Whether a call stands in the same message: the words may only announce it."""
    name: str = ""
    """Which of several users it was: a colleague, another agent; "" where none is told."""
    answered: str = ""
    """The reply right before it, which may have asked for it; "" for none."""

    def quoted(self, text: str) -> str:
        """Return words of it behind the name of who said it."""
        return f"{self.name}: {text}" if self.name else text


@dataclass(frozen=True, slots=True)
class CarriedLine:
    """A line of an earlier summary."""

    section: str
    text: str
    position: float
    rank: float
    """Where in its section it stood: 0 first, towards 1 last."""

    @property
    def place(self) -> float:
        """Where it stands among lines: far below what is new, by its summary first.

        What an index told follows the rest: it names of what was new then the most telling.
        """
        return self.position - 2 + _RANK_STEP * (self.rank + (self.section == "facts"))


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
    standing: Mapping[str, str] = field(default_factory=dict)
    """By the calls that they tell of, the lines of earlier summaries that stay in the view."""

    @property
    def planners(self) -> set[str]:
        """Names of tools that write a plan: what earlier summaries told of theirs is outdated."""
        return {call.name for call in self.calls if call.plan}


def digest_messages(messages: Sequence[Msg], previous: str | None) -> Digest:
    """Read `messages`, and the earlier summary that the new one replaces."""
    digest = Digest()
    if previous:
        _carry(digest, previous, _BEFORE)
    open_calls: dict[str, Call] = {}
    last = max(1, len(messages) - 1)
    for index, msg in enumerate(messages):
        kind = provenance_of(msg).get("kind")
        if kind == "segment":
            _carry(digest, msg.get_text_content() or "", index / last)
        elif kind != "placeholder":
            _read(digest, msg, index / last, open_calls)
    return digest


def _carry(digest: Digest, text: str, position: float) -> None:
    """Take over the lines of an earlier summary; the label around a segment's text is no part of it."""
    body = "\n".join(line for line in text.splitlines() if REF not in line and not _is_label(line))
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
    speaker = "system" if is_instruction(msg) else "user" if msg.role == "user" else "assistant"
    blocks = msg.get_content_blocks()
    if speaker == "user" and (result := read_result([block["text"] for block in blocks if _is_said(block)])):
        _take_result(digest, _spoken_call(digest, result.name, position), result.text, position)
        blocks = [block for block in blocks if not _is_said(block)]
    is_named = speaker == "user" and msg.name.casefold() not in _NO_NAMES
    name = cut(msg.name, _NAME_CHARS) if is_named else ""
    made = [SpokenCall(block["name"], block["input"]) for block in blocks if block.get("type") == "tool_use"]
    answered = _reply_before(digest) if speaker == "user" else ""
    for block in blocks:
        kind = block.get("type")
        if _is_said(block):
            text = shown_of(block["text"])
            if speaker == "assistant" and text.lstrip().startswith("<"):
                text = strip_reasoning(text)
            text = _ends(text, _READ_CHARS)
            if speaker == "user":
                text = without_surroundings(text)
                if is_notice(text):
                    continue
            elif any(call.name in text for call in made):
                text = _without_calls(text, made)
            if text and not is_placeholder(text):
                by_user = speaker != "assistant"
                said = Statement(text, position, speaker, bool(made), name, answered)
                (digest.requests if by_user else digest.replies).append(said)
                label = f"{speaker} {name}".rstrip()
                digest.sources.append(Source("user" if by_user else "assistant", label, text, position))
        elif kind == "tool_use":
            open_calls[block["id"]] = _take_call(digest, block["name"], block["input"], position)
        elif kind == "tool_result":
            _read_result(digest, block, position, open_calls)


def _without_calls(text: str, made: Sequence[SpokenCall]) -> str:
    """Return a reply without the calls in plain text that a server has read, and handed on beside it."""
    said, calls = read_calls(text)
    return said if all(call in made for call in calls) else text


def _reply_before(digest: Digest) -> str:
    """Return the reply right before what is read next; of one that left earlier what was told of it."""
    if digest.sources:
        last = digest.sources[-1]
        return last.text if last.kind == "assistant" else ""
    return next((line.text for line in reversed(digest.carried) if line.section == "progress"), "")


def _is_said(block: Block) -> bool:
    """Tell whether a block is text, or what was spoken, and not what stands for media."""
    text = block.get("text")
    return block.get("type") in ("text", "audio") and isinstance(text, str) and not _MEDIA.fullmatch(text)


def _read_result(digest: Digest, block: Block, position: float, open_calls: dict[str, Call]) -> None:
    output = block["output"]
    if not isinstance(output, str):
        output = "\n".join(
            b["text"]
            for b in output
            if isinstance(b, dict) and isinstance(b.get("text"), str) and not _MEDIA.fullmatch(b["text"])
        )
    call = open_calls.pop(block["id"], None) or _spoken_call(digest, str(block.get("name") or ""), position)
    _take_result(digest, call, output, position)


def _spoken_call(digest: Digest, name: str, position: float) -> Call:
    """Return the call that stands in the reply before, in plain text; else one of a name."""
    calls: list[SpokenCall] = []
    if digest.sources and digest.sources[-1].kind == "assistant":
        reply = digest.sources[-1]
        said, calls = read_calls(reply.text)
        if name not in ("", _UNNAMED) and all(call.name != name for call in calls):
            calls = []  # what looked like a call was quoted
        if calls:
            digest.sources.pop()
            digest.replies.pop()
            if said:
                digest.replies.append(Statement(said, reply.position, reply.label, True))
                digest.sources.append(reply._replace(text=said))
            for spoken in calls:
                _take_call(digest, spoken.name, spoken.arguments, reply.position)
    if not calls:
        digest.calls.append(Call(name or _UNNAMED, {}, position))
    return digest.calls[-1]


def _take_call(digest: Digest, name: str, arguments: Mapping[str, Any], position: float) -> Call:
    call = Call(name, arguments, position)
    digest.calls.append(call)
    text = _ends("\n".join(argument_lines(arguments)), _READ_CHARS)
    digest.sources.append(Source("call", call.label, text, position))
    return call


def _take_result(digest: Digest, call: Call, output: str, position: float) -> None:
    report = unframe(output)
    said = without_prompt(without_surroundings(report.said))
    text = _ends(_as_shown(without_clock(said)), _READ_CHARS)
    call.outcome, call.failed = read_outcome(
        text,
        command=call.command,
        arguments=call.arguments.values(),
        is_read=call.is_reading,
        status=report.status,
        is_error=report.is_error,
    )
    where, _, rest = call.outcome.partition(" ")
    # Where a browser is after it went there need not be said twice; it may add a slash to the address.
    if "://" in where and where.rstrip("/") in {word.rstrip("/") for word in call.subject.split(" ")}:
        call.outcome = rest
    digest.sources.append(Source("result", call.label, text, position))


def _as_shown(text: str) -> str:
    """Return what a terminal shows of an output in the end, without what is of no use later."""
    if "Xferd" in text:
        text = _METER.sub("", text)
    if " objects: " in text or "deltas: " in text or "(delta " in text:
        text = _TRANSFER.sub("", text)
    if "[notice] " in text:
        text = _NOTICE.sub("", text)
    if " at 0x" in text:
        text = _OBJECT.sub("", text)
    if "[ref=" in text:
        text = _HANDLE.sub("", text)
    return _OVERWRITTEN.sub("", text) if "\r" in text and "\n" in text else text


def _ends(text: str, max_chars: int) -> str:
    text = with_letters(cut_middle(text, max_chars))
    if "\x1b" in text:  # colours, which would glue to the words that follow
        text = clean(text)
    # Text inside JSON inside text: its line breaks are escapes, and would glue `n` to the words that follow.
    return with_line_feeds(text) if "\\" in text and text.count("\\n") > 2 else text
