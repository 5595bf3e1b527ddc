"""Who may do what: whose are the files that we make, as whom handlers run, who is sent to sudo."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import verbs
from engine.model import Task
from tests.tui.queues import store_at
from tests.tui.users import NAMELESS, NOBODY, as_user, give, place_for_all, tree
from tui.cli import main

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


@pytest.fixture
def place() -> Iterator[Path]:
    """A queue that everybody can reach."""
    with place_for_all() as place:
        yield place


def settings(place: Path, text: str) -> str:
    """A configuration file beside a place."""
    path = place.parent / "some.yaml"
    path.write_text(text)
    return str(path)


def only_task(place: Path, word: str) -> str:
    """The text of the one task in a state."""
    (path,) = (place / "queue" / word).iterdir()
    return path.read_text()


# ---- whose files


def test_what_root_makes_belongs_to_the_owner_of_the_queue(place: Path) -> None:
    """Every file and folder that any command of root's makes in a queue has the owner and group of
    the queue, so that its owner can go on with it.
    """
    for name in ("run", "log", "metrics"):
        shutil.rmtree(place / name)
    give(place, NOBODY)
    broken = place / "queue" / "pending" / "broken.task"
    broken.write_text("TASK_ID=$(id)\n")
    os.chown(broken, NOBODY, NOBODY)
    os.chown(place, 0, 0)  # as the real program has it: the data folder is root's
    config = settings(
        place,
        "queue: {max_retries: 0}\n"
        "handlers: {report: {command: ['true']}, "
        "fails: {command: ['false'], rate: {per_hour: 5}}}\n",
    )
    here = ("--config", config, "--root", str(place), "queue")

    for kind in ("report", "report", "fails", "fails"):
        assert main([*here, "add", kind]) == 0
    assert main([*here, "process-next"]) in (0, 3)
    assert main([*here, "work", "--until-idle"]) == 0
    assert main([*here, "dlq", "retry-all"]) == 0
    assert main([*here, "recover", "--yes"]) == 0
    assert main([*here, "work", "--until-idle"]) == 0
    assert main([*here, "add", "report"]) == 0
    with_the_desk_in_use(place)

    owners = {path: (path.lstat().st_uid, path.lstat().st_gid) for path in place.rglob("*")}
    assert [str(path) for path, owner in owners.items() if owner != (NOBODY, NOBODY)] == []
    made = {path.name for path in owners}
    assert {"queue.prom", "queue.log", "queue.buckets", ".lock", "processed_total"} <= made
    assert {"corrupt", "held", "trash"} <= made
    assert len(list((place / "queue" / ".spooldeck" / "corrupt").iterdir())) == 2


def with_the_desk_in_use(place: Path) -> None:
    """Hold a task, purge one, and quarantine what is broken, which needs to be a minute old."""
    with store_at(place, lambda: time.time() + 120) as store:
        first, second, *_ = (task for task in store.look(["pending"]) if isinstance(task, Task))
        store.swap(first, verbs.hold(first, time.time()))
        store.swap(second, verbs.purge(second, time.time()))
        assert list(store.take(time.time(), "root", 9))
        assert len(store.set_aside()) == 1


# ---- as whom handlers run

WHO = 'handlers: {report: {command: [sh, -c, "echo $(id -u) $(id -G) $HOME $USER; exit 1"]%s}}'


@pytest.mark.parametrize(
    ("owner", "text", "said"),
    [
        (NOBODY, WHO % "", "65534 65534 /nonexistent nobody"),
        (NAMELESS, WHO % "", f"{NAMELESS} {NAMELESS} / {NAMELESS}"),
        (NOBODY, WHO % ", run_as: root", "0 0 /root root"),
        (0, WHO % ", run_as: nobody", "65534 65534 /nonexistent nobody"),
        (0, "queue: {run_as: nobody}\n" + WHO % "", "65534 65534 /nonexistent nobody"),
        (0, "queue: {run_as: nobody}\n" + WHO % ", run_as: root", "0 0 /root root"),
    ],
    ids=["owner", "nameless owner", "root by wish", "nobody by wish", "for all", "for one"],
)
def test_root_runs_a_handler_as_whom_it_should(
    place: Path, owner: int, text: str, said: str
) -> None:
    """Root runs a queue's handlers as the queue's owner, with that user's groups, name and home,
    unless `run_as` names somebody else; for one handler before it does for all.
    """
    give(place, owner)
    here = ("--config", settings(place, text), "--root", str(place), "queue")
    main([*here, "add", "report"])

    assert main([*here, "process-next"]) == 3

    assert f'TASK_LAST_ERROR="{said}"' in only_task(place, "pending")


def test_only_root_runs_handlers_as_another_user(place: Path) -> None:
    """A worker that could not become the user of `run_as` does not start, touches nothing, and says
    which setting it is and what to type; one that already is that user needs no root.
    """
    main(["--root", str(place), "queue", "add", "report"])
    give(place, NOBODY)
    config = settings(place, WHO % ", run_as: root")
    before = tree(place)
    words = ("--config", config, "--root", str(place), "queue", "process-next")

    refused = as_user(NOBODY, *words)
    same = tree(place) == before
    settings(place, "handlers: {report: {command: ['true'], run_as: nobody}}")
    done = as_user(NOBODY, *words)

    assert refused.returncode == 77
    assert refused.stderr == (
        "spooldeck: handlers.report.run_as is root, but we are nobody: only root can, "
        f"use sudo -u root spooldeck {' '.join(words)}\n"
    )
    assert same
    assert done.returncode == 0, done.stderr
    assert list((place / "queue" / "pending").iterdir()) == []


# ---- who may not

VERBS = (
    ("queue", "add", "report", "two words"),
    ("queue", "process-next"),
    ("queue", "process-next", "--timer"),
    ("queue", "work", "--until-idle"),
    ("queue", "recover", "--yes"),
    ("queue", "corrupt", "put-back", "x.pending.0"),
    ("queue", "dlq", "retry", "20261120T094115Z-report-00000001"),
    ("queue", "dlq", "retry-all"),
    ("queue", "dlq", "purge", "0"),
    ("purge", "--state", "pending", "--filter", "two words", "--apply", "1"),
    ("replay", "--rate", "now", "--apply", "1"),
    ("undo", "20261120T094115Z-00000001", "--apply", "1"),
    ("journal", "20261120T094115Z-00000001", "--drop"),
    ("trash", "restore", "20261120T094115Z-report-00000001"),
    ("trash", "sweep"),
)


def test_who_may_not_write_is_told_what_to_type(place: Path) -> None:
    """Each verb of a user who may read a queue but not change it ends with 77 before anything is
    touched, with the very command line to use instead; what only reads, or is tried dry, works.
    """
    main(["--root", str(place), "queue", "add", "report"])
    for path in place.rglob("*.task"):
        path.chmod(0o644)
    give(place, 0, 0o755)
    before = tree(place)

    for words in VERBS:
        refused = as_user(NOBODY, "--root", str(place), *words)
        assert (refused.returncode, refused.stdout) == (77, ""), words
        (line,) = refused.stderr.splitlines()
        use = f"sudo -u root spooldeck --root {place} {shlex.join(words)}"
        assert line.endswith(f"is not writable for us: use {use}")
    for line in ("list", "count", "metrics", "dlq retry-all --dry-run"):
        looked = as_user(NOBODY, "--root", str(place), "queue", *line.split())
        assert looked.returncode == 0, looked.stderr

    assert tree(place) == before


LOOKS = (
    ("status",),
    ("queue", "list"),
    ("queue", "count"),
    ("queue", "metrics"),
    ("queue", "corrupt", "list"),
    ("queue", "recover", "--dry-run"),
    ("queue", "dlq", "retry-all", "--dry-run"),
    ("install-units", "."),
    ("mail", "status"),
)


@pytest.mark.parametrize("closed", ["queue", "queue/pending"])
def test_what_is_hidden_is_not_called_missing(place: Path, closed: str) -> None:
    """A user who may not read a queue is told so, and with which command line to read it; an owner
    without a name is called by number.
    """
    give(place, NAMELESS)
    place.chmod(0o755)
    for word in ("queue", *(f"queue/{state}" for state in ("pending", "work", "dlq"))):
        (place / word).chmod(0o755)
    (place / closed).chmod(0o750)

    for words in LOOKS:
        refused = as_user(NOBODY, "--root", str(place), *words)
        assert (refused.returncode, refused.stdout) == (2 if words == ("status",) else 77, "")
        use = f"sudo -u '#{NAMELESS}' spooldeck --root {place} {' '.join(words)}"
        assert refused.stderr == f"spooldeck: {place / closed} is hidden from us: use {use}\n"


def test_a_configuration_in_a_folder_that_is_closed_to_us_is_none_of_ours(place: Path) -> None:
    """Standing in another user's folder, or with its HOME, one still has a command that runs; but
    a file that one can see and not read is not passed over.
    """
    give(place, NOBODY)
    closed = place.parent / "closed"
    own = closed / ".config" / "spooldeck"
    own.mkdir(parents=True)
    for path in (closed / "spooldeck.yaml", own / "config.yaml"):
        path.write_text("theme: theirs\n")
        path.chmod(0o600)
    words = ("--root", str(place), "queue", "count")
    os.chdir(closed)  # and back, as the place is left

    closed.chmod(0o700)
    for home in (str(closed), ""):
        counted = as_user(NOBODY, *words, HOME=home)
        assert (counted.returncode, counted.stdout, counted.stderr) == (0, "0\n", "")

    closed.chmod(0o755)
    refused = as_user(NOBODY, *words, HOME=str(closed))
    assert refused.returncode == 78
    assert refused.stderr == "spooldeck: ./spooldeck.yaml: cannot be read: Permission denied\n"


def test_settings_go_along_to_sudo(place: Path) -> None:
    """sudo keeps no environment: what was told by it or found by it stands in the line to type."""
    give(place, NAMELESS, 0o555)
    (place.parent / "spooldeck.yaml").write_text("queue: {max_retries: 2}\n")

    counted = as_user(NOBODY, "queue", "count", NFTBAN_DATA_DIR=str(place))
    refused = as_user(NOBODY, "queue", "add", "report", NFTBAN_DATA_DIR=str(place))

    assert counted.stdout == "0\n", counted.stderr
    assert refused.returncode == 77
    assert refused.stderr.endswith(
        f"use sudo -u '#{NAMELESS}' env NFTBAN_DATA_DIR={place} "
        f"spooldeck --config {place.parent}/spooldeck.yaml queue add report\n"
    )


def test_who_owns_a_queue_that_is_closed_to_all_is_told_to_open_it(place: Path) -> None:
    """An owner without the right to write is not sent to become themselves."""
    give(place, NOBODY)
    pending = place / "queue" / "pending"
    pending.chmod(0o500)

    refused = as_user(NOBODY, "--root", str(place), "queue", "add", "report")

    assert refused.returncode == 77
    assert f"chmod u+rwx {pending}" in refused.stderr
    assert stat.S_IMODE(pending.stat().st_mode) == 0o500
