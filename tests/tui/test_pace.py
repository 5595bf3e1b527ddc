"""The form of a replay's pace: what is typed is taken, and what is wrong is said and refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from engine.pace import Pace, Rest, Stops
from tests.tui.spools import a_console, a_memory, a_place, loaded, some_tasks, until
from tui.plain import text_of
from tui.screens.pace import PaceScreen
from tui.views import pace as view
from tui.views.pace import ALL, OFF, Form, form_of, pace_of

PACES = (
    Pace(),
    Pace(None, (0, 0), 5.0, Stops(None, None, 20, None, Rest.HOLD)),
    Pace(0.25, (3, 30), 600.0, Stops(5, 0.5, 7, 900)),
)


@pytest.mark.parametrize("pace", PACES)
def test_what_is_not_touched_stays(pace: Pace) -> None:
    """A form that nobody typed into says the pace that it was made of."""
    form = form_of(pace)

    assert form.wrong == ("", "")
    assert pace_of(form, pace) == pace


def at(form: Form, name: str) -> Form:
    """With the cursor on a field."""
    return form._replace(at=next(n for n, field in enumerate(ALL) if field.name == name))


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("canary", "", "empty: expected a whole number from 0 to 1,000"),
        ("canary", "1001", "1001: expected a whole number from 0 to 1,000"),
        ("next", "99999", "99999: expected"),
        ("rate", "0", "0: expected a number from 0.02 to 128"),
        ("rate", "129", "129: expected a number from 0.02 to 128"),
        ("rate", ".", "'.': expected a number from 0.02 to 128"),
        ("timeout", "0", "0: expected a whole number from 1 to 86,400"),
        ("same", "0", "0: expected a whole number from 1"),
        ("share", "101", "101: expected a whole number from 0 to 100"),
        ("last", "0", "0: expected a whole number from 1 to 1,000"),
    ],
)
def test_what_is_wrong_is_said(name: str, typed: str, words: str) -> None:
    """A number that is none, or too small or large, is named with what was expected."""
    form = at(form_of(Pace()), name)
    form = form.typed("1").rubbed_out()
    for character in typed:
        form = form.typed(character)

    assert form.wrong[0] == name
    assert words in form.wrong[1]


def test_a_rule_that_is_off_is_not_asked() -> None:
    """What stands in the number of a rule that is switched off is no matter."""
    form = at(form_of(Pace()), "same").typed("0").toggled()

    assert form.wrong == ("", "")
    assert pace_of(form, Pace()).stops.same is None
    assert form.field.name == "same_on"
    assert form.moved(1).field.name == "share_on"


@given(st.lists(st.sampled_from([*"0123456789.", "tab", "back", "space", "rub"]), max_size=60))
def test_whatever_is_typed_the_form_holds(keys: list[str]) -> None:
    """After any keys the form is a pace, or says what is wrong; the cursor is on what counts."""
    form = form_of(Pace())
    for key in keys:
        if key in ("tab", "back"):
            form = form.moved(1 if key == "tab" else -1)
        elif key == "space":
            form = form.toggled()
        else:
            form = form.rubbed_out() if key == "rub" else form.typed(key)

    assert form.means(form.field)
    if not form.wrong[1]:
        again = pace_of(form, Pace())
        assert pace_of(form_of(again), again) == again
    assert all(len(value) <= view.MOST for value in form.values.values())


async def the_form(pilot: Pilot[None], pace: Pace = PACES[0]) -> list[Pace | None]:
    """Open the form; where its answer will be."""
    console = pilot.app
    await loaded(pilot)
    answers: list[Pace | None] = []
    console.push_screen(PaceScreen(pace, 179, console.here), answers.append)  # type: ignore[attr-defined]
    await until(pilot, lambda: "how the replay goes" in text_of(console.screen))
    return answers


async def test_it_is_filled_in_by_keys() -> None:
    """Tab goes on, digits replace what stood there, Space switches a rule, Enter takes it."""
    console = a_console(a_place(a_memory(some_tasks())))
    async with console.run_test(size=(80, 24)) as pilot:
        answers = await the_form(pilot)
        await pilot.press("5", "tab", "2", "0", "tab", "tab", "0", ".", "5", "tab", "3", "0")
        await pilot.press("tab", "space", "tab", "tab", "2", "5", "tab", "4", "0")
        await pilot.press("tab", "space", "tab", "7", "shift+tab", "down", "tab", "space")
        said = text_of(console.screen)
        await pilot.press("enter")

        await until(pilot, lambda: answers)
    stops = Stops(None, 0.25, 40, 7, Rest.HOLD)
    assert answers == [Pace(0.5, (5, 20), 30.0, stops)]
    assert "nobody works this queue now: what is sent waits for the next worker" in said
    assert "one each 2 s: 179 in 5 min" in said


async def test_what_is_wrong_is_not_taken() -> None:
    """Enter takes nothing while a number is wrong; Esc keeps what was."""
    console = a_console(a_place(a_memory(some_tasks())))
    async with console.run_test(size=(80, 24)) as pilot:
        answers = await the_form(pilot)
        await pilot.press("9", "9", "9", "9", "x", "enter")
        await until(pilot, lambda: "9999: expected a whole number" in text_of(console.screen))
        assert isinstance(console.screen, PaceScreen)
        await pilot.press("escape")

        await until(pilot, lambda: answers)
    assert answers == [None]


async def test_a_rate_can_be_none() -> None:
    """Switched off, everything after the canaries is sent at once."""
    console = a_console(a_place(a_memory(some_tasks())))
    async with console.run_test(size=(60, 15)) as pilot:
        answers = await the_form(pilot)
        await pilot.press("tab", "tab", "space")
        await until(pilot, lambda: "all 179 at once" in text_of(console.screen))
        await pilot.press("enter")

        await until(pilot, lambda: answers)
    assert answers[0] is not None and answers[0].rate is None
    assert form_of(answers[0]).values["paced"] == OFF
