"""`mail spool`: what is kept until it can be sent, seen and sent again."""

from __future__ import annotations

import errno
import os
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from engine import files, plans
from engine.mail.letter import META
from engine.mail.model import BadMail
from engine.mail.spool import Broken, MailSpool, Spooled
from engine.mailconf import MailSettings
from engine.model import State, Task
from engine.policy import at, lasting
from engine.store import SHOWN, StoreError
from engine.stores.nftban import NftbanStore
from engine.text import private, shown
from tui.cli.dlq import SHOWN_ERROR, written_down
from tui.cli.mail import enqueue
from tui.cli.mailing import SEND
from tui.cli.wiring import EX_UNAVAILABLE, Setup, complain, fail

JUST_NOW = 5.0
"""Seconds after its spooling in which a mail without a task is left alone: a program that spools
takes far less to queue it, and what it has begun to queue is seen.
"""


def list_spool(setup: Setup, arguments: Namespace) -> int:
    """One line for each mail, in the form of the contract's own command."""
    if setup.site is not None:
        # Its mail lies in its own way; an empty spool of ours would say that there is none.
        fail(EX_UNAVAILABLE, f"{shown(setup.place)} is {setup.site.format.title}: no mail spool")
    found = list(setup.mail_spool().letters())
    tasks = tasks_by_payload(setup)
    mails = [mail for mail in found if isinstance(mail, Spooled)]
    broken = [mail for mail in found if isinstance(mail, Broken)]
    pending = [mail for mail in mails if mail.sent is None]
    sent = [mail for mail in mails if mail.sent is not None]
    empty = sum(
        not os.path.lexists(f"{setup.queue.mail_spool}/{each.id}/{META}") for each in broken
    )
    # Pending and broken together are what `mail status` counts.
    counts = (len(pending), len(broken) - empty, empty, len(sent))
    words = zip(counts, ("pending", "broken", "empty", "sent"), strict=True)
    beside = ", ".join(f"{count} {word}" for count, word in words if count)
    print("Mail Spool Status\n=================")
    print(f"Directory: {shown(setup.queue.mail_spool)}")
    print(f"Spooled mails: {len(found)}" + (f" ({beside})" if len(pending) != len(found) else ""))
    for title, some in (("Pending", pending), ("Sent", sent)):
        if some:
            print(f"\n{title} mails:")
        for mail in some:
            print(f"  {_line(mail)} | {_standing(mail, tasks)}")
    for each in broken:
        complain(f"{shown(each.id)}: {shown(each.why)}")
    return 0


def _line(mail: Spooled) -> str:
    # The other program prints local time, without saying so; this is the time in the mail's name.
    made = time.strftime("%Y-%m-%d %H:%MZ", time.gmtime(mail.created))
    return f"{shown(mail.id)} | To: {shown(private(mail.to))} | Created: {made}"


def _standing(mail: Spooled, tasks: dict[str, Task] | None) -> str:
    """What will become of a mail: which task delivers it."""
    if mail.sent is not None:
        return f"Sent: {at(mail.sent.at)} by {shown(mail.sent.transport)}"
    if tasks is None:
        return "Task: unknown"
    task = tasks.get(mail.meta)
    if task is None:
        return "Task: none"
    error = f" | Error: {shown(task.error[:SHOWN_ERROR])}" if task.state is State.DEAD else ""
    return f"Task: {task.id} ({_WORDS[task.state]}){error}"


def _again(mail: Spooled, task: Task | None) -> str:
    """The command that has a mail sent that waits for nothing else; "" where none is needed."""
    if task is not None and task.state in (State.ACTIVE, State.PENDING):
        return ""
    if task is None or task.state is State.DEAD:
        return f"spooldeck mail spool retry {shown(mail.id)}"
    return f"spooldeck {'release' if task.state is State.HELD else 'restore'} --id {task.id}"


_WORDS = {
    State.PENDING: "pending",
    State.ACTIVE: "work",
    State.HELD: "held",
    State.DEAD: "dlq",
    State.TRASH: "trash",
}

_FIRST = (State.ACTIVE, State.PENDING, State.HELD, State.DEAD, State.TRASH)
"""Which of several tasks of one mail is told: the one that sends it first."""


def tasks_by_payload(setup: Setup) -> dict[str, Task] | None:
    """By the path of its payload, the task that delivers a mail; None where the tasks cannot be
    seen, which is said.
    """
    try:
        store = setup.open()
    except StoreError as error:
        complain(str(error))
        return None
    try:
        return _tasks(store)
    except StoreError as error:
        complain(str(error))
        return None
    finally:
        store.close()


def _tasks(store: NftbanStore) -> dict[str, Task]:
    found: dict[str, Task] = {}
    for task in store.look(store.states.values()):
        if not isinstance(task, Task) or task.kind != SEND or not task.payload:
            continue
        other = found.get(task.payload)
        if other is None or _FIRST.index(task.state) < _FIRST.index(other.state):
            found[task.payload] = task
    return found


def show_spooled(setup: Setup, arguments: Namespace) -> int:
    """One mail as lines of text: nothing of it is fetched, run or believed."""
    from engine.letter import read

    spool = setup.mail_spool()
    try:
        mail = _mail(spool, arguments.id)
    except BadMail as error:
        complain(str(error))
        return _show_broken(spool, arguments.id)
    said = [
        ("mail", mail.id),
        ("to", mail.to),
        ("subject", mail.subject),
        ("spooled", at(mail.created)),
    ]
    if mail.sent is not None:
        said.append(("sent", f"{at(mail.sent.at)} by {mail.sent.transport}"))
    if mail.trying is not None:
        began = f"began {at(mail.trying.at)} by {mail.trying.transport}, its end is not known"
        said.append(("attempt", began))
    if mail.refused:
        said.append(("refused", mail.refused))
    tasks = tasks_by_payload(setup) if mail.sent is None else None
    if mail.sent is None and tasks is None:
        said.append(("task", "unknown"))
    elif tasks is not None:
        task = tasks.get(mail.meta)
        said.append(("task", "none" if task is None else f"{task.id} ({_WORDS[task.state]})"))
        if task is not None and task.error:
            said.append(("error", task.error))
        if again := _again(mail, task):
            said.append(("again", again))
    print("\n".join(f"{name:<8} {shown(text)}" for name, text in said))
    if not mail.body:
        return 0
    try:
        body = spool.glimpse(mail.id, os.path.basename(mail.body), SHOWN)
        size = os.stat(mail.body, follow_symlinks=False).st_size
    except (BadMail, OSError) as error:
        complain(_told(mail.id, error))
        return 1
    letter = read(body)
    cut = f", of which these are the first {len(body):,}" if size > len(body) else ""
    print(f"{'body':<8} {letter.kind}, {size:,} bytes{cut}\n")
    print("\n".join(letter.lines))
    return 0


def _show_broken(spool: MailSpool, ident: str) -> int:
    """What can be seen of a mail that is none; 1, since it is none."""
    from engine.letter import verbatim

    try:
        data = spool.glimpse(ident)
    except (BadMail, OSError):
        return 1  # why it is none was said
    print("\n".join(verbatim(data).lines))
    return 1


def _mail(spool: MailSpool, ident: str) -> Spooled:
    """The mail of a name.

    Raises:
        BadMail: there is none of it, or none that can be read.
    """
    if "/" in ident or not ident.startswith("mail-"):
        raise BadMail(f"{shown(ident)}: expected the id of a spooled mail, as `list` prints it")
    if not os.path.isdir(f"{spool.folder}/{ident}"):
        raise BadMail(f"{shown(ident)}: no such mail in {shown(spool.folder)}")
    return spool.read(spool.meta_of(ident))


def retry_spooled(setup: Setup, arguments: Namespace) -> int:
    """Let these be sent now, each by the task that it has, or by a new one."""
    setup.require_change()
    spool = setup.mail_spool()
    # A program that sends mail decides by itself what it can send.
    settings = setup.mail_settings() if setup.sends_mail else None
    store = setup.open()
    failed = 0
    try:
        tasks = _tasks(store)
        for ident in dict.fromkeys(arguments.ids):
            try:
                mail = _mail(spool, ident)
                if settings is not None and mail.sent is None:
                    _require_sendable(spool, mail, settings)
                failed += _retry(setup, store, mail, tasks)
            except (BadMail, StoreError, OSError) as error:
                complain(_told(ident, error))
                failed += 1
    finally:
        store.close()
    return 1 if failed else 0


def _told(ident: str, error: BadMail | StoreError | OSError) -> str:
    """What went wrong with one mail, which is named."""
    said = str(error)
    if isinstance(error, OSError):
        where = f"{shown(os.fsdecode(error.filename))}: " if error.filename else ""
        said = f"{where}{error.strerror or error}"
    return said if said.startswith(shown(ident)) else f"{shown(ident)}: {said}"


def _require_sendable(spool: MailSpool, mail: Spooled, settings: MailSettings) -> None:
    """Make sure of what each attempt looks at first.

    Raises:
        BadMail: every attempt would be given up on at once.
        OSError: it cannot be read now.
    """
    from engine.mail.address import checked

    try:
        checked(mail.to, settings.strict)
        spool.body(mail, settings.spooled_size)  # as whoever delivers it asks for it
    except BadMail as error:
        raise BadMail(f"{mail.id}: cannot be sent, and was left alone: {error}") from error


def _retry(setup: Setup, store: NftbanStore, mail: Spooled, tasks: Mapping[str, Task]) -> int:
    """See to it that one mail is sent, and say what was done; 1 when nothing could be."""
    if mail.sent is not None:
        print(f"{mail.id}: was sent {at(mail.sent.at)} by {shown(mail.sent.transport)}")
        return 0
    task = tasks.get(mail.meta)
    if task is None:
        with _alone(mail):
            task = _task_of(store, mail)  # somebody may have been faster
            if task is None:
                return _queue(setup, mail)
    if task.state is State.ACTIVE:
        print(f"{mail.id}: task {task.id} is sending it now")
        return 0
    if task.state is State.PENDING and not task.due:
        print(f"{mail.id}: task {task.id} is due already")
        return 0
    if task.state in (State.HELD, State.TRASH):
        where = "held" if task.state is State.HELD else "in the trash"
        complain(f"{mail.id}: task {task.id} is {where}: {_again(mail, task)}")
        return 1
    return _move(setup, store, mail, task)


def _task_of(store: NftbanStore, mail: Spooled) -> Task | None:
    """The task that delivers a mail; None where there is none, not even one under way.

    Raises:
        BadMail: a file names the mail that is no task at this moment.
    """
    where = store.named([mail.meta]).get(mail.meta)
    if where is None:
        return None
    store.recover()  # whoever was moving it may have ended there
    task = _tasks(store).get(mail.meta)
    if task is None:
        raise BadMail(
            f"{mail.id}: left alone: {shown(where)} names it, a task that is being moved, was set "
            "aside, or is of another kind"
        )
    return task


def _move(setup: Setup, store: NftbanStore, mail: Spooled, task: Task) -> int:
    dead = task.state is State.DEAD
    plan = plans.freeze("retry" if dead else "promote", [task], time.time())
    report = written_down(setup, store, plan, "mail spool retry")
    for ident in report.done:
        said = "moved from DLQ to pending queue" if dead else "is due now"
        print(f"{mail.id}: task {ident} {said}")
    for ident in report.gone:
        complain(f"{mail.id}: task {ident} changed since it was seen; left alone")
    for ident, reason in report.failed:
        complain(f"{mail.id}: task {ident}: {shown(reason)}")
    return 0 if report.done else 1


def _queue(setup: Setup, mail: Spooled) -> int:
    age = time.time() - mail.created
    if 0 <= age < JUST_NOW:
        wait = lasting(JUST_NOW - age)
        complain(f"{mail.id}: was spooled just now, its task may be on its way: wait for {wait}")
        return 1
    ident = enqueue(setup, f"Spooled mail to {private(mail.to)}", mail.meta)
    print(f"{mail.id}: task {ident} queued")
    setup.log_if_allowed("INFO", f"Task queued: {ident} (mail_send for {mail.id})")
    return 0


@contextmanager
def _alone(mail: Spooled) -> Iterator[None]:
    """While nobody else queues a task for this mail.

    Raises:
        BadMail: it is not there any more.
    """
    try:
        here = files.open_folder(mail.folder)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        raise BadMail(f"{mail.id}: no such mail any more") from error
    try:
        with files.Flock(here):
            yield
    finally:
        os.close(here)
