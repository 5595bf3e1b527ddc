"""`mta why`: why mail waits, by the queue of a mail server and its log."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from engine.formats.base.format import Setup
from engine.model import Edges, State, Task, own_word
from engine.programs.logged_mail import LoggedMail, is_suspended, mail_rows, sum_up_mail
from engine.programs.mail_log import MailEvent, MailEventKind
from engine.programs.mail_trail import Trail, find_trail, word_pattern
from engine.store import Unavailable
from engine.system.command_errors import print_error
from engine.text.figure import UNKNOWN
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration, format_time
from engine.values import NamedTuple
from tui.cli.mta.trail import FOUND, NOT_FOUND, check_word, event_line, event_values, mail_log_of
from tui.cli.setup.output import Answer, show_progress
from tui.text.lines import Line
from tui.text.task_row import time_fields

MAX_SHOWN = 20
"""Messages that are explained; others that match are counted."""
MAX_IN_FULL = 3
"""Messages that are printed in full, if more match; each of the others is one line."""
LAST_LINES = 5
"""Log lines that are shown of each."""
_ARRIVAL_SECONDS = 3600.0
"""Seconds before the arrival of the oldest message from which on the log is searched."""
_SHOWN_ADDRESSES = 3

_NEXT = {
    State.PENDING: ("promote", "cause fixed: try again now"),
    State.HELD: ("release", "on hold: release it"),
    State.TRASH: ("restore", "purged: restore it"),
}
"""The verb and the words of the next step, by the state of a message."""
_NO_STEP = {
    State.ACTIVE: "an attempt runs: wait for it",
    State.DEAD: "given up: the sender gets a report",
}


class NextStep(NamedTuple):
    """What an operator can do about a message."""

    advice: str
    command: str = ""
    """The command that shows the plan of it; "" for none."""


class WaitingMail(NamedTuple):
    """A message that waits, and what is known about it."""

    task: Task
    word: str
    """Its state, in the words of its server."""
    logged: LoggedMail
    is_log_read: bool
    events: Sequence[MailEvent]
    """Its lines in the log."""
    next_try: str
    """When it is tried next, and how exact that is; "" if unknown."""
    step: NextStep

    @property
    def reason(self) -> str:
        """Why it waits, safe to show; "" if there is no reason yet."""
        return self.task.error or self.logged.reason


def why(setup: Setup, word: str) -> Answer:
    """Print why mail of an address, or with an id, waits: reason, next try, account, what to do.
    Exit 1 if none waits."""
    word = check_word(word)
    now = time.time()
    with closing(setup.open_store()) as store:
        matching = _matching(show_progress(store.scan(), "tasks read"), word)
        words = {one.id: own_word(one, store.states, store.words) for one in matching}
        edges = store.edges
    shown = matching[:MAX_SHOWN]
    log, problem = _search_log(setup, shown)
    tries = setup.format.describe_next_tries(setup, shown, now) if shown else {}
    events = {one.id: _events_of(log, one.id) for one in shown}
    mails = [
        WaitingMail(
            one,
            words[one.id],
            sum_up_mail(events[one.id]),
            is_log_read=log.files > 0,
            events=events[one.id],
            next_try=tries.get(one.id, ""),
            step=_next_step(setup, edges, one),
        )
        for one in shown
    ]
    others = len(matching) - len(shown)

    def values() -> Iterator[Mapping[str, object]]:
        return (_values(mail, log.since) for mail in mails)

    def lines() -> Iterator[Line | str]:
        for mail in mails[:MAX_IN_FULL]:
            yield from _lines(mail, log.since, word, now)
            yield ""
        for mail in mails[MAX_IN_FULL:]:
            reason = safe_line(mail.reason) or f"{UNKNOWN}: no attempt has failed"
            next_try = f", next try {safe_line(mail.next_try)}" if mail.next_try else ""
            yield (*_title(mail, word), ("  ", ""), (f"{reason}{next_try}", "muted"))
        if len(matching) > MAX_IN_FULL:
            yield f"{len(matching):,} messages match, {MAX_IN_FULL} in full: name an id for another"
        if not mails:
            yield f"no mail waits with {safe_line(word)}"
            yield f"next: {shlex.join(_command(setup, 'mta', 'trail', word))}"

    more = f"{format_count(others, 'more message')} with {safe_line(word)}, not printed"
    for text in (more if others else "", problem, *log.problems):
        if text:
            print_error(text)
    return Answer(values, lines, FOUND if mails else NOT_FOUND)


def _matching(answers: Iterable[object], word: str) -> list[Task]:
    """The tasks with this id, or with this address among sender and recipients, the oldest first.
    Of one that a scan yields twice, the later has all fields."""
    pattern = word_pattern(word)
    matching: dict[str, Task] = {}
    for one in answers:
        if isinstance(one, Task):
            addresses = (one.sender, *one.recipients)
            if one.id == word or any(pattern.search(each) for each in addresses):
                matching[one.id] = one
    return sorted(matching.values(), key=lambda one: (one.created, one.id))


def _search_log(setup: Setup, tasks: Sequence[Task]) -> tuple[Trail, str]:
    """The lines of these messages, and why there are none."""
    nothing = Trail((), "", 0, None, (), is_cut=False)
    if not tasks:
        return nothing, ""
    try:
        log = mail_log_of(setup)
    except Unavailable as error:
        return nothing, str(error)
    since = min(one.created for one in tasks) - _ARRIVAL_SECONDS
    return find_trail(log, "", since, ids=[one.id for one in tasks]), ""


def _events_of(log: Trail, id: str) -> list[MailEvent]:
    """The events of a message, also with the ids that it had before it was requeued."""
    events, ids = [one.event for one in log.events], {id}
    for one in reversed(events):
        if one.id in ids and one.what is MailEventKind.REQUEUED and one.other:
            ids.add(one.other)
    return [one for one in events if one.id in ids]


def _command(setup: Setup, *words: str) -> list[str]:
    return [*setup.command_words, *words]


def _next_step(setup: Setup, edges: Edges, task: Task) -> NextStep:
    verb, text = _NEXT.get(task.state, ("", _NO_STEP.get(task.state, "")))
    targets = {State.PENDING} if verb != "restore" else {*State}
    if not verb or not any((task.state, to) in edges for to in targets):
        return NextStep(text.partition(":")[0] if verb else text)
    words = (*_command(setup, verb), "--id", task.id, "--dry-run")
    return NextStep(text, shlex.join(words))


def _values(mail: WaitingMail, log_since: float | None) -> Mapping[str, object]:
    task = mail.task
    return {
        "id": task.id,
        "state": mail.word,
        "sender": task.sender,
        "recipients": list(task.recipients),
        "account": (task.account or mail.logged.account),
        "client": mail.logged.client,
        **time_fields("created", task.created or None),
        "reason": mail.reason,
        **time_fields("reason_at", mail.logged.reason_at),
        "suspended": is_suspended(task, mail.logged),
        **time_fields("due", task.due),
        "next_try": mail.next_try,
        "attempts_seen": mail.logged.attempts,
        **time_fields("log_since", log_since),
        "next": mail.step.advice,
        "command": mail.step.command,
        "events": [event_values(one) for one in mail.events[-LAST_LINES:]],
    }


def _lines(mail: WaitingMail, log_since: float | None, word: str, now: float) -> Iterator[Line]:
    yield _title(mail, word)
    for name, text in _facts(mail, log_since, now):
        yield ((f"  {name:10} ", "muted"), (safe_line(text), ""))
    for event in mail.events[-LAST_LINES:]:
        yield (("  log        ", "muted"), *event_line(event))
    yield ((f"  {'next':10} ", "muted"), (mail.step.advice, "strong"))
    if mail.step.command:
        yield ((f"  {'':10} ", ""), (mail.step.command, "key"))


def _title(mail: WaitingMail, word: str) -> Line:
    title = f"{mail.task.sender or UNKNOWN} to {_addresses(mail.task, word)}"
    return (
        (f"{safe_line(mail.task.id)}  ", "accent"),
        (f"{safe_line(mail.word)}  ", "strong"),
        (safe_line(title), ""),
    )


def _facts(mail: WaitingMail, log_since: float | None, now: float) -> Iterator[tuple[str, str]]:
    task = mail.task
    if task.created:
        yield (
            "since",
            f"{format_time(task.created)}, {format_rough_duration(now - task.created)} ago",
        )
    at = None if task.error else mail.logged.reason_at
    source = "" if at is None else f" (log, {format_time(at)})"
    yield "reason", f"{mail.reason}{source}" if mail.reason else f"{UNKNOWN}: no attempt has failed"
    logged = mail.logged if mail.is_log_read else None
    yield from mail_rows(task, logged, mail.next_try, log_since)


def _addresses(task: Task, word: str) -> str:
    """Some recipients, those with the word first."""
    pattern = word_pattern(word)
    ordered = sorted(task.recipients, key=lambda one: pattern.search(one) is None)
    more = len(ordered) - _SHOWN_ADDRESSES
    text = ", ".join(ordered[:_SHOWN_ADDRESSES]) or "no open recipient"
    return f"{text} and {format_count(more, 'other')}" if more > 0 else text
