"""One mail of a ZGB registration: checked again, merged with its template, sent and logged."""

from __future__ import annotations

import email
import email.policy
import sqlite3
from collections.abc import Callable
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from engine.model import State, Task
from engine.stores.zgb import Pace, ZgbStore, create
from engine.stores.zgb.log import Line, Log, recent
from engine.stores.zgb.redirect import UNDECIDABLE
from engine.stores.zgb.settings import LETTERS, Settings
from engine.worker import Run, Services, Worker
from tests.mail.office import HOST, NOW, Office, Recorder, busy, refusal
from tui.cli import zgbmail
from tui.cli.zgbmail import Hourly, Parts, Registration, unready

DAY = 86_400.0


class Queue:
    """A mail queue with registration 7, an office that sends its mails, and a worker."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "q.db")
        create(self.path)
        self.sql("ALTER TABLE registrations ADD COLUMN email TEXT")
        self.sql("ALTER TABLE registrations ADD COLUMN name TEXT")
        self.sql("INSERT INTO registrations VALUES (7, 0, 'hans@example.org', 'Hans <b>')")
        self.settle(mailQueueEnabled="1", mailMaxPerHour="1000000", mailTokens="1000000")
        self.settle(mailLastRefill=str(int(NOW)))
        self.user, orga = folder / "user.txt", folder / "orga.html"
        self.user.write_text("Hallo {name}, Nummer {number}.\n")
        orga.write_text("<p>{name} ist dabei</p>\n")
        user = LETTERS["user"]._replace(template=str(self.user), subject="Anmeldung {number}")
        both = LETTERS["organizer"]._replace(template=str(orga), to="orga@example.org")
        self.own = Settings(letters={"user": user, "organizer": both})
        self.transport = Recorder()
        self.office = Office(folder, self.transport, sender="fest@example.org")
        self.log_path = str(folder / "q.log")
        self.troubles: list[str] = []

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement as another program."""
        with closing(sqlite3.connect(self.path)) as db, db:
            return db.execute(statement, values).fetchall()

    def settle(self, **values: str) -> None:
        """Set values of their table config."""
        for key, value in values.items():
            self.sql("INSERT OR REPLACE INTO config VALUES (?, ?)", key, value)

    def redirect(self, start: str, end: str) -> None:
        """Switch the test mode on, with these two days as the period of registration."""
        self.settle(mailRedirectToSchumbi="1", startDate=start, endDate=end)

    def open(self, log: Log | None = None) -> ZgbStore:
        """The store by the office's clock."""
        place = self.own.place(self.path, durable=False)._replace(pace=Pace(1_000_000, 1_000_000))
        if log is None:
            return ZgbStore(place, self.office.clock)
        return ZgbStore(place, self.office.clock, tell=log.tell)

    def enqueue(self, *kinds: str) -> None:
        """Enqueue the mails of registration 7."""
        with closing(self.open()) as store:
            store.enqueue(7, kinds or ("user",))

    def work(self, *, hourly: int = 0) -> Run:
        """Work once, until nothing is due."""
        clock = self.office.clock
        log = Log(self.log_path, "r", self.path, clock, self.troubles.append)
        settings, post = self.office.settings, self.office.post()
        parts = Parts(self.own, settings, post, log, self.open, clock)
        handlers = {kind: Registration(parts, letter) for kind, letter in self.own.letters.items()}
        limits = Services(limits=Hourly(hourly, log, clock) if hourly else None)
        with closing(self.open(log)) as store:
            worker = Worker(store, handlers, store.place.retry, services=limits, clock=clock)
            return worker.work(until_idle=True)

    def job(self) -> Task:
        """The job of the user's mail as it is now."""
        with closing(self.open()) as store:
            (task,) = (item for item in store.look({"7-user"}) if isinstance(item, Task))
            return task

    def jobs(self) -> list[str]:
        """The ids of all jobs."""
        rows = self.sql("SELECT registration_number, mail_type FROM mail_queue ORDER BY id")
        return [f"{number}-{kind}" for number, kind in rows]

    def mails(self) -> list[EmailMessage]:
        """The mails that were accepted."""
        policy = email.policy.default
        accepted = self.transport.accepted
        parsed = (email.message_from_bytes(mail.data, policy=policy) for mail in accepted)
        return [mail for mail in parsed if isinstance(mail, EmailMessage)]

    def told(self, *events: str) -> list[Line]:
        """The lines of the log with these events."""
        read = recent(self.log_path, 0)
        assert (read.broken, self.troubles) == (0, [])
        return [line for line in read.lines if line.event in events or not events]


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue, on a machine of a known name."""
    monkeypatch.setattr(zgbmail, "this_host", lambda: HOST)
    return Queue(tmp_path)


def test_both_mails_of_a_registration_are_sent(queue: Queue) -> None:
    """Each has its recipient and values; the log has `sent` before the row goes."""
    before: list[tuple[list[str], int]] = []
    queue.transport.watch = lambda: before.append((queue.jobs(), len(queue.told("sent"))))
    queue.enqueue("user", "organizer")

    run = queue.work()

    user, organizer = queue.mails()
    message_id = f"<zgb-7-user-{int(NOW)}@web1.example.com>"
    assert (user["To"], user["Subject"]) == ("hans@example.org", "Anmeldung 7")
    assert user["Message-ID"] == message_id
    assert user.get_content() == "Hallo Hans <b>, Nummer 7.\n"
    assert not user.is_multipart()
    assert (organizer["To"], organizer["Subject"]) == ("orga@example.org", "Registration 7")
    html = organizer.get_body(("html",))
    assert html is not None and "<p>Hans &lt;b&gt; ist dabei</p>" in html.get_content()
    assert (queue.jobs(), run.done) == ([], 2)
    assert before == [(["7-user", "7-organizer"], 0), (["7-organizer"], 1)]
    claimed, _ = queue.told("claimed")
    sent, _ = queue.told("sent")
    its = {"job": 1, "reg": 7, "type": "user", "attempt": 1}
    assert its.items() <= claimed.fields.items()
    its |= {"message_id": message_id, "to": "h***@example.org", "redirected": False}
    assert its.items() <= sent.fields.items()
    assert isinstance(sent.fields["ms"], int)


def test_no_more_mails_in_an_hour_than_the_limit(queue: Queue) -> None:
    """Failures count as well; an hour after the first of them, one more may be sent."""
    with closing(queue.open()) as store:
        for number in range(7, 12):
            queue.sql("INSERT OR IGNORE INTO registrations VALUES (?, 0, 'x@y.org', 'X')", number)
            store.enqueue(number, ["user"])
    queue.transport.script.append(busy())

    first = queue.work(hourly=3)
    queue.office.now += 3599
    second = queue.work(hourly=3)
    queue.office.now += 1
    third = queue.work(hourly=3)

    assert [run.done for run in (first, second, third)] == [2, 0, 3]
    assert first.token_at == NOW + 3600


def test_a_failed_mail_says_why_and_stays_the_same(queue: Queue) -> None:
    """It waits with the reason in row and log; each attempt sends the same bytes."""
    queue.enqueue()
    queue.transport.script += [busy(), refusal()]
    for why in ("450 try again later", "550 no such user"):
        queue.work()
        line = queue.told("failed")[-1]
        assert why in queue.job().error and why in str(line.fields["error"])
        assert line.fields["next_attempt_at"] == queue.job().due
        queue.office.now = queue.job().due or 0

    assert queue.office.now == NOW + 60 + 300
    first, second = queue.transport.asked
    assert first.data == second.data


@pytest.mark.parametrize(("word", "doubts"), [("timeout", 1), ("unavailable_450", 0)])
def test_an_attempt_without_a_known_end_is_logged(queue: Queue, word: str, doubts: int) -> None:
    """A transport that timed out may have sent the mail; one that was refused has not."""
    queue.enqueue()
    queue.transport.script.append(busy(word))
    queue.work()
    queue.office.now += 60
    queue.work()
    assert queue.jobs() == []
    assert len(queue.told("in_doubt")) == doubts
    assert "\n".join(queue.office.log()).count("MAIL_SEND_IN_DOUBT") == doubts


@pytest.mark.parametrize(
    ("email", "template", "words"),
    [
        (None, "", "registration 7 has no address in its column email"),
        ("  ", "", "registration 7 has no address"),
        ("hans", "", "has no domain"),
        ("hans@example.org\nbcc: x@y.org", "", "a space"),
        ("hans@example.org", "Hallo {nobody}\n", "nothing is there for _nobody_"),
    ],
)
def test_a_mail_that_cannot_be_made_is_parked(
    queue: Queue, email: str | None, template: str, words: str
) -> None:
    """Without an address, or with an unknown name in the template, no attempt is made."""
    queue.sql("UPDATE registrations SET email = ?", email)
    queue.user.write_text(template or queue.user.read_text())
    queue.enqueue()
    queue.work()
    assert queue.job().state is State.DEAD
    assert words in queue.job().error
    assert queue.transport.asked == []


def after_claim(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]
) -> None:
    """Let something happen once, between the claim of a job and its last check."""
    real, done = queue.open, list[bool]()

    def opening(log: Log | None = None) -> ZgbStore:
        if log is None and not done:
            done.append(True)
            happens()
        return real(log)

    monkeypatch.setattr(queue, "open", opening)


def test_an_orphan_is_not_sent(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the registration is deleted after the claim, the job is deleted; it costs one token."""
    tokens = "SELECT value FROM config WHERE key = 'mailTokens'"
    queue.enqueue()
    after_claim(queue, monkeypatch, lambda: queue.sql("DELETE FROM registrations"))
    ((before,),) = queue.sql(tokens)

    queue.work()

    ((after,),) = queue.sql(tokens)
    assert (queue.jobs(), queue.transport.asked) == ([], [])
    assert float(before) - float(after) == 1
    assert len(queue.told("orphan_deleted")) == 1


def test_a_lost_lease_sends_nothing(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that another program has claimed since stays as that program left it."""
    queue.enqueue()
    theirs = int(NOW) + 999
    take = "UPDATE mail_queue SET locked_until = ?"
    after_claim(queue, monkeypatch, lambda: queue.sql(take, theirs))
    run = queue.work()
    assert queue.transport.asked == []
    assert queue.sql("SELECT status, locked_until FROM mail_queue") == [("sending", theirs)]
    assert (run.gone, len(queue.told("lease_lost"))) == (1, 1)


def too_late(queue: Queue) -> None:
    """Let so much time pass that a mail may outlast its lease."""
    queue.office.now += queue.own.lease - queue.office.settings.max_time + 1


@pytest.mark.parametrize(
    ("happens", "error"),
    [(too_late, "too soon to send"), (lambda queue: queue.redirect("", ""), UNDECIDABLE)],
    ids=["lease", "test mode"],
)
def test_a_job_is_postponed_without_an_attempt(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Queue], None], error: str
) -> None:
    """If its lease may lapse while it is sent, or its recipient is now unknown, it waits."""
    queue.enqueue()
    after_claim(queue, monkeypatch, lambda: happens(queue))
    queue.work()
    job = queue.job()
    assert (job.state, job.attempts) == (State.PENDING, 0)
    assert error in job.error
    assert queue.transport.asked == []
    assert len(queue.told("postponed")) == 1


def test_the_test_mode_redirects_users_mails(queue: Queue) -> None:
    """A user's mail goes elsewhere with its former recipient; the organizer's does not."""
    queue.redirect("2026-03-01", "2026-03-31")
    queue.enqueue("user", "organizer")

    queue.work()

    user, organizer = queue.mails()
    assert user["To"] == "hans=example.org@schumbi.de"
    assert user["X-Original-To"] == "hans@example.org"
    assert (organizer["To"], organizer["X-Original-To"]) == ("orga@example.org", None)
    assert [line.fields["redirected"] for line in queue.told("sent")] == [True, False]
    assert len(queue.told("redirect_applied")) == 1
    assert queue.sql("SELECT email FROM registrations") == [("hans@example.org",)]


@pytest.mark.parametrize(
    ("end", "later"),
    [("2026-11-30", 0.0), ("2026-11-20", 10 * DAY)],
    ids=["within", "retried past its end"],
)
def test_no_mail_is_redirected_within_the_period(queue: Queue, end: str, later: float) -> None:
    """A mail that was enqueued or is sent within the period goes to its recipient."""
    queue.redirect("2026-11-01", end)
    queue.enqueue()
    queue.office.now += later
    queue.work()
    (mail,) = queue.mails()
    assert (mail["To"], mail["X-Original-To"]) == ("hans@example.org", None)
    assert len(queue.told("redirect_blocked")) == 1


COLUMNS = """registration_number, mail_type, status, attempts, next_attempt_at, locked_until,"""
"""The documented columns but the last; the key may be that of a deleted row."""
AUTO = "id INTEGER PRIMARY KEY AUTOINCREMENT"


def die_after_sending(queue: Queue) -> None:
    """Let a worker send and log, and die before its row goes; lease and wait are over."""
    rows = queue.sql("SELECT * FROM mail_queue")
    queue.work()
    assert queue.jobs() == []
    queue.sql(f"INSERT INTO mail_queue VALUES ({', '.join('?' * len(rows[0]))})", *rows[0])
    queue.sql("UPDATE mail_queue SET status = 'sending', attempts = 1, locked_until = ?", int(NOW))
    queue.office.now += 1
    with closing(queue.open()) as store:
        list(store.take(queue.office.now, "me", 1, lambda kind, group: False))
    assert queue.job().error == "lease expired"
    queue.office.now += 60


@pytest.mark.parametrize(
    ("table", "message_id"),
    [
        ("", f"<zgb-7-user-{int(NOW)}@"),
        (f"{AUTO}, {COLUMNS} last_error", "<zgb-7-user-j1@"),
        (f"{AUTO}, {COLUMNS} created_at INTEGER, last_error", "<zgb-7-user-j1@"),
    ],
    ids=["created_at", "key", "key, created_at empty"],
)
def test_a_job_is_not_sent_again_after_a_crash(queue: Queue, table: str, message_id: str) -> None:
    """The `sent` line tells it by its time of creation or its unique key; then the row goes."""
    if table:
        queue.sql("DROP TABLE mail_queue")
        queue.sql(f"CREATE TABLE mail_queue ({table})")
        fields = "registration_number, mail_type, status, attempts, next_attempt_at"
        queue.sql(f"INSERT INTO mail_queue ({fields}) VALUES (7, 'user', 'pending', 0, 0)")
    else:
        queue.enqueue()
    die_after_sending(queue)

    queue.work()

    (mail,) = queue.mails()
    assert queue.jobs() == []
    assert mail["Message-ID"].startswith(message_id)
    assert len(queue.told("already_sent")) == 1


@pytest.mark.parametrize("more", ["", "-- AUTOINCREMENT\n", "'AUTOINCREMENT' TEXT,"])
def test_a_job_without_an_identity_is_sent_again(queue: Queue, more: str) -> None:
    """Without a time and a unique key two mails look the same: rather twice than never."""
    queue.sql("DROP TABLE mail_queue")
    queue.sql(f"CREATE TABLE mail_queue (id INTEGER PRIMARY KEY, {COLUMNS} {more} last_error)")
    queue.enqueue()
    die_after_sending(queue)

    queue.work()

    first, second = queue.mails()
    assert queue.jobs() == []
    assert first["Message-ID"] != second["Message-ID"]
    assert first["Date"].datetime.timestamp() == NOW


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"template": ""}, "no template is set"),
        ({"template": "/nowhere/x.txt"}, "template /nowhere/x.txt: No such file"),
        ({"subject": "{price}"}, "nothing is there for {price}: the columns are number, email"),
        ({"to_column": "mail"}, "no column mail in the table registrations, for the recipient"),
        ({"to": "nobody"}, "has no domain"),
        ({"to_column": ""}, ""),
    ],
)
def test_a_kind_that_cannot_be_sent_has_a_reason(
    queue: Queue, changes: dict[str, Any], words: str
) -> None:
    """The reason is known before a claim, so that no job costs a token."""
    letter = queue.own.letters["user"]._replace(**changes)
    why = unready(letter, queue.own, queue.office.settings, ("number", "email", "name"))
    assert words in why
    assert bool(why) is bool(words)


def test_no_recipient_or_a_short_lease_is_a_reason(queue: Queue) -> None:
    """A kind needs an address, a column or a recipient of all mail, and a long enough lease."""
    letter = queue.own.letters["organizer"]._replace(to="")
    settings = queue.office.settings._replace(recipient="")
    short = queue.own._replace(lease=30)
    assert unready(letter, queue.own, settings, ()).startswith("nobody to send it to")
    assert "the lease of 30 s" in unready(short.letters["user"], short, settings, ())
