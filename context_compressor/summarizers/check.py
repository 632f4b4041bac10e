"""The one place where summaries are checked, whoever wrote them, and what is refused in place of one."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from context_compressor.errors import SummaryRejectedError
from context_compressor.messages.msg import is_segment, tool_names
from context_compressor.messages.text import clean, strip_reasoning
from context_compressor.summarizers.notes import begins_with_edit
from context_compressor.summarizers.prompts import (
    begins_with_label,
    material_text,
    render_conversation,
    repeats_marks,
    system_prompt,
)
from context_compressor.summarizers.protocol import Summary, SummaryRequest
from context_compressor.summarizers.sections import is_heading, is_placeholder, section_of_heading
from context_compressor.summarizers.values import Shown, marked, values
from context_compressor.tokens.vocabularies import estimate_tokens

PARROT_WINDOW_CHARS = 300
"""A summary may quote sentences; a stretch this long that stands in the material word for word is copied."""
PARROT_SHARE = 0.8
"""How much of a summary such stretches may be before it is a copy; one long quote may stand."""
PARROT_WINDOWS = 200
"""At most so many of them are looked for, spread over the summary: each is sought in all of the material."""
PARROT_MIN_CHARS = 400
"""Shorter texts may repeat the material: there is no shorter way to say a short message."""

MAX_MARKED_SHARE, MIN_MARKED = 0.2, 5
"""A summary with more doubtful values than both of these is made up."""

_REF = re.compile(r"ctx://[0-9a-f]{16}(?![0-9a-f])")
_NO_REF = "[no such ref]"
_LINE_MARKS = re.compile(r"^(?:\[[^\]\n]*\]$|=== [^\n]* ===$|[\s>|*•#-]+)", re.MULTILINE)


def check_summary(
    summary: object,
    request: SummaryRequest,
    *,
    by_model: bool = True,
    quotes: bool = False,
    sent: SummaryRequest | None = None,
) -> str:
    """Return the text of a summary, cleaned of reasoning, wrapping, invented refs and what cannot be seen.

    Lengths are not checked here.

    Args:
        summary: what the summariser returned.
        request: what was asked.
        by_model: what a program writes may quote a call, and is no error text.
        quotes: whether all of it is quoted from the material, as in an extract; it may then repeat itself as
            the material does.
        sent: what was sent, where that was less than what was asked.

    Raises:
        SummaryRejectedError: it is no summary, says nothing, is an error text, a copy of the material, or
            goes on with the conversation.
    """
    if not isinstance(summary, Summary) or not isinstance(summary.text, str):
        got = type(summary.text if isinstance(summary, Summary) else summary).__name__
        raise _rejected(f"expected a Summary with a text, got {got}")
    answer = strip_reasoning(clean(summary.text))
    text = unwrap(answer)
    if not says_something(text):
        raise _rejected("it says nothing: empty, a placeholder, or only the template")
    if begins_with_label(text) or repeats_marks(text, sent or request):
        raise _rejected("it goes on with the conversation, or repeats the prompt")
    if by_model and not quotes:
        _check_form(answer, text, request)
    if not quotes and len(text) >= PARROT_MIN_CHARS and _is_copy(text, request):
        raise _rejected("it repeats the material or the prompt instead of summarising")
    # No text can be read back by refs that nothing names which the summariser was given.
    known = set(_REF.findall(material_text(request))) if _REF.search(text) else ()
    return _REF.sub(lambda ref: ref[0] if ref[0] in known else _NO_REF, text)


def _check_form(answer: str, text: str, request: SummaryRequest) -> None:
    """Refuse what a model says in place of a summary; `text` is the answer without what stands around it."""
    if is_call(answer, set(tool_names([*request.messages, *request.context]).values())):
        raise _rejected(f"a call of a tool, not a summary: {answer[-100:]!r}")
    if is_in_form(text):
        return
    is_remark = estimate_tokens(text) < min(_REMARK_TOKENS, request.max_tokens)
    prompt = system_prompt(chinese=False) + system_prompt(chinese=True)
    if is_error(text) or (is_remark and is_foreign(text, material_text(request), prompt)):
        raise _rejected(f"an error or refusal, not a summary: {text[:100]!r}")
    if is_remark and text.endswith(("?", "？")):
        raise _rejected(f"it goes on with the conversation: {text[:100]!r}")


def check_values(text: str, shown: Shown) -> str:
    """Return a model's summary with ` (?)` behind each value that it was not shown.

    Raises:
        MadeUpError: these are too many.
    """
    found = {value.text: shown.holds(value) for value in values(text)}
    # Whole numbers a summary may have counted or added.
    made_up = sorted(said for said, is_held in found.items() if not is_held and not said.isdigit())
    if len(made_up) >= MIN_MARKED and len(made_up) > MAX_MARKED_SHARE * len(found):
        raise MadeUpError(made_up, len(found))
    return marked(text, shown)


class MadeUpError(SummaryRejectedError):
    """Too many of a summary's values are not in its material."""

    def __init__(self, values: Sequence[str], of: int) -> None:
        self.values = values
        super().__init__(
            f"summary rejected: {len(values)} of its {of} ids, paths and quotes are not in the material, "
            f"{', '.join(values[:3])} among them"
        )


def _rejected(why: str) -> SummaryRejectedError:
    return SummaryRejectedError(f"summary rejected: {why}")


def _is_copy(text: str, request: SummaryRequest) -> bool:
    """Tell whether a text is the material over again: most of its windows stand there, or all of that in it.

    Earlier summaries in the material do not count: carrying their lines forward is what is asked.
    """
    said = _flat(text)
    given = _flat(render_conversation(request.messages))
    earlier = [msg.get_text_content() for msg in request.messages if is_segment(msg)]
    for carried in filter(None, [request.previous, *earlier]):
        if flat := _flat(clean(carried)):
            given = given.replace(flat, "")
    if len(given) >= PARROT_MIN_CHARS and given in said:
        return True
    given = "\n".join([given, *(_flat(system_prompt(chinese=chinese)) for chinese in (False, True))])
    if said in given:
        return True
    step = max(PARROT_WINDOW_CHARS, len(said) // PARROT_WINDOWS)
    starts = range(0, len(said) - PARROT_WINDOW_CHARS + 1, step)
    copied = sum(said[start : start + PARROT_WINDOW_CHARS] in given for start in starts)
    return len(starts) > 1 and copied >= PARROT_SHARE * len(starts)


def _flat(text: str) -> str:
    """Return `text` on one line, without labels, list marks and quotation marks: a copy may have others."""
    return " ".join(_LINE_MARKS.sub("", text).split())


_REMARK_TOKENS = 60
"""Tokens by `estimate_tokens`. Errors and refusals are shorter in any language. Prose that is as long counts
as a summary, whatever its words."""
_LEAST_SHARED, _SHARE = 4, 0.4
"""A shorter summary shares at least so many words with the material, and this part of its own; errors and
refusals share fewer. If the material has few words itself, a third of these is enough."""
_MAX_READ_CHARS = 20_000
"""This many characters of an answer are enough to tell what it is about."""
_MAX_WRAPPINGS = 3
_MAX_JSON_STARTS = 8
_MAX_JSON_DEPTH = 3

_WORD = re.compile(r"[^\W_]+(?:[-'._/@:][^\W_]+)*[^\W_]*|_")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_PAGE = re.compile(r"(?:\d{3}\s+)?<(?:!doctype|html)\b|traceback \(", re.IGNORECASE)
_WRAPPED = re.compile(r"```[\w-]*\n(.*)\n```|<([\w:-]{1,40})>\s*(.*?)\s*</\2>", re.DOTALL)
_JSON_START = re.compile(r"^[^\n{\[]{0,60}([{\[])", re.MULTILINE)
_JSON_END = re.compile(r"[ ;,\t\r]*(?:\n|\Z)")


def unwrap(text: str) -> str:
    """Return a text without a fence or an element around all of it."""
    for _ in range(_MAX_WRAPPINGS):
        wrapped = _WRAPPED.fullmatch(text)
        inner = (wrapped[1] or wrapped[3] or "").strip() if wrapped else ""
        if not wrapped or not inner or f"</{wrapped[2]}>" in inner:
            break
        text = inner
    return text


def says_something(text: str) -> bool:
    """Tell whether a text has a line that is no heading and no placeholder."""
    return any(
        section_of_heading(line) is None and not is_heading(line) and not is_placeholder(line)
        for line in text.strip(" …").splitlines()
    )


def is_in_form(text: str) -> bool:
    """Tell whether a text has the form that was asked for: lines under headings, or a list."""
    opened = False
    for line in text.splitlines():
        if is_heading(line) or section_of_heading(line) is not None:
            opened = True
        elif opened and not is_placeholder(line):
            return True
    return text.startswith(("- ", "* ", "1. ")) or begins_with_edit(text)


def is_call(text: str, tools: Collection[str]) -> bool:
    """Tell whether a text is a call of a tool, or ends with one, in whatever spelling.

    A call is a JSON object with a tool's name beside arguments, or a line that is a mark or a label with the
    name of a tool in it. In a summary tools are named within lines.
    """
    if any(_is_json_call(data, tools) for data in _json_values(text)):
        return True
    names = "|".join(sorted(map(re.escape, filter(None, tools)), key=len, reverse=True))
    name, mark = rf"(?:functions?\.)?(?:{names})", r"[<\[][^\n]{0,80}[>\]]\s*"
    forms = (
        rf"[<\[][^<>\n]{{0,80}}?\b{name}\b[^<>\n]{{0,80}}>?",  # <invoke name="read">, <function=read>, <read>
        rf"(?:{mark})?{name}\s*(?:\(.*\)|:\d+)|{mark}{name}",  # read(path="a"), functions.read:0, <...> read
        rf"[^\W\d]\w{{0,20}}:\s*{name}\s*\n[^\n{{]{{0,40}}\{{.*",  # Action: read, and its arguments below
    )
    return bool(names) and re.search(rf"^(?:{'|'.join(forms)})\s*$", text, re.MULTILINE) is not None


def _json_values(text: str) -> Iterator[Any]:
    """Yield the JSON objects and lists that end with a line, of many those nearest to either end."""
    starts = [match.start(1) for match in _JSON_START.finditer(text)]
    if len(starts) > _MAX_JSON_STARTS:
        starts = starts[: _MAX_JSON_STARTS // 2] + starts[-_MAX_JSON_STARTS // 2 :]
    for start in starts:
        try:
            value, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if _JSON_END.match(text, end):
            yield value


def _is_json_call(data: Any, tools: Collection[str], depth: int = 0) -> bool:
    """Tell whether data holds an object of a tool's name and arguments."""
    if not isinstance(data, dict | list) or depth > _MAX_JSON_DEPTH:
        return False
    values = list(data.values()) if isinstance(data, dict) else data[:_MAX_JSON_STARTS]
    if isinstance(data, dict) and len(data) <= 5:
        is_named = any(
            isinstance(value, str) and (value in tools or (key == "name" and value.isidentifier()))
            for key, value in data.items()
        )
        if is_named and any(isinstance(v, dict) or str(v).lstrip().startswith("{") for v in values):
            return True
    return any(_is_json_call(value, tools, depth + 1) for value in values)


def is_error(text: str) -> bool:
    """Tell whether a text has the form of a program's error: a page, a traceback, an object with an error."""
    if _PAGE.match(text):
        return True
    try:
        data = json.loads(text) if text.startswith(("{", "[")) else None
    except (ValueError, RecursionError):
        return False
    return any(
        isinstance(one, dict) and "error" in one for one in (data if isinstance(data, list) else [data])
    )


def is_foreign(text: str, material: str, prompt: str) -> bool:
    """Tell whether a short text is about something else than the material: an error, a refusal, a greeting.

    What it shares is counted in words of four letters and more, names, numbers, and pairs of ideographs.
    Words of the prompt do not count: "conversation", "request" and "error" are what refusals are made of.
    One that has half of its names and numbers from the material is about it.
    """
    common = _units(prompt)
    said, given = _units(text[:_MAX_READ_CHARS]) - common, _units(material) - common
    shared = said & given
    names = sum(map(_is_name, shared))
    if names and 2 * names >= sum(map(_is_name, said)):
        return False
    return len(shared) < max(min(_LEAST_SHARED, max(1, len(given) // 3)), _SHARE * len(said))


def _units(text: str) -> set[str]:
    """Return what a text is told by: its longer words, names and numbers, pairs of ideographs."""
    folded = text.casefold()
    units = {word for word in _WORD.findall(_CJK.sub(" ", folded)) if len(word) > 3 or _is_name(word)}
    return units | {run[at : at + 2] for run in _CJK.findall(folded) for at in range(len(run) - 1)}


def _is_name(unit: str) -> bool:
    """Tell whether a word is a name or number by its form; a small number is none."""
    return any(c.isdigit() or c in "_./@:" for c in unit) and not (unit.isdigit() and len(unit) < 4)
