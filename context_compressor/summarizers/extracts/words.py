"""What was said: users' words as they are, and the agent's own conclusions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from context_compressor.messages.parts import leaves_of
from context_compressor.messages.speech import weight_of
from context_compressor.summarizers.extracts.passages import Item, Labels, Passage, flat, shorten
from context_compressor.summarizers.extracts.reading import Material, Words, data_in

_SHORT_CHARS = 40
"""A shorter answer says nothing without its question."""
_QUESTION_CHARS = 140
_MARKUP = re.compile(
    r"^\s{0,9}```.*$|\*\*|`|^\s{0,9}(?:#{1,6}|>|[-*•+])\s+|\|?(?:\s{0,9}:?-{3,}:?\s{0,9}\|)+", re.MULTILINE
)
_LOOSE_NUMBER = re.compile(r"\s?\d{1,2}[.)、]\s*\Z")
"""What is left of an item of a list whose words were an announcement."""
_SENTENCE = re.compile(r"[^\n]+?(?:[.!?](?=\s|\Z)|[。！？]|\n|\Z)")
_QUESTION_MARKS = ("?", "？")
_ANNOUNCES = (":", "：")
_LEAST_CHARS = 12
"""A shorter sentence goes with the one before."""
_MOST_WEIGHT = 40
"""Characters of values above which words are worth no more."""
_TELLING_CHARS = 60
"""What the agent says amid its work in fewer characters, and without a value, only leads to a call."""
_COMMON = 3
_ALIKE_CHARS = 30
"""What the agent says so often, beginning with the same so many characters, is told once."""


def user_items(material: Material, labels: Labels) -> Iterator[Item]:
    """Yield users' words, word for word, and whether the agent closed about them.

    So a request that was answered is not read as an open one. Short answers stand beside their question.
    """
    said = [words for words in material.words if words.speaker != "agent" and not words.is_shown]
    answered = _answered(material)
    first = next((words for words in said if words.speaker == "user"), None)
    sentences = [_sentences_of(words.text) for words in said]
    newest = {sentence: number for number, spoken in enumerate(sentences) for sentence in spoken}
    for number, (words, spoken) in enumerate(zip(said, sentences, strict=True)):
        label = labels.system if words.speaker == "system" else labels.user
        tail = '"'
        if len(flat(words.text)) < _SHORT_CHARS and (question := _question_in(words.before)):
            tail = f'" ({labels.asked}: {question})'
        if is_over := id(words) in answered:
            tail += f" ({labels.answered})"
        worths = []
        for sentence in spoken:
            # What was asked is over once it is answered; what a later message repeats is told there.
            was_asked = is_over and sentence.endswith(_QUESTION_MARKS)
            is_repeated = newest[sentence] > number and len(sentence) >= _ALIKE_CHARS
            worths.append(0 if was_asked or is_repeated else weight_of(sentence))
        quote = _ranked(spoken, worths, f"{label} {words.name}".rstrip() + ': "', tail, joint=" ")
        is_last = number == len(said) - 1
        rank = (number + 1) / len(said) / 2 + (words is first or is_last) + worth_of(sum(worths))
        yield Item("user", words.place, quote, rank, 1.5 if is_last else 1.0)


def agent_items(material: Material, labels: Labels) -> Iterator[Item]:
    """Yield the agent's words: what it said amid its work, and closed with before a user spoke."""
    said_by_agent = [words for words in material.words if words.speaker == "agent"]
    # What begins alike again and again is told once, the last time that it was said.
    newest = {_beginning(words): words for words in said_by_agent}
    times = Counter(map(_beginning, said_by_agent))
    told = [w for w in said_by_agent if times[_beginning(w)] < _COMMON or newest[_beginning(w)] is w]
    for number, words in enumerate(told):
        lines = _lines_of(words)
        said = " ".join(lines)
        if not words.closing and len(said) < _TELLING_CHARS and not weight_of(said):
            continue
        rank = (number + 1) / len(told) / 2 + words.closing / 2 + worth_of(weight_of(said)) / 2
        passage = _ranked(lines, list(map(weight_of, lines)), f"{labels.agent}: ")
        yield Item("agent", words.place, passage, rank)


def worth_of(weight: int) -> float:
    """Return from 0 to 2 what words are worth beside those said later, by the values that they name."""
    return min(weight, _MOST_WEIGHT) * 2 / _MOST_WEIGHT


def _ranked(parts: list[str], worths: list[int], head: str, tail: str = "", joint: str = "") -> Passage:
    """Return a passage of which those parts are kept longest that are worth most, then the first and last."""
    last = len(parts) - 1
    ranks = [worth + 6 * (n == 0) + 2 * (n == last) for n, worth in enumerate(worths)]
    return Passage(parts, head, tail, joint, ranks=tuple(ranks))


def _sentences_of(text: str) -> list[str]:
    """Return the sentences of a text, each on one line; short ones go with the one before."""
    starts = [0]
    for found in _SENTENCE.finditer(text):
        if found.start() - starts[-1] >= _LEAST_CHARS <= len(found[0]):
            starts.append(found.start())
    ends = [*starts[1:], len(text)]
    return [line for start, end in zip(starts, ends, strict=True) if (line := flat(text[start:end]))]


def _beginning(words: Words) -> str:
    return flat(words.text)[:_ALIKE_CHARS].casefold()


def _answered(material: Material) -> set[int]:
    """Return the ids of the users' words about which the agent closed."""
    answered: set[int] = set()
    asked: Words | None = None
    for words in material.words:
        if words.speaker != "agent":
            asked = words
        elif words.closing and asked is not None:
            answered.add(id(asked))
    return answered


def _lines_of(words: Words) -> list[str]:
    lines = [flat(line) for line in _MARKUP.sub("", _plain(words.text)).splitlines()]
    lines = [line for line in lines if any(map(str.isalnum, line))]
    if not words.closing:
        lines = [flat(kept) for line in lines if (kept := _without_announcements(line))]
    return list(dict.fromkeys(lines))


def _plain(text: str) -> str:
    """Return what is said in a text that is JSON, a line for each value with its key; any other as it is."""
    data = data_in(text)
    if not isinstance(data, dict):
        return text
    said = [(key, str(value)) for key, value in leaves_of(data) if value is not None]
    return "\n".join(f"{key}: {value}" if key else value for key, value in said)


def _without_announcements(line: str) -> str:
    if not line.endswith(_ANNOUNCES):
        return line
    sentences = [found[0] for found in _SENTENCE.finditer(line)]
    return _LOOSE_NUMBER.sub("", "".join(sentences[:-1]))


def _question_in(text: str) -> str:
    """Return the last question in a text; "" where it asks none."""
    if not any(mark in text for mark in _QUESTION_MARKS):
        return ""
    asked = [found[0].strip() for found in _SENTENCE.finditer(text[-2_000:])]
    questions = [sentence for sentence in asked if sentence.endswith(_QUESTION_MARKS)]
    return shorten(flat(_MARKUP.sub("", questions[-1])), _QUESTION_CHARS) if questions else ""
