"""Moments of a queue to be recorded: what is named matters, the rest is an ordinary day."""

from pathlib import Path

from engine.formats.base.memory import MemoryStore
from engine.locks.token_buckets import BucketState
from engine.model import LockEvidence, State, Verdict
from engine.monitor.alerts import GRACE_SECONDS, Alert, AlertKind, Goal, Level, Where
from engine.monitor.recorder import RecorderLocation
from engine.monitor.sample_codec import RecordedSample, make_sample
from engine.monitor.throughput import Rates
from engine.monitor.transport_health import WINDOWS, CountWindow, DeliveryCounts, TransportHealth
from engine.places.alert_facts import NO_TASKS, make_alert_inputs
from engine.places.place import Place
from engine.places.place_watcher import PlaceReadings

NOW = 1_795_167_728.0
WORDS = {State.PENDING: "pending", State.ACTIVE: "work", State.HELD: "held", State.DEAD: "dlq"}

NOTHING_KNOWN = make_alert_inputs(
    Place("", MemoryStore),
    PlaceReadings(),
    NO_TASKS,
    active=None,
    dead_growth=None,
    dead_clusters=None,
    counted=(),
    last_run=None,
    free_since=None,
    free_grace=GRACE_SECONDS,
    unfinished=(),
    orphaned_mails=0,
    destinations=(),
)
"""The facts about a place of which nothing was read."""


def a_way(name: str, failed: int = 0) -> TransportHealth:
    """A transport that sent ten mails in each window."""
    tally, all_time = (
        DeliveryCounts(10 + failed, 10, failed),
        DeliveryCounts(1200, 1180, 20 + failed),
    )
    windows = tuple(CountWindow(window, seconds, tally) for window, seconds in WINDOWS)
    return TransportHealth(name, all_time, windows, (), last_success=NOW - 3, last_failure=None)


def an_alert(words: str = "12 dead, +12 in 10m") -> Alert:
    """Something that deserves a look."""
    goal = Goal("mail.out", Where.STATE, State.DEAD)
    return Alert(Level.WARN, AlertKind.GROWING, words, NOW - 600, goal)


def a_sample(
    when: float = NOW, pending: int = 40, dead: int = 12, **fields: object
) -> RecordedSample:
    """A queue at a moment."""
    counts = {State.PENDING: pending, State.ACTIVE: 1, State.HELD: 0, State.DEAD: dead}
    lock = LockEvidence(Verdict.HELD, 4711, when - 3, 3, "PID 4711 is running")
    inputs = NOTHING_KNOWN._replace(name="mail.out", states=WORDS, counts=counts, complete=True)
    inputs = inputs._replace(lock=lock, transports=(a_way("postfix"),))
    own = RecordedSample(when, "a worker", oldest=when - 3600, due=30, died=when - 86400)
    tokens = (BucketState("mail_send", 3, 5, when + 21, 60),)
    own = own._replace(rates=Rates(1.5, 2.25), alerts=(an_alert(),), tokens=tokens)
    own = own._replace(kinds={"mail_send": 12})
    return make_sample(inputs, own)._replace(**fields)  # type: ignore[arg-type]


def a_spot(folder: Path) -> RecorderLocation:
    """Where a spool in this folder is recorded."""
    (folder / "queue" / "pending").mkdir(parents=True, exist_ok=True)
    return RecorderLocation(f"{folder}/queue/.spooldeck/recorder", f"{folder}/queue/pending")
