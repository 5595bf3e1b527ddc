"""Controls of a spool, on a stopped one, with the original scheduler and with ours."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import pytest

from engine.formats.zmailer.environment import ZmailerSettings, read_files
from engine.formats.zmailer.reports import ReportSettings
from engine.formats.zmailer.scheduler.spool_controls import SpoolControls, is_frozen, record_conf
from engine.formats.zmailer.spool.folders import PostofficeFolders
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.formats.zmailer.spool_mail import SpoolMail
from engine.model import Move, State, Task
from engine.store import Unavailable, Unsupported
from engine.verbs import VERBS
from tests.crash.sweep import ROOT
from tests.engine.formats.zmailer.scheduler.test_process import until
from tests.engine.formats.zmailer.scheduler.test_process_scripted_day import Day, DaySpool, watching
from tests.rival_processes import running
from tests.zmailer_spool import Spool, recipient

NOW = 1_795_170_000.0
OURS = """
import fcntl, signal, sys
pid_file = open(sys.argv[1])
fcntl.flock(pid_file, fcntl.LOCK_EX)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGQUIT, signal.SIGUSR1})
print("ready", flush=True)
print(signal.sigwait({signal.SIGQUIT, signal.SIGUSR1}).name, flush=True)
"""
"""A process that holds the pid file as our scheduler does, and prints the signal that it gets."""


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A spool with a message, and a scheduler.conf."""
    spool = Spool(tmp_path / "post").make()
    spool.put(1001, recipient(), recipient(host="other.example"))
    (tmp_path / "scheduler.conf").write_text("smtp/*\n  command=smtp\n")
    return spool


@contextmanager
def opened(spool: Spool) -> Iterator[ZmailerStore]:
    """A store with all controls."""
    settings = ZmailerSettings(scheduler_conf=str(spool.root.parent / "scheduler.conf"))
    with closing(store_with_controls(spool.root, settings, lambda: NOW)) as store:
        yield store


def store_with_controls(
    root: Path, settings: ZmailerSettings, clock: Callable[[], float]
) -> ZmailerStore:
    """A store with all controls, by a configuration and a clock."""

    def mail(folders: PostofficeFolders) -> SpoolMail:
        return SpoolMail(folders, clock, ReportSettings("mta.example"))

    def controls(folders: PostofficeFolders) -> SpoolControls:
        return SpoolControls(folders, mail(folders), lambda: read_files(settings, {}))

    return ZmailerStore(str(root), clock, mail, controls)


@contextmanager
def scheduler(spool: Spool, code: str = "print('ready', flush=True); input()") -> Iterator[str]:
    """A running scheduler; yields its PID. It is the original one without `code`."""
    pid_file = spool.root / ".pid.scheduler"
    pid_file.touch()
    with running(code, str(pid_file), cwd=spool.root / "transport") as process:
        pid_file.write_text(f"{process.pid}\n")
        yield str(process.pid)
        process.kill()


def refusals(store: ZmailerStore) -> dict[str, str]:
    """Why controls are refused."""
    return {name: one.refusal for name, one in store.controls.items() if one.refusal}


def test_on_a_stopped_spool_only_freezing_is_possible(spool: Spool) -> None:
    """There is nothing to wake or to signal; a frozen spool stays so for the next start."""
    with opened(spool) as store:
        assert refusals(store) == {
            "wake": "no scheduler is running: it tries all when it starts",
            "slow-stop": "no scheduler is running",
            "reread": "no scheduler is running: it reads it at its start",
        }
        assert not store.controls["freeze"].has_paused
        for _ in range(2):
            assert store.control("freeze", value="on") == "frozen: no agent is started"
        assert store.controls["freeze"].has_paused
        with closing(PostofficeFolders(str(spool.root))) as folders:
            assert is_frozen(folders)
            assert store.control("freeze", value="off") == "thawed: agents are started"
            assert not is_frozen(folders)
        with pytest.raises(Unsupported, match="no scheduler is running"):
            store.control("slow-stop")


def test_the_original_scheduler_is_woken_but_never_signalled(spool: Spool) -> None:
    """At SIGUSR1 it aborts, at SIGQUIT it hangs: each is refused with the reason."""
    with scheduler(spool) as pid, opened(spool) as store:
        who = f"the scheduler (PID {pid}) is not that of spooldeck: "
        assert refusals(store) == {
            "slow-stop": f"{who}after SIGQUIT it never ends; stop it with SIGTERM",
            "reread": f"{who}it aborts at SIGUSR1; restart it",
            "freeze": f"{who}it cannot be frozen while it runs",
        }
        assert store.forecast("wake", "*").words == "mx.example\nother.example"
        assert store.forecast("wake", "MX.example").amount == 1
        with pytest.raises(Unsupported, match="no recipient of this host"):
            store.forecast("wake", "none.example")
        assert store.control("wake", "*") == "hosts woken: 2"
        texts = sorted(path.read_text() for path in (spool.root / "transport").glob("*-etrn"))
        assert texts == ["T mx.example\n", "T other.example\n"]


def test_our_scheduler_gets_the_signal(spool: Spool) -> None:
    """The flock of the pid file proves that it is ours; a process of its number gets no signal."""
    for name, number in (("slow-stop", signal.SIGQUIT), ("reread", signal.SIGUSR1)):
        with scheduler(spool, OURS) as pid, opened(spool) as store:
            assert refusals(store) == {}
            assert store.control(name) == f"{number.name} sent to PID {pid}"
    with scheduler(spool, OURS), opened(spool) as store:
        (spool.root / ".pid.scheduler").write_text(f"{os.getppid()}\n")
        with pytest.raises(Unavailable, match="no scheduler is proven to run"):
            store.control("slow-stop")


def test_a_reread_shows_the_difference_first(spool: Spool) -> None:
    """To the file in use, if our scheduler has recorded it; a file with errors is refused."""
    conf = spool.root.parent / "scheduler.conf"
    with (
        scheduler(spool, OURS),
        opened(spool) as store,
        closing(PostofficeFolders(str(spool.root))) as folders,
    ):
        assert store.forecast("reread").words.startswith("the file in use is not known; 1 clauses")
        record_conf(folders, conf.read_text())
        assert store.forecast("reread") == ("no change", 1)
        conf.write_text("smtp/*\n  command=smtp maxta=9\nlocal/*\n  command=mailbox\n")
        assert store.forecast("reread").words.splitlines() == [
            "clause smtp/*: maxta: not set -> 9",
            "clause local/*: added",
            "clause local/*: command: not set -> mailbox",
        ]
        conf.write_text("smtp/*\n  comand=smtp\n  maxta=x\n")
        for call in (store.forecast, store.control):
            with pytest.raises(Unsupported, match=r"conf:2:3: unknown keyword comand; 1 more"):
                call("reread")
        conf.unlink()
        with pytest.raises(Unsupported, match="No such file"):
            store.control("reread")


# ---- with our real scheduler

OPERATE = """
import sys, time
from contextlib import closing
from pathlib import Path
from engine.model import Move, State, Task
from engine.verbs import VERBS
from tests.engine.formats.zmailer.scheduler.test_spool_controls import open_store
with closing(open_store(Path(sys.argv[1]))) as store:
    (task,) = (task for task in store.scan({sys.argv[3]}) if isinstance(task, Task))
    moves = [Move(task, VERBS[sys.argv[2]].function(task, time.time()))]
    for outcome in store.swap_all(moves):
        if outcome.error:
            raise outcome.error
"""
"""Changes one task by a verb."""

WRITES = ("write", "pwrite64", "linkat", "unlinkat", "renameat", "mkdirat", "fsync")
"""The calls by which files are changed. What happens between two of them leaves no trace."""

P = State.PENDING

STEPS = (
    ("release", State.HELD),
    ("hold", P),
    ("bounce", P),
    ("expire", P),
    ("purge", State.HELD),
    ("restore", State.TRASH),
)
"""Verbs, and the state that each is for."""

REFUSED = 1
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
WAITING = 30
"""Further messages, whose recipients are deferred for ever: these are pending."""


def operate(root: Path, verb: str, task: Task, *options: str) -> int:
    """Change a task under strace; return the exit code."""
    words = ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={','.join(WRITES)}", *options]
    words += [sys.executable, "-c", OPERATE, str(root), verb, task.id]
    return subprocess.run(words, stderr=subprocess.DEVNULL, cwd=ROOT, timeout=60).returncode


def kill_everywhere(root: Path, verb: str, tasks: Iterator[Task]) -> int:
    """Change tasks one after the other, each killed before its first, second ... call of a name,
    until one has no call of that number; return how many were killed."""
    kills = 0
    for name in WRITES:
        for nth in count(1):
            kill = ("-e", f"inject={name}:signal=KILL:when={nth}")
            # An agent may just have the recipient: then the change is refused.
            exit_codes = (operate(root, verb, task, *kill) for task in tasks)
            end = next(end for end in exit_codes if end != REFUSED)
            assert end in (0, *KILLED)
            if end == 0:
                break
            kills += 1
    return kills


def tasks_in(root: Path, *states: State) -> Iterator[Task]:
    """The tasks in some states."""
    with closing(open_store(root)) as store:
        # A scan yields some twice.
        tasks = {item.id: item for item in store.scan() if isinstance(item, Task)}
    return (task for task in tasks.values() if task.state in states)


def waits(task: Task) -> bool:
    """True for a recipient that is deferred for ever."""
    return task.destination.startswith("never-9")


def change_all(root: Path, verb: str, *states: State) -> list[Exception]:
    """Change all tasks in some states; return the errors."""
    moves = [
        Move(task, VERBS[verb].function(task, time.time())) for task in tasks_in(root, *states)
    ]
    with closing(open_store(root)) as store:
        return [outcome.error for outcome in store.swap_all(moves) if outcome.error]


@pytest.mark.deep
def test_a_killed_operator_leaves_each_recipient_one_end(tmp_path: Path) -> None:
    """While the scheduler delivers, a command that releases, holds, bounces, expires, purges or
    restores a recipient is killed before each of its changes. In the end an agent has decided each
    recipient once, and each that failed or was given up is reported once."""
    if shutil.which("strace") is None:
        pytest.fail("strace is not installed, and CI has to run this test: see .ci/run")
    day_spool = DaySpool.fill(tmp_path, Day(messages=60, recipients=5, hosts=20, kills=0))
    change_all(tmp_path, "hold", P)
    for number in range(9000, 9000 + WAITING):
        users = [f"never-{number}-{at}" for at in range(5)]
        lines = (f"r           local host{number % 20} {user} 65534\n" for user in users)
        Spool(tmp_path).put(number, *lines)
        os.utime(tmp_path / "queue" / str(number))
        day_spool = day_spool._replace(users=day_spool.users.union(users))
    process = day_spool.start()
    try:
        with watching(day_spool) as watch:
            for verb, start in STEPS:
                tasks = (task for task in tasks_in(tmp_path, start) if start != P or waits(task))
                assert kill_everywhere(tmp_path, verb, tasks) > 2, verb
                if verb == "purge":
                    change_all(tmp_path, "purge", State.HELD)
            change_all(tmp_path, "restore", State.TRASH)
            change_all(tmp_path, "release", State.HELD)
            until(lambda: all(map(waits, tasks_in(tmp_path, P))))
            until(lambda: not change_all(tmp_path, "bounce", P))
            until(day_spool.is_empty)
            watch.follow(process.pid, None)
    finally:
        process.kill()
        process.wait()
    decided = Counter(user for user, _ in watch.deliveries)
    assert decided == Counter(user for user in day_spool.users if not user.startswith("never"))
    failed = (user for user in day_spool.users if user.startswith(("bad", "never")))
    assert day_spool.reported() == Counter(failed)


def open_store(root: Path) -> ZmailerStore:
    """A store with all controls."""
    settings = ZmailerSettings(scheduler_conf=f"{root}/scheduler.conf")
    return store_with_controls(root, settings, time.time)
