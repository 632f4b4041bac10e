"""The one form that notes and summaries have: seven sections, in the conversation's language."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

SectionKey = Literal["goal", "instructions", "facts", "decisions", "done", "failures", "state"]


class Section(NamedTuple):
    """A section of notes."""

    key: SectionKey
    english: str
    chinese: str
    hint: str
    """What the prompt asks for here; an answer that repeats it has filled in nothing."""


SECTIONS = (
    Section("goal", "Goal", "目标", "what the user wants now; what is done is no goal"),
    Section(
        "instructions",
        "User instructions",
        "用户的指示",
        "the user's rules, limits and preferences that hold",
    ),
    Section(
        "facts",
        "Facts and values",
        "事实与数值",
        "what holds, what users said of themselves and their work among it, each value with its owner",
    ),
    Section("decisions", "Decisions", "决定", "what was decided, each with its reason"),
    Section("done", "Done", "已完成", "one line per file, record or customer: who, what, outcome, amount"),
    Section("failures", "Failures", "失败与教训", "what failed, its exact error, what was learnt"),
    Section("state", "State and next steps", "现状与下一步", "what is open, how it stands, what comes next"),
)
LEAST_FIRST: tuple[SectionKey, ...] = (
    "done",
    "decisions",
    "facts",
    "failures",
    "instructions",
    "state",
    "goal",
)
"""In this order sections lose lines where a summary is too long. Instructions stand beside it by rule, and
without its goal and state an agent cannot go on."""

_FORMER: dict[SectionKey, tuple[str, ...]] = {
    "instructions": (
        *("User's instructions", "User’s instructions"),
        *("User instructions and constraints", "用户的指示与约束"),
    ),
    "state": ("In progress", "进行中", "Next steps", "下一步"),
}
"""Headings of the first version, and what writers make of them; segments that have them are read for ever."""
_KEYS: dict[str, SectionKey] = {title.casefold(): s.key for s in SECTIONS for title in (s.english, s.chinese)}
_KEYS |= {title.casefold(): key for key, titles in _FORMER.items() for title in titles}
_HEADING_MARKS = re.compile(r"(?:#{1,6}\s*|\*\*|\d{1,2}[.)、]\s*)+")
_BULLET = re.compile(r"\A(?:(?:[-*•+]|\d{1,2}[.)、])(?:\s+|$))+")
_PLACEHOLDERS = frozenset(
    {
        *("", "none", "n/a", "na", "null", "nil", "nothing", "empty", "undefined", "tbd", "todo", "...", "…"),
        *("not applicable", "none yet", "not specified", "unknown", "no summary", "summary"),
        *("nothing to summarize", "object object"),
        *("no content", "-", "--", "---", "无", "暂无", "没有", "空", "未知", "不适用", "省略"),
        *(s.hint.casefold() for s in SECTIONS),
    }
)
_LONGEST_PLACEHOLDER = max(map(len, _PLACEHOLDERS))
_CJK = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_OTHER_WORD = re.compile(r"[^\W\d_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]{2,}")
_KANA = re.compile(r"[\u3040-\u309f\u30a1-\u30fa]")
_KANA_WEIGHT = 3
"""Letters that Chinese has not: among the nouns of a message in Japanese they may be few."""
_LANGUAGE_SAMPLE_CHARS = 2_000


def section_of_heading(line: str) -> SectionKey | None:
    """Return the key of the section that `line` opens, or None when it opens none that we know."""
    line = line.strip()
    marks = _HEADING_MARKS.match(line)
    return _KEYS.get(line[marks.end() :].strip(" \t*:：").casefold()) if marks else None


def is_heading(line: str) -> bool:
    """Tell whether `line` is a Markdown heading, of whatever title."""
    return line.lstrip().startswith("#")


def is_placeholder(line: str) -> bool:
    """Tell whether `line` says nothing: blank, "none" and its kin, or the template's own hint."""
    text = _BULLET.sub("", line.strip(), count=1).strip(" \t*_`'\"<>()[]{}（）【】.。!")
    # Folding makes no text shorter, and messages are long.
    return len(text) <= _LONGEST_PLACEHOLDER and text.casefold() in _PLACEHOLDERS


def is_chinese(texts: Iterable[str]) -> bool:
    """Tell whether texts are mostly Chinese: more characters of it than words of other languages."""
    han = others = 0
    for text in texts:
        sample = text[:_LANGUAGE_SAMPLE_CHARS]
        han += len(_CJK.findall(sample))
        others += len(_OTHER_WORD.findall(sample)) + _KANA_WEIGHT * len(_KANA.findall(sample))
    return han > others
