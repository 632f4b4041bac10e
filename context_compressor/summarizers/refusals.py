"""Recognise by its form what is answered in place of a summary: a call, an error, a refusal, a turn."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from context_compressor.summarizers.sections import is_heading, is_placeholder, section_of_heading

_SHORT_CHARS = 600
"""Errors, refusals and turns of a chat are shorter, or share next to nothing with the material."""
_LEAST_SHARED = 4
"""Of a summary's words so many at least stand in the material, fewer only where that has few itself."""
_SHARE, _LONG_SHARE, _SURE_SHARE = 0.5, 0.25, 0.7
"""What part of its words: of a short text; of a longer one, whose writer had room for own words; of a short
one that begins as errors and refusals do."""
_SAID_INSTEAD = frozenset(
    {
        *("error", "exception", "traceback", "sorry", "apologies", "apologize", "unfortunately", "unable"),
        *(
            "cannot",
            "can't",
            "won't",
            "decline",
            "failed",
            "timeout",
            "timed",
            "refused",
            "quota",
            "overloaded",
        ),
        *("limit", "unavailable", "unauthorized"),
        *("抱歉", "对不起", "无法", "不能", "没法", "错误", "异常", "超时", "失败", "繁忙", "限流", "违规"),
        *(
            "leider",
            "entschuldigung",
            "leid",
            "désolé",
            "désolée",
            "siento",
            "lamento",
            "dispiace",
            "desculpe",
        ),
    }
)
"""With one of these at its beginning a short text must share more, or name what the material names."""
_FIRST_WORDS = 6
_I = frozenset(
    {*("i", "i'm", "i'll", "i've", "i'd", "me", "my", "we", "we'll", "ich", "mir", "wir", "我", "我们")}
)
_YOU = frozenset(
    {*("you", "your", "you're", "you've", "you'd", "ihnen", "ihre", "dir", "dich", "dein", "你", "您")}
)

_WORD = re.compile(r"[^\W_]+(?:[-'._/@:][^\W_]+)*[^\W_]*|_")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|「[^」\n]*」|`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")
_WRAPPED = re.compile(r"```[\w-]*\n(.*)\n```|<([\w:-]{1,40})>\s*(.*?)\s*</\2>", re.DOTALL)
_MAX_WRAPPINGS = 3
_MAX_JSON_STARTS = 8
_MAX_READ_CHARS = 20_000
"""So much of an answer tells what it is about."""


def unwrap(text: str) -> str:
    """Return a text without a fence or an element around all of it."""
    for _ in range(_MAX_WRAPPINGS):
        wrapped = _WRAPPED.fullmatch(text)
        if not wrapped:
            break
        inner = (wrapped[1] or wrapped[3] or "").strip()
        if not inner or f"</{wrapped[2]}>" in inner:
            break
        text = inner
    return text


def says_something(text: str) -> bool:
    """Tell whether a text has a line that is no heading and no placeholder."""
    return any(not (_is_title(line) or is_placeholder(line)) for line in text.strip(" …").splitlines())


def _is_title(line: str) -> bool:
    return section_of_heading(line) is not None or is_heading(line)


def is_in_form(text: str) -> bool:
    """Tell whether a text has the form that was asked for: lines under headings, or a list."""
    opened = False
    for line in text.splitlines():
        if _is_title(line):
            opened = True
        elif opened and not is_placeholder(line):
            return True
    return text.startswith(("- ", "* ", "1. "))


def is_call(text: str, tools: Collection[str]) -> bool:
    """Tell whether a text is a call of a tool, or ends with one, in whatever spelling.

    A call is a JSON object with a tool's name beside arguments, or a line that is a mark or a label with the
    name of a tool in it. In a summary tools are named within lines.

    Args:
        text: the answer.
        tools: the names of the tools in the material.
    """
    if any(_is_json_call(data, tools) for data in _json_values(text)):
        return True
    names = "|".join(sorted(map(re.escape, filter(None, tools)), key=len, reverse=True))
    if not names:
        return False
    name = rf"(?:functions?\.)?(?:{names})"
    forms = (
        # <invoke name="read">, <function=read>, <read>
        rf"[<\[][^<>\n]{{0,80}}?\b{name}\b[^<>\n]{{0,80}}>?",
        # read(path="a"), and behind a mark; functions.read:0
        rf"(?:[<\[][^\n]{{0,80}}[>\]]\s*)?{name}\s*(?:\(.*\)|:\d+)",
        # a mark, and the name alone
        rf"[<\[][^\n]{{0,80}}[>\]]\s*{name}",
        # Action: read, and its arguments below
        rf"[^\W\d]\w{{0,20}}:\s*{name}\s*\n[^\n{{]{{0,40}}\{{.*",
    )
    return re.search(rf"^(?:{'|'.join(forms)})\s*$", text, re.MULTILINE) is not None


def _json_values(text: str) -> Iterator[Any]:
    """Yield the JSON objects and lists that end with a line, of many those nearest to either end."""
    starts = [match.start(1) for match in re.finditer(r"^[^\n{\[]{0,60}([{\[])", text, re.MULTILINE)]
    if len(starts) > _MAX_JSON_STARTS:
        starts = starts[: _MAX_JSON_STARTS // 2] + starts[-_MAX_JSON_STARTS // 2 :]
    for start in starts:
        try:
            value, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if not text[end : text.find("\n", end) if "\n" in text[end:] else len(text)].strip(" ;,"):
            yield value


def _is_json_call(data: Any, tools: Collection[str], depth: int = 0) -> bool:
    """Tell whether data holds an object of a tool's name and arguments."""
    if depth > 3:
        return False
    if isinstance(data, list):
        return any(_is_json_call(item, tools, depth + 1) for item in data[:_MAX_JSON_STARTS])
    if not isinstance(data, dict):
        return False
    is_named = any(
        isinstance(value, str) and (value in tools or (key == "name" and value.isidentifier()))
        for key, value in data.items()
    )
    has_arguments = any(
        isinstance(value, dict) or (isinstance(value, str) and value.lstrip().startswith("{"))
        for value in data.values()
    )
    if is_named and has_arguments and len(data) <= 5:
        return True
    return any(
        _is_json_call(value, tools, depth + 1) for value in data.values() if isinstance(value, dict | list)
    )


def is_next_turn(text: str) -> bool:
    """Tell whether a text speaks to somebody: "I ... you" in its first or last sentence, outside quotes."""
    sentences = [part for part in _SENTENCE_END.split(_QUOTED.sub("", text)) if part.strip()]
    words = _spoken(" ".join(sentences[:1] + sentences[-1:]))
    return bool(words & _I and words & _YOU)


def _spoken(sentence: str) -> set[str]:
    folded = sentence.casefold().replace("’", "'")
    han = "".join(_CJK.findall(folded))
    return set(_WORD.findall(folded)) | {word for word in (*_I, *_YOU) if not word.isascii() and word in han}


def is_foreign(text: str, material: str, prompt: str) -> bool:
    """Tell whether a text is about something else than the material, as errors, refusals and greetings are.

    What it shares is counted in words of four letters and more, names, numbers, and pairs of ideographs.
    Words of the prompt do not count: "conversation", "request" and "error" are what refusals are made of.

    Args:
        text: the answer, which has not the form that was asked for.
        material: all that the prompt showed.
        prompt: our own words in it.
    """
    common = _units(prompt)
    said, given = _units(text[:_MAX_READ_CHARS]) - common, _units(material) - common
    shared = said & given
    is_short = len(text) <= _SHORT_CHARS
    names = {unit for unit in shared if _is_name(unit)}
    if names and 2 * len(names) >= sum(map(_is_name, said)):
        return False
    start = "".join(_CJK.findall(text[:80].casefold()))
    first = set(_WORD.findall(text[:200].casefold().replace("’", "'"))[:_FIRST_WORDS])
    least, share = _LEAST_SHARED, _SHARE if is_short else _LONG_SHARE
    if is_short and any(word in (first if word[0] < "\u2e80" else start) for word in _SAID_INSTEAD):
        least, share = 6, _SURE_SHARE
    return len(shared) < min(least, max(1, len(given) // 3)) or len(shared) < share * len(said)


def _units(text: str) -> set[str]:
    """Return what a text is told by: its longer words, names and numbers, pairs of ideographs."""
    folded = text.casefold()
    units = {word for word in _WORD.findall(_CJK.sub(" ", folded)) if len(word) > 3 or _is_name(word)}
    for run in _CJK.findall(folded):
        units.update(run[at : at + 2] for at in range(len(run) - 1))
    return units


def _is_name(unit: str) -> bool:
    """Tell whether a word is a name or number by its form; a small number is none."""
    return any(c.isdigit() or c in "_./@:" for c in unit) and not (unit.isdigit() and len(unit) < 4)
