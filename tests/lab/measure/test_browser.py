"""The report in a real browser. Skipped where there is none: `apt-get install chromium` brings it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs the extra `report`")

from context_compressor.lab.measure.page import render_page
from tests.lab.measure.browser import Browser, find_chromium
from tests.lab.measure.reports import HOSTILE, make_probes, report_on, run_session, session

PROGRAM = find_chromium()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="there is no Chromium on PATH to look at reports with"
)

LOOKS = [(1280, "light"), (390, "dark"), (1280, "dark"), (390, "light")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    hostile = run_session(
        session(40, HOSTILE), HOSTILE, budgets=(3_000, 6_000), probes=make_probes(40, HOSTILE)
    )
    path.write_text(render_page(report_on(hostile)), encoding="utf-8")
    return path


@pytest.mark.variants(2)
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_page_fits_and_says_nothing_to_the_console(browser, page, tmp_path, width, scheme):
    """Nothing stands out of the window, no console message, no request but for the file, charts drawn."""
    browser.open(page, width=width, scheme=scheme)

    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    shown = browser.evaluate(
        "[...document.querySelectorAll('svg.chart')].filter(one => one.getBoundingClientRect().height > 50)"
        ".map(one => one.classList[1])"
    )
    assert set(shown) == {"narrow" if width < 600 else "wide"}
    assert len(shown) == 2 + 2 * 2
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(18, 22, 28)" if scheme == "dark" else "rgb(255, 255, 255)")
    if folder := os.environ.get("SCREENSHOTS"):
        browser.screenshot(Path(folder) / f"report-{width}-{scheme}.png", whole=True)


@pytest.mark.parametrize("width", [1280, 390])
def test_text_of_charts_can_be_read(browser, page, width):
    """No text in a chart is smaller than 10 pixels."""
    browser.open(page, width=width)

    heights = browser.evaluate(
        "[...document.querySelectorAll('svg.chart text')].filter(one => one.getClientRects().length)"
        ".map(one => one.getScreenCTM().a * parseFloat(getComputedStyle(one).fontSize))"
    )

    assert min(heights) >= 10


def test_hostile_text_does_nothing(browser, page):
    """What a transcript says is shown, not obeyed."""
    browser.open(page, width=1280)

    assert browser.evaluate("document.title").startswith("context_compressor")
    browser.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    browser.wait_for("document.querySelectorAll('.shown pre').length")
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    assert browser.evaluate("document.title").startswith("context_compressor")
    assert browser.evaluate("document.images.length") == 0
    assert "<script>document.title = 'owned'" in browser.evaluate(
        "document.querySelector('.shown').textContent"
    )
    assert "<script>document.title = 'owned'" in browser.evaluate("document.body.textContent")


def test_stub_stands_beside_its_full_text(browser, page):
    """A click unfolds what left the view, on a wide page in two columns, on a phone one below the other."""
    for width in (1280, 390):
        browser.open(page, width=width)
        browser.evaluate("document.querySelector('details.group').querySelector('summary').click()")
        browser.evaluate("document.querySelector('details.group details summary').click()")

        shown, full = browser.evaluate(
            "[...document.querySelectorAll('details.group details[open] .pair > div')]"
            ".map(one => { const box = one.getBoundingClientRect();"
            " return [box.left, box.top, box.height, one.textContent] })"
        )

        assert shown[2] > 50
        assert full[2] > 50
        assert "ctx://" in shown[3]
        assert (shown[1] == full[1]) if width == 1280 else (shown[0] == full[0])


SHOWN = """(() => {
  const box = document.querySelector('details.views');
  const names = part => [...part.querySelectorAll('pre')].map(one => one.textContent);
  const lists = [...box.querySelectorAll('.shown .pair > div')].map(names);
  return [box.querySelector('input').value, ...lists, names(box.querySelector('.shown').lastElementChild)];
})()"""


@pytest.mark.parametrize("width", [1280, 390])
def test_view_of_a_chosen_turn_is_shown_whole_with_what_an_event_changed(browser, tmp_path, width):
    """As the memory sent it: what left and what came side by side, each message of the view below."""
    run = run_session(session(20))
    path = tmp_path / "report.html"
    path.write_text(render_page(report_on(run)), encoding="utf-8")
    ours = run.run("ours", 3_000)
    event = next(one.turn for one in ours.events if one.event.kind == "compress")
    places: list[list[int]] = [[]]
    for view in ours.views:
        places.append([*places[-1][: view.kept], *view.rest])
    view = [ours.messages[place].text.head for place in places[event]]
    browser.open(path, width=width)

    browser.evaluate(
        "[...document.querySelectorAll('a[href$=views]')]"
        f".find(one => one.textContent === '{event}').dispatchEvent(new MouseEvent('click'))"
    )
    browser.wait_for(f"document.querySelector('details.views input').value === '{event}'")
    turn, left, came, shown = browser.evaluate(SHOWN)

    assert turn == str(event)
    assert shown == view
    assert set(came) <= set(view)
    assert left
    assert not set(left) & set(view)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width

    browser.evaluate(
        "const entry = document.querySelector('details.views input'); entry.value = 1; entry.onchange()"
    )
    assert browser.evaluate(SHOWN)[-1] == [message.text.head for message in ours.messages[:2]]
    assert browser.complaints() == []
    if folder := os.environ.get("SCREENSHOTS"):
        browser.evaluate(f"entry.value = {event}; entry.onchange(); entry.scrollIntoView()")
        browser.screenshot(Path(folder) / f"views-{width}.png")
