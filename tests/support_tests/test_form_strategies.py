"""The random histories are valid, and hold everything that there is."""

import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings

from tests.support import anthropic_rules, responses_rules
from tests.support.form_strategies import (
    anthropic_histories,
    random_anthropic,
    random_responses,
    responses_histories,
)

HISTORIES = 2_000

relaxed = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def kinds_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield str(value.get("type"))
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from kinds_in(inner)


@relaxed
@given(responses_histories())
def test_drawn_items_are_valid(items: list[Any]):
    assert responses_rules.problems(items, responses_rules.needs_of(items)) == []


@relaxed
@given(anthropic_histories())
def test_drawn_messages_are_valid(messages: list[Any]):
    assert anthropic_rules.problems(messages, thinking=anthropic_rules.thinking_of(messages)) == []


def test_random_items_are_valid_and_of_every_kind():
    rng, seen, sizes = Random(1), Counter[str](), []
    for _ in range(HISTORIES):
        items = random_responses(rng, rng.randrange(6))
        assert responses_rules.problems(items, responses_rules.needs_of(items)) == []
        seen.update(kinds_in(items))
        sizes.append(len(json.dumps(items)))
    assert {*responses_rules.OUTPUT_OF, *responses_rules.OUTPUT_OF.values()} <= set(seen)
    assert {"reasoning", "refusal", "input_file", "item_reference", "compaction", "mcp_call"} <= set(seen)
    assert max(sizes) > 50_000


def test_random_messages_are_valid_and_of_every_kind():
    rng, seen, sizes = Random(1), Counter[str](), []
    for _ in range(HISTORIES):
        messages = random_anthropic(rng, rng.randrange(6))
        found = anthropic_rules.problems(messages, thinking=anthropic_rules.thinking_of(messages))
        assert found == []
        seen.update(kinds_in(messages))
        sizes.append(len(json.dumps(messages)))
    assert {"thinking", "redacted_thinking", "tool_result", "server_tool_use", "search_result"} <= set(seen)
    assert {"document", "image", "ephemeral", "future_block", "char_location"} <= set(seen)
    assert max(sizes) > 50_000


def test_the_same_seed_gives_the_same_histories():
    assert random_responses(Random(7), 5) == random_responses(Random(7), 5)
    assert random_anthropic(Random(7), 5) == random_anthropic(Random(7), 5)
