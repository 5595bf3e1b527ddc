"""Spooldeck as the first process of a container, in a PID namespace of its own."""

import subprocess
import sys
from pathlib import Path

from tests.engine.locks.test_lock_breaker import needs_namespace
from tests.nftban_queues import add_task

NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
ORPHAN = """setsid sh -c 'echo $$ >{folder}/pid' &
wait
"""
REAPED = "while kill -0 $(cat {folder}/pid); do :; done\n"


def work_as_first(root: str, folder: Path, *scripts: str) -> subprocess.CompletedProcess[str]:
    """Run a worker as PID 1 with one task for each script, in order."""
    handlers = []
    for number, script in enumerate(scripts):
        (folder / f"{number}.sh").write_text(script.format(folder=folder))
        command = f"[sh, {folder}/{number}.sh]"
        handlers.append(f"  task{number}: {{command: {command}, timeout: 20}}\n")
        add_task(root, f"task{number}", 1_795_239_223 + number)
    (folder / "h.yaml").write_text(f"handlers:\n{''.join(handlers)}")
    words = ("--config", f"{folder}/h.yaml", "queue", "work", root)
    argv = [*NAMESPACE, sys.executable, "-m", "tui.cli", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@needs_namespace
def test_a_worker_as_pid_1_reaps_orphans_and_passes_signals_on(tmp_path: Path, root: str) -> None:
    """What a task leaves behind is no zombie; SIGTERM to PID 1 ends the worker after its task."""
    done = work_as_first(root, tmp_path, ORPHAN, REAPED, "kill -TERM 1\n")
    assert (done.returncode, done.stderr) == (0, "spooldeck: 3 done, 0 failed\n")
