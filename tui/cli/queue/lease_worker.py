"""A worker on a place without a lock: each claim is a lease, and any number may work side by side.

It is woken by the store's own doorbell and ended by signals, as one with a lock is.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count as numbers

from engine.model import State, Task
from engine.monitor import prometheus
from engine.monitor.prometheus import QueueGauges
from engine.policy import RetryPolicy
from engine.store import Store, StoreError
from engine.system import files
from engine.text.safe import shown
from engine.work.handlers import Context, Handler
from engine.work.worker import Run, Services, Worker
from tui.cli.setup.setup import EX_NOPERM, EX_UNAVAILABLE, Setup, complain, fail

DONE, OWED = 0, 3
"""Exit codes: as it should be; an outcome could not be stored, and its task is still claimed."""


def run(
    setup: Setup,
    store: Store,
    handled: Mapping[str, Handler],
    retry: RetryPolicy,
    services: Services,
    *,
    concurrency: int = 1,
    until_idle: bool = False,
) -> Run:
    """Work until stopped, or until nothing is due.

    A first signal ends it after what is in hand, a second ends that, too.

    Raises:
        Fail: what was claimed could not be given back here.
    """
    if refused := store.edges[State.ACTIVE, State.PENDING].refused:
        fail(EX_NOPERM, refused)
    with signed_on(setup) as notes:
        worker = Worker(
            store,
            {kind: notes.noting(handler) for kind, handler in handled.items()},
            retry,
            owner=str(os.getpid()),
            concurrency=concurrency,
            services=services,
        )
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: worker.stop())
        return _worked(setup, store, worker, until_idle=until_idle)


def _worked(setup: Setup, store: Store, worker: Worker, *, until_idle: bool) -> Run:
    if until_idle:
        return worker.work(until_idle=True)
    from engine.live.folder_watch import FolderWatch

    watch = FolderWatch(store.doorbell, setup.store, lambda names: worker.ring(), worker.ring)
    watch.start(patience=1.0)
    try:
        return worker.work()
    finally:
        watch.stop()


def tell(run: Run) -> int:
    """What a run came to, in a line for the operator; the exit code that says it."""
    gone = f", {run.gone} taken away while they ran" if run.gone else ""
    complain(f"{run.done} done, {run.failed} failed{gone}")
    if run.unreachable:
        complain(f"the queue could not be reached: {run.unreachable}")
    if run.owed:
        complain(f"{run.owed} outcomes could not be stored; their tasks are still claimed")
        return OWED
    return EX_UNAVAILABLE if run.unreachable else DONE


# ---- who is at work

_SIGN = "worker."
"""Begins the name of a file in the run folder whose flock says that its worker is there; the PID
behind it is for people."""

_SIGN_BYTES = 1 << 20
"""Bytes of such a file that are read: a line for each claimed task."""

_LEFT = 60.0
"""Seconds after which such a file that nobody holds is cleared away: its worker was killed, or has
just made it."""

_KEPT = 86400.0
"""The same for one that says what its worker had in hand when it was killed: longer than any claim
is left before it lapses."""

_NOTE = 33
"""Bytes of a note: the mark of a claim, and the end of its line."""

_SPARE = 8
"""Notes that are not overwritten although their tasks were handled: what came of them may not be
stored yet."""


class ClaimNotes:
    """What one worker has in hand, written down in its file as it begins with it, so that others
    can tell whose it was if the worker never comes back.

    Nothing is synced: a killed process has written what it has written, and who loses the machine
    has no worker to be asked about.
    """

    def __init__(self, fd: int = -1) -> None:
        """`fd` is the worker's file; -1 where there is none, and nothing is noted."""
        self._fd = fd
        self._free: deque[int] = deque()
        self._more = numbers()
        self._said = False

    def noting(self, handler: Handler) -> Handler:
        """A handler whose tasks are noted before it does anything."""
        if self._fd < 0:
            return handler

        def noted(task: Task, context: Context) -> None:
            slot = self._slot()
            self._write(slot, task)
            try:
                handler(task, context)
            finally:
                self._free.append(slot)  # the note stays: what came of it is not stored yet

        return noted

    def _slot(self) -> int:
        return self._free.popleft() if len(self._free) > _SPARE else next(self._more)

    def _write(self, slot: int, task: Task) -> None:
        try:
            os.pwrite(self._fd, f"{_mark(task)}\n".encode(), slot * _NOTE)
        except OSError as error:
            if not self._said:
                complain(f"what is in hand cannot be written down: {error.strerror}")
            self._said = True


def _mark(task: Task) -> str:
    """What tells a claim from every other, of the same task too: by when it lapses."""
    until = None if task.lease is None else task.lease.until
    said = f"{task.id} {until!r}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(said, digest_size=(_NOTE - 1) // 2).hexdigest()


@contextmanager
def signed_on(setup: Setup) -> Iterator[ClaimNotes]:
    """Be known at this place as one of our workers while in the block.

    Whoever cannot be known works all the same, and complains.
    """
    with ExitStack() as ended:
        try:
            notes = ClaimNotes(_sign(setup, ended))
        except OSError as error:
            notes = ClaimNotes()
            run = shown(setup.queue.run_dir)
            complain(f"{run}: {error.strerror}; nobody is told that this worker is there")
        yield notes


def _sign(setup: Setup, ended: ExitStack) -> int:
    folder = files.reach(setup.queue.run_dir, setup.queue.root)
    ended.callback(os.close, folder)
    _clear(folder, time.time())
    name = f"{_SIGN}{os.getpid()}.{os.urandom(4).hex()}"
    fd = files.open_shared(name, folder, os.O_RDWR)
    ended.callback(files.forget, name, folder)
    ended.callback(os.close, fd)
    ended.enter_context(files.Flock(fd))  # whoever looks has it for a moment
    return fd


def _clear(folder: int, now: float) -> None:
    for name in _signs(folder):
        try:
            seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue  # it has just ended
        kept = _KEPT if seen.st_size else _LEFT
        if now - seen.st_mtime > kept and not _is_there(name, folder):
            files.forget(name, folder)


def at_work(setup: Setup) -> tuple[int, ...]:
    """PIDs of our workers at a place.

    Raises:
        OSError: we may not look.
    """
    try:
        folder = files.reach(setup.queue.run_dir, setup.queue.root)
    except FileNotFoundError:
        return ()  # none has ever worked there
    try:
        there = [name for name in _signs(folder) if _is_there(name, folder)]
    finally:
        os.close(folder)
    return tuple(sorted(int(name.split(".")[1]) for name in there))


def left_in_hand(setup: Setup, tasks: Iterable[Task]) -> dict[int, list[Task]]:
    """Which of these claims were in the hand of a worker of ours that did not come back, by its
    PID: it was killed, or the machine has been down since.

    Raises:
        OSError: we may not look.
    """
    try:
        folder = files.reach(setup.queue.run_dir, setup.queue.root)
    except FileNotFoundError:
        return {}  # none has ever worked there
    try:
        noted = {mark: pid for name in _signs(folder) for mark, pid in _noted(name, folder)}
    finally:
        os.close(folder)
    left: dict[int, list[Task]] = {}
    for task in tasks if noted else ():
        if (pid := noted.get(_mark(task))) is not None:
            left.setdefault(pid, []).append(task)
    return left


def _noted(name: str, folder: int) -> Iterator[tuple[str, int]]:
    """What a worker had in hand that is not there any more: the mark of each claim, and its PID."""
    try:
        fd = files.open_plain(name, folder)
    except OSError:
        return  # ended since, or nothing of ours
    with open(fd, "rb") as sign:
        if files.is_unclaimed(fd):
            pid = int(name.split(".")[1])
            lines = sign.read(_SIGN_BYTES).split(b"\n")
            yield from ((line.strip().decode("ascii", "replace"), pid) for line in lines)


def _signs(folder: int) -> list[str]:
    # What `reach` gives is only to be passed through: to list, it is opened.
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        names = [name for name in os.listdir(fd) if name.startswith(_SIGN)]
    finally:
        os.close(fd)
    return [name for name in names if name.split(".")[1].isdecimal()]


def _is_there(name: str, folder: int) -> bool:
    try:
        fd = files.open_plain(name, folder)
    except OSError:
        return False  # ended since, or nothing of ours
    try:
        return not files.is_unclaimed(fd)
    finally:
        os.close(fd)


def whether_at_work(setup: Setup) -> str:
    """Whether workers of ours are at a place, in words, with their PIDs."""
    try:
        pids = at_work(setup)
    except OSError as error:
        return f"who is at work is not known: {error.strerror}"
    return f"at work (PID {', '.join(map(str, pids))})" if pids else "not at work now"


# ---- what is told of it in numbers

SPARING = 20
"""It is not counted again for so many times as long as counting took: that grows with what waits,
and no mail is sent meanwhile."""


def count(store: Store, now: float) -> QueueGauges:
    """How a queue stands, by a look at every task that waits, is worked on or was given up.

    Raises:
        Unavailable: it cannot be looked at.
    """
    counts = dict.fromkeys((State.PENDING, State.ACTIVE, State.DEAD), 0)
    oldest = now
    for found in store.look([store.states[state] for state in counts if state in store.states]):
        if isinstance(found, Task) and found.state in counts:
            counts[found.state] += 1
            if found.state is State.PENDING and found.created:
                oldest = min(oldest, found.created)
    pending, working, dead = counts.values()
    return QueueGauges(pending, working, dead, now - oldest)


class Published:
    """The metrics file of a place, which a worker writes while it works and when it ends."""

    def __init__(
        self,
        setup: Setup,
        gauges: Callable[[float], QueueGauges],
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        """`gauges` says how the queue stands at a moment; it may raise StoreError or OSError."""
        self._setup, self._gauges = setup, gauges
        self._clock, self._timer = clock, timer
        self._counters = setup.counters()
        self._due = float("-inf")
        self._said = ""

    def sparingly(self) -> None:
        """Write it, unless that has just taken long."""
        began = self._timer()
        if began >= self._due:
            self.write()
            ended = self._timer()
            self._due = ended + SPARING * (ended - began)

    def write(self) -> None:
        """Write it; what keeps us from it is complained of once, and keeps nobody from working."""
        path, now = self._setup.queue.queue_metrics, self._clock()
        try:
            totals = {name: self._counters.read(name) for name in prometheus.QUEUE_COUNTERS}
            text = prometheus.render_queue(self._gauges(now), totals, now)
            files.publish(path, text, root=self._setup.queue.root)
            said = ""
        except (OSError, StoreError) as error:
            said = f"{shown(path)}: {shown(getattr(error, 'strerror', None) or str(error))}"
        if said and said != self._said:
            complain(said)
        self._said = said

    def tally(self, name: str) -> None:
        """Raise one of its counters by one."""
        try:
            self._counters.add(name, 1)
        except OSError as error:
            complain(f"{self._setup.queue.counters}/{name}: {error.strerror}; not counted")
