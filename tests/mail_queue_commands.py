"""A Kannader spool or a ZGB mail queue on disk, its settings, and the commands run on it."""

from __future__ import annotations

import email
import email.policy
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from engine.config.queue_config import load_config
from engine.formats.base.format import Setup
from engine.formats.kannader.store import KannaderStore, make_spool
from engine.formats.known_formats import setup_for
from engine.formats.zgb.log import Log, LogEvent, read_recent
from engine.formats.zgb.mail import HourlyLimit, MailingParts, RegistrationHandler
from engine.formats.zgb.place import DEFAULT_LETTERS, RateLimit, ZgbSettings
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from engine.model import State, Task
from engine.work.services import WorkerServices
from engine.work.worker import Worker, WorkerResult
from tests import command
from tests.mail_sender import NOW, Recorder, SenderParts
from tests.programs import a_script
from tests.smtp_server import HOST, Server

FROM, TO, ALSO = "foo@example.org", "bar@example.net", "baz@example.org"
TEXT = b"Subject: hi\n\n.dot, caf\xe9 and \xff\n"
PATIENCE = 60.0
"""Seconds within which a process acts on a busy machine."""


def soon(is_so: Callable[[], bool]) -> bool:
    """Wait until a condition holds; returns whether it did in time."""
    until = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def names(folder: Path) -> list[str]:
    """The names in a folder, none if it is missing."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


class Commands:
    """A configuration file, a home, and the command run with them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config, self.home = folder, folder / "some.yaml", folder / "home"
        self.home.mkdir()
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        self.environ |= {"LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start the command."""
        argv, pipe = ["--config", str(self.config), *words], subprocess.PIPE
        return command.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=self.environ)

    def run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        with self.start(*words) as process:
            out, err = process.communicate(stdin, timeout=PATIENCE)
        return subprocess.CompletedProcess(words, process.returncode, out.decode(), err.decode())

    def setup_of(self, path: str) -> Setup:
        """A queue as the commands connect it."""
        return setup_for(load_config(str(self.config), {}), path, {})


class Spool(Commands):
    """A Kannader spool."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "spool"
        self.settle()
        make_spool(str(self.path))

    def settle(self, server: Server | None = None, **settings: Any) -> None:
        """Write the settings of the spool: JSON is YAML."""
        if server is not None:
            settings = {"host": HOST, "port": server.port, **settings}
        self.config.write_text(json.dumps({"stores": {"kannader": settings}}))

    def enqueue(self, *to: str, text: bytes = TEXT) -> list[str]:
        """Enqueue a mail by the command; returns an id for each recipient."""
        named = [word for address in to or (TO,) for word in ("--to", address)]
        words = ["kannader", "enqueue", "--from", FROM, *named, "-", str(self.path)]
        done = self.run(*words, stdin=text)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def work(self, server: Server | None = None, **settings: Any) -> Any:
        """Work until nothing is due; with a server, by it and these settings."""
        if server is not None:
            self.settle(server, **settings)
        done = self.run("kannader", "work", str(self.path), "--until-idle", "--json")
        assert done.returncode == 0 or server is None, done.stderr
        return done

    @contextmanager
    def working(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that runs until SIGTERM, or is killed."""
        process = self.start("kannader", "work", str(self.path), *words)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)

    def recover(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `kannader recover`."""
        return self.run("kannader", "recover", str(self.path), *words)

    def store(self) -> KannaderStore:
        """The spool as a store."""
        return KannaderStore(str(self.path))

    def setup(self) -> Setup:
        """The spool as the commands connect it."""
        return self.setup_of(str(self.path))

    def doctor(self) -> tuple[int, list[str]]:
        """The exit code and the lines of the doctor."""
        done = self.run("doctor", str(self.path))
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    def tasks(self) -> list[Task]:
        """Every mail of the spool."""
        with closing(self.store()) as store:
            return [item for item in store.scan(store.states.values()) if isinstance(item, Task)]

    def age(self, ident: str, when: int) -> Path:
        """Let a mail have come at that time; returns its link."""
        link = self.path / "queue" / ident
        os.utime(link, (when, when), follow_symlinks=False)
        return link

    def put_in_flight(self, ident: str) -> Path:
        """Move a mail to inflight/ as another sender does; returns its link there."""
        return (self.path / "queue" / ident).rename(self.path / "inflight" / ident)

    @property
    def log(self) -> str:
        """The log of our worker."""
        return (self.path / ".spooldeck" / "log" / "queue.log").read_text()

    @property
    def is_clean(self) -> bool:
        """Whether the spool has no part of any mail."""
        return not any(names(self.path / word) for word in ("data", "queue", "inflight", "cleanup"))


class Database:
    """The database of a ZGB mail queue, as another program uses it."""

    path: str

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement."""
        with closing(sqlite3.connect(self.path, timeout=PATIENCE)) as db, db:
            return db.execute(statement, values).fetchall()

    def settle(self, **values: str) -> None:
        """Set values of the table config."""
        for key, value in values.items():
            self.sql("INSERT OR REPLACE INTO config VALUES (?, ?)", key, value)

    def add_columns(self) -> None:
        """Give the registrations an address and a name."""
        for column in ("email", "name"):
            self.sql(f"ALTER TABLE registrations ADD COLUMN {column} TEXT")


def parsed(texts: Iterable[bytes]) -> list[EmailMessage]:
    """Mails by their bytes."""
    mails = [email.message_from_bytes(text, policy=email.policy.default) for text in texts]
    return [mail for mail in mails if isinstance(mail, EmailMessage)]


USER_TEXT, ORGANIZER_TEXT = "Hallo {name}, Nummer {number}.\n", "<p>{name} ist dabei</p>\n"


class Site(Commands, Database):
    """A mail queue, its configuration, and a sendmail that keeps each mail."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = str(folder / "data" / "q.db")
        for name in ("data", "mails", "home/logs"):
            (folder / name).mkdir(parents=True)
        self.log_path = folder / "home" / "logs" / "mail-queue.log"
        (folder / "user.txt").write_text(USER_TEXT)
        (folder / "orga.html").write_text(ORGANIZER_TEXT)
        keep = f"cat > '{folder}/mails/.'$$ && mv '{folder}/mails/.'$$ '{folder}/mails/'$$"
        self.sendmail = a_script(folder / "sendmail", keep)
        self.configure()

    def configure(self, mail: str = "", own: str = "", user: str = "") -> None:
        """Write the configuration, with more of each section."""
        mail_settings = mail or f"method: sendmail, programs: {{sendmail: {self.sendmail}}}"
        template = "template: user.txt, subject: 'Anmeldung {number}'"
        self.config.write_text(
            f"mail: {{{mail_settings}, sender: fest@example.org}}\n"
            f"stores:\n  zgb:\n    {own or 'lease: 300'}\n    types:\n"
            f"      user: {{{user or template}}}\n"
            "      organizer: {template: orga.html, to: orga@example.org}\n"
        )

    def make(self, *numbers: int, tokens: float = 100.0, hourly: int = 1) -> None:
        """Make the database with these registrations; no token is gained while a test runs."""
        assert self.zgb("init", self.path).returncode == 0
        self.add_columns()
        for number in numbers:
            row = (number, f"p{number}@example.org", f"Person {number}")
            self.sql("INSERT INTO registrations VALUES (?, 0, ?, ?)", *row)
        self.settle(mailQueueEnabled="1", mailMaxPerHour=str(hourly), mailTokens=str(tokens))
        self.settle(mailLastRefill=str(int(time.time())))

    def zgb(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `zgb`."""
        return self.run("zgb", *words)

    def enqueue(self, *numbers: int) -> None:
        """Enqueue the user's mail of these registrations."""
        for number in numbers:
            assert self.zgb("enqueue", str(number), self.path, "--type", "user").returncode == 0

    def work(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `zgb work`."""
        return self.zgb("work", self.path, *words)

    def status(self) -> subprocess.CompletedProcess[str]:
        """Run `status`."""
        return self.run("status", self.path)

    def doctor(self) -> subprocess.CompletedProcess[str]:
        """Run `zgb doctor`."""
        return self.zgb("doctor", self.path)

    @contextmanager
    def looping(self, patch: str, outputs: list[str]) -> Iterator[None]:
        """A patched `work --loop` until SIGTERM; `outputs` gets its output."""
        run = f"{patch}\nfrom tui.cli import main\nimport sys\nsys.exit(main(sys.argv[1:]))\n"
        argv = [sys.executable, "-c", run, "--config", str(self.config), "zgb", "work", self.path]
        pipe, out = subprocess.PIPE, subprocess.STDOUT
        loop = subprocess.Popen(
            [*argv, "--loop"], stdout=pipe, stderr=out, text=True, env=self.environ
        )
        try:
            yield
        finally:
            loop.send_signal(signal.SIGTERM)
            outputs.append(loop.communicate(timeout=PATIENCE)[0])
        assert loop.returncode == 0, outputs

    def setup(self, path: str = "") -> Setup:
        """The queue as the commands connect it."""
        return self.setup_of(path or self.path)

    def mails(self) -> list[EmailMessage]:
        """The mails that were accepted."""
        return parsed(path.read_bytes() for path in sorted(self.folder.glob("mails/[0-9]*")))

    def jobs(self) -> list[tuple[str, str]]:
        """Each job and its status."""
        rows = "SELECT registration_number || '-' || mail_type, status FROM mail_queue ORDER BY id"
        return [(str(ident), str(status)) for ident, status in self.sql(rows)]

    def logged(self, *events: str) -> list[dict[str, Any]]:
        """The lines of the log with these events."""
        lines = map(json.loads, self.log_path.read_text().splitlines())
        return [line for line in lines if line["event"] in events or not events]

    def findings(self) -> tuple[int, dict[str, list[str]]]:
        """The exit code of the doctor, and each finding that is not ok, by its check."""
        done = self.doctor()
        assert done.stderr == ""
        problems: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            if line.startswith(("warn ", "bad ")):
                grade, name, words = line.split(maxsplit=2)
                problems.setdefault(name, []).append(f"{grade}: {words}")
        return done.returncode, problems


class Queue(Database):
    """A mail queue with registration 7, the parts of a sender for its mails, and a worker."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "q.db")
        create(self.path)
        self.add_columns()
        self.sql("INSERT INTO registrations VALUES (7, 0, 'hans@example.org', 'Hans <b>')")
        self.settle(mailQueueEnabled="1", mailMaxPerHour="1000000", mailTokens="1000000")
        self.settle(mailLastRefill=str(int(NOW)))
        self.user, orga = folder / "user.txt", folder / "orga.html"
        self.user.write_text(USER_TEXT)
        orga.write_text(ORGANIZER_TEXT)
        user = DEFAULT_LETTERS["user"]._replace(
            template=str(self.user), subject="Anmeldung {number}"
        )
        both = DEFAULT_LETTERS["organizer"]._replace(template=str(orga), to="orga@example.org")
        self.own = ZgbSettings(types={"user": user, "organizer": both})
        self.transport = Recorder()
        self.sender_parts = SenderParts(folder, self.transport, sender="fest@example.org")
        self.log_path = str(folder / "q.log")
        self.troubles: list[str] = []

    def redirect(self, start: str, end: str) -> None:
        """Switch the test mode on, with these two days as the period of registration."""
        self.settle(mailRedirectToSchumbi="1", startDate=start, endDate=end)

    def open(self, log: Log | None = None) -> ZgbStore:
        """The store by the sender's clock."""
        place = self.own.place(self.path, durable=False)._replace(
            rate_limit=RateLimit(1_000_000, 1_000_000)
        )
        if log is None:
            return ZgbStore(place, self.sender_parts.clock)
        return ZgbStore(place, self.sender_parts.clock, write_event=log.write)

    def enqueue(self, *kinds: str) -> None:
        """Enqueue the mails of registration 7."""
        with closing(self.open()) as store:
            store.enqueue(7, kinds or ("user",))

    def log(self) -> Log:
        """The log of a run."""
        return Log(self.log_path, "r", self.path, self.sender_parts.clock, self.troubles.append)

    def handlers(self) -> dict[str, RegistrationHandler]:
        """The handlers of both mails."""
        sender_parts = self.sender_parts
        parts = MailingParts(
            self.own,
            sender_parts.settings,
            sender_parts.post(),
            log=self.log(),
            open=self.open,
            clock=sender_parts.clock,
        )
        return {kind: RegistrationHandler(parts, each) for kind, each in self.own.types.items()}

    def work(self, *, hourly: int = 0) -> WorkerResult:
        """Work once, until nothing is due."""
        clock, log, handlers = self.sender_parts.clock, self.log(), self.handlers()
        limits = WorkerServices(limits=HourlyLimit(hourly, log, clock) if hourly else None)
        with closing(self.open(log)) as store:
            worker = Worker(store, handlers, store.place.retry, services=limits, clock=clock)
            return worker.process_all(until_idle=True)

    def job(self) -> Task:
        """The job of the user's mail as it is now."""
        with closing(self.open()) as store:
            (task,) = (item for item in store.scan({"7-user"}) if isinstance(item, Task))
            return task

    def jobs(self) -> list[str]:
        """The ids of all jobs."""
        rows = self.sql("SELECT registration_number, mail_type FROM mail_queue ORDER BY id")
        return [f"{number}-{kind}" for number, kind in rows]

    def assert_untried(self, state: State, error: str) -> None:
        """The user's mail is in this state with this error, and was never given to a transport."""
        job = self.job()
        assert (job.state, error in job.error, self.transport.asked) == (state, True, [])

    def mails(self) -> list[EmailMessage]:
        """The mails that were accepted."""
        return parsed(mail.data for mail in self.transport.accepted)

    def logged(self, *events: str) -> list[LogEvent]:
        """The lines of the log with these events."""
        read = read_recent(self.log_path, 0)
        assert (read.broken, self.troubles) == (0, [])
        return [line for line in read.lines if line.event in events or not events]
