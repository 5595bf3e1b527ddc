"""The supervisor of a program: when we are killed by SIGKILL, no process of the program is left."""

import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.system import supervisor as supervision
from engine.system.supervisor import CannotRun, Program, ProgramResult, SupervisorPool
from tests.programs import a_script, needs

ROOT = Path(__file__).parents[3]
CALLER = """
import os, sys
from engine.system.supervisor import Program, run_supervised
program = Program(sys.argv[1:], os.environ, b"x" * 1_000_000, grace=0.2)
print(run_supervised(program, 60, lambda: False))
"""
"""Runs a program that is given more than fits into a pipe."""


@contextmanager
def caller_of(script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs a script, and is killed in the end."""
    argv, environ = [sys.executable, "-P", "-c", CALLER, script], {"PYTHONPATH": str(ROOT)}
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(argv, env=os.environ | environ, stdin=null, stdout=pipe) as caller:
        try:
            yield caller
        finally:
            caller.kill()


def fifos(folder: Path) -> tuple[Path, Path]:
    """Two FIFOs: one for PIDs, and one for which a script waits."""
    for name in ("pids", "gate"):
        os.mkfifo(folder / name)
    return folder / "pids", folder / "gate"


def run(program: Program, pool: SupervisorPool | None = None, seconds: float = 60) -> ProgramResult:
    """Run a program, by a supervisor of its own or one of a pool."""
    return (pool.run if pool else supervision.run_supervised)(program, seconds, lambda: False)


def shell(script: str, **environ: Any) -> Program:
    """A program of the shell."""
    return Program(["sh", "-c", script], os.environ, **environ)


def ended(pidfds: list[int]) -> bool:
    """Whether all of these processes end, in half a minute each."""
    gone = [bool(select.select([fd], [], [], 30)[0]) for fd in pidfds]
    for fd in pidfds:
        os.close(fd)
    return all(gone)


SCRIPTS = [
    "exec sleep 600",
    "sleep 600 & echo $! >&3; exec sleep 600",
    "trap '' TERM; sleep 600 & echo $! >&3; wait; wait",
    # A process group of its own, as timeout(1) makes one.
    "timeout 600 sh -c 'echo $$ >&3; exec sleep 600' & echo $! >&3; wait",
    # A session of its own; the parent that made it has ended.
    "(setsid sh -c 'echo $$ >&3; exec sleep 600' &); exec sleep 600",
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_process_outlives_the_caller(tmp_path: Path, script: str) -> None:
    """The program, its descendants in any group and session, and the supervisor end."""
    needs("timeout")
    needs("setsid")
    path, _ = fifos(tmp_path)
    program = a_script(tmp_path / "program", f"exec 3> {path}; echo $PPID >&3; {script}")
    with caller_of(program) as caller, path.open() as pids:
        expected = 1 + script.count(">&3")
        pidfds = [os.pidfd_open(int(pids.readline())) for _ in range(expected)]
        caller.kill()
        assert ended(pidfds)


def test_a_killed_caller_never_ends_half_a_mail(tmp_path: Path) -> None:
    """A program that was given half of its input sees no end of it, however long it lives on."""
    path, gate = fifos(tmp_path)
    half = f"trap '' TERM; head -c 200000 > /dev/null; echo $PPID > {path}; read x < {gate}"
    rest = f"cat > /dev/null; echo whole > {tmp_path}/whole"
    with caller_of(a_script(tmp_path / "program", f"{half}\n{rest}")) as caller:
        supervisor = os.pidfd_open(int(path.read_text()))
        caller.kill()
        caller.wait()
        opened = os.open(gate, os.O_RDWR)
        os.write(opened, b"go\n")
        assert ended([supervisor])
    os.close(opened)
    assert not (tmp_path / "whole").exists()


def test_a_killed_supervisor_leaves_no_program(tmp_path: Path) -> None:
    """When the supervisor is killed, the caller kills the program, whose status is unknown."""
    path, _ = fifos(tmp_path)
    # Input is written after the PID is reported.
    script = f"head -c 1 > /dev/null; echo $PPID $$ > {path}; exec sleep 600"
    with caller_of(a_script(tmp_path / "program", script)) as caller:
        supervisor, pid = map(int, path.read_text().split())
        pidfd = os.pidfd_open(pid)
        os.kill(supervisor, signal.SIGKILL)
        assert ended([pidfd])
        assert caller.stdout is not None
        assert caller.stdout.readline().startswith(b"ProgramResult(status=None, ")


@pytest.mark.parametrize("program", [
    Program(["true", "a\0b"], {}), Program(["true", "\ud800"], {}),
    Program(["true"], {"A": "a\0b"}), Program(["true"], {}, cwd="a\0b"),
])  # fmt: skip
def test_a_nul_or_a_lone_surrogate_starts_no_program(program: Program) -> None:
    """In arguments, environment or folder: nothing was started."""
    with pytest.raises(CannotRun) as caught:
        run(program)
    assert not caught.value.started


def test_an_error_after_the_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the supervisor fails while the program runs, the program is killed, with the reason."""

    def fail(*_: object) -> bool:
        raise ValueError("no way to follow")

    monkeypatch.setattr(supervision._Supervisor, "_follow", fail)
    with pytest.raises(CannotRun, match="no way to follow") as caught:
        run(shell("exec sleep 600"))
    assert caught.value.started


def test_a_daemon_outlives_a_program_that_ended(tmp_path: Path) -> None:
    """A process that a program put into a session of its own lives on after its normal end."""
    needs("setsid")
    path, gate = fifos(tmp_path)
    daemon = f"echo $$ > {path}; read x < {gate}"
    ran = run(shell(f"(setsid sh -c '{daemon}' > /dev/null 2>&1 &); read p < {path}; echo $p"))
    os.kill(int(ran.output), 0)
    gate.write_text("go\n")
    assert ran.status == 0


def test_orphans_of_a_running_program_leave_no_zombies() -> None:
    """The supervisor, whose children they become, waits for those that end."""
    script = "pid=$(sh -c 'true & echo $!'); while [ -e /proc/$pid ]; do sleep 0.01; done"
    assert run(shell(script), seconds=20).status == 0


def parent_of_program(pool: SupervisorPool, fds: tuple[int, ...]) -> int:
    """The PID of the supervisor that ran a program."""
    return int(run(shell("echo $PPID", pass_fds=fds), pool).output)


def test_a_supervisor_is_used_again(tmp_path: Path) -> None:
    """Each program has its own environment, input, folder and descriptors."""
    with SupervisorPool() as pool, (tmp_path / "open").open("w") as file:
        fds = (file.fileno(),)
        first = parent_of_program(pool, fds)
        script = f'echo $PPID $A "$(pwd)" "$(cat)"; echo x > /proc/self/fd/{fds[0]}; exit 7'
        argv, env = ["sh", "-c", script], {"A": "1", "PATH": os.environ["PATH"]}
        ran = run(Program(argv, env, b"word", "/", fds), pool)
        assert (ran.status, ran.output) == (7, f"{first} 1 / word\n".encode())
        ran = run(Program(["sh", "-c", "echo $A; cat"], {}, pass_fds=fds), pool)
        assert (ran.status, ran.output, parent_of_program(pool, fds)) == (0, b"\n", first)
    assert (tmp_path / "open").read_text() == "x\n"


def test_a_supervisor_with_a_child_left_is_not_used_again(tmp_path: Path) -> None:
    """A daemon of a program that ended is not ended with the next program."""
    needs("setsid")
    path, gate = fifos(tmp_path)
    daemon = f"(setsid sh -c 'echo $$ > {path}; read x < {gate}' > /dev/null 2>&1 &); cat {path}"
    with SupervisorPool() as pool:
        first, pid = run(shell(f"echo $PPID; {daemon}"), pool).output.split()
        ran = run(shell("echo $PPID; exec sleep 600"), pool, 0.2)
        assert ran.end_reason == "timeout after 0.2 s"
        assert ran.output.split() != [first]
        os.kill(int(pid), 0)
    gate.write_text("go\n")


def test_an_idle_supervisor_holds_no_lock_and_may_be_killed(tmp_path: Path) -> None:
    """The flock of a program that ended is free; a killed one is replaced."""
    with SupervisorPool() as pool:
        with (tmp_path / "lock").open("w") as lock:
            fds = (lock.fileno(),)
            fcntl.flock(lock, fcntl.LOCK_EX)
            parent_of_program(pool, fds)
            assert run(shell("true", kept_fds=fds), pool).status == 0
            first = parent_of_program(pool, fds)
        with (tmp_path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            supervisor = parent_of_program(pool, (lock.fileno(),))
            pidfd = os.pidfd_open(supervisor)
            os.kill(supervisor, signal.SIGKILL)
            assert ended([pidfd])
            assert parent_of_program(pool, (lock.fileno(),)) not in (first, supervisor)
