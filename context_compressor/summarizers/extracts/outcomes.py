"""Tell in one line what a tool call came to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from context_compressor.summarizers.cleaning import clean
from context_compressor.summarizers.cutting import ELLIPSIS, cut, cut_middle, quote
from context_compressor.summarizers.extracts.code import definitions, without_numbers
from context_compressor.summarizers.extracts.echoes import (
    DATA,
    below_command,
    without_arguments,
    without_echo,
)
from context_compressor.summarizers.extracts.failures import (
    find_error,
    find_failed_tests,
    find_logged_error,
    find_numbered_test,
)

_READ_CHARS = 6_000
"""How much of a result is read, half from each end, where its outcome stands."""
_READ_LINES = 3
"""A result of so few lines may still be the error that a reading call met."""

_ERROR_CHARS = 160
"""How much of an error is told: its head, where it happened, and its tail, where it often says why."""

_FIRST_CHARS, _ENDS_CHARS = 50, 100
"""How much is told of the first line of an output at most, and of the first and the last together."""

_LINE_CHARS = 140
"""How much is told of a result of one line."""

_SHORT_CHARS = 100
"""A result of so few characters is told as a whole, its lines beside each other."""

REF = "ctx://"
"""In a line of the memory's own: a label, or the first line of what stands for a text."""
_OWN_LINE = re.compile(
    r"^(?:[^\n]*ctx://[^\n]*|\[(?:lines? \d[\d-]*(?:, columns [\d-]+)?|also contains: [^\n]*|escapes resolved"
    r"|tags left out|\d+ (?:files?|match(?:es)?)\b[^\n]*)\])(?:\n|\Z)",
    re.MULTILINE,
)
"""What the memory says in a stand-in: its label, and what stands around the lines of a preview."""
_OWN_LINES = re.compile(rf"\[[^\n]*{REF}\w+: (\d{{1,12}}) lines?\b")
"""How many lines a text had that left."""

_STATUS = re.compile(
    r"[^\w\n]*(?:(?:the )?(?:command|process|program|script)\b[^\n]{0,60}?\b)?"
    r"(?:exit(?:ed with)?(?: exit)?|return)[ _-]?(?:code|status)\b[^\w\n-]{1,4}(-?\d{1,10})"
    r"(?:</\w+>)?[^\w\n]*$",
    re.IGNORECASE | re.MULTILINE,
)
_DATA_MARKS = str.maketrans({"{": " ", "}": " ", "[": " ", "]": " ", '"': None})
_DATA_CHARS = 140
"""How much of data is told."""
_VERDICT_KEYS = ("error", "status", "state")
"""Under which an object says what became of what was asked for; often they come last."""
_DATA_ERROR = re.compile(
    r"[\"']error(?:s|_?code|_?messages?)?[\"']\s*:\s*+(?!null|None|false|[\"']?0\b|\"\"|''|\[\s*\]|\{\s*\})"
    r"|[\"']err_?(?:code|no)[\"']\s*:\s*[\"']?(?!0\b)-?\d"
    r"|[\"']status(?:_?code)?[\"']\s*:\s*[45]\d\d\b"
    r"|[\"']code[\"']\s*:\s*[\"']?(?:-\d+|[45]\d\d)[\"']?\s*,\s*[\"'](?:msg|message)[\"']"
    r"|[\"'](?:success|ok)[\"']\s*:\s*false\b|[\"']status[\"']\s*:\s*[\"'](?:fail(?:ed|ure)?|error)\b"
    r"|[\"'](?:\w*(?:msg|message|result|status|reason|detail)|结果|状态|消息)[\"']"
    r"\s*:\s*[\"'][^\"'\n]{0,12}(?<!没有)(?<![未无])(?:失败|错误)",
    re.IGNORECASE,
)
_DATA_HEAD_CHARS = 200
"""Further in, data may tell of other errors."""
_IS_ERROR = re.compile(r"isError(?:=True|[\"']\s*:\s*true)\W*\Z")
"""Ends what MCP servers say of a call that failed."""

_TALLY = re.compile(
    r"^[^\n]*\b(?:\d+ (?:tests )?(?:passed|failed|failing|failures?|rejected|errors?)(?![-/]|\.\w)"
    r"|(?:Failures|Failed|Failing): *\d+|Some tests failed)\b[^\n]*$"
    r"|^(?:Ran \d+ tests?|FAILED \(|Plan: \d+ to add|(?:Apply|Destroy) complete!"
    r"|(?:\[INFO\] )?BUILD SUCCESS(?:FUL)?\b|Successfully (?:installed|built) )[^\n]*$",
    re.MULTILINE,
)
"""What test runners say in the end, and other programs whose output begins with what they are about to do.

A file that is named so, `08:32 error.h` in a listing, is none."""
_FAILED_TALLY = re.compile(
    r"\b[1-9]\d* (?:failed|failing|failures?|rejected|errors?)\b(?![-/]|\.\w| \(\d+ fixed, 0 remaining)"
    r"|\b(?:Failures|Errors|Failed|Failing): *[1-9]|\bSome tests failed|^FAILED"
    r"|\b[1-9]\d* tests failed\b|\bfailed=[1-9]"
)
_EMPTY_TALLY = re.compile(r"(?<![\d.,])(?:0 (?:tests )?passed|Ran 0 tests)\b")
"""Says that nothing was run, as of a suite without tests that ran behind others."""
_MOST_FAILED_TESTS = 3
"""Names of failed tests that an outcome tells."""
_TALLY_WORDS = (
    *("passed", "failed", "ailing", "rejected", "error", "ailure", "Ran ", "FAILED", "Failed:"),
    *("to add", "complete!", "BUILD SUCC", "Successfully "),
)
_SUCCESS = re.compile(
    r"\W*(?:(?:ok|done|no output)\W*$|success(?:ful(?:ly)?)?\b(?! rate|[:=] ?false)"
    r"|the file \S+ has been|file (?:created|updated)\b|(?:edited|applied) (?!0\b))",
    re.IGNORECASE,
)
_GRANTED = re.compile(r"(?:success|ok): true", re.IGNORECASE)
"""The first line of a record that goes on."""
_ANNOUNCEMENT = re.compile(r"(?:[^\s(]+ +){3,}[^\s(]+[:：]|[^\W\d_]+[:：]")
"""A sentence, or one word, that only announces what follows."""
_SENTENCE_END = re.compile(r"[.!?]\s|[。！？]")
_TAG = re.compile(r"</?[\w:.-]+>|^```\S*$")
"""What stands around a text: tags, and the fences of Markdown."""
_PROLOGUE = re.compile(
    r"<(?:\?xml|!doctype|html|head|body|meta|link|base)\b[^<>]*>?|<class 'pandas\.[\w.]{1,80}'>",
    re.IGNORECASE,
)
"""A line with which any XML or HTML begins, and what `DataFrame.info` prints of pandas."""
_ELEMENT = re.compile(r"<((?:[\w.-]{1,30}:)?([^\W\d][\w.-]{0,40}))(?: [^<>]{0,200})?>([^<>\n]{1,200})</\1>")
_NAMESPACE = re.compile(r" xmlns(?::[\w.-]{1,30})?=(?:\"[^\"<>]{0,300}\"|'[^'<>]{0,300}')")
_IS_XML = re.compile(r"\s*<(?:\?xml\b|(?!html\b|body\b|div\b)[^\W\d][\w.:-]*>\s*<[^\W\d][\w.:-]*>)")
_XML_FAILURE = re.compile(
    r"\s*(?:<\?xml[^<>]{0,200}>\s*)?"
    r"(?:<(?:[\w.-]{1,30}:)?(?:Envelope|Header|Body|Response|ErrorResponse)\b[^<>]{0,500}>\s*){0,4}"
    r"(?=<(?:[\w.-]{1,30}:)?(?:Fault|Errors?)(?: [^<>]{0,300})?>)"
)
"""What stands before the element in which a service that answers XML tells why it failed."""
_FAILED_CELL = re.compile(
    r"(?:(?<=[\t|])|(?<=  )|(?<=\| ))(?:fail(?:ed|ing|ure)?|error|unhealthy|evicted|OOMKilled"
    r"|\w{3,20}BackOff|Err[A-Z]\w{3,20}|Exited \([1-9]\d{0,2}\)[^\t|]{0,30}?)(?=\t| {2}| *\||\Z)",
    re.IGNORECASE,
)
"""A cell of a table, as kubectl, docker and gh print them."""
_SEARCH = re.compile(r"\s*(?:xargs +(?:-\S+ +)*|git +)?(?:[efz]?grep|rg|ag|ack)\b")
_NO_MATCH_STATUS = ("1", "123")
"""With which they end where they find nothing, and with which xargs says so."""
_COMPARISON = re.compile(r"\s*(?:(?:git +)?diff|cmp)\b")
"""With 1 these end where they find a difference."""
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_BETWEEN_COMMANDS = re.compile(r"[|&;\n]+")
_PAIR = re.compile(r"(?:- )?[\"']?[^\W\d_][\w .-]{0,30}[\"']?: +[^\s|>].*")
"""A key with its value, on a line of YAML or of a record."""
_PAIRS_CHARS = 120
_TITLE = re.compile(r"<title\b[^<>]{0,100}>\s{0,200}([^<>]{2,200})</title>", re.IGNORECASE)
_READ_DATA = re.compile(r"\s{0,9}(?:\{\s{0,99}\"|\[\s{0,99}[\[{\"])")
"""Begins JSON, and no template, in a text that was read."""
_DIFF = re.compile(r"^diff --git \S+ b/(\S+)", re.MULTILINE)
_PAGE = re.compile(r"^- Page URL: (\S+)(?:\n- Page Title: ([^\n]+))?", re.MULTILINE)
"""Where a browser is after a step, as Playwright's server of tools says below the code that it ran."""


def shown_of(text: str) -> str:
    """Return what is shown of a text that left, without the memory's own words; any other text as it is."""
    return (_OWN_LINE.sub("", text).strip() or text) if _OWN_LINES.match(text) else text


def read_outcome(
    text: str,
    *,
    command: str = "",
    arguments: Iterable[object] = (),
    is_read: bool = False,
    status: str = "",
    is_error: bool = False,
) -> tuple[str, bool]:
    """Return a result's outcome on one line, and whether it reports a failure.

    A test tally outranks an error line before it, which outranks an error that a log tells of, and that the
    first line that says anything, or the last where the command failed. Where none of them tells of a
    failure, the status does with which it ended.

    Args:
        text: the result.
        command: what was executed, which terminals repeat above what it printed.
        arguments: values of the call's, which services repeat in their answers.
        is_read: whether it is a text that the call showed, in which errors are somebody else's.
        status: with which the command ended, where a frame around the result told (see `frames`).
        is_error: whether the result was marked as an error.
    """
    executed = command
    text, command = below_command(text, command)
    lines = text.count("\n") + 1 if len(text) > _SHORT_CHARS else 0
    ends = clean(cut_middle(text, _READ_CHARS))
    if REF in ends[:300]:  # the memory's own words about a text that left
        left = _OWN_LINES.match(ends)
        lines = int(left[1]) if left else lines
        ends = _OWN_LINE.sub("", ends)
    is_error = is_error or _IS_ERROR.search(ends) is not None
    said, told = _without_status(without_echo(ends, command))
    status = status or told
    if status == "1" and _ends_with(_COMPARISON, executed):
        status = ""
    if is_read and not is_error and said.count("\n") >= _READ_LINES:
        if status not in ("", "0") and (why := _error_at_end(said)):
            return f"exit code {status}: {quote(why, _ERROR_CHARS)}", True
        return _logged_error(said, lines) or _first_words(said, lines, is_read=True), False
    outcome, failed = _what_is_said(without_arguments(said, arguments), lines, ended_well=status in ("", "0"))
    if outcome in ("", "ok") and status in _NO_MATCH_STATUS and _ends_with(_SEARCH, executed):
        return "no match", False
    if is_error and not outcome:
        return "error", True
    if failed or is_error or status in ("", "0"):
        return outcome, failed or is_error
    return f"exit code {status}" + (f": {outcome}" if outcome not in ("", "ok") else ""), True


def _ends_with(program: re.Pattern[str], command: str) -> bool:
    """Tell whether a program ends a command, so that its status is the command's."""
    return program.match(_BETWEEN_COMMANDS.split(_QUOTED.sub("", command).rstrip())[-1]) is not None


def _error_at_end(text: str) -> str | None:
    """Return the error that stands in the last lines of a text: behind what was shown, why no more was."""
    return find_error("\n".join(text.rstrip().split("\n")[-_READ_LINES:]))


def is_tally(outcome: str) -> bool:
    """Tell whether an outcome is what test runners, builds and their like say in the end."""
    return _TALLY.match(outcome) is not None


def _without_status(text: str) -> tuple[str, str]:
    """Return a result without the line that names the status of its command, and the status; "" for none.

    It is the first line or the last: further in it is some other command's.
    """
    for start in (0, text.rstrip().rfind("\n") + 1):
        if found := _STATUS.match(text, start):
            return text[:start] + text[found.end() :], found[1]
    return text, ""


def _what_is_said(text: str, lines: int, *, ended_well: bool) -> tuple[str, bool]:
    if DATA.match(text):
        if not text.startswith('{"error"') and (logged := _logged_error(text, lines)):
            return logged, False
        said = cut(_verdict(text) + _as_words(text[:800]), _DATA_CHARS)
        return said or cut(text, 20), _is_failure(text)
    if fault := _XML_FAILURE.match(text):
        return _first_words(text[fault.end() :], lines), True
    tallies = list(_TALLY.finditer(text)) if any(map(text.__contains__, _TALLY_WORDS)) else []
    if tallies:
        told = [tally[0].strip("=│ ") for tally in tallies]
        last = next((tally for tally in reversed(told) if not _EMPTY_TALLY.search(tally)), told[-1])
        failed = next((tally for tally in reversed(told) if _FAILED_TALLY.search(tally)), None)
        if failed is not None:
            # One of several runs may have failed, and the last not.
            outcome = cut(failed, 120) if failed == last else f"{cut(failed, 80)}, {cut(last, 60)}"
            why = find_failed_tests(text) or [find_error(text) or find_numbered_test(text)]
            return _with_failed_tests(outcome, why), True
        later = find_error(text[tallies[-1].end() :])
        return (quote(later, _ERROR_CHARS), True) if later else (cut(last, 120), False)
    error = find_error(text)
    if error:
        return _with_failed_tests(quote(error, _ERROR_CHARS), find_failed_tests(text)), True
    if logged := _logged_error(text, lines):
        return logged, False
    if lines and not ended_well and (last := text.rstrip().rpartition("\n")[2].strip()):
        return f"{cut(last, 100)} ({lines} lines)", False
    return _first_words(text, lines), False


def _is_failure(data: str) -> bool:
    """Tell whether data says in the beginning that a call failed; what a row of a list says is its own."""
    failure = _DATA_ERROR.search(data)
    if failure is None or failure.start() >= _DATA_HEAD_CHARS:
        return False
    return not (data.lstrip().startswith("[") and failure[0][1:].startswith("status"))


def _logged_error(text: str, lines: int) -> str:
    """Return the last error that a long text tells of as logs do, beside its lines; "" for none."""
    logged = find_logged_error(text) if lines > 1 else None
    return f"{cut(_as_words(logged), 140)} ({lines} lines)" if logged else ""


def _verdict(text: str) -> str:
    """Return what an object in JSON says became of it, where that stands too far behind; else ""."""
    if not any(text.find(f'"{key}"', _DATA_CHARS) > 0 for key in _VERDICT_KEYS):
        return ""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    told = data.items() if isinstance(data, dict) else ()
    return "".join(
        f"{key}: {value}, "
        for key, value in told
        if key in _VERDICT_KEYS and isinstance(value, str) and text.find(f'"{key}"') > _DATA_CHARS
    )


def _as_words(data: str) -> str:
    return data.replace('\\"', '"').translate(_DATA_MARKS)


def _with_failed_tests(told: str, failed: Sequence[str]) -> str:
    """Return what is told of a failure, with the first of what failed that it does not name."""
    why = cut(", ".join([name for name in failed if name and name not in told][:_MOST_FAILED_TESTS]), 120)
    return f"{told}: {why}" if why else told


def _first_words(text: str, lines: int, *, is_read: bool = False) -> str:
    """Return the first line that says anything, and how many there are; all of a short text.

    Of what a program printed also the last: many begin with what they are about to do. Of a text or a page
    that was shown not: it ends anywhere.
    """
    if "- Page URL: " in text and (page := _PAGE.search(text)):
        return cut(" ".join(filter(None, page.groups())), 140)
    if text.startswith("diff --git ") and len(files := _DIFF.findall(text)) > 1:
        return cut(f"diff of {len(files)} files: {', '.join(files)}", _LINE_CHARS)
    if lines and text[:1_000].lstrip()[:1] == "<" and (title := _TITLE.search(text)):
        return cut(title[1], _LINE_CHARS) + (f" ({lines} lines)" if lines > 12 else "")
    if is_read and _READ_DATA.match(text):
        return (
            f"{cut(_as_words(' '.join(text[:800].split())), 60)} ({lines or text.count(chr(10)) + 1} lines)"
        )
    if _IS_XML.match(text):
        text = _ELEMENT.sub(r"\2: \3", _NAMESPACE.sub("", text).replace("><", ">\n<"))
    shown = without_numbers(text.splitlines()) if is_read else text.splitlines()
    if is_read and (defined := definitions(shown)):
        return f"{defined} ({lines or len(shown)} lines)"
    plain = [_plain(line) if "<" in line or "`" in line else line.strip() for line in shown]
    telling = [line for line in plain if line[:1].isalnum() or any(map(str.isalnum, line))]
    if telling[1:] and _GRANTED.fullmatch(telling[0]):
        del telling[0]
    first = telling[0] if telling else ""
    succeeded = _SUCCESS.match(first) is not None
    if lines and not succeeded and len(pairs := _pairs(telling)) > 1:
        said = ", ".join(pairs)
        if lines <= 12:
            return cut(said, _PAIRS_CHARS)
        row = cut(_failed_row(telling) or "", _FIRST_CHARS)
        said = cut(said, _PAIRS_CHARS if row in said else _PAIRS_CHARS - len(row))
        return " ".join(filter(None, (said, "" if row in said else row, f"({lines} lines)")))
    announces = _ANNOUNCEMENT.fullmatch(first) and not (succeeded or _SENTENCE_END.search(first))
    others = telling[1:]
    if announces and others:
        first, *others = others
    if _SUCCESS.match(first):
        return "ok"
    if not lines:
        first = " | ".join(filter(None, (first, *others)))
    if not (first and lines and others):
        return cut(first, _LINE_CHARS)
    # One of several matches or rows is not to be read as the only one.
    count = lines if lines > 12 else 1 + len(others)
    if is_read or (text.lstrip().startswith("<") and not text.lstrip().startswith("<class 'pandas.")):
        return f"{cut(first, 60)} ({count} lines)" if count > 2 else cut(first, 100)
    head = cut(first, _FIRST_CHARS)
    tail = cut(_failed_row(others) or others[-1], _ENDS_CHARS - len(head))
    return f"{head}{'' if head.endswith(ELLIPSIS[-1]) else ELLIPSIS} {tail} ({count} lines)"


def _failed_row(rows: Sequence[str]) -> str | None:
    """Return the last row of a table that has a cell which says that something failed."""
    return next((row for row in reversed(rows) if _FAILED_CELL.search(row)), None)


def _pairs(telling: Sequence[str]) -> list[str]:
    """Return the keys with their values that a text begins with; where one comes again, a record ends."""
    said: dict[str, str] = {}
    for line in telling:
        if sum(map(len, said.values())) > _PAIRS_CHARS:
            break
        if _PAIR.fullmatch(line):
            pair = line if said else line.removeprefix("- ")
            key = pair.partition(": ")[0]
            if key in said:
                break
            said[key] = pair
        elif not (line.endswith(":") and (said or " " not in line)):
            break
    return list(said.values())


def _plain(line: str) -> str:
    line = line.strip()
    if "<" in line or line.startswith("```"):
        return _TAG.sub("", _PROLOGUE.sub("", line) if line.startswith("<") else line).strip()
    return line
