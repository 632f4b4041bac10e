"""Draw charts: as SVG that follows the page's colours, or as PNG. Needs the extra `report`."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from context_compressor.lab.measure.results import (
    OURS,
    RAW,
    Replay,
    Totals,
    TurnEvent,
    Watched,
    cost_of,
    percent,
    ratio,
    short_number,
)

COLORS = {
    "--ink-soft": ("#4b5565", "#aab4c3"),
    "--line": ("#dde1e7", "#333b47"),
    "--raw": ("#868e9b", "#8b95a5"),
    "--ours": ("#1d5fd6", "#6ea4ff"),
    "--budget": ("#d1342f", "#ff7b72"),
    "--sliding": ("#b8680b", "#e8a34c"),
    "--masking": ("#8e44ad", "#c792e0"),
    "--other-1": ("#11836f", "#4cc9b0"),
    "--other-2": ("#a8365f", "#f08bb0"),
    "--compact": ("#0b7a4d", "#46cf93"),
    "--compress": ("#b45309", "#fbb040"),
    "--edit": ("#0e7490", "#56cfe8"),
    "--failure": ("#b91c1c", "#ff6b6b"),
}
"""Variables of the page: what each is on white, and on black.

Charts are drawn with the first, by which a colour is found again in an SVG: no two share it.
"""


class EventLook(NamedTuple):
    """How a kind of event is marked."""

    label: str
    marker: str
    size: float


EVENT_LOOKS = {
    "compact": EventLook("offloaded", "v", 5.5),
    "compress": EventLook("noted", "s", 4.5),
    "edit": EventLook("edited", "o", 5.0),
    "failure": EventLook("failed", "X", 6.5),
}


def variable_of(name: str) -> str:
    """Return the page's variable for the colour of a system, a kind of event, or the budget."""
    return f"--{name}" if f"--{name}" in COLORS else f"--other-{1 + sum(map(ord, name)) % 2}"


def color_of(name: str) -> str:
    """Return what to draw a system, a kind of event, or the budget with."""
    return COLORS[variable_of(name)][0]


_UNITS_PER_INCH = 72
"""A unit of an SVG that matplotlib writes is a point; a page shows it as a CSS pixel."""
_PNG_DPI = 160
_MAX_POINTS = 1_500
"""Turns that a line shows at most: no screen has more columns."""
_MANY_TURNS = 300
"""From here on lines and marks are thinner, or they would run into each other."""
_CLOSER = 3.0
"""From so many times the budget on the history leaves no height for the view, which gets its own panel."""
_DASHED = (0, (4, 3))
_DOTTED = (0, (1, 1.5))

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib
    "text.color": color_of("ink-soft"),
    "axes.edgecolor": color_of("line"),
    "axes.labelcolor": color_of("ink-soft"),
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": color_of("line"),
    "xtick.color": color_of("ink-soft"),
    "ytick.color": color_of("ink-soft"),
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "lines.solid_joinstyle": "round",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """How much room a chart has."""

    name: str
    width: int
    """In CSS pixels."""
    height: int
    font: float
    is_narrow: bool = False


WIDE = Shape("wide", 960, 300, 12)
NARROW = Shape("narrow", 350, 300, 11, True)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart that can be drawn in any shape."""

    name: str
    """For the name of a file."""
    label: str
    """What it shows, for those who do not see it."""
    draw: Callable[[Figure, Shape], None]
    stretch: float
    """Its height to the usual one."""
    narrow_stretch: float
    """The same on a narrow page."""

    def svg(self, shape: Shape, prefix: str) -> str:
        """Return the chart as an SVG element; `prefix` keeps its ids apart from those of other charts."""
        return _for_page(self._save(shape, prefix, "svg", transparent=True).decode(), self.label, shape)

    def png(self) -> bytes:
        """Return the chart as a PNG on white."""
        return self._save(WIDE, "", "png", dpi=_PNG_DPI, facecolor="white")

    def _save(self, shape: Shape, prefix: str, format: str, **options: Any) -> bytes:
        stream = io.BytesIO()
        stretch = self.narrow_stretch if shape.is_narrow else self.stretch
        size = (shape.width / _UNITS_PER_INCH, shape.height * stretch / _UNITS_PER_INCH)
        # From the salt matplotlib makes ids; without one they would differ from run to run.
        style: Any = {**_STYLE, "font.size": shape.font, "svg.hashsalt": f"context-compressor {prefix}"}
        with rc_context({**style, "figure.constrained_layout.h_pad": 6 / _UNITS_PER_INCH}):
            figure = Figure(figsize=size, layout="constrained")
            self.draw(figure, shape)
            undated = {"Date": None} if format == "svg" else {"Software": None}
            figure.savefig(stream, format=format, metadata=undated, **options)
        return stream.getvalue()


_ROOT = re.compile(r"<svg [^>]*?viewBox=\"0 0 ([\d.]+) ([\d.]+)\"[^>]*>")
_NOT_SHOWN = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|\s(?=\s)", re.DOTALL)
_FONT = re.compile(r"font: ([\d.]+px) [^;\"]*")
_LONG_NUMBER = re.compile(r"(\d\.\d\d)\d+")
_ID = re.compile(r" id=\"([^\"]+)\"")
_NAMED = re.compile(r"href=\"#([^\"]+)\"|url\(#([^)]+)\)")


def _for_page(svg: str, label: str, shape: Shape) -> str:
    """Return what matplotlib wrote as an element: no header, the page's font and colours, few ids."""
    found = _ROOT.search(svg)
    assert found is not None
    body = _NOT_SHOWN.sub("", svg[found.end() :])
    body = _FONT.sub(r"font-size: \1", body)
    body = _LONG_NUMBER.sub(r"\1", body)
    used = {one for pair in _NAMED.findall(body) for one in pair if one}
    body = _ID.sub(lambda id: id[0] if id[1] in used else "", body.replace("xlink:href", "href"))
    for variable, (light, _) in COLORS.items():
        body = body.replace(light, f"var({variable})")
    width, height = (round(float(size)) for size in found.groups())
    return (
        f'<svg class="chart {shape.name}" role="img" aria-label="{label}" '
        f'viewBox="0 0 {found[1]} {found[2]}" width="{width}" height="{height}">{body.strip()}'
    )


def tokens_chart(run: Watched) -> Chart:
    """Return a chart of raw and view tokens over turns, the events marked, with the line of the budget."""
    budget = run.replay.budget
    raw = [turn.raw_tokens for turn in run.replay.turns]
    view = [turn.view_tokens for turn in run.replay.turns]
    has_closer = max(raw, default=0) > _CLOSER * budget

    def draw(figure: Figure, shape: Shape) -> None:
        panels: list[Axes] = list(figure.subplots(1 + has_closer, 1, sharex=True, squeeze=False)[:, 0])
        first, last = panels[0], panels[-1]
        _line(first, raw, "history (raw)", color_of(RAW))
        _line(first, view, "view", color_of(OURS))
        first.set_title("Tokens per request")
        if has_closer:
            _line(last, view, None, color_of(OURS))
            last.set_title("The view, closer")
        for axes in panels:
            axes.axhline(budget, color=color_of("budget"), linewidth=1.2, linestyle=_DASHED)
            _finish(axes, raw if axes is first else [*view, budget])
        last.lines[-1].set_label(f"budget {budget:,}")
        compacted = [place + 1 for place, turn in enumerate(run.replay.turns) if turn.is_compacted]
        for number, turn in enumerate(compacted):
            label = None if number else "compacted by its program"
            first.axvline(turn, color=color_of(RAW), linewidth=0.8, linestyle=_DOTTED, label=label)
        _mark_events(last, run.events, view)
        _turns_below(last, len(raw))
        _legend(figure, panels, shape)

    stretch = 1.5 if has_closer else 1.0
    label = f"Tokens of history and view over turns, at a budget of {budget:,} tokens"
    return Chart("tokens", label, draw, stretch, 1.15 * stretch)


def cost_chart(replays: Sequence[Replay]) -> Chart:
    """Return a chart of what requests and notes have cost so far, a line for each system."""

    def draw(figure: Figure, shape: Shape) -> None:
        axes = figure.subplots()
        ends = [0.0]
        for replay in replays:
            costs = [cost_of([turn], replay.prices) for turn in replay.turns]
            spent = list(accumulate(cost.spent for cost in costs))
            as_if = list(accumulate(cost.as_if_model for cost in costs))
            ends += spent[-1:] + as_if[-1:]
            name = "history (raw)" if replay.system == RAW else replay.system
            _line(axes, spent, name, color_of(replay.system))
            if replay.system == OURS and spent[-1:] != as_if[-1:]:
                _line(axes, as_if, "ours, notes by a model", color_of(OURS), _DOTTED)
        axes.set_title("Cost so far, in plain input tokens")
        _finish(axes, ends)
        _turns_below(axes, max((len(replay.turns) for replay in replays), default=1))
        _legend(figure, [axes], shape)

    return Chart("cost", "Cost over turns, a line for each system", draw, 1.0, 1.1)


def bars_chart(rows: Sequence[tuple[str, Totals]]) -> Chart:
    """Return a chart with a bar for each system: tokens sent, their cost, and what views tell if asked."""
    names = [system for system, _ in rows]
    sent = [float(totals.view_tokens) for _, totals in rows]
    costs = [totals.cost.spent_ratio for _, totals in rows]
    told = [None if totals.told is None else totals.told.share for _, totals in rows]
    bars: list[tuple[str, Sequence[float | None], Callable[[float], str]]] = [
        ("Tokens sent", sent, short_number),
        ("Cost (history = 1)", costs, ratio),
    ]
    if any(share is not None for share in told):
        bars.append(("Told", told, percent))

    def draw(figure: Figure, shape: Shape) -> None:
        across = (len(bars), 1) if shape.is_narrow else (1, len(bars))
        panels = figure.subplots(*across, sharey=not shape.is_narrow)
        for axes, (title, values, tell) in zip(panels, bars, strict=True):
            _bars(axes, names, values, tell)
            axes.set_title(title)
        for axes in panels if shape.is_narrow else panels[:1]:  # where they share an axis, it is turned once
            axes.invert_yaxis()

    label = "Tokens sent, cost" + (" and what is told" if len(bars) > 2 else "") + ", a bar for each system"
    return Chart("systems", label, draw, 0.28 + 0.11 * len(rows), 0.45 + 0.12 * len(bars) * len(rows))


def _bars(
    axes: Axes, names: Sequence[str], values: Sequence[float | None], tell: Callable[[float], str]
) -> None:
    """Draw bars with their values behind them; where there is no value, a dash and no bar."""
    bars = axes.barh(names, [value or 0.0 for value in values], 0.62, color=list(map(color_of, names)))
    axes.bar_label(bars, ["–" if value is None else tell(value) for value in values], padding=4)
    axes.set_xlim(0, 1.32 * (max((value or 0.0 for value in values), default=0) or 1))
    axes.set_xticks([])
    axes.grid(False)
    axes.spines["bottom"].set_visible(False)


def _line(axes: Axes, values: Sequence[float], label: str | None, color: str, dash: Any = "-") -> None:
    # All of them, or as many, evenly spread, as there is room for.
    count = min(len(values), _MAX_POINTS)
    shown = sorted({round(i * (len(values) - 1) / max(1, count - 1)) for i in range(count)})
    axes.plot(
        [i + 1 for i in shown],
        [values[i] for i in shown],
        label=label,
        color=color,
        linestyle=dash,
        linewidth=1.6 if len(values) < _MANY_TURNS else 1.1,
    )


def _mark_events(axes: Axes, events: Iterable[TurnEvent], view: Sequence[int]) -> None:
    by_kind: dict[str, list[int]] = {}
    for one in events:
        by_kind.setdefault(one.event.kind, []).append(one.turn)
    for kind, look in EVENT_LOOKS.items():
        if turns := by_kind.get(kind):
            axes.plot(
                turns,
                [view[turn - 1] for turn in turns],
                look.marker,
                markersize=look.size if len(view) < _MANY_TURNS else 0.8 * look.size,
                color=color_of(kind),
                label=look.label,
                clip_on=False,
                zorder=3,
            )


def _finish(axes: Axes, values: Sequence[float]) -> None:
    axes.set_ylim(0, 1.06 * max(values, default=1) or 1)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    axes.spines["left"].set_visible(False)


def _turns_below(axes: Axes, count: int) -> None:
    axes.set_xlim(1, max(2, count))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, prune="lower"))
    axes.set_xlabel("turn")


def _legend(figure: Figure, panels: Sequence[Axes], shape: Shape) -> None:
    found: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        found.update(zip(labels, handles, strict=True))
    # In the middle of the figure's column, since a legend outside is never wider than the figure.
    figure.legend(
        list(found.values()),
        list(found),
        loc="outside lower left",
        ncols=2 if shape.is_narrow else 6,
        handlelength=1.4,
        columnspacing=1.4,
        borderaxespad=0,
    )
