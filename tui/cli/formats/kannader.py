"""`kannader`: a Kannader spool made, given mail, sent from and recovered."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import BinaryIO

from engine.mail import wire_format
from engine.mail.host import Host, full_name, this_host
from engine.mail.message import bounce
from engine.mail.message.bounce import Undelivered
from engine.mail.model import BadMail
from engine.mail.send import smtp_client
from engine.mail.send.smtp_client import Destination, UnreadableMessage, WireMessage, path_of
from engine.model import State, Task
from engine.monitor.prometheus import QueueGauges
from engine.operations.journal_writer import mask
from engine.policy import at, lasting
from engine.store import Gone, StoreError, Unavailable, Unsupported
from engine.stores import detect
from engine.stores.kannader import KannaderStore, make_spool
from engine.stores.kannader.enqueue import wired
from engine.stores.kannader.recovery import ABANDONED
from engine.stores.kannader.settings import UPSTREAM, KannaderSettings, retry_policy
from engine.stores.kannader.spool import KIND, KannaderSpool
from engine.stores.kannader.store import FOLDERS
from engine.system import files
from engine.text.safe import said, shown
from engine.work.smtp_send import SmtpSend
from engine.work.worker import Services
from tui.cli.plans.plan_command import placed
from tui.cli.queue import lease_worker
from tui.cli.queue.lease_worker import Published
from tui.cli.setup.setup import EX_CONFIG, EX_UNAVAILABLE, EX_USAGE, Setup, complain, fail, say
from tui.session.place import PlaceFigures


def init(setup: Setup, arguments: Namespace) -> int:
    """Make the folders of a spool that are missing, and say what to do next."""
    place = os.path.abspath(arguments.place)
    lacking = [word for word in FOLDERS if not os.path.isdir(f"{place}/{word}")]
    queue = f"{place}/queue"
    if lacking and os.path.isdir(queue) and files.listed(queue):
        fail(
            EX_USAGE, f"{shown(place)} holds another program's queue, expected a folder of its own"
        )
    made = make_spool(place)
    if not made:
        print(f"{shown(place)} has everything a Kannader spool needs; nothing was changed")
    for path in made:
        print(f"made {shown(path)}")
    where = shown(arguments.place)
    print(
        f"next: spooldeck kannader enqueue --from A --to B FILE {where}   adds a mail\n"
        f"      spooldeck kannader work {where}   sends mails until stopped, to the server\n"
        f"      that stores.kannader.host names in the configuration\n"
        f"      spooldeck {where}   opens the console"
    )
    return 0


def enqueue(setup: Setup, arguments: Namespace) -> int:
    """Put a mail into the spool; prints the id of each recipient's once the disk has all of it."""
    more, file, places = _told_apart(arguments.words)
    setup = placed(setup, arguments, places)
    _settings(setup)
    recipients = list(dict.fromkeys([*arguments.recipients, *more]))
    for address in (arguments.sender, *recipients):
        _require_address(address, null=address is arguments.sender)
    with _opened(file) as source, tempfile.TemporaryFile() as contents:
        chunks = iter(lambda: source.read(wire_format.CHUNK), b"")
        contents.writelines(chunks if arguments.wire else wired(chunks))
        contents.seek(0)
        try:
            wire_format.examined(contents)
        except BadMail as error:
            fail(EX_USAGE, f"{shown(file)}: {error}")
        contents.seek(0)
        setup.require_change()
        with closing(_store(setup)) as store:
            text = iter(lambda: contents.read(wire_format.CHUNK), b"")
            ids = store.enqueue(arguments.sender, recipients, text, wire=True)
            warning = store.edges[None, State.PENDING].warning
    say("\n".join(ids))
    if warning:
        complain(warning)
    for ident in ids:
        setup.log_if_allowed("INFO", f"Task queued: {ident} ({KIND})")
    return 0


def _told_apart(words: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Further recipients, the mail's file, and the place, if one is named: they come in this order.

    A file of a name that could be an address is written with a /.
    """
    more = list(takewhile(lambda word: "@" in word and "/" not in word, words))
    file, *places = [*words[len(more) :], ""]
    if not file or len(places) > 2:
        fail(EX_USAGE, "expected FILE behind the recipients, or - for stdin, and at most a PLACE")
    return more, file, places[:-1]


def _require_address(address: str, *, null: bool) -> None:
    try:
        path = path_of(address)
    except BadMail as error:
        fail(EX_USAGE, str(error))
    if path == "<>" and not null:
        fail(EX_USAGE, "--to is nobody, expected an address")


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer
        return
    with open(path, "rb") as source:
        yield source


def work(setup: Setup, arguments: Namespace) -> int:
    """Send mail after mail, woken by what happens in the spool."""
    settings = _settings(setup)
    to = destination(settings)
    why = settings.unworkable or smtp_client.unusable(to)
    if why:
        fail(EX_CONFIG, why)
    setup.require_change()
    setup.make_folders()
    with closing(_store(setup)) as store, closing(_store(setup)) as letters:
        if not store.kannaders:
            for line in store.recover():
                setup.log("WARN", f"Recovered {line}")
        with closing(KannaderSpool(setup.place)) as spool:
            told = Published(setup, partial(_gauges, spool))
            run = lease_worker.run(
                setup,
                store,
                {KIND: sender(letters, to, partial(setup.log, "WARN"))},
                retry_policy(settings),
                _services(setup, store, settings, told),
                concurrency=arguments.concurrency or settings.concurrency,
                until_idle=arguments.until_idle,
            )
            told.write()
    return lease_worker.tell(run)


def _gauges(spool: KannaderSpool, now: float) -> QueueGauges:
    """How the spool stands, by its links alone: what they lead to would take forty times as long.

    Raises:
        Unavailable: a folder cannot be read.
    """
    spool.check()
    came = [link.seen.st_mtime for link in spool.links([State.PENDING])]
    sending = sum(1 for _ in spool.links([State.ACTIVE]))
    return QueueGauges(len(came), sending, 0, now - min(came, default=now))


def recover(setup: Setup, arguments: Namespace) -> int:
    """End what was interrupted and mend what can be mended; a line for each thing."""
    _settings(setup)
    dry = arguments.dry_run
    if not dry:
        setup.require_change()
    with closing(_store(setup)) as store:
        lines = store.recover(dry=dry, anyway=arguments.anyway)
    for line in lines:
        print(shown(line))
        if not dry:
            setup.log_if_allowed("WARN", f"Recovered {line}")
    if not lines:
        print("nothing to recover")
    return 0


# ---- what these commands stand on


def _settings(setup: Setup) -> KannaderSettings:
    """What is settled of the spool that the place is.

    Raises:
        Fail: it is none, or none was named.
        Unavailable: it is hidden from us.
    """
    if setup.site is None or setup.site.name != detect.KANNADER:
        setup.require_sight()  # what we may not see may be one
        fail(
            EX_UNAVAILABLE,
            f"{shown(setup.place)} is no Kannader spool, expected the folders "
            f"{', '.join(FOLDERS)} (spooldeck kannader init DIR makes them)",
        )
    settings = setup.site.settings
    assert isinstance(settings, KannaderSettings)
    return settings


def _store(setup: Setup) -> KannaderStore:
    store = setup.store()
    assert isinstance(store, KannaderStore)
    return store


def destination(settings: KannaderSettings) -> Destination:
    """The server that the settings name."""
    return Destination(
        host=settings.host,
        port=settings.port,
        tls=settings.tls,
        user=settings.user,
        password_file=settings.password_file,
        ca_file=settings.ca_file,
        helo=settings.helo or full_name(os.uname().nodename),
        connect_timeout=settings.connect_timeout,
        timeout=settings.timeout,
        max_time=settings.max_time,
    )


def sender(store: KannaderStore, to: Destination, warn: Callable[[str], None]) -> SmtpSend:
    """What sends the mails of a store; `warn` logs that one may arrive twice."""
    return SmtpSend(letters_of(store), to, warn=warn, abandoned=ABANDONED)


_UNKNOWN = "its envelope is in a form that is not known, so it is not sent from here"


def letters_of(store: KannaderStore) -> Callable[[Task], WireMessage]:
    """What opens the letter of a mail that was claimed, on any thread, one at a time."""
    turn = threading.Lock()

    def open_letter(task: Task) -> WireMessage:
        try:
            with turn:
                envelope = store.envelope(task)
                if not envelope.known:
                    raise UnreadableMessage(_UNKNOWN)
                return WireMessage(envelope.sender, envelope.recipient, store.contents(task))
        except StoreError as error:
            raise UnreadableMessage(f"it cannot be read: {error}") from error

    return open_letter


def spool_facts(setup: Setup) -> PlaceFigures:
    """What is told of the spool as a whole: who sends from it, where to, and how it gives up.

    Raises:
        Unavailable: it cannot be reached.
    """
    settings = _settings(setup)
    with closing(_store(setup)) as store:
        pids = ", ".join(map(str, store.kannaders))
        left = left_behind(setup, store)
    why, to = settings.unworkable, f"{settings.host}, port {settings.port}"
    there = lease_worker.whether_at_work(setup)
    return PlaceFigures(
        (
            ("Kannader", f"at work (PID {pids})" if pids else "not at work, as far as we may see"),
            ("our worker", f"sends nothing: {why}" if why else f"{there}; sends to {to}"),
            ("retries", _retries(settings)),
        ),
        left,
    )


def left_behind(setup: Setup, store: KannaderStore) -> tuple[str, ...]:
    """Which mails in inflight no process is sending, a sentence each for those of a killed worker
    and for others; none where there are none, or that cannot be determined.

    Raises:
        Unavailable: the spool cannot be read.
    """
    try:
        hands = lease_worker.left_in_hand(setup, claimed := _in_flight(store))
        others = [] if lease_worker.at_work(setup) or store.find_kannaders() != () else claimed
    except OSError:
        return ()  # said of who is at work
    killed = [task for tasks in hands.values() for task in tasks]
    # Read again: a sender that ended since the first scan has taken its mails with it.
    still = {(task.id, task.rev) for task in _in_flight(store)} if others else set()
    noted = {task.id for task in killed}
    others = [t for t in others if (t.id, t.rev) in still and t.id not in noted]
    found = []
    if killed:
        whose = f"our worker (PID {', '.join(map(str, sorted(hands)))})"
        was = "1 mail was" if len(killed) == 1 else f"{len(killed):,} mails were"
        found.append(f"{was} claimed when {whose} was killed{_may_have_arrived(killed)}")
    if others:
        are = "1 mail is" if len(others) == 1 else f"{len(others):,} mails are"
        found.append(f"no sender is running, but {are} in inflight{_may_have_arrived(others)}")
    return tuple(found)


def _in_flight(store: KannaderStore) -> list[Task]:
    found = store.look([store.states[State.ACTIVE]])
    return [item for item in found if isinstance(item, Task)]


def _may_have_arrived(left: Sequence[Task]) -> str:
    lapses = [task.lease.until for task in left if task.lease and task.lease.until]
    back = f"back in the queue from {at(min(lapses))} on, now with " if lapses else "back with "
    return f", and may have arrived; {back}`release --state inflight`"


def _retries(settings: KannaderSettings) -> str:
    if settings.profile == UPSTREAM:
        return "none: dropped at the first failure"
    first, longest = lasting(settings.first_wait), lasting(settings.longest_wait)
    end = "then returned to the sender" if settings.bounces else "then dropped"
    return f"after {first}, doubling to {longest}, for {lasting(settings.lifetime)}, {end}"


def _services(
    setup: Setup, store: KannaderStore, settings: KannaderSettings, told: Published
) -> Services:
    def log(level: str, text: str) -> None:
        setup.log(level, mask(text))  # whose mail it is stands in the spool, for who may read that

    def retire() -> None:
        try:
            setup.sweep(store, time.time())
        except (OSError, Unavailable) as error:
            complain(f"the trash could not be swept: {error}")

    return Services(
        clean=said,
        log=log,
        alert=lambda text: setup.alert(mask(text)),
        tally=told.tally,
        publish=told.sparingly,
        retire=retire,
        giving_up=returning(store, this_host(), log, bounces=settings.bounces),
        timeouts={KIND: settings.max_time},
    )


def returning(
    store: KannaderStore,
    host: Host,
    log: Callable[[str, str], None],
    clock: Callable[[], float] = time.time,
    *,
    bounces: bool = True,
) -> Callable[[Task], None]:
    """What returns a mail that is given up to its sender, once, however often it is asked to.

    What it returns raises StoreError where a mail is not ours to give up, so that it stays where it
    is: nobody could read it, or another may be sending it. Without `bounces` it does no more.
    """
    returned: set[str] = set()

    def give_up(task: Task) -> None:
        if task.id in returned:
            return
        try:
            _require_readable(store, replace(task, state=State.ACTIVE))
        except Gone:
            return  # the store says so itself
        if bounces:
            log(*_return(store, task, host, clock()))
        returned.add(task.id)

    return give_up


def _require_readable(store: KannaderStore, task: Task) -> None:
    store.require_in_hand(task)
    if not store.envelope(task).known:
        raise Unsupported(_UNKNOWN)
    store.contents(task).close()


def _return(store: KannaderStore, task: Task, host: Host, now: float) -> tuple[str, str]:
    """Enqueue the bounce of a mail that is still claimed; a level and a line for the log.

    Raises:
        Unavailable: the disk refused; it is to be tried again.
    """
    claimed = replace(task, state=State.ACTIVE)
    try:
        envelope = store.envelope(claimed)
        sender = path_of(envelope.sender)[1:-1]
        mail = Undelivered(
            task.id,
            sender,
            envelope.recipient,
            task.created,
            task.error,
            _headers(store, claimed),
        )
        made = bounce.compose(mail, host, now)
        if made is None:
            return "INFO", f"Task {task.id} is returned to nobody: its sender is the null sender"
        (ident,) = store.enqueue("<>", [sender], [made], seed=f"bounce of {task.id}")
    except Gone as gone:
        return "INFO", f"Task {task.id} is returned already, or taken away: {gone}"
    except (BadMail, Unsupported) as error:
        return "ERROR", f"Task {task.id} cannot be returned: {error}"
    return "WARN", f"Task {task.id} is returned to its sender: {ident}"


def _headers(store: KannaderStore, task: Task) -> bytes:
    with store.contents(task) as contents:
        return wire_format.headers(contents)
