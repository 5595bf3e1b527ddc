"""The files of a log as they are rotated: which are opened, in which order, which are the same."""

import gzip
import os
from contextlib import closing
from pathlib import Path

import pytest

from engine.logs.log_file import NO_TIME, FileCache
from engine.logs.merged_log import END, MergedLog, find_mentions
from engine.logs.recent_lines import RecentLines
from engine.logs.rotated_log import RotatedLog, rotated_names
from tests.engine.logs.test_merged_log import NOON, found_at, line, scanned, texts
from tests.engine.logs.test_unpacked_file import PACKERS


def pages(path: Path, since: float = NO_TIME) -> tuple[list[str], dict[str, str]]:
    """The texts of all lines, read from the end, and the troubles."""
    with closing(MergedLog([str(path)], cell=256)) as book:
        book.refresh()
        scan = scanned(book, END, want=10_000, forward=False, since=since)
        return texts(scan.entries), book.troubles


def write_files(folder: Path, names: list[str], lines: int = 20) -> list[str]:
    """Write files with these names, the earliest first; return the texts of their lines."""
    number = 0
    for name in names:
        data = "".join(line(n, f"line {n}") for n in range(number, number + lines))
        number += lines
        pack = next((pack for suffix, pack in PACKERS.items() if name.endswith(suffix)), bytes)
        (folder / name).write_bytes(pack(data.encode()))
        os.utime(folder / name, (NOON + number, NOON + number))
    return [f"line {n}" for n in range(number)]


@pytest.mark.parametrize("names", [
    ["queue.log.10.gz", "queue.log.2.xz", "queue.log.1", "queue.log"],
    ["queue.log-20261113.gz", "queue.log-20261120.bz2", "queue.log-20261120-1", "queue.log"],
    ["queue.log-20261113", "queue.log.2.gz", "queue.log.1.gz", "queue.log"],
    ["queue.log.1.gz"],
])  # fmt: skip
def test_rotated_files_are_read_back_in_order(tmp_path: Path, names: list[str]) -> None:
    """By numbers or dates, with any compression; other names are other files."""
    assert rotated_names("") == []
    expected = write_files(tmp_path, names)
    for other in (".bak", ".1.gz.tmp", "s.1", "."):
        (tmp_path / f"queue.log{other}").write_text(line(9, "other"))
    (tmp_path / "xqueue.log.1").write_text(line(9, "other"))
    assert pages(tmp_path / "queue.log")[0] == expected


def test_a_file_that_is_being_compressed_is_read_once(tmp_path: Path) -> None:
    """While both files exist, or the original has gone; so is a copy that is being made."""
    log, last, packed = (tmp_path / f"queue.log{end}" for end in ("", ".1", ".1.gz"))
    expected = write_files(tmp_path, ["queue.log.2", "queue.log.1", "queue.log"])
    whole = gzip.compress(last.read_bytes())
    packed.write_bytes(whole[:40])
    assert pages(log) == (expected, {})
    with closing(MergedLog([str(log)])) as book:
        book.refresh()
        end = scanned(book, END, want=30, forward=False)
        packed.write_bytes(whole)
        last.unlink()
        rest = scanned(book, end.reached, want=1000, forward=False)
    assert texts([*rest.entries, *end.entries]) == expected
    packed.unlink()
    (tmp_path / "queue.log.2").unlink()
    last.write_bytes(log.read_bytes()[:200])
    assert pages(log)[0] == expected[40:]


def test_no_older_file_is_opened_than_is_asked_for(tmp_path: Path) -> None:
    """A file that was last written before the time is not read; of the lines on screen neither."""
    log = tmp_path / "queue.log"
    names = ["queue.log.3.gz", "queue.log.2.gz", "queue.log.1", "queue.log"]
    expected = write_files(tmp_path, names)
    assert pages(log, NOON + 100)[0] == expected[20:]
    with closing(MergedLog([str(log)])) as book:
        book.refresh()
        scanned(book, END, want=15, forward=False)
        assert len(book.files) == 1
        search = found_at(book, 25)
        assert len(book.files) == 3
        assert texts(scanned(book, search.position).found) == ["line 25"]


def test_a_damaged_file_is_named_and_read_as_far_as_possible(tmp_path: Path) -> None:
    """One line about it, and all lines before and after the damage of that file."""
    log = tmp_path / "queue.log"
    expected = write_files(tmp_path, ["queue.log.2.gz", "queue.log.1", "queue.log"], 3000)
    packed = (tmp_path / "queue.log.2.gz").read_bytes()
    (tmp_path / "queue.log.2.gz").write_bytes(packed[: len(packed) // 2])
    lines, troubles = pages(log)
    assert troubles == {f"{log}.2.gz": "ends in the middle: only what is before is read"}
    assert lines[-6000:] == expected[3000:]
    assert 1000 < len(lines) - 6000 < 2999


def test_lines_of_a_task_and_of_the_last_hour_are_in_rotated_files(tmp_path: Path) -> None:
    """As far back as the task was made, or the hour goes; it is known that none is missing."""
    expected = write_files(tmp_path, ["queue.log.2.gz", "queue.log.1.gz", "queue.log"])
    log = str(tmp_path / "queue.log")
    assert [each.text for each in find_mentions([log], "line 5", 9).lines] == ["line 5"]
    assert find_mentions([log], "line 5", 9, since=NOON + 100).lines == ()
    with closing(RecentLines(log, reach=30)) as recent:
        lines = [each.text for each in recent.poll(NOON + 60)]
        assert recent.since == NOON + 30
    assert lines == expected[-len(lines) :]
    assert set(expected[30:]) <= set(lines)


def test_an_empty_log_is_known_from_the_first_poll_on(tmp_path: Path) -> None:
    """Of one that has lines already, from the first of them on."""
    for text, began in (("", NOON + 10), (line(0, "a"), NOON)):
        log = tmp_path / "queue.log"
        log.write_text(text)
        with closing(RecentLines(str(log))) as recent:
            recent.poll(NOON + 10)
            with log.open("a") as file:
                file.write(line(900, "b"))
            recent.poll(NOON + 900)
            assert recent.began == began


def test_lines_that_were_lost_are_known(tmp_path: Path) -> None:
    """After a file was emptied before it was read, lines are known whole from then on only."""
    log = tmp_path / "queue.log"
    log.write_text(line(0, "a"))
    with closing(RecentLines(str(log))) as recent:
        recent.poll(NOON)
        with log.open("a") as file:
            file.write("y\n" * 2_000_000)
        recent.poll(NOON + 1)
        assert (recent.is_behind, recent.since) == (True, float("-inf"))
        os.truncate(log, 0)
        assert (recent.poll(NOON + 2), recent.since) == ([], NOON + 2)


def test_a_line_is_continued_by_the_next_file(tmp_path: Path) -> None:
    """Lines without a time at the beginning of a file have that of the line before the rotation."""
    log = tmp_path / "queue.log"
    (tmp_path / "queue.log.1").write_text(line(5, "failed", "ERROR") + "Traceback:\n")
    log.write_text("  boom\n" + line(6, "next"))
    assert pages(log)[0] == ["failed", "Traceback:", "  boom", "next"]


def test_files_between_two_refreshes_are_not_missed(tmp_path: Path) -> None:
    """Rotated twice, once compressed: the files come in the order of their lines."""
    log = tmp_path / "queue.log"
    log.write_text(line(1, "a"))
    with closing(RotatedLog(str(log), FileCache(256))) as rotated:
        rotated.refresh()
        (tmp_path / "queue.log.2.gz").write_bytes(gzip.compress(line(2, "b").encode()))
        log.rename(tmp_path / "queue.log.3")
        (tmp_path / "queue.log.1").write_text(line(3, "c"))
        log.write_text(line(4, "d"))
        rotated.refresh()
        found = [entry.line.text for file in rotated.files for entry in file.entries(0)]
        assert found == ["a", "b", "c", "d"]
        assert sorted(file.number for file in rotated.files) == [f.number for f in rotated.files]


def test_a_file_that_was_read_and_removed_is_closed(tmp_path: Path) -> None:
    """Its space is free while the log is followed; the lines of it that were unread have come."""
    log = tmp_path / "queue.log"
    log.write_text(line(1, "a"))
    with closing(RecentLines(str(log))) as recent:
        recent.poll(NOON)
        with log.open("a") as file:
            file.write(line(2, "b"))
        log.unlink()
        log.write_text(line(3, "c"))
        assert [each.text for each in recent.poll(NOON)] == ["b", "c"]
        opened = [fd for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
        assert not [fd for fd in opened if str(fd.readlink()).startswith(f"{log} (deleted)")]
        assert (recent.poll(NOON), recent.since) == ([], float("-inf"))
