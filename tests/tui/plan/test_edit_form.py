"""The forms: E edits tasks, p sets the pace of a replay; input is checked while it is typed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.formats.bullmq.moves import EDGES as OF_BULLMQ
from engine.formats.kannader.permissions import EDGES as OF_MAILS
from engine.formats.nftban.store import EDGES as OF_THE_CONTRACT
from engine.formats.zgb.store import EDGES as OF_JOBS
from engine.model import Edge, Edges, State, Task
from engine.operations import plans, undo
from engine.operations.journal import Intent, Journal, Who
from engine.replay.settings import RemainderPolicy, ReplayPace, StopRules
from engine.store import Unavailable
from tests.console_operator import ConsoleOperator, an_operator, keys_in
from tests.console_places import NOW, Clock, a_memory, a_place, a_task, some_tasks
from tests.tables import each
from tui.plan import pace_form as pace_view
from tui.plan.edit_form import EditScreen, LongWords
from tui.plan.edit_lines import FIELDS, editable_fields, parse_fields
from tui.plan.pace_form import ALL_FIELDS, OFF, PaceScreen, form_from_pace, pace_from_form
from tui.plan.screen import PlanScreen
from tui.widgets.text_input import Words

TASK = a_task(2, description="Daily report", due=NOW + 600)
MAIL = TASK._replace(description="a@x.org to b@y.org", destination="b@y.org")
STAYS = (State.PENDING, State.PENDING)
CONTRACT, MAILS, JOBS = OF_THE_CONTRACT[STAYS], OF_MAILS[STAYS], OF_JOBS[STAYS]
MIDNIGHT = NOW - 34928

# ---- edit: what is understood


@pytest.mark.parametrize("state", [State.PENDING, State.HELD])
@pytest.mark.parametrize(
    ("edges", "names"),
    [
        (OF_THE_CONTRACT, ("description", "due")),
        (OF_MAILS, ("destination", "due")),
        (OF_JOBS, ("due",)),
    ],
    ids=["contract", "kannader", "zgb"],
)
def test_fields_of_the_edge_are_offered(edges: Edges, names: tuple[str, ...], state: State) -> None:
    """Where a task waits and where it is held, the form has the fields of the edge, and no more."""
    assert editable_fields(edges[state, state]) == names


UNDERSTOOD: tuple[tuple[Task | None, Edge, dict[str, str], Mapping[str, object]], ...] = (
    (TASK, CONTRACT, {"description": "Daily report", "due": ""}, {}),
    (TASK, CONTRACT, {"description": "", "due": ""}, {}),
    (None, CONTRACT, {"description": "", "due": ""}, {}),
    (TASK, CONTRACT, {"description": "Weekly"}, {"description": "Weekly"}),
    (None, CONTRACT, {"description": "x", "due": "now"}, {"description": "x", "due": NOW}),
    (TASK, CONTRACT, {"description": "Daily report", "due": "+2h"}, {"due": NOW + 7200}),
    (TASK, CONTRACT, {"description": "Daily report", "due": "+10m"}, {}),
    (TASK, CONTRACT, {"description": "", "due": "tomorrow 06:00"}, {"due": MIDNIGHT + 30 * 3600}),
    (TASK._replace(description="\x1b[2J"), CONTRACT, {"description": "\ufffd[2J"}, {}),
    (TASK, JOBS, {"description": " ", "due": ""}, {}),
    (MAIL, MAILS, {"destination": "b@y.org"}, {}),
    (MAIL, MAILS, {"destination": " "}, {}),
    (MAIL, MAILS, {"destination": " rück@y.org "}, {"destination": "rück@y.org"}),
    (None, MAILS, {"destination": "c@y.org"}, {"destination": "c@y.org"}),
    # Only a queue of the contract takes a time too far away for a clock that jumped.
    (TASK, MAILS, {"due": "2031-01-01 06:00Z"}, {"due": 1_925_013_600.0}),
    (TASK, JOBS, {"due": "2031-01-01 06:00Z"}, {"due": 1_925_013_600.0}),
)


@each(("task", "edge", "typed", "values"), UNDERSTOOD)
def test_only_changes_are_handed_on(
    task: Task | None, edge: Edge, typed: dict[str, str], values: Mapping[str, object]
) -> None:
    """An empty field, or one with the former value, changes nothing."""
    outcome = parse_fields(task, edge, typed, NOW)
    assert (outcome.values, outcome.error) == (values, "")
    if "destination" in typed:
        destination = outcome.previews["destination"]
        assert destination.startswith("stored as" if values else ("unchanged", "empty: unchanged"))


NO_DESCRIPTION = "this queue has no description field"
NO_RECIPIENT = "this queue has no recipient field"


@each(
    ("task", "edge", "typed", "wrong"),
    [
        (TASK, JOBS, {"description": "x", "due": "now"}, NO_DESCRIPTION),
        (MAIL, MAILS, {"description": "x"}, NO_DESCRIPTION),
        (TASK, CONTRACT, {"destination": "b@y.org"}, NO_RECIPIENT),
        (TASK, CONTRACT, {"description": "other", "due": "soon"}, "expected a time to come"),
        (TASK, CONTRACT, {"description": "other", "due": "+8d"}, "at most 7 days from now"),
        (TASK, CONTRACT, {"description": "x" * 5000}, "expected at most 4,096"),
        *(
            (MAIL, MAILS, {"destination": text}, "")
            for text in ("b@", "b c@y.org", "b@y.org, c@y.org", "b@[nonsense]", "@")
        ),
    ],
)
def test_a_wrong_value_is_refused(
    task: Task, edge: Edge, typed: dict[str, str], wrong: str
) -> None:
    """What the store would refuse is refused while it is typed: a field that it does not keep, a
    time that is none or too far away, a text that is too long, and no recipient."""
    error = parse_fields(task, edge, typed, NOW).error
    assert error and wrong in error


@each(
    ("edge", "typed", "previews"),
    [
        (CONTRACT, ("Rück $2", "-1h"), ("stored as: Rück _2", "08:42:08Z (1h00m ago), so now")),
        (JOBS, ("x", "now"), ("", "09:42:08Z (0s ago), so now")),
    ],
)
def test_how_values_are_kept(edge: Edge, typed: tuple[str, str], previews: tuple[str, str]) -> None:
    """A text that a spool folds is shown folded, a time as the moment it is."""
    names = ("description", "due")
    outcome = parse_fields(TASK, edge, dict(zip(names, typed, strict=True)), NOW)
    expected = zip(names, previews, strict=True)
    assert outcome.previews == {name: text for name, text in expected if text}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", ["for kim@example.net", "another", NOW + 600, 7], ids=str)
def test_an_interrupted_edit_is_gone_on_with(name: str, value: str | float, tmp_path: Path) -> None:
    """It changes what the first part did, or is refused, but never nothing."""
    store, journal = MemoryStore(), Journal(f"{tmp_path}/journal")
    store.swap(None, MAIL)
    (task,) = (task for task in store.scan() if isinstance(task, Task))
    plan = plans.freeze_plan("edit", [task], NOW)._replace(values={name: value})
    journal.begin(Intent("edit", Who("ana"), values=plan.values), plan).close()
    (operation,) = journal.operations()
    try:
        values = undo.plan_rest(store, journal, operation, NOW).values
    except Unavailable as refused:
        assert "abandon the operation" in str(refused)
        right = {"due": float | int, "priority": int}.get(name, str)
        assert "@" in str(value) or not isinstance(value, right)
    else:
        assert values == {name: value}


# ---- edit: the form


async def open_form(
    operator: ConsoleOperator, task: Task | None = TASK, edge: Edge = CONTRACT
) -> list[Mapping[str, object] | None]:
    """Open the form for a task; where its answer will be."""
    answers: list[Mapping[str, object] | None] = []
    operator.console.push_screen(EditScreen(task, edge, Clock()), answers.append)
    await operator.opens(EditScreen)
    return answers


def fields(operator: ConsoleOperator) -> list[str | None]:
    """The fields of the form."""
    return [field.id for field in operator.console.screen.query(Words)]


async def test_the_form_has_the_fields_that_the_store_keeps() -> None:
    """A mail can be given another recipient, a job another due time; there is no other field. Tab
    goes to the other field; Enter hands both on, and nothing while something is wrong. Esc and
    Ctrl-c leave the form, and not the console."""
    async with an_operator(a_place(a_memory([TASK, a_task(3, State.DEAD)]))) as operator:
        for task, edge, names, typed, answer in (
            (MAIL, MAILS, ["destination", "due"], "x", {"destination": "b@y.orgx"}),
            (TASK, JOBS, ["due"], "+2h", {"due": NOW + 7200}),
        ):
            answers = await open_form(operator, task, edge)
            await operator.types(typed)
            await operator.sees("Enter plan")
            assert fields(operator) == names
            await operator.press("enter")
            await operator.until(lambda: answers)  # noqa: B023
            assert answers == [answer]

        answers = await open_form(operator)
        await operator.sees(f"Edit {TASK.id}", "no changes yet", "unchanged, 09:52:08Z (in 10m)")
        await operator.step("enter $", "stored as: Daily report_")
        await operator.step("tab 14 enter", EditScreen, "expected a time to come")
        assert answers == []
        await operator.step(":00", "14:00:00Z (in 4h17m)", "Enter plan")
        await operator.press("enter")
        await operator.until(lambda: answers)
        assert answers == [{"description": "Daily report$", "due": MIDNIGHT + 14 * 3600}]

        for key in ("escape", "ctrl+c"):
            answers = await open_form(operator, None)
            await operator.sees("Edit several tasks", "empty: unchanged")
            await operator.press("x", key)
            await operator.until(lambda: answers)  # noqa: B023
            assert (answers, operator.console.is_running) == ([None], True), key


JOB = TASK._replace(data='{"to":["a","b"],"n":1}', due=0.0)


async def test_data_is_edited_as_lines() -> None:
    """Each change is shown with its sizes, and a mistake with its line; what is pasted is inert."""
    async with an_operator(a_place(a_memory([TASK]))) as operator:
        answers = await open_form(operator, JOB, OF_BULLMQ[STAYS])
        await operator.step("tab tab", "unchanged, 22 B", '"to": [')
        await operator.step("delete", "no JSON: line 2, column 7")
        await operator.press("tab", "enter")
        assert answers == []
        await operator.press("shift+tab", "{", *("down",) * 5, "end")
        await operator.types("2")
        await operator.sees("22 B -> 23 B, first difference at 22", "Tab, Enter plan")
        operator.console.screen.query_one(LongWords).insert("\x1b")
        await operator.sees("no JSON: line 6, column 10")
        operator.assert_inert()
        await operator.press("backspace", "tab", "enter")
        await operator.until(lambda: answers)
        assert answers == [{"data": '{"to":["a","b"],"n":12}'}]


class WithData(MemoryStore):
    """A store whose waiting tasks have data that can be edited."""

    edges: Edges = {**MemoryStore.edges, STAYS: OF_BULLMQ[STAYS]}
    data = b'{"n":1}'

    def read(self, task: Task, part: str = "") -> bytes:
        """The same data for each task."""
        return self.data if part else super().read(task)


class WithLongData(WithData):
    """A store with longer data than it would accept."""

    data = b'"' + b"x" * 131_072 + b'"'


class Warned(MemoryStore):
    """A store whose edge to edit a task has a warning."""

    warning = "another goes by its own copy until its next start"
    edges: Edges = {**MemoryStore.edges, STAYS: MAILS._replace(warning=warning)}


@asynccontextmanager
async def form_of(
    store: type[MemoryStore], task: Task
) -> AsyncIterator[tuple[ConsoleOperator, MemoryTasks]]:
    """The form that `E` opens for a task of a store."""
    memory = a_memory([task])
    place = a_place(memory, open=lambda: store(memory))
    async with an_operator(place, size=(100, 30)) as operator:
        await operator.opens(EditScreen, "E")
        yield operator, memory


async def test_the_plan_of_edited_data_is_for_what_was_read() -> None:
    """The plan has the revision of what `E` read: no later change is overwritten."""
    async with form_of(WithData, TASK) as (operator, memory):
        await operator.step("tab tab down end 2", "7 B -> 8 B")
        with memory.condition:
            (task,) = memory.tasks.values()
            memory.put((task.queue, task.id), task._replace(priority=4))
        await operator.press("tab")
        await operator.step("enter", PlanScreen, 'new data {"n":12}', "changed now: 1")


async def test_data_that_no_undo_could_restore_is_not_in_the_form() -> None:
    """For longer data than the store accepts the form says so, and has the other fields."""
    async with form_of(WithLongData, TASK) as (operator, _):
        await operator.sees("data of 131,074 bytes, expected at most 131,072")
        assert fields(operator) == ["due", "priority"]


async def test_the_plan_of_an_edit_warns_as_the_store_does() -> None:
    """`E` offers what the edge names, and the plan has the warning of the edge."""
    async with form_of(Warned, MAIL) as (operator, _):
        assert fields(operator) == ["destination", "due"]
        await operator.step("x enter", PlanScreen, f"! {Warned.warning}", "b@y.orgx")


# ---- the pace of a replay

PACES = (
    ReplayPace(),
    ReplayPace(None, (0, 0), 5.0, StopRules(None, None, 20, None, RemainderPolicy.HOLD)),
    ReplayPace(0.25, (3, 30), 600.0, StopRules(5, 0.5, 7, 900)),
)


@each("pace", PACES)
def test_an_untouched_form_has_the_pace_it_was_made_of(pace: ReplayPace) -> None:
    """A form as it opens is right, and has the pace that it was made of."""
    assert form_from_pace(pace).first_error == ("", "")
    assert pace_from_form(form_from_pace(pace), pace) == pace


def form_at(name: str) -> pace_view.PaceForm:
    """The form of the usual pace, with the cursor on a field."""
    names = [field.name for field in ALL_FIELDS]
    return form_from_pace(ReplayPace())._replace(at=names.index(name))


@each(("name", "typed", "words"), [
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
])  # fmt: skip
def test_a_wrong_number_is_named_with_what_was_expected(name: str, typed: str, words: str) -> None:
    """A number that is none, or too small or large, is named with what was expected."""
    form = form_at(name).typed("1").rubbed_out()
    for character in typed:
        form = form.typed(character)
    wrong, message = form.first_error
    assert wrong == name and words in message


def test_a_rule_that_is_off_is_not_asked() -> None:
    """The number of a rule that is switched off may be wrong."""
    form = form_at("same").typed("0").toggled()
    assert form.first_error == ("", "")
    assert pace_from_form(form, ReplayPace()).stops.same is None
    assert form.field.name == "same_on"
    assert form.moved(1).field.name == "share_on"


@given(st.lists(st.sampled_from([*"0123456789.", "tab", "back", "space", "rub"]), max_size=60))
def test_the_form_holds_after_any_keys(keys: list[str]) -> None:
    """After any keys the form is a pace, or says what is wrong; the cursor is on what counts."""
    acts = {"tab": lambda form: form.moved(1), "back": lambda form: form.moved(-1)}
    acts |= {"space": pace_view.PaceForm.toggled, "rub": pace_view.PaceForm.rubbed_out}
    form = form_from_pace(ReplayPace())
    for key in keys:
        form = acts[key](form) if key in acts else form.typed(key)
    assert form.is_active(form.field)
    if not form.first_error[1]:
        again = pace_from_form(form, ReplayPace())
        assert pace_from_form(form_from_pace(again), again) == again
    assert all(len(value) <= pace_view.MAX_NUMBER_LENGTH for value in form.values.values())


async def pace_form(operator: ConsoleOperator) -> list[ReplayPace | None]:
    """Open the form; where its answer will be."""
    answers: list[ReplayPace | None] = []
    screen = PaceScreen(ReplayPace(), 179, operator.console.navigator.session)
    operator.console.push_screen(screen, answers.append)
    await operator.sees("Replay settings")
    return answers


async def test_the_pace_is_filled_in_by_keys() -> None:
    """Tab goes on, digits replace, Space switches; Enter takes no number that is wrong, and Esc
    keeps the pace. Without a rate, everything after the canaries is sent without a wait."""
    async with an_operator(a_place(a_memory(some_tasks()))) as operator:
        answers = await pace_form(operator)
        await operator.step("9999x enter", "9999: expected a whole number")
        await operator.press(*["backspace"] * 4)
        await operator.press(*keys_in("5 tab 20 tab tab 0.5 tab 30 tab space tab tab 25 tab 40"))
        await operator.step(
            "tab space tab 7 shift+tab down tab space",
            "no worker running: sent tasks wait for the next worker",
            "one every 2s: 179 in 5m",
        )
        await operator.press("enter")
        await operator.until(lambda: answers)
        assert answers == [
            ReplayPace(0.5, (5, 20), 30.0, StopRules(None, 0.25, 40, 7, RemainderPolicy.HOLD))
        ]

        await operator.pilot.resize_terminal(60, 15)
        answers = await pace_form(operator)
        await operator.press("escape")
        await operator.until(lambda: answers == [None])
        answers = await pace_form(operator)
        await operator.step("tab tab space", "all 179 immediately")
        await operator.press("enter")
        await operator.until(lambda: answers)
    assert answers[0] is not None and answers[0].rate is None
    assert form_from_pace(answers[0]).values["paced"] == OFF
