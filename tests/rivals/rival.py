"""One rival, in a process of its own: `rival.py produce|operate|recover ROOT NAME SEED`.

Works once for each byte on its standard input and ends with it. What it does, and what of that it
knows to be done, it says on the ledger, one write a line: `NAME EVENT DESCRIPTION DETAIL`. To
recover, it is an impatient operator, who acts once.
"""

import os
import random
import sys
import time
from collections.abc import Callable

from engine import verbs
from engine.config import queue_config
from engine.formats.known_formats import setup_for
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import Move, State, Task
from engine.operations import plans
from engine.operations.run_plan import run_journaled_plan
from engine.store import StoreError
from tui.cli.formats.nftban import recover as recovery

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

    def __init__(self, root: str, name: str, seed: str) -> None:
        self.store, self.rng = NftbanStore(spool_at(root)), random.Random(seed)
        self._ledger = os.open(f"{root}/ledger", os.O_RDWR)
        self._name, self._count, self._mail = name, 0, f"{root}/{MAIL}"

    def say(self, event: str, description: str, detail: str = "-") -> None:
        """One line on the ledger."""
        os.write(self._ledger, f"{self._name} {event} {description} {detail}\n".encode())

    def produce(self) -> None:
        """Some new tasks, one by one or together."""
        tasks = []
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            self._count += 1
            name, token = f"{self._name}-{self._count}", f"{self.rng.getrandbits(32):08x}"
            tasks.append(verbs.enqueue("job", time.time(), token, name, f"{self._mail}/{name}"))
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


def recover(root: str) -> int:
    """`queue recover --yes`, with a worker that counts as stuck after a second without a heartbeat.

    No configuration may say so little; workers at work are broken, too.
    """
    setup = setup_for(queue_config.load_config(f"{root}/spooldeck.yaml", {}), root, {})
    setup = setup._replace(queue=setup.queue._replace(stuck_threshold=1.0))
    return recovery.recover(setup, dry_run=False, yes=True, seen="", hold=[], json=False)


def main(role: str, root: str, name: str, seed: str) -> int:
    """Recover once, or work once for each byte."""
    if role == "recover":
        return recover(root)
    rival = Rival(root, name, seed)
    work: Callable[[], None] = {"produce": rival.produce, "operate": rival.operate}[role]
    while os.read(0, 1):
        try:
            work()
        except StoreError as error:
            rival.say("refused", role, type(error).__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
