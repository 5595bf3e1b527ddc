"""C on the overview and the queue: the controls of a whole queue; and P, which pauses it."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.locks.token_buckets import BucketState
from engine.model import Problem
from engine.operations.controls import control_rows
from engine.operations.journal import Journal
from engine.places.place import Place, WholeQueueFigures
from engine.store import Control, ControlTarget, Outlook, Unavailable
from tests.console_operator import ConsoleOperator, an_operator, keys_in, words
from tests.console_places import NOW, Clock, a_memory, a_place, a_task, loaded, queue_of, some_tasks
from tests.zgb_console_place import PAUSE, RATE, REDIRECT, ZgbConsolePlace
from tui.confirm.action_screen import ActionScreen
from tui.operations import control_lines as view
from tui.operations.controls_screen import ControlsScreen
from tui.overview.screen import OverviewScreen
from tui.screens.target import Target
from tui.terminal.clipboard import screen_text
from tui.text import keys


@pytest.fixture
def whole(tmp_path: Path) -> ZgbConsolePlace:
    """A mail queue in a database, with two jobs."""
    return ZgbConsolePlace(tmp_path, Clock())


TYPED = Control("send what waits", "a folder")
"""A control whose target is typed."""


def plain() -> Place:
    """A place without controls."""
    return a_place(a_memory(some_tasks()), name="/plain")


async def board(operator: ConsoleOperator) -> ControlsScreen:
    """The controls of the first place, by C on its queue."""
    screen = await operator.opens(ControlsScreen, "C")
    await operator.until(lambda: operator.picker.rows)
    return screen


async def planned(operator: ConsoleOperator, name: str) -> ActionScreen:
    """The plan for a control, by Enter on its line, once its forecast was read."""
    await board(operator)
    operator.picker.select_key(name)
    await operator.press("enter")
    return await read(operator)


async def read(operator: ConsoleOperator) -> ActionScreen:
    """The plan that is shown, or is below a question, once its forecast was read."""
    app = operator.console

    def plans() -> list[ActionScreen]:
        return [screen for screen in app.screen_stack if isinstance(screen, ActionScreen)]

    await operator.until(plans)
    reads = [worker for worker in app.workers if worker.group == "effect"]
    await operator.until(lambda: all(worker.is_finished for worker in reads))
    return plans()[0]


async def test_the_facts_and_each_control_on_a_line(whole: ZgbConsolePlace) -> None:
    """Facts and controls have their values; what is refused or not read says why."""
    whole.in_earnest()
    async with an_operator(whole.place()) as operator:
        await board(operator)
        await operator.sees("tokens 3 of 5, the next in 21s", "registrations 1")
        assert operator.text.index(" what ") < operator.text.index("registrations")  # its own first
        rows = {choice.key: choice.line for choice in operator.picker.rows}
        refusal = "registration period"
        for key, text in ((PAUSE, "1 (send)"), (RATE, "60"), (REDIRECT, f"refused: {refusal}")):
            assert text in words([rows[key]])
            assert ({style for text, style in rows[key] if text.strip()} == {"muted"}) == (
                key == REDIRECT
            )
        operator.picker.select_key(REDIRECT)
        await operator.sees("no test mode until")
        refusal = f"{REDIRECT}: {refusal} 2026-11-01 to 2026-12-31"
        await operator.step("enter", ControlsScreen, refusal)

    def unreadable() -> WholeQueueFigures:
        raise PermissionError(13, "Permission denied", whole.path)

    async with an_operator(whole.place(queue_figures=unreadable)) as operator:
        await board(operator)
        await operator.sees("? Permission denied", PAUSE)


async def test_a_switch_is_set_and_the_journal_has_its_former_value(whole: ZgbConsolePlace) -> None:
    """The plan names both values and the command; `y` does it, and the line has the new value.
    The operation has the answer and the reason, and cannot be undone: it shows the former value."""
    async with an_operator(whole.place(), size=(120, 40)) as operator:
        await planned(operator, PAUSE)
        await operator.sees("Now 1 (send), then 0 (pause: jobs wait).")
        await operator.sees(f"spooldeck --root /q.db control {PAUSE} --value 0 --apply 1")
        await operator.sees(f"{PAUSE} can be set back to 1", f"y to apply {PAUSE}")
        await operator.step("tab mx7 enter y", "paused: jobs wait", "done: Esc closes")
        assert whole.setting(PAUSE) == "0"
        await operator.step("y", "already done: Esc closes")
        news = f"{PAUSE}: paused: jobs wait"
        await operator.step("escape", ControlsScreen, news, "0 (pause: jobs wait)")
        await operator.sees("changed in the last 24 h", f"{PAUSE} 0 DONE", "zgb.db, last 10m")
        await operator.step("z", "zgb.db, last 1h")
        (operation,) = await asyncio.to_thread(whole.journal.operations)
        assert (operation.intent.verb, operation.intent.reason) == ("control", "mx7")
        await operator.step("u", f"{PAUSE} 0", "no: use control", "answer paused: jobs wait")
        await operator.sees("new value 0, before 1")
        await operator.step("u", f"no plan: run the control to set it back: {PAUSE} was 1 before")


async def test_a_value_is_typed_and_checked(whole: ZgbConsolePlace) -> None:
    """A wrong value is named while it is typed; a value that another process set stays."""
    async with an_operator(whole.place()) as operator:
        screen = await planned(operator, RATE)
        await operator.sees("mails an hour, 1 to")
        wrong = "mailMaxPerHour is '0', expected a whole number from 1 to"
        await operator.step("backspace backspace 0 enter", wrong)
        assert "command line" not in screen_text(operator.console.screen_stack[-2])
        right = ("Now 60, then 9.", f"control {RATE} --value 9 --apply 1")
        await operator.step("backspace 9 enter", *right)
        await read(operator)
        with closing(sqlite3.connect(whole.path)) as db, db:
            db.execute("BEGIN EXCLUSIVE")  # no next look at the database, and no change yet
            db.execute("UPDATE config SET value = '7' WHERE key = ?", (RATE,))
            screen.action_yes()
        await operator.sees("has changed: it is 7 now")
        assert whole.setting(RATE) == "7"
        await operator.opens(ControlsScreen, "escape")
        await operator.until(lambda: f"{RATE} 7 " in " ".join(operator.rows.split()))
        await planned(operator, RATE)
        await operator.press("backspace", "9", "enter")
        await read(operator)
        await operator.step("y", "sends 9 mails an hour")
        assert whole.setting(RATE) == "9"


CHOICES = (("", "once"), ("twice", "two times"))
FLUSH = Control("send what waits", "a folder", "how", has_forecast=True, choices=CHOICES)


class Flushing(MemoryStore):
    """A store with one control, which has a target and a forecast of two lines."""

    controls: Mapping[str, Control] = {"flush": FLUSH}
    refuses = False

    def control(self, name: str, target: str = "", value: str = "") -> str:
        """Answer with two lines, the second with a control character."""
        if self.refuses:
            raise Unavailable("the folder is locked")
        return f"{target} is flushed\n\x1b[31mred"

    def forecast(self, name: str, target: str = "", value: str = "") -> Outlook:
        """Foretell the same for two things."""
        return Outlook(f"{target} would be flushed\n\x1b[31mred", 2)


def flushing(refuses: Sequence[bool] = ()) -> Place:
    """A place in memory with that store; while `refuses` has a value, no forecast comes true."""
    memory = a_memory(some_tasks())

    def open_store() -> Flushing:
        store = Flushing(memory)
        store.refuses = bool(refuses)
        return store

    return a_place(memory, open=open_store)


async def test_where_nothing_pauses_the_key_is_grey_and_says_so() -> None:
    """P, and `:pause` on the overview, say so where no control pauses; without any P is absent."""
    async with an_operator(flushing(), plain(), size=(120, 40)) as operator:
        first = queue_of(operator.console)
        await operator.until(lambda: first.session.inspector.controls)
        assert "pause_queue" not in first.without()
        for pressed in ("P", "1 : pause enter"):
            await operator.step(pressed, "this queue cannot be paused")
            assert not isinstance(operator.console.screen, ActionScreen)
        operator.console.navigator.goto(Target(keys.LIST, place=2))
        await operator.until(lambda: queue_of(operator.console) is not first)
        await loaded(operator.pilot)
        assert {"pause_queue", "controls"} <= queue_of(operator.console).without()


@pytest.mark.parametrize("paused", ["0", "1"])
async def test_pause_opens_its_plan(whole: ZgbConsolePlace, paused: str) -> None:
    """P on the queue and `:pause` on the overview open the plan to pause."""
    whole.settle(**{PAUSE: paused})
    values = ["0 (pause: jobs wait)", "1 (send)"]
    now, then = values if paused == "0" else reversed(values)
    async with an_operator(whole.place(), plain()) as operator:
        for pressed in ("P", "1 : pause enter"):
            await operator.press(*keys_in(pressed))
            await read(operator)
            await operator.sees(f"Now {now}, then {then}")
            await operator.press("escape")


async def test_a_target_is_asked_for() -> None:
    """The forecast and the answer of the store are shown; if it refuses, the plan stays."""
    refuses = [True]
    async with an_operator(flushing(refuses)) as operator:
        screen = await planned(operator, "flush")
        await operator.sees("Enter OK")
        assert "command line" not in screen_text(screen)
        await operator.step("in enter", "in would be flushed", "[31mred")
        await operator.step("space", "--target in --value twice --apply 2")
        await read(operator)
        await operator.sees("type 2 to apply flush")
        refused = ("not done (from the queue)", "locked", "not done: reason above")
        for messages in (refused, ("in is flushed", "[31mred")):
            await operator.step("2", *messages)
            assert "\x1b" not in operator.page
            assert operator.console.screen is screen
            assert bool(screen.outcome[0]) is (messages is not refused)
            refuses.clear()


async def test_rate_limits_are_listed_with_their_next_token() -> None:
    """A place without controls lists its rate limits with a bar, read-only. The details have the
    pending tasks of the kind, and where the limit is set."""
    limit = BucketState("mail_send", 2, 5, NOW + 21, 720)
    place = a_place(a_memory([a_task(1, kind="mail_send")]), tokens=lambda: (limit,))
    async with an_operator(place, size=(120, 40), first=keys.CONTROLS) as operator:
        await operator.sees("9 Controls 1", "KIND TOKENS RATE NEXT", "2 of 5 720/h in 21s")
        await operator.sees("Rate limit of mail_send", "pending 1 task", "are read-only")
        await operator.sees("set in handlers.mail_send.rate", "then restart the worker")
        assert not any(word in operator.text for word in (" Queue ", "next token"))


async def test_rate_limits_of_a_queue_with_controls_have_their_own_titles(
    whole: ZgbConsolePlace,
) -> None:
    """They are below the controls, whose facts and values say how they are set; the details are
    named for the control under the cursor."""
    limit = BucketState("", 2, 5, NOW + 21, 60)
    async with an_operator(whole.place(tokens=lambda: (limit,))) as operator:
        await board(operator)
        await operator.sees("CONTROL VALUE EFFECT", "KIND TOKENS RATE NEXT", "all kinds")
        await operator.sees("2 of 5 60/h in 21s", f"Control {PAUSE}")
        assert all(not choice.key.startswith(view.BUCKET) for choice in operator.picker.rows)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_tokens_of_a_rate_limit_stay_on_a_small_screen(width: int) -> None:
    """A narrow table has no bar, but the tokens, the rate and the next token; a pause is a word."""
    limits = [
        BucketState("mail_send", 0, 5, NOW + 4, 720),
        BucketState("", 2, 5, None, paused=True),
    ]
    _, rows = view.limit_table(limits, NOW, width)
    mail, every = (words([line]).split() for _, line in rows)
    assert " ".join(mail) == "mail_send 0 of 5 720/h in 4s"
    assert every[:4] == ["all", "kinds", "PAUSED", "-"]


def test_names_of_controls_are_whole_at_80_columns() -> None:
    """Controls of two queues differ at the end of their names; the details have the effect."""
    summary = "jobs of a queue that run at the same time"
    named = {
        f"concurrency federation-{name}": Control(summary, now="0", no_limit="0")
        for name in ("delivery", "health-check")
    }
    _, lines = view.control_table(control_rows(named), 80)
    assert ["".join(text for text, _ in line).split()[1] for _, line in lines] == [
        "federation-delivery",
        "federation-health-check",
    ]


def test_controls_without_a_value_leave_the_line_to_their_effect() -> None:
    """If none has a value, there is no column for it: each effect of a mail spool is whole."""
    summary = "delete an orphaned mail, or a quarantined link and its own data"
    one_off = Control(summary, choices=(("", "only without a running server"), ("all", "")))
    head, ((_, line),) = view.control_table(control_rows({"discard": one_off}), 80)
    assert summary in words([line]) and "VALUE" not in words([head])
    head, _ = view.control_table(control_rows({"discard": one_off._replace(now="all")}), 80)
    assert "VALUE" in words([head])


def test_a_value_has_its_meaning_where_the_screen_is_wide() -> None:
    """At 80 columns the effect has the room of a long one: the details have it."""
    choices = (("off", "agents are started"), ("on", "no agent is started"))
    freeze = Control("start no agents", now="off", choices=choices)
    rows = control_rows({"freeze": freeze, "send": Control("let it send", now="1 (yes)")})
    for width in (80, 120, 200):
        listed = [words([line]).split("  ") for _, line in view.control_table(rows, width)[1]]
        assert [[part.strip() for part in one if part][:2] for one in listed] == [
            ["freeze", "off" if width == 80 else "off (agents are started)"],
            ["send", "1 (yes)"],
        ]
    assert "off (agents are started)" in words(view.detail_lines("freeze", freeze, 80))


def test_the_target_of_a_control_has_its_name() -> None:
    """The details of one queue name that queue, those of a control what it is asked for."""
    control = Control("stop its jobs", target="queue")
    for target, text in (("", "for            queue"), ("orders", "for            queue orders")):
        lines = words(view.detail_lines("pause", control, 80, target)).splitlines()
        assert text in [line.strip() for line in lines]


async def test_the_title_counts_the_controls_that_are_below_the_pane() -> None:
    """A list that is longer than its pane says how many of its rows are shown."""
    with patch.object(Flushing, "controls", {f"control {n}": TYPED for n in range(10)}):
        async with an_operator(flushing(), size=(80, 18)) as operator:
            await board(operator)
            await operator.until(lambda: re.search(r"9 Controls \d of 10 ", operator.text))
            await operator.pilot.resize_terminal(80, 60)
            await operator.sees("9 Controls 10 ")


async def test_a_warning_is_an_alert_that_leads_here(whole: ZgbConsolePlace) -> None:
    """A warning of the queue is on the overview, and Enter on it shows the controls."""
    whole.facts = whole.facts._replace(warnings=("cron was silent for 3m",))
    async with an_operator(whole.place(), first=keys.OVERVIEW) as operator:
        await operator.sees("WARN", "cron was silent for 3m")
        await operator.step("enter", ControlsScreen, "! cron was silent for 3m", "tokens 3 of 5")
        whole.facts = whole.facts._replace(warnings=())
        await operator.until(lambda: "cron" not in operator.page)
        await operator.until(lambda: not operator.console.sessions[0].alerts)


async def test_c_on_the_overview_is_for_the_queue_under_the_cursor(whole: ZgbConsolePlace) -> None:
    """With several places it opens the one under the cursor; one without controls says so."""
    async with an_operator(plain(), whole.place(), first=keys.OVERVIEW) as operator:
        await operator.sees("[WARN]")
        await operator.step("tab C", view.NO_CONTROLS)
        await operator.step("escape j C", ControlsScreen, PAUSE)
        await operator.opens(OverviewScreen, "1")


def test_problems_are_listed_as_targets() -> None:
    """Where a control has a target, the problems of the queue are listed with their reasons."""
    problems = [Problem(f"data/m{number}", "nothing leads to it") for number in range(12)]
    texts = ["".join(text for text, _ in line) for line in view.target_lines(TYPED, problems, 80)]
    assert "data/m0  nothing leads to it" in texts[2]
    assert texts[-1] == "  +3 more"
    assert view.target_lines(TYPED, [], 80) == []


class Lanes(MemoryStore):
    """A store whose queues each have a rate of their own, and can be paused one by one."""

    def __init__(self, memory: MemoryTasks, values: dict[str, dict[str, str]]) -> None:
        super().__init__(memory)
        self.values = values

    @property
    def controls(self) -> Mapping[str, Control]:  # type: ignore[override]
        """With the present values."""
        rates, stops = ([ControlTarget(*each) for each in v.items()] for v in self.values.values())
        rates[1] = rates[1]._replace(bounds=(1, 10))
        rates.append(ControlTarget("old", refusal="its queue is drained"))
        rate = Control("most tasks a minute", "a queue", "tasks", bounds=(1, 100))
        choices = (("0", "resume"), ("1", "pause"))
        stop = Control("stop a queue", "a queue", "0 or 1", choices=choices, is_pause=True)
        return {"rate": rate._replace(targets=(*rates,)), "stop": stop._replace(targets=(*stops,))}

    def control(self, name: str, target: str = "", value: str = "") -> str:
        """Set the value of one queue."""
        self.values[name][target] = value
        return f"{name} of {target} is {value}"


@pytest.fixture
def values() -> dict[str, dict[str, str]]:
    """The values of each queue by control."""
    return {"rate": {"fast": "50", "slow": "5"}, "stop": {"fast": "0", "slow": "1"}}


@pytest.fixture
def lanes(values: dict[str, dict[str, str]], tmp_path: Path) -> Place:
    """A place with two queues, one of which is paused."""
    memory = a_memory(some_tasks())
    journal = Journal(f"{tmp_path}/journal")
    return a_place(memory, open=lambda: Lanes(memory, values), journal=journal)


async def test_each_target_has_its_plan(lanes: Place, values: dict[str, dict[str, str]]) -> None:
    """Each target has its own value, refusal and bounds; its plan changes it alone."""
    async with an_operator(lanes, size=(120, 40)) as operator:
        await board(operator)
        rows = [" ".join(line.split()[:3]) for line in operator.rows.splitlines()]
        assert rows == ["rate fast 50", "rate slow 5", "rate old -", "stop fast 0", "stop slow 1"]
        await operator.sees("Controls 5", "PAUSED 1 of 2", "its queue is drained")
        operator.picker.select_key("rate old")
        await operator.step("enter", "rate: its queue is drained")
        await planned(operator, "rate slow")
        await operator.step("backspace backspace 20 enter", "expected a whole number from 1 to 10")
        await operator.step(
            "backspace backspace 8 enter",
            "rate, for slow: most tasks a minute",
            "Now 5, then 8",
            "can be set back to 5",
            "--target slow --value 8",
        )
        await operator.step("y", "rate of slow is 8")
        assert values["rate"] == {"fast": "50", "slow": "8"}


async def test_the_pause_key_asks_which_queue(lanes: Place) -> None:
    """P on a place where queues are paused one by one prompts for the queue, and refuses others."""
    async with an_operator(lanes, size=(120, 40)) as operator:
        await operator.until(lambda: queue_of(operator.console).session.inspector.controls)
        await operator.press("P")
        screen = await read(operator)
        await operator.step("x enter", "no target 'fastx', expected one of fast, slow")
        await operator.press(*["backspace"] * 5, *"slow", "enter")
        await operator.until(lambda: operator.console.screen is screen)
        await operator.sees("stop, for slow", "Now 1 (pause), then 0 (resume)")
