"""A line of a summary before its length is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from context_compressor.summarizers.extracts.passages import Passage

Kind = Literal["user", "agent", "work", "failure", "state", "earlier", "spare"]


@dataclass(slots=True, eq=False)
class Item:
    """A line of a summary, of which more or less may be told."""

    kind: Kind
    place: float
    """Where it stands among the others: below 0 for what an earlier summary told."""
    passage: Passage
    rank: float = 0.0
    """Who stays where not all do."""
    weight: float = 1.0
    """How much longer than others it may be."""
    carried: bool = False
    """Whether an earlier summary told it."""


@dataclass(frozen=True, slots=True)
class Labels:
    """The words of ours, in the conversation's language."""

    log: str = "What was said and done, in order"
    failures: str = "Failures not mended since"
    state: str = "State of the work"
    earlier: str = "From earlier summaries"
    user: str = "User"
    agent: str = "Agent"
    system: str = "Instruction"
    asked: str = "asked"
    answered: str = "answered"
    failed: str = "FAILED"
    no_result: str = "Called, without a result so far"
    root: str = "Paths without a beginning are under"


ENGLISH = Labels()
CHINESE = Labels(
    *("经过（按先后顺序）", "尚未解决的失败", "工作状态", "更早的摘要"),
    *("用户", "助手", "指示", "问", "已答复", "失败"),
    *("已调用，尚无结果", "省略开头的路径均位于"),
)
