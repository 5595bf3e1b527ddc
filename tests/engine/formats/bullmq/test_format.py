"""A server of BullMQ queues as a place: commands and console open it by its URL."""

import json
import time
from typing import Any

import pytest
from redis import Redis

from engine.places.place import Place
from tests.bullmq_jobs import everything, unmarked
from tests.console_operator import an_operator
from tests.engine.formats.bullmq.conftest import Run
from tui.text import keys


@pytest.mark.usefixtures("jobs")
def test_the_commands_work_on_it(run: Run, client: Redis, redis_url: str) -> None:
    """Status, plans, the journal and its undo, which restores every key."""
    before = everything(client)
    output = run("status", redis_url, code=1)
    assert f"queue     {redis_url}" in output and "failed 3" in output
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
    assert unmarked(client) == before


@pytest.mark.usefixtures("jobs")
async def test_the_console_shows_it(console_place: Place) -> None:
    """Its jobs are a list with BullMQ's words, and a plan for them is made."""
    options: dict[str, Any] = {"size": (120, 40), "first": keys.OVERVIEW, "clock": time.time}
    async with an_operator(console_place, **options) as operator:
        await operator.press("2")
        await operator.sees("sums/4", "[waiting 1]", "failed 3", "noeviction")
        await operator.press("H")
        await operator.sees("hold")
