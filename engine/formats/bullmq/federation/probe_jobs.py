"""Add the probes of servers to the queue of probes."""

from __future__ import annotations

import threading
import time
from contextlib import closing, suppress
from importlib.util import find_spec

from engine.destinations.destination import CLOCK_SKEW_SECONDS, Destination
from engine.formats.base.format import Setup
from engine.formats.bullmq.federation.jobs import probe_job
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.place import RedisPlace, parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.model import State, Task
from engine.store import Gone, StoreError
from engine.verbs import promote


class JobAdder:
    """Adds jobs on a connection of its own, which is made when it is needed. Threads share it."""

    def __init__(self, place: RedisPlace) -> None:
        self._place, self._lock = place, threading.Lock()
        self._store: BullmqStore | None = None

    def add(self, job: NewJob) -> Task:
        """Add a job.

        Raises:
            StoreError: it cannot be added; Gone if its id is in use.
        """
        with self._lock:
            return self._opened().add_job(job)

    def hasten(self, task_id: str, latest: float) -> None:
        """Make a waiting job due now if it is planned for later than a time.

        Raises:
            StoreError: the queue cannot be used.
        """
        with self._lock:
            store = self._opened()
            task = next(iter(store.scan({task_id})))
            if not isinstance(task, Task) or task.state is not State.PENDING:
                return
            if (task.due or 0.0) > latest:
                with suppress(Gone):  # it has run meanwhile
                    store.swap(task, promote(task, latest))

    def _opened(self) -> BullmqStore:
        if self._store is None:
            self._store = BullmqStore(self._place)
        return self._store

    def close(self) -> None:
        """Close the connection."""
        if self._store is not None:
            self._store.close()


def add_probe(
    adder: JobAdder, server: str, number: int, delay: float, skew: float = CLOCK_SKEW_SECONDS
) -> None:
    """Add a probe. If it is planned already, but for more than `skew` seconds later, as a wrong
    clock does, it is made due now."""
    job = probe_job(server, number, delay)
    try:
        adder.add(job)
    except Gone:
        adder.hasten(f"{job.queue}/{job.id}", time.time() + delay + skew)


def run_probe_now(setup: Setup, server: Destination) -> None:
    """Make the job of a server's next probe due now; add it if it was lost, or if all probes have
    failed. A destination without keys of the federation has none.

    Raises:
        StoreError: the queue cannot be used; the text says that the registry was changed.
    """
    if find_spec("cryptography") is None:
        return  # no key of a server was ever learned here
    from engine.formats.bullmq.federation.parts import keys_of

    if not keys_of(server).signing:
        return
    try:
        with closing(JobAdder(parse_place(setup.address, setup.settings))) as adder:
            add_probe(adder, server.origin, server.probes, 0.0, skew=0.0)
    except StoreError as error:
        raise type(error)(f"planned for now in the registry, but not its job: {error}") from error
