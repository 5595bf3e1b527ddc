"""`kannader`: make a Kannader spool, add mail, send it, recover interrupted mail."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from functools import partial
from itertools import takewhile
from json import dumps

from engine.formats.base.format import Setup
from engine.formats.kannader.enqueue import wire_chunks
from engine.formats.kannader.permissions import name_kannaders
from engine.formats.kannader.recovery import ABANDONED_ERROR
from engine.formats.kannader.settings import KannaderSettings, destination, retry_policy
from engine.formats.kannader.spool import MAIL_KIND, KannaderSpool
from engine.formats.kannader.store import FOLDERS, KannaderStore, make_spool
from engine.formats.known_formats import require_path
from engine.live.folder_watch import FolderWatch
from engine.mail import wire_format
from engine.mail.host import Host, this_host
from engine.mail.message import bounce
from engine.mail.message.bounce import Undelivered
from engine.mail.model import BadMail
from engine.mail.send import smtp_client
from engine.mail.send.smtp_client import SmtpDestination, UnreadableMessage, WireMessage, smtp_path
from engine.model import State, Task
from engine.monitor.prometheus import QueueGauges
from engine.operations.journal_writer import mask_addresses
from engine.store import Gone, Store, StoreError, Unavailable, Unsupported
from engine.system import files
from engine.system.command_errors import (
    EX_CONFIG,
    EX_NOPERM,
    EX_UNAVAILABLE,
    EX_USAGE,
    fail,
    print_error,
    print_result,
)
from engine.text.safe import clean_error, safe_line
from engine.work import lease_worker
from engine.work.metrics_writer import MetricsWriter
from engine.work.services import WorkerServices
from engine.work.smtp_send import SmtpSend
from tui.cli.plans.plan_command import setup_at
from tui.cli.queue.run_records import RunRecords, print_run, record_start
from tui.cli.setup.output import Answer

FORMAT = "kannader"
"""Name of this format."""

RECOVER_PAUSE_SECONDS = 5.0
"""Seconds until a worker tries again to recover a spool."""


def init(setup: Setup, place: str) -> Answer:
    """Make the missing folders of a spool and print the next steps."""
    require_path(place)
    path = os.path.abspath(place)
    lacking = [word for word in FOLDERS if not os.path.isdir(f"{path}/{word}")]
    queue = f"{path}/queue"
    if lacking and os.path.isdir(queue) and files.list_names(queue):
        fail(EX_USAGE, f"{safe_line(path)} contains another program's queue: choose another folder")
    made, where = make_spool(path), shlex.quote(place)
    none = f"{safe_line(path)} is already a complete Kannader spool; nothing was changed"
    return Answer(
        lambda: {"place": path, "made": list(made)},
        lambda: [
            *([f"made {safe_line(one)}" for one in made] or [none]),
            f"next: spooldeck kannader enqueue --from A --to B FILE {where}   adds a mail",
            f"      spooldeck kannader work {where}   sends mails until stopped, to the server",
            "      set by stores.kannader.host in the configuration",
            f"      spooldeck {where}   opens the console",
        ],
    )


def enqueue(
    setup: Setup,
    words: list[str],
    *,
    root: str,
    sender: str,
    recipients: list[str],
    json: bool,
    wire: bool,
) -> int:
    """Add a mail to the spool; print one id per recipient when all is on the disk."""
    more, file, places = _split_words(words)
    setup = setup_at(setup, root, places)
    _settings(setup)
    recipients = list(dict.fromkeys([*recipients, *more]))
    _require_address(sender, null=True)
    for address in recipients:
        _require_address(address, null=False)
    with (
        nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb") as source,
        tempfile.TemporaryFile() as contents,
    ):
        chunks = iter(lambda: source.read(wire_format.CHUNK_BYTES), b"")
        contents.writelines(chunks if wire else wire_chunks(chunks))
        contents.seek(0)
        try:
            wire_format.check_wire_format(contents)
        except BadMail as error:
            fail(EX_USAGE, f"{safe_line(file)}: {error}")
        contents.seek(0)
        setup.require_writable()
        with closing(_store(setup)) as store:
            text = iter(lambda: contents.read(wire_format.CHUNK_BYTES), b"")
            ids = store.enqueue(sender, recipients, text, wire=True)
            warning = store.edges[None, State.PENDING].warning
    lines = [dumps({"id": ident}) for ident in ids] if json else ids
    code = print_result("\n".join(lines))
    if warning:
        print_error(warning)
    for ident in ids:
        setup.log_if_allowed("INFO", f"Task queued: {ident} ({MAIL_KIND})")
    return code


def _split_words(words: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Split the words into further recipients, the file of the mail, and the optional place.

    A file whose name contains @ must be written with a /.
    """
    more = list(takewhile(lambda word: "@" in word and "/" not in word, words))
    file, *places = [*words[len(more) :], ""]
    if not file or len(places) > 2:
        expected = "FILE (or - for stdin) after the recipients, then at most one PLACE"
        fail(EX_USAGE, f"expected {expected}")
    return more, file, places[:-1]


def _require_address(address: str, *, null: bool) -> None:
    try:
        path = smtp_path(address)
    except BadMail as error:
        fail(EX_USAGE, str(error))
    if path == "<>" and not null:
        fail(EX_USAGE, "--to is empty, expected an address")


def work(setup: Setup, *, concurrency: int, until_idle: bool, json: bool) -> int:
    """Send mails until a signal, woken by changes of the spool."""
    settings = _settings(setup)
    to = destination(settings)
    why = settings.work_refusal or smtp_client.describe_obstacle(to)
    if why:
        fail(EX_CONFIG, why)
    setup.require_writable()
    setup.make_folders()
    with closing(_store(setup)) as store, closing(_store(setup)) as letters:
        if store.kannaders:
            who = name_kannaders(store.kannaders)
            fail(EX_NOPERM, f"{who} is running: a mail could be sent twice or lost")
        record_start(setup)
        for line in recover_at_start(store.recover, not until_idle):
            setup.log("WARN", f"Recovered {line}")
        handler = make_handler(letters, to, partial(setup.log, "WARN"))
        with closing(KannaderSpool(setup.place)) as spool, closing(handler):
            metrics_writer = MetricsWriter(setup.queue, setup.counters(), partial(_gauges, spool))
            run = lease_worker.run(
                setup.queue,
                store,
                {MAIL_KIND: handler},
                retry_policy(settings)._replace(age=setup.run_clock().age),
                _services(setup, store, settings, metrics_writer),
                concurrency=concurrency or settings.concurrency,
                until_idle=until_idle,
                watch=partial(_watch_changes, setup, store),
            )
            metrics_writer.write()
    return print_run(run, as_json=json)


def _watch_changes(setup: Setup, store: Store, wake: Callable[[], None]) -> FolderWatch:
    watch = FolderWatch(store.changes, setup.open_store, lambda names: wake(), wake)
    watch.start(patience=1.0)
    return watch


def recover_at_start(
    recover: Callable[[], Iterable[str]], stays: bool, pause: Callable[[float], None] = time.sleep
) -> Iterator[str]:
    """Recover interrupted mail; yields a line for each.

    A worker that stays tries again, as it does later, if the spool is locked or cannot be read.

    Raises:
        Unavailable: it cannot be recovered now, and the worker does not stay.
    """
    while True:
        try:
            yield from recover()
            return
        except Unavailable as error:
            if not stays:
                raise
            print_error(f"{error}; trying again in {RECOVER_PAUSE_SECONDS:g} s")
            pause(RECOVER_PAUSE_SECONDS)


def _gauges(spool: KannaderSpool, now: float) -> QueueGauges:
    """Count the links of the spool, without their targets, which would take forty times as long.

    Raises:
        Unavailable: a folder cannot be read.
    """
    spool.check()
    arrivals = [link.file_stat.st_mtime for link in spool.iter_links([State.PENDING])]
    sending = sum(1 for _ in spool.iter_links([State.ACTIVE]))
    return QueueGauges(len(arrivals), sending, 0, now - min(arrivals, default=now))


def recover(setup: Setup, *, dry_run: bool, anyway: bool) -> Answer:
    """Recover interrupted mail and repair what is safe; print a line for each action."""
    _settings(setup)
    if not dry_run:
        setup.require_writable()
    with closing(_store(setup)) as store:
        lines = store.recover(dry=dry_run, anyway=anyway)
    for line in () if dry_run else lines:
        setup.log_if_allowed("WARN", f"Recovered {line}")
    return Answer(
        lambda: {"place": setup.place, "dry_run": dry_run, "done": True, "lines": list(lines)},
        lambda: map(safe_line, lines or ["nothing to recover"]),
    )


# ---- shared by these commands


def _settings(setup: Setup) -> KannaderSettings:
    """The settings of the Kannader spool at the place.

    Raises:
        Unavailable: permission denied.
    """
    if setup.format_name != FORMAT:
        setup.require_readable()  # an unreadable place may be a spool
        expected = f"{', '.join(FOLDERS)} (spooldeck kannader init DIR makes them)"
        where = f"{safe_line(setup.place)} is no Kannader spool"
        fail(EX_UNAVAILABLE, f"{where}, expected the folders {expected}")
    settings: KannaderSettings = setup.settings
    return settings


def _store(setup: Setup) -> KannaderStore:
    store = setup.open_store()
    assert isinstance(store, KannaderStore)
    return store


def make_handler(
    store: KannaderStore, to: SmtpDestination, warn: Callable[[str], None]
) -> SmtpSend:
    """The handler that sends the mails of a store; `warn` logs that a mail may arrive twice."""
    return SmtpSend(message_opener(store), to, warn=warn, abandoned=ABANDONED_ERROR)


_UNKNOWN = "unknown format of the envelope: not sent by spooldeck"


def message_opener(store: KannaderStore) -> Callable[[Task], WireMessage]:
    """A function that opens the message of a claimed mail, on any thread, one at a time."""
    turn = threading.Lock()

    def open_letter(task: Task) -> WireMessage:
        try:
            with turn:
                envelope, contents = store.open_message(task)
                if envelope.is_known_format:
                    return WireMessage(envelope.sender, envelope.recipient, contents)
                contents.close()
                raise UnreadableMessage(_UNKNOWN)
        except StoreError as error:
            raise UnreadableMessage(f"cannot be read: {error}") from error

    return open_letter


def _services(
    setup: Setup, store: KannaderStore, settings: KannaderSettings, metrics_writer: MetricsWriter
) -> WorkerServices:
    records = RunRecords(setup, mask_addresses)  # no addresses in the log; the spool has them
    return records.services()._replace(
        shorten_error=clean_error,
        publish=metrics_writer.write_if_due,
        apply_retention=partial(setup.housekeeping().sweep_quietly, store),
        before_giving_up=bounce_handler(store, this_host(), records.log, bounces=settings.bounces),
        timeouts={MAIL_KIND: settings.max_time},
        logs_waits=True,
    )


def bounce_handler(
    store: KannaderStore,
    host: Host,
    log: Callable[[str, str], None],
    clock: Callable[[], float] = time.time,
    *,
    bounces: bool = True,
) -> Callable[[Task], None]:
    """A function that returns a given-up mail to its sender, once per mail.

    It raises StoreError if the mail is not ours to give up, so that it stays: it is unreadable, or
    another process may be sending it. Without `bounces` it only checks that.
    """
    returned: set[str] = set()

    def give_up(task: Task) -> None:
        if task.id in returned:
            return
        try:
            _require_readable(store, task._replace(state=State.ACTIVE))
        except Gone:
            return  # the store reports it
        if bounces:
            log(*_return(store, task, host, clock()))
        returned.add(task.id)

    return give_up


def _require_readable(store: KannaderStore, task: Task) -> None:
    store.require_no_kannader(task)
    envelope, contents = store.open_message(task)
    contents.close()
    if not envelope.is_known_format:
        raise Unsupported(_UNKNOWN)


def _return(store: KannaderStore, task: Task, host: Host, now: float) -> tuple[str, str]:
    """Enqueue the bounce of a claimed mail; returns a level and a log line.

    Raises:
        Unavailable: the disk refused; try again later.
    """
    claimed = task._replace(state=State.ACTIVE)
    try:
        envelope, contents = store.open_message(claimed)
        with contents:
            headers = wire_format.read_headers(contents)
        sender = smtp_path(envelope.sender)[1:-1]
        mail = Undelivered(
            task.id,
            sender,
            envelope.recipient,
            created=task.created,
            error=task.error,
            headers=headers,
        )
        made = bounce.compose_bounce(mail, host, now)
        if made is None:
            return "INFO", f"Task {task.id} is not returned: its sender is the null sender"
        (ident,) = store.enqueue("<>", [sender], [made], seed=f"bounce of {task.id}")
    except Gone as gone:
        return "INFO", f"Task {task.id} was returned before, or taken by another process: {gone}"
    except (BadMail, Unsupported) as error:
        return "ERROR", f"Task {task.id} cannot be returned: {error}"
    return "WARN", f"Task {task.id} was returned to its sender: {ident}"
