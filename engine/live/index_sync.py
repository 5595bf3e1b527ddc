"""Keep an index in sync with its store: a full scan, then lookups of changed names.

One thread with two instances of the store: one for full scans, one to look up single names in
between, so that changes during a long scan appear immediately. A store that can do both in turns
gets one instance (`ChangeSource.can_interleave`)."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue

from engine.index.schema import CHUNK_ROWS
from engine.index.writer import IndexDelta, Writer
from engine.live.folder_watch import FolderWatch, SharedParts
from engine.model import (
    AttemptLimit,
    Edges,
    Missing,
    Problem,
    State,
    Task,
    TaskCounts,
)
from engine.store import Control, ReadableStore, Unavailable
from engine.system.temp_dir import TempDir
from engine.text.error_text import error_text
from engine.values import NamedTuple

FIRST_BATCH_ROWS = 100
"""Rows in a transaction at the beginning of a full scan, so that the first appear immediately."""
SMALL_BATCH_ROWS = 600
"""Rows at the beginning of a full scan that are written in these small transactions."""
MAX_BATCH_SECONDS = 0.05
"""Seconds after which rows are written, however few."""
RETRY_SECONDS = 1.0
"""Seconds until an unavailable store is tried again."""
WATCH_START_TIMEOUT_SECONDS = 1.0
"""Seconds to wait until the folder watch is ready."""
FIRST_COUNTS_SECONDS = 10.0
"""Seconds for which the first scan waits for the counts of the store: both visit all keys of a
server, and together take much longer."""
PROBLEMS_PER_SECOND = 200
"""Problems that are looked up again each second."""
DEPARTURE_DELAY_SECONDS = 0.25
"""Seconds that a task must be missing to count as departed: before that, it may be between two
states."""
IDLE_SCAN_COST_FACTOR = 100
"""Minimum time to a full scan that no event requested, in multiples of the last scan's cost and of
the number of places: together they take 1 % of a core, or of a server. The cost is the CPU time, or
`ChangeSource.scan_cost` if that is more."""
SCAN_COST_FACTOR = 4
"""Minimum time to a full scan that a change source requested, in multiples of the same."""
RECHECK_SECONDS = 5.0
"""Seconds after which the visible rows are looked up again: a rewrite in place causes no event, and
the store's edges can change with time."""
HIDDEN_RECHECK_SECONDS = 30.0
"""The same while no screen shows the place alone, and so none of its rows."""
RECHECK_COST_FACTOR = 400
"""Minimum time to that, in multiples of the lookup's CPU time."""
MAX_LOOKUP_ROWS = 5_000
"""The most rows of looked up names that are written in one transaction."""
MAX_CHANGED_NAMES = 20_000
"""With more changed names than this waiting, a full scan is cheaper."""
CHEAP_SCAN_SECONDS = 0.25
"""A full scan of this cost, in seconds of CPU, is not replaced by a comparison of revisions."""

Found = Task | Missing | Problem


def scan_all(store: ReadableStore) -> Iterator[Found]:
    """Everything that a store has: what a full scan reads unless its caller needs less."""
    return store.scan()


class IndexChanged(NamedTuple):
    """The content of a store, as far as its index has it."""

    generation: int = 0
    """Grows with each visible change."""
    counts: Mapping[State, int] = {}
    problems: int = 0
    is_complete: bool = False
    """True if a full scan has ended at least once."""
    is_counted: bool = False
    """True if `counts` are of all tasks: after a full scan, or as the store has counted them."""
    unavailable: str = ""
    """Why the store cannot be reached now; "" if it can."""
    appeared: int = 0
    """Tasks that have entered the store since the first full scan ended."""
    departed: int = 0
    """Tasks that have left it since then."""
    died: int = 0
    """Tasks that have come into the dead-letter queue since then; one that was retried and died
    again counts twice."""
    expected_tasks: int = 0
    """About how many tasks the first full scan will find; 0 if unknown."""
    is_stopped: bool = False
    """True if the operator stopped the first full scan: only a part is shown."""
    words: Mapping[str, int] = {}
    """Number of tasks by those of the store's words that are finer than a state."""
    indexed: int = 0
    """How many tasks the index has: fewer than `counts` while the first scan runs."""


def _with_counts(
    latest: IndexChanged, indexed: TaskCounts, counted: TaskCounts | None
) -> IndexChanged:
    """The next generation: with what the index has once a full scan has ended, until then with what
    the store has counted, if it has."""
    counts = indexed if counted is None or latest.is_complete else counted
    return latest._replace(
        generation=latest.generation + 1,
        counts=counts.states,
        words=counts.words,
        is_counted=latest.is_complete or counted is not None,
    )


class IndexSync:
    """Follows one store on a thread of its own; its attributes hold the result."""

    def __init__(
        self,
        open_store: Callable[[], ReadableStore],
        place: str | None,
        notify: Callable[[], None],
        is_shown: Callable[[], bool] = lambda: True,
        shared: SharedParts | None = None,
        *,
        read_store: Callable[[ReadableStore], Iterator[Found]] = scan_all,
        limit: AttemptLimit,
    ) -> None:
        """`notify` is called on this object's thread when `latest` or `crash` changes; `read_store`
        is what a full scan reads; `limit` is the maximum attempts of each task."""
        self._limit = limit
        self._open_store, self._read_store = open_store, read_store
        self._place = place
        self._notify = notify
        self._is_shown, self._shared = is_shown, shared or SharedParts()
        self.latest = IndexChanged()
        self.states: Mapping[State, str] = {}
        self.words: Mapping[str, State] = {}
        self.edges: Edges = {}
        self.controls: Mapping[str, Control] = {}
        self.path = ""
        """The file of the index, once it is readable; "" until then."""
        self.crash: BaseException | None = None
        """The unexpected exception that ended the thread."""
        self.has_ended = False
        self._requests: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._stopping = self._halted = False
        self._scratch: TempDir | None = None
        self._index: Writer | None = None
        self._arranged = False
        self._dirty = False
        self._names: set[str] = set()
        self._latest_lock = threading.Lock()
        """Held while `latest` is replaced, by this object's thread or that of the watch."""
        self._counted: TaskCounts | None = None
        """What the store has counted during the first scan."""
        self._looked_up_in_scan: set[str] | None = None
        self._is_scan_wanted = True
        self._is_check_wanted = False
        """True if changes were lost: all tasks must be compared."""
        self._scan_earliest = self._check_earliest = 0.0
        self._scan_latest = self._scan_cost = 0.0
        self._scan_waiters: list[Callable[[], None]] = []
        self._problems_due = 0.0
        self._visible: tuple[str, ...] = ()
        self._recheck_due = self._hidden_recheck_due = 0.0
        self._departing: dict[str, float] = {}

    # ---- from any thread

    def start(self) -> None:
        """Start the thread; does not wait."""
        threading.Thread(target=self._run, name="spooldeck-mirror", daemon=True).start()

    def stop(self) -> None:
        """End the thread soon; does not wait. `has_ended` turns True when it has ended."""
        self._stopping = True
        index = self._index
        if index is not None:
            index.interrupt()
        self._requests.put(lambda: None)

    def request_lookup(self, names: Iterable[str]) -> None:
        """Look up these names."""
        touched = set(names)
        self._requests.put(lambda: self._names.update(touched))

    def set_visible(self, names: Iterable[str]) -> None:
        """Set the names that are visible on the screen."""
        self._visible = tuple(names)

    def request_scan(self) -> None:
        """Request a full scan, as soon as its cost allows."""
        self._requests.put(self._want_scan)

    def scan_now(self, done: Callable[[], None]) -> None:
        """Start a full scan now; `done` is called when it has ended, also after an error."""

        def ask() -> None:
            self._want_scan()
            self._halted = False
            self._scan_earliest = 0.0
            self._scan_waiters.append(done)

        self._requests.put(ask)

    def stop_first_scan(self) -> None:
        """Stop the first full scan; `scan_now` restarts it. Does not wait."""

        def end() -> None:
            self._halted = not self.latest.is_complete

        self._requests.put(end)  # the scan reads this between two parts

    def remove_scratch(self) -> None:
        """Remove the folder of the index, even if the thread hangs."""
        if self._scratch is not None:
            self._scratch.remove()

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                try:
                    self._follow_store()
                except Unavailable as error:
                    self._mark_unavailable(str(error))
                except OSError as error:
                    self._mark_unavailable(f"{error.filename or 'the store'}: {error_text(error)}")
                except sqlite3.Error as error:
                    assert self._scratch is not None  # only the index in it raises sqlite3.Error
                    self._mark_unavailable(f"the index in {self._scratch.path}: {error}")
                    self._drop_index()
                self._take_requests(RETRY_SECONDS)
        except Exception as error:
            # A bug: `Inspector.wait_for_change` raises it.
            self.crash = error
        finally:
            for done in self._scan_waiters:
                done()
            self._drop_index()
            self.has_ended = True
            self._notify()

    def _follow_store(self) -> None:
        with ExitStack() as stack:
            index = self._index or self._make_index()
            wide = self._open_store()
            stack.callback(wide.close)
            near = wide if wide.changes.can_interleave else self._open_store()
            stack.callback(near.close)
            self._copy_facts(wide, with_controls=wide.changes.counts is None)
            if self.words:
                index.count_words()
            watch = FolderWatch(
                near.changes,
                self._open_store,
                self.request_lookup,
                everything=lambda: self._requests.put(partial(self._want_scan, is_check=True)),
                is_shown=self._is_shown,
                shared=self._shared.folders,
                counted=self._note_counts,
            )
            stack.callback(watch.stop)
            watch.start(WATCH_START_TIMEOUT_SECONDS)
            until = time.monotonic() + FIRST_COUNTS_SECONDS
            while near.changes.counts and not (self._counted or self._stopping):
                if time.monotonic() > until:
                    break
                self._take_requests(WATCH_START_TIMEOUT_SECONDS / 10)
            self._is_scan_wanted, self._scan_earliest = True, 0.0
            while not self._stopping:
                self._do_due_work(index, wide, near)
                self._take_requests(self._seconds_to_next())

    def _do_due_work(self, index: Writer, wide: ReadableStore, near: ReadableStore) -> None:
        now = time.monotonic()
        self._look_up_changed(index, near)
        if self._is_check_wanted and self.latest.is_complete and now >= self._check_earliest:
            self._check_all(index, wide, near)
        is_requested = self._is_scan_wanted and now >= self._scan_earliest
        if (is_requested or now >= self._scan_latest) and not self._halted:
            self._scan(index, wide, near)
        if index.problems and now >= self._problems_due:
            self._recheck_problems(index, near)
            self._problems_due = time.monotonic() + 1.0
        if self.latest.is_complete and now >= self._recheck_due:
            self._recheck_visible(index, near)
        self._debounce_departures()
        self._publish()

    def _seconds_to_next(self) -> float:
        due = [self._scan_latest] if not self._halted else [time.monotonic() + RETRY_SECONDS]
        if self._is_scan_wanted and not self._halted:
            due.append(self._scan_earliest)
        if self._is_check_wanted and self.latest.is_complete:
            due.append(self._check_earliest)
        if self.latest.problems:
            due.append(self._problems_due)
        if self.latest.is_complete:
            due.append(self._recheck_due)
        if self._departing:
            due.append(next(iter(self._departing.values())) + DEPARTURE_DELAY_SECONDS)
        return max(0.0, min(due) - time.monotonic())

    def _take_requests(self, seconds: float) -> None:
        """Process all requests, waiting up to `seconds` for the first."""
        if self._stopping:
            return
        try:
            self._requests.get(timeout=seconds)()
            while True:
                self._requests.get_nowait()()
        except Empty:
            pass
        if len(self._names) > MAX_CHANGED_NAMES:
            self._names.clear()
            self._want_scan(is_check=True)

    def _want_scan(self, *, is_check: bool = False) -> None:
        """Want a full scan, or with `is_check` what finds lost changes."""
        self._is_check_wanted |= is_check
        self._is_scan_wanted |= not is_check

    # ---- lookups of names

    def _look_up_changed(self, index: Writer, near: ReadableStore) -> None:
        self._take_requests(0.0)
        names, self._names = self._names, set()
        waiting = iter(names)
        while not self._stopping and (some := list(islice(waiting, CHUNK_ROWS))):
            self._look_up(index, near, some)
        self._publish()

    def _look_up(self, index: Writer, near: ReadableStore, names: list[str]) -> None:
        scanned, looked_up = near.scan(set(names)), self._looked_up_in_scan
        problems: list[Found] = []
        is_last = False
        while not is_last:  # of names of many tasks, not all tasks are in memory at a time
            some = list(islice(scanned, MAX_LOOKUP_ROWS))
            is_last = len(some) < MAX_LOOKUP_ROWS
            if looked_up is not None:
                looked_up.update(i.id for i in some if isinstance(i, (Task, Missing)))
            problems += [item for item in some if isinstance(item, Problem)]
            some = [item for item in some if not isinstance(item, Problem)]
            if is_last:
                self._copy_facts(near)
                some += problems
            self._count_changes(index.apply_lookup(names if is_last else (), some))

    def _recheck_visible(self, index: Writer, near: ReadableStore) -> None:
        """Look up the visible rows again, and the store's edges."""
        now = time.monotonic()
        if now < self._hidden_recheck_due and not self._is_shown():
            self._recheck_due = now + RECHECK_SECONDS  # it may be shown by then
            return
        began, visible = time.thread_time(), self._visible
        # Even without names, the store re-reads its edges.
        self._look_up(index, near, list(visible))
        cost = time.thread_time() - began
        rest = max(RECHECK_SECONDS, near.changes.recheck_seconds, RECHECK_COST_FACTOR * cost)
        self._recheck_due = time.monotonic() + rest
        self._hidden_recheck_due = now + HIDDEN_RECHECK_SECONDS

    def _recheck_problems(self, index: Writer, near: ReadableStore) -> None:
        """Look up the problems again: a rewrite in place causes no event."""
        names = set(index.problem_names(PROBLEMS_PER_SECOND))
        scanned = list(near.scan(names))
        self._copy_facts(near)
        # A missing task does not prove that the file is gone: the next full scan decides that.
        names -= {item.id for item in scanned if isinstance(item, Missing)}
        self._count_changes(index.apply_lookup(names, scanned))

    # ---- full scans

    def _check_all(self, index: Writer, wide: ReadableStore, near: ReadableStore) -> None:
        """Find lost changes: compare the revisions of all tasks with those of the index, and look
        up the tasks that differ. Problems that are not of one file wait for the next full scan. One
        is requested if it costs little, if very many differ, or if the store lists no revisions."""
        self._is_check_wanted = False
        revisions = wide.changes.revisions
        if revisions is None or self._scan_cost < CHEAP_SCAN_SECONDS:
            self._want_scan()
            return
        cost, differ = time.thread_time(), 0
        index.begin_scan()
        listed = revisions()
        while not self._stopping and (some := list(islice(listed, CHUNK_ROWS))):
            others = index.mark_unchanged(some)
            self._names.update(others)
            self._look_up_changed(index, near)
            differ += len(others)
            if differ > MAX_CHANGED_NAMES:
                self._want_scan()
                return
        self._look_up_unseen(index, near)
        cost = max(time.thread_time() - cost, wide.changes.scan_cost)
        self._check_earliest = time.monotonic() + SCAN_COST_FACTOR * cost

    def _scan(self, index: Writer, wide: ReadableStore, near: ReadableStore) -> None:
        began, cost = time.monotonic(), time.thread_time()
        self._is_scan_wanted = self._is_check_wanted = False
        self._publish_stopped()
        waiters, self._scan_waiters = self._scan_waiters, []
        self._looked_up_in_scan = set()
        try:
            index.begin_scan()
            whole = self._scan_store(index, wide, near)
            self._publish_stopped()
            if not whole:
                return
            self._look_up_unseen(index, near)
            if self._stopping:
                return
            self._dirty |= index.end_scan()
            if self.latest.unavailable or not self.latest.is_complete:
                self._halted = False  # only a complete full scan proves that it is available
                self._update(
                    lambda latest: latest._replace(
                        unavailable="", is_complete=True, is_stopped=False
                    )
                )
                self._dirty = True
            self._publish()
            self._build_indexes(index, near)
        finally:
            self._looked_up_in_scan = None
            for done in waiters:
                done()
        cost, ended = max(time.thread_time() - cost, wide.changes.scan_cost), time.monotonic()
        self._scan_cost, unwatched = cost, wide.changes.rescan_seconds
        self._scan_earliest = 0.0 if self._scan_waiters else ended + SCAN_COST_FACTOR * cost
        idle = IDLE_SCAN_COST_FACTOR * self._shared.places * cost
        self._scan_latest = max(began + unwatched, ended + idle)

    def _scan_store(self, index: Writer, wide: ReadableStore, near: ReadableStore) -> bool:
        """Write all tasks of the store to the index; True if the scan reached the end."""
        assert self._looked_up_in_scan is not None
        some: list[Found] = []
        rows, last_batch_at, whole = 0, time.monotonic(), False
        enough, looked_up = FIRST_BATCH_ROWS, self._looked_up_in_scan
        look_up_changed = partial(self._look_up_changed, index, near)

        def is_urgent() -> bool:
            return self._stopping or self._halted or self._is_shown()

        with ExitStack() as turn:
            for item in self._read_store(wide):
                if self._stopping or self._halted:
                    break
                if looked_up and isinstance(item, Task) and item.id in looked_up:
                    # A lookup has read it since, and this may be older.
                    self._names.add(item.id)
                    continue
                some.append(item)
                if len(some) >= enough or time.monotonic() - last_batch_at > MAX_BATCH_SECONDS:
                    expected = wide.expected_tasks
                    if not self.latest.is_complete and expected != self.latest.expected_tasks:
                        with self._latest_lock:
                            self.latest = self.latest._replace(expected_tasks=expected)
                        self._copy_facts(wide)
                        self._dirty = True
                    self._count_changes(index.add_scanned(some))
                    self._look_up_changed(index, near)
                    if not rows:  # the first tasks are shown before the others wait
                        turn.enter_context(self._shared.scan_turn(is_urgent, look_up_changed))
                    rows += len(some)
                    enough = FIRST_BATCH_ROWS if rows < SMALL_BATCH_ROWS else CHUNK_ROWS
                    some, last_batch_at = [], time.monotonic()
            else:
                whole = True
        self._count_changes(index.add_scanned(some))
        self._copy_facts(wide)
        self._look_up_changed(index, near)
        return whole

    def _publish_stopped(self) -> None:
        if self.latest.is_stopped != self._halted:
            self._update(lambda latest: latest._replace(is_stopped=self._halted))
            self._dirty = True

    def _look_up_unseen(self, index: Writer, near: ReadableStore) -> None:
        """Look up the rows that the scan did not see: their tasks may have moved behind it."""
        while not self._stopping and (names := index.unseen_ids()):
            self._look_up(index, near, names)
            index.mark_seen(names)
            self._publish()

    def _build_indexes(self, index: Writer, near: ReadableStore) -> None:
        if self._arranged:
            return
        for _ in index.build_indexes():
            if self._stopping:
                return
            self._look_up_changed(index, near)
        self._arranged = True

    # ---- publishing

    def _count_changes(self, delta: IndexDelta) -> None:
        """Count arrivals and departures; a task that returns soon is neither."""
        self._dirty |= delta.changed
        if not self.latest.is_complete:
            return
        appeared = sum(self._departing.pop(ident, None) is None for ident in delta.appeared)
        now = time.monotonic()
        self._departing.update((ident, now) for ident in delta.departed)
        if appeared or delta.died:
            self._update(
                lambda latest: latest._replace(
                    appeared=latest.appeared + appeared, died=latest.died + delta.died
                )
            )

    def _debounce_departures(self) -> None:
        long_ago, departed = time.monotonic() - DEPARTURE_DELAY_SECONDS, 0
        while self._departing and (first := next(iter(self._departing.items())))[1] <= long_ago:
            del self._departing[first[0]]
            departed += 1
        if departed:
            self._dirty = True
            self._update(lambda latest: latest._replace(departed=latest.departed + departed))

    def _copy_facts(self, store: ReadableStore, *, with_controls: bool = True) -> None:
        """Copy the store's states, words, edges and controls, which it re-reads at each scan; its
        controls may take a search of all keys of a server."""
        if store.edges != self.edges or store.states != self.states:
            self.states, self.edges = dict(store.states), dict(store.edges)
            self.words = dict(store.words)
            self._dirty = True
        if with_controls and store.controls != self.controls:
            self.controls = dict(store.controls)
            self._dirty = True

    def _publish(self) -> None:
        if not self._dirty or self._index is None:
            return
        self._dirty = False
        index = self._index
        counts = {s: index.count(s) for s in State if s in self.states or index.count(s)}
        words = {
            word: tasks
            for (state, word), tasks in (index.word_counts() if self.words else {}).items()
            if self.words.get(word) is state
        }
        task_counts = TaskCounts(counts, words)
        self._update(
            lambda latest: _with_counts(latest, task_counts, self._counted)._replace(
                problems=index.problems, indexed=index.total
            )
        )
        self._notify()

    def _note_counts(self, counts: TaskCounts) -> None:
        """Publish what the store has counted, on the thread of the watch."""
        self._counted = counts
        if not self.latest.is_complete and not self._stopping:
            self._update(
                lambda latest: _with_counts(latest, TaskCounts(latest.counts, latest.words), counts)
            )
            self._notify()

    def _update(self, change: Callable[[IndexChanged], IndexChanged]) -> None:
        """Replace `latest`, on any thread."""
        with self._latest_lock:
            self.latest = change(self.latest)

    def _mark_unavailable(self, why: str) -> None:
        """Publish once why the store is unavailable; its return starts a full scan."""
        self._halted = False
        if why != self.latest.unavailable and not self._stopping:
            self._update(
                lambda latest: latest._replace(
                    generation=latest.generation + 1, unavailable=why, is_stopped=False
                )
            )
            self._notify()
        for done in self._scan_waiters:
            done()
        self._scan_waiters = []

    # ---- the index

    def _make_index(self) -> Writer:
        self._scratch = TempDir(self._place)
        path = os.path.join(self._scratch.path, "index")
        self._arranged = False
        self._index = Writer(path, self._limit)
        self.path = path  # last, because readers open the path immediately
        return self._index

    def _drop_index(self) -> None:
        """Delete the index; the next one is filled from the beginning."""
        self.path = ""  # first, so that a reader that fails finds the path gone
        if self._index is not None:
            self._index.close()
        if self._scratch is not None:
            self._scratch.remove()
        self._index = self._scratch = None
