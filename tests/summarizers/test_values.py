"""Values of a model's that nothing shows are marked, and lose their mark once something does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.mutations import KINDS, made, measure
from context_compressor.errors import SummaryRejectedError
from context_compressor.summarizers.check import check_values
from context_compressor.summarizers.notes import Notes
from context_compressor.summarizers.prompts import material_text
from context_compressor.summarizers.values import MARK, Shown, marked, unmarked
from context_compressor.summarizers.writers import NotesWriter
from tests.summarizers.support import PieceCounter, Scripted, request, segment, user

MATERIAL = Shown("""\
[user]
 Do not change the API in src/api/users.py. Order #W8841 ($1,249.50) for Mei Lin by 2026-03-05, 09:05.
[call of edit]
 {"path": "/repo/src/utils/dates.py", "new": "def parse_date(value):\\n    return 1", "port": 5432}
[result of pytest]
 12 passed, 3 failed in 4.20s; tests/test_dates.py:120 AssertionError: expected '+02:00'
 87.5% covered, 12,000 rows, scanned 2026-01-07T13:20, context: 280.64MB, 1,370 configurations
 commit 06edada1bd860d28f479 of October 6, 2025, version 3.23.0, score 0.5883, 10000mAh,20 left
 {"command": "sed -e 's/a/\\\\n\\\\told_name(/g'"}
 {"server_name": "filesystem", "tool_name": "move_file"} class ForeignKey: def formfield
 不要拨打电话 13800138000。订单 DD20250117 没有签收。包裹 SF991 已发货。于 2024年3月9日 送达。
""")


def doubted(text: str) -> list[str]:
    """Return the last word before each mark."""
    return [part.split()[-1] for part in marked(text, MATERIAL).split(MARK)[:-1]]


@pytest.mark.parametrize(
    "right",
    [
        'order W8841, 5\'3" / 12 km, 9" and 5" wide',
        "order W8841 and #W8841, $1249.50, 1,249.5 and 1249.50 USD",
        "until 5/3/2026, 2026-3-5, at 9:05 and 09:05, scanned 2026-01-07T13:20, 2025-10-06, 2024-03-09",
        "utils/dates.py, dates.py, `src/utils/dates.py`, /repo/src/utils/dates.py, "
        "/repo/src/api/users.py, ./src/api",
        "line 120 of test_dates.py; test_dates.py:120",
        "\"def parse_date(value): return 1\" and “expected +02:00”, '+02:00'",
        '"def parse_date ... return 1", "AssertionError: … +02:00"',
        '"12 passed, 3 failed tests/test_dates.py"',
        "12 of them passed, 3 of 5 failed, 4.2 s, 4.20s, 87.5 % and 87.5%, 12k rows, 12000 rows, the 2nd try",
        "280 MB, 281MB, 1,400 configurations, 1.4k, 1.37 thousand, 0.59, 10,000 mAh, ^3.23, 06edada1bd86",
        "120-280, $1,249.50–5432, W8841-SF991",
        "filesystem/move_file and ForeignKey.formfield",
        "1. one\n2. two\n11. eleven\n- 7 files, 2 customers",
        "11 passed, 13 failed, 99 in all",
        "Ordinary words and/or client/server, e.g. these, don't count; passed/failed/scanned.",
        "订单DD20250117的电话13800138000",
        "port=5432, port:5432, (5432), **5432**, `5432`",
        "a value that is cut short, src/uti…, …dec/ba92 and 471 …",
        r"the call of sed: s/a/\n\told_name(/g, lines joined by \n\n",
    ],
)
def test_what_can_be_put_together_from_what_stands_there_has_no_mark(right: str):
    assert doubted(right) == []


@pytest.mark.parametrize(
    ("wrong", "values"),
    [
        ("order W8842 for $1,249.40", ["W8842", "$1,249.40"]),
        ("until 2026-03-06 at 9:06, 2025-10-07", ["2026-03-06", "9:06,", "2025-10-07"]),
        ("src/utlis/dates.py and tests/api/dates.py", ["src/utlis/dates.py", "tests/api/dates.py"]),
        ("line 121 of test_date.py", ["121", "test_date.py"]),
        ("`parse_dates` and **parse_time**", ["`parse_dates`", "**parse_time**"]),
        ('"def parse_date(value): return 2" holds', ['2"']),
        ('"AssertionError: … +03:00"', ['+03:00"']),
        (
            "电话 13800138001，订单 DD20250118，“订单 已发货 没有 签收”。",
            ["13800138001", "DD20250118", "签收”"],
        ),
        ("111 passed, 113 failed, 150 of 300", ["111", "113", "150", "300"]),
        ("290 MB, some 1,500 configurations, 0.57", ["290", "1,500", "0.57"]),
        ("120-283, W8841-SF992", ["120-283", "W8841-SF992"]),
        ("filesystem/copy_file", ["filesystem/copy_file"]),
    ],
)
def test_what_stands_nowhere_is_marked_behind_it(wrong: str, values: list[str]):
    assert [word.rstrip(",") for word in doubted(wrong)] == [value.rstrip(",") for value in values]


def test_a_mark_goes_when_a_later_part_shows_the_value_and_no_other_goes():
    text = '- order W8877 (?) and "is open now" (?), **W8878** (?), W8841, whose (?) is that'
    later = Shown("order W8877\n... W8878 (?) is open now")
    assert unmarked(text, later) == '- order W8877 and "is open now", **W8878** (?), W8841, whose (?) is that'
    assert unmarked(text, Shown("")) == text


@given(st.text(alphabet='ab1 2,./:-_"`不。\n', max_size=300), st.text(alphabet="ab1 2,.\n", max_size=50))
def test_marks_are_set_and_taken_away_without_touching_the_text(text: str, shown: str):
    assert marked(text, Shown(text)) == text
    told = marked(text, Shown(shown))
    assert told.replace(MARK, "") == text
    assert unmarked(told, Shown(text)) == text
    assert unmarked(told, Shown(shown)) == told


@pytest.mark.parametrize("remote", [True, False])
async def test_only_what_a_model_wrote_is_marked(remote: bool):
    writer = Scripted("- order W8842 is open", remote=remote)
    asked = request(user("order W8841 is open"))
    written = await NotesWriter(writer, PieceCounter(), None).write(asked, Notes())
    assert (MARK in written.notes.text()) is remote


@pytest.mark.parametrize("field", ["previous", "request", "note", "instructions"])
def test_all_that_the_model_was_shown_is_material(field: str):
    earlier = segment("- order W8877 (?) is open, W8878 is shut")
    asked = request(user("hi"), earlier, context=(user("W1x"),), **{field: "W8841"})
    said = 'W8841, W1x, W8877 (?) and W8878; see "State and next steps" and “用户的指示”'
    assert check_values(said, Shown(material_text(asked))) == said


def test_a_summary_that_is_made_up_is_refused():
    ids = [f"W{n}" for n in range(1000, 1030)]
    shown = Shown(" ".join(ids))
    others = " X100 X200 X300 X400"
    assert check_values(" ".join(ids) + others + " X500", shown).count(MARK) == 5
    with pytest.raises(SummaryRejectedError, match="5 of its 20 ids, paths and quotes"):
        check_values(" ".join(ids[:15]) + others + " X500", shown)
    assert check_values(others, shown).count(MARK) == 4


@pytest.mark.parametrize("piece", ["a_1 ", "1,2,", '"a b" ', "不 1。"])
def test_a_long_text_is_read_in_linear_time(piece: str):
    text = piece * (2**17 // len(piece))
    marked(text, Shown("nothing"))
    unmarked("a_1 (?) 12", Shown(text))


def test_of_a_thousand_mutations_nearly_all_are_marked_and_no_right_value():
    figures = measure(made(250, seed=7), 1_000, seed=7)
    assert figures.made.total() == 1_000
    assert {kind: figures.caught[kind] >= 0.95 * figures.made[kind] for kind in KINDS} == dict.fromkeys(
        KINDS, True
    )
    assert figures.mistaken == []
