"""Write a summary: which lines there is room for, and how long each may be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from context_compressor.summarizers.extracts.passages import (
    CHINESE,
    ENGLISH,
    Item,
    Kind,
    Labels,
    Passage,
    share_out,
)
from context_compressor.summarizers.extracts.reading import Material, read_messages
from context_compressor.summarizers.extracts.words import agent_items, user_items
from context_compressor.summarizers.extracts.work import (
    COUNT,
    Done,
    carried_items,
    failure_items,
    plan_in,
    read_calls,
    rows_of,
    standing_failures,
    state_items,
)
from context_compressor.summarizers.protocol import SummaryRequest
from context_compressor.summarizers.sections import is_chinese

SHARES: dict[Kind, float] = {
    "earlier": 0.3,
    "user": 0.4,
    "agent": 0.27,  # what it says tells in one place what was asked, done and found
    "work": 0.22,
    "failure": 0.08,
    "state": 0.07,
    "spare": 0.01,  # what was only looked up: for room that nothing else fills
}
"""What part of the room each kind may fill; what one leaves goes to the others in the same proportion."""
CARRIED_SHARE = 0.5
"""What part of it earlier summaries may fill where new lines want it too."""
_LEAST_CHARS = 220
"""Below this a line is left out rather than cut further."""
_LINE_CHARS = 3
_LEAST_ROOT = 8
_LEAST_PATHS = 3
"""A folder is told once where so many paths are in it, and its name is that long."""
_WISH_WEIGHT, _WISH_RANK = 2.0, 3.0
_OF_CALLS: tuple[Kind, ...] = ("work", "spare", "failure")
_CALL = re.compile(r"(?:(\d{1,6}) × )?([^×\n]{1,2000}? → )")
"""A line that tells a call and what it came to, not one that tells several calls of a file."""
_WORD = re.compile(r"\w{4,}|[\u3400-\u9fff]{2}")


class Draft:
    """All that could be told of a request, told at any length."""

    def __init__(self, request: SummaryRequest) -> None:
        material = read_messages(request.messages, request.previous, request.context)
        texts = [words.text for words in material.words] or [told.line for told in material.told]
        self._labels = CHINESE if is_chinese(texts) else ENGLISH
        calls = read_calls(material.calls)
        self._root = _root_of(calls)
        self._root_item = Item("work", 0, Passage([self._root], f"{self._labels.root} "), 1.0)
        items = [*carried_items(material, calls), *_collect(material, calls, self._labels)]
        if self._root:
            items.append(self._root_item)
        self._items = _folded(items)
        wish = set(_WORD.findall(f"{request.note or ''} {request.instructions or ''}".casefold()))
        for item in self._items if wish else ():
            text = item.passage.tell(2_000).casefold()
            if any(word in text for word in wish):
                item.weight *= _WISH_WEIGHT
                item.rank += _WISH_RANK

    def write(self, room: float) -> tuple[str, bool]:
        """Return a text of about `room` characters, and whether it tells all."""
        groups: dict[tuple[Kind, bool], list[Item]] = {
            (kind, carried): [] for kind in SHARES for carried in (False, True)
        }
        for item in self._items:
            groups[item.kind, item.carried].append(item)
        groups = {key: group for key, group in groups.items() if group}
        needs = [sum(map(_chars_of, group)) for group in groups.values()]
        weights = [
            SHARES[kind] * (CARRIED_SHARE if carried else 1 - CARRIED_SHARE) for kind, carried in groups
        ]
        shares = zip(groups.values(), share_out(needs, room, weights), strict=True)
        chosen = [item for group, share in shares for item in _chosen(group, share)]
        if not chosen and self._items and room > 40:
            chosen = [max(self._items, key=lambda item: item.rank)]
        # All lines grow at one rate, so that none is told at length while others are cut.
        limits = share_out(list(map(_chars_of, chosen)), room, [item.weight for item in chosen])
        told = [
            (item, item.passage.tell(limit - _LINE_CHARS)) for item, limit in zip(chosen, limits, strict=True)
        ]
        return self._render(told), room >= sum(needs)

    def best_line(self) -> str:
        """Return the line that matters most, whole: for a room that no heading fits into."""
        best = max(self._items, key=lambda item: (item.kind == "user", item.rank), default=None)
        return f"- {best.passage.tell(len(best.passage))}" if best else ""

    def _render(self, told: list[tuple[Item, str]]) -> str:
        labels = self._labels
        headings = {"earlier": labels.earlier, "failure": labels.failures, "state": labels.state}
        sections: dict[str, list[str]] = {
            heading: [] for heading in (labels.earlier, labels.log, labels.failures, labels.state)
        }
        has_root = any(item is self._root_item for item, _ in told)
        for item, text in sorted(told, key=lambda pair: pair[0].place):
            if has_root and item.kind in ("work", "failure", "spare") and item is not self._root_item:
                text = text.replace(f"cd {self._root[:-1]} && ", "").replace(self._root, "")
            sections[headings.get(item.kind, labels.log)].append(f"- {text}")
        return "\n\n".join(
            "\n".join([f"## {heading}", *lines]) for heading, lines in sections.items() if lines
        )


def _folded(items: Sequence[Item]) -> list[Item]:
    """Return items without those that a newer one says again, or that tell the same call made before."""
    newest: dict[tuple[Kind, str], Item] = {}
    times: Counter[tuple[Kind, str]] = Counter()
    for item in items:
        line = item.passage.tell(10**6)
        call = _CALL.match(line) if item.kind in _OF_CALLS else None
        kind: Kind = "work" if item.kind == "spare" and call else item.kind
        key = kind, call[2] if call else line
        times[key] += int(call[1] or 1) if call else 0
        if call and times[key] > int(call[1] or 1):
            count = f"{times[key]} × "
            if item.carried:
                item.passage = Passage([line[call.start(2) :]], count, is_quote=True)
            else:
                item.passage = replace(item.passage, head=count + COUNT.sub("", item.passage.head))
        newest[key] = item
    return list(newest.values())


def _chars_of(item: Item) -> int:
    return len(item.passage) + _LINE_CHARS


def _chosen(items: list[Item], room: int) -> list[Item]:
    """Return the best of some lines: as many as can say something in a room."""
    chosen: list[Item] = []
    for item in sorted(items, key=lambda item: (-item.rank, -item.place)):
        least = min(len(item.passage), max(_LEAST_CHARS, len(item.passage.head) + 40)) + _LINE_CHARS
        if least <= room:
            chosen.append(item)
            room -= least
    return chosen


def _collect(material: Material, calls: list[Done], labels: Labels) -> list[Item]:
    failures = standing_failures(calls)
    failed = {done.key for done in failures}
    shown = [
        done
        for done in calls
        if done.call.result is not None
        and not (done.outcome.failed and done.key in failed)
        and not plan_in(done.call.arguments)
    ]
    last = material.calls[-1].place if material.calls else 1
    return [
        *user_items(material, labels),
        *agent_items(material, labels),
        *failure_items(failures),
        *state_items(calls, labels),
        *(row.item(labels, last) for row in rows_of(shown)),
    ]


def _root_of(calls: Sequence[Done]) -> str:
    """Return the folder, with its slash, that most of the paths which calls name are in; "" for none."""
    paths = {done.name for done in calls if done.name.startswith("/")}
    folders = Counter(path[: slash.end()] for path in paths for slash in re.finditer("/", path))
    roots = [root for root, n in folders.items() if n >= _LEAST_PATHS and len(root) > _LEAST_ROOT]
    return max(roots, key=lambda root: (folders[root] * len(root), root), default="")
