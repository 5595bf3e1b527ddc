"""What a power cut leaves: whatever was answered before it holds, and every task stands once."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine import locks
from tests.crash import powercut
from tests.crash.disk import Disk, Recording, Written, read_in, recorded, remains, write_out


@pytest.fixture
def root() -> Iterator[str]:
    """An empty folder, in memory where there is such a place."""
    with tempfile.TemporaryDirectory(prefix="powercut-", dir=powercut.PLACE) as root:
        yield root


@pytest.mark.parametrize("name", powercut.VERBS)
def test_a_power_cut_takes_nothing_that_was_answered(name: str, root: str) -> None:
    """Whatever of a verb a power cut takes, once recovered each task is whole, stands under one
    name, as it was promised last or as something begun since would have it, and counts right.
    """
    result = powercut.cut(powercut.VERBS[name], root)

    assert result.harms == []
    assert result.disks > 2, "a cut that leaves only the beginning and the end cuts nothing"


@pytest.mark.parametrize("name", ["take, nack", "hold, no desk yet", "edit"])
def test_a_second_power_cut_during_recovery_takes_nothing_either(name: str, root: str) -> None:
    """A recovery that is itself cut off at any step leaves what the next one sets right."""
    result = powercut.cut_again(powercut.VERBS[name], root)

    assert result.harms == []
    assert result.disks > 5


def test_a_lock_that_a_power_cut_left_is_in_nobodys_way(root: str) -> None:
    """Whatever is left of a lock that was taken, renewed or released when the power went, whoever
    comes next gets it.
    """
    now = time.time()
    Path(root, "run").mkdir()
    with recorded(Recording(f"{root}/run")) as recording:
        lock = locks.acquire(f"{root}/run/queue.lock", 1200, lambda: now)
        now += locks.RENEWAL
        lock.renew()
        lock.release()

    left = list(powercut.disks(recording))
    for _, contents in left:
        write_out(contents, f"{root}/cut")
        locks.acquire(f"{root}/cut/queue.lock", 1200, lambda: now + 10).release()
        shutil.rmtree(f"{root}/cut")

    assert len(left) > 10


# ---- the harness itself: what it must find


def below(word: str) -> Callable[[str], bool]:
    """Of which paths a disk lies: of one folder, not of what lies in it."""
    return lambda path: path.endswith(f"/{word}")


LIES: dict[str, tuple[str, Callable[[str], bool]]] = {
    "no fsync at all: a new task": ("enqueue", lambda path: True),
    "no fsync at all: a failed one": ("take, nack", lambda path: True),
    "no fsync at all: a changed one": ("edit", lambda path: True),
    "of the file": ("enqueue", lambda path: path.rpartition("/")[2].startswith("T.")),
    "of the file, changed": ("edit", lambda path: path.rpartition("/")[2].startswith("T.")),
    "of the folder it comes to": ("enqueue", below("pending")),
    "of the folder it comes to, moved": ("retry", below("pending")),
    "of the folder it leaves": ("take, nack", below("work")),
    "of the folder that holds a new one": ("hold, no desk yet", below("spool")),
    "of the desk": ("expunge", below(".spooldeck")),
    "of the reason": ("set aside", lambda path: path.endswith(".why")),
    "of the folder of reasons": ("set aside", below("corrupt")),
    "of both folders, put back": ("put back", lambda p: p.endswith(("/pending", "/corrupt"))),
}
"""A verb, and of which paths an fsync is skipped while it says that it was done."""


@pytest.mark.parametrize("lie", LIES)
def test_a_missing_fsync_is_found(lie: str, root: str) -> None:
    """Where a single fsync is left out, there is a disk on which a promise does not hold."""
    name, lies = LIES[lie]

    assert powercut.cut(powercut.VERBS[name], root, lies).harms


def test_a_disk_is_written_out_as_it_was_read_in(tmp_path: Path) -> None:
    """What was read of a folder, second names included, is written out again the same."""
    first = tmp_path / "first"
    (first / "below" / "empty").mkdir(parents=True)
    (first / "a").write_bytes(b"one")
    (first / "below" / "b").hardlink_to(first / "a")
    disk = read_in(str(first))

    write_out(disk.contents(), str(tmp_path / "second"))

    assert read_in(str(tmp_path / "second")).contents() == disk.contents()
    assert (tmp_path / "second" / "below" / "b").samefile(tmp_path / "second" / "a")


def test_what_was_not_synced_may_be_anything() -> None:
    """The data of a write that no fsync followed may be whole, lost, half there or zeros."""
    before = Disk(1, {(1, "a"): 2}, {2: b"old"}, frozenset({1}))

    left = [disk.data[2] for disk in remains(before, [Written(2, b"newest")], frozenset({1}))]

    assert sorted(left) == sorted([b"old", b"newest", b"new", bytes(6)])
