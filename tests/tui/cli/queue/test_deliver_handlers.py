"""`handlers.KIND.deliver` in the workers of both formats, its configuration and its check."""

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
import redis

from engine.config.deliver_config import AllowedPeer, DeliverConfig
from engine.config.queue_config import ConfigError, load_config
from engine.formats.known_formats import setup_for
from engine.model import State
from tests.bullmq_jobs import write_waiting
from tests.http_peers import Peer, answer, peer
from tests.nftban_queues import Run, tasks_at
from tests.redis_server import TestServer
from tests.tables import each
from tui.cli.queue import deliver_handlers
from tui.cli.queue.deliver_handlers import missing_library

Work: TypeAlias = Callable[[bytes], str]
"""Put a request in a queue and run its worker; returns the error of the task, "" if it was done."""

DELIVER = "handlers: {push: {deliver: {allow: [127.0.0.1]}}}\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration that delivers tasks of the kind `push` to 127.0.0.1."""
    path = tmp_path / "spooldeck.yaml"
    path.write_text(DELIVER)
    return path


def deliver_words(config: Path, root: str) -> tuple[str, ...]:
    """How a command on the queue begins."""
    return ("--config", str(config), "--root", root, "queue")


def add_request(spooldeck: Run, root: str, config: Path, data: bytes) -> Path:
    """Add a task with the data as its payload file, which is returned."""
    payload = Path(root, "mailspool", "request.json")
    payload.parent.mkdir(exist_ok=True)
    payload.write_bytes(data)
    added = spooldeck(*deliver_words(config, root), "add", "push", "a request", payload)
    assert added.returncode == 0, added.stderr
    return payload


def work_on_nftban(spooldeck: Run, root: str, config: Path, data: bytes) -> str:
    """Add a task with the data as its payload file, and run a worker."""
    payload = add_request(spooldeck, root, config, data)
    ran = spooldeck(*deliver_words(config, root), "work", "--until-idle")
    assert ran.returncode == 0, ran.stderr
    left = tasks_at(root)
    assert payload.exists() == bool(left)
    return left[0].error if left else ""


def work_on_bullmq(spooldeck: Run, url: str, config: Path, data: bytes, client: redis.Redis) -> str:
    """Add a job with the data, and run a worker."""
    write_waiting(client, "7", "push", data=data.decode())
    ran = spooldeck("--config", str(config), "bullmq", "work", url, "--until-idle")
    assert ran.returncode == 0, ran.stderr
    error = client.hget("bull:push:7", "failedReason")
    assert client.zscore(f"bull:push:{'failed' if error else 'completed'}", "7") is not None
    return str(error or "")


@pytest.fixture(params=["nftban", "bullmq"])
def work(request: pytest.FixtureRequest, spooldeck: Run, config: Path) -> Work:
    """Run a worker of each format on one request."""
    if request.param == "nftban":
        root = request.getfixturevalue("root")
        return partial(work_on_nftban, spooldeck, root, config)
    url = request.getfixturevalue("redis_url")
    server: TestServer = request.getfixturevalue("redis_server")

    def run(data: bytes) -> str:
        with server.client() as client:
            return work_on_bullmq(spooldeck, url, config, data, client)

    return run


def request_for(one: Peer) -> bytes:
    """A request for a peer."""
    fields = {"url": f"{one.url}/in", "method": "POST", "headers": {"X-A": "b"}, "body": "text"}
    return json.dumps(fields).encode()


def test_a_task_that_cannot_succeed_is_given_up(work: Work) -> None:
    """The error begins with the code; a task file has `_` in place of the brackets."""
    with peer(answer(404)) as one:
        error = work(request_for(one))
        text = f"HTTP_404] {one.url.removeprefix('http://')}: Not Found"
        assert error[1:].replace("_ ", "] ", 1) == text
    assert len(one.received) == 1


def test_a_payload_outside_the_mail_spool_is_not_read(
    spooldeck: Run, root: str, config: Path, tmp_path: Path
) -> None:
    """A symbolic link to another file is refused, and the task is dead."""
    secret = tmp_path / "secret.json"
    secret.write_bytes(b'{"url": "http://127.0.0.1/"}')
    payload = add_request(spooldeck, root, config, b"{}")
    payload.unlink()
    payload.symlink_to(secret)
    spooldeck(*deliver_words(config, root), "work", "--until-idle")
    (task,) = tasks_at(root)
    assert task.state is State.DEAD and "payload not read" in task.error


def test_a_result_is_kept_on_bullmq(
    spooldeck: Run, config: Path, redis_url: str, redis_server: TestServer
) -> None:
    """Status and beginning of the answer are the job's return value."""
    with peer(answer(202, b"taken")) as one, redis_server.client() as client:
        assert work_on_bullmq(spooldeck, redis_url, config, request_for(one), client) == ""
        returned = client.hget("bull:push:7", "returnvalue")
    assert json.loads(str(returned)) == {"status": 202, "body": "taken"}


def test_with_the_breaker_tasks_of_a_dead_peer_wait(
    spooldeck: Run, root: str, config: Path, tmp_path: Path
) -> None:
    """The first one uses an attempt; the next one waits for the probe, and its error says why."""
    config.write_text(
        f"destinations: sqlite://{tmp_path}/destinations.db\n"
        "handlers: {push: {deliver: {allow: [127.0.0.1], breaker: true, probes: fixed 1h}}}\n"
    )
    with peer() as one:
        pass
    for _ in range(2):
        work_on_nftban(spooldeck, root, config, request_for(one))
    waiting, tried = sorted(tasks_at(root), key=lambda task: task.attempts or 0)
    assert (waiting.state, waiting.attempts) == (State.PENDING, 0)
    assert (tried.state, tried.attempts) == (State.PENDING, 1)
    assert waiting.error == f"waits: {one.url} is unhealthy: REFUSED: no probe"


def test_a_task_is_delivered_and_its_row_removed(work: Work, config: Path, tmp_path: Path) -> None:
    """The peer gets the request; the row that its data names is removed, no other."""
    database = tmp_path / "app.db"
    table = "{table: delivery_jobs, field: deliveryJobId, database: "
    config.write_text(f"{DELIVER}outbox: {table}'sqlite://{database}'}}\n")
    with closing(sqlite3.connect(database)) as app, peer() as one:
        with app:
            app.execute("CREATE TABLE delivery_jobs (id TEXT PRIMARY KEY)")
            app.execute("INSERT INTO delivery_jobs VALUES ('r1'), ('r2')")
        assert work(request_for(one)[:-1] + b', "deliveryJobId": "r1"}') == ""
        (got,) = one.received
        assert (got.line, got.body, got.headers["x-a"]) == ("POST /in HTTP/1.1", b"text", "b")
        assert app.execute("SELECT id FROM delivery_jobs").fetchall() == [("r2",)]


def test_the_settings_of_a_handler(tmp_path: Path) -> None:
    """Its timeout is shorter than that of a program; statuses may be numbers."""
    path = tmp_path / "c.yaml"
    path.write_text(
        "handlers:\n  push:\n    deliver: {allow: ['peer.internal:8080'], profile: sipher,"
        " statuses: {404: retry, 3xx: done, TLS: fatal}, ca_file: ca.pem}\n"
        "  plain: {deliver: {}, timeout: 60, concurrency: 16}\n"
    )
    handlers = load_config(str(path), {}).handlers
    assert handlers["push"].timeout == 15.0
    assert handlers["push"].deliver == DeliverConfig(
        (AllowedPeer(host="peer.internal", port=8080),),
        {"404": "retry", "3xx": "done", "TLS": "fatal"},
        "sipher",
        f"{tmp_path}/ca.pem",
    )
    assert (handlers["plain"].deliver, handlers["plain"].timeout) == (DeliverConfig(), 60)


@each(
    ("setting", "error"),
    [
        ("push: {deliver: {}, command: [x]}", "push: expected command or deliver, not both"),
        ("mail_send: {deliver: {}}", "mail_send.deliver: mails are no HTTP requests"),
        ("push: {deliver: {}, run_as: root}", "push.run_as: needs command too"),
        ("mail_send: {command: [], run_as: root}", "mail_send.run_as: needs command too"),
        ("push: {deliver: {alow: []}}", "push.deliver.alow: unknown key"),
        ("push: {deliver: {allow: [10.0.0.1/8]}}", "push.deliver.allow.0: expected a network"),
        ("push: {deliver: {allow: ['peer:0']}}", "port is not a number from 1 to 65535"),
        ("push: {deliver: {statuses: {404: no}}}", "expected one of done, retry, fatal"),
        ("push: {deliver: {statuses: {99: done}}}", "statuses.99: expected a status like 404"),
        ("push: {deliver: {profile: other}}", "expected one of default, sipher"),
        ("push: {deliver: {breaker: true}}", "push.deliver.breaker: needs destinations too"),
        ("push: {deliver: {probes: often}}", "push.deliver.probes: expected one of"),
        ("push: {deliver: 7}", "push.deliver: expected a mapping"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, setting: str, error: str) -> None:
    """A configuration is refused as a whole, with the key."""
    path = tmp_path / "c.yaml"
    path.write_text(f"handlers: {{{setting}}}\n")
    with pytest.raises(ConfigError) as refused:
        load_config(str(path), {})
    assert error in str(refused.value)


def test_missing_certificates_end_the_worker(spooldeck: Run, root: str, config: Path) -> None:
    """The worker says which setting it is, before it takes a task."""
    config.write_text("handlers: {push: {deliver: {ca_file: none.pem}}}\n")
    ran = spooldeck(*deliver_words(config, root), "work", "--until-idle")
    assert ran.returncode == 78
    assert re.search("handlers.push.deliver.ca_file: .*No such file or directory", ran.stderr)


def test_the_doctor_names_a_missing_library(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the handler."""
    setup = setup_for(load_config(str(config), {}), "", {})
    assert missing_library(setup) == ""
    monkeypatch.setattr(deliver_handlers, "find_spec", lambda name: None)
    assert missing_library(setup) == "handlers.push.deliver: httpx is not installed"
    assert missing_library(setup._replace(config=setup.config._replace(handlers={}))) == ""


def test_a_delivered_kind_counts_as_handled(spooldeck: Run, root: str, config: Path) -> None:
    """A waiting task of that kind is no finding."""
    base = ("--config", str(config), "--root", root)
    spooldeck(*base, "queue", "add", "push", "x")
    assert "without a handler" not in spooldeck(*base, "doctor").stdout
    alone = spooldeck("--root", root, "doctor").stdout
    assert "1 task of kind push waits without a handler" in alone
