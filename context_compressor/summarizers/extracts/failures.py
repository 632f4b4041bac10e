"""Find in what a program printed the line that says what failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ERROR_LINE = re.compile(
    r"^(?!ERROR: Pipe to stdout"
    r"|\[ERROR\] *(?:-> |\[Help|To see the full|Re-run Maven|For more info|After correcting))"
    r"(?:[ \t>E│]*(?:- [EF]\d{3} )?\[?(?:(?:Caused by: |Uncaught )?[\w.]*(?:Error|Exception)\b"
    r"|Unhandled exception(?=[.:])|CONFLICT(?= \([\w/ ]{1,30}\): )| ?! \[(?:remote )?rejected\](?= )"
    r"|(?:error|fatal|failed|failure|FAILED|ERROR|错误)\b"
    r"|(?:--- )?FAIL\b|not ok\b|MCP error\b|Failed to\b|panic:"
    r"|(?:[^\s:]{1,40}: )?(?:line \d+: +\d+ )?(?:Segmentation fault|Aborted|Killed|Bus error)"
    r"(?= \(core|  +\S)"
    r"|(?:Program|Thread [^\n]{1,60}) received signal SIG|==\d+==ERROR: |SUMMARY: \w+Sanitizer:"
    r"|thread '[^'\n]{0,80}' (?:\(\d+\) )?panicked at [^\n]{1,200}\n(?=\S)"  # says why below
    r"|<tool_use_error>|curl: \(\d|make(?:\[\d+\])?: \*\*\* (?=No )"
    r"|(?!warning)[a-z]{2,10}: cannot [a-z ]{3,24} ['‘]"
    r"|(?!(?:Title|Subject|Question|Summary|Content|Snippet|Description):)"
    r"[\w.-]{1,30}: (?:line \d+: )?(?:fatal |parse |syntax )?[Ee]rror(?=:| response\b| near\b| \(at )"
    r"|HTTP(?:/[\d.]+ (?=[45]\d\d\b)| (?=[45]\d\d(?::| [A-Z])))"
    r"|CMake Error(?:: | at [^\n]{1,200}\n[ \t]+)(?=\S)|Failure(?=:)"
    r"|Execution failed for task\b|E: (?=Unable|Could|Package|Failed|Sub-process|Unmet|The repository)"
    r"|(?:PHP )?(?:Fatal|Parse|Runtime) error(?=:| near )|rsync error(?=:)"
    r"|[A-Z][a-z]{2,12} Error(?= in [a-z]+ \S|: \S)"
    r"|(?:Type|Syntax|Build|Compil(?:e|ation|er)|Network|Internal|Database|Query|Server|Request|Timeout"
    r"|Validation|Connection|Config(?:uration)?|Authentication|Import|Unexpected) error(?=: +[^\s\d.+-])"
    r"|[A-Za-z][\w-]{2,20}(?: [a-z]{2,12}){0,2} failed: (?=[A-Za-z'\"])(?!none\b|no\b)"
    r"|[A-Z][a-z]{2,20} (?:[a-z]{2,12} )?failed at line\b"
    r"|An error occurred(?=:| \(| while\b)|I encountered an error(?= while)|Module not found:|  × (?=[A-Z])"
    r"|(?:[^\s:]{1,200}:){1,2} undefined reference to|Undefined symbols for architecture"
    r"|\(error\) |\*\* \(\w+Error\)|\w+: \[emerg\] "
    r"|! (?=LaTeX Error|Undefined control sequence|Emergency stop|Package \w+ Error)"
    r"|psql:[^\s:]{1,200}:\d+: (?:ERROR|FATAL):"
    r"|[^\n]{3,300}+\n(?=At [^\n]{1,200}:\d+ char:\d)"  # PowerShell
    r"|ERR_PNPM_|e: (?=file://)|\d{1,3} validation errors? for (?=\S+$)"
    r"|terminate called after throwing\b"
    r"|[\u4e00-\u9fff]{1,6}(?<!没有)(?<![未无])失败(?=[：:，,。！!])"
    r"|(?=[^\n]{0,30}(?:エラーが発生し(?:ました|た(?!場合|際|とき|ら))|(?:오류|에러)가 발생(?:했|하였)"
    r"|(?<!没有)(?<!如果)(?<![未若当])发生了?错误|に失敗しました))"
    r"|(?=[\u4e00-\u9fff]{0,4}(?:状态|结果)[：:] ?(?:失败|错误|异常))"
    r"|No se pu(?:do|ede)\b|N[ãa]o foi possível\b|Impossible d(?:e |')|Impossibile\b|Échec\b"
    r"|(?:エラー|오류|에러|Fehler|Erreur|Erro|Errore|Hata|Lỗi|Ошибка|خطأ)(?= ?[：:]))"
    r"(?![-/]|\.\w| (?:handl|messages|codes|rates?\b|counts?\b|bars?\b|budget))"
    # The word may be but a part of a name such as `error.log`, or of a heading.
    # What compilers say; those of Go without the word.
    r"|(?:[A-Za-z]:|[ \t]{1,8})?[^\s:()]{1,200}[:(]\d[\d:,]*\)?:?(?: -)? (?:fatal |runtime )?"
    r"error(?: [A-Z]+\d+)?:"
    r"|[^\s:]{1,200}\.go:\d+:\d+:(?= \S))[^\n]{3,}"
    r"|^(?:\[INFO\] |\*\* )?BUILD FAIL(?:ED|URE)\b[^\n]*"
    r"|^npm (?:ERR!|error)[^\n]*(?:\nnpm (?:ERR!|error)[^\n]*)*"  # what npm says first tells most
    r"|^(?:Segmentation fault|Aborted|Killed)\s*\Z"
    r"|\A\s{0,9}[45]\d\d (?:Bad (?:Request|Gateway)|Unauthorized|Forbidden|Not Found|Too Many Requests"
    r"|Internal Server Error|Service Unavailable|Gateway Time-?out)\b[^\n]*"
    r"|\A\s{0,9}(?:The )?[Uu]ser (?:has )?(?:denied|rejected|declined|cancell?ed|doesn't want to)\b[^\n]*"
    r"|\A\[Request interrupted by user[^\n]*"
    r"|\A\s{0,9}(?:[Ee]rror|ERROR|错误)[:：][ \t]*\n\s{0,4}(?:```\w*\n)?[^\n]{3,}"  # above what it is
    r"|\A\s{0,9}\[[A-Za-z][\w .-]{1,40}\] (?:Failed to |\w*Error: )[^\n]{3,}",
    re.MULTILINE,
)
_FLUSH_LEVEL = re.compile(r"^\[ERROR\] \S", re.MULTILINE)
"""In a text with such a line, as of Maven, what is indented behind the level belongs to the line above."""
_BARE_VERDICT = re.compile(
    r"\s*(?:Aborted|Killed|Segmentation fault)\s*\Z|FAIL(?:\t|\Z)"
    r"|ERROR +[\w./-]+(?:::[\w.:\[\]-]+)?(?: - |\Z)"
    r"|error: (?:failed to push some refs|fatalError\Z)"
    r"|\s*ERROR: (?:Could not build wheels|Failed (?:building|to build)"
    r"|ResolutionImpossible)|\s*error: (?:subprocess-exited-with-error|command '[^']{1,99}' failed)"
    r"|(?:\[INFO\] |\*\* )?BUILD FAIL|error: (?:could not compile|aborting due to)|error Command failed"
    r"|FAILED: Build did NOT|Execution failed for task\b|Failed to compile\.$|collect2: error: ld returned"
    r"|(?:ERROR: failed to solve|#\d+ ERROR): process "
)
"""Begins a line that only says that a build failed; another above it says why."""
_GO_TEST = "--- FAIL"
"""Names a test of Go that failed, above why."""
_ERROR_WORDS = (
    *("rror", "xception", "fatal", "fail", "Fail", "FAIL", "ERR", "not ok", "Traceback", "panic:"),
    *("egmentation", "curl: (", "HTTP/", "received signal", "panicked", "Aborted", "Killed", ".go:", "E: "),
    *("*** No", ": cannot ", "terminate called", "CONFLICT (", "FATAL:", "Sanitizer:", "e: file:"),
    *("错误", "失败", "失敗しました", "异常", "エラー", "Fehler", "Erreur", "Ошибка"),
    *("오류", "에러", "خطأ", "Hata", "Erro", "Lỗi", "HTTP ", " char:", "[emerg]"),
    *("Emergency stop", "Bad ", "nauthorized", "Forbidden", "Not Found", "Too Many"),
    *("Unavailable", "Gateway Time", "denied", "rejected", "declined", "doesn't want", "interrupted"),
    *("ser cancel", "has cancel"),
    *("ncountered", "not found:", "  × ", "ndefined ", "No se pu", "foi possível", "Impossib", "Échec"),
)
"""Without one of these no pattern matches; to look for words is ten times as fast."""
_ERROR_PHRASES = (
    *("o such file or directory", "ommand not found", "ermission denied", "not found"),
    *("ommand timed out", "all timed out", "equest timed out", "onnection timed out", "was refused"),
    *("onnection refused", "Automatic merge failed", ": *** [", "NOT been applied"),
    *("peration timed out", "is not recognized as ", "o replacement was performed", "in @INC ("),
    *("ould not resolve host", "Host key verification failed", "equest failed with status code"),
    *("annot connect to the Docker daemon", "nable to resolve host", ": Assertion `", "Assertion failed: ("),
    *("ould not be accessed", "no required module provides package"),
    *("manifest unknown", "failed to match", "Aucun fichier ou dossier", "No existe el fichero o el"),
    *("Datei oder Verzeichnis nicht", "没有那个文件或目录", "そのようなファイルやディレクトリはありません"),
)
_NUMBERED_TEST = re.compile(
    r"^ {0,4}\d{1,3}\) (\S[^\n]{3,120})$"
    r"|^[ \t]{1,8}\d+:\d+[ \t]+error[ \t]+(\S[^\n]{3,120}?)(?:[ \t]{2,}\S+)?$"
    r"|^([A-Z]{1,5}\d{2,5} [^\n]{3,120})\n {0,4}--> ",
    re.MULTILINE,
)
"""A test that failed, as RSpec, PHPUnit, ExUnit and Mocha number it, or what ESLint or Ruff found."""
_LOG_ERROR = re.compile(
    r"^(?:[\w./-]{1,120}:\d+: ?|\d+\t)?(?:\[?\d{4}-\d\d-\d\d[T ]|\[?\d\d:\d\d:\d\d"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:|\{\"|(?:time|ts)=|(?=level=))[^\n]{0,80}?(?<![\w-])"
    r"(?:(?:ERROR|FATAL|CRITICAL)(?![\w-])|level(?:=|\":\s?\")(?:error|fatal|critical)\b)[^\n]*",
    re.MULTILINE,
)
"""A line of a log, perhaps numbered or found by grep, in which a program told of an error."""
_LOG_WORDS = ("ERROR", "FATAL", "CRITICAL", "error", "fatal", "critical")
_REFUSAL = re.compile(
    r"\s*(?:(?:Unable to|Could(?: not|n't)|Cannot) [a-z]|Unknown (?:tool|function|command)\b"
    r"|(?:[^\n]{1,80}\. )?No changes (?:to apply|made)|\w+ failed for |无法|未能"
    r"|\([A-Z]\w{2,40}(?:Failed|Found|Denied|Exceeded|Error)\) )[^\n]*"
    r"|(?![^\n]*\b(?i:if|when|what|whether|how|why|skip\w*)\b)(?:[^\n,;?，。]{0,160}?"
    r"\b(?:(?:does not|doesn't) exist|already exists|rejected by (?:the )?user|must read"
    r"|appears multiple times|modified since|[Tt]imeout(?=[,.])|(?i:timed out))\b[^\n;?]*"
    r"|[^\n,;?，。]{0,40}?(?<![不未没无会])(?:超时|不存在|权限不足|没有权限|无权|余额不足|被拒绝)"
    r"(?:[，。：,.:!！][^\n]*|\s*\Z))"
)
"""What a tool answers that did not do what was asked for, as a sentence on a line of its own."""
_REFUSAL_CHARS = 800
_TRACEBACK = re.compile(
    r"^Traceback \(most recent call last\):[ \t]*\n(?:[ \t][^\n]*+\n)*+([A-Za-z_][^\n]*)", re.MULTILINE
)
_IPYTHON_TRACEBACK = re.compile(r"^([A-Za-z_][\w.]*) {2,}Traceback \(most recent call last\)", re.MULTILINE)
"""How notebooks begin a traceback; the last line begins with the same name."""
_FAILED_TEST = re.compile(
    r"^[ \t]*FAILED +([\w./-]{3,120}(?:::[\w.:\[\]-]{1,120})*)"
    r"|^[ \t]*(?:--- )?FAIL: +([\w./-]{3,120})(?= \(|[ \t]*$)"
    r"|^test ([\w:]{3,120}) \.\.\. FAILED$"
    r"|^\[ERROR\] +([\w.$]{3,160}) (?:-- |\S)[^\n]{0,80}<<< (?:ERROR|FAILURE)!"
    r"|^[ \t]*(?:●|FAIL) +([^\n]{1,100} [›>] [^\n]{1,120})$|^(\w[\w.]{2,120} > [^\n]{1,120}) FAILED$"
    r"|^ERROR: +([\w./-]{3,120})(?= \()"
    r"|^[ \t]*\d+ - ([\w./:-]{1,120}) \((?:Failed|Timeout|SEGFAULT|Not Run)\)$"
    r"|^ +Failed ([\w.]{3,120}(?:\([^\n]{0,80}\))?) \["
    r"|^[ \t]*[✘✕] +(?:\d+ +)?(\S[^\n]{2,120}?)(?: \(\d[\d.]* ?m?s\))?$"
    r"|^CONFLICT \([\w/ ]{1,30}\): (?:Merge conflict in )?(\S{1,200})",
    re.MULTILINE,
)
"""A test that failed, as pytest, unittest, Go, Cargo, Maven, Jest, Vitest, Gradle, CTest, .NET and Playwright
name it, or a file that git could not merge."""


def find_error(text: str) -> str | None:
    """Return the last line that tells of an error, one that says more than that where there is one."""
    told = sorted(_error_lines(text)) if any(map(text.__contains__, _ERROR_WORDS)) else []
    telling = next((found for found in reversed(told) if not _BARE_VERDICT.match(found[1])), None)
    if telling is None:
        for phrase in _ERROR_PHRASES:
            at = text.rfind(phrase)
            if at >= 0:
                line = text[text.rfind("\n", 0, at) + 1 :].split("\n", 1)[0]
                if len(line) <= 200:
                    return line
    if not told:
        return None
    at, line = telling or told[0]
    below = _said_below(text[at + len(line) :], line)
    if not below and line.lstrip().startswith(_GO_TEST):
        line = told[-1][1]  # names the package
    return f"{line.replace('```', '')} {below}".rstrip()


def find_refusal(text: str) -> str | None:
    """Return the first line of a tool's short answer, where it says that what was asked for was not done."""
    found = _REFUSAL.match(text) if len(text) < _REFUSAL_CHARS and text.count("\n") < 3 else None
    return found and found[0].strip()


def _said_below(text: str, line: str) -> str:
    """Return what belongs to an error line of what stands below: what it is, where, or a server's answer."""
    below, _, next_below = text.lstrip().partition("\n")
    if " validation error" in line:  # of pydantic, below the name of the field
        return f"{below} {next_below.partition(chr(10))[0].strip()}"
    is_of_go = line.lstrip().startswith(_GO_TEST) and text[1:2] in " \t"
    if is_of_go or line.endswith(":") or below.startswith("--> "):
        return below
    if "have NOT been applied" in text:
        return "(NOT applied)"
    if line.startswith("HTTP/"):
        return text.partition("\n\n")[2].lstrip().split("\n", 1)[0]
    return ""


def _error_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines that tell of an error, each with its place."""
    is_flush = _FLUSH_LEVEL.search(text) is not None
    for line in _ERROR_LINE.finditer(text):
        if not (is_flush and line[0].startswith("[ERROR]  ")):
            yield line.start(), line[0]
    # Many exceptions are not called an error.
    for raised in _TRACEBACK.finditer(text):
        yield raised.start(1), raised[1]
    for raised in _IPYTHON_TRACEBACK.finditer(text):
        at = text.rfind(f"\n{raised[1]}:", raised.end()) + 1
        if at:
            yield at, text[at:].split("\n", 1)[0].rstrip(": ")


def find_failed_tests(text: str) -> list[str]:
    """Return the names of the tests that failed, in their order."""
    return list(dict.fromkeys(found[found.lastindex or 0] for found in _FAILED_TEST.finditer(text)))


def find_numbered_test(text: str) -> str:
    """Return the first test of a numbered list of those that failed; "" for none."""
    found = _NUMBERED_TEST.search(text)
    return found[found.lastindex or 0] if found else ""


def find_logged_error(text: str) -> str | None:
    """Return the last line in which a log tells of an error."""
    if not any(map(text.__contains__, _LOG_WORDS)):
        return None
    return next((found[0] for found in reversed(list(_LOG_ERROR.finditer(text)))), None)
