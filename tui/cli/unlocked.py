"""A worker on a place without a lock: each claim is a lease, and any number may work side by side.

It is woken by the store's own doorbell and ended by signals, as one with a lock is.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from engine import files, metrics
from engine.handlers import Handler
from engine.metrics import QueueGauges
from engine.model import State, Task
from engine.policy import RetryPolicy
from engine.store import Store, StoreError
from engine.text import shown
from engine.worker import Run, Services, Worker
from tui.cli.wiring import EX_NOPERM, EX_UNAVAILABLE, Setup, complain, fail

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
    worker = Worker(
        store,
        handled,
        retry,
        owner=str(os.getpid()),
        concurrency=concurrency,
        services=services,
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: worker.stop())
    with signed_on(setup):
        return _worked(setup, store, worker, until_idle=until_idle)


def _worked(setup: Setup, store: Store, worker: Worker, *, until_idle: bool) -> Run:
    if until_idle:
        return worker.work(until_idle=True)
    from engine.watch import Watch

    watch = Watch(store.doorbell, setup.store, lambda names: worker.ring(), worker.ring)
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

_LEFT = 60.0
"""Seconds after which such a file that nobody holds is cleared away: its worker was killed, or has
just made it."""


@contextmanager
def signed_on(setup: Setup) -> Iterator[None]:
    """Be known at this place as one of our workers while in the block.

    Whoever cannot be known works all the same, and complains.
    """
    with ExitStack() as ended:
        try:
            _sign(setup, ended)
        except OSError as error:
            run = shown(setup.queue.run_dir)
            complain(f"{run}: {error.strerror}; nobody is told that this worker is there")
        yield


def _sign(setup: Setup, ended: ExitStack) -> None:
    folder = files.reach(setup.queue.run_dir, setup.queue.root)
    ended.callback(os.close, folder)
    _clear(folder, time.time())
    name = f"{_SIGN}{os.getpid()}.{os.urandom(4).hex()}"
    fd = files.open_shared(name, folder, os.O_RDWR)
    ended.callback(files.forget, name, folder)
    ended.callback(os.close, fd)
    ended.enter_context(files.Flock(fd))  # whoever looks has it for a moment


def _clear(folder: int, now: float) -> None:
    for name in _signs(folder):
        try:
            written = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
        except FileNotFoundError:
            continue  # it has just ended
        if now - written > _LEFT and not _is_there(name, folder):
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
            totals = {name: self._counters.read(name) for name in metrics.QUEUE_COUNTERS}
            text = metrics.render_queue(self._gauges(now), totals, now)
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
