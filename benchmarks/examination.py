"""The comparison by readers: what a model can answer from a view alone, ours and peers'.

    OPENAI_API_KEY=... python benchmarks/examination.py --model NAME [--base-url URL] [--notes-model NAME]
        [--data DIR] [--probes DIR] [--system NAME ...] [--budget N] [--cache DIR] [--results OUT]

Any OpenAI-compatible endpoint will do. Each session is replayed by each system up to one place. There the
model reads the view and answers questions, in a request that holds nothing else; in another it grades these
answers, and sees neither the view nor whose it is. `--probes` has questions (as `replay` takes them), and
where they are put; without, the model writes 16 for each session, from the history that fits `--window`.
`ours+tools` is our view with the read-back tools, at most `--calls` for a question; `deepagents+tools` and
`reme+tools` are these peers with theirs; the other peers give their agent none. Peers are installed by
`make peers`. `--notes-model` writes notes and the peers' summaries (theirs by their own prompts); without it
rules answer for all, so that only what systems do with them is compared. Answers are kept in `--cache`: a run
that broke off goes on, and the same run costs nothing.

- graded: the mean of 1, 0.5 and 0 over all questions, with the interval of 95 % by sessions (bootstrap);
- told: of how many questions the view holds the keys, which asks no model;
- calls, tokens: of tools, for a question; view: mean tokens of the views that were read.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from peers import PEER_SYSTEMS, READING_SYSTEMS, leave_out_missing, make_peer
from reporting import make_parser, markdown_table, notes_of, percent, print_table, write_results
from savings import COUNTER, DEFAULT_DATA, Session, read_sessions, report_none

from context_compressor import OpenAISummarizer
from context_compressor.lab.measure import (
    KINDS,
    SYSTEMS,
    WITH_TOOLS,
    CachedCounter,
    ExaminationError,
    Examined,
    Examiner,
    Graded,
    Ours,
    ProbeError,
    Recording,
    System,
    choose_cut,
    examine,
    read_probe_sets,
)

ROUNDS = 2_000
"""Of the bootstrap."""
COLUMNS = ("system", "graded", "95 %", "told", *KINDS, "view", "calls", "tokens")
NOTES_PROMPT = "You write summaries of an agent's conversation, as you are asked to."

Factories = dict[str, Callable[[int, CachedCounter], System]]


def make_factories(notes: Examiner | None, base_url: str | None) -> Factories:
    """Return what makes each system; with a model for notes, all of them ask it."""
    if notes is None:
        return {**SYSTEMS, **PEER_SYSTEMS, **READING_SYSTEMS}

    async def ask(prompt: str) -> str:
        return await notes.ask("writer of summaries", NOTES_PROMPT, prompt, str)

    def make_ours(budget: int, counter: CachedCounter) -> System:
        return Ours(budget, counter, summarizer=OpenAISummarizer(notes.model, base_url=base_url))

    return {
        **SYSTEMS,
        **{name: partial(make_peer, name, ask=ask) for name in (*PEER_SYSTEMS, *READING_SYSTEMS)},
        "ours": make_ours,
    }


def place_of(session: Session, recording: Recording, window: int) -> int | None:
    """Return where a session is examined: where its newest probes are, or as late as the writer can read."""
    return max((probe.at for probe in session.probes), default=None) or choose_cut(recording, window)


async def examine_all(
    sessions: Sequence[Session], examiner: Examiner, factories: Factories, options: argparse.Namespace
) -> list[Examined]:
    """Return what was found; what could not be examined is told on stderr."""
    done = []
    for session in sessions:
        recording = Recording(session.messages, COUNTER, session.name, session.probes)
        cut = place_of(session, recording, options.window)
        if cut is None or sum(recording.tokens[:cut]) <= options.budget:
            print(f"{session.name}: fits the budget", file=sys.stderr)
            continue
        try:
            done.append(
                await examine(
                    recording,
                    cut,
                    examiner,
                    budget=options.budget,
                    systems=options.system,
                    most_calls=options.calls,
                    factories=factories,
                )
            )
        except ExaminationError as error:
            print(f"{session.name}: {error}", file=sys.stderr)
    return done


def interval_of(sessions: Sequence[Sequence[Graded]]) -> tuple[float, float]:
    """Return the interval of 95 % of the mean grade: sessions are drawn with repetition."""
    draw = random.Random(0)
    means = sorted(
        fmean(one.grade for session in draw.choices(sessions, k=len(sessions)) for one in session)
        for _ in range(ROUNDS)
    )
    return means[int(0.025 * ROUNDS)], means[int(0.975 * ROUNDS)]


def row_of(system: str, found: Sequence[Examined]) -> list[str]:
    """Return a row of the table."""
    sessions = [one.systems[system][1] for one in found]
    graded = [one for session in sessions for one in session]
    low, high = interval_of(sessions)
    kinds = [[one.grade for one in graded if one.probe.kind == kind] for kind in KINDS]
    views = [one.systems[system][0].asked[0].view_tokens for one in found]
    has_tools = system.endswith("+tools")
    return [
        system,
        percent(fmean(one.grade for one in graded)),
        f"{100 * low:.0f}-{100 * high:.0f}",
        percent(fmean(one.is_told for one in graded)),
        *(percent(fmean(grades)) if grades else "-" for grades in kinds),
        f"{fmean(views):,.0f}",
        f"{fmean(one.given.calls for one in graded):.2f}" if has_tools else "-",
        f"{fmean(one.given.tokens for one in graded):,.0f}" if has_tools else "-",
    ]


async def run(options: argparse.Namespace, sessions: Sequence[Session]) -> list[Examined]:
    """Ask the model all there is to ask."""
    notes = None
    if options.notes_model is not None:
        notes = Examiner(options.notes_model, options.cache, options.base_url)
    async with Examiner(options.model, options.cache, options.base_url) as examiner:
        try:
            return await examine_all(sessions, examiner, make_factories(notes, options.base_url), options)
        finally:
            if notes is not None:
                await notes.__aexit__()


def parse_options() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--model", required=True, help="reads and grades, and writes questions")
    parser.add_argument("--notes-model", help="writes notes and summaries (default: rules)")
    parser.add_argument("--base-url", help="of the endpoint (default: OPENAI_BASE_URL, or OpenAI's)")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of recorded sessions")
    parser.add_argument("--sessions", default="*", help="pattern of names (default all)")
    parser.add_argument("--limit", type=int, help="the first so many sessions")
    parser.add_argument("--probes", type=Path, help="folder of questions, a set for a session each")
    parser.add_argument("--budget", type=int, default=16_000, help="tokens of a view (default 16,000)")
    parser.add_argument("--window", type=int, default=150_000, help="what the writer of questions may read")
    parser.add_argument("--calls", type=int, default=5, help="of tools, for a question (default 5)")
    parser.add_argument(
        "--system",
        nargs="+",
        default=["sliding", "ours", WITH_TOOLS],
        help=f"of {', '.join((*PEER_SYSTEMS, *READING_SYSTEMS))}, ...",
    )
    parser.add_argument(
        "--cache", type=Path, default=Path("build/examination"), help="where answers are kept"
    )
    parser.add_argument("--results", type=Path, help="folder for examination.json and examination.md")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    options.system = leave_out_missing(options.system)
    try:
        sets = [] if options.probes is None else read_probe_sets(options.probes)
        found = list(read_sessions(options.data, options.sessions, set(), sets))
    except ProbeError as error:
        print(error, file=sys.stderr)
        return 2
    chosen = [session for session in found if not sets or session.probes][: options.limit]
    if not chosen:
        return report_none(options.data)
    examined = asyncio.run(run(options, chosen))
    if not examined:
        print("No session could be examined.", file=sys.stderr)
        return 1
    rows = [row_of(system, examined) for system in options.system]
    print_table(COLUMNS, rows)
    if options.results:
        about = f"{len(examined)} sessions, budget {options.budget:,}; read and graded by {options.model}, "
        about += f"notes by {options.notes_model or 'rules'}.\n\n{notes_of(__doc__, 'graded')}"
        answers = {
            one.name: {name: [graded.to_dict() for graded in read] for name, (_, read) in one.systems.items()}
            for one in examined
        }
        text = f"{about}\n\n{markdown_table(COLUMNS, rows)}"
        write_results(options.results, "examination", {"sessions": answers}, "Examination", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
