"""BullMQ's jobs as the store scans, changes, claims and restores them."""

import json
import time
from collections.abc import Callable
from itertools import chain, product
from typing import Any

import pytest
from redis import Redis

from engine import verbs
from engine.formats.bullmq.controls import run_control
from engine.formats.bullmq.image import NewJob, parse_image
from engine.formats.bullmq.moves import MOVES_PER_PIPELINE, bar_leaving, bar_locked
from engine.formats.bullmq.place import DESTINATION_FIELDS, split_id, task_id
from engine.formats.bullmq.reading import LONGEST_KEPT_VALUE
from engine.formats.bullmq.store import BullmqStore
from engine.model import Move, Relative, State, Task
from engine.operations import trash
from engine.store import Control, ControlTarget, Gone, Store, Unsupported
from tests.bullmq_jobs import (
    CREATED_MS,
    NOW,
    everything,
    scanned,
    unchanged,
    unmarked,
    write_at,
    write_failed,
    write_hash,
    write_waiting,
)
from tests.engine.formats.bullmq.conftest import Opener
from tests.store_contents import act, found, naming, restore, tasks_in

DUE_MS = round(NOW * 1000) + 50_000


def write_all_places(client: Redis) -> None:
    """One job in each place of a queue, as BullMQ's own programs leave them."""
    write_waiting(client, "1")
    write_at(client, "paused", "2")
    write_at(client, "prioritized", "3", score=5 * 2**32 + 1, priority=5)
    due = DUE_MS * 4096 + 3
    write_at(client, "delayed", "4", score=due, delay=1000, failedReason="once", atm=1)
    write_at(client, "waiting-children", "5")
    write_at(client, "active", "6", pb="node-1", processedOn=CREATED_MS + 1000)
    client.set("bull:mails:6:lock", "uuid:1", px=20_000)
    write_failed(client, "7")
    write_at(client, "completed", "8", failedReason="before", atm=2, finishedOn=CREATED_MS)


def test_each_place_is_a_state_and_a_word(client: Redis, store: BullmqStore) -> None:
    """The store's words are BullMQ's; kind is the queue, group the job's name."""
    write_all_places(client)
    tasks, problems = scanned(store)
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
    of_all = {(t.kind, t.group, t.created) for t in tasks.values()}
    assert of_all == {("mails", "report", CREATED_MS / 1000)}
    assert (tasks["mails/4"].due, tasks["mails/4"].error) == (DUE_MS / 1000, "once")
    assert tasks["mails/3"].priority == 5
    assert (tasks["mails/7"].attempts, tasks["mails/7"].error) == (3, "it broke")
    assert tasks["mails/8"].error == "", "a completed job keeps the reason of an earlier failure"
    lease = tasks["mails/6"].lease
    assert lease is not None and lease.until is not None and NOW < lease.until <= NOW + 20
    assert (lease.owner, lease.since) == ("node-1", CREATED_MS / 1000 + 1)


def test_queues_are_found_by_prefix(client: Redis, open_bullmq: Opener) -> None:
    """A place shows all queues of its prefix and none of another."""
    write_waiting(client, "1", "mails")
    write_waiting(client, "1", "a/b%")
    client.hset("other:mails:meta", "x", 1)
    write_hash(client, "other:mails:9")
    client.lpush("other:mails:wait", "9")
    assert set(tasks_in(open_bullmq())) == {"mails/1", "a%2Fb%25/1"}
    assert set(tasks_in(open_bullmq(prefix="other"))) == {"mails/9"}


def hashes_read(client: Redis) -> int:
    """How many hashes the server was asked for, whole, since its counters were reset."""
    return int(client.info("commandstats")["cmdstat_hgetall"]["calls"])


def test_a_sample_of_a_long_queue_reads_a_few_jobs(client: Redis, store: BullmqStore) -> None:
    """All are counted, by state and by word; of each place the ends are read, not all ids."""
    write_all_places(client)
    with client.pipeline() as pipe:
        for number in range(100, 3100):
            write_waiting(pipe, str(number), timestamp=CREATED_MS + number)
        pipe.execute()
    sampled = store.sample(80)
    assert (sampled.counts[State.PENDING], sampled.counts[State.DEAD]) == (3005, 1)
    assert (sampled.words or {})["delayed"] == 1
    client.config_resetstat()
    ids = [item.id for item in sampled.tasks if isinstance(item, Task)]
    assert {"mails/1", "mails/3", "mails/3099", "mails/7", "mails/8"} <= {*ids}
    assert len(ids) == len({*ids}) == hashes_read(client) < 40


def test_failed_jobs_of_a_long_queue_are_found_by_the_server(client: Redis, store: Store) -> None:
    """Jobs with a reason of failure are read in every state, also retried ones that wait; of the
    thousands without one, no row."""
    write_all_places(client)
    with client.pipeline() as pipe:
        for number in range(100, 6100):
            reason = {"failedReason": "retried"} if number in (100, 3000, 6099) else {}
            write_waiting(pipe, str(number), **reason)
        pipe.execute()
    act(store, "hold", "mails/100")
    all_tasks = tasks_in(store)
    expected = {t.id: t.error for t in all_tasks.values() if t.error}
    client.config_resetstat()
    tasks = [item for item in store.scan_failed(store.states.values()) if isinstance(item, Task)]
    assert hashes_read(client) == len(tasks) <= 6
    assert {t.id: t.error for t in tasks if t.error} == expected
    assert expected.keys() == {f"mails/{n}" for n in (4, 7, 100, 3000, 6099)}
    assert [*store.scan_failed(["failed"])] == [all_tasks["mails/7"]]


def test_an_id_names_one_queue_and_job() -> None:
    """Ids have any characters; another spelling of an id is none."""
    for queue, job in product(("mails", "a/b", "50%", "%2F"), ("1", "repeat:x:5", "a/b")):
        assert split_id(task_id(queue, job)) == (queue, job)
    assert split_id("%41/1") is None


READ_COMMANDS = (
    "ping info scan smembers hgetall hget hmget hexists exists type llen lrange lpos lindex zcard "
    "zscore zrange get pttl sismember xread xrange xrevrange eval_ro evalsha_ro client|setinfo "
    "client|setname select hello time config|resetstat command"
)


def test_scanning_and_reading_send_no_writing_command(client: Redis, open_bullmq: Opener) -> None:
    """The server itself counts the commands: all are among those that only read."""
    write_all_places(client)
    client.rpush("bull:mails:wait", "0:1795170000000")
    before = everything(client)
    client.config_resetstat()
    client.close()
    store = open_bullmq()
    for task in tasks_in(store).values():
        store.size(task)
        for part in store.parts(task):
            store.read(task, part.name)
    list(store.scan({*store.states.values(), "delayed", "mails/1", "mails/nothing"}))
    store.count_tasks()
    assert store.changes.wait is not None
    assert store.changes.wait(0.0) == set()
    command_stats: dict[str, Any] = store._connection.call("INFO", "commandstats")
    assert {name.removeprefix("cmdstat_") for name in command_stats} <= {*READ_COMMANDS.split()}
    assert everything(client) == before


def test_parts_are_the_fields_of_a_job(client: Redis, store: BullmqStore) -> None:
    """Data, options, return value, stack traces and log each have a name. The traces of all
    attempts have their own lines; as stored if they are no such list."""
    traces = ["Error: one\n    at a.js:1", "Error: two\n    at b.js:2"]
    write_failed(client, "1", data='{"to":"ä"}', stacktrace=json.dumps(traces))
    write_failed(client, "2", stacktrace="{broken")
    client.rpush("bull:mails:1:logs", "first", "second")
    task = found(store, "mails/1")
    sizes = {part.name: part.size for part in store.parts(task)}
    assert [*sizes] == ["job", "data", "options", "stack traces", "last error", "log"]
    assert store.read(task, "data") == '{"to":"ä"}'.encode()
    assert store.read(task, "log") == b"first\nsecond"
    text = b"Error: one\n    at a.js:1\n\nError: two\n    at b.js:2"
    assert (store.read(task, "stack traces"), sizes["stack traces"]) == (text, len(text))
    assert store.read(found(store, "mails/2"), "stack traces") == b"{broken"


WAYS_BACK = [
    (State.PENDING, State.HELD, "wait"),
    (State.PENDING, State.TRASH, "wait"),
    (State.PENDING, State.TRASH, "prioritized"),
    (State.PENDING, State.HELD, "delayed"),
    (State.DEAD, State.HELD, "failed"),
    (State.DEAD, State.TRASH, "failed"),
    (State.DONE, State.TRASH, "completed"),
]


def write_five(client: Redis, place: str) -> str:
    """Five jobs in a place, with logs and results of children; returns the one in the middle."""
    for number in range(1, 6):
        if place == "wait":
            write_waiting(client, str(number), timestamp=CREATED_MS + number)
        else:
            score = DUE_MS * 4096 + number if place == "delayed" else number + 2**33
            fields: dict[str, Any] = {"priority": 2, "failedReason": "why", "atm": 1}
            write_at(client, place, str(number), score=score, **fields)
        client.rpush(f"bull:mails:{number}:logs", "line")
        client.hset(f"bull:mails:{number}:processed", "bull:child:1", "null")
    return "mails/3"


@pytest.mark.parametrize(("start", "end", "place"), WAYS_BACK)
def test_a_job_comes_back_to_its_place(
    client: Redis, store: BullmqStore, start: State, end: State, place: str
) -> None:
    """Held or trashed and restored, every key is as before: hash, log, children, position."""
    ident = write_five(client, place)
    before, task = unmarked(client), found(store, ident)
    store.swap(task, task._replace(state=end))
    kept = found(store, ident)
    assert (kept.due, kept.error, kept.attempts) == (task.due, task.error, task.attempts)
    assert not client.exists("bull:mails:3", "bull:mails:3:logs", "bull:mails:3:processed")
    store.swap(kept, kept._replace(state=start))
    assert unmarked(client) == before


def test_a_kept_job_says_since_when_and_from_where(client: Redis, store: BullmqStore) -> None:
    """So that old ones are swept, and each is restored to where it was."""
    write_failed(client, "1")
    died = f"{CREATED_MS / 1000 + 5:.3f}"
    assert found(store, "mails/1").extra == {"dead_since": died}
    act(store, "purge", "mails/1")
    trashed = found(store, "mails/1")
    assert trash.trashed_at(trashed) == NOW
    assert (trashed.extra["was"], trashed.extra["dead_since"]) == ("failed", died)
    assert list(trash.expired_tasks(store, lambda at: NOW + 7200 - at, 1)) == [trashed]
    assert trash.find_origins(None, [trashed])["mails/1"].state is State.DEAD
    assert store.restore_image(trashed, store.read(trashed), State.TRASH).extra["was"] == "failed"


def test_many_held_jobs_keep_their_order(client: Redis, store: BullmqStore) -> None:
    """Held together and released together, in any order of the ids, a line is as before. A retried
    job is old, but at the end of the line: there it returns."""
    for number in range(1, 31):
        write_waiting(client, str(number), timestamp=CREATED_MS + number)
    line = client.lrange("bull:mails:wait", 0, -1)
    some = [t for t in tasks_in(store).values() if int(t.id.split("/")[1]) <= 20]
    holds = [Move(t, verbs.hold(t, NOW)) for t in some]
    assert not [o.error for o in store.swap_all(holds) if o.error]
    held = [t for t in tasks_in(store).values() if t.state is State.HELD]
    assert len(held) == 20
    releases = [Move(t, verbs.release(t, NOW)) for t in held]
    assert not [o.error for o in store.swap_all(releases) if o.error]
    assert client.lrange("bull:mails:wait", 0, -1) == line
    for ident, age in (("1", 10), ("2", 20), ("3", 30), ("4", 1), ("5", 40)):
        write_waiting(client, ident, "sums", timestamp=CREATED_MS + age)
    act(store, "hold", "sums/4")
    act(store, "release", "sums/4")
    assert client.lrange("bull:sums:wait", 0, -1) == ["5", "4", "3", "2", "1"]


UNDONE: dict[str, Callable[[Task], Task]] = {
    "failed": lambda task: verbs.retry(task, NOW),
    "completed": lambda task: task._replace(state=State.PENDING, attempts=0),
    "delayed": lambda task: verbs.promote(task, NOW),
    "wait": lambda task: task._replace(due=NOW + 99),
    "prioritized": lambda task: task._replace(priority=9),
}


@pytest.mark.parametrize("place", UNDONE)
def test_an_image_restores_every_field_and_the_position(
    client: Redis, store: BullmqStore, place: str
) -> None:
    """Undo of a retry, a promotion or an edit, and the redo after it."""
    ident = write_five(client, place)
    before, task = unmarked(client), found(store, ident)
    image = store.read(task)
    store.swap(task, UNDONE[place](task))
    changed, middle = found(store, ident), unmarked(client)
    redone = store.read(changed)
    assert middle != before
    rev = restore(store, ident, image, task.state)
    assert unmarked(client) == before
    assert found(store, ident) == task._replace(rev=rev)
    restore(store, ident, redone, changed.state)
    assert unmarked(client) == middle


def test_an_edit_of_the_data_moves_no_job(client: Redis, store: BullmqStore) -> None:
    """Only the field changes, as by BullMQ's updateData: each waiting job stays where it is, also
    in the list of a paused queue, and the undo restores the text as it was."""
    write_all_places(client)
    client.hset("bull:mails:meta", "paused", 1)
    client.lpush("bull:mails:paused", "1")
    client.delete("bull:mails:wait")
    for ident in ("1", "2", "3", "4"):
        before, key = everything(client), f"bull:mails:{ident}"
        task = found(store, f"mails/{ident}")
        image = store.read(task)
        act(store, "edit", task.id, data='{"a":1}')
        assert everything(client) == {**before, key: {**before[key], "data": '{"a":1}'}}
        restore(store, task.id, image, task.state)
        assert everything(client).items() >= before.items()


def test_data_is_edited_together_with_a_move(client: Redis, store: BullmqStore) -> None:
    """New data and a new priority are one change."""
    write_waiting(client, "1")
    act(store, "edit", "mails/1", data="[2]", priority=3)
    assert client.zrange("bull:mails:prioritized", 0, -1) == ["1"]
    assert client.hmget("bull:mails:1", "data", "priority") == ["[2]", "3"]


LONG = '"' + "x" * 131_072 + '"'


def test_data_that_cannot_be_stored_is_refused(client: Redis, store: BullmqStore) -> None:
    """Text that is no JSON, or longer than an image can hold, also as it was, changes nothing; nor
    does an edit of a job that was changed or locked since."""
    for stored, field, new, error, message in (
        ("{}", "", "{", Unsupported, "no JSON: line 1"),
        ("{}", "", LONG, Unsupported, "expected at most 131,072"),
        (LONG, "", "{}", Unsupported, "too long to be edited"),
        ("{}", "progress", "{}", Gone, None),
        ("{}", "lock", "{}", Gone, "was locked"),
    ):
        client.flushdb()
        write_waiting(client, "1", data=stored)
        task = found(store, "mails/1")
        if field == "lock":
            client.set("bull:mails:1:lock", "uuid:1", px=20_000)
        elif field:
            client.hset("bull:mails:1", field, "5")
        with naming(message), unchanged(client), pytest.raises(error, match=message):
            store.swap(task, verbs.edit(task, NOW, data=new))


def hold_failed(store: BullmqStore, client: Redis, number: int, data: str = "{}") -> list[Move]:
    """The moves that hold so many failed jobs, which are written first."""
    for ident in range(number):
        write_failed(client, str(ident), data=data)
    tasks = [found(store, f"mails/{ident}") for ident in range(number)]
    return [Move(task, verbs.hold(task, NOW)) for task in tasks]


def test_a_script_that_cost_much_ends_early(client: Redis, store: BullmqStore) -> None:
    """One script changes up to 25 jobs, fewer if they are long, so that it does not stop the server
    for long; the others follow in the next script, each has its outcome, and none is lost."""
    moves = hold_failed(store, client, 12, "x" * 200_000)
    client.config_resetstat()
    outcomes = list(store.swap_all(moves))
    assert [(one.move, one.error) for one in outcomes] == [(move, None) for move in moves]
    assert client.zcard("spooldeck:bull:mails:held") == 12
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] >= 4  # 3 jobs reach the limit


def test_many_moves_have_an_outcome_each(client: Redis, store: BullmqStore) -> None:
    """Moves of several pipelines, made one by one from what the server says meanwhile: each has its
    outcome in order, also after a pipeline in which none is allowed."""
    number = 2 * MOVES_PER_PIPELINE
    tasks = [move.old for move in hold_failed(store, client, number) if move.old]
    refused = [Move(task, verbs.with_state(task, State.ACTIVE)) for task in tasks]
    asked = (found(store, task.id) for task in tasks)
    held = (Move(task, verbs.hold(task, NOW)) for task in asked)
    outcomes = list(store.swap_all(chain(refused, held)))
    assert [str(each.error) for each in outcomes] == [
        *["this store has no way from dead to active"] * number,
        *["None"] * number,
    ]
    assert [each.move.old for each in outcomes] == tasks * 2
    assert client.zcard("spooldeck:bull:mails:held") == number


def test_a_fault_in_a_later_move_does_not_hide_what_was_done(
    client: Redis, store: BullmqStore
) -> None:
    """It is prepared while the server works: the outcomes of what was sent come first."""
    *moves, last = hold_failed(store, client, MOVES_PER_PIPELINE + 1)
    odd: Any = object()
    outcomes = store.swap_all([*moves, last._replace(new=odd)])
    assert [next(outcomes).error for _ in moves] == [None] * MOVES_PER_PIPELINE
    with pytest.raises(AttributeError):
        next(outcomes)


def test_an_error_of_one_job_does_not_hide_the_others(client: Redis, store: BullmqStore) -> None:
    """In a script for many jobs, the one on which a command fails has the error as its outcome, and
    stays where it was; the jobs before and after it are changed."""
    moves = hold_failed(store, client, 5)
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
    client: Redis, store: BullmqStore, size: int
) -> None:
    """Images are those of the verified revisions: of short jobs without reading them again, of long
    ones read whole; a long one that changed in between is Gone."""
    tasks = [move.old for move in hold_failed(store, client, 3, "x" * size) if move.old]
    assert len(list(store.verify((t.id, t.state, t.rev) for t in tasks))) == 3
    client.hset("bull:mails:1", "data", "another")
    images = list(store.read_all(tasks))
    is_long = size > LONGEST_KEPT_VALUE
    assert [isinstance(one, Gone) for one in images] == [False, is_long, False]
    kept = [parse_image(one).fields["data"] for one in images if isinstance(one, bytes)]
    assert {*kept} == {"x" * size}


def test_a_retry_resets_attempts_and_sets_the_marker(client: Redis, store: BullmqStore) -> None:
    """As BullMQ's own: reason, times and counters go, the marker is set, and the event names it."""
    write_failed(client, "1")
    act(store, "retry", "mails/1")
    assert {"failedReason", "finishedOn", "atm", "ats"}.isdisjoint(client.hgetall("bull:mails:1"))
    assert client.lrange("bull:mails:wait", 0, -1) == ["1"]
    assert client.zrange("bull:mails:marker", 0, -1) == ["0"]
    entries: Any = client.xrange("bull:mails:events")
    _, event = entries[-1]
    assert (event["event"], event["jobId"]) == ("waiting", "1")


def test_a_locked_job_is_barred_and_guarded(client: Redis, store: BullmqStore) -> None:
    """A job of another worker is barred with its owner; a lock set since the scan is Gone. An
    active job without a lock says so, and an operator may return or give it up."""
    write_all_places(client)
    active, failed = found(store, "mails/6"), found(store, "mails/7")
    assert bar_locked(active, NOW).startswith("locked by node-1 for ")
    with pytest.raises(Unsupported, match="locked by node-1"):
        store.swap(active, verbs.give_up_task(active, "x"))
    client.set("bull:mails:7:lock", "uuid:2", px=20_000)
    for changed in (verbs.purge(failed, NOW), verbs.retry(failed, NOW)):
        with unchanged(client), pytest.raises(Gone):
            store.swap(failed, changed)

    client.delete("bull:mails:6:lock")
    task = found(store, "mails/6")
    assert (task.lease, task.extra["stalled?"]) == (None, "no lock")
    act(store, "release", "mails/6")
    assert found(store, "mails/6").state is State.PENDING
    assert client.llen("bull:mails:active") == 0


def test_a_job_that_was_edited_meanwhile_is_gone(client: Redis, store: BullmqStore) -> None:
    """New data, written without an event by another program, is another revision, in any place."""
    write_all_places(client)
    tasks = tasks_in(store)
    for number in "13478":
        client.hset(f"bull:mails:{number}", "data", '{"new":1}')
    ways = {"1": verbs.hold, "3": verbs.purge, "4": verbs.promote, "7": verbs.retry, "8": None}
    for number, verb in ways.items():
        task = tasks[f"mails/{number}"]
        with unchanged(client), pytest.raises(Gone):
            store.swap(task, verb and verb(task, NOW))


def test_families_and_schedulers_are_barred(client: Redis, store: BullmqStore) -> None:
    """A waiting parent, its child and the next run of a scheduler stay; also if that became so only
    after the scan."""
    write_waiting(client, "1", parentKey="bull:sums:9")
    write_at(client, "waiting-children", "9", "sums")
    run = f"repeat:daily:{DUE_MS}"
    write_at(client, "delayed", run, score=DUE_MS * 4096, rjk="daily")
    seen = [
        (found(store, "mails/1"), "child of a waiting parent"),
        (found(store, f"mails/{run}"), "next run of a scheduler"),
    ]
    client.sadd("bull:sums:9:dependencies", "bull:mails:1")
    client.zadd("bull:mails:repeat", {"daily": DUE_MS})
    assert [bar_leaving(task, NOW) for task, _ in seen] == ["", ""]
    now = [
        (found(store, "mails/1"), "child of a waiting parent: bull:sums:9"),
        (found(store, f"mails/{run}"), "next run of scheduler daily: remove the scheduler"),
        (found(store, "sums/9"), "waits for its children"),
    ]
    for verb, rows in ((verbs.purge, seen), (verbs.hold, now)):
        for task, message in rows:
            with unchanged(client), pytest.raises(Unsupported, match=message):
                store.swap(task, verb(task, NOW))


def test_a_job_is_kept_as_its_options_say(client: Redis, store: BullmqStore) -> None:
    """removeOnComplete and removeOnFail of the job decide; lifo returns it to the front."""
    opts = '{"removeOnComplete":true,"removeOnFail":{"count":1},"attempts":5,"lifo":true}'
    for number in "123":
        write_waiting(client, number, opts=opts)
    write_failed(client, "9")
    one, two, three = store.take(NOW, "me", 3)
    assert store.swap(one, one._replace(state=State.DONE, lease=None)) == ""
    store.swap(two, verbs.give_up_task(two, "broken", 1))
    states = {i: t.state for i, t in tasks_in(store).items()}
    assert states == {"mails/2": State.DEAD, "mails/3": State.ACTIVE}
    write_waiting(client, "4")
    store.swap(three, verbs.nack(three, 0.0, "later"))
    assert client.lrange("bull:mails:wait", 0, -1) == ["4", "3"]
    task = found(store, "mails/3")
    assert (task.attempts, task.error) == (1, "later")


def test_finished_jobs_are_removed_by_age_as_bullmq_does(
    client: Redis, open_bullmq: Opener
) -> None:
    """Those older than the option of the job that finishes, but none while the worker's clock is
    ahead of the server's by days."""
    keeps: tuple[tuple[object, int, str], ...] = (
        ({"age": 3600}, 0, "43"),
        ({"age": 3600, "count": 1}, 0, "4"),
        ({"age": 3600, "limit": 1}, 0, "431"),
        ({"age": 60}, 8 * 86_400, "4321"),
        (None, 0, "4321"),
    )
    ends = ("completed", "Complete"), ("failed", "Fail")
    for (keep, ahead, kept), (end, name) in product(keeps, ends):
        client.flushdb()
        now = time.time()
        for ident, age in (("1", 7300), ("2", 3700), ("3", 3500)):
            ended = round((now - age) * 1000)
            write_at(client, end, ident, score=ended, finishedOn=ended)
        write_waiting(client, "4", opts=json.dumps({f"removeOn{name}": keep}))
        store = open_bullmq(clock=lambda: now + ahead)  # noqa: B023
        (task,) = store.take(now + ahead, "me", 1)
        done = task._replace(state=State.DONE, lease=None)
        store.swap(task, done if end == "completed" else verbs.give_up_task(task, "broken", 1))
        with naming(keep, end):
            assert client.zrevrange(f"bull:mails:{end}", 0, -1) == [*kept]
            assert not any(client.exists(f"bull:mails:{ident}") for ident in {*"123"} - {*kept})


def test_limits_of_a_queue_are_honoured(client: Redis, store: Store, open_bullmq: Opener) -> None:
    """Pause, concurrency and rate are settings of BullMQ that the claim script obeys."""
    for number in "12345":
        write_waiting(client, number)
    # A control, its value, its answer, and how many jobs are taken then.
    for name, value, answer, taken in (
        ("pause", "1", "mails is paused: jobs wait", 0),
        ("pause", "0", "", 0),
        ("concurrency", "2", "mails: 2 at the same time", 2),
        ("concurrency", "0", "", 0),
        ("rate", "2", "mails: 2 a minute", 2),
        ("rate", "0", "", 1),
    ):
        assert answer in store.control(name, "mails", value)
        if answer or taken:
            assert len(list(store.take(NOW, "me", 9))) == taken
            target = open_bullmq().controls[name].for_target("mails")
            assert target.has_paused if name == "pause" else target.now == value
        if (name, value) == ("rate", "2"):
            assert store.changes.next_due is not None and store.changes.next_due > NOW
    for wrong in (("pause", "mails", "2"), ("pause", "none", "1")):
        with pytest.raises(Unsupported):
            store.control(*wrong)
    assert all(isinstance(control, Control) for control in store.controls.values())


def test_a_rate_has_two_forms(client: Redis, open_bullmq: Opener) -> None:
    """A rate of another program is shown with its own time, and that value sets exactly the same
    limit. Another text is refused with both forms."""
    write_waiting(client, "1")
    rates = (4, 1000, "4/1s"), (240, 60_000, "240"), (9, 1500, "9/1.5s"), (1, 3_600_000, "1/1h")
    for most, duration, text in rates:
        client.hset("bull:mails:meta", mapping={"max": most, "duration": duration})
        store = open_bullmq()
        assert store.controls["rate"].for_target("mails").now == text
        stored = ("100", ["100", "60000"]), (text, [str(most), str(duration)]), ("0", [None, None])
        for value, fields in stored:
            store.control("rate", "mails", value)
            assert client.hmget("bull:mails:meta", "max", "duration") == fields
    expected = r"expected a number of jobs a minute .* as 4/1s"
    for value in ("", "x", "-1", "4/", "4/0s", "/1s", "1.5", "4/1y", "10000000000"):
        with naming(value), pytest.raises(Unsupported, match=expected):
            store.control("rate", "mails", value)


def test_a_queue_without_jobs_is_obliterated(client: Redis, store: BullmqStore) -> None:
    """Once all jobs are purged and expunged, no key of the queue is left; before, it is refused."""
    task = store.add_job(NewJob("mails", "report"))
    store.control("concurrency", "mails", "2")
    for verb in ("purge", "expunge"):
        assert store.controls["obliterate"].for_target("mails").refusal.startswith("jobs in it: 1;")
        with pytest.raises(Unsupported, match="jobs in it: 1"):
            store.control("obliterate", "mails")
        act(store, verb, task.id)
    left = {*client.keys("bull:mails:*")}
    assert {"bull:mails:meta", "bull:mails:id", "bull:mails:events"} <= left
    assert store.control("obliterate", "mails") == "mails is deleted"
    assert (client.keys("bull:*"), client.keys("spooldeck:*:mails*")) == ([], [])
    assert "obliterate" not in store.controls


def test_a_queue_with_a_new_job_stays(client: Redis, store: BullmqStore) -> None:
    """The script counts again: a job added since the controls were read saves its queue, also once
    it is held."""
    task = store.add_job(NewJob("mails", "report"))
    place, empty = store.place, {"obliterate": Control("", targets=(ControlTarget("mails"),))}
    words = {"name": "obliterate", "queue": "mails", "value": ""}
    for verb in ("", "hold"):
        if verb:
            act(store, verb, task.id)
        with unchanged(client), pytest.raises(Unsupported, match="mails has jobs in"):
            run_control(store._connection, place, empty, **words)


def test_a_resume_moves_back_what_bullmq_5_paused(client: Redis, store: BullmqStore) -> None:
    """Its list of paused jobs is counted, shown and moved back, in lots of 7,000."""
    write_waiting(client, "0")
    client.hset("bull:mails:meta", "paused", 1)
    with client.pipeline() as pipe:
        for number in range(1, 7101):
            write_at(pipe, "paused", str(number))
        pipe.execute()
    assert store.count_tasks()[State.PENDING] == 7101
    store.control("pause", "mails", "0")
    assert (client.llen("bull:mails:wait"), client.llen("bull:mails:paused")) == (7101, 0)


def test_a_job_that_returns_has_its_deduplication_key_again(
    client: Redis, store: BullmqStore
) -> None:
    """A held or purged job frees its key, as a removed one does; on its return it gets the key with
    the time that is left, unless another job has it by then."""
    key = "bull:mails:de:once"
    # Who has the key before, meanwhile and after, and for how many milliseconds; -1: without end.
    rows: tuple[tuple[str, int, str, str, int], ...] = (
        ("me", -1, "", "me", -1),
        ("me", 60_000, "", "me", 60_000),
        ("me", -1, "other", "other", -1),
        ("other", -1, "", "other", -1),
        ("", -2, "", "", -2),
    )
    for (before, time_left, meanwhile, after, most), away in product(rows, ("hold", "purge")):
        client.flushdb()
        write_waiting(client, "me", deid="once")
        if before:
            client.set(key, before, px=time_left if time_left > 0 else None)
        act(store, away, "mails/me")
        with naming(before, time_left, meanwhile, away):
            assert (client.get(key) or "") == ("" if before == "me" else before)
            if meanwhile:
                client.set(key, meanwhile)
            gone = found(store, "mails/me")
            store.swap(gone, verbs.with_state(gone, State.PENDING))
            left = client.pttl(key)
            assert ((client.get(key) or ""), left > 0) == (after, most > 0)
            assert left <= max(most, -1)
            assert not client.exists("spooldeck:bull:mails:deduplication")


def test_a_job_whose_worker_ended_is_returned(client: Redis, open_bullmq: Opener) -> None:
    """A claimed job without lock goes back to the line at the second check, and the job of a living
    worker stays."""
    for number in "12":
        write_waiting(client, number)
    lost, _ = open_bullmq().take(NOW, "other", 2)
    client.delete("bull:mails:1:lock")
    for _ in range(2):
        client.delete("bull:mails:stalled-check")
        store = open_bullmq()
        assert store.claim_rules.return_abandoned is not None
        store.claim_rules.return_abandoned(NOW)
        taken = list(store.take(NOW, "me", 1))
    assert [(task.id, task.extra["stalled before"]) for task in taken] == [(lost.id, "1")]


def test_a_new_job_keeps_the_data_and_options_of_its_image(store: BullmqStore) -> None:
    """Data and options are in BullMQ's own words; ids that Node refuses are refused."""
    first = Task("mails/a", "mails", State.PENDING, NOW, group="report", priority=3)
    for change, message in (
        ({"id": "mails/17"}, "a number"),
        ({"id": "mails/a:b"}, "a colon"),
        ({"id": "other/c"}, "expected its queue"),
        ({"priority": 2**21 + 1}, "priority"),
    ):
        with pytest.raises(Unsupported, match=message):
            store.swap(None, first._replace(**change))
    store.swap(None, first)
    image = store.read(found(store, "mails/a")).replace(b'"data": "{}"', b'"data": "[1]"')
    (outcome,) = store.swap_all([Move(None, first._replace(id="mails/b"), image)])
    assert outcome.error is None
    task = found(store, "mails/b")
    assert store.read(task, "data") == b"[1]"
    assert (task.word, task.priority, task.group) == ("prioritized", 3, "report")


def test_a_job_without_an_id_has_the_next_number(client: Redis, store: BullmqStore) -> None:
    """Waiting, delayed, prioritized: BullMQ's counter counts each job once; a number that another
    job has is passed over."""
    write_hash(client, "bull:mails:3")
    options: list[dict[str, Any]] = [{}, {"delay": 60.0}, {"priority": 3}, {}]
    added = [store.add_job(NewJob("mails", "report", **more)) for more in options]
    assert [task.id for task in added] == ["mails/1", "mails/2", "mails/4", "mails/5"]
    assert [found(store, task.id).rev for task in added] == [task.rev for task in added]
    assert client.get("bull:mails:id") == "5"


def test_a_job_names_its_destination_in_its_data(client: Redis, open_bullmq: Opener) -> None:
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
    tasks, peer = tasks_in(store), "https://peer.example"
    assert {ident.partition("/")[2]: task.destination for ident, task in tasks.items()} == {
        **{"1": peer, "2": peer, "3": "", "4": "a \ufffd[31m word", "5": "", "6": peer},
        "7": other,
    }
    for task in tasks.values():
        assert list(store.verify([(task.id, task.state, task.rev)])) == [task]
    assert [task.destination for task in store.take(NOW, "w", 9)] == [peer]


def test_changes_without_a_name_are_noticed(client: Redis, store: BullmqStore) -> None:
    """The server's own wait goes on between two waits. An event names its job; jobs that leave
    without one need a full scan, more jobs in a state a scan of it, and a trimmed stream a full
    scan."""
    for number in range(20):
        write_waiting(client, str(number))
    write_waiting(client, "1", "sums")
    wait = store.changes.wait
    client.config_resetstat()
    for _ in range(50):
        assert wait is not None and wait(0.0) == set()
    assert client.info("commandstats").get("cmdstat_xread", {"calls": 1})["calls"] <= 1
    assert wait is not None
    client.xadd("bull:sums:events", {"event": "completed", "jobId": "1", "prev": "active"})
    client.xadd("bull:mails:events", {"event": "paused"})
    assert wait(60.0) == {"sums/1"}
    client.delete("bull:mails:wait")
    assert wait(60.0) is None
    client.lpush("bull:mails:wait", *range(20))
    assert wait(60.0) == {"waiting"}
    client.xadd("bull:mails:events", {"event": "added", "jobId": "5"})
    assert wait(60.0) == {"mails/5"}
    for number in range(9):
        event: Any = {"event": "added", "jobId": number}
        client.xadd("bull:mails:events", event, maxlen=2, approximate=False)
    assert wait(60.0) is None


def test_a_parent_has_children_and_a_child_its_parent(client: Redis, store: BullmqStore) -> None:
    """Children are listed with state and result or reason, those that failed first; one that is
    gone, or of another prefix, is no task here. Of many, the first are listed and all counted; a
    long value is not read, only its size.
    """
    parent = "bull:reports:7"
    write_at(client, "waiting-children", "7", "reports")
    write_waiting(client, "11", "sums", parentKey=parent)
    write_failed(client, "12", "sums", parentKey=parent, failedReason="no \x1b number")
    write_at(client, "completed", "13", "sums", returnvalue="42")
    client.sadd(f"{parent}:dependencies", "bull:sums:11")
    client.zadd(f"{parent}:unsuccessful", {"bull:sums:12": 1})
    results: Any = {"bull:sums:13": "42", "bull:sums:14": "1", "other:x:1": "2"}
    client.hset(f"{parent}:processed", mapping=results)
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
