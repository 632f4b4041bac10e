"""What is sent is what is counted: bodies of real SDKs, by a counter that knows nothing of the library."""

from __future__ import annotations

from random import Random

import pytest

from context_compressor import TiktokenCounter
from context_compressor.errors import ContextOverflowError
from tests.support import anthropic_rules, responses_rules
from tests.support.form_strategies import random_anthropic, random_responses
from tests.support.provider_tokens import count_blocks
from tests.support.ways import WAYS

COUNTER = TiktokenCounter()
HISTORIES, MOST_TURNS = 5, 10


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", ["anthropic", "responses"])
async def test_what_is_sent_is_valid_within_the_budget_and_as_counted(form: str, way: str) -> None:
    """More of it: `python benchmarks/forms.py --form anthropic --through langchain --histories 10000`."""
    counted = sent_tokens = views = 0
    for number in range(HISTORIES):
        rng = Random(f"{form}:{number}")
        history = (random_anthropic if form == "anthropic" else random_responses)(rng, MOST_TURNS)
        budget = rng.randrange(1_000, 6_000)
        try:
            sent = await WAYS[way](form, budget, COUNTER).send(history)
        except ContextOverflowError:
            continue
        said = history if sent.said is None else sent.said
        if form == "anthropic":
            thinking = anthropic_rules.thinking_of(said)
            wrong, found = (anthropic_rules.problems(one, thinking=thinking) for one in (said, sent.messages))
        else:
            needs = responses_rules.needs_of(said)
            wrong, found = (responses_rules.problems(one, needs) for one in (said, sent.messages))
        assert not found or wrong, (number, found)  # what a framework spoils by itself is no view's fault
        theirs = count_blocks(sent.messages, sent.system)
        assert theirs <= budget, number
        views, counted, sent_tokens = views + 1, counted + sent.counted, sent_tokens + theirs
    assert views
    # More is counted than goes out where a turn of Anthropic's form may yet be lent its thoughts, and where
    # Pydantic AI leaves out what stands before a compaction.
    assert (0.5 if form == "anthropic" else 0.9) * counted <= sent_tokens <= 1.1 * counted
