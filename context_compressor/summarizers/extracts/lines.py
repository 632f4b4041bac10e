"""The lines that an extractive summary may consist of: what they say, and what they are worth."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass

from context_compressor.summarizers.cutting import cut, quote
from context_compressor.summarizers.extracts.weighing import ARROW, is_excerpt, subject_of, told_subject
from context_compressor.summarizers.extracts.wording import ASSENT, ASSENT_CHARS, INQUIRY, QUESTION_MARKS
from context_compressor.summarizers.identifiers.finding import find_identifiers
from context_compressor.summarizers.identifiers.ranking import Identifier
from context_compressor.summarizers.sections import strip_bullet

KINDS = {"done": "call", "facts": "call", "goal": "request", "instructions": "request"}
"""Sections between which nothing is said twice."""
SENTENCE_CHARS = 200
_READ_SENTENCES = 80
"""How many sentences of one text are looked at, to fill room."""
_ABBREVIATIONS = "Mr Mrs Ms Dr Prof St Sr Jr Mme Sra Srta Hr Fr Nr vs e.g i.e z.B d.h ca approx Fig"
"""With a dot behind them these end no sentence."""
SENTENCE_ENDS = re.compile(
    r"(?<=[.!?؟।])"
    + "".join(rf"(?<!\b{re.escape(short)}\.)" for short in _ABBREVIATIONS.split())
    + r"(?<!\b[A-Z]\.)\s+|(?<=[。！？])|\n+"
)
_BOLD = re.compile(r"\*\*[^*]+\*\*:?")
"""A line in bold type is a heading."""


@dataclass(slots=True)
class Line:
    """A line that a summary may hold."""

    section: str
    text: str
    value: float
    position: float
    """Where in its section it stands: 0 oldest, 1 newest; below 0 what earlier summaries said."""
    _identifiers: frozenset[str] | None = None
    whole: Line | None = None
    """What this line is cut from, if it is."""
    speaker: str = "user"
    """Who said it, of a request."""

    def identifiers(self) -> frozenset[str]:
        """Return the identifiers that it names; found at first need, and kept."""
        if self._identifiers is None:
            self._identifiers = find_identifiers(self.text)
        return self._identifiers

    @property
    def is_call(self) -> bool:
        """Whether it tells of a call, and of what it came to behind an arrow."""
        return KINDS.get(self.section) == "call"

    @property
    def subject(self) -> str:
        """What it tells of (see `told_subject`), of a call; any other line is its own subject."""
        return told_subject(self.text) if self.is_call else self.text

    def shortened(self, max_chars: int) -> Line:
        """Return the line with its text quoted in at most `max_chars` characters."""
        said, arrow, outcome = self.text.partition(ARROW)
        if arrow and self.is_call:
            # What a call came to is not to be read as one of its arguments.
            outcome = arrow + cut(outcome, max_chars // 2)
            text = cut(said, max_chars - len(outcome)) + outcome
        else:
            text = quote(self.text, max_chars)
        return Line(self.section, text, self.value, self.position, whole=self)


def is_question(text: str) -> bool:
    """Tell whether a text only asks: what is told beside a question holds when that was answered."""
    return all(map(asks, filter(None, SENTENCE_ENDS.split(text))))


def asks(sentence: str) -> bool:
    """Tell whether a sentence asks, or but agrees."""
    return sentence.endswith(QUESTION_MARKS) or INQUIRY.match(sentence) is not None or is_assent(sentence)


def is_assent(text: str) -> bool:
    """Tell whether a text only agrees, declines or thanks."""
    return ASSENT.fullmatch(text[:ASSENT_CHARS]) is not None


Make = Callable[[str, str, float, float], Line]


def line_maker(ranked: Iterable[Identifier], keywords: Set[str] = frozenset()) -> Make:
    """Return what makes a line of section, text, value and position, and adds to its value what it names.

    Args:
        ranked: identifiers with their values.
        keywords: words, case-folded, that the user wants the summary to mind.
    """
    values = {identifier.text: identifier.value for identifier in ranked}

    def make(section: str, text: str, value: float, position: float) -> Line:
        shows_some = is_excerpt(text)
        telling = find_identifiers(subject_of(text) if shows_some else text)
        named = sorted((values.get(name, 0.0) for name in telling), reverse=True)
        folded = text.casefold() if keywords else ""
        minded = 1.0 if any(word in folded for word in keywords) else 0.0
        value = value + minded + 0.3 * sum(named[:4])
        return Line(section, text, value, position, None if shows_some else telling)

    return make


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text that say something, headings apart."""
    parts = SENTENCE_ENDS.split(text[: _READ_SENTENCES * SENTENCE_CHARS], maxsplit=_READ_SENTENCES)
    for part in map(strip_bullet, parts[:_READ_SENTENCES]):
        if len(part) > 15 and not part.startswith("#") and not _BOLD.fullmatch(part):
            yield part
