"""`queue corrupt`, and what a worker logs of the files that it quarantines."""

import time
from functools import partial
from pathlib import Path

import pytest

from engine.config import queue_config
from engine.formats.known_formats import setup_for
from engine.formats.nftban import task_format
from engine.formats.nftban.store import NftbanStore
from engine.model import Problem, State, Task
from engine.operations.retention import MAIL_CHECK_MARKER
from tests.nftban_queues import Run, store_at
from tui.cli import main
from tui.cli.formats.nftban.worker_parts import worker_services
from tui.queue.problems_screen import problem_rows

TASK = Task("20261120T094115Z-job-00000001", "job", State.PENDING, 1_795_170_000.0)
FILE = task_format.render_task(task_format.new_record(TASK))
REASON = "no newline at its end: a write was interrupted"


def in_a_minute() -> float:
    """Epoch seconds when a file of now is old enough to be quarantined."""
    return time.time() + 61


def test_a_problem_says_when_its_file_is_quarantined(root: str) -> None:
    """A broken pending file a minute after its last change; one in another folder never."""
    for word, name in (("pending", TASK.id), ("dlq", TASK.id.replace("1", "2"))):
        Path(root, "queue", word, f"{name}.task").write_bytes(FILE[:50])
    with store_at(root, in_a_minute) as store:
        dead, pending = sorted({p for p in store.scan() if isinstance(p, Problem)})
        changed = Path(root, "queue", "pending", f"{TASK.id}.task").stat().st_ctime
        assert (pending.since, pending.quarantined_at) == (changed, changed + 60)
        assert (dead.since is not None, dead.quarantined_at) == (True, None)
        list(store.take(changed + 59, "me", 1))
        assert not list(store.list_quarantined())
    (row,), titles = problem_rows([pending], {}, changed + 120, 80)
    assert "".join(text for text, _ in titles).split() == ["WHERE", "PROBLEM", "SINCE"]
    assert "".join(text for text, _ in row.line).rstrip().endswith(" 2m")


def test_quarantined_files_are_listed_and_put_back(root: str, spooldeck: Run) -> None:
    """One that is still broken, or none, is a line and exit 1; mended, it is a task again."""
    path = Path(root, "queue", "pending", f"{TASK.id}.task")
    path.write_bytes(FILE[:50])
    with store_at(root, in_a_minute) as store:
        list(store.take(in_a_minute(), "me", 1))
        store.quarantine_broken()
        (name,) = (aside.name for aside in store.list_quarantined())
    corrupt = partial(spooldeck, "--root", root, "queue", "corrupt")
    listed = corrupt("list")
    broken = corrupt("put-back", name, "../../pending/x", "--", "-x")
    Path(root, "queue", ".spooldeck", "corrupt", name).write_bytes(FILE)
    mended, empty = corrupt("put-back", name), corrupt("list")
    assert (listed.returncode, listed.stderr) == (0, "")
    shown, word, since, was, reason = listed.stdout.rstrip("\n").split(" | ")
    assert (shown, word, was, reason) == (name, "pending", path.name, REASON)
    assert since.endswith("Z") and since.startswith("20")
    assert (broken.returncode, broken.stdout, broken.stderr.count("\n")) == (1, "", 3)
    assert broken.stderr.startswith(f"spooldeck: {name}: not put back: {REASON}\n")
    assert (mended.returncode, mended.stderr) == (0, "")
    assert mended.stdout == f"{name} put back as pending/{path.name}\n"
    assert list(path.parent.iterdir()) == [path]
    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "")


def test_a_file_that_was_put_back_is_printed_if_the_next_one_fails(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C at the second file: the line of the first one is on standard output."""

    def restore(store: NftbanStore, name: str) -> str:
        if name == "2":
            raise KeyboardInterrupt
        return f"pending/{name}.task"

    monkeypatch.setattr(NftbanStore, "restore_quarantined", restore)
    code = main(["--root", root, "queue", "corrupt", "put-back", "1", "2", "3"])
    assert (code, capsys.readouterr().out) == (130, "1 put back as pending/1.task\n")


def test_a_worker_asks_for_spooled_mail_once_a_second_of_its_clock(root: str) -> None:
    """However long its calls take, it looks for the marker of the last check at most once."""
    setup = setup_for(queue_config.load_config(None, {}), root, {})
    Path(setup.queue.mail_spool, "other").mkdir(parents=True)
    moments = iter([7.0, 7.9, 8.0])
    with store_at(root, in_a_minute) as store:
        services = worker_services(setup, store, clock=lambda: next(moments))
        marker = Path(setup.housekeeping().folder, MAIL_CHECK_MARKER)
        asked = []
        for _ in range(3):
            services.quarantine(lambda: False)
            asked.append(marker.exists())
            marker.unlink(missing_ok=True)
    assert asked == [True, False, True]


def test_a_worker_logs_and_counts_quarantined_files(root: str) -> None:
    """Each file is one warning in the log and one in `corrupt_total`, but none in `queue.prom`."""
    setup = setup_for(queue_config.load_config(None, {}), root, {})
    Path(root, "queue", "pending", "0\x1b.task").symlink_to("/etc/shadow")
    Path(root, "queue", "pending", "1.task").mkdir()
    with store_at(root, in_a_minute) as store:
        services = worker_services(setup, store)
        for _ in range(2):
            list(store.take(in_a_minute(), "me", 1))
            services.quarantine(lambda: False)
            services.publish()
        services.write_log()
    lines = Path(setup.log_path).read_text().splitlines()
    assert [line.partition(" [WARN] ")[2].partition(";")[0] for line in lines] == [
        r"Skipped: pending/0\x1b.task: not named like a task: expected ID.task",
        "Skipped: pending/1.task: a folder, not a task file",
    ]
    assert setup.counters().read("corrupt_total") == 1
    assert "corrupt" not in Path(setup.queue.queue_metrics).read_text()
