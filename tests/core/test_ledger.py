"""The ledger: what is live, what nothing names any more, and its saved form."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from context_compressor.core.edits import (
    ItemKey,
    SegmentEdit,
    StubEdit,
    name_of,
    with_words,
    without_words,
    words_of,
)
from context_compressor.core.ledger import KEPT_PARTS, Ledger
from context_compressor.errors import InvalidStateError
from context_compressor.memory.saved import _checked
from context_compressor.messages.msg import Msg
from context_compressor.offload.store import ref_of
from context_compressor.summarizers.notes import Line
from context_compressor.summarizers.rules.candidates import candidates_of
from context_compressor.summarizers.rules.lines import stretches_of
from context_compressor.summarizers.rules.steps import Source
from context_compressor.tokens.tiktoken import TiktokenCounter


def load(data: Any) -> Ledger:
    """Read a ledger as a state with it is read."""
    return Ledger.load(_checked({"version": 2, "ledger": data, "tokens": {}, "fresh": []}).ledger)


R = [f"ctx://{n:016x}" for n in range(10)]


def stub(key: str, ref: str, path: tuple[int, ...] = (), *, page: bool = False) -> StubEdit:
    return StubEdit(ItemKey(key), path, ref, f"[offloaded: {ref}]", 9, page)


def segment(
    id: str, ref: str, *keys: str, children: tuple[str, ...] = (), media: tuple[str, ...] = ()
) -> SegmentEdit:
    return SegmentEdit(id, tuple(map(ItemKey, keys)), children, ref, media, f"summary {id}", True)


def ledger_of(*edits: Any) -> Ledger:
    ledger = Ledger()
    for edit in edits:
        ledger.append(edit)
    return ledger


def test_a_later_stub_of_the_same_text_replaces_the_earlier() -> None:
    ledger = ledger_of(stub("a", R[0]), stub("a", R[1]), stub("a", R[2], (1, -1)))
    assert {path: edit.ref for path, edit in ledger.stubs_of(ItemKey("a")).items()} == {
        (): R[1],
        (1, -1): R[2],
    }
    assert ledger.unwanted == {R[0]}
    assert not ledger.is_live(R[0])


def test_a_ref_lives_while_any_edit_names_it() -> None:
    ledger = ledger_of(stub("a", R[0]), stub("b", R[0]))
    ledger.withdraw(ItemKey("a"))
    assert ledger.is_live(R[0])
    assert ledger.unwanted == set()
    ledger.withdraw(ItemKey("b"))
    assert ledger.unwanted == {R[0]}
    ledger.append(stub("c", R[0]))
    assert ledger.unwanted == set()
    assert ledger.pending == {R[0]}  # its removal may be under way
    ledger.note_stored(R[0])
    assert ledger.pending == set()


def test_refs_come_by_the_newest_message_that_they_are_of() -> None:
    places = {key: place for place, key in enumerate("abcdef")}
    ledger = ledger_of(
        stub("e", R[0]),
        stub("b", R[1]),
        segment("s1", R[2], "a", "b", media=(R[3],)),
        segment("s2", R[4], "c"),
        segment("m", R[5], "d", children=("s1", "s2")),
        stub("f", R[1], page=True),
        stub("gone", R[6]),
    )
    found = ledger.places_of_refs(places)
    assert sorted(found, key=lambda ref: -found[ref][1]) == [R[0], R[5], R[4], R[2], R[3], R[1], R[6]]


def test_merged_segments_stand_behind_the_outermost() -> None:
    ledger = ledger_of(
        segment("s1", R[1], "a", "b"),
        segment("s2", R[2], "c"),
        segment("m", R[3], "d", children=("s1", "s2")),
    )
    for key in "abcd":
        top = ledger.top_segment_of(ItemKey(key))
        assert top.id == "m"
    assert ledger.ids_under("m") == ("a", "b", "c", "d")
    assert ledger.top_segment_of(ItemKey("e")) is None
    assert ledger.refs() == [R[3], R[2], R[1]]


def test_withdrawing_over_an_item_brings_the_other_segments_back() -> None:
    ledger = ledger_of(
        segment("s1", R[1], "a", "b"), segment("s2", R[2], "c"), segment("m", R[3], children=("s1", "s2"))
    )
    ledger.withdraw_segments_over(ItemKey("a"))
    assert [segment.id for segment in ledger.segments()] == ["s2"]
    assert ledger.top_segment_of(ItemKey("a")) is None
    top = ledger.top_segment_of(ItemKey("c"))
    assert top.id == "s2"
    assert ledger.ids_under("s2") == ("c",)
    assert ledger.unwanted == {R[1], R[3]}
    ledger.withdraw_segments_over(ItemKey("a"))  # once is enough
    assert ledger.refs() == [R[2]]


def test_of_parts_that_others_followed_the_newest_keep_their_words() -> None:
    ledger, earlier = Ledger(), ()
    for number in range(KEPT_PARTS + 3):
        part = replace(segment(f"p{number}", R[number], f"k{number}", children=earlier), next_line=1)
        for outlived in ledger.outlived_by(part):
            ledger.replace(outlived)
        ledger.append(part)
        earlier = (part.id,)
    with_words = [part.id for part in ledger.segments() if part.text]
    assert with_words == [f"p{number}" for number in range(2, KEPT_PARTS + 3)]
    assert ledger.ids_under(earlier[0]) == tuple(f"k{number}" for number in range(KEPT_PARTS + 3))
    ledger.withdraw_segments_over(ItemKey("k3"))
    assert [one.id for one in ledger.shown_without_words()] == []
    ledger.withdraw_segments_over(ItemKey("k2"))
    assert [one.id for one in ledger.shown_without_words()] == ["p1"], "it is made good from the history"


def test_a_ledger_without_words_names_where_they_are() -> None:
    whole = ledger_of(stub("a", R[5]), segment("s1", R[1], "a"))
    ledger = load(json.loads(json.dumps(whole.to_dict(with_words=False))))
    bare = ledger.shown_without_words()
    assert [edit.text for edit in bare] == ["", ""]
    assert {edit.words_ref for edit in bare} == {ref_of(words_of(edit)) for edit in whole.entries}
    for edit, known in zip(bare, whole.entries, strict=True):
        ledger.replace(with_words(edit, words_of(known)))
    assert [replace(edit, words_ref=None) for edit in ledger.entries] == whole.entries


def test_segments_recorded_anew_come_behind_those_that_they_merged() -> None:
    one, both = segment("s1", R[1], "a"), segment("m", R[3], "b", children=("s1",))
    ledger = Ledger().followed_by([both, stub("a", R[5]), one], {})
    assert [name_of(edit) for edit in ledger.entries] == [name_of(e) for e in (one, both, stub("a", R[5]))]
    assert ledger.ids_under("m") == ("a", "b")


def test_no_depth_of_merges_is_too_deep() -> None:
    ledger = ledger_of(segment("s0", R[1], "k0"))
    for n in range(1, 4_000):
        ledger.append(segment(f"s{n}", R[1], f"k{n}", children=(f"s{n - 1}",)))
    assert ledger.ids_under("s3999") == tuple(f"k{n}" for n in range(4_000))
    assert {ledger.top_segment_of(item) for item in ledger.items()} == {ledger.segment("s3999")}
    ledger.withdraw_segments_over(ItemKey("k2000"))
    assert ledger.ids_under("s1999") == tuple(f"k{n}" for n in range(2_000))
    assert load(json.loads(json.dumps(ledger.to_dict()))).refs() == ledger.refs()


def test_the_id_of_a_withdrawn_segment_is_not_given_again() -> None:
    ledger = Ledger()
    first = ledger.new_segment_id(R[1])
    ledger.append(segment(first, R[1], "a"))
    ledger.withdraw_segments_over(ItemKey("a"))
    second = ledger.new_segment_id(R[1])
    assert second != first
    assert ledger.new_segment_id(R[1], {second}) not in (first, second)


def full() -> Ledger:
    ledger = ledger_of(
        stub("a", R[0], (1, -1)),
        stub("p", R[0], page=True),
        StubEdit(ItemKey("b", "#orphan0"), (1,), R[4], "lone \ud83d surrogate", 3),
        segment("s1", R[1], "a", "b", media=(R[5],)),
        segment("s2", R[2], "c\0002"),
        segment("m", R[3], children=("s1", "s2")),
        stub("d", R[6]),
        segment("s3", R[7], "e"),
    )
    ledger.withdraw(ItemKey("d"))
    ledger.withdraw(ItemKey("e"))
    ledger.note_pending([R[2]])
    ledger.frontier = 12
    return ledger


def test_it_comes_back_through_json() -> None:
    ledger = full()
    data = json.loads(json.dumps(ledger.to_dict()))
    again = load(data)
    assert again.to_dict() == ledger.to_dict()
    assert (again.pending, again.unwanted, again.frontier) == ({R[2]}, {R[6], R[7]}, 12)
    assert again.refs() == ledger.refs()
    assert again.ids_under("m") == ledger.ids_under("m")
    assert again.new_segment_id(R[7]) == ledger.new_segment_id(R[7])


def part_of_notes() -> SegmentEdit:
    said = [Source(0, "a\ud800", Msg("user", "Use UTC, please.", "user"))]
    return replace(
        segment("p", R[1], "a\ud800"),
        next_line=3,
        lines=(Line(2, "done", "went on", "rules", "b.py"),),
        candidates=tuple(known.one for known in candidates_of(said, TiktokenCounter())),
        stretches=stretches_of(said),
        told=((ItemKey("b"), R[2]),),
        left_standing=2,
    )


def test_notes_come_back_through_json_and_from_words_in_the_store() -> None:
    part = part_of_notes()
    assert part.candidates
    assert load(json.loads(json.dumps(ledger_of(part).to_dict()))).entries == [part]
    bare = without_words(part, R[3])
    assert replace(with_words(bare, words_of(part)), words_ref=None) == part


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lines", [["one", "done", "x"]]),
        ("lines", [[1, "nowhere", "x"]]),
        ("candidates", [["done"]]),
        ("candidates", [5]),
        ("stretches", [[1, 2]]),
        ("next_line", "x"),
    ],
)
def test_malformed_notes_are_refused_by_place(key: str, value: Any) -> None:
    data = json.loads(json.dumps(ledger_of(part_of_notes()).to_dict()))
    data["entries"][0][key] = value
    with pytest.raises(InvalidStateError, match=rf"ledger\.entries\[0\].*{key}"):
        load(data)


def test_the_saved_form_leaves_out_what_says_nothing() -> None:
    ledger = ledger_of(
        stub("a", R[0], (1, -1)),
        segment("s1", R[1], "b"),
        segment("s2", R[2], "c"),
    )
    ledger.withdraw(ItemKey("b"))
    assert ledger.to_dict() == {
        "frontier": 0,
        "pending": [],
        "unwanted": [R[1]],
        "withdrawn_ids": ["s1"],
        "entries": [
            {
                "type": "stub",
                "item": "a",
                "path": [1, -1],
                "ref": R[0],
                "text": f"[offloaded: {R[0]}]",
                "tokens": 9,
            },
            {
                "type": "segment",
                "id": "s2",
                "items": ["c"],
                "children": [],
                "ref": R[2],
                "media_refs": [],
                "text": "summary s2",
                "summarized": True,
            },
        ],
    }


@pytest.mark.parametrize("key", ["frontier", "pending", "unwanted", "withdrawn_ids", "entries"])
@pytest.mark.parametrize("value", [None, 5.5, [5], [None]])
def test_a_malformed_field_is_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(InvalidStateError, match=rf"ledger(\.{key}|.*{key})"):
        load({**full().to_dict(), key: value})


@pytest.mark.parametrize("key", ["pending", "unwanted"])
def test_a_ref_that_is_none_is_refused_by_its_place(key: str) -> None:
    with pytest.raises(InvalidStateError, match=rf"ledger\.{key}\[1\]"):
        load({**full().to_dict(), key: [R[2], "../secret"]})


ENTRIES = full().to_dict()["entries"]


@pytest.mark.parametrize(
    ("index", "key"), [(i, key) for i, entry in enumerate(ENTRIES) for key in entry if key != "page"]
)
def test_a_missing_field_of_an_entry_is_refused_by_place(index: int, key: str) -> None:
    entries = json.loads(json.dumps(ENTRIES))
    del entries[index][key]
    with pytest.raises(InvalidStateError, match=rf"ledger\.entries\[{index}\].*{key}"):
        load({**full().to_dict(), "entries": entries})


@pytest.mark.parametrize(
    ("index", "key", "value"),
    [
        (0, "type", "other"),
        (0, "ref", 5),
        (0, "ref", "../../etc/passwd"),
        (0, "path", "x"),
        (0, "tokens", "many"),
        (0, "text", None),
        (0, "item", 5),
        (3, "items", [5]),
        (3, "items", 5),
        (3, "media_refs", [None]),
        (5, "children", ["nobody"]),
    ],
)
def test_a_malformed_field_of_an_entry_is_refused_by_place(index: int, key: str, value: Any) -> None:
    entries = json.loads(json.dumps(ENTRIES))
    entries[index][key] = value
    with pytest.raises(InvalidStateError, match=rf"ledger\.entries\[{index}\]"):
        load({**full().to_dict(), "entries": entries})
