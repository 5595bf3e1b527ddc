"""Places whose journal is kept, and operations in it, for the console's tests and pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from engine import plans
from engine.journal import Intent, Journal, Who
from engine.model import State, Task
from engine.operations import Applying
from engine.pace import Pace, packed
from engine.plans import Plan
from tests.tui.spools import NOW, disk_place
from tui.place import Place

ANA = Who("root", "ana", "192.0.2.7 50122 192.0.2.1 22", "mx1", 4243)
BEN = Who("ben", "", "", "mx1", 3181)


def a_journaled_place(
    root: Path, clock: Callable[[], float] = lambda: NOW, name: str = ""
) -> Place:
    """A place on disk where what is done is written down."""
    journal = Journal(f"{root}/queue/.spooldeck/journal", str(root), clock)
    return disk_place(root, name, clock)._replace(journal=journal, who=ANA, root=str(root))


def kept(place: Place) -> Journal:
    """The journal of such a place."""
    assert place.journal is not None
    return place.journal


def seen(place: Place, state: State) -> list[Task]:
    """Its tasks in a state, in the order of their ids."""
    store = place.open()
    try:
        tasks = [task for task in store.look() if isinstance(task, Task) and task.state is state]
    finally:
        store.close()
    return sorted({task.id: task for task in tasks}.values(), key=lambda task: task.id)


def carried_out(
    place: Place,
    verb: str,
    tasks: Sequence[Task],
    *,
    at: float = NOW,
    most: int | None = None,
    intent: Intent | None = None,
    pace: Pace | None = None,
    became: dict[str, object] | None = None,
) -> str:
    """Do this to these tasks, or to the first so many of them and then leave it; its name.

    `at` is when, epoch seconds UTC.
    """
    plan: Plan = plans.freeze(verb, tasks, at)
    asked = intent or Intent(verb, place.who)
    if pace is not None:
        asked = asked._replace(pace=packed(pace))
    store = place.open()
    pen = Journal(kept(place).folder, place.root, lambda: at).begin(asked, plan)
    try:
        applying = Applying(store, plan, lambda: at, pen)
        applying.step(applying.waiting[:most])
        if became:
            pen.say("became", **became)
        if most is None:
            applying.finish("")
    finally:
        pen.close()
        store.close()
    return pen.op


def interrupt(place: Place, amount: int = 8, moved: int = 3, at: float = NOW) -> str:
    """A replay of some dead tasks whose console died on the way; its name."""
    dead = seen(place, State.DEAD)[:amount]
    return carried_out(place, "retry", dead, at=at, most=moved, pace=Pace())
