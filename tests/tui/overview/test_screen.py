"""The overview: every queue on a line, alerts, the age table, and the ways from there."""

from __future__ import annotations

import asyncio
import math
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.screen import Screen

from engine.config.queue_config import Thresholds
from engine.formats.base.memory import MemoryTasks
from engine.index import filter_language
from engine.index.age_table import BOUNDS_MINUTES, AgeRow, Ages
from engine.index.error_clusters import Cluster
from engine.index.schema import Query
from engine.locks import queue_lock
from engine.locks.token_buckets import ALL_KINDS, BucketState, TokenBuckets
from engine.logs.log_line import LogLine
from engine.logs.task_events import EventKind, TaskEvent
from engine.model import State
from engine.monitor.alerts import Alert, AlertKind, Goal, Level, Where, find_alerts
from engine.monitor.prometheus import NOT_THERE
from engine.monitor.recurrence import Recurrence, StillHappens
from engine.monitor.throughput import Drain, Growth, Rates, Trend
from engine.places.place import Place, WholeQueueFigures
from engine.policy import Rate
from engine.store import Store, Unavailable
from engine.system.host import HostFigures, read_host_figures
from engine.text import figures
from tests.console_operator import ConsoleOperator, an_operator, clock_of, words
from tests.console_places import (
    NOW,
    Clock,
    a_full_disk,
    a_memory,
    a_place,
    a_task,
    disk_place,
    free,
    make_spool,
    put_file,
    some_tasks,
)
from tests.engine.monitor.test_alerts import (
    a_sight,
    a_stale_lock,
    eleven_dead,
    metrics_are_none,
    nothing_ran,
    nothing_was_written,
    write_task,
)
from tests.engine.monitor.test_transport_health import attempt, given_up
from tests.journaled_places import a_journaled_place, interrupt
from tests.lock_processes import later
from tests.open_store import open_store
from tests.tables import each
from tests.tui.drawn_screens import settled
from tui.confirm.action_screen import ActionScreen
from tui.groups.screen import ClustersScreen
from tui.locks.screen import LockScreen
from tui.log.screen import LogScreen
from tui.operations.workers_screen import WorkersScreen
from tui.overview import age_lines as age_view
from tui.overview import alert_lines as alert_view
from tui.overview import place_lines as view
from tui.overview import reads as overview_reads
from tui.overview import side_panes
from tui.overview.division import OverviewFrame, PaneNeeds, divide_screen
from tui.overview.panes import KINDS, LOG, AgeTable
from tui.overview.parts import AGES, ALERTS, QUEUES
from tui.overview.place_lines import PlaceLine
from tui.overview.reads import EventCounts, OverviewReads, count_events
from tui.overview.screen import OverviewScreen
from tui.overview.side_panes import PaneRow, PaneRows
from tui.queue.screen import QueueScreen
from tui.screens.rows_parts import ROW_HAS_LEFT
from tui.screens.target import Target
from tui.session.index_queries import CheckedCluster, check_clusters
from tui.task.screen import TaskScreen
from tui.text import keys, table
from tui.text.frames import share_lines
from tui.text.lines import Line
from tui.transports.screen import TransportsScreen

RED = "\x1b[31mred"


class Going(Clock):
    """A clock that goes by itself, and is put forward besides."""

    def __call__(self) -> float:
        """Epoch seconds UTC."""
        return time.time() + self.now


def screen_of(operator: ConsoleOperator) -> OverviewScreen:
    """The overview, which is on top."""
    screen = operator.console.screen
    assert isinstance(screen, OverviewScreen)
    return screen


def table_of(operator: ConsoleOperator) -> AgeTable:
    """The age table."""
    return screen_of(operator).query_one(AgeTable)


@asynccontextmanager
async def overview(*places: Place, **fields: Any) -> AsyncIterator[ConsoleOperator]:
    """The console on its overview, in OBSERVE, once its tasks are counted by age, if there are."""
    fields = {"first": keys.OVERVIEW, "start_armed": False, **fields}
    async with an_operator(*places, **fields) as operator:
        latest = operator.console.sessions[0].inspector.latest
        if sum(latest.counts.values()) and not latest.unavailable:
            await operator.until(lambda: table_of(operator).count is not None)
        yield operator


async def focus(operator: ConsoleOperator, pane: str) -> None:
    """Press Tab until that pane has the cursor: panes without rows yet are skipped."""
    await operator.until(lambda: screen_of(operator).parts.can_focus(pane))
    while screen_of(operator).parts.focus.pane != pane:
        await operator.press("tab")


@pytest.fixture(autouse=True)
def retries_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that cannot be read is tried again soon."""
    for module in ("index_sync", "folder_watch"):
        monkeypatch.setattr(f"engine.live.{module}.RETRY_SECONDS", 0.1)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A queue on an ordinary day."""
    root = tmp_path / "mail.out"
    make_spool(root, some_tasks())
    return root


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A queue in which all is well: nothing was ever in it."""
    root = tmp_path / "idle"
    make_spool(root, [])
    shutil.rmtree(root / "metrics")
    (root / "log" / "queue.log").unlink()
    return root


# Queues


async def test_a_line_for_each_queue(spool: Path, empty: Path) -> None:
    """Each place is a line with its counts; a digit leads to the place under the cursor."""
    async with overview(disk_place(spool), disk_place(empty)) as operator:
        expected = ["40", "1", "10", "12", "0", "23h47m"]
        await operator.until(lambda: operator.cells("mail.out")[:6] == expected)
        assert operator.cells("QUEUE")[:6] == ["PEND", "WORK", "RETRY", "DLQ", "HELD", "OLDEST"]
        await operator.until(lambda: operator.cells("idle")[:6] == [*"00000", "-"])
        lines = operator.text.splitlines()
        first = next(at for at, line in enumerate(lines) if "QUEUE " in line) + 1
        assert [line[3:].split()[0] for line in lines[first : first + 2]] == ["mail.out", "idle"]
        put_file(empty, a_task(1400, due=0.0))
        await operator.until(lambda: operator.cells("idle")[:6] == ["1", *"0000", "40m"])
        await focus(operator, QUEUES)
        await operator.step("j 4", QueueScreen, "[DLQ 0]", "> idle")


async def test_rates_and_drain_are_known_after_a_while(spool: Path) -> None:
    """What came, what left and when the queue is empty is ? at first, and then what was seen."""
    async with overview(disk_place(spool)) as operator:
        live, clock = operator.console.sessions[0], clock_of(operator)
        await operator.until(lambda: operator.cells("mail.out")[6:9] == ["?", "?", "?"])
        paths = sorted((spool / "queue" / "pending").iterdir())
        for left in range(1, 5):
            paths[left].unlink()
            while live.inspector.latest.departed < left:
                await operator.pilot.pause(0.02)
            clock.now += 3
            await operator.until(lambda: live.count_samples[-1][0] == clock.now)
        await operator.until(lambda: operator.cells("mail.out")[6:8] == ["0.0", "0.3"])
        clock.now += 1
        await operator.until(lambda: operator.cells("mail.out")[8].startswith(("1m", "2m")))


async def paint_while_removed(screen: OverviewScreen) -> None:
    """A paint while its parts are removed, one after the other, paints nothing and is no error."""
    painted = 0

    async def paint_on() -> None:
        nonlocal painted
        while screen.children:
            screen.panes.frame = OverviewFrame()  # as if it had to be divided again
            screen.paint()
            painted += 1
            await asyncio.sleep(0)

    painting = asyncio.ensure_future(paint_on())
    await asyncio.sleep(0)
    await screen.remove()
    await painting
    assert painted > 1


@pytest.mark.parametrize(
    ("place", "size", "texts"),
    [
        ("spool", (80, 24), ("23h47m", "Backlog")),
        ("empty", (200, 60), ("no alerts", "FREE", "idle 0 0")),
    ],
)
async def test_only_the_clock_is_painted_where_nothing_happens(
    request: pytest.FixtureRequest, place: str, size: tuple[int, int], texts: tuple[str, ...]
) -> None:
    """A second later the first line is another, and no other line is."""
    async with overview(disk_place(request.getfixturevalue(place)), size=size) as operator:
        await operator.sees(*texts)
        await settled(operator.console, operator.pilot)
        before = operator.text.splitlines()
        clock_of(operator).now += 1
        await operator.until(lambda: "09:42:09Z" in operator.text)
        after = operator.text.splitlines()
        assert [y for y, line in enumerate(before) if line != after[y]] == [0]

        assert [y for y, line in enumerate(before) if line != after[y]] == [0]
        await paint_while_removed(screen_of(operator))


def test_each_place_has_a_line_before_ages_and_log_share_the_rest() -> None:
    """At 80x24 five places with six alerts are all on screen, their queues after them."""
    for alerts, queues in product(range(9), range(5, 12)):
        parts = divide_screen(80, 24, PaneNeeds(queues, alerts, 9, places=5))
        assert parts.inside(parts.queues) - 1 >= 5 and parts.log


# Alerts


def a_lost_folder(root: Path) -> None:
    """No folder for what waits."""
    (root / "queue" / "pending").rmdir()


def a_broken_file(root: Path) -> None:
    """A file that is no task."""
    (root / "queue" / "pending" / "broken.task").write_text("TASK_ID=$(id)\n")


def a_failing_transport(root: Path) -> None:
    """Five mails that curl could not send."""
    shift = NOW - time.time()
    lines = [attempt(shift + 60, "curl") + given_up(shift + 59, "421 later", "curl")] * 5
    (root / "log" / "mail.log").write_text("".join(lines))


RETRIED = "Retried every second; the list returns automatically."
ALL: list[tuple[Callable[[Path], None], str, type, str]] = [
    (eleven_dead, "11 dead", QueueScreen, "[DLQ 11]"),
    (nothing_ran, "nothing has run for 3", WorkersScreen, "no worker running"),
    (a_stale_lock, "stale lock: PID", LockScreen, "STALE"),
    (nothing_was_written, "queue.prom not written for 3", QueueScreen, "WARN queue.prom"),
    (metrics_are_none, "queue.prom: cannot parse", QueueScreen, "order: id"),
    (a_lost_folder, "cannot be read", QueueScreen, RETRIED),
    (a_broken_file, "1 problem", QueueScreen, "broken.task"),
    (a_failing_transport, "curl failed 100% of 5 attempts in 10m", TransportsScreen, "curl"),
]


def mend(root: Path, before: dict[Path, bool]) -> None:
    """Make a folder what it was: these paths, of which some are folders."""
    for path in sorted(root.rglob("*"), reverse=True):
        if path not in before:
            path.rmdir() if path.is_dir() else path.unlink()
    for path in (path for path, is_folder in before.items() if is_folder):
        path.mkdir(exist_ok=True)


async def test_an_alert_for_a_spool_that_deserves_it(empty: Path) -> None:
    """An alert is on top, leads to where it can be understood, and goes with its cause."""
    log = empty / "log" / "mail.log"
    log.touch()
    place = disk_place(empty, clock=time.time)
    place = place._replace(logs=(*place.logs, str(log)), recovery_command=("true",))
    async with overview(place, clock=Going(0.0)) as operator:
        for spoil, alert, kind, shows in ALL:
            await operator.sees("no alerts")
            before = await asyncio.to_thread(lambda: {at: at.is_dir() for at in empty.rglob("*")})
            await asyncio.to_thread(spoil, empty)
            # For so long it must have been so: a run that just began has its task in work as well.
            clock_of(operator).now += 6
            await operator.sees(f"idle {alert}")
            await focus(operator, ALERTS)
            while not re.search(rf"^>.*idle  {re.escape(alert)}", operator.text, re.MULTILINE):
                await operator.press("j")
            await operator.step("enter", kind, shows)
            await operator.opens(OverviewScreen, "q")
            mend(empty, before)
            if spoil is a_failing_transport:
                clock_of(operator).now += 7200  # what was sent is remembered for as long
            await operator.until(lambda: alert not in operator.text)  # noqa: B023


async def test_a_stuck_lock_is_on_top_and_then_no_worker(empty: Path) -> None:
    """A stuck holder is the first alert; if it is freed, the missing worker is."""
    ago, path = later(-2820), str(empty / "run" / "queue.lock")
    lock = await asyncio.to_thread(queue_lock.acquire_lock, path, 1200, ago["clock"], ago["uptime"])
    write_task(empty, "pending", 1, age=7300)
    async with overview(disk_place(empty, clock=time.time), clock=Going(0.0)) as operator:
        await operator.until(lambda: "[CRIT]  idle  lock STUCK 4" in operator.text.splitlines()[2])
        await operator.sees("Alerts 2 ", "stuck 1")
        await asyncio.to_thread(lock.release)
        await operator.until(lambda: "lock STUCK" not in operator.text)
        clock_of(operator).now += 6  # a worker may be about to take it
        await operator.sees("[CRIT] idle nothing has run for 2h", "STALLED")


# Ages


@pytest.fixture
def kinds() -> MemoryTasks:
    """Tasks of many ages and kinds, some of whose names mean something in a filter."""
    names = ("feeds_sync", "mail_send", "a|b", 'say "no"', "!not")
    ages = [60.0 * (2**n % 2047) for n in range(40)]
    fields: dict[str, Any] = {"due": 0.0, "error": ""}
    tasks = [a_task(n, created=NOW - a, kind=names[n % 5], **fields) for n, a in enumerate(ages)]
    dead = [a_task(100 + n, State.DEAD, error=f"550 no user u{n % 2}x") for n in range(3)]
    return a_memory(tasks + dead)


async def test_a_pane_without_room_for_its_rows_counts_those_it_shows(kinds: MemoryTasks) -> None:
    """The title of the kinds has the number shown and that of all."""
    async with overview(a_place(kinds, name="many"), size=(120, 32)) as operator:
        await operator.until(lambda: re.search(r"Kinds \d+", operator.text))
        await settled(operator.console, operator.pilot)
        (title,) = re.findall(r"Kinds (\d+) of (\d+)", operator.text)
        lines = operator.text.splitlines()
        top = next(at for at, line in enumerate(lines) if "Kinds" in line)
        end = next(at for at in range(top + 1, len(lines)) if lines[at].startswith("+-"))
        assert int(title[0]) == end - top - 2 < int(title[1])


async def test_the_table_is_gone_through_and_turned(kinds: MemoryTasks) -> None:
    """For any opened cell, the queue shows as many rows as the cell said, odd names or not. x makes
    rows of the next field, and Enter shows the queue with the tasks of a cell. The cursor goes
    along with its name, and rows of kinds stay rows of kinds."""
    late = [a_task(200 + n, created=NOW - 60, due=0.0, kind="late") for n in range(61)]
    async with overview(a_place(kinds, name="many")) as operator:
        inspector, wrong = operator.console.sessions[0].inspector, []
        for by, names in product(("kind", "error"), (6, 3)):
            ages = await inspector.tallies.ages(Query(State.PENDING), by, NOW)
            rows, columns = age_view.row_cells(ages, names), range(len(BOUNDS_MINUTES) + 2)
            for row, column in product(rows, columns):
                cell = row._replace(column=column)
                text = age_view.cell_filter(ages, cell, names)
                counted = age_view.row_at(ages, cell, names)
                assert counted is not None
                query = Query(State.PENDING, filter_language.parse_filter(text))
                found = await inspector.queries.count(query)
                if found != age_view.cell_count(counted, column):
                    wrong.append((text, age_view.cell_count(counted, column), found))
        assert wrong == []

        titles = ("pending by kind", "dead by kind", "dead by error", "pending by kind")
        for title, key in zip(titles, ("x", "x", "x", ""), strict=True):
            await operator.sees(f"Ages: many, {title} ")
            await operator.until(lambda: table_of(operator).count is not None)
            await operator.press(*key)
        await focus(operator, AGES)
        await operator.press("j", "l", "right", "right")
        count, text = table_of(operator).count, table_of(operator).filter
        assert count and text.endswith("age>=10m age<20m")
        tasks = "1 task" if count == 1 else f"{count} tasks"
        assert f"10 to 20 min: {tasks}" in operator.text
        await operator.step("enter", QueueScreen, f"row 1 of {count}", f"filter {text}")
        await operator.opens(OverviewScreen, "escape", "escape")

        await operator.press("j")
        before = table_of(operator)._cell
        assert before.name
        with kinds.condition:
            for task in late[:60]:
                kinds.put(("", task.id), task)
        await operator.sees("late")
        assert table_of(operator)._cell == before
        with kinds.condition:
            for number, (at, task) in enumerate(list(kinds.tasks.items())):
                if task.state is State.PENDING:
                    error = ("421 later", "550 5.1.1 user unknown")[number % 2]
                    kinds.put(at, task._replace(kind="late", error=error))
        await operator.until(lambda: "say" not in operator.text)
        with kinds.condition:
            kinds.put(("", late[60].id), late[60])
        await operator.until(lambda: re.search(r"TOTAL +101 ", operator.text))
        assert "Ages: many, pending by kind" in operator.text


async def test_rows_that_are_chosen_during_a_read_stay(
    kinds: MemoryTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that began before the key x ends after it: it does not bring back the former rows."""
    may_end, real = asyncio.Event(), check_clusters

    async def late(*words: Any) -> Any:
        await may_end.wait()
        return await real(*words)

    async with overview(a_place(kinds, name="many")) as operator:
        await operator.sees("Ages: many, pending by kind ")
        reads, session = screen_of(operator).parts.reads, operator.console.sessions[0]
        monkeypatch.setattr(overview_reads, "check_clusters", late)
        graph = screen_of(operator).parts.graph
        reading = asyncio.create_task(reads.read(session, graph, lambda: True))
        await asyncio.sleep(0)
        assert await reads.next_rows(session)
        may_end.set()
        await reading
        read = reads.of(session)
        assert read is not None and (read.state, read.ages.by) == (State.DEAD, "kind")


async def test_tab_goes_round_and_the_last_warnings_are_shown(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tab leads round; of the logs only warnings are shown, and are inert. If tasks were counted by
    age long before the row above, the heading says how old that is."""
    async with overview(disk_place(spool)) as operator:
        await operator.sees("[WARN] mail.out ")
        panes = []
        for _ in range(5):
            panes.append(screen_of(operator).parts.focus.pane)
            await operator.press("tab")
        assert panes == [ALERTS, QUEUES, AGES, LOG, ALERTS]
        await operator.sees("moving to DLQ")
        assert "[INFO]" not in operator.text and "Task completed" not in operator.text
        with (spool / "log" / "queue.log").open("a") as log:
            log.write(f"[2026-11-20 09:42:00] [ERROR] {RED} is what it said\n")
        await operator.sees("is what it said")
        operator.assert_inert()

        monkeypatch.setattr(OverviewReads, "is_due", lambda reads, live: False)
        put_file(spool, a_task(1400, due=0.0))
        await operator.until(lambda: operator.cells("mail.out")[:1] == ["41"])
        assert "s old" not in operator.text
        clock_of(operator).now += 30
        await operator.sees("30s old")
        assert operator.cells("mail.out")[:1] == ["41"]


@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
async def test_panes_that_were_read_before_the_tasks_changed_say_their_age(
    spool: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    """Ages and clusters, also when time is frozen before they were read again."""
    async with overview(disk_place(spool), size=size) as operator:
        await operator.sees("Clusters", "moving to DLQ")
        monkeypatch.setattr(OverviewReads, "is_due", lambda reads, live: False)
        put_file(spool, a_task(1400, due=0.0))
        await operator.until(lambda: operator.cells("mail.out")[:1] == ["41"])
        clock_of(operator).now += 30
        await operator.until(lambda: operator.text.count("30s old") == 2)
        await operator.step("p", "FROZEN")
        clock_of(operator).now += 30
        await operator.sees(", 30s ago")
        await operator.until(lambda: operator.text.count("30s old") == 2)


def test_a_failed_attempt_is_one_warning() -> None:
    """Its error comes first, with what follows for the task, and leads to the line as the log has
    it; a line of another place, of another task or without an error stays as it is."""
    lines = [
        ("a", "ERROR", "Task failed: t1 (mail_send): 550 unknown"),
        ("a", "ERROR", "Task failed: t2 (mail_send): 421 later"),
        ("b", "WARN", "Task t1 failed (attempt 1/3), retry in 60s"),
        ("a", "WARN", "Task t2 failed (attempt 1/3), retry in 60s"),
        ("a", "ERROR", "Task t1 exhausted retries (3/3), moving to DLQ"),
        ("a", "WARN", "queue.prom: not writable"),
    ]
    found = [(name, LogLine(1.0, level, text, "q")) for name, level, text in lines]
    assert [(one.place, one.line.level, one.text) for one in view.join_failures(found)] == [
        ("a", "ERROR", "t1 DLQ: 550 unknown"),
        ("a", "WARN", "t2 retry: 421 later"),
        ("b", "WARN", "Task t1 failed (attempt 1/3), retry in 60s"),
        ("a", "WARN", "queue.prom: not writable"),
    ]
    (row,) = side_panes.log_rows([("a", [found[0][1], found[4][1]])], 80, 10, 0).rows
    assert "t1 DLQ: 550 unknown" in words([row.line]) and row.target.line == lines[4][2]


def test_more_dead_tasks_become_too_many_in_the_same_row() -> None:
    """An alert of growth and one of the limit have one identity, so that the cursor stays."""
    goal, kinds = Goal("/srv/a", Where.STATE, State.DEAD), (AlertKind.GROWING, AlertKind.DEAD)
    alerts = (Alert(Level.WARN, kind, "11 dead", None, goal) for kind in kinds)
    assert len(set(map(alert_view.alert_key, alerts))) == 1


async def test_no_key_acts_on_a_resolved_alert(spool: Path) -> None:
    """An alert that is resolved under the cursor stays, and its keys are refused."""
    other = a_place(a_memory([a_task(number, State.DEAD) for number in range(12)]))
    async with overview(disk_place(spool), other) as operator:
        screen = screen_of(operator)
        await operator.until(lambda: operator.text.count("12 dead") == 2)
        while not re.search(r"^>.*mail\.out  12 dead", operator.text, re.MULTILINE):
            await operator.press("j")
        for path in (spool / "queue" / "dlq").iterdir():
            path.unlink()
        await operator.sees("no longer here")
        for key in ("c", "C", "U", "W", "enter"):
            await operator.press(key)
            assert operator.console.screen is screen
        assert ROW_HAS_LEFT in operator.text and screen.parts.selected.number == 1
        await operator.step("g G c", ClustersScreen)


async def test_a_key_waits_until_the_place_under_the_cursor_was_seen(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the cursor goes by itself, the first key within a second is refused."""
    eleven_dead(empty)
    other = a_place(a_memory([a_task(number, State.DEAD) for number in range(12)]))
    async with overview(disk_place(empty), other) as operator:
        screen = screen_of(operator)
        await operator.sees("12 dead", "11 dead")
        clock_of(operator).now += 2
        await operator.until(lambda: screen.parts.focus.pane == ALERTS)
        await operator.until(lambda: screen.parts.selected.number == 1)
        for path in (empty / "queue" / "dlq").iterdir():
            path.unlink()
        await operator.until(lambda: screen.parts.selected.number == 2)
        with monkeypatch.context() as patch:
            patch.setattr("tui.overview.parts.SEEN_SECONDS", 1.0)
            await operator.step("c", OverviewScreen, "came under the cursor: press again")
        await operator.opens(ClustersScreen, "c")


async def test_an_alert_of_dead_tasks_names_its_clusters_and_leads_there(spool: Path) -> None:
    """Each alert has its number of clusters; `c` opens them."""
    other = a_place(a_memory(some_tasks(pending=0, active=0)))
    async with overview(other, disk_place(spool)) as operator:
        await operator.until(lambda: operator.text.count("12 dead in 3 clusters") == 2)
        line = next(line for line in operator.text.splitlines() if "12 dead in" in line)
        assert line.split()[-2:] == ["c", "clusters"]
        await operator.press("tab")
        assert screen_of(operator).parts.selected.number == 1
        put_file(spool, a_task(1400, State.DEAD)._replace(error="552 mailbox full"))
        await operator.sees("13 dead in 4 clusters")
        await operator.step("c", ClustersScreen, "Clusters 3, failed 12")


def test_an_error_has_the_cells_that_a_short_answer_leaves() -> None:
    """The answer of another cluster, which is longer, cuts no error beside blanks."""
    answers = {StillHappens.NO: "no (1h26m)", StillHappens.UNKNOWN: "?"}
    error = "421 4.7.0 try again later"
    cluster = Cluster("F-1", error, 16, first=None, last=None, kinds=(), example="a")
    clusters = [
        CheckedCluster(cluster, Recurrence(answer, text, ())) for answer, text in answers.items()
    ]
    moment = SimpleNamespace(queue=SimpleNamespace(unavailable=""))
    data: Any = SimpleNamespace(
        is_wall=False,
        selected=SimpleNamespace(number=1, name="spool", inspector=SimpleNamespace(states={})),
        moments=[moment],
        moment=moment,
        clusters={1: clusters},
    )
    cut, whole = (words([row.line]) for row in side_panes._cluster_pane(data, 48).rows)
    assert cut.endswith(" agai… no (1h26m)") and whole.endswith(f"{error}    ?")
    assert len(cut) == len(whole) == 48


@pytest.mark.parametrize(
    ("reading", "cell"),
    [(NOT_THERE, "no file"), ("Permission denied", "unreadable"), (None, "no metrics")],
)
async def test_a_metrics_file_that_does_not_exist_is_not_unreadable(
    reading: str | None, cell: str
) -> None:
    """The panes of places say which of both it is."""
    async with overview(a_place(a_memory([]))) as operator:
        (live,) = operator.console.sessions
        live.readings = live.readings._replace(queue=reading)
        assert side_panes._metrics_cell(live, NOW)[0] == cell


@pytest.mark.parametrize(
    ("command", "read_only", "words"),
    [
        (("true",), False, "no worker running: W starts one"),
        (("true",), True, "no worker running"),
        ((), False, "no worker running"),
    ],
)
async def test_a_worker_is_offered_only_where_one_can_be_started(
    empty: Path, command: tuple[str, ...], read_only: bool, words: str
) -> None:
    """A console that only reads, or a place without a worker of ours, has no W in the pane of
    workers, nor as the step after a full disk."""
    place = disk_place(empty, clock=time.time)._replace(worker_command=command)
    async with overview(place, size=(160, 50), read_only=read_only) as operator:
        await operator.sees(words)
        assert ("W starts one" in operator.text) == words.endswith("W starts one")
    full = place._replace(disks=lambda: (a_full_disk(),))
    async with overview(full, size=(160, 50), read_only=read_only) as operator:
        await operator.sees("shows what fills /srv; make room")
        assert ("make room, then W" in operator.text) == words.endswith("W starts one")
        assert "W starts one" not in operator.text


async def test_a_place_without_a_worker_is_started_from_its_alert(empty: Path) -> None:
    """`W` on the alert opens the plan, if the console can start a worker; also without a lock, if a
    server or the processes show that none runs."""
    write_task(empty, "pending", 1, age=60)
    place, start = disk_place(empty, clock=time.time), "W start worker"
    idle = WholeQueueFigures(has_worker=False)
    without_lock = place._replace(lock=None, has_leases=True, queue_figures=lambda: idle)
    for one, command, step in (
        (place, ("true",), start),
        (without_lock, ("true",), start),
        (place, (), "Enter workers"),
    ):
        here = one._replace(worker_command=command)
        async with overview(here, size=(100, 24), clock=Going(0.0)) as operator:
            clock_of(operator).now += 6  # a worker may be about to come
            await operator.sees("no worker running, 1 task is due", step)
            if command:
                await operator.step("W", ActionScreen, "idle")


PANES: tuple[tuple[str, type[Screen[Any]], str, str], ...] = (
    (KINDS, QueueScreen, "filter kind=mail_send", "/40]"),
    (LOG, LogScreen, "log line of this error", "moving to DLQ"),
    ("clusters", QueueScreen, "filter cluster=F-", "/12]"),
    ("workers", TaskScreen, "0000000c feeds_sync", "[WORK]"),
    ("transports", TransportsScreen, "> {key}", "> {key}"),
)


async def test_enter_opens_the_row_of_a_pane(spool: Path) -> None:
    """Tab leads to each pane with rows, and Enter opens what the row is about. One paint moves
    cursor and title from a pane without rows to the queues."""
    async with overview(disk_place(spool), size=(120, 40)) as operator:
        screen = screen_of(operator)
        for pane, kind, *texts in PANES:
            await focus(operator, pane)
            await operator.press("G")
            key = screen.panes.rows[pane].key
            await operator.step("enter", kind, *(text.format(key=key) for text in texts))
            await operator.opens(OverviewScreen, "1")
        await focus(operator, "clusters")
        reads, rows = screen.parts.reads._place_reads, screen.panes.rows
        reads[1] = reads[1]._replace(clusters=())
        screen.paint()
        assert screen.parts.focus.pane == QUEUES
        assert [rows[name].has_class("-focused") for name in (QUEUES, "clusters")] == [True, False]


async def test_a_wider_terminal_shows_more(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more warnings than its pane has lines the last one is shown, and k leads to the first. A
    terminal that became wide enough shows at the side what was not counted before. The frame that
    comes with more lines takes two columns of a pane: its table gets narrower."""
    monkeypatch.setattr(overview_reads, "UNCHANGED_READ_SECONDS", math.inf)
    with (spool / "log" / "queue.log").open("a") as log:
        log.writelines(f"[2026-11-20 09:42:{n:02}] [WARN] warning {n}\n" for n in range(12))
    async with overview(disk_place(spool), size=(80, 24)) as operator:
        await operator.sees("warning 11")
        assert "warning 3\n" not in operator.text
        await operator.press("shift+tab", *"k" * 8)
        await operator.until(lambda: "warning 3\n" in operator.text)
        assert "warning 11" not in operator.text
        await operator.pilot.resize_terminal(120, 29)
        await operator.sees("640 1280 1280+")
        await operator.pilot.resize_terminal(120, 40)
        await operator.sees("Clusters", "Transports", "3 Workers", "Kinds", "last 10m")
        await operator.until(lambda: "640 1280 1280+  ||" in operator.text)


async def test_a_pane_about_one_of_several_places_names_it(spool: Path, empty: Path) -> None:
    """Clusters, transports, kinds and outlook are of the place under the cursor, and say so."""
    async with overview(disk_place(spool), disk_place(empty), size=(120, 50)) as operator:
        panes = ("Clusters", "Transports", "Kinds", "Outlook")
        await operator.sees(*(f"{pane}: mail.out" for pane in panes))
        await operator.pilot.resize_terminal(200, 60)
        await operator.sees("Transports: mail.out", "4 Clusters 3", "3 Workers")


def test_paused_tokens_are_shown() -> None:
    """What may be sent is a line, also while it is paused."""
    line = view.tokens_line((BucketState(ALL_KINDS, 3, 5, NOW, 60, paused=True),), 80)
    assert words([line]).strip() == "rate limit  all kinds 3 of 5 tokens, paused"


# Values


NUMBERS = st.integers(0, 40)


NEEDS = st.builds(
    PaneNeeds,
    **dict.fromkeys(("queues", "alerts", "ages", "kinds", "other_ages"), NUMBERS),
    outlook=st.integers(0, 4),
    sides=st.dictionaries(st.sampled_from("abcdefg"), NUMBERS, min_size=1),
)


@given(st.integers(1, 250), st.integers(1, 80), NEEDS)
def test_the_panes_fill_the_screen(width: int, height: int, needs: PaneNeeds) -> None:
    """No pane has a negative height, and they never overflow; columns side by side are as high."""
    parts = divide_screen(width, height, needs)
    heights = (parts.alerts, parts.upper, parts.log, parts.next, parts.hints)
    assert min(*heights, parts.ages, parts.kinds, *parts.sides.values(), 9) >= 0
    assert 1 + sum(heights) <= max(height, 1)
    assert height < 2 or 1 + sum(heights) == height
    assert sum(parts.sides.values()) == (parts.upper + parts.log if parts.is_wide else 0)
    assert sum(parts.graphs) == (parts.upper if parts.is_wall else 0)
    assert parts.left_width + parts.middle_width <= width


@each(("room", "filler", "expected"), [
    (30, "c", (10, 4, 16)),
    (30, "a", (20, 4, 6)),
    (14, "c", (5, 4, 5)),
    (7, "a", (4, 3, 0)),
    (2, "c", (0, 0, 0)),
])  # fmt: skip
def test_panes_share_the_room(room: int, filler: str, expected: tuple[int, ...]) -> None:
    """Each pane has its lines and the filler the rest; without room all are cut by the same number
    of lines, and the last ones are hidden before others are too low to show a row."""
    parts = share_lines(room, {"a": 10, "b": 4, "c": 6}, *({filler} - {"c"}))
    assert tuple(parts.values()) == expected


def test_the_reference_screen_shows_alerts_before_ages() -> None:
    """At 80x24 six alerts are shown, however many queues there are. Beside three of them the age
    table names the two greatest; else it gives way, and is hidden where it would name none."""
    for queues, alerts, outlook in product(range(1, 12), range(9), range(3)):
        parts = divide_screen(80, 24, PaneNeeds(queues, alerts, 9, outlook))
        names = parts.inside(parts.ages) - 3  # titles, the total, how to read
        assert parts.inside(parts.alerts) >= min(alerts, 6)
        assert names >= 3 if alerts <= 3 else names >= 2 or not parts.ages
        assert parts.log >= 2  # its rule and the last warning


@each(("height", "alerts"), [(12, 4), (15, 7), (5, 1)])
def test_a_small_screen_gives_free_lines_to_alerts(height: int, alerts: int) -> None:
    """Four places need five lines; those that are left show alerts."""
    parts = divide_screen(40, height, PaneNeeds(queues=4, alerts=10))
    assert parts.alerts == alerts


@each(("names", "expected"), [
    (0, "TOTAL"),
    (1, "TOTAL, a"),
    (2, "TOTAL, a, (other 3)"),
    (3, "TOTAL, a, b, (other 2)"),
    (4, "TOTAL, a, b, c, d"),
    (5, "TOTAL, a, b, c, d"),
])  # fmt: skip
def test_the_greatest_is_named_before_the_others_are_counted(names: int, expected: str) -> None:
    """With room for one line below the total it is the greatest one's, not that of all together."""
    counts = {"a": 9, "b": 4, "c": 2, "d": 1}
    rows = tuple(AgeRow(name, (count,) + (0,) * 9) for name, count in counts.items())
    table = Ages("kind", rows, AgeRow("TOTAL", (16,) + (0,) * 9), 0)
    cells = age_view.row_cells(table, names)
    assert ", ".join(age_view.row_label(table, cell, names) for cell in cells) == expected


@given(st.integers(0, 10**9), st.integers(3, 8))
def test_a_count_is_whole_or_rounded_to_a_named_unit(number: int, width: int) -> None:
    """A count fits its width: all digits, or at most three with a unit and rounded."""
    text = figures.fit_count(number, width)
    assert len(text) <= width
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 0)
    if not scale:
        assert text == ">99" or text.replace(",", "") == str(number)
    else:
        unit = scale / 10 ** len(text[:-1].partition(".")[2])
        assert abs(float(text[:-1]) * scale - number) <= unit * 0.51


@each("held", [0, 1])
def test_held_tasks_are_never_in_a_column_that_is_dropped(held: int) -> None:
    """Where long names need room, HELD is dropped only if no place has held tasks."""
    named = {State.PENDING: "pending", State.ACTIVE: "work", State.HELD: "held", State.DEAD: "dlq"}
    counts = {State.PENDING: 7, State.HELD: held}
    place = PlaceLine(1, "a-place-with-a-long-name", named, counts, complete=True)
    assert ("HELD" in words([view.place_table([place], NOW, 75)[0]])) == held


@each(("name", "last"), [("wedged", "LAST 10m"), ("flowing", "10m"), ("postoffice", "10m")])
def test_arrivals_are_shown_beside_the_columns_of_other_stores(name: str, last: str) -> None:
    """At 120 columns a place with failed and held tasks takes no column of rates from the table."""
    named = {State.PENDING: "pending", State.ACTIVE: "work", State.HELD: "held", State.DEAD: "dlq"}
    counts = {State.PENDING: 16, State.HELD: 1, State.DEAD: 12_345}
    rates, spark = Rates(0.001, 0.4), tuple(map(float, range(18)))
    place = PlaceLine(1, name, named, counts, complete=True, rates=rates, spark=spark)
    mail = PlaceLine(2, "zgb", named, complete=True, fine_words=("failed",))
    head, (row, _) = view.place_table([place, mail], NOW, 72)
    titles = words([head]).rstrip()
    assert re.search("FAILED +DLQ HELD OLDEST IN/s OUT/s", titles)
    assert titles.endswith(f"ETA {last}")
    assert {"12k", "<.01", "0.4"} <= set(words([row]).split())
    assert words([row]).rstrip()[-1] == "⠉"  # the last value is the highest


@each("width", [40, 60, 69])
def test_a_count_is_whole_where_a_table_without_a_course_has_cells(width: int) -> None:
    """Columns are narrower only where one would be dropped: a count is not `23k` beside blanks."""
    named = {State.PENDING: "pending", State.ACTIVE: "work", State.DEAD: "dlq"}
    counts = {State.PENDING: 123_456, State.DEAD: 23_456}
    place = PlaceLine(1, "nftban", named, counts, complete=True, rates=Rates(0.001, 1.6))
    _, (row,) = view.place_table([place], NOW, width)
    assert {"123456", "23456"} <= set(words([row]).split())
    assert ("<0.01" in words([row])) == (width >= 66)


@pytest.mark.parametrize("width", range(70, 90))
def test_the_title_of_the_course_is_whole_beside_a_short_name(width: int) -> None:
    """The title of the names is wider than they are."""
    named = {State.PENDING: "pending", State.ACTIVE: "work", State.HELD: "held", State.DEAD: "dlq"}
    place = PlaceLine(1, "k3", named, {State.HELD: 1}, complete=True)
    assert words([view.place_table([place], NOW, width)[0]]).rstrip().endswith(" LAST 10m")


def test_dead_tasks_are_counted_under_their_store_s_own_word() -> None:
    """The column of one store has its word; beside other stores a word that is finer than a state
    has a column, which is blank for stores that have not this word, or for their dead tasks."""
    own = {State.PENDING: "waiting", State.ACTIVE: "active", State.DEAD: "failed"}
    jobs = PlaceLine(1, "jobs", own, {State.PENDING: 7, State.DEAD: 7}, complete=True)
    counts = {"waiting": 5, "delayed": 2, "active": 1, "failed": 7}
    jobs = jobs._replace(word_counts=counts, fine_words=("delayed", "paused"))
    spool = PlaceLine(2, "spool", {**own, State.DEAD: "dlq"}, {State.DEAD: 9}, complete=True)
    mails = {**own, State.DEAD: "parked", State.HELD: "held"}
    mail = PlaceLine(3, "mail-queue", mails, {State.PENDING: 4, State.DEAD: 2}, complete=True)
    mail = mail._replace(word_counts={"failed": 3, "parked": 2}, fine_words=("failed",))

    def shown(*queues: PlaceLine) -> list[dict[str, str]]:
        head, lines = view.place_table(queues, NOW, 73)
        titles = words([head])
        ends = {n: titles.index(n) + len(n) for n in ("FAILED", "DLQ") if n in titles}
        return [
            {n: words([row])[end - 4 : end].strip() for n, end in ends.items()} for row in lines
        ]

    assert shown(jobs) == [{"FAILED": "7"}]
    _, (row,) = view.place_table([jobs], NOW, 73)
    assert words([row]).split()[:2] == ["jobs", "7"]  # words without a column are counted here
    dead = {"FAILED": "", "DLQ": "7"}, {"FAILED": "", "DLQ": "9"}
    assert shown(jobs, spool) == [{"DLQ": "7"}, {"DLQ": "9"}]
    assert shown(mail, jobs, spool) == [{"FAILED": "3", "DLQ": "2"}, *dead]


def test_a_store_s_own_words_and_columns() -> None:
    """A column has the store's word where it fits; what a store has not is blank, never zero.
    Places are called by the last part of their paths, unless two share it."""
    named = {State.PENDING: "queued", State.DEAD: "undelivered"}
    mail = PlaceLine(1, "a", named, {State.PENDING: 3})
    other = mail._replace(words={State.PENDING: "queued", State.ACTIVE: "work"})
    head, rows = view.place_table([mail, other], NOW, 120)
    titles = words([head]).split()
    assert titles[:3] == ["QUEUE", "QUEUED", "WORK"]
    assert "DLQ" in titles and "HELD" not in titles  # the store's word does not fit
    assert [words([row]).split()[:4] for row in rows] == [["a", "3+", "?", "?"]] * 2
    names = ["/a/queue", "/b/queue", "/c/mail/"]
    assert table.short_names(names) == [*names[:2], "mail"]


def test_a_backlog_grows_by_its_own_tasks() -> None:
    """The ETA of a place where tasks die has the growth of the pending ones, not all that came."""
    place = PlaceLine(1, "a", {}, {State.PENDING: 90}, complete=True, rates=Rates(3.0, 0.0))
    growing = place._replace(drain=Drain(Trend.GROWING), growth=Growth(30, 60.0))
    assert "+30/min" in words(view.place_table([growing], NOW, 80)[1])


def test_a_line_of_a_place_is_made_again_only_if_its_text_changes() -> None:
    """A line is kept while its place is as before; another age, width or count makes a new one."""
    place = PlaceLine(1, "a", {}, {State.PENDING: 3}, complete=True, due=3, oldest=NOW - 60)
    drawn: dict[int, view.DrawnRow] = {}

    def line(now: float, width: int = 120, queue: PlaceLine = place) -> Line:
        (row,) = view.place_table([queue], now, width, drawn)[1]
        assert row == view.place_table([queue], now, width)[1][0]
        return row

    first = line(NOW)
    assert line(NOW + 1) is first
    assert " 2m " in words([line(NOW + 60)])
    assert line(NOW + 60, 100) != first
    assert words([line(NOW, 100, place._replace(counts={State.PENDING: 4}))]).split()[1] == "4"


async def test_a_small_screen_counts_the_alerts_that_it_does_not_show(empty: Path) -> None:
    """Without a frame whose title has it, a line says how many of all alerts are shown."""
    tasks = [f"problem {number}" for number in range(9)]
    figures = WholeQueueFigures(warnings=tuple(tasks))
    place = disk_place(empty)._replace(queue_figures=lambda: figures)
    async with an_operator(place, size=(40, 12), first=keys.OVERVIEW, early=True) as operator:
        await operator.sees("6 of 9 alerts, more: j", "problem 5")
        assert "problem 6" not in operator.text
        await operator.step("G", "4-9 of 9 alerts, more: k")
        await operator.pilot.resize_terminal(80, 17)
        await operator.until(lambda: re.search(r"Alerts \d-9 of 9, more: k ", operator.text))
        await operator.step("k k k k", "of 9, more: k j ")
        await operator.step("g", "of 9, more: j ")
        await operator.step("p")
        await operator.until(
            lambda: re.search(r"Alerts 2 of 9 at \S+Z, \ds ago, more: j ", operator.text)
        )


async def test_the_count_of_alerts_is_of_the_rows_below_it(empty: Path) -> None:
    """It is painted with the rows that were scrolled, not one paint later."""
    figures = WholeQueueFigures(warnings=tuple(f"problem {number}" for number in range(9)))
    place = disk_place(empty)._replace(queue_figures=lambda: figures)
    async with an_operator(place, size=(40, 12), first=keys.OVERVIEW, early=True) as operator:
        await operator.sees("6 of 9 alerts, more: j", "problem 5")
        await operator.step("G", "4-9 of 9 alerts, more: k")
        await operator.step("k k k", "4-9 of 9 alerts, more: k")
        session, screen = operator.console.sessions[0], screen_of(operator)
        session.alerts = session.alerts[:8]
        screen.paint()
        assert words(screen.panes.rows[ALERTS]._head).strip() == "3-8 of 8 alerts, more: k"


async def test_the_row_of_an_alert_that_has_left_is_not_counted(empty: Path) -> None:
    """It stays under the cursor, and hides the last alert, to which a key leads."""
    figures = WholeQueueFigures(warnings=tuple(f"problem {number}" for number in range(7)))
    place = disk_place(empty)._replace(queue_figures=lambda: figures)
    async with an_operator(place, first=keys.OVERVIEW) as operator:
        await operator.sees("Alerts 6 of 7, more: j", "problem 5")
        await operator.press("j")
        session, screen = operator.console.sessions[0], screen_of(operator)
        await operator.until(lambda: screen.panes.rows[ALERTS].line_of_cursor == 1)
        session.alerts = (*session.alerts[:1], *session.alerts[2:])
        screen.paint()
        assert screen.panes.rows[ALERTS].is_gone
        assert screen.panes._shown_alerts(6, 6, ALERTS) == ("5", ", more: j")


async def test_the_key_of_an_alert_is_in_the_key_line_at_80_columns(empty: Path) -> None:
    """Also a key that has no room there otherwise."""
    tasks = [a_task(number, state=State.DEAD, error="busy") for number in range(12)]
    async with an_operator(a_place(a_memory(tasks)), first=keys.OVERVIEW) as operator:
        await operator.sees("next c groups these tasks by error", "c clusters U unlock ! disarm ")


def test_the_most_urgent_alert_is_first() -> None:
    """What stops everything is first, of any place; each line has the key of the next step."""
    a, b = "/srv/a", "/srv/b"
    dead = Alert(Level.WARN, AlertKind.DEAD, "11 tasks", None, Goal(a, Where.STATE, State.DEAD))
    stuck = Alert(Level.CRIT, AlertKind.STUCK, "stuck lock", NOW, Goal(b, Where.LOCK))
    problems = Alert(Level.WARN, AlertKind.PROBLEMS, "1 problem", None, Goal(b, Where.PROBLEMS))
    alerts = alert_view.sort_alerts([problems, dead, stuck])
    unlock = "U", "unlock", "frees the lock"
    offered = partial(alert_view.next_step, lock_step=unlock, can_start=True, read_only=False)
    first, *_ = alert_view.alert_lines(alerts, {a: "a", b: "b"}, 60, [*map(offered, alerts)])
    assert alerts == (stuck, dead, problems)
    assert words([first]).split() == ["CRIT", "b", "stuck", "lock", "U", "unlock"]


# Wide screens


def test_a_wide_screen_shows_a_long_alert_to_its_end() -> None:
    """What an alert says last is cut only where the screen ends."""
    words_of_alert = f"no sender is running, {'and ' * 20}back after 13:56:10Z"
    inputs = a_sight(warnings=(words_of_alert,))
    (alert,) = find_alerts(inputs, NOW, Thresholds())
    for width, is_whole in ((160, True), (100, False)):
        step = [("C", "controls", "shows the controls of the whole queue")]
        lines = alert_view.alert_lines([alert], {"/srv/spool": "a"}, width, step)
        (line,) = words(lines).splitlines()
        assert ("13:56:10Z" in line, len(line) <= width) == (is_whole, True)
        assert "C" in line.rsplit("  ", 1)[-1]


def test_a_key_of_an_alert_keeps_its_word_and_two_blanks() -> None:
    """The text of a long alert is cut, not the word of its key."""
    alert = Alert(Level.WARN, AlertKind.FULL, "full " * 40, None, Goal("/srv/a", Where.CONTROLS))
    for length in range(40, 75):
        one = alert._replace(text="x" * length)
        lines = alert_view.alert_lines([one], {"/srv/a": "a"}, 80, [("C", "controls", "shows")])
        assert words(lines).endswith("  C controls"), length


async def test_a_wall_has_the_problems_of_a_place_with_a_long_name(tmp_path: Path) -> None:
    """How a place claims its tasks gives way: it is among the locks, too."""
    root = tmp_path / "postoffice-outbox"
    make_spool(root, some_tasks())
    (root / "queue" / "dlq" / "broken.task").write_bytes(b"")
    async with an_operator(disk_place(root), first=keys.OVERVIEW, size=(200, 60)) as operator:
        await operator.until(
            lambda: re.search(r"postoffice-outbox +53 tasks  1 problem ", operator.text)
        )
        await operator.step("escape", "no scan to stop here; q quits")


async def test_one_row_below_the_queues_is_in_the_singular() -> None:
    """The title of the queues counts the rows that have no room."""
    places = [a_place(a_memory([]), name=f"/srv/{number}") for number in range(9)]
    async with an_operator(*places, first=keys.OVERVIEW) as operator:
        await operator.sees("Queues 9, +1 row: ")


async def test_a_wall_shows_all_places(spool: Path, empty: Path) -> None:
    """On the largest screens the panes are those of all places: a graph for each that can be read,
    its lock, its worker, its task counts; the log shows lines of every level with a histogram.
    Places on one file system share a line; another one has the name of its place."""
    lost = Place("/srv/lost", lambda: open_store("/srv/lost/queue"))
    disk = HostFigures(1, 38_000, 100_000, 0.8, 4)
    disks = {spool: disk, empty: disk}
    first, second = (disk_place(p)._replace(host=partial(disks.get, p)) for p in (spool, empty))
    async with an_operator(first, second, lost, first=keys.OVERVIEW, size=(200, 60)) as operator:
        titles = ("5 Locks", "3 Workers", "8 Operations", "Places", "9 Controls", "Outlook")
        await operator.sees("mail.out, last 10m", "idle, last 10m", "Log of all places", *titles)
        assert "lost, last 10m" not in operator.text
        await operator.sees("53 tasks", "0 tasks", "cannot be read")
        assert len(operator.text.splitlines()) == 60
        await operator.sees("0.8 of 4 CPUs", "38% of 100.0 kB")
        await operator.until(lambda: operator.text.count("100.0 kB") == 1)
        disks[empty] = disk._replace(device=2, used_bytes=95_000)
        put_file(empty, a_task(1))  # a quiet place is read less often
        await operator.sees("95% of 100.0 kB", "38% of")


async def test_an_operation_that_did_a_part_says_how_many(spool: Path) -> None:
    """On a wall: not the tasks that were planned."""
    place = a_journaled_place(spool)
    await asyncio.to_thread(interrupt, place, amount=8, moved=3)
    async with overview(place, size=(200, 60)) as operator:
        await operator.sees("replay 3/8 tasks")


async def test_the_outlook_of_a_wall_has_a_line_for_each_place() -> None:
    """Full sentences are below them: those of the first place would hide the others."""
    names = [f"queue-{n}" for n in range(4)]
    places = [a_place(a_memory(some_tasks()), name=f"/srv/{name}") for name in names]
    async with overview(*places, size=(200, 60)) as operator:

        def shown() -> bool:
            _, _, below = operator.text.partition("- Outlook ")
            return all(re.search(rf"\| +{name}  +\S", below) for name in names)

        await operator.until(shown)


async def test_the_reason_why_a_place_cannot_be_read_is_whole_in_one_pane() -> None:
    """The ages of the place have it, the other panes `?`; the next step is its cure and a key."""
    why = "/srv/volumes/of-the-mail/queue/data: No such file or directory; is its volume mounted?"

    def lost() -> Store:
        raise Unavailable(why)

    async with overview(Place("/srv/queue", lost, lock=free), size=(120, 40)) as operator:
        first, second = why.replace("or directory", "or\ndirectory").splitlines()
        folded = [f"? cannot be read: {first}", second]
        shown = table_of(operator)._lines
        await operator.until(lambda: [words([line]).strip() for line in shown()] == folded)
        await operator.sees("r re-reads the place; first mount, restore or start it")
        rows = screen_of(operator).panes.rows
        assert {words(rows[name]._head) for name in ("clusters", "transports")} == {"  ?"}
        await operator.pilot.resize_terminal(80, 24)
        await operator.sees("r re-reads the place; first mount, restore or start it")


async def test_a_pane_without_the_cursor_shows_its_first_rows_and_counts_the_others(
    tmp_path: Path,
) -> None:
    """Rows that come above the first one are seen: the pane stays at its first row, and the last
    line counts the rest. With the cursor it scrolls from its first row, as all rows are in it."""
    spools = [tmp_path / f"spool-{n}" for n in range(2)]
    for n, root in enumerate(spools):
        first = [a_task(9, State.DEAD, error="550 first one")] * (not n)
        make_spool(root, [a_task(1), *first])
    places = [disk_place(root) for root in spools]
    async with an_operator(*places, first=keys.OVERVIEW, size=(200, 60)) as operator:
        await operator.sees("550 first one")
        errors = [letter * 5 for letter in "abcdefghijlmnopqrstuk"]
        deaths = [error for error in errors for _ in range(7 if error == "kkkkk" else 2)]
        for n, error in enumerate(deaths):
            put_file(spools[1], a_task(100 + n, State.DEAD, error=f"451 busy {error}"))
        clock_of(operator).now += 60
        clusters = screen_of(operator).panes.rows["clusters"]

        def shown() -> list[str]:
            return words([row.line for row in clusters.rows]).splitlines()

        await operator.until(lambda: "kkkkk" in shown()[0])
        await operator.sees("451 busy kkkkk")
        assert "550 first one" not in operator.text
        (hidden,) = re.findall(r"\+(\d+) more", operator.text)
        assert len(shown()) + int(hidden) == len(errors) + 1
        await focus(operator, "clusters")
        await operator.until(lambda: len(shown()) == len(errors) + 1)
        assert clusters.key == clusters.rows[0].key
        await operator.press("G")
        await operator.sees("550 first one")


@each(
    ("rows", "lines", "is_at_top", "shown"),
    [
        (3, 6, True, "r0 r1 r2 foot s0 s1"),
        (3, 5, True, "r0 r1 r2 foot s0"),
        (4, 5, True, "r0 r1 r2 r3 foot"),
        (5, 5, True, "r0 r1 r2 +2_more foot"),
        (3, 2, True, "r0_+2_more foot"),
        (5, 5, False, "r0 r1 r2 r3 r4 foot"),
    ],
)
def test_spare_lines_go_before_rows_do(rows: int, lines: int, is_at_top: bool, shown: str) -> None:
    """A pane that does not scroll keeps its first rows, and counts those that it has no line for;
    lines that are not rows are dropped first."""
    target = Target(keys.LIST, 1)
    made = [PaneRow(f"{n}", ((f"r{n}", ""),), target) for n in range(rows)]
    pane = PaneRows(made, (), [(("foot", ""),)], [(("s0", ""),), (("s1", ""),)])
    fitted = pane.fitted(lines, 11, starts_at_top=is_at_top)
    all_lines = [*(row.line for row in fitted.rows), *fitted.foot]
    texts = ["_".join(words([line]).split()) for line in all_lines]
    assert texts == shown.split()


def test_the_disk_of_a_path_that_is_missing_is_unknown(tmp_path: Path) -> None:
    """A path that exists has a share of its disk between 0 and 1; a missing one has no figures."""
    disk = read_host_figures(str(tmp_path))
    assert disk is not None and 0 <= disk.used_bytes <= disk.total_bytes
    assert read_host_figures(str(tmp_path / "none")) is None


async def test_each_row_of_a_wall_names_what_enter_does(spool: Path) -> None:
    """Tab leads through all panes with rows; each row has its next step."""
    leases = a_place(a_memory(some_tasks()), lock=None, has_leases=True)
    async with overview(disk_place(spool), leases, size=(200, 60)) as operator:
        parts = screen_of(operator).parts
        all_panes = {ALERTS, QUEUES, AGES, KINDS, LOG, "clusters", "locks", "workers", "places"}
        # Rows of a place that was not read yet have no ages.
        await operator.until(lambda: len(parts.all_reads) == len(parts.sessions))
        await operator.until(lambda: all(map(parts.can_focus, all_panes)))
        panes = set()
        while parts.focus.pane not in panes:
            panes.add(parts.focus.pane)
            await operator.press("tab")
        assert panes >= all_panes
        rows = [parts.focus.targets[name] for name in screen_of(operator).panes.rows]
        leads_to = {target.pane for targets in rows for target in targets.values()}
        assert {keys.LOCK, keys.LOCKS} <= leads_to <= set(side_panes.TARGET_STEPS)


def test_events_by_time() -> None:
    """Events of the last hour are counted in equal parts, failures also by themselves."""
    started, failed = EventKind.STARTED, EventKind.FAILED
    events = [
        TaskEvent(at, "a", "report", what, error="", transport="", level="", text="", source="log")
        for at, what in (
            (NOW - 4000, failed),
            (NOW - 3500, started),
            (NOW - 1, failed),
            (NOW, EventKind.QUEUED),
            (None, started),
        )
    ]
    counts = count_events(events, NOW)
    (top, foot) = side_panes.histogram_lines([counts], 120, 2)
    assert (sum(counts.all), sum(counts.failed), sum(counts.all[-2:])) == (3, 1, 2)
    assert len(counts.all) == len(counts.failed)
    assert words([top, foot]).count("█") >= 2
    assert any(style == "warn" for _, style in foot)
    assert side_panes.histogram_lines([EventCounts((0,), (0,))], 120, 2) == []


async def test_fewer_tokens_are_shown_after_a_send(empty: Path) -> None:
    """What may be sent now is a line: less after something was sent, more with the time."""
    clock = Clock(NOW)
    rates = {"mail_send": Rate.with_default_burst(60)}
    buckets = TokenBuckets(str(empty / "run" / "b"), rates, clock)
    await asyncio.to_thread(buckets.spend, "mail_send")
    place = disk_place(empty)._replace(tokens=buckets.read_states)
    async with overview(place, clock=clock) as operator:
        await operator.sees("rate limit mail_send 0 of 5 tokens, next 09:43:08Z")
        clock.now += 120
        await operator.sees("rate limit mail_send 2 of 5 tokens, next 09:45:08Z")
