"""What of a result repeats its call: the command that a terminal shows above it, arguments in an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import takewhile

DATA = re.compile(
    r"\s*(?:\{|\[\s*(?:[\[{(\"'\]]|(?:null|true|false|None|True|False)\b|-?\d[\d.eE+-]*\s*(?:,|\]\s*$)))"
)
"""Begins JSON, or data as Python prints it, and no log whose lines begin with a level or a time."""
_REPEATED_CHARS, _LEAST_REPEATED_CHARS = 800, 20
"""How far an answer repeats what it was asked for, and from which length that takes the answer's room."""


def below_command(text: str, command: str) -> tuple[str, str]:
    """Return what a screen shows below a command, as it was typed last, and the lines typed below its first.

    Above it stands what older commands printed, and at the end the prompt that waits. Any other text is
    returned as it is, with the whole command.
    """
    first, _, more = command.strip().partition("\n")
    if not first or first not in text:
        return text, command
    typed = re.compile(rf"^([^\n]{{0,120}}[$#>%❯]) ?{re.escape(first)}[ \t]*(?:\n|\Z)", re.MULTILINE)
    last = next(reversed(list(typed.finditer(text))), None)
    if last is None:
        return text, command
    shown, _, waits = text[last.end() :].rstrip().rpartition("\n")
    is_prompt = waits.startswith(last[1][:4]) and waits.endswith(last[1][-1])
    return (shown if is_prompt else text[last.end() :]), more


def without_echo(text: str, command: str) -> str:
    """Return a result without the command above it."""
    if not command:
        return text
    output, typed = text.split("\n"), command.strip().split("\n")
    echoed = takewhile(lambda pair: _typed(pair[0]) == _typed(pair[1]), zip(output, typed, strict=False))
    return "\n".join(output[len(list(echoed)) :])


def without_arguments(text: str, arguments: Iterable[object]) -> str:
    """Return an object in JSON without the arguments of its call among what it begins with."""
    if not DATA.match(text):
        return text
    head = text[:_REPEATED_CHARS]
    for value in arguments:
        if not isinstance(value, str) or not _LEAST_REPEATED_CHARS <= len(value) < _REPEATED_CHARS:
            continue
        written = json.dumps(value, ensure_ascii=False)
        if written in head:
            head = re.sub(rf'"[\w-]{{1,40}}"\s*:\s*{re.escape(written)}\s*,\s*', "", head, count=1)
    return head + text[_REPEATED_CHARS:]


def _typed(line: str) -> str:
    """Return a line without the prompt before it."""
    return line.strip().lstrip("$#>% ")
