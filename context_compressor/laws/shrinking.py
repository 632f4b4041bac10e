"""A counterexample is made smaller, as long as it breaks the same law and its lists are valid."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from context_compressor.laws.counterexample import Counterexample
from context_compressor.laws.driving import Case, drive, is_unanswered
from context_compressor.laws.forms import CLAIM, RULE, Form, History, awaits_model, form_of, spots_in
from context_compressor.laws.judging import judge
from context_compressor.laws.subject import LAWS, Subject

TRIES: Final = 300
"""Times that the compactor is asked about a smaller case."""
UNANSWERED_TRIES: Final = 30
"""As how many tries one counts that gets no answer: it takes all the time that there is."""
_SMALL = "ok"
_NAMES_CALL = ("call_id", "tool_use_id", "tool_call_id")


def smallest(
    subject: Subject, example: Counterexample, tries: int, on_try: Callable[[int, int], object]
) -> Counterexample:
    """Return a smaller example of the same law, and of the same rule; the example itself if none is found.

    `on_try` is told the number of each try, and how many there are at most.
    """
    subject = replace(subject, without=frozenset(LAWS) - {example.law})
    form, left, opened = form_of(subject.form), tries, _opened(example.history)
    seen: set[str] = set()
    shrunk = True
    while shrunk and left > 0:
        shrunk = False
        for case in _smaller(Case(example.history, tuple(example.cuts))):
            key = json.dumps([case.history, case.cuts])
            if key in seen or _opened(case.history) != opened or not _can_be_given(form, case):
                continue
            seen.add(key)
            trace = drive(subject, case)
            left -= UNANSWERED_TRIES if is_unanswered(trace) else 1
            on_try(min(tries - left, tries), tries)
            found = [breach for breach in judge(subject, trace) if breach.rule == example.rule]
            if found:
                example, shrunk = Counterexample.of(subject, case, trace, found[0]), True
                break
            if left <= 0:
                break
    return example


def _opened(history: History) -> bool:
    """Tell whether a user speaks first, as in most conversations: it stays so."""
    first = next((item for item in history if item.get("role") not in ("system", "developer")), {})
    return first.get("role") == "user"


def _can_be_given(form: Form, case: Case) -> bool:
    lists = [case.history[:cut] for cut in case.cuts]
    return bool(lists) and all(
        given and awaits_model(given[-1]) and not form.judge(given)(given) for given in lists
    )


def _smaller(case: Case) -> Iterator[Case]:
    """Yield cases that are smaller, the much smaller ones first."""
    history, cuts = case.history, case.cuts
    for keep in (cuts[-1:], cuts[-2:], *(cuts[:at] + cuts[at + 1 :] for at in range(len(cuts) - 1))):
        if len(keep) < len(cuts):
            yield Case(history, keep)
    size = len(history)
    sizes = [size >> power for power in range(1, size.bit_length()) if size >> power > 4]
    for many in (*sizes, 4, 3, 2, 1):
        for start in range(max(0, size - many), -1, -many):
            yield _without(case, start, start + many)
    for call_id in dict.fromkeys(_call_ids(history)):
        kept = [_without_call(message, call_id) for message in history]
        gone = [at for at, message in enumerate(kept) if message is None]
        left = [message for message in kept if message is not None]
        yield Case(left, tuple(cut - sum(at < cut for at in gone) for cut in cuts))
    for place in range(size):
        for message in _smaller_messages(history[place]):
            yield Case([*history[:place], message, *history[place + 1 :]], cuts)


def _without(case: Case, start: int, end: int) -> Case:
    history = case.history[:start] + case.history[end:]
    cuts = {cut if cut <= start else max(start, cut - (end - start)) for cut in case.cuts}
    return Case(history, tuple(sorted(cut for cut in cuts if cut)))


def _call_ids(value: Any) -> Iterator[str]:
    """Yield the ids of calls that results name."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _call_ids(item)
    if isinstance(value, dict):
        yield from (value[key] for key in _NAMES_CALL if isinstance(value.get(key), str))


def _without_call(value: Any, call_id: str) -> Any:
    """Return messages or parts of them without a call and its result; None for one that is such."""
    if isinstance(value, dict):
        if call_id in (value.get("id"), *map(value.get, _NAMES_CALL)):
            return None
        return {key: _without_call(item, call_id) for key, item in value.items()}
    if isinstance(value, list):
        return [kept for item in value if (kept := _without_call(item, call_id)) is not None]
    return value


def _smaller_messages(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for number, (_, holder, key) in enumerate(spots_in([message])):
        for text in _smaller_texts(holder[key]):
            copied: History = json.loads(json.dumps([message]))
            _, other, _ = list(spots_in(copied))[number]
            other[key] = text
            yield copied[0]
    for key in ("content", "output", "tool_calls"):
        parts = message.get(key)
        if isinstance(parts, list) and len(parts) > 1:
            for at in range(len(parts)):
                yield {**message, key: parts[:at] + parts[at + 1 :]}
    for key in message:
        if key not in ("role", "type", "content", "tool_calls", "tool_call_id"):
            yield {name: value for name, value in message.items() if name != key}


def _smaller_texts(text: str) -> Iterator[str]:
    planted = "\n".join((*RULE.findall(text), *CLAIM.findall(text)))
    for smaller in (
        planted or _SMALL,
        f"{_SMALL}\n{planted}",
        text[: len(text) // 2],
        text[: len(text) // 8 * 7],
    ):
        if smaller and len(smaller) < len(text):
            yield smaller
