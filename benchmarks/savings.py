"""What compressing saves, what it costs, and what it loses: systems over recorded sessions.

    python -m benchmarks.sessions build/sessions
    python benchmarks/savings.py [--data DIR] [--probes DIR] [--budget N ...] [--system NAME ...] [--jobs N]
                                 [--results OUT]

`--data` (where the first command writes sample sessions) holds `*.jsonl.gz` or `*.jsonl`, a recorded session
a line: `{"id": ..., "messages": [chat dicts], "probes": [...]}`; `--probes` has sets of more probes, as
`replay` takes them. Before each recorded assistant message every system is asked what it would send; what it
sends is judged as `context_compressor.lab.measure` says. Prints a table for each budget and size of sessions:

- saved: tokens that requests cost less than the raw history; peak: tokens of the largest request; over,
  invalid: turns above the budget, or that a provider would refuse; noted: requests for notes, a model's or
  one that rules answered in its place;
- cost: of requests and notes to that of the raw history, a token in the prefix shared with the request
  before at a tenth; as spent, as if a model had been asked apart for all notes, and (*in place*) as if
  the agent's own model had written 1,200 tokens behind its last request each time, at five times input;
- fill: the mean of view tokens to budget, over all requests from a session's first notes on;
- told, where sessions have probes: of how many probes (questions with the keys of their answers: who or what,
  and the value or outcome) a passage of 600 characters of the view holds the keys, with the interval of 95 %
  (Wilson); per 1,000: the share to the mean tokens of these views; by kind in a table of their own;
- ms: of a turn, without a model's time (median, 99th percentile); stored: texts in the stores at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import io
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from fnmatch import fnmatch
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

from peers import PEER_SYSTEMS, leave_out_missing
from reporting import make_parser, markdown_table, notes_of, number, percent, print_table, write_results
from savings_chart import MISSING, draw

from context_compressor import FileOffloadStore, TiktokenCounter
from context_compressor.lab.measure import (
    KINDS,
    SYSTEMS,
    CachedCounter,
    Ours,
    Probe,
    ProbeError,
    ProbeSet,
    Recording,
    Replay,
    System,
    Told,
    Totals,
    read_probe_sets,
    read_probes,
    replay,
    total,
)

DEFAULT_DATA = Path(__file__).resolve().parents[1] / "build" / "sessions"
LEFT_OUT = {"shapes": "shapes/*", "longmemeval_s": "longmemeval_s/*", "windows": "*/pi/pi-refactor-window*"}
"""What is left out unless asked for, by patterns of file and id: odd message forms, which are no sessions;
chat without tools; and parts of a session that is there as a whole, which would count twice."""
ALL_SYSTEMS: dict[str, Callable[[int, CachedCounter], System]] = {**SYSTEMS, **PEER_SYSTEMS}
"""Those of this library, and the peers: `make peers` installs them."""
GROUPS = (("above 100,000 tokens", 100_000), ("24,000 to 100,000 tokens", 24_000), ("below", 0))
"""Groups of sessions by the tokens of their messages, and what each has at least."""

T = TypeVar("T")


class Session(NamedTuple):
    """A recorded session."""

    name: str
    messages: list[dict[str, Any]]
    probes: tuple[Probe, ...] = ()


Result = tuple[int, Replay]
"""Tokens of a session, and a replay of it."""


def read_sessions(
    folder: Path, pattern: str, included: set[str], sets: Sequence[tuple[str, ProbeSet]] = ()
) -> Iterator[Session]:
    """Yield recorded sessions, each named `file/id`, whose name matches the pattern, with their probes.

    Raises:
        ProbeError: probes are malformed.
    """
    left_out = [glob for name, glob in LEFT_OUT.items() if name not in included]
    for path in sorted([*folder.glob("*.jsonl.gz"), *folder.glob("*.jsonl")]):
        file = path.name.split(".jsonl")[0]
        if f"{file}/*" in left_out:
            continue
        with open_text(path) as lines:
            for number, line in enumerate(lines):
                data = json.loads(line)
                name = f"{file}/{data['id']}"
                if fnmatch(name, pattern) and not any(fnmatch(name, glob) for glob in left_out):
                    where, count = f"{path}, line {number + 1}", len(data["messages"])
                    of_it = [(file, one) for file, one in sets if one.is_of(path.name, number)]
                    probes = read_probes(data.get("probes"), where, count, of_it)
                    yield Session(name, data["messages"], probes)


def report_none(folder: Path) -> int:
    """Say that no session was found; return the exit code."""
    print(
        f"No sessions in {folder} that match. `python -m benchmarks.sessions` writes samples.",
        file=sys.stderr,
    )
    return 1


def map_sessions(run: Callable[[Session], list[T]], sessions: list[Session], jobs: int) -> list[T]:
    """Return what all sessions come to together, in so many processes."""
    # The longest first, or the last process would run on alone.
    ordered = sorted(sessions, key=lambda session: -len(session.messages))
    if jobs <= 1:
        return list(chain.from_iterable(map(run, ordered)))
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        return list(chain.from_iterable(pool.map(run, ordered)))


def open_text(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.GzipFile(path), encoding="utf-8")
    return path.open(encoding="utf-8")


def run_session(
    session: Session, *, systems: list[str], budgets: list[int], least: int, most: int, files: bool
) -> list[Result]:
    """Replay a session by every system at every budget; not at all if it is too short or too long."""
    name, messages, probes = session
    recording = Recording(messages, COUNTER, name, probes)
    tokens = recording.total_tokens
    if not least <= tokens <= most:
        return []
    return [
        (tokens, asyncio.run(run_system(recording, system, budget, files)))
        for budget in budgets
        for system in systems
    ]


async def run_system(recording: Recording, system: str, budget: int, files: bool) -> Replay:
    if system != "ours" or not files:
        return await replay(recording, ALL_SYSTEMS[system](budget, recording.counter), budget=budget)
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(budget, recording.counter, store=FileOffloadStore(folder))
        return await replay(recording, ours, budget=budget)


COUNTER = TiktokenCounter()

COLUMNS = (
    "system", "saved", "peak", "fill", "over", "invalid", "noted", "cost", "as if model", "in place", "told",
    "per 1,000", "ms p50/p99", "stored",
)  # fmt: skip
TOLD_COLUMNS = ("told", "per 1,000")


def columns_of(columns: tuple[str, ...], has_probes: bool) -> list[int]:
    """Return which columns a table has: what is told stands there only where something was asked."""
    return [n for n, name in enumerate(columns) if has_probes or name not in TOLD_COLUMNS]


def row_of(system: str, totals: Totals) -> list[str]:
    """Return a row of the table, all columns."""
    times = totals.time
    return [
        system,
        percent(totals.saved),
        f"{totals.peak_tokens:,}",
        percent(totals.fill),
        percent(totals.over / totals.turns),
        percent(totals.invalid / totals.turns),
        f"{totals.noted:,}",
        number(totals.cost.spent_ratio),
        number(totals.cost.as_if_model_ratio),
        "-" if system in PEER_SYSTEMS else number(totals.cost.in_place_ratio),
        told_cell(totals.told),
        "-" if totals.told is None else percent(totals.told.per_1000_tokens),
        f"{number(times.median_ms)}/{number(times.p99_ms)}",
        f"{totals.stored_texts}, {totals.stored_bytes / 1e6:.1f} MB" if totals.stored_texts else "-",
    ]


def told_cell(told: Told | None) -> str:
    """Return the share of what is told, and its interval."""
    return "-" if told is None else f"{percent(told.share)} ({100 * told.low:.0f}-{100 * told.high:.0f})"


def kinds_table(rows: Sequence[tuple[str, Totals]]) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of what is told by kind; no rows where nothing was asked."""
    asked = [(system, totals) for system, totals in rows if totals.told is not None]
    counts = {
        kind: max(totals.told_by_kind[kind].probes for _, totals in asked)
        for kind in KINDS
        if any(kind in totals.told_by_kind for _, totals in asked)
    }
    columns = [
        "system",
        f"all ({sum(counts.values()):,})",
        *(f"{kind} ({n:,})" for kind, n in counts.items()),
    ]
    return columns, [
        [
            system,
            told_cell(totals.told),
            *(f"{100 * totals.told_by_kind[kind].share:.0f} %" for kind in counts),
        ]
        for system, totals in asked
    ]


def picked(row: Sequence[str], places: Sequence[int]) -> list[str]:
    return [row[n] for n in places]


def group_of(tokens: int) -> str:
    return next(name for name, least in GROUPS if tokens >= least)


def report(results: list[Result], systems: list[str], budgets: list[int]) -> list[dict[str, Any]]:
    """Print the tables, and return what they are made from."""
    told = []
    for budget in budgets:
        for group, _ in GROUPS:
            chosen = [run for tokens, run in results if run.budget == budget and group_of(tokens) == group]
            if not any(run.turns for run in chosen):
                continue
            rows = [(system, total([run for run in chosen if run.system == system])) for system in systems]
            told += [
                {"budget": budget, "group": group, "system": system, "of": totals} for system, totals in rows
            ]
            _, first = rows[0]
            print(f"\nBudget {budget:,} · {first.sessions} sessions {group} · {first.turns:,} turns\n")
            places = columns_of(COLUMNS, first.told is not None)
            print_table(picked(COLUMNS, places), [picked(row_of(*row), places) for row in rows])
            columns, kinds = kinds_table(rows)
            if kinds:
                print("\nTold by kind\n")
                print_table(columns, kinds)
    return told


OVERALL = {
    "system": "system", "saved": "saved", "peak": "largest request", "fill": "fill",
    "over": "turns above budget", "noted": "requests for notes", "cost": "cost",
    "as if model": "cost as if model", "in place": "cost in place", "told": "told",
    "per 1,000": "told per 1,000 tokens",
}  # fmt: skip
"""Columns of the table over all sessions, and what they are called there."""


def markdown_of(rows: Sequence[tuple[str, Totals]], names: Mapping[str, str]) -> str:
    """Return a table of some columns, and what is told by kind where something was asked."""
    has_probes = any(totals.told is not None for _, totals in rows)
    places = [n for n in columns_of(COLUMNS, has_probes) if COLUMNS[n] in names]
    table = markdown_table(
        [names[COLUMNS[n]] for n in places], [picked(row_of(*row), places) for row in rows]
    )
    columns, kinds = kinds_table(rows)
    return f"{table}\n\nTold by kind:\n\n{markdown_table(columns, kinds)}" if kinds else table


def write_report(
    folder: Path, results: list[Result], groups: list[dict[str, Any]], systems: list[str], budgets: list[int]
) -> None:
    """Write `savings.json`, `savings.md` and, where matplotlib is there, pictures."""
    sizes = {run.session: tokens for tokens, run in results if run.turns}
    runs = [run for _, run in results if run.turns]
    parts, overall = [], []
    for budget in budgets:
        at_budget = [run for run in runs if run.budget == budget]
        rows = [(system, total([run for run in at_budget if run.system == system])) for system in systems]
        overall += [{"budget": budget, "system": system, "totals": asdict(totals)} for system, totals in rows]
        parts.append(f"## Budget {budget:,}, all sessions\n\n{markdown_of(rows, OVERALL)}")
    for budget in budgets:
        for group, _ in GROUPS:
            rows = [
                (one["system"], one["of"])
                for one in groups
                if (one["budget"], one["group"]) == (budget, group)
            ]
            if rows:
                title = f"## Budget {budget:,}, {rows[0][1].sessions} sessions {group}"
                parts.append(f"{title}\n\n{markdown_of(rows, dict(zip(COLUMNS, COLUMNS, strict=True)))}")
    about = f"{len(sizes)} sessions of {min(sizes.values()):,} to {max(sizes.values()):,} tokens.\n\n"
    notes = notes_of(__doc__, "saved")
    data = {
        "sessions": [{"session": name, "tokens": sizes[name]} for name in sorted(sizes)],
        "all": overall,
        "groups": [told_of(one) for one in groups],
    }
    write_results(folder, "savings", data, "Savings", "\n\n".join([about + notes.strip(), *parts]))
    try:
        draw(runs, systems, budgets[0], folder)
    except ImportError:
        print(MISSING, file=sys.stderr)


def told_of(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group as JSON-like data."""
    return {**{key: value for key, value in group.items() if key != "of"}, "totals": asdict(group["of"])}


def parse_options() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of recorded sessions")
    parser.add_argument("--probes", type=Path, help="folder of more probes for them, a .json file a session")
    parser.add_argument("--budget", type=int, nargs="+", default=[16_000], help="tokens (default 16000)")
    parser.add_argument("--system", nargs="+", choices=list(ALL_SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--sessions", default="*", help="pattern of file/id, for example 'tau*'")
    parser.add_argument("--min-tokens", type=int, default=0, help="of a session, to take part")
    parser.add_argument("--max-tokens", type=int, default=sys.maxsize)
    parser.add_argument("--limit", type=int, help="take the first so many sessions that match the pattern")
    parser.add_argument("--include", nargs="+", choices=list(LEFT_OUT), default=[], help="else left out")
    parser.add_argument("--files", action="store_true", help="let ours store in files, not in memory")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--json", type=Path, help="write the totals of groups and sessions to this file")
    parser.add_argument("--turns", action="store_true", help="write every turn there, too")
    parser.add_argument("--results", type=Path, help="folder for savings.json, savings.md and savings.png")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    options.system = leave_out_missing(options.system)
    began = time.perf_counter()
    try:
        sets = [] if options.probes is None else read_probe_sets(options.probes)
        found = read_sessions(options.data, options.sessions, set(options.include), sets)
        sessions = list(found)[: options.limit]
    except ProbeError as error:
        print(error, file=sys.stderr)
        return 2
    run = partial(
        run_session,
        systems=options.system,
        budgets=options.budget,
        least=options.min_tokens,
        most=options.max_tokens,
        files=options.files,
    )
    results = sorted(map_sessions(run, sessions, options.jobs), key=lambda result: result[1].session)
    if not results:
        return report_none(options.data)
    groups = report(results, options.system, options.budget)
    print(f"\n{time.perf_counter() - began:.0f} s")
    if options.results:
        write_report(options.results, results, groups, options.system, options.budget)
    if options.json:
        of_sessions = []
        for tokens, of_one in results:
            told = of_one.to_dict()
            if not options.turns:
                del told["turns"]
            of_sessions.append({"tokens": tokens, **told})
        options.json.write_text(
            json.dumps({"groups": [told_of(one) for one in groups], "sessions": of_sessions}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
