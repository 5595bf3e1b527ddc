"""A temporary mail sender: real spool, log and counters, a set clock, scripted transports."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.config.mail_config import MailSettings
from engine.locks.token_buckets import TokenBuckets
from engine.mail.host import Host
from engine.mail.model import Mail, NotSent, Reason, Transport, Unused, absent_because
from engine.mail.send.delivery_log import DeliveryPaths, Ledger
from engine.mail.send.mail_spool import MailSpool
from engine.mail.send.sender import Sender, SendResult
from engine.mail.send.suspensions import Suspensions
from engine.mail.send.transport_chooser import TransportChooser
from engine.mail.transports.registry import TransportRegistry
from engine.system import files

NOW = 1_795_170_000.0
"""2026-11-20 10:20:00 UTC."""

HOST = Host("web1.example.com", "192.0.2.7")
TASK = "20261120T102000Z-mail_send-00000001"


def busy(word: str = "unavailable_450") -> NotSent:
    """A refusal for now."""
    return NotSent(Reason.UNAVAILABLE, word, "450 try again later")


def refusal() -> NotSent:
    """A refusal for good."""
    return NotSent(Reason.REJECTED, "rejected_550", "550 no such user", permanent=True)


class Recorder:
    """A transport that answers by a script and accepts each mail after the script's end."""

    def __init__(self, *script: Exception | None, name: str = "sendmail", absent: str = "") -> None:
        self.name = name
        self._absent = absent
        self.script = list(script)
        self.asked: list[Mail] = []
        self.accepted: list[Mail] = []
        self.watch: Callable[[], object] = lambda: None
        """Called at the begin of each attempt."""
        self.after: Callable[[], object] = lambda: None
        """Called after the acceptance, before `send` returns."""

    def absence(self) -> Unused | None:
        """The reason that was set."""
        return absent_because(self._absent)

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Do the next step of the script."""
        self.asked.append(mail)
        self.watch()
        answer = self.script.pop(0) if self.script else None
        if answer is not None:
            raise answer
        self.accepted.append(mail)
        self.after()

    def recipients(self) -> list[str]:
        """The recipients of the accepted mails."""
        return [mail.recipient for mail in self.accepted]


class SenderParts:
    """The parts of a sender, in one folder."""

    def __init__(self, root: Path, *transports: Transport, **settings: Any) -> None:
        self.root = root
        self.now = NOW
        deliveries = f"{root}/mail/delivery.jsonl"
        usual = MailSettings(recipient="admin@example.com", allowed_paths=(str(root),))
        self.settings = usual._replace(**{"delivery_log": deliveries, **settings})
        self.spool = MailSpool(f"{root}/mailspool", str(root), self.clock)
        self.complaints: list[str] = []
        self.pauses: list[float] = []
        self.watch: Callable[[], object] = lambda: None
        """Called during each pause."""
        self.queued: list[tuple[str, str]] = []
        self.suspensions = Suspensions(f"{root}/suspended", str(root))
        names = ("log/mail.log", "metrics/mail.prom", "metrics/counters")
        log, prom, counters = (f"{root}/{name}" for name in names)
        places = DeliveryPaths(log, prom, counters, self.settings.delivery_log, root=str(root))
        self.ledger = Ledger(places, self.complaints.append, self.clock)
        self._transports: Mapping[str, Transport] = {each.name: each for each in transports}

    def clock(self) -> float:
        """The current time."""
        return self.now

    def post(self, limits: TokenBuckets | None = None) -> Sender:
        """A new sender."""
        hooks: dict[str, Any] = {"clock": self.clock, "pause": self.pause}
        hooks |= {"complain": self.complaints.append}
        registry, suspended = TransportRegistry(self.settings, self._transports), self.suspensions
        chooser = TransportChooser(
            self.settings, registry, suspended.read, limits, self.clock, host_name=HOST.name
        )
        return Sender(chooser, HOST, self.spool, self.ledger, **hooks)

    def limited_post(self) -> Sender:
        """A new sender with the token buckets that the settings ask for."""
        rates = {f"transport:{name}": rate for name, rate in self.settings.rates.items()}
        rates |= {f"domain:{name}": rate for name, rate in self.settings.domains.items()}
        return self.post(TokenBuckets(f"{self.root}/buckets", rates, self.clock))

    def send(
        self, content: str = "the disk is full", to: str = "", subject: str = ""
    ) -> SendResult:
        """Send a mail with retries."""
        (ended,) = self.post().send_with_retry(content, to, subject, enqueue=self.enqueue)
        return ended

    def deliver(self, payload: str, attempt: int = 1) -> None:
        """Deliver a spooled mail."""
        self.post().deliver(payload, TASK, attempt, lambda: False)

    def suspend(self, name: str) -> None:
        """Suspend a transport as an operator does."""
        self.suspensions.suspend(name, self.now, "root@web1", "maintenance")

    def pause(self, seconds: float) -> None:
        """Advance the clock."""
        self.pauses.append(seconds)
        self.now += seconds
        self.watch()

    def enqueue(self, description: str, payload: str) -> str:
        """Record a task for a spooled mail."""
        assert Path(payload).is_file(), "a task must never name a mail that is not there yet"
        self.queued.append((description, payload))
        return f"20261120T102000Z-mail_send-{len(self.queued):08x}"

    def log(self) -> list[str]:
        """The lines of the mail log, without their times."""
        path = self.root / "log/mail.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.partition("] ")[2] for line in lines]

    def metric(self, name: str) -> int:
        """A published metric."""
        lines = (self.root / "metrics/mail.prom").read_text().splitlines()
        (value,) = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")]
        return int(value)

    def counts(self) -> tuple[int, ...]:
        """The published attempts, successes and failures of sendmail."""
        words = ("attempts", "success", "failures")
        names = [f'nftban_mail_send_{word}_total{{transport="sendmail"}}' for word in words]
        return tuple(self.metric(name) for name in names)


def spooled(root: Path, content: str = "the disk is full", to: str = "", subject: str = "") -> str:
    """Spool a mail; returns the payload of its task."""
    ended = SenderParts(root, method="none").send(content, to, subject)
    (root / "log/mail.log").unlink()
    return ended.payload


def marks(payload: str) -> set[str]:
    """The names of the files beside the two files of a spooled mail."""
    return {path.name for path in Path(payload).parent.iterdir()} - {"meta.sh", "body.txt"}


def full_disk(monkeypatch: pytest.MonkeyPatch, *calls: str) -> None:
    """Let these functions of `engine.system.files` fail with ENOSPC."""

    def refused(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in calls:
        monkeypatch.setattr(files, name, refused)
