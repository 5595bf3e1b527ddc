"""A post office in a folder: the real spool, log, counters and template, a clock that is told, and
transports that do as a test says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.mail.host import Host
from engine.mail.ledger import Ledger, Places
from engine.mail.model import Mail, NotSent, Reason, Transport, Unused, absent
from engine.mail.post import Post, Tokens
from engine.mail.spool import MailSpool
from engine.mail.suspended import Suspensions
from engine.mail.transports import Ways
from engine.mailconf import MailSettings

NOW = 1_795_170_000.0
"""2026-11-20 10:20:00 UTC."""

HOST = Host("web1.example.com", "192.0.2.7")


def busy(word: str = "unavailable_450") -> NotSent:
    """A refusal that may be another one next time."""
    return NotSent(Reason.UNAVAILABLE, word, "450 try again later")


def refusal() -> NotSent:
    """A refusal for good."""
    return NotSent(Reason.REJECTED, "rejected_550", "550 no such user", permanent=True)


class Recorder:
    """A transport that answers by a script, and accepts whatever comes after its end."""

    def __init__(self, *script: Exception | None, name: str = "sendmail", absent: str = "") -> None:
        self.name = name
        self._absent = absent
        self.script = list(script)
        self.asked: list[Mail] = []
        self.accepted: list[Mail] = []
        self.watch: Callable[[], object] = lambda: None
        """Called while it is being asked."""
        self.after: Callable[[], object] = lambda: None
        """Called when it has accepted, before it says so."""

    def absence(self) -> Unused | None:
        """As it was told."""
        return absent(self._absent)

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Do what comes next in the script."""
        self.asked.append(mail)
        self.watch()
        answer = self.script.pop(0) if self.script else None
        if answer is not None:
            raise answer
        self.accepted.append(mail)
        self.after()


class Office:
    """All of it, in one folder."""

    def __init__(self, root: Path, *transports: Transport, **settings: Any) -> None:
        self.root = root
        self.now = NOW
        self.settings = MailSettings(
            recipient="admin@example.com",
            allowed_paths=(str(root),),
            delivery_log=f"{root}/mail/delivery.jsonl",
        )._replace(**settings)
        self.spool = MailSpool(f"{root}/mailspool", str(root), self.clock)
        self.complaints: list[str] = []
        self.pauses: list[float] = []
        self.watch: Callable[[], object] = lambda: None
        """Called during each pause."""
        self.queued: list[tuple[str, str]] = []
        self.suspensions = Suspensions(f"{root}/suspended", str(root))
        places = Places(
            log=f"{root}/log/mail.log",
            metrics=f"{root}/metrics/mail.prom",
            counters=f"{root}/metrics/counters",
            deliveries=self.settings.delivery_log,
            root=str(root),
        )
        self.ledger = Ledger(places, self.complaints.append, self.clock)
        self._transports: Mapping[str, Transport] = {each.name: each for each in transports}

    def clock(self) -> float:
        """The time that everybody is told."""
        return self.now

    def post(self, limits: Tokens | None = None) -> Post:
        """A post in this office."""
        return Post(
            self.settings,
            HOST,
            self.spool,
            self.ledger,
            Ways(self.settings, self._transports),
            self.suspensions.read,
            limits,
            self.clock,
            self.pause,
            complain=self.complaints.append,
        )

    def suspend(self, name: str) -> None:
        """What an operator does to a transport."""
        self.suspensions.suspend(name, self.now, "root@web1", "maintenance")

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.pauses.append(seconds)
        self.now += seconds
        self.watch()

    def enqueue(self, description: str, payload: str) -> str:
        """Take a task in."""
        assert Path(payload).is_file(), "a task must never name what is not there yet"
        self.queued.append((description, payload))
        return f"20261120T102000Z-mail_send-{len(self.queued):08x}"

    def log(self) -> list[str]:
        """The lines of the mail log, without their times."""
        path = self.root / "log/mail.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.partition("] ")[2] for line in lines]

    def metric(self, name: str) -> int:
        """What a line of the metrics says, as it was published."""
        lines = (self.root / "metrics/mail.prom").read_text().splitlines()
        (value,) = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")]
        return int(value)
