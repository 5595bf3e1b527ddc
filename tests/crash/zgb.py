"""Every verb of a ZGB mail queue, killed at every SQL statement, in both kinds of journal."""

from __future__ import annotations

import copy
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from engine import verbs
from engine.formats.zgb.place import RateLimit, ZgbDatabase
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from engine.model import Move, Problem, State, Task
from tests.crash.harness import Case, Ended, tasks_in

NOW = 1_795_170_000.0
LAPSED_SECONDS = 361
"""After that every claim here has lapsed, renewed or not."""
NUMBERS = (1001, 1002)
IDS = ("1001-user", "1002-user")
FILE = "zgb.db"
IMAGES = "images"
"""File next to the queue: what its jobs were before they moved to where the verb finds them."""
SETTINGS = "settings"

Act = Callable[[ZgbStore, list[Task]], object]
P, A, H, D, T = State.PENDING, State.ACTIVE, State.HELD, State.DEAD, State.TRASH


class _Verb(Case):
    """What is done to both jobs."""

    sql = True
    floor = 3

    def __init__(
        self,
        start: State | None,
        act: Act,
        end: State | None,
        *,
        separate: bool = False,
        first: Act | None = None,
        put: State | None = None,
    ) -> None:
        """Take where the verb finds the jobs, and where they are once it is done.

        `separate`: in two transactions; `first`: what leads the jobs to where the verb finds
        them, from the state `put`."""
        self._start, self._act, self._end, self.atomic = start, act, end, not separate
        self._first, self._put = first, put or start
        self.journal = "delete"

    def in_wal(self) -> _Verb:
        """Return the same in a database with a write-ahead log."""
        other = copy.copy(self)
        other.journal = "wal"
        return other

    def lay_out(self, root: Path) -> None:
        create(str(root / FILE))
        with closing(sqlite3.connect(root / FILE)) as db, db:
            db.execute(f"PRAGMA journal_mode = {self.journal}")
            db.execute("INSERT INTO registrations VALUES (1001, 0), (1002, 0)")
            # Neither in any encoding, nor of any type.
            db.execute("ALTER TABLE mail_queue ADD COLUMN remark DEFAULT (CAST(x'ff41' AS TEXT))")
            days = "('startDate', '2020-01-01'), ('endDate', '2020-01-02')"
            db.execute(
                "INSERT INTO config VALUES ('mailQueueEnabled', '1'), ('mailMaxPerHour', '60'),"
                f" ('mailTokens', '5'), ('mailLastRefill', '{int(NOW)}'), {days}"
            )
        with _opened(root) as store:
            if self._put is not None:
                enqueue_in(store, self._put)
            tasks = _jobs(store)
            images = {task.id: store.read(task).decode() for task in tasks}
            (root / IMAGES).write_text(json.dumps(images))
            if self._first is not None:
                self._first(store, tasks)

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        store = ZgbStore(_place_at(root), lambda: NOW)
        return partial(self._act, store, _jobs(store))

    def content(self, root: Path) -> Mapping[str, Any]:
        with _opened(root) as store:
            stored_tasks = list(dict.fromkeys(store.scan()))
            tasks = [item for item in stored_tasks if isinstance(item, Task)]
            problems = [item for item in stored_tasks if isinstance(item, Problem)]
            assert {problem.where for problem in problems} <= {"orphans"}
            assert len({task.id for task in tasks}) == len(tasks)
            by_name: dict[str, object] = {task.id: (task.state, store.read(task)) for task in tasks}
        return by_name | ({SETTINGS: _settings(root)} if self.atomic else {})

    def undisturbed(self) -> Iterator[str]:
        """Report a verb that leads elsewhere than its row says."""
        for state, content in ((self._start, self.before), (self._end, self.after)):
            states = {content[ident][0] for ident in IDS if ident in content}
            if states != {state} - {None}:
                yield f"the jobs are in {states}, not in {state}"

    def left(self, root: Path, ended: Ended) -> Iterator[str]:
        """Report tokens that were lost, and jobs that are not as before the move undone."""
        content = self.content(root)
        if self._act is _take:
            claimed = sum(content[ident][0] is A for ident in IDS)
            if float(_settings(root)["mailTokens"]) != 5 - claimed:
                yield f"{claimed} claimed, {_settings(root)}"
        if ended.done and isinstance(self._act, partial):
            images = _images_at(root)
            if any(content[ident][1] != images[ident] for ident in IDS):
                yield "undone, and not as before"

    def wrong(self, root: Path, ended: Ended, content: Mapping[str, Any]) -> Iterator[str]:
        """Go on as the next process: each job moves to the other database and back.

        Then nothing is in doubt, and every job is as it was found; what no process works on is
        given back once."""
        states = {ident: content[ident][0] for ident in IDS if ident in content}
        orphans = self._first is orphaned
        with _opened(root) as store:
            for ident, state in states.items():
                if state is not A and not orphans:
                    task, image = _one(store, ident), content[ident][1]
                    store.swap(task, task._replace(state=P if state is H else H))
                    task = _one(store, ident)
                    move = Move(task, store.restore_image(task, image, state), image)
                    assert [outcome.error for outcome in store.swap_all([move])] == [None]
        if self.content(root) != content:
            yield f"moved there and back, the queue differs: {self.content(root)}"
        claimed = {ident for ident, state in states.items() if state is A}
        if states and not claimed and not orphans:
            with closing(sqlite3.connect(root / f"{FILE}.spooldeck")) as db:
                doubt = "SELECT id FROM aside WHERE arriving || leaving <> ''"
                assert db.execute(doubt).fetchall() == [], "in doubt"
        if claimed:
            with closing(ZgbStore(_place_at(root), lambda: NOW + LAPSED_SECONDS)) as store:
                for recovered in (claimed, set[str]()):
                    list(store.take(NOW + LAPSED_SECONDS, "next", 1))
                    assert set(store.claim_report.recovered) == recovered
                assert {task.id for task in tasks_in(store)} == set(states)


class _Make(Case):
    """The making of a queue, where there is none."""

    sql = True
    floor = 7

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        return partial(create, str(root / FILE))

    def recover(self, root: Path, now: float) -> None:
        """Make it where it is not: it works, at any statement where a process died before."""
        with suppress(FileExistsError):
            create(str(root / FILE))

    def left(self, root: Path, ended: Ended) -> Iterator[str]:
        """Report a queue that is made over another one."""
        if ended.done:
            with suppress(FileExistsError):
                create(str(root / FILE))
                yield "made twice"

    def wrong(self, root: Path, ended: Ended, content: Mapping[str, Any]) -> Iterator[str]:
        """Report a queue that is not empty and open."""
        with _opened(root) as store:
            if list(store.scan()) or store.edges[None, P].refusal:
                yield "it is no empty queue"


# ---- queues and their jobs


def _place_at(root: Path) -> ZgbDatabase:
    return ZgbDatabase(str(root / FILE), rate_limit=RateLimit(), durable=False)


def _opened(root: Path) -> closing[ZgbStore]:
    return closing(ZgbStore(_place_at(root), lambda: NOW))


def _settings(root: Path) -> dict[str, str]:
    with closing(sqlite3.connect(root / FILE)) as db:
        return dict(db.execute("SELECT key, value FROM config WHERE key LIKE 'mail%'"))


def _one(store: ZgbStore, ident: str) -> Task:
    (task,) = tasks_in(store, [ident])
    return task


def _jobs(store: ZgbStore) -> list[Task]:
    return tasks_in(store, IDS)


def _images_at(root: Path) -> dict[str, bytes]:
    images = json.loads((root / IMAGES).read_text())
    return {ident: image.encode() for ident, image in images.items()}


def enqueue_in(store: ZgbStore, state: State) -> None:
    """Enqueue both jobs and move them to a state."""
    _enqueue(store, [])
    if state in (A, D):
        for task in store.take(NOW, "me", 9):
            if state is D:
                store.swap(task, verbs.give_up_task(task, "no", 1))
    elif state is not P:
        _to(state)(store, _jobs(store))


# ---- verbs


def _enqueue(store: ZgbStore, tasks: list[Task]) -> None:
    for number in NUMBERS:
        store.enqueue(number, ["user"])


def _take(store: ZgbStore, tasks: list[Task]) -> None:
    list(store.take(NOW, "me", 9))


def _together(change: Callable[[Task], Task | None]) -> Act:
    return lambda store, tasks: list(store.swap_all(Move(t, change(t)) for t in tasks))


def _to(state: State) -> Act:
    return _together(lambda task: task._replace(state=state, lease=None))


def _pressed(name: str, value: str = "") -> Act:
    return lambda store, tasks: store.control(name, value=value)


def _each(change: Callable[[Task], Task | None]) -> Act:
    return lambda store, tasks: [store.swap(task, change(task)) for task in tasks]


def undone(store: ZgbStore, tasks: list[Task], start: State) -> None:
    """Restore both jobs where and as they were, in one transaction."""
    images = _images_at(Path(store.place.path).parent)
    moves = [Move(t, store.restore_image(t, images[t.id], start), images[t.id]) for t in tasks]
    for outcome in store.swap_all(moves):
        if outcome.error is not None:
            raise outcome.error


def undoing(start: State, end: State, first: Act | None = None) -> _Verb:
    """Return the undo of a move."""
    return _Verb(end, partial(undone, start=start), start, first=first or _to(end), put=start)


def _delayed(task: Task) -> Task:
    return task._replace(due=NOW + 60)


def _retried(store: ZgbStore, tasks: list[Task]) -> None:
    for task in tasks:
        store.swap(task, verbs.keep_error(store.edges, task, verbs.retry(task, NOW)))


def orphaned(store: ZgbStore, tasks: list[Task]) -> None:
    """Remove the registrations of both."""
    with closing(sqlite3.connect(store.place.path)) as db, db:
        db.execute("DELETE FROM registrations")


def _renew(store: ZgbStore, tasks: list[Task]) -> None:
    for task in tasks:
        list(store.renew([task], NOW + 360))


VERBS: Mapping[str, _Verb] = {
    "enqueue": _Verb(None, _enqueue, P, separate=True),
    "take": _Verb(P, _take, A, separate=True),
    "take orphans": _Verb(P, lambda s, tasks: list(s.take(NOW, "me", 9)), None, first=orphaned),
    "renew": _Verb(A, _renew, A, separate=True),
    "ack": _Verb(A, _each(lambda task: None), None, separate=True),
    "nack": _Verb(A, _each(lambda task: verbs.nack(task, NOW + 60, "no")), P, separate=True),
    "bury": _Verb(A, _each(lambda task: verbs.give_up_task(task, "no", 1)), D, separate=True),
    "recover": _Verb(A, lambda s, tasks: list(s.take(NOW + 301, "me", 9)), P),
    "hold in flight": _Verb(A, _to(H), H),
    "hold": _Verb(P, _to(H), H),
    "hold the dead": _Verb(D, _to(H), H),
    "delay": _Verb(P, _each(_delayed), P, separate=True),
    "delay the held": _Verb(H, _each(_delayed), H, separate=True),
    "release": _Verb(H, _to(P), P),
    "kill": _Verb(P, _to(D), D),
    "park": _Verb(H, _to(D), D),
    "retry": _Verb(D, _retried, P, separate=True),
    "purge": _Verb(P, _to(T), T),
    "purge the held": _Verb(H, _to(T), T),
    "purge the dead": _Verb(D, _to(T), T),
    "restore": _Verb(T, _to(P), P),
    "restore to hold": _Verb(T, _to(H), H),
    "restore to the dead": _Verb(T, _to(D), D),
    "expunge": _Verb(T, _together(lambda task: None), None),
    "expunge the dead": _Verb(D, _each(lambda task: None), None, separate=True),
    "undo hold": undoing(P, H),
    "undo hold the dead": undoing(D, H),
    "undo release": undoing(H, P),
    "undo delay": undoing(P, P, _each(_delayed)),
    "undo retry": undoing(D, P, _retried),
    "undo kill": undoing(P, D),
    "undo purge": undoing(P, T),
    "undo purge the held": undoing(H, T),
    "undo purge the dead": undoing(D, T),
    "undo restore": undoing(T, P),
    "pause": _Verb(P, _pressed("mailQueueEnabled", "0"), P),
    "set the rate": _Verb(P, _pressed("mailMaxPerHour", "30"), P),
    "redirect": _Verb(P, _pressed("mailRedirectToSchumbi", "1"), P),
    "retry all": _Verb(D, _pressed("retryFailed"), P),
    "delete orphans": _Verb(P, _pressed("deleteOrphans"), None, first=orphaned),
}
CASES: Mapping[str, Case] = {
    **VERBS,
    **{f"{name}, wal": verb.in_wal() for name, verb in VERBS.items()},
    "make": _Make(),
}
