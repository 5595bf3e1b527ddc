"""Record samples of a queue while its worker runs, for the history of the console.

It has its own thread and store, so that no task waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from engine.destinations.watch import join
from engine.formats.base.format import Setup
from engine.formats.nftban.queue_folders import open_spool
from engine.formats.nftban.store import NftbanStore
from engine.locks.token_buckets import BucketState
from engine.model import State
from engine.monitor.alerts import GRACE_SECONDS, find_alerts, is_stalled
from engine.monitor.recorder import SAMPLE_INTERVAL_SECONDS, Recorder, RecorderStatus
from engine.monitor.sample_codec import RecordedSample, make_sample
from engine.monitor.throughput import Drain, FlowHistory, Trend
from engine.operations.journal import Operation
from engine.places.alert_facts import NO_TASKS, make_alert_inputs
from engine.places.place_watcher import PlaceWatcher
from engine.store import StoreError
from engine.system.command_errors import print_error
from tui.cli.queue.status import (
    ORDERED_SAMPLE_TASKS,
    TaskSummary,
    count_lost_mails,
    find_interrupted,
    read_operations,
    summarize_tasks,
    task_facts,
)
from tui.cli.setup.places import make_place

SAMPLE_COST_FACTOR = 20
"""Between two samples, wait at least this many times as long as a sample took."""


class RecorderThread:
    """Records a sample each period until it is stopped."""

    def __init__(self, setup: Setup, clock: Callable[[], float] = time.time) -> None:
        self._setup, self._clock = setup, clock
        self._place = make_place(setup, setup.place, setup.words)
        self._watch = PlaceWatcher(self._place, clock)
        self._store: NftbanStore | None = None
        self._recorder = Recorder(setup.recorder_slot())
        self._flow = FlowHistory()
        self._finished_count = 0
        self._operations: tuple[Operation, ...] = ()
        self._stamps: tuple[int, ...] = ()
        self._before: tuple[int, int] | None = None
        self._last_message = ""
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
        write."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(patience)

    def _record(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            began = time.monotonic()
            self._report_status(self._recorder.write(self.take_sample()))
            took = time.monotonic() - began
            # Aligned with the clock, so that samples have regular times.
            pause = max(
                SAMPLE_INTERVAL_SECONDS - self._clock() % SAMPLE_INTERVAL_SECONDS,
                SAMPLE_COST_FACTOR * took,
            )
        self.close()

    def close(self) -> None:
        """Close the place and its recording; the thread does it when it ends."""
        self._recorder.close()
        self._watch.close()
        if self._store is not None:
            self._store.close()

    def _report_status(self, status: RecorderStatus) -> None:
        if status.message != self._last_message:
            self._last_message = status.message
            if status.message:
                print_error(status.message)

    def take_sample(self) -> RecordedSample:
        """Take a sample of the queue now."""
        now, lost, tasks = self._clock(), 0, None
        try:
            if self._store is None:
                self._store = open_spool(self._setup)
            tasks = summarize_tasks(self._store, now, ORDERED_SAMPLE_TASKS)
            facts = task_facts(tasks)
            if facts.is_sample and (age := self._store.count_with_age(now)[1]):
                facts = facts._replace(oldest=now - age)
        except (StoreError, OSError) as error:
            if self._store is not None:
                self._store.close()
                self._store = None
            facts = NO_TASKS._replace(unavailable=str(error))
        readings = self._watch.read_all()  # after the count: it tells what has moved since
        if tasks is not None:
            self._follow(now, tasks.counts)
            with suppress(StoreError, OSError):  # the readings have why the spool is unreadable
                lost = count_lost_mails(self._place, tasks, readings, now)
        stamp = readings.journal_changed
        # Two changes within one clock tick have the same mtime: read once more after a change.
        if self._stamps != (stamp, stamp) or any(one.ended is None for one in self._operations):
            self._stamps = (*self._stamps[-1:], stamp)
            self._operations = read_operations(self._place, now)
        inputs = make_alert_inputs(
            self._place,
            readings,
            facts,
            active=None,
            dead_growth=self._flow.growth(State.DEAD, now),
            dead_clusters=None,
            counted=((now, facts.counts),),
            last_run=readings.last_run,
            free_since=None,
            free_grace=GRACE_SECONDS,
            unfinished=find_interrupted(self._operations, now),
            orphaned_mails=lost,
            destinations=join(readings.destinations, tasks and tasks.destinations),
        )
        own = RecordedSample(
            now,
            "a worker",
            oldest=facts.oldest,
            due=None if facts.is_sample else facts.due,
            rates=self._flow.rates(now),
            alerts=find_alerts(inputs, now, self._place.alerts),
            tokens=readings.tokens,
            drain=self._flow.drain(now),
            kinds=_waiting_kinds(tasks, readings.tokens),
        )
        if is_stalled(own.due, own.alerts, self._flow.is_without_output(now)):
            own = own._replace(drain=Drain(Trend.STALLED))
        return make_sample(inputs, own)

    def _follow(self, now: float, counts: Mapping[State, int]) -> None:
        """Derive the number of new tasks from the task count and the processed counter."""
        task_count, done = sum(counts.values()), self._done()
        if self._before is not None:
            self._finished_count += max(0, done - self._before[1])
        self._before = task_count, done
        self._flow.add(now, task_count + self._finished_count, self._finished_count, counts)

    def _done(self) -> int:
        try:
            return self._setup.counters().read("processed_total")
        except OSError:
            return 0  # the worker reports it


def _waiting_kinds(
    tasks: TaskSummary | None, tokens: Sequence[BucketState] | str
) -> Mapping[str, int] | None:
    """The pending tasks of each kind with a token bucket; None if not all of them were read."""
    if tasks is None or tasks.read is not None or isinstance(tokens, str):
        return None
    return {bucket.name: tasks.kinds.get(bucket.name, 0) for bucket in tokens}
