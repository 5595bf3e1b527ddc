"""Workers killed by SIGKILL in a transfer: what is left, and what the next run does."""

import os
import select
import subprocess
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil
import pytest

from engine.formats.kannader.settings import KannaderSettings, retry_policy
from engine.formats.kannader.store import KannaderStore
from engine.mail.send.mail_spool import MailSpool
from engine.mail.send.smtp_client import SmtpDestination
from engine.work.worker import Worker
from tests import command
from tests.mail_queue_commands import PATIENCE, TO, Site, Spool
from tests.programs import a_script, needs
from tests.smtp_server import HOST, STALL, Server
from tests.tui.cli.formats.nftban.mail.test_mail import MailPlace, place
from tui.cli.formats.kannader.commands import make_handler

__all__ = ["place"]


def killed(worker: subprocess.Popen[str] | subprocess.Popen[bytes]) -> bool:
    """Kill a worker that runs programs; whether all of these end, too."""
    pidfds = [os.pidfd_open(p.pid) for p in psutil.Process(worker.pid).children(recursive=True)]
    worker.kill()
    worker.communicate()
    gone = [bool(select.select([fd], [], [], PATIENCE)[0]) for fd in pidfds]
    for fd in pidfds:
        os.close(fd)
    return len(gone) > 1 and all(gone)


def started(place: MailPlace) -> subprocess.Popen[bytes]:
    """A worker for one task, in a process of its own."""
    words, env, null = place.words("queue", "process-next"), place.environ, subprocess.DEVNULL
    return command.Popen(words, env=env, stdin=null, stdout=-1, stderr=-1)


def has_come(fifo: Path) -> bool:
    """Whether a program says through a FIFO that it runs."""
    with os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb", 0) as file:
        return bool(select.select([file], [], [], PATIENCE)[0]) and file.read(9) == b"\n"


def sent_again(place: MailPlace) -> int:
    """Deliver what a killed worker left; how often the log says that it may arrive twice."""
    place.work()  # counts the failed attempt
    place.change("promote")
    assert (place.work().returncode, place.tasks()) == (0, [])
    return sum("MAIL_SEND_IN_DOUBT" in line for line in place.lines())


@pytest.mark.parametrize("name", ["curl", "msmtp"])
def test_a_client_of_a_server_ends_with_its_worker(place: MailPlace, name: str) -> None:
    """The server accepts no mail of the killed transfer; the next run logs the doubt, sends it."""
    ident = place.spool()
    with place.served(name, body=[STALL]) as server:
        worker = started(place)
        assert server.stalled.wait(PATIENCE) and killed(worker)
        spooled = MailSpool(str(place.mails)).read(place.meta(ident))
        assert (spooled.sent, spooled.trying is not None) == (None, True)
        assert sent_again(place) == len(server.mails) == 1


@pytest.mark.parametrize("name", ["sendmail", "exim", "a handler"])
def test_a_program_ends_with_its_worker(place: MailPlace, name: str) -> None:
    """Neither a mail program nor the processes of a handler go on; the mail is sent once."""
    ready, program, accepted = (place.folder / word for word in ("ready", name, "accepted"))
    os.mkfifo(ready)
    accepts, is_mail = f"cat > /dev/null; echo yes >> {accepted}", name != "a handler"
    if is_mail:
        place.spool()
        a_script(program, f"cat > /dev/null; echo > {ready}; sleep 600; {accepts}")
        place.config.write_text(f"mail: {{method: {name}, programs: {{{name}: {program}}}}}\n")
        del place.environ["NFTBAN_MAIL_METHOD"]
    else:
        a_script(program, f"sleep 600 & echo > {ready}; sleep 600")
        place.config.write_text(f"handlers: {{job: {{command: ['{program}']}}}}\n")
        assert place.run("queue", "add", "job").returncode == 0
    worker = started(place)
    assert has_come(ready)
    assert killed(worker)
    assert not accepted.exists()
    if is_mail:
        a_script(program, accepts)
        assert sent_again(place) == 1
        assert accepted.read_text() == "yes\n"


def test_a_mail_of_zgb_is_sent_again_with_its_doubt_logged(tmp_path: Path) -> None:
    """A killed run leaves no curl; the run after the lease logs the doubt and sends once."""
    needs("curl")
    site = Site(tmp_path)
    with Server(body=[STALL]) as server:
        site.configure(
            f"method: curl, relay: {{host: {HOST}, port: {server.port}}}, plain_hosts: ['{HOST}']"
        )
        site.make(7)
        site.enqueue(7)
        worker = site.start("zgb", "work", site.path)
        assert server.stalled.wait(PATIENCE) and killed(worker)
        assert site.jobs() == [("7-user", "sending")]
        for column in ("locked_until", "next_attempt_at"):  # the lease lapses, then the wait
            site.sql(f"UPDATE mail_queue SET {column} = 1")
            site.settle(mailTokens="1")
            site.work()
        assert (site.jobs(), len(server.mails)) == ([], 1)
    assert [line["attempt"] for line in site.logged("in_doubt")] == [2]
    log = next((tmp_path / "data").rglob("mail.log")).read_text()
    assert log.count("MAIL_SEND_IN_DOUBT task_id=7-user ") == 1


@pytest.mark.parametrize("recovers", [False, True])
def test_a_kannader_mail_is_sent_again_with_a_doubt_logged(tmp_path: Path, recovers: bool) -> None:
    """It stays in flight; the worker after the lease logs the doubt and sends it once."""
    place = Spool(tmp_path)
    place.enqueue(TO)
    lines: list[str] = []
    with Server(body=[STALL]) as server:
        place.settle(server)
        worker = place.start("kannader", "work", str(place.path))
        assert server.stalled.wait(PATIENCE)
        worker.kill()
        worker.communicate()
        (task,) = place.tasks()
        to = SmtpDestination(HOST, server.port)
        for hours in (2, 4):  # the lease lapses, then the wait
            clock = partial(float, task.created + hours * 3600)
            with closing(KannaderStore(str(place.path), clock)) as store:
                if recovers:  # as a worker does at its start; else a running one gives it back
                    store.recover()
                policy = retry_policy(KannaderSettings())
                with closing(make_handler(store, to, lines.append)) as handler:
                    after = Worker(store, {"mail": handler}, policy, clock=clock)
                    after.process_all(until_idle=True)
        assert len(server.mails) == 1
    assert place.is_clean
    assert [line.partition(" task_id=")[0] for line in lines] == ["MAIL_SEND_IN_DOUBT"]
