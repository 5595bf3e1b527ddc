"""The `mail_send` handler, under a real worker: what becomes of a task and of its mail."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import files, verbs
from engine.handlers import Context, Later
from engine.handlers.mail_send import MailSend
from engine.model import State, Task
from engine.policy import contract
from engine.stores.nftban import NftbanStore, Spool
from engine.worker import Run, Services, Worker
from tests.mail.office import NOW, Office, Recorder, busy, refusal
from tests.mail.test_post import buckets, marks, spooled
from tests.tables import each

DESKS: list[Desk] = []
"""What a test has opened."""


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    """Closes it when the test is over."""
    yield
    while DESKS:
        DESKS.pop().store.close()


class Desk:
    """A queue beside a post office, and a worker that delivers."""

    def __init__(self, root: Path, *script: Exception | None, **settings: Any) -> None:
        self.way = Recorder(*script)
        self.office = Office(root, self.way, **settings)
        for word in ("pending", "work", "dlq", "mailspool"):
            (root / word).mkdir(exist_ok=True)
        spool = Spool(f"{root}/pending", f"{root}/work", f"{root}/dlq", f"{root}/mailspool")
        self.store = NftbanStore(spool, self.office.clock)
        self.post = self.office.post(buckets(self.office))
        self.log: list[str] = []
        DESKS.append(self)

    def add(self, payload: str, number: int = 1) -> Task:
        """A task for what lies there."""
        task = verbs.enqueue("mail_send", NOW, f"{number:08x}", "Spooled mail", payload)
        self.store.swap(None, task)
        return self.now(task)

    def run(self) -> Run:
        """One run of a timer."""
        services = Services(
            log=lambda level, text: self.log.append(f"{level} {text}"),
            gate=lambda kind: self.post.shut() if kind == "mail_send" else ("", None),
        )
        handled = {"mail_send": MailSend(self.post)}
        worker = Worker(self.store, handled, contract(), services=services, clock=self.office.clock)
        return worker.process_next()

    def now(self, task: Task) -> Task:
        """The task as it stands now."""
        (item,) = self.store.look({task.id})
        assert isinstance(item, Task)
        return item

    def tasks(self) -> list[Task]:
        """All that there are."""
        # A whole look begins with a peek, and says each of those once more.
        return list({i.id: i for i in self.store.look() if isinstance(i, Task)}.values())


def test_a_delivered_mail_leaves_with_its_task(tmp_path: Path) -> None:
    """After success neither task nor spool folder is left, and the mail went out once."""
    desk = Desk(tmp_path)
    payload = spooled(tmp_path)
    desk.add(payload)

    assert desk.run().done == 1
    assert desk.tasks() == []
    assert not Path(payload).parent.exists()
    assert [mail.recipient for mail in desk.way.accepted] == ["admin@example.com"]


def test_a_refused_mail_waits_and_is_delivered_later(tmp_path: Path) -> None:
    """A mail that is refused for now waits as the table says; its attempts count on in the log."""
    desk = Desk(tmp_path, busy(), busy("connect_refused"))
    task = desk.add(spooled(tmp_path))

    waits = []
    for _ in (1, 2):
        assert desk.run().failed == 1
        now = desk.now(task)
        waits.append((now.due or 0.0) - desk.office.now)
        desk.office.now = now.due or 0.0
    assert (now.attempts, now.error) == (2, "connect_refused: 450 try again later")
    assert desk.run().done == 1

    assert waits == [60, 120]
    assert [line.split(" transport")[0] for line in desk.office.log() if "ATTEMPT" in line] == [
        f"[INFO] MAIL_SEND_ATTEMPT task_id={task.id} attempt={n}" for n in (1, 2, 3)
    ]


def test_a_refusal_for_good_is_given_up_on_at_once(tmp_path: Path) -> None:
    """A permanent refusal sends the task to the dead with its reason; the mail is kept."""
    desk = Desk(tmp_path, refusal())
    payload = spooled(tmp_path)
    task = desk.add(payload)

    desk.run()

    dead = desk.now(task)
    assert (dead.state, dead.error) == (State.DEAD, "rejected_550: 550 no such user")
    assert Path(payload).exists()


@each(
    ("spoil", "error"),
    [
        (lambda meta: meta.unlink(), "Mail payload file not found: {meta}"),
        (lambda meta: meta.write_text('MAIL_TO="a"\n'), "Mail payload missing MAIL_BODY_FILE"),
        (
            lambda meta: (meta.parent / "body.txt").unlink(),
            "Mail body file not found: {meta.parent}/body.txt",
        ),
    ],
)
def test_a_broken_mail_is_given_up_on_in_the_contracts_words(
    tmp_path: Path, spoil: Callable[[Path], object], error: str
) -> None:
    """A spool folder without its parts is bad for good, and the task says so as the real program
    does; nothing is attempted. Log and delivery records say what became of it.
    """
    desk = Desk(tmp_path)
    meta = Path(spooled(tmp_path))
    task = desk.add(str(meta))
    spoil(meta)

    desk.run()

    dead = desk.now(task)
    assert dead.state is State.DEAD
    assert dead.error == error.format(meta=meta)
    assert desk.way.asked == []
    assert desk.office.log() == [
        f"[ERROR] MAIL_SEND_RESULT task_id={task.id} status=failed retries=0 "
        f"last_error=rejected_bad_mail: {dead.error}"
    ]
    record = (tmp_path / "mail/delivery.jsonl").read_text().splitlines()[-1]
    assert '"result":"failed","reason":"rejected_bad_mail: Mail ' in record


def test_what_the_real_program_spooled_is_delivered(tmp_path: Path) -> None:
    """A mail with the real program's form of id is delivered, whose metadata names a body.html that
    is a body.txt, as the real program writes for every text.
    """
    desk = Desk(tmp_path)
    folder = tmp_path / "mailspool/mail-2026-11-20T09:46:04Z-a1b2c3d4"
    folder.mkdir(parents=True)
    (folder / "body.txt").write_text("the disk is full\n")
    (folder / "meta.sh").write_text(
        f'MAIL_TO="admin@example.com"\nMAIL_SUBJECT="[ALERT] Disk"\n'
        f'MAIL_BODY_FILE="{folder}/body.html"\nMAIL_CREATED_EPOCH="1767787262"\n'
    )
    desk.add(f"{folder}/meta.sh")

    assert desk.run().done == 1
    (mail,) = desk.way.accepted
    assert (mail.subject, mail.id) == ("[ALERT] Disk", folder.name)
    assert "the disk is full" in mail.text
    assert not folder.exists()


def test_a_bug_fails_the_task_with_its_name(tmp_path: Path) -> None:
    """What a transport raises besides a refusal fails the task by its own name; whether the mail
    went out is not known, and the next attempt says so.
    """
    desk = Desk(tmp_path, ZeroDivisionError("a bug"))
    payload = spooled(tmp_path)
    task = desk.add(payload)

    desk.run()

    now = desk.now(task)
    assert (now.state, now.error, now.attempts) == (
        *(State.PENDING, "ZeroDivisionError: a bug", 1),
    )
    assert marks(payload) == {"trying"}
    desk.office.now = now.due or 0.0
    assert desk.run().done == 1
    assert len([line for line in desk.office.log() if "may arrive twice" in line]) == 1


def test_a_disk_without_room_for_the_mark_fails_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be marked as being tried is not tried; the task says why, and is kept."""
    desk = Desk(tmp_path)
    payload = spooled(tmp_path)
    task = desk.add(payload)
    kept, failing = files.fsync, [True]

    def refused(fd: int) -> None:
        if failing[0] and Path(payload).parent in Path(f"/proc/self/fd/{fd}").readlink().parents:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        kept(fd)

    monkeypatch.setattr(files, "fsync", refused)
    desk.run()

    now = desk.now(task)
    assert (now.state, now.attempts) == (State.PENDING, 1)
    assert now.error == "nothing was sent: No space left on device"
    assert desk.way.asked == []
    failing[0], desk.office.now = False, now.due or 0.0
    assert desk.run().done == 1


# ---- what is not begun


def test_a_transport_suspended_after_the_claim_gives_the_task_back(tmp_path: Path) -> None:
    """Suspended between the look and the attempt, a transport is not used; no attempt counts."""
    desk = Desk(tmp_path)
    desk.office.suspend("sendmail")
    task = replace(desk.add(spooled(tmp_path)), attempts=2)

    with pytest.raises(Later, match="suspended") as told:
        MailSend(desk.post)(task, Context())

    assert told.value.due == NOW + 60


def test_a_worker_told_to_end_ends_the_attempt(tmp_path: Path) -> None:
    """Whether it is cancelled is asked of the worker, by the transport itself."""
    asked: list[bool] = []

    class Patient(Recorder):
        """A transport that looks up now and then."""

        def send(self, mail: object, cancelled: Callable[[], bool]) -> None:
            """Ask."""
            asked.append(cancelled())

    office = Office(tmp_path, Patient())
    task = verbs.enqueue("mail_send", NOW, "00000001", "Spooled mail", spooled(tmp_path))

    MailSend(office.post())(task, Context(cancelled=lambda: True))

    assert asked == [True]
