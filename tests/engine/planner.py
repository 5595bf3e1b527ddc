"""One of several who carry out the same plan: `planner.py QUEUE PLAN`, on a line from its input.

Beside them `planner.py QUEUE --worker` takes and finishes whatever is due, until its input ends.
Both say that they are ready, and then what became of it, a line of JSON each.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from pathlib import Path

from engine import deeds
from engine.journal import Intent, Journal, Who
from engine.model import State
from engine.plans import Plan, Row
from engine.stores.nftban import NftbanStore, Spool


def main() -> None:
    """Be one of them."""
    queue, what = sys.argv[1:]
    spool = Spool(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", durable=False)
    store = NftbanStore(spool)
    told: object
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if what == "--worker":
        taken: list[str] = []
        over = False
        while not over:
            over = bool(select.select([sys.stdin], [], [], 0)[0])
            for task in store.take(time.time(), "worker", 100):
                store.swap(task, None)
                taken.append(task.id)
        told = taken
    else:
        verb, rows = json.loads(Path(what).read_text())
        plan = Plan(verb, tuple(Row(i, State(s), r) for i, s, r in rows), time.time())
        sys.stdin.readline()
        who = Intent("", Who("ana", pid=os.getpid()))
        journal = Journal(f"{spool.desk}/journal")
        report = deeds.carry_out(store, journal, plan, who, time.time)
        told = [report.done, report.gone, [ident for ident, _ in report.failed]]
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
