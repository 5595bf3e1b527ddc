"""A worker that the console starts: its end is reported once, to any caller."""

from __future__ import annotations

import os
import sys
import threading

from tests.tables import each
from tui.session.background_command import WorkerProcess

ENDS = (sys.executable, "-c", "import sys; sys.exit('no such queue')")
SLEEPS = ("sleep", "60")


@each("attempt", range(20))
def test_an_end_is_reported_once_while_the_worker_is_released(attempt: int) -> None:
    """While one thread stops it others ask how it ended: none fails, at most one is told."""
    worker = WorkerProcess(SLEEPS)
    worker.start()
    end_lines, failures, is_over = list[str](), list[BaseException](), threading.Event()

    def look() -> None:
        try:
            while not is_over.is_set():
                end_lines.append(worker.describe_end())
        except BaseException as error:
            failures.append(error)

    looking = [threading.Thread(target=look) for _ in range(3)]
    for thread in looking:
        thread.start()
    worker.stop_and_wait()
    is_over.set()
    for thread in looking:
        thread.join()
    assert (failures, worker.pid) == ([], None)
    assert sum(map(bool, end_lines)) <= 1


def test_the_end_has_the_last_line_of_its_errors() -> None:
    """The exit code and what the worker wrote last are told once."""
    worker = WorkerProcess(ENDS)
    worker.start()
    pid = worker.pid
    assert pid is not None
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not reaped yet
    assert worker.describe_end() == f"worker PID {pid} ended with exit code 1: no such queue"
    assert worker.describe_end() == ""
