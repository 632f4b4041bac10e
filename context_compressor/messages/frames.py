"""Take what a program printed out of the frame in which a terminal, or a protocol, reports it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from context_compressor.messages.escapes import sendable

_DEPTH = 3
"""Frames may stand in each other: a terminal's report in the answer of an MCP server, say."""
_MAX_CHARS = 4_000_000
"""A longer text is data, and time matters more."""

_PRINTED_KEYS = ("output", "stdout", "stderr")
_STATUS_KEYS = ("exit_code", "exitCode", "exit_status", "returncode", "return_code")
_REPORT_KEYS = frozenset(
    {
        *_PRINTED_KEYS,
        *_STATUS_KEYS,
        *("metadata", "duration", "duration_seconds", "interrupted", "isImage", "signal", "success"),
        *("command", "cwd", "error", "timed_out", "timeout", "truncated"),
    }
)
"""Keys of a report on a command; data that has another is no report, and is told as it is."""
_ANSWER_KEYS = frozenset({"content", "isError", "is_error", "_meta", "meta", "structuredContent"})
"""Keys of what an MCP server answers."""
_JSON = re.compile(
    rf"\s*(?:\{{\s*\"(?:{'|'.join((*_PRINTED_KEYS, *_STATUS_KEYS, 'metadata', 'command', 'success'))}"
    r"|result|content|isError|is_error|_?meta)\"\s*:|\[\s*\{\s*\"(?:type|text)\"\s*:)"
)
_TAGGED = re.compile(
    r"\s{0,9}(?=(?:<\w{2,30}>[^<>\n]{0,100}</\w{2,30}>\s{0,9}){0,7}<(?:returncode|exit_code|status)>)"
    r"(?:<(?!stdout|stderr|output)(\w{2,30})>[^<>\n]{0,100}</\1>\s{0,9}){1,8}(?=<(?:stdout|stderr|output)>)"
)
"""AgentScope's shell and Python tools, mini-swe-agent, what Claude Code tells of tasks in the background."""
_TAGGED_STATUS = re.compile(r"<(?:returncode|exit_code)>(-?\d{1,10})<")
_TAGGED_FAILURE = re.compile(r"<status>(?:failed|error|killed)<")
_TAGGED_TEXT = re.compile(r"<(stdout|stderr|output)>")
_EXCEPTION, _EXCEPTION_END = "<exception>", "</exception>"
"""Where mini-swe-agent says why a command could not be run, or did not end."""
_LONG = re.compile(
    r"\s{0,9}<returncode>(-?\d{1,10})</returncode>\s{0,9}"
    r"(?:<warning>[^<]{0,2000}</warning>\s{0,9})?<output_head>"
)
"""Its report on a long output: head and tail."""
_METADATA = re.compile(r"\n\s{0,9}<(\w{2,20}_metadata)>([^<]{0,800})</\1>\s{0,9}\Z")
_METADATA_CHARS = 900
_STOPPED = re.compile(r"terminated|timed out|timeout|aborted", re.IGNORECASE)
"""opencode: what stands below an output, and what it says of one that did not end."""
_FILE = re.compile(
    r"(?:<path>[^<>\n]{1,500}</path>\s{0,9})?(?:<type>file</type>\s{0,9})?<(file|content)>\n(?=\s{0,9}\d{1,6}[:|])"
    r"|\s{0,9}IMPORTANT: The file content has been truncated\.\n(?:[^\n]{0,600}\n){1,4}"
    r"--- FILE CONTENT \(truncated\) ---\n"
)
_FILE_END = re.compile(r"\n\n?\([^()\n]{1,200}\)\s{0,9}\Z")
"""opencode, Gemini CLI and Qwen Code: what stands around a file that was shown."""
_ERROR_TAG = re.compile(r"\s{0,9}<(tool_use_error|error)>(?=[^<])")
_UNTRUSTED = re.compile(r"^<(untrusted[\w-]{0,60})>\n", re.MULTILINE)
_UNTRUSTED_CHARS = 800
"""What servers put around data that comes from strangers, and how much of a warning before and behind it."""
_HEADED = re.compile(
    r"(?:(?:Chunk ID|Wall time|Original token count|Total output lines|Exit code): *+[^\n]*+\n"
    r"|Process (?:exited with code -?\d+|running with session ID \d+)\n){1,6}\n?Output:[ \n]?"
    r"|Command executed\b[^\n]{0,600}\n(?:Exit code: -?\d+[^\n]{0,80}\n)?Output:\n"
    r"|exitcode: -?\d+ \(execution \w+\)\nCode output: ?\n?"
    r"|The script ran, then exited with Unix exit code: -?\d+\nIts output was:\n"
)
"""Codex; Cline and Roo; AutoGen, twice."""
_HEADED_STATUS = re.compile(r"(?:[Ee]xit ?code:|Process exited with code) *(-?\d+)")
_LOGGED, _LOGGED_LAST = "Execution logs:\n", "Last output from code snippet:\n"
"""smolagents: above what its code printed, and above the value of the last line."""
_ENDED = re.compile(
    r"(?:\A|\n|(?=\[Python Interpreter: ))"
    r"(?:\[The command [^\n]{1,500}\]\n)?(?:\[Current working directory: [^\n]{1,500}\]\n)?"
    r"(?:\[Python [Ii]nterpreter: [^\n]{1,500}\]\n)?(?:[^\s@]{1,60}@[^\s:]{1,60}:[^\n]{1,300}[#$] ?\n)?"
    r"\[Command finished with exit code (-?\d{1,10})\]\s{0,9}\Z"
)
_UNFINISHED = re.compile(
    r"(?:\A|\n)\[(The command (?:timed out|has no new output) after [\d.]{1,12} seconds\.)[^\n]{0,900}\]"
    r"(?:\n\[(?:Current working directory|Python interpreter): [^\n]{1,500}\]){0,2}"
    r"(?:\n\[Command finished with exit code -1\])?\s{0,9}\Z"
)
_NOTEBOOK = re.compile(
    r"(?:\A|\n)\[Jupyter current working directory: [^\n]{1,500}\]"
    r"(?:\n\[Jupyter Python interpreter: [^\n]{1,500}\])?\s{0,9}\Z"
)
_ENDED_CHARS = 2_000
"""OpenHands: what stands below an output, earlier behind it with a prompt, and how long it may be."""
_RETURNED = re.compile(
    r"(?:The result of executing that last command is:\s{1,4})?Command \w{1,64} returned: "
    r"|Observation:\s{1,4}(?=\S)"
)
"""AutoGPT, and agents made from it; ReAct."""
_LISTED = ("Command: ", "Output: ", "Stdout: ")
"""How reports of Gemini CLI and Qwen Code begin."""
_LISTED_END = re.compile(r"(?:Error|Exit Code|Signal|Background PIDs|Process Group PGID): ([^\n]*)")
_PRINTED = re.compile(
    r"\s{0,9}(?:CallToolResult\()?(?:(?:_?meta=None,?\s)?content=)?\[(?=TextContent\(type='text', text=)"
)
_PRINTED_TEXT = re.compile(
    r"TextContent\(type='text', text=('[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'|\"[^\"\\\n]*+(?:\\.[^\"\\\n]*+)*+\")"
)
"""What a server of tools answered, as Python prints it, and a text in it."""
_MOST_TEXTS = 1_000
_PRINTED_ERROR = re.compile(r"isError=True\W*\Z")
_CLOCK = re.compile(
    r"^(?:#\d{1,4} \d{1,6}\.\d{1,3} |(?:[^\t\n]{1,80}\t){0,2}\ufeff?\d{4}-\d\d-\d\dT[\d:]{8}\.\d{7,9}Z )",
    re.MULTILINE,
)
"""What stands before each line that a step of a Docker build, or of a GitHub workflow, printed: their times
are finer than those of logs, by which lines of logs are known."""
_CLOCKED, _CLOCKED_CHARS = 3, 10_000
"""Lines that have it, at least, of a text's head."""
_NOTHING = frozenset({"", "(none)", "(empty)"})


class Report(NamedTuple):
    """What was reported."""

    said: str
    """What the program printed, or the server answered."""
    status: str = ""
    """The status with which the command ended; "" where none is told."""
    is_error: bool = False
    """Whether the answer is marked as an error."""


def unframe(text: str) -> Report:
    """Return what a result says without the frame around it, and what the frame tells; else the text.

    A frame is JSON of a command's output and status, an MCP server's list of texts, or what terminals of
    agents write around an output: its status, how long it took, which process it was.
    """
    report = Report(text)
    for _ in range(_DEPTH):
        if len(report.said) > _MAX_CHARS:
            break
        inner = next(filter(None, (read(report.said) for read in _READERS)), None)
        if inner is None:
            break
        report = Report(inner.said, inner.status or report.status, inner.is_error or report.is_error)
    return report


def without_clock(text: str) -> str:
    """Return a text without the time that stands before each of its lines; any other text as it is."""
    head = text[:_CLOCKED_CHARS]
    if head.count("Z ") < _CLOCKED and head.count("\n#") < _CLOCKED:
        return text
    return _CLOCK.sub("", text) if len(_CLOCK.findall(head)) >= _CLOCKED else text


def _unframe_json(text: str) -> Report | None:
    if not _JSON.match(text):
        return None
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    report = None
    if isinstance(value, list):
        report = _unframe_blocks(value, is_error=False)
    elif value.keys() <= _ANSWER_KEYS:
        is_error = bool(value.get("isError") or value.get("is_error"))
        report = _unframe_blocks(value.get("content"), is_error=is_error)
    elif value.keys() <= _REPORT_KEYS:
        report = _unframe_report(value)
    elif len(value) == 1 and isinstance(value.get("result"), str):  # FastMCP and ADK, of a tool's text
        report = Report(value["result"])
    # What was an escape in the text, and is half a character, is one again.
    return report and report._replace(said=sendable(report.said))


def _unframe_blocks(blocks: Any, *, is_error: bool) -> Report | None:
    if not (isinstance(blocks, list) and blocks):
        return None
    texts = [
        block["text"]
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
    ]
    return Report(_join(texts), is_error=is_error) if len(texts) == len(blocks) else None


def _unframe_report(value: Mapping[str, Any]) -> Report | None:
    printed = [value[key] for key in _PRINTED_KEYS if value.get(key)]
    metadata = value.get("metadata")
    told = {**(metadata if isinstance(metadata, dict) else {}), **value}
    status = next((told[key] for key in _STATUS_KEYS if isinstance(told.get(key), int)), None)
    error = value.get("error")
    if error and isinstance(error, str):
        printed.append(error)
    if not all(isinstance(text, str) for text in printed) or not (printed or status is not None):
        return None
    is_error = bool(error) or value.get("success") is False
    return Report(_join(printed), "" if status is None else str(int(status)), is_error)


def _unframe_tags(text: str) -> Report | None:
    if text.startswith(_EXCEPTION) and (end := text.find(_EXCEPTION_END)) > 0:
        below = text[end + len(_EXCEPTION_END) :]
        report = None if below.startswith(_EXCEPTION) else _unframe_tags(below)
        return report and Report(_join((report.said, text[len(_EXCEPTION) : end])), report.status, True)
    if "<output_head>" in text and (found := _LONG.match(text)):
        head, _, rest = text[found.end() :].partition("</output_head>")
        tail = rest.partition("<output_tail>")[2].rstrip()
        if tail.endswith("</output_tail>"):
            tail = tail.removesuffix("</output_tail>")
            return Report(_join((head.strip("\n"), tail.strip("\n"))), found[1])
    found = _TAGGED.match(text)
    if found is None:
        return None
    printed, rest = [], text[found.end() :].strip()
    while opening := _TAGGED_TEXT.match(rest):
        closing = f"</{opening[1]}>"
        end = rest.find(closing) if "<stderr>" in rest[opening.end() :] else rest.rfind(closing)
        if end < 0:
            return None
        printed.append(rest[opening.end() : end].strip("\n"))
        rest = rest[end + len(closing) :].strip()
    status = _TAGGED_STATUS.search(found[0])
    is_error = _TAGGED_FAILURE.search(found[0]) is not None
    return None if rest else Report(_join(printed), status[1] if status else "", is_error)


def _unframe_error(text: str) -> Report | None:
    found = _ERROR_TAG.match(text)
    said = text[found.end() :].rstrip() if found else ""
    closing = f"</{found[1]}>" if found else "-"
    return Report(said.removesuffix(closing).strip(), is_error=True) if said.endswith(closing) else None


def _unframe_untrusted(text: str) -> Report | None:
    found = _UNTRUSTED.search(text, 0, _UNTRUSTED_CHARS) if "<untrusted" in text[:_UNTRUSTED_CHARS] else None
    end = text.rfind(f"\n</{found[1]}>") if found else -1
    if found is None or not found.end() <= end or len(text) - end > _UNTRUSTED_CHARS:
        return None
    return Report(text[found.end() : end])


def _unframe_printed(text: str) -> Report | None:
    if not _PRINTED.match(text):
        return None
    try:
        texts = [ast.literal_eval(found[1]) for found in islice(_PRINTED_TEXT.finditer(text), _MOST_TEXTS)]
    except (SyntaxError, ValueError, MemoryError):
        return None
    is_error = _PRINTED_ERROR.search(text, max(0, len(text) - 200)) is not None
    return Report(sendable(_join(texts)), is_error=is_error) if texts else None


def _unframe_lines(text: str) -> Report | None:
    if found := _HEADED.match(text):
        status = _HEADED_STATUS.search(found[0])
        return Report(text[found.end() :], status[1] if status else "")
    if found := _RETURNED.match(text):
        return Report(text[found.end() :])
    if text.startswith(_LOGGED):
        printed, _, last = text[len(_LOGGED) :].partition(_LOGGED_LAST)
        return Report(_join((printed.rstrip("\n"), "" if last.strip() == "None" else last)))
    return _unframe_list(text) if text.startswith(_LISTED) else None


def _unframe_ended(text: str) -> Report | None:
    if found := _search_end(_UNFINISHED, "[The command ", text, _ENDED_CHARS):
        return Report(_join((text[: found.start()], found[1])))
    if found := _search_end(_NOTEBOOK, "[Jupyter ", text, _ENDED_CHARS):
        return Report(text[: found.start()])
    found = _search_end(_ENDED, "[Command finished", text, _ENDED_CHARS)
    return Report(text[: found.start()], found[1]) if found else None


def _unframe_metadata(text: str) -> Report | None:
    found = _search_end(_METADATA, "_metadata>", text, _METADATA_CHARS)
    if found is None:
        return None
    said = text[: found.start()].rstrip()
    if _STOPPED.search(found[2]):
        return Report(_join((said, found[2].strip())), is_error=True)
    return Report(said)


def _search_end(pattern: re.Pattern[str], part: str, text: str, chars: int) -> re.Match[str] | None:
    """Search the last characters of a text for a pattern; `part` stands in all that it matches."""
    start = max(0, len(text) - chars)
    return pattern.search(text, start) if text.find(part, start) >= 0 else None


def _unframe_file(text: str) -> Report | None:
    found = _FILE.match(text)
    if found is None:
        return None
    said = text[found.end() :].rstrip()
    closing = f"</{found[1]}>" if found[1] else ""
    if not said.endswith(closing):
        return None
    said = said.removesuffix(closing)
    return Report(_FILE_END.sub("", said) if closing else said)


def _unframe_list(text: str) -> Report | None:
    """Return what a list such as `Output: …`, `Error: (none)`, `Exit Code: 0` tells."""
    told: dict[str, str] = {}
    body = text.rstrip()
    while True:
        rest, _, line = body.rpartition("\n")
        found = _LISTED_END.fullmatch(line)
        name = line.partition(":")[0]
        if found is None or name in told:  # a list tells each once: what says it again was printed
            break
        told[name] = found[1]
        body = rest
    if not told:
        return None
    if body.startswith("Command: "):
        starts = [at for word in ("\nOutput: ", "\nStdout: ") if (at := body.find(word)) >= 0]
        if not starts:
            return None
        body = body[min(starts) + 1 :]
    printed, _, complaint = body[8:].partition("\nStderr: ")
    said = _join(part for part in (printed, complaint, told.get("Error", "")) if part.strip() not in _NOTHING)
    status = told.get("Exit Code", "")
    return Report(said, "" if status in _NOTHING else status)


_READERS = (
    *(_unframe_json, _unframe_printed, _unframe_tags, _unframe_error),
    *(_unframe_untrusted, _unframe_lines, _unframe_ended, _unframe_metadata, _unframe_file),
)


def _join(parts: Iterable[str]) -> str:
    return "\n".join(filter(None, parts))
