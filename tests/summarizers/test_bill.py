"""What one event may send to models, and what of it is counted."""

from contextlib import suppress
from dataclasses import replace

import pytest

from context_compressor.errors import SummarizerError
from context_compressor.summarizers.bill import Bill, take_attempt
from context_compressor.summarizers.notes import Notes
from context_compressor.summarizers.openai import OpenAISummarizer
from context_compressor.summarizers.protocol import Summary, SummaryRequest, UnaskedError
from context_compressor.summarizers.writers import NotesWriter
from tests.summarizers.support import PieceCounter, Scripted, request, user
from tests.support.model_server import ModelServer, completion, status

GOOD = "## Goal\n- fix parse_date"
ASKED = request(user("Please fix parse_date in src/utils/dates.py. " * 20), max_tokens=80)


async def write(summarizer, bill: Bill, asked=ASKED, piece_tokens=None):
    writer = NotesWriter(summarizer, PieceCounter(), None, piece_tokens)
    return await writer.write(replace(asked, bill=bill), Notes())


def model(server: ModelServer, **kw) -> OpenAISummarizer:
    return OpenAISummarizer("scripted", base_url=server.url, api_key="none", backoff_seconds=0.0, **kw)


class Handing:
    """A summariser of a user's own that hands the request on to a model."""

    remote = True

    def __init__(self, asked: OpenAISummarizer) -> None:
        self._asked = asked

    async def summarize(self, request: SummaryRequest) -> Summary:
        return await self._asked.summarize(request)


async def test_who_finds_none_left_says_why_the_last_failed(server: ModelServer):
    server.script(status(500))
    bill = Bill(2)
    with pytest.raises(SummarizerError, match="HTTP 500"):
        await write(model(server, max_retries=5), bill)
    with pytest.raises(SummarizerError, match=r"the 2 attempts .* used up; the last .*HTTP 500"):
        await write(model(server), bill)
    assert bill.calls == len(server.requests) == 2


@pytest.mark.parametrize("kind", [lambda one: one, Handing], ids=["itself", "handed on"])
async def test_what_a_provider_sends_is_counted_once_each(server: ModelServer, kind):
    refused = status(400, "Unsupported parameter: max_tokens", param="max_tokens")
    server.script(refused, status(500), completion(GOOD))
    bill = Bill(5)
    await write(kind(model(server)), bill)
    assert bill.calls == len(server.requests) == 3


async def test_a_summariser_that_knows_nothing_of_it_is_counted_once_a_call():
    bill, summarizer = Bill(1), Scripted(GOOD)
    await write(summarizer, bill)
    with pytest.raises(SummarizerError, match="used up"):
        await write(summarizer, bill)
    assert (bill.calls, len(summarizer.requests)) == (1, 1)


@pytest.mark.parametrize("summarizer", [Scripted(GOOD, remote=False), Scripted(UnaskedError("no request"))])
async def test_what_reaches_no_model_is_not_counted(summarizer: Scripted):
    bill = Bill(1)
    with suppress(UnaskedError):
        await write(summarizer, bill)
    assert bill.calls == 0
    assert len(summarizer.requests) == 1


async def test_a_second_answer_costs_one_and_is_done_without():
    summarizer = Scripted(GOOD + "\n- more" * 100, edits=True)
    written = await write(summarizer, Bill(1))
    assert len(summarizer.requests) == 1
    assert PieceCounter().count_text(written.notes.text()) <= 80


async def test_pieces_draw_from_it_too(server: ModelServer):
    asked = request(*(user(f"MSG{i} " + "word " * 200) for i in range(20)), max_tokens=100)
    server.script(completion(GOOD), completion(GOOD), status(500))
    bill = Bill(8)
    with pytest.raises(SummarizerError, match="HTTP 500"):
        await write(model(server, max_retries=2), bill, asked, 1_000)
    assert len(server.requests) == bill.calls == 5


def test_who_still_takes_from_no_bill_is_told():
    with pytest.warns(DeprecationWarning, match=r"request\.bill\.take\(\)"):
        take_attempt()
