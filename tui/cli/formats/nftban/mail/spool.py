"""`mail spool list` and `mail spool show`: print the mails that wait in the mail spool."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

from engine.formats.base.format import Setup
from engine.formats.nftban.queue_folders import open_spool
from engine.formats.nftban.store import NftbanStore
from engine.mail.model import BadMail
from engine.mail.send.mail_spool import Broken, MailSpool, Spooled
from engine.mail.send.spool_entry import HTML, MAIL_FOLDER_PREFIX, META, TEXT
from engine.model import MAIL_SEND_KIND, State, Task
from engine.store import MAX_PART_BYTES, StoreError
from engine.system.command_errors import print_error
from engine.text.error_text import error_text
from engine.text.safe import hide_domain, safe_line
from engine.text.times import format_time
from tui.cli.formats.nftban.dlq import SHOWN_ERROR_CHARS
from tui.cli.formats.nftban.mail.send import spool_retry
from tui.cli.setup.output import Answer, print_json, show_progress
from tui.text.task_row import time_fields

T = TypeVar("T")


def list_spool(setup: Setup) -> Answer:
    """Print one line for each mail, in the form of the contract's own command."""
    # A format with its own mail: our empty spool would suggest that there is no mail.
    setup.require_mail("mail spool")
    all_mails = list(setup.mail.spool().read_all())
    tasks = tasks_by_payload(setup)
    mails = [mail for mail in all_mails if isinstance(mail, Spooled)]
    broken = [mail for mail in all_mails if isinstance(mail, Broken)]
    return Answer(
        lambda: _reporting(broken, (_mail_row(mail, tasks) for mail in mails)),
        lambda: _reporting(broken, _list_lines(setup.queue.mail_spool, mails, broken, tasks)),
    )


def _reporting(broken: Sequence[Broken], rows: Iterable[T]) -> Iterator[T]:
    """The rows; then print an error for each broken mail."""
    yield from rows
    for each in broken:
        print_error(f"{safe_line(each.id)}: {safe_line(each.why)}")


def _list_lines(
    folder: str, mails: Sequence[Spooled], broken: Sequence[Broken], tasks: dict[str, Task] | None
) -> Iterator[str]:
    pending = [mail for mail in mails if mail.sent is None]
    sent = [mail for mail in mails if mail.sent is not None]
    empty = sum(not os.path.lexists(f"{folder}/{each.id}/{META}") for each in broken)
    # `mail status` counts the pending and the broken mails together.
    counts = (len(pending), len(broken) - empty, empty, len(sent))
    words = zip(counts, ("pending", "broken", "empty", "sent"), strict=True)
    count_text = ", ".join(f"{count} {word}" for count, word in words if count)
    yield from ("Mail Spool Status", "=================", f"Directory: {safe_line(folder)}")
    number = len(mails) + len(broken)
    yield f"Spooled mails: {number}" + (f" ({count_text})" if len(pending) != number else "")
    for title, some in (("Pending", pending), ("Sent", sent)):
        if some:
            yield from ("", f"{title} mails:")
        yield from (f"  {_line(mail)} | {_describe_task(mail, tasks)}" for mail in some)


def _mail_row(mail: Spooled, tasks: dict[str, Task] | None) -> dict[str, object]:
    """A mail for JSON; the task is null if it has none or the tasks are unreadable."""
    task = (tasks or {}).get(mail.meta)
    return {
        "id": mail.id,
        "to": mail.to,
        "subject": mail.subject,
        **time_fields("created", mail.created),
        **time_fields("sent", mail.sent.at if mail.sent else None),
        "transport": mail.sent.transport if mail.sent else None,
        **time_fields("in_doubt", mail.trying.at if mail.trying else None),
        "refused": mail.refused or None,
        "task": task.id if task else None,
        "task_state": _WORDS[task.state] if task else None,
        "error": task.error if task and task.error else None,
    }


def _line(mail: Spooled) -> str:
    # The contract's program prints local time without a zone; this is the UTC time in the mail's
    # name.
    made = time.strftime("%Y-%m-%d %H:%MZ", time.gmtime(mail.created))
    return f"{safe_line(mail.id)} | To: {safe_line(hide_domain(mail.to))} | Created: {made}"


def _describe_task(mail: Spooled, tasks: dict[str, Task] | None) -> str:
    if mail.sent is not None:
        return f"Sent: {format_time(mail.sent.at)} by {safe_line(mail.sent.transport)}"
    return f"Task: {_of_task(mail, tasks)}{_marked(mail)}"


def _of_task(mail: Spooled, tasks: dict[str, Task] | None) -> str:
    if tasks is None:
        return "unknown"
    task = tasks.get(mail.meta)
    is_dead = task is not None and task.state is State.DEAD
    error = f" | Error: {safe_line(task.error[:SHOWN_ERROR_CHARS])}" if task and is_dead else ""
    return f"{_name_task(task)}{error}"


def _marked(mail: Spooled) -> str:
    doubt = "" if mail.trying is None else f" | In doubt since: {format_time(mail.trying.at)}"
    return f"{doubt} | Refused: {safe_line(mail.refused)}" if mail.refused else doubt


def resend_command(setup: Setup, mail: Spooled, task: Task | None) -> str:
    """The command that makes a waiting mail be sent; "" if not needed."""
    if task is not None and task.state in (State.ACTIVE, State.PENDING):
        return ""
    if task is None or task.state is State.DEAD:
        return spool_retry(setup, mail.id)
    verb = "release" if task.state is State.HELD else "restore"
    return safe_line(shlex.join([*setup.command_words, verb, "--id", task.id]))


_WORDS = {
    State.PENDING: "pending",
    State.ACTIVE: "work",
    State.HELD: "held",
    State.DEAD: "dlq",
    State.TRASH: "trash",
}

_STATE_ORDER = (State.ACTIVE, State.PENDING, State.HELD, State.DEAD, State.TRASH)
"""If a mail has several tasks, show the one in the first of these states: it sends first."""


def tasks_by_payload(setup: Setup) -> dict[str, Task] | None:
    """The task that delivers each mail, by payload path; None if the tasks are unreadable
    (reported)."""
    try:
        with closing(open_spool(setup)) as store:
            return tasks_of(store)
    except StoreError as error:
        print_error(str(error))
        return None


def tasks_of(store: NftbanStore) -> dict[str, Task]:
    """The task that delivers each mail, by payload path; the first of several."""
    task_by_payload: dict[str, Task] = {}
    for task in show_progress(store.scan(store.states.values()), "tasks read"):
        if not isinstance(task, Task) or task.kind != MAIL_SEND_KIND or not task.payload:
            continue
        other = task_by_payload.get(task.payload)
        if other is None or _STATE_ORDER.index(task.state) < _STATE_ORDER.index(other.state):
            task_by_payload[task.payload] = task
    return task_by_payload


def show_spooled(setup: Setup, id: str, *, json: bool) -> int:
    """Print one mail as text; no link is fetched and no content is run."""
    from engine.text.render_bytes import render_data

    setup.require_mail("mail spool")
    spool = setup.mail.spool()
    try:
        mail = read_mail(spool, id)
    except BadMail as error:
        print_error(str(error))
        return 1 if json else _show_broken(setup, spool, id)
    tasks = tasks_by_payload(setup) if json or mail.sent is None else None
    if not json:
        rows = _show_rows(setup, mail, tasks)
        print("\n".join(f"{name:<8} {safe_line(text)}" for name, text in rows))
    body, size, failure = b"", 0, ""
    try:
        if mail.body:
            body = spool.preview_file(mail.id, os.path.basename(mail.body), MAX_PART_BYTES)
            size = os.stat(mail.body, follow_symlinks=False).st_size
    except (BadMail, OSError) as error:
        failure = describe_error(mail.id, error)
        print_error(failure)
    letter = render_data(body)
    if json:
        lines = list(letter.lines) if mail.body else []
        print_json({**_mail_row(mail, tasks), "lines": None if failure else lines})
    elif mail.body and not failure:
        cut = f", of which these are the first {len(body):,}" if size > len(body) else ""
        print(f"{'body':<8} {letter.kind}, {size:,} bytes{cut}\n")
        print("\n".join(letter.lines))
    return 1 if failure else 0


def _show_rows(
    setup: Setup, mail: Spooled, tasks: dict[str, Task] | None
) -> Iterator[tuple[str, str]]:
    yield "mail", mail.id
    yield "to", mail.to
    yield "subject", mail.subject
    yield "spooled", format_time(mail.created)
    if mail.sent is not None:
        yield "sent", f"{format_time(mail.sent.at)} by {mail.sent.transport}"
    if mail.trying is not None:
        began = f"began {format_time(mail.trying.at)} by {mail.trying.transport}"
        yield "attempt", f"{began}, result unknown"
    if mail.refused:
        yield "refused", mail.refused
    if tasks is not None:
        task = tasks.get(mail.meta)
        yield "task", _name_task(task)
        if task is not None and task.error:
            yield "error", task.error
        if command := resend_command(setup, mail, task):
            yield "again", command
    elif mail.sent is None:
        yield "task", "unknown"


def _name_task(task: Task | None) -> str:
    return "none" if task is None else f"{task.id} ({_WORDS[task.state]})"


def _show_broken(setup: Setup, spool: MailSpool, ident: str) -> int:
    """Print what is readable of a broken mail, and the repair; returns 1."""
    from engine.text.render_bytes import render_verbatim

    pieces = list(_pieces(spool, ident))
    for name, data in pieces:
        cut = f", its first {len(data):,} bytes" if len(data) == MAX_PART_BYTES else ""
        print(f"---- {name}{cut}")
        print("\n".join(render_verbatim(data).lines))
    if not pieces:
        return 1  # the reason was printed
    tasks = tasks_by_payload(setup)
    task = (tasks or {}).get(spool.meta_path(ident))
    if tasks is not None:
        print(f"---- task: {_name_task(task)}")
    where = safe_line(os.path.dirname(spool.meta_path(ident)))
    print(
        f"---- to send it: correct {where}/{META} ({_META_RULES}), then "
        f"{resend_command(setup, Spooled(ident, '', ''), task) or 'its task will send it'}"
    )
    return 1


_META_RULES = 'MAIL_TO, MAIL_SUBJECT and MAIL_BODY_FILE as NAME="value", no $ " \\ ` in a value'
"""The rules for a valid meta.sh."""


def _pieces(spool: MailSpool, ident: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a broken mail, as far as they are readable."""
    if "/" in ident or not ident.startswith(MAIL_FOLDER_PREFIX):
        return
    for name in (META, HTML, TEXT):
        try:
            yield name, spool.preview_file(ident, name, MAX_PART_BYTES)
        except (BadMail, OSError):
            continue  # the reason was printed


def read_mail(spool: MailSpool, ident: str) -> Spooled:
    """Read the mail of an id. Raises BadMail: it does not exist or is invalid."""
    if "/" in ident or not ident.startswith("mail-"):
        raise BadMail(f"{safe_line(ident)}: expected the id of a spooled mail, as `list` prints it")
    if not os.path.isdir(f"{spool.folder}/{ident}"):
        raise BadMail(f"{safe_line(ident)}: no such mail in {safe_line(spool.folder)}")
    return spool.read(spool.meta_path(ident))


def describe_error(ident: str, error: Exception) -> str:
    """The error text of a mail, with its id."""
    text = str(error)
    if isinstance(error, OSError):
        where = f"{safe_line(os.fsdecode(error.filename))}: " if error.filename else ""
        text = f"{where}{error_text(error)}"
    return text if text.startswith(safe_line(ident)) else f"{safe_line(ident)}: {text}"
