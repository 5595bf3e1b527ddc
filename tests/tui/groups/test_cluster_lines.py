"""Whether dead tasks would fail again: clusters on screen and on the command line, from the log."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.formats.base.memory import MemoryStore
from engine.index.error_clusters import Cluster
from engine.model import State, Task
from engine.monitor.recurrence import Recurrence, StillHappens
from engine.text.error_pattern import fold_error, pattern_name
from tests.console_operator import ConsoleOperator, an_operator, words
from tests.console_places import NOW, a_memory, a_place, a_task, disk_place, make_spool
from tests.nftban_queues import Run
from tests.tables import each
from tui.cli.print.groups import read_failed
from tui.groups.cluster_lines import cluster_table, evidence_lines
from tui.groups.screen import ClustersScreen
from tui.plan.screen import PlanScreen
from tui.session.index_queries import CheckedCluster

LATER, UNKNOWN = "421 4.7.0 try again later", "550 5.1.1 user unknown"
MARK = pattern_name(fold_error(LATER))
off = asyncio.to_thread


class Spool:
    """A queue with two sorts of errors, both two hours old, and the log of other processes."""

    def __init__(self, root: Path) -> None:
        self.root, self.number, now = root, 1000, time.time()
        extra = {"dead_since": str(int(now - 7200))}
        make_spool(
            root,
            [
                a_task(n, State.DEAD, created=now - 9000, kind="mail_send", error=e, extra=extra)
                for n, e in enumerate([LATER] * 5 + [UNKNOWN] * 3)
            ],
        )
        self.log = root / "log" / "queue.log"
        self.log.write_text("")

    def run(self, ago: float, error: str = "") -> None:
        """Log the run of a fresh task, so many seconds ago."""
        self.number += 1
        id = f"20261120T094115Z-mail_send-{self.number:08x}"
        ended = f"failed: {id} (mail_send): {error}" if error else f"completed: {id} (mail_send)"
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - ago))
        with self.log.open("a") as log:
            for line in (f"Processing task: {id} (mail_send: to ops)", f"Task {ended}"):
                log.write(f"[{stamp}] [INFO] {line}\n")

    def fails(self) -> None:
        """Log that a fresh task failed as others did."""
        self.run(90, LATER)

    def succeeds(self, times: int) -> None:
        """Log that fresh tasks were done since."""
        for _ in range(times):
            self.run(20)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """The log is empty so far."""
    return Spool(tmp_path / "spool")


@asynccontextmanager
async def clusters(spool: Spool, **fields: Any) -> AsyncIterator[ConsoleOperator]:
    """The errors of its dead tasks on screen."""
    place = disk_place(spool.root, clock=time.time)
    async with an_operator(place, size=(100, 30), clock=time.time, **fields) as operator:
        await operator.opens(ClustersScreen, "4", "c")
        await operator.until(lambda: row(operator))
        yield operator


def row(operator: ConsoleOperator) -> str:
    """The line of the cluster, as it is painted."""
    lines = operator.text.splitlines()
    return next((line.strip("|> ") for line in lines if line[4:].startswith(MARK)), "")


async def test_the_screen_follows_the_log(spool: Spool) -> None:
    """Whether an error still happens changes with the log alone, and a replay says it, too."""
    async with clusters(spool) as operator:
        await operator.until(lambda: row(operator).endswith("?"))
        assert row(operator).split()[1] == "5" and " 421 " in row(operator)
        await operator.sees("no log records how such tasks ended")
        await off(spool.fails)
        await operator.until(lambda: row(operator).endswith("yes"))
        await operator.sees("1 mail failed with it in 10m")
        await operator.step("escape * R", PlanScreen, f"5 errors that still happen: {MARK} 5")
        await operator.sees("next Esc leaves: 5 of 8 still fail", "--apply 8")  # at 80 columns
        await operator.step("escape c", ClustersScreen)
        await off(spool.succeeds, 3)
        await operator.sees("3 new mail_send succeeded since", "successes needed for a no")
        assert row(operator).endswith("yes")
        await off(spool.succeeds, 9)
        await operator.until(lambda: row(operator).endswith("no (1m)"))
        await operator.sees(
            "12 new mail_send succeeded since", "R plans to replay 5 tasks: it stopped"
        )
        await operator.step("*", "R replays 8 tasks: these errors have stopped")


async def test_the_command_line_follows_the_log(spool: Spool, spooldeck: Run) -> None:
    """`clusters` has the answers of the screen, as JSON and as the rows of the screen."""

    def told() -> dict[str, dict[str, object]]:
        ended = spooldeck("clusters", str(spool.root), "--json")
        assert (ended.returncode, ended.stderr) == (0, "")
        return {row["mark"]: row for row in map(json.loads, ended.stdout.splitlines())}

    first = (await off(told)).values()
    amounts = {row["error"]: (row["count"], row["same_now"]) for row in first}
    assert amounts == {fold_error(LATER): (5, "?"), fold_error(UNKNOWN): (3, "?")}
    await off(spool.fails)
    assert (await off(told))[MARK]["same_now"] == "yes"
    await off(spool.succeeds, 12)
    last = await off(told)
    assert {row["same_now"] for row in last.values()} == {"no"}
    assert "12 new mail_send succeeded since" in str(last[MARK]["evidence"])

    argv = ("clusters", str(spool.root), "--state", "dlq")
    printed = (await off(lambda: spooldeck(*argv, COLUMNS="97"))).stdout.splitlines()
    agreed = [line.strip() for line in printed[:3]]
    assert printed[-1].startswith("8 failed, 2 clusters")
    async with clusters(spool, glyphs={}) as operator:
        await operator.until(
            lambda: [line.strip("│▶ ") for line in operator.text.splitlines()][2:5] == agreed
        )


FAILING = {State.PENDING, State.ACTIVE, State.HELD, State.DEAD, State.TRASH}


@each(("word", "destination", "states"), [
    (None, "", FAILING),
    ("dead", "", {State.DEAD}),
    (None, "a.example", {*State}),
    ("dead", "a.example", {State.DEAD, State.DONE}),
    ("done", "a.example", {State.DONE}),
])  # fmt: skip
def test_clusters_read_few_states(word: str | None, destination: str, states: set[State]) -> None:
    """The command reads the states it shows; finished tasks only for a destination."""
    tasks = [Task(f"in {at}", "job", at, 1.0, destination=destination, queue=at) for at in State]
    items = list(read_failed(MemoryStore(a_memory(tasks)), word))
    assert {task.state for task in items if isinstance(task, Task)} == states


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_answer_of_a_cluster_is_whole_at_any_width(width: int) -> None:
    """The age of an error that stopped is never cut, however long ago that was."""
    cluster = Cluster("F-1", "421 busy", 16, first=None, last=None, kinds=(), example="a")
    checked = CheckedCluster(cluster, Recurrence(StillHappens.NO, "no (23h59m)", ()))
    _, (row,) = cluster_table([checked], 0.0, width)
    assert "no (23h59m)" in words([row.line])


def test_a_cluster_of_replies_is_named_by_the_reply() -> None:
    """Not by our own name before it, which took the room of the text; its code has a column."""
    pattern = "unavailable_452: 452 4.2.2 mailbox full"
    cluster = Cluster("F-1", pattern, 2, first=None, last=None, kinds=(), example="a")
    checked = CheckedCluster(cluster, Recurrence(StillHappens.NO, "no (1m)", ()))
    for width, text in ((59, "2  452 4.2.2 mailbox full"), (120, "452  4.2.2 mailbox full")):
        _, (row,) = cluster_table([checked], NOW, width)
        assert text in words([row.line]) and "unavailable" not in words([row.line])
    printed = words(evidence_lines(checked, (), NOW, 100, state=State.DEAD))
    assert "452 4.2.2" in printed and "unavailable" not in printed


def test_a_cluster_of_several_states_has_no_time_column() -> None:
    """No task is `ready` or due that is dead: with tasks of other states beside it, its time is
    only its age."""
    cluster = Cluster("F-1", "421 busy", 2, first=None, last=None, kinds=(), example="a")
    checked = CheckedCluster(cluster, Recurrence(StillHappens.NO, "no (1m)", ()))
    tasks = [a_task(1, due=0.0), a_task(2, State.DEAD, due=0.0)]
    for state, has_due in ((State.PENDING, True), (None, False)):
        printed = words(evidence_lines(checked, tasks, NOW, 100, state=state))
        assert ("DUE" in printed, "ready" in printed) == (has_due, has_due)
        assert "AGE" in printed and "DIED" not in printed


async def test_the_tasks_of_a_pending_cluster_have_their_due_time() -> None:
    """Tasks that have not died have the time column of their state, not one of `?`."""
    place = a_place(a_memory([a_task(number) for number in (1, 13)]))
    async with an_operator(place, size=(100, 30)) as operator:
        await operator.step("2 c", "Tasks in F-", "TRIES DUE ERROR", "in 10m")
