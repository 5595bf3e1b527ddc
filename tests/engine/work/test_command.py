"""The handler that runs a program: real programs, their output, their end, and what they leave."""

import errno
import fcntl
import os
import select
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from engine.model import State, Task
from engine.system import supervisor
from engine.system.run_program import PATH
from engine.system.supervisor import MAX_OUTPUT_BYTES
from engine.system.users import Account
from engine.text.safe import ERROR_LIMIT
from engine.work.command import TRACE_BYTES, CommandHandler, shorten_output
from engine.work.handlers import Context, Failed, Fatal, Lacking, guard_payload
from tests.tables import each

TASK = Task("20261120T094115Z-job-00000001", "job", State.ACTIVE, 1_795_167_675.0)._replace(
    attempts=2, description="a job", payload="/var/spool/one two"
)
LONG = 60.0
"""Seconds that no program here needs; one that does hangs, and fails its test."""


def python(code: str, *args: str, timeout: float = LONG) -> CommandHandler:
    """A handler that runs a Python program."""
    return CommandHandler([sys.executable, "-c", code, *args], timeout)


def failure_of(handler: CommandHandler, context: Context | None = None) -> str:
    """The text that a handler fails with."""
    with pytest.raises(Failed) as failed:
        handler(TASK, context or Context())
    return str(failed.value)


def test_the_data_of_a_task_is_the_input_of_its_program() -> None:
    """The program reads the data to its end; without data it reads nothing."""
    echo = python("import sys; sys.exit(sys.stdin.read() or 'nothing')")
    assert failure_of(echo, Context(data=b'{"to": "ann"}')) == '{"to": "ann"}'
    assert failure_of(echo) == "nothing"


@each(("payload", "refused"), [
    ("", ""), ("spool/meta.sh", ""), ("spool/gone.sh", ""), ("spool/gone/meta.sh", ""),
    ("spool//x", "it is not a plain path below"),
    ("link/meta.sh", "it is behind"),
    (f"spool/{'x' * 300}", "it cannot be checked: File name too long"),
])  # fmt: skip
def test_it_starts_if_nothing_leads_elsewhere(tmp_path: Path, payload: str, refused: str) -> None:
    """The payload is none, or plainly below the mail spool, there or not, through no link; else the
    task is given up, or waits if the system cannot look at it."""
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "meta.sh").touch()
    (tmp_path / "link").symlink_to("spool")
    task, started = TASK._replace(payload=payload and f"{tmp_path}/{payload}"), list[Task]()
    below = f"{tmp_path}/{'link' if payload.startswith('link') else 'spool'}"
    handler = guard_payload(lambda task, context: started.append(task), below, str(tmp_path))
    with pytest.raises(Failed, match=refused) if refused else nullcontext() as failed:
        handler(task, Context())
    assert started == [task] * (not refused)
    if failed is not None:
        assert isinstance(failed.value, Fatal) is ("checked" not in refused)


@each(("code", "error"), [
    ("os.write(1, b'first\\n'); os.write(2, b'then this\\n'); os._exit(7)", "first\nthen this"),
    ("raise SystemExit(3)", "exit status 3"),
    ("os.write(1, b' \\n\\n'); raise SystemExit(1)", "exit status 1"),
    ("os.kill(os.getpid(), signal.SIGKILL)", "ended by signal SIGKILL"),
    ("os.kill(os.getpid(), signal.SIGRTMIN + 3)", "ended by signal 37"),
    ("os.write(2, b'much'); raise SystemExit(0)", None),  # success, with any output
])  # fmt: skip
def test_the_output_is_the_error_or_else_the_end(code: str, error: str | None) -> None:
    """The error is all output in its order, else status or signal; exit status 0 is success."""
    handler = python(f"import os, signal; {code}")
    if error is None:
        handler(TASK, Context())
    else:
        assert failure_of(handler) == error


def test_a_program_that_cannot_be_started_is_a_lack_of_the_worker(tmp_path: Path) -> None:
    """A missing program is no failure of the task; what the task makes impossible to start is."""
    script = tmp_path / "script"
    script.write_text("no header\n")
    for mode in (0o644, 0o755):
        script.chmod(mode)
        for program in ("/nonexistent/program", "no-such-program-anywhere", "/", "", str(script)):
            with pytest.raises(Lacking, match=f"^cannot start {program}: "):
                CommandHandler([program], LONG)(TASK, Context())
    with pytest.raises(Failed, match=r"^cannot start "):
        CommandHandler(["/bin/true"], LONG)(TASK._replace(description="x" * (1 << 21)), Context())


LINES = b"\n".join(b"line %03d" % (n % 1000) for n in range(10_000))


@each(("output", "expected"), [
    (b"", ""), (b"\n \n", ""), (b"one\ntwo\n", "one\ntwo"), (b"x" * 300, "x" * ERROR_LIMIT),
    (b"first\n" + b"x" * 300, "first\n" + "x" * (ERROR_LIMIT - 6)),
    (b"caf\xc3\xa9 \xff", "café \ufffd"),
    (LINES[-MAX_OUTPUT_BYTES:], "\n".join(f"line {n:03}" for n in range(978, 1000))),
    (b"first\n" + b"x" * MAX_OUTPUT_BYTES, "x" * ERROR_LIMIT),
])  # fmt: skip
def test_the_beginning_of_all_output_is_kept(output: bytes, expected: str) -> None:
    """The first 200 characters are the error; of output too long to be held, the last lines."""
    assert shorten_output(output) == expected


def test_a_trace_has_the_end_of_the_output() -> None:
    """Stores that keep a trace of each run keep less than the output."""
    words = ["sh", "-c", "head -c 20000 /dev/zero | tr '\\0' x; echo end; false"]
    with pytest.raises(Failed) as caught:
        CommandHandler(words, LONG)(TASK, Context())
    assert caught.value.details == "x" * (TRACE_BYTES - 4) + "end"


def test_endless_output_ends_with_the_time() -> None:
    """A program that prints without end is ended when its time is up, like any other."""
    words = ["sh", "-c", "yes 'and again' & exec yes 'and again'"]
    failure = failure_of(CommandHandler(words, 0.3))
    assert failure.startswith("timeout after 0.3 s: and again\n")
    assert len(failure) < 2 * ERROR_LIMIT


class HeldPipe:
    """A named pipe that a program and its descendants hold open."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self.reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.code = f"import os, signal; os.write(os.open({str(path)!r}, os.O_WRONLY), b'1')"
        """Python statements that open it, for the program and all that it forks later."""

    def is_held(self) -> bool:
        """True as soon as a program has opened it; waits until then, in any process."""
        reading = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        is_ready = bool(select.select([reading], [], [])[0])
        os.close(reading)
        return is_ready

    def is_released(self) -> bool:
        """True when all that held it have ended; waits until then. False if none held it."""
        os.set_blocking(self.reading, True)
        return os.read(self.reading, 2) == b"1" and os.read(self.reading, 1) == b""


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[HeldPipe]:
    """A pipe that shows whether all processes of a program have ended."""
    pipe = HeldPipe(tmp_path / "pipe")
    yield pipe
    os.close(pipe.reading)


@pytest.mark.parametrize("status", [0, 1])
def test_whom_it_leaves_behind_ends_with_it(status: int, pipe: HeldPipe) -> None:
    """Descendants that outlive a program end with it, and do not keep its task waiting."""
    code = f"{pipe.code}\nif os.fork() == 0:\n    signal.pause()\nraise SystemExit({status})\n"
    if status:
        assert failure_of(python(code)) == "exit status 1"
    else:
        python(code)(TASK, Context())
    assert pipe.is_released()


def test_a_program_not_followed_is_ended(monkeypatch: pytest.MonkeyPatch, pipe: HeldPipe) -> None:
    """Where the system has no descriptor left to wait with, a program is ended, and fails."""

    def none_left(pid: int) -> int:
        assert pipe.is_held()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as system:
        system.setattr(os, "pidfd_open", none_left)
        failure = failure_of(python(f"{pipe.code}; signal.alarm(5); signal.pause()"))
    assert pipe.is_released()
    assert failure.startswith("cannot follow ") and "Too many open files" in failure


def test_a_cancelled_program_is_ended(monkeypatch: pytest.MonkeyPatch, pipe: HeldPipe) -> None:
    """A worker that is told to end now ends its programs."""
    monkeypatch.setattr(supervisor, "KILL_DELAY_SECONDS", 0.2)
    cancelled = Context(is_cancelled=pipe.is_held)
    assert failure_of(python(f"{pipe.code}; signal.pause()"), cancelled) == "stopped"
    assert pipe.is_released()


def told(
    tmp_path: Path, task: Task, *args: str, environ: Mapping[str, str | None] = {}
) -> tuple[list[str], dict[str, str]]:
    """The arguments and the environment that a program sees, in a session without input."""
    out = tmp_path / "told"
    code = (
        "import os, sys\n"
        "assert os.getsid(0) == os.getpid() and sys.stdin.read() == ''\n"
        "fields = [*sys.argv[2:], *(f'{k}={v}' for k, v in os.environ.items())]\n"
        "open(sys.argv[1], 'w').write('\\0'.join(fields))\n"
    )
    argv = [sys.executable, "-c", code, str(out), *args]
    CommandHandler(argv, LONG, None, environ)(task, Context())
    fields = out.read_text().split("\0")
    return fields[: len(args)], dict(field.split("=", 1) for field in fields[len(args) :])


def test_a_task_is_in_a_clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a session without input, its task's fields, a fixed PATH, home and zone, and no
    secret; configured variables are set, but none in place of a task's field."""
    with monkeypatch.context() as system:
        system.setattr(os, "environ", {"HOME": "/srv", "AWS_SECRET": "x", "PATH": "/tmp/evil"})
        _, environment = told(tmp_path, TASK)
    assert environment == {
        **{"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": "/srv"},
        **{"TASK_ID": "20261120T094115Z-job-00000001", "TASK_TYPE": "job"},
        **{"TASK_DESCRIPTION": "a job", "TASK_CREATED_EPOCH": "1795167675"},
        **{"TASK_RETRIES": "2", "TASK_PAYLOAD_FILE": "/var/spool/one two"},
    }

    monkeypatch.setenv("NFTBAN_SMTP_PASS", "s3cret")
    monkeypatch.delenv("UNSET", raising=False)
    added = {"A": "1", "NFTBAN_SMTP_PASS": None, "UNSET": None, "TASK_ID": "x"}
    _, environment = told(tmp_path, TASK, environ=added)
    assert (environment["A"], environment["NFTBAN_SMTP_PASS"]) == ("1", "s3cret")
    assert "UNSET" not in environment
    assert environment["TASK_ID"] == TASK.id


@each("text", ["$(touch ran)", "`touch ran`", "; touch ran", "$TASK_ID", "*"])
def test_nothing_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Neither an argument nor a field of the task is read by a shell."""
    monkeypatch.chdir(tmp_path)
    task = Task("x", "job", State.ACTIVE, 0.0, description=text, payload=text)
    arguments, environment = told(tmp_path, task, text, "$TASK_DESCRIPTION")
    assert arguments == [text, "$TASK_DESCRIPTION"]
    assert environment["TASK_DESCRIPTION"] == environment["TASK_PAYLOAD_FILE"] == text
    assert not (tmp_path / "ran").exists()


def test_it_inherits_no_descriptor(tmp_path: Path) -> None:
    """Nor that of the queue lock, which its supervisor keeps: it could release that by flock(2)."""
    (tmp_path / "lock").write_text("")
    lock_fd, other = (os.open(tmp_path / "lock", os.O_RDWR) for _ in range(2))
    os.set_inheritable(other, True)
    fcntl.flock(lock_fd, fcntl.LOCK_EX)
    code = (
        "import os, fcntl\n"
        "names = [os.path.realpath(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')]\n"
        f"lock = os.open({str(tmp_path / 'lock')!r}, os.O_RDWR)\n"
        "try:\n    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError:\n    names.append('held')\n"
        "raise SystemExit(' '.join(name for name in names if name[-4:] in ('lock', 'held')))\n"
    )
    handler = python(code)
    failure = failure_of(handler, Context(kept_fds=(lock_fd,)))
    os.close(lock_fd)
    os.close(other)
    assert failure == "held"
    with (tmp_path / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the idle supervisor has it no more


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as another user")
def test_it_runs_as_whom_it_shall() -> None:
    """Under root it has the user that is given, with that user's groups, name and home."""
    account = Account(65534, 65534, (65534, 4242), "alice", "/some/where")
    say = "echo $(id -u) $(id -g) $(id -G) $HOME $USER $LOGNAME; exit 1"
    failure = failure_of(CommandHandler(["sh", "-c", say], LONG, account))
    assert failure == "65534 65534 65534 4242 /some/where alice alice"


def test_many_at_once_do_not_mix() -> None:
    """Programs on several threads fail each with its own output."""
    with ThreadPoolExecutor(8) as pool:
        programs = [python(f"raise SystemExit('program {number}')") for number in range(8)]
        assert [*pool.map(failure_of, programs)] == [f"program {number}" for number in range(8)]
