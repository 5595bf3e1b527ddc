"""The rows of a large plan in a temporary table: frozen, counted, read in windows, torn."""

import os
from collections.abc import Callable
from functools import partial
from itertools import islice
from operator import itemgetter, methodcaller
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pytest import MonkeyPatch

from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.index.filter_language import parse_filter
from engine.index.freeze_plan import differing_rows, freeze_rows
from engine.index.reader import Reader
from engine.index.schema import Query
from engine.index.writer import Writer
from engine.model import Edge, Edges, Missing, State, Task, TaskWarning
from engine.operations import plans, undo
from engine.operations.execute import JOURNAL_BATCH_ROWS, Report
from engine.operations.journal import Intent, Journal, Operation, Who
from engine.operations.plan_rows import REASON_NOTED, REASON_RECENT, RowTable
from engine.operations.plans import Plan, RowResult
from engine.operations.run_plan import run_journaled_plan
from engine.operations.temp_table import TempTable
from engine.store import Unavailable
from tests.engine.task_builders import NOW, a_task, clock
from tui.plan.plan_lines import count_plan

Use = Callable[[RowTable], object]
ANA = Who("ana")

TASKS = [
    *(a_task(n, rev=f"r{n}", created=NOW - 400 * n) for n in range(6)),
    a_task(6, rev="dead", state=State.DEAD, created=0.0),
    a_task(4, rev="other", state=State.DEAD),
    a_task(7, rev="seven", queue="a"),
    a_task(7, rev="seven too", queue="b"),
]
NOTED = frozenset({a_task(3).id, a_task(6).id})
PENDING, NEVER = Query(State.PENDING), float("inf")


@pytest.fixture(autouse=True)
def _filled(writer: Writer) -> None:
    """An index of `TASKS`."""
    writer.begin_scan()
    writer.add_scanned(TASKS)
    writer.end_scan()
    list(writer.build_indexes())


@pytest.fixture(params=[True, False], ids=["table", "memory"])
def is_large(request: pytest.FixtureRequest, monkeypatch: MonkeyPatch) -> bool:
    """Whether the rows of a plan are in a table."""
    monkeypatch.setattr(plans, "MAX_ROWS_IN_MEMORY", 3 if request.param else 100)
    return bool(request.param)


def table_of(reader: Reader, query: Query = PENDING, **choice: Any) -> RowTable:
    """The rows of a plan in a table."""
    choice = {"now": NOW, "recent": NOW, "ids_with_note": (), **choice}
    return freeze_rows(reader, query, None, **choice)


def frozen(reader: Reader, verb: str, query: Query) -> tuple[Plan, Plan]:
    """The same plan in memory and in a table."""
    small = plans.freeze_rows(verb, reader.plan_rows(query, None, NOW), NOW, noted=NOTED)
    recent, noted = (NOW - plans.RECENT_SECONDS, NOTED) if verb == "purge" else (NEVER, ())
    table = table_of(reader, query, recent=recent, ids_with_note=noted)
    return small, Plan(verb, table, NOW, oldest=table.oldest, newest=table.newest)


def tear_plans() -> None:
    """Cut off the files that the rows of plans are in."""
    for link in Path("/proc/self/fd").iterdir():
        if os.path.lexists(link) and "/plan-" in str(link.readlink()):
            os.truncate(link, 0)


QUERIES = [Query(), PENDING, Query(State.PENDING, descending=True), Query(State.HELD)]


@pytest.mark.parametrize("verb", ["purge", "hold"])
@pytest.mark.parametrize("query", [*QUERIES, Query(filter=parse_filter("job"), order="created")])
def test_a_table_is_an_equal_plan(reader: Reader, verb: str, query: Query, tmp_path: Path) -> None:
    """Equal rows in the same order with the same reasons; its file has no name."""
    small, large = frozen(reader, verb, query)
    assert tuple(large.rows) == small.rows
    assert (len(large.rows), large.states) == (len(small.rows), small.states)
    assert (large.oldest, large.newest) == (small.oldest, small.newest)
    assert (large.first_rows(4), large.rows[1:3]) == (small.first_rows(4), small.rows[1:3])
    places = range(-len(small.rows), len(small.rows))
    assert [large.rows[at] for at in places] == [small.rows[at] for at in places]
    with pytest.raises(IndexError):
        _ = large.rows[len(small.rows)]
    for included, excluded in (((), ()), (range(4), (5,)), ((3,), (1, 2, 3))):
        numbers = {"included_ids": included, "excluded_ids": excluded}
        ids = {name: frozenset(a_task(n).id for n in some) for name, some in numbers.items()}
        one, two = (plan._replace(**ids) for plan in (small, large))  # type: ignore[arg-type]
        assert one.amount == two.amount == len(tuple(two.included))
        assert list(one.excluded) == list(two.excluded)
    assert [path.name for path in tmp_path.iterdir() if "plan" in path.name] == []


def test_rows_of_a_scan_are_written_as_they_come(is_large: bool) -> None:
    """A plan is the same in a table: the first row of an id, reasons and counts."""
    tasks = [*TASKS, a_task(8, state=State.ACTIVE), a_task(9, id="caf\u00e9")]
    edge = Edge(bars=lambda task, now: "odd"[: task.queue == "a"])
    edges: Edges = {(State.PENDING, State.TRASH): edge}
    plan = plans.freeze_plan("purge", tasks, NOW, edges=edges, noted=NOTED)
    assert isinstance(plan.rows, RowTable) is is_large
    assert [row.id for row in plan.rows] == list(dict.fromkeys(task.id for task in tasks))
    reasons = [*[REASON_RECENT] * 3, REASON_NOTED, "", "", REASON_NOTED, "o", "", ""]
    assert [plan.exclusion_reason(row) for row in plan.rows] == reasons
    assert [row.barred for row in plan.first_rows(7)] == ["", "", "", "", "", "o", ""]
    assert (plan.amount, plan._replace(includes_suspicious=True).amount) == (4, 9)
    assert (plan.oldest, plan.newest) == (NOW - 3600, NOW)


def is_in(queue: str, task: Task, now: float) -> bool:
    """Whether a task is in a queue."""
    return task.queue == queue


def test_a_warning_has_the_number_of_its_tasks(is_large: bool) -> None:
    """Excluded ones do not count; without a task there is no warning."""
    by_queue = [TaskWarning(partial(is_in, name), f"{{count}} in queue {name}") for name in "abc"]
    edge = Edge(warning="for all", warnings=tuple(by_queue))
    edges: Edges = {(State.PENDING, State.HELD): edge}
    tasks = [a_task(n, queue="aab"[n % 3]) for n in range(9)]
    plan = plans.freeze_plan("hold", tasks, NOW, edges=edges)

    def warnings(plan: Plan) -> tuple[str, ...]:
        (preview,) = count_plan(plan, edges).transitions
        return preview.warnings

    assert isinstance(plan.rows, RowTable) is is_large
    assert plans.needs_tasks(edges, "hold")
    assert warnings(plan) == ("for all", "6 in queue a", "3 in queue b")
    without = plan._replace(excluded_ids=frozenset(task.id for task in tasks if task.queue == "b"))
    assert warnings(without) == ("for all", "6 in queue a")


def test_rows_that_differ_from_the_index_are_found(reader: Reader, writer: Writer) -> None:
    """A task that is gone, has moved or has another revision differs."""
    _, plan = frozen(reader, "hold", Query(State.PENDING))
    assert differing_rows(reader, plan.rows) == []
    changed = [TASKS[1]._replace(rev="new"), TASKS[2]._replace(state=State.HELD)]
    writer.apply_lookup([a_task(n).id for n in (1, 2, 3)], [*changed, Missing(a_task(3).id)])
    rows = differing_rows(reader, plan.rows)
    assert [row.id for row in rows] == [a_task(n).id for n in (1, 2, 3)]


USES: tuple[Use, ...] = list, itemgetter(0), methodcaller("first", 3, is_suspicious=False)


def test_a_torn_table_is_unavailable(reader: Reader, writer: Writer) -> None:
    """Rows that cannot be read are an error in words, not fewer rows."""
    writer.add_scanned([a_task(n) for n in range(30_000)])
    for use in USES:
        table = table_of(reader)
        assert len(list(islice(table, 3))) == 3
        tear_plans()
        with pytest.raises(Unavailable, match="temporary table"):
            use(table)


class Applied(NamedTuple):
    """A plan applied to a store with some tasks, and its operation in the journal."""

    report: Report
    operation: Operation
    store: MemoryStore
    journal: Journal


def applied(plan: Plan, folder: Path, tasks: list[Task], **more: Any) -> Applied:
    """Apply a plan to a store with some tasks."""
    memory = MemoryTasks()
    memory.tasks.update({(task.queue, task.id): task for task in tasks})
    store, journal = MemoryStore(memory), Journal(str(folder / "journal"), str(folder), clock)
    report = run_journaled_plan(store, journal, plan, Intent(plan.verb, ANA), clock, **more)
    operation = journal.operation(report.op)
    assert operation is not None
    return Applied(report, operation, store, journal)


def test_a_plan_in_a_table_is_applied_as_one_in_memory(reader: Reader, tmp_path: Path) -> None:
    """The same rows have the same results, and the journal has them."""
    tasks = [task for task in TASKS if task.id not in (a_task(5).id, a_task(7).id)]
    chosen = {"excluded_ids": frozenset({a_task(4).id}), "included_ids": frozenset({a_task(0).id})}
    runs = []
    for plan in frozen(reader, "purge", Query()):
        folder = tmp_path / type(plan.rows).__name__
        folder.mkdir()
        runs.append(applied(plan._replace(**chosen), folder, tasks))  # type: ignore[arg-type]
    results = [[tuple(getattr(run.report, end)) for end in RowResult] for run in runs]
    assert results[0] == results[1]
    assert results[1][0] and results[1][1] and results[1][3]
    assert [len(getattr(runs[1].report, end)) for end in RowResult] == [*map(len, results[1])]
    assert runs[0].operation.counts == runs[1].operation.counts
    assert all(run.operation.ended is not None and not run.operation.open_rows for run in runs)


LARGE = [a_task(n, rev=f"r{n}") for n in range(12_000)]


def a_large_plan(reader: Reader, writer: Writer) -> Plan:
    """A plan to hold `LARGE`."""
    for start in range(0, len(LARGE), 500):
        some = LARGE[start : start + 500]
        writer.apply_lookup([task.id for task in some], some)
    return Plan("hold", table_of(reader), NOW)


def test_a_table_torn_midway_loses_no_row(reader: Reader, writer: Writer, tmp_path: Path) -> None:
    """The run stops with the reason; the journal has every row, and the rest can be continued."""
    plan = a_large_plan(reader, writer)
    rows = len(plan.rows)
    run = applied(plan, tmp_path, LARGE, report_counts=lambda _: tear_plans())
    assert "temporary table" in run.report.trouble
    done = len(run.report.done)
    assert 0 < done < rows == run.report.accounted
    assert run.operation.is_interrupted
    assert (run.operation.planned, run.operation.counts[RowResult.DONE]) == (rows, done)
    assert len(undo.plan_rest(run.store, run.journal, run.operation, NOW).rows) == rows - done


def test_a_full_disk_for_the_outcomes_stops_the_plan(
    reader: Reader, writer: Writer, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """The outcomes that could not be listed are counted, and are in the journal."""

    def tiny() -> TempTable:
        table = TempTable()
        table.read("PRAGMA max_page_count=2")
        return table

    plan = a_large_plan(reader, writer)
    monkeypatch.setattr("engine.operations.execute.TempTable", tiny)
    run = applied(plan, tmp_path, LARGE)
    assert "full" in run.report.trouble
    assert run.report.accounted == len(plan.rows)
    assert run.operation.is_interrupted
    assert run.operation.counts[RowResult.DONE] == len(run.report.done) == JOURNAL_BATCH_ROWS


def test_a_table_torn_early_changes_nothing(reader: Reader, writer: Writer, tmp_path: Path) -> None:
    """Without all rows in the journal no task moves, and the journal has no operation."""
    plan = a_large_plan(reader, writer)
    tear_plans()
    journal = Journal(str(tmp_path / "journal"), str(tmp_path), clock)
    with pytest.raises(Unavailable, match="temporary table"):
        journal.begin(Intent("hold", ANA), plan)
    assert journal.operations() == ()
    assert not list((tmp_path / "journal").glob("*.jsonl"))


@pytest.mark.parametrize("ages", [lambda n: NOW - 900 + n // 2, lambda n: 0.0])
def test_tasks_that_will_run_are_in_the_order_of_their_age(
    writer: Writer, reader: Reader, is_large: bool, ages: Callable[[int], float]
) -> None:
    """Of one time by number; after other verbs by id."""
    tasks = [a_task(n, state=State.DONE, created=ages(n), id=f"mails/{n}") for n in range(1, 13)]
    given = sorted(tasks, key=lambda task: task.id)
    writer.begin_scan()
    writer.add_scanned(given)
    writer.end_scan()
    oldest = [task.id for task in tasks]
    plan = plans.freeze_plan("rerun", given, NOW)
    by_age = plans.is_by_age("rerun")
    table = table_of(reader, Query(State.DONE), recent=NEVER, by_age=by_age)
    assert isinstance(plan.rows, RowTable) is is_large
    for rows in (plan.rows, table):
        assert [row.id for row in rows] == oldest
    assert [row.id for row in plans.freeze_plan("hold", given, NOW).rows] == sorted(oldest)
