from hypothesis import HealthCheck, settings

# No wall-clock limits: a busy machine must not fail a test.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")
