"""BullMQ's jobs as the store scans, changes, claims and restores them."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from engine import verbs
from engine.formats.bullmq.connection import Connection
from engine.formats.bullmq.controls import run_control
from engine.formats.bullmq.image import NewJob, parse_image
from engine.formats.bullmq.moves import bar_leaving, bar_locked
from engine.formats.bullmq.place import DESTINATION_FIELDS, split_id, task_id
from engine.formats.bullmq.reading import LONGEST_KEPT_VALUE
from engine.formats.bullmq.store import BullmqStore
from engine.model import Move, Relative, State, Task
from engine.operations import trash
from engine.store import Control, ControlTarget, Gone, Unsupported
from tests.bullmq_jobs import (
    CREATED_MS,
    NOW,
    everything,
    scanned,
    write_failed,
    write_hash,
    write_waiting,
)
from tests.redis_server import TestServer
from tests.store_contents import found

Opener = Callable[..., BullmqStore]
DUE_MS = round(NOW * 1000) + 50_000


@pytest.fixture
def client(redis_server: TestServer, redis_url: str) -> Iterator[redis.Redis]:
    """Another program's connection to the test's database."""
    with redis_server.client() as other:
        yield other


def write_all_places(client: redis.Redis) -> None:
    """One job in each place of a queue, as BullMQ's own programs leave them."""
    write_waiting(client, "1")
    client.lpush("bull:mails:paused", "2")
    write_hash(client, "bull:mails:2")
    write_hash(client, "bull:mails:3", priority=5)
    client.zadd("bull:mails:prioritized", {"3": 5 * 2**32 + 1})
    write_hash(client, "bull:mails:4", delay=1000, failedReason="once", atm=1)
    client.zadd("bull:mails:delayed", {"4": DUE_MS * 4096 + 3})
    write_hash(client, "bull:mails:5")
    client.zadd("bull:mails:waiting-children", {"5": CREATED_MS})
    write_hash(client, "bull:mails:6", pb="node-1", processedOn=CREATED_MS + 1000)
    client.lpush("bull:mails:active", "6")
    client.set("bull:mails:6:lock", "uuid:1", px=20_000)
    write_failed(client, "7")
    write_hash(client, "bull:mails:8", failedReason="before", atm=2, finishedOn=CREATED_MS)
    client.zadd("bull:mails:completed", {"8": CREATED_MS})


def test_each_place_is_a_state_and_a_word(client: redis.Redis, open_bullmq: Opener) -> None:
    """The store's words are BullMQ's; kind is the queue, group the job's name."""
    write_all_places(client)
    tasks, problems = scanned(open_bullmq())
    assert problems == {}
    assert {i: (t.state, t.word) for i, t in tasks.items()} == {
        "mails/1": (State.PENDING, ""),
        "mails/2": (State.PENDING, "paused"),
        "mails/3": (State.PENDING, "prioritized"),
        "mails/4": (State.PENDING, "delayed"),
        "mails/5": (State.PENDING, "waiting-children"),
        "mails/6": (State.ACTIVE, ""),
        "mails/7": (State.DEAD, ""),
        "mails/8": (State.DONE, ""),
    }
    assert {(t.kind, t.group, t.created) for t in tasks.values()} == {
        ("mails", "report", CREATED_MS / 1000)
    }
    assert (tasks["mails/4"].due, tasks["mails/4"].error) == (DUE_MS / 1000, "once")
    assert tasks["mails/3"].priority == 5
    assert (tasks["mails/7"].attempts, tasks["mails/7"].error) == (3, "it broke")
    assert tasks["mails/8"].error == "", "a completed job keeps the reason of an earlier failure"
    lease = tasks["mails/6"].lease
    assert lease is not None and lease.until is not None
    assert (lease.owner, lease.since) == ("node-1", CREATED_MS / 1000 + 1)
    assert NOW < lease.until <= NOW + 20


def test_queues_are_found_by_prefix(client: redis.Redis, open_bullmq: Opener) -> None:
    """A place shows all queues of its prefix and none of another."""
    write_waiting(client, "1", "mails")
    write_waiting(client, "1", "a/b%")
    client.hset("other:mails:meta", "x", 1)
    write_hash(client, "other:mails:9")
    client.lpush("other:mails:wait", "9")
    assert set(scanned(open_bullmq())[0]) == {"mails/1", "a%2Fb%25/1"}
    assert set(scanned(open_bullmq(prefix="other"))[0]) == {"mails/9"}


def test_a_sample_of_a_long_queue_reads_a_few_jobs(
    client: redis.Redis, open_bullmq: Opener
) -> None:
    """All are counted, by state and by word; of each place the ends are read, not all ids."""
    write_all_places(client)
    with client.pipeline() as pipe:
        for number in range(100, 3100):
            write_hash(pipe, f"bull:mails:{number}", timestamp=CREATED_MS + number)
            pipe.lpush("bull:mails:wait", number)
        pipe.execute()
    store = open_bullmq()
    sampled = store.sample(80)
    assert (sampled.counts[State.PENDING], sampled.counts[State.DEAD]) == (3005, 1)
    assert (sampled.words or {})["delayed"] == 1
    client.config_resetstat()
    ids = [item.id for item in sampled.tasks if isinstance(item, Task)]
    assert {"mails/1", "mails/3", "mails/3099", "mails/7", "mails/8"} <= {*ids}
    assert len(ids) == len({*ids}) < 40
    assert client.info("commandstats")["cmdstat_hgetall"]["calls"] == len(ids)


def test_failed_jobs_of_a_long_queue_are_found_by_the_server(
    client: redis.Redis, open_bullmq: Opener
) -> None:
    """Jobs with a reason of failure are read in every state, also retried ones that wait; of the
    thousands without one, no row."""
    write_all_places(client)
    with client.pipeline() as pipe:
        for number in range(100, 6100):
            reason = {"failedReason": "retried"} if number in (100, 3000, 6099) else {}
            write_hash(pipe, f"bull:mails:{number}", **reason)
            pipe.lpush("bull:mails:wait", number)
        pipe.execute()
    store = open_bullmq()
    task = scanned(store)[0]["mails/100"]
    store.swap(task, verbs.hold(task, NOW))
    expected = {t.id: t.error for t in scanned(store)[0].values() if t.error}
    client.config_resetstat()
    tasks = [item for item in store.scan_failed(store.states.values()) if isinstance(item, Task)]
    read = client.info("commandstats")["cmdstat_hgetall"]["calls"]
    assert {t.id: t.error for t in tasks if t.error} == expected
    assert expected.keys() == {f"mails/{n}" for n in (4, 7, 100, 3000, 6099)}
    assert read == len(tasks) <= 6
    assert [*store.scan_failed(["failed"])] == [scanned(store)[0]["mails/7"]]


@pytest.mark.parametrize("queue", ["mails", "a/b", "50%", "%2F"])
@pytest.mark.parametrize("job", ["1", "repeat:x:5", "a/b"])
def test_an_id_names_one_queue_and_job(queue: str, job: str) -> None:
    """Ids have any characters; another spelling of an id is none."""
    assert split_id(task_id(queue, job)) == (queue, job)
    assert split_id("%41/1") is None


READ_COMMANDS = {
    "ping",
    "info",
    "scan",
    "smembers",
    "hgetall",
    "hget",
    "hmget",
    "hexists",
    "exists",
    "type",
    "llen",
    "lrange",
    "lpos",
    "lindex",
    "zcard",
    "zscore",
    "zrange",
    "get",
    "pttl",
    "sismember",
    "xread",
    "xrange",
    "xrevrange",
    "eval_ro",
    "evalsha_ro",
    "client|setinfo",
    "client|setname",
    "select",
    "hello",
    "time",
    "config|resetstat",
    "command",
}


def test_scanning_and_reading_send_no_command_that_writes(
    client: redis.Redis, open_bullmq: Opener
) -> None:
    """The server itself counts the commands: all are among those that only read."""
    write_all_places(client)
    client.rpush("bull:mails:wait", "0:1795170000000")
    before = everything(client)
    client.config_resetstat()
    client.close()
    store = open_bullmq()
    for task in scanned(store)[0].values():
        store.size(task)
        for part in store.parts(task):
            store.read(task, part.name)
    list(store.scan({*store.states.values(), "delayed", "mails/1", "mails/nothing"}))
    store.count_tasks()
    assert store.changes.wait is not None
    assert store.changes.wait(0.0) == set()
    command_stats: dict[str, Any] = store._connection.call("INFO", "commandstats")
    assert {name.removeprefix("cmdstat_") for name in command_stats} <= READ_COMMANDS
    assert everything(client) == before


def test_parts_are_the_fields_of_a_job(client: redis.Redis, open_bullmq: Opener) -> None:
    """Data, options, return value, stack traces and log each have a name."""
    write_failed(client, "1", data='{"to":"ä"}', stacktrace='["at x"]')
    client.rpush("bull:mails:1:logs", "first", "second")
    store = open_bullmq()
    task = found(store, "mails/1")
    names = [part.name for part in store.parts(task)]
    assert names == ["job", "data", "options", "stack traces", "last error", "log"]
    assert store.read(task, "data") == '{"to":"ä"}'.encode()
    assert store.read(task, "log") == b"first\nsecond"


WAYS_BACK = [
    (State.PENDING, State.HELD, "wait"),
    (State.PENDING, State.TRASH, "wait"),
    (State.PENDING, State.TRASH, "prioritized"),
    (State.PENDING, State.HELD, "delayed"),
    (State.DEAD, State.HELD, "failed"),
    (State.DEAD, State.TRASH, "failed"),
    (State.DONE, State.TRASH, "completed"),
]


def write_at(client: redis.Redis, place: str) -> str:
    """Five jobs in a place, with logs and results of children; returns the one in the middle."""
    for number in range(1, 6):
        key = f"bull:mails:{number}"
        if place == "wait":
            write_waiting(client, str(number), timestamp=CREATED_MS + number)
        else:
            client.hset("bull:mails:meta", "opts.maxLenEvents", 10000)
            write_hash(client, key, priority=2, failedReason="why", atm=1)
            score = DUE_MS * 4096 + number if place == "delayed" else number + 2**33
            client.zadd(f"bull:mails:{place}", {str(number): score})
        client.rpush(f"{key}:logs", "line")
        client.hset(f"{key}:processed", "bull:child:1", "null")
    return "mails/3"


@pytest.mark.parametrize(("start", "end", "place"), WAYS_BACK)
def test_a_job_comes_back_to_its_place(
    client: redis.Redis, open_bullmq: Opener, start: State, end: State, place: str
) -> None:
    """Held or trashed and restored, every key is as before: hash, log, children, position."""
    ident = write_at(client, place)
    store, before = open_bullmq(), everything(client)
    task = found(store, ident)
    store.swap(task, task._replace(state=end))
    stored_task = found(store, ident)
    assert (stored_task.due, stored_task.error, stored_task.attempts) == (
        task.due,
        task.error,
        task.attempts,
    )
    assert not client.exists("bull:mails:3", "bull:mails:3:logs", "bull:mails:3:processed")
    store.swap(stored_task, stored_task._replace(state=start))
    after = everything(client)
    after.pop("bull:mails:marker", None)
    assert after == before


def test_a_kept_job_says_since_when_and_from_where(
    client: redis.Redis, open_bullmq: Opener
) -> None:
    """So that old ones are swept, and each is restored to where it was."""
    write_failed(client, "1")
    store = open_bullmq()
    task = found(store, "mails/1")
    died = f"{CREATED_MS / 1000 + 5:.3f}"
    assert task.extra == {"dead_since": died}
    store.swap(task, verbs.purge(task, NOW))
    trashed = found(store, "mails/1")
    assert trash.trashed_at(trashed) == NOW
    assert (trashed.extra["was"], trashed.extra["dead_since"]) == ("failed", died)
    assert list(trash.expired_tasks(store, lambda at: NOW + 7200 - at, 1)) == [trashed]
    assert trash.find_origins(None, [trashed])["mails/1"].state is State.DEAD
    image = store.read(trashed)
    restored = store.restore_image(trashed, image, State.TRASH)
    assert restored.extra["was"] == "failed"


def test_many_held_jobs_keep_their_order(client: redis.Redis, open_bullmq: Opener) -> None:
    """Held together and released together, in any order of the ids, a line is as before."""
    for number in range(1, 31):
        write_waiting(client, str(number), timestamp=CREATED_MS + number)
    store = open_bullmq()
    line = client.lrange("bull:mails:wait", 0, -1)
    some = [t for t in scanned(store)[0].values() if int(t.id.split("/")[1]) <= 20]
    assert not [
        o.error for o in store.swap_all(Move(t, verbs.hold(t, NOW)) for t in some) if o.error
    ]
    held = [t for t in scanned(store)[0].values() if t.state is State.HELD]
    assert len(held) == 20
    moves = [Move(t, verbs.release(t, NOW)) for t in held]
    assert not [o.error for o in store.swap_all(moves) if o.error]
    assert client.lrange("bull:mails:wait", 0, -1) == line


def test_a_job_behind_newer_ones_stays_there(client: redis.Redis, open_bullmq: Opener) -> None:
    """A retried job is old, but at the end of the line: there it returns."""
    for number, age in (("1", 10), ("2", 20), ("3", 30), ("4", 1), ("5", 40)):
        write_waiting(client, number, timestamp=CREATED_MS + age)
    store = open_bullmq()
    task = found(store, "mails/4")
    store.swap(task, verbs.hold(task, NOW))
    held = found(store, "mails/4")
    store.swap(held, verbs.release(held, NOW))
    assert client.lrange("bull:mails:wait", 0, -1) == ["5", "4", "3", "2", "1"]


UNDONE: dict[str, Callable[[Task], Task]] = {
    "failed": lambda task: verbs.retry(task, NOW),
    "completed": lambda task: task._replace(state=State.PENDING, attempts=0),
    "delayed": lambda task: verbs.promote(task, NOW),
    "wait": lambda task: task._replace(due=NOW + 99),
    "prioritized": lambda task: task._replace(priority=9),
}


@pytest.mark.parametrize("place", UNDONE)
def test_an_image_restores_every_field_and_the_position(
    client: redis.Redis, open_bullmq: Opener, place: str
) -> None:
    """Undo of a retry, a promotion or an edit, and the redo after it."""
    ident = write_at(client, place)
    store, before = open_bullmq(), everything(client)
    task = found(store, ident)
    image = store.read(task)
    store.swap(task, UNDONE[place](task))
    changed = found(store, ident)
    redone = store.read(changed)
    middle = everything(client)
    assert middle != before

    (outcome,) = store.swap_all(
        [Move(changed, store.restore_image(changed, image, task.state), image)]
    )
    assert outcome.error is None
    after = everything(client)
    for key in ("bull:mails:marker", "bull:mails:pc"):
        after.pop(key, None)
        middle.pop(key, None)
    assert after == before
    assert found(store, ident) == task._replace(rev=outcome.rev)

    again = found(store, ident)
    restored = store.restore_image(again, redone, changed.state)
    (outcome,) = store.swap_all([Move(again, restored, redone)])
    assert outcome.error is None
    after = everything(client)
    after.pop("bull:mails:marker", None)
    after.pop("bull:mails:pc", None)
    assert after == middle


def test_an_edit_of_the_data_moves_no_job(client: redis.Redis, open_bullmq: Opener) -> None:
    """Only the field changes, as by BullMQ's updateData: each waiting job stays where it is, also
    in the list of a paused queue, and the undo restores the text as it was."""
    write_all_places(client)
    client.hset("bull:mails:meta", "paused", 1)
    client.lpush("bull:mails:paused", "1")
    client.delete("bull:mails:wait")
    store = open_bullmq()
    for ident in ("1", "2", "3", "4"):
        before = everything(client)
        task = found(store, f"mails/{ident}")
        image = store.read(task)
        store.swap(task, verbs.edit(task, NOW, data='{"a":1}'))
        changed, key = everything(client), f"bull:mails:{ident}"
        assert changed == {**before, key: {**before[key], "data": '{"a":1}'}}
        task = found(store, f"mails/{ident}")
        was = store.restore_image(task, image, task.state)
        (outcome,) = store.swap_all([Move(task, was, image)])
        assert outcome.error is None
        assert everything(client).items() >= before.items()


def test_data_is_edited_together_with_a_move(client: redis.Redis, open_bullmq: Opener) -> None:
    """New data and a new priority are one change."""
    write_waiting(client, "1")
    store = open_bullmq()
    task = found(store, "mails/1")
    store.swap(task, verbs.edit(task, NOW, data="[2]", priority=3))
    assert client.zrange("bull:mails:prioritized", 0, -1) == ["1"]
    assert client.hmget("bull:mails:1", "data", "priority") == ["[2]", "3"]


@pytest.mark.parametrize(
    ("data", "message"),
    [("{", "no JSON: line 1"), ('"' + "x" * 131_072 + '"', "expected at most 131,072")],
    ids=["no JSON", "too long"],
)
def test_data_that_cannot_be_stored_is_refused(
    client: redis.Redis, open_bullmq: Opener, data: str, message: str
) -> None:
    """Text that is no JSON, or longer than an image can hold, changes nothing."""
    write_waiting(client, "1")
    store = open_bullmq()
    task = found(store, "mails/1")
    before = everything(client)
    with pytest.raises(Unsupported, match=message):
        store.swap(task, verbs.edit(task, NOW, data=data))
    client.hset("bull:mails:1", "progress", "5")
    with pytest.raises(Gone):
        store.swap(task, verbs.edit(task, NOW, data="{}"))
    client.hdel("bull:mails:1", "progress")
    assert everything(client) == before


def test_long_data_is_not_edited(client: redis.Redis, open_bullmq: Opener) -> None:
    """Data of which an image would not have the text is refused by the script, as is a locked
    job."""
    write_waiting(client, "1", data='"' + "x" * 131_072 + '"')
    write_waiting(client, "2")
    store = open_bullmq()
    long, locked = found(store, "mails/1"), found(store, "mails/2")
    client.set("bull:mails:2:lock", "uuid:1", px=20_000)
    before = everything(client)
    with pytest.raises(Unsupported, match="too long to be edited"):
        store.swap(long, verbs.edit(long, NOW, data="{}"))
    with pytest.raises(Gone, match="was locked"):
        store.swap(locked, verbs.edit(locked, NOW, data="{}"))
    assert everything(client) == before


def held_moves(store: BullmqStore, number: int) -> list[Move]:
    """The moves that hold so many failed jobs."""
    tasks = [found(store, f"mails/{n}") for n in range(number)]
    return [Move(task, verbs.hold(task, NOW)) for task in tasks]


def test_a_script_that_cost_much_ends_early(client: redis.Redis, open_bullmq: Opener) -> None:
    """One script changes up to 25 jobs, fewer if they are long, so that it does not stop the server
    for long; the others follow in the next script, each has its outcome, and none is lost."""
    for number in range(12):
        write_failed(client, str(number), data="x" * 200_000)
    store = open_bullmq()
    moves = held_moves(store, 12)
    client.config_resetstat()
    outcomes = list(store.swap_all(moves))
    assert [(one.move, one.error) for one in outcomes] == [(move, None) for move in moves]
    assert client.zcard("spooldeck:bull:mails:held") == 12
    stats: Any = client.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] >= 4  # 3 jobs reach the limit


def test_an_error_of_one_job_does_not_hide_the_others(
    client: redis.Redis, open_bullmq: Opener
) -> None:
    """In a script for many jobs, the one on which a command fails has the error as its outcome, and
    stays where it was; the jobs before and after it are changed."""
    for number in range(5):
        write_failed(client, str(number))
    store = open_bullmq()
    moves = held_moves(store, 5)
    client.hset("bull:mails:2", "parentKey", "bull:sums:9")
    moves[2] = Move(task := found(store, "mails/2"), verbs.hold(task, NOW))
    client.set("bull:sums:9:processed", "no hash")
    client.hset("bull:sums:9", "name", "parent")
    client.set("bull:sums:9:dependencies", "no set")
    outcomes = list(store.swap_all(moves))
    assert [one.error is None for one in outcomes] == [True, True, False, True, True]
    assert "WRONGTYPE" in str(outcomes[2].error)
    assert client.zrange("spooldeck:bull:mails:held", 0, -1) == ["0", "1", "3", "4"]
    assert client.zrange("bull:mails:failed", 0, -1) == ["2"]
    assert not client.exists("spooldeck:bull:mails:job:2")


@pytest.mark.parametrize("size", [10, LONGEST_KEPT_VALUE + 1])
def test_the_images_of_verified_jobs_are_kept_unless_they_are_long(
    client: redis.Redis, open_bullmq: Opener, size: int
) -> None:
    """Images are those of the verified revisions: of short jobs without reading them again, of long
    ones read whole; a long one that changed in between is Gone."""
    for number in range(3):
        write_failed(client, str(number), data="x" * size)
    store = open_bullmq()
    tasks = [found(store, f"mails/{number}") for number in range(3)]
    assert len(list(store.verify((t.id, t.state, t.rev) for t in tasks))) == 3
    client.hset("bull:mails:1", "data", "another")
    images = list(store.read_all(tasks))
    is_long = size > LONGEST_KEPT_VALUE
    assert [isinstance(one, Gone) for one in images] == [False, is_long, False]
    for task, image in zip(tasks, images, strict=True):
        if isinstance(image, bytes):
            assert parse_image(image).fields["data"] == "x" * size, task


def test_a_retry_resets_attempts_and_sets_the_marker(
    client: redis.Redis, open_bullmq: Opener
) -> None:
    """As BullMQ's own: reason, times and counters go, the marker is set, and the event names it."""
    write_failed(client, "1")
    store = open_bullmq()
    task = found(store, "mails/1")
    store.swap(task, verbs.retry(task, NOW))
    assert {"failedReason", "finishedOn", "atm", "ats"}.isdisjoint(client.hgetall("bull:mails:1"))
    assert client.lrange("bull:mails:wait", 0, -1) == ["1"]
    assert client.zrange("bull:mails:marker", 0, -1) == ["0"]
    entries: Any = client.xrange("bull:mails:events")
    _, event = entries[-1]
    assert (event["event"], event["jobId"]) == ("waiting", "1")


def test_a_locked_job_is_barred_and_guarded(client: redis.Redis, open_bullmq: Opener) -> None:
    """A job of another worker is barred with its owner; a lock set since the scan is Gone."""
    write_all_places(client)
    store = open_bullmq()
    active = found(store, "mails/6")
    assert bar_locked(active, NOW).startswith("locked by node-1 for ")
    with pytest.raises(Unsupported, match="locked by node-1"):
        store.swap(active, verbs.give_up_task(active, "x"))
    failed = found(store, "mails/7")
    client.set("bull:mails:7:lock", "uuid:2", px=20_000)
    before = everything(client)
    for changed in (verbs.purge(failed, NOW), verbs.retry(failed, NOW)):
        with pytest.raises(Gone):
            store.swap(failed, changed)
    assert everything(client) == before


def test_a_job_that_was_edited_meanwhile_is_gone(client: redis.Redis, open_bullmq: Opener) -> None:
    """New data, written without an event by another program, is another revision, in any place."""
    write_all_places(client)
    store = open_bullmq()
    tasks, _ = scanned(store)
    for number in "13478":
        client.hset(f"bull:mails:{number}", "data", '{"new":1}')
    before = everything(client)
    for ident, new in (
        ("mails/1", verbs.hold(tasks["mails/1"], NOW)),
        ("mails/3", verbs.purge(tasks["mails/3"], NOW)),
        ("mails/4", verbs.promote(tasks["mails/4"], NOW)),
        ("mails/7", verbs.retry(tasks["mails/7"], NOW)),
        ("mails/8", None),
    ):
        with pytest.raises(Gone):
            store.swap(tasks[ident], new)
    assert everything(client) == before


def test_a_stalled_job_can_be_released(client: redis.Redis, open_bullmq: Opener) -> None:
    """An active job without a lock says so, and an operator may return or give it up."""
    write_all_places(client)
    client.delete("bull:mails:6:lock")
    store = open_bullmq()
    task = found(store, "mails/6")
    assert (task.lease, task.extra["stalled?"]) == (None, "no lock")
    store.swap(task, verbs.release(task, NOW))
    assert found(store, "mails/6").state is State.PENDING
    assert client.llen("bull:mails:active") == 0


def test_families_and_schedulers_are_barred(client: redis.Redis, open_bullmq: Opener) -> None:
    """A waiting parent, its child and the next run of a scheduler stay; also if that became so only
    after the scan."""
    write_waiting(client, "1", parentKey="bull:sums:9")
    client.hset("bull:sums:meta", "x", 1)
    write_hash(client, "bull:sums:9")
    client.zadd("bull:sums:waiting-children", {"9": CREATED_MS})
    run = f"repeat:daily:{DUE_MS}"
    write_hash(client, f"bull:mails:{run}", rjk="daily")
    client.zadd("bull:mails:delayed", {run: DUE_MS * 4096})
    store = open_bullmq()
    free, run_free = found(store, "mails/1"), found(store, f"mails/{run}")
    client.sadd("bull:sums:9:dependencies", "bull:mails:1")
    client.zadd("bull:mails:repeat", {"daily": DUE_MS})
    before = everything(client)
    for stored_task, message in (
        (free, "child of a waiting parent"),
        (run_free, "next run of a scheduler"),
    ):
        assert bar_leaving(stored_task, NOW) == ""
        with pytest.raises(Unsupported, match=message):
            store.swap(stored_task, verbs.purge(stored_task, NOW))
    for ident, message in (
        ("mails/1", "child of a waiting parent: bull:sums:9"),
        (f"mails/{run}", "next run of scheduler daily: remove the scheduler"),
        ("sums/9", "waits for its children"),
    ):
        task = found(store, ident)
        with pytest.raises(Unsupported, match=message):
            store.swap(task, verbs.hold(task, NOW))
    assert everything(client) == before


def test_a_job_is_kept_as_its_options_say(client: redis.Redis, open_bullmq: Opener) -> None:
    """removeOnComplete and removeOnFail of the job decide; lifo returns it to the front."""
    opts = '{"removeOnComplete":true,"removeOnFail":{"count":1},"attempts":5,"lifo":true}'
    for number in "123":
        write_waiting(client, number, opts=opts)
    write_failed(client, "9")
    store = open_bullmq()
    one, two, three = store.take(NOW, "me", 3)
    assert store.swap(one, one._replace(state=State.DONE, lease=None)) == ""
    store.swap(two, verbs.give_up_task(two, "broken", 1))
    tasks, _ = scanned(store)
    assert {i: t.state for i, t in tasks.items()} == {
        "mails/2": State.DEAD,
        "mails/3": State.ACTIVE,
    }
    write_waiting(client, "4")
    store.swap(three, verbs.nack(three, 0.0, "later"))
    assert client.lrange("bull:mails:wait", 0, -1) == ["4", "3"]
    task = found(store, "mails/3")
    assert (task.attempts, task.error) == (1, "later")


@pytest.mark.parametrize(
    ("keep", "ahead", "kept_fields"),
    [
        ({"age": 3600}, 0, ["4", "3"]),
        ({"age": 3600, "count": 1}, 0, ["4"]),
        ({"age": 3600, "limit": 1}, 0, ["4", "3", "1"]),
        ({"age": 60}, 8 * 86_400, ["4", "3", "2", "1"]),
        (None, 0, ["4", "3", "2", "1"]),
    ],
)
@pytest.mark.parametrize(("end", "name"), [("completed", "Complete"), ("failed", "Fail")])
def test_finished_jobs_are_removed_by_age_as_bullmq_does(
    keep: object,
    ahead: float,
    kept_fields: list[str],
    end: str,
    name: str,
    client: redis.Redis,
    open_bullmq: Opener,
) -> None:
    """Those older than the option of the job that finishes, but none while the worker's clock is
    ahead of the server's by days."""
    now = time.time()
    for ident, age in (("1", 7300), ("2", 3700), ("3", 3500)):
        ended = round((now - age) * 1000)
        write_hash(client, f"bull:mails:{ident}", finishedOn=ended)
        client.zadd(f"bull:mails:{end}", {ident: ended})
    write_waiting(client, "4", opts=json.dumps({f"removeOn{name}": keep}))
    store = open_bullmq(clock=lambda: now + ahead)
    (task,) = store.take(now + ahead, "me", 1)
    done = task._replace(state=State.DONE, lease=None)
    store.swap(task, done if end == "completed" else verbs.give_up_task(task, "broken", 1))
    assert client.zrevrange(f"bull:mails:{end}", 0, -1) == kept_fields
    gone = {"1", "2", "3"} - {*kept_fields}
    assert not any(client.exists(f"bull:mails:{ident}") for ident in gone)


def test_limits_of_a_queue_are_honoured(client: redis.Redis, open_bullmq: Opener) -> None:
    """Pause, concurrency and rate are settings of BullMQ that the claim script obeys."""
    for number in "12345":
        write_waiting(client, number)
    store = open_bullmq()

    def take() -> int:
        return len(list(store.take(NOW, "me", 9)))

    assert store.control("pause", "mails", "1") == "mails is paused: jobs wait"
    assert (take(), open_bullmq().controls["pause"].for_target("mails").has_paused) == (0, True)
    store.control("pause", "mails", "0")
    assert store.control("concurrency", "mails", "2") == "mails: 2 at the same time"
    assert (take(), store.controls["concurrency"].for_target("mails").now) == (2, "2")
    store.control("concurrency", "mails", "0")
    assert store.control("rate", "mails", "2") == "mails: 2 a minute"
    assert (take(), store.controls["rate"].for_target("mails").now) == (2, "2")
    assert store.changes.next_due is not None and store.changes.next_due > NOW
    store.control("rate", "mails", "0")
    assert (take(), store.controls["rate"].for_target("mails").now) == (1, "0")
    for wrong in (("rate", "mails", "x"), ("pause", "mails", "2"), ("pause", "none", "1")):
        with pytest.raises(Unsupported):
            store.control(*wrong)
    assert all(isinstance(control, Control) for control in store.controls.values())


@pytest.mark.parametrize(
    ("most", "duration", "text"),
    [(4, 1000, "4/1s"), (240, 60_000, "240"), (9, 1500, "9/1.5s"), (1, 3_600_000, "1/1h")],
)
def test_a_rate_of_another_program_can_be_set_back(
    client: redis.Redis, open_bullmq: Opener, most: int, duration: int, text: str
) -> None:
    """It is shown with its own time, and that value sets exactly the same limit."""
    write_waiting(client, "1")
    client.hset("bull:mails:meta", mapping={"max": most, "duration": duration})
    store = open_bullmq()
    assert store.controls["rate"].for_target("mails").now == text
    store.control("rate", "mails", "100")
    assert client.hmget("bull:mails:meta", "max", "duration") == ["100", "60000"]
    store.control("rate", "mails", text)
    assert client.hmget("bull:mails:meta", "max", "duration") == [str(most), str(duration)]
    store.control("rate", "mails", "0")
    assert client.hmget("bull:mails:meta", "max", "duration") == [None, None]


@pytest.mark.parametrize(
    "value", ["", "x", "-1", "4/", "4/0s", "/1s", "1.5", "4/1y", "10000000000"]
)
def test_a_rate_that_is_none_is_refused(
    client: redis.Redis, open_bullmq: Opener, value: str
) -> None:
    """The text names both forms of a rate."""
    write_waiting(client, "1")
    with pytest.raises(Unsupported, match=r"expected a number of jobs a minute .* as 4/1s"):
        open_bullmq().control("rate", "mails", value)


def test_a_queue_without_jobs_is_obliterated(client: redis.Redis, open_bullmq: Opener) -> None:
    """Once all jobs are purged and expunged, no key of the queue is left; before, it is refused."""
    store = open_bullmq()
    task = store.add_job(NewJob("mails", "report"))
    store.control("concurrency", "mails", "2")
    for new in (verbs.purge(task, NOW), None):
        assert store.controls["obliterate"].for_target("mails").refusal.startswith("jobs in it: 1;")
        with pytest.raises(Unsupported, match="jobs in it: 1"):
            store.control("obliterate", "mails")
        rev = store.swap(task, new)
        task = new._replace(rev=rev) if new else task
    assert {"bull:mails:meta", "bull:mails:id", "bull:mails:events"} <= {
        *client.keys("bull:mails:*")
    }
    assert store.control("obliterate", "mails") == "mails is deleted"
    assert (client.keys("bull:*"), client.keys("spooldeck:*:mails*")) == ([], [])
    assert "obliterate" not in store.controls


@pytest.mark.parametrize("is_ours", [False, True], ids=["waiting", "held"])
def test_a_queue_that_got_a_job_is_not_obliterated(
    client: redis.Redis, open_bullmq: Opener, is_ours: bool
) -> None:
    """The script counts again: a job added since the controls were read saves its queue."""
    store = open_bullmq()
    task = store.add_job(NewJob("mails", "report"))
    if is_ours:
        store.swap(task, verbs.hold(task, NOW))
    before = everything(client)
    place, empty = store.place, {"obliterate": Control("", targets=(ControlTarget("mails"),))}
    with (
        contextlib.closing(Connection(place)) as connection,
        pytest.raises(Unsupported, match="mails has jobs in"),
    ):
        run_control(connection, place, empty, name="obliterate", queue="mails", value="")
    assert everything(client) == before


def test_a_resume_moves_back_what_bullmq_5_paused(client: redis.Redis, open_bullmq: Opener) -> None:
    """Its list of paused jobs is counted, shown and moved back, in lots of 7,000."""
    write_waiting(client, "0")
    client.hset("bull:mails:meta", "paused", 1)
    with client.pipeline() as pipe:
        for number in range(1, 7101):
            write_hash(pipe, f"bull:mails:{number}")
            pipe.lpush("bull:mails:paused", number)
        pipe.execute()
    store = open_bullmq()
    assert store.count_tasks()[State.PENDING] == 7101
    store.control("pause", "mails", "0")
    assert (client.llen("bull:mails:wait"), client.llen("bull:mails:paused")) == (7101, 0)


@pytest.mark.parametrize(
    ("before", "given_meanwhile", "after"),
    [
        (("me", -1), None, ("me", -1)),
        (("me", 60_000), None, ("me", 60_000)),
        (("me", -1), ("other", -1), ("other", -1)),
        (("other", -1), None, ("other", -1)),
        ((None, -2), None, (None, -2)),
    ],
)
@pytest.mark.parametrize("away", [verbs.hold, verbs.purge])
def test_a_job_that_returns_has_its_deduplication_key_again(
    client: redis.Redis,
    open_bullmq: Opener,
    before: tuple[str | None, int],
    given_meanwhile: tuple[str, int] | None,
    after: tuple[str | None, int],
    away: Callable[[Task, float], Task],
) -> None:
    """A held or purged job frees its key, as a removed one does; on its return it gets the key with
    the time that is left, unless another job has it by then."""
    key = "bull:mails:de:once"
    write_waiting(client, "me", deid="once")

    def give(owner: str, milliseconds: int) -> None:
        client.set(key, owner, px=milliseconds if milliseconds > 0 else None)

    if before[0]:
        give(before[0], before[1])
    store = open_bullmq()
    waiting = found(store, "mails/me")
    rev = store.swap(waiting, away(waiting, NOW))
    assert client.get(key) == (None if before[0] == "me" else before[0])
    if given_meanwhile:
        give(*given_meanwhile)
    gone = away(waiting, NOW)._replace(rev=rev)
    store.swap(gone, verbs.with_state(gone, State.PENDING))
    left = client.pttl(key)
    assert (client.get(key), left > 0) == (after[0], after[1] > 0)
    assert left <= max(after[1], -1)
    assert not client.exists("spooldeck:bull:mails:deduplication")


def test_a_job_whose_worker_ended_is_returned(client: redis.Redis, open_bullmq: Opener) -> None:
    """A claimed job without lock goes back to the line at the second check, and the job of a living
    worker stays."""
    for number in "12":
        write_waiting(client, number)
    lost, _ = open_bullmq().take(NOW, "other", 2)
    client.delete("bull:mails:1:lock")
    for _ in range(2):
        client.delete("bull:mails:stalled-check")
        with contextlib.closing(open_bullmq()) as store:
            assert store.claim_rules.return_abandoned is not None
            store.claim_rules.return_abandoned(NOW)
            taken = list(store.take(NOW, "me", 1))
    assert [task.id for task in taken] == [lost.id]
    assert taken[0].extra["stalled before"] == "1"


def test_a_new_job_keeps_the_data_and_options_of_its_image(open_bullmq: Opener) -> None:
    """Data and options are in BullMQ's own words; ids that Node refuses are refused."""
    store = open_bullmq()
    first = Task("mails/a", "mails", State.PENDING, NOW, group="report", priority=3)
    for name, message in (("17", "a number"), ("a:b", "a colon")):
        with pytest.raises(Unsupported, match=message):
            store.swap(None, first._replace(id=f"mails/{name}"))
    with pytest.raises(Unsupported, match="priority"):
        store.swap(None, first._replace(priority=2**21 + 1))
    store.swap(None, first)
    image = store.read(found(store, "mails/a")).replace(b'"data": "{}"', b'"data": "[1]"')
    second = first._replace(id="mails/b")
    (outcome,) = store.swap_all([Move(None, second, image)])
    assert outcome.error is None
    task = found(store, "mails/b")
    assert store.read(task, "data") == b"[1]"
    assert (task.word, task.priority, task.group) == ("prioritized", 3, "report")
    with pytest.raises(Unsupported, match="expected its queue"):
        store.swap(None, first._replace(id="other/c"))


def test_a_job_without_an_id_has_the_next_number(client: redis.Redis, open_bullmq: Opener) -> None:
    """Waiting, delayed, prioritized: BullMQ's counter counts each job once; a number that another
    job has is passed over."""
    store = open_bullmq()
    write_hash(client, "bull:mails:3")
    added = [
        store.add_job(NewJob("mails", "report", delay=delay, priority=priority))
        for delay, priority in ((0.0, 0), (60.0, 0), (0.0, 3), (0.0, 0))
    ]
    assert [task.id for task in added] == ["mails/1", "mails/2", "mails/4", "mails/5"]
    assert [found(store, task.id).rev for task in added] == [task.rev for task in added]
    assert client.get("bull:mails:id") == "5"


def test_a_job_names_its_destination_in_its_data(client: redis.Redis, open_bullmq: Opener) -> None:
    """The value of one field of the data becomes the destination, as an origin: the same from a
    scan, a check and a claim. A name that is only in a text, or far behind, is not found."""
    url, other = "https://Peer.example:443/inbox", "https://other.example"
    quoted = json.dumps({"note": json.dumps({"server-Url": other}), "server-Url": url})
    write_failed(client, "1", data=json.dumps({"server-Url": url}))
    write_failed(client, "2", data=quoted)
    write_failed(client, "3", data=json.dumps({"pad": "x" * 20_000, "server-Url": url}))
    write_failed(client, "4", data='{"server-Url" : "a \x1b[31m word"}')
    write_failed(client, "5", data="5")
    write_waiting(client, "6", data=quoted, stc=1)
    write_failed(client, "7", "federation-delivery", data=json.dumps({"serverUrl": other}))
    store = open_bullmq(fields={**DESTINATION_FIELDS, "": "server-Url"})

    tasks, _ = scanned(store)

    peer = "https://peer.example"
    assert {ident.partition("/")[2]: task.destination for ident, task in tasks.items()} == {
        **{"1": peer, "2": peer, "3": "", "4": "a \ufffd[31m word", "5": "", "6": peer},
        "7": other,
    }
    for task in tasks.values():
        assert list(store.verify([(task.id, task.state, task.rev)])) == [task]
    claimed = list(store.take(NOW, "w", 9))
    assert [task.destination for task in claimed] == [peer]


def test_changes_without_a_name_are_noticed(client: redis.Redis, open_bullmq: Opener) -> None:
    """Jobs that leave without an event need a full scan; more jobs in a state a scan of it; a new
    queue and a trimmed stream a full scan."""
    for number in range(20):
        write_waiting(client, str(number))
    wait = open_bullmq().changes.wait
    assert wait is not None
    assert wait(0.0) == set()

    client.delete("bull:mails:wait")
    assert wait(60.0) is None

    client.lpush("bull:mails:wait", *range(20))
    assert wait(60.0) == {"waiting"}

    client.xadd("bull:mails:events", {"event": "added", "jobId": "5"})
    assert wait(60.0) == {"mails/5"}
    for number in range(9):
        client.xadd(
            "bull:mails:events", {"event": "added", "jobId": number}, maxlen=2, approximate=False
        )
    assert wait(60.0) is None


def test_an_event_of_another_names_the_job(client: redis.Redis, open_bullmq: Opener) -> None:
    """Also in the second of two queues; an event without a job names nothing."""
    write_waiting(client, "1", "mails")
    write_waiting(client, "1", "sums")
    wait = open_bullmq().changes.wait
    assert wait is not None
    client.xadd("bull:sums:events", {"event": "completed", "jobId": "1", "prev": "active"})
    client.xadd("bull:mails:events", {"event": "paused"})
    assert wait(60.0) == {"sums/1"}


def test_many_short_waits_are_one_command(client: redis.Redis, open_bullmq: Opener) -> None:
    """The server's own wait goes on between two waits, and a change ends it."""
    write_waiting(client, "1")
    wait = open_bullmq().changes.wait
    assert wait is not None
    client.config_resetstat()
    for _ in range(50):
        assert wait(0.0) == set()
    assert client.info("commandstats").get("cmdstat_xread", {"calls": 1})["calls"] <= 1
    client.xadd("bull:mails:events", {"event": "added", "jobId": "1"})
    assert wait(60.0) == {"mails/1"}


def test_a_parent_has_children_and_a_child_its_parent(
    client: redis.Redis, open_bullmq: Opener
) -> None:
    """Children are listed with state and result or reason, those that failed first; one that is
    gone, or of another prefix, is no task here. Of many, the first are listed and all counted; a
    long value is not read, only its size.
    """
    parent = "bull:reports:7"
    write_hash(client, parent)
    client.zadd("bull:reports:waiting-children", {"7": CREATED_MS})
    write_waiting(client, "11", "sums", parentKey=parent)
    write_failed(client, "12", "sums", parentKey=parent, failedReason="no \x1b number")
    write_hash(client, "bull:sums:13", returnvalue="42")
    client.zadd("bull:sums:completed", {"13": CREATED_MS})
    client.sadd(f"{parent}:dependencies", "bull:sums:11")
    client.zadd(f"{parent}:unsuccessful", {"bull:sums:12": 1})
    client.hset(
        f"{parent}:processed", mapping={"bull:sums:13": "42", "bull:sums:14": "1", "other:x:1": "2"}
    )
    store = open_bullmq()

    task, child = found(store, "reports/7"), found(store, "sums/11")
    known = store.relatives(task, 100)
    assert (known.parent, known.total) == (None, 5)
    assert [tuple(one) for one in known.children] == [
        ("sums/12", "failed", "no \ufffd number", True, 1),
        ("sums/11", "waiting", "", True, 1),
        ("sums/13", "completed", "42", True, 1),
        ("sums/14", "completed", "1", False, 1),
        ("other:x:1", "completed", "2", False, 1),
    ]
    own = store.relatives(child, 100)
    assert own.parent == Relative("reports/7", "waiting-children")
    assert (own.children, own.total) == ((), 0)

    client.hset("bull:sums:13", "returnvalue", "y" * 20_000)
    client.hset(f"{parent}:processed", "bull:sums:13", "y" * 20_000)
    texts = {one.id: one.text for one in store.relatives(task, 100).children}
    assert (texts["sums/13"], texts["sums/14"]) == ("20000 bytes", "1")

    client.sadd(f"{parent}:dependencies", *(f"bull:sums:{n}" for n in range(1000, 1500)))
    many = store.relatives(task, 100)
    assert (many.total, len(many.children)) == (505, 100)
