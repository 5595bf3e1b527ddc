"""One operator of a Redis place, in a process of its own: `bullmq_operator URL JOURNAL SEED`.

For each byte on its standard input it plans a random verb on some jobs, applies the plan with a
journal, and writes `did`. Before it sends changes it writes `swap` and waits for one more byte, so
that it can be killed there.
"""

import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from engine.config.place_address import parse_address
from engine.formats.bullmq.moves import MOVES_PER_PIPELINE
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.model import Move, Outcome, State, Task
from engine.operations import plans
from engine.operations.journal import Intent, Journal, Who
from engine.operations.run_plan import run_journaled_plan
from engine.override import override
from engine.verbs import VERBS

USED = ("retry", "rerun", "rerun", "hold", "release", "release", "purge", "restore", "promote")


class LoudStore(BullmqStore):
    """Says when it is about to send changes, and waits."""

    @override
    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        moves = list(moves)
        outcomes = super().swap_all(moves)
        for at in count():
            if at % MOVES_PER_PIPELINE == 0 and at < len(moves):
                os.write(1, b"swap\n")
                os.read(0, 1)
            if (outcome := next(outcomes, None)) is None:
                return
            yield outcome


def act(store: LoudStore, journal: Journal, rng: random.Random) -> None:
    """One verb on some of the jobs in its states, as a console does it."""
    verb = rng.choice(USED)
    starts = {start for start, _ in VERBS[verb].edges} - {State.ACTIVE}
    fitting = [t for t in store.scan() if isinstance(t, Task) and t.state in starts]
    apply(store, journal, verb, rng.sample(fitting, min(len(fitting), rng.choice((5, 40, 400)))))


def apply(store: BullmqStore, journal: Journal, verb: str, tasks: list[Task]) -> None:
    """Plan a verb on tasks and apply the plan with a journal."""
    plan = plans.freeze_plan(verb, tasks, time.time(), edges=store.edges)
    plan = plan._replace(included_ids=frozenset(task.id for task in tasks))
    intent: Any = Intent(verb, Who("ana", pid=os.getpid()))
    report = run_journaled_plan(store, journal, plan, intent, time.time)
    settled_count = len(report.done) + len(report.gone) + len(report.failed) + len(report.excluded)
    assert settled_count == len(plan.rows), report


def main(url: str, folder: str, seed: str) -> None:
    """Act once for each byte."""
    store, rng = LoudStore(parse_place(parse_address(url))), random.Random(seed)
    while os.read(0, 1):
        act(store, Journal(folder), rng)
        os.write(1, b"did\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
