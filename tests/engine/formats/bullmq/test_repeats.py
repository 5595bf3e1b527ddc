"""Schedules of BullMQ: our worker adds the next run as the workers of versions 5 and 6 do."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from pytest import MonkeyPatch
from redis import Redis

from engine.formats.bullmq.moves import bar_leaving
from engine.formats.bullmq.repeats import find_next_run, next_match
from engine.formats.bullmq.store import BullmqStore
from engine.model import State
from tests.bullmq_jobs import HOUR, NOON, everything, write_waiting
from tests.engine.formats.bullmq.conftest import Opener
from tests.node_packages import NodeProgram
from tests.store_contents import found, naming, tasks_in

CLOCK = time.time
SPRING, AUTUMN = 1_774_746_000_000, 1_792_890_000_000
"""Clocks change in Berlin: 2026-03-29 and 2026-10-25, 01:00 UTC."""


EVERY, HOURLY = {"every": 2000}, {"pattern": "0 * * * *"}


def test_the_next_run_follows_the_options() -> None:
    """Limit, end and start of a schedule count; a pattern has five fields or six, and a zone. 0:
    there is no next run; None: an interval has no time of its own."""
    rows: tuple[tuple[dict[str, Any], dict[str, object], int | None], ...] = (
        (EVERY, {}, None),
        ({**EVERY, "offset": 5, "count": 3}, {}, None),
        ({**EVERY, "count": 3, "limit": 3}, {}, 0),
        ({**EVERY, "endDate": NOON - 1}, {}, 0),
        ({**EVERY, "endDate": "2026-11-20T11:00:00.000Z"}, {}, 0),
        (HOURLY, {}, NOON + HOUR),
        ({"pattern": "0 0 * * * *"}, {"prevMillis": NOON + HOUR}, NOON + 2 * HOUR),
        ({"pattern": "0 12 * * *", "tz": "America/New_York"}, {}, NOON + 5 * HOUR),
        ({**HOURLY, "startDate": NOON + 90 * 60_000}, {}, NOON + 2 * HOUR),
        ({**HOURLY, "endDate": NOON + 1}, {}, 0),
    )
    for repeat, options, millis in rows:
        run = find_next_run({"attempts": 3, **options, "repeat": repeat}, NOON, aligns=False)
        if millis == 0:
            assert run is None, repeat
        else:
            counted = {**repeat, "count": repeat.get("count", 0) + 1}
            assert run is not None, repeat
            assert (run.millis, run.options["repeat"]) == (millis, counted)
            assert run.options["attempts"] == 3


@pytest.mark.parametrize("program", ["5.81.5", "6.7.0"], indirect=True)
@pytest.mark.deep
def test_patterns_match_as_in_node(program: NodeProgram) -> None:
    """The next time of each pattern in each zone is that of BullMQ's own library, also where
    clocks change."""
    rng = random.Random(1)
    patterns = ["*/5 * * * *", "0 3 * * *", "30 2 * * *", "0 0 1 * *", "0 9 * * 1-5", "@daily"]
    patterns += ["15 10 L * *", "*/20 * * * * *", "0 0 12 1,15 * 1", "0 0 29 2 *", "7 1-3/2 * * 0"]
    patterns += ["@hourly", "0 12 * JAN,JUL MON", "0 0 * * 7"]
    zones = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]
    calls = [
        (rng.choice(patterns), rng.choice(zones), None, NOON + rng.randrange(365 * 24) * HOUR)
        for _ in range(400)
    ]
    changes = (("Europe/Berlin", SPRING), ("Europe/Berlin", AUTUMN), ("America/New_York", AUTUMN))
    calls += [
        (pattern, zone, None, change + rng.randrange(-6 * 60, 6 * 60) * 60_000)
        for pattern in (*patterns, "30 2 * * *", "15 2,4 * * *", "*/30 2 * * *", "30 1-3 * * *")
        for zone, change in changes
        for _ in range(8)
    ]
    theirs = program("next", "mails", calls)
    own_times = [next_match(pattern, zone, after) for pattern, zone, _, after in calls]
    rows = zip(calls, own_times, theirs, strict=True)
    assert [row for row in rows if row[1] != row[2]] == []


SCHEDULES: dict[str, dict[str, object]] = {
    "each hour": {"every": HOUR},
    "offset": {"every": HOUR, "offset": 300},
    "pattern": {"pattern": "0 * * * *"},
    "zone": {"pattern": "0 12 * * *", "tz": "Europe/Berlin"},
    "limit": {"every": HOUR, "limit": 3},
}


def run_next(
    program: NodeProgram, client: Redis, store: BullmqStore, queue: str, *, ours: bool
) -> dict[str, str]:
    """Let a worker run the next run of a schedule now; the fields of the run that it added."""
    due = client.zrange(f"bull:{queue}:delayed", 0, -1)
    for ident in due:
        program("promote", queue, ident)
    if not due:
        return {}
    if ours:
        taken = [t for t in store.take(time.time(), "me", 9) if t.kind == queue]
        assert taken, store.claim_gate(queue)
        (task,) = taken
        store.swap(task, task._replace(state=State.DONE, attempts=1, lease=None))
    else:
        assert len(program("work", queue, "ok", 0, 20_000)) == 1
    idents = client.zrange(f"bull:{queue}:delayed", 0, -1)
    if not idents:
        return {}
    ident = str(idents[0])
    assert bar_leaving(found(store, f"{queue}/{ident}"), 0.0).startswith("next run of scheduler")
    job = {str(name): str(v) for name, v in client.hgetall(f"bull:{queue}:{ident}").items()}
    options = json.loads(job["opts"])
    for passing in ("delay", "timestamp", "repeatJobKey"):
        options.pop(passing, None)
        job.pop(passing, None)
    return {"id": ident, **job, "opts": json.dumps(options, sort_keys=True)}


def run_by_turns(program: NodeProgram, client: Redis, store: BullmqStore) -> list[bool]:
    """Let our worker and Node's run the queue `ours` by turns, and Node's alone `theirs`: both have
    the same runs, and the same schedule in the end. Returns whether each run added a next one."""
    added = []
    for number in range(4):
        mine, node = (
            run_next(program, client, store, queue, ours=queue == "ours" and number % 2 == 0)
            for queue in ("ours", "theirs")
        )
        assert mine == node
        added.append(bool(mine))
    keys = everything(client)
    for key in ("repeat", "repeat:tick"):
        assert keys.get(f"bull:ours:{key}") == keys.get(f"bull:theirs:{key}")
    return added


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("program", ["5.81.5", "6.7.0"], indirect=True)
def test_our_worker_advances_a_scheduler_as_node(
    program: NodeProgram, client: Redis, store: BullmqStore, name: str
) -> None:
    """Runs by turns of our worker and Node's: each adds the same next run as Node's alone do, until
    the limit, and the schedule is the same in the end."""
    template = {"data": {"n": 1}, "opts": {"attempts": 2, "priority": 3}}
    for queue in ("ours", "theirs"):
        start = {"startDate": (int(time.time()) // 3600 + 2) * HOUR}
        program("schedule", queue, "tick", {**SCHEDULES[name], **start}, template)
    expected = [True, True, name != "limit", name != "limit"]
    assert run_by_turns(program, client, store) == expected


@pytest.mark.parametrize("repeat", [{"every": HOUR}, {"pattern": "0 * * * *"}])
@pytest.mark.parametrize("program", ["5.0.0", "5.81.5"], indirect=True)
def test_our_worker_advances_a_repeatable_job_as_node(
    program: NodeProgram, client: Redis, store: BullmqStore, repeat: dict[str, object]
) -> None:
    """By turns ours and Node's: the next run is the one that Node's workers alone add."""
    for queue in ("ours", "theirs"):
        program("repeat", queue, repeat, {"id": "a"})
    run_by_turns(program, client, store)


@pytest.mark.parametrize("repeat", [{"every": HOUR}, {"pattern": "0 * * * *"}])
@pytest.mark.parametrize("how", ["repeat", "schedule"])
@pytest.mark.parametrize("program", ["5.81.5", "6.7.0"], indirect=True)
@pytest.mark.deep
def test_a_run_that_is_tried_again_adds_no_second_run(
    program: NodeProgram, client: Redis, store: BullmqStore, repeat: dict[str, object], how: str
) -> None:
    """A promoted run fails, is retried before and after the next one has run: the same runs are due
    as with Node's worker alone."""
    if how == "repeat" and program.version.startswith("6"):
        return  # it has no repeatable jobs
    left = []
    for queue in ("ours", "theirs"):
        if how == "repeat":
            program("repeat", queue, repeat, {"id": "a"})
        else:
            start = {"startDate": (int(time.time()) // 3600 + 2) * HOUR}
            program("schedule", queue, "tick", {**repeat, **start}, {})
        for _ in range(2):
            (first,) = client.zrange(f"bull:{queue}:delayed", 0, -1)
            program("promote", queue, first)
            for end in (State.DEAD, State.DONE, State.DEAD):
                if queue == "ours":
                    (task,) = (t for t in store.take(time.time(), "me", 9) if t.kind == queue)
                    store.swap(task, task._replace(state=end, attempts=1, lease=None))
                else:
                    program("work", queue, "ok" if end is State.DONE else "fail", 0, 20_000)
                program("retry" if end is State.DEAD else "rerun", queue, first)
            client.lrem(f"bull:{queue}:wait", 0, str(first))
        left.append(client.zrange(f"bull:{queue}:delayed", 0, -1, withscores=True))
    assert (left[0], len(left[0])) == (left[1], 1)


@pytest.mark.parametrize("repeat", [{"every": 3600_000}, {"pattern": "0 * * * *"}])
@pytest.mark.parametrize("program", ["3.16.2", "4.18.3", "5.0.0", "5.81.5"], indirect=True)
def test_the_next_run_of_a_repeatable_job_is_known(
    program: NodeProgram, store: BullmqStore, repeat: dict[str, object]
) -> None:
    """It is not removed, as the schedule would end; our worker takes no job of versions 3 and 4,
    and names the schedule."""
    program("repeat", "mails", repeat, {"n": 1})
    (task,) = tasks_in(store).values()
    assert bar_leaving(task, 0.0).startswith("next run of scheduler")
    why, _ = store.claim_gate("mails")
    assert ("tick" in why) == (task.id != "" and "BullMQ" in why)


def test_a_schedule_of_unknown_runs_closes_its_queue(client: Redis, store: BullmqStore) -> None:
    """Our worker takes no job of it, else the schedule would end; the reason names it."""
    client.hset("bull:mails:meta", "version", "bullmq:5.81.5")
    client.zadd("bull:mails:repeat", {"odd": NOON})
    client.hset("bull:mails:repeat:odd", mapping={"name": "tick", "pattern": "H * * * Q", "ic": 1})
    why, _ = store.claim_gate("mails")
    assert why.startswith("schedule odd: our worker cannot count its runs")


@pytest.mark.parametrize("version", ["bullmq:5.81.5", "bullmq:6.7.0"])
def test_a_claim_adds_the_next_run_once(client: Redis, open_bullmq: Opener, version: str) -> None:
    """Also where the queue is paused meanwhile and the run is claimed again: an hour later, with
    data and options of the schedule."""
    client.hset("bull:mails:meta", "version", version)
    client.zadd("bull:mails:repeat", {"tick": NOON})
    schedule: Any = {"name": "tick", "data": '{"n":1}', "every": HOUR, "ic": 1}
    client.hset("bull:mails:repeat:tick", mapping=schedule)
    options = {"attempts": 2, "repeat": {"every": HOUR, "count": 1}}
    ident = f"repeat:tick:{NOON}"
    write_waiting(client, ident, rjk="tick", opts=json.dumps(options), data='{"n":1}')
    store = open_bullmq(lambda: NOON / 1000)
    for _ in range(2):
        (task,) = store.take(NOON / 1000, "me", 1)
        assert task.id == f"mails/{ident}"
        assert client.zrange("bull:mails:delayed", 0, -1) == [f"repeat:tick:{NOON + HOUR}"]
        store.swap(task, task._replace(state=State.PENDING, lease=None))
    job = client.hgetall(f"bull:mails:repeat:tick:{NOON + HOUR}")
    assert (job["data"], job["delay"], job["rjk"]) == ('{"n":1}', str(HOUR), "tick")
    assert json.loads(job["opts"])["repeat"] == {"every": HOUR, "count": 2}
    assert client.zscore("bull:mails:repeat", "tick") == NOON + HOUR


def test_odd_options_of_a_run_end_no_worker(client: Redis, open_bullmq: Opener) -> None:
    """The job stays where it is, with the reason, and nothing is raised."""
    key = "tick:::UTC:0 * * * *"
    for opts in (
        '{"repeat": {"every": 0.5, "count": 1}}',
        '{"repeat": {"every": 1000}, "prevMillis": 1e999}',
        '{"repeat": {"pattern": "0 * * * *", "startDate": 1e300}}',
        '{"repeat": ' + "[" * 5000 + "]" * 5000 + "}",
    ):
        client.flushdb()
        client.hset("bull:mails:meta", "version", "bullmq:5.81.5")
        client.zadd("bull:mails:repeat", {key: NOON})
        write_waiting(client, "repeat:x:1", rjk=key, opts=opts, data="[" * 5000)
        with naming(opts[:60]):
            list(open_bullmq(lambda: NOON / 1000).take(NOON / 1000, "me", 1))


@pytest.mark.parametrize("name", [":/etc/localtime", "/etc/localtime", ":UTC"])
def test_the_zone_of_this_machine_may_be_a_file(name: str, monkeypatch: MonkeyPatch) -> None:
    """TZ names a zone or a file, after a colon or not (tzset(3))."""
    monkeypatch.setenv("TZ", name)
    assert next_match("0 * * * *", "", NOON) == NOON + HOUR
