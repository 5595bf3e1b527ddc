"""Servers that refuse, load, copy another or go away: one clear line each, nothing twice."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pytest import MonkeyPatch
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from engine import verbs
from engine.config.place_address import has_password, hide_passwords, parse_address
from engine.doctor.store_checks import check_store
from engine.formats.bullmq import limited_socket
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.moves import EDGES
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.model import State
from engine.store import Full, Unavailable, Unsupported
from tests.bullmq_jobs import NOW, write_at, write_failed, write_waiting
from tests.bullmq_workers import PATIENCE
from tests.http_peers import make_certificate, tls_server
from tests.redis_server import TestServer, running_server
from tests.store_contents import act, found, problems_in, tasks_in


@contextmanager
def opened(url: str, user: str = "", password: str = "") -> Iterator[BullmqStore]:
    """Open a place by its URL."""
    place = parse_place(parse_address(url))
    if user:
        place = place._replace(options={**place.options, "username": user})
    if password:
        place = place._replace(password=password)
    with closing(BullmqStore(place, lambda: NOW)) as store:
        yield store


def refusal(url: str) -> str:
    """The one line with which a place cannot be opened."""
    with pytest.raises(Unavailable) as caught, opened(url):
        pass
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def server() -> Iterator[TestServer]:
    """A server of its own, for settings that concern all databases."""
    with running_server() as server:
        yield server


@pytest.fixture
def client(server: TestServer) -> Iterator[Redis]:
    """Another program's connection to that server."""
    with server.client() as client:
        yield client


@pytest.fixture
def store(server: TestServer) -> Iterator[BullmqStore]:
    """The place on that server."""
    with opened(server.place()) as store:
        yield store


ADDRESSES: dict[str, dict[str, object]] = {
    "redis://ann:secret@db.example:7000/3?prefix=jobs": {
        **{"db": 3, "username": "ann", "host": "db.example", "port": 7000, "ssl": False}
    },
    "redis+unix:///run/redis.sock?db=2": {"db": 2, "unix_socket_path": "/run/redis.sock"},
    "redis://host?db=2": {"db": 2, "host": "host", "port": 6379, "ssl": False},
    "rediss://host/1?ca_file=/ca.pem&cert_file=/c&key_file=/k": {
        **{"db": 1, "host": "host", "port": 6379, "ssl": True},
        **{"ssl_ca_certs": "/ca.pem", "ssl_certfile": "/c", "ssl_keyfile": "/k"},
    },
}


def test_an_address_names_server_database_and_prefix() -> None:
    """Host, socket, user, password, TLS; the password is in no text."""
    for url, options in ADDRESSES.items():
        assert parse_place(parse_address(url)).options == options, url
    place = parse_place(parse_address(next(iter(ADDRESSES))))
    assert (place.prefix, place.password) == ("jobs", "secret")
    assert "secret" not in repr(place) + place.text
    for wrong, what in (
        ("redis://host/mails", "expected a number"),
        ("redis://host/0?colour=red", "'colour', expected one of prefix, db, ca_file"),
        ("redis://host/0?db=2", "the database is in the path and in db"),
        ("redis://host/0?ca_file=/ca.pem", "are for rediss://"),
        ("rediss://host/0?key_file=/k", "key_file needs cert_file"),
        ("redis://one,two/0", "several hosts are for redis[+]sentinel://"),
        ("redis://host/0?sentinel_password=x", "are for redis[+]sentinel://"),
        ("redis+sentinel://host", "expected redis[+]sentinel://HOST,HOST/NAME/DB"),
        ("redis+sentinel:///name/0", "expected redis[+]sentinel://HOST,HOST/NAME/DB"),
        ("redis+sentinel://host/name/mails", "expected a number"),
        ("redis+sentinel://host/name/0?other_password=x", "unknown parameter 'other_password'"),
        ("redis+sentinel://host/name?ca_file=/ca.pem", "are for rediss[+]sentinel://"),
    ):
        with pytest.raises(Unavailable, match=what):
            parse_place(parse_address(wrong))


def test_an_address_names_sentinels_and_the_master() -> None:
    """Ports have a default; the password of the Sentinels is another one, and in no text."""
    login = "ann:secret@h1,[::1]:26380/main/3?prefix=jobs"
    url = f"rediss+sentinel://{login}&sentinel_user=bob&sentinel_password=other&ca_file=/ca"
    address = parse_address(url)
    place = parse_place(address)
    tls = {"ssl": True, "ssl_ca_certs": "/ca"}
    assert place.sentinels == (("h1", 26379), ("::1", 26380))
    assert (place.master, place.prefix, place.password) == ("main", "jobs", "secret")
    assert place.options == {"db": 3, "username": "ann", **tls}
    assert place.sentinel_options == {"username": "bob", "password": "other", **tls}
    for text in (repr(place), repr(address), address.text, hide_passwords(url)):
        assert "secret" not in text and "other" not in text
    assert has_password(f"--at={url}") and parse_address(address.text).text == address.text


class Proxy:
    """Passes everything to a server and back, by TLS if it has a context; drops so many answers as
    told, each with its connection."""

    def __init__(
        self, server: TestServer, listener: socket.socket, tls: ssl.SSLContext | None = None
    ) -> None:
        self.cuts = 0
        self._server, self._listener, self._tls = server.socket, listener, tls
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            with self._tls.wrap_socket(client, server_side=True) if self._tls else client as link:
                while data := link.recv(1 << 20):
                    server.sendall(data)
                    answer = server.recv(1 << 20)
                    if self.cuts:
                        link.sendall(answer[: len(answer) // 2])
                        self.cuts -= 1
                        break
                    link.sendall(answer)

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def proxy(server: TestServer, tmp_path: Path) -> Iterator[Proxy]:
    """A proxy to that server."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{tmp_path}/proxy")
    listener.listen()
    with closing(Proxy(server, listener)) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: Proxy, tmp_path: Path) -> Iterator[BullmqStore]:
    """The place on that server, reached through the proxy."""
    with opened(f"redis+unix://{tmp_path}/proxy") as store:
        yield store


def test_certificates_of_files_are_used(server: TestServer, tmp_path: Path) -> None:
    """The issuer of the server's certificate, and our own; without, one line says what lacks."""
    pem, client_pem = (make_certificate(tmp_path, name) for name in ("localhost", "client"))
    context, listener = tls_server(pem), socket.create_server(("127.0.0.1", 0))
    with closing(Proxy(server, listener, context)):
        url = f"rediss://localhost:{listener.getsockname()[1]}/0"
        assert "name the certificate of its issuer: ?ca_file=PATH" in refusal(url)
        assert "No such file" in refusal(f"{url}?ca_file={tmp_path}/none.pem")
        with opened(f"{url}?ca_file={pem}"):
            pass
        context.load_verify_locations(client_pem)
        context.verify_mode = ssl.CERT_REQUIRED
        assert "not connected" in refusal(f"{url}?ca_file={pem}")
        with opened(f"{url}?ca_file={pem}&cert_file={client_pem}"):
            pass


def test_an_unreachable_place_is_one_line(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """No socket, or one that no server listens on, or no package: with the command for it. The
    handshake of TLS has the time of a connect, here less, not that of an answer."""
    for url in (f"redis+unix://{tmp_path}/none", "redis://127.0.0.1:1/0"):
        assert "not connected" in refusal(url)
    monkeypatch.setattr(limited_socket, "CONNECT_TIMEOUT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"rediss://127.0.0.1:{listener.getsockname()[1]}/0"
        assert "no TLS within 0.05 s: is this a port with TLS?" in refusal(url)
    monkeypatch.setitem(__import__("sys").modules, "redis", None)
    assert refusal("redis://host/0").endswith("pip install 'spooldeck[bullmq]'")


def test_a_password_is_asked_for(server: TestServer, client: Redis) -> None:
    """A server with a password, without and with a wrong one; the right one opens it."""
    client.config_set("requirepass", "right")
    for password, said in (("", "needs a password"), ("wrong", "refused the password")):
        with (
            pytest.raises(Unavailable, match=f"the server {said}"),
            opened(server.place(), password=password),
        ):
            pass
    with opened(server.place(), password="right"):
        pass


def test_a_missing_permission_concerns_one_change(server: TestServer, client: Any) -> None:
    """A user who may not copy keys scans and retries; a purge is refused with the reason."""
    write_failed(client, "1")
    client.execute_command("ACL", "SETUSER", "reader", "on", ">x", "~*", "+@all", "-copy")
    with opened(server.place(), "reader", "x") as store:
        tasks = tasks_in(store)
        refusals = {transition: edge.refusal for transition, edge in store.edges.items()}
        no_copy = "the server does not permit COPY (keys ~bull:* and ~spooldeck:bull:*)"
        assert refusals[State.DEAD, State.TRASH] == no_copy
        assert refusals[State.DEAD, State.PENDING] == ""
        checks = check_store(store, NOW, "", "")
        rights = [one.problem for name, one in checks if name == "rights"]
        assert rights == [f"hold, purge: {no_copy}"]
        with pytest.raises(Unsupported, match="does not permit COPY"):
            act(store, "purge", "mails/1")
        store.edges = EDGES
        with pytest.raises(Unsupported, match="no permission"):
            act(store, "purge", "mails/1")
        assert tasks_in(store) == tasks
        act(store, "retry", "mails/1")
        assert found(store, "mails/1").state is State.PENDING


def test_a_user_of_bullmqs_keys_alone_sees_and_retries(server: TestServer, client: Any) -> None:
    """What needs our own keys is refused and names them; changes of others are heard. A place whose
    keys may not be read is unavailable, with the reason."""
    write_failed(client, "1")
    client.execute_command("ACL", "SETUSER", "op", "on", ">x", "+@all", "-time", "~bull:*")
    with opened(server.place(), "op", "x") as store:
        wait = store.changes.wait
        assert wait is not None and wait(0.0) == set()
        assert (set(tasks_in(store)), problems_in(store)) == ({"mails/1"}, {})
        assert store.edges[State.DEAD, State.PENDING].refusal == ""
        ours = "SADD, XADD (keys ~bull:* and ~spooldeck:bull:*)"
        assert store.edges[State.DEAD, State.TRASH].refusal.endswith(ours)
        act(store, "retry", "mails/1")
        assert wait(PATIENCE) == {"mails/1"}
        store.edges = EDGES
        with pytest.raises(Unsupported, match="the user needs ~bull:"):
            act(store, "hold", "mails/1")
    client.execute_command("ACL", "SETUSER", "blind", "on", ">x", "+@all", "resetkeys")
    with opened(server.place(), "blind", "x") as store:
        for ask in (lambda: list(store.scan()), store.count_tasks, lambda: [*store.controls]):
            with pytest.raises(Unavailable, match="no permission"):
                ask()


def test_a_replica_is_shown_and_refuses_changes(server: TestServer, client: Redis) -> None:
    """Each edge and each control has the reason; so has a take."""
    write_waiting(client, "1")
    client.replicaof("127.0.0.1", 1)
    with opened(server.place()) as store:
        assert set(tasks_in(store)) == {"mails/1"}
        refusals = {edge.refusal for edge in store.edges.values()}
        refusals |= {control.refusal for control in store.controls.values()}
        assert refusals == {"the server is a read-only replica: change the primary"}
        with pytest.raises(Unsupported, match="replica"):
            list(store.take(NOW, "me", 1))


@pytest.mark.parametrize("is_open", [True, False])
def test_an_address_that_names_a_new_primary_is_followed(tmp_path: Path, *, is_open: bool) -> None:
    """The connection to the former primary stays open: it is closed after a refused change, at a
    plan and at a full scan, and the address is asked again. The same if it was a replica before."""
    with ExitStack() as stack:
        old, new = (stack.enter_context(running_server()) for _ in range(2))
        address = tmp_path / "s"
        address.symlink_to(old.socket)
        old_client, client = (stack.enter_context(each.client()) for each in (old, new))
        if not is_open:
            old_client.replicaof("127.0.0.1", 1)
        store = stack.enter_context(opened(f"redis+unix://{address}"))
        old_client.replicaof("127.0.0.1", 1)
        address.unlink()
        address.symlink_to(new.socket)
        write_waiting(client, "1")
        if is_open:
            with pytest.raises(Unsupported, match="read-only replica"):  # the server's own refusal
                store.add_job(NewJob("mails", "report"))
            assert [task.id for task in store.take(NOW, "me", 1)] == ["mails/1"]
        else:
            (task,) = tasks_in(store).values()
            assert (task.id, {edge.refusal for edge in store.edges.values()}) == ("mails/1", {""})
            store.swap(task, verbs.hold(task, NOW))


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_full_server_deletes_jobs(client: Redis, store: BullmqStore, *, is_paused: bool) -> None:
    """With noeviction a change that needs memory is refused, and nothing changed. Expunge takes no
    memory: waiting, delayed, with a priority, failed, completed ones. The next run of a schedule
    and a child that its parent waits for stay."""
    write_waiting(client, "w")
    client.hset("bull:mails:meta", "version", "bullmq:5.81.5")
    write_failed(client, "f")
    for place in ("delayed", "prioritized", "completed"):
        write_at(client, place, place[0], score=4096, parentKey="")
    write_at(client, "delayed", "repeat:x:5", score=4096, rjk="x")
    client.zadd("bull:mails:repeat", {"x": 5})
    write_waiting(client, "child", parentKey="bull:mails:parent")
    client.sadd("bull:mails:parent:dependencies", "bull:mails:child")
    task = found(store, "mails/f")
    client.config_set("maxmemory", "1")
    with pytest.raises(Full, match="memory is full"):
        store.swap(task, verbs.purge(task, NOW))
    client.config_set("maxmemory", "0")
    assert found(store, "mails/f") == task
    if is_paused:
        store.control("pause", "mails", "1")
    tasks = tasks_in(store)
    client.config_set("maxmemory", "1")
    kept = set[str]()
    for ident, task in tasks.items():
        try:
            store.swap(task, None)
        except Unsupported:
            kept.add(ident)
    assert kept == tasks_in(store).keys() == {"mails/repeat:x:5", "mails/child"}


def test_a_cluster_is_refused() -> None:
    """Before anything is read, in one line with the address, what is there and what was
    expected."""
    with running_server("--cluster-enabled", "yes", "--databases", "1") as server:
        said = refusal(server.place()).partition(": ")[2]
    assert said == "a node of a Redis Cluster, which is not supported; expected a single server"


def test_a_server_that_loads_its_data_is_waited_for(tmp_path: Path) -> None:
    """A restarted server that reads its file cannot be opened; a worker's claim is Unavailable, and
    works when the data is there."""
    with ExitStack() as stack:
        with running_server(folder=tmp_path) as server, server.client() as client:
            for number in range(300):
                write_waiting(client, f"j{number}", data="x" * 1100)
            store = stack.enter_context(opened(server.place()))
            client.save()
        server = stack.enter_context(running_server(folder=tmp_path, is_loading=True))
        assert "still loading its data" in refusal(server.place())
        with pytest.raises(Unavailable, match="still loading its data"):
            list(store.take(NOW, "me", 1))
        with server.client(retry=Retry(ConstantBackoff(0.02), 3000)) as client:
            client.config_set("key-load-delay", 0)
            client.ping()  # redis-py tries again while it gets LOADING
        assert len(list(store.take(NOW, "me", 300))) == 300


def test_a_change_is_sent_once_at_a_cut(client: Redis, proxy: Proxy, through: BullmqStore) -> None:
    """Cut in the middle of its answer, a change is Unavailable although it was made; it is made
    once, and the next scan connects again and shows it."""
    write_failed(client, "1")
    for state in (State.HELD, State.TRASH, State.HELD):  # so that the server has the script
        task = found(through, "mails/1")
        through.swap(task, task._replace(state=state))
    held = found(through, "mails/1")
    proxy.cuts = 1
    with pytest.raises(Unavailable, match="not connected"):
        through.swap(held, verbs.purge(held, NOW))
    assert found(through, "mails/1").state is State.TRASH
    assert client.xlen("spooldeck:bull:changes") == 4


def test_a_cut_renewal_is_no_lost_claim(client: Redis, proxy: Proxy, through: BullmqStore) -> None:
    """If only the answer to a renewal is lost, the claims are extended, and their outcomes can be
    stored. If the server cannot be asked either, the outcome of each is Unavailable: not known."""
    for ident in ("1", "2"):
        write_waiting(client, ident)
    tasks = list(through.take(NOW, "us", 2))
    assert len(tasks) == 2
    for until in (NOW + 60, NOW + 90):  # then the server has the script
        proxy.cuts = int(until > NOW + 60)
        outcomes = list(through.renew(tasks, until))
        assert [(o.move.old, o.error) for o in outcomes] == [(t, None) for t in tasks]
        tasks = [o.move.new for o in outcomes if o.move.new is not None]
    through.swap(tasks[0], verbs.complete(tasks[0], State.DONE))
    assert client.zrange("bull:mails:completed", 0, -1) == [tasks[0].id.partition("/")[2]]
    proxy.cuts = 99
    (lost,) = through.renew(tasks[1:], NOW + 120)
    assert (lost.move.old, type(lost.error)) == (tasks[1], Unavailable)


def test_a_killed_server_loses_nothing(tmp_path: Path) -> None:
    """With an append only file that is synced each time, what was answered is there after kill -9,
    and an open store goes on: it loads its scripts and waits for changes again."""
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with ExitStack() as stack:
        first = stack.enter_context(running_server(*options, folder=tmp_path))
        store = stack.enter_context(opened(first.place()))
        wait = store.changes.wait
        assert wait is not None
        with first.client() as client:
            for number in "123":
                write_failed(client, number)
        act(store, "purge", "mails/1")
        act(store, "retry", "mails/2")
        before = tasks_in(store)
        wait(0.0)
        assert first.process is not None
        first.process.kill()
        first.process.wait()
        for ask in (partial(tasks_in, store), partial(wait, 60.0)):
            with pytest.raises(Unavailable):
                ask()

        again = stack.enter_context(running_server(*options, folder=tmp_path))
        assert tasks_in(store) == before
        act(store, "hold", "mails/2")
        with again.client() as client:
            client.xadd("bull:mails:events", {"event": "added", "jobId": "3"})
        names = wait(60.0)
        assert names is None or "mails/3" in names


def test_scripts_are_loaded_again_after_a_flush(client: Any, store: BullmqStore) -> None:
    """A server that has forgotten the scripts gets their texts, also within a pipeline."""
    for number in "123":
        write_failed(client, number)
    for task in tasks_in(store).values():
        client.script_flush()
        store.swap(task, verbs.retry(task, NOW))
    assert {t.state for t in tasks_in(store).values()} == {State.PENDING}


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_wrong_loses_nothing(
    server: TestServer, client: Redis, store: BullmqStore, hours: int
) -> None:
    """An hour off, claims and outcomes work; only times are off."""
    for number in "12":
        write_waiting(client, number)
    now = NOW + 3600 * hours
    with closing(BullmqStore(store.place, lambda: now)) as wrong:
        (task,) = wrong.take(now, "me", 1)
        (theirs,) = store.take(NOW, "they", 1)
        (renewed,) = wrong.renew([task], now + 60)
        assert renewed.move.new is not None
        wrong.swap(renewed.move.new, verbs.nack(renewed.move.new, now + 60, "later"))
        store.swap(theirs, verbs.give_up_task(theirs, "no"))
        states = [task.state for task in tasks_in(store).values()]
        assert sorted(states) == [State.DEAD, State.PENDING]
