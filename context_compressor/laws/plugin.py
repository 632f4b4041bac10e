"""A plugin for pytest: the fixture `check_laws`. It does nothing until a test asks for it.

def test_my_compactor_keeps_the_laws(check_laws):
    check_laws(my_function, form="chat", budget=4_000, without={"lossless"})
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from context_compressor.laws.suite import Report


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what the command line takes."""
    group = parser.getgroup("laws", "laws of a compactor")
    group.addoption("--laws-examples", type=int, help="conversations for each test of the laws")
    group.addoption("--laws-folder", metavar="DIR", help="where counterexamples of the laws are written")


@pytest.fixture
def check_laws(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """Return `context_compressor.laws.check`, which fails the test where a law is broken."""
    from context_compressor.laws.suite import check, save

    def checked(compact: Any, **options: Any) -> Report:
        examples = request.config.getoption("--laws-examples")
        report = check(compact, **options | ({} if examples is None else {"examples": examples}))
        if report.broken:
            lines = [f"{law}: {example.what}" for law, example in report.broken.items()]
            if folder := request.config.getoption("--laws-folder"):
                lines += [f"see {file}" for file in save(report, Path(folder)) if file.suffix == ".html"]
            else:
                smallest = min(report.broken.values(), key=lambda example: example.size)
                lines.append(
                    f"the smallest list that shows it (--laws-folder DIR writes all):\n{smallest.to_json()}"
                )
            pytest.fail("\n".join(lines), pytrace=False)
        return report

    return checked
