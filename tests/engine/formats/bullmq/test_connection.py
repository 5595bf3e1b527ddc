"""Servers that refuse, load, copy another or go away: one clear line each, nothing twice."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from engine import verbs
from engine.config.place_address import parse_address
from engine.doctor.store_checks import check_store
from engine.formats.bullmq import connection
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.moves import EDGES
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.model import State
from engine.store import Full, Unavailable, Unsupported
from tests.bullmq_jobs import NOW, scanned, write_failed, write_hash, write_waiting
from tests.http_peers import make_certificate, tls_server
from tests.redis_server import TestServer, running_server
from tests.store_contents import found

PATIENCE = 60.0
"""Seconds after which a test that waits for a change fails."""


def open_place(url: str) -> BullmqStore:
    """Open a place by its URL."""
    return BullmqStore(parse_place(parse_address(url)), lambda: NOW)


def refusal(url: str) -> str:
    """The one line with which a place cannot be opened."""
    with pytest.raises(Unavailable) as caught:
        open_place(url).close()
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def server() -> Iterator[TestServer]:
    """A server of its own, for settings that concern all databases."""
    with running_server() as server:
        yield server


def test_an_address_names_server_database_and_prefix() -> None:
    """Host, socket, user, password, TLS; the password is in no text."""
    place = parse_place(parse_address("redis://ann:secret@db.example:7000/3?prefix=jobs"))
    assert place.options == {
        **{"db": 3, "username": "ann", "host": "db.example", "port": 7000, "ssl": False}
    }
    assert (place.prefix, place.password) == ("jobs", "secret")
    assert "secret" not in repr(place) + place.text
    assert parse_place(parse_address("rediss://db.example")).options["ssl"] is True
    socket_place = parse_place(parse_address("redis+unix:///run/redis.sock?db=2"))
    assert socket_place.options == {"db": 2, "unix_socket_path": "/run/redis.sock"}
    assert parse_place(parse_address("redis://host?db=2")).options["db"] == 2
    secure = parse_place(parse_address("rediss://host/1?ca_file=/ca.pem&cert_file=/c&key_file=/k"))
    assert {name: value for name, value in secure.options.items() if name.startswith("ssl_")} == {
        **{"ssl_ca_certs": "/ca.pem", "ssl_certfile": "/c", "ssl_keyfile": "/k"}
    }
    for wrong, what in (
        ("redis://host/mails", "expected a number"),
        ("redis://host/0?colour=red", "'colour', expected one of prefix, db, ca_file"),
        ("redis://host/0?db=2", "the database is in the path and in db"),
        ("redis://host/0?ca_file=/ca.pem", "are for rediss://"),
        ("rediss://host/0?key_file=/k", "key_file needs cert_file"),
    ):
        with pytest.raises(Unavailable, match=what):
            parse_place(parse_address(wrong))


@contextmanager
def secured(server: TestServer, context: ssl.SSLContext) -> Iterator[int]:
    """Let a server be reached through TLS; the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def pass_on(link: ssl.SSLSocket) -> None:
        with link, socket.socket(socket.AF_UNIX) as far:
            far.connect(server.url.removeprefix("redis+unix://"))
            back = threading.Thread(target=pump, args=(far, link), daemon=True)
            back.start()
            pump(link, far)
            back.join(20)

    def serve() -> None:
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            try:
                link = context.wrap_socket(raw, server_side=True)
            except OSError:
                raw.close()
                continue
            threads.append(threading.Thread(target=pass_on, args=(link,), daemon=True))
            threads[-1].start()

    threads = [threading.Thread(target=serve, daemon=True)]
    threads[0].start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(20)


def test_certificates_of_files_are_used(server: TestServer, tmp_path: Path) -> None:
    """The issuer of the server's certificate, and our own; without, one line says what lacks."""
    pem, client_pem = (make_certificate(tmp_path, name) for name in ("localhost", "client"))
    context = tls_server(pem)
    with secured(server, context) as port:
        url = f"rediss://localhost:{port}/0"
        assert "name the certificate of its issuer: ?ca_file=PATH" in refusal(url)
        assert "No such file" in refusal(f"{url}?ca_file={tmp_path}/none.pem")
        open_place(f"{url}?ca_file={pem}").close()
        context.load_verify_locations(client_pem)
        context.verify_mode = ssl.CERT_REQUIRED
        assert "not connected" in refusal(f"{url}?ca_file={pem}")
        open_place(f"{url}?ca_file={pem}&cert_file={client_pem}").close()


def test_a_port_without_tls_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handshake has the time of a connect, here less, not that of an answer."""
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"rediss://127.0.0.1:{listener.getsockname()[1]}/0"
        assert "no TLS within 0.05 s: is this a port with TLS?" in refusal(url)


def test_a_place_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    """No socket, or one that no server listens on."""
    assert "not connected" in refusal(f"redis+unix://{tmp_path}/none")
    assert "not connected" in refusal("redis://127.0.0.1:1/0")


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(__import__("sys").modules, "redis", None)
    assert refusal("redis://host/0").endswith("pip install 'spooldeck[bullmq]'")


def test_a_password_is_asked_for(server: TestServer) -> None:
    """A server with a password, without and with a wrong one; the right one opens it."""
    with server.client() as client:
        client.config_set("requirepass", "right")
    place = parse_place(parse_address(server.place()))
    for password, said in (("", "needs a password"), ("wrong", "refused the password")):
        with pytest.raises(Unavailable, match=f"the server {said}"):
            BullmqStore(place._replace(password=password))
    BullmqStore(place._replace(password="right")).close()


def test_a_missing_permission_concerns_one_change(server: TestServer) -> None:
    """A user who may not delete keys scans and retries; a purge says what is not permitted and
    changes nothing."""
    with server.client() as client:
        write_failed(client, "1")
        client.acl_setuser(
            "reader", enabled=True, passwords=["+x"], keys=["*"], commands=["+@all", "-copy"]
        )
    place = parse_place(parse_address(server.place()))
    options = {**place.options, "username": "reader"}
    with closing(BullmqStore(place._replace(options=options, password="x"), lambda: NOW)) as store:
        task = found(store, "mails/1")
        refusals = {transition: edge.refusal for transition, edge in store.edges.items()}
        assert refusals[State.DEAD, State.TRASH] == (
            "the server does not permit COPY (keys ~bull:* and ~spooldeck:bull:*)"
        )
        assert refusals[State.DEAD, State.PENDING] == ""
        found_by_doctor = [
            one.problem for name, one in check_store(store, NOW, "", "") if name == "rights"
        ]
        assert found_by_doctor == [f"hold, purge: {refusals[State.DEAD, State.TRASH]}"]
        with pytest.raises(Unsupported, match="does not permit COPY"):
            store.swap(task, verbs.purge(task, NOW))
        store.edges = EDGES
        with pytest.raises(Unsupported, match="no permission"):
            store.swap(task, verbs.purge(task, NOW))
        assert scanned(store)[0] == {task.id: task}
        store.swap(task, verbs.retry(task, NOW))
        assert found(store, "mails/1").state is State.PENDING


def test_a_user_of_the_keys_of_bullmq_alone_sees_and_retries(server: TestServer) -> None:
    """What needs our own keys is refused and names them; changes of others are heard."""
    with server.client() as client:
        write_failed(client, "1")
        client.execute_command("ACL", "SETUSER", "op", "on", ">x", "+@all", "-time", "~bull:*")
        place = parse_place(parse_address(server.place()))
        place = place._replace(options={**place.options, "username": "op"}, password="x")
        with closing(BullmqStore(place, lambda: NOW)) as store:
            wait = store.changes.wait
            assert wait is not None and wait(0.0) == set()
            (task,) = scanned(store)[0].values()
            assert scanned(store)[1] == {}
            assert store.edges[State.DEAD, State.PENDING].refusal == ""
            assert store.edges[State.DEAD, State.TRASH].refusal.endswith(
                "SADD, XADD (keys ~bull:* and ~spooldeck:bull:*)"
            )
            store.swap(task, verbs.retry(task, NOW))
            assert wait(PATIENCE) == {task.id}
            store.edges = EDGES
            with pytest.raises(Unsupported, match="the user needs ~bull:"):
                store.swap(found(store, task.id), verbs.hold(found(store, task.id), NOW))


def test_a_user_without_the_right_to_scan_is_one_line(server: TestServer) -> None:
    """A place whose keys may not be read is unavailable, with the reason."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "blind", "on", ">x", "+@all", "resetkeys")
    place = parse_place(parse_address(server.place()))
    options = {**place.options, "username": "blind"}
    with closing(BullmqStore(place._replace(options=options, password="x"))) as store:
        for ask in (lambda: list(store.scan()), store.count_tasks, lambda: [*store.controls]):
            with pytest.raises(Unavailable, match="no permission"):
                ask()


def test_a_replica_is_shown_and_refuses_changes(server: TestServer) -> None:
    """Each edge and each control has the reason; so has a take."""
    with ExitStack() as stack:
        replica = stack.enter_context(running_server())
        client = stack.enter_context(replica.client())
        write_waiting(client, "1")
        client.replicaof("127.0.0.1", 1)
        store = stack.enter_context(closing(open_place(replica.place())))
        assert set(scanned(store)[0]) == {"mails/1"}
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
        address.symlink_to(old.url.removeprefix("redis+unix://"))
        old_client, client = (stack.enter_context(each.client()) for each in (old, new))
        if not is_open:
            old_client.replicaof("127.0.0.1", 1)
        store = stack.enter_context(closing(open_place(f"redis+unix://{address}")))
        old_client.replicaof("127.0.0.1", 1)
        address.unlink()
        address.symlink_to(new.url.removeprefix("redis+unix://"))
        write_waiting(client, "1")
        if is_open:
            with pytest.raises(Unsupported, match="read-only replica"):
                store.add_job(NewJob("mails", "report"))
            assert [task.id for task in store.take(NOW, "me", 1)] == ["mails/1"]
        else:
            (task,) = scanned(store)[0].values()
            assert (task.id, {edge.refusal for edge in store.edges.values()}) == ("mails/1", {""})
            store.swap(task, verbs.hold(task, NOW))


def test_a_server_that_became_a_replica_refuses(server: TestServer) -> None:
    """The server's own refusal is as clear."""
    with server.client() as client, closing(open_place(server.place())) as store:
        write_failed(client, "1")
        task = found(store, "mails/1")
        client.replicaof("127.0.0.1", 1)
        with pytest.raises(Unsupported, match="read-only replica"):
            store.swap(task, verbs.retry(task, NOW))


def test_a_full_server_is_full(server: TestServer) -> None:
    """With noeviction a change that needs memory is refused, and nothing changed."""
    with server.client() as client, closing(open_place(server.place())) as store:
        write_failed(client, "1")
        task = found(store, "mails/1")
        client.config_set("maxmemory", "1")
        with pytest.raises(Full, match="memory is full"):
            store.swap(task, verbs.purge(task, NOW))
        client.config_set("maxmemory", "0")
        assert found(store, "mails/1") == task


@pytest.mark.parametrize("is_paused", [False, True])
def test_jobs_of_a_full_server_can_be_deleted(server: TestServer, *, is_paused: bool) -> None:
    """Waiting, delayed, with a priority, failed, completed ones: expunge takes no memory. The next
    run of a schedule and a child that its parent waits for stay."""
    with server.client() as client, closing(open_place(server.place())) as store:
        write_waiting(client, "w")
        client.hset("bull:mails:meta", "version", "bullmq:5.81.5")
        write_failed(client, "f")
        for place in ("delayed", "prioritized", "completed"):
            write_hash(client, f"bull:mails:{place[0]}", parentKey="")
            client.zadd(f"bull:mails:{place}", {place[0]: 4096})
        write_hash(client, "bull:mails:repeat:x:5", rjk="x")
        client.zadd("bull:mails:repeat", {"x": 5})
        client.zadd("bull:mails:delayed", {"repeat:x:5": 4096})
        write_waiting(client, "child", parentKey="bull:mails:parent")
        client.sadd("bull:mails:parent:dependencies", "bull:mails:child")
        if is_paused:
            store.control("pause", "mails", "1")
        tasks = scanned(store)[0]
        client.config_set("maxmemory", "1")
        kept = set[str]()
        for ident, task in tasks.items():
            try:
                store.swap(task, None)
            except Unsupported:
                kept.add(ident)
        assert kept == {"mails/repeat:x:5", "mails/child"}
        assert scanned(store)[0].keys() == kept
        client.config_set("maxmemory", "0")


def test_a_cluster_is_refused() -> None:
    """Before anything is read, in one line with the address, what is there and what was
    expected."""
    with running_server("--cluster-enabled", "yes", "--databases", "1") as server:
        said = refusal(server.place())
    assert said.partition(": ")[2] == (
        "a node of a Redis Cluster, which is not supported; expected a single server"
    )


def test_a_server_that_loads_its_data_is_waited_for(tmp_path: Path) -> None:
    """A restarted server that reads its file cannot be opened; a worker's claim is Unavailable, and
    works when the data is there."""
    with running_server(folder=tmp_path) as server, server.client() as client:
        for number in range(300):
            write_waiting(client, f"j{number}", data="x" * 1100)
        store = open_place(server.place())
        client.save()
    with running_server(folder=tmp_path, is_loading=True) as server:
        assert "still loading its data" in refusal(server.place())
        with pytest.raises(Unavailable, match="still loading its data"):
            list(store.take(NOW, "me", 1))
        with server.client(retry=Retry(ConstantBackoff(0.02), 3000)) as client:
            client.config_set("key-load-delay", 0)
            client.ping()  # redis-py tries again while it gets LOADING
        assert len(list(store.take(NOW, "me", 300))) == 300
        store.close()


class Impostor:
    """A server that answers each line with what it is given, then closes."""

    def __init__(self, folder: Path, answers: list[bytes]) -> None:
        self.path = str(folder / "impostor")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._answers = answers
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        with client:
            while self._answers and client.recv(65536):
                client.sendall(self._answers.pop(0))

    def close(self) -> None:
        """End the thread."""
        self._listener.close()
        self._thread.join(5)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", "still loading its data"),
        (b"-ERR max number of clients reached\r\n", "max number of clients"),
        (b"$100\r\ncut in mid-", "not connected"),
        (b"no protocol at all\r\n", ""),
    ],
)
def test_an_odd_answer_is_one_line(tmp_path: Path, answer: bytes, message: str) -> None:
    """While the connection is opened: loading, too many clients, a cut, another program."""
    answers = [answer] if answer.endswith(b"-") else [answer] * 9
    with closing(Impostor(tmp_path, answers)) as impostor:
        assert message in refusal(f"redis+unix://{impostor.path}")


class CuttingProxy:
    """Passes everything to a server and back; drops so many answers as told, each with its
    connection."""

    def __init__(self, folder: Path, server: str) -> None:
        self.path, self.cuts = str(folder / "proxy"), 0
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            while data := client.recv(1 << 20):
                server.sendall(data)
                answer = server.recv(1 << 20)
                if self.cuts:
                    client.sendall(answer[: len(answer) // 2])
                    self.cuts -= 1
                    break
                client.sendall(answer)

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def test_a_change_is_not_sent_again_after_a_cut(server: TestServer, tmp_path: Path) -> None:
    """Cut in the middle of its answer, a change is Unavailable although it was made; it is made
    once, and the next scan connects again and shows it."""
    path = server.url.removeprefix("redis+unix://")
    with server.client() as client, closing(CuttingProxy(tmp_path, path)) as proxy:
        write_failed(client, "1")
        with closing(open_place(f"redis+unix://{proxy.path}")) as store:
            task = found(store, "mails/1")
            store.swap(task, verbs.hold(task, NOW))
            for state in (State.TRASH, State.HELD):  # so that the server has the script
                stored_task = found(store, "mails/1")
                store.swap(stored_task, stored_task._replace(state=state))
            held = found(store, "mails/1")
            proxy.cuts = 1
            with pytest.raises(Unavailable, match="not connected"):
                store.swap(held, verbs.purge(held, NOW))
            assert found(store, "mails/1").state is State.TRASH
            assert client.xlen("spooldeck:bull:changes") == 4


def test_a_renewal_that_is_cut_off_is_no_lost_claim(server: TestServer, tmp_path: Path) -> None:
    """If only the answer to a renewal is lost, the claims are extended, and their outcomes can be
    stored. If the server cannot be asked either, the outcome of each is Unavailable: not known."""
    path = server.url.removeprefix("redis+unix://")
    with server.client() as client, closing(CuttingProxy(tmp_path, path)) as proxy:
        for ident in ("1", "2"):
            write_waiting(client, ident)
        with closing(open_place(f"redis+unix://{proxy.path}")) as store:
            tasks = list(store.take(NOW, "us", 2))
            assert len(tasks) == 2
            for until in (NOW + 60, NOW + 90):  # then the server has the script
                proxy.cuts = int(until > NOW + 60)
                outcomes = list(store.renew(tasks, until))
                assert [(o.move.old, o.error) for o in outcomes] == [(t, None) for t in tasks]
                tasks = [o.move.new for o in outcomes if o.move.new is not None]
            store.swap(tasks[0], verbs.complete(tasks[0], State.DONE))
            assert client.zrange("bull:mails:completed", 0, -1) == [tasks[0].id.partition("/")[2]]

            proxy.cuts = 99
            (lost,) = store.renew(tasks[1:], NOW + 120)
            assert (lost.move.old, type(lost.error)) == (tasks[1], Unavailable)


def test_a_killed_server_loses_nothing(tmp_path: Path) -> None:
    """With an append only file that is synced each time, what was answered is there after kill -9,
    and an open store goes on: it loads its scripts and waits for changes again."""
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with ExitStack() as stack:
        first = stack.enter_context(running_server(*options, folder=tmp_path))
        store = stack.enter_context(closing(open_place(first.place())))
        wait = store.changes.wait
        assert wait is not None
        with first.client() as client:
            for number in "123":
                write_failed(client, number)
        one, two, _ = sorted({*scanned(store)[0].values()}, key=lambda task: task.id)
        store.swap(one, verbs.purge(one, NOW))
        store.swap(two, verbs.retry(two, NOW))
        before = scanned(store)[0]
        wait(0.0)
        assert first.process is not None
        first.process.kill()
        first.process.wait()
        for ask in (lambda: scanned(store), lambda: wait(60.0)):
            with pytest.raises(Unavailable):
                ask()

        again = stack.enter_context(running_server(*options, folder=tmp_path))
        assert scanned(store)[0] == before
        store.swap(before[two.id], verbs.hold(before[two.id], NOW))
        with again.client() as client:
            client.xadd("bull:mails:events", {"event": "added", "jobId": "3"})
        names = wait(60.0)
        assert names is None or "mails/3" in names


def test_scripts_are_loaded_again_after_a_flush(server: TestServer) -> None:
    """A server that has forgotten the scripts gets their texts, also within a pipeline."""
    with server.client() as client, closing(open_place(server.place())) as store:
        for number in "123":
            write_failed(client, number)
        tasks = [*scanned(store)[0].values()]
        for task in tasks:
            client.script_flush()
            store.swap(task, verbs.retry(task, NOW))
        assert {t.state for t in scanned(store)[0].values()} == {State.PENDING}


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_wrong_loses_nothing(server: TestServer, hours: int) -> None:
    """An hour off, claims and outcomes work; only times are off."""
    with server.client() as client:
        for number in "12":
            write_waiting(client, number)

    def clock() -> float:
        return NOW + 3600 * hours

    place = parse_place(parse_address(server.place()))
    with closing(BullmqStore(place, clock)) as store, closing(open_place(server.place())) as other:
        (task,) = store.take(clock(), "me", 1)
        (theirs,) = other.take(NOW, "they", 1)
        (renewed,) = store.renew([task], clock() + 60)
        assert renewed.move.new is not None
        store.swap(renewed.move.new, verbs.nack(renewed.move.new, clock() + 60, "later"))
        other.swap(theirs, verbs.give_up_task(theirs, "no"))
        states = {i: t.state for i, t in scanned(other)[0].items()}
        assert sorted(states.values()) == [State.DEAD, State.PENDING]
