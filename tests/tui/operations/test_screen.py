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
from engine.operations.journal import Intent, Journal, Operation
from engine.operations.plans import RowResult
from engine.operations.undo import UndoPlan
from engine.places.place import Place
from engine.verbs import with_state
from tests.console_operator import ConsoleOperator, an_operator, key_of, words
from tests.console_places import NOW, Clock, make_spool, some_tasks
from tests.journaled_places import ANA, BEN, a_journaled_place, carried_out, interrupt, kept, seen
from tests.mail_transports import PlaceTransports
from tui.app import show_result
from tui.confirm.action_screen import ActionScreen
from tui.operations import operation_lines as view
from tui.operations.screen import ROWS, OperationsScreen, RecordScreen
from tui.overview.screen import OverviewScreen
from tui.plan.screen import PlanScreen
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


def files(place: Place) -> dict[str, bytes]:
    """Every task file of a spool with its bytes."""
    paths = Path(place.root, "queue").rglob("*.task")
    return {str(path.relative_to(place.root)): path.read_bytes() for path in paths}


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


def grey_keys(operator: ConsoleOperator) -> set[str]:
    """The keys that are refused for the operation under the cursor."""
    screen = operator.console.screen
    assert isinstance(screen, OperationsScreen)
    return {hint.shown for hint in hints_of(ROWS, screen.parts) if hint.is_refused}


# ---- the list


async def test_all_operations_are_listed(place: Place, dead: list[Task]) -> None:
    """A line for each: who did it, what, how far it came, and for how long it can be undone. One
    that another process carries out can be neither undone nor gone on with: these keys are grey.
    """
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
            assert "INTERRUPTED" in operator.rows.splitlines()[0]
            assert "RUNNING" in operator.rows.splitlines()[1]
            for key, message in (
                (key_of("plan_undo"), "another process is running it: undo is possible afterwards"),
                ("R", "nothing to resume: not interrupted"),
                ("D", "nothing to abandon: not interrupted"),
            ):
                await operator.press("g", "j", key)
                await operator.sees(message)
            assert grey_keys(operator) == {"u", "R", "D"}
            await operator.press("g")
            await operator.until(lambda: not grey_keys(operator))
    finally:
        running.__exit__(None, None, None)


async def test_a_new_operation_of_another_process_is_listed(place: Place, dead: list[Task]) -> None:
    """An operation of another process while the list is shown is in it a moment later."""
    async with operations(place, "no operations in the last 24 h") as operator:
        await off(carried_out, place, "retry", dead[:3])
        await operator.sees("retry 3 DONE u undo, 1d00h")


async def test_the_cursor_stays_on_its_operation_when_others_come(
    place: Place, dead: list[Task]
) -> None:
    """A later operation and one that was interrupted come above the row with the cursor; the key
    that undoes acts on the row that was under it.
    """
    first = await asyncio.to_thread(carried_out, place, "purge", dead[:3])
    async with an_operator(place) as operator:
        await operator.opens(OperationsScreen, "u")
        await operator.until(lambda: operator.picker.key == first)
        await asyncio.to_thread(carried_out, place, "purge", dead[3:4], at=NOW + 1)
        await asyncio.to_thread(interrupt, place, 3, 1)
        await operator.until(lambda: len(operator.picker.rows) == 3)
        assert operator.picker.rows[0].key != first
        await operator.press("u")
        await operator.sees("type 3 to undo 3")


async def test_enter_opens_one_in_full(place: Place, dead: list[Task]) -> None:
    """Who and from where, why, the counts, and each row with its outcome; hostile text of the
    journal is inert.
    """
    leave(place, "dlq", dead[1])
    evil = "feed is back\x1b]0;x\x07"
    await off(carried_out, place, "retry", dead[:3], intent=Intent("retry", ANA, evil))
    async with operations(place, "retry", "feed is back") as operator:
        screen = await operator.opens(RecordScreen, "enter")
        await operator.until(lambda: "ids" in {copy.name for copy in screen.copies()})
        texts = {copy.name: copy.text for copy in screen.copies()}
        assert operator.page.isprintable()
    for text in ("ana (sudo, as root) on mx1, PID 4243", "192.0.2.7", "feed is back"):
        assert text in texts["text"]
    assert texts["ids"].split() == [task.id for task in dead[:3]]
    assert "3 planned: 2 done, 1 skipped" in texts["text"]
    assert texts["text"].count("DLQ -> pending") == 3
    assert "skipped     DLQ -> pending     changed since the plan" in texts["text"]


async def test_an_unreadable_journal_is_reported(place: Place) -> None:
    """Where the journal is no folder it is said, and the rest of the console goes on."""
    folder = Path(kept(place).folder)
    await off(os.makedirs, folder.parent)
    await off(folder.write_text, "")
    async with operations(place, "journal not readable:"):
        pass


async def test_news_waits_while_an_answer_is_read(place: Place) -> None:
    """The answer to a key stays on screen for a while before news takes its place; where nothing
    may be written, R settles and continues no interrupted operation.
    """
    hands, op = Clock(0.0), await off(interrupt, place, 4, 2)
    written = Path(kept(place).folder, f"{op}.jsonl").read_bytes
    before = await off(written)
    async with operations(place, "2/4 INTERRUPTED", read_only=True) as operator:
        operator.console.bandwidth = BandwidthBudget(lambda: 0, hands)
        screen = operator.console.screen
        await operator.press("R")
        await operator.sees("read only")
        assert operator.console.screen is screen
        operator.console.navigator.session.messages.append("the replay is over")
        show_result(operator.console)
        assert operator.console.navigator.session.messages
        hands.now += ANSWER_SECONDS
        show_result(operator.console)
        await operator.sees("the replay is over")
    assert await off(written) == before


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


async def test_an_operation_is_undone_by_its_count(place: Place, dead: list[Task]) -> None:
    """T shows the plan, the count applies it, the files are as they were, and the list says so. u
    in such a plan leaves it where it is, and says how to get to the list.
    """
    before = await off(files, place)
    op = await off(carried_out, place, "purge", dead[:3])
    assert await off(files, place) != before
    async with operations(place, "3 done") as operator:
        await operator.opens(PlanScreen, key_of("plan_undo"))
        await operator.sees("3 trash -> DLQ", "type 3 to undo 3")
        await operator.press("u")
        await operator.sees("not applied yet: Esc discards the plan", op[-4:])
        assert isinstance(operator.console.screen, PlanScreen)
        await operator.press("3")
        await operator.sees("3 undone", "3 undone = 3")
        await operator.press("escape")
        await operator.sees("3 undone", "undo of")
    assert await off(files, place) == before


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_plan_that_takes_long_is_announced(
    place: Place, dead: list[Task], monkeypatch: pytest.MonkeyPatch, *, leaves: bool
) -> None:
    """While an undo plan is prepared the message line says so; if the operator goes to another
    screen meanwhile, no plan opens there.
    """
    await off(carried_out, place, "purge", dead[:3])
    async with operations(place, "3 done") as operator:
        history, go_on = operator.console.navigator.session.inspector.history, asyncio.Event()
        plan_undo = history.plan_undo

        async def slow(operation: Operation, days: float) -> UndoPlan:
            await go_on.wait()
            return await plan_undo(operation, days)

        monkeypatch.setattr(history, "plan_undo", slow)
        await operator.press(key_of("plan_undo"))
        await operator.until(
            lambda: "preparing the undo plan of 3 tasks ..." in operator.line("word")
        )
        if leaves:
            screen = operator.console.screen
            await operator.opens(OverviewScreen, "1")
            go_on.set()
            await operator.until(lambda: not any(one.group == "plan" for one in screen.workers))
            assert isinstance(operator.console.screen, OverviewScreen)
        else:
            go_on.set()
            await operator.until(lambda: isinstance(operator.console.screen, PlanScreen))
            await operator.opens(OperationsScreen, "escape")
            assert "preparing" not in operator.line("word")


async def test_a_task_that_cannot_come_back_has_its_reason(place: Place, dead: list[Task]) -> None:
    """A row whose task ran meanwhile is excluded from the plan, and cannot be taken in."""
    await off(carried_out, place, "retry", dead[:3])
    leave(place, "pending", dead[0])
    async with operations(place, "3 done") as operator:
        screen = await operator.opens(PlanScreen, key_of("plan_undo"))
        await operator.sees("type 2 to undo 2", "excluded: gone since: it ran, or was removed")
        await operator.press("space")
        await operator.sees("cannot be included: gone since: it ran, or was removed")
        assert screen.expected_digits == "2"


@pytest.mark.parametrize(
    ("verb", "message"),
    [("expunge", "no plan: expunge cannot be undone"), ("hold", "no task was changed")],
)
async def test_why_one_cannot_be_undone(
    place: Place, dead: list[Task], verb: str, message: str
) -> None:
    """An operation that is for good, or that changed nothing, is not undone, and says why."""
    if verb == "hold":
        leave(place, "dlq", dead[0])
    await off(carried_out, place, verb, dead[:1])
    async with operations(place, verb) as operator:
        await operator.press(key_of("plan_undo"))
        await operator.sees(message)


@pytest.mark.parametrize("most", [None, 1])
async def test_an_unknown_verb_is_only_shown(
    place: Place, dead: list[Task], most: int | None
) -> None:
    """An operation with a verb that is not known here is shown; its tasks are not changed."""
    newer = Intent("tele\x1b[31mport", BEN)
    await off(carried_out, place, "retry", dead[:3], intent=newer, most=most)
    after = await off(files, place)
    async with operations(place, "port", "no: unknown") as operator:
        await operator.press(key_of("plan_undo"))
        await operator.sees("no plan: tele", "is unknown to this version")
        assert "\x1b" not in operator.text
        await operator.press("R")
        await operator.sees("no plan:" if most else "nothing to resume")
        await operator.press("D")
        if most:
            await operator.opens(ActionScreen)
            assert "\x1b" not in operator.text
            await operator.opens(OperationsScreen, "escape")
        await operator.opens(RecordScreen, "enter")
        await operator.sees("3 planned")
    assert await off(files, place) == after


# ---- interrupted operations


async def test_an_interrupted_operation_is_settled_and_shown(place: Place) -> None:
    """At the start each row gets its outcome, and the operator sees one message."""
    op = await off(interrupt, place, 8, 3)
    journal = Path(kept(place).folder, f"{op}.jsonl")
    lines = (await off(journal.read_text)).splitlines(True)
    # As if it was killed between the moves and the line that says so.
    await off(journal.write_text, "".join(line for line in lines if '"line": "ends"' not in line))
    async with an_operator(place, early=True, clock=None, first=keys.OVERVIEW) as operator:
        words = "replay of 09:42 by ana interrupted: 5 of 8 not moved"
        await operator.sees(words, "interrupted, 5 of 8 not moved; u there shows it")
        overview = await operator.opens(OverviewScreen)
        await operator.press("g")
        while (
            alert := overview.parts.alert
        ) is not None and alert.kind is not AlertKind.INTERRUPTED:
            await operator.press("j")
        await operator.opens(OperationsScreen, "enter")
        await operator.sees("3/8 INTERRUPTED")
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


async def test_an_interrupted_operation_is_gone_on_with(place: Place) -> None:
    """R plans exactly what a killed operation did not move, and says what becomes of the task that
    it left in between; its count moves the rest, and the interrupted operation is over.
    """
    op = await off(interrupt, place, 8, 3)
    half, *rest = (task.id for task in (await off(seen, place, State.DEAD))[:5])
    await off(leave_half_moved, place, half)
    async with operations(place, "3/8 INTERRUPTED", "4 not moved, 1 half moved") as operator:
        await operator.opens(PlanScreen, "R")
        await operator.sees("the rest of replay of 09:42:08Z by ana")
        await operator.sees(
            "1 task is half moved: completed or rolled back first", "type 4 to replay 4"
        )
        await operator.press(
            "p", "0", "tab", "0", "tab", "space", "enter"
        )  # no canary, all at once
        await operator.sees("all others now")
        await operator.press("4")
        await operator.until(lambda: is_over(operator, op))
    assert {*rest} <= {task.id for task in await off(seen, place, State.PENDING)}
    assert half in {task.id for task in await off(seen, place, State.DEAD)}
    assert not await off(lambda: list(Path(place.root, "queue/.spooldeck").glob("D.*")))
    follows = [one.intent.follows for one in await off(kept(place).operations) if one.op != op]
    assert follows == [op]


async def test_a_half_moved_task_is_finished_where_nothing_else_is_left(place: Place) -> None:
    """Where only that is left, R says which key finishes it, and D does, and moves nothing else."""
    op = await off(interrupt, place, 4, 3)
    half = (await off(seen, place, State.DEAD))[0].id
    await off(leave_half_moved, place, half)
    async with operations(place, "3/4 INTERRUPTED", "0 not moved, 1 half moved") as operator:
        await operator.press("R")
        await operator.sees("only 1 half-moved task left: D completes it")
        await operator.press("D")
        await operator.sees("1 task half moved: completed or rolled back first")
        await operator.press("y")
        await operator.until(lambda: is_over(operator, op))
    assert half in {task.id for task in await off(seen, place, State.DEAD)}


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
    """The last suspension of a transport has `S resume`, which opens the plan; one that a later
    operation ended has not.
    """
    room = PlaceTransports(tmp_path, lambda: NOW)
    for at, name, value in (
        (NOW - 540, "curl", controls.SUSPENDED),
        (NOW - 480, "curl", controls.RESUMED),
        (NOW - 420, "postfix", controls.SUSPENDED),
    ):
        order = controls.Order(controls.TRANSPORT_CONTROL, name, value, "other")
        journal = Journal(kept(place).folder, place.root, lambda at=at: at)
        switch = partial(controls.run_journaled_action, journal, Intent("", ANA), order)
        await off(switch, lambda: "done", lambda at=at: at)
    await off(room.suspend, "postfix", "")
    async with operations(place._replace(mail=room.place_mail())) as operator:
        await operator.sees(
            "09:35:08 ana suspend postfix - DONE S resume",
            "09:34:08 ana resume curl - DONE u undo",
            "09:33:08 ana suspend curl - DONE no: use control",
        )
        await operator.opens(ActionScreen, "S")
        await operator.sees("resume postfix")
        await operator.press("escape", "j", "S")
        await operator.sees("nothing to resume: it suspends no transport now")
    wall = place._replace(mail=room.place_mail())
    async with an_operator(
        wall, first=keys.OVERVIEW, size=(200, 60), clock=lambda: NOW
    ) as operator:
        await operator.sees(
            "suspend postfix on spool DONE 8 resume", "suspend curl on spool DONE 8 open"
        )


def test_the_numbers_of_a_large_operation_are_whole() -> None:
    """The tasks done and planned are not cut, however many."""
    one = Operation(
        "1",
        NOW,
        Intent("purge", ANA),
        planned=400_123,
        counts={RowResult.DONE: 38_994},
        ended=NOW,
        is_running=False,
    )
    for width in (74, 80, 118):
        _, (line,) = view.operation_table(view.list_operations([one]), NOW, width)
        assert " 38,994/400,123 " in words([line])


def test_the_text_of_an_operation_gets_the_width_of_the_others() -> None:
    """Where WHAT would be cut, the columns move together, and then WHEN has no seconds."""
    for filter, when in (("age>30d", "09:42:08"), ("err~550 kind=report tries>=5", "09:42")):
        intent = Intent("purge", ANA, filter=filter)
        one = Operation(
            "1",
            NOW,
            intent,
            planned=40,
            counts={RowResult.DONE: 40},
            ended=NOW,
            is_running=False,
            has_images=True,
        )
        _, (line,) = view.operation_table(view.list_operations([one]), NOW, 74)
        assert f"purge {filter} " in words([line])
        assert words([line]).split()[0] == when
