"""The one place where summaries are checked, whoever wrote them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from context_compressor.errors import SummarizerError, SummarizerTimeoutError, SummaryRejectedError
from context_compressor.messages.msg import tool_names
from context_compressor.messages.provenance import is_segment
from context_compressor.summarizers.attempts import charge_call, paying
from context_compressor.summarizers.cleaning import clean
from context_compressor.summarizers.cutting import cut_to_tokens
from context_compressor.summarizers.prompts import (
    begins_with_label,
    material_text,
    render_conversation,
    repeats_marks,
    system_prompt,
)
from context_compressor.summarizers.protocol import Summarizer, Summary, SummaryRequest, name_of
from context_compressor.summarizers.reasoning import strip_reasoning
from context_compressor.summarizers.refusals import (
    is_call,
    is_foreign,
    is_in_form,
    is_next_turn,
    says_something,
    unwrap,
)
from context_compressor.summarizers.sections import drop_least
from context_compressor.summarizers.values import Checked, mark_values
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

SPARE_SHARE = 0.1
"""So much longer than asked a summary may be where there is room: asking again costs a whole answer."""
CUT_SHARE = 1.5
"""Up to so many times its limit a summary is cut, two thirds of it being left; beyond, it is asked again."""
_MOST_NAMED = 30
MAX_MARKED_SHARE, MIN_MARKED = 0.2, 5
"""A summary with more doubtful values than both of these is made up."""

_CANCELLATION_GRACE_SECONDS = 0.5
"""How long a summariser that was cancelled is waited for."""
_REF = re.compile(r"ctx://[0-9a-f]{16}(?![0-9a-f])")
_NO_REF = "[no such ref]"
_LINE_MARKS = re.compile(r"^(?:\[[^\]\n]*\]$|=== [^\n]* ===$|[\s>|*•#-]+)", re.MULTILINE)


class _Attempt(NamedTuple):
    """One answer, and its tokens by our counter."""

    text: str
    tokens: int


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

    async def attempt(asked: SummaryRequest) -> _Attempt:
        left = None if deadline is None else max(0.0, deadline - loop.time())
        summary = await _call(summarizer, asked, left, timeout_seconds)
        said = str(getattr(summary, "text", ""))
        size = (text_characters(request.messages) if material is None else len(material)) + len(said)
        read = _reported(getattr(summary, "input_tokens", 0)) or input_tokens_estimate
        written = _reported(getattr(summary, "output_tokens", 0))
        try:
            text = await run_off_loop(size, check_summary, summary, request, material)
            if summarizer.remote:  # an extract quotes
                text = await run_off_loop(size, check_values, text, request)
        except SummaryRejectedError:
            paid.add(read, written or await run_off_loop(len(said), counter.count_text, said))
            raise
        tokens = await run_off_loop(len(text), counter.count_text, text)
        paid.add(read, written or tokens)
        return _Attempt(text, tokens)

    with paying(summarizer) as paid:
        try:
            answer = await attempt(request)
        except _MadeUpError as error:
            answer = await attempt(_without(request, error.values))
        most = request.max_tokens + min(spare_tokens, int(SPARE_SHARE * request.max_tokens))
        if answer.tokens > max(most, CUT_SHARE * request.max_tokens):
            try:
                second = await attempt(_shorter(request, answer))
            except SummarizerError:
                pass  # the first can still be cut
            else:
                answer = min(answer, second, key=lambda candidate: candidate.tokens)
        text = answer.text
        if answer.tokens > most:
            text = await run_off_loop(len(text), _cut, text, request.max_tokens, counter)
        _check_says_something(text, f"{request.max_tokens} tokens leave nothing of it")
        tokens = answer.tokens if text == answer.text else counter.count_text(text)
        if tokens >= replaced_tokens:
            raise SummaryRejectedError(
                f"summary rejected: its {tokens} tokens are not fewer than the {replaced_tokens} it replaces"
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
    answer = strip_reasoning(clean(summary.text))
    text = unwrap(answer)
    _check_says_something(text, "it says nothing: empty, a placeholder, or only the template")
    if begins_with_label(text) or repeats_marks(text, request):
        raise SummaryRejectedError(
            "summary rejected: it goes on with the conversation, or repeats the prompt"
        )
    if material is None:  # what a program writes may quote a call, and is no error text
        _check_form(answer, text, request)
    if len(text) >= PARROT_MIN_CHARS and _is_copy(text, request, material):
        raise SummaryRejectedError(
            "summary rejected: it repeats the material or the prompt instead of summarising"
        )
    return _without_invented_refs(text, request, material)


def _check_form(answer: str, text: str, request: SummaryRequest) -> None:
    """Refuse what a model says in place of a summary; `text` is the answer without what stands around it."""
    if is_call(answer, set(tool_names([*request.messages, *request.context]).values())):
        raise SummaryRejectedError(f"summary rejected: a call of a tool, not a summary: {answer[-100:]!r}")
    if not is_in_form(text):
        prompt = system_prompt(chinese=False) + system_prompt(chinese=True)
        if is_foreign(text, material_text(request), prompt):
            raise SummaryRejectedError(
                f"summary rejected: an error or refusal, not a summary: {text[:100]!r}"
            )
        if is_next_turn(text):
            raise SummaryRejectedError(f"summary rejected: it goes on with the conversation: {text[:100]!r}")


def check_values(text: str, request: SummaryRequest) -> str:
    """Return a model's summary with ` (?)` behind each value that its material does not hold.

    Raises:
        SummaryRejectedError: these are too many: it is made up.
    """
    checked = mark_values(text, material_text(request))
    if len(checked.made_up) >= MIN_MARKED and len(checked.made_up) > MAX_MARKED_SHARE * checked.values:
        raise _MadeUpError(checked)
    return checked.text


class _MadeUpError(SummaryRejectedError):
    """Too many of a summary's values are not in its material."""

    def __init__(self, checked: Checked) -> None:
        self.values = checked.made_up
        super().__init__(
            f"summary rejected: {len(checked.made_up)} of its {checked.values} ids, paths and quotes are "
            f"not in the material, {', '.join(checked.made_up[:3])} among them"
        )


def _given(request: SummaryRequest, material: str | None) -> str:
    return "\n".join(filter(None, [material_text(request), material]))


def _without_invented_refs(text: str, request: SummaryRequest, material: str | None) -> str:
    """Take out refs that nothing names which the summariser was given: no text can be read back by them."""
    known = set(_REF.findall(_given(request, material))) if _REF.search(text) else ()
    return _REF.sub(lambda ref: ref[0] if ref[0] in known else _NO_REF, text)


def _check_says_something(text: str, reason: str) -> None:
    if not says_something(text):
        raise SummaryRejectedError(f"summary rejected: {reason}")


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


def _shorter(request: SummaryRequest, draft: _Attempt) -> SummaryRequest:
    """Return a request for a shorter version of a draft, which stands where an earlier summary would."""
    note = (
        f"The earlier summary above is your draft of this one. It takes {draft.tokens} tokens; the limit is "
        f"{request.max_tokens}. Shorten it to the limit: keep what the agent needs most, leave out the rest."
    )
    instructions = "\n".join(filter(None, [request.instructions, note]))
    return replace(request, previous=draft.text, instructions=instructions)


def _without(request: SummaryRequest, values: Sequence[str]) -> SummaryRequest:
    note = (
        "Your last summary named what the material does not hold: "
        f"{', '.join(values[:_MOST_NAMED])}. Write it again with names and values as they stand there."
    )
    return replace(request, instructions="\n".join(filter(None, [request.instructions, note])))


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
