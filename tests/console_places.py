"""Spools and places for the console's tests and screenshots: small, and the same each time."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.locks import queue_lock
from engine.model import Lease, LockEvidence, State, Task, Verdict
from engine.monitor.prometheus import QueueGauges, render_queue
from engine.places.place import Place
from engine.system.host import DiskSpace
from engine.text.figure import Figure
from tests.open_store import open_store
from tui.app import Console
from tui.log.screen import LogScreen
from tui.overview.screen import OverviewScreen
from tui.queue.screen import QueueScreen
from tui.screens.rows_screen import RowsScreen
from tui.session.place_session import PlaceSession
from tui.task.screen import TaskScreen
from tui.terminal.safe_app import SafeApp
from tui.text import keys
from tui.text.glyphs import ASCII
from tui.widgets.task_list import TaskList

NOW = 1_795_167_728.0
"""2026-11-20 09:42:08Z."""

KINDS = ("feeds_sync", "geoban_apply", "mail_send")
ERRORS = (
    "421 4.7.0 try again later",
    "550 5.1.1 user unknown",
    "connect_timeout mx7.example.net 25",
)


def a_task(number: int, state: State = State.PENDING, **fields: object) -> Task:
    """A task whose id goes up with its number; older ones have lower numbers."""
    created = NOW - 86400 + number * 60
    kind = KINDS[number % 3]
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(created))
    failed = number % 4 == 1 or state is State.DEAD
    task = Task(
        f"{stamp}-{kind}-{number:08x}",
        kind,
        state,
        created,
        due=NOW + 600 + number if failed and state is State.PENDING else 0.0,
        attempts=4 if state is State.DEAD else int(failed),
        description=f"{kind} for feed {number}",
        error=ERRORS[number % 3] if failed else "",
        lease=Lease("4711", NOW - 90) if state is State.ACTIVE else None,
        extra={"dead_since": str(int(NOW - 7200 - number * 60))} if state is State.DEAD else {},
    )
    return task._replace(**fields)  # type: ignore[arg-type]


def some_tasks(pending: int = 40, active: int = 1, dead: int = 12) -> list[Task]:
    """A queue on an ordinary day."""
    amounts = ((State.DEAD, dead), (State.ACTIVE, active), (State.PENDING, pending))
    states = [state for state, amount in amounts for _ in range(amount)]
    return [a_task(number, state) for number, state in enumerate(states)]


def a_memory(tasks: list[Task]) -> MemoryTasks:
    """A store's contents, to be opened as often as one likes."""
    memory = MemoryTasks()
    with memory.condition:
        for task in tasks:
            memory.put((task.queue, task.id), task)
    return memory


def free() -> LockEvidence:
    """A free lock."""
    return LockEvidence(Verdict.FREE, reason="no lock file")


def a_stuck_lock() -> LockEvidence:
    """A lock whose holder was silent for 47 minutes, proven in every way."""
    facts = (
        ("holder", "PID 4711: /usr/bin/python3 -m tui.cli queue work"),
        ("started", "2026-11-20 08:12:31Z: matches lock file (same process)"),
        ("last heartbeat", "2026-11-20 08:55:08Z, 47m ago"),
        ("limit", "20m without one"),
        ("boot", "same"),
        ("PID namespace", "same"),
        ("host", "mx1, this host"),
        ("user", "uid 997"),
        ("flock", "held by PID 4711"),
        ("follows", "its holder may be ended"),
    )
    why = "PID 4711 is alive, no heartbeat for 47m (limit 20m)"
    held = LockEvidence(Verdict.STUCK, 4711, NOW - 2820, age=2820, reason=why, facts=facts)
    return held._replace(identity="1f.00c0ffee", holders=(4711,), limit=1200, signal_refusal="")


def recover_command(root: str = "/var/lib/nftban") -> tuple[str, ...]:
    """The command that frees the lock of a place, as the command line makes it."""
    argv = (sys.executable, "-m", "tui.cli", "--root", root, "queue", "recover")
    return (*argv, "--yes", "--seen")


def a_place(memory: MemoryTasks, **fields: object) -> Place:
    """A place in memory with these fields."""
    place = Place("/var/lib/nftban", lambda: MemoryStore(memory), lock=free)
    return place._replace(**fields)  # type: ignore[arg-type]


def file_text(task: Task) -> str:
    """A task in the form of the contract."""
    rows = {
        "TASK_ID": task.id,
        "TASK_TYPE": task.kind,
        "TASK_DESCRIPTION": task.description,
        "TASK_CREATED_EPOCH": int(task.created),
        "TASK_RETRIES": task.attempts,
        "TASK_NEXT_ATTEMPT_EPOCH": int(task.due or 0),
        "TASK_LAST_ERROR": task.error,
        "TASK_PAYLOAD_FILE": task.payload,
    }
    if task.state is State.DEAD:
        rows["TASK_DLQ_EPOCH"] = task.extra["dead_since"]
        rows["TASK_DLQ_REASON"] = "max_retries_exceeded"
    return "".join(f'{key}="{value}"\n' for key, value in rows.items())


FOLDERS = {State.PENDING: "pending", State.ACTIVE: "work", State.DEAD: "dlq"}


def make_spool(root: Path, tasks: list[Task]) -> None:
    """A spool on disk in the form of the contract, with metrics and logs."""
    for name in ("queue/pending", "queue/work", "queue/dlq", "metrics", "log", "run"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for task in tasks:
        put_file(root, task)
    pending, active, dead = (sum(task.state is state for task in tasks) for state in FOLDERS)
    totals = {"processed_total": 318, "failed_total": 61, "retries_total": 49, "dlq_total": 12}
    queue = render_queue(QueueGauges(pending, active, dead, 86000), totals, NOW - 20)
    for name, text in (("queue.prom", queue), ("mail.prom", MAIL.encode())):
        (root / "metrics" / name).write_bytes(text)
        os.utime(root / "metrics" / name, (NOW - 20, NOW - 20))
    (root / "log" / "queue.log").write_text(LOG)


def put_file(root: Path, task: Task) -> Path:
    """One more task file in a spool, or another text of one, by rename as all programs do it."""
    new = root / f"{task.id}.new"
    new.write_text(file_text(task))
    new.chmod(0o640)  # before it is there: a change of mode is another change of the task
    return new.rename(root / "queue" / FOLDERS[task.state] / f"{task.id}.task")


def _counted(name: str, figures: dict[str, int]) -> str:
    head = f"# TYPE {name} counter\n"
    return head + "".join(f'{name}{{transport="{key}"}} {n}\n' for key, n in figures.items())


MAIL = (
    _counted("nftban_mail_send_attempts_total", {"postfix": 120, "sendmail": 4, "curl": 0})
    + _counted("nftban_mail_send_success_total", {"postfix": 118, "sendmail": 1, "curl": 0})
    + _counted("nftban_mail_send_failures_total", {"postfix": 2, "sendmail": 3, "curl": 0})
)

LOG = """\
[2026-11-20 09:41:15] [INFO] Processing task: 20261120T094115Z-feeds_sync-da0619a0 (feeds_sync)
[2026-11-20 09:41:15] [SUCCESS] Task completed: 20261120T094115Z-feeds_sync-da0619a0
[2026-11-20 09:41:21] [INFO] Processing task: 20261120T094115Z-geoban_apply-c2c41696
[2026-11-20 09:41:21] [WARN] Task 20261120T094115Z-geoban_apply-c2c41696 failed, retry in 60s
[2026-11-20 09:41:23] [ERROR] Task 20261120T094115Z-geoban_apply-c2c41696 moving to DLQ
[2026-11-20 09:41:23] [DEBUG] Queue processor completed in 1s
"""


def disk_place(root: Path, name: str = "", clock: Callable[[], float] = lambda: NOW) -> Place:
    """A place on disk, as the command line would make it."""
    return Place(
        name or str(root),
        lambda: open_store(str(root), clock),
        lock=lambda: queue_lock.examine_lock(str(root / "run" / "queue.lock"), 1200, clock),
        queue_metrics=str(root / "metrics" / "queue.prom"),
        mail_metrics=str(root / "metrics" / "mail.prom"),
        logs=(str(root / "log" / "queue.log"),),
    )


def a_full_disk(**fields: object) -> DiskSpace:
    """A disk of 2.1 MB without room, of which nothing else is known."""
    unknown = DiskSpace(
        folder="/srv/queue",
        free_tasks=0,
        used_bytes=2_097_152,
        total_bytes=2_097_152,
        lacks_inodes=False,
        mount="/srv",
        own_bytes=Figure(None),
        grown_bytes=0,
        grown_seconds=240.0,
    )
    return unknown._replace(**fields)  # type: ignore[arg-type]


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        """Epoch seconds UTC."""
        return self.now


def a_console(
    *places: Place, clock: Callable[[], float] | None = None, **fields: object
) -> Console:
    """A console on some places, on a machine called mx1, on a terminal with all colours; it opens
    on the first one's queue."""
    usual: dict[str, object] = {"glyphs": ASCII, "first": keys.LIST, "host": "mx1"}
    time = clock or Clock()
    usual["uptime"] = time
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLORTERM", "truecolor")
        return Console(places, clock=time, **{**usual, **fields})  # type: ignore[arg-type]


PATIENCE = 60.0
"""Seconds after which a console counts as hanging, also on a machine that has much else to do."""


async def until(
    pilot: Pilot[None], true: Callable[[], object], describe: Callable[[], str] = lambda: ""
) -> None:
    """Let the console work until `true()` is, asked ever less often; else `describe()`.

    Nothing is sent to the widgets meanwhile, as `Pilot.pause` does: a question costs only itself.
    """
    deadline, every = time.monotonic() + PATIENCE, 0.01
    while not true():
        assert time.monotonic() < deadline, f"it never came to be\n{describe()}"
        await asyncio.sleep(every)
        every = min(0.05, every * 1.3)
        if pilot.app._exception_event.is_set():
            await pilot.pause()  # raises it
        pilot.app.screen._on_timer_update()


BEGUN = {"filter", "line task", "log", "marks", "paint", "plan", "problems", "range", "why"}
BEGUN |= {"rows by"}
"""Workers, by their group, that a key begins and that end by themselves."""

BOARDS = (RowsScreen, LogScreen, OverviewScreen)
"""Screens that paint all they show each second."""


def is_done(console: Console) -> bool:
    """Whether the keys have acted, and all that they began and that ends by itself has ended."""
    if console._typed.queued_keys:
        return False
    lists = [part for screen in console.screen_stack for part in screen.query(TaskList)]
    logs = [screen for screen in console.screen_stack if isinstance(screen, LogScreen)]
    begun = any(work.group in BEGUN and not work.is_finished for work in console.workers)
    begun |= any(getattr(screen, "_cursor_rest_timer", None) for screen in console.screen_stack)
    loaded = all(part.rows.view.loaded for part in lists if part.rows.view.query.state)
    return (
        loaded
        and not begun
        and all(log.parts.is_loaded and log.parts.status.counted for log in logs)
    )


async def acted(pilot: Pilot[None]) -> None:
    """Let the keys act that were pressed: each waits until the ones before it are done with."""
    app, arrived = pilot.app, asyncio.Event()
    if app.call_later(arrived.set):  # after the keys that were sent to it
        await asyncio.wait_for(arrived.wait(), PATIENCE)
    if isinstance(app, SafeApp):
        await until(pilot, lambda: not (app._typed.queued_keys and app.is_running))
    await pilot._wait_for_screen()


def is_known(live: PlaceSession) -> bool:
    """Whether all was looked at and counted once, or is known not to be there."""
    latest = live.inspector.latest
    if latest.unavailable:
        return live.has_readings
    return (
        live.has_readings
        and latest.is_complete
        and live.backlog is not None
        and bool(live.count_samples)
    )


def show_all(console: Console) -> None:
    """Paint each screen now, as it would be painted within a second."""
    for live in console.sessions:
        live.evaluate_alerts()
    for screen in console.screen_stack:
        if isinstance(screen, BOARDS):
            screen.paint()
        elif isinstance(screen, QueueScreen | TaskScreen):
            screen.tick()


def queue_of(console: Console) -> QueueScreen:
    """The queue screen on top, or the first one below."""
    (screen, *_) = [s for s in reversed(console.screen_stack) if isinstance(s, QueueScreen)]
    return screen


def task_list(console: Console) -> TaskList:
    """Its list."""
    return queue_of(console).query_one(TaskList)


def has_none(screen: QueueScreen) -> bool:
    """True if the list may be empty: no task is in its state, or it has a filter."""
    counts, state = screen.parts.change.counts, screen.parts.state
    return bool(screen.parts.filter.filter.text) or state is None or not counts.get(state, 0)


async def loaded(pilot: Pilot[None]) -> None:
    """Let the console work until the list is loaded, and the lock and the metrics are read."""
    console = pilot.app
    assert isinstance(console, Console)
    await until(pilot, lambda: isinstance(console.screen, QueueScreen))
    screen = queue_of(console)
    await until(pilot, lambda: screen.is_mounted)
    await until(pilot, lambda: screen.parts.change.is_complete and screen.parts.rows.view.loaded)
    await until(pilot, lambda: screen.is_looked_up)
    # The first rows may come after the counts.
    await until(pilot, lambda: screen.parts.rows.view.total or has_none(screen))
    await until(pilot, lambda: is_done(console))
    await pilot.pause()
