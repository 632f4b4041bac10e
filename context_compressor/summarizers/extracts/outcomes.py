"""What a call came to, told in its own words, and whether it failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from context_compressor.summarizers.extracts.passages import Passage, flat, shorten
from context_compressor.summarizers.extracts.reading import Call, data_in

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
_ENDS_CHARS = 300
_STATUS_CHARS = 80
"""A line that tells an exit code is no longer."""
_SHORT_CHARS = 1_500
"""A longer result is no error text for its first line alone: it may be a page on errors."""
_MOST_LINES = 10
_LINE_CHARS = 2_000
_FRAME = re.compile(r"</?[\w-]+>|<([\w-]+)>-?\d*</\1>")
"""A line that only opens or closes what a program puts around a result, or tells its status."""
_VALUE_CHARS = 600
_MOST_FIELDS = 60
_ERROR_LINES = 6
_SIZE = re.compile(r"\(\d+ lines\)")
_NUMBERED = re.compile(r"(?<!\w)[\w.:-]*?\d[\w.,:-]*")
"""A word with a digit in it: by these alone lines that are alike differ."""
_MOST_DEPTH = 4
_FEW_FIELDS = 4
_STATUS_KEY = re.compile(r"code|status|error|success|ok|time|duration", re.IGNORECASE)
_ID_KEY = re.compile(r"(?:id|ids|number|name)\Z", re.IGNORECASE)


@dataclass(slots=True)
class Outcome:
    """What a call came to."""

    failed: bool = False
    told: Passage = field(default_factory=lambda: Passage([]))
    is_record: bool = False
    """Whether it is data, told by its fields."""
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
    if data is not None:  # told by its fields, what names it first and what stands deeper later
        told = Passage(list(islice(_fields(data), _MOST_FIELDS)), joint=", ", keeps="first")
        return Outcome(failed, told, not failed, len(text))
    lines = [line for line in map(str.strip, text.splitlines()) if any(map(str.isalnum, line))]
    code = _exit_code(lines)
    lines = [line for line in lines if not _FRAME.fullmatch(line)]
    failed = failed or _text_failed(text, lines, code)
    return Outcome(failed, _tell_lines(lines, failed), False, len(text))


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


def is_size(part: str) -> bool:
    """Tell whether a part of what was told only says how many lines there were."""
    return _SIZE.fullmatch(part) is not None


def names_error(line: str) -> bool:
    """Tell whether a line tells of an error by name, as `ERROR: no heading`."""
    return _NAMES_BAD.search(line[:_ENDS_CHARS]) is not None


def _tell_lines(lines: list[str], failed: bool) -> Passage:
    if failed:
        # What begins with an error is looked for again; the first line of a stack says nothing.
        bad = [line for line in lines if _IS_BAD.search(line[:_ENDS_CHARS]) and line[-1] not in ":："]
        bad.sort(key=lambda line: _BEGINS_BAD.match(line[:_ENDS_CHARS]) is None)
        return Passage([flat(line) for line in dict.fromkeys(bad[:_ERROR_LINES] or lines[-2:])], joint=" | ")
    unlike: set[str] = set()
    if len(lines) > _MOST_LINES:
        are_alike, unlike = _unlike_others(lines)
        ends = 1 if are_alike else _MOST_LINES // 2
        head, tail = lines[:ends], lines[-ends:]
        amid = [line for line in lines[ends:-ends] if line in unlike or names_error(line)]
        lines = [*head, f"({len(lines)} lines)", *dict.fromkeys(amid[:_ERROR_LINES]), *tail]
    # A run that went through may have told of errors all the same: they are told first.
    ranks = [2.0 * (line in unlike or names_error(line)) for line in lines]
    ranks = [rank + (n == 0) + 1.5 * (n == len(lines) - 1) for n, rank in enumerate(ranks)]
    return Passage([flat(line[:_LINE_CHARS]) for line in lines], joint=" | ", ranks=tuple(ranks))


def _unlike_others(lines: list[str]) -> tuple[bool, set[str]]:
    """Return whether lines are alike but for their numbers, and the few that are unlike the others."""
    shapes = [_NUMBERED.sub("0", line[:_ENDS_CHARS]) for line in lines]
    common, count = Counter(shapes).most_common(1)[0]
    unlike = {line for line, shape in zip(lines, shapes, strict=True) if shape != common}
    are_alike = count > _MOST_LINES and len(unlike) <= _ERROR_LINES
    return are_alike, unlike if are_alike else set()


def _fields(data: Any, depth: int = 0) -> Iterator[str | Passage]:
    if depth > _MOST_DEPTH:
        return
    if isinstance(data, list):
        if data and all(not isinstance(item, dict | list) for item in data):
            yield shorten(flat(", ".join(map(str, data[:20]))), _VALUE_CHARS)
            return
        for item in data[:12]:
            if inner := list(_fields(item, depth + 1)):
                yield Passage(inner, "(", ")", ", ", keeps="first")
        if len(data) > 12:
            yield f"{len(data)} in all"
        return
    if not isinstance(data, dict):
        yield shorten(flat(str(data)), _VALUE_CHARS)
        return
    scalars = [(key, value) for key, value in data.items() if not isinstance(value, dict | list)]
    scalars.sort(key=lambda pair: _ID_KEY.search(pair[0]) is None)
    for key, value in scalars:
        if value is not None and value != "":
            yield f"{key}: {shorten(flat(str(value)), _VALUE_CHARS)}"
    for key, value in data.items():
        if isinstance(value, dict | list) and (inner := list(_fields(value, depth + 1))):
            yield Passage(inner, f"{key}: ", "", ", ", keeps="first")


def fields_besides(data: Passage, known: Iterable[str], name: str) -> Passage:
    """Return the fields of data that are not known: from older data of the record, arguments or its name."""
    known = set(known)
    known.update(field for field in fields_of(data) if name and field.endswith(f": {name}"))
    told = _without(data, known) or replace(data, parts=["ok"])
    if len(known) > _FEW_FIELDS:  # what changed in a record is not what names it
        told.parts = sorted(
            told.parts,
            key=lambda part: isinstance(part, str) and _ID_KEY.search(part.partition(":")[0]) is not None,
        )
    return told


def fields_of(passage: Passage) -> Iterator[str]:
    """Yield each field of data, as `key: value`."""
    for part in passage.parts:
        if isinstance(part, str):
            yield part
        else:
            yield from fields_of(part)


def _without(passage: Passage, known: set[str]) -> Passage | None:
    parts = [part if isinstance(part, str) else _without(part, known) for part in passage.parts]
    kept = [part for part in parts if part is not None and part not in known]
    return replace(passage, parts=kept) if kept else None
