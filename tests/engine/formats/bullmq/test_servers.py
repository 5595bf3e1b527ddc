"""Servers of this host are found by address and socket, with the databases that have queues."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pytest import MonkeyPatch

from engine.config.place_address import Address
from engine.formats.base.format import InstalledPlace
from engine.formats.bullmq import servers
from engine.formats.bullmq.servers import find_queues, listening_users, server_lookups
from tests.bullmq_jobs import write_waiting
from tests.redis_server import find_server, running_server
from tests.unprivileged_user import as_other_user


def problems(url: str) -> dict[str, str]:
    """Why each place of a server is not opened, "" if it is."""
    found = [*find_queues(url)]
    assert all(one.is_enabled is not bool(one.problem) for one in found)
    return {one.place: one.problem for one in found}


def test_each_database_with_queues_is_a_place() -> None:
    """By the address and by the socket, with the same identity; other databases are none."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with running_server("--port", str(port), "--bind", "127.0.0.1") as server:
        for number in (0, 3):
            write_waiting(server.client(number), "mail", "1")
        server.client(5).set("page:1", "cached")
        by_address = [*find_queues(f"redis://localhost:{port}")]
        by_socket = [*find_queues(server.url)]
    assert [one.place for one in by_address] == [f"redis://localhost:{port}/{n}" for n in (0, 3)]
    assert [one.place for one in by_socket] == [server.url, f"{server.url}?db=3"]
    assert [one.identity for one in by_address] == [one.identity for one in by_socket]
    assert not any(one.problem for one in by_address)


def test_a_server_without_queues_is_not_opened(monkeypatch: MonkeyPatch) -> None:
    """It may be a cache; of one with many keys the first are searched, and that is in the text."""
    with running_server() as server:
        server.client().set("page:1", "cached")
        (one,) = find_queues(server.url)
        closed = InstalledPlace(
            server.url, is_enabled=False, problem="no queue with the prefix bull"
        )
        assert one == closed._replace(identity=one.identity)
        server.client().mset({f"page:{n}": "cached" for n in range(40_000)})
        monkeypatch.setattr(servers, "MAX_STEPS", 1)
        (one,) = find_queues(server.url)
        assert one.problem == "no queue with the prefix bull in the first 5,000 keys"


def test_no_password_is_sent() -> None:
    """A server that needs one is found, with where to write it."""
    with running_server("--requirepass", "secret") as server:
        where = "it needs a password: write its URL with the password into `places`"
        assert problems(server.url) == {server.url: where}
        known = Address(server.url, "secret"), Address("redis://h/0", "other")
        (one,) = find_queues(server.url, known)
        assert one.problem == "it needs a password: its URL in `places` has one"


ANSWERS = """\
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
server.accept()[0].sendall(sys.argv[1].encode() + b"\\r\\n")
sys.stdin.read()
"""


@contextmanager
def answering(line: str, **options: Any) -> Iterator[int]:
    """A program that listens on a port and answers the first connection with a line; the port."""
    pipe = subprocess.PIPE
    words = ["python3", "-c", ANSWERS, line]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, **options) as other:
        assert other.stdout is not None
        yield int(other.stdout.readline())
        other.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root opens nothing of others")
def test_root_opens_no_server_of_a_user(monkeypatch: MonkeyPatch) -> None:
    """Any user can listen on the port: it is listed, with the uid, or that the uid is unknown."""
    named = "listens there: name its URL to open it as root"
    with answering("+PONG", user=12345) as port:
        url = f"redis://localhost:{port}"
        assert listening_users(port) == {12345}
        assert problems(url) == {f"{url}/0": f"uid 12345 {named}"}
    assert listening_users(port) == set()
    with running_server("--port", str(port), "--bind", "127.0.0.1"):
        assert problems(url) == {f"{url}/0": "no queue with the prefix bull"}
        monkeypatch.setattr(servers, "listening_users", lambda port: set())
        assert problems(url) == {f"{url}/0": f"unknown which user {named}"}


def test_a_server_that_never_answers_ends_the_search(tmp_path: Path) -> None:
    """It accepts connections; the reason has the seconds. A missing socket, one on which none
    listens, and a port of another protocol are no servers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        url = f"redis://localhost:{server.getsockname()[1]}"
        expected = f"it accepts, and does not answer within {servers.ANSWER_SECONDS:g} s"
        assert problems(url) == {f"{url}/0": expected}

    stale = tmp_path / "stale"
    with closing(socket.socket(socket.AF_UNIX)) as one:
        one.bind(str(stale))
    with answering("220 mail") as port:
        for url in (f"redis+unix://{stale}", f"redis+unix://{stale}2", f"redis://localhost:{port}"):
            assert problems(url) == {}


@pytest.mark.skipif(not find_server(), reason="no server program")
def test_a_socket_that_is_closed_to_us_is_found(tmp_path: Path) -> None:
    """As another user: the reason names its owner and group as those who may."""
    with running_server("--unixsocketperm", "700") as server:
        Path(server.socket).parent.chmod(0o755)

        def act() -> None:
            assert problems(server.url) in (
                {server.url: "permission denied: its socket is for its owner and group"},
                {server.url: "no queue with the prefix bull"},  # not root: our own server
            )

        as_other_user(act)


def test_where_is_looked() -> None:
    """The loopback address, and the sockets of the packages of both programs."""
    where = [one.where for one in server_lookups()]
    assert where[0] == "redis://localhost" and "/run/redis/redis-server.sock" in where
    assert "/run/valkey/valkey-server.sock" in where
