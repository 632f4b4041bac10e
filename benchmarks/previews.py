"""What previews tell of the lines that the agent quotes later, kind by kind, beside plain head and tail.

    python benchmarks/previews.py [--data DIR] [--tokens 200]

DIR holds `*.jsonl.gz`, a session a line, each with OpenAI `messages`; without it, texts made here. Of every
tool result of more than three times the tokens of a preview (each text once), the *needed* runs are taken: at
least 20 characters of one line, half of them letters or digits, that a later assistant message or call
repeats and no earlier message has. Left out is what frames results: what stands in the first or last three
lines of another result of the session, too. Escapes of JSON are resolved on all sides.

- outputs, sessions: how many results of the kind have a needed run, and in how many sessions they stand;
- ours, plain: the mean over these results of the part of their needed runs that the preview shows, by the
  kind's own preview and by head and tail alone, both made for the same tokens (a run shown in part counts in
  part);
- ours tokens, plain tokens: what they took of them;
- difference: with its 95 % interval, by drawing sessions 2,000 times with a fixed seed.

Exit code 2 where there is no data.
"""

from __future__ import annotations

import gzip
import json
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reporting import make_parser, markdown_table

from context_compressor import TiktokenCounter
from context_compressor.lab.measure import RESULT_ROLES, content_text, message_text
from context_compressor.offload.previews.making import preview, recognise

RUN_CHARACTERS = 20
EDGE_LINES = 3
RESAMPLES = 2_000
COUNTER = TiktokenCounter()
ESCAPES = {"\\n": "\n", "\\t": "\t", '\\"': '"'}


class Case(NamedTuple):
    """A large tool result, and the runs of it that the agent repeats later."""

    session: str
    text: str
    tokens: int
    needed: Sequence[frozenset[str]]
    """The windows of each."""


class Score(NamedTuple):
    session: str
    ours: float
    plain: float
    ours_tokens: int
    plain_tokens: int


def resolved(text: str) -> str:
    for written, meant in ESCAPES.items():
        text = text.replace(written, meant)
    return text


def windows_of(line: str) -> list[str]:
    return [line[at : at + RUN_CHARACTERS] for at in range(len(line) - RUN_CHARACTERS + 1)]


def all_windows(text: str) -> Iterator[str]:
    for line in resolved(text).split("\n"):
        yield from windows_of(line)


def edges_of(text: str) -> str:
    lines = text.strip().split("\n")
    return "\n".join((*lines[:EDGE_LINES], *lines[EDGE_LINES:][-EDGE_LINES:]))


def needed_runs(
    text: str, at: int, first: Mapping[str, int], last: Mapping[str, int]
) -> list[frozenset[str]]:
    """Return the windows of each run of message `at` that is new there and that an assistant repeats."""
    runs: dict[frozenset[str], None] = {}
    for line in dict.fromkeys(resolved(text).split("\n")):
        run: list[str] = []
        for window in (*windows_of(line), ""):
            if last.get(window, -1) > at and first[window] == at:
                run.append(window)
            elif run:
                said = run[0] + "".join(following[-1] for following in run[1:])
                if 2 * sum(map(str.isalnum, said)) >= len(said):
                    runs[frozenset(run)] = None
                run = []
    return list(runs)


def read_cases(sessions: Iterator[tuple[str, list[dict[str, Any]]]], min_tokens: int) -> Iterator[Case]:
    seen: set[str] = set()
    for name, messages in sessions:
        texts = [message_text(message) for message in messages]
        last = {
            window: at
            for at, message in enumerate(messages)
            if message["role"] == "assistant"
            for window in all_windows(texts[at])
        }
        first: dict[str, int] = {}
        framing: dict[str, int] = {}
        for at, text in enumerate(texts):
            for window in all_windows(text):
                if window in last:
                    first.setdefault(window, at)
            if messages[at]["role"] in RESULT_ROLES:
                for window in set(all_windows(edges_of(text))):
                    framing[window] = framing.get(window, 0) + 1
        for window, times in framing.items():
            if times > 1:
                last.pop(window, None)
        for at, message in enumerate(messages):
            text = content_text(message) if message["role"] in RESULT_ROLES else ""
            if len(text) <= min_tokens or text in seen or (tokens := COUNTER.count_text(text)) <= min_tokens:
                continue
            seen.add(text)
            if needed := needed_runs(text, at, first, last):
                yield Case(name, text, tokens, needed)


def recorded(directory: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for path in sorted(directory.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file):
                yield f"{path.name}:{number}", json.loads(line)["messages"]


def made(rng: random.Random) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield small sessions of made texts, of each kind some, with a quote from anywhere in the text."""
    words = [
        "parcel",
        "depot",
        "route",
        "driver",
        "van",
        "stop",
        "order",
        "label",
        "包裹",
        "仓库",
        "路线",
        "司机",
    ]

    def phrase(count: int) -> str:
        return " ".join(rng.choices(words, k=count))

    def page(rows: Sequence[str]) -> str:
        body = "".join(f"<div class='row'><p>{row}</p></div>\n" for row in rows)
        return f"<!doctype html>\n<html><head><style>p {{}}</style></head><body>\n{body}</body></html>"

    for number in range(40):
        rows = [f"{phrase(5)} {rng.randrange(10**6)}" for _ in range(200)]
        failed = f"error: {phrase(5)} {rng.randrange(10**6)}"
        log = [*rows[:120], failed, *rows[120:]]
        names = [f"{rng.choice(words[:8])}_{n}_{rng.randrange(10**6)}" for n in range(60)]
        code = "\n".join(f"def {name}(parcel, depot):\n    return parcel.{name}\n" for name in names)
        items = [{"id": n, "title": row, "note": phrase(20)} for n, row in enumerate(rows)]
        texts = [
            ("\n".join(log), rng.choice([failed, rng.choice(rows)])),
            (json.dumps({"items": items, "total": 200}), rng.choice(rows[:10])),
            (
                "id,name,weight\n" + "\n".join(row.replace(" ", ",") for row in rows),
                rows[0].replace(" ", ","),
            ),
            (code, f"def {rng.choice(names)}(parcel, depot)"),
            (page(rows), rng.choice(rows[:20])),
        ]
        for kind, (text, quote) in enumerate(texts):
            result = {"role": "tool", "tool_call_id": "a", "content": text}
            yield f"made {number} {kind}", [result, {"role": "assistant", "content": f"I see: {quote}"}]


def score(case: Case, max_tokens: int) -> tuple[str, Score]:
    kind = recognise(case.text)[0]
    told: list[float] = []
    tokens: list[int] = []
    for plain in (False, True):
        shown = preview(
            case.text,
            max_tokens,
            COUNTER.count_text,
            plain=plain,
            characters_per_token=len(case.text) / case.tokens,
        )
        windows = set(all_windows(shown))
        told.append(statistics.mean(len(run & windows) / len(run) for run in case.needed))
        tokens.append(COUNTER.count_text(shown))
        if not plain and kind == "text" and "left out, but for lines with errors:]" in shown:
            kind = "text with errors"
    return kind, Score(case.session, told[0], told[1], tokens[0], tokens[1])


def interval(scores: Sequence[Score]) -> tuple[float, float]:
    """Return the 95 % interval of the mean difference, sessions drawn with replacement."""
    rng = random.Random(0)
    by_session: dict[str, list[float]] = {}
    for one in scores:
        by_session.setdefault(one.session, []).append(one.ours - one.plain)
    groups = list(by_session.values())
    means = sorted(
        statistics.fmean(value for group in rng.choices(groups, k=len(groups)) for value in group)
        for _ in range(RESAMPLES)
    )
    return means[RESAMPLES // 40], means[-RESAMPLES // 40]


def row(kind: str, scores: Sequence[Score]) -> list[str]:
    ours, plain = (
        statistics.fmean(values) for values in zip(*((s.ours, s.plain) for s in scores), strict=True)
    )
    low, high = interval(scores)
    return [
        kind,
        str(len(scores)),
        str(len({s.session for s in scores})),
        f"{ours:.3f}",
        f"{plain:.3f}",
        f"{statistics.fmean(s.ours_tokens for s in scores):.0f}",
        f"{statistics.fmean(s.plain_tokens for s in scores):.0f}",
        f"{ours - plain:+.3f} ({low:+.3f} to {high:+.3f})",
    ]


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, help="a directory of recorded sessions (*.jsonl.gz)")
    parser.add_argument("--tokens", type=int, default=200, help="of a preview")
    arguments = parser.parse_args()
    sessions = made(random.Random(0)) if arguments.data is None else recorded(arguments.data)
    scores: dict[str, list[Score]] = {}
    for case in read_cases(sessions, 3 * arguments.tokens):
        kind, scored = score(case, arguments.tokens)
        scores.setdefault(kind, []).append(scored)
    if not scores:
        print("no tool result that is large enough, and quoted later: nothing to measure", file=sys.stderr)
        return 2
    rows = [row(kind, found) for kind, found in sorted(scores.items(), key=lambda item: -len(item[1]))]
    rows.append(row("all", [one for found in scores.values() for one in found]))
    columns = ["kind", "outputs", "sessions", "ours", "plain", "ours tokens", "plain tokens", "difference"]
    print(markdown_table(columns, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
