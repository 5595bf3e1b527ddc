"""What all tests share: Hypothesis settings, UTC, no mail program of this machine, a summary."""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings

from engine.config import place_address
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

gc.disable()  # until all tests are collected: nearly all objects made until then stay

# Tests that send mail name the way.
os.environ["NFTBAN_MAIL_METHOD"] = "none"

# Logs are written in local time. Tests of other time zones set them.
os.environ["TZ"] = "UTC"
time.tzset()


HANG_SECONDS, DEEP_HANG_SECONDS = 300, 1800
"""A test that takes so long hangs: all stacks are printed, and its process ends."""


def pytest_configure(config: pytest.Config) -> None:
    """Give the tests a home of their own: nothing is left in that of the user, and nothing that is
    there is used.

    It is beside the folder of the tests, so that a run that is killed leaves it there, not in /tmp.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:  # has the home of the process that started it
        _keep_state_of_root_in(os.environ["HOME"])
        return
    given = config.option.basetemp
    parent = Path(given).parent if given else None
    home = TemporaryDirectory(prefix="sd-home-", dir=parent)
    config.add_cleanup(home.cleanup)
    os.environ |= {"USER_HOME": str(Path("~").expanduser()), "HOME": home.name}
    own = ("SPOOLDECK_CONFIG", "SPOOLDECK_PLACES")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "HISTFILE", *own):
        os.environ.pop(name, None)
    _keep_state_of_root_in(home.name)


def _keep_state_of_root_in(home: str) -> None:
    """Root's state of places is not below its home: a test could find what was left there."""
    place_address.ROOT_STATE_FOLDER = f"{home}/state"


HANDLED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
"""Signals that our commands handle."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End a test that hangs: else the run would not end, nor say which test it is. A command that
    is run in this process, such as a worker, may leave signal handlers: they are set back."""
    before = {number: signal.getsignal(number) for number in HANDLED_SIGNALS}
    seconds = DEEP_HANG_SECONDS if item.get_closest_marker("deep") else HANG_SECONDS
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(seconds, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


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
    """The address of an empty database, which is emptied again after the test; root's commands keep
    its logs in one folder, which goes too."""
    yield redis_server.place()
    with redis_server.client() as client:
        client.flushdb()
    if redis_server.process is not None:  # one of our own, in a folder with a name of its own
        from tests.redis_server import remove_places

        remove_places(Path(redis_server.url).parent.name)


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
    """`--deep`: also tests marked deep; `--deep-slice K/N`: of N equal parts of them the K-th."""
    parser.addoption("--deep", action="store_true", help="also run the tests marked deep")
    parser.addoption("--deep-slice", default="", metavar="K/N", help="a part of the deep tests")


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what stays to the end, and come less often: it took a
    twelfth of the time."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect deep tests that are not asked for by an option or by their own name.

    The name of a test decides its slice, so it stays there.
    """
    whole = "0/1" if config.getoption("--deep") else "0/0"
    part, parts = map(int, (config.getoption("--deep-slice") or whole).split("/"))
    named = {word.rpartition("::")[2] for word in config.args if "::" in word}
    others = [
        item
        for item in items
        if item.get_closest_marker("deep")
        and not named & {item.name, item.name.partition("[")[0]}
        and (not parts or crc32(item.nodeid.encode()) % parts != part)
    ]
    if others:
        not_run = set(others)
        items[:] = [item for item in items if item not in not_run]
        config.hook.pytest_deselected(items=others)


PACKAGE_EXTRAS = {
    **dict.fromkeys(("redis", "bullmq", "msgpack", "croniter"), "bullmq"),
    **dict.fromkeys(("httpx", "httpcore"), "deliver"),
    **dict.fromkeys(("cryptography", "nacl"), "federation"),
    "psycopg": "postgres",
    **dict.fromkeys(("hatchling", "build", "twine", "shtab", "pypandoc"), "package"),
}
"""The extra that brings a package which only some users have."""


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that imports a package of an extra which is not installed."""
    report = yield
    missing = re.search(r"ModuleNotFoundError: No module named '(\w+)", str(report.longrepr))
    extra = missing and PACKAGE_EXTRAS.get(missing[1])
    if report.failed and extra and not os.environ.get("CI"):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {_describe_extra(extra)}")
    return report


def _skip_without_package() -> Generator[None, object, object]:
    """Skip a test that imports a package of an extra which is not installed; on CI it fails."""
    try:
        return (yield)
    except ModuleNotFoundError as error:
        extra = PACKAGE_EXTRAS.get((error.name or "").partition(".")[0])
        if extra and not os.environ.get("CI"):
            pytest.skip(_describe_extra(extra))
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """Skip a test whose fixtures need an extra that is not installed."""
    return (yield from _skip_without_package())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip a test that needs an extra which is not installed."""
    return (yield from _skip_without_package())


def _describe_extra(extra: str) -> str:
    return f"the extra {extra} is not installed: pip install -e '.[{extra}]'"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name what this run did not include, why, and the command that does."""
    skipped = Counter(
        re.sub(r"^(only|needs) root.*|.*os\.geteuid.*", "only root can run it", reason)
        for reason in (
            report.longrepr[2].removeprefix("Skipped: ").partition("\n")[0]
            for report in terminalreporter.stats.get("skipped", ())
            if isinstance(report.longrepr, tuple)
        )
    )
    for reason, count in skipped.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason}")
    if slice_ := config.getoption("--deep-slice"):
        terminalreporter.write_line(f"of the tests marked deep: slice {slice_}")
    elif not config.getoption("--deep"):
        terminalreporter.write_line("not run: tests marked deep; --deep runs them (make test-all)")
    terminalreporter.write_line(
        "not run: planted faults, every crash point by strace, fuzz, soak; make deep runs them"
    )
