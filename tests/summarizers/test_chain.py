"""Summarisers made of writers: one after the other, and rules alone."""

import asyncio

import pytest

from context_compressor.errors import InvalidArgumentError, SummarizerError
from context_compressor.summarizers.chain import ExtractiveSummarizer, FallbackSummarizer
from tests.summarizers.support import Acting, PieceCounter, Scripted, assistant, call, request, result, user

ASKED = request(user("Please fix parse_date in src/utils/dates.py. " * 20), max_tokens=80)
GOOD = "## Goal\n- fix parse_date"
counter = PieceCounter()


def chain(*summarizers, **kw) -> FallbackSummarizer:
    return FallbackSummarizer(*summarizers, counter=counter, **kw)


async def test_the_first_good_summary_is_returned_and_nobody_else_is_asked():
    second = Scripted(GOOD)
    summary = await chain(Scripted("## Goal\n- first"), second).summarize(ASKED)
    assert summary.text == "## Goal\n- first"
    assert summary.input_tokens > 0
    assert summary.output_tokens > 0
    assert second.requests == []


@pytest.mark.parametrize("bad", [RuntimeError("down"), "", "Error: no", None])
async def test_a_failure_or_unusable_summary_leads_to_the_next_and_is_noted(bad: object):
    asked = request(*ASKED.messages, max_tokens=80)
    inner = chain(Scripted(bad), Scripted(bad))
    assert (await chain(inner, Scripted(GOOD)).summarize(asked)).text == GOOD
    assert [failure.partition(":")[0] for failure in asked.bill.passed_over] == ["Scripted"] * 2


async def test_edits_of_notes_are_made_and_what_was_said_before_stays():
    asked = request(*ASKED.messages, max_tokens=80, previous="## Goal\n- ship it\n## Done\n- a.py")
    summary = await chain(Scripted("~1 ship v2", edits=True), Scripted(GOOD)).summarize(asked)
    assert summary.text == "## Goal\n- ship v2\n\n## Done\n- a.py"


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


WORK = (
    user("Please fix parse_date in src/dates.py."),
    call("edit", "1", path="src/dates.py", old="return strptime(v)\n", new="return fromisoformat(v)\n"),
    result("1", "ok"),
    assistant("It reads ISO dates now."),
)


async def test_without_a_model_what_was_said_and_done_is_told_behind_what_was_told_before():
    asked = request(*WORK, previous="## Decisions\n- SQLite, since Redis was too slow.")
    assert (await ExtractiveSummarizer(counter).summarize(asked)).text.splitlines() == [
        "## Decisions",
        "- SQLite, since Redis was too slow.",
        "",
        "## Done",
        '- User: "Please fix parse_date in src/dates.py."',
        "- edit src/dates.py → ok | + return fromisoformat(v)",
        "- Agent: It reads ISO dates now.",
    ]


@pytest.mark.parametrize("max_tokens", [0, 1, 12, 24, 48, 100])
async def test_without_a_model_it_is_never_longer_than_asked(max_tokens: int):
    asked = request(*WORK, *WORK, max_tokens=max_tokens)
    assert counter.count_text((await ExtractiveSummarizer(counter).summarize(asked)).text) <= max_tokens
