"""`bullmq doctor`: check a server and its queues."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import islice

from engine.doctor.finding import Finding, Grade, bad, ok, warn
from engine.formats.base.format import Setup
from engine.formats.bullmq import facts
from engine.formats.bullmq.connection import Connection, Denied
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.repeats import Repeats
from engine.formats.bullmq.schedules import ScheduleReader, as_schedule
from engine.store import StoreError, Unavailable, Unsupported
from engine.text.safe import safe_line

MAX_STOPPED = 20
"""Stopped or broken schedules that are named of each queue."""


def check_server(setup: Setup) -> Generator[tuple[str, Finding], None, bool]:
    """Check a server and its queues; yields the name of each check and a finding; only reads.
    Returns True if it could be read."""
    try:
        place = parse_place(setup.address)
        with closing(Connection(place)) as connection:
            state = facts.read_state(connection, place, time.time())
            gate = Repeats(connection, place).gate
            reader = ScheduleReader(connection, place)
            stopped = [*_find_stopped(reader, [queue.name for queue in state.queues])]
            closed = {name: gate(name)[0] for name in (*setup.programs, *setup.delivered)}
    except Denied as error:
        yield "server", bad(str(error), "give its user the rights (ACL SETUSER)")
        return False
    except Unavailable as error:
        yield "server", bad(str(error), "start it, or correct what the text names")
        return False
    except StoreError as error:
        yield "server", bad(str(error), "give this user the permission")
        return False
    names = facts.list_names(queue.name for queue in state.queues)
    yield "server", ok(f"{len(state.queues):,} queues: {names}")
    for warning in facts.find_warnings(state):
        grade = Grade.BAD if warning.is_severe else Grade.WARN
        yield "server", Finding(grade, warning.what, warning.fix)
    for queue, why in closed.items():
        if why:
            what = f"`bullmq work` takes no job of {safe_line(queue)}: {why}"
            yield "server", warn(what, "correct it, or run a worker of its version")
    for problem in stopped:
        yield "schedules", warn(problem, "`bullmq schedulers`: edit or remove it")
    for name, value in facts.describe_state(state, time.time()):
        yield "server", ok(f"{name}: {value}")
    return True


def _find_stopped(reader: ScheduleReader, queues: Sequence[str]) -> Iterator[str]:
    """The schedules that do not go on or are broken, and why."""
    for queue in reader.count(queues):
        found = (as_schedule(each, time.time()) for each in reader.read(queue))
        try:
            for one in islice((one for one in found if one.problem), MAX_STOPPED):
                yield f"{safe_line(one.id)}: {one.problem}"
        except Unsupported as error:
            yield f"{safe_line(queue)}: {error}"
