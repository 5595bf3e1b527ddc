"""Run a mail program: input, output, timeout, children, environment."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.mail.model import NotSent, Reason
from engine.mail.run_program import run
from engine.mail.transports.installed import System
from engine.system import users
from engine.system.run_program import PASSED_VARIABLES, PATH, environment, find_program
from engine.system.supervisor import MAX_OUTPUT_BYTES, ProgramResult
from tests.engine.sample_mails import never
from tests.open_files import open_files
from tests.programs import a_script, needs, needs_root

SMALL, LARGE = b"From: us\n\n.\nlast", b"x" * 3_000_000
"""What fits into a pipe's buffer, and what does not."""


Make = Callable[[str], str]


@pytest.fixture
def program(tmp_path: Path) -> Make:
    """Make a shell script executable and return its path; it runs in `tmp_path`."""
    return lambda script: a_script(tmp_path / "program", f"cd {tmp_path}\n{script}")


def ran(path: str, stdin: bytes = b"", timeout: float = 30, grace: float = 5) -> ProgramResult:
    """Run a program that is not cancelled."""
    return run([path], stdin, timeout, never, grace=grace)


def is_gone(pid: int) -> bool:
    """Whether a process ends soon, if it has not; a zombie has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def gone(pid: int) -> bool:
    """Whether a process that was killed is gone: the kernel may take a moment."""
    end = time.monotonic() + 10
    while not is_gone(pid) and time.monotonic() < end:
        time.sleep(0.005)
    return is_gone(pid)


def test_a_program_is_given_every_byte(program: Make, tmp_path: Path) -> None:
    """A mail of any size comes whole, and then the input ends."""
    path = program("cat > given; echo taken; echo thanks >&2")
    for data in (b"", SMALL, LARGE):
        assert ran(path, data) == ProgramResult(0, b"taken\nthanks\n")
        assert (tmp_path / "given").read_bytes() == data


def test_a_program_that_does_not_read_the_mail_is_reported(program: Make) -> None:
    """One that ends or closes its input early has not, though the mail fitted into the pipe."""
    scripts = ("exit 0", "exec <&-", "head -c 10 > given", "exec <&-; echo bye", "exit 75")
    for script in scripts:
        path = program(script)
        for data in (SMALL, LARGE):
            result = ran(path, data)
            assert (result.has_unread_input, result.end_reason) == (True, ""), script
    assert ran(program("exit 3")) == ProgramResult(3, b"")


def test_a_signal_is_a_negative_status(program: Make) -> None:
    """A program ended by a signal has its number as status, also while we ignore SIGCHLD."""
    assert ran(program("kill -SEGV $$")) == ProgramResult(-signal.SIGSEGV, b"")
    assert ran(program("kill -TERM $$; sleep 60")) == ProgramResult(-signal.SIGTERM, b"")
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        result = ran(program("cat > given; echo no; exit 75"), SMALL)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert result == ProgramResult(75, b"no\n")


def test_the_last_64_kib_of_output_are_kept(program: Make) -> None:
    """A program may print a megabyte before it reads and after; the last 64 KiB are kept."""
    much = "head -c 1000000 /dev/zero | tr '\\0' x"
    result = ran(program(f"{much}; cat > given; {much} >&2; echo; echo the end"), LARGE)
    output = b"x" * (MAX_OUTPUT_BYTES - 9) + b"\nthe end\n"
    assert result == ProgramResult(0, output)


def test_a_program_that_does_not_end_in_time_is_killed(program: Make) -> None:
    """At the timeout it gets SIGTERM, after the grace SIGKILL; also if it prints without end."""
    result = ran(program("exec sleep 600"), SMALL, timeout=0.3)
    assert (result.status, result.end_reason) == (-signal.SIGTERM, "timeout after 0.3 s")
    result = ran(program("exec yes"), SMALL, timeout=1)
    assert (result.end_reason, len(result.output)) == ("timeout after 1 s", MAX_OUTPUT_BYTES)
    result = ran(program("trap '' TERM; while :; do sleep 600; done"), SMALL, timeout=3, grace=0.2)
    assert (result.status, result.end_reason) == (-signal.SIGKILL, "timeout after 3 s")


@pytest.mark.parametrize(("script", "ended_by", "has_unread_input"), [
    ("sleep 600 & cat > given; {ready}; wait", signal.SIGTERM, False),
    ("trap '' TERM; sleep 600 & {ready}; while :; do sleep 600; done", signal.SIGKILL, True),
])  # fmt: skip
def test_the_whole_process_group_is_ended(
    program: Make, tmp_path: Path, script: str, ended_by: signal.Signals, has_unread_input: bool
) -> None:
    """A cancelled program and its children get SIGTERM, after the grace SIGKILL."""
    child = tmp_path / "child"
    path = program(script.format(ready="echo $! > new; mv new child"))

    result = run([path], SMALL, 600, child.exists, grace=0.2 if has_unread_input else 30)

    assert (result.status, result.end_reason) == (-ended_by, "stopped")
    assert result.has_unread_input == has_unread_input
    assert gone(int(child.read_text()))


def test_children_left_behind_are_killed(program: Make, tmp_path: Path) -> None:
    """A child of a failed program is killed; one of a program that took the mail has the grace."""
    script = "cat > given; sleep 600 & echo $! > child; echo no; exit 75"
    assert ran(program(script), SMALL) == ProgramResult(75, b"no\n")
    assert gone(int((tmp_path / "child").read_text()))
    script = "cat > given; (sleep 0.1; echo done > done; echo done) & exit 0"
    assert ran(program(script), SMALL) == ProgramResult(0, b"done\n")
    assert (tmp_path / "done").read_text() == "done\n"
    script = "cat > given; sleep 600 & echo $! > child"
    assert ran(program(script), SMALL, grace=0.2) == ProgramResult(0, b"")
    assert gone(int((tmp_path / "child").read_text()))


def test_a_program_that_cannot_be_started_is_unavailable(program: Make, tmp_path: Path) -> None:
    """A missing, plain or odd file, and too many open files, are reported with the reason."""
    plain, executable = tmp_path / "plain", tmp_path / "odd"
    for path in (plain, executable):
        path.write_text("cat > /dev/null\n")
    executable.chmod(0o755)
    for path in (tmp_path / "missing", plain, executable, tmp_path):
        with pytest.raises(NotSent, match=f"cannot start {path}: ") as failure:
            ran(str(path), SMALL)
        assert failure.value.reason is Reason.UNAVAILABLE
        assert (failure.value.word, failure.value.permanent) == ("unavailable_not_started", False)
    with pytest.raises(NotSent) as failure:
        run([program("true"), "x" * 200_000], SMALL, 5, never)
    assert failure.value.word == "unavailable_usage"  # the fault of this mail, not of the worker
    path_of_program = program("cat > given")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(NotSent, match=r"cannot start .*: Too many open files"):
            ran(path_of_program, SMALL)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_descriptor_is_left_open(program: Make, tmp_path: Path) -> None:
    """After attempts of all kinds no file is open that was not before."""
    before = open_files()
    ran(program("cat > given"), LARGE)
    ran(program("exit 1"), LARGE)
    ran(program("exec sleep 600"), SMALL, timeout=0.1)
    with pytest.raises(NotSent):
        ran(str(tmp_path / "missing"))
    assert not open_files() - before


def test_a_program_inherits_only_what_it_is_passed(program: Make, tmp_path: Path) -> None:
    """Of our open files it sees those it was given, and its place is the root folder."""
    passed, kept_fd = os.memfd_create("passed"), os.memfd_create("kept")
    os.set_inheritable(kept_fd, True)
    listing = "import os; print(os.getcwd(), *sorted(map(int, os.listdir('/proc/self/fd'))))"
    result = run([sys.executable, "-c", listing], b"", 30, never, pass_fds=(passed,))
    os.close(passed)
    os.close(kept_fd)
    cwd, *numbers = result.output.decode().split()
    opened = {int(number) for number in numbers} - {passed}
    assert cwd == "/"
    # One more is that of the listing itself.
    assert opened == {0, 1, 2, min({3, 4} - {passed})}


def test_a_program_gets_a_small_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixed PATH and locale, its configuration, no password; programs are not found by PATH."""
    environ = {
        **{"NFTBAN_SMTP_PASS": "hunter2", "LANG": "de_DE.UTF-8", "PATH": "/tmp/evil"},
        **{"LD_PRELOAD": "/tmp/evil.so", "MAILRC": "/tmp/evil.rc", "HOME": "/root"},
        "XDG_CONFIG_HOME": "/root/.config",
    }
    result = run(["/usr/bin/env"], b"", 30, never, environment(environ))
    homes = {"HOME=/root", "XDG_CONFIG_HOME=/root/.config"}
    assert set(result.output.decode().splitlines()) == {f"PATH={PATH}", "LC_ALL=C.UTF-8", *homes}

    monkeypatch.setenv("NFTBAN_SMTP_PASS", "hunter2")
    result = run(["/usr/bin/env"], b"", 30, never)
    names = {line.partition("=")[0] for line in result.output.decode().splitlines()}
    assert names <= {"PATH", "LC_ALL", *PASSED_VARIABLES}

    monkeypatch.setenv("PATH", "/nowhere")
    assert os.access(find_program("sh"), os.X_OK)
    assert find_program("no-such-program") == ""


BEYOND_REACH = """
import os, sys
import encodings.idna
import engine.system.supervisor
from engine.mail.run_program import run
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
pid, *argv = sys.argv[1:]
print(tuple(run(argv, b"", 60, lambda: os.path.exists(pid), grace=0.1)))
"""


def test_a_program_that_cannot_be_killed_is_not_waited_for() -> None:
    """A program that became root outlives the attempt, which ends in time, status unknown."""
    needs_root("to make a program that becomes root")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        pid, becoming = folder / "pid", folder / "setpriv"
        becoming.write_bytes(Path(needs("setpriv")).read_bytes())
        becoming.chmod(0o4755)
        script = a_script(folder / "script", f"echo $$ > {pid}; echo ready; exec sleep 600")
        argv = [str(pid), str(becoming), "--reuid=0", "--regid=0", "--clear-groups", script]
        argv = [sys.executable, "-P", "-c", BEYOND_REACH, *argv]
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
        try:
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
            alive = not is_gone(int(pid.read_text()))
        finally:
            os.kill(int(pid.read_text()), signal.SIGKILL)
    assert done.stdout == "(None, b'ready\\n', 'stopped', False)\n", done.stderr
    assert alive


def test_root_runs_a_program_as_the_given_user() -> None:
    """A program has the user, the groups and the home of an account, and nothing of ours."""
    needs_root("to run a program as nobody")
    account = users.account_named("nobody")
    system = System(environ={"HOME": "/root", "XDG_CONFIG_HOME": "/root/.c"}, account=account)
    script = 'id -u; id -G; echo "$HOME" "${XDG_CONFIG_HOME-none}"'
    result = run(["/bin/sh", "-c", script], b"", 30, never, system.environment(), account=account)
    groups = " ".join(map(str, account.groups))
    assert result.output.decode() == f"{account.uid}\n{groups}\n{account.home} none\n"
