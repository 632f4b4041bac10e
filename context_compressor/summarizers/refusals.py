"""Recognise by its form what is answered in place of a summary: a call, an error, a refusal, a turn."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from context_compressor.summarizers.sections import is_heading, is_placeholder, section_of_heading

_LEAST_SHARED, _SHARE = 4, 0.4
"""So many of a summary's words, and this part of them, stand in the material; errors, refusals and turns of a
chat share fewer. Of a material that has few words itself, a third is asked."""
_MAX_READ_CHARS = 20_000
"""So much of an answer tells what it is about."""
_MAX_WRAPPINGS = 3
_MAX_JSON_STARTS = 8
_MAX_JSON_DEPTH = 3

_WORD = re.compile(r"[^\W_]+(?:[-'._/@:][^\W_]+)*[^\W_]*|_")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_I = re.compile(r"\b(?:i|me|my|we|ich|mir|wir)\b|我", re.IGNORECASE)
_YOU = re.compile(r"\b(?:you|your|ihnen|ihre|dir|dich|dein)\b|[你您]", re.IGNORECASE)
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|「[^」\n]*」|`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")
_WRAPPED = re.compile(r"```[\w-]*\n(.*)\n```|<([\w:-]{1,40})>\s*(.*?)\s*</\2>", re.DOTALL)
_JSON_START = re.compile(r"^[^\n{\[]{0,60}([{\[])", re.MULTILINE)
_JSON_END = re.compile(r"[ ;,\t\r]*(?:\n|\Z)")


def unwrap(text: str) -> str:
    """Return a text without a fence or an element around all of it."""
    for _ in range(_MAX_WRAPPINGS):
        wrapped = _WRAPPED.fullmatch(text)
        inner = (wrapped[1] or wrapped[3] or "").strip() if wrapped else ""
        if not wrapped or not inner or f"</{wrapped[2]}>" in inner:
            break
        text = inner
    return text


def says_something(text: str) -> bool:
    """Tell whether a text has a line that is no heading and no placeholder."""
    return any(
        section_of_heading(line) is None and not is_heading(line) and not is_placeholder(line)
        for line in text.strip(" …").splitlines()
    )


def is_in_form(text: str) -> bool:
    """Tell whether a text has the form that was asked for: lines under headings, or a list."""
    opened = False
    for line in text.splitlines():
        if is_heading(line) or section_of_heading(line) is not None:
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
    name, mark = rf"(?:functions?\.)?(?:{names})", r"[<\[][^\n]{0,80}[>\]]\s*"
    forms = (
        rf"[<\[][^<>\n]{{0,80}}?\b{name}\b[^<>\n]{{0,80}}>?",  # <invoke name="read">, <function=read>, <read>
        rf"(?:{mark})?{name}\s*(?:\(.*\)|:\d+)|{mark}{name}",  # read(path="a"), functions.read:0, <...> read
        rf"[^\W\d]\w{{0,20}}:\s*{name}\s*\n[^\n{{]{{0,40}}\{{.*",  # Action: read, and its arguments below
    )
    return bool(names) and re.search(rf"^(?:{'|'.join(forms)})\s*$", text, re.MULTILINE) is not None


def _json_values(text: str) -> Iterator[Any]:
    """Yield the JSON objects and lists that end with a line, of many those nearest to either end."""
    starts = [match.start(1) for match in _JSON_START.finditer(text)]
    if len(starts) > _MAX_JSON_STARTS:
        starts = starts[: _MAX_JSON_STARTS // 2] + starts[-_MAX_JSON_STARTS // 2 :]
    for start in starts:
        try:
            value, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if _JSON_END.match(text, end):
            yield value


def _is_json_call(data: Any, tools: Collection[str], depth: int = 0) -> bool:
    """Tell whether data holds an object of a tool's name and arguments."""
    if not isinstance(data, dict | list) or depth > _MAX_JSON_DEPTH:
        return False
    values = list(data.values()) if isinstance(data, dict) else data[:_MAX_JSON_STARTS]
    if isinstance(data, dict) and len(data) <= 5:
        is_named = any(
            isinstance(value, str) and (value in tools or (key == "name" and value.isidentifier()))
            for key, value in data.items()
        )
        if is_named and any(isinstance(v, dict) or str(v).lstrip().startswith("{") for v in values):
            return True
    return any(_is_json_call(value, tools, depth + 1) for value in values)


def is_next_turn(text: str) -> bool:
    """Tell whether a text speaks to somebody: "I ... you" in its first or last sentence, outside quotes."""
    sentences = [part for part in _SENTENCE_END.split(_QUOTED.sub("", text)) if part.strip()]
    spoken = " ".join(sentences[:1] + sentences[-1:])
    return bool(_I.search(spoken) and _YOU.search(spoken))


def is_foreign(text: str, material: str, prompt: str) -> bool:
    """Tell whether a text is about something else than the material, as errors, refusals and greetings are.

    What it shares is counted in words of four letters and more, names, numbers, and pairs of ideographs.
    Words of the prompt do not count: "conversation", "request" and "error" are what refusals are made of.
    One that has half of its names and numbers from the material is about it.

    Args:
        text: the answer, which has not the form that was asked for.
        material: all that the prompt showed.
        prompt: our own words in it.
    """
    common = _units(prompt)
    said, given = _units(text[:_MAX_READ_CHARS]) - common, _units(material) - common
    shared = said & given
    names = sum(map(_is_name, shared))
    if names and 2 * names >= sum(map(_is_name, said)):
        return False
    return len(shared) < max(min(_LEAST_SHARED, max(1, len(given) // 3)), _SHARE * len(said))


def _units(text: str) -> set[str]:
    """Return what a text is told by: its longer words, names and numbers, pairs of ideographs."""
    folded = text.casefold()
    units = {word for word in _WORD.findall(_CJK.sub(" ", folded)) if len(word) > 3 or _is_name(word)}
    return units | {run[at : at + 2] for run in _CJK.findall(folded) for at in range(len(run) - 1)}


def _is_name(unit: str) -> bool:
    """Tell whether a word is a name or number by its form; a small number is none."""
    return any(c.isdigit() or c in "_./@:" for c in unit) and not (unit.isdigit() and len(unit) < 4)
