"""Our acts beside real programs of BullMQ 3 to 6: none loses a job, runs it early or twice."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, NamedTuple

import pytest
from redis import Redis

from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.store import BullmqStore
from engine.model import Task
from engine.verbs import VERBS
from tests.examples import few_of
from tests.node_packages import NodeProgram
from tests.store_contents import found, naming, restore

VERSIONS = ("3.16.2", "4.18.3", "5.81.5", "6.7.0")
EARLY_VERSIONS = ("4.0.0", "5.0.0")
"""The first ones with another layout; they write no version."""
CLOCK = time.time
LATER = {"delay": 3_600_000}
SETS = ("prioritized", "delayed", "completed", "failed", "waiting-children")
IDLE_MS, MOST_MS = 60, 8_000
"""Milliseconds for which a worker without jobs is watched, and after which any is ended."""


class Trial(NamedTuple):
    """One queue with jobs of each kind, a program of BullMQ, and our store."""

    program: NodeProgram
    store: BullmqStore
    client: Redis
    queue: str
    ids: dict[str, str]
    """The id of each job by its name here."""

    def task(self, name: str) -> Task:
        """A job as our store scans it."""
        return found(self.store, f"{self.queue}/{self.ids[name]}")

    def act(self, verb: str, name: str, **values: Any) -> None:
        """Change a job by a verb of ours."""
        task = self.task(name)
        self.store.swap(task, VERBS[verb].function(task, time.time(), **values))

    def undo(self, verb: str, name: str) -> None:
        """Change a job by a verb of ours, and back by its image."""
        before = self.task(name)
        image = self.store.read(before)
        self.act(verb, name)
        restore(self.store, before.id, image, before.state)

    def add(self, name: str, **values: Any) -> None:
        """Add a job of ours."""
        task = self.store.add_job(NewJob(self.queue, "job", f'"{name}"', **values))
        self.ids[name] = task.id.partition("/")[2]

    def call(self, what: str, *arguments: object) -> Any:
        """Let the program do something with the queue."""
        return self.program(what, self.queue, *arguments)

    def theirs(self, name: str, options: Mapping[str, object]) -> None:
        """Let the program add a job."""
        (self.ids[name],) = self.call("add", [[name, options]])

    def places(self) -> dict[str, list[str]]:
        """The places of each job that has a hash, by its name."""
        base, found = f"bull:{self.queue}:", dict[str, list[str]]()
        names = {ident: name for name, ident in self.ids.items()}
        for ident, name in names.items():
            if self.client.exists(base + ident):
                found[name] = []
        lists = {p: self.client.lrange(base + p, 0, -1) for p in ("wait", "paused", "active")}
        sets = {p: self.client.zrange(base + p, 0, -1) for p in SETS}
        for place, idents in (lists | sets).items():
            for ident in map(str, idents):
                found.setdefault(names.get(ident, ident), []).append(place)
        return {name: where for name, where in found.items() if not name.startswith("0:")}

    def waiting(self) -> set[str]:
        """The jobs that a worker has to run; each is in one place, and none without a place."""
        places = self.places()
        assert {len(where) for where in places.values()} <= {1}, places
        return {n for n, (where,) in places.items() if where in ("wait", "paused", "prioritized")}

    def run(self, least: int = IDLE_MS) -> list[str]:
        """Let a worker of the program run what waits; the names of the jobs in order."""
        names = {ident: name for name, ident in self.ids.items()}
        return [names[ident] for ident in self.call("work", "ok", least, MOST_MS)]


def fill(program: NodeProgram, store: BullmqStore, client: Redis, queue: str) -> Trial:
    """Jobs in each place, added by the program."""
    trial = Trial(program, store, client, queue, {})
    for name, options in (("f1", {}), ("f2", {}), ("fp", {"priority": 4})):
        trial.theirs(name, options)
    trial.call("work", "fail", 0, MOST_MS)
    trial.theirs("c1", {})
    trial.call("work", "ok", 0, MOST_MS)
    for name, options in (
        *((f"w{n}", {}) for n in (1, 2, 3)),
        *((f"p{n}", {"priority": n}) for n in (7, 5)),
        ("d1", LATER),
        ("d2", LATER),
        ("dp", {**LATER, "priority": 6}),
    ):
        trial.theirs(name, options)
    store._queues.names(fresh=True)  # else it is found two seconds later
    return trial


ACTS: dict[str, Callable[[Trial], object]] = {
    "retry": lambda t: t.act("retry", "f1"),
    "retry with priority": lambda t: t.act("retry", "fp"),
    "rerun": lambda t: t.act("rerun", "c1"),
    "promote": lambda t: t.act("promote", "d1"),
    "promote with priority": lambda t: t.act("promote", "dp"),
    "add": lambda t: t.add("n1"),
    "add with priority": lambda t: t.add("n2", priority=6),
    "add delayed": lambda t: t.add("n3", delay=3600.0, priority=3),
    "edit priority": lambda t: t.act("edit", "w2", priority=6),
    "edit time": lambda t: t.act("edit", "w2", due=time.time() + 3600),
    "edit data": lambda t: t.act("edit", "w2", data='"new"'),
    "hold": lambda t: t.act("hold", "w2"),
    "hold and release": lambda t: (t.act("hold", "w2"), t.act("release", "w2")),
    "hold and release with priority": lambda t: (t.act("hold", "p5"), t.act("release", "p5")),
    "hold and release delayed": lambda t: (t.act("hold", "dp"), t.act("release", "dp")),
    "purge": lambda t: t.act("purge", "p5"),
    "expunge": lambda t: t.act("expunge", "w2"),
    "purge and restore": lambda t: (t.act("purge", "w1"), t.act("restore", "w1")),
    "undo purge": lambda t: t.undo("purge", "w2"),
    "undo purge with priority": lambda t: t.undo("purge", "p5"),
    "undo purge of failed": lambda t: t.undo("purge", "f1"),
    "undo retry": lambda t: t.undo("retry", "f1"),
    "undo promote": lambda t: t.undo("promote", "dp"),
}
THEIRS: dict[str, Callable[[Trial], object]] = {
    "retry": lambda t: t.call("retry", t.ids["f1"]),
    "rerun": lambda t: t.call("rerun", t.ids["c1"]),
    "promote": lambda t: t.call("promote", t.ids["d1"]),
    "promote with priority": lambda t: t.call("promote", t.ids["dp"]),
    "add": lambda t: t.theirs("n1", {}),
    "add with priority": lambda t: t.theirs("n2", {"priority": 6}),
    **{name: lambda t: None for name in ACTS if name.startswith(("hold and", "undo"))},
}
"""What a program of BullMQ does for the same order of jobs."""

NEXT: dict[str, Callable[[Trial], object]] = {
    "nothing": lambda t: None,
    "add": lambda t: (t.theirs("a1", {}), t.theirs("a2", {"priority": 5})),
    "pause": lambda t: (t.call("pause"), t.theirs("a3", {})),
    "resume": lambda t: t.call("resume"),
    "retry": lambda t: t.call("retry", t.ids["f2"]),
    "drain": lambda t: t.call("drain"),
    "clean": lambda t: (t.call("clean", "failed"), t.call("clean", "delayed")),
}
"""What the program does after our act."""
PAUSES: dict[str, Callable[[Trial], object]] = {
    "running": lambda t: None,
    "paused by us": lambda t: t.store.control("pause", t.queue, "1"),
    "paused by the program": lambda t: t.call("pause"),
}


def end(trial: Trial, resumes: Callable[[Trial], object]) -> list[str]:
    """Check what waits, let the program's workers run it, and return the names in order."""
    waiting = trial.waiting()
    if trial.call("isPaused"):
        assert (trial.run(), trial.waiting()) == ([], waiting)
        resumes(trial)
        assert trial.waiting() == waiting
    ran = trial.run(0)
    assert Counter(ran) == Counter(waiting)
    assert trial.waiting() == set()
    return ran


RESUMES: tuple[Callable[[Trial], object], ...] = (
    lambda t: t.call("resume"),
    lambda t: t.store.control("pause", t.queue, "0"),
)


@pytest.mark.deep
@pytest.mark.parametrize("act", few_of(("retry", "undo purge"), ACTS))
@pytest.mark.parametrize("program", [*VERSIONS, *EARLY_VERSIONS], indirect=True)
def test_no_act_loses_a_job(
    program: NodeProgram, store: BullmqStore, client: Redis, act: str
) -> None:
    """Before it the queue runs or is paused; then comes an act of a program. Each job is in one
    place, none runs in a paused queue, and each that waits runs once, in the order of Node's."""
    for number, (pause, following) in enumerate(product(PAUSES, NEXT)):
        orders: list[list[str]] = []
        for does in (ACTS[act], THEIRS.get(act) if following in ("nothing", "add") else None):
            if does is None:
                continue
            trial = fill(program, store, client, f"q{number}-{len(orders)}")
            with naming(pause, act, following, trial.queue):
                PAUSES[pause](trial)
                does(trial)
                before = trial.places()
                assert {len(where) for where in before.values()} == {1}, before
                NEXT[following](trial)
                if following not in ("drain", "clean"):
                    assert trial.places().keys() >= before.keys()
                orders.append(end(trial, RESUMES[number % 2]))
        assert len({*map(tuple, orders)}) == 1, (pause, following, orders)


ROW = (
    "undo retry, retry, retry with priority, rerun, undo promote, promote, promote with priority, "
    "add, add with priority, add delayed, hold and release, hold and release with priority, "
    "undo purge, purge, edit data, edit priority, hold"
)


@pytest.mark.parametrize("pause", PAUSES)
@pytest.mark.parametrize("program", VERSIONS, indirect=True)
def test_no_row_of_acts_loses_a_job(
    program: NodeProgram, store: BullmqStore, client: Redis, pause: str
) -> None:
    """All acts one after the other, as far as the jobs are there, then those of a program."""
    trial = fill(program, store, client, "mails")
    PAUSES[pause](trial)
    for act in ROW.split(", "):
        with naming(act):
            ACTS[act](trial)
            trial.waiting()
    for following in ("add", "retry", "pause", "resume", "clean"):
        NEXT[following](trial)
        trial.waiting()
    end(trial, RESUMES[0])
