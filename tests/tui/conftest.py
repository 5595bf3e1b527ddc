"""What every test of the console rests on: nothing blocks its loop, and the time zone is known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx

from tests.tui.spools import in_utc


def pytest_addoption(parser: pytest.Parser) -> None:
    """What is known only beside the screens' tests."""
    parser.addoption("--draw", action="store_true", help="draw the screens anew (tests/tui/golden)")


@pytest.fixture(autouse=True)
def nothing_blocks() -> Iterator[None]:
    """Whoever of us waits for a disk, a socket or a lock on the event loop fails the test."""
    with blockbuster_ctx(scanned_modules=["tui", "engine"]) as calls:
        for call in calls.functions.values():
            # Outside of tests a console is made before there is a loop.
            call.can_block_in("tui/app.py", "__init__")
        yield


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """Times of day do not depend on where the tests run."""
    with in_utc():
        yield
