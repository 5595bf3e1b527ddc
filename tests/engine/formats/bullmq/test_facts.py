"""Facts about the queues of a server."""

import time
from contextlib import closing

import pytest
from redis import Redis

from engine.config.place_address import parse_address
from engine.formats.bullmq import facts
from engine.formats.bullmq.connection import Connection
from engine.formats.bullmq.place import parse_place
from tests.bullmq_jobs import write_hash
from tests.redis_server import TestServer


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
