"""What is wrong with a place, where, and the command that mends it; changes nothing anywhere.

Each check is a function over one `PlaceFacts`, which is all that was found out beforehand: a check
decides, and only `examine` and the few that say so look at the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from engine.doctor import disk, folders, leftovers, workers
from engine.doctor.finding import Finding, Grade, hidden_from_us
from engine.doctor.place_facts import PlaceFacts
from engine.policy import DLQ_LIMIT

Look = Callable[[PlaceFacts], Iterator[Finding]]


class Check(NamedTuple):
    """One line of the doctor's list."""

    name: str
    well: str
    """What is said when it finds nothing."""
    look: Look
    tasks: bool = False
    """Whether it can say nothing where the tasks cannot be seen, and not all where some cannot."""


def examine(patient: PlaceFacts) -> Iterator[tuple[str, Finding]]:
    """Every check's findings, in the order of the table, each with the check's name."""
    for check in CHECKS:
        if check.tasks and patient.sight.refused:
            found = [Finding(Grade.HIDDEN, "the tasks cannot be seen")]
        else:
            found = list(check.look(patient))
        if check.tasks and patient.sight.hidden:
            number = patient.sight.hidden
            found = [finding for finding in found if finding.grade is not Grade.OK]
            found.append(hidden_from_us("1 task file" if number == 1 else f"{number:,} task files"))
        for finding in found or [Finding(Grade.OK, check.well)]:
            yield check.name, finding


CHECKS: tuple[Check, ...] = (
    Check("tasks", "", folders.tasks),
    Check("rights", "we may look and change", folders.rights),
    Check("folders", "all are there", folders.folders),
    Check("modes", "nobody may look or write who should not", folders.modes),
    Check("owners", "everything has one owner", folders.owners),
    Check("nesting", "each folder stands by itself", folders.nesting),
    Check("devices", "pending, work, dlq and the desk share a file system", disk.one_disk),
    Check("disk", "", disk.disk),
    Check("room", "there is room on the disk for a full queue", disk.room),
    Check("lock", "", leftovers.lock),
    Check("litter", "no half-written files", leftovers.litter),
    Check("desk", "no move is half done, no task stands twice", leftovers.desk, tasks=True),
    Check("corrupt", "nothing was set aside", leftovers.corrupt),
    Check("broken", "every file is a task", leftovers.broken, tasks=True),
    Check("clock", "nothing is from the future", leftovers.clock, tasks=True),
    Check("handlers", "every program can be run", workers.handlers),
    Check("kinds", "whatever waits has a handler", workers.kinds, tasks=True),
    Check("mail", "nothing that waits is kept from being sent", workers.mail),
    Check("spool", "every mail in the mail spool has its task", workers.mail_spool, tasks=True),
    Check(
        "dead", f"no more than {DLQ_LIMIT} tasks in the dead-letter queue", workers.dead, tasks=True
    ),
    Check("worker", "", workers.worker, tasks=True),
    Check("beside", "no other program is seen here", workers.beside),
)
"""What is looked at, in the order in which one would mend it."""
