"""The law of every reader of a log: written, rotated, copied, compressed, emptied or removed, each
complete line comes once, in order, and whole."""

import gzip
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.formats.zgb.log import find_lines
from engine.logs.merged_log import BEGIN, END, MergedLog
from engine.logs.recent_lines import RecentLines
from tests.engine.logs.test_merged_log import scanned
from tests.examples import examples

KEPT_FILES = 3
"""Rotated files that are kept; the next rotation removes the oldest."""


class WrittenLog:
    """A log with its rotated files, and the lines that a reader of it owes."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "queue.log"
        self.count = 0
        self.torn = ""
        """The beginning of a line whose end was not written yet."""
        self.torn_ends: set[str] = set()
        """Beginnings of lines whose end never comes: their file was left."""
        self.written: set[str] = set()
        """All complete lines."""
        self.owed: list[str] = []
        """Lines that the next read must bring."""
        self.in_current: list[str] = []
        """Lines since the last read that are in the file with the name of the log."""
        self.is_known = True
        """False after the file that the reader knows was removed, or lost its identity."""
        self.rotations = 0
        self.was_truncated = False
        """True if the file was emptied since the last read."""
        self.is_just_rotated = False
        """True if the writer may still have the file that was renamed."""
        self._written_ns = time.time_ns() - 10**12
        self.write(3)
        self.in_current = []

    def write(self, size: int) -> None:
        """Complete the line that was begun, or write a whole one."""
        line = self.torn or self._new_line(size)
        self._append(f"{line[-4:]}\n" if self.torn else f"{self._stamp()}{line}\n")
        self.torn = ""
        self.written.add(line)
        self.in_current.append(line)

    def tear(self, size: int) -> None:
        """Begin a line."""
        if not self.torn:
            self.torn = self._new_line(max(size, 9))
            self._append(f"{self._stamp()}{self.torn[:-4]}")

    def rotate(self, size: int) -> None:
        """Rename all files, as logrotate does, and create a new one."""
        if self.is_known and self.path.exists():
            self.move(size)
            self._append("")
            self.is_just_rotated = True

    def write_late(self, size: int) -> None:
        """Write a line into the file that was just renamed, as a daemon that was not told yet."""
        former = Path(f"{self.path}.1")
        is_late = self.is_known and self.is_just_rotated and former.exists()
        if is_late and not self.path.stat().st_size and former.read_bytes().endswith(b"\n"):
            line = self._new_line(size)
            with former.open("a") as file:
                file.write(f"{self._stamp()}{line}\n")
            self._set_time(former)
            self.written.add(line)
            self.owed.append(line)

    def move(self, size: int) -> None:
        """Rename all files; the next line creates a new one."""
        if self.is_known and self.path.exists():
            self._shift()
            self.path.rename(f"{self.path}.1")
            self._leave()

    def copy_and_truncate(self, size: int) -> None:
        """Rotate by a copy: the writer keeps its file. Not done if that was emptied since the last
        read: the copy would begin with other lines."""
        if self.is_known and self.path.exists() and not self.was_truncated:
            self._shift()
            copy = Path(f"{self.path}.1")
            copy.write_bytes(self.path.read_bytes())
            self._set_time(copy)
            os.truncate(self.path, 0)
            self._set_time(self.path)
            self._leave()

    def compress(self, size: int) -> None:
        """Compress the rotated files."""
        for number in range(1, KEPT_FILES + 1):
            plain = Path(f"{self.path}.{number}")
            if plain.exists():
                packed, times = Path(f"{plain}.gz"), plain.stat()
                packed.write_bytes(gzip.compress(plain.read_bytes()))
                os.utime(packed, ns=(times.st_atime_ns, times.st_mtime_ns))  # as gzip(1)
                plain.unlink()

    def truncate(self, size: int) -> None:
        """Empty the file: what was not read is lost."""
        if self.path.exists():
            os.truncate(self.path, 0)
            self._set_time(self.path)
            self.was_truncated = True
        self.in_current = []
        self._leave()

    def delete(self, size: int) -> None:
        """Remove the file: what was not read may be lost."""
        self.path.unlink(missing_ok=True)
        self.is_just_rotated = False
        self.in_current, self.is_known = [], False
        self._leave()

    def _shift(self) -> None:
        self.rotations += 1
        self.is_just_rotated = False
        if self.rotations > KEPT_FILES:
            self.owed, self.is_known = [], False
        for number in range(KEPT_FILES, 0, -1):
            for suffix in ("", ".gz"):
                old = Path(f"{self.path}.{number}{suffix}")
                if old.exists() and number == KEPT_FILES:
                    old.unlink()
                elif old.exists():
                    old.rename(f"{self.path}.{number + 1}{suffix}")

    def _leave(self) -> None:
        if self.is_known:
            self.owed += self.in_current
        self.in_current = []
        if self.torn:
            self.torn_ends.add(self.torn[:-4])
        self.torn = ""

    def _stamp(self) -> str:
        when = time.gmtime(1_795_176_000 + self.count)
        return f"{time.strftime('[%Y-%m-%d %H:%M:%S]', when)} [INFO] "

    def _new_line(self, size: int) -> str:
        self.count += 1
        return (f"{self.count:06d}," * (size // 7 + 2))[: size + 7]

    def _append(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)
        self._set_time(self.path)

    def _set_time(self, path: Path) -> None:
        """Give each change a time of its own: that of a file system moves in steps of 4 ms."""
        self._written_ns += 10**7
        os.utime(path, ns=(self._written_ns, self._written_ns))

    def present_lines(self) -> list[str]:
        """The complete lines of the file that has the name of the log."""
        text = self.path.read_text() if self.path.exists() else ""
        return [line.rpartition("] ")[2] for line in text.split("\n")[:-1]]

    def check(self, lines: Sequence[str]) -> None:
        """A read has brought these lines."""
        whole = [line for line in lines if line in self.written]
        assert set(lines) <= self.written | self.torn_ends, "a line was invented or cut"
        assert whole == sorted(set(whole)), "a line came twice, or before an earlier one"
        missing = [line for line in (*self.owed, *self.in_current) if line not in lines]
        self.owed = []
        assert not missing, f"lines are missing: {missing}"
        self.in_current, self.is_known, self.rotations = [], self.path.exists(), 0
        self.was_truncated = False


ACTIONS = {
    action.__name__.replace("_", " "): action
    for action in (
        WrittenLog.write, WrittenLog.tear, WrittenLog.rotate, WrittenLog.write_late,
        WrittenLog.move, WrittenLog.copy_and_truncate, WrittenLog.compress, WrittenLog.truncate,
        WrittenLog.delete,
    )
}  # fmt: skip
Read = Callable[[], list[str]]
step = st.tuples(st.sampled_from(["write", "read", *ACTIONS]), st.sampled_from([0, 3, 80, 60_000]))
steps = st.lists(step, min_size=15, max_size=40)
Reader = Callable[[str], AbstractContextManager[Read]]


@contextmanager
def recent_reads(path: str) -> Iterator[Read]:
    """New lines by polls of the last hour."""
    with closing(RecentLines(path)) as recent:
        yield lambda: [line.text for _ in range(9) for line in recent.poll(0.0)]


@contextmanager
def scan_reads(path: str) -> Iterator[Read]:
    """New lines by scans from the last position."""
    with closing(MergedLog([path])) as book:
        book.refresh()
        positions = [book.end_position()]

        def read() -> list[str]:
            book.refresh()
            scan = scanned(book, positions[-1], want=1000)
            positions.append(scan.reached)
            return [entry.line.text for entry in scan.entries if not entry.is_torn]

        yield read


@pytest.mark.parametrize("reader", [recent_reads, scan_reads])
@given(steps=steps)
@example(steps=[("write", 3), ("read", 0), ("truncate", 0), ("write", 3)])
@example(steps=[("write", 3), ("read", 0), ("truncate", 0), *[("write", 3)] * 20])
@examples(60)
def test_each_new_line_comes_once_in_order(reader: Reader, steps: list[tuple[str, int]]) -> None:
    """Only what was emptied or removed between two reads of a followed log is lost."""
    with TemporaryDirectory() as folder:
        log = WrittenLog(folder)
        with reader(str(log.path)) as read:
            read()
            all_lines: list[str] = []
            for action, size in (*steps, ("read", 0)):
                if action == "read":
                    lines = read()
                    log.check(lines)
                    all_lines += [line for line in lines if line in log.written]
                else:
                    ACTIONS[action](log, size)
            assert all_lines == sorted(set(all_lines))


@given(steps=steps)
@examples(40)
def test_pages_of_a_log_have_each_line_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    """From both ends the pages are the same, and have every line of the file of that name now."""
    with TemporaryDirectory() as folder:
        log = WrittenLog(folder)
        book = MergedLog([str(log.path)], cell=1024)
        for action, size in (*steps, ("read", 0)):
            if action != "read":
                ACTIONS[action](log, min(size, 800))
                continue
            if not log.is_known:  # only the times of the files, which are equal, have the order
                book.close()
                book = MergedLog([str(log.path)], cell=1024)
            log.check([*log.owed, *log.in_current])
            book.refresh()
            scans = [scanned(book, mark, want=1000, forward=mark is BEGIN) for mark in (END, BEGIN)]
            up, down = ([e.line.text for e in scan.entries if not e.is_torn] for scan in scans)
            assert up == down == sorted(set(up))
            here = log.present_lines()
            assert [text for text in up if text in here] == here
        book.close()


@given(steps=steps)
@examples(40)
def test_a_search_through_a_log_finds_each_line_once(steps: list[tuple[str, int]]) -> None:
    """One search brings the lines of the rotated file and of the present one, in order."""
    with TemporaryDirectory() as folder:
        log = WrittenLog(folder)
        for action, size in steps:
            if action != "read":
                ACTIONS[action](log, size)
        lines = [line.decode().rpartition("] ")[2] for line in find_lines(str(log.path))]
        assert lines == sorted(set(lines))
        assert set(log.present_lines()) <= set(lines)
