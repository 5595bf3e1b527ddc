"""The overview: every queue on a line, what deserves a look, and the ways from there."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from engine import filters, locks
from engine.ages import BOUNDS, AgeRow, Ages
from engine.alerts import Alert, Goal, Level, What, Where
from engine.index import Query
from engine.limits import WHOLE, Buckets, Left
from engine.model import State
from engine.policy import Rate
from tests.engine.lockers import later
from tests.engine.test_alerts import (
    a_stale_lock,
    eleven_dead,
    metrics_are_none,
    nothing_ran,
    nothing_was_written,
    write_task,
)
from tests.engine.test_transports import attempt, given_up
from tests.tui.spools import (
    NOW,
    Clock,
    a_console,
    a_task,
    disk_place,
    make_spool,
    put_file,
    some_tasks,
    until,
)
from tui import keys
from tui.app import Console
from tui.live import Live
from tui.place import Place
from tui.plain import text_of
from tui.present import Line
from tui.screens.lock import LockScreen
from tui.screens.overview import AGES, ALERTS, QUEUES, OverviewScreen
from tui.screens.queue import QueueScreen
from tui.screens.transports import TransportsScreen
from tui.views import ages as age_view
from tui.views import alerts as alert_view
from tui.views import overview as view
from tui.views.overview import Queue
from tui.widgets.age_table import AgeTable
from tui.widgets.picker import Picker

RED = "\x1b[31mred"


class Going(Clock):
    """A clock that goes by itself, and is put forward besides."""

    def __init__(self) -> None:
        super().__init__(0.0)

    def __call__(self) -> float:
        """Epoch seconds UTC."""
        return time.time() + self.now


class Desk:
    """The overview on some spools, and what a test does to it."""

    def __init__(self, console: Console, pilot: Pilot[None], clock: Clock) -> None:
        self.console, self.pilot, self.clock = console, pilot, clock

    @property
    def screen(self) -> OverviewScreen:
        """The overview."""
        screen = self.console.screen
        assert isinstance(screen, OverviewScreen)
        return screen

    @property
    def text(self) -> str:
        """What is on the terminal."""
        return text_of(self.console.screen)

    def cells(self, name: str) -> list[str]:
        """The words behind a name on its line, after the cursor and the signs before it."""
        lines = [line[3:].split() for line in self.text.splitlines()]
        return next((words[1:] for words in lines if words[:1] == [name]), [])

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for something, and paint meanwhile what has become known."""

        def painted() -> object:
            if isinstance(self.console.screen, OverviewScreen):
                self.console.screen.paint()
            return true()

        await until(self.pilot, painted, lambda: self.text, every=0.05)

    async def press(self, *pressed: str) -> None:
        """Press keys."""
        for key in pressed:
            await self.pilot.press(key)
            await self.pilot.pause()

    async def on(self, kind: type) -> None:
        """Wait for a screen."""
        await self.until(lambda: isinstance(self.console.screen, kind))
        await self.pilot.pause()

    @property
    def table(self) -> AgeTable:
        """The age table."""
        return self.screen.query_one(AgeTable)

    async def has_table(self) -> None:
        """Wait until tasks are counted by age."""
        await self.until(lambda: self.table.count is not None)


def is_known(live: Live) -> bool:
    """Whether a place was looked at, or is known not to be there."""
    latest = live.inspector.latest
    return live.looked and bool(latest.complete or latest.unavailable)


@asynccontextmanager
async def a_desk(
    *places: Place, size: tuple[int, int] = (80, 24), clock: Clock | None = None, **fields: object
) -> AsyncIterator[Desk]:
    """The console on its overview, once every place was looked at, or is known not to be there."""
    clock = clock or Clock()
    console = a_console(*places, clock=clock, first=keys.OVERVIEW, **fields)
    async with console.run_test(size=size) as pilot:
        desk = Desk(console, pilot, clock)
        await desk.on(OverviewScreen)
        await until(pilot, lambda: all(map(is_known, console.lives)))
        await desk.until(lambda: True)
        yield desk


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
    """Each place is a line with what its folders hold, in the order given; more files are more."""
    async with a_desk(disk_place(spool), disk_place(empty)) as desk:
        wanted = ["40", "1", "10", "12", "0", "23h47m"]
        await desk.until(lambda: desk.cells("mail.out")[:6] == wanted)
        titles = ["PEND", "WORK", "RETRY", "DLQ", "HELD", "OLDEST"]
        assert desk.cells("QUEUE")[:6] == titles
        await desk.until(lambda: desk.cells("idle")[:6] == [*"00000", "-"])

        put_file(empty, a_task(1400, due=0.0))

        await desk.until(lambda: desk.cells("idle")[:6] == ["1", *"0000", "40m"])
        assert [live.place.name for live in desk.console.lives] == [str(spool), str(empty)]
        listed = [line[3:].split()[0] for line in desk.text.splitlines()[6:8]]
        assert listed == ["mail.out", "idle"]


def has_counted(live: Live, waiting: int) -> bool:
    """Whether the last of the counts, one a second, has so many that wait."""
    return bool(live.counted) and live.counted[-1][1][State.PENDING] == waiting


async def test_rates_and_drain_are_known_after_a_while(spool: Path) -> None:
    """What came, what left and when the queue is empty is ? at first, and then what was seen."""
    async with a_desk(disk_place(spool)) as desk:
        await desk.until(lambda: desk.cells("mail.out")[6:9] == ["?", "?", "?"])
        tasks = sorted((spool / "queue" / "pending").iterdir())
        for number in range(4):
            tasks[number].unlink()
            desk.clock.now += 3
            await desk.until(partial(has_counted, desk.console.lives[0], 39 - number))

        await desk.until(lambda: desk.cells("mail.out")[6] == "0.0")
        assert desk.cells("mail.out")[7] == "0.3"
        desk.clock.now += 1
        await desk.until(lambda: desk.cells("mail.out")[8].startswith(("1m", "2m")))


async def test_a_screen_that_is_taken_down_paints_nothing(spool: Path) -> None:
    """Whoever wakes while its parts go, one after the other, finds nothing to paint, and no error.

    What it asks for comes from other threads, so that can be at any moment.
    """
    async with a_desk(disk_place(spool)) as desk:
        screen = desk.screen
        painted = 0

        async def paint_on() -> None:
            nonlocal painted
            while screen.children:
                screen._frame = view.Frame()  # as if it had to be divided anew
                screen.paint()
                painted += 1
                await asyncio.sleep(0)

        painting = asyncio.ensure_future(paint_on())
        await asyncio.sleep(0)
        await screen.remove()
        await painting

        assert painted > 1


async def test_a_queue_that_cannot_be_read_is_a_line_with_the_reason(spool: Path) -> None:
    """Not zeros but ? and why; the alert is on top, and all is well again when the folder is."""
    async with a_desk(disk_place(spool)) as desk:
        (spool / "queue").rename(spool / "away")

        await desk.until(lambda: desk.cells("mail.out")[:4] == ["?"] * 4)
        assert "No such file or directory" in desk.text
        await desk.until(lambda: " CRIT  mail.out: cannot be read" in desk.text)

        (spool / "away").rename(spool / "queue")

        await desk.until(lambda: desk.cells("mail.out")[0] == "40")
        await desk.until(lambda: " CRIT " not in desk.text)


async def test_only_the_clock_is_painted_where_nothing_happens(spool: Path) -> None:
    """A second later the first line is another, and no other line is."""
    async with a_desk(disk_place(spool)) as desk:
        await desk.has_table()
        await desk.until(lambda: "23h47m" in desk.text and "reading:" in desk.text)
        before = desk.text.splitlines()

        desk.clock.now += 1
        await desk.until(lambda: "09:42:09Z" in desk.text)

        after = desk.text.splitlines()
        assert [y for y, line in enumerate(before) if line != after[y]] == [0]


# Alerts


def a_lost_folder(root: Path) -> None:
    """No folder for what waits."""
    (root / "queue" / "pending").rmdir()


def a_broken_file(root: Path) -> None:
    """A file that is no task."""
    (root / "queue" / "pending" / "broken.task").write_text("TASK_ID=$(id)\n")


def a_failing_transport(root: Path) -> None:
    """Three mails that curl could not send."""
    shift = NOW - time.time()
    lines = [attempt(shift + 60, "curl") + given_up(shift + 59, "421 later", "curl")] * 3
    (root / "log" / "mail.log").write_text("".join(lines))


ALL: list[tuple[Callable[[Path], None], str]] = [
    (eleven_dead, "11 tasks in the dead-letter queue (over 10)"),
    (a_broken_file, "1 problem"),
    (nothing_ran, "nothing has run for 31m"),
    (a_stale_lock, "stale lock: PID"),
    (a_failing_transport, "curl failed 100% of 3 mails in 10m"),
    (nothing_was_written, "queue.prom was not written for 31m"),
    (metrics_are_none, "queue.prom: not understood"),
    (a_lost_folder, "cannot be read"),
]


def held(root: Path) -> dict[Path, bytes | None]:
    """What a folder holds: each file with its bytes, each folder."""
    return {p: p.read_bytes() if p.is_file() else None for p in sorted(root.rglob("*"))}


def mend(root: Path, before: dict[Path, bytes | None]) -> None:
    """Make a folder what it was."""
    for path in sorted(root.rglob("*"), reverse=True):
        if path not in before:
            path.rmdir() if path.is_dir() else path.unlink()
    for path, data in before.items():
        if data is None:
            path.mkdir(exist_ok=True)


@pytest.mark.parametrize(("spoil", "said"), ALL, ids=lambda one: getattr(one, "__name__", ""))
async def test_an_alert_for_a_spool_that_deserves_it(
    empty: Path, spoil: Callable[[Path], None], said: str
) -> None:
    """Where all is well nothing is said; what is wrong stands on top; mended, it is gone."""
    place = disk_place(empty, clock=time.time)
    place = place._replace(logs=(*place.logs, str(empty / "log" / "mail.log")))
    (empty / "log" / "mail.log").touch()
    async with a_desk(place, clock=Going()) as desk:
        await desk.until(lambda: "nothing needs attention" in desk.text)
        await desk.until(lambda: desk.console.lives[0].counted)  # metrics are held against it
        before = held(empty)
        words = said.split(" for ")[0]
        await asyncio.to_thread(spoil, empty)
        # For so long it must have been so: a run that just began has its task in work as well.
        desk.clock.now += 6
        await desk.until(lambda: f"idle: {words}" in desk.text)
        assert "!" in desk.text.splitlines()[0]

        mend(empty, before)
        if "in 10m" in said:
            desk.clock.now += 7200  # what was sent is remembered for as long
        await desk.until(lambda: words not in desk.text)


async def test_a_stuck_lock_is_on_top(empty: Path) -> None:
    """A process that holds the lock and has not moved for 47 minutes is the first thing said."""
    ago = later(-2820)
    path = str(empty / "run" / "queue.lock")
    lock = await asyncio.to_thread(locks.acquire, path, 1200, ago["clock"], ago["uptime"])
    write_task(empty, "pending", 1, age=7300)
    try:
        async with a_desk(disk_place(empty, clock=time.time), clock=Going()) as desk:
            wanted = f"! CRIT  idle: stuck lock: no sign of life from PID {os.getpid()} for 47m"
            await desk.until(lambda: wanted in desk.text.splitlines()[1])
            await desk.until(lambda: desk.text.splitlines()[0].endswith("2!"))
    finally:
        await asyncio.to_thread(lock.release)


@pytest.mark.parametrize(
    ("spoil", "pressed", "kind", "shows"),
    [
        ("eleven_dead", (), QueueScreen, "[4 dlq 11]"),
        ("a_broken_file", (), QueueScreen, "broken.task"),
        ("a_stale_lock", (), LockScreen, "STALE"),
        ("a_failing_transport", (), TransportsScreen, "curl"),
        ("nothing_ran", (), QueueScreen, "[1 pending 1]"),
    ],
)
async def test_an_alert_leads_to_what_shows_more(
    empty: Path, spoil: str, pressed: tuple[str, ...], kind: type, shows: str
) -> None:
    """Two keys after an alert is seen, one is where it can be understood."""
    place = disk_place(empty, clock=time.time)
    log = empty / "log" / "mail.log"
    log.touch()
    recover = ("true",)  # there is a command; nothing is asked of it here
    place = place._replace(logs=(*place.logs, str(log)), recover=recover)
    await asyncio.to_thread({one.__name__: one for one, _ in ALL}[spoil], empty)
    async with a_desk(place, clock=Going()) as desk:
        await desk.until(lambda: desk.screen._alerts)

        await desk.press("shift+tab", "enter")

        await desk.on(kind)
        await until(desk.pilot, lambda: shows in desk.text)


# Ages


@pytest.fixture
def kinds(tmp_path: Path) -> Path:
    """A queue with tasks of many ages and kinds, some of whose names mean something in a filter."""
    root = tmp_path / "many"
    names = ("feeds_sync", "mail_send", "a|b", 'say "no"', "!not")
    tasks = [
        a_task(number, created=NOW - 60.0 * (2**number % 2047), due=0.0, kind=names[number % 5])
        for number in range(40)
    ]
    dead = [a_task(100 + n, State.DEAD, error=f"550 no user u{n % 2}x") for n in range(3)]
    make_spool(root, [replace(task, error="") for task in tasks] + dead)
    return root


async def test_each_cell_is_the_filter_that_it_opens(kinds: Path) -> None:
    """Whatever cell is opened, the queue shows as many rows as the cell said, odd names or not."""
    async with a_desk(disk_place(kinds)) as desk:
        await desk.has_table()
        live = desk.console.lives[0]
        wrong = []
        for by, names in product(("kind", "error"), (6, 3)):
            ages = await live.inspector.ages(Query(State.PENDING), by, NOW)
            for row, column in product(age_view.spots(ages, names), range(len(BOUNDS) + 2)):
                spot = row._replace(column=column)
                words = age_view.filter_of(ages, spot, names)
                query = Query(State.PENDING, filters.parse(words))
                said = age_view.row_at(ages, spot, names)
                assert said is not None
                found = await live.inspector.count(query)
                if found != age_view.figure(said, column):
                    wrong.append((words, age_view.figure(said, column), found))

        assert wrong == []


async def test_enter_on_a_cell_opens_its_tasks(kinds: Path) -> None:
    """The cursor goes from cell to cell; Enter shows the queue with just these tasks."""
    async with a_desk(disk_place(kinds)) as desk:
        await desk.has_table()
        await desk.press("tab", "j", "l", "right", "right")
        count, words = desk.table.count, desk.table.filter
        assert count is not None
        assert count > 0
        assert words.endswith("age>=10m age<20m")
        assert f"10 to 20 minutes old: {present_count(count)}" in desk.text

        await desk.press("enter")

        await desk.on(QueueScreen)
        await until(desk.pilot, lambda: f" 1/{count}" in desk.text)
        assert f"filter: {words}" in desk.text
        await desk.press("escape", "escape")
        await desk.on(OverviewScreen)


def present_count(number: int) -> str:
    """So many tasks, as the screen says it."""
    return "1 task" if number == 1 else f"{number} tasks"


async def test_the_rows_are_turned(kinds: Path) -> None:
    """The table begins with what tells most; x makes rows of the next, of the dead as well."""
    async with a_desk(disk_place(kinds)) as desk:
        await desk.has_table()
        seen = []
        for _ in range(3):
            await desk.until(lambda: desk.table.count is not None)
            seen.append(next(x for x in desk.text.splitlines() if " age x " in x).split(" --")[0])
            await desk.press("x")
            await desk.until(lambda: " age x " in desk.text and seen[-1] not in desk.text)

        assert seen == [
            " many  age x kind, minutes (pending)",
            " many  age x kind, minutes (dlq)",
            " many  age x error, minutes (dlq)",
        ]


async def test_the_cursor_stays_on_its_name(kinds: Path) -> None:
    """Rows change places when their numbers do; the cursor goes along with the name."""
    async with a_desk(disk_place(kinds)) as desk:
        await desk.has_table()
        await desk.press("tab", "j", "j", "l")
        before = desk.table.spot
        assert before.name

        for number in range(60):
            put_file(kinds, a_task(200 + number, created=NOW - 60, due=0.0, kind="late"))

        await desk.until(lambda: "late" in desk.text)
        assert desk.table.spot == before


# Around it


async def test_tab_goes_round(spool: Path) -> None:
    """Tab leads from the queues to the ages, to the alerts and back; where nothing is, not."""
    async with a_desk(disk_place(spool)) as desk:
        await desk.has_table()
        await desk.until(lambda: desk.screen._alerts)
        panes = []
        for _ in range(4):
            panes.append(desk.screen._pane)
            await desk.press("tab")

        assert panes == [QUEUES, AGES, ALERTS, QUEUES]


async def test_tokens_are_told(empty: Path) -> None:
    """What may be sent at once is a line, and less after something was."""
    clock = Clock(NOW)
    buckets = Buckets(str(empty / "run" / "b"), {"mail_send": Rate.of(60)}, clock)
    await asyncio.to_thread(buckets.spend, "mail_send")
    place = disk_place(empty)._replace(tokens=buckets.left)
    async with a_desk(place, clock=clock) as desk:
        await desk.until(lambda: "tokens  mail_send 0 of 5, next 09:43:08Z" in desk.text)

        clock.now += 120

        await desk.until(lambda: "tokens  mail_send 2 of 5, next 09:45:08Z" in desk.text)


def test_while_nothing_is_spent_no_token_is_waited_for() -> None:
    """What the bucket holds stands beside that the queue is paused."""
    line = view.tokens_line((Left(WHOLE, 3, 5, NOW, 60, paused=True),), 80)

    assert "".join(text for text, _ in line).strip() == "tokens  all kinds 3 of 5, paused"


async def test_the_last_warnings_are_told(spool: Path) -> None:
    """Of the logs only what warns, the latest last, and what is foreign in it does nothing."""
    async with a_desk(disk_place(spool)) as desk:
        await desk.until(lambda: "moving to DLQ" in desk.text)
        assert "[INFO]" not in desk.text
        assert "Task completed" not in desk.text

        with (spool / "log" / "queue.log").open("a") as log:
            log.write(f"[2026-11-20 09:42:00] [ERROR] {RED} is what it said\n")

        await desk.until(lambda: "is what it said" in desk.text)
        assert "\x1b" not in desk.text


async def test_hostile_names_are_inert(tmp_path: Path) -> None:
    """Names of places, kinds and errors that hold control characters act on no terminal."""
    root = tmp_path / f"a{RED}"
    make_spool(root, [a_task(n, kind=f"k{n}", error=f"{RED}\u202e") for n in range(2)])
    async with a_desk(disk_place(root)) as desk:
        await desk.has_table()
        await desk.until(lambda: "[31mred" in desk.text)

        assert {"\x1b", "\u202e"} & set(desk.text) == set()


@pytest.mark.parametrize("size", [(200, 60), (120, 40), (60, 15), (20, 5), (1, 1)])
async def test_every_size(spool: Path, empty: Path, size: tuple[int, int]) -> None:
    """Whatever the size, the queues are there if there is room for them, and nothing overflows."""
    async with a_desk(disk_place(spool), disk_place(empty), size=size) as desk:
        await desk.press("tab", "x", "l", "j", "shift+tab")
        desk.screen.query_one("#queues", Picker).move("first")
        await desk.until(lambda: size[0] < 20 or "out" in desk.text)
        lines = desk.text.splitlines()
        assert len(lines) <= size[1]
        if size >= (120, 40):
            titles = ("LOCKS", "errors of the dead", "TRANSPORT", "work: 1 task")
            await desk.until(lambda: all(title in desk.text for title in titles))
            await desk.until(lambda: "421 4.7.0" in desk.text)
        for other in ((30, 8), (160, 50), size):
            await desk.pilot.resize_terminal(*other)
        await desk.pilot.pause()
        desk.screen.paint()


async def test_a_digit_leads_to_the_place_under_the_cursor(spool: Path, empty: Path) -> None:
    """The cursor says of which place the next screen is."""
    async with a_desk(disk_place(spool), disk_place(empty)) as desk:
        await desk.press("j", "4")
        await desk.on(QueueScreen)

        await until(desk.pilot, lambda: "[4 dlq 0]" in desk.text)
        assert "/idle" in desk.text


# Values


@given(st.integers(1, 250), st.integers(1, 80), st.integers(0, 40), st.booleans())
def test_the_parts_fill_the_screen(width: int, height: int, queues: int, limited: bool) -> None:
    """No part has a negative height, and together with the first line they never overflow."""
    parts = view.frame(width, height, queues, limited)

    lines = [part for name, part in parts._asdict().items() if name != "wide"]
    assert min(lines) >= 0
    assert 1 + sum(lines) <= max(height, 1)
    assert height < 2 or 1 + sum(lines) == height or parts.ages == 0


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("queues", range(1, 12))
def test_the_reference_screen_names_what_ages(queues: int, limited: bool) -> None:
    """At 80x24 the age table names the two greatest, however many queues there are."""
    parts = view.frame(80, 24, queues, limited)

    names = parts.ages - 4  # heading, titles, the total, how to read
    assert names >= 3
    assert parts.log >= 2  # its heading and the last warning


@pytest.mark.parametrize("names", range(6))
def test_the_greatest_is_named_before_the_others_are_counted(names: int) -> None:
    """With room for one line below the total it is the greatest one's, not that of all together."""
    rows = tuple(
        AgeRow(name, (count,) + (0,) * 9)
        for name, count in {"a": 9, "b": 4, "c": 2, "d": 1}.items()
    )
    table = Ages("kind", rows, AgeRow("TOTAL", (16,) + (0,) * 9), 0)

    spots = age_view.spots(table, names)

    shown = [age_view.title(table, spot, names) for spot in spots]
    assert (
        shown
        == [
            ["TOTAL"],
            ["TOTAL", "a"],
            ["TOTAL", "a", "(other 3)"],
            ["TOTAL", "a", "b", "(other 2)"],
            ["TOTAL", "a", "b", "c", "d"],
            ["TOTAL", "a", "b", "c", "d"],
        ][names]
    )


@given(st.integers(0, 10**9), st.integers(3, 8))
def test_a_number_is_never_cut(number: int, width: int) -> None:
    """A number is whole, or says in what it counts, or that there are more."""
    text = view.amount(number, width)

    assert len(text) <= width
    plain = text.replace(",", "")
    scale = {"k": 1000, "M": 1_000_000}.get(plain[-1], 1)
    if plain[0] != ">":
        assert int(plain.rstrip("kM")) == number // scale


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((None, None), "  "),
        ((0, 0, 0), "▁▁▁"),
        ((None, 0, 1, 1000), " ▁▂█"),
        ((5, 5), "██"),
    ],
)
def test_a_sparkline(values: tuple[float | None, ...], expected: str) -> None:
    """Nothing is the lowest sign, anything above it, the most the highest; unseen is blank."""
    assert view.spark(values) == expected


def test_a_store_s_own_words_and_columns() -> None:
    """A column has the store's word where it fits; what a store has not is blank, never zero."""
    mail = Queue(1, "a", {State.PENDING: "queued", State.DEAD: "bounced"}, {State.PENDING: 3})
    other = mail._replace(words={State.PENDING: "queued", State.ACTIVE: "work"})

    head, (first, second) = view.table([mail, other], NOW, 120)

    titles = words_of(head)
    assert titles[:3] == ["QUEUE", "QUEUED", "WORK"]
    assert "DLQ" in titles  # the store's word does not fit
    assert "HELD" not in titles
    assert words_of(first)[:4] == ["a", "3+", "?", "0+"]
    assert words_of(second)[:4] == ["a", "3+", "0+", "?"]


def words_of(line: Line) -> list[str]:
    """The words of a line."""
    return "".join(text for text, _ in line).split()


def test_places_of_one_name_are_told_apart() -> None:
    """Places are called by the last part of their paths, unless two share it."""
    assert view.names(["/a/queue", "/b/queue", "/c/mail/"]) == ["/a/queue", "/b/queue", "mail"]


def test_the_most_urgent_alert_first_and_how_many_more() -> None:
    """What stops everything stands first, of whatever place; one line says how many there are."""
    dead = Alert(Level.WARN, What.DEAD, "11 tasks", None, Goal("/srv/a", Where.STATE, State.DEAD))
    stuck = Alert(Level.CRIT, What.STUCK, "stuck lock", NOW, Goal("/srv/b", Where.LOCK))
    problems = Alert(Level.WARN, What.PROBLEMS, "1 problem", None, Goal("/srv/b", Where.PROBLEMS))

    alerts = alert_view.ordered([problems, dead, stuck])
    first, *_ = alert_view.lines(alerts, {"/srv/a": "a", "/srv/b": "b"}, 60, 2)

    assert alerts == (stuck, dead, problems)
    assert words_of(first) == ["!", "CRIT", "b:", "stuck", "lock", "+1", "more"]


async def test_a_table_older_than_its_row_shows_its_age(spool: Path) -> None:
    """If tasks were counted by age long before the row above, the heading says how old that is."""
    async with a_desk(disk_place(spool)) as desk:
        await desk.has_table()
        live = desk.console.lives[0]
        desk.screen._asked[1] = (-1, math.inf, math.inf)  # no table is counted from now on
        put_file(spool, a_task(1400, due=0.0))
        await desk.until(lambda: desk.cells("mail.out")[:1] == ["41"])
        assert "s old" not in desk.text

        desk.clock.now += 30

        await desk.until(lambda: "30s old" in desk.text)
        assert live.inspector.latest.counts[State.PENDING] == 41
