"""Record samples of a queue while its worker runs, for the history of the console.

It has its own thread and store, so that no task waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from engine.locks.token_buckets import BucketState
from engine.model import State
from engine.monitor import prometheus
from engine.monitor.alerts import AlertInputs, find_alerts
from engine.monitor.metrics_check import MetricsReading
from engine.monitor.recorder import SAMPLE_INTERVAL_SECONDS, Recorder, RecorderStatus
from engine.monitor.sample_codec import RecordedSample, make_sample
from engine.monitor.throughput import FlowHistory
from engine.monitor.transport_health import WINDOWS, CountWindow, TransportHealth, read_totals
from engine.store import StoreError
from engine.stores.nftban import NftbanStore
from tui.cli.queue.spool import open_spool
from tui.cli.setup.errors import print_error
from tui.cli.setup.setup import Setup

SAMPLE_COST_FACTOR = 20
"""Between two samples, wait at least this many times as long as a sample took."""

_NO_WINDOWS = tuple(CountWindow(name, seconds, reason="not recorded") for name, seconds in WINDOWS)


class RecorderThread:
    """Records a sample each period until it is stopped."""

    def __init__(self, setup: Setup, clock: Callable[[], float] = time.time) -> None:
        self._setup, self._clock = setup, clock
        self._limits = setup.token_buckets()
        self._store: NftbanStore | None = None
        self._recorder = Recorder(setup.recorder_slot())
        self._flow = FlowHistory()
        self._gone = 0
        self._before: tuple[int, int] | None = None
        self._said = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._record, name="recorder", daemon=True)

    def start(self) -> None:
        """Start the thread; without one nothing is recorded."""
        try:
            self._thread.start()
        except RuntimeError as error:
            print_error(f"not recorded: {error}")

    def stop(self, patience: float) -> None:
        """Stop recording so that another process may record; wait up to `patience` seconds for a
        write.
        """
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(patience)

    def _record(self) -> None:
        rest = 0.0
        while not self._ended.wait(rest):
            began = time.monotonic()
            self._report_status(self._recorder.write(self.take_sample()))
            took = time.monotonic() - began
            # Aligned with the clock, so that samples have regular times.
            rest = max(
                SAMPLE_INTERVAL_SECONDS - self._clock() % SAMPLE_INTERVAL_SECONDS,
                SAMPLE_COST_FACTOR * took,
            )
        self._recorder.close()
        if self._store is not None:
            self._store.close()

    def _report_status(self, told: RecorderStatus) -> None:
        if told.message != self._said:
            self._said = told.message
            if told.message:
                print_error(told.message)

    def take_sample(self) -> RecordedSample:
        """Take a sample of the queue now."""
        now = self._clock()
        sight = AlertInputs(self._setup.queue.root, lock=self._setup.examine_lock())
        try:
            if self._store is None:
                self._store = open_spool(self._setup)
            counts, age = self._store.count_with_age(now)
        except (StoreError, OSError) as error:
            if self._store is not None:
                self._store.close()
                self._store = None
            return make_sample(sight._replace(unavailable=str(error)), now, "a worker")
        self._follow(now, counts)
        oldest = now - age if counts[State.PENDING] else None
        queue, mail = (
            _reading(path)
            for path in (self._setup.queue.queue_metrics, self._setup.queue.mail_metrics)
        )
        sight = sight._replace(
            states=self._store.states,
            counts=counts,
            complete=True,
            oldest=oldest,
            dead_growth=self._flow.grown(State.DEAD, now),
            queue=queue,
            earlier_counts=((now, counts),),
            transports=_transports(mail),
        )
        return make_sample(
            sight,
            now,
            "a worker",
            oldest=oldest,
            due=None if counts[State.PENDING] else 0,
            rates=self._flow.rates(now),
            alerts=find_alerts(sight, now, self._setup.config.alerts),
            tokens=self._tokens(),
        )

    def _follow(self, now: float, counts: dict[State, int]) -> None:
        """Derive the number of new tasks from the task count and the processed counter."""
        there, done = sum(counts.values()), self._done()
        if self._before is not None:
            self._gone += max(0, done - self._before[1])
        self._before = there, done
        self._flow.add(now, there + self._gone, self._gone, counts)

    def _done(self) -> int:
        try:
            return self._setup.counters().read("processed_total")
        except OSError:
            return 0  # the worker reports it

    def _tokens(self) -> tuple[BucketState, ...] | str:
        try:
            return () if self._limits is None else self._limits.read_states()
        except OSError as error:
            return error.strerror or str(error)


def _reading(path: str) -> MetricsReading:
    try:
        return prometheus.read_metrics(path) if path else None
    except OSError as error:
        return error.strerror or str(error)
    except prometheus.BadMetrics as error:
        return f"not understood: {error}"


def _transports(mail: MetricsReading) -> tuple[TransportHealth, ...]:
    if not isinstance(mail, prometheus.Samples):
        return ()
    return tuple(
        TransportHealth(name, tally, _NO_WINDOWS) for name, tally in read_totals(mail).items()
    )
