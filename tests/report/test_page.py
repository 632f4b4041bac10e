import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("matplotlib", reason="needs the extra `report`")

from context_compressor.measure import Excerpt
from context_compressor.report.cleaning import clean, trim, weigh
from context_compressor.report.data import Skipped
from context_compressor.report.page import MAX_BYTES, TEXT_BYTES, ranges, render_page
from tests.measure.support import says
from tests.report.support import HOSTILE, report_on, run_session, session

VOID = {"meta", "br", "path", "use", "rect"}


class Structure(HTMLParser):
    """The elements of a page, and its text; fails where one is closed that is not open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def plain() -> str:
    return render_page(report_on(run_session(session(40))))


@pytest.fixture(scope="module")
def hostile() -> str:
    failed = (Skipped(HOSTILE, HOSTILE),)
    run = run_session(session(30, HOSTILE, "read<b>file</b>"), HOSTILE)
    return render_page(report_on(run, failed=failed, notes=failed, asked_sessions=9))


def test_page_is_the_same_every_time():
    """Nothing in it depends on the moment, but for the milliseconds that a turn took."""
    run = run_session(session(20))
    assert render_page(report_on(run)) == render_page(report_on(run))


def test_page_needs_nothing_else(hostile):
    """No script, nothing fetched, and a policy that forbids both."""
    found = Structure(hostile)

    assert found.open == []
    assert not {"script", "img", "link", "iframe", "object", "embed", "base", "form"} & set(found.tags)
    addresses = [value for name, value in found.attributes if name in {"href", "xlink:href", "src", "srcset"}]
    assert addresses
    assert all(str(value).startswith("#") for value in addresses)
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert "default-src 'none'" in hostile
    assert "@import" not in hostile
    assert re.findall(r"url\((?!#)", hostile) == []


def test_hostile_text_is_shown_as_it_is(hostile):
    """Markup is text, template syntax stays; what cannot be seen or encoded is made visible."""
    text = "".join(Structure(hostile).text)

    assert "</pre></style></script><script>document.title" in text
    assert "{{ 7 * 7 }}" in text
    assert "␛[31mred" in text
    assert "␀null" in text
    assert "⟨202E⟩gnp.exe⟨2066⟩" in text
    assert not [c for c in hostile if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0]
    assert not set(hostile) & set("\u202e\u2066\u200f\ud800")
    hostile.encode()


def test_ids_are_unique_and_every_link_has_its_target(hostile):
    ids = re.findall(r' id="([^"]+)"', hostile)
    named = {*re.findall(r'href="#([^"]+)"', hostile), *re.findall(r"url\(#([^)]+)\)", hostile)}

    assert len(ids) == len(set(ids))
    assert named <= set(ids)


def test_charts_have_the_colours_of_the_page(plain):
    """No colour is fixed in a chart, or it would be wrong by day or in the dark."""
    charts = re.findall(r"<svg.*?</svg>", plain, re.DOTALL)

    assert len(charts) == 6
    assert [found for chart in charts for found in re.findall(r"#[0-9a-f]{6}\b", chart)] == []
    assert "var(--ours)" in charts[0]


def test_page_tells_what_left_and_what_was_lost(plain):
    text = " ".join("".join(Structure(plain).text).split())

    assert re.search(r"What left the view: \d+ offloaded, [1-9]\d* summarised", text)
    assert "What the agent reads" in text
    assert re.search(r"Evidence that sliding did not show: \d+ identifiers, of which [1-9]\d* lost", text)
    assert re.search(r"value_0_7 .*? 41 message 3", text)


def test_interrupted_report_says_so(hostile, plain):
    assert "Interrupted: 1 of 9 sessions are in this report." in hostile
    assert "Interrupted" not in plain


def test_long_texts_stay_within_bounds():
    """However much a session stores, and however much escaping adds, a page stays below its bound."""
    run = run_session(session(40, "&<>'\"" * 4_000), budgets=(60_000,), systems=("raw", "ours"))
    page = render_page(report_on(run))

    assert sum(len(one.full.head) for one in run.runs[1].stand_ins) > 100_000
    assert len(page.encode()) < TEXT_BYTES + 500_000 < MAX_BYTES
    assert "characters left out of this report" in page


@pytest.mark.parametrize("text", ["a" * 1_000, "<" * 1_000, "\x00" * 1_000, "é'" * 500, ""])
@pytest.mark.parametrize("limit", [10, 500, 100_000])
def test_trimming_keeps_both_ends(text, limit):
    whole = Excerpt(text, "", 0)
    cut = trim(whole, limit)

    assert len(cut.head) + cut.left_out + len(cut.tail) == len(text)
    assert text.startswith(cut.head)
    assert text.endswith(cut.tail)
    assert weigh(cut.head) + weigh(cut.tail) <= max(limit, 12)


def test_trimming_an_excerpt_counts_what_was_left_out_before():
    cut = trim(Excerpt("a" * 100, "b" * 50, 1_000), 30)

    assert set(cut.head) == {"a"}
    assert set(cut.tail) == {"b"}
    assert len(cut.head) + len(cut.tail) + cut.left_out == 1_150


def test_cleaning_leaves_ordinary_text_alone():
    assert clean("Grüße, 世界 👩‍👩‍👧 \t tab\nline") == "Grüße, 世界 👩‍👩‍👧 \t tab\nline"
    assert clean("one\r\ntwo\rthree") == "one\ntwo␍three"


def test_ranges():
    assert ranges([]) == ""
    assert ranges([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
    assert ranges(range(0, 20, 2), 3) == "0, 2, 4 and 7 more"


def rows_of(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading, by row."""
    table = page.split(f"<h2>{heading}</h2>", 1)[1].split("</table>", 1)[0]
    rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    return [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


def test_lost_is_the_same_number_wherever_it_stands():
    """What is lost in three uses counts three times in both tables; below a session it stands once."""
    messages = [
        says("system", "rule number one is good " * 230),
        says("user", "hi"),
        says("assistant", "hello"),
    ]
    messages += [says("user", "handle item_0"), says("assistant", "did item_0")]
    messages += [says("user", "again"), says("assistant", "did item_0")] * 2
    page = render_page(report_on(run_session(messages, budgets=(900,), systems=("raw", "ours"))))

    systems, sessions = rows_of(page, "Budget 900 tokens"), rows_of(page, "Sessions")
    assert (systems[0][-1], sessions[0][-1]) == ("Lost", "Lost")
    assert systems[2][-1] == sessions[1][-1] == "3"
    # No view fits, so none is the largest.
    assert (systems[0][3], systems[2][3]) == ("Peak", "–")
    assert 'Evidence that ours did not show: 1 identifier, of which <span class="bad">1 lost' in page
