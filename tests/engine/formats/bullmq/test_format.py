"""A server of BullMQ queues as a place: its settings, commands, facts and doctor."""

import json
import time
from contextlib import closing

import pytest
from redis import Redis

from engine.config.place_address import parse_address
from engine.config.validators import ConfigError, ConfigLocation
from engine.formats.bullmq import facts
from engine.formats.bullmq.connection import Connection
from engine.formats.bullmq.place import BullmqSettings, JobLimit, parse_place, parse_settings
from tests.bullmq_jobs import everything, unmarked, write_hash, write_schedule
from tests.engine.formats.bullmq.conftest import Run
from tests.redis_server import TestServer


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


# ---- settings


def test_settings_of_the_worker_are_checked() -> None:
    """A limit needs both of its numbers; an unknown key or a wrong value is named."""
    at = ConfigLocation("some.yaml", "stores.bullmq")
    assert parse_settings(None, at) == BullmqSettings()
    settings = {"lease": 5, "metrics": 60, "limiter": {"mails": {"max": 10, "duration": 0.5}}}
    place = parse_place(parse_address("redis://host"), parse_settings(settings, at))
    assert (place.settings.lease, place.settings.metrics) == (5.0, 60)
    assert place.settings.limiter == {"mails": JobLimit(10, 0.5)}
    assert place._replace(fields={"": "url"}).field("mails") == "url"
    for wrong, key in (
        ({"metrics": -1}, "stores.bullmq.metrics"),
        ({"limiter": {"mails": {"max": 3}}}, "stores.bullmq.limiter.mails"),
        ({"limiter": {"mails": {"max": 0, "duration": 1}}}, "stores.bullmq.limiter.mails.max"),
        ({"limiter": 3}, "stores.bullmq.limiter"),
        ({"destination": 'url"'}, "stores.bullmq.destination"),
        ({"lesse": 3}, "stores.bullmq.lesse"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse_settings(wrong, at)
        assert f"some.yaml: {key}" in str(caught.value)


# ---- facts


@pytest.mark.usefixtures("jobs")
def test_workers_are_clients_of_a_queue(
    redis_server: TestServer, client: Redis, redis_url: str
) -> None:
    """By name and host, in the spelling of Python and of Node; a listener is no worker."""
    names = ("bull:sums:w:one", "bull:sums:w:one", "bull:c3Vtcw==:w:two", "bull:mails:qe")
    others = [redis_server.client(client_name=name) for name in names]
    for other in others:
        other.ping()
    client.hset("bull:mails:repeat:daily", "ic", 1)
    client.zadd("bull:mails:repeat", {"daily": 1_795_170_000_000})
    write_hash(client, "bull:mails:5")
    place = parse_place(parse_address(redis_url))
    with closing(Connection(place)) as connection:
        state = facts.read_state(connection, place, time.time())
    for other in others:
        other.close()
    assert {queue.name: queue.workers for queue in state.queues} == {"mails": 0, "sums": 2}
    workers = [(one.name, one.queues) for one in state.workers]
    assert workers == [("one", ("sums",)), ("two", ("sums",))]
    assert all(one.address and 0 <= one.age < 600 for one in state.workers)
    assert state.without_worker == []
    rows = dict(facts.describe_state(state, 1_795_169_100.0))
    assert (rows["schedules"], rows["workers"]) == ("mails 1, next in 15m", "mails 0, sums 2")


def test_the_server_reports_its_memory_versions_and_pauses() -> None:
    """Memory with its limit and maxmemory-policy, append only file; only what is there."""
    queue = facts.QueueFacts(
        "mails", 0, 0, workers=None, is_paused=False, version="", schedulers=0, next_run=None
    )
    settings = {"maxmemory_policy": "noeviction", "used_memory": str(3 << 19), "aof_enabled": "1"}
    bare = facts.QueueServerState(settings, [queue])
    assert facts.describe_state(bare, 0.0) == [
        ("memory", "1.5 MiB, noeviction"),
        ("aof", "on"),
        ("workers", "?"),
    ]
    full = facts.QueueServerState(
        settings | {"maxmemory": str(1 << 30)},
        [queue._replace(is_paused=True, version="6.7.0"), queue._replace(version="5.81.5")],
    )
    rows = dict(facts.describe_state(full, 0.0))
    assert rows["memory"] == "1.5 of 1,024 MiB, noeviction"
    assert (rows["paused"], rows["versions"]) == ("mails", "5.81.5, 6.7.0")


# ---- doctor


@pytest.mark.usefixtures("jobs")
def test_the_doctor_names_what_endangers_jobs(run: Run, client: Redis, redis_url: str) -> None:
    """Memory policy, append only file, no worker, versions, problems, schedules without a next run,
    and a queue whose schedules cannot be read; each with a fix."""
    client.hset("bull:sums:meta", "version", "bullmq:5.81.5")
    client.lpush("bull:sums:wait", "9")
    client.set("bull:sums:repeat", "x")
    write_schedule(client)
    client.delete("bull:mails:delayed", *client.keys("bull:mails:repeat:tick:*"))
    try:
        client.config_set("maxmemory-policy", "allkeys-lru")
        output = " ".join(run("bullmq", "doctor", redis_url, code=1).split())
    finally:
        client.config_set("maxmemory-policy", "noeviction")
    for text in (
        "2 queues: mails, sums",
        "maxmemory-policy is allkeys-lru: the server may delete jobs",
        "fix: redis-cli config set maxmemory-policy noeviction",
        "appendonly is off",
        "jobs wait without a worker: sums",
        "BullMQ 5.81.5, 6.7.0 use this server",
        "is in wait, but has no data",
        "mails/tick: stopped: the job of its next run",
        "schedules sums: ",
        "another type than BullMQ expects",
    ):
        assert text in output
