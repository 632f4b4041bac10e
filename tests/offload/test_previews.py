from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.offload.previews.making import preview, recognise
from context_compressor.tokens.tiktoken import TiktokenCounter
from tests.offload.counters import ByteCounter, QuarterCounter, WordCounter
from tests.support.strategies import FRAGMENTS

COUNT = TiktokenCounter().count_text
COUNTERS = {
    "qwen": COUNT,
    "quarter": QuarterCounter().count_text,
    "word": WordCounter().count_text,
    "byte": ByteCounter().count_text,
}
LIMITS = st.sampled_from([0, 1, 5, 20, 50, 120, 300])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=60) | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=60,
)
LINES = st.lists(
    st.sampled_from(
        [
            *(
                "",
                "ok",
                "error: no such file /etc/x.conf",
                "错误：找不到配置文件",
                "一行普通的中文文本，没有问题",
            ),
            *("    raise ValueError", "word " * 200, "x" * 3000, "<p>said</p>", "<script>var x;</script>"),
        ]
    ),
    max_size=60,
)
TEXTS = (
    st.lists(st.sampled_from([*FRAGMENTS, "\n", "<!doctype html>", "\\n" * 9])).map("".join)
    | LINES.map("\n".join)
    | JSON_VALUES.map(json.dumps)
    | JSON_VALUES.map(lambda value: json.dumps(value, indent=1, ensure_ascii=False))
)
LEFT_OUT = re.compile(r"\[lines? (\d+)(?:-(\d+))? of (\d+) left out(?:, but for lines with errors:)?\]")


def shown(text: str, max_tokens: int = 200, *, plain: bool = False) -> str:
    return preview(text, max_tokens, COUNT, plain=plain, characters_per_token=len(text) / max(COUNT(text), 1))


def log(lines: int) -> list[str]:
    return [f"12:00:{i % 60:02d} INFO request {i} served" for i in range(1, lines + 1)]


def stands(line: str, source: str) -> bool:
    """Tell whether a shown line is one of the source, or a part of it that is marked as cut."""
    is_cut = line[:1] == "…" or line[-1:] == "…"
    return source == line or (is_cut and line.strip("…") in source)


class TestEveryPreview:
    @pytest.mark.parametrize("counter", COUNTERS)
    @given(text=TEXTS, max_tokens=LIMITS, plain=st.booleans())
    def test_it_fits_and_is_the_same_each_time(
        self, counter: str, text: str, max_tokens: int, plain: bool
    ) -> None:
        made = preview(text, max_tokens, COUNTERS[counter], plain=plain)
        assert COUNTERS[counter](made) <= max_tokens or made == ""
        assert made == preview(text, max_tokens, COUNTERS[counter], plain=plain)

    @given(lines=LINES, max_tokens=LIMITS)
    def test_lines_stand_in_the_text_and_numbers_are_right(self, lines: list[str], max_tokens: int) -> None:
        lines = [line for line in lines if len(line) <= 1000]
        if recognise("\n".join(lines))[0] != "text":
            return
        made = shown("\n".join(lines), max_tokens)
        mark = LEFT_OUT.search(made)
        if mark is None:
            parts = [part for part in made.split("\n") if not re.match(r"\[columns \d+-\d+ of line", part)]
            assert made == "" or all(any(part.strip("…") in line for line in lines) for part in parts)
            return
        first, last = int(mark[1]), int(mark[2] or mark[1])
        assert int(mark[3]) == len(lines)
        head, tail = made[: mark.start()].removesuffix("\n"), made[mark.end() :].removeprefix("\n")
        if "errors" in mark[0]:
            picked, _, tail = tail.partition("\n[…]\n")
            for line in picked.split("\n"):
                number, _, said = line.partition(": ")
                assert stands(said, lines[int(number) - 1])
        shown_head = head.split("\n") if head else []
        # Blank lines at either end of a preview are not shown.
        assert all(map(stands, reversed(shown_head), reversed(lines[: first - 1])))
        assert all(map(stands, tail.split("\n") if tail else [], lines[last:]))

    @pytest.mark.parametrize("text", ["", "\n", "\n" * 5000, " " * 100_000, "\t\n" * 5000])
    def test_blank_texts_have_next_to_none(self, text: str) -> None:
        assert len(preview(text, 200, COUNT).strip()) < 60

    def test_no_tokens_no_preview(self) -> None:
        assert preview("text", 0, COUNT) == ""
        assert preview('{"a": 1}', -5, COUNT) == ""

    @pytest.mark.parametrize("max_tokens", [100, 200, 500, 2000])
    def test_an_ordinary_preview_is_well_filled(self, max_tokens: int) -> None:
        for text in (
            "\n".join(log(3000)),
            json.dumps([{"id": i, "name": f"parcel {i}"} for i in range(900)]),
        ):
            assert COUNT(shown(text, max_tokens)) > 0.75 * max_tokens

    @pytest.mark.parametrize(
        "unit",
        ["<a ", "<!--", "error ", "\\u", "\\n", "[1,", "{}\n", "x.y = 1; ", "Error:\n", "错误", '{"a":', "<"],
    )
    def test_little_is_counted_and_work_grows_with_the_text_only(self, unit: str) -> None:
        """Texts that make parsers and patterns slow are no exception: with quadratic work this never ends."""
        counted = 0

        def count(text: str) -> int:
            nonlocal counted
            counted += len(text)
            return len(text) // 4

        for start in ("", "<html>"):
            preview(start + unit * (1_000_000 // len(unit)), 200, count)
        assert counted < 100_000

    def test_colours_of_terminals_are_left_out(self) -> None:
        made = shown("\n".join(f"\x1b[1mrow\x1b[0m {i} \x1b[32mok\x1b[0m" for i in range(400)))
        assert made.startswith("row 0 ok\nrow 1 ok\n")
        assert "\x1b" not in made


class TestText:
    def test_head_and_tail_and_between_them_what_was_left_out(self) -> None:
        lines = log(1000)
        made = shown("\n".join(lines), 300)
        mark = LEFT_OUT.search(made)
        assert made[: mark.start() - 1].split("\n") == lines[: int(mark[1]) - 1]
        assert made[mark.end() + 1 :].split("\n") == lines[int(mark[2]) :]
        assert int(mark[2]) < 1000 == int(mark[3])

    def test_a_text_with_room_for_all_of_it_is_shown_as_it_is(self) -> None:
        text = "first\n\n  second\n第三行"
        assert shown(text) == text

    @pytest.mark.parametrize(
        "line",
        [
            *("ValueError: boom", "Traceback (most recent call last):", "tests/test_a.py::test_x FAILED"),
            *("FATAL: disk gone", "src/a.c:10:5: error: no semicolon", "permission denied: /root"),
            *("--- FAIL: TestPrice (0.00s)", "npm error code ELIFECYCLE", "编译失败：缺少文件", "发生错误"),
            "12:00:07 ERROR cannot reach the depot",
        ],
    )
    def test_a_line_that_tells_of_an_error_stands_under_its_number(self, line: str) -> None:
        lines = log(1000)
        lines[500] = line
        assert f"left out, but for lines with errors:]\n501: {line}\n[…]\n" in shown("\n".join(lines))

    @pytest.mark.parametrize(
        "line",
        [
            *("0 errors", "finished without errors", "12 passed, 0 failed", "errors: 0", "src/errors.py"),
            *("    raise ValueError", "\texcept OSError:", "raise KeyError(name)", "error_count", "没有问题"),
        ],
    )
    def test_a_line_about_no_error_and_a_name_in_code_are_not(self, line: str) -> None:
        lines = log(1000)
        lines[500] = line
        assert "501:" not in shown("\n".join(lines))

    def test_of_many_errors_the_first_and_the_last_are_shown(self) -> None:
        lines = log(3000)
        for i in range(500, 2500, 7):
            lines[i] = f"error: number {i}"
        assert "\n501: error: number 500\n2496: error: number 2495\n" in shown("\n".join(lines), 300)

    def test_a_message_shows_head_and_tail_only(self) -> None:
        lines = log(1000)
        lines[500] = "error: disk gone"
        assert "error" not in shown("\n".join(lines), plain=True)

    @pytest.mark.parametrize("max_tokens", [200, 1000])
    def test_one_enormous_line_shows_head_and_tail(self, max_tokens: int) -> None:
        text = "HEAD " + "x = f(y); " * 20_000 + "TAIL"
        head, mark, tail = shown(text, max_tokens).split("\n")
        found = re.fullmatch(r"\[columns (\d+)-(\d+) of line 1 left out\]", mark)
        assert (head, tail) == (text[: int(found[1]) - 1], text[int(found[2]) :])
        assert COUNT(head) > 0.4 * max_tokens

    def test_a_long_line_among_many_is_cut_and_marked(self) -> None:
        made = shown("\n".join(["x" * 4000, *log(100)]), 300)
        assert re.match(r"x{100,240}…\n12:00:01 INFO", made)


class TestTextInsideText:
    def test_escapes_are_resolved(self) -> None:
        inner = "\n".join(f'{i}: say "包裹 {i}"' for i in range(300))
        made = shown(json.dumps([json.dumps({"said": inner})]))
        assert '\n1: say "包裹 1"\n2: say' in made
        assert re.search(r"\[columns \d+-\d+ of line 1 left out\]", made)

    def test_code_that_writes_some_escapes_stays_as_it_is(self) -> None:
        assert 'print("a\\n")\n' in shown('print("a\\n")\n' * 500)

    @pytest.mark.parametrize("between", ["\n", ""])
    def test_html_is_shown_without_tags_and_scripts(self, between: str) -> None:
        rows = [f"<div class='row'><p>Parcel <b>{i}</b> &amp; its 司机</p></div>" for i in range(200)]
        head = "<!DOCTYPE html><html><style>p { color: red }</style><script>if (a < b) c();</script>"
        made = shown(between.join([head, "<body>", *rows, "</body></html>"]))
        assert "Parcel 0 & its 司机\n" in made
        assert "Parcel 199 & its 司机" in made
        assert not re.search(r"[<>{}]|color|\bc\(\)", made)
        mark = LEFT_OUT.search(made)
        assert (mark is None) == (between == "")
        if mark:
            assert f"Parcel {int(mark[1]) - 4} &" in made[: mark.start()].split("\n")[-2]
            assert int(mark[3]) == 203
        else:
            assert re.search(r"\[\d+ of 200 lines of its text left out\]", made)


class TestJson:
    def test_the_shape_with_counts_and_first_items(self) -> None:
        items = [{"id": f"ORD-{i:04d}", "name": f"包裹 {i}", "price": i * 1.5} for i in range(300)]
        made = shown(json.dumps({"items": items, "total": 300, "next": None}), 120)
        first = (
            '{"items": [300 objects: {"id": "ORD-0000", "name": "包裹 0", "price": 0.0}, {"id": "ORD-0001", '
        )
        assert made.startswith(first)
        assert re.search(r", … \d+ more\], \"total\": 300, \"next\": null\}$", made)

    def test_what_counts_as_more_was_left_out(self) -> None:
        made = shown(json.dumps([{"id": i, "text": "word " * 20} for i in range(200)]), 300)
        more = re.search(r"… (\d+) more\]$", made)
        assert made.count('"id": ') + int(more[1]) == 200

    def test_short_values_are_shown_whole_before_long_texts(self) -> None:
        page = {
            "title": "Where parcels go",
            "url": f"https://depot.example/{'lane/' * 12}",
            "body": "x " * 4000,
        }
        made = shown(json.dumps([page] * 9))
        assert page["url"] in made
        assert '…" (8000 characters)' in made

    def test_a_small_document_is_shown_whole(self) -> None:
        text = '{"a": [1, 2.50, -3e10, true, null, "x\\n\\u00e9"], "b": {}, "c": []}'
        assert shown(text, 500) == '{"a": [1, 2.50, -3e10, true, null, "x\\né"], "b": {}, "c": []}'

    def test_keys_without_room_are_named_and_counted(self) -> None:
        made = shown(json.dumps({f"key_{i}": i for i in range(5000)}))
        assert made.startswith('{"key_0": 0, "key_1": 1')
        assert re.search(r"… \d+ more: key_\d+, .*…\}$", made)

    def test_huge_numbers_are_shown_as_written(self) -> None:
        made = shown(f"[{'9' * 5000}, 1e999, NaN]", 300)
        assert "1e999, NaN" in made
        assert "999…" in made

    @pytest.mark.parametrize(
        "text",
        [
            *(
                "plain",
                "[INFO] starting",
                "{'python': 1}",
                '{"a": 1} trailing',
                '{"a": 1}\n{"b": 2}',
                '"string"',
            ),
            *("[" * 100_000, "[" * 101 + "]" * 101, json.dumps(["x" * 2_100_000])),
        ],
    )
    def test_what_is_not_json_or_too_deep_or_too_large_is_plain_text(self, text: str) -> None:
        assert recognise(text)[0] == "text"
        assert shown(text, 40).startswith(text[:5])

    def test_half_a_surrogate_pair_stays_an_escape(self) -> None:
        data = {"cut \ud83d": ["half \ud83d", "whole \U0001f600"], "\udc00 key": {"inner \ud800": 1}}
        made = preview(json.dumps(data), 500, COUNT)
        assert json.loads(made) == data
        for max_tokens in range(5, 120, 5):
            preview(json.dumps(data), max_tokens, COUNT).encode()
