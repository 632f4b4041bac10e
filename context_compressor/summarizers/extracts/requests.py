"""What users asked for, as lines of a summary."""

from __future__ import annotations

from collections.abc import Iterator

from context_compressor.summarizers.cutting import cut, quote
from context_compressor.summarizers.extracts.answers import question_of
from context_compressor.summarizers.extracts.digest import Digest, Statement
from context_compressor.summarizers.extracts.lines import (
    SENTENCE_ENDS,
    Line,
    Make,
    asks,
    is_assent,
    sentences,
)
from context_compressor.summarizers.extracts.wording import (
    DECLINE,
    IMPERATIVE,
    INQUIRY,
    NUMBER,
    STEP_MARK,
)

STATEMENT_CHARS = 280
"""No single quote is longer: a summary quotes sentences, and does not repeat messages (see `validation`)."""
GOAL_CHARS = 420
"""The same for the goal, which is quoted in two pieces, head and tail."""


def request_lines(digest: Digest, make: Make) -> Iterator[Line]:
    """Yield a line for each request; the first that says something is the goal.

    An answer of few words stands beside its question; a yes is a decision, and without a question nothing.
    """
    requests = [(said, is_assent(said.text)) for said in _standing(digest.requests)]
    has_goal = any(line.section == "goal" for line in digest.carried)
    # What is asked in the midst of the work is one more request, and the goal was stated before.
    done = [said.position for said in digest.replies] + [call.position for call in digest.calls]
    begun = min(done, default=1.0)
    opening = [said for said, agrees in requests if not agrees and said.position <= begun]
    first = None if has_goal else _first_request(opening)
    for said, agrees in requests:
        question = question_of(said)
        if agrees and not question:
            continue
        text = _told_request(said.text)
        told = f"{text} (asked: “{question}”)" if question else text
        if said is first:
            line = make("goal", said.quoted(quote(said.text, GOAL_CHARS)), 1.1, -0.5)
        elif agrees and not DECLINE.match(said.text):
            line = make("decisions", f"user: {said.quoted(told)}", 0.8 + 0.2 * said.position, said.position)
        else:
            value = 0.8 + 0.2 * said.position + weight_of_wish(text)
            is_word = told.isascii() and " " not in told
            value -= 0.3 if is_word else 0.0
            line = make("instructions", said.quoted(told), value, said.position)
        line.speaker = said.speaker
        yield line


def _standing(requests: list[Statement]) -> list[Statement]:
    """Leave out a plan that was handed again with other steps done."""
    plans = [STEP_MARK.sub("", said.text) for said in requests]
    newest = dict(zip(plans, requests, strict=True))
    return [said for plan, said in zip(plans, requests, strict=True) if newest[plan].text == said.text]


def _told_request(text: str) -> str:
    """Return a request on one line; of a long one its head, and the last wish that stands behind that."""
    line = cut(text, STATEMENT_CHARS)
    if not line.endswith("…"):
        return line
    wishes = [said for said in sentences(text) if said not in line and IMPERATIVE.search(said)]
    wish = cut(wishes[-1], STATEMENT_CHARS // 2) if wishes else ""
    return f"{cut(text, STATEMENT_CHARS - len(wish) - 1)} {wish}" if wish else line


def weight_of_wish(text: str) -> float:
    """Return what to add to a request's value: what shall hold outweighs a question answered later.

    What is told beside a question holds when that was answered, the more so where it tells a number.
    """
    parts = list(filter(None, SENTENCE_ENDS.split(text)))
    asked = list(map(asks, parts))
    is_wish = any(IMPERATIVE.search(part) and not INQUIRY.match(part) for part in parts)
    value = 0.3 if is_wish else 0.0
    if all(asked):
        return value - 0.3
    return value - (0.15 if asked[-1] else 0.0) + (0.1 if NUMBER.search(text) else 0.0)


def _first_request(requests: list[Statement]) -> Statement | None:
    """Return the first request that says something, else the longest of all."""
    for said in requests:
        if len(said.text) >= 40:
            return said
    return max(requests, key=lambda said: len(said.text), default=None)
