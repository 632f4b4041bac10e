"""Find the question that an answer of few words belongs to."""

from __future__ import annotations

import re

from context_compressor.summarizers.cutting import cut
from context_compressor.summarizers.extracts.digest import Statement
from context_compressor.summarizers.extracts.lines import SENTENCE_ENDS, sentences
from context_compressor.summarizers.extracts.wording import OFFER, PROPOSAL, QUESTION_MARKS, THANKS
from context_compressor.summarizers.identifiers.finding import find_identifiers
from context_compressor.summarizers.sections import strip_bullet

_ANSWER_BYTES = 40
"""A text of so few bytes, without a name in it, may tell nothing without the question that it answers."""
_ASKED_CHARS, _OPTIONS_CHARS = 600, 4_000
"""How much of a reply, from its end, is searched for the question, and for what there is to choose from."""
_QUESTION_CHARS = 160
_VAGUE_CHARS = 60
"""A question of fewer characters, "Shall I go on?" say, is told with so much of what was said before it."""

_QUESTION_MARK = re.compile(r"[?？؟](?![\w=&%\"”'’])")
_NO_SENTENCE = re.compile(r"[│─└┘|{}]|```")
"""In a table, a drawing or a block of code."""
_LABEL = re.compile(r"(?<![^\W\d_])[a-h](?![^\W\d_])|\d{1,2}", re.IGNORECASE)
"""The letter or number of an option."""
_CHOICE = re.compile(
    r"\W*(?:(?:let's |i'd )?(?:go|do|take|use|choose|pick|prefer) (?:with |for )?)?(?:the )?"
    rf"(?:(?:option|number|plan)s? |方案|选项?|第)? *(?:{_LABEL.pattern})"
    rf"(?:(?: *[,、&+/] *| and | und | et | y |和)(?:{_LABEL.pattern}))*[个种项]?\W*",
    re.IGNORECASE,
)
"""An answer that names options: "B", "option 2", "1 and 3"."""
_OPTION = re.compile(
    r"^[ \t>*#-]*+((?:(?:(?:option|plan) |方案|选项) *)?[(\[]?([a-h]|\d{1,2})(?:[)\].:：、]| [–—-] )"
    r"[* \t]*+\S.*)$",
    re.IGNORECASE | re.MULTILINE,
)
"""A line that begins with the letter or number of an option."""


def question_of(said: Statement) -> str:
    """Return the question that a statement of few words answers, on one line; "" where there is none.

    With the options before it that were chosen, or where it is vague, with what was said before it. Where
    nothing was asked, what was proposed.
    """
    is_short = len(said.text.encode(errors="surrogatepass")) <= _ANSWER_BYTES
    if not is_short or said.text.endswith(QUESTION_MARKS) or find_identifiers(said.text):
        return ""
    lead, question = _last_question(said.answered[-_ASKED_CHARS:])
    if OFFER.search(question):
        return ""
    options = {
        label.casefold(): _plain(line) for line, label in _OPTION.findall(said.answered[-_OPTIONS_CHARS:])
    }
    if chosen := [options[label] for label in _labels(said.text) if label in options]:
        lead = " ".join(chosen)
    elif not question:
        lead = "" if THANKS.search(said.text) else _last_proposal(said.answered)
    elif len(question) >= _VAGUE_CHARS or any(lead in line for line in options.values()):
        lead = ""
    return f"{cut(lead, _QUESTION_CHARS - len(question))} {question}".strip()


def _labels(answer: str) -> list[str]:
    return [label.casefold() for label in _LABEL.findall(answer)] if _CHOICE.fullmatch(answer) else []


def _last_question(text: str) -> tuple[str, str]:
    """Return the last question of a text and what was said right before it, each on one line; "" for none."""
    lines = [list(filter(None, map(strip_bullet, SENTENCE_ENDS.split(line)))) for line in text.split("\n")]
    while lines:
        parts = lines.pop()
        for index, part in reversed(list(enumerate(parts))):
            ends = [found.end() for found in _QUESTION_MARK.finditer(part)]
            if ends:
                before = parts[:index] or next(filter(None, reversed(lines)), [])
                question = cut(_plain(part[: ends[-1]]), _QUESTION_CHARS)
                return _lead(before, _QUESTION_CHARS - len(question)), question
    return "", ""


def _lead(parts: list[str], room_chars: int) -> str:
    """Return the last sentences of a line, as many as it takes to say something, and the last in any room."""
    lead = ""
    for part in reversed(parts):
        more = f"{_plain(part)} {lead}".rstrip()
        if len(lead) >= _VAGUE_CHARS or _NO_SENTENCE.search(part) or (lead and len(more) > room_chars):
            break
        lead = more
    return lead


def _last_proposal(text: str) -> str:
    """Return the last sentence of a text that proposes something, on one line; "" for none."""
    proposals = [part for part in sentences(text) if PROPOSAL.search(part)]
    return cut(_plain(proposals[-1]), _QUESTION_CHARS) if proposals else ""


def _plain(text: str) -> str:
    return text.replace("**", "").strip()
