import pytest

pytest.importorskip("matplotlib", reason="needs the extra `report`")

from context_compressor.lab.measure.charts import NARROW, WIDE, bars_chart, cost_chart, tokens_chart
from context_compressor.lab.measure.results import short_number
from tests.lab.measure.reports import make_probes, report_on, run_session, session


@pytest.fixture(scope="module")
def run():
    return run_session(session(40))


def test_tokens_chart_shows_history_view_budget_and_events(run):
    svg = tokens_chart(run.run("ours", 3_000)).svg(WIDE, "x-")

    for label in ("history (raw)", "view", "budget 3,000", "offloaded", "noted", "The view, closer"):
        assert f">{label}</text>" in svg


def test_a_small_history_needs_no_second_panel(run):
    ours = run_session(session(3), budgets=(30_000,)).run("ours", 30_000)
    assert "closer" not in tokens_chart(ours).svg(NARROW, "x-")


def test_every_system_has_a_line_and_a_bar(run):
    data = report_on(run)
    bars = bars_chart(next(data.tables())[1]).svg(NARROW, "x-")
    lines = cost_chart([one.replay for one in run.runs]).svg(WIDE, "x-")

    for system in ("ours", "sliding"):
        assert f">{system}</text>" in lines
        assert f">{system}</text>" in bars


def test_pictures_are_png_and_the_same_every_time(run):
    chart = cost_chart([one.replay for one in run.runs])
    assert chart.png() == chart.png()
    assert chart.png().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("value", "told"),
    [(0, "0"), (950, "950"), (1_000, "1k"), (1_250, "1.2k"), (15_984, "16k"), (321_000_000, "321M")],
)
def test_short_numbers(value, told):
    assert short_number(value) == told


def test_what_is_told_has_bars_where_something_was_asked():
    """One for each system; without probes there is no such panel."""
    messages = session(4)
    asked = report_on(run_session(messages, probes=make_probes(len(messages) - 1)))
    silent = report_on(run_session(messages))
    told, untold = (bars_chart(next(data.tables())[1]).svg(WIDE, "x-") for data in (asked, silent))

    assert ">Told</text>" in told
    assert told.count(" %</text>") == 3
    assert ">Told</text>" not in untold
