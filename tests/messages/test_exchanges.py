"""Pairing: each mistake that others made, each repair by name."""

from __future__ import annotations

import gc
import json
import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor import Msg, from_anthropic, from_openai, to_anthropic, to_openai
from context_compressor.core.shown import render_transcript
from context_compressor.errors import InvalidStateError
from context_compressor.laws import anthropic_rules
from context_compressor.laws.chat_rules import problems
from context_compressor.messages.exchanges import (
    Decisions,
    Exchange,
    ExchangeBuilder,
    build_exchanges,
    repaired,
)
from context_compressor.messages.repair import MISSING_RESULT, UNNAMED_TOOL
from context_compressor.summarizers.prompts import render_conversation
from tests.memory.scripted import assistant, call, result, system, user
from tests.support.form_strategies import cut_anthropic_histories
from tests.support.strategies import chat_histories, interleaved

Dict = dict[str, Any]


def fed(said: list[Dict]) -> tuple[list[Dict], list[int]]:
    """Return the complete exchanges as chat dicts, and how many messages each has."""
    exchanges = build_exchanges((str(n), msg) for n, msg in enumerate(from_openai(said)))
    return to_openai([m.msg for e in exchanges for m in e]), [len(e) for e in exchanges]


def ids_of(wire: list[Dict]) -> list[str]:
    """Return the ids of calls and of results, in order."""
    found: list[str] = []
    for message in wire:
        found += [c["id"] for c in message.get("tool_calls") or []]
        found += [message["tool_call_id"]] if "tool_call_id" in message else []
    return found


def enumerated(messages: list[Msg]) -> list[tuple[str, Msg]]:
    return [(str(n), msg) for n, msg in enumerate(messages)]


def orphan(said: Dict, name: str = "") -> Dict:
    tool = f"tool {name}" if name else "a tool"
    return user(f"[Result of {tool}, which answers no open call:]\n{said['content']}")


def calling(city: str) -> Dict:
    """Return one of several calls as Qwen-Agent writes them."""
    asked = {"name": "weather", "arguments": json.dumps({"city": city})}
    return {"role": "assistant", "content": "", "function_call": asked}


def told(city: str) -> Dict:
    return {"role": "function", "name": "weather", "content": f"{city}: sun"}


def without(content: Any, **more: Any) -> Dict:
    """Return an assistant's message of which only this and more is said."""
    return {"role": "assistant", "content": content, **more}


def text(said: str) -> Dict:
    return {"type": "text", "text": said}


IDS = [f"c{n}" for n in range(40)]
IMAGE = {"type": "image_url", "image_url": {"url": "https://a/b.png"}}
LABEL = "[Result of a tool, which answers no open call:]"
BETWEEN = [*[user(f"u{n}") for n in range(5)], call("b"), result("b", "2"), assistant("x")]
LEGACY = without(None, function_call={"name": "f", "arguments": "{}"})
NULL = {"role": "function", "name": "f", "content": None}
AUDIO = {"id": "audio_1", "data": "AAAA" * 100, "expires_at": 1, "transcript": "hello"}
SHORT = {"id": "audio_1", "transcript": "hello"}
NO_ID = without(None, audio={"data": "AAAA", "transcript": "hello"})
KIMI = without("", partial=True, name="Kelsier")
HI, ONE, ON = assistant("hi"), result("a", "1"), user("on")
LEFT_ALONE: dict[str, tuple[list[Dict], list[int]]] = {
    "a valid history": (
        [system("s"), user("u"), call("a", "b"), result("b", "2"), ONE, assistant("done")],
        [1, 1, 3, 1],
    ),
    "as many parallel calls as you like": ([call(*IDS), *(result(id, id) for id in IDS), ON], [41, 1]),
    "two exchanges in a row": ([call("a"), ONE, call("b"), result("b", "2")], [2, 2]),
    "two of function calls": ([calling("Rome"), told("Rome"), calling("Oslo"), told("Oslo")], [2, 2]),
    "null, which role function alone may have": ([LEGACY, NULL], [2]),
    "an empty beginning to go on from": ([KIMI], [1]),
    "another's": ([without("", prefix=True)], [1]),
    "audio without an id": ([NO_ID], [1]),
    "one text beside calls": ([{**call("a"), "content": [text("now")]}, ONE], [2]),
}
MENDED: dict[str, tuple[list[Dict], list[Dict]]] = {
    "a late result": ([call("a"), *BETWEEN, ONE, ON], [call("a"), ONE, *BETWEEN, ON]),
    **{
        f"what stands between: {one['role']}": (
            [call("a", "b"), one, result("b", "2"), one, ONE],
            [call("a", "b"), result("b", "2"), ONE, one, one],
        )
        for one in (system("mind the tests"), user("and hurry"), assistant("wait"))
    },
    "an orphan": ([user("u"), result("x", "lost"), ON], [user("u"), orphan(result("x", "lost")), ON]),
    "an orphan in parts": (
        [{**result("x", ""), "content": [text("shot"), IMAGE]}],
        [user([text(LABEL), text("shot"), IMAGE])],
    ),
    "an orphan with an empty text, which providers refuse among parts": (
        [{**result("x", ""), "content": [text(""), text("late")]}],
        [user([text(LABEL), text("late")])],
    ),
    "an orphan of DashScope's, where no part has a type": (
        [{**result("x", ""), "content": [{"text": "lost"}]}],
        [user([{"text": LABEL}, {"text": "lost"}])],
    ),
    "a result whose tool was not called": (
        [call("x", name="f"), {"role": "tool", "content": "1", "name": "functions.f"}],
        [call("x", name="f"), {"role": "tool", "content": "1", "name": "functions.f", "tool_call_id": "x"}],
    ),
    **{
        f"arguments {raw}": (
            [call("a", arguments=raw), ONE],
            [call("a", arguments=json.dumps({"arguments": raw}) if raw.strip() else "{}"), ONE],
        )
        for raw in ("null", "[1, 2]", '"text"', '{"path": "src/ma', "rm -rf /", "", " ")
    },
    **{
        f"a tool called {name!r}": ([call("a", name=name), ONE], [call("a", name=UNNAMED_TOOL), ONE])
        for name in ("", " ")
    },
    **{
        f"an empty message: {said!r}": ([user("u"), without(said), ON], [user("u"), ON])
        for said in (None, "", [], "  \n", [{"image": ""}], [{"image": None}], [{"text": " "}])
    },
    "no beginning to go on from": ([user("u"), {**KIMI, "partial": False}], [user("u")]),
    **{
        f"no content, but the rest: {one['role']}": ([one], [{**one, "content": ""}])
        for one in (
            without(None, partial=True),
            {"role": "developer", "content": []},
            {"role": "user", "content": [], "name": "Ada"},
        )
    },
    "an empty message between": ([call("a"), assistant(""), ONE], [call("a"), ONE]),
    "an empty list of calls": ([{**HI, "tool_calls": []}], [HI]),
    "calls that are null, as SDKs dump them": ([{**HI, "tool_calls": None, "function_call": None}], [HI]),
    "a legacy call that is null": ([{**call("a"), "function_call": None}, ONE], [call("a"), ONE]),
    "an empty list beside a legacy call": ([{**LEGACY, "tool_calls": []}, NULL], [LEGACY, NULL]),
    "a refusal": ([without(None, refusal="No.")], [assistant("No.")]),
    "a refusal and a thought": ([without(None, refusal="No.", reasoning_content="Hm.")], [assistant("No.")]),
    **{
        f"a result that is {said!r}": ([call("a"), {**ONE, "content": said}], [call("a"), result("a", "")])
        for said in (None, [])
    },
    # OpenAI: "empty array. Expected an array with minimum length 1".
    "an empty list beside calls": ([{**call("a"), "content": []}, ONE], [call("a"), ONE]),
    "an empty list beside calls and a thought": (
        [{**call("a"), "content": [], "reasoning_content": "hm"}, ONE],
        [{**call("a"), "reasoning_content": "hm"}, ONE],
    ),
    "audio": ([without(None, audio=AUDIO)], [without(None, audio={"id": "audio_1"})]),
    "audio without data": ([without(None, audio=SHORT)], [without(None, audio={"id": "audio_1"})]),
    "function calls in messages of their own": (
        [calling("Rome"), calling("Oslo"), told("Rome"), told("Oslo"), ON],
        [calling("Rome"), told("Rome"), calling("Oslo"), told("Oslo"), ON],
    ),
    "one of them without a result": (
        [calling("Rome"), calling("Oslo"), told("Rome"), ON],
        [calling("Rome"), told("Rome"), calling("Oslo"), {**told(""), "content": MISSING_RESULT}, ON],
    ),
    "not yet a result": ([calling("Rome"), calling("Oslo"), told("Rome")], []),
    "a message behind a function call": (
        [calling("Rome"), user("and hurry"), told("Rome"), calling("Oslo"), told("Oslo")],
        [calling("Rome"), told("Rome"), user("and hurry"), calling("Oslo"), told("Oslo")],
    ),
}


@pytest.mark.parametrize("said", LEFT_ALONE)
def test_what_providers_take_is_left_alone(said: str) -> None:
    history, sizes = LEFT_ALONE[said]
    assert fed(history) == (history, sizes)


@pytest.mark.parametrize("said", MENDED)
def test_what_they_refuse_is_mended(said: str) -> None:
    history, expected = MENDED[said]
    assert fed(history)[0] == expected


def test_unrepaired_messages_are_the_very_objects_that_were_fed() -> None:
    msgs = from_openai([user("u"), call("a"), result("a", "1")])
    shown = [m.msg for e in build_exchanges((m.id, m) for m in msgs) for m in e]
    assert all(a is b for a, b in zip(shown, msgs, strict=True))


def test_pairing_many_parallel_calls_takes_a_few_comparisons_each() -> None:
    compared: list[str] = []

    class Id(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            compared.append(self)
            return str.__eq__(self, other)

    ids = [f"c{n}" for n in range(200)]
    uses = [{"type": "tool_use", "id": Id(id), "name": "f", "input": {}} for id in ids]
    done = [{"type": "tool_result", "id": Id(id), "name": "f", "output": id} for id in reversed(ids)]
    builder = ExchangeBuilder()
    assert builder.feed("calls", Msg("Friday", uses, "assistant")) == []
    (exchange,) = [
        e for block in done for e in builder.feed(block["output"], Msg("system", [block], "system"))
    ]
    assert len(exchange) == 201
    assert len(compared) < 20 * len(ids)


def test_results_of_one_exchange_in_a_single_message_stay_together() -> None:
    uses = [{"type": "tool_use", "id": id, "name": "f", "input": {}} for id in "ab"]
    done = [{"type": "tool_result", "id": id, "name": "f", "output": id} for id in "ab"]
    msgs = [Msg("Friday", uses, "assistant"), Msg("system", done, "system")]
    assert [len(e) for e in build_exchanges((m.id, m) for m in msgs)] == [2]


def test_an_exchange_without_all_its_results_is_withheld() -> None:
    assert fed([user("u"), call("a", "b"), result("a", "1")]) == ([user("u")], [1])
    builder = ExchangeBuilder()
    for n, msg in enumerate(from_openai([call("a", "b"), result("a", "1")])):
        assert builder.feed(str(n), msg) == []
    assert builder.withheld == ("0", "1")


def test_a_complete_exchange_is_held_by_nothing_that_needs_the_garbage_collector() -> None:
    msgs = from_openai([call("a", "b"), result("a", "1"), result("b", "2")])
    held = [sys.getrefcount(msg) for msg in msgs]
    gc.disable()
    try:
        assert [len(e) for e in build_exchanges((msg.id, msg) for msg in msgs)] == [3]
        assert [sys.getrefcount(msg) for msg in msgs] == held
    finally:
        gc.enable()


def test_a_call_that_died_is_answered_by_a_placeholder_and_blocks_nothing() -> None:
    said = [call("a", "b"), result("a", "1"), user("on"), *[assistant("x"), user("y")] * 3]
    wire, sizes = fed(said)
    assert (wire[2]["tool_call_id"], wire[2]["content"]) == ("b", MISSING_RESULT)
    assert (wire[:2], wire[3:]) == (said[:2], said[2:])
    assert sizes[0] == 3


def shown_first(said: list[Dict], count: int) -> list[Dict]:
    """Return what a view shows of messages the first of which were shown before the others came."""
    builder = ExchangeBuilder()
    exchanges = []
    for n, msg in enumerate(from_openai(said)):
        if n == count:
            exchanges += builder.settle()
        exchanges += builder.feed(str(n), msg)
    return to_openai([m.msg for e in [*exchanges, *builder.settle()] for m in e])


def test_a_result_that_comes_after_its_placeholder_was_shown_says_which_call_it_is_of() -> None:
    asked = call("a", "b", "c")
    for n, each in enumerate(asked["tool_calls"]):
        each["function"]["arguments"] = json.dumps({"shard": n}, indent=2)
    said = [asked, result("c", "2"), user("stop"), result("b", "1"), result("a", "0"), user("on")]
    wire = shown_first(said, 3)
    missing = [result("a", MISSING_RESULT), result("b", MISSING_RESULT)]
    assert wire[:5] == [asked, result("c", "2"), *missing, user("stop")]
    label = '[Result of tool read_file, which came late, for the call with {{ "shard": {} }}:]\n{}'
    assert wire[5:] == [user(label.format(1, 1)), user(label.format(0, 0)), user("on")]


def test_a_label_tells_the_beginning_of_long_arguments_on_one_line() -> None:
    asked = call("a", arguments=json.dumps({"text": "word\n" * 100}))
    wire = shown_first([asked, user("stop"), result("a", "1")], 2)
    label, output = wire[-1]["content"].split("\n")
    assert output == "1"
    assert label.endswith("...:]")
    assert len(label) < 300


def test_a_call_waits_no_more_once_its_id_is_used_again() -> None:
    said = [call("a"), user("stop"), call("a"), result("a", "second"), result("a", "more")]
    wire, _ = fed(said)
    assert problems([user("u"), *wire]) == []
    assert [m["content"] for m in wire if m["role"] == "tool"] == [MISSING_RESULT, "second"]
    assert wire[-1]["content"].endswith(":]\nmore")


def test_a_result_without_an_id_answers_the_newest_calls() -> None:
    said = [nameless("f"), user("stop"), nameless("f"), {"role": "tool", "content": "1", "tool_name": "f"}]
    wire, _ = fed(said)
    assert problems([user("u"), *wire]) == []
    assert [m["content"] for m in wire if m["role"] == "tool"] == [MISSING_RESULT, "1"]


def test_results_of_several_exchanges_in_one_message_go_each_to_its_call() -> None:
    calls = from_openai([call("a"), user("u"), call("b", "c")])
    blocks = [{"type": "tool_result", "id": id, "name": "read_file", "output": id} for id in "bac"]
    shown = [m for e in build_exchanges(enumerated([*calls, Msg("s", blocks, "system")])) for m in e]
    wire = to_openai([message.msg for message in shown])
    assert wire == [
        *[call("a"), result("a", "a"), user("u")],
        *[call("b", "c"), result("b", "b"), result("c", "c")],
    ]
    assert len({(message.key, message.part) for message in shown}) == len(shown)


def test_a_result_that_answers_nothing_is_labelled_with_its_tool() -> None:
    block = {"type": "tool_result", "id": "x", "name": "search", "output": "orphaned"}
    (shown,) = repaired([Msg("system", [block], "system")])
    assert shown.name == "search"
    assert shown.content == "[Result of tool search, which answers no open call:]\norphaned"


def test_a_second_result_for_a_call_is_a_labelled_user_message() -> None:
    wire, _ = fed([call("a"), result("a", "first"), result("a", "second"), user("on")])
    assert wire[1]["content"] == "first"
    assert wire[2]["role"] == "user"
    assert "second" in json.dumps(wire[2])


def test_an_orphan_between_call_and_result_does_not_part_them() -> None:
    wire, _ = fed([call("a"), result("x", "orphaned"), result("a", "1")])
    assert problems(wire) == []
    assert sorted(m["role"] for m in wire) == ["assistant", "tool", "user"]


def test_a_reused_call_id_is_renamed_together_with_its_result() -> None:
    said = [call("a"), result("a", "1"), call("a"), result("a", "2"), call("a"), result("a", "3")]
    wire, _ = fed(said)
    first, second = ids_of(wire)[2], ids_of(wire)[4]
    assert ids_of(wire) == ["a", "a", first, first, second, second]
    assert len({"a", first, second}) == 3
    assert [m["content"] for m in wire[1::2]] == ["1", "2", "3"]


def test_two_calls_under_one_id_in_one_message_are_told_apart() -> None:
    wire, _ = fed([call("a", "a"), result("a", "1"), result("a", "2")])
    first, second, *answered = ids_of(wire)
    assert first == "a" != second
    assert answered == [first, second]


def test_an_empty_call_id_gets_one() -> None:
    wire, _ = fed([call(""), result("", "1"), call(""), result("", "2")])
    assert problems(wire) == []
    assert ids_of(wire)[0] == ids_of(wire)[1] != ids_of(wire)[2] == ids_of(wire)[3]


def nameless(*names: str) -> Dict:
    """Return calls as Ollama and chat templates write them."""
    calls = [{"function": {"name": name, "arguments": {"n": n}}} for n, name in enumerate(names)]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def test_results_without_ids_answer_the_calls_of_their_tools_in_order() -> None:
    done = [{"role": "tool", "content": str(n), "tool_name": name} for n, name in enumerate("bacb")]
    wire, sizes = fed([nameless("a", "b", "b", "c"), *done, user("on")])
    assert problems([user("u"), *wire]) == []
    assert sizes == [5, 1]
    ids = [c["id"] for c in wire[0]["tool_calls"]]
    assert [message["tool_call_id"] for message in wire[1:5]] == [ids[1], ids[0], ids[3], ids[2]]


def test_a_result_without_an_id_answers_a_call_that_has_one() -> None:
    """DashScope's own API gives ids with its calls, and asks for none back."""
    said = [call("x", "y"), *({"role": "tool", "content": str(n), "name": "read_file"} for n in range(3))]
    wire, _ = fed([*said, user("on")])
    assert wire[1:3] == [{**said[1], "tool_call_id": "x"}, {**said[2], "tool_call_id": "y"}]
    assert wire[3] == orphan(said[3], "read_file")


def test_a_made_id_meets_no_other_and_is_one_that_mistral_accepts() -> None:
    made = ids_of(fed([call("a"), result("a", ""), call("a"), result("a", "")])[0])[2]
    long = "x" * 40
    said = [call("a"), result("a", ""), call(made), result(made, ""), call("a"), result("a", "")]
    said += [call(long), result(long, ""), call(long), result(long, ""), call(""), result("", "")]
    wire, _ = fed(said)
    assert problems(wire) == []
    new = [id for id in ids_of(wire) if id not in ("a", made, long)]
    assert len(new) == 6
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", id) for id in new)


def test_a_placeholder_is_named_by_its_own_message_alone() -> None:
    """A ledger names what it covers, whatever becomes of other messages with the same call id."""
    before = from_openai([call("a"), result("a", "1")])
    said = from_openai([call("a", "a", "b"), user("go on")])

    def parts(messages: list[Msg]) -> list[str]:
        exchanges = build_exchanges((msg.id, msg) for msg in messages)
        return [message.part for exchange in exchanges for message in exchange if message.placeholder]

    assert parts([*before, *said]) == parts(said) == [":missing:a", ":missing:a 2", ":missing:b"]


def test_a_legacy_function_call_is_paired_with_the_next_function_result() -> None:
    asked = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    answered = {"role": "function", "name": "f", "content": "1"}
    assert fed([asked, answered, user("on")]) == ([asked, answered, user("on")], [2, 1])
    wire, _ = fed([asked, user("on")])
    assert (wire[1]["role"], wire[1]["content"]) == ("function", MISSING_RESULT)


def test_calls_and_results_in_one_message_are_split() -> None:
    blocks = [
        {"type": "text", "text": "look"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        {"type": "tool_result", "id": "a", "name": "f", "output": "1"},
    ]
    wire = to_openai(repaired([Msg("user", "u", "user"), Msg("Friday", blocks, "assistant")]))
    assert [m["role"] for m in wire] == ["user", "assistant", "tool"]
    assert problems(wire) == []


def test_text_beside_results_comes_after_them() -> None:
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    done = [
        {"type": "text", "text": "by the way"},
        {"type": "tool_result", "id": "a", "name": "f", "output": "1"},
    ]
    msgs = [Msg("user", "u", "user"), Msg("Friday", [use], "assistant"), Msg("bob", done, "user")]
    wire = to_openai(repaired(msgs))
    assert [m["role"] for m in wire] == ["user", "assistant", "tool", "user"]
    assert problems(wire) == []


def test_the_history_keeps_the_original() -> None:
    said = [call("a", arguments="[1]"), call("a"), result("a", "1"), result("x", "2"), user("on")]
    msgs = from_openai(said)
    list(repaired(msgs))
    assert to_openai(msgs) == said


@given(chat_histories(valid=False))
def test_whatever_is_fed_comes_out_valid(said: list[Dict]) -> None:
    wire, _ = fed(said)
    assert [p for p in problems(wire) if p != "only instructions"] == []


@given(chat_histories(valid=True, legacy=False))
def test_valid_histories_come_out_as_they_are_but_for_empty_messages(said: list[Dict]) -> None:
    msgs = from_openai(said)
    ids = [m.id for e in build_exchanges((m.id, m) for m in msgs) for m in [x.msg for x in e]]
    order = {msg.id: n for n, msg in enumerate(msgs)}
    assert all(id in order for id in ids)
    assert [order[id] for id in ids] == sorted(order[id] for id in ids)


@given(cut_anthropic_histories())
def test_whatever_a_provider_ran_comes_out_valid(said: list[Dict]) -> None:
    """Calls of its tools and their results, of which messages are missing.

    Thoughts are another's matter, and so is a text of the caller's with a space at its end, where all that
    followed it is missing: it stands as it was.
    """
    shown = to_anthropic(repaired(from_anthropic(said)))
    allowed = ["thinking"]
    if shown and shown[-1] in said:
        allowed.append("final assistant content cannot end with trailing whitespace")
    found = anthropic_rules.problems(shown)
    assert [problem for problem in found if not any(one in problem for one in allowed)] == []


@given(
    st.one_of(chat_histories(valid=False).map(from_openai), cut_anthropic_histories().map(from_anthropic)),
    st.data(),
)
def test_what_has_come_out_never_changes(said: list[Msg], data: st.DataObject) -> None:
    """Whenever a view is shown in between; and the same decisions give the same again."""
    msgs = enumerated(said)
    builder, earlier = ExchangeBuilder(), []
    for n, (key, msg) in enumerate(msgs):
        earlier += builder.feed(key, msg)
        if data.draw(st.booleans(), label="shown"):
            earlier += builder.settle()
        saved = json.loads(json.dumps(builder.decisions.to_dict()))
        other = ExchangeBuilder(Decisions.from_dict(saved))
        again = [e for pair in msgs[: n + 1] for e in other.feed(*pair)]
        assert as_dicts(again) == as_dicts(earlier)
        assert other.withheld == builder.withheld


def as_dicts(exchanges: list[Exchange]) -> list[list[Dict]]:
    return [[message.msg.to_dict() for message in exchange] for exchange in exchanges]


@given(interleaved())
def test_every_result_that_exists_stands_behind_its_call(said: list[Dict]) -> None:
    wire, _ = fed(said)
    assert [p for p in problems(wire) if p != "only instructions"] == []
    assert MISSING_RESULT not in json.dumps(wire)
    assert [m for m in wire if m["role"] != "tool"] == [m for m in said if m["role"] != "tool"]
    assert sorted(json.dumps(m) for m in wire) == sorted(json.dumps(m) for m in said)


def test_of_earlier_releases_every_message_but_a_result_ended_the_waiting() -> None:
    said = [call("a", "b"), result("b", "2"), system("on"), result("a", "1"), result("x", "3")]
    msgs = enumerated(from_openai(said))
    decisions = Decisions.of_earlier_releases(msgs)
    wire = to_openai([m.msg for e in build_exchanges(msgs, decisions) for m in e])
    assert wire[2] == result("a", MISSING_RESULT)
    assert wire[4:] == [orphan(said[3], "read_file"), orphan(said[4])]


@pytest.mark.parametrize("data", [None, [], {"missing": [["a", "b"]], "plain": []}, {"missing": []}])
def test_decisions_that_are_malformed_are_refused(data: object) -> None:
    with pytest.raises(InvalidStateError, match=r"compression\.decisions"):
        Decisions.from_dict(data)


def test_what_was_spoken_stays_readable_beside_the_id_that_is_sent() -> None:
    """Transcripts and prompts of summaries are made of what the view holds."""
    audio = {"id": "audio_1", "data": "AAAA" * 100, "expires_at": 1, "transcript": "the code is 7"}
    (msg,) = repaired(from_openai([{"role": "assistant", "content": None, "audio": audio}]))
    assert "the code is 7" in render_transcript([msg]).text
    assert "the code is 7" in render_conversation([msg])


@pytest.mark.parametrize("content", [None, []])
def test_a_result_without_content_is_an_empty_text_under_a_new_id_too(content: Any) -> None:
    empty = {"role": "tool", "tool_call_id": "a", "content": content}
    wire, _ = fed([call("a"), result("a", "1"), call("a"), empty])
    assert wire[3] == result(wire[2]["tool_calls"][0]["id"], "")
    assert problems(wire) == []


def test_of_results_in_one_message_those_without_an_open_call_stand_apart() -> None:
    (asked,) = from_openai([call("a")])
    blocks = [
        {"type": "tool_result", "id": id, "name": "tool", "output": id} for id in ("stray", "a", "other")
    ]
    answers = Msg("tool", blocks, "system")
    exchanges = build_exchanges([("0", asked), ("1", answers)])
    shown = [message for exchange in exchanges for message in exchange]
    wire = to_openai([message.msg for message in shown])
    assert not problems(wire)
    assert [said["content"].split("\n")[-1] for said in wire if said["role"] != "assistant"] == [
        "a",
        "stray",
        "other",
    ]
    assert len({(message.key, message.part) for message in shown}) == len(shown)


def test_results_in_one_message_none_of_which_has_an_open_call_are_told_apart() -> None:
    blocks = [{"type": "tool_result", "id": id, "name": "tool", "output": id} for id in ("x", "y")]
    shown = [message for (message,) in build_exchanges([("0", Msg("tool", blocks, "system"))])]
    assert len({message.msg.id for message in shown}) == len({message.part for message in shown}) == 2


@pytest.mark.parametrize(
    "foreign", ["gpt-4o", ["x"], {"extra": "x"}, {"keys": 5}, {"function": "f"}, {"content": ["null"]}]
)
def test_what_others_keep_under_the_codecs_key_is_no_remark(foreign: object) -> None:
    """Metadata and blocks of other programs, and edited states, may hold anything there."""
    held = [user("u"), call("a"), result("a", "1"), assistant("done")]
    msgs = from_openai(held)
    for msg in msgs:
        msg.metadata = {"openai": foreign}
        for block in [] if isinstance(msg.content, str) else msg.content:
            block["openai"] = foreign
    shown = list(repaired(msgs))
    assert to_openai(shown) == held
    assert render_transcript(shown) == render_transcript(list(repaired(from_openai(held))))
