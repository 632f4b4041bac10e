"""Render a report as one HTML file that needs nothing else. Needs the extra `report`."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files
from math import sqrt
from typing import Any
from zlib import compress

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from context_compressor.lab.measure.charts import (
    COLORS,
    EVENT_LOOKS,
    NARROW,
    WIDE,
    Chart,
    bars_chart,
    cost_chart,
    tokens_chart,
    variable_of,
)
from context_compressor.lab.measure.probes import KINDS
from context_compressor.lab.measure.replay import excerpt_of
from context_compressor.lab.measure.results import (
    HOW_TO_ASK,
    MESSAGE_TOKENS,
    OURS,
    RAW,
    Excerpt,
    ReportData,
    SessionRun,
    StandIn,
    Watched,
    index_ranges,
    percent,
    ratio,
    short_number,
    told_range,
)
from context_compressor.lab.measure.systems import MEANINGS

MAX_BYTES = 2_800_000
"""What a page takes at most; sessions for which there is no room stand in the table only."""
TEXT_BYTES = 1_150_000
"""What the texts of stand-ins take of that, and views, half each, all sessions together."""
MAX_DETAILED = 24
"""Sessions that are shown in detail: drawing one takes about a second."""
_MAX_OPEN = 2
"""Up to so many sessions are unfolded when the page opens."""
_MAX_STAND_INS, _MAX_EVENTS, _MAX_QUESTIONS, _MAX_PROBLEMS = 120, 400, 150, 20
"""What of each kind is listed of one session at most."""
_MAX_ROWS, _MAX_SKIPPED = 1_000, 100
"""Sessions listed in the table, and those that could not be replayed."""
_MAX_NAME = 120
"""Characters of a name."""
_SCRIPT = files("context_compressor.lab.measure").joinpath("page.js").read_text("utf-8")
"""All that may run in a page."""
_LEAST_BYTES, _SHOWN_BYTES, _FULL_BYTES = 300, 6_000, 12_000
"""What one text takes: at least, and at most of what stands in the view and of what left it."""

_MISLEADING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters, those that reorder what stands around them, and halves of pairs."""


def detailed_sessions(data: ReportData) -> tuple[SessionRun, ...]:
    """Return the sessions that a report shows in detail: the longest."""
    return data.sessions[:MAX_DETAILED]


def session_charts(data: ReportData, session: SessionRun, budget: int) -> list[Chart]:
    """Return the charts of a session at a budget."""
    runs = {system: session.run(system, budget) for system in data.systems}
    return [tokens_chart(runs[OURS]), cost_chart([run.replay for run in runs.values()])]


def render_page(data: ReportData, on_session: Callable[[], object] | None = None) -> str:
    """Return the page; `on_session` is called for each session of `detailed_sessions` that was drawn."""
    environment = _environment()
    template = environment.get_template("session.html")
    detailed = detailed_sessions(data)
    shares = [sqrt(1 + session.tokens) for session in detailed]  # long ones get more, short ones enough
    room = TEXT_BYTES / (sum(shares) * len(data.budgets)) if shares else 0
    headlines = [
        (budget, dict(rows), _drawn(bars_chart(rows), f"b{number}-"))
        for number, (budget, rows) in enumerate(data.tables())
    ]

    def whole(parts: Sequence[Markup]) -> str:
        page: str = environment.get_template("page.html").render(
            data=data,
            headlines=headlines,
            rows=data.sessions[:_MAX_ROWS],
            parts=parts,
            script=Markup(_SCRIPT),
            script_hash=b64encode(sha256(_SCRIPT.encode()).digest()).decode(),
        )
        return page

    parts: list[Markup] = []
    size = len(whole(parts).encode())
    for number, session in enumerate(detailed):
        text_bytes = int(room * shares[number])
        sheets = [_sheet(data, session, budget, number, text_bytes) for budget in data.budgets]
        is_open = len(data.sessions) <= _MAX_OPEN
        html = template.render(session=session, sheets=sheets, number=number, is_open=is_open, data=data)
        part = Markup(html)  # the template has escaped what came from outside
        size += len(part.encode())
        if parts and size > MAX_BYTES:
            break
        parts.append(part)
        if on_session is not None:
            on_session()
    return whole(parts)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("context_compressor.lab.measure", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Every text that is put into the page passes here; only what is markup already does not.
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    environment.filters.update(
        number=lambda value: "–" if value is None else f"{value:,}",
        short=short_number,
        percent=percent,
        ratio=ratio,
        milliseconds=lambda value: "–" if value is None else f"{value:.{int(value < 100)}f} ms",
        shortened=shortened,
        ranges=ranges,
    )
    environment.globals.update(
        RAW=RAW,
        OURS=OURS,
        HOW_TO_ASK=HOW_TO_ASK,
        MESSAGE_TOKENS=MESSAGE_TOKENS,
        KINDS=KINDS,
        MEANINGS=MEANINGS,
        MAX_SKIPPED=_MAX_SKIPPED,
        told_range=told_range,
        looks={kind: look.label for kind, look in EVENT_LOOKS.items()},
        light={variable: light for variable, (light, _) in COLORS.items()},
        dark={variable: dark for variable, (_, dark) in COLORS.items()},
        variable_of=variable_of,
    )
    return environment


def _drawn(chart: Chart, prefix: str) -> Markup:
    # Nothing that a chart shows comes from a transcript.
    return Markup(chart.svg(WIDE, prefix + "w") + "\n" + chart.svg(NARROW, prefix + "n"))


def _sheet(
    data: ReportData, session: SessionRun, budget: int, number: int, text_bytes: int
) -> dict[str, Any]:
    """Return what the template tells of a session at a budget."""
    ours = session.run(OURS, budget)
    prefix = f"s{number}-{data.budgets.index(budget)}-"
    stand_ins = ours.stand_ins[:_MAX_STAND_INS]
    each = text_bytes // 2 // max(1, len(stand_ins))
    asked = {system: session.run(system, budget).replay.asked for system in data.systems}
    questions = [
        (one.probe, {system: answers[n].is_told for system, answers in asked.items()})
        for n, one in enumerate(asked[OURS])
    ]
    questions.sort(key=lambda question: question[1][OURS])  # those first that ours does not tell
    return {
        "budget": budget,
        "ours": ours,
        "totals": ours.replay.totals(),
        "charts": [
            _drawn(chart, f"{prefix}{i}") for i, chart in enumerate(session_charts(data, session, budget))
        ],
        "stand_ins": [_trimmed(one, each) for one in stand_ins],
        "events": ours.events[:_MAX_EVENTS],
        "views": _views(ours, text_bytes // 2),
        "views_id": f"{prefix}views",
        "questions": questions[:_MAX_QUESTIONS],
        "problems": _problems(ours),
    }


def _views(run: Watched, room: int) -> dict[str, Any]:
    """Return the views of turns, packed in `room` bytes; texts are cut, then turns left out, to fit."""
    count, most = len(run.views), _FULL_BYTES
    packed = _pack(run, count, most)
    while len(packed) > room and count > 1:
        if most > _LEAST_BYTES:
            most = most * 3 // 4
        else:
            count //= 2
        packed = _pack(run, count, most)
    return {"turns": count, "packed": packed}


def _pack(run: Watched, count: int, most: int) -> str:
    """Return the first views as JSON, deflated, in base64; a message takes `most` bytes before that."""
    views = run.views[:count]
    ends = (place + 1 for view in views for place in (view.first + view.count - 1, *view.rest))
    shown = [(one, trim(one.text, most)) for one in run.messages[: max(ends, default=0)]]
    told = {
        "messages": [
            [one.role, one.kind, one.index, clean(text.head), text.left_out, clean(text.tail)]
            for one, text in shown
        ],
        "turns": [[view.kept, view.first, view.count, *view.rest] for view in views],
        "tokens": [turn.view_tokens for turn in run.replay.turns[:count]],
        "events": [(one.turn, EVENT_LOOKS[one.event.kind].label) for one in run.events if one.turn <= count],
    }
    return b64encode(compress(json.dumps(told, ensure_ascii=False).encode())).decode()


def _problems(run: Watched) -> dict[str, list[int]]:
    """Return what a provider would refuse, and in which turns."""
    found: dict[str, list[int]] = {}
    for number, turn in enumerate(run.replay.turns, start=1):
        for problem in turn.problems:
            if problem in found or len(found) < _MAX_PROBLEMS:
                found.setdefault(problem, []).append(number)
    return found


def _trimmed(one: StandIn, limit: int) -> StandIn:
    shown = trim(one.shown, max(_LEAST_BYTES, min(_SHOWN_BYTES, limit // 3)))
    full = trim(one.full, max(_LEAST_BYTES, min(_FULL_BYTES, limit * 2 // 3)))
    return replace(one, shown=shown, full=full)


def shortened(text: str, most: int = _MAX_NAME) -> str:
    """Return a text on one line, its middle left out where it is long."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    head = most * 2 // 3
    return f"{line[:head]}…{line[len(line) - (most - head) :]}"


def ranges(indexes: Sequence[int], most: int = 6) -> str:
    """Return ascending indexes as ranges: `2-41, 44`."""
    found = index_ranges(indexes)
    told = [str(first) if first == last else f"{first}-{last}" for first, last in found[:most]]
    return ", ".join(told) + (f" and {len(found) - most} more" if len(found) > most else "")


def clean(text: str) -> str:
    """Return a text in which characters that control, reorder or cannot be encoded are visible ones."""
    return _MISLEADING.sub(_visible, text.replace("\r\n", "\n"))


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\ufffd" if 0xD800 <= code < 0xE000 else f"⟨{code:0{2 if code < 0x100 else 4}X}⟩"


def weigh(text: str) -> int:
    """Return the bytes that a text takes in a page."""
    return len(str(escape(clean(text))).encode())


def trim(excerpt: Excerpt, limit: int) -> Excerpt:
    """Return an excerpt that takes some `limit` bytes of a page, from both its ends."""
    weight = weigh(excerpt.head) + weigh(excerpt.tail)
    if weight <= limit:
        return excerpt
    characters = len(excerpt.head) + len(excerpt.tail)
    kept = max(2, limit * characters // weight)
    head, tail = kept - kept // 3, kept // 3
    if not excerpt.left_out:
        return excerpt_of(excerpt.head, head, tail)
    head, tail = min(head, len(excerpt.head)), min(tail, len(excerpt.tail))
    left_out = excerpt.left_out + characters - head - tail
    return Excerpt(excerpt.head[:head], excerpt.tail[len(excerpt.tail) - tail :], left_out)
