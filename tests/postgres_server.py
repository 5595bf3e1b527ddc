"""A Postgres server for tests, on a UNIX socket in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg

URL_VARIABLE = "TEST_POSTGRES_URL"
"""Names a database that is there already; tests create and drop tables in it."""

START_TIMEOUT_SECONDS = 30.0


def find_program(name: str) -> str:
    """A program of the server: from PATH, else from Debian's folder; "" without one."""
    programs = [str(path) for path in Path("/usr/lib/postgresql").glob(f"*/bin/{name}")]
    return shutil.which(name) or max(programs, default="")


@contextmanager
def running_server() -> Iterator[str]:
    """Start a server with an empty database, yield its URL, and end it by its PID.

    The server refuses to run as root; it then runs as the user nobody.

    Raises:
        FileNotFoundError: there is no server program.
    """
    programs = [find_program("initdb"), find_program("postgres")]
    if not all(programs):
        raise FileNotFoundError("no postgres and initdb: apt-get install postgresql")
    initdb, postgres = programs
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    rights = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}
    rights = rights if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="sdp", dir="/tmp") as folder:
        data, log = Path(folder, "data"), Path(folder, "log")
        os.chown(folder, user.pw_uid, user.pw_gid)
        words = [initdb, "-D", str(data), "-U", "tests", "-A", "trust", "-E", "UTF8", "-N"]
        words += ["--no-locale", "--no-instructions"]
        subprocess.run(words, check=True, capture_output=True, cwd=folder, **rights)  # type: ignore[call-overload]
        words = [postgres, "-D", str(data), "-k", folder, "-h", "", "-F"]
        words += ["-c", "max_connections=20", "-c", "shared_buffers=16MB"]
        with log.open("wb") as output:
            process = subprocess.Popen(words, stdout=output, stderr=output, cwd=folder, **rights)  # type: ignore[call-overload]
        url = f"postgresql://tests@/postgres?host={quote(folder, safe='')}"
        try:
            _await_answer(url, process, log)
            yield url
        finally:
            process.send_signal(signal.SIGQUIT)  # without a checkpoint: nothing is kept
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}") from None
            time.sleep(0.01)


@contextmanager
def open_server() -> Iterator[str]:
    """The URL of `$TEST_POSTGRES_URL`, else of a server of our own."""
    url = os.environ.get(URL_VARIABLE, "")
    if url:
        yield url
    else:
        with running_server() as own:
            yield own
