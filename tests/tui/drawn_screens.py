"""What is drawn of the console: each screen, the keys that lead there, and what is waited for."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from textual.pilot import Pilot

from engine.formats.base.memory import MemoryStore
from engine.formats.nftban.folder import TaskFolder
from engine.formats.nftban.recovery import broken_file
from engine.live.call_thread import CallThread
from engine.model import LockEvidence, Missing, Problem, State, Task, Verdict
from engine.operations.journal import Journal
from engine.places.place import Place
from engine.system.files import Refused
from tests.console_operator import keys_in
from tests.console_places import (
    NOW,
    a_console,
    a_memory,
    a_stuck_lock,
    a_task,
    acted,
    free,
    is_done,
    is_known,
    show_all,
    until,
)
from tests.journaled_places import ANA
from tests.tui.screenshot_places import (
    NAME,
    a_delivery_place,
    a_flooded_place,
    a_lost_place,
    a_screenshot_place,
    a_zgb_place,
    mail_of_screenshots,
)
from tui.app import Console
from tui.session.place_session import PlaceSession
from tui.terminal.clipboard import screen_text
from tui.text import keys

_STUCK = a_stuck_lock()
DOUBT = _STUCK._replace(signal_refusal="PID 4711 runs under several uids", facts=_STUCK.facts[:-1])
_FACTS = ("last heartbeat", "2026-11-20 09:42:05Z, 3s ago"), ("flock", "held by PID 4711")
AT_WORK = _STUCK._replace(verdict=Verdict.HELD, age=3.0, since=NOW - 3)
AT_WORK = AT_WORK._replace(reason="PID 4711 is running", facts=(*_STUCK.facts[:2], *_FACTS))
SEE, WAIT = "see ", "wait"

STILL = 5
"""Looks for which nothing may change, and nothing be read, before a picture is taken."""

UNDER_WAY = set[object]()
"""Calls that run on threads, or wait for their turn there."""

HALFWAY, ALL = 12_000, 40_000
"""Tasks that a slow store has handed out, and those it has."""


class DrawnScreen(NamedTuple):
    """A picture: the day, the lock, and the state of the places."""

    steps: tuple[str, ...]
    """Keys that are pressed; `see WORDS` waits until these are on the screen, `wait` until
    nothing changes there any more."""
    good: bool = False
    lock: LockEvidence = AT_WORK
    armed: bool = False
    lost: bool = False  # there is a second place, one that cannot be read
    past: bool = False  # the place has operations in its journal
    mail: bool = False  # the transports are known, one of which is suspended
    whole: bool = False  # a mail queue in a database, which has controls
    flooded: bool = False  # a mail server's queue, most of it from one sender
    sent: bool = False  # deliveries go to destinations, some of which are unhealthy
    slow: bool = False  # the first scan is still running
    quiet: bool = False  # nothing is known of the time before

    @property
    def day(self) -> str:
        """The day of the place: stuck where the lock is."""
        return "good" if self.good else "stuck" if self.lock.verdict is Verdict.STUCK else "bad"


HISTOGRAM = "see 08:42"  # the time at its left end
FIRST = ("see Ages:", WAIT)
"""The overview, from which everything is reached."""
BLOCKED = "see no handler"  # the alert that is found last
QUEUE = (*FIRST, "2", "see acts on", "see Daily report")
DEAD = (*FIRST, "4", "see acts on", "see 550 5.1.1")
LOCK = (*FIRST, "U", "see not finished", "see 0.00s")
"""The logs are read, and the worker was watched."""
PEERS = (*FIRST, "6", "see UNHEALTHY", "see 6: REFUSED")
WAYS = (*FIRST, "6", "see SUSPENDED")
MAIL = (*DEAD, "/", *keys_in("abuse"), "enter", "see 2 of 14", "enter", WAIT, "see died")

DRAWN_SCREENS: dict[str, DrawnScreen] = {
    "overview": DrawnScreen((*FIRST, BLOCKED), good=True),
    "frozen": DrawnScreen((*FIRST, BLOCKED, WAIT, "p", "see FROZEN", WAIT), good=True),
    "trouble": DrawnScreen((*FIRST, "see lock STUCK", BLOCKED), lock=a_stuck_lock(), lost=True),
    "queue": DrawnScreen(QUEUE),
    "dlq": DrawnScreen((*DEAD, "o", "e", WAIT, "g", "j", "v", "j", "j", "j", "v"), armed=True),
    "filter": DrawnScreen(
        (*DEAD, *keys_in("/ kind=mail_send space tries>2"), "see of 14", "see 6/14")
    ),
    "nothing": DrawnScreen(
        (*DEAD, "/", *keys_in("unknown space age>30d"), "enter", "see without it", "see 0/14")
    ),
    "clusters": DrawnScreen((*DEAD, "c", "see F-")),
    "groups": DrawnScreen((*DEAD, "b", "see OLDEST", "see newest first")),
    "task": DrawnScreen(MAIL),
    "task-payload": DrawnScreen((*MAIL, "l", "see Attack from")),
    "task-attempts": DrawnScreen((*MAIL, "l", "l", "see will retry")),
    "task-files": DrawnScreen((*MAIL, "h", "see inode")),
    "problems": DrawnScreen((*QUEUE, "h", "see 0badf00d")),
    "workers": DrawnScreen((*FIRST, "3", "see HEARTBEAT"), lock=a_stuck_lock(), lost=True),
    "locks": DrawnScreen((*FIRST, "5", "see STUCK (sure)"), lock=a_stuck_lock(), lost=True),
    "lock": DrawnScreen((*LOCK, "see 47m, sure"), lock=a_stuck_lock(), armed=True),
    "lock-doubt": DrawnScreen((*LOCK, "see several uids"), lock=DOUBT, armed=True),
    "lock-at-work": DrawnScreen((*LOCK, "see is running"), lock=AT_WORK, armed=True),
    "transports": DrawnScreen((*FIRST, "6", "see postfix"), mail=True),
    "errors": DrawnScreen((*WAYS, "j", "enter", "see mx7 does not answer"), mail=True),
    "suspend": DrawnScreen(
        (*WAYS, "j", "j", "S", "see uses curl", "see pending"), armed=True, mail=True
    ),
    "destinations": DrawnScreen(PEERS, armed=True, sent=True),
    "destination-block": DrawnScreen((*PEERS, "S", "see not blocked"), armed=True, sent=True),
    "flood": DrawnScreen(
        (*FIRST, "2", "see acts on", "b", "see DESTINATION", "right", "see SENDER", WAIT),
        flooded=True,
        quiet=True,
    ),
    "controls": DrawnScreen((*FIRST, "C", "see sends at most"), whole=True),
    "control": DrawnScreen(
        (*FIRST, "C", "see mailQueueEnabled", "enter", "see y to apply"), armed=True, whole=True
    ),
    "test-mail": DrawnScreen((*WAYS, "j", "j", "M", "see Test mail via"), armed=True, mail=True),
    "log": DrawnScreen((*FIRST, "7", "see Processing task", HISTOGRAM)),
    "log-only": DrawnScreen(
        (*FIRST, "7", "see Processing task", HISTOGRAM, "&", *keys_in("failed"), "enter")
    ),
    "pace": DrawnScreen((*DEAD, "*", "R", "see 14", "p", "see Replay settings"), armed=True),
    "operations": DrawnScreen(
        (*FIRST, "u", "see 08:15:", "see mx7 is back", "see 9 tasks"), armed=True, past=True
    ),
    "record": DrawnScreen((*FIRST, "u", "see mx7 is back", "enter", "see 9 tasks"), past=True),
    "plan": DrawnScreen((*DEAD, "*", "R", "see 14"), armed=True),
    "help": DrawnScreen((*QUEUE, "?", "see search:")),
    "palette": DrawnScreen((*FIRST, BLOCKED, ":", *keys_in("lo"), "see log")),
    "order": DrawnScreen((*QUEUE, "o", "see tries")),
    "copy": DrawnScreen((*DEAD, "y", "see JSON")),
    "export": DrawnScreen((*DEAD, "e", "see export to")),
    "search": DrawnScreen(
        (*FIRST, "/", *keys_in("mail"), "enter", "see Search mail 19+", "see Spooled"), lost=True
    ),
    "first-look": DrawnScreen(("see of 40,000 tasks",), slow=True),
}
"""By their names."""


class Slow(MemoryStore):
    """A store that hands out so many tasks, and then takes its time until it is told to go on."""

    go_on = threading.Event()

    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        """Every task; the second part only when it is told to."""
        for number, task in enumerate(super().scan(touched)):
            if touched is None and number == HALFWAY:
                self.go_on.wait()
            yield task


def places(root: Path, drawn_screen: DrawnScreen) -> list[Place]:
    """The places of a picture."""
    if drawn_screen.slow:
        memory = a_memory([a_task(number) for number in range(ALL)])
        return [Place(NAME, lambda: Slow(memory), lock=free)]
    if drawn_screen.flooded:
        return [a_flooded_place()]
    if drawn_screen.sent:
        return [a_delivery_place(root)]
    if drawn_screen.whole:
        return [a_zgb_place(root)]
    first = a_screenshot_place(root, lock=lambda: drawn_screen.lock)
    if drawn_screen.past:
        folder = str(root / "journal")
        first = first._replace(journal=Journal(folder, str(root), lambda: NOW), who=ANA)
    if drawn_screen.mail:
        first = first._replace(mail=mail_of_screenshots(root))
    return [first, a_lost_place()] if drawn_screen.lost else [first]


@asynccontextmanager
async def taken(
    root: Path, drawn_screen: DrawnScreen, size: tuple[int, int], **fields: object
) -> AsyncIterator[tuple[Console, Pilot[None]]]:
    """The console at the end of the steps that lead to a picture, with nothing left to come."""
    first = keys.LIST if drawn_screen.slow else keys.OVERVIEW
    settings = {"start_armed": drawn_screen.armed, "first": first, **fields}
    console = a_console(*places(root, drawn_screen), **settings)  # type: ignore[arg-type]
    Slow.go_on.clear()

    def text() -> str:
        return screen_text(console.screen)

    if not (drawn_screen.slow or drawn_screen.whole or drawn_screen.quiet):
        _seed_history(console.sessions[0], drawn_screen.day)
    with ExitStack() as stack:
        # Only the system sets the time of a file's last change.
        stack.enter_context(patch("engine.formats.nftban.store.broken_file", _broken_this_morning))
        stack.enter_context(patch("tui.overview.parts.SEEN_SECONDS", 0.0))
        if drawn_screen.slow:  # it is read until the end
            stack.callback(Slow.go_on.set)
        else:
            stack.enter_context(noted_calls())
        async with console.run_test(size=size) as pilot:
            await until(pilot, lambda: drawn_screen.slow or all(map(is_known, console.sessions)))
            for step in drawn_screen.steps:
                if step.startswith(SEE):
                    words = step.removeprefix(SEE)
                    await until(pilot, lambda: words in text(), text)  # noqa: B023
                elif step == WAIT:
                    await settled(console, pilot)
                else:
                    await pilot.press(step)
                    await acted(pilot)
            await settled(console, pilot)
            yield console, pilot


def _broken_this_morning(folder: TaskFolder, state: State, name: str, why: Refused) -> Problem:
    return broken_file(folder, state, name, why)._replace(since=NOW - 29520)


def _seed_history(live: PlaceSession, day: str) -> None:
    """Give a place ten minutes of history; on a stuck day tasks only arrive."""
    arrived = left = 0
    dead, good = (14 if day == "stuck" else 0), day == "good"
    pending = {"good": 90, "bad": 60, "stuck": 41}[day]
    for second in range(-600, 0, 2):
        if day == "stuck":
            arrived += second % 120 == 0
            live.flow.add(
                NOW + second, arrived, 0, {State.PENDING: pending + arrived, State.DEAD: dead}
            )
            continue
        arrived += round(4 + 2 * math.sin(second / 70) + (second % 14 == 0))
        left += round(4.2 + 1.5 * math.sin(second / 70 - 1) - 2 * (-260 < second < -200))
        left += good and second > -120  # more than come: the backlog shrinks
        dead += second % 60 == 0 or -240 < second < -220
        waiting = max(0, pending + arrived - left)
        counts = {State.PENDING: waiting, State.ACTIVE: 1, State.DEAD: dead}
        live.flow.add(NOW + second, arrived, left, counts)
    # What the first scan finds: its own sample comes too soon after this one to count.
    state_counts = {State.PENDING: 46, State.ACTIVE: 1, State.DEAD: 5 if good else 14}
    live.flow.add(NOW, arrived, left, state_counts)


@contextmanager
def noted_calls() -> Iterator[None]:
    """Note in `UNDER_WAY` what runs on threads."""

    def noting(run: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def noted(*arguments: Any, **names: Any) -> object:
            UNDER_WAY.add(token := object())
            try:
                return await run(*arguments, **names)
            finally:
                UNDER_WAY.discard(token)

        return noted

    with (
        patch.object(asyncio, "to_thread", noting(asyncio.to_thread)),
        patch.object(CallThread, "run", noting(CallThread.run)),
    ):
        yield


async def settled(console: Console, pilot: Pilot[None], checks: int = STILL) -> None:
    """Until nothing is under way, and nothing has changed for so many looks on any screen."""
    before, still = "", 0
    show_all(console)

    def same() -> bool:
        nonlocal before, still
        now = "\n".join(map(screen_text, console.screen_stack))
        still = still + 1 if now == before and is_done(console) and not UNDER_WAY else 0
        before = now
        return still >= checks

    await until(pilot, same, lambda: screen_text(console.screen))
