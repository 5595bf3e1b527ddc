"""Mail queues in SQLite for tests, opened as often as a test likes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.formats.zgb.place import RateLimit, ZgbDatabase
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from tests.zgb import NOW, Opener, Sql, settle, sql_in


@pytest.fixture
def place(tmp_path: Path) -> ZgbDatabase:
    """A mail queue that sends as fast as it is asked to, with 400 registrations from 1000 on."""
    path = str(tmp_path / "zgb.db")
    create(path)
    numbers = ", ".join(f"({number}, 0)" for number in range(1000, 1400))
    sql_in(path, f"INSERT INTO registrations VALUES {numbers}")
    sql = partial(sql_in, path)
    settle(sql, mailQueueEnabled="1", mailMaxPerHour="1000000")
    settle(sql, mailTokens="1000000", mailLastRefill=str(int(NOW)))
    return ZgbDatabase(path, rate_limit=RateLimit(1_000_000, 1_000_000), durable=False)


@pytest.fixture
def sql(place: ZgbDatabase) -> Sql:
    """Carry out a statement on the test's mail queue as another program does."""
    return partial(sql_in, place.path)


@pytest.fixture
def open_queue(place: ZgbDatabase) -> Iterator[Opener]:
    """Open the test's mail queue once more, with other settings if any are given."""
    with ExitStack() as opened:

        def opener(clock: Callable[[], float] = lambda: NOW, **settings: Any) -> ZgbStore:
            return opened.enter_context(closing(ZgbStore(place._replace(**settings), clock)))

        yield opener


@pytest.fixture
def user_job(open_queue: Opener) -> ZgbStore:
    """The test's mail queue with one job: the user's mail of registration 1001."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    return store


@pytest.fixture
def both_jobs(open_queue: Opener) -> ZgbStore:
    """The test's mail queue with both jobs of registration 1001."""
    store = open_queue()
    store.enqueue(1001)
    return store
