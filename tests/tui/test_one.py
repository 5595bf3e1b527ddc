"""One task on the command line: edited as the console does it, and noted."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from engine.journal import Journal
from engine.model import Task
from engine.notes import Notes
from engine.operations import End
from engine.stores.kannader import KannaderStore, make_spool
from engine.stores.zgb import Place, ZgbStore, create
from tests.tui.queues import Run, bury_one, journal_at, tasks_at
from tests.tui.test_kannader_cli import DAEMON


@pytest.fixture
def ident(root: str, spooldeck: Run) -> str:
    """A task that waits."""
    return spooldeck("--root", root, "queue", "add", "report", "Daily report").stdout.strip()


def file_of(root: str, ident: str) -> Path:
    """The task's file."""
    return Path(root, "queue", "pending", f"{ident}.task")


def test_a_dry_run_of_an_edit_says_what_would_be_stored(
    root: str, ident: str, spooldeck: Run
) -> None:
    """Before and after, folded as the spool folds it; and nothing is written."""
    before = file_of(root, ident).read_bytes()

    said = spooldeck(
        *("edit", ident, root, "--description", "Daily report #2", "--due", "+2h", "--dry-run")
    )

    assert said.returncode == 0, said.stderr
    assert f"would edit {ident} (report, pending); nothing was changed" in said.stdout
    assert "-> Daily report #2" in said.stdout
    assert "a spool stores: Daily report _2" in said.stdout
    assert "at once -> " in said.stdout
    assert "(in 1h59m)" in said.stdout or "(in 2h00m)" in said.stdout
    assert file_of(root, ident).read_bytes() == before
    assert not Path(f"{root}/queue/.spooldeck/journal").exists()


def test_an_edit_is_stored_and_written_down(root: str, ident: str, spooldeck: Run) -> None:
    """What the task says then, and in the journal who did it, with what the task was before."""
    before = file_of(root, ident).read_bytes()

    done = spooldeck(
        *("edit", ident, "--root", root, "--description", "Later ana@example.net", "--apply", "1"),
        **{"SUDO_USER": "ana"},
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == f"Task {ident} edited (description)\n"
    (task,) = tasks_at(root, "pending")
    assert (task.id, task.description, task.due) == (ident, "Later ana_example.net", 0.0)
    (operation,) = journal_at(root).operations()
    assert (operation.intent.verb, operation.intent.who.name) == ("edit", "ana")
    assert operation.counts[End.DONE] == 1
    assert operation.intent.values == {"description": "Later ...@example.net"}
    assert journal_at(root).images(operation.op) == {ident: before}


REFUSED = {
    "--due noon --dry-run": (64, "expected a time to come"),
    "--due +8d --dry-run": (64, "at most 7 days"),
    "--dry-run": (64, "nothing would change: expected another --description or --due"),
    "--due now": (64, "expected --dry-run"),
    "--due now --apply 2": (64, "or --apply 1"),
    "--due now --apply 1 --dry-run": (64, "which changes nothing"),
    f"--description {'x' * 70_000} --apply 1": (
        *(1, "description of 70,000 characters: expected at most 4,096"),
    ),
}
"""The options of an edit, its exit code and what is said of it."""


def test_what_is_no_edit_is_refused(root: str, ident: str, spooldeck: Run) -> None:
    """With what was expected, in one line, and nothing is changed; a dead task is not edited."""
    before = file_of(root, ident).read_bytes()

    for words, (code, said) in REFUSED.items():
        refused = spooldeck("edit", ident, root, *words.split())
        assert (refused.returncode, refused.stdout) == (code, ""), words
        assert said in refused.stderr
        assert refused.stderr.count("\n") == 1
    dead = bury_one(root)
    refused = spooldeck("edit", dead.id, root, "--due", "now", "--apply", "1")

    assert refused.returncode == 1
    assert "no way from" in refused.stderr or "not from dead" in refused.stderr
    assert file_of(root, ident).read_bytes() == before


@pytest.fixture
def mail(tmp_path: Path) -> tuple[str, Task]:
    """A Kannader spool with a mail that waits."""
    place = str(tmp_path / "spool")
    make_spool(place)
    with closing(KannaderStore(place)) as store:
        (added,) = store.enqueue("a@x.org", ["b@y.org"], [b"Hi\r\n"])
        (task,) = store.look({added})
    assert isinstance(task, Task)
    return place, task


@pytest.fixture
def job(tmp_path: Path) -> tuple[str, Task]:
    """A ZGB database with a job that waits."""
    place = str(tmp_path / "a.db")
    create(place)
    with closing(sqlite3.connect(place)) as database, database:
        database.execute("INSERT INTO registrations(number) VALUES (2)")
    with closing(ZgbStore(Place(place))) as store:
        (job,) = store.enqueue(2, ["user"])
    return place, job.task


def mail_at(place: str, ident: str) -> tuple[str, str, float | None]:
    """Description, recipient and due time of a mail in a Kannader spool."""
    with closing(KannaderStore(place)) as store:
        (task,) = store.look({ident})
    assert isinstance(task, Task)
    return task.description, task.destination, task.due


def test_what_a_store_does_not_keep_is_refused_in_the_dry_run_already(
    root: str,
    ident: str,
    mail: tuple[str, Task],
    job: tuple[str, Task],
    spooldeck: Run,
) -> None:
    """In one line, in words for the operator, and with --apply the same."""
    for place, task_id, option, text, why in (
        (mail[0], mail[1].id, "--description", "x", "keeps no description of its own"),
        (job[0], job[1].id, "--description", "x", "keeps no description of its own"),
        (job[0], job[1].id, "--to", "b@y.org", "keeps no recipient that could be changed"),
        (root, ident, "--to", "b@y.org", "keeps no recipient that could be changed"),
    ):
        for last in (["--dry-run"], ["--apply", "1"]):
            said = spooldeck("edit", task_id, place, option, text, *last)

            assert (said.returncode, said.stdout) == (1, "")
            assert said.stderr == f"spooldeck: {task_id}: edit: this queue {why}\n"


def test_a_mail_goes_to_somebody_else_until_that_is_taken_back(
    mail: tuple[str, Task], spooldeck: Run
) -> None:
    """Its description follows the envelope; an undo restores that byte for byte."""
    place, task = mail
    (metadata,) = Path(place, "data").glob("*/*/metadata")
    before, stood = metadata.read_bytes(), mail_at(place, task.id)

    refused = spooldeck("edit", task.id, place, "--to", "b@", "--dry-run")
    assert (refused.returncode, refused.stdout) == (64, "")
    assert refused.stderr == "spooldeck: 'b@' is no address: nothing behind its @\n"
    dry = spooldeck("edit", task.id, place, "--to", "c@z.org", "--dry-run")
    assert (dry.returncode, metadata.read_bytes()) == (0, before), dry.stderr
    assert dry.stdout == (
        f"would edit {task.id} (mail, queue); nothing was changed\n"
        "  to           b@y.org\n"
        "            -> c@z.org\n"
    )
    done = spooldeck("edit", task.id, place, "--to", "c@z.org", "--apply", "1")

    assert done.stdout == f"Task {task.id} edited (destination)\n", done.stderr
    assert mail_at(place, task.id) == ("a@x.org to c@z.org", "c@z.org", task.due)
    (operation,) = Journal(f"{place}/.spooldeck/journal").operations()
    undone = spooldeck("undo", operation.op, "--root", place, "--apply", "1")
    assert undone.returncode == 0, undone.stderr
    assert metadata.read_bytes() == before
    assert mail_at(place, task.id) == stood


def test_what_the_real_program_makes_of_an_edit_is_said(
    mail: tuple[str, Task], spooldeck: Run
) -> None:
    """Beside a Kannader at work the dry run warns, as other plans do; without one it does not."""
    place, task = mail
    words = ("edit", task.id, place, "--due", "+30d", "--dry-run")
    calm = spooldeck(*words)
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as kannader:
        assert kannader.stdout is not None
        assert kannader.stdout.readline() == b"ready\n"
        warned = spooldeck(*words)
        kannader.communicate(b"\n", timeout=60)

    assert (calm.returncode, warned.returncode) == (0, 0), calm.stderr + warned.stderr
    assert "  due          at once -> " in calm.stdout
    assert "!" not in calm.stdout
    assert f"  ! Kannader (PID {kannader.pid}) is running and goes by its own copy" in warned.stdout


def test_a_job_is_put_off_for_as_long_as_one_likes(job: tuple[str, Task], spooldeck: Run) -> None:
    """The seven days are the contract's; other stores believe any time."""
    place, task = job

    done = spooldeck("edit", task.id, place, "--due", "+30d", "--apply", "1")

    assert done.returncode == 0, done.stderr
    with closing(ZgbStore(Place(place))) as store:
        (after,) = store.look({task.id})
    assert isinstance(after, Task) and after.due is not None and task.due is not None
    assert after.due >= task.due + 30 * 86400 - 1


def test_a_note_is_written_listed_and_taken_away(root: str, ident: str, spooldeck: Run) -> None:
    """By whoever is behind sudo, masked, on one line; `-` takes it away."""
    began = time.time()
    written = spooldeck("note", ident, "ask bob@example.net\nfirst", root, SUDO_USER="ana")
    plain = spooldeck("notes", root)
    told = spooldeck("notes", root, "--json")
    away = spooldeck("note", ident, "-", root)
    after = spooldeck("notes", root)

    assert written.stdout == "noted: ask ...@example.net first\n"
    assert plain.stdout.startswith(f"{ident}  ")
    assert plain.stdout.endswith("  ana  ask ...@example.net first\n")
    value = json.loads(told.stdout)
    assert value["when"] >= began
    assert (value["id"], value["who"]) == (ident, "ana")
    assert away.stdout == "its notes are taken away\n"
    assert (after.returncode, after.stdout) == (0, "")


def test_what_is_no_note_is_neither_taken_nor_printed(
    root: str, ident: str, spooldeck: Run
) -> None:
    """A note on a task that is not there, or longer than a note is, is refused; of what is in the
    file no control character reaches the terminal.
    """
    notes = Path(f"{root}/queue/.spooldeck/journal", "notes.jsonl")
    nowhere = spooldeck("note", "nowhere", "x", root)
    long = spooldeck("note", ident, "x" * 501, root)
    none = not notes.exists()
    Notes(str(notes.parent)).add(ident, "\x1b]0;x\x07\u202e", "a\x1b[2Jb")
    with notes.open("ab") as file:
        file.write(b'{"when": 1e300, "who": "x", "id": "y", "text": "z"}\n' + os.urandom(40))
    listed = spooldeck("notes", root)

    assert (nowhere.returncode, long.returncode, none) == (1, 64, True)
    assert "nowhere: no such task" in nowhere.stderr
    assert "at most 500" in long.stderr
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.removesuffix("\n").isprintable()
