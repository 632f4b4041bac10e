from __future__ import annotations

import base64
import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.offload.fitting import largest_fitting
from context_compressor.offload.previews import making
from context_compressor.offload.previews.json import show_json
from context_compressor.offload.previews.making import Show, preview
from context_compressor.offload.previews.names import find_names, name_line
from context_compressor.offload.previews.text import show_text
from context_compressor.tokens.tiktoken_counter import TiktokenCounter
from tests.offload.counters import ByteCounter, QuarterCounter, WordCounter
from tests.support.strategies import FRAGMENTS

COUNTER = TiktokenCounter()
COUNT = COUNTER.count_text
COUNTERS = {"qwen": COUNTER, "quarter": QuarterCounter(), "word": WordCounter(), "byte": ByteCounter()}
LIMITS = st.sampled_from([0, 1, 5, 20, 49, 50, 120, 300])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=60) | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=60,
)
TEXTS = (
    st.lists(st.sampled_from([*FRAGMENTS, "\n", "\n\n", "error: no such file /etc/x.conf\n"])).map("".join)
    | st.lists(st.sampled_from(FRAGMENTS), max_size=4).map(lambda parts: "".join(parts) * 60)
    | JSON_VALUES.map(json.dumps)
    | JSON_VALUES.map(lambda value: json.dumps(value, indent=1, ensure_ascii=False))
)


def fitted(show: Show, max_tokens: int) -> str:
    """Return the largest showing that costs at most `max_tokens`."""
    return show(largest_fitting(lambda n: COUNT(show(n)), max_tokens * 16, max_tokens, max_tokens * 3))


def shown_text(text: str, max_tokens: int, *, errors: bool = True) -> str:
    return fitted(show_text(text, errors=errors), max_tokens)


def shown_json(text: str, max_tokens: int) -> str | None:
    show = show_json(text)
    return show and fitted(show, max_tokens)


def names_of(text: str, shown: str, tokens: int) -> str:
    return name_line(find_names(text, tokens), shown, tokens)


def log(lines: int) -> str:
    return "\n".join(f"2024-05-01 12:00:{i % 60:02d} INFO request {i} served" for i in range(1, lines + 1))


class TestEveryPreview:
    @pytest.mark.parametrize("counter", COUNTERS)
    @given(text=TEXTS, max_tokens=LIMITS, plain=st.booleans())
    def test_it_fits_and_is_the_same_each_time(
        self, counter: str, text: str, max_tokens: int, plain: bool
    ) -> None:
        shown = preview(text, max_tokens, COUNTERS[counter].count_text, plain=plain)
        assert COUNTERS[counter].count_text(shown) <= max_tokens or shown == ""
        assert shown == preview(text, max_tokens, COUNTERS[counter].count_text, plain=plain)

    @pytest.mark.parametrize("text", ["", "\n", "\n" * 5000, " " * 100_000, "\t\n" * 5000])
    def test_blank_texts_have_next_to_none(self, text: str) -> None:
        assert preview(text, 200, COUNT).strip() == ""

    def test_no_tokens_no_preview(self) -> None:
        assert preview("text", 0, COUNT) == ""
        assert preview('{"a": 1}', -5, COUNT) == ""

    def test_an_ordinary_preview_is_well_filled(self) -> None:
        text = "\n".join(
            f"{i}: handle_request_{i % 50} in src/module_{i % 30}/file_{i}.py" for i in range(3000)
        )
        for max_tokens in (100, 200, 500, 2000):
            assert COUNTER.count_text(preview(text, max_tokens, COUNT)) > 0.75 * max_tokens

    def test_few_tokens_are_counted(self) -> None:
        class Spy(QuarterCounter):
            counted = 0

            def count_text(self, text: str) -> int:
                self.counted += len(text)
                return super().count_text(text)

        for text in (log(100_000), "x.y = 1; " * 500_000, json.dumps([{"id": i} for i in range(50_000)])):
            spy = Spy()
            preview(text, 200, spy.count_text)
            assert spy.counted < 100_000 < len(text)

    def test_another_recogniser_is_easily_added(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            making, "RECOGNISERS", {lambda text: (lambda characters: "mine") if "|" in text else None: 0.5}
        )
        assert preview("a|b", 20, COUNT) == "mine"
        assert preview("ab", 20, COUNT) == "[line 1]\nab"


class TestText:
    def test_head_and_tail_stand_under_their_line_numbers(self) -> None:
        text = log(1000)
        shown = shown_text(text, 300)
        blocks = re.findall(r"^\[lines? (\d+)(?:-(\d+))?\]\n((?:(?!\[).*\n?)+)", shown, re.MULTILINE)
        assert len(blocks) == 2
        assert blocks[0][0] == "1"
        assert blocks[-1][1] == "1000"
        lines = text.split("\n")
        for first, last, body in blocks:
            assert body.rstrip("\n").split("\n") == lines[int(first) - 1 : int(last or first)]

    def test_letters_that_grow_in_small_letters_move_nothing(self) -> None:
        assert " error: " in shown_text("İ" * 400 + " error: disk gone" + " İ" * 400, 100)

    @pytest.mark.parametrize(
        "line",
        [
            "ValueError: boom",
            "Traceback (most recent call last):",
            "tests/test_a.py::test_x FAILED",
            "FATAL: disk gone",
            "permission denied: /root",
            "--- FAIL: TestPrice (0.00s)",
            "FAIL\tgithub.com/shop/price\t0.012s",
            "not ok 17 - the price is right",
            "Program received signal SIGSEGV, Segmentation fault.",
            "npm ERR! code ELIFECYCLE",
            "编译失败：缺少文件",
            "发生错误",
            "web-2    0/1     CrashLoopBackOff   12",
            "0a1   job:1   Exited (137) 2 minutes ago   job",
        ],
    )
    def test_a_line_about_an_error_is_kept_with_its_neighbours(self, line: str) -> None:
        lines = log(1000).split("\n")
        lines[500:503] = ["before it", line, "after it"]
        shown = shown_text("\n".join(lines), 300)
        assert f"[lines 501-503]\nbefore it\n{line}\nafter it\n" in shown

    @pytest.mark.parametrize(
        "line",
        ["0 errors", "finished without errors", "12 passed, 0 failed", "errors: 0", "# FAIL:  0", "may fail"],
    )
    def test_a_line_about_no_error_is_not(self, line: str) -> None:
        lines = log(1000).split("\n")
        lines[500] = line
        assert line not in shown_text("\n".join(lines), 300)

    def test_of_many_errors_the_first_and_the_last_are_kept(self) -> None:
        lines = log(3000).split("\n")
        for i in range(500, 2500, 7):
            lines[i] = f"error number {i}"
        shown = shown_text("\n".join(lines), 400)
        assert "error number 500\n" in shown
        assert "error number 2495\n" in shown

    def test_an_error_deep_in_a_long_line_is_shown_there(self) -> None:
        text = "a b c " * 5000 + "FatalError at 0x7f" + " d e f" * 5000
        shown = shown_text(text, 300)
        assert "FatalError" in shown
        assert re.search(r"\[line 1, columns \d+-\d+\]", shown)

    def test_without_errors_head_and_tail_take_it_all(self) -> None:
        lines = log(1000).split("\n")
        lines[500] = "error"
        assert "error" not in shown_text("\n".join(lines), 300, errors=False)

    @pytest.mark.parametrize("max_tokens", [60, 200, 1000])
    def test_one_enormous_line_shows_head_and_tail(self, max_tokens: int) -> None:
        text = "HEAD " + "x = f(y); " * 20_000 + "TAIL"
        shown = shown_text(text, max_tokens)
        assert shown.startswith("[line 1]\nHEAD ")
        assert shown.endswith("TAIL")
        (first, last) = re.findall(r"columns (\d+)-(\d+)\]", shown)[-1]
        assert text[int(first) - 1 : int(last)] == shown.rsplit("\n", 1)[1]

    def test_a_long_line_among_many_is_cut_and_marked(self) -> None:
        lines = ["x" * 400, *log(100).split("\n")]
        shown = shown_text("\n".join(lines), 300)
        assert shown.startswith("[lines 1-")
        assert shown.split("\n")[1] == "x" * 160 + "…"

    def test_chinese_and_code_mixed(self) -> None:
        text = "\n".join(f"第{i}行：调用 load_config('配置_{i}.yaml') 返回正常" for i in range(400))
        shown = shown_text(text, 300)
        assert "第0行：调用 load_config('配置_0.yaml') 返回正常\n" in shown
        assert shown.endswith("第399行：调用 load_config('配置_399.yaml') 返回正常")

    def test_a_turkish_capital_does_not_move_the_error_out_of_its_line(self) -> None:
        text = "\n".join(["İ" * 500] * 30 + ["İİİ error"] + ["İ" * 500] * 30)
        assert "İİİ error" in shown_text(text, 2000)
        assert "İİİ error" in shown_text("İ" * 9000 + f"\nİİİ error\n{log(999)}", 200)


class TestNames:
    def test_names_not_shown_are_listed_the_most_frequent_first(self) -> None:
        text = (
            "src/a.py user_id user_id user_id http://x.org/p?q parseConfig a word Word parseConfig shown_one"
        )
        assert names_of(text, "… shown_one …", 200) == (
            "[also contains: user_id, Word parseConfig, src/a.py, http://x.org/p]"
        )

    def test_the_word_before_a_name_says_what_it_is(self) -> None:
        text = (
            'import { readFileSync } from "node:fs"; {"status": "in_transit"}\n订单号：W-2093 for user_id '
            "getUser someName\nlines\nitem_id my_key = a_key"
        )
        assert names_of(text, "", 200) == (
            "[also contains: import readFileSync, status in_transit, 订单号 W-2093, user_id, getUser, "
            "someName, item_id, my_key, a_key]"
        )

    def test_no_word_is_taken_from_before_a_longer_name_or_from_another_line(self) -> None:
        assert names_of("class PageLoader\n1 PageLoad", "", 200) == (
            "[also contains: class PageLoader, PageLoad]"
        )
        code = json.dumps("see below\n\tdef open_page(x):\n\t\treturn next_page\n\tself\n\tlast_page\n")
        assert names_of(code, "", 200) == "[also contains: def open_page, return next_page, last_page]"
        said = json.dumps("réservation A-2093, call 北京 B-2094, call C-2095")
        assert names_of(said, "", 200) == "[also contains: réservation A-2093, 北京 B-2094, call C-2095]"

    def test_of_a_long_text_too_names_stand_whole_and_beside_their_own_word(self) -> None:
        text = "".join(f"{'before' * (i % 7 + 1)} {'name' * (i % 5 + 1)}_{i:05},\n" for i in range(8000))
        named = names_of(text, "", 100_000).removeprefix("[also contains: ").removesuffix("]").split(", ")
        lines = set(text.split(",\n"))
        assert len(named) > 8
        assert all(name in lines or any(line.endswith(f" {name}") for line in lines) for name in named)

    def test_nothing_to_name_nothing_said(self) -> None:
        assert names_of("only some words here", "", 200) == ""
        assert names_of("user_id", "", 3) == ""

    def test_running_numbers_do_not_push_out_the_rest(self) -> None:
        text = " ".join(f"job-{i:05d} job-{i:05d}" for i in range(1000)) + " the_needle"
        assert "the_needle" in names_of(text, "", 100)

    def test_parts_of_a_page_and_durations_do_not_push_out_the_rest(self) -> None:
        text = " ".join(f"ref=e{i} ref=e{i} took {i}ms {i}ms" for i in range(100, 200)) + " DOC-88127"
        assert (
            names_of(text, "", 60) == "[also contains: ref e100, took 100ms, ref e101, took 101ms, DOC-88127]"
        )

    def test_moments_do_not_push_out_the_rest(self) -> None:
        log = "".join(f"2025-03-04T09:31:{n}Z\n" for n in range(10, 60))
        names = [name.text for name in find_names(f"{log}see part_7 of it", 90)]
        assert names == ["2025-03-04T09:31:10Z", "2025-03-04T09:31:11Z", "part_7"]

    def test_figures_and_ends_of_numbers_are_no_names(self) -> None:
        text = "2024 38.4 50ms 1042 5,500mAh 1,000-1,500 10:4:7 v1.2 200-300 7,100234"
        assert names_of(text, "", 200) == "[also contains: 10:4:7, v1.2, 200-300, 100234]"

    def test_the_digits_of_escapes_are_no_names(self) -> None:
        text = r'{\"\\u6807\\u9898\": \"DD20250001\", "\u7f16\u53f7": "A-20931"} ' * 2
        assert names_of(text, "", 200) == "[also contains: DD20250001, 编号 A-20931]"

    def test_files_with_chinese_names_are_listed_whole(self) -> None:
        text = "-rw-r--r-- 1 销售明细_v2.xlsx\n./项目/服务.py: error\n打开src/服务/用户.py:128，调用os.path"
        assert names_of(text, "", 200) == (
            "[also contains: 销售明细_v2.xlsx, 项目/服务.py, src/服务/用户.py, os.path]"
        )

    def test_of_base64_in_a_text_no_names_are_made(self) -> None:
        data = base64.b64encode(random.Random(1).randbytes(3_000))
        lines = base64.encodebytes(data).decode()
        for text in (f'{{"id": "A-2093", "data": "{data.decode()}"}}', f"key of A-2093:\n{lines}"):
            assert names_of(text, "", 200).removesuffix("]").endswith("A-2093")

    def test_relative_paths_do_not_become_absolute(self) -> None:
        assert names_of("./src/a.py ../lib/b.py /etc/hosts", "", 99) == (
            "[also contains: src/a.py, lib/b.py, /etc/hosts]"
        )

    def test_names_with_letters_of_other_alphabets_stay_whole(self):
        text = "Datei docs/Über_uns.md, «отчёт_2024.xlsx» naïve Größe 订单A-20931号 20°C \ud800"
        assert names_of(text, "", 200) == "[also contains: Datei docs/Über_uns.md, отчёт_2024.xlsx, A-20931]"

    def test_accents_of_every_kind_belong_to_names_of(self) -> None:
        line = names_of("số_điện_thoại, Bu\u0308ro_Pla\u0308ne.pdf", "", 200)
        assert line == "[also contains: số_điện_thoại, Bu\u0308ro_Pla\u0308ne.pdf]"

    def test_letters_that_json_escapes_belong_to_names_of(self) -> None:
        assert "ЗК-03010" in names_of(json.dumps({"номер": "ЗК-03010"}), "", 200)

    def test_closing_tags_and_entities_are_no_names_of(self) -> None:
        assert names_of("<order_id>K-204</order_id> l&#x27;a", "", 200) == "[also contains: order_id, K-204]"

    def test_dates_leave_room_for_names_of(self) -> None:
        table = "\n".join(f"2024-05-{n} K{n}-{n}" for n in range(10, 30))
        assert names_of(table, "", 200).count("2024-") == 5

    def test_base64_is_no_name(self) -> None:
        assert names_of("QUJD" * 1000, "", 100) == ""

    def test_the_time_before_each_line_takes_no_room(self) -> None:
        log = "".join(f"2025-03-04T09:31:{n}.1234567Z step {n} of it\n" for n in range(10, 60))
        shown = preview(log, 60, COUNT)
        assert "[lines 1-" in shown
        assert "\nstep 10 of it\n" in shown
        assert "2025" not in shown

    def test_colours_stick_to_no_name(self) -> None:
        text = "\n".join(f"\x1b[1mrow\x1b[0mauth_{i}x \x1b[32mok\x1b[0m" for i in range(400))
        shown = preview(text, 120, COUNT)
        assert "rowauth_0x ok" in shown
        assert "\x1b" not in shown
        assert "0mauth" not in shown

    def test_a_preview_of_a_log_names_what_its_middle_holds(self) -> None:
        lines = log(1000).split("\n")
        lines[500] = "INFO wrote /var/data/report_final.csv"
        assert "/var/data/report_final.csv" in preview("\n".join(lines), 200, COUNT)


class TestJson:
    def test_the_shape_with_first_and_last_items(self) -> None:
        data = {
            "items": [{"id": f"ORD-{i:04d}", "name": f"thing {i}", "price": i * 1.5} for i in range(300)],
            "total": 300,
            "next": None,
        }
        shown = shown_json(json.dumps(data), 120)
        assert shown is not None
        assert shown.startswith(
            '{"items": [300 objects: {"id": "ORD-0000", "name": "thing 0", "price": 0.0}, '
        )
        assert "ORD-0299" in shown
        assert shown.endswith('"total": 300, "next": null}')

    @pytest.mark.parametrize("written", ["indented", "lines"])
    def test_of_items_left_out_it_says_on_which_lines_they_begin(self, written: str) -> None:
        items = [{"id": 4_000 + i, "tags": ["a", "b"], "text": "word " * 20} for i in range(200)]
        if written == "indented":
            text = json.dumps({"items": items}, indent=1)
        else:
            text = "\n".join(map(json.dumps, items)) + "\n"
        shown = shown_json(text, 300)
        found = re.search(r"… (\d+) more, lines (\d+)-(\d+) …", shown or "")
        assert found is not None
        ids = [int(id) for id in re.findall(r'"id": (\d+)', shown or "")]
        first = next(n for n in range(200) if 4_000 + n not in ids)
        last = first + int(found[1]) - 1
        lines = text.split("\n")
        for place, item in ((int(found[2]), first), (int(found[3]), last)):
            assert f'"id": {4_000 + item},' in "".join(lines[place - 1 : place + 1])

    def test_objects_without_room_for_them_are_told_by_their_titles(self) -> None:
        runs = [
            {"id": n, "name": f"run {n}", "conclusion": "failure" if n == 7 else "success", "body": "x " * 90}
            for n in range(30)
        ]
        shown = preview(json.dumps({"total": 30, "runs": runs}), 80, COUNT)
        assert shown.startswith('{"total": 30, "runs": [30 objects, keys id, name, conclusion, body; name: ')
        assert "name: run 7 (failure); run 0; run 1; run 2" in shown
        same = preview(json.dumps([{**run, "name": "same"} for run in runs[:5]]), 40, COUNT)
        assert same.startswith("[5 objects, keys id, name, conclusion, body]")

    @pytest.mark.parametrize(
        ("key", "level", "word"),
        [
            ("title", "level", "error"),
            ("subject", "severity", "FATAL"),
            ("summary", "levelname", "CRITICAL"),
            ("headline", "conclusion", "timed_out"),
            ("full_name", "status", "failed"),
            ("msg", "state", "crashed"),
            ("message", "level", "panic"),
            ("标题", "status", "failure"),
            ("名称", "level", "Error"),
        ],
    )
    def test_a_title_may_have_many_keys_and_a_failure_many_words(
        self, key: str, level: str, word: str
    ) -> None:
        items = [{key: f"run {n}", level: word if n == 7 else "fine", "body": "x " * 90} for n in range(30)]
        shown = preview(json.dumps({"total": 30, "items": items}), 80, COUNT)
        assert f"; {key}: run 7 ({word}); run 0; run 1" in shown

    @pytest.mark.parametrize(
        ("names", "told"),
        [
            (["a", " b", "c "], "a; b; c"),
            (["a", "b", "c", "", 7, "c", "d\ne", "f"], "a; b; c; f"),
            (["a", "a", "a", {"status": "failed"}], "a"),
            (["a", "b"], ""),
            (["a", "b", "b"], ""),
            (["a", "b", "c\nd"], ""),
            (["a", "", "c", "d", "e"], ""),
            (["a", "b", "c", None], ""),
        ],
    )
    def test_a_list_is_told_by_titles_that_its_first_objects_have_and_that_differ(
        self, names: list[object], told: str
    ) -> None:
        """Or where one says that it failed."""
        runs = [
            {"name": name, "body": {"text": "x " * 90}} if isinstance(name, str | int) else name
            for name in names
        ]
        shown = preview(json.dumps({"runs": runs}), 30, COUNT)
        assert shown.partition("; name: ")[2].removesuffix("]}") == told

    def test_titles_leave_room_for_what_stands_behind_them(self) -> None:
        steps = [{"n": n, "title": f"step {n}", "state": "ok"} for n in range(6)]
        runs = [{"id": n, "name": f"run {n}", "status": "success", "steps": steps} for n in range(80)]
        text = json.dumps({"total": 80, "runs": runs, "next": None, "jobs": runs}, indent=1)
        for tokens in (100, 150, 200, 300, 600):
            shown = preview(text, tokens, COUNT)
            assert shown.startswith('{"total": 80, "runs": [80 objects')
            assert '"next": null, "jobs": [80 objects' in shown

    def test_of_lines_of_a_log_one_that_failed_is_shown(self) -> None:
        lines = [{"level": "error" if n == 50 else "info", "msg": f"batch {n}"} for n in range(200)]
        shown = preview("\n".join(map(json.dumps, lines)), 120, COUNT)
        assert '", … ' not in shown
        assert '{"level": "error", "msg": "batch 50"}' in shown
        assert "more, lines 52-" in shown

    def test_items_in_a_frame_have_no_line_numbers(self) -> None:
        """The lines of what stands in it are not those of the text that is stored."""
        items = json.dumps([{"id": i, "text": "word " * 20} for i in range(200)], indent=1)
        framed = json.dumps({"content": [{"type": "text", "text": items}], "isError": False})
        shown = preview(framed, 300, COUNT)
        assert re.search(r"… \d+ more …", shown)

    def test_items_on_one_line_need_no_line_numbers(self) -> None:
        assert "lines" not in (shown_json(json.dumps(list(range(5_000)), indent=None), 200) or "lines")
        assert "lines" not in (
            shown_json('{"a": 1,\n"b": ' + json.dumps(list(range(5_000))) + "}", 200) or "lines"
        )

    def test_more_room_shows_more(self) -> None:
        text = json.dumps([{"id": i, "text": "word " * 100} for i in range(200)])
        sizes = [len(shown_json(text, max_tokens) or "") for max_tokens in (30, 100, 300, 1000, 3000)]
        assert sizes == sorted(sizes)
        assert sizes[0] < sizes[-1] / 5

    def test_a_small_document_is_shown_whole(self) -> None:
        text = '{"a": [1, 2.50, -3e10, true, null, "x\\n\\u00e9"], "b": {}, "c": []}'
        assert shown_json(text, 500) == '{"a": [1, 2.50, -3e10, true, null, "x\\né"], "b": {}, "c": []}'

    def test_long_strings_are_cut_and_say_how_long_they_are(self) -> None:
        shown = shown_json(json.dumps({"body": "x" * 9000}), 100)
        assert shown is not None
        assert re.fullmatch(r'\{"body": "x+…" \(9000 characters\)\}', shown)

    def test_objects_with_many_keys_name_some_and_count_the_rest(self) -> None:
        shown = shown_json(json.dumps({f"key_{i}": i for i in range(5000)}), 200)
        assert shown is not None
        assert '"key_0": 0' in shown
        assert re.search(r"… \d+ more: key_\d+, ", shown)

    def test_huge_numbers_are_shown_as_written(self) -> None:
        digits = "9" * 5000
        shown = shown_json(f"[{digits}, 1e999, NaN]", 300)
        assert shown is not None
        assert "1e999, NaN" in shown
        assert "999…" in shown

    @pytest.mark.parametrize(
        "text",
        [
            "plain",
            "[INFO] starting",
            "{'python': 1}",
            '{"a": 1} trailing',
            '{"a": 1}\n{"b": 2}',
            '"string"',
            "12",
            "[" * 100_000,
            "[" * 500 + "1" * 10,
            json.dumps(["x" * 2_100_000]),
        ],
    )
    def test_what_is_not_json_is_plain_text(self, text: str) -> None:
        assert shown_json(text, 200) is None
        assert preview(text, 40, COUNT).startswith("[line")

    def test_half_a_surrogate_pair_stays_an_escape(self) -> None:
        data = {
            "cut \ud83d": ["half \ud83d", "whole \U0001f600"],
            "\udc00 key": {"inner \ud800": {"a": {"b": 1}}},
        }
        text = json.dumps(data)
        shown = shown_json(text, 500)
        assert shown is not None
        assert json.loads(shown) == data
        assert "cut \\ud83d" in shown
        for max_tokens in range(5, 120, 5):
            preview(text, max_tokens, COUNT).encode()

    @given(
        st.dictionaries(st.text("k\ud83d\udc00中😀"), st.text("v\ud83d\udc00 ") | st.integers(), min_size=1)
    )
    def test_a_preview_of_ascii_can_be_sent(self, value: dict[str, object]) -> None:
        for max_tokens in (20, 60, 200):
            preview(json.dumps([value] * 9), max_tokens, COUNT).encode()

    def test_deep_nesting_is_shortened(self) -> None:
        depth = 300
        text = '{"a": ' * depth + "1" + "}" * depth
        shown = shown_json(text, 200)
        assert shown is not None
        assert shown.startswith('{"a": {"a": ')
        assert "1 key: a" in shown
