import pytest

from context_compressor.summarizers.prompts import template
from context_compressor.summarizers.sections import (
    SECTIONS,
    drop_least,
    is_chinese,
    is_placeholder,
    parse_sections,
    render_sections,
)


@pytest.mark.parametrize("chinese", [False, True])
def test_what_is_rendered_is_read_back(chinese: bool):
    lines = {section.key: [f"{section.key} one", f"{section.key} two"] for section in SECTIONS}
    assert parse_sections(render_sections(lines, chinese=chinese)) == lines


def test_headings_are_known_in_the_forms_that_models_write():
    text = "**Goal:**\n- a\n# FAILURES\n* b\n3. State and next steps\n1. c\n### 已完成：\n- d"
    assert parse_sections(text) == {"goal": ["a"], "failures": ["b"], "state": ["c"], "done": ["d"]}


def test_headings_of_the_first_version_are_still_read():
    text = "## Facts and values\n- a\n## In progress\n- b\n## Next steps\n- c\n## 用户的指示与约束\n- d"
    assert parse_sections(text) == {"done": ["a"], "state": ["b", "c"], "instructions": ["d"]}


LONG = (
    "## Goal\n- ship it\n\n## Decisions\n- d1\n- d2\n\n"
    "## Done\n- a.py\n- b.py\n- c.py\n\n## State and next steps\n- s1"
)


def test_what_is_too_long_loses_the_ends_of_the_sections_that_matter_least():
    def shortened(characters: int) -> str:
        return drop_least(LONG, lambda text: len(text) <= characters)

    assert shortened(len(LONG)) == LONG
    assert shortened(len(LONG) - 1) == LONG.replace("\n- c.py", " …")
    without_done = LONG.replace("## Done\n- a.py\n- b.py\n- c.py\n\n", "")
    assert "## Done" not in shortened(len(without_done) + 2)
    assert "- d1 …" in shortened(len(without_done) - 2)
    assert shortened(60) == "## Goal\n- ship it\n\n## State and next steps\n- s1"
    assert shortened(20) == "## Goal\n- ship it"
    assert shortened(3) == ""


def test_a_free_form_summary_is_kept_as_what_was_done():
    text = "The user wants tea.\n\n## Something else\nIt is green."
    assert parse_sections(text) == {"done": ["The user wants tea.", "It is green."]}


@pytest.mark.parametrize(
    "line", ["", "-", "- None", "N/A", "null", "(none)", "**None.**", "...", "无", "- 暂无。", "[]"]
)
def test_placeholders_say_nothing(line: str):
    assert is_placeholder(line)


@pytest.mark.parametrize("line", ["none of the tests failed", "0", "无法连接", "null pointer in main"])
def test_lines_that_merely_begin_like_placeholders_are_kept(line: str):
    assert not is_placeholder(line)


def test_the_template_says_nothing():
    assert parse_sections(template(chinese=False)) == {}
    assert parse_sections(template(chinese=True)) == {}


def test_language_is_that_of_most_of_the_text():
    assert is_chinese(["请修复 parse_date 的时区错误，谢谢"])
    assert not is_chinese(["please fix the time zone of parse_date, thank you", "好"])
    assert not is_chinese([])


@pytest.mark.parametrize(
    "said",
    [
        "配送先の住所は変えないでください。受取人は田中美咲さんです。",
        "交換手続きが完了しました。受付番号 RX-77120、3月11日発送予定",
        "주문번호를 확인해 주세요 主文",
        "أرسل الفاتورة إلى 田中 من فضلك",
        "Перенеси встречу с 田中美咲 на четверг",
    ],
)
def test_other_languages_with_chinese_characters_are_not_taken_for_chinese(said: str):
    assert not is_chinese([said])
