"""Which sessions there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import chinese, code, logs, pages, sql, support
from .recorder import Recorded


class Sample(NamedTuple):
    """A session to be made."""

    id: str
    kind: str
    """The file that it goes to."""
    recorder: Callable[[int, int], Recorded]
    max_tokens: int
    """The size at which it comes to its end; the answer and a step on its way come on top."""
    seed: int

    def record(self) -> Recorded:
        """Record it."""
        return self.recorder(self.max_tokens, self.seed)


SAMPLES = (
    Sample("reading-1", "code", code.record_reading, 14_000, 0),
    Sample("reading-2", "code", code.record_reading, 60_000, 0),
    Sample("reading-3", "code", code.record_reading, 298_000, 0),
    Sample("mending-1", "code", code.record_mending, 9_000, 11),
    Sample("mending-2", "code", code.record_mending, 70_000, 12),
    Sample("logs-1", "logs", logs.record, 6_000, 21),
    Sample("logs-2", "logs", logs.record, 26_000, 22),
    Sample("logs-3", "logs", logs.record, 80_000, 23),
    Sample("logs-4", "logs", logs.record, 150_000, 24),
    Sample("sql-1", "sql", sql.record, 4_500, 31),
    Sample("sql-2", "sql", sql.record, 30_000, 32),
    Sample("sql-3", "sql", sql.record, 100_000, 33),
    Sample("pages-1", "pages", pages.record, 11_000, 41),
    Sample("pages-2", "pages", pages.record, 45_000, 42),
    Sample("pages-3", "pages", pages.record, 90_000, 43),
    Sample("support-1", "support", support.record, 7_000, 51),
    Sample("support-2", "support", support.record, 40_000, 52),
    Sample("support-3", "support", support.record, 180_000, 53),
    Sample("chinese-1", "chinese", chinese.record, 10_000, 61),
    Sample("chinese-2", "chinese", chinese.record, 60_000, 62),
)
