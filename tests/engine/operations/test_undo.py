"""Undo of an operation, byte for byte, and operations that a crash left open."""

import fcntl
import zlib
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from pytest import MonkeyPatch

from engine import verbs
from engine.formats.base.memory import MemoryStore
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import Missing, Problem, State, Task
from engine.operations import execute, plans, run_plan, undo
from engine.operations.execute import Report
from engine.operations.journal import Intent, Journal, Operation, Who
from engine.operations.plans import Plan, RowResult
from engine.store import Store, Unavailable
from engine.verbs import with_state
from tests.engine.task_builders import NOW, a_task, clock, tasks_in

RETENTION = 7.0
US = Intent("", Who("ana", ssh="192.0.2.1 1 192.0.2.2 22", host="mx1", pid=1))


def filled(store: Store) -> Store:
    """Put nine tasks into a store: pending, held and dead ones."""
    for number in range(9):
        store.swap(None, a_task(number, due=0.0 if number < 4 else NOW + 600))
    for task in list(store.take(NOW, "a worker", 4)):
        store.swap(task, verbs.give_up_task(task, "421 try again later", 3))
    for task in tasks_in(store)[6:]:
        store.swap(task, verbs.hold(task, NOW))
    return store


def folder(spool: SpoolFolders) -> dict[str, tuple[bytes, int, int, int]]:
    """Bytes, mode and owner of every task file, by its path."""
    by_name = {}
    for where in (spool.pending, spool.work, spool.dlq, f"{spool.staging_dir}/held"):
        for path in Path(where).glob("*"):
            stat = path.stat()
            by_name[str(path)] = (path.read_bytes(), stat.st_mode, stat.st_uid, stat.st_gid)
    return by_name


def done(store: Store, journal: Journal, plan: Plan, **facts: Any) -> Report:
    """Carry a plan out and write it down."""
    intent = US._replace(verb=plan.verb, undoes=plan.undoes, **facts)
    return run_plan.run_journaled_plan(store, journal, plan, intent, clock)


def plan_of(verb: str, tasks: Sequence[Task]) -> Plan:
    """The plan for these tasks."""
    return plans.freeze_plan(verb, tasks, NOW)


def operation_of(journal: Journal, op: str) -> Operation:
    """An operation by its name."""
    operation = journal.operation(op)
    assert operation is not None
    return operation


def undo_of(store: Store, journal: Journal, op: str, now: float = NOW) -> undo.UndoPlan:
    """The plan that undoes an operation."""
    return undo.plan_undo(store, journal, operation_of(journal, op), now, RETENTION)


def undone(store: Store, journal: Journal, op: str) -> Report:
    """Undo an operation."""
    return done(store, journal, undo_of(store, journal, op).plan)


def settled(store: Store, journal: Journal, operation: Operation) -> Operation:
    """An interrupted operation, once it is known what became of its tasks."""
    settled = undo.settle_operation(store, journal, operation).operation
    assert settled is not None
    return settled


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    """A store of either kind, with nine tasks in it."""
    return filled(open_store())


@pytest.fixture
def disk(spool: SpoolFolders) -> Store:
    """A store on a spool, with nine tasks in it."""
    return filled(NftbanStore(spool, clock))


VERBS: list[tuple[str, State, dict[str, object]]] = [
    *(("purge", state, {}) for state in (State.DEAD, State.PENDING, State.HELD)),
    *(("hold", state, {}) for state in (State.PENDING, State.DEAD)),
    ("retry", State.DEAD, {}),
    ("release", State.HELD, {}),
    ("promote", State.PENDING, {}),
    ("edit", State.PENDING, {"description": "another", "due": NOW + 60}),
    ("edit", State.HELD, {"description": "another"}),
]


@pytest.mark.parametrize("case", VERBS)
def test_an_undo_restores_every_byte(
    case: tuple[str, State, dict[str, object]], disk: Store, spool: SpoolFolders, journal: Journal
) -> None:
    """Names, bytes, modes and owners are the same after an operation and its undo."""
    verb, state, values = case
    for where in (spool.pending, spool.dlq):
        for number, path in enumerate(sorted(Path(where).iterdir())):
            path.write_bytes(b"# by hand\n" + path.read_bytes())
            path.chmod((0o600, 0o644, 0o640)[number % 3])
    before = folder(spool)
    plan = plan_of(verb, tasks_in(disk, state))._replace(values=values)
    report = done(disk, journal, plan)
    assert folder(spool) != before
    assert len(report.done) == len(undone(disk, journal, report.op).done) == len(plan.rows) > 0
    assert folder(spool) == before


def test_an_undo_can_be_undone(store: Store, journal: Journal) -> None:
    """A task that is not as the operation left it stays, and the dry run says why."""
    first = done(store, journal, plan_of("retry", tasks_in(store, State.DEAD)))
    retried = tasks_in(store)
    third = undone(store, journal, undone(store, journal, first.op).op)
    facts = attrgetter("id", "state", "attempts")
    assert [*map(facts, tasks_in(store))] == [*map(facts, retried)]
    (claimed, *_) = store.take(NOW, "a worker", 1)
    store.swap(claimed, None)
    plan = undo_of(store, journal, third.op).plan
    back = done(store, journal, plan)
    assert next(plan.excluded)[1] == "gone since: it ran, or was removed"
    assert (len(back.done), len(back.excluded)) == (3, 1)
    assert back.accounted == len(plan.rows) == 4


def test_long_dead_tasks_return_as_held(disk: Store, spool: SpoolFolders, journal: Journal) -> None:
    """A dead task that the next run would delete is put where it stays, with its bytes."""
    dead = tasks_in(disk, State.DEAD)
    bytes_of = {task.id: disk.read(task) for task in dead}
    report = done(disk, journal, plan_of("purge", dead))
    back = undo_of(disk, journal, report.op, NOW + 8 * 86400)
    done(disk, journal, back.plan)
    assert back.held == set(bytes_of)
    held = [task for task in tasks_in(disk, State.HELD) if task.id in bytes_of]
    assert {task.id: disk.read(task) for task in held} == bytes_of


def test_the_journal_shows_the_operations(store: Store, journal: Journal) -> None:
    """Who, when, what, why, and what became of every row; no address in full."""
    plan = plan_of("purge", tasks_in(store, State.DEAD))
    plan = plan._replace(excluded_ids=frozenset({plan.rows[0].id}))
    rival = tasks_in(store, State.DEAD)[1]
    store.swap(rival, verbs.retry(rival, NOW))
    done(store, journal, plan, reason="ask kim@example.net", filter="to:a.b@example.org")
    (operation,) = journal.operations()
    counts = {RowResult.DONE: 2, RowResult.GONE: 1, RowResult.EXCLUDED: 1}
    assert operation.counts == dict.fromkeys(RowResult, 0) | counts
    assert (operation.planned, operation.open_rows, operation.ended) == (4, 0, NOW)
    assert (operation.is_running, operation.is_interrupted) == (False, False)
    intent = operation.intent
    assert (intent.who, intent.filter) == (US.who, "to:...@example.org")
    assert intent.reason == "ask ...@example.net"


def test_without_its_journal_nothing_is_done(store: Store, journal: Journal) -> None:
    """Where the intent cannot be written down, no task moves; what is gone for good says so."""
    Path(journal.folder).write_text("in the way")
    dead = tasks_in(store, State.DEAD)
    with pytest.raises(Unavailable, match="journal"):
        done(store, journal, plan_of("purge", dead))
    assert tasks_in(store, State.DEAD) == dead
    report = done(store, journal, plan_of("expunge", dead))
    assert len(report.done) == 4
    assert "journal" in report.trouble


def left_open(store: Store, journal: Journal, verb: str, rows: int = 3) -> Operation:
    """An operation on dead tasks whose process died before it moved the first."""
    plan = plan_of(verb, tasks_in(store, State.DEAD)[:rows])
    record = journal.begin(US._replace(verb=verb), plan)
    record.close()
    return operation_of(journal, record.op)


def leave_in_staging(spool: SpoolFolders, ident: str) -> None:
    """As a process leaves it that is killed between taking a task away and putting it in place."""
    path = Path(spool.dlq, f"{ident}.task")
    crc = zlib.crc32(path.read_bytes())
    path.rename(f"{spool.staging_dir}/D.{ident}.dlq.trash.{crc:08x}.1-0-1")


def test_an_operation_in_motion_is_kept(disk: Store, spool: SpoolFolders, journal: Journal) -> None:
    """While a task moves it is not dropped; later the task is done, the others stay."""
    operation = left_open(disk, journal, "purge")
    moving = tasks_in(disk, State.DEAD)[0]
    leave_in_staging(spool, moving.id)
    with staged(spool)[0].open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as a process that moves it has it
        with pytest.raises(Unavailable, match=r"^1 task is still being moved: wait, or run `spool"):
            undo.abandon_operation(disk, journal, operation, "left as it is")
        (refused,) = journal.operations()
    assert undo.abandon_operation(disk, journal, operation, "left as it is") == 2
    (dropped,) = journal.operations()
    assert (refused.open_rows, refused.is_interrupted) == (3, True)
    assert (dropped.counts[RowResult.DONE], dropped.counts[RowResult.UNAPPLIED]) == (1, 2)
    notes = [(note["what"], note["why"]) for note in dropped.notes]
    assert notes == [(undo.CLOSED_NOTE, "left as it is")]
    assert undone(disk, journal, operation.op).done == (moving.id,)


def test_a_half_moved_task_stays_there(disk: Store, spool: SpoolFolders, journal: Journal) -> None:
    """The plan to go on moves the others; then it is finished, and counts as the first one's."""
    first = left_open(disk, journal, "purge")
    half, *others = (task.id for task in tasks_in(disk, State.DEAD)[:3])
    leave_in_staging(spool, half)
    rest = undo.plan_rest(disk, journal, first, NOW)
    assert ([row.id for row in rest.rows], len(staged(spool))) == (others, 1)
    report = done(disk, journal, rest, follows=first.op)
    undo.abandon_operation(disk, journal, first, undo.REASON_CONTINUED)
    assert report.done == tuple(others)
    assert [task.id for task in tasks_in(disk, State.TRASH)] == [half, *others]
    over = operation_of(journal, first.op)
    assert over.ended is not None
    assert (over.counts[RowResult.DONE], over.counts[RowResult.UNAPPLIED]) == (1, 2)


def test_a_plan_finishes_its_own_moves(disk: Store, spool: SpoolFolders, journal: Journal) -> None:
    """A half-moved task of it is brought where it belongs, that of another plan is not."""
    ours, others, *_ = tasks_in(disk, State.DEAD)
    for task in (ours, others):
        leave_in_staging(spool, task.id)
    assert done(disk, journal, plan_of("hold", [ours])).gone == (ours.id,)
    assert [task.id for task in tasks_in(disk, State.TRASH)] == [ours.id]
    assert [path.name.split(".")[1] for path in staged(spool)] == [others.id]


def staged(spool: SpoolFolders) -> list[Path]:
    """The files that are half moved."""
    return list(Path(spool.staging_dir).glob("D.*"))


def test_a_read_operation_shows_no_operator(journal: Journal, monkeypatch: MonkeyPatch) -> None:
    """No process takes one that settles an operation for one that carries it out."""
    during: list[bool] = []
    store = filled(MemoryStore())
    operation, scan = left_open(store, journal, "purge"), store.scan

    def slow(*touched: Any) -> Iterator[Task | Missing | Problem]:
        during.extend(one.is_interrupted for one in Journal(journal.folder).operations())
        return scan(*touched)

    monkeypatch.setattr(store, "scan", slow)
    undo.settle_operation(store, journal, operation)
    assert during == [True]


def test_why_it_does_not_come_back_is_shown_in_its_stores_words(
    disk: Store, spool: SpoolFolders, journal: Journal
) -> None:
    """Where a task stands by now is called as the store calls it."""
    report = done(disk, journal, plan_of("purge", tasks_in(disk, State.HELD)))
    for task in tasks_in(disk, State.TRASH):
        back = tasks_in(disk, State.HELD)
        disk.swap(task, with_state(task, State.DEAD))
        assert tasks_in(disk, State.HELD) == back
    rows = undo_of(disk, journal, report.op).plan.rows
    assert {row.barred for row in rows} == {"dlq now: it ran, or was moved"}


def test_a_dropped_operation_is_settled_first(store: Store, journal: Journal) -> None:
    """Tasks moved before the kill count as done, once; the rest ends with the drop."""
    operation = left_open(store, journal, "purge")
    rows = [task.id for task in tasks_in(store, State.DEAD)]
    purge_first(store)
    once = settled(store, journal, operation)
    assert once == settled(store, journal, operation)
    assert operation.is_interrupted
    assert (once.counts[RowResult.DONE], once.open_rows) == (1, 2)
    assert [row.id for row in undo.plan_rest(store, journal, once, NOW).rows] == rows[1:3]
    with Path(journal.folder, f"{operation.op}.jsonl").open("ab") as file:
        file.write(b'{"line": "ends", "done": {"2026112')  # cut off by a crash
    assert undo.abandon_operation(store, journal, operation, "left as it is") == 2
    (dropped,) = Journal(journal.folder).operations()
    assert (dropped.damaged_lines, dropped.ended is None) == (1, False)
    assert (dropped.counts[RowResult.DONE], dropped.counts[RowResult.UNAPPLIED]) == (1, 2)


def test_rows_that_another_operation_continues_are_its_own(store: Store, journal: Journal) -> None:
    """They do not count as the first one's, wherever they are by now."""
    first = left_open(store, journal, "purge")
    rest = undo.plan_rest(store, journal, first, NOW)
    journal.begin(US._replace(verb="purge", follows=first.op), rest).close()
    purge_first(store)
    undo.abandon_operation(store, journal, first, "not the reason")
    now = operation_of(journal, first.op)
    assert now.ended is not None
    assert now.counts == dict.fromkeys(RowResult, 0) | {RowResult.UNAPPLIED: 3}
    assert {words for _, words in ends(journal, first.op)} == {undo.REASON_CONTINUED}


def purge_first(store: Store) -> None:
    """Purge the first dead task."""
    task = tasks_in(store, State.DEAD)[0]
    store.swap(task, verbs.purge(task, NOW))


def ends(journal: Journal, op: str) -> list[tuple[RowResult, str]]:
    """How each row of an operation ended that has ended."""
    return [(e.outcome.result, e.outcome.reason) for e in journal.entries(op) if e.outcome]


def test_a_task_that_another_operation_moves_is_not_claimed(store: Store, journal: Journal) -> None:
    """It is that one's once it has written so, even when it was edited since."""
    operation = left_open(store, journal, "purge")
    plan = plan_of("purge", tasks_in(store, State.DEAD)[:1])
    record = journal.begin(US._replace(verb="purge", who=Who("ben")), plan)
    theirs = execute.PlanRun(store, plan, clock)
    ended = theirs.step(theirs.open_rows)
    before = undo.settle_operation(store, journal, operation)
    record.write_outcomes(ended)
    after = settled(store, journal, operation)
    record.close()
    assert (len(before.moving), len(before.unmoved)) == (1, 2)
    assert (after.counts[RowResult.DONE], after.counts[RowResult.GONE]) == (0, 1)
    words = f"another operation did it ({record.op})"
    assert ends(journal, operation.op) == [(RowResult.GONE, words)]


def test_a_task_that_a_later_operation_moved_is_not_claimed(store: Store, journal: Journal) -> None:
    """Not even when it was edited since."""
    operation = left_open(store, journal, "hold", 1)
    (task,) = tasks_in(store, State.DEAD)[:1]
    report = done(store, journal, plan_of("hold", [task]))
    (held,) = (t for t in tasks_in(store, State.HELD) if t.id == task.id)
    store.swap(held, verbs.edit(held, NOW, "another"))
    undo.settle_operation(store, journal, operation)
    words = f"another operation did it ({report.op})"
    assert ends(journal, operation.op) == [(RowResult.GONE, words)]


def test_a_task_that_is_nowhere_was_not_surely_removed(store: Store, journal: Journal) -> None:
    """A task that ran since an interrupted expunge saw it is not said to be expunged."""
    operation = left_open(store, journal, "expunge", 1)
    (task,) = tasks_in(store, State.DEAD)[:1]
    store.swap(task, verbs.retry(task, NOW))
    (claimed,) = store.take(NOW, "a worker", 1)
    store.swap(claimed, None)
    assert settled(store, journal, operation).ended is not None
    words = "gone: it is unknown whether this operation removed it"
    assert ends(journal, operation.op) == [(RowResult.GONE, words)]


@pytest.mark.parametrize("word", ["pending", "dlq"])
def test_trash_keeps_bytes(word: str, disk: Store, spool: SpoolFolders, journal: Journal) -> None:
    """Purged and restored, a file is itself, whether or not it says when its task died."""
    dead = b'TASK_DLQ_EPOCH="1795160000"\nTASK_DLQ_REASON="by hand"\n'
    paths = sorted(Path(spool.pending).parent.joinpath(word).iterdir())
    for path in paths:
        alive = path.read_bytes().partition(b"TASK_DLQ_EPOCH")[0]
        path.write_bytes(alive + dead if word == "pending" else alive)
    before = folder(spool)
    state = {"pending": State.PENDING, "dlq": State.DEAD}[word]
    plan = plan_of("purge", tasks_in(disk, state))
    report = done(disk, journal, plan._replace(included_ids=frozenset(r.id for r in plan.rows)))
    texts = {path.name: path.read_bytes() for path in Path(spool.staging_dir, "trash").iterdir()}
    undone(disk, journal, report.op)
    assert len(report.done) == len(paths) > 0
    assert (texts, folder(spool)) == ({path.name: before[str(path)][0] for path in paths}, before)


def test_a_second_of_an_id_is_excluded(disk: Store, spool: SpoolFolders, journal: Journal) -> None:
    """A task whose id is somewhere else by now is excluded, and the dry run says why."""
    dead = tasks_in(disk, State.DEAD)[:2]
    report = done(disk, journal, plan_of("purge", dead))
    first = report.done[0]
    trashed = Path(spool.staging_dir, "trash", f"{first}.task")
    Path(spool.pending, trashed.name).write_bytes(trashed.read_bytes())
    plan = undo_of(disk, journal, report.op).plan
    back = done(disk, journal, plan)
    forced = done(disk, journal, plan._replace(included_ids=frozenset({first})))
    assert [why for _, why in plan.excluded] == ["a task with this id is already in pending"]
    assert (back.done, forced.done) == (report.done[1:], ())
    states = [task.state for task in disk.scan({first}) if isinstance(task, Task)]
    assert states == [State.PENDING, State.TRASH]
