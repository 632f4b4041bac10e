"""The one place where summaries are checked, whoever wrote them, and what is refused in place of one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from typing import Any

from context_compressor.errors import SummarizerError, SummarizerTimeoutError, SummaryRejectedError
from context_compressor.messages.msg import is_segment, tool_names
from context_compressor.messages.text import clean, strip_reasoning
from context_compressor.summarizers.attempts import charge_call, paying
from context_compressor.summarizers.cutting import cut_to_tokens
from context_compressor.summarizers.notes import begins_with_edit
from context_compressor.summarizers.prompts import (
    begins_with_label,
    material_text,
    render_conversation,
    repeats_marks,
    system_prompt,
)
from context_compressor.summarizers.protocol import Summarizer, Summary, SummaryRequest, name_of
from context_compressor.summarizers.sections import drop_least, is_heading, is_placeholder, section_of_heading
from context_compressor.summarizers.values import Shown, marked, values
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.off_loop import run_off_loop, text_characters
from context_compressor.tokens.vocabularies import estimate_tokens

PARROT_WINDOW_CHARS = 300
"""A summary may quote sentences; a stretch this long that stands in the material word for word is copied."""
PARROT_SHARE = 0.8
"""How much of a summary such stretches may be before it is a copy; one long quote may stand."""
PARROT_WINDOWS = 200
"""At most so many of them are looked for, spread over the summary: each is sought in all of the material."""
PARROT_MIN_CHARS = 400
"""Shorter texts may repeat the material: there is no shorter way to say a short message."""

SPARE_SHARE = 0.1
"""So much longer than asked a summary may be where there is room: asking again costs a whole answer."""
CUT_SHARE = 1.5
"""Up to so many times its limit a summary is cut, two thirds of it being left; beyond, it is asked again."""
_TOO_LONG = (
    "The earlier summary above is your draft of this one. It takes {tokens} tokens; the limit is {limit}. "
    "Shorten it to the limit: keep what the agent needs most, leave out the rest."
)
_MADE_UP = (
    "Your last summary named what the material does not hold: {values}. "
    "Write it again with names and values as they stand there."
)
_MOST_NAMED = 30
MAX_MARKED_SHARE, MIN_MARKED = 0.2, 5
"""A summary with more doubtful values than both of these is made up."""

_CANCELLATION_GRACE_SECONDS = 0.5
"""How long a summariser that was cancelled is waited for."""
_REF = re.compile(r"ctx://[0-9a-f]{16}(?![0-9a-f])")
_NO_REF = "[no such ref]"
_LINE_MARKS = re.compile(r"^(?:\[[^\]\n]*\]$|=== [^\n]* ===$|[\s>|*•#-]+)", re.MULTILINE)


async def summarize_checked(
    summarizer: Summarizer,
    request: SummaryRequest,
    counter: TokenCounter,
    *,
    replaced_tokens: int,
    spare_tokens: int = 0,
    material: str | None = None,
    input_tokens_estimate: int = 0,
    timeout_seconds: float | None = None,
) -> Summary:
    """Ask for a summary and return it only if it can stand in for what it replaces.

    One that is longer than `request.max_tokens` is taken as it is where it is a tenth too long and there is
    room; else it loses the ends of the sections that matter least. One that is far too long is asked for once
    more, with its draft, before it is cut.

    Args:
        summarizer: who writes it.
        request: what is asked.
        counter: measures the summary.
        replaced_tokens: what the messages cost that it replaces; it must cost less.
        spare_tokens: how much more than `request.max_tokens` it may cost if need be.
        material: what was summarised, as text, to recognise a copy; rendered from the request when None.
        input_tokens_estimate: what to report as read where the summariser reports nothing.
        timeout_seconds: for all of it, the second attempt included; None waits for ever.

    Returns:
        The summary, its text cleaned. Its token counts are those reported, both attempts added up; where none
        are reported, `input_tokens_estimate` and what the text counts. What is refused is noted as unused.

    Raises:
        SummaryRejectedError: the summary cannot be used; the text says why.
        SummarizerTimeoutError: there was none in time.
        SummarizerError: the summariser failed; chained from its exception.
    """
    loop = asyncio.get_running_loop()
    deadline = None if timeout_seconds is None else loop.time() + timeout_seconds

    async def count(text: str) -> int:
        return await run_off_loop(len(text), counter.count_text, text)

    async def attempt(asked: SummaryRequest) -> tuple[int, str]:
        """Return a text that passed, and before it its tokens by our counter."""
        left = None if deadline is None else max(0.0, deadline - loop.time())
        summary = await ask(summarizer, asked, left, timeout_seconds)
        said = str(getattr(summary, "text", ""))
        size = (text_characters(request.messages) if material is None else len(material)) + len(said)
        read = reported(getattr(summary, "input_tokens", 0)) or input_tokens_estimate
        written = reported(getattr(summary, "output_tokens", 0))
        try:
            quotes = getattr(summarizer, "quotes", False)
            text = await run_off_loop(size, check_summary, summary, request, material, quotes)
            if summarizer.remote:
                text = await run_off_loop(size, check_values, text, request)
        except SummaryRejectedError:
            paid.add(read, written or await count(said))
            raise
        tokens = await count(text)
        paid.add(read, written or tokens)
        return tokens, text

    most = request.max_tokens + min(spare_tokens, int(SPARE_SHARE * request.max_tokens))
    with paying(summarizer) as paid:
        try:
            tokens, text = await attempt(request)
        except MadeUpError as error:
            named = ", ".join(error.values[:_MOST_NAMED])
            tokens, text = await attempt(asked_again(request, _MADE_UP.format(values=named)))
        if tokens > max(most, CUT_SHARE * request.max_tokens):
            note = _TOO_LONG.format(tokens=tokens, limit=request.max_tokens)
            with suppress(SummarizerError):  # the first can still be cut
                second = await attempt(asked_again(request, note, draft=text))
                tokens, text = min((tokens, text), second, key=itemgetter(0))
        if tokens > most:
            text = await run_off_loop(len(text), _cut, text, request.max_tokens, counter)
            tokens = counter.count_text(text)
        if not says_something(text):
            raise _rejected(f"{request.max_tokens} tokens leave nothing of it")
        if tokens >= replaced_tokens:
            raise _rejected(f"its {tokens} tokens are not fewer than the {replaced_tokens} it replaces")
    return Summary(text=text, input_tokens=paid.input_tokens, output_tokens=paid.output_tokens)


def check_summary(
    summary: object,
    request: SummaryRequest,
    material: str | None = None,
    quotes: bool = False,
    sent: SummaryRequest | None = None,
) -> str:
    """Return the text of a summary, cleaned of reasoning, wrapping, invented refs and what cannot be seen.

    Lengths are not checked here.

    Args:
        summary: what the summariser returned.
        request: what was asked.
        material: what was summarised, as text; rendered from the request when None.
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
    if material is None and not quotes:  # what a program writes may quote a call, and is no error text
        _check_form(answer, text, request)
    if not quotes and len(text) >= PARROT_MIN_CHARS and _is_copy(text, request, material):
        raise _rejected("it repeats the material or the prompt instead of summarising")
    # No text can be read back by refs that nothing names which the summariser was given.
    known = set(_REF.findall(f"{material_text(request)}\n{material}")) if _REF.search(text) else ()
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


def check_values(text: str, request: SummaryRequest) -> str:
    """Return a model's summary with ` (?)` behind each value that its material does not hold.

    Raises:
        SummaryRejectedError: these are too many: it is made up.
    """
    shown = Shown(material_text(request))
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


def asked_again(request: SummaryRequest, note: str, draft: str | None = None) -> SummaryRequest:
    """Return a request that says what was wrong; a draft stands where an earlier summary would."""
    return replace(request, repair=note, previous=draft or request.previous)


def _cut(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Return a summary in at most `max_tokens` tokens: the ends of its least sections go, or its own end."""
    shorter = drop_least(text, lambda kept: counter.count_text(kept) <= max_tokens)
    # One long line, or none of our sections, and dropping whole lines costs too much.
    if 2 * counter.count_text(shorter) < max_tokens:
        return cut_to_tokens(text, max_tokens, counter)
    return shorter


def _is_copy(text: str, request: SummaryRequest, material: str | None) -> bool:
    """Tell whether a text is the material over again: most of its windows stand there, or all of that in it.

    Earlier summaries in the material do not count: carrying their lines forward is what is asked.
    """
    said = _flat(text)
    given = _flat(render_conversation(request.messages) if material is None else material)
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


def reported(tokens: object) -> int:
    """Return tokens as a summariser reported them; 0 for anything else."""
    return tokens if isinstance(tokens, int) and tokens > 0 else 0


async def ask(
    summarizer: Summarizer, request: SummaryRequest, seconds: float | None, timeout_seconds: float | None
) -> Summary:
    """Call a summariser in a task of its own: one that ignores its cancellation cannot hold us up."""
    name = name_of(summarizer)
    charge_call(summarizer)

    async def call() -> Summary:
        return await summarizer.summarize(request)

    task = asyncio.create_task(call())
    # Whoever has gone need not be told.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise SummarizerTimeoutError(f"{name} did not answer within {timeout_seconds} seconds")
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_CANCELLATION_GRACE_SECONDS)
    if task.cancelled():
        # Nobody cancelled us, so this must not look as if somebody had.
        raise SummarizerError(f"{name} was cancelled from within")
    try:
        return task.result()
    except SummarizerError:
        raise
    except TimeoutError as error:
        raise SummarizerTimeoutError(f"{name} timed out: {_brief(error)}") from error
    except Exception as error:
        raise SummarizerError(f"{name} failed: {_brief(error)}") from error


def _brief(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


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
