"""The screen of tasks by queue, kind, sender ..., and its command."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.formats.base.memory import MemoryStore
from engine.index.group_counts import GroupTable, TaskGroup
from engine.index.schema import STATES, Query
from engine.model import State, Task
from engine.places.place import GroupFacts
from tests.console_operator import ConsoleOperator, an_operator, words
from tests.console_places import (
    NOW,
    Clock,
    a_memory,
    a_place,
    a_task,
    disk_place,
    make_spool,
    some_tasks,
)
from tests.nftban_queues import Run
from tests.tables import each
from tests.tui.asked_screen import AskedRowsScreen
from tui.groups import group_lines
from tui.groups.group_lines import bar_legend, group_table, group_values
from tui.groups.parts import GroupParts, TaskGroups
from tui.groups.screen import GROUP_ROWS, ClustersScreen, GroupsScreen
from tui.overview.screen import OverviewScreen
from tui.plan.screen import PlanScreen
from tui.queue.screen import QueueScreen
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.key_rows import absent_actions, hints_of, press
from tui.screens.rows_parts import ROW_HAS_LEFT, RowCursor
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.glyphs import ASCII, MARK
from tui.widgets.picker import Picker

NOT_BY_TIME = GroupFacts("etrn/*", 0, None, "QueueOnly")
"""What is known of a thread that no time starts."""

ODD = 'say "x" \x1b[2J|y'
"""The name of a kind, as another program may choose it."""


def mails() -> list[Task]:
    """Tasks in two queues, some for a destination, one of an odd kind."""
    tasks = [a_task(number, queue="slow" if number % 2 else "fast") for number in range(6)]
    to = {"destination": "a@mx.example", "kind": "mail"}
    tasks += [a_task(number, State.DEAD, queue="slow", **to) for number in range(10, 14)]
    return [*tasks, a_task(20, State.HELD, queue="fast", kind=ODD)]


@asynccontextmanager
async def groups(tasks: list[Task], *before: str, **more: Any) -> AsyncIterator[ConsoleOperator]:
    """The groups of a place in memory, after these keys on its list."""
    async with an_operator(a_place(a_memory(tasks)), clock=lambda: NOW, **more) as operator:
        await operator.opens(QueueScreen, "2", *before)
        await operator.opens(GroupsScreen, "b")
        await operator.until(lambda: operator.picker.rows)
        yield operator


async def test_a_line_is_a_group() -> None:
    """Each line has the counts of a group, the largest first; a wide screen has more columns."""
    async with groups(mails(), size=(200, 60)) as operator:
        for width, height in ((200, 60), (120, 40), (80, 24)):
            await operator.pilot.resize_terminal(width, height)
            await operator.until(lambda: ("SHARE" in operator.text) == (width > 80))  # noqa: B023
            titles = ("DEAD", "OLDEST", "NEXT", "ERROR", "[queue] kind destination")
            await operator.sees("Groups 2, tasks 11", *titles)
            slow, fast = operator.rows.splitlines()
            assert slow.split()[:2] == ["slow", "7"] and fast.split()[:2] == ["fast", "4"]
            assert "550 5.1.1 user unk" in slow
            await operator.sees("next Enter shows 3 tasks in pending", "acts on 3 pending in slow")
            await operator.sees("pending 3, newest first", "last error")
            operator.assert_inert()


@each(("width", "has_bar"), [(80, False), (120, True)])
def test_a_bar_goes_before_a_count(width: int, has_bar: bool) -> None:
    """Groups with tasks in each state have all counts at 80 columns, without the bar; where it is,
    a line of the frame says what its signs mean."""
    counts = tuple(336 * (state is State.PENDING) + 9 for state in STATES)
    group = TaskGroup("mail_send", counts, NOW - 60, NOW, error="550 unknown", error_at=NOW)
    named = {State.PENDING: "pending", State.ACTIVE: "work", State.DEAD: "DLQ", State.HELD: "held"}
    head, (line,) = group_table(
        GroupTable(by="kind", groups=(group,)), named, State.DEAD, NOW, width
    )
    titles = words([head]).split()
    assert {"PEND", "DLQ", "ALL"} <= {*titles} and ("SHARE" in titles) == has_bar
    assert "345" in words([line])
    legend = "█ pending  ▓ work  ▒ DLQ  ░ others" if has_bar else ""
    assert bar_legend(head, named) == legend


def test_a_state_of_few_tasks_goes_before_one_of_many() -> None:
    """At 80 columns 51 dead tasks have a column, and one that runs has none."""
    counts = {State.PENDING: 151, State.ACTIVE: 1, State.DEAD: 51}
    group = TaskGroup("geoban_apply", tuple(counts.get(each, 0) for each in STATES), NOW, NOW)
    named = {State.PENDING: "pending", State.ACTIVE: "work", State.DEAD: "DLQ"}
    head, _ = group_table(GroupTable(by="kind", groups=(group,)), named, State.PENDING, NOW, 80)
    titles = words([head]).split()
    assert {"PEND", "DLQ"} <= {*titles} and "WORK" not in titles


async def test_groups_of_an_unavailable_place_are_unknown(tmp_path: Path) -> None:
    """Not 0: the title has `?`, and the reason stands where the details would be."""
    place = disk_place(tmp_path / "none")
    async with an_operator(place, clock=lambda: NOW, first=keys.OVERVIEW) as operator:
        await operator.opens(QueueScreen, "2")
        for key, title in (("b", "Groups ?"), ("c", "Clusters ?")):
            await operator.press(key)
            await operator.sees(title, "? unavailable: ", "no such folder")
            await operator.press("escape")


async def test_a_state_without_failures_names_the_one_with_them() -> None:
    """The clusters of waiting tasks are none: the dead ones are counted, with the keys to them."""
    tasks = [a_task(1, error=""), a_task(2, State.DEAD, error="550 unknown")]
    async with an_operator(a_place(a_memory(tasks)), clock=lambda: NOW) as operator:
        await operator.opens(QueueScreen, "2")
        await operator.step("c", ClustersScreen, "none in pending; 1 in dead: 4, then c")
        await operator.opens(QueueScreen, "4")
        await operator.step("c", ClustersScreen, "failed 1")


async def test_a_list_without_a_cluster_offers_no_action() -> None:
    """The keys for rows have no hints, and those of actions say that there is no task."""
    place = a_place(a_memory([a_task(1, error="")]))
    async with an_operator(place, clock=lambda: NOW, size=(300, 40)) as operator:
        await operator.opens(QueueScreen, "4")
        await operator.step("c", ClustersScreen, "no failed tasks")
        offered = " show | mark | stopped | retry | purge | hold "
        await operator.until(lambda: not re.search(offered, operator.line("hints")))
        await operator.step("X", "no task to act on acts on nothing")


async def test_dead_tasks_without_an_error_are_said_to_be_here() -> None:
    """They are in no cluster; the other places are not named for them."""
    place = a_place(a_memory([a_task(n, State.DEAD, error="") for n in (1, 2)]))
    async with an_operator(place, clock=lambda: NOW) as operator:
        await operator.opens(QueueScreen, "4")
        await operator.step("c", ClustersScreen, "2 tasks failed without an error: 4 lists them")


def test_the_last_error_of_two_groups_is_the_later_one() -> None:
    """Also of tasks that have not died, in any order of the groups."""
    counts = tuple(0 for _ in STATES)
    old = TaskGroup("a", counts, None, None, error="450 old", error_rank=1.0)
    new = TaskGroup("b", counts, None, None, error="451 new", error_rank=2.0)
    merged = [group_lines._add_groups(*both).error for both in ((old, new), (new, old))]
    assert merged == ["451 new", "451 new"]


class NoDead(MemoryStore):
    """A store that has no state for dead tasks: they wait for another attempt, or leave."""

    states = {State.PENDING: "queue", State.ACTIVE: "work"}


async def test_clusters_without_a_dead_state_are_of_waiting_tasks() -> None:
    """In the overview the pane of the clusters has those that `c` opens, which `]` leaves for the
    dead tasks of the next place; without any, it is said how many other places have."""
    waits = a_task(8, error="waits: its scheduler has not read it yet")
    waiting = a_memory([a_task(n, error="450 mailbox busy") for n in range(3)] + [waits])
    dead = a_memory([a_task(9, State.DEAD, error="550 unknown")])
    places = [
        a_place(waiting, open=lambda: NoDead(waiting), name="/srv/outbox", lock=None),
        a_place(a_memory([]), name="/srv/idle"),
        a_place(dead, name="/srv/other"),
    ]
    look: dict[str, Any] = {"clock": lambda: NOW, "size": (120, 40), "first": keys.OVERVIEW}
    async with an_operator(*places, **look) as operator:
        await operator.opens(OverviewScreen)
        await operator.sees("c Clusters: outbox 1", "450 mailbox busy")
        await operator.step("tab c", ClustersScreen, "outbox > queue > clusters", "failed 3")
        await operator.step("]", "idle", "no failed tasks here, 1 at other places: ] next place")
        await operator.step("]", "other", "550 unknown")
        await operator.step("[ [", "outbox", "450 mailbox busy")


def a_flood() -> list[Task]:
    """601 waiting mails: most are of one sender; each tenth goes to three recipients."""
    tasks = []
    for number in range(601):
        account = "ann" if number % 4 == 0 else ""
        sender = "ann@mx1.example" if account else "news@shop.example"
        amount = 1 + 2 * (number % 10 == 0)
        to = tuple(f"u{n}@{('Far', 'near')[n % 2]}.example" for n in range(amount))
        task = a_task(number, kind="mail", sender=sender, recipients=to, destination=to[0])
        tasks.append(task._replace(account=account))
    return tasks


async def test_the_alert_of_a_flood_leads_to_its_sender() -> None:
    """Enter on the alert leads to the sender with most mail, whose mails a verb acts on."""
    place = a_place(a_memory(a_flood()))
    async with an_operator(place, clock=lambda: NOW, first=keys.OVERVIEW) as operator:
        for size in ((80, 24), (120, 40)):
            await operator.pilot.resize_terminal(*size)
            await operator.sees("news@shop.example: 450 of 601", "Enter groups")
            rows = operator.console.screen.query_one("#alerts", Picker).rows
            (at,) = (at for at, row in enumerate(rows) if "news@shop" in words([row.line]))
            await operator.press("g", *["j"] * at)
            group = ("Groups 2, tasks 601", "[sender]", "acts on 450 pending in news@shop")
            await operator.step("enter", GroupsScreen, *group)
            await operator.step("H", PlanScreen, "type 450 to hold 450")
            mails = ("from=news@shop.example", "450 of 601", "TO")
            await operator.step("escape enter", QueueScreen, *mails)
            await operator.opens(OverviewScreen, "1")


async def test_unread_accounts_are_said_where_accounts_are_used() -> None:
    """Where accounts are shown or filtered by, it is said how many are not read."""
    unread = "accounts of 151 of 601 read"
    tasks = [task._replace(account=task.account or None) for task in a_flood()]
    place = a_place(a_memory(tasks), lock=None, listed_at=lambda: NOW - 34)
    place = place._replace(unread_accounts=lambda: unread)
    async with an_operator(place, clock=lambda: NOW, first=keys.OVERVIEW) as operator:
        await operator.sees("pending recipients by destination")
        for by in ("sender", "sender-domain", f"account; {unread}"):
            await operator.step("x", f"pending by {by}")
        await operator.sees("ann 151")
        await operator.pilot.resize_terminal(120, 40)
        await operator.sees(f"pending by account; {unread}", "ann 151")
        await operator.step("2", QueueScreen, "listed 34s")
        assert "accounts of" not in operator.text
        await operator.step("/ account:ann enter", unread, "151 of 601")
        await operator.step("escape b", GroupsScreen, "[sender]")
        for title in ("SENDER-DOMAIN", "ACCOUNT"):
            await operator.step("l", f"{title} ALL")
        for size in ((120, 40), (80, 24)):
            await operator.pilot.resize_terminal(*size)
            await operator.sees("Groups 1, tasks 151", f"({unread})")


async def test_destinations_of_mail_count_recipients() -> None:
    """The heading counts recipients; scope, plan and the list behind Enter count the mails."""
    async with groups(a_flood(), size=(120, 40)) as operator:
        await operator.sees("[sender]")  # all first recipients are in one domain
        titles = ("Groups 2, recipients 723", "[destination]", "far.example", "near.example")
        await operator.step("h", *titles)
        rows = [" ".join(row[3:].split()[:2]) for row in operator.rows.splitlines()]
        assert rows == ["far.example 662", "near.example 61"]
        near = "acts on 61 pending in near.example"
        await operator.step("j", "Enter shows 61 tasks in pending", near)
        sender = "acts on 450 pending in news@shop.example"
        await operator.step("j k right", "[sender]", "tasks 601", sender)
        await operator.step("left", "[destination]", "acts on 601 pending in far.example")
        await operator.step("j enter", QueueScreen, "dest=near.example", "61 of 601")


async def test_a_grouping_without_values_is_replaced() -> None:
    """If no task has a value for the grouping, the first with values is used, and it is said."""
    async with groups(mails(), size=(120, 40)) as operator:
        await operator.step("left", "DESTINATION ALL")
        screen = operator.console.screen
        assert isinstance(screen, GroupsScreen) and isinstance(screen.parts, TaskGroups)
        screen.parts.by = "group"
        screen.run("groups", screen.parts.follow)
        await operator.sees("no task here has a group: by queue", "QUEUE ALL")


async def test_a_group_opens_as_a_filtered_list() -> None:
    """Enter shows the tasks of the group; within the filter, `b` groups by the next column."""
    async with groups(mails(), size=(120, 40)) as operator:
        await operator.step("enter", QueueScreen, "queue=slow", "3 of 6")
        await operator.opens(GroupsScreen, "b")
        await operator.until(lambda: operator.picker.rows)
        await operator.sees("filter queue=slow", "KIND")
        assert "fast" not in operator.rows
    for kind in ('say "x" y|z', "", "!kind=z"):
        tasks = [a_task(1, kind=kind, state=State.HELD), a_task(2), a_task(3)]
        async with groups(tasks, size=(120, 40)) as operator:
            while "acts on 0 pending" not in operator.line("word"):
                await operator.press("j")
            await operator.sees("next Enter shows 1 task in held")
            await operator.step("enter", QueueScreen, "[held 1/1]", "1 of 1", "kind=")


async def test_a_name_with_control_characters_is_no_filter() -> None:
    """Its tasks can be acted on, but no filter with such a name opens a list."""
    async with groups([a_task(1, kind=ODD)], size=(120, 40)) as operator:
        await operator.step("enter", "list not opened")
        await operator.step("H", PlanScreen, "HOLD 1 TASK")
        operator.assert_inert()
        queue = operator.console.navigator.queue_screen()
        await operator.press("escape")
        operator.console.navigator.goto(Target(keys.LIST, filter=f'kind="{ODD}"'))
        await operator.until(lambda: operator.console.screen is queue)
        await operator.sees("kind=")
        operator.assert_inert()


async def test_other_groups_are_counted() -> None:
    """After the largest 200 groups a line counts the others and their tasks."""
    tasks = [a_task(number, kind=f"kind-{number:03}") for number in range(205)]
    async with groups(tasks, size=(120, 40)) as operator:
        await operator.sees("Groups 205, tasks 205")
        await operator.step("G", "(5 others, 5 tasks)")


def test_the_command_prints_the_groups(root: str, spooldeck: Run) -> None:
    """One line for each group and a summary, or an object each; options choose groups."""
    make_spool(Path(root), some_tasks(30, 0, 12))
    ended = spooldeck("groups", str(root))
    assert (ended.returncode, ended.stderr) == (0, "")
    head, *rows, summary = ended.stdout.splitlines()
    assert head.split()[:2] == ["KIND", "ALL"]
    assert summary == f"42 tasks by kind, {len(rows)} groups"
    output = spooldeck("groups", str(root), "--json", "--state", "dlq", "--by", "kind").stdout
    values = [json.loads(line) for line in output.splitlines()]
    assert sum(each["counts"]["dlq"] for each in values) == 12
    assert all(each["total"] == each["counts"]["dlq"] and each["error"] for each in values)
    by = ("groups", "--by", "destination", "--filter", "kind=mail_send", root)
    one = json.loads(spooldeck(*by, "--json").stdout)
    assert (one["name"], one["total"]) == ("", 14)
    assert spooldeck(*by).stdout == "no task here has a destination; expected --by kind\n"
    assert spooldeck("groups", str(root), "--by", "colour").returncode == 64


@each(("payloads", "is_shown"), [(2, True), (3, False), (None, False)])
def test_messages_are_counted_where_they_are_not_as_many_as_tasks(
    payloads: int | None, is_shown: bool
) -> None:
    """A column that equals ALL in each row is not shown."""
    counts = tuple(3 * (state is State.PENDING) for state in STATES)
    group = TaskGroup("smtp/a", counts, NOW - 60, None, payloads=payloads)
    named, table = {State.PENDING: "waiting"}, GroupTable(by="queue", groups=(group,))
    head, _ = group_table(table, named, State.PENDING, NOW, 120)
    assert ("N" in words([head]).split()) == is_shown


def test_a_group_that_no_time_starts_has_its_reason() -> None:
    """In its row and in JSON it has the reason once, and no next time; a time 0 is now."""
    counts = tuple(int(state is State.PENDING) for state in STATES)
    error = "waits: QueueOnly: only ETRN"
    group = TaskGroup("etrn/e", counts, NOW - 60, None, error=error, error_at=None, payloads=0)
    named, facts = {State.PENDING: "waiting"}, {"etrn/e": NOT_BY_TIME}
    table = GroupTable(by="queue", groups=(group,))
    head, (line,) = group_table(table, named, State.PENDING, NOW, 100, title="thread", facts=facts)
    assert {"N", "A"} <= {*words([head]).split()}  # messages, and agents
    assert words([line]).split()[-6:] == ["1m", "-", "waits:", "QueueOnly:", "only", "ETRN"]
    details = words(group_lines.detail_lines(group, named, NOW, 80))
    assert "waits        QueueOnly: only ETRN" in details and "last error" not in details
    named |= {State.DONE: "done"}
    done = group._replace(counts=tuple(2 * (state is State.DONE) for state in STATES), payloads=2)
    failed = group._replace(error="unavailable_450: 450 4.2.0 busy")
    rows = group_table(table._replace(groups=(failed,)), named, State.PENDING, NOW, 100)[1]
    for text in (words(rows), words(group_lines.detail_lines(failed, named, NOW, 80))):
        assert "450 4.2.0 busy" in text and "unavailable" not in text
    both = GroupTable(by="queue", groups=(group, done))
    head, (_, line) = group_table(both, named, State.PENDING, NOW, 78, title="thread", facts=facts)
    assert words([head]).split()[:4] == ["THREAD", "ALL", "WAIT", "DONE"]  # before messages
    assert words([line]).split()[:4] == ["etrn/e", "2", ".", "2"]
    (values,) = group_values(table, [group], named, facts)
    assert (values["next_due"], values["pending"], values["agents"]) == (None, "QueueOnly", 0)
    (values,) = group_values(table, [group._replace(next_due=0.0)], named)
    assert (values["next_due"], values["next_due_at"]) == (0.0, None)


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
async def group_parts(
    tasks: list[Task], state: State, *, read_only: bool = False
) -> AsyncIterator[Operator]:
    """The groups of a place in memory, from the tab of a state."""
    clock, screen = Clock(), AskedRowsScreen()
    session = PlaceSession(a_place(a_memory(tasks)), clock)
    context = ConsoleContext("mx1", Arming(clock, read_only), clock, places=1)
    await session.inspector.start()
    try:
        await session.inspector.scan_now()
        parts = TaskGroups(session, context, screen, Query(state))
        parts.groups = await parts.read()
        yield Operator(parts, screen)
    finally:
        await session.inspector.close()


async def test_a_verb_acts_on_the_group_under_the_cursor() -> None:
    """A plan has its tasks in the state of the list; without such tasks none opens."""
    tasks = [a_task(number, State.DEAD, kind="mail") for number in range(3)]
    async with group_parts([*tasks, a_task(9, kind="report")], State.DEAD) as operator:
        assert operator.press("R") == "no group selected"
        operator.screen.cursor = RowCursor(has_left=True)
        assert operator.press("R") == operator.press("enter") == ROW_HAS_LEFT
        operator.select("report")
        assert operator.press("R") == "no task of this group in dead; Enter shows those in pending"
        assert operator.screen.plans == []
        operator.select("mail")
        assert operator.press("R") == ""
        (asked,) = operator.screen.plans
        assert (asked.verb, asked.ids, asked.query.state) == ("retry", None, State.DEAD)
        assert asked.query.filter.text == "kind=mail"
        assert asked.describe_scope(3) == "all in this group: kind mail"


async def test_a_verb_acts_on_the_marked_groups() -> None:
    """Space marks and unmarks; a plan has the tasks of all marked groups, not of the cursor's."""
    tasks = [a_task(number, State.DEAD, kind="mail") for number in range(3)]
    tasks += [a_task(5, State.DEAD, kind="ban"), a_task(6, State.DEAD, kind="report")]
    async with group_parts(tasks, State.DEAD) as operator:
        for name in ("mail", "ban", "report", "ban"):
            operator.select(name)
            operator.press("space")
        operator.select("ban")
        assert words([operator.parts.next_step(100)]).endswith("acts on 4 tasks in 2 marked groups")
        marked = [row.key for row in operator.parts.rows(80).rows if MARK in words([row.line])]
        assert marked == ["kind=mail", "kind=report"]
        operator.press("X")
        (asked,) = operator.screen.plans
        assert asked.query.filter.text == "kind=mail|kind=report"
        assert asked.describe_scope(4) == "all in these 2 groups: kind mail, report"
        operator.parts.groups = [group for group in operator.parts.groups if group.name == "ban"]
        assert operator.press("X") == "the marked groups have left: \\ clears the marks"
        assert operator.screen.plans == [asked]
        operator.parts.plan_applied()
        assert [group.name for group in operator.parts.chosen] == ["ban"]


async def test_enter_lists_the_tasks_of_a_group() -> None:
    """In the state of the list, or in that of most of its tasks, if its name can be a filter."""
    odd = a_task(5, State.DEAD, kind="a\x1b")
    async with group_parts([a_task(1, kind="mail"), odd], State.DEAD) as operator:
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
    async with group_parts(tasks, State.PENDING) as operator:
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
    async with group_parts(some_tasks(), State.DEAD, read_only=read_only) as operator:
        hints = {hint.shown for hint in hints_of(GROUP_ROWS, operator.parts)}
        absent = absent_actions(GROUP_ROWS, operator.parts)
        assert "L" not in hints and ("R" in hints) != read_only
        assert ({"plan('release')", "arm"} & absent == {"plan('release')", "arm"}) == read_only


def test_the_parts_of_a_bar_differ_without_colours() -> None:
    """Each state of a group has another fill, also in ASCII."""
    group = TaskGroup("a", (3,) * len(State), None, None)
    text = words([group_lines.state_bar(group, group.total, 24)])
    assert {"█", "▓", "▒", "░"} == {*text}
    assert len({*text.translate(ASCII)}) == 4
