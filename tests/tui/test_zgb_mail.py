"""One mail of a registration: looked at once more, merged, handed over, written down."""

from __future__ import annotations

import email
import email.policy
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from engine.model import State, Task
from engine.stores.zgb import Pace, ZgbStore, create
from engine.stores.zgb.log import Line, Log, recent
from engine.stores.zgb.place import PARKED
from engine.stores.zgb.redirect import UNDECIDABLE
from engine.stores.zgb.settings import LETTERS, Settings
from engine.worker import Run, Services, Worker
from tests.mail.office import NOW, Office, Recorder, busy, refusal
from tui.cli import zgbmail
from tui.cli.zgbmail import Hourly, Parts, Registration, unready

DAY = 86_400.0


class Queue:
    """A mail queue with registration 7, an office to send by, and a worker when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "q.db")
        create(self.path)
        self.sql("ALTER TABLE registrations ADD COLUMN email TEXT")
        self.sql("ALTER TABLE registrations ADD COLUMN name TEXT")
        self.sql("INSERT INTO registrations VALUES (7, 0, 'hans@example.org', 'Hans <b>')")
        for key, value in {
            "mailQueueEnabled": "1",
            "mailMaxPerHour": "1000000",
            "mailTokens": "1000000",
            "mailLastRefill": str(int(NOW)),
        }.items():
            self.settle(key, value)
        (folder / "user.txt").write_text("Hallo {name}, Nummer {number}.\n")
        (folder / "orga.html").write_text("<p>{name} ist dabei</p>\n")
        self.own = Settings(
            letters={
                "user": LETTERS["user"]._replace(
                    template=str(folder / "user.txt"), subject="Anmeldung {number}"
                ),
                "organizer": LETTERS["organizer"]._replace(
                    template=str(folder / "orga.html"), to="orga@example.org"
                ),
            }
        )
        self.transport = Recorder()
        self.office = Office(folder, self.transport, sender="fest@example.org")
        self.log_path = str(folder / "q.log")
        self.troubles: list[str] = []

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """As a program of somebody else's."""
        with closing(sqlite3.connect(self.path)) as db, db:
            return db.execute(statement, values).fetchall()

    def settle(self, key: str, value: str) -> None:
        """Set one of theirs."""
        self.sql("INSERT OR REPLACE INTO config VALUES (?, ?)", key, value)

    def open(self, log: Log | None = None) -> ZgbStore:
        """A store by the office's clock."""
        pace = Pace(1_000_000, 1_000_000)
        place = self.own.place(self.path, durable=False)._replace(pace=pace)
        if log is None:
            return ZgbStore(place, self.office.clock)
        return ZgbStore(place, self.office.clock, tell=log.tell)

    def enqueue(self, *kinds: str) -> None:
        """The mails of registration 7."""
        with closing(self.open()) as store:
            store.enqueue(7, kinds or ("user",))

    def parts(self, log: Log) -> Parts:
        """What sends its mails."""
        settings, post = self.office.settings, self.office.post()
        return Parts(self.own, settings, post, log, self.open, self.office.clock)

    def work(self, *, hourly: int = 0) -> Run:
        """One run, until nothing is due."""
        log = Log(self.log_path, "r", self.path, self.office.clock, self.troubles.append)
        parts = self.parts(log)
        with closing(self.open(log)) as store:
            return Worker(
                store,
                {kind: Registration(parts, self.own.letters[kind]) for kind in self.own.letters},
                store.place.retry,
                services=Services(
                    limits=Hourly(hourly, log, self.office.clock) if hourly else None
                ),
                clock=self.office.clock,
            ).work(until_idle=True)

    def job(self, ident: str = "7-user") -> Task:
        """One job as it stands now."""
        with closing(self.open()) as store:
            (task,) = (item for item in store.look({ident}) if isinstance(item, Task))
            return task

    def jobs(self) -> list[str]:
        """Which jobs there are."""
        rows = self.sql("SELECT registration_number, mail_type FROM mail_queue ORDER BY id")
        return [f"{number}-{kind}" for number, kind in rows]

    def mails(self) -> list[EmailMessage]:
        """What was accepted."""
        parsed = (
            email.message_from_bytes(mail.data, policy=email.policy.default)
            for mail in self.transport.accepted
        )
        return [mail for mail in parsed if isinstance(mail, EmailMessage)]

    def told(self, *events: str) -> list[Line]:
        """What the log says, of these events."""
        read = recent(self.log_path, 0)
        assert (read.broken, self.troubles) == (0, [])
        return [line for line in read.lines if line.event in events or not events]


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    """A queue, on a machine of a known name."""
    from tests.mail.office import HOST

    monkeypatch.setattr(zgbmail, "this_host", lambda: HOST)
    yield Queue(tmp_path)


def text_of(mail: EmailMessage, kind: str = "plain") -> str:
    """What a mail says."""
    body = mail.get_body((kind,))
    assert body is not None
    return str(body.get_content())


# ---- as it should be


def test_both_mails_of_a_registration_go_out(queue: Queue) -> None:
    """Each to whom it is for, with the registration's values, and its job is gone."""
    queue.enqueue("user", "organizer")

    run = queue.work()

    user, organizer = queue.mails()
    assert (user["To"], user["Subject"]) == ("hans@example.org", "Anmeldung 7")
    assert user["Message-ID"] == f"<zgb-7-user-{int(NOW)}@web1.example.com>"
    assert text_of(user) == "Hallo Hans <b>, Nummer 7.\n"
    assert not user.is_multipart()
    assert (organizer["To"], organizer["Subject"]) == ("orga@example.org", "Registration 7")
    assert "<p>Hans &lt;b&gt; ist dabei</p>" in text_of(organizer, "html")
    assert queue.jobs() == []
    assert run.done == 2


def test_what_was_sent_is_written_down(queue: Queue) -> None:
    """A claim and its end, with the job, the masked address, and what it took."""
    queue.enqueue()

    queue.work()

    claimed, sent = queue.told()
    its = {"job": 1, "reg": 7, "type": "user", "attempt": 1}
    assert its.items() <= claimed.fields.items()
    message_id = f"<zgb-7-user-{int(NOW)}@web1.example.com>"
    its |= {"message_id": message_id, "to": "h***@example.org", "redirected": False}
    assert its.items() <= sent.fields.items()
    assert isinstance(sent.fields["ms"], int)


def test_the_line_is_there_before_the_row_goes(queue: Queue) -> None:
    """While the mail is being handed over nothing says sent; when the row goes, it does."""
    queue.enqueue()
    standing: list[tuple[list[str], int]] = []
    queue.transport.watch = lambda: standing.append((queue.jobs(), len(queue.told("sent"))))
    queue.work()

    assert standing == [(["7-user"], 0)]
    assert (queue.jobs(), len(queue.told("sent"))) == ([], 1)


# ---- failures


def test_waits_are_those_of_the_table_and_the_tenth_failure_parks(queue: Queue) -> None:
    """60, 300, 900 and then 3600 s, whether it was refused for good or not; then nobody tries."""
    queue.enqueue()
    queue.transport.script += [busy(), refusal(), *[busy()] * 8]
    waits = []
    for _ in range(9):
        began = queue.office.now
        queue.work()
        waits.append(queue.job().due or 0)
        waits[-1] -= began
        queue.office.now = queue.job().due or 0

    queue.work()

    assert waits == [60, 300, 900, *[3600] * 6]
    assert queue.office.now - NOW == 22_860
    job = queue.job()
    assert (job.state, job.attempts) == (State.DEAD, 10)
    ((due,),) = queue.sql("SELECT next_attempt_at FROM mail_queue")
    assert due == PARKED
    assert [line.event for line in queue.told("failed", "parked")] == ["failed"] * 9 + ["parked"]
    assert len(queue.transport.asked) == 10
    assert {mail.data for mail in queue.transport.asked} == {queue.transport.asked[0].data}


@pytest.mark.parametrize(("word", "doubts"), [("timeout", 1), ("unavailable_450", 0)])
def test_an_attempt_without_a_known_end_is_logged_before_the_next(
    queue: Queue, word: str, doubts: int
) -> None:
    """A transport that timed out may have sent the mail; one that was refused has not."""
    queue.enqueue()
    queue.transport.script.append(busy(word))
    queue.work()
    queue.office.now += 60

    queue.work()

    assert queue.jobs() == []
    assert len(queue.told("in_doubt")) == doubts
    assert "\n".join(queue.office.log()).count("MAIL_SEND_IN_DOUBT") == doubts


def test_a_failure_says_why(queue: Queue) -> None:
    """In its row and in the log, with when it is tried again."""
    queue.enqueue()
    queue.transport.script.append(busy())

    queue.work()

    assert "450 try again later" in queue.job().error
    (line,) = queue.told("failed")
    assert line.fields["next_attempt_at"] == NOW + 60
    assert "450 try again later" in str(line.fields["error"])


@pytest.mark.parametrize(
    ("email", "words"),
    [
        (None, "registration 7 has no address in its column email"),
        ("  ", "registration 7 has no address"),
        ("hans", "has no domain"),
        ("hans@example.org\nbcc: x@y.org", "a space"),
    ],
)
def test_an_address_that_is_none_parks_at_once(queue: Queue, email: str | None, words: str) -> None:
    """No attempt can succeed until somebody mends it, and none is made."""
    queue.sql("UPDATE registrations SET email = ?", email)
    queue.enqueue()

    queue.work()

    job = queue.job()
    assert job.state is State.DEAD
    assert words in job.error
    assert queue.transport.asked == []


def test_a_hole_in_the_letter_parks_at_once(queue: Queue, tmp_path: Path) -> None:
    """Should the template be changed while a job is claimed, no mail with a hole goes out."""
    (tmp_path / "user.txt").write_text("Hallo {nobody}\n")
    queue.enqueue()

    queue.work()

    assert queue.job().state is State.DEAD
    assert "nothing is there for _nobody_" in queue.job().error
    assert queue.transport.asked == []


# ---- what is looked at just before


def test_an_orphan_is_not_sent(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its registration goes between the claim and the sending: so does the job, and a token."""
    queue.enqueue()
    after_claim(queue, monkeypatch, lambda: queue.sql("DELETE FROM registrations"))
    ((before,),) = queue.sql("SELECT value FROM config WHERE key = 'mailTokens'")

    queue.work()

    ((after,),) = queue.sql("SELECT value FROM config WHERE key = 'mailTokens'")
    assert (queue.jobs(), queue.transport.asked) == ([], [])
    assert float(before) - float(after) == 1
    assert len(queue.told("orphan_deleted")) == 1


def test_without_its_lease_nothing_is_sent(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else has taken the job up: it is theirs, and stays as they left it."""
    queue.enqueue()
    theirs = int(NOW) + 999
    after_claim(
        queue, monkeypatch, lambda: queue.sql("UPDATE mail_queue SET locked_until = ?", theirs)
    )

    run = queue.work()

    assert queue.transport.asked == []
    assert queue.sql("SELECT status, locked_until FROM mail_queue") == [("sending", theirs)]
    assert (run.gone, len(queue.told("lease_lost"))) == (1, 1)


def test_too_little_of_a_lease_is_not_begun_with(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mail that may outlast its lease waits for a new one, and no attempt is counted."""
    queue.enqueue()

    def late() -> None:
        queue.office.now += queue.own.lease - queue.office.settings.max_time + 1

    after_claim(queue, monkeypatch, late)

    queue.work()

    assert queue.transport.asked == []
    assert "too soon to send" in queue.job().error
    assert (queue.job().state, queue.job().attempts) == (State.PENDING, 0)


def after_claim(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]
) -> None:
    """Something happens, once, when a job is claimed and before it is looked at again."""
    real, done = queue.open, list[bool]()

    def opening(log: Log | None = None) -> ZgbStore:
        if log is None and not done:
            done.append(True)
            happens()
        return real(log)

    monkeypatch.setattr(queue, "open", opening)


# ---- the test mode


def test_a_users_mail_is_redirected_outside_the_period(queue: Queue) -> None:
    """It says whom it was for; the organizer's goes on, and the registration stays as it is."""
    redirecting(queue, "2026-03-01", "2026-03-31")
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
    ("start", "end", "later"),
    [
        pytest.param("2026-11-01", "2026-11-30", 0.0, id="within"),
        pytest.param("2026-11-01", "2026-11-20", 10 * DAY, id="retried past its end"),
    ],
)
def test_within_the_period_mails_are_in_earnest(
    queue: Queue, start: str, end: str, later: float
) -> None:
    """What was enqueued within it, or is sent within it, goes to whom it is for."""
    redirecting(queue, start, end)
    queue.enqueue()
    queue.office.now += later

    queue.work()

    (mail,) = queue.mails()
    assert (mail["To"], mail["X-Original-To"]) == ("hans@example.org", None)
    assert len(queue.told("redirect_blocked")) == 1


def test_where_nobody_can_tell_users_mails_wait(queue: Queue) -> None:
    """The organizer's goes on; the user's waits with the reason, and costs no attempt."""
    redirecting(queue, "soon", "2026-03-31")
    queue.enqueue("user", "organizer")

    queue.work()

    (mail,) = queue.mails()
    assert mail["To"] == "orga@example.org"
    job = queue.job()
    assert (job.state, job.attempts, job.error) == (State.PENDING, 0, UNDECIDABLE)


def test_a_switch_thrown_in_the_last_moment_counts(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undecidable since the claim: the job is put off with that error, and is not a failure."""
    queue.enqueue()
    after_claim(queue, monkeypatch, lambda: redirecting(queue, "", ""))

    queue.work()

    job = queue.job()
    assert (job.state, job.attempts, job.error) == (State.PENDING, 0, UNDECIDABLE)
    assert queue.transport.asked == []
    assert len(queue.told("postponed")) == 1


def redirecting(queue: Queue, start: str, end: str) -> None:
    """The test mode is on, with these two days."""
    queue.settle("mailRedirectToSchumbi", "1")
    queue.settle("startDate", start)
    queue.settle("endDate", end)


# ---- sent once


def test_a_job_that_comes_back_after_it_was_sent_is_not_sent_again(queue: Queue) -> None:
    """Its worker ended before its row went: the line says so, and the row goes now."""
    queue.enqueue()
    died_after_sending(queue)

    queue.work()

    assert (queue.jobs(), len(queue.transport.accepted)) == ([], 1)
    assert len(queue.told("already_sent")) == 1


@pytest.mark.parametrize("created", ["", "created_at INTEGER,"])
def test_without_a_time_of_making_its_key_tells_it(queue: Queue, created: str) -> None:
    """Where the database gives no key out twice: the columns that are documented need no others,
    and one that is there may be empty. Its Message-ID stays the same, too.
    """
    columns = KEYLESS.replace("id INTEGER PRIMARY KEY,", "id INTEGER PRIMARY KEY AUTOINCREMENT,")
    rebuilt(queue, columns.replace("last_error", f"{created} last_error"))
    insert = "INSERT INTO mail_queue (registration_number, mail_type, status, attempts,"
    queue.sql(f"{insert} next_attempt_at) VALUES (7, 'user', 'pending', 0, 0)")
    died_after_sending(queue)

    queue.work()

    (mail,) = queue.mails()
    assert queue.jobs() == []
    assert mail["Message-ID"].startswith("<zgb-7-user-j1@")
    assert len(queue.told("already_sent")) == 1


@pytest.mark.parametrize("said", ["", "-- AUTOINCREMENT\n", "'AUTOINCREMENT' TEXT,"])
def test_with_nothing_to_tell_it_by_it_is_sent_again(queue: Queue, said: str) -> None:
    """Two mails of one number could not be told apart: rather twice than never."""
    rebuilt(queue, KEYLESS.replace("last_error", f"{said} last_error"))
    queue.enqueue()
    died_after_sending(queue)

    queue.work()

    first, second = queue.mails()
    assert queue.jobs() == []
    assert first["Message-ID"] != second["Message-ID"]
    assert first["Date"].datetime.timestamp() == NOW


def test_what_is_enqueued_once_more_is_sent_once_more(queue: Queue) -> None:
    """Even in the same second, and even where its first attempt fails."""
    queue.enqueue()
    queue.work()
    queue.enqueue()
    queue.transport.script.append(busy())
    queue.work()
    queue.office.now += 60

    queue.work()

    assert (queue.jobs(), len(queue.transport.accepted)) == ([], 2)


KEYLESS = """id INTEGER PRIMARY KEY, registration_number, mail_type, status, attempts,
    next_attempt_at, locked_until, last_error"""
"""The columns that are documented, with a key that may be that of a row that is gone."""


def rebuilt(queue: Queue, columns: str) -> None:
    """Their table, as somebody else made it."""
    queue.sql("DROP TABLE mail_queue")
    queue.sql(f"CREATE TABLE mail_queue ({columns})")


def died_after_sending(queue: Queue) -> None:
    """A worker sends, writes it down, and ends; its lease lapses, and the wait after it is over."""
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


# ---- the strict limit


def test_no_more_go_out_within_an_hour_than_the_limit(queue: Queue) -> None:
    """Failures count as well; an hour after the first of them, one more may go."""
    for number in range(8, 12):
        queue.sql("INSERT INTO registrations VALUES (?, 0, 'x@example.org', 'X')", number)
    with closing(queue.open()) as store:
        for number in range(7, 12):
            store.enqueue(number, ["user"])
    queue.transport.script.append(busy())

    first = queue.work(hourly=3)
    queue.office.now += 3599
    second = queue.work(hourly=3)
    queue.office.now += 1
    third = queue.work(hourly=3)

    assert [run.done for run in (first, second, third)] == [2, 0, 3]
    assert first.token_at == NOW + 3600


# ---- whether it can be made at all


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
def test_what_is_not_ready_says_why(queue: Queue, changes: dict[str, Any], words: str) -> None:
    """Before anything is claimed: what is wrong with all mails of a kind costs no job a token."""
    letter = queue.own.letters["user"]._replace(**changes)

    said = unready(letter, queue.own, queue.office.settings, ("number", "email", "name"))

    assert words in said
    assert bool(said) is bool(words)


def test_nobody_to_send_to_is_not_ready(queue: Queue) -> None:
    """No address, no column, and no recipient of all mail."""
    letter = queue.own.letters["organizer"]._replace(to="")
    settings = queue.office.settings._replace(recipient="")

    assert unready(letter, queue.own, settings, ()).startswith("nobody to send it to")


def test_too_short_a_lease_is_not_ready(queue: Queue) -> None:
    """Nothing is claimed that could lapse while it is being sent."""
    own = queue.own._replace(lease=30)

    assert "the lease of 30 s" in unready(own.letters["user"], own, queue.office.settings, ())
