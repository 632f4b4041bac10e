"""Each test of a mistake fails when the defence that it is about is taken out."""

from __future__ import annotations

import pytest

from context_compressor.errors import ContextCompressorError
from tests.field import test_mistakes  # noqa: F401  # registers them
from tests.field.mistakes import MISTAKES, Mistake


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
async def test_without_its_defence_the_test_fails(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake.without_defence(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, ContextCompressorError)):
        await mistake.check()
