"""`queue corrupt` and what a worker does with broken files, as the command line has them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from engine import config
from engine.model import State, Task
from engine.stores.nftban import NftbanStore, Spool, form, make_spool
from tests import command
from tui.cli.wiring import Setup

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]
TASK = Task("20261120T094115Z-job-00000001", "job", State.PENDING, 1_795_170_000.0)
FILE = form.render(form.new_record(TASK))


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A queue below `tmp_path`."""
    queue = tmp_path / "data" / "queue"
    spool = Spool(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq")
    make_spool(spool)
    return spool


@pytest.fixture
def spooldeck(tmp_path: Path, spool: Spool) -> Run:
    """Runs a command of that queue, with no settings from outside."""
    kept = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    root = str(tmp_path / "data")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return command.run(
            ["--root", root, "queue", *words],
            capture_output=True,
            text=True,
            env=kept | {"PYTHONPATH": str(Path.cwd())},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def aside(spool: Spool) -> str:
    """The name of a torn file that was set aside."""
    Path(spool.pending, f"{TASK.id}.task").write_bytes(FILE[:50])
    store = NftbanStore(spool, lambda: time.time() + 61)
    list(store.take(time.time() + 61, "me", 1))
    store.set_aside()
    (found,) = store.corrupt()
    store.close()
    return found.name


def test_a_list_says_what_is_wrong(spooldeck: Run, aside: str) -> None:
    """Name, state, time, the name it had and the reason, one line a file, exit 0."""
    listed = spooldeck("corrupt", "list")

    assert (listed.returncode, listed.stderr) == (0, "")
    name, word, since, was, reason = listed.stdout.rstrip("\n").split(" | ")
    assert (name, word, was) == (aside, "pending", f"{TASK.id}.task")
    assert since.endswith("Z") and since.startswith("20")
    assert reason == "no newline at its end: a write was interrupted"


def test_an_empty_list_is_empty(spooldeck: Run) -> None:
    """Where nothing was set aside, nothing is said."""
    listed = spooldeck("corrupt", "list")

    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", "")


def test_mended_ones_go_back_and_the_others_stay(spooldeck: Run, spool: Spool, aside: str) -> None:
    """What is still broken is one line and exit 1; mended, it is a task again, and exit 0."""
    broken = spooldeck("corrupt", "put-back", aside, "../../pending/x", "--", "-x")
    Path(spool.desk, "corrupt", aside).write_bytes(FILE)
    mended = spooldeck("corrupt", "put-back", aside)

    assert (broken.returncode, broken.stdout) == (1, "")
    assert broken.stderr.splitlines()[0] == (
        f"spooldeck: {aside}: not put back: no newline at its end: a write was interrupted"
    )
    assert len(broken.stderr.splitlines()) == 3
    assert (mended.returncode, mended.stderr) == (0, "")
    assert mended.stdout == f"{aside} is back as pending/{TASK.id}.task\n"
    assert [path.name for path in Path(spool.pending).iterdir()] == [f"{TASK.id}.task"]
    assert spooldeck("corrupt", "list").stdout == ""


def test_a_worker_logs_and_counts_what_it_sets_aside(spool: Spool, tmp_path: Path) -> None:
    """Each file is a warning in the queue's log, told once, and one more in `corrupt_total`, which
    `queue.prom` does not have.
    """
    loaded = config.load(None, {})
    setup = Setup(loaded, config.queue_for(loaded, str(tmp_path / "data"), {}))
    setup.make_folders()
    Path(spool.pending, "0\x1b.task").symlink_to("/etc/shadow")
    Path(spool.pending, "1.task").mkdir()
    store = NftbanStore(spool, lambda: time.time() + 61)
    services = setup.services(store)

    for _ in range(2):
        list(store.take(time.time() + 61, "me", 1))
        services.tidy()
        services.publish()

    store.close()
    lines = Path(setup.log_path).read_text().splitlines()
    assert [line.partition(" [WARN] ")[2].partition(";")[0] for line in lines] == [
        r"Left out: pending/0\x1b.task: not named like a task: expected ID.task",
        "Left out: pending/1.task: a folder, not a task file",
    ]
    assert setup.counters().read("corrupt_total") == 1
    assert "corrupt" not in Path(setup.queue.queue_metrics).read_text()
