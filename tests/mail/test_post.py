"""Sending mail: one attempt, attempts with the spool behind them, and out of the spool."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from engine import files
from engine.limits import Buckets
from engine.mail.model import BadMail, NotSent, Waits
from engine.mail.post import ASK_AGAIN, Ended, Sent
from engine.policy import Rate
from tests.mail.letters import never
from tests.mail.office import NOW, Office, Recorder, busy, refusal
from tests.tables import each

ATTEMPTS = 'nftban_mail_send_attempts_total{transport="sendmail"}'
SUCCESS = 'nftban_mail_send_success_total{transport="sendmail"}'
FAILURES = 'nftban_mail_send_failures_total{transport="sendmail"}'
DEPTH = "nftban_mail_spool_depth"
TASK = "20261120T102000Z-mail_send-00000001"


def retried(
    office: Office, content: str = "the disk is full", recipient: str = "", subject: str = ""
) -> Ended:
    """What becomes of a mail that is to be sent with retries."""
    ended = office.post().send_with_retry(content, recipient, subject, enqueue=office.enqueue)
    assert ended is not None
    return ended


def spooled(
    root: Path, content: str = "the disk is full", recipient: str = "", subject: str = ""
) -> str:
    """A mail in the spool of an office, by the payload of its task."""
    ended = retried(Office(root, method="none"), content, recipient, subject)
    (root / "log/mail.log").unlink()
    return ended.payload


def marks(payload: str) -> set[str]:
    """What stands beside a mail's own two files."""
    return {path.name for path in Path(payload).parent.iterdir()} - {"meta.sh", "body.txt"}


def full_disk(monkeypatch: pytest.MonkeyPatch, *calls: str) -> None:
    """From now on the disk has no room for any of these."""

    def refused(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in calls:
        monkeypatch.setattr(files, name, refused)


# ---- one attempt


def test_one_send_is_one_attempt(tmp_path: Path) -> None:
    """A mail is handed to a transport once, and log and metrics say so in the contract's words."""
    way = Recorder()
    office = Office(tmp_path, way)

    sent = office.post().send("the disk is full", subject="Disk")

    (mail,) = way.accepted
    assert sent == Sent("sendmail", mail.id, "admin@example.com")
    assert (mail.recipient, mail.subject) == ("admin@example.com", "Disk")
    assert "the disk is full" in mail.text
    assert office.log() == [
        "[INFO] MAIL_SEND_ATTEMPT task_id=inline attempt=1 transport=sendmail to=admin@...",
        "[INFO] MAIL_SEND_RESULT task_id=inline status=success transport=sendmail attempt=1",
    ]
    assert [office.metric(name) for name in (ATTEMPTS, SUCCESS, FAILURES)] == [1, 1, 0]
    assert office.metric("nftban_mail_last_success_timestamp") == int(NOW)


def test_one_send_fails_without_retry_and_without_spool(tmp_path: Path) -> None:
    """A single attempt that fails is told with its reason; nothing is kept, nobody waits."""
    way = Recorder(busy("connect_timeout"))
    office = Office(tmp_path, way)

    with pytest.raises(NotSent) as told:
        office.post().send("the disk is full")

    assert told.value.word == "connect_timeout"
    assert len(way.asked) == 1
    assert office.pauses == []
    assert not (tmp_path / "mailspool").exists()
    assert office.log()[-1] == (
        "[ERROR] MAIL_SEND_RESULT task_id=inline status=failed transport=sendmail retries=1 "
        "last_error=connect_timeout"
    )
    assert [office.metric(name) for name in (ATTEMPTS, SUCCESS, FAILURES)] == [1, 0, 1]


def test_without_a_recipient_there_is_nobody_to_tell(tmp_path: Path) -> None:
    """Where no recipient is named or configured nothing is sent, and that is no error."""
    way = Recorder()
    office = Office(tmp_path, way, recipient="")

    assert office.post().send("the disk is full") is None
    assert office.post().send_with_retry("x", enqueue=office.enqueue) is None
    assert way.asked == []
    assert office.log() == []


@each("recipient", ["-C/tmp/evil", "a@b@example.com", "x@example.com\nBcc: y"])
def test_a_bad_recipient_is_neither_tried_nor_spooled(tmp_path: Path, recipient: str) -> None:
    """What is no address is refused before anything is asked or kept; that it was stands in the
    log, the records and the metrics, for whoever asked may not have been listening.
    """
    way = Recorder()
    office = Office(tmp_path, way)

    with pytest.raises(BadMail):
        office.post().send("the disk is full", recipient)
    with pytest.raises(BadMail):
        office.post().send_with_retry("the disk is full", recipient, enqueue=office.enqueue)

    assert way.asked == []
    assert office.queued == []
    assert not (tmp_path / "mailspool").exists()
    begins = "[ERROR] MAIL_SEND_RESULT task_id=inline status=failed retries=0 last_error="
    assert [line.startswith(f"{begins}rejected_bad_mail: '") for line in office.log()] == [True] * 2
    records = (tmp_path / "mail/delivery.jsonl").read_text().splitlines()
    assert [json.loads(line)["result"] for line in records] == ["failed", "failed"]
    assert office.metric("nftban_mail_last_failure_timestamp") == int(NOW)


def test_a_wrong_sender_keeps_all_mail_and_loses_none(tmp_path: Path) -> None:
    """It is a setting, and not the mail's fault: mail is spooled, and its task waits for whoever
    corrects it.
    """
    way = Recorder()
    office = Office(tmp_path, way, sender="foo bar@example.com")

    ended = retried(office)

    why = "no mail is sent: its sender 'foo bar@...' holds a space"
    assert (ended.sent, ended.attempts, ended.task_id != "") == (False, 0, True)
    assert office.post().shut()[0].startswith(why)
    assert office.log()[0] == "[ERROR] No mail system available, spooling for later"
    assert office.log()[1].startswith(f"[WARN] Nothing was attempted: {why}")
    with pytest.raises(Waits, match=why):
        office.post().deliver(office.queued[0][1], TASK, 1, never)
    assert way.asked == []


# ---- with retries


def test_the_third_attempt_delivers(tmp_path: Path) -> None:
    """Refused twice, a mail is accepted the third time: waits between the attempts, the same mail
    each time, and nothing in the spool. What was said to the second stands in the record.
    """
    way = Recorder(busy(), busy())
    office = Office(tmp_path, way)

    ended = retried(office, subject="Disk")

    assert ended == Ended(True, "sendmail", 3, mail_id=way.accepted[0].id)
    assert office.pauses == [5, 15]
    assert len(set(way.asked)) == 1
    assert office.queued == []
    assert not (tmp_path / "mailspool").exists()
    assert office.log() == [
        "[INFO] MAIL_SEND_ATTEMPT task_id=inline attempt=1 transport=sendmail to=admin@...",
        "[WARN] MAIL_SEND_ATTEMPT failed attempt=1/3 error=unavailable_450",
        "[DEBUG] Retrying in 5s...",
        "[INFO] MAIL_SEND_ATTEMPT task_id=inline attempt=2 transport=sendmail to=admin@...",
        "[WARN] MAIL_SEND_ATTEMPT failed attempt=2/3 error=unavailable_450",
        "[DEBUG] Retrying in 15s...",
        "[INFO] MAIL_SEND_ATTEMPT task_id=inline attempt=3 transport=sendmail to=admin@...",
        "[INFO] MAIL_SEND_RESULT task_id=inline status=success transport=sendmail attempt=3",
    ]
    (record,) = (tmp_path / "mail/delivery.jsonl").read_text().splitlines()
    assert '"result":"success","reason":"after unavailable_450: 450 try again later"' in record
    assert [office.metric(name) for name in (ATTEMPTS, SUCCESS, FAILURES)] == [3, 1, 0]


def test_after_the_last_attempt_a_mail_is_spooled_and_queued(tmp_path: Path) -> None:
    """When all attempts failed the mail lies whole in the spool, a task names it, and nobody
    waited after the last one. It counts as one failure, however many attempts there were.
    """
    office = Office(tmp_path, Recorder(busy(), busy(), busy("connect_timeout")))

    ended = retried(office, subject="[ALERT] Service failed")

    assert (ended.sent, ended.attempts, ended.word) == (False, 3, "connect_timeout")
    assert office.pauses == [5, 15]
    assert office.queued == [("Spooled mail to admin@...", ended.payload)]
    letter = office.spool.read(ended.payload)
    assert (letter.id, letter.to, letter.subject) == (
        *(ended.mail_id, "admin@example.com", "[ALERT] Service failed"),
    )
    assert office.spool.body(letter, 100) == b"the disk is full\n"
    assert marks(ended.payload) == set()
    assert office.log()[-3:] == [
        "[WARN] MAIL_SEND_ATTEMPT failed attempt=3/3 error=connect_timeout",
        "[ERROR] MAIL_SEND_RESULT task_id=inline status=failed transport=sendmail retries=3 "
        "last_error=connect_timeout",
        f"[INFO] Mail spooled to queue: {ended.task_id} (recipient: admin@...)",
    ]
    assert [office.metric(name) for name in (ATTEMPTS, SUCCESS, FAILURES, DEPTH)] == [3, 0, 1, 1]


def test_recipient_and_subject_have_defaults(tmp_path: Path) -> None:
    """A mail that is given no subject is an `NFTBan Alert`, sent or spooled; a recipient that is
    named gets the mail instead of the configured one.
    """
    way = Recorder()
    retried(Office(tmp_path / "a", way), recipient="ops@example.org")
    ended = retried(office := Office(tmp_path / "b", method="none"))

    assert (way.accepted[0].subject, way.accepted[0].recipient) == (
        "NFTBan Alert",
        "ops@example.org",
    )
    letter = office.spool.read(ended.payload)
    assert (letter.subject, letter.to) == ("NFTBan Alert", "admin@example.com")


@each(
    ("backoff", "attempts", "waits"),
    [((5, 15, 45), 5, [5, 15, 45, 45]), ((), 3, [0, 0]), ((5,), 1, [])],
)
def test_the_last_wait_counts_on(
    tmp_path: Path, backoff: tuple[float, ...], attempts: int, waits: list[float]
) -> None:
    """Where the list of waits ends its last one goes on; there is always one wait less than there
    are attempts.
    """
    way = Recorder(*[busy() for _ in range(9)])
    office = Office(tmp_path, way, backoff=backoff, attempts=attempts)

    retried(office)

    assert (office.pauses, len(way.asked)) == (waits, attempts)


def test_a_refusal_for_good_is_not_retried(tmp_path: Path) -> None:
    """A permanent refusal ends the attempts at once; the mail is spooled, and its task gives up on
    it without asking again, once, as the log says: who retries it has it attempted.
    """
    way = Recorder(refusal())
    office = Office(tmp_path, way)

    ended = retried(office)

    assert (ended.permanent, ended.attempts, office.pauses) == (True, 1, [])
    assert marks(ended.payload) == {"refused"}
    with pytest.raises(NotSent) as told:
        office.post().deliver(ended.payload, TASK, 1, never)
    assert (told.value.permanent, told.value.word) == (True, "rejected_550")
    assert str(told.value) == "550 no such user"
    assert len(way.asked) == 1
    assert office.log()[-1] == (
        f"[ERROR] MAIL_SEND_RESULT task_id={TASK} status=failed retries=0 "
        "last_error=rejected_550: 550 no such user"
    )
    office.post().deliver(ended.payload, TASK, 1, never)
    assert len(way.accepted) == 1


@each("why", ["no word", "a=b status=success: x", "", "x" * 50 + ": y"])
def test_a_mark_of_somebody_else_says_nothing_in_our_words(tmp_path: Path, why: str) -> None:
    """What stands in the mark of a refusal is foreign: the word for it in the log is ours."""
    payload = spooled(tmp_path)
    Path(payload).with_name("refused").write_text(f'WHY="{why}"\n')
    office = Office(tmp_path, Recorder())

    with pytest.raises(NotSent) as told:
        office.post().deliver(payload, TASK, 1, never)

    assert told.value.word == "rejected_for_good"
    assert " last_error=rejected_for_good: " in office.log()[-1]


@each(
    ("settings", "absent", "suspended", "why"),
    [
        ({}, "not installed", (), "no mail transport is set up"),
        ({"method": "sendmail"}, "no program", (), "no mail transport: sendmail: no program"),
        ({"method": "none"}, "", ("sendmail",), "no mail transport is set up: the method is none"),
        ({}, "not installed", ("sendmail",), "no mail transport is set up"),
        ({}, "", ("sendmail",), "no mail transport: sendmail suspended by root@web1"),
    ],
)
def test_without_a_transport_a_mail_is_spooled_at_once(
    tmp_path: Path, settings: dict[str, object], absent: str, suspended: tuple[str, ...], why: str
) -> None:
    """With no transport to use there is no attempt and no wait: the mail goes to the spool."""
    office = Office(tmp_path, Recorder(absent=absent), **settings)
    for name in suspended:
        office.suspend(name)

    ended = retried(office)

    assert (ended.attempts, ended.transport, ended.text) == (0, "", why)
    assert office.pauses == []
    assert len(office.queued) == 1
    told = [] if "is set up" in why else [f"[WARN] Nothing was attempted: {why}"]
    assert office.log() == [
        "[ERROR] No mail system available, spooling for later",
        *told,
        f"[INFO] Mail spooled to queue: {ended.task_id} (recipient: admin@...)",
    ]
    assert office.post().shut()[0] == why
    with pytest.raises(NotSent, match=why):
        office.post().send("the disk is full")


def test_what_is_suspended_is_never_guessed(tmp_path: Path) -> None:
    """Where it cannot be read which transports are suspended, none is used."""
    way = Recorder()
    post = Office(tmp_path, way).post()
    payload = spooled(tmp_path)
    (tmp_path / "suspended").write_text("sendm")

    assert "which transports are suspended cannot be read" in post.shut()[0]
    with pytest.raises(Waits, match="suspended"):
        post.deliver(payload, TASK, 1, never)
    assert way.asked == []


def test_a_transport_that_is_suspended_in_a_wait_is_not_asked_again(tmp_path: Path) -> None:
    """Suspended between two attempts, a transport gets no other one: the mail is spooled at once,
    and who asked for it is told of both.
    """
    way = Recorder(busy())
    office = Office(tmp_path, way)
    office.watch = lambda: office.suspend("sendmail")

    ended = retried(office)

    assert (ended.sent, ended.attempts, len(way.asked)) == (False, 1, 1)
    assert (office.pauses, len(office.queued)) == ([5], 1)
    assert (ended.word, ended.text) == (
        "unavailable_450",
        "450 try again later; then no mail transport: sendmail suspended by root@web1",
    )


class SuspendedMeanwhile(Recorder):
    """A transport that is suspended while it is being chosen."""

    office: Office

    def absence(self) -> None:
        """It is there; and so is an operator."""
        self.office.suspend(self.name)


@each("deed", ["send", "send_with_retry", "deliver"])
def test_what_is_suspended_is_looked_at_right_before_each_attempt(
    tmp_path: Path, deed: str
) -> None:
    """A transport that is suspended after it was chosen is not asked; nothing is marked."""
    payload = spooled(tmp_path)
    way = SuspendedMeanwhile()
    way.office = office = Office(tmp_path, way)

    if deed == "send":
        with pytest.raises(NotSent, match="sendmail suspended by root@web1") as told:
            office.post().send("the disk is full")
        assert told.value.word == "unavailable_no_transport"
    elif deed == "send_with_retry":
        ended = retried(office)
        assert (ended.attempts, ended.word) == (0, "unavailable_no_transport")
        assert len(office.queued) == 1
    else:
        with pytest.raises(Waits, match="sendmail suspended by root@web1"):
            office.post().deliver(payload, TASK, 1, never)

    assert way.asked == []
    assert marks(payload) == set()


def test_a_limited_transport_spools_at_once(tmp_path: Path) -> None:
    """Without a token nobody waits in the caller's place: the mail is spooled, uncounted."""
    rates = {"sendmail": Rate(60, 1)}
    way = Recorder()
    office = Office(tmp_path, way, rates=rates)
    post = office.post(buckets(office))

    first = post.send_with_retry("one", enqueue=office.enqueue)
    second = post.send_with_retry("two", enqueue=office.enqueue)

    assert first is not None and first.sent
    assert second is not None and (second.sent, second.attempts) == (False, 0)
    assert second.word == "unavailable_no_token"
    assert len(office.queued) == len(way.asked) == 1
    assert office.metric(FAILURES) == 0


def buckets(office: Office) -> Buckets:
    """The tokens that the settings of an office provide for."""
    rates = {f"transport:{name}": rate for name, rate in office.settings.rates.items()}
    rates |= {f"domain:{name}": rate for name, rate in office.settings.domains.items()}
    return Buckets(str(office.root / "buckets"), rates, office.clock)


@each("when", ["in the attempt", "in the wait"])
def test_who_is_told_to_stop_spools_at_once(tmp_path: Path, when: str) -> None:
    """Told to stop during an attempt or a wait, there is no other attempt: the mail is spooled."""
    way = Recorder(busy())
    office = Office(tmp_path, way)
    stopped = [False]

    def stop() -> None:
        stopped[0] = True

    if when == "in the wait":
        office.watch = stop
    else:
        way.watch = stop
    ended = office.post().send_with_retry(
        "the disk is full", enqueue=office.enqueue, cancelled=lambda: stopped[0]
    )

    assert ended is not None and (ended.sent, ended.attempts) == (False, 1)
    assert len(way.asked) == len(office.queued) == 1
    assert office.pauses == ([5] if when == "in the wait" else [])


@each("call", ["write", "fsync", "rename", "mkdir"])
def test_what_cannot_be_spooled_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """On a full disk the failure is told with its reason; nothing of the mail is to be seen, and
    no task names it.
    """
    (tmp_path / "mailspool").mkdir(0o750)
    office = Office(tmp_path, method="none")
    full_disk(monkeypatch, call)

    with pytest.raises(OSError, match="No space left"):
        retried(office)

    assert office.queued == []
    assert [path for path in (tmp_path / "mailspool").iterdir() if path.name[0] != "."] == []


def test_without_a_queue_a_mail_stays_in_the_spool(tmp_path: Path) -> None:
    """When no task can be made the mail is safe in the spool all the same, and log and answer say
    where it lies and that nobody will send it.
    """

    def enqueue(description: str, payload: str) -> str:
        raise RuntimeError("Queue full")

    office = Office(tmp_path, method="none")

    ended = office.post().send_with_retry("the disk is full", enqueue=enqueue)

    assert ended is not None
    assert (ended.task_id, ended.unqueued) == ("", "Queue full")
    folder = Path(ended.payload).parent
    assert office.log()[-1] == f"[WARN] Queue not available, mail saved to spool: {folder}"
    assert office.spool.read(ended.payload).to == "admin@example.com"


# ---- out of the spool


def test_a_spooled_mail_is_delivered_as_it_was_meant(tmp_path: Path) -> None:
    """A mail comes out of the spool with its own subject, its own time and its Message-ID; the log
    has the task's id and says which attempt it was.
    """
    payload = spooled(tmp_path, subject="[ALERT] Grüße")
    way = Recorder()
    office = Office(tmp_path, way)
    office.now += 3600

    office.post().deliver(payload, TASK, 2, never)

    (mail,) = way.accepted
    assert mail.id in payload
    assert f"Message-ID: <{mail.id}@web1.example.com>".encode() in mail.data
    assert b"Date: Fri, 20 Nov 2026 10:20:00 +0000\n" in mail.data
    assert mail.subject.startswith("=?utf-8?") or "=?utf-8?" in mail.subject
    assert marks(payload) == {"sent"}
    assert office.log() == [
        f"[INFO] MAIL_SEND_ATTEMPT task_id={TASK} attempt=2 transport=sendmail to=admin@...",
        f"[INFO] MAIL_SEND_RESULT task_id={TASK} status=success transport=sendmail attempt=2",
    ]
    assert [office.metric(name) for name in (ATTEMPTS, SUCCESS, FAILURES, DEPTH)] == [1, 1, 0, 0]


def test_the_marks_frame_the_attempt(tmp_path: Path) -> None:
    """While a transport is asked the mail is marked as being tried, and afterwards as sent."""
    payload = spooled(tmp_path)
    way = Recorder()
    seen: list[set[str]] = []
    way.watch = way.after = lambda: seen.append(marks(payload))

    Office(tmp_path, way).post().deliver(payload, TASK, 1, never)

    assert seen == [{"trying"}, {"trying"}]
    assert marks(payload) == {"sent"}


def test_what_was_sent_is_not_sent_again(tmp_path: Path) -> None:
    """A mail that is marked as sent is done, even where no transport is set up: none is asked, and
    the log says so.
    """
    payload = spooled(tmp_path)
    way = Recorder()
    office = Office(tmp_path, way)
    office.post().deliver(payload, TASK, 1, never)

    office.post().deliver(payload, TASK, 2, never)

    assert len(way.asked) == 1
    assert TASK in office.log()[-1]
    assert office.metric(ATTEMPTS) == 1
    Office(tmp_path, method="none").post().deliver(payload, TASK, 3, never)
    assert "MAIL_SEND_ALREADY_SENT" in office.log()[-1]


def test_what_is_in_doubt_is_said_and_sent_once_more(tmp_path: Path) -> None:
    """An attempt that ended without a result, as by a crash, is told in the log; then the same
    mail is sent again, the same to the byte.
    """
    payload = spooled(tmp_path)
    first, second = Recorder(), Recorder()
    first.after = dies
    with pytest.raises(KeyboardInterrupt):
        Office(tmp_path, first).post().deliver(payload, TASK, 1, never)

    office = Office(tmp_path, second)
    office.now += 600
    office.post().deliver(payload, TASK, 2, never)

    assert first.accepted == second.accepted
    doubts = [line for line in office.log() if line.startswith("[WARN]")]
    assert len(doubts) == 1
    assert "may arrive twice" in doubts[0] and TASK in doubts[0]
    assert marks(payload) == {"sent"}


def dies() -> None:
    """End, as a signal ends a process."""
    raise KeyboardInterrupt


def test_a_failed_attempt_leaves_no_doubt(tmp_path: Path) -> None:
    """A mail that a transport has refused is not in doubt: the next attempt is made without a
    word. Each failed attempt of a queued mail counts as one failure.
    """
    payload = spooled(tmp_path)
    way = Recorder(busy(), busy("dns_not_found"))
    office = Office(tmp_path, way)

    for attempt in (1, 2):
        with pytest.raises(NotSent):
            office.post().deliver(payload, TASK, attempt, never)
        assert marks(payload) == set()

    assert [line for line in office.log() if "WARN" in line] == []
    assert office.log()[-1] == (
        f"[ERROR] MAIL_SEND_RESULT task_id={TASK} status=failed transport=sendmail retries=2 "
        "last_error=dns_not_found"
    )
    assert [office.metric(name) for name in (ATTEMPTS, SUCCESS, FAILURES)] == [2, 0, 2]


def test_what_is_spooled_is_the_same_to_the_byte(tmp_path: Path) -> None:
    """A mail that was tried, spooled, and is delivered much later is the one that was tried: what
    may arrive twice must not look like two mails.
    """
    way = Recorder(*[busy("timeout")] * 3)
    office = Office(tmp_path, way)
    ended = retried(office, "<p>the disk is <b>full</b>, Grüße</p>", subject="Grüße")

    office.now += 3600
    office.post().deliver(ended.payload, TASK, 1, never)

    assert len(way.asked) == 4
    assert len(set(way.asked)) == 1


def test_only_an_attempt_without_an_answer_leaves_a_doubt() -> None:
    """Where no server was reached, it said no, or the program never had the mail, it cannot arrive
    twice; after any other failure, even one with an unknown word, it may.
    """
    doubtful = [
        "timeout",
        "connect_lost",
        "unavailable_signal_9",
        "unavailable_stopped",
        "unavailable_no_status",
        "unavailable_not_followed",
        "unavailable_io",
        "connect_protocol",
        "unavailable_curl_8",
        "unavailable_status_1",
        "unavailable_for_now",
        "never_heard_of",
    ]
    certain = [
        "dns_not_found",
        "tls_certificate",
        "auth_535",
        "rejected_550",
        "rejected_too_large",
        "connect_refused",
        "connect_unreachable",
        "connect_timeout",
        "connect_failed",
        "unavailable_450",
        "unavailable_554",
        "unavailable_not_started",
        "unavailable_not_read",
        "unavailable_usage",
        "unavailable_permission",
        "unavailable_configuration",
        "unavailable_no_space",
        "unavailable_no_token",
        "unavailable_no_transport",
    ]

    assert [word for word in doubtful if not busy(word).doubtful] == []
    assert [word for word in certain if busy(word).doubtful] == []


@each("then", ["unavailable_450", "connect_refused"])
def test_once_in_doubt_a_mail_stays_in_doubt(tmp_path: Path, then: str) -> None:
    """An attempt that is answered takes nothing back of the one before it that was not: each that
    follows says so, with the moment of the one in doubt, until the mail is accepted.
    """
    office = Office(tmp_path, Recorder(busy("timeout"), *[busy(then)] * 3))

    ended = retried(office)
    assert ended.doubt == NOW
    assert marks(ended.payload) == {"trying"}
    with pytest.raises(NotSent):
        office.post().deliver(ended.payload, TASK, 1, never)
    assert marks(ended.payload) == {"trying"}
    office.post().deliver(ended.payload, TASK, 2, never)

    doubts = [line for line in office.log() if "may arrive twice" in line]
    assert [line.split()[2] for line in doubts] == [
        *("task_id=inline", "task_id=inline", f"task_id={TASK}", f"task_id={TASK}"),
    ]
    assert all("transport=sendmail since=2026-11-20T10:20:00Z" in line for line in doubts)
    assert marks(ended.payload) == {"sent"}


@each("calls", [("rename",), ("rename", "write", "fsync", "unlink")])
def test_what_was_accepted_is_a_success_whatever_the_disk_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: tuple[str, ...]
) -> None:
    """A mail that was accepted counts as sent, though that could not be written down anywhere; it
    is complained about, and never told as a failure.
    """
    payload = spooled(tmp_path)
    way = Recorder()
    office = Office(tmp_path, way)
    way.watch = lambda: full_disk(monkeypatch, *calls)

    office.post().deliver(payload, TASK, 1, never)

    assert len(way.accepted) == 1
    assert "was sent, which is not written down in the spool" in office.complaints[0]
    assert "No space left" in office.complaints[0]


@each("replaced", [False, True])
def test_a_spool_folder_that_vanished_after_the_acceptance_is_no_failure(
    tmp_path: Path, replaced: bool
) -> None:
    """Whoever removes the folder of a mail while it is sent, or puts something else in its place,
    does not make it unsent.
    """
    payload = spooled(tmp_path)
    way = Recorder()
    office = Office(tmp_path, way)

    def vanish() -> None:
        Path(payload).parent.rename(tmp_path / "elsewhere")
        if replaced:
            Path(payload).parent.symlink_to(tmp_path / "elsewhere")

    way.after = vanish

    office.post().deliver(payload, TASK, 1, never)

    assert len(office.complaints) == 1


def test_a_spooled_mail_to_a_bad_address_is_never_tried(tmp_path: Path) -> None:
    """A spooled mail whose recipient another program changed into an option is not attempted."""
    payload = spooled(tmp_path)
    meta = Path(payload)
    meta.write_text(meta.read_text().replace("admin@", "-Cevil,x@"))
    way = Recorder()

    with pytest.raises(BadMail, match="address"):
        Office(tmp_path, way).post().deliver(payload, TASK, 1, never)

    assert way.asked == []


# ---- waiting


@each("suspended", [(), ("sendmail",)])
def test_without_a_transport_a_spooled_mail_waits(
    tmp_path: Path, suspended: tuple[str, ...]
) -> None:
    """With no transport to use, a spooled mail waits; it has not been attempted."""
    payload = spooled(tmp_path)
    office = Office(tmp_path, Recorder(absent="" if suspended else "not installed"))
    for name in suspended:
        office.suspend(name)

    with pytest.raises(Waits, match="no mail transport") as told:
        office.post().deliver(payload, TASK, 1, never)

    assert told.value.until == NOW + ASK_AGAIN
    assert marks(payload) == set()
    assert office.log() == []


def test_a_refused_mail_is_given_up_on_without_a_transport(tmp_path: Path) -> None:
    """That a mail was refused for good is looked at before anything that could keep it waiting."""
    ended = retried(Office(tmp_path, Recorder(refusal())))

    with pytest.raises(NotSent):
        Office(tmp_path, method="none").post().deliver(ended.payload, TASK, 1, never)


def test_each_domain_has_its_own_tokens(tmp_path: Path) -> None:
    """A mail waits for a token of its recipient's domain; those to others go on. It waits before
    anything is marked or logged.
    """
    here, there = spooled(tmp_path), spooled(tmp_path, recipient="ops@example.org")
    again = spooled(tmp_path, recipient="root@EXAMPLE.com")
    way = Recorder()
    office = Office(tmp_path, way, domains={"example.com": Rate(60, 1)})
    post = office.post(buckets(office))

    post.deliver(here, TASK, 1, never)
    with pytest.raises(Waits, match=r"no token for domain example\.com") as told:
        post.deliver(again, TASK, 1, never)
    post.deliver(there, TASK, 1, never)

    assert told.value.until == NOW + 60
    assert [mail.recipient for mail in way.accepted] == ["admin@example.com", "ops@example.org"]
    assert marks(again) == set()
    assert post.shut()[0] == ""


def test_those_that_wait_for_one_domain_come_back_one_by_one(tmp_path: Path) -> None:
    """Mails that find no token come back a token apart, so that not all of them are taken up again
    for one, however slow they are; never later than in a day, or the first token.
    """
    payloads = [spooled(tmp_path, str(n)) for n in range(27)]
    office = Office(tmp_path, Recorder(), domains={"example.com": Rate(1, 1)})
    post = office.post(buckets(office))
    post.deliver(payloads[0], TASK, 1, never)

    moments = []
    for payload in payloads[1:]:
        with pytest.raises(Waits) as told:
            post.deliver(payload, TASK, 1, never)
        moments.append(told.value.until - NOW)

    assert moments == [*range(3600, 86400, 3600), 86400, 86400, 86400]


def test_an_empty_bucket_of_the_transport_shuts_the_gate(tmp_path: Path) -> None:
    """While its transport has no token, no mail needs to be looked at, and it is known until when;
    of a transport that is suspended nobody knows.
    """
    office = Office(tmp_path, Recorder(), rates={"sendmail": Rate(60, 1)})
    post = office.post(buckets(office))
    assert post.shut()[0] == ""

    post.send("the disk is full")
    assert post.shut()[0] == "no token for transport sendmail"
    assert post.shut() == ("no token for transport sendmail", NOW + 60)
    office.now += 60
    assert post.shut() == ("", None)
    office.suspend("sendmail")
    assert post.shut() == ("no mail transport: sendmail suspended by root@web1", None)


def test_who_cannot_count_tokens_does_not_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a token cannot be spent the mail waits, or is spooled: the limit holds."""
    payload = spooled(tmp_path)
    way = Recorder()
    office = Office(tmp_path, way, rates={"sendmail": Rate(60, 1)})
    (tmp_path / "buckets").mkdir()

    with pytest.raises(Waits, match="tokens cannot be counted"):
        office.post(buckets(office)).deliver(payload, TASK, 1, never)
    ended = office.post(buckets(office)).send_with_retry("x", enqueue=office.enqueue)

    assert way.asked == []
    assert ended is not None and len(office.queued) == 1


# ---- what tells of it


def test_only_one_transport_is_tried(tmp_path: Path) -> None:
    """The first transport that is there gets all attempts; a suspended one is passed over."""
    first, second = Recorder(busy(), name="postfix"), Recorder(name="msmtp")
    office = Office(tmp_path, first, second)

    retried(office)
    office.suspend("postfix")
    retried(office)

    assert (len(first.asked), len(second.asked)) == (2, 1)
