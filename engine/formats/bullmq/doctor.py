"""`bullmq doctor`: check a server and its queues."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing

from engine.doctor.finding import Finding, Grade, bad, ok, warn
from engine.formats.base.format import Setup
from engine.formats.bullmq import facts
from engine.formats.bullmq.connection import Connection, Denied
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.repeats import Repeats
from engine.store import StoreError, Unavailable
from engine.text.safe import safe_line


def check_server(setup: Setup) -> Generator[tuple[str, Finding], None, bool]:
    """Check a server and its queues; yields the name of each check and a finding; only reads.
    Returns True if it could be read."""
    try:
        place = parse_place(setup.address)
        with closing(Connection(place)) as connection:
            state = facts.read_state(connection, place, time.time())
            gate = Repeats(connection, place).gate
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
    for name, value in facts.describe_state(state, time.time()):
        yield "server", ok(f"{name}: {value}")
    return True
