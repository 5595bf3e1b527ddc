"""Lines of Exim's main log: events, spoofed and broken lines, where the log is."""

from collections import Counter

from engine.formats.exim.log_lines import mail_log, main_log_path, parse
from engine.programs.mail_log import MailEvent, MailEventKind, parse_event
from tests.engine.task_builders import GOLDEN
from tests.tables import each

ID = "1xX5UE-0003Hr-2I"
LATER = "1xX5vI-000000008F7-2KwE"


def event(text: str) -> MailEvent:
    """The event of a line about a message."""
    made = parse(text)
    assert made is not None
    return made


def test_the_main_log_of_the_real_program_is_read() -> None:
    """Each line about a message gives an event with a time; lines about the daemon give none."""
    log = mail_log("mainlog")
    lines = (GOLDEN.parent / "exim" / "mainlog").read_bytes().splitlines()
    events = [parse_event(log, line) for line in lines]
    counts = Counter(one.what.value for one in events if one is not None)
    kinds = (
        "25 arrived, 17 deferred, 4 not tried, 5 delivered, 9 failed, 4 held, 5 removed, 6 noted"
    )
    assert {f"{number} {kind}" for kind, number in counts.items()} == {*kinds.split(", ")}
    assert [line for line, one in zip(lines, events, strict=True) if one is None] == lines[:3]
    assert all(one.when and log.is_id(one.id) for one in events if one is not None)


def test_arrivals_have_sender_account_client_and_the_message_that_they_report() -> None:
    """By SMTP the account is the login, locally the user; a bounce names the bounced message."""
    smtp = "H=(helo) [192.0.2.1] P=esmtpa A=plain:ann@shop.test S=252 id=x@y for c"
    quoted = f'H=mx.test [192.0.2.1] P=esmtp T="R={LATER} U=eve"'
    for text, address, account, client, other in (
        (f"a@b.test {smtp}", "a@b.test", "ann@shop.test", "(helo) [192.0.2.1]", ""),
        ("www@b.test U=web P=local S=99", "www@b.test", "web", "", ""),
        (f"<> R={ID} U=Debian-exim P=local S=1643 from <>", "<>", "Debian-exim", "", ID),
        (f'"a b"@b.test {quoted}', '"a b"@b.test', "", "mx.test [192.0.2.1]", ""),
    ):
        its = event(f"{LATER} <= {text}")
        assert (its.id, its.address, its.account) == (LATER, address, account)
        assert (its.client, its.other) == (client, other)


ATTEMPTS = [
    (f'{ID} => u@x.test <o@x.test> R=r T=t H=h.test [192.0.2.9]* C="250 OK"',
     (MailEventKind.DELIVERED, "u@x.test", "250 OK", "h.test [192.0.2.9]")),
    (f"{ID} == ann@x.test R=r T=remote_smtp defer (111): Connection refused",
     (MailEventKind.DEFERRED, "ann@x.test", "Connection refused", "remote_smtp")),
    (f"{ID} == b@x.test R=r T=t defer (-44) H=h [192.0.2.9]: SMTP error: 450 later",
     (MailEventKind.DEFERRED, "b@x.test", "SMTP error: 450 later", "h [192.0.2.9]")),
    (f"{ID} == c@x.test R=r T=t defer (-54): retry time not reached for any host for 'x'",
     (MailEventKind.SUSPENDED, "c@x.test", "retry time not reached for any host for 'x'", "t")),
    (f"{ID} ** d@x.test: Unrouteable address",
     (MailEventKind.FAILED, "d@x.test", "Unrouteable address", "")),
    (f'{ID} == a b@x.test <"a b"@x.test> R=r T=t defer (111): Connection refused',
     (MailEventKind.DEFERRED, "a b@x.test", "Connection refused", "t")),
]  # fmt: skip


@each(("line", "expected"), ATTEMPTS)
def test_attempts_have_their_host(line: str, expected: tuple[MailEventKind, str, str, str]) -> None:
    """The text is the answer of the other server, or Exim's own reason."""
    made = event(line)
    assert (made.what, made.address, made.text, made.relay) == expected


def test_acts_and_ends_are_events() -> None:
    """Frozen, thawed, cancelled, removed and completed messages; anything else is noted."""
    texts = {
        "Completed": ("removed", True),
        "removed by root": ("removed", True),
        "frozen by root": ("held", False),
        "Frozen (delivery error message)": ("held", False),
        "unfrozen by root": ("released", False),
        "Unfrozen by forced delivery": ("released", False),
        "cancelled by timeout_frozen_after": ("expired", False),
        "Message is frozen": ("noted", False),
    }
    made = {text: event(f"{ID} {text}") for text in texts}
    assert {text: (one.what.value, one.is_end) for text, one in made.items()} == texts


def test_refused_mail_and_lines_of_syslog_are_read() -> None:
    """A refusal has no id; syslog puts host, program and a second time before the line."""
    refused = event("H=(x) [192.0.2.1] F=<a@b.test> rejected RCPT <c@d.test>: relay not permitted")
    through = event(f"mx exim[12]: 2026-11-27 23:36:14 {ID} Completed")
    assert (refused.what, refused.id, refused.address) == (MailEventKind.REFUSED, "", "c@d.test")
    assert (through.what, through.id) == (MailEventKind.REMOVED, ID)


@each("text", ["", ID, "Start queue run: pid=9", "\x1b[2J\u202e", "H=x [", "=="])
def test_other_lines_are_no_events(text: str) -> None:
    """Garbage and lines that end in the id are no events."""
    assert parse(text) is None


@each(
    ("value", "expected"),
    [
        ("/var/log/exim4/%slog", ("/var/log/exim4/mainlog", False)),
        (":syslog", ("", True)),
        ("syslog : /var/log/exim_%slog", ("/var/log/exim_mainlog", True)),
        ("/var/log/exim/%slog-%D", ("/var/log/exim/mainlog", False)),
        ("", ("", False)),
        ("/dev/stdout", ("", False)),
        ("/dev/shm/%slog", ("/dev/shm/mainlog", False)),
    ],
)
def test_the_main_log_is_named_by_the_setting(value: str, expected: tuple[str, bool]) -> None:
    """`log_file_path` has parts, `%s` for the log, and perhaps a date."""
    assert main_log_path(value) == expected
