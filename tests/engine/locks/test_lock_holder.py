"""What a lock file says, what /proc says of a process, and when no process may be signalled."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.locks import lock_file, lock_holder
from engine.locks.lock_file import LockClaim, ProcessMark, format_claim, parse_claim
from engine.locks.lock_holder import HolderProcess, LockReading, Observer, signal_refusal
from tests.lock_processes import INNOCENT, marked, said
from tests.tables import each

Start = Callable[..., subprocess.Popen[str]]
BOOT = "0478a6fb-54b1-47f2-ae6a-cb7a3a69ea7e"
BOOTED = 1_795_000_000.0
TAKEN = 1_795_167_737
"""Epoch seconds at which the reading's lock was written last."""

MARK: dict[str, Any] = {"host": "mx1", "uid": 993, "group": 4242, "token": "ab" * 8}
OURS = LockClaim(
    4242, TAKEN, ProcessMark(BOOT, 990_000, 4026531836, alive_at=167_737, slept=60, **MARK)
)
THEIRS = LockClaim(4242, TAKEN)
HERE = Observer(5000, 0, BOOT, pid_ns=4026531836, host="mx1", ancestors=frozenset({4999, 1}))
WORKER = HolderProcess(
    4242, "", 990_000, parent=1, uids=frozenset({993}), command="spooldeck queue work", taker=4242
)
BASH = WORKER._replace(
    command="bash /usr/sbin/nftban-queue-processor", program="nftban-queue-processor", taker=None
)
CHILD = HolderProcess(
    4300, "", 990_500, parent=4242, uids=frozenset({993}), command="/bin/sh handle.sh", taker=4242
)


def reading(**changes: object) -> LockReading:
    """A stuck lock of ours, of which all is known and all fits."""
    times: dict[str, Any] = {"mtime": float(TAKEN), "booted": BOOTED, "remote": ""}
    who: dict[str, Any] = {"others": (), "observer": HERE, "owner": 993, "writer": 993}
    plain = LockReading(OURS, True, WORKER, **who, **times)
    return LockReading._make((plain._asdict() | changes).values())


def test_what_is_written_is_read() -> None:
    """A lock file holds what it was made from, PID and time first, in the contract's form."""
    texts = (format_claim(OURS), format_claim(THEIRS), format_claim(OURS) + b"tail of\nanother\n")
    assert [*map(parse_claim, texts)] == [OURS, THEIRS, OURS]
    assert texts[0].startswith(b"4242\n1795167737\n" + BOOT.encode() + b"\n990000\n")
    assert texts[1] == b"4242\n1795167737\n"


@given(st.integers(0, 9_999_999_999), st.integers(-999_999_999, 9_999_999_999))
def test_no_heartbeat_changes_the_length(written: int, alive_at: int) -> None:
    """With any clocks, a file written over the one before leaves nothing of it."""
    assert OURS.mark is not None
    claim = LockClaim(4242, written, OURS.mark._replace(alive_at=alive_at))
    assert len(format_claim(claim)) == len(format_claim(OURS))
    assert parse_claim(format_claim(claim)) == claim


@each(("up", "slept", "silent"), [
    (167_737 + 30, 60, 30),
    (167_737 + 3600, 60, 3600),
    (167_737 + 3600, 60 + 3590, 10),  # the machine slept, and the holder with it
    (167_737 + 30, 0, 30),
    (167_000, 60, 0),  # from the future
])  # fmt: skip
def test_a_machine_asleep_is_no_silent_holder(up: float, slept: float, silent: float) -> None:
    """A holder without a heartbeat while the machine is awake is silent."""
    assert lock_holder.heartbeat_age(reading(), TAKEN + 9999.0, up, slept) == silent


@given(st.binary(max_size=300) | st.from_regex(rb"[0-9\n+-]{0,40}", fullmatch=True))
def test_any_bytes_name_a_process_or_none(data: bytes) -> None:
    """No bytes make the reader fail or return a number that is no PID."""
    claim = parse_claim(data)
    assert claim is None or 1 <= claim.pid <= lock_file.MAX_PID


@given(st.integers(0, len(format_claim(OURS)) - 1), st.integers(0, 255))
def test_a_torn_or_changed_lock_is_not_the_same(at: int, byte: int) -> None:
    """A torn lock names no process or the contract's two lines; a changed byte is noticed."""
    assert parse_claim(format_claim(OURS)[:at]) in (None, THEIRS)
    data = bytearray(format_claim(OURS))
    before, data[at] = data[at], byte
    assert byte == before or parse_claim(bytes(data)) != OURS or data[at : at + 1] in b"+-"


@each(("arguments", "shown"), [(20, "a" * 9), (200, "a…")])
def test_the_command_line_of_a_holder_is_whole_or_has_a_sign(arguments: int, shown: str) -> None:
    """It is found by its last arguments: a longer one than 500 characters ends in an ellipsis."""
    command = "python" + " aaaaaaaaa" * arguments
    ((_, holder), *_) = lock_holder.list_facts(
        reading(named=WORKER._replace(command=command)), 1, 9
    )
    assert holder.endswith(shown) and len(holder) == min(len(f"PID 4242: {command}"), 510)


def _ours(**marks: int) -> LockClaim:
    return marked(OURS, **marks)


@each("changes", [
    {},
    {"named": None, "others": (CHILD,)},
    {"named": None, "others": (CHILD._replace(taker=0),)},
    {"claim": THEIRS, "named": BASH, "busy": False},
    {"named": WORKER._replace(uids=frozenset({0})), "claim": _ours(uid=0)},
    # Whole seconds of CLOCK_BOOTTIME: a heartbeat that equals the start is the first.
    *({"claim": _ours(alive_at=uptime)} for uptime in (9_898, 9_900, 9_901)),
])  # fmt: skip
def test_where_all_fits_there_is_no_doubt(changes: dict[str, object]) -> None:
    """The holder, a handler it left behind, and the real program: proven, they may be ended."""
    assert signal_refusal(reading(**changes)) == ""


NO_HEIR = "but did not inherit it from PID 4242"

DOUBTS: list[tuple[dict[str, object], str]] = [
    ({"remote": "nfs4"}, "other machines may share (nfs4)"),
    ({"observer": HERE._replace(host="mx2")}, "taken on host mx1; this is mx2"),
    ({"observer": HERE._replace(boot=BOOT[::-1])}, "before the last boot"),
    ({"observer": HERE._replace(pid_ns=7)}, "another PID namespace"),
    ({"observer": HERE._replace(pid=4242)}, "PID 4242 is this process"),
    ({"observer": HERE._replace(ancestors=frozenset({4242}))}, "ancestor of this process"),
    ({"observer": HERE._replace(uid=1000)}, "permission denied to signal it (use root)"),
    ({"named": WORKER._replace(hidden="/proc hides it from us")}, "hides it from us"),
    ({"named": WORKER._replace(uids=frozenset({993, 0}))}, "several uids"),
    ({"named": WORKER._replace(uids=frozenset())}, "several uids"),
    ({"named": WORKER._replace(uids=frozenset({0}))}, "does not run as uid 993"),
    ({"named": WORKER._replace(uids=frozenset({33}))}, "folder belongs to uid 993"),
    ({"owner": 33}, "runs as uid 993, but the lock's folder belongs to uid 33"),
    ({"named": WORKER._replace(taker=None)}, "does not hold the flock"),
    ({"named": WORKER._replace(taker=4243)}, "inherited the flock from PID 4243"),
    ({"named": WORKER._replace(taker=None, files_hidden=True)}, "cannot see whether"),
    ({"named": None}, "not visible from here"),
    ({"named": WORKER._replace(started=990_001)}, "not visible from here"),
    ({"named": None, "others": (CHILD._replace(taker=4301),)}, NO_HEIR),
    ({"named": None, "others": (CHILD._replace(pid=1),)}, "PID 1 is never signalled"),
    ({"named": None, "others": (CHILD._replace(pid=5000),)}, "PID 5000 is this process"),
    ({"named": None, "others": (CHILD._replace(pid=4999),)}, "ancestor of this process"),
    ({"named": None, "others": (CHILD._replace(pid=4242),)}, NO_HEIR),
    ({"named": None, "others": (CHILD, CHILD._replace(uids=frozenset({33})))}, "uid 33"),
    ({"claim": _ours(alive_at=9_897)}, "started 2026-11-18 13:51:40Z, after its last heartbeat"),
    ({"claim": OURS._replace(pid=1), "named": WORKER._replace(pid=1)}, "PID 1 is never"),
]
FOREIGN_DOUBTS: list[tuple[dict[str, object], str]] = [
    ({"mtime": TAKEN + 3.0}, "modified after it was written"),
    ({"named": BASH._replace(program="cron")}, "does not look like a worker"),
    ({"named": BASH._replace(program="")}, "does not look like a worker"),
    ({"writer": 65534}, "does not run as the owner of the lock file"),
    ({"named": BASH._replace(uids=frozenset({0}))}, "does not run as the owner of the lock file"),
    ({"named": BASH._replace(hidden="/proc does not show it to us")}, "does not show it"),
    ({"named": BASH._replace(uids=frozenset({33}))}, "folder belongs to uid 993"),
    ({"named": BASH._replace(started=16_774_000)}, "not visible from here"),
    ({"busy": True}, "another process than PID 4242 has the flock"),
    ({"busy": True, "named": None, "others": (CHILD,)}, NO_HEIR),
    ({"remote": "fuse.sshfs"}, "other machines may share (fuse.sshfs)"),
    ({"observer": HERE._replace(ancestors=frozenset({4242}))}, "ancestor of this process"),
]
THEIR_SCENE: dict[str, object] = {"claim": THEIRS, "named": BASH, "busy": False}


@each(
    ("changes", "why"), DOUBTS + [(THEIR_SCENE | changes, why) for changes, why in FOREIGN_DOUBTS]
)
def test_one_thing_that_does_not_fit_is_a_doubt(changes: dict[str, object], why: str) -> None:
    """One thing amiss, in our lock or the real program's, keeps all from being signalled."""
    assert why in signal_refusal(reading(**changes))


ANOTHER_BOOT = HERE._replace(boot=BOOT[::-1])
CONTRADICTIONS: list[tuple[dict[str, object], str]] = [
    ({}, ""),
    (THEIR_SCENE, ""),
    ({"claim": _ours(alive_at=9_897)}, "started 2026-11-18 13:51:40Z, after its last heartbeat"),
    ({"named": WORKER._replace(started=990_001)}, "its start time does not match the lock file"),
    ({"observer": ANOTHER_BOOT}, "from another boot, but a process here holds the flock"),
    ({"observer": ANOTHER_BOOT, "named": None, "others": (CHILD,)}, "from another boot"),
    ({"observer": ANOTHER_BOOT, "named": None, "busy": False}, ""),
]


@each(("changes", "why"), CONTRADICTIONS)
def test_facts_that_exclude_each_other_are_named(changes: dict[str, object], why: str) -> None:
    """A heartbeat before the start, another start time or another boot contradicts the flock."""
    contradiction = lock_holder.find_contradiction(reading(**changes))
    assert why in contradiction
    assert bool(contradiction) is bool(why)


@each(("line", "program"), [
    ("/bin/bash /usr/sbin/nftban-queue-processor", "nftban-queue-processor"),
    ("-bash", ""),
    ("/usr/bin/python3.11 /usr/bin/spooldeck queue work", "spooldeck"),
    ("vim /etc/nftban.conf", "vim"),
    ("tail -f /var/log/nftban/queue.log", "tail"),
    ("bash -c nftban", "-c"), ("nftban queue process", "nftban"), ("", ""),
])  # fmt: skip
def test_a_command_line_names_one_program(line: str, program: str) -> None:
    """What a process runs is its program, or an interpreter's script, never a file it works on."""
    assert lock_holder.program_name(line.split(" ")) == program


FLOCK = "held by PID 4300 (/bin/sh handle.sh)"


@each(("named", "contradiction"), [
    (WORKER._replace(taker=None), FLOCK),
    (WORKER._replace(taker=None, files_hidden=True), f"? {FLOCK}"),
    (HolderProcess(4242, "/proc hides it from us"), f"? {FLOCK}"),
    (WORKER, "held by PID 4242, PID 4300 (/bin/sh handle.sh)"),
])  # fmt: skip
def test_hidden_files_make_the_flock_uncertain(named: HolderProcess, contradiction: str) -> None:
    """If the holder's files are hidden, the processes seen to have the flock may not be all."""
    facts = dict(lock_holder.list_facts(reading(named=named, others=(CHILD,)), 5, 60))
    assert facts["flock"] == contradiction


def test_a_process_is_seen_as_it_is(tmp_path: Path, start: Start) -> None:
    """It has a parent, user, command line and flock; once killed it is not seen."""
    lock, other = tmp_path / "lock", tmp_path / "other"
    lock.touch()
    other.touch()
    child = start(INNOCENT, str(lock))
    assert said(child) == "ready"
    reading, elsewhere = (lock_holder.read_process(child.pid, at.stat()) for at in (lock, other))
    assert reading is not None and elsewhere is not None
    assert (reading.taker, reading.parent) == (child.pid, os.getpid())
    assert reading.uids == {os.geteuid()}
    assert reading.command.startswith(f"{sys.executable} -c ")
    assert not reading.hidden
    assert elsewhere.taker is None
    assert [process.pid for process in lock_holder.processes_with_flock(lock.stat())] == [child.pid]
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert lock_holder.read_process(child.pid, lock.stat()) is None
    child.wait()
    assert lock_holder.read_process(child.pid, lock.stat()) is None


def test_a_thread_is_no_process_a_local_folder_not_remote(tmp_path: Path, start: Start) -> None:
    """kill(2) takes the number of a thread; no process has it."""
    code = "import sys, threading\nthread = threading.Thread(target=sys.stdin.readline)\n"
    child = start(f"{code}thread.start()\nprint(thread.native_id, flush=True)\n")
    thread = int(said(child))
    os.kill(thread, 0)
    assert lock_holder.read_process(thread, tmp_path.stat()) is None
    fd = os.open(tmp_path, os.O_RDONLY)
    assert lock_holder.shared_file_system(fd) == ""
    os.close(fd)


def test_a_worker_whose_lock_file_was_removed_is_seen(tmp_path: Path, start: Start) -> None:
    """Who has a lock file open that is at its path no more works on; no other does."""
    path = tmp_path / "queue.lock"
    path.touch()
    child = start(f"import sys; f = open({str(path)!r}); print(flush=True); sys.stdin.read()")
    said(child)
    assert lock_holder.deleted_lock_holder(str(path)) is None
    path.unlink()
    assert lock_holder.deleted_lock_holder(str(path)) == child.pid
    child.communicate()
    assert lock_holder.deleted_lock_holder(str(path)) is None
