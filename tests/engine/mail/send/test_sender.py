"""Send mail: one attempt, attempts with retries and the spool, delivery out of the spool."""

from __future__ import annotations

import email
import email.policy
import json
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from engine.mail.message.content import Content
from engine.mail.model import BadMail, Mail, MailError, NotSent, Waits
from engine.mail.send import transport_chooser
from engine.mail.send.mail_spool import Spooled
from engine.mail.send.sender import Sender, SendRequest, SendResult, SentMail
from engine.policy import Rate
from tests import mail_sender
from tests.engine.sample_mails import never
from tests.mail_sender import NOW, TASK, Recorder, SenderParts, busy, marks, refusal, spooled
from tests.tables import each

DEPTH = "nftban_mail_spool_depth"
LIST = "a@example.com,b@example.com,c@example.com"


def tried(number: int, task: str = "inline") -> str:
    """The log line of an attempt."""
    words = f"attempt={number} transport=sendmail to=admin@..."
    return f"[INFO] MAIL_SEND_ATTEMPT task_id={task} {words}"


def succeeded(number: int, task: str = "inline") -> str:
    """The log line of an accepted mail."""
    words = f"status=success transport=sendmail attempt={number}"
    return f"[INFO] MAIL_SEND_RESULT task_id={task} {words}"


def failed(words: str, task: str = "inline") -> str:
    """The log line of a mail that was given up."""
    return f"[ERROR] MAIL_SEND_RESULT task_id={task} status=failed {words}"


# One attempt


def test_one_send_is_one_attempt(tmp_path: Path) -> None:
    """It waits for nothing and keeps nothing; log and metrics have the contract's words."""
    parts = SenderParts(tmp_path, transport := Recorder(None, busy("connect_timeout")))
    sent = parts.post().send("the disk is full", subject="Disk")
    (mail,) = transport.accepted
    assert sent == SentMail("sendmail", mail.id, "admin@example.com")
    assert (mail.recipient, mail.subject) == ("admin@example.com", "Disk")
    assert "the disk is full" in mail.text
    with pytest.raises(NotSent) as failure:
        parts.post().send("the disk is full")
    assert (failure.value.word, len(transport.asked), parts.pauses) == ("connect_timeout", 2, [])
    assert not (tmp_path / "mailspool").exists()
    why = "transport=sendmail retries=1 last_error=connect_timeout"
    assert parts.log() == [tried(1), succeeded(1), tried(1), failed(why)]
    assert parts.counts() == (2, 1, 1)
    assert parts.metric("nftban_mail_last_success_timestamp") == int(NOW)


def test_a_mail_without_a_recipient_waits_for_the_setting(tmp_path: Path) -> None:
    """One attempt fails; with retries the mail is kept, and goes to the recipient set later."""
    parts = SenderParts(tmp_path, transport := Recorder(), recipient="")
    with pytest.raises(BadMail, match="no recipient is named"):
        parts.post().send("the disk is full")
    ended = parts.send()
    assert (ended.sent, ended.permanent, transport.asked) == (False, True, [])
    begin = failed("retries=0 last_error=rejected_bad_mail:")
    assert [line.partition(" no recipient")[0] for line in parts.log()[:2]] == [begin] * 2
    assert parts.queued == [("Spooled mail to the configured recipient", ended.payload)]
    assert 'MAIL_TO=""\n' in Path(ended.payload).read_text()
    with pytest.raises(NotSent, match="no recipient is named"):
        parts.deliver(ended.payload)  # to the dead-letter queue; an operator retries it
    SenderParts(tmp_path, transport, recipient="new@example.com").deliver(ended.payload)
    assert transport.recipients() == ["new@example.com"]


@each("recipient", [
    "-C/tmp/evil", "a@b@example.com", "x@example.com\nBcc: y", "b\u00fccher@example.com", "$(id)",
])  # fmt: skip
def test_a_bad_recipient_is_not_tried_and_kept(tmp_path: Path, recipient: str) -> None:
    """It is refused, or kept with its text, which is never taken for another address; its task dies
    at once. So it does if another program made an option of a recipient."""
    parts = SenderParts(tmp_path, transport := Recorder())
    with pytest.raises(BadMail):
        parts.post().send("the disk is full", recipient)
    ended = parts.send(to=recipient)
    assert (ended.permanent, ended.attempts, len(parts.queued)) == (True, 0, 1)
    assert parts.spool.read(ended.payload).to == recipient.replace("\n", " ")
    for _ in range(2):
        with pytest.raises((NotSent, BadMail)):
            parts.deliver(ended.payload)
    begin = failed("retries=0 last_error=rejected_bad_mail: '")
    assert all(line.startswith(begin) for line in parts.log()[:2])
    records = (tmp_path / "mail/delivery.jsonl").read_text().splitlines()
    results = [json.loads(line)["result"] for line in records]
    assert results == ["failed", "failed", "spooled", "failed"], "one for each refusal"
    assert parts.metric("nftban_mail_last_failure_timestamp") == int(NOW)
    meta = Path(spooled(tmp_path))
    meta.write_text(meta.read_text().replace("admin@", "-Cevil,x@"))
    with pytest.raises(BadMail, match="address"):
        parts.deliver(str(meta))
    assert transport.asked == []


@each(("content", "why", "kept"), [
    ("", "", ""), (" \n", "", ""), ("a" * 100_000, "", ""),
    ("/etc/passwd", "outside the folders allowed for mail", "/etc/passwd"),
    ("\u00e4" * 50_001, "100,002 bytes of text", "\u00e4" * 50_000),
])  # fmt: skip
def test_a_content_not_sent_is_kept(tmp_path: Path, content: str, why: str, kept: str) -> None:
    """A wrong file by its path, a text above the limit by its first bytes; others are sent."""
    parts = SenderParts(tmp_path, transport := Recorder(), max_file_size=100_000)
    ended = parts.send(content, subject="Disk")
    assert ended.sent is not ended.permanent is bool(why)
    assert (len(transport.asked), len(parts.queued)) == ((0, 1) if why else (1, 0))
    if why:
        assert why in parts.spool.read(ended.payload).refused
        assert Path(ended.payload).with_name("body.txt").read_text() == f"{kept}\n"


def test_each_recipient_of_a_list_gets_a_mail_of_its_own(tmp_path: Path) -> None:
    """A refused address stops no other; after a failure the next ones get one attempt each."""
    transport = Recorder(refusal(), None, busy(), busy(), busy(), None, busy())
    parts = SenderParts(tmp_path, transport)
    listed = "no@example.com, a@example.com,bad,b@example.com,c@example.com,d@example.com"
    ended = parts.post().send_with_retry("x", listed, enqueue=parts.enqueue)
    refused, sent = (False, True), (True, False)
    assert [(each.sent, each.permanent, each.attempts) for each in ended] == [
        (*refused, 1), (*sent, 1), (*refused, 0), (False, False, 3), (*sent, 1), (False, False, 1),
    ]  # fmt: skip
    assert transport.recipients() == ["a@example.com", "c@example.com"]
    assert (parts.pauses, len(parts.queued)) == ([5, 15], 4)
    kept = [parts.spool.read(payload).to for _, payload in parts.queued]
    assert kept == ["no@example.com", "bad", "b@example.com", "d@example.com"]


def test_a_lost_mail_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each recipient has its own result; each loss is recorded with both reasons."""
    (tmp_path / "log").mkdir()
    parts = SenderParts(tmp_path, transport := Recorder(refusal(), None, refusal()))
    mail_sender.full_disk(monkeypatch, "mkdir")
    ended = parts.post().send_with_retry("x", LIST, enqueue=parts.enqueue)
    found = [(each.sent, each.lost is not None) for each in ended]
    assert found == [(False, True), (True, False), (False, True)]
    assert "No space left" in str(ended[0].lost)
    assert transport.recipients() == ["b@example.com"]
    assert sum("last_error=lost: rejected_550: 550 no" in line for line in parts.log()) == 2


def test_a_spooled_mail_to_a_list_is_divided(tmp_path: Path) -> None:
    """Each other recipient gets a mail of its own, also if a kill came in between."""
    parts = SenderParts(tmp_path, transport := Recorder())
    payload = Path(spooled(tmp_path, "one\ntwo", "a@example.com", "S"))
    to = "a@example.com, b@example.com,c@example.org"
    payload.write_text(payload.read_text().replace("a@example.com", to))
    first, content = payload.parent.name, Content("one\ntwo", html=False)
    parts.spool.store_mail(f"{first}-2", "b@example.com", "S", content)  # before the kill
    parts.deliver(str(payload))
    mails = {mail.id: mail for mail in parts.spool.read_all()}
    assert transport.recipients() == ["a@example.com"]
    assert sorted(parts.spool.find_unqueued(0)) == [f"{first}-2", f"{first}-3"]
    assert [mails[f"{first}-{n}"].to for n in (2, 3)] == ["b@example.com", "c@example.org"]  # type: ignore[union-attr]
    parts.deliver(parts.spool.meta_path(f"{first}-3"))
    assert transport.accepted[1].text == transport.accepted[0].text == "one\ntwo\n"


@each("listed", [LIST, ""])
def test_a_divided_mail_reaches_each_recipient_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    """After a kill no part is sent before the list is divided again; an earlier one is unharmed."""
    parts = SenderParts(tmp_path, transport := Recorder(), recipient=LIST)
    payload = spooled(tmp_path, "one", "a@example.com", "S")
    spool, mail = parts.spool, parts.spool.read(payload)
    spool.set_recipient(mail, listed)
    earlier, *others = (f"{mail.id}-{n}" for n in (2, 3, 4))
    spool.store_mail(earlier, "d@example.com", "S", Content("one", html=False))
    with monkeypatch.context() as patch:
        mail_sender.full_disk(patch, "replace_durably")
        with pytest.raises(MailError, match="No space left"):
            parts.deliver(payload)
    for other in others:
        with pytest.raises(Waits, match="has this recipient too"):
            parts.deliver(spool.meta_path(other))
    assert transport.asked == []
    for ident in (mail.id, *others, earlier):
        parts.deliver(spool.meta_path(ident))
        spool.remove(spool.read(spool.meta_path(ident)))
    assert [recipient[0] for recipient in transport.recipients()] == ["a", "b", "c", "d"]
    assert list((tmp_path / "mailspool").iterdir()) == []


def test_a_mail_is_stored_before_the_first_pause(tmp_path: Path) -> None:
    """Between attempts it is in the spool, marked and locked, without a task; sent, it is gone."""
    parts = SenderParts(tmp_path, transport := Recorder(busy("timeout"), busy(), None))
    marks_at: list[tuple[set[str], float]] = []

    def look() -> None:
        (mail,) = parts.spool.read_all()
        assert isinstance(mail, Spooled)
        with pytest.raises(TimeoutError), parts.spool.lock_mail(mail.id, patience=0.0):
            pass
        assert mail.trying is not None
        marks_at.append((marks(mail.meta), mail.trying.at - NOW))

    parts.watch = look
    transport.watch = lambda: look() if len(transport.asked) > 1 else None
    ended = parts.send()
    assert (ended.sent, ended.attempts, parts.queued, parts.complaints) == (True, 3, [], [])
    assert marks_at == [({"queuing", "trying"}, at) for at in (0, 5, 0, 20)]
    assert list((tmp_path / "mailspool").iterdir()) == []


def test_a_lost_copy_stops_no_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk the attempts go on, with one complaint for each pause."""
    parts = SenderParts(tmp_path, transport := Recorder(busy(), busy()))
    mail_sender.full_disk(monkeypatch, "mkdir")
    assert parts.send().sent
    assert len(transport.accepted) == 1
    why = "the mail is lost if its sender is killed before the next attempt"
    assert sum(why in line for line in parts.complaints) == 2


def test_a_wrong_sender_keeps_all_mail(tmp_path: Path) -> None:
    """With a sender that is no address mail is spooled, and its task waits for a correction."""
    parts = SenderParts(tmp_path, transport := Recorder(), sender="foo bar@example.com")
    ended = parts.send()
    why = "no mail is sent: sender 'foo bar@...' contains a space"
    assert (ended.sent, ended.attempts, ended.task_id != "") == (False, 0, True)
    assert parts.post().chooser.blocking_reason()[0].startswith(why)
    assert parts.log()[0] == "[ERROR] No mail system available, spooling for later"
    assert parts.log()[1].startswith(f"[WARN] Nothing was attempted: {why}")
    with pytest.raises(Waits, match=why):
        parts.deliver(parts.queued[0][1])
    assert transport.asked == []


# With retries


def test_the_third_attempt_delivers(tmp_path: Path) -> None:
    """A mail refused twice is accepted the third time, the same mail, and nothing is spooled."""
    parts = SenderParts(tmp_path, transport := Recorder(busy(), busy()))
    ended = parts.send(subject="Disk")
    assert ended == SendResult(True, "sendmail", 3, mail_id=transport.accepted[0].id)
    assert (parts.pauses, len(set(transport.asked)), parts.queued) == ([5, 15], 1, [])
    assert list((tmp_path / "mailspool").iterdir()) == []
    again = "[WARN] MAIL_SEND_ATTEMPT failed attempt={}/3 error=unavailable_450"
    first = [tried(1), again.format(1), "[DEBUG] Retrying in 5s..."]
    second = [tried(2), again.format(2), "[DEBUG] Retrying in 15s..."]
    assert parts.log() == [*first, *second, tried(3), succeeded(3)]
    (record,) = (tmp_path / "mail/delivery.jsonl").read_text().splitlines()
    assert '"result":"success","reason":"after unavailable_450: 450 try again later"' in record
    assert parts.counts() == (3, 1, 0)


def test_after_the_last_attempt_a_mail_is_spooled_and_queued(tmp_path: Path) -> None:
    """After failed attempts the mail is whole in the spool, a task names it, one failure counts."""
    parts = SenderParts(tmp_path, Recorder(busy(), busy(), busy("connect_timeout")))
    ended = parts.send(subject="[ALERT] Service failed")
    assert (ended.sent, ended.attempts, ended.word) == (False, 3, "connect_timeout")
    assert parts.pauses == [5, 15]
    assert parts.queued == [("Spooled mail to admin@...", ended.payload)]
    letter = parts.spool.read(ended.payload)
    assert (letter.id, letter.to) == (ended.mail_id, "admin@example.com")
    assert letter.subject == "[ALERT] Service failed"
    assert parts.spool.body(letter, 100) == b"the disk is full\n"
    assert marks(ended.payload) == set()
    assert parts.log()[-3:] == [
        "[WARN] MAIL_SEND_ATTEMPT failed attempt=3/3 error=connect_timeout",
        failed("transport=sendmail retries=3 last_error=connect_timeout"),
        f"[INFO] Mail spooled to queue: {ended.task_id} (recipient: admin@...)",
    ]
    assert (*parts.counts(), parts.metric(DEPTH)) == (3, 0, 1, 1)


def test_recipient_and_subject_have_defaults(tmp_path: Path) -> None:
    """Without a subject it is `spooldeck Alert`; a named recipient replaces the configured one."""
    SenderParts(tmp_path / "a", transport := Recorder()).send(to="ops@example.org")
    ended = (parts := SenderParts(tmp_path / "b", method="none")).send()
    (mail,), letter = transport.accepted, parts.spool.read(ended.payload)
    assert (mail.subject, mail.recipient) == ("spooldeck Alert", "ops@example.org")
    assert (letter.subject, letter.to) == ("spooldeck Alert", "admin@example.com")


@each(("backoff", "attempts", "waits"), [
    ((5, 15, 45), 5, [5, 15, 45, 45]), ((), 3, [0, 0]), ((5,), 1, []),
])  # fmt: skip
def test_the_last_wait_is_repeated(
    tmp_path: Path, backoff: tuple[float, ...], attempts: int, waits: list[float]
) -> None:
    """After the end of the list the last wait repeats; there is one wait less than attempts."""
    transport = Recorder(*[busy() for _ in range(9)])
    parts = SenderParts(tmp_path, transport, backoff=backoff, attempts=attempts)
    parts.send()
    assert (parts.pauses, len(transport.asked)) == (waits, attempts)


def test_a_refusal_for_good_is_not_retried(tmp_path: Path) -> None:
    """It ends the attempts, and the task fails without asking again; an operator's retry asks. At a
    later attempt the copy made before the pause becomes the spooled mail."""
    parts = SenderParts(tmp_path, transport := Recorder(refusal()))
    ended = parts.send()
    assert (ended.permanent, ended.attempts, parts.pauses) == (True, 1, [])
    assert marks(ended.payload) == {"refused"}
    with pytest.raises(NotSent) as failure:
        SenderParts(tmp_path, method="none").deliver(ended.payload)
    assert (failure.value.permanent, failure.value.word) == (True, "rejected_550")
    assert str(failure.value) == "550 no such user"
    assert len(transport.asked) == 1
    assert parts.log()[-1] == failed("retries=0 last_error=rejected_550: 550 no such user", TASK)
    parts.deliver(ended.payload)
    assert len(transport.accepted) == 1

    later = SenderParts(tmp_path / "later", Recorder(busy(), refusal()))
    ended = later.send()
    assert (ended.attempts, marks(ended.payload), len(later.queued)) == (2, {"refused"}, 1)
    assert len(list(later.spool.read_all())) == 1


@each("why", ["no word", "a=b status=success: x", "", "x" * 50 + ": y"])
def test_a_foreign_refusal_mark_has_our_word_in_the_log(tmp_path: Path, why: str) -> None:
    """The text of a mark that another program wrote does not become a word of the log."""
    payload = spooled(tmp_path)
    Path(payload).with_name("refused").write_text(f'WHY="{why}"\n')
    parts = SenderParts(tmp_path, Recorder())
    with pytest.raises(NotSent) as failure:
        parts.deliver(payload)
    assert failure.value.word == "rejected_for_good"
    assert " last_error=rejected_for_good: " in parts.log()[-1]


@each(("settings", "absent", "suspended", "why"), [
    ({}, "not installed", (), "no mail transport is set up"),
    ({"method": "sendmail"}, "no program", (), "no mail transport: sendmail: no program"),
    ({"method": "none"}, "", ("sendmail",), "no mail transport is set up: the method is none"),
    ({}, "not installed", ("sendmail",), "no mail transport is set up"),
    ({}, "", ("sendmail",), "no mail transport: sendmail suspended by root@web1"),
])  # fmt: skip
def test_without_a_transport_a_mail_is_spooled_without_an_attempt(
    tmp_path: Path, settings: dict[str, object], absent: str, suspended: tuple[str, ...], why: str
) -> None:
    """Without a transport a mail is spooled without a wait, and its delivery waits unlogged."""
    parts = SenderParts(tmp_path, Recorder(absent=absent), **settings)
    for name in suspended:
        parts.suspend(name)
    ended = parts.send()
    assert (ended.attempts, ended.transport, ended.text) == (0, "", why)
    assert (parts.pauses, len(parts.queued)) == ([], 1)
    log = [
        "[ERROR] No mail system available, spooling for later",
        *([] if "is set up" in why else [f"[WARN] Nothing was attempted: {why}"]),
        f"[INFO] Mail spooled to queue: {ended.task_id} (recipient: admin@...)",
    ]
    assert parts.log() == log
    assert parts.post().chooser.blocking_reason()[0] == why
    with pytest.raises(Waits, match="no mail transport") as waits:
        parts.deliver(ended.payload)
    assert waits.value.retry_at == NOW + transport_chooser.TRANSPORT_RETRY_SECONDS
    assert marks(ended.payload) == set()
    assert parts.log() == log
    with pytest.raises(NotSent, match=why):
        parts.post().send("the disk is full")


def test_a_suspension_is_checked_right_before_each_attempt(tmp_path: Path) -> None:
    """One suspended after it was chosen, or between two attempts, is not asked."""
    why, payload = "sendmail suspended by root@web1", spooled(tmp_path)
    parts = SenderParts(tmp_path, transport := Recorder())

    def suspend_while_chosen() -> None:
        parts.suspend("sendmail")

    transport.absence = suspend_while_chosen  # type: ignore[method-assign]
    with pytest.raises(NotSent, match=why) as failure:
        parts.post().send("the disk is full")
    assert failure.value.word == "unavailable_no_transport"
    parts.suspensions.resume("sendmail")
    ended = parts.send()
    assert (ended.attempts, ended.word) == (0, "unavailable_no_transport")
    assert len(parts.queued) == 1
    parts.suspensions.resume("sendmail")
    with pytest.raises(Waits, match=why):
        parts.deliver(payload)
    assert (transport.asked, marks(payload)) == ([], set())

    parts = SenderParts(tmp_path / "wait", transport := Recorder(busy()))
    parts.watch = lambda: parts.suspend("sendmail")
    ended = parts.send()
    assert (ended.sent, ended.attempts, ended.word) == (False, 1, "unavailable_450")
    assert (len(transport.asked), parts.pauses, len(parts.queued)) == (1, [5], 1)
    assert ended.text == f"450 try again later; then no mail transport: {why}"


@each(("when", "pauses"), [("in the attempt", []), ("in the wait", [5])])
def test_a_stopped_caller_spools_the_mail(tmp_path: Path, when: str, pauses: list[float]) -> None:
    """Told to stop during an attempt or a wait, the sender makes no other attempt and spools."""
    parts = SenderParts(tmp_path, transport := Recorder(busy()))
    stopped: list[bool] = []
    (parts if when == "in the wait" else transport).watch = lambda: stopped.append(True)
    (ended,) = parts.post().send_with_retry(
        "the disk is full", enqueue=parts.enqueue, cancelled=lambda: bool(stopped)
    )
    assert (ended.sent, ended.attempts, parts.pauses) == (False, 1, pauses)
    assert len(transport.asked) == len(parts.queued) == 1


@each("call", ["write", "fsync", "rename", "mkdir"])
def test_a_mail_that_cannot_be_spooled_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """On a full disk the mail is lost, nothing of it is visible, no task names it."""
    (tmp_path / "mailspool").mkdir(0o750)
    parts = SenderParts(tmp_path, method="none")
    mail_sender.full_disk(monkeypatch, call)
    assert "No space left" in str(parts.send().lost)
    assert parts.queued == []
    assert [path for path in (tmp_path / "mailspool").iterdir() if path.name[0] != "."] == []


def test_without_a_queue_a_mail_stays_in_the_spool(tmp_path: Path) -> None:
    """If no task can be made, the mail is safe in the spool, and log and answer say where."""

    def enqueue(description: str, payload: str) -> str:
        raise RuntimeError("Queue full")

    parts = SenderParts(tmp_path, method="none")
    (ended,) = parts.post().send_with_retry("the disk is full", enqueue=enqueue)
    assert (ended.task_id, ended.unqueued) == ("", "Queue full")
    folder = Path(ended.payload).parent
    assert parts.log()[-1] == f"[WARN] Queue not available, mail saved to spool: {folder}"
    assert parts.spool.read(ended.payload).to == "admin@example.com"


def test_only_one_transport_is_tried(tmp_path: Path) -> None:
    """The first that is available and not suspended; none if suspensions cannot be read."""
    first, second = Recorder(busy(), name="postfix"), Recorder(name="msmtp")
    parts, payload = SenderParts(tmp_path, first, second), spooled(tmp_path)
    parts.send()
    parts.suspend("postfix")
    parts.send()
    (tmp_path / "suspended").write_text("sendm")
    assert "suspended transports cannot be read" in parts.post().chooser.blocking_reason()[0]
    with pytest.raises(Waits, match="suspended"):
        parts.deliver(payload)
    assert (len(first.asked), len(second.asked)) == (2, 1)


# Out of the spool


def test_a_spooled_mail_is_delivered_as_it_was_composed(tmp_path: Path) -> None:
    """A spooled mail keeps its subject, time and Message-ID; while it is asked it is marked."""
    payload = spooled(tmp_path, subject="[ALERT] Grüße")
    parts = SenderParts(tmp_path, transport := Recorder())
    marks_seen: list[set[str]] = []
    transport.watch = transport.after = lambda: marks_seen.append(marks(payload))
    parts.now += 3600
    parts.deliver(payload, 2)
    (mail,) = transport.accepted
    assert mail.id in payload
    assert f"Message-ID: <{mail.id}@web1.example.com>".encode() in mail.data
    assert b"Date: Fri, 20 Nov 2026 10:20:00 +0000\n" in mail.data
    assert "=?utf-8?" in mail.subject
    assert (marks_seen, marks(payload)) == ([{"trying"}, {"trying"}], {"sent"})
    assert parts.log() == [tried(2, TASK), succeeded(2, TASK)]
    assert (*parts.counts(), parts.metric(DEPTH)) == (1, 1, 0, 0)


def test_a_sent_mail_is_not_sent_again(tmp_path: Path) -> None:
    """A mail marked as sent is done, even without a transport, and the log says so."""
    parts, payload = SenderParts(tmp_path, transport := Recorder()), spooled(tmp_path)
    parts.deliver(payload, 1)
    parts.deliver(payload, 2)
    assert (len(transport.asked), parts.counts()[0]) == (1, 1)
    assert TASK in parts.log()[-1]
    SenderParts(tmp_path, method="none").deliver(payload, 3)
    assert "MAIL_SEND_ALREADY_SENT" in parts.log()[-1]


def test_a_mail_in_doubt_is_logged_and_sent_once_more(tmp_path: Path) -> None:
    """After an attempt without a result the log warns, and the same bytes are sent again."""

    def dies() -> None:
        raise KeyboardInterrupt

    payload, first = spooled(tmp_path), Recorder()
    first.after = dies
    with pytest.raises(KeyboardInterrupt):
        SenderParts(tmp_path, first).deliver(payload)
    parts = SenderParts(tmp_path, second := Recorder())
    parts.now += 600
    parts.deliver(payload, 2)
    assert first.accepted == second.accepted
    (doubt,) = [line for line in parts.log() if line.startswith("[WARN]")]
    assert "may arrive twice" in doubt and TASK in doubt
    assert marks(payload) == {"sent"}


def test_a_refused_attempt_leaves_no_doubt(tmp_path: Path) -> None:
    """After a refusal the next attempt has no warning; each failed attempt of a task counts."""
    payload = spooled(tmp_path)
    parts = SenderParts(tmp_path, Recorder(busy(), busy("dns_not_found")))
    for attempt in (1, 2):
        with pytest.raises(NotSent):
            parts.deliver(payload, attempt)
        assert marks(payload) == set()
    assert [line for line in parts.log() if "WARN" in line] == []
    why = "transport=sendmail retries=2 last_error=dns_not_found"
    assert parts.log()[-1] == failed(why, TASK)
    assert parts.counts() == (2, 0, 2)


def test_a_spooled_mail_keeps_its_bytes(tmp_path: Path) -> None:
    """A mail that was tried, spooled and delivered an hour later has the same bytes each time."""
    parts = SenderParts(tmp_path, transport := Recorder(*[busy("timeout")] * 3))
    ended = parts.send("<p>the disk is <b>full</b>, Grüße</p>", subject="Grüße")
    parts.now += 3600
    parts.deliver(ended.payload)
    assert (len(transport.asked), len(set(transport.asked))) == (4, 1)


DOUBTFUL = """timeout connect_lost unavailable_signal_9 unavailable_stopped unavailable_no_status
unavailable_not_followed unavailable_io connect_protocol unavailable_curl_8 unavailable_status_1
unavailable_for_now never_heard_of"""
CERTAIN = """dns_not_found tls_certificate auth_535 rejected_550 rejected_too_large connect_refused
connect_unreachable connect_timeout connect_failed unavailable_450 unavailable_554
unavailable_not_started unavailable_not_read unavailable_usage unavailable_permission
unavailable_configuration unavailable_no_space unavailable_no_token unavailable_no_transport"""


def test_only_an_attempt_without_an_answer_leaves_a_doubt() -> None:
    """A mail that a server refused or never had cannot arrive twice; any other may."""
    assert [word for word in DOUBTFUL.split() if not busy(word).may_be_accepted] == []
    assert [word for word in CERTAIN.split() if busy(word).may_be_accepted] == []


@each("then", ["unavailable_450", "connect_refused"])
def test_a_mail_stays_in_doubt_until_it_is_accepted(tmp_path: Path, then: str) -> None:
    """A later answer does not end the doubt: each attempt warns, with the time of the first."""
    parts = SenderParts(tmp_path, Recorder(busy("timeout"), *[busy(then)] * 3))
    ended = parts.send()
    assert (ended.doubtful_since, marks(ended.payload)) == (NOW, {"trying"})
    with pytest.raises(NotSent):
        parts.deliver(ended.payload, 1)
    assert marks(ended.payload) == {"trying"}
    parts.deliver(ended.payload, 2)
    doubts = [line for line in parts.log() if "may arrive twice" in line]
    tasks = ["inline", "inline", TASK, TASK]
    assert [line.split()[2] for line in doubts] == [f"task_id={task}" for task in tasks]
    assert all("transport=sendmail since=2026-11-20T10:20:00Z" in line for line in doubts)
    assert marks(ended.payload) == {"sent"}


@each("calls", [("rename",), ("rename", "write", "fsync", "unlink")])
def test_an_accepted_mail_is_a_success_though_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: tuple[str, ...]
) -> None:
    """If the acceptance cannot be written down, that is a complaint and never a failure."""
    parts, payload = SenderParts(tmp_path, transport := Recorder()), spooled(tmp_path)
    transport.watch = lambda: mail_sender.full_disk(monkeypatch, *calls)
    parts.deliver(payload)
    assert len(transport.accepted) == 1
    assert "was sent, but that is not recorded in the spool" in parts.complaints[0]
    assert "No space left" in parts.complaints[0]


@each("replaced", [False, True])
def test_a_spool_folder_removed_while_sending_is_no_failure(tmp_path: Path, replaced: bool) -> None:
    """If the folder of a mail is removed or replaced while it is sent, the mail counts as sent."""
    parts, payload = SenderParts(tmp_path, transport := Recorder()), spooled(tmp_path)

    def vanish() -> None:
        Path(payload).parent.rename(tmp_path / "elsewhere")
        if replaced:
            Path(payload).parent.symlink_to(tmp_path / "elsewhere")

    transport.after = vanish
    parts.deliver(payload)
    assert len(parts.complaints) == 1


# Token buckets


def test_each_domain_has_its_own_tokens(tmp_path: Path) -> None:
    """A mail waits, unmarked, for a token of its recipient's domain; mails to others go on."""
    first, second = spooled(tmp_path), spooled(tmp_path, to="ops@example.org")
    again = spooled(tmp_path, to="root@EXAMPLE.com")
    parts = SenderParts(tmp_path, transport := Recorder(), domains={"example.com": Rate(60, 1)})
    post = parts.limited_post()
    post.deliver(first, TASK, 1, never)
    with pytest.raises(Waits, match=r"no token for domain example\.com") as waits:
        post.deliver(again, TASK, 1, never)
    post.deliver(second, TASK, 1, never)
    assert waits.value.retry_at == NOW + 60
    assert transport.recipients() == ["admin@example.com", "ops@example.org"]
    assert (marks(again), post.chooser.blocking_reason()[0]) == (set(), "")


def test_mails_that_wait_for_one_domain_return_one_by_one(tmp_path: Path) -> None:
    """Mails without a token return one token apart, at most a day later."""
    payloads = [spooled(tmp_path, str(n)) for n in range(27)]
    post = SenderParts(tmp_path, Recorder(), domains={"example.com": Rate(1, 1)}).limited_post()
    post.deliver(payloads[0], TASK, 1, never)
    moments = []
    for payload in payloads[1:]:
        with pytest.raises(Waits) as waits:
            post.deliver(payload, TASK, 1, never)
        moments.append(waits.value.retry_at - NOW)
    assert moments == [*range(3600, 86400, 3600), 86400, 86400, 86400]


def test_an_empty_bucket_of_the_transport_shuts_the_gate(tmp_path: Path) -> None:
    """The gate has a reason and an end; a mail is spooled without a wait and without a failure."""
    parts = SenderParts(tmp_path, transport := Recorder(), rates={"sendmail": Rate(60, 1)})
    post = parts.limited_post()
    assert post.chooser.blocking_reason()[0] == ""
    (first,) = post.send_with_retry("one", enqueue=parts.enqueue)
    (second,) = post.send_with_retry("two", enqueue=parts.enqueue)
    assert first.sent
    assert (second.sent, second.attempts, second.word) == (False, 0, "unavailable_no_token")
    assert (len(parts.queued), len(transport.asked), parts.counts()[2]) == (1, 1, 0)
    assert post.chooser.blocking_reason() == ("no token for transport sendmail", NOW + 60)
    parts.now += 60
    assert post.chooser.blocking_reason() == ("", None)
    parts.suspend("sendmail")
    assert post.chooser.blocking_reason() == (
        "no mail transport: sendmail suspended by root@web1",
        None,
    )


def test_a_sender_that_cannot_count_tokens_does_not_send(tmp_path: Path) -> None:
    """If a token cannot be spent the mail waits or is spooled: the limit holds."""
    payload = spooled(tmp_path)
    parts = SenderParts(tmp_path, transport := Recorder(), rates={"sendmail": Rate(60, 1)})
    (tmp_path / "buckets").mkdir()
    with pytest.raises(Waits, match="rate limit tokens cannot be counted"):
        parts.limited_post().deliver(payload, TASK, 1, never)
    assert parts.limited_post().send_with_retry("x", enqueue=parts.enqueue) is not None
    assert (transport.asked, len(parts.queued)) == ([], 1)


# One attempt of a mail that another program queues and retries

TEXT = Content("Hallo\n", html=False)
REQUEST = SendRequest("7-user-1795170000", NOW, "7-user", 1, {"X-Original-To": "hans@example.org"})


def once(
    post: Sender,
    request: SendRequest = REQUEST,
    content: Content = TEXT,
    to: str = "a@b.org",
    **more: Any,
) -> None:
    """Make one attempt."""
    hooks = {"ready": lambda transport: None, "cancelled": never} | more
    post.send_once(content, to, "Anmeldung", request, **hooks)


def parsed(mail: Mail) -> EmailMessage[str, str]:
    """The mail as a mail program reads it."""
    return email.message_from_bytes(mail.data, policy=email.policy.default)


def test_send_once_sends_what_the_caller_names(tmp_path: Path) -> None:
    """Message-ID and headers are the caller's, none begins another, and a later attempt sends the
    same bytes. The caller hears of the acceptance before the log has it."""
    parts = SenderParts(tmp_path, transport := Recorder(busy()))
    with pytest.raises(NotSent):
        once(parts.post())
    parts.now += 3600
    observed: list[tuple[str, bool]] = []

    def accepted(name: str) -> None:
        observed.append((name, "status=success" in "".join(parts.log())))

    once(parts.post(), REQUEST._replace(attempt=2), accepted=accepted)
    assert observed == [("sendmail", False)]
    assert "status=success" in parts.log()[-1]
    first, second = transport.asked
    assert first == second
    mail = parsed(second)
    assert mail["Message-ID"] == "<7-user-1795170000@web1.example.com>"
    assert mail["X-Original-To"] == "hans@example.org"
    assert mail.get_content_type() == "text/plain"
    once(parts.post(), REQUEST._replace(headers={"X-Original-To": "a@b.org\r\nBcc: c@d.org"}))
    assert parsed(transport.accepted[1])["Bcc"] is None
    assert not (tmp_path / "mailspool").exists()


def test_send_once_adds_a_text_part_to_markup(tmp_path: Path) -> None:
    """A page has a text part with any settings, and its braces stay as they are."""
    page = Content("<html><body><p>Hallo {HOSTNAME}</p></body></html>", html=True)
    once(SenderParts(tmp_path, transport := Recorder(), html=False).post(), content=page)
    kinds = [part.get_content_type() for part in parsed(transport.accepted[0]).walk()]
    assert kinds == ["multipart/alternative", "text/plain", "text/html"]
    assert transport.accepted[0].text == "Hallo {HOSTNAME}\n"


def test_send_once_asks_no_transport_if_it_must_not(tmp_path: Path) -> None:
    """A caller that is not ready, a missing or suspended transport and a bad address stop it."""
    parts, names = SenderParts(tmp_path, transport := Recorder()), list[str]()

    def ready(name: str) -> None:
        names.append(name)
        raise RuntimeError("the lease is gone")

    with pytest.raises(RuntimeError):
        once(parts.post(), ready=ready)
    with pytest.raises(BadMail):
        once(parts.post(), to="postmaster")
    parts.suspend("sendmail")
    for post in (SenderParts(tmp_path / "none").post(), parts.post()):
        with pytest.raises(Waits) as waits:
            once(post)
        assert waits.value.retry_at == NOW + 60
    assert (names, transport.asked) == (["sendmail"], [])
