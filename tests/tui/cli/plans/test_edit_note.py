"""One task on the command line: `edit`, `note` and `notes`."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from engine.formats.kannader.store import KannaderStore, make_spool
from engine.model import Task
from engine.operations.journal import Journal
from engine.operations.notes import Notes
from engine.operations.plans import RowResult
from tests.engine.formats.kannader.conftest import DAEMON
from tests.nftban_queues import Run, add_task, journal_at, tasks_at
from tests.rival_processes import running


def test_an_edit_is_shown_then_stored_and_recorded(root: str, spooldeck: Run) -> None:
    """A dry run shows before and after; --apply 1 stores it and records user and former bytes."""
    ident = add_task(root, description="Daily report").id
    file = Path(root, "queue", "pending", f"{ident}.task")
    before = file.read_bytes()
    new = ("--description", "Daily report $2", "--due", "+2h", "--dry-run")

    dry = spooldeck("edit", ident, root, *new)

    assert dry.returncode == 0, dry.stderr
    assert f"would edit {ident} (report, pending); nothing was changed" in dry.stdout
    assert "-> Daily report $2" in dry.stdout
    assert "stored as: Daily report _2" in dry.stdout and "now -> " in dry.stdout
    assert "(in 1h59m)" in dry.stdout or "(in 2h00m)" in dry.stdout
    assert not Path(f"{root}/queue/.spooldeck/journal").exists()

    words = ("edit", ident, "--root", root, "--apply", "1", "--description")
    refused = spooldeck(*words, "x" * 70_000)
    assert (refused.returncode, refused.stdout) == (64, "")
    assert "description of 70,000 characters: expected at most 4,096" in refused.stderr
    assert (refused.stderr.count("\n"), file.read_bytes()) == (1, before)

    done = spooldeck(*words, "Later ana@example.net", SUDO_USER="ana")

    assert done.returncode == 0, done.stderr
    assert done.stdout == f"Task {ident} edited (description)\n"
    (task,) = tasks_at(root, "pending")
    assert (task.id, task.description, task.due) == (ident, "Later ana@example.net", 0.0)
    operation = journal_at(root).operations()[0]
    assert (operation.intent.verb, operation.intent.who.name) == ("edit", "ana")
    assert operation.counts[RowResult.DONE] == 1
    assert operation.intent.values == {"description": "Later ...@example.net"}
    assert journal_at(root).images(operation.op) == {ident: before}


@pytest.fixture
def mail(tmp_path: Path) -> tuple[str, Task]:
    """A Kannader spool with a waiting mail."""
    place = str(tmp_path / "spool")
    make_spool(place)
    with closing(KannaderStore(place)) as store:
        (added,) = store.enqueue("a@x.org", ["b@y.org"], [b"Hi\r\n"])
    return place, mail_at(place, added)


def mail_at(place: str, ident: str) -> Task:
    """One mail of a Kannader spool, as it is now."""
    with closing(KannaderStore(place)) as store:
        (task,) = store.scan({ident})
    assert isinstance(task, Task)
    return task


def test_another_recipient_until_undo(mail: tuple[str, Task], spooldeck: Run) -> None:
    """The description of a mail follows its recipient; undo restores the envelope byte for byte."""
    place, task = mail
    (metadata,) = Path(place, "data").glob("*/*/metadata")
    before = metadata.read_bytes()
    words = ("edit", task.id, place, "--to", "c@z.org")
    dry = spooldeck(*words, "--dry-run")
    assert (dry.returncode, metadata.read_bytes()) == (0, before), dry.stderr
    assert dry.stdout == (
        f"would edit {task.id} (mail, queue); nothing was changed\n"
        "  to           b@y.org\n"
        "            -> c@z.org\n"
    )
    with running(DAEMON, place) as kannader:
        warned = spooldeck(*words, "--dry-run")
    assert f"  ! Kannader (PID {kannader.pid}) is running and uses its own copy" in warned.stdout
    done = spooldeck(*words, "--apply", "1")
    assert done.stdout == f"Task {task.id} edited (destination)\n", done.stderr
    after = mail_at(place, task.id)
    assert (after.description, after.destination) == ("a@x.org to c@z.org", "c@z.org")
    assert after.due == task.due
    (operation,) = Journal(f"{place}/.spooldeck/journal").operations()
    undone = spooldeck("undo", operation.op, "--root", place, "--apply", "1")
    assert undone.returncode == 0, undone.stderr
    assert metadata.read_bytes() == before
    restored = mail_at(place, task.id)
    assert (restored.description, restored.destination) == (task.description, "b@y.org")


def test_a_note_is_written_listed_and_removed(root: str, spooldeck: Run) -> None:
    """A note has the user behind sudo, no address and no control character; `-` removes it."""
    ident, began = add_task(root).id, time.time()
    written = spooldeck("note", ident, "ask bob@example.net\nfirst", root, SUDO_USER="ana")
    plain, as_json = spooldeck("notes", root), spooldeck("notes", root, "--json")
    removed, after = spooldeck("note", ident, "-", root), spooldeck("notes", root)
    assert written.stdout == "noted: ask ...@example.net first\n"
    assert plain.stdout.startswith(f"{ident}  ")
    assert plain.stdout.endswith("  ana  ask ...@example.net first\n")
    value = json.loads(as_json.stdout)
    assert value["when"] >= began
    assert (value["id"], value["who"], removed.stdout) == (ident, "ana", "notes deleted\n")
    assert (after.returncode, after.stdout) == (0, "")
    notes = Path(f"{root}/queue/.spooldeck/journal", "notes.jsonl")
    Notes(str(notes.parent)).add(ident, "\x1b]0;x\x07\u202e", "a\x1b[2Jb")
    with notes.open("ab") as file:
        file.write(b'{"when": 1e300, "who": "x", "id": "y", "text": "z"}\n' + os.urandom(40))
    hostile = spooldeck("notes", root)
    assert hostile.returncode == 0, hostile.stderr
    assert ident in hostile.stdout
    assert hostile.stdout.removesuffix("\n").isprintable()
