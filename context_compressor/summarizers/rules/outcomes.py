"""What a call came to, as lines of its own result, and whether it failed. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from context_compressor.summarizers.rules.pieces import flat
from context_compressor.summarizers.rules.steps import Call, data_in

_BAD = (
    r"error|errors|fatal|traceback|exception|failed|failure|failing|cannot|can't|unable|invalid|denied"
    r"|not found|no such"
)
_BAD_CHINESE = "错误|失败|异常|无法|未找到|不存在|拒绝"
_IS_BAD = re.compile(rf"\b(?:\w*Error|\w*Exception|{_BAD})\b|{_BAD_CHINESE}", re.IGNORECASE)
_BEGINS_BAD = re.compile(
    rf"\W{{0,9}}(?:[^\s:：]{{1,99}}[:：] ?){{0,3}}(?:(?!no\b|without\b)[a-z]{{1,20}} )?\W{{0,9}}"
    rf"(?:[\w.]*(?:Error|Exception)\b|(?:{_BAD})\b|{_BAD_CHINESE})",
    re.IGNORECASE,
)
_NAMES_BAD = re.compile(
    r"\b(?:\w*error|exception|failed|failure|fatal)s?[:：]|(?:错误|失败|异常)[:：]", re.IGNORECASE
)
_COUNTS_BAD = re.compile(r"\b[1-9]\d* (?:failed|failures?|errors?)\b", re.IGNORECASE)
_EXIT_CODE = re.compile(r"(?:exit|return)[ _-]?(?:code|status)\W{1,4}(-?\d{1,9})\b", re.IGNORECASE)
_STACK = "Traceback (most recent call last)"
_AFTER_STACK = re.compile(r"(?:[^\n]*\n)(?:[ \t][^\n]*\n|\n)*([^\n]+)")
_ENDS_CHARS = 300
_STATUS_CHARS = 80
"""A line that tells an exit code is no longer."""
_SHORT_CHARS = 1_500
"""A longer result is no error text for its first line alone: it may be a page on errors."""
_FRAME = re.compile(r"</?[\w-]+>|<([\w-]+)>-?\d*</\1>")
"""A line that only opens or closes what a program puts around a result, or tells its status."""
_NUMBER = re.compile(r"\d+")
_ALIKE = 10
"""So many lines that differ in their numbers alone are told as one."""
_ERROR_LINES = 4
_MOST_LINES = 400
_MOST_DEPTH = 4
_STATUS_KEY = re.compile(r"code|status|error|success|ok|time|duration", re.IGNORECASE)
_ID_KEY = re.compile(r"(?:id|ids|number|name)\Z", re.IGNORECASE)
_MOST_ITEMS = 12


class Line(NamedTuple):
    """A line of a result."""

    text: str
    is_telling: bool = False
    """Whether it tells an error, or is unlike many that are alike."""


class Outcome(NamedTuple):
    """What a call came to."""

    failed: bool = False
    lines: tuple[Line, ...] = ()
    chars: int = 0


def read_outcome(call: Call) -> Outcome:
    """Return what a call came to; without a result, nothing."""
    text = call.result
    if text is None:
        return Outcome()
    data = data_in(text)
    failed = call.flagged or _says_failed(data)
    if isinstance(data, dict) and (inner := _enveloped(data)) is not None:
        text, data = inner, data_in(inner)
        failed = failed or _says_failed(data)
    if data is not None:
        return Outcome(failed, tuple(Line(field) for field in _fields(data)), len(text))
    lines = [line for line in map(str.strip, text.splitlines()) if any(map(str.isalnum, line))]
    code = _exit_code(lines)
    lines = [flat(line) for line in lines if not _FRAME.fullmatch(line)]
    failed = failed or _text_failed(text, lines, code)
    return Outcome(failed, tuple(_errors(_raised(text), lines) if failed else _tell(lines)), len(text))


def names_error(line: str) -> bool:
    """Tell whether a line tells of an error by name, as `ERROR: no heading`."""
    return _NAMES_BAD.search(line[:_ENDS_CHARS]) is not None


def _enveloped(data: dict[str, Any]) -> str | None:
    """Return the text around which a result is nothing but an envelope: beside it, what tells of success."""
    key = next((key for key in ("output", "content", "result") if isinstance(data.get(key), str)), None)
    others = {name: value for name, value in data.items() if name != key}
    is_status = all(
        _STATUS_KEY.search(name) and not (value and isinstance(value, dict | list))
        for name, value in others.items()
    )
    return str(data[key]) if key is not None and others and is_status else None


def _says_failed(data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    for key, value in data.items():
        name = re.sub(r"\W|_", "", key).casefold()
        if name in ("error", "iserror", "errors", "errormessage") and value:
            return True
        if name in ("success", "ok") and value in (False, "false"):
            return True
        if name in ("exitcode", "returncode") and isinstance(value, int) and value != 0:
            return True
        if name == "status" and isinstance(value, str) and _BEGINS_BAD.match(value):
            return True
    return False


def _exit_code(lines: list[str]) -> int | None:
    """Return the exit code that a first or last line tells; None for none."""
    ends = [line for line in (*lines[-2:], *lines[:1]) if len(line) <= _STATUS_CHARS]
    return next((int(found[1]) for line in ends if (found := _EXIT_CODE.search(line))), None)


def _text_failed(text: str, lines: list[str], code: int | None) -> bool:
    if not lines or code is not None:
        return bool(lines and code)
    last = lines[-1][:_ENDS_CHARS]
    if _BEGINS_BAD.match(last) or _COUNTS_BAD.search(last) or _STACK in text:
        return True
    if len(text) > _SHORT_CHARS:
        return False
    first = lines[0][:_ENDS_CHARS]
    return _BEGINS_BAD.match(first) is not None or any(map(_NAMES_BAD.search, (first, last)))


def _raised(text: str) -> list[str]:
    """Return the line behind each stack of a traceback, the last first: what stands there is not indented."""
    raised: list[str] = []
    for stack in text.split(_STACK)[1:]:
        found = _AFTER_STACK.match(stack)
        raised += [flat(found[1])] if found else []
    return raised[::-1]


def _errors(raised: list[str], lines: list[str]) -> Iterator[Line]:
    """Yield the lines that say why a call failed: what was raised, then those that begin with an error."""
    bad = [
        f"{line} {after}".rstrip() if line.endswith((":", "：")) else line
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if _IS_BAD.search(line[:_ENDS_CHARS]) and _STACK not in line
    ]
    bad.sort(key=lambda line: _BEGINS_BAD.match(line[:_ENDS_CHARS]) is None)
    told: list[str] = []
    for line in [*raised, *bad]:
        if not any(line in other or other in line for other in told):
            told.append(line)
    yield from (Line(line, True) for line in told[:_ERROR_LINES] or lines[-_ERROR_LINES:])


def _tell(lines: list[str]) -> Iterator[Line]:
    """Yield the lines of a result; of many that are alike but for their numbers the first and how many."""
    shapes = [_NUMBER.sub("0", line[:_ENDS_CHARS]) for line in lines]
    counts = Counter(shapes)
    many = {shape for shape, count in counts.items() if count >= _ALIKE}
    ends = {0, len(lines) - 1}
    if len(lines) > _MOST_LINES:
        half = _MOST_LINES // 2
        ends |= set(range(half)) | set(range(len(lines) - half, len(lines)))
    told: set[str] = set()
    for number, (line, shape) in enumerate(zip(lines, shapes, strict=True)):
        if shape in many:
            if shape not in told:
                yield Line(f"{line} ({counts[shape]} ×)")
            told.add(shape)
        elif names_error(line) or bool(many):
            yield Line(line, True)
        elif len(lines) <= _MOST_LINES or number in ends:
            yield Line(line)


def _fields(data: Any, name: str = "", depth: int = 0) -> Iterator[str]:
    """Yield a line for each object in data: its fields, what names it first."""
    head = f"{name}: " if name else ""
    if not isinstance(data, dict | list):
        yield f"{head}{flat(str(data))}"
    elif depth > _MOST_DEPTH:
        return
    elif isinstance(data, list) and not any(isinstance(item, dict | list) for item in data):
        if data:
            yield f"{head}{', '.join(flat(str(item)) for item in data)}"
    elif isinstance(data, list):
        for item in data[:_MOST_ITEMS]:
            yield from _fields(item, name, depth + 1)
        if len(data) > _MOST_ITEMS:
            yield f"{head}{len(data)} in all"
    else:
        scalars = [
            (k, v) for k, v in data.items() if not isinstance(v, dict | list) and v is not None and v != ""
        ]
        scalars.sort(key=lambda pair: _ID_KEY.search(pair[0]) is None)
        if scalars:
            yield head + ", ".join(f"{key}: {flat(str(value))}" for key, value in scalars)
        for key, value in data.items():
            if isinstance(value, dict | list):
                yield from _fields(value, f"{name}.{key}" if name else key, depth + 1)
