"""Values of a model's summary that its material does not hold are marked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.mutations import KINDS, measure
from context_compressor.errors import SummaryRejectedError
from context_compressor.summarizers.checking import check_values, summarize_checked
from context_compressor.summarizers.values import MARK, mark_values
from tests.summarizers.support import PieceCounter, Scripted, request, segment, user

MATERIAL = """\
[user]
 Do not change the API in src/api/users.py. Order #W8841 ($1,249.50) for Mei Lin by 2026-03-05, 09:05.
[call of edit]
 {"path": "/repo/src/utils/dates.py", "new": "def parse_date(value):\\n    return 1", "port": 5432}
[result of pytest]
 12 passed, 3 failed in 4.20s; tests/test_dates.py:120 AssertionError: expected '+02:00'
 87.5% covered, 12,000 rows, scanned 2026-01-07T13:20
 不要拨打电话 13800138000。订单 DD20250117 没有签收。包裹 SF991 已发货。
"""


def marked(summary: str, material: str = MATERIAL) -> list[str]:
    """Return the last word before each mark."""
    parts = mark_values(summary, material).text.split(MARK)[:-1]
    return [part.split()[-1] for part in parts]


@pytest.mark.parametrize(
    "right",
    [
        "order W8841 and #W8841, $1249.50, 1,249.5 and 1249.50 USD",
        "until 5/3/2026, 2026-3-5, at 9:05 and 09:05, scanned 2026-01-07T13:20",
        "utils/dates.py, dates.py, `src/utils/dates.py`, /repo/src/utils/dates.py, "
        "/repo/src/api/users.py, ./src/api",
        "line 120 of test_dates.py; test_dates.py:120",
        "\"def parse_date(value): return 1\" and “expected +02:00”, '+02:00'",
        '"def parse_date ... return 1"',
        "12 of them passed, 3 of 5 failed, 4.2 s, 4.20s, 87.5 % and 87.5%, 12k rows, 12000 rows, the 2nd try",
        "1. one\n2. two\n11. eleven\n### 4711 in a heading\n- 7 files, 2 customers",
        "11 passed, 13 failed, 99 in all",
        "Ordinary words and/or client/server, e.g. these, don't count.",
        "订单DD20250117的电话13800138000",
        "port=5432, port:5432, (5432), **5432**, `5432`",
        "a value that is cut short, src/uti… and 471 …",
    ],
)
def test_another_writing_of_a_value_is_the_same_value(right: str):
    assert marked(right) == []


@pytest.mark.parametrize(
    ("wrong", "values"),
    [
        ("order W8842 for $1,249.40", ["W8842", "$1,249.40"]),
        ("until 2026-03-06 at 9:06", ["2026-03-06", "9:06"]),
        ("src/utlis/dates.py and src/api/dates.py", ["src/utlis/dates.py", "src/api/dates.py"]),
        ("line 121 of test_date.py", ["121", "test_date.py"]),
        ("`parse_dates` and **parse_time**", ["`parse_dates`", "**parse_time**"]),
        ('"def parse_date(value): return 2" holds', ['2"']),
        ("电话 13800138001，订单 DD20250118。", ["13800138001", "DD20250118"]),
        ("111 passed, 113 failed", ["111", "113"]),
    ],
)
def test_what_the_material_does_not_hold_is_marked_behind_it(wrong: str, values: list[str]):
    assert marked(wrong) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("- Change the API in src/api/users.py.", ["src/api/users.py"]),
        ("- The API in src/api/users.py must not change.", []),
        ("- Keep the API in src/api/users.py.", []),
        ("- 拨打电话 13800138000", ["13800138000"]),
        ("- 不能拨打电话 13800138000", []),
        ("- 订单 DD20250117 已签收", ["DD20250117"]),
        ("- 包裹 SF991 已发货", []),
        ("- src/api/users.py has the routes of the service", []),
        ("- API: src/api/users.py", []),
    ],
)
def test_a_negation_that_is_lost_marks_the_values_of_its_sentence(text: str, values: list[str]):
    assert [word.rstrip(".") for word in marked(text)] == values


def test_a_number_in_parts_with_a_unit_is_read():
    assert marked("4,2k and 1.2.3m", "nothing") == ["4,2k", "1.2.3m"]


def test_what_is_told_both_ways_is_not_marked():
    told = "Do not delete a_1.csv.\nLater: delete a_1.csv now, it is saved."
    assert marked("- Delete a_1.csv", told) == []


def test_marks_stay_where_an_earlier_summary_has_them_and_are_not_doubled():
    asked = request(segment("- order W8877 (?) is open, W8878 is shut"), user("go on"))
    once = check_values("- order W8877 is open, W8878 is shut", asked)
    assert once == "- order W8877 (?) is open, W8878 is shut"
    assert check_values(once, asked) == once


@pytest.mark.parametrize("remote", [True, False])
async def test_only_what_a_model_wrote_is_marked(remote: bool):
    writer = Scripted("- order W8842 is open", remote=remote)
    summary = await summarize_checked(
        writer, request(user("order W8841 is open")), PieceCounter(), replaced_tokens=99
    )
    assert (MARK in summary.text) is remote


def test_a_summary_that_is_made_up_is_refused():
    ids = [f"W{n}" for n in range(1000, 1030)]
    asked = request(user(" ".join(ids)))
    few = " ".join([*ids, "X100", "X200", "X300", "X400", "X500"])
    assert check_values(few, asked).count(MARK) == 5
    many = " ".join([*ids[:15], "X100", "X200", "X300", "X400", "X500"])
    with pytest.raises(SummaryRejectedError, match="5 of its 20 ids, paths and quotes"):
        check_values(many, asked)
    assert check_values("X100 X200 X300 X400", asked).count(MARK) == 4


@pytest.mark.parametrize("field", ["previous", "request", "note", "instructions"])
def test_all_that_the_model_was_shown_is_material(field: str):
    asked = request(user("hi"), context=(user("W1x"),), **{field: "W8841"})
    assert check_values("W8841, W1x", asked) == "W8841, W1x"


@given(st.text(alphabet='ab1 2,./:-_"`不。\n', max_size=300))
def test_what_is_quoted_word_for_word_has_no_mark(text: str):
    assert mark_values(text, text).marked == 0


@pytest.mark.variants(3)
@pytest.mark.parametrize("piece", ["a_1 ", "1,2,", '"a b" ', "/a", "1:2", "不 1。", "a.b", "-- 1", "…"])
def test_a_megabyte_is_read_in_linear_time(piece: str):
    text = piece * (2**19 // len(piece))
    mark_values(text, "nothing")
    mark_values("a_1 12", text)


def test_of_a_thousand_mutations_nearly_all_are_marked_and_hardly_a_right_value():
    figures = measure(1_000, seed=7)
    caught = {kind: figures.caught[kind] / figures.made[kind] for kind in KINDS}
    assert figures.made.total() == 1_000
    assert caught["digit"] >= 0.95
    assert caught["path"] >= 0.95
    assert caught["negation"] >= 0.9
    assert caught["negation in Chinese"] >= 0.9
    assert figures.mistaken <= 0.005 * figures.values
