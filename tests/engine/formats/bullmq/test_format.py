"""A server of BullMQ queues as a place: commands and console open it by its URL."""

import json
import time
from pathlib import Path

import pytest
import redis

from engine.config import queue_config
from engine.formats import known_formats as place_formats
from engine.places.place import Place
from tests.bullmq_jobs import everything
from tests.console_operator import an_operator
from tests.engine.formats.bullmq.conftest import Run
from tui.cli.setup.places import open_places
from tui.text import keys


def test_the_commands_work_on_it(run: Run, client: redis.Redis, redis_url: str) -> None:
    """Status, plans, the journal and its undo, which restores every key."""
    before = everything(client)
    output = run("status", redis_url, code=1)
    assert f"queue     {redis_url}" in output
    assert "failed 3" in output
    counts = json.loads(run("status", redis_url, "--json", code=1))["tasks"]
    assert (counts["waiting"], counts["failed"]) == (1, 3)
    assert everything(client) == before

    run("purge", redis_url, "--apply", "3", "--reason", "a test")
    assert "trash 3" in run("status", redis_url, code=1)
    (purged,) = map(json.loads, run("journal", redis_url, "--json").splitlines())
    run("undo", purged["op"], redis_url, "--apply", "3")
    assert everything(client) == before

    run("hold", redis_url, "--state", "waiting", "--apply", "1", "--reason", "a test")
    assert "held 1" in run("status", redis_url, code=1)
    run("release", redis_url, "--apply", "1")
    after = everything(client)
    after.pop("bull:sums:marker")
    assert after == before


@pytest.fixture
def configured(redis_url: str, tmp_path: Path) -> Place:
    """The place of the console with the server in its configuration."""
    config = tmp_path / "spooldeck.yaml"
    config.write_text(json.dumps({"places": [redis_url]}))
    loaded = queue_config.load_config(str(config), {})
    (place,) = open_places(place_formats.setup_for(loaded, "", {}), [])
    return place


@pytest.mark.usefixtures("run")
async def test_the_console_shows_it(configured: Place) -> None:
    """Its jobs are a list with BullMQ's words, and a plan for them is made."""
    async with an_operator(
        configured, size=(120, 40), first=keys.OVERVIEW, clock=time.time
    ) as operator:
        await operator.press("2")
        await operator.sees("sums/4", "[waiting 1]", "failed 3", "noeviction")
        await operator.press("H")
        await operator.sees("hold")
