"""A ZMailer spool for the console: its store, and what its scheduler knows: threads, agents, state.

Read by MAILQ from the running scheduler, with the socket and the users of its scheduler.conf; of a
stopped one, only what the files and the configuration show.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress

from engine.formats.base.format import Setup
from engine.formats.zmailer.environment import SchedulerFiles, read_files
from engine.formats.zmailer.mailq.queue_view import AgentView, ThreadView
from engine.formats.zmailer.reports import ReportSettings
from engine.formats.zmailer.scheduler import spool_controls
from engine.formats.zmailer.scheduler.clauses import format_value, why_undeliverable
from engine.formats.zmailer.scheduler.queue_facts import MailqFacts, ShownQueue, read_queue
from engine.formats.zmailer.scheduler.spool_controls import SpoolControls
from engine.formats.zmailer.spool import lock_process
from engine.formats.zmailer.spool.folders import TRANSPORT, PostofficeFolders
from engine.formats.zmailer.spool.scheduler_conf import SchedulerConf, Value, find_settings
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.formats.zmailer.spool_mail import SpoolMail, read_form
from engine.formats.zmailer.statistics_log import (
    MAX_ROUTER_MAILS,
    OLD_SECONDS,
    EndsReader,
    RecentEnds,
    RouterMails,
    find_statistics_log,
    read_router,
)
from engine.mail.host import this_host
from engine.model import ConnectedWorker, attempts_allowed
from engine.places.place import GroupFacts, Place, PlaceGroups, ServerState, WholeQueueFigures
from engine.store import StoreError, Unavailable
from engine.text.error_text import error_text
from engine.text.figure import UNKNOWN, Figure
from engine.text.figures import format_count
from engine.text.times import format_rough_duration

MAX_SHOWN_THREADS = 3
"""Threads with failures that are named."""

ROUTER_SECONDS = 600.0
"""A mail that has been in router/ for so long is reported."""

WATCH_SECONDS = 10.0
"""Seconds for which what a scheduler has shown is current: the original one forks for each."""

SERVER, STOPPED = "ZMailer's scheduler", "no scheduler is running"
NO_SCHEDULER = f"{STOPPED}: its agents deliver"
FROZEN = "frozen by an operator: no agent is started"

TITLES = {"queue": "thread", "kind": "channel", "group": "host"}

SHOWN_SETTINGS = (
    "queueonly",
    "maxring",
    "maxthr",
    "maxchannel",
    "retries",
    "interval",
    "expiry",
    "overfeed",
)


class SpoolWatch:
    """Facts about a spool, read at most once in `WATCH_SECONDS`, from any thread."""

    def __init__(self, setup: Setup, clock: Callable[[], float] = time.time) -> None:
        self._setup, self._clock = setup, clock
        self._due = float("-inf")
        self._figures = WholeQueueFigures()
        self._files = SchedulerFiles({}, "", None)
        self._queue = ShownQueue()
        self._statistics_reader: EndsReader | None = None
        self._is_frozen = False

    def _read_ends(self, scheduler: int | None) -> RecentEnds | str:
        """How the last recipients have ended; why that is not known."""
        configured_path: str = self._setup.settings.statistics
        path = configured_path or ("" if scheduler is None else find_statistics_log(scheduler))
        if not path:
            return "no statistics log: option -l of the scheduler, or stores.zmailer.statistics"
        reader = self._statistics_reader
        if reader is None or reader.path != path:
            if reader is not None:
                reader.close()
            reader = self._statistics_reader = EndsReader(path)
        try:
            return reader.read()
        except OSError as error:
            return f"{path}: {error_text(error)}"

    def figures(self) -> WholeQueueFigures:
        """The scheduler, its configuration and its agents. Raises Unavailable: the spool cannot be
        opened."""
        self._read()
        return self._figures

    def facts(self, names: Sequence[str]) -> Mapping[str, GroupFacts]:
        """What is known of threads, by CHANNEL/HOST."""
        with suppress(Unavailable):
            self._read()
        return {name: self._facts_of(*name.partition("/")[::2]) for name in names}

    def obstacle(self, channel: str) -> str:
        """Why no agent of a channel would be started now; "" if one may."""
        with suppress(Unavailable):
            self._read()
        if not self._figures.has_worker:
            return NO_SCHEDULER
        return FROZEN if self._is_frozen else ""

    def _read(self) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + WATCH_SECONDS
        self._files = read_files(self._setup.settings, os.environ)
        with closing(PostofficeFolders(self._setup.place)) as folders:
            scheduler = lock_process.find_scheduler(folders.fd, folders.transport_status)
            is_ours = scheduler is not None and lock_process.is_ours(folders.fd)
            self._is_frozen = spool_controls.is_frozen(folders)
            transport = f"{folders.root}/{TRANSPORT}"
            router = _read_router(folders)
        self._queue, why = ShownQueue(), ""
        if scheduler is not None:
            try:
                self._queue = read_queue(self._files, self._clock)
            except StoreError as error:
                why = str(error)
        tally, now = self._read_ends(scheduler), self._clock()
        self._figures = WholeQueueFigures(
            (
                *self._rows(scheduler, is_ours, why),
                ("failures", _failure_words(tally, now)),
                ("router", _router_words(router, now)),
            ),
            (
                *self._warnings(scheduler, transport),
                *_failure_warnings(tally, now),
                *_router_warnings(router, now),
            ),
            failed=None if isinstance(tally, str) else tally.total_failed,
            gone_failures={} if isinstance(tally, str) else tally.by_thread,
            workers=() if scheduler is None else (scheduler,),
            has_worker=scheduler is not None,
            server=ServerState(SERVER, STOPPED, scheduler is not None, pid=scheduler),
            connected=tuple(_workers(self._queue, self._clock())),
        )

    def _rows(self, scheduler: int | None, is_ours: bool, why: str) -> Iterator[tuple[str, str]]:
        if scheduler is None:
            yield "scheduler", "not running"
        else:
            whose = "of spooldeck" if is_ours else "the original one"
            yield "scheduler", f"PID {scheduler}, {whose}{', frozen' if self._is_frozen else ''}"
        yield "conf", self._files.problem or self._files.conf_path
        if scheduler is None:
            return
        if why:
            yield "threads", f"? {why}"
            return
        queue = self._queue
        stopped = sum(1 for one in queue.threads.values() if _pending(one))
        agents = f"{format_count(queue.agents, 'agent')}, {sum(queue.idle.values()):,} idle"
        yield "threads", f"{len(queue.threads):,}, {stopped:,} pending; {agents}"

    def _warnings(self, scheduler: int | None, transport: str) -> Iterator[str]:
        conf = self._files.conf
        if self._is_frozen:
            yield FROZEN
        if conf is not None and conf.errors:
            where = f"{self._files.conf_path}:{conf.errors[0].line}"
            yield f"{where}: {conf.errors[0].text}: the scheduler would not start"
        elif conf is not None:
            yield from self._never_delivered(conf, transport)

    def _never_delivered(self, conf: SchedulerConf, transport: str) -> Iterator[str]:
        """One warning for each channel and reason that stops its mail for good."""
        stopped: dict[tuple[str, str], list[ThreadView]] = {}
        for (channel, host), view in self._queue.threads.items():
            match = find_settings(conf, channel, host)
            if why := why_undeliverable(match, channel, host, self._files.environ, transport):
                stopped.setdefault((channel, why), []).append(view)
        for (channel, why), views in stopped.items():
            where = (
                f"{channel}/{views[0].host}" if len(views) == 1 else f"{len(views):,} of {channel}"
            )
            amount = format_count(sum(view.recipients for view in views), "recipient")
            yield f"{where}: {amount} never delivered: {why}"

    def _facts_of(self, channel: str, host: str) -> GroupFacts:
        view, conf = self._queue.threads.get((channel, host)), self._files.conf
        ring, rows = (UNKNOWN, []) if conf is None else _clause_rows(conf, channel, host)
        if view is None:
            return GroupFacts(ring, rows=tuple(rows))
        rows = [("mailq", f"N={view.jobs} R={view.recipients} A={view.attempts}"), *rows]
        now = self._clock()
        rows += [("agent", f"PID {one.pid}: {_agent_words(one, view, now)}") for one in view.agents]
        return GroupFacts(ring, len(view.agents), view.wakeup, _pending(view), tuple(rows))


def _pending(view: ThreadView) -> str:
    """Why a thread cannot start, in the words of the scheduler."""
    waits = ("channelwait",) * view.is_channel_wait + ("threadwait",) * view.is_thread_wait
    return " ".join(filter(None, (view.pending, *waits)))


def _clause_rows(conf: SchedulerConf, channel: str, host: str) -> tuple[str, list[tuple[str, str]]]:
    match = find_settings(conf, channel, host)
    if not match.clauses:
        return "(no clause)", [("clause", "none matches: it is not delivered")]
    last = match.clauses[-1]
    settings_text = " ".join(
        name if name == "queueonly" else f"{name}={_words(name, match.settings[name].value)}"
        for name in SHOWN_SETTINGS
        if name in match.settings and match.settings[name].line
    )
    words = f"{last.pattern}, line {last.line}"
    if "command" not in match.settings:
        words += ": no command, it is not delivered"
    rows = [("clause", words), ("settings", settings_text or "defaults")]
    # A ring is a clause with the channel that it is used for.
    pattern = last.pattern.partition("/")
    return f"{channel}/{pattern[2]}", rows


def _words(name: str, value: Value) -> str:
    is_time = name in ("interval", "expiry") and isinstance(value, int)
    return format_rough_duration(value) if is_time else format_value(value)  # type: ignore[arg-type]


def _failure_words(tally: RecentEnds | str, now: float) -> str:
    if isinstance(tally, str):
        return f"? {tally}"
    if not tally.ended:
        return "? the statistics log is empty"
    share = f"{tally.failed:,} of the last {tally.ended:,} ended ({tally.failed / tally.ended:.0%})"
    some = [f"{thread} {count:,}" for thread, count in tally.by_thread.items()]
    where = f": {', '.join(some[:MAX_SHOWN_THREADS])}" if some else ""
    others = len(some) - MAX_SHOWN_THREADS
    more = f" and {format_count(others, 'thread')}" if others > 0 else ""
    return f"{share}{where}{more}; as of {format_rough_duration(max(0.0, now - tally.written))} ago"


def _failure_warnings(tally: RecentEnds | str, now: float) -> Iterator[str]:
    """A warning if many of the last recipients failed, and not long ago."""
    if not isinstance(tally, str) and tally.is_alarming and now - tally.written < OLD_SECONDS:
        worst, count = next(iter(tally.by_thread.items()))
        share = f"{tally.failed:,} of the last {tally.ended:,} recipients failed"
        yield f"{share}, {count:,} of them for {worst}"


def _read_router(folders: PostofficeFolders) -> RouterMails | str:
    try:
        return read_router(folders)
    except OSError as error:
        return error_text(error)


def _router_words(router: RouterMails | str, now: float) -> str:
    if isinstance(router, str):
        return f"? {router}"
    if not router.mails:
        return "no mail waits for it"
    age = format_rough_duration(max(0.0, now - router.oldest))
    reports = Figure(router.reports, router.mails <= MAX_ROUTER_MAILS).text()
    noun = "report" if router.reports == 1 else "reports"
    return f"{format_count(router.mails, 'mail')}, {reports} {noun}, the oldest for {age}"


def _router_warnings(router: RouterMails | str, now: float) -> Iterator[str]:
    """A warning if mails wait so long that no router may run."""
    if not isinstance(router, str) and now - router.oldest >= ROUTER_SECONDS:
        yield f"router/: {_router_words(router, now)}: does the router run?"


def _workers(queue: ShownQueue, now: float) -> Iterator[ConnectedWorker]:
    for (channel, host), view in queue.threads.items():
        for one in view.agents:
            words = f"{channel}/{host}: {_agent_words(one, view, now)}"
            yield ConnectedWorker(f"PID {one.pid}", "", (channel,), 0.0, words)
    for clause, count in queue.idle.items():
        channel = clause.partition("/")[0]
        words = f"{clause}: IDLE, for the next thread of its ring"
        yield from [ConnectedWorker("idle", "", (channel,), 0.0, words)] * count


def _agent_words(one: AgentView, view: ThreadView, now: float) -> str:
    """Outstanding and unfed jobs, since when it was hungry and fed, and its state."""
    jobs = f"waits for {format_count(one.outstanding, 'answer')}" if one.outstanding else "waits"
    times, jobs = (one.hungry_at, one.fed_at), jobs + f", {view.unfed} not fed" * bool(view.unfed)
    asked, fed = (
        "never" if at is None else f"{format_rough_duration(now - at)} ago" for at in times
    )
    return f"{jobs}, asked {asked}, fed {fed}; {one.state or UNKNOWN}"


NO_LOG = "no log of the scheduler is known: set stores.zmailer.log"


def open_spool(setup: Setup) -> ZmailerStore:
    """Open the store of a spool. Raises Unavailable: it cannot be reached."""

    def scheduler_files() -> SchedulerFiles:
        return read_files(setup.settings, os.environ)

    def mail(folders: PostofficeFolders) -> SpoolMail:
        return SpoolMail(
            folders,
            time.time,
            ReportSettings(this_host().name),
            lambda: read_form(scheduler_files().forms),
            lambda: scheduler_files().notify_socket(setup.place),
        )

    return ZmailerStore(
        setup.place,
        mail=mail,
        more_controls=lambda folders: SpoolControls(folders, mail(folders), scheduler_files),
        facts=MailqFacts(scheduler_files),
    )


def complete_place(setup: Setup, place: Place) -> Place:
    """The `Place` of a spool, with what its scheduler knows."""
    watch = SpoolWatch(setup)
    groups = PlaceGroups(TITLES, watch.facts, share_payloads=True)
    log = setup.settings.log or read_files(setup.settings, os.environ).log
    # The clause of its thread has the retries, and the scheduler counts attempts in its memory.
    return place._replace(
        queue_figures=watch.figures,
        server=SERVER,
        groups=groups,
        logs=(setup.log_path, *filter(None, [log]), *setup.config.logs),
        no_server_log="" if log else NO_LOG,
        max_attempts=attempts_allowed,
        claim_obstacle=watch.obstacle,
    )
