"""Operations on screen: who did what, with which outcome; undo it, go on with it, drop it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.model import State, Task
from engine.monitor.alerts import AlertKind
from engine.operations import controls, plans
from engine.operations.journal import Entry, Intent, Journal, Operation
from engine.operations.plans import RowResult
from engine.operations.undo import UndoPlan
from engine.places.place import Place
from engine.verbs import with_state
from tests.console_operator import ConsoleOperator, an_operator, key_of, words
from tests.console_places import NOW, Clock, make_spool, some_tasks
from tests.journaled_places import (
    ANA,
    BEN,
    a_journaled_place,
    carried_out,
    forget_outcomes,
    interrupt,
    kept,
    seen,
)
from tests.mail_transports import PlaceTransports
from tests.tables import each
from tui.app import show_result
from tui.confirm.action_screen import ActionScreen
from tui.operations import operation_lines as view
from tui.operations import screen as record_screen
from tui.operations.screen import (
    ROWS,
    OperationRows,
    OperationsScreen,
    PlacedOperation,
    RecordScreen,
    row_key,
)
from tui.overview.screen import OverviewScreen
from tui.plan.screen import PlanScreen
from tui.screens.help import SCREEN_TITLES, HelpScreen
from tui.screens.key_rows import hints_of
from tui.terminal.bandwidth import ANSWER_SECONDS, BandwidthBudget
from tui.text import keys

off = asyncio.to_thread


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A spool with twelve dead tasks, and a journal."""
    make_spool(tmp_path, some_tasks(pending=4))
    return a_journaled_place(tmp_path, name="/srv/spool")


@pytest.fixture
def dead(place: Place) -> list[Task]:
    """Its dead tasks."""
    return seen(place, State.DEAD)


def leave(place: Place, folder: str, task: Task) -> None:
    """Let a task leave the spool, as a worker that ran it does."""
    Path(place.root, "queue", folder, f"{task.id}.task").unlink()


@contextmanager
def running_elsewhere(place: Place) -> Iterator[None]:
    """An operation of ben's on two tasks, which another process carries out."""
    hold = plans.freeze_plan("hold", seen(place, State.PENDING)[:2], NOW)
    with closing(kept(place).begin(Intent("hold", BEN), hold)):
        yield


@asynccontextmanager
async def operations(place: Place, *texts: str, **fields: Any) -> AsyncIterator[ConsoleOperator]:
    """The console on a place, with its operations on screen, once these texts are."""
    async with an_operator(place, clock=None, **fields) as operator:
        await operator.opens(OperationsScreen, "u")
        await operator.until(lambda: operator.console.navigator.session.history.is_read)
        await operator.sees(*texts)
        yield operator


def hinted_keys(operator: ConsoleOperator) -> set[str]:
    """The keys that the hints name for the operation under the cursor, but those that are grey."""
    screen = operator.console.screen
    assert isinstance(screen, OperationsScreen)
    return {hint.shown for hint in hints_of(ROWS, screen.parts) if not hint.is_refused}


# ---- the list


async def test_all_operations_are_listed(place: Place, dead: list[Task]) -> None:
    """A line each: who, what, how far, and for how long it can be undone, or who runs it."""
    filtered = Intent("purge", BEN, filter="kind=geoban_apply")
    await off(carried_out, place, "purge", dead[:2], at=NOW - 7200, intent=filtered)
    await off(carried_out, place, "expunge", dead[2:3], at=NOW - 3600)
    await off(interrupt, place, 4, 1, at=NOW - 1800)
    running = running_elsewhere(place)
    await off(running.__enter__)
    try:
        async with operations(place) as operator:
            await operator.sees(
                "ben purge kind=geoban_apply 2 DONE u undo, 22h00m",
                "ana expunge 1 DONE no: permanent",
                "! 09:12:08 ana replay 1/4 INTERRUPTED R, D abandon",
                "ben hold 0/2 RUNNING Enter shows it",
            )
            first, second, *_ = operator.rows.splitlines()
            assert "INTERRUPTED" in first and "RUNNING" in second
            elsewhere = "another process is running it: undo is possible afterwards"
            await operator.step(f"g j {key_of('plan_undo')}", elsewhere)
            await operator.step("g j R", "nothing to resume: not interrupted")
            await operator.step("g j D", "nothing to abandon: not interrupted")
            await operator.until(lambda: not hinted_keys(operator) & {"u", "R", "D"})
            await operator.press("g")
            await operator.until(lambda: hinted_keys(operator) >= {"u", "R", "D"})
            await operator.press("G")
            await operator.until(lambda: hinted_keys(operator) & {"u", "R", "D"} == {"u"})
    finally:
        running.__exit__(None, None, None)


async def test_the_operations_of_all_places_are_listed(tmp_path: Path) -> None:
    """By time, with place and address; `z` goes back to last week, and what was interrupted then
    can be resumed. What a key does is done in the place of its row. Each screen names who else
    runs an operation now."""

    def make_places() -> list[Place]:
        ben = Intent("purge", BEN._replace(ssh="192.0.2.9 50122 192.0.2.1 22"))
        for name in ("east", "west"):
            make_spool(tmp_path / name, some_tasks(pending=4))
        places = [a_journaled_place(tmp_path / n, name=f"/srv/{n}") for n in ("east", "west")]
        done = ((1, "retry", 108_000), (0, "purge", 7200), (1, "purge", 3600), (0, "purge", 1800))
        for number, verb, ago in done:
            dead = seen(places[number], State.DEAD)[:2]
            by = ben._replace(verb=verb)
            carried_out(places[number], verb, dead, at=NOW - ago, intent=by)
        interrupt(places[0], 4, 1, at=NOW - 108_000)
        return places

    places = await off(make_places)
    hold = running_elsewhere(places[1])
    await off(hold.__enter__)
    try:
        async with an_operator(*places, clock=None, size=(120, 30)) as operator:
            await operator.opens(OperationsScreen, "8")
            rows = [
                "09:42:08 west ben hold - 0/2 RUNNING Enter shows it",
                "09:12:08 east ben 192.0.2.9 purge 2 DONE u undo, 23h30m",
                "08:42:08 west ben 192.0.2.9 purge 2 DONE u undo, 23h00m",
                "07:42:08 east ben 192.0.2.9 purge 2 DONE u undo, 22h00m",
            ]
            await operator.sees(*(row.replace(" - ", " ") for row in rows))
            assert [row.split()[1] for row in operator.rows.splitlines()] == [
                row.split()[1] for row in rows
            ]
            await operator.step("z", "last 7 days", "Thu 03:42 west ben 192.0.2.9 retry 2 DONE")
            await operator.sees(
                "! Thu 03:42 east ana 192.0.2.7 replay 1/4 INTERRUPTED R resume, D abandon"
            )
            await operator.step("g R", PlanScreen, "east")
            await operator.opens(OperationsScreen, "escape")
            await operator.step("g j j j u", PlanScreen, "west")
            await operator.sees("ben: hold 0/2")
            await operator.opens(OperationsScreen, "escape")
    finally:
        hold.__exit__(None, None, None)


async def test_the_cursor_stays_on_its_operation(place: Place, dead: list[Task]) -> None:
    """Rows of other processes come above the one that the key undoes."""
    async with operations(place, "no operations in the last 24 h") as operator:
        first = await off(carried_out, place, "purge", dead[:3])
        await operator.sees("purge 3 DONE u undo, 1d00h")
        await operator.until(lambda: operator.picker.key == row_key(1, first))
        await off(carried_out, place, "purge", dead[3:4], at=NOW + 1)
        await off(interrupt, place, 3, 1)
        await operator.until(lambda: len(operator.picker.rows) == 3)
        assert operator.picker.rows[0].key != row_key(1, first)
        await operator.step("u", "type 3 to undo 3")
        # In such a plan the key leaves it where it is, and says how to get to the list.
        await operator.step("u", PlanScreen, "not applied yet: Esc discards the plan", first[-4:])


async def test_enter_opens_one_in_full(place: Place, dead: list[Task]) -> None:
    """Who, from where, why, the counts, and each task with its outcome and where it is now; hostile
    text is inert."""
    leave(place, "dlq", dead[1])
    evil = "feed is back\x1b]0;x\x07"
    await off(carried_out, place, "retry", dead[:3], intent=Intent("retry", ANA, evil))
    async with operations(place, "retry", "feed is back") as operator:
        screen = await operator.opens(RecordScreen, "enter")
        await operator.until(lambda: "ids" in {copy.name for copy in screen.copies()})
        gone, here = (f" {task.id[-8:]}" for task in (dead[1], dead[0]))
        await operator.sees(f"{here} retried pending", "NOW REASON", "3 tasks: DLQ -> pending ")
        await operator.sees(f"{gone} skipped not in queue changed since the plan")
        copies = {copy.name: copy.text for copy in screen.copies()}
        assert operator.page.isprintable()
    texts = ["ana (sudo, as root) on mx1, PID 4243", "192.0.2.7", "feed is back"]
    texts += ["3 planned: 2 retried, 1 skipped"]
    assert not [text for text in texts if text not in copies["text"]]
    assert copies["text"].count("DLQ -> pending") == 1
    assert copies["ids"].split() == [task.id for task in dead[:3]]


async def test_slow_rows_are_read_once_for_each_operation(
    place: Place, dead: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that takes longer than the time between two looks at the journal comes to its end,
    also if it has taken the place of the one for the row before."""
    first = await off(carried_out, place, "purge", dead[:3], at=NOW - 60)
    await off(carried_out, place, "purge", dead[3:5])
    async with operations(place, "2 purged") as operator:
        session, begun, go_on = operator.console.navigator.session, list[str](), asyncio.Event()
        entries, refresh, looks = (
            session.inspector.history.entries,
            session.history.refresh,
            list[bool](),
        )

        async def slow(operation: Operation, most: int) -> tuple[Entry, ...]:
            begun.append(operation.op)
            await go_on.wait()
            return await entries(operation, most)

        async def counted(*, always: bool = False) -> tuple[Operation, ...]:
            looks.append(always)
            return await refresh(always=always)

        monkeypatch.setattr(session.inspector.history, "entries", slow)
        monkeypatch.setattr(session.history, "refresh", counted)
        await operator.press("j", "k", "j")
        looks.clear()
        await operator.until(lambda: len(looks) > 5)
        assert begun.count(first) <= 2
        go_on.set()
        await operator.sees("3 tasks: DLQ -> trash, now trash", "RESULT REASON")


async def test_an_unreadable_journal_is_reported(place: Place) -> None:
    """Where the journal is no folder it is said, and the rest of the console goes on."""
    folder = Path(kept(place).folder)
    await off(os.makedirs, folder.parent)
    await off(folder.write_text, "")
    async with operations(place, "journal not readable:"):
        pass


async def test_news_waits_while_an_answer_is_read(place: Place) -> None:
    """The answer to a key stays for a while; in read-only, R settles no operation."""
    hands, op = Clock(0.0), await off(interrupt, place, 4, 2)
    written = Path(kept(place).folder, f"{op}.jsonl").read_bytes
    before = await off(written)
    async with operations(place, "2/4 INTERRUPTED", read_only=True) as operator:
        operator.console.bandwidth = BandwidthBudget(lambda: 0, hands)
        await operator.step("R", OperationsScreen, "read only")
        news = operator.console.navigator.session.messages
        news.append("the replay is over")
        show_result(operator.console)
        assert news
        hands.now += ANSWER_SECONDS
        show_result(operator.console)
        await operator.sees("the replay is over")
    assert await off(written) == before


async def test_read_only_names_no_key_that_changes_an_operation(place: Place) -> None:
    """Neither the row of an interrupted operation nor the line of the next step does."""
    await off(interrupt, place, 4, 2)
    for read_only, step in ((False, "R resumes the other 2 tasks"), (True, "Enter shows every")):
        async with operations(place, f"next {step}", read_only=read_only) as operator:
            assert ("R, D abandon" in operator.text) is not read_only


async def test_news_comes_to_no_console_that_is_closing(place: Place) -> None:
    """A console whose last screen is closed already keeps its news, and ends without an error."""
    async with operations(place) as operator:
        news = operator.console.navigator.session.messages
    news.append("the replay is over")
    operator.console.bandwidth = BandwidthBudget(lambda: 0, hands := Clock(0.0))
    hands.now += ANSWER_SECONDS
    assert not operator.console.screen_stack
    show_result(operator.console)
    assert [*news] == ["the replay is over"]


# ---- undo


async def test_a_plan_that_takes_long_is_announced(
    place: Place, dead: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an undo plan is prepared it is said; on another screen no plan opens."""
    await off(carried_out, place, "purge", dead[:3])
    async with operations(place, "3 purged") as operator:
        history, go_on = operator.console.navigator.session.inspector.history, asyncio.Event()
        plan_undo, screen = history.plan_undo, operator.console.screen
        announced = (key_of("plan_undo"), "preparing the undo plan of 3 tasks ...")

        async def slow(operation: Operation, days: float) -> UndoPlan:
            await go_on.wait()
            return await plan_undo(operation, days)

        monkeypatch.setattr(history, "plan_undo", slow)
        await operator.step(*announced)
        go_on.set()
        await operator.opens(PlanScreen)
        await operator.opens(OperationsScreen, "escape")
        assert "preparing" not in operator.line("word")
        go_on.clear()
        await operator.step(*announced)
        await operator.opens(OverviewScreen, "1")
        go_on.set()
        await operator.until(lambda: not any(one.group == "plan" for one in screen.workers))
        assert isinstance(operator.console.screen, OverviewScreen)


async def test_a_task_that_cannot_come_back_has_its_reason(place: Place, dead: list[Task]) -> None:
    """A row whose task ran meanwhile is excluded from the plan, and cannot be taken in."""
    await off(carried_out, place, "retry", dead[:3])
    leave(place, "pending", dead[0])
    async with operations(place, "3 retried") as operator:
        gone = "gone since: it ran, or was removed"
        plan = ("type 2 to undo 2", f"excluded: {gone}")
        await operator.step(key_of("plan_undo"), PlanScreen, *plan)
        await operator.step("space", f"cannot be included: {gone}", "type 2 to undo 2")


async def test_why_none_is_undone(place: Place, dead: list[Task]) -> None:
    """An operation that is for good, or that changed nothing, is not undone, and says why."""
    leave(place, "dlq", dead[0])
    await off(carried_out, place, "hold", dead[:1], at=NOW - 60)
    await off(carried_out, place, "expunge", dead[1:2])
    async with operations(place, "expunge", "hold") as operator:
        undo = key_of("plan_undo")
        await operator.step(f"g {undo}", "no plan: expunge cannot be undone")
        await operator.step(f"j {undo}", "no task was changed")


@pytest.mark.parametrize("most", [None, 1])
async def test_an_unknown_verb_is_shown(place: Place, dead: list[Task], most: int | None) -> None:
    """An operation with a verb that is not known here is shown; its tasks are not changed."""
    newer = Intent("tele\x1b[31mport", BEN)
    await off(carried_out, place, "retry", dead[:3], intent=newer, most=most)

    def tasks() -> list[list[Task]]:
        return [seen(place, state) for state in (State.PENDING, State.DEAD)]

    after = await off(tasks)
    async with operations(place, "port", "no: unknown") as operator:
        await operator.step(key_of("plan_undo"), "no plan: tele", "is unknown to this version")
        operator.assert_inert()
        await operator.step("R", "no plan:" if most else "nothing to resume")
        await operator.press("D")
        if most:
            await operator.opens(ActionScreen)
            operator.assert_inert()
            await operator.step("?", HelpScreen, f"Keys of {SCREEN_TITLES[keys.ABANDON]} ")
            await operator.opens(OperationsScreen, "escape", "escape")
        await operator.step("enter", RecordScreen, "3 planned")
    assert await off(tasks) == after


# ---- interrupted operations


async def test_an_interrupted_operation_is_settled_and_shown(place: Place) -> None:
    """At the start each row gets its outcome, and the operator sees one message."""
    op = await off(interrupt, place, 8, 3)
    await off(forget_outcomes, place, op)
    async with an_operator(place, early=True, clock=None, first=keys.OVERVIEW) as operator:
        alert = "interrupted, 5 of 8 not moved; u there shows it"
        await operator.sees("replay of 09:42 by ana interrupted: 5 of 8 not", alert)
        overview = await operator.opens(OverviewScreen, "g")
        while (on := overview.parts.alert) is not None and on.kind is not AlertKind.INTERRUPTED:
            await operator.press("j")
        await operator.step("enter", OperationsScreen, "3/8 INTERRUPTED")
        await operator.opens(OverviewScreen, "escape")
    settled = await off(kept(place).operation, op)
    assert settled is not None
    assert (settled.counts[RowResult.DONE], settled.open_rows) == (3, 5)


def leave_half_moved(place: Place, id: str) -> None:
    """As a process leaves it that is killed before the new text of a task is in its file."""
    path = Path(place.root, "queue/dlq", f"{id}.task")
    path.rename(Path(place.root, "queue/.spooldeck", f"D.{id}.dlq.pending.00000000.1-0-1"))


def is_over(operator: ConsoleOperator, op: str) -> bool:
    """Return whether the journal has the end of an operation."""
    ones = {one.op: one for one in operator.console.navigator.session.history.operations}
    return op in ones and ones[op].ended is not None


@pytest.mark.parametrize(
    ("amount", "left", "steps"),
    [
        (
            8,
            4,
            (
                ("R", "the rest of replay of 09:42:08Z by ana", "type 4 to replay 4"),
                ("p 0 tab 0 tab space enter", "all others now"),  # no canary
                ("4",),
            ),
        ),
        (4, 0, (("R", "only 1 half-moved task left: D completes it"), ("D",), ("y",))),
    ],
    ids=["rest", "half moved only"],
)
async def test_an_interrupted_operation_is_gone_on_with(
    place: Place, amount: int, left: int, steps: tuple[tuple[str, ...], ...]
) -> None:
    """R plans exactly what a killed operation did not move, and says what becomes of the task that
    it left in between; its count moves the rest, and the operation is over. Where only that task is
    left, R says that D finishes it, and D does, and moves nothing else."""
    op = await off(interrupt, place, amount, 3)
    half, *rest = (task.id for task in (await off(seen, place, State.DEAD))[: left + 1])
    await off(leave_half_moved, place, half)
    before = await off(seen, place, State.PENDING)
    status = (f"3/{amount} INTERRUPTED", f"{left} not moved, 1 half moved")
    async with operations(place, *status) as operator:
        for number, (pressed, *texts) in enumerate(steps):
            await operator.step(pressed, *texts)
            if number == (0 if left else 1):
                await operator.sees("1 task", "half moved: completed or rolled back first")
        await operator.until(lambda: is_over(operator, op))
    moved = {task.id for task in await off(seen, place, State.PENDING)}
    assert moved - {task.id for task in before} == {*rest}
    assert half in {task.id for task in await off(seen, place, State.DEAD)}
    assert not await off(lambda: list(Path(place.root, "queue/.spooldeck").glob("D.*")))
    follows = [one.intent.follows for one in await off(kept(place).operations) if one.op != op]
    assert follows == [op] * bool(left)


async def test_an_interrupted_operation_is_finished_from_its_details(place: Place) -> None:
    """The details have the keys of the row: R resumes it, D abandons it, and its state follows."""
    op = await off(interrupt, place, 8, 3)
    async with operations(place, "3/8 INTERRUPTED") as operator:
        await operator.opens(RecordScreen, "enter")
        await operator.sees("next R resumes the other 5 tasks; D abandons", "R resume D abandon")
        await operator.step("!", "[OBSERVE]")
        await operator.step("!", "ARMED for 15 minutes")
        await operator.step("R", PlanScreen, "REPLAY 5 TASKS", "STILL?")
        await operator.opens(RecordScreen, "escape")
        await operator.step("D", ActionScreen, "5 tasks not moved: unchanged")
        await operator.opens(RecordScreen, "y")
        await operator.until(lambda: is_over(operator, op))
        await operator.until(lambda: "R resume" not in operator.page)
        await operator.sees("state abandoned: by ana", "closed: abandoned by ana")
        await operator.step("R", "nothing to resume: not interrupted")


Rows = OperationRows | str


async def test_details_follow_their_undo(
    place: Place, dead: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back from its undo, the details say who undid it, and offer no other undo; a slow read of
    before does not replace the rows."""
    look_again, go_on, looks = record_screen.look_again, asyncio.Event(), list[int]()

    async def slow(one: PlacedOperation, rows: Rows) -> Rows:
        looks.append(one.listed.undone)
        if not one.listed.undone:
            await go_on.wait()
            return "old rows"
        return await look_again(one, rows)

    monkeypatch.setattr(record_screen, "look_again", slow)
    await off(carried_out, place, "purge", dead[:2])
    async with operations(place, "2 DONE") as operator:
        await operator.opens(RecordScreen, "enter")
        await operator.sees("next u plans the undo")
        await operator.step("! !", "ARMED for 15 minutes")
        await operator.step("u", PlanScreen, "UNDO 2 TASKS")
        await operator.step("2", "result", "2 undone")
        await operator.opens(RecordScreen, "escape")
        await operator.sees("state undone: ", " by ana", "next Esc goes back to the operations")
        go_on.set()
        await operator.until(lambda: looks.count(2) >= 2)
        await operator.sees("2 tasks: DLQ -> trash, now DLQ", "RESULT REASON")
        assert "old rows" not in operator.page


async def test_a_plan_names_states_as_the_tabs_do(place: Place) -> None:
    """The present state of a task of a plan has the word of the queue's tabs."""
    (task, *_) = await off(seen, place, State.PENDING)

    def bury() -> None:
        with closing(place.open()) as store:
            store.swap(task, with_state(task, State.DEAD))

    async with an_operator(place, clock=None) as operator:
        await operator.opens(PlanScreen, "*", "X")
        await off(bury)
        await operator.sees("1 skipped, changed since: dlq now")


async def test_a_suspension_is_resumed_from_its_operation(place: Place, tmp_path: Path) -> None:
    """The last suspension of a transport has `S resume`; one that ended has not."""
    room = PlaceTransports(tmp_path, lambda: NOW)
    for at, name, value in (
        (NOW - 540, "curl", controls.SUSPENDED),
        (NOW - 480, "curl", controls.RESUMED),
        (NOW - 420, "postfix", controls.SUSPENDED),
    ):
        order = controls.Order(controls.TRANSPORT_CONTROL, name, value, "other")
        journal = Journal(kept(place).folder, place.root, lambda at=at: at)
        switch = partial(controls.run_journaled_action, journal, Intent("", ANA), order)
        await off(switch, lambda _: "done", lambda at=at: at)
    await off(room.suspend, "postfix", "")
    place = place._replace(mail=room.place_mail())
    async with operations(place) as operator:
        await operator.sees(
            "09:35:08 ana suspend postfix - DONE S resume",
            "09:34:08 ana resume curl - DONE u undo",
            "09:33:08 ana suspend curl - DONE no: use control",
        )
        await operator.step("S", ActionScreen, "resume postfix")
        await operator.step("escape j S", "nothing to resume: it suspends no transport now")
    wall = {"first": keys.OVERVIEW, "size": (200, 60), "clock": lambda: NOW}
    async with an_operator(place, **wall) as operator:  # type: ignore[arg-type]
        rows = ("suspend postfix on spool DONE 8 resume", "suspend curl on spool DONE 8 open")
        await operator.sees(*rows)


async def test_an_operation_without_tasks_has_a_record(place: Place) -> None:
    """Of the start of a worker there are no tasks to show, and its control is no new value."""
    order = controls.Order(controls.START_WORKER_CONTROL, value="until it is stopped")
    journal = Journal(kept(place).folder, place.root, lambda: NOW)
    start = partial(controls.run_journaled_action, journal, Intent("", ANA), order)
    await off(start, lambda _: "PID 12", lambda: NOW)
    async with operations(place) as operator:
        await operator.sees("next Enter shows its record", "new value until it is stopped")
        await operator.step("enter", RecordScreen, "new value until it is stopped")


async def test_a_key_asks_no_operation_that_is_listed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a long list, what the hints need is found once, when its rows are made."""
    tasks = await off(seen, place, State.PENDING)
    for second in range(40):
        await off(carried_out, place, "hold", tasks[:1], at=NOW - second)
    async with operations(place, "of 40 ") as operator:
        asked = list[view.ListedOperation]()

        def count(one: view.ListedOperation) -> str:
            asked.append(one)
            return ""

        monkeypatch.setattr(view.ListedOperation, "suspended", property(count))
        await operator.press(*"jjjj")
        assert len(asked) < 40


PURGE = Intent("purge", ANA)
PURGED = Operation("1", NOW, PURGE, planned=40, counts={}, ended=NOW, is_running=False)


def line_of(operation: Operation, width: int) -> str:
    """Its line in the table."""
    _, (line,) = view.operation_table(
        view.list_operations([operation]), NOW, width, read_only=False
    )
    return words([line])


@each("width", [74, 80, 118])
def test_the_numbers_of_a_large_operation_are_whole(width: int) -> None:
    """The tasks done and planned are not cut, however many."""
    large = PURGED._replace(planned=400_123, counts={RowResult.DONE: 38_994})
    assert " 38,994/400,123 " in line_of(large, width)


@each(("filter", "when"), [("age>30d", "09:42:08"), ("err~550 kind=report tries>=5", "09:42")])
def test_the_text_of_an_operation_gets_the_width_of_the_others(filter: str, when: str) -> None:
    """Where WHAT would be cut, the columns move together, and then WHEN has no seconds."""
    intent, counts = Intent("purge", ANA, filter=filter), {RowResult.DONE: 40}
    line = line_of(PURGED._replace(intent=intent, counts=counts, has_images=True), 74)
    assert f"purge {filter} " in line and line.split()[0] == when


REPLAY = Intent("retry", ANA, pace={"rate": 2.0})
RAN = {"what": "became", "delivered": ["1"]}
STOPPED = {"what": "stopped", "why": "F-6C57 10%"}


def texts_of(*operations: Operation) -> list[str]:
    """Their lines in a wide table."""
    _, lines = view.operation_table(view.list_operations(operations), NOW, 118, read_only=False)
    return [" ".join(words([line]).split()) for line in lines]


def test_a_running_replay_counts_what_is_sent() -> None:
    """Its number in the list is of sent tasks, and says so: its own screen counts finished ones."""
    running = PURGED._replace(
        intent=REPLAY, planned=15, counts={RowResult.DONE: 11}, ended=None, is_running=True
    )
    assert texts_of(running)[0].endswith("replay 11/15 sent RUNNING Enter shows it")


def test_a_stopped_replay_names_the_tasks_that_it_did_not_send() -> None:
    """Where all that was sent has run, the next step is about the rest, not about an undo."""
    counts = {RowResult.DONE: 1, RowResult.UNAPPLIED: 28}
    stopped = PURGED._replace(
        intent=REPLAY, planned=29, counts=counts, has_images=True, notes=(RAN, STOPPED)
    )
    assert texts_of(stopped)[0].endswith("1/29 STOPPED 28 not sent")
    (one,) = view.list_operations([stopped])
    assert view.operation_state(one).more == "28 not sent: F-6C57 10%"


def test_a_direct_operation_that_was_stopped_is_not_done() -> None:
    """The tasks behind the stop of an operation without a pace are counted in its state."""
    counts = {RowResult.DONE: 1, RowResult.UNAPPLIED: 39}
    (one,) = view.list_operations([PURGED._replace(counts=counts, has_images=True)])
    assert view.operation_state(one) == ("stopped", "warn", "39 not applied")
    assert view.next_words(one, NOW, is_wide=True)[0] == "u undo, 1d00h"


def test_a_continued_operation_names_the_other_and_promises_no_undo() -> None:
    """Tasks that an interrupted replay had sent may have run: only its plan knows which."""
    counts = {RowResult.DONE: 1, RowResult.UNAPPLIED: 15}
    first = PURGED._replace(intent=REPLAY, planned=16, counts=counts, has_images=True)
    rest = first._replace(
        op="2",
        started=NOW + 60,
        planned=15,
        counts={RowResult.DONE: 15},
        intent=REPLAY._replace(follows="1", who=BEN),
        notes=({"what": "became", "delivered": [*map(str, range(15))]},),
    )
    old, new = texts_of(first, rest)
    assert old.endswith("replay 1/16 CONTINUED u undo, may have run")
    assert new.endswith("replay 15 DONE no undo: all ran")
    one, _ = view.list_operations([first, rest])
    text = " ".join(words(view.detail_lines(one, NOW, 100)).split())
    assert "state continued: 09:43:08Z by ben" in text
    assert "undo 1d00h left for tasks that did not run: u plans it" in text


def test_an_abandoned_operation_is_not_sent_again() -> None:
    """Its next step is about the undo of what was done, not about the rest."""
    counts = {RowResult.DONE: 1, RowResult.UNAPPLIED: 5}
    closed = {"what": "closed", "why": "abandoned by ana"}
    abandoned = PURGED._replace(intent=REPLAY, planned=6, counts=counts, notes=(RAN, closed))
    abandoned = abandoned._replace(has_images=True)
    assert texts_of(abandoned)[0].endswith("replay 1/6 ABANDONED no undo: all ran")
    (one,) = view.list_operations([abandoned])
    assert view.operation_state(one) == ("abandoned", "muted", "by ana")


def test_an_undone_operation_names_who_undid_it() -> None:
    """The state has time and name of the undo."""
    counts = {RowResult.DONE: 40}
    undo = PURGED._replace(
        op="2", started=NOW + 5, counts=counts, intent=Intent("undo", BEN, undoes="1")
    )
    one, _ = view.list_operations([PURGED._replace(counts=counts, has_images=True), undo])
    assert view.operation_state(one) == ("undone", "muted", "09:42:13Z by ben")
