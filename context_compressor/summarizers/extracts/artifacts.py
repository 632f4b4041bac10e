"""The index of artifacts: what no summary may forget, told by rules and not by a model.

Beside the prose of a summary stands a short list of the files, ids, commands, addresses and numbers that
the summarised messages named, each with what brought it. Every method of summarising loses track of these
(Factory's evaluation of summarisers, 2025), and they are what an agent cannot reconstruct.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from context_compressor.messages.msg import Msg
from context_compressor.summarizers.cutting import fill_tokens
from context_compressor.summarizers.extracts.candidates import (
    carried_source,
    collect_state_lines,
    is_talk,
)
from context_compressor.summarizers.extracts.digest import digest_messages
from context_compressor.summarizers.extracts.index import Index, ToldNames
from context_compressor.summarizers.extracts.lines import Line, is_question, line_maker
from context_compressor.summarizers.extracts.weighing import told_calls
from context_compressor.summarizers.identifiers.ranking import name_uses, rank_identifiers
from context_compressor.summarizers.identifiers.uses import NO_NAMES, Names, Uses
from context_compressor.tokens.protocol import TokenCounter

STATE_SHARE = 0.15
"""Share of the room for what users asked for and what calls came to; the rest is for identifiers."""
_WISHES_SHARE = 0.2
"""The same where wishes of users alone fill it: what shall hold stands in no file, and is said but once."""
_TALK_SHARE = 0.85
"""The same of a talk, in which what is decided names little, too."""
_LEAST_STATE_CHARS, _MOST_STATE_SHARE = 280, 0.4
"""What these may fill in any room, up to that share: names say nothing without what was wanted and done."""
_FRAME_CHARS = 9


class Artifacts(NamedTuple):
    """An index, and what else was learnt on the way."""

    lines: tuple[str, ...] = ()
    names: Names = NO_NAMES
    """Who named what in the messages, earlier segments apart."""


def index_artifacts(
    messages: Sequence[Msg],
    max_tokens: int,
    counter: TokenCounter,
    *,
    known: Set[str] = frozenset(),
    before: Uses | None = None,
    standing: Sequence[tuple[str, Set[str]]] = (),
) -> Artifacts:
    """Return lines that name what these messages named, in at most `max_tokens` tokens.

    Args:
        messages: what leaves the view, oldest first; earlier segments that merge are marked as such.
        max_tokens: what the lines may cost together, by the counter.
        counter: measures them.
        known: identifiers that stay in the view elsewhere; naming them again would tell nobody anything.
        before: what the agent named in what left earlier.
        standing: lines of earlier segments that stay in the view, each with the identifiers in it: what they
            tell of a call may have changed, and what they name is named again where another tool brought it.
    """
    digest = digest_messages(messages, None)
    digest.standing = told_calls(line for line, _ in standing)
    sources = [carried_source(line) for line in digest.carried] + digest.sources
    ranked, names = rank_identifiers(sources, before)
    share = _TALK_SHARE if is_talk(digest) else _WISHES_SHARE
    told = ToldNames(standing)
    unknown = (found for found in ranked if found.text not in known)
    index = Index(sources, [found for found in unknown if not told.covers(found.text, sources[found.source])])
    states = collect_state_lines(digest, line_maker(ranked))

    def write(room: float) -> tuple[list[str], str, bool]:
        lines, complete = _fill(states, index, room, share)
        return lines, "".join(f"\n- {line}" for line in lines), complete

    lines, _ = fill_tokens(write, max_tokens, counter, rounds=4, enough=0.9)
    return Artifacts(tuple(lines or ()), names)


def names_in(messages: Sequence[Msg]) -> Names:
    """Return who named what in messages, as `index_artifacts` does; nothing where its rules fail on them."""
    try:
        return name_uses(digest_messages(messages, None).sources)
    except Exception:  # somebody wrote what breaks them; the event that makes an index tells of it
        return NO_NAMES


def _fill(states: Sequence[Line], index: Index, room: float, share: float) -> tuple[list[str], bool]:
    """Return lines of at most `room` characters, and whether everything is named."""
    chosen: list[Line] = []
    least = min(_LEAST_STATE_CHARS, _MOST_STATE_SHARE * room)
    left = max(share * room, least)
    beyond = left - max(STATE_SHARE * room, least)  # for wishes; what was asked as a question was answered
    for line in sorted(states, key=lambda line: line.section == "done"):  # what was wanted comes first
        cost = len(line.text) + _FRAME_CHARS
        if cost <= (left - beyond if line.is_call or is_question(line.text) else left):
            chosen.append(line)
            left -= cost
    chosen.sort(key=lambda line: (line.section == "done", line.position))
    said = [line.text if line.section == "done" else f"{line.speaker}: {line.text}" for line in chosen]
    covered = frozenset().union(*(line.identifiers() for line in chosen))
    named, _, complete = index.lines(covered, room - sum(len(text) + 3 for text in said))
    return said + named, complete
