"""What all tests have in common: how long an example takes says nothing about what holds."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# No test sends mail by whatever this machine happens to have; those that send say how.
os.environ["NFTBAN_MAIL_METHOD"] = "none"
