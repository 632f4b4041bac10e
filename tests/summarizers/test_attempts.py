import asyncio
import sys
from contextvars import copy_context

import pytest

from context_compressor.errors import SummarizerError
from context_compressor.summarizers.attempts import attempt_budget, current_attempts, take_attempt
from context_compressor.summarizers.notes import Notes
from context_compressor.summarizers.openai import OpenAISummarizer
from context_compressor.summarizers.writing import NotesWriter
from tests.summarizers.support import PieceCounter, Scripted, request, user
from tests.support.model_server import ModelServer, completion, status

GOOD = "## Goal\n- fix parse_date"
ASKED = request(user("Please fix parse_date in src/utils/dates.py. " * 20), max_tokens=80)


async def write(summarizer, asked=ASKED, piece_tokens=None):
    return await NotesWriter(summarizer, PieceCounter(), None, piece_tokens).write(asked, Notes())


def model(server: ModelServer, **kw) -> OpenAISummarizer:
    return OpenAISummarizer("scripted", base_url=server.url, api_key="none", backoff_seconds=0.0, **kw)


def test_a_task_that_python_ends_when_its_loop_is_gone_says_nothing():
    """It is ended in the context of whoever runs then, where its budget was never set."""
    budget = attempt_budget(1)
    copy_context().run(budget.__enter__)
    budget.__exit__(None, None, None)
    assert current_attempts().limit == sys.maxsize


def test_without_a_budget_nothing_is_bounded():
    for _ in range(1_000):
        take_attempt()
    assert current_attempts().limit == sys.maxsize


def test_a_budget_is_taken_from_until_it_is_used_up():
    with attempt_budget(2) as budget:
        take_attempt()
        take_attempt()
        assert current_attempts().left == 0
        with pytest.raises(SummarizerError, match="the 2 attempts of this event are used up"):
            take_attempt()
        assert budget.taken == 2
    assert current_attempts().limit == sys.maxsize


async def test_who_finds_none_left_says_why_the_last_failed():
    async with ModelServer() as server:
        server.script(status(500))
        with attempt_budget(2):
            with pytest.raises(SummarizerError, match="HTTP 500"):
                await write(model(server, max_retries=5))
            with pytest.raises(SummarizerError, match=r"the 2 attempts .* used up; the last .*HTTP 500"):
                await write(model(server))


async def test_tasks_and_threads_share_the_budget_of_their_event_and_of_no_other():
    async def event(limit: int) -> int:
        with attempt_budget(limit) as budget:
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(asyncio.to_thread(take_attempt))
            return budget.left

    assert await asyncio.gather(event(3), event(10)) == [0, 7]


async def test_retries_of_all_calls_share_it():
    async with ModelServer() as server:
        server.script(status(500))
        with attempt_budget(4) as budget:
            for _ in range(5):
                with pytest.raises(SummarizerError):
                    await write(model(server, max_retries=2))
        assert len(server.requests) == budget.taken == 4


async def test_the_last_failure_is_told_rather_than_the_empty_budget():
    async with ModelServer() as server:
        server.script(status(503))
        with attempt_budget(2), pytest.raises(SummarizerError, match="HTTP 503"):
            await write(model(server, max_retries=9))
        assert len(server.requests) == 2


async def test_a_refused_parameter_costs_an_attempt_as_well():
    async with ModelServer() as server:
        server.script(status(400, "Unsupported parameter: max_tokens", param="max_tokens"), completion(GOOD))
        with attempt_budget(5) as budget:
            await write(model(server))
        assert budget.taken == len(server.requests) == 2


async def test_a_second_answer_costs_one_and_is_done_without():
    summarizer = Scripted(GOOD + "\n- more" * 100, edits=True)
    with attempt_budget(1):
        written = await write(summarizer)
    assert len(summarizer.requests) == 1
    assert PieceCounter().count_text(written.notes.text()) <= 80


async def test_a_summariser_that_knows_nothing_of_it_is_charged_by_the_caller_once_a_call():
    summarizer = Scripted(GOOD)
    with attempt_budget(1) as budget:
        await write(summarizer)
        assert budget.taken == 1
        with pytest.raises(SummarizerError, match="used up"):
            await write(summarizer)
    assert len(summarizer.requests) == 1


async def test_a_provider_is_not_charged_twice():
    async with ModelServer() as server:
        with attempt_budget(9) as budget:
            await write(model(server))
        assert budget.taken == len(server.requests) == 1


async def test_what_stays_in_the_process_costs_nothing():
    with attempt_budget(0):
        await write(Scripted(GOOD, remote=False))


async def test_pieces_draw_from_it_too():
    asked = request(*(user(f"MSG{i} " + "word " * 200) for i in range(20)), max_tokens=100)
    async with ModelServer() as server:
        server.script(completion(GOOD), completion(GOOD), status(500))
        with attempt_budget(8) as budget, pytest.raises(SummarizerError, match="HTTP 500"):
            await write(model(server, max_retries=2), asked, 1_000)
        assert len(server.requests) == budget.taken == 5
