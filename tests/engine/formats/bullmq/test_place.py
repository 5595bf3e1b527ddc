"""A database of BullMQ queues as a place: commands, doctor and console open it by its URL."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from engine.config import place_address as addresses
from engine.config import queue_config
from engine.config.place_address import parse_address
from engine.formats.bullmq import facts
from engine.formats.bullmq.connection import Connection
from engine.formats.bullmq.place import parse_place
from tests.bullmq_jobs import everything, write_failed, write_hash, write_waiting
from tests.console_operator import an_operator
from tests.redis_server import TestServer
from tui.cli import main
from tui.cli.setup import place_formats
from tui.cli.setup.places import open_places
from tui.text import keys

Run = Callable[..., str]


@pytest.fixture
def client(redis_server: TestServer, redis_url: str) -> Iterator[redis.Redis]:
    """Another program's connection to the test's database, which has some jobs."""
    with redis_server.client() as other:
        for number in "123":
            write_failed(other, number, timestamp=round(time.time() * 1000) - 7_200_000)
        write_waiting(other, "4", "sums", timestamp=round(time.time() * 1000))
        yield other


@pytest.fixture
def run(
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run a command; its output and errors."""
    monkeypatch.setattr(addresses, "ROOT_STATE_FOLDER", str(tmp_path / "state" / "spooldeck"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*argv: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main([*argv]) == code, capsys.readouterr()
        return "".join(capsys.readouterr())

    return run


def test_the_commands_work_on_it(run: Run, client: redis.Redis, redis_url: str) -> None:
    """Status, plans, the journal and its undo, which restores every key."""
    before = everything(client)
    said = run("status", redis_url, code=1)
    assert f"queue     {redis_url}" in said
    assert "failed 3" in said
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


def test_the_doctor_names_what_endangers_jobs(
    run: Run, client: redis.Redis, redis_url: str
) -> None:
    """Memory policy, append only file, no worker, versions, and problems, each with a fix."""
    client.hset("bull:sums:meta", "version", "bullmq:5.81.5")
    client.hset("bull:mails:meta", "version", "bullmq:6.7.0")
    client.lpush("bull:sums:wait", "9")
    try:
        client.config_set("maxmemory-policy", "allkeys-lru")
        said = run("doctor", redis_url, code=1)
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
    ):
        assert text in said


def test_workers_are_the_clients_of_a_queue(
    redis_server: TestServer, client: redis.Redis, redis_url: str
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
    assert [(one.name, one.queues) for one in state.workers] == [
        ("one", ("sums",)),
        ("two", ("sums",)),
    ]
    assert all(one.address and 0 <= one.age < 600 for one in state.workers)
    assert state.without_worker == []
    rows = dict(facts.describe_state(state, 1_795_169_100.0))
    assert rows["schedules"] == "mails 1, next in 15m"
    assert rows["workers"] == "mails 0, sums 2"


def test_the_server_tells_its_memory_versions_and_pauses() -> None:
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


async def test_the_console_shows_it(run: Run, redis_url: str, tmp_path: Path) -> None:
    """Its jobs are a list with BullMQ's words, and a plan for them is made."""
    config = tmp_path / "spooldeck.yaml"
    config.write_text(json.dumps({"places": [redis_url]}))
    loaded = queue_config.load_config(str(config), {})
    (place,) = open_places(place_formats.setup_for(loaded, "", {}), [])
    async with an_operator(place, size=(120, 40), first=keys.OVERVIEW, clock=time.time) as operator:
        await operator.press("2")
        await operator.sees("sums/4", "[waiting 1]", "failed 3", "noeviction")
        await operator.press("H")
        await operator.sees("hold")
