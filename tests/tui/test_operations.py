"""What was done, on screen: whoever did it, what became of it, taken back, gone on with, let be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine import plans
from engine.alerts import What
from engine.journal import Intent
from engine.model import State, Task
from engine.operations import End
from engine.verbs import moved
from tests.tui.journals import (
    ANA,
    BEN,
    a_journaled_place,
    carried_out,
    interrupt,
    kept,
    seen,
    shows,
)
from tests.tui.spools import NOW, Clock, a_console, loaded, make_spool, some_tasks, until
from tui import keys
from tui.app import Console
from tui.place import Place
from tui.plain import text_of
from tui.screens.face import Copy
from tui.screens.operations import DropScreen, OperationsScreen
from tui.screens.overview import OverviewScreen
from tui.screens.plan import PlanScreen
from tui.screens.record import RecordScreen
from tui.wire import ANSWERED, Wire

off = asyncio.to_thread
"""Nothing of ours may block the loop, that of a test no more than a console's."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A spool with twelve dead tasks, and a journal."""
    make_spool(tmp_path, some_tasks(pending=4))
    return a_journaled_place(tmp_path, name="/srv/spool")


def folder(place: Place) -> dict[str, bytes]:
    """Every task file of a spool with its bytes."""
    paths = Path(place.root, "queue").rglob("*.task")
    return {str(path.relative_to(place.root)): path.read_bytes() for path in paths}


@asynccontextmanager
async def operations(
    place: Place, size: tuple[int, int] = (80, 24), **fields: object
) -> AsyncIterator[tuple[Console, Pilot[None]]]:
    """The console on a place, with its operations on screen."""
    console = a_console(place, clock=None, **fields)
    async with console.run_test(size=size) as pilot:
        await loaded(pilot)
        await pilot.press("u")
        await until(pilot, lambda: isinstance(console.screen, OperationsScreen))
        await until(pilot, lambda: console.here.history.read)
        yield console, pilot


async def put_on(pilot: Pilot[None], op: str) -> None:
    """Put the cursor on an operation, as an alert that leads there does."""
    screen = pilot.app.screen
    assert isinstance(screen, OperationsScreen)
    screen.aim(op)
    screen.paint()
    await until(pilot, lambda: screen.here is not None and screen.here.operation.op == op)


# The list


async def test_all_that_was_done_is_listed(place: Place) -> None:
    """A line for each: who did it, what, how far it came, and for how long it can be undone."""
    dead = await off(seen, place, State.DEAD)
    filtered = Intent("purge", BEN, filter="kind=geoban_apply")
    await off(carried_out, place, "purge", dead[:2], at=NOW - 7200, intent=filtered)
    await off(carried_out, place, "expunge", dead[2:3], at=NOW - 3600)
    await off(interrupt, place, 4, 1, at=NOW - 1800)
    hold = plans.freeze("hold", (await off(seen, place, State.PENDING))[:2], NOW)
    runs = await off(kept(place).begin, Intent("hold", BEN), hold)

    try:
        async with operations(place) as (_, pilot):
            await shows(
                pilot,
                "ben purge kind=geob~ 2 done 22h00m",
                "ana expunge 1 done no: for good",
                "ana replay 1/4 interrupted 23h30m",
                "ben hold 0/2 running no: none done",
            )
    finally:
        runs.close()


async def test_one_that_begins_elsewhere_comes_into_the_list(place: Place) -> None:
    """What another process does while the list is shown is in it a moment later."""
    async with operations(place) as (_, pilot):
        await shows(pilot, "nothing was done here within a day")
        await off(carried_out, place, "retry", (await off(seen, place, State.DEAD))[:3])

        await shows(pilot, "retry 3 done 1d00h")


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 15)])
async def test_enter_opens_one_in_full(place: Place, size: tuple[int, int]) -> None:
    """Who and from where, why, the counts, and each row with what became of it."""
    dead = await off(seen, place, State.DEAD)
    (Path(place.root) / "queue/dlq" / f"{dead[1].id}.task").unlink()
    await off(carried_out, place, "retry", dead[:3], intent=Intent("retry", ANA, "feed is back"))
    async with operations(place, size) as (console, pilot):
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(console.screen, RecordScreen))
        await shows(pilot, "feed is back")
        await until(pilot, lambda: "ids" in {copy.name for copy in _copies(console)})
        told = {copy.name: copy.text for copy in _copies(console)}

    assert "ana (sudo, as root) on mx1, PID 4243" in told["text"]
    assert "192.0.2.7" in told["text"]
    assert "feed is back" in told["text"]
    assert told["ids"].split() == [task.id for task in dead[:3]]
    assert "3 planned: 2 done, 1 gone, 0 failed, 0 left out, 0 open" in told["text"]
    assert told["text"].count("dlq -> pending") == 3
    assert "gone      dlq -> pending     not as it was seen" in told["text"]


def _copies(console: Console) -> tuple[Copy, ...]:
    assert isinstance(console.screen, RecordScreen)
    return console.screen.copies()


async def test_foreign_text_is_inert(place: Place) -> None:
    """What a journal says of names and reasons reaches the screen without control characters."""
    evil = Intent("retry", BEN._replace(user="b\x1b[31mn", ssh="\u202e1 2"), "why\x1b]0;x\x07")
    await off(carried_out, place, "retry", (await off(seen, place, State.DEAD))[:1], intent=evil)
    async with operations(place) as (console, pilot):
        await shows(pilot, "retry", "reason")
        text = text_of(console.screen)

    assert not [c for c in text if c in "\x1b\x07\u202e"]


async def test_a_journal_that_cannot_be_read_is_said(place: Place) -> None:
    """Where the journal is no folder it is said, and the rest of the console goes on."""
    await off(_in_the_way, Path(kept(place).folder))
    async with operations(place) as (_, pilot):
        await shows(pilot, "the journal cannot be read:")


def _in_the_way(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")


# Taking back


async def test_it_is_taken_back_by_its_count(place: Place) -> None:
    """T shows the plan, the count applies it, the files are as they were, and the list says so."""
    before = await off(folder, place)
    await off(carried_out, place, "purge", (await off(seen, place, State.DEAD))[:3])
    assert await off(folder, place) != before
    async with operations(place, start_armed=True) as (console, pilot):
        await shows(pilot, "3 done")
        await pilot.press("T")
        await until(pilot, lambda: isinstance(console.screen, PlanScreen))
        await shows(pilot, "3 of trash -> dlq", "type 3 to take back 3")
        await pilot.press("3")
        await shows(pilot, "3 taken back", "3 planned, 3 in the result: all accounted for")
        await pilot.press("escape")

        await shows(pilot, "3 undone", "undo of")
    assert await off(folder, place) == before


async def test_nothing_is_taken_back_in_observe(place: Place) -> None:
    """Without arming the plan is shown and its count does nothing."""
    await off(carried_out, place, "purge", (await off(seen, place, State.DEAD))[:3])
    after = await off(folder, place)
    async with operations(place) as (console, pilot):
        await shows(pilot, "3 done")
        await pilot.press("T")
        await until(pilot, lambda: isinstance(console.screen, PlanScreen))
        await pilot.press("3", "y")

        await shows(pilot, "OBSERVE: press ! first")
    assert await off(folder, place) == after


async def test_what_cannot_come_back_is_listed_with_its_reason(place: Place) -> None:
    """A row whose task ran meanwhile is left out of the plan, and cannot be taken in."""
    dead = (await off(seen, place, State.DEAD))[:3]
    await off(carried_out, place, "retry", dead)
    (Path(place.root) / "queue/pending" / f"{dead[0].id}.task").unlink()
    async with operations(place, start_armed=True) as (console, pilot):
        await shows(pilot, "3 done")
        await pilot.press("T")
        await until(pilot, lambda: isinstance(console.screen, PlanScreen))

        await shows(pilot, "type 2 to take back 2", "left since: it ran, or somebody removed it")
        await pilot.press("space")
        await shows(pilot, "it cannot be taken in: left since")
        await shows(pilot, "type 2 to take back 2")


@pytest.mark.parametrize(
    ("verb", "said"),
    [("expunge", "no plan: expunge cannot be taken back"), ("hold", "nothing was done")],
)
async def test_why_one_cannot_be_taken_back(place: Place, verb: str, said: str) -> None:
    """What is gone for good, and what changed nothing, is not offered, with the reason."""
    dead = await off(seen, place, State.DEAD)
    if verb == "hold":
        (Path(place.root) / "queue/dlq" / f"{dead[0].id}.task").unlink()
    await off(carried_out, place, verb, dead[:1])
    async with operations(place, start_armed=True) as (_, pilot):
        await shows(pilot, verb)
        await pilot.press("T")

        await shows(pilot, said)


@pytest.mark.parametrize("most", [None, 1])
async def test_what_is_not_known_to_this_version_is_only_looked_at(
    place: Place, most: int | None
) -> None:
    """An operation with a verb that is not known here is shown; its tasks are left alone."""
    dead = (await off(seen, place, State.DEAD))[:3]
    newer = Intent("tele\x1b[31mport", BEN)
    await off(carried_out, place, "retry", dead, intent=newer, most=most)
    after = await off(folder, place)
    async with operations(place, start_armed=True) as (console, pilot):
        await shows(pilot, "port", "no: unknown")
        await pilot.press("T")
        await shows(pilot, "no plan: tele", "is not known to this version")
        assert "\x1b" not in text_of(console.screen)
        await pilot.press("R")
        await shows(pilot, "no plan:" if most else "nothing to go on with")
        await pilot.press("D")
        if most:
            await until(pilot, lambda: isinstance(console.screen, DropScreen))
            assert "\x1b" not in text_of(console.screen)
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(console.screen, OperationsScreen))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(console.screen, RecordScreen))
        await shows(pilot, "3 planned")
    assert await off(folder, place) == after


async def test_one_that_runs_elsewhere_is_only_looked_at(place: Place) -> None:
    """An operation that another process carries out can be neither taken back nor gone on with."""
    hold = plans.freeze("hold", (await off(seen, place, State.PENDING))[:2], NOW)
    runs = await off(kept(place).begin, Intent("hold", BEN), hold)
    try:
        async with operations(place, start_armed=True) as (_, pilot):
            await shows(pilot, "running")
            await pilot.press("T")
            await shows(pilot, "somebody carries it out just now")
            await pilot.press("R")
            await shows(pilot, "nothing to go on with: it was not interrupted")
            await pilot.press("D")
            await shows(pilot, "nothing to drop: it was not interrupted")
    finally:
        runs.close()


async def test_read_only_only_looks(place: Place) -> None:
    """A console that may only read offers no plan here, and settles nothing."""
    op = await off(interrupt, place, 4, 2)
    written = Path(kept(place).folder, f"{op}.jsonl").read_bytes
    before = await off(written)
    async with operations(place, read_only=True) as (console, pilot):
        await shows(pilot, "2/4 interrupted")
        for key in ("T", "R", "D"):
            await pilot.press(key)
            await shows(pilot, "read only")
        assert isinstance(console.screen, OperationsScreen)
        offered = {hint.words for hint in keys.hints(keys.OPERATIONS, (), console.screen.without())}

    assert not offered & {"take back", "go on", "drop", "arm"}
    assert await off(written) == before


async def test_news_waits_while_an_answer_is_read(place: Place) -> None:
    """What comes by itself does not take the place of what a key was just answered with."""
    hands = Clock(0.0)
    async with operations(place, read_only=True) as (console, pilot):
        console.wire = Wire(lambda: 0, hands)
        await pilot.press("T")
        await shows(pilot, "read only")
        console.here.news.append("the replay is over")
        console._tell_news()
        assert console.here.news
        hands.now += ANSWERED
        console._tell_news()
        await shows(pilot, "the replay is over")


# What was interrupted


async def test_what_was_interrupted_is_settled_and_said(place: Place) -> None:
    """At the start it is found out what became of each row, and the operator is told once."""
    op = await off(interrupt, place, 8, 3)
    await off(_forget_outcomes, place, op)
    console = a_console(place, first=keys.OVERVIEW)
    async with console.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(console.screen, OverviewScreen))
        words = "replay of 09:42 by ana interrupted: 5 of 8 not moved"
        await shows(pilot, words, "was interrupted: 5 of 8 not moved; u shows it")
        overview = console.screen
        assert isinstance(overview, OverviewScreen)
        await pilot.press("shift+tab", "g")
        while (alert := overview._alert) is not None and alert.what is not What.INTERRUPTED:
            await pilot.press("j")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(console.screen, OperationsScreen))
        await shows(pilot, "3/8 interrupted")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(console.screen, OverviewScreen))

    settled = await off(kept(place).operation, op)
    assert settled is not None
    assert settled.counts[End.DONE] == 3
    assert settled.open == 5


def _forget_outcomes(place: Place, op: str) -> None:
    """As if it was killed between the moves and the line that says so."""
    path = Path(kept(place).folder, f"{op}.jsonl")
    lines = [line for line in path.read_text().splitlines(True) if '"line": "ends"' not in line]
    path.write_text("".join(lines))


async def test_it_is_gone_on_with(place: Place) -> None:
    """R plans exactly the rest, its count moves it, and the interrupted one is over."""
    op = await off(interrupt, place, 8, 3)
    rest = {task.id for task in (await off(seen, place, State.DEAD))[:5]}
    async with operations(place, start_armed=True) as (console, pilot):
        await shows(pilot, "3/8 interrupted")
        await pilot.press("R")
        await until(pilot, lambda: isinstance(console.screen, PlanScreen))
        await shows(pilot, "the rest of replay of 09:42:08Z by ana", "type 5 to retry 5")
        await pilot.press("p", "0", "tab", "0", "tab", "space", "enter")  # no canary, all at once
        await shows(pilot, "all 5 at once")
        await pilot.press("5")
        await shows(pilot, "replay 5 tasks", "all is sent; waits for 5 outcomes")
        await until(pilot, lambda: _is_over(console, op))

    assert rest <= {task.id for task in await off(seen, place, State.PENDING)}
    before = await off(kept(place).operation, op)
    assert before is not None and before.ended is not None
    assert before.counts[End.EXCLUDED] == 5
    follows = [one.intent.follows for one in await off(kept(place).operations) if one.op != op]
    assert follows == [op]


async def test_what_is_half_moved_stands_in_nobodys_way(place: Place) -> None:
    """Of a plan that was killed in the middle of a move, R plans what was not moved, says what
    becomes of the one in between, and applied all of it is in its place.
    """
    op = await off(interrupt, place, 8, 3)
    half, *rest = (task.id for task in (await off(seen, place, State.DEAD))[:5])
    await off(_put_on_the_desk, place, half)
    async with operations(place, start_armed=True) as (console, pilot):
        await shows(pilot, "3/8 interrupted", "4 not moved, 1 half moved")
        await pilot.press("R")
        await until(pilot, lambda: isinstance(console.screen, PlanScreen))
        await shows(pilot, "1 task is half moved: finished, or put back", "type 4 to retry 4")
        await pilot.press("p", "0", "tab", "0", "tab", "space", "enter")  # no canary, all at once
        await shows(pilot, "all 4 at once")
        await pilot.press("4")
        await until(pilot, lambda: _is_over(console, op))

    assert {*rest} <= {task.id for task in await off(seen, place, State.PENDING)}
    assert half in {task.id for task in await off(seen, place, State.DEAD)}
    assert not await off(lambda: list(Path(place.root, "queue/.spooldeck").glob("D.*")))


async def test_what_is_half_moved_is_finished_where_nothing_else_is_left(place: Place) -> None:
    """Where only that is left, R says which key finishes it, and D does; the word for it fits."""
    op = await off(interrupt, place, 4, 3)
    (half, *_) = (task.id for task in await off(seen, place, State.DEAD))
    await off(_put_on_the_desk, place, half)
    async with operations(place, start_armed=True) as (console, pilot):
        await shows(pilot, "3/4 interrupted", "0 not moved, 1 half moved")
        await pilot.press("R")
        await shows(pilot, "only what is half moved is left, 1 task: D finishes that")
        await pilot.press("D")
        await shows(pilot, "1 task that it left half moved: finished, or put back, first")
        await pilot.press("y")
        await until(pilot, lambda: _is_over(console, op))

    assert half in {task.id for task in await off(seen, place, State.DEAD)}


def _put_on_the_desk(place: Place, ident: str) -> None:
    """As a process leaves it that is killed before the new text of a task is in its file."""
    path = Path(place.root, "queue/dlq", f"{ident}.task")
    path.rename(Path(place.root, "queue/.spooldeck", f"D.{ident}.dlq.pending.00000000.1-0-1"))


async def test_what_moved_since_is_said_in_its_stores_words(place: Place) -> None:
    """Where a task of a plan stands by now is called as the queue's tabs call it."""
    (task, *_) = await off(seen, place, State.PENDING)
    console = a_console(place, clock=None, start_armed=True, first=keys.LIST)
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await pilot.press("*", "X")
        await until(pilot, lambda: isinstance(console.screen, PlanScreen))
        await off(_moved, place, task, State.DEAD)
        await shows(pilot, "1 dropped since: dlq now")


def _moved(place: Place, task: Task, state: State) -> None:
    store = place.open()
    try:
        store.swap(task, moved(task, state))
    finally:
        store.close()


async def test_a_plan_to_take_back_is_not_lost_to_the_list_of_them(place: Place) -> None:
    """u in such a plan leaves it where it is, and says how to get to the list."""
    op = await off(carried_out, place, "purge", (await off(seen, place, State.DEAD))[:2])
    async with operations(place, start_armed=True) as (console, pilot):
        await shows(pilot, "purge")
        await pilot.press("T")
        await until(pilot, lambda: isinstance(console.screen, PlanScreen))
        await pilot.press("u")
        await shows(pilot, "this plan is not applied yet: Esc drops it", op[-4:])
        assert isinstance(console.screen, PlanScreen)


def _is_over(console: Console, op: str) -> bool:
    ones = {one.op: one for one in console.here.history.operations}
    return op in ones and ones[op].ended is not None


async def test_it_is_let_be_over(place: Place) -> None:
    """D asks for y, moves nothing, and the operation is over: nobody is asked again."""
    op = await off(interrupt, place, 8, 3)
    before = await off(folder, place)
    async with operations(place, start_armed=True) as (console, pilot):
        await shows(pilot, "3/8 interrupted")
        await pilot.press("D")
        await until(pilot, lambda: isinstance(console.screen, DropScreen))
        await shows(pilot, "5 tasks that it did not move", "y to let it be over")
        await pilot.press("y")
        await until(pilot, lambda: isinstance(console.screen, OperationsScreen))
        await until(pilot, lambda: _is_over(console, op))
        await until(pilot, lambda: not console.here.sight().unfinished)

    assert await off(folder, place) == before
    over = await off(kept(place).operation, op)
    assert over is not None and (over.open, over.counts[End.EXCLUDED]) == (0, 5)
