"""The queue's lock: who gets it, what is said of whoever holds it, and that nobody is harmed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import lockfile, locks
from engine.locks import RENEWAL, Busy, Lost, PidLock, acquire, examine
from engine.model import Verdict
from tests.engine.lockers import (
    AN_HOUR_ON,
    INNOCENT,
    THRESHOLD,
    is_unharmed,
    later,
    said,
    tell,
    true_claim,
    written,
)
from tests.tables import each

Start = Callable[..., subprocess.Popen[str]]

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "nftban"
HOLDER = """
import sys
from engine.locks import Busy, acquire
try:
    lock = acquire(sys.argv[1], 1200.0)
except Busy as busy:
    print("busy", busy.evidence.verdict, flush=True)
else:
    print("held", flush=True)
    sys.stdin.readline()
    lock.release()
    print("released", flush=True)
"""


def lock_in(folder: Path) -> Path:
    """Where the lock file is, or will be."""
    return folder / "queue.lock"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the lock file is, or will be."""
    return lock_in(tmp_path)


@pytest.fixture
def gone() -> int:
    """The PID of a process that is gone."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


@pytest.fixture
def living(start: Start) -> subprocess.Popen[str]:
    """A process that has nothing to do with any lock, and says so if it is signalled."""
    child = start(INNOCENT)
    assert said(child) == "ready"
    return child


# ---- having it


def test_the_file_is_the_contracts(path: Path) -> None:
    """The lock file says the holder's PID and the time, a line each, and is there to be read."""
    with acquire(str(path), THRESHOLD, lambda: 1_795_167_737.9):
        assert path.read_bytes().startswith(b"%d\n1795167737\n" % os.getpid())
        assert path.stat().st_mode & 0o777 == 0o644 & ~umask()
        assert sorted(entry.name for entry in path.parent.iterdir()) == ["queue.lock"]


def umask() -> int:
    """The mask of this process."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_released_lock_is_free(path: Path) -> None:
    """After its release the file is gone, and the next holder has nothing to recover."""
    acquire(str(path), THRESHOLD).release()
    assert not path.exists()
    assert examine(str(path), THRESHOLD).verdict is Verdict.FREE
    with acquire(str(path), THRESHOLD) as lock:
        assert lock.taken_over == ""


def test_releasing_twice_is_releasing_once(path: Path) -> None:
    """A second release does nothing, not even to the lock that somebody took in between."""
    lock = acquire(str(path), THRESHOLD)
    lock.release()
    with acquire(str(path), THRESHOLD):
        lock.release()
        assert path.exists()


def test_the_lock_is_had_once(path: Path, start: Start) -> None:
    """While one process has it, another is told that it is busy, and by whom."""
    holder = start(HOLDER, str(path))
    assert said(holder) == "held"
    with pytest.raises(Busy) as busy:
        acquire(str(path), THRESHOLD)
    assert busy.value.evidence.verdict is Verdict.HELD
    assert busy.value.evidence.pid == holder.pid
    assert str(busy.value) == f"PID {holder.pid} is at work"
    tell(holder)
    assert said(holder) == "released"
    acquire(str(path), THRESHOLD).release()


def test_of_many_processes_one_gets_it(path: Path, start: Start) -> None:
    """Of processes that try at the same time to take over a stale lock exactly one gets it."""
    code = "import sys; print('ready', flush=True); sys.stdin.readline()\n" + HOLDER
    written(path, "999999999\n0\n", age=60)
    rivals = [start(code, str(path)) for _ in range(4)]
    assert [said(rival) for rival in rivals] == ["ready"] * 4
    for rival in rivals:
        tell(rival)
    answers = sorted(said(rival) for rival in rivals)
    assert answers == ["busy held"] * 3 + ["held"]
    for rival in rivals:
        rival.communicate("\n\n", timeout=60)
    assert not path.exists()


def test_the_lock_changes_hands_without_a_gap(path: Path, start: Start) -> None:
    """Processes that take and release it again and again never have it two at a time."""
    token = path.with_name("in use")
    code = (
        "import os, sys\n"
        "from engine.locks import Busy, acquire\n"
        "had = 0\n"
        "while had < 30:\n"
        "    try:\n"
        "        lock = acquire(sys.argv[1], 1200.0)\n"
        "    except Busy:\n"
        "        continue\n"
        "    os.mkdir(sys.argv[2])\n"
        "    os.rmdir(sys.argv[2])\n"
        "    lock.release()\n"
        "    had += 1\n"
        "print('had', had)\n"
    )
    rivals = [start(code, str(path), str(token)) for _ in range(3)]

    assert [rival.communicate(timeout=60)[0] for rival in rivals] == ["had 30\n"] * 3


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    """Where no lock file can be made, nobody is said to hold it."""
    with pytest.raises(FileNotFoundError):
        acquire(str(tmp_path / "nowhere" / "queue.lock"), THRESHOLD)


# ---- keeping it


def test_renewal_is_a_sign_of_life(path: Path) -> None:
    """After half a minute a holder writes the time again, and its file counts as fresh; so it does
    when its clock was set back."""
    now = [1_795_167_737.0]
    with acquire(str(path), THRESHOLD, lambda: now[0]) as lock:
        os.utime(path, (1000, 1000))
        now[0] += RENEWAL - 1
        lock.renew()
        assert path.stat().st_mtime == 1000
        now[0] += 1
        lock.renew()
        assert path.read_bytes().startswith(b"%d\n1795167767\n" % os.getpid())
        assert path.stat().st_mtime > 1000
        now[0] -= 86_400
        lock.renew()
        assert path.read_bytes().startswith(b"%d\n1795081367\n" % os.getpid())


@each("how", ["removed", "replaced", "moved"], path=lock_in)
def test_a_lock_that_was_taken_away_is_lost(path: Path, how: str) -> None:
    """Whose lock file is not its own any more is told so, and leaves the new one alone."""
    now = [1_795_167_737.0]
    lock = acquire(str(path), THRESHOLD, lambda: now[0])
    lock.check()
    path.rename(path.with_name("aside"))
    if how == "removed":
        path.with_name("aside").unlink()
    if how == "replaced":
        written(path, "4242\n0\n")

    with pytest.raises(Lost, match="taken away"):
        lock.check()
    now[0] += RENEWAL
    with pytest.raises(Lost):
        lock.renew()
    lock.release()

    assert path.exists() is (how == "replaced")
    if how == "replaced":
        assert path.read_text() == "4242\n0\n"


# ---- judging it


def test_the_real_programs_lock_is_respected(path: Path, living: subprocess.Popen[str]) -> None:
    """A lock in the real program's 17 bytes, of a living process without any flock, is held."""
    golden = (GOLDEN / "queue.lock").read_bytes()
    assert len(golden) == 17
    text = golden.replace(b"13468", b"%d" % living.pid)
    written(path, text)
    with pytest.raises(Busy) as busy:
        acquire(str(path), THRESHOLD, **later(300))
    assert busy.value.evidence.verdict is Verdict.HELD
    assert busy.value.evidence.pid == living.pid
    assert 299 < busy.value.evidence.age < 1199
    assert path.read_bytes() == text


def test_a_lock_of_a_dead_process_is_taken_over(path: Path, gone: int) -> None:
    """A lock whose owner is gone is stale, and is taken over in place, with whose it was."""
    written(path, f"{gone}\n1795167737\n")
    inode = path.stat().st_ino
    evidence = examine(str(path), THRESHOLD)
    with acquire(str(path), THRESHOLD) as lock:
        assert lock.taken_over == f"PID {gone} is gone"
        assert path.stat().st_ino == inode
        assert path.read_bytes().startswith(b"%d\n" % os.getpid())
    assert evidence.verdict is Verdict.STALE
    assert evidence.pid == gone
    assert not path.exists()


@each(
    "text",
    [
        *(
            "",
            "\n",
            "0\n0\n",
            "-1\n0\n",
            "+5\n0\n",
            " 5\n0\n",
            "5 \n0\n",
            "0x5\n0\n",
            "05\n0\n",
            "5\r\n0\r\n",
            "5.0\n0\n",
            "5",
            "5\n",
            "5\n0",
            "5\n0\nand more\n",
        ),
        *(
            "9" * 31 + "\n0\n",
            "5\n0\n" + "x" * 70_000,
            "4294967297\n0\n",
            "9999999999\n0\n",
            "٣\n0\n",
            "\0\0\0\n0\n",
            "none\n0\n",
        ),
    ],
    path=lock_in,
)
def test_what_names_no_process_is_stale(path: Path, text: str) -> None:
    """An empty or garbled lock, or one that names a group or init, is nobody's; the number in it
    is not guessed at."""
    written(path, text, age=60)
    evidence = examine(str(path), THRESHOLD)
    with acquire(str(path), THRESHOLD) as lock:
        assert lock.taken_over == "it names no process"
    assert (evidence.verdict, evidence.pid) == (Verdict.STALE, None)


def test_an_empty_lock_may_be_one_being_written(path: Path) -> None:
    """The real program makes the file first and fills it then: a fresh empty one is respected."""
    written(path, "")
    evidence = examine(str(path), THRESHOLD)
    assert (evidence.verdict, evidence.reason) == (Verdict.HELD, "being written")
    with pytest.raises(Busy):
        acquire(str(path), THRESHOLD)


def test_longer_text_of_another_is_overwritten_whole(path: Path) -> None:
    """Of a stale lock file that is longer than ours, nothing is left in it."""
    written(path, "999999999\n1795167737\nboot-id\nstart\nhost\n" + "x" * 5000, age=60)
    with acquire(str(path), THRESHOLD):
        claim = lockfile.parse(path.read_bytes())
        assert claim is not None and claim.pid == os.getpid()
        assert path.read_bytes() == lockfile.compose(claim)


def test_our_own_number_in_a_lock_is_not_us(path: Path) -> None:
    """A lock that names our own PID while nobody has its flock was left by a namesake before us:
    in a container every worker may have the same PID."""
    written(path, f"{os.getpid()}\n1795167737\n", age=60)
    assert examine(str(path), THRESHOLD).verdict is Verdict.STALE
    acquire(str(path), THRESHOLD).release()


def test_a_process_does_not_take_its_own_lock_twice(path: Path) -> None:
    """Who holds the lock and tries again is told that it is held."""
    with acquire(str(path), THRESHOLD):
        with pytest.raises(Busy) as busy:
            acquire(str(path), THRESHOLD)
        assert busy.value.evidence.verdict is Verdict.HELD
        assert path.exists()


@pytest.mark.parametrize(("age", "verdict"), [(1100, Verdict.HELD), (1300, Verdict.STUCK)])
def test_a_silent_holder_is_stuck(
    path: Path, living: subprocess.Popen[str], age: float, verdict: Verdict
) -> None:
    """A living holder without a sign of life for longer than the threshold is stuck. It is
    reported, and neither signalled nor robbed."""
    text = f"{living.pid}\n{int(time.time())}\n"
    written(path, text)
    evidence = examine(str(path), THRESHOLD, **later(age))
    with pytest.raises(Busy) as busy:
        acquire(str(path), THRESHOLD, **later(age))
    assert evidence.verdict is busy.value.evidence.verdict is verdict
    assert evidence.doubt.startswith(f"PID {living.pid} is no worker by its command line: ")
    assert path.read_text() == text
    assert is_unharmed(living)


def test_a_stuck_holder_of_ours_is_only_reported(path: Path, start: Start) -> None:
    """A process of ours that holds the flock and hangs is stuck; it keeps its lock and lives."""
    holder = start(HOLDER, str(path))
    assert said(holder) == "held"
    with pytest.raises(Busy) as busy:
        acquire(str(path), THRESHOLD, **AN_HOUR_ON)
    assert busy.value.evidence.verdict is Verdict.STUCK
    assert busy.value.evidence.pid == holder.pid
    assert f"PID {holder.pid} lives, but gave no sign of life" in str(busy.value)
    assert path.read_text().startswith(f"{holder.pid}\n")
    assert holder.poll() is None
    tell(holder)
    assert said(holder) == "released"


def test_a_lock_from_the_future_is_held(path: Path, living: subprocess.Popen[str]) -> None:
    """A lock whose time lies ahead of our clock is as fresh as can be, and not negative old."""
    written(path, f"{living.pid}\n9999999999\n", age=-5000)
    evidence = examine(str(path), THRESHOLD)
    assert (evidence.verdict, evidence.age) == (Verdict.HELD, 0.0)


def test_a_handler_keeps_its_dead_workers_lock(path: Path, start: Start) -> None:
    """While a child that inherited the lock lives, its worker's death frees nothing."""
    code = (
        "import subprocess, sys\n"
        "from engine.locks import acquire\n"
        "lock = acquire(sys.argv[1], 1200.0)\n"
        "sleeper = 'import sys; sys.stdin.readline()'\n"
        "child = subprocess.Popen([sys.executable, '-c', sleeper], pass_fds=(lock.fd,))\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    worker = start(code, str(path))
    child = os.pidfd_open(int(said(worker)))
    worker.send_signal(signal.SIGKILL)
    worker.wait()

    evidence = examine(str(path), THRESHOLD)
    with pytest.raises(Busy):
        acquire(str(path), THRESHOLD)
    signal.pidfd_send_signal(child, signal.SIGKILL)
    os.close(child)
    wait_for(lambda: examine(str(path), THRESHOLD).verdict is Verdict.STALE)

    assert evidence.verdict is Verdict.HELD
    assert evidence.reason == f"a child of PID {worker.pid}, which is gone, is at work"
    acquire(str(path), THRESHOLD).release()


def wait_for(happened: Callable[[], bool]) -> None:
    """Return as soon as something has happened in another process; a test that hangs has failed."""
    while not happened():
        os.sched_yield()


# ---- what lies there instead of a lock


@each("kind", ["symlink", "folder", "FIFO"], path=lock_in)
def test_what_is_no_file_is_unknown(path: Path, kind: str, gone: int) -> None:
    """Something else in the lock's place is neither followed, nor waited for, nor removed."""
    target = path.with_name("target")
    written(target, f"{gone}\n0\n")
    if kind == "symlink":
        path.symlink_to(target)
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)

    evidence = examine(str(path), THRESHOLD)
    with pytest.raises(Busy) as busy:
        acquire(str(path), THRESHOLD)

    said = f"{path}: expected a regular file; look at it and remove it: ls -ld {path}"
    assert (evidence.verdict, evidence.reason) == (Verdict.UNKNOWN, said)
    assert busy.value.evidence == evidence
    assert path.is_symlink() or path.exists()
    assert target.read_text() == f"{gone}\n0\n"


def test_examining_changes_nothing(path: Path, gone: int) -> None:
    """A look at a lock, stale or not, leaves its text and time as they are."""
    written(path, f"{gone}\n0\n", age=4000)
    before = path.stat()
    examine(str(path), THRESHOLD)
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_size, after.st_ctime_ns) == (
        *(before.st_ino, before.st_mtime_ns, before.st_size, before.st_ctime_ns),
    )


def test_each_holder_has_another_token(path: Path) -> None:
    """What `seen` says changes whenever the lock changes hands, in a new file or in place, and
    does not change while one holder has it."""
    seen = set()
    for _ in range(3):
        lock = acquire(str(path), THRESHOLD)
        seen |= {examine(str(path), THRESHOLD).seen for _ in range(2)}
        os.close(lock.fd)  # as a kill would
        lock.fd = -1
    seen.add(examine(str(path), THRESHOLD).seen)
    assert len(seen) == 3
    path.unlink()
    assert examine(str(path), THRESHOLD).seen == locks.NO_LOCK


def test_a_stale_lock_is_taken_over_only_if_it_was_seen(path: Path, gone: int) -> None:
    """Who says which lock may be taken over gets no other, not even a stale one."""
    written(path, f"{gone}\n0\n", age=60)
    evidence = examine(str(path), THRESHOLD)
    for other in ("another", locks.NO_LOCK):
        with pytest.raises(Busy):
            acquire(str(path), THRESHOLD, seen=other)
    acquire(str(path), THRESHOLD, seen=evidence.seen).release()
    acquire(
        str(path), THRESHOLD, seen=evidence.seen
    ).release()  # none is none to be mistaken for it


def test_a_flock_that_is_free_is_nobodys(path: Path, living: subprocess.Popen[str]) -> None:
    """A lock of ours is its holder's only with its flock, however well the process fits."""
    written(path, lockfile.compose(true_claim(living.pid)))
    evidence = examine(str(path), THRESHOLD)
    assert (evidence.verdict, evidence.reason) == (Verdict.STALE, f"PID {living.pid} let go of it")
    acquire(str(path), THRESHOLD).release()
    assert is_unharmed(living)


def test_the_facts_say_who_and_since_when(path: Path, start: Start) -> None:
    """A person is told all that the verdict rests on, a name and words each."""
    holder = start(HOLDER, str(path))
    assert said(holder) == "held"
    facts = dict(examine(str(path), THRESHOLD).facts)
    assert facts["holder"].startswith(f"PID {holder.pid}: {sys.executable} -c ")
    assert facts["flock"] == f"held by PID {holder.pid}"
    assert facts["limit"] == "20 min without one"
    assert (facts["boot"], facts["PID namespace"]) == ("this one", "ours")
    assert facts["host"].endswith(", this one")
    assert facts["user"] == f"uid {os.geteuid()}"
    assert facts["last sign of life"].endswith(" s ago")
    assert all(words.isprintable() for words in facts.values())


def test_one_who_only_looks_is_waited_for(path: Path, gone: int, start: Start) -> None:
    """Somebody who has a stale lock's flock for a moment, to look, makes no attempt fail."""
    written(path, f"{gone}\n0\n", age=60)
    code = (
        "import sys\n"
        "from engine.locks import examine\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    examine(sys.argv[1], 1200.0)\n"
    )
    looker = start(code, str(path))
    assert said(looker) == "ready"
    for _ in range(50):
        acquire(str(path), THRESHOLD).release()
        written(path, f"{gone}\n0\n", age=60)


def test_drafts_of_the_killed_are_swept(path: Path, start: Start) -> None:
    """A draft that was never put in place goes once it is a minute old and nobody has it."""
    old, young = (path.with_name(f"queue.lock.{c * 16}") for c in "ab")
    other = path.with_name("queue.lock.alerted")
    for draft in (old, young, other):
        draft.write_text("")
    for draft in (old, other):
        os.utime(draft, (time.time() - 100, time.time() - 100))
    taken = path.with_name("queue.lock." + "c" * 16)
    taken.write_text("")
    os.utime(taken, (time.time() - 100, time.time() - 100))
    maker = start(INNOCENT, str(taken))
    assert said(maker) == "ready"
    acquire(str(path), THRESHOLD).release()
    assert sorted(path.parent.iterdir()) == sorted([young, other, taken])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_lock_belongs_to_its_folders_owner(path: Path) -> None:
    """A lock that root takes in somebody's run folder is theirs to remove."""
    shutil.chown(path.parent, 65534, 65534)
    with acquire(str(path), THRESHOLD) as lock:
        assert isinstance(lock, PidLock)
        assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)


# ---- what the owner of the folder may plant there


@each("text", ["", "junk\n", "1234\n1795167737\n"], path=lock_in)
def test_a_second_name_of_a_file_is_no_lock(path: Path, tmp_path: Path, text: str) -> None:
    """A lock file that is another file's second name is left as it is, whatever it says."""
    secret = tmp_path / "secret"
    written(secret, text, age=7200)
    path.hardlink_to(secret)
    with pytest.raises(Busy) as busy:
        acquire(str(path), THRESHOLD)
    assert busy.value.evidence.verdict is Verdict.UNKNOWN
    assert "second hard link" in busy.value.evidence.reason
    assert secret.read_text() == text


def test_a_lock_with_its_drafts_name_is_one(path: Path, start: Start) -> None:
    """Whose maker was killed before it took the draft's name away left a lock like any other."""
    holder = start(HOLDER, str(path))
    assert said(holder) == "held"
    claim = lockfile.parse(path.read_bytes())
    assert claim is not None and claim.mark is not None
    draft = path.with_name(f"{path.name}.{claim.mark.token}")
    draft.hardlink_to(path)
    assert examine(str(path), THRESHOLD).verdict is Verdict.HELD
    holder.kill()
    holder.wait()
    with acquire(str(path), THRESHOLD):
        assert not draft.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_strangers_file_is_no_lock(path: Path) -> None:
    """A lock file of a user who owns neither it nor its folder is left as it is."""
    written(path, "junk\n", age=7200)
    os.chown(path, 65534, 65534)
    with pytest.raises(Busy) as busy:
        acquire(str(path), THRESHOLD)
    assert "belongs to user 65534" in busy.value.evidence.reason


def test_a_folder_that_is_a_link_holds_no_lock(tmp_path: Path) -> None:
    """A link in place of the lock's folder leads nobody to the locks of another."""
    (tmp_path / "theirs").mkdir()
    written(tmp_path / "theirs" / "queue.lock", "junk\n", age=7200)
    (tmp_path / "ours").symlink_to("theirs")
    path = f"{tmp_path}/ours/queue.lock"
    with pytest.raises(NotADirectoryError):
        acquire(path, THRESHOLD)
    assert examine(path, THRESHOLD).verdict is Verdict.UNKNOWN
    assert (tmp_path / "theirs" / "queue.lock").read_text() == "junk\n"


def test_litter_that_is_no_file_is_in_nobodys_way(path: Path) -> None:
    """A folder with the name of a draft neither keeps a lock from being taken nor is removed."""
    litter = path.with_name(f"{path.name}.0123456789abcdef")
    litter.mkdir()
    os.utime(litter, (0, 0))
    acquire(str(path), THRESHOLD).release()
    assert litter.is_dir()
    assert not path.exists()


REWRITES = """
import os, sys
from engine import lockfile
from engine.lockfile import Claim
fd = os.open(sys.argv[1], os.O_RDWR)
print("begun", flush=True)
while True:
    for second in (1795167737, 1795167738):
        os.pwrite(fd, lockfile.compose(Claim(int(sys.argv[2]), second)), 0)
"""


@pytest.mark.deep
def test_a_lock_that_never_rests_is_judged_all_the_same(
    path: Path, gone: int, start: Start
) -> None:
    """Whoever writes a lock anew all the time makes no look at it fail or wait for ever."""
    holder = start(HOLDER, str(path))
    assert said(holder) == "held"
    assert said(start(REWRITES, str(path), str(gone))) == "begun"
    verdicts = {examine(str(path), THRESHOLD).verdict for _ in range(30)}
    assert verdicts <= {Verdict.HELD, Verdict.STUCK, Verdict.UNKNOWN}
