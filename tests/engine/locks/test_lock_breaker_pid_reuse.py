"""The holder's number is given to another process between the last proof and the signal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REUSE = """
import os, subprocess, sys
from engine.locks.lock_breaker import free_lock
from tests.lock_processes import *

def start(code, *args):
    return subprocess.Popen([sys.executable, "-c", code, *args], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)

worker = start(HOLDER.format(manner=PLAIN), sys.argv[1])
assert said(worker) == "held"
given = []

def give_away(step):
    if not given:
        worker.kill()
        worker.wait()
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:
            last.write(str(worker.pid - 1))
        given.append(start(INNOCENT))
        assert given[0].pid == worker.pid, "the number was not given away"
        assert said(given[0]) == "ready"

free_lock(sys.argv[1], 1200.0, say=give_away, **AN_HOUR_ON).release()
assert given, "no process was about to be signalled"
assert is_unharmed(given[0]), "an innocent process got the signal"
given[0].communicate()
print("done")
"""

IN_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c")


@pytest.mark.skipif(
    os.geteuid() != 0
    or shutil.which("unshare") is None
    or subprocess.run([*IN_NAMESPACE, ""], capture_output=True, check=False).returncode != 0,
    reason="PID namespaces cannot be made here",
)
def test_a_number_given_away_before_the_signal_is_spared(tmp_path: Path) -> None:
    """Even at the very last moment: the signal goes to the process that was proven, or to none."""
    run = subprocess.run(
        [*IN_NAMESPACE, REUSE, str(tmp_path / "queue.lock")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "done\n", run.stdout + run.stderr
