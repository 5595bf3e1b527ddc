"""The demo: real spools, a real worker, and nothing lost however it ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from engine import locks
from engine.demo import MENDED, Demo
from engine.inotify import Ear
from engine.model import Verdict

WORK = [sys.executable, "-m", "tui.cli", "queue", "work", "--concurrency", "4"]

START = f"""
import sys
from engine.demo import Demo
with Demo(40, sys.argv[1], {WORK!r}):
    print("running", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[psutil.Process]:
    """A demo in a process of its own, in the folder `demo`."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(tmp_path / "demo")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"running\n"
    yield psutil.Process(process.pid)
    process.stdin.close()
    process.wait(30)
    process.stdout.close()


def until(condition: Callable[[], bool], folder: Path) -> None:
    """Wait for something to happen in a folder, as often as it takes."""
    with closing(Ear(path for path, _, _ in os.walk(folder))) as ear:
        while not condition():
            ear.wait(0.5)
            ear.hear()


def ended(process: psutil.Process) -> bool:
    """Whether a process is gone, though perhaps not yet waited for by whoever inherited it."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def completed(flowing: Path) -> set[str]:
    """Ids that the queue's log calls completed."""
    log = flowing / "log" / "queue.log"
    text = log.read_text() if log.exists() else ""
    return set(re.findall(r"Task completed: (\S+)", text))


def names(root: Path) -> Counter[str]:
    """How often each task id stands anywhere in a spool, withdrawn files included."""
    found: Counter[str] = Counter()
    for path in (root / "queue").rglob("*"):
        if path.suffix == ".task":
            found[path.stem] += 1
        elif path.name.startswith("D."):
            found[path.name.split(".")[1]] += 1
    return found


def test_killed_at_any_moment_it_has_every_task_under_one_name_or_done(
    tmp_path: Path, running: psutil.Process
) -> None:
    """SIGKILL to all of it: each task that was added is done, or stands under exactly one name."""
    flowing, wedged = tmp_path / "demo" / "flowing", tmp_path / "demo" / "wedged"
    until(lambda: len(completed(flowing)) >= 10, flowing / "log")

    everybody = [*running.children(recursive=True)]
    for process in everybody:
        with suppress(psutil.NoSuchProcess):  # of a handler, which ended by itself meanwhile
            process.kill()
    until(lambda: all(map(ended, everybody)), flowing)

    added = set((tmp_path / "demo" / "added").read_text().split())
    standing = names(flowing) + names(wedged)
    assert max(standing.values()) == 1
    vanished = added - set(standing)
    in_hand = vanished - completed(flowing)
    # The last acknowledgement of each of four hands may not have reached the log.
    log = (flowing / "log" / "queue.log").read_text()
    assert len(in_hand) <= 4
    assert all(f"Processing task: {ident} " in log for ident in in_hand)

    again = subprocess.run(
        [
            *(sys.executable, "-m", "tui.cli", "--root", str(flowing)),
            *("--config", str(tmp_path / "demo" / "spooldeck.yaml"), "queue", "process-next"),
        ],
        check=False,
    )

    assert again.returncode in (0, 1, 3)
    assert max(names(flowing).values()) == 1
    assert list((flowing / "queue" / "work").iterdir()) == []
    assert set(names(flowing)) | completed(flowing) | in_hand >= added - set(names(wedged))


def test_one_spool_flows_and_one_is_stuck(tmp_path: Path, running: psutil.Process) -> None:
    """Failures, successes and mail move in one; in the other a live process sits on the lock."""
    flowing, wedged = tmp_path / "demo" / "flowing", tmp_path / "demo" / "wedged"
    until(lambda: (flowing / "metrics" / "mail.prom").exists(), flowing / "metrics")

    evidence = locks.examine(str(wedged / "run" / "queue.lock"), 1200.0)

    assert evidence.verdict is Verdict.STUCK
    assert evidence.pid in {process.pid for process in running.children(recursive=True)}
    assert len(list((wedged / "queue" / "work").iterdir())) == 1
    dead = [p.read_text() for p in (flowing / "queue" / "dlq").iterdir()]
    errors = {re.sub(r"\d+", "#", re.findall('LAST_ERROR="(.*)"', text)[0]) for text in dead}
    assert len(errors) == 5
    assert locks.examine(str(flowing / "run" / "queue.lock"), 1200.0).verdict is Verdict.HELD


ENDS = {
    "Feed busy": (0, 0, 0),
    "to timeout": (0, 0, 0),
    "to later": (1, 0, 0),
    "Apply outdated": (1, 1, 0),
    "to unknown": (1, 1, 1),
}
"""Exit codes of what is dead in the demo: run again, once more, and after the cause was mended."""


def test_what_is_dead_ends_in_five_ways(tmp_path: Path, running: psutil.Process) -> None:
    """Two groups succeed at once, one the second time, one when mended, and one never."""
    demo = tmp_path / "demo"
    dead = [path.read_text() for path in (demo / "flowing" / "queue" / "dlq").iterdir()]
    fields = [dict(re.findall(r'^(TASK_\w+)="(.*)"$', text, re.MULTILINE)) for text in dead]

    def run(task: dict[str, str], retries: int) -> int:
        told = {**task, "TASK_RETRIES": str(retries), "PATH": os.environ["PATH"]}
        ended = subprocess.run(
            ["/bin/sh", str(demo / "handle.sh")], env=told, capture_output=True, text=True
        )
        said = ended.stdout.strip()
        assert said == (task["TASK_LAST_ERROR"] if ended.returncode else "")
        return ended.returncode

    found: dict[str, tuple[int, ...]] = {}
    for words in ENDS:
        task = next(task for task in fields if words in task["TASK_DESCRIPTION"])
        found[words] = (run(task, 0), run(task, 1))
    (demo / MENDED).touch()
    for words in ENDS:
        task = next(task for task in fields if words in task["TASK_DESCRIPTION"])
        found[words] += (run(task, 2),)

    assert found == ENDS


def test_left_it_leaves_nothing(tmp_path: Path) -> None:
    """When the demo ends, its processes and its folder are gone."""
    before = psutil.Process().children(recursive=True)
    with Demo(8, "", WORK) as demo:
        folder = Path(demo.folder)
        assert (folder / "flowing" / "queue" / "pending").is_dir()
        ours = [child for child in psutil.Process().children(recursive=True) if child not in before]

    assert not folder.exists()
    assert ours
    assert all(map(ended, ours))
