import asyncio
import re
from collections.abc import Callable

import pytest

from context_compressor.errors import SummarizerError, SummarizerOverflowError
from context_compressor.messages.msg import Msg
from context_compressor.summarizers.attempts import Paid, attempt_budget
from context_compressor.summarizers.checking import summarize_checked
from context_compressor.summarizers.fallback import FallbackSummarizer
from context_compressor.summarizers.parts import CONCURRENT_CALLS, InParts
from context_compressor.summarizers.prompts import build_prompt
from context_compressor.summarizers.protocol import Summary, SummaryRequest
from tests.summarizers.support import PieceCounter, Scripted, assistant, call, request, result, segment, user

COUNTER = PieceCounter()
FRAME = COUNTER.count_text("\n".join(build_prompt(request(max_tokens=200))))
MARKER = re.compile(r"\b[A-Z]{3}\d+\b")


def prompt_tokens(asked: SummaryRequest) -> int:
    return COUNTER.count_text("\n".join(build_prompt(asked)))


class Reader:
    """A model with a window: refuses what is longer, and sums up by the markers (`ABC12`) it was shown."""

    remote = True

    def __init__(
        self,
        window: int,
        *,
        max_input_tokens: int | None = None,
        names_limit: bool = False,
        write: Callable[[SummaryRequest, str], object] | None = None,
    ) -> None:
        self.window = window
        self.max_input_tokens = max_input_tokens
        self.names_limit = names_limit
        self.write = write
        self.requests: list[SummaryRequest] = []
        self.refused = 0
        self.running = self.most_running = 0

    async def summarize(self, asked: SummaryRequest) -> Summary:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(0)
            return self._answer(asked)
        finally:
            self.running -= 1

    def _answer(self, asked: SummaryRequest) -> Summary:
        prompt = build_prompt(asked).user
        if prompt_tokens(asked) > self.window:
            self.refused += 1
            limit = self.window if self.names_limit else None
            raise SummarizerOverflowError("prompt is too long", limit_tokens=limit)
        self.requests.append(asked)
        if self.write is not None:
            answer = self.write(asked, prompt)
            if isinstance(answer, BaseException):
                raise answer
            if answer is not None:
                return Summary(text=str(answer), input_tokens=10, output_tokens=1)
        seen = sorted(set(MARKER.findall(prompt)))
        return Summary(text=f"## Facts and values\n- {' '.join(seen)}", input_tokens=10, output_tokens=1)


def history(count: int = 12, words: int = 60) -> list[Msg]:
    return [user(f"MSG{i} " + "word " * words) for i in range(count)]


def markers(text: str) -> set[str]:
    return set(MARKER.findall(text))


class TestRequestsThatFit:
    async def test_go_through_unchanged_and_uncounted(self):
        class Counting(PieceCounter):
            def count_text(self, text: str) -> int:
                raise AssertionError("counted")

        asked = request(*history(2))
        reader = Scripted("## Goal\n- fine")
        assert (await InParts(reader, Counting()).summarize(asked)).text == "## Goal\n- fine"
        assert reader.requests[0] is asked

    async def test_are_asked_whole_under_a_limit(self):
        reader = Reader(10_000, max_input_tokens=10_000)
        await InParts(reader, COUNTER).summarize(request(*history(3)))
        assert len(reader.requests) == 1

    async def test_fail_as_they_would_without_it(self):
        failure = SummarizerError("HTTP 500")
        with pytest.raises(SummarizerError) as caught:
            await InParts(Scripted(failure), COUNTER).summarize(request(*history(2)))
        assert caught.value is failure


class TestRequestsThatDoNotFit:
    @pytest.mark.parametrize(
        "known",
        [
            {"max_input_tokens": FRAME + 1_200},
            {"names_limit": True},
            {},
        ],
        ids=["limit given", "limit named", "limit unknown"],
    )
    async def test_every_message_is_read_and_no_prompt_is_too_long(self, known):
        reader = Reader(FRAME + 1_200, **known)
        asked = request(*history(60), max_tokens=200)
        summary = await InParts(reader, COUNTER).summarize(asked)
        assert markers(summary.text) == {f"MSG{i}" for i in range(60)}
        assert len(reader.requests) > 3
        if "max_input_tokens" in known:
            assert reader.refused == 0

    async def test_usage_adds_up(self):
        reader = Reader(FRAME + 400, max_input_tokens=FRAME + 400)
        summary = await InParts(reader, COUNTER).summarize(request(*history(20), max_tokens=200))
        calls = len(reader.requests)
        assert (summary.input_tokens, summary.output_tokens) == (10 * calls, calls)

    async def test_one_huge_message_is_read_to_its_end(self):
        text = "\n".join(f"LIN{i} happened" for i in range(300))
        reader = Reader(FRAME + 500, max_input_tokens=FRAME + 500)
        asked = request(call("read", "c1", path="log"), result("c1", text), max_tokens=200)
        shown: set[str] = set()
        reader.write = lambda _asked, prompt: shown.update(markers(prompt)) or "## Done\n- read a log"
        await InParts(reader, COUNTER).summarize(asked)
        assert shown == {f"LIN{i}" for i in range(300)}

    async def test_context_goes_with_every_part_and_the_earlier_summary_to_the_end(self):
        reader = Reader(FRAME + 2_000, max_input_tokens=FRAME + 2_000)
        asked = request(
            *history(40),
            max_tokens=200,
            previous="- OLD1 fact",
            context=(segment("- CTX1"), user("CTX2 please")),
            request="REQ1 now",
            instructions="Mind prices.",
        )
        summary = await InParts(reader, COUNTER).summarize(asked)
        assert all(r.instructions == "Mind prices." for r in reader.requests)
        assert all((r.context, r.request) == (asked.context, asked.request) for r in reader.requests)
        assert [r.previous for r in reader.requests if r.previous] == ["- OLD1 fact"]
        assert reader.requests[-1].previous
        assert "OLD1" in summary.text

    async def test_context_that_takes_more_than_a_fifth_of_the_room_goes_the_oldest_first(self):
        limit = FRAME + 1_200
        reader = Reader(limit, max_input_tokens=limit)
        context = tuple(user(f"CTX{n} " + "word " * 40) for n in range(9))
        asked = request(*history(20), max_tokens=200, context=context, request="REQ1")
        await InParts(reader, COUNTER).summarize(asked)
        kept = reader.requests[0].context
        assert all((r.context, r.request) == (kept, "REQ1") for r in reader.requests)
        assert kept == context[-len(kept) :]
        assert 0 < sum(COUNTER.count_messages([msg]) for msg in kept) <= 1_200 / 5

    async def test_a_huge_earlier_summary_is_summed_up_with_the_rest(self):
        reader = Reader(FRAME + 500, max_input_tokens=FRAME + 500)
        previous = "\n".join(f"- OLD{i} is a fact" for i in range(80))
        reader.write = lambda _asked, prompt: None if "MSG" in prompt else "## Done\n- OLD79 and before"
        summary = await InParts(reader, COUNTER).summarize(
            request(*history(8), max_tokens=200, previous=previous)
        )
        assert "OLD79" in summary.text
        assert {f"MSG{i}" for i in range(8)} <= markers(summary.text)

    async def test_partial_summaries_that_are_too_many_are_joined_in_steps(self):
        long = " ".join(["detail"] * 80)
        reader = Reader(FRAME + 400, max_input_tokens=FRAME + 400)
        reader.write = lambda _asked, prompt: f"## Done\n- {long} {' '.join(sorted(markers(prompt)))}"
        await InParts(reader, COUNTER).summarize(request(*history(40), max_tokens=200))
        joins = [r for r in reader.requests if r.messages[0].name == "memory"]
        assert len(joins) > 2
        assert [len(r.messages) for r in joins][-1] > 1

    async def test_a_limit_that_was_named_is_kept_in_mind(self):
        reader = Reader(FRAME + 1_200, names_limit=True)
        parts = InParts(reader, COUNTER)
        await parts.summarize(request(*history(60), max_tokens=100))
        refused = reader.refused
        assert refused
        await parts.summarize(request(*history(60), max_tokens=100))
        assert reader.refused == refused

    async def test_a_limit_that_is_named_too_large_is_not_believed(self):
        reader = Reader(FRAME + 900)
        asked = request(*history(24), max_tokens=100)
        lying = reader.summarize

        async def summarize(r: SummaryRequest) -> Summary:
            try:
                return await lying(r)
            except SummarizerOverflowError:
                raise SummarizerOverflowError("too long", limit_tokens=100_000) from None

        reader.summarize = summarize  # type: ignore[method-assign]
        summary = await InParts(reader, COUNTER).summarize(asked)
        assert markers(summary.text) == {f"MSG{i}" for i in range(24)}

    async def test_few_are_asked_at_the_same_time(self):
        reader = Reader(FRAME + 300, max_input_tokens=FRAME + 300)
        await InParts(reader, COUNTER).summarize(request(*history(40), max_tokens=100))
        assert reader.most_running == CONCURRENT_CALLS

    async def test_the_same_request_is_split_alike(self):
        def made() -> Reader:
            return Reader(FRAME + 400, max_input_tokens=FRAME + 400)

        asked = request(*history(20), max_tokens=200)
        first, second = made(), made()
        assert await InParts(first, COUNTER).summarize(asked) == await InParts(second, COUNTER).summarize(
            asked
        )
        assert sorted(map(prompt_tokens, first.requests)) == sorted(map(prompt_tokens, second.requests))


class TestFailures:
    @pytest.mark.parametrize(
        ("answer", "cause"),
        [
            ("", "says nothing"),
            ("Error: no", "an error or refusal"),
            ("<think>hm</think>", "says nothing"),
            (SummarizerError("scripted: HTTP 500"), "HTTP 500"),
            (RuntimeError("boom"), "boom"),
        ],
    )
    async def test_a_part_that_fails_fails_the_whole_and_is_named(self, answer, cause: str):
        reader = Reader(FRAME + 400, max_input_tokens=FRAME + 400)
        reader.write = lambda _asked, prompt: answer if "MSG7 " in prompt else None
        with pytest.raises(SummarizerError, match=rf"part \d+ of \d+: .*{cause}"):
            await InParts(reader, COUNTER).summarize(request(*history(20), max_tokens=200))

    async def test_what_the_others_cost_is_noted(self):
        reader = Reader(FRAME + 400, max_input_tokens=FRAME + 400)
        reader.write = lambda _asked, prompt: SummarizerError("down") if "MSG19 " in prompt else None
        with attempt_budget(100) as budget, pytest.raises(SummarizerError, match="down"):
            await InParts(reader, COUNTER).summarize(request(*history(20), max_tokens=200))
        given = len(reader.requests) - 1
        assert budget.take_unused() == Paid(10 * given, given)
        assert given > 0
        assert budget.take_unused() == Paid()

    async def test_a_part_that_is_repeated_is_refused(self):
        reader = Reader(FRAME + 900, max_input_tokens=FRAME + 900)
        reader.write = lambda asked, _prompt: "\n".join(m.get_text_content() for m in asked.messages)
        with pytest.raises(SummarizerError, match=r"part 1 of \d+: .*repeats the material"):
            await InParts(reader, COUNTER).summarize(request(*history(20), max_tokens=200))

    async def test_the_others_are_cancelled(self):
        hanging: list[str] = []
        cancelled: list[str] = []
        others = asyncio.Event()

        class Hanging(Reader):
            async def summarize(self, asked: SummaryRequest) -> Summary:
                name = asked.messages[0].content[:4]
                if name == "MSG0":
                    await others.wait()
                    raise SummarizerError("down")
                hanging.append(name)
                if len(hanging) == CONCURRENT_CALLS - 1:
                    others.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(name)
                    raise
                raise AssertionError

        with pytest.raises(SummarizerError, match=r"part 1 of \d+: down"):
            await InParts(Hanging(0, max_input_tokens=FRAME + 300), COUNTER).summarize(request(*history(20)))
        assert sorted(cancelled) == sorted(hanging)

    async def test_cancellation_leaves_nothing_running(self):
        started = asyncio.Event()

        class Hanging(Reader):
            async def summarize(self, asked: SummaryRequest) -> Summary:
                started.set()
                await asyncio.Event().wait()
                raise AssertionError

        parts = InParts(Hanging(0, max_input_tokens=FRAME + 300), COUNTER)
        task = asyncio.create_task(parts.summarize(request(*history(20))))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def test_a_window_too_small_for_anything_is_an_error_after_few_calls(self):
        reader = Reader(0)
        with pytest.raises(SummarizerError) as caught:
            await InParts(reader, COUNTER).summarize(request(*history(20), max_tokens=200))
        assert not isinstance(caught.value, SummarizerOverflowError)
        assert reader.refused < 10

    async def test_a_limit_too_small_for_anything_says_so_without_a_call(self):
        reader = Reader(0, max_input_tokens=100)
        with pytest.raises(SummarizerError, match=r"Reader reads 100 tokens, of which its task takes \d+"):
            await InParts(reader, COUNTER).summarize(request(*history(2)))
        assert reader.refused == 0


class TestTogether:
    async def test_a_checked_summary_of_parts_is_not_made_twice(self):
        reader = Reader(FRAME + 400, max_input_tokens=FRAME + 400)
        last = []

        def write(asked: SummaryRequest, _prompt: str):
            if asked.messages[0].name == "memory":
                last.append(asked)
                return "## Done\n" + "- more and more\n" * 200
            return None

        reader.write = write
        asked = request(*history(20), max_tokens=100)
        summary = await summarize_checked(InParts(reader, COUNTER), asked, COUNTER, replaced_tokens=9_000)
        assert COUNTER.count_text(summary.text) <= 100
        parts = [r for r in reader.requests if r not in last]
        assert len(parts) == len({id(r.messages[0]) for r in parts})

    async def test_a_fallback_chain_gives_each_member_what_it_reads(self):
        small = Reader(FRAME + 400, max_input_tokens=FRAME + 400)
        chain = FallbackSummarizer(Scripted(SummarizerError("down")), small, counter=COUNTER)
        summary = await chain.summarize(request(*history(20), max_tokens=200))
        assert markers(summary.text) == {f"MSG{i}" for i in range(20)}

    async def test_failures_bear_the_name_of_the_summariser_within(self):
        chain = FallbackSummarizer(Scripted(RuntimeError("a")), Scripted(RuntimeError("b")), counter=COUNTER)
        with pytest.raises(SummarizerError, match=r"Scripted: Scripted failed: RuntimeError: a"):
            await chain.summarize(request(*history(2)))

    async def test_more_parts_than_attempts_are_not_begun(self):
        reader = Reader(FRAME + 300, max_input_tokens=FRAME + 300)
        with (
            attempt_budget(3),
            pytest.raises(SummarizerError, match=r"\d+ parts to summarise, and 3 attempts"),
        ):
            await InParts(reader, COUNTER).summarize(request(*history(40), max_tokens=100))
        assert reader.requests == []

    async def test_an_earlier_summary_among_the_messages_may_be_carried_forward(self):
        kept = "- the order W1 is open\n" * 30
        reader = Reader(FRAME + 900, max_input_tokens=FRAME + 900)
        reader.write = lambda asked, _prompt: kept if asked.messages[0].metadata else None
        summary = await InParts(reader, COUNTER).summarize(
            request(segment(kept), *history(12), assistant("ok"), max_tokens=2_000)
        )
        assert "W1" in summary.text
