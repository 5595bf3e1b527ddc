"""Learn of changed jobs: one blocking XREAD over the event streams of all queues, and counts.

A worker without jobs waits for the markers of its queues (BZPOPMIN), as BullMQ's own workers do.
Some of BullMQ's commands (drain, clean, obliterate) name no job. So once a second a script counts
the jobs in each place; a change that is larger than the number of named jobs means a scan.
"""

from __future__ import annotations

import base64
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from engine.formats.bullmq.connection import Connection, Denied
from engine.formats.bullmq.place import RedisPlace, task_id
from engine.formats.bullmq.row import PLACES, STATES
from engine.formats.bullmq.scan import KnownQueues, QueueCounts
from engine.model import TaskCounts
from engine.store import StoreError, Unavailable

COUNT_SECONDS = 1.0
"""Seconds between two counts."""
BLOCK_MS = 5000
"""Milliseconds after which the server ends an XREAD that found nothing."""
GRACE_SECONDS = 0.05
"""Seconds within which the entries of a counted change arrive on the other connection."""
ENTRIES_PER_READ = 2000
"""Stream entries that one XREAD returns of each stream."""
MAX_ENTRIES = 50_000
"""Stream entries that one XREAD returns of all streams: an entry has about 20 lines."""
MARKER_BLOCK_SECONDS = 10
"""Seconds after which a queue is asked for a job even without a marker: a worker that took one may
have been killed."""
STOP_CHECK_SECONDS = 0.5
"""Seconds within which the threads of a `MarkerWatch` notice that it was stopped."""
RETRY_SECONDS = 1.0
"""Seconds between two attempts to connect."""
_START = "0-0"
_LAST_NUMBER = 2**64 - 1
"""The largest second half of an entry's id."""


class ChangeFeed:
    """The changes of a place since this object was made, on the connection of one store."""

    def __init__(self, connection: Connection, place: RedisPlace, queues: KnownQueues) -> None:
        self._connection, self._place, self._known = connection, place, queues
        try:
            seconds, microseconds = connection.call("TIME")
        except Denied:
            seconds, microseconds = time.time(), 0
        self._master = connection.master
        self._opened = f"{int(seconds) * 1000 + int(microseconds) // 1000 - 1}-{_LAST_NUMBER}"
        """The newest entry that a stream can have had before; the server's clock numbers them."""
        self._queues: list[str] = []
        self._last: dict[str, str] = {}
        """The last entry read of each stream; empty before the first wait."""
        self._queue_of: dict[str, str] = {}
        self._counts = QueueCounts(connection, place, [])
        self._named: dict[str, set[str]] = {}
        """Jobs of each queue that were named since the last count."""
        self._is_waiting = False
        """True while the server has our XREAD."""
        self._count_due = time.monotonic() + COUNT_SECONDS
        self._is_new_named = False

    def counts(self) -> TaskCounts | None:
        """What was counted last; None before the first `wait`."""
        return self._counts.total if self._last else None

    def wait(self, seconds: float) -> Collection[str] | None:
        """See `ChangeSource.wait`.

        Raises:
            Unavailable: the server cannot be reached, or the master is another one: read all again.
        """
        if not self._last:
            self._start()
        if self._connection.master != self._master:
            # Its streams may lack entries that were read, and number new ones before them.
            new = f"the master is {self._connection.master} now, before {self._master}"
            raise Unavailable(f"{self._place.text}: {new}")
        until = time.monotonic() + seconds
        names: set[str] = set()
        while True:
            now = time.monotonic()
            changed_names = self._read(max(0.0, min(until, self._count_due) - now))
            if changed_names is None:
                return None
            names |= changed_names
            if time.monotonic() >= self._count_due:
                more = self._compare_counts()
                if more is None:
                    return None
                names |= more
            if names or time.monotonic() >= until:
                return names

    def _start(self) -> None:
        """Find the queues, and where their streams were when this object was made."""
        self._queues = self._known.names(fresh=True)
        self._counts = QueueCounts(self._connection, self._place, self._queues)
        self._add_streams({self._place.stream: ""} | self._streams_of(self._queues))

    def _streams_of(self, queues: Iterable[str]) -> dict[str, str]:
        return {f"{self._place.base(queue)}events": queue for queue in queues}

    def _add_streams(self, streams: Mapping[str, str]) -> None:
        asked = [("XREVRANGE", stream, self._opened, "-", "COUNT", 1) for stream in streams]
        answers = self._connection.call_all(asked) if asked else []
        for (stream, queue), answer in zip(streams.items(), answers, strict=True):
            if not isinstance(answer, Denied):  # one that the user may not read hides the others
                self._last[stream] = _entry_id(answer) or _START
                self._queue_of[stream] = queue

    def _read(self, seconds: float) -> set[str] | None:
        """The names in new entries, waiting for the first; None if entries may be missing.

        The server's wait goes on from one call to the next, so that short waits cost no commands.
        """
        try:
            if not self._is_waiting:
                count = max(10, min(ENTRIES_PER_READ, MAX_ENTRIES // max(1, len(self._last))))
                words = ("XREAD", "BLOCK", BLOCK_MS, "COUNT", count, "STREAMS")
                self._connection.begin(*words, *self._last, *self._last.values())
                self._is_waiting = True
            if not self._connection.is_ready(seconds):
                return set()
            self._is_waiting = False
            answer = self._connection.finish()
        except StoreError:
            self._is_waiting = False
            raise
        if not answer:
            return set()
        streams: dict[str, list[Any]] = dict(answer)
        has_gap = self._has_gap([*streams])
        names: set[str] = set()
        for stream, entries in streams.items():
            self._last[stream] = entries[-1][0]
            for _, fields in entries:
                names |= self._name_of(stream, fields)
        return None if has_gap else names

    def _has_gap(self, streams: Sequence[str]) -> bool:
        """True if a stream's first entry is newer than the last one read: some were trimmed."""
        asked = [("XRANGE", stream, "-", "+", "COUNT", 1) for stream in streams]
        for stream, answer in zip(streams, self._connection.call_all(asked), strict=True):
            last, first = self._last[stream], _entry_id(answer)
            if last != _START and _as_numbers(first) > _as_numbers(last):
                return True
        return False

    def _name_of(self, stream: str, fields: Any) -> set[str]:
        is_flat = not isinstance(fields, dict)
        event = dict(zip(fields[::2], fields[1::2], strict=True)) if is_flat else fields
        queue = self._queue_of[stream] or event.get("queue", "")
        job = event.get("jobId") or event.get("id")
        if not queue or not job:
            return set()
        if queue not in self._counts.queues:
            self._is_new_named = True  # in our own stream
        name = task_id(queue, job)
        self._named.setdefault(queue, set()).add(name)
        return {name}

    def _compare_counts(self) -> set[str] | None:
        """The words of states that changed more than was named; None if jobs went without a name.

        The counts are read before the last entries, so that each counted move is named.
        """
        before = self._counts
        self._counts = QueueCounts(self._connection, self._place, self._queues)
        has_changed = before.queues != self._counts.queues
        names = self._read(GRACE_SECONDS if has_changed else 0.0)
        named, self._named = self._named, {}
        self._count_due = time.monotonic() + COUNT_SECONDS
        if names is None:
            return None
        for queue, numbers in self._counts.queues.items():
            most = len(named.get(queue, ()))
            change = Counter(numbers)
            change.subtract(before.queues.get(queue, {}))
            if min(change.values()) < -most:
                return None
            names |= {STATES[PLACES[n].state] for n, more in change.items() if more > most}
        return names if self._find_new_queues() else None

    def _find_new_queues(self) -> bool:
        """Look for new queues every few seconds; False if there is one, or one has gone."""
        queue_names = self._known.names(fresh=self._is_new_named)
        self._is_new_named = False
        if queue_names == self._queues:
            return True
        added = (queue for queue in queue_names if queue not in self._queues)
        self._add_streams(self._streams_of(added))
        for queue in set(self._queues).difference(queue_names):
            stream = f"{self._place.base(queue)}events"
            self._last.pop(stream, None)
            self._queue_of.pop(stream, None)
        self._queues = queue_names
        self._counts = QueueCounts(self._connection, self._place, queue_names)
        return False


def _entry_id(answer: Any) -> str:
    return "" if isinstance(answer, StoreError) or not answer else str(answer[0][0])


def _as_numbers(entry: str) -> tuple[int, ...]:
    return tuple(int(number) for number in entry.split("-")) if entry else (0, 0)


def client_name(place: RedisPlace, queue: str, worker: str) -> str:
    """The name that BullMQ's workers give their connections, so that all programs count them."""
    return f"{place.prefix}:{base64.b64encode(queue.encode()).decode()}:w:{worker}"


class MarkerWatch:
    """Waits for jobs of each queue from which a worker could claim none, on one connection for
    each queue; the connections have the name of the worker.

    A marker that comes while the worker is busy is put back, so that another worker takes the job.
    """

    def __init__(
        self, place: RedisPlace, queues: Sequence[str], worker: str, wake: Callable[[], None]
    ) -> None:
        self._waits = {queue: _MarkerWait(place, queue, worker, wake) for queue in queues}
        self._threads = [
            threading.Thread(target=wait.run, name=f"marker {queue}", daemon=True)
            for queue, wait in self._waits.items()
        ]

    def start(self) -> None:
        """Start a thread for each queue."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop watching; waits until no marker can be taken any more, `STOP_CHECK_SECONDS` if the
        server answers."""
        for wait in self._waits.values():
            wait.stop()
        for thread in self._threads:
            thread.join(2 * STOP_CHECK_SECONDS)

    def is_resting(self, queue: str) -> bool:
        """True if no job can be claimed until the queue has a marker."""
        return queue in self._waits and self._waits[queue].is_resting

    def start_rest(self, queue: str) -> None:
        """Wait for a marker of a queue, then wake the worker."""
        if queue in self._waits:
            self._waits[queue].start_rest()

    def end_rest(self, queue: str) -> None:
        """Do not wake the worker for a queue."""
        if queue in self._waits:
            self._waits[queue].end_rest()


class _MarkerWait:
    """One queue of a `MarkerWatch`, and its thread."""

    def __init__(
        self, place: RedisPlace, queue: str, worker: str, wake: Callable[[], None]
    ) -> None:
        self._place, self._name = place, client_name(place, queue, worker)
        self._key, self._wake = f"{place.base(queue)}marker", wake
        self._changed = threading.Condition()
        self._is_stopped = False
        self.is_resting = False

    def start_rest(self) -> None:
        with self._changed:
            self.is_resting = True
            self._changed.notify()

    def end_rest(self) -> bool:
        """True if it was resting."""
        with self._changed:
            was_resting, self.is_resting = self.is_resting, False
            return was_resting

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify()

    def run(self) -> None:
        """Wait for markers until stopped; connect again after each error."""
        while not self._is_stopped:
            try:
                connection = Connection(self._place, self._name)
            except StoreError:
                self._pause()
                continue
            try:
                while self._await_rest():
                    self._pass_on(connection)
            except StoreError:
                self._pause()
            finally:
                connection.close()

    def _pause(self) -> None:
        """Let the worker find out itself, until the server may be there again."""
        if self.end_rest():
            self._wake()
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped, RETRY_SECONDS)

    def _await_rest(self) -> bool:
        """False if stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_resting or self._is_stopped)
            return not self._is_stopped

    def _pass_on(self, connection: Connection) -> None:
        """Take one marker and wake the worker, or put it back if it no longer waits for one."""
        connection.begin("BZPOPMIN", self._key, MARKER_BLOCK_SECONDS)
        while not connection.is_ready(0.0 if self._is_stopped else STOP_CHECK_SECONDS):
            if self._is_stopped:
                return
        marker = connection.finish()
        if self.end_rest() and not self._is_stopped:
            self._wake()
        elif marker:
            _, member, score = marker
            connection.begin("ZADD", self._key, score, member)
            connection.finish()
