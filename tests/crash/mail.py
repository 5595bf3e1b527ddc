"""A mail on its way: spooled and queued, delivered or refused by a worker, killed at any step.

A test transport accepts a mail by adding it to the file `accepted`. Recovery is the next command;
then housekeeping, or an operator, makes the task of a mail that no task names, and workers do all
that is due."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from engine import verbs
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.logs.delivery_records import Delivery, DeliveryRecords
from engine.mail.message.content import Content
from engine.mail.model import Mail, MailError
from engine.mail.send import spool_entry
from engine.mail.send.queuing import QUEUING_SECONDS, queue_unqueued
from engine.mail.send.suspensions import Suspensions
from engine.model import Task
from engine.policy import contract_retries
from engine.store import StoreError
from engine.work.mail_send import MailSend
from engine.work.services import WorkerServices
from engine.work.worker import Worker
from tests.crash.harness import KILLS, Case, Ended, Fault, Result
from tests.mail_sender import NOW, SenderParts, busy

REFUSED, TIMEOUT = "unavailable_450", "timeout"
MARK = b"\n=== the end of a mail ===\n"

_append, _open = os.write, os.open
"""The system's own: what a transport does is not the engine's, and no point."""


class Recorder:
    """A transport that adds each mail to a file and fails by a word, by `timeout` after that."""

    name = "sendmail"

    def __init__(self, root: Path, word: str) -> None:
        self._path, self._word = root / "accepted", word

    def absence(self) -> None:
        """Return None: it is there."""

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Accept the mail, or raise."""
        if self._word not in ("", TIMEOUT):
            raise busy(self._word)
        fd = _open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        _append(fd, mail.data + MARK)
        os.close(fd)
        if self._word:
            raise busy(self._word)


def _spool_at(root: Path) -> SpoolFolders:
    queue = f"{root}/queue"
    return SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", f"{root}/mailspool")


def _opened(root: Path, later: float = 0) -> closing[NftbanStore]:
    return closing(NftbanStore(_spool_at(root), lambda: NOW + later))


def _office_at(root: Path, word: str = "", later: float = 0) -> SenderParts:
    sender_parts = SenderParts(root, Recorder(root, word), attempts=1)
    sender_parts.now = NOW + later
    return sender_parts


def send(root: Path, word: str) -> int:
    """Spool and queue a mail; return the command's exit code, 5 where it could not be queued."""
    with _opened(root) as store:

        def enqueue(description: str, payload: str) -> str:
            task = verbs.enqueue("mail_send", NOW, "00000001", description, payload)
            store.swap(None, task)
            return task.id

        post = _office_at(root, word).post()
        (sent,) = post.send_with_retry("the disk is full", enqueue=enqueue)
        if sent.lost:
            raise sent.lost
    return 1 if sent.task_id else 5


def work(root: Path, word: str = "", later: float = 60, *, until_idle: bool = False) -> int:
    """Deliver what is due, as a worker does; return the command's exit code."""
    sender_parts = _office_at(root, word, later)
    with _opened(root, later) as store:
        store.recover()
        handlers = {"mail_send": MailSend(sender_parts.post())}
        worker = Worker(
            store, handlers, contract_retries(), services=WorkerServices(), clock=sender_parts.clock
        )
        run = worker.process_all(until_idle=True) if until_idle else worker.process_next()
    return 0 if run.done else 3 if run.failed or run.owed else 1


def keep(root: Path) -> None:
    """Spool a mail as a sender does that is killed before it makes its task."""
    spool = _office_at(root).spool
    content = Content("the disk is full", html=False)
    spool.store_mail(spool_entry.new_id(NOW), "admin@example.com", "Alert", content)


def queue(root: Path, word: str) -> int:
    """Make the task of a mail that has none, as housekeeping does a minute later."""
    later = time.time() + 2 * QUEUING_SECONDS
    with closing(NftbanStore(_spool_at(root), lambda: later)) as store:
        store.recover()

        def enqueue(description: str, payload: str) -> str:
            task = verbs.enqueue("mail_send", NOW, "00000009", description, payload)
            store.swap(None, task)
            return task.id

        list(queue_unqueued(_office_at(root).spool, later, store.find_named_payloads, enqueue))
    return 0


def _accepted(root: Path) -> list[bytes]:
    path = root / "accepted"
    return path.read_bytes().split(MARK)[:-1] if path.exists() else []


def _mails(root: Path) -> list[Path]:
    return sorted((root / "mailspool").glob("mail-*"))


def _tasks(root: Path) -> list[Path]:
    return list((root / "queue").rglob("*.task"))


class _Way(Case):
    """A way that a mail goes: `send` or `work`, with what the transport answers."""

    refusals = (StoreError, OSError)

    def __init__(self, act: Callable[[Path, str], int], word: str, *, errors: bool = True) -> None:
        self._act, self._word = act, word
        if not errors:
            self.errors = ()
        self._doubled: list[Fault] = []

    def lay_out(self, root: Path) -> None:
        for path in _spool_at(root)[:4]:
            Path(str(path)).mkdir(parents=True)
        if self._act is work:
            send(root, REFUSED)
        elif self._act is queue:
            keep(root)

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        return lambda: self._act(root, self._word)

    def left(self, root: Path, ended: Ended) -> Iterator[str]:
        """Report half a mail in the spool, and an exit code that says too much."""
        self._accepted, self._visible = len(_accepted(root)), len(_mails(root))
        self._doubtful = False
        for folder in _mails(root):
            names = {path.name for path in folder.iterdir()}
            self._doubtful |= "trying" in names and "sent" not in names
            if names and "sent" not in names and not names >= {"meta.sh", "body.txt"}:
                yield f"half of a mail is visible: {names}"
        if self._act is send:
            if self._visible > 1 or (self._visible == 0 and ended.done):
                yield f"{self._visible} mails after {ended}"
            # What stays hidden on a broken disk is swept later.
            refused_once = ended.refused is not None and not ended.fault.how.endswith("+")
            hidden = list((root / "mailspool").glob("*")) if refused_once else []
            broken = ended.fault.how == "EIO+"
            if hidden or (ended.refused is not None and self._visible and not broken):
                yield f"refused, and left {hidden}, {_mails(root)}"
        elif self._word or self._act is queue:
            if self._accepted or not self._visible:
                yield f"{self._accepted} accepted, {self._visible} in the spool"
        elif ended.answer == 0 and self._accepted != 1:
            yield "exit code 0, and no mail was accepted"

    def recover(self, root: Path, now: float) -> None:
        """Recover as the next command does."""
        with _opened(root) as store:
            store.recover()

    def wrong(self, root: Path, ended: Ended, content: Mapping[str, object]) -> Iterator[str]:
        """Have everything delivered; report mails lost, doubled without a word or left over."""
        queued = len(_tasks(root))
        if queued > self._visible + (self._act is work) or (ended.answer == 1 and not queued):
            yield f"{queued} tasks for {self._visible} mails"
        if self._act is work and self._word and queued != 1:
            yield f"refused, and there are {queued} tasks"
        queue(root, "")
        with _opened(root) as store:
            named = {item.payload for item in store.scan() if isinstance(item, Task)}
            metas = (path / "meta.sh" for path in _mails(root) if not (path / "sent").exists())
            unnamed = {str(meta) for meta in metas if meta.exists()} - named
            for payload in unnamed if self._act is work else ():
                retried = verbs.enqueue("mail_send", NOW, "00000008", "retried", payload)
                store.swap(None, retried)
        for later in (3600, 7200):
            if _tasks(root):
                work(root, later=later, until_idle=True)
        _office_at(root).spool.sweep(lambda at: time.time() + 30 * 86400 - at)
        if left := [*_tasks(root), *_mails(root)]:
            yield f"left over: {left}"
        log = root / "log/mail.log"
        warned = log.read_text().count("may arrive twice") if log.exists() else 0
        all_accepted = _accepted(root)
        twice = self._accepted == 1 and self._doubtful
        expected = self._visible if self._act is send else 1
        if self._word == TIMEOUT:
            expected += self._accepted
            if self._doubtful != bool(self._visible):
                yield "spooled without its doubt"
        elif self._act is work:
            expected += twice
        if len(all_accepted) != expected or len(set(all_accepted)) > 1:
            yield f"accepted {len(all_accepted)} times, expected {expected}"
        if warned != self._doubtful:
            yield f"{warned} warnings that it may arrive twice"
        if twice and ended.killed and self._act is work:
            self._doubled.append(ended.fault)

    def sweep(self, folder: Path, every: int = 1) -> Result:
        """Sweep; a mail arrives twice after a kill at one step only."""
        result = super().sweep(folder, every)
        steps = {fault.step for fault in self._doubled if fault.how in KILLS}
        if self._act is work and not self._word and every == 1 and len(steps) != 1:
            result.failures.append(f"it arrives twice after a kill at {steps}")
        return result


class _Added(Case):
    """A delivery record more, for which old ones are removed."""

    refusals = (StoreError, OSError, MailError)

    def lay_out(self, root: Path) -> None:
        (root / "mail").mkdir()
        line = b'{"ts":"2026-11-20T09:44:50Z","result":"success","old":"%s"}\n' % (b"x" * 570)
        (root / "mail/delivery.jsonl").write_bytes(line * 10)

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        records = DeliveryRecords(f"{root}/mail/delivery.jsonl", 3, str(root))
        delivery = Delivery(NOW, "curl", "admin@example.com", "success")
        return lambda: records.add(delivery)

    def left(self, root: Path, ended: Ended) -> Iterator[str]:
        """Add the next one, which is on a line of its own behind whole lines."""
        self.begin(root, 0)()
        lines = (root / "mail/delivery.jsonl").read_text().splitlines()
        torn = [line for line in lines if not line.endswith("}")]
        parsed = [json.loads(line) for line in lines if line not in torn]
        if len(torn) > (not ended.done) or len(lines) < 3 or parsed[-1].get("transport") != "curl":
            yield f"{len(torn)} of {len(lines)} lines are torn; the last is {lines[-1]!r}"


class _Suspended(Case):
    """A transport more is suspended."""

    refusals = (StoreError, OSError, MailError)

    def lay_out(self, root: Path) -> None:
        self._suspensions(root).suspend("curl", NOW, "operator", "the relay is down")

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        return lambda: self._suspensions(root).suspend("exim", NOW, "operator", "")

    def content(self, root: Path) -> Mapping[str, object]:
        return dict.fromkeys(self._suspensions(root).read(), True)

    def undisturbed(self) -> Iterator[str]:
        """Report a wrong end."""
        if (set(self.before), set(self.after)) != ({"curl"}, {"curl", "exim"}):
            yield f"leads from {self.before} to {self.after}"

    def _suspensions(self, root: Path) -> Suspensions:
        return Suspensions(f"{root}/suspended", str(root))


CASES: Mapping[str, Case] = {
    "spool": _Way(send, REFUSED),
    "doubt": _Way(send, TIMEOUT, errors=False),
    "deliver": _Way(work, ""),
    "fail": _Way(work, REFUSED),
    "queue": _Way(queue, ""),
    "record": _Added(),
    "suspend": _Suspended(),
}
