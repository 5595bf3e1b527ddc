"""One mail of a ZGB registration: checked again, merged with its template, sent and logged."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.formats.zgb import mail as zgb_mail
from engine.formats.zgb.log import Log
from engine.formats.zgb.mail import why_unready
from engine.formats.zgb.queue_config import UNDECIDABLE_ERROR
from engine.formats.zgb.store import ZgbStore
from engine.model import State
from engine.work.handlers import Context
from engine.work.worker import WorkerResult
from tests.mail_queue_commands import Queue
from tests.mail_sender import HOST, NOW, busy, refusal


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue, on a machine of a known name."""
    monkeypatch.setattr(zgb_mail, "this_host", lambda: HOST)
    return Queue(tmp_path)


def test_both_mails_of_a_registration_are_sent(queue: Queue) -> None:
    """Each has its recipient and values; the log has `sent` before the row is deleted."""
    before: list[tuple[list[str], int]] = []
    queue.transport.watch = lambda: before.append((queue.jobs(), len(queue.logged("sent"))))
    queue.enqueue("user", "organizer")
    run = queue.work()
    user, organizer = queue.mails()
    message_id = f"<zgb-7-user-{int(NOW)}@web1.example.com>"
    headers = [user[name] for name in ("To", "Subject", "Message-ID")]
    assert headers == ["hans@example.org", "Anmeldung 7", message_id]
    assert (user.get_content(), user.is_multipart()) == ("Hallo Hans <b>, Nummer 7.\n", False)
    assert (organizer["To"], organizer["Subject"]) == ("orga@example.org", "Registration 7")
    html = organizer.get_body(("html",))
    assert html is not None and "<p>Hans &lt;b&gt; ist dabei</p>" in html.get_content()
    assert (queue.jobs(), run.done) == ([], 2)
    assert before == [(["7-user", "7-organizer"], 0), (["7-organizer"], 1)]
    its = {"job": 1, "reg": 7, "type": "user", "attempt": 1}
    assert its.items() <= queue.logged("claimed")[0].fields.items()
    sent, _ = queue.logged("sent")
    its |= {"message_id": message_id, "to": "h***@example.org", "redirected": False}
    assert its.items() <= sent.fields.items() and isinstance(sent.fields["ms"], int)


def test_no_more_mails_in_an_hour_than_the_limit(queue: Queue) -> None:
    """Failures count as well; an hour after the first of them, one more may be sent."""
    with closing(queue.open()) as store:
        for number in range(7, 12):
            queue.sql("INSERT OR IGNORE INTO registrations VALUES (?, 0, 'x@y.org', 'X')", number)
            store.enqueue(number, ["user"])
    queue.transport.script.append(busy())
    for seconds, done in ((0, 2), (3599, 0), (1, 3)):
        queue.sender_parts.now += seconds
        run = queue.work(hourly=3)
        assert run.done == done
        assert seconds or run.token_at == NOW + 3600


def test_a_failed_mail_has_a_reason_and_the_same_bytes(queue: Queue) -> None:
    """It waits with the reason in row and log; each attempt sends the same bytes."""
    queue.enqueue()
    queue.transport.script += [busy(), refusal()]
    for why, wait in (("450 try again later", 60), ("550 no such user", 300)):
        queue.work()
        line, job = queue.logged("failed")[-1], queue.job()
        assert why in job.error and why in str(line.fields["error"])
        assert line.fields["next_attempt_at"] == job.due == queue.sender_parts.now + wait
        queue.sender_parts.now = job.due
    first, second = queue.transport.asked
    assert first.data == second.data


def test_an_attempt_without_a_known_end_is_logged(queue: Queue) -> None:
    """A transport that timed out may have sent the mail; one that was refused has not."""
    for word, doubts in (("unavailable_450", 0), ("timeout", 1)):
        queue.enqueue()
        queue.transport.script.append(busy(word))
        queue.work()
        queue.sender_parts.now += 60
        queue.work()
        assert (queue.jobs(), len(queue.logged("in_doubt"))) == ([], doubts)
        assert "\n".join(queue.sender_parts.log()).count("MAIL_SEND_IN_DOUBT") == doubts


def test_a_mail_that_cannot_be_made_is_parked(queue: Queue) -> None:
    """Without an address, or with an unknown name in the template, no attempt is made."""
    text = queue.user.read_text()
    for email, template, words in (
        (None, text, "registration 7 has no address in its column email"),
        ("  ", text, "registration 7 has no address"),
        ("hans", text, "has no domain"),
        ("hans@example.org\nbcc: x@y.org", text, "a space"),
        ("hans@example.org", "Hallo {nosuch}\n", "no value for _nosuch_"),
    ):
        queue.sql("DELETE FROM mail_queue")
        queue.sql("UPDATE registrations SET email = ?", email)
        queue.user.write_text(template)
        queue.enqueue()
        queue.work()
        queue.assert_untried(State.DEAD, words)


Working = Callable[[Callable[[], object]], WorkerResult]


@pytest.fixture
def after_claim(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Working:
    """Enqueue a mail and work; something happens between its claim and its last check."""

    def work(happens: Callable[[], object]) -> WorkerResult:
        queue.enqueue()
        real, to_come = queue.open, [happens]

        def opening(log: Log | None = None) -> ZgbStore:
            if log is None and to_come:
                to_come.pop()()
            return real(log)

        with monkeypatch.context() as patched:
            patched.setattr(queue, "open", opening)
            return queue.work()

    return work


def test_a_change_after_the_claim_sends_nothing(queue: Queue, after_claim: Working) -> None:
    """Without its registration a job is deleted and costs a token; a lost claim is not touched."""
    tokens = "SELECT CAST(value AS REAL) FROM config WHERE key = 'mailTokens'"
    ((before,),), theirs = queue.sql(tokens), int(NOW) + 999
    after_claim(lambda: queue.sql("DELETE FROM registrations"))
    assert (queue.jobs(), queue.transport.asked) == ([], [])
    assert (queue.sql(tokens), len(queue.logged("orphan_deleted"))) == ([(before - 1,)], 1)
    queue.sql("INSERT INTO registrations VALUES (7, 0, 'hans@example.org', 'Hans')")
    run = after_claim(lambda: queue.sql("UPDATE mail_queue SET locked_until = ?", theirs))
    assert queue.sql("SELECT status, locked_until FROM mail_queue") == [("sending", theirs)]
    assert (queue.transport.asked, run.gone, len(queue.logged("lease_lost"))) == ([], 1, 1)


def test_a_renewed_lease_is_not_lost(queue: Queue) -> None:
    """A mail whose lease the worker extends while the handler checks it is sent."""
    queue.enqueue()
    with closing(queue.open()) as store:
        (task,) = store.take(NOW, "me", 1)
        (outcome,) = store.renew([task], NOW + 999)
    claims = iter([task])
    context = Context(current_claim=lambda _: next(claims, outcome.move.new or task))
    queue.handlers()["user"](task, context)
    assert [mail["To"] for mail in queue.mails()] == ["hans@example.org"]


def test_a_job_is_postponed_without_an_attempt(queue: Queue, after_claim: Working) -> None:
    """If its lease may lapse while it is sent, or its recipient is now unknown, it waits."""

    def wait() -> None:
        queue.sender_parts.now += queue.own.lease - queue.sender_parts.settings.max_time + 1

    for happens, why in (
        (wait, "too soon to send"),
        (lambda: queue.redirect("", ""), UNDECIDABLE_ERROR),
    ):
        queue.sql("DELETE FROM mail_queue")
        after_claim(happens)
        assert queue.job().attempts == 0
        queue.assert_untried(State.PENDING, why)
    assert len(queue.logged("postponed")) == 2


def test_the_test_mode_redirects_users_mails(queue: Queue) -> None:
    """A user's mail goes elsewhere with its former recipient; the organizer's does not."""
    queue.redirect("2026-03-01", "2026-03-31")
    queue.enqueue("user", "organizer")
    queue.work()
    recipients = [(mail["To"], mail["X-Original-To"]) for mail in queue.mails()]
    user = ("hans=example.org@schumbi.de", "hans@example.org")
    assert recipients == [user, ("orga@example.org", None)]
    assert [line.fields["redirected"] for line in queue.logged("sent")] == [True, False]
    assert len(queue.logged("redirect_applied")) == 1
    assert queue.sql("SELECT email FROM registrations") == [("hans@example.org",)]


def test_no_mail_is_redirected_within_the_period(queue: Queue) -> None:
    """A mail that was enqueued or is sent within the period goes to its recipient."""
    for end, days in (("2026-11-30", 0), ("2026-11-20", 10)):  # the second retried past its end
        queue.redirect("2026-11-01", end)
        queue.enqueue()
        queue.sender_parts.now += days * 86_400
        queue.work()
    assert [mail["To"] for mail in queue.mails()] == ["hans@example.org"] * 2
    assert [mail["X-Original-To"] for mail in queue.mails()] == [None, None]
    assert len(queue.logged("redirect_blocked")) == 2


COLUMNS = "registration_number, mail_type, status, attempts, next_attempt_at, locked_until,"
"""The documented columns but the last; the key may be that of a deleted row."""
AUTO = "id INTEGER PRIMARY KEY AUTOINCREMENT"


def die_after_sending(queue: Queue) -> None:
    """Let a worker send and log, and die before its row goes; lease and wait are over."""
    rows = queue.sql("SELECT * FROM mail_queue")
    queue.work()
    assert queue.jobs() == []
    queue.sql(f"INSERT INTO mail_queue VALUES ({', '.join('?' * len(rows[0]))})", *rows[0])
    queue.sql("UPDATE mail_queue SET status = 'sending', attempts = 1, locked_until = ?", int(NOW))
    queue.sender_parts.now += 1
    with closing(queue.open()) as store:
        list(store.take(queue.sender_parts.now, "me", 1, lambda kind, group: False))
    assert queue.job().error == "lease expired"
    queue.sender_parts.now += 60


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
    assert mail["Message-ID"].startswith(message_id)
    assert (queue.jobs(), len(queue.logged("already_sent"))) == ([], 1)


@pytest.mark.parametrize("more", ["", "-- AUTOINCREMENT\n", "'AUTOINCREMENT' TEXT,"])
def test_a_job_without_an_identity_is_sent_again(queue: Queue, more: str) -> None:
    """Without a time and a unique key two mails look the same: rather twice than never."""
    queue.sql("DROP TABLE mail_queue")
    queue.sql(f"CREATE TABLE mail_queue (id INTEGER PRIMARY KEY, {COLUMNS} {more} last_error)")
    queue.enqueue()
    die_after_sending(queue)
    queue.work()
    first, second = queue.mails()
    assert queue.jobs() == [] and first["Message-ID"] != second["Message-ID"]
    assert first["Date"].datetime.timestamp() == NOW


def test_a_kind_that_cannot_be_sent_has_a_reason(queue: Queue) -> None:
    """It is known before a claim, so that no job costs a token."""
    user, columns = queue.own.types["user"], ("number", "email", "name")
    settings = queue.sender_parts.settings
    rows: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, ""),
        ({"template": ""}, "no template is set"),
        ({"template": "/nowhere/x.txt"}, "template /nowhere/x.txt: No such file"),
        ({"subject": "{price}"}, "no value for {price}: the columns are number, email"),
        ({"to_column": "mail"}, "no column mail in the table registrations, for the recipient"),
        ({"to": "postmaster"}, "has no domain"),
        ({"to_column": ""}, ""),
    )
    for changes, words in rows:
        why = why_unready(user._replace(**changes), queue.own, settings, columns)
        assert words in why and bool(why) is bool(words), changes
    nowhere = queue.own.types["organizer"]._replace(to="")
    no_recipient = settings._replace(recipient="")
    assert why_unready(nowhere, queue.own, no_recipient, ()).startswith("no recipient")
    short = queue.own._replace(lease=30)
    assert "the lease of 30 s" in why_unready(short.types["user"], short, settings, ())
