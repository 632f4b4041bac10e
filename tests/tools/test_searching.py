from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.offload.store import ref_of
from context_compressor.tokens.tiktoken import TiktokenCounter
from context_compressor.tools.grep import TextMatches, compile_pattern, search_page, search_text
from tests.support.pages import page_matches, parse_page

COUNTER = TiktokenCounter()
TEXTS = st.lists(
    st.sampled_from(["", "alpha", "beta 12", "alpha beta", "\r", "中文 alpha", "Alpha"]), max_size=12
).map("\n".join)
PATTERNS = ["alpha", "^", "$", "^$", ".", r"\d+$", "^a", r"\s", "", "a|b", r"^.*$", r"(?=b)", r"[^a]+"]


def matches_in(text: str, pattern: str, ignore_case: bool = False) -> TextMatches:
    found = search_text(text, ref_of(text), compile_pattern(pattern, ignore_case), 60.0)
    assert not found.timed_out
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=TEXTS)
def test_the_lines_found_are_those_a_match_begins_in(pattern: str, text: str) -> None:
    expected = {text.count("\n", 0, m.start()) + 1 for m in re.finditer(pattern, text, re.MULTILINE)}
    found = matches_in(text, pattern)
    numbers = [match.number for match in found.matches]
    assert numbers == sorted(set(numbers))
    if r"\s" not in pattern and "[^" not in pattern:  # these run over line ends, and so swallow line starts
        assert set(numbers) == expected
    assert set(numbers) >= expected
    lines = text.split("\n")
    for match in found.matches:
        assert text[match.line_start : match.line_end] == lines[match.number - 1]
        assert match.line_start <= match.match_start <= match.line_end


@pytest.mark.parametrize("pattern", ["余杭区", "仓.*号DD", "😀", r"编号DD\d+", "(?P<区>余杭)", "(余|西)杭"])
@pytest.mark.parametrize("times", [1, 2], ids=["JSON", "JSON within JSON"])
def test_what_json_wrote_as_escapes_is_found_as_it_reads(pattern: str, times: int) -> None:
    line = "余杭区仓库😀，编号DD2025"
    for _ in range(times):
        line = json.dumps(line)
    [match] = matches_in(f"first\n{line}\nlast", pattern).matches
    assert match.number == 2


def test_a_long_line_has_many_matches() -> None:
    text = "start\n" + ", ".join(f"id-{i:05d} {'x' * 300}" for i in range(50)) + "\nend id-1"
    found = matches_in(text, r"id-\d+")
    assert [match.number for match in found.matches] == [2] * 50 + [3]
    page = search_page([found], COUNTER, max_tokens=2000, limit=3)
    assert re.findall(r"id-00\d+", page) == ["id-00049", "id-00048"]
    assert page_matches(page, {found.ref: text})


def test_a_line_of_millions_of_characters_is_searched_at_once() -> None:
    # Scanning from the line's start for each match would take minutes.
    text = "word 12345 " * 500_000
    assert len(matches_in(text, r"\d+").matches) > 20_000


class TestPages:
    def test_the_last_line_comes_first_and_repeats_are_counted(self) -> None:
        older, newer = "warn a\nwarn b\nok\nwarn a", "warn b\nwarn c"
        found = [matches_in(newer, "warn"), matches_in(older, "warn")]
        page = search_page(found, COUNTER, max_tokens=300)
        assert page.split("\n") == [
            f"[{ref_of(newer)} matches: 2, lines: 2]",
            "2| warn c",
            "1 x2| warn b",
            f"[{ref_of(older)} matches: 3, lines: 4]",
            "4 x2| warn a",
            "[end]",
        ]
        assert page_matches(page, {ref_of(older): older, ref_of(newer): newer})

    def test_lines_too_long_to_show_whole_are_repeats_only_where_all_of_them_is_the_same(self) -> None:
        line = f"{'a ' * 150}warn{' b' * 150}"
        text = "\n".join([line, f"{line} and more", line])
        page = search_page([matches_in(text, "warn")], COUNTER, max_tokens=1_000)
        assert [shown.split(":")[0] for shown in page.split("\n")[1:-1]] == ["3", "2"]
        assert "x2" in page.split("\n")[1]
        assert page_matches(page, {ref_of(text): text})

    def test_each_part_of_a_long_line_that_matches_is_shown(self) -> None:
        text = f"warn one {'a ' * 300}warn two {'b ' * 300}"
        page = search_page([matches_in(text, "warn")], COUNTER, max_tokens=1_000)
        assert "warn one" in page
        assert "warn two" in page

    def test_context_joins_neighbours_and_reads_downwards(self) -> None:
        text = "\n".join("hit" if i in (3, 5, 20) else f"l{i}" for i in range(1, 25))
        page = search_page([matches_in(text, "hit")], COUNTER, max_tokens=400, context=1)
        assert page.split("\n")[1:-1] == [
            "19- l19",
            "20| hit",
            "21- l21",
            "2- l2",
            "3| hit",
            "4- l4",
            "5| hit",
            "6- l6",
        ]
        assert page_matches(page, {ref_of(text): text})

    def test_the_first_match_with_its_context_may_take_more(self) -> None:
        text = "\n".join(
            "hit" if i in (30, 60) else f"line {i} of a log, of {'some ' * 12}" for i in range(90)
        )
        found = [matches_in(text, "hit")]
        page = search_page(found, COUNTER, max_tokens=300, first_max_tokens=2000, context=10)
        assert page.split("\n")[1:-1] == [
            f"{number}{'|' if number == 61 else '-'} {line}"
            for number, line in list(enumerate(text.split("\n"), 1))[50:71]
        ]
        assert page.endswith("[more: 1 of 2 matches shown; raise limit, name a ref or narrow the pattern]")
        assert page_matches(page, {ref_of(text): text})

    @pytest.mark.parametrize(
        ("max_tokens", "shown"), [(2000, None), (900, "25 lines"), (80, "1 line"), (60, "0 lines")]
    )
    def test_context_shrinks_before_the_page_gives_up(self, max_tokens: int, shown: str | None) -> None:
        text = "\n".join("hit" if i == 50 else f"line {i} of a log" for i in range(100))
        page = search_page([matches_in(text, "hit")], COUNTER, max_tokens=max_tokens, context=50)
        assert page.split("\n")[-1] == (f"[end; room for context: {shown}]" if shown else "[end]")
        around = int(shown.split(" ")[0]) if shown else 50
        assert len(page.split("\n")) - 2 == min(2 * around + 1, 100)
        assert "51| hit" in page
        assert page_matches(page, {ref_of(text): text})

    def test_context_of_long_lines_is_cut(self) -> None:
        text = "\n".join(["x" * 5000, "y" * 1000 + " hit " + "z" * 1000 + " hit", "w" * 5000])
        page = search_page([matches_in(text, "hit")], COUNTER, max_tokens=1500, context=1)
        assert page_matches(page, {ref_of(text): text})
        assert [line.split("|")[0].split("- ")[0] for line in page.split("\n")[1:-1]] == [
            "1:1-200",
            "2:936-1135",
            "2:1810-2009",
            "3:1-200",
        ]

    @given(
        st.lists(TEXTS, min_size=1, max_size=3, unique=True),
        st.sampled_from(["a", "^", r"\w+"]),
        st.integers(0, 3),
        st.sampled_from([60, 150, 300]),
        st.none() | st.integers(1, 5),
        st.sampled_from([0, 120, 1000]),
    )
    def test_every_page_fits_and_matches_its_sources(
        self,
        texts: list[str],
        pattern: str,
        context: int,
        max_tokens: int,
        limit: int | None,
        first_max_tokens: int,
    ) -> None:
        found = [found for text in texts if (found := matches_in(text, pattern)).matches]
        if not found:
            return
        page = search_page(
            found,
            COUNTER,
            max_tokens=max_tokens,
            first_max_tokens=first_max_tokens,
            context=context,
            limit=limit,
        )
        assert COUNTER.count_text(page) <= max(max_tokens, first_max_tokens)
        if parse_page(page) is not None:
            assert page_matches(page, {ref_of(text): text for text in texts})
        else:
            assert "no room" in page

    def test_fragments_shrink_before_the_page_gives_up(self) -> None:
        text = "中文字符" * 500 + "needle" + "中文字符" * 500
        page = search_page([matches_in(text, "needle")], COUNTER, max_tokens=110)
        assert "needle" in page
        assert COUNTER.count_text(page) <= 110

    def test_no_room_at_all_names_the_place(self) -> None:
        text = "a\nneedle"
        answer = search_page([matches_in(text, "needle")], COUNTER, max_tokens=20)
        assert f"line 2 of {ref_of(text)}" in answer


class TestPatternsThatNeverEnd:
    def test_what_was_found_before_the_stop_is_kept(self) -> None:
        text = "ab1\n" + "a" * 60 + "!"
        found = search_text(text, ref_of(text), compile_pattern(r"(a|a)*b?\d$", False), 0.05)
        assert found.timed_out
        assert [match.number for match in found.matches] == [1]
        page = search_page([found], COUNTER, max_tokens=300, stopped_seconds=2)
        assert "stopped after 2 s" in page
        assert page_matches(page, {ref_of(text): text})
