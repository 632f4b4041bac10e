"""Whether chat dicts, Responses items and Anthropic messages go through the library unharmed, on random ones.

    python benchmarks/forms.py --form responses --histories 200000 --jobs 2
    python benchmarks/forms.py --form anthropic --histories 2000 --seed 3 --views-every 10
    python benchmarks/forms.py --form anthropic --through pydantic-ai --histories 2000

For each history: what is read and written again is the same, also after JSON, with the order of keys. Views
of growing prefixes, at a random budget from 500 to 16,000 tokens, are valid by the provider's rules
(`context_compressor.laws`), cost no more than the budget, by our count and by one that knows nothing of the
library, show unaltered items as the same objects, and leave the list as it was. With `--through`, the same
rules and that count judge the body that the SDK of a wrapped client, LangChain or Pydantic AI sends. Views
that the library refuses since what is fixed does not fit are counted apart, and so are lists that a framework
spoils by itself. One history again:

    python benchmarks/forms.py --form responses --seed 0 --first 4711 --histories 1
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reporting import make_parser

import context_compressor as library
from context_compressor import CompressedMemory, InMemoryOffloadStore, TiktokenCounter
from context_compressor.errors import ContextOverflowError
from context_compressor.laws.forms import FORMS as NAMES
from context_compressor.laws.forms import Form, form_of
from tests.support.provider_tokens import count_blocks

Dict = dict[str, Any]
History = list[Dict]

LEAST_BUDGET, MOST_BUDGET = 500, 16_000
MOST_TURNS = 12
PREFIXES = 4
SYNC_EVERY = 10
"""Every tenth history is viewed by `view_sync`."""
CHUNK = 100
SHOWN = 3
"""Counterexamples of each kind."""
SMALL_TOKENS = 64
"""A difference that is no matter, whatever share of a small view it is."""
CORE = "core"
THROUGH = (CORE, "clients", "langchain", "pydantic-ai")
"""What makes and sends views; `tests/support/ways.py` has all but the first."""


@dataclass(frozen=True)
class FormCase:
    """A form as this program needs it: how histories are drawn and judged, read and written."""

    name: str

    @property
    def _form(self) -> Form:
        return form_of(self.name)

    def draw(self, rng: Random, turns: int) -> History:
        return self._form.draw(rng, turns)

    def judge(self, history: History) -> Callable[[History], list[str]]:
        return self._form.judge(history)

    def read(self, history: History) -> Any:
        return getattr(library, f"from_{self._codec}")(history)

    def write(self, messages: Any) -> History:
        written: History = getattr(library, f"to_{self._codec}")(messages)
        return written

    @property
    def _codec(self) -> str:
        return "openai" if self.name == "chat" else self.name


FORMS = {name: FormCase(name) for name in NAMES}


@dataclass
class Findings:
    """What was counted, and the first counterexamples of each kind."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def note(self, kind: str, where: str, what: object) -> None:
        """Count a failure."""
        self.counts[f"FAILED {kind}"] += 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < SHOWN:
            examples.append(f"{where}: {what!s:.1500}")

    def add(self, other: Findings) -> None:
        """Take in what another chunk found."""
        self.counts += other.counts
        for kind, examples in other.examples.items():
            mine = self.examples.setdefault(kind, [])
            mine += examples[: SHOWN - len(mine)]


def check_chunk(
    name: str, seed: int, first: int, count: int, views_every: int, through: str = CORE
) -> Findings:
    """Check some histories, by their numbers."""
    findings = Findings()
    counter = TiktokenCounter()
    counter.load()
    if name == "responses" and through != CORE:
        _remember_transforms()

    async def check_views(number: int, history: History, rng: Random) -> None:
        if through != CORE:
            await _check_sent(FORMS[name], through, f"history {number}", history, rng, counter, findings)
            return
        await _check_views(FORMS[name], f"history {number}", history, rng, counter, findings)

    with asyncio.Runner() as runner:
        for number in range(first, first + count):
            rng = Random(f"{seed}:{name}:{number}")
            history = FORMS[name].draw(rng, rng.randrange(1, MOST_TURNS + 1))
            findings.counts["histories"] += 1
            findings.counts["messages"] += len(history)
            if through == CORE:
                _check_round_trip(FORMS[name], f"history {number}", history, findings)
            if number % views_every == 0:
                if through == CORE and number % (SYNC_EVERY * views_every) == 0:
                    _check_sync(FORMS[name], f"history {number}", history, rng, counter, findings)
                else:
                    runner.run(check_views(number, history, rng))
    return findings


def _remember_transforms() -> None:
    """Keep what the SDK makes of an item: each time one is sent, it tries every type that it may have."""
    from openai.resources.responses import responses

    transform = responses.async_maybe_transform
    if hasattr(transform, "known"):
        return
    known: dict[str, Any] = {}

    async def remembering(data: Any, expected: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("input"), list):
            return await transform(data, expected)
        items = []
        for item in data["input"]:
            key = json.dumps(item)
            if key not in known:
                known[key] = (await transform({"input": [item]}, expected))["input"][0]
            items.append(known[key])
        return {**await transform({**data, "input": []}, expected), "input": items}

    remembering.known = known  # type: ignore[attr-defined]
    responses.async_maybe_transform = remembering


def _check_round_trip(form: FormCase, where: str, history: History, findings: Findings) -> None:
    before = json.dumps(history)
    try:
        again = form.write(form.read(history))
        from_json = form.write(form.read(json.loads(before)))
    except Exception:
        findings.note("to read and write", where, traceback.format_exc(limit=-3))
        return
    if again != history:
        findings.note("to be the same", where, _difference(history, again))
    if json.dumps(from_json) != before:
        findings.note("to be the same in JSON", where, _difference(json.loads(before), from_json))
    if json.dumps(history) != before:
        findings.note("to leave what was read", where, before)


def _difference(expected: History, found: History) -> str:
    for index, (one, other) in enumerate(zip(expected, found, strict=False)):
        if json.dumps(one) != json.dumps(other):
            return f"[{index}] {json.dumps(one)[:600]}\n    became {json.dumps(other)[:600]}"
    return f"{len(expected)} messages became {len(found)}"


def _steps(form: FormCase, history: History, rng: Random) -> Iterator[History]:
    """Yield growing prefixes that could be sent as they are."""
    cuts = sorted({rng.randrange(1, len(history) + 1) for _ in range(PREFIXES)} | {len(history)})
    judge = form.judge(history)
    for cut in cuts:
        prefix = history[:cut]
        if not judge(prefix):
            yield prefix


def _new_memory(rng: Random, counter: TiktokenCounter) -> tuple[CompressedMemory, int]:
    budget = rng.randrange(LEAST_BUDGET, MOST_BUDGET + 1)
    memory = CompressedMemory(max_total_tokens=budget, store=InMemoryOffloadStore(), counter=counter)
    return memory, budget


async def _check_views(
    form: FormCase,
    where: str,
    history: History,
    rng: Random,
    counter: TiktokenCounter,
    findings: Findings,
) -> None:
    memory, budget = _new_memory(rng, counter)
    async with memory:
        for prefix in _steps(form, history, rng):
            at, before = f"{where}, {len(prefix)} messages, budget {budget}", json.dumps(prefix)
            try:
                view = await memory.view(prefix, form=form.name)  # type: ignore[arg-type]
            except ContextOverflowError:
                findings.counts["views that do not fit"] += 1
            except Exception:
                findings.note("to show a view", at, traceback.format_exc(limit=-4))
                return
            else:
                _check_view(form, at, prefix, before, view, budget, counter, findings)


def _check_sync(
    form: FormCase,
    where: str,
    history: History,
    rng: Random,
    counter: TiktokenCounter,
    findings: Findings,
) -> None:
    memory, budget = _new_memory(rng, counter)
    for prefix in _steps(form, history, rng):
        at, before = f"{where}, {len(prefix)} messages, budget {budget}, sync", json.dumps(prefix)
        try:
            view = memory.view_sync(prefix, form=form.name)  # type: ignore[arg-type]
        except ContextOverflowError:
            findings.counts["views that do not fit"] += 1
        except Exception:
            findings.note("to show a view", at, traceback.format_exc(limit=-4))
            return
        else:
            _check_view(form, at, prefix, before, view, budget, counter, findings)


async def _check_sent(
    form: FormCase,
    through: str,
    where: str,
    history: History,
    rng: Random,
    counter: TiktokenCounter,
    findings: Findings,
) -> None:
    from tests.support.ways import WAYS  # which imports every framework

    budget = rng.randrange(LEAST_BUDGET, MOST_BUDGET + 1)
    way = WAYS[through](form.name, budget, counter)
    for prefix in _steps(form, history, rng):
        at = f"{where}, {len(prefix)} messages, budget {budget}, {through}"
        try:
            sent = await way.send(prefix)
        except ContextOverflowError:
            findings.counts["views that do not fit"] += 1
            continue
        except Exception:
            findings.note("to send a view", at, traceback.format_exc(limit=-4))
            return
        judge = form.judge(prefix if sent.said is None else sent.said)
        if sent.said is not None and judge(sent.said):
            findings.counts["lists that the framework sends in no valid form"] += 1
            continue
        findings.counts["views"] += 1
        findings.counts["views that are not their whole list"] += sent.messages != (sent.said or prefix)
        if found := judge(sent.messages):
            findings.note("to be valid", at, f"{found[:3]}\n    {json.dumps(sent.messages)[:1200]}")
        theirs = count_blocks(sent.messages, sent.system)
        _compare_counts(at, sent.counted, theirs, budget, sent.messages, findings)


def _compare_counts(
    where: str, ours: int, theirs: int, budget: int, view: History, findings: Findings
) -> None:
    """Compare what we count with what goes out, by a counter that knows nothing of the library."""
    findings.counts["tokens of ours"] += ours
    findings.counts["tokens that went out"] += theirs
    findings.counts["views counted to within a tenth"] += abs(ours - theirs) <= max(0.1 * ours, SMALL_TOKENS)
    if theirs > budget:
        told = f"{theirs} tokens went out, {ours} counted\n    {json.dumps(view)[:800]}"
        findings.note("to send no more than the budget", where, told)


def _beside_results(message: Dict) -> Iterator[Dict]:
    """Yield what a message says beside results, which may be shown without them; another may say the same."""
    content = message.get("content")
    rest = [block for block in content if block["type"] != "tool_result"] if isinstance(content, list) else []
    if rest and len(rest) < len(content or ()):
        yield {**message, "content": rest}


def _check_view(
    form: FormCase,
    where: str,
    prefix: History,
    before: str,
    view: History,
    budget: int,
    counter: TiktokenCounter,
    findings: Findings,
) -> None:
    findings.counts["views"] += 1
    findings.counts["views that are not their whole list"] += view != prefix
    found = form.judge(prefix)(view)
    if found:
        findings.note("to be valid", where, f"{found[:3]}\n    {json.dumps(view)[:1200]}")
    cost = counter.count_messages(form.read(view))
    if cost > budget:
        findings.note("to keep to the budget", where, f"{cost} tokens\n    {json.dumps(view)[:800]}")
    _compare_counts(where, cost, count_blocks(view), budget, view, findings)
    if json.dumps(prefix) != before:
        findings.note("to leave the list as it was", where, before)
    own = {id(message) for message in prefix}
    # A system message that cannot stand where it stands becomes the user's.
    said = [message for message in prefix if message.get("role") == "system"]
    changed = {json.dumps({**message, "role": "user"}) for message in said if form.name == "anthropic"}
    changed |= {json.dumps(half) for message in prefix for half in _beside_results(message)}
    texts = {json.dumps(message) for message in prefix} - changed
    copies = [shown for shown in view if id(shown) not in own and json.dumps(shown) in texts]
    if copies:
        findings.note("to show the same objects", where, json.dumps(copies[0]))


def main() -> None:
    """Check histories in several processes, and tell what was found."""
    parser = make_parser(__doc__)
    parser.add_argument("--form", choices=FORMS, required=True)
    parser.add_argument("--through", choices=THROUGH, default=CORE, help="what makes and sends views")
    parser.add_argument("--histories", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first history")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--views-every", type=int, default=1, help="take views of every nth history only")
    given = parser.parse_args()
    findings, started = Findings(), time.perf_counter()
    end = given.first + given.histories
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        chunks = [
            pool.submit(
                check_chunk,
                given.form,
                given.seed,
                at,
                min(CHUNK, end - at),
                given.views_every,
                given.through,
            )
            for at in range(given.first, end, CHUNK)
        ]
        for chunk in chunks:
            findings.add(chunk.result())
            failed = sum(count for kind, count in findings.counts.items() if kind.startswith("FAILED"))
            done = findings.counts["histories"]
            print(f"{done:,} histories, {failed} failures", file=sys.stderr, flush=True)
    for kind, count in sorted(findings.counts.items()):
        print(f"{count:>10,}  {kind}")
    print(f"{time.perf_counter() - started:>10,.0f}  seconds")
    for kind, examples in findings.examples.items():
        print(f"\nFAILED {kind}:")
        for example in examples:
            print(f"  {example}")
    if findings.examples:
        sys.exit(1)


if __name__ == "__main__":
    main()
