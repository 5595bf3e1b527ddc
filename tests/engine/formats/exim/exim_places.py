"""The place of a real Exim behind `chroot`, and plans that are carried out there."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from engine.config.queue_config import Config
from engine.formats.base.format import Setup
from engine.formats.exim.place import find_exim
from engine.formats.exim.server import EximServer as ServerOfStore
from engine.formats.exim.trash_record import TrashRecord
from engine.formats.known_formats import setup_for
from engine.model import State, Task
from engine.operations import plans, trash, undo
from engine.operations.execute import Report
from engine.operations.journal import Intent, Journal, Who
from engine.operations.run_plan import run_journaled_plan
from engine.programs.prefix import Prefix
from engine.store import Store
from tests.exim_server import SPOOL, EximServer
from tests.programs import a_script
from tests.store_contents import tasks_in

WHO = Who("root", "ana", "", "mx1", 4243)
HOUR = 3600.0
USER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
"""The words by which a user without rights runs a program."""


def setup_of(exim: EximServer, *more: str) -> Setup:
    """The setup of the place, whose prefix may have more words."""
    return _setup(Config()._replace(via={"jail": (*exim.prefix, *more)}), exim.state)


def _setup(config: Config, state: Path | str) -> Setup:
    return setup_for(config, f"exim://jail{SPOOL}", {})._replace(state_folder=str(state))


@contextmanager
def opened(exim: EximServer) -> Iterator[Store]:
    """The store of the place."""
    with closing(setup_of(exim).open_store()) as store:
        yield store


def open_by(script: str, state: Path | str) -> Store:
    """Open the store of the place with a script as its prefix."""
    config = Config()._replace(via={"jail": (script,)}, via_quoting={"jail": 0})
    return _setup(config, state).open_store()


def a_prefix(exim: EximServer, case: str) -> str:
    """A script that is a prefix, with another answer in a case of sh(1); RUN is the usual one."""
    run, path = f'{" ".join(exim.prefix)} "$@"', exim.state.with_name("prefix")
    return a_script(path, f'case " $* " in {case};; *) exec RUN;; esac'.replace("RUN", run))


def server_of(exim: EximServer, script: str = "") -> ServerOfStore:
    """The server of the place, whose acts are not checked before by a store."""
    place = find_exim(setup_of(exim))
    if script:
        place = place._replace(prefix=Prefix("jail", (script,), 0))
    return ServerOfStore(place, TrashRecord(str(exim.state)))


def task_in(exim: EximServer) -> Task:
    """The one task of the place."""
    with opened(exim) as store:
        (task,) = tasks_in(store).values()
    return task


def states_of(store: Store) -> dict[State, int]:
    """The number of tasks in each state that has some."""
    return {state: number for state, number in store.count_tasks().items() if number}


def apply(
    store: Store, state: Path | str, verb: str, tasks: Mapping[str, Task], *, clock: float = 0.0
) -> Report:
    """Plan a verb for these tasks, an hour from now or at `clock`, and carry it out."""
    now, journal = clock or time.time() + HOUR, Journal(f"{state}/journal")
    plan = plans.freeze_plan(verb, tasks.values(), now, edges=store.edges)
    if verb == "restore":
        plan = trash.plan_restore(store, journal, plan, now, retention=1e9).plan
    return run_journaled_plan(store, journal, plan, Intent(verb, WHO), lambda: now)


def undo_last(store: Store, state: Path | str) -> Report:
    """Undo the last operation of the place."""
    now, journal = time.time() + HOUR, Journal(f"{state}/journal")
    made = undo.plan_undo(store, journal, journal.operations()[0], now, retention=1e9)
    return run_journaled_plan(store, journal, made.plan, Intent("undo", WHO), lambda: now)
