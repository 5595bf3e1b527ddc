"""How `replay` goes: its rate, canaries and stop rules from the command line, and how it stands."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from argparse import Namespace

from engine.logs import task_events
from engine.logs.recent_lines import Recent
from engine.model import State
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.replay import estimate
from engine.replay.log_event_reader import LogEventReader, finished_in
from engine.replay.outcome_poller import PlaceAccess
from engine.replay.progress import Phase, ReplayProgress
from engine.replay.replay import Replay, Result
from engine.replay.settings import FASTEST, SLOWEST, RemainderPolicy, ReplayPace, Stops, packed
from engine.replay.shared_rate import BUCKET
from engine.store import Store, StoreError
from engine.text.decode import digits
from engine.text.safe import shown
from tui.cli.plans import plan_command
from tui.cli.plans.plan_command import DONE, OTHERWISE, Interrupted
from tui.cli.setup.one_look import print_lines
from tui.cli.setup.setup import EX_UNAVAILABLE, EX_USAGE, Setup, complain, fail
from tui.session.running_operations import working

GLANCE = 0.25
"""Seconds between two looks at how it stands."""

SAYING = 1.0
"""Seconds between two lines about that, at least."""

USUAL = ReplayPace(attended=False)
"""Nobody is there to say whether to go on: a doubt stops it."""

_OPTIONS = ("rate", "canary", "stop_same", "stop_share", "stop_pending", "rest", "timeout")


def pace_of(arguments: Namespace) -> ReplayPace | None:
    """The pace that was asked for; None: all at once, and nothing is waited for.

    Raises:
        Fail: it cannot be meant.
    """
    rate = _rate(arguments.rate)
    if rate is None:
        return None
    usual = USUAL.stops
    stops = Stops(
        usual.same if arguments.stop_same is None else arguments.stop_same or None,
        *_share(arguments.stop_share),
        arguments.stop_pending,
        RemainderPolicy(arguments.rest),
    )
    canary = _canary(arguments.canary)
    return ReplayPace(rate, canary, float(arguments.timeout), stops, attended=False)


def words_of(arguments: Namespace) -> list[str]:
    """The options about the pace as they were typed."""
    given = ((f"--{name.replace('_', '-')}", getattr(arguments, name)) for name in _OPTIONS)
    usual = {"--rest": str(RemainderPolicy.STAY), "--timeout": USUAL.timeout}
    return [
        word
        for name, value in given
        if value not in (None, "", usual.get(name))
        for word in (name, f"{value:g}" if isinstance(value, float) else str(value))
    ]


_MOST = 10**6 - 1
"""The largest number of tasks of a canary, and of those that a share is counted of."""


def _rate(text: str) -> float | None:
    if text == "now":
        return None
    try:
        rate = float(text) if text else float(USUAL.rate or 0)
    except ValueError:
        rate = 0.0
    if not SLOWEST <= rate <= FASTEST:
        fail(
            EX_USAGE,
            f"--rate {shown(text[:40])}: expected tasks a second, up to {FASTEST:g}, or `now`",
        )
    return rate


def _canary(text: str) -> tuple[int, ...]:
    if text == "none":
        return ()
    sizes = [digits(size, _MOST) or 0 for size in text.split(",")] if text else USUAL.canary
    if not all(sizes):
        fail(EX_USAGE, f"--canary {shown(text[:40])}: expected numbers such as 1,10, or `none`")
    return tuple(sizes)


def _share(text: str) -> tuple[float | None, int]:
    usual = USUAL.stops
    if not text:
        return usual.share, usual.last
    if text == "none":
        return None, usual.last
    percent, _, last = text.partition("/")
    share, tasks = digits(percent, 100), digits(last or str(usual.last), _MOST)
    if share is None or not tasks:
        fail(
            EX_USAGE,
            f"--stop-share {shown(text[:40])}: expected percent/tasks such as 10/20, or `none`",
        )
    return share / 100, tasks


def forecast(setup: Setup, amount: int, pace: ReplayPace | None) -> tuple[tuple[str, str], ...]:
    """What is to be said of a pace before it begins."""
    if pace is None or amount < 2:
        return (("pace", "all at once; what becomes of them is not waited for"),)
    log, now = Recent(setup.log_path), time.time()
    told = task_events.read(log.poll(now))
    log.close()
    lock = setup.examine_lock() if setup.has_lock else None
    known = working(lock, tuple(told), time.time())
    return tuple(("pace", words) for words in estimate.forecast(amount, pace, known).sentences)


def run(setup: Setup, plan: Plan, intent: Intent, pace: ReplayPace, as_json: bool) -> int:
    """Carry a replay out, and say how it stands on standard error.

    A first Ctrl-C sends nothing more, and waits for what was sent; a second waits no longer.
    """
    waiting = _OutcomeWait(setup)
    hearing = LogEventReader(
        (setup.log_path, f"{setup.queue.log_dir}/mail.log", *setup.config.logs)
    )

    def close() -> None:
        hearing.close()
        waiting.close()

    replay = Replay(
        setup.store,
        plan,
        pace,
        journal=setup.journal(),
        intent=intent._replace(pace=packed(pace)),
        facts=PlaceAccess(hearing, finished_in(setup.queue.queue_metrics), waiting, close),
        buckets=f"{setup.desk}/{BUCKET}.buckets",
        root=setup.queue.root,
    )
    with Interrupted() as interrupted:
        replay.start()
        _follow(replay, interrupted)
    return _tell(setup, replay.result, as_json)


def _follow(replay: Replay, interrupted: Interrupted) -> None:
    orders = ("stop", "leave")
    pause, said, said_at = threading.Event(), "", float("-inf")
    given = 0
    while not replay.progress.is_over:
        pause.wait(GLANCE)
        times = interrupted.times  # may grow at any moment
        for order in orders[given:times]:
            replay.order(order)
            if order == "stop":
                complain("stopping: what was not sent stays; Ctrl-C again waits for no outcomes")
        given = times
        line, now = standing(replay.progress), time.monotonic()
        began = replay.progress.phase is not Phase.STARTING
        if began and line != said and (now - said_at >= SAYING or replay.progress.is_over):
            complain(line)
            said, said_at = line, now
    replay.close()  # it is over: this waits for its thread alone


def standing(progress: ReplayProgress) -> str:
    """How it stands, on one line."""
    tally = progress.tally
    parts = [f"{progress.sent:,} of {progress.planned - progress.excluded:,} sent"]
    counts = {
        "delivered": tally.delivered,
        "failed again": tally.failed,
        "running": tally.running,
        "waiting": tally.waiting,
        "unknown": tally.unknown,
        "taken elsewhere": tally.taken,
        "gone": progress.gone,
        "refused": progress.refused,
        "not sent": progress.rest if progress.stopped else 0,
        "held": progress.held,
    }
    parts += [f"{amount:,} {name}" for name, amount in counts.items() if amount]
    why = progress.stopped or progress.why
    more = [shown(words) for words in (why, progress.trouble) if words]
    return "; ".join([", ".join(parts), *more])


def _tell(setup: Setup, result: Result, as_json: bool) -> int:
    progress, report = result.progress, result.report
    if report is None:
        fail(EX_UNAVAILABLE, shown(progress.trouble or "the replay ended before it began"))
    tally = progress.tally
    became = {
        **tally._asdict(),
        "held": progress.held,
        "stopped": progress.stopped,
        "became": {ident: [str(known.fate), known.why] for ident, known in result.became.items()},
    }
    code = plan_command.tell(setup, report, as_json, {"outcome": became})
    if not as_json:
        width = shutil.get_terminal_size((100, 24)).columns
        print_lines([((f" {standing(progress)}"[:width], ""),)])
    sys.stdout.flush()
    well = not tally.failed and not progress.stopped and progress.phase is Phase.OVER
    return code if code != DONE or well else OTHERWISE


class _OutcomeWait:
    """Counts what waits in a queue, for a stop rule; on the replay's thread alone."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._store: Store | None = None

    def __call__(self) -> int | None:
        """How many tasks; None while that cannot be counted."""
        try:
            if self._store is None:
                self._store = self._setup.store()
            return self._setup.counts(self._store)[State.PENDING]
        except StoreError:
            return None

    def close(self) -> None:
        """Let go of the queue."""
        if self._store is not None:
            self._store.close()
