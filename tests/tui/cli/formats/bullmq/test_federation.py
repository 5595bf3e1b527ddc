"""`federation work` as a process, on the two queues of a server, from the job to the peer."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from pytest import MonkeyPatch
from redis import Redis

from engine.config.place_address import parse_address
from engine.destinations.destination import Destination
from engine.formats.bullmq.federation.jobs import (
    DELIVERY_QUEUE,
    HEALTH_QUEUE,
    PATHS,
    POST,
    delivery_job,
    probe_id,
    probe_job,
)
from engine.formats.bullmq.federation.keys import write_keys
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from tests import command, federation_peers
from tests.bullmq_workers import until
from tests.federation_peers import Fault, Peer
from tests.federation_sender import Sender, post
from tests.node_packages import install
from tests.redis_server import TestServer

CONFIG = """
destinations: sqlite://{database}
outbox: {{table: delivery_jobs, field: deliveryJobId, attempts: attempts,
    last_attempt: last_attempted_at}}
stores:
  bullmq: {{lease: 1, stalled_check: 0.5}}
federation:
  origin: {origin}
  keys: {folder}/keys
  allow: [127.0.0.0/8]
  follows: follows
  profile: {profile}
  probes: {probes}
  breaker: {breaker}
"""
QUICK = {"attempts": 5, "backoff": {"type": "exponential", "delay": 20}}
"""The options of the queue with a second of 4 ms."""


class Site:
    """Our server with its queues; commands run as processes."""

    def __init__(self, sender: Sender, url: str, client: Redis, folder: Path) -> None:
        self.sender, self.url, self.client, self.folder = sender, url, client, folder
        self.config = str(folder / "config.yaml")
        self.started: list[command.Popen[str]] = []
        write_keys(str(folder / "keys"), sender.home.keys)
        self.configure()

    def configure(self, **settings: str) -> None:
        """Write the configuration."""
        values = {"profile": "default", "probes": "linear 100ms +200ms limit 5", "breaker": "false"}
        values |= {"database": self.sender.database.text.removeprefix("sqlite://")}
        values |= {"origin": self.sender.home.url, "folder": str(self.folder), **settings}
        Path(self.config).write_text(CONFIG.format(**values))

    def work(self, *options: str) -> "command.Popen[str]":
        """Start a worker."""
        words = ["--config", self.config, "federation", "work", *options, self.url]
        with (self.folder / "log").open("a") as log:
            process = command.Popen(words, stdout=log, stderr=log, text=True)
        self.started.append(process)
        return process

    def run(self, *words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        ran = command.run_text("--config", self.config, *words)
        assert ran.returncode == code, ran.stderr
        return ran

    def open(self) -> "closing[BullmqStore]":
        """Open the queues."""
        return closing(BullmqStore(parse_place(parse_address(self.url))))

    def add(
        self, server: str, row: str = "row", payload: str | None = None, **options: object
    ) -> str:
        """Add a delivery, of a post without a payload; return the id of its job."""
        self.sender.add_row(row)
        target = f"{server}{PATHS[POST]}"
        job = delivery_job(POST, server, target, payload or json.dumps(post(row)), row)
        fields = job._replace(options=QUICK | options)._asdict()
        with self.open() as store:
            return store.add_job(NewJob(**fields)).id.partition("/")[2]

    def add_probe(self, server: str, number: int, delay: float) -> None:
        """Add the job of a probe."""
        with self.open() as store:
            store.add_job(NewJob(**probe_job(server, number, delay)._asdict()))

    def count(self, state: str, queue: str = DELIVERY_QUEUE) -> int:
        """The number of jobs in a sorted set of a queue."""
        return int(self.client.zcard(f"bull:{queue}:{state}"))

    def field(self, job: str, *names: str) -> list[Any]:
        """Fields of a delivery."""
        values: list[Any] = self.client.hmget(f"bull:{DELIVERY_QUEUE}:{job}", *names)
        return values

    def promote(self, task: str) -> None:
        """Let a job run now, as an operator does."""
        self.run("promote", self.url, "--id", task, "--apply", "1", "--reason", "now")

    def rows(self) -> set[str]:
        """The keys in the outbox."""
        return {key for (key,) in self.sender.sql("SELECT id FROM delivery_jobs")}


@pytest.fixture
def site(
    sender: Sender, client: Redis, redis_url: str, own_state: None, tmp_path: Path
) -> Iterator[Site]:
    """Our server; its workers are ended by their PID."""
    one = Site(sender, redis_url, client, tmp_path)
    yield one
    for process in one.started:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_job_is_delivered_and_its_row_removed(site: Site, peer: Peer) -> None:
    """To an unknown server: discovered, registered, delivered. A worker that starts adds a probe
    whose job was lost; a signal ends it."""
    with Peer() as other:
        later: Any = {"healthy": False, "reason": "REFUSED", "next_probe": site.sender.now + 900}
        site.sender.know(other, "http://ill.test", **later)
    job = site.add(peer.url)
    worker = site.work()
    until(lambda: site.count("completed") == 1 and not site.rows())
    assert site.client.zcard(f"bull:{HEALTH_QUEUE}:delayed") == 1
    assert site.field(job, "atm", "returnvalue") == ["1", '"acknowledged"']
    assert (len(peer.registered), len(peer.received)) == (1, 1)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    assert "1 done, 0 failed" in (site.folder / "log").read_text()


OUTCOMES: Mapping[str, tuple[Sequence[Fault], str, str]] = {
    "503 twice": ([federation_peers.status(503)] * 2, "completed 3 deleted", "completed 3 deleted"),
    "503 again": ([federation_peers.status(503)] * 5, "failed 5 kept", "failed 5 kept"),
    "404": ([federation_peers.status(404)] * 5, "failed 1 kept", "failed 5 kept"),
    "501": ([federation_peers.status(501)] * 5, "failed 1 kept", "failed 5 kept"),
    "503": ([federation_peers.status(503)] * 5, "failed 5 kept", "failed 5 kept"),
    "reset": ([federation_peers.reset] * 5, "failed 5 kept", "failed 5 kept"),
    "conflict": ([federation_peers.applied_then(503)], "completed 2 deleted", "failed 5 kept"),
    "html": ([federation_peers.html], "failed 1 kept", "failed 1 kept"),
    "bare": ([federation_peers.says({"status": "ok"})], "completed 1 deleted", "failed 1 kept"),
    "payload": ([], "failed 1 deleted", "failed 1 deleted"),
    "blocked": ([], "failed 1 deleted", "failed 1 deleted"),
}
"""Faults of a peer; state and attempts of the job, and its row, by default and with `sipher`."""


@pytest.mark.deep
@pytest.mark.parametrize("profile", ["default", "sipher"])
def test_a_worker_ends_each_job_as_the_profile_says(site: Site, profile: str) -> None:
    """State, attempts and row of each failing job; jobs with one error are one cluster."""
    site.configure(profile=profile)
    with ExitStack() as closed:
        jobs = {}
        for case, (script, *_) in OUTCOMES.items():
            one = closed.enter_context(Peer())
            one.script.extend(script)
            site.sender.know(one, blocked="spam" if case == "blocked" else "")
            jobs[case] = site.add(one.url, case, payload="null" if case == "payload" else None)
        site.work()
        until(lambda: site.count("failed") + site.count("completed") == len(jobs))
        column = 2 if profile == "sipher" else 1
        expected = {case: str(outcome[column]) for case, outcome in OUTCOMES.items()}
        gone = {case for case, outcome in expected.items() if outcome.endswith("deleted")}
        until(lambda: site.rows() == set(jobs) - gone)
    by_case = {}
    for case, job in jobs.items():
        (attempts,) = site.field(job, "atm")
        is_done = site.client.zscore(f"bull:{DELIVERY_QUEUE}:completed", job) is not None
        row = "deleted" if case in gone else "kept"
        by_case[case] = f"{'completed' if is_done else 'failed'} {attempts} {row}"
    assert by_case == expected
    clusters = map(json.loads, site.run("clusters", "--json", site.url).stdout.splitlines())
    assert [one["count"] for one in clusters if one["error"].startswith("[HTTP_503")] == [2]


@pytest.mark.deep
def test_node_adds_and_our_worker_delivers(
    site: Site, peer: Peer, redis_server: TestServer
) -> None:
    """BullMQ 5 on Node adds jobs with the options of the queue: good ones arrive, a bad one fails
    after one attempt; the waits of one that is refused are stored as 5, 10, 20 and 40 seconds."""
    socket, modules = redis_server.socket, install("5")
    site.sender.know(peer)
    with Peer() as gone:
        site.sender.know(gone)
    data = [
        json.loads(delivery_job(POST, url, f"{url}{PATHS[POST]}", text, row).data)
        for url, text, row in (
            (peer.url, json.dumps(post("1")), "1"),
            (peer.url, "null", "2"),
            (gone.url, json.dumps(post("3")), "3"),
        )
    ]
    for one in data:
        site.sender.add_row(one["deliveryJobId"])
    script = Path(__file__).with_name("deliver.cjs")
    words = ["node", str(script), socket, json.dumps([[POST, one] for one in data])]
    environment = {**os.environ, "NODE_PATH": str(modules), "NODE_NO_WARNINGS": "1"}
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    _, bad, refused = json.loads(ran.stdout)
    site.work()
    until(lambda: site.count("completed") == 1 and site.count("failed") == 1)
    until(lambda: site.rows() == {"3"})
    assert site.field(bad, "atm", "failedReason")[0] == "1"
    delays = []
    for attempt in range(1, 5):
        until(lambda attempt=attempt: site.field(refused, "atm") == [str(attempt)])  # type: ignore[misc]
        until(lambda: site.count("delayed") == 1)
        delays.append(round(int(site.field(refused, "delay")[0]), -2))
        site.promote(f"{DELIVERY_QUEUE}/{refused}")
    until(lambda: site.count("failed") == 2)
    assert delays == [5000, 10000, 20000, 40000]
    assert site.field(refused, "atm") == ["5"]


@pytest.mark.deep
def test_a_closed_server_is_probed_and_its_jobs_are_sent_again(site: Site, peer: Peer) -> None:
    """However many jobs fail there is one probe; once it passes, one replay delivers all."""
    site.configure(probes='"linear 5m +10m limit 5"')
    site.sender.know(peer)
    peer.close()
    for row in ("a", "b", "c"):
        site.add(peer.url, row, attempts=2)
    site.work()
    until(lambda: site.count("failed") == 3)
    (planned,) = site.client.zrange(f"bull:{HEALTH_QUEUE}:delayed", 0, -1)
    assert planned == probe_id(peer.url, 0)
    delay = site.client.hget(f"bull:{HEALTH_QUEUE}:{planned}", "delay")
    assert round(int(str(delay)), -3) == 300_000
    assert site.rows() == {"a", "b", "c"}
    destination = site.sender.destination(peer.url)
    assert (destination.healthy, destination.reason, destination.probes) == (False, "REFUSED", 0)
    peer.open()
    site.promote(f"{HEALTH_QUEUE}/{planned}")
    until(lambda: site.sender.destination(peer.url).healthy)
    until(lambda: not site.client.exists(f"bull:{HEALTH_QUEUE}:{planned}"))
    pace = ("--rate", "now", "--canary", "none")
    site.run("replay", site.url, *pace, "--apply", "3", "--reason", "it is back")
    until(lambda: site.count("completed") == 3 and not site.rows())
    assert len(peer.applied) == 3


@pytest.mark.deep
def test_deliveries_wait_while_the_breaker_is_open(site: Site, peer: Peer) -> None:
    """With `breaker` a job for an unhealthy server waits for the next probe and uses no attempt."""
    site.configure(breaker="true", probes='"fixed 5m limit 5"')
    site.sender.know(peer)
    peer.close()
    site.add(peer.url, "a", attempts=1)
    site.work()
    until(lambda: site.count("failed") == 1)
    job = site.add(peer.url, "b", attempts=1)
    until(lambda: site.count("delayed") == 1)
    peer.open()
    site.promote(f"{HEALTH_QUEUE}/{probe_id(peer.url, 0)}")
    until(lambda: site.sender.destination(peer.url).healthy)
    assert site.field(job, "atm") == ["0"]
    site.promote(f"{DELIVERY_QUEUE}/{job}")
    until(lambda: site.count("completed") == 1)
    assert (site.field(job, "atm"), peer.posts) == (["1"], 1)


@pytest.mark.parametrize("planned", ["later", "lost", "ended"])
def test_a_probe_now_runs_the_job_of_the_probe(site: Site, peer: Peer, planned: str) -> None:
    """`destinations probe` makes the next probe due now, also a lost one or one too many."""
    number = 5 if planned == "ended" else 2
    due = None if planned == "ended" else site.sender.now + 900
    site.sender.know(peer, healthy=False, reason="REFUSED", probes=number, next_probe=due)
    if planned == "later":
        site.add_probe(peer.url, number, 900.0)
    site.run("destinations", "probe", peer.url, site.url, "--apply", "1")
    waiting = site.client.lrange(f"bull:{HEALTH_QUEUE}:wait", 0, -1)
    assert (waiting, site.count("delayed", HEALTH_QUEUE)) == ([probe_id(peer.url, number)], 0)
    assert site.sender.destination(peer.url).next_probe == pytest.approx(time.time(), abs=60)


def test_servers_of_the_applications_tables_are_destinations(site: Site) -> None:
    """A server that only those tables have is listed with its health, or as blocked."""
    site.sender.sql("CREATE TABLE blacklisted_servers (server_url TEXT, reason TEXT)")
    site.sender.sql(
        "CREATE TABLE server_registry (url TEXT, public_key TEXT, encryption_public_key TEXT,"
        " is_healthy BOOLEAN, health_check_attempts INTEGER, unhealthy_reason TEXT)"
    )
    site.sender.sql("INSERT INTO server_registry VALUES ('http://b.example/','','',0,5,'TIMEOUT')")
    site.sender.sql("INSERT INTO server_registry VALUES ('http://a.example/','','',1,0,NULL)")
    site.sender.sql("INSERT INTO blacklisted_servers VALUES ('http://a.example', 'spam')")
    with Path(site.config).open("a") as config:
        config.write("  blocked: blacklisted_servers\n  servers: server_registry\n")
    answer = json.loads(site.run("destinations", site.url, "--json", code=1).stdout)
    rows = [(one["destination"], one["state"], one["reason"]) for one in answer["destinations"]]
    unhealthy = ("http://b.example", "unhealthy", "TIMEOUT")
    assert rows == [unhealthy, ("http://a.example", "blocked", None)]


def test_enqueue_adds_a_job_with_the_options_of_the_queue(site: Site, peer: Peer) -> None:
    """5 attempts, 5 seconds doubled each time, kept for a day or a week; the payload as given."""
    text = '{ "method":"FEDERATE_POST", "post": {"id": "ü"}}'
    words = ("enqueue", site.url, peer.url, POST, "--payload", text, "--row", "r1")
    ran = site.run("federation", *words)
    assert (ran.stdout, ran.stderr) == (f"{DELIVERY_QUEUE}/1\n", "")
    job = site.client.hgetall(f"bull:{DELIVERY_QUEUE}:1")
    assert (
        json.loads(str(job["opts"])).items()
        >= {
            "attempts": 5,
            "backoff": {"type": "exponential", "delay": 5000},
            "removeOnComplete": {"age": 86400},
            "removeOnFail": {"age": 604800},
        }.items()
    )
    assert json.loads(str(job["data"])) == {
        "deliveryJobId": "r1",
        "targetUrl": f"{peer.url}{federation_peers.POSTS}",
        "serverUrl": peer.url,
        "payload": text,
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["{server}", POST, "--payload", "null"], "expected an object with the text method"),
        (["{server}", POST, "--payload", "{{"], "payload is not JSON"),
        (["ftp://x", POST, "--payload", '{{"method":"INSERT"}}'], "http"),
        (["{server}", "other", "--payload", '{{"method":"INSERT"}}'], "--path: expected /PATH"),
    ],
)
def test_enqueue_refuses_bad_words(site: Site, peer: Peer, words: list[str], expected: str) -> None:
    """A wrong payload or server is refused with exit 64, and nothing is added."""
    named = [word.format(server=peer.url) for word in words]
    assert expected in site.run("federation", "enqueue", site.url, *named, code=64).stderr
    assert site.client.keys() == []


def test_keys_are_made_once_and_only_public_halves_are_printed(site: Site, peer: Peer) -> None:
    """They are printed with the known servers; a forgotten server is discovered again."""
    site.sender.know(peer)
    extra = site.sender.destination(peer.url).extra
    site.sender.registry.swap(None, Destination("http://\x1b]0;x", extra=extra))
    words = ("federation", "keys", site.url)
    first, own = site.run(*words).stdout, site.sender.home.keys.texts()
    assert {name for name, text in own.items() if text in first} == {
        name for name in own if "PRIVATE" not in name
    }
    assert f"{peer.url} " in first and "\x1b" not in first
    assert site.run(*words, "--forget", peer.url).stdout.endswith("forgotten\n")
    assert site.sender.destination(peer.url).extra == {}
    os.rename(site.folder / "keys", site.folder / "old")  # noqa: PTH104
    (site.folder / "keys").mkdir(0o700)
    made = site.run(*words).stdout
    assert own["FEDERATION_PUBLIC_KEY"] not in made and site.run(*words).stdout == made
    assert {path.stat().st_mode & 0o777 for path in (site.folder / "keys").iterdir()} == {0o600}


def test_no_command_shows_a_secret(site: Site, peer: Peer) -> None:
    """Neither output nor log nor Redis has a private key, after any failure."""
    secrets = [text for name, text in site.sender.home.keys.texts().items() if "PRIVATE" in name]
    site.add(peer.url)
    peer.script.append(federation_peers.ack_for_other_key)
    assert site.work("--until-idle").wait(60) == 0
    ran = site.run("federation", "doctor", site.url, code=1)
    texts = [ran.stdout, ran.stderr, json.dumps(site.client.hgetall(f"bull:{DELIVERY_QUEUE}:1"))]
    texts += [path.read_text("utf-8", "replace") for path in site.folder.rglob("*.log")]
    texts.append((site.folder / "log").read_text())
    assert not [secret for secret in secrets for text in texts if secret in text]


def test_doctor_lists_orphans_and_servers(site: Site, peer: Peer) -> None:
    """Rows without a job, jobs whose row is gone, and servers whose probes have ended; exit 1."""
    words = ("enqueue", site.url, peer.url, POST, "--payload", '{"method":"INSERT"}')
    site.run("federation", *words)
    site.add(peer.url, "with row")
    site.add(peer.url, "gone")
    site.sender.sql("DELETE FROM delivery_jobs WHERE id = 'gone'")
    site.sender.add_row("orphan")
    site.sender.know(peer, healthy=False, reason="REFUSED", probes=5)
    (site.folder / "keys" / "federation_private_key").chmod(0o644)
    output = site.run("federation", "doctor", site.url, code=1).stdout
    for line in (
        "1 row of delivery_jobs without a task: orphan",
        f"1 task without a row of delivery_jobs: {DELIVERY_QUEUE}/3",
        f"{peer.url}: unhealthy (REFUSED), 5 probes have failed",
        "others may read it: chmod 600",
    ):
        assert line in output


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("destinations: sqlite:", "needs destinations"),
        ("keys: ", "FEDERATION_PRIVATE_KEY: not set"),
        ("profile: default", "expected one of default, sipher"),
        ("origin: ", "our own origin own.example"),
    ],
)
def test_a_worker_refuses_a_wrong_configuration(
    site: Site, change: str, expected: str, monkeypatch: MonkeyPatch
) -> None:
    """No registry, no keys, another profile, or no URL as our origin: exit 78, with one line."""
    monkeypatch.setenv("BETTER_AUTH_URL", "own.example")
    absent = ("destinations", "outbox", "last_attempt") if "destinations" in change else (change,)
    lines = Path(site.config).read_text().splitlines()
    lines = [line for line in lines if not any(word in line for word in absent)]
    if "profile" in change:
        lines.append("  profile: other")
    Path(site.config).write_text("\n".join(lines))
    assert expected in site.run("federation", "work", site.url, code=78).stderr
