"""The trash: restore, quota, age, and the sweep of tasks, payloads and the journal."""

import os
import time
from pathlib import Path
from typing import Any, TypeVar

import pytest

from engine import verbs
from engine.formats.base.memory import MemoryStore
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import Move, State
from engine.operations import plans, retention, run_plan, trash, undo
from engine.operations.execute import Report
from engine.operations.journal import Intent, Journal, Who
from engine.operations.plans import Plan
from engine.store import Store
from tests.engine.task_builders import a_task, new_spool, tasks_in

NOW = time.time()
"""The kernel says since when something lies in the trash, so the time has to be its own."""
HOUR, DAY = 3600.0, 86400.0
RETENTION = 7.0
AnyStore = TypeVar("AnyStore", bound=Store)
US = Intent("", Who("ana"))


def clock() -> float:
    """The time in these tests."""
    return NOW


@pytest.fixture
def spool(tmp_path: Path) -> SpoolFolders:
    """A spool with nothing in it, and a mail spool."""
    (tmp_path / "mailspool").mkdir()
    return new_spool(tmp_path, mail_spool=f"{tmp_path}/mailspool")


@pytest.fixture
def journal(spool: SpoolFolders) -> Journal:
    """Its journal."""
    return Journal(f"{spool.staging_dir}/journal", clock=clock)


@pytest.fixture(params=["memory", "nftban"])
def store(request: pytest.FixtureRequest, spool: SpoolFolders) -> Store:
    """A store of either kind, with tasks in it."""
    return filled(MemoryStore() if request.param == "memory" else NftbanStore(spool, clock))


@pytest.fixture
def disk(spool: SpoolFolders) -> NftbanStore:
    """A store on the spool, with tasks in it."""
    return filled(NftbanStore(spool, clock))


def filled(store: AnyStore, payload: str = "") -> AnyStore:
    """Two pending tasks, two held ones, two dead ones."""
    for number in range(6):
        store.swap(None, a_task(number, created=NOW - DAY, payload=payload))
    for task in list(store.take(NOW, "a worker", 2)):
        store.swap(task, verbs.give_up_task(task, "421 try again later", 3))
    for task in tasks_in(store, State.PENDING)[:2]:
        store.swap(task, verbs.hold(task, NOW))
    return store


def done(store: Store, journal: Journal | None, plan: Plan, quota: int | None = None) -> Report:
    """Carry a plan out and write it down."""
    intent = US._replace(verb=plan.verb)
    return run_plan.run_journaled_plan(store, journal, plan, intent, clock, quota=quota)


def purge_of(store: Store, *states: State) -> Plan:
    """The plan to purge the tasks of these states."""
    return plans.freeze_plan("purge", tasks_in(store, *states), NOW)


def back(store: Store, journal: Journal | None, now: float = NOW) -> undo.UndoPlan:
    """The plan to restore all that lies in the trash."""
    plan = plans.freeze_plan("restore", trash.trashed_tasks(store), now)
    return trash.plan_restore(store, journal, plan, now, RETENTION)


def test_a_purged_task_goes_back_where_it_was(store: Store, journal: Journal) -> None:
    """The journal remembers from where, also of a task that was purged twice."""
    states = {task.id: task.state for task in tasks_in(store)}
    done(store, journal, purge_of(store))
    origins = trash.find_origins(journal, tuple(trash.trashed_tasks(store)))
    report = done(store, journal, back(store, journal).plan)
    assert {ident: origin.state for ident, origin in origins.items()} == states
    assert {origin.evidence for origin in origins.values()} == {"purge by ana"}
    assert (len(report.done), {task.id: task.state for task in tasks_in(store)}) == (6, states)
    done(store, journal, plans.freeze_plan("hold", tasks_in(store, State.DEAD), NOW))
    done(store, Journal(journal.folder, clock=lambda: NOW + 60), purge_of(store, State.HELD))
    assert {row.target for row in back(store, journal).plan.rows} == {State.HELD}


def test_without_a_journal_a_task_says_itself_that_it_was_dead(store: Store) -> None:
    """A dead task knows when it died and goes back to the dead; the others come back as held."""
    if isinstance(store, MemoryStore):  # this one keeps no such time of its own
        for task in tasks_in(store, State.DEAD):
            extra = {"dead_since": str(int(NOW))}
            store.swap(task, None)
            with store._memory.condition:
                store._memory.put((task.queue, task.id), task._replace(extra=extra))
    dead = {task.id for task in tasks_in(store, State.DEAD)}
    done(store, None, purge_of(store))
    origins = trash.find_origins(None, tuple(trash.trashed_tasks(store)))
    targets = {row.id: row.target for row in back(store, None).plan.rows}
    assert len(dead) == 2
    assert targets == dict.fromkeys(targets, State.HELD) | dict.fromkeys(dead, State.DEAD)
    words = {origin.evidence for ident, origin in origins.items() if ident not in dead}
    assert words == {"former state unknown: restored as held"}


def test_a_purge_that_was_killed_is_remembered(disk: Store, journal: Journal) -> None:
    """The intent alone says from where; one dead for long comes back as held."""
    dead = {task.id for task in tasks_in(disk, State.DEAD)}
    journal.begin(US._replace(verb="purge"), purge_of(disk, State.PENDING, State.DEAD)).close()
    for task in tasks_in(disk, State.PENDING, State.DEAD):
        disk.swap(task, verbs.purge(task, NOW))
    soon, late = back(disk, journal), back(disk, journal, NOW + 8 * DAY)
    assert {row.target for row in soon.plan.rows} == {State.PENDING, State.DEAD}
    assert not soon.held and late.held == dead


def test_a_purge_that_does_not_fit_says_so(store: Store, journal: Journal) -> None:
    """The rows that fit are purged; what is in the trash takes its room."""
    first, second = tasks_in(store, State.DEAD)
    room = store.size(first) + store.size(second) - 1
    report = done(store, journal, purge_of(store, State.DEAD), room)
    assert report.done == (first.id,)
    assert report.failed == ((second.id, trash.trash_full_message(room)),)
    assert "the trash is full" in trash.trash_full_message(room)
    assert [task.id for task in tasks_in(store, State.DEAD)] == [second.id]
    taken = store.trash_bytes()
    assert taken == sum(store.size(task) for task in trash.trashed_tasks(store)) > 0
    report = done(store, journal, purge_of(store, State.PENDING), taken)
    assert (len(report.done), len(report.failed)) == (0, 2)


def test_a_task_is_weighed_with_its_payload(spool: SpoolFolders) -> None:
    """A payload that leaves together with its task counts, one elsewhere does not."""
    payload = Path(spool.mail_spool, "body")
    payload.write_bytes(b"x" * 5000)
    store = filled(NftbanStore(spool, clock), str(payload))
    (dead, *_) = tasks_in(store, State.DEAD)
    elsewhere = NftbanStore(spool._replace(mail_spool=""), clock)
    assert store.size(dead) == len(store.read(dead)) + 5000
    assert elsewhere.size(dead) == len(store.read(dead))
    trashed = dead._replace(state=State.TRASH)
    store.swap(dead, trashed)
    assert store.trash_bytes() == store.size(trashed) == elsewhere.trash_bytes() + 5000
    Path(spool.staging_dir, "trash", f"{dead.id}.task").unlink()
    assert store.trash_bytes() == 0


def test_the_trash_is_read_in_parts(spool: SpoolFolders, disk: NftbanStore) -> None:
    """Each call reads so many files as it may; after the last one, the sizes need no file."""
    for task in tasks_in(disk, State.DEAD):
        disk.swap(task, task._replace(state=State.TRASH))
    exact = NftbanStore(spool, clock).trash_bytes()
    trashed = [*Path(spool.staging_dir, "trash").iterdir()]
    assert [disk.read_trash(1) for _ in trashed] == [False] * (len(trashed) - 1) + [True]
    for path in trashed:
        path.write_bytes(b"")
    assert disk.trash_bytes() == exact > 0


def test_a_purge_by_quota_opens_no_file_more(disk: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a task is taken from its directory entry."""
    opened: list[int] = []
    real = os.open

    def counting(*args: Any, **kwargs: Any) -> int:
        opened.append(1)
        return real(*args, **kwargs)

    room = trash.TrashQuota(disk, 1 << 20)
    room(tasks_in(disk, State.PENDING)[0])
    monkeypatch.setattr(os, "open", counting)
    assert [room(task) for task in tasks_in(disk, State.PENDING)] == ["", ""]
    scanned = len(opened)
    tasks_in(disk, State.PENDING)
    assert len(opened) == 2 * scanned > 0


def test_a_payload_is_kept_as_long_as_its_task(spool: SpoolFolders, journal: Journal) -> None:
    """It is swept with its task, not an hour before; a file that is no task stays."""
    payload = Path(spool.mail_spool, "body")
    payload.write_text("hello")
    store = filled(NftbanStore(spool, clock), str(payload))
    done(store, journal, purge_of(store))
    strange = Path(spool.staging_dir, "trash", "20261120T094115Z-job-000000ff.task")
    strange.write_text("no task\n")
    assert list(trash.expired_tasks(store, lambda at: NOW + 23.5 * HOUR - at, 24)) == []
    assert payload.exists()
    late = list(trash.expired_tasks(store, lambda at: NOW + 24.5 * HOUR - at, 24))
    assert len(list(store.swap_all(Move(task, None) for task in late))) == 6
    assert (payload.exists(), strange.exists(), tasks_in(store)) == (False, True, [])


def test_a_restored_task_is_not_swept(spool: SpoolFolders, disk: Store, journal: Journal) -> None:
    """Of a sweep and a restore one wins; a sweep is due an hour after the last."""
    assert not retention.is_sweep_due(spool.staging_dir, NOW)
    done(disk, journal, purge_of(disk, State.DEAD))
    assert retention.is_sweep_due(spool.staging_dir, NOW)
    retention.touch_marker(spool.staging_dir, "")
    marked = Path(spool.staging_dir, retention.SWEEP_MARKER).stat().st_mtime
    moments = {1: False, HOUR - 1: False, HOUR + 1: True, -DAY: True}
    assert {at: retention.is_sweep_due(spool.staging_dir, marked + at) for at in moments} == moments
    late = list(trash.expired_tasks(disk, lambda at: NOW + 24.5 * HOUR - at, 24))
    done(disk, journal, back(disk, journal).plan)
    outcomes = list(disk.swap_all(Move(task, None) for task in late))
    assert len(outcomes) == 2 and all(outcome.error is not None for outcome in outcomes)
    assert len(tasks_in(disk, State.DEAD)) == 2


def test_before_images_are_swept_with_the_trash(disk: Store, journal: Journal) -> None:
    """Operations stay for a month; a running one and a foreign file stay."""

    def sweep(hours: float) -> tuple[int, set[str]]:
        swept = retention.sweep_journal(journal.folder, "", lambda at: NOW + hours * HOUR - at, 24)
        return swept, {path.name for path in Path(journal.folder).iterdir()}

    op = done(disk, journal, plans.freeze_plan("retry", tasks_in(disk, State.DEAD), NOW)).op
    log = {f"{op}.jsonl"}
    assert sweep(23.5) == (0, {*log, f"{op}.before"})
    assert [sweep(hours) for hours in (24.5, 29 * 24, 31 * 24)] == [(1, log), (0, log), (1, set())]
    record = journal.begin(US._replace(verb="purge"), plans.freeze_plan("purge", [], NOW))
    Path(journal.folder, "notes.jsonl").write_text("")
    assert sweep(60 * 24)[0] == 0
    record.close()
    assert sweep(60 * 24) == (1, {"notes.jsonl"})
    assert retention.sweep_journal(f"{journal.folder}/none", "", lambda at: NOW - at, 24) == 0
