from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from context_compressor.offload.previews.code import show_code
from context_compressor.offload.previews.diagnostics import show_diagnostics
from context_compressor.offload.previews.escaped import show_escaped
from context_compressor.offload.previews.json import show_json
from context_compressor.offload.previews.lines import CHARACTERS_LOOKED_AT, Show
from context_compressor.offload.previews.listing import show_listing
from context_compressor.offload.previews.making import RECOGNISERS, Recogniser, preview
from context_compressor.offload.previews.markup import show_markup
from context_compressor.offload.previews.matches import show_matches
from context_compressor.offload.previews.snapshot import show_snapshot
from context_compressor.offload.previews.table import show_table
from context_compressor.tokens.tiktoken_counter import TiktokenCounter
from tests.support.strategies import FRAGMENTS

COUNT = TiktokenCounter().count_text

PROSE = "\n".join(f"The weather of day {i} was fair, and nobody spoke of work, save once." for i in range(60))
LOG = "\n".join(
    f"2024-05-01 12:00:{i % 60:02d},123 INFO request {i} served in {i % 9} ms" for i in range(200)
)
PYTHON = "\n\n".join(
    f"class Store{i}(Base):\n    def open_{i}(self, path: str) -> None:\n"
    f'        """打开文件 {i}。"""\n        self.path = path\n        return load(path)'
    for i in range(20)
)
GREP = "\n".join(f"src/app/module_{i % 3}.py:{i}: self.load_config('名称_{i}')" for i in range(1, 60))
RUSTC = "   Compiling shop v0.1.0 (/srv/shop)\n" + "\n".join(
    f"error[E0{i % 3}99]: cannot find `名称_{i}` in this scope\n  --> src/part_{i % 4}.rs:{i}:9\n   |\n"
    f"{i} |     let x = 名称_{i}();\n   |             ^^^^ not found\n   |\n"
    f"note: it is private\n  --> src/lib.rs:{i}:1\n"
    for i in range(30)
)
CSV = "id,name,单价,city\n" + "\n".join(f"{i},thing {i},{i * 2}.50,北京" for i in range(200))
COLUMNS = [
    f"{side} {part}" for side in ("buyer", "卖家") for part in ("name", "town", "region", "carrier", "note")
]
WIDE_CSV = ";".join(COLUMNS) + "\n" + "\n".join(";".join(f"v{i}" for _ in COLUMNS) for i in range(99))
JSON_LINES = "\n".join(json.dumps({"id": i, "path": f"/srv/data_{i}.bin"}) for i in range(50))
FIND = "\n".join(f"/srv/shop/{'src' if i % 2 else '文档'}/part_{i % 5}/file_{i}.py" for i in range(60))
MARKDOWN = "\n".join(f"## 章节 {i}\n\nSee [page {i}](https://x.org/docs/{i}) for more.\n" for i in range(30))
HTML = (
    "<html>\n<head><title>Shop</title></head>\n<script>\nvar hidden_name = 1;\n</script>\n<body>\n"
    + "\n".join(f'<li class="row"><a href="/item/{i}">商品 {i} &amp; more</a></li>' for i in range(60))
    + "\n</body>\n</html>"
)
PAGE_HEAD = (
    "<!DOCTYPE html><html><head><title>商品 &amp; more</title>"
    f"<script>{'var hidden_name = 1 < 2;' * 90}</script><style>{'.hidden_name{color:red}' * 9}</style></head>"
)
BLOCKS = """
address article aside blockquote body caption dd details dialog div dl dt fieldset figcaption figure footer
form header hr li main nav ol option pre section summary table title tr ul
"""
PARAGRAPHS = [
    "<h1>Everything</h1>",
    *(f'<p class="row">Paragraph {i} has<br>a <a href="/item/{i}">link</a>.</p>' for i in range(2000)),
]
DIFF = "\n".join(
    f"diff --git a/src/file_{i}.py b/src/file_{i}.py\nindex 1..2 100644\n--- a/src/file_{i}.py\n"
    f"+++ b/src/file_{i}.py\n@@ -10,4 +10,5 @@ def handle_{i}(x):\n     a = 1\n-    b = 旧\n+    b = 新\n"
    f"+    c = {i}\n     return a"
    for i in range(12)
)
PYTEST = (
    "============ test session starts ============\n"
    + "\n".join(f"tests/test_{i}.py ........ [{i}%]" for i in range(60))
    + "\n================= FAILURES =================\n    def test_price():\n>       assert total == 3\n"
    + "E       assert 4 == 3\n\ntests/test_shop.py:12: AssertionError\n"
    + "\n".join(f"captured line {i} about an error" for i in range(80))
    + "\nFAILED tests/test_shop.py::test_price - assert 4 == 3\n====== 1 failed, 480 passed in 2.10s ======\n"
)
TRACE = (
    "\n".join(f"step {i} done, error rate 0.{i}" for i in range(20))
    + "\nTraceback (most recent call last):\n"
    + "".join(
        f'  File "/srv/layer_{i}.py", line {i}, in call_{i}\n    return next_{i}()\n' for i in range(60)
    )
    + "app.errors.StockError: 库存不足 SKU-9931\n"
    + "\n".join(f"step {i} done, error rate 0.{i}" for i in range(20, 40))
)
PRINTED = "content=[Text(text='" + json.dumps({"a": [f"line_{i}\n" for i in range(90)]}, indent=1).replace(
    "\n", "\\n"
)

PLAYWRIGHT = (
    "### Page state\n- Page URL: https://shop.example/cart\n- Page Title: Cart | Shop\n```yaml\n"
    + '- generic [active] [ref=e1]:\n  - heading "Shopping Cart" [level=1] [ref=e2]\n'
    + "\n".join(
        f'  - listitem [ref=e{3 * i}]:\n    - link "商品 {i}" [ref=e{3 * i + 1}] [cursor=pointer]:\n'
        f"      - /url: /item/{i}\n"
        f'    - button "Remove" [ref=e{3 * i + 2}]\n    - text: In stock'
        for i in range(1, 40)
    )
    + '\n  - textbox "Coupon" [ref=e900]\n  - button "Proceed to Checkout" [ref=e901]\n```'
)
AXTREE = "RootWebArea 'Catalog', focused, url='https://it.example/catalog'\n" + "\n".join(
    f"\t[a{4 * i}] row ''\n\t\t[a{4 * i + 1}] heading 'Thing {i}'\n"
    f"\t\t[a{4 * i + 2}] link 'Thing {i}', url='https://it.example/{i}'\n"
    f"\t\t[a{4 * i + 3}] button 'Edit Widget', clickable\n\t\t\tStaticText 'About {i}'"
    for i in range(40)
)

KINDS: dict[Recogniser, list[str]] = {
    show_json: [JSON_LINES],
    show_escaped: [PRINTED],
    show_snapshot: [PLAYWRIGHT, AXTREE],
    show_listing: [FIND],
    show_matches: [GREP],
    show_diagnostics: [RUSTC],
    show_code: [PYTHON],
    show_markup: [MARKDOWN, HTML],
    show_table: [WIDE_CSV],
}
SAMPLES = [text for texts in KINDS.values() for text in texts]
LINES = st.sampled_from(
    [line for text in (*SAMPLES, PROSE, LOG, CSV, DIFF, PYTEST, TRACE) for line in text.split("\n")[:40]]
)
MIXTURES = st.lists(LINES | st.sampled_from(FRAGMENTS) | st.text(max_size=30), max_size=80).map("\n".join)
HOSTILE = [
    "=" * 50_000,
    "[" * 50_000,
    "a/" * 30_000,
    "\\" * 50_000,
    "<a " * 20_000,
    "_" * 50_000,
    "(\n" * 20_000,
    "a a a a {\n" * 9_000,
    f"= {'1 passed ' * 60}=\n" * 500,
    "-rw-r--r-- 1 a " + "b " * 9_000,
    "a.b:1: x\n" * 9_000,
    "├── a\n" * 9_000,
    "[1] a 'b\n" * 9_000,
    '- a "b" [ref=c]\n' * 9_000,
    "diff --git a b\n@@ -1 +1 @@\n" * 5_000,
    "E   x\n" * 9_000 + "1 failed in 1s",
    '{"a": 1}\n' * 9_000,
    "\n" * 20_000 + "x:\n/y/:\n" * 9,
]


def shown_by(recognise: Recogniser, text: str, characters: int = 900) -> str:
    show = recognise(text)
    assert show is not None
    return show(characters)


class TestEveryKind:
    @pytest.mark.parametrize("text", SAMPLES)
    def test_its_own_recogniser_is_the_first_to_know_it(self, text: str) -> None:
        first = next(recognise for recognise in RECOGNISERS if recognise(text) is not None)
        assert text in KINDS[first]

    @pytest.mark.parametrize(
        "text",
        ["", " ", "\n" * 100, "one line", PROSE, LOG, "第一行，没有名字。\n" * 50, CSV, DIFF, PYTEST, TRACE],
    )
    def test_ordinary_texts_are_of_no_kind(self, text: str) -> None:
        assert [recognise for recognise in RECOGNISERS if recognise(text) is not None] == []

    @given(text=MIXTURES, max_tokens=st.sampled_from([1, 10, 60, 200, 900]))
    def test_any_mixture_fits_and_is_the_same_each_time(self, text: str, max_tokens: int) -> None:
        shown = preview(text, max_tokens, COUNT)
        assert COUNT(shown) <= max_tokens or shown == ""
        assert shown == preview(text, max_tokens, COUNT)

    @pytest.mark.parametrize("recognise", RECOGNISERS)
    @given(text=MIXTURES, characters=st.integers(-5, 3000))
    @example(text="\n", characters=0)
    def test_none_raises_whatever_the_room(
        self, recognise: Callable[[str], Show | None], text: str, characters: int
    ) -> None:
        show = recognise(text)
        if show is not None:
            assert show(characters) == show(characters)

    @pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:12]))
    def test_hostile_texts_are_shown_too(self, text: str) -> None:
        assert 0 < COUNT(preview(text, 200, COUNT)) <= 200

    @pytest.mark.parametrize("text", SAMPLES)
    def test_more_room_shows_more(self, text: str) -> None:
        sizes = [len(preview(text, max_tokens, COUNT)) for max_tokens in (40, 120, 400)]
        assert sizes == sorted(sizes)


class TestCode:
    def test_definitions_stand_under_the_lines_they_span(self) -> None:
        shown = shown_by(show_code, PYTHON, 300)
        assert shown.startswith("[line 1]\nclass Store0(Base):\n[lines 1-")
        assert "class Store0, " in shown
        assert "class Store1" in shown

    def test_each_name_is_told_once(self) -> None:
        text = "\n".join(
            f"def load(path):\n    return {i}\n\ndef save_{i}(path):\n    pass\n" for i in range(9)
        )
        assert shown_by(show_code, text).count("load") == 2  # in the first line, and among the names

    @pytest.mark.parametrize("number", ["{:6d}\t", "{}:", "{} | ", "{}→"])
    def test_line_numbers_before_the_code_are_seen_through(self, number: str) -> None:
        lines = PYTHON.split("\n")
        text = "\n".join(number.format(i) + line for i, line in enumerate(lines, 1))
        assert "] class Store0, def open_0, class Store1, def open_1" in shown_by(show_code, text)

    @pytest.mark.parametrize(
        ("line", "name"),
        [
            ("async def fetch_all(self):", "fetch_all"),
            ("export default async function loadPage(url) {", "loadPage"),
            ("export interface PageProps {", "interface PageProps"),
            ("\tprivate async handleBash(command: string): Promise<void> {", "handleBash"),
            ("    public static List<String> readAll(Path path) {", "readAll"),
            ("static ast_t* make_pattern(pass_opt_t* opt, ast_t* pattern)\n{", "make_pattern"),
            ("void Store::open(const std::string& path) {", "Store::open"),
            ("func (s *Server) ListenAndServe(addr string) error {", "ListenAndServe"),
            ("type Server struct {", "type Server"),
            ("pub(crate) async fn read_page<T>(input: T) -> Page {", "read_page"),
            ("impl<T> Iterator for Pages<T> {", "impl Iterator"),
            ("trait Shape where Self: Sized {", "trait Shape"),
            ("pub unsafe trait Zeroed {", "trait Zeroed"),
            ("macro_rules! square {", "square"),
            ("pub extern fn malloc(size: usize) ?*u8;", "malloc"),
            ("type Store interface {", "type Store"),
            ("export declare namespace Api {", "namespace Api"),
            ("export const enum Level {", "enum Level"),
            ("export function* walk(tree) {", "walk"),
            ("class Cart extends Base {", "class Cart"),
            ("class Cart implements Shop {", "class Cart"),
            ("class Shop::Cart < Base", "class Shop::Cart"),
            ("module Shop", "module Shop"),
            ("internal record Order(int Id);", "record Order"),
            ("private enum State {", "enum State"),
            ("protected static class Node {", "class Node"),
            ("public final class Util {", "class Util"),
            ("public readonly struct Money {", "struct Money"),
            ("partial class Form : Control {", "class Form"),
            ("sealed class Result {", "class Result"),
            ("abstract class Repo {", "class Repo"),
            ("open class Shape {", "class Shape"),
            ("data class Point(val x: Int, val y: Int)", "class Point"),
            ("override fun size(): Int = items.size", "size"),
            ("fun String.shout(): String {", "String.shout"),
            ("inline namespace v2 {", "namespace v2"),
            ("protocol Drawable {", "protocol Drawable"),
            ("union Value {", "union Value"),
        ],
    )
    def test_definitions_of_many_languages(self, line: str, name: str) -> None:
        body = "    x = compute(y);\n    if (x) {\n        y = x;\n    }\n"
        text = "".join(
            f"{line.replace(name.split()[-1], name.split()[-1] + str(i))}\n{body}" for i in range(9)
        )
        assert f"{name}0, {name}1" in shown_by(show_code, text)

    def test_what_controls_the_flow_defines_nothing(self) -> None:
        text = "if (ready(x)) {\n    run(x);\n} else if (late(x)) {\n    while (wait(x)) {\n    }\n}\n" * 30
        assert show_code(text) is None

    def test_a_brace_below_moves_no_definition_and_a_keyword_holds_for_no_name_without_one(self) -> None:
        text = "int a;\n" + "".join(
            f"void read_{i}(int a)\n{{\n    if (a) {{ b(); }}\n}}\nchar *name_{i}(int a)\n{{\n    b();\n}}\n"
            for i in range(3)
        )
        assert shown_by(show_code, text) == (
            "[line 1]\nint a;\n[lines 2-22] void read_0; name_0, void read_1; name_1, void read_2; name_2"
        )

    def test_a_definition_on_a_line_that_is_cut_is_not_named(self) -> None:
        lines = [f"def handle_{i:05}(x):\n    return x[{i:05}]\n" for i in range(8000)]
        text = f"{'#' * 30}\n{''.join(lines)}"
        cut = text[:CHARACTERS_LOOKED_AT].rpartition("\n")[2]
        assert cut.startswith("def handle_0")
        names = re.findall(r"handle_\d+", shown_by(show_code, text, 10**6))
        assert len(names) > 4000
        assert {len(name) for name in names} == {len("handle_00000")}

    def test_a_function_without_a_name_defines_nothing(self) -> None:
        text = "\n".join(
            f"function open{i}(x) {{\n  x.on('end', async () => {{\n  }});\n}}" for i in range(9)
        )
        assert "open0, open1, open2" in shown_by(show_code, text)
        assert "async" not in shown_by(show_code, text + "\nasync (request) => {\n};")

    def test_prose_about_classes_is_not_code(self) -> None:
        assert (
            show_code("\n".join(f"class number {i} was held, and the def of it was given" for i in range(60)))
            is None
        )


class TestListing:
    def test_the_tree_is_shown_from_its_root_with_counts(self) -> None:
        shown = shown_by(show_listing, FIND, 400)
        assert "[60 files, directories: 12; under /srv/shop/]" in shown
        assert "src/ (30), 文档/ (30)" in shown or "文档/ (30), src/ (30)" in shown
        assert "src/part_1" in shown

    @pytest.mark.parametrize("root", [".", "./shop", "shop", "/srv/shop"])
    @pytest.mark.parametrize("files", [12, 60])
    def test_what_holds_another_path_is_no_file(self, root: str, files: int) -> None:
        paths = [root]
        for name in ("docs", "src", "文档"):
            paths += [f"{root}/{name}", *(f"{root}/{name}/file_{i}.py" for i in range(files // 3))]
        shown = shown_by(show_listing, "\n".join(paths), 300).split("\n")
        assert shown[2] == f"[{files} files, directories: 3; under {root}/]"
        share = files // 3
        assert shown[3].startswith(f"docs/ ({share}), src/ ({share}), 文档/ ({share}), docs/file_0.py, ")

    def test_ls_recursive(self) -> None:
        text = "/srv/shop:\nREADME.md  docs  src\n\n" + "\n\n".join(
            f"/srv/shop/{name}:\na_{i}.py  b_{i}.py\tc_{i}.py"
            for i, name in enumerate(["docs", "src", "src/core", "src/web"])
        )
        shown = shown_by(show_listing, text)
        assert "[13 files, directories: 4; under /srv/shop/]" in shown
        assert "src/ (9), docs/ (3), src/core/, src/web/, README.md" in shown

    def test_the_root_is_what_was_listed_also_where_nearly_all_stands_in_one_directory_of_it(self) -> None:
        blocks = [
            f"/srv/shop/src/part_{i}:\n" + "  ".join(f"file_{n}.py" for n in range(9)) for i in range(60)
        ]
        text = "\n\n".join(["/srv/shop:\nAUTHORS  docs  setup.py  src", *blocks])
        shown = shown_by(show_listing, text, 300)
        assert "under /srv/shop/]" in shown
        assert "src/ (540), src/part_0/" in shown
        assert "AUTHORS, docs, setup.py" in shown_by(show_listing, text, 900)

    def test_ls_long(self) -> None:
        text = "total 40\n" + "\n".join(
            f"{'drwxr-xr-x' if i < 3 else '-rw-r--r--'} 1 root root 4096 May {i + 1:2d} 12:00 {name}_{i}"
            for i, name in enumerate(["目录"] * 3 + ["file"] * 17)
        )
        assert "目录_0/, 目录_1/, 目录_2/, file_3" in shown_by(show_listing, text)

    def test_tree(self) -> None:
        text = (
            ".\n"
            + "\n".join(f"├── part_{i}\n│   ├── one.py\n│   └── two.py" for i in range(10))
            + "\n└── end.txt"
        )
        shown = shown_by(show_listing, text, 200)
        assert "[21 files, directories: 10; under .]" in shown
        assert "part_0/ (2), part_1/ (2)" in shown
        assert "part_0, " not in shown

    @pytest.mark.parametrize(
        "text", ["openapi: 3\n" + "/pets:\n  get: list all pets (one)\n" * 20, "a/b\n" * 3]
    )
    def test_near_misses(self, text: str) -> None:
        assert show_listing(text) is None


class TestMatches:
    def test_files_stand_with_their_counts(self) -> None:
        shown = shown_by(show_matches, GREP)
        assert shown.startswith("[59 matches in 3 files]\n[lines 1-")
        assert "src/app/module_1.py (20): self.load_config('名称_1')" in shown

    def test_a_compiler_says_each_thing_once(self) -> None:
        text = "\n".join(f"src/a.ts({i},5): error TS2304: Cannot find name 'x{i}'." for i in range(80))
        text += "\nsrc/a.ts(90,1): error TS1005: ';' expected."
        shown = shown_by(show_matches, text, 400)
        assert shown.count("TS2304") <= 2
        assert "[line 81]\nerror TS1005: ';' expected." in shown

    def test_blank_matches_do_not_shift_the_lines_behind_them(self) -> None:
        text = "\n".join(f"src/a.py:{i}:{'' if i % 4 == 2 else f'row {i}'}" for i in range(1, 60))
        shown = shown_by(show_matches, text.replace("row 3", "odd"), 400)
        assert "[line 3]\nodd" in shown

    def test_lines_of_a_log_are_shown_with_their_dates_the_first_and_the_last(self) -> None:
        text = "\n".join(
            f"logs/web.log:{i}:2026-03-02T06:{i:02d}:11Z upstream timed out" for i in range(9, 50)
        )
        shown = shown_by(show_matches, text, 400)
        assert "[line 1]\nlogs/web.log (41): 2026-03-02T06:09:11Z upstream" in shown
        assert "[line 41]\n2026-03-02T06:49:11Z upstream" in shown

    def test_each_kind_of_text_comes_before_the_files_with_few_matches(self) -> None:
        text = "\n".join(f"src/part_{i // 3:02d}.py:{i}:import json" for i in range(120))
        shown = shown_by(
            show_matches, f"{text}\nsrc/part_00.py:900:raise KeyError(key)\nsrc/z.py:1:pass", 900
        )
        assert "raise KeyError(key)" in shown
        assert "src/part_30.py" not in shown

    def test_hours_of_a_log_are_no_matches(self) -> None:
        assert show_matches("\n".join(f"12:00:{i % 60:02d} served" for i in range(99))) is None


class TestTable:
    @pytest.mark.parametrize("separator", [";", ",", "\t", " | "])
    def test_all_columns_are_named_where_the_first_line_does_not_fit(self, separator: str) -> None:
        shown = shown_by(show_table, WIDE_CSV.replace(";", separator), 300)
        assert shown.startswith(f"[10 columns: {', '.join(COLUMNS)}]\n")
        assert shown.count("\nv98") == 1

    def test_a_first_line_that_fits_is_said_once(self) -> None:
        assert shown_by(show_table, WIDE_CSV, 900).count("buyer carrier") == 1

    @pytest.mark.parametrize(
        "text",
        [
            WIDE_CSV.partition("\n")[2],
            PROSE,
            "\n".join(f"one, two, {'three, ' * (i % 9)}" for i in range(40)),
            "\n".join(f"the road to town {i};and so on;and so on;nothing else" for i in range(40)),
        ],
    )
    def test_near_misses(self, text: str) -> None:
        assert show_table(text) is None


class TestShare:
    def test_a_shape_is_shown_also_where_names_leave_it_too_little_room(self) -> None:
        routes = [
            {"id": f"route_{n:x}", "seal_number": n, "track": [n / 7, n / 9]}
            for n in range(10**5, 10**5 + 99)
        ]
        text = json.dumps({"type": "FeatureCollection", "features": routes})
        shown = preview(text, 120, COUNT, characters_per_token=len(text) / COUNT(text))
        assert shown.startswith('{"type": "FeatureCollection", "features": [99 objects')


class TestDiagnostics:
    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            (
                "src/{}.cpp:37:9: error: no match for 'x'\n  37 |  a = b;\n     |    ^",
                "src/{}.cpp:37:9: error: no match",
            ),
            (
                "src/{}.cpp:37: undefined reference to `rate()'\n/usr/bin/ld: src/{}.o: in `main':",
                "src/{}.cpp:37: und",
            ),
            (
                "/usr/bin/ld: {}.o:(.text+0x8c): undefined reference to `rate'\n\n",
                "/usr/bin/ld: {}.o:(.text+0x8c): und",
            ),
            (
                "net/x/{}.java:7: error: cannot find symbol\n  symbol: class A",
                "net/x/{}.java:7: error: cannot find",
            ),
            (
                "pkg/{}.py:3: error: Incompatible types  [arg-type]\n    f(x)\n      ^",
                "pkg/{}.py:3: error: Incompat",
            ),
            ("src/{}.ts:4:7 - error TS2322: Type 'A'.\n\n4   x\n    ~", "src/{}.ts:4:7 - error TS2322: Type"),
            ("src\\{}.cs(4,7): error CS0103: No name\n\n", "src\\{}.cs(4,7): error CS0103: No name"),
            (
                "[ERROR] /w/{}.java:[4,7] cannot find symbol\n  symbol:   class A",
                "[ERROR] /w/{}.java:[4,7] cannot",
            ),
            (
                "error[E0277]: no sum\n  --> src/{}.rs:4:7\n   |\n 4 |  x",
                "src/{}.rs:4:7: error[E0277]: no sum",
            ),
            ("F401 [*] `os` unused\n --> pkg/{}.py:4:7\n  |\n4 | x", "pkg/{}.py:4:7: F401 [*] `os` unused"),
            ("/w/src/{}.tsx\n  4:7  error  No x here  no-x\n", "/w/src/{}.tsx:4:7: error: No x here"),
        ],
        ids=["gcc", "gcc-g", "ld", "javac", "mypy", "tsc", "msbuild", "maven", "rustc", "ruff", "eslint"],
    )
    def test_each_file_is_named_with_what_is_wrong_in_it(self, said: str, expected: str) -> None:
        names = [f"part_{i}" for i in range(9)]
        shown = shown_by(show_diagnostics, "\n".join(said.replace("{}", name) for name in names))
        assert [name for name in names if expected.replace("{}", name) not in shown] == []

    def test_errors_come_before_warnings_and_the_last_line_is_told(self) -> None:
        text = "".join(f"a_{i}.c:{i}:1: warning: unused x\n   {i} | int x;\n       ^\n" for i in range(50))
        shown = shown_by(show_diagnostics, f"{text}b.c:1:1: error: expected ';'\nmake: *** Error 1\n", 300)
        assert shown.startswith("[1 error, 50 warnings in 51 files]\na_0.c:0:1: warning: unused x\n")
        assert shown.endswith("b.c:1:1: error: expected ';'\nmake: *** Error 1")

    def test_a_remark_on_an_error_is_no_error(self) -> None:
        assert shown_by(show_diagnostics, RUSTC).startswith("[30 errors in 4 files]\n")

    def test_a_log_of_which_they_are_a_small_part_is_another_text(self) -> None:
        text = "a.c:1:1: warning: x\nb.c:1:1: warning: x\nc.c:1:1: error: x\n"
        assert show_diagnostics(text + "test passed\n" * 200) is None


class TestMarkup:
    def test_headings_and_link_targets(self) -> None:
        shown = shown_by(show_markup, MARKDOWN)
        assert shown.startswith("[line 1]\n## 章节 0\n[line 3]\npage 0 https://x.org/docs/0\n")

    def test_tags_and_scripts_are_left_out(self) -> None:
        shown = shown_by(show_markup, HTML)
        assert "hidden_name" not in shown
        assert "<" not in shown
        assert "商品 0 & more /item/0" in shown

    def test_a_page_with_a_script_in_its_middle_is_one(self) -> None:
        script = "\n".join(f"  rows[{i}] = load(names[{i}])" for i in range(200))
        page = HTML.replace("</html>", f"<script>\n{script}\n</script>\n</html>")
        assert "商品 0 & more /item/0" in shown_by(show_markup, page)
        assert "rows[" not in shown_by(show_markup, page)

    def test_a_page_on_one_line_is_read_by_its_blocks(self) -> None:
        for text in (PAGE_HEAD + "".join(PARAGRAPHS), f"{PAGE_HEAD}\n{''.join(PARAGRAPHS)}\n</body>"):
            shown = shown_by(show_markup, text, 200).split("\n")
            assert shown[:3] == ["[tags left out]", "商品 & more", "Everything"]
            assert "a link . /item/0" in shown
            assert "hidden" not in shown_by(show_markup, text, 9000)
            assert preview(text, 200, COUNT).startswith("\n".join(shown[:3]))

    @pytest.mark.parametrize("tag", BLOCKS.split())
    def test_a_page_on_one_line_breaks_where_a_browser_breaks_it(self, tag: str) -> None:
        page = "<html>" + "".join(f"<{tag}>Part {i} <b>and</b> more" for i in range(200))
        assert "\nPart 1 and more\nPart 2 and more\n" in shown_by(show_markup, page, 200)

    def test_a_head_on_one_line_hides_no_other(self) -> None:
        shown = shown_by(show_markup, "\n".join([PAGE_HEAD, *PARAGRAPHS]), 200)
        assert shown.startswith("[lines 1-")
        assert "商品 & more\nEverything\nParagraph 0 has a link . /item/0\n" in shown

    def test_lines_keep_their_numbers_behind_a_script(self) -> None:
        script = "<script type='module'>\n" + "const hidden_name = 1;\n" * 300 + "</script >"
        shown = shown_by(show_markup, "\n".join([PAGE_HEAD, script, "<svg/>", *PARAGRAPHS]), 400)
        assert "[lines 305-" in shown
        assert "]\nEverything\nParagraph 0 has" in shown
        assert "hidden" not in shown

    @pytest.mark.parametrize(
        "text",
        [
            f"<html><head><script>{'hidden_name = 1; ' * 900}</script></head><body></body></html>",
            f"<html><body><script>{'hidden_name = 1; ' * 900}",
            "<html>\n" + "<script>\nhidden_name = 1;\n</script>\n" * 90,
            f"<rows>{'<row>1</row>' * 900}</rows>",
            f"<user> said {'and said again ' * 900}",
        ],
    )
    def test_a_page_without_text_is_plain_text(self, text: str) -> None:
        assert show_markup(text) is None
        assert preview(text, 60, COUNT).startswith("[line")

    @pytest.mark.parametrize(
        "text",
        [
            PAGE_HEAD + "".join(PARAGRAPHS) * 50,
            "<style></style>" * 200_000,
            "<svg/>" * 500_000,
            "<svg " * 500_000,
            "<svg>" * 500_000,
            "<p>" * 1_000_000,
            "<" * 3_000_000,
            "<a" + " x" * 1_500_000,
        ],
    )
    def test_little_of_a_huge_page_is_read(self, text: str) -> None:
        shown = preview(text, 60, COUNT)
        assert COUNT(shown) <= 60

    @pytest.mark.parametrize("text", ["# a comment\nx = 1\n" * 30, "a < b and c > d\n" * 30])
    def test_near_misses(self, text: str) -> None:
        assert show_markup(text) is None


class TestEscaped:
    def test_line_feeds_and_quotes_are_resolved(self) -> None:
        shown = shown_by(show_escaped, PRINTED)
        assert shown.startswith("[escapes resolved]\ncontent=[Text(text='{\n")
        assert "\\n" not in shown

    def test_characters_written_by_their_numbers_are_read(self) -> None:
        rows = json.dumps([{"订单号": f"DD2025{i:04}", "标题": "杭州😀仓库"} for i in range(20)])
        shown = shown_by(show_escaped, json.dumps([{"type": "text", "text": rows}]))
        assert '{"订单号": "DD20250000", "标题": "杭州😀仓库"}' in shown
        assert "u6807" not in shown

    def test_paths_of_windows_in_a_text_of_many_lines_are_not(self) -> None:
        assert show_escaped("C:\\new\\names\\notes.txt\n" * 60) is None


class TestSnapshot:
    def test_it_tells_where_one_is_and_what_can_be_acted_upon(self) -> None:
        shown = shown_by(show_snapshot, PLAYWRIGHT, 260).split("\n")
        assert shown[:2] == ["- Page URL: https://shop.example/cart", "- Page Title: Cart | Shop"]
        assert shown[2:5] == [
            "heading: Shopping Cart [e2]",
            "textbox: Coupon [e900]",
            "button: Remove [e5], Proceed to Checkout [e901]",
        ]
        assert shown[5].startswith("link: 商品 1 [e4], 商品 2 [e7]")

    def test_what_the_page_answers_and_the_state_of_controls_are_shown(self) -> None:
        ends = PLAYWRIGHT[: PLAYWRIGHT.rindex("\n```")]
        page = (
            f'{ends}\n  - radio "Invoice" [ref=e902]\n  - radio "Card" [checked] [ref=e903]\n'
            '  - alert [ref=e904]: The coupon has expired\n  - text: "Total: 109.90"\n'
            "  - status [ref=e905]:\n    - text: hidden\n```"
        )
        shown = shown_by(show_snapshot, page, 400)
        assert "\nalert: The coupon has expired [e904]\n" in shown
        assert "\nradio: Invoice [e902], Card [e903, checked]\n" in shown
        assert "\ntext: Total: 109.90\n" in shown
        assert "status" not in shown
        axtree = AXTREE + "\n\t[b1] checkbox 'All', checked='true'\n\t[b2] checkbox 'None', checked='false'"
        assert "\ncheckbox: All [b1, checked], None [b2]\n" in shown_by(show_snapshot, axtree, 400)

    @pytest.mark.parametrize("state", ["checked", "selected", "disabled", "expanded", "pressed"])
    def test_states_are_read_as_playwright_browsergym_and_webarena_write_them(self, state: str) -> None:
        ends = PLAYWRIGHT[: PLAYWRIGHT.rindex("\n```")]
        shown = shown_by(show_snapshot, f'{ends}\n  - tab "One" [{state}] [ref=e902]\n```', 400)
        assert f"\ntab: One [e902, {state}]\n" in shown
        for told in (f", {state}=True", f", {state}='true'", f" focused: False {state}: True"):
            axtree = f"{AXTREE}\n\t[b1] tab 'One'{told}\n\t[b2] tab 'Two', {state}=False"
            assert f"\ntab: One [b1, {state}], Two [b2]\n" in shown_by(show_snapshot, axtree, 400)

    def test_nodes_of_each_role_have_their_turn(self) -> None:
        shown = shown_by(show_snapshot, AXTREE, 200)
        assert shown == (
            "RootWebArea 'Catalog', focused, url='https://it.example/catalog'\n"
            "heading: Thing 0 [a1], Thing 1 [a5], Thing 2 [a9]\n"
            "button: Edit Widget [a3]\n"
            "link: Thing 0 [a2], Thing 1 [a6], Thing 2 [a10]"
        )

    @pytest.mark.parametrize(
        "text",
        [
            "- name: build\n  steps:\n  - run: make\n" * 30,
            "[1] Smith, J. On trees.\n[2] Jones, A. On woods.\n" * 30,
            "- a thing\n- another thing\n" * 30,
            "\n".join(f"- option: choice {n}" for n in range(60)),
            "\n".join(f'clicked at {n}\n- button "Row {n}" [ref=e{n}]\n12 ms passed' for n in range(60)),
        ],
    )
    def test_near_misses(self, text: str) -> None:
        assert show_snapshot(text) is None


class TestFramed:
    CODE = "\n\n".join(f"def step_{number}(value):\n    return value + {number}" for number in range(60))

    @pytest.mark.parametrize(
        "result",
        [
            json.dumps({"output": CODE, "metadata": {"exit_code": 0, "duration_seconds": 0.1}}),
            json.dumps({"content": [{"type": "text", "text": CODE}], "isError": False}),
        ],
    )
    def test_what_stands_in_a_report_is_shown_as_its_kind_is(self, result: str) -> None:
        shown = preview(result, 200, COUNT)
        assert shown.startswith("[escapes resolved]\ndef step_0(value):\ndef step_0, step_1, step_2")
        assert "exit_code" not in shown
        assert "isError" not in shown

    def test_a_status_that_tells_of_a_failure_is_shown(self) -> None:
        shown = preview(
            json.dumps({"stdout": "row\n" * 400, "stderr": "disk full", "exit_code": 28}), 60, COUNT
        )
        assert shown.startswith("[escapes resolved]\n[exit code 28]\nrow\n")
        assert shown.endswith("disk full")


class TestJsonLines:
    def test_they_are_shown_as_an_array(self) -> None:
        assert shown_by(show_json, JSON_LINES, 250).startswith(
            '[50 objects: {"id": 0, "path": "/srv/data_0.bin"}, '
        )

    @pytest.mark.parametrize(
        "text", ['{"a": 1}\n{"b": 2}', '{"a": 1}\n{"a": 2}\nnot json', '{"a": 1} {"a": 2}\n{}\n{}']
    )
    def test_near_misses(self, text: str) -> None:
        assert show_json(text) is None
