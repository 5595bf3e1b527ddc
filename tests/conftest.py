"""What all tests share: Hypothesis settings, UTC, no mail program of this machine, a summary."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings

from tests.examples import examples

if TYPE_CHECKING:
    from tests.redis_server import TestServer

settings.register_profile(
    "spooldeck", examples(100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
)
settings.load_profile("spooldeck")

# A shell that starts the tests in the background makes them, and what they start, ignore SIGINT
# and SIGQUIT.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# Tests that send mail name the way.
os.environ["NFTBAN_MAIL_METHOD"] = "none"

# Logs are written in local time. Tests of other time zones set them.
os.environ["TZ"] = "UTC"
time.tzset()


HANG_SECONDS, DEEP_HANG_SECONDS = 300, 1800
"""A test that takes so long hangs: all stacks are printed, and its process ends."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End a test that hangs: else the run would not end, nor say which test it is."""
    seconds = DEEP_HANG_SECONDS if item.get_closest_marker("deep") else HANG_SECONDS
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(seconds, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if this system has one: a database there waits for no disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(prefix="sd", dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[TestServer]:
    """One Redis or Valkey server for each test process; without one an error on CI."""
    from tests.redis_server import open_server

    try:
        with open_server() as server:
            yield server
    except FileNotFoundError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture
def redis_url(redis_server: TestServer) -> Iterator[str]:
    """The address of an empty database, which is emptied again after the test."""
    yield redis_server.place()
    with redis_server.client() as client:
        client.flushdb()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of one Postgres server for each test process; without one an error on CI."""
    from tests.postgres_server import open_server

    try:
        with open_server() as url:
            yield url
    except FileNotFoundError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of an empty schema of its own, which is dropped after the test."""
    import psycopg

    name = f"test_{os.urandom(6).hex()}"
    with psycopg.connect(postgres_server, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {name}")
        sign = "&" if "?" in postgres_server else "?"
        yield f"{postgres_server}{sign}options=-csearch_path%3D{name}"
        db.execute(f"DROP SCHEMA {name} CASCADE")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--deep-slice K/N`: of the tests marked deep only every N-th, of N equal parts the K-th."""
    parser.addoption("--deep-slice", default="0/1", metavar="K/N", help="a part of the deep tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the deep tests of other slices. The name decides, so a test stays in its slice."""
    part, parts = map(int, config.getoption("--deep-slice").split("/"))
    others = [
        item
        for item in items
        if item.get_closest_marker("deep") and crc32(item.nodeid.encode()) % parts != part
    ]
    if others:
        left_out = set(others)
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=others)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name what this run did not include, and the command that does."""
    if "not deep" in config.option.markexpr:
        terminalreporter.write_line("not run: tests marked deep; make test-all runs them")
    if (slice_ := config.getoption("--deep-slice")) != "0/1":
        terminalreporter.write_line(f"of the tests marked deep: slice {slice_}")
    terminalreporter.write_line(
        "not run: planted faults, every crash point by strace, fuzz, soak; make deep runs them"
    )
