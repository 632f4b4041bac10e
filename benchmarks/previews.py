"""What previews show of what the agent uses next, on recorded sessions, by kind of text.

    python benchmarks/previews.py DATA_DIR [--tokens 200] [--half 0|1]

DATA_DIR holds `*.jsonl.gz`, a session a line, each with an `id` and OpenAI `messages`. Of every tool result
above 2,000 tokens (each text once), the identifiers (paths, ids, names with a digit, an underscore, a hump)
are taken that stand in it and in the agent's next three messages, arguments of calls included. The score of a
preview is the part of them that it makes known, as in `savings.py`: that stand in it, with a word within 200
characters that also stands beside them in the whole text:

- pooled: of all identifiers of all results; mean: of the scores of the results;
- ends: head and tail only; plain: what a text of no known kind gets (head, tail, errors, names); kind: what
  its recogniser gives. All three are fitted to the same tokens, and `tok` is what they took of them.

Sessions fall into two halves by the hash of their id: develop on one, judge by the other. Exit code 2 where
there is no data.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reporting import make_parser

from context_compressor import TiktokenCounter
from context_compressor.measure.chats import content_text
from context_compressor.measure.identifiers import identifier_spans, near
from context_compressor.offload.fitting import largest_fitting
from context_compressor.offload.previews import making
from context_compressor.offload.previews.text import show_text

MIN_TOKENS = 2_000
MESSAGES_AHEAD = 3
COUNTER = TiktokenCounter()


class Case(NamedTuple):
    """A large tool result, and the identifiers in it that the agent used next."""

    half: int
    text: str
    tokens: int
    wanted: Mapping[str, frozenset[str]]
    """The words beside each."""


class Score(NamedTuple):
    found: int
    wanted: int
    tokens: int


def used_next(messages: list[dict[str, Any]], after: int) -> str:
    """Return texts and call arguments of the next assistant messages, escapes in arguments resolved."""
    said: list[str] = []
    following = (message for message in messages[after + 1 :] if message["role"] == "assistant")
    for _, message in zip(range(MESSAGES_AHEAD), following, strict=False):
        said.append(content_text(message))
        for call in message.get("tool_calls") or []:
            function = call.get("function") or {}
            said.append(f"{function.get('name')} {function.get('arguments')}")
    return "\n".join(said).replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"')


def read_cases(directory: Path) -> Iterator[Case]:
    seen: set[str] = set()
    for path in sorted(directory.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                session = json.loads(line)
                half = hashlib.sha256(str(session.get("id")).encode()).digest()[0] % 2
                for i, message in enumerate(session["messages"]):
                    text = content_text(message) if message["role"] == "tool" else ""
                    if len(text) < MIN_TOKENS or text in seen:
                        continue
                    tokens = COUNTER.count_text(text)
                    if tokens <= MIN_TOKENS:
                        continue
                    seen.add(text)
                    used = identifier_spans(used_next(session["messages"], i)).keys()
                    spans = identifier_spans(text)
                    wanted = {name: near(text, spans[name]).words for name in spans if name in used}
                    if wanted:
                        yield Case(half, text, tokens, wanted)


def kind_of(text: str) -> str:
    for recognise in making.RECOGNISERS:
        if recognise(text) is not None:
            return recognise.__name__.removeprefix("show_")
    return "(none)"


def ends(case: Case, max_tokens: int) -> str:
    show = show_text(case.text, errors=False)
    guess = max_tokens * len(case.text) // case.tokens
    fitting = largest_fitting(
        lambda size: COUNTER.count_text(show(size)), max_tokens * 16, max_tokens, guess, good_enough=0.9
    )
    return show(fitting)


def of_kind(case: Case, max_tokens: int) -> str:
    return making.preview(
        case.text, max_tokens, COUNTER.count_text, characters_per_token=len(case.text) / case.tokens
    )


def plain(case: Case, max_tokens: int) -> str:
    recognisers = making.RECOGNISERS
    making.RECOGNISERS = {}
    try:
        return of_kind(case, max_tokens)
    finally:
        making.RECOGNISERS = recognisers


MAKERS: dict[str, Callable[[Case, int], str]] = {"ends": ends, "plain": plain, "kind": of_kind}


def score(case: Case, shown: str) -> Score:
    spans = identifier_spans(shown)
    found = sum(
        name in spans and not words.isdisjoint(near(shown, spans[name]).words)
        for name, words in case.wanted.items()
    )
    return Score(found, len(case.wanted), COUNTER.count_text(shown))


def summary(scores: list[Score]) -> str:
    pooled = sum(s.found for s in scores) / sum(s.wanted for s in scores)
    mean = statistics.mean(s.found / s.wanted for s in scores)
    return f"{pooled:.3f} {mean:.3f} {statistics.mean(s.tokens for s in scores):4.0f}"


def report(by_kind: dict[str, list[Case]], max_tokens: int) -> None:
    print(f"\n{max_tokens} tokens          " + "".join(f"{name:>9}{'':9}" for name in MAKERS))
    print(f"{'kind':12}{'cases':>6}  " + "pooled mean  tok  " * len(MAKERS))
    scores = {
        kind: {name: [score(case, make(case, max_tokens)) for case in cases] for name, make in MAKERS.items()}
        for kind, cases in by_kind.items()
    }
    rows = sorted(scores.items(), key=lambda row: -len(by_kind[row[0]]))
    whole = {name: [s for row in scores.values() for s in row[name]] for name in MAKERS}
    for kind, row in [*rows, ("all", whole)]:
        print(f"{kind:12}{len(row['kind']):6}   " + "   ".join(summary(row[name]) for name in MAKERS))


def report_time(cases: list[Case]) -> None:
    """Print how long previews of 200 tokens take, counting included, and how long recognition takes."""
    for name, make in MAKERS.items():
        seconds = []
        for case in cases:
            begin = time.perf_counter()
            make(case, 200)
            seconds.append(time.perf_counter() - begin)
        per_million = sum(seconds) / sum(len(case.text) for case in cases) * 1e9
        print(
            f"{name:6} {statistics.median(seconds) * 1e3:6.2f} ms (median), "
            f"{max(seconds) * 1e3:6.1f} ms (most), {per_million:5.1f} ms per million characters"
        )


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("data", type=Path, help="a directory of recorded sessions (*.jsonl.gz)")
    parser.add_argument("--tokens", type=int, action="append", help="size of a preview (100, 200 and 400)")
    parser.add_argument("--half", type=int, choices=(0, 1), help="only these sessions")
    arguments = parser.parse_args()
    if not any(arguments.data.glob("*.jsonl.gz")):
        print(f"no recorded sessions (*.jsonl.gz) in {arguments.data}: nothing to measure", file=sys.stderr)
        return 2
    cases = [case for case in read_cases(arguments.data) if arguments.half in (None, case.half)]
    if not cases:
        print(f"no tool result above {MIN_TOKENS} tokens in {arguments.data}", file=sys.stderr)
        return 2
    by_kind: dict[str, list[Case]] = {}
    for case in cases:
        by_kind.setdefault(kind_of(case.text), []).append(case)
    for max_tokens in arguments.tokens or (100, 200, 400):
        report(by_kind, max_tokens)
    print()
    report_time(cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
