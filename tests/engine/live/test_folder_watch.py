"""What the places of one console share: turns at full scans, and one heap of memory."""

import platform
import subprocess
import sys
import threading

import pytest

from engine.live import folder_watch
from engine.live.folder_watch import SCANS_TOGETHER, SharedParts

PATIENCE = 60.0


def never() -> bool:
    """No scan is urgent."""
    return False


def nothing() -> None:
    """Nothing to do meanwhile."""


def test_no_more_scans_run_than_there_are_turns() -> None:
    """A scan waits until another one ends, and does other work meanwhile."""
    shared, go, waits, most = SharedParts(), threading.Event(), threading.Event(), []
    running: list[int] = []

    def scan(number: int) -> None:
        with shared.scan_turn(never, waits.set):
            running.append(number)
            most.append(len(running))
            go.wait(PATIENCE)
            running.remove(number)

    scans = [threading.Thread(target=scan, args=(n,)) for n in range(3 * SCANS_TOGETHER)]
    for thread in scans:
        thread.start()
    assert waits.wait(PATIENCE)
    go.set()
    for thread in scans:
        thread.join(PATIENCE)
    assert len(most) == len(scans)
    assert max(most) <= SCANS_TOGETHER


def test_an_urgent_scan_and_one_that_waited_take_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the place on the screen does not wait; after the longest wait, none does."""
    shared = SharedParts()
    for _ in range(SCANS_TOGETHER + 1):
        shared.scan_turn(lambda: True, nothing).__enter__()
    with shared.scan_turn(never, nothing):
        pass

    monkeypatch.setattr(folder_watch, "TURN_TIMEOUT_SECONDS", 0.2)
    shared = SharedParts()
    hanging = [shared.scan_turn(never, nothing) for _ in range(SCANS_TOGETHER)]
    for turn in hanging:
        turn.__enter__()
    with shared.scan_turn(never, nothing):
        pass


ARENAS = """
import sys, threading
from engine.system import malloc
if sys.argv[1] == "one":
    malloc.use_one_arena()
gate = threading.Barrier(4)
def allocate():
    gate.wait()
    kept = [bytes(1000) for _ in range(1000)]
    gate.wait()
threads = [threading.Thread(target=allocate) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
sizes = [line.split()[0].split("-") for line in open("/proc/self/maps")]
print(sum(int(end, 16) % (64 << 20) == 0 and
          int(end, 16) - int(start, 16) > (32 << 20) for start, end in sizes))
"""
"""Counts the rests of heaps: each reserves 64 MiB that are aligned."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no other C library has arenas")
def test_all_threads_allocate_from_one_heap() -> None:
    """After `use_one_arena` threads make no heap of their own, as they do without it."""
    argv = [sys.executable, "-c", ARENAS]
    heaps = [int(subprocess.check_output([*argv, how])) for how in ("one", "many")]
    assert heaps[0] == 0
    assert heaps[1] > 0
