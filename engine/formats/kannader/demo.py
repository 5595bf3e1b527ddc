"""Kannader's demo place: a mail spool, and the SMTP server for its mail."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress

from engine import verbs
from engine.demo.keeper import HOUR, MINUTE, DemoSettings, PastTraffic, live_through
from engine.demo.smtp_server import BUSY_REPLY, DemoSmtpServer
from engine.formats.kannader.settings import KannaderSettings, retry_policy
from engine.formats.kannader.store import KannaderStore, make_spool
from engine.model import Task
from engine.store import Unavailable
from engine.values import NamedTuple

BUSY_ERROR = f"unavailable_450: {BUSY_REPLY} - RCPT"
"""The error of a worker for this reply."""


class DemoMail(NamedTuple):
    """One kind of mail in the traffic; `{n}` is a number."""

    sender: str
    recipients: tuple[str, ...]
    subject: str
    weight: int


SAMPLE_MAILS = (
    DemoMail("shop@example.net", ("anna{n}@north.example.net",), "Your order {n}", 10),
    DemoMail("shop@example.net", ("gone{n}@west.example.net",), "Your order {n}", 1),
    DemoMail("office@example.net", ("busy{n}@south.example.net",), "Minutes of meeting {n}", 1),
    DemoMail("office@example.net", ("busy{n}@west.example.net",), "Minutes of meeting {n}", 1),
    DemoMail(
        "news@example.net",
        ("bert{n}@north.example.net", "busy{n}@south.example.net", "carla{n}@east.example.net"),
        "News of week {n}",
        2,
    ),
)

ENOUGH_MAILS = 300
"""Number of queued mails at which the traffic pauses."""


class DemoMailSpool:
    """A Kannader spool: mails deferred, held and left in flight by a dead sender, and two damaged
    ones."""

    name, interval = "outbox", 2.0  # no command of the command line: `spooldeck NAME` opens it
    work: Mapping[str, Sequence[str]] = {name: ("kannader", "work")}

    def make(self, settings: DemoSettings) -> Mapping[str, str]:
        """Make the spool; return its configuration with the port of its server."""
        self._place, now = f"{settings.folder}/{self.name}", settings.now
        self._random, self._sink = random.Random(7), DemoSmtpServer()
        make_spool(self._place)
        host, port = "127.0.0.1", self._sink.server_address[1]
        spool = KannaderSettings(host, port, first_wait=MINUTE, lifetime=2 * HOUR)
        clock = PastTraffic(now)
        with closing(KannaderStore(self._place, clock, durable=False)) as store:
            self._leave(store, now)
            retry = retry_policy(spool)
            ages = (95 * MINUTE, 50 * MINUTE, 12 * MINUTE, 2 * MINUTE)
            for age, busy in zip(ages, SAMPLE_MAILS[2:4] * 2, strict=True):
                clock.now = now - age
                self._send(store, busy, clock.now)
                live_through(store, clock, retry, lambda task: BUSY_ERROR, now)
        return {
            "stores": f"  kannader: {{host: {host}, port: {port}, "
            f"first_wait: {spool.first_wait:g}, lifetime: {spool.lifetime:g}}}\n"
        }

    def _leave(self, store: KannaderStore, now: float) -> None:
        """Make what an operator, a dead sender and a full disk leave behind."""
        good = SAMPLE_MAILS[0]
        self._send(store, good, now - 4 * MINUTE)
        for _ in store.take(now + 1, "demo", 1):
            pass  # claimed and never finished
        (held,) = self._send(store, good, now - 20 * MINUTE)
        for task in store.scan({held}):
            assert isinstance(task, Task)
            store.swap(task, verbs.hold(task, now))
        sent = [*self._send(store, good, now - 3 * HOUR), *self._send(store, good, now - 3 * HOUR)]
        links = [f"{self._place}/queue/{ident}" for ident in sent]
        mails = [os.path.dirname(f"{self._place}/queue/{os.readlink(link)}") for link in links]
        shutil.rmtree(mails[0])  # a link that leads to no mail
        os.unlink(links[1])  # a mail without a link
        for path, folders, names in os.walk(mails[1]):
            for name in (".", *folders, *names):
                os.utime(f"{path}/{name}", (now - 3 * HOUR,) * 2)

    def open(self) -> None:
        """Start the server, and open the spool for the traffic."""
        self._sink.start()
        self._store = KannaderStore(self._place)

    def add(self, now: float) -> None:
        """Add a mail."""
        if len(os.listdir(f"{self._place}/queue")) >= ENOUGH_MAILS:
            return
        weights = [mail.weight for mail in SAMPLE_MAILS]
        (mail,) = self._random.choices(SAMPLE_MAILS, weights)
        with suppress(Unavailable):  # an operator's plan has locked the spool: skip this mail
            self._send(self._store, mail, now)

    def _send(self, store: KannaderStore, mail: DemoMail, at: float) -> list[str]:
        number = self._random.randrange(10, 99)
        to = [address.format(n=number) for address in mail.recipients]
        subject = mail.subject.format(n=number)
        text = f"From: {mail.sender}\nTo: {', '.join(to)}\nSubject: {subject}\n\n{subject}.\n"
        made = store.enqueue(mail.sender, to, [text.encode()])
        for ident in made:
            path = f"{self._place}/queue/{ident}"
            with suppress(FileNotFoundError):  # a worker may have claimed it
                os.utime(path, (at, at), follow_symlinks=False)
        return made
