"""A verb acts on what was painted, under the cursor or marked, when its key is handled."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from textual.events import Event, Key
from textual.pilot import Pilot

from engine.formats.base.memory import MemoryTasks
from engine.model import State, Task
from tests.console_operator import ConsoleOperator, words
from tests.console_places import (
    PATIENCE,
    Clock,
    a_console,
    a_memory,
    a_place,
    a_task,
    loaded,
    queue_of,
    task_list,
    until,
)
from tests.examples import few_of
from tui.app import Console
from tui.plan.screen import PlanScreen
from tui.terminal.clipboard import screen_text
from tui.terminal.safe_app import SafeApp
from tui.text.hints import scope_words
from tui.text.task_list import short_id

SIZE = (100, 60)
"""Every row is on screen, and nothing is beside the list."""

ROW = re.compile(r"^\|?([> ])([*x ])[# ]([0-9a-f]{8}) ")
"""A row: cursor, mark, and the last characters of the id, which no other task here has."""
SCOPE = "acts on "

TABS = {"2": State.PENDING, "4": State.DEAD}
WORDS = ("again", "mail", "feeds", "unknown", "tries>1", "age>1h")
LETTERS = "ikated"
"""Columns that every tab can be ordered by, and so pressed in the menu."""


class Seen(NamedTuple):
    """What the operator sees of the list before a verb is pressed."""

    cursor: str
    """The id in the row of the cursor; "" when there is none, or what was there is gone."""
    marked: frozenset[str]
    scope: str
    """What the scope line says."""

    @property
    def meant(self) -> frozenset[str]:
        """Which tasks a verb may be for."""
        many = self.scope.startswith("all") or "marked" in self.scope
        return self.marked if many else frozenset({self.cursor} - {""})


def seen(console: Console) -> Seen:
    """The list, as it is painted now."""
    lines = screen_text(console.screen).splitlines()
    rows = [match.groups() for line in lines if (match := ROW.match(line))]
    scope = next((line.partition(SCOPE)[2] for line in lines if SCOPE in line), "")
    if not scope:  # a long message has its place
        scope = words([scope_words(queue_of(console).parts.scope)])
    return Seen(
        next((id for cursor, sign, id in rows if cursor == ">" and sign != "x"), ""),
        frozenset(id for _, sign, id in rows if sign == "*"),
        scope,
    )


class Night(ConsoleOperator):
    """An operator who types, and a queue that does not wait for that."""

    def __init__(
        self, console: Console, pilot: Pilot[None], memory: MemoryTasks, seed: int
    ) -> None:
        super().__init__(console, pilot)
        self.memory, self.chance = memory, random.Random(seed)
        self.number = 100
        self.planned = self.refused = 0
        self.painted: Seen | None = None
        """The list as it was painted when the key of the verb was handled."""

    def meddle(self) -> None:
        """Add, remove, move or change tasks, without waiting until that is on screen."""
        with self.memory.condition:
            for _ in range(self.chance.randint(1, 3)):
                self._meddle_once(sorted(self.memory.tasks.values(), key=lambda task: task.id))

    def _meddle_once(self, tasks: list[Task]) -> None:
        chance, task = self.chance, self.chance.choice(tasks)
        act, new = chance.choice(("add", "remove", "move", "change")), None
        if (act == "add" and len(tasks) >= 45) or (act == "remove" and len(tasks) <= 8):
            return
        if act == "add":
            self.number += 1
            at = chance.randint(0, 1000) * 1000 + self.number
            task = new = a_task(at, chance.choice((State.PENDING, State.DEAD)))
        elif act == "move":
            state = State.DEAD if task.state is State.PENDING else State.PENDING
            extra = {"dead_since": "1795160000"} if state is State.DEAD else {}
            new = task._replace(state=state, extra=extra)
        elif act == "change":
            words = chance.choice(("421 again", "user unknown", "mail", "feeds"))
            new = task._replace(error=words, attempts=(task.attempts or 0) + 1)
        self.memory.put(("", task.id), new)

    async def press(self, *pressed: str) -> None:
        """Press keys; only sometimes wait until what they lead to is there."""
        await super().press(*pressed)
        if self.chance.random() < 0.5:
            await self.rest()

    async def rest(self) -> None:
        """Wait until the list shows what it was asked for."""
        await until(self.pilot, lambda: task_list(self.console).rows.view.loaded)
        await self.pilot.pause()

    async def work(self) -> None:
        """One of the things that one does between two verbs."""
        parts = self.queue.parts
        # Two were typed into one another, or no verb has a task.
        if parts.filter.error or (parts.filter.filter.text and not parts.rows.view.total):
            await self.press("escape")
        one = self.chance.choice
        # Without a range or a filter Esc leaves the screen.
        clears = [("escape",)] if "/ filter" in self.text else []
        key_groups: Sequence[Sequence[str]] = (
            *((one("jkjjgG"),) for _ in range(6)),
            *(("space",) for _ in range(3)),
            ("v", *one(("jj", "kk", "jjj")), "v"),
            ("v", "j"),
            *clears,
            ("*",),
            ("\\",),
            (one(tuple(TABS)),),
            ("o", one(LETTERS)),
            ("/", *one(WORDS), "enter"),
        )
        await self.press(*one(key_groups))

    async def act(self, verb: str) -> None:
        """Press a verb, and compare the plan with what was on screen."""
        screen = self.queue
        await self.pilot.press(verb)
        await until(self.pilot, lambda: not any(w.group == "plan" for w in screen.workers))
        before, plan_screen = self.painted, self.console.screen
        assert before is not None
        if not isinstance(plan_screen, PlanScreen):
            self.refused += 1
            await self.pilot.pause()
            assert screen.parts.message.text, f"nothing was planned and nothing said: {before}"
            return
        rows = {row.id for row in plan_screen.facts.plan.rows}
        planned = frozenset(map(short_id, rows))
        self.planned += bool(planned)
        state = screen.parts.state
        assert planned <= before.meant or before.scope.startswith("all"), before
        ids = {task.id for task in self.memory.tasks.values() if task.state is state}
        if len(before.meant) > 1 or "marked" in before.scope:
            # A mark that the filter hides when the plan is made is in none.
            ids &= await screen.session.inspector.queries.matching_ids(screen.parts.query, ids)
        missed = (before.meant - planned) & set(map(short_id, ids))
        assert not missed or before.scope.startswith("all"), before
        await self._end_of(plan_screen, frozenset(rows))

    async def _apply(self, screen: PlanScreen) -> None:
        """Type what it asks for, as often as what it asks for changes; not where that is a replay,
        which no worker here would run, nor where there is nothing left of it."""
        deadline = time.monotonic() + PATIENCE
        facts = screen.facts
        while screen.report is None and facts.amount and facts.pace is None:
            assert self.console.is_running, "the console has crashed"  # it would take keys forever
            assert time.monotonic() < deadline, f"not applied\n{self.text}"
            if screen.is_open:
                await self.pilot.press(*(screen.expected_digits or "y"))
            await self.pilot.pause()

    async def _end_of(self, screen: PlanScreen, planned: frozenset[str]) -> None:
        """Drop the plan or apply it: nothing else than what it names has moved then."""
        if planned and self.chance.random() < 0.5:
            before = {task.id: task.state for task in self.memory.tasks.values()}
            await self._apply(screen)
            after = {task.id: task.state for task in self.memory.tasks.values()}
            assert {id for id in before if after.get(id) is not before[id]} <= planned
        await self.pilot.press("escape")
        await self.rest()


@pytest.mark.parametrize("seed", few_of({"0", "1"}, map(str, range(8))))
async def test_a_plan_is_for_what_was_painted(seed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any change between keys, a plan is for what the screen showed before."""
    act = SafeApp._act

    async def note_and_act(app: SafeApp, event: Event) -> None:
        if isinstance(event, Key) and event.key in ("X", "R"):
            night.painted = seen(console)
        await act(app, event)

    monkeypatch.setattr(SafeApp, "_act", note_and_act)
    states = (State.PENDING, State.DEAD)
    memory = a_memory([a_task(number, states[number % 2]) for number in range(20)])
    clock = Clock()
    console = a_console(a_place(memory), clock=clock, start_armed=True)
    async with console.run_test(size=SIZE) as pilot:
        await loaded(pilot)
        night = Night(console, pilot, memory, int(seed))
        await night.press("4")
        for number in range(40):
            if number >= 9:  # a busy machine had the list still loading at most verbs
                if night.planned >= 3:
                    break
                await night.rest()
            for _ in range(night.chance.randint(0, 3)):
                await night.work()
            night.meddle()
            if night.chance.random() < 0.3:
                clock.now += night.chance.choice((1, 6))
                night.queue.tick()
            await night.act(night.chance.choice("XXR"))
    assert night.planned >= 3, (night.planned, night.refused)
