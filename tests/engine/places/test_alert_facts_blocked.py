"""Without a configuration file, a kind that runs is not said to lack a handler."""

from pathlib import Path

from engine.model import DueTasks
from engine.monitor.alerts import Blocked
from engine.monitor.latency import KindFigures
from engine.monitor.transport_health import MailRoutes
from engine.places.alert_facts import NO_TASKS, make_alert_inputs
from engine.places.place_watcher import PlaceReadings
from tests.console_places import NOW, disk_place, make_spool


def test_a_kind_that_runs_has_a_handler(tmp_path: Path) -> None:
    """Without the configuration of the workers, the runs in the log show that they have one."""
    make_spool(tmp_path, [])
    place = disk_place(tmp_path)._replace(has_handler=lambda kind: False)
    due = {"feeds_sync": DueTasks(3, NOW - 7200)}
    lacks = (Blocked("feeds_sync", 3, NOW - 7200, "no handler"),)
    for per_minute, is_assumed, blocked in (
        (0.0, True, lacks),
        (0.5, False, lacks),
        (0.5, True, ()),
    ):
        routes = MailRoutes(is_assumed=is_assumed)
        inputs = make_alert_inputs(
            place,
            PlaceReadings(kinds=(KindFigures("feeds_sync", per_minute),), routes=routes),
            NO_TASKS._replace(due_kinds=due),
            active=None,
            dead_growth=None,
            dead_clusters=None,
            counted=(),
            last_run=None,
            free_since=None,
            free_grace=0.0,
            unfinished=(),
            orphaned_mails=0,
            destinations=(),
        )
        assert inputs.blocked == blocked
