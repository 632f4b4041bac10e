"""Tell in one line what a tool call came to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from context_compressor.summarizers.cleaning import clean
from context_compressor.summarizers.cutting import cut, cut_middle, quote
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
    find_refusal,
)
from context_compressor.summarizers.extracts.listings import told_objects
from context_compressor.summarizers.extracts.printed import as_words, first_words

_READ_CHARS = 6_000
"""How much of a result is read, half from each end, where its outcome stands."""
_READ_LINES = 3
"""A result of so few lines may still be the error that a reading call met."""

_ERROR_CHARS = 160
"""How much of an error is told: its head, where it happened, and its tail, where it often says why."""


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
_DATA_CHARS = 140
"""How much of data is told."""
_VERDICT_KEYS = ("error", "status", "state")
"""Under which an object says what became of what was asked for; often they come last."""
_DATA_ERROR = re.compile(
    r"[\"']error(?:s|_?code|_?messages?)?[\"']\s*:\s*+(?!null|None|false|[\"']?0\b|\"\"|''|\[\s*\]|\{\s*\})"
    r"|[\"']err_?(?:code|no)[\"']\s*:\s*[\"']?(?!0\b)-?\d"
    r"|[\"']status(?:_?code)?[\"']\s*:\s*[\"']?[45]\d\d\b"
    r"|[\"'](?:detail|message|msg)[\"']\s*:\s*[\"'](?:Not (?:Found|authenticated)|Unauthorized|Forbidden"
    r"|Bad credentials|Method Not Allowed|Internal Server Error|(?:Access|Permission) denied)[.\"']"
    r"|[\"']code[\"']\s*:\s*[\"']?(?:-\d+|[45]\d\d)[\"']?\s*,\s*[\"'](?:msg|message)[\"']"
    r"|[\"'](?:success|ok|ок|успе[хш]\w*|成功|是否成功|成否|성공|sucesso|éxito|erfolgreich|succès|نجاح|สำเร็จ)[\"']"
    r"\s*:\s*false\b"
    r"|[\"'](?:ошибка|错误(?:码|信息|原因)?|失败原因|エラー|오류|خطأ|fehler|erreur|hata|lỗi|ข้อผิดพลาด)[\"']"
    r"\s*:\s*+(?!null|None|false|[\"']?0\b|\"\"|\[\s*\])"
    r"|[\"']status[\"']\s*:\s*[\"'](?:fail(?:ed|ure)?|error)\b"
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
    r"|(?:Failures|Failed|Failing): *\d+|Some tests failed|PASS=\d+ [^\n]{0,40}\bERROR=\d+)\b[^\n]*$"
    r"|^(?:Ran \d+ tests?|FAILED \(|Plan: \d+ to add|(?:Apply|Destroy) complete!"
    r"|(?:\[INFO\] )?BUILD SUCCESS(?:FUL)?\b|Build succeeded\.|Successfully (?:installed|built) "
    r"|(?:added|removed|changed|Installed|Uninstalled) \d+ packages?\b"
    r"|up to date, audited|No changes\.|OK \(\d+ tests?"
    r")[^\n]*$",
    re.MULTILINE,
)
"""What test runners say in the end, and other programs whose output begins with what they are about to do.

A file that is named so, `08:32 error.h` in a listing, is none."""
_FAILED_TALLY = re.compile(
    r"\b[1-9]\d* (?:failed|failing|failures?|rejected|errors?)\b(?![-/]|\.\w| \(\d+ fixed, 0 remaining)"
    r"|\b(?:Failures|Errors|Failed|Failing): *[1-9]|\bSome tests failed|^FAILED"
    r"|\b[1-9]\d* tests failed\b|\b(?:failed|ERROR)=[1-9]"
)
_EMPTY_TALLY = re.compile(r"(?<![\d.,])(?:0 (?:tests )?passed|Ran 0 tests)\b")
"""Says that nothing was run, as of a suite without tests that ran behind others."""
_MOST_FAILED_TESTS = 3
"""Names of failed tests that an outcome tells."""
_TALLY_WORDS = (
    *("passed", "failed", "ailing", "rejected", "error", "ailure", "Ran ", "FAILED", "Failed:"),
    *("to add", "complete!", "BUILD SUCC", "Build succ", "Successfully ", " package", "up to date,"),
    *("No changes.", "OK (", "PASS="),
)
_XML_FAILURE = re.compile(
    r"\s*(?:<\?xml[^<>]{0,200}>\s*)?"
    r"(?:<(?:[\w.-]{1,30}:)?(?:Envelope|Header|Body|Response|ErrorResponse)\b[^<>]{0,500}>\s*){0,4}"
    r"(?=<(?:[\w.-]{1,30}:)?(?:Fault|Errors?)(?: [^<>]{0,300})?>)"
)
"""What stands before the element in which a service that answers XML tells why it failed."""
_SERVER_ERROR = re.compile(
    r"\s*<(?:!doctype )?html\b[^<>]{0,200}>\s*(?:<[^<>]{1,200}>\s*){0,4}<title>\s*[45]\d\d (?-i:[A-Z])",
    re.IGNORECASE,
)
"""Begins the page with which a server refuses."""
_SEARCH = re.compile(r"\s*(?:xargs +(?:-\S+ +)*|git +)?(?:[efz]?grep|rg|ag|ack)\b")
_NO_MATCH_STATUS = ("1", "123")
"""With which they end where they find nothing, and with which xargs says so."""
_COMPARISON = re.compile(r"\s*(?:(?:git +)?diff|cmp)\b")
"""With 1 these end where they find a difference."""
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_BETWEEN_COMMANDS = re.compile(r"[|&;\n]+")


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
        return _logged_error(said, lines) or first_words(said, lines, is_read=True), False
    answer, ended_well = without_arguments(said, arguments), status in ("", "0")
    outcome, failed = _what_is_said(answer, lines, is_answer=not executed, ended_well=ended_well)
    if outcome in ("", "ok") and status in _NO_MATCH_STATUS and _ends_with(_SEARCH, executed):
        return "no match", False
    if is_error and not outcome:
        return "error", True
    if failed or is_error or ended_well:
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


def _what_is_said(text: str, lines: int, *, is_answer: bool, ended_well: bool) -> tuple[str, bool]:
    if DATA.match(text):
        if not text.startswith('{"error"') and (logged := _logged_error(text, lines)):
            return logged, False
        data = as_words(text[:800])
        if len(data) > _DATA_CHARS:
            data = " | ".join(filter(None, (told_objects(text), data)))
        said = cut(_verdict(text) + data, _DATA_CHARS)
        return said or cut(text, 20), _is_failure(text)
    if fault := _XML_FAILURE.match(text):
        return first_words(text[fault.end() :], lines), True
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
    if is_answer and (refused := find_refusal(text)):  # what a command prints may be anybody's words
        return quote(refused, _ERROR_CHARS), True
    if logged := _logged_error(text, lines):
        return logged, False
    if _SERVER_ERROR.match(text):
        return first_words(text, lines), True
    if lines and not ended_well and (last := text.rstrip().rpartition("\n")[2].strip()):
        return f"{cut(last, 100)} ({lines} lines)", False
    return first_words(text, lines), False


def _is_failure(data: str) -> bool:
    """Tell whether data says in the beginning that a call failed; what a row of a list says is its own."""
    failure = _DATA_ERROR.search(data)
    if failure is None or failure.start() >= _DATA_HEAD_CHARS:
        return False
    return not (data.lstrip().startswith("[") and failure[0][1:].startswith("status"))


def _logged_error(text: str, lines: int) -> str:
    """Return the last error that a long text tells of as logs do, beside its lines; "" for none."""
    logged = find_logged_error(text) if lines > 1 else None
    return f"{cut(as_words(logged), 140)} ({lines} lines)" if logged else ""


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


def _with_failed_tests(told: str, failed: Sequence[str]) -> str:
    """Return what is told of a failure, with the first of what failed that it does not name."""
    why = cut(", ".join([name for name in failed if name and name not in told][:_MOST_FAILED_TESTS]), 120)
    return f"{told}: {why}" if why else told
