"""Controls of a spool, on a stopped one, with the original scheduler and with ours."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from engine.formats.zmailer.environment import ZmailerSettings, read_files
from engine.formats.zmailer.reports import ReportSettings
from engine.formats.zmailer.scheduler.spool_controls import SpoolControls, is_frozen, record_conf
from engine.formats.zmailer.spool.folders import PostofficeFolders
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.formats.zmailer.spool_mail import SpoolMail
from engine.store import Unavailable, Unsupported
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
