"""The form for `E`: what is typed is understood while it is, and nothing is written from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from engine import plans, undo
from engine.journal import Intent, Journal, Who
from engine.model import Edge, Edges, State, Task
from engine.store import Unavailable
from engine.stores.kannader.store import EDGES as OF_MAILS
from engine.stores.memory import MemoryStore
from engine.stores.nftban.spool import EDGES as OF_THE_CONTRACT
from engine.stores.zgb.store import EDGES as OF_JOBS
from tests.tui.desks import Desk, a_desk
from tests.tui.spools import NOW, Clock, a_memory, a_place, a_task
from tui.screens.edit import EditScreen
from tui.screens.plan import PlanScreen
from tui.views.edit import FIELDS, offered, understood
from tui.widgets.words import Words

TASK = a_task(2, description="Daily report", due=NOW + 600)
MAIL = replace(TASK, description="a@x.org to b@y.org", destination="b@y.org")

STAYS = (State.PENDING, State.PENDING)
CONTRACT, MAILS, JOBS = OF_THE_CONTRACT[STAYS], OF_MAILS[STAYS], OF_JOBS[STAYS]


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
def test_what_a_store_keeps_is_offered(edges: Edges, names: tuple[str, ...], state: State) -> None:
    """Where a task waits and where it is held: what the edge names, and no more of it."""
    assert offered(edges[state, state]) == names


def test_what_is_not_kept_is_refused_whatever_is_typed() -> None:
    """With words for each; what is kept is understood beside it."""
    of_jobs = understood(TASK, JOBS, {"description": "x", "due": "now"}, NOW)
    of_mails = understood(MAIL, MAILS, {"description": "x"}, NOW)
    of_files = understood(TASK, CONTRACT, {"destination": "b@y.org"}, NOW)

    assert of_jobs.wrong == of_mails.wrong == "this queue keeps no description of its own"
    assert of_files.wrong == "this queue keeps no recipient that could be changed"
    assert of_jobs.said == {"due": "09:42:08Z (just now), so at once"}
    assert understood(TASK, JOBS, {"description": " ", "due": ""}, NOW).wrong == ""


@pytest.mark.parametrize(
    ("task", "description", "due", "values"),
    [
        (TASK, "Daily report", "", {}),
        (TASK, "", "", {}),
        (None, "", "", {}),
        (TASK, "Weekly report", "", {"description": "Weekly report"}),
        (None, "Weekly report", "now", {"description": "Weekly report", "due": NOW}),
        (TASK, "Daily report", "+2h", {"due": NOW + 7200}),
        (TASK, "Daily report", "+10m", {}),
        (TASK, "", "tomorrow 06:00", {"due": NOW - 34928 + 86400 + 6 * 3600}),
        (replace(TASK, description="\x1b[2J"), "\ufffd[2J", "", {}),
    ],
    ids=str,
)
def test_only_what_changes_is_handed_on(
    task: Task | None, description: str, due: str, values: Mapping[str, object]
) -> None:
    """What is empty, or says what was said before, changes nothing."""
    wanted = understood(task, CONTRACT, {"description": description, "due": due}, NOW)

    assert (wanted.values, wanted.wrong) == (values, "")


def test_it_says_how_it_would_be_stored() -> None:
    """What a spool folds is shown folded, a time as the moment it is."""
    wanted = understood(TASK, CONTRACT, {"description": "Rück #2", "due": "-1h"}, NOW)

    assert wanted.said == {
        "description": "a spool stores: R_ck _2",
        "due": "08:42:08Z (1h00m ago), so at once",
    }


@pytest.mark.parametrize(
    ("task", "typed", "values"),
    [
        (MAIL, "b@y.org", {}),
        (MAIL, " ", {}),
        (MAIL, " rück@y.org ", {"destination": "rück@y.org"}),
        (None, "c@y.org", {"destination": "c@y.org"}),
    ],
)
def test_another_recipient_is_understood(
    task: Task | None, typed: str, values: Mapping[str, object]
) -> None:
    """As it is typed, nothing folded; the same again changes nothing."""
    wanted = understood(task, MAILS, {"destination": typed}, NOW)

    assert (wanted.values, wanted.wrong) == (values, "")
    assert wanted.said["destination"].startswith("as it will" if values else ("as it is", "empty"))


@pytest.mark.parametrize("typed", ["b@", "b c@y.org", "b@y.org, c@y.org", "b@[nonsense]", "@"])
def test_what_is_no_recipient_is_said(typed: str) -> None:
    """What the store would refuse is refused while it is typed."""
    assert understood(MAIL, MAILS, {"destination": typed}, NOW).wrong


@pytest.mark.parametrize(
    ("due", "wrong"),
    [("soon", "expected a time to come"), ("+8d", "at most 7 days from now")],
)
def test_what_is_no_due_time_is_said(due: str, wrong: str) -> None:
    """A time that is none, and one that no task is made to wait for."""
    typed = {"description": "other", "due": due}

    assert wrong in understood(TASK, CONTRACT, typed, NOW).wrong


@pytest.mark.parametrize("edge", [MAILS, JOBS], ids=["kannader", "zgb"])
def test_any_time_is_fine_where_every_one_is_believed(edge: Edge) -> None:
    """Only a queue of the contract takes a time too far away for a clock that jumped."""
    wanted = understood(TASK, edge, {"due": "2031-01-01 06:00Z"}, NOW)

    assert (wanted.values, wanted.wrong) == ({"due": 1_925_013_600.0}, "")


@asynccontextmanager
async def a_form(
    task: Task | None = TASK, edge: Edge = CONTRACT
) -> AsyncIterator[tuple[Desk, list[Mapping[str, object] | None]]]:
    """The form for a task above a list, and where its answer will be."""
    answers: list[Mapping[str, object] | None] = []
    async with a_desk(a_place(a_memory([TASK, a_task(3, State.DEAD)]))) as desk:
        desk.console.push_screen(EditScreen(task, edge, Clock()), answers.append)
        await desk.opens(EditScreen)
        yield desk, answers


def fields(desk: Desk) -> list[str | None]:
    """The fields of the form."""
    return [field.id for field in desk.console.screen.query(Words)]


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", ["for kim@example.net", "another", NOW + 600], ids=str)
def test_what_was_cut_off_goes_on_as_it_was_or_not_at_all(
    name: str, value: str | float, tmp_path: Path
) -> None:
    """The rest of an interrupted edit changes what the first part did, or is refused: it never
    changes nothing and says that it did.
    """
    store, journal = MemoryStore(), Journal(f"{tmp_path}/journal")
    store.swap(None, MAIL)
    (seen,) = (found for found in store.look() if isinstance(found, Task))
    plan = plans.freeze("edit", [seen], NOW)._replace(values={name: value})
    journal.begin(Intent("edit", Who("ana"), values=plan.values), plan).close()
    (operation,) = journal.operations()

    try:
        values = undo.rest(store, journal, operation, NOW).values
    except Unavailable as refused:
        assert "it can only be dropped" in str(refused)
        assert "@" in str(value) or isinstance(value, float) is not (name == "due")
    else:
        assert values == {name: value}


async def test_both_fields_are_answered_by_enter() -> None:
    """Tab goes to the other field; Enter hands both on, and nothing while something is wrong."""
    async with a_form() as (desk, answers):
        await desk.sees(f"edit {TASK.id}", "nothing is changed yet", "it stays 09:52:08Z (in 10m)")
        await desk.press("enter", "!")
        await desk.sees("a spool stores: Daily report_")
        await desk.press("tab")
        await desk.types("14")
        await desk.press("enter")
        await desk.sees("expected a time to come")
        assert answers == []
        assert isinstance(desk.console.screen, EditScreen)
        await desk.types(":00")
        await desk.sees("14:00:00Z (in 4h17m)", "Enter on to the plan")
        await desk.press("enter")
        await desk.until(lambda: answers)

        assert answers == [{"description": "Daily report!", "due": NOW - 34928 + 14 * 3600}]


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_it_is_closed_without_an_answer(key: str) -> None:
    """Esc and Ctrl-c leave the form, and not the console."""
    async with a_form(None) as (desk, answers):
        await desk.sees("edit several tasks", "each keeps its own")
        await desk.press("x", key)
        await desk.until(lambda: answers)

        assert answers == [None]
        assert desk.console.is_running


@pytest.mark.parametrize(
    ("task", "edge", "names", "typed", "answer"),
    [
        (MAIL, MAILS, ["destination", "due"], "x", {"destination": "b@y.orgx"}),
        (TASK, JOBS, ["due"], "+2h", {"due": NOW + 7200}),
    ],
    ids=["kannader", "zgb"],
)
async def test_only_what_the_store_keeps_is_asked_for(
    task: Task, edge: Edge, names: list[str], typed: str, answer: object
) -> None:
    """A mail can be given another recipient, a job another due time; there is no other field."""
    async with a_form(task, edge) as (desk, answers):
        await desk.types(typed)
        await desk.sees("Enter on to the plan")
        assert fields(desk) == names
        await desk.press("enter")
        await desk.until(lambda: answers)

        assert answers == [answer]


async def test_the_plan_of_an_edit_warns_as_the_store_does() -> None:
    """`E` offers what the edge names, and the plan says what the store says of that way."""
    warning = "another goes by its own copy until its next start"

    class Warned(MemoryStore):
        edges: Edges = {**MemoryStore.edges, STAYS: MAILS._replace(warning=warning)}

    memory = a_memory([MAIL])
    async with a_desk(a_place(memory, open=lambda: Warned(memory)), size=(100, 30)) as desk:
        await desk.opens(EditScreen, "E")
        assert fields(desk) == ["destination", "due"]
        await desk.types("x")
        await desk.opens(PlanScreen, "enter")

        await desk.sees(f"! {warning}", "b@y.orgx")
