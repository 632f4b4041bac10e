"""The laws of this library and of its peers, over the same conversations; writes docs/laws-of-others.md.

    python benchmarks/laws_of_others.py --only strands langmem --examples 60
    python benchmarks/laws_of_others.py --table

A peer runs in an environment of its own (`make peers`) and is used as its documentation says; its file in
`benchmarks/peers` tells how. Where it asks a model for a summary, it gets one fixed sentence, so nothing here
depends on what a model says. It counts by the counter that judges it, where it takes one. It is given texts
and calls alone: no media, no reasoning. What is given is the same for all of a form. Results are kept in
`benchmarks/results/laws`, with the smallest counterexamples, and a script that shows each again; the page is
made from them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.peers import JUDGED_ALONE, PEERS, server_of
from benchmarks.peers.piped import PipedError, PipedSystem
from context_compressor.laws import LAWS, Counterexample, Subject, check
from context_compressor.laws.forms import FORMS, Dict, FormName, History, awaits_model
from context_compressor.laws.subject import memory
from context_compressor.laws.suite import dump, save

ROOT = Path(__file__).resolve().parents[1]
BUDGET = 2_000
RESULTS = ROOT / "benchmarks" / "results" / "laws"
PAGE = ROOT / "docs" / "laws-of-others.md"
SUMMARY = "The earlier part of the conversation was summarised."
OURS = "context_compressor"


class Canned(PipedSystem):
    """A peer that gets the same sentence for every summary, and one conversation after the other."""

    asked = 0

    async def begin(self) -> None:
        """Begin another conversation, in the same process where it still runs."""
        self.asked, self._view, self._stored = 0, [], {}
        self._folder.cleanup()
        self._folder = tempfile.TemporaryDirectory(prefix="peer-")
        if self._process is not None:
            try:
                await self._exchange({"op": "start", "budget": self._budget, "folder": self._folder.name})
            except PipedError:  # it is gone, and the next question starts another
                process, self._process = self._process, None
                await process.aclose()

    async def _summarize(self, prompt: Sequence[str], messages: Sequence[Dict]) -> Dict:  # noqa: ARG002
        self.asked += 1
        return {"text": SUMMARY}


@cache
def running(name: str, budget: int) -> tuple[asyncio.AbstractEventLoop, Canned]:
    """Return a peer's process, and the loop in which it is spoken to, whichever thread does."""
    return asyncio.new_event_loop(), Canned(name, server_of(name), budget)


class Compactor:
    """A peer in one conversation, given the whole list each time; one at a time.

    As in its agent, it is asked before each answer of the model's that the list has, too.
    """

    def __init__(self, name: str, budget: int) -> None:
        self._loop, self._system = running(name, budget)
        self._seen = 0
        self._loop.run_until_complete(self._system.begin())

    @property
    def events(self) -> int:
        """How often it asked for a summary."""
        return self._system.asked

    def __call__(self, messages: History) -> History:
        new, self._seen = messages[self._seen :], len(messages)
        asked = [at for at in range(1, len(new)) if awaits_model(new[at - 1]) and not awaits_model(new[at])]
        for start, end in pairwise([0, *asked, len(new)]):
            view = self._loop.run_until_complete(self._system.send(messages, new[start:end]))
        return view

    def read(self, view: History) -> list[str]:
        """Return what it stored under names that the view gives, or a text that is read so."""
        stored = self._loop.run_until_complete(self._system.stored())
        read: dict[str, str] = {}
        waiting = [json.dumps(view)]
        while waiting:
            shown = waiting.pop()
            found = {name: text for name, text in stored.items() if name in shown and name not in read}
            read |= found
            waiting += found.values()
        return list(read.values())


@dataclass(frozen=True)
class Judged:
    """A peer: how it is called and released, what its documentation promises, what is known of it."""

    title: str
    package: str
    claims: tuple[str, ...] = ()
    """Beside what is asked of all: valid, budget, terminates."""
    form: FormName = "chat"
    note: str = ""
    known: tuple[tuple[str, str], ...] = ()
    """Laws, or `rule` for a provider's, and issues of theirs that are about the same."""

    @property
    def without(self) -> tuple[str, ...]:
        return tuple(law for law in LAWS if law not in ("valid", "budget", "terminates", *self.claims))


JUDGED = {
    "langchain-summarize": Judged(
        "LangChain, `SummarizationMiddleware`",
        "langchain",
        note="triggered at the budget, keeps half of it; it promises a trigger, no limit",
        known=(("valid", "langchain-ai/langchain#38352"), ("budget", "langchain-ai/langchain#34091")),
    ),
    "langchain-trim": Judged(
        "LangChain, `trim_messages`",
        "langchain-core",
        claims=("smaller",),
        note='as in its guide: `strategy="last"`, `start_on="human"`, `include_system=True`',
    ),
    "deepagents": Judged(
        "deepagents",
        "deepagents",
        claims=("lossless",),
        note="its files are read back by the names that its views give",
        known=(("budget", "langchain-ai/deepagents#3405"),),
    ),
    "langmem": Judged(
        "langmem, `summarize_messages`",
        "langmem",
        known=(("rule", "langchain-ai/langmem#126"),),
    ),
    "pydantic-ai-harness": Judged(
        "pydantic-ai-harness, `TieredCompaction`",
        "pydantic-ai-harness",
        note="it promises a target, no limit",
    ),
    "strands": Judged(
        "strands, `SummarizingConversationManager`",
        "strands-agents",
        note="it promises to reduce, no limit",
        known=(("budget", "strands-agents/harness-sdk#981"),),
    ),
    "openai-agents": Judged(
        "OpenAI Agents, `ToolOutputTrimmer`",
        "openai-agents",
        claims=("smaller",),
        form="responses",
        note="it promises no budget; its other way asks OpenAI to compact, which nothing here can answer",
    ),
    "adk": Judged(
        "Google ADK, events compaction",
        "google-adk",
        note="it promises a threshold, no limit",
    ),
    "agentscope2": Judged("AgentScope 2, `compress_context`", "agentscope"),
    "reme": Judged(
        "ReMe, short-term memory",
        "reme-ai",
        claims=("lossless",),
        note="0.2, whose operations 0.3 has unchanged; its budget leaves out the last ten messages",
    ),
    "headroom": Judged(
        "headroom, `compress`",
        "headroom-ai",
        claims=("lossless",),
        note="it promises no budget; its model for texts, which it would download, is switched off",
        known=(("budget", "headroomlabs-ai/headroom#2649"),),
    ),
}


def subject_of(name: str, budget: int = BUDGET) -> Subject:
    """Return a peer as the laws see it."""
    judged = JUDGED[name]
    return Subject(
        make=lambda: Compactor(name, budget),
        name=name,
        form=judged.form,
        plain=True,
        budget=budget,
        without=judged.without,
        seconds=120,
    )


def ours(kind: str, budget: int = BUDGET) -> Subject:
    """Return our memory in a form; `plain` is chat as peers are given it."""
    if kind == "plain":
        return replace(memory("chat", budget), plain=True, name=f"{OURS}-plain")
    return memory(kind, budget)  # type: ignore[arg-type]


SUBJECTS = {f"ours_{kind}": (ours, kind) for kind in ("plain", *FORMS)} | {
    name.replace("-", "_"): (subject_of, name) for name in JUDGED
}
"""How each is made, by the name that scripts import."""


def __getattr__(name: str) -> Subject:
    if name not in SUBJECTS:
        raise AttributeError(name)
    make, given = SUBJECTS[name]
    return make(given)


def run(name: str, examples: int) -> None:
    """Check one, and keep what was found."""
    subject = __getattr__(name)
    report = check(subject, examples=examples, tries=150)
    shutil.rmtree(RESULTS / name, ignore_errors=True)
    told = json.loads(dump(report)) | {
        "budget": BUDGET,
        "date": str(date.today()),
        "version": version_of(name),
    }
    report.name = name
    for file in save(report, RESULTS / name, f"benchmarks.laws_of_others:{name}"):
        file.rename(file.with_name(file.name.replace(f"{name}_{report.form}_", "")))
    text = json.dumps(told, indent=1, ensure_ascii=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")
    broken = {law: report.counts[law] for law in report.broken}
    print(f"{name}: {report.cases} conversations, broken: {broken}", flush=True)


def version_of(name: str) -> str:
    """Return the release of what is checked."""
    package, python = "agent-context-compressor", sys.executable
    if not name.startswith("ours_"):
        peer = SUBJECTS[name][1]
        package, python = JUDGED[peer].package, str((PEERS | JUDGED_ALONE)[peer].python)
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def page() -> str:
    """Return the table, made of the results that there are."""
    columns = ["", "version", "conversations", *LAWS]
    rows, found = [], []
    for name, (_, given) in SUBJECTS.items():
        title = f"**context_compressor**, {given}" if name.startswith("ours_") else JUDGED[given].title
        path = RESULTS / f"{name}.json"
        if not path.exists():
            rows.append([title, "not run", "", *("" for _ in LAWS)])
            continue
        told = json.loads(path.read_text(encoding="utf-8"))
        rows.append([title, told["version"], str(told["cases"]), *(_cell(told, law) for law in LAWS)])
        found.append((name, title, told))
    table = "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows))
    return _PAGE.format(
        budget=f"{BUDGET:,}",
        dates=" and ".join(sorted({told["date"] for _, _, told in found})),
        laws="\n".join(f"- `{law}`: {says}." for law, says in LAWS.items()),
        table=table,
        found="\n\n".join(_found(*one) for one in found if any(_is_broken(one[2], law) for law in LAWS)),
    )


def _is_broken(told: Dict, law: str) -> bool:
    return bool(told["laws"][law]["state"] == "broken")


def _cell(told: Dict, law: str) -> str:
    state = told["laws"][law]["state"]
    if state == "not claimed":
        return "–"
    cases = told["laws"][law]["cases"]
    return f"**broken** ({cases})" if state == "broken" else "kept"


def _found(name: str, title: str, told: Dict) -> str:
    """Return what is broken by one, each law with its smallest counterexample."""
    judged = None if name.startswith("ours_") else JUDGED[SUBJECTS[name][1]]
    lines = [f"### {title} {told['version']}"]
    note = "" if judged is None else judged.note
    if note:
        lines.append(f"\nHere: {note}.")
    lines.append("")
    for law in filter(lambda law: _is_broken(told, law), LAWS):
        folder = f"../benchmarks/results/laws/{name}"
        example = Counterexample.from_json((RESULTS / name / f"{law}.json").read_text(encoding="utf-8"))
        known = [issue for of, issue in (judged.known if judged else ()) if of == law]
        lines.append(
            f"- `{law}`: {_escaped(example.what)} ({len(example.history)} messages: "
            f"[picture]({folder}/{law}.html), [script]({folder}/{law}.py))" + _known(known)
        )
    rules = list(told["rules"].items())
    if rules:
        listed = ", ".join(f"{_escaped(rule)} ({count})" for rule, count in rules[:5])
        known = [issue for of, issue in (judged.known if judged else ()) if of == "rule"]
        lines.append(
            f"- rules of the provider that were broken, and in how many conversations: {listed}"
            + _known(known)
        )
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*")


def _known(issues: Sequence[str]) -> str:
    links = [f"[{issue}](https://github.com/{issue.replace('#', '/issues/')})" for issue in issues]
    return f"; known as {', '.join(links)}" if links else ""


_PAGE = """# Ten other libraries, by the laws

A *law* is a promise that must hold for every conversation, such as "no view costs more than the budget".
[The law suite](laws.md) makes random conversations, and looks for one that breaks a law. This page says
what it found in this library and in ten others, on {dates}.

`python benchmarks/laws_of_others.py --table` wrote the page from
[results](../benchmarks/results/laws). After `make peers`, one is run again by
`python benchmarks/laws_of_others.py --only strands`.

How they were asked:

- Each is given the same random conversations, at a budget of {budget} tokens, as lists that grow turn by
  turn.
- Each is used as its documentation says, in an environment of its own. It counts tokens with our counter, if
  it takes one.
- Where a library asks a model for a summary, it gets one fixed sentence: the library is judged, not a model.
- Other libraries are given texts and tool calls only, no media and no reasoning, so that no conversion of
  ours can be the cause. The row *plain* is this library on the same conversations.
- All are asked for three laws: `valid`, `budget` and `terminates`. They are asked for the budget even if they
  do not promise one, since a provider refuses what does not fit; their entry below then says so.
- "–": the documentation does not promise this law, so it is not asked for.
- The number after *broken* is that of conversations in which the law was broken.

The laws:

{laws}

{table}

With other conversations, 150 of each form for a seed, ours broke some more. Those that are mended are
[tests](../tests/laws/found). Over the seeds 1, 2, 3, 7, 11 to 13 and 21 to 30, four of 7,650 conversations
break a law, one each:

- `rules`, Anthropic (seed 1): what arguments of calls cost is estimated in a plan. A view comes out 334
  tokens above its plan, and over the budget; the next plan takes them from the notes, and rules with them.
- `still`, Anthropic (seed 2): the thoughts of a turn, larger than the budget, had left. Its next call comes
  in one list with the word by which the user interrupts it. Thoughts are lent to a turn that is over, too,
  since what was sent while it was open has to stay; so the call leaves at once.
- `still`, chat (seed 29): an event comes at 1,999 tokens of 2,000. The notes count as 2 tokens more than they
  cost, for a name that is not sent.
- `rules`, chat (seed 26): a recording takes 1,524 of 2,000 tokens and may not leave, nor may the newest call
  with its four results. What room is left takes the ref under which the rest can be read, the rule with it.

At a budget of 600 tokens three of 540 conversations (seeds 21 to 23) lose a rule. At 4,000 tokens, 6 of each
form with up to 120 requests break none.

## The smallest counterexamples

{found}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--examples", type=int, default=60, help="conversations for each")
    parser.add_argument(
        "--table", action="store_true", help="only write the page, from the results that there are"
    )
    given = parser.parse_args()
    for name in [] if given.table else given.only:
        run(name, given.examples)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
