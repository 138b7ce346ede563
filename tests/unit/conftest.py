"""How many inputs the fuzz tests try: few, many with `make fuzz`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Not at random: a red test is red for everyone.
settings.register_profile(
    "few",
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)
settings.register_profile("many", settings.get_profile("few"), max_examples=4000)
settings.load_profile("few")
