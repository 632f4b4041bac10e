import pytest

from context_compressor.summarizers.check import says_something
from context_compressor.summarizers.prompts import template
from context_compressor.summarizers.sections import (
    SECTIONS,
    is_chinese,
    is_placeholder,
    section_of_heading,
)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        *(
            (f"## {title}", section.key)
            for section in SECTIONS
            for title in (section.english, section.chinese)
        ),
        *(("**Goal:**", "goal"), ("# FAILURES", "failures"), ("3. State and next steps", "state")),
        *(("### 已完成：", "done"), ("## Something else", None), ("Goal", None), ("- done", None)),
        *(("## In progress", "state"), ("## Next steps", "state")),
        *(("## 用户的指示与约束", "instructions"), ("## User’s instructions", "instructions")),
    ],
)
def test_headings_are_known_in_the_forms_that_models_write_and_of_the_first_version(
    line: str, key: str | None
):
    assert section_of_heading(line) == key


@pytest.mark.parametrize(
    "line", ["", "-", "- None", "N/A", "null", "(none)", "**None.**", "...", "无", "- 暂无。", "[]"]
)
def test_placeholders_say_nothing(line: str):
    assert is_placeholder(line)


@pytest.mark.parametrize("line", ["none of the tests failed", "0", "无法连接", "null pointer in main"])
def test_lines_that_merely_begin_like_placeholders_are_kept(line: str):
    assert not is_placeholder(line)


def test_the_template_says_nothing():
    assert not says_something(template(chinese=False))
    assert not says_something(template(chinese=True))


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
