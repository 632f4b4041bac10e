import asyncio

import pytest

from context_compressor.errors import InvalidArgumentError, SummarizerError
from context_compressor.summarizers.fallback import FallbackSummarizer
from tests.summarizers.support import Acting, PieceCounter, Scripted, request, user

ASKED = request(user("Please fix parse_date in src/utils/dates.py. " * 20), max_tokens=80)
GOOD = "## Goal\n- fix parse_date"


def chain(*summarizers, **kw) -> FallbackSummarizer:
    return FallbackSummarizer(*summarizers, counter=PieceCounter(), **kw)


async def test_the_first_good_summary_is_returned_and_nobody_else_is_asked():
    second = Scripted(GOOD)
    assert (await chain(Scripted("## Goal\n- first"), second).summarize(ASKED)).text == "## Goal\n- first"
    assert second.requests == []


@pytest.mark.parametrize("bad", [RuntimeError("down"), "", "Error: no", "NONE", None])
async def test_a_failure_or_unusable_summary_leads_to_the_next(bad: object):
    assert (await chain(Scripted(bad), Scripted(bad), Scripted(GOOD)).summarize(ASKED)).text == GOOD


async def test_one_that_hangs_leads_to_the_next():
    async def hang(_request):
        await asyncio.Event().wait()

    assert (await chain(Acting(hang), Scripted(GOOD), timeout_seconds=0.01).summarize(ASKED)).text == GOOD


async def test_when_all_fail_each_failure_is_named():
    with pytest.raises(SummarizerError, match=r"all 2 .*RuntimeError: down.*says nothing"):
        await chain(Scripted(RuntimeError("down")), Scripted("")).summarize(ASKED)


@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        (
            [Scripted(GOOD), None],
            {},
            "summariser 2: a NoneType is not a Summarizer; it lacks remote, summarize",
        ),
        (
            [Scripted, Scripted(GOOD)],
            {},
            r"summariser 1: Scripted is a class; give an object, Scripted\(...\)",
        ),
        ([Scripted(GOOD), Scripted(GOOD), "gpt"], {}, "summariser 3: 'gpt' is a name"),
        ([Scripted(GOOD)] * 2, {"counter": 5}, "counter: a int is not a TokenCounter"),
        ([Scripted(GOOD)] * 2, {"timeout_seconds": 0}, "timeout_seconds: expected a number above 0, got 0"),
        ([Scripted(GOOD)] * 2, {"timeout_seconds": float("nan")}, "timeout_seconds: .* got nan"),
    ],
)
def test_what_cannot_work_is_refused_at_the_door(arguments, named, words):
    with pytest.raises(InvalidArgumentError, match=words):
        FallbackSummarizer(*arguments, **named)


async def test_tokens_are_always_set():
    summary = await chain(Scripted(""), Scripted(GOOD)).summarize(ASKED)
    assert summary.input_tokens > 0
    assert summary.output_tokens > 0


async def test_cancellation_is_no_failure():
    started = asyncio.Event()

    async def hang(_request):
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(chain(Acting(hang), Scripted(GOOD)).summarize(ASKED))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_it_is_remote_when_any_of_them_is():
    assert chain(Scripted(GOOD, remote=False), Scripted(GOOD, remote=True)).remote
    assert not chain(Scripted(GOOD, remote=False), Scripted(GOOD, remote=False)).remote


async def test_closing_closes_all_that_can_be_closed_even_when_one_fails():
    closed = []

    class Closing(Scripted):
        async def aclose(self) -> None:
            closed.append(self)
            raise RuntimeError("cannot close")

    first, last = Closing(GOOD), Closing(GOOD)
    with pytest.raises(RuntimeError, match="cannot close"):
        await chain(first, Scripted(GOOD), last).aclose()
    assert set(closed) == {first, last}
