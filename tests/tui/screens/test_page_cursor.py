"""The cursor of each screen with rows stays on its row when others come, leave or change places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from engine.destinations.destination import Destination
from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.model import Lease, LockEvidence, State, Task
from engine.places.place import Place, PlaceDestinations
from engine.store import Control
from tests.console_operator import ConsoleOperator, an_operator
from tests.console_places import NOW, a_memory, a_place, a_stuck_lock, a_task, free, is_known
from tui.screens.target import Target
from tui.text import keys


class Scene(NamedTuple):
    """A screen with rows of which the second has the cursor."""

    places: Sequence[Place]
    target: Target
    change: Callable[[], None]
    """The rows change places, and one comes before the row with the cursor."""
    leave: Callable[[], None] | None = None
    """The row with the cursor leaves; None: it never does."""


def _locks() -> Scene:
    """The last place gets a stuck lock: it is first then."""
    stuck: list[bool] = []

    def examine() -> LockEvidence:
        return a_stuck_lock() if stuck else free()

    places = [a_place(a_memory([a_task(1)]), name=f"/srv/{name}") for name in ("one", "two")]
    last = a_place(a_memory([a_task(1)]), name="/srv/last", lock=examine)
    return Scene([*places, last], Target(keys.LOCKS), lambda: stuck.append(True))


def _workers() -> Scene:
    """As the locks: the rows of the last place are first then."""
    return _locks()._replace(target=Target(keys.WORKERS))


def _owners() -> Scene:
    """Workers with names: one that runs longer comes; then the claim of the second is gone."""
    first, *claimed = [
        a_task(n, State.ACTIVE, lease=Lease(f"vm-{n}", NOW - 60 + n)) for n in range(4)
    ]
    memory = a_memory(claimed)
    return Scene(
        [a_place(memory, lock=None, has_leases=True)],
        Target(keys.WORKERS),
        change=lambda: _put(memory, first),
        leave=lambda: _remove(memory, claimed[1]),
    )


def _put(memory: MemoryTasks, *tasks: Task) -> None:
    with memory.condition:
        for task in tasks:
            memory.put((task.queue, task.id), task)


def _remove(memory: MemoryTasks, *tasks: Task) -> None:
    with memory.condition:
        for task in tasks:
            memory.put((task.queue, task.id), None)


def _controls() -> Scene:
    """A control comes before the others, then one of them is no longer there."""
    controls = {name: Control(f"does {name}", "") for name in ("lower", "middle", "upper")}
    memory = a_memory([a_task(1)])

    def open_store() -> MemoryStore:
        store = MemoryStore(memory)
        store.controls = controls
        return store

    def change() -> None:
        others = dict(controls)
        controls.clear()
        controls.update({"first": Control("does first", ""), **dict(reversed(others.items()))})
        _put(memory, a_task(2))  # the console looks again

    def leave() -> None:
        del controls["middle"]
        _put(memory, a_task(3))

    place = a_place(memory)._replace(open=open_store)
    return Scene([place], Target(keys.CONTROLS), change, leave)


def _groups() -> Scene:
    """Another group grows past it; then its tasks leave."""
    kinds = ["big"] * 3 + ["mid"] * 2 + ["low"] * 6
    tasks = [a_task(n, kind=kind) for n, kind in enumerate(kinds)]
    memory = a_memory(tasks[:6])
    return Scene(
        [a_place(memory)],
        Target(keys.GROUPS),
        change=lambda: _put(memory, *tasks[6:]),
        leave=lambda: _remove(memory, *tasks[3:5]),
    )


def _destinations() -> Scene:
    """One that is unhealthy comes first; then it is forgotten."""
    found = [Destination(f"https://{name}.example", rev=1) for name in ("a", "b", "c")]
    new = Destination("https://new.example", healthy=False, reason="REFUSED", rev=1)
    watched = PlaceDestinations(lambda: list(found), lambda *_: "", lambda: None)
    return Scene(
        [a_place(a_memory([a_task(1, State.DEAD)]), destinations=watched)],
        Target(keys.TRANSPORTS),
        change=lambda: found.insert(0, new),
        leave=lambda: found.remove(found[2]),
    )


SCENES = (_locks, _workers, _owners, _controls, _groups, _destinations)


@pytest.mark.parametrize("make_scene", SCENES)
async def test_the_cursor_stays_on_its_row(make_scene: Callable[[], Scene]) -> None:
    """A row that comes before it, and another order, take no cursor along; a row that leaves is
    shown as gone, and no other row gets its cursor."""
    scene = make_scene()
    async with an_operator(*scene.places, size=(100, 30), clock=lambda: NOW) as operator:
        # A place that is not known yet is below the others.
        await operator.until(lambda: all(map(is_known, operator.console.sessions)))
        operator.console.navigator.goto(scene.target)
        await operator.until(lambda: len(_keys(operator)) >= 2)
        await operator.press("g", "j")
        (key, before) = operator.picker.key, _keys(operator)
        assert key == before[1]
        scene.change()
        await operator.until(lambda: _keys(operator) != before)
        assert (operator.picker.key, operator.picker.is_gone) == (key, False)
        if scene.leave is not None:
            scene.leave()
            await operator.until(lambda: operator.picker.is_gone)
            assert (operator.picker.key, key in _keys(operator)) == ("", True)


def _keys(operator: ConsoleOperator) -> list[str]:
    """The keys of the rows, in order; none before the screen has its rows."""
    is_there = operator.console.screen.query("#rows")
    return [row.key for row in operator.picker.rows] if is_there else []
