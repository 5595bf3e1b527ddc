"""The doctor's checks: real places, each made ill in one way, and the finding about it."""

import fcntl
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.config import queue_config
from engine.doctor.finding import Finding, Grade, format_finding, needs_action
from engine.formats.nftban.doctor import place_facts
from engine.formats.nftban.doctor.place_facts import InstalledProgram
from engine.formats.nftban.doctor.run import CHECKS, run_checks
from engine.formats.nftban.store import NftbanStore, SpoolFolders, make_spool
from engine.locks import queue_lock
from engine.model import State
from engine.monitor import prometheus
from engine.monitor.transport_health import TransportSuspension
from engine.system import mounts, users
from engine.system.mounts import Mount
from engine.work.handlers import CONTRACT_KINDS
from tests.tables import each

ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="only root can give files away")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A place with all its folders."""
    return made_place(tmp_path)


def made_place(folder: Path) -> Path:
    """A place with all its folders, below another one."""
    root = folder / "data"
    make_spool(spool_at(root))
    for name in ("run", "log", "metrics", "metrics/counters", "mailspool"):
        (root / name).mkdir(mode=0o750)
    return root


def spool_at(root: Path) -> SpoolFolders:
    """Where the tasks of a place lie."""
    queue = root / "queue"
    return SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq")


def store_at(root: Path) -> NftbanStore:
    """The store of a place."""
    return NftbanStore(spool_at(root))


NO_MAIL = place_facts.MailFacts()


def findings(
    root: Path,
    check: str,
    *,
    later: float = 0.0,
    mail: place_facts.MailFacts = NO_MAIL,
    handlers: Mapping[str, InstalledProgram] = {},
    **changes: Any,
) -> list[Finding]:
    """Findings of one check about a place, so many seconds from now."""
    now = time.time() + later
    queue = queue_config.queue_settings_for(queue_config.Config(), str(root), {})._replace(
        **changes
    )
    seen = place_facts.PlaceFacts(
        queue=queue,
        handlers=handlers,
        is_claimed=lambda kind: kind in handlers or kind not in CONTRACT_KINDS,
        spooldeck=f"spooldeck --root {root}",
        config="/etc/some.yaml",
        lock=queue_lock.examine_lock(f"{queue.run_dir}/queue.lock", 1200, lambda: now),
        now=now,
        view=place_facts.scan_tasks(lambda: store_at(root), now),
        folder_stats=place_facts.stat_paths(place_facts.folder_paths(queue)),
        mail=mail,
    )
    return [finding for name, finding in run_checks(seen) if name == check]


def the_one(root: Path, check: str, **more: Any) -> Finding:
    """The only finding of a check."""
    (finding,) = findings(root, check, **more)
    return finding


def add(root: Path, kind: str = "report", created: float | None = None) -> Path:
    """Add a pending task; its file is returned."""
    task = verbs.enqueue(kind, created or time.time(), os.urandom(4).hex())
    store_at(root).swap(None, task)
    return root / "queue" / "pending" / f"{task.id}.task"


def bury(root: Path, number: int) -> None:
    """Add so many dead tasks."""
    for _ in range(number):
        add(root)
    store = store_at(root)
    for task in list(store.take(time.time() + 1, "test", number)):
        store.swap(task, verbs.give_up_task(task, "no use"))


@pytest.mark.parametrize("used", [False, True])
def test_nothing_is_found_in_a_healthy_place(root: Path, used: bool) -> None:
    """In a new and in a used place every check but that of its disk says that all is well."""
    if used:
        add(root)
        bury(root, 3)
        put_metrics(root, 0)
    handlers = {"report": InstalledProgram(["true"], None)}
    names = [check.name for check in CHECKS if check.name != "disk"]
    grades = {name: the_one(root, name, handlers=handlers).grade for name in names}
    assert set(grades.values()) == {Grade.OK}, grades


def test_a_finding_needs_an_act_if_wrong_and_its_line_is_safe() -> None:
    """A denied permission needs none; foreign text is safe, the command is below it."""
    for grades, act in (("", False), ("ok hidden", False), ("ok warn", True)):
        assert needs_action(Finding(Grade[grade.upper()], "") for grade in grades.split()) is act
    lines = format_finding("broken", Finding(Grade.WARN, "a\x1b[2Jb", "rm -- x"))
    assert lines == ["warn  broken    a\ufffd[2Jb", "                fix: rm -- x"]


def put(path: Path, kind: str) -> None:
    """Something that is no file."""
    make = {"folder": Path.mkdir, "link": lambda path: path.symlink_to("/etc/shadow")}
    make.get(kind, os.mkfifo)(path)


def put_metrics(root: Path, seconds: float) -> None:
    """Write the metrics of a run, so many seconds from now."""
    data = prometheus.render_queue(prometheus.QueueGauges(1, 0, 3), {}, time.time() + seconds)
    (root / "metrics" / "queue.prom").write_bytes(data)


def make_ill(root: Path, how: str) -> None:
    """Give a place one fault."""
    queue, lock, now = root / "queue", root / "run" / "queue.lock", time.time()
    match how.split():
        case ["link", word]:
            folder = queue / "work" if word == "in" else root / "mailspool"
            folder.rename(root / "elsewhere")
            folder.symlink_to(root / "elsewhere")
        case ["stale", "lock"]:
            gone = subprocess.Popen(["true"])
            gone.wait()
            lock.write_text(f"{gone.pid}\n1795239223\n")
        case ["a", kind]:
            put(lock, kind)
        case ["half", "done"]:
            path = add(root)
            path.rename(queue / ".spooldeck" / f"D.{path.stem}.pending.dlq.00000000.1-2-3")
        case ["twice"]:
            path = add(root)
            (queue / "dlq" / path.name).write_bytes(path.read_bytes())
        case ["with", "link"]:
            put(queue / "dlq" / add(root).name, "link")
        case ["quarantine"]:
            (queue / ".spooldeck" / "corrupt").mkdir(mode=0o750)
            for name in ("x.pending.1", "x.pending.1.why", "y.pending.2"):
                (queue / ".spooldeck" / "corrupt" / name).write_text("")
        case ["in", "years"]:
            week = int(now) + 7 * 86400 - 60  # which is in order
            for due in (week, week + 3600, week * 10):
                path = add(root)
                text = path.read_text()
                assert 'NEXT_ATTEMPT_EPOCH="0"' in text
                path.write_text(text.replace('EPOCH="0"', f'EPOCH="{due}"'))
        case ["created", "later"]:
            add(root, created=now + 86400)
        case [number, "dead"]:
            bury(root, int(number))
        case ["due"]:
            add(root)
        case ["abandoned"]:
            add(root)
            list(store_at(root).take(now + 1, "dead", 1))
        case ["no", "metrics"]:
            (root / "metrics" / "queue.prom").write_text("}{\n")
        case ["ran", seconds, *more]:
            put_metrics(root, -float(seconds))
            if not more:
                add(root)
        case _:
            raise AssertionError(how)


FINDINGS = """\
link in          | folders | bad  | 0    | {root}/queue/work is a symbolic link |
link beside      | folders | bad  | 0    | a symbolic link, which is not followed |
link beside      | modes   | ok   | 0    |  |
stale lock       | lock    | warn | 0    | the lock is stale | queue recover --dry-run
a folder | lock | bad | 0 | {lock}: expected a regular file | ls -ld -- {lock}  # check
a link | lock | bad | 0 | {lock}: expected a regular file | ls -ld -- {lock}  # check
a FIFO | lock | bad | 0 | {lock}: expected a regular file | ls -ld -- {lock}  # check
a FIFO           | worker  | warn | 0    |  |
half done | staging | warn | 0 | interrupted move from pending to dlq | queue recover
twice            | staging | warn | 0    | is in pending and dlq at the same time |
with link        | staging | warn | 0    | is in pending and dlq | ls -ld -- {root}/queue/dlq/
quarantine       | corrupt | warn | 0    | 2 broken files quarantined in | queue corrupt list
quarantine       | staging | ok   | 0    |  |
in years | clock | warn | 0 | 2 tasks are due in more than 7 days, the longest delay possible |
created later    | clock   | warn | 0    | , created |
10 dead          | dead    | ok   | 0    |  |
11 dead          | dead    | warn | 0    | 11 tasks in the DLQ (over 10) |
due              | worker  | ok   | 60   | no worker has run yet |
due              | worker  | warn | 1000 | no worker has run yet |
ran 3000         | worker  | warn | 1000 | the last worker ran |
ran 0            | worker  | ok   | 600  | the last worker ran |
ran 3240 idle    | worker  | ok   | 0    | the last worker ran |
ran 3960 idle    | worker  | warn | 0    | (limit 1 h) | spooldeck --root {root} queue work
abandoned | worker | warn | 0 | 1 task is in work, but no worker running | queue recover --dry
no metrics       | worker  | warn | 0    |  |
"""
"""The place, the check, its grade, how many seconds from now, what it says, and what mends it.

Where a worker ran so many seconds ago and is idle nothing is due: later, a timer has stopped.
"""


@each("row", FINDINGS.splitlines(), root=made_place)
def test_an_ill_place_has_its_finding(root: Path, row: str) -> None:
    """What is wrong has a grade, what it is, and what mends it."""
    name, check, grade, later, what, fix = (cell.strip() for cell in row.split("|"))
    make_ill(root, name)
    finding = the_one(root, check, later=float(later))
    filled = {"root": root, "lock": root / "run" / "queue.lock"}
    assert finding.grade == grade
    assert what.format(**filled) in finding.problem
    assert fix.format(**filled) in finding.fix


@each(
    ("name", "message"),
    [
        ("no-such-program-anywhere", "program not found"),
        ("/nonexistent/x", "program not found"),
        ("{root}/plain", "cannot be run as"),
        ("{root}/script", "needs /nonexistent/python, which does not exist"),
    ],
    root=made_place,
)
def test_a_handler_that_cannot_be_run(root: Path, name: str, message: str) -> None:
    """A program that is missing or may not be executed is found before a task meets it."""
    (root / "plain").write_text("#!/bin/sh\n")
    (root / "script").write_text("#! /nonexistent/python -u\n")
    (root / "script").chmod(0o755)
    program = InstalledProgram([name.format(root=root), "-x"], None)
    finding = the_one(root, "handlers", handlers={"report": program})
    assert finding.grade is Grade.BAD and message in finding.problem


def test_a_missing_folder_and_a_folder_in_another(root: Path) -> None:
    """A missing folder of a state is bad, another one a warning; none may be in another."""
    pending = f"{root}/queue/pending"
    inner = the_one(root, "nesting", dlq=f"{pending}/dlq")
    problem = f"{pending}/dlq is inside {pending}: its files would be read as tasks"
    assert (inner.grade, inner.problem) == (Grade.BAD, problem)
    assert "/etc/some.yaml" in inner.fix
    (root / "queue" / "dlq").rmdir()
    (root / "log").rmdir()
    fix = f"spooldeck init {root}"
    assert findings(root, "folders") == [
        Finding(Grade.BAD, f"dlq: {root}/queue/dlq: No such file or directory", fix),
        Finding(Grade.WARN, f"missing: {root}/log", fix),
    ]
    assert the_one(root, "broken").grade is Grade.HIDDEN
    assert the_one(root, "tasks").grade is Grade.BAD


@each(
    ("folder", "mode", "grade", "message"),
    [
        ("queue/pending", 0o2777, Grade.BAD, "any user may add tasks"),
        ("queue/dlq", 0o755, Grade.WARN, "other users may read it; expected 750"),
        ("queue/work", 0o770, Grade.WARN, "its group may write; expected 750"),
        ("queue/pending", 0o550, Grade.BAD, "its owner lacks access"),
        ("run", 0o1777, Grade.BAD, "any user may add tasks"),
        ("queue/pending", 0o2750, Grade.OK, ""),
        ("run", 0o755, Grade.OK, ""),
        ("queue/pending", 0o700, Grade.OK, ""),
        ("queue", 0o777, Grade.BAD, "any user may rename the queue away"),
        ("queue", 0o1777, Grade.OK, ""),
    ],
    root=made_place,
)
def test_modes(root: Path, folder: str, mode: int, grade: Grade, message: str) -> None:
    """Queue folders are 750 or less; no other user may write anywhere, nor above the queue."""
    (root / folder).chmod(mode)
    finding = the_one(root, "modes")
    assert finding.grade is grade and message in finding.problem
    if message:
        assert f"{root}/{folder}: mode {mode:o}" in finding.problem
        subprocess.run(finding.fix.split(), check=True)
        assert the_one(root, "modes").grade is Grade.OK


@as_root
@each(
    ("path", "grade"),
    [
        ("queue/dlq", Grade.BAD),
        ("run", Grade.WARN),
        ("log/queue.log", Grade.WARN),
        ("metrics/queue.prom", Grade.WARN),
        ("metrics/counters/failed_total", Grade.WARN),
        ("queue/pending/20261120T094115Z-x-0000.task", Grade.WARN),
    ],
    root=made_place,
)
def test_owners(root: Path, path: str, grade: Grade) -> None:
    """A folder or file of another user than the queue's is found, with the chown that mends it."""
    full_path = root / path
    if not full_path.is_dir():
        full_path.write_text("")
    os.chown(full_path, 65534, 65534)
    finding = the_one(root, "owners")
    assert finding.grade is grade and str(full_path) in finding.problem
    assert finding.fix.split()[-1] == str(full_path)
    subprocess.run(finding.fix.split(), check=True)
    assert the_one(root, "owners").grade is Grade.OK


def test_room(root: Path) -> None:
    """Less space than for a full queue is a warning, with the figures."""
    free = os.statvfs(root)
    most = free.f_bavail * free.f_frsize // free.f_bsize * 2
    found = findings(root, "room", max_pending=most)[0]
    assert found.grade is Grade.WARN
    assert f"and {most:,} more may be added" in found.problem
    assert found.fix.startswith("df -h ")


INFO = """\
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 27 0:27 / /run rw - tmpfs tmpfs rw,mode=755
31 27 8:1 / /srv/with\\040space rw,noatime - ext4 /dev/sda1 rw,data=writeback
32 31 0:40 / /srv/with\\040space/nfs rw - nfs4 host:/export\\134x rw,vers=4.2
33 27 0:41 / /data rw - overlay overlay rw,lowerdir=/a
34 27 8:17 / /data rw master:1 propagate_from:2 - xfs /dev/sdb1 rw,nobarrier
broken line
"""


def test_mounts_are_read_as_the_kernel_writes_them() -> None:
    """Optional fields, escaped names and both kinds of options are understood, damage is passed;
    the longest mount point of a path counts, and of two on one point the later."""
    first, *_, last = parsed = mounts.parse_mounts(INFO)
    options = frozenset({"rw", "relatime", "discard"})
    assert first == Mount("254:0", "/", "ext4", "/dev/vda", options)
    assert (len(parsed), last.type, parsed[3].source) == (6, "xfs", "host:/export\\x")
    for path, point, kind in (
        ("/etc", "/", "ext4"),
        ("/running", "/", "ext4"),
        ("/run/x", "/run", "tmpfs"),
        ("/srv/with space/nfs/a/b", "/srv/with space/nfs", "nfs4"),
        ("/srv/with space/nfsx", "/srv/with space", "ext4"),
        ("/data/queue", "/data", "xfs"),
        ("/", "/", "ext4"),
    ):
        mount = mounts.mount_containing(path, parsed)
        assert mount is not None and (mount.point, mount.type) == (point, kind)


@each(
    ("kind", "options", "journal", "why"),
    [
        ("ext4", "rw", True, ""),
        ("ext4", "rw", None, ""),
        ("ext4", "rw", False, "no journal"),
        ("xfs", "rw", None, ""),
        ("btrfs", "rw", None, ""),
        ("ext2", "rw", False, "no journal"),
        ("ext4", "rw,data=writeback", True, "mounted with data=writeback"),
        ("xfs", "rw,nobarrier", None, "mounted with nobarrier"),
        ("ext4", "rw,barrier=0", True, "mounted with barrier=0"),
        ("nfs4", "rw", None, "other hosts"),
        ("cifs", "rw", None, "other hosts"),
        ("fuse.sshfs", "rw", None, "depend on the program behind it"),
        ("fuse", "rw", None, "depend on the program behind it"),
        ("overlay", "rw", None, "container"),
        ("tmpfs", "rw", None, "a reboot deletes all tasks"),
        ("vfat", "rw", None, "neither owners nor a journal"),
    ],
)
def test_each_file_system_that_may_lose_tasks_has_its_reason(
    kind: str, options: str, journal: bool | None, why: str
) -> None:
    """Kinds and options that may lose or repeat tasks are known; of others nothing is claimed."""
    mount = Mount("8:1", "/", kind, "/dev/sda1", frozenset(options.split(",")))
    failure = mounts.durability_problem(mount, journal)
    assert why in failure and bool(failure) is bool(why)
    assert (mounts.is_known_type(kind), mounts.is_known_type("somefs")) == (True, False)


@each(
    ("task", "jbd2", "has"),
    [
        ("771", None, True),
        ("<none>", None, False),
        (None, ["sda1-8"], True),
        (None, ["sda11-8"], False),
        (None, [], False),
        (None, None, None),
    ],
)
def test_where_the_kernel_reports_a_journal(
    tmp_path: Path, task: str | None, jbd2: list[str] | None, has: bool | None
) -> None:
    """The file system's own entry counts, then the list of journals; else it is unknown."""
    sys, proc = tmp_path / "sys", tmp_path / "proc"
    folders = ["sys/dev/block", "sys/block/sda1", *(["proc/fs/jbd2"] if jbd2 is not None else [])]
    folders += ["sys/fs/ext4/sda1"] if task is not None else []
    for name in (*folders, *(f"proc/fs/jbd2/{name}" for name in jbd2 or ())):
        (tmp_path / name).mkdir(parents=True)
    (sys / "dev/block/8:1").symlink_to("../../block/sda1")
    if task is not None:
        (sys / "fs/ext4/sda1/journal_task").write_text(task + "\n")
    mount = Mount("8:1", "/", "ext4", "/dev/sda1", frozenset())
    assert mounts.has_journal(mount, str(sys), str(proc)) is has


def test_a_lock_that_is_held(root: Path) -> None:
    """A lock whose holder lives and is silent is bad; one with heartbeats works."""
    path, then = root / "run" / "queue.lock", int(time.time()) - 3600
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with subprocess.Popen(["sleep", "600"], pass_fds=[fd]) as child:
        os.write(fd, b"%d\n%d\n" % (child.pid, then))
        os.utime(path, (then, then))
        os.close(fd)
        for check, grade in (("lock", Grade.BAD), ("worker", Grade.WARN)):
            found = findings(root, check)[0]
            assert found.grade is grade
            assert "the lock is stuck" in found.problem
        child.kill()
    path.unlink()
    with queue_lock.acquire_lock(str(path), 1200):
        assert the_one(root, "worker") == Finding(Grade.OK, "worker running")


def test_clocks_that_are_wrong(root: Path) -> None:
    """A lock from the future, files changed after now, and a clock that was never set."""
    path, lock = add(root), root / "run" / "queue.lock"
    lock.write_text(f"{os.getpid()}\n9999999999\n")
    os.utime(lock, (time.time() + 9000,) * 2)
    assert "is dated in the future" in findings(root, "lock")[-1].problem
    back = findings(root, "clock", later=-3600)
    assert any(f"{path}, changed " in finding.problem for finding in back)
    assert findings(root, "clock", later=-time.time() + 1000)[0].grade is Grade.BAD


def test_litter(root: Path) -> None:
    """An unfinished draft is named after a minute, and never while its writer holds its flock."""
    staging = "queue/.spooldeck"
    drafts = ("run/queue.lock.0a1b2c", "metrics/queue.prom.00ff.tmp", f"{staging}/T.x.1-2-3")
    for name in (*drafts, "run/queue.lock.alerted"):
        (root / name).write_text("")
    with (root / staging / "T.y.1-2-3").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        young, old = findings(root, "partial"), findings(root, "partial", later=120)
    assert [finding.grade for finding in young] == [Grade.OK]
    assert [finding.fix for finding in old] == [f"rm -- {root}/{name}" for name in drafts]


def test_a_walk_counts_tasks_and_names_broken_files(root: Path) -> None:
    """Tasks are counted by state and kind; the first few broken files are named."""
    began, pending = time.time(), root / "queue" / "pending"
    bury(root, 1)
    add(root, "report", began - 50)
    add(root, "other", began - 90)
    for number in range(5):
        (pending / f"broken{number}.task").write_text("TASK_ID=$(id)\n")
    tasks = place_facts.scan_tasks(lambda: store_at(root), began + 10)
    assert (tasks.counts[State.PENDING], tasks.counts[State.DEAD]) == (2, 1)
    assert tasks.kinds == {"report": 1, "other": 1}
    assert (tasks.due, tasks.due_since) == (2, int(began - 90))
    where = sorted(problem.where for problem in tasks.broken)
    assert where == [f"pending/broken{number}.task" for number in range(5)]
    found = findings(root, "broken")
    assert [finding.grade for finding in found] == [Grade.WARN] * 4
    assert f"{pending}/broken0.task: " in found[0].problem
    assert found[3].problem == "and 2 more broken files"


BY_NAME, BY_TEXT = "ls -ld -- {}", "head -c 2000 -- {} | cat -v"
ASIDE, NEVER = "a worker quarantines it 60 s after", "workers ignore it"


@each(
    ("name", "kind", "command", "then"),
    [
        ("pending/x.task", "text", BY_TEXT, ASIDE),
        ("work/x.task", "text", BY_TEXT, ASIDE),
        ("pending/x.task", "link", BY_NAME, NEVER),
        ("pending/x.task", "FIFO", BY_NAME, ASIDE),
        ("pending/x.task", "two links", BY_NAME, ASIDE),
        ("pending/x.task", "folder", BY_NAME, NEVER),
        ("pending/readme.txt", "text", BY_TEXT, NEVER),
        ("dlq/x.task", "text", BY_TEXT, NEVER),
    ],
    root=made_place,
)
def test_the_mending_of_a_broken_file(
    root: Path, name: str, kind: str, command: str, then: str
) -> None:
    """What is to be typed neither waits nor follows a link, and promises what a worker does."""
    path = root / "queue" / name
    if kind in ("text", "two links"):
        path.write_text("x\x1b[2J" * 1000)
    else:
        put(path, kind)
    if kind == "two links":
        (root / "second").hardlink_to(path)
    fix = the_one(root, "broken").fix
    output = subprocess.run(fix, shell=True, capture_output=True, check=True, timeout=60).stdout
    assert fix.startswith(command.format(path) + "  # repair or remove it; ")
    assert then in fix
    assert len(output) < 5000
    assert b"\x1b" not in output and b"root:" not in output
    store = NftbanStore(spool_at(root), clock=lambda: time.time() + 61)
    list(store.take(time.time() + 61, "test", 1))
    store.quarantine_broken()
    assert (path.is_symlink() or path.exists()) == (then == NEVER)


@as_root
def test_a_handler_is_judged_as_the_user_that_runs_it(root: Path) -> None:
    """A program that root may run but the queue's owner may not is bad."""
    script = Path(f"/tmp/spooldeck-doctor-{os.getpid()}")
    script.write_text("#!/bin/sh\n")
    handlers = {"report": InstalledProgram([str(script)], users.account_named("nobody"))}
    try:
        for mode, grade in ((0o700, Grade.BAD), (0o755, Grade.OK)):
            script.chmod(mode)
            assert the_one(root, "handlers", handlers=handlers).grade is grade
    finally:
        script.unlink()


def test_kinds_without_a_handler(root: Path) -> None:
    """Tasks without a handler are counted by kind, and what will become of them."""
    for kind in ("feeds_sync", "feeds_sync", "report", "fine"):
        add(root, kind)
    found = findings(root, "kinds", handlers={"fine": InstalledProgram(["true"], None)})
    assert [finding.problem for finding in found] == [
        "2 tasks of kind feeds_sync wait without a handler: they are not claimed",
        "1 task of kind report waits without a handler: they will fail immediately",
    ]
    assert "/etc/some.yaml" in found[0].fix


@pytest.mark.parametrize("sign", ["run/queue.lock", "metrics/queue.prom.tmp"])
def test_another_program_beside_us(root: Path, sign: str) -> None:
    """Its sign on a spool that is marked as exclusive is a warning; the command mends it."""
    make_spool(spool_at(root), exclusive=True)
    with subprocess.Popen(["sleep", "600"]) as other:
        (root / sign).write_text(f"{other.pid}\n{int(time.time())}\n")
        finding = the_one(root, "exclusive")
        assert finding.grade is Grade.WARN
        assert finding.problem.startswith(f"{root}/{sign} is another program's, but ")
        subprocess.run(finding.fix.split(), check=True)
        assert the_one(root, "exclusive").grade is Grade.OK
        other.kill()


def test_many_mails_without_a_task_are_mended_by_one_command(root: Path) -> None:
    """Three are named with their own command; one command serves all the others."""
    unsent = [f"{root}/mailspool/mail-{number}/meta.sh" for number in range(5)]
    for meta in map(Path, unsent):
        meta.parent.mkdir()
        meta.write_text("")
    *named, more = findings(root, "spool", mail=place_facts.MailFacts(unsent=unsent))
    assert [finding.fix.split()[-1] for finding in named] == [f"mail-{n}" for n in range(3)]
    assert more.problem == "and 2 more without a task"
    assert more.fix.startswith(f"spooldeck --root {root} mail spool retry --all")


FACTS = place_facts.MailFacts
SHUT = FACTS(unavailable="no mail transport is set up")
HALTED = TransportSuspension("curl", AT := 1_795_167_600.0, "ana", "the relay moves")


@each(
    ("mail", "waiting", "expected"),
    [
        (SHUT, 0, "ok no mail transport is set up"),
        (SHUT._replace(is_wanted=True), 0, "warn no mail transport is set up"),
        (SHUT, 2, "warn 2 mails wait, none can be sent: no mail transport is set up"),
        (
            FACTS(unavailable="no mail transport: curl suspended", suspended=[HALTED]),
            1,
            "warn 1 mail waits: curl suspended by ana since 2026-11-20 09:40:00Z: the relay moves",
        ),
        (
            FACTS(unavailable="no token for transport curl", token_at=AT),
            2,
            "ok 2 mails wait: no token for transport curl, the next token comes 2026-11-20",
        ),
        (FACTS(settings=[("mail.sender: no", "correct it")]), 0, "warn mail.sender: no"),
    ],
    root=made_place,
)
def test_what_keeps_mail_from_being_sent(
    root: Path, mail: place_facts.MailFacts, waiting: int, expected: str
) -> None:
    """It is in any case reported; an act is needed where mail is wanted or waits."""
    for _ in range(waiting):
        add(root, "mail_send")
    finding = the_one(root, "mail", mail=mail)
    assert f"{finding.grade} {finding.problem}".startswith(expected)
    if mail.suspended:
        assert finding.fix == f"spooldeck --root {root} mail resume curl"
