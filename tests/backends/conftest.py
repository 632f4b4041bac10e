"""One server of each kind for the whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.servers import running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Callable[[str], int]]:
    """Give the port of a server by its kind, started at the first call."""
    base = tmp_path_factory.getbasetemp()
    shared: Path = base if worker_id == "master" else base.parent
    ports: dict[str, int] = {}
    with ExitStack() as stack:

        def port_of(kind: str) -> int:
            if kind not in ports:
                ports[kind] = stack.enter_context(running(kind, shared))
            return ports[kind]

        yield port_of
