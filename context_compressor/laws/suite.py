"""The suite: random cases for a compactor, and for each law that breaks the smallest case that breaks it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, Unpack

from context_compressor.laws.counterexample import Counterexample
from context_compressor.laws.driving import Case, drive, is_unanswered
from context_compressor.laws.forms import awaits_model, form_of, plant
from context_compressor.laws.judging import judge
from context_compressor.laws.shrinking import TRIES, smallest
from context_compressor.laws.subject import LAWS, Compact, Promises, Subject

EXAMPLES: Final = 100
MOST_TURNS: Final = 8
_CUTS = 4


@dataclass
class Report:
    """What was found of each law."""

    name: str
    form: str
    cases: int = 0
    compacted: int = 0
    """Cases in which a view was not its list."""
    refused: int = 0
    """Lists that were refused, as documented, since they cannot be made to fit."""
    is_stopped: bool = False
    """Whether no answer came to the last case in time, and no further one was drawn."""
    broken: dict[str, Counterexample] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    """Cases that broke a law."""
    rules: Counter[str] = field(default_factory=Counter)
    """Cases that broke a rule of a provider."""
    not_claimed: tuple[str, ...] = ()

    def add(self, subject: Subject, case: Case) -> None:
        """Give a case to a compactor, and count what comes of it."""
        trace = drive(subject, case)
        breaches = judge(subject, trace)
        for breach in breaches:
            example = Counterexample.of(subject, case, trace, breach)
            if breach.law not in self.broken or example.size < self.broken[breach.law].size:
                self.broken[breach.law] = example
        self.cases += 1
        self.is_stopped = is_unanswered(trace)
        self.refused += sum(step.view is None and step.error is None for step in trace.steps)
        self.compacted += any(step.view not in (None, step.given) for step in trace.steps)
        self.rules.update({breach.rule for breach in breaches if breach.law == "valid"})
        self.counts.update({breach.law for breach in breaches})

    def state_of(self, law: str) -> str:
        """Return `kept`, `broken` or `not claimed`."""
        return "broken" if law in self.broken else "not claimed" if law in self.not_claimed else "kept"


def check(
    compact: Compact | Subject,
    *,
    examples: int = EXAMPLES,
    seed: int = 0,
    turns: int = MOST_TURNS,
    tries: int = TRIES,
    on_step: Callable[[str, int, int], object] | None = None,
    **promises: Unpack[Promises],
) -> Report:
    """Check which laws a function from messages to messages keeps, over random conversations.

    Args:
        compact: the function, sync or async, which is given the whole list each time; a `Subject` for one
            that remembers its conversation.
        examples: how many conversations, or fewer where one gets no answer in time.
        seed: of the conversations; the same ones come of the same seed.
        turns: requests of a user that a conversation has at most.
        tries: how many smaller cases are tried for each law that is broken.
        on_step: is told how far it is: what is being done, the number of the step, and of how many.
        promises: what a `Subject` takes, where a function is given.

    Raises:
        ImportError: the form is Anthropic's, and its SDK is not installed.
        ValueError: an option is none of a `Subject`.
    """
    if isinstance(compact, Subject):
        subject = replace(compact, **promises)
    else:
        name = getattr(compact, "__name__", "compactor")
        subject = replace(Subject(make=lambda: compact, name=name), **promises)
        if not hasattr(compact, "read"):
            subject = replace(subject, without={*subject.without, "lossless"})
    left_out = tuple(law for law in LAWS if law in subject.without)
    report = Report(subject.name, subject.form, not_claimed=left_out)
    tell = on_step or _tell_nobody
    for number in range(examples):
        tell("conversation", number + 1, examples)
        case = draw_case(subject.form, Random(f"{seed}:{number}"), turns, plain=subject.plain)
        report.add(subject, case)
        if report.is_stopped:  # each further one might take as long
            break
    for law in [law for law in LAWS if law in report.broken]:
        tell_law = partial(tell, f"a smaller one that breaks {law}")
        report.broken[law] = smallest(subject, report.broken.pop(law), tries, tell_law)
    return report


def _tell_nobody(_what: str, _number: int, _of: int) -> None:
    pass


def draw_case(form: str, rng: Random, turns: int = MOST_TURNS, *, plain: bool = False) -> Case:
    """Draw a conversation, and the lists of it that a compactor is given: each could be sent as it is."""
    how = form_of(form, plain=plain)
    history = plant(how.draw(rng, rng.randrange(turns) + 1), rng)
    ends = [at + 1 for at, item in enumerate(history) if awaits_model(item)]
    chosen = {ends[rng.randrange(len(ends))] for _ in range(_CUTS - 1)} | {ends[-1]}
    cuts = [cut for cut in sorted(chosen) if not how.judge(history[:cut])(history[:cut])]
    return Case(history[: max(cuts, default=0)], tuple(cuts))


def dump(report: Report) -> str:
    """Return a report as JSON."""
    told = {
        "name": report.name,
        "form": report.form,
        "cases": report.cases,
        "compacted": report.compacted,
        "refused": report.refused,
        "laws": {
            law: {"state": report.state_of(law), "cases": report.counts[law]}
            | ({"what": report.broken[law].what} if law in report.broken else {})
            for law in LAWS
        },
        "rules": dict(report.rules.most_common()),
    }
    return json.dumps(told, indent=1, ensure_ascii=False)


def save(report: Report, folder: Path, path: str | None = None) -> list[Path]:
    """Write each counterexample as JSON and as a picture, and as a script where the compactor's path is told.

    Returns the files written. `path` is `module:function`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for law, example in report.broken.items():
        texts = {"json": example.to_json(), "html": example.picture()}
        if path is not None:
            texts["py"] = example.script(path)
        for ending, text in texts.items():
            file = folder / f"{report.name}_{report.form}_{law}.{ending}".replace(" ", "_")
            file.write_text(text, encoding="utf-8")
            written.append(file)
    return written
