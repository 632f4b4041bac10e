"""What each mechanism contributes: the same replays with one of them off at a time.

    python -m benchmarks.sessions build/sessions
    python benchmarks/ablation.py [--data DIR] [--budget N] [--only NAME ...] [--jobs N] [--results OUT]

`DIR` holds recorded sessions as for `savings.py`, whose groups, left-out sessions and columns these are, but
for events: turns whose request does not begin with the one before. The first row of a table has everything
on; the others lack one mechanism each:

- early-events: events within the budget, where that is cheaper; without, only the budget asks for them;
- all-at-once: an event summarises everything but the recent messages; without, it stops at its target;
- room-first: recent messages leave where the next event would otherwise follow before it pays; without, never
  but for the budget;
- index: the index of artifacts; without, all of a segment's room is for prose;
- requests-and-outcomes: lines of the index about what the user asked for and what calls came to;
- said-once: what other segments and user messages name is not named in an index again;
- named-again: but what a segment before has from another tool; without, nothing is;
- whole-texts: an index reads texts that had left the view before; without, it reads their stubs;
- abridging: a model reads previews of long results; without, all of what leaves ("as if model" only);
- arrivals: large results are compacted as they arrive, however recent;
- first-look: the first stub of such a result shows an eighth of it; without, as much as any other;
- uses: how often the agent has named something, in all that left, ranks it in every later index; without, in
  what leaves at once alone;
- large-segments: segments may hold a third of the room before they merge; without, a quarter;
- growing-share: of a long history they may hold more.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from growth import Unread, count_events
from reporting import make_parser, markdown_table, write_results
from savings import (
    COUNTER,
    DEFAULT_DATA,
    GROUPS,
    Session,
    group_of,
    map_sessions,
    percent,
    read_sessions,
    report_none,
)

from context_compressor import CompressionConfig, Msg
from context_compressor.compression.draft import Draft
from context_compressor.compression.redaction import shown_message
from context_compressor.compression.units import Unit
from context_compressor.compression.view import ViewItem
from context_compressor.measure.recording import Recording
from context_compressor.measure.replay import replay
from context_compressor.measure.results import Replay, total
from context_compressor.memory.upkeep import Upkeep
from context_compressor.messages.parts import PartPath
from context_compressor.summarizers.extracts.artifacts import Artifacts
from context_compressor.summarizers.identifiers.uses import Uses

COLUMNS = ("without", "saved", "cost", "as if model", "far known", "near known", "events")
ENGINE = "context_compressor.compression.engine"
SEGMENTS = "context_compressor.compression.segmenting"
MATERIAL = "context_compressor.compression.material"
DRAFT = "context_compressor.compression.draft"
ARTIFACTS = "context_compressor.summarizers.extracts.artifacts"
TOLD = "context_compressor.summarizers.extracts.index.ToldNames"
compress = Draft.compress


def compress_to_target(draft: Draft, candidates: Iterable[Unit], goal: int) -> None:
    """Stop at the target where the planner asks for everything."""
    compress(draft, candidates, goal or draft.target)


class ShowStubbed:
    """Show a message with its stubs also where the engine, right after, asks for it whole."""

    def __init__(self) -> None:
        self._source: Msg | None = None
        self._shown: Msg | None = None

    def __call__(self, source: Msg, stubs: Mapping[PartPath, str], *others: Any) -> Msg:
        if stubs or source is not self._source or self._shown is None:
            self._source, self._shown = source, shown_message(source, stubs, *others)
        return self._shown


def tokens_whole(items: Sequence[ViewItem], *_: Any, **__: Any) -> int:
    return sum(item.tokens for item in items)


async def no_uses(_upkeep: Upkeep) -> Uses:
    return Uses()


@dataclass(frozen=True, slots=True)
class Off:
    """How a mechanism is switched off: what is set in the config, and what is put in the place of names."""

    config: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, Any] = field(default_factory=dict)


NOTHING = "nothing"
MECHANISMS = {
    NOTHING: Off(),
    "early-events": Off({"cached_price": 0.0}),
    "all-at-once": Off(names={f"{DRAFT}.Draft.compress": compress_to_target}),
    "room-first": Off({"keep_recent_count": 10}),
    "index": Off(
        names={f"{SEGMENTS}.PROSE_SHARE": 1.0, f"{SEGMENTS}.index_artifacts": lambda *_, **__: Artifacts()}
    ),
    "requests-and-outcomes": Off(names={f"{ARTIFACTS}.STATE_SHARE": 0.0, f"{ARTIFACTS}._WISHES_SHARE": 0.0}),
    "said-once": Off(
        names={f"{ENGINE}.identifiers_in_view": lambda _: frozenset(), f"{TOLD}.covers": lambda *_: False}
    ),
    "named-again": Off(names={f"{TOLD}.covers": lambda told, name, _: name in told._labels}),
    "whole-texts": Off(names={f"{MATERIAL}.shown_message": ShowStubbed()}),
    "abridging": Off(names={f"{SEGMENTS}.tokens_read": tokens_whole}),
    "arrivals": Off({"arrival_ratio": 1.0}),
    "first-look": Off(names={"context_compressor.compression.stub_draft.MOST_PREVIEWS": 1}),
    "uses": Off(names={"context_compressor.memory.upkeep.Upkeep.uses": no_uses}),
    "large-segments": Off(names={f"{DRAFT}.SEGMENT_SHARE": 0.25}),
    "growing-share": Off(names={f"{DRAFT}.SHARE_PER_DOUBLING": 0.0}),
}


@dataclass(frozen=True, slots=True)
class Run:
    """The replay of a session of so many tokens without a mechanism."""

    without: str
    tokens: int
    replay: Replay


def run_session(session: Session, *, names: Sequence[str], budget: int, least: int) -> list[Run]:
    """Replay a session without each of the mechanisms in turn; not at all if it is too short."""
    name, messages = session
    recording = Recording(messages, COUNTER, name)
    if recording.total_tokens < least:
        return []
    return [
        Run(without, recording.total_tokens, replay_without(MECHANISMS[without], recording, budget))
        for without in names
    ]


def replay_without(off: Off, recording: Recording, budget: int) -> Replay:
    config = CompressionConfig(max_total_tokens=budget, **off.config)
    with ExitStack() as patches:
        for name, value in off.names.items():
            patches.enter_context(patch(name, value))
        system = Unread(budget, recording.counter, config=config)
        return asyncio.run(replay(recording, system, budget=budget))


def row_of(without: str, replays: Sequence[Replay]) -> list[str]:
    """Return a row of the table."""
    totals = total(replays)
    cost = totals.cost
    return [
        without,
        percent(totals.saved),
        *("-" if ratio is None else f"{ratio:.3f}" for ratio in (cost.spent_ratio, cost.as_if_model_ratio)),
        percent(totals.far.known_share),
        percent(totals.near.known_share),
        f"{sum(count_events(one.turns) for one in replays):,}",
    ]


def report(runs: Sequence[Run], names: Sequence[str]) -> tuple[str, list[dict[str, Any]]]:
    """Return the tables, and what they are made from."""
    tables, told = [], []
    for group, _ in GROUPS:
        chosen = [run for run in runs if group_of(run.tokens) == group]
        replays = {name: [run.replay for run in chosen if run.without == name] for name in names}
        if not chosen:
            continue
        totals = total(replays[names[0]])
        title = f"{totals.sessions} sessions {group} · {totals.turns:,} turns"
        table = markdown_table(COLUMNS, [row_of(name, replays[name]) for name in names])
        tables.append(f"{title}\n\n{table}")
        for name in names:
            events = sum(count_events(one.turns) for one in replays[name])
            figures = {"events": events, "totals": asdict(total(replays[name]))}
            told.append({"group": group, "without": name, **figures})
    return "\n\n".join(tables), told


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of recorded sessions")
    parser.add_argument("--budget", type=int, default=16_000, help="tokens (default 16000)")
    parser.add_argument(
        "--only", nargs="+", choices=list(MECHANISMS), default=list(MECHANISMS), metavar="NAME",
        help=f"beside everything on, only without these: {', '.join(list(MECHANISMS)[1:])}",
    )  # fmt: skip
    parser.add_argument("--sessions", default="*", help="pattern of file/id, for example 'code*'")
    parser.add_argument("--min-tokens", type=int, default=24_000, help="of a session (default 24000)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--results", type=Path, help="folder to write ablation.json and ablation.md to")
    options = parser.parse_args()
    began = time.perf_counter()
    names = [name for name in MECHANISMS if name == NOTHING or name in options.only]
    sessions = list(read_sessions(options.data, options.sessions, set()))
    run = partial(run_session, names=names, budget=options.budget, least=options.min_tokens)
    runs = map_sessions(run, sessions, options.jobs)
    if not runs:
        return report_none(options.data)
    tables, told = report(runs, names)
    print(f"Budget {options.budget:,}\n\n{tables}\n\n{time.perf_counter() - began:.0f} s")
    if options.results:
        notes = (__doc__ or "").partition("The first row")
        data = {"budget": options.budget, "groups": told}
        write_results(options.results, "ablation", data, "Ablation", f"{tables}\n\n{''.join(notes[1:])}")
    bad = {one.without for one in runs if any(turn.problems or turn.is_over for turn in one.replay.turns)}
    for name in names:
        if name in bad:
            print(f"without {name}: views above the budget, or that a provider would refuse", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
