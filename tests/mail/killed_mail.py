"""Kills a process at every step of a mail's way: run by test_mail_crash.py, in one of its own.

`killed_mail.py FOLDER WAY` makes a place for each step below FOLDER, in each a child that goes the
way and is killed there: before a call that changes a file, or, where it writes, with half of the
data written; or in which that call fails as on a broken disk, or it and all that follow find the
disk full. The ways: `spool`, a mail that is refused, spooled and queued; `doubt`, the same with one
that is accepted, which nobody is told; `deliver`, a worker's run for one that was refused; `fail`,
such a run in which it is refused once more; `queue`, the housekeeping that makes the task of a mail
that has none. A transport accepts a mail by adding it to the file
`accepted`.

Then the next worker comes and does all that is due. Answers with a line of JSON for each step, the
fields of a `Result`.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from engine import files, verbs
from engine.handlers.mail_send import MailSend
from engine.mail.content import Content
from engine.mail.model import Mail
from engine.mail.queuing import QUEUING_SECONDS, queue_unqueued
from engine.model import Task
from engine.policy import contract
from engine.store import StoreError
from engine.stores.nftban import NftbanStore, Spool
from engine.worker import Services, Worker
from tests.mail.office import NOW, Office, busy

STEPS = (
    *("rename", "unlink", "write", "fsync", "mkdir", "rmdir", "fchown", "fchmod", "ftruncate"),
    *("utime", "link"),
)
"""Everything by which the engine changes a file."""

KILLS = ("before", "torn")
"""To be killed after a call is to be killed before the next one, or at the end."""
ERRORS = {"broken": errno.EIO, "full": errno.ENOSPC}
"""How calls fail; when the disk is full, all that follow and need room fail as well."""

NEED_NO_ROOM = frozenset({"unlink", "rmdir", "fchown", "fchmod", "utime"})

REFUSED = "unavailable_450"

UNDISTURBED = "undisturbed"

MARK = b"\n=== the end of a mail ===\n"

_append = os.write
"""The system's own: what a transport does is not the engine's, and no step."""


class Result(NamedTuple):
    """How a child ended, what it left, and what the next worker made of that."""

    name: str
    ended: str
    """`killed`, or `done`."""
    code: int
    """What it answered, as the command does; 4 where it could not, 5 where it spooled and could not
    queue, -1 where it was killed.
    """
    accepted: int
    """Mails that the transport had accepted by then."""
    doubtful: bool
    """Whether the mail was marked as being tried, and not as sent."""
    half: list[str]
    """What looked like a mail in the spool and was none."""
    visible: int
    """Mails in the spool."""
    queued: int
    """Tasks of any state."""
    finally_accepted: int
    same: bool
    """Whether all that was accepted was one mail, to the byte."""
    said: int
    """How often the log said that a mail is in doubt."""
    left: list[str]
    """What is left of tasks and mails in the end."""


class Scribe:
    """A transport that accepts a mail by adding it to a file, and fails with a word, if it has one:
    for `timeout` after it has accepted it, else instead.
    """

    name = "sendmail"

    def __init__(self, root: Path, word: str) -> None:
        self._path, self._word = root / "accepted", word

    def absence(self) -> None:
        """It is there."""

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Accept it, or not."""
        if self._word and self._word != "timeout":
            raise busy(self._word)
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        _append(fd, mail.data + MARK)
        os.close(fd)
        if self._word:
            raise busy(self._word)


class Place:
    """A spool of tasks and one of mail, in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        queue = f"{root}/queue"
        self.spool = Spool(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", f"{root}/mailspool")

    def lay(self) -> None:
        """Make its folders."""
        for path in self.spool[:4]:
            Path(str(path)).mkdir(parents=True)

    def office(self, later: float = 0, word: str = "") -> Office:
        """Its post office, at a time after the beginning, with a transport that fails so."""
        office = Office(self.root, Scribe(self.root, word), attempts=1)
        office.now = NOW + later
        return office

    def send(self, word: str = REFUSED) -> int:
        """Go the way `spool`, or `doubt`; answers as the command does."""
        office, store = self.office(word=word), NftbanStore(self.spool, lambda: NOW)

        def enqueue(description: str, payload: str) -> str:
            task = verbs.enqueue("mail_send", NOW, "00000001", description, payload)
            store.swap(None, task)
            return task.id

        ended = office.post().send_with_retry("the disk is full", enqueue=enqueue)
        assert ended is not None
        return 1 if ended.task_id else 5

    def work(self, later: float, *, until_idle: bool = False, word: str = "") -> int:
        """Go the way `deliver`, or `fail`; answers as the command does."""
        office, store = self.office(later, word), NftbanStore(self.spool, lambda: NOW + later)
        store.recover()
        worker = Worker(
            store,
            {"mail_send": MailSend(office.post())},
            contract(),
            services=Services(),
            clock=office.clock,
        )
        run = worker.work(until_idle=True) if until_idle else worker.process_next()
        store.close()
        return 0 if run.done else 3 if run.failed or run.owed else 1

    def recover(self) -> None:
        """What the next command on the queue does first."""
        store = NftbanStore(self.spool, lambda: NOW)
        store.recover()
        store.close()

    def orphan(self) -> str:
        """The payload of a mail that no task is about; "" when there is none."""
        store = NftbanStore(self.spool, lambda: NOW)
        named = {item.payload for item in store.look() if isinstance(item, Task)}
        store.close()
        metas = {str(path) for path in Path(self.spool.mail_spool).glob("mail-*/meta.sh")}
        return next(iter(metas - named), "")

    def retry_orphan(self) -> None:
        """What an operator does with a mail that no task is about."""
        payload = self.orphan()
        if payload:
            store = NftbanStore(self.spool, lambda: NOW)
            store.swap(None, verbs.enqueue("mail_send", NOW, "00000008", "retried", payload))
            store.close()

    def keep(self) -> None:
        """What a sender does that is killed before it makes the task of its mail."""
        said = Content("the disk is full", html=False)
        spool = self.office().spool
        spool.keep(spool.fresh_id(NOW), "admin@example.com", "Alert", said)

    def queue_unqueued(self) -> int:
        """What housekeeping does a minute later with a mail that no task is about."""
        later = time.time() + 2 * QUEUING_SECONDS
        store = NftbanStore(self.spool, lambda: later)
        store.recover()

        def enqueue(description: str, payload: str) -> str:
            task = verbs.enqueue("mail_send", NOW, "00000009", description, payload)
            store.swap(None, task)
            return task.id

        list(queue_unqueued(self.office().spool, later, store.named, enqueue))
        store.close()
        return 0

    def mails(self) -> list[bytes]:
        """What was accepted."""
        path = self.root / "accepted"
        return path.read_bytes().split(MARK)[:-1] if path.exists() else []

    def tasks(self) -> list[str]:
        """Every task file, wherever it stands."""
        return [str(p.relative_to(self.root)) for p in (self.root / "queue").rglob("*.task")]

    def letters(self) -> list[Path]:
        """Every mail of the spool."""
        return sorted(Path(self.spool.mail_spool).glob("mail-*"))


WAYS: dict[str, Callable[[Place], int]] = {
    "spool": Place.send,
    "deliver": lambda place: place.work(60),
    "doubt": lambda place: place.send("timeout"),
    "fail": lambda place: place.work(60, word=REFUSED),
    "queue": lambda place: place.queue_unqueued(),
}


def deadly(step: int, how: str) -> list[str]:
    """Make the so many-th of all steps the last one of this process; the names of those so far."""
    passed: list[str] = []

    def wrap(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*args: object, **options: object) -> object:
            passed.append(name)
            at = len(passed)
            sticks = how == "full" and step < at and name not in NEED_NO_ROOM
            if at != step and not sticks:
                return call(*args, **options)
            if how in ERRORS:
                raise OSError(ERRORS[how], os.strerror(ERRORS[how]))
            if how == "torn":
                fd, data = args
                assert isinstance(data, bytes)
                call(fd, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("still alive")

        return wrapper

    for name in STEPS:
        setattr(files, name, wrap(name, getattr(files, name)))
    return passed


def run(root: Path, way: str, step: int, how: str) -> Result:
    """One place, one child, one death; and who comes after it."""
    place = Place(root)
    place.lay()
    if way in ("deliver", "fail"):
        place.send()
    if way == "queue":
        place.keep()
    child = os.fork()
    if child == 0:
        passed, code = deadly(step, how), 4
        try:
            code = WAYS[way](place)
        except (StoreError, OSError):
            pass  # it said that it could not
        finally:
            if how == UNDISTURBED:
                root.with_suffix(".steps").write_text(" ".join(passed))
            os._exit(code)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    name = f"{way}-{how}-{step}"
    return judged(place, name, "killed" if killed else "done", -1 if killed else status >> 8)


def judged(place: Place, name: str, ended: str, code: int) -> Result:
    """What it left, and what comes of that."""
    accepted, visible = len(place.mails()), place.letters()
    doubtful = any((p / "trying").exists() and not (p / "sent").exists() for p in visible)
    half = []
    for folder in visible:
        whole = (folder / "meta.sh").exists() and (folder / "body.txt").exists()
        names = sorted(path.name for path in folder.iterdir())
        if not whole and names and "sent" not in names:
            half.append(f"{folder.name}: {names}")
    place.recover()
    queued = len(place.tasks())
    place.queue_unqueued()
    if name.startswith(("deliver", "fail")):
        place.retry_orphan()
    for later in (3600, 7200):
        if place.tasks():
            place.work(later, until_idle=True)
    place.office().spool.sweep(time.time() + 30 * 86400)
    mails = place.mails()
    log = place.root / "log/mail.log"
    said = log.read_text().count("may arrive twice") if log.exists() else 0
    left = [*place.tasks(), *(path.name for path in place.letters())]
    return Result(
        *(name, ended, code, accepted, doubtful, half, len(visible), queued, len(mails)),
        same=len(set(mails)) <= 1,
        said=said,
        left=left,
    )


def faults(steps: list[str]) -> Iterator[tuple[int, str]]:
    """Everything that can go wrong at these steps, each by its number and in what manner."""
    for step, name in enumerate(steps, 1):
        yield step, "before"
        yield step, "broken"
        if name == "write":
            yield step, "torn"
        if name not in NEED_NO_ROOM:
            yield step, "full"
    yield 0, UNDISTURBED


def main(root: str, way: str) -> None:
    """Every fault that the steps of one undisturbed run can have."""
    first = Path(root, f"{way}-steps")
    run(first, way, 0, UNDISTURBED)
    steps = first.with_suffix(".steps").read_text().split()
    for step, how in faults(steps):
        if way == "doubt" and how in ERRORS:
            continue  # what these do to a mail that is spooled the way `spool` has seen
        result = run(Path(root, f"{way}-{how}-{step}"), way, step, how)
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
