"""Preview accessibility snapshots of web pages: where one is, headings, and what can be acted upon."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from context_compressor.offload.previews.lines import Show, head_lines, sample_lines, share, shorten

NODE_SHARE = 0.6
"""Of the lines of the sample that are nodes, at least."""

MIN_HELD = 3
"""Lines of the sample with a handle by which an agent acts on a node, at least."""

MIN_NAMED = 3
"""Nodes of different names that are shown, at least: else the text itself tells more."""

NAME_CHARACTERS = 48
URL_CHARACTERS = 160

_NODE = re.compile(
    r"[ \t]*(?:- (?:/url:|[a-z]+(?: [\"\[]|:|$))"
    r"|\[[a-z]{0,4}\d+\] [A-Za-z]+\b|(?:StaticText|RootWebArea) ['\"])"
)
_HELD = re.compile(r"[ \t]*(?:- [a-z]+ [^\n]*\[ref=\w+\]|\[[a-z]{0,4}\d+\] [A-Za-z]+ ['\"])")
_PARTS = re.compile(
    r"[ \t]*(?:- )?(?:\[(?P<id>[a-z]{0,4}\d+)\] )?(?P<role>[A-Za-z]+)"
    r"(?: (?:'(?P<single>[^'\n]{1,300})'|\"(?P<double>[^\"\n]{1,300})\"))?[^\n]*?(?:\[ref=(?P<ref>\w+)\]|$)"
)
"""Playwright's `- button "Add" [ref=e12]`, BrowserGym's and WebArena's `[12] button 'Add', clickable`."""
_INLINE = re.compile(r"[ \t]*- [a-z]+(?: \[[^\]\n]{1,80}\]){0,6}: (?![\"'|>]?$)[\"']?([^\n]+)")
"""What Playwright writes behind a node without a name: `- alert [ref=e7]: Added`, `- text: Total 9.90`."""
_FIGURE = re.compile(r"\d")
"""Of plain texts those with a number are shown: totals, counts, dates."""
_STATE = re.compile(
    r"\[(checked|selected|disabled|expanded|pressed)(?:=true)?\]"
    r"|,? (checked|selected|disabled|expanded|pressed)(?:=|: )'?[Tt]rue\b"
)
_PLACE = re.compile(r"[ \t]*(?:- )?(?:Page (?:URL|Title): \S|(?:\[\w+\] )?RootWebArea\b)")
_ROLES = (
    *("dialog", "alertdialog", "alert", "status", "heading"),
    *("textbox", "searchbox", "combobox", "spinbutton", "checkbox", "radio", "switch", "slider"),
    *("button", "tab", "menuitem", "option", "text", "link", "row"),
)
"""What is shown of, in this order."""


def show_snapshot(text: str) -> Show | None:
    """Return what shows a snapshot: its address and title, then nodes by role; None for other texts."""
    sample = sample_lines(text)
    held = sum(map(bool, map(_HELD.match, sample)))
    if held < MIN_HELD or share(map(bool, map(_NODE.match, sample))) < NODE_SHARE:
        return None
    lines = head_lines(text)
    places = [line.strip() for line in lines if _PLACE.match(line)][:3]
    nodes = _nodes_by_role(lines)
    if sum(map(len, nodes.values())) < MIN_NAMED:
        return None

    def show(characters: int) -> str:
        size = max(20, min(characters // 3, URL_CHARACTERS))
        said = [shorten(place, size) for place in places]
        room = characters - sum(len(place) + 1 for place in said)
        shown: dict[str, list[str]] = {}
        for role, node in _in_turn(nodes):
            room -= len(node) + 2 + (0 if role in shown else len(role) + 2)
            if room < 0:
                break
            shown.setdefault(role, []).append(node)
        return "\n".join(said + [f"{role}: {', '.join(shown[role])}" for role in _ROLES if role in shown])

    return show


def _nodes_by_role(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return the nodes that have a name, each once, with the handles by which an agent acts on them."""
    nodes: dict[str, dict[str, str]] = {role: {} for role in _ROLES}
    for line in (whole[:1000] for whole in lines):
        found = _PARTS.match(line)
        if found is None or found["role"] not in nodes:
            continue
        inline = _INLINE.match(line)
        name = found["single"] or found["double"] or (inline[1].rstrip("\"'") if inline else None)
        if name is None or (found["role"] == "text" and not _FIGURE.search(name)):
            continue
        states = [state[1] or state[2] for state in _STATE.finditer(line)]
        marks = ", ".join(filter(None, (found["ref"] or found["id"], *states)))
        name = shorten(name, NAME_CHARACTERS)
        nodes[found["role"]].setdefault(name, f"{name} [{marks}]" if marks else name)
    return {role: list(named.values()) for role, named in nodes.items() if named}


def _in_turn(nodes: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield one node of each role, then the next of each."""
    for place in range(max(map(len, nodes.values()), default=0)):
        for role, named in nodes.items():
            if place < len(named):
                yield role, named[place]
