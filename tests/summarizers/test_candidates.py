"""Which lines an extractive summary prefers."""

from __future__ import annotations

from context_compressor.messages.msg import Msg
from context_compressor.summarizers.extractive import ExtractiveSummarizer
from context_compressor.summarizers.sections import parse_sections
from tests.summarizers.support import PieceCounter, assistant, call, request, result, user

GOAL = user("Please plan a trip to the mountains for the five of us, in the first week of May.")


async def summarize(*messages: Msg, max_tokens: int = 400) -> str:
    wanted = request(*messages, max_tokens=max_tokens)
    return (await ExtractiveSummarizer(PieceCounter()).summarize(wanted)).text


async def sections(*messages: Msg, max_tokens: int = 400) -> dict[str, list[str]]:
    return parse_sections(await summarize(*messages, max_tokens=max_tokens))


async def test_what_shall_hold_is_preferred_to_what_was_asked_later():
    asked = [user(f"And what is there to see on day {n} of the trip to the mountains?") for n in range(40)]
    wish = user("From now on only book hotels that can be cancelled.")
    found = await sections(GOAL, wish, *asked, max_tokens=100)
    assert wish.content in found["instructions"]


async def test_a_request_that_is_said_again_is_told_once():
    again = "Please proceed to the next step using your best judgement."
    assert (await summarize(user(again), assistant("I will."), user(again))).count(again) == 1


async def test_the_last_failure_is_preferred_to_what_succeeded_before_and_after():
    ran = [
        msg for i in range(30) for msg in (call("sh", f"{i}", command=f"job {i} of it"), result(f"{i}", "7"))
    ]
    failure = (call("sh", "f", command="deploy it"), result("f", "Error: forbidden"))
    found = await sections(*ran[:30], *failure, *ran[30:], max_tokens=60)
    assert "sh: deploy it → Error: forbidden" in found["done"]


async def test_of_a_call_that_is_cut_the_outcome_stays_apart_from_the_arguments():
    long = " ".join(f"word{n}" for n in range(30))
    messages = (call("update", "1", text=f"cabin economy {long}"), result("1", f"cabin business {long}"))
    for max_tokens in range(40, 120, 10):
        [line] = (await sections(*messages, max_tokens=max_tokens)).get("done", ["→"])
        assert "→" in line
