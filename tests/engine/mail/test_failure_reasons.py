"""Exit status and output of a mail program become a reason, a word and a safe line."""

import re
from pathlib import Path
from typing import NamedTuple

import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine.mail import failure_reasons
from engine.mail.model import NotSent, Reason
from engine.system.supervisor import ProgramResult
from tests.tables import each


class Left(NamedTuple):
    """A program, what happened, its exit status, the expected word and its output."""

    program: str
    what: str
    status: int
    word: str
    output: str


GOLDEN = Path(__file__).parents[2] / "golden" / "mail" / "outputs.yaml"
LEFT = [Left(**left) for left in yaml.safe_load(GOLDEN.read_text())]


def result(
    status: int | None, output: bytes = b"", end: str = "", unread: bool = False
) -> ProgramResult:
    """What a program left behind that read the mail, unless it is `unread`."""
    return ProgramResult(status, output, end, unread)


def judged(left: Left) -> NotSent:
    """Why the mail was not sent, by what was left."""
    output = left.output.encode()
    if left.program == "curl":
        return failure_reasons.classify_curl_failure(left.status, output)
    failure = failure_reasons.classify_program_failure(left.program, result(left.status, output))
    assert failure
    return failure


@each("left", LEFT)
def test_outputs_of_real_programs_are_understood(left: Left) -> None:
    """Each has its word; only what a server has against the mail is permanent, an end without an
    answer is a doubt. An operator reads one line without domain or numbers."""
    failure = judged(left)
    assert (failure.word, failure.reason) == (left.word, left.word.partition("_")[0])
    assert failure.permanent == left.word.startswith("rejected_")
    if left.what.startswith(("dropped", "no answer")):
        assert failure.may_be_accepted and not failure.permanent
        assert "errno" not in str(failure)
    assert 0 < len(str(failure)) <= 200
    assert str(failure).isprintable()
    assert "admin@example.com" not in str(failure)
    assert "could not send mail" not in str(failure), "the reader has said so already"


def test_the_words_of_the_server_are_reported() -> None:
    """The text has the server's answer with the stage; without TLS it names the setting."""
    texts = {(left.program, left.what): str(judged(left)) for left in LEFT}
    assert texts["curl", "550 at RCPT"] == "550 5.1.1 <admin@...>: no such user: RCPT failed: 550"
    assert texts["msmtp", "550 at RCPT"] == (
        "msmtp: recipient address admin@... not accepted by the server; "
        "msmtp: server message: 550 5.1.1 <admin@...>: no such user"
    )
    assert texts["curl", "no STARTTLS"] == (
        "STARTTLS not supported. (TLS is required unless the host is in mail.plain_hosts)"
    )
    assert len(str(failure_reasons.classify_curl_failure(64, b"curl: (64) " + b"x" * 500))) == 200


@each(("output", "accepted"), [
    ("250 ok\n354 go\n250-2.0.0 queued\n250 as 7\n", True), ("354 go\r\n250\r\n", True),
    ("354 go\n250 ok\n421 bye\n", True), ("354 go\n451 no\n250 reset\n", False),
    ("354 go\n999 what\n250 x\n", False), ("250 ok\n250 ok\n", False), ("354 go\n", False),
    ("354 go\ncurl: (28) Timeout\n250-x\n", False),
])  # fmt: skip
def test_only_the_answer_to_the_data_accepts_a_mail(output: str, accepted: bool) -> None:
    """In curl's output the first whole reply after 354 is that to the mail."""
    assert failure_reasons.has_accepted_mail(output.encode()) is accepted


POSTDROP = b"postdrop: warning: mail_queue_enter: create file maildrop/70.7: "
LATE = "timeout after 30 s"


@each(("name", "ran", "word", "text"), [
    # a program, what it left, the word, how the text begins
    # Postfix's postdrop repeats its error until it is ended: the mail was not accepted.
    *(("postfix", result(None, POSTDROP + error, LATE), word,
       "postfix did not end within 30 s: postdrop: warning") for error, word in (
        (b"Permission denied\n", "unavailable_permission"),
        (b"No space left on device\n", "unavailable_no_space"),
        (b"Read-only file system\n", "unavailable_cannot_write"))),
    # Without words the statuses of sysexits.h count; any other is a transport that does not work.
    *(("sendmail", result(status), word, "sendmail ended") for status, word in (
        (64, "unavailable_usage"), (65, "rejected_data"), (67, "rejected_unknown_user"),
        (68, "dns_not_found"), (69, "unavailable_service"), (75, "unavailable_for_now"),
        (76, "connect_protocol"), (77, "unavailable_permission"),
        (78, "unavailable_configuration"), (1, "unavailable_status_1"),
        (127, "unavailable_status_127"), (-9, "unavailable_signal_9"),
        (None, "unavailable_no_status"))),
    # Exim 4 and Postfix, as their documentation quotes them.
    *(("exim", result(1, output), word, "") for output, word in (
        (b"LOG: MAIN\n  SMTP error from remote mail server after RCPT TO:<x@example.com>: "
         b"host mx.example.com [203.0.113.25]: 550 5.1.1 unknown", "rejected_550"),
        (b"SMTP error from remote mail server after MAIL FROM:<x@example.com> SIZE=1500: "
         b"452 4.2.2 full", "unavailable_452"),
        (b"host mx.example.com[192.0.2.5] said: 450 4.1.1 <x@example.com>", "unavailable_450"),
        (b"msmtp: network read error: Connection timed out", "timeout"),
        (b"msmtp: cannot connect to mx, port 25: Connection timed out", "connect_timeout"),
        (b"connect to mx.example.com[192.0.2.5]:25: No route to host", "connect_unreachable"),
        (b"lost connection with mx.example.com[192.0.2.5] while sending RCPT TO", "connect_lost"),
        (b"msmtp: cannot read from TLS connection: Error in the pull function.", "connect_lost"),
        (b"msmtp: cannot write to TLS connection: the operation timed out", "timeout"),
        (b"msmtp: TLS handshake failed: Error in the pull function.", "tls_failed"),
        (b"Unrouteable address", "rejected_unknown_user"),
        (b"write error: No space left on device", "unavailable_no_space"),
        # No answers of a server, though three digits are there.
        (b"cannot connect to 127.0.0.1, port 587: gave up after 500 ms", "connect_failed"),
        (b"sendmail: 450 bytes were written", "unavailable_status_1"))),
    # A timeout or a stop leaves a doubt, read or not.
    ("mailx", result(0, b"bye", unread=True), "unavailable_not_read",
     "mailx ended with status 0 without reading the mail: bye"),
    ("exim", result(-15, b"250 ok", LATE), "timeout", "exim did not end within 30 s: 250 ok"),
    ("exim", result(-15, end="stopped"), "unavailable_stopped", "exim was stopped"),
    ("exim", result(-9, end=LATE, unread=True), "timeout", "exim did not end within 30 s"),
    ("exim", result(None, end="stopped", unread=True), "unavailable_stopped", "exim was stopped"),
])  # fmt: skip
def test_a_failed_program_has_its_word(name: str, ran: ProgramResult, word: str, text: str) -> None:
    """Status 0 is success if the mail was read; else output and status give the word."""
    program = failure_reasons.classify_program_failure
    failure = program(name, ran)
    assert failure
    assert (failure.word, failure.permanent) == (word, word.startswith("rejected"))
    assert failure.reason == word.partition("_")[0]
    assert str(failure).startswith(text)
    if ran.end_reason or ran.has_unread_input:
        assert failure.may_be_accepted == (word in ("timeout", "unavailable_stopped"))
    assert program("sendmail", result(0, b"warning: 550 5.0.0 x")) is None


@each(("code", "output", "word"), [
    (28, b"250 x\r\n\nspooldeck uploaded 0\ncurl: (28) Timeout\n", "timeout_before_data"),
    (28, b"354 go\r\n\nspooldeck uploaded 0\ncurl: (28) Timeout\n", "timeout"),
    (28, b"\nspooldeck uploaded 54\ncurl: (28) Timeout\n", "timeout"),
    (28, b"curl: (28) Timeout\n", "timeout"),
    (56, b"\nspooldeck uploaded 0\ncurl: (56) lost\n", "connect_lost_before_data"),
    (27, b"\nspooldeck uploaded 0\ncurl: (27) no memory\n", "unavailable_memory"),
])  # fmt: skip
def test_a_mail_that_never_left_curl_is_in_no_doubt(code: int, output: bytes, word: str) -> None:
    """Without doubt is a mail of which curl reports 0 bytes sent and the server no 354."""
    failure = failure_reasons.classify_curl_failure(code, output)
    assert (failure.word, failure.may_be_accepted) == (word, not word.endswith("_before_data"))


def test_no_secret_and_no_control_character_is_reported() -> None:
    """A password, its base64 and control characters of a server are replaced."""
    output = b"535 5.7.8 not s3cret, not czNjcmV0\r\ncurl: (67) Login denied\n"
    failure = failure_reasons.classify_curl_failure(67, output, ("s3cret", "czNjcmV0"))
    secrets = "AUTH PLAIN AG1lAHgx; password=hush smtp://me:hush@mx.example.org"
    others = failure_reasons.redact_text(secrets)
    assert str(failure) == "535 5.7.8 not ***, not ***: Login denied"
    assert "AG1l" not in others and "hush" not in others
    hostile_output = b"550 \x1b[2J\xc2\x9b\xe2\x80\xaex\r\ncurl: (55) RCPT failed: 550"
    assert str(failure_reasons.classify_curl_failure(55, hostile_output)).isprintable()


@given(st.integers(-64, 255), st.binary(max_size=400) | st.text(max_size=400).map(str.encode))
def test_any_output_is_judged(status: int, output: bytes) -> None:
    """Any output gives one word, one printable line and no exception."""
    for failure in (
        failure_reasons.classify_curl_failure(status, output),
        failure_reasons.classify_program_failure("exim", result(status or 1, output)),
    ):
        assert failure
        assert re.fullmatch("[a-z0-9_.]{1,40}", failure.word)
        assert str(failure).isprintable() and len(str(failure)) <= 200
        assert not failure.permanent or failure.reason is Reason.REJECTED
