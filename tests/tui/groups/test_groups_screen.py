"""The screen of tasks by queue, kind, sender ..., and its command."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.index.group_counts import GroupTable, TaskGroup
from engine.index.schema import STATES
from engine.model import State, Task
from engine.places.place import GroupFacts
from tests.console_operator import ConsoleOperator, an_operator, words
from tests.console_places import (
    NOW,
    a_memory,
    a_place,
    a_stuck_lock,
    a_task,
    disk_place,
    make_spool,
    some_tasks,
)
from tests.nftban_queues import Run
from tui.groups.group_lines import group_table, group_values
from tui.groups.parts import TaskGroups
from tui.groups.screen import GroupsScreen
from tui.plan.screen import PlanScreen
from tui.queue.screen import QueueScreen
from tui.screens.target import Target
from tui.text import keys
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


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_a_line_is_a_group(size: tuple[int, int]) -> None:
    """Each line has the counts of one group; what is not counted by its tab has columns on a wide
    screen, and bars below. The largest group is first, the last error is that of the last death."""
    async with groups(mails(), size=size) as operator:
        await operator.sees(
            "Groups 2, tasks 11", "OLDEST", "NEXT", "ERROR", "[queue] kind destination"
        )
        slow, fast = operator.rows.splitlines()
        assert slow.split()[:2] == ["slow", "7"] and fast.split()[:2] == ["fast", "4"]
        assert "550 5.1.1 user unk" in slow
        assert ("DEAD" in operator.text) == (size[0] > 80)
        await operator.sees("next Enter shows 3 tasks in pending", "acts on 3 pending in slow")
        await operator.sees("pending 3, newest first", "last error")
        operator.assert_inert()


async def test_groups_of_an_unavailable_place_are_unknown(tmp_path: Path) -> None:
    """Not 0: the title has `?`, and the reason stands where the details would be."""
    place = disk_place(tmp_path / "none")
    async with an_operator(place, clock=lambda: NOW, first=keys.OVERVIEW) as operator:
        await operator.opens(QueueScreen, "2")
        for key, title in (("b", "Groups ?"), ("c", "Clusters ?")):
            await operator.press(key)
            await operator.sees(title, "? unavailable: ", "no such folder")
            await operator.press("escape")


async def test_the_grouping_is_turned_like_tabs() -> None:
    """Left and Right group by what tasks have a value for, in both directions, and round."""
    async with groups(mails(), size=(120, 40)) as operator:
        for key, title in (
            ("right", "KIND"),
            ("l", "DESTINATION"),
            ("right", "QUEUE"),
            ("h", "DESTINATION"),
        ):
            await operator.press(key)
            await operator.sees(f"{title} ALL")
        await operator.sees("mx.example", "(none)")
        operator.assert_inert()


def a_flood() -> list[Task]:
    """601 waiting mails: most are of one sender; each tenth goes to three recipients."""
    tasks = []
    for number in range(601):
        sender = "ann@mx1.example" if number % 4 == 0 else "news@shop.example"
        to = tuple(
            f"u{n}@{('Far', 'near')[n % 2]}.example" for n in range(1 + 2 * (number % 10 == 0))
        )
        account = "ann" if number % 4 == 0 else ""
        task = a_task(number, kind="mail", sender=sender, recipients=to, destination=to[0])
        tasks.append(task._replace(account=account))
    return tasks


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_alert_of_a_flood_leads_to_its_sender(size: tuple[int, int]) -> None:
    """Enter on the alert groups by sender with the cursor on the one with most mail; a verb there
    plans for its mails alone, and Enter lists them."""
    place = a_place(a_memory(a_flood()))
    async with an_operator(place, clock=lambda: NOW, size=size, first=keys.OVERVIEW) as operator:
        await operator.sees("news@shop.example: 450 of 601", "Enter groups")
        picker = operator.console.screen.query_one("#alerts", Picker)
        lines = [words([row.line]) for row in picker.rows]
        (at,) = (at for at, line in enumerate(lines) if "news@shop" in line)
        await operator.press(*["j"] * at)
        await operator.opens(GroupsScreen, "enter")
        await operator.sees("Groups 2, tasks 601", "[sender]", "acts on 450 pending in news@shop")
        await operator.press("H")
        await operator.until(lambda: isinstance(operator.console.screen, PlanScreen))
        await operator.sees("type 450 to hold 450")
        await operator.press("escape")
        await operator.opens(QueueScreen, "enter")
        await operator.sees("from=news@shop.example", "450 of 601", "FROM", "TO")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_unread_accounts_are_said_where_accounts_are_used(size: tuple[int, int]) -> None:
    """Below the groups by account, above the age table by account, and beside a list that is
    filtered by account; a mail whose account is not read is in no group."""
    tasks = [task._replace(account=task.account or None) for task in a_flood()]
    place = a_place(a_memory(tasks))._replace(
        unread_accounts=lambda: "accounts of 151 of 601 read",
        listed_at=lambda: NOW - 34,
        lock=None,
    )
    async with an_operator(place, clock=lambda: NOW, size=size, first=keys.OVERVIEW) as operator:
        await operator.sees("pending recipients by destination")
        for by in ("sender", "sender-domain", "account; accounts of 151 of 601 read"):
            await operator.press("x")
            await operator.sees(f"pending by {by}")
        await operator.sees("ann 151")
        await operator.opens(QueueScreen, "2")
        await operator.sees("listed 34s")
        assert "accounts of" not in operator.text
        await operator.press("/", *"account:ann", "enter")
        await operator.sees("accounts of 151 of 601 read", "151 of 601")
        await operator.press("escape")
        await operator.opens(GroupsScreen, "b")
        await operator.sees("[sender]")
        for title in ("SENDER-DOMAIN", "ACCOUNT"):
            await operator.press("l")
            await operator.sees(f"{title} ALL")
        await operator.sees("Groups 1, tasks 151", "(accounts of 151 of 601 read)")


async def test_destinations_of_mail_count_recipients() -> None:
    """The heading says so; scope and plan count the mails, and so does the list behind Enter. To
    turn the grouping puts the cursor on its first row."""
    async with groups(a_flood(), size=(120, 40)) as operator:
        await operator.sees("[sender]")  # all first recipients are in one domain
        await operator.press("h")
        await operator.sees(
            "Groups 2, recipients 723", "[destination]", "far.example", "near.example"
        )
        far, near = operator.rows.splitlines()
        assert (far[3:].split()[:2], near[3:].split()[:2]) == (
            ["far.example", "662"],
            ["near.example", "61"],
        )
        await operator.press("j")
        await operator.sees("Enter shows 61 tasks in pending", "acts on 61 pending in near.example")
        await operator.press("j", "k", "right")
        await operator.sees("[sender]", "tasks 601", "acts on 450 pending in news@shop.example")
        await operator.press("left")
        await operator.sees("[destination]", "acts on 601 pending in far.example")
        await operator.press("j")
        await operator.opens(QueueScreen, "enter")
        await operator.sees("dest=near.example", "61 of 601")


async def test_a_grouping_without_values_is_replaced() -> None:
    """If no task of the filter has a value for the chosen grouping, the first one with values is
    used, and the message line says so."""
    async with groups(mails(), size=(120, 40)) as operator:
        await operator.press("left")
        await operator.sees("DESTINATION ALL")
        screen = operator.console.screen
        assert isinstance(screen, GroupsScreen)
        grouping = screen.parts
        assert isinstance(grouping, TaskGroups)
        grouping.by = "group"
        screen.run("groups", screen.parts.follow)
        await operator.sees("no task here has a group: by queue", "QUEUE ALL")


async def test_a_group_opens_as_a_filtered_list() -> None:
    """Enter shows the tasks of the group under the cursor, on the tab it names; within the filter,
    `b` groups by the next column that has several values."""
    async with groups(mails(), size=(120, 40)) as operator:
        await operator.press("enter")
        await operator.until(lambda: isinstance(operator.console.screen, QueueScreen))
        await operator.sees("queue=slow", "3 of 6")
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
            await operator.opens(QueueScreen, "enter")
            await operator.sees("[held 1]", "1 of 1", "kind=")


async def test_a_name_with_control_characters_is_no_filter() -> None:
    """Its tasks are shown and can be acted on, but no list opens: a filter with such a name could
    neither be typed nor painted."""
    async with groups([a_task(1, kind=ODD)], size=(120, 40)) as operator:
        await operator.press("enter")
        await operator.sees("list not opened")
        await operator.opens(PlanScreen, "H")
        await operator.sees("HOLD 1 TASK")
        operator.assert_inert()
        queue = operator.console.navigator.queue_screen()
        await operator.press("escape")
        operator.console.navigator.goto(Target(keys.LIST, filter=f'kind="{ODD}"'))
        await operator.until(lambda: operator.console.screen is queue)
        await operator.sees("kind=")
        operator.assert_inert()


async def test_a_verb_plans_for_the_whole_group() -> None:
    """A plan has all tasks of the group in the state of the list, not only the listed ones; a group
    without such tasks is refused."""
    tasks = [a_task(number, State.DEAD, kind="mail") for number in range(60)]
    tasks += [a_task(100, kind="report")]
    async with groups(tasks, "4", size=(120, 40)) as operator:
        await operator.sees("60, newest first")
        await operator.opens(PlanScreen, "R")
        await operator.sees("REPLAY 60 TASKS", "all in this group: kind mail")
        await operator.press("escape", "j", "R")
        await operator.sees("no task of this group in")
        assert isinstance(operator.console.screen, GroupsScreen)


async def test_the_help_of_groups_has_what_is_refused() -> None:
    """Verbs of the state that are refused now are listed first, with the reason."""
    place = a_place(a_memory([a_task(1, State.ACTIVE)]), lock=a_stuck_lock)
    async with an_operator(place) as operator:
        operator.console.navigator.goto(Target(keys.GROUPS, state=State.ACTIVE))
        await operator.opens(GroupsScreen)
        await operator.press("question_mark")
        await operator.sees("Refused now", "K kill: ")


async def test_other_groups_are_counted() -> None:
    """After the largest 200 groups a line counts the others and their tasks."""
    tasks = [a_task(number, kind=f"kind-{number:03}") for number in range(205)]
    async with groups(tasks, size=(120, 40)) as operator:
        await operator.sees("Groups 205, tasks 205")
        await operator.press("G")
        await operator.sees("(5 others, 5 tasks)")


async def test_the_palette_finds_the_groups() -> None:
    """By name, from a screen without its key."""
    async with an_operator(a_place(a_memory(mails())), clock=lambda: NOW) as operator:
        await operator.press("9", "colon", *"by kind")
        await operator.sees("tasks by queue, kind, sender ...")
        await operator.opens(GroupsScreen, "enter")


def test_the_command_prints_the_groups(root: str, spooldeck: Run) -> None:
    """One line for each group and a summary, or an object each with --json; --by, --filter and
    --state choose."""
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
    one = spooldeck("groups", "--by", "destination", "--filter", "kind=mail_send", root, "--json")
    assert (json.loads(one.stdout)["name"], json.loads(one.stdout)["total"]) == ("", 14)
    none = spooldeck("groups", "--by", "destination", "--filter", "kind=mail_send", root)
    assert none.stdout == "no task here has a destination; expected --by kind\n"
    wrong = spooldeck("groups", str(root), "--by", "colour")
    assert wrong.returncode == 64


def test_a_group_that_no_time_starts_has_its_reason() -> None:
    """In its row and in JSON it has the reason once, and no next time; a time 0 is now."""
    counts = tuple(int(state is State.PENDING) for state in STATES)
    group = TaskGroup(
        "etrn/e",
        counts,
        NOW - 60,
        next_due=None,
        error="waits: QueueOnly: only ETRN",
        error_at=None,
        payloads=1,
    )
    words, facts = {State.PENDING: "waiting"}, {"etrn/e": NOT_BY_TIME}
    table = GroupTable(by="queue", groups=(group,))
    _, (line,) = group_table(table, words, State.PENDING, NOW, 100, title="thread", facts=facts)
    row = "".join(text for text, _ in line)
    assert row.split()[-6:] == ["1m", "-", "waits:", "QueueOnly:", "only", "ETRN"]

    (values,) = group_values(table, [group], words, facts)
    assert (values["next_due"], values["pending"], values["agents"]) == (None, "QueueOnly", 0)
    (values,) = group_values(table, [group._replace(next_due=0.0)], words)
    assert (values["next_due"], values["next_due_at"]) == (0.0, None)
