"""The demo's places in other programs' formats, and the process that keeps them busy.

Nothing is faked: the stores add mails and jobs, the same stores claim and fail the past ones under
a clock of that time, and real workers send the rest to a mail server and a program made for the
demo.
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
from engine.formats.kannader import settings as kannader_settings
from engine.formats.kannader.store import KannaderStore, make_spool
from engine.formats.nftban import demo as traffic
from engine.formats.zgb import place as zgb_settings
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from engine.model import Task
from engine.policy import RetryPolicy
from engine.store import Store, Unavailable
from engine.system import files
from engine.work.rescuer import task_after_failure

MINUTE, HOUR = 60.0, 3600.0


class PastTraffic:
    """A clock that is set by the caller."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time that was set."""
        return self.now


def live_through(
    store: Store, clock: PastTraffic, retry: RetryPolicy, fate: Callable[[Task], str], until: float
) -> None:
    """Run a worker in past time: claim due tasks, then finish or fail them.

    `fate` returns the error of a task; "" if it succeeded.
    """
    end = verbs.given_up_state(store.edges)
    while True:
        for task in list(store.take(clock.now, "demo", traffic.MAX_PENDING)):
            error = fate(task)
            failed = task_after_failure(task, error, retry, clock.now, end)
            state = store.claim_rules.done_state
            done = None if state is None else verbs.complete(task, state)
            store.swap(task, failed if error else done)
        due = store.changes.next_due
        if due is None or due >= until:
            return
        clock.now = max(due, clock.now + 1)


# ---- a mail spool, and the SMTP server for its mail

ANSWERS = (
    ("busy", "450 4.2.0 mailbox busy"),
    ("gone", "550 5.1.1 no such user here"),
)
"""Answers of the server by the start of the recipient's address; it accepts all others."""

BUSY = f"unavailable_450: {ANSWERS[0][1]} - RCPT"
"""The error of a worker for the first answer."""

TAKES = 0.3
"""Seconds that the server takes for a mail, so that it is visible in flight."""


class _DemoSmtpSession(socketserver.StreamRequestHandler):
    """A mail server that stores nothing."""

    def handle(self) -> None:
        """Speak SMTP until the client disconnects."""
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


class DemoSmtpServer(socketserver.ThreadingTCPServer):
    """An SMTP server on a local address, port 0 is a free one; it listens immediately and answers
    when run.
    """

    daemon_threads = True

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__((host, port), _DemoSmtpSession)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that disconnects in the middle."""


class DemoMail(NamedTuple):
    """One kind of mail in the traffic; `{n}` is a number."""

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
"""Seconds between two mails of the traffic."""

ENOUGH = 300
"""Number of queued mails at which the traffic pauses."""


class Mails:
    """A Kannader spool: mails deferred, held and left in flight by a dead sender, and two damaged
    ones.
    """

    name = "kannader"
    work = ("kannader", "work")

    def __init__(self) -> None:
        self._random = random.Random(7)
        self._last = 0.0

    def make(self, folder: str, now: float) -> Mapping[str, str]:
        """Make the spool; return the settings with the port of its server."""
        self._place = f"{folder}/{self.name}"
        self._sink = DemoSmtpServer()
        make_spool(self._place)
        settings = kannader_settings.KannaderSettings(
            *("127.0.0.1", self._sink.server_address[1]), first_wait=MINUTE, lifetime=2 * HOUR
        )
        clock = PastTraffic(now)
        with closing(KannaderStore(self._place, clock, durable=False)) as store:
            self._leave(store, now)
            retry = kannader_settings.retry_policy(settings)
            ages = (95 * MINUTE, 50 * MINUTE, 12 * MINUTE, 2 * MINUTE)
            for age, busy in zip(ages, LETTERS[2:4] * 2, strict=True):
                clock.now = now - age
                self._send(store, busy, clock.now)
                live_through(store, clock, retry, lambda task: BUSY, now)
        return {
            "stores": f"  {self.name}: {{host: {settings.host}, port: {settings.port}, "
            f"first_wait: {settings.first_wait:g}, lifetime: {settings.lifetime:g}}}\n"
        }

    def _leave(self, store: KannaderStore, now: float) -> None:
        """Make what an operator, a dead sender and a full disk leave behind."""
        good = LETTERS[0]
        self._send(store, good, now - 4 * MINUTE)
        for _ in store.take(now + 1, "demo", 1):
            pass  # claimed and never finished
        (held,) = self._send(store, good, now - 20 * MINUTE)
        for task in store.scan({held}):
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
        """Start the server and the traffic."""
        threading.Thread(target=self._sink.serve_forever, daemon=True).start()
        self._store = KannaderStore(self._place)

    def add(self, now: float) -> None:
        """Add a mail every few seconds."""
        if 0 <= now - self._last < EVERY or len(os.listdir(f"{self._place}/queue")) >= ENOUGH:
            return
        self._last = now
        weights = [letter.weight for letter in LETTERS]
        (letter,) = self._random.choices(LETTERS, weights)
        with suppress(Unavailable):  # an operator's plan has locked the spool: skip this mail
            self._send(self._store, letter, now)

    def _send(self, store: KannaderStore, letter: DemoMail, at: float) -> list[str]:
        """Enqueue a mail as of a past time; returns its ids."""
        number = self._random.randrange(10, 99)
        to = [address.format(n=number) for address in letter.recipients]
        subject = letter.subject.format(n=number)
        text = f"From: {letter.sender}\nTo: {', '.join(to)}\nSubject: {subject}\n\n{subject}.\n"
        made = store.enqueue(letter.sender, to, [text.encode()])
        for ident in made:
            path = f"{self._place}/queue/{ident}"
            with suppress(FileNotFoundError):  # a worker may have claimed it
                os.utime(path, (at, at), follow_symlinks=False)
        return made


# ---- a database of registrations, and the program that sends their mail

RATE = 40
"""Mails per hour."""

REGISTERED = 3 * MINUTE
"""Seconds between two registrations of the traffic: at the rate of sending."""

FAILED = (
    ("full", 75, "452 4.2.2 mailbox full", "unavailable_452: 452 4.2.2 mailbox full"),
    ("later", 75, "450 4.3.2 try again later", "unavailable_450: 450 4.3.2 try again later"),
)
"""By the start of an address: exit code and output of the program, and the worker's error."""

_REGISTRATION = "INSERT INTO registrations (number, created_at, name, email) VALUES (?, ?, ?, ?)"

_NAMES = ("Ada", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gina", "Hugo", "Ines", "Jan")

_SENDMAIL = """\
#!/bin/sh
# Sends the mail of the demo: stores it, or fails as the address demands.
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
  recipient: operator@example.com
  programs: {{sendmail: {program}}}
"""


class Registrations:
    """A ZGB mail queue: waiting jobs, failed jobs, and two dead ones."""

    name = "zgb.db"
    work = ("zgb", "work", "--loop")

    def make(self, folder: str, now: float) -> Mapping[str, str]:
        """Make the database, the templates and the program."""
        self._place, self._number = f"{folder}/{self.name}", 0
        self._last = now
        create(self._place)
        self._change(lambda database: self._settle(database, now))
        settings = zgb_settings.ZgbSettings()
        clock = PastTraffic(now)
        place = settings.place(self._place, durable=False)
        with closing(ZgbStore(place, clock)) as store:
            store.control("mailMaxPerHour", value=str(RATE))
            store.control("mailQueueEnabled", value="1")
            ages = [age for age, _ in _BEFORE]
            for (age, local), until in zip(_BEFORE, (*ages[1:], 0), strict=True):
                clock.now = now - age
                self._register(store, local, clock.now)
                live_through(store, clock, place.retry, self._fate, now - until)
            for turn in range(10):
                clock.now = now - (10 - turn) * 20
                self._register(store, _NAMES[turn % len(_NAMES)].lower(), clock.now)
        return self._said(folder)

    @staticmethod
    def _settle(database: sqlite3.Connection, now: float) -> None:
        """Add the columns and settings that the registration program has."""
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
        files.replace_file(program, script.encode(), 0o755)
        paths = {kind: f"{folder}/{kind}.txt" for kind in _TEMPLATES}
        for kind, text in _TEMPLATES.items():
            files.replace_file(paths[kind], text.encode())
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
        """Change the database as the registration program does."""
        with closing(sqlite3.connect(self._place)) as database, database:
            database.execute("PRAGMA synchronous = OFF")  # the data is temporary
            change(database)

    def _fate(self, task: Task) -> str:
        """The result of a past mail: those to the organizer were sent."""
        if task.kind != "user":
            return ""
        local = _BEFORE[int(task.id.partition("-")[0]) - 1][1]
        return next(error for begins, _, _, error in FAILED if local == begins)

    def open(self) -> None:
        """Nothing to start: this place has only its worker."""

    def add(self, now: float) -> None:
        """Add a registration every few seconds."""
        if 0 <= now - self._last < REGISTERED:
            return
        self._last = now
        name = _NAMES[self._number % len(_NAMES)].lower()
        place = zgb_settings.ZgbSettings().place(self._place)
        locked = suppress(
            Unavailable, sqlite3.OperationalError
        )  # locked for long: skip this registration
        with locked, closing(ZgbStore(place)) as store:
            self._register(store, name, now)


_BEFORE = (
    *((8 * HOUR, "full"), (7.5 * HOUR, "full")),
    *((3 * HOUR, "later"), (80 * MINUTE, "later"), (25 * MINUTE, "later"), (9 * MINUTE, "later")),
)
"""Past registrations: seconds ago, and start of the address."""

if __name__ == "__main__":
    traffic.main((Mails(), Registrations()))
