"""The handlers and services of a worker on an NFTBan queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from engine.formats.base.format import Setup
from engine.formats.nftban.queue_folders import spool_folders
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.logs.kept_output import KeptOutput, OutputFiles
from engine.model import State, Task
from engine.monitor import prometheus
from engine.store import MAX_PART_BYTES, Gone, Unavailable, Unsupported
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.command_errors import print_error
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.work.handlers import Context, Failed, Fatal, Handler
from engine.work.services import WorkerServices
from tui.cli.queue.deliver_handlers import deliver_handlers
from tui.cli.queue.run_records import RunRecords

if TYPE_CHECKING:
    from engine.places.mail_setup import MailHandler


QUARANTINE_SECONDS = 1.0
"""Seconds after which a round of quarantine ends: tasks that are due come first."""

MAIL_CHECK_PAUSE_SECONDS = 1.0
"""Minimum seconds between two questions whether a check for spooled mail is due."""


def handlers(
    setup: Setup, store: NftbanStore, closing: ExitStack, mailing: MailHandler | None = None
) -> Mapping[str, Handler]:
    """The handler for each kind of task from this store; `closing` ends the processes that they
    share."""
    built_in: dict[str, Handler] = {}
    if setup.mail.is_ours:
        built_in["mail_send"] = mailing or setup.mail.handler()
    spool = spool_folders(setup)
    built_in |= {
        kind: with_payload(handler, spool)
        for kind, handler in deliver_handlers(setup, closing).items()
    }
    if not setup.programs:
        return built_in
    from engine.system.supervisor import MAX_OUTPUT_BYTES, SupervisorPool
    from engine.work.command import CommandHandler

    supervisors = closing.enter_context(SupervisorPool())
    outputs = OutputFiles(spool.output_dir, spool.root)

    def keep(task: Task, output: bytes, how: str) -> None:
        if len(output) >= MAX_OUTPUT_BYTES:
            how += ", only the end kept"
        try:
            outputs.keep(task.id, KeptOutput(time.time(), how, output))
        except OSError as error:
            print_error(f"output of {task.id} not kept: {spool.output_dir}: {error_text(error)}")

    return built_in | {
        kind: with_data(
            CommandHandler(
                handler.command,
                handler.timeout,
                setup.handler_account(kind, store.opened_stat),
                handler.environment,
                supervisors.run,
                keep=keep,
            ),
            spool,
        )
        for kind, handler in setup.programs.items()
    }


def with_data(handler: Handler, spool: SpoolFolders) -> Handler:
    """Wrap a handler so that it gets the data of its task as an open file; any other payload must
    be in the mail spool."""
    from engine.work.handlers import guard_payload

    guarded = guard_payload(handler, spool.mail_spool, spool.root)

    def run(task: Task, context: Context) -> object:
        path, folder = spool.payload_of(task)
        if folder != spool.data_dir:
            return guarded(task, context)
        from engine.formats.nftban.parts import open_payload

        try:
            fd = open_payload(path, folder, spool.root)
        except FileNotFoundError:
            raise Fatal(f"its data is missing: {path}") from None
        except Refused as refusal:
            raise Fatal(f"its data is refused, {refusal}: {path}") from refusal
        except OSError as error:
            raise Failed(f"its data cannot be opened: {error_text(error)}") from error
        with closing_fd(fd):
            return handler(task._replace(payload=path), context._replace(data_fd=fd))

    return run


def with_payload(handler: Handler, spool: SpoolFolders) -> Handler:
    """Wrap a handler so that the payload file of its task is its data; only a plain file in the
    folder for it is read."""
    from engine.formats.nftban import parts

    def run(task: Task, context: Context) -> object:
        try:
            data = parts.read_part(parts.PAYLOAD, *spool.payload_of(task), spool.root)
        except Unsupported as error:
            raise Fatal(f"payload not read: {error}") from error
        except (Gone, Unavailable) as error:
            raise Failed(f"payload not read: {error}") from error
        if len(data) == MAX_PART_BYTES:
            raise Fatal(f"payload not sent: expected less than {MAX_PART_BYTES:,} bytes")
        return handler(task, context._replace(data=data))

    return run


def worker_services(
    setup: Setup,
    store: NftbanStore,
    mailing: MailHandler | None = None,
    ran: float | None = None,
    clock: Callable[[], float] = time.time,
) -> WorkerServices:
    """The services of a worker on this queue; `ran`: time of the last run, if this is none."""
    records = RunRecords(setup)
    mailing = mailing or setup.mail.handler()

    def publish() -> None:
        records.write_counts()
        try:
            text = render_metrics(setup, store, clock(), ran)
            files.replace_file(setup.queue.queue_metrics, text, root=setup.queue.root)
        except OSError as error:
            print_error(f"{setup.queue.queue_metrics}: {error_text(error)}")
        if setup.mail.has_files():
            mailing.publish_metrics()

    asked = float("-inf")

    def tidy(is_stopping: Callable[[], bool]) -> bool:
        nonlocal asked
        moved = 0

        def count_moved() -> None:
            nonlocal moved
            moved += 1
            records.add_count("corrupt_total")

        until = time.monotonic() + QUARANTINE_SECONDS
        for line in store.quarantine_broken(
            count_moved, lambda: is_stopping() or time.monotonic() > until
        ):
            records.log("WARN", f"Skipped: {line}")
        is_unfinished = moved > 0 and store.has_broken
        now = clock()
        if 0 <= now - asked < MAIL_CHECK_PAUSE_SECONDS:
            return is_unfinished  # without a mail spool the check walks a path each time
        asked = now
        for line in queue_spooled_mail(setup, store):
            records.log("WARN", line)
        return is_unfinished

    return records.services()._replace(
        publish=publish,
        apply_retention=lambda: apply_retention(setup, store),
        quarantine=tidy,
        limits=setup.token_buckets(),
        slots={kind: h.concurrency for kind, h in setup.config.handlers.items()},
        timeouts={kind: h.timeout for kind, h in setup.config.handlers.items()},
        gate=mailing.claim_gate,
    )


def apply_retention(setup: Setup, store: NftbanStore) -> None:
    """Apply the retention times: dead tasks, trash, mail spool. Queue spooled mail without a
    task."""
    keeper = setup.housekeeping()
    try:
        keeper.purge_expired(store, setup.queue.retention_days, time.time())
    except OSError as error:
        print_error(f"cannot remove old dead tasks: {error}")
    keeper.sweep_quietly(store)
    spool = spool_folders(setup)
    outputs = OutputFiles(spool.output_dir, spool.root)
    try:
        outputs.sweep(keeper.run_clock.note(time.time()).age)
    except OSError as error:
        print_error(f"cannot remove old output of handlers: {error}")
    try:
        if setup.mail.has_spooled():
            keeper.sweep_mail(setup.mail.spool(), time.time())
    except OSError as error:
        print_error(f"cannot clean the mail spool: {error}")
    for line in queue_spooled_mail(setup, store):
        setup.log("WARN", line)


def queue_spooled_mail(setup: Setup, store: NftbanStore, *, always: bool = False) -> list[str]:
    """Make a task for each spooled mail without one, at most once a minute unless `always`; return
    a log line for each."""
    keeper = setup.housekeeping()
    if not always and not keeper.is_mail_check_due(time.time()):
        return []
    try:
        if not setup.mail.has_spooled():
            return []
    except OSError as error:
        print_error(f"cannot queue spooled mail without a task: {safe_line(str(error))}")
        return []
    return keeper.queue_spooled_mail(setup.mail.spool(), store, time.time(), setup.log_queued)


def render_metrics(setup: Setup, store: NftbanStore, now: float, ran: float | None = None) -> bytes:
    """The current text of queue.prom; `ran`: time of the last run, if not now."""
    counts, oldest = store.count_with_age(now)
    gauges = prometheus.QueueGauges(
        pending=counts[State.PENDING],
        working=counts[State.ACTIVE],
        dead=counts[State.DEAD],
        oldest_age=oldest,
    )
    totals = {name: _read_counter(setup, name) for name in prometheus.QUEUE_COUNTERS}
    text = prometheus.render_queue(gauges, totals, now if ran is None else ran)
    return prometheus.add_place(text, setup.queue.place_label)


def _read_counter(setup: Setup, name: str) -> int:
    try:
        return setup.counters().read(name)
    except OSError as error:
        print_error(f"{setup.queue.counters}/{name}: {error_text(error)}; counts as 0")
        return 0
