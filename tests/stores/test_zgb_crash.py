"""A process that ends at any statement: no job is lost, none doubled, no token without its job."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.model import Problem, State, Task
from engine.stores.zgb import Pace, Place, ZgbStore

NOW = 1_795_170_000.0
KILLED = Path(__file__).with_name("zgb_killed.py")


class Way(NamedTuple):
    """Where each job of a verb starts from and leads to."""

    start: State | None
    end: State | None
    together: bool = False
    """Whether both jobs move in one transaction."""


WAYS = {
    "enqueue": Way(None, State.PENDING),
    "take": Way(State.PENDING, State.ACTIVE),
    "ack": Way(State.ACTIVE, None),
    "nack": Way(State.ACTIVE, State.PENDING),
    "bury": Way(State.ACTIVE, State.DEAD),
    "retry": Way(State.DEAD, State.PENDING),
    "retry all": Way(State.DEAD, State.PENDING, together=True),
    "recover": Way(State.ACTIVE, State.PENDING, together=True),
    "hold": Way(State.PENDING, State.HELD, together=True),
    "release": Way(State.HELD, State.PENDING, together=True),
    "park": Way(State.HELD, State.DEAD, together=True),
    "purge": Way(State.PENDING, State.TRASH, together=True),
    "purge the held": Way(State.HELD, State.TRASH, together=True),
    "restore": Way(State.TRASH, State.PENDING, together=True),
    "expunge": Way(State.TRASH, None, together=True),
}


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("verb", WAYS)
def test_whoever_dies_leaves_a_whole_queue(tmp_path: Path, verb: str, journal: str) -> None:
    """At every statement of every verb: each job stands in one place, as before or as after, and
    what was said to be done is; the tokens that are spent are the jobs that are claimed.
    """
    ran = subprocess.run(
        [sys.executable, str(KILLED), str(tmp_path / "at"), verb, journal],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    ends = dict(line.split() for line in ran.stdout.splitlines())
    assert list(ends.values()).count("killed") >= 4
    way = WAYS[verb]

    for step, how in ends.items():
        found = standing(tmp_path / "at" / step)
        assert set(found) <= {way.start, way.end}, f"{verb} at {step}"
        if how == "done":
            assert set(found) == {way.end}
        if way.together:
            assert len(set(found)) == 1, f"{verb} at {step}: one moved without the other"


def standing(folder: Path) -> list[State | None]:
    """Where both jobs stand, as the next to open the queue finds them, and may move them."""
    place = Place(f"{folder}/zgb.db", pace=Pace(), durable=False)
    with closing(ZgbStore(place, lambda: NOW)) as store:
        seen = list(dict.fromkeys(store.look()))
        assert [item for item in seen if isinstance(item, Problem)] == []
        tasks = {item.id: item for item in seen if isinstance(item, Task)}
        assert len(tasks) == len(seen)
        with closing(sqlite3.connect(place.path)) as db:
            (left,) = db.execute("SELECT value FROM config WHERE key = 'mailTokens'").fetchone()
            (claimed,) = db.execute("SELECT coalesce(sum(attempts), 0) FROM mail_queue").fetchone()
        states = [tasks[i].state if i in tasks else None for i in ("1001-user", "1002-user")]
        if State.ACTIVE in states and None not in states:
            assert float(left) == 5 - claimed
        # What was in doubt hinders nobody from going on.
        for task in tasks.values():
            if task.state in (State.HELD, State.TRASH, State.PENDING):
                store.swap(task, None if task.state is State.TRASH else hold_or_back(task))
        return states


def hold_or_back(task: Task) -> Task:
    """The other side of the two databases."""
    there = State.HELD if task.state is State.PENDING else State.PENDING
    return replace(task, state=there)
