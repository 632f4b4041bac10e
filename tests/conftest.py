"""A Hypothesis profile, a plain environment, variants.

Every run draws the same examples; `--hypothesis-profile explore` draws others, and more of them.

A test marked `variants(n)` is run with its first n parameters only, unless `--all` is given; with 0, one that
takes long and says what others say as well, it is not run at all. With `--own` only those tests run that are
of the library itself and need nothing but what is there by default: no server, no framework.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No wall-clock limits anywhere: a busy machine must not fail a test.
settings.register_profile(
    "explore", max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "same", settings.get_profile("explore"), max_examples=50, derandomize=True, database=None, print_blob=True
)
settings.load_profile("same")

_OTHERS = {
    "apart", "benchmarks", "examples", "gateway", "integrations", "lab", "services", "support_tests",
    "test_dist.py", "test_readme.py", "test_site.py",
}  # fmt: skip
"""Tests of what is built beside others, with others or on top, and of the pages about it."""
_THEIRS = re.compile("(?i:.*_proxy)|(OPENAI|DASHSCOPE|TTY)_.*|(NO|FORCE|PY)_COLOR|GITHUB_ACTIONS")


def pytest_sessionstart() -> None:
    """Forget proxies, keys and colours of who runs the tests, also for the processes that tests start.

    By now pytest knows whether it may use colours, and no module that looks for them is imported yet.
    """
    for name in [name for name in os.environ if _THEIRS.fullmatch(name)]:
        del os.environ[name]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run tests with all their parameters")
    parser.addoption(
        "--own", action="store_true", help="leave out servers, frameworks, the lab and the pages"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "variants(n): without --all, run the first n parameters only")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import, with `--own`, what needs others: frameworks take longer to load than many tests."""
    is_theirs = collection_path.parent == Path(__file__).parent and collection_path.name in _OTHERS
    return True if is_theirs and config.getoption("--own") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out further variants."""
    seen: dict[tuple[str, str], int] = {}
    left = []
    for item in [] if config.getoption("--all") else items:
        mark = item.get_closest_marker("variants")
        if mark is not None:
            name = item.nodeid.partition("::")[0], item.nodeid.partition("::")[2].partition("[")[0]
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > mark.args[0]:
                left.append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        gone = set(map(id, left))
        items[:] = [item for item in items if id(item) not in gone]


@pytest.fixture(scope="session")
def server(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str, pytestconfig: pytest.Config
) -> Iterator[Callable[[str], int]]:
    """Give the port of a server by its kind, started at the first call: one of each for the whole run."""
    from tests.support.servers import running  # which those in an environment apart do not need

    base = tmp_path_factory.getbasetemp()
    shared: Path = base if worker_id == "master" else base.parent
    ports: dict[str, int] = {}
    with ExitStack() as stack:

        def port_of(kind: str) -> int:
            if pytestconfig.getoption("own"):
                pytest.skip("servers are left out")
            if kind not in ports:
                ports[kind] = stack.enter_context(running(kind, shared))
            return ports[kind]

        yield port_of
