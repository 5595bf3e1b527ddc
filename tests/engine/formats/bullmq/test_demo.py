"""BullMQ's demo places: queues on a server of its own, and servers to deliver to."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from engine.config.place_address import parse_address
from engine.config.queue_config import Config
from engine.demo.demo import Demo
from engine.destinations.sql_registry import SqlRegistry
from engine.formats.bullmq.demo import QUEUES, find_server
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.schedule_acts import ScheduleActs
from engine.formats.bullmq.store import BullmqStore
from engine.formats.known_formats import FORMATS, setup_for
from engine.model import State, Task
from engine.store import Unavailable
from tests.demo_places import PROGRAM, until


def test_the_demo_has_bullmq_queues_if_asked() -> None:
    """A server of its own with schedules and jobs in several states, worked by our worker; it ends
    with the demo."""
    if not find_server():
        pytest.skip("no server program")
    with Demo(8, "", PROGRAM, [FORMATS["bullmq"].demo_places["redis"]]) as demo:
        *_, url = demo.wait_for_places()
        place = parse_place(parse_address(url))
        with closing(BullmqStore(place)) as store:
            kinds = {task.kind for task in store.scan() if isinstance(task, Task)}
            counts = store.count_tasks()
        schedules = ScheduleActs(setup_for(Config(), url, {})).read(9).rows
    assert kinds == set(QUEUES)
    rules = {one.id: (one.rule, one.problem) for one in schedules}
    assert rules == {"orders/month-end": ("0 3 1 * *", ""), "webhooks/heartbeat": ("every 1m", "")}
    assert counts[State.DEAD] > 0 and counts[State.DONE] > 0
    with pytest.raises(Unavailable):
        BullmqStore(place)


# ---- deliveries


def test_the_demo_has_servers_to_deliver_to_if_asked() -> None:
    """Our worker delivers to three servers by BullMQ queues, and registers them as healthy."""
    if not find_server():
        pytest.skip("no server program")
    with Demo(8, "", PROGRAM, [FORMATS["bullmq"].demo_places["federation"]]) as demo:
        *_, url = demo.wait_for_places()
        folder = Path(demo.folder)
        address = parse_address(f"sqlite://{folder}/destinations.db")
        with closing(SqlRegistry(address, creates=True)) as registry:
            until(lambda: len([one for one in registry.all() if one.last_success]) == 3, folder)
            known = registry.all()
        with closing(BullmqStore(parse_place(parse_address(url)))) as store:
            tasks = [task for task in store.scan() if isinstance(task, Task)]
    assert all(one.healthy and one.extra for one in known)
    assert {task.destination for task in tasks} == {one.origin for one in known}
