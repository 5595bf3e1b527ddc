"""Doctor: run all checks on a place; each finding has the command that repairs it. Read-only.

Each check is a function of one `PlaceFacts`, gathered beforehand: a check decides, and only a few
that say so read the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from engine.doctor.finding import Finding, Grade, hidden, ok
from engine.formats.base.format import Setup
from engine.formats.nftban.doctor import folders, leftovers, workers
from engine.formats.nftban.doctor.evidence import access_denied
from engine.formats.nftban.doctor.place_facts import PlaceFacts, gather_facts
from engine.policy import DLQ_ALERT_LIMIT
from engine.text.figures import format_count
from engine.values import NamedTuple


class DoctorCheck(NamedTuple):
    """One check of the doctor's table."""

    name: str
    ok_text: str
    """Text if it finds nothing."""
    run: Callable[[PlaceFacts], Iterator[Finding]]
    needs_tasks: bool = False
    """True if it needs the tasks: without them it is undecided, and with unreadable ones
    incomplete."""


def check_queue(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """Check an NFTBan queue; yields the name of each check and a finding. Changes nothing."""
    return run_checks(gather_facts(setup))


def run_checks(facts: PlaceFacts) -> Iterator[tuple[str, Finding]]:
    """Yield every check's findings in table order, each with the check's name."""
    for check in CHECKS:
        if check.needs_tasks and facts.view.problem:
            findings = [hidden("cannot read the tasks")]
        else:
            findings = list(check.run(facts))
        if check.needs_tasks and facts.view.hidden:
            findings = [finding for finding in findings if finding.grade is not Grade.OK]
            findings.append(access_denied(format_count(facts.view.hidden, "task file")))
        for finding in findings or [ok(check.ok_text)]:
            yield check.name, finding


_TaskCheck = partial(DoctorCheck, needs_tasks=True)

CHECKS: tuple[DoctorCheck, ...] = (
    DoctorCheck("tasks", "", folders.check_tasks),
    DoctorCheck("rights", "read and write access", folders.check_own_access),
    DoctorCheck("folders", "all exist", folders.check_folders),
    DoctorCheck("modes", "no access for other users", folders.check_modes),
    DoctorCheck("owners", "everything has one owner", folders.check_owners),
    DoctorCheck("nesting", "no folder inside another", folders.check_nesting),
    DoctorCheck(
        "devices",
        "pending, work, dlq and staging share a file system",
        folders.check_one_file_system,
    ),
    DoctorCheck("disk", "", folders.check_file_systems),
    DoctorCheck("room", "enough disk space for a full queue", folders.check_free_space),
    DoctorCheck("lock", "", leftovers.check_lock),
    DoctorCheck("partial", "no half-written files", leftovers.check_drafts),
    _TaskCheck("staging", "no interrupted moves, no duplicate tasks", leftovers.check_staging),
    DoctorCheck("corrupt", "no quarantined files", leftovers.check_quarantine),
    DoctorCheck("data", "all data has its task", leftovers.check_data),
    _TaskCheck("broken", "every file is a task", leftovers.check_broken_files),
    _TaskCheck("clock", "no times in the future", leftovers.check_clock),
    DoctorCheck("handlers", "every program can be run", workers.check_handlers),
    _TaskCheck("kinds", "all waiting tasks have a handler", workers.check_kinds),
    DoctorCheck("mail", "waiting mail can be sent", workers.check_mail),
    _TaskCheck("spool", "every mail in the mail spool has its task", workers.check_mail_spool),
    _TaskCheck("dead", f"at most {DLQ_ALERT_LIMIT} tasks in the DLQ", workers.check_dead_letters),
    _TaskCheck("worker", "", workers.check_worker),
    DoctorCheck(
        "exclusive", "no sign of another program in an exclusive queue", workers.check_exclusive
    ),
)
"""All checks, in the order in which to repair."""
