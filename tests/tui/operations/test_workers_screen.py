"""The workers' screen: who works on what at all places, and the way to free or start one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.index import backlog
from engine.index.backlog import BacklogSummary
from engine.index.reader import Reader
from engine.locks.token_buckets import BucketState
from engine.model import STALLED_KEY, WAITS_KEY, ConnectedWorker, Lease, State, Task
from engine.monitor.latency import KindFigures
from engine.monitor.run_forecast import ExpectedStart
from engine.operations import controls
from engine.places.place import (
    NO_WORKER,
    GroupFacts,
    Place,
    PlaceGroups,
    ServerState,
    WholeQueueFigures,
)
from engine.places.place_watcher import PlaceReadings
from engine.store import Unavailable
from engine.text.figure import Figure
from tests.console_operator import ConsoleOperator, an_operator, words
from tests.console_places import (
    NOW,
    a_full_disk,
    a_memory,
    a_place,
    a_stuck_lock,
    a_task,
    free,
    make_spool,
)
from tests.journaled_places import a_journaled_place, kept
from tests.tables import each
from tests.tui.drawn_screens import AT_WORK
from tui.confirm.action_screen import ActionScreen
from tui.locks.screen import LockScreen
from tui.operations import worker_lines as view
from tui.operations.operation_lines import (
    describe_operation,
    list_operations,
    undo_time_left,
)
from tui.operations.workers_screen import WorkersScreen
from tui.overview.screen import OverviewScreen
from tui.screens.console_context import READ_ONLY
from tui.session.background_command import WorkerProcess
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import (
    IDLE,
    NO_NAME,
    OTHER_WORKER,
    WorkerRow,
    all_worker_rows,
    count_workers,
)
from tui.task.screen import TaskScreen
from tui.task.why_waiting import outlook
from tui.text import keys
from tui.text.lines import width_of

RED = "\x1b[31mred"


def at_work(number: int, since: float, **fields: object) -> Task:
    """A task that was claimed so many seconds ago."""
    return a_task(number, State.ACTIVE, **{"lease": Lease("", NOW - since), **fields})


def leased(tasks: list[Task], figures: WholeQueueFigures) -> Place:
    """A place without a lock, of which this is known as a whole."""
    fields: dict[str, Any] = {"lock": None, "has_leases": True, "queue_figures": lambda: figures}
    return a_place(a_memory(tasks), **fields)


@asynccontextmanager
async def workers(*places: Place, **fields: Any) -> AsyncIterator[ConsoleOperator]:
    """The console on its workers, once the places were looked at."""
    async with an_operator(*places, first=keys.WORKERS, **fields) as operator:
        await operator.opens(WorkersScreen)
        yield operator


async def test_the_worst_is_on_top_and_has_the_cursor() -> None:
    """The stuck worker has the cursor until the operator moves it, also by a click."""
    place = a_place(a_memory([at_work(1, 3)]), name="/srv/well", lock=lambda: AT_WORK)
    ill = a_place(a_memory([at_work(2, 2820)]), name="/srv/ill", lock=a_stuck_lock)
    ill = ill._replace(recovery_command=("true",))
    async with workers(place, ill, size=(100, 30)) as operator:
        await operator.sees("PID 4711 on ill", "1 00000001", "1 00000002")
        assert re.findall(r" (ill|well) ", operator.rows) == ["ill", "well"]
        step = operator.line("word")
        assert "next  U frees the lock of ill" in step and "then W" not in step  # no such command
        await operator.opens(TaskScreen, "enter")
        await operator.opens(LockScreen, "escape", "U")
        await operator.opens(WorkersScreen, "escape")
        operator.picker.select_line(2)
        await operator.sees("on well")
        await operator.until(lambda: operator.picker.key == "1.1")


OTHERS, HELD = "the agents of its scheduler deliver", "the lock is held by PID 4711"


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        (
            {"lock": free, "worker_command": ("true",)},
            [
                ("", NO_WORKER, "next W starts a worker at"),
                ("enter", WorkersScreen, "no task here: W starts a worker"),
                ("W", ActionScreen),
                ("escape", WorkersScreen),
            ],
        ),
        (
            {"lock": free, "no_worker": OTHERS},
            [("W", NO_WORKER, f"no worker to start here: {OTHERS}", "acts on nftban")],
        ),
        (
            {"lock": lambda: AT_WORK, "worker_command": ("true",)},
            [("W", ActionScreen, f"nothing to start: {HELD}"), ("y", ActionScreen)],
        ),
    ],
    ids=["none runs", "other programs", "one runs"],
)
async def test_w_starts_no_worker_by_itself(fields: dict[str, Any], steps: list[Any]) -> None:
    """W opens the plan to start a worker, or says who works; a plan is refused while one runs."""
    async with workers(a_place(a_memory([a_task(1)]), **fields)) as operator:
        (live,) = operator.console.sessions
        await operator.until(lambda: live.has_readings)
        for step in steps:
            await operator.step(*step)
        assert live.worker.pid is None


async def test_a_server_that_delivers_by_itself_has_a_row() -> None:
    """The row says whether it runs and since when, or that tasks wait for it; W is refused."""
    state = ServerState("the mailer", "the mailer is stopped", True, 812, NOW - 60)
    figures = [WholeQueueFigures(server=state, workers=(812,))]
    place = leased([a_task(1), a_task(2)], figures[0])._replace(
        no_worker="the mailer delivers", server="the mailer", queue_figures=lambda: figures[0]
    )
    async with workers(place, size=(100, 30)) as operator:
        await operator.sees("812 the mailer delivers: running, PID 812, since", "Workers none")
        await operator.step("W", "no worker to start here: the mailer delivers")
        figures[0] = WholeQueueFigures(server=state._replace(is_running=False, pid=None))
        await operator.step("r", "the mailer is stopped: 2 wait", "stopped servers 1")
        await operator.step("escape 2", "the mailer is stopped: 2 wait")


async def test_the_reason_of_a_worker_that_ended_is_readable_in_full() -> None:
    """The reason of a worker that ended is first in the message line, and its whole last line is on
    this screen."""
    reason = "/srv/small/flowing/run/queue.lock: cannot be written: No space left on device (28)"
    command = ("sh", "-c", f"echo 'spooldeck: {reason}' >&2; exit 69")
    place = a_place(a_memory([a_task(1)]), lock=free, worker_command=command)
    async with workers(place) as operator:
        await asyncio.to_thread(operator.console.sessions[0].worker.start)
        path, _, why = reason.partition(": ")
        await operator.sees(
            "ended with exit code 69: cannot be written: No space", f"{why}: {path}"
        )


async def test_read_only_names_no_key_that_starts_a_worker() -> None:
    """Neither a task that waits for a worker, nor the place without one."""
    command = ("true",)
    for read_only, task_says, place_says in (
        (False, "next 3 opens the workers: W there starts one", "no task here: W starts a worker"),
        (True, "next t follows its log", "no task here"),
    ):
        place = a_place(a_memory([a_task(1)]), lock=free, worker_command=command)
        async with an_operator(place, read_only=read_only) as operator:
            await operator.step("enter", "no worker running", task_says)
            await operator.step("escape 3 enter", WorkersScreen, place_says)
            assert ("W starts" in operator.text) == (not read_only)


@pytest.mark.parametrize("read_only", [False, True])
async def test_read_only_names_no_key_that_frees_a_lock(read_only: bool) -> None:
    """Alert, workers, queue and lock name the locks, or only the reason, as next step."""
    place = a_place(a_memory([a_task(1), at_work(2, 3)]), lock=a_stuck_lock)
    place = place._replace(recovery_command=("true",))
    async with an_operator(place, size=(100, 30), read_only=read_only) as operator:
        for pressed, step, other in (
            ("", "U shows the evidence", "5 shows the locks"),
            ("3", "U frees the lock of nftban", "5 shows the locks"),
            ("1", "U shows the evidence and frees", "5 shows the locks"),
            ("enter", "then a worker must be started", READ_ONLY),
        ):
            await operator.step(pressed, f"next {other if read_only else step}")
            assert (step in " ".join(operator.text.split())) is not read_only


async def test_a_full_disk_is_the_next_step_in_place_of_a_worker() -> None:
    """While a disk is full, alert, workers, queue, task and plans name it with what to do; W still
    opens its plan, with the warning. Once there is room, W is the next step again."""
    words = "disk full: /srv, 2.1 of 2.1 MB, queue 124.0 kB"
    room = "make room on /srv, then W starts a worker"
    disks = [a_full_disk(own_bytes=Figure(124_000))]
    place = a_place(
        a_memory([a_task(1)]), lock=free, worker_command=("true",), disks=lambda: tuple(disks)
    )
    async with an_operator(place, size=(100, 30)) as operator:
        await operator.sees(words, "3 shows what fills /srv; make room, then W")
        await operator.step("3", room, f"full: {words[11:]}; what fills it:", "du -xah /srv")
        await operator.step("exclamation_mark W", f"! {words}: a worker may end", "y to start")
        await operator.step("escape escape 2", words, "3 shows what fills /srv")
        await operator.step("X", f"! {words}: the journal may not fit")
        await operator.step("escape enter", "3 opens the workers: make room on /srv first")
        await operator.step("escape 3", room)
        disks.clear()
        await operator.sees("W starts a worker at")


@pytest.mark.parametrize(
    ("command", "read_only", "then"),
    [(("true",), False, True), (("true",), True, False), ((), False, False)],
)
async def test_a_worker_follows_on_a_full_disk_only_where_one_can_be_started(
    command: tuple[str, ...], read_only: bool, then: bool
) -> None:
    """A console that only reads, or a place without a worker of ours, has no W once there is
    space."""
    disks = (a_full_disk(),)
    place = a_place(a_memory([a_task(1)]), lock=free, worker_command=command, disks=lambda: disks)
    async with an_operator(place, size=(100, 30), read_only=read_only) as operator:
        fills = "3 shows what fills /srv; make room"
        for pressed, step in (("", fills), ("3", "make room on /srv"), ("escape 2", fills)):
            await operator.step(pressed, step)
            assert (f"{step}, then W" in " ".join(operator.text.split())) == then


async def test_no_second_worker_follows_on_a_full_disk() -> None:
    """Where a worker runs, to make room is enough: no W follows, also not after the lock is
    freed."""
    locks = [AT_WORK]
    place = a_place(a_memory([a_task(1), at_work(2, 3)]), lock=lambda: locks[0])
    place = place._replace(worker_command=("true",), recovery_command=("true",))
    place = place._replace(disks=lambda: (a_full_disk(),))
    async with an_operator(place, size=(120, 40)) as operator:
        for pressed in ("", "1"):
            await operator.step(pressed, "3 shows what fills /srv; make room")
            assert "make room, then W" not in operator.text
        locks[0] = a_stuck_lock()
        await operator.step("3", "next U frees the lock of nftban")
        assert "W starts" not in operator.text
        await operator.step("U", "next then make room on /srv, then W starts a worker")


async def test_a_free_lock_on_a_full_disk_names_no_worker_to_start() -> None:
    """Among the locks, and after a replay, room comes first."""
    tasks = [a_task(1, due=NOW - 60)]
    place = a_place(a_memory(tasks), lock=free, worker_command=("true",))
    place = place._replace(disks=lambda: (a_full_disk(),))
    async with an_operator(place, first=keys.LOCKS, size=(120, 40)) as operator:
        room = "make room on /srv, then W starts a worker"
        await operator.sees("nothing to free; no worker running", f"next {room}")
        (live,) = operator.console.sessions
        assert live.worker_hint("retry") == "no worker running: make room on /srv first"


@each(
    ("lacks_inodes", "command"),
    [
        (False, "du -xah '/srv/a b' | sort -h | tail"),
        (True, "du --inodes -xa '/srv/a b' | sort -n | tail"),
    ],
)
def test_the_command_for_a_full_disk_counts_what_is_scarce(
    lacks_inodes: bool, command: str
) -> None:
    """The details of a worker advise how to find what has most of the bytes, or of the inodes."""
    session = PlaceSession(a_place(a_memory([])), lambda: NOW)
    disk = a_full_disk(mount="/srv/a b", lacks_inodes=lacks_inodes)
    session.readings = session.readings._replace(disks=(disk,))
    rows = dict(view.detail_rows(WorkerRow("/srv/a", 1, "a"), session, NOW))
    assert rows["disk"].endswith(f"what fills it: {command}")


def test_kinds_have_their_whole_names_at_80_columns() -> None:
    """The gaps between the columns give way before a name is cut."""
    names = ["geoban_apply", "organizer_mail_x"]
    kinds = [view.PlaceKind("flowing", KindFigures(name, source="recorder")) for name in names]
    _, lines = view.kind_table(kinds, 80, places=True, sources=True)
    assert ["".join(text for text, _ in line).split()[1] for line in lines] == names


def test_no_worker_is_started_once_the_console_closes() -> None:
    """A start that comes after the stop starts nothing: no process stays without an owner."""
    worker = WorkerProcess(("sleep", "60"))
    worker.stop_and_wait()
    with pytest.raises(Unavailable, match="the console is closing"):
        worker.start()
    assert worker.pid is None


async def test_workers_of_a_place_without_a_lock_have_their_pid() -> None:
    """A worker that the store knows has its PID in its row, and is counted."""
    places = [
        leased(tasks, WholeQueueFigures(workers=(pid,)))._replace(name=f"/srv/{name}")
        for name, pid, tasks in (("idle", 8609, []), ("busy", 8610, [at_work(1, 3)]))
    ]
    async with workers(*places) as operator:
        for text in (f" 8609  {IDLE}", " 8610  00000001"):
            await operator.until(lambda: text in operator.rows)  # noqa: B023
        assert len(operator.rows.splitlines()) == 2
        assert NO_WORKER not in operator.rows and "workers 2" in operator.text


async def test_a_task_whose_worker_has_ended_is_marked() -> None:
    """The row has `!` and `no worker`, and the next step releases the task."""
    tasks = [at_work(1, 960), at_work(2, 3)]
    figures = WholeQueueFigures(workers=(8609,), abandoned=frozenset({tasks[0].id}))
    async with workers(leased(tasks, figures)) as operator:
        await operator.until(lambda: " 8609  00000002" in operator.rows)
        first, second = operator.rows.splitlines()
        assert first.split()[:5] == ["!", "nftban", "no", "worker", "00000001"]
        assert not second.startswith(" !")
        await operator.sees("Enter opens the task; L there releases it")


async def test_workers_of_a_server_have_their_names() -> None:
    """The owner of a lock and the seconds left are in the row of its task, address and age of its
    connection in the details; a connected worker without a task has a row; an active task without
    a lock is `stalled?`."""
    busy, stalled = at_work(1, 3, lease=Lease("node-1", NOW - 3, NOW + 21)), at_work(2, 9)
    stalled = stalled._replace(lease=None, extra={STALLED_KEY: "no lock"})
    connected = (
        ConnectedWorker("node-1", "10.0.0.7", (busy.kind,), 300.0),
        ConnectedWorker("node-2", "10.0.0.8", ("a", "b", "c", "d"), 60.0),
    )
    place = leased([busy, stalled], WholeQueueFigures(connected=connected))
    async with workers(place, size=(120, 40)) as operator:
        await operator.until(lambda: len(operator.rows.splitlines()) == 3)
        first, second, third = (line.split() for line in operator.rows.splitlines())
        assert first[1:4] == ["nftban", "stalled?", "00000002"]
        assert second[:4] == ["nftban", "-", "node-1", "00000001"] and "21s" in second
        note = "node-2 no task claimed: 10.0.0.8, connected 1m; serves a, b, c and 1 more"
        assert " ".join(third) == f"nftban - {note}"
        assert "workers 2" in operator.text
        await operator.step("j", "node-1 on nftban", "10.0.0.7, connected 5m; serves")


SHORT: list[tuple[float | None, str]] = [(None, "?"), (0.0, "0s"), (0.42, "0.4s"), (2.0, "2s")]
SHORT += [(9.94, "9.9s"), (41.2, "41s"), (2820.0, "47m"), (7980.0, "2h13m")]


@each(("seconds", "text"), SHORT)
def test_short_durations(seconds: float | None, text: str) -> None:
    """Tenths below ten seconds, one unit above, and no form is wider than a column."""
    assert view.format_seconds(seconds) == text


REPORT = "20261120T094121Z-report-c2c41696"
BUSY = WorkerRow("/srv/a", 1, "a", 8609, REPORT, kind="report", running_seconds=3.0)


async def test_rows_and_kinds_that_are_not_shown_are_counted() -> None:
    """The titles count workers and kinds, without the lines that explain a `?`."""
    tasks = [at_work(number, 5, kind=f"kind{number}") for number in range(9)]
    async with workers(leased(tasks, WholeQueueFigures()), size=(80, 24)) as operator:
        await operator.until(lambda: re.search(r"3 Workers \S+, \d of 9 rows", operator.text))
        screen = operator.console.screen
        assert isinstance(screen, WorkersScreen)
        await operator.until(lambda: len(screen.kinds.lines) == 11)  # titles and a reason
        await operator.sees("Kinds 9 ")
        await operator.until(lambda: f" {10 - screen.kinds.size.height} more" in operator.text)


def test_a_table_keeps_the_pid_where_more_rows_have_one() -> None:
    """A pane of the wall drops OWNER of idle agents before the PID that a key asks for."""
    agent = WorkerRow("/srv/p", 2, "postoffice", owner="idle", note="smtp/*: IDLE")
    busy = BUSY._replace(lease_seconds=60.0, kind="geoban_apply")
    for rows, title in (([busy, busy, agent], " PID "), ([busy, agent, agent], " OWNER ")):
        head, _ = view.worker_table(rows, 57)
        assert title in words([head]) and (" PID " in words([head])) is (title == " PID ")
    few = [busy._replace(heartbeat_seconds=2.0)] * 4 + [busy._replace(owner="PID 31762")]
    titles = words([view.worker_table(few, 66)[0]]).split()
    assert titles[-1] == "HEARTBEAT" and "OWNER" not in titles  # one of five rows has it


def test_columns_that_no_row_has_are_absent() -> None:
    """Without values a column is absent; on a narrow screen others go, and each line fits."""
    full = BUSY._replace(limit_seconds=60.0, destination=RED, heartbeat_seconds=2.0)
    bare, _ = view.worker_table([BUSY], 120)
    titles, (line,) = view.worker_table([full], 120)
    assert words([bare]).split() == ["PLACE", "PID", "TASK", "KIND", "RUNNING", "HEARTBEAT"]
    assert words([titles]).split()[-3:] == ["LIMIT", "DEST", "HEARTBEAT"]
    assert "c2c41696" in words([line]) and "\x1b" not in words([line])
    for width in (30, 50, 80):
        _, lines = view.worker_table([full, BUSY._replace(task="", note=IDLE)], width)
        assert {width_of(line) for line in lines} == {width}


def test_an_unknown_number_of_tasks_is_a_question_mark() -> None:
    """Before the tasks are counted, and where due times are unknown, the details show no 0."""
    session = PlaceSession(a_place(a_memory([])), lambda: NOW)
    session.backlog = BacklogSummary(due=None)
    rows = dict(view.detail_rows(WorkerRow("/srv/a", 1, "a"), session, NOW))
    assert rows["waiting"] == "? tasks, ? due"


DENIED = "workers unknown: denied"
UNREAD = WholeQueueFigures(workers_unknown=DENIED)


@pytest.mark.parametrize("figures", [UNREAD, UNREAD._replace(workers_unknown="", unknown=DENIED)])
async def test_unknown_workers_are_not_none(figures: WholeQueueFigures) -> None:
    """A place whose workers cannot be read has `?` and the reason, in its row and the overview."""
    place = leased([a_task(1)], figures)._replace(worker_command=("true",))
    async with workers(place, size=(120, 40)) as operator:
        await operator.sees(f"nftban ? {DENIED}", "Workers ?")
        assert NO_WORKER not in operator.text
        await operator.step("escape", OverviewScreen, f"? {DENIED}", "Workers ?")
        assert NO_WORKER not in operator.text


def test_a_process_counts_once() -> None:
    """Several tasks of one process are one worker; each idle connection is one."""
    rows = [BUSY, BUSY._replace(task="t2"), BUSY._replace(pid=None, task="", note=NO_WORKER)]
    assert count_workers(rows) == Figure(1)
    unnamed = WorkerRow("q", 1, "q", owner=NO_NAME, note=IDLE)
    served = [unnamed._replace(connection=f"127.0.0.1; serves {name}") for name in ("a", "b")]
    assert count_workers([*rows, *served]) == Figure(3)
    agents = [unnamed._replace(owner="idle", note="holds no connection")] * 2
    assert count_workers([*rows, *agents]) == Figure(3)
    assert [*view.keyed_rows(rows)] == ["1.1", "1.2", "1.3"]


@each(("width", "titles"), [
    (57, "PLACE PID TASK KIND RUNNING LIMIT"),
    (66, "PLACE PID TASK KIND RUNNING LIMIT HEARTBEAT"),
    (100, "PLACE PID TASK KIND RUNNING LIMIT DEST HEARTBEAT"),
])  # fmt: skip
def test_a_narrow_table_of_workers_keeps_the_time_limit_longest(width: int, titles: str) -> None:
    """A pane of the wall (57 cells) has the time limit of each task."""
    row = WorkerRow("/x", 1, "kannader", 21187, "a" * 8, kind="geoban_apply", running_seconds=1.1)
    row = row._replace(limit_seconds=30.0, has_limits=True, destination="mx1")
    head, (line,) = view.worker_table([row._replace(heartbeat_seconds=2.0)], width)
    assert words([head]).split() == titles.split() and "30s" in words([line])


async def test_the_expected_start_of_a_task() -> None:
    """A task in backoff runs when it is due; without a worker, or if its store knows why it does
    not start, its start is unknown, with the reason; a task that does not wait has none."""
    waits, dead = a_task(1, due=NOW + 25), a_task(2, State.DEAD)
    limited = a_task(3, due=NOW - 5, extra={WAITS_KEY: ">MaxRing: all in use"})
    lock = [AT_WORK]
    async with workers(a_place(a_memory([waits, dead]), lock=lambda: lock[-1])) as operator:
        (live,) = operator.console.sessions
        await operator.until(lambda: live.has_readings)
        for task, start in (
            (waits, ExpectedStart(NOW + 25)),
            (dead, None),
            (limited, ExpectedStart(None, ">MaxRing: all in use")),
        ):
            assert (await outlook(live, task, NOW)).start == start
        lock.append(free())
        await operator.until(lambda: live.lacks_worker)
        start = (await outlook(live, waits, NOW)).start
        assert start == ExpectedStart(None, NO_WORKER)


async def test_the_tasks_before_a_due_one_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason and its start are of the same count: in a long queue each takes a while."""
    counted: list[float] = []

    def count_ahead(reader: Reader, task: Task, now: float, by: str) -> dict[str, int]:
        counted.append(now)
        return {task.kind: 2}

    monkeypatch.setattr(backlog, "count_ahead", count_ahead)
    task = a_task(3)
    limits = (BucketState(task.kind, 3, 5, None, 60),)
    place = a_place(a_memory([task]), lock=lambda: AT_WORK)._replace(claim_order="created")
    live = PlaceSession(place, lambda: NOW)
    live.readings = PlaceReadings(tokens=limits)
    try:
        await live.inspector.start()
        await live.inspector.scan_now()
        known = await outlook(live, task, NOW)
        assert known.circumstances is not None and known.circumstances.tasks_ahead == 2
        assert counted == [NOW]
    finally:
        await live.close(keep_worker=False)


async def test_a_worker_without_a_pid_is_not_missing() -> None:
    """Where another program works, such as cron, no screen says that there is no worker."""
    place = leased([], WholeQueueFigures(has_worker=True))
    async with workers(place) as operator:
        await operator.until(
            lambda: OTHER_WORKER in operator.rows and NO_WORKER not in operator.rows
        )
        assert not count_workers(all_worker_rows(operator.console.sessions, NOW)).is_exact


async def test_the_expected_start_of_a_task_of_a_server() -> None:
    """It is that of its queue as the server shows it now: a listing of tasks may be a minute old.
    If it is late, or an agent delivers, its turn is not known, with the reason."""
    facts = [GroupFacts(wakeup=NOW + 40)]
    groups = PlaceGroups({}, lambda names: dict.fromkeys(names, facts[-1]))
    late = a_task(1, due=NOW - 120)
    figures = WholeQueueFigures(has_worker=True)
    changes: dict[str, Any] = {"server": "the mailer", "groups": groups, "claim_order": ""}
    place = leased([late], figures)._replace(**changes)
    async with workers(place) as operator:
        (live,) = operator.console.sessions
        await operator.until(lambda: live.has_readings)
        assert (await outlook(live, late, NOW)).start == ExpectedStart(NOW + 40)
        for found, why in (
            (GroupFacts(), "due for 2m, not started by its server yet"),
            (GroupFacts(agents=1), "an agent works on its queue: not known when it is its turn"),
        ):
            facts.append(found)
            start = (await outlook(live, late, NOW + len(facts))).start
            assert start is not None and (start.when, start.unknown) == (None, why)


@pytest.mark.parametrize("broken", [False, True])
async def test_a_worker_started_or_stopped_here_is_an_operation(
    tmp_path: Path, broken: bool
) -> None:
    """The journal has who started and stopped it; without a journal both are done, and say so."""
    make_spool(tmp_path, [])
    place = a_journaled_place(tmp_path)._replace(worker_command=("sleep", "60"), lock=free)
    folder = Path(kept(place).folder)
    if broken:
        await asyncio.to_thread(folder.parent.mkdir, parents=True, exist_ok=True)
        await asyncio.to_thread(folder.write_text, "")
    more = "not recorded: the journal in" if broken else "worker"
    async with workers(place, clock=None, size=(200, 30)) as operator:
        session = operator.console.navigator.session
        await operator.opens(ActionScreen, "W")
        await operator.opens(WorkersScreen, "y")
        await operator.until(lambda: session.worker.pid is not None)
        pid = session.worker.pid
        await operator.sees(f"worker started, PID {pid}", more)
        await operator.opens(ActionScreen, "W")
        await operator.opens(WorkersScreen, "y")
        await operator.sees(f"worker PID {pid} got SIGTERM", more)
    if not broken:
        both = await asyncio.to_thread(kept(place).operations)
        start, stop = sorted(both, key=describe_operation)
        assert describe_operation(start) == "start worker"
        assert describe_operation(stop) == f"stop worker PID {pid}"
        assert controls.control_outcome(start) == f"worker started, PID {pid}; W stops it"
        listed = {each.operation.op: each for each in list_operations(both)}
        ways = [undo_time_left(listed[one.op], NOW)[0] for one in (start, stop)]
        assert ways == ["no: use W"] * 2
