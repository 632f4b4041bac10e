from __future__ import annotations

import pytest

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


class TestLinesPage:
    def test_its_form(self) -> None:
        page = lines_page(A, ["two", ""], 2, 5, closing_more(4))
        assert page == f"[{A} lines 2-3 of 5]\ntwo\n\n[more: limit reached; read_offloaded(ref, offset=4)]"
        assert parse_page(page) == [(2, None, "two"), (3, None, "")]
        assert page_matches(page, {A: SOURCE})

    def test_only_the_outer_lines_are_cut(self) -> None:
        page = lines_page(A, ["wo", "", "four"], 2, 5, closing_more(4, 5, 15), from_column=2, to_column=4)
        assert parse_page(page) == [(2, 2, "wo"), (3, None, ""), (4, 1, "four")]
        assert page_matches(page, {A: SOURCE})

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
