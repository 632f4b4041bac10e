"""What compressing saves, what it costs, and what it loses: systems over recorded sessions.

    python -m benchmarks.sessions build/sessions
    python benchmarks/savings.py [--data DIR] [--budget N ...] [--system NAME ...] [--jobs N] [--results OUT]

`DIR` (where the first command writes sample sessions) holds `*.jsonl.gz` or `*.jsonl`, a recorded session a
line: `{"id": ..., "messages": [chat dicts]}`. Before each recorded assistant message every system is asked
what it would send; what it sends is judged as `context_compressor.measure` says. Prints a table for each
budget and size of sessions:

- saved: tokens that requests cost less than the raw history; peak: tokens of the largest request; over,
  invalid: turns above the budget, or that a provider would refuse;
- cost: of requests and summaries to that of the raw history, a token in the prefix shared with the request
  before at a tenth; as spent, and as if a model had written every summary;
- far, near known: identifiers that the recorded assistant went on to use and that the view makes known, by
  whether the last 12 messages named them; far rec.: the same with what the view's refs lead to;
- read back: tokens that the cheapest read-back of what is not known costs (median, 90th percentile), and how
  much of it nothing shows;
- ms: what a turn takes, summaries apart (median, 99th percentile); stored: texts in the stores at the end.
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
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from fnmatch import fnmatch
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TextIO, TypeVar

from peers import PEER_SYSTEMS, leave_out_missing
from reporting import make_parser, markdown_table, notes_of, write_results
from savings_chart import MISSING, draw

from context_compressor import FileOffloadStore, TiktokenCounter
from context_compressor.measure.chats import CachedCounter
from context_compressor.measure.protocol import System
from context_compressor.measure.recording import Recording
from context_compressor.measure.replay import replay
from context_compressor.measure.results import Replay, Totals, total
from context_compressor.measure.systems import SYSTEMS, Ours

DEFAULT_DATA = Path(__file__).resolve().parents[1] / "build" / "sessions"
LEFT_OUT = {"shapes": "shapes/*", "longmemeval_s": "longmemeval_s/*", "windows": "*/pi/pi-refactor-window*"}
"""What is left out unless asked for, by patterns of file and id: odd message forms, which are no sessions;
chat without tools; and parts of a session that is there as a whole, which would count twice."""
ALL_SYSTEMS: dict[str, Callable[[int, CachedCounter], System]] = {**SYSTEMS, **PEER_SYSTEMS}
"""Those of this library, and the peers: `make peers` installs them."""
GROUPS = (("above 100,000 tokens", 100_000), ("24,000 to 100,000 tokens", 24_000), ("below", 0))
"""Groups of sessions by the tokens of their messages, and what each has at least."""

T = TypeVar("T")
Session = tuple[str, list[dict[str, Any]]]
Result = tuple[int, Replay]
"""Tokens of a session, and a replay of it."""


def read_sessions(folder: Path, pattern: str, included: set[str]) -> Iterator[Session]:
    """Yield recorded sessions, each named `file/id`, whose name matches the pattern."""
    left_out = [glob for name, glob in LEFT_OUT.items() if name not in included]
    for path in sorted([*folder.glob("*.jsonl.gz"), *folder.glob("*.jsonl")]):
        file = path.name.split(".jsonl")[0]
        if f"{file}/*" in left_out:
            continue
        with open_text(path) as lines:
            for line in lines:
                data = json.loads(line)
                name = f"{file}/{data['id']}"
                if fnmatch(name, pattern) and not any(fnmatch(name, glob) for glob in left_out):
                    yield name, data["messages"]


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
    ordered = sorted(sessions, key=lambda session: -len(session[1]))
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
    name, messages = session
    recording = Recording(messages, COUNTER, name)
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
    "system", "saved", "peak", "over", "invalid", "cost", "as if model", "far known", "near known",
    "far rec.", "read back", "unanswered", "ms p50/p99", "stored",
)  # fmt: skip


def row_of(system: str, totals: Totals) -> list[str]:
    """Return a row of the table."""
    recovery, times = totals.recovery, totals.time
    return [
        system,
        percent(totals.saved),
        f"{totals.peak_tokens:,}",
        percent(totals.over / totals.turns),
        percent(totals.invalid / totals.turns),
        number(totals.cost.spent_ratio),
        number(totals.cost.as_if_model_ratio),
        percent(totals.far.known_share),
        percent(totals.near.known_share),
        percent(totals.far.recoverable_share),
        f"{recovery.median_tokens}/{recovery.p90_tokens}" if recovery.answered else "-",
        f"{recovery.unanswered} of {recovery.missing}",
        f"{number(times.median_ms)}/{number(times.p99_ms)}",
        f"{totals.stored_texts}, {totals.stored_bytes / 1e6:.1f} MB" if totals.stored_texts else "-",
    ]


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def print_table(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in [list(COLUMNS), *rows]) for i in range(len(COLUMNS))]
    for row in [list(COLUMNS), *rows]:
        cells = [row[0].ljust(widths[0])] + [
            cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)
        ]
        print("  ".join(cells))


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
            rows = []
            for system in systems:
                runs = [run for run in chosen if run.system == system]
                totals = total(runs)
                rows.append(row_of(system, totals))
                told.append({"budget": budget, "group": group, "system": system, "of": totals})
            print(
                f"\nBudget {budget:,} · {totals.sessions} sessions {group} · {totals.turns:,} turns · "
                f"evidence: {totals.far.all:,} far, {totals.near.all:,} near\n"
            )
            print_table(rows)
    return told


OVERALL_COLUMNS = (
    "system", "saved", "largest request", "turns above budget", "cost", "cost as if model", "far known",
    "far known or read back", "near known",
)  # fmt: skip


def overall_row(system: str, totals: Totals) -> list[str]:
    """Return a row of the table over all sessions."""
    cells = row_of(system, totals)
    return [*cells[:4], *cells[5:8], cells[9], cells[8]]


def write_report(
    folder: Path, results: list[Result], groups: list[dict[str, Any]], systems: list[str], budgets: list[int]
) -> None:
    """Write `savings.json`, `savings.md` and, where matplotlib is there, `savings.png`."""
    sizes = {run.session: tokens for tokens, run in results if run.turns}
    runs = [run for _, run in results if run.turns]
    parts, overall = [], []
    for budget in budgets:
        at_budget = [run for run in runs if run.budget == budget]
        rows = []
        for system in systems:
            totals = total([run for run in at_budget if run.system == system])
            rows.append(overall_row(system, totals))
            overall.append({"budget": budget, "system": system, "totals": asdict(totals)})
        parts.append(f"## Budget {budget:,}, all sessions\n\n{markdown_table(OVERALL_COLUMNS, rows)}")
    for budget in budgets:
        for group, _ in GROUPS:
            found = [one for one in groups if (one["budget"], one["group"]) == (budget, group)]
            if found:
                rows = [row_of(one["system"], one["of"]) for one in found]
                title = f"## Budget {budget:,}, {found[0]['of'].sessions} sessions {group}"
                parts.append(f"{title}\n\n{markdown_table(COLUMNS, rows)}")
    about = f"{len(sizes)} sessions of {min(sizes.values()):,} to {max(sizes.values()):,} tokens.\n\n"
    notes = notes_of(__doc__, "saved")
    data = {
        "sessions": [{"session": name, "tokens": sizes[name]} for name in sorted(sizes)],
        "all": overall,
        "groups": [told_of(one) for one in groups],
    }
    write_results(folder, "savings", data, "Savings", "\n\n".join([about + notes.strip(), *parts]))
    try:
        draw(runs, systems, budgets[0], folder / "savings.png")
    except ImportError:
        print(MISSING, file=sys.stderr)


def told_of(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group as JSON-like data."""
    return {**{key: value for key, value in group.items() if key != "of"}, "totals": asdict(group["of"])}


def parse_options() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of recorded sessions")
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
    sessions = list(read_sessions(options.data, options.sessions, set(options.include)))[: options.limit]
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
