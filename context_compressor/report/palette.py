"""The colours of charts, by daylight and in the dark."""

from __future__ import annotations

from typing import NamedTuple


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
