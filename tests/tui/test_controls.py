"""C on the overview and the queue: what concerns a queue as a whole; and P, which pauses it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.model import Problem, State
from engine.store import Control, Forecast, Unavailable
from engine.stores.memory import MemoryStore
from tests.tui.desks import Desk, a_desk
from tests.tui.spools import Clock, a_memory, a_place, loaded, queue_of, some_tasks
from tests.tui.wholes import PAUSE, RATE, REDIRECT, RETRY, Whole
from tui import keys
from tui.place import Facts, Place
from tui.plain import text_of
from tui.screens.control import ControlScreen
from tui.screens.controls import ControlsScreen
from tui.screens.face import Target
from tui.screens.overview import OverviewScreen
from tui.views import controls as view

WHY = "registration period 2026-11-01 to 2026-12-31"


@pytest.fixture
def whole(tmp_path: Path) -> Whole:
    """A mail queue in a database, with two jobs."""
    return Whole(tmp_path, Clock())


async def board(desk: Desk) -> ControlsScreen:
    """The controls of the first place, by C on its queue."""
    screen = await desk.opens(ControlsScreen, "C")
    await desk.until(lambda: desk.picker.rows)
    return screen


async def planned(desk: Desk, name: str) -> ControlScreen:
    """The plan for a control, by Enter on its line, as if the operator had read it."""
    await board(desk)
    desk.picker.put_on(name)
    await desk.press("enter")
    return await read(desk)


async def read(desk: Desk) -> ControlScreen:
    """The plan that is shown, or lies below a question, once it was read."""
    app = desk.console

    def plan() -> ControlScreen | None:
        return next((s for s in app.screen_stack if isinstance(s, ControlScreen)), None)

    def is_read() -> bool:
        return all(worker.is_finished for worker in app.workers if worker.group == "plan")

    await desk.until(lambda: plan() is not None and is_read())
    found = plan()
    assert found is not None
    return found


async def test_the_facts_and_each_control_on_a_line(whole: Whole) -> None:
    """What the queue says of itself, then its controls with values; a refused one says why."""
    whole.in_earnest()
    async with a_desk(whole.place()) as desk:
        screen = await board(desk)
        await desk.sees("tokens 3 of 5, the next in 21s", "registrations 1")

        rows = {choice.key: choice.line for choice in desk.picker.rows}
        said = {key: "".join(text for text, _ in line) for key, line in rows.items()}
        assert "1 (send)" in said[PAUSE]
        assert "60" in said[RATE]
        assert "refused: registration period" in said[REDIRECT]
        assert {look for _, look in rows[REDIRECT]} == {"dim"}
        assert "dim" not in {look for _, look in rows[PAUSE]}

        desk.picker.put_on(REDIRECT)
        await desk.sees("no test mode until")
        await desk.press("enter")
        await desk.sees(f"{REDIRECT}: {WHY}")
        assert desk.console.screen is screen


async def test_a_switch_is_set_and_the_journal_says_how_to_set_it_back(whole: Whole) -> None:
    """The plan names both values and the command; `y` does it, and the line has the new value.
    The operation has the answer and the reason, and cannot be undone: it says what was before.
    """
    async with a_desk(whole.place(), size=(120, 40)) as desk:
        await planned(desk, PAUSE)
        await desk.sees("It is 1 (send) now, and would be 0 (pause: jobs wait).")
        await desk.sees(f"spooldeck --root /q.db control {PAUSE} --value 0 --apply 1")
        await desk.sees(f"{PAUSE} can be set back to 1", f"y to do it: {PAUSE}")
        await desk.press("tab", *"mx7", "enter", "y")
        await desk.sees("paused: jobs wait", "done; Esc goes back")
        assert whole.setting(PAUSE) == "0"
        await desk.press("y")
        await desk.sees("it was done")
        await desk.opens(ControlsScreen, "escape")
        await desk.sees(f"{PAUSE}: paused: jobs wait", "0 (pause: jobs wait)")
        (told,) = await asyncio.to_thread(whole.journal.operations)
        assert (told.intent.verb, told.intent.reason) == ("control", "mx7")

        await desk.press("u")
        await desk.sees(f"{PAUSE} 0", "no: set it back", "answer paused: jobs wait")
        await desk.sees(f"new control {PAUSE}, value 0, before 1")
        await desk.press("T")
        await desk.sees(f"no plan: a control is set back by itself: {PAUSE} was 1 before")


async def test_a_value_is_typed_and_checked(whole: Whole) -> None:
    """What cannot be meant is said while it is typed and not taken; the right one is applied."""
    async with a_desk(whole.place()) as desk:
        await planned(desk, RATE)
        await desk.sees("mails an hour, 1 to")
        await desk.press("backspace", "backspace", "0", "enter")
        await desk.sees("mailMaxPerHour is '0', expected a whole number from 1 to")
        assert "the same on the command line" not in text_of(desk.console.screen_stack[-2])
        await desk.press("backspace", "9", "enter")
        await desk.sees("It is 60 now, and would be 9.", f"control {RATE} --value 9 --apply 1")

        await read(desk)
        await desk.press("y")
        await desk.sees("sends 9 mails an hour")
        assert whole.setting(RATE) == "9"


async def test_what_cannot_be_set_back_asks_for_its_count(whole: Whole) -> None:
    """A button that changes two jobs is pressed by typing 2; `y` only says so; a scan follows."""
    whole.fail_all()
    async with a_desk(whole.place()) as desk:
        await planned(desk, RETRY)
        await desk.sees("it cannot be taken back.", f"type 2 to do it: {RETRY}: [ _ ]")
        await desk.press("y")
        await desk.sees("this plan asks for its count: type 2")
        assert whole.sql("SELECT DISTINCT attempts FROM mail_queue") == [(9,)]
        await desk.press("2")
        await desk.sees("2 jobs failed or parked: due now")

        inspector = desk.console.here.inspector
        await desk.until(lambda: not inspector.latest.counts.get(State.DEAD))


async def test_set_by_another_in_the_last_moment_is_refused(whole: Whole) -> None:
    """What the store finds changed since it was seen, though nothing told yet, is left alone."""
    async with a_desk(whole.place()) as desk:
        screen = await planned(desk, RATE)
        await desk.press("escape")
        await desk.until(lambda: desk.console.screen is screen)
        screen._change(screen._order._replace(value="9"))
        await read(desk)
        whole.settle(**{RATE: "7"})
        screen.action_yes()  # before the next look at the database

        await desk.sees("changed since it was seen: 7 now")
        assert whole.setting(RATE) == "7"


async def test_p_pauses_from_the_queue(whole: Whole) -> None:
    """P opens the plan for the one control that pauses, for the value that it has not."""
    whole.settle(**{PAUSE: "0"})
    async with a_desk(whole.place()) as desk:
        await desk.press("P")
        await read(desk)
        await desk.sees("It is 0 (pause: jobs wait) now, and would be 1 (send)")


class Flushing(MemoryStore):
    """A store that has one control: for one thing, and it can say what it would do."""

    controls: Mapping[str, Control] = {
        "flush": Control(
            "send what waits",
            "a folder",
            "how",
            foretells=True,
            choices=(("", "once"), ("twice", "two times")),
        )
    }

    def control(self, name: str, target: str = "", value: str = "") -> str:
        """Two lines of it, the second from outside."""
        return f"{target} is flushed\n\x1b[31mred"

    def forecast(self, name: str, target: str = "", value: str = "") -> Forecast:
        """Two lines of it, for two things."""
        return Forecast(f"{target} would be flushed\n\x1b[31mred", 2)


class Refusing(Flushing):
    """One that can say what it would do, and then does not do it."""

    def control(self, name: str, target: str = "", value: str = "") -> str:
        """Refuse."""
        raise Unavailable("the folder is locked")


def flushing(kind: type[Flushing] = Flushing) -> Place:
    """A place in memory that can be flushed."""
    memory = a_memory(some_tasks())
    return a_place(memory, open=lambda: kind(memory))


async def test_where_nothing_pauses_the_key_is_grey_and_says_so() -> None:
    """P is grey where there are controls, none of which pauses; without any it is not offered."""
    place, plain = flushing(), a_place(a_memory(some_tasks()), name="/plain")
    async with a_desk(place, plain, size=(120, 40)) as desk:
        first = queue_of(desk.console)
        await desk.until(lambda: first.inspector.controls)
        assert "pause_queue" in first._grey() - first.without()
        await desk.press("P")
        await desk.sees("nothing here pauses the whole queue")

        desk.console.goto(Target(keys.LIST, place=2))
        await desk.until(lambda: queue_of(desk.console) is not first)
        await loaded(desk.pilot)
        assert {"pause_queue", "controls"} <= queue_of(desk.console).without()


async def test_a_target_is_asked_for_and_the_store_foretells() -> None:
    """It asks what it is for, shows what the store would do, and its answer, line by line."""
    async with a_desk(flushing()) as desk:
        screen = await planned(desk, "flush")
        await desk.sees("Enter answers")
        assert "the same on the command line" not in text_of(screen)
        await desk.press(*"in", "enter")
        await desk.sees("in would be flushed", "[31mred")
        await desk.press("space")
        await desk.sees("--target in --value twice --apply 2")

        await desk.until(lambda: screen._foretold is not None)
        await read(desk)
        await desk.sees("type 2 to do it")
        await desk.press("2")
        await desk.sees("in is flushed", "[31mred")
        assert "\x1b" not in desk.page


async def test_what_the_store_refuses_is_said_and_the_plan_stays() -> None:
    """What only the store knows it says when it is asked to do it; nothing is called done."""
    async with a_desk(flushing(Refusing)) as desk:
        screen = await planned(desk, "flush")
        await desk.press(*"in", "enter")
        await desk.sees("in would be flushed", "type 2")
        await read(desk)
        await desk.press("2")
        await desk.sees("not done, as the store says", "locked", "it was not done")

        assert (desk.console.screen, screen.outcome) == (screen, "")


async def test_a_warning_is_an_alert_that_leads_here(whole: Whole) -> None:
    """What the queue warns of is on the overview, and Enter on it shows all that it says."""
    whole.facts = whole.facts._replace(warnings=("cron was silent for 3 min",))
    async with a_desk(whole.place(), first=keys.OVERVIEW) as desk:
        await desk.sees("WARN", "cron was silent for 3 min")
        await desk.opens(ControlsScreen, "shift+tab", "enter")
        await desk.sees("! cron was silent for 3 min", "tokens 3 of 5")

        whole.facts = whole.facts._replace(warnings=())
        await desk.until(lambda: "cron" not in desk.page)
        await desk.until(lambda: not desk.console.lives[0].alerts)


async def test_c_on_the_overview_is_for_the_queue_under_the_cursor(whole: Whole) -> None:
    """With several places it opens the one under the cursor; one without controls says so."""
    plain = a_place(a_memory(some_tasks()), name="/plain")
    async with a_desk(plain, whole.place(), first=keys.OVERVIEW) as desk:
        await desk.press("C")
        await desk.sees(view.NO_CONTROLS)
        await desk.opens(ControlsScreen, "escape", "j", "C")
        await desk.sees(PAUSE)
        await desk.opens(OverviewScreen, "1")


async def test_facts_that_cannot_be_told_say_why(whole: Whole) -> None:
    """An unknown is said with its reason, and takes nothing else away."""

    def unreadable() -> Facts:
        raise PermissionError(13, "Permission denied", whole.path)

    async with a_desk(whole.place(facts=unreadable)) as desk:
        await board(desk)
        await desk.sees("? Permission denied", PAUSE)


def test_a_problem_can_be_what_it_is_for() -> None:
    """Where a control is for something, what is not as it should be is listed with the reasons."""
    problems = [Problem(f"data/m{number}", "nothing leads to it") for number in range(12)]

    said = ["".join(text for text, _ in line) for line in view.targets(problems, 80)]

    assert "data/m0  nothing leads to it" in said[2]
    assert said[-1] == "  ... and 3 more"
    assert view.targets([], 80) == []
