"""The holder of a lock in /proc: state, CPU, I/O, children, files, between two readings."""

import errno
import os
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path

from engine.locks import process_stats
from engine.locks.process_stats import ProcessDelta, ProcReader, list_facts, read_stats, stats_delta
from tests import tables
from tests.lock_processes import INNOCENT, Child, said, tell

Start = Callable[..., Child]

BUSY = """
import sys, time
print("ready", flush=True)
sys.stdin.readline()
end = time.process_time() + {cpu}
while time.process_time() < end:
    pass
with open(sys.argv[1], "wb") as file:
    file.write(b"x" * {bytes})
print("done", flush=True)
sys.stdin.readline()
"""
"""Once it is told to, it uses so many seconds of CPU and writes so many bytes."""

PARENT = """
import subprocess, sys
pipe = subprocess.PIPE
child = subprocess.Popen(["sh", "-c", "echo ready; read answer"], stdin=pipe, stdout=pipe)
child.stdout.readline()  # a process that still executes its program has no command line
print(child.pid, flush=True)
sys.stdin.readline()
child.kill()
"""


def each(seconds: float = 5.0) -> ProcReader:
    """The real /proc, read each so many seconds."""
    moments = count(10_000.0, seconds)
    return ProcReader(clock=lambda: next(moments))


def until(read: Callable[[], process_stats.ProcessStats], state: str) -> process_stats.ProcessStats:
    """The first look that finds a process in a state; the kernel needs a moment for that."""
    for _ in range(100_000):
        stats = read()
        if stats.state == state:
            return stats
        os.sched_yield()
    raise AssertionError(f"never {state}: {stats}")


def a_reading(**fields: object) -> process_stats.ProcessStats:
    """A process that sleeps; only what is named matters."""
    usual = process_stats.ProcessStats(4711, 100.0, state="S", started=50, io_bytes=(0, 0))
    return usual._replace(**{"waits": "do_wait", **fields})  # type: ignore[arg-type]


def test_a_busy_process(tmp_path: Path, start: Start) -> None:
    """What it used and moved between two readings is told, and that it works."""
    child = start(BUSY.format(cpu=0.2, bytes=1_000_000), str(tmp_path / "out"))
    assert said(child) == "ready"
    proc = ProcReader(clock=iter((100.0, 102.0)).__next__)
    before = process_stats._read(child.pid, proc)
    tell(child)
    assert said(child) == "done"
    done = stats_delta(before, process_stats._read(child.pid, proc))
    assert done is not None and done.is_working
    assert done.seconds == 2.0 and 0.1 <= done.cpu <= 2.0
    assert done.io_bytes is not None and done.io_bytes >= 1_000_000
    words = process_stats.describe_activity(done)
    assert "s of CPU" in words and "KiB read and written in the last 2 s" in words


def test_a_process_sleeps_is_stopped_and_ends(start: Start) -> None:
    """Each state has its words: asleep, stopped, zombie, gone."""
    child, proc = start(INNOCENT), each()
    assert said(child) == "ready"
    before = until(lambda: read_stats(child.pid, proc=proc), "S")
    done = stats_delta(before, read_stats(child.pid, proc=proc))
    assert done is not None
    assert (done.cpu, done.io_bytes, done.is_working) == (0.0, 0, False)
    assert process_stats.describe_state(before).startswith("sleeps")
    assert "no CPU, nothing read or written in the last" in process_stats.describe_activity(done)
    child.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    seen = read_stats(child.pid)
    assert process_stats.is_stopped(seen)
    assert process_stats.describe_state(seen) == "is stopped by a signal"
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    state = "has exited, but its parent has not reaped it (zombie)"
    assert process_stats.describe_state(read_stats(child.pid)) == state
    child.wait()
    gone = f"? PID {child.pid}: it has exited"
    assert list_facts(read_stats(child.pid), None) == (("state", gone),)


def test_one_with_children(start: Start) -> None:
    """Its children and what they do are told, by PID, command and age."""
    parent = start(PARENT)
    pid = int(said(parent))
    stats = read_stats(parent.pid)
    tell(parent)
    parent.wait()
    assert not isinstance(stats.descendants, str)
    (child,) = stats.descendants
    assert (child.pid, child.command) == (pid, "sh -c echo ready; read answer")
    children = dict(list_facts(stats, None))["children"]
    assert children.startswith(f"PID {pid} sh -c echo ready; read answer, ")
    assert " old: " in children


@tables.each(
    ("states", "text"),
    [
        ("SSSS", "4, each sleeps: curl, sh"),
        ("SS", "2, each sleeps: curl"),
        ("SZ", "PID 10 /usr/bin/curl -sS x, "),
        ("S", "PID 10 /usr/bin/curl -sS x, "),
    ],
)
def test_children_in_one_state_are_counted(states: str, text: str) -> None:
    """Several that do the same are a line, with their programs; else each has its command."""
    commands = ("/usr/bin/curl -sS x", "curl y", "sh -c z", "sh")
    children = tuple(
        a_reading(pid=10 + n, state=state, command=commands[n]) for n, state in enumerate(states)
    )
    facts = list_facts(a_reading(descendants=children), None)
    told = [words for name, words in facts[facts.index(("open files", facts[3][1])) + 1 :]]
    assert told[0].startswith(text)
    assert len(told) == (1 if "each" in text else len(states))


def test_files_below_the_spool(tmp_path: Path, start: Start) -> None:
    """How many it has open, and the paths below the folder; only some hundred are examined."""
    lock = tmp_path / "run" / "queue.lock"
    lock.parent.mkdir()
    lock.touch()
    child = start(INNOCENT, str(lock))
    assert said(child) == "ready"
    for root, below in ((str(tmp_path), ("run/queue.lock",)), ("/nowhere", ())):
        files = read_stats(child.pid, root).files
        assert isinstance(files, process_stats.OpenFiles)
        assert (files.amount, files.below, files.more) == (4, below, False)

    proc = process_stats.REAL_PROC._replace(
        names=lambda path: [str(n) for n in range(5000)] if path.endswith("fd") else [],
        link=lambda path: f"/spool/{int(path.rpartition('/')[2])}",
    )
    files = read_stats(os.getpid(), "/spool", proc).files
    assert isinstance(files, process_stats.OpenFiles)
    assert (files.amount, len(files.below), files.more) == (5000, process_stats.MAX_FILES, True)
    fact = dict(list_facts(a_reading(files=files), None))["open files"]
    assert fact.startswith(f"5,000 ({process_stats.MAX_FILES} examined); in the spool: 0, 1, 2, 3")
    assert fact.endswith(f"and {process_stats.MAX_FILES - 4} more")


def refusing(*endings: str) -> ProcReader:
    """The real /proc, but for files that we are not let at."""

    def guarded(read: Callable[[str], object]) -> Callable[[str], object]:
        def guard(path: str) -> object:
            if path.endswith(endings):
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return read(path)

        return guard

    real = process_stats.REAL_PROC
    read, names, link = guarded(real.read), guarded(real.names), guarded(real.link)
    return ProcReader(read, names, link, each().clock)  # type: ignore[arg-type]


def test_a_hidden_value_is_unknown_with_its_reason() -> None:
    """Another user's I/O, files and children are `?`, and why; what is known is told."""
    proc = refusing("/io", "/fd", "/task", "/wchan")
    before, now = read_stats(os.getpid(), proc=proc), read_stats(os.getpid(), proc=proc)
    facts = dict(list_facts(now, stats_delta(before, now)))
    assert facts["open files"] == facts["children"] == "? permission denied"
    assert facts["IO"] == "? permission denied"
    assert facts["state"] in ("runs", "sleeps")
    hidden = read_stats(os.getpid(), proc=refusing("/stat"))
    assert list_facts(hidden, None) == (("state", f"? PID {os.getpid()}: permission denied"),)


def test_foreign_words_are_inert() -> None:
    """A command line, a path or a symbol acts on no terminal."""
    red = "\x1b[31mred"
    contents = {
        "stat": b"7 (x) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5 0",
        **{"cmdline": red.encode(), "wchan": red.encode(), "io": b"rchar: 1\nwchar: 2\n"},
        **{"/proc/7/task/7/children": b"8", "children": b""},
    }
    proc = ProcReader(
        read=lambda path: contents.get(path, contents.get(path.rpartition("/")[2], b"")),
        names=lambda path: ["7"],
        link=lambda path: f"/spool/{red}",
    )
    text = "".join(words for _, words in list_facts(read_stats(7, "/spool", proc), None))
    assert "[31mred" in text
    assert text.isprintable()


def test_cpu_and_io_between_two_readings() -> None:
    """A busy handler counts, an older child's past and waking up now and then do not."""
    hz = os.sysconf("SC_CLK_TCK")
    old = a_reading(pid=8, cpu=500 * hz, io_bytes=(7, 7))
    young = a_reading(pid=9, started=9999, cpu=2 * hz, io_bytes=(100, 50))
    before = a_reading(when=90.0, descendants=(old,))
    now = a_reading(when=100.0, descendants=(old, young))
    assert stats_delta(before, now) == ProcessDelta(10.0, 2.0, 150)
    others: list[dict[str, object]] = [{"started": 49}, {"unknown": "it has exited"}]
    for other in (a_reading(when=99.9), *(a_reading(when=90.0, **fields) for fields in others)):
        assert stats_delta(other, a_reading()) is None
    for done, works in (
        (ProcessDelta(5.0, 0.05, 400), False), (ProcessDelta(5.0, 0.2, 0), True),
        (ProcessDelta(5.0, 0.0, 5 * 65536), True), (ProcessDelta(5.0, 0.0, None), False),
    ):  # fmt: skip
        assert done.is_working is works


def test_the_state_in_words() -> None:
    """The kernel's letters and symbols are told in words, and kept where there is no word."""
    disk = "waits for a disk or a server, no signal can end it (io_schedule)"
    for fields, words in (
        ({}, "sleeps, waits for a child to end (do_wait)"),
        ({"waits": "new_in_7_1"}, "sleeping in new_in_7_1"),
        ({"waits": ""}, "sleeps"), ({"state": "D", "waits": "io_schedule"}, disk),
        ({"state": "R"}, "runs"), ({"state": "Q"}, "is in state Q"),
    ):  # fmt: skip
        assert process_stats.describe_state(a_reading(**fields)).startswith(words)
