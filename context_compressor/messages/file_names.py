"""Find what one who looks for words sees torn: files with Asian names, and paths of Windows."""

from __future__ import annotations

import re
from functools import cache

_SCRIPTS = r"\u0531-\u1cff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
"""Those of Asia: what looks for names takes none of their letters for a part of a word."""
_ENDING = rf"[{_SCRIPTS}](?:(?:\d{{0,8}}|[_-][A-Za-z0-9_-]{{0,20}})\.[a-z]|/[A-Za-z0-9_])"
"""Every such file has one, few texts have; to look for it takes a fraction of the time."""
_ASIAN_FILE = (
    r"(?<![\w@.~/-])(?:[\u3400-\u9fff]*(?=[A-Za-z0-9_.~-]+/))?"  # of `打开src/服务.py` the verb is no part
    rf"([\w{_SCRIPTS}@.~/-]{{0,100}}?[{_SCRIPTS}](?:\d{{0,8}}|[_-][A-Za-z0-9_-]{{0,20}}|/[A-Za-z0-9_/-]{{1,100}})"
    r"\.[a-z]{1,4}\d?)"
    r"(?![A-Za-z0-9_])"
)
"""A letter of these, at most a number, a marked ending such as `_v2` or what lies below, and an extension."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile what has classes of thousands of letters, which takes milliseconds, when it is first needed."""
    return re.compile(pattern)


def take_asian_files(text: str) -> tuple[list[str], str]:
    """Return the files with Asian names in `text`, paths included, and the text without them.

    Words without an extension cannot be told from prose; prose that stands right before a bare name, as in
    `打开报告.pdf`, stays with it.
    """
    if text.isascii() or not _compiled(_ENDING).search(text):
        return [], text
    found: list[str] = []

    def take(match: re.Match[str]) -> str:
        found.append(match[1])
        return " "

    rest = _compiled(_ASIAN_FILE).sub(take, text)
    return found, rest


_FOLDER = r"[^\s\\/:*?\"'`<>|,;]++(?: [^\s\\/:*?\"'`<>|,;]++){0,4}(?=\\)"
"""A folder may hold blanks and brackets, as `Program Files (x86)` does."""
_PART = rf"(?:{_FOLDER}|[^\s\\/:*?\"'`<>|,;()\[\]{{}}]++)"
_DOUBLED, _SINGLE = rf"(?:\\\\{_PART})+", rf"(?:\\(?!\\){_PART})+"
_WINDOWS_PATH = re.compile(rf"(?:(?<![^\W_])|(?<=\\[nrt]))[A-Za-z]:(?:{_DOUBLED}|{_SINGLE})")
"""From its drive on, with the backslashes as they are, or as JSON doubles them."""
_DRIVE = re.compile(r":\\(?<=[A-Za-z]:\\)(?:(?<![^\W_][A-Za-z]:\\)|(?<=\\[nrt][A-Za-z]:\\))")
"""Every such path has one; to look for it takes a fraction of the time."""
_SHARED_PATH = re.compile(
    rf"\\\\(?<![^\s\"'`(]\\\\)(?:[\w.-]{{2,64}}{_SINGLE}|\\\\[\w.-]{{2,64}}{_DOUBLED})", re.ASCII
)
"""A path from its server on, in either form. What it begins with comes first: that is found fast."""
_BACKSLASHED_FILE = re.compile(r"\\[^\W_nrtbfuvx0-9][\w.\\-]{0,120}\.[A-Za-z]", re.ASCII)
"""The end of a path such as `src\\app\\main.cs`, from a name on that begins as no escape does."""
_ITS_START = re.compile(r"[\w.\\-]*\Z", re.ASCII)
_RELATIVE_PATH = re.compile(
    r"(?<![\w\\/:.$-])(?:\.{1,2}|\w[\w.-]*)(\\{1,2})(?!\\)"
    r"(?:\w[\w.-]*\1(?!\\))*[\w.-]*\w\.[A-Za-z]\w{0,4}(?![\w\\])",
    re.ASCII,
)
_MOST_BEFORE = 120
_PATH_OR_LINE_FEED = re.compile(rf"({_WINDOWS_PATH.pattern}|{_SHARED_PATH.pattern})|\\n")


def take_windows_paths(text: str) -> tuple[list[str], str]:
    """Return the paths of Windows in `text`, with single backslashes, and the text without them.

    A file whose name holds blanks is named up to the first of these.
    """
    if "\\" not in text:
        return [], text
    found: list[str] = []

    def take(match: re.Match[str]) -> str:
        if not text.startswith((" …", "…"), match.end()):  # else the rest of it was cut off
            path = match[0].replace("\\\\", "\\").rstrip(".")
            is_single = match[0].startswith("\\\\") and not path.startswith("\\\\")
            found.append(f"\\{path}" if is_single else path)
        return " "

    if ":\\" in text and _DRIVE.search(text):
        text = _WINDOWS_PATH.sub(take, text)
    if "\\\\" in text:
        text = _SHARED_PATH.sub(take, text)
    rest: list[str] = []
    done = 0
    for file in _BACKSLASHED_FILE.finditer(text):
        start = _ITS_START.search(text, max(done, file.start() - _MOST_BEFORE), file.start())
        if start and (path := _RELATIVE_PATH.match(text, start.start())):
            rest += [text[done : path.start()], take(path)]
            done = path.end()
    return found, "".join([*rest, text[done:]]) if rest else text


def with_line_feeds(text: str) -> str:
    r"""Return a text with line feeds for the escapes `\n` in it; the path `C:\new` has none."""
    if ":\\" not in text and not ("\\\\" in text and _SHARED_PATH.search(text)):
        return text.replace("\\n", "\n")
    return _PATH_OR_LINE_FEED.sub(lambda match: match[1] or "\n", text)
