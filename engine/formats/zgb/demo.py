"""ZGB's demo place: a database of registrations, and the program that sends their mail."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress

from engine.demo.keeper import HOUR, MINUTE, DemoSettings, PastTraffic, live_through
from engine.formats.zgb.place import ZgbSettings
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from engine.model import Task
from engine.store import Unavailable
from engine.system import files

MAILS_PER_HOUR = 40

FAILURES = (
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

_SENDMAIL_CASE = '  *" {start}"*) cat > /dev/null; echo "{output}" >&2; exit {code};;'

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


class DemoRegistrations:
    """A ZGB mail queue: waiting jobs, failed jobs, and two dead ones."""

    name, interval = "zgb.db", 3 * MINUTE  # the mail of a registration takes as long
    work: Mapping[str, Sequence[str]] = {name: ("zgb", "work", "--loop")}

    def make(self, settings: DemoSettings) -> Mapping[str, str]:
        """Make the database, the templates and the program."""
        self._place, self._number = f"{settings.folder}/{self.name}", 0
        now = settings.now
        create(self._place)
        self._change(lambda database: self._add_program_columns(database, now))
        clock = PastTraffic(now)
        place = ZgbSettings().place(self._place, durable=False)
        with closing(ZgbStore(place, clock)) as store:
            store.control("mailMaxPerHour", value=str(MAILS_PER_HOUR))
            store.control("mailQueueEnabled", value="1")
            ages = [age for age, _ in _PAST_REGISTRATIONS]
            for (age, local), until in zip(_PAST_REGISTRATIONS, (*ages[1:], 0), strict=True):
                clock.now = now - age
                self._register(store, local, clock.now)
                live_through(store, clock, place.retry, self._fate, now - until)
            for turn in range(10):
                clock.now = now - (10 - turn) * 20
                self._register(store, _NAMES[turn % len(_NAMES)].lower(), clock.now)
        return self._write_files(settings.folder)

    @staticmethod
    def _add_program_columns(database: sqlite3.Connection, now: float) -> None:
        """Add the columns and settings that the registration program has."""
        for column in ("name", "email"):
            database.execute(f"ALTER TABLE registrations ADD COLUMN {column} TEXT")
        days = {"startDate": now - 10 * 24 * HOUR, "endDate": now + 20 * 24 * HOUR}
        for key, moment in days.items():
            date = time.strftime("%Y-%m-%d", time.gmtime(moment))
            database.execute("INSERT INTO config (key, value) VALUES (?, ?)", (key, date))

    def _write_files(self, folder: str) -> Mapping[str, str]:
        program = f"{folder}/sendmail"
        os.mkdir(f"{folder}/sent")
        cases = [
            _SENDMAIL_CASE.format(start=start, code=code, output=output)
            for start, code, output, _ in FAILURES
        ]
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
        local = _PAST_REGISTRATIONS[int(task.id.partition("-")[0]) - 1][1]
        return next(error for start, _, _, error in FAILURES if local == start)

    def open(self) -> None:
        """Nothing to start: this place has only its worker."""

    def add(self, now: float) -> None:
        """Add a registration."""
        name = _NAMES[self._number % len(_NAMES)].lower()
        place = ZgbSettings().place(self._place)
        skip_if_locked = suppress(Unavailable, sqlite3.OperationalError)
        with skip_if_locked, closing(ZgbStore(place)) as store:
            self._register(store, name, now)


_PAST_REGISTRATIONS = (
    (8 * HOUR, "full"),
    (7.5 * HOUR, "full"),
    (3 * HOUR, "later"),
    (80 * MINUTE, "later"),
    (25 * MINUTE, "later"),
    (9 * MINUTE, "later"),
)
"""Past registrations: seconds ago, and start of the address."""
