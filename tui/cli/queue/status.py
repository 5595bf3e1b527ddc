"""`status`: print a summary of a queue; `init`: make the folders of a queue."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from engine.config.nftban_variables import RUN_DIR
from engine.index.schema import died_at
from engine.locks.token_buckets import BucketState
from engine.mail.send.mail_spool import Spooled
from engine.model import LockEvidence, Problem, State, Task
from engine.monitor.alerts import Alert, AlertInputs, Blocked, find_alerts
from engine.monitor.forecast import Forecast, ForecastInputs, as_row, make_forecasts
from engine.monitor.throughput import HISTORY_SECONDS, FlowHistory
from engine.monitor.transport_health import MailBacklog, TransportSuspension, describe_suspension
from engine.store import Unavailable
from engine.stores.nftban import make_spool
from engine.text.safe import safe_line
from tui.cli.setup.mail_controls import make_mail_desk
from tui.cli.setup.mail_parts import MAIL_SEND_KIND, QUEUING_GRACE_SECONDS
from tui.cli.setup.setup import EX_UNAVAILABLE, EX_USAGE, Setup, fail, print_error
from tui.session.place import Place
from tui.session.place_watcher import PlaceReadings, PlaceWatcher

OK, ATTENTION, UNREADABLE = 0, 1, 2
SHOWN_PROBLEMS = 10


class QueueStatus(NamedTuple):
    """Result of one scan of a queue."""

    counts: dict[str, int]
    """Tasks by the store's own words."""
    oldest: float
    """Seconds since the oldest pending task was created."""
    lock: LockEvidence
    problems: list[Problem]
    alerts: tuple[Alert, ...]
    """Alerts; empty if nothing needs attention."""
    forecasts: tuple[Forecast, ...]
    signs: PlaceReadings
    lost: int
    """Spooled mails without a task."""


def status(setup: Setup, arguments: Namespace) -> int:
    """Print a summary of a queue; exit 0 OK, 1 needs attention, 2 unreadable."""
    if setup.foreign_place is not None:
        from tui.cli.queue import status_other

        return status_other.status(setup, arguments.json)
    try:
        look = _look(setup)
    except Unavailable as error:
        print_error(str(error))
        return UNREADABLE
    if arguments.json:
        print(_as_json(setup, look))
    else:
        print("\n".join(_as_text(setup, look)))
    return ATTENTION if look.alerts else OK


def _look(setup: Setup) -> QueueStatus:
    now = time.time()
    store = setup.open_nftban()
    counts: dict[State, int] = dict.fromkeys(store.states, 0)
    oldest: float | None = None
    due: list[float] = []
    died: list[float] = []
    kinds: Counter[str] = Counter()
    due_kinds: dict[str, list[float]] = {}
    payloads: set[str] = set()
    problems: dict[str, Problem] = {}
    try:
        # By state, without the extra ids of the peek, so that each task is seen once.
        for found in store.scan(store.states.values()):
            if isinstance(found, Task):
                counts[found.state] += 1
                if found.kind == MAIL_SEND_KIND:
                    payloads.add(found.payload)
                if found.state is State.PENDING:
                    kinds[found.kind] += 1
                    oldest = found.created if oldest is None else min(oldest, found.created)
                    if found.due is not None and found.due <= now:
                        due.append(found.created)
                        due_kinds.setdefault(found.kind, []).append(found.created)
                elif found.state is State.DEAD and (when := died_at(found)) is not None:
                    died.append(when)
            elif isinstance(found, Problem):
                problems[found.where] = found
        problems |= {problem.where: problem for problem in store.find_misplaced()}
    finally:
        store.close()
    signs = _read_signs(setup)
    lock = signs.lock or setup.examine_lock()
    lost = _count_lost_mail(setup, signs.sending.backlog, payloads, now)
    sight = AlertInputs(
        name=setup.queue.root,
        states=store.states,
        counts=counts,
        complete=True,
        problems=len(problems),
        lock=lock,
        oldest=oldest,
        due=len(due),
        oldest_due=min(due, default=None),
        queue=signs.queue,
        earlier_counts=_counted_before(setup, counts),
        transports=tuple(way for way in signs.sending.transports if way.is_mentioned),
        last_run=signs.last_run,
        routes=signs.routes,
        orphaned_mails=lost,
        blocked=tuple(_blocked(setup, due_kinds, signs)),
        free_tasks=_free_tasks(setup),
    )
    words = {store.states[state]: number for state, number in counts.items()}
    age = max(0.0, now - oldest) if oldest is not None else 0.0
    found_alerts = find_alerts(sight, now, setup.config.alerts)
    past = _recorded_flow(setup, now)
    growth = past.growth(State.DEAD, now)
    first = min(died, default=None)
    known = ForecastInputs(
        counts, store.states, past.drain(now), growth, first, _tokens(setup), kinds
    )
    forecasts = make_forecasts(known, setup.config.alerts, setup.queue.retention_days, now)
    found_problems = list(problems.values())
    return QueueStatus(words, age, lock, found_problems, found_alerts, forecasts, signs, lost)


def _blocked(
    setup: Setup, due: Mapping[str, Sequence[float]], signs: PlaceReadings
) -> Iterator[Blocked]:
    """Yield the kinds of due tasks that no worker with this configuration would claim.

    `due` has the creation times of due tasks by kind. A suspended transport has its own alert, and
    a kind without a token is only delayed.
    """
    waits = signs.routes is not None and signs.routes.is_waiting
    for kind, created in due.items():
        if not setup.handles_kind(kind):
            yield Blocked(kind, len(created), min(created), "no handler")
        elif kind == MAIL_SEND_KIND and not waits:
            why, token_at = setup.mail_handler().claim_gate(kind)
            if why and token_at is None:
                yield Blocked(kind, len(created), min(created), "no transport")


def _free_tasks(setup: Setup) -> int | None:
    """How many more tasks fit on the disk of pending/; None if unknown."""
    from engine.doctor.disk import free_units

    try:
        return min(free_units(setup.queue.pending).values(), default=None)
    except OSError:
        return None  # the unreadable folder is reported elsewhere


def _count_lost_mail(
    setup: Setup, heap: MailBacklog | str | None, payloads: Collection[str], now: float
) -> int:
    """Number of spooled mails without a task; searched only if there are more mails than tasks."""
    if not isinstance(heap, MailBacklog) or heap.mails <= len(payloads):
        return 0
    unnamed = [
        mail.meta
        for mail in setup.mail_spool().read_all()
        if isinstance(mail, Spooled) and mail.sent is None and mail.meta not in payloads
        if not 0 <= now - mail.created < QUEUING_GRACE_SECONDS
    ]
    return sum(os.path.exists(path) for path in unnamed)  # the others were sent during the scan


def _recorded_flow(setup: Setup, now: float) -> FlowHistory:
    """Throughput of the last minutes from the recording; empty if there is none."""
    from engine.monitor.recorded_history import RecordedHistory
    from engine.monitor.recorder import UnreadableRecording, read_samples

    try:
        return RecordedHistory(
            read_samples(setup.recorder_slot(), now - HISTORY_SECONDS, now), ""
        ).flow_until(now)
    except UnreadableRecording:
        return FlowHistory()  # the forecasts then show what is unknown


def _tokens(setup: Setup) -> tuple[BucketState, ...] | str:
    limits = setup.token_buckets()
    try:
        return () if limits is None else limits.read_states()
    except OSError as error:
        return error.strerror or str(error)


def _read_signs(setup: Setup) -> PlaceReadings:
    """Read lock, metrics and logs, as the console does."""
    queue = setup.queue
    place = Place(
        queue.root,
        setup.open_nftban,
        lock=setup.examine_lock,
        queue_metrics=queue.queue_metrics,
        mail_metrics=queue.mail_metrics,
        logs=(setup.log_path, f"{queue.log_dir}/mail.log"),
        mail=make_mail_desk(setup, []),
    )
    watch = PlaceWatcher(place)
    try:
        signs = watch.read_all()
        while signs.sending.is_reading:
            signs = watch.read_all()
    finally:
        watch.close()
    return signs


def _counted_before(
    setup: Setup, counts: Mapping[State, int]
) -> tuple[tuple[float, Mapping[State, int]], ...]:
    """The counts at the time of the metrics file, if no task has moved since; else nothing."""
    queue = setup.queue
    try:
        moved = max(os.stat(path).st_mtime for path in (queue.pending, queue.work, queue.dlq))
        written = os.stat(queue.queue_metrics).st_mtime
    except OSError:
        return ()
    return ((written, counts),) if moved < written else ()


def _as_text(setup: Setup, look: QueueStatus) -> list[str]:
    counts = "  ".join(f"{word} {number:,}" for word, number in look.counts.items())
    lines = [f"queue     {safe_line(os.path.dirname(setup.queue.pending))}", f"tasks     {counts}"]
    if look.counts["pending"]:
        lines.append(f"oldest    {_age(look.oldest)} pending")
    lines += _mail(look)
    lines.append(f"lock      {look.lock.verdict}: {safe_line(look.lock.reason)}")
    lines += [
        f"problem   {safe_line(where)}: {safe_line(what)}"
        for where, what, _ in look.problems[:SHOWN_PROBLEMS]
    ]
    if len(look.problems) > SHOWN_PROBLEMS:
        lines.append(f"          and {len(look.problems) - SHOWN_PROBLEMS:,} more")
    leads = ("forecast", *[""] * len(look.forecasts))
    lines += [
        f"{lead:<9} {each.sentence}" for lead, each in zip(leads, look.forecasts, strict=False)
    ]
    lines += [f"attention {alert.text}" for alert in look.alerts]
    return lines if look.alerts else [*lines, "OK        nothing needs attention"]


def _mail(look: QueueStatus) -> list[str]:
    """Lines about the mail spool and the suspended transports."""
    heap, lines = look.signs.sending.backlog, []
    if isinstance(heap, MailBacklog) and heap.mails:
        lines.append(f"mail      {heap.mails:,} spooled, the oldest for {_age(heap.oldest)}")
    elif isinstance(heap, str):
        lines.append(f"mail      ? {safe_line(heap)}")
    lines += [
        f"mail      {describe_suspension(stop)} (spooldeck mail resume {safe_line(stop.name)})"
        for stop in _stopped(look)
    ]
    return lines


def _stopped(look: QueueStatus) -> Sequence[TransportSuspension]:
    return [] if look.signs.routes is None else [*look.signs.routes.stopped.values()]


def _age(seconds: float) -> str:
    minutes = int(seconds) // 60
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {int(seconds) % 60} s"


def _as_json(setup: Setup, look: QueueStatus) -> str:
    import json

    heap = look.signs.sending.backlog
    lock = look.lock._asdict() | {"verdict": str(look.lock.verdict)}
    return json.dumps(
        {
            "queue": os.path.dirname(setup.queue.pending),
            "tasks": look.counts,
            "oldest_pending_age": look.oldest if look.counts["pending"] else None,
            "lock": lock,
            "mail": {
                "spooled": heap.mails if isinstance(heap, MailBacklog) else None,
                "oldest_age": heap.oldest if isinstance(heap, MailBacklog) and heap.mails else None,
                "without_task": look.lost,
                "suspended": [stop._asdict() for stop in _stopped(look)],
            },
            "problems": [{"where": p.where, "what": p.what} for p in look.problems],
            "attention": [alert.text for alert in look.alerts],
            "forecasts": as_row(look.forecasts),
        }
    )


def init(setup: Setup, arguments: Namespace) -> int:
    """Make the missing folders of a queue and print the next steps."""
    if setup.foreign_place is not None:
        title = setup.foreign_place.format.title
        fail(EX_UNAVAILABLE, f"{safe_line(setup.place)} is {title}: nothing was changed")
    queue = setup.queue
    if arguments.exclusive and queue.run_dir == RUN_DIR:
        text = f"{safe_line(queue.root)} is NFTBan's own data folder"
        fail(EX_USAGE, f"{text}: --exclusive is for a queue that no other program uses")
    made = make_spool(setup.spool_folders(), exclusive=arguments.exclusive)
    for path in (queue.run_dir, queue.log_dir, queue.counters, queue.mail_spool):
        if not os.path.isdir(path):
            setup.make_folder(path)
            made.append(path)
    if not made:
        print(f"{safe_line(queue.root)} is already a complete queue; nothing was changed")
    for path in made:
        print(f"made {safe_line(path)}")
    where = safe_line(arguments.place)
    print(
        f"next: spooldeck --root {where} queue add TYPE   adds a task\n"
        f"      spooldeck --root {where} queue work       runs tasks until stopped\n"
        f"      spooldeck {where}                         opens the console"
    )
    sys.stdout.flush()
    return 0
