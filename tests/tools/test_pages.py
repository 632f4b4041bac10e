from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.offload.pages import (
    FoundLine,
    FoundSection,
    closing_found,
    closing_more,
    found_page,
    is_page,
    lines_page,
)
from tests.support.pages import page_matches, parse_page

A, B = "ctx://aaaaaaaaaaaaaaaa", "ctx://bbbbbbbbbbbbbbbb"
SOURCE = "one\ntwo\n\nfour is longer\r\n[end]"

# Lines that look like the frame of a page, and every line end that is not ours.
LINES = st.lists(
    st.sampled_from(
        [
            "",
            "text",
            "[end]",
            "12| x",
            "[ctx://aaaaaaaaaaaaaaaa lines 1-2 of 3]",
            "[ctx://aaaaaaaaaaaaaaaa matches: 1, lines: 1]",
            "[more: read_offloaded(ref, offset=3)]",
            "a\rb\x0b\x0c\x85\u2028",
            "\ud800",
            "long " * 30,
        ]
    )
    | st.text(st.characters(exclude_characters="\n"), max_size=20),
    min_size=1,
    max_size=12,
)


class TestLinesPage:
    def test_its_form(self) -> None:
        page = lines_page(A, ["two", ""], 2, 5, closing_more(4))
        assert page == f"[{A} lines 2-3 of 5]\ntwo\n\n[more: limit reached; read_offloaded(ref, offset=4)]"
        assert parse_page(page) == [(2, None, "two"), (3, None, "")]
        assert page_matches(page, {A: SOURCE})

    def test_a_line_cut_at_both_ends(self) -> None:
        page = lines_page(A, ["ou"], 4, 5, closing_more(4, 4, 15), from_column=2, to_column=3)
        assert page.split("\n") == [
            f"[{A} lines 4-4 of 5, from column 2, to column 3]",
            "ou",
            "[more: limit reached; read_offloaded(ref, offset=4, column=4); line 4 has 15 characters]",
        ]
        assert parse_page(page) == [(4, 2, "ou")]
        assert page_matches(page, {A: SOURCE})

    def test_only_the_outer_lines_are_cut(self) -> None:
        page = lines_page(A, ["wo", "", "four"], 2, 5, closing_more(4, 5, 15), from_column=2, to_column=4)
        assert parse_page(page) == [(2, 2, "wo"), (3, None, ""), (4, 1, "four")]
        assert page_matches(page, {A: SOURCE})

    @given(LINES, st.data())
    def test_every_page_of_every_text_parses_and_matches(self, lines: list[str], data: st.DataObject) -> None:
        first = data.draw(st.integers(1, len(lines)))
        last = data.draw(st.integers(first, len(lines)))
        shown = lines[first - 1 : last]
        page = lines_page(A, shown, first, len(lines), "[end]")
        assert is_page(page)
        assert page_matches(page, {A: "\n".join(lines)})

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "text",
            A,
            f"[{A} lines 1-1 of 5]",
            f"[{A} lines 1-1 of 5]\none",
            f"[{A} lines 1-1 of 5]\none\n[end]\n",
            f" [{A} lines 1-1 of 5]\none\n[end]",
            f"[{A} lines 0-0 of 5]\n\n[end]",
            f"[{A} lines 1-1 of 5 or so]\none\n[end]",
            "[ctx://AAAAAAAAAAAAAAAA lines 1-1 of 5]\none\n[end]",
        ],
    )
    def test_what_has_not_its_first_and_last_line_is_none(self, text: str) -> None:
        assert not is_page(text)


class TestFoundPage:
    def test_its_form(self) -> None:
        page = found_page(
            [
                FoundSection(
                    A, 5, 3, [FoundLine(4, "longer", column=9, repeats=2), FoundLine(3, "", is_match=False)]
                ),
                FoundSection(B, 1, 1, [FoundLine(1, "b")]),
            ],
            closing_found(4, 9),
        )
        assert page.split("\n") == [
            f"[{A} matches: 3, lines: 5]",
            "4:9-14 x2| longer",
            "3- ",
            f"[{B} matches: 1, lines: 1]",
            "1| b",
            "[more: 4 of 9 matches shown; raise limit, name a ref or narrow the pattern]",
        ]
        assert [place for *place, _ in parse_page(page) or []] == [[4, 9], [3, None], [1, None]]
        assert page_matches(page, {A: SOURCE, B: "b"})
        assert not page_matches(page, {A: SOURCE})
        assert not page_matches(page, {A: SOURCE, B: "c"})

    @given(LINES, st.data())
    def test_every_search_page_of_every_text_parses_and_matches(
        self, lines: list[str], data: st.DataObject
    ) -> None:
        shown = []
        for number in data.draw(st.lists(st.integers(1, len(lines)), min_size=1, max_size=5)):
            line = lines[number - 1]
            column = data.draw(st.none() | st.integers(1, len(line))) if line else None
            end = data.draw(st.integers(column, len(line))) if column else 0
            text = line[column - 1 : end] if column else line
            shown.append(
                FoundLine(number, text, column, data.draw(st.integers(1, 3)), data.draw(st.booleans()))
            )
        page = found_page([FoundSection(A, len(lines), 1, shown)], closing_found(1, 1))
        assert is_page(page)
        assert page_matches(page, {A: "\n".join(lines)})

    @pytest.mark.parametrize(
        "closing",
        [
            closing_found(1, 1),
            closing_found(1, 2),
            closing_found(1, 2, 2),
            closing_found(1, 1, 0, 3),
            closing_found(1, 1, 2, 3),
            closing_found(1, 1, 0, 0, 0),
            closing_found(1, 2, 0, 3, 1),
            closing_found(1, 2, 2, 3, 25),
        ],
    )
    def test_every_closing_is_known(self, closing: str) -> None:
        page = found_page([FoundSection(A, 1, 1, [FoundLine(1, "a")])], closing)
        assert parse_page(page)
        assert is_page(page)
