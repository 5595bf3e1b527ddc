"""`status`, one plain look at a queue, and `init`, which makes one."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from typing import NamedTuple

from engine.model import LockEvidence, Problem, State, Task, Verdict
from engine.policy import DLQ_LIMIT
from engine.store import Unavailable
from engine.stores.nftban import make_spool
from engine.text import shown
from tui.cli.wiring import Setup, complain

WELL, ATTENTION, UNREADABLE = 0, 1, 2
SHOWN_PROBLEMS = 10


class Look(NamedTuple):
    """What one look at a queue found."""

    counts: dict[str, int]
    """Tasks by the store's own words."""
    oldest: float
    """Seconds since the oldest pending task was created."""
    lock: LockEvidence
    problems: list[Problem]
    attention: list[str]
    """What somebody should see to, in words; empty when all is well."""


def status(setup: Setup, arguments: Namespace) -> int:
    """Say how a queue is; exit 0 well, 1 needs attention, 2 cannot be read."""
    try:
        look = _look(setup)
    except Unavailable as error:
        complain(str(error))
        return UNREADABLE
    if arguments.json:
        print(_as_json(setup, look))
    else:
        print("\n".join(_as_text(setup, look)))
    return ATTENTION if look.attention else WELL


def _look(setup: Setup) -> Look:
    now = time.time()
    store = setup.open()
    counts: dict[State, int] = dict.fromkeys(store.states, 0)
    oldest = now
    problems: dict[str, Problem] = {}
    try:
        # By the states' words: without the peek, so that each task comes once.
        for found in store.look(store.states.values()):
            if isinstance(found, Task):
                counts[found.state] += 1
                if found.state is State.PENDING:
                    oldest = min(oldest, found.created)
            elif isinstance(found, Problem):
                problems[found.where] = found
        problems |= {problem.where: problem for problem in store.misplaced()}
    finally:
        store.close()
    lock = setup.examine_lock()
    words = {store.states[state]: number for state, number in counts.items()}
    attention = _attention(counts, lock, len(problems))
    return Look(words, max(0.0, now - oldest), lock, list(problems.values()), attention)


def _attention(counts: dict[State, int], lock: LockEvidence, problems: int) -> list[str]:
    said = []
    if lock.verdict in (Verdict.STALE, Verdict.STUCK, Verdict.UNKNOWN):
        said.append(f"the lock is {lock.verdict}: {lock.reason}")
    if counts[State.DEAD] > DLQ_LIMIT:
        said.append(f"{_many(counts[State.DEAD])} in the dead-letter queue (over {DLQ_LIMIT})")
    if counts[State.ACTIVE] and lock.verdict in (Verdict.FREE, Verdict.STALE):
        said.append(f"{_many(counts[State.ACTIVE])} in work, but no worker is there")
    if problems:
        said.append("1 problem" if problems == 1 else f"{problems:,} problems")
    return said


def _many(tasks: int) -> str:
    return "1 task" if tasks == 1 else f"{tasks:,} tasks"


def _as_text(setup: Setup, look: Look) -> list[str]:
    counts = "  ".join(f"{word} {number:,}" for word, number in look.counts.items())
    lines = [f"queue     {shown(os.path.dirname(setup.queue.pending))}", f"tasks     {counts}"]
    if look.counts["pending"]:
        lines.append(f"oldest    {_age(look.oldest)} pending")
    lines.append(f"lock      {look.lock.verdict}: {shown(look.lock.reason)}")
    lines += [
        f"problem   {shown(where)}: {shown(what)}"
        for where, what, _ in look.problems[:SHOWN_PROBLEMS]
    ]
    if len(look.problems) > SHOWN_PROBLEMS:
        lines.append(f"          and {len(look.problems) - SHOWN_PROBLEMS:,} more")
    lines += [f"attention {shown(said)}" for said in look.attention]
    return lines if look.attention else [*lines, "well      nothing needs attention"]


def _age(seconds: float) -> str:
    minutes = int(seconds) // 60
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {int(seconds) % 60} s"


def _as_json(setup: Setup, look: Look) -> str:
    import json

    lock = look.lock._asdict() | {"verdict": str(look.lock.verdict)}
    return json.dumps(
        {
            "queue": os.path.dirname(setup.queue.pending),
            "tasks": look.counts,
            "oldest_pending_age": look.oldest if look.counts["pending"] else None,
            "lock": lock,
            "problems": [{"where": p.where, "what": p.what} for p in look.problems],
            "attention": look.attention,
        }
    )


def init(setup: Setup, arguments: Namespace) -> int:
    """Make the folders of a queue that are missing, and say what to do next."""
    queue = setup.queue
    made = make_spool(setup.spool())
    for path in (queue.run_dir, queue.log_dir, queue.counters, queue.mail_spool):
        if not os.path.isdir(path):
            setup.make_folder(path)
            made.append(path)
    if not made:
        print(f"{shown(queue.root)} has everything a queue needs; nothing was changed")
    for path in made:
        print(f"made {shown(path)}")
    where = shown(arguments.place)
    print(
        f"next: spooldeck --root {where} queue add TYPE   adds a task\n"
        f"      spooldeck --root {where} queue work       handles tasks until stopped\n"
        f"      spooldeck {where}                         opens the console"
    )
    sys.stdout.flush()
    return 0
