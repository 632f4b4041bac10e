"""What an agent named in everything that left, and what that says of the names in the next index."""

import json
from typing import Any

import pytest

from context_compressor import from_openai
from context_compressor.errors import InvalidStateError
from context_compressor.summarizers.extracts.artifacts import index_artifacts, names_in
from context_compressor.summarizers.identifiers.ranking import Source, rank_identifiers
from context_compressor.summarizers.identifiers.uses import NO_NAMES, Names, Uses
from tests.memory.scripted import COUNTER, assistant, call, result, user


def test_each_group_counts_once() -> None:
    uses, nothing = Uses(), Names({}, frozenset())
    for _ in range(2):
        uses.note("a", Names({"parse_date": 2}, frozenset({"parse_date"})))
    uses.note("b", Names({"parse_date": 1}, frozenset()))
    assert uses.of("parse_date", nothing) == (3, True, 1)
    assert uses.of("parse_date", Names({"parse_date": 4}, frozenset())) == (7, True, 0)
    assert uses.segments == {"a", "b"}


def test_a_name_is_given_where_anybody_else_named_it_about_that_time() -> None:
    uses, nothing = Uses(), Names({}, frozenset())
    uses.note("a", Names({"coined_x": 1}, frozenset({"printed_y", "early_z"})))
    assert uses.of("coined_x", nothing) == (1, False, 1)
    assert uses.of("printed_y", nothing) == (0, True, 1)
    uses.note("b", Names({"printed_y": 1}, frozenset({"coined_x"})))
    assert uses.of("coined_x", nothing) == (1, True, 1)  # somebody repeated it
    assert uses.of("printed_y", nothing) == (1, True, 1)  # it was printed just before
    assert uses.of("early_z", nothing) == (0, False, None)  # nobody used it: not kept
    assert uses.of("early_z", Names({}, frozenset({"early_z"}))) == (0, True, 0)


def test_who_named_what_is_read_from_calls_replies_and_the_rest() -> None:
    said = [
        user("Fix parse_date."),
        call("1", arguments='{"path": "src/dates.py"}'),
        result("1", "def parse_date(value):\n    return ISO_FORMAT"),
        assistant("parse_date in src/dates.py ignores ISO_FORMAT."),
    ]
    names = names_in(from_openai(said))
    assert names.used == {"src/dates.py": 2, "parse_date": 1, "ISO_FORMAT": 1}
    assert names.given == {"parse_date", "ISO_FORMAT"}
    assert index_artifacts(from_openai(said), 200, COUNTER).names == names


def test_what_the_agent_named_long_ago_outranks_what_was_only_printed() -> None:
    printed = [Source("result", "ls", " ".join(f"name_{n}" for n in range(40)), 0.5)]
    before = Uses()
    before.note("a", Names({"name_31": 3, "name_7": 1}, frozenset({"name_31", "name_7"})))
    ranked, _ = rank_identifiers(printed, before)
    assert [identifier.text for identifier in ranked][:2] == ["name_31", "name_7"]


def test_what_nobody_names_any_more_loses_its_rank() -> None:
    uses = Uses()
    uses.note("0", Names({"name_old": 4}, frozenset()))
    uses.note("1", Names({"name_new": 2}, frozenset()))
    told = [Source("carried", "", "name_old name_new", 0.1, is_carried=True)]
    assert [one.text for one in rank_identifiers(told, uses)[0]] == ["name_old", "name_new"]
    for number in range(2, 30):
        uses.note(str(number), Names({"name_new": 0}, frozenset()))
    assert uses.of("name_old", NO_NAMES).age == 30
    assert [one.text for one in rank_identifiers(told, uses)[0]] == ["name_new", "name_old"]


def test_an_earlier_release_did_not_save_when_names_were_used() -> None:
    uses = Uses()
    uses.note("a", Names({"coined_x": 1}, frozenset()))
    uses.note("b", NO_NAMES)
    saved = uses.to_dict()
    del saved["last"]
    assert uses.of("coined_x", NO_NAMES).age == 2
    assert Uses.from_dict(saved).of("coined_x", NO_NAMES).age == 1


def test_lines_of_earlier_summaries_are_no_further_use() -> None:
    told = Source("call", "read_file", "src/dates.py", 0.1, is_carried=True)
    ranked, names = rank_identifiers([told, Source("result", "ls", "src/other.py", 0.2)])
    assert names == Names({}, {"src/other.py"})
    assert ranked[0].text == "src/dates.py"


def test_a_name_is_told_beside_what_gave_it_not_beside_what_the_agent_made_of_it() -> None:
    said = [
        call("1", name="read_file", arguments='{"path": "dates.py"}'),
        result("1", "\n".join(f"def helper_{n}(x):" for n in range(9)) + "\ndef parse_date(value):"),
        call(
            "2",
            name="edit_file",
            arguments='{"path": "dates.py", "text": "# A comment that goes on and on, and then: parse_date"}',
        ),
        result("2", "ok"),
    ]
    lines = index_artifacts(from_openai(said), 200, COUNTER).lines
    (told,) = [line for line in lines if line.startswith("read_file dates.py: def ")]
    assert told.split("; ")[-1] == "parse_date"


def test_of_very_many_names_those_used_least_and_longest_ago_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("context_compressor.summarizers.identifiers.uses.MOST_NAMES", 8)
    uses = Uses()
    uses.note(
        "a", Names({"name_0": 3, "name_1": 1, "name_2": 1, "name_3": 2}, frozenset({"name_0", "name_1"}))
    )
    uses.note("b", Names({f"name_{n}": 1 for n in range(4, 8)}, frozenset()))
    assert uses.of("name_1", NO_NAMES) == (1, True, 2)
    again = Uses.from_dict(json.loads(json.dumps(uses.to_dict())))
    for each in (uses, again):
        each.note("c", Names({"name_8": 1}, frozenset()))
        times = [each.of(f"name_{n}", NO_NAMES)[:2] for n in range(9)]
        assert times == [(3, True), *[(0, False)] * 2, (2, False), *[(0, False)] * 3, (1, False), (1, False)]
    assert vars(again) == vars(uses)


def test_counts_can_be_saved() -> None:
    uses = Uses()
    uses.note("a", Names({"coined_x": 1, "parse_date": 2}, frozenset({"parse_date", "printed_y"})))
    again = Uses.from_dict(json.loads(json.dumps(uses.to_dict())))
    assert vars(again) == vars(uses)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"times": [["a_name", 0]]}, "uses.times"),
        ({"times": [["a_name", True]]}, "uses.times"),
        ({"times": [[1, 1]]}, "uses.times"),
        ({"times": [["a_name"]]}, "uses.times"),
        ({"times": None}, "uses.times"),
        ({"newest": [1]}, "uses.newest"),
        ({"last": [1]}, "uses.last"),
        ({"segments": ["a"], "times": [["a_name", 1]], "last": [2]}, "uses.last"),
        ({"given": None}, "uses.given"),
        ({"segments": {}}, "uses.segments"),
    ],
)
def test_saved_counts_are_checked(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidStateError, match=told):
        Uses.from_dict({**Uses().to_dict(), **changed})
    with pytest.raises(InvalidStateError, match="expected a dict, got list"):
        Uses.from_dict([])
