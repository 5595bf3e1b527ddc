"""`mail spool`: what is kept until it can be sent, as it is seen."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterator

from engine.mail.model import BadMail
from engine.mail.send.mail_spool import Broken, MailSpool, Spooled
from engine.mail.send.spool_entry import FOLDER, HTML, META, TEXT
from engine.model import State, Task
from engine.policy import at
from engine.store import SHOWN, StoreError
from engine.stores.nftban import NftbanStore
from engine.text.safe import private, shown
from tui.cli.mail.send import spool_retry
from tui.cli.plans import plan_command
from tui.cli.queue.dlq import SHOWN_ERROR
from tui.cli.setup.mail_parts import SEND
from tui.cli.setup.setup import EX_UNAVAILABLE, Setup, complain, fail


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
    return f"Task: {_of_task(mail, tasks)}{_marked(mail)}"


def _of_task(mail: Spooled, tasks: dict[str, Task] | None) -> str:
    if tasks is None:
        return "unknown"
    task = tasks.get(mail.meta)
    if task is None:
        return "none"
    error = f" | Error: {shown(task.error[:SHOWN_ERROR])}" if task.state is State.DEAD else ""
    return f"{task.id} ({_WORDS[task.state]}){error}"


def _marked(mail: Spooled) -> str:
    """What an operator looks for first: that it may have arrived, or never will."""
    doubt = "" if mail.trying is None else f" | In doubt since: {at(mail.trying.at)}"
    return f"{doubt} | Refused: {shown(mail.refused)}" if mail.refused else doubt


def again(setup: Setup, mail: Spooled, task: Task | None) -> str:
    """The command that has a mail sent that waits for nothing else; "" where none is needed."""
    if task is not None and task.state in (State.ACTIVE, State.PENDING):
        return ""
    if task is None or task.state is State.DEAD:
        return spool_retry(setup, mail.id)
    verb = "release" if task.state is State.HELD else "restore"
    return shown(plan_command.typed([*plan_command.base(setup), verb, "--id", task.id]))


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
        return tasks_of(store)
    except StoreError as error:
        complain(str(error))
        return None
    finally:
        store.close()


def tasks_of(store: NftbanStore) -> dict[str, Task]:
    """By the path of its payload, the task that delivers a mail; the first of several."""
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
    from engine.text.render_bytes import read

    spool = setup.mail_spool()
    try:
        mail = read_mail(spool, arguments.id)
    except BadMail as error:
        complain(str(error))
        return _show_broken(setup, spool, arguments.id)
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
        if command := again(setup, mail, task):
            said.append(("again", command))
    print("\n".join(f"{name:<8} {shown(text)}" for name, text in said))
    if not mail.body:
        return 0
    try:
        body = spool.glimpse(mail.id, os.path.basename(mail.body), SHOWN)
        size = os.stat(mail.body, follow_symlinks=False).st_size
    except (BadMail, OSError) as error:
        complain(told(mail.id, error))
        return 1
    letter = read(body)
    cut = f", of which these are the first {len(body):,}" if size > len(body) else ""
    print(f"{'body':<8} {letter.kind}, {size:,} bytes{cut}\n")
    print("\n".join(letter.lines))
    return 0


def _show_broken(setup: Setup, spool: MailSpool, ident: str) -> int:
    """What can be seen of a mail that is none, and the way out; 1, since it is none."""
    from engine.text.render_bytes import verbatim

    there = list(_pieces(spool, ident))
    for name, data in there:
        cut = f", its first {len(data):,} bytes" if len(data) == SHOWN else ""
        print(f"---- {name}{cut}")
        print("\n".join(verbatim(data).lines))
    if not there:
        return 1  # why it is none was said
    tasks = tasks_by_payload(setup)
    task = (tasks or {}).get(spool.meta_of(ident))
    if tasks is not None:
        print(f"---- task: {'none' if task is None else f'{task.id} ({_WORDS[task.state]})'}")
    where = shown(os.path.dirname(spool.meta_of(ident)))
    print(
        f"---- to have it sent: correct {where}/{META} ({_WHOLE}), then "
        f"{again(setup, Spooled(ident, '', ''), task) or 'its task sends it'}"
    )
    return 1


_WHOLE = 'MAIL_TO, MAIL_SUBJECT and MAIL_BODY_FILE as NAME="value", no $ " \\ ` in a value'
"""What makes a meta.sh one that can be read."""


def _pieces(spool: MailSpool, ident: str) -> Iterator[tuple[str, bytes]]:
    """The files of a mail that is none, each as far as it can be seen."""
    if "/" in ident or not ident.startswith(FOLDER):
        return
    for name in (META, HTML, TEXT):
        try:
            yield name, spool.glimpse(ident, name, SHOWN)
        except (BadMail, OSError):
            continue  # what is wrong with the mail was said


def read_mail(spool: MailSpool, ident: str) -> Spooled:
    """The mail of a name.

    Raises:
        BadMail: there is none of it, or none that can be read.
    """
    if "/" in ident or not ident.startswith("mail-"):
        raise BadMail(f"{shown(ident)}: expected the id of a spooled mail, as `list` prints it")
    if not os.path.isdir(f"{spool.folder}/{ident}"):
        raise BadMail(f"{shown(ident)}: no such mail in {shown(spool.folder)}")
    return spool.read(spool.meta_of(ident))


def told(ident: str, error: Exception) -> str:
    """What went wrong with one mail, which is named."""
    said = str(error)
    if isinstance(error, OSError):
        where = f"{shown(os.fsdecode(error.filename))}: " if error.filename else ""
        said = f"{where}{error.strerror or error}"
    return said if said.startswith(shown(ident)) else f"{shown(ident)}: {said}"
