"""The runner of other programs: input, lines, limits, ends, and what outlives a program."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from engine.system import run_program as runner
from engine.system.run_program import CannotStart, RunningProgram, run_program, start_detached
from tests.engine.mail.test_run_program import gone
from tests.open_files import open_files
from tests.programs import a_script
from tests.tables import each

SMALL, LARGE = b"4EBEB2DA019\n", b"4EBEB2DA019\n" * 250_000
"""What fits into a pipe, and what does not."""


def sh(script: str, *words: str) -> list[str]:
    """The words that run a script of the shell."""
    return ["/bin/sh", "-c", script, "sh", *words]


DONE, SILENT = (0, "", "", False), (-15, "nothing printed for 0.05 s", "", False)
BYTES = b"a\r\n\n\x00\xff\xe2\x80\xae\x1b[31m\n cut"
UNREAD = ("echo done", "exec <&-; echo done", "head -c 10 >/dev/null; echo done")
FATAL = r"printf 'warning: x\nfatal: \033[31m\342\200\256y\n\n' >&2; exit 69"
ENDS = [
    # words, input, lines; status, limit, last line of the errors, whether the last line is cut
    (["cat"], None, [], DONE),  # not the terminal
    (["cat"], b"", [], DONE),
    (["cat"], SMALL, [SMALL[:-1]], DONE),
    (["cat"], LARGE, LARGE.split(), DONE),
    (["cat"], BYTES, [b"a\r", b"", b"\x00\xff\xe2\x80\xae\x1b[31m", b" cut"], (0, "", "", True)),
    *((sh(script), data, [b"done"], DONE) for script in UNREAD for data in (SMALL, LARGE)),
    (sh("sleep 600"), LARGE, [], SILENT),  # a full pipe is no reason to wait longer
    (sh("exec >&- 2>&-; sleep 600"), None, [], SILENT),
    (sh("exec >&- 2>&-; sleep 0.1; exit 4"), None, [], (4, "", "", False)),
    (sh("printf 'one\ntw'; kill -9 $$"), None, [b"one", b"tw"], (-9, "", "", True)),
    (sh(FATAL), None, [], (69, "", "fatal: \ufffd[31m\ufffdy", False)),
]


@each(("words", "data", "lines", "ended"), ENDS)
def test_a_program_is_run_to_its_end(
    words: list[str], data: bytes | None, lines: list[bytes], ended: tuple[object, ...]
) -> None:
    """Input and lines of any bytes arrive whole, whether it reads or prints them or not."""
    printed, end = run_program(words, data, idle_seconds=0.05 if ended == SILENT else 60)
    assert printed == lines
    assert (end.status, end.limit, end.last_error, end.is_cut) == ended


def test_lines_come_while_the_program_runs(tmp_path: Path) -> None:
    """The first line is read before the program prints the next: that waits for a file."""
    script = 'echo first; while [ ! -e "$1" ]; do sleep 0.01; done; echo second'
    with closing(RunningProgram(sh(script, str(tmp_path / "go")))) as program:
        lines = program.lines()
        assert next(lines) == b"first"
        assert program.end is None
        (tmp_path / "go").touch()
        assert [*lines] == [b"second"]
        assert program.end is not None
        assert program.end.status == 0


def test_a_line_that_is_too_long_is_skipped_and_counted(monkeypatch: MonkeyPatch) -> None:
    """It is skipped to its end, also the last one; a line of exactly the limit is read."""
    monkeypatch.setattr(runner, "MAX_LINE_BYTES", 100_000)
    monkeypatch.setattr(runner, "_READ_BYTES", 1 << 16)  # as always, less than a line may have
    full, long = b"x" * 100_000, b"x" * 100_001
    text = b"\n".join((b"1", long, full, b"y" * 3_000_000, b"5", long))
    lines, end = run_program(["cat"], text)
    assert (lines, end.long_lines, end.status) == ([b"1", full, b"5"], (2, 4, 6), 0)


def test_a_line_of_more_than_16_mib_takes_no_more_memory() -> None:
    """Of a line of 200 MB no more is kept than the limit."""
    script = "import os\nfor _ in range(200): os.write(1, b'x' * 1_000_000)\nprint(); print('end')"
    code = (
        "import sys; from engine.system.run_program import run_program\n"
        f"print(*run_program([sys.executable, '-c', {script!r}])[0])\n"
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(int(peak.split()[1]) < 100_000)"
    )
    argv = [sys.executable, "-P", "-c", code]
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("b'end'\nTrue\n", "")


def test_errors_are_kept_from_both_ends() -> None:
    """A program that prints megabytes of errors is not slowed; its start and its end are kept."""
    script = "echo first; seq 1000000; echo last"
    lines, end = run_program(sh(f"({script}) >&2; echo out"))
    assert (lines, end.status) == ([b"out"], 0)
    assert end.errors.startswith(b"first\n1\n2\n")
    assert end.errors.endswith(b"\n1000000\nlast\n")
    assert len(end.errors) == runner.FIRST_ERROR_BYTES + runner.LAST_ERROR_BYTES
    assert end.last_error == "last"


LAST_WORDS = "trap 'echo done; echo why >&2; exit 3' TERM; echo $$; sleep 600 & wait"
DEAF = "trap '' TERM; (sleep 600 & echo $!; wait); echo never"
DEAF_CHILD = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 600; done' & wait"


@pytest.mark.parametrize(("script", "limit", "lines", "status"), [
    ("echo $$; sleep 600", "nothing printed for 0.01 s", [], -signal.SIGTERM),
    (LAST_WORDS, "not ended after 0 s", [b"done"], 3),
    (DEAF, "not ended after 0 s", [], -signal.SIGKILL),
    (DEAF_CHILD, "nothing printed for 0.01 s", [], -signal.SIGTERM),
])  # fmt: skip
def test_a_program_is_ended_by_its_limit_with_its_group(
    script: str, limit: str, lines: list[bytes], status: int, monkeypatch: MonkeyPatch
) -> None:
    """Its first line is the PID of a process that ends too; what it prints at the end is read."""
    monkeypatch.setattr(runner, "KILL_SECONDS", 0.1)
    program = RunningProgram(sh(script), idle_seconds=600, total_seconds=600)
    printed = program.lines()
    pid = int(next(printed))
    if limit.startswith("nothing"):
        program._idle_seconds = 0.01
    else:
        program._deadline = program._began
    assert [*printed] == lines
    assert program.end is not None
    assert (program.end.status, program.end.limit) == (status, limit)
    assert program.end.last_error == ("why" if lines else "")
    assert gone(pid)


def test_endless_output_ends() -> None:
    """The limit of an act ends it, on either stream; one in the background is not waited for."""
    for script in ("exec yes", "exec yes >&2"):
        program = RunningProgram(sh(script), total_seconds=0.2)
        assert all(line == b"y" for line in program.lines())
        assert program.end is not None
        assert (program.end.status, program.end.limit) == (-15, "not ended after 0.2 s")
    lines, end = run_program(sh("echo $$; setsid yes & exit 5"))
    assert {*lines[1:]} <= {b"y", b""} and end.status == 5


@pytest.mark.parametrize("streams", ["2>&1", ">/dev/null", "2>/dev/null"])
def test_a_background_process_with_our_pipes_is_not_waited_for(streams: str) -> None:
    """ssh leaves such a one: the program has ended, with all of its lines."""
    script = f"setsid sleep 600 {streams} & echo $!; seq 1000; echo bad >&2; exit 7"
    lines, end = run_program(sh(script))
    try:
        os.kill(int(lines[0]), 0)
    finally:
        os.kill(int(lines[0]), signal.SIGKILL)
    assert (len(lines), end.status, end.last_error, end.limit) == (1001, 7, "bad", "")


def test_a_reader_that_pauses_loses_nothing() -> None:
    """Lines that are in the pipe at the program's end are read, however late that is."""
    program = RunningProgram(sh("seq 10000"))
    lines = program.lines()
    first = next(lines)
    os.waitid(os.P_PID, program._process.pid, os.WEXITED | os.WNOWAIT)
    assert [first, *lines] == [b"%d" % number for number in range(1, 10001)]


def test_close_ends_a_program_that_runs() -> None:
    """A listing that is no longer needed is ended, and no descriptor stays open."""
    before = open_files()
    with closing(RunningProgram(sh("echo $$; exec yes"))) as program:
        pid = int(next(program.lines()))
    assert program.end is not None
    assert (program.end.status, program.end.limit) == (-15, "no longer needed")
    assert gone(pid)
    with closing(RunningProgram(["true"])) as unread:
        os.waitid(os.P_PID, unread._process.pid, os.WEXITED | os.WNOWAIT)
    assert unread.end is not None
    assert (unread.end.status, unread.end.limit, open_files()) == (0, "", before)


def test_the_environment_is_fixed(monkeypatch: MonkeyPatch) -> None:
    """No variable of ours chooses a server, language or zone; the folder is /; words stay words."""
    monkeypatch.setenv("MAIL_CONFIG", "/tmp/evil")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("HOME", "/root")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    lines, _ = run_program(["env"])
    assert {*lines} == {f"PATH={runner.PATH}".encode(), b"LC_ALL=C", b"TZ=UTC", b"HOME=/root"}
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    assert b"SSH_AUTH_SOCK=/run/agent" in run_program(["env"])[0]
    assert run_program(["pwd"])[0] == [b"/"]
    words = ["a b", "$(id -un)", "it's", "*", "", "-n", "\n", "\udcff"]
    printed = b"\n".join(run_program(["printf", r"%s\0", *words])[0])
    assert printed == b"a b\0$(id -un)\0it's\0*\0\0-n\0\n\0\xff\0"


@pytest.mark.parametrize(("program", "why", "is_missing"), [
    ("/no/such", "No such file or directory", True),
    ("no-such-\x1bprogram", "No such file or directory", True),
    ("/etc", "Permission denied", False),
    ("a\0b", "embedded null byte", False),
])  # fmt: skip
def test_a_program_that_cannot_start_is_one_line(program: str, why: str, is_missing: bool) -> None:
    """The message names it and the reason, and no descriptor stays open."""
    before = open_files()
    for start in (lambda: run_program([program]), lambda: start_detached([program], 1)):
        with pytest.raises(CannotStart) as caught:
            start()
        shown = program.replace("\x1b", "\ufffd").replace("\0", "\ufffd")
        assert str(caught.value) == f"{shown}: {why}"
        assert caught.value.is_missing is is_missing
    assert open_files() == before


def test_without_descriptors_nothing_is_left_running(monkeypatch: MonkeyPatch) -> None:
    """A program that we could not follow is ended, and the reason is shown."""

    def refuse(pid: int) -> int:
        started.append(pid)
        raise OSError(24, "Too many open files")

    started: list[int] = []
    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(CannotStart, match=r"^sleep: Too many open files$"):
        run_program(["sleep", "600"])
    assert gone(started[0])


Detached = Callable[[str, float], runner.ProgramEnd | None]


@pytest.fixture
def detached(tmp_path: Path) -> Detached:
    """Start a script detached."""
    return lambda text, seconds: start_detached([a_script(tmp_path / "send", text)], seconds)


def test_a_detached_program_that_ends_in_time_has_status_and_output(detached: Detached) -> None:
    """Both streams are in its errors."""
    end = detached("echo out; echo err >&2; exit 3", 30)
    assert end is not None
    assert (end.status, end.errors, end.last_error, end.limit) == (3, b"out\nerr\n", "err", "")


def test_a_detached_program_is_never_ended(detached: Detached, tmp_path: Path) -> None:
    """It has its own session, can print as before, and leaves no zombie."""
    pid, go, sent = tmp_path / "pid", tmp_path / "go", tmp_path / "sent"
    for fifo in (pid, go, sent):
        os.mkfifo(fifo)
    script = f"echo $$ > {pid}; cat {go}; seq 100000; seq 9 >&2; echo $? > {sent}"
    assert detached(script, 0.05) is None
    number = int(pid.read_text())
    assert os.getsid(number) == number
    go.write_text("")
    assert sent.read_text() == "0\n"
    until = time.monotonic() + 30
    while Path(f"/proc/{number}").exists() and time.monotonic() < until:
        time.sleep(0.005)
    assert not Path(f"/proc/{number}").exists()
