"""What the log of a mail server has about one message that waits: reason, account, attempts; and
the rows of it, for the console and for commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from engine.model import State, Task
from engine.programs.mail_log import WAITS, MailEvent, MailEventKind
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
from engine.text.times import format_time
from engine.values import NamedTuple

SUSPENDED_KEY = "suspended"
"""Key of `Task.extra`: the server has stopped to ask the destination."""

NEXT_TRY, ACCOUNT, ATTEMPTS, SUSPENDED = "next try", "account", "attempts", "suspended"
"""Names of rows."""


class LoggedMail(NamedTuple):
    """The facts of one message; all texts are safe to show."""

    reason: str = ""
    """The last one; "" for none."""
    reason_at: float | None = None
    """When the log has it, epoch seconds UTC; None without one."""
    account: str = ""
    client: str = ""
    attempts: int | None = None
    """The most attempts for one recipient; None if the log has nothing of the message."""
    is_suspended: bool = False
    """True if the last attempt was none: the server has stopped to ask the destination."""
    has_arrival: bool = False
    """True if the log has its arrival."""


def sum_up_mail(events: Sequence[MailEvent]) -> LoggedMail:
    """The facts of a message from the events of its lines, in order."""
    waits = [one for one in events if one.what in WAITS]
    ends = (*WAITS, MailEventKind.DELIVERED)
    tried = Counter(one.address for one in events if one.what in ends)
    last = waits[-1] if waits else None
    return LoggedMail(
        reason="" if last is None else safe_line(last.text),
        reason_at=None if last is None else last.when,
        account=_first(events, lambda one: one.account),
        client=_first(events, lambda one: one.client),
        attempts=max(tried.values(), default=0) if events else None,
        is_suspended=last is not None and last.what is MailEventKind.SUSPENDED,
        has_arrival=any(one.what is MailEventKind.ARRIVED for one in events),
    )


def _first(events: Iterable[MailEvent], value: Callable[[MailEvent], str]) -> str:
    return safe_line(next((text for one in events if (text := value(one))), ""))


def is_suspended(task: Task, logged: LoggedMail | None) -> bool:
    """True if its server has stopped to ask the destination, by its queue or its log."""
    return SUSPENDED_KEY in task.extra or (logged is not None and logged.is_suspended)


def mail_rows(
    task: Task, logged: LoggedMail | None, next_try: str, since: float | None
) -> Iterator[tuple[str, str]]:
    """Names and values of what keeps a message, and who submitted it; `logged` is None if no log
    was searched, `next_try` in the words of its format, "" if unknown, and `since` the time of the
    first log line that was searched."""
    if is_suspended(task, logged):
        yield SUSPENDED, "the server does not ask this destination now"
    if task.state is State.PENDING:
        yield NEXT_TRY, safe_line(next_try) or f"{UNKNOWN}: the server decides"
    if logged is None:
        if task.account:
            yield ACCOUNT, safe_line(task.account)
        return
    none = "none: no login" if logged.has_arrival else f"{UNKNOWN}: not in the log"
    account = safe_line(task.account or "") or logged.account or none
    yield ACCOUNT, f"{account}; client {logged.client}" if logged.client else account
    if logged.attempts is not None:
        back = "" if since is None else f" (log since {format_time(since)})"
        yield ATTEMPTS, f"at least {logged.attempts}{back}"
