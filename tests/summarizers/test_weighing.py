"""What is told of calls, over many merges."""

from __future__ import annotations

import json
from typing import Any

import pytest

from context_compressor.summarizers.extractive import ExtractiveSummarizer
from context_compressor.summarizers.extracts import weighing
from context_compressor.summarizers.extracts.digest import digest_messages
from context_compressor.summarizers.extracts.weighing import weigh_calls
from context_compressor.summarizers.sections import parse_sections
from tests.summarizers.support import PieceCounter, assistant, call, request, result, segment


def listings(part: int) -> str:
    """Return a summary of calls that only looked: full of names, and nothing came of them."""
    names = [f"{word}_{part}_{n}" for n, word in enumerate(("network", "storage", "identity", "cluster"))]
    return "## Done\n" + "\n".join(
        f"- bash: ls -la infra/modules/{name} → total 48 … -rw-r--r-- 1 ops {name}/data_{name}.tf (6 lines)"
        for name in names
    )


async def merged(*summaries: str, rounds: int = 4, max_tokens: int = 400) -> str:
    """Return what is left of summaries after merges with others that tell of listings."""
    parts = [*summaries]
    for n in range(rounds):
        wanted = request(*map(segment, [*parts, listings(n)]), max_tokens=max_tokens)
        parts = [(await ExtractiveSummarizer(PieceCounter()).summarize(wanted)).text]
    return parts[0]


async def test_what_was_done_outlasts_what_was_only_seen():
    applied = "bash: terraform apply → Apply complete! Resources: 5 added, 1 changed, 0 destroyed."
    assert applied in await merged(f"## Done\n- {applied}")


async def test_of_versions_that_followed_one_another_the_newest_is_told():
    image = "bash: kubectl set image deploy/api api=registry.io/api:2.14.{} → deployment.apps/api updated"
    told = [f"## Done\n- {image.format(n)}" for n in (3, 4, 5)]
    assert image.format(5) in await merged(*told)


async def test_of_each_program_that_earlier_summaries_told_of_the_newest_call_is_told():
    scaled = "bash: kubectl scale deploy/api --replicas=6 → deployment.apps/api scaled"
    edits = [
        f"## Done\n- edit_file: src/part_{n}/code.py → File src/part_{n}/code.py edited" for n in range(9)
    ]
    assert scaled in await merged(f"## Done\n- {scaled}", *edits)


async def test_a_tool_that_executes_queries_runs_no_programs():
    """Else each query were of a kind of its own, and many of them left no room for what was done."""
    scaled = "bash: kubectl scale deploy/api --replicas=6 → deployment.apps/api scaled"
    queries = [
        f"## Done\n- execute_sql: {verb} {verb}ed_rows_of_orders → {n} of the rows are {verb}ed"
        for n, verb in enumerate(("count", "lock", "sort", "load", "show", "mark", "sign", "pack", "test"))
    ]
    assert scaled in await merged(f"## Done\n- {scaled}", *queries)


async def test_an_early_failure_does_not_stand_as_the_last_word():
    apply = "bash: kubectl apply -f k8s/web/ingress.yaml"
    failed = f"## Index\n- {apply} → The Ingress is invalid: spec.rules[0].http.paths[0].pathType: Required"
    mended = f"{apply} → ingress.networking.k8s.io/web created"
    text = await merged(failed, f"## Done\n- {mended}")
    assert mended in parse_sections(text)["done"]
    assert f"{apply} → The Ingress" not in text


async def test_what_was_searched_leaves_room_for_what_was_done():
    messages = [
        call("get_return", "r", return_id="TH-90021"),
        result("r", '{"status": "refunded", "amount": 599}'),
    ]
    for n, tool in enumerate(("search", "get_stock", "track", "find_shops", "list_offers")):
        items = [{"id": f"SKU-{n}{m}42", "price": 100 + m, "name": "boots"} for m in range(20)]
        messages += [
            call(tool, str(n), query=f"boots of size {n}"),
            result(str(n), json.dumps({"items": items})),
        ]
    wanted = request(*messages, max_tokens=400)
    text = (await ExtractiveSummarizer(PieceCounter()).summarize(wanted)).text
    assert "get_return: return_id=TH-90021 → status: refunded, amount: 599" in parse_sections(text)["done"]


async def test_what_an_index_told_of_calls_is_newer_than_what_was_carried_beside_it():
    """An index names of what was new the most telling; above it stand the rest, and what was before."""
    cancelled = "book_hotel: city=Rome id=771200 → booked: 1180"
    booked = "book_hotel: city=Rome id=771300 → booked: 2207"
    text = await merged(f"## Done\n- {cancelled}\n\n## Index\n- {booked}", max_tokens=800)
    told = parse_sections(text)["done"]
    assert [line for line in told if "book_hotel" in line] == [cancelled, booked]
    assert booked in await merged(f"## Done\n- {cancelled}\n\n## Index\n- {booked}", max_tokens=250)


async def test_what_the_first_summary_told_of_a_call_is_older_than_what_the_next_one_told():
    first, second = (
        "## Index\n- bash: git status → clean\n- bash: make plan → Error: the state is locked",
        "## Index\n- bash: make plan → Plan: 1 to add\n- bash: make test → 4 passed",
    )
    wanted = request(segment(second), assistant("Now the rest."), previous=first)
    merged = (await ExtractiveSummarizer(PieceCounter()).summarize(wanted)).text
    assert "bash: make plan → Plan: 1 to add" in merged
    assert "locked" not in merged


BOOKING = {"patient": "P-30981", "slot": "SL-449002"}


@pytest.mark.parametrize(
    ("tool", "failed", "retried"),
    [
        ("move", BOOKING, BOOKING | {"confirmed": True}),
        ("move", BOOKING | {"confirmed": True}, BOOKING),
        ("edit", {"path": "a.py", "old": "x = 1", "new": "x"}, {"path": "a.py", "old": "x", "new": "x=1"}),
        ("run", {"command": "make b"}, {"command": "sed -i s/a/b/ c && make b"}),
        ("run", {"command": "cd b && make c"}, {"command": "export A=1 && make c", "timeout": 9}),
    ],
)
def test_a_failure_that_a_retry_mended_is_no_open_one(
    tool: str, failed: dict[str, Any], retried: dict[str, Any]
):
    worked = value_of(tool, failed, "yes", retried)
    assert value_of(tool, failed, FAILED, retried) < worked < value_of(tool, failed, FAILED, UNLIKE)


def test_a_failure_that_was_mended_by_another_kind_of_call_is_not_the_newest_of_its_own():
    failed, retried = {"command": "make b"}, {"command": "sed -i s/a/b/ c && make b"}
    less = value_of("run", failed, "yes", retried) - value_of("run", failed, FAILED, retried)
    assert less == pytest.approx(weighing._NEWEST + weighing._ALIKE)


FAILED = "Error: no"
UNLIKE = {"path": "d.py", "command": "make a"}
REPLACE = {"command": "str_replace", "path": "a.py", "old_str": "x"}


@pytest.mark.parametrize(
    ("tool", "failed", "done"),
    [
        ("shell", {"command": ["make", "test"], "workdir": "/w"}, {"command": ["ls"], "workdir": "/w"}),
        ("bash", {"command": "make test", "timeout": 60}, {"command": "ls", "timeout": 60}),
        ("str_replace_editor", REPLACE, {"command": "view", "path": "a.py"}),
        ("str_replace_editor", REPLACE, REPLACE | {"path": "b.py", "old_str": "y"}),
        ("str_replace_editor", {"command": "view", "path": "a.py"}, {"command": "view", "path": "b.py"}),
    ],
)
def test_a_failure_is_not_mended_by_what_does_something_else(
    tool: str, failed: dict[str, Any], done: dict[str, Any]
):
    """Though it does so in the same place or time, with the same file, or by the same order."""
    assert value_of(tool, failed, FAILED, done) == value_of(tool, failed, FAILED, UNLIKE)


def value_of(tool: str, arguments: dict[str, Any], outcome: str, after: dict[str, Any]) -> float:
    """Return what a call is worth in a summary, with another after it that came to something."""
    made = call(tool, "1", **arguments), result("1", outcome), call(tool, "2", **after)
    weighed = weigh_calls(digest_messages([*made, result("2", "as it was")], None))
    return next(line.value for line in weighed if outcome in line.text)
