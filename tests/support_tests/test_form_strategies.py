"""The random histories are valid, and hold everything that there is."""

import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from context_compressor.laws import anthropic_rules, responses_rules
from context_compressor.laws.random_anthropic import random_anthropic
from context_compressor.laws.random_responses import random_responses

HISTORIES = 500


def kinds_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield str(value.get("type"))
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from kinds_in(inner)


def test_random_items_are_valid_and_of_every_kind():
    rng, seen, sizes = Random(1), Counter[str](), []
    for _ in range(HISTORIES):
        items = random_responses(rng, rng.randrange(6))
        assert responses_rules.problems(items, responses_rules.needs_of(items)) == []
        seen.update(kinds_in(items))
        sizes.append(len(json.dumps(items)))
    assert {*responses_rules.OUTPUT_OF, *responses_rules.OUTPUT_OF.values()} <= set(seen)
    assert {"reasoning", "refusal", "input_file", "item_reference", "compaction", "mcp_call"} <= set(seen)
    assert {"program", "program_output"} <= set(seen)
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
    assert {"compaction", "mcp_tool_use", "mcp_tool_result", "code_execution_20250825"} <= set(seen)
    assert max(sizes) > 50_000


def test_items_are_refused_without_one_of_their_calls_or_outputs():
    rng, pairs = Random(2), {*responses_rules.OUTPUT_OF, *responses_rules.OUTPUT_OF.values()}
    for _ in range(HISTORIES // 4):
        items = random_responses(rng, 4)
        places = [at for at, item in enumerate(items) if item.get("type") in pairs]
        places = [at for at in places if items[at].get("execution") != "server"]
        if places and not any(responses_rules.kind_of(item) == "item_reference" for item in items):
            at = rng.choice(places)
            assert responses_rules.problems([*items[:at], *items[at + 1 :]]), items[at]


def test_items_are_refused_without_their_reasoning():
    rng, refused = Random(3), 0
    for _ in range(HISTORIES // 4):
        items = random_responses(rng, 4)
        needs = responses_rules.needs_of(items)
        without = [item for item in items if item.get("id") not in needs.values()]
        found = responses_rules.problems(without, needs)
        assert len(found) == len(needs)
        refused += len(found)
    assert refused > HISTORIES // 4


def test_messages_are_refused_without_one_of_their_calls_or_results():
    rng = Random(2)
    for _ in range(HISTORIES // 4):
        messages = random_anthropic(rng, 4)
        # Of what Anthropic runs the result may still be to come at the end.
        blocks = [
            (message, block)
            for message in messages[:-6]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"].endswith(("tool_use", "tool_result"))
        ]
        if blocks:
            message, block = rng.choice(blocks)
            message["content"] = [other for other in message["content"] if other is not block]
            assert anthropic_rules.problems(messages), block
