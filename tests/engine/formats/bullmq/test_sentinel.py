"""Sentinels that name the master, change their mind, lie or are away; failovers in the middle."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import pytest
from pytest import MonkeyPatch

from engine import verbs
from engine.config.place_address import join_host, parse_address
from engine.formats.bullmq import connection, facts, sentinel
from engine.formats.bullmq.place import RedisPlace, parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.model import Move, State
from engine.operations import plans
from engine.operations.execute import PlanRun
from engine.store import Gone, Unavailable
from tests.bullmq_jobs import NOW, write_failed, write_waiting
from tests.bullmq_workers import CONFIG, StartWorker, await_completed, runs, until
from tests.redis_server import (
    SentinelGroup,
    TestServer,
    free_port,
    running_sentinels,
    running_server,
)
from tests.store_contents import naming, tasks_in

Opened = Callable[..., BullmqStore]


class FakeSentinel:
    """Listens as a Sentinel and answers each question in the same way; None: never."""

    def __init__(self, answer: bytes | None = b"", *, named: int = 0) -> None:
        self.answer = self._name(named) if named else answer
        self.turns: Iterator[int] = iter(())
        """The ports that it names from now on, each once."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    @staticmethod
    def _name(port: int) -> bytes:
        return b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(port)), port)

    def name(self, port: int) -> None:
        """Name another server from now on."""
        self.answer = self._name(port)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            while words := client.recv(65536):
                if b"CLIENT" in words:
                    client.sendall(b"+OK\r\n" * words.count(b"CLIENT"))
                elif b"SENTINEL" not in words:
                    client.sendall(b"-ERR unknown command 'ROLE'\r\n")
                elif self.answer is not None:
                    client.sendall(self.answer)
                    if port := next(self.turns, 0):
                        self.name(port)

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def place_of(*ports: int, name: str = "main") -> RedisPlace:
    """A place with Sentinels at these ports."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return parse_place(parse_address(f"redis+sentinel://{hosts}/{name}/0"))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends what a test opened."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def fake(stack: ExitStack) -> Callable[..., FakeSentinel]:
    """Make a Sentinel of our own."""

    def make(*answer: bytes | None, named: int = 0) -> FakeSentinel:
        return stack.enter_context(closing(FakeSentinel(*answer, named=named)))

    return make


@pytest.fixture
def masters(stack: ExitStack) -> list[tuple[int, TestServer]]:
    """Two servers, each with its port."""
    ports = free_port(), free_port()
    options = [("--bind", "127.0.0.1", "--port", str(port)) for port in ports]
    return [
        (port, stack.enter_context(running_server(*words)))
        for port, words in zip(ports, options, strict=True)
    ]


BAD_ANSWERS: dict[str, tuple[bytes | None, str]] = {
    "no answer": (None, "does not answer within 0.05 s"),
    "an error": (b"-ERR unknown command 'SENTINEL'\r\n", "is no Sentinel"),
    "a password": (b"-NOAUTH Authentication required.\r\n", "needs a password: sentinel_password"),
    "a number": (b":5\r\n", "gives no answer to use: "),
    "no address": (b"*2\r\n$1\r\nx\r\n$1\r\ny\r\n", "gives no answer to use: "),
    "control bytes": (b"*2\r\n$2\r\n\x1b[\r\n$1\r\n1\r\n", "gives no answer to use: this is no"),
    "lists": (b"*2\r\n*0\r\n*0\r\n", "gives no answer to use: "),
    "no name, and no masters": (b"*-1\r\n", "knows no master 'main', it knows none"),
    "a long list": (b"*2147483647\r\n", "elements"),
}


def test_a_sentinel_of_no_use_is_one_line(
    fake: Callable[..., FakeSentinel], monkeypatch: MonkeyPatch
) -> None:
    """Each Sentinel with its reason, within a time limit; the next one is asked."""
    for name, (answer, why) in BAD_ANSWERS.items():
        monkeypatch.setattr(sentinel, "SENTINEL_SECONDS", 0.05 if name == "no answer" else 20.0)
        port, closed = fake(answer).port, free_port()
        with naming(name):
            with pytest.raises(Unavailable) as caught:
                connection.Connection(place_of(port, closed))
            said = str(caught.value)
            assert f"no master: 127.0.0.1:{port} {why}" in said or why in said
            assert said.endswith(f"; 127.0.0.1:{closed} is not reached: Connection refused")
            assert said.isprintable()


def test_a_sentinel_that_names_no_master_is_not_believed(
    fake: Callable[..., FakeSentinel], masters: list[tuple[int, TestServer]]
) -> None:
    """A replica, a port without a server, and itself: the role decides; the next Sentinel that
    names a master is right, and the others are warnings. If Sentinels name different masters, the
    first one is in use, and that is a severe warning."""
    (port, _), (replica, other) = masters
    right = fake(named=port).port

    def read(place: RedisPlace) -> facts.QueueServerState:
        with closing(connection.Connection(place)) as link:
            assert link.master == f"127.0.0.1:{port}"
            return facts.read_state(link, place, NOW)

    place = place_of(right, fake(named=replica).port)
    (severe,) = (warning for warning in facts.find_warnings(read(place)) if warning.is_severe)
    assert f"names another master, 127.0.0.1:{replica}; in use is 127.0.0.1:{port}" in severe.what

    with other.client() as client:
        client.replicaof("127.0.0.1", port)
    closed, itself = free_port(), fake()
    itself.name(itself.port)
    liars = {
        fake(named=replica).port: f"names 127.0.0.1:{replica}, which is a replica",
        fake(named=closed).port: f"names 127.0.0.1:{closed}, which is not reached",
        itself.port: f"names 127.0.0.1:{itself.port}, which gives no answer to use",
    }
    with pytest.raises(Unavailable) as caught:
        connection.Connection(place_of(*liars))
    for liar, why in liars.items():
        assert f"127.0.0.1:{liar} {why}" in str(caught.value)
    place = place_of(*liars, right)
    state = read(place)
    rows = dict(facts.describe_state(state, NOW))
    assert rows["master"] == f"127.0.0.1:{port}"
    assert rows["sentinels"] == f"1 of 4 name it: 127.0.0.1:{right}"
    assert facts.describe_sentinels(place) == [*rows.items()][:2]
    assert facts.describe_sentinels(place._replace(sentinels=())) == []
    warnings = " ".join(warning.what for warning in facts.find_warnings(state))
    assert all(f"Sentinel 127.0.0.1:{liar} {why}" in warnings for liar, why in liars.items())


@pytest.mark.parametrize("is_replica", [True, False])
def test_another_master_is_followed(
    fake: Callable[..., FakeSentinel],
    masters: list[tuple[int, TestServer]],
    stack: ExitStack,
    monkeypatch: MonkeyPatch,
    *,
    is_replica: bool,
) -> None:
    """The former master keeps its connections: as a replica it refuses a change, and cut off from
    the others it accepts one. Both are Unavailable; the next scan is of the new master, and a watch
    says that all must be read again."""
    monkeypatch.setattr(sentinel, "CHECK_SECONDS", 3600.0)
    monkeypatch.setattr(connection, "REPLICA_MS", 1)
    (one, old), (two, new) = masters
    for server in (old, new):
        with server.client() as client:
            write_failed(client, "1")
    names = fake(named=one)
    store = stack.enter_context(closing(BullmqStore(place_of(names.port), lambda: NOW)))
    wait = store.changes.wait
    assert wait is not None
    wait(0.0)
    (task,) = tasks_in(store).values()
    (outcome,) = store.swap_all([Move(task, verbs.hold(task, NOW))])
    assert (outcome.error, outcome.note) == (None, "on no replica yet: a failover would lose it")
    (held,) = tasks_in(store).values()
    names.name(two)
    if is_replica:
        with old.client() as client:
            client.replicaof("127.0.0.1", 1)
    why = "is a replica now" if is_replica else f"the master changed, it is 127.0.0.1:{two} now"
    with pytest.raises(Unavailable, match=why):
        store.swap(held, verbs.release(held, NOW))
    (task,) = tasks_in(store).values()
    assert task.state is State.DEAD
    with pytest.raises(Unavailable, match=f"is 127.0.0.1:{two} now, before 127.0.0.1:{one}"):
        wait(0.0)


def test_a_loop_of_failovers_ends_each_try(
    fake: Callable[..., FakeSentinel],
    masters: list[tuple[int, TestServer]],
    monkeypatch: MonkeyPatch,
) -> None:
    """A Sentinel that names another master each time it is asked: each try ends, and no server gets
    a change twice."""
    monkeypatch.setattr(connection, "REPLICA_MS", 1)
    for _, server in masters:
        with server.client() as client:
            write_failed(client, "1")
    (one, _), (two, _) = masters
    names = fake(named=one)
    with closing(BullmqStore(place_of(names.port), lambda: NOW)) as store:
        (task,) = tasks_in(store).values()
        names.turns = cycle((two, one))
        for _ in range(4):
            with suppress(Unavailable, Gone):
                store.swap(task, verbs.hold(task, NOW))
    for _, server in masters:
        with server.client() as client:
            assert client.xlen("spooldeck:bull:changes") <= 1


@pytest.fixture
def group() -> Iterator[SentinelGroup]:
    """Two servers and a Sentinel."""
    with running_sentinels() as group:
        yield group


def test_a_real_sentinel_names_itself_and_its_masters(group: SentinelGroup) -> None:
    """As the address of a server it is refused with the address to use; an unknown name with the
    names that it knows."""
    url = f"redis+sentinel://127.0.0.1:{group.port}"
    rows = {
        f"redis://127.0.0.1:{group.port}/0": f"a Sentinel, which has no queues: use {url}/main/0",
        f"redis://127.0.0.1:{group.port}/1": f"a Sentinel, which has no queues: use {url}/NAME/1",
        f"{url}/other": "knows no master 'other', it knows main",
    }
    for address, why in rows.items():
        with pytest.raises(Unavailable) as caught:
            connection.Connection(parse_place(parse_address(address)))
        assert str(caught.value).endswith(why)


@pytest.mark.deep
def test_a_failover_in_the_middle_of_a_plan_accounts_for_each_row(
    group: SentinelGroup, stack: ExitStack
) -> None:
    """Rows are applied all the time while the master changes: each that is reported done is so on
    the new master, each other one is as it was, and a watch hears of the new master."""
    former = group.master
    with group.servers[former].client() as client:
        for number in range(400):
            write_failed(client, str(number))
        client.wait(1, 0)
    store, watching = (
        stack.enter_context(closing(BullmqStore(parse_place(parse_address(group.url)))))
        for _ in range(2)
    )
    wait = watching.changes.wait
    assert wait is not None
    wait(0.0)
    tasks = tasks_in(store).values()
    plan = plans.freeze_plan("hold", tasks, time.time(), edges=store.edges)
    run = PlanRun(store, plan, time.time)
    group.begin_failover()
    while run.open_rows and group.master == former:
        run.step(run.next_rows(1))
    run.step(run.next_rows(20))
    report = run.finish("ended by the test")
    assert report.accounted == len(plan.rows) == 400
    until(lambda: store._connection.master == join_host("127.0.0.1", group.ports[1 - former]))
    with closing(BullmqStore(parse_place(parse_address(group.url)))) as again:
        held = {t.id for t in tasks_in(again).values() if t.state is State.HELD}
    assert set(report.done) <= held
    unknown = {ident for ident, _ in report.failed}
    assert held <= set(report.done) | unknown
    with pytest.raises(Unavailable, match=r"now, before|not connected|no master|is a replica now"):
        while True:
            wait(1.0)


@pytest.mark.deep
def test_a_worker_goes_on_at_the_new_master(
    group: SentinelGroup, start: StartWorker, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """A job that runs during a failover is completed at the new master, once; and so are the
    others."""
    former = group.master
    with group.servers[former].client() as client:
        cast("Any", client).hset("bull:mails:meta", "version", "bullmq:5.81.5")
        for number in "123":
            write_waiting(client, number)
        client.wait(1, 0)
    longer = CONFIG.replace("lease: 1,", "lease: 30,")  # than a failover
    monkeypatch.setattr("tests.engine.formats.bullmq.conftest.CONFIG", longer)
    go = tmp_path / "go"
    start(group.url, f'echo "$TASK_ID" >> {tmp_path}/ran; until [ -e {go} ]; do sleep 0.05; done')
    until(lambda: (tmp_path / "ran").exists())
    group.begin_failover()
    until(lambda: group.master != former)
    go.touch()
    await_completed(group.servers[1 - former], 3)
    assert sum(runs(tmp_path).values()) == 3
