"""What the laws say of a compactor at work: pure functions over what it answered."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from context_compressor.laws.driving import Trace
from context_compressor.laws.forms import (
    CLAIM,
    RULE,
    History,
    form_of,
    lines_said,
    names_called,
    said_by,
    spots_in,
    strings_in,
)
from context_compressor.laws.subject import Subject

_PLACE = re.compile(r"\b(?:messages|input|system)(?:\[\d+\]|\.\d+|\.\w+)*:?\s*")
_VALUE = re.compile(r"'[^']*[\d ][^']*'|\b\w+_0a[0-9a-f]+\b|\{.*|\d+")
_OPENS = re.compile(r"#|<\w|\[|.*:$")
"""A heading, a tag, a remark or a line that ends with a colon says whose the lines below it are."""


@dataclass(frozen=True)
class Breach:
    """A law that a view breaks."""

    law: str
    rule: str
    """Which part of the law: the provider's words without its values, or the law's name."""
    what: str
    step: int
    """Of which list, counted from 0."""


def judge(subject: Subject, trace: Trace) -> list[Breach]:
    """Return what breaks a law that is claimed."""
    return [breach for law in subject.claims for breach in _JUDGES[law](subject, trace)]


def _valid(subject: Subject, trace: Trace) -> Iterator[Breach]:
    for number, step in enumerate(trace.steps):
        if step.view is not None:
            for problem in form_of(subject.form).judge(step.given)(step.view):
                yield Breach("valid", rule_of(problem), problem, number)


def rule_of(problem: str) -> str:
    """Return the rule that a problem names: its words without places and values."""
    return " ".join(_VALUE.sub("…", _PLACE.sub("", problem)).split()).strip(" :")


def _budget(subject: Subject, trace: Trace) -> Iterator[Breach]:
    most = subject.budget * (1 + subject.slack)
    for number, step in enumerate(trace.steps):
        if step.view is not None and (tokens := subject.tokens(step.view)) > most:
            given = subject.tokens(step.given)
            what = f"the view has {tokens} tokens, the budget is {subject.budget}; the list has {given}"
            yield Breach("budget", "budget", what, number)


def _still(subject: Subject, trace: Trace) -> Iterator[Breach]:
    for number in range(1, len(trace.steps)):
        before, now = trace.steps[number - 1], trace.steps[number]
        if before.view is None or now.view is None or now.view[: len(before.view)] == before.view:
            continue
        grown = [*before.view, *now.given[len(before.given) :]]
        tokens = subject.tokens(grown)
        is_refused = form_of(subject.form).judge(now.given)(grown)
        if tokens <= subject.budget * subject.trigger and not is_refused:
            place = next(
                (at for at, (a, b) in enumerate(zip(before.view, now.view, strict=False)) if a != b),
                len(now.view),
            )
            what = f"message {place} of the view before changed; with what is new it has only {tokens} tokens"
            yield Breach("still", "still", what, number)


def _lossless(_: Subject, trace: Trace) -> Iterator[Breach]:
    for number, step in enumerate(trace.steps):
        if step.view is None:
            continue
        there = _letters(step.readable or "\n".join(strings_in(step.view)))
        for place, line in lines_said(step.given):
            if _letters(line) not in there:
                what = f"message {place} said {line[:80]!r}: it stands nowhere"
                yield Breach("lossless", "lossless", what, number)
                break


def _letters(text: str) -> str:
    """Return a text without spaces and escapes: JSON written narrower, or in XML, says the same."""
    return "".join(html.unescape(text).split())


def _smaller(subject: Subject, trace: Trace) -> Iterator[Breach]:
    for number, step in enumerate(trace.steps):
        if step.view is not None and step.view != step.given:
            tokens, given = subject.tokens(step.view), subject.tokens(step.given)
            if tokens > given:
                what = f"the view has {tokens} tokens, the list {given}"
                yield Breach("smaller", "smaller", what, number)


def _rules(_: Subject, trace: Trace) -> Iterator[Breach]:
    for number, step in enumerate(trace.steps):
        if step.view is not None:
            there = "\n".join(strings_in(step.view))
            for rule in said_by("user", step.given, RULE):
                if rule not in there:
                    yield Breach("rules", "rules", f"the user's {rule!r} is gone", number)


def _voice(_: Subject, trace: Trace) -> Iterator[Breach]:
    for number, step in enumerate(trace.steps):
        claims = set(said_by("tool", step.given, CLAIM))
        whose = {"tool", *(name.casefold() for name in names_called(step.given))}
        for who, holder, key in spots_in(step.view or []):
            if who != "tool" and who != "assistant":
                for claim in sorted(claims):
                    if _is_told_as_own(claim, holder[key], whose):
                        what = f"a tool's {claim!r} is told by role {who!r}, and not whose it is"
                        yield Breach("voice", "voice", what, number)


def _is_told_as_own(claim: str, text: str, whose: set[str]) -> bool:
    """Tell whether a text says a line of a tool's, where neither that line nor one that opens it says so."""
    opened = ""
    for line in text.splitlines():
        if _OPENS.match(line.strip()):
            opened = line
        if claim in line and not any(name in f"{opened}\n{line}".casefold() for name in whose):
            return True
    return False


def _terminates(subject: Subject, trace: Trace) -> Iterator[Breach]:
    for number, step in enumerate(trace.steps):
        if step.error is not None:
            yield Breach("terminates", step.error.partition(":")[0], step.error, number)
        elif not step.rests:
            what = (
                f"asked {subject.steps} times more with the same list, it still compacts or changes its view"
            )
            yield Breach("terminates", "rest", what, number)


def _idempotent(_: Subject, trace: Trace) -> Iterator[Breach]:
    last = len(trace.steps) - 1
    view = next((step.view for step in reversed(trace.steps) if step.view is not None), None)
    if trace.again_error is not None:
        what = f"given its own view, it fails: {trace.again_error}"
        yield Breach("idempotent", "idempotent", what, last)
    elif trace.again is not None and view is not None and trace.again != view:
        place = _first_difference(view, trace.again)
        yield Breach("idempotent", "idempotent", f"given its own view, it changes message {place}", last)


def _first_difference(before: History, now: History) -> int:
    pairs = enumerate(zip(before, now, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(before), len(now)))


_JUDGES: Final[dict[str, Callable[[Subject, Trace], Iterator[Breach]]]] = {
    "valid": _valid,
    "budget": _budget,
    "still": _still,
    "lossless": _lossless,
    "smaller": _smaller,
    "rules": _rules,
    "voice": _voice,
    "terminates": _terminates,
    "idempotent": _idempotent,
}
