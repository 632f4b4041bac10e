"""What a person said, apart from what a program wrote in the user's place, and what of it holds on.

Agents without tool calls get what a call came to as the next user's message. Programs around agents add
reminders, what they retrieved, and nudges where nothing was called. None of it is anybody's wish.

Standing instructions are sentences of users and instructions that hold beyond the request they came with.
Whether a sentence is one depends on its own words and its message alone, never on what a tool printed: on its
form, a rule, a limit, a prohibition or a preference, and on its place, in prose of whoever wrote the message.
Pure, and linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from context_compressor.messages.msg import Msg, is_instruction, provenance_of
from context_compressor.messages.prose import QUOTED, QUOTES, after_mark, is_wordy, own_words, prose_of

_RESULT_OPENINGS = (
    *("<tool_", "<function_result", "<observation", "<returncode", "observation:"),
    *("action result", "action error", "execution result of ["),
    *("new terminal output:", "current terminal screen:", "工具调用结果", "工具执行结果"),
)
"""How results begin, in lower case, of agents whose calls are text."""
_NAMED_RESULT = re.compile(r"\[[\w.-]{1,64}(?: for [^\n\]]{0,300})?\] Result:")
_NUDGES = (
    "please continue working on the task on whatever approach",
    "please proceed to the next step using your best judgement",
    "please always provide exactly one action",
    "your output was not formatted correctly",
    "your last output did not use any tool calls",
    "no tool calls found in the response",
    "[error] you did not use a tool",
)
"""How messages begin, in lower case, that go to an agent which called no tool."""
_ADDED = re.compile(r"<([\w-]{0,40}(?:reminder|memory|knowledge|environment_details))>")
"""Opens what a program adds to a message: reminders, what was retrieved, what stands open in an editor."""
_LOADED = re.compile(r"\[[^\s\]]{1,4000}, loaded by \w{1,64}\]")


def is_handed(msg: Msg) -> bool:
    """Tell whether a program handed a user's message over, and nobody said it."""
    blocks = msg.get_content_blocks()
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    if not any(texts):
        return False
    if is_result("\n".join(texts)):
        return True
    has_media = len(texts) < len(blocks) and not any(map(is_loaded_note, texts))
    return not has_media and not said_in("\n".join(texts))


def is_result(text: str) -> bool:
    """Tell whether a user's text begins as what a call came to."""
    start = text[:400].lstrip()
    return start.casefold().startswith(_RESULT_OPENINGS) or _NAMED_RESULT.match(start) is not None


def said_in(text: str) -> str:
    """Return what a person said in a user's text: without what programs add, "" where they wrote all."""
    if text.lstrip()[:60].casefold().startswith(_NUDGES):
        return ""
    kept, end = [], 0
    while opening := _ADDED.search(text, end):
        closing = f"</{opening[1]}>"
        close = text.find(closing, opening.end())
        if close < 0:
            break
        kept.append(text[end : opening.start()].strip("\n"))
        end = close + len(closing)
    text = "\n".join([*filter(None, kept), text[end:].strip("\n")]) if kept else text
    return "\n".join(line for line in text.split("\n") if not is_loaded_note(line)).strip()


def loaded_note(ref: str, tool: str) -> str:
    """Return what stands beside media that a tool shows again, in a message of the user."""
    return f"[{ref}, loaded by {tool}]"


def is_loaded_note(text: str) -> bool:
    """Tell whether a text is one of `loaded_note`."""
    return _LOADED.fullmatch(text) is not None


# Standing instructions


def _forms(*rules: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(rule, re.IGNORECASE) for rule in rules)


_TOO = r"(?:(?:please|also|then|just|generally|btw|and|but|so)\W+)*+"
_FIRST = r"^(?:\w[\w' -]{0,38}: )?" + _TOO
"""Where a sentence begins, behind its label."""
_LEAD = r"(?:^|\b(?:and|but|so|or)\W+)" + _TOO
"""Where a clause begins."""
_ORDER = (
    r"(?!(?:i|you|we|he|she|it|they|th\w+|an?|my|our|your|his|her|its|wh\w+|how|if|as|in|on|at|for|from|to"
    r"|with|by|of|and|but|or|so|yes|no|not|can|could|would|will|do|is|are|let me|tell me|please|\w+ing)\b)\w+"
)
"""A word that orders something: none by which a sentence, a question or a phrase begins."""
_CASE = r"(?:if|when|whenever) (?:an?|any\w*|every\w*|some\w*|you|\w+ing|\w+s)\b[^,(]{3,150}, "
_SENTENCES = _forms(
    _FIRST + r"(?:(?:let's )?keep(?! (?:\w+ing|an eye|it up)\b)|only(?! (?:one|then|to|thing|as)\b))\b",
    _FIRST + r"no(?! (?:problem|worr|thank|rush|idea|doubt|luck|way|one|more)| .*\bneed) \w+ \w+",
    _FIRST + _CASE + _TOO + _ORDER,
    _FIRST + r"(?:in (?:the )?future,|we (?:never|always)\b)",
    r"\b(?:budget|limit|deadline|maximum|minimum)\b.{0,30}(?:\d|: )",
    r"(?<!\byou )(?<!you'd )(?<!\bto )(?<!think i )\bprefers?\b|(?:would|'d) rather\b|\bwants (?!to\b)\w",
    r"\b(?:don't|do not|doesn't|never|only) want(?! (?:it |them )?to\b)|\byou to (?:always|never|only|not)\b",
    r"\b(?:want|need|expect)s? (?!to\b)(?:\S+ ){0,4}(?:never|always|only|every|not?|all \w+s)\b",
    r"(?:如果|若|一旦|每次).*[，,](?:先|就|请|要|则)|(?:预算|上限|截止).{0,15}(?:\d|：)",
    r"偏好|宁[可愿]|希望(?![你您能可继他她它这那])|希望.*(?:以后|都|只|每|不要)",
)
"""Forms of whole sentences: what lasts, orders on a condition, limits, preferences."""
_CLAUSES = _forms(
    _LEAD
    + r"(?:never(?! mind)|always|avoid|remember(?= \w)|keep in mind|note that|stick to|limit|whenever)\b",
    _LEAD + r"(?:stop \w+ing|(?:do not|don't)(?! (?:know|have|think|see|care|worry|mind|be afraid)\b))\b",
    _LEAD + _ORDER + r"(?: \w+){0,2} (?:only|every)\b",
    _LEAD + _ORDER + r"\b.*\b(?:unless|until|whenever|before (?:you|any|every|each))\b",
    _LEAD + r"(?:(?:let's )?use .*\b(?:instead of|rather than)|ask (?:me |us )?(?:first|before|if|when))\b",
    r"(?<!there )\bmust\b(?! have\b| be (?:the|an?|some)\b)|\b(?:needs|has) to\b|(?<!n't )\bhave to be\b",
    r"\b(?:may|shall|should|can) (?:not|only|never|always)\b|\bplease (?:always|never|only|do not|don't)\b",
    r"\byou (?:don't|do not) (?:have|need) to\b|\b(?:is|are|be|not) (?:allowed|permitted|required)\b",
    r"\b(?:forbidden|prohibited)\b",
    r"^(?:the|all|any|every|each|your|\w+thing|(?!this|yes)\w+s) (?:(?!wh|how)\S+ ){0,4}should\b(?!.* but )",
    r"\b(?:above|over|beyond|below|under|more than|less than)\b.*\b(?:needs?|requires?|approve[ds]?)\b",
    r"\b(?:at most|(?:no|not) more than|not exceed|from (?:now|here) on|at all times)\b",
    r"必须|不(?:允?许|得(?!不|了|已)|可(?![能思否避]))|[禁严]止|绝不|[切请]勿|务必|一律|凡是|[今以]后|从现在起|始终",
    r"(?:^|请)(?:别|总是)|(?<!要)不要(?![紧是])|只[能用许装]|除非|优先|最多|至少|不超过|保持|记住|要求(?!的)",
    r"(?:所有|每次)(?!.*了).*(?:都|均|要)",
    r"\b(?:niemals?|nie|immer|muss|müssen|darf|dürfen|jamais|toujours|doi(?:t|vent)|nunca|siempre|debe[ns]?"
    r"|sempre|deve[ms]?|никогда|всегда|должн\w+|нельзя)\b|必ず|常に|絶対に|ないで|てはいけ|반드시|항상|절대|금지",
)
"""Forms of clauses: what forbids or orders for more than once, what limits, what allows."""
_SELF = re.compile(
    r"(?:\b(?:i|i'\w+|ich|je|yo|eu|я)\b|我(?!们)|私|저)(?!.*\b(?:you|we|he|she|it|they)\b)",
    re.IGNORECASE,
)
"""Who speaks of himself before such words tells a story."""
_QUESTION = re.compile(
    rf"^{_TOO}(?:(?:can|could|would|will|do|does|did|is|are|was)\b(?! not)|(?:how|what|why|where|who)\b)"
    r"|[?？]\W*$|吗",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,;:()] |[，；：、。（）—–]| - |\bbecause\b")
_END = re.compile(r"(?<=[.!?])(?<![.]\w[.])[\"')\]]*\s+|(?<=[。！？；])")
_LINE_CHARS = 300
"""A line up to this length that begins with a rule is kept whole: its reason and its exception go with it."""
_SENTENCE_CHARS = 600
"""A longer sentence is no sentence, but data."""


def standing_in(msg: Msg) -> tuple[str, ...]:
    """Return the standing instructions of a message, each on one line, in order; none of a program's."""
    return tuple(dict.fromkeys(_standing_lines(_text_of(msg)))) if _is_said(msg) else ()


def quotes_prose(line: str, messages: Iterable[Msg]) -> bool:
    """Tell whether a line quotes, word for word, prose of a user's own or of an instruction.

    Either the line stands there, or what it has between quotation marks, which is at least half of it. Dots
    stand for words left out.
    """
    line = line[after_mark(line) :]
    quoted = "…".join(found[0][1:-1] for found in QUOTED.finditer(line))
    readings = [line, quoted] if 2 * len(quoted) >= len(line) else [line]
    missing = [{_flat(piece) for piece in re.split(r"…|\.\.\.", words)} - {""} for words in readings]
    missing = [pieces for pieces in missing if sum(map(len, pieces)) >= _QUOTE_CHARS]
    for msg in filter(_is_said, messages):
        text = _text_of(msg)
        prose = " ".join(text[start:end] for start, end in prose_of(text))
        said, cited = _flat(prose), _flat(" ".join(QUOTED.findall(prose)))
        missing = [
            {words for words in pieces if said.count(words) <= cited.count(words)} for pieces in missing
        ]
    return not all(missing)


_NO_MARKS = str.maketrans({"’": "'", **dict.fromkeys(QUOTES)})
"""Whoever quotes what holds quotes sets other marks."""
_QUOTE_CHARS = 6
"""Fewer characters quote nothing."""


def _flat(text: str) -> str:
    return " ".join(text.translate(_NO_MARKS).casefold().split()).strip(" .。")


def _text_of(msg: Msg) -> str:
    """Return a message's text, in which no paragraph holds pieces of two blocks."""
    return msg.get_text_content("\n\n") or ""


def _is_said(msg: Msg) -> bool:
    return not provenance_of(msg) and (is_instruction(msg) or (msg.role == "user" and not is_handed(msg)))


def _standing_lines(text: str) -> Iterator[str]:
    own = own_words(text)
    for start, end in prose_of(text, own):
        start += after_mark(own[start:end])
        ends = [start, *(start + found.end() for found in _END.finditer(own[start:end])), end]
        places = [place for place in pairwise(ends) if is_rule(own[slice(*place)])]
        is_whole = end - start <= _LINE_CHARS and not re.search("[?？]", own[start:end])
        if is_whole and places and places[0][0] == start:
            places = [(start, end)]
        yield from (" ".join(text[slice(*place)].split()) for place in places)


def is_rule(sentence: str) -> bool:
    """Tell whether a sentence has the form of a rule, a limit or a preference."""
    sentence = sentence.replace("’", "'").strip()
    if not 3 < len(sentence) <= _SENTENCE_CHARS or not is_wordy(sentence) or _QUESTION.search(sentence):
        return False
    return any(form.search(sentence) for form in _SENTENCES) or any(
        (found := form.search(clause)) is not None and not _SELF.search(clause[: found.start()])
        for clause in map(str.strip, _CLAUSE.split(sentence))
        for form in _CLAUSES
    )
