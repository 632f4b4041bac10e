"""Writing notes: one writer is asked for one part, in pieces one after the other where it is long."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil, inf
from types import MappingProxyType
from typing import NamedTuple

from context_compressor.errors import (
    SummarizerError,
    SummarizerOverflowError,
    SummarizerTimeoutError,
    SummaryRejectedError,
)
from context_compressor.messages.msg import Msg, is_segment, is_staying, segment_metadata
from context_compressor.messages.prose import QUOTES
from context_compressor.messages.speech import quotes_prose
from context_compressor.messages.text import indent_lines
from context_compressor.summarizers.bill import Paid
from context_compressor.summarizers.check import MadeUpError, check_summary, check_values
from context_compressor.summarizers.cut import cut_to_tokens
from context_compressor.summarizers.notes import Faulty, Notes
from context_compressor.summarizers.pieces import split_messages
from context_compressor.summarizers.prompts import build_in_place, build_prompt, material_text
from context_compressor.summarizers.protocol import (
    RULES,
    CountingSummarizer,
    Departure,
    InPlaceSummarizer,
    NotInPlaceError,
    Summarizer,
    Summary,
    SummaryRequest,
    UnaskedError,
    Window,
    writer_of,
)
from context_compressor.summarizers.provider import answer_room
from context_compressor.summarizers.rules.candidates import candidates_of
from context_compressor.summarizers.rules.choice import MOST_TOKENS, Heading, worded
from context_compressor.summarizers.rules.lines import (
    GAP,
    LABELS,
    fold_stretches,
    kept,
    notes_by_rules,
    stretches_of,
)
from context_compressor.summarizers.rules.steps import Source
from context_compressor.summarizers.sections import is_chinese, is_placeholder
from context_compressor.summarizers.values import MARK, Shown, unmarked
from context_compressor.tokens.calibration import MAX_RATIO, Calibration
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.off_loop import run_off_loop, run_rules_off_loop, text_characters

logger = logging.getLogger(__name__)

LEAST_SHARE = 1 / 4
"""So much of the room rules have beside what a model wrote, if they have as much to tell; and so much has a
text that is added to notes which fill it."""
MIN_ROOM_TOKENS = 128
"""In smaller pieces the task would take more room than the messages."""
FILL = 0.9
"""How much of a limit is used: the model's vocabulary is not our counter's."""
_MOST_RATIO = 4
"""What a report may say of a prompt's tokens; what others add to it on the way is in it."""
_CHAT_TOKENS = 16
_LEAST_ROOM = 64
_MADE_UP = (
    "Nothing of your last answer was taken, for it named what the material does not hold: {values}. "
    "Answer anew, with names and values as they stand there."
)
_FAULTY = (
    "Of your last answer these could not be made; all else is made, and stands in the notes above. Answer "
    "with these alone, mended:\n{faults}"
)
_TOO_LONG = (
    "With your last edits, which are made, the notes are {excess} tokens too long. Shorten and drop lines, "
    "by edits, until they fit: what matters least for going on."
)
"""In the memory's voice. What a writer said is quoted below, indented as all that was said."""
_MOST_NAMED, _MOST_TOLD = 30, 300
_NO_QUOTES = str.maketrans("", "", QUOTES)
"""A quote without its marks."""
_CANCELLATION_GRACE_SECONDS = 0.5
"""How long a summariser that was cancelled is waited for."""
_BETWEEN = "\n\n"
"""What stands between lines that are checked together; no line holds it."""


@dataclass(frozen=True, slots=True)
class Written:
    """Notes that somebody wrote, and what that took."""

    notes: Notes
    paid: Paid
    remote: bool
    by: str
    """Who it was, as logs call it."""
    in_place: bool = False
    """Whether it was the agent's own model, behind its last request."""


class InPlace(NamedTuple):
    """What a model is asked that has all of it before its eyes."""

    request: SummaryRequest
    """What it sees; only what is no message goes out."""
    departure: Departure


class _Scale:
    """Reckon what prompts of one kind take by a provider's count, from those that it counted.

    Args:
        is_unlike: whether they may cost more than what else it counted, up to `MAX_RATIO` times as much.

    Attributes:
        ratio: tokens of the provider's per token of ours, in what else it counted.
    """

    def __init__(self, *, is_unlike: bool) -> None:
        self.is_unlike, self.ratio = is_unlike, 1.0
        self._counted = Calibration()

    def learn(self, ours: int, theirs: int) -> None:
        """Note what the provider counted; what cannot be is bounded."""
        self._counted.record_usage(ours, min(theirs, _MOST_RATIO * ours))

    def reckon(self, ours: int) -> int:
        """Return what is likely: all of these is counted here, so they cost in proportion."""
        found = self._counted.nearest(ours)
        return ceil(ours * max(1.0, self.ratio if found is None else found[1] / found[0]) / FILL)

    def reckon_most(self, ours: int) -> int:
        """Return what it may be."""
        unlike = ceil(MAX_RATIO * self.ratio * ours) if self.is_unlike else 0
        return max(self.reckon(ours), self._counted.expected(ours) or unlike)

    def most(self, limit: int) -> int:
        """Return how many tokens of ours likely take no more than `limit`."""
        return max(0, bisect_right(range(limit + 1), limit, key=self.reckon) - 1)


class _Behind:
    """Asks the agent's own model behind its last request.

    Args:
        own: the model.
        departure: what leaves.
        counter: measures.
        scale: what messages of ours cost there, and learns it.
        window: the model's.
        refused_tokens: what was refused as too long; None: nothing was.

    Attributes:
        asked_tokens: what it was asked last took, its room to answer included.
    """

    remote = True

    def __init__(
        self,
        own: InPlaceSummarizer,
        departure: Departure,
        counter: TokenCounter,
        scale: _Scale,
        window: Window,
        refused_tokens: int | None,
    ) -> None:
        self.asked_tokens = 0
        self._own = own
        self._departure, self._counter = departure, counter
        self._scale, self._window = scale, window
        self._refused_tokens = refused_tokens

    async def summarize(self, request: SummaryRequest) -> Summary:
        """Return its edits.

        Raises:
            NotInPlaceError: they find no room, or as `OwnModel.in_place`.
        """
        text = await run_off_loop(
            text_characters(request.messages), build_in_place, request, self._departure, self._counter
        )
        room, sent, scale = answer_room(request.max_tokens), self._window.sent_tokens, self._scale
        tokens, before = self._counter.count_text(text), self._departure.before_tokens
        self.asked_tokens = before + tokens + room
        likely = least = inf if self._refused_tokens is None else self._refused_tokens - 1 - before - tokens
        if self._window.tokens is not None:
            free = self._window.tokens - (scale.reckon(before) if sent is None else sent)
            likely = min(likely, free - scale.reckon(tokens))
            least = min(least, free - scale.reckon_most(tokens))
        if likely < room:
            raise NotInPlaceError(f"an answer needs {room} tokens, the last request leaves {likely}")
        left = None if least == inf else max(room, int(least))
        summary = await self._own.in_place(text, room, request.bill, left)
        if sent is not None:
            scale.learn(tokens, _reported(summary, "input_tokens") - sent)
        return summary


class NotesWriter:
    """Ask one summariser to bring notes up to date.

    One with `writes_edits` answers with edits; one with `rewrites_notes` with a text that replaces all lines.
    What another writes is added behind them, which it reads as what stays in the view. What is more than it
    reads, by `max_input_tokens`, by `piece_tokens` or by its `SummarizerOverflowError`, it is given in
    pieces, one after the other.

    Args:
        summarizer: who is asked.
        counter: measures.
        timeout_seconds: for one part; None waits for ever.
        piece_tokens: what one request may hold of what leaves; None: no bound.
    """

    def __init__(
        self,
        summarizer: Summarizer,
        counter: TokenCounter,
        timeout_seconds: float | None,
        piece_tokens: int | None = None,
    ) -> None:
        self.summarizer = summarizer
        self.remote = summarizer.remote
        self.name, self.kind = writer_of(summarizer), type(summarizer).__name__
        self._counter = counter
        self._timeout_seconds = timeout_seconds
        self._piece_tokens = piece_tokens
        self._named_limit: int | None = None
        self._apart, self._behind = _Scale(is_unlike=False), _Scale(is_unlike=True)
        self._refused_tokens: int | None = None
        self._edits = bool(getattr(summarizer, "writes_edits", False))
        self._rewrites = bool(getattr(summarizer, "rewrites_notes", False))
        if isinstance(summarizer, CountingSummarizer) and summarizer.counter is None:
            summarizer.counter = counter

    async def write(
        self,
        request: SummaryRequest,
        notes: Notes,
        *,
        read_tokens: int = 0,
        in_place: InPlace | None = None,
        window: Window = Window(),  # noqa: B008  # immutable
    ) -> Written:
        """Return the notes after a request, in at most `request.max_tokens` tokens.

        Args:
            request: what leaves, and what explains it. Its `previous` is filled in here.
            notes: so far.
            read_tokens: what to report as read where the summariser reports nothing.
            in_place: what is asked first, behind the agent's last request; where that is not possible, or is
                refused, the request is made apart.
            window: of the agent's own model; others have `max_input_tokens`.

        Raises:
            SummarizerError: it failed; what it was paid for stands on the request's bill.
        """
        loop = asyncio.get_running_loop()
        deadline = None if self._timeout_seconds is None else loop.time() + self._timeout_seconds
        if isinstance(self.summarizer, InPlaceSummarizer):
            self._heed(window)
        if in_place is not None and isinstance(self.summarizer, InPlaceSummarizer):
            known = window._replace(tokens=self._named_limit)
            behind = _Behind(
                self.summarizer,
                in_place.departure,
                self._counter,
                self._behind,
                known,
                self._refused_tokens,
            )
            try:
                return await self._write_in_place(behind, in_place.request, notes, deadline, read_tokens)
            except NotInPlaceError as error:
                logger.debug("notes are written apart: %s", error)
            except SummarizerTimeoutError:
                raise  # there is no time for another request
            except SummarizerError as error:
                request.bill.passed_over.append(f"in place: {error}")
        characters = max(1, text_characters(request.messages, inf))
        with request.bill.paying(remote=self.remote) as paid:
            todo = await self._pieces(request, notes)
            shows_context = True
            while todo:
                asked = replace(request, messages=todo[0])
                # What stays is newer than all that leaves.
                if len(todo) > 1 or not shows_context or not await self._fits(asked, notes):
                    asked = replace(asked, context=())
                    if not await self._fits(asked, notes):  # notes have grown
                        rest = (*chain.from_iterable(todo),)
                        todo = await self._pieces(replace(request, messages=rest), notes)
                        asked = replace(asked, messages=todo[0])
                piece = todo.pop(0)
                read = read_tokens * text_characters(piece, inf) // characters
                job = _Job(self.summarizer, paid, deadline, read)
                try:
                    notes = await self._write(job, asked, notes, len(todo) + 1)
                except SummarizerOverflowError as error:
                    smaller = await self._smaller(asked, notes, error)
                    todo, shows_context = [*smaller, *todo], shows_context and not asked.context
        notes = notes.taken_over() if self._edits or self._rewrites else notes
        return Written(notes, paid, self.remote, self.name)

    async def _write_in_place(
        self, behind: _Behind, asked: SummaryRequest, notes: Notes, deadline: float | None, read_tokens: int
    ) -> Written:
        try:
            with asked.bill.paying() as paid:
                told = await self._write(_Job(behind, paid, deadline, read_tokens), asked, notes, 1)
        except SummarizerOverflowError as error:
            self._refused_tokens = min(behind.asked_tokens, self._refused_tokens or behind.asked_tokens)
            self._note_limit(error.limit_tokens)
            raise
        return Written(told.taken_over(), paid, self.remote, self.name, in_place=True)

    # Pieces

    def _limit(self, max_tokens: int) -> int | None:
        """Return how many tokens may be sent, None when that is not known."""
        known: int | None = getattr(self.summarizer, "max_input_tokens", None)
        named = None if self._named_limit is None else _less_room(self._named_limit, max_tokens)
        return min((tokens for tokens in (known, named) if tokens is not None), default=None)

    def _heed(self, window: Window) -> None:
        self._note_limit(window.tokens)
        self._apart.ratio = self._behind.ratio = window.ratio

    def _note_limit(self, limit: int | None) -> None:
        limits = (self._named_limit, limit)
        self._named_limit = min((tokens for tokens in limits if tokens is not None), default=None)

    async def _fits(self, request: SummaryRequest, notes: Notes) -> bool:
        """Tell whether a request may be sent, as far as that is known."""
        limit = self._limit(request.max_tokens)
        return limit is None or self._apart.reckon(await self._count(self._shown(request, notes))) <= limit

    async def _pieces(self, request: SummaryRequest, notes: Notes) -> list[tuple[Msg, ...]]:
        """Return what is asked one after the other.

        Raises:
            SummarizerError: these are more than there are attempts left, or none can be made.
        """
        limit, room = self._limit(request.max_tokens), self._piece_tokens
        if limit is not None and not await self._fits(request, notes):
            alone = replace(request, context=())
            left = await self._room(alone, notes, limit)
            # The last piece comes with what stays, where that takes less than half of its room.
            frames = [await self._count(replace(one, messages=())) for one in (request, alone)]
            beside = frames[0] - frames[1]
            left -= beside if 2 * beside < left else 0
            room = left if room is None else min(room, left)
        if room is None:
            return [request.messages]
        pieces = await asyncio.to_thread(split_messages, request.messages, room, self._counter)
        attempts = request.bill.left
        if self.remote and len(pieces) > attempts:
            raise SummarizerError(
                f"{len(pieces)} pieces to note, and {attempts} attempts of this event are left"
            )
        return pieces

    async def _smaller(
        self, request: SummaryRequest, notes: Notes, error: SummarizerOverflowError
    ) -> list[tuple[Msg, ...]]:
        """Return smaller pieces of one that was too long.

        Raises:
            SummarizerError: it cannot be smaller.
        """
        self._apart.is_unlike = True
        alone = replace(request, context=())
        frame = await self._count(self._shown(replace(alone, messages=()), notes))
        whole = await self._count(self._shown(alone, notes)) - frame
        limit, smaller, fits_alone = error.limit_tokens, whole // 2, True
        if limit is not None:
            self._note_limit(limit)
            limit = _less_room(limit, request.max_tokens)
            # Where it fitted by our counter, theirs counts more, and we know no limit.
            if limit < self._apart.reckon(await self._count(self._shown(request, notes))):
                room = await self._room(alone, notes, limit)
                smaller, fits_alone = min(room, smaller), whole <= room
        if request.context and fits_alone:
            return [request.messages]
        if smaller < MIN_ROOM_TOKENS:
            raise SummarizerError(f"still too long with {whole} tokens of messages: {error}") from error
        return await asyncio.to_thread(split_messages, request.messages, smaller, self._counter)

    async def _count(self, request: SummaryRequest) -> int:
        def count() -> int:
            prompt = build_prompt(request, self._counter)
            return sum(map(self._counter.count_text, prompt)) + _CHAT_TOKENS

        return await run_off_loop(text_characters(request.messages), count)

    async def _room(self, request: SummaryRequest, notes: Notes, limit: int) -> int:
        """Return how many tokens of messages a prompt of at most `limit` tokens holds beside the notes.

        Raises:
            SummarizerError: too few, whatever the notes take.
        """
        frame = await self._count(replace(request, messages=()))
        room = self._apart.most(limit) - frame
        if room < MIN_ROOM_TOKENS:
            raise SummarizerError(
                f"{self.kind} reads {limit} tokens, of which its task takes {frame} and "
                f"leaves {max(0, room)}; pieces need at least {MIN_ROOM_TOKENS}"
            )
        return max(MIN_ROOM_TOKENS, room - self._tokens(notes))

    def _shown(self, request: SummaryRequest, notes: Notes) -> SummaryRequest:
        """Return a request that shows the notes as this writer reads them."""
        text = notes.text(numbered=self._edits)
        if self._edits or self._rewrites or not text:
            return replace(request, previous=text or None)
        seen = Msg("memory", text, "user", segment_metadata(), timestamp="", id="")
        return replace(request, context=(seen, *request.context))

    # One piece

    def _tokens(self, notes: Notes) -> int:
        return self._counter.count_text(notes.text())

    async def _write(self, job: _Job, request: SummaryRequest, notes: Notes, pieces: int) -> Notes:
        """Return the notes after one piece, the first of so many that are left."""
        room, newest = request.max_tokens, None
        if not (self._edits or self._rewrites):
            newest = notes.next_number
            share = int(max(room - self._tokens(notes), LEAST_SHARE * room)) // pieces
            request = replace(request, max_tokens=max(share, min(room, _LEAST_ROOM)))
        try:
            told, faults = await self._ask(job, request, notes)
        except MadeUpError as error:
            named = ", ".join(error.values[:_MOST_NAMED])
            repair = _Repair(_MADE_UP.format(values=named), rereads=True)
            told, faults = await self._ask(job, request, notes, repair)
        if faults:
            said = "\n".join(map(str, faults))
            # What is no edit at all can only be written anew.
            repair = _Repair(
                _FAULTY.format(faults=indent_lines(said)), not any(one.is_edit for one in faults)
            )
            told = await self._mended(job, request, told, repair)
            if told == notes:
                raise SummaryRejectedError(
                    f"summary rejected: none of its edits could be made: {said[:_MOST_TOLD]}"
                )
        tokens = self._tokens(told)
        if tokens > room and self._edits:
            repair = _Repair(_TOO_LONG.format(excess=tokens - room))
            shorter = await self._mended(job, request, told, repair)
            told = min(told, shorter, key=self._tokens)
        return await run_rules_off_loop(len(told.text()), self._fitted, told, notes, room, newest)

    async def _mended(self, job: _Job, request: SummaryRequest, notes: Notes, repair: _Repair) -> Notes:
        """Return notes after one more request; as they are where that fails."""
        try:
            return (await self._ask(job, request, notes, repair))[0]
        except SummarizerError:
            return notes  # what there is can still be cut

    async def _ask(
        self, job: _Job, request: SummaryRequest, notes: Notes, repair: _Repair | None = None
    ) -> tuple[Notes, list[Faulty]]:
        """Ask once; return the notes after the answer, and which of its edits could not be made."""
        asked = self._shown(request, notes)  # what an answer may quote: no repair, which names its faults
        sent = asked if repair is None else replace(asked, repair=repair.text)
        summarizer, rereads = job.summarizer, repair is None or repair.rereads
        if not rereads:  # no cache makes what is not sent cheaper
            summarizer, sent = self.summarizer, replace(sent, messages=(), context=())
        limit, tokens, calls = self._named_limit, 0, sent.bill.calls
        if limit is not None and summarizer is self.summarizer:
            tokens = await self._count(sent)
            sent = replace(sent, answer_tokens=max(0, limit - self._apart.reckon_most(tokens)))
        summary = await self._answer(summarizer, sent, job.left())
        if sent.messages and sent.bill.calls == calls + 1:
            self._apart.learn(tokens, _reported(summary, "input_tokens"))
        said = str(getattr(summary, "text", ""))
        size = text_characters(asked.messages) + len(said)
        read = _reported(summary, "input_tokens")
        read = read or (job.read_tokens if rereads else self._tokens(notes))
        written = _reported(summary, "output_tokens")
        try:
            return await run_rules_off_loop(size, self._after, summary, asked, sent, notes)
        finally:
            written = written or await run_off_loop(len(said), self._counter.count_text, said)
            job.paid.add(read, written, _reported(summary, "cached_tokens"))

    async def _answer(self, summarizer: Summarizer, asked: SummaryRequest, seconds: float | None) -> Summary:
        """Call a summariser in a task of its own: one that ignores its cancellation cannot hold us up."""
        bill, calls, is_unasked = asked.bill, asked.bill.calls, False
        if summarizer.remote:
            bill.check()

        async def call() -> Summary:
            return await summarizer.summarize(asked)

        task = asyncio.create_task(call())
        # Whoever has gone need not be told.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait({task}, timeout=seconds)
            if not task.done():
                raise SummarizerTimeoutError(
                    f"{self.kind} did not answer within {self._timeout_seconds} seconds"
                )
            if task.cancelled():
                # Nobody cancelled us, so this must not look as if somebody had.
                raise SummarizerError(f"{self.kind} was cancelled from within")
            return task.result()
        except SummarizerError as error:
            is_unasked = isinstance(error, UnaskedError)
            raise
        except TimeoutError as error:
            raise SummarizerTimeoutError(f"{self.kind} timed out: {_brief(error)}") from error
        except Exception as error:
            raise SummarizerError(f"{self.kind} failed: {_brief(error)}") from error
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_CANCELLATION_GRACE_SECONDS)
            if summarizer.remote and bill.calls == calls and not is_unasked:
                bill.calls += 1  # it does not take them itself

    def _after(
        self,
        summary: Summary,
        asked: SummaryRequest,
        sent: SummaryRequest,
        notes: Notes,
    ) -> tuple[Notes, list[Faulty]]:
        quotes = getattr(self.summarizer, "quotes", False)
        text = check_summary(summary, asked, by_model=self.remote, quotes=quotes, sent=sent)
        faults: list[Faulty] = []
        if self._edits:
            told, faults = notes.edited(text)
        elif self._rewrites:
            told = notes.replaced(text)
        else:
            told = notes.added(self._fitted(Notes().added(text), Notes(), asked.max_tokens).text())
        told = _with_rules_quoted(told, notes, asked)
        return _with_marks(told, notes, asked) if self.remote else told, faults

    def _fitted(self, told: Notes, notes: Notes, room: int, newest: int | None = None) -> Notes:
        """Return as many of the lines as have room; of a single one that is too long its beginning.

        Raises:
            SummaryRejectedError: nothing is left, or nothing of what is new.
        """

        def fits(some: Notes) -> bool:
            return self._tokens(some) <= room

        fitted = told.fitted(fits, newest=newest)
        if not fitted.lines and told.lines:
            last = told.fitted(lambda some: len(some.lines) <= 1, newest=newest)
            [line] = last.lines
            left = room - self._tokens(last.with_texts({line.number: ""}))
            cut = last.with_texts({line.number: cut_to_tokens(line.text, left, self._counter)})
            fitted = cut if fits(cut) and not is_placeholder(cut.lines[0].text) else fitted
        if not fitted.lines or (told.changed_since(notes) and not fitted.changed_since(notes)):
            raise SummaryRejectedError(f"summary rejected: {room} tokens leave nothing of it")
        return fitted


@dataclass(frozen=True, slots=True)
class _Repair:
    """What is asked once more, and whether the material has to be read again for it."""

    text: str
    rereads: bool = False


@dataclass(slots=True)
class _Job:
    """What stays the same for all requests of one piece."""

    summarizer: Summarizer
    paid: Paid
    deadline: float | None
    read_tokens: int

    def left(self) -> float | None:
        """Return how many seconds there are, None for no end."""
        return None if self.deadline is None else max(0.0, self.deadline - asyncio.get_running_loop().time())


def _reported(summary: object, name: str) -> int:
    """Return tokens as a summariser reported them; 0 for anything else."""
    tokens = getattr(summary, name, 0)
    return tokens if isinstance(tokens, int) and tokens > 0 else 0


def _brief(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _with_rules_quoted(told: Notes, notes: Notes, request: SummaryRequest) -> Notes:
    """Return notes whose new lines are users' instructions only where they quote these; else they are facts.

    No page or result that asks for something gets the user's voice.
    """
    new = [line for line in told.changed_since(notes) if line.section == "instructions"]
    said = [
        Msg(msg.name, msg.content, msg.role, timestamp="", id="") if is_staying(msg) else msg
        for msg in (*request.messages, *request.context)
    ]
    # What was taken as an instruction before may be said shorter.
    held = "\n".join(line.text for line in notes.lines if line.section == "instructions")
    for words in (request.request or "", held.translate(_NO_QUOTES)):
        said.append(Msg("user", words, "user", timestamp="", id=""))
    return told.moved({line.number for line in new if not quotes_prose(line.text, said)}, "facts")


def _with_marks(told: Notes, notes: Notes, request: SummaryRequest) -> Notes:
    """Return notes with a mark behind each value of a new line that nothing shows, and none where it now is.

    Raises:
        MadeUpError: these are too many.
    """
    new, shown = told.changed_since(notes), Shown(material_text(request))
    checked = check_values(_BETWEEN.join(line.text for line in new), shown).split(_BETWEEN)
    texts = {line.number: text for line, text in zip(new, checked, strict=bool(new))}
    doubted = [line for line in told.lines if MARK in line.text and line not in new]
    texts |= {line.number: unmarked(line.text, shown) for line in doubted}
    return told.with_texts(texts)


class RulesWriter:
    """Bring notes up to date without a model: the best lines of all that left are chosen anew.

    What a model wrote stays, but for whole lines where rules would have no room beside them.

    Args:
        counter: measures.
    """

    remote = False
    name = kind = RULES

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    async def write(
        self,
        request: SummaryRequest,
        notes: Notes,
        *,
        read_tokens: int = 0,
        places: Mapping[str, int] = MappingProxyType({}),
    ) -> Written:
        """Return the notes after a request, as `NotesWriter.write` does; it does not fail.

        Args:
            request: what leaves, and what explains it.
            notes: so far.
            read_tokens: what to report as read.
            places: where messages stand in the history, by their id: what stayed for a while leaves later.
        """
        characters = text_characters(request.messages) + sum(len(one.text) for one in notes.candidates)
        told = await run_rules_off_loop(characters, self._write, request, notes, places)
        return Written(told, Paid(read_tokens, self._tokens(told)), self.remote, self.name)

    def _tokens(self, notes: Notes) -> int:
        return self._counter.count_text(notes.text())

    def _write(self, request: SummaryRequest, notes: Notes, places: Mapping[str, int]) -> Notes:
        room = request.max_tokens
        if not notes.candidates:  # what stands there cannot be chosen anew: a later part was taken back
            notes = replace(notes.taken_over(), stretches=notes.stretches)
        for msg in filter(is_segment, request.messages):  # as what a provider compacted itself
            notes = notes.added(msg.get_text_content() or "")
        left = [msg for msg in request.messages if not (is_staying(msg) or is_segment(msg))]
        sources = _placed(left, places, notes)
        # A first long list leaves as one part, which then has all the room to itself.
        new = candidates_of(sources, self._counter, most_tokens=max(MOST_TOKENS, room))
        known = kept([*worded(notes.candidates), *new], room)
        candidates = [known.one for known in known]
        stretches = fold_stretches([*notes.stretches, *stretches_of(sources)])
        modelled = replace(notes, lines=tuple(line for line in notes.lines if line.by == "model"))
        least = min(LEAST_SHARE * room, sum(one.tokens for one in candidates))
        before = len(modelled.lines)
        modelled = modelled.fitted(lambda some: self._tokens(some) <= room - least)
        gone = before - len(modelled.lines)
        stays = {line.number for line in modelled.lines}
        notes = replace(
            notes, lines=tuple(line for line in notes.lines if line.by == "rules" or line.number in stays)
        )
        beside = [line.text for line in modelled.lines]
        beside += [line for msg in request.context for line in (msg.get_text_content() or "").splitlines()]
        language = "zh" if is_chinese([one.text for one in candidates] or beside) else "en"
        gap = f"{GAP} {gone} {LABELS[language].earlier}"
        if gone and self._tokens(modelled.added(gap)) <= room:
            notes, modelled = notes.added(gap), modelled.added(gap)
        beside_tokens = self._tokens(modelled)

        def tokens_of(lines: list[tuple[Heading, str]]) -> int:
            return self._tokens(notes.by_rules(lines, (), ())) - beside_tokens

        lines = notes_by_rules(
            known,
            room_tokens=room - beside_tokens,
            tokens_of=tokens_of,
            told=stretches,
            beside=beside,
            language=language,
        )
        return notes.by_rules(lines, candidates, stretches)


def _placed(left: Sequence[Msg], places: Mapping[str, int], notes: Notes) -> list[Source]:
    """Return messages with their places; where these are not all known, behind all that left before."""
    known = [places[msg.id] for msg in left if msg.id in places]
    if len(set(known)) < len(left):
        before = [one.place for one in notes.candidates] + [stretch.last for stretch in notes.stretches]
        known = [*range(first := max(before, default=-1) + 1, first + len(left))]
    return [Source(place, msg.id, msg) for place, msg in zip(known, left, strict=True)]


def _less_room(limit: int, max_tokens: int) -> int:
    """Return what a limit leaves for the prompt, the answer's room being part of it as a rule."""
    return max(limit - answer_room(max_tokens), limit // 2)
