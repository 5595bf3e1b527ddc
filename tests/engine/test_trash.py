"""What was purged lies in the trash for a while: it can be had back, it is bounded, it is swept."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine import deeds, plans, sweeping, trash, undo, verbs
from engine.journal import Intent, Journal, Who
from engine.model import Move, State, Task
from engine.operations import Report
from engine.plans import Plan
from engine.store import Store
from engine.stores.memory import Memory, MemoryStore
from engine.stores.nftban import NftbanStore, Spool
from tests.engine.builders import new_spool, tasks_in

NOW = time.time()
"""The kernel says since when something lies in the trash, so the time has to be its own."""
HOUR, DAY = 3600.0, 86400.0
RETENTION = 7.0
US = Intent("", Who("ana"))


def clock() -> float:
    """The time in these tests."""
    return NOW


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A spool with nothing in it, and a mail spool."""
    (tmp_path / "mailspool").mkdir()
    return new_spool(tmp_path, mail_spool=f"{tmp_path}/mailspool")


@pytest.fixture
def journal(spool: Spool) -> Journal:
    """Its journal."""
    return Journal(f"{spool.desk}/journal", clock=clock)


@pytest.fixture(params=["memory", "nftban"])
def store(request: pytest.FixtureRequest, spool: Spool) -> Store:
    """A store of either kind."""
    if request.param == "memory":
        return MemoryStore(Memory())
    return NftbanStore(spool, clock)


def filled(store: Store, payload: str = "") -> None:
    """Two pending tasks, two held ones, two dead ones."""
    for number in range(6):
        ident = f"20261120T094115Z-job-{number:08x}"
        task = Task(ident, "job", State.PENDING, NOW - DAY, description=f"job {number}")
        store.swap(None, replace(task, payload=payload))
    for task in list(store.take(NOW, "a worker", 2)):
        store.swap(task, verbs.bury(task, "421 try again later", 3))
    for task in tasks_in(store, State.PENDING)[:2]:
        store.swap(task, verbs.hold(task, NOW))


def purged(
    store: Store, journal: Journal | None, *states: State, quota: int | None = None
) -> Report:
    """What stands in these states put into the trash."""
    plan = plans.freeze("purge", tasks_in(store, *states), NOW)
    intent = US._replace(verb="purge")
    return deeds.carry_out(store, journal, plan, intent, clock, quota=quota)


def back(store: Store, journal: Journal | None, now: float = NOW) -> undo.Back:
    """The plan to restore all that lies in the trash."""
    plan = plans.freeze("restore", trash.lying(store), now)
    return trash.restore(store, journal, plan, now, RETENTION)


def done(store: Store, journal: Journal, plan: Plan) -> Report:
    """Carry a plan out and write it down."""
    return deeds.carry_out(store, journal, plan, US._replace(verb=plan.verb), clock)


def stand(store: Store) -> dict[str, tuple[State, bytes]]:
    """Where each task stands, and what is stored of it."""
    return {task.id: (task.state, store.read(task)) for task in tasks_in(store)}


EVERYWHERE = (State.PENDING, State.HELD, State.DEAD)


def test_what_was_purged_goes_back_where_it_stood(store: Store, journal: Journal) -> None:
    """The journal remembers where each task came from, and every byte of it is as it was."""
    filled(store)
    before = {ident: state for ident, (state, _) in stand(store).items()}
    purged(store, journal, *EVERYWHERE)
    trashed = {t.id: t for t in trash.lying(store)}
    origins = trash.origins(journal, tuple(trashed.values()))
    report = done(store, journal, back(store, journal).plan)
    assert {ident: origin.state for ident, origin in origins.items()} == before
    assert {origin.words for origin in origins.values()} == {"purge by ana"}
    assert len(report.done) == 6
    assert {ident: state for ident, (state, _) in stand(store).items()} == before


def test_the_last_who_purged_it_is_believed(store: Store, journal: Journal) -> None:
    """A task that was purged twice goes back where the second purge found it."""
    filled(store)
    purged(store, journal, State.DEAD)
    done(store, journal, back(store, journal).plan)
    done(store, journal, plans.freeze("hold", tasks_in(store, State.DEAD), NOW))
    purged(store, Journal(journal.folder, clock=lambda: NOW + 60), State.HELD)
    ends = {row.end for row in back(store, journal).plan.rows}
    assert ends == {State.HELD}


def test_without_a_journal_a_task_says_itself_that_it_was_dead(store: Store) -> None:
    """A dead task knows when it died and goes back to the dead; the others come back as held."""
    filled(store)
    if isinstance(store, MemoryStore):  # this one keeps no such time of its own
        for task in tasks_in(store, State.DEAD):
            extra = {"dead_since": str(int(NOW))}
            store.swap(task, None)
            with store._memory.changed:
                store._memory.put((task.queue, task.id), replace(task, extra=extra))
    dead = {task.id for task in tasks_in(store, State.DEAD)}
    purged(store, None, *EVERYWHERE)

    came = trash.origins(None, tuple(trash.lying(store)))
    ends = {row.id: row.end for row in back(store, None).plan.rows}

    assert dead
    assert {ident for ident, end in ends.items() if end is State.DEAD} == dead
    assert {end for ident, end in ends.items() if ident not in dead} == {State.HELD}
    words = {origin.words for ident, origin in came.items() if ident not in dead}
    assert words == {"nobody remembers where it stood: it comes back as held"}


def test_a_purge_that_was_killed_is_remembered(spool: Spool, journal: Journal) -> None:
    """The intent alone says where a task came from that lies in the trash. A dead one that the next
    run would delete for its age comes back as held."""
    store = NftbanStore(spool, clock)
    filled(store)
    dead = {task.id for task in tasks_in(store, State.DEAD)}
    plan = plans.freeze("purge", tasks_in(store, State.PENDING, State.DEAD), NOW)
    journal.begin(US._replace(verb="purge"), plan).close()
    for task in tasks_in(store, State.PENDING, State.DEAD):
        store.swap(task, verbs.purge(task, NOW))
    soon, late = back(store, journal), back(store, journal, NOW + 8 * DAY)
    assert {row.end for row in soon.plan.rows} == {State.PENDING, State.DEAD}
    assert not soon.held
    assert late.held == dead


# ---- how much


def test_a_purge_that_does_not_fit_says_so(store: Store, journal: Journal) -> None:
    """The rows that fit are purged, the others stay where they are and say why; what lies in the
    trash already takes its room."""
    filled(store)
    dead = tasks_in(store, State.DEAD)
    room = store.size(dead[0]) + store.size(dead[1]) - 1
    report = purged(store, journal, State.DEAD, quota=room)
    assert report.done == (dead[0].id,)
    assert report.failed == ((dead[1].id, trash.full(room)),)
    assert "the trash is full" in trash.full(room)
    assert [task.id for task in tasks_in(store, State.DEAD)] == [dead[1].id]
    taken = trash.taken(store)
    assert taken == sum(store.size(task) for task in trash.lying(store)) > 0
    second = purged(store, journal, State.PENDING, quota=taken)
    assert (len(second.done), len(second.failed)) == (0, 2)


def test_payloads_are_weighed_with_their_tasks(spool: Spool) -> None:
    """What leaves together with a task counts; what lies elsewhere does not."""
    store = NftbanStore(spool, clock)
    payload = Path(spool.mail_spool, "body")
    payload.write_bytes(b"x" * 5000)
    filled(store, str(payload))
    (dead, *_) = tasks_in(store, State.DEAD)
    elsewhere = NftbanStore(spool._replace(mail_spool=""), clock)
    assert store.size(dead) == len(store.read(dead)) + 5000
    assert elsewhere.size(dead) == len(store.read(dead))


def test_a_batch_is_weighed_and_not_read_again(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A purge with a quota opens no file more than one without."""
    store = NftbanStore(spool, clock)
    filled(store)
    opened: list[int] = []
    real = os.open

    def counting(*args: object, **kwargs: object) -> int:
        opened.append(1)
        return real(*args, **kwargs)  # type: ignore[arg-type]

    room = trash.Room(store, 1 << 20)
    (task, *_) = tasks_in(store, State.PENDING)
    room(task)
    monkeypatch.setattr(os, "open", counting)

    assert [room(task) for task in tasks_in(store, State.PENDING)] == ["", ""]
    looked = len(opened)
    opened.clear()
    tasks_in(store, State.PENDING)

    assert len(opened) == looked > 0


# ---- how long


def test_a_payload_lives_as_long_as_its_task_lies_there(spool: Spool, journal: Journal) -> None:
    """Purged it stays, swept it goes together with its task, and not an hour before; a file that is
    no task stays."""
    store = NftbanStore(spool, clock)
    payload = Path(spool.mail_spool, "body")
    payload.write_text("hello")
    filled(store, str(payload))
    purged(store, journal, *EVERYWHERE)
    strange = Path(spool.desk, "trash", "20261120T094115Z-job-000000ff.task")
    strange.write_text("no task\n")

    early = list(trash.discarded(store, NOW + 23 * HOUR, 24))
    kept = payload.exists()
    late = list(trash.discarded(store, NOW + 25 * HOUR, 24))
    list(store.swap_all(Move(task, None) for task in late))

    assert (early, kept, len(late)) == ([], True, 6)
    assert not payload.exists()
    assert strange.exists()
    assert tasks_in(store) == []


def test_what_is_restored_meanwhile_is_not_swept(spool: Spool, journal: Journal) -> None:
    """Of a sweep and a restore one wins, and no task is lost that somebody has had back."""
    store = NftbanStore(spool, clock)
    filled(store)
    purged(store, journal, State.DEAD)
    late = list(trash.discarded(store, NOW + 25 * HOUR, 24))
    done(store, journal, back(store, journal).plan)
    outcomes = list(store.swap_all(Move(task, None) for task in late))
    assert all(outcome.error is not None for outcome in outcomes)
    assert len(tasks_in(store, State.DEAD)) == 2


def test_a_sweep_is_due_once_an_hour(spool: Spool, journal: Journal) -> None:
    """Not while there is nothing to sweep; then at once, and again an hour after the last one."""
    store = NftbanStore(spool, clock)
    filled(store)
    none = sweeping.is_due(spool.desk, NOW)
    purged(store, journal, State.DEAD)
    first = sweeping.is_due(spool.desk, NOW)
    sweeping.mark(spool.desk, "")
    marked = Path(spool.desk, sweeping.MARKER).stat().st_mtime
    moments = (marked + 1, marked + HOUR - 1, marked + HOUR + 1, marked - DAY)
    due = [sweeping.is_due(spool.desk, moment) for moment in moments]
    assert (none, first) == (False, True)
    assert due == [False, False, True, True]


def test_before_images_are_swept_with_the_trash(spool: Spool, journal: Journal) -> None:
    """What tasks were is kept for as long as it can be taken back, operations for a month."""
    store = NftbanStore(spool, clock)
    filled(store)
    report = done(store, journal, plans.freeze("retry", tasks_in(store, State.DEAD), NOW))
    names = {f"{report.op}.jsonl", f"{report.op}.before"}
    gone = [
        (sweeping.sweep_journal(journal.folder, "", NOW + hours * HOUR, 24), there(journal))
        for hours in (23, 25, 29 * 24, 31 * 24)
    ]
    log = {f"{report.op}.jsonl"}
    assert gone == [(0, names), (1, log), (0, log), (1, set())]


def test_an_operation_that_runs_is_not_swept(spool: Spool, journal: Journal) -> None:
    """What somebody still writes is left alone, however old; so is what is not ours."""
    plan = plans.freeze("purge", [], NOW)
    pen = journal.begin(US._replace(verb="purge"), plan)
    Path(journal.folder, "notes.jsonl").write_text("")
    running = sweeping.sweep_journal(journal.folder, "", NOW + 60 * DAY, 24)
    pen.close()
    ended = sweeping.sweep_journal(journal.folder, "", NOW + 60 * DAY, 24)
    assert (running, ended) == (0, 1)
    assert there(journal) == {"notes.jsonl"}
    assert sweeping.sweep_journal(f"{journal.folder}/none", "", NOW, 24) == 0


def there(journal: Journal) -> set[str]:
    """What lies in the journal's folder."""
    return {path.name for path in Path(journal.folder).iterdir()}
