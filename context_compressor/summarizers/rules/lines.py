"""The notes without a model: the best candidates, as lines in order, and what is missing. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from context_compressor.summarizers.rules.choice import (
    MOST_TOKENS,
    Candidate,
    Chooser,
    Heading,
    Worded,
    chosen,
    order_of,
)
from context_compressor.summarizers.rules.steps import Call, Source, read_steps

KEPT_TIMES = 4
"""How many times the room the candidates of older parts fill together."""
_MOST_STRETCHES = 256
_ROUNDS = 5
_FULL = 0.97
"""A room filled to this share is full."""
_MOST_STRETCH = 4.0
_NAMED = 2
GAP = "…"
"""How a line begins that tells what is not told."""
_SPEAKERS = frozenset({"user", "agent", "instruction"})
_QUESTION = ("?", "？")


@dataclass(frozen=True, slots=True)
class Labels:
    """The words of ours, in the conversation's language."""

    user: str = "User"
    instruction: str = "Instruction"
    agent: str = "Agent"
    failed: str = "FAILED"
    message: str = "message"
    messages: str = "messages"
    others: str = "more"
    earlier: str = "earlier lines of these notes"


LABELS = {
    "en": Labels(),
    "zh": Labels("用户", "指示", "助手", "失败", "条消息", "条消息", "条其他", "条更早的笔记"),
}


class Stretch(NamedTuple):
    """Neighbouring messages, and how many of them there are of each kind; a result goes with its call."""

    first: int
    last: int
    kinds: tuple[tuple[str, int], ...]


def stretches_of(sources: Iterable[Source]) -> tuple[Stretch, ...]:
    """Return what kinds of messages a part holds: a stretch for each message."""
    places: dict[int, Counter[str]] = {}
    for step in read_steps(sources):
        kinds = places.setdefault(step.place, Counter())
        if isinstance(step, Call):
            kinds[step.name or "call"] += 1
            del kinds["agent"]  # what was said beside calls is no message of its own
        elif not kinds:
            kinds[step.speaker] += 1
    return tuple(Stretch(place, place, tuple(kinds.items())) for place, kinds in places.items())


def fold_stretches(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """Return stretches, the oldest of which are joined until there are at most 256."""
    kept = list(stretches)
    while len(kept) > _MOST_STRETCHES:
        half = len(kept) // 4 * 2
        pairs = zip(kept[:half:2], kept[1:half:2], strict=True)
        joined = [Stretch(a.first, b.last, tuple((_kinds(a) + _kinds(b)).items())) for a, b in pairs]
        kept = joined + kept[half:]
    return tuple(kept)


def _kinds(stretch: Stretch) -> Counter[str]:
    return Counter(dict(stretch.kinds))


def kept(candidates: Iterable[Worded], room_tokens: int) -> tuple[Worded, ...]:
    """Return the candidates of all parts that the ledger keeps: four times the room, or those of one part."""
    return tuple(chosen(candidates, max(KEPT_TIMES * room_tokens, MOST_TOKENS)))


def notes_by_rules(
    candidates: Sequence[Worded],
    *,
    room_tokens: int,
    tokens_of: Callable[[list[tuple[Heading, str]]], int],
    told: Sequence[Stretch] = (),
    beside: Sequence[str] = (),
    language: str = "en",
) -> list[tuple[Heading, str]]:
    """Return the lines of the notes, each with its heading, in at most so many tokens.

    Args:
        candidates: those of all parts.
        room_tokens: what the lines may cost.
        tokens_of: counts it.
        told: the stretches of all parts, by which gaps are told.
        beside: lines that stand in the notes already.
        language: "en" or "zh".
    """
    if room_tokens <= 0:
        return []
    chooser, stretch = Chooser(candidates, room_tokens, told=beside), 1.0
    calls: Counter[str] = Counter()
    for some in told:
        calls.update(dict(some.kinds))
    best: list[tuple[Heading, str]] = []
    least, most = 0.0, _MOST_STRETCH
    for _ in range(_ROUNDS):
        some_of_them = [known.one for known in chooser.chosen(stretch)]
        lines = list(_lines(some_of_them, told, calls, LABELS[language]))
        used = tokens_of(lines)
        if used <= room_tokens:
            best, least = lines, stretch
            if used >= _FULL * room_tokens or not lines:
                break
        else:
            most = stretch
        stretch *= (1 + _FULL) / 2 * room_tokens / max(1, used)
        stretch = stretch if least < stretch < most else (least + most) / 2
    while not best and lines:  # a room for a line or two
        lines.pop(0)
        best = lines if tokens_of(lines) <= room_tokens else []
    return best


def _lines(
    candidates: Sequence[Candidate], told: Sequence[Stretch], calls: Counter[str], labels: Labels
) -> Iterator[tuple[Heading, str]]:
    lines = [list(line) for _, line in groupby(candidates, key=lambda one: order_of(one)[:2])]
    log = [line for line in lines if line[0].heading == "done"]
    gaps = _gaps(log, told)
    is_chat = not calls.keys() - _SPEAKERS
    gap: Counter[str] = Counter()
    for line, missing in zip(log, gaps, strict=False):
        gap += missing
        if is_chat and line[0].said_by_user and not all(one.text.endswith(_QUESTION) for one in line):
            yield "facts", _line_text(line, labels)
            continue
        if gap:
            yield "done", _gap_text(gap, calls, labels)
            gap.clear()
        yield "done", _line_text(line, labels)
    if gap := gap + gaps[-1]:
        yield "done", _gap_text(gap, calls, labels)
    for line in lines:
        if line[0].heading != "done":
            yield line[0].heading, _line_text(line, labels)


def _gaps(lines: Sequence[Sequence[Candidate]], told: Sequence[Stretch]) -> list[Counter[str]]:
    """Return what is not told before each line, and behind the last."""
    gaps: list[Counter[str]] = [Counter() for _ in range(len(lines) + 1)]
    places = [line[0].place for line in lines]
    for stretch in told:
        begin, end = bisect_left(places, stretch.first), bisect_right(places, stretch.last)
        kinds = [line[0].kind for line in lines[begin:end]]
        for kind, count in stretch.kinds:
            gaps[begin][kind] += max(0, count - kinds.count(kind))
    for number, line in enumerate(lines):
        left, kind = line[0].times - 1, line[0].kind
        if kind in _SPEAKERS:
            continue  # it said more than it said again
        for gap in gaps[number::-1]:  # the calls that this line stands for are told
            taken = min(left, gap[kind])
            gap[kind] -= taken
            left -= taken
    return [+gap for gap in gaps]


def _gap_text(gap: Counter[str], calls: Counter[str], labels: Labels) -> str:
    """Return a short line on what is not told: how many, and which of the tools that were called least."""
    tools = sorted((kind for kind in gap if kind not in _SPEAKERS), key=lambda kind: (calls[kind], kind))
    named = [f"{gap[kind]} × {kind}" for kind in tools[:_NAMED]]
    if others := gap.total() - sum(gap[kind] for kind in tools[:_NAMED]):
        named.append(
            f"{others} {labels.others if named else labels.message if others == 1 else labels.messages}"
        )
    return f"{GAP} {', '.join(named)}"


def _joined(line: Sequence[Candidate], joint: str) -> str:
    """Return the pieces of a line, with an ellipsis where others are left out."""
    text, following = "", 0
    for one in line:
        if one.piece != following:
            text += f"{joint if text else ''}…"
        if one.text:
            text += f"{' ' if text.endswith('…') else joint if text else ''}{one.text}"
        following = one.piece + 1
    return f"{text} …" if following < line[0].pieces and line[0].said_by_user else text


def _line_text(line: Sequence[Candidate], labels: Labels) -> str:
    first = line[0]
    if first.said_by_user:
        label = labels.user if first.kind == "user" else labels.instruction
        return f'{f"{label} {first.subject}".rstrip()}: "{_joined(line, " ")}"'
    if first.kind == "agent":
        return f"{labels.agent}: {_joined(line, ' ')}"
    text = _joined(line, " | ")
    if first.heading == "state":
        return text
    count = f"{first.times} × " if first.times > 1 else ""
    subject = f"{first.since} … {first.subject}" if first.since not in ("", first.subject) else first.subject
    failed = f" {labels.failed}" if first.failed else ""
    head = f"{count}{first.kind} {subject}".rstrip()
    return f"{head}{failed} → {text}" if any(one.text for one in line) else head
