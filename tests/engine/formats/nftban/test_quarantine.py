"""Any file put into the queue: refused for its reason, quarantined, and no claim waits."""

import os
import re
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import verbs
from engine.formats.nftban.quarantine import escape_name
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import Move, Problem, State, Task
from engine.policy import contract_retries
from engine.store import Gone, Unavailable, Unsupported
from engine.system import files
from engine.system.files import Refused, parse_assignments
from engine.work.handlers import guard_payload
from engine.work.worker import Worker
from tests.nftban_spool import (
    FILE,
    IDENT,
    NAME,
    NOW,
    a_task,
    just_before,
    later,
    names,
    new_spool,
    opened,
    put,
    taken,
    there,
    under_way,
)
from tests.store_contents import naming, problems_in
from tests.tables import each

GOOD = Task("20261120T094115Z-job-00000009", "job", State.PENDING, 1_795_170_000.0, description="x")
"""Follows the broken files, and has to be taken all the same."""


@pytest.fixture
def store(spool: SpoolFolders) -> NftbanStore:
    """The store of the spool, when all that is there has been as it is for a minute."""
    return opened(spool, later)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make that")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        folder_fd = os.open(path.parent, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder_fd}/{path.name}")  # a path of any length
        os.close(folder_fd)


def _sparse(path: Path) -> None:
    path.write_bytes(FILE)
    os.truncate(path, 1 << 30)


def _node(kind: int, major: int, minor: int) -> Callable[[Path], None]:
    return lambda path: os.mknod(path, kind | 0o600, os.makedev(major, minor))


def _mode(mode: int, owner: int = -1) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(FILE)
        path.chmod(mode)
        os.chown(path, owner, owner)

    return make


LINK, DEVICE = "a symbolic link, not followed", "a device, not a task file"
NAMING = "not named like a task: expected ID.task"
COMMAND = FILE.replace(b"a job", b"$(id)")

ENTRIES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "FIFO": (NAME, os.mkfifo, "a FIFO, not a task file"),
    "socket": (NAME, _socket, "a socket, not a task file"),
    "endless device": (NAME, _node(stat.S_IFCHR, 1, 5), DEVICE),
    "device without a driver": (NAME, _node(stat.S_IFCHR, 240, 77), DEVICE),
    "disk": (NAME, _node(stat.S_IFBLK, 7, 0), DEVICE),
    "gigabyte": (NAME, _sparse, "1,073,741,824 bytes, expected at most 65,536"),
    "empty": (NAME, lambda path: path.write_bytes(b""), "empty: a write was interrupted"),
    "a command": (NAME, lambda path: path.write_bytes(COMMAND), "line 3: TASK_DESCRIPTION has an"),
    "no UTF-8": (NAME, lambda path: path.write_bytes(FILE.replace(b"j", b"\xff")), "not UTF-8 at"),
    "torn": (NAME, lambda path: path.write_bytes(FILE[:-1]), "no newline at its end"),
    "newline": ("0\nx.task", _mode(0o640), NAMING),
    "escape": ("0\x1b[2J.task", _mode(0o640), NAMING),
    "no text": ("0\udcff\udc80.task", _mode(0o640), NAMING),
    "option": ("-rf.task", _mode(0o640), NAMING),
    "hidden": (".hidden.task", _mode(0o640), NAMING),
    "nothing else": (".task", _mode(0o640), NAMING),
    "long": (f"{'0' * 250}.task", _mode(0o640), NAMING),
    "a reason's name": ("0.why.task", _mode(0o640), NAMING),
}
"""File name, how it is made, and what is said of it."""

ROOTS = ("endless device", "device without a driver", "disk")

UNTRUSTED: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: path.symlink_to("/etc/shadow"), LINK),
    (lambda path: path.symlink_to("nowhere"), LINK),
    (lambda path: path.symlink_to(path.name), LINK),
    (_mode(0o646), "is writable by all users, expected mode 640 or less"),
    (_mode(0o640, 12345), "belongs to user 12345, expected 0 (as its"),
]
"""What is not trusted for its mode, owner or links, and what is said of it."""


@pytest.mark.parametrize("kinds", ["all else", *(pytest.param(k, marks=needs_root) for k in ROOTS)])
def test_what_is_no_task_file_is_quarantined(tmp_path: Path, kinds: str) -> None:
    """It is refused for its reason, renamed out of the way unchanged, and stops no claim."""
    chosen = [kind for kind in ENTRIES if kind not in ROOTS] if kinds == "all else" else [kinds]
    for number, kind in enumerate(chosen):
        spool = new_spool(tmp_path / str(number))
        with naming(kind):
            quarantine_entry(kind, spool, opened(spool, later))


def quarantine_entry(kind: str, spool: SpoolFolders, store: NftbanStore) -> None:
    """Have a store meet an entry, quarantine it and describe it."""
    name, make, reason = ENTRIES[kind]
    path, corrupt = Path(spool.pending, name), Path(spool.staging_dir, "corrupt")
    try:
        make(path)
    except PermissionError:
        pytest.skip("this system forbids devices")
    was = path.lstat()
    store.swap(None, GOOD)
    count: list[int] = []
    problems = problems_in(store)
    by_name = [item.what for item in store.scan({name}) if isinstance(item, Problem)]
    claimed = taken(store, later())
    (message,) = store.quarantine_broken(lambda: count.append(1))
    ((where, what),), (aside,) = problems_in(store).items(), store.list_quarantined()
    now = (corrupt / aside.name).lstat()

    assert [text.startswith(reason) for text in problems.values()] == [True], problems
    assert by_name == list(problems.values())
    assert (claimed, names(spool.pending), count) == ([GOOD.id], [], [1])
    assert message.startswith(f"pending/{escape_name(name)}: {reason}") and message.isprintable()
    assert names(corrupt) == [aside.name, f"{aside.name}.why"]
    why = parse_assignments((corrupt / f"{aside.name}.why").read_bytes(), lambda key: True)
    assert set(why) == {f"CORRUPT_{word}" for word in ("NAME", "STATE", "EPOCH", "BY", "REASON")}
    assert re.fullmatch(r"[A-Za-z0-9_:][A-Za-z0-9_:.-]*", aside.name)
    for fact in ("st_ino", "st_mode", "st_size", "st_uid"):
        assert getattr(now, fact) == getattr(was, fact)
    assert (aside.former_name, aside.state_word) == (escape_name(name), "pending")
    assert aside.reason.startswith(reason) and abs(aside.since - later()) < 300
    assert where == f".spooldeck/corrupt/{aside.name}" and what.startswith(reason)
    # Only for what can go back: a file, which had a task's name.
    hint = f"; repair it, then run `queue corrupt put-back {aside.name}`"
    assert what.endswith(hint) == (stat.S_ISREG(was.st_mode) and reason is not NAMING)
    assert ("put-back" in what) == what.endswith(hint)
    assert taken(store, later()) == store.quarantine_broken() == []


@needs_root
@each(("make", "reason"), UNTRUSTED, spool=new_spool)
def test_what_is_not_trusted_stays_and_is_reported_once(
    spool: SpoolFolders, make: Callable[[Path], object], reason: str
) -> None:
    """One line for all of a kind has their number and the command that corrects them."""
    store, ids = opened(spool, later), [a_task(n).id for n in range(3)]
    for ident in ids:
        make(path := Path(spool.pending, f"{ident}.task"))
        if not path.is_symlink():
            path.write_bytes(FILE.replace(IDENT.encode(), ident.encode()))
    assert taken(store, later()) == []
    (line,) = store.quarantine_broken()
    assert line.startswith(f"pending/{ids[0]}.task and 2 more: {reason}")
    assert taken(store, later()) == store.quarantine_broken() == []
    assert names(spool.pending) == [f"{ident}.task" for ident in ids]
    assert not Path(spool.staging_dir, "corrupt").exists()
    if reason is not LINK:
        subprocess.run(["sh", "-c", line.partition("; for all: ")[2]], check=True)
        assert taken(store, later()) == ids


def test_a_round_of_quarantine_is_bounded(spool: SpoolFolders, store: NftbanStore) -> None:
    """A round moves at most a hundred files; one that was completed meanwhile is claimed."""
    broken = [a_task(number).id for number in range(250)]
    for ident in broken:
        Path(spool.pending, f"{ident}.task").write_bytes(b"")
    assert taken(store, later()) == []
    assert (store.quarantine_broken(is_over=lambda: True), store.has_broken) == ([], True)
    assert (len(store.quarantine_broken()), store.has_broken) == (100, True)
    data = FILE.replace(IDENT.encode(), broken[-1].encode())
    Path(spool.pending, f"{broken[-1]}.task").write_bytes(data)
    assert taken(store, later()) == [broken[-1]]
    assert [len(store.quarantine_broken()) for _ in "12"] == [100, 49]
    assert (store.quarantine_broken(), store.has_broken) == ([], False)


def test_a_quarantined_name_can_be_read_again() -> None:
    """The written form of a name has each of its bytes, in printable characters."""
    name = "".join(map(chr, range(1, 128))).replace("/", "") + "\udc80\udcff\\x41é"
    text = escape_name(name)
    assert text.isascii() and text.isprintable()
    assert text.encode().decode("unicode_escape").encode("latin-1") == os.fsencode(name)


@each("kind", ["FIFO", "socket", "gigabyte", "empty"], spool=new_spool)
def test_what_is_no_task_file_is_never_moved(spool: SpoolFolders, kind: str) -> None:
    """A task that was replaced by something else since it was seen is left alone."""
    store, path = opened(spool, later), Path(spool.pending, NAME)
    task = put(store, State.PENDING)
    path.unlink()
    ENTRIES[kind][1](path)
    with pytest.raises((Gone, Unavailable)):
        store.swap(task, verbs.purge(task, NOW))
    with pytest.raises(Gone):
        store.read(task)
    assert (names(spool.pending), under_way(spool)) == ([NAME], [])


def test_what_may_still_be_written_is_left(spool: SpoolFolders) -> None:
    """What changed within the last minute is not quarantined; once finished it is claimed."""
    path = Path(spool.pending, NAME)
    for age, moved in ((59.0, False), (61.0, True)):
        path.write_bytes(b"")
        os.utime(path, (0, 0))
        store = opened(spool, lambda age=age: time.time() + age)  # type: ignore[misc]
        taken(store, later())
        assert (bool(store.quarantine_broken()), path.exists()) == (moved, not moved)
    path.write_bytes(FILE[:100])
    store = opened(spool, later)
    assert taken(store, later()) == []
    path.write_bytes(FILE)
    assert store.quarantine_broken() == []
    assert taken(store, later()) == [IDENT]


def test_a_file_written_during_its_quarantine_goes_back(
    spool: SpoolFolders, store: NftbanStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process writes between our check and our move is put back as it is now."""
    path = Path(spool.pending, NAME)
    path.write_bytes(b"")
    taken(store, later())
    just_before(monkeypatch, lambda: path.write_bytes(FILE))
    assert store.quarantine_broken() == []
    assert path.read_bytes() == FILE
    assert names(Path(spool.staging_dir, "corrupt")) == []


def test_a_broken_file_in_work_is_quarantined(spool: SpoolFolders, store: NftbanStore) -> None:
    """A torn file is quarantined; foreign names and folders stay, a folder is reported once."""
    Path(spool.work, NAME).write_bytes(FILE[:60])
    Path(spool.work, "notes").write_bytes(b"")
    folder = Path(spool.pending, f"{a_task(3).id}.task")
    folder.mkdir()
    (folder / "kept").write_text("precious")
    store.swap(None, GOOD)
    assert taken(store, later()) == [GOOD.id]
    first, second = sorted(store.quarantine_broken())
    taken(store, later())
    assert first == f"pending/{folder.name}: a folder, not a task file; not moved"
    assert second.startswith(f"work/{NAME}: no newline at its end")
    assert store.quarantine_broken() == []
    assert (folder / "kept").read_text() == "precious"
    assert names(spool.work) == [f"{GOOD.id}.task", "notes"]


def test_many_broken_files_stop_no_claim(spool: SpoolFolders, store: NftbanStore) -> None:
    """Of two with one name to show, each keeps its own; the good one comes between them."""
    for number in range(50):
        Path(spool.pending, f"0\x01{chr(ord('A') + number)}.task").write_bytes(b"")
    store.swap(None, GOOD)
    assert taken(store, later()) == [GOOD.id]
    assert len(store.quarantine_broken()) == 50
    assert len(names(Path(spool.staging_dir, "corrupt"))) == 100
    assert len(problems_in(store)) == 50


def test_a_folder_open_to_a_group_takes_its_members_tasks(spool: SpoolFolders) -> None:
    """With its group it is its members' work; open to everybody, nothing is done."""
    path = Path(spool.pending, NAME)
    if os.geteuid() == 0:  # only root can give files away
        os.chown(spool.pending, 0, 4321)
        Path(spool.pending).chmod(0o770)
        path.write_bytes(FILE)
        os.chown(path, 12345, 4321)
        assert taken(opened(spool), later()) == [IDENT]
    Path(spool.pending).chmod(0o777)
    refused = {edge.refusal for edge in opened(spool).edges.values()}
    remedy = f"use chmod o-w {spool.pending}"
    assert refused == {f"{spool.pending} is writable by all users: {remedy}"}


def test_a_task_that_names_a_file_elsewhere_is_never_run_with_it(
    spool: SpoolFolders, tmp_path: Path
) -> None:
    """It is a task, but no handler gets it: it dies at once, and the file that it names stays."""
    (secret := tmp_path / "secret").write_text("precious")
    named = f"{tmp_path}/data/mailspool/../../secret"
    data = FILE.replace(b'PAYLOAD_FILE=""', f'PAYLOAD_FILE="{named}"'.encode())
    Path(spool.pending, NAME).write_bytes(data)
    store, started = opened(spool, time.time), list[Task]()
    handler = guard_payload(lambda task, context: started.append(task), spool.mail_spool)
    Worker(store, {"job": handler}, contract_retries(60, 240, 3)).process_next()
    dead = there(store)
    store.swap(dead, None)
    assert (dead.state, dead.payload) == (State.DEAD, named)
    assert dead.error.startswith("payload not touched: it is not a plain path below")
    assert (started, secret.read_text()) == ([], "precious")


def test_a_payload_elsewhere_is_not_added(spool: SpoolFolders) -> None:
    """Only a path below the mail spool, through existing folders, is taken."""
    store = opened(spool)
    for number, (payload, message) in enumerate(
        (
            ("/etc/passwd", "is not a plain path below"),
            (
                f"{spool.mail_spool}/mail-9/x",
                "cannot be reached: mail-9: No such file or directory",
            ),
            ("/a\nb", ""),
        )
    ):
        task, good = a_task(payload=payload), a_task(100 + number)
        with pytest.raises(Exception, match=f"payload path .*{message}"):
            store.swap(None, task)
        refused, added = store.swap_all([Move(None, task), Move(None, good)])
        assert isinstance(refused.error, Unsupported) and added.error is None
        assert names(spool.pending)[-1] == f"{good.id}.task"
    assert NAME not in names(spool.pending)
    payload = f"{spool.mail_spool}/meta.sh"
    assert not store.has_payload(payload)
    store.swap(None, a_task(payload=payload))
    assert NAME in names(spool.pending)


Aside = Callable[..., Path]


@pytest.fixture
def quarantined(spool: SpoolFolders) -> Aside:
    """Have a torn file quarantined; its path there."""

    def aside(word: str = "pending", name: str = NAME) -> Path:
        Path(spool.pending).with_name(word).joinpath(name).write_bytes(b'TASK_ID="')
        store = opened(spool, later)
        taken(store, later())
        (message,) = store.quarantine_broken()
        return Path(spool.staging_dir, "corrupt", message.rpartition(" ")[2])

    return aside


@pytest.mark.parametrize("word", ["pending", "work"])
def test_a_mended_file_is_a_task_again(spool: SpoolFolders, quarantined: Aside, word: str) -> None:
    """Still broken it stays; mended it goes back under its own name, byte for byte."""
    path = quarantined(word)
    store = opened(spool)
    path.write_bytes(COMMAND)
    with pytest.raises(Refused, match=r"^line 3: TASK_DESCRIPTION has an unescaped \$"):
        store.restore_quarantined(path.name)
    assert names(path.parent) == [path.name, f"{path.name}.why"]
    assert names(spool.pending) == []
    (path.parent / "new").write_bytes(FILE)  # as an editor does
    (path.parent / "new").rename(path)
    if os.geteuid() == 0:
        for folder in (spool.pending, spool.work, spool.dlq, spool.staging_dir, path.parent):
            os.chown(folder, 65534, 65534)
    store = opened(spool)
    assert store.restore_quarantined(path.name) == f"pending/{NAME}"
    back, owner = Path(spool.pending, NAME), Path(spool.pending).stat()
    assert (back.read_bytes(), names(path.parent)) == (FILE, [])
    assert (back.stat().st_uid, back.stat().st_gid) == (owner.st_uid, owner.st_gid)
    assert taken(store, later()) == [IDENT]


def test_no_quarantined_file_is_put_over_a_task(spool: SpoolFolders, quarantined: Aside) -> None:
    """A task that has taken its id since stays, in any state, and so does the file."""
    path = quarantined()
    path.write_bytes(FILE)
    store = opened(spool)
    store.swap(None, a_task())
    for act in (lambda: None, lambda: store.swap(there(store), verbs.hold(there(store), later()))):
        act()
        with pytest.raises(Gone, match="is there already"):
            store.restore_quarantined(path.name)
        assert path.read_bytes() == FILE
        assert Path(f"{path}.why").exists()


def test_only_a_name_in_quarantine_is_put_back(spool: SpoolFolders, quarantined: Aside) -> None:
    """A name that leads elsewhere or nowhere, or was no task's, is refused; nothing moves."""
    path = quarantined()
    path.write_bytes(FILE)
    Path(spool.pending, "good.task").write_bytes(FILE)
    leading = ("../pending/good.task", "..", ".", "", "/etc/passwd", "a/b", "../corrupt/{}")
    strange = ("nowhere", "-rf", "a\nb", "a\0b", "\udcff", "\x1b[2J", "{}.why", "x" * 300)
    for name in (*leading, *strange):
        with naming(name):
            with pytest.raises(Unsupported):
                opened(spool).restore_quarantined(name.format(path.name))
            assert path.exists() and names(spool.pending) == ["good.task"]
    Path(spool.pending, "good.task").unlink()
    other = quarantined(name="a b.task")
    other.write_bytes(FILE)
    with pytest.raises(Refused, match=r"its former name is a b\.task, not named like a task"):
        opened(spool).restore_quarantined(other.name)
    assert other.exists()


def test_without_a_sound_reason_a_file_stays_in_quarantine(
    spool: SpoolFolders, quarantined: Aside, tmp_path: Path
) -> None:
    """Where no file records where it came from, the file is listed and stays."""
    path, store = quarantined(), opened(spool)
    path.write_bytes(FILE)
    why = Path(f"{path}.why")
    content = why.read_bytes()
    (tmp_path / "elsewhere").write_bytes(content)
    for reason in (None, content[:-9], content.replace(b'"pending"', b'"../../x"'), tmp_path):
        why.unlink(missing_ok=True)
        if isinstance(reason, bytes):
            why.write_bytes(reason)
        elif reason:
            why.symlink_to(tmp_path / "elsewhere")
        assert [aside.name for aside in store.list_quarantined()] == [path.name]
        with pytest.raises(Unsupported, match="former state unknown"):
            store.restore_quarantined(path.name)
        assert path.exists()


@pytest.mark.parametrize(("age", "locked", "kept"), [(0, 0, 1), (61, 0, 0), (61, 1, 1)])
def test_a_lone_reason_is_removed(spool: SpoolFolders, age: int, locked: int, kept: int) -> None:
    """Left by a process that ended there, it goes after a minute; one whose flock is held stays."""
    corrupt = Path(spool.staging_dir, "corrupt")
    corrupt.mkdir(parents=True)
    (corrupt / "x.pending.1.why").write_bytes(b"half")
    with (corrupt / "x.pending.1.why").open("rb") as file:
        if locked:
            assert files.claim_flock(file.fileno())
        opened(spool, lambda: time.time() + age).recover()
    assert len(names(corrupt)) == kept


def test_what_a_disk_puts_into_each_folder_is_no_problem(spool: SpoolFolders) -> None:
    """lost+found, snapshots and the files an NFS client keeps are not named; other names are."""
    for name in ("lost+found", ".snapshot", "@eaDir", ".nfs000000000001", "lost"):
        Path(spool.pending, name).mkdir()
        Path(spool.dlq, name).mkdir()
    for touched in (None, {"lost+found", "lost"}):
        found = {item.where for item in opened(spool).scan(touched) if isinstance(item, Problem)}
        assert found == {"pending/lost", "dlq/lost"}
