"""Operations on screen: who did what, what became of it; undo it, go on with it, drop it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from engine import plans
from engine.alerts import What
from engine.journal import Intent
from engine.model import State, Task
from engine.operations import End
from engine.verbs import moved
from tests.tui.desks import Desk, a_desk
from tests.tui.journals import (
    ANA,
    BEN,
    a_journaled_place,
    carried_out,
    interrupt,
    kept,
    seen,
)
from tests.tui.spools import NOW, Clock, make_spool, some_tasks
from tui import keys
from tui.place import Place
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
async def operations(place: Place, **fields: Any) -> AsyncIterator[Desk]:
    """The console on a place, with its operations on screen."""
    async with a_desk(place, clock=None, **fields) as desk:
        await desk.opens(OperationsScreen, "u")
        await desk.until(lambda: desk.console.here.history.read)
        yield desk


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
        async with operations(place) as desk:
            await desk.sees(
                "ben purge kind=geob~ 2 done 22h00m",
                "ana expunge 1 done no: for good",
                "ana replay 1/4 interrupted 23h30m",
                "ben hold 0/2 running no: none done",
            )
    finally:
        runs.close()


async def test_one_that_begins_elsewhere_comes_into_the_list(place: Place) -> None:
    """What another process does while the list is shown is in it a moment later."""
    async with operations(place) as desk:
        await desk.sees("nothing was done here within a day")
        await off(carried_out, place, "retry", (await off(seen, place, State.DEAD))[:3])

        await desk.sees("retry 3 done 1d00h")


async def test_enter_opens_one_in_full(place: Place) -> None:
    """Who and from where, why, the counts, and each row with what became of it; hostile text of the
    journal is inert.
    """
    dead = await off(seen, place, State.DEAD)
    (Path(place.root) / "queue/dlq" / f"{dead[1].id}.task").unlink()
    evil = "feed is back\x1b]0;x\x07"
    await off(carried_out, place, "retry", dead[:3], intent=Intent("retry", ANA, evil))
    async with operations(place) as desk:
        await desk.sees("retry", "feed is back")
        screen = await desk.opens(RecordScreen, "enter")
        await desk.until(lambda: "ids" in {copy.name for copy in screen.copies()})
        told = {copy.name: copy.text for copy in screen.copies()}
        assert desk.page.isprintable()

    for words in ("ana (sudo, as root) on mx1, PID 4243", "192.0.2.7", "feed is back"):
        assert words in told["text"]
    assert told["ids"].split() == [task.id for task in dead[:3]]
    assert "3 planned: 2 done, 1 gone, 0 failed, 0 left out, 0 open" in told["text"]
    assert told["text"].count("dlq -> pending") == 3
    assert "gone      dlq -> pending     not as it was seen" in told["text"]


async def test_a_journal_that_cannot_be_read_is_said(place: Place) -> None:
    """Where the journal is no folder it is said, and the rest of the console goes on."""
    folder = Path(kept(place).folder)
    await off(os.makedirs, folder.parent)
    await off(folder.write_text, "")
    async with operations(place) as desk:
        await desk.sees("the journal cannot be read:")


# Taking back


async def test_it_is_taken_back_by_its_count(place: Place) -> None:
    """T shows the plan, the count applies it, the files are as they were, and the list says so."""
    before = await off(folder, place)
    await off(carried_out, place, "purge", (await off(seen, place, State.DEAD))[:3])
    assert await off(folder, place) != before
    async with operations(place) as desk:
        await desk.sees("3 done")
        await desk.opens(PlanScreen, "T")
        await desk.sees("3 of trash -> dlq", "type 3 to take back 3")
        await desk.press("3")
        await desk.sees("3 taken back", "3 planned, 3 in the result: all accounted for")
        await desk.press("escape")

        await desk.sees("3 undone", "undo of")
    assert await off(folder, place) == before


async def test_what_cannot_come_back_is_listed_with_its_reason(place: Place) -> None:
    """A row whose task ran meanwhile is left out of the plan, and cannot be taken in."""
    dead = (await off(seen, place, State.DEAD))[:3]
    await off(carried_out, place, "retry", dead)
    (Path(place.root) / "queue/pending" / f"{dead[0].id}.task").unlink()
    async with operations(place) as desk:
        await desk.sees("3 done")
        screen = await desk.opens(PlanScreen, "T")

        await desk.sees("type 2 to take back 2", "left since: it ran, or somebody removed it")
        await desk.press("space")
        await desk.sees("it cannot be taken in: left since")
        assert screen.wanted == "2"


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
    async with operations(place) as desk:
        await desk.sees(verb)
        await desk.press("T")

        await desk.sees(said)


@pytest.mark.parametrize("most", [None, 1])
async def test_what_is_not_known_to_this_version_is_only_looked_at(
    place: Place, most: int | None
) -> None:
    """An operation with a verb that is not known here is shown; its tasks are left alone."""
    dead = (await off(seen, place, State.DEAD))[:3]
    newer = Intent("tele\x1b[31mport", BEN)
    await off(carried_out, place, "retry", dead, intent=newer, most=most)
    after = await off(folder, place)
    async with operations(place) as desk:
        await desk.sees("port", "no: unknown")
        await desk.press("T")
        await desk.sees("no plan: tele", "is not known to this version")
        assert "\x1b" not in desk.text
        await desk.press("R")
        await desk.sees("no plan:" if most else "nothing to go on with")
        await desk.press("D")
        if most:
            await desk.opens(DropScreen)
            assert "\x1b" not in desk.text
            await desk.opens(OperationsScreen, "escape")
        await desk.opens(RecordScreen, "enter")
        await desk.sees("3 planned")
    assert await off(folder, place) == after


async def test_one_that_runs_elsewhere_is_only_looked_at(place: Place) -> None:
    """An operation that another process carries out can be neither taken back nor gone on with."""
    hold = plans.freeze("hold", (await off(seen, place, State.PENDING))[:2], NOW)
    runs = await off(kept(place).begin, Intent("hold", BEN), hold)
    try:
        async with operations(place) as desk:
            await desk.sees("running")
            await desk.press("T")
            await desk.sees("somebody carries it out just now")
            await desk.press("R")
            await desk.sees("nothing to go on with: it was not interrupted")
            await desk.press("D")
            await desk.sees("nothing to drop: it was not interrupted")
    finally:
        runs.close()


async def test_read_only_only_looks(place: Place) -> None:
    """A console that may only read settles nothing of an interrupted operation, nor goes on."""
    op = await off(interrupt, place, 4, 2)
    written = Path(kept(place).folder, f"{op}.jsonl").read_bytes
    before = await off(written)
    async with operations(place, read_only=True) as desk:
        await desk.sees("2/4 interrupted")
        screen = desk.console.screen
        await desk.press("R")
        await desk.sees("read only")
        assert desk.console.screen is screen

    assert await off(written) == before


async def test_news_waits_while_an_answer_is_read(place: Place) -> None:
    """What comes by itself does not take the place of what a key was just answered with."""
    hands = Clock(0.0)
    async with operations(place, read_only=True) as desk:
        desk.console.wire = Wire(lambda: 0, hands)
        await desk.press("T")
        await desk.sees("read only")
        desk.console.here.news.append("the replay is over")
        desk.console._tell_news()
        assert desk.console.here.news
        hands.now += ANSWERED
        desk.console._tell_news()
        await desk.sees("the replay is over")


# What was interrupted


async def test_what_was_interrupted_is_settled_and_said(place: Place) -> None:
    """At the start it is found out what became of each row, and the operator is told once."""
    op = await off(interrupt, place, 8, 3)
    await off(_forget_outcomes, place, op)
    async with a_desk(place, early=True, clock=None, first=keys.OVERVIEW) as desk:
        words = "replay of 09:42 by ana interrupted: 5 of 8 not moved"
        await desk.sees(words, "was interrupted: 5 of 8 not moved; u shows it")
        overview = await desk.opens(OverviewScreen)
        await desk.press("shift+tab", "g")
        while (alert := overview._alert) is not None and alert.what is not What.INTERRUPTED:
            await desk.press("j")
        await desk.opens(OperationsScreen, "enter")
        await desk.sees("3/8 interrupted")
        await desk.opens(OverviewScreen, "escape")

    settled = await off(kept(place).operation, op)
    assert settled is not None
    assert (settled.counts[End.DONE], settled.open) == (3, 5)


def _forget_outcomes(place: Place, op: str) -> None:
    """As if it was killed between the moves and the line that says so."""
    path = Path(kept(place).folder, f"{op}.jsonl")
    lines = [line for line in path.read_text().splitlines(True) if '"line": "ends"' not in line]
    path.write_text("".join(lines))


async def test_it_is_gone_on_with(place: Place) -> None:
    """R plans exactly what a killed operation did not move, and says what becomes of the task that
    it left in between; its count moves the rest, and the interrupted operation is over.
    """
    op = await off(interrupt, place, 8, 3)
    half, *rest = (task.id for task in (await off(seen, place, State.DEAD))[:5])
    await off(_put_on_the_desk, place, half)
    async with operations(place) as desk:
        await desk.sees("3/8 interrupted", "4 not moved, 1 half moved")
        await desk.opens(PlanScreen, "R")
        await desk.sees("the rest of replay of 09:42:08Z by ana")
        await desk.sees("1 task is half moved: finished, or put back", "type 4 to retry 4")
        await desk.press("p", "0", "tab", "0", "tab", "space", "enter")  # no canary, all at once
        await desk.sees("all 4 at once")
        await desk.press("4")
        await desk.until(lambda: _is_over(desk, op))

    assert {*rest} <= {task.id for task in await off(seen, place, State.PENDING)}
    assert half in {task.id for task in await off(seen, place, State.DEAD)}
    assert not await off(lambda: list(Path(place.root, "queue/.spooldeck").glob("D.*")))
    follows = [one.intent.follows for one in await off(kept(place).operations) if one.op != op]
    assert follows == [op]


async def test_what_is_half_moved_is_finished_where_nothing_else_is_left(place: Place) -> None:
    """Where only that is left, R says which key finishes it, and D does, and moves nothing else."""
    op = await off(interrupt, place, 4, 3)
    (half, *_) = (task.id for task in await off(seen, place, State.DEAD))
    await off(_put_on_the_desk, place, half)
    async with operations(place) as desk:
        await desk.sees("3/4 interrupted", "0 not moved, 1 half moved")
        await desk.press("R")
        await desk.sees("only what is half moved is left, 1 task: D finishes that")
        await desk.press("D")
        await desk.sees("1 task that it left half moved: finished, or put back, first")
        await desk.press("y")
        await desk.until(lambda: _is_over(desk, op))

    assert half in {task.id for task in await off(seen, place, State.DEAD)}


def _put_on_the_desk(place: Place, ident: str) -> None:
    """As a process leaves it that is killed before the new text of a task is in its file."""
    path = Path(place.root, "queue/dlq", f"{ident}.task")
    path.rename(Path(place.root, "queue/.spooldeck", f"D.{ident}.dlq.pending.00000000.1-0-1"))


async def test_what_moved_since_is_said_in_its_stores_words(place: Place) -> None:
    """The present state of a task of a plan is called as the queue's tabs call it."""
    (task, *_) = await off(seen, place, State.PENDING)
    async with a_desk(place, clock=None) as desk:
        await desk.opens(PlanScreen, "*", "X")
        await off(_moved, place, task, State.DEAD)
        await desk.sees("1 dropped since: dlq now")


def _moved(place: Place, task: Task, state: State) -> None:
    with closing(place.open()) as store:
        store.swap(task, moved(task, state))


async def test_a_plan_to_take_back_is_not_lost_to_the_list_of_them(place: Place) -> None:
    """u in such a plan leaves it where it is, and says how to get to the list."""
    op = await off(carried_out, place, "purge", (await off(seen, place, State.DEAD))[:2])
    async with operations(place) as desk:
        await desk.sees("purge")
        await desk.opens(PlanScreen, "T")
        await desk.press("u")
        await desk.sees("this plan is not applied yet: Esc drops it", op[-4:])
        assert isinstance(desk.console.screen, PlanScreen)


def _is_over(desk: Desk, op: str) -> bool:
    ones = {one.op: one for one in desk.console.here.history.operations}
    return op in ones and ones[op].ended is not None
