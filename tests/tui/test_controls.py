"""C on the overview and the queue: what concerns a queue as a whole; and P, which pauses it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.model import Problem
from engine.store import Control, Forecast
from engine.stores.memory import Memory, MemoryStore
from tests.tui.spools import (
    Clock,
    a_console,
    a_memory,
    a_place,
    is_known,
    loaded,
    queue_of,
    some_tasks,
    until,
)
from tests.tui.wholes import PAUSE, RATE, REDIRECT, RETRY, Whole
from tui import keys
from tui.app import Console
from tui.place import Facts, Place
from tui.plain import text_of
from tui.screens.control import ControlScreen
from tui.screens.controls import ControlsScreen
from tui.screens.face import Target
from tui.screens.overview import OverviewScreen
from tui.views import controls as view
from tui.widgets.lines import Lines
from tui.widgets.picker import Picker

WHY = "registration period 2026-11-01 to 2026-12-31"


@pytest.fixture
def whole(tmp_path: Path) -> Whole:
    """A mail queue in a database, with two jobs."""
    return Whole(tmp_path, Clock())


def console_on(*places: Place, **fields: object) -> Console:
    """Armed, unless told otherwise."""
    return a_console(*places, **{"start_armed": True, **fields})  # type: ignore[arg-type]


def page(pilot: Pilot[None]) -> str:
    """All that the screen on top shows, without the breaks of lines."""
    return " ".join(text_of(pilot.app.screen).split())


async def sees(pilot: Pilot[None], *words: str) -> None:
    """Wait until all of this is shown."""
    await until(pilot, lambda: all(word in page(pilot) for word in words), lambda: page(pilot))


async def board(pilot: Pilot[None]) -> ControlsScreen:
    """The controls of the first place, by C on its queue."""
    await loaded(pilot)
    await pilot.press("C")
    await until(pilot, lambda: isinstance(pilot.app.screen, ControlsScreen))
    screen = pilot.app.screen
    assert isinstance(screen, ControlsScreen)
    await until(pilot, lambda: screen.query_one(Picker).rows)
    return screen


async def planned(pilot: Pilot[None], name: str) -> ControlScreen:
    """The plan for a control, by Enter on its line, as if the operator had read it."""
    screen = await board(pilot)
    screen.query_one(Picker).put_on(name)
    await pilot.press("enter")
    return await read(pilot)


async def read(pilot: Pilot[None]) -> ControlScreen:
    """The plan that is shown, or lies below a question, once it was read."""
    app = pilot.app

    def plan() -> ControlScreen | None:
        return next((s for s in app.screen_stack if isinstance(s, ControlScreen)), None)

    def is_read() -> bool:
        return all(worker.is_finished for worker in app.workers if worker.group == "plan")

    await until(pilot, lambda: plan() is not None and is_read())
    found = plan()
    assert found is not None
    return found


async def test_the_facts_and_each_control_on_a_line(whole: Whole) -> None:
    """What the queue says of itself, then its controls with values; a refused one says why."""
    whole.in_earnest()
    async with console_on(whole.place()).run_test(size=(80, 24)) as pilot:
        screen = await board(pilot)
        await sees(pilot, "tokens 3 of 5, the next in 21s", "registrations 1")

        rows = {choice.key: choice.line for choice in screen.query_one(Picker).rows}
        said = {key: "".join(text for text, _ in line) for key, line in rows.items()}
        assert "1 (send)" in said[PAUSE]
        assert "60" in said[RATE]
        assert "refused: registration period" in said[REDIRECT]
        assert {look for _, look in rows[REDIRECT]} == {"dim"}
        assert "dim" not in {look for _, look in rows[PAUSE]}

        screen.query_one(Picker).put_on(REDIRECT)
        await sees(pilot, "no test mode until")
        await pilot.press("enter")
        await sees(pilot, f"{REDIRECT}: {WHY}")
        assert pilot.app.screen is screen


async def test_a_switch_is_set_and_set_back(whole: Whole) -> None:
    """The plan names both values and the command; `y` does it; the line has the new value."""
    async with console_on(whole.place()).run_test(size=(80, 24)) as pilot:
        plan = await planned(pilot, PAUSE)
        await sees(pilot, "It is 1 (send) now, and would be 0 (pause: jobs wait).")
        await sees(pilot, f"spooldeck --root /q.db control {PAUSE} --value 0 --apply 1")
        await sees(pilot, f"{PAUSE} can be set back to 1", f"y to do it: {PAUSE}")

        await pilot.press("tab", *"mx7", "enter", "y")
        await sees(pilot, "paused: jobs wait", "done; Esc goes back")
        assert whole.setting(PAUSE) == "0"
        await pilot.press("y")
        assert "it was done" in page(pilot)

        await pilot.press("escape")
        await sees(pilot, f"{PAUSE}: paused: jobs wait")
        await sees(pilot, "0 (pause: jobs wait)")
        (told,) = await asyncio.to_thread(whole.journal.operations)
        assert (told.intent.verb, told.intent.reason) == ("control", "mx7")
        assert plan.outcome


async def test_the_journal_tells_of_it_and_takes_nothing_back(whole: Whole) -> None:
    """Among the operations it stands with its answer; T says how it is set back."""
    async with console_on(whole.place()).run_test(size=(120, 40)) as pilot:
        await planned(pilot, PAUSE)
        await pilot.press("y")
        await sees(pilot, "done; Esc goes back")
        await pilot.press("escape", "u")
        await sees(pilot, f"{PAUSE} 0", "no: set it back", "answer paused: jobs wait")
        await sees(pilot, f"new control {PAUSE}, value 0, before 1")

        await pilot.press("T")
        await sees(pilot, f"no plan: a control is set back by itself: {PAUSE} was 1 before")


async def test_what_the_store_refuses_is_said_and_the_plan_stays(whole: Whole) -> None:
    """What only the store knows it says when it is asked to do it; nothing is called done."""
    async with console_on(whole.place()).run_test(size=(80, 24)) as pilot:
        screen = await planned(pilot, PAUSE)
        with closing(sqlite3.connect(whole.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await pilot.press("y")
            await sees(pilot, "not done, as the store says", "locked", "it was not done")

        assert (pilot.app.screen, screen.outcome) == (screen, "")
        assert whole.setting(PAUSE) == "1"


async def test_a_value_is_typed_and_checked(whole: Whole) -> None:
    """What cannot be meant is said while it is typed and not taken; the right one is applied."""
    async with console_on(whole.place()).run_test(size=(80, 24)) as pilot:
        await planned(pilot, RATE)
        await sees(pilot, "mails an hour, 1 to")
        await pilot.press("backspace", "backspace", "0", "enter")
        await sees(pilot, "mailMaxPerHour is '0', expected a whole number from 1 to")
        assert "the same on the command line" not in text_of(pilot.app.screen_stack[-2])
        await pilot.press("backspace", "9", "enter")
        await sees(pilot, "It is 60 now, and would be 9.", f"control {RATE} --value 9 --apply 1")

        await read(pilot)
        await pilot.press("y")
        await sees(pilot, "sends 9 mails an hour")
        assert whole.setting(RATE) == "9"


async def test_what_cannot_be_set_back_asks_for_its_count(whole: Whole) -> None:
    """A button that changes two jobs is pressed by typing 2; `y` only says so; a scan follows."""
    whole.fail_all()
    async with console_on(whole.place()).run_test(size=(80, 24)) as pilot:
        await planned(pilot, RETRY)
        await sees(pilot, "it cannot be taken back.", f"type 2 to do it: {RETRY}: [ _ ]")
        await pilot.press("y")
        await sees(pilot, "this plan asks for its count: type 2")
        assert whole.sql("SELECT DISTINCT attempts FROM mail_queue") == [(9,)]

        await pilot.press("2")
        await sees(pilot, "2 jobs failed or parked: due now")
        live = queue_of(pilot.app).live  # type: ignore[arg-type]
        await until(
            pilot,
            lambda: not any(n for s, n in live.inspector.latest.counts.items() if s == "dead"),
        )


async def test_observe_shows_the_plan_and_does_nothing(whole: Whole) -> None:
    """It needs ARMED like everything that writes; `!` arms, and the plan stays."""
    async with console_on(whole.place(), start_armed=False).run_test(size=(80, 24)) as pilot:
        screen = await planned(pilot, PAUSE)
        await sees(pilot, "OBSERVE: this plan cannot be applied")
        await pilot.press("y")
        await sees(pilot, "OBSERVE: press ! first")
        assert whole.setting(PAUSE) == "1"

        await pilot.press("exclamation_mark")
        await sees(pilot, f"y to do it: {PAUSE}")
        assert pilot.app.screen is screen


async def test_read_only_refuses_with_the_reason(whole: Whole) -> None:
    """Everything can be looked at; nothing is offered, and the keys say why."""
    console = console_on(whole.place(), read_only=True, start_armed=False)
    async with console.run_test(size=(80, 24)) as pilot:
        screen = await board(pilot)
        for key in ("P", "enter"):
            await pilot.press(key)
            await sees(pilot, "read only: this console was started with --read-only")
            assert pilot.app.screen is screen
            screen._say_nothing()
        assert not {hint.words for hint in keys.hints(screen.KIND, (), screen.without())} & {
            "plan",
            "pause",
            "arm",
        }


async def test_a_reason_can_be_required(whole: Whole) -> None:
    """Where the configuration asks for one, nothing is done without."""
    async with console_on(whole.place(), require_reason=True).run_test(size=(80, 24)) as pilot:
        await planned(pilot, PAUSE)
        await pilot.press("y")
        await sees(pilot, "a reason is asked for here: Tab types it")
        assert whole.setting(PAUSE) == "1"


async def test_a_plan_that_does_not_hold_any_more_is_withdrawn(whole: Whole) -> None:
    """When somebody else sets it meanwhile, what was seen is not what is: nothing is done."""
    async with console_on(whole.place()).run_test(size=(80, 24)) as pilot:
        await planned(pilot, PAUSE)
        whole.settle(**{PAUSE: "0"})
        live = queue_of(pilot.app).live  # type: ignore[arg-type]
        await live.inspector.refresh()
        await sees(pilot, "withdrawn: it has changed: 0 now")

        await pilot.press("y")
        assert await live.inspector.operations() == ()


async def test_set_by_another_in_the_last_moment_is_refused(whole: Whole) -> None:
    """What the store finds changed since it was seen, though nothing told yet, is left alone."""
    async with console_on(whole.place()).run_test(size=(80, 24)) as pilot:
        screen = await planned(pilot, RATE)
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is screen)
        screen._change(screen._order._replace(value="9"))
        await read(pilot)
        whole.settle(**{RATE: "7"})
        screen.action_yes()  # before the next look at the database

        await sees(pilot, "changed since it was seen: 7 now")
        assert whole.setting(RATE) == "7"


async def test_p_pauses_from_the_queue(whole: Whole) -> None:
    """P opens the plan for the one control that pauses, the other way round than it stands."""
    async with console_on(whole.place()).run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await pilot.press("P")
        await read(pilot)
        await sees(pilot, "would be 0 (pause: jobs wait)")
        await pilot.press("y")
        await sees(pilot, "paused: jobs wait", "done")
        live = queue_of(pilot.app).live  # type: ignore[arg-type]
        await until(pilot, lambda: live.inspector.controls[PAUSE].now == "0")

        await pilot.press("escape", "P")
        await read(pilot)
        await sees(pilot, "It is 0 (pause: jobs wait) now, and would be 1 (send)")


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


def flushing(memory: Memory) -> Place:
    """A place in memory that can be flushed."""
    return a_place(memory, open=lambda: Flushing(memory))


async def test_where_nothing_pauses_the_key_is_grey_and_says_so() -> None:
    """P is grey where there are controls, none of which pauses; without any it is not offered."""
    place, plain = flushing(a_memory(some_tasks())), a_place(a_memory(some_tasks()), name="/plain")
    async with console_on(place, plain).run_test(size=(120, 40)) as pilot:
        await loaded(pilot)
        first = queue_of(pilot.app)  # type: ignore[arg-type]
        await until(pilot, lambda: first.inspector.controls)
        assert "pause_queue" in first._grey() - first.without()
        await pilot.press("P")
        await sees(pilot, "nothing here pauses the whole queue")

        pilot.app.goto(Target(keys.LIST, place=2))  # type: ignore[attr-defined]
        await until(pilot, lambda: queue_of(pilot.app) is not first)  # type: ignore[arg-type]
        await loaded(pilot)
        assert {"pause_queue", "controls"} <= queue_of(pilot.app).without()  # type: ignore[arg-type]


async def test_a_target_is_asked_for_and_the_store_foretells() -> None:
    """It asks what it is for, shows what the store would do, and its answer, line by line."""
    async with console_on(flushing(a_memory(some_tasks()))).run_test(size=(80, 24)) as pilot:
        screen = await planned(pilot, "flush")
        await sees(pilot, "Enter answers")
        assert "the same on the command line" not in text_of(screen)
        await pilot.press(*"in", "enter")
        await sees(pilot, "in would be flushed", "[31mred")
        await pilot.press("space")
        await sees(pilot, "--target in --value twice --apply 2")

        await until(pilot, lambda: screen._foretold is not None)
        await read(pilot)
        await sees(pilot, "type 2 to do it")
        await pilot.press("2")
        await sees(pilot, "in is flushed", "[31mred")
        assert "\x1b" not in page(pilot)


async def test_a_warning_is_an_alert_that_leads_here(whole: Whole) -> None:
    """What the queue warns of stands on the overview, and Enter on it shows all that it says."""
    whole.facts = whole.facts._replace(warnings=("cron was silent for 3 min",))
    console = console_on(whole.place(), first=keys.OVERVIEW)
    async with console.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: is_known(console.lives[0]))
        await sees(pilot, "WARN", "cron was silent for 3 min")
        await pilot.press("shift+tab", "enter")
        await until(pilot, lambda: isinstance(console.screen, ControlsScreen))
        await sees(pilot, "! cron was silent for 3 min", "tokens 3 of 5")

        whole.facts = whole.facts._replace(warnings=())
        await until(pilot, lambda: "cron" not in page(pilot))
        assert not console.lives[0].alerts


async def test_c_on_the_overview_is_for_the_queue_under_the_cursor(whole: Whole) -> None:
    """With several places it opens the one that is looked at; one without any says so."""
    plain = a_place(a_memory(some_tasks()), name="/plain")
    console = console_on(plain, whole.place(), first=keys.OVERVIEW)
    async with console.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: all(map(is_known, console.lives)))
        await pilot.press("C")
        await sees(pilot, view.NO_CONTROLS)
        await pilot.press("escape", "j", "C")
        await sees(pilot, PAUSE)
        assert isinstance(console.screen, ControlsScreen)
        await pilot.press("1")
        await until(pilot, lambda: isinstance(console.screen, OverviewScreen))


async def test_facts_that_cannot_be_told_say_why(whole: Whole) -> None:
    """An unknown is said with its reason, and takes nothing else away."""

    def unreadable() -> Facts:
        raise PermissionError(13, "Permission denied", whole.path)

    async with console_on(whole.place(facts=unreadable)).run_test(size=(80, 24)) as pilot:
        await board(pilot)
        await sees(pilot, "? Permission denied", PAUSE)


@pytest.mark.parametrize("size", [(40, 12), (60, 15), (80, 24), (120, 40)])
async def test_both_fit(whole: Whole, size: tuple[int, int]) -> None:
    """The list and a plan are whole on each size: the controls, the question, and no long line."""
    whole.facts = Facts(tuple((f"fact {n}", "so and so") for n in range(6)), ("cron is silent",))
    async with console_on(whole.place()).run_test(size=size) as pilot:
        await board(pilot)
        await sees(pilot, PAUSE[:6])
        assert max(map(len, text_of(pilot.app.screen).splitlines())) <= size[0]
        await pilot.press("enter")
        await read(pilot)
        await until(pilot, lambda: f"y to do it: {PAUSE}" in page(pilot), lambda: page(pilot))
        assert max(map(len, text_of(pilot.app.screen).splitlines())) <= size[0]
        assert pilot.app.screen.query_one("#word", Lines).lines


def test_a_problem_can_be_what_it_is_for() -> None:
    """Where a control is for something, what is not as it should be is listed with the reasons."""
    problems = [Problem(f"data/m{number}", "nothing leads to it") for number in range(12)]

    said = ["".join(text for text, _ in line) for line in view.targets(problems, 80)]

    assert "data/m0  nothing leads to it" in said[2]
    assert said[-1] == "  ... and 3 more"
    assert view.targets([], 80) == []
