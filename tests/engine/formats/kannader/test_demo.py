"""Kannader's demo place: a spool with every kind of mail, and a server for it."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from engine.config import queue_config
from engine.demo.demo import CONFIG_FILE
from engine.formats.known_formats import setup_for
from engine.model import Problem, State
from tests.demo_places import KANNADER, demo_of, open_in, tasks_in, until


@pytest.mark.deep
def test_the_mail_spool_has_every_sort_of_mail(tmp_path: Path) -> None:
    """Deferred, held, left in flight by a dead worker, and two damaged; more come, and are sent."""
    with demo_of(demo := tmp_path / "demo", KANNADER):
        place = demo / "outbox"
        loaded = queue_config.load_config(str(demo / CONFIG_FILE), os.environ)
        assert setup_for(loaded, str(place), {}).settings.host == "127.0.0.1"
        with closing(open_in(place)) as store:
            tasks = tasks_in(store)
        deferred = [task for task in tasks if task.attempts and task.state is State.PENDING]
        assert len(deferred) >= 3
        assert all(task.error and task.due and task.due > task.created for task in deferred)
        assert any(task.due and task.due > time.time() for task in deferred)
        assert [task.state for task in tasks].count(State.HELD) == 1
        lapses = [task.lease.until for task in tasks if task.lease and not task.attempts]
        assert any(until and until > time.time() + 1800 for until in lapses)

        def damaged(*begins: str) -> bool:
            with closing(open_in(place)) as store:
                problems = [item for item in store.scan() if isinstance(item, Problem)]
            return any(problem.what.startswith(begins) for problem in problems)

        # The link to a missing mail stays only until the worker has begun, which quarantines it.
        until(lambda: damaged("quarantined link: leads to", "leads to"), place)
        assert damaged("orphaned mail (complete)")

        def logged(words: str) -> int:
            log = place / ".spooldeck" / "log" / "queue.log"
            return log.read_text().count(words) if log.exists() else 0

        until(lambda: logged("Task completed") > 2 and logged("Task failed") > 0, place)
        with closing(open_in(place)) as store:
            waiting = [task for task in tasks_in(store) if task.state is State.PENDING]
        # An earlier failure has the same words as one of now.
        assert len({task.error for task in waiting if task.error}) == 1
