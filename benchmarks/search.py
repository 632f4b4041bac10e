"""How well, how fast and in how much room a history is searched, on recorded sessions.

    python -m benchmarks.sessions build/sessions
    python benchmarks/search.py [--data DIR] [--tokens N] [--results OUT]

`DIR` holds recorded sessions as for `savings.py`. Questions are drawn from them with a fixed seed, three a
session, but 30 of Chinese and 45 of statements, for which there are few sessions. Each has one answer, the
message that it was drawn from; a text that is there twice is not drawn from:

- names: a name (path, id, something with a digit, an underscore, a hump) of the message, and two words of
  five letters or more that stand near it; of sessions without Chinese;
- Chinese: a name, or the first two to four characters of a run of Chinese, Japanese or Korean, and the last
  two or three of two runs near it; of sessions with 500 such characters or more;
- statements: of a sentence in which a user speaks of himself, three words of four letters or more in other
  order and other number, behind the beginning of a question and before a word that need not be in it; of the
  sessions with evidence, as they are chats;
- latest: a name alone that three messages or more hold; the answer is the last of them.

MRR: the mean of 1 / rank of the answer, messages counted once, 0 beyond rank 20; first, in 5: how often it
is there. BM25: the same questions put to a plain FTS5 table (porter, unicode61, the words joined by OR), a
row a message or a row a passage, whichever has the higher MRR. Evidence: of the sessions that carry a
question and where its evidence is, how often one of the messages there is in the first 5.

Size: of the index file to the texts in UTF-8, of all sessions together; largest: of a session of 50,000 bytes
or more. Time: of one session, all sessions joined, of so many tokens (characters / 4): indexing; a search,
the median and the slowest of 80 names and statements; to read: the same to the time it takes to read the rows
of a plain SQLite table of its texts; an update where nothing is new, and where one message is, here and in a
tenth of the session.
"""

from __future__ import annotations

import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from reporting import make_parser, markdown_table, notes_of, write_results
from savings import DEFAULT_DATA, report_none
from search_questions import (
    DRAWN,
    SEED,
    Session,
    draw,
    draw_names,
    draw_statements,
    history_of,
    read_sessions,
    reader_of,
)

from context_compressor.search.hits import Document, split_passages
from context_compressor.search.index import SearchIndex

DEPTH = 20
LARGE_BYTES = 50_000


class Ranks(NamedTuple):
    ours: list[int | None]
    messages: list[int | None]
    passages: list[int | None]


class Plain:
    """A plain FTS5 table with its own BM25."""

    def __init__(self, rows: Iterable[tuple[str, str]]) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute(
            "CREATE VIRTUAL TABLE t USING fts5(key UNINDEXED, x, tokenize='porter unicode61')"
        )
        self.connection.executemany("INSERT INTO t VALUES (?, ?)", rows)

    def search(self, question: str) -> list[str]:
        words = " OR ".join(f'"{word}"' for word in question.replace('"', " ").split())
        found = self.connection.execute(
            "SELECT key FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT 200", (words,)
        )
        return list(dict.fromkeys(key for (key,) in found))


def plain_messages(documents: Sequence[Document]) -> Plain:
    texts: dict[str, list[str]] = {}
    for one in documents:
        texts.setdefault(one.key, []).append(one.text)
    return Plain((key, "\n".join(parts)) for key, parts in texts.items())


def plain_passages(documents: Sequence[Document]) -> Plain:
    return Plain(
        (one.key, one.text[start:end]) for one in documents for start, end in split_passages(one.text)
    )


def rank_of(answer: str, keys: Sequence[str]) -> int | None:
    return keys.index(answer) + 1 if answer in keys[:DEPTH] else None


def ask(index: SearchIndex, documents: Sequence[Document], question: str) -> list[str]:
    found = index.search(question, 3 * DEPTH, history_of(documents), reader_of(documents))
    return list(dict.fromkeys(one.document.key for one in found))


def rank_questions(session: Session) -> dict[str, Ranks]:
    """Return the ranks of the answers, by kind of question."""
    drawn = {kind: draw(kind, session) for kind in DRAWN}
    if not any(drawn.values()):
        return {}
    index = SearchIndex()
    plain = [plain_messages(session.documents), plain_passages(session.documents)]
    ranks = {kind: Ranks([], [], []) for kind in drawn}
    for kind, questions in drawn.items():
        for text, answer in questions:
            keys = [ask(index, session.documents, text), *(one.search(text) for one in plain)]
            for into, found in zip(ranks[kind], keys, strict=True):
                into.append(rank_of(answer, found))
    return ranks


def mean_reciprocal(ranks: Sequence[int | None]) -> float:
    return statistics.mean(1 / rank if rank else 0.0 for rank in ranks)


def share(ranks: Sequence[int | None], most: int) -> float:
    return statistics.mean(rank is not None and rank <= most for rank in ranks)


def report_ranks(sessions: Sequence[Session]) -> dict[str, dict[str, float]]:
    every = {kind: Ranks([], [], []) for kind in DRAWN}
    for session in sessions:
        for kind, ranks in rank_questions(session).items():
            for into, more in zip(every[kind], ranks, strict=True):
                into += more
    told = {}
    for kind, ranks in every.items():
        if ranks.ours:
            plain = max((ranks.messages, ranks.passages), key=mean_reciprocal)
            told[kind] = {
                "questions": len(ranks.ours),
                **{f"{name}_ours": measured(ranks.ours) for name, measured in MEASURES.items()},
                **{f"{name}_bm25": measured(plain) for name, measured in MEASURES.items()},
            }
    return told


MEASURES: dict[str, Callable[[Sequence[int | None]], float]] = {
    "mrr": mean_reciprocal,
    "first": lambda ranks: share(ranks, 1),
    "in_5": lambda ranks: share(ranks, 5),
}


def find_evidence(session: Session) -> int | None:
    """Return the rank of the first message of the evidence."""
    keys = ask(SearchIndex(), session.documents, session.question or "")
    ranks = [
        rank
        for rank, key in enumerate(keys, 1)
        if any(start <= int(key) < end for start, end in session.evidence)
    ]
    return ranks[0] if ranks else None


# Size and time


def index_size(session: Session, folder: Path) -> int:
    path = folder / "size.sqlite3"
    index = SearchIndex(path)
    index.update(history_of(session.documents), reader_of(session.documents))
    index.close()
    size = path.stat().st_size
    path.unlink()
    return size


def report_sizes(sessions: Sequence[Session], folder: Path) -> dict[str, dict[str, float]]:
    told = {}
    for kind in ("English", "Chinese"):
        chosen = [one for one in sessions if one.is_cjk == (kind == "Chinese") and one.size]
        sizes = [(index_size(session, folder), session.size) for session in chosen]
        if sizes:
            large = [size / text for size, text in sizes if text >= LARGE_BYTES] or [0.0]
            whole = sum(size for size, _ in sizes) / sum(text for _, text in sizes)
            told[kind] = {"sessions": len(sizes), "share": whole, "largest_share": max(large)}
    return told


def join(sessions: Sequence[Session], tokens: int) -> list[Document]:
    """Return the texts of sessions end to end, of so many tokens."""
    joined: list[Document] = []
    characters = 0
    for number, session in enumerate(random.Random(SEED).sample(sessions, len(sessions))):
        for document in session.documents:
            joined.append(replace(document, key=f"{number}.{document.key}"))
            characters += len(document.text)
            if characters >= 4 * tokens:
                return joined
    return joined


def seconds_of(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def report_times(sessions: Sequence[Session], tokens: int, folder: Path) -> dict[str, float]:
    documents = join(sessions, tokens)
    read, history = reader_of(documents), history_of(documents)
    index = SearchIndex(folder / "times.sqlite3")
    tokens = sum(len(one.text) for one in documents) // 4
    told: dict[str, float] = {"tokens": tokens, "messages": len(history)}
    told["indexing"] = seconds_of(lambda: index.update(history, read))
    told["read"] = read_seconds(documents, folder)
    questions = list(islice(draw_names(documents[::7], random.Random(SEED)), 40))
    questions += list(islice(draw_statements(documents, random.Random(SEED)), 40))
    searches = [seconds_of(lambda: index.search(one.text, 5, history, read)) for one in questions]  # noqa: B023
    told |= {"search": statistics.median(searches), "slowest": max(searches)}
    told |= {
        "nothing_new": statistics.median(seconds_of(lambda: index.update(history, read)) for _ in range(9))
    }
    told["one_new"] = update_seconds(index, documents)
    index.close()
    small = SearchIndex(folder / "small.sqlite3")
    told["one_new_small"] = update_seconds(small, documents[: len(documents) // 10])
    small.close()
    return told


def read_seconds(documents: Sequence[Document], folder: Path) -> float:
    """Return the seconds it takes to read all rows of a plain table of texts, at best."""
    connection = sqlite3.connect(folder / "plain.sqlite3")
    connection.execute("CREATE TABLE texts (key TEXT, part INTEGER, role TEXT, tool TEXT, text TEXT)")
    rows = ((one.key, one.part, one.role, one.tool, one.text) for one in documents)
    connection.executemany("INSERT INTO texts VALUES (?, ?, ?, ?, ?)", rows)
    connection.commit()
    seconds = min(seconds_of(lambda: connection.execute("SELECT * FROM texts").fetchall()) for _ in range(9))
    connection.close()
    return seconds


def update_seconds(index: SearchIndex, documents: Sequence[Document]) -> float:
    """Return the seconds, the median of nine, that an update takes when one message is new."""
    documents = list(documents)
    index.update(history_of(documents), reader_of(documents))
    seconds = []
    for number in range(9):
        documents.append(
            Document(f"new {number}", 0, "user", None, f"Message {number} is about the weather.")
        )
        history, read = history_of(documents), reader_of(documents)
        seconds.append(seconds_of(lambda: index.update(history, read)))  # noqa: B023
    return statistics.median(seconds)


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of recorded sessions")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="of the session for times")
    parser.add_argument("--results", type=Path, help="folder to write search.json and search.md to")
    options = parser.parse_args()
    began = time.perf_counter()
    sessions = [session for session in read_sessions(options.data) if not session.name.startswith("shapes")]
    if not sessions:
        return report_none(options.data)
    with tempfile.TemporaryDirectory() as name:
        times = report_times(sessions, options.tokens, Path(name))
        sizes = report_sizes(sessions, Path(name))
    ranks = report_ranks(sessions)
    evidence = {one.name: find_evidence(one) for one in sessions if one.question}
    told = [ranks_table(ranks), evidence_line(evidence), sizes_table(sizes), times_table(times)]
    text = "\n\n".join(filter(None, told))
    print(f"{text}\n\n{time.perf_counter() - began:.0f} s")
    if options.results:
        notes = notes_of(__doc__, "names")
        data = {"ranks": ranks, "evidence": evidence, "sizes": sizes, "times": times}
        write_results(options.results, "search", data, "Search", f"{text}\n\n{notes}")
    return 0


def ranks_table(ranks: dict[str, dict[str, float]]) -> str:
    columns = ("questions", "number", "MRR", "BM25", "first", "BM25", "in 5", "BM25")
    rows = [
        [
            kind,
            f"{told['questions']:,}",
            *(f"{told[f'mrr_{name}']:.3f}" for name in ("ours", "bm25")),
            *(f"{told[f'{of}_{name}']:.1%}" for of in ("first", "in_5") for name in ("ours", "bm25")),
        ]
        for kind, told in ranks.items()
    ]
    return markdown_table(columns, rows)


def evidence_line(evidence: dict[str, int | None]) -> str:
    if not evidence:
        return ""
    found = [rank for rank in evidence.values() if rank is not None and rank <= 5]
    told = ", ".join(str(rank) if rank else "none" for rank in evidence.values())
    return f"Evidence: {len(found)} of {len(evidence)} in the first 5; ranks {told}."


def sizes_table(sizes: dict[str, dict[str, float]]) -> str:
    rows = [
        [kind, str(told["sessions"]), f"{told['share']:.0%}", f"{told['largest_share']:.0%}"]
        for kind, told in sizes.items()
    ]
    return markdown_table(("size", "sessions", "index to text", "largest"), rows)


def times_table(times: dict[str, float]) -> str:
    ms = {name: f"{1000 * seconds:.1f} ms" for name, seconds in times.items()}
    rows = [
        ["tokens, messages", f"{times['tokens']:,}, {times['messages']:,}"],
        ["indexing, a million tokens", f"{1e6 * times['indexing'] / times['tokens']:.2f} s"],
        ["reading all rows", ms["read"]],
        ["search (median, most)", f"{ms['search']}, {ms['slowest']}"],
        [
            "to read (median, most)",
            f"{times['search'] / times['read']:.1f}, {times['slowest'] / times['read']:.1f}",
        ],
        ["update, nothing new", ms["nothing_new"]],
        ["update, one message new", ms["one_new"]],
        ["the same, a tenth of the session", ms["one_new_small"]],
    ]
    return markdown_table(("time", ""), rows)


if __name__ == "__main__":
    sys.exit(main())
