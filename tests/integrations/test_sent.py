"""What is sent is what is counted: bodies of real SDKs, by a counter that knows nothing of the library."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from context_compressor import TiktokenCounter
from context_compressor.errors import ContextOverflowError
from context_compressor.laws import anthropic_rules, chat_rules, responses_rules
from context_compressor.laws.random_anthropic import random_anthropic
from context_compressor.laws.random_chat import random_chat
from context_compressor.laws.random_responses import random_responses
from tests.support.provider_tokens import count_blocks
from tests.support.ways import WAYS

COUNTER = TiktokenCounter()
HISTORIES, MOST_TURNS = 4, 10
DRAWN = {"anthropic": random_anthropic, "chat": random_chat, "responses": random_responses}


def problems(form: str, said: list[Any], shown: list[Any]) -> list[str]:
    """Return what the provider refuses in a view of a list."""
    if form == "anthropic":
        return anthropic_rules.problems(shown, thinking=anthropic_rules.thinking_of(said))
    if form == "responses":
        return responses_rules.problems(shown, responses_rules.needs_of(said))
    return chat_rules.problems(shown, parts=chat_rules.OPENAI_PARTS)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", DRAWN)
async def test_what_is_sent_is_valid_within_the_budget_and_as_counted(form: str, way: str) -> None:
    """More of it: `python benchmarks/forms.py --form anthropic --through langchain --histories 10000`."""
    counted = sent_tokens = views = 0
    for number in range(HISTORIES):
        rng = Random(f"{form}:{number}")
        history = DRAWN[form](rng, MOST_TURNS)
        budget = rng.randrange(1_000, 6_000)
        try:
            sent = await WAYS[way](form, budget, COUNTER).send(history)
        except ContextOverflowError:
            continue
        said = history if sent.said is None else sent.said
        found = problems(form, said, sent.messages)
        # What a framework spoils by itself is no view's fault.
        assert not found or problems(form, said, said), (number, found)
        theirs = count_blocks(sent.messages, sent.system)
        assert theirs <= budget, number
        views, counted, sent_tokens = views + 1, counted + sent.counted, sent_tokens + theirs
    assert views
    # Pydantic AI leaves out what stands before a compaction, and that is counted.
    assert (0.5 if way == "pydantic-ai" else 0.9) * counted <= sent_tokens <= 1.1 * counted
