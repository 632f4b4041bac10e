"""The lines that an extractive summary may consist of, chosen from what was read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from context_compressor.summarizers.cutting import cut
from context_compressor.summarizers.extracts.digest import CarriedLine, Digest
from context_compressor.summarizers.extracts.index import split_items
from context_compressor.summarizers.extracts.lines import (
    KINDS,
    SENTENCE_CHARS,
    Line,
    Make,
    is_assent,
    sentences,
)
from context_compressor.summarizers.extracts.replies import reply_lines
from context_compressor.summarizers.extracts.requests import request_lines, weight_of_wish
from context_compressor.summarizers.extracts.weighing import (
    ARROW,
    name_of,
    tells_call,
    weigh_calls,
    weigh_carried_calls,
)
from context_compressor.summarizers.extracts.wording import IMPERATIVE
from context_compressor.summarizers.identifiers.finding import find_identifiers
from context_compressor.summarizers.identifiers.ranking import Source
from context_compressor.summarizers.identifiers.values import with_dates_as_words, without_dates_as_words

_CARRIED_VALUES = {
    "goal": 2.0,
    "instructions": 0.8,
    "decisions": 0.35,
    "facts": 0.4,
    "done": 0.15,
    "next": 0.05,
}
_SPARE_VALUES = {"user": 0.1, "assistant": 0.1, "call": 0.08, "result": 0.05}
_TALK_REQUESTS = 4
"""Requests per call above which a conversation is a talk."""
_INDEX_LINE = re.compile(r"(.{1,70}?): (.+)")
_QUOTED = re.compile(r"user: (.+)")
"""A line in which an index quotes what the user asked for."""
_SENTENCE = re.compile(r"user: .*(?:[，。！？；।؟]|[.!?]$|”\)$)")
"""Such a line, and no list of what the user named: items hold no such marks."""


def index_items(line: CarriedLine) -> tuple[str, str] | None:
    """Return label and items of a line that only lists identifiers; these are ranked anew, one by one."""
    if line.section != "facts" or ARROW in line.text or _SENTENCE.match(line.text):
        return None
    match = _INDEX_LINE.fullmatch(line.text)
    label, listed = match.groups() if match else ("", line.text)
    items = split_items(with_dates_as_words(listed))
    plain = [without_dates_as_words(item) for item in items]
    if match:
        is_list = all(len(item.split()) <= 5 for item in items) and all(map(find_identifiers, plain))
    else:  # a sentence may begin with a name, and go on behind a comma
        last = [item.rpartition(" ") for item in plain]
        is_list = len(items) > 1 and all(" " not in word and find_identifiers(name) for word, _, name in last)
    return (label, ", ".join(plain)) if is_list else None


def carried_source(line: CarriedLine) -> Source:
    """Return a line of an earlier summary as a source of identifiers; the first of a section weigh most.

    What told of a call or of the user's words still does.
    """
    position = (1 + line.position - line.rank) / 2
    if items := index_items(line):
        return Source("carried", items[0], items[1], position, is_carried=True)
    if line.section == "instructions":
        return Source("user", "user", line.text, position, is_carried=True)
    name, colon, rest = line.text.partition(": ")
    if colon and " " not in name:
        if line.section == "done" or (line.section == "facts" and ARROW in rest):
            return Source("call", name[:36], rest, position, is_carried=True)
        if line.section == "facts" and name == "user":
            return Source("user", name, rest, position, is_carried=True)
    return Source("carried", "", line.text, position, is_carried=True)


def collect_lines(digest: Digest, make: Make) -> list[Line]:
    """Return the candidate lines, most valuable first, none twice."""
    lines = [
        *_carried_lines(digest, make),
        *request_lines(digest, make),
        *reply_lines(digest, make, talks=is_talk(digest)),
    ]
    lines += [make("done", *weighed) for weighed in (*weigh_carried_calls(digest), *weigh_calls(digest))]
    return _unique(lines)


def collect_state_lines(digest: Digest, make: Make) -> list[Line]:
    """Return what users asked for and what calls came to, most valuable first, none twice.

    What they asked for as earlier summaries quote it, too: prose has no room for all of that.
    """
    calls = (make("done", *weighed) for weighed in weigh_calls(digest))
    asked = _carried_lines(digest, make, only="instructions")
    wishes = list(request_lines(digest, make))
    if is_talk(digest):  # what was agreed to names little there, and stands in no file
        wishes = [replace(line, text=line.text.removeprefix("user: ")) for line in wishes]
    else:
        wishes = [line for line in wishes if line.section != "decisions"]
    return _unique([*asked, *wishes, *calls])


def is_talk(digest: Digest) -> bool:
    """Tell whether users said far more than tools were called: what they said is then what is known."""
    told = sum(map(tells_call, digest.carried)) + len(digest.calls)
    asked = sum(line.section == "instructions" for line in digest.carried) + len(digest.requests)
    return _TALK_REQUESTS * told < asked


def collect_spare_lines(digest: Digest, make: Make) -> list[Line]:
    """Return sentences of everything that was read, to fill what room the telling lines leave."""
    lines = []
    for source in digest.sources:
        if source.kind == "user" and is_assent(source.text):
            continue
        section = "instructions" if source.kind == "user" else "facts"
        who, _, name = source.label.partition(" ")
        speaker = f"{who}: " if source.kind in ("call", "result") else f"{name}: " if name else ""
        for sentence in sentences(source.text):
            value = _SPARE_VALUES.get(source.kind, 0.0) * (0.5 + source.position)
            if source.kind == "user" and IMPERATIVE.search(sentence):
                value += 0.25
            lines.append(make(section, speaker + cut(sentence, SENTENCE_CHARS), value, source.position))
    return _unique(lines)


def _unique(lines: list[Line]) -> list[Line]:
    """Return lines, most valuable first, none twice.

    Of a call made again only what it came to last, and each error that a log told of, once.
    """
    unique: dict[tuple[str, str], Line] = {}
    for line in sorted(lines, key=lambda line: -line.value):
        if not line.text.strip():
            continue  # only what cannot be seen
        key = (KINDS.get(line.section, line.section), line.subject.casefold())
        known = unique.get(key)
        if known is None or (line.is_call and line.position > known.position):
            unique[key] = line
    return sorted(unique.values(), key=lambda line: -line.value)


def _carried_lines(digest: Digest, make: Make, only: str | None = None) -> Iterator[Line]:
    goals = 0
    planners = digest.planners
    for line in digest.carried:
        if tells_call(line) or (line.section == "progress" and digest.replies):
            continue
        if KINDS.get(line.section) == "call" and name_of(line.text) in planners:
            continue  # there is a newer plan
        section, text = line.section, line.text
        if section == "goal":
            # The oldest goal is the goal; what began a later part is one more request.
            goals += 1
            section = "goal" if goals == 1 else "instructions"
        elif section == "facts" and (quoted := _QUOTED.fullmatch(text)):
            section, text = "instructions", quoted[1]  # the index had quoted it
        if (only is not None and section != only) or index_items(line):
            continue
        value = _CARRIED_VALUES.get(section, 0.0) + 0.3 * line.position - 0.1 * line.rank
        value += weight_of_wish(text) if section == "instructions" else 0.0
        yield make(section, text, value, line.place)
