"""What is in work when a lock is looked at, and what the logs say of it."""

from __future__ import annotations

from pathlib import Path

from engine import triage
from engine.model import State
from engine.triage import Told
from tests.tui.spools import NOW, a_console, a_task, disk_place, make_spool, until
from tui.exam import Exam
from tui.live import Live


async def told_of(live: Live) -> Told:
    """What the logs say of the one task in work."""
    exam = Exam(live)
    await exam.look()
    assert await exam.read_logs()
    (work,) = (await exam.look()).works
    return work.told


async def test_logs_that_are_not_there_are_named(tmp_path: Path) -> None:
    """Whether a task in work was done already is not known where logs are missing: those are told
    by their names.
    """
    make_spool(tmp_path, [a_task(1, State.ACTIVE)])
    logs = tmp_path / "away" / "queue.log", tmp_path / "away" / "mail.log"
    console = a_console(disk_place(tmp_path)._replace(logs=tuple(map(str, logs))))
    async with console.run_test() as pilot:
        live = console.lives[0]
        await until(pilot, lambda: live.inspector.latest.complete)
        neither = await told_of(live)
        logs[0].parent.mkdir()
        logs[0].write_text("[2026-11-20 09:42:08] [INFO] nothing of it\n")
        one = await told_of(live)

    assert triage.on_record(neither, NOW) == (
        "? neither queue.log nor mail.log is there: whether a repeat would be a duplicate is not "
        "known"
    )
    assert one.unknown == "mail.log is not there"
