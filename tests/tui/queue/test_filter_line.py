"""Filtering: on the screen while it is typed, and command line."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from pytest import MonkeyPatch
from textual.widgets import Input

from engine.config.saved_filters import save_filter
from engine.index.filter_language import parse_filter
from engine.index.schema import Query
from engine.model import State
from engine.places.place import Place
from tests.console_operator import ConsoleOperator, an_operator, clock_of
from tests.console_places import (
    NOW,
    a_memory,
    a_place,
    a_task,
    disk_place,
    make_spool,
    put_file,
    some_tasks,
    task_list,
)
from tests.nftban_queues import Run
from tui.groups.screen import ClustersScreen
from tui.plan.screen import PlanScreen
from tui.queue.filter_line import FilterLine
from tui.queue.filter_text import FilterText
from tui.screens.target import Target
from tui.text import keys
from tui.widgets.line_widgets import Lines


class FilterOperator(ConsoleOperator):
    """An operator who filters the dead tasks of a queue."""

    @property
    def filter(self) -> FilterText:
        """What is typed into the line."""
        return self.queue.parts.filter

    def asks(self, text: str) -> None:
        """Open the list with a filter, as another screen does."""
        self.queue.aim(Target(keys.LIST, filter=text))

    @property
    def count(self) -> str:
        """What is shown behind the words."""
        return self.line("filter-count").strip()

    async def types_for(self, total: int, text: str) -> None:
        """Type a text, and wait until so many tasks are left."""
        await self.types(text)
        await self.left(total)

    async def left(self, total: int) -> None:
        """Wait until so many tasks are left."""
        rows = task_list(self.console).rows
        await self.until(lambda: rows.view.loaded and rows.view.total == total)
        await self.pilot.pause()

    async def counts(self, text: str) -> None:
        """Wait until this is shown behind the words."""
        await self.until(lambda: self.count == text)


@asynccontextmanager
async def filtering(
    place: Place | Path, tab: str = "4", tasks: int = 12
) -> AsyncIterator[FilterOperator]:
    """A console on a spool with twelve dead tasks, or on a place, ready to be typed into."""
    if isinstance(place, Path):
        make_spool(place, some_tasks())
        place = disk_place(place, "here")
    async with an_operator(place) as made:
        operator = FilterOperator(made.console, made.pilot)
        await operator.press(tab)
        await operator.left(tasks)
        await operator.press("slash")
        yield operator


async def test_the_count_is_live(tmp_path: Path) -> None:
    """With each clause the tasks left are counted, and again when the spool changes; where none is
    left, the clause that did it is named beside the count. Half a clause is an error with its
    place, below the list; the last whole filter stays."""
    async with filtering(tmp_path) as operator:
        await operator.types_for(4, "code=550")
        await operator.counts("4 of 12")
        await operator.types(" tries>")
        await operator.until(lambda: operator.count.startswith("invalid"))
        await operator.sees("expected a value after tries> at 16 acts on nothing")
        texts = operator.filter.words, operator.filter.filter.text
        count = operator.queue.query_one("#filter-count", Lines)
        assert (count.lines[0][0][1], *texts) == ("warn", "code=550 tries>", "code=550")
        await operator.left(4)
        await operator.types("3")
        await operator.counts("4 of 12")
        assert count.lines[0][0][1] == "strong"
        await operator.types_for(3, " !id:00000007")
        put_file(tmp_path, a_task(301, State.DEAD))
        await operator.left(4)
        await operator.counts("4 of 13")
        await operator.types(" tries>9")
        await operator.counts('0 of 13 ("tries>9" matches none; 4 without it)')


async def test_tries_are_those_of_the_column(tmp_path: Path, spooldeck: Run) -> None:
    """The last run of a task that used up its retries, which its file does not count, is counted by
    the filter, as in TRIES, on the screen and in --filter."""
    make_spool(tmp_path, [a_task(number, State.DEAD, attempts=3) for number in range(2)])
    place = disk_place(tmp_path, "here")._replace(max_attempts=lambda task: 4)
    async with filtering(place, tasks=2) as operator:
        await operator.sees("4/4")
        for typed, count in (
            ("tries>=4", "2 of 2"),
            ("tries=3", '0 of 2 ("tries=3" matches none; 2 without it)'),
        ):
            await operator.press("ctrl+u")
            await operator.types(typed)
            await operator.counts(count)
    for typed, number in (("tries=4", 2), ("tries<4", 0)):
        ended = spooldeck("--root", tmp_path, "queue", "list", "--state", "dlq", "--filter", typed)
        assert ended.stdout.count("dlq | ") == number


async def test_recipients_that_were_not_searched_are_counted() -> None:
    """Of a mail with very many recipients the first are searched: the line says how many, whether
    something is found or not. Another filter has nothing to say."""
    many = tuple(f"user{number:05}@b.example" for number in range(5_240))
    mail = {"sender": "a@b", "recipients": many, "destination": many[0]}
    tasks = [a_task(1)._replace(**mail), a_task(2)]  # type: ignore[arg-type]
    searched = "searched 3,276 of 5,240 recipients"
    async with filtering(a_place(a_memory(tasks)), "2", 2) as operator:
        await operator.types("to:user00")
        await operator.counts(f"1 of 2  {searched}")
        await operator.types("9999")
        await operator.counts(f'0 of 2 ("to:user009999" matches none; 2 without it; {searched})')
        operator.asks("from=a@b")
        await operator.counts("1 of 2")


async def test_operators_are_completed_and_count(tmp_path: Path) -> None:
    """Right takes the completion; alternatives in parentheses are filtered while typed, and an open
    parenthesis leaves the list as it was. Unprintable characters of a clause and of an error are
    replaced."""
    async with filtering(tmp_path) as operator:
        words = operator.queue.query_one(FilterLine).query_one(Input)
        await operator.types_for(4, "code=550 o")
        await operator.types("r")
        await operator.until(lambda: words._suggestion == "code=550 or ")
        await operator.press("right")
        await operator.until(lambda: operator.filter.words == "code=550 or ")
        await operator.types_for(5, "id:00000008")
        assert operator.filter.filter.text == "code=550 or id:00000008"
        operator.asks("code=550 not (id:7")
        await operator.sees("no ) for the ( at 14")
        operator.asks("code=550 not (id:00000007 or id:00000003)")
        await operator.until(lambda: not operator.filter.error)
        operator.asks("dest=\x9b31m")
        await operator.counts('0 of 12 ("dest=\ufffd31m" matches none; 12 without it)')
        operator.asks("@\x9b31m")
        await operator.sees("@\ufffd31m at 1: ")


async def test_words_stay_as_they_were_typed(tmp_path: Path) -> None:
    """Enter keeps what was typed, letter by letter, and Esc clears it; where nothing is left, that
    is said in place of the rows; what becomes old enough comes into a list that is filtered by age.
    """
    async with filtering(tmp_path) as operator:
        rows = task_list(operator.console)
        await operator.types("  CODE=550 UNKNOWN  ")
        await operator.press("enter")
        await operator.left(4)
        await operator.until(lambda: operator.filter.words == "  CODE=550 UNKNOWN  ")
        assert rows.has_focus
        await operator.press("escape")
        await operator.left(12)
        assert not operator.filter.is_open
        assert not operator.queue.query_one(FilterLine).display

        await operator.press("slash")
        await operator.types_for(0, "age>1d")
        assert "0 of 12 tasks match in DLQ: Esc clears the filter" in rows.render_line(2).text
        await operator.press("enter")
        clock_of(operator).now = NOW + 5 * 60 - NOW % 5 + 5
        await operator.left(6)


async def test_a_filter_is_saved_by_name(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """`:save` keeps the filter of the list; `@name` then means it, alone and beside other words, in
    the filter line and in the palette of another screen. A name without a filter is an error."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with filtering(tmp_path / "spool") as operator:
        await operator.types("@late")
        await operator.sees("@late at 1: no such saved filter; :save")
        await operator.press("escape", "escape", "colon", *"save @late", "enter")
        await operator.sees("no filter to save: / opens one")
        await operator.press("slash")
        await operator.types_for(4, "code=550")
        await operator.press("enter", "colon", *"save @la.te", "enter")
        await operator.sees("not saved: expected a name of letters, digits, - and _")
        await operator.press("colon", *"save @late", "enter")
        await operator.sees("@late saved: code=550")

        await operator.press("escape")
        await operator.left(12)
        await operator.press("slash")
        await operator.types_for(3, "@late !id:00000007")
        await operator.counts("3 of 12")
        texts = operator.filter.words, operator.filter.filter.text
        assert texts == ("@late !id:00000007", "code=550 !id:00000007")
        copies = {copy.name: copy.text for copy in operator.queue.copies()}
        assert any("--filter 'code=550 !id:00000007'" in text for text in copies.values())

        await operator.press("enter", "5", "colon", *"save short", "enter")
        await operator.sees("@short saved: code=550 !id:00000007")
        (tmp_path / "state" / "spooldeck" / "filters.yaml").write_text("late: code=421\n")
        await operator.press("5", "colon", *"filter @late", "enter")
        await operator.until(lambda: operator.filter.filter.text == "code=421")


async def test_clusters_of_the_longest_filter(tmp_path: Path) -> None:
    """`c` on a list with the longest filter shows its clusters and their tasks, and a verb acts on
    them; Enter, whose list would have a longer filter, says so."""
    async with filtering(tmp_path) as operator:
        operator.asks(f"code=550 !{'x' * 990}")
        await operator.left(4)
        await operator.opens(ClustersScreen, "c")
        await operator.sees("1, failed 4", "00000007")
        await operator.press("enter")
        await operator.sees("list not opened: expected at most 1,000 characters with the cluster")
        await operator.opens(PlanScreen, "R")
        await operator.sees("REPLAY 4 TASKS")


async def test_an_order_goes_with_a_filter() -> None:
    """What is filtered is ordered as the tab is."""
    memory = a_memory([task._replace(attempts=n) for n, task in enumerate(some_tasks(9, 0, 0))])
    async with filtering(a_place(memory), "2", 9) as operator:
        for _ in range(2):
            operator.queue.action_sort("attempts")
        await operator.types_for(5, "tries>3")
        held = task_list(operator.console).rows.view.held_ids(0, 4)
        ids = [held[at] for at in range(5)]
        assert [memory.tasks["", id].attempts for id in ids] == [8, 7, 6, 5, 4]


# ---- the command line

FILTERS = (
    "code=550",
    "not (state=dlq or geoban)",
    "feeds|geoban !state=dlq",
    "kind~^mail tries>=1 err:timeout",
    "id:0000001",
)


async def test_the_command_line_finds_the_same(tmp_path: Path, spooldeck: Run) -> None:
    """`queue list --filter` prints the tasks that the console shows; of a bad filter one line says
    where and what was expected, with nothing in it that a terminal obeys."""
    windows = {}
    async with filtering(tmp_path) as operator:
        inspector = operator.queue.session.inspector
        for text in FILTERS:
            query = Query(filter=parse_filter(text, inspector.states, NOW))
            windows[text] = await inspector.queries.window(query, 0, 100)

    for text, window in windows.items():
        run = spooldeck("--root", tmp_path, "queue", "list", "--json", "--filter", text)
        assert run.returncode == 0, run.stderr
        ids = [json.loads(line)["id"] for line in run.stdout.splitlines()]
        assert sorted(ids) == [task.id for task in window.tasks]
        assert 0 < len(ids) < 53

    for text in ("code=550 fo=1", "age>", '"\x1b[31m', "state=nowhere"):
        run = spooldeck("--root", tmp_path, "queue", "list", "--filter", text)
        assert (run.returncode, run.stdout) == (64, "")
        assert re.fullmatch(r".*--filter: .*( at |expected).*\n", run.stderr)
        assert "\x1b" not in run.stderr


def without_times(text: str) -> str:
    """What a command printed, without clock times: two runs may be in different seconds."""
    return re.sub(r"\d\d:\d\d:\d\dZ|\d+[smh]\b", "", text)


def test_the_command_line_knows_saved_filters(tmp_path: Path, spooldeck: Run) -> None:
    """`--filter @name` means the saved filter in each command that has it, among the tasks of the
    state that is named; a name without one is a usage error of one line, and so is an unusable
    file."""
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    root = tmp_path / "spool"
    make_spool(root, some_tasks())
    save_filter(environ, "user", "code=550")
    ask = partial(spooldeck, "--root", root, **environ)
    listing = ("queue", "list", "--state", "dlq")
    commands = (listing, ("replay", "--state", "dlq", "--dry-run"), ("clusters",))
    for command in commands:
        ended = ask(*command, "--filter", "@user")
        assert ended.stderr == ""
        if command is listing:
            assert [line.split(" | ")[0] for line in ended.stdout.splitlines()] == ["dlq"] * 4
        same = ended.stdout.replace("--filter @user", "--filter code=550")
        assert without_times(same) == without_times(ask(*command, "--filter", "code=550").stdout)
        assert ended.stdout != ask(*command).stdout
        ended = ask(*command, "--filter", "@x")
        assert (ended.returncode, ended.stdout) == (64, "")
        assert ended.stderr.endswith("--filter: @x at 1: no such saved filter; @user\n")

    path = tmp_path / "state" / "spooldeck" / "filters.yaml"
    path.write_text("- no\n")
    for command in commands:
        ended = ask(*command, "--filter", "@user")
        assert (ended.returncode, ended.stderr.count("\n")) == (64, 1)
        assert f"@user at 1: {path}: expected lines such as name:" in ended.stderr
        ended = ask(*command, "--filter", "@\x1bc")
        assert "--filter: @\ufffdc at 1: " in ended.stderr
