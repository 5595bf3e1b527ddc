"""What the console shows of BullMQ queues: counts, new queues, alerts, rows of odd jobs."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from engine.config import place_address, queue_config
from engine.model import Missing, Problem, Task
from engine.stores.bullmq import BullmqStore
from tests.redis_server import TestServer
from tests.stores.jobs import write_failed, write_waiting
from tests.tui.desks import a_desk
from tui.cli.setup import place_formats
from tui.cli.setup.places import open_places
from tui.format import keys
from tui.session.place import Place


@pytest.fixture
def client(redis_server: TestServer, redis_url: str) -> Iterator[redis.Redis]:
    """Another program's connection to the test's database."""
    with redis_server.client() as other:
        yield other


@pytest.fixture
def open_place(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Place]:
    """The test's database, or another address, as a place of the console."""
    monkeypatch.setattr(place_address, "ROOT_STATE_FOLDER", str(tmp_path / "state" / "spooldeck"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def open_it(url: str = redis_url) -> Place:
        config = tmp_path / "spooldeck.yaml"
        config.write_text(json.dumps({"places": [url]}))
        loaded = queue_config.load_config(str(config), {})
        (place,) = open_places(place_formats.setup_for(loaded, "", {}), [])
        return place

    return open_it


async def test_counts_are_exact_while_the_first_scan_runs(
    client: redis.Redis, open_place: Callable[..., Place]
) -> None:
    """Tabs, table, header and the alert of dead tasks have the server's own counts, without a +,
    while no more than a part of the jobs was read; they follow changes."""
    with client.pipeline() as many:
        for number in range(700):
            write_failed(many, f"f{number}")
            write_waiting(many, f"w{number}")
        many.execute()
    place, going = open_place(), threading.Semaphore(0)

    def slowly(store: BullmqStore) -> BullmqStore:
        scan = store.scan

        def hook(touched: object = None) -> Iterator[Task | Missing | Problem]:
            for number, item in enumerate(scan(touched)):  # type: ignore[arg-type]
                if touched is None and number > 120:
                    going.acquire()
                yield item

        store.scan = hook  # type: ignore[method-assign]
        return store

    place = place._replace(open=lambda opened=place.open: slowly(opened()))  # type: ignore[misc]
    async with a_desk(place, size=(120, 40), first=keys.OVERVIEW, early=True) as desk:
        (live,) = desk.console.sessions
        await desk.sees("failed 700", "700 dead (limit")
        latest = live.inspector.latest
        assert (latest.is_complete, latest.is_counted, latest.indexed < 700) == (False, True, True)
        assert "700+" not in desk.text
        write_failed(client, "more")
        await desk.sees("failed 701", "701 dead (limit")
        await desk.press("2")
        await desk.sees("waiting 700", "failed 701")
        assert not live.inspector.latest.is_complete
        going.release(10_000)
        await desk.until(lambda: live.inspector.latest.is_complete)
        await desk.sees("waiting 700", "failed 701")
