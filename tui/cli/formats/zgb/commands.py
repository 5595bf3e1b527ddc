"""`zgb init`, `zgb enqueue` and `zgb work`: make, fill and work a mail queue in SQLite."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from types import FrameType

from engine.formats.base.format import Setup
from engine.formats.known_formats import require_path
from engine.formats.zgb import queue_config
from engine.formats.zgb.doctor import check_queue
from engine.formats.zgb.mail import (
    HourlyLimit,
    MailingParts,
    RegistrationHandler,
    mail_settings,
    why_unready,
)
from engine.formats.zgb.queue_place import CRON_SCHEDULE, ZgbPlace, cron_line, zgb_place
from engine.formats.zgb.scan import ROW_PREFIX
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import Enqueued, ZgbStore
from engine.model import Problem, State
from engine.schedules import refusal_delay_seconds
from engine.store import StoreError, Unavailable, Unsupported
from engine.system import files
from engine.system.command_errors import (
    EX_CONFIG,
    EX_NOPERM,
    EX_UNAVAILABLE,
    EX_USAGE,
    fail,
    print_error,
)
from engine.text.safe import clean_error, safe_line
from engine.text.times import format_rough_duration, format_time
from engine.values import NamedTuple
from engine.work import worker_files
from engine.work.metrics_writer import MetricsWriter, count_tasks
from engine.work.worker import Worker, WorkerResult
from tui.cli.queue.doctor import print_findings
from tui.cli.queue.run_records import RunRecords, record_start
from tui.cli.setup.output import Answer, print_json
from tui.text.task_row import task_row

FORMAT = "zgb"
"""Name of this format."""

DONE, BUSY, OUTCOME_NOT_STORED = 0, 2, 3
"""Exit codes: done; another worker is running here; an outcome could not be stored."""

RUN_INTERVAL_SECONDS = 60.0
"""Seconds between two runs of a loop, as with cron."""

_SIGNAL_POLL_SECONDS = 1.0
"""Maximum seconds until a waiting loop reacts to a signal."""


# ---- init and enqueue


def init(setup: Setup, place: str) -> Answer:
    """Make a new, empty mail queue; it sends nothing until mailQueueEnabled is 1."""
    require_path(place)
    try:
        create(place)
    except FileExistsError:
        fail(EX_USAGE, f"{safe_line(place)} already exists; nothing was changed")
    where = safe_line(shlex.quote(place))
    starts = f"spooldeck control mailQueueEnabled --root {where} --value 1 --apply 1"
    return Answer(
        lambda: {"place": place, "made": [place]},
        lambda: [
            f"made {safe_line(place)}: paused until mailQueueEnabled is 1 in its table config",
            "next: set stores.zgb.types.user.template and .organizer.template in the configuration",
            f"      {starts}   starts sending",
            f"      spooldeck zgb enqueue --root {where} NUMBER   adds the mails of a registration",
            f"      {CRON_SCHEDULE} {cron_line(place, setup.config.path)}   sends, in crontab -e",
            f"      spooldeck zgb doctor {where}   checks the settings",
            f"      spooldeck {where}   opens the console",
        ],
    )


def enqueue(setup: Setup, number: int, *, type: str, json: bool) -> int:
    """Queue the mails of a registration; print of each its state, and whether it is new."""
    place = zgb_place(setup)._replace(rolls_back=True)
    kinds = (type,) if type else place.zgb_settings.enqueued_kinds
    for kind in kinds:
        if kind not in place.zgb_settings.enqueued_kinds:
            fail(EX_CONFIG, f"{kind} mails are disabled: stores.zgb.types.{kind}.enabled")
    if not kinds:
        fail(EX_CONFIG, "both kinds of mail are disabled: stores.zgb.types.*.enabled")
    log = place.log()
    with closing(place.open(log)) as store:
        if refused := store.edges[None, State.PENDING].refusal:
            fail(EX_NOPERM, refused)
        try:
            done = store.enqueue(number, kinds)
        except Unsupported as error:
            fail(EX_USAGE, str(error))
        # Printed before the database is read again, which may fail: the mails are queued.
        for one in done:
            word = one.task.word or store.states[one.task.state]
            if json:
                print_json({**task_row(one.task, word), "is_new": one.is_new})
            else:
                print(_enqueued(one, word))
        if not json and not store.settings().is_enabled:
            print(f"paused, {store.backlog(time.time()).waiting:,} waiting")
    return DONE


def _enqueued(one: Enqueued, word: str) -> str:
    task = one.task
    if one.is_new:
        return f"{task.id} created"
    words = [word]
    if task.attempts:
        words.append(f"attempts {task.attempts}")
    if task.state is State.PENDING and task.due and task.due > time.time():
        words.append(f"due {format_time(task.due)}")
    if task.error:
        words.append(safe_line(task.error))
    return f"{task.id} already exists: {', '.join(words)}"


# ---- work


class _StopZgbWorker:
    """Notes a signal that asks to end, and stops the running worker."""

    def __init__(self) -> None:
        self.asked = False
        self.worker: Worker | None = None

    def request_stop(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Stop the worker; a second call also stops the running tasks."""
        self.asked = True
        if self.worker is not None:
            self.worker.stop()


def work(setup: Setup, *, loop: bool, quiet: bool, json: bool) -> int:
    """Do one run, as from cron each minute; with --loop one each minute and whenever work arrives.

    Exit 2 if another run holds the lock: one process keeps the hourly limit and the log of sent
    mails. A run of ZGB's own worker at the same time is safe because of the leases.
    """
    place = zgb_place(setup)._replace(rolls_back=True)
    if why := place.zgb_settings.work_refusal:
        fail(EX_CONFIG, why)
    if why := place.zgb_settings.lease_problem(mail_settings(setup, place.zgb_settings).max_time):
        fail(EX_CONFIG, f"stores.zgb.lease: {why}")
    _require_writing(place)
    setup.make_folder(setup.state_folder)
    setup.make_folders()
    stop = _StopZgbWorker()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop.request_stop)
    with _worker_lock(setup.state_folder) as alone:
        if not alone:
            if not quiet:
                pids = ", ".join(map(str, worker_files.running_pids(setup.queue)))
                who = f" (PID {pids})" if pids else ""
                print_error(f"another run is active on {safe_line(place.path)}{who}")
            return BUSY
        with worker_files.registered_worker(setup.queue):
            if loop:
                record_start(setup)
                return _loop(place, stop)
            ran = _SingleRun(place, stop).run()
    if json:
        print_json({"place": place.path, "text": ran.words})
    elif not quiet:
        print(ran.words)
    return ran.code


def _require_writing(place: ZgbPlace) -> None:
    with closing(place.open()) as store:
        if refused := store.edges[State.ACTIVE, State.PENDING].refusal:
            fail(EX_NOPERM, refused)


@contextmanager
def _worker_lock(folder: str) -> Iterator[bool]:
    """Hold the worker lock while in the block; False if another run of this project holds it."""
    dir_fd = files.open_dir_path(folder)
    try:
        # The fd is closed on exec: a transport that hangs must not block the next run.
        fd = files.open_shared("worker.lock", dir_fd, os.O_RDWR)
    finally:
        os.close(dir_fd)
    try:
        yield files.claim_flock(fd)
    finally:
        os.close(fd)


class _ZgbRun(NamedTuple):
    """Text and exit code of a run."""

    words: str
    code: int = DONE
    claimed: int = 0
    """Number of jobs that it claimed."""
    is_refused: bool = True
    """True if it may have left due jobs that no run can send now."""


def _loop(place: ZgbPlace, stop: _StopZgbWorker) -> int:
    """Repeat runs until a signal."""
    last_words, refusals, repeats = "", 0, False
    with closing(place.open()) as listening:
        while True:
            try:
                ran, refusals = _SingleRun(place, stop).run(), 0
            except (StoreError, OSError) as error:
                # A later run may succeed, even after a refusal: a trigger may change, and a file
                # that is being replaced is not writable at first.
                delay = refusal_delay_seconds(refusals)
                refusals += 1
                ran = _ZgbRun(f"{error}, retry in {delay:.0f}s", EX_UNAVAILABLE)
                place.setup.log("ERROR", f"Queue cannot be reached: {ran.words}")
            if ran.words != last_words:
                print_error(ran.words)
                last_words = ran.words
            if stop.asked:
                return ran.code if ran.code == OUTCOME_NOT_STORED else DONE
            if refusals:
                _until(time.monotonic() + delay, stop)
            else:
                # A repeated run that claims nothing is the last one, so that it never spins.
                may_repeat = not ran.is_refused and not (repeats and not ran.claimed)
                repeats = _until_needed(listening, stop, may_repeat=may_repeat)
            if stop.asked:
                return DONE


def _until(moment: float, stop: _StopZgbWorker) -> None:
    """Wait until a time of the monotonic clock, or until a signal."""
    while not stop.asked and (remaining := moment - time.monotonic()) > 0:
        time.sleep(min(remaining, _SIGNAL_POLL_SECONDS))


def _until_needed(store: ZgbStore, stop: _StopZgbWorker, *, may_repeat: bool) -> bool:
    """Wait for a minute, or until a change of the database brings work.

    With `may_repeat` it returns True immediately if there is work: a job that came while the last
    run was ending, whose change is discarded with those of the run.
    """
    until = time.monotonic() + RUN_INTERVAL_SECONDS
    ring = store.changes.wait
    assert ring is not None
    try:
        if may_repeat and _has_work(store):
            return True
        ring(0.0)  # discard the change of our own run
        while not stop.asked and (remaining := until - time.monotonic()) > 0:
            has_changed = ring(min(remaining, _SIGNAL_POLL_SECONDS))
            if (has_changed is None or has_changed) and _has_work(store):
                break
    except Unavailable:
        # The next run reports the error, if it still exists.
        _until(until, stop)
    return False


def _has_work(store: ZgbStore) -> bool:
    now, is_enabled = time.time(), store.settings().is_enabled
    return is_enabled and store.backlog(now).due > 0 and store.figures(now).tokens > 0


class _SingleRun:
    """One run: recover, claim as many mails as there are tokens, send them, store the outcomes."""

    def __init__(self, place: ZgbPlace, stop: _StopZgbWorker) -> None:
        self._place, self._stop = place, stop
        self._log = place.log()
        self._began = time.monotonic()
        self._refused: dict[str, str] = {}
        """By kind, why none of it may be claimed; "" if one may."""

    def run(self) -> _ZgbRun:
        """Do the run.

        Raises:
            Unavailable: the database cannot be reached or needs a repair.
            Unsupported: it is not writable, or a trigger of it refuses the change.
        """
        with closing(self._place.open(self._log)) as store:
            if not store.settings().is_enabled:
                return self._skipped(store)
            before = _tokens(store)
            rate = queue_config.parse_rate(store.settings().rate, store.place.rate_limit)
            run_fields: dict[str, object] = {"rate": rate.per_hour, "cap": rate.burst}
            run_fields["tokens_before"] = before
            self._log.write("run_start", **run_fields)
            run, error = WorkerResult(), ""
            try:
                self._keep_house(store)
                run_fields["allowed"] = store.claim_report.tokens
                run = self._work(store, run_fields)
                if run.unreachable:
                    raise Unavailable(run.unreachable)
            except (StoreError, OSError) as failure:
                error = str(failure)
                raise
            finally:
                self._ended(store, run_fields, error)
                self._published(store).write()
            words, refusals = self._words(store, run)
            code = OUTCOME_NOT_STORED if run.owed else DONE
            return _ZgbRun(words, code, self._log.counts["claimed"], bool(refusals))

    def _keep_house(self, store: ZgbStore) -> None:
        """Recover, delete orphans and refill tokens, before the worker: its recovery is more
        limited."""
        claimed = list(store.take(time.time(), "", 1, lambda kind, group: False))
        assert not claimed, "no kind was accepted"

    def _published(self, store: ZgbStore) -> MetricsWriter:
        setup = self._place.setup
        return MetricsWriter(setup.queue, setup.counters(), partial(count_tasks, store))

    def _skipped(self, store: ZgbStore) -> _ZgbRun:
        self._keep_house(store)
        self._published(store).write()
        counts, waiting = self._log.counts, store.backlog(time.time()).waiting
        self._log.write(
            "run_skipped",
            recovered=counts["recovered"],
            orphans=counts["orphan_deleted"],
            waiting=waiting,
            ms=self._ms,
        )
        return _ZgbRun(f"paused, {waiting:,} waiting")

    def _work(self, store: ZgbStore, run_fields: dict[str, object]) -> WorkerResult:
        place = self._place
        zgb_settings, settings = place.zgb_settings, mail_settings(place.setup, place.zgb_settings)
        mail = place.setup.mail
        chooser = mail.chooser(settings, mail.registry(settings))
        post = mail.sender(chooser, complain=print_error)
        parts = MailingParts(zgb_settings, settings, post, self._log, place.open)
        limit = zgb_settings.hourly_limit
        hourly = HourlyLimit(limit, self._log) if limit else None
        if hourly is not None:
            run_fields["allowed"] = min(store.claim_report.tokens, hourly.remaining())

        published, records = self._published(store), RunRecords(place.setup)

        def unready_now(kind: str) -> tuple[str, float | None]:
            if hourly is not None and not self._log.path:
                return "the hourly limit needs a log, and the log cannot be written", None
            if kind not in zgb_settings.types:
                return f"unknown kind of mail: {safe_line(kind)}", None
            why = why_unready(zgb_settings.types[kind], zgb_settings, settings, store.columns())
            return (f"{kind}: {why}", None) if why else chooser.blocking_reason()

        def gate(kind: str) -> tuple[str, float | None]:
            # The worker clears its own reasons when tokens run out, so keep them here.
            shut = unready_now(kind)
            self._refused[kind] = shut[0]
            return shut

        worker = Worker(
            store,
            {
                kind: RegistrationHandler(parts, letter)
                for kind, letter in zgb_settings.types.items()
            },
            store.place.retry,
            owner=str(os.getpid()),
            services=records.services()._replace(
                shorten_error=clean_error,
                publish=published.write_if_due,
                gate=gate,
                limits=hourly,
                timeouts=dict.fromkeys(zgb_settings.types, settings.max_time),
                logs_waits=True,
            ),
        )
        self._stop.worker = worker
        if self._stop.asked:
            worker.stop()
        try:
            return worker.process_all(until_idle=True)
        finally:
            self._stop.worker = None

    def _ended(self, store: ZgbStore, run_fields: dict[str, object], error: str) -> None:
        counts = self._log.counts
        try:
            run_fields["tokens_after"] = _tokens(store)
        except Unavailable as unreadable:
            error = error or str(unreadable)
        self._log.write(
            "run_end",
            **run_fields,
            claimed=counts["claimed"],
            sent=counts["sent"],
            failed=counts["failed"] + counts["parked"],
            recovered=counts["recovered"],
            orphans=counts["orphan_deleted"],
            ms=self._ms,
            error=error or None,
        )

    @property
    def _ms(self) -> int:
        return round((time.monotonic() - self._began) * 1000)

    def _words(self, store: ZgbStore, run: WorkerResult) -> tuple[str, list[str]]:
        """What the run did, in words; and why it left due jobs, if it did."""
        counts, now = self._log.counts, time.time()
        backlog, figures = store.backlog(now), store.figures(now)
        words = [f"{counts['sent']:,} sent", f"{counts['failed'] + counts['parked']:,} failed"]
        words.append(f"{backlog.waiting:,} waiting")
        if backlog.due and not figures.tokens:
            seconds = max(0.0, figures.next_token - now)
            words.append(f"next token in {format_rough_duration(seconds)}")
        refusals = []
        if backlog.waiting and (damaged_rows := _unreadable(store)):
            rows = f"{damaged_rows:,} rows are damaged" if damaged_rows > 1 else "1 row is damaged"
            fix = f"spooldeck zgb doctor {safe_line(shlex.quote(self._place.path))}"
            refusals.append(f"{rows} ({fix})")
        refusals += dict.fromkeys(filter(None, {**run.refused, **self._refused}.values()))
        if run.owed:
            refusals.append(f"cannot store {run.owed} outcomes; their jobs are still claimed")
        words += refusals
        return "; ".join([", ".join(words[:3]), *words[3:]]), refusals


def _unreadable(store: ZgbStore) -> int:
    """Number of rows that are not valid jobs and so are never claimed."""
    problems = {item.where for item in store.scan() if isinstance(item, Problem)}
    return sum(where.startswith(ROW_PREFIX) for where in problems)


def _tokens(store: ZgbStore) -> float | None:
    """Stored number of tokens (1 per mail); None if it is not a number."""
    settings = store.settings()
    bucket, reset = queue_config.read_bucket(settings.tokens, settings.refilled, time.time())
    return None if reset else round(bucket.units / 3600, 4)


def doctor(setup: Setup, *, json: bool) -> int:
    """`zgb doctor`: the same as `doctor`, also of a file that is no mail queue."""
    return print_findings(check_queue(setup), as_json=json)
