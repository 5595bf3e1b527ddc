"""The demo's places in other programs' formats, and the keeper that has them.

As everywhere in the demo nothing is painted: mails and jobs are put in by their stores, what failed
before the demo began was claimed and failed by the same stores under a clock of that time, and real
workers hand the rest to a mail server and to a program that are here for it.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import socketserver
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import NamedTuple

from engine import verbs
from engine.demo import traffic
from engine.model import Task
from engine.policy import RetryPolicy
from engine.store import Store, Unavailable
from engine.stores.kannader import KannaderStore, make_spool
from engine.stores.kannader import settings as kannader_settings
from engine.stores.zgb import ZgbStore, create
from engine.stores.zgb import settings as zgb_settings
from engine.system import files
from engine.work.rescuer import outcome_of_failure

MINUTE, HOUR = 60.0, 3600.0


class _PastTraffic:
    """A clock that is set by hand."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def _live_through(
    store: Store, clock: _PastTraffic, retry: RetryPolicy, fate: Callable[[Task], str], until: float
) -> None:
    """What a worker did until then: what came due was claimed, and done, or failed as `fate` says.

    `fate` is the error of a task; "" for one that was done.
    """
    end = verbs.last_state(store.edges)
    while True:
        for task in list(store.take(clock.now, "demo", traffic.MOST)):
            error = fate(task)
            failed = outcome_of_failure(task, error, retry, clock.now, end)
            store.swap(task, failed if error else None)
        due = store.doorbell.due
        if due is None or due >= until:
            return
        clock.now = max(due, clock.now + 1)


# ---- a spool of mails, and the server that they are handed to

ANSWERS = (
    ("busy", "450 4.2.0 mailbox busy"),
    ("gone", "550 5.1.1 no such user here"),
)
"""What the server says to whom, by how the address begins; it takes mail for anybody else."""

BUSY = f"unavailable_450: {ANSWERS[0][1]} - RCPT"
"""What a worker says of the first of them."""

TAKES = 0.3
"""Seconds that the server takes for a mail: so long can it be seen in flight."""


class _DemoSmtpSession(socketserver.StreamRequestHandler):
    """A mail server that remembers nothing."""

    def handle(self) -> None:
        """Speak SMTP until the other side leaves."""
        self._say("220 sink.example.net ESMTP")
        while line := self.rfile.readline():
            word, _, rest = line.decode("ascii", "replace").strip().partition(" ")
            if word.upper() == "DATA":
                self._say("354 go ahead")
                while self.rfile.readline() not in (b".\r\n", b""):
                    pass
                time.sleep(TAKES)
            self._say(_SAID.get(word.upper(), "250 2.0.0 ok") if word != "RCPT" else _to(rest))
            if word.upper() == "QUIT":
                return

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


_SAID = {
    "EHLO": "250-sink.example.net\r\n250-8BITMIME\r\n250 SMTPUTF8",
    "QUIT": "221 2.0.0 bye",
}


def _to(rest: str) -> str:
    address = rest.partition("<")[2]
    return next((said for begins, said in ANSWERS if address.startswith(begins)), "250 2.1.5 ok")


class _Sink(socketserver.ThreadingTCPServer):
    """On a port of this host that was free; it listens at once, and answers once it is run."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _DemoSmtpSession)

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever leaves in the middle is no matter."""


class DemoMail(NamedTuple):
    """One sort of mail in the traffic; `{n}` is a number."""

    sender: str
    recipients: tuple[str, ...]
    subject: str
    weight: int


LETTERS = (
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

EVERY = 2.0
"""Seconds from one mail of the traffic to the next."""

ENOUGH = 300
"""Mails in the queue at which this traffic pauses."""


class Mails:
    """A Kannader spool: mails deferred, held, left in flight by the dead, and two damaged ones."""

    name = "kannader"
    work = ("kannader", "work")

    def __init__(self) -> None:
        self._random = random.Random(7)
        self._last = 0.0

    def make(self, folder: str, now: float) -> Mapping[str, str]:
        """The spool, and the port of the server that its mail goes to."""
        self._place = f"{folder}/{self.name}"
        self._sink = _Sink()
        make_spool(self._place)
        settings = kannader_settings.KannaderSettings(
            *("127.0.0.1", self._sink.server_address[1]), first_wait=MINUTE, lifetime=2 * HOUR
        )
        clock = _PastTraffic(now)
        with closing(KannaderStore(self._place, clock, durable=False)) as store:
            self._leave(store, now)
            retry = kannader_settings.retry_policy(settings)
            ages = (95 * MINUTE, 50 * MINUTE, 12 * MINUTE, 2 * MINUTE)
            for age, busy in zip(ages, LETTERS[2:4] * 2, strict=True):
                clock.now = now - age
                self._send(store, busy, clock.now)
                _live_through(store, clock, retry, lambda task: BUSY, now)
        return {
            "stores": f"  {self.name}: {{host: {settings.host}, port: {settings.port}, "
            f"first_wait: {settings.first_wait:g}, lifetime: {settings.lifetime:g}}}\n"
        }

    def _leave(self, store: KannaderStore, now: float) -> None:
        """What an operator, a sender that died, and a full disk have left behind."""
        good = LETTERS[0]
        self._send(store, good, now - 4 * MINUTE)
        for _ in store.take(now + 1, "demo", 1):
            pass  # and nothing comes of it
        (held,) = self._send(store, good, now - 20 * MINUTE)
        for task in store.look({held}):
            assert isinstance(task, Task)
            store.swap(task, verbs.hold(task, now))
        (dangling,) = self._send(store, good, now - 3 * HOUR)
        link = f"{self._place}/queue/{dangling}"
        shutil.rmtree(os.path.dirname(f"{self._place}/queue/{os.readlink(link)}"))
        (orphan,) = self._send(store, good, now - 3 * HOUR)
        link = f"{self._place}/queue/{orphan}"
        mail = os.path.dirname(f"{self._place}/queue/{os.readlink(link)}")
        os.unlink(link)
        for path, folders, names in os.walk(mail):
            for name in (".", *folders, *names):
                os.utime(f"{path}/{name}", (now - 3 * HOUR,) * 2)

    def open(self) -> None:
        """Let the server answer, and begin the traffic."""
        threading.Thread(target=self._sink.serve_forever, daemon=True).start()
        self._store = KannaderStore(self._place)

    def add(self, now: float) -> None:
        """Now and then a mail."""
        if 0 <= now - self._last < EVERY or len(os.listdir(f"{self._place}/queue")) >= ENOUGH:
            return
        self._last = now
        weights = [letter.weight for letter in LETTERS]
        (letter,) = self._random.choices(LETTERS, weights)
        with suppress(Unavailable):  # an operator's plan has the spool: this one never came
            self._send(self._store, letter, now)

    def _send(self, store: KannaderStore, letter: DemoMail, at: float) -> list[str]:
        """Put a mail in that came at a time; the ids of its links."""
        number = self._random.randrange(10, 99)
        to = [address.format(n=number) for address in letter.recipients]
        subject = letter.subject.format(n=number)
        text = f"From: {letter.sender}\nTo: {', '.join(to)}\nSubject: {subject}\n\n{subject}.\n"
        made = store.enqueue(letter.sender, to, [text.encode()])
        for ident in made:
            path = f"{self._place}/queue/{ident}"
            if os.path.lexists(path):  # a worker may have it already
                os.utime(path, (at, at), follow_symlinks=False)
        return made


# ---- a database of registrations, and the program that their mails are handed to

RATE = 40
"""Mails an hour."""

REGISTERED = 3 * MINUTE
"""Seconds from one registration of the traffic to the next: as many mails as are sent."""

FAILED = (
    ("full", 75, "452 4.2.2 mailbox full", "unavailable_452: 452 4.2.2 mailbox full"),
    ("later", 75, "450 4.3.2 try again later", "unavailable_450: 450 4.3.2 try again later"),
)
"""By how an address begins: the exit code of the program, what it says, and what a worker says."""

_REGISTRATION = "INSERT INTO registrations (number, created_at, name, email) VALUES (?, ?, ?, ?)"

_NAMES = ("Ada", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gina", "Hugo", "Ines", "Jan")

_SENDMAIL = """\
#!/bin/sh
# What the demo sends mail with: it keeps what it is given, or fails as the address says.
here={here}
case " $* " in
{cases}
esac
exec cat > "$here/sent/$(date +%s).$$.eml"
"""

_CASE = '  *" {begins}"*) cat > /dev/null; echo "{said}" >&2; exit {code};;'

_TEMPLATES = {
    "user": "Dear {name},\n\nyour registration has the number {number}.\n",
    "organizer": "{name} <{email}> has registered, number {number}.\n",
}

_YAML = """\
  {name}:
    log: {log}
    sender: registration@example.net
    types:
      user: {{template: {user}}}
      organizer: {{template: {organizer}, to: office@example.net}}
"""

_MAIL = """\
  method: sendmail
  programs: {{sendmail: {program}}}
"""


class Registrations:
    """A ZGB mail queue: jobs that wait for their turn, some that failed, and two parked ones."""

    name = "zgb.db"
    work = ("zgb", "work", "--loop")

    def make(self, folder: str, now: float) -> Mapping[str, str]:
        """The database, the templates and the program."""
        self._place, self._number = f"{folder}/{self.name}", 0
        self._last = now
        create(self._place)
        self._change(lambda database: self._settle(database, now))
        settings = zgb_settings.ZgbSettings()
        clock = _PastTraffic(now)
        place = settings.place(self._place, durable=False)
        with closing(ZgbStore(place, clock)) as store:
            store.control("mailMaxPerHour", value=str(RATE))
            store.control("mailQueueEnabled", value="1")
            ages = [age for age, _ in _BEFORE]
            for (age, local), until in zip(_BEFORE, (*ages[1:], 0), strict=True):
                clock.now = now - age
                self._register(store, local, clock.now)
                _live_through(store, clock, place.retry, self._fate, now - until)
            for turn in range(10):
                clock.now = now - (10 - turn) * 20
                self._register(store, _NAMES[turn % len(_NAMES)].lower(), clock.now)
        return self._said(folder)

    @staticmethod
    def _settle(database: sqlite3.Connection, now: float) -> None:
        """What the program that registers has in its database besides."""
        for column in ("name", "email"):
            database.execute(f"ALTER TABLE registrations ADD COLUMN {column} TEXT")
        days = {"startDate": now - 10 * 24 * HOUR, "endDate": now + 20 * 24 * HOUR}
        for key, moment in days.items():
            said = time.strftime("%Y-%m-%d", time.gmtime(moment))
            database.execute("INSERT INTO config (key, value) VALUES (?, ?)", (key, said))

    def _said(self, folder: str) -> Mapping[str, str]:
        program = f"{folder}/sendmail"
        os.mkdir(f"{folder}/sent")
        cases = [_CASE.format(begins=b, code=code, said=said) for b, code, said, _ in FAILED]
        script = _SENDMAIL.format(here=shlex.quote(folder), cases="\n".join(cases))
        files.publish(program, script.encode(), 0o755)
        paths = {kind: f"{folder}/{kind}.txt" for kind in _TEMPLATES}
        for kind, text in _TEMPLATES.items():
            files.publish(paths[kind], text.encode())
        quoted = {kind: json.dumps(path) for kind, path in paths.items()}
        log = json.dumps(f"{folder}/mail-queue.log")
        return {
            "stores": _YAML.format(name="zgb", log=log, **quoted),
            "mail": _MAIL.format(program=json.dumps(program)),
        }

    def _register(self, store: ZgbStore, local: str, now: float) -> None:
        self._number = number = self._number + 1
        name, email = local.capitalize(), f"{local}{number}@example.net"
        row = (number, int(now), name, email)
        self._change(lambda database: database.execute(_REGISTRATION, row))
        store.enqueue(number)

    def _change(self, change: Callable[[sqlite3.Connection], object]) -> None:
        """What the program does whose database it is."""
        with closing(sqlite3.connect(self._place)) as database, database:
            database.execute("PRAGMA synchronous = OFF")  # it is thrown away
            change(database)

    def _fate(self, task: Task) -> str:
        """How a mail of the past went: those to the organizer were sent."""
        if task.kind != "user":
            return ""
        local = _BEFORE[int(task.id.partition("-")[0]) - 1][1]
        return next(error for begins, _, _, error in FAILED if local == begins)

    def open(self) -> None:
        """There is nothing beside the worker."""

    def add(self, now: float) -> None:
        """Now and then a registration."""
        if 0 <= now - self._last < REGISTERED:
            return
        self._last = now
        name = _NAMES[self._number % len(_NAMES)].lower()
        place = zgb_settings.ZgbSettings().place(self._place)
        locked = suppress(Unavailable, sqlite3.OperationalError)  # for long: nobody registered
        with locked, closing(ZgbStore(place)) as store:
            self._register(store, name, now)


_BEFORE = (
    *((8 * HOUR, "full"), (7.5 * HOUR, "full")),
    *((3 * HOUR, "later"), (80 * MINUTE, "later"), (25 * MINUTE, "later"), (9 * MINUTE, "later")),
)
"""Registrations of before: how many seconds ago, and how the address begins."""

if __name__ == "__main__":
    traffic.main((Mails(), Registrations()))
