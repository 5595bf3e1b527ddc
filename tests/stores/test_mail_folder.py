"""With the task of a spooled mail goes the mail's folder: all of it, and nothing else."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from engine import files, verbs
from engine.model import Move, Problem, State, Task
from engine.stores.nftban import NftbanStore, Spool, form
from tests.stores.seen import naming
from tests.stores.spooled import NOW, names, new_spool

Opener = Callable[..., NftbanStore]

IDENT = "20261120T094115Z-mail_send-00000001"


def a_mail(spool: Spool) -> Path:
    """The folder of a spooled mail, in doubt whether it was sent."""
    folder = Path(spool.mail_spool, "mail-2026-11-20T09:46:04Z-a96ebf3e")
    folder.mkdir()
    for name, text in (("meta.sh", "m"), ("body.html", "bo"), ("body.txt", "bod"), ("sent", "s")):
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def mail(spool: Spool) -> Path:
    """One in the test's spool."""
    return a_mail(spool)


def put(spool: Spool, store: NftbanStore, payload: object, state: State = State.ACTIVE) -> Task:
    """A task that names a payload, as any program may write it, where it stands then."""
    record = form.new_record(Task(IDENT, "mail_send", State.PENDING, NOW))
    path = Path(spool.pending, f"{IDENT}.task")
    path.write_bytes(form.render(record._replace(payload=str(payload))))
    path.chmod(0o640)
    (task,) = store.take(NOW, "me", 1)
    if state is State.ACTIVE:
        return task
    store.swap(task, verbs.bury(task, "no such user", 1))
    if state is State.TRASH:
        dead = seen(store)
        store.swap(dead, replace(dead, state=State.TRASH))
    return seen(store)


def removed(store: NftbanStore, task: Task, many: bool) -> None:
    """Let a task leave for good, alone or as a lot."""
    if many:
        assert [outcome.error for outcome in store.swap_all([Move(task, None)])] == [None]
    else:
        store.swap(task, None)


def seen(store: NftbanStore) -> Task:
    """The task, as it stands now."""
    (task,) = store.look({IDENT})
    assert isinstance(task, Task)
    return task


@pytest.mark.parametrize("many", [False, True])
def test_the_folder_goes_with_the_task(tmp_path: Path, many: bool) -> None:
    """Done, or deleted for good, alone or among many: the body and all marks are gone as well."""
    for state in (State.ACTIVE, State.DEAD, State.TRASH):
        spool = new_spool(tmp_path / state.value)
        mail = a_mail(spool)
        with naming(state), closing(NftbanStore(spool, lambda: NOW)) as store:
            task = put(spool, store, mail / "meta.sh", state)
            if state is not State.ACTIVE:
                assert names(mail)[-1] == "sent", "until then it stays"
            removed(store, task, many)
            assert names(spool.mail_spool) == []


def test_what_tells_that_it_was_sent_goes_last(
    spool: Spool, open_spool: Opener, mail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash on the way leaves a folder that is known to be litter."""
    gone: list[str] = []
    unlink = files.unlink

    def told(name: str, *, dir_fd: int) -> None:
        gone.append(name)
        unlink(name, dir_fd=dir_fd)

    store = open_spool()
    task = put(spool, store, mail / "meta.sh")
    monkeypatch.setattr(files, "unlink", told)
    store.swap(task, None)
    assert gone == [f"{IDENT}.task", "body.html", "body.txt", "meta.sh", "sent"]


def test_what_is_no_plain_file_stays(
    spool: Spool, open_spool: Opener, mail: Path, tmp_path: Path
) -> None:
    """Links, folders and FIFOs in it are left, and what they lead to; the folder with them."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    (mail / "link").symlink_to(precious)
    (mail / "link.sh").symlink_to(precious / "file")
    (mail / "folder").mkdir()
    (mail / "folder" / "file").write_text("x")
    os.mkfifo(mail / "fifo")
    store = open_spool()
    task = put(spool, store, mail / "meta.sh")

    store.swap(task, None)

    assert {path.name for path in mail.iterdir()} == {"link", "link.sh", "folder", "fifo"}
    assert (precious / "file").exists()
    assert (mail / "folder" / "file").exists()
    assert list(store.look()) == []


def test_of_another_payload_the_file_alone_goes(tmp_path: Path) -> None:
    """Only meta.sh in a folder of the mail spool itself stands for a whole mail."""
    for number, (payload, goes) in enumerate(
        (
            ("{spool}/mail-1/body.txt", "mail-1/body.txt"),
            ("{spool}/other/meta.sh", "other/meta.sh"),
            ("{spool}/deep/mail-1/meta.sh", "deep/mail-1/meta.sh"),
            ("{spool}/meta.sh", "meta.sh"),
            ("{spool}/mail-link/meta.sh", ""),
            ("{spool}/mail-1/../mail-1/meta.sh", ""),
            ("{elsewhere}/mail-1/meta.sh", ""),
        )
    ):
        spool = new_spool(tmp_path / str(number) / "data")
        root, elsewhere = Path(spool.mail_spool), tmp_path / str(number) / "elsewhere"
        for top in (root, root / "deep", elsewhere):
            (top / "mail-1").mkdir(parents=True)
        (root / "other").mkdir()
        for folder in (*root.glob("*"), root / "deep" / "mail-1", elsewhere / "mail-1"):
            (folder / "meta.sh").write_text("m")
            (folder / "body.txt").write_text("b")
        (root / "meta.sh").write_text("m")
        (root / "mail-link").symlink_to(elsewhere / "mail-1")
        before = {path for top in (root, elsewhere) for path in top.rglob("*")}
        with closing(NftbanStore(spool, lambda: NOW)) as store:
            store.swap(put(spool, store, payload.format(spool=root, elsewhere=elsewhere)), None)

        after = {path for top in (root, elsewhere) for path in top.rglob("*")}
        assert before - after == ({root / goes} if goes else set()), payload


def test_a_body_that_is_gone_already_is_no_error(
    spool: Spool, open_spool: Opener, mail: Path
) -> None:
    """Whoever was there first, the task leaves all the same; so it does without a folder."""
    store = open_spool()
    for path in mail.iterdir():
        path.unlink()
    mail.rmdir()
    task = put(spool, store, mail / "meta.sh")
    store.swap(task, None)
    assert list(store.look()) == []


def test_a_task_weighs_what_would_go_with_it(spool: Spool, open_spool: Opener, mail: Path) -> None:
    """Its own file and the plain files of its mail; what would stay does not count, and beside
    another payload nothing does."""
    big = mail.parent / "big"
    big.write_bytes(b"x" * 100_000)
    (mail / "link").symlink_to(big)
    (mail / "folder").mkdir()
    store = open_spool()
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
    """One more task that names a payload, waiting."""
    ident = f"20261120T094115Z-{kind}-{number:08x}"
    store.swap(None, Task(ident, kind, State.PENDING, NOW, payload=str(payload)))
    (task,) = store.look({ident})
    assert isinstance(task, Task)
    return task


def tasks_in(store: NftbanStore, state: State) -> list[Task]:
    """Every task of a state."""
    return [item for item in store.look({store.states[state]}) if isinstance(item, Task)]


@pytest.fixture
def unsent(mail: Path) -> Path:
    """A mail that nobody has sent yet."""
    (mail / "sent").unlink()
    return mail


@pytest.mark.parametrize("many", [False, True])
def test_a_mail_stays_for_the_other_task_that_names_it(tmp_path: Path, many: bool) -> None:
    """Who is deleted for good takes no unsent mail from another; the last one takes it along."""
    for state, file in itertools.product((State.DEAD, State.TRASH), ("meta.sh", "body.txt")):
        spool = new_spool(tmp_path / f"{state.value}{file}")
        unsent = a_mail(spool)
        (unsent / "sent").unlink()
        with naming(state, file), closing(NftbanStore(spool, lambda: NOW)) as store:
            gone = put(spool, store, unsent / file, state)
            other = add(store, unsent / "meta.sh")
            before = names(unsent)
            removed(store, gone, many)
            assert names(unsent) == before
            (claimed,) = store.take(NOW, "me", 1)
            assert claimed.id == other.id
            store.swap(claimed, None)
            assert not unsent.exists()


def test_of_several_that_leave_together_the_last_one_takes_the_mail(
    spool: Spool, open_spool: Opener, unsent: Path
) -> None:
    """Two dead tasks of one mail, deleted at once, leave nothing of it."""
    store = open_spool()
    first = put(spool, store, unsent / "meta.sh", State.DEAD)
    second = add(store, unsent / "meta.sh")
    store.swap(second, replace(second, state=State.TRASH))
    (second,) = tasks_in(store, State.TRASH)
    assert not any(o.error for o in store.swap_all([Move(first, None), Move(second, None)]))
    assert not unsent.exists()


def test_a_task_that_is_on_its_way_keeps_its_mail(tmp_path: Path) -> None:
    """One that is being moved, added, or was set aside is a task as well."""
    for number, where in enumerate(
        ("D.{}.pending.held.00000000.1-0-1", "T.{}.1-0-1", "twice/{}.1")
    ):
        spool = new_spool(tmp_path / str(number))
        unsent = a_mail(spool)
        (unsent / "sent").unlink()
        with naming(where), closing(NftbanStore(spool, lambda: NOW)) as store:
            gone = put(spool, store, unsent / "meta.sh", State.DEAD)
            other = add(store, unsent / "meta.sh")
            there = Path(spool.desk, where.format(other.id))
            there.parent.mkdir(exist_ok=True)
            Path(spool.pending, f"{other.id}.task").rename(there)

            store.swap(gone, None)

            assert (unsent / "meta.sh").exists()
            assert list(store.named([str(unsent / "meta.sh")]).values()) == [
                str(there.relative_to(Path(spool.pending).parent))
            ]


def test_a_task_that_moves_while_it_is_looked_for_is_found(
    spool: Spool, open_spool: Opener, unsent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put into a folder that had been listed, from one that was not yet, it is found there."""
    store, rival = open_spool(), open_spool()
    task = add(store, unsent / "meta.sh")
    rival.swap(task, replace(task, state=State.TRASH))
    (trashed,) = tasks_in(store, State.TRASH)
    other = add(store, "", 3)
    opened = files.open_guarded

    def moved(name: str, dir_fd: int) -> int:
        monkeypatch.setattr(files, "open_guarded", opened)
        assert name == f"{other.id}.task", "pending/ comes first"
        rival.swap(trashed, replace(trashed, state=State.PENDING))
        return opened(name, dir_fd)

    monkeypatch.setattr(files, "open_guarded", moved)

    named = store.named([str(unsent / "meta.sh"), "/elsewhere"])

    assert list(named) == [str(unsent / "meta.sh")]
    assert store.counts()[State.PENDING] == 2


def test_what_is_done_is_removed_without_a_look_at_others(
    spool: Spool, open_spool: Opener, mail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outcome costs the same in a full queue: after a success, and for what is marked as sent,
    nobody else's task file is read."""
    store = open_spool()
    dead = put(spool, store, mail / "meta.sh", State.DEAD)
    folder = mail.with_name("mail-20261120T094604Z-00000000")
    folder.mkdir()
    (folder / "meta.sh").write_text("m")
    add(store, folder / "meta.sh")
    (done,) = store.take(NOW, "me", 1)
    monkeypatch.setattr(store, "named", None)
    store.swap(dead, None)
    store.swap(done, None)
    assert list(Path(spool.mail_spool).iterdir()) == []


def test_many_are_looked_for_at_once(
    spool: Spool, open_spool: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To delete many tasks for good is not to read the queue once for each of them."""
    store = open_spool()
    payloads = [Path(spool.mail_spool, f"mail-{n}", "meta.sh") for n in range(60)]
    for number, payload in enumerate(payloads):
        payload.parent.mkdir()
        payload.write_text("m")
        add(store, payload, number)
    moves = [Move(t, replace(t, state=State.TRASH)) for t in tasks_in(store, State.PENDING)]
    assert not any(outcome.error for outcome in store.swap_all(moves))
    looks: list[int] = []
    named = store.named

    def counted(some: Collection[str]) -> dict[str, str]:
        looks.append(len(some))
        return named(some)

    monkeypatch.setattr(store, "named", counted)

    outcomes = store.swap_all(Move(task, None) for task in tasks_in(store, State.TRASH))
    assert not any(outcome.error for outcome in outcomes)

    assert looks == [60]
    assert list(Path(spool.mail_spool).iterdir()) == []


def test_who_cannot_look_takes_no_mail_away(
    spool: Spool, open_spool: Opener, unsent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the lock of the desk is not to be had the task leaves, and its mail stays."""
    store = open_spool()
    gone = put(spool, store, unsent / "meta.sh", State.DEAD)

    def refused(some: object) -> object:
        raise TimeoutError("its holder may be stopped")

    monkeypatch.setattr(store, "named", refused)
    store.swap(gone, None)
    assert list(store.look()) == []
    assert (unsent / "meta.sh").exists()


@pytest.mark.parametrize("many", [False, True])
def test_a_power_cut_after_a_delivery_brings_no_mail_back_unmarked(
    spool: Spool, open_spool: Opener, mail: Path, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has it that the task has left before its mail goes, and that the mail has gone
    before its mark does."""
    store = open_spool(durable=True)
    task = put(spool, store, mail / "meta.sh")
    steps: list[str] = []
    unlink, fsync = files.unlink, files.fsync

    def unlinked(name: str, *, dir_fd: int) -> None:
        steps.append(name)
        unlink(name, dir_fd=dir_fd)

    def synced(fd: int) -> None:
        steps.append(f"fsync {Path(f'/proc/self/fd/{fd}').resolve().name}")
        fsync(fd)

    monkeypatch.setattr(files, "unlink", unlinked)
    monkeypatch.setattr(files, "fsync", synced)

    if many:
        assert [outcome.error for outcome in store.swap_all([Move(task, None)])] == [None]
    else:
        store.swap(task, None)

    assert steps[:2] == [f"{IDENT}.task", "fsync work"]
    assert steps[2:] == ["body.html", "body.txt", "meta.sh", f"fsync {mail.name}", "sent"]


def test_a_task_without_a_mail_pays_for_no_fsync(tmp_path: Path) -> None:
    """What is acknowledged is one unlink, as before."""
    for number, payload in enumerate(("", "/elsewhere/x", "{}/plain.txt")):
        spool = new_spool(tmp_path / str(number))._replace(durable=True)
        plain = Path(spool.mail_spool, "plain.txt")
        plain.write_text("x")
        with naming(payload), closing(NftbanStore(spool, lambda: NOW)) as store:
            task = put(spool, store, payload.format(spool.mail_spool))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(files, "fsync", None)
                store.swap(task, None)
            assert list(store.look()) == []
            assert plain.exists() == (payload != "{}/plain.txt")


def test_where_the_disk_does_not_confirm_the_mark_stays(
    spool: Spool, open_spool: Opener, mail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task may come back then, and finds its mail marked as sent."""
    store = open_spool(durable=True)
    task = put(spool, store, mail / "meta.sh")

    def refused(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "fsync", refused)
    store.swap(task, None)
    assert (mail / "sent").exists() and (mail / "meta.sh").exists()


def test_a_link_above_the_mail_spool_leads_nowhere(
    spool: Spool, open_spool: Opener, tmp_path: Path
) -> None:
    """Whoever owns the data folder leads nobody astray who may delete more than they may."""
    root, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    precious = elsewhere / "spool" / "mail-1"
    precious.mkdir(parents=True)
    (precious / "meta.sh").write_text("m")
    (root / "mail").symlink_to(elsewhere)
    place = spool._replace(mail_spool=f"{root}/mail/spool", root=str(root))
    store = NftbanStore(place, lambda: NOW)
    task = put(spool, store, f"{root}/mail/spool/mail-1/meta.sh")
    assert store.size(task) < 1000
    (_, payload) = store.parts(task)
    store.swap(task, None)
    store.close()
    assert "symbolic link" in payload.refused
    assert (precious / "meta.sh").exists()


def test_a_mail_spool_that_no_task_can_name_is_a_problem(spool: Spool, tmp_path: Path) -> None:
    """With letters in its path that a task file may not hold, no spooled mail gets a task."""
    store = NftbanStore(spool._replace(mail_spool=f"{tmp_path}/Köln/mailspool"), lambda: NOW)
    (problem,) = store.look()
    store.close()
    assert isinstance(problem, Problem)
    assert "no task can name a mail there" in problem.what
