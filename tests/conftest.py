"""Hypothesis profiles: `default` explores, `ci` always draws the same examples."""

import os

from hypothesis import HealthCheck, settings

# No wall-clock limits anywhere: a busy machine must not fail a test.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", settings.get_profile("default"), derandomize=True, database=None, print_blob=True
)
settings.load_profile("ci" if os.environ.get("CI") else "default")
