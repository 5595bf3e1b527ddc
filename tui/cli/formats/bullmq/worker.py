"""`bullmq work` and `bullmq add`: run jobs of BullMQ queues beside Node workers, and add one."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from json import loads

from engine.delivery.delivery_parts import with_outbox
from engine.formats.base.format import Setup
from engine.formats.bullmq.connection import Denied
from engine.formats.bullmq.facts import list_names
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.row import job_options
from engine.formats.bullmq.store import BullmqStore
from engine.schedules import parse_schedule
from engine.store import Gone, Unsupported
from engine.system.command_errors import (
    EX_CONFIG,
    EX_UNAVAILABLE,
    EX_USAGE,
    fail,
    print_error,
    print_result,
)
from engine.text.safe import clean_error, safe_line
from engine.text.times import format_time
from engine.work import lease_worker
from engine.work.handlers import Handler
from engine.work.services import WorkerServices
from engine.work.worker import WorkerResult
from tui.cli.queue.deliver_handlers import deliver_handlers
from tui.cli.queue.run_records import RunRecords, print_run, record_start
from tui.text.task_row import added_line

FORMAT = "bullmq"
"""Name of this format."""


def work(setup: Setup, *, until_idle: bool, json: bool, queues: list[str], concurrency: int) -> int:
    """Run jobs until a signal; an idle worker waits for the markers of its queues."""
    setup.require_format(FORMAT, "a server of BullMQ queues")
    configured = {queue: setup.config.handlers[queue] for queue in _queues(setup, queues)}

    def handlers(
        store: BullmqStore, services: WorkerServices, stack: ExitStack
    ) -> Mapping[str, Handler]:
        for queue in configured:
            if why := store.claim_gate(queue)[0]:
                print_error(f"{safe_line(queue)}: {why}")
        return _handlers(setup, tuple(configured), stack)

    run = run_worker(
        setup,
        handlers,
        slots={queue: concurrency or one.concurrency for queue, one in configured.items()},
        timeouts={queue: one.timeout for queue, one in configured.items()},
        concurrency=concurrency,
        until_idle=until_idle,
    )
    return print_run(run, as_json=json)


def run_worker(
    setup: Setup,
    make_handlers: Callable[[BullmqStore, WorkerServices, ExitStack], Mapping[str, Handler]],
    *,
    slots: Mapping[str, int],
    timeouts: Mapping[str, float],
    concurrency: int = 0,
    until_idle: bool,
) -> WorkerResult:
    """Run a worker on the queues that have slots; without `concurrency`, so many jobs at a time."""
    setup.refuse_unwritable(setup.state_folder, made=True)
    setup.make_folder(setup.state_folder)
    setup.make_folders()
    name = f"{socket.gethostname()}-{os.getpid()}"  # in claims, logs and CLIENT LIST
    place = parse_place(setup.address, setup.settings)._replace(queues=tuple(slots))
    with ExitStack() as stack:
        store = stack.enter_context(closing(BullmqStore(place)))
        _print_connected(store)
        record_start(setup)
        services = RunRecords(setup, prints=True).services()
        services = services._replace(
            limits=setup.token_buckets(),
            shorten_error=clean_error,
            slots=slots,
            timeouts=timeouts,
            data_kinds=tuple(slots),
            logs_waits=True,
            gate=store.claim_gate,
        )
        services = with_outbox(setup.config, services, stack)
        return lease_worker.run(
            setup.queue,
            store,
            make_handlers(store, services, stack),
            setup.retry_policy(),
            services,
            concurrency=concurrency or sum(slots.values()),
            until_idle=until_idle,
            owner=name,
            watch=partial(store.watch_markers, name),
        )


def _print_connected(store: BullmqStore) -> None:
    """Print where a worker has connected to, and which of its queues are not there yet."""
    queues = store.place.queues
    print_error(f"connected to {store.place.text}: {list_names(queues)}")
    try:
        existing = store.queue_names()
    except Denied:  # to work needs no right to list keys
        return
    if missing := [queue for queue in queues if queue not in existing]:
        listed = list_names(existing) or "none"
        text = "handlers are named by queue, not by the name of a job"
        print_error(f"no queue {list_names(missing)} yet; queues here: {listed} ({text})")


def _queues(setup: Setup, named: list[str]) -> tuple[str, ...]:
    """The queues to work: those with a handler, or the named ones of them."""
    handled = (*setup.programs, *setup.delivered)
    for queue in named:
        if queue not in handled:
            where = f"handlers.{safe_line(queue)}"
            fail(EX_CONFIG, f"no handler configured: {where}.command or {where}.deliver")
    queues = tuple(dict.fromkeys(named)) or handled
    if not queues:
        fail(EX_CONFIG, "no handler configured: handlers.QUEUE.command or handlers.QUEUE.deliver")
    return queues


def _handlers(setup: Setup, queues: tuple[str, ...], stack: ExitStack) -> Mapping[str, Handler]:
    from engine.mail.failure_reasons import PERMANENT_STATUSES
    from engine.system.supervisor import SupervisorPool
    from engine.work.command import CommandHandler

    supervisors = stack.enter_context(SupervisorPool())
    deliveries = deliver_handlers(setup, stack)
    return {
        queue: deliveries.get(queue)
        or CommandHandler(
            setup.programs[queue].command,
            setup.programs[queue].timeout,
            setup.handler_account(queue),
            environ=setup.programs[queue].environment,
            run=supervisors.run,
            fatal_statuses=PERMANENT_STATUSES,
        )
        for queue in queues
    }


# ---- add


def add(
    setup: Setup,
    queue: str,
    name: str,
    *,
    json: bool,
    data: str,
    delay: float | None,
    priority: int | None,
    attempts: int | None,
    backoff: str,
    id: str,
) -> int:
    """Add a job and print its id."""
    setup.require_format(FORMAT, "a server of BullMQ queues")
    if id.isdecimal() or ":" in id:
        fail(EX_USAGE, "--id: a number or a colon, which BullMQ does not accept")
    job = NewJob(
        queue,
        name,
        _data(data),
        options=({"attempts": attempts} if attempts else {}) | _backoff(backoff),
        delay=delay or 0.0,
        priority=priority or 0,
        id=id,
    )
    with closing(BullmqStore(parse_place(setup.address, setup.settings))) as store:
        try:
            task = store.add_job(job)
        except Gone as error:
            fail(EX_UNAVAILABLE, str(error))
        except Unsupported as error:
            fail(EX_USAGE, str(error))
    text = task.id if not task.due else f"{task.id} due {format_time(task.due)}"
    code = print_result(added_line(task) if json else text)
    setup.log_if_allowed("INFO", f"Task queued: {task.id} ({task.kind})")
    return code


def _data(typed: str) -> str:
    """The data as JSON text; NaN and Infinity are none."""
    text = sys.stdin.read() if typed == "-" else typed

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    try:
        loads(text, parse_constant=refuse)
    except ValueError as error:
        fail(EX_USAGE, f"--data: not JSON: {safe_line(str(error))}")
    return text.strip()


def _backoff(text: str) -> dict[str, object]:
    if not text:
        return {}
    words = text.split(":")
    words = words if words[0] in ("fixed", "exponential") else ["fixed", *words]
    try:
        schedule = parse_schedule(" jitter ".join([" ".join(words[:2]), *words[2:]]))
        return job_options(schedule)
    except ValueError:
        fail(EX_USAGE, "--backoff: expected 5s, exponential:1s or exponential:1s:0.5")
