"""What is told of a file that was shown: its lines without their numbers, and what it defines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from context_compressor.summarizers.cutting import ELLIPSIS

_DEFINED_CHARS = 80
_NUMBERED = re.compile(r"\s*+(\d{1,6})(?:[\t→]|[:|] ?|\s*\Z)")
"""How tools that show a file begin each line: with its number."""
_ANY_NUMBER = re.compile(r"^[ \t]*+\d{1,6}[\t→:|]", re.MULTILINE)
_DEFINITION = re.compile(
    r"(\s*+)(?=[acdefipstu])"  # each of the words begins with one of these
    r"((?:(?:export|default|public|private|protected|internal|static|abstract|final|async|pub|unsafe) +)*"
    r"(?:class|def|func|function|fn|interface|struct|enum|trait) +[^\W\d]\w*)"
)


def without_numbers(text: str) -> Sequence[str]:
    """Return the lines of a shown file without their numbers, where they have any."""
    lines = text.splitlines()
    if not _ANY_NUMBER.search(text):
        return lines
    found = [(line, _NUMBERED.match(line)) for line in lines]
    numbers = [int(number[1]) for _, number in found if number]
    texts = [line[number.end() :] for line, number in found if number]
    if not any(texts) or numbers[:3] != list(range(numbers[0], numbers[0] + 3)):
        return lines
    return [line[number.end() :] if number else line for line, number in found]


def definitions(lines: Sequence[str]) -> str:
    """Return the first of what code defines outermost; "" where it is hardly any.

    Files begin with a licence and imports, which tell less of them.
    """
    found = [definition for line in lines if (definition := _DEFINITION.match(line))]
    if len(found) < 2:
        return ""
    depth = min(len(definition[1]) for definition in found)
    first, *others = dict.fromkeys(definition[2] for definition in found if len(definition[1]) == depth)
    told = first
    for other in others:
        if len(told) + len(other) > _DEFINED_CHARS:
            return told + ELLIPSIS
        told += f", {other}"
    return told
