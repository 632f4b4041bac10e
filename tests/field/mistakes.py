"""A register of mistakes that others made, each with a test and with the defence that the test is about.

`test_mistakes.py` holds the tests; `test_defences.py` takes each defence out and sees that its test fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

Check = Callable[[], Awaitable[None]]
Removal = Callable[[pytest.MonkeyPatch], None]


class Mistake(NamedTuple):
    """A mistake: its test, and what takes the defence against it out."""

    name: str
    check: Check
    without_defence: Removal


MISTAKES: list[Mistake] = []


def mistake(without_defence: Removal) -> Callable[[Check], Check]:
    """Register a test, with the function that removes the defence it tests."""

    def register(check: Check) -> Check:
        MISTAKES.append(Mistake(check.__name__.removeprefix("test_"), check, without_defence))
        return check

    return register


def replaced(target: str, value: Any) -> Removal:
    """Return a removal that replaces one attribute, named `module.name` or `module.Class.name`."""

    def remove(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(target, value)

    return remove
