"""Draw what `savings.py` found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from context_compressor.lab.measure import Replay, total

COLOURS = {"raw": "#999999", "sliding": "#d08a2e", "masking": "#4a87b9", "ours": "#2e8b57"}
MISSING = (
    "savings.png and savings-dark.png were not drawn: matplotlib is missing; "
    "`pip install 'agent-context-compressor[report]'` brings it"
)


def draw(replays: Sequence[Replay], systems: Sequence[str], budget: int, folder: Path) -> None:
    """Draw the requests of the longest session, what is told and what it costs, at one budget.

    Writes `savings.png`, for light pages, and `savings-dark.png`.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    chosen = [replay for replay in replays if replay.budget == budget]
    for style, name in (("default", "savings.png"), ("dark_background", "savings-dark.png")):
        with plt.style.context(style):
            figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
            _draw_requests(left, chosen, systems, budget)
            _draw_bars(right, chosen, systems)
            for axes in (left, right):
                axes.spines[["top", "right"]].set_visible(False)
            figure.savefig(folder / name, dpi=130, metadata={"Software": None})
            plt.close(figure)


def _draw_requests(axes: Any, replays: Sequence[Replay], systems: Sequence[str], budget: int) -> None:
    raw_tokens = {replay.session: replay.turns[-1].raw_tokens for replay in replays if replay.turns}
    longest = max(raw_tokens, key=lambda name: raw_tokens[name])
    for system in systems:
        (replay,) = (one for one in replays if one.session == longest and one.system == system)
        tokens = [turn.view_tokens / 1000 for turn in replay.turns]
        axes.plot(tokens, label=system, color=COLOURS.get(system), linewidth=1.6)
    axes.axhline(budget / 1000, color="gray", linewidth=0.8, linestyle=":")
    axes.set(
        xlabel="turn",
        ylabel="thousand tokens of the request",
        title=f"The longest session, budget {budget:,}",
        yscale="log",
    )
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False)


def _draw_bars(axes: Any, replays: Sequence[Replay], systems: Sequence[str]) -> None:
    rows = [total([replay for replay in replays if replay.system == system]) for system in systems]
    costs = [100 * (totals.cost.in_place_ratio or 0.0) for totals in rows]
    told = [100 * totals.told.share for totals in rows if totals.told is not None]
    groups = [("probes told", told, "#2e8b57")] if told else []
    groups.append(("cost, notes by the agent's model", costs, "#c0504d"))
    places, width = range(len(systems)), 0.8 / len(groups)
    for number, (label, values, colour) in enumerate(groups):
        shift = (number - (len(groups) - 1) / 2) * width
        bars = axes.bar([place + shift for place in places], values, width, label=label, color=colour)
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    axes.set_xticks(list(places), systems)
    axes.set(ylabel="%", title="All sessions", ylim=(0, 1.32 * max(100.0, *costs)))
    axes.legend(frameon=False, fontsize=8, loc="upper center", ncols=2)
