"""Draft an extractive summary: candidate lines with a value each, chosen to fill a room."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from context_compressor.summarizers.digest import CarriedLine, Digest, Statement, cut
from context_compressor.summarizers.identifiers import Source, count_identifiers, describe, rank_identifiers
from context_compressor.summarizers.protocol import SummaryRequest
from context_compressor.summarizers.sections import is_chinese, render_sections, strip_bullet

SHARES = {"goal": 0.12, "instructions": 0.16, "done": 0.18, "decisions": 0.06, "progress": 0.05, "next": 0.04}
"""What part of the room each section may fill at first. The rest, and what they leave, is for facts:
identifiers are what an agent cannot reconstruct. Measured on recorded sessions, each tenth moved from facts
to calls costs 2 to 3 % of the identifiers that are needed later; without calls a reader is lost."""
LEAST_CHARS = {"goal": 160, "instructions": 120}
"""What these may fill in any room, up to thrice their share: a goal of three words says nothing."""
CARRIED_FACTS_SHARE = 0.35
"""What part of the room for facts sentences of an earlier summary may fill."""

_HEADINGS_CHARS = 120
_INDEX_LINE_CHARS = 190
_STATEMENT_CHARS = 280
"""No single quote is longer: a summary quotes sentences, and does not repeat messages (see `validation`)."""
_TAIL_CHARS = 150
_CARRIED_VALUES = {
    "goal": 2.0,
    "instructions": 0.5,
    "decisions": 0.35,
    "facts": 0.4,
    "done": 0.15,
    "next": 0.05,
}

_IMPERATIVE = re.compile(
    r"\b(?:must|never|always|don't|do not|only|instead|should|make sure|please|need|want|prefer|rather|stop"
    r"|avoid|remember|important|no longer|change|cancel)\b"
    r"|请|必须|不要|别|务必|只|改|需要|应该|希望|记住|不能|禁止",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:decid\w+|instead of|because|root cause|the (?:issue|problem|bug|fix|solution|cause) (?:is|was)"
    r"|turns out|(?:I'll|I will|we should|let's) use|chose|conclu\w+|found that|therefore)\b"
    r"|决定|因为|原因是|改用|选择了|结论",
    re.IGNORECASE,
)
_PENDING = re.compile(
    r"\b(?:next step|next,|remaining|still need|todo|to do|not yet|will now)\b"
    r"|接下来|下一步|剩下|还需要|尚未",
    re.IGNORECASE,
)
_CHANGING = re.compile(
    r"writ|edit|creat|updat|delet|remov|cancel|book|send|commit|modif|insert|replac|exchang|return",
    re.IGNORECASE,
)
_ASSENT = re.compile(
    r"\W*(?:(?:yes|no|ok(?:ay)?|sure|thanks?|thank you|go ahead|continue|please|好的?|是的?|谢谢|继续)\W*)*",
    re.IGNORECASE,
)
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_INDEX_LINE = re.compile(r"([^:]{1,70}): (.+)")
_KEYWORD = re.compile(r"[A-Za-z]{4,}|[\u3400-\u9fff]{2}")


@dataclass(slots=True)
class _Line:
    section: str
    text: str
    value: float
    position: float
    identifiers: frozenset[str] = frozenset()


class Draft:
    """The candidates for one summary, from which `write` chooses."""

    def __init__(self, digest: Digest, request: SummaryRequest) -> None:
        self._facts = [" ".join(fact.splitlines()) for fact in request.facts]
        self._chinese = is_chinese(
            [s.text for s in digest.requests + digest.replies] or [line.text for line in digest.carried]
        )
        self._keywords = {word.casefold() for word in _KEYWORD.findall(request.instructions or "")}
        carried = [_carried_source(line) for line in digest.carried]
        self._sources = carried + digest.sources
        self._ranked = rank_identifiers(self._sources)
        self._values = {identifier.text: identifier.value for identifier in self._ranked}
        self._items: dict[str, str] = {}
        lines = sorted(self._candidates(digest), key=lambda line: -line.value)
        self._lines = _without_repeats(lines)
        self._by_section = {
            section: [line for line in self._lines if line.section == section]
            for section in (*SHARES, "facts")
        }

    def _candidates(self, digest: Digest) -> Iterator[_Line]:
        goals = 0
        for carried in digest.carried:
            if _index_items(carried) or (carried.section == "progress" and digest.replies):
                continue
            section = carried.section
            if section == "goal":
                # The oldest goal is the goal; what began a later part is one more request.
                goals += 1
                section = "goal" if goals == 1 else "instructions"
            value = _CARRIED_VALUES.get(section, 0.0) + 0.3 * carried.position - 0.1 * carried.rank
            yield self._line(section, carried.text, value, carried.position - 2 + carried.rank)
        requests = [said for said in digest.requests if not _ASSENT.fullmatch(said.text)]
        first = _first_request(requests) if not goals else None
        for said in requests:
            if said is first:
                yield self._line("goal", _quote(said.text), 1.0, -0.5)
                continue
            text = cut(said.text, _STATEMENT_CHARS)
            value = 0.4 + 0.4 * said.position + (0.2 if _IMPERATIVE.search(text) else 0.0)
            value -= 0.3 if " " not in text and not self._chinese else 0.0
            yield self._line("instructions", text, value, said.position)
        yield from self._call_lines(digest)
        yield from self._reply_lines(digest)

    def _call_lines(self, digest: Digest) -> Iterator[_Line]:
        newest = {call.name: call for call in digest.calls}
        for call in digest.calls:
            if not call.subject and call.outcome in {"", "ok"}:
                continue
            text = f"{call.title} → {call.outcome}" if call.outcome else call.title
            value = 0.1 + 0.4 * call.position**2
            value += (0.15 if call.failed else 0.0) + (0.2 if _CHANGING.search(call.name) else 0.0)
            # One of each kind, so that a busy tool does not crowd out the rest.
            value += 0.25 if newest[call.name] is call else 0.0
            yield self._line("done", text, value, call.position)

    def _reply_lines(self, digest: Digest) -> Iterator[_Line]:
        if digest.replies:
            last = digest.replies[-1]
            yield self._line("progress", cut(last.text, 240), 1.0, last.position)
        for said in digest.replies:
            parts = map(strip_bullet, _SENTENCE_ENDS.split(said.text[:1500]))
            sentences = [part for part in parts if len(part) > 15 and not part.startswith("#")]
            for sentence in sentences:
                if _DECISION.search(sentence):
                    yield self._line(
                        "decisions", cut(sentence, 200), 0.3 + 0.4 * said.position, said.position
                    )
                elif _PENDING.search(sentence):
                    yield self._line("next", cut(sentence, 200), said.position**2, said.position)
            if not digest.calls and sentences:
                # A conversation without tools: what was answered is what was done.
                telling = next((s for s in sentences if len(s) > 40 and s[-1] != "!"), sentences[0])
                yield self._line("done", cut(telling, 160), 0.1 + 0.3 * said.position, said.position)

    def _line(self, section: str, text: str, value: float, position: float) -> _Line:
        identifiers = count_identifiers(text)
        value += 0.3 * sum(sorted((self._values.get(name, 0.0) for name in identifiers), reverse=True)[:4])
        if self._keywords:
            folded = text.casefold()
            value += 0.5 if any(word in folded for word in self._keywords) else 0.0
        return _Line(section, text, value, position, frozenset(identifiers))

    def write(self, room_chars: float) -> tuple[str, bool]:
        """Return the best summary of about `room_chars` characters, and whether everything went into it."""
        room = room_chars - min(_HEADINGS_CHARS, room_chars / 4) - sum(len(fact) + 3 for fact in self._facts)
        chosen: list[_Line] = []
        left: list[_Line] = []
        spent = 0
        for section, share in SHARES.items():
            least = min(LEAST_CHARS.get(section, 0), 3 * share * room)
            spent += _take(self._by_section[section], max(share * room, least), chosen, left)
        spent += _take(self._by_section["facts"], CARRIED_FACTS_SHARE * (room - spent), chosen, left)
        index, used, complete = self._index(chosen, room - spent)
        left.sort(key=lambda line: -line.value)
        rest: list[_Line] = []
        _take(left, room - spent - used, chosen, rest)
        sections: dict[str, list[str]] = {"facts": list(self._facts)}
        for line in sorted(chosen, key=lambda line: line.position):
            sections.setdefault(line.section, []).append(line.text)
        sections["facts"] += index
        return render_sections(sections, chinese=self._chinese), complete and not rest

    def _index(self, chosen: list[_Line], room: float) -> tuple[list[str], int, bool]:
        """Return lines that name identifiers, their length, and whether all are named.

        Identifiers that `chosen` names are left out. The lines with the most valuable come first, so that a
        later summary which carries them forward knows their rank.
        """
        covered = frozenset().union(*(line.identifiers for line in chosen))
        groups: dict[str, list[tuple[int, str]]] = {}
        spent = 0
        complete = True
        for identifier in self._ranked:
            name = identifier.text
            if name in covered:
                continue
            source = self._sources[identifier.source]
            item = self._items.get(name)
            if item is None:
                item = self._items[name] = describe(name, source)
            cost = len(item) + 3 + (0 if source.label in groups else len(source.label) + 4)
            if spent + cost > room:
                complete = False
                if room - spent < 20:
                    break
                continue
            spent += cost
            groups.setdefault(source.label, []).append(
                (identifier.source << 32 | source.text.find(name), item)
            )
        return (
            [line for label, items in groups.items() for line in _wrap(label, sorted(items))],
            spent,
            complete,
        )


def _index_items(line: CarriedLine) -> tuple[str, str] | None:
    """Return label and items of a line that only lists identifiers; these are ranked anew, one by one."""
    match = _INDEX_LINE.fullmatch(line.text) if line.section == "facts" else None
    if match and all(len(item.split()) <= 5 and count_identifiers(item) for item in match[2].split(", ")):
        return match[1], match[2]
    return None


def _carried_source(line: CarriedLine) -> Source:
    """Return a line of an earlier summary as a source of identifiers; the first of a section weigh most."""
    position = line.position * (1 - 0.5 * line.rank)
    if line.section == "done":
        name, _, rest = line.text.partition(": ")
        return Source("call", name[:36], rest, position)
    label, items = _index_items(line) or ("", line.text)
    return Source("carried", label, items, position)


def _wrap(label: str, items: list[tuple[int, str]]) -> Iterator[str]:
    """Yield `label: item, item` lines, short enough that the label stands near each item."""
    line = ""
    for _, item in items:
        if line and len(line) + len(item) > _INDEX_LINE_CHARS:
            yield line
            line, label = "", label.split(" ", 1)[0]
        line = f"{line}, {item}" if line else f"{label}: {item}" if label else item
    yield line


def _take(lines: list[_Line], room: float, chosen: list[_Line], left: list[_Line]) -> int:
    """Move the best of `lines` that fit into `room` to `chosen`, the others to `left`; return what they fill.

    The very best is cut rather than left when it is too long.
    """
    spent = 0
    for index, line in enumerate(lines):
        cost = len(line.text) + 3
        if spent + cost <= room:
            chosen.append(line)
            spent += cost
        elif index == 0 and room > 40:
            text = cut(line.text, int(room) - 3)
            chosen.append(
                _Line(line.section, text, line.value, line.position, frozenset(count_identifiers(text)))
            )
            spent += len(text) + 3
        else:
            left.append(line)
    return spent


def _first_request(requests: list[Statement]) -> Statement | None:
    """Return the first request that says something, else the longest of all."""
    for said in requests:
        if len(said.text) >= 40:
            return said
    return max(requests, key=lambda said: len(said.text), default=None)


def _quote(text: str) -> str:
    """Return a text's head and tail: a task is stated at the head, and what to mind often at the tail."""
    line = cut(text, len(text) + 3)
    if len(line) <= _STATEMENT_CHARS:
        return line
    head, tail = line[:-_TAIL_CHARS], line[-_TAIL_CHARS:]
    return f"{cut(head, _STATEMENT_CHARS).removesuffix(' …')} … {tail[tail.find(' ') + 1 :]}"


def _without_repeats(lines: list[_Line]) -> list[_Line]:
    """Drop lines that say what an earlier, more valuable one says; of calls, the outcome does not matter."""
    seen: set[tuple[str, str]] = set()
    result = []
    for line in lines:
        key = (line.section, line.text.split(" → ", 1)[0].casefold())
        if key not in seen:
            seen.add(key)
            result.append(line)
    return result
