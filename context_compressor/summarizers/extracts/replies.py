"""What the agent decided, did and plans by its own words, as lines of a summary."""

from __future__ import annotations

import re
from collections.abc import Iterator

from context_compressor.summarizers.cutting import cut, quote
from context_compressor.summarizers.extracts.digest import Digest, Statement
from context_compressor.summarizers.extracts.lines import (
    SENTENCE_CHARS,
    SENTENCE_ENDS,
    Line,
    Make,
    sentences,
)
from context_compressor.summarizers.extracts.wording import (
    ANNOUNCEMENT,
    DECISION,
    FINDING,
    PENDING,
    PROMISE,
    QUESTION_MARKS,
    REASON,
)
from context_compressor.summarizers.identifiers.finding import find_identifiers

_REPLY_CHARS = 2_000
"""How much of a reply is searched for decisions and plans."""
_ASIDE_BYTES = 80
"""Words beside a call, of fewer bytes and without a name or a number, tell nothing that the call does not."""
_DIGIT = re.compile(r"\d")


def reply_lines(digest: Digest, make: Make, *, talks: bool) -> Iterator[Line]:
    """Yield lines of what the agent said; `talks` where users said far more than tools were called."""
    state = ""
    replies = [said for said in digest.replies if not _is_aside(said)]
    last = replies[-1] if replies else None
    others = [call.position for call in digest.calls] + [said.position for said in digest.requests]
    # What was said before other work was done is not under way any more.
    if last and last.position >= max(others, default=0.0):
        # What comes next may answer a question at its end.
        state = (quote if last.text.endswith(QUESTION_MARKS) else cut)(last.text, 240)
        yield make("progress", state, 1.0, last.position)
    for said in replies:
        text = said.text[:_REPLY_CHARS]
        decides, plans = _decides(text, talks), PENDING.search(text) or PROMISE.search(text)
        finds = not talks and FINDING.search(text)
        if said is last and not talks and not (state or decides or plans or text.endswith(QUESTION_MARKS)):
            if done := _without_announcement(said, text):
                yield make("done", cut(done, 240), 1.0, said.position)
            continue
        # In a conversation without tools, what was answered is what was done.
        answers = not digest.calls
        for sentence in sentences(text) if decides or plans or finds or answers else ():
            told = cut(sentence, SENTENCE_CHARS)
            if told in state:
                continue
            if decides and _decides(sentence, talks):
                yield make("decisions", told, 0.3 + 0.4 * said.position, said.position)
            elif plans and PROMISE.search(sentence):
                yield make("next", told, 0.3 + 0.4 * said.position, said.position)
            elif finds and _finds(sentence):
                yield make("decisions", told, 0.2 + 0.4 * said.position, said.position)
            elif plans and PENDING.search(sentence):
                yield make("next", told, said.position**2, said.position)
            elif answers and len(sentence) > 40 and sentence[-1] not in "!:：":
                answers = False
                yield make("done", told, 0.1 + 0.3 * said.position, said.position)


def _decides(text: str, talks: bool) -> bool:
    return bool(DECISION.search(text) or (not talks and REASON.search(text)))


def _finds(sentence: str) -> bool:
    """Tell whether a sentence tells of something named what later work may rest on, and does not ask."""
    return bool(FINDING.search(sentence)) and not sentence.endswith(QUESTION_MARKS) and _is_telling(sentence)


def _is_telling(text: str) -> bool:
    """Tell whether a text has a number or a name in it."""
    return bool(_DIGIT.search(text) or find_identifiers(text))


def _is_aside(said: Statement) -> bool:
    """Tell whether words beside a call, "Let me check." say, only announce it: short, and naming nothing."""
    is_short = said.with_call and len(said.text.encode(errors="surrogatepass")) < _ASIDE_BYTES
    return is_short and not _is_telling(said.text)


def _without_announcement(said: Statement, text: str) -> str:
    """Return words beside a call without what announces it at their end: "Let me mend the parser." say."""
    if not said.with_call:
        return text
    ends = (end.end() for end in SENTENCE_ENDS.finditer(text))
    last = max((end for end in ends if end < len(text)), default=0)
    announces = text.endswith((":", "：")) or ANNOUNCEMENT.match(text, last)
    return text[:last].rstrip() if announces else text
