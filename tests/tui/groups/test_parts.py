"""The parts of the screens of groups and their keys, without an app: scope, refusals, Enter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.index.schema import Query
from engine.model import State, Task
from tests.console_places import Clock, a_memory, a_place, a_task, some_tasks
from tests.tui.asked_screen import AskedRowsScreen
from tui.groups.parts import GroupParts, TaskGroups
from tui.groups.screen import GROUP_ROWS
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.key_rows import absent_actions, hints_of, press
from tui.screens.rows_parts import ROW_HAS_LEFT, RowCursor
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys


class Operator:
    """Presses the keys of the groups of a place."""

    def __init__(self, parts: GroupParts[Any], screen: AskedRowsScreen) -> None:
        self.parts, self.screen = parts, screen

    def press(self, *pressed: str) -> str:
        """Press keys; the message after the last one."""
        for key in pressed:
            self.parts.message.clear()
            press(GROUP_ROWS, key, self.parts, self.parts.say)
        return self.parts.message.text

    def select(self, name: str) -> None:
        """Put the cursor on a group."""
        group = next(each for each in self.parts.groups if each.name == name)
        self.screen.cursor = RowCursor(self.parts.key_of(group))


@asynccontextmanager
async def groups(
    tasks: list[Task], state: State, *, read_only: bool = False
) -> AsyncIterator[Operator]:
    """The groups of a place in memory, from the tab of a state."""
    clock, screen = Clock(), AskedRowsScreen()
    session = PlaceSession(a_place(a_memory(tasks)), clock)
    context = ConsoleContext("mx1", Arming(clock, read_only), clock, places=1)
    await session.inspector.start()
    try:
        await session.inspector.scan_now()
        query = Query(state)
        parts = TaskGroups(session, context, screen, query)
        parts.groups = await parts.read()
        yield Operator(parts, screen)
    finally:
        await session.inspector.close()


async def test_a_verb_acts_on_the_group_under_the_cursor() -> None:
    """A plan has its tasks in the state of the list; without such tasks none opens."""
    tasks = [a_task(number, State.DEAD, kind="mail") for number in range(3)]
    async with groups([*tasks, a_task(9, kind="report")], State.DEAD) as operator:
        assert operator.press("R") == "no group selected"
        operator.screen.cursor = RowCursor(has_left=True)
        assert operator.press("R") == operator.press("enter") == ROW_HAS_LEFT
        operator.select("report")
        said = "no task of this group in dead; Enter shows those in pending"
        assert operator.press("R") == said
        assert operator.screen.plans == []
        operator.select("mail")
        assert operator.press("R") == ""
        (asked,) = operator.screen.plans
        assert (asked.verb, asked.ids, asked.query.state) == ("retry", None, State.DEAD)
        assert asked.query.filter.text == "kind=mail"
        assert asked.describe_scope(3) == "all in this group: kind mail"


async def test_enter_lists_the_tasks_of_a_group() -> None:
    """In the state of the list, or in that of most of its tasks, if its name can be a filter."""
    odd = a_task(5, State.DEAD, kind="a\x1b")
    async with groups([a_task(1, kind="mail"), odd], State.DEAD) as operator:
        operator.select("mail")
        operator.press("enter")
        (target,) = operator.screen.targets
        assert target == Target(keys.LIST, state=State.PENDING, filter="kind=mail")
        operator.select(odd.kind)
        assert "control characters" in operator.press("enter")
        assert len(operator.screen.targets) == 1


async def test_the_grouping_is_read_again_when_it_turns() -> None:
    """Left and Right choose the previous and next grouping that has several values, in a circle."""
    tasks = [a_task(1, queue="fast"), a_task(2, queue="slow", kind="mail", destination="a@b.c")]
    async with groups(tasks, State.PENDING) as operator:
        grouping, seen = operator.parts, list[str]()
        assert isinstance(grouping, TaskGroups)
        for key in ("l", "right", "l", "h", "left", "h"):
            seen.append(grouping.by)
            operator.press(key)
            assert [*operator.screen.questions] == ["groups"]
            grouping.groups = await grouping.read()
        first, second, third, *others = seen
        assert len({first, second, third}) == 3 and others == [first, third, second]


@pytest.mark.parametrize("read_only", [False, True])
async def test_the_keys_are_those_of_the_state(read_only: bool) -> None:
    """Verbs of other states have no hint; a console that changes nothing has no verbs at all."""
    async with groups(some_tasks(), State.DEAD, read_only=read_only) as operator:
        hints = {hint.shown for hint in hints_of(GROUP_ROWS, operator.parts)}
        absent = absent_actions(GROUP_ROWS, operator.parts)
        assert "L" not in hints and ("R" in hints) != read_only
        assert ({"plan('release')", "arm"} & absent == {"plan('release')", "arm"}) == read_only
