"""What operators did is written down, and can be taken back, byte for byte."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine import deeds, plans, undo, verbs
from engine.journal import Intent, Journal, Who
from engine.model import State, Task
from engine.operations import End, Report
from engine.plans import Plan
from engine.store import Store, Unavailable
from engine.stores.memory import Memory, MemoryStore
from engine.stores.nftban import NftbanStore, Spool, make_spool

NOW = 1_795_170_000.0
RETENTION = 7.0
US = Intent("", Who("ana", ssh="192.0.2.1 1 192.0.2.2 22", host="mx1", pid=1))


def clock() -> float:
    """The time in these tests."""
    return NOW


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A spool with nothing in it."""
    pending, work, dlq = (str(tmp_path / "queue" / word) for word in ("pending", "work", "dlq"))
    spool = Spool(pending, work, dlq, durable=False)
    make_spool(spool)
    return spool


@pytest.fixture
def journal(spool: Spool) -> Journal:
    """Its journal."""
    return Journal(f"{spool.desk}/journal", clock=clock)


@pytest.fixture(params=["memory", "nftban"])
def open_store(request: pytest.FixtureRequest, spool: Spool) -> Callable[[], Store]:
    """Open a further store on the same tasks."""
    memory = Memory()
    openers: dict[str, Callable[[], Store]] = {
        "memory": lambda: MemoryStore(memory),
        "nftban": lambda: NftbanStore(spool, clock),
    }
    return openers[request.param]


def a_task(number: int, **changes: object) -> Task:
    """A waiting task; numbers go by the order of ids."""
    task = Task(f"20261120T094115Z-job-{number:08x}", "job", State.PENDING, NOW - 3600)
    return replace(task, description=f"job {number}", **changes)  # type: ignore[arg-type]


def filled(store: Store) -> None:
    """Nine tasks: pending, held and dead ones."""
    for number in range(9):
        store.swap(None, a_task(number, due=0.0 if number < 4 else NOW + 600))
    for task in list(store.take(NOW, "a worker", 4)):
        store.swap(task, verbs.bury(task, "421 try again later", 3))
    for task in tasks_in(store)[6:]:
        store.swap(task, verbs.hold(task, NOW))


def tasks_in(store: Store, state: State | None = None) -> list[Task]:
    """Everything in a store, or in one of its states, in the order of ids."""
    seen = {task.id: task for task in store.look() if isinstance(task, Task)}
    return [t for _, t in sorted(seen.items()) if state is None or t.state is state]


def folder(spool: Spool) -> dict[str, tuple[bytes, int, int, int]]:
    """Bytes, mode and owner of every task file, by its path."""
    found = {}
    for where in (spool.pending, spool.work, spool.dlq, f"{spool.desk}/held"):
        for path in Path(where).iterdir() if Path(where).is_dir() else ():
            seen = path.stat()
            found[str(path)] = (path.read_bytes(), seen.st_mode, seen.st_uid, seen.st_gid)
    return found


def done(store: Store, journal: Journal, plan: Plan) -> Report:
    """Carry a plan out and write it down."""
    intent = US._replace(verb=plan.verb, undoes=plan.undoes)
    return deeds.carry_out(store, journal, plan, intent, clock)


def took_back(store: Store, journal: Journal, op: str) -> Report:
    """Take an operation back."""
    operation = journal.operation(op)
    assert operation is not None
    return done(store, journal, undo.undo(store, journal, operation, NOW, RETENTION).plan)


VERBS = [
    ("retry", State.DEAD, {}),
    ("purge", State.DEAD, {}),
    ("purge", State.PENDING, {}),
    ("purge", State.HELD, {}),
    ("hold", State.PENDING, {}),
    ("hold", State.DEAD, {}),
    ("release", State.HELD, {}),
    ("promote", State.PENDING, {}),
    ("edit", State.PENDING, {"description": "another", "due": NOW + 60}),
    ("edit", State.HELD, {"description": "another"}),
]


@pytest.mark.parametrize(("verb", "state", "values"), VERBS)
def test_what_is_taken_back_is_as_it_was(
    verb: str, state: State, values: dict[str, object], spool: Spool, journal: Journal
) -> None:
    """Names, bytes, modes and owners are the same after an operation and its undo."""
    store = NftbanStore(spool, clock)
    filled(store)
    for where in (spool.pending, spool.dlq):
        for number, path in enumerate(sorted(Path(where).iterdir())):
            path.write_bytes(b"# by hand\n" + path.read_bytes())
            path.chmod((0o600, 0o644, 0o640)[number % 3])
    before = folder(spool)
    plan = plans.freeze(verb, tasks_in(store, state), NOW)._replace(values=values)

    report = done(store, journal, plan)
    between = folder(spool)
    back = took_back(store, journal, report.op)

    assert len(report.done) == len(back.done) == len(plan.rows) > 0
    assert between != before
    assert folder(spool) == before


def test_an_undo_can_be_taken_back(open_store: Callable[[], Store], journal: Journal) -> None:
    """An undo is an operation like any other."""
    store = open_store()
    filled(store)
    first = done(store, journal, plans.freeze("retry", tasks_in(store, State.DEAD), NOW))
    retried = tasks_in(store)
    second = took_back(store, journal, first.op)

    took_back(store, journal, second.op)

    assert [(t.id, t.state, t.attempts) for t in tasks_in(store)] == [
        (t.id, t.state, t.attempts) for t in retried
    ]


def test_what_ran_since_does_not_come_back(
    open_store: Callable[[], Store], journal: Journal
) -> None:
    """A task that is not as the operation left it stays, and the dry run says why."""
    store = open_store()
    filled(store)
    report = done(store, journal, plans.freeze("retry", tasks_in(store, State.DEAD), NOW))
    (first, *_) = store.take(NOW, "a worker", 1)
    store.swap(first, None)
    operation = journal.operation(report.op)
    assert operation is not None

    plan = undo.undo(store, journal, operation, NOW, RETENTION).plan
    back = done(store, journal, plan)

    assert plan.excluded[0][1] == "left since: it ran, or somebody removed it"
    assert (len(back.done), len(back.excluded)) == (3, 1)
    assert back.accounted == len(plan.rows) == 4


def test_what_died_long_ago_comes_back_as_held(spool: Spool, journal: Journal) -> None:
    """A dead task that the next run would delete is put where it stays, with its bytes."""
    store = NftbanStore(spool, clock)
    filled(store)
    dead = tasks_in(store, State.DEAD)
    bytes_of = {task.id: store.read(task) for task in dead}
    report = done(store, journal, plans.freeze("purge", dead, NOW))
    operation = journal.operation(report.op)
    assert operation is not None

    back = undo.undo(store, journal, operation, NOW + 8 * 86400, RETENTION)
    done(store, journal, back.plan)

    assert back.held == set(bytes_of)
    held = [task for task in tasks_in(store, State.HELD) if task.id in bytes_of]
    assert {task.id: store.read(task) for task in held} == bytes_of


def test_the_journal_tells_what_was_done(open_store: Callable[[], Store], journal: Journal) -> None:
    """Who, when, what, why, and what became of every row; no address in full."""
    store = open_store()
    filled(store)
    plan = plans.freeze("purge", tasks_in(store, State.DEAD), NOW)
    plan = plan._replace(left_out=frozenset({plan.rows[0].id}))
    rival = tasks_in(store, State.DEAD)[1]
    store.swap(rival, verbs.retry(rival, NOW))
    intent = US._replace(verb="purge", reason="ask kim@example.net", filter="to:a.b@example.org")

    deeds.carry_out(store, journal, plan, intent, clock)

    (operation,) = journal.operations()
    assert operation.counts == {End.DONE: 2, End.GONE: 1, End.FAILED: 0, End.EXCLUDED: 1}
    assert (operation.planned, operation.open, operation.ended) == (4, 0, NOW)
    assert (operation.running, operation.interrupted) == (False, False)
    assert operation.intent.who == US.who
    assert operation.intent.reason == "ask ...@example.net"
    assert operation.intent.filter == "to:...@example.org"


def test_without_its_journal_nothing_is_done(
    open_store: Callable[[], Store], spool: Spool, journal: Journal
) -> None:
    """Where the intent cannot be written down, no task moves; what is gone for good says so."""
    store = open_store()
    filled(store)
    Path(journal.folder).write_text("in the way")
    dead = tasks_in(store, State.DEAD)

    with pytest.raises(Unavailable, match="journal"):
        done(store, journal, plans.freeze("purge", dead, NOW))
    assert tasks_in(store, State.DEAD) == dead
    report = done(store, journal, plans.freeze("expunge", dead, NOW))

    assert len(report.done) == 4
    assert "journal" in report.trouble


def test_an_interrupted_operation_is_settled_once(
    open_store: Callable[[], Store], journal: Journal
) -> None:
    """What was moved is found out from where it stands; the rest stays open, to be gone on with."""
    store = open_store()
    filled(store)
    plan = plans.freeze("retry", tasks_in(store, State.DEAD), NOW)
    pen = journal.begin(US._replace(verb="retry"), plan)
    (running,) = journal.operations()
    moved = tasks_in(store, State.DEAD)[0]
    pen.keep([(moved.id, store.read(moved))])
    store.swap(moved, verbs.retry(moved, NOW))
    pen.close()
    (before,) = journal.operations()

    once = undo.settle(store, journal, before)
    twice = undo.settle(store, journal, before)

    assert (running.running, before.interrupted) == (True, True)
    assert once is not None and once == twice
    assert (once.counts[End.DONE], once.open) == (1, 3)
    assert undo.rest(journal, once, NOW).rows == plan.rows[1:]


def test_what_is_given_up_on_is_over(open_store: Callable[[], Store], journal: Journal) -> None:
    """An interrupted operation that nobody goes on with ends, every row accounted for."""
    store = open_store()
    filled(store)
    plan = plans.freeze("retry", tasks_in(store, State.DEAD), NOW)
    journal.begin(US._replace(verb="retry"), plan).close()
    (operation,) = journal.operations()

    undo.drop(journal, operation, "left as it is")

    (operation,) = Journal(journal.folder).operations()
    assert (operation.counts[End.EXCLUDED], operation.open) == (4, 0)
    assert operation.ended is not None


def test_a_torn_journal_counts_for_what_is_whole(
    open_store: Callable[[], Store], journal: Journal
) -> None:
    """What a crash cut off counts for nothing, and what is written behind it is read."""
    store = open_store()
    filled(store)
    plan = plans.freeze("purge", tasks_in(store, State.DEAD), NOW)
    journal.begin(US._replace(verb="purge"), plan).close()
    (path,) = Path(journal.folder).glob("*.jsonl")
    with path.open("ab") as file:
        file.write(b'{"line": "ends", "done": {"2026112')
    (operation,) = journal.operations()
    assert operation.open == 4

    undo.drop(journal, operation, "left as it is")

    (operation,) = Journal(journal.folder).operations()
    assert (operation.open, operation.damaged) == (0, 1)
