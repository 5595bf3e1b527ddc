"""What the log has about one waiting message, and the rows of it."""

from engine.model import State, Task
from engine.programs.logged_mail import LoggedMail, mail_rows, sum_up_mail
from engine.programs.mail_log import MailEvent, MailEventKind
from tests.tables import each

ARRIVAL = MailEvent(1.0, "A", MailEventKind.ARRIVED, account="ann\x1b", client="c[192.0.2.1]")


PENDING = State.PENDING


def attempt(when: float, what: MailEventKind, address: str, text: str = "no") -> MailEvent:
    """An attempt for one recipient."""
    return MailEvent(when, "A", what, address, text)


def test_the_last_reason_and_the_most_attempts_count() -> None:
    """Attempts are counted for each recipient; a delivery is no reason; texts are made safe. No
    attempt is another thing than no line."""
    assert (sum_up_mail([]), sum_up_mail([ARRIVAL]).attempts) == (LoggedMail(), 0)
    logged = sum_up_mail(
        [
            ARRIVAL,
            attempt(2.0, MailEventKind.DEFERRED, "a@b", "first"),
            attempt(2.0, MailEventKind.DELIVERED, "c@b"),
            attempt(3.0, MailEventKind.DEFERRED, "a@b", "second\x07"),
            MailEvent(4.0, "A", MailEventKind.HELD),
        ]
    )
    assert (logged.reason, logged.reason_at, logged.attempts) == ("second\ufffd", 3.0, 2)
    assert (logged.account, logged.client) == ("ann\ufffd", "c[192.0.2.1]")
    assert (logged.is_suspended, logged.has_arrival) == (False, True)


SUSPENDED = LoggedMail(attempts=4, is_suspended=True, has_arrival=True, client="c")
LONG = {
    "suspended": "the server does not ask this destination now",
    "next try": "due soon",
    "account": "none: no login; client c",
    "attempts": "at least 4 (log since 1970-01-01 00:00:05Z)",
}


@each(
    ("state", "account", "logged", "rows"),
    [
        (PENDING, None, SUSPENDED, LONG),
        (State.HELD, "bob", LoggedMail(account="ann"), {"account": "bob"}),
        (State.ACTIVE, None, LoggedMail(), {"account": "?: not in the log"}),
        (PENDING, None, None, {"next try": "due soon"}),
    ],
)
def test_rows_of_the_unknown(
    state: State, account: str | None, logged: LoggedMail | None, rows: dict[str, str]
) -> None:
    """Only mail that waits has a next try; the account of the queue comes first."""
    task = Task("A", "mail", state, 0.0, account=account)
    assert dict(mail_rows(task, logged, "due soon", 5.0)) == rows
