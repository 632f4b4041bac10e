"""A case that breaks a law: as JSON, as a picture, and as a script that shows it again."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from context_compressor.laws.driving import Case, Trace, drive
from context_compressor.laws.forms import Dict, FormName, History
from context_compressor.laws.judging import Breach, judge
from context_compressor.laws.subject import LAWS, Subject

_PLACE = re.compile(r"\b(?:messages|input)\[(\d+)\]")
"""How a rule names a message of the view."""
_SHOWN = 400
"""Characters of a message in a picture."""


@dataclass(frozen=True)
class Counterexample:
    """A conversation, the lists of it that were given, and what is wrong with the last view.

    `cuts` are the numbers of messages that each list has; `view` is what was made of the last one, `before`
    the view before it.
    """

    law: str
    rule: str
    what: str
    name: str
    form: FormName
    budget: int
    cuts: list[int]
    history: History
    view: History | None
    before: History | None = None

    @classmethod
    def of(cls, subject: Subject, case: Case, trace: Trace, breach: Breach) -> Counterexample:
        """Return what shows a breach."""
        end = breach.step + 1
        views = [step.view for step in trace.steps[:end]]
        return cls(
            law=breach.law,
            rule=breach.rule,
            what=breach.what,
            name=subject.name,
            form=subject.form,
            budget=subject.budget,
            cuts=list(case.cuts[:end]),
            history=case.history[: case.cuts[breach.step]],
            view=views[-1],
            before=trace.again if breach.law == "idempotent" else views[-2] if end > 1 else None,
        )

    @property
    def size(self) -> tuple[int, int]:
        """How large it is: messages, then characters."""
        return len(self.history), len(json.dumps(self.history)) + len(self.cuts)

    def check(self, subject: Subject) -> list[Breach]:
        """Return how a subject breaks this law on this case today."""
        case = Case(self.history, tuple(self.cuts))
        return [breach for breach in judge(subject, drive(subject, case)) if breach.law == self.law]

    def to_json(self) -> str:
        """Return it as JSON, one message a line."""
        parts = []
        for key, value in asdict(self).items():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                lines = ",\n  ".join(json.dumps(one, ensure_ascii=False) for one in value)
                parts.append(f" {json.dumps(key)}: [\n  {lines}\n ]")
            else:
                parts.append(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Counterexample:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is no counterexample.
        """
        try:
            found = cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise ValueError(f"no counterexample of a law: {error}") from None
        if found.law not in LAWS:
            raise ValueError(f"law {found.law!r}: there is none; the laws are {', '.join(LAWS)}")
        return found

    def script(self, path: str) -> str:
        """Return a program that shows the breach again.

        Args:
            path: of the compactor, as `module:function` or `file.py:function`; what is there is a function
                from messages to messages, or a `Subject`.
        """
        place, _, name = path.rpartition(":")
        folder, module = ".", place
        if place.endswith(".py"):
            folder, module = str(Path(place).parent), Path(place).stem
        small = json.dumps(asdict(replace(self, view=None, before=None)), ensure_ascii=True)
        return _SCRIPT.format(
            law=self.law, says=LAWS[self.law], what=" ".join(self.what.split())[:200].replace('"', "'"),
            folder=folder, module=module, name=name, example=repr(small), budget=self.budget, form=self.form,
        )  # fmt: skip

    def picture(self) -> str:
        """Return a page that shows what was given, what came of it, and what is wrong."""
        named = (_PLACE.findall(self.what) or [""])[0] if self.law == "valid" else ""
        columns: list[tuple[str, History, History | None]] = [("the list", self.history, self.view)]
        if self.before is not None:
            title = "given its own view" if self.law == "idempotent" else "the view before"
            columns.append((title, self.before, self.view))
        if self.view is not None:
            columns.append(("the view", self.view, self.before if self.law == "still" else self.history))
        shown = "".join(
            f"<section><h2>{title}: {len(said)} messages</h2>"
            f"{''.join(_boxes(said, others, named if said is self.view else ''))}</section>"
            for title, said, others in columns
        )
        return _PAGE.format(
            law=html.escape(self.law), says=html.escape(LAWS[self.law]), what=html.escape(self.what),
            name=html.escape(self.name), form=self.form, budget=f"{self.budget:,}", columns=shown,
        )  # fmt: skip


def _boxes(messages: History, others: History | None, named: str) -> Iterator[str]:
    """Yield a box for each message; one that does not stand among the others is marked, and the one named."""
    for place, message in enumerate(messages):
        role = str(message.get("role") or message.get("type") or "item")
        mark = "" if message in (others or []) else " other"
        mark += " named" if str(place) == named else ""
        text = html.escape(_shown(message))
        yield f'<div class="message{mark}"><b>{place} {html.escape(role)}</b><pre>{text}</pre></div>'


def _shown(message: Dict) -> str:
    content: Any = message.get("content")
    rest = {key: value for key, value in message.items() if key not in ("role", "content")}
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""
    if rest:
        text = f"{text}\n{json.dumps(rest, ensure_ascii=False)}".strip()
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    return f"{text[:half]}\n… {len(text) - _SHOWN:,} characters …\n{text[-half:]}"


_SCRIPT: Final = '''"""Broken law: {law} ({says}).

{what}
"""

import sys

sys.path.insert(0, "{folder}")
from {module} import {name}

from context_compressor.laws import Counterexample, Subject

EXAMPLE = {example}

example = Counterexample.from_json(EXAMPLE)
subject = {name}
if not isinstance(subject, Subject):
    subject = Subject(make=lambda: {name}, form="{form}", budget={budget})
for breach in example.check(subject):
    print(f"{{breach.law}}: {{breach.what}}")
    break
else:
    print("kept today: {law}")
'''
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name}: {law}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; --line: #8888; --other: #d9480f; }}
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 1.5rem; }}
main {{ display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }}
section {{ flex: 1 1 20rem; min-width: 0; }}
h1 {{ font-size: 1.3rem; }} h2 {{ font-size: 1rem; }}
.wrong {{ border-left: 4px solid var(--other); padding: .3rem .8rem; }}
.message {{ border: 1px solid var(--line); border-radius: 6px; padding: .4rem .6rem; margin: .5rem 0; }}
.named {{ background: #d9480f33; }}
.other {{ border-color: var(--other); border-width: 2px; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; margin: .2rem 0 0; font-size: .85em; }}
</style></head><body>
<h1>{name} breaks the law “{law}”</h1>
<p>The law: {says}. Form: {form}; budget: {budget} tokens.</p>
<p class="wrong">{what}</p>
<p>Framed: what does not stand in the list beside it. Filled: the message of the view that is named above.</p>
<main>{columns}</main>
</body></html>
"""
