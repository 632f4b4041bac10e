"""Preview source code: its first line, and the names it defines, by line number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from context_compressor.offload.previews.lines import (
    Show,
    first_line,
    head_lines,
    line_numbers,
    sample_lines,
    share,
)

MIN_DEFINITIONS = 3
MAX_LINES_PER_DEFINITION = 200
"""Fewer or sparser definitions say little about a text: it is shown as plain text."""

CODE_SHARE = 0.4
"""Of the lines of the sample that look like code, at least: prose and logs have below 0.2."""

NUMBERED_SHARE, NUMBERED_CODE_SHARE = 0.6, 0.15
"""Where so many lines begin with a line number, fewer need to look like code: it may be a docstring."""

NAMES_PER_RANGE = 8
"""Names that stand under one range of lines: each range costs the tokens of two names."""

_NUMBER = re.compile(r"[ \t]*\d{1,7}(?:\t|: ?|→|-|[ \t]*[|│] ?)")
"""A line number before a line, as `cat -n`, `grep -n` and agents' viewers write them."""

_MODIFIERS = (
    *("export", "default", "declare", "public", "private", "protected", "internal", "static", "abstract"),
    *("final", "sealed", "async", "override", "inline", "extern", "const", "unsafe", "partial"),
    *("data", "open", "readonly"),
)
_CONTAINERS = (
    *("class", "interface", "struct", "enum", "trait", "impl", "module", "namespace", "protocol", "record"),
    *("union", "type"),
)
_FUNCTIONS = ("def", "function*", "function", "func", "fun", "fn", "macro_rules!")
_KEYWORD = re.compile(
    rf"(?:(?:{'|'.join(_MODIFIERS)}|pub(?:\([a-z:]{{1,30}}\))?)[ \t]+){{0,6}}"
    rf"({'|'.join(map(re.escape, [*_CONTAINERS, *_FUNCTIONS]))})(?:<[^>]{{1,60}}>)?"
    r"[ \t]+(?:\([^)]{0,60}\)[ \t]*)?"  # the receiver of a method in Go
    r"([^\W\d][\w$]{0,80}(?:(?:::|\.)[\w$]{1,80}){0,4})[ \t]*"
    r"(?:[(:{<=;\[?!]|$|extends\b|implements\b|struct\b|interface\b|for\b|where\b)"
)
_STARTS = ("pub", "impl<", *(f"{word} " for word in (*_MODIFIERS, *_CONTAINERS, *_FUNCTIONS)))
_START_LETTERS = frozenset(start[:2] for start in _STARTS)
"""Most lines begin otherwise, and to ask for these takes a tenth of the time."""
_CALLABLE = re.compile(
    r"(?:[\w$<>,.\[\]*&:?]{1,80}[ \t]+){0,6}[*&]{0,3}([^\W\d][\w$]{0,80}(?:::~?\w{1,80}){0,4})[ \t]*"
    r"(?:<[^>]{1,40}>)?\("
)
"""A method in Java, JavaScript or C#, a function in C: known by the brace that follows."""

_CONTROL = frozenset(
    {
        *("if", "for", "while", "switch", "catch", "return", "else", "elif", "with", "assert", "raise"),
        *("throw", "new", "await", "yield", "sizeof", "do", "case", "in", "not", "and", "or", "super"),
        *("require", "foreach", "until", "unless", "match", "select", "defer", "go", "function"),
        *("elsif", "describe", "it", "test"),
    }
)
_CODE = re.compile(
    r"[ \t]*(?:(?:import|from|return|if|for|while|else|elif|try|except|def|class|const|let|var|public|private"
    r"|static|fn|func|use|raise|throw|with|assert|self|this|package|typedef|struct|switch|case)\b"
    r"|#|//|/?\*|@\w|[})\]]|\"\"\"|>>>|[\w.$\[\]]{1,80} (?:[-+*/|]?=|:=) |[\w.$]{1,80}\()"
)
_ENDS = (";", "{", "}", "(", "[")


class _Definition(NamedTuple):
    line: int
    name: str
    keyword: str
    """What stands before the name: `class`, `def`, `private`; "" for none."""
    is_container: bool


def show_code(text: str) -> Show | None:
    """Return what names the definitions in source code, classes first; None for another kind of text."""
    sample = sample_lines(text)
    numbers = [_NUMBER.match(line) for line in sample]
    starts = [found.end() if found else 0 for found in numbers]
    are_numbered = share(map(bool, numbers)) > NUMBERED_SHARE
    looks = share(
        line.endswith(_ENDS) or _CODE.match(line, start) is not None
        for line, start in zip(sample, starts, strict=True)
    )
    if looks < (NUMBERED_CODE_SHARE if are_numbered else CODE_SHARE):
        return None
    lines = head_lines(text)
    definitions = list(_definitions(lines, are_numbered))
    if len(definitions) < MIN_DEFINITIONS or len(definitions) * MAX_LINES_PER_DEFINITION < len(lines):
        return None
    # The sort is stable: within either kind the order is that of the text.
    by_rank = sorted(definitions, key=lambda definition: not definition.is_container)

    def show(characters: int) -> str:
        head = first_line(lines, characters)
        room = characters - len(head)
        chosen = []
        for definition in by_rank:
            room -= len(definition.name) + 2 + 6 * definition.is_container + 20 // NAMES_PER_RANGE
            if room < 0:
                break
            chosen.append(definition)
        chosen.sort()
        groups = [chosen[i : i + NAMES_PER_RANGE] for i in range(0, len(chosen), NAMES_PER_RANGE)]
        return "\n".join((head, *map(_write, groups)))

    return show


def _write(group: Sequence[_Definition]) -> str:
    names, said = "", ""
    for _, name, keyword, is_container in group:
        shown = f"{keyword} {name}" if keyword and (keyword != said or is_container) else name
        # A keyword holds for the names after it, too, up to a semicolon.
        names += f"; {shown}" if said and not keyword else f", {shown}"
        said = keyword
    names = names.removeprefix(", ")
    return f"{line_numbers(group[0].line, group[-1].line)} {names}"


def _definitions(lines: Sequence[str], are_numbered: bool) -> Iterator[_Definition]:
    """Yield what `lines` define, each name once."""
    seen = set()
    before = ""
    for number, line in enumerate(lines):
        start = 0
        if are_numbered and (found := _NUMBER.match(line)):
            start = found.end()
        code = line[start : start + 300].strip()
        above, before = before, code
        if code[:2] in _START_LETTERS and code.startswith(_STARTS) and (found := _KEYWORD.match(code)):
            name, keyword, is_container = found[2], found[1], found[1] in _CONTAINERS
        elif code.endswith("{"):
            # In C the brace may stand below.
            is_below = code == "{"
            (name, keyword), is_container = _callable(above if is_below else code), False
            number -= is_below
        else:
            continue
        if name and name not in seen:
            seen.add(name)
            yield _Definition(number, name, keyword, is_container)


def _callable(code: str) -> tuple[str, str]:
    """Return the name of a function that begins on a line, and the word before it."""
    found = _CALLABLE.match(code)
    before = code[: found.start(1)].split() if found else []
    if not found or found[1] in _CONTROL or found[1] == "async" or not _CONTROL.isdisjoint(before):
        return "", ""
    return found[1], before[-1] if before and before[-1].isalpha() else ""
