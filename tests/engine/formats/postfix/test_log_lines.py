"""Lines of Postfix's log: events, instances, spoofed and broken lines."""

from collections import Counter

from engine.formats.postfix.log_lines import is_id, mail_log, parse
from engine.programs.mail_log import MailEvent, MailEventKind, parse_event
from tests.engine.task_builders import GOLDEN
from tests.tables import each

ID, OLD = "4D9752DA018", "D067D2DA0AF"


def event(program: str, text: str) -> MailEvent:
    """The event of a line of the instance `postfix`."""
    made = parse("postfix", f"mx1 postfix/{program}[1]: {text}")
    assert made is not None
    return made


@each(
    ("name", "kinds"),
    [
        (
            "maillog_file",
            "16 arrived, 19 message-id, 19 queued, 20 deferred, 4 delivered, 5 failed, 3 bounced, "
            "4 removed",
        ),
        (
            "rsyslog-traditional",
            "3 arrived, 4 message-id, 4 queued, 3 deferred, 2 delivered, 1 failed, 1 bounced, "
            "1 held, 1 requeued, 1 removed",
        ),
    ],
)
def test_the_logs_of_the_real_program_are_read(name: str, kinds: str) -> None:
    """Each line about a message gives an event with a time; other lines give none."""
    log = mail_log("mail.log")
    lines = (GOLDEN.parent / "postfix" / f"mail.log.{name}").read_bytes().splitlines()
    events = [made for line in lines if (made := parse_event(log, line)) is not None]
    counts = Counter(one.what.value for one in events)
    assert {f"{number} {kind}" for kind, number in counts.items()} == {*kinds.split(", ")}
    assert all(one.when and log.is_id(one.id) for one in events)


def test_arrivals_have_client_and_account() -> None:
    """The SMTP login, or the local user; the pickup of a requeued one names the id before."""
    login = "client=c[192.0.2.1], sasl_method=PLAIN, sasl_username=ann@x"
    for program, text, kind, client, account, address, other in (
        ("smtpd", "client=localhost[127.0.0.1]", "arrived", "localhost[127.0.0.1]", "", "", ""),
        ("submission/smtpd", login, "arrived", "c[192.0.2.1]", "ann@x", "", ""),
        ("pickup", "uid=1000 from=<web@x>", "arrived", "", "uid 1000", "web@x", ""),
        ("pickup", f"uid=100 from=<> orig_id={OLD}", "requeued", "", "", "<>", OLD),
    ):
        its = event(program, f"{ID}: {text}")
        assert (its.what.value, its.client, its.account) == (kind, client, account)
        assert (its.address, its.other) == (address, other)


HEAD = "delay=1, delays=0/0/1/0"

ATTEMPTS = [
    (f"to=<u@x>, relay=mx[192.0.2.9]:25, {HEAD}, dsn=4.2.0, status=deferred (said: 450 (a) b)",
     (MailEventKind.DEFERRED, "u@x", "said: 450 (a) b", "mx[192.0.2.9]:25")),
    (f"to=<u@x>, orig_to=<root>, relay=local, {HEAD}, dsn=2.0.0, status=sent (delivered)",
     (MailEventKind.DELIVERED, "u@x", "delivered", "local")),
    (f"to=<u@x>, relay=mx[192.0.2.9]:25, conn_use=2, {HEAD}, dsn=5.1.1, status=bounced (550)",
     (MailEventKind.FAILED, "u@x", "550", "mx[192.0.2.9]:25")),
    (f"to=<u@x>, relay=none, {HEAD}, dsn=4.4.1, "
     "status=deferred (delivery temporarily suspended: connect to x: refused)",
     (MailEventKind.SUSPENDED, "u@x", "connect to x: refused", "")),
    (f'to=<"a>, relay=h, status=sent (x"@x>, relay=none, {HEAD}, dsn=4.4.1, status=deferred (y)',
     (MailEventKind.DEFERRED, '"a>, relay=h, status=sent (x"@x', "y", "")),
    (f"to=<a\"b@x>, relay=none, {HEAD}, dsn=4.4.1, status=deferred (y)",
     (MailEventKind.DEFERRED, 'a"b@x', "y", "")),
]  # fmt: skip


@each(("text", "expected"), ATTEMPTS)
def test_attempts_have_a_relay(text: str, expected: tuple[MailEventKind, str, str, str]) -> None:
    """A quoted local part that looks like the rest of a line is only an address."""
    made = event("smtp", f"{ID}: {text}")
    assert (made.what, made.address, made.text, made.relay) == expected


def test_a_content_filter_on_this_host_is_followed() -> None:
    """`queued as` names another message only if the relay is here and it is an id."""
    answer = f"250 2.0.0 from MTA: 250 2.0.0 Ok: queued as {OLD}"
    for relay, other in (("127.0.0.1[127.0.0.1]:10024", OLD), ("mx[192.0.2.9]:25", "")):
        text = f"{ID}: to=<u@x>, relay={relay}, status=sent ({answer})"
        assert event("smtp", text).other == other


def test_acts_reports_and_ends_are_events() -> None:
    """Acts of postsuper, reports to the sender, and what the queue manager removes."""
    lines = [
        ("postsuper", "placed on hold", ("held", "", False)),
        ("postsuper", "released from hold", ("released", "", False)),
        ("postsuper", "requeued", ("requeued", "", False)),
        ("postsuper", "expired", ("expired", "", False)),
        ("postsuper", "removed", ("removed", "", True)),
        ("qmgr", "removed", ("removed", "", True)),
        ("bounce", f"sender non-delivery notification: {OLD}", ("bounced", OLD, False)),
        ("bounce", f"sender delay notification: {OLD}", ("reported", OLD, False)),
        ("qmgr", "from=<a@b>, status=force-expired, returned to sender", ("expired", "", False)),
        ("qmgr", "skipped, still being delivered", ("noted", "", False)),
        ("cleanup", "hold: header Subject: x from c[192.0.2.1]; from=<a>", ("held", "", False)),
    ]  # fmt: skip
    for program, text, expected in lines:
        made = event(program, f"{ID}: {text}")
        assert (made.what.value, made.other, made.is_end) == expected, text


def test_refused_mail_has_no_id() -> None:
    """The recipient is taken from the end of the line, the client from its begin."""
    text = "NOQUEUE: reject: RCPT from c[192.0.2.1]: 554 5.7.1 <b@y>: no; from=<a@x> to=<b@y> "
    made = event("smtpd", f"{text}proto=ESMTP helo=<c>")
    assert (made.what, made.id) == (MailEventKind.REFUSED, "")
    assert (made.address, made.client) == ("b@y", "c[192.0.2.1]")


def test_two_instances_in_one_log_are_told_apart() -> None:
    """A line belongs to the instance whose name is before the first slash."""
    line = f"mx1 postfix-out/qmgr[1]: {ID}: removed"
    submission = f"mx1 postfix/submission/smtpd[1]: {ID}: client=c[192.0.2.1]"
    assert parse("postfix", line) is None
    assert parse("postfix-out", line) is not None
    assert parse("postfix", submission) is not None


OTHERS = ["", f"{ID}: removed", "mx1 postfix/qmgr[1]", "mx1 postfix/qmgr[1]: 4D97"]
OTHERS += ["mx1 postfix/smtpd[1]: connect from localhost[127.0.0.1]"]
OTHERS += ["mx1 postfix/smtpd[1]: warning: x", "\x1b[2J\u202e postfix/qmgr[1]: \udcff"]


@each("text", OTHERS)
def test_other_lines_are_no_events(text: str) -> None:
    """Garbage, cut lines and lines about no message are no events."""
    assert parse("postfix", text) is None


def test_ids_are_short_or_long() -> None:
    """Short ids are hexadecimal, long ones have no vowels."""
    assert is_id("4D9752DA018") and is_id("4jbqgC5jmFzRbcm")
    assert not any(map(is_id, ("", "SINK1F5DDF49", "4D97 52DA018", "ALL", "NOQUEUE")))
