"""Questions to put to a history, drawn from recorded sessions; `search.py` says of which kinds."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from savings import open_text

from context_compressor.search.hits import Document

SEED = 5
DRAWN_A_SESSION = {"Chinese": 30, "statements": 45}
"""Of the few sessions that they can be drawn from; of others three."""
CJK = re.compile(r"[぀-ヿ㐀-鿿가-힯]")
CJK_RUN = re.compile(r"[぀-ヿ㐀-鿿가-힯]{2,}")
NAME = re.compile(r"[A-Za-z0-9_./:@-]{5,60}")
NAME_LIKE = re.compile(r"[A-Za-z].*[0-9_/]|[a-z][A-Z]|[0-9].*[A-Za-z-]|[A-Za-z]\.[A-Za-z]")
WORD = re.compile(r"[A-Za-z]{4,}")
SENTENCE = re.compile(r"[^.!?\n]{30,250}[.!?]")
OF_ONESELF = re.compile(r"\b(?:I|I'm|I've|my)\b")
DULL = frozenset(
    "about after also"  # noqa: SIM905 (a word a line would be a page)
    " been before being could does from have help here into just know like make more need other some such"
    " than that their them then there these they this think want what when where which while will with would"
    " your".split()
)


class Session(NamedTuple):
    name: str
    documents: list[Document]
    question: str | None
    evidence: list[list[int]]

    @property
    def size(self) -> int:
        return sum(len(one.text.encode("utf-8", "surrogatepass")) for one in self.documents)

    @property
    def is_cjk(self) -> bool:
        return sum(len(CJK.findall(one.text)) for one in self.documents) >= 500


class Question(NamedTuple):
    text: str
    answer: str
    """Key of the message."""


def read_sessions(folder: Path) -> Iterator[Session]:
    for path in sorted([*folder.glob("*.jsonl.gz"), *folder.glob("*.jsonl")]):
        with open_text(path) as lines:
            for line in lines:
                data = json.loads(line)
                meta = data.get("meta") or {}
                documents = list(read_documents(data["messages"]))
                name = f"{path.name.split('.jsonl')[0]}/{data.get('id')}"
                yield Session(name, documents, meta.get("question"), meta.get("answer_message_ranges") or [])


def read_documents(messages: Sequence[dict[str, Any]]) -> Iterator[Document]:
    """Yield the texts of messages and the arguments of their calls; a key is the number of the message."""
    tools: dict[str, str] = {}
    for index, message in enumerate(messages):
        content = message.get("content") or []
        blocks = [{"text": content}] if isinstance(content, str) else content
        texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
        tool = tools.get(str(message.get("tool_call_id")))
        part = 0
        for text in texts:
            yield Document(str(index), part, message["role"], tool, text)
            part += 1
        for call in message.get("tool_calls") or []:
            function = call.get("function") or {}
            name = str(function.get("name"))
            tools[str(call.get("id"))] = name
            yield Document(str(index), part, message["role"], name, str(function.get("arguments")))
            part += 1


def history_of(documents: Iterable[Document]) -> list[tuple[str, str]]:
    return [(key, "") for key in dict.fromkeys(one.key for one in documents)]


def reader_of(documents: Iterable[Document]) -> Callable[[Sequence[str]], list[Document]]:
    by_key: dict[str, list[Document]] = {}
    for document in documents:
        by_key.setdefault(document.key, []).append(document)
    return lambda keys: [document for key in keys for document in by_key[key]]


# Questions


def near(text: str, start: int, end: int, pattern: re.Pattern[str]) -> list[str]:
    """Return what of a pattern stands near a place, nearest first."""
    first, last = max(0, start - 200), end + 200
    places = [(match.start(), match[0]) for match in pattern.finditer(text, first, last)]
    places = [(abs(at - start), word) for at, word in places if not start <= at < end]
    return list(dict.fromkeys(word for _, word in sorted(places)))


def draw_names(documents: Sequence[Document], draw: random.Random) -> Iterator[Question]:
    for document in documents:
        names = [match for match in NAME.finditer(document.text) if is_name(match[0])]
        if names:
            name = draw.choice(names)
            words = [
                word
                for word in near(document.text, *name.span(), WORD)
                if len(word) >= 5 and word.lower() not in DULL and word not in name[0]
            ][:6]
            if len(words) >= 2:
                yield Question(" ".join([name[0].strip(".:-/"), *draw.sample(words, 2)]), document.key)


def draw_chinese(documents: Sequence[Document], draw: random.Random) -> Iterator[Question]:
    for document in documents:
        runs = list(CJK_RUN.finditer(document.text))
        if len(runs) < 5:
            continue
        names = [match for match in NAME.finditer(document.text) if is_name(match[0])]
        one = draw.choice(names if names and draw.random() < 0.4 else runs)
        word = one[0].strip(".:-/") if one[0].isascii() else one[0][: draw.randint(2, 4)]
        others = near(document.text, *one.span(), CJK_RUN)[:6]
        if len(others) >= 2:
            ends = [other[-draw.randint(2, 3) :] for other in draw.sample(others, 2)]
            yield Question(" ".join([word, *ends]), document.key)


def draw_statements(documents: Sequence[Document], draw: random.Random) -> Iterator[Question]:
    for document in documents:
        said = SENTENCE.findall(document.text) if document.role == "user" else []
        sentences = [sentence for sentence in said if OF_ONESELF.search(sentence) and "?" not in sentence]
        if sentences:
            words = [word for word in WORD.findall(draw.choice(sentences)) if word.lower() not in DULL]
            if len(set(words)) >= 4:
                kept = [other_form(word) for word in draw.sample(sorted(set(words)), 3)]
                asked = draw.choice(("When did I", "How many", "What was the", "Which of my", "Who"))
                yield Question(
                    f"{asked} {' '.join(kept)} {draw.choice(('place', 'name', 'time'))}?", document.key
                )


def other_form(word: str) -> str:
    return word if word.endswith("ly") else word.removesuffix("s") if word.endswith("s") else f"{word}s"


def draw_latest(documents: Sequence[Document], draw: random.Random) -> Iterator[Question]:
    holding: dict[str, dict[str, None]] = {}
    for document in documents:
        for name in {match.strip(".:-/") for match in NAME.findall(document.text)}:
            if is_name(name):
                holding.setdefault(name, {})[document.key] = None
    several = sorted(name for name, keys in holding.items() if 3 <= len(keys) <= 40)
    draw.shuffle(several)
    for name in several:
        # As the name may stand within a longer one, and in any case of letters.
        keys = [one.key for one in documents if stands_in(name, one.text)]
        if len(keys) >= 3:
            yield Question(name, keys[-1])


def stands_in(name: str, text: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", text, re.IGNORECASE) is not None


def is_name(text: str) -> bool:
    text = text.strip(".:-/")
    return len(text) >= 5 and bool(NAME_LIKE.search(text))


DRAWN: dict[str, Callable[[Sequence[Document], random.Random], Iterator[Question]]] = {
    "names": draw_names,
    "Chinese": draw_chinese,
    "statements": draw_statements,
    "latest": draw_latest,
}


def draw(kind: str, session: Session) -> list[Question]:
    """Return the questions of one kind for a session, none where it is of another kind."""
    if kind in ("Chinese", "names") and session.is_cjk != (kind == "Chinese"):
        return []
    if (kind == "statements") != bool(session.evidence) and kind != "latest":
        return []
    rng = random.Random(f"{SEED} {kind} {session.name}")
    documents = session.documents
    if kind != "latest":
        often = Counter(document.text for document in documents)
        documents = [document for document in documents if often[document.text] == 1]
        rng.shuffle(documents)
    if kind == "Chinese":
        documents = documents * 4
    return list(islice(DRAWN[kind](documents, rng), DRAWN_A_SESSION.get(kind, 3)))


# Ranks
