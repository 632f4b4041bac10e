"""What a list of JSON objects is told by: their titles, and the first that says that it failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

_LEVEL_KEYS = ("level", "severity", "levelname", "conclusion", "status", "state")
_FAILED = frozenset({"error", "fatal", "critical", "failed", "failure", "panic", "crashed", "timed_out"})
"""Under which keys an object says that it tells of a failure, and how."""
_TITLE_KEYS = (
    *("title", "subject", "summary", "name", "headline", "full_name", "msg", "message"),
    *("标题", "名称"),
)
_MIN_TITLES, _MAX_TITLES = 3, 100
_TITLE_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Objects:
    """What a list tells of the objects in it."""

    are_all: bool
    """Whether nothing else stands in it."""
    failed: tuple[int, ...]
    """Where those stand that say that they failed, or tell of a failure."""
    key: str
    """Under which their titles stand; "" where they have none."""
    titles: tuple[str, ...]
    """Each once, those of the failed first."""


def look_through(items: Sequence[Any]) -> Objects:
    """Return what a list tells of the objects in it."""
    are_all = all(isinstance(item, dict) for item in items)
    failed = tuple(at for at, item in enumerate(items) if _failure_of(item))
    first = items[:_MIN_TITLES]
    key = next((key for key in _TITLE_KEYS if all(_title_of(item, key) for item in first)), "")
    if not are_all or len(items) < _MIN_TITLES or not key:
        return Objects(are_all, failed, "", ())
    told = (_titled(item, key) for item in (*(items[at] for at in failed), *items))
    titles = tuple(islice(dict.fromkeys(filter(None, told)), _MAX_TITLES))
    return Objects(are_all, failed, key, titles if len(titles) >= _MIN_TITLES or failed else ())


def _failure_of(item: Any) -> str:
    """Return the word by which an object says that something failed: a line of a log, a run."""
    said = (item.get(key) for key in _LEVEL_KEYS) if isinstance(item, dict) else ()
    return next((word for word in said if isinstance(word, str) and word.lower() in _FAILED), "")


def _title_of(item: Any, key: str) -> str:
    title = item.get(key) if isinstance(item, dict) else None
    return title.strip() if isinstance(title, str) and "\n" not in title else ""


def _titled(item: Any, key: str) -> str:
    title, failure = _title_of(item, key)[:_TITLE_CHARACTERS].rstrip(), _failure_of(item)
    return f"{title} ({failure})" if title and failure else title
