"""The handler that runs a program: real programs, their output, their end, and what they leave."""

import errno
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from engine.accounts import Account
from engine.handlers import Context, Failed, Fatal, command
from engine.handlers.command import Command, error_text
from engine.handlers.payload import guarded
from engine.mail.running import PATH
from engine.model import State, Task
from engine.supervisor import KEPT
from engine.text import ERROR_LIMIT
from tests.tables import each

TASK = Task(
    "20261120T094115Z-job-00000001",
    "job",
    State.ACTIVE,
    1_795_167_675.0,
    attempts=2,
    description="a job",
    payload="/var/spool/one two",
)
LONG = 60.0
"""Seconds that no program here needs; one that does hangs, and fails its test."""


def python(code: str, *args: str, timeout: float = LONG) -> Command:
    """A handler that runs a Python program."""
    return Command([sys.executable, "-c", code, *args], timeout)


def failure_of(handler: Command, context: Context | None = None) -> str:
    """The text that a handler fails with."""
    with pytest.raises(Failed) as failed:
        handler(TASK, context or Context())
    return str(failed.value)


@each(
    ("tail", "starts"),
    [("meta.sh", True), ("gone.sh", True), ("gone/meta.sh", True), ("", True), ("/x", False)],
)
def test_it_starts_where_nothing_leads_elsewhere(tmp_path: Path, tail: str, starts: bool) -> None:
    """A handler gets a task without a payload, or with one plainly below the mail spool, be it
    there or not; any other is given up on at once."""
    (tmp_path / "meta.sh").touch()
    task, started = replace(TASK, payload=tail and f"{tmp_path}/{tail}"), list[Task]()
    handler = guarded(lambda task, context: started.append(task), str(tmp_path))
    with nullcontext() if starts else pytest.raises(Fatal, match="it does not lie plainly below"):
        handler(task, Context())
    assert started == [task] * starts


def test_a_mail_spool_behind_a_link_starts_nothing(tmp_path: Path) -> None:
    """Below the data folder the mail spool is reached through no link, wherever that leads."""
    (tmp_path / "elsewhere" / "spool").mkdir(parents=True)
    (tmp_path / "elsewhere" / "spool" / "meta.sh").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mail").symlink_to(tmp_path / "elsewhere")
    mail_spool, started = f"{tmp_path}/data/mail/spool", list[Task]()
    task = replace(TASK, payload=f"{mail_spool}/meta.sh")
    handler = guarded(lambda task, context: started.append(task), mail_spool, f"{tmp_path}/data")
    with pytest.raises(Fatal, match="it lies behind"):
        handler(task, Context())
    assert started == []


def test_what_cannot_be_looked_at_is_tried_again(tmp_path: Path) -> None:
    """When the system does not tell what the payload is, the handler waits for another attempt."""
    started = list[Task]()
    handler = guarded(lambda task, context: started.append(task), str(tmp_path))
    task = replace(TASK, payload=f"{tmp_path}/{'x' * 300}")
    with pytest.raises(Failed, match="it cannot be looked at: File name too long") as failed:
        handler(task, Context())
    assert not isinstance(failed.value, Fatal)
    assert started == []


def test_a_program_that_ends_well_is_success(tmp_path: Path) -> None:
    """Exit status 0 is success, whatever the program said."""
    done = tmp_path / "done"
    python(f"import sys; print('much', file=sys.stderr); open({str(done)!r}, 'w')")(TASK, Context())
    assert done.exists()


def test_what_it_said_last_is_the_error() -> None:
    """A program that fails says why: its output and its errors, in the order written."""
    said = failure_of(
        python("import os; os.write(1, b'first\\n'); os.write(2, b'then this\\n'); os._exit(7)")
    )
    assert said == "first\nthen this"


@each(
    ("code", "said"),
    [
        ("raise SystemExit(3)", "exit status 3"),
        ("import os; os.write(1, b' \\n\\n'); raise SystemExit(1)", "exit status 1"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by signal SIGKILL"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 3)", "ended by signal 37"),
    ],
)
def test_who_says_nothing_is_told_by_its_end(code: str, said: str) -> None:
    """Of a program that failed without a word, the exit status or the signal is the error."""
    assert failure_of(python(code)) == said


def test_a_program_that_cannot_be_started_fails(tmp_path: Path) -> None:
    """A program that is not there, or is none, is the task's failure, and it says which."""
    script = tmp_path / "script"
    script.write_text("no header\n")
    for mode in (0o644, 0o755):
        script.chmod(mode)
        for program in ("/nonexistent/program", "no-such-program-anywhere", "/", "", str(script)):
            said = failure_of(Command([program], LONG))
            assert said.startswith(f"cannot start {program}: ")


LINES = b"\n".join(b"line %03d" % n for n in range(1000))


@each(
    ("output", "kept"),
    [
        (b"", ""),
        (b"\n \n", ""),
        (b"one\ntwo\n", "one\ntwo"),
        (b"x" * 300, "x" * ERROR_LIMIT),
        (b"first\n" + b"x" * 300, "first\n" + "x" * (ERROR_LIMIT - 6)),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        (LINES[-KEPT:], "\n".join(f"line {n:03}" for n in range(978, 1000))),
        (b"first\n" + b"x" * KEPT, "x" * ERROR_LIMIT),
    ],
)
def test_the_beginning_of_all_output_is_kept(output: bytes, kept: str) -> None:
    """The first 200 characters are the error; of output too long to be held, the last lines."""
    assert error_text(output) == kept


def test_endless_output_ends_with_the_time() -> None:
    """A program that prints without end is ended when its time is up, like any other."""
    said = failure_of(Command(["sh", "-c", "yes 'and again' & exec yes 'and again'"], 0.3))
    assert said.startswith("timeout after 0.3 s: and again\n")
    assert len(said) < 2 * ERROR_LIMIT


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the grace between SIGTERM and SIGKILL."""
    monkeypatch.setattr(command, "GRACE", 0.2)


@each("status", [0, 1])
def test_whom_it_leaves_behind_ends_with_it(status: int) -> None:
    """Descendants that outlive a program end with it, and do not keep its task waiting."""
    reading, writing = os.pipe()
    code = (
        f"import os, signal\nif os.fork() == 0:\n    signal.pause()\nraise SystemExit({status})\n"
    )
    handler = python(code)

    if status:
        assert failure_of(handler, Context(inherit=(writing,))) == "exit status 1"
    else:
        handler(TASK, Context(inherit=(writing,)))

    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_program_that_cannot_be_followed_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no descriptor left to wait with, a program ends at once, and fails."""

    def none_left(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    reading, writing = os.pipe()
    with monkeypatch.context() as system:
        system.setattr(os, "pidfd_open", none_left)
        program = "import signal; signal.alarm(5); signal.pause()"
        said = failure_of(python(program), Context((writing,)))

    os.close(writing)
    assert said.startswith("cannot follow ") and "Too many open files" in said
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_cancelled_program_is_ended(impatient: None) -> None:
    """A worker that was told to end at once takes its programs with it."""
    started = threading.Event()
    reading, writing = os.pipe()

    def cancelled() -> bool:
        started.set()
        return True

    said = failure_of(python("import signal; signal.pause()"), Context((writing,), cancelled))

    os.close(writing)
    assert started.is_set()
    assert said == "stopped"
    assert os.read(reading, 1) == b""
    os.close(reading)


def told(
    tmp_path: Path, task: Task, *args: str, environ: Mapping[str, str | None] = {}
) -> tuple[list[str], dict[str, str]]:
    """The arguments and the environment that a program sees."""
    out = tmp_path / "told"
    code = (
        "import os, sys\n"
        "fields = [*sys.argv[2:], *(f'{k}={v}' for k, v in os.environ.items())]\n"
        "open(sys.argv[1], 'w').write('\\0'.join(fields))\n"
    )
    Command([sys.executable, "-c", code, str(out), *args], LONG, None, environ)(task, Context())
    fields = out.read_text().split("\0")
    pairs = (field.partition("=") for field in fields[len(args) :])
    return fields[: len(args)], {key: value for key, _, value in pairs}


def test_the_task_is_in_a_clean_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program finds its task's fields, a fixed PATH, its home and time zone, and no secret."""
    monkeypatch.setattr(os, "environ", {"HOME": "/srv", "AWS_SECRET": "x", "PATH": "/tmp/evil"})

    _, environment = told(tmp_path, TASK)

    assert environment == {
        "PATH": PATH,
        "LC_ALL": "C.UTF-8",
        "HOME": "/srv",
        "TASK_ID": "20261120T094115Z-job-00000001",
        "TASK_TYPE": "job",
        "TASK_DESCRIPTION": "a job",
        "TASK_CREATED_EPOCH": "1795167675",
        "TASK_RETRIES": "2",
        "TASK_PAYLOAD_FILE": "/var/spool/one two",
    }


def test_a_handler_adds_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configured variable is set, one without a value is passed on from the worker if set there;
    the task's own fields cannot be replaced."""
    monkeypatch.setenv("NFTBAN_SMTP_PASS", "s3cret")
    monkeypatch.delenv("UNSET", raising=False)
    added = {"A": "1", "NFTBAN_SMTP_PASS": None, "UNSET": None, "TASK_ID": "x"}
    _, environment = told(tmp_path, TASK, environ=added)
    assert (environment["A"], environment["NFTBAN_SMTP_PASS"]) == ("1", "s3cret")
    assert "UNSET" not in environment
    assert environment["TASK_ID"] == TASK.id


@each("text", ["$(touch ran)", "`touch ran`", "; touch ran", "$TASK_ID", "*"])
def test_nothing_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Neither an argument nor a field of the task is ever read by a shell."""
    monkeypatch.chdir(tmp_path)
    task = Task("x", "job", State.ACTIVE, 0.0, description=text, payload=text)
    arguments, environment = told(tmp_path, task, text, "$TASK_DESCRIPTION")
    assert arguments == [text, "$TASK_DESCRIPTION"]
    assert environment["TASK_DESCRIPTION"] == environment["TASK_PAYLOAD_FILE"] == text
    assert not (tmp_path / "ran").exists()


def test_it_has_a_session_and_nothing_to_read(tmp_path: Path) -> None:
    """A program runs in a session of its own, with nothing on its standard input."""
    out = tmp_path / "out"
    code = (
        "import os, sys\n"
        "said = f'{os.getsid(0) == os.getpid()} {sys.stdin.read()!r}'\n"
        f"open({str(out)!r}, 'w').write(said)\n"
    )
    python(code)(TASK, Context())
    assert out.read_text() == "True ''"


def test_it_inherits_what_it_shall_and_nothing_else(tmp_path: Path) -> None:
    """A program keeps the descriptors that it is to inherit, and no other of ours."""
    (tmp_path / "lock").write_text("")
    kept, other = os.open(tmp_path / "lock", os.O_RDWR), os.open(tmp_path / "lock", os.O_RDWR)
    os.set_inheritable(other, True)
    code = (
        "import os\n"
        f"os.fstat({kept})\n"
        "try:\n"
        f"    os.fstat({other})\n"
        "except OSError:\n"
        "    raise SystemExit('only the one')\n"
    )

    said = failure_of(python(code), Context(inherit=(kept,)))

    os.close(kept)
    os.close(other)
    assert said == "only the one"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as another user")
def test_it_runs_as_whom_it_shall() -> None:
    """Under root a program runs as the user it is given, with that user's groups and no other, and
    with that user's name and home."""
    account = Account(65534, 65534, (65534, 4242), "somebody", "/some/where")
    say = "echo $(id -u) $(id -g) $(id -G) $HOME $USER $LOGNAME; exit 1"
    said = failure_of(Command(["sh", "-c", say], LONG, account))
    assert said == "65534 65534 65534 4242 /some/where somebody somebody"


def test_many_at_once_do_not_mix() -> None:
    """Programs on several threads end each with its own words."""
    said: dict[int, str] = {}
    count = 20

    def run(number: int) -> None:
        said[number] = failure_of(python(f"raise SystemExit('program {number}')"))

    together([partial(run, number) for number in range(count)])
    assert said == {number: f"program {number}" for number in range(count)}


def together(actions: list[Callable[[], None]]) -> None:
    """Do several things on as many threads."""
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
