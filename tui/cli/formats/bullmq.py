"""BullMQ queues on a server: facts for the console, and the checks of `doctor`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing

from engine.doctor.finding import Finding, Grade
from engine.store import StoreError, Unavailable
from engine.stores.bullmq import facts, parse_place
from engine.stores.bullmq.connection import Connection
from engine.stores.bullmq.repeats import Repeats
from engine.stores.bullmq.scan import KnownQueues
from engine.text.safe import safe_line
from tui.cli.formats.bullmq_worker import handled_queues
from tui.cli.queue.doctor import check_store
from tui.cli.setup.setup import Setup
from tui.session.place import Place, WholeQueueFigures

FIGURES_SECONDS = 2.0
"""Seconds for which the facts on screen are current: as long as the queues that are listed."""
ORPHAN_SECONDS, ORPHAN_COST_FACTOR = 60.0, 100
"""Least seconds between two searches for jobs in no list, and how many times as long as it took:
a search visits all keys."""


class ServerWatch:
    """Facts about a server, read at most once in `FIGURES_SECONDS`, on a connection of its own."""

    def __init__(self, setup: Setup) -> None:
        self._address = setup.address
        self._connection: Connection | None = None
        self._queues: KnownQueues | None = None
        self._figures = WholeQueueFigures()
        self._due = self._orphans_due = 0.0
        self._orphans: Mapping[str, int] | None = None

    def read(self) -> WholeQueueFigures:
        """Facts about all queues as a whole.

        Raises:
            Unavailable: the server cannot be reached.
        """
        if time.monotonic() < self._due:
            return self._figures
        place = parse_place(self._address)
        if self._connection is None:
            self._connection = Connection(place)
            self._queues = KnownQueues(self._connection, place)
        start = time.monotonic()
        is_search = start >= self._orphans_due
        known = None if is_search else self._orphans
        state = facts.read_state(
            self._connection, place, time.time(), known, self._queues
        )
        if is_search:
            self._orphans, took = state.orphans, time.monotonic() - start
            wait = FIGURES_SECONDS if state.orphans else ORPHAN_SECONDS
            self._orphans_due = start + max(wait, ORPHAN_COST_FACTOR * took)
        warnings = tuple(warning.what for warning in facts.find_warnings(state))
        known = [queue.workers for queue in state.queues if queue.workers is not None]
        self._figures = WholeQueueFigures(
            tuple(facts.describe_state(state, time.time())),
            warnings,
            has_worker=any(known) if known else None,
            connected=tuple(state.workers),
        )
        self._due = time.monotonic() + FIGURES_SECONDS
        return self._figures


def complete_place(setup: Setup, place: Place) -> Place:
    """The `Place` of a server, with the facts about it."""
    return place._replace(queue_figures=ServerWatch(setup).read)


def check_server(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """Check a server and its queues; yields the name of each check and a finding; only reads."""
    try:
        place = parse_place(setup.address)
        with closing(Connection(place)) as connection:
            state = facts.read_state(connection, place, time.time())
            gate = Repeats(connection, place).gate
            closed = {name: gate(name)[0] for name in handled_queues(setup)}
    except Unavailable as error:
        yield "server", Finding(Grade.BAD, str(error), "start it, or correct its address")
        return
    except StoreError as error:
        yield "server", Finding(Grade.BAD, str(error), "give this user the permission")
        return
    count = len(state.queues)
    yield (
        "server",
        Finding(Grade.OK, f"{count:,} queues: {facts.list_names(q.name for q in state.queues)}"),
    )
    for warning in facts.find_warnings(state):
        grade = Grade.BAD if warning.is_severe else Grade.WARN
        yield "server", Finding(grade, warning.what, warning.fix)
    for queue, why in closed.items():
        if why:
            what = f"`bullmq work` takes no job of {safe_line(queue)}: {why}"
            yield "server", Finding(Grade.WARN, what, "correct it, or run a worker of its version")
    for name, value in facts.describe_state(state, time.time()):
        yield "server", Finding(Grade.OK, f"{name}: {value}")
    yield from check_store(setup)
