"""A log followed by polls: parsed lines, rotation, truncation, long lines, shared logs."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from math import inf
from pathlib import Path
from typing import TypeAlias

import pytest

from engine.logs.log_line import LogLine, SharedLog, format_log_line, parse_head, parse_log_line
from engine.logs.recent_lines import RecentLines
from tests.engine.logs.test_merged_log import add
from tests.engine.task_builders import GOLDEN
from tests.tables import each


@pytest.fixture(autouse=True)
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is that of New York, so that it is not UTC anywhere by chance."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return where the log is."""
    return tmp_path / "some.log"


Follow: TypeAlias = Callable[..., RecentLines]


@pytest.fixture
def follow(log: Path) -> Iterator[Follow]:
    """Follow the log from some bytes before its end on; it is closed in the end."""
    tails: list[RecentLines] = []

    def start(backlog: int = 65536) -> RecentLines:
        tails.append(RecentLines(str(log), inf, backlog))
        return tails[-1]

    yield start
    for tail in tails:
        tail.close()


def texts(lines: list[LogLine]) -> list[str]:
    """Return what the lines say."""
    return [line.text for line in lines]


def of(when: float | None, level: str = "", text: str = "") -> LogLine:
    """A line of the log named log."""
    return LogLine(when, level, text, "log")


READ: dict[bytes, LogLine] = {
    b"[2026-11-20 09:41:15] [INFO] Task queued: 1 (a: b)": of(1795185675.0, "INFO",
     "Task queued: 1 (a: b)"),
    b"[2026-07-01 00:00:00] [ALERT] x\r\n": of(1782878400.0, "ALERT", "x"),
    b"[2026-07-01 00:00:00] [warn]": of(1782878400.0, "WARN", ""),
    b"20261120094115 started, PID 7": of(1795185675.0, "", "started, PID 7"),
    b"{}": of(None),
    b'{"msg": "m", "level": "warn", "ts": 5}': of(5.0, "WARN", "m"),
    b'{"message": "m", "severity": 50, "time": 5000000000000}': of(5000000000.0, "ERROR", "m"),
    b'{"a": 1, "b": "x", "c": {"d": null}}': of(None, "", 'a=1 b=x c={"d": null}'),
    b'{"timestamp": "2026-11-20T09:41:15Z"}': of(1795167675.0),
    b'{"timestamp": "2026-11-20 09:41:15"}': of(1795185675.0),
    b'{"time": "noon", "msg": 3}': of(None, "", "3"),
    b'{"time": true, "level": null}': of(None),
    b'{"time": NaN}': of(None),
    b'{"time": 1e400}': of(None),
    b'{"level":"error","event":"failed","run":"r","pid":7,"db":"/a/q.db","type":"user",'
     b'"job":3,"reg":7,"ms":12,"next_attempt_at":9,"to":"a***@b","error":"451 busy"}': of(None,
     "ERROR", "failed 7-user job=3 to=a***@b error=451 busy next_attempt_at=9 ms=12 run=r pid=7"
     " db=/a/q.db"),
    b'{"event":"redirect_blocked","pid":7,"type":"user"}': of(None, "",
     "redirect_blocked type=user pid=7"),
    b'{"event":"x","reg":[1],"type":"a"}': of(None, "", "x reg=[1] type=a"),
}  # fmt: skip
ONLY_TEXT = [
    b"[2026-13-01 00:00:00] [INFO] x", b"[2026-07-01 25:00:00] [INFO] x", b"[", b"", b"{",
    b"[2026-07-01 00:00:00] INFO x", b"[2026-07-01 00:00:00] [IN FO] x", b"{1: 2}",
    b"[2026-07-01T00:00:00] [INFO] x", "[٢٠٢٦-07-01 00:00:00] [INFO] x".encode(),
    b"20261320094115 x", b"20261120094115", b"2026112009411 x", b"20261120094199 x",
    b"Nov 20 09:41:15", b"Nov 31 25:41:15 host x", b"Nox 20 09:41:15 host x",
    b"2026-11-20 09:41:75 x", b"2026-13-20T09:41:15+00:00 x", b"1795167675 x",
    b'{"event":"failed","run":"r","pi', b'{"time": ' + b"9" * 5000 + b"}", b'{"a": ' + b"[" * 60000,
]  # fmt: skip


def test_a_line_is_read_as_what_it_is() -> None:
    """Lines of the contract and of JSON give time and level; all others are only text."""
    assert {raw: parse_log_line(raw, "log") for raw in READ} == READ
    for raw in ONLY_TEXT:
        assert parse_log_line(raw, "log") == of(None, "", raw.decode())
    assert format_log_line("INFO", "a\nb\x1b[31m\udcff", 1795167675.9) == (
        "[2026-11-20 04:41:15] [INFO] a\ufffdb\ufffd[31m\ufffd\n".encode()
    )


@each(("text", "when", "rest"), [
    ("2026-11-20T09:41:15.063221+00:00 host a[3]: x", 1795167675.063221, "host a[3]: x"),
    ("2026-11-20T04:41:15-05:00 host x", 1795167675.0, "host x"),
    ("2026-11-20T09:41:15Z x", 1795167675.0, "x"), ("2026-11-20 04:41:15 x", 1795167675.0, "x"),
    ("2026-11-20 04:41:15.250 x", 1795167675.25, "x"),
    ("2026-11-20 10:41:15 +0100 x", 1795167675.0, "x"),
    ("1795167675.063221 host x", 1795167675.063221, "host x"),
    ("Nov 20 04:41:15 host x", 1795167675.0, "host x"),
    ("Jan  7 04:41:15 host x", 1767778875.0, "host x"),
])  # fmt: skip
def test_heads_of_syslog_journal_and_bare_times_are_read(text: str, when: float, rest: str) -> None:
    """Heads with a zone give that time; those without one are local times."""
    line = parse_log_line(text.encode(), "log", None, 1795170000.0)
    assert line.when == pytest.approx(when)
    assert (line.level, line.text) == ("", rest)


@each(("stamp", "year"), [
    ("Jan  7 04:41:15", 2026), ("Jan  8 04:41:15", 2026), ("Jan  9 04:41:15", 2025),
    ("Dec 31 23:59:59", 2025), ("Feb 29 00:00:01", 2024),
])  # fmt: skip
def test_a_head_without_a_year_is_of_the_year_of_the_last_write(stamp: str, year: int) -> None:
    """A month after the last write is of the year before; a day more is left to clocks, zones."""
    head = parse_head(f"{stamp} host x", None, 1767778875.0)  # 2026-01-07 04:41:15
    assert head is not None and time.localtime(head[0]).tm_year == year


def test_the_real_programs_logs_are_understood() -> None:
    """Each line gives time and level, and the same bytes when written; JSON shows all it holds."""
    for name in ("queue.log", "queue.processor-run.log", "mail.log"):
        for raw in (GOLDEN / name).read_bytes().splitlines(keepends=True):
            line = parse_log_line(raw, name)
            assert line.when is not None
            assert format_log_line(line.level, line.text, line.when) == raw
    raw = (GOLDEN / "delivery.jsonl").read_bytes().splitlines()[0]
    line = parse_log_line(raw, "delivery.jsonl")
    assert line.when is not None
    assert f"transport={json.loads(raw)['transport']}" in line.text


def test_new_lines_come_once(log: Path, follow: Follow) -> None:
    """Old lines first, then each added one once it is whole; of a renamed log the rest first."""
    add(log, "one\ntwo\n")
    tail, name = follow(), "Gr\u00fc\u00dfe\n".encode()
    for added, expected in (
        (b"", ["one", "two"]), (b"", []), (b"three\n\nfour\n", ["three", "", "four"]), (b"", []),
        (name[:3], []), (name[3:], ["Gr\u00fc\u00dfe"]),
    ):  # fmt: skip
        add(log, added)
        assert texts(tail.poll(0.0)) == expected
    add(log, "two\ntorn")
    log.rename(log.with_suffix(".1"))
    assert texts(tail.poll(0.0)) == ["two"]
    for added, expected in ((b"three\n", ["torn", "three"]), (b"four\n", ["four"])):
        add(log, added)
        assert texts(tail.poll(0.0)) == expected


def test_only_the_end_of_a_long_log_is_shown(log: Path, follow: Follow) -> None:
    """The backlog begins with a whole line; however large the log, little of it is read."""
    add(log, "aaaa\nbbbb\ncccc\n")
    lines = ["aaaa", "bbbb", "cccc"]
    for size, shown in ((10, lines[1:]), (9, lines[2:]), (0, []), (99, lines)):
        assert texts(follow(size).poll(0.0)) == shown
    os.truncate(log, 1 << 30)
    add(log, "\nthe end\n")
    assert texts(follow().poll(0.0)) == ["the end"]


@pytest.mark.parametrize("again", [b"", b"six\nten\n", b"three\nfour\nfive\n"])
def test_a_log_that_is_emptied_is_followed(log: Path, follow: Follow, again: bytes) -> None:
    """Truncated, it goes on from its new beginning, also when it has grown beyond where we were."""
    add(log, "one\ntwo\n" if again else "one\ntorn")
    tail = follow()
    tail.poll(0.0)
    os.truncate(log, 0)
    add(log, again)
    os.utime(log, ns=(1, 1))
    assert texts(tail.poll(0.0)) == again.decode().split()
    add(log, "two\n")
    assert texts(tail.poll(0.0)) == ["two"]


def test_a_writer_that_keeps_its_place_is_followed(log: Path, follow: Follow) -> None:
    """After a truncation its next line is behind a hole of NULs, which is no part of its text."""
    with log.open("w") as file:
        file.write("one\n" * 50_000)
        file.flush()
        tail = follow(4)
        assert texts(tail.poll(0.0)) == ["one"]
        os.truncate(log, 0)
        file.write("[2026-07-01 00:00:00] [INFO] two\n")
    (line,) = tail.poll(0.0)
    assert (line.when, line.text) == (1782878400.0, "two ... 200,000 bytes more")


def test_a_log_that_comes_later_is_read_whole(log: Path, tmp_path: Path, follow: Follow) -> None:
    """A log, or its folder, may come later and be replaced; what comes is new, with any bytes."""
    tail = follow(0)
    assert tail.poll(0.0) == []
    add(log, b"a\xff\x00b\n[2026-07-01 00:00:00] [INFO] \xc3\n")
    assert texts(tail.poll(0.0)) == ["a\ufffd\x00b", "\ufffd"]
    log.unlink()
    add(log, "x" * 100_000 + "\nlast\n")
    assert texts(tail.poll(0.0))[-1] == "last"
    late = RecentLines(str(tmp_path / "no" / "folder"))
    assert late.poll(0.0) == []
    late.close()
    late.close()


def test_a_poll_is_bounded(log: Path, follow: Follow) -> None:
    """A megabyte without an end is one line of bounded length; a poll brings a bounded part."""
    tail = follow()
    tail.poll(0.0)
    add(log, b"x" * (1 << 20) + b"\nnext\n" + b"y" * 65536 + b"\n")
    lines = [line for _ in range(4) for line in tail.poll(0.0)]
    cut = " ... 983,040 bytes more"
    assert [len(line.text) for line in lines] == [65536 + len(cut), 4, 65536]
    assert lines[0].text.endswith(f"xx{cut}")
    add(log, "x\n" * 80_000)
    counts = [len(tail.poll(0.0)) for _ in range(20)]
    assert max(counts) < 50_000
    assert sum(counts) == 80_000


def test_a_log_that_cannot_be_followed_loses_nothing(log: Path, follow: Follow) -> None:
    """The lines before the rotation come; that the new log is none is said by the next poll."""
    add(log, "one\n")
    tail, old = follow(), log.with_suffix(".1")

    def refused() -> None:
        assert (tail.poll(0.0), tail.problem) == ([], "expected a regular file")

    log.rename(old)
    log.mkdir()
    refused()
    log.rmdir()
    old.rename(log)
    assert texts(tail.poll(0.0)) == ["one"]
    add(log, "two\ntorn")
    log.rename(old)
    log.mkdir()
    assert texts(tail.poll(0.0)) == ["two", "torn"]
    refused()
    log.rmdir()
    add(log, "three\n")
    assert texts(tail.poll(0.0)) == ["three"]


def test_lines_of_another_database_in_a_shared_log_are_skipped(log: Path, follow: Follow) -> None:
    """Two write there of a task 7-user each: one of them is followed, with all that names none."""
    add(log, '{"event": "sent", "reg": 7, "type": "user", "db": "/b.db"}\n')
    add(log, '{"event": "failed", "reg": 7, "type": "user", "db": "/a.db"}\n')
    add(log, '{"event": "noted"}\nplain words, db=/b.db\n{"event": "torn", "db": "/b.db')
    with closing(RecentLines(SharedLog(str(log), "/a.db"))) as tail:
        polled, whole = tail.poll(0.0), follow().poll(0.0)
        assert texts(polled) == ["failed 7-user db=/a.db", "noted", "plain words, db=/b.db"]
        assert texts(whole) == ["sent 7-user db=/b.db", *texts(polled)]
        add(log, '"}\n{"event": "sent", "db": "/a.db"}\n')
        assert texts(tail.poll(0.0)) == ["sent db=/a.db"]
