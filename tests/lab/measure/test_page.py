import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

pytest.importorskip("matplotlib", reason="needs the extra `report`")

from context_compressor.lab.measure import Excerpt, first_request
from context_compressor.lab.measure.page import MAX_BYTES, TEXT_BYTES, clean, ranges, render_page, trim, weigh
from context_compressor.lab.measure.results import Skipped
from tests.lab.measure.reports import HOSTILE, make_probes, report_on, run_session, session
from tests.lab.measure.support import says

VOID = {"meta", "br", "path", "use", "rect", "input"}


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
    messages = session(40)
    return render_page(report_on(run_session(messages, probes=make_probes(len(messages) - 1))))


@pytest.fixture(scope="module")
def hostile() -> str:
    failed = (Skipped(HOSTILE, HOSTILE),)
    run = run_session(session(30, HOSTILE, "read<b>file</b>"), HOSTILE, probes=make_probes(40, HOSTILE))
    return render_page(report_on(replace(run, title=HOSTILE), failed=failed, notes=failed, asked_sessions=9))


def test_page_is_the_same_every_time():
    """Nothing in it depends on the moment, but for the milliseconds that a turn took."""
    run = run_session(session(20))
    assert render_page(report_on(run)) == render_page(report_on(run))


def test_page_needs_nothing_else(hostile):
    """No script but the page's own, nothing fetched, and a policy that forbids both."""
    found = Structure(hostile)

    assert found.open == []
    assert not {"img", "link", "iframe", "object", "embed", "base", "form"} & set(found.tags)
    addresses = [value for name, value in found.attributes if name in {"href", "xlink:href", "src", "srcset"}]
    assert addresses
    assert all(str(value).startswith("#") for value in addresses)
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert "default-src 'none'" in hostile
    scripts = re.findall(r"<script( type=\"text/plain\")?>(.*?)</script>", hostile, re.DOTALL)
    assert len(scripts) == found.tags.count("script") == 2
    (own,) = [text for is_data, text in scripts if not is_data]
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in hostile
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


def test_page_tells_what_left_and_what_views_tell(plain):
    text = " ".join("".join(Structure(plain).text).split())

    assert re.search(r"What left the view: \d+ offloaded, [1-9]\d* noted", text)
    assert "What the agent reads" in text
    assert "Probes: 1 of 2 told" in text or "Probes: 2 of 2 told" in text
    assert re.search(r"Where is value_0_7\?.*?value\s*82\s*told\s*(not )?told\s*not told", text)
    assert re.search(
        r"(50|100).0 % Questions that the view answers of 2 \(95 %: \d+ to \d+ %\); 100.0 % by the history",
        text,
    )
    assert "Budget filled" in text
    assert "writes some" not in text


def test_session_is_called_by_its_title_with_its_name_beside_it(hostile):
    run = run_session(session(8))
    title = first_request([says("user", " "), says("user", "Mend the\nimport " + "again " * 50)])
    page = render_page(report_on(replace(run, title=title)))

    assert len(title) <= 100
    (row,) = rows_of(page, "Sessions")[1:]
    assert row[0] == f"{title} a session"
    assert title.startswith("Mend the import again")
    assert title.endswith("…")


def test_page_without_room_for_all_views_says_so(monkeypatch):
    """It has those of the first turns."""
    monkeypatch.setattr("context_compressor.lab.measure.page.TEXT_BYTES", 2_000)
    page = render_page(report_on(run_session(session(20))))

    text = " ".join("".join(Structure(page).text).split())
    assert re.search(r"\b(1[0-9]|20) later turns have no room in this report", text)


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


def test_what_is_told_stands_by_system_kind_and_session(plain):
    """Shares of all probes and of each kind, and how many of a session's own."""
    systems = rows_of(plain, "Budget 3,000 tokens")
    assert systems[0][4:] == ["Fill", "Over", "Refused", "Cost", "As if model", "In place"]
    sessions = rows_of(plain, "Sessions")
    assert sessions[0][-1] == "Told"
    assert re.fullmatch(r"[12] of 2", sessions[1][-1])
    assert re.search(r"<th>goal \(1\)</th><th>value \(1\)</th>", plain)


def test_without_probes_the_page_says_how_to_make_some():
    """And shows no share of what is told, not even an empty one."""
    page = render_page(report_on(run_session(session(8))))

    text = " ".join("".join(Structure(page).text).split())
    assert (
        "no session has questions (probes). context-compressor examine PATH --model NAME writes some." in text
    )
    assert "<th>Told</th>" not in page
    assert ">Told</text>" not in page
    assert "Probes:" not in text
