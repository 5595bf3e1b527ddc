"""What all tests share: Hypothesis settings, UTC, no mail program of this machine, a summary."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import examples

settings.register_profile(
    "spooldeck", examples(100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
)
settings.load_profile("spooldeck")

# A shell that starts the tests in the background has them, and what they start, ignore SIGINT.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests that send mail name the way.
os.environ["NFTBAN_MAIL_METHOD"] = "none"

# Logs are written in local time. Tests of other time zones set them.
os.environ["TZ"] = "UTC"
time.tzset()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name what this run did not include, and the command that does."""
    if "not deep" in config.option.markexpr:
        terminalreporter.write_line("not run: tests marked deep; make test-all runs them")
    terminalreporter.write_line(
        "not run: planted faults, every crash point by strace, fuzz, soak; make deep runs them"
    )
