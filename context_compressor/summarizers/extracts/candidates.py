"""The lines that an extractive summary may consist of, each with a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from context_compressor.summarizers.cutting import cut, quote
from context_compressor.summarizers.extracts.digest import CarriedLine, Digest, Statement
from context_compressor.summarizers.extracts.index import split_items
from context_compressor.summarizers.extracts.weighing import (
    ARROW,
    is_excerpt,
    name_of,
    subject_of,
    tells_call,
    told_subject,
    weigh_calls,
    weigh_carried_calls,
)
from context_compressor.summarizers.extracts.wording import (
    ANNOUNCEMENT,
    ASSENT,
    ASSENT_CHARS,
    DECISION,
    IMPERATIVE,
    PENDING,
    QUESTION_MARKS,
    REASON,
)
from context_compressor.summarizers.identifiers.finding import find_identifiers
from context_compressor.summarizers.identifiers.ranking import Source
from context_compressor.summarizers.identifiers.values import with_dates_as_words, without_dates_as_words
from context_compressor.summarizers.sections import strip_bullet

STATEMENT_CHARS = 280
"""No single quote is longer: a summary quotes sentences, and does not repeat messages (see `validation`)."""
GOAL_CHARS = 420
"""The same for the goal, which is quoted in two pieces, head and tail."""

_CARRIED_VALUES = {
    "goal": 2.0,
    "instructions": 0.8,
    "decisions": 0.35,
    "facts": 0.4,
    "done": 0.15,
    "next": 0.05,
}
_KINDS = {"done": "call", "facts": "call", "goal": "request", "instructions": "request"}
"""Sections between which nothing is said twice."""
_SENTENCE_CHARS = 200
_SPARE_VALUES = {"user": 0.1, "assistant": 0.1, "call": 0.08, "result": 0.05}
_READ_SENTENCES = 80
"""How many sentences of one text are looked at, to fill room."""
_ASIDE_BYTES = 80
"""Words beside a call, of fewer bytes and without a name or a number, tell nothing that the call does not."""
_DIGIT = re.compile(r"\d")
_TALK_REQUESTS = 4
"""Requests per call above which a conversation is a talk."""
_REPLY_CHARS = 2_000
"""How much of a reply is searched for decisions and plans."""

_ABBREVIATIONS = "Mr Mrs Ms Dr Prof St Sr Jr Mme Sra Srta Hr Fr Nr vs e.g i.e z.B d.h ca approx Fig"
"""With a dot behind them these end no sentence."""
_SENTENCE_ENDS = re.compile(
    r"(?<=[.!?؟।])"
    + "".join(rf"(?<!\b{re.escape(short)}\.)" for short in _ABBREVIATIONS.split())
    + r"\s+|(?<=[。！？])|\n+"
)
_BOLD = re.compile(r"\*\*[^*]+\*\*:?")
"""A line in bold type is a heading."""
_INDEX_LINE = re.compile(r"(.{1,70}?): (.+)")
_QUOTED = re.compile(r"user: (.+)")
"""A line in which an index quotes what the user asked for."""
_SENTENCE = re.compile(r"user: .*(?:[，。！？；।؟]|[.!?]$)")
"""Such a line, and no list of what the user named: items hold no such marks."""


@dataclass(slots=True)
class Line:
    """A line that a summary may hold."""

    section: str
    text: str
    value: float
    position: float
    """Where in its section it stands: 0 oldest, 1 newest; below 0 what earlier summaries said."""
    identifiers: frozenset[str] = frozenset()
    whole: Line | None = None
    """What this line is cut from, if it is."""
    speaker: str = "user"
    """Who said it, of a request."""

    @property
    def is_call(self) -> bool:
        """Whether it tells of a call, and of what it came to behind an arrow."""
        return _KINDS.get(self.section) == "call"

    @property
    def subject(self) -> str:
        """What it tells of (see `told_subject`), of a call; any other line is its own subject."""
        return told_subject(self.text) if self.is_call else self.text

    @property
    def asks(self) -> bool:
        """Whether it is a question, or ends with one."""
        return self.text.endswith(QUESTION_MARKS)

    def shortened(self, max_chars: int) -> Line:
        """Return the line with its text quoted in at most `max_chars` characters."""
        said, arrow, outcome = self.text.partition(ARROW)
        if arrow and self.is_call:
            # What a call came to is not to be read as one of its arguments.
            outcome = arrow + cut(outcome, max_chars // 2)
            text = cut(said, max_chars - len(outcome)) + outcome
        else:
            text = quote(self.text, max_chars)
        return Line(self.section, text, self.value, self.position, find_identifiers(text), self)


def index_items(line: CarriedLine) -> tuple[str, str] | None:
    """Return label and items of a line that only lists identifiers; these are ranked anew, one by one."""
    if line.section != "facts" or ARROW in line.text or _SENTENCE.match(line.text):
        return None
    match = _INDEX_LINE.fullmatch(line.text)
    label, listed = match.groups() if match else ("", line.text)
    items = split_items(with_dates_as_words(listed))
    plain = [without_dates_as_words(item) for item in items]
    if match:
        is_list = all(len(item.split()) <= 5 for item in items) and all(map(find_identifiers, plain))
    else:  # a sentence may begin with a name, and go on behind a comma
        last = [item.rpartition(" ") for item in plain]
        is_list = len(items) > 1 and all(" " not in word and find_identifiers(name) for word, _, name in last)
    return (label, ", ".join(plain)) if is_list else None


def carried_source(line: CarriedLine) -> Source:
    """Return a line of an earlier summary as a source of identifiers; the first of a section weigh most.

    What told of a call or of the user's words still does.
    """
    position = (1 + line.position - line.rank) / 2
    if items := index_items(line):
        return Source("carried", items[0], items[1], position, is_carried=True)
    if line.section == "instructions":
        return Source("user", "user", line.text, position, is_carried=True)
    name, colon, rest = line.text.partition(": ")
    if colon and " " not in name:
        if line.section == "done" or (line.section == "facts" and ARROW in rest):
            return Source("call", name[:36], rest, position, is_carried=True)
        if line.section == "facts" and name == "user":
            return Source("user", name, rest, position, is_carried=True)
    return Source("carried", "", line.text, position, is_carried=True)


_Make = Callable[[str, str, float, float], Line]


def line_maker(values: Mapping[str, float], keywords: frozenset[str]) -> _Make:
    """Return what makes a line of section, text, value and position, and adds to its value what it names.

    Args:
        values: of identifiers.
        keywords: words, case-folded, that the user wants the summary to mind.
    """

    def make(section: str, text: str, value: float, position: float) -> Line:
        identifiers = find_identifiers(text)
        telling = find_identifiers(subject_of(text)) if is_excerpt(text) else identifiers
        named = sorted((values.get(name, 0.0) for name in telling), reverse=True)
        folded = text.casefold() if keywords else ""
        minded = 1.0 if any(word in folded for word in keywords) else 0.0
        return Line(section, text, value + minded + 0.3 * sum(named[:4]), position, identifiers)

    return make


def collect_lines(digest: Digest, make: _Make) -> list[Line]:
    """Return the candidate lines, most valuable first, none twice."""
    lines = [*_carried_lines(digest, make), *_request_lines(digest, make), *_reply_lines(digest, make)]
    lines += [make("done", *weighed) for weighed in (*weigh_carried_calls(digest), *weigh_calls(digest))]
    return _unique(lines)


def collect_state_lines(digest: Digest, make: _Make) -> list[Line]:
    """Return what users asked for and what calls came to, most valuable first, none twice.

    What they asked for as earlier summaries quote it, too: prose has no room for all of that.
    """
    calls = (make("done", *weighed) for weighed in weigh_calls(digest))
    asked = _carried_lines(digest, make, only="instructions")
    return _unique([*asked, *_request_lines(digest, make), *calls])


def is_talk(digest: Digest) -> bool:
    """Tell whether users said far more than tools were called: what they said is then what is known."""
    told = sum(map(tells_call, digest.carried)) + len(digest.calls)
    asked = sum(line.section == "instructions" for line in digest.carried) + len(digest.requests)
    return _TALK_REQUESTS * told < asked


def collect_spare_lines(digest: Digest, make: _Make) -> list[Line]:
    """Return sentences of everything that was read, to fill what room the telling lines leave."""
    lines = []
    for source in digest.sources:
        if source.kind == "user" and _is_assent(source.text):
            continue
        section = "instructions" if source.kind == "user" else "facts"
        who, _, name = source.label.partition(" ")
        speaker = f"{who}: " if source.kind in ("call", "result") else f"{name}: " if name else ""
        for sentence in _sentences(source.text):
            value = _SPARE_VALUES.get(source.kind, 0.0) * (0.5 + source.position)
            if source.kind == "user" and IMPERATIVE.search(sentence):
                value += 0.25
            lines.append(make(section, speaker + cut(sentence, _SENTENCE_CHARS), value, source.position))
    return _unique(lines)


def _unique(lines: list[Line]) -> list[Line]:
    """Return lines, most valuable first, none twice.

    Of a call made again only what it came to last, and each error that a log told of, once.
    """
    unique: dict[tuple[str, str], Line] = {}
    for line in sorted(lines, key=lambda line: -line.value):
        if not line.text.strip():
            continue  # only what cannot be seen
        key = (_KINDS.get(line.section, line.section), line.subject.casefold())
        known = unique.get(key)
        if known is None or (line.is_call and line.position > known.position):
            unique[key] = line
    return sorted(unique.values(), key=lambda line: -line.value)


def _carried_lines(digest: Digest, make: _Make, only: str | None = None) -> Iterator[Line]:
    goals = 0
    planners = digest.planners
    for line in digest.carried:
        if tells_call(line) or index_items(line) or (line.section == "progress" and digest.replies):
            continue
        if _KINDS.get(line.section) == "call" and name_of(line.text) in planners:
            continue  # there is a newer plan
        section, text = line.section, line.text
        if section == "goal":
            # The oldest goal is the goal; what began a later part is one more request.
            goals += 1
            section = "goal" if goals == 1 else "instructions"
        elif section == "facts" and (quoted := _QUOTED.fullmatch(text)):
            section, text = "instructions", quoted[1]  # the index had quoted it
        if only is not None and section != only:
            continue
        value = _CARRIED_VALUES.get(section, 0.0) + 0.3 * line.position - 0.1 * line.rank
        value += _weight_of_wish(text) if section == "instructions" else 0.0
        yield make(section, text, value, line.place)


def _request_lines(digest: Digest, make: _Make) -> Iterator[Line]:
    requests = [said for said in digest.requests if not _is_assent(said.text)]
    has_goal = any(line.section == "goal" for line in digest.carried)
    # What is asked in the midst of the work is one more request, and the goal was stated before.
    done = [said.position for said in digest.replies] + [call.position for call in digest.calls]
    begun = min(done, default=1.0)
    opening = [said for said in requests if said.position <= begun]
    first = None if has_goal else _first_request(opening)
    for said in requests:
        if said is first:
            line = make("goal", said.quoted(quote(said.text, GOAL_CHARS)), 1.0, -0.5)
        else:
            text = _told_request(said.text)
            value = 0.8 + 0.2 * said.position + _weight_of_wish(text)
            is_word = text.isascii() and " " not in text
            value -= 0.3 if is_word else 0.0
            line = make("instructions", said.quoted(text), value, said.position)
        line.speaker = said.speaker
        yield line


def _told_request(text: str) -> str:
    """Return a request on one line; of a long one its head, and the last wish that stands behind that."""
    line = cut(text, STATEMENT_CHARS)
    if not line.endswith("…"):
        return line
    wishes = [said for said in _sentences(text) if said not in line and IMPERATIVE.search(said)]
    wish = cut(wishes[-1], STATEMENT_CHARS // 2) if wishes else ""
    return f"{cut(text, STATEMENT_CHARS - len(wish) - 1)} {wish}" if wish else line


def _is_assent(text: str) -> bool:
    return ASSENT.fullmatch(text[:ASSENT_CHARS]) is not None


def _weight_of_wish(text: str) -> float:
    """Return what to add to a request's value: what shall hold outweighs a question answered later."""
    return (0.3 if IMPERATIVE.search(text) else 0.0) - (0.3 if text.endswith(QUESTION_MARKS) else 0.0)


def _first_request(requests: list[Statement]) -> Statement | None:
    """Return the first request that says something, else the longest of all."""
    for said in requests:
        if len(said.text) >= 40:
            return said
    return max(requests, key=lambda said: len(said.text), default=None)


def _reply_lines(digest: Digest, make: _Make) -> Iterator[Line]:
    state, talks = "", is_talk(digest)
    replies = [said for said in digest.replies if not _is_aside(said)]
    last = replies[-1] if replies else None
    others = [call.position for call in digest.calls] + [said.position for said in digest.requests]
    # What was said before other work was done is not under way any more.
    if last and last.position >= max(others, default=0.0):
        state = cut(last.text, 240)
        yield make("progress", state, 1.0, last.position)
    for said in replies:
        text = said.text[:_REPLY_CHARS]
        decides, plans = _decides(text, talks), PENDING.search(text)
        if said is last and not talks and not (state or decides or plans or text.endswith(QUESTION_MARKS)):
            if done := _without_announcement(said, text):
                yield make("done", cut(done, 240), 1.0, said.position)
            continue
        # In a conversation without tools, what was answered is what was done.
        answers = not digest.calls
        for sentence in _sentences(text) if decides or plans or answers else ():
            if cut(sentence, _SENTENCE_CHARS) in state:
                continue
            if decides and _decides(sentence, talks):
                value = 0.3 + 0.4 * said.position
                yield make("decisions", cut(sentence, _SENTENCE_CHARS), value, said.position)
            elif plans and PENDING.search(sentence):
                yield make("next", cut(sentence, _SENTENCE_CHARS), said.position**2, said.position)
            elif answers and len(sentence) > 40 and sentence[-1] not in "!:：":
                answers = False
                yield make("done", cut(sentence, _SENTENCE_CHARS), 0.1 + 0.3 * said.position, said.position)


def _decides(text: str, talks: bool) -> bool:
    return bool(DECISION.search(text) or (not talks and REASON.search(text)))


def _is_aside(said: Statement) -> bool:
    """Tell whether words beside a call, "Let me check." say, only announce it: short, and naming nothing."""
    is_short = said.with_call and len(said.text.encode(errors="surrogatepass")) < _ASIDE_BYTES
    return is_short and not (_DIGIT.search(said.text) or find_identifiers(said.text))


def _without_announcement(said: Statement, text: str) -> str:
    """Return words beside a call without what announces it at their end: "Let me mend the parser." say."""
    if not said.with_call:
        return text
    ends = (end.end() for end in _SENTENCE_ENDS.finditer(text))
    last = max((end for end in ends if end < len(text)), default=0)
    announces = text.endswith((":", "：")) or ANNOUNCEMENT.match(text, last)
    return text[:last].rstrip() if announces else text


def _sentences(text: str) -> Iterator[str]:
    parts = _SENTENCE_ENDS.split(text[: _READ_SENTENCES * _SENTENCE_CHARS], maxsplit=_READ_SENTENCES)
    for part in map(strip_bullet, parts[:_READ_SENTENCES]):
        if len(part) > 15 and not part.startswith("#") and not _BOLD.fullmatch(part):
            yield part
