"""The `mail_send` handler under a real worker: results for the task and for its mail."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import State, Task
from engine.policy import contract_retries
from engine.system import files
from engine.work.handlers import Context, Postponed
from engine.work.mail_send import MailSend
from engine.work.services import WorkerServices
from engine.work.worker import Worker, WorkerResult
from tests.mail_sender import NOW, Recorder, SenderParts, busy, marks, refusal, spooled
from tests.tables import each


class MailQueue(SenderParts):
    """A queue, a mail sender, and a worker that delivers."""

    def __init__(self, root: Path, *script: Exception | None) -> None:
        self.way = Recorder(*script)
        super().__init__(root, self.way)
        for word in ("pending", "work", "dlq", "mailspool"):
            (root / word).mkdir(exist_ok=True)
        spool = SpoolFolders(f"{root}/pending", f"{root}/work", f"{root}/dlq", f"{root}/mailspool")
        self.store = NftbanStore(spool, self.clock)
        self.sender = self.limited_post()

    def add(self, payload: str = "") -> tuple[Task, Path]:
        """Add a task for a spooled mail; the task and the mail's meta.sh."""
        payload = payload or spooled(self.root)
        task = verbs.enqueue("mail_send", NOW, "00000001", "Spooled mail", payload)
        self.store.swap(None, task)
        return self.now_of(task), Path(payload)

    def run(self) -> WorkerResult:
        """Run the worker once, as a timer does."""
        services = WorkerServices(
            log=lambda level, text: None,
            gate=lambda kind: (
                self.sender.chooser.blocking_reason() if kind == "mail_send" else ("", None)
            ),
        )
        more: Any = {"services": services, "clock": self.clock}
        handlers = {"mail_send": MailSend(self.sender)}
        return Worker(self.store, handlers, contract_retries(), **more).process_next()

    def now_of(self, task: Task) -> Task:
        """The current value of a task."""
        (item,) = self.store.scan({task.id})
        assert isinstance(item, Task)
        return item

    def wait_for(self, task: Task) -> float:
        """Let the time pass until a task is due; the seconds."""
        before, self.now = self.now, self.now_of(task).due or 0.0
        return self.now - before


@pytest.fixture
def queue(tmp_path: Path) -> MailQueue:
    """A queue whose transport accepts each mail."""
    return MailQueue(tmp_path)


def test_a_delivered_mail_leaves_with_its_task(queue: MailQueue) -> None:
    """Neither task nor folder is left; a mail in the real program's form is delivered too."""
    folder = queue.root / "mailspool/mail-2026-11-20T09:46:04Z-a1b2c3d4"
    folder.mkdir(parents=True)
    (folder / "body.txt").write_text("the disk is full\n")
    (folder / "meta.sh").write_text(
        f'MAIL_TO="admin@example.com"\nMAIL_SUBJECT="[ALERT] Disk"\n'
        f'MAIL_BODY_FILE="{folder}/body.html"\nMAIL_CREATED_EPOCH="1767787262"\n'
    )
    for payload in ("", f"{folder}/meta.sh"):
        _, meta = queue.add(payload)
        assert queue.run().done == 1
        assert (list(queue.store.scan()), meta.parent.exists()) == ([], False)
    ours, theirs = queue.way.accepted
    assert ours.recipient == "admin@example.com"
    assert (theirs.subject, theirs.id) == ("[ALERT] Disk", folder.name)
    assert "the disk is full" in theirs.text


def test_a_mail_refused_for_now_is_retried_later(queue: MailQueue) -> None:
    """A mail refused for now waits by the retry table; the log counts its attempts on."""
    queue.way.script = [busy(), busy("connect_refused")]
    task, _ = queue.add()
    for wait in (60, 120):
        assert (queue.run().failed, queue.wait_for(task)) == (1, wait)
    now = queue.now_of(task)
    assert (now.attempts, now.error) == (2, "connect_refused: 450 try again later")
    assert queue.run().done == 1
    assert [line.split(" transport")[0] for line in queue.log() if "ATTEMPT" in line] == [
        f"[INFO] MAIL_SEND_ATTEMPT task_id={task.id} attempt={n}" for n in (1, 2, 3)
    ]


def test_a_mail_refused_for_good_is_dead(queue: MailQueue) -> None:
    """A permanent refusal makes the task dead with its reason; the mail is kept."""
    queue.way.script = [refusal()]
    task, meta = queue.add()
    queue.run()
    dead = queue.now_of(task)
    assert (dead.state, dead.error) == (State.DEAD, "rejected_550: 550 no such user")
    assert meta.exists()


@each(("spoil", "error"), [
    (lambda meta: meta.unlink(), "payload file not found: {meta}"),
    (lambda meta: meta.write_text('MAIL_TO="a"\n'), "payload missing MAIL_BODY_FILE"),
    (
        lambda meta: (meta.parent / "body.txt").unlink(),
        "body file not found: {meta.parent}/body.txt",
    ),
], queue=MailQueue)  # fmt: skip
def test_a_broken_mail_is_dead_in_the_contracts_words(
    queue: MailQueue, spoil: Callable[[Path], object], error: str
) -> None:
    """Without its parts it fails for good and untried; log and delivery records have it."""
    task, meta = queue.add()
    spoil(meta)
    queue.run()
    dead = queue.now_of(task)
    assert (dead.state, dead.error) == (State.DEAD, f"Mail {error.format(meta=meta)}")
    assert queue.way.asked == []
    assert queue.log() == [
        f"[ERROR] MAIL_SEND_RESULT task_id={task.id} status=failed retries=0 "
        f"last_error=rejected_bad_mail: {dead.error}"
    ]
    record = (queue.root / "mail/delivery.jsonl").read_text().splitlines()[-1]
    assert '"result":"failed","reason":"rejected_bad_mail: Mail ' in record


def test_a_bug_fails_the_task_with_its_name(queue: MailQueue) -> None:
    """An exception of a transport fails the task by its name; the next attempt warns of a doubt."""
    queue.way.script = [ZeroDivisionError("a bug")]
    task, meta = queue.add()
    queue.run()
    now = queue.now_of(task)
    assert (now.state, now.attempts) == (State.PENDING, 1)
    assert (now.error, marks(str(meta))) == ("ZeroDivisionError: a bug", {"trying"})
    queue.wait_for(task)
    assert queue.run().done == 1
    assert len([line for line in queue.log() if "may arrive twice" in line]) == 1


def test_an_unmarked_mail_is_not_tried(queue: MailQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without disk space for the mark nothing is sent; the task has the reason and is kept."""
    task, meta = queue.add()

    def refused(fd: int) -> None:
        if meta.parent in Path(f"/proc/self/fd/{fd}").readlink().parents:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(files, "fsync", refused)
        queue.run()
    now = queue.now_of(task)
    assert (now.state, now.attempts) == (State.PENDING, 1)
    assert now.error == "nothing was sent: No space left on device"
    assert queue.way.asked == []
    queue.wait_for(task)
    assert queue.run().done == 1


def test_a_transport_suspended_after_the_claim_returns_the_task(queue: MailQueue) -> None:
    """A transport suspended after the claim is not used, and no attempt counts."""
    queue.suspend("sendmail")
    task, _ = queue.add()
    with pytest.raises(Postponed, match="suspended") as later:
        MailSend(queue.sender)(task._replace(attempts=2), Context())
    assert later.value.due == NOW + 60


def test_a_stopped_worker_ends_the_attempt(tmp_path: Path) -> None:
    """The transport itself asks the worker whether the attempt is cancelled."""
    asked: list[bool] = []

    class Patient(Recorder):
        def send(self, mail: object, cancelled: Callable[[], bool]) -> None:
            asked.append(cancelled())

    task = verbs.enqueue("mail_send", NOW, "00000001", "Spooled mail", spooled(tmp_path))
    MailSend(SenderParts(tmp_path, Patient()).post())(task, Context(is_cancelled=lambda: True))
    assert asked == [True]
