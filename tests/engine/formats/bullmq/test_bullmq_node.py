"""Our worker and console beside BullMQ on Node, versions 5 and 6: each runs the other's jobs."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from engine import verbs
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.place import BullmqSettings
from engine.formats.bullmq.row import own_retry_policy
from engine.formats.bullmq.store import BullmqStore
from engine.model import State, attempts_allowed
from engine.store import Gone
from tests.bullmq_workers import StartWorker, runs, until
from tests.engine.formats.bullmq.conftest import Opener
from tests.node_packages import install
from tests.redis_server import TestServer
from tests.store_contents import found

pytestmark = pytest.mark.deep

CLOCK = time.time
SCRIPT = Path(__file__).with_name("node_bullmq.cjs")


class Node:
    """BullMQ of one version on a server."""

    def __init__(self, modules: Path, socket: str, tmp_path: Path) -> None:
        self._socket, self._folder = socket, tmp_path
        self._environment = {**os.environ, "NODE_PATH": str(modules), "NODE_NO_WARNINGS": "1"}
        self.started: list[subprocess.Popen[str]] = []

    def _words(self, what: str, arguments: object) -> list[str]:
        return ["node", str(SCRIPT), what, self._socket, json.dumps(arguments)]

    def call(self, what: str, arguments: object = None) -> Any:
        """Do something and return its answer."""
        options: Any = {"env": self._environment, "capture_output": True, "text": True}
        ran = subprocess.run(self._words(what, arguments or {}), timeout=60, **options)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout.splitlines()[-1])

    def work(self, how: str = "ok") -> "subprocess.Popen[str]":
        """Start a worker; it writes the ids of its jobs to the file `ran`."""
        options = {"how": how, "ran": str(self._folder / "ran")}
        process = subprocess.Popen(
            self._words("work", options), env=self._environment, stdout=subprocess.PIPE, text=True
        )
        self.started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process


@pytest.fixture(params=["6", "5"])
def node(
    request: pytest.FixtureRequest, redis_server: TestServer, redis_url: str, tmp_path: Path
) -> Iterator[Node]:
    """BullMQ on Node; its workers are ended by their PID."""
    node = Node(install(request.param), redis_server.socket, tmp_path)
    yield node
    for process in node.started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def kill(process: "subprocess.Popen[str]") -> None:
    """End a process by SIGKILL."""
    process.send_signal(signal.SIGKILL)
    process.wait()


def completed(client: Redis, number: int) -> Callable[[], bool]:
    """True when so many jobs are completed."""
    return lambda: int(client.zcard("bull:mails:completed")) == number


JOBS: list[tuple[str, object, dict[str, object]]] = [
    ("plain", {"to": "Zoë"}, {}),
    ("early", {}, {"priority": 2}),
    ("later", {}, {"delay": 200}),
    ("named", {}, {"jobId": "own-id"}),
    ("json", {}, {}),
    ("text", {}, {}),
    ("bad", {}, {"attempts": 3, "backoff": {"type": "exponential", "delay": 20}}),
    ("fatal", {}, {"attempts": 5}),
]


def test_our_worker_runs_the_jobs_of_node(
    node: Node, client: Redis, redis_url: str, start: StartWorker, tmp_path: Path
) -> None:
    """Node sees states, attempts, logs and our worker as its own; the handler gets the data. A
    program's JSON is the return value, other output is text; an exit status that means no such user
    fails the job after one attempt, with the output as its stack trace."""
    ids = node.call("add", JOBS)
    ends = "json) echo [1];; text) echo sent;; bad) exit 1;; fatal) echo gone; exit 67;;"
    shell = f"echo $TASK_ID >>{tmp_path}/ran; cat >>{tmp_path}/data; "
    start(redis_url, f"{shell}case $TASK_DESCRIPTION in {ends} esac")
    until(lambda: completed(client, 6)() and client.zcard("bull:mails:failed") == 2)
    report = node.call("report", {"ids": ids})
    plain, *_, as_json, text, bad, fatal = (report["jobs"][ident] for ident in ids)
    assert [job["state"] for job in report["jobs"].values()].count("completed") == 6
    assert (plain["attemptsMade"], len(plain["logs"])) == (1, 1)
    assert (bad["state"], bad["attemptsMade"], len(bad["logs"])) == ("failed", 3, 3)
    assert bad["failedReason"] == "exit status 1"
    assert (as_json["returnvalue"], text["returnvalue"]) == ([1], "sent")
    assert (fatal["attemptsMade"], fatal["failedReason"]) == (1, "gone")
    assert fatal["stacktrace"] == ["Fatal: gone"]
    (name,) = {each for each in report["workers"] if ":w:" in each}
    assert name.endswith(f":w:{plain['processedBy']}")
    assert '{"to":"Zoë"}' in (tmp_path / "data").read_text()
    assert sorted(runs(tmp_path).values()) == [1, 1, 1, 1, 1, 1, 1, 3]


def test_node_runs_our_jobs(node: Node, client: Redis, store: BullmqStore, tmp_path: Path) -> None:
    """It gets data and options, and its outcomes are those that our store scans."""
    options = {"attempts": 2, "backoff": {"type": "fixed", "delay": 10}}
    store.add_job(NewJob("mails", "plain", '{"to": "Zoë"}', options))
    store.add_job(NewJob("mails", "later", delay=0.2, priority=3))
    store.add_job(NewJob("mails", "named", id="own-id"))
    node.work()
    until(completed(client, 3))
    jobs = node.call("report", {"ids": ["1", "own-id"]})["jobs"]
    assert (jobs["1"]["state"], jobs["1"]["data"]) == ("completed", {"to": "Zoë"})
    assert jobs["1"]["opts"]["backoff"] == {"type": "fixed", "delay": 10}
    task = found(store, "mails/own-id")
    assert (task.state, task.attempts) == (State.DONE, 1)


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "Node's"])
def test_the_job_of_a_killed_worker_is_run_by_the_other(
    node: Node, client: Redis, redis_url: str, start: StartWorker, tmp_path: Path, *, is_ours: bool
) -> None:
    """Once its lock has ended, by kill -9 of either worker."""
    node.call("add", [("plain", {}, {})])
    note = f"echo $TASK_ID >>{tmp_path}/ran"
    first = start(redis_url, f"{note}; sleep 600") if is_ours else node.work("hang")
    until(lambda: runs(tmp_path))
    kill(first)
    if is_ours:
        node.work()
    else:
        start(redis_url, note)
    until(completed(client, 1))
    assert runs(tmp_path).total() == 2


def test_both_share_a_queue(
    node: Node, client: Redis, redis_url: str, start: StartWorker, tmp_path: Path
) -> None:
    """200 jobs on a worker of each: each job runs once, and both run some."""
    start(redis_url, f"echo $TASK_ID >>{tmp_path}/ran")
    node.work()
    for _ in range(4):
        node.call("add", [("plain", {}, {})] * 50)
    until(completed(client, 200))
    assert set(runs(tmp_path).values()) == {1}
    assert len({client.hget(f"bull:mails:{number}", "pb") for number in range(1, 201)}) == 2


def test_a_pause_by_node_is_obeyed(
    node: Node, client: Redis, redis_url: str, start: StartWorker, tmp_path: Path
) -> None:
    """Our worker takes nothing from a paused queue, and goes on when Node resumes it."""
    node.call("pause")
    node.call("add", [("plain", {}, {})])
    start(redis_url, f"echo $TASK_ID >>{tmp_path}/ran")
    until(lambda: any(":w:" in str(each["name"]) for each in client.client_list()))
    assert not runs(tmp_path)
    node.call("resume")
    until(completed(client, 1))


def test_the_options_of_node_are_shown(node: Node, client: Redis, store: BullmqStore) -> None:
    """Of two jobs with one id or deduplication id the first is taken, of either program."""
    retries = {"attempts": 5, "backoff": {"type": "exponential", "delay": 5000}}
    once = {"deduplication": {"id": "once"}}
    jobs: list[object] = [
        ("plain", {}, {**retries, "removeOnComplete": {"age": 3600}}),
        ("later", {}, {"delay": 60_000}),
        ("early", {}, {"priority": 3}),
        ("named", {}, {"jobId": "own-id"}),
        ("single", {}, once),
    ]
    plain, later, early, named, single = node.call("add", jobs)
    again = node.call("add", [("named", {}, {"jobId": "own-id"}), ("single", {}, once)])
    assert again == [named, single]
    with pytest.raises(Gone):
        store.add_job(NewJob("mails", "named", id="own-id"))
    words = {"delayed": 1, "prioritized": 1}
    assert store.sample(9).words == dict.fromkeys(store.words, 0) | words
    assert store.count_tasks()[State.PENDING] == 5
    task = found(store, f"mails/{plain}")
    policy = own_retry_policy(task)
    assert attempts_allowed(task, None) == 5
    assert policy is not None and [policy.schedule.wait(n) for n in (0, 1, 2)] == [5, 10, 20]
    due = found(store, f"mails/{later}")
    assert due.due == pytest.approx(due.created + 60)
    assert found(store, f"mails/{early}").priority == 3


def test_the_events_of_node_name_their_jobs(node: Node, client: Redis, store: BullmqStore) -> None:
    """An added, completed, failed and removed job is named to the console without a scan."""
    node.call("add", [("first", {}, {})])
    assert store.changes.wait is not None
    wait = store.changes.wait

    def until_named(job: str, state: State) -> None:
        until(lambda: job in (wait(0.1) or ()))
        until(lambda: found(store, job).state is state)

    wait(0.0)
    (added,) = node.call("add", [("second", {}, {})])
    until_named(f"mails/{added}", State.PENDING)
    worker = node.work()
    until_named(f"mails/{added}", State.DONE)
    kill(worker)
    node.work("unrecoverable")
    (broken,) = node.call("add", [("bad", {}, {"attempts": 9})])
    until_named(f"mails/{broken}", State.DEAD)
    task = found(store, f"mails/{broken}")
    assert (task.error, task.attempts) == ("never", 1)


def test_our_worker_runs_a_flow_of_node(
    node: Node, client: Redis, redis_url: str, start: StartWorker
) -> None:
    """Children first; their parent gets the values that our worker returned for them."""
    parent = node.call("flow", [1, 2])
    start(redis_url, "cat")
    until(completed(client, 3))
    job = node.call("report", {"ids": [parent]})["jobs"][parent]
    ended = (job["state"], sorted(job["children"]), job["returnvalue"])
    assert ended == ("completed", [1, 2], "all")


def test_an_edit_by_node_does_not_end_a_running_job(
    node: Node, client: Redis, redis_url: str, start: StartWorker, tmp_path: Path
) -> None:
    """Our worker's claim is renewed, and the job is completed once."""
    (ident,) = node.call("add", [("plain", {}, {})])
    go_on = tmp_path / "go"
    start(redis_url, f"echo $TASK_ID >>{tmp_path}/ran; until test -e {go_on}; do sleep 0.1; done")
    until(lambda: runs(tmp_path))
    node.call("edit", {"id": ident, "data": {"new": 1}, "priority": 3})
    token = client.get(f"bull:mails:{ident}:lock")
    until(lambda: client.get(f"bull:mails:{ident}:lock") != token)
    go_on.touch()
    until(completed(client, 1))
    job = node.call("report", {"ids": [ident]})["jobs"][ident]
    assert (job["state"], job["data"], job["attemptsMade"]) == ("completed", {"new": 1}, 1)
    assert runs(tmp_path).total() == 1


def test_node_reads_the_numbers_of_our_worker(node: Node, open_bullmq: Opener) -> None:
    """Queue.getMetrics counts what our worker has finished, if the place says so."""
    node.call("add", [("plain", {}, {})] * 3)
    worker = open_bullmq(time.time, settings=BullmqSettings(metrics=60))
    for task in list(worker.take(time.time(), "me", 3)):
        worker.swap(task, verbs.complete(task, State.DONE))
    assert node.call("metrics", {"state": "completed"}) == 3
