"""Tell in one line what lists: commits, changed files, files of a directory, hits of a search, objects."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from context_compressor.summarizers.cutting import cut

_CHARS, _STATUS_CHARS = 140, 100
_PATHS_CHARS = 60
_DIFF = re.compile(r"^diff --git \S+ b/(\S+)", re.MULTILINE)
_BRANCH = re.compile(r"On branch \S+|HEAD detached at \S+")
_CHANGE = re.compile(r"^\t(?:(\w[\w ]{2,20}): {1,12})?(\S[^\n]{0,200})$", re.MULTILINE)
"""A file that `git status` names, and what became of it; untracked where it says nothing."""
_COMMIT = re.compile(
    r"^commit ([0-9a-f]{7})[0-9a-f]{0,57}\b[^\n]*\n(?:[A-Z]\w+: [^\n]*\n){1,6}\n {4}(\S[^\n]*)", re.MULTILINE
)
_TITLE = re.compile(
    r"^(?:\d{1,3}[.)] {1,3}\[([^\]\n]{3,160})\]\("
    r"|(?:\d{1,3}[.)] {1,3})?(?:Title|标题)[:：] ?(\S[^\n]{2,160}))",
    re.MULTILINE,
)
"""What a search found, as a numbered link of Markdown or under its name."""
_STATES = ("status", "state", "conclusion")
_NAMES = (("title", "name", "标题", "名称"), ("number", "id", "key", "code"))
"""Keys that end so tell one object from another, best first."""


def told_changes(text: str, many: str, *, is_whole: bool) -> str:
    """Return which files a diff of several, or `git status`, says were changed, or which commits there are.

    Args:
        text: what was printed.
        many: what says of how many lines that was.
        is_whole: whether that is all, so that what is in it may be counted.
    """
    if text.startswith("diff --git ") and len(files := _DIFF.findall(text)) > 1:
        return cut(f"diff of {f'{len(files)} files' if is_whole else 'files'}: {', '.join(files)}", _CHARS)
    if branch := _BRANCH.match(text):
        changes = (f"{how} {path}" if how else path for how, path in _CHANGE.findall(text))
        told = ", ".join(changes)
        return cut(f"{branch[0]}: {told}", _STATUS_CHARS) + many if told else ""
    if text.startswith("commit ") and (commits := _COMMIT.findall(text)):
        return cut("; ".join(f"{name} {subject}" for name, subject in commits), _CHARS)
    return ""


def told_hits(text: str, *, is_whole: bool) -> str:
    """Return the titles of what a search found, of a whole text with their number; "" for fewer than two."""
    titles = [link or title for link, title in _TITLE.findall(text)]
    count = f"{len(titles)} " if is_whole else ""
    return cut(f"{count}found: {'; '.join(titles)}", _CHARS) if len(titles) > 1 else ""


def told_directory(lines: Sequence[str]) -> str:
    """Return the names of what is in a directory that stands above them; "" for any other lines."""
    above = lines[0].rstrip("/") + "/" if lines else ""
    if " " in above or not all(line.startswith(above) for line in lines[1:]):
        return ""
    return cut(", ".join(line.removeprefix(above) for line in lines[1:]), _PATHS_CHARS)


def told_objects(text: str) -> str:
    """Return how many objects a list in JSON has, and what tells one from another; "" for any other data."""
    if not text.lstrip().startswith("["):
        return ""
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    if len(items) < 2 or not all(isinstance(item, dict) for item in items):
        return ""
    keys = (key for names in _NAMES for key in items[0] if key.lower().endswith(names))
    named = next(filter(None, (_named(items, key) for key in keys)), None)
    return f"{len(items)} items: {'; '.join(named)}" if named else ""


def _named(items: Sequence[dict[str, Any]], key: str) -> list[str]:
    """Return objects by a value, each with its state where these differ; [] where the values do not tell."""
    told = [item for item in items if isinstance(item.get(key), (str, int)) and item[key] != ""]
    if len({item[key] for item in told}) < len(told) or 2 * len(told) <= len(items):
        return []
    states = [next((item[name] for name in _STATES if isinstance(item.get(name), str)), "") for item in told]
    differ = len(set(states)) > 1
    return [
        f"{item[key]} {state if differ else ''}".rstrip() for item, state in zip(told, states, strict=True)
    ]
