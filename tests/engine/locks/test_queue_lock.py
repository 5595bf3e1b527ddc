"""The queue's lock file: flock, takeover of stale locks, verdicts, and planted files."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from engine.locks import lock_file, queue_lock
from engine.model import LockEvidence, Verdict
from engine.system import files
from tests import lock_processes
from tests.engine.task_builders import GOLDEN
from tests.lock_processes import AN_HOUR_ON, INNOCENT, THRESHOLD, Child, later, said, tell, written

Start = Callable[..., Child]

HOLDER = """
import sys
from engine.locks.queue_lock import LockBusy, acquire_lock
try:
    lock = acquire_lock(sys.argv[1], 1200.0)
except LockBusy as busy:
    print("busy", busy.evidence.verdict, flush=True)
else:
    print("held", flush=True)
    sys.stdin.readline()
    lock.release()
    print("released", flush=True)
"""
STALE_TEXT = "999999999\n0\n"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def gone() -> int:
    """The PID of a process that is gone."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


@pytest.fixture
def holder(path: Path, start: Start) -> Child:
    """A process that has the lock until it is told to go on."""
    child = start(HOLDER, str(path))
    assert said(child) == "held"
    return child


def busy(path: Path, **how: object) -> LockEvidence:
    """The evidence with which an attempt to take the lock is refused."""
    with pytest.raises(queue_lock.LockBusy) as refused:
        queue_lock.acquire_lock(str(path), THRESHOLD, **how)  # type: ignore[arg-type]
    return refused.value.evidence


def take(path: Path, seen: str = "") -> None:
    """Take the lock and release it."""
    queue_lock.acquire_lock(str(path), THRESHOLD, seen=seen).release()


def examine(path: Path) -> LockEvidence:
    """What an examination of the lock says now."""
    return queue_lock.examine_lock(str(path), THRESHOLD)


def judged(evidence: LockEvidence) -> tuple[Verdict, str]:
    """The verdict on a lock, and its reason."""
    return evidence.verdict, evidence.reason


def spare_of(path: Path) -> Path:
    """The file that the next lock is made of on a full disk."""
    return path.with_name("queue.lock.spare")


def test_a_lock_is_a_file_while_it_is_held(path: Path) -> None:
    """It has PID and time; its holder does not get it twice; released, it is gone."""
    with queue_lock.acquire_lock(str(path), THRESHOLD, lambda: 1_795_167_737.9) as lock:
        assert path.read_bytes().startswith(b"%d\n1795167737\n" % os.getpid())
        assert path.stat().st_mode & 0o777 == 0o644
        assert {*path.parent.iterdir()} == {path, spare_of(path)}
        assert busy(path).verdict is Verdict.HELD
        assert path.exists()
    assert not path.exists()
    assert examine(path).verdict is Verdict.FREE
    with queue_lock.acquire_lock(str(path), THRESHOLD) as second:
        assert second.taken_over == ""
        lock.release()
        assert path.exists()
    with pytest.raises(FileNotFoundError):
        queue_lock.acquire_lock(str(path.parent / "nowhere" / "queue.lock"), THRESHOLD)


def test_a_lock_is_held_by_one_process(path: Path, holder: Child) -> None:
    """Another one is refused, with the evidence; silent for an hour it is stuck, and lives."""
    who = f"PID {holder.pid}"
    assert judged(busy(path)) == (Verdict.HELD, f"{who} is running")
    facts = dict(examine(path).facts)
    assert facts["holder"].startswith(f"{who}: {sys.executable} -c ")
    assert (facts["flock"], facts["limit"]) == (f"held by {who}", "20m without one")
    assert (facts["boot"], facts["PID namespace"]) == ("same", "same")
    assert facts["host"].endswith(", this host")
    assert facts["user"] == f"uid {os.geteuid()}"
    assert facts["last heartbeat"].endswith("s ago")
    assert all(words.isprintable() for words in facts.values())
    evidence = busy(path, **AN_HOUR_ON)
    assert (evidence.verdict, evidence.pid) == (Verdict.STUCK, holder.pid)
    assert f"{who} is alive, no heartbeat" in evidence.reason
    assert path.read_text().startswith(f"{holder.pid}\n")
    assert holder.poll() is None
    tell(holder)
    assert said(holder) == "released"
    take(path)


def test_one_of_many_processes_gets_it(path: Path, start: Start) -> None:
    """Of processes that try at the same time to take over a stale lock exactly one gets it."""
    code = "import sys; print('ready', flush=True); sys.stdin.readline()\n" + HOLDER
    written(path, STALE_TEXT, age=60)
    rivals = [start(code, str(path)) for _ in range(4)]
    assert [said(rival) for rival in rivals] == ["ready"] * 4
    for rival in rivals:
        tell(rival)
    assert sorted(said(rival) for rival in rivals) == ["busy held"] * 3 + ["held"]
    for rival in rivals:
        rival.communicate("\n\n", timeout=60)
    assert not path.exists()


TAKES_IT_AGAIN = """
import os, sys
from engine.locks.queue_lock import LockBusy, acquire_lock
had = 0
while had < 30:
    try:
        lock = acquire_lock(sys.argv[1], 1200.0)
    except LockBusy:
        continue
    os.mkdir(sys.argv[2])
    os.rmdir(sys.argv[2])
    lock.release()
    had += 1
print('had', had)
"""


def test_the_lock_changes_hands_without_a_gap(path: Path, start: Start) -> None:
    """Processes that take and release it again and again never have it two at a time."""
    rivals = [start(TAKES_IT_AGAIN, str(path), str(path.with_name("in use"))) for _ in range(3)]
    assert [rival.communicate(timeout=60)[0] for rival in rivals] == ["had 30\n"] * 3


def test_renewal_writes_the_time_again(path: Path) -> None:
    """Each heartbeat makes the file fresh, also if the clock was set back."""
    now = [1_795_167_737.0]
    with queue_lock.acquire_lock(str(path), THRESHOLD, lambda: now[0]) as lock:
        os.utime(path, (1000, 1000))
        now[0] += queue_lock.HEARTBEAT_SECONDS - 1
        lock.renew()
        assert path.stat().st_mtime == 1000
        for seconds, stamp in ((1, 1795167747), (-86_400, 1795081347)):
            now[0] += seconds
            lock.renew()
            assert path.read_bytes().startswith(b"%d\n%d\n" % (os.getpid(), stamp))
            assert path.stat().st_mtime > 1000


@pytest.mark.parametrize("how", ["removed", "replaced", "moved"])
def test_a_lock_that_was_taken_away_is_lost(path: Path, how: str) -> None:
    """A holder whose lock file is not its own any more gets an error, and leaves the new one."""
    now = [1_795_167_737.0]
    lock = queue_lock.acquire_lock(str(path), THRESHOLD, lambda: now[0])
    lock.check()
    path.rename(path.with_name("aside"))
    if how == "removed":
        path.with_name("aside").unlink()
    if how == "replaced":
        written(path, "4242\n0\n")
    with pytest.raises(queue_lock.LockLost, match="replaced or removed"):
        lock.check()
    now[0] += queue_lock.HEARTBEAT_SECONDS
    with pytest.raises(queue_lock.LockLost):
        lock.renew()
    lock.release()
    assert how != "replaced" or path.read_text() == "4242\n0\n"
    assert path.exists() is (how == "replaced")


def test_a_lock_of_a_dead_process_is_taken_over(path: Path, gone: int) -> None:
    """To examine it changes nothing; a longer text of another form is overwritten whole."""
    written(path, f"{gone}\n1795167737\n", age=4000)
    facts = attrgetter("st_ino", "st_mtime_ns", "st_size", "st_ctime_ns")
    before, evidence = path.stat(), examine(path)
    assert (evidence.verdict, evidence.pid) == (Verdict.STALE, gone)
    assert facts(path.stat()) == facts(before)
    with queue_lock.acquire_lock(str(path), THRESHOLD) as lock:
        assert (lock.taken_over, path.stat().st_ino) == (f"PID {gone} is gone", before.st_ino)
        assert path.read_bytes().startswith(b"%d\n" % os.getpid())
    assert not path.exists()
    written(path, f"{gone}\n1795167737\nboot-id\nstart\nhost\n" + "x" * 5000, age=60)
    with queue_lock.acquire_lock(str(path), THRESHOLD):
        claim = lock_file.parse_claim(path.read_bytes())
        assert claim is not None and claim.pid == os.getpid()
        assert path.read_bytes() == lock_file.format_claim(claim)


def test_a_stale_lock_is_taken_over_only_if_it_was_seen(path: Path, gone: int) -> None:
    """A caller that names a lock gets no other, not even a stale one."""
    written(path, f"{gone}\n0\n", age=60)
    evidence = examine(path)
    for other in ("another", queue_lock.NO_LOCK):
        busy(path, seen=other)
    for _ in range(2):
        take(path, evidence.identity)


def test_each_holder_has_another_token(path: Path) -> None:
    """The identity changes when the lock changes hands, in a new file or in place."""
    identities = set()
    for _ in range(3):
        lock = queue_lock.acquire_lock(str(path), THRESHOLD)
        identities |= {examine(path).identity for _ in range(2)}
        os.close(lock.fd)  # as a kill would
        lock.fd = -1
    identities.add(examine(path).identity)
    assert len(identities) == 3
    path.unlink()
    assert examine(path).identity == queue_lock.NO_LOCK


NO_PIDS = ("0", "-1", "+5", " 5", "5 ", "0x5", "05", "5.0", "9" * 31, "4294967297", "9999999999")
NO_PROCESS = [f"{pid}\n0\n" for pid in (*NO_PIDS, "٣", "\0\0\0", "none")]
NO_PROCESS += ["", "\n", "5\r\n0\r\n", "5", "5\n", "5\n0", "5\n0\nand more\n"]
NO_PROCESS += ["5\n0\n" + "x" * 70_000]


def test_a_text_that_names_no_process_is_stale(path: Path) -> None:
    """A garbled lock has no holder, nor has our own number; a fresh empty one is being written."""
    for text in NO_PROCESS:
        written(path, text, age=60)
        evidence = examine(path)
        assert (evidence.verdict, evidence.pid) == (Verdict.STALE, None), text
        with queue_lock.acquire_lock(str(path), THRESHOLD) as lock:
            assert lock.taken_over == "the lock file names no process", text
    written(path, "")
    assert judged(busy(path)) == (Verdict.HELD, "being written")
    written(path, f"{os.getpid()}\n1795167737\n", age=60)
    assert examine(path).verdict is Verdict.STALE
    take(path)


def test_the_lock_of_a_living_process_is_judged_by_its_age(path: Path, start: Start) -> None:
    """The real program has no flock; in our form a lock is its holder's only with it."""
    living, golden = start(INNOCENT), (GOLDEN / "queue.lock").read_bytes()
    assert said(living) == "ready"
    assert len(golden) == 17
    text = golden.replace(b"13468", b"%d" % living.pid)
    written(path, text)
    evidence = busy(path, **later(300))
    assert (evidence.verdict, evidence.pid) == (Verdict.HELD, living.pid)
    assert 299 < evidence.age < 1199

    text = b"%d\n%d\n" % (living.pid, time.time())
    written(path, text)
    for age, verdict in ((1100, Verdict.HELD), (1300, Verdict.STUCK)):
        evidence = queue_lock.examine_lock(str(path), THRESHOLD, **later(age))
        assert evidence.verdict is busy(path, **later(age)).verdict is verdict
        assert evidence.signal_refusal.startswith(f"PID {living.pid} does not look like a worker: ")
        assert path.read_bytes() == text

    written(path, f"{living.pid}\n9999999999\n", age=-5000)
    evidence = examine(path)
    assert (evidence.verdict, evidence.age) == (Verdict.HELD, 0.0)

    written(path, lock_file.format_claim(lock_processes.true_claim(living.pid)))
    assert judged(examine(path)) == (Verdict.STALE, f"PID {living.pid} released it")
    take(path)
    assert lock_processes.is_unharmed(living)


DIES_WITH_A_CHILD = """
import subprocess, sys
from engine.locks.queue_lock import acquire_lock
lock = acquire_lock(sys.argv[1], 1200.0)
sleeper = 'import sys; sys.stdin.readline()'
child = subprocess.Popen([sys.executable, '-c', sleeper], pass_fds=(lock.fd,))
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_a_handler_keeps_its_dead_workers_lock(path: Path, start: Start) -> None:
    """While a child that inherited the lock lives, its worker's death frees nothing."""
    worker = start(DIES_WITH_A_CHILD, str(path))
    child = os.pidfd_open(int(said(worker)))
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    reason = f"a child of PID {worker.pid}, which is gone, is running"
    assert judged(busy(path)) == (Verdict.HELD, reason)
    signal.pidfd_send_signal(child, signal.SIGKILL)
    os.close(child)
    while examine(path).verdict is not Verdict.STALE:
        os.sched_yield()
    take(path)


EXAMINES = """
import sys
from engine.locks.queue_lock import examine_lock
print('ready', flush=True)
while True:
    examine_lock(sys.argv[1], 1200.0)
"""


def test_a_process_that_only_examines_is_waited_for(path: Path, gone: int, start: Start) -> None:
    """One that has a stale lock's flock for a moment, to examine it, makes no attempt fail."""
    assert said(start(EXAMINES, str(path))) == "ready"
    for _ in range(50):
        written(path, f"{gone}\n0\n", age=60)
        take(path)


REWRITES = """
import os, sys
from engine.locks import lock_file as lockfile
from engine.locks.lock_file import LockClaim
fd = os.open(sys.argv[1], os.O_RDWR)
print("begun", flush=True)
while True:
    for second in (1795167737, 1795167738):
        os.pwrite(fd, lockfile.format_claim(LockClaim(int(sys.argv[2]), second)), 0)
"""


@pytest.mark.deep
def test_a_rewritten_lock_is_judged(path: Path, gone: int, start: Start, holder: Child) -> None:
    """A process that writes it again and again makes no examination fail or wait for ever."""
    assert said(start(REWRITES, str(path), str(gone))) == "begun"
    verdicts = {examine(path).verdict for _ in range(30)}
    assert verdicts <= {Verdict.HELD, Verdict.STUCK, Verdict.UNKNOWN}


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("target"), Path.mkdir, os.mkfifo])
def test_a_lock_that_is_no_file_is_unknown(path: Path, make: Callable[[Path], object]) -> None:
    """Something else in the lock's place is neither followed, nor waited for, nor removed."""
    target = path.with_name("target")
    written(target, STALE_TEXT)
    make(path)
    words = f"{path}: expected a regular file; check and remove it: ls -ld {path}"
    assert (judged(examine(path)), busy(path)) == ((Verdict.UNKNOWN, words), examine(path))
    assert path.is_symlink() or path.exists()
    assert target.read_text() == STALE_TEXT


@pytest.mark.parametrize("text", ["", "junk\n", "1234\n1795167737\n"])
def test_a_second_name_of_a_file_is_no_lock(path: Path, text: str) -> None:
    """A lock file that may be another user's second name of a file is left as it is."""
    secret = path.with_name("secret")
    written(secret, text, age=7200)
    path.hardlink_to(secret)
    path.parent.chmod(0o777)
    evidence = busy(path)
    assert evidence.verdict is Verdict.UNKNOWN
    assert "second hard link" in evidence.reason
    assert secret.read_text() == text


def test_a_lock_with_its_drafts_name_is_one(path: Path, holder: Child) -> None:
    """A holder killed before it removed the draft's name left a lock like any other."""
    claim = lock_file.parse_claim(path.read_bytes())
    assert claim is not None and claim.mark is not None
    draft = path.with_name(f"{path.name}.{claim.mark.token}")
    draft.hardlink_to(path)
    assert examine(path).verdict is Verdict.HELD
    holder.kill()
    holder.wait()
    with queue_lock.acquire_lock(str(path), THRESHOLD):
        assert not draft.exists()


def test_drafts_of_killed_processes_are_swept(path: Path, start: Start) -> None:
    """A draft goes when it is a minute old and no process has it; a folder stays."""
    old, young, taken, folder = (path.with_name(f"queue.lock.{c * 16}") for c in "abcd")
    other = path.with_name("queue.lock.alerted")
    folder.mkdir()
    for draft in (old, young, other, taken):
        draft.write_text("")
    for draft in (old, other, taken, folder):
        os.utime(draft, (time.time() - 100, time.time() - 100))
    assert said(start(INNOCENT, str(taken))) == "ready"
    take(path)
    assert {*path.parent.iterdir()} == {young, other, taken, folder, spare_of(path)}


def test_a_lock_is_taken_on_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spare file of the last holder gives way to the lock; without it none is taken."""
    spare, create = spare_of(path), files.create_file
    take(path)
    assert spare.stat().st_size == 4096

    def full_disk(name: str, *words: Any, **more: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", name)

    def without_an_inode(name: str, *words: Any, **more: Any) -> int:
        has_room = not spare.exists() and name != spare.name
        return create(name, *words, **more) if has_room else full_disk(name)

    with monkeypatch.context() as full:
        full.setattr(files, "create_file", without_an_inode)
        take(path)
        assert [*path.parent.iterdir()] == []
        full.setattr(files, "create_file", full_disk)
        with pytest.raises(OSError, match="No space left"):
            queue_lock.acquire_lock(str(path), THRESHOLD)
    take(path)
    assert spare.exists()


@root_only
def test_a_lock_belongs_to_its_folders_owner(path: Path) -> None:
    """One of a user who owns neither it nor its folder is left as it is."""
    shutil.chown(path.parent, 65534, 65534)
    with queue_lock.acquire_lock(str(path), THRESHOLD):
        assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)
    shutil.chown(path.parent, 0, 0)
    written(path, "junk\n", age=7200)
    os.chown(path, 65534, 65534)
    assert "belongs to user 65534" in busy(path).reason


def test_a_folder_that_is_a_link_holds_no_lock(tmp_path: Path) -> None:
    """A link in place of the lock's folder leads to no locks of another."""
    (tmp_path / "theirs").mkdir()
    written(tmp_path / "theirs" / "queue.lock", "junk\n", age=7200)
    (tmp_path / "ours").symlink_to("theirs")
    path = f"{tmp_path}/ours/queue.lock"
    with pytest.raises(NotADirectoryError):
        queue_lock.acquire_lock(path, THRESHOLD)
    assert queue_lock.examine_lock(path, THRESHOLD).verdict is Verdict.UNKNOWN
    assert (tmp_path / "theirs" / "queue.lock").read_text() == "junk\n"
