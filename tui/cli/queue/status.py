"""`status`, one plain look at a queue, and `init`, which makes one."""

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
from engine.locks.token_buckets import Left
from engine.mail.send.mail_spool import Spooled
from engine.model import LockEvidence, Problem, State, Task
from engine.monitor.alerts import Alert, AlertInputs, Blocked, alerts
from engine.monitor.forecast import Basis, Forecast, as_row, expected
from engine.monitor.throughput import SPAN, Flow
from engine.monitor.transport_health import MailBacklog, Stopped, stopped_words
from engine.store import Unavailable
from engine.stores.nftban import make_spool
from engine.text.safe import shown
from tui.cli.setup.mail_controls import mail_desk
from tui.cli.setup.mail_parts import ON_ITS_WAY, SEND
from tui.cli.setup.setup import EX_UNAVAILABLE, EX_USAGE, Setup, complain, fail
from tui.session.place import Place
from tui.session.place_watcher import PlaceWatcher, Signs

WELL, ATTENTION, UNREADABLE = 0, 1, 2
SHOWN_PROBLEMS = 10


class QueueStatus(NamedTuple):
    """What one look at a queue found."""

    counts: dict[str, int]
    """Tasks by the store's own words."""
    oldest: float
    """Seconds since the oldest pending task was created."""
    lock: LockEvidence
    problems: list[Problem]
    alerts: tuple[Alert, ...]
    """What somebody should see to; empty when all is well."""
    forecasts: tuple[Forecast, ...]
    signs: Signs
    lost: int
    """Spooled mails that no task sends."""


def status(setup: Setup, arguments: Namespace) -> int:
    """Say how a queue is; exit 0 well, 1 needs attention, 2 cannot be read."""
    if setup.site is not None:
        from tui.cli.queue import status_other

        return status_other.status(setup, arguments.json)
    try:
        look = _look(setup)
    except Unavailable as error:
        complain(str(error))
        return UNREADABLE
    if arguments.json:
        print(_as_json(setup, look))
    else:
        print("\n".join(_as_text(setup, look)))
    return ATTENTION if look.alerts else WELL


def _look(setup: Setup) -> QueueStatus:
    now = time.time()
    store = setup.open()
    counts: dict[State, int] = dict.fromkeys(store.states, 0)
    oldest: float | None = None
    due: list[float] = []
    died: list[float] = []
    kinds: Counter[str] = Counter()
    due_kinds: dict[str, list[float]] = {}
    payloads: set[str] = set()
    problems: dict[str, Problem] = {}
    try:
        # By the states' words: without the peek, so that each task comes once.
        for found in store.look(store.states.values()):
            if isinstance(found, Task):
                counts[found.state] += 1
                if found.kind == SEND:
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
        problems |= {problem.where: problem for problem in store.misplaced()}
    finally:
        store.close()
    signs = _signs(setup)
    lock = signs.lock or setup.examine_lock()
    lost = _lost(setup, signs.sending.heap, payloads, now)
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
        before=_counted_before(setup, counts),
        transports=tuple(way for way in signs.sending.transports if way.spoken_of),
        ran=signs.ran,
        routes=signs.routes,
        lost=lost,
        blocked=tuple(_blocked(setup, due_kinds, signs)),
        room=_room(setup),
    )
    words = {store.states[state]: number for state, number in counts.items()}
    age = max(0.0, now - oldest) if oldest is not None else 0.0
    found_alerts = alerts(sight, now, setup.config.alerts)
    past = _past(setup, now)
    growth = past.growth(State.DEAD, now)
    first = min(died, default=None)
    known = Basis(counts, store.states, past.drain(now), growth, first, _tokens(setup), kinds)
    forecasts = expected(known, setup.config.alerts, setup.queue.retention_days, now)
    found_problems = list(problems.values())
    return QueueStatus(words, age, lock, found_problems, found_alerts, forecasts, signs, lost)


def _blocked(setup: Setup, due: Mapping[str, Sequence[float]], signs: Signs) -> Iterator[Blocked]:
    """Yield the kinds of due tasks that no worker with this configuration would claim.

    `due` has the creation times of due tasks by kind. A suspended transport has its own alert, and
    a kind without a token is only delayed.
    """
    waits = signs.routes is not None and signs.routes.waits
    for kind, created in due.items():
        if not setup.handled(kind):
            yield Blocked(kind, len(created), min(created), "no handler")
        elif kind == SEND and not waits:
            why, token_at = setup.mailing().gate(kind)
            if why and token_at is None:
                yield Blocked(kind, len(created), min(created), "no transport")


def _room(setup: Setup) -> int | None:
    """How many more tasks fit on the disk of pending/; None where that is not known."""
    from engine.doctor.disk import free

    try:
        return min(free(setup.queue.pending).values(), default=None)
    except OSError:
        return None  # that the folder cannot be read is reported by itself


def _lost(
    setup: Setup, heap: MailBacklog | str | None, payloads: Collection[str], now: float
) -> int:
    """Spooled mails that no task sends; looked for only where there are more mails than tasks."""
    if not isinstance(heap, MailBacklog) or heap.mails <= len(payloads):
        return 0
    unnamed = [
        mail.meta
        for mail in setup.mail_spool().letters()
        if isinstance(mail, Spooled) and mail.sent is None and mail.meta not in payloads
        if not 0 <= now - mail.created < ON_ITS_WAY
    ]
    return sum(os.path.exists(path) for path in unnamed)  # else sent while we looked


def _past(setup: Setup, now: float) -> Flow:
    """How it went in the last minutes, as far as somebody has recorded it."""
    from engine.monitor.recorded_history import RecordedHistory
    from engine.monitor.recorder import UnreadableRecording, recorded

    try:
        return RecordedHistory(recorded(setup.recording(), now - SPAN, now), "").lately(now)
    except UnreadableRecording:
        return Flow()  # the forecasts say what is not known then


def _tokens(setup: Setup) -> tuple[Left, ...] | str:
    limits = setup.limits()
    try:
        return () if limits is None else limits.left()
    except OSError as error:
        return error.strerror or str(error)


def _signs(setup: Setup) -> Signs:
    """Lock, metrics and logs, as the console looks at them."""
    queue = setup.queue
    place = Place(
        queue.root,
        setup.open,
        lock=setup.examine_lock,
        queue_metrics=queue.queue_metrics,
        mail_metrics=queue.mail_metrics,
        logs=(setup.log_path, f"{queue.log_dir}/mail.log"),
        mail=mail_desk(setup, []),
    )
    watch = PlaceWatcher(place)
    try:
        signs = watch.look()
        while signs.sending.reading:
            signs = watch.look()
    finally:
        watch.close()
    return signs


def _counted_before(
    setup: Setup, counts: Mapping[State, int]
) -> tuple[tuple[float, Mapping[State, int]], ...]:
    """What was there when the metrics were written, where nothing has moved since then."""
    queue = setup.queue
    try:
        moved = max(os.stat(path).st_mtime for path in (queue.pending, queue.work, queue.dlq))
        written = os.stat(queue.queue_metrics).st_mtime
    except OSError:
        return ()
    return ((written, counts),) if moved < written else ()


def _as_text(setup: Setup, look: QueueStatus) -> list[str]:
    counts = "  ".join(f"{word} {number:,}" for word, number in look.counts.items())
    lines = [f"queue     {shown(os.path.dirname(setup.queue.pending))}", f"tasks     {counts}"]
    if look.counts["pending"]:
        lines.append(f"oldest    {_age(look.oldest)} pending")
    lines += _mail(look)
    lines.append(f"lock      {look.lock.verdict}: {shown(look.lock.reason)}")
    lines += [
        f"problem   {shown(where)}: {shown(what)}"
        for where, what, _ in look.problems[:SHOWN_PROBLEMS]
    ]
    if len(look.problems) > SHOWN_PROBLEMS:
        lines.append(f"          and {len(look.problems) - SHOWN_PROBLEMS:,} more")
    leads = ("forecast", *[""] * len(look.forecasts))
    lines += [
        f"{lead:<9} {each.sentence}" for lead, each in zip(leads, look.forecasts, strict=False)
    ]
    lines += [f"attention {alert.words}" for alert in look.alerts]
    return lines if look.alerts else [*lines, "well      nothing needs attention"]


def _mail(look: QueueStatus) -> list[str]:
    """What lies in the mail spool, and which transports are suspended; nothing where none is."""
    heap, lines = look.signs.sending.heap, []
    if isinstance(heap, MailBacklog) and heap.mails:
        lines.append(f"mail      {heap.mails:,} spooled, the oldest for {_age(heap.oldest)}")
    elif isinstance(heap, str):
        lines.append(f"mail      ? {shown(heap)}")
    lines += [
        f"mail      {stopped_words(stop)} (spooldeck mail resume {shown(stop.name)})"
        for stop in _stopped(look)
    ]
    return lines


def _stopped(look: QueueStatus) -> Sequence[Stopped]:
    return [] if look.signs.routes is None else [*look.signs.routes.stopped.values()]


def _age(seconds: float) -> str:
    minutes = int(seconds) // 60
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {int(seconds) % 60} s"


def _as_json(setup: Setup, look: QueueStatus) -> str:
    import json

    heap = look.signs.sending.heap
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
            "attention": [alert.words for alert in look.alerts],
            "forecasts": as_row(look.forecasts),
        }
    )


def init(setup: Setup, arguments: Namespace) -> int:
    """Make the folders of a queue that are missing, and say what to do next."""
    if setup.site is not None:
        title = setup.site.format.title
        fail(EX_UNAVAILABLE, f"{shown(setup.place)} is {title}: nothing was made")
    queue = setup.queue
    if arguments.exclusive and queue.run_dir == RUN_DIR:
        said = f"{shown(queue.root)} is NFTBan's own data folder"
        fail(EX_USAGE, f"{said}: --exclusive is for a queue that no other program uses")
    made = make_spool(setup.spool(), exclusive=arguments.exclusive)
    for path in (queue.run_dir, queue.log_dir, queue.counters, queue.mail_spool):
        if not os.path.isdir(path):
            setup.make_folder(path)
            made.append(path)
    if not made:
        print(f"{shown(queue.root)} has everything a queue needs; nothing was changed")
    for path in made:
        print(f"made {shown(path)}")
    where = shown(arguments.place)
    print(
        f"next: spooldeck --root {where} queue add TYPE   adds a task\n"
        f"      spooldeck --root {where} queue work       handles tasks until stopped\n"
        f"      spooldeck {where}                         opens the console"
    )
    sys.stdout.flush()
    return 0
