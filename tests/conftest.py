"""Hypothesis profiles: `default` explores, `ci` always draws the same examples; and a plain environment."""

import os
import re

from hypothesis import HealthCheck, settings

# No wall-clock limits anywhere: a busy machine must not fail a test.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", settings.get_profile("default"), derandomize=True, database=None, print_blob=True
)
settings.load_profile("ci" if os.environ.get("CI") else "default")

_THEIRS = re.compile("(?i:.*_proxy)|(OPENAI|DASHSCOPE|TTY)_.*|(NO|FORCE|PY)_COLOR|GITHUB_ACTIONS")


def pytest_sessionstart() -> None:
    """Forget proxies, keys and colours of who runs the tests, also for the processes that tests start.

    By now pytest knows whether it may use colours, and no module that looks for them is imported yet.
    """
    for name in [name for name in os.environ if _THEIRS.fullmatch(name)]:
        del os.environ[name]
