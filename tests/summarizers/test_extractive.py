"""A summary without a model is what rules write into notes: tests of those are in `test_rules`."""

from typing import Any

import pytest

from context_compressor.messages.msg import Msg
from context_compressor.summarizers.extracts import ExtractiveSummarizer
from tests.summarizers.support import PieceCounter, assistant, call, request, result, user

counter = PieceCounter()
WORK = (
    user("Please fix parse_date in src/dates.py."),
    call("edit", "1", path="src/dates.py", old="return strptime(v)\n", new="return fromisoformat(v)\n"),
    result("1", "ok"),
    assistant("It reads ISO dates now."),
)


async def summarize(*messages: Msg, **kw: Any) -> str:
    return (await ExtractiveSummarizer(counter).summarize(request(*messages, **kw))).text


async def test_what_was_said_and_done_is_told_in_order():
    assert (await summarize(*WORK)).splitlines() == [
        "## Done",
        '- User: "Please fix parse_date in src/dates.py."',
        "- edit src/dates.py → ok | + return fromisoformat(v)",
        "- Agent: It reads ISO dates now.",
    ]


async def test_what_an_earlier_summary_says_stays():
    summary = await summarize(*WORK, previous="## Decisions\n- SQLite, since Redis was too slow.")
    assert "## Decisions\n- SQLite, since Redis was too slow." in summary
    assert "fromisoformat" in summary


@pytest.mark.parametrize("max_tokens", [0, 1, 12, 24, 48, 100])
async def test_it_is_never_longer_than_asked(max_tokens: int):
    assert counter.count_text(await summarize(*WORK, *WORK, max_tokens=max_tokens)) <= max_tokens
