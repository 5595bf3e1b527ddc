"""Facts about a server: when they are read, and its process, disk and log."""

import os
import re
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

from engine.programs import server_watch
from engine.programs.mail_log import NO_LOG, MailLog
from engine.programs.prefix import HERE, Prefix
from engine.programs.server_watch import LogEnd, ServerProcess, find_process, read_log_end
from tests.programs import a_script
from tests.tables import each

MISSING = Prefix("gone", ("/nonexistent/program",))


@each(
    ("prefix", "seconds"), [(HERE, server_watch.HERE_SECONDS), (MISSING, server_watch.FAR_SECONDS)]
)
def test_facts_are_read_again_after_some_seconds(prefix: Prefix, seconds: float) -> None:
    """Those of another host less often, the settings seldom, what a listing has each time."""
    now, calls = [0.0], list[str]()

    def find() -> SimpleNamespace:
        calls.append("open")
        return SimpleNamespace(prefix=prefix)

    def read(server: SimpleNamespace) -> float:
        calls.append("read")
        return now[0]

    def show(server: SimpleNamespace, host: float) -> tuple[float, float]:
        return host, now[0]

    watch = server_watch.ServerWatch(find, read, show, steady=lambda: now[0])
    late = server_watch.SETTINGS_SECONDS
    for moment, read_at in ((0.0, 0.0), (seconds - 1, 0.0), (seconds, seconds), (late, late)):
        now[0] = moment
        assert watch.figures() == (read_at, moment)
    assert calls == ["open", "read", "read", "open", "read"]


def test_a_process_is_found_by_its_pid_file(tmp_path: Path) -> None:
    """It runs if its program has the name; a file that is missing or damaged names none."""
    path, began = tmp_path / "pid", time.time()
    with subprocess.Popen(["sleep", "60"]) as process:
        path.write_text(f"   {process.pid}\n")
        found = find_process(HERE, str(path), "sleep")
        other = find_process(HERE, str(path), "master")
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        zombie = find_process(HERE, str(path), "sleep")
    assert (found.pid, found.is_running) == (process.pid, True)
    assert found.since is not None and abs(found.since - began) < 60
    assert other == zombie == find_process(HERE, str(path), "sleep")
    assert other == ServerProcess(is_running=False)
    for text in ("", "x\n"):
        path.write_text(text)
        assert find_process(HERE, str(path), "sleep") == other
    path.unlink()
    assert find_process(HERE, str(path), "sleep") == other


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    """A prefix that fails proves nothing. The free bytes are those of the file system."""
    process = find_process(MISSING, f"{tmp_path}/pid", "master")
    assert process.is_running is None and "/nonexistent/program" in process.why
    assert find_process(HERE, str(tmp_path), "master").why.endswith("Is a directory")
    assert server_watch.count_free_bytes(MISSING, str(tmp_path)) is None
    assert server_watch.count_free_bytes(HERE, f"{tmp_path}/none") is None
    its, free = os.statvfs(tmp_path), server_watch.count_free_bytes(HERE, str(tmp_path))
    assert free is not None and abs(free - its.f_bavail * its.f_frsize) < 1 << 30
    assert "/nonexistent/program" in read_log_end(_log(tmp_path / "log", MISSING), "mta/q").problem


def _log(path: Path, prefix: Prefix = HERE) -> MailLog:
    return MailLog((str(path),), lambda text: None, str.isalnum, re.compile(b"x"), prefix=prefix)


def test_the_end_of_a_log(tmp_path: Path) -> None:
    """The last line of the program is found; without one, since when the log is known."""
    path = tmp_path / "log"
    path.write_text(
        "1767787200.500000 mx1 mta/q[7]: a\n1767787260.000000 mx1 mta/smtp[8]: mta/q[7] b\n"
    )
    assert read_log_end(_log(path), "mta/q") == LogEnd(1767787200.5, 1767787200.5)
    assert read_log_end(_log(path), "mta/pickup") == LogEnd(None, 1767787200.5)


def test_a_log_that_may_not_be_read_has_its_reason(tmp_path: Path) -> None:
    """Neither a missing file behind it nor a journal that prints nothing hides it."""
    log, none = _log(tmp_path / "none"), str(tmp_path / "none")
    for changes, why in (
        ({}, "No such file or directory"),
        ({"paths": ()}, NO_LOG),
        # tail cannot read a folder
        ({"paths": (str(tmp_path), none), "journal": ("true",)}, "Is a directory"),
        ({"paths": (), "journal": ("false",)}, "status 1"),
    ):
        assert read_log_end(log._replace(**changes), "mta/q").problem.endswith(why)


@each("zone", ["TZ=JST-9", "TZ=EST5"])
def test_the_end_of_a_log_of_another_zone(tmp_path: Path, zone: str) -> None:
    """Its times are those of the host there; of an unknown zone, nothing is known."""
    path = tmp_path / "log"
    path.write_text("Jan  7 12:00:00 mx1 mta/q[7]: a\n" * 2)
    script = a_script(tmp_path / "box", 'case "$*" in *date*) exit 1;; esac; exec "$@"')
    end = read_log_end(_log(path, Prefix("box", ("env", zone))), "mta/q")
    assert end.last == end.since and end.last is not None
    hours = {"TZ=JST-9": "03:00", "TZ=EST5": "17:00"}
    assert time.strftime("%m-%d %H:%M", time.gmtime(end.last)) == f"01-07 {hours[zone]}"
    assert read_log_end(_log(path, Prefix("box", (script,))), "mta/q") == LogEnd()
