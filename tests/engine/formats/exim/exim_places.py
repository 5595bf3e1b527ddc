"""The place of a real Exim behind `chroot`, and plans that are carried out there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from engine.config.queue_config import Config
from engine.formats.base.format import Setup
from engine.formats.known_formats import setup_for
from engine.model import State, Task
from engine.operations import plans, trash, undo
from engine.operations.execute import Report
from engine.operations.journal import Intent, Journal, Who
from engine.operations.run_plan import run_journaled_plan
from engine.store import Store
from tests.exim_server import SPOOL, EximServer

WHO = Who("root", "ana", "", "mx1", 4243)
HOUR = 3600.0


def setup_of(exim: EximServer, state: Path) -> Setup:
    """The setup of the place with all our own files below a folder."""
    config = Config()._replace(via={"jail": exim.prefix})
    setup = setup_for(config, f"exim://jail{SPOOL}", {})
    return setup._replace(state_folder=str(state))


@contextmanager
def opened(exim: EximServer, state: Path) -> Iterator[Store]:
    """The store of the place."""
    store = setup_of(exim, state).open_store()
    try:
        yield store
    finally:
        store.close()


def open_by(script: str, state: str) -> Store:
    """Open the store of the place with a script as its prefix."""
    config = Config()._replace(via={"jail": (script,)}, via_quoting={"jail": 0})
    setup = setup_for(config, f"exim://jail{SPOOL}", {})
    return setup._replace(state_folder=state).open_store()


def tasks_of(store: Store) -> dict[str, Task]:
    """All tasks by id."""
    return {task.id: task for task in store.scan() if isinstance(task, Task)}


def states_of(store: Store) -> dict[State, int]:
    """The number of tasks in each state that has some."""
    return {state: number for state, number in store.count_tasks().items() if number}


def apply(
    store: Store, journal: Journal, verb: str, tasks: Mapping[str, Task], *, clock: float = 0.0
) -> Report:
    """Plan a verb for these tasks, an hour from now or at `clock`, and carry it out."""
    now = clock or time.time() + HOUR
    plan = plans.freeze_plan(verb, tasks.values(), now, edges=store.edges)
    return run_journaled_plan(store, journal, plan, Intent(verb, WHO), lambda: now)


def restore(store: Store, journal: Journal, tasks: Mapping[str, Task]) -> Report:
    """Restore these tasks from the trash, each to its former state."""
    now = time.time() + HOUR
    chosen = plans.freeze_plan("restore", tasks.values(), now, edges=store.edges)
    made = trash.plan_restore(store, journal, chosen, now, retention=1e9)
    return run_journaled_plan(store, journal, made.plan, Intent("restore", WHO), lambda: now)


def undo_last(store: Store, journal: Journal) -> Report:
    """Undo the last operation of a journal."""
    now = time.time() + HOUR
    made = undo.plan_undo(store, journal, journal.operations()[0], now, retention=1e9)
    return run_journaled_plan(store, journal, made.plan, Intent("undo", WHO), lambda: now)
