from pathlib import Path

import pytest

from tests.integrations.agents.depot import make_depots
from tests.integrations.agents.support import LINES


@pytest.fixture(scope="session")
def depots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small logs, for short runs."""
    return make_depots(tmp_path_factory.mktemp("small-depots"), lines=LINES, depots=30)
