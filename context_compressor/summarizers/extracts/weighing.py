"""Weigh what is told of calls: those of the messages, and those that earlier summaries told of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from context_compressor.summarizers.extracts.calls import SHELL, Attempt, Call, kind_of_call
from context_compressor.summarizers.extracts.digest import CarriedLine, Digest
from context_compressor.summarizers.extracts.failures import find_logged_error
from context_compressor.summarizers.extracts.outcomes import is_tally
from context_compressor.summarizers.sections import strip_bullet

ARROW = " → "
"""Stands between a call and what it came to."""
_NEWEST = 0.25
"""So much more says the newest call of its kind, so that a busy tool does not crowd out the rest."""
_VERDICT = 0.2
"""So much more says the newest run of tests, or of a build: an older one may have told otherwise."""
_OTHERWISE = 1.0
"""So much more says a call of which a summary that stays tells otherwise, as that it failed."""
_ALIKE = 0.2
"""So much less says a call that was made again, with other numbers or with success."""
_SEEN = 0.2
"""So much less says a call of which only some of a long output is told."""
_EXCERPT = re.compile(r"(?:\(\d+ lines\)|…)$")
"""Ends what is told of a long output by some of it: what was seen, and not what became of anything."""
_LOGGED_CHARS = 40
"""By so much of its beginning, where the time stands, one logged error is told from another."""
_DIGITS = re.compile(r"\d+")
_CHANGING = re.compile(
    r"writ|edit|creat|updat|delet|remov|cancel|book|send|commit|modif|insert|replac|exchang|return",
    re.IGNORECASE,
)


class Weighed(NamedTuple):
    """A line that tells of a call."""

    text: str
    value: float
    place: float
    """As the position of lines: below 0 what earlier summaries told."""


def tells_call(line: CarriedLine) -> bool:
    """Tell whether a line of an earlier summary tells of a call, and of what it came to."""
    return line.section in {"done", "facts"} and ARROW in line.text


def name_of(text: str) -> str:
    """Return the name of the tool that a line tells of."""
    return text.partition(": ")[0]


def subject_of(text: str) -> str:
    """Return the call that a line tells of, without what it came to."""
    return text.partition(ARROW)[0]


def told_subject(text: str) -> str:
    """Return the call that a line tells of, without what it came to.

    With an error that a log told of: the next look at the log shows others, and this one stays true.
    """
    subject, arrow, outcome = text.partition(ARROW)
    return subject + arrow + outcome[:_LOGGED_CHARS] if find_logged_error(outcome) else subject


def told_calls(told: Iterable[str]) -> dict[str, str]:
    """Return the lines that tell what calls came to, by the call; the last of each."""
    lines = (strip_bullet(line) for line in told if ARROW in line)
    return {subject_of(line): line for line in lines}


def is_excerpt(text: str) -> bool:
    """Tell whether a line tells what a call came to by some of a long output."""
    return ARROW in text and _EXCERPT.search(text) is not None


def weigh_calls(digest: Digest) -> Iterator[Weighed]:
    """Yield the calls of the messages that say something."""
    newest = {call.name: call for call in digest.calls}
    newest_of_kind = {call.kind: call for call in digest.calls}
    alike = [_alike(call.title) for call in digest.calls]
    newest_alike = dict(zip(alike, digest.calls, strict=True))
    failures = _standing_failures(digest.calls)
    last_failure = next(iter(failures), None)
    for call, title in zip(digest.calls, alike, strict=True):
        if not call.subject and call.outcome in {"", "ok"}:
            continue
        if call.plan and newest[call.name] is not call:
            continue
        is_told = call.outcome and (call.failed or not call.plan)
        text = f"{call.title}{ARROW}{call.outcome}" if is_told else call.title
        is_mended = call.failed and call not in failures
        is_newest = newest_of_kind[call.kind] is call and not is_mended
        value = _weigh(call.name, text) + 0.4 * call.position**2 + (0.15 if call in failures else 0.0)
        value += _NEWEST if is_newest or call is last_failure else 0.0
        value += _VERDICT if is_newest and is_tally(call.outcome) else 0.0
        value += _OTHERWISE if _outdates(text, digest.standing) else 0.0
        # Pages, parts and rows in turn: the newest stands for the others.
        value -= 0.0 if newest_alike[title] is call and not is_mended else _ALIKE
        yield Weighed(text, value, call.position)


def weigh_carried_calls(digest: Digest) -> Iterator[Weighed]:
    """Yield the calls that earlier summaries told of, in any section, but for plans that a newer follows.

    They are weighed as those of the messages are. By the names in it and its age alone, an early listing full
    of names would outlast what was done later.
    """
    planners = digest.planners
    told = [line for line in digest.carried if tells_call(line) and name_of(line.text) not in planners]
    told.sort(key=lambda line: line.place)
    newest_of_kind: dict[str, CarriedLine | None] = {_kind_of(line.text): line for line in told}
    newest_of_kind |= {call.kind: None for call in digest.calls}
    newest_alike: dict[str, CarriedLine | None] = {_alike(subject_of(line.text)): line for line in told}
    newest_alike |= {_alike(call.title): None for call in digest.calls}
    for line in told:
        value = _weigh(name_of(line.text), line.text) + 0.2 * line.position
        if newest_of_kind[_kind_of(line.text)] is line and not is_excerpt(line.text):
            value += _NEWEST + (_VERDICT if is_tally(_outcome_of(line.text)) else 0.0)
        value -= 0.0 if newest_alike[_alike(subject_of(line.text))] is line else _ALIKE
        yield Weighed(line.text, value, line.place)


def _weigh(name: str, text: str) -> float:
    value = 0.1 + (0.2 if _CHANGING.search(name) else 0.0)
    return value - (_SEEN if is_excerpt(text) and not is_tally(_outcome_of(text)) else 0.0)


def _outcome_of(text: str) -> str:
    """Return what a call came to, as a line tells of it; "" where it does not."""
    return text.partition(ARROW)[2]


def _kind_of(text: str) -> str:
    name, _, subject = text.partition(": ")
    return kind_of_call(name, subject if SHELL.search(name) else "")


def _outdates(text: str, standing: Mapping[str, str]) -> bool:
    """Tell whether a summary that stays tells otherwise of a call, and that not by some of a long output."""
    told = standing.get(subject_of(text), text)
    return told != text and not is_excerpt(told)


def _alike(title: str) -> str:
    return _DIGITS.sub("0", title)


def _standing_failures(calls: Sequence[Call]) -> dict[Call, None]:
    """Return the calls that failed, newest first, but for those tried again with success."""
    failures: dict[Call, None] = {}
    succeeded: set[Attempt] = set()
    first = next((i for i, call in enumerate(calls) if call.failed), len(calls))
    for call in reversed(calls[first:]):
        if not call.failed:
            succeeded |= call.attempts
        elif succeeded.isdisjoint(call.attempts):
            failures[call] = None
    return failures
