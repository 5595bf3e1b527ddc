"""What the console shows of BullMQ queues: counts, new queues, alerts, rows of odd jobs."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import pytest
from pytest import MonkeyPatch
from redis import Redis

from engine.formats.bullmq import scan
from engine.formats.bullmq.schedule_acts import ScheduleActs
from engine.formats.bullmq.store import BullmqStore
from engine.formats.bullmq.watch import rate_rows
from engine.logs.merged_log import Mentions
from engine.model import Missing, Problem, Task
from engine.monitor.latency import KindFigures
from engine.places.place import Place
from engine.store import Unavailable
from tests.bullmq_jobs import (
    CREATED_MS,
    NOW,
    write_at,
    write_failed,
    write_schedule,
    write_waiting,
)
from tests.console_operator import an_operator
from tests.engine.formats.bullmq.conftest import Run
from tests.node_packages import NodeProgram
from tests.redis_server import TestServer, running_server
from tests.store_contents import found
from tui.task.task_lines import LogFindings, TaskDetails, timeline_lines
from tui.terminal import key_queue
from tui.text import glyphs, keys
from tui.text.table import short_names


def now_ms() -> int:
    """The time in milliseconds."""
    return round(time.time() * 1000)


def at_overview(place: Place, **options: Any) -> AbstractAsyncContextManager[Any]:
    """An operator at the overview of a place."""
    return an_operator(place, size=(120, 40), first=keys.OVERVIEW, **options)


def set_version(client: Redis, *queues: str) -> None:
    """Let queues exist, of BullMQ 5."""
    for queue in queues:
        client.hset(f"bull:{queue}:meta", "version", "bullmq:5.81.5")


async def test_counts_are_exact_while_the_first_scan_runs(
    client: Redis, console_place: Place, monkeypatch: MonkeyPatch
) -> None:
    """Tabs, table, header and the alert of dead tasks have the server's own counts, without a +,
    while no more than a part of the jobs was read; they follow changes."""
    with client.pipeline() as many:
        for number in range(700):
            write_failed(many, f"f{number}")
            write_waiting(many, f"w{number}")
        many.execute()
    going, scan_all = threading.Semaphore(0), BullmqStore.scan

    def slowly(store: BullmqStore, touched: Any = None) -> Iterator[Task | Missing | Problem]:
        for number, item in enumerate(scan_all(store, touched)):
            if touched is None and number > 120:
                going.acquire()
            yield item

    monkeypatch.setattr(BullmqStore, "scan", slowly)
    async with at_overview(console_place, early=True) as operator:
        (live,) = operator.console.sessions
        await operator.sees("failed 700", "700 dead (limit")
        latest = live.inspector.latest
        assert (latest.is_complete, latest.is_counted, latest.indexed < 700) == (False, True, True)
        assert "700+" not in operator.text
        write_failed(client, "more")
        await operator.sees("failed 701", "701 dead (limit")
        await operator.press("2")
        await operator.sees("waiting 700", "failed 701", "noeviction")
        assert not live.inspector.latest.is_complete
        going.release(10_000)
        await operator.until(lambda: live.inspector.latest.is_complete)
        await operator.sees("waiting 700", "failed 701")


def test_a_wrong_prefix_or_database_is_named(
    client: Redis, redis_server: TestServer, redis_url: str, run: Run
) -> None:
    """Without a queue at its address a place needs attention: other prefixes with queues of BullMQ
    are named, not those of other programs, else the databases that have keys."""
    client.flushall()  # other tests leave keys in other databases
    client.hset("app:mails:meta", "version", "bullmq:5.81.5")
    client.hset("my:jobs:sums:meta", "opts.maxLenEvents", 10000)
    client.hset("user:7:meta", "colour", "red")
    words = "no queue with prefix bull; this database has queues with prefix app, my:jobs"
    assert f"attention {words}\n" in run("status", redis_url, code=1)
    output = run("doctor", redis_url, code=1)
    assert words in output and "?prefix=app" in output
    assert "no queue" not in run("status", redis_server.place(prefix="my:jobs"), code=1)

    empty = redis_server.place(9)
    words = "no queue with prefix bull in database 9; keys are in database 0"
    assert f"attention {words}\n" in run("status", empty, code=1)
    assert words in run("doctor", empty, code=1)


def test_queues_that_are_not_shown_are_named(
    client: Redis, redis_url: str, redis_server: TestServer, run: Run
) -> None:
    """One of Bull, and queues with a colon in their names: their keys are no problems."""
    write_waiting(client, "1", "sales")
    client.set("bull:classic:id", 2)
    for ident in "12":
        client.hset(f"bull:classic:{ident}", mapping={"name": "n", "timestamp": 5})
        client.zadd("bull:classic:failed", {ident: 5})
    write_waiting(client, "1", "sales:cancel", timestamp=now_ms())
    output = run("status", redis_url, code=1)
    assert "queues of Bull, not BullMQ, are not shown: classic (2 jobs)" in output
    assert "queues with a colon in their names are not shown: prefix bull:sales" in output
    assert "problem" not in output and "waiting 1" in output
    doctor = run("doctor", redis_url, code=1)
    assert "?prefix=bull:sales" in doctor and "in no list" not in doctor
    assert "waiting 1" in run("status", redis_server.place(prefix="bull:sales"), code=1)


async def test_new_queues_and_an_emptied_server_are_seen_soon(
    client: Redis, console_place: Place, monkeypatch: MonkeyPatch
) -> None:
    """Without a full scan being asked for; no alert stays once all keys are deleted."""
    write_failed(client, "f1", "one")
    monkeypatch.setattr(scan, "FIND_SECONDS", scan.FIND_SECONDS / 5)
    async with at_overview(console_place) as operator:
        await operator.sees("failed 1")
        for number in range(20):
            write_failed(client, f"f{number}", "two")
            write_waiting(client, f"w{number}", "two")
        await operator.sees("failed 21", "21 dead", "jobs wait without a worker: two")
        client.flushdb()
        await operator.sees("no queue with prefix bull")
        await operator.until(lambda: "without a worker" not in operator.text)
        await operator.until(lambda: "failed 21" not in operator.text)
        write_waiting(client, "w1", "three")
        await operator.sees("jobs wait without a worker: three")


def test_jobs_that_wait_in_vain_are_named(client: Redis, redis_url: str, run: Run) -> None:
    """Without a worker: a delayed job that is due, not one of later or a marker of BullMQ 4. Active
    jobs without a lock, and a parent whose children have all failed, not one with another child."""
    now, hour = now_ms(), 3_600_000
    set_version(client, "old", "late", "stopped", "flow")
    for queue, delay, due in (("old", hour, now + hour), ("late", 1000, now - 60_000)):
        write_at(client, "delayed", "1", queue, due * 4096, delay=delay, timestamp=now)
    client.lpush("bull:old:wait", f"0:{now + hour}")
    for ident in "123":
        write_at(client, "active", ident, "stopped", processedOn=now, timestamp=now)
    client.set("bull:stopped:3:lock", "x")
    for parent, children in (("p1", ("c1", "c2")), ("p2", ("c3", "c4"))):
        write_at(client, "waiting-children", parent, "flow", now, timestamp=now)
        client.sadd(f"bull:flow:{parent}:dependencies", *(f"bull:flow:{c}" for c in children))
    for child in ("c1", "c2", "c3"):
        write_failed(client, child, "flow", parentKey="bull:flow:p1", timestamp=now)
    write_waiting(client, "c4", "flow", timestamp=now)
    for command in ("status", "doctor"):
        output = run(command, redis_url, code=1)
        assert "jobs wait without a worker: flow, late\n" in output
        assert "active jobs that no worker has locked: stopped 2\n" in output
        assert "parents wait for children that have all failed: flow 1\n" in output


def test_a_replica_without_its_primary_is_named(run: Run) -> None:
    """What it shows is old or nothing: that needs attention."""
    with running_server("--replicaof", "127.0.0.1 1") as server:
        output = run("status", server.place(), code=1)
        assert "this replica has no connection to its primary: what it shows is old" in output


def test_absurd_times_are_unknown(client: Redis, redis_url: str, run: Run) -> None:
    """Times before 2000, after 2100 or in another unit make no age, no alert and no date."""
    now = now_ms()
    client.config_set("appendonly", "yes")
    for number, stamp in enumerate((-1, "1e300", now * 1000, now // 1000, "x")):
        write_failed(client, f"f{number}", timestamp=stamp, finishedOn=stamp)
        write_waiting(client, f"w{number}", timestamp=stamp)
        if number in (1, 2):
            score = 1e300 if number == 1 else now * 4096.0 * 1000
            write_at(client, "delayed", f"d{number}", score=score, timestamp=stamp)
    output = run("status", redis_url, code=1)
    client.config_set("appendonly", "no")
    for word in ("nothing has run", "epoch", "20784d"):
        assert word not in output
    lines = [json.loads(line) for line in run("queue", "list", redis_url, "--json").splitlines()]
    assert len(lines) == 12
    assert {(line["created"], line["created_at"]) for line in lines} == {(None, None)}
    assert {line["due_at"] for line in lines if line["id"].startswith("mails/d")} == {None}
    assert not any("dead_since" in line for line in lines)


def kinds_of(run: Run, url: str) -> dict[str, dict[str, object]]:
    """The rows of `kinds`, by queue."""
    return {row["kind"]: row for row in json.loads(run("kinds", url, "--json"))["kinds"]}


def test_runs_of_any_worker_are_measured(client: Redis, redis_url: str, run: Run) -> None:
    """Rates, failures, waits and runs by the finished jobs of ten minutes; of jobs that are all
    younger by that time. Unknown with the reason, not 0, where completed jobs are not kept."""
    now = now_ms()
    set_version(client, "gone", "mails", "young")
    for queue, age in (("mails", 3_600_000), ("young", 120_000)):
        for number in range(1, 21):
            ended = now - (age if number == 1 else 100_000 - number * 1000)
            began = ended - number * 100
            fields: dict[str, Any] = {"failedReason": "no"} if number % 5 == 0 else {}
            fields |= {"processedOn": began, "finishedOn": ended, "timestamp": began - 5000}
            end = "completed" if number % 5 else "failed"
            write_at(client, end, f"j{number}", queue, ended, delay=2000, atm=1, **fields)
    write_waiting(client, "1", "gone", timestamp=now)
    write_failed(client, "2", "gone", timestamp=now, finishedOn=now)
    kinds = kinds_of(run, redis_url)
    mails, young, gone = kinds["mails"], kinds["young"], kinds["gone"]
    assert (mails["per_minute"], mails["failures_share"]) == (1.9, 0.211)
    assert young["per_minute"] == pytest.approx(10.0, rel=0.1)
    assert (mails["run_p50"], mails["run_p95"]) == (1.1, 2.0)
    assert (mails["wait_p50"], mails["wait_p95"]) == (3.0, 3.0)
    assert mails["source"] == "jobs"
    assert (gone["per_minute"], gone["failures_share"]) == (None, None)
    assert gone["unknown"] == "no completed job is kept, and no metrics of BullMQ"


@pytest.mark.parametrize("program", ["5.81.5"], indirect=True)
def test_metrics_of_node_workers_are_read(
    program: NodeProgram, client: Redis, redis_url: str, run: Run
) -> None:
    """A queue whose jobs are removed when they are done has the rate of BullMQ's own metrics."""
    program("add", "mails", [[{}, {"removeOnComplete": True, "removeOnFail": True}]] * 30)
    program("work", "mails", "ok", 0, 20_000, {"metrics": {"maxDataPoints": 60}})
    assert client.zcard("bull:mails:completed") == 0
    mails = kinds_of(run, redis_url)["mails"]
    assert mails["source"] == "metrics"
    assert mails["per_minute"] == pytest.approx(30, rel=0.5)
    assert mails["failures_share"] == 0


def test_metrics_of_an_idle_queue_count_what_the_window_has(
    client: Redis, redis_url: str, run: Run
) -> None:
    """The newest point is three minutes old: of the ten minutes only the later ones are idle."""
    set_version(client, "mails")
    write_waiting(client, "1", "mails", timestamp=now_ms())
    newest = (now_ms() // 60_000 - 3) * 60_000
    key = "bull:mails:metrics:completed"
    client.hset(key, mapping={"count": 90, "prevTS": newest, "prevCount": 80})
    client.rpush(f"{key}:data", 5, *[10] * 20)
    mails = kinds_of(run, redis_url)["mails"]
    assert (mails["source"], mails["per_minute"]) == ("metrics", pytest.approx(6.5, rel=0.15))


def test_an_accepted_warning_needs_no_attention(
    client: Redis, redis_url: str, run: Run, tmp_path: Path
) -> None:
    """It stays visible, and both commands end with 0; others of its kind are not accepted."""
    set_version(client, "mails")
    config = tmp_path / "accepted.yaml"

    def accept(**more: str) -> None:
        known = {"kind": "a warning of the queue", "text": "appendonly is off", **more}
        config.write_text(json.dumps({"alerts": {"accepted": [known]}}))

    def status(code: int) -> str:
        return run("--config", str(config), "status", redis_url, code=code)

    accept(place=redis_url)
    text = "appendonly is off: a crash of the server loses the last changes"
    output = status(0)
    assert f"accepted  {text}\n" in output and "OK        nothing needs attention" in output
    row = json.loads(run("--config", str(config), "status", redis_url, "--json"))
    assert (row["attention"], row["accepted"]) == ([], [text])
    assert "accepted: appendonly is off" in run("--config", str(config), "overview", redis_url)
    write_waiting(client, "1", timestamp=now_ms())
    assert "attention jobs wait without a worker: mails" in status(1)
    client.delete("bull:mails:wait", "bull:mails:1")
    accept(place="redis://elsewhere/0")
    assert f"attention {text}" in status(1)


def test_accepted_alerts_are_checked(run: Run, tmp_path: Path) -> None:
    """An unknown kind, a critical one, a missing kind and an unknown key are each named."""
    config = tmp_path / "accepted.yaml"
    for item, words in (
        ({"kind": "dead task"}, "not 'dead task'"),
        ({"kind": "nothing runs"}, "not 'nothing runs'"),
        ({"place": "/x"}, "alerts.accepted.0: "),
        ({"kind": "dead tasks", "why": "x"}, "alerts.accepted.0"),
    ):
        config.write_text(json.dumps({"alerts": {"accepted": [item]}}))
        output = run("--config", str(config), "status", str(tmp_path), code=78)
        assert words in output and output.count("\n") == 1


async def test_each_queue_has_a_line_in_the_overview(client: Redis, console_place: Place) -> None:
    """With counts, oldest job and rate of its finished jobs; Enter opens its tasks."""
    now = now_ms()
    for number in range(3):
        write_waiting(client, f"w{number}", "mails", timestamp=CREATED_MS - 3_600_000)
        write_failed(client, f"f{number}", "sums")
    for number in range(60):
        ended = now - 590_000 if number == 0 else now - 1000
        times: Any = {"finishedOn": ended, "processedOn": ended - 5}
        write_at(client, "completed", f"d{number}", score=ended, **times)
    async with at_overview(console_place) as operator:
        await operator.until(lambda: operator.cells("mails")[:3] == ["3", "0", "0"])
        assert operator.cells("sums")[:3] == ["0", "0", "3"]
        await operator.until(lambda: operator.cells("mails")[3:5] == ["3h08m", "0.10"])
        assert operator.cells("sums")[3:5] == ["-", "?"]  # no completed job is kept
        await operator.press("tab")
        await operator.until(lambda: operator.console.screen.focused is not None)
        while "kind=sums" not in operator.text:
            await operator.press("down", "enter")
        await operator.sees("kind=sums", "failed 3")


def test_groups_by_queue_can_all_be_listed(client: Redis, redis_url: str, run: Run) -> None:
    """`--by queue` groups by queue; the largest 200 are listed, and with `--all` the others too."""
    with client.pipeline() as many:
        for number in range(203):
            write_waiting(many, "1", f"q{number:03}")
        many.execute()
    output = run("groups", redis_url, "--by", "queue")
    assert "QUEUE" in output.splitlines()[0]
    assert "(3 others, 3 tasks): groups --all lists them" in output
    assert "203 tasks by queue, 203 groups" in output
    whole = run("groups", redis_url, "--by", "queue", "--all")
    assert "others" not in whole and all(f"q{number:03}" in whole for number in range(203))


def test_places_on_servers_are_named_by_the_server() -> None:
    """Not by the number of the database, which is there if it is not 0."""
    places = ["redis://ann@db.example:6380/0", "redis://db2/3", "/var/spool/mail"]
    assert short_names(places) == ["db.example:6380", "db2/3", "mail"]
    assert short_names(["redis://h/0?prefix=a", "redis://h/0"]) == ["h?prefix=a", "h"]


PYTHON_TRACE = 'Traceback (most recent call last):\n  File "h.py", line 1\nValueError: no such user'


def test_a_timeline_has_the_attempts_before_the_last(client: Redis, store: BullmqStore) -> None:
    """Each with its error if the job has the traces of all; their times are in no key."""
    whole = ["Error: old round", "Error: relay busy\n    at a.js:1", PYTHON_TRACE, "Error: last"]
    lines = [
        "? attempt 1 failed, time not recorded: Error: relay busy",
        "? attempt 2 failed, time not recorded: ValueError: no such user",
    ]
    unknown = ["? attempts 1 to 2 ended, time not recorded"]
    rows = (json.dumps(whole), lines), (json.dumps(["Error: last"]), unknown), ("", unknown)
    for number, (traces, expected) in enumerate(rows):
        write_failed(client, f"{number}", **({"stacktrace": traces} if traces else {}))
        task = found(store, f"mails/{number}")
        details = TaskDetails(
            task,
            store.states,
            max_runs=3,
            findings=LogFindings(Mentions()),
            parts=tuple(store.parts(task)),
        )
        texts = ["".join(text for text, _ in line) for line in timeline_lines(details, NOW, 100)]
        created, *middle, died = [" ".join(line.replace(glyphs.MARK, "").split()) for line in texts]
        assert created.endswith("created")
        assert middle == expected
        assert died.endswith("failed, given up, attempt 3")


async def test_a_flow_is_a_tree(client: Redis, console_place: Place) -> None:
    """The screen of a parent has its children, and below each its own, further to the right."""
    for parent, child in (("p", "c"), ("c", "d"), ("p", "e")):
        write_waiting(client, child, parentKey=f"bull:mails:{parent}")
        client.sadd(f"bull:mails:{parent}:dependencies", f"bull:mails:{child}")
    write_failed(client, "p", finishedOn=CREATED_MS + 5000)
    with closing(console_place.open()) as store:
        family = store.relatives(found(store, "mails/p"), 100)
    depths = [(one.id, one.depth) for one in family.children]
    assert (depths, family.total) == ([("mails/c", 1), ("mails/d", 2), ("mails/e", 1)], 2)
    async with at_overview(console_place) as operator:
        await operator.press("4")
        await operator.sees("mails/p")
        await operator.press("enter")
        await operator.sees("child mails/c", "child mails/d", "failed, given up, attempt 3")
        lines = [line for line in operator.rows.splitlines() if "child" in line]
        assert [line.index("child") for line in lines] == [2, 4, 2]


async def test_an_act_on_a_schedule_whose_answer_was_lost_is_unknown(
    client: Redis, console_place: Place, monkeypatch: MonkeyPatch
) -> None:
    """It is not reported as not done, the journal shows it as unknown, and its undo finds out."""
    write_schedule(client, due=now_ms() + 3_600_000)
    client.set("bull:sums:repeat", "x")
    client.hset("bull:sums:meta", "version", "bullmq:6.7.0")
    monkeypatch.setattr(key_queue, "CONFIRM_SECONDS", 0.0)
    write = ScheduleActs._write

    def write_and_lose(self: ScheduleActs, *words: Any) -> bool:
        write(self, *words)
        raise Unavailable("the connection was cut")

    async with at_overview(console_place) as operator:
        await operator.step("9s", "mails/tick", "another type than BullMQ expects")
        with monkeypatch.context() as patch:
            patch.setattr(ScheduleActs, "_write", write_and_lose)
            await operator.step("X", "the schedule and the job of its next run are removed")
            await operator.step("y", "not known whether it was done", "Schedules 0")
        assert "not done" not in operator.rows
        await operator.step("u", "UNKNOWN")
        await operator.step("u", "the schedule is put back")
        await operator.step("y", "UNDONE")
        assert client.zcard("bull:mails:delayed") == 1


async def test_a_schedule_is_changed_on_screen(
    client: Redis, console_place: Place, monkeypatch: MonkeyPatch
) -> None:
    """What changes is typed in one line, which is checked; the plan shows the former and the new
    rule. Each key opens a plan, and the undo is that of the operation."""
    write_schedule(client, due=now_ms() + 3_600_000, limit=4)
    monkeypatch.setattr(key_queue, "CONFIRM_SECONDS", 0.0)
    async with at_overview(console_place) as operator:
        await operator.step("9", "schedules")
        await operator.step("s", "mails/tick", "scheduler 6.7.0")
        await operator.step("X", "the schedule and the job of its next run are removed")
        await operator.step("y", "Schedules 0")
        assert client.keys("bull:mails:repeat*") == []
        await operator.step("u", "schedule mails/tick remove")
        await operator.step("u", "the schedule is put back")
        await operator.step("y", "UNDONE")
        assert client.zcard("bull:mails:delayed") == 1
        await operator.step("9s", "mails/tick", "every 1h")
        await operator.step("E", "NAME=VALUE")
        await operator.press("ctrl+u")
        await operator.types("odd=1")
        await operator.step("enter", "expected NAME=VALUE, NAME one of pattern")
        await operator.press("ctrl+u")
        await operator.types("pattern=0 9,21 * * *, tz=Asia/Tokyo")
        await operator.step("enter", "new rule 0 9,21 * * * Asia/Tokyo")
        await operator.step("y", "Schedules 1", "rule 0 9,21 * * *", "zone Asia/Tokyo")
        assert client.hget("bull:mails:repeat:tick", "pattern") == "0 9,21 * * *"
        await operator.step("O", "one job tick is added, with 7 bytes of data")
        await operator.step("y", "one job is added")
        assert client.llen("bull:mails:wait") == 1


def test_rates_of_queues_name_their_time() -> None:
    """They differ from the rates of the last minute beside them."""
    kinds = [KindFigures("mails", per_minute=141.0), KindFigures("new")]
    assert rate_rows(kinds)[0][0] == "rates 10m"
    assert rate_rows(kinds)[0][1].startswith("mails 141/min, new ?")
