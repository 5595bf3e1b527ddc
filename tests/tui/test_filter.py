"""Filtering: on the screen while it is typed, and the same on the command line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from textual.pilot import Pilot

from engine.filters import parse
from engine.index import Query
from engine.model import State
from tests import command
from tests.tui.spools import (
    NOW,
    Clock,
    a_console,
    a_memory,
    a_place,
    a_task,
    disk_place,
    in_utc,
    loaded,
    make_spool,
    put_file,
    queue_of,
    some_tasks,
    task_list,
    until,
)
from tui.app import Console
from tui.widgets.filter_line import FilterLine
from tui.widgets.lines import Lines
from tui.widgets.task_list import TaskList


class Deck(NamedTuple):
    """A console under test, on its dead tasks."""

    console: Console
    pilot: Pilot[None]
    clock: Clock
    root: Path

    @property
    def list(self) -> TaskList:
        """The task list."""
        return task_list(self.console)

    @property
    def filter(self) -> FilterLine:
        """The line that is typed into."""
        return queue_of(self.console).query_one(FilterLine)

    @property
    def says(self) -> str:
        """What stands behind the words."""
        (line,) = self.filter.query_one("#filter-count", Lines).lines
        return "".join(text for text, _ in line).strip()

    @property
    def look(self) -> str:
        """In which look it stands there."""
        return self.filter.query_one("#filter-count", Lines).lines[0][0][1]

    async def type(self, text: str) -> None:
        """Type into the line; what it causes may take its time."""
        for key in text:
            await self.pilot.press({" ": "space"}.get(key, key))
        await self.pilot.pause()

    async def until_left(self, total: int) -> None:
        """Wait until so many tasks are left."""
        await until(self.pilot, lambda: self.list.loaded and self.list.total == total)
        await self.pilot.pause()


@asynccontextmanager
async def a_deck(root: Path) -> AsyncIterator[Deck]:
    """A console on a spool with twelve dead tasks, ready to be typed into."""
    make_spool(root, some_tasks())
    clock = Clock()
    console = a_console(disk_place(root, "here", clock), clock=clock)
    with in_utc():
        async with console.run_test(size=(80, 24)) as pilot:
            await loaded(pilot)
            dead = [*queue_of(console).inspector.states].index(State.DEAD)
            await pilot.press(str(dead + 1))
            deck = Deck(console, pilot, clock, root)
            await until(pilot, lambda: deck.list.loaded and deck.list.total == 12)
            await pilot.press("slash")
            yield deck


async def test_the_count_is_live(tmp_path: Path) -> None:
    """With each clause what is left is counted, and again when the spool changes."""
    async with a_deck(tmp_path) as deck:
        await deck.type("code=550")
        await deck.until_left(4)
        assert deck.says == "4 of 12 match"

        await deck.type(" !id:00000007")
        await deck.until_left(3)

        put_file(deck.root, a_task(301, State.DEAD))
        await deck.until_left(4)
        assert deck.says == "4 of 13 match"


async def test_what_is_not_finished_leaves_the_list_as_it_was(tmp_path: Path) -> None:
    """Half a clause is an error with its place, in warning; the last whole filter stays."""
    async with a_deck(tmp_path) as deck:
        await deck.type("code=550")
        await deck.until_left(4)
        await deck.type(" tries>")

        assert deck.says.startswith("expected a value after tries> at 16")
        assert deck.look == "warning"
        assert deck.filter.words == "code=550 tries>"
        assert deck.filter.filter.text == "code=550"
        assert deck.list.total == 4

        await deck.type("3")
        await until(deck.pilot, lambda: deck.says == "4 of 12 match")
        assert deck.look == ""


async def test_going_back_to_what_it_was_takes_the_error_away(tmp_path: Path) -> None:
    """An error that is deleted again is gone, though the filter is the one of before."""
    async with a_deck(tmp_path) as deck:
        await deck.type("code=550")
        await deck.until_left(4)
        await deck.type(" fo=")
        assert deck.says.startswith('no field "fo" at 10; known: id kind')

        for _ in range(4):
            await deck.pilot.press("backspace")

        await until(deck.pilot, lambda: deck.says == "4 of 12 match")


async def test_what_left_nothing_is_named(tmp_path: Path) -> None:
    """Where nothing is left, the clause that did it stands beside the count."""
    async with a_deck(tmp_path) as deck:
        await deck.type("code=550 tries>9")

        await until(deck.pilot, lambda: "leaves 0" in deck.says)
        assert deck.says == "0 of 12: tries>9 leaves 0; without it 4"


async def test_words_stay_as_they_were_typed(tmp_path: Path) -> None:
    """Enter keeps what was typed, letter by letter, and Esc clears it."""
    async with a_deck(tmp_path) as deck:
        await deck.type("  CODE=550   ")
        await deck.pilot.press("enter")
        await deck.until_left(4)
        assert deck.filter.words == "  CODE=550   "

        await deck.pilot.press("escape")
        await deck.until_left(12)
        assert not deck.filter.is_on


async def test_an_age_is_kept_up_with(tmp_path: Path) -> None:
    """What becomes old enough comes into the list by itself."""
    async with a_deck(tmp_path) as deck:
        died = min(float(t.extra["dead_since"]) for t in some_tasks() if t.state is State.DEAD)
        assert died < NOW
        await deck.type("age>1d")
        await deck.until_left(0)
        await deck.pilot.press("enter")

        deck.clock.now = NOW + 5 * 60 - NOW % 5 + 5

        await deck.until_left(6)


async def test_an_order_goes_with_a_filter() -> None:
    """What is filtered is ordered as the tab is."""
    memory = a_memory([replace(task, attempts=n) for n, task in enumerate(some_tasks(9, 0, 0))])
    console = a_console(a_place(memory))
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        screen = queue_of(console)
        screen._orders[State.PENDING] = ("attempts", True)
        await pilot.press("slash", "t", "r", "i", "e", "s", "greater_than_sign", "3")
        await until(pilot, lambda: task_list(console).loaded and task_list(console).total == 5)

        tasks = task_list(console)._window.tasks

    assert [task.attempts for task in tasks] == [8, 7, 6, 5, 4]


# ---- the command line


def listed(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What `queue list` says of a spool."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(root), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    return command.run(
        ["--root", str(root), "queue", "list", *words],
        capture_output=True,
        text=True,
        env=environ,
        stdin=subprocess.DEVNULL,
        check=False,
    )


async def test_the_command_line_says_the_same(tmp_path: Path) -> None:
    """`queue list --filter` prints the tasks that the console shows."""
    typed = ["code=550", "feeds|geoban !state=dlq", "kind~^mail tries>=1 err:timeout", "id:0000001"]
    shown = {}
    async with a_deck(tmp_path) as deck:
        inspector = queue_of(deck.console).inspector
        for text in typed:
            query = Query(filter=parse(text, inspector.states, NOW))
            shown[text] = [task.id for task in (await inspector.window(query, 0, 100)).tasks]

    for text in typed:
        run = listed(tmp_path, "--filter", text, "--json")
        printed = [json.loads(line) for line in run.stdout.splitlines()]
        assert run.returncode == 0, run.stderr
        assert sorted(task["id"] for task in printed) == shown[text]
        assert 0 < len(shown[text]) < 53


def test_a_filter_and_a_state_go_together(tmp_path: Path) -> None:
    """With --state only what is there and matches is printed."""
    make_spool(tmp_path, some_tasks())

    run = listed(tmp_path, "--state", "dlq", "--filter", "code=550")

    assert len(run.stdout.splitlines()) == 4
    assert all(line.startswith("dlq | ") for line in run.stdout.splitlines())


@pytest.mark.parametrize("text", ["code=550 fo=1", "age>", '"\x1b[31m', "state=nowhere"])
def test_a_bad_filter_is_a_usage_error(tmp_path: Path, text: str) -> None:
    """One line says where and what was expected, with nothing in it that a terminal obeys."""
    make_spool(tmp_path, [])

    run = listed(tmp_path, "--filter", text)

    assert (run.returncode, run.stdout) == (64, "")
    (line,) = run.stderr.splitlines()
    assert "--filter: " in line
    assert " at " in line or "expected" in line
    assert "\x1b" not in line
