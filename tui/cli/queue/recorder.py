"""What a worker writes down of its queue while it runs: the flight recorder of whoever comes later.

It has a thread and a store of its own, so that no task ever waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from engine.locks.token_buckets import Left
from engine.model import State
from engine.monitor import prometheus
from engine.monitor.alerts import AlertInputs, alerts
from engine.monitor.metrics_check import Reading
from engine.monitor.recorder import PERIOD, Recorder, RecorderStatus
from engine.monitor.sample_codec import RecordedSample, sample
from engine.monitor.throughput import Flow
from engine.monitor.transport_health import WINDOWS, CountWindow, TransportHealth, totals
from engine.store import StoreError
from engine.stores.nftban import NftbanStore
from tui.cli.setup.setup import Setup, complain

SPARING = 20
"""It rests at least so many times as long as looking took: that grows with what waits."""

_NO_WINDOWS = tuple(CountWindow(name, seconds, reason="not recorded") for name, seconds in WINDOWS)


class Flight:
    """Records until it is told to stop."""

    def __init__(self, setup: Setup, clock: Callable[[], float] = time.time) -> None:
        self._setup, self._clock = setup, clock
        self._limits = setup.limits()
        self._store: NftbanStore | None = None
        self._recorder = Recorder(setup.recording())
        self._flow = Flow()
        self._gone = 0
        self._before: tuple[int, int] | None = None
        self._said = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._record, name="recorder", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, patience: float) -> None:
        """Let somebody else record; waits so many seconds for what is being written."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(patience)

    def _record(self) -> None:
        rest = 0.0
        while not self._ended.wait(rest):
            began = time.monotonic()
            self._tell(self._recorder.write(self.look()))
            took = time.monotonic() - began
            # With the clock, so that each period has its moment.
            rest = max(PERIOD - self._clock() % PERIOD, SPARING * took)
        self._recorder.close()
        if self._store is not None:
            self._store.close()

    def _tell(self, told: RecorderStatus) -> None:
        if told.words != self._said:
            self._said = told.words
            if told.words:
                complain(told.words)

    def look(self) -> RecordedSample:
        """How the queue is now."""
        now = self._clock()
        sight = AlertInputs(self._setup.queue.root, lock=self._setup.examine_lock())
        try:
            if self._store is None:
                self._store = self._setup.open()
            counts, age = self._store.figures(now)
        except (StoreError, OSError) as error:
            if self._store is not None:
                self._store.close()
                self._store = None
            return sample(sight._replace(unavailable=str(error)), now, "a worker")
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
            before=((now, counts),),
            transports=_transports(mail),
        )
        return sample(
            sight,
            now,
            "a worker",
            oldest=oldest,
            due=None if counts[State.PENDING] else 0,
            rates=self._flow.rates(now),
            alerts=alerts(sight, now, self._setup.config.alerts),
            tokens=self._tokens(),
        )

    def _follow(self, now: float, counts: dict[State, int]) -> None:
        """Tell what came from what is there and what was done: nobody counts what comes."""
        there, done = sum(counts.values()), self._done()
        if self._before is not None:
            self._gone += max(0, done - self._before[1])
        self._before = there, done
        self._flow.add(now, there + self._gone, self._gone, counts)

    def _done(self) -> int:
        try:
            return self._setup.counters().read("processed_total")
        except OSError:
            return 0  # the worker itself complains of it

    def _tokens(self) -> tuple[Left, ...] | str:
        try:
            return () if self._limits is None else self._limits.left()
        except OSError as error:
            return error.strerror or str(error)


def _reading(path: str) -> Reading:
    try:
        return prometheus.read(path) if path else None
    except OSError as error:
        return error.strerror or str(error)
    except prometheus.BadMetrics as error:
        return f"not understood: {error}"


def _transports(mail: Reading) -> tuple[TransportHealth, ...]:
    if not isinstance(mail, prometheus.Samples):
        return ()
    return tuple(TransportHealth(name, tally, _NO_WINDOWS) for name, tally in totals(mail).items())
