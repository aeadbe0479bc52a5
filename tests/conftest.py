"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# Deadlines measure the machine's load, not the code; a failure prints what repeats it.
settings.register_profile(
    "motet", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("motet")
