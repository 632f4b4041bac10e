"""The one place where summaries are checked, whoever wrote them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import NamedTuple

from context_compressor.errors import SummarizerError, SummarizerTimeoutError, SummaryRejectedError
from context_compressor.messages.provenance import is_segment
from context_compressor.summarizers.attempts import charge_call, paying
from context_compressor.summarizers.cleaning import clean
from context_compressor.summarizers.cutting import cut_to_tokens
from context_compressor.summarizers.prompts import (
    begins_with_label,
    render_conversation,
    repeats_marks,
    system_prompt,
)
from context_compressor.summarizers.protocol import Summarizer, Summary, SummaryRequest, name_of
from context_compressor.summarizers.reasoning import strip_reasoning
from context_compressor.summarizers.refusals import is_error_text, is_introduction
from context_compressor.summarizers.sections import is_heading, is_placeholder, section_of_heading
from context_compressor.tokens.off_loop import run_off_loop, text_characters
from context_compressor.tokens.protocol import TokenCounter

PARROT_WINDOW_CHARS = 300
"""A summary may quote sentences; a stretch this long that stands in the material word for word is copied."""
PARROT_SHARE = 0.8
"""How much of a summary such stretches may be before it is a copy; one long quote may stand."""
PARROT_WINDOWS = 200
"""At most so many of them are looked for, spread over the summary: each is sought in all of the material."""
PARROT_MIN_CHARS = 400
"""Shorter texts may repeat the material: there is no shorter way to say a short message."""

_CANCELLATION_GRACE_SECONDS = 0.5
"""How long a summariser that was cancelled is waited for."""
_CODE_FENCE = re.compile(r"```[\w-]*\n(.*)\n```", re.DOTALL)
_ASSENT = re.compile(
    r"\W*(?:(?:ok(?:ay)?|sure|yes|done|understood|got it|will do|certainly|of course"
    r"|好的?|是的?|明白了?|收到)\W*)+",
    re.IGNORECASE,
)
_REF = re.compile(r"ctx://[0-9a-f]{16}(?![0-9a-f])")
_NO_REF = "[no such ref]"
_LINE_MARKS = re.compile(r"^(?:\[[^\]\n]*\]$|=== [^\n]* ===$|[\s>|*•#-]+)", re.MULTILINE)


class _Attempt(NamedTuple):
    """One answer."""

    text: str
    tokens: int
    """Of the text, by our counter."""


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

    One that is longer than `request.max_tokens` is asked for once more, with a note, then cut.

    Args:
        summarizer: who writes it.
        request: what is asked.
        counter: measures the summary.
        replaced_tokens: what the messages cost that it replaces; it must cost less.
        spare_tokens: tokens by which it may be too long.
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

    async def attempt(asked: SummaryRequest) -> _Attempt:
        left = None if deadline is None else max(0.0, deadline - loop.time())
        summary = await _call(summarizer, asked, left, timeout_seconds)
        said = str(getattr(summary, "text", ""))
        size = (text_characters(request.messages) if material is None else len(material)) + len(said)
        read = _reported(getattr(summary, "input_tokens", 0)) or input_tokens_estimate
        written = _reported(getattr(summary, "output_tokens", 0))
        try:
            text = await run_off_loop(size, check_summary, summary, request, material)
        except SummaryRejectedError:
            paid.add(read, written or await run_off_loop(len(said), counter.count_text, said))
            raise
        tokens = await run_off_loop(len(text), counter.count_text, text)
        paid.add(read, written or tokens)
        return _Attempt(text, tokens)

    with paying(summarizer) as paid:
        answer = await attempt(request)
        if answer.tokens > request.max_tokens + spare_tokens:
            try:
                second = await attempt(_shorter(request, answer.tokens))
            except SummarizerError:
                pass  # the first can still be cut
            else:
                answer = min(answer, second, key=lambda candidate: candidate.tokens)
        text = answer.text
        if answer.tokens > request.max_tokens + spare_tokens:
            text = await run_off_loop(len(text), cut_to_tokens, text, request.max_tokens, counter)
        _check_says_something(text, f"{request.max_tokens} tokens leave nothing of it")
        tokens = answer.tokens if text == answer.text else counter.count_text(text)
        if tokens >= replaced_tokens:
            raise SummaryRejectedError(
                f"summary rejected: its {tokens} tokens are not fewer than the {replaced_tokens} it would "
                "replace"
            )
    return Summary(text=text, input_tokens=paid.input_tokens, output_tokens=paid.output_tokens)


def check_summary(summary: object, request: SummaryRequest, material: str | None = None) -> str:
    """Return the text of a summary, cleaned of reasoning, wrapping, invented refs and what cannot be seen.

    Lengths are not checked here.

    Args:
        summary: what the summariser returned.
        request: what was asked.
        material: what was summarised, as text; rendered from the request when None.

    Raises:
        SummaryRejectedError: it is no summary, says nothing, is an error text, a copy of the material, or
            goes on with the conversation.
    """
    if not isinstance(summary, Summary) or not isinstance(summary.text, str):
        got = type(summary.text if isinstance(summary, Summary) else summary).__name__
        raise SummaryRejectedError(f"summary rejected: expected a Summary with a text, got {got}")
    text = strip_reasoning(clean(summary.text))
    wrapped = _CODE_FENCE.fullmatch(text)
    text = wrapped[1].strip() if wrapped else text
    _check_says_something(text, "it says nothing: empty, a placeholder, or only the template")
    if _ASSENT.fullmatch(text):
        raise SummaryRejectedError(f"summary rejected: an assent, not a summary: {text!r}")
    if begins_with_label(text) or repeats_marks(text, request):
        raise SummaryRejectedError(
            "summary rejected: it goes on with the conversation, or repeats the prompt"
        )
    if is_error_text(text):
        raise SummaryRejectedError(f"summary rejected: an error or refusal, not a summary: {text[:100]!r}")
    if len(text) >= PARROT_MIN_CHARS and _is_copy(text, request, material):
        raise SummaryRejectedError(
            "summary rejected: it repeats the material or the prompt instead of summarising"
        )
    return _without_invented_refs(text, request, material)


def _without_invented_refs(text: str, request: SummaryRequest, material: str | None) -> str:
    """Take out refs that nothing names which the summariser was given: no text can be read back by them."""
    if not _REF.search(text):
        return text
    told = (material, request.previous, request.note, request.instructions)
    given = "\n".join([render_conversation(request.messages), *filter(None, told)])
    known = set(_REF.findall(given))
    return _REF.sub(lambda ref: ref[0] if ref[0] in known else _NO_REF, text)


def _check_says_something(text: str, reason: str) -> None:
    lines = text.strip(" …").splitlines()
    if all(map(_is_empty, lines)):
        raise SummaryRejectedError(f"summary rejected: {reason}")


def _is_empty(line: str) -> bool:
    """Tell whether a line of a summary says nothing."""
    is_title = section_of_heading(line) is not None or is_heading(line)
    return is_title or is_placeholder(line) or is_introduction(line)


def _is_copy(text: str, request: SummaryRequest, material: str | None) -> bool:
    """Tell whether a text is the material over again: most of its windows stand in it, or all of it in the
    text.

    Earlier summaries in the material do not count: carrying their lines forward is what is asked.
    """
    said = _flat(text)
    given = _flat(render_conversation(request.messages) if material is None else material)
    for carried in [
        request.previous,
        *(msg.get_text_content() for msg in request.messages if is_segment(msg)),
    ]:
        if carried and carried.strip():
            given = given.replace(_flat(clean(carried)), "")
    if len(given) >= PARROT_MIN_CHARS and given in said:
        return True
    given = "\n".join([given, *(_flat(system_prompt(chinese=chinese)) for chinese in (False, True))])
    if said in given:
        return True
    step = max(PARROT_WINDOW_CHARS, len(said) // PARROT_WINDOWS)
    windows = [
        said[start : start + PARROT_WINDOW_CHARS]
        for start in range(0, len(said) - PARROT_WINDOW_CHARS + 1, step)
    ]
    return len(windows) > 1 and sum(window in given for window in windows) >= PARROT_SHARE * len(windows)


def _flat(text: str) -> str:
    """Return `text` on one line, without labels, list marks and quotation marks: a copy may have others."""
    return " ".join(_LINE_MARKS.sub("", text).split())


def _shorter(request: SummaryRequest, tokens: int) -> SummaryRequest:
    note = (
        f"Your last summary of this took {tokens} tokens; the limit is {request.max_tokens}. "
        "Write it again, shorter: keep what the agent needs most, and leave out the rest."
    )
    return replace(request, instructions=f"{request.instructions}\n{note}" if request.instructions else note)


def _reported(tokens: object) -> int:
    return tokens if isinstance(tokens, int) and tokens > 0 else 0


async def _call(
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
