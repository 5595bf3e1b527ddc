"""What other programs may leave in the keys of BullMQ: shown as problems, and never lost."""

import math
import re
from collections.abc import Callable, Iterator

import pytest
import redis

from engine import verbs
from engine.model import Move, Problem, State, Task
from engine.store import MAX_PART_BYTES, PREVIEW_BYTES, Gone, Unsupported
from engine.stores.bullmq import BullmqStore
from tests.redis_server import TestServer
from tests.stores.jobs import (
    CREATED_MS,
    NOW,
    everything,
    scanned,
    write_failed,
    write_hash,
    write_waiting,
)
from tests.stores.seen import found

Opener = Callable[..., BullmqStore]


@pytest.fixture
def client(redis_server: TestServer, redis_url: str) -> Iterator[redis.Redis]:
    """Another program's connection to the test's database."""
    with redis_server.client() as other:
        yield other


def test_a_job_without_data_is_a_problem(client: redis.Redis, open_bullmq: Opener) -> None:
    """An id in a list whose hash is missing is named with its list; its neighbours are tasks."""
    write_waiting(client, "1")
    client.lpush("bull:mails:wait", "2")
    client.zadd("bull:mails:failed", {"3": 1.0})
    tasks, problems = scanned(open_bullmq())
    assert set(tasks) == {"mails/1"}
    assert problems == {
        "mails/2": "is in wait, but has no data",
        "mails/3": "is in failed, but has no data",
    }


def test_a_job_in_no_list_is_a_problem(client: redis.Redis, open_bullmq: Opener) -> None:
    """A hash that no list and no set has is found by a full scan; other hashes are no jobs."""
    write_waiting(client, "1")
    write_hash(client, "bull:mails:2")
    write_hash(client, "bull:mails:repeat:daily:1795170000000")
    client.hset("bull:mails:repeat:daily", mapping={"ic": 1, "pattern": "* * * * *"})
    client.hset("bull:mails:1:processed", "bull:mails:9", "null")
    client.hset("bull:mails:metrics:completed", "count", 1)
    tasks, problems = scanned(open_bullmq())
    assert set(tasks) == {"mails/1"}
    assert problems == dict.fromkeys(
        ("bull:mails:2", "bull:mails:repeat:daily:1795170000000"),
        "a job that is in no list and no set of its queue: control recover puts it back",
    )


def test_a_job_in_two_places_is_one_task_and_a_problem(
    client: redis.Redis, open_bullmq: Opener
) -> None:
    """The problem names both places."""
    write_failed(client, "1")
    client.lpush("bull:mails:wait", "1")
    items = list(open_bullmq().scan({"mails/1"}))
    assert [item.state for item in items if isinstance(item, Task)] == [State.DEAD]
    assert [item.what for item in items if isinstance(item, Problem)] == [
        "is in failed and wait at the same time"
    ]
    assert scanned(open_bullmq())[1] == {"mails/1": "is in failed and wait at the same time"}


def test_a_marker_of_an_old_version_is_no_job(client: redis.Redis, open_bullmq: Opener) -> None:
    """It stays where it is, as a problem: a worker removes it."""
    write_waiting(client, "1")
    client.rpush("bull:mails:wait", "0:1795170000000")
    tasks, problems = scanned(open_bullmq())
    assert set(tasks) == {"mails/1"}
    assert problems == {
        "bull:mails:wait 0:1795170000000": "a marker of an old BullMQ version: a worker removes it"
    }
    assert client.lrange("bull:mails:wait", 0, -1) == ["1", "0:1795170000000"]


def test_five_mebibytes_of_data_are_not_read_by_a_scan(
    client: redis.Redis, open_bullmq: Opener
) -> None:
    """The data counts for the revision, is cut when it is read, and survives a purge and its undo
    byte for byte."""
    data = '"' + "x" * (5 << 20) + '"'
    write_failed(client, "1", data=data)
    store = open_bullmq()
    before = everything(client)
    task = found(store, "mails/1")
    image = store.read(task)
    assert len(image) < 10_000
    assert len(store.read(task, "data")) == MAX_PART_BYTES
    assert store.size(task) > len(data)

    store.swap(task, verbs.retry(task, NOW))
    running = found(store, task.id)
    again = store.restore_image(running, image, State.DEAD)
    (outcome,) = store.swap_all([Move(running, again, image)])
    assert outcome.error is None
    after = everything(client)
    assert after == before
    client.hset("bull:mails:1", "data", "changed")
    changed = found(store, task.id)
    (outcome,) = store.swap_all([Move(changed, again, image)])
    assert isinstance(outcome.error, Unsupported | Gone)


def test_control_bytes_are_made_safe(client: redis.Redis, open_bullmq: Opener) -> None:
    """ESC in a name and a reason reaches no screen; a job whose id has one is a problem."""
    write_failed(client, "1", name="a\x1b[2Jb", failedReason="no\x1b]0;x\x07\nsecond line")
    client.lpush("bull:mails:wait", "9\x1b[2J")
    write_hash(client, "bull:mails:9\x1b[2J")
    tasks, problems = scanned(open_bullmq())
    task = tasks["mails/1"]
    assert all(text.isprintable() for text in (task.group, task.description, task.error))
    assert "second line" in task.error
    assert set(tasks) == {"mails/1"}
    assert set(problems.values()) == {"its id has unprintable characters"}


def test_bytes_that_are_no_text_are_shown(client: redis.Redis, open_bullmq: Opener) -> None:
    """A name that is no UTF-8 is made safe, and the job is still changed as it is."""
    client.hset("bull:mails:meta", "opts.maxLenEvents", 10000)
    write_hash(client, "bull:mails:1", failedReason="x")
    client.hset("bull:mails:1", "name", b"\xff\xfe")
    client.zadd("bull:mails:failed", {"1": 1.0})
    store = open_bullmq()
    task = found(store, "mails/1")
    assert task.group == "\ufffd\ufffd"
    store.swap(task, verbs.purge(task, NOW))
    trashed = found(store, "mails/1")
    store.swap(trashed, trashed._replace(state=State.DEAD))
    client.copy("bull:mails:1", "copy")
    assert client.hstrlen("copy", "name") == 2
    assert found(store, "mails/1").rev == task.rev


def test_options_that_are_no_json_are_a_problem(client: redis.Redis, open_bullmq: Opener) -> None:
    """The job is a task, so that it can be purged, and a problem, because no worker can read it."""
    write_waiting(client, "1", opts="{not json")
    store = open_bullmq()
    tasks, problems = scanned(store)
    assert problems == {"mails/1": "its options are not JSON: workers cannot read it"}
    store.swap(tasks["mails/1"], verbs.purge(tasks["mails/1"], NOW))
    assert scanned(store)[0]["mails/1"].state is State.TRASH


@pytest.mark.parametrize("score", [math.inf, -math.inf])
def test_a_time_that_is_no_number_is_a_problem(
    client: redis.Redis, open_bullmq: Opener, score: float
) -> None:
    """A delayed job with an infinite score has an unknown due time; Redis itself refuses NaN."""
    write_hash(client, "bull:mails:1", delay=5)
    client.hset("bull:mails:meta", "opts.maxLenEvents", 10000)
    client.zadd("bull:mails:delayed", {"1": score})
    with pytest.raises(redis.ResponseError):
        client.zadd("bull:mails:delayed", {"2": math.nan})
    tasks, problems = scanned(open_bullmq())
    assert tasks["mails/1"].due is None
    assert problems == {"mails/1": f"its time is '{score}', expected a number"}


def test_numbers_that_are_none_are_unknown(client: redis.Redis, open_bullmq: Opener) -> None:
    """A timestamp, priority or attempt count of another form is no exception."""
    write_failed(client, "1", timestamp="soon", priority="high", atm="many")
    task = scanned(open_bullmq())[0]["mails/1"]
    assert (task.created, task.priority, task.attempts) == (0.0, 0, 0)


def test_keys_of_another_type_are_problems(client: redis.Redis, open_bullmq: Opener) -> None:
    """A string where a list belongs, and one where a job belongs, hide no other job."""
    write_failed(client, "1")
    client.set("bull:mails:wait", "x")
    client.zadd("bull:mails:completed", {"2": 1.0})
    client.set("bull:mails:2", "no hash")
    store = open_bullmq()
    tasks, problems = scanned(store)
    assert set(tasks) == {"mails/1"}
    assert problems == {
        "bull:mails:wait": "is no list: BullMQ cannot use it",
        "mails/2": "its key is no hash",
    }
    assert store.count_tasks()[State.PENDING] == 0
    with pytest.raises(Unsupported, match="another type"):
        store.swap(tasks["mails/1"], verbs.retry(tasks["mails/1"], NOW))
    assert scanned(store)[0]["mails/1"] == tasks["mails/1"]


def test_a_problem_can_be_looked_into(client: redis.Redis, open_bullmq: Opener) -> None:
    """The start of its key is shown, whatever type it has."""
    write_hash(client, "bull:mails:2", data="y" * 10_000)
    client.hset("bull:mails:meta", "opts.maxLenEvents", 10000)
    client.set("bull:mails:wait", "x" * 10_000)
    store = open_bullmq()
    # Servers return the fields of a large hash in different orders.
    for where, start in (("mails/2", rb"[a-zA-Z]+: "), ("bull:mails:wait", b"xxx")):
        shown = store.preview_problem(Problem(where, "odd"))
        assert re.match(start, shown)
        assert len(shown) == PREVIEW_BYTES
    with pytest.raises(Gone):
        store.preview_problem(Problem("mails/3", "gone"))


def test_a_job_that_was_added_again_blocks_the_way_back(
    client: redis.Redis, open_bullmq: Opener
) -> None:
    """A trashed job whose id another program has used again stays in the trash, with the reason."""
    write_failed(client, "1")
    store = open_bullmq()
    task = found(store, "mails/1")
    store.swap(task, verbs.purge(task, NOW))
    trashed = found(store, "mails/1")
    write_waiting(client, "1", timestamp=CREATED_MS + 1)
    with pytest.raises(Unsupported, match="another job has this id now"):
        store.swap(trashed, trashed._replace(state=State.DEAD))
    items = list(store.scan({"mails/1"}))
    assert [item.what for item in items if isinstance(item, Problem)] == [
        "is in wait and trash at the same time"
    ]
    assert client.exists("spooldeck:bull:mails:job:1")


def test_an_empty_id_hides_no_neighbour(client: redis.Redis, open_bullmq: Opener) -> None:
    """Between jobs of two queues it is a problem, and each other job is there once."""
    for queue in ("a", "b"):
        for number in "12":
            write_waiting(client, number, queue)
        client.lpush(f"bull:{queue}:wait", "", "1")
    items = [item for item in open_bullmq().scan() if isinstance(item, Task)]
    assert {item.id for item in items} == {"a/1", "a/2", "b/1", "b/2"}
    problems = scanned(open_bullmq())[1]
    assert problems == {
        "a/": "its id is empty or has a null character",
        "b/": "its id is empty or has a null character",
    }
