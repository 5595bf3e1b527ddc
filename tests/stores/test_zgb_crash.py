"""A process that ends at any statement: no job is lost, none doubled, no token without its job."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.model import Move, Problem, State, Task
from engine.stores.zgb import ZgbStore, create
from tests.examples import deep_but
from tests.stores.children import ends
from tests.stores.zgb_killed import CREATE, FILE, IDS, NOW, VERBS, images_at, place_at


class Way(NamedTuple):
    """Where each job of a verb starts from and leads to."""

    start: State | None
    end: State | None
    together: bool = True
    """Whether both jobs move in one transaction."""


_P, _A, _H, _D, _T = State.PENDING, State.ACTIVE, State.HELD, State.DEAD, State.TRASH

WAYS = {
    "enqueue": Way(None, _P, together=False),
    "take": Way(_P, _A, together=False),
    "take orphans": Way(_P, None),
    "renew": Way(_A, _A, together=False),
    "ack": Way(_A, None, together=False),
    "nack": Way(_A, _P, together=False),
    "bury": Way(_A, _D, together=False),
    "recover": Way(_A, _P),
    "hold in flight": Way(_A, _H),
    "hold": Way(_P, _H),
    "hold the dead": Way(_D, _H),
    "delay": Way(_P, _P, together=False),
    "delay the held": Way(_H, _H, together=False),
    "release": Way(_H, _P),
    "kill": Way(_P, _D),
    "park": Way(_H, _D),
    "retry": Way(_D, _P, together=False),
    "purge": Way(_P, _T),
    "purge the held": Way(_H, _T),
    "purge the dead": Way(_D, _T),
    "restore": Way(_T, _P),
    "restore to hold": Way(_T, _H),
    "restore to the dead": Way(_T, _D),
    "expunge": Way(_T, None),
    "expunge the dead": Way(_D, None, together=False),
    "undo hold": Way(_H, _P),
    "undo hold the dead": Way(_H, _D),
    "undo release": Way(_P, _H),
    "undo delay": Way(_P, _P),
    "undo retry": Way(_P, _D),
    "undo kill": Way(_D, _P),
    "undo purge": Way(_T, _P),
    "undo purge the held": Way(_T, _H),
    "undo purge the dead": Way(_T, _D),
    "undo restore": Way(_P, _T),
    "pause": Way(_P, _P),
    "set the rate": Way(_P, _P),
    "redirect": Way(_P, _P),
    "retry all": Way(_D, _P),
    "delete orphans": Way(_P, None),
}
"""Of each verb of zgb_killed.py."""


LAPSED = 361
"""Seconds after which every claim here has lapsed, renewed or not."""


class Found(NamedTuple):
    """A queue as the next process finds it."""

    jobs: dict[str, tuple[State, bytes]]
    """Where each stands, and all that is stored of it."""
    settings: dict[str, str]


def test_every_verb_is_judged() -> None:
    """None is ended somewhere without anybody looking at what it left."""
    assert WAYS.keys() == VERBS.keys()


QUICK = {"ack", "hold", "purge", "restore"}


@pytest.mark.parametrize("journal", deep_but({"delete"}, ["delete", "wal"]))
@pytest.mark.parametrize("verb", deep_but(QUICK, WAYS))
def test_whoever_dies_leaves_a_whole_queue(tmp_path: Path, verb: str, journal: str) -> None:
    """At every statement of every verb: each job stands in one place, in all its columns as before
    or as after, and what was said to be done is; what is taken back is as it was. Nothing of it
    hinders who comes next, and what they find they do not find to be recovered twice.
    """
    points = dict(ends("zgb_killed", str(tmp_path / "at"), verb, journal))
    assert list(points.values()).count("killed") >= 4
    way = WAYS[verb]
    before = standing(tmp_path / "at" / "template")
    (done,) = (step for step, how in points.items() if how == "done")
    after = standing(tmp_path / "at" / done)
    assert {state for state, _ in before.jobs.values()} == {way.start} - {None}
    assert {state for state, _ in after.jobs.values()} == {way.end} - {None}
    if verb.startswith("undo"):
        images = images_at(tmp_path / "at" / "template")
        assert {ident: image for ident, (_, image) in after.jobs.items()} == images

    for step in points:
        folder = tmp_path / "at" / step
        found = standing(folder)
        if way.together:
            assert found in (before, after), f"{verb} at {step}: in part"
        for ident in IDS:
            allowed = (before.jobs.get(ident), after.jobs.get(ident))
            assert found.jobs.get(ident) in allowed, f"{verb} at {step}"
        if verb == "take":
            claimed = [state for state, _ in found.jobs.values()].count(State.ACTIVE)
            assert float(found.settings["mailTokens"]) == 5 - claimed
        go_on(folder, found, orphans="orphans" in verb)


def test_whoever_dies_making_a_queue_keeps_nobody_from_it(tmp_path: Path) -> None:
    """At every statement: nothing of a queue is there, or all of it; and it can be made then."""
    points = dict(ends("zgb_killed", str(tmp_path / "at"), CREATE, ""))
    assert list(points.values()).count("killed") >= len(("BEGIN", "COMMIT")) + 5

    for step, how in points.items():
        path = str(tmp_path / "at" / step / FILE)
        if how == "done":
            with pytest.raises(FileExistsError):
                create(path)
        else:
            create(path)
        with closing(ZgbStore(place_at(path), lambda: NOW)) as store:
            assert list(store.look()) == []
            assert not store.edges[None, State.PENDING].refused


def standing(folder: Path) -> Found:
    """What the next process finds, whatever the last one left."""
    with opened(folder) as store:
        seen = list(dict.fromkeys(store.look()))
        tasks = [item for item in seen if isinstance(item, Task)]
        assert [p for p in seen if isinstance(p, Problem) and p.where != "orphans"] == []
        assert len({task.id for task in tasks}) == len(tasks)
        jobs = {task.id: (task.state, store.read(task)) for task in tasks}
    with closing(sqlite3.connect(folder / FILE)) as db:
        settings = dict(db.execute("SELECT key, value FROM config WHERE key LIKE 'mail%'"))
    return Found(jobs, settings)


def opened(folder: Path) -> closing[ZgbStore]:
    """The queue in a folder."""
    return closing(ZgbStore(place_at(str(folder / FILE)), lambda: NOW))


def go_on(folder: Path, found: Found, *, orphans: bool) -> None:
    """Whoever comes next moves each job to the other database and back; then nothing is in doubt
    any more, and every job is as it was found. What nobody works on is given back once.
    """
    with opened(folder) as store:
        for ident, (state, image) in found.jobs.items():
            if state is not State.ACTIVE and not orphans:
                elsewhere = State.PENDING if state is State.HELD else State.HELD
                task = the(store, ident)
                store.swap(task, replace(task, state=elsewhere))
                (back,) = store.swap_all(list(moves_back(store, ident, image, state)))
                assert back.error is None
    assert standing(folder) == found
    claimed = {ident for ident, (state, _) in found.jobs.items() if state is State.ACTIVE}
    if found.jobs and not claimed and not orphans:
        with closing(sqlite3.connect(folder / f"{FILE}.spooldeck")) as db:
            doubt = "SELECT id FROM aside WHERE arriving || leaving <> ''"
            assert db.execute(doubt).fetchall() == []
    if claimed:
        with closing(ZgbStore(place_at(str(folder / FILE)), lambda: NOW + LAPSED)) as store:
            for recovered in (claimed, set[str]()):
                list(store.take(NOW + LAPSED, "next", 1))
                assert set(store.kept.recovered) == recovered
            assert {t.id for t in store.look() if isinstance(t, Task)} == set(found.jobs)


def moves_back(store: ZgbStore, ident: str, image: bytes, state: State) -> Iterator[Move]:
    """What takes a job back to where it was, and to what it was."""
    task = the(store, ident)
    yield Move(task, store.recall(task, image, state), image)


def the(store: ZgbStore, ident: str) -> Task:
    """The job of an id."""
    (task,) = (item for item in store.look({ident}) if isinstance(item, Task))
    return task
