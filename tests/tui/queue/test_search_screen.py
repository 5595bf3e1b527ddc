"""The search in all places: its counts, the tasks behind them, and the way back."""

from __future__ import annotations

from functools import partial

import pytest

from engine.model import State
from engine.places.place import Place
from engine.store import Store, Unavailable
from tests.console_operator import an_operator
from tests.console_places import a_memory, a_place, a_task
from tui.overview.screen import OverviewScreen
from tui.queue.screen import QueueScreen
from tui.queue.search_screen import SearchScreen, filter_problem
from tui.screens.dialogs import AskScreen
from tui.screens.palette import PaletteScreen
from tui.text import keys


@pytest.fixture
def places() -> tuple[Place, Place, Place]:
    """Two places with mail to u12 in three states, and one without."""
    east = [a_task(n, description="mail to u12") for n in (1, 2)]
    east += [a_task(3, State.DEAD, error="550 user unknown u12"), a_task(4)]
    west = [a_task(5, State.HELD, description="mail to u12"), a_task(6, State.DEAD, error="u13")]
    tasks = {"east": east, "west": west, "north": [a_task(7)]}
    east_place, west_place, north_place = (
        a_place(a_memory(some), name=f"/srv/{name}") for name, some in tasks.items()
    )
    return east_place, west_place, north_place


async def test_all_places_and_states_are_searched(places: tuple[Place, ...]) -> None:
    """`/` on the overview counts the matches of each place and state, and lists the first; Enter
    opens them as a filtered list, whose tabs have the matches of each state; Esc leads back."""
    async with an_operator(*places, first=keys.OVERVIEW) as operator:
        await operator.step("/", AskScreen)
        await operator.step("u12 enter", SearchScreen)
        await operator.sees("/ Search u12 4 in 2 places", "east dead 1 550 user unknown u12")
        rows = [" ".join(row.split()[:3]).replace("> ", "") for row in operator.rows.splitlines()]
        assert rows == ["east pending 2", "east dead 1", "west held 1"]
        await operator.sees("mail to u12")
        queue = await operator.opens(QueueScreen, "j", "enter")
        await operator.sees("dead 1/1", "pending 2/3", "/ filter u12")
        assert queue.parts.session.name == "east"
        await operator.step("escape escape", SearchScreen)
        await operator.step("/", AskScreen)
        await operator.step("backspace 4 enter", SearchScreen)
        await operator.sees("no task of 3 places matches", "0 in 0 places")
        await operator.opens(OverviewScreen, "escape")


async def test_tries_are_those_of_the_list() -> None:
    """Of a dead task the matches show attempts and their maximum, as its list and clusters do."""
    task = a_task(1, State.DEAD, error="550 user unknown u12")._replace(attempts=3)
    place = a_place(a_memory([task]), max_attempts=lambda task: 4)
    async with an_operator(place, first=keys.OVERVIEW) as operator:
        await operator.step("/", AskScreen)
        await operator.step("u12 enter", SearchScreen)
        await operator.sees("TRIES", "3/4")


async def test_a_place_that_cannot_be_read_makes_the_count_partial(
    places: tuple[Place, ...],
) -> None:
    """Its row has the reason, and the total a plus sign; the palette searches from any screen."""

    def refuse() -> Store:
        raise Unavailable("permission denied")

    east, west, _ = places
    async with an_operator(east, west._replace(open=refuse)) as operator:
        await operator.step(":", PaletteScreen)
        await operator.step("find space u12 enter", SearchScreen)
        await operator.sees("3+ in 1 place", "west ? permission denied")


async def test_a_filter_that_one_place_can_use_is_searched_for(places: tuple[Place, ...]) -> None:
    """In the words of its states, and by the name of a saved filter; else it is refused."""
    async with an_operator(*places) as operator:
        problem = partial(filter_problem, operator.console.sessions)
        assert [problem(text) for text in ("state=dead", "@mine", "u12 age>2h")] == [""] * 3
        assert problem("state=nowhere") and problem("age>soon")
