"""What of a part the notes could tell without a model: pieces of what was said, done, found. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import groupby

from context_compressor.messages.parts import leaves_of
from context_compressor.messages.speech import is_rule
from context_compressor.messages.text import clean
from context_compressor.summarizers.rules.choice import MOST_TOKENS, Candidate, Worded, chosen, worded
from context_compressor.summarizers.rules.outcomes import Line, Outcome, read_outcome
from context_compressor.summarizers.rules.pieces import PIECE_CHARS, flat, head_of, packed, pieces_of, split
from context_compressor.summarizers.rules.steps import Call, Said, Source, read_steps
from context_compressor.tokens.counter import TokenCounter

_SUBJECT_CHARS = 160
_BRIEF = 8
"""So many sentences are no speech."""
_OFTEN = 4
"""A line that so many results have says nothing of one of them."""
_PACK_CHARS = 200
"""Neighbouring lines of a result are told together up to so many characters."""
_LONG_CHARS = 200
"""From this length on an argument, or one of several lines, is a text that was written."""
_OLD_KEY = re.compile(r"old|before|original", re.IGNORECASE)
"""How the key begins under which an edit gives the text that it replaces."""
_NAMING_KEY = re.compile(r"(?:path|file|file_?name|url|uri|ids?)\Z", re.IGNORECASE)
_NAME_CHARS = 200
_NUMBER = re.compile(r"\d+")

# How much a word weighs by where it stands; the rest is told by the words themselves.
_SPOKEN, _CLOSING, _WISH, _ASKED = 1.0, 1.5, 1.5, 0.6
_ERROR, _DONE, _WRITTEN, _FOUND, _PLAN = 2.5, 1.5, 1.0, 0.5, 2.0


def candidates_of(
    sources: Sequence[Source], counter: TokenCounter, *, most_tokens: int = MOST_TOKENS
) -> tuple[Worded, ...]:
    """Return the best candidates of one part.

    Args:
        sources: what left, oldest first.
        counter: counts what each costs.
        most_tokens: what they cost at most together.
    """
    # Only what may be kept is counted: a part can be as long as a book.
    likely = chosen(worded(_all_of(sources)), 2 * most_tokens)
    costs = [counter.count_text(one.text) + 1 if one.text else 0 for one, *_ in likely]
    counted = [
        known._replace(one=replace(known.one, tokens=tokens))
        for known, tokens in zip(likely, costs, strict=True)
    ]
    return tuple(chosen(counted, most_tokens))


def _all_of(sources: Sequence[Source]) -> Iterator[Candidate]:
    steps = [(step, read_outcome(step) if isinstance(step, Call) else None) for step in read_steps(sources)]
    often = Counter(line for _, outcome in steps if outcome for line in set(outcome.lines))
    numbers: Counter[int] = Counter()
    for step, outcome in steps:
        if isinstance(step, Call) and outcome:
            made = list(_of_call(step, _without_often(outcome, often)))
        elif isinstance(step, Said):
            made = list(_of_said(step))
        for piece, one in enumerate(made):
            yield replace(
                one,
                # JSON inside of texts may hide what has no place in one, such as half a surrogate pair.
                text=clean(one.text),
                subject=clean(one.subject),
                about=clean(one.about),
                step=numbers[step.place],
                piece=piece,
                pieces=len(made),
                tokens=len(one.text) // 3,
            )
        numbers[step.place] += 1


def _without_often(outcome: Outcome, often: Counter[Line]) -> Outcome:
    """Return an outcome without the lines that many results have, where it has others."""
    lines = [line for line in outcome.lines if line.is_telling or often[line] < _OFTEN]
    return outcome._replace(lines=tuple(lines)) if lines else outcome


def _of_said(said: Said) -> Iterator[Candidate]:
    is_user = said.speaker != "agent"
    pieces = pieces_of(said.text)
    # Who speaks at length says less in each sentence.
    length = (_BRIEF / max(_BRIEF, len(pieces))) ** 0.5
    for number, text in enumerate(pieces):
        if is_user:
            rank = _WISH if is_rule(text) else _ASKED if text.endswith(("?", "？")) else _SPOKEN
            rank *= 1.3 if number == 0 else 1.0
        else:
            rank = _CLOSING if said.closing else _SPOKEN
            rank *= 0.5 if text.endswith((":", "：")) else 1.0
        yield Candidate(
            heading="done",
            text=text,
            place=said.place,
            step=0,
            piece=number,
            key=said.key,
            kind=said.speaker,
            rank=rank * (length if is_user or said.closing else 1.0),
            tokens=0,
            said_by_user=is_user,
            subject=said.name,
        )


def _of_call(call: Call, outcome: Outcome) -> Iterator[Candidate]:
    leaves = [(key, str(value)) for key, value in leaves_of(call.arguments) if value not in (None, "")]
    about = next((value for key, value in leaves if _names(key, value)), "")
    has_old = any(_OLD_KEY.match(key) for key, _ in leaves)
    old: set[str] = set()
    subjects: list[str] = [about] if about else []
    written: list[str] = []
    for key, value in leaves:
        if _OLD_KEY.match(key):
            old.update(map(flat, value.splitlines()))
        elif value == about:
            continue
        elif "\n" in value.strip() or len(value) > _LONG_CHARS or (has_old and key.startswith("new")):
            written += pieces_of(value, prose=False)
        else:
            subjects.append(flat(value) if len(leaves) == 1 else f"{key}: {flat(value)}")
    written = [line for line in written if line not in old]
    if not subjects and written:
        subjects.append(written.pop(0))
    given = sum(map(len, subjects)) + sum(map(len, written))
    action = min(1.0, 2 * given / (given + outcome.chars + 40))
    done = _FOUND + action * (_DONE - _FOUND)
    one = Candidate(
        heading="done",
        text="",
        place=call.place,
        step=0,
        piece=0,
        key=call.key,
        kind=call.name or "call",
        rank=1.0,
        tokens=0,
        subject=head_of(", ".join(subjects), _SUBJECT_CHARS),
        about=about,
        failed=outcome.failed,
    )
    plan = plan_in(call.arguments)
    if plan:
        yield replace(one, heading="state", subject="", text=plan, about="plan", rank=_PLAN)
        return
    if outcome.lines and not written:
        told = "\n".join([one.subject, *(line.text for line in outcome.lines)])
        one = replace(one, shape=sha256(_NUMBER.sub("0", told).encode("utf-8", "replace")).hexdigest()[:8])
    given_lines = set(map(_bare, [*written, *old]))
    new = [line for line in outcome.lines if _bare(line.text) not in given_lines]
    lines = [
        (text, is_telling)
        for is_telling, some in groupby(new, key=lambda line: line.is_telling)
        for text in packed((part for line in some for part in split(line.text)), _PACK_CHARS)
    ]
    if not outcome.failed:
        yield replace(one, rank=_SPOKEN)
    for number, (text, is_telling) in enumerate(lines):
        rank = done if number in (0, len(lines) - 1) else _FOUND
        yield replace(one, text=text, rank=_ERROR if is_telling or outcome.failed else rank)
    for text in packed(written, PIECE_CHARS):
        yield replace(one, text=f"+ {text}", rank=_WRITTEN)


def _bare(line: str) -> str:
    """Return a line without the number or mark that a listing puts before it."""
    return line.lstrip("0123456789:|+- ")


def _names(key: str, value: str) -> bool:
    return 3 <= len(value) <= _NAME_CHARS and not re.search(r"\s", value) and bool(_NAMING_KEY.search(key))


def plan_in(arguments: object) -> str:
    """Return the steps of a plan by their status: a list of objects that each have one; "" for no plan."""
    for steps in arguments.values() if isinstance(arguments, dict) else ():
        if isinstance(steps, list) and steps and all(isinstance(s, dict) and "status" in s for s in steps):
            plan: dict[str, list[str]] = {}
            for step in steps:
                texts = [text for key, text in step.items() if key != "status" and isinstance(text, str)]
                told = head_of(flat(max(texts, key=len, default="")), _SUBJECT_CHARS)
                plan.setdefault(str(step["status"]), []).append(told)
            return " · ".join(f"{status}: {'; '.join(steps)}" for status, steps in plan.items())
    return ""
