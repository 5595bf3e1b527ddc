"""The table of results: the tasks of an operation, and where they are now."""

from __future__ import annotations

from typing import cast

from engine.live.inspector import Inspector
from engine.model import State
from engine.operations import plans
from engine.operations.journal import Entry
from engine.operations.plans import Row, RowOutcome, RowResult
from engine.store import Unavailable
from tests.console_operator import words
from tui.plan.result_rows import TaskStates, journal_results, read_states, result_table

WORDS = {State.DEAD: "dlq", State.PENDING: "pending"}


def test_a_task_with_a_new_id_is_looked_for_by_that() -> None:
    """The row has the new id, and the state of the task that has it now."""
    row = Row("old", State.DEAD, "1")
    done = RowOutcome(row, RowResult.DONE, plans.describe_new_id("new"))
    results = journal_results(
        [Entry(row, done), Entry(Row("open", State.DEAD, "1"), None)], "retry", WORDS
    )
    now = TaskStates({"new": State.PENDING}, is_whole=True)
    text = words(result_table(results, 3, now, WORDS, 100))
    assert [line.split() for line in text.splitlines()[1:4]] == [
        ["TASK", "RESULT", "NOW", "REASON"],
        ["new", "done", "pending", "new", "id", "new"],
        ["open", "open", "not", "in", "queue", "not", "moved"],
    ]
    assert "+1 more" in text
    unseen = RowOutcome(row, RowResult.DONE, plans.NEW_ID_UNSEEN)
    failed = RowOutcome(row, RowResult.FAILED, "new id refused")
    results = journal_results([Entry(row, unseen), Entry(row, failed)], "retry", WORDS)
    assert [one.id for one in results] == ["old", "old"]


def test_a_move_that_all_tasks_have_is_in_the_title() -> None:
    """So is the state that all are in now: whole ids and reasons have their cells. States that
    differ, or are not known, are a column; where not all tasks are listed the title says so."""
    ids = [f"20261130T150733Z203446-feeds_sync-49d04ce{n}" for n in range(2)]
    rows = [Row(one, State.DEAD, "1") for one in ids]
    done = [Entry(row, RowOutcome(row, RowResult.DONE)) for row in rows]
    results = journal_results(done, "retry", WORDS)
    pending = TaskStates(dict.fromkeys(ids, State.PENDING), is_whole=True)
    text = words(result_table(results, 2, pending, WORDS, 100))
    assert "2 tasks: DLQ -> pending, now pending " in text and f"  {ids[1]}  done" in text
    assert text.splitlines()[1].split() == ["TASK", "RESULT", "REASON"]
    one_left = pending._replace(states={ids[0]: State.PENDING})
    for now, column in ((TaskStates(), "?"), (one_left, "not in queue")):
        text = words(result_table(results, 5000, now, WORDS, 100))
        assert "5,000 tasks, the first 2: DLQ -> pending " in text
        assert f"49d04ce1  done    {column}" in text


async def test_without_the_index_it_is_not_known_where_tasks_are() -> None:
    """An index that cannot be read makes each of them a question mark."""

    class Queries:
        async def states_of(self, ids: object) -> None:
            raise Unavailable("the disk is full")

    class Broken:
        queries = Queries()

    states = await read_states(cast("Inspector", Broken()), {"a"})
    results = journal_results([Entry(Row("a", State.DEAD, "1"), None)], "retry", WORDS)
    assert " ?  " in words(result_table(results, 1, states, WORDS, 100))
