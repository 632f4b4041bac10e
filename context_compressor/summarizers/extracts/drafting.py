"""Draft an extractive summary: choose lines and identifiers to fill a room."""

from __future__ import annotations

import re

from context_compressor.summarizers.extracts.candidates import (
    carried_source,
    collect_lines,
    collect_spare_lines,
)
from context_compressor.summarizers.extracts.digest import Digest
from context_compressor.summarizers.extracts.index import Index
from context_compressor.summarizers.extracts.lines import Line, line_maker
from context_compressor.summarizers.identifiers.ranking import rank_identifiers
from context_compressor.summarizers.protocol import SummaryRequest
from context_compressor.summarizers.sections import is_chinese, render_sections

SHARES = {"goal": 0.12, "instructions": 0.4, "done": 0.18, "decisions": 0.06, "progress": 0.05, "next": 0.04}
"""What part of the room each section may fill at first. The rest, and what they leave, is for facts:
identifiers are what an agent cannot reconstruct. Measured on recorded sessions, each tenth moved from facts
to calls costs 2 to 3 % of the identifiers that are needed later; without calls a reader is lost. Beside an
index, where most of the prose is calls, what users asked for in its place costs none."""
LEAST_CHARS = {"goal": 160, "instructions": 120, "decisions": 160, "next": 120}
"""What these may fill in any room, up to thrice their share and half of it: a goal of three words is none,
and a finding that does not fit is lost."""
CARRIED_FACTS_SHARE = 0.35
"""What part of the room for facts the sentences of earlier summaries may fill at first."""

_TOLD_IN = {"facts": "done", "progress": "state", "next": "state"}
"""The section of a summary that tells these."""
_HEADINGS_CHARS = 120
_MIN_LINE_CHARS = 80
"""Below this a line is not cut to what room there is: half a call and half an outcome tell nothing."""
_KEYWORD = re.compile(r"[A-Za-z]{4,}|[\u3400-\u9fff]{2}")
_COMMON_WORDS = frozenset(
    {
        *("about", "again", "also", "always", "any", "every", "everything", "from", "have", "include"),
        *("keep", "leave", "list", "make", "mention", "most", "must", "note", "only", "please", "remember"),
        *("short", "shorter", "should", "summary", "sure", "that", "their", "them", "they", "this", "what"),
        *("when", "which", "with", "write", "your"),
    }
)
"""What people say in any wish; the others say what the wish is about."""


class SummaryDraft:
    """The candidates for one summary, from which `write` chooses."""

    def __init__(self, digest: Digest, request: SummaryRequest) -> None:
        self._covered = frozenset[str]()
        said = [statement.text for statement in digest.requests + digest.replies]
        said = said or [line.text for line in digest.carried] or [call.subject for call in digest.calls]
        self._chinese = is_chinese(said)
        sources = [carried_source(line) for line in digest.carried] + digest.sources
        ranked, _ = rank_identifiers(sources)
        self._index = Index(sources, ranked)
        wish = f"{request.instructions or ''} {request.note or ''}".casefold()
        self._digest = digest
        self._make = line_maker(ranked, frozenset(_KEYWORD.findall(wish)) - _COMMON_WORDS)
        self._spare: list[Line] | None = None
        self._beside = beside = ""
        told: set[str] = set()
        lines = collect_lines(digest, self._make)
        lines = [line for line in lines if line.text not in beside and line.subject not in told] or lines[:1]
        self._by_section = {
            section: [line for line in lines if line.section == section] for section in (*SHARES, "facts")
        }

    def write(self, room_chars: float) -> tuple[str, bool]:
        """Return the best summary of about `room_chars` characters, and whether everything went into it."""
        room = room_chars - min(_HEADINGS_CHARS, room_chars / 4)
        chosen: list[Line] = []
        left: list[Line] = []
        spent = 0
        for section, share in SHARES.items():
            least = min(LEAST_CHARS.get(section, 0), 3 * share * room, room / 2)
            spent += _take(self._by_section[section], max(share * room, least), chosen, left)
        spent += _take(self._by_section["facts"], CARRIED_FACTS_SHARE * (room - spent), chosen, left)
        covered = self._covered.union(*(line.identifiers() for line in chosen))
        # What the facts leave out is known elsewhere.
        index, used, complete = ([], 0, False) if self._covered else self._index.lines(covered, room - spent)
        left.sort(key=lambda line: -line.value)
        rest: list[Line] = []
        used += _take(left, room - spent - used, chosen, rest)
        if complete and not rest:
            if self._spare is None:
                self._spare = collect_spare_lines(self._digest, self._make)
            said = "\n".join([self._beside, *(line.text for line in chosen)])
            _take([s for s in self._spare if s.text not in said], room - spent - used, chosen, rest)
        if not chosen and rest and not index:
            chosen.append(rest[0].shortened(int(room)))  # a few words are more than none
        # What was cut may have been chosen again, longer or whole.
        fullest = {id(line.whole or line): line for line in sorted(chosen, key=lambda line: len(line.text))}
        sections: dict[str, list[str]] = {}
        for line in sorted(chosen, key=lambda line: line.position):
            if fullest[id(line.whole or line)] is line:
                sections.setdefault(_TOLD_IN.get(line.section, line.section), []).append(line.text)
        sections.setdefault("done", []).extend(index)
        return render_sections(sections, chinese=self._chinese), complete and not rest


def _take(lines: list[Line], room: float, chosen: list[Line], left: list[Line]) -> int:
    """Move the best of `lines` that fit into `room` to `chosen`, the others to `left`; return what they fill.

    The very best is cut when it is too long, and its whole stays in `left`, to replace it if there is room.
    """
    spent = 0
    for index, line in enumerate(lines):
        cost = len(line.text) + 3
        if spent + cost <= room:
            chosen.append(line)
            spent += cost
            continue
        left.append(line)
        if index == 0 and room > _MIN_LINE_CHARS:
            chosen.append(line.shortened(int(room) - 3))
            spent += len(chosen[-1].text) + 3
    return spent
