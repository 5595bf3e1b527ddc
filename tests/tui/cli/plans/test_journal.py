"""The journal: operations listed, undone, continued, abandoned."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from engine import verbs
from engine.model import Task
from engine.operations import plans, run_plan, undo
from engine.operations.journal import Intent, Who
from engine.operations.plans import RowResult
from engine.replay.settings import ReplayPace
from engine.system import files
from engine.text.typed_json import to_json
from tests.nftban_queues import ids_at, journal_at, store_at, tasks_at
from tests.tui.cli.plans.queue_of_plans import Command, act, objects, root, tree

__all__ = ["act", "root"]  # fixtures


def test_the_journal_is_listed(root: Path, act: Command) -> None:
    """Each operation is a line, also those of `queue dlq`; one of them is listed with its tasks."""
    act("purge", "--filter", "kind=report", "--reason", "for kim@example.net", "--apply", "3")
    (operation,) = journal_at(root).operations()

    listed = act("journal")[1]
    (told,) = objects(act(f"journal {operation.op} {root} --json"))

    assert "| purge | 3 done | done | filter kind=report | reason for ...@example.net" in listed
    assert act(f"journal {operation.op}")[1].count("  dead  done\n") == 3
    assert (told["op"], told["done"], told["standing"]) == (operation.op, 3, "done")
    assert {row["outcome"] for row in told["rows"]} == {"done"}
    assert act("journal --since 2001-01-01")[1] == listed
    assert act("journal --since 2999-01-01")[1] == ""

    before, first = tree(root), min(ids_at(root, "dlq"))
    retried = act(f"queue dlq retry {first}")
    undone = act(f"undo {journal_at(root).operations()[0].op} --apply 1")
    assert retried[:2] == (0, f"Task {first} moved from DLQ to pending queue\n")
    assert (undone[0], tree(root) == before) == (0, True)
    undone_op = journal_at(root).operations()[0].intent.undoes
    assert " | undone" in act(f"journal {undone_op}")[1]
    assert act("journal")[1].count(" | undone") == 1
    status, planned, _ = act("queue dlq purge 0 --dry-run")
    assert status == 0
    assert planned.splitlines()[-1] == "3 would be deleted permanently; nothing was changed"
    assert planned.count("would delete permanently ") == 3
    assert act("queue dlq purge 0")[:2] == (0, "Purged 3 tasks from DLQ\n")
    verbs_done = [one.intent.verb for one in journal_at(root).operations()][::-1]
    assert verbs_done == ["purge", "retry", "undo", "expunge"]


def interrupted(root: Path, moved: int) -> str:
    """A purge that was killed after so many of the dead tasks were moved."""
    with store_at(root) as store:
        dead = [task for task in store.scan({"dlq"}) if isinstance(task, Task)]
        plan = plans.freeze_plan("purge", dead, time.time())
        record = journal_at(root).begin(Intent("purge", Who("ana"), "old"), plan)
        for task in dead[:moved]:
            store.swap(task, verbs.purge(task, time.time()))
        record.close()
        return record.op


def test_an_interrupted_operation_is_completed(root: Path, act: Command) -> None:
    """The journal finds which tasks were moved; --resume does the rest and ends the first one."""
    op = interrupted(root, 2)
    settled = act(f"journal {op}")[1]
    codes = [act(f"journal {op} --resume --apply {count}")[0] for count in (6, 4)]
    assert "2 done, 4 open | interrupted" in settled
    assert f"journal {op} --resume --apply 4" in settled
    assert (codes, len(ids_at(root, "trash"))) == ([1, 0], 6)
    last, first = journal_at(root).operations()
    assert (last.intent.follows, last.intent.reason, last.counts[RowResult.DONE]) == (op, "old", 4)
    left = first.counts[RowResult.UNAPPLIED]
    (told,) = objects(act(f"journal {op} {root} --json"))
    assert told["standing"] == "continued"
    assert (first.is_interrupted, first.open_rows, left) == (False, 0, 4)


def test_an_interrupted_operation_is_dropped_and_undone(root: Path, act: Command) -> None:
    """Dropped, it moves nothing more; the tasks that it moved can be undone."""
    before = tree(root)
    op = interrupted(root, 2)
    dropped, again = act(f"journal {op} --abandon"), act(f"journal {op} --abandon")
    listed, undone = act("undo")[1], act(f"undo {op} --apply 2")
    assert dropped[:2] == (0, f"{op} abandoned; 4 tasks unchanged\n")
    assert (again[0], undone[0]) == (1, 0)
    assert f"undo {op} --dry-run" in listed and " | abandoned | " in listed
    assert ([one["undoes"] for one in objects(act("undo --json"))], tree(root)) == ([op], before)


def test_an_operation_undone_in_part_is_still_offered(root: Path, act: Command) -> None:
    """While some of its tasks are as it left them it is listed, with the number undone."""
    act("purge --apply 6")
    journal = journal_at(root)
    (purged,) = journal.operations()
    op = purged.op
    with store_at(root) as store:
        plan = undo.plan_undo(store, journal, purged, time.time(), 7.0).plan
        some = plan._replace(rows=plan.rows[:2])
        run_plan.run_journaled_plan(store, journal, some, Intent("undo", Who("ana")), time.time)
    listed = act("undo")[1]
    operations = {one["op"]: one for one in objects(act("undo --json"))}
    code = act(f"undo {op} --apply 4")[0]
    assert "2 of 6 undone" in listed and f"undo {op} --dry-run" in listed
    assert (operations[op]["undone"], code) == (2, 0)
    assert op not in {one["op"] for one in objects(act("undo --json"))}


def test_the_rest_of_a_replay_goes_at_its_first_pace(root: Path, act: Command) -> None:
    """The dry run of --resume prints the pace that the replay was begun with."""
    plan = plans.freeze_plan("retry", tasks_at(root, "dlq"), time.time())
    record = journal_at(root).begin(
        Intent("retry", Who("ana"), pace=to_json(ReplayPace(3.0, (1,)))), plan
    )
    record.close()
    output = act(f"journal {record.op} --resume --dry-run")[1]
    assert "at 3/s: 6 in 2s" in output and "first 1; waits for results after each step" in output


def test_without_room_for_the_journal_nothing_is_done(
    root: Path, act: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a full disk the message names `expunge`, which makes room."""
    before = tree(root)

    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_all", full)
    code, _, complaint = act("purge --apply 6")
    assert (code, tree(root) == before) == (69, True)
    assert "nothing was done: the journal in " in complaint
    assert "No space left on device; expunge (permanent) works without" in complaint


def test_an_unknown_verb_in_the_journal_is_only_listed(root: Path, act: Command) -> None:
    """It is shown without control characters, and neither undone nor continued."""
    op = interrupted(root, 2)
    path = Path(journal_at(root).folder, f"{op}.jsonl")
    path.write_text(path.read_text().replace('"verb": "purge"', '"verb": "levi\\u001b[2Jtate"'))
    ran = [act("journal"), act(f"undo {op} --apply 2"), act(f"journal {op} --resume")]
    assert [code for code, _, _ in ran] == [0, 69, 64]
    assert "tate | 6 open | interrupted" in ran[0][1]
    assert "\x1b" not in "".join(said for _, *both in ran for said in both)


def test_the_contracts_commands_work_without_a_journal(root: Path, act: Command) -> None:
    """Where nothing can be recorded they complain in one line, and work; the others do not."""
    folder = root / "queue" / ".spooldeck"
    folder.mkdir(exist_ok=True)
    (folder / "journal").write_text("in the way")
    first, before = min(ids_at(root, "dlq")), tree(root)
    for verb in ("purge", "replay"):
        code, out, complaint = act(f"{verb} --apply 6")
        assert (code, out, "journal" in complaint.splitlines()[-1]) == (69, "", True)
    assert tree(root) == before
    for words in (f"retry {first}", "purge 0"):
        code, _, complaint = act(f"queue dlq {words}")
        assert (code, complaint.count("\n")) == (0, 1)
        assert "continued without the journal" in complaint
    assert ids_at(root, "dlq") == set()
    assert first in ids_at(root, "pending")
