"""What a text tells, and which probes are taken."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.lab.measure import (
    PASSAGE_CHARACTERS,
    ProbeError,
    is_told,
    read_probe_sets,
    read_probes,
    wilson,
)

PROBE = {
    "at": 2,
    "kind": "value",
    "question": "Which pool?",
    "answer": "60",
    "keys": [["pool"], ["60", "sixty"]],
}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("the pool has sixty places", True),
        ("60 is the size of the POOL", True),
        ("the pool is too small", False),
        ("it was set to 60", False),
        ("", False),
    ],
)
def test_one_of_every_group_has_to_stand_there(text: str, told: bool) -> None:
    """In any order and case; a list of names without values tells nothing."""
    assert is_told(text, PROBE["keys"]) is told


def test_chinese_keys_are_found_in_running_text() -> None:
    assert is_told("付款日提前到25日，请郑凯签字。", [["付款日"], ["25日", "25 日"]])


@pytest.mark.parametrize(
    ("between", "told"), [(PASSAGE_CHARACTERS - 6, True), (PASSAGE_CHARACTERS - 5, False)]
)
def test_all_of_it_stands_in_one_passage(between: int, told: bool) -> None:
    """Of 600 characters, from the first of the keys to the last one's end."""
    assert is_told("." * 50 + "pool" + "-" * between + "60", PROBE["keys"]) is told


def told_by_trying(text: str, keys) -> bool:
    """Return what `is_told` says, found by looking at every passage."""
    return any(
        all(any(word in text[at : at + PASSAGE_CHARACTERS] for word in group) for group in keys)
        for at in range(max(1, len(text)))
    )


@given(
    st.lists(st.sampled_from(["a", "ab", "bc", "-" * 280, "-" * 290, "cab"]), max_size=9).map("".join),
    st.lists(st.lists(st.sampled_from(["a", "ab", "bc", "cab", "d"]), min_size=1), min_size=1, max_size=3),
)
def test_it_is_as_if_every_passage_was_looked_at(text: str, keys: list[list[str]]) -> None:
    assert is_told(text, keys) == told_by_trying(text, keys)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"at": 0}, "f.json: probes[1].at: Input should be greater than or equal to 1, got 0"),
        ({"at": "2"}, "probes[1].at"),
        ({"at": 9}, "f.json: probes[1].at: 9 is more than the session's 4 messages"),
        ({"kind": "name"}, "probes[1].kind"),
        ({"question": " "}, "probes[1].question"),
        ({"answer": None}, "probes[1].answer"),
        ({"keys": []}, "probes[1].keys"),
        ({"keys": [[]]}, "probes[1].keys[0]"),
        ({"keys": [["pool"], ["60", ""]]}, "probes[1].keys[1][1]"),
        ({"keys": "pool"}, "probes[1].keys"),
    ],
)
def test_malformed_probes_are_refused_by_file_and_field(change: dict, message: str) -> None:
    with pytest.raises(ProbeError) as refused:
        read_probes([PROBE, {**PROBE, **change}], "f.json", 4)
    assert message in str(refused.value)


def test_a_session_without_probes_has_none() -> None:
    assert read_probes(None, "f.json", 4) == ()
    with pytest.raises(ProbeError, match=r"f\.json: probes: Input should be"):
        read_probes({"at": 1}, "f.json", 4)


def write_set(folder: Path, **changes: object) -> Path:
    probe = {key: value for key, value in PROBE.items() if key != "at"}
    value = {
        "recording": "shop.jsonl.gz",
        "line": 3,
        "cut": 7,
        "probes": [probe, {**probe, "at": 5}],
        **changes,
    }
    file = folder / "one.json"
    file.write_text(json.dumps(value), encoding="utf-8")
    return file


def test_sets_of_a_folder_name_their_session(tmp_path: Path) -> None:
    """`cut` is where probes are put that do not say it themselves."""
    file = write_set(tmp_path)
    ((name, one),) = read_probe_sets(tmp_path)
    assert name == str(file)
    assert [probe.at for probe in one.probes] == [7, 5]
    assert one.is_of("data/shop.jsonl.gz", 3)
    assert not one.is_of("data/shop.jsonl.gz", 2)
    assert not one.is_of("data/other.jsonl.gz", 3)


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"cut": 0}, "probes[0].at"), ({"line": -1}, "line"), ({"recording": 3}, "recording")],
)
def test_a_malformed_set_is_refused_by_file_and_field(tmp_path: Path, changes: dict, field: str) -> None:
    file = write_set(tmp_path, **changes)
    with pytest.raises(ProbeError) as refused:
        read_probe_sets(tmp_path)
    assert str(refused.value).startswith(f"{file}: {field}: ")


def test_what_holds_no_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="holds no probes"):
        read_probe_sets(tmp_path)
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ProbeError, match=r"a\.json: cannot be read as JSON"):
        read_probe_sets(tmp_path)


def test_the_interval_is_wilsons() -> None:
    """8 of 10: 49 to 94 %; of all or none it does not leave 0 to 1, and of nothing it says nothing."""
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 5)[0] == 0
    assert wilson(5, 5)[1] == 1
    assert wilson(0, 0) == (0, 1)
