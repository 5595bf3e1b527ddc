"""With the task of a spooled mail goes the mail's folder: all of it, and nothing else."""

import itertools
import os
from collections.abc import Collection
from pathlib import Path

import pytest

from engine import verbs
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import Move, Problem, State, Task
from engine.system import files
from tests.engine.formats.nftban.test_parts import IDENT, a_task
from tests.nftban_spool import NOW, names, new_spool, opened
from tests.store_contents import found
from tests.tables import each


def a_mail(spool: SpoolFolders, *, sent: bool = True) -> Path:
    """The folder of a spooled mail, with or without the mark that it may have been sent."""
    folder = Path(spool.mail_spool, "mail-2026-11-20T09:46:04Z-a96ebf3e")
    folder.mkdir()
    for name, text in (("meta.sh", "m"), ("body.html", "bo"), ("body.txt", "bod"), ("sent", "s")):
        (folder / name).write_text(text)
    if not sent:
        (folder / "sent").unlink()
    return folder


@pytest.fixture
def mail(spool: SpoolFolders) -> Path:
    """A mail in the test's spool that may have been sent."""
    return a_mail(spool)


def put(
    spool: SpoolFolders, store: NftbanStore, payload: object, state: State = State.ACTIVE
) -> Task:
    """A task with any payload, as another program may write it, in a state."""
    a_task(spool, payload)
    (task,) = store.take(NOW, "me", 1)
    if state is State.ACTIVE:
        return task
    store.swap(task, verbs.give_up_task(task, "no such user", 1))
    if state is State.TRASH:
        store.swap(found(store, IDENT), found(store, IDENT)._replace(state=State.TRASH))
    return found(store, IDENT)


def leave(store: NftbanStore, *tasks: Task, many: bool = True) -> None:
    """Have tasks leave for good, alone or as a lot."""
    if many:
        outcomes = store.swap_all(Move(task, None) for task in tasks)
        assert not any(outcome.error for outcome in outcomes)
        return
    for task in tasks:
        store.swap(task, None)


@pytest.mark.parametrize("many", [False, True])
@each("state", [State.ACTIVE, State.DEAD, State.TRASH], spool=new_spool)
def test_the_folder_goes_with_the_task(spool: SpoolFolders, state: State, many: bool) -> None:
    """Body and marks go too, alone or among many; a mail that is gone keeps no task."""
    mail, store = a_mail(spool), opened(spool)
    task = put(spool, store, mail / "meta.sh", state)
    if state is not State.ACTIVE:
        assert names(mail)[-1] == "sent", "until then it stays"
    leave(store, task, many=many)
    assert names(spool.mail_spool) == []
    leave(store, put(spool, store, mail / "meta.sh"), many=many)
    assert list(store.scan()) == []


def test_what_is_no_plain_file_stays(spool: SpoolFolders, mail: Path, tmp_path: Path) -> None:
    """Links, folders and FIFOs in it are left, and what they lead to; the folder with them."""
    precious = tmp_path / "precious"
    for folder in (precious, mail / "folder"):
        folder.mkdir()
        (folder / "file").write_text("x")
    (mail / "link").symlink_to(precious)
    (mail / "link.sh").symlink_to(precious / "file")
    os.mkfifo(mail / "fifo")
    store = opened(spool)
    store.swap(put(spool, store, mail / "meta.sh"), None)
    assert names(mail) == ["fifo", "folder", "link", "link.sh"]
    assert (precious / "file").exists() and (mail / "folder" / "file").exists()
    assert list(store.scan()) == []


@each(
    ("payload", "goes"),
    [
        ("{spool}/mail-1/body.txt", "mail-1/body.txt"),
        ("{spool}/other/meta.sh", "other/meta.sh"),
        ("{spool}/deep/mail-1/meta.sh", "deep/mail-1/meta.sh"),
        ("{spool}/meta.sh", "meta.sh"),
        ("{spool}/mail-link/meta.sh", ""),
        ("{spool}/mail-1/link.sh", "mail-1/link.sh"),  # not what it leads to
        ("{spool}/mail-1/../mail-1/meta.sh", ""),
        ("{spool}/mail-1", ""),
        ("{elsewhere}/mail-1/meta.sh", ""),
        ("mail-1/meta.sh", ""),
    ],
)
def test_of_another_payload_the_file_alone_goes(tmp_path: Path, payload: str, goes: str) -> None:
    """Only meta.sh in a folder of the mail spool itself means a whole mail."""
    spool, elsewhere = new_spool(tmp_path / "data"), tmp_path / "elsewhere"
    root = Path(spool.mail_spool)
    folders = ("mail-1", "deep/mail-1", "other")
    for folder in (*(root / name for name in folders), root / "deep", root, elsewhere / "mail-1"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "meta.sh").write_text("m")
        (folder / "body.txt").write_text("b")
    (root / "mail-link").symlink_to(elsewhere / "mail-1")
    (root / "mail-1" / "link.sh").symlink_to(elsewhere / "meta.sh")
    before = {*root.rglob("*"), *elsewhere.rglob("*")}
    named = payload.format(spool=root, elsewhere=elsewhere)
    for mail_spool, gone in (("", ""), (spool.mail_spool, goes)):
        store = opened(spool, mail_spool=mail_spool)
        store.swap(put(spool, store, named), None)
        assert list(store.scan()) == []
        left = {*root.rglob("*"), *elsewhere.rglob("*")}
        assert before - left == ({root / gone} if gone else set())


def test_a_task_weighs_what_would_go_with_it(spool: SpoolFolders, mail: Path) -> None:
    """Its own file and the plain files of its mail; beside another payload nothing counts."""
    big = mail.parent / "big"
    big.write_bytes(b"x" * 100_000)
    (mail / "link").symlink_to(big)
    (mail / "folder").mkdir()
    store = opened(spool)
    for state in (State.ACTIVE, State.DEAD, State.TRASH):
        task = put(spool, store, mail / "meta.sh", state)
        assert store.size(task) == len(store.read(task)) + len("mbobods"), state
        for path in Path(spool.pending).parent.rglob("*.task"):
            path.unlink()
    task = put(spool, store, mail / "body.txt")
    assert store.size(task) == len(store.read(task)) + len("bod")
    (mail / "body.txt").unlink()
    assert store.size(task) == len(store.read(task))


def add(store: NftbanStore, payload: object, number: int = 2, kind: str = "mail_send") -> Task:
    """One more task with a payload, waiting."""
    ident = f"20261120T094115Z-{kind}-{number:08x}"
    store.swap(None, Task(ident, kind, State.PENDING, NOW, payload=str(payload)))
    return found(store, ident)


def tasks_in(store: NftbanStore, state: State) -> list[Task]:
    """Every task of a state."""
    return [item for item in store.scan({store.states[state]}) if isinstance(item, Task)]


@pytest.mark.parametrize("many", [False, True])
@each(
    ("state", "file"),
    [*itertools.product((State.DEAD, State.TRASH), ("meta.sh", "body.txt"))],
    spool=new_spool,
)
def test_a_mail_stays_for_the_other_task_that_names_it(
    spool: SpoolFolders, state: State, file: str, many: bool
) -> None:
    """A deleted task takes no unsent mail from another; the last one takes it along."""
    mail, store = a_mail(spool, sent=False), opened(spool)
    gone = put(spool, store, mail / file, state)
    other, before = add(store, mail / "meta.sh"), names(mail)
    leave(store, gone, many=many)
    assert names(mail) == before
    (claimed,) = store.take(NOW, "me", 1)
    assert claimed.id == other.id
    leave(store, claimed)
    assert not mail.exists()
    mail = a_mail(spool, sent=False)
    first, second = put(spool, store, mail / "meta.sh", state), add(store, mail / "meta.sh")
    store.swap(second, second._replace(state=State.TRASH))
    leave(store, first, found(store, second.id))
    assert not mail.exists()


@each("where", ["D.{}.pending.held.00000000.1-0-1", "T.{}.1-0-1", "twice/{}.1"], spool=new_spool)
def test_a_task_that_is_being_moved_keeps_its_mail(spool: SpoolFolders, where: str) -> None:
    """One that is being moved, added, or was kept apart is a task as well."""
    meta, store = a_mail(spool, sent=False) / "meta.sh", opened(spool)
    gone, other = put(spool, store, meta, State.DEAD), add(store, meta)
    path = Path(spool.staging_dir, where.format(other.id))
    path.parent.mkdir(exist_ok=True)
    Path(spool.pending, f"{other.id}.task").rename(path)
    store.swap(gone, None)
    assert meta.exists()
    named = str(path.relative_to(Path(spool.pending).parent))
    assert list(store.find_named_payloads([str(meta)]).values()) == [named]


def test_a_task_that_moves_while_it_is_looked_for_is_found(
    spool: SpoolFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put into a folder that had been listed, from one that was not yet, it is found there."""
    store, rival = opened(spool), opened(spool)
    meta = a_mail(spool, sent=False) / "meta.sh"
    task = add(store, meta)
    rival.swap(task, task._replace(state=State.TRASH))
    (trashed,) = tasks_in(store, State.TRASH)
    other = add(store, "", 3)
    guarded = files.open_guarded

    def moved(name: str, dir_fd: int) -> int:
        monkeypatch.setattr(files, "open_guarded", guarded)
        assert name == f"{other.id}.task", "pending/ comes first"
        rival.swap(trashed, trashed._replace(state=State.PENDING))
        return guarded(name, dir_fd)

    monkeypatch.setattr(files, "open_guarded", moved)
    named = store.find_named_payloads([str(meta), "/elsewhere"])
    assert list(named) == [str(meta)]
    assert store.count_tasks()[State.PENDING] == 2


def test_what_is_done_is_removed_without_reading_others(
    spool: SpoolFolders, store: NftbanStore, mail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a success, and for what is marked as sent, no other task file is read."""
    dead = put(spool, store, mail / "meta.sh", State.DEAD)
    meta = mail.with_name("mail-20261120T094604Z-00000000") / "meta.sh"
    meta.parent.mkdir()
    meta.write_text("m")
    add(store, meta)
    (done,) = store.take(NOW, "me", 1)
    monkeypatch.setattr(store, "find_named_payloads", None)
    for task in (dead, done):
        store.swap(task, None)
    assert names(spool.mail_spool) == []


def test_many_payloads_are_searched_for_in_one_scan(
    spool: SpoolFolders, store: NftbanStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is read once; where that is refused the tasks leave and their mails stay."""

    def trashed(count: int) -> list[Task]:
        for number in range(count):
            payload = Path(spool.mail_spool, f"mail-{number}", "meta.sh")
            payload.parent.mkdir()
            payload.write_text("m")
            add(store, payload, number)
        waiting = tasks_in(store, State.PENDING)
        outcomes = store.swap_all([Move(t, t._replace(state=State.TRASH)) for t in waiting])
        assert not any(outcome.error for outcome in outcomes)
        return tasks_in(store, State.TRASH)

    scans, named = list[int](), store.find_named_payloads

    def counted(some: Collection[str]) -> dict[str, str]:
        scans.append(len(some))
        return named(some)

    def refused(some: object) -> object:
        raise TimeoutError("its holder may be stopped")

    monkeypatch.setattr(store, "find_named_payloads", counted)
    leave(store, *trashed(60))
    assert scans == [60]
    assert list(Path(spool.mail_spool).iterdir()) == []

    monkeypatch.setattr(store, "find_named_payloads", refused)
    leave(store, *trashed(1), many=False)
    assert list(store.scan()) == []
    assert names(Path(spool.mail_spool, "mail-0")) == ["meta.sh"]


@pytest.mark.parametrize("many", [False, True])
def test_a_power_cut_after_a_delivery_brings_no_mail_back_unmarked(
    spool: SpoolFolders, mail: Path, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Task, mail and mark go in this order, each when the disk has confirmed the one before."""
    store = opened(spool, durable=True)
    task = put(spool, store, mail / "meta.sh")
    steps: list[str] = []
    unlink, fsync = files.unlink, files.fsync

    def unlinked(name: str, *, dir_fd: int) -> None:
        steps.append(name)
        unlink(name, dir_fd=dir_fd)

    def synced(fd: int) -> None:
        steps.append(f"fsync {Path(f'/proc/self/fd/{fd}').resolve().name}")
        fsync(fd)

    def refused(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "unlink", unlinked)
    monkeypatch.setattr(files, "fsync", synced)
    leave(store, task, many=many)
    assert steps[:2] == [f"{IDENT}.task", "fsync work"]
    assert steps[2:] == ["body.html", "body.txt", "meta.sh", f"fsync {mail.name}", "sent"]

    task = put(spool, store, a_mail(spool) / "meta.sh")
    monkeypatch.setattr(files, "fsync", refused)
    store.swap(task, None)
    assert (mail / "sent").exists() and (mail / "meta.sh").exists()


@each("payload", ["", "/elsewhere/x", "{}/plain.txt"], spool=new_spool)
def test_a_task_without_a_mail_pays_for_no_fsync(
    spool: SpoolFolders, monkeypatch: pytest.MonkeyPatch, payload: str
) -> None:
    """What is acknowledged is one unlink, as before."""
    plain, store = Path(spool.mail_spool, "plain.txt"), opened(spool, durable=True)
    plain.write_text("x")
    task = put(spool, store, payload.format(spool.mail_spool))
    monkeypatch.setattr(files, "fsync", None)
    store.swap(task, None)
    assert list(store.scan()) == []
    assert plain.exists() == (payload != "{}/plain.txt")


def test_a_link_above_the_mail_spool_leads_nowhere(spool: SpoolFolders, tmp_path: Path) -> None:
    """The owner of the data folder misleads no process that may delete more than they may."""
    root, precious = tmp_path / "data", tmp_path / "elsewhere/spool/mail-1/meta.sh"
    precious.parent.mkdir(parents=True)
    precious.write_text("m")
    (root / "mail").symlink_to(tmp_path / "elsewhere")
    store = opened(spool, mail_spool=f"{root}/mail/spool", root=str(root))
    task = put(spool, store, f"{root}/mail/spool/mail-1/meta.sh")
    assert store.size(task) < 1000
    (_, payload) = store.parts(task)
    store.swap(task, None)
    assert "symbolic link" in payload.refusal and precious.exists()


def test_a_mail_spool_no_task_can_name_is_a_problem(spool: SpoolFolders, tmp_path: Path) -> None:
    """With letters in its path that a task file may not hold, no spooled mail gets a task."""
    (problem,) = opened(spool, mail_spool=f"{tmp_path}/Köln/mailspool").scan()
    assert isinstance(problem, Problem) and "no task can name files there" in problem.what
