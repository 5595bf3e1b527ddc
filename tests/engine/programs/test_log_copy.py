"""The end of a log behind a prefix, copied as it grows."""

import os
import re
from contextlib import closing
from pathlib import Path

import pytest

from engine.logs.merged_log import BEGIN, LineScan, MergedLog, run_to_end
from engine.programs.log_copy import FETCH_SECONDS, MAX_BYTES, NEXT_BYTES, LogCopy
from engine.programs.mail_log import MailLog
from engine.programs.prefix import Prefix
from engine.programs.server_watch import TAIL_BYTES
from tests.engine.task_builders import Clock
from tests.tables import each


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The log, on a host that `env` reaches."""
    return tmp_path / "maillog"


def write(path: Path, text: str) -> None:
    """Append to a file."""
    with path.open("a") as file:
        file.write(text)


def copy_of(source: Path, clock: Clock, *words: str) -> LogCopy:
    """A copy of that log in a folder that is not there yet."""
    prefix = Prefix("elsewhere", ("env", *words))
    log = MailLog((str(source),), lambda text: None, bool, re.compile(b""), prefix=prefix)
    return LogCopy(lambda: log, str(source.parent / "state" / "place"), clock)


def test_a_copy_has_each_line_once(source: Path) -> None:
    """A line written in two parts comes once; without a log there is the reason, and no copy."""
    clock = Clock(-FETCH_SECONDS)
    copy = copy_of(source, clock)
    assert "No such file or directory" in copy.fetch()
    assert not Path(copy.path).read_bytes()
    clock.now = 0.0
    source.write_text("first line\nsecond ")
    assert copy.fetch() == ""
    write(source, "line\nthird line\n")
    copy.fetch()
    assert Path(copy.path).read_text() == "first line\n"
    clock.now = FETCH_SECONDS
    copy.fetch()
    assert Path(copy.path).read_text() == "first line\nsecond line\nthird line\n"
    assert Path(copy.path).stat().st_mode & 0o777 == 0o600


@each(
    ("zone", "head", "stamp"),
    [
        ("JST-9", "2026-11-27 23:36:00.250", "11-27T14:36:00.250000+00:00"),
        ("JST-9", "Nov 27 23:36:00", "11-27T14:36:00+00:00"),
        ("EST+9", "9999-12-31 23:36:00", "9999-12-31 23:36:00"),  # UTC cannot show it
        ("JST-9", "0001-01-01 00:36:00", "0001-01-01 00:36:00"),
    ],
    source=lambda folder: folder / "maillog",
)
def test_times_in_a_copy_name_their_zone(source: Path, zone: str, head: str, stamp: str) -> None:
    """The zone there; all other bytes stay as they are, and new lines are appended."""
    clock = Clock(0.0)
    copy = copy_of(source, clock, f"TZ={zone}")
    text = f"{head} mx1 exim[7]: one".encode() + b" \xff\n\tand more\n"
    source.write_bytes(text)
    assert copy.fetch() == ""
    with source.open("ab") as file:
        file.write(text.replace(b"one", b"two"))
    clock.now = FETCH_SECONDS
    copy.fetch()
    copied = Path(copy.path).read_bytes().split(b"more\n")[:2]
    first, second = (re.sub(rb"^20\d\d-", b"", line) for line in copied)
    assert first == f"{stamp} mx1 exim[7]: one".encode() + b" \xff\n\tand "
    assert second == first.replace(b"one", b"two")


@each(
    ("former", "texts"),
    [
        ("maillog.1", ["of yesterday", "late", "of today"]),
        ("maillog-20261128", ["of today"]),  # its name is not known: nothing may be skipped
    ],
    source=lambda folder: folder / "maillog",
)
def test_a_copy_of_a_rotated_log(source: Path, former: str, texts: list[str]) -> None:
    """Its reader has the lines of the former file before the new ones, or the new ones alone."""
    clock = Clock(0.0)
    copy = copy_of(source, clock)
    source.write_text("of yesterday\n")
    copy.fetch()
    with closing(MergedLog([copy.path])) as book:
        book.refresh()
        write(source, "late\n")
        source.rename(source.with_name(former))
        source.touch()
        clock.now = FETCH_SECONDS
        copy.fetch()
        assert Path(copy.path).read_text() == "of yesterday\n"
        source.write_text("of today\n")
        clock.now = 2 * FETCH_SECONDS
        copy.fetch()
        assert book.refresh()
        scan = LineScan(book, BEGIN, want=9)
        run_to_end(scan)
    assert [entry.line.text for entry in scan.entries] == texts


def test_a_copy_never_has_a_hole(source: Path) -> None:
    """It begins again where the new file is too long; while there is none, it stays."""
    clock = Clock(0.0)
    copy = copy_of(source, clock)
    source.write_text("of yesterday\n")
    copy.fetch()
    source.rename(source.with_name("maillog.1"))
    clock.now += FETCH_SECONDS
    assert "No such file" in copy.fetch()
    assert Path(copy.path).read_text() == "of yesterday\n"
    source.write_text("".join(f"{n:099d}\n" for n in range(TAIL_BYTES // 100 + 100)))
    clock.now += FETCH_SECONDS
    copy.fetch()
    assert Path(copy.path).read_text().startswith(f"{100:099d}\n")


def test_many_new_lines_are_copied(source: Path) -> None:
    """More than are asked for first; of still more, the end alone; a long copy begins again."""
    clock, sizes = Clock(0.0), list[int]()
    copy = copy_of(source, clock)
    for number in (100, NEXT_BYTES // 100 + 100, TAIL_BYTES // 100 + 100, 1):
        write(source, "".join(f"{len(sizes)} {n:097d}\n" for n in range(number)))
        copy.fetch()
        clock.now += FETCH_SECONDS
        sizes.append(Path(copy.path).stat().st_size)
        if len(sizes) == 3:
            os.truncate(copy.path, MAX_BYTES + 1)
    tail = TAIL_BYTES // 100 * 100
    assert sizes == [10_000, (200 + NEXT_BYTES // 100) * 100, tail, tail]
