"""What a person said, apart from what a program wrote in the user's place, and what of it holds on.

Agents without tool calls get what a call came to as the next user's message. Programs around agents add
reminders, what they retrieved, and nudges where nothing was called. None of it is anybody's wish.

Standing instructions are sentences of users and instructions that hold beyond the request they came with.
Whether a sentence is one depends on its own words and its message alone, never on what a tool printed. When
in doubt it is kept. Pure, and linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from context_compressor.messages.msg import Msg, is_instruction, provenance_of

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

_RULES = (
    re.compile(
        r"\b(?:never|always|must|should|ha(?:s|ve) to|may not|forbidden|only|every|avoid|remember|unless"
        r"|limit|instead of|without|at (?:most|least)|from (?:now|here) on)\b",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:^|[,;:.] |\band |\bbut |\bplease )"
        r"(?:do not|don't|no|keep|ensure|if|whenever|make sure|stop|leave|stay)\b",
        re.IGNORECASE,
    ),
    re.compile(
        r"必须|不[要得能许可超]|禁止|绝不|[切请]勿|总是|始终|只[能用]|务必|[以今]后|记住|除非|如果|一律"
        r"|应[该当]|最[多少]|至[多少]|凡是|优先|保持|(?:^|[，。；：])请?别"
    ),
)
"""Words of rules and limits: anywhere, where a clause begins, and in Chinese; at most thirty a language."""
_WISH = re.compile(r"\b(?:prefers?|wants|rather|likes)\b|\bI like\b|偏好|喜欢|希望", re.IGNORECASE)
_SELF = re.compile(
    r"(?:I am|I'm|I have|I live|I work|We (?:are|have|use|work)|My|Our)\b|我们?(?:是|叫|有|在|住|不|对|的)"
)
"""How a sentence begins that tells of the user."""
_VALUE = re.compile(
    r"\b\w+://\S+|(?<![\w$€£¥#-])[\w$€£¥#-]*\d[\w.,:/%-]*|\b[A-Z]\w*[A-Z]\w*"
    r"|\b\w+[_/.]\w[\w/.]*|(?<=\w )[A-Z]\w+"
)
"""What a fact to keep in mind names: a number, a name, an address.

Each begins where a word does, so that a long run of letters is read once.
"""
_RULE_WEIGHT, _LABEL_WEIGHT = 20, 15
"""Characters of values that a rule is worth, and a label, by which somebody says what a sentence is."""
_STATES = re.compile(
    r"\b(?:is|are|was|were|has|have|may|can|will|needs?|costs?|uses?|runs?|lives?|fails?|called)\b"
    r"|[=是为叫在有]|[:：] "
)
_LABEL = re.compile(r"[^\W\d_][\w' /-]{1,38}(?::\s+|：)(?=\S)")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_MARK = re.compile(r"\s*(?:[-*•+]|\d{1,2}[.)、])\s+")
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|(?<=[。！？；])")
_LINE_CHARS = 300
"""A line up to this length is kept whole: a rule, its reason and its exception stand together."""
_CODE_MARK = re.compile(r"[{}()\[\];=<>|\\]")
_MOST_MARKS = 0.05
"""With more of these marks in it a line is code or data."""
_SENTENCE_CHARS = 600
"""A longer sentence is no sentence, but data."""


def standing_in(msg: Msg) -> tuple[str, ...]:
    """Return the standing instructions of a message, each on one line, in order; none of a program's."""
    if provenance_of(msg) or not (is_instruction(msg) or (msg.role == "user" and not is_handed(msg))):
        return ()
    return tuple(dict.fromkeys(_standing_lines(msg.get_text_content() or "")))


def weight_of(sentence: str) -> int:
    """Return how much a sentence tells that cannot be guessed: characters of values, and more for a rule."""
    labelled = _LABEL.match(sentence) is not None
    return (
        sum(map(len, _VALUE.findall(sentence))) + _RULE_WEIGHT * is_rule(sentence) + _LABEL_WEIGHT * labelled
    )


def is_rule(sentence: str) -> bool:
    """Tell whether a standing instruction is a rule, limit or preference, and not only a fact or a label."""
    return strength_of(sentence) > 0


def strength_of(sentence: str) -> int:
    """Return 2 for a rule or a limit, 1 for a wish, 0 for a fact or what only has a label."""
    return 2 if any(rule.search(sentence) for rule in _RULES) else 1 if _WISH.search(sentence) else 0


def _standing_lines(text: str) -> Iterator[str]:
    is_code = False
    for raw in text.splitlines():
        if _FENCE.match(raw):
            is_code = not is_code
        elif not (is_code or raw.startswith((">", "    ", "\t", "<", "|"))):
            line = " ".join(raw[mark.end() if (mark := _MARK.match(raw)) else 0 :].split())
            sentences = _END.split(line) if len(line) > _LINE_CHARS and not _LABEL.match(line) else [line]
            yield from (found.strip() for found in sentences if _is_standing(found.strip()))


def _is_standing(sentence: str) -> bool:
    if not 3 < len(sentence) <= _SENTENCE_CHARS or sentence.endswith(("?", "？")):
        return False
    if len(_CODE_MARK.findall(sentence)) > _MOST_MARKS * len(sentence):
        return False
    return (
        _LABEL.match(sentence) is not None
        or is_rule(sentence)
        or _SELF.match(sentence) is not None
        or (_STATES.search(sentence) is not None and _VALUE.search(sentence) is not None)
    )
