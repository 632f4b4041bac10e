"""Requests of a `NotesWriter`: in pieces where they are long, in time, and what they cost when it fails."""

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from context_compressor.errors import SummarizerError, SummarizerOverflowError, SummarizerTimeoutError
from context_compressor.messages.msg import Msg
from context_compressor.summarizers import writers
from context_compressor.summarizers.bill import Bill, Paid
from context_compressor.summarizers.notes import Notes
from context_compressor.summarizers.prompts import build_prompt, render_conversation
from context_compressor.summarizers.protocol import Summary, SummaryRequest, Window
from context_compressor.summarizers.writers import NotesWriter, Written
from tests.summarizers.support import (
    Acting,
    PieceCounter,
    Scripted,
    assistant,
    call,
    request,
    result,
    segment,
    user,
)

COUNTER = PieceCounter()
FRAME = COUNTER.count_text("\n".join(build_prompt(request(max_tokens=200))))
MARKER = re.compile(r"\b[A-Z]{3}\d+\b")
NOTHING_NEW = "## Done\n- went on"


class Reader:
    """A model with a window: refuses what is longer, and notes the markers (`ABC12`) that leave."""

    remote = True

    def __init__(
        self,
        window: int,
        *,
        max_input_tokens: int | None = None,
        names_limit: int | None = None,
        edits: bool = True,
        write: Callable[[set[str]], str | BaseException | None] = lambda _: None,
    ) -> None:
        self.window, self.max_input_tokens, self.names_limit = window, max_input_tokens, names_limit
        self.writes_edits = edits
        self.write = write
        self.requests: list[SummaryRequest] = []
        self.refused = self.running = self.most_running = 0

    async def summarize(self, asked: SummaryRequest) -> Summary:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if COUNTER.count_text("\n".join(build_prompt(asked))) > self.window:
            self.refused += 1
            raise SummarizerOverflowError("prompt is too long", limit_tokens=self.names_limit)
        self.requests.append(asked)
        seen = markers(render_conversation(asked.messages))
        answer = self.write(seen) or f"## Facts and values\n+ {' '.join(sorted(seen))}"
        if isinstance(answer, BaseException):
            raise answer
        return Summary(answer, input_tokens=10, output_tokens=1)


class OwnReader(Reader):
    held: frozenset[Any] = frozenset()

    async def in_place(self, text: str, max_tokens: int, bill: Any) -> Summary:
        raise NotImplementedError


def history(count: int = 20, words: int = 60) -> list[Msg]:
    return [user(f"MSG{i} " + "word " * words) for i in range(count)]


def markers(text: str) -> set[str]:
    return set(MARKER.findall(text))


async def write(summarizer: Any, asked: SummaryRequest, notes: Notes | None = None, **kw: Any) -> Written:
    settings = {
        "timeout_seconds": kw.pop("timeout_seconds", None),
        "piece_tokens": kw.pop("piece_tokens", None),
    }
    return await NotesWriter(summarizer, COUNTER, **settings).write(asked, notes or Notes(), **kw)


class TestPieces:
    @pytest.mark.parametrize("known", [{}, {"max_input_tokens": 20_000}], ids=["no limit", "limit"])
    async def test_what_fits_is_asked_whole(self, known):
        reader = Reader(20_000, **known)
        asked = request(
            *history(3), context=(user("CTX1"),), request="REQ1", note="NOT1", instructions="Mind."
        )
        await write(reader, asked)
        assert reader.requests == [asked]

    @pytest.mark.parametrize(
        ("known", "piece_tokens"),
        [
            ({"max_input_tokens": FRAME + 1_200}, None),
            ({"names_limit": FRAME + 1_200}, None),
            ({"names_limit": 100_000}, None),
            ({}, None),
            ({}, 700),
            ({"edits": False, "max_input_tokens": FRAME + 1_200}, None),
        ],
        ids=["given", "named", "named too large", "unknown", "of a piece", "given, without edits"],
    )
    async def test_more_is_read_in_pieces_one_after_the_other_and_no_prompt_is_too_long(
        self, known, piece_tokens
    ):
        reader = Reader(FRAME + 1_200, **known)
        written = await write(reader, request(*history(40), max_tokens=400), piece_tokens=piece_tokens)
        assert markers(written.notes.text()) == {f"MSG{i}" for i in range(40)}
        assert len(reader.requests) > 3
        assert reader.most_running == 1
        assert written.paid == Paid(10 * len(reader.requests), len(reader.requests))
        assert (reader.refused == 0) == (piece_tokens is not None or "max_input_tokens" in known)

    async def test_each_goes_with_what_the_agent_asked_for_and_with_the_notes_as_they_are_by_then(self):
        reader = Reader(FRAME + 900, max_input_tokens=FRAME + 900)
        asked = request(
            *history(),
            max_tokens=300,
            context=(user("CTX1"),),
            request="REQ1",
            note="NOT1",
            instructions="Mind.",
        )
        await write(reader, asked, Notes().added("- OLD1"))
        first, *others = reader.requests
        assert first.previous == "## Done\n1: OLD1"
        seen: set[str] = set()
        for one in reader.requests:
            assert markers(one.previous or "") == {"OLD1", *seen}
            assert (one.request, one.note, one.instructions) == ("REQ1", "NOT1", "Mind.")
            assert one.context == (asked.context if one is reader.requests[-1] else ())
            seen |= markers(render_conversation(one.messages))
        assert len(others) > 1

    async def test_what_stays_in_the_view_is_left_away_before_anything_is_split(self):
        reader = Reader(FRAME + 600)
        asked = request(*history(3), max_tokens=200, context=tuple(history(20)))
        await write(reader, asked)
        assert [(one.messages, one.context) for one in reader.requests] == [(asked.messages, ())]

    async def test_one_huge_message_is_read_to_its_end(self):
        text = "\n".join(f"LIN{i} happened" for i in range(200))
        shown: set[str] = set()
        reader = Reader(FRAME + 700, max_input_tokens=FRAME + 700)
        reader.write = lambda seen: shown.update(seen) or "## Done\n+ read the log that happened"
        asked = request(call("read", "c1", path="log"), result("c1", text), max_tokens=200)
        await write(reader, asked)
        assert shown == {f"LIN{i}" for i in range(200)}

    async def test_a_limit_that_was_named_is_kept_in_mind(self):
        reader = Reader(FRAME + 1_200, names_limit=FRAME + 1_200)
        writer = NotesWriter(reader, COUNTER, None)
        first = await writer.write(request(*history(30), max_tokens=300), Notes())
        refused, asked = reader.refused, len(reader.requests)
        assert refused
        assert await writer.write(request(*history(30), max_tokens=300), Notes()) == first
        assert reader.refused == refused
        assert len(reader.requests) == 2 * asked  # the same request is split alike

    async def test_no_request_to_the_agents_own_model_is_larger_than_its_window(self):
        own, another = OwnReader(FRAME + 1_200), Reader(FRAME + 1_200)
        for reader in (own, another):
            await write(reader, request(*history(30), max_tokens=300), window=Window(FRAME + 1_200))
        assert (own.refused, len(own.requests) > 1, another.refused > 0) == (0, True, True)

    async def test_a_summary_by_a_provider_among_the_messages_may_be_carried_forward(self):
        kept = "- the order W1 is open\n" * 30
        answers = Scripted(kept, NOTHING_NEW, edits=True)
        written = await write(answers, request(segment(kept), assistant("ok"), max_tokens=2_000))
        assert "W1" in written.notes.text()


class TestFailures:
    @pytest.mark.parametrize(
        ("answer", "cause"),
        [
            ("<think>hm</think>", "says nothing"),
            ("Error: no", "an error or refusal"),
            ("[user]\n go on", "goes on with the conversation"),
            ("\n".join(str(msg.content) for msg in history()), "repeats the material"),
            (SummarizerError("HTTP 500"), "HTTP 500"),
            (KeyError("choices"), r"Reader failed: KeyError: 'choices'"),
            (TimeoutError(), "Reader timed out"),
            (asyncio.CancelledError(), "cancelled from within"),
        ],
        ids=lambda value: str(value)[:20],
    )
    async def test_one_piece_that_fails_fails_the_whole_and_what_it_took_is_noted(self, answer, cause: str):
        reader = Reader(9_000, write=lambda seen: answer if "MSG19" in seen else None)
        asked = request(*history(), max_tokens=400)
        with pytest.raises(SummarizerError, match=cause):
            await write(reader, asked, piece_tokens=500)
        answered = len(reader.requests) - isinstance(answer, BaseException)
        assert answered > 1
        assert asked.bill.remote == asked.bill.every == Paid(10 * answered, answered)

    async def test_a_window_too_small_for_anything_is_an_error_after_few_calls(self):
        reader = Reader(0)
        with pytest.raises(SummarizerError) as caught:
            await write(reader, request(*history(), max_tokens=200))
        assert not isinstance(caught.value, SummarizerOverflowError)
        assert reader.refused < 10

    async def test_a_limit_too_small_for_anything_says_so_without_a_call(self):
        reader = Reader(0, max_input_tokens=100)
        with pytest.raises(SummarizerError, match=r"Reader reads 100 tokens, of which its task takes \d+"):
            await write(reader, request(*history(2)))
        assert reader.refused == 0

    async def test_more_pieces_than_attempts_are_not_begun(self):
        reader = Reader(9_000)
        with pytest.raises(SummarizerError, match=r"\d+ pieces to note, and 3 attempts"):
            await write(reader, request(*history(), bill=Bill(3)), piece_tokens=200)
        assert reader.requests == []

    async def test_all_pieces_share_one_time(self, monkeypatch):
        """The first is answered when it is over."""
        loop, late = asyncio.get_running_loop(), 0.0
        now = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + late)

        class Slow(Reader):
            async def summarize(self, one: SummaryRequest) -> Summary:
                nonlocal late
                if late:
                    await asyncio.Event().wait()
                late = 2_000.0
                return await super().summarize(one)

        asked = request(*history())
        with pytest.raises(SummarizerTimeoutError, match="within 1000 seconds"):
            await write(Slow(9_000), asked, piece_tokens=500, timeout_seconds=1_000)
        assert asked.bill.remote == Paid(10, 1)

    async def test_the_exception_of_a_summariser_is_told_as_the_cause(self):
        for cause in (KeyError("choices"), SummarizerError("no key")):
            with pytest.raises(SummarizerError) as caught:
                await write(Scripted(cause), request(*history(2)))
            assert cause in (caught.value, caught.value.__cause__)

    async def test_one_that_is_no_coroutine_is_a_failure(self):
        class Plain:
            remote = False

            def summarize(self, _request):
                return Summary(text=NOTHING_NEW)

        with pytest.raises(SummarizerError, match="Plain failed: TypeError"):
            await write(Plain(), request(*history(2)))

    @pytest.mark.parametrize("ends", ["in time", "by us", "never"])
    async def test_one_that_hangs_is_cancelled_and_holds_nobody_up(self, ends: str, monkeypatch):
        monkeypatch.setattr(writers, "_CANCELLATION_GRACE_SECONDS", 0.01)
        started, cancelled, release = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def act(_request):
            started.set()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    cancelled.set()
                    if ends != "never":
                        raise
            raise RuntimeError("too late for anybody to hear")

        seconds = None if ends == "by us" else 0.01
        task = asyncio.create_task(write(Acting(act), request(*history(2)), timeout_seconds=seconds))
        await started.wait()
        if ends == "by us":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            with pytest.raises(SummarizerTimeoutError, match=r"Acting did not answer within 0\.01 seconds"):
                await task
        assert cancelled.is_set()
        release.set()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)


@pytest.mark.parametrize("tokens", [(0, 0), (-3, "many")])
async def test_what_is_not_reported_is_estimated_by_the_share_of_each_piece(tokens):
    answer = Summary(NOTHING_NEW, *tokens)
    written = await write(Scripted(answer), request(*history()), piece_tokens=500, read_tokens=1_000)
    assert 990 <= written.paid.input_tokens <= 1_000
    assert written.paid.output_tokens > 0


async def test_an_endless_answer_is_counted_and_cut_off_the_event_loop():
    threads = set()

    class Watching(PieceCounter):
        def count_text(self, text: str) -> int:
            if len(text) > 200_000:
                threads.add(threading.current_thread())
            return super().count_text(text)

    endless = Scripted("## Goal\n+ fix it" + "\n+ more of it" * 20_000, edits=True)
    await NotesWriter(endless, Watching(), None).write(request(*history(2), max_tokens=100), Notes())
    assert threads
    assert threading.main_thread() not in threads
