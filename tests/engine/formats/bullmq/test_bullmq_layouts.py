"""Queues as versions of BullMQ keep them: each act is right for the version, or refused."""

from contextlib import closing
from itertools import chain
from typing import Any

import pytest
from redis import Redis

from engine.formats.bullmq import facts
from engine.formats.bullmq.connection import Connection
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.store import BullmqStore
from engine.model import State
from engine.store import Store, Unsupported
from tests.bullmq_jobs import (
    CREATED_MS,
    NOW,
    everything,
    write_at,
    write_failed,
    write_hash,
    write_waiting,
)
from tests.engine.formats.bullmq.conftest import Opener
from tests.store_contents import act, found, problems_in

DUE = (round(NOW * 1000) + 3_600_000) * 4096
"""The score of a job that is due in an hour."""


def set_version(client: Redis, version: str | None) -> None:
    """Let the queue name the version of its programs, or none."""
    if version:
        client.hset("bull:mails:meta", "version", version)


def pause_by_list(client: Redis) -> None:
    """Pause the queue as a program of BullMQ 5 does."""
    client.rename("bull:mails:wait", "bull:mails:paused")
    client.hset("bull:mails:meta", "paused", 1)
    client.delete("bull:mails:marker")


@pytest.mark.parametrize("version", ["bullmq:2.4.0", "bullmq:7.0.0", "bullmq-pro:7.9.1"])
def test_another_version_is_not_changed(client: Redis, store: BullmqStore, version: str) -> None:
    """Each act is refused, and names the version; our worker takes nothing."""
    write_waiting(client, "1")
    write_failed(client, "2")
    write_at(client, "delayed", "3", score=DUE, delay=3_600_000)
    set_version(client, version)
    before = everything(client)
    named = version.removeprefix("bullmq:").partition(".")[0]
    acts = {"retry": "2", "promote": "3", "hold": "1", "purge": "3", "expunge": "2"}
    for verb, job in acts.items():
        with pytest.raises(Unsupported, match=named):
            act(store, verb, f"mails/{job}")
    with pytest.raises(Unsupported, match=named):
        store.add_job(NewJob("mails", "report"))
    for control in ("pause", "recover"):
        write_hash(client, "bull:mails:9")
        with pytest.raises(Unsupported, match=named):
            store.control(control, "mails", "1")
        client.delete("bull:mails:9")
    assert [*store.take(NOW, "me", 1)] == []
    store.claim_rules.return_abandoned(NOW)  # type: ignore[misc]
    after = everything(client)
    assert {key: value for key, value in after.items() if key in before} == before


@pytest.mark.parametrize("version", ["bullmq:5.81.5", None])
def test_a_queue_that_is_paused_by_list_stays_so(
    client: Redis, store: BullmqStore, version: str | None
) -> None:
    """BullMQ 5 ends a pause by renaming `paused` to `wait`: what is retried, promoted, added,
    released, restored or given back by a worker meanwhile is in `paused`, in its order."""
    for number in range(1, 5):
        write_waiting(client, f"w{number}")
    set_version(client, version)
    (claimed,) = store.take(NOW, "me", 1)
    pause_by_list(client)
    write_failed(client, "f")
    write_at(client, "delayed", "d", score=DUE, delay=3_600_000)
    act(store, "retry", "mails/f")
    act(store, "promote", "mails/d")
    act(store, "hold", "mails/w3")
    act(store, "release", "mails/w3")
    purged = found(store, "mails/w2")
    act(store, "purge", "mails/w2")
    store.swap(found(store, "mails/w2"), purged)
    added = store.add_job(NewJob("mails", "report")).id.partition("/")[2]
    assert claimed.id == "mails/w1"
    store.swap(claimed, claimed._replace(state=State.PENDING, lease=None))
    expected = [added, "d", "f", "w4", "w3", "w2", "w1"]
    assert client.lrange("bull:mails:paused", 0, -1) == expected
    assert client.exists("bull:mails:wait", "bull:mails:marker") == 0
    assert [*store.take(NOW, "me", 1)] == []
    store.control("pause", "mails", "0")
    assert client.lrange("bull:mails:wait", 0, -1) == expected
    assert client.exists("bull:mails:paused") == 0
    assert [task.id for task in store.take(NOW, "me", 1)] == ["mails/w1"]


def test_a_pause_of_version_5_is_by_list(client: Redis, store: BullmqStore) -> None:
    """So a resume by BullMQ 5 loses nothing; jobs in `wait` go behind those in `paused`."""
    write_waiting(client, "1")
    set_version(client, "bullmq:5.0.0")
    store.control("pause", "mails", "1")
    assert client.lrange("bull:mails:paused", 0, -1) == ["1"]
    write_waiting(client, "2")
    write_waiting(client, "3")
    write_failed(client, "4")
    act(store, "retry", "mails/4")
    assert client.lrange("bull:mails:paused", 0, -1) == ["4", "3", "2", "1"]
    assert client.exists("bull:mails:wait") == 0


def test_a_pause_of_version_6_is_a_mark(client: Redis, store: BullmqStore) -> None:
    """Version 6 leaves waiting jobs where they are, unless an older program paused the queue."""
    write_waiting(client, "1")
    write_failed(client, "2")
    set_version(client, "bullmq:6.7.0")
    store.control("pause", "mails", "1")
    act(store, "retry", "mails/2")
    assert client.lrange("bull:mails:wait", 0, -1) == ["2", "1"]
    store.control("pause", "mails", "0")
    pause_by_list(client)
    write_failed(client, "3")
    act(store, "retry", "mails/3")
    assert client.lrange("bull:mails:paused", 0, -1) == ["3", "2", "1"]


def test_a_queue_that_bull_has_paused_is_not_changed(client: Redis, store: BullmqStore) -> None:
    """The program before BullMQ marks its pause in another key: a job in `wait` would run."""
    write_waiting(client, "1")
    client.rename("bull:mails:wait", "bull:mails:paused")
    client.set("bull:mails:meta-paused", 1)
    write_failed(client, "2")
    with pytest.raises(Unsupported, match="Bull, which is not supported"):
        act(store, "retry", "mails/2")
    assert client.exists("bull:mails:wait") == 0


def test_delayed_and_stalled_jobs_of_a_paused_list_stay_in_it(client: Redis, store: Store) -> None:
    """A delayed job that falls due and a job without its worker are not put into `wait` either."""
    write_waiting(client, "1")
    write_waiting(client, "2")
    set_version(client, "bullmq:5.81.5")
    assert len([*store.take(NOW, "me", 1)]) == 1
    pause_by_list(client)
    write_at(client, "delayed", "3", score=DUE, delay=3_600_000)
    assert [*store.take(NOW + 7200, "me", 1)] == []
    client.delete("bull:mails:1:lock")
    assert store.claim_rules.return_abandoned is not None
    for _ in range(2):
        client.delete("bull:mails:stalled-check")
        store.claim_rules.return_abandoned(NOW)
    assert client.lrange("bull:mails:paused", 0, -1) == ["3", "2", "1"]
    assert client.exists("bull:mails:wait") == 0


def test_a_parent_of_a_paused_list_goes_into_it(client: Redis, store: BullmqStore) -> None:
    """The last child's end moves its parent, whose queue is paused by another version."""
    write_waiting(client, "1", "parents")
    client.hset("bull:parents:meta", mapping={"version": "bullmq:5.81.5", "paused": 1})
    client.rename("bull:parents:wait", "bull:parents:paused")
    write_at(client, "waiting-children", "2", "parents")
    client.sadd("bull:parents:2:dependencies", "bull:mails:c")
    parent = '{"id":"2","queueKey":"bull:parents"}'
    write_waiting(client, "c", parentKey="bull:parents:2", parent=parent)
    set_version(client, "bullmq:6.7.0")
    (task,) = store.take(NOW, "me", 1)
    store.swap(task, task._replace(state=State.DONE, attempts=1, lease=None))
    assert client.lrange("bull:parents:paused", 0, -1) == ["1", "2"]
    assert client.exists("bull:parents:wait") == 0


@pytest.mark.parametrize("version", ["bullmq:3.16.2", "bullmq:5.81.5", "bullmq:6.7.0"])
@pytest.mark.parametrize("is_paused", [False, True])
def test_jobs_in_no_list_are_put_back(
    client: Redis, store: BullmqStore, version: str, *, is_paused: bool
) -> None:
    """By their fields: finished ones to their set, delayed ones that are not due, the others to the
    line by age or priority; a job that a worker has is left to it."""
    for number in (2, 4):
        write_waiting(client, str(number), timestamp=CREATED_MS + number)
    set_version(client, version)
    lost: dict[str, dict[str, object]] = {
        **{str(number): {"timestamp": CREATED_MS + number} for number in (1, 3, 5)},
        **{"p": {"priority": 3}, "d": {"delay": 10**9}, "claimed": {}},
        "f": {"finishedOn": CREATED_MS, "failedReason": "x"},
        "c": {"finishedOn": CREATED_MS, "failedReason": "x", "returnvalue": "1"},
    }
    for ident, fields in lost.items():
        write_hash(client, f"bull:mails:{ident}", **fields)
    client.set("bull:mails:claimed:lock", "uuid:1")
    if is_paused:
        store.control("pause", "mails", "1")
    assert len([what for what in problems_in(store).values() if "control recover" in what]) == 8
    assert store.control("recover", "mails") == "mails: 7 jobs are in a list again"
    line = ["5", "4", "3", "2", "1"] + (["p"] if "3.16" in version else [])
    is_list = is_paused and "bullmq:6" not in version
    assert client.lrange("bull:mails:paused" if is_list else "bull:mails:wait", 0, -1) == line
    assert client.zrange("bull:mails:prioritized", 0, -1) == ([] if "3.16" in version else ["p"])
    for place, job in (("delayed", "d"), ("failed", "f"), ("completed", "c")):
        assert client.zrange(f"bull:mails:{place}", 0, -1) == [job]
    assert store.control("recover", "mails") == "mails: 0 jobs are in a list again"


def test_jobs_in_no_list_are_a_warning_of_their_own(client: Redis, store: BullmqStore) -> None:
    """By queue, with its control; entries without a job in another queue hide none."""
    write_waiting(client, "1", "mails")
    write_waiting(client, "1", "reports")
    client.rpush("bull:reports:wait", "gone", "gone too", "also gone")
    client.hset("bull:reports:repeat:tick", mapping={"name": "tick", "ic": 1})
    place = store.place
    with closing(Connection(place)) as connection:
        assert facts.read_state(connection, place, NOW).orphans == {}
        for number in range(2):
            write_hash(client, f"bull:mails:lost{number}")
        client.hset("bull:other:1", "name", "of a queue without settings")
        state = facts.read_state(connection, place, NOW)
    assert state.orphans == {"mails": 2}
    (warning,) = (w for w in facts.find_warnings(state) if "no list" in w.what)
    assert warning.what.startswith("mails: 2 jobs are in no list")
    assert "spooldeck control recover --target mails" in warning.fix


def test_a_limit_that_no_worker_knows_is_refused(client: Redis, store: BullmqStore) -> None:
    """Workers of versions 3 and 4 have no limits of a queue; a pause they have."""
    write_waiting(client, "1")
    set_version(client, "bullmq:4.18.3")
    for name in ("concurrency", "rate"):
        with pytest.raises(Unsupported, match=r"workers of bullmq:4.18.3 know no limit"):
            store.control(name, "mails", "5")
    assert store.control("pause", "mails", "1") == "mails is paused: jobs wait"


def test_a_trace_of_a_new_worker_wins(client: Redis, open_bullmq: Opener) -> None:
    """A queue that names no version may have old failures from before an upgrade: it is of
    version 5 as soon as a worker of that version has run a job."""
    rows: tuple[tuple[dict[str, Any], str], ...] = (
        ({"atm": 1, "ats": 1}, ""),
        ({"ats": 2}, ""),
        ({}, "BullMQ 4"),
        ({"attemptsMade": 1}, "BullMQ 4"),
    )
    for newer, refusal in rows:
        client.flushdb()
        write_at(client, "prioritized", "p", score=5, priority=1)
        write_at(client, "failed", "1", finishedOn=CREATED_MS, attemptsMade=3)
        write_at(client, "completed", "2", finishedOn=CREATED_MS, returnvalue="1", **newer)
        why, _ = open_bullmq().claim_gate("mails")
        assert refusal in why and bool(refusal) == bool(why), newer


def test_no_act_of_ours_looks_like_a_new_worker(client: Redis, store: BullmqStore) -> None:
    """A job of versions 3 and 4 gets none of the fields in which version 5 counts."""
    for verbs in (["retry"], ["hold", "release"], ["purge", "restore"]):
        client.flushdb()
        client.zadd("bull:mails:priority", {"x": 1})
        write_at(client, "failed", "1", finishedOn=CREATED_MS, attemptsMade=3)
        for verb in verbs:
            act(store, verb, "mails/1")
        store.add_job(NewJob("mails", "report"))
        fields = chain.from_iterable(client.hkeys(f"bull:mails:{ident}") for ident in "12")
        assert not {"atm", "ats"} & {*map(str, fields)}, verbs
