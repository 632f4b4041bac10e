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
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from context_compressor.measure import Replay, Totals, TurnEvent, Watched, cost_of
from context_compressor.measure.data import OURS, RAW, short_number


class Color(NamedTuple):
    """A colour of the page: its variable, and what it is on white and on black."""

    variable: str
    light: str
    """Also what charts are drawn with; no two colours share it, so that it can be found again in an SVG."""
    dark: str


class EventLook(NamedTuple):
    """How a kind of event is marked."""

    label: str
    marker: str
    size: float
    color: str


COLORS = (
    Color("--ink-soft", "#4b5565", "#aab4c3"),
    Color("--line", "#dde1e7", "#333b47"),
    Color("--raw", "#868e9b", "#8b95a5"),
    Color("--ours", "#1d5fd6", "#6ea4ff"),
    Color("--budget", "#d1342f", "#ff7b72"),
    Color("--other-1", "#b8680b", "#e8a34c"),
    Color("--other-2", "#8e44ad", "#c792e0"),
    Color("--other-3", "#11836f", "#4cc9b0"),
    Color("--other-4", "#a8365f", "#f08bb0"),
    Color("--compact", "#0b7a4d", "#46cf93"),
    Color("--compress", "#b45309", "#fbb040"),
    Color("--merge", "#7c3aed", "#b794ff"),
    Color("--edit", "#0e7490", "#56cfe8"),
    Color("--failure", "#b91c1c", "#ff6b6b"),
)
_LIGHT = {color.variable: color.light for color in COLORS}

INK = _LIGHT["--ink-soft"]
LINE = _LIGHT["--line"]

EVENT_LOOKS = {
    "compact": EventLook("offloaded", "v", 5.5, _LIGHT["--compact"]),
    "compress": EventLook("summarised", "s", 4.5, _LIGHT["--compress"]),
    "merge": EventLook("merged", "D", 4.5, _LIGHT["--merge"]),
    "edit": EventLook("edited", "o", 5.0, _LIGHT["--edit"]),
    "failure": EventLook("failed", "X", 6.5, _LIGHT["--failure"]),
}
_OF_SYSTEM = {
    "raw": "--raw",
    "ours": "--ours",
    "budget": "--budget",
    "sliding": "--other-1",
    "masking": "--other-2",
}
_SPARE = ("--other-3", "--other-4")


def color_of(name: str) -> str:
    """Return what to draw a system, or the budget, with."""
    return _LIGHT[variable_of(name)]


def variable_of(name: str) -> str:
    """Return the page's variable for the colour of a system, or of the budget."""
    return _OF_SYSTEM.get(name) or _SPARE[sum(map(ord, name)) % len(_SPARE)]


def page_colors() -> dict[str, str]:
    """Return the variable of each colour that charts are drawn with."""
    return {color.light: color.variable for color in COLORS}


_UNITS_PER_INCH = 72
"""A unit of an SVG that matplotlib writes is a point; a page shows it as a CSS pixel."""
_PNG_DPI = 160
_MAX_POINTS = 1_500
"""Turns that a line shows at most: no screen has more columns."""
_MANY_TURNS = 300
"""From here on lines and marks are thinner, or they would run into each other."""
_CLOSER = 3.0
"""From so many times the budget on the history leaves no height for the view, which gets its own panel."""

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "context-compressor",  # else ids differ from run to run
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "xtick.color": INK,
    "ytick.color": INK,
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

Draw = Callable[[Figure, Shape], None]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart that can be drawn in any shape."""

    name: str
    """For the name of a file."""
    label: str
    """What it shows, for those who do not see it."""
    draw: Draw
    stretch: float = 1.0
    """Its height to the usual one."""
    narrow_stretch: float | None = None
    """The same on a narrow page; as `stretch` when None."""

    def svg(self, shape: Shape, prefix: str) -> str:
        """Return the chart as an SVG element whose ids, if any, start with `prefix`."""
        stream = io.StringIO()
        with rc_context(_style(shape)):
            figure = self._figure(shape)
            figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
        return _for_page(stream.getvalue(), self.label, shape, prefix)

    def png(self) -> bytes:
        """Return the chart as a PNG on white."""
        stream = io.BytesIO()
        with rc_context(_style(WIDE)):
            figure = self._figure(WIDE)
            figure.savefig(stream, format="png", dpi=_PNG_DPI, facecolor="white", metadata={"Software": None})
        return stream.getvalue()

    def _figure(self, shape: Shape) -> Figure:
        stretch = self.narrow_stretch if shape.is_narrow and self.narrow_stretch else self.stretch
        size = (shape.width / _UNITS_PER_INCH, shape.height * stretch / _UNITS_PER_INCH)
        figure = Figure(figsize=size, layout="constrained")
        engine = figure.get_layout_engine()
        if isinstance(engine, ConstrainedLayoutEngine):
            engine.set(h_pad=6 / _UNITS_PER_INCH)
        self.draw(figure, shape)
        return figure


def _style(shape: Shape) -> Any:  # keys of rcParams, which the stubs want as literals
    return {**_STYLE, "font.size": shape.font}


_ROOT = re.compile(r"<svg [^>]*?viewBox=\"0 0 ([\d.]+) ([\d.]+)\"[^>]*>")
_NOT_SHOWN = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|\s(?=\s)", re.DOTALL)
_FONT = re.compile(r"font: ([\d.]+px) [^;\"]*")
_LONG_NUMBER = re.compile(r"(\d\.\d\d)\d+")
_ID = re.compile(r" id=\"([^\"]+)\"")
_NAMED = re.compile(r"(?:xlink:)?href=\"#([^\"]+)\"|url\(#([^)]+)\)")


def _for_page(svg: str, label: str, shape: Shape, prefix: str) -> str:
    """Return what matplotlib wrote as an element: no header, the page's font and colours, its own ids."""
    found = _ROOT.search(svg)
    assert found is not None
    body = svg[found.end() :]
    body = _NOT_SHOWN.sub("", body)
    body = _FONT.sub(r"font-size: \1", body)
    body = _LONG_NUMBER.sub(r"\1", body)
    used = {one for pair in _NAMED.findall(body) for one in pair if one}
    body = _ID.sub(lambda id: f' id="{prefix}{id[1]}"' if id[1] in used else "", body)
    body = _NAMED.sub(
        lambda named: f'href="#{prefix}{named[1]}"' if named[1] else f"url(#{prefix}{named[2]})", body
    )
    for color, variable in page_colors().items():
        body = body.replace(color, f"var({variable})")
    width, height = (round(float(size)) for size in found.groups())
    return (
        f'<svg class="chart {shape.name}" role="img" aria-label="{label}" '
        f'viewBox="0 0 {found[1]} {found[2]}" width="{width}" height="{height}">{body.strip()}'
    )


def tokens_chart(run: Watched) -> Chart:
    """Return a chart of raw and view tokens over turns, the events marked, with the line of the budget."""
    replay = run.replay
    peak = max((turn.raw_tokens for turn in replay.turns), default=0)
    has_closer = peak > _CLOSER * replay.budget

    def draw(figure: Figure, shape: Shape) -> None:
        numbers = range(1, len(replay.turns) + 1)
        raw = [turn.raw_tokens for turn in replay.turns]
        view = [turn.view_tokens for turn in replay.turns]
        panels: list[Axes] = list(
            figure.subplots(2 if has_closer else 1, 1, sharex=True, squeeze=False)[:, 0]
        )
        first, last = panels[0], panels[-1]
        _line(first, numbers, raw, "history (raw)", color_of(RAW))
        _line(first, numbers, view, "view", color_of(OURS))
        first.set_title("Tokens per request", fontsize=shape.font)
        if has_closer:
            _line(last, numbers, view, None, color_of(OURS))
            last.set_title("The view, closer", fontsize=shape.font)
            first.axhline(replay.budget, color=color_of("budget"), linewidth=1, linestyle=(0, (4, 3)))
        last.axhline(
            replay.budget,
            color=color_of("budget"),
            linewidth=1.2,
            linestyle=(0, (4, 3)),
            label=f"budget {replay.budget:,}",
        )
        _mark_events(last, run.events, view)
        for axes in panels:
            _finish(axes, raw if axes is first else [*view, replay.budget])
        _turns_below(last, len(raw))
        _legend(figure, panels, shape)

    stretch = 1.5 if has_closer else 1.0
    label = f"Tokens of history and view over turns, at a budget of {replay.budget:,} tokens"
    return Chart("tokens", label, draw, stretch, 1.15 * stretch)


def cost_chart(replays: Sequence[Replay]) -> Chart:
    """Return a chart of what requests and summaries have cost so far, a line for each system."""

    def draw(figure: Figure, shape: Shape) -> None:
        axes = figure.subplots()
        highest = 0.0
        for replay in replays:
            costs = [cost_of([turn]) for turn in replay.turns]
            spent = list(accumulate(cost.spent for cost in costs))
            as_if = list(accumulate(cost.as_if_model for cost in costs))
            numbers = range(1, len(spent) + 1)
            name = "history (raw)" if replay.system == RAW else replay.system
            _line(axes, numbers, spent, name, color_of(replay.system))
            highest = max([highest, *spent[-1:], *as_if[-1:]])
            if replay.system == OURS and as_if and as_if[-1] != spent[-1]:
                _line(axes, numbers, as_if, "ours, summaries by a model", color_of(OURS), (0, (1, 1.5)))
        axes.set_title("Cost so far, in plain input tokens", fontsize=shape.font)
        _finish(axes, [highest])
        _turns_below(axes, max((len(replay.turns) for replay in replays), default=1))
        _legend(figure, [axes], shape)

    return Chart("cost", "Cost over turns, a line for each system", draw, 1.0, 1.1)


def bars_chart(rows: Sequence[tuple[str, Totals]]) -> Chart:
    """Return a chart with a bar for each system: tokens sent, their cost, and what views tell if asked."""
    has_told = any(totals.told is not None for _, totals in rows)
    panel_count = 3 if has_told else 2

    def draw(figure: Figure, shape: Shape) -> None:
        panels = (
            figure.subplots(panel_count, 1)
            if shape.is_narrow
            else figure.subplots(1, panel_count, sharey=True)
        )
        names = [system for system, _ in rows]
        colors = [color_of(system) for system in names]
        sent = [float(totals.view_tokens) for _, totals in rows]
        _bars(panels[0], names, sent, colors, short_number, "Tokens sent")
        costs = [totals.cost.spent_ratio for _, totals in rows]
        _bars(panels[1], names, costs, colors, lambda value: f"{value:.2f}", "Cost (history = 1)")
        if has_told:
            told = [None if totals.told is None else totals.told.share for _, totals in rows]
            _bars(panels[2], names, told, colors, lambda value: f"{100 * value:.1f} %", "Told")

    stretch = 0.28 + 0.11 * len(rows)
    label = "Tokens sent, cost" + (" and what is told" if has_told else "") + ", a bar for each system"
    return Chart("systems", label, draw, stretch, 0.45 + 0.12 * panel_count * len(rows))


def _bars(
    axes: Axes,
    names: Sequence[str],
    values: Sequence[float | None],
    colors: Sequence[str],
    tell: Callable[[float], str],
    title: str,
) -> None:
    """Draw bars with their values behind them; where there is no value, a dash and no bar."""
    axes.barh(names, [value or 0.0 for value in values], 0.62, color=colors)
    highest = max((value or 0.0 for value in values), default=0) or 1
    for at, value in enumerate(values):
        axes.text((value or 0.0) + 0.02 * highest, at, "–" if value is None else tell(value), va="center")
    axes.set_title(title, fontsize="medium")
    axes.set_xlim(0, 1.32 * highest)
    axes.set_xticks([])
    axes.grid(False)
    axes.spines["bottom"].set_visible(False)
    if not axes.yaxis_inverted():
        axes.invert_yaxis()


def _line(
    axes: Axes,
    numbers: range,
    values: Sequence[float],
    label: str | None,
    color: str,
    dash: tuple[float, tuple[float, ...]] | str = "-",
) -> None:
    # All of them, or as many, evenly spread, as there is room for.
    count = min(len(numbers), _MAX_POINTS)
    shown = sorted({round(i * (len(numbers) - 1) / max(1, count - 1)) for i in range(count)})
    axes.plot(
        [numbers[i] for i in shown],
        [values[i] for i in shown],
        label=label,
        color=color,
        linestyle=dash,
        linewidth=1.6 if len(numbers) < _MANY_TURNS else 1.1,
    )


def _mark_events(axes: Axes, events: Iterable[TurnEvent], view: Sequence[int]) -> None:
    by_kind: dict[str, list[int]] = {}
    for one in events:
        by_kind.setdefault(one.event.kind, []).append(one.turn)
    for kind, look in EVENT_LOOKS.items():
        turns = by_kind.get(kind)
        if turns:
            heights = [view[turn - 1] for turn in turns]
            axes.plot(
                turns,
                heights,
                linestyle="",
                marker=look.marker,
                markersize=look.size if len(view) < _MANY_TURNS else 0.8 * look.size,
                color=look.color,
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
