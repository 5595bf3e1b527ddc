"""`zgb init`, `enqueue` and `work`: a mail queue in a SQLite database, made, filled and worked."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from types import FrameType
from typing import NamedTuple

from engine.config.validators import ConfigError
from engine.locks.token_buckets import WHOLE, Left
from engine.logs.log_tail import SharedLog
from engine.model import Problem, State, Task
from engine.policy import at, lasting
from engine.store import StoreError, Unavailable, Unsupported
from engine.stores.zgb import ZgbStore, create, token_bucket
from engine.stores.zgb.facts import SeenProblems, look, told
from engine.stores.zgb.log import Log, LogLocation, spot
from engine.stores.zgb.scan import ROW
from engine.stores.zgb.settings import ZgbSettings
from engine.stores.zgb.store import Enqueued
from engine.system import files
from engine.text.safe import said, shown
from engine.work.worker import Run, Services, Worker, again
from tui.cli.formats.zgb_mail import Hourly, Parts, Registration, mail_settings, unready, way
from tui.cli.queue import lease_worker
from tui.cli.queue.lease_worker import Published, count
from tui.cli.setup.setup import (
    EX_CONFIG,
    EX_NOPERM,
    EX_UNAVAILABLE,
    EX_USAGE,
    Setup,
    complain,
    fail,
    program,
)
from tui.session.place import PlaceFigures

DONE, BUSY, OWED = 0, 2, 3
"""Exit codes: as it should be; another worker is at work here; an outcome could not be stored."""

EVERY = 60.0
"""Seconds between two runs of a loop, as cron has it."""

_GLANCE = 1.0
"""Seconds in which a loop that waits hears that it is to end."""


class ZgbPlace(NamedTuple):
    """One mail queue as the command line and the configuration mean it."""

    setup: Setup
    path: str
    """Absolute."""
    own: ZgbSettings
    rolls_back: bool = False
    """As of a `Place`: whether the command is there to write."""

    def spot(self) -> LogLocation:
        """Where its log is written."""
        return spot(self.own.log, self.path, os.environ, os.getcwd())

    def open(self, log: Log | None = None) -> ZgbStore:
        """Its store, which tells a log what happens.

        Raises:
            Unavailable: it cannot be reached.
        """
        place = self.own.place(self.path)._replace(rolls_back=self.rolls_back)
        return ZgbStore(place) if log is None else ZgbStore(place, tell=log.tell)

    def log(self) -> Log:
        """The log of one run, or of one command."""
        return Log(self.spot().path, secrets.token_hex(4), self.path, time.time, _say)


def _say(text: str) -> None:
    complain(shown(text))


def desk_of(setup: Setup) -> ZgbPlace:
    """The mail queue that a command is for.

    Raises:
        Unavailable: there is none.
    """
    site = setup.site
    if site is None or not isinstance(site.settings, ZgbSettings):
        setup.require_sight()  # what we may not see may be one
        raise Unavailable(
            f"{shown(setup.place)}: no mail queue, expected a SQLite database "
            "(spooldeck zgb init DB makes one)"
        )
    return ZgbPlace(setup, site.path, site.settings)


def queue_facts(setup: Setup) -> PlaceFigures:
    """What is told of a queue as a whole.

    Raises:
        Unavailable: the database cannot be read now.
    """
    desk = desk_of(setup)
    where = desk.spot()
    with closing(desk.open()) as store:
        seen = look(store, where.path, time.time(), where.warnings)
        columns = store.columns()
    rows, warnings = told(seen)
    sends, kept = _our_worker(desk, seen, columns)
    sends = sends if desk.own.unworkable else f"{lease_worker.whether_at_work(setup)}; {sends}"
    return PlaceFigures((*rows, ("our worker", sends)), (*warnings, *kept))


def _our_worker(
    desk: ZgbPlace, seen: SeenProblems, columns: tuple[str, ...]
) -> tuple[str, Iterable[str]]:
    """By what a worker of ours would send, in words, and what of that should worry somebody."""
    if why := desk.own.unworkable:
        # Whoever runs there without our settings needs none of them.
        worrying = [f"our worker sends nothing: {why}"] if seen.is_silent else []
        return f"sends nothing: {why}", worrying
    found = way(desk.setup, desk.own)
    sends = f"sends by {found.name}" if found.name else f"sends nothing: {found.why}"
    worrying = [f"our worker {sends}"] if found.why else [*found.stopped]
    refused = [*worrying] if not found.resume else [f"{w} ({found.resume})" for w in worrying]
    return sends, [*refused, *_refused_kinds(desk, columns)]


def _refused_kinds(desk: ZgbPlace, columns: tuple[str, ...]) -> Iterator[str]:
    try:
        settings = mail_settings(desk.setup, desk.own)
    except ConfigError:
        return  # said of the way
    for kind in desk.own.enqueued:
        if why := unready(desk.own.letters[kind], desk.own, settings, columns):
            yield f"{kind} mails wait: {why}"


def queue_shut(setup: Setup, kind: str) -> str:
    """Why no worker would claim a mail of a kind now, as far as we know; "" when one would.

    Raises:
        Unavailable: the database cannot be read now.
    """
    desk = desk_of(setup)
    if why := desk.own.unworkable:
        with closing(desk.open()) as store:
            silent = look(store, desk.spot().path, time.time()).is_silent
        return why if silent else ""  # somebody else's worker has what it needs
    found = way(setup, desk.own)
    if found.why:
        return f"{found.why} ({found.mend})"
    if kind not in desk.own.letters:
        return f"no mail is known as {shown(kind)}"
    with closing(desk.open()) as store:
        columns = store.columns()
    return unready(desk.own.letters[kind], desk.own, mail_settings(setup, desk.own), columns)


def queue_tokens(setup: Setup) -> tuple[Left, ...]:
    """What its bucket holds now.

    Raises:
        Unavailable: the database cannot be read now.
    """
    with closing(desk_of(setup).open()) as store:
        seen = store.figures(time.time())
        burst = min(seen.per_hour, store.place.pace.burst)
        paused = not store.settings().enabled
    coming = None if seen.tokens or paused else seen.next_token
    return (Left(WHOLE, min(seen.tokens, burst), burst, coming, seen.per_hour, paused),)


def queue_logs(setup: Setup) -> tuple[str, ...]:
    """The queue's own log, where its workers write it, without what is said of other databases in
    it; none where it cannot be written."""
    desk = desk_of(setup)
    path = desk.spot().path
    return (SharedLog(path, files.real_path(desk.path)),) if path else ()


# ---- made, and filled


def init(setup: Setup, arguments: Namespace) -> int:
    """Make a new, empty mail queue; it sends nothing until it is told to."""
    path = arguments.place
    try:
        create(path)
    except FileExistsError:
        fail(EX_USAGE, f"{shown(path)} is there already, and is left as it is")
    where = shown(shlex.quote(path))
    print(
        f"made {shown(path)}: paused, until mailQueueEnabled is 1 in its table config\n"
        "next: set stores.zgb.types.user.template and .organizer.template in the configuration\n"
        f"      spooldeck control mailQueueEnabled --root {where} --value 1 --apply 1   "
        "lets it send\n"
        f"      spooldeck zgb enqueue --root {where} NUMBER   adds the mails of a registration\n"
        f"      {CRON} {cron_line(path, setup.config.path)}   sends, in crontab -e\n"
        f"      spooldeck zgb doctor {where}   what is still missing\n"
        f"      spooldeck {where}   opens the console"
    )
    return DONE


CRON = "* * * * *"
"""Each minute, as a crontab says it."""


def cron_line(path: str, settings: str) -> str:
    """What cron has to start for the queue at a path; `settings` is the path of the configuration,
    "" without one.
    """
    words = [*program(), *(("--config", os.path.abspath(settings)) if settings else ())]
    return shlex.join([*words, "zgb", "work", "--quiet", os.path.abspath(path)])


def enqueue(setup: Setup, arguments: Namespace) -> int:
    """Queue the mails of a registration; say of each whether it was there already, and where."""
    desk = desk_of(setup)._replace(rolls_back=True)
    kinds = (arguments.type,) if arguments.type else desk.own.enqueued
    for kind in kinds:
        if kind not in desk.own.enqueued:
            fail(EX_CONFIG, f"{kind} mails are switched off: stores.zgb.types.{kind}.enabled")
    if not kinds:
        fail(EX_CONFIG, "both mails are switched off: stores.zgb.types.*.enabled")
    log = desk.log()
    with closing(desk.open(log)) as store:
        if refused := store.edges[None, State.PENDING].refused:
            fail(EX_NOPERM, refused)
        try:
            done = store.enqueue(arguments.number, kinds)
        except Unsupported as error:
            fail(EX_USAGE, str(error))
        for one in done:
            print(_enqueued(store, one))
        if not store.settings().enabled:
            print(f"paused, {store.backlog(time.time()).waiting:,} waiting")
    return DONE


def _enqueued(store: ZgbStore, one: Enqueued) -> str:
    if one.created:
        return f"{one.task.id} created"
    return f"{one.task.id} already there: {_standing(store, one.task)}"


def _standing(store: ZgbStore, task: Task) -> str:
    words = [task.word or store.states[task.state]]
    if task.attempts:
        words.append(f"attempts {task.attempts}")
    if task.state is State.PENDING and task.due and task.due > time.time():
        words.append(f"due {at(task.due)}")
    if task.error:
        words.append(shown(task.error))
    return ", ".join(words)


# ---- worked


class _StopZgbWorker:
    """Whether we were told to end; the worker in hand is told as well."""

    def __init__(self) -> None:
        self.asked = False
        self._worker: Worker | None = None

    def tell(self, number: int = 0, frame: FrameType | None = None) -> None:
        """End; a second time: end what is in hand, too."""
        self.asked = True
        if self._worker is not None:
            self._worker.stop()

    @contextmanager
    def telling(self, worker: Worker) -> Iterator[None]:
        """While it works."""
        self._worker = worker
        if self.asked:
            worker.stop()
        try:
            yield
        finally:
            self._worker = None


def work(setup: Setup, arguments: Namespace) -> int:
    """One run, as cron starts it each minute; or one each minute, and whenever there is work.

    Exit 2 while another run holds the lock: the hourly limit and the log of sent mails are kept by
    one process. A run of ZGB's own worker beside it is safe by the leases.
    """
    desk = desk_of(setup)._replace(rolls_back=True)
    if why := desk.own.unworkable:
        fail(EX_CONFIG, why)
    if why := desk.own.too_short(mail_settings(setup, desk.own).max_time):
        fail(EX_CONFIG, f"stores.zgb.lease: {why}")
    _require_writing(desk)
    setup.make_folder(setup.desk)
    setup.make_folders()
    stop = _StopZgbWorker()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop.tell)
    with _alone(setup.desk) as alone:
        if not alone:
            if not arguments.quiet:
                complain(f"another run is at work on {shown(desk.path)}{_whose(setup)}")
            return BUSY
        with lease_worker.signed_on(setup):
            if arguments.loop:
                return _loop(desk, stop)
            ran = _Once(desk, stop).run()
    if not arguments.quiet:
        print(ran.words)
    return ran.code


def _whose(setup: Setup) -> str:
    pids = lease_worker.at_work(setup)
    return f" (PID {', '.join(map(str, pids))})" if pids else ""


def _require_writing(desk: ZgbPlace) -> None:
    with closing(desk.open()) as store:
        if refused := store.edges[State.ACTIVE, State.PENDING].refused:
            fail(EX_NOPERM, refused)


@contextmanager
def _alone(folder: str) -> Iterator[bool]:
    """Whether no other run of ours is at work there; none comes to be while in the block."""
    dir_fd = files.reach(folder)
    try:
        # Closed when a program is run: a transport that hangs must not keep the next run out.
        fd = files.open_shared("worker.lock", dir_fd, os.O_RDWR)
    finally:
        os.close(dir_fd)
    try:
        yield files.claim_flock(fd)
    finally:
        os.close(fd)


class _ZgbRun(NamedTuple):
    """What a run came to."""

    words: str
    code: int = DONE


def _loop(desk: ZgbPlace, stop: _StopZgbWorker) -> int:
    """Run after run until told to end."""
    said, refusals = "", 0
    with closing(desk.open()) as listening:
        while True:
            try:
                ran, refusals = _Once(desk, stop).run(), 0
            except (StoreError, OSError) as error:
                # A later run may fare better, even after what the database refused: a rule of
                # theirs changes, and a file that is being put there is not ours to write at first.
                rest = again(refusals)
                refusals += 1
                ran = _ZgbRun(f"{error}, retry in {rest:.0f}s", EX_UNAVAILABLE)
                desk.setup.log("ERROR", f"Queue cannot be reached: {ran.words}")
            if ran.words != said:
                _say(ran.words)
                said = ran.words
            if stop.asked:
                return ran.code if ran.code == OWED else DONE
            if refusals:
                _until(time.monotonic() + rest, stop)
            else:
                _until_needed(listening, stop)
            if stop.asked:
                return DONE


def _until(moment: float, stop: _StopZgbWorker) -> None:
    """Wait until then by the clock that runs through, or until told to end."""
    while not stop.asked and (left := moment - time.monotonic()) > 0:
        time.sleep(min(left, _GLANCE))


def _until_needed(store: ZgbStore, stop: _StopZgbWorker) -> None:
    """Wait for a minute, or until something changes and there is work to be done."""
    until = time.monotonic() + EVERY
    ring = store.doorbell.wait
    assert ring is not None
    try:
        ring(0.0)  # what our own run has changed
        while not stop.asked and (left := until - time.monotonic()) > 0:
            heard = ring(min(left, _GLANCE))
            if (heard is None or heard) and _has_work(store):
                return
    except Unavailable:
        # The next run says so; somebody may have mended it by then.
        _until(until, stop)


def _has_work(store: ZgbStore) -> bool:
    now = time.time()
    return store.settings().enabled and store.backlog(now).due > 0 and store.figures(now).tokens > 0


class _Once:
    """One run: keep house, claim what there are tokens for, send, write down what came of it."""

    def __init__(self, desk: ZgbPlace, stop: _StopZgbWorker) -> None:
        self._desk, self._stop = desk, stop
        self._log = desk.log()
        self._began = time.monotonic()
        self._refused: dict[str, str] = {}
        """By kind, why none of it may be claimed; "" where one may."""

    def run(self) -> _ZgbRun:
        """Do it.

        Raises:
            Unavailable: the database cannot be reached, or somebody must see to it first.
            Unsupported: it may not be written, or has a rule against what a run does.
        """
        with closing(self._desk.open(self._log)) as store:
            if not store.settings().enabled:
                return self._skipped(store)
            before = _tokens(store)
            rate = token_bucket.rate(store.settings().rate, store.place.pace)
            told: dict[str, object] = {"rate": rate.per_hour, "cap": rate.burst}
            told["tokens_before"] = before
            self._log.tell("run_start", **told)
            run, error = Run(), ""
            try:
                self._keep_house(store)
                told["allowed"] = store.kept.tokens
                run = self._work(store, told)
                if run.unreachable:
                    raise Unavailable(run.unreachable)
            except (StoreError, OSError) as failure:
                error = str(failure)
                raise
            finally:
                self._ended(store, told, error)
                self._published(store).write()
            return _ZgbRun(self._words(store, run), OWED if run.owed else DONE)

    def _keep_house(self, store: ZgbStore) -> None:
        """Recover, delete orphans, refill; before the worker, which has but one way to recover."""
        claimed = list(store.take(time.time(), "", 1, lambda kind, group: False))
        assert not claimed, "nothing was wanted"

    def _published(self, store: ZgbStore) -> Published:
        return Published(self._desk.setup, partial(count, store))

    def _skipped(self, store: ZgbStore) -> _ZgbRun:
        self._keep_house(store)
        self._published(store).write()
        counts, waiting = self._log.counts, store.backlog(time.time()).waiting
        self._log.tell(
            "run_skipped",
            recovered=counts["recovered"],
            orphans=counts["orphan_deleted"],
            waiting=waiting,
            ms=self._ms,
        )
        return _ZgbRun(f"paused, {waiting:,} waiting")

    def _work(self, store: ZgbStore, told: dict[str, object]) -> Run:
        desk = self._desk
        own, settings = desk.own, mail_settings(desk.setup, desk.own)
        post = desk.setup.post(settings, desk.setup.ways(settings), tell=_say)
        parts = Parts(own, settings, post, self._log, desk.open)
        hourly = Hourly(own.hourly_limit, self._log) if own.hourly_limit else None
        if hourly is not None:
            told["allowed"] = min(store.kept.tokens, hourly.left())

        published = self._published(store)

        def unready_now(kind: str) -> tuple[str, float | None]:
            if hourly is not None and not self._log.path:
                return "the hourly limit needs a log, and none can be written", None
            if kind not in own.letters:
                return f"no mail is known as {shown(kind)}", None
            why = unready(own.letters[kind], own, settings, store.columns())
            return (f"{kind}: {why}", None) if why else post.shut()

        def gate(kind: str) -> tuple[str, float | None]:
            # The worker forgets it where tokens run out before it asks once more.
            shut = unready_now(kind)
            self._refused[kind] = shut[0]
            return shut

        worker = Worker(
            store,
            {kind: Registration(parts, letter) for kind, letter in own.letters.items()},
            store.place.retry,
            owner=str(os.getpid()),
            services=Services(
                clean=said,
                log=desk.setup.log,
                alert=desk.setup.alert,
                tally=published.tally,
                publish=published.sparingly,
                gate=gate,
                limits=hourly,
                timeouts=dict.fromkeys(own.letters, settings.max_time),
            ),
        )
        with self._stop.telling(worker):
            return worker.work(until_idle=True)

    def _ended(self, store: ZgbStore, told: dict[str, object], error: str) -> None:
        counts = self._log.counts
        try:
            told["tokens_after"] = _tokens(store)
        except Unavailable as unreadable:
            error = error or str(unreadable)
        self._log.tell(
            "run_end",
            **told,
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

    def _words(self, store: ZgbStore, run: Run) -> str:
        counts, now = self._log.counts, time.time()
        backlog, figures = store.backlog(now), store.figures(now)
        words = [f"{counts['sent']:,} sent", f"{counts['failed'] + counts['parked']:,} failed"]
        words.append(f"{backlog.waiting:,} waiting")
        if backlog.due and not figures.tokens:
            words.append(f"next token in {lasting(max(0.0, figures.next_token - now))}")
        if backlog.waiting and (odd := _unreadable(store)):
            rows = f"{odd:,} rows cannot be read" if odd > 1 else "1 row cannot be read"
            words.append(f"{rows} (spooldeck zgb doctor {shown(shlex.quote(self._desk.path))})")
        words += dict.fromkeys(filter(None, {**run.refused, **self._refused}.values()))
        if run.owed:
            words.append(f"{run.owed} outcomes could not be stored; their jobs are still claimed")
        return "; ".join([", ".join(words[:3]), *words[3:]])


def _unreadable(store: ZgbStore) -> int:
    """How many rows are no jobs: nobody claims them, however long they wait."""
    problems = {item.where for item in store.look() if isinstance(item, Problem)}
    return sum(where.startswith(ROW) for where in problems)


def _tokens(store: ZgbStore) -> float | None:
    """What the bucket holds as it is written down, by the mail; None where that is no number."""
    settings = store.settings()
    found, reset = token_bucket.read(settings.tokens, settings.refilled, time.time())
    return None if reset else round(found.units / 3600, 4)
