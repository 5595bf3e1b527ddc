"""The form of a replay's pace: what is typed is taken, and what is wrong is said and refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.pace import Pace, Rest, Stops
from tests.tui.desks import Desk, a_desk
from tests.tui.spools import a_memory, a_place, some_tasks
from tui.screens.pace import PaceScreen
from tui.views import pace as view
from tui.views.pace import ALL, OFF, Form, form_of, pace_of

PACES = (
    Pace(),
    Pace(None, (0, 0), 5.0, Stops(None, None, 20, None, Rest.HOLD)),
    Pace(0.25, (3, 30), 600.0, Stops(5, 0.5, 7, 900)),
)


def test_what_is_not_touched_stays() -> None:
    """A form as it opens has the pace that it was made of."""
    for pace in PACES:
        assert form_of(pace).wrong == ("", "")
        assert pace_of(form_of(pace), pace) == pace


def at(form: Form, name: str) -> Form:
    """With the cursor on a field."""
    return form._replace(at=next(n for n, field in enumerate(ALL) if field.name == name))


WRONG = (
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
)
"""A field, what is typed into it, and what is said."""


def test_what_is_wrong_is_said() -> None:
    """A number that is none, or too small or large, is named with what was expected."""
    for name, typed, words in WRONG:
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


async def the_form(desk: Desk, pace: Pace = PACES[0]) -> list[Pace | None]:
    """Open the form; where its answer will be."""
    answers: list[Pace | None] = []
    desk.console.push_screen(PaceScreen(pace, 179, desk.console.here), answers.append)
    await desk.sees("how the replay goes")
    return answers


async def test_it_is_filled_in_by_keys() -> None:
    """Tab goes on, digits replace what was there, Space switches a rule; Enter takes no number that
    is wrong, and then all of it.
    """
    async with a_desk(a_place(a_memory(some_tasks()))) as desk:
        answers = await the_form(desk)
        await desk.press("9", "9", "9", "9", "x", "enter")
        await desk.sees("9999: expected a whole number")
        await desk.press(*["backspace"] * 4, "5", "tab", "2", "0", "tab", "tab", "0", ".", "5")
        await desk.press("tab", "3", "0", "tab", "space", "tab", "tab", "2", "5", "tab", "4", "0")
        await desk.press("tab", "space", "tab", "7", "shift+tab", "down", "tab", "space")
        await desk.sees(
            "nobody works this queue now: what is sent waits for the next worker",
            "one each 2 s: 179 in 5 min",
        )
        await desk.press("enter")

        await desk.until(lambda: answers)
    assert answers == [Pace(0.5, (5, 20), 30.0, Stops(None, 0.25, 40, 7, Rest.HOLD))]


async def test_a_rate_can_be_none() -> None:
    """Switched off, everything after the canaries is sent without a wait; Esc keeps what was."""
    async with a_desk(a_place(a_memory(some_tasks())), size=(60, 15)) as desk:
        answers = await the_form(desk)
        await desk.press("escape")
        await desk.until(lambda: answers == [None])

        answers = await the_form(desk)
        await desk.press("tab", "tab", "space")
        await desk.sees("all 179 at once")
        await desk.press("enter")
        await desk.until(lambda: answers)
    assert answers[0] is not None and answers[0].rate is None
    assert form_of(answers[0]).values["paced"] == OFF
