"""One rival, in a process of its own: `rival.py produce|operate ROOT LEDGER NAME SEED`.

Works once for each byte on its standard input and ends with it. What it does, and what of that it
knows to be done, it says on the ledger, one write a line: `NAME EVENT DESCRIPTION DETAIL`.
"""

import os
import random
import sys
import time
from collections.abc import Callable

from engine import verbs
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import Move, State, Task
from engine.operations import plans
from engine.operations.run_plan import run_journaled_plan
from engine.store import StoreError

VERBS = ("retry", "promote", "hold", "release", "purge", "restore", "expunge")
FROM = {
    "retry": State.DEAD,
    "promote": State.PENDING,
    "hold": State.PENDING,
    "release": State.HELD,
    "restore": State.TRASH,
    "expunge": State.DEAD,
}

MAIL = "mailspool"
"""Where in a data folder the payloads lie; each is named like its task."""


def spool_at(root: str) -> SpoolFolders:
    """The spool of a data folder."""
    queue = f"{root}/queue"
    return SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", f"{root}/{MAIL}")


class Rival:
    """What all of them have."""

    def __init__(self, root: str, ledger: str, name: str, seed: str) -> None:
        self.store = NftbanStore(spool_at(root))
        self.rng = random.Random(seed)
        self._ledger = os.open(ledger, os.O_RDWR)
        self._name, self._count = name, 0
        self._mail = f"{root}/{MAIL}"

    def say(self, event: str, description: str, detail: str = "-") -> None:
        """One line on the ledger."""
        os.write(self._ledger, f"{self._name} {event} {description} {detail}\n".encode())

    def produce(self) -> None:
        """Some new tasks, one by one or together."""
        tasks = []
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            self._count += 1
            name = f"{self._name}-{self._count}"
            token = f"{self.rng.getrandbits(32):08x}"
            payload = f"{self._mail}/{name}"
            tasks.append(verbs.enqueue("job", time.time(), token, name, payload))
            self.say("try", name, tasks[-1].id)
        if len(tasks) == 1:
            self.store.swap(None, tasks[0])
            self.say("ack", tasks[0].description, tasks[0].id)
            return
        for outcome in self.store.swap_all(Move(None, task) for task in tasks):
            added = outcome.move.new
            assert added is not None
            if outcome.error is None:
                self.say("ack", added.description, added.id)

    def operate(self) -> None:
        """One verb on some of the tasks that are there, as a console does it."""
        verb = self.rng.choice(VERBS)
        tasks = {task.id: task for task in self.store.scan() if isinstance(task, Task)}
        fitting = [
            task
            for task in tasks.values()
            if task.state is not State.ACTIVE and task.state is FROM.get(verb, task.state)
        ]
        some = self.rng.sample(fitting, min(len(fitting), self.rng.choice((1, 3, 20))))
        if verb == "expunge":
            for task in some:
                self.say("expunge", task.description, task.id)
            list(self.store.swap_all(Move(task, None) for task in some))
        elif verb == "restore":
            back = (State.PENDING, State.HELD, State.DEAD)
            moves = [Move(task, task._replace(state=self.rng.choice(back))) for task in some]
            list(self.store.swap_all(moves))
        else:
            now = time.time()
            plan = plans.freeze_plan(verb, some, now)
            plan = plan._replace(included_ids=frozenset(task.id for task in some))
            report = run_journaled_plan(self.store, None, plan, None, time.time)
            settled_count = len(report.done) + len(report.gone) + len(report.failed)
            assert settled_count == len(report.plan.rows)
        self.say("did", verb, str(len(some)))


def main(role: str, root: str, ledger: str, name: str, seed: str) -> None:
    """Work once for each byte."""
    rival = Rival(root, ledger, name, seed)
    work: Callable[[], None] = {"produce": rival.produce, "operate": rival.operate}[role]
    while os.read(0, 1):
        try:
            work()
        except StoreError as error:
            rival.say("refused", role, type(error).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
